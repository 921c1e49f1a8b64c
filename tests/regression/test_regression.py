"""The regression: against certified and independent numbers, and on data that cannot answer the question."""

import subprocess
import sys
from itertools import product

import numpy as np
import polars as pl
import pytest
from scipy import stats

from ddnn_traces.errors import RegressionError
from ddnn_traces.regression import DEFAULT_FORMULA, Regression, fit

MODELS = (14_000_000, 98_000_000, 528_000_000)  # MobileNet, ResNet-50, VGG-16: bytes of parameters
EFFECT = {"kungfu-pair": -6e8, "tf-grpc": 0.0, "torch-gloo": 0.0}


def make_runs(noise: float = 1e7) -> pl.DataFrame:
    """36 runs, full factorial, whose step takes 5.7 bytes a model byte, less for KungFu's pair averaging."""
    rng = np.random.default_rng(7)
    return pl.DataFrame(
        {
            "run_id": f"{backend}-{batch}-{topology}-{size}",
            "step_bytes": 1e9 + 5.7 * size + EFFECT[backend] + rng.normal(0, noise),
            "model_bytes": size,
            "model_size_mb": size / 1e6,
            "framework_backend": backend,
            "batch_size": batch,
            "topology": topology,
        }
        for backend, batch, topology, size in product(EFFECT, (32, 64), ("ring", "star"), MODELS)
    )


def estimates(result: Regression) -> dict[str, float]:
    return {c.name: c.estimate for c in result.coefficients}


def sentence(result: Regression, term: str) -> str:
    return next(v.sentence for v in result.verdicts if v.term == term)


def joint(result: Regression, term: str) -> str:
    """The joint test as a sentence has it."""
    test = next(test for test in result.tests if test.term == term)
    name = "joint F" if test.df > 1 else "F"
    return f"({name}({test.df}, {test.df_denominator}) = {test.f:.4g}, p = {test.p_value:.3g})"


def verdict(result: Regression, term: str) -> tuple[bool, bool | None]:
    return next((v.estimable, v.significant) for v in result.verdicts if v.term == term)


def by_level(column: str, levels: dict[str, str], otherwise: str | None = None) -> pl.Expr:
    """A topology made of another column's levels; a level that is not named keeps its own topology."""
    default = pl.col("topology") if otherwise is None else pl.lit(otherwise)
    return pl.col(column).replace_strict(levels, default=default).alias("topology")


# Numbers that are known from elsewhere.


def test_statistics_agree_with_an_independent_computation():
    runs = make_runs(noise=2e8)
    result = fit(runs)
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
    data = pd.DataFrame(runs.rename({"model_bytes": "model_bytes"}).to_dict(as_series=False))
    theirs = smf.ols(DEFAULT_FORMULA, data).fit()
    result = fit(runs)
    assert estimates(result) == pytest.approx(dict(theirs.params), rel=1e-6)
    assert result.r_squared == pytest.approx(theirs.rsquared, rel=1e-12)


def test_known_effects_are_recovered_and_said_as_in_the_paper():
    result = fit(make_runs(noise=1e7))
    coefficients = {c.name: c for c in result.coefficients}

    for name, truth in {"model_bytes": 5.7, "C(framework_backend)[T.tf-grpc]": 6e8, "Intercept": 4e8}.items():
        c = coefficients[name]
        # three times the half width of the 95% interval is about six standard errors
        assert abs(c.estimate - truth) < 3 * (c.ci_high - c.ci_low) / 2
        assert c.ci_low < c.estimate < c.ci_high
    slope = coefficients["model_bytes"]
    assert verdict(result, "model_bytes") == (True, True)
    assert sentence(result, "model_bytes") == (
        f"significant: an increase of 1 MB in model size goes with {slope.estimate:.4g} MB "
        f"[{slope.ci_low:.4g}, {slope.ci_high:.4g}] more data a step"
    )
    assert verdict(result, "C(framework_backend)") == (True, True)
    assert sentence(result, "C(framework_backend)") == (
        f"significant at alpha = 0.05 {joint(result, 'C(framework_backend)')} against framework_backend = kungfu-pair: "
        "framework_backend = tf-grpc (positive), framework_backend = torch-gloo (positive)"
    )
    assert verdict(result, "C(batch_size)") == (True, False)
    assert sentence(result, "C(batch_size)") == (
        "95% confidence intervals of C(batch_size) include 0: statistically insignificant at alpha = 0.05 "
        + joint(result, "C(batch_size)")
    )
    assert f"correlation of model size with data a step: {result.correlation:.3f} over 36 runs" in result.notes


def test_only_the_levels_that_differ_are_named_and_with_their_sign():
    renamed = pl.col("framework_backend").replace({"tf-grpc": "a-grpc"})  # now the reference
    result = fit(make_runs().with_columns(renamed))
    assert sentence(result, "C(framework_backend)") == (
        f"significant at alpha = 0.05 {joint(result, 'C(framework_backend)')} "
        "against framework_backend = a-grpc: framework_backend = kungfu-pair (negative)"
        "; the intervals of the other levels include 0"
    )


def test_a_falling_slope_is_said_as_less_data():
    result = fit(make_runs().with_columns(step_bytes=2e10 - pl.col("step_bytes")))
    slope = next(c for c in result.coefficients if c.name == "model_bytes")
    assert slope.estimate < 0
    assert sentence(result, "model_bytes") == (
        f"significant: an increase of 1 MB in model size goes with {-slope.estimate:.4g} MB "
        f"[{-slope.ci_high:.4g}, {-slope.ci_low:.4g}] less data a step"
    )


def test_model_bytess_of_terabytes_do_not_hide_the_levels():
    """1e12 beside the ones of a level is 1e24 in X'X: unscaled, the levels would be taken for rounding."""
    result = fit(make_runs().with_columns(model_bytes=pl.col("model_bytes") * 10**6))
    assert len(result.coefficients) == 6
    # a million times the bytes is a millionth of the slope; nothing else changes
    base = estimates(fit(make_runs()))
    base["model_bytes"] /= 1e6
    assert estimates(result) == pytest.approx(base, rel=1e-6)


def test_the_unit_of_a_column_does_not_decide_whether_it_is_independent():
    small = fit(make_runs(), "step_bytes ~ model_bytes + I(batch_size / 1000000000000)")
    assert verdict(small, "I(batch_size / 1000000000000)")[0]
    large = fit(
        make_runs(), "step_bytes ~ model_bytes + I(model_bytes / 3 + 7 * model_bytes + batch_size - batch_size)"
    )
    assert large.verdicts[1].sentence.endswith("cannot be told apart from model_bytes")


# Data that cannot answer.


def test_a_constant_column_is_dropped_and_named():
    result = fit(make_runs().with_columns(batch_size=pl.lit(32)))
    assert verdict(result, "C(batch_size)") == (False, None)
    assert sentence(result, "C(batch_size)") == "cannot be estimated: every run has batch_size = 32"
    without = fit(make_runs(), "step_bytes ~ model_bytes + C(framework_backend) + C(topology)")
    assert estimates(result) == pytest.approx(estimates(without), rel=1e-9)
    assert result.df_resid == without.df_resid == 31


def test_a_constant_number_is_dropped_too():
    result = fit(make_runs().with_columns(batch_size=pl.lit(32)), "step_bytes ~ model_bytes + np.log(batch_size)")
    assert sentence(result, "np.log(batch_size)") == "cannot be estimated: every run has batch_size = 32"


def test_levels_that_always_occur_together_are_named_and_the_earlier_stays():
    runs = make_runs().with_columns(by_level("framework_backend", {"tf-grpc": "star"}, "ring"))
    result = fit(runs)
    assert verdict(result, "C(topology)") == (False, None)
    assert sentence(result, "C(topology)") == (
        "cannot be estimated: topology = star cannot be told apart from framework_backend = tf-grpc: "
        "they always occur together"
    )
    assert verdict(result, "C(framework_backend)") == (True, True)
    assert "The estimates of C(framework_backend) hold the effect of topology = star too." in result.notes
    assert result.df_resid == 36 - 5


def test_a_level_that_is_the_other_terms_reference_is_found_as_well():
    """kungfu-pair has no column of its own: star is 1 - tf-grpc - torch-gloo."""
    runs = make_runs().with_columns(by_level("framework_backend", {"kungfu-pair": "star"}, "ring"))
    assert "star cannot be told apart from framework_backend = kungfu-pair:" in sentence(fit(runs), "C(topology)")


def test_a_level_that_is_several_levels_of_another_term():
    # pair averaging twice as often: ring is then the most frequent topology, which star is compared with
    runs = make_runs()
    pair = runs.filter(pl.col("framework_backend") == "kungfu-pair")
    again = [pair.with_columns(run_id=pl.col("run_id") + f"-{i}") for i in range(2)]
    levels = {"tf-grpc": "star", "torch-gloo": "star"}
    runs = pl.concat([runs, *again])
    runs = runs.with_columns(by_level("framework_backend", levels, "ring"))
    assert "star cannot be told apart from framework_backend = tf-grpc or torch-gloo: they" in sentence(
        fit(runs), "C(topology)"
    )


def test_formula_order_decides_which_of_two_aliased_terms_stays():
    runs = make_runs().with_columns(by_level("framework_backend", {"tf-grpc": "star"}, "ring"))
    result = fit(runs, "step_bytes ~ C(topology) + C(framework_backend) + model_bytes")
    assert [c.name for c in result.coefficients] == [
        "Intercept",
        "C(topology)[T.star]",
        "C(framework_backend)[T.torch-gloo]",
        "model_bytes",
    ]
    assert sentence(result, "C(framework_backend)") == (
        f"significant at alpha = 0.05 {joint(result, 'C(framework_backend)')} "
        "against framework_backend = kungfu-pair: framework_backend = torch-gloo (positive)"
        "; of its 2 degrees of freedom 1 is its own and tested"
        "; framework_backend = tf-grpc cannot be told apart from topology = star: they always occur together"
    )


def test_a_term_with_some_aliased_levels_is_estimated_for_the_rest():
    runs = make_runs().with_columns(by_level("framework_backend", {"tf-grpc": "tree"}))
    result = fit(runs)
    assert verdict(result, "C(topology)")[0]
    assert "C(topology)[T.star]" in estimates(result)
    assert "C(topology)[T.tree]" not in estimates(result)
    assert "topology = tree cannot be told apart from framework_backend = tf-grpc" in sentence(result, "C(topology)")
    # what is left is the fit without that level
    merged = fit(runs.with_columns(pl.col("topology").replace({"tree": "ring"})))
    assert estimates(result) == pytest.approx(estimates(merged), rel=1e-7)


def test_a_column_settled_by_two_terms_together_is_said_to_be_a_combination():
    runs = make_runs().with_columns(a=pl.int_range(36) % 2, b=pl.int_range(36) // 2 % 2)
    runs = runs.with_columns(total=pl.col("a") + pl.col("b"))
    result = fit(runs, "step_bytes ~ model_bytes + C(a) + C(b) + total")
    assert sentence(result, "total") == (
        "cannot be estimated: total cannot be told apart from a combination of a = 1, b = 1"
    )


def test_a_cell_without_runs_is_named():
    runs = make_runs().filter(~((pl.col("batch_size") == 64) & (pl.col("topology") == "star")))
    result = fit(runs, "step_bytes ~ model_bytes + C(batch_size) * C(topology)")
    assert sentence(result, "C(batch_size):C(topology)") == (
        "cannot be estimated: no run has batch_size = 64 and topology = star"
    )


def test_a_saturated_fit_drops_terms_from_the_end_until_a_residual_is_left():
    """6 runs for 6 coefficients would give R² = 1."""
    keep = ["kungfu-pair-32-ring-14", "tf-grpc-32-ring-98", "torch-gloo-32-ring-528", "kungfu-pair-64-ring-528"]
    keep += ["tf-grpc-32-star-14", "torch-gloo-64-star-98"]
    runs = make_runs().filter(pl.col("run_id").str.replace("000000$", "").is_in(keep))
    result = fit(runs)
    assert result.rows == 6
    assert result.df_resid == 1
    assert sentence(result, "C(topology)") == "cannot be estimated: 6 runs for 6 coefficients"
    assert verdict(result, "C(topology)") == (False, None)
    assert verdict(result, "C(batch_size)")[0]
    assert result.r_squared < 1
    assert any("Left out for lack of runs: C(topology)" in note for note in result.notes)


def test_four_runs_of_four_frameworks_leave_the_slope_alone():
    runs = make_runs().head(4).with_columns(framework_backend=pl.Series(list("abcd")), batch_size=pl.lit(32))
    result = fit(runs, "step_bytes ~ model_bytes + C(framework_backend) + C(batch_size)")
    assert sentence(result, "C(framework_backend)") == "cannot be estimated: 4 runs for 5 coefficients"
    assert sentence(result, "C(batch_size)") == "cannot be estimated: every run has batch_size = 32"
    assert [c.name for c in result.coefficients] == ["Intercept", "model_bytes"]
    assert result.df_resid == 2


def test_nothing_is_fitted_where_even_the_first_term_has_too_few_runs():
    result = fit(make_runs().head(4), "step_bytes ~ C(run_id)")
    assert sentence(result, "C(run_id)") == "cannot be estimated: 4 runs for 4 coefficients"
    assert_nothing_fitted(result, "no term of the formula can be estimated")


def assert_nothing_fitted(result: Regression, reason: str) -> None:
    assert (result.r_squared, result.adj_r_squared, result.df_resid) == (None, None, None)
    assert result.coefficients == ()
    assert result.notes[0].startswith("Nothing is fitted: ")
    assert reason in result.notes[0]
    assert result.points.height == result.rows
    assert result.points["fitted"].null_count() == result.rows


@pytest.mark.parametrize("count", [0, 1, 2])
def test_fewer_than_three_runs_fit_nothing(count: int):
    result = fit(make_runs().head(count))
    assert_nothing_fitted(result, f"{count} usable runs")
    assert result.correlation is None
    assert result.verdicts == ()


def test_one_model_bytes_leaves_the_other_terms():
    result = fit(make_runs().with_columns(model_bytes=pl.lit(14_000_000)))
    assert verdict(result, "model_bytes") == (False, None)
    assert sentence(result, "model_bytes").startswith("cannot be estimated: every run has model_bytes = 14000000")
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
    assert sentence(result, "model_bytes") == (
        "an increase of 1 MB in model size goes with 5 MB more data a step; "
        "not tested: every row lies on the fit to within rounding"
    )


def test_a_level_of_one_run_is_said_to_rest_on_it():
    others = make_runs().filter(pl.col("framework_backend") != "tf-grpc")
    only = make_runs().filter(pl.col("framework_backend") == "tf-grpc").head(1)
    result = fit(pl.concat([others, only]))
    assert f"Without {only['run_id'][0]} these could not be estimated: framework_backend = tf-grpc." in result.notes
    assert sum("Without" in note for note in result.notes) == 1
    # and it does: without the run the other coefficients stay what they are
    expected = estimates(result)
    del expected["C(framework_backend)[T.tf-grpc]"]
    assert estimates(fit(others)) == pytest.approx(expected, rel=1e-7)


def test_the_most_frequent_level_is_the_reference():
    others = make_runs().filter(pl.col("framework_backend") != "kungfu-pair")
    only = make_runs().filter(pl.col("framework_backend") == "kungfu-pair").head(1)
    result = fit(pl.concat([others, only]))
    run_id = only["run_id"][0]
    assert f"Without {run_id} these could not be estimated: framework_backend = kungfu-pair." in result.notes
    assert "C(framework_backend)[T.kungfu-pair]" in estimates(result)


def test_a_slope_that_one_run_makes_is_said_to_rest_on_it():
    runs = make_runs().filter((pl.col("model_bytes") == MODELS[0]) | (pl.col("run_id") == "tf-grpc-32-ring-98000000"))
    (note,) = (note for note in fit(runs).notes if "Without" in note)
    assert "tf-grpc-32-ring-98000000" in note
    assert "model_bytes" in note


def test_an_attribute_that_the_formula_does_not_know_is_named():
    runs = make_runs().with_columns(workers=2 + pl.int_range(36) % 3, delay_ms=pl.lit(0.0), optimizer=pl.lit("sgd"))
    note = "The runs have 2, 3, 4 workers, of which the formula does not know."
    assert [n for n in fit(runs).notes if "does not know" in n] == [note]
    assert note not in fit(runs, DEFAULT_FORMULA + " + workers").notes
    delayed = runs.with_columns(delay_ms=5.0 * (pl.int_range(36) % 2))
    assert "The runs have 2 values of delay_ms (0.0, 5.0), of which the formula does not know." in fit(delayed).notes


def test_a_mean_alone_is_a_fit():
    runs = make_runs()
    result = fit(runs, "step_bytes ~ 1")
    (mean,) = result.coefficients
    values = runs["step_bytes"].to_numpy()
    assert mean.estimate == pytest.approx(values.mean(), rel=1e-12)
    interval = stats.t.interval(0.95, 35, values.mean(), stats.sem(values))
    assert (mean.ci_low, mean.ci_high) == pytest.approx(interval, rel=1e-9)
    assert (result.verdicts, result.tests) == ((), ())


# Missing values and the two sizes.


def blank(runs: pl.DataFrame, column: str, *rows: int) -> pl.DataFrame:
    """`runs` with nulls in `column` at `rows`."""
    hit = pl.int_range(pl.len()).is_in(list(rows))
    return runs.with_columns(pl.when(hit).then(None).otherwise(pl.col(column)).alias(column))


def test_runs_that_lack_a_value_are_excluded_and_named():
    runs = blank(blank(make_runs(), "step_bytes", 3), "topology", 3, 5)
    runs = blank(blank(runs, "model_bytes", 8), "model_size_mb", 8)
    result = fit(runs)
    ids = runs["run_id"]
    assert {e.run_id: e.reason for e in result.excluded} == {
        ids[3]: "step_bytes, topology are missing",
        ids[5]: "topology is missing",
        ids[8]: "model_bytes is missing",
    }
    assert result.rows == 33
    complete = make_runs().filter(~pl.int_range(36).is_in([3, 5, 8]))
    assert estimates(result) == pytest.approx(estimates(fit(complete)), rel=1e-9)


def test_decimals_as_duckdb_sums_them_are_numbers():
    runs = make_runs().with_columns(pl.col("model_size_mb", "step_bytes").cast(pl.Decimal(38, 3)))
    assert estimates(fit(runs)) == pytest.approx(estimates(fit(make_runs())), rel=1e-6)


def test_a_nan_is_a_missing_value():
    runs = make_runs().with_columns(
        step_bytes=pl.when(pl.int_range(36) == 2).then(float("nan")).otherwise(pl.col("step_bytes"))
    )
    assert [e.reason for e in fit(runs).excluded] == ["step_bytes is missing"]


def test_a_column_that_the_formula_does_not_use_excludes_nothing():
    runs = make_runs().with_columns(topology=pl.lit(None, pl.String), model_bytes=pl.lit(None, pl.Int64))
    result = fit(runs.with_columns(model_size_mb=pl.lit(None, pl.Float64)), "step_bytes ~ C(framework_backend)")
    assert (result.rows, result.excluded, result.correlation) == (36, (), None)
    assert verdict(result, "C(framework_backend)")[0]


def test_a_column_that_no_run_has_is_named_and_the_rest_is_estimated():
    result = fit(make_runs().with_columns(topology=pl.lit(None, pl.String)))
    assert (result.rows, result.excluded) == (36, ())
    assert sentence(result, "C(topology)") == "cannot be estimated: no run has topology"
    assert [v.term for v in result.verdicts][-1] == "C(topology)"
    without = fit(make_runs(), "step_bytes ~ model_bytes + C(framework_backend) + C(batch_size)")
    assert estimates(result) == estimates(without)
    assert result.formula == DEFAULT_FORMULA


def test_runs_without_the_left_side_give_no_fit_and_are_named():
    result = fit(make_runs().with_columns(step_bytes=pl.lit(None, pl.Float64)))
    assert (result.rows, len(result.excluded)) == (0, 36)
    assert_nothing_fitted(result, "0 usable runs")


def test_the_default_formula_goes_by_the_nominal_size_where_no_run_has_the_exchanged_one():
    # sizes that differ, so that a mix of the two would show
    runs = make_runs().with_columns(nominal_bytes=pl.col("model_bytes") + 1e6)
    result = fit(blank(runs, "model_bytes", *range(36)))
    assert result.size_column == "nominal_bytes"
    assert result.formula == DEFAULT_FORMULA.replace("model_bytes", "nominal_bytes")
    assert any("the nominal size is used instead (nominal_bytes)" in note for note in result.notes)
    assert set(result.points["size_bytes"]) == {size + 1e6 for size in MODELS}
    assert result.readable(result.coefficients[1]) == (1.0, "MB/MB")


def test_one_exchanged_size_is_enough_to_stay_with_it():
    runs = make_runs().with_columns(nominal_bytes=pl.col("model_bytes") + 1e6)
    result = fit(blank(runs, "model_bytes", *range(1, 36)))
    assert (result.size_column, result.rows, len(result.excluded)) == ("model_bytes", 1, 35)


def test_the_users_formula_keeps_its_size():
    runs = make_runs().with_columns(nominal_bytes=pl.col("model_bytes") + 1e6)
    result = fit(blank(runs, "model_bytes", *range(36)), DEFAULT_FORMULA)
    assert sentence(result, "model_bytes") == "cannot be estimated: no run has model_bytes"
    assert verdict(result, "C(framework_backend)") == (True, False)


def test_an_infinite_value_is_named_and_the_rest_estimated():
    hit = pl.int_range(36) == 4
    runs = make_runs().with_columns(step_bytes=pl.when(hit).then(float("inf")).otherwise(pl.col("step_bytes")))
    result = fit(runs)
    assert [(e.run_id, e.reason) for e in result.excluded] == [(runs["run_id"][4], "step_bytes is infinite")]
    assert result.rows == 35


@pytest.mark.parametrize(
    ("formula", "part", "rows"),
    [
        ("step_bytes ~ np.log(model_bytes - 14000000)", "np.log(model_bytes - 14000000) is", 24),
        ("np.log(step_bytes - 2000000000) ~ model_bytes", "np.log(step_bytes - 2000000000) is", 12),
        ("step_bytes ~ model_bytes + I(model_bytes / (batch_size - 32))", "I(model_bytes / (batch_size - 32)) is", 18),
        ("step_bytes ~ np.exp(model_bytes) * np.sqrt(0 - batch_size)",
         "np.exp(model_bytes), np.sqrt(0 - batch_size) are", 0),
    ],
)  # fmt: skip
def test_rows_whose_term_is_no_finite_number_are_named_and_the_rest_estimated(formula: str, part: str, rows: int):
    result = fit(make_runs(), formula)
    assert (result.rows, len(result.excluded)) == (rows, 36 - rows)
    assert {e.reason for e in result.excluded} == {f"{part} not a finite number"}
    assert not {e.run_id for e in result.excluded} & set(result.points["run_id"])
    if rows:
        kept = fit(make_runs().filter(pl.col("run_id").is_in(result.points["run_id"].to_list())), formula)
        assert (estimates(result), kept.excluded) == (estimates(kept), ())
    else:
        assert_nothing_fitted(result, "0 usable runs")


def test_rows_of_0_are_said_to_be_in_the_fit():
    hit = pl.int_range(36) < 2
    result = fit(make_runs().with_columns(step_bytes=pl.when(hit).then(0).otherwise(pl.col("step_bytes"))))
    names = ", ".join(sorted(make_runs()["run_id"].to_list()[:2]))
    assert f"step_bytes is 0 in 2 of 36 runs, which are in the fit: {names}." in result.notes
    assert {found.median_relative for found in result.left_out} == {None}
    assert not any(" is 0 in " in note for note in fit(make_runs()).notes)


def test_errors_that_take_rows_of_a_run_for_independent_are_warned_of():
    steps = pl.concat([make_runs().with_columns(step=pl.lit(i)) for i in range(2)])
    warning = "The 72 rows are of 36 runs, and HC3 errors take them for independent"
    assert any(note.startswith(warning) for note in fit(steps, errors="hc3").notes)
    assert not any("for independent" in note for note in (*fit(steps).notes, *fit(make_runs()).notes))


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
def test_only_a_slope_of_the_size_as_it_is_is_in_megabytes_a_megabyte(term: str, factor: float, unit: str):
    result = fit(make_runs(), f"step_bytes ~ {term}")
    assert [result.readable(c) for c in result.coefficients] == [(1e-6, "MB"), (factor, unit)]


def test_one_framework_only_leaves_the_rest():
    runs = make_runs().filter(pl.col("framework_backend") == "tf-grpc")
    result = fit(runs)
    assert sentence(result, "C(framework_backend)") == "cannot be estimated: every run has framework_backend = tf-grpc"
    assert verdict(result, "model_bytes") == (True, True)


# The formula.


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


def test_a_slope_that_differs_by_framework_is_not_given_as_the_slope():
    result = fit(make_runs(), "step_bytes ~ model_bytes * C(framework_backend)")
    assert verdict(result, "model_bytes") == (True, True)
    assert sentence(result, "model_bytes").endswith(" of step_bytes for each 1 of model_bytes")
    units = {c.name: result.readable(c)[1] for c in result.coefficients}
    assert units["model_bytes:C(framework_backend)[T.tf-grpc]"] == units["model_bytes"] == "MB/MB"
    assert units["C(framework_backend)[T.tf-grpc]"] == "MB"


def test_without_an_intercept_r_squared_is_said_to_be_another():
    result = fit(make_runs(), "step_bytes ~ 0 + model_bytes")
    y, x = make_runs()["step_bytes"].to_numpy(), make_runs()["model_bytes"].to_numpy().astype(float)
    assert estimates(result) == pytest.approx({"model_bytes": x @ y / (x @ x)}, rel=1e-9)
    assert any(note.startswith("Without an intercept R²") for note in result.notes)


def test_whole_numbers_do_not_overflow_in_a_formula():
    """1e9 ** 3 is beyond int64, which wraps silently."""
    runs = make_runs().with_columns(big=pl.col("model_bytes") * 10)
    runs = runs.with_columns(cube=pl.col("big").cast(pl.Float64) ** 3)
    cubic, linear = fit(runs, "step_bytes ~ I(big ** 3)"), fit(runs, "step_bytes ~ cube")
    assert cubic.r_squared == pytest.approx(linear.r_squared, rel=1e-12)


def test_unknown_names_are_answered_with_the_names_there_are():
    with pytest.raises(RegressionError, match="No column sise for the formula") as caught:
        fit(make_runs(), "step_bytes ~ model_bytes + C(sise)")
    for name in (*make_runs().columns, "model_bytes"):
        assert name in str(caught.value)


@pytest.mark.parametrize(
    "formula",
    [
        "step_bytes ~ __import__('os').system('touch {}')",
        "step_bytes ~ I(__import__('os').system('touch {}'))",
        "step_bytes ~ open('{}', 'w')",
        "step_bytes ~ C(open('{}', 'w'))",
        "__import__('pathlib').Path('{}').touch() ~ model_bytes",
        "step_bytes ~ model_bytes + Q(\"__import__('pathlib').Path('{}').touch()\")",
        "step_bytes ~ I([open(p, 'w') for p in ['{}']])",
        "step_bytes ~ I((lambda: open('{}', 'w'))())",
        "step_bytes ~ I(f\"{{open('{}', 'w')}}\")",
        "step_bytes ~ model_bytes ~ open('{}', 'w')",
    ],
)
def test_code_in_a_formula_is_refused_and_does_not_run(formula, tmp_path):
    mark = tmp_path / "ran"
    with pytest.raises(RegressionError, match="Not a formula"):
        fit(make_runs(), formula.format(mark))
    assert not mark.exists()


@pytest.mark.parametrize(
    "formula",
    [
        "step_bytes ~ model_bytes.__class__",
        "step_bytes ~ np.load(model_bytes)",
        "step_bytes ~ np.lib.npyio.log(model_bytes)",
        "step_bytes ~ np(model_bytes)",
        "step_bytes ~ np + model_bytes",
        "step_bytes ~ C",
        "step_bytes ~ exit()",
        "step_bytes ~ breakpoint(model_bytes)",
        "step_bytes ~ np.log(model_bytes, model_bytes)",
        "step_bytes ~ np.log(out=model_bytes)",
        "step_bytes ~ C(topology)(model_bytes)",
        "step_bytes ~ model_bytes[0]",
        "step_bytes ~ I(model_bytes if 1 else 2)",
        "step_bytes ~ I(model_bytes and 2)",
        "step_bytes ~ I(a := 1)",
        "step_bytes ~ `model_bytes`",
        "step_bytes ~ {model_bytes}",
        "step_bytes ~ model_bytes @ model_bytes",
        "step_bytes ~ model_bytes # and more",
        "step_bytes ~ ｅｘｅｃ(model_bytes)",
        "step_bytes ~ True",
        "step_bytes ~ 'model_bytes'",
        "step_bytes ~ 1j",
        "step_bytes ~ I(9 ** 9 ** 9 ** 9)",
        "step_bytes ~ I((9 ** 9) ** 9)",
        "step_bytes ~ I(model_bytes ** 999)",
        "step_bytes ~ I(model_bytes ** model_bytes)",
        "step_bytes ~ " + "(" * 230 + "model_bytes" + ")" * 230,
        "step_bytes ~ " + "-" * 300 + "model_bytes",
        "step_bytes ~ model_bytes" + " + model_bytes" * 100,
        "step_bytes ~ ",
        " ~ model_bytes",
        "~",
        "",
        "model_bytes",
        "step_bytes ~ model_bytes +",
        "step_bytes ~ model_bytes)(",
    ],
)
def test_what_is_no_formula_is_refused(formula):
    with pytest.raises(RegressionError, match="Not a formula"):
        fit(make_runs(), formula)


@pytest.mark.parametrize(
    ("formula", "message"),
    [
        ("step_bytes ~ model_bytes + 3", "cannot be evaluated: numbers besides"),
        ("step_bytes ~ np.log(topology)", "cannot be evaluated"),
        ("step_bytes ~ I(model_bytes : batch_size)", "cannot be evaluated"),
        ("C(step_bytes) ~ model_bytes", "must be one number a row"),
        ("topology ~ batch_size", "must be one number a row"),
        ("I(step_bytes ** 10 * step_bytes ** 8) ~ model_bytes", "squares no longer are numbers"),
        ("step_bytes ~ I(model_bytes * 1e-200)", "squares no longer are numbers"),
        ("step_bytes ~ model_bytes + step_bytes", "step_bytes is on both sides"),
    ],
)
def test_a_formula_that_gives_no_numbers_is_refused_with_the_reason(formula, message):
    with pytest.raises(RegressionError, match=message):
        fit(make_runs(), formula)


def test_importing_the_module_stays_cheap():
    code = "import sys, ddnn_traces.regression; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "ddnn_traces.regression" in loaded
    assert not {"statsmodels", "patsy", "pandas", "scipy"} & set(loaded)
