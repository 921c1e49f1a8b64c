"""Fits of given rows: the numbers, the sizes, and rows to which nothing can be fitted."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import polars as pl
import pytest
from regression_runs import (
    MODELS,
    as_paper,
    assert_nothing_fitted,
    blank,
    estimates,
    fit,
    make_runs,
    missing_facts,
    noted,
    sentence,
    verdict,
)
from scipy import stats

from ddnn_traces.regression import PAPER_FORMULA


def test_statistics_agree_with_an_independent_computation():
    runs = make_runs(noise=2e8)
    result = fit(runs, errors="classic")
    x = np.column_stack(
        [
            np.ones(36),
            runs["model_bytes"],
            runs["framework_backend"] == "tf-grpc",
            runs["framework_backend"] == "torch-gloo",
            runs["batch_size"] == 64,
            runs["topology"] == "star",
        ]
    ).astype(float)
    y = runs["step_bytes"].to_numpy()
    beta = np.linalg.lstsq(x, y, rcond=None)[0]
    residuals = y - x @ beta
    deviation = np.sqrt(np.diag(np.linalg.inv(x.T @ x)) * (residuals @ residuals) / 30)
    r_squared = 1 - residuals @ residuals / ((y - y.mean()) @ (y - y.mean()))

    assert result.rows == 36
    assert result.df_resid == 30
    assert result.r_squared == pytest.approx(r_squared, rel=1e-9)
    assert result.adj_r_squared == pytest.approx(1 - (1 - r_squared) * 35 / 30, rel=1e-9)
    assert [c.name for c in result.coefficients] == [
        "Intercept",
        "model_bytes",
        "C(framework_backend)[T.tf-grpc]",
        "C(framework_backend)[T.torch-gloo]",
        "C(batch_size)[T.64]",
        "C(topology)[T.star]",
    ]
    for c, b, d in zip(result.coefficients, beta, deviation, strict=True):
        assert c.estimate == pytest.approx(b, rel=1e-7)
        assert (c.ci_low, c.ci_high) == pytest.approx(stats.t.interval(0.95, 30, b, d), rel=1e-7)
        assert c.p_value == pytest.approx(2 * stats.t.sf(abs(b / d), 30), rel=1e-6)
    assert result.correlation == pytest.approx(stats.pearsonr(runs["model_bytes"], y).statistic, rel=1e-9)
    assert result.points["run_id"].to_list() == runs["run_id"].to_list()
    np.testing.assert_allclose(result.points["observed"], y, rtol=1e-12)
    np.testing.assert_allclose(result.points["fitted"], x @ beta, rtol=1e-9)
    np.testing.assert_allclose(result.points["residual"], residuals, rtol=1e-6)
    np.testing.assert_allclose(result.points["size_bytes"], runs["model_bytes"])


def test_the_same_numbers_as_statsmodels_own_formula_interface():
    import pandas as pd
    import statsmodels.formula.api as smf

    runs = make_runs()
    data = pd.DataFrame(runs.to_dict(as_series=False))
    theirs = smf.ols(PAPER_FORMULA, data).fit()
    result = fit(runs)
    assert estimates(result) == pytest.approx(dict(theirs.params), rel=1e-6)
    assert result.r_squared == pytest.approx(theirs.rsquared, rel=1e-12)


def test_sizes_of_terabytes_do_not_hide_the_levels():
    """1e12 with the ones of a level is 1e24 in X'X: unscaled, the levels would pass for rounding."""
    result = fit(make_runs().with_columns(model_bytes=pl.col("model_bytes") * 10**6))
    assert len(result.coefficients) == 6
    # a million times the bytes is a millionth of the slope; nothing else changes
    base = estimates(fit(make_runs()))
    base["model_bytes"] /= 1e6
    assert estimates(result) == pytest.approx(base, rel=1e-6)


def test_nothing_is_fitted_where_even_the_first_term_has_too_few_runs():
    result = fit(make_runs().head(4), "step_bytes ~ C(run_id)")
    assert missing_facts(sentence(result, "C(run_id)"), "4 runs for 4 coefficients") == []
    assert_nothing_fitted(result, "no term of the formula can be estimated")


@pytest.mark.parametrize("count", [0, 1, 2])
def test_fewer_than_three_runs_fit_nothing(count: int):
    result = fit(make_runs().head(count))
    assert_nothing_fitted(result, f"{count} usable runs")
    assert result.correlation is None
    assert result.verdicts == ()


def test_where_nothing_is_fitted_a_formula_over_the_size_is_named():
    runs = make_runs().with_columns(delay_ms=pl.lit(1.0))
    result = fit(runs, "step_bytes ~ delay_ms")
    note = (
        "The runs differ in model_bytes, which is no term of this formula: --formula 'step_bytes ~ model_bytes' has it."
    )
    assert note in result.notes
    assert fit(runs, "step_bytes ~ model_bytes").coefficients
    same_size = runs.with_columns(model_bytes=pl.lit(14_000_000))
    assert not any("model_bytes" in note for note in fit(same_size, "step_bytes ~ delay_ms").notes)


def test_one_size_leaves_the_other_terms():
    result = as_paper(make_runs().with_columns(model_bytes=pl.lit(14_000_000)))
    assert verdict(result, "model_bytes") == (False, None)
    assert missing_facts(sentence(result, "model_bytes"), "every run has model_bytes = 14000000") == []
    assert verdict(result, "C(framework_backend)")[0]
    assert result.correlation is None


def test_a_constant_response_fits_nothing():
    result = fit(make_runs().with_columns(step_bytes=pl.lit(5e6)))
    assert_nothing_fitted(result, "every run has the same step_bytes")
    assert result.correlation is None


def test_an_exact_fit_is_not_tested_against_rounding():
    """A simulator gives volumes without scatter, where a t value would be rounding over rounding."""
    result = fit(make_runs().with_columns(step_bytes=5.0 * pl.col("model_bytes")))
    by_name = estimates(result)
    assert by_name.pop("model_bytes") == pytest.approx(5.0, rel=1e-12)
    assert set(by_name.values()) == {0.0}
    assert {(c.ci_low, c.ci_high, c.p_value) for c in result.coefficients} == {(None, None, None)}
    assert {v.significant for v in result.verdicts} == {None}
    assert missing_facts(sentence(result, "model_bytes"), "5 MB more data", "not tested", "rounding") == []


def test_a_mean_alone_is_a_fit():
    runs = make_runs()
    result = fit(runs, "step_bytes ~ 1", "classic")
    (mean,) = result.coefficients
    values = runs["step_bytes"].to_numpy()
    assert mean.estimate == pytest.approx(values.mean(), rel=1e-12)
    interval = stats.t.interval(0.95, 35, values.mean(), stats.sem(values))
    assert (mean.ci_low, mean.ci_high) == pytest.approx(interval, rel=1e-9)
    assert (result.verdicts, result.tests) == ((), ())


def test_runs_without_the_left_side_give_no_fit_and_are_named():
    result = fit(make_runs().with_columns(step_bytes=pl.lit(None, pl.Float64)))
    assert (result.rows, len(result.excluded)) == (0, 36)
    assert_nothing_fitted(result, "0 usable runs")


def test_the_default_formula_takes_the_nominal_size_where_no_run_has_the_exchanged_one():
    # sizes that differ, so that a mix of the two would show
    runs = make_runs().with_columns(nominal_bytes=pl.col("model_bytes") + 1e6)
    result = fit(blank(runs, "model_bytes", *range(36)))
    assert result.size_column == "nominal_bytes"
    assert result.formula == PAPER_FORMULA.replace("model_bytes", "nominal_bytes")
    assert noted(result, "model_bytes", "nominal size", "nominal_bytes")
    assert set(result.points["size_bytes"]) == {size + 1e6 for size in MODELS}
    assert result.readable(result.coefficients[1]) == (1.0, "MB/MB")


def test_one_exchanged_size_is_enough_to_keep_it():
    runs = make_runs().with_columns(nominal_bytes=pl.col("model_bytes") + 1e6)
    result = fit(blank(runs, "model_bytes", *range(1, 36)))
    assert (result.size_column, result.rows, len(result.excluded)) == ("model_bytes", 1, 35)


def test_the_users_formula_keeps_its_size():
    runs = make_runs().with_columns(nominal_bytes=pl.col("model_bytes") + 1e6)
    result = fit(blank(runs, "model_bytes", *range(36)), PAPER_FORMULA)
    assert missing_facts(sentence(result, "model_bytes"), "no run has model_bytes") == []
    assert verdict(result, "C(framework_backend)") == (True, False)


@pytest.mark.parametrize(
    ("term", "factor", "unit"),
    [
        ("model_bytes", 1.0, "MB/MB"),
        ("I(model_bytes)", 1.0, "bytes"),
        ("I(model_bytes ** 2)", 1.0, "bytes"),
        ("I(batch_size - 1):model_bytes", 1.0, "bytes"),
        ("batch_size", 1e-6, "MB"),
        ("np.log(batch_size)", 1e-6, "MB"),
    ],
)
def test_only_a_slope_of_the_plain_size_is_in_megabytes_a_megabyte(term: str, factor: float, unit: str):
    result = fit(make_runs(), f"step_bytes ~ {term}")
    assert [result.readable(c) for c in result.coefficients] == [(1e-6, "MB"), (factor, unit)]


def test_one_framework_only_leaves_the_rest():
    runs = make_runs().filter(pl.col("framework_backend") == "tf-grpc")
    result = fit(runs)
    facts = ("every run has", "framework_backend = tf-grpc")
    assert missing_facts(sentence(result, "C(framework_backend)"), *facts) == []
    assert verdict(result, "model_bytes") == (True, True)


def test_an_interaction_and_a_transformed_column_are_fitted():
    result = fit(make_runs(), "np.log(step_bytes) ~ np.log(model_bytes) * C(framework_backend) + I(batch_size ** 2)")
    x = np.log(make_runs()["model_bytes"].to_numpy())
    assert [v.term for v in result.verdicts] == [
        "np.log(model_bytes)",
        "C(framework_backend)",
        "np.log(model_bytes):C(framework_backend)",
        "I(batch_size ** 2)",
    ]
    # per framework the interaction is a slope of its own
    kungfu = (make_runs()["framework_backend"] == "kungfu-pair").to_numpy()
    y = np.log(make_runs()["step_bytes"].to_numpy())
    assert estimates(result)["np.log(model_bytes)"] == pytest.approx(np.polyfit(x[kungfu], y[kungfu], 1)[0], rel=1e-9)
    assert "Estimates and fitted values are of np.log(step_bytes)." in result.notes
    assert "more data a step" not in sentence(result, "np.log(model_bytes)")


def test_importing_the_module_stays_cheap():
    code = "import sys, ddnn_traces.regression; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "ddnn_traces.regression" in loaded
    assert not {"statsmodels", "patsy", "pandas", "scipy"} & set(loaded)
