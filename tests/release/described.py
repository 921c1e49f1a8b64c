"""A small release's data and facts, made without publish, for the tests of descriptions."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import ddnn_traces
from ddnn_traces.query import views
from ddnn_traces.release import descriptions, facts
from ddnn_traces.release.publish import first_rows
from ddnn_traces.store import layout, parquet, schema

ABOUT = facts.About(
    title="Sample traces",
    licence="CC-BY-4.0",
    creators=(
        facts.Person("Ada Example", "0000-0002-1825-0097", "Example University"),
        facts.Person("Grace Example", affiliation="Example University"),
    ),
    version="1.0.0",
    published="2026-11-22",
    description="Packet traces of distributed training.",
    keywords=("pcap", "all-reduce"),
    publisher="Example University",
    doi="10.5072/example",
    url="https://example.org/traces",
    files_url=".",
    contact="traces@example.org",
    funding=("Example Foundation 42",),
    papers=(facts.Publication("Under the microscope", doi="10.1109/example", authors="A. Example", year=2021),),
    motivation="To be *looked at*.",
    collection="On four hosts.",
    uses="Studies of traffic.",
    limitations="One rack only.",
    sensitive="None.",
)

#: The values that a publisher must give, and nothing else.
BARE = facts.About("Bare", "CC0-1.0", (facts.Person("Ada"),), "0.1.0", "2026-01-02")

#: Text with the markup of Markdown, YAML, HTML, JSON, BibTeX.
HOSTILE = (
    "---\n# x: [`y`](http://z) | a <script>alert(1)</script> *b* {c} \\ \"d\" & $f$ %\t\x07 ```\n---\nlicense: 'mit'"
)


def copy(dataset: Path, folder: Path, runs: Sequence[str], tables: Sequence[str] = schema.TABLES) -> None:
    """The rows of some runs and tables as they lie in a release."""
    folder.mkdir(parents=True, exist_ok=True)
    layout.write_marker(folder, [table for table in schema.TABLES if table in tables])
    for table in tables:
        for run in runs:
            put(folder, table, run, pq.read_table(parquet.partition(dataset, table, run) / "part-0.parquet", **_PLAIN))


_PLAIN: dict[str, Any] = {"partitioning": None}


def put(folder: Path, table: str, run: str, rows: pa.Table) -> None:
    """Rows as those of a run in a table's file, under the run's name, after those that are there."""
    named = rows.set_column(0, "run_id", pa.array([run] * len(rows), pa.string())).cast(parquet.annotated(table, {}))
    path = file_of(folder, table)
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.concat_tables([_rows(path), named]) if path.exists() else named, path)


def file_of(folder: Path, table: str) -> Path:
    """The only file of a table in a small release."""
    return folder / parquet.part(table, 0)


def release(folder: Path, about: facts.About = ABOUT, **changes: Any) -> facts.Release:
    """The facts of what lies in the folder."""
    tables = tuple(_table(folder, name) for name in schema.TABLES if (folder / name).is_dir())
    runs = tuple(row for path in sorted((folder / "runs").glob("*.parquet")) for row in _rows(path).to_pylist())
    names = tuple(run["run_id"] for run in runs)
    software = f"ddnn_traces {ddnn_traces.__version__}"
    inputs = {"worker-1-tcpdump.pcap.gz": "ab" * 32, "worker-2-tcpdump.pcap": None}
    steps = (
        facts.Step("capture", "Packets were captured.", "tcpdump 4.99.3", {"snaplen": 100}),
        facts.Step("ingest", "Captures were read.", software, {"engine": "numba", "packets": False}, inputs, names),
        facts.Step("anonymise", "Addresses became labels.", software),
        facts.Step("publish", "Tables were written.", software),
    )
    hidden = facts.Anonymisation(
        "roles", "kept", "shifted", "0123456789abcdef", ("Host names were removed.",), ("A role tells a place.",)
    )
    made = facts.Release(
        about=about,
        schema_version=schema.SCHEMA_VERSION,
        software=software,
        tables=tables,
        runs=runs,
        windows_ns=dict.fromkeys(names, 1_000_000),
        claims=(facts.Claim("runs", "a test", "ddnn-traces sql RELEASE 'SELECT count(*) FROM runs'", "2", "0"),),
        provenance=steps,
        anonymisation=hidden,
        figure=traffic(names[0]) if names else (),
        samples={table.name: first_rows(folder, table) for table in tables},
        digest="0" * 64,
    )
    return dataclasses.replace(made, **changes)


def traffic(run: str) -> tuple[dict[str, Any], ...]:
    """Rows of query pair_volume: two hosts of a run."""
    return tuple(
        {"run_id": run, "src_place": s, "src_host": f"W{s}", "dst_place": d, "dst_host": f"W{d}", "packets": 5,
         "wire_bytes": 1000 * s, "share_of_run": 0.25, "is_heavy": True}
        for s, d in ((1, 2), (2, 1))
    )  # fmt: skip


def described(folder: Path, about: facts.About = ABOUT, **changes: Any) -> facts.Release:
    """The same, with every description in the folder, and placeholders for the other files that publish writes."""
    made = release(folder, about, **changes)
    (folder / layout.RELEASE).write_text(facts.to_json(made))
    for name in (layout.CHANGELOG, views.FILE, layout.CHECKSUMS):
        (folder / name).write_text("as publish writes it\n")
    descriptions.write(made, folder)
    return made


def without(path: Path, column: str) -> None:
    """Take a column out of a Parquet file."""
    rows = _rows(path)
    pq.write_table(rows.drop_columns([column]), path)


def changed(path: Path, column: str, value: Any) -> None:
    """The same value in all rows of a column."""
    rows = _rows(path)
    field = rows.schema.field(column)
    pq.write_table(rows.set_column(rows.schema.get_field_index(column), field, pa.array([value] * len(rows))), path)


def null_first(path: Path, column: str) -> None:
    """No value in the first row of a column."""
    rows = _rows(path)
    first = pa.array([True] + [False] * (len(rows) - 1))
    values = pc.if_else(first, pa.scalar(None, rows.schema.field(column).type), rows[column])
    pq.write_table(rows.set_column(rows.schema.get_field_index(column), rows.schema.field(column), values), path)


def _rows(path: Path) -> pa.Table:
    return pq.read_table(path, **_PLAIN)


def _table(folder: Path, name: str) -> facts.Table:
    return facts.Table(name, tuple(_file(folder, path) for path in sorted((folder / name).glob("*.parquet"))))


def _file(folder: Path, path: Path) -> facts.TableFile:
    data = path.read_bytes()
    runs = {one["values"]: one["counts"] for one in _rows(path)["run_id"].value_counts().to_pylist()}
    return facts.TableFile(path.relative_to(folder).as_posix(), len(data), hashlib.sha256(data).hexdigest(), runs)
