"""Small datasets written by hand: the rows that a test gives, as ingest would lay them out."""

from __future__ import annotations

import functools
import io
from pathlib import Path

import polars as pl

import ddnn_traces
from ddnn_traces.query.dataset import Dataset
from ddnn_traces.store import checksums, parquet, schema
from ddnn_traces.store.layout import write_marker


def table_frame(table: str, rows: pl.DataFrame) -> pl.DataFrame:
    """Rows of a table with all its columns, in the types of schemas/; columns that `rows` lacks are null."""
    empty = _empty(table)
    unknown = set(rows.columns) - set(empty.columns)
    assert not unknown, f"{table} has no column {', '.join(unknown)}"
    words = [name for name in rows.columns if (empty.schema[name], rows.schema[name]) == (pl.Boolean, pl.String)]
    rows = rows.with_columns(pl.col(words) == "true").cast({column: empty.schema[column] for column in rows.columns})
    return pl.concat([empty, rows], how="diagonal")


@functools.cache
def _empty(table: str) -> pl.DataFrame:
    """The table without rows. A data frame is never changed."""
    return pl.DataFrame(schema.table(table).arrow().empty_table())


def read_case(case: Path, as_text: bool = False) -> dict[str, pl.DataFrame]:
    """The tables that a case of tests/queries gives, by name."""
    infer = {"infer_schema": False} if as_text else {}
    return {path.stem: pl.read_csv(path, **infer) for path in case.glob("*.csv") if path.stem != "expected"}


def write_dataset(folder: Path, given: dict[str, pl.DataFrame]) -> Dataset:
    """A dataset as ingest lays it out: in each table each run has its file, and be it without rows."""
    tables = {table: table_frame(table, rows) for table, rows in given.items()}
    runs = pl.concat(frame["run_id"] for frame in tables.values()).unique(maintain_order=True)
    for table in schema.TABLES:
        for run_id in runs:
            path = parquet.partition(folder, table, run_id) / "part-0.parquet"
            path.parent.mkdir(parents=True)
            if table in tables:
                tables[table].filter(run_id=run_id).write_parquet(path)
            else:
                path.write_bytes(_without_rows(table))
    write_marker(folder)
    return ddnn_traces.open(folder)


@functools.cache
def _without_rows(table: str) -> bytes:
    """The file of a table without rows: most tables of most datasets."""
    file = io.BytesIO()
    table_frame(table, pl.DataFrame()).write_parquet(file)
    return file.getvalue()


def record_checksums(dataset: Path) -> None:
    """Note the files as they are now: what a test changed in them is meant, and no damage."""
    recorded = {run_id: checksums.of_run(dataset, run_id) for run_id in checksums.run_ids(dataset)}
    (dataset / checksums.FILE).write_text(checksums.text(recorded), encoding="utf-8")
