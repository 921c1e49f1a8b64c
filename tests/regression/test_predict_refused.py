"""Every kind of job whose prediction must be refused, each with its reason; nearly the same jobs are predicted."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import polars as pl
import pytest
from predictions import ROWS, copies, predicted

from ddnn_traces.errors import DdnnTracesError, PredictionError, RegressionError, UsageError
from ddnn_traces.regression import documents

pytestmark = pytest.mark.usefixtures("few_draws")


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


def test_a_setting_that_is_true_or_false_is_taken() -> None:
    rows = ROWS.with_columns(offload=pl.Series([True, False, False, True] * 4))
    for value in (True, "True", "false"):
        assert predicted(rows, offload=value).of("step") is not None
    with pytest.raises(UsageError, match="offload = maybe: give true or false"):
        predicted(rows, offload="maybe")


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


def test_a_step_time_whose_interval_says_nothing_is_refused_with_the_reason() -> None:
    rng = np.random.default_rng(3)
    rows = ROWS.with_columns(step_ms=100 * pl.Series(np.exp(1.0 * rng.standard_normal(16))))
    prediction = predicted(rows)
    assert prediction.of("step_time") is None and prediction.of("hour") is None
    assert any("differ by more than 3 times; give step_ms" in note for note in prediction.notes)
    assert predicted(rows, step_ms=50.0).of("hour") is not None


def test_errors_are_the_project_s() -> None:
    assert issubclass(PredictionError, DdnnTracesError)
