"""The meanings of a release's columns match its values, in the Parquet files and in the descriptions."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from ddnn_traces.release import facts
from ddnn_traces.release.anonymise import identifiers, method_text
from ddnn_traces.release.anonymise.method_text import describe
from ddnn_traces.release.verify import table_checks
from ddnn_traces.release.verify.examined import Examined
from ddnn_traces.store import layout, schema

_MAPPED = {"hash", "size", "clock", "address", "time", "label", "file", "text", "tunnel", "flow"}  # by the default


def test_parquet_and_descriptions_state_the_mapping_of_each_column(release: Path) -> None:
    made = facts.from_json((release / layout.RELEASE).read_text())
    croissant = json.loads((release / layout.CROISSANT).read_text())
    package = json.loads((release / layout.DATA_PACKAGE).read_text())
    described = {f["@id"]: f["description"] for record_set in croissant["recordSet"] for f in record_set["field"]}
    packaged = {
        f"{r['table']}/{f['name']}": f["description"] for r in package["resources"] for f in r["schema"]["fields"]
    }
    for table in made.tables:
        noted = pq.read_schema(release / table.files[0].path)
        for column in schema.table(table.name).columns:
            meaning = noted.field(column.name).metadata[b"meaning"].decode()
            unit = noted.field(column.name).metadata[b"unit"].decode()
            assert meaning.startswith(column.meaning)
            assert unit == column.unit
            assert ("In this release: " in meaning) == (column.identifies in _MAPPED), (table.name, column.name)
            name = f"{table.name}/{column.name}"
            assert meaning[1:] in described[name]
            assert packaged[name] == described[name]
    assert "shifted by one secret offset" in described["flows/first_seen_ns"]
    assert "a label of the host's role" in described["flows/src_ip"]


def test_verify_requires_the_meanings_of_the_release(release: Path, tmp_path: Path) -> None:
    made = facts.from_json((release / layout.RELEASE).read_text())
    found = list(table_checks.check_columns(Examined(release, tmp_path, 1, made)))
    assert len(found) == len(made.tables)
    assert {result.status for result in found} == {"passed"}


@pytest.mark.parametrize(
    ("kind_of_addresses", "kind_of_ports", "times"),
    list(itertools.product(identifiers.ADDRESS_KINDS, identifiers.PORT_KINDS, identifiers.TIME_KINDS)),
)
def test_every_way_of_mapping_is_described(kind_of_addresses: str, kind_of_ports: str, times: str) -> None:
    done = describe(kind_of_addresses, kind_of_ports, times, None)
    by_name = {column.name: column.meaning for column in method_text.released("flows", done).columns}
    assert ("In this release" in by_name["src_ip"]) == (kind_of_addresses != "kept")
    assert ("In this release" in by_name["src_port"]) == (kind_of_ports != "kept")
    assert ("In this release" in by_name["first_seen_ns"]) == (times != "kept")
    assert by_name["run_id"] == schema.table("flows").columns[0].meaning
