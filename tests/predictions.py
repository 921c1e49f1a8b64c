"""Runs to predict from, a job, and short forms of its prediction."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import polars as pl

from ddnn_traces.regression.predict import predict
from ddnn_traces.regression.results import Job, Predicted, Prediction

FORMULA = "step_bytes ~ model_bytes + C(framework_backend) + C(batch_size) + C(topology)"
SIZES = (10_000_000, 20_000_000, 30_000_000, 50_000_000)
JOB = {"model_bytes": 25e6, "framework_backend": "torch-gloo", "batch_size": 64, "topology": "ring"}


def measured(spread: float = 0.02, **columns: Any) -> pl.DataFrame:
    """16 runs: sizes x frameworks x topologies, batch 32 and 64 by turns. Ring 6, star 5 times the size."""
    rng = np.random.default_rng(3)
    rows = []
    for number, (size, backend, topology) in enumerate(itertools.product(SIZES, ("mpi", "gloo"), ("ring", "star"))):
        times = 6.0 if topology == "ring" else 5.0
        rows.append(
            {
                "run_id": f"r{number:02}", "model_bytes": size, "framework_backend": f"torch-{backend}",
                "batch_size": 32 if (number // 4 + number // 2 + number) % 2 else 64, "topology": topology,
                "workers": 4, "source": "capture",
                "step_bytes": size * times + spread * 1e8 * rng.standard_normal() + 2e6,
                "step_ms": (20 + size / 1e6) * (1 + spread * rng.standard_normal()),
            }
            | columns
        )  # fmt: skip
    return pl.DataFrame(rows)


ROWS = measured()


def copies(count: int) -> pl.DataFrame:
    """The runs so many times, each a cell of its own."""
    return pl.concat(
        [measured().with_columns(run_id=pl.col("run_id") + str(i), variant=pl.lit(str(i))) for i in range(count)]
    )


def predicted(
    rows: pl.DataFrame = ROWS, formula: str | None = FORMULA, extrapolate: bool = False, **job: Any
) -> Prediction:
    own = {name: job.pop(name) for name in ("steps", "step_ms") if name in job}
    values = {name: value for name, value in (JOB | job).items() if value is not None}
    return predict(rows, rows, Job(values, **own), formula, extrapolate)


def number(prediction: Prediction, quantity: str) -> Predicted:
    found = prediction.of(quantity)
    assert found is not None
    return found


def all_ends(p: Predicted) -> list[float]:
    ends = [p.estimate, p.mean_low, p.mean_high, p.low, p.high]
    assert None not in ends
    return [float(end) for end in ends if end is not None]
