"""Query results as bytes: CSV, JSON, Parquet, Arrow."""

from __future__ import annotations

import json
import math
from decimal import Decimal
from typing import Any, BinaryIO

import pyarrow as pa

from ddnn_traces.errors import QueryError


def write(rows: pa.Table, output_format: str, out: BinaryIO) -> None:
    """Write a table as csv, json (an array of objects), parquet or arrow (IPC stream).

    Raises QueryError for a type that the format does not have.
    """
    try:
        _write(rows, output_format, out)
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid) as error:
        raise QueryError(f"{output_format} cannot hold this result ({error}); cast that column to VARCHAR") from error


def _write(rows: pa.Table, output_format: str, out: BinaryIO) -> None:
    if output_format == "csv":
        import pyarrow.csv

        pyarrow.csv.write_csv(_flat(rows), out)
    elif output_format == "json":
        _refuse_two_of_a_name(rows)
        out.write(json.dumps(_plain(rows.to_pylist()), indent=1).encode() + b"\n")
    elif output_format == "parquet":
        import pyarrow.parquet

        pyarrow.parquet.write_table(rows, out, compression="zstd")
    else:
        with pa.ipc.new_stream(out, rows.schema) as stream:
            stream.write_table(rows)


def _refuse_two_of_a_name(rows: pa.Table) -> None:
    """Raise QueryError where an object would lose a column."""
    names = rows.schema.names
    if twice := [name for name in names if names.count(name) > 1]:
        raise QueryError(f"json cannot hold two columns named {twice[0]}; rename one with AS")


def _flat(rows: pa.Table) -> pa.Table:
    """The table with lists, structs and maps as JSON text, which is how they fit into CSV."""
    for i, field in enumerate(rows.schema):
        if pa.types.is_nested(field.type):
            texts = [None if value is None else json.dumps(_plain(value)) for value in rows[i].to_pylist()]
            rows = rows.set_column(i, field.name, pa.array(texts, pa.string()))
    return rows


def _plain(value: Any) -> Any:
    """A value as JSON has it: no NaN or infinity, decimals as numbers, all else that JSON lacks as text."""
    match value:
        case dict():
            return {str(key): _plain(item) for key, item in value.items()}
        case list() | tuple():
            return [_plain(item) for item in value]
        case float():
            return value if math.isfinite(value) else None
        case Decimal():
            return int(value) if value == value.to_integral_value() else float(value)
        case None | str() | int():
            return value
    return str(value)
