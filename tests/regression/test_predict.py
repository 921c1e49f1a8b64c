"""Predictions against hand-made least squares and statsmodels' own, and every kind of job that must be refused."""

from __future__ import annotations

import csv
import io
import itertools
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import statsmodels.formula.api as smf
from scipy import stats
from tools import RunCommand

from ddnn_traces.errors import DdnnTracesError, PredictionError, RegressionError, UsageError
from ddnn_traces.regression import documents, fit, fit_at_job
from ddnn_traces.regression import predict as predict_module
from ddnn_traces.regression.predict import predict
from ddnn_traces.regression.results import Job, Predicted, Prediction
from ddnn_traces.traffic import synthetic
from ddnn_traces.traffic.synthetic import write_runs

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
#: Scatter that does not grow with the size: no run has more weight than another.
EVEN = ROWS.with_columns(
    step_bytes=6.0 * pl.col("model_bytes")
    + 1e7 * (pl.col("topology") == "star")
    + 1e5 * (pl.int_range(16) * 7 % 5) * (16 - pl.int_range(16))
)


def copies(count: int) -> pl.DataFrame:
    """The runs so many times, each a cell of its own."""
    return pl.concat(
        [measured().with_columns(run_id=pl.col("run_id") + str(i), variant=pl.lit(str(i))) for i in range(count)]
    )


@pytest.fixture(autouse=True)
def few_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draws for the intervals of an hour: 200,000 are only needed where a test examines those."""
    monkeypatch.setattr(predict_module, "DRAWS", 1_000)


@pytest.fixture
def one_scatter(monkeypatch: pytest.MonkeyPatch) -> None:
    """The scatter of all, as where no term's levels differ in it."""
    monkeypatch.setattr(fit_at_job, "_DIFFERS", 0.0)


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


# --- the numbers


@pytest.mark.usefixtures("one_scatter")
def test_a_step_is_that_of_least_squares_by_hand() -> None:
    """Normal equations, s2 = RSS / df, h = x'(X'X)^-1 x: +- t s sqrt(1 + h), for a cell as for a run of it."""

    def row(size: float, backend: str, batch: int, topology: str) -> list[float]:
        return [1.0, size / 1e6, backend == "torch-mpi", batch == 64, topology == "star"]

    columns = EVEN.select("model_bytes", "framework_backend", "batch_size", "topology")
    x = np.array([row(*values) for values in columns.iter_rows()], float)
    y = EVEN["step_bytes"].to_numpy()
    inverse = np.linalg.inv(x.T @ x)
    beta = inverse @ x.T @ y
    df = len(y) - x.shape[1]
    s = np.sqrt(((y - x @ beta) ** 2).sum() / df)
    at = np.array(row(*JOB.values()), float)  # type: ignore[arg-type]
    h, t = at @ inverse @ at, stats.t.ppf(0.975, df)
    by_hand = [at @ beta]
    for error in (s * np.sqrt(1 + h),) * 2:
        by_hand += [at @ beta - t * error, at @ beta + t * error]
    assert all_ends(number(predicted(EVEN), "step")) == pytest.approx(by_hand, rel=1e-9)


@pytest.mark.usefixtures("one_scatter")
@pytest.mark.parametrize(
    ("formula", "undo"),
    [
        (FORMULA, lambda v: v),
        ("np.log(step_bytes) ~ np.log(model_bytes) + C(framework_backend) + C(batch_size) + C(topology)", np.exp),
        ("np.sqrt(step_bytes) ~ model_bytes + topology", np.square),
        ("np.log10(step_bytes) ~ np.log10(model_bytes) * C(topology)", lambda v: 10**v),
    ],
)
def test_a_step_is_that_of_statsmodels(formula: str, undo: Any) -> None:
    frame = pd.DataFrame(EVEN.drop("source").to_dict(as_series=False))
    frame["model_bytes"] = frame["model_bytes"].astype(float)
    summary = smf.ols(formula, frame).fit().get_prediction(pd.DataFrame([JOB])).summary_frame(alpha=0.05).iloc[0]
    names = ("mean", "obs_ci_lower", "obs_ci_upper", "obs_ci_lower", "obs_ci_upper")
    expected = [float(undo(summary[name])) for name in names]
    assert all_ends(number(predicted(EVEN, formula), "step")) == pytest.approx(expected, rel=1e-6)


def test_a_run_is_so_many_steps_and_so_are_its_intervals() -> None:
    """What makes a run differ from others is in each of its steps, so that it does not shrink with the square root."""
    prediction = predicted(steps=1000)
    step, run = number(prediction, "step"), number(prediction, "run")
    assert all_ends(run) == pytest.approx([1000 * end for end in all_ends(step)], rel=1e-12)


def test_an_hour_of_steps_of_known_length() -> None:
    prediction = predicted(step_ms=50.0)
    assert prediction.of("step_time") is None
    assert all_ends(number(prediction, "hour")) == pytest.approx(
        [72_000 * end for end in all_ends(number(prediction, "step"))], rel=1e-12
    )


def test_an_hour_by_the_runs_step_times_is_uncertain_in_both(monkeypatch: pytest.MonkeyPatch) -> None:
    """Log volume and log step time with independent errors: variances add, and a normal distribution is near enough."""
    monkeypatch.setattr(predict_module, "DRAWS", 200_000)
    formula = "np.log(step_bytes) ~ np.log(model_bytes) + C(topology)"
    rows = copies(20)
    rng = np.random.default_rng(0)
    rows = rows.with_columns(
        step_bytes=rows["model_bytes"] * np.exp(0.03 * rng.standard_normal(rows.height)),
        step_ms=40 * np.exp(0.04 * rng.standard_normal(rows.height)),
    )
    prediction = predicted(rows, formula, framework_backend=None, batch_size=None)
    hour, step, time = (number(prediction, name) for name in ("hour", "step", "step_time"))
    assert hour.estimate == pytest.approx(step.estimate * 3.6e6 / time.estimate, rel=1e-12)
    assert hour.low is not None and hour.high is not None
    assert np.log(hour.high / hour.low) == pytest.approx(2 * 1.96 * np.hypot(0.03, 0.04), rel=0.08)
    assert hour.mean_low is not None and hour.mean_high is not None
    assert hour.low == hour.mean_low < hour.estimate < hour.mean_high == hour.high, "no cell is repeated"
    assert predicted(rows, formula, framework_backend=None, batch_size=None) == prediction, "the same draws each time"


def test_volume_and_step_time_that_rise_together_cancel_in_the_hour() -> None:
    rng = np.random.default_rng(5)
    common = np.exp(0.05 * rng.standard_normal(ROWS.height))
    rows = ROWS.with_columns(
        step_bytes=ROWS["model_bytes"] * 6.0 * common, step_ms=(40 + 0.0 * ROWS["model_bytes"]) * common
    )
    formula = "np.log(step_bytes) ~ np.log(model_bytes)"
    prediction = predicted(rows, formula, framework_backend=None, batch_size=None, topology=None)
    hour, step = number(prediction, "hour"), number(prediction, "step")
    assert hour.high / hour.low == pytest.approx(1, abs=1e-6)  # type: ignore[operator]
    assert step.high / step.low > 1.1  # type: ignore[operator]
    assert any("correlate by 1.00" in note for note in prediction.notes)


def test_an_exact_fit_has_no_interval() -> None:
    rows = ROWS.with_columns(step_bytes=pl.col("model_bytes") * 6.0)
    prediction = predicted(rows, "step_bytes ~ model_bytes", framework_backend=None, batch_size=None, topology=None)
    step = number(prediction, "step")
    assert step.estimate == pytest.approx(150e6, rel=1e-12)
    assert (step.mean_low, step.mean_high, step.low, step.high) == (None,) * 4
    assert any("no scatter" in note for note in prediction.notes)
    hour = number(prediction, "hour")
    assert hour.low is not None, "the step time still has scatter"
    for output_format in documents.PREDICTION_FORMATS:
        assert documents.prediction(prediction, output_format)


def test_scatter_that_grows_with_the_model_is_noted() -> None:
    rng = np.random.default_rng(1)
    rows = copies(5)
    size = rows["model_bytes"]
    even = rows.with_columns(step_bytes=6.0 * size + 1e6 * rng.standard_normal(rows.height))
    growing = rows.with_columns(step_bytes=6.0 * size + 0.2 * size * rng.standard_normal(rows.height))
    found = [[note for note in predicted(each).notes if "the scatter grows as" in note] for each in (even, growing)]
    assert found[0] == []
    assert [note.startswith("the scatter grows as model_bytes to the power of 1 (") for note in found[1]] == [True]


def frameworks(counts: dict[str, int], scatter: dict[str, float], seed: int) -> pl.DataFrame:
    """So many cells of each framework, of four sizes, whose logarithms scatter by so much."""
    rng = np.random.default_rng(seed)
    names = [name for name, count in counts.items() for _ in range(count)]
    size = [SIZES[number % 4] for count in counts.values() for number in range(count)]
    off = np.array([scatter[name] for name in names]) * rng.standard_normal(len(names))
    return pl.DataFrame(
        {
            "run_id": [f"r{n:02}" for n in range(len(names))], "variant": [f"{n}" for n in range(len(names))],
            "model_bytes": size, "framework_backend": names, "step_bytes": 6 * np.array(size) * np.exp(off),
        }
    )  # fmt: skip


OF_FRAMEWORK = "np.log(step_bytes) ~ np.log(model_bytes) + C(framework_backend)"


def of_framework(rows: pl.DataFrame, name: str) -> Prediction:
    return predict(rows, rows, Job({"model_bytes": 2e7, "framework_backend": name}, step_ms=1.0), OF_FRAMEWORK)


def test_the_scatter_of_a_level_is_that_of_its_cells() -> None:
    """By hand: Welch and Satterthwaite over three frameworks. The third has a smaller scatter, and too few cells."""
    rows = frameworks({"mpi": 4, "gloo": 12, "grpc": 4}, {"mpi": 0.1, "gloo": 0.01, "grpc": 0.002}, seed=2)
    levels = rows["framework_backend"].to_numpy()
    x = np.column_stack(
        [np.ones(20), np.log(rows["model_bytes"].to_numpy()), levels == "gloo", levels == "grpc"]
    ).astype(float)
    inverse, y = np.linalg.inv(x.T @ x), np.log(rows["step_bytes"].to_numpy())
    beta = inverse @ x.T @ y
    residuals, h = y - x @ beta, np.einsum("ij,jk,ik->i", x, inverse, x)
    of_all = (float(residuals @ residuals / 16), 16.0)
    own = {name: (float((residuals**2 / (1 - h))[levels == name].mean()), n) for name, n in (("mpi", 3), ("gloo", 11))}
    own["grpc"] = of_all
    for name, count in (("mpi", 4), ("gloo", 12)):
        at = np.array([1, np.log(2e7), name == "gloo", name == "grpc"], float)
        pull = (x @ inverse @ at) ** 2
        parts = {level: own[level][0] * (pull[levels == level].sum() + (level == name)) for level in own}
        variance = sum(parts.values())
        df = variance**2 / sum(part**2 / own[level][1] for level, part in parts.items())
        half = stats.t.ppf(0.975, df) * np.sqrt(variance)
        found = of_framework(rows, name)
        step = number(found, "step")
        assert [step.mean_low, step.mean_high] == pytest.approx(np.exp([at @ beta - half, at @ beta + half]), rel=1e-9)
        assert any(f"that of the {count} cells with {name}, and of other levels" in note for note in found.notes)
    at = np.array([1, np.log(2e7), 0, 1])
    half = stats.t.ppf(0.975, 16) * np.sqrt(of_all[0] * (1 + at @ inverse @ at))
    found = of_framework(rows, "grpc")
    assert number(found, "step").mean_low == pytest.approx(np.exp(at @ beta - half), rel=1e-9)
    assert any("changes with the terms (Breusch-Pagan" in note for note in found.notes)


def test_three_cells_show_that_they_scatter_more() -> None:
    """The interval of the mean of a framework's fourth cell, from three: by the scatter of all it often misses.

    Brown and Forsythe's test, of which one of three cells is the median, rarely saw the difference: 29 of these 40 sets
    were held, and 74% of 400.
    """
    held = 0
    for seed in range(40):
        rows = frameworks({"mpi": 4, "gloo": 9, "grpc": 9}, {"mpi": 0.01, "gloo": 0.002, "grpc": 0.002}, seed)
        step = number(of_framework(rows[1:], "mpi"), "step")
        assert step.mean_low is not None and step.mean_high is not None
        own = rows["step_bytes"][0] / SIZES[0] * 2e7
        held += step.mean_low <= own <= step.mean_high
    assert held >= 35  # 36 when written, and 93% of 400


def test_levels_that_scatter_alike_take_the_scatter_of_all() -> None:
    rows = frameworks({"mpi": 8, "gloo": 8}, {"mpi": 0.01, "gloo": 0.01}, seed=1)
    assert not any("is taken by" in note for note in of_framework(rows, "mpi").notes)


def test_runs_whose_scatter_grows_are_weighted_and_so_are_the_intervals() -> None:
    """Generalised least squares by hand: V = diag(size^2), the job's own variance with it."""
    rng = np.random.default_rng(5)
    rows = copies(3)
    sizes = rows["model_bytes"].to_numpy().astype(float)
    rows = rows.with_columns(step_bytes=6.0 * sizes * (1 + 0.05 * rng.standard_normal(rows.height)))
    for size in (10e6, 50e6):
        found = predicted(rows, "step_bytes ~ model_bytes", model_bytes=size, framework_backend=None, batch_size=None,
                          topology=None)  # fmt: skip
        assert any("to the power of 1 (" in note for note in found.notes)
        x, weight = np.column_stack([np.ones(len(sizes)), sizes / 1e6]), 1e14 / sizes**2
        y = rows["step_bytes"].to_numpy()
        inverse = np.linalg.inv(x.T @ (x * weight[:, None]))
        beta = inverse @ x.T @ (weight * y)
        df = len(y) - 2
        s2 = float((weight * (y - x @ beta) ** 2).sum()) / df
        at = np.array([1.0, size / 1e6])
        h, t = float(at @ inverse @ at), float(stats.t.ppf(0.975, df))
        by_hand = [float(at @ beta)]
        for variance in (s2 * (size**2 / 1e14 + h),) * 2:
            by_hand += [by_hand[0] - t * np.sqrt(variance), by_hand[0] + t * np.sqrt(variance)]
        assert all_ends(number(found, "step")) == pytest.approx(by_hand, rel=1e-9)


def test_a_prediction_that_depends_on_an_attribute_that_the_formula_lacks_is_refused() -> None:
    """All stars have 8 workers: whether a star sends less, or 8 workers do, the runs do not show."""
    rows = ROWS.with_columns(workers=pl.when(pl.col("topology") == "star").then(8).otherwise(4))
    message = "depends on workers, which the formula lacks: with it the runs do not determine it"
    assert message in refused(rows=rows, topology="star", workers=4)
    assert predicted(rows, workers=4).warnings == ()  # as the other rings
    delayed = ROWS.with_columns(delay_ms=pl.Series([0.0, 10.0] * 8))  # with every star
    assert message.replace("workers", "delay_ms") in refused(rows=delayed, delay_ms=2.5)


def test_an_optimizer_that_matters_is_asked_for() -> None:
    """Asynchronous servers send half: a job that does not state the optimizer is between both, and like none."""
    rows = copies(2).with_columns(optimizer=pl.Series(["sgd", "async"]).gather([0] * 16 + [1] * 16))
    logs = "np.log(step_bytes) ~ np.log(model_bytes) + C(framework_backend) + C(batch_size) + C(topology)"
    half = pl.when(pl.col("optimizer") == "async").then(0.5).otherwise(1.0)
    rows = rows.with_columns(step_bytes=pl.col("step_bytes") * half)
    assert "depends on optimizer, which the job does not state (async " in refused(rows=rows, formula=logs)
    same = rows.with_columns(step_bytes=pl.col("step_bytes") / half)
    assert predicted(same, logs).warnings == ()
    assert predicted(rows, f"{logs} + C(optimizer)", optimizer="async").warnings == ()
    rings = rows.filter((pl.col("optimizer") == "sgd") | (pl.col("topology") == "star"))
    assert "optimizer" not in "".join(predicted(rings, logs, extrapolate=True).warnings), "no ring is asynchronous"


def test_of_two_laws_of_the_runs_like_the_job_one_is_asked_for() -> None:
    """Of 4 workers a synchronous server's step moves 8 model sizes; an asynchronous one's updates are each a step."""
    rows = ROWS.with_columns(law_factor=pl.Series([8.0, 8.0, 2.0, 2.0] * 4))
    rows = rows.with_columns(implied_bytes=pl.col("step_bytes") / pl.col("law_factor"))
    with pytest.raises(PredictionError, match=r"send 2 or 8 model sizes in a step .* give --set law_factor="):
        predicted(rows, "np.log(implied_bytes) ~ np.log(model_bytes)", workers=4)


def test_what_a_worker_sends_is_predicted_times_the_workers_of_the_job() -> None:
    rows = ROWS.with_columns(workers=pl.Series([2, 4, 4, 8] * 4)).with_columns(
        worker_bytes=pl.col("step_bytes") / pl.col("workers")
    )
    formula = "worker_bytes ~ model_bytes"
    nothing = {"framework_backend": None, "batch_size": None, "topology": None}
    one, two = (number(predicted(rows, formula, True, workers=count, **nothing), "step") for count in (2, 4))
    assert all_ends(two) == pytest.approx([2 * end for end in all_ends(one)], rel=1e-12)
    with pytest.raises(UsageError, match=r"give the job's workers \(the runs have 2, 4, 8\)"):
        predicted(rows, formula, **nothing)


# --- what is refused


def refused(**given: Any) -> str:
    """Why a job is not predicted; with extrapolate the same reasons are its warnings."""
    with pytest.raises(PredictionError) as error:
        predicted(**given)
    message = str(error.value)
    assert error.value.exit_code == 1
    assert "--extrapolate" in message.splitlines()[-1]
    forced = predicted(extrapolate=True, **given)
    assert [f"- {warning}" for warning in forced.warnings] == message.splitlines()[1:-1]
    for output_format in documents.PREDICTION_FORMATS:
        text = documents.prediction(forced, output_format)
        assert all(warning.split(";")[0] in text for warning in forced.warnings)
    return message


def impossible(**given: Any) -> str:
    """Why a job cannot be predicted at all."""
    with pytest.raises(PredictionError) as error:
        predicted(extrapolate=True, **given)
    assert "--extrapolate" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize("size", [9_999_999.0, 50_000_001.0, 1e12])
def test_a_size_outside_the_measured_range(size: float) -> None:
    assert f"model_bytes = {size:.0f} is outside the measured range, 10000000 to 50000000" in refused(model_bytes=size)


@pytest.mark.parametrize("size", [10_000_000, 50_000_000])
def test_the_ends_of_the_range_are_measured(size: int) -> None:
    assert predicted(model_bytes=size).warnings == ()


def test_levels_that_were_never_measured_together() -> None:
    rows = ROWS.filter(~((pl.col("topology") == "star") & (pl.col("framework_backend") == "torch-gloo")))
    message = refused(rows=rows, topology="star")
    assert "no run has these together: batch_size = 64, framework_backend = torch-gloo, topology = star" in message


def test_hidden_extrapolation() -> None:
    """Either number is within its range, but large models were only measured with long delays."""
    rows = ROWS.with_columns(delay_ms=pl.col("model_bytes") / 1e7 + pl.Series([0.0, 0.2] * 8))
    formula = "step_bytes ~ model_bytes + delay_ms"
    nothing = {"framework_backend": None, "batch_size": None, "topology": None}
    assert predicted(rows, formula, delay_ms=2.6, **nothing).warnings == ()
    message = refused(rows=rows, formula=formula, model_bytes=49e6, delay_ms=1.2, **nothing)
    assert "outside the measured range" not in message
    assert "hidden extrapolation" in message


def test_another_number_of_workers() -> None:
    assert predicted(workers=4).warnings == ()
    assert "workers = 8, where the runs have 4, and it is not in the formula" in refused(workers=8)
    unknown = ROWS.with_columns(workers=pl.lit(None, pl.Int64))
    assert "the runs have no workers, which is not in the formula" in refused(rows=unknown, workers=4)


def test_a_number_of_workers_that_some_run_had() -> None:
    """The runs need not all have it; a note states that workers are not in the formula."""
    rows = ROWS.with_columns(workers=pl.Series([2, 3, 4, 4] * 4))
    for workers in (2, 3, "4"):
        prediction = predicted(rows, workers=workers)
        assert prediction.warnings == ()
        assert "the runs have 2, 3, 4 workers, not in the formula" in prediction.notes
    assert "workers = 5, where the runs have 2, 3, 4, and" in refused(rows=rows, workers=5)


def test_an_attribute_that_is_not_in_the_formula() -> None:
    rows = ROWS.with_columns(
        delay_ms=pl.Series([0.0, 10.0, 10.0, 0.0] * 4),
        bandwidth_mbit=1000.0,
        optimizer=pl.lit("sgd"),
        model=pl.lit(None, pl.String),
    )
    prediction = predicted(rows, delay_ms="2.5", bandwidth_mbit=1000, optimizer="sgd")
    assert prediction.warnings == ()
    note = "not in the formula, and so without effect: bandwidth_mbit, delay_ms (the runs have 0 to 10), optimizer"
    assert note in prediction.notes
    end = "and it is not in the formula"
    for given, message in (
        ({"delay_ms": "500"}, f"delay_ms = 500, where the runs have 0 to 10, {end}"),
        ({"delay_ms": -0.1}, "delay_ms = -0.1, where"),
        ({"bandwidth_mbit": 1}, f"bandwidth_mbit = 1, where the runs have 1000, {end}"),
        ({"optimizer": "adam"}, f"optimizer = adam, where the runs have sgd, {end}"),
        ({"model": "mlp1"}, "the runs have no model, which is not in the formula"),
    ):
        assert message in refused(rows=rows, **given)


def test_workers_of_the_formula() -> None:
    rows = ROWS.with_columns(workers=pl.Series([2, 4, 4, 8] * 4))
    formula = "step_bytes ~ model_bytes + workers + C(topology)"
    nothing = {"framework_backend": None, "batch_size": None}
    assert predicted(rows, formula, workers=6, **nothing).warnings == ()
    assert "workers = 9 is outside" in refused(rows=rows, formula=formula, workers=9, **nothing)
    assert any("2, 4, 8 workers" in note for note in predicted(rows).notes)


def test_a_negative_volume() -> None:
    rows = ROWS.with_columns(step_bytes=pl.col("step_bytes") - 7.5e7)
    assert "the predicted volume is negative" in refused(rows=rows, model_bytes=10_000_000)
    notes = predicted(rows.with_columns(step_bytes=pl.col("step_bytes") + 1.5e7), model_bytes=10_000_000).notes
    assert any("below 0" in note for note in notes)


def test_the_error_of_an_unknown_level_lists_the_levels_the_nearest_first() -> None:
    assert "no run has topology = stars; there are, the nearest first: star, ring" in impossible(topology="stars")
    assert "no run has batch_size = 33; there are, the nearest first: 32, 64" in impossible(batch_size=33)
    both = impossible(topology="tree", framework_backend="torch-mpl")
    assert "topology = tree" in both and "the nearest first: torch-mpi, torch-gloo" in both


def test_effects_that_the_runs_cannot_separate() -> None:
    """gloo ran rings only and mpi stars only: of a ring over mpi nothing is known."""
    rows = ROWS.filter((pl.col("topology") == "star") == (pl.col("framework_backend") == "torch-mpi"))
    formula = "step_bytes ~ model_bytes + C(framework_backend) + C(topology)"
    assert predicted(rows, formula, batch_size=None).warnings == ()
    message = impossible(rows=rows, formula=formula, framework_backend="torch-mpi", batch_size=None)
    assert "cannot separate topology = " in message and "from framework_backend = " in message
    assert "no run has these together: framework_backend = torch-mpi, topology = ring" in message


def test_the_effect_of_a_constant_column_is_not_known() -> None:
    rows = ROWS.filter(pl.col("model_bytes") == 20_000_000)
    formula = "step_bytes ~ model_bytes + C(topology)"
    nothing = {"framework_backend": None, "batch_size": None}
    assert predicted(rows, formula, model_bytes=20_000_000, **nothing).warnings == ()
    message = impossible(rows=rows, formula=formula, **nothing)
    assert "every run has model_bytes = 20000000, so that its effect is not known: ingest runs with another" in message


def test_no_scatter_left_by_too_many_coefficients() -> None:
    assert "leave no scatter" in impossible(rows=ROWS.head(4), model_bytes=10e6)
    assert "2 usable runs, and at least 3 are needed" in impossible(rows=ROWS.head(2))


def test_a_size_that_no_run_has() -> None:
    rows = ROWS.with_columns(nominal_bytes=pl.col("model_bytes"), model_bytes=pl.lit(None, pl.Int64))
    message = impossible(rows=rows)
    assert "no run has model_bytes, but there are batch_size, framework_backend, nominal_bytes, topology" in message
    formula = "step_bytes ~ nominal_bytes + C(topology)"
    assert predicted(rows, formula, nominal_bytes=25e6).warnings == ()


def test_the_default_formula_takes_the_nominal_size_as_regress_does() -> None:
    rows = ROWS.with_columns(nominal_bytes=pl.col("model_bytes") * 1.01, model_bytes=pl.lit(None, pl.Int64))
    prediction = predicted(rows, None, model_bytes=None, nominal_bytes=25e6)
    assert prediction.formula == fit(rows).formula
    assert "nominal_bytes" in prediction.formula and "model_bytes" not in prediction.formula
    explicit = predicted(rows, prediction.formula, model_bytes=None, nominal_bytes=25e6)
    assert prediction.predicted == explicit.predicted
    note = "no run has the bytes that it exchanges (model_bytes): the nominal size is used"
    assert any(found.startswith(note) for found in set(prediction.notes) - set(explicit.notes))
    with pytest.raises(UsageError, match=r"No run has the bytes .* Give the job's nominal_bytes too"):
        predicted(rows, None)
    assert predicted(rows, None, nominal_bytes=25e6).warnings == (), "the other size may be given, too"
    assert "nominal_bytes" not in predicted(formula=None).formula, "where there are both"


def test_a_run_that_lacks_a_value_is_not_in_the_fit() -> None:
    rows = ROWS.with_columns(step_bytes=pl.when(pl.col("run_id") == "r03").then(None).otherwise(pl.col("step_bytes")))
    prediction = predicted(rows)
    assert prediction.runs == 15
    assert any(note.startswith("1 of 16 runs are not in the fit") for note in prediction.notes)


def test_a_run_for_which_the_formula_is_not_a_number_is_not_in_the_fit() -> None:
    nothing = ROWS.with_columns(step_bytes=pl.when(pl.col("run_id") == "r03").then(0.0).otherwise("step_bytes"))
    formula = "np.log(step_bytes) ~ np.log(model_bytes) + C(topology)"
    found, without = predicted(nothing, formula), predicted(ROWS.filter(pl.col("run_id") != "r03"), formula)
    assert found.of("step") == without.of("step")
    assert found.runs == 15
    assert any(note.startswith("1 of 16 runs are not in the fit") for note in found.notes)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"batch_size": None}, "needs the job's batch_size"),
        ({"model_bytes": float("nan")}, "model_bytes = nan: give a finite number"),
        ({"model_bytes": -1.0}, "model_bytes = -1.0: give a number above 0"),
        ({"step_ms": 0.0}, "step_ms = 0.0: give a number above 0"),
        ({"model_bytes": "large"}, "model_bytes = large: give a number"),
        ({"workers": "nan"}, "workers = nan: give a finite number"),
        ({"qqqq": 5}, "qqqq is not an attribute of the runs; there are: batch_size, framework_backend"),
        ({"worker": 5}, "worker is not an attribute of the runs; did you mean workers"),
        ({"step_bytes": 5}, "step_bytes is not an attribute of the runs"),
    ],
)
def test_an_incomplete_or_invalid_description(given: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)) as error:
        predicted(extrapolate=True, **given)
    assert error.value.exit_code == 2


@pytest.mark.parametrize(
    ("formula", "message"),
    [
        ("step_bytes / model_bytes ~ C(topology)", "left side"),
        ("np.exp(step_bytes / 1000000000) ~ C(topology)", "cannot be inverted"),
        ("step_ms ~ C(topology)", "must be step_bytes"),
        ("step_bytes ~ colour", "unknown columns: colour"),
    ],
)
def test_formulas_that_cannot_be_used(formula: str, message: str) -> None:
    with pytest.raises(RegressionError, match=message):
        predicted(formula=formula)


def test_without_step_times_there_is_no_hour() -> None:
    prediction = predicted(ROWS.with_columns(step_ms=pl.lit(None, pl.Float64)))
    assert prediction.of("hour") is None and prediction.of("step") is not None
    assert any(note.startswith("no volume of an hour") and "give step_ms" in note for note in prediction.notes)


def test_the_step_time_has_an_intercept_always() -> None:
    """exp(0) would be 1 ms for a job of no size; the runs last 20 ms and 1 ms a MB."""
    nothing = {"framework_backend": None, "batch_size": None, "topology": None}
    with_it = number(predicted(formula="step_bytes ~ model_bytes", **nothing), "step_time")
    for formula in ("step_bytes ~ 0 + model_bytes", "step_bytes ~ model_bytes - 1"):
        prediction = predicted(formula=formula, **nothing)
        assert number(prediction, "step_time") == with_it
        assert 35 < with_it.estimate < 55
        text = "np.log(step_ms) ~ 1 + model_bytes"
        assert f"the step time is fitted with an intercept, which the formula leaves out: {text}" in prediction.notes


def test_a_mean_a_median_and_a_ratio_are_distinguished() -> None:
    prediction = predicted(steps=10)
    assert [(p.quantity, p.statistic) for p in prediction.predicted] == [
        ("step", "mean"), ("run", "mean"), ("step_time", "median"), ("hour", "ratio")
    ]  # fmt: skip
    lines = documents.prediction(prediction, "table").splitlines()
    assert [line.split("  ")[0] for line in lines if "[" in line] == [
        "volume of a step", "volume of a run of 10 steps", "step time, median", "volume of an hour"
    ]  # fmt: skip
    root = predicted(
        formula="np.sqrt(step_bytes) ~ model_bytes", framework_backend=None, batch_size=None, topology=None
    )
    assert number(root, "step").statistic == "median"
    assert any("step_bytes is fitted as np.sqrt(step_bytes): the estimate is a median" in note for note in root.notes)
    assert any("step time: step_ms is fitted as np.log(step_ms): the estimate is a median" in n for n in root.notes)
    assert number(predicted(step_ms=50.0), "hour").statistic == "mean"


def test_scatter_of_the_step_time_that_changes_is_noted() -> None:
    rng = np.random.default_rng(1)
    rows = copies(5)
    even = rows.with_columns(step_ms=40 * pl.Series(np.exp(0.1 * rng.standard_normal(rows.height))))
    noise = rows["model_bytes"] / 3e8 * pl.Series(rng.standard_normal(rows.height))
    growing = rows.with_columns(step_ms=40 * noise.exp())
    start = "step time: the scatter of np.log(step_ms) changes with the terms"
    assert [any(note.startswith(start) for note in predicted(each).notes) for each in (even, growing)] == [False, True]


# --- what is written


def test_json_and_csv_hold_the_numbers() -> None:
    prediction = predicted(ROWS.with_columns(source=pl.lit("synthetic")), steps=10)
    document = json.loads(documents.prediction(prediction, "json"))
    rows = list(csv.DictReader(io.StringIO(documents.prediction(prediction, "csv"))))
    assert [row["quantity"] for row in rows] == [p["quantity"] for p in document["predicted"]]
    assert [row["quantity"] for row in rows] == ["step", "run", "step_time", "hour"]
    words = ("quantity", "unit", "statistic")
    for row, given in zip(rows, document["predicted"], strict=True):
        assert {name: row[name] for name in words} == {name: given[name] for name in words}
        assert {name: float(row[name]) for name in given if name not in words} == {
            name: value for name, value in given.items() if name not in words
        }
    assert document["extrapolation"] is False and rows[0]["extrapolation"] == "false"


def test_every_format_counts_the_synthetic_runs() -> None:
    mixed = ROWS.with_columns(source=pl.Series(["synthetic"] * 3 + ["capture"] * 13))
    prediction = predicted(mixed)
    count = "3 of 16 runs are synthetic"
    for output_format in documents.PREDICTION_FORMATS:
        assert count in documents.prediction(prediction, output_format)
        assert "are synthetic" not in documents.prediction(predicted(), output_format)


# --- from a dataset


@pytest.mark.parametrize("few", [True, pytest.param(False, marks=pytest.mark.long)])
def test_the_paper_s_scenarios_predict_and_refuse(command: RunCommand, tmp_path: Path, few: bool) -> None:
    runs = [run for run in synthetic.runs_of(steps=3) if run.loss_pct == 0]
    if few:  # the models with horovod over mpi in a ring
        runs = [run for run in runs if (run.framework, run.backend, run.topology) == ("horovod", "mpi", "ring")]
    write_runs(tmp_path / "dataset", runs)
    job = ["--framework-backend", "horovod-mpi", "--batch-size", "64", "--topology", "ring", "--steps", "100"]
    done = command("predict", "dataset", "--model-bytes", "97e6", *job, "--format", "json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    step, run, *_ = document["predicted"]
    assert step["prediction_low"] < 6.5 * 97e6 < step["prediction_high"]
    assert run["estimate"] == pytest.approx(100 * step["estimate"], rel=1e-12)
    assert document["synthetic_runs"] == document["runs"] == len(runs) == (4 if few else 72)
    refused = command("predict", "dataset", "--model-bytes", "500e6", *job)
    assert refused.returncode == 1 and refused.stdout == b""
    assert b"model_bytes = 500000000 is outside the measured range, 14000000 to 171000000" in refused.stderr


def test_errors_are_the_project_s() -> None:
    assert issubclass(PredictionError, DdnnTracesError)


# --- conditions


def test_a_setting_that_is_true_or_false_is_taken() -> None:
    rows = ROWS.with_columns(offload=pl.Series([True, False, False, True] * 4))
    for value in (True, "True", "false"):
        assert predicted(rows, offload=value).of("step") is not None
    with pytest.raises(UsageError, match="offload = maybe: give true or false"):
        predicted(rows, offload="maybe")


def test_a_step_time_whose_interval_says_nothing_is_refused_with_the_reason() -> None:
    rng = np.random.default_rng(3)
    rows = ROWS.with_columns(step_ms=100 * pl.Series(np.exp(1.0 * rng.standard_normal(16))))
    prediction = predicted(rows)
    assert prediction.of("step_time") is None and prediction.of("hour") is None
    assert any("differ by more than 3 times; give step_ms" in note for note in prediction.notes)
    assert predicted(rows, step_ms=50.0).of("hour") is not None


def test_workers_that_were_never_run_are_predicted_by_the_law() -> None:
    """Rings of 2 and 4 workers by their law; 5 workers send 8 model sizes."""
    factor = pl.when(pl.int_range(16) % 2 == 0).then(6.0).otherwise(2.0)
    rows = ROWS.with_columns(
        topology=pl.lit("ring"), law_factor=factor, workers=pl.when(factor == 6).then(4).otherwise(2)
    )
    rows = rows.with_columns(implied_bytes=pl.col("model_bytes") * 1.04 * (1 + 1e-4 * (pl.int_range(16) % 3)))
    rows = rows.with_columns(step_bytes=pl.col("implied_bytes") * pl.col("law_factor"))
    prediction = predicted(rows, None, workers=5, law_factor=8.0)
    assert prediction.warnings == ()
    assert number(prediction, "step").estimate == pytest.approx(8 * 1.04 * 25e6, rel=1e-3)
    assert prediction.of("hour") is None, "the law tells no time"
    assert any("no run has 5 workers: they enter by the law" in note for note in prediction.notes)
    with pytest.raises(PredictionError, match="no law is known of the volume of ring among 5 workers"):
        predicted(rows, None, workers=5)
