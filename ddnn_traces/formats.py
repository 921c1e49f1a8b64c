"""Query results as bytes: CSV, JSON, Parquet, Arrow."""

from __future__ import annotations

import json
from typing import BinaryIO

import pyarrow as pa


def write(rows: pa.Table, output_format: str, out: BinaryIO) -> None:
    """Write a table as csv, json (an array of objects), parquet or arrow (IPC stream)."""
    if output_format == "csv":
        import pyarrow.csv

        pyarrow.csv.write_csv(rows, out)
    elif output_format == "json":
        out.write(json.dumps(rows.to_pylist(), indent=1, default=str).encode() + b"\n")
    elif output_format == "parquet":
        import pyarrow.parquet

        pyarrow.parquet.write_table(rows, out, compression="zstd")
    else:
        with pa.ipc.new_stream(out, rows.schema) as stream:
            stream.write_table(rows)
