"""A table's Parquet files: where they lie, what they say of their columns, how they are encoded."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa

from ddnn_traces.store import schema

_HIVE_NULLS = ("null", "__hive_default_partition__")  # what readers of Hive partitions take for NULL


def partition(dataset: Path, table: str, run_id: str) -> Path:
    """Folder of a run's rows of a table; characters that a path or Hive could misread are percent-encoded."""
    encoded = quote(run_id, safe=" +,@~")
    if run_id.lower() in _HIVE_NULLS:
        encoded = f"%{ord(run_id[0]):02X}{run_id[1:]}"
    return dataset / table / f"run_id={encoded}"


def annotated(table: str, provenance: Mapping[str, str], defined: schema.Table | None = None) -> pa.Schema:
    """The table's schema with meaning and unit at each column and the provenance at the file.

    defined: the table with other meanings than those of schemas/.
    """
    arrow = schema.table(table).arrow()
    for i, column in enumerate((defined or schema.table(table)).columns):
        notes = {"meaning": column.meaning, "source": column.source, "unit": column.unit}
        if column.inaccuracy:
            notes["inaccuracy"] = column.inaccuracy
        arrow = arrow.set(i, arrow.field(i).with_metadata(notes))
    said = {f"ddnn_traces.{key}": value for key, value in sorted(provenance.items())}
    return arrow.with_metadata(said | {"pandas": pandas_types(table)})


#: pandas' names of a column's type: where it is never null, and where it may be.
_PANDAS = {
    "string": ("unicode", "object", "object"),
    "int64": ("int64", "int64", "Int64"),
    "double": ("float64", "float64", "float64"),
    "bool": ("bool", "bool", "boolean"),
}


def pandas_types(table: str) -> str:
    """What a Parquet file tells pandas of its columns, so that integers with nulls do not become floating point.

    Times since the epoch are larger than what a double holds exactly, and to frictionless and mlcroissant, which read
    by pandas, NaN is no integer. Format: pandas, "Storing pandas DataFrame objects in Apache Parquet format".
    """
    columns = []
    for column in schema.table(table).columns:
        kind, never_null, nullable = _PANDAS[column.type]
        numpy = nullable if column.nullable else never_null
        told = {"name": column.name, "field_name": column.name, "pandas_type": kind, "numpy_type": numpy}
        columns.append(told | {"metadata": None})
    return json.dumps({"index_columns": [], "column_indexes": [], "columns": columns, "pandas_version": "2.0.0"})


def encodings(name: str) -> dict[str, Any]:
    """Numbers that tables are sorted by as differences, which are small; all else by dictionary: most of it repeats."""
    table = schema.table(name)
    sorted_by = {column.name for column in table.columns if column.name in table.key and column.type == "int64"}
    others = [column.name for column in table.columns if column.name not in sorted_by]
    return {"use_dictionary": others, "column_encoding": dict.fromkeys(sorted_by, "DELTA_BINARY_PACKED")}


def row_groups(batches: Iterable[pa.RecordBatch], arrow: pa.Schema, size: int) -> Iterable[pa.Table]:
    """Tables of `size` rows in this schema, the last one shorter: the same groups however the batches are cut."""
    waiting: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        waiting.append(batch.replace_schema_metadata(None))
        rows += batch.num_rows
        if rows >= size:
            table = pa.Table.from_batches(waiting)
            full = rows - rows % size
            yield table.slice(0, full).cast(arrow)
            waiting, rows = table.slice(full).to_batches(), rows - full
    if waiting:
        yield pa.Table.from_batches(waiting).cast(arrow)
