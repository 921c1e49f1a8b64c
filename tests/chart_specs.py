"""Specifications of charts, what they draw, and rows for charts that few runs have."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl

from ddnn_traces.report.page import CHARTS

#: The fixture query of tests/report.
Query = Callable[..., pl.DataFrame]

SWEEP = Path(__file__).parent / "queries/condition_response/delay_and_loss/expected.csv"
DURATIONS = Path(__file__).parent / "queries/duration_by_loss/mean_of_the_lossless_runs/expected.csv"
#: Points of a regression; the last run determines a coefficient alone.
SYNTHETIC_FIT = pl.DataFrame(
    {
        "run_id": ["a", "b", "c", "d"],
        "observed": [11e6, 9e6, 30e6, 50e6],
        "fitted": [10e6, 10e6, 29e6, 50e6],
        "residual": [1e6, -1e6, 1e6, 0.0],
        "studentized_residual": [0.5, -2.5, 0.5, None],
    }
)

#: Queries of charts, where they have another name.
QUERIES = {
    "volume_heatmaps": "pair_volume", "pair_throughput": "pair_burst", "throughput_intervals": "total_throughput",
    "gradient_flow_intervals": "gradient_flow_throughput", "overlap_shares": "overlap_summary",
}  # fmt: skip


def lossy() -> pl.DataFrame:
    """The frame of duration_by_loss: of two settings there is no lossless run."""
    return pl.read_csv(DURATIONS)


def sweep() -> pl.DataFrame:
    """The frame of samples_by_condition: one delay of three did not finish."""
    empty = {"congestion_control": pl.String, "high_samples_per_s": pl.Float64}
    return pl.read_csv(SWEEP, schema_overrides=empty)


def spec_of(name: str, frame: pl.DataFrame, *others: pl.DataFrame) -> dict[str, Any]:
    spec: dict[str, Any] = CHARTS[name](frame, *others).to_dict()
    return spec


def drawn(spec: dict[str, Any]) -> list[dict[str, Any]]:
    """All rows of data in a specification."""
    return [row for rows in spec["datasets"].values() for row in rows]
