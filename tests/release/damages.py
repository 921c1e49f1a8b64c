"""Damages of a release, each with the check that must find it, and the functions that make them.

A damage is made as by an attacker who also makes the checksums again (`sealed`): the checksums are not its only proof.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ddnn_traces.release import facts, packaging, versions
from ddnn_traces.release.verify import running
from ddnn_traces.release.verify.examined import FAILED, Examined, Result
from ddnn_traces.report import explorer, templates
from ddnn_traces.store import layout, parquet, schema

RUN = "torch-mlp1-sgd-32-gloo-0ms-ring"

#: The checks that every other relies on.
FIRST = ("links and names", "checksums", "release.json")

MAKER = "ddnn_traces.release.descriptions:texts"

Change = Callable[[Path], None]


def found(folder: Path, scratch: Path, *wanted: str) -> list[Result]:
    """The lines of some checks, and of those that they rely on."""
    scratch.mkdir(exist_ok=True)
    rows = list(running.results(Examined(folder, scratch, jobs=2, maker=MAKER), only={*FIRST, *wanted}))
    assert expected(rows)
    return rows


def all_found(folder: Path, scratch: Path) -> list[Result]:
    """The lines of every check, in this process: the libraries of the one that verify starts take 2 s."""
    return found(folder, scratch, *(name for name, _ in running.CHECKS))


def expected(rows: list[Result]) -> bool:
    """Whether no check failed for a reason that it does not handle."""
    return not [row for row in rows if "(unexpected " in row.detail]


def failures(folder: Path, scratch: Path, *wanted: str) -> list[Result]:
    return [result for result in found(folder, scratch, *wanted) if result.status == FAILED]


def sealed(folder: Path) -> None:
    """Make the checksums again."""
    (folder / layout.CHECKSUMS).unlink()
    packaging.write_checksums(folder, {})


def file_of(folder: Path, table: str, run: str = RUN) -> Path:
    """The first file of a table in a release, or that of a run in a dataset."""
    first = folder / parquet.part(table, 0)
    return first if first.exists() else parquet.partition(folder, table, run) / "part-0.parquet"


def edited(name: str, change: Callable[[dict[str, Any]], object]) -> Change:
    """A change of a JSON document."""

    def apply(folder: Path) -> None:
        document = json.loads((folder / name).read_text())
        change(document)
        (folder / name).write_text(json.dumps(document))

    return apply


def declared(change: Callable[[dict[str, Any]], object]) -> Change:
    """A change of release.json that also makes its digest again."""

    def apply(folder: Path) -> None:
        edited(layout.RELEASE, change)(folder)
        release = facts.from_json((folder / layout.RELEASE).read_text())
        release = dataclasses.replace(release, digest=versions.digest(release))
        (folder / layout.RELEASE).write_text(facts.to_json(release))

    return apply


def replaced(name: str, old: str, new: str) -> Change:
    def apply(folder: Path) -> None:
        text = (folder / name).read_text()
        assert old in text
        (folder / name).write_text(text.replace(old, new, 1))

    return apply


def other_runs(old: str, new: str, count: int) -> Change:
    """A change of the runs that explore.html shows."""

    def apply(folder: Path) -> None:
        path = folder / layout.EXPLORER
        page, runs = explorer.parts(path.read_text())
        assert old in runs
        packed = templates.packed(json.loads(runs.replace(old, new, count)))
        path.write_text(page.replace('type="text/plain">', f'type="text/plain">{packed}'))

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


def first_row_of(run: str) -> Callable[[pa.Table], pa.Table]:
    def change(rows: pa.Table) -> pa.Table:
        runs = pa.array([run, *rows["run_id"].to_pylist()[1:]])
        return rows.set_column(0, rows.schema.field("run_id"), runs)

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


def appended(name: str, more: bytes) -> Change:
    def apply(folder: Path) -> None:
        with (folder / name).open("ab") as file:
            file.write(more)

    return apply


def before_footer(folder: Path) -> None:
    """Bytes between the columns and the footer of a Parquet file: all places in it stay right."""
    path = file_of(folder, "flows")
    content = path.read_bytes()
    begin = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    path.write_bytes(content[:begin] + b"10.0.0.1 is worker-1" + content[begin:])


def in_footer(folder: Path) -> None:
    """Bytes in the footer of a Parquet file, after its metadata."""
    path = file_of(folder, "flows")
    content = path.read_bytes()
    length = int.from_bytes(content[-8:-4], "little") + 20
    path.write_bytes(content[:-8] + b"10.0.0.1 is worker-1" + length.to_bytes(4, "little") + b"PAR1")


def in_unused_space(folder: Path) -> None:
    """Bytes where DuckDB's file has none, with the checksum of the block made again: the definitions are the same."""
    content = bytearray((folder / "traces.duckdb").read_bytes())
    block = memoryview(content)[-262144:]
    assert not any(block[-100:])
    block[-26:] = b"10.0.0.1 was the first one"
    words = np.frombuffer(block[8:], "<u8") * np.uint64(0xBF58476D1CE4E5B9)  # DuckDB: src/common/checksum.cpp
    block[:8] = int(np.bitwise_xor.reduce(words) ^ np.uint64(5381)).to_bytes(8, "little")
    del words
    block.release()
    (folder / "traces.duckdb").write_bytes(content)


def other_software(*statements: str) -> Change:
    """A change of the definitions in traces.duckdb; release.json names another version as its maker."""

    def apply(folder: Path) -> None:
        with duckdb.connect(str(folder / "traces.duckdb")) as connection:
            connection.execute(f"SET file_search_path = '{folder}'")
            for statement in statements:
                connection.execute(statement)
        declared(lambda d: d.update(software="ddnn_traces 0.0.9"))(folder)

    return apply


def file_more(folder: Path) -> None:
    shutil.copy(file_of(folder, "flows"), folder / parquet.part("flows", 1))


def no_file(table: str) -> Change:
    return lambda folder: file_of(folder, table).unlink()


#: Damage -> (the change, the check that must find it, words that its line must have).
DAMAGES: dict[str, tuple[Change, str, str]] = {
    "a link": (lambda f: (f / "more").symlink_to("/etc/passwd"), "links and names", "is a link"),
    "a link to a folder": (lambda f: (f / "flows" / "more").symlink_to("/"), "links and names", "is a link"),
    "a pipe": (lambda f: os.mkfifo(f / "pipe"), "links and names", "not a plain file"),
    "a name with a backslash": (lambda f: (f / "a\\b").touch(), "links and names", "not every system"),
    "a path in the checksums": (
        lambda f: (f / layout.CHECKSUMS).write_text(f"{'0' * 64}  ../key\n"), "checksums", "line 1 of SHA256SUMS",
    ),
    "checksums of themselves": (
        lambda f: (f / layout.CHECKSUMS).write_text(f"{'0' * 64}  {layout.CHECKSUMS}\n"), "checksums",
        "lists the file itself",
    ),
    "no checksums": (lambda f: (f / layout.CHECKSUMS).unlink(), "checksums", "SHA256SUMS is missing"),
    "words after the checksums": (
        appended(layout.CHECKSUMS, b"10.0.0.1"), "checksums", "is not a checksum and the path",
    ),
    "spaces after the JSON": (appended(layout.RELEASE, b" \t " * 9), "release.json", "has other bytes than"),
    "spaces after the marker": (appended("dataset.json", b" "), "release.json", "has other bytes than this program"),
    "not JSON": (lambda f: (f / layout.RELEASE).write_text("{"), "release.json", "not valid JSON"),
    "a bomb of brackets": (lambda f: (f / layout.RELEASE).write_text("[" * 10**6), "release.json", "not valid JSON"),
    "a name twice": (replaced(layout.RELEASE, "{", '{"about": {},'), "release.json", "occurs twice"),
    "a newer format": (
        edited(layout.RELEASE, lambda d: d.update(format_version=facts.FORMAT_VERSION + 1)), "release.json",
        "update ddnn_traces",
    ),
    "a newer schema": (
        edited(layout.RELEASE, lambda d: d.update(schema_version=schema.SCHEMA_VERSION + 1)), "release.json",
        "update ddnn_traces",
    ),
    "an older schema": (edited(layout.RELEASE, lambda d: d.update(schema_version=1)), "release.json", "that made it"),
    "no title": (edited(layout.RELEASE, lambda d: d["about"].pop("title")), "release.json", "title"),
    "a file outside": (
        edited(layout.RELEASE, lambda d: d["tables"][0]["files"][0].update(path="../../secret")),
        "release.json", "secret",
    ),
    "a file of another name": (
        edited(layout.RELEASE, lambda d: d["tables"][0]["files"][0].update(path="runs/more.parquet")), "release.json",
        "is not in its place, runs/part-00000.parquet",
    ),
    "a file of another run": (
        declared(lambda d: d["tables"][1]["files"][0].update(runs={"x": 1})), "runs", "does not have (x)",
    ),
    "other tables in the marker": (lambda f: layout.write_marker(f, ["runs"]), "release.json", "other tables"),
    "an unlisted Parquet file": (file_more, "listed files", "not in release.json"),
    "a program": (lambda f: (f / "evil.sh").write_text("rm -rf /"), "listed files", "was added"),
    "an empty folder": (lambda f: (f / "flows" / "empty").mkdir(), "listed files", "an empty folder"),
    "a Parquet file less": (no_file("steps"), "listed files", "missing here"),
    "a wrong length": (
        declared(lambda d: d["tables"][0]["files"][0].update(bytes=1)), "listed files", "release.json states 1",
    ),
    "a wrong sum": (
        declared(lambda d: d["tables"][0]["files"][0].update(sha256="0" * 64)), "listed files", "another SHA-256",
    ),
    "rows that take no space": (
        rewritten("flow_windows", lambda rows: rows.take(pa.array(np.zeros(3_000_000, np.int64)))),
        "sizes", "claims 3,000,000 rows in",
    ),
    "a text that unpacks to more than it is": (
        rewritten("flows", with_values("src_ip", lambda _: "x" * (1 << 20)), use_dictionary=False), "sizes",
        "of column src_ip",
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
    "a row less": (rewritten("flows", lambda rows: rows.slice(1)), "rows and order", "rows, release.json states"),
    "a row twice": (
        rewritten("steps", lambda rows: rows.take([0, 0, *range(2, rows.num_rows)])), "rows and order",
        "have the same worker, step",
    ),
    "rows in another order": (
        rewritten("flows", lambda rows: rows.take(list(range(rows.num_rows))[::-1])),
        "rows and order", "order of flow_id",
    ),
    "windows of another length": (
        rewritten("flow_windows", with_values("window_ns", lambda n: 2 * n)), "rows and order", "has windows of",
    ),
    "rows of another run": (
        rewritten("flows", with_values("run_id", lambda run: "z" if run == RUN else run)),
        "rows and order", "of z) than release.json states",
    ),
    "a row of one run less, and one of the other more": (
        rewritten("hosts", first_row_of(RUN)), "rows and order", "has other rows",
    ),
    "bytes before a footer": (before_footer, "encoding", "has 20 bytes at"),
    "bytes in a footer": (in_footer, "encoding", "has 20 bytes in its footer"),
    "another compression": (rewritten("flows", lambda rows: rows, compression="snappy"), "encoding", "zstd (SNAPPY)"),
    "no page index": (rewritten("flows", lambda rows: rows, write_page_index=False), "encoding", "a page index"),
    "no statistics": (rewritten("flows", lambda rows: rows, write_statistics=False), "encoding", "statistics"),
    "no page checksums": (
        rewritten("flows", lambda rows: rows, write_page_checksum=False), "encoding", "page checksums",
    ),
    "another model of a run": (
        rewritten("runs", with_values("model", lambda _: "gpt")), "runs", "differs from the runs in release.json",
    ),
    "an address in place of a label": (
        rewritten("flows", with_values("src_ip", lambda _: "10.0.0.1")), "anonymisation", "has 10.0.0.1 in src_ip",
    ),
    "a packet more in the ledger": (
        rewritten("capture_ledger", with_values("packets", lambda n: n + 1)), "data", "does not flag the run",
    ),
    "a byte more in a flow": (
        rewritten("flows", with_values("wire_bytes", lambda n: n + 1)), "data", "does not flag the run",
    ),
    "a run flagged that does not fail": (
        declared(lambda d: d.update(flagged={RUN: {"ledger": 2}})), "data",
        "returns 0 rows",
    ),
    "another digest": (edited(layout.RELEASE, lambda d: d.update(digest="0" * 64)), "version", "its digest differs"),
    "another description": (
        edited(layout.RELEASE, lambda d: d["about"].update(description="More.")), "version", "its digest differs",
    ),
    "a version below the one before": (
        declared(lambda d: d.update(previous="2.0.0")), "version", "not greater than 2.0.0",
    ),
    "a changelog of another version": (
        replaced(layout.CHANGELOG, "## 1.0.0", "## 1.1.0"), "version",
        "begins with 1.1.0",
    ),
    "a view that reads another file": (hostile_view, "database", "flows: not defined as this program"),
    "bytes after the database": (
        appended("traces.duckdb", b"10.0.0.1 is worker-1"), "database", "something was added to it",
    ),
    "a block after the database": (
        appended("traces.duckdb", b"10.0.0.1 is worker-1".ljust(262144)), "database", "something was added to it",
    ),
    "bytes in unused space of the database": (in_unused_space, "database", "has other bytes than DuckDB"),
    "another program in the explorer": (
        replaced(layout.EXPLORER, "const start = async", "alert(1); const start = async"), "explorer",
        "has another program than this one writes",
    ),
    "something loaded by the explorer": (
        replaced(layout.EXPLORER, "default-src 'none'", "default-src *"), "explorer",
        "has another program than this one writes",
    ),
    "other bytes in the explorer": (other_runs('"bytes":[', '"bytes":[1,', 1), "explorer", "has other bytes of"),
    "another name in the explorer": (
        other_runs("W1", "H1", -1), "explorer", "shows something else than the tables",
    ),
    "an explorer without runs": (
        replaced(layout.EXPLORER, 'id="data"', 'id="more"'), "explorer", "does not have its runs in one place",
    ),
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
        ), "croissant", "rows that the files do not have",
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
        "citation", "not valid YAML",
    ),
    "a config of other files": (
        replaced(layout.CARD, "path: flows/*", "path: steps/*"), "card", "do not have the files of flows",
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
    "a column less in the dictionary": (
        replaced(layout.DICTIONARY, "| `retransmitted_bytes` |", "| `other` |"), "dictionary", "lacks flows.retr",
    ),
    "another unit in the dictionary": (
        replaced(layout.DICTIONARY, "`window_ns` | int64, never null | ns |", "`window_ns` | int64, never null | ms |"),
        "dictionary", "lacks flow_windows.window_ns, or has another type, unit or meaning",
    ),
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
        "its column flows.wire_bytes is",
    ),
    "another unit, in the data package": (
        edited(layout.DATA_PACKAGE, lambda d: [f.update(unit="bits") for f in every_field(d, "flows", "wire_bytes")]),
        "agreement", "its column flows.wire_bytes is",
    ),
    "another type, in Croissant": (
        edited(layout.CROISSANT, lambda d: field_of(d, "flows", "packets").update(dataType="cr:Float64")), "agreement",
        "its column flows.packets is ('cr:Float64'",
    ),
    "another type, in the card": (
        replaced(layout.CARD, "name: wire_bytes\n    dtype: int64", "name: wire_bytes\n    dtype: bool"), "agreement",
        ".wire_bytes is 'bool'",
    ),
    "a number of rows, in Croissant": (
        edited(layout.CROISSANT, lambda d: d["recordSet"][0]["annotation"].update(value=999)), "agreement",
        "its number of rows of runs is 999",
    ),
    "a number of rows, in the data package": (
        edited(layout.DATA_PACKAGE, lambda d: resources(d, "flows")[0].update(rows=999)), "agreement",
        "its number of rows of flows is",
    ),
    "a sum, in Croissant": (
        edited(layout.CROISSANT, lambda d: d["distribution"][-1].update(sha256="0" * 64)), "agreement", "its file ",
    ),
    "a size, in the crate": (
        edited(layout.RO_CRATE, lambda d: [e.update(contentSize="1") for e in d["@graph"] if "contentSize" in e]),
        "agreement", "its file ",
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
    "another number in the figure": (
        replaced(layout.FIGURE, "bytes on the wire: 7", "bytes on the wire: 8"), "agreement", "traffic.svg",
    ),
    "another first row": (
        declared(lambda d: d["samples"]["flows"][0].update(packets=1)), "samples", "not those of the table",
    ),
    "another volume of the figure": (
        declared(lambda d: d["figure"][0].update(wire_bytes=1)), "samples", "not those of query pair_volume",
    ),
    "a script in the figure": (
        replaced(layout.FIGURE, "</svg>", "<script>1</script></svg>"), "figure", "has an element script",
    ),
    "an event in the figure": (replaced(layout.FIGURE, "<svg ", '<svg onload="x()" '), "figure", "an attribute onload"),
    "an image from elsewhere in the figure": (
        replaced(layout.FIGURE, 'fill="white"', 'fill="url(http://evil.net/x)"'), "figure", "an attribute fill",
    ),
    "entities in the figure": (
        replaced(layout.FIGURE, "<svg ", '<!DOCTYPE svg [<!ENTITY a "b">]><svg '), "figure", "it has a declaration",
    ),
    "a figure that is cut off": (replaced(layout.FIGURE, "</svg>", ""), "figure", "is not SVG"),
    "the card of another run": (
        replaced(layout.WORKLOADS, f"run_id: {RUN}", "run_id: other"), "workloads", "not those of the runs",
    ),
    "a field less in a workload card": (
        replaced(layout.WORKLOADS, "hf_url: null\n", ""), "workloads", "has other fields",
    ),
    "another size in the answers to a committee": (
        replaced(layout.ARTIFACT, " bytes of data files", "0 bytes of data files"), "artifact", "does not state",
    ),
    "a claim in the answers that the release does not make": (
        lambda f: (f / layout.ARTIFACT).write_text((f / layout.ARTIFACT).read_text() + "| claim |\n| more |\n"),
        "artifact", "has other claims",
    ),
    "claims that the release does not make": (
        lambda f: (f / layout.CLAIMS).write_text("claim,source,command,expected,tolerance\n"
                                                 "a,b,ddnn-traces sql RELEASE 'SELECT 1',1,0\n"),
        "claims", "has other claims",
    ),
    "a command of a shell among the claims": (
        lambda f: (f / layout.CLAIMS).write_text("claim,source,command,expected,tolerance\na,b,rm -rf RELEASE,1,0\n"),
        "claims", "line 2, column command",
    ),
    "no record sets": (edited(layout.CROISSANT, lambda d: d.pop("recordSet")), "agreement", "its structure is not"),
}  # fmt: skip


def damages_of(*checks: str) -> list[str]:
    """Names of the damages that some checks must find."""
    return [name for name, (_, check, _) in DAMAGES.items() if check in checks]


def assert_found(folder: Path, scratch: Path, damage: str) -> None:
    """Damage a release that passed all checks; the check of the damage must find it."""
    change, check, words = DAMAGES[damage]
    change(folder)
    if check not in ("links and names", "checksums") and (folder / layout.CHECKSUMS).exists():
        sealed(folder)
    wrong = [result for result in failures(folder, scratch, check) if result.check == check]
    assert any(words in f"{result.subject} {result.detail}" for result in wrong), wrong
