"""Rows that lack values, and columns that cannot be separated from others."""

from __future__ import annotations

import polars as pl
import pytest
from regression_runs import (
    assert_nothing_fitted,
    blank,
    estimates,
    fit,
    joint,
    make_runs,
    missing_facts,
    noted,
    sentence,
    verdict,
)

from ddnn_traces.regression import PAPER_FORMULA


def by_level(column: str, levels: dict[str, str], otherwise: str | None = None) -> pl.Expr:
    """A topology made of another column's levels; a level that is not named keeps its own topology."""
    default = pl.col("topology") if otherwise is None else pl.lit(otherwise)
    return pl.col(column).replace_strict(levels, default=default).alias("topology")


def test_the_unit_of_a_column_does_not_decide_whether_it_is_independent():
    small = fit(make_runs(), "step_bytes ~ model_bytes + I(batch_size / 1000000000000)")
    assert verdict(small, "I(batch_size / 1000000000000)")[0]
    large = fit(
        make_runs(), "step_bytes ~ model_bytes + I(model_bytes / 3 + 7 * model_bytes + batch_size - batch_size)"
    )
    assert missing_facts(large.verdicts[1].sentence, "cannot be separated from model_bytes") == []


def test_a_constant_column_is_dropped_and_named():
    result = fit(make_runs().with_columns(batch_size=pl.lit(32)))
    assert verdict(result, "C(batch_size)") == (False, None)
    assert missing_facts(sentence(result, "C(batch_size)"), "every run has batch_size = 32") == []
    without = fit(make_runs(), "step_bytes ~ model_bytes + C(framework_backend) + C(topology)")
    assert estimates(result) == pytest.approx(estimates(without), rel=1e-9)
    assert result.df_resid == without.df_resid == 31


def test_a_constant_number_is_dropped_too():
    result = fit(make_runs().with_columns(batch_size=pl.lit(32)), "step_bytes ~ model_bytes + np.log(batch_size)")
    assert missing_facts(sentence(result, "np.log(batch_size)"), "every run has batch_size = 32") == []


def test_levels_that_always_occur_together_are_named_and_the_earlier_stays():
    runs = make_runs().with_columns(by_level("framework_backend", {"tf-grpc": "star"}, "ring"))
    result = fit(runs)
    assert verdict(result, "C(topology)") == (False, None)
    together = ("topology = star", "framework_backend = tf-grpc", "always occur together")
    assert missing_facts(sentence(result, "C(topology)"), *together) == []
    assert verdict(result, "C(framework_backend)") == (True, True)
    assert noted(result, "estimates of C(framework_backend)", "effect of topology = star")
    assert result.df_resid == 36 - 5


def test_a_level_that_is_the_other_terms_reference_is_found_as_well():
    """kungfu-pair has no column of its own: star is 1 - tf-grpc - torch-gloo."""
    runs = make_runs().with_columns(by_level("framework_backend", {"kungfu-pair": "star"}, "ring"))
    stated = sentence(fit(runs), "C(topology)")
    assert missing_facts(stated, "topology = star", "framework_backend = kungfu-pair:", "always occur together") == []


def test_a_level_that_is_several_levels_of_another_term():
    # pair averaging twice as often: ring is then the most frequent topology, which star is compared with
    runs = make_runs()
    pair = runs.filter(pl.col("framework_backend") == "kungfu-pair")
    again = [pair.with_columns(run_id=pl.col("run_id") + f"-{i}") for i in range(2)]
    levels = {"tf-grpc": "star", "torch-gloo": "star"}
    runs = pl.concat([runs, *again])
    runs = runs.with_columns(by_level("framework_backend", levels, "ring"))
    facts = ("topology = star", "framework_backend = tf-grpc or torch-gloo:", "always occur together")
    assert missing_facts(sentence(fit(runs), "C(topology)"), *facts) == []


def test_formula_order_decides_which_of_two_aliased_terms_stays():
    runs = make_runs().with_columns(by_level("framework_backend", {"tf-grpc": "star"}, "ring"))
    result = fit(runs, "step_bytes ~ C(topology) + C(framework_backend) + model_bytes")
    assert [c.name for c in result.coefficients] == [
        "Intercept",
        "C(topology)[T.star]",
        "C(framework_backend)[T.torch-gloo]",
        "model_bytes",
    ]
    (test,) = (test for test in result.tests if test.term == "C(framework_backend)")
    assert (test.df, verdict(result, test.term)) == (1, (True, True))
    judged, degrees, aliased = sentence(result, test.term).split("; ")
    assert missing_facts(judged, joint(result, test.term), "= kungfu-pair", "= torch-gloo (positive)") == []
    assert missing_facts(degrees, "2 degrees of freedom", "1 ") == []
    assert missing_facts(aliased, "framework_backend = tf-grpc", "topology = star", "always occur together") == []


def test_a_term_with_some_aliased_levels_is_estimated_for_the_rest():
    runs = make_runs().with_columns(by_level("framework_backend", {"tf-grpc": "tree"}))
    result = fit(runs)
    assert verdict(result, "C(topology)")[0]
    assert "C(topology)[T.star]" in estimates(result)
    assert "C(topology)[T.tree]" not in estimates(result)
    assert missing_facts(sentence(result, "C(topology)"), "topology = tree", "framework_backend = tf-grpc") == []
    # the rest is the fit without that level
    merged = fit(runs.with_columns(pl.col("topology").replace({"tree": "ring"})))
    assert estimates(result) == pytest.approx(estimates(merged), rel=1e-7)


def test_a_column_that_two_terms_span_together_is_a_combination():
    runs = make_runs().with_columns(a=pl.int_range(36) % 2, b=pl.int_range(36) // 2 % 2)
    runs = runs.with_columns(total=pl.col("a") + pl.col("b"))
    result = fit(runs, "step_bytes ~ model_bytes + C(a) + C(b) + total")
    assert verdict(result, "total") == (False, None)
    assert missing_facts(sentence(result, "total"), "a combination of a = 1, b = 1") == []


def test_a_cell_without_runs_is_named():
    runs = make_runs().filter(~((pl.col("batch_size") == 64) & (pl.col("topology") == "star")))
    result = fit(runs, "step_bytes ~ model_bytes + C(batch_size) * C(topology)")
    assert verdict(result, "C(batch_size):C(topology)") == (False, None)
    facts = ("no run has", "batch_size = 64", "topology = star")
    assert missing_facts(sentence(result, "C(batch_size):C(topology)"), *facts) == []


def test_a_saturated_fit_drops_terms_from_the_end_until_a_residual_is_left():
    """6 runs for 6 coefficients would give R² = 1."""
    keep = ["kungfu-pair-32-ring-14", "tf-grpc-32-ring-98", "torch-gloo-32-ring-528", "kungfu-pair-64-ring-528"]
    keep += ["tf-grpc-32-star-14", "torch-gloo-64-star-98"]
    runs = make_runs().filter(pl.col("run_id").str.replace("000000$", "").is_in(keep))
    result = fit(runs)
    assert result.rows == 6
    assert result.df_resid == 1
    assert missing_facts(sentence(result, "C(topology)"), "6 runs for 6 coefficients") == []
    assert verdict(result, "C(topology)") == (False, None)
    assert verdict(result, "C(batch_size)")[0]
    assert result.r_squared < 1
    assert noted(result, "lack of runs", "C(topology)")


def test_four_runs_of_four_frameworks_leave_the_slope_alone():
    runs = make_runs().head(4).with_columns(framework_backend=pl.Series(list("abcd")), batch_size=pl.lit(32))
    result = fit(runs, "step_bytes ~ model_bytes + C(framework_backend) + C(batch_size)")
    assert missing_facts(sentence(result, "C(framework_backend)"), "4 runs for 5 coefficients") == []
    assert missing_facts(sentence(result, "C(batch_size)"), "every run has batch_size = 32") == []
    assert [c.name for c in result.coefficients] == ["Intercept", "model_bytes"]
    assert result.df_resid == 2


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
    assert missing_facts(sentence(result, "C(topology)"), "no run has topology") == []
    assert [v.term for v in result.verdicts][-1] == "C(topology)"
    without = fit(make_runs(), "step_bytes ~ model_bytes + C(framework_backend) + C(batch_size)")
    assert estimates(result) == estimates(without)
    assert result.formula == PAPER_FORMULA


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
