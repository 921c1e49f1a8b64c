"""The pandas metadata of Parquet files: integers stay integers, also with nulls."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ddnn_traces.store import parquet, schema


@pytest.mark.parametrize("table", schema.TABLES)
def test_pandas_is_told_of_every_column(table: str) -> None:
    reported = json.loads(parquet.pandas_types(schema.table(table)))
    assert [column["name"] for column in reported["columns"]] == [c.name for c in schema.table(table).columns]
    nullable = {column["name"] for column in reported["columns"] if column["numpy_type"] == "Int64"}
    assert nullable == {c.name for c in schema.table(table).columns if c.type == "int64" and c.nullable}


def test_a_time_beside_a_null_is_whole(tmp_path: Path) -> None:
    time = 1_795_168_257_140_469_001
    assert int(float(time)) != time, "or this shows nothing"
    arrow = parquet.annotated("captures", {})
    rows = [{column.name: None for column in schema.table("captures").columns} for _ in range(2)]
    for row, first in zip(rows, (time, None), strict=True):
        row |= {c.name: "x" if c.type == "string" else 0 for c in schema.table("captures").columns if not c.nullable}
        row["first_ns"] = first
    pq.write_table(pa.Table.from_pylist(rows, schema=arrow), tmp_path / "captures.parquet")
    read = pd.read_parquet(tmp_path / "captures.parquet")
    assert str(read["first_ns"].dtype) == "Int64"
    assert read["first_ns"].to_list() == [time, pd.NA]
