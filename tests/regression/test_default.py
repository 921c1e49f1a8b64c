"""The default formula: what a worker sends, or the logarithm of the volume, by what the rows support."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest
from regression_runs import noted

from ddnn_traces.regression import fit
from ddnn_traces.regression.fitting import LOGARITHMS, PER_WORKER

SIZES = (1e6, 4e6, 14e6, 97e6)


def ring_runs(seed: int, absolute: float = 0.0, relative: float = 0.0, **columns: Any) -> pl.DataFrame:
    """Rings of 2 to 8 workers that send 2(N-1)S, with scatter in bytes a worker, or as a share of the volume."""
    rng = np.random.default_rng(seed)
    rows = [
        {
            "run_id": f"r{number:02}", "model_bytes": size, "workers": workers,
            "topology": ("ring", "star")[number % 2],
            "framework_backend": ("tf-grpc", "torch-gloo", "mpi")[number // 2 % 3], "batch_size": 32,
            "step_bytes": 2 * (workers - 1) * size * np.exp(relative * rng.standard_normal())
            + workers * absolute * rng.standard_normal(),
        }
        for number, (size, workers) in enumerate((size, workers) for size in SIZES for workers in (2, 4, 4, 4, 8))
    ]  # fmt: skip
    made = pl.DataFrame(rows).with_columns(**columns)
    return made.with_columns(worker_bytes=pl.col("step_bytes") / pl.col("workers"))


def log_likelihood(values: np.ndarray, columns: list[np.ndarray]) -> tuple[float, int]:
    x = np.column_stack(columns).astype(float)
    residuals = values - x @ np.linalg.lstsq(x, values, rcond=None)[0]
    n = len(values)
    return -n / 2 * (np.log(2 * np.pi * (residuals @ residuals) / n) + 1), x.shape[1]


def test_the_formula_with_the_lower_aic_is_fitted_and_the_note_has_both_numbers() -> None:
    """By hand: the likelihood of a function of step_bytes as one of step_bytes has the function's derivative in it."""
    rows = ring_runs(1, relative=0.02)
    steps, workers = rows["step_bytes"].to_numpy(), rows["workers"].to_numpy()
    levels = [np.ones(20), rows["topology"] == "star", rows["framework_backend"] == "torch-gloo",
              rows["framework_backend"] == "tf-grpc"]  # fmt: skip
    levels = [np.asarray(column, float) for column in levels]
    sizes = rows["model_bytes"].to_numpy() / 1e6
    plain = []
    for power in (0.0, 0.5, 1.0):  # one parameter more where the scatter grows
        deviation = (sizes / sizes.mean()) ** power
        columns = [column / deviation for column in (*levels, sizes)]
        found, count = log_likelihood(steps / workers / deviation, columns)
        plain.append(-2 * (found - np.log(deviation).sum() - np.log(workers).sum()) + 2 * (count + 1 + (power > 0)))
    logs, log_columns = log_likelihood(
        np.log(steps), [*levels, np.log(rows["model_bytes"].to_numpy()), np.log(workers)]
    )
    by_hand = {
        PER_WORKER: min(plain),
        LOGARITHMS: -2 * (logs - np.log(steps).sum()) + 2 * (log_columns + 1),
    }
    result = fit(rows)
    assert result.formula == min(by_hand, key=lambda form: by_hand[form]) == LOGARITHMS
    assert noted(result, "The data support", *(f"{value:.1f}" for value in by_hand.values()))


@pytest.mark.parametrize(("scatter", "formula"), [({"absolute": 2e5}, PER_WORKER), ({"relative": 0.05}, LOGARITHMS)])
def test_scatter_in_bytes_supports_what_a_worker_sends_and_relative_scatter_its_logarithm(
    scatter: dict[str, float], formula: str
) -> None:
    equal = ring_runs(3, **scatter, workers=pl.lit(4))
    volume = pl.col("model_bytes") * 6 + (pl.col("step_bytes") - pl.col("step_bytes"))
    noise = np.random.default_rng(5).standard_normal(20)
    share = scatter.get("relative", 0.0)
    volume = volume * np.exp(share * noise) + 4 * scatter.get("absolute", 0.0) * noise
    equal = equal.with_columns(step_bytes=volume).with_columns(worker_bytes=pl.col("step_bytes") / 4)
    assert fit(equal).formula == formula.replace(" + np.log(workers)", ""), "all runs have 4 workers"


def test_the_fitted_volume_of_a_step_is_in_bytes_by_either_formula() -> None:
    rows = ring_runs(1, relative=1e-4)
    for formula in (PER_WORKER, LOGARITHMS):
        result = fit(rows, formula)
        fitted = result.points["fitted"].to_numpy()
        expected = fitted * rows["workers"].to_numpy() if formula == PER_WORKER else np.exp(fitted)
        assert result.points["fitted_bytes"].to_numpy() == pytest.approx(expected, rel=1e-12)


def test_without_workers_the_volume_of_the_whole_step_is_fitted() -> None:
    result = fit(ring_runs(1, relative=0.02).with_columns(workers=pl.lit(None, pl.Int64), worker_bytes=None))
    assert "worker" not in result.formula
    assert noted(result, "No run has workers", "the whole step")


def test_a_step_without_volume_has_no_logarithm_and_is_kept() -> None:
    rows = ring_runs(1, relative=0.02)
    nothing = pl.when(pl.col("run_id") == "r03").then(0.0)
    result = fit(
        rows.with_columns(step_bytes=nothing.otherwise("step_bytes"), worker_bytes=nothing.otherwise("worker_bytes"))
    )
    assert (result.formula, result.rows) == (PER_WORKER, 20)


def test_the_exponent_of_the_size_is_stated() -> None:
    result = fit(ring_runs(1, relative=0.02))
    slope = next(c for c in result.coefficients if c.name == "np.log(model_bytes)")
    assert slope.ci_low is not None and slope.ci_high is not None and slope.ci_low < 1 < slope.ci_high
    sentence = next(verdict.sentence for verdict in result.verdicts if verdict.term == "np.log(model_bytes)")
    assert f"to the power of {slope.estimate:.4g} [{slope.ci_low:.4g}, {slope.ci_high:.4g}]" in sentence
