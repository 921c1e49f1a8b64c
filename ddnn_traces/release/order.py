"""Rows in the order of their table's key: seen to be so as they pass, or put so."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ddnn_traces.text import sql_literal

#: Bytes of rows that are sorted in memory; more go through a file.
_IN_MEMORY = 256 << 20


class Unsorted(Exception):
    """Rows are not in the order of the key."""


def in_order(batches: Iterator[pa.RecordBatch], key: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The same batches; raises Unsorted at the first row that is less than the one before it. Nulls come last."""
    last: pa.RecordBatch | None = None
    for batch in batches:
        if batch.num_rows:
            columns = batch.select(list(key))
            if _descends(columns.slice(0, columns.num_rows - 1), columns.slice(1)) or (
                last is not None and _descends(last, columns.slice(0, 1))
            ):
                raise Unsorted
            last = columns.slice(columns.num_rows - 1)
            yield batch


def _descends(before: pa.RecordBatch, after: pa.RecordBatch) -> bool:
    """Whether any row of `after` is less than the one at its place in `before`, by all columns in turn."""
    if all(pa.types.is_integer(column.type) and not column.null_count for column in (*before, *after)):
        return _descends_in_numbers(before, after)
    undecided = None  # rows that are equal so far; None: all
    for left, right in zip(before.columns, after.columns, strict=True):
        if undecided is not None:
            left, right = left.filter(undecided), right.filter(undecided)
        if not len(left):
            return False
        if left.null_count or right.null_count:
            equal = pc.or_(pc.fill_null(pc.equal(left, right), False), pc.and_(left.is_null(), right.is_null()))
            greater = pc.or_(
                pc.fill_null(pc.greater(left, right), False), pc.and_(left.is_null(), pc.invert(right.is_null()))
            )
        else:
            equal, greater = pc.equal(left, right), pc.greater(left, right)
        if pc.any(greater).as_py():
            return True
        undecided = equal if undecided is None else _within(undecided, equal)
    return False


def _descends_in_numbers(before: pa.RecordBatch, after: pa.RecordBatch) -> bool:
    """The same of integers without nulls, which flow_windows is in order of: a fifth of the time."""
    less: Any = False
    for left, right in reversed(list(zip(before.columns, after.columns, strict=True))):
        one, other = left.to_numpy(), right.to_numpy()
        less = (other < one) | ((other == one) & less)
    return bool(np.any(less))


def _within(mask: pa.Array, inner: pa.Array) -> pa.Array:
    """A mask of all rows, where `inner` is one of those that `mask` lets through."""
    return pc.replace_with_mask(mask, mask, inner)


def sort(batches: Iterator[pa.RecordBatch], key: Sequence[str], scratch: Path, rows: int) -> Iterator[pa.RecordBatch]:
    """All rows by the key, nulls last, equal ones as they came; in batches of so many rows.

    scratch: path of a file that is made where they do not fit into memory. Raises OSError.
    """
    held: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        held.append(batch)
        size += batch.nbytes
        if size > _IN_MEMORY:
            yield from _sort_on_disk(held, batches, key, scratch, rows)
            return
    if held:
        table = pa.Table.from_batches(held)
        order = pc.sort_indices(table, [(name, "ascending") for name in key])  # nulls last
        yield from table.take(order).combine_chunks().to_batches(rows)


def _sort_on_disk(
    held: list[pa.RecordBatch], others: Iterator[pa.RecordBatch], key: Sequence[str], scratch: Path, rows: int
) -> Iterator[pa.RecordBatch]:
    import duckdb

    file = scratch.with_suffix(".parquet")
    arrow = held[0].schema
    with pq.ParquetWriter(file, arrow, compression="lz4") as writer:
        while held:
            writer.write_batch(held.pop(0))
        for batch in others:
            writer.write_batch(batch)
    try:
        with duckdb.connect(config={"memory_limit": "400MB", "threads": 1, "temp_directory": f"{scratch}.tmp"}) as sql:
            order = ", ".join(f'"{name}" NULLS LAST' for name in key)
            columns = ", ".join(f'"{name}"' for name in arrow.names)
            rows_of = f"read_parquet({sql_literal(str(file))}, file_row_number = true, hive_partitioning = false)"
            query = f"SELECT {columns} FROM {rows_of} ORDER BY {order}, file_row_number"
            for batch in sql.sql(query).to_arrow_reader(rows):
                yield batch.cast(arrow)
    finally:
        file.unlink()
