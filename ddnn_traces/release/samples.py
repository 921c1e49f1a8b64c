"""Rows of a release that its card shows: the first ones of each table, and those of the figure. They are facts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ddnn_traces.query.dataset import Dataset
from ddnn_traces.release import facts

#: Rows of each table.
ROWS = 5
#: Runs and hosts of a run in the figure.
_RUNS, _HOSTS = 6, 12

Row = Mapping[str, Any]


def first_rows(release: Path, table: facts.Table) -> tuple[Row, ...]:
    """The first rows of a table, in the order of its key. release: the folder of the tables. Raises ArrowException."""
    import pyarrow.parquet as pq

    rows: list[Row] = []
    for file in table.files:
        with pq.ParquetFile(release / file.path) as parquet:
            for batch in parquet.iter_batches(ROWS):
                rows += batch.to_pylist()
                break
        if len(rows) >= ROWS:
            break
    return tuple({name: _as_json(value) for name, value in row.items()} for row in rows[:ROWS])


def _as_json(value: Any) -> Any:
    """A value as JSON has it, which knows no infinite number."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def figure(release: Dataset) -> tuple[Row, ...]:
    """Traffic between the hosts of a few runs: rows of query pair_volume, of which figure_runs chooses the runs."""
    return tuple(release.query("pair_volume", runs=_RUNS, hosts=_HOSTS).to_dicts())
