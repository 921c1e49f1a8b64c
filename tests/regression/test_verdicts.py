"""The verdict on each term, and the notes on the fit and its rows."""

from __future__ import annotations

import polars as pl
import pytest
from regression_runs import MODELS, estimates, fit, joint, make_runs, missing_facts, noted, sentence, verdict

from ddnn_traces.regression import Regression, sentences


def single(result: Regression) -> dict[str, tuple[str, ...]]:
    """The runs that determine coefficients alone, with their labels."""
    return {run.run_id: run.coefficients for run in result.single_runs}


def test_known_effects_are_recovered_and_stated_with_their_numbers():
    result = fit(make_runs(noise=1e7))
    coefficients = {c.name: c for c in result.coefficients}

    for name, truth in {"model_bytes": 5.7, "C(framework_backend)[T.tf-grpc]": 6e8, "Intercept": 4e8}.items():
        c = coefficients[name]
        # three times the half width of the 95% interval is about six standard errors
        assert abs(c.estimate - truth) < 3 * (c.ci_high - c.ci_low) / 2
        assert c.ci_low < c.estimate < c.ci_high
    slope = coefficients["model_bytes"]
    assert verdict(result, "model_bytes") == (True, True)
    numbers = f"{slope.estimate:.4g} MB [{slope.ci_low:.4g}, {slope.ci_high:.4g}] more data"
    assert missing_facts(sentence(result, "model_bytes"), "significant: ", "1 MB in model size", numbers) == []
    assert verdict(result, "C(framework_backend)") == (True, True)
    levels = ("against framework_backend = kungfu-pair", "= tf-grpc (positive)", "= torch-gloo (positive)")
    stated = sentence(result, "C(framework_backend)")
    assert missing_facts(stated, "significant at", joint(result, "C(framework_backend)"), *levels) == []
    assert verdict(result, "C(batch_size)") == (True, False)
    stated = sentence(result, "C(batch_size)")
    assert missing_facts(stated, "include 0", "insignificant", joint(result, "C(batch_size)")) == []
    assert f"correlation of model size with data a step {result.correlation:.3f}" in sentences.summary(result)


def test_only_the_levels_that_differ_are_named_and_with_their_sign():
    renamed = pl.col("framework_backend").replace({"tf-grpc": "a-grpc"})  # now the reference
    result = fit(make_runs().with_columns(renamed))
    stated = sentence(result, "C(framework_backend)")
    assert missing_facts(stated, "= a-grpc", "= kungfu-pair (negative)", joint(result, "C(framework_backend)")) == []
    assert "torch-gloo" not in stated


def test_a_falling_slope_is_stated_as_less_data():
    result = fit(make_runs().with_columns(step_bytes=2e10 - pl.col("step_bytes")))
    slope = next(c for c in result.coefficients if c.name == "model_bytes")
    assert slope.estimate < 0
    numbers = f"{-slope.estimate:.4g} MB [{-slope.ci_high:.4g}, {-slope.ci_low:.4g}] less data"
    assert missing_facts(sentence(result, "model_bytes"), "significant: ", numbers) == []


def test_a_slope_that_differs_by_framework_is_not_given_as_the_slope():
    result = fit(make_runs(), "step_bytes ~ model_bytes * C(framework_backend)")
    assert verdict(result, "model_bytes") == (True, True)
    assert "MB more data" not in sentence(result, "model_bytes")
    units = {c.name: result.readable(c)[1] for c in result.coefficients}
    assert units["model_bytes:C(framework_backend)[T.tf-grpc]"] == units["model_bytes"] == "MB/MB"
    assert units["C(framework_backend)[T.tf-grpc]"] == "MB"


def test_a_level_of_one_run_is_noted_with_the_run():
    others = make_runs().filter(pl.col("framework_backend") != "tf-grpc")
    only = make_runs().filter(pl.col("framework_backend") == "tf-grpc").head(1)
    result = fit(pl.concat([others, only]))
    assert single(result) == {only["run_id"][0]: ("framework_backend = tf-grpc",)}
    # without the run the other coefficients remain the same
    expected = estimates(result)
    del expected["C(framework_backend)[T.tf-grpc]"]
    assert estimates(fit(others)) == pytest.approx(expected, rel=1e-7)


def test_the_most_frequent_level_is_the_reference():
    others = make_runs().filter(pl.col("framework_backend") != "kungfu-pair")
    only = make_runs().filter(pl.col("framework_backend") == "kungfu-pair").head(1)
    result = fit(pl.concat([others, only]))
    assert single(result) == {only["run_id"][0]: ("framework_backend = kungfu-pair",)}
    assert "C(framework_backend)[T.kungfu-pair]" in estimates(result)


def test_a_slope_that_one_run_determines_is_noted_with_the_run():
    runs = make_runs().filter((pl.col("model_bytes") == MODELS[0]) | (pl.col("run_id") == "tf-grpc-32-ring-98000000"))
    assert single(fit(runs)) == {"tf-grpc-32-ring-98000000": ("Intercept", "model_bytes")}


def test_rows_of_0_are_noted_to_be_in_the_fit():
    hit = pl.int_range(36) < 2
    result = fit(make_runs().with_columns(step_bytes=pl.when(hit).then(0).otherwise(pl.col("step_bytes"))))
    names = ", ".join(sorted(make_runs()["run_id"].to_list()[:2]))
    assert noted(result, "step_bytes is 0 in 2 of 36 runs", "in the fit", names)
    assert {found.median_relative for found in result.left_out} == {None}
    assert not any(" is 0 in " in note for note in fit(make_runs()).notes)


def test_errors_that_assume_independent_rows_of_a_run_are_noted():
    steps = pl.concat([make_runs().with_columns(step=pl.lit(i)) for i in range(2)])
    assert noted(fit(steps, errors="hc3"), "72 rows", "36 runs", "HC3", "independent")
    assert not noted(fit(steps), "independent") and not noted(fit(make_runs()), "independent")


def test_r_squared_without_an_intercept_is_noted():
    result = fit(make_runs(), "step_bytes ~ 0 + model_bytes")
    y, x = make_runs()["step_bytes"].to_numpy(), make_runs()["model_bytes"].to_numpy().astype(float)
    assert estimates(result) == pytest.approx({"model_bytes": x @ y / (x @ x)}, rel=1e-9)
    assert noted(result, "Without an intercept R²")
