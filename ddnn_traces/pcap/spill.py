"""Rows on their way from an engine to the run's tables: on disk, since they grow with the capture."""

from __future__ import annotations

from pathlib import Path
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ddnn_traces.pcap.capture_facts import CELLS, Int64Array

ROW_GROUP_ROWS = 1 << 14  # a reader holds one row group of each file


class Spill:
    """A Parquet file of integers; it exists once the first rows were written. A context manager."""

    def __init__(self, path: Path, schema: pa.Schema, null: int | None = None) -> None:
        """schema: of capture_facts.py. null: the value that stands for null in nullable columns."""
        self.path = path
        self._schema = schema
        self._null = null
        self._writer: pq.ParquetWriter | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._writer is not None:
            self._writer.close()

    @property
    def written(self) -> Path | None:
        """The file, or None when there were no rows."""
        return self.path if self._writer is not None else None

    def write(self, rows: Int64Array) -> None:
        """Append rows, int64 (n, columns of the schema)."""
        if not len(rows):
            return
        if self._writer is None:
            # Read once, from start to end: statistics would take a third of the time.
            self._writer = pq.ParquetWriter(
                self.path, self._schema, compression="lz4", use_dictionary=False, write_statistics=False
            )
        columns = [self._column(np.ascontiguousarray(rows[:, i]), field.type) for i, field in enumerate(self._schema)]
        self._writer.write_table(pa.table(columns, schema=self._schema), row_group_size=ROW_GROUP_ROWS)

    def _column(self, values: Int64Array, kind: pa.DataType) -> pa.Array:
        mask = None if self._null is None else values == self._null
        return pa.array(values, kind, mask=mask)


class CellSpill(Spill):
    """A Parquet file of cells, mostly in the order of time.

    lag: windows by which a cell may follow one of a later window.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path, CELLS)
        self.lag = 0
        self._latest = -(2**63)

    def write(self, rows: Int64Array) -> None:
        super().write(rows)
        if len(rows):
            latest = np.maximum(np.maximum.accumulate(rows[:, 1]), self._latest)
            self.lag = max(self.lag, int((latest - rows[:, 1]).max()))
            self._latest = int(latest[-1])
