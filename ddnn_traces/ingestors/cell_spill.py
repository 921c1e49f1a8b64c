"""Cells on their way from an engine to the run's tables: on disk, since they grow with the capture."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from ddnn_traces.ingestors.facts import CELLS, Int64Array


class CellSpill:
    """A Parquet file of cells; it exists once the first ones were written. A context manager."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._writer: pq.ParquetWriter | None = None

    def __enter__(self) -> CellSpill:
        return self

    def __exit__(self, *_: object) -> None:
        if self._writer is not None:
            self._writer.close()

    @property
    def written(self) -> Path | None:
        """The file, or None when there were no cells."""
        return self.path if self._writer is not None else None

    def write(self, cells: Int64Array) -> None:
        """Append cells, int64 (n, 6) in the order of facts.CELLS."""
        if not len(cells):
            return
        if self._writer is None:
            self._writer = pq.ParquetWriter(self.path, CELLS, compression="lz4", use_dictionary=False)
        columns = [pa.array(cells[:, i]).cast(field.type) for i, field in enumerate(CELLS)]
        self._writer.write_table(pa.table(columns, schema=CELLS))
