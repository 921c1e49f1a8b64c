"""The rows of flow_windows from the cells of all files of a run, in the order of time, in bounded memory.

Each file's cells come in the order of time up to its lag, so what is older than that in every file is final. Sorting
tens of millions of cells in a database took longer than reading their packets.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq

from ddnn_traces.ingestors.facts import Int64Array
from ddnn_traces.ingestors.packets.compiled.cells import sum_cells

#: Rows that are sorted at once, at least.
_AT_ONCE = 1 << 14


@dataclass
class CellFile:
    """Cells of one file. flow_ids: flow_id of each of its flows, -1 where it does not count. lag: in windows."""

    path: Path
    flow_ids: Int64Array
    lag: int
    reached: int = field(default=-(2**63), init=False)  # no later cell is of an earlier window

    def rows(self) -> Iterator[Int64Array]:
        """Blocks of (window, flow_id, packets, wire, payload, retransmitted bytes), int64 (6, n); reached: theirs."""
        columns = ["window", "flow", "packets", "wire_bytes", "payload_bytes", "retransmitted_bytes"]
        with pq.ParquetFile(self.path) as file:
            for group in range(file.num_row_groups):
                table = file.read_row_group(group, columns=columns, use_threads=False)
                block = np.stack([table[name].to_numpy().astype(np.int64) for name in columns])
                self.reached = max(self.reached, int(block[0].max()) - self.lag)
                block[1] = self.flow_ids[block[1]]
                yield _chosen(block, block[1] >= 0)
        self.reached = 2**63 - 1


def merge_windows(files: Sequence[CellFile]) -> Iterator[Int64Array]:
    """Sums over the cells of a window and flow, ordered by window and flow_id: int64 (6, n) as CellFile.rows."""
    readers = [(file, file.rows()) for file in files]
    waiting: list[Int64Array] = []
    rows = 0
    while readers:
        file, blocks = min(readers, key=lambda reader: reader[0].reached)
        block = next(blocks, None)
        if block is None:
            readers = [reader for reader in readers if reader[0] is not file]
        else:
            waiting.append(block)
            rows += block.shape[1]
        if rows >= _AT_ONCE or not readers:
            final = min((file.reached for file, _ in readers), default=2**63 - 1)
            held = np.concatenate(waiting, axis=1) if waiting else np.empty((6, 0), np.int64)
            is_final = held[0] < final
            waiting = [_chosen(held, ~is_final)]
            rows = waiting[0].shape[1]
            if is_final.any():
                yield sum_cells(_chosen(held, is_final))


def _chosen(cells: Int64Array, is_chosen: npt.NDArray[np.bool_]) -> Int64Array:
    """The chosen columns; mostly these are all, and a copy would take as long as their sums."""
    return cells if is_chosen.all() else np.compress(is_chosen, cells, axis=1)
