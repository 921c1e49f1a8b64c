"""The tables of a release by the plainest call of each library that reads Parquet: all rows, all values."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow.parquet as pq
import pytest

import ddnn_traces
from ddnn_traces.store import schema

Rows = list[dict[str, Any]]


def by_fastparquet(release: Path, table: str) -> Rows:
    import fastparquet

    return _rows(fastparquet.ParquetFile(str(release / table)).to_pandas())


READERS: dict[str, Callable[[Path, str], Rows]] = {
    "pandas": lambda release, table: _rows(pd.read_parquet(release / table)),
    "pyarrow": lambda release, table: pq.read_table(release / table).to_pylist(),
    "polars": lambda release, table: pl.read_parquet(release / table).to_dicts(),
    "polars, lazily": lambda release, table: pl.scan_parquet(release / table).collect().to_dicts(),
    "duckdb": lambda release, table: duckdb.sql(f"FROM '{release}/{table}/*.parquet'").to_arrow_table().to_pylist(),
    "fastparquet": by_fastparquet,
}


def _rows(frame: pd.DataFrame) -> Rows:
    return [
        {str(name): None if pd.isna(value) else value for name, value in row.items()}
        for row in frame.astype(object).to_dict("records")
    ]


@pytest.fixture(scope="module")
def tables(release: Path) -> dict[str, Rows]:
    """The rows as this package reads them."""
    names = sorted(path.parent.name for path in release.glob("*/part-00000.parquet"))
    with ddnn_traces.open(release) as dataset:
        return {name: dataset.sql(f"FROM {name}").to_dicts() for name in names}


@pytest.mark.parametrize("reader", READERS)
def test_the_plainest_call_reads_a_table(release: Path, tables: dict[str, Rows], reader: str) -> None:
    for name, expected in tables.items():
        assert READERS[reader](release, name) == expected, name


def test_no_column_that_may_be_null_is_stored_as_differences(release: Path) -> None:
    """fastparquet (2026.9) reads such a page of nulls alone beyond its end, which ends the process now and then."""
    stored = set()
    for path in release.glob("*/part-*.parquet"):
        group = pq.ParquetFile(path).metadata.row_group(0)
        columns = (group.column(place) for place in range(group.num_columns))
        found = {one.path_in_schema for one in columns if "DELTA_BINARY_PACKED" in one.encodings}
        stored |= {column.nullable for column in schema.table(path.parent.name).columns if column.name in found}
    assert stored == {False}


def test_datasets_reads_a_table(release: Path, tables: dict[str, Rows], tmp_path: Path) -> None:
    """In a process of its own: a module of these tests has the same name."""
    code = (
        "import json, sys, datasets; release, *tables = sys.argv[1:];"
        "print(json.dumps({name: list(datasets.load_dataset(release, name)['train']) for name in tables}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, release, *tables], cwd=tmp_path, capture_output=True, text=True, check=True,
        env=os.environ | {"HF_HUB_OFFLINE": "1", "HF_DATASETS_CACHE": str(tmp_path), "PYTHONPATH": ""},
    )  # fmt: skip
    assert json.loads(done.stdout) == tables
