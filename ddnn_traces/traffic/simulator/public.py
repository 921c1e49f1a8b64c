"""The event-driven simulator: simulate jobs and sweeps, write them as datasets, replay a measured run elsewhere.

[simulator.md](simulator.md) and [what_if.md](what_if.md) describe the model.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl

from ddnn_traces.query.dataset import Dataset
from ddnn_traces.traffic.simulator import simulate, simulate_all, summary, traffic
from ddnn_traces.traffic.simulator import sweep as sweeps
from ddnn_traces.traffic.simulator import what_if_score as replay
from ddnn_traces.traffic.simulator.closed_forms import Ring, utilization
from ddnn_traces.traffic.simulator.job import SimulatedRun
from ddnn_traces.traffic.table_writer import write_traffic

__all__ = [
    "Ring", "SimulatedRun", "scored", "simulate", "simulate_all", "summary", "sweep", "traffic", "utilization",
    "what_if", "write_traffic",
]  # fmt: skip


def sweep(values: Mapping[str, Any], out: Path, jobs: int = 1) -> pl.DataFrame:
    """Simulate each combination of the values that are lists and write OUT/cells.parquet; return its rows.

    A row has the values, the measures and error: why a cell cannot be simulated, null else. Cells that OUT has from an
    interrupted sweep are not simulated again. jobs: processes. Raises UsageError.
    """
    return sweeps.sweep(values, out, jobs)


def what_if(dataset: Dataset, run_id: str, change: Mapping[str, Any]) -> pl.DataFrame:
    """A measured run on another network, or with another model: rows measured, replayed and changed, times in ms.

    change: bandwidth_mbit, delay_ms, workers, topology, model, batch_size and others, as of `ddnn-traces simulate
    --like`. The law is fitted to the other runs of the dataset. Raises UsageError for another key, or a run that
    cannot be replayed.
    """
    return replay.of_run(dataset, run_id, change)


def scored(dataset: Dataset) -> tuple[pl.DataFrame, list[str]]:
    """How far the replay is from the measurement: each condition of the network, by fits to other jobs.

    A row a job and condition, and lines with the medians. Raises UsageError where no job has two conditions.
    """
    return replay.scored(dataset)
