"""verify: a sound release passes, whatever kind it is; each damage is found by the check that is for it.

A damage is made as somebody would who also makes the checksums anew (`sealed`): it is not only those that find it.
"""

from __future__ import annotations

import csv
import dataclasses
import hashlib
import io
import json
import os
import re
import shutil
import socket
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from publishing import ABOUT

import ddnn_traces
from ddnn_traces.errors import ReleaseError, UsageError
from ddnn_traces.query import views
from ddnn_traces.release import checksums, facts, versions
from ddnn_traces.release.verify import database, definitions, running, trial
from ddnn_traces.release.verify.examined import Examined
from ddnn_traces.release.verify.result import FAILED, FLAGGED, NOT_CHECKED, PASSED, Result
from ddnn_traces.store import layout, marker, parquet, schema

RUN = "torch-mlp1-sgd-32-gloo-0ms-ring"

#: What every check relies on.
FIRST = ("links and names", "checksums", "release.json")

Change = Callable[[Path], None]


@pytest.fixture
def folder(release: Path, tmp_path: Path) -> Path:
    """A release to be changed."""
    return Path(shutil.copytree(release, tmp_path / "release"))


@pytest.fixture(scope="session")
def bag(small: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A release as a bag. Not to be changed."""
    out = tmp_path_factory.mktemp("bag") / "traces"
    ddnn_traces.publish(small, out, bagit=True, **ABOUT)
    return out


def found(folder: Path, scratch: Path, *wanted: str) -> list[Result]:
    """What some checks find, and those that they rely on."""
    scratch.mkdir(exist_ok=True)
    rows = list(running.results(Examined(folder, scratch, jobs=2), only={*FIRST, *wanted}))
    assert expected(rows)
    return rows


def expected(rows: list[Result]) -> bool:
    """No check stumbled over what it does not reckon with."""
    return not [row for row in rows if "(unexpected " in row.detail]


def failures(folder: Path, scratch: Path, *wanted: str) -> list[Result]:
    return [result for result in found(folder, scratch, *wanted) if result.status == FAILED]


def sealed(folder: Path) -> None:
    """Make the checksums anew."""
    (folder / layout.CHECKSUMS).unlink()
    checksums.write(folder, {})


def file_of(folder: Path, table: str, run: str = RUN) -> Path:
    return parquet.partition(folder, table, run) / "part-0.parquet"


def edited(name: str, change: Callable[[dict[str, Any]], object]) -> Change:
    """A change of a JSON document."""

    def apply(folder: Path) -> None:
        document = json.loads((folder / name).read_text())
        change(document)
        (folder / name).write_text(json.dumps(document))

    return apply


def told(change: Callable[[dict[str, Any]], object]) -> Change:
    """A change of release.json by somebody who makes its digest anew."""

    def apply(folder: Path) -> None:
        edited(layout.RELEASE, change)(folder)
        release = facts.from_json((folder / layout.RELEASE).read_text())
        edited(layout.RELEASE, lambda document: document.update(digest=versions.digest(release)))(folder)

    return apply


def replaced(name: str, old: str, new: str) -> Change:
    def apply(folder: Path) -> None:
        text = (folder / name).read_text()
        assert old in text
        (folder / name).write_text(text.replace(old, new, 1))

    return apply


def rewritten(table: str, change: Callable[[pa.Table], pa.Table], **options: Any) -> Change:
    """A change of the Parquet file of a run."""

    def apply(folder: Path) -> None:
        path = file_of(folder, table)
        rows = change(pq.read_table(path, partitioning=None))
        pq.write_table(rows, path, **{"compression": "zstd", "write_page_index": True} | options)

    return apply


def with_values(column: str, value: Callable[[Any], Any]) -> Callable[[pa.Table], pa.Table]:
    def change(rows: pa.Table) -> pa.Table:
        place = rows.schema.get_field_index(column)
        field = rows.schema.field(column)
        return rows.set_column(place, field, pa.array([value(v) for v in rows[column].to_pylist()], field.type))

    return change


def with_type(column: str, kind: pa.DataType) -> Callable[[pa.Table], pa.Table]:
    def change(rows: pa.Table) -> pa.Table:
        place = rows.schema.get_field_index(column)
        return rows.set_column(place, rows.schema.field(column).with_type(kind), rows[column].cast(kind))

    return change


def with_note(column: str, name: str, text: str) -> Callable[[pa.Table], pa.Table]:
    def change(rows: pa.Table) -> pa.Table:
        place = rows.schema.get_field_index(column)
        field = rows.schema.field(column)
        noted = field.with_metadata(field.metadata | {name.encode(): text.encode()})
        return rows.set_column(place, noted, rows[column])

    return change


def field_of(document: dict[str, Any], table: str, column: str) -> dict[str, Any]:
    """A column in croissant.json."""
    return next(
        field
        for record_set in document["recordSet"]
        if record_set["name"] == table
        for field in record_set["field"]
        if field["name"] == column
    )


def resources(document: dict[str, Any], table: str) -> list[dict[str, Any]]:
    return [resource for resource in document["resources"] if resource["table"] == table]


def every_field(document: dict[str, Any], table: str, column: str) -> list[dict[str, Any]]:
    """A column in datapackage.json, in the resources of all runs."""
    return [f for r in resources(document, table) for f in r["schema"]["fields"] if f["name"] == column]


def root(document: dict[str, Any]) -> dict[str, Any]:
    return next(entity for entity in document["@graph"] if entity["@id"] == "./")


def hostile_view(folder: Path) -> None:
    with duckdb.connect(str(folder / "traces.duckdb")) as connection:
        connection.execute("CREATE OR REPLACE VIEW flows AS SELECT content AS run_id FROM read_text('/etc/hostname')")


def other_software(*statements: str) -> Change:
    """What is defined in traces.duckdb is changed, and release.json says that another version made it."""

    def apply(folder: Path) -> None:
        with duckdb.connect(str(folder / "traces.duckdb")) as connection:
            connection.execute(f"SET file_search_path = '{folder}'")
            for statement in statements:
                connection.execute(statement)
        told(lambda d: d.update(software="ddnn_traces 0.0.9"))(folder)

    return apply


def file_more(folder: Path) -> None:
    target = parquet.partition(folder, "flows", "another") / "part-0.parquet"
    target.parent.mkdir()
    shutil.copy(file_of(folder, "flows"), target)


def no_file(table: str) -> Change:
    return lambda folder: file_of(folder, table).unlink()


#: Damage -> (what is done, the check that has to find it, a word that its line must have).
DAMAGES: dict[str, tuple[Change, str, str]] = {
    "a link": (lambda f: (f / "more").symlink_to("/etc/passwd"), "links and names", "is a link"),
    "a link to a folder": (lambda f: (f / "flows" / "run_id=x").symlink_to("/"), "links and names", "is a link"),
    "a pipe": (lambda f: os.mkfifo(f / "pipe"), "links and names", "no plain file"),
    "a name with a backslash": (lambda f: (f / "a\\b").touch(), "links and names", "not every system"),
    "a path in the checksums": (
        lambda f: (f / layout.CHECKSUMS).write_text(f"{'0' * 64}  ../key\n"), "checksums", "line 1 of SHA256SUMS",
    ),
    "checksums of themselves": (
        lambda f: (f / layout.CHECKSUMS).write_text(f"{'0' * 64}  {layout.CHECKSUMS}\n"), "checksums",
        "lists the file itself",
    ),
    "no checksums": (lambda f: (f / layout.CHECKSUMS).unlink(), "checksums", "SHA256SUMS is missing"),
    "not JSON": (lambda f: (f / layout.RELEASE).write_text("{"), "release.json", "no sound JSON"),
    "a bomb of brackets": (lambda f: (f / layout.RELEASE).write_text("[" * 10**6), "release.json", "no sound JSON"),
    "a name twice": (replaced(layout.RELEASE, "{", '{"about": {},'), "release.json", "stands twice"),
    "a newer format": (
        edited(layout.RELEASE, lambda d: d.update(format_version=2)), "release.json",
        "update ddnn_traces",
    ),
    "a newer schema": (
        edited(layout.RELEASE, lambda d: d.update(schema_version=schema.SCHEMA_VERSION + 1)), "release.json",
        "update ddnn_traces",
    ),
    "an older schema": (edited(layout.RELEASE, lambda d: d.update(schema_version=1)), "release.json", "made by"),
    "no title": (edited(layout.RELEASE, lambda d: d["about"].pop("title")), "release.json", "title"),
    "a file outside": (
        edited(layout.RELEASE, lambda d: d["tables"][0]["files"][0].update(path="../../secret")),
        "release.json", "secret",
    ),
    "a file of another run": (
        edited(layout.RELEASE, lambda d: d["tables"][0]["files"][0].update(run_id="x")), "release.json", "no place",
    ),
    "other tables in the marker": (lambda f: marker.write_marker(f, ["runs"]), "release.json", "other tables"),
    "an unlisted Parquet file": (file_more, "listed files", "not in release.json"),
    "a program": (lambda f: (f / "evil.sh").write_text("rm -rf /"), "listed files", "was added"),
    "an empty folder": (lambda f: (f / "flows" / "run_id=empty").mkdir(), "listed files", "an empty folder"),
    "a Parquet file less": (no_file("steps"), "listed files", "missing here"),
    "a wrong length": (
        told(lambda d: d["tables"][0]["files"][0].update(bytes=1)), "listed files", "release.json says 1",
    ),
    "a wrong sum": (
        told(lambda d: d["tables"][0]["files"][0].update(sha256="0" * 64)), "listed files", "another SHA-256",
    ),
    "a column removed": (rewritten("flows", lambda rows: rows.drop_columns("packets")), "columns", "lacks packets"),
    "a column added": (
        rewritten("flows", lambda rows: rows.append_column("secret", rows["src_ip"])), "columns", "has secret",
    ),
    "columns in another order": (
        rewritten("hosts", lambda rows: rows.select(rows.schema.names[::-1])), "columns", "another order",
    ),
    "a column's type changed": (
        rewritten("flows", with_type("packets", pa.int32())), "columns", "its column packets is int32",
    ),
    "a unit noted otherwise": (
        rewritten("flows", with_note("wire_bytes", "unit", "bits")),
        "columns", "the unit noted at its column wire_bytes",
    ),
    "no Parquet": (lambda f: file_of(f, "flows").write_bytes(b"PAR1"), "columns", "cannot be read"),
    "a row less": (rewritten("flows", lambda rows: rows.slice(1)), "rows and order", "rows, release.json says"),
    "rows in another order": (
        rewritten("flows", lambda rows: rows.take(list(range(rows.num_rows))[::-1])),
        "rows and order", "order of flow_id",
    ),
    "windows of another length": (
        rewritten("flow_windows", with_values("window_ns", lambda n: 2 * n)), "rows and order", "its windows are of",
    ),
    "rows of another run": (
        rewritten("flows", with_values("run_id", lambda _: "another")),
        "rows and order", "its column run_id also another",
    ),
    "another compression": (rewritten("flows", lambda rows: rows, compression="snappy"), "encoding", "zstd (SNAPPY)"),
    "no page index": (rewritten("flows", lambda rows: rows, write_page_index=False), "encoding", "a page index"),
    "no statistics": (rewritten("flows", lambda rows: rows, write_statistics=False), "encoding", "statistics"),
    "no page checksums": (
        rewritten("flows", lambda rows: rows, write_page_checksum=False), "encoding", "page checksums",
    ),
    "another model of a run": (
        rewritten("runs", with_values("model", lambda _: "gpt")), "runs", "is not what release.json says",
    ),
    "a packet more in the ledger": (
        rewritten("capture_ledger", with_values("packets", lambda n: n + 1)), "data", "does not flag the run",
    ),
    "a byte more in a flow": (
        rewritten("flows", with_values("wire_bytes", lambda n: n + 1)), "data", "does not flag the run",
    ),
    "a run flagged that does not fail": (
        told(lambda d: d.update(flagged={RUN: {"ledger": 2}})), "data",
        "returns 0 rows",
    ),
    "another digest": (edited(layout.RELEASE, lambda d: d.update(digest="0" * 64)), "version", "digest is another"),
    "another description": (
        edited(layout.RELEASE, lambda d: d["about"].update(description="More.")), "version", "digest is another",
    ),
    "a version below the one before": (told(lambda d: d.update(previous="2.0.0")), "version", "not greater than 2.0.0"),
    "a changelog of another version": (
        replaced(layout.CHANGELOG, "## 1.0.0", "## 1.1.0"), "version",
        "begins with 1.1.0",
    ),
    "a view that reads another file": (hostile_view, "database", "flows: not defined as this program"),
    "no database file": (lambda f: (f / "traces.duckdb").unlink(), "database", "is missing"),
    "a query that reads another file, of another version": (
        other_software("CREATE OR REPLACE VIEW ring_order AS SELECT * FROM read_text('/etc/hostname')"),
        "database", "ring_order: not defined as this program defines it: it calls read_text",
    ),
    "a query that reads a file by its name, of another version": (
        other_software("CREATE MACRO more() AS TABLE SELECT * FROM 'datacite.json'"),
        "database", "it reads 'datacite.json'",
    ),
    "a query that reads a file through a macro of a harmless name, of another version": (
        other_software("CREATE MACRO read_text(f) AS f || ''",
                       "CREATE OR REPLACE VIEW ring_order AS SELECT * FROM read_text('/etc/hostname')"),
        "database", "ring_order: not defined as this program defines it: it calls read_text",
    ),
    "a second form of a macro, of another version": (
        other_software("CREATE MACRO more(a) AS TABLE (SELECT a), (a, b) AS TABLE (SELECT * FROM glob('/*'))"),
        "database", "it calls glob",
    ),
    "a table of data in the database, of another version": (
        other_software("CREATE TABLE secret AS SELECT '10.0.0.1' AS ip"), "database", "secret: not defined",
    ),
    "another query, of this version": (
        lambda f: duckdb.connect(str(f / "traces.duckdb")).execute("CREATE OR REPLACE VIEW ring_order AS SELECT 1 AS x")
        .close(), "database", "ring_order: not defined as this program",
    ),
    "no DuckDB": (lambda f: (f / "traces.duckdb").write_bytes(b"no" * 9999), "database", "cannot be opened"),
    "another media type": (
        lambda f: (f / layout.CROISSANT).write_text(
            (f / layout.CROISSANT).read_text().replace("application/x-parquet", "application/vnd.apache.parquet")
        ), "croissant", "cannot load",
    ),
    "a column that is not there, in Croissant": (
        edited(layout.CROISSANT, lambda d: field_of(d, "flows", "packets")["source"]["extract"].update(column="pkts")),
        "croissant", "cannot load",
    ),
    "another column's values, in Croissant": (
        edited(
            layout.CROISSANT, lambda d: field_of(d, "flows", "packets")["source"]["extract"].update(column="wire_bytes")
        ), "croissant", "rows that are none",
    ),
    "a file elsewhere, in Croissant": (
        edited(layout.CROISSANT, lambda d: d["distribution"][-1].update(contentUrl="http://127.0.0.1:9/x.parquet")),
        "croissant", "nothing was loaded",
    ),
    "a context elsewhere, in Croissant": (
        edited(layout.CROISSANT, lambda d: d.update({"@context": "http://127.0.0.1:9/context"})),
        "croissant", "not inlined",
    ),
    "an invalid type, in the data package": (
        edited(layout.DATA_PACKAGE, lambda d: [f.update(type="integr") for f in every_field(d, "flows", "packets")]),
        "data package", "frictionless",
    ),
    "text where numbers are, in the data package": (
        edited(layout.DATA_PACKAGE, lambda d: [f.update(type="date") for f in every_field(d, "flows", "src_ip")]),
        "data package", "frictionless",
    ),
    "a file elsewhere, in the data package": (
        edited(layout.DATA_PACKAGE, lambda d: d["resources"][0].update(path="/etc/passwd")), "data package",
        "nothing was read",
    ),
    "no root, in the crate": (
        edited(layout.RO_CRATE, lambda d: d["@graph"].remove(root(d))), "RO-Crate",
        "rocrate-validator",
    ),
    "a context elsewhere, in the crate": (
        edited(layout.RO_CRATE, lambda d: d.update({"@context": "https://w3id.org/ro/crate/1.1/context"})), "RO-Crate",
        "not inlined",
    ),
    "no creators, for DataCite": (edited(layout.DATACITE, lambda d: d.pop("creators")), "DataCite", "creators"),
    "no authors to cite": (replaced(layout.CITATION, "authors:", "writers:"), "citation", "does not follow the schema"),
    "YAML that grows": (
        lambda f: (f / layout.CITATION).write_text("a: &a [x]\nb: [*a, *a]\n"), "citation", "aliases",
    ),
    "YAML that makes objects": (
        lambda f: (f / layout.CITATION).write_text("a: !!python/object/apply:os.getcwd []\n"),
        "citation", "no sound YAML",
    ),
    "a config of other files": (
        replaced(layout.CARD, "path: flows/run_id=*", "path: steps/run_id=*"), "card", "do not have the files of flows",
    ),
    "no front matter": (replaced(layout.CARD, "---\n", ""), "card", "front matter"),
    "YAML that is nested without end": (
        lambda f: (f / layout.CARD).write_text(f"---\n{'[' * 10**6}\n---\n"), "card", "YAML",
    ),
    "YAML that is nested deep": (
        lambda f: (f / layout.CITATION).write_text("a: " + "[" * 10**5), "citation", "nested more than 64 deep",
    ),
    "more objects than there are": (
        lambda f: (f / layout.DATACITE).write_text('{"a": [' + "[]," * 2_000_001 + "[]]}"), "DataCite", "too many",
    ),
    "another licence's text": (lambda f: (f / layout.LICENCE).write_text("All mine.\n"), "licence", "CC-BY-4.0"),
    "an empty datasheet": (lambda f: (f / layout.DATASHEET).write_text("\n"), "datasheet", "is empty"),
    "another title, for DataCite": (
        edited(layout.DATACITE, lambda d: d["titles"][0].update(title="Mine")), "agreement", "its title is 'Mine'",
    ),
    "another licence, in the crate": (
        edited(layout.RO_CRATE, lambda d: [e.update(name="MIT") for e in d["@graph"] if e.get("name") == "CC-BY-4.0"]),
        "agreement", "its licence is 'MIT'",
    ),
    "another date, to cite": (
        replaced(layout.CITATION, "date-released: '2026-01-31'", "date-released: '2020-01-31'"),
        "agreement", "its date is '2020-01-31'",
    ),
    "another version, in Croissant": (
        edited(layout.CROISSANT, lambda d: d.update(version="9.0.0")), "agreement", "its version is '9.0.0'",
    ),
    "another creator, in the data package": (
        edited(layout.DATA_PACKAGE, lambda d: d["contributors"][0].update(title="Eve")), "agreement", "creators",
    ),
    "another unit, in Croissant": (
        edited(layout.CROISSANT, lambda d: field_of(d, "flows", "wire_bytes").update(unitText="bits")), "agreement",
        "its column flows.wire_bytes has the unit 'bits'",
    ),
    "another unit, in the data package": (
        edited(layout.DATA_PACKAGE, lambda d: [f.update(unit="bits") for f in every_field(d, "flows", "wire_bytes")]),
        "agreement", "its column flows.wire_bytes has the unit 'bits'",
    ),
    "another type, in Croissant": (
        edited(layout.CROISSANT, lambda d: field_of(d, "flows", "packets").update(dataType="cr:Float64")), "agreement",
        "its column flows.packets is double",
    ),
    "another type, in the card": (
        replaced(layout.CARD, "name: wire_bytes\n    dtype: int64", "name: wire_bytes\n    dtype: bool"), "agreement",
        "is bool, that of the tables int64",
    ),
    "a number of rows, in Croissant": (
        edited(layout.CROISSANT, lambda d: d["recordSet"][0]["annotation"].update(value=999)), "agreement",
        "another number of rows of runs",
    ),
    "a number of rows, in the data package": (
        edited(layout.DATA_PACKAGE, lambda d: resources(d, "flows")[0].update(rows=999)), "agreement",
        "another number of rows of flows",
    ),
    "a sum, in Croissant": (
        edited(layout.CROISSANT, lambda d: d["distribution"][-1].update(sha256="0" * 64)), "agreement", "SHA-256 of",
    ),
    "a size, in the crate": (
        edited(layout.RO_CRATE, lambda d: [e.update(contentSize="1") for e in d["@graph"] if "contentSize" in e]),
        "agreement", "size or SHA-256",
    ),
    "another meaning, in Croissant": (
        edited(layout.CROISSANT, lambda d: field_of(d, "flows", "packets").update(description="Lies.")), "agreement",
        "is not what release.json makes of it: at /recordSet/",
    ),
    "another sentence in the datasheet": (
        replaced(layout.DATASHEET, "- Addresses: roles", "- Addresses: kept"), "agreement", "Addresses: kept",
    ),
    "a sentence more in the card": (
        lambda f: (f / layout.CARD).write_text((f / layout.CARD).read_text() + "More.\n"), "agreement",
        "is 'More.'",
    ),
    "no record sets": (edited(layout.CROISSANT, lambda d: d.pop("recordSet")), "agreement", "does not have the shape"),
}  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damage_is_found_by_its_check(folder: Path, tmp_path: Path, damage: str) -> None:
    change, check, word = DAMAGES[damage]
    assert failures(folder, tmp_path / "before", check) == []
    change(folder)
    if check not in ("links and names", "checksums") and (folder / layout.CHECKSUMS).exists():
        sealed(folder)
    wrong = [result for result in failures(folder, tmp_path / "after", check) if result.check == check]
    assert any(word in f"{result.subject} {result.detail}" for result in wrong), wrong


def test_every_check_can_fail() -> None:
    names = [name for name, _ in running.CHECKS]
    assert len(set(names)) == len(names)
    assert {check for _, check, _ in DAMAGES.values()} | {"bag"} == set(names)


def test_one_byte_of_any_file_is_named(folder: Path, tmp_path: Path) -> None:
    paths = [path for path in checksums.files(folder) if path != layout.CHECKSUMS]
    kinds = {Path(path).name if "/" not in path else path.partition("/")[0]: path for path in paths}
    assert {*layout.DESCRIPTIONS, layout.RELEASE, layout.CHANGELOG, "dataset.json", "traces.duckdb", "flows"} <= set(
        kinds
    )
    for path in kinds.values():
        content = (folder / path).read_bytes()
        place = len(content) // 2
        (folder / path).write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
    wrong = [result for result in failures(folder, tmp_path / "scratch") if result.check == "checksums"]
    assert {result.subject for result in wrong} == set(kinds.values())
    assert all("has been changed" in result.detail for result in wrong)


def test_files_added_and_missing_are_named(folder: Path, tmp_path: Path) -> None:
    (folder / "notes.txt").write_text("mine")
    (folder / layout.CARD).unlink()
    wrong = {result.subject: result.detail for result in failures(folder, tmp_path / "scratch")}
    assert wrong.keys() == {"notes.txt", layout.CARD}
    assert "is not of the release" in wrong["notes.txt"]
    assert "is missing" in wrong[layout.CARD]


def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_arguments: Any, **_named: Any) -> NoReturn:
        raise AssertionError("verify asked the network")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)


def test_a_sound_release_passes_without_a_network(release: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    no_network(monkeypatch)
    said: list[str] = []
    rows = ddnn_traces.verify(release, say=said.append)
    assert set(rows["status"]) == {PASSED}, rows.filter(rows["status"] != PASSED).to_dicts()
    assert said == [name for name, _ in running.CHECKS]
    assert set(rows["check"]) == {name for name, _ in running.CHECKS} - {"bag"}


def test_a_bag_passes_and_its_manifests_count(bag: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    no_network(monkeypatch)
    assert failures(bag, tmp_path / "sound", "bag") == []
    assert [r.status for r in found(bag, tmp_path / "again", "bag") if r.check == "bag"] == [PASSED]
    changes: dict[str, Change] = {
        "bag-info.txt": lambda f: (f / "bag-info.txt").write_text("Contact-Name: Eve\n"),
        "manifest-sha256.txt": lambda f: (f / "manifest-sha256.txt").write_text(""),
        "notes.txt": lambda f: (f / "notes.txt").write_text("beside"),
    }
    for name, change in changes.items():
        copy = Path(shutil.copytree(bag, tmp_path / name))
        change(copy)
        assert name in {result.subject for result in failures(copy, tmp_path / "scratch", "bag")}


def test_a_zip_file_passes(release: Path, bag: Path, tmp_path: Path) -> None:
    for source in (release, bag):
        name = shutil.make_archive(str(tmp_path / "packed"), "zip", source.parent, source.name)
        rows = running.verify(name)
        assert {row.status for row in rows} == {PASSED}, [row for row in rows if row.status != PASSED]
        assert any(row.check == "bag" for row in rows) == (source == bag)


def test_some_tables_only(small: Path, tmp_path: Path) -> None:
    out = tmp_path / "traces"
    ddnn_traces.publish(small, out, tables=["flows", "hosts"], **ABOUT)
    rows = running.verify(out)
    assert {row.status for row in rows} == {PASSED, NOT_CHECKED}
    skipped = {row.subject: row.detail for row in rows if row.status == NOT_CHECKED}
    assert skipped["ledger"] == "the release does not have capture_ledger, captures"
    assert "flow_windows" in skipped["flow_parts"]
    assert "flow_references" not in skipped


@pytest.fixture(scope="session")
def flagged(small: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A release with a run whose ledger does not add up. Not to be changed."""
    folder = tmp_path_factory.mktemp("flagged")
    dataset = Path(shutil.copytree(small, folder / "dataset"))
    rewritten("capture_ledger", with_values("packets", lambda n: n + 1))(dataset)
    ddnn_traces.publish(dataset, folder / "traces", allow_flagged=[RUN], **ABOUT)
    return folder / "traces"


def test_a_flagged_run_is_told_as_such(flagged: Path, tmp_path: Path) -> None:
    rows = found(flagged, tmp_path / "scratch", "data", "datasheet")
    assert {row.status for row in rows} == {PASSED, FLAGGED}
    lines = {row.subject: row.detail for row in rows if row.status == FLAGGED}
    assert f"ledger: {RUN}" in lines
    assert all(re.search(r"returns \d+ rows, release.json flags the run for \d+", line) for line in lines.values())


def test_a_flagged_run_must_fail_as_often_as_told_and_be_in_the_datasheet(flagged: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(flagged, tmp_path / "traces"))
    told(lambda d: d["flagged"][RUN].update(ledger=1))(folder)
    (folder / layout.DATASHEET).write_text("All is well.\n")
    sealed(folder)
    wrong = {row.check: row.detail for row in failures(folder, tmp_path / "scratch", "data", "datasheet")}
    assert "release.json says 1" in wrong["data"]
    assert "does not tell that" in wrong["datasheet"]


def test_all_failures_are_told_not_only_the_first(folder: Path) -> None:
    rewritten("flows", lambda rows: rows.drop_columns("packets"))(folder)
    (folder / layout.DATACITE).write_text("{}")
    failed = {row.check for row in running.verify(folder) if row.status == FAILED}
    assert {
        "checksums",
        "listed files",
        "columns",
        "data",
        "croissant",
        "data package",
        "DataCite",
        "agreement",
    } <= failed


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.unlink(),
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(path.read_bytes()[:-100]),
        lambda path: path.write_bytes(b"PAR1" + bytes(range(256)) * 8 + b"PAR1"),
        lambda path: path.write_bytes(b"PAR1" + bytes(range(256)) * 8 + b"\xff\xff\xff\x7fPAR1"),
    ],
)
def test_a_parquet_file_that_cannot_be_read_keeps_no_check_from_the_others(folder: Path, damage: Change) -> None:
    """Of a table of which no other file is left, too: DuckDB and pyarrow both give up on that."""
    paths = sorted(folder.glob("flows/*/*.parquet"))
    for path in paths[1:]:
        shutil.rmtree(path.parent)
    damage(paths[0])
    sealed(folder)
    rows = running.verify(folder)
    assert expected(rows)
    failed = {row.subject for row in rows if row.status == FAILED}
    assert {str(path.relative_to(folder)) for path in paths} <= failed
    assert {row.check for row in rows} == {name for name, _ in running.CHECKS} - {"bag"}
    passed = {row.check for row in rows if row.status == PASSED}
    assert {"DataCite", "citation", "card", "licence", "datasheet", "agreement"} <= passed


def test_what_a_library_stumbles_over_is_a_failure_of_its_check(
    release: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stumble(_examined: Examined) -> NoReturn:
        raise KeyError("no\nsuch\x1b[31m column")

    first = [(name, check) for name, check in running.CHECKS if name in FIRST]
    monkeypatch.setattr(running, "CHECKS", [*first, ("data", stumble), ("licence", dict(running.CHECKS)["licence"])])
    tmp_path.joinpath("scratch").mkdir()
    rows = list(running.results(Examined(release, tmp_path / "scratch", jobs=1)))
    assert not expected(rows)
    assert [(row.check, row.status) for row in rows[-2:]] == [("data", FAILED), ("licence", PASSED)]
    assert rows[-2].detail.isprintable()


def test_the_folder_of_a_release_does_not_matter(release: Path, tmp_path: Path) -> None:
    """Spaces, percent signs, question marks: libraries read them in ways of their own."""
    folder = tmp_path / "a b" / "p%20x q?x [a]*'\u00fc#"
    shutil.copytree(release, folder)
    rows = running.verify(folder)
    assert {row.status for row in rows} == {PASSED}, [row for row in rows if row.status != PASSED]
    (folder / layout.CITATION).unlink()
    shutil.rmtree(folder / "steps")
    assert not [row for row in running.verify(folder) if "ddnn-traces-" in row.detail], "no path of a temporary folder"


def test_queries_of_another_version_are_not_said_to_be_right(folder: Path, tmp_path: Path) -> None:
    """Nor wrong, where they read nothing but the tables; and descriptions are not compared word for word then."""
    other_software("CREATE OR REPLACE VIEW ring_order AS SELECT run_id FROM flows, range(3)")(folder)
    replaced(layout.DATASHEET, "# Datasheet", "# A datasheet")(folder)
    sealed(folder)
    rows = {(row.check, row.subject): row for row in found(folder, tmp_path / "scratch", "database", "agreement")}
    queries = rows["database", "queries"]
    assert queries.status == NOT_CHECKED
    assert "ring_order" in queries.detail
    assert "do not rely on them" in queries.detail
    words = rows["agreement", "all descriptions"]
    assert words.status == NOT_CHECKED
    assert "not compared word for word: made by ddnn_traces 0.0.9" in words.detail


def test_this_programs_own_queries_are_harmless() -> None:
    """Else a release of another version could never be seen to be so."""
    with duckdb.connect() as connection:
        views.write_relative(connection, [])
        defined = database._definitions(connection)
        assert len(defined) > 50
        for name, several in defined.items():
            assert [definitions.harm(connection, one.sql, defined) for one in several] == [""], name


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM read_csv('x')",
        "SELECT * FROM 'x.parquet'",
        "SELECT (SELECT content FROM read_text('x'))",
        "WITH found AS (SELECT * FROM glob('*')) SELECT * FROM found",
        "SELECT * FROM sniff_csv('x')",
        "SELECT * FROM parquet_metadata('x')",
        "SELECT * FROM query('SELECT 1')",
        "SELECT * FROM another.flows",
        "SELECT getenv('HOME')",
        "current_setting('home_directory')",
        "SELECT 1; ATTACH 'x'",
        "COPY flows TO 'x'",
        "PIVOT flows ON run_id",
    ],
)
def test_what_reads_more_than_the_tables_is_harmful(sql: str) -> None:
    with duckdb.connect() as connection:
        assert definitions.harm(connection, sql, {"flows"})
        assert definitions.harm(connection, f"CREATE VIEW x AS {sql}", {"flows"})
        assert not definitions.harm(connection, "CREATE VIEW x AS SELECT upper(run_id) FROM flows", {"flows"})


def test_the_sum_of_the_sums_is_told(release: Path, tmp_path: Path) -> None:
    sha256 = hashlib.sha256((release / layout.CHECKSUMS).read_bytes()).hexdigest()
    rows = found(release, tmp_path / "scratch")
    assert [row.status for row in rows if sha256 in row.detail] == [PASSED]


def test_after_a_link_nothing_is_read(folder: Path) -> None:
    (folder / layout.RELEASE).unlink()
    (folder / layout.RELEASE).symlink_to("/etc/passwd")
    rows = running.verify(folder)
    assert [row.status for row in rows] == [FAILED] + [NOT_CHECKED] * (len(running.CHECKS) - 1)
    assert rows[0].subject == layout.RELEASE


@pytest.mark.parametrize(
    ("make", "word"),
    [
        (lambda _: None, "no such release"),
        (lambda path: path.mkdir(), "no release"),
        (lambda path: path.write_text("x"), "no such release"),
        (lambda path: (path.mkdir(), marker.write_marker(path)), "a dataset, and no release"),
    ],
)
def test_what_is_no_release(tmp_path: Path, make: Callable[[Path], object], word: str) -> None:
    make(tmp_path / "x")
    with pytest.raises(UsageError, match=word):
        running.verify(tmp_path / "x")
    with pytest.raises(UsageError, match="download the release first"):
        running.verify("https://example.org/traces")


def test_a_zip_file_that_would_write_elsewhere(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        archive.writestr("dataset.json", "{}")
        archive.writestr("../../evil", "x")
    with pytest.raises(ReleaseError, match="evil"):
        running.verify(tmp_path / "x.zip")
    assert not (tmp_path.parent / "evil").exists()


def test_on_the_command_line(release: Path, folder: Path, command: Any) -> None:
    done = command("verify", release, "--format", "csv")
    assert done.returncode == 0
    rows = list(csv.DictReader(io.StringIO(done.stdout.decode())))
    assert {row["status"] for row in rows} == {"passed"}
    assert rows[0].keys() == {"check", "subject", "status", "detail"}
    (folder / layout.CARD).write_text("changed")
    done = command("verify", folder)
    assert done.returncode == 1
    assert b"README.md" in done.stdout
    assert b"failed" in done.stderr
    assert command("verify", "nowhere").returncode == 2


def test_a_large_release_is_tried_with_some_rows_of_some_runs(
    release: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial, "MOST_ROWS", 500)
    rows = found(release, tmp_path / "rows", "croissant", "data package")
    assert {row.status for row in rows} == {PASSED}
    details = {row.subject: row.detail for row in rows}
    assert details["flow_windows"].endswith("(up to 27 rows of each of 18 files: 54)")
    assert (
        details["resources"] == "18 resources, valid with up to 27 rows of each of 18 files, without keys between files"
    )
    examined = Examined(release, tmp_path / "runs", 1, facts.from_json((release / layout.RELEASE).read_text()))
    many = dataclasses.replace(
        examined.told(),
        tables=tuple(
            facts.Table(table.name, tuple(dataclasses.replace(table.files[0], run_id=f"{n:04}") for n in range(1000)))
            for table in examined.told().tables
        ),
    )
    chosen = trial._some_runs(many)
    assert len(chosen) == trial.MOST_FILES // len(many.tables)
    assert {"0000", "0999"} <= chosen
