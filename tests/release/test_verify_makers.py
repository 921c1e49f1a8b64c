"""verify: a mistake of each maker of a release is found, by what verify computes itself and never by the maker.

Each test plants a mistake in a maker, publishes, and verifies without naming the maker of descriptions (`maker=""`).
"""

from __future__ import annotations

import dataclasses
import importlib
import re
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from damages import FIRST
from publishing import ABOUT, CLAIMS

import ddnn_traces
from ddnn_traces.query import views
from ddnn_traces.release import (
    captures,
    descriptions,
    facts,
    leak_scan,
    packaging,
    provenance,
    publish,
    released_tables,
    versions,
)
from ddnn_traces.release.anonymise import mapping, method_text
from ddnn_traces.release.verify import running
from ddnn_traces.release.verify.examined import FAILED, Examined, Result
from ddnn_traces.report import explorer
from ddnn_traces.store import layout

Patch = pytest.MonkeyPatch


@pytest.fixture(autouse=True)
def no_scan(monkeypatch: Patch) -> None:
    """Publish's own leak scan finds some mistakes first."""
    monkeypatch.setattr(leak_scan, "refuse", lambda *_: None)


def failed(folder: Path, scratch: Path, *checks: str) -> list[Result]:
    scratch.mkdir()
    examined = Examined(folder, scratch, jobs=2)
    return [row for row in running.results(examined, only={*FIRST, *checks}) if row.status == FAILED]


# --- descriptions: each has a mistake in a publication of all of them

#: Description -> (what its maker writes, what it should have been, the check that finds it).
WRONG_TEXTS: dict[str, tuple[str, str, str]] = {
    layout.CARD: (r"\| `flows` \|([^|]+)\| [\d,]+ \|", r"| `flows` |\1| 1 |", "card"),
    layout.DICTIONARY: ("Packets of the flow", "Bytes of the flow", "dictionary"),
    layout.DATASHEET: (r"(?s)## What was removed\n.*?\n## ", "## What was removed\n\n## ", "datasheet"),
    layout.FIGURE: (r"bytes on the wire: (\d)", r"bytes on the wire: 9\1", "figure"),
    layout.WORKLOADS: ("batch_size: 32", "batch_size: 64", "workloads"),
    layout.CLAIMS: ("runs,a test", "runs,a guess", "claims"),
    layout.ARTIFACT: (r"(\d) bytes of data files", r"\g<1>0 bytes of data files", "artifact"),
    layout.LICENCE: ("Creative Commons", "Creative Common", "licence"),
    layout.CITATION: ("version: 1.0.0", "version: 1.0.1", "agreement"),
    layout.CROISSANT: (r'"unitText": "bytes"', '"unitText": "bits"', "agreement"),
    layout.DATA_PACKAGE: (r'"rows": (\d)', r'"rows": 1\1', "agreement"),
    layout.RO_CRATE: (r'"contentSize": "(\d)', r'"contentSize": "1\1', "agreement"),
    layout.DATACITE: ("Lovelace, Ada", "Babbage, Charles", "agreement"),
}


def test_a_mistake_in_each_description_is_found(small: Path, tmp_path: Path, monkeypatch: Patch) -> None:
    assert WRONG_TEXTS.keys() == descriptions.MAKERS.keys(), "each maker has its mistake"

    def mistaken(make: Callable[[facts.Release], str | None], old: str, new: str) -> Callable[[facts.Release], str]:
        def wrong(release: facts.Release) -> str:
            text, count = re.subn(old, new, make(release) or "", count=1)
            assert count, old
            return text

        return wrong

    for name, (old, new, _) in WRONG_TEXTS.items():
        monkeypatch.setitem(descriptions.MAKERS, name, mistaken(descriptions.MAKERS[name], old, new))
    claims = tmp_path / "claims.csv"
    claims.write_text(CLAIMS)
    done = ddnn_traces.publish(small, tmp_path / "traces", claims=claims, **ABOUT)
    rows = failed(done.path, tmp_path / "scratch", *{check for _, _, check in WRONG_TEXTS.values()})
    found = {row.check if row.check != "agreement" else row.subject for row in rows}
    assert found == {check if check != "agreement" else name for name, (_, _, check) in WRONG_TEXTS.items()}, rows


# --- the other makers


def _after(monkeypatch: Patch, where: Any, name: str, change: Callable[[Any], Any]) -> None:
    """Change what a function gives back."""
    make = getattr(where, name)
    monkeypatch.setattr(where, name, lambda *given, **named: change(make(*given, **named)))


def _batches(monkeypatch: Patch, change: Callable[[Any], Any]) -> None:
    """Change the rows of flows that are written."""
    make = mapping.RunMapping.batch
    monkeypatch.setattr(
        mapping.RunMapping,
        "batch",
        lambda run, table, batch: change(make(run, table, batch)) if table == "flows" else make(run, table, batch),
    )


def reversed_rows(patch: Patch) -> None:
    _batches(patch, lambda rows: rows.take([*range(rows.num_rows)][::-1]))
    patch.setattr(released_tables, "in_order", lambda batches, _key: batches)


def more_bytes(patch: Patch) -> None:
    import pyarrow.compute as pc

    def change(rows: Any) -> Any:
        place = rows.schema.get_field_index("wire_bytes")
        return rows.set_column(place, rows.schema.field(place), pc.add(rows["wire_bytes"], 1))

    _batches(patch, change)


def other_unit(patch: Patch) -> None:
    def change(table: Any) -> Any:
        return dataclasses.replace(table, columns=tuple(dataclasses.replace(c, unit="x") for c in table.columns))

    _after(patch, method_text, "released", change)


def real_addresses(patch: Patch) -> None:
    patch.setattr(
        mapping.Anonymiser,
        "_addresses",
        lambda _self, rows, _labels: {row["ip"]: row["ip"] for row in rows["addresses"]},
    )


def kept_hashes(patch: Patch) -> None:
    make = mapping.RunMapping._column
    patch.setattr(
        mapping.RunMapping,
        "_column",
        lambda run, kind, column: column if kind == "hash" else make(run, kind, column),
    )


def real_times(patch: Patch) -> None:
    patch.setattr(mapping.Anonymiser, "_offset_ns", lambda *_: 2 * 10**18)  # beyond 2037


def lost_inputs(patch: Patch) -> None:
    _after(patch, provenance, "steps", lambda steps: tuple(dataclasses.replace(step, inputs={}) for step in steps))


def wrong_hash(patch: Patch) -> None:
    _after(patch, released_tables, "sha256_of", lambda digest: digest[::-1])


def a_file_less(patch: Patch) -> None:
    _after(patch, packaging, "files", lambda paths: paths[:-1])


def wrong_digest(patch: Patch) -> None:
    _after(patch, versions, "digest", lambda digest: digest[::-1])


def no_changelog(patch: Patch) -> None:
    _after(patch, versions, "changelog", lambda text: text.replace("1.0.0", "0.9.0"))


def last_rows(patch: Patch) -> None:
    # the module: ddnn_traces.publish is the function
    _after(patch, importlib.import_module(publish.__name__), "first_rows", lambda rows: rows[::-1])


def _define_instead(patch: Patch, sql: str) -> None:
    """Another definition in traces.duckdb; verify's own file for comparing bytes has it, too."""
    make = views.define_relative

    def wrong(connection: Any, tables: Any) -> None:
        make(connection, tables)
        connection.execute(sql)

    patch.setattr(views, "define_relative", wrong)


def a_view_of_fewer_rows(patch: Patch) -> None:
    _define_instead(patch, "CREATE OR REPLACE VIEW flows AS FROM read_parquet('flows/*.parquet') WHERE packets > 1")


def another_query(patch: Patch) -> None:
    _define_instead(patch, "CREATE OR REPLACE VIEW traffic_matrix AS SELECT run_id, src_ip, dst_ip FROM flows")


def other_comments(patch: Patch) -> None:
    _after(patch, views, "table_comments", lambda comments: comments[:-1])


def lost_manifest(patch: Patch) -> None:
    _after(patch, packaging, "_lines", lambda text: text.replace(b"0", b"1") if b"  data/" in text else text)


def bytes_of_other_windows(patch: Patch) -> None:
    patch.setattr(explorer, "_WINDOWS", explorer._WINDOWS.replace("sum(wire_bytes)", "max(wire_bytes)"))


#: Mistake -> (what plants it, the check that finds it, words of a line of that check alone). Those of a publication
#: disturb one another in none of these.
PUBLICATIONS: list[tuple[dict[str, Any], dict[str, tuple[Callable[[Patch], None], str, str]]]] = [
    (
        {},
        {
            "another value": (more_bytes, "data", "flows_match_ledger"),
            "units of the columns": (other_unit, "columns", "the unit noted at its column"),
            "a file without a checksum": (a_file_less, "checksums", "(not in SHA256SUMS)"),
            "the digest": (wrong_digest, "version", "its digest differs"),
            "the first rows": (last_rows, "samples", "the first rows in release.json"),
            "the page to look around in": (bytes_of_other_windows, "explorer", "has other bytes of"),
        },
    ),
    (
        {},
        {
            "rows in another order": (reversed_rows, "rows and order", "not in the order of flow_id"),
            "addresses that were not mapped": (real_addresses, "anonymisation", "in src_ip, which is not as roles"),
            "the changelog": (no_changelog, "version", "begins with 0.9.0"),
            "views of tables": (a_view_of_fewer_rows, "database", "flows: not defined as this program defines it"),
            "views of queries": (another_query, "database", "traffic_matrix: not defined as this program"),
            "comments": (other_comments, "database", "another comment than schemas/"),
        },
    ),
    (
        {"bagit": True},
        {
            "hashes that were to be withheld": (kept_hashes, "anonymisation", "has values of blake3"),
            "times out of the years": (real_times, "anonymisation", "in first_seen_ns, which is not between"),
            "the manifest of a bag": (lost_manifest, "bag", "differs from the bag's manifests"),
        },
    ),
    (
        {"hashes": "kept"},
        {
            "inputs of the steps": (lost_inputs, "anonymisation", "no step names the capture with the hash"),
            "the hash of a table": (wrong_hash, "listed files", "has another SHA-256 than release.json"),
        },
    ),
]


@pytest.mark.parametrize(("options", "mistakes"), PUBLICATIONS, ids=["tables", "names", "bag", "hashes"])
def test_mistakes_of_other_makers_are_found(
    small: Path, tmp_path: Path, monkeypatch: Patch, options: dict[str, Any], mistakes: dict[str, Any]
) -> None:
    wanted = {check for _, check, _ in mistakes.values()}
    if "database" in wanted:  # a wrong traces.duckdb must not be kept for other tests, nor a right one be taken
        (tmp_path / "cache").mkdir()
        monkeypatch.setattr(views.cache, "folder", lambda _name: tmp_path / "cache")
    for plant, _, _ in mistakes.values():
        plant(monkeypatch)
    done = ddnn_traces.publish(small, tmp_path / "traces", **ABOUT, **options)
    lines: defaultdict[str, str] = defaultdict(str)
    for row in failed(done.path, tmp_path / "scratch", *wanted):
        lines[row.check] += f"{row.subject}: {row.detail}\n"
    missed = [name for name, (_, check, words) in mistakes.items() if words not in lines[check]]
    assert missed == [], lines


def test_a_mistake_in_the_captures_is_found(sample: Path, small: Path, tmp_path: Path, monkeypatch: Patch) -> None:
    """Times that are a millisecond late."""
    cut = captures._cut_all
    monkeypatch.setattr(
        captures,
        "_cut_all",
        lambda files, run, folder: cut(files, dataclasses.replace(run, offset_ns=run.offset_ns + 10**6), folder),
    )
    sources = [str(sample / run) for run in ("torch-mlp1-sgd-32-gloo-0ms-ring", "mpi-mlp1-sgd-32-openmpi-0ms-ring")]
    done = ddnn_traces.publish(small, tmp_path / "traces", captures=sources, **ABOUT)
    assert [row for row in failed(done.path, tmp_path / "scratch", "captures") if row.check == "captures"]
