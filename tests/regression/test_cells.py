"""The unit of inference: runs of a cell are repeats, and no independent evidence of what the cells differ in."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from regression_runs import noted, verdict
from scipy import linalg, stats

from ddnn_traces.errors import RegressionError
from ddnn_traces.regression import Regression, fit

PLAIN = "step_bytes ~ model_bytes + C(framework_backend) + C(batch_size)"
TERMS = ("C(framework_backend)", "C(batch_size)")


def repeated(seed: int, repeats: int = 5, of_cells: float = 0.1, of_runs: float = 0.002) -> pl.DataFrame:
    """12 cells of some runs: 6 MB a MB of model, a deviation of each cell and a smaller one of each run."""
    rng = np.random.default_rng([36, seed])
    cells = [
        (size, framework, batch) for size in (4e6, 8e6) for framework in ("tf", "torch", "mpi") for batch in (32, 64)
    ]
    rows = [
        {
            "run_id": f"r{number:02}-{repeat}", "model_bytes": size, "framework_backend": framework,
            "batch_size": batch, "workers": 4, "topology": "ring",
            "step_bytes": 6 * size + 1e6 * (of_cell + of_runs * rng.standard_normal()),
        }
        for number, (size, framework, batch) in enumerate(cells)
        for of_cell in [of_cells * rng.standard_normal()]
        for repeat in range(repeats)
    ]  # fmt: skip
    return pl.DataFrame(rows)


def averages(rows: pl.DataFrame) -> pl.DataFrame:
    settings = ["model_bytes", "framework_backend", "batch_size"]
    return rows.group_by(settings, maintain_order=True).agg(pl.col("run_id").first(), pl.col("step_bytes").mean())


def test_repeats_are_averaged_and_the_fit_is_that_of_the_means_by_hand() -> None:
    rows = repeated(1)
    result, by_hand = fit(rows, PLAIN), fit(averages(rows), PLAIN)
    assert (result.runs, result.rows, result.clusters, result.unit, result.df_resid) == (60, 60, 12, "cell", 7)
    for mine, other in zip(result.coefficients, by_hand.coefficients, strict=True):
        assert (mine.estimate, mine.std_error) == pytest.approx((other.estimate, other.std_error), rel=1e-9)
    assert "60 runs in 12 cells" in result.summary()
    assert noted(result, "60 of 60 runs are repeats, in 12 cells", "by 1.00 within a cell", "n = 12")


def false_findings(count: int, unit: str) -> float:
    """The share of the terms without an effect that are significant."""
    found = [verdict(fit(repeated(seed), PLAIN, unit=unit), term)[1] for seed in range(count) for term in TERMS]
    return float(np.mean([significant is True for significant in found]))


@pytest.mark.long
@pytest.mark.parametrize("unit", ["cell", "run"])
def test_repeats_do_not_make_an_effect_significant(unit: str) -> None:
    """As rows of their own 78% of these terms are significant (fits of before that, this seed)."""
    assert false_findings(20, unit) <= 0.15


def test_a_real_effect_is_found_with_either_unit() -> None:
    more = pl.when(pl.col("framework_backend") == "tf").then(2e6).otherwise(0.0)
    rows = repeated(3).with_columns(step_bytes=pl.col("step_bytes") + more)
    for unit in ("cell", "run"):
        assert verdict(fit(rows, PLAIN, unit=unit), TERMS[0]) == (True, True), unit


def test_runs_that_differ_in_an_attribute_outside_the_formula_are_not_of_one_cell() -> None:
    rows = repeated(2, repeats=2).with_columns(delay_ms=pl.int_range(24) % 2)
    assert (fit(rows, PLAIN).clusters, fit(rows.drop("delay_ms"), PLAIN).clusters) == (24, 12)


def test_without_repeats_both_units_are_the_same_fit() -> None:
    rows = repeated(2, repeats=1)
    cell, run = fit(rows, PLAIN), fit(rows, PLAIN, unit="run")
    assert cell.coefficients == run.coefficients
    assert "12 runs in 12 cells" in cell.summary()
    assert not noted(cell, "repeats")


def test_steps_are_clustered_by_cell() -> None:
    rows = repeated(4, repeats=2)
    steps = pl.concat([rows.with_columns(step=pl.lit(step)) for step in range(6)])
    result = fit(steps, PLAIN)
    by_run = fit(rows, PLAIN, "cluster")
    assert (result.rows, result.runs, result.clusters, result.errors) == (144, 24, 12, "cluster")
    assert [c.df for c in result.coefficients] == pytest.approx([c.df for c in by_run.coefficients])


def test_cells_too_few_to_fit_are_counted() -> None:
    result = fit(repeated(1).filter(pl.col("run_id").str.starts_with("r00")), PLAIN)
    assert result.notes[0] == (
        "Nothing is fitted: 5 usable runs in 1 cell, and at least 3 cells (runs that differ in their settings) are "
        "needed."
    )


def test_an_unknown_unit_is_refused() -> None:
    with pytest.raises(RegressionError, match="No unit named row; there are: cell, run"):
        fit(repeated(1), PLAIN, unit="row")


# --- CR2 and its degrees of freedom, by their definitions


def unbalanced() -> pl.DataFrame:
    """Cells of 1 to 6 runs."""
    rows = repeated(5, repeats=6)
    return rows.filter(pl.int_range(pl.len()) % 6 <= pl.int_range(pl.len()) // 6 % 6)


def dense(result: Regression, rows: pl.DataFrame, contrasts: np.ndarray) -> tuple[np.ndarray, float, float]:
    """CR2 covariance of contrasts, F and its denominator: Pustejovsky and Tipton 2018, sections 2.1, 3.1 and 3.2.

    By matrices of rows by rows, without a decomposition of the design: A_i is the symmetric square root of the inverse
    of (I - H)_ii, and the expectation and covariance of the estimator are those of independent normal rows.
    """
    estimate = result.estimate
    assert estimate is not None
    x, y, n = estimate.matrix / 1e6 ** (estimate.matrix.max(axis=0) > 1e3), estimate.response, len(rows)
    bread = np.linalg.inv(x.T @ x)
    residual_maker = np.eye(n) - x @ bread @ x.T
    rows_of = [np.flatnonzero(np.array(estimate.groups) == group) for group in dict.fromkeys(estimate.groups)]
    adjust = [np.real(linalg.fractional_matrix_power(residual_maker[np.ix_(r, r)], -0.5)) for r in rows_of]
    e = residual_maker @ y
    scores = [x[r].T @ a @ e[r] for r, a in zip(rows_of, adjust, strict=True)]
    covariance = contrasts @ bread @ sum(np.outer(s, s) for s in scores) @ bread @ contrasts.T
    working = contrasts @ bread @ contrasts.T
    root = np.real(linalg.fractional_matrix_power(working, -0.5))
    # u[s][i]: the column of rows whose product with independent normal errors is cluster i's part of direction s
    u = np.array(
        [[residual_maker[:, r] @ a @ x[r] @ bread @ contrasts.T @ row for r, a in zip(rows_of, adjust, strict=True)]
         for row in root]
    )  # fmt: skip
    q = len(contrasts)
    products = np.einsum("sin,tjn->stij", u, u)
    spread = sum(
        (products[s, t] * products[t, s] + products[s, s] * products[t, t]).sum() for s in range(q) for t in range(q)
    )
    freedom = q * (q + 1) / spread
    b = contrasts @ bread @ x.T @ y
    wald = b @ np.linalg.solve(covariance, b)
    return covariance, (freedom - q + 1) / (freedom * q) * wald, freedom - q + 1


def test_cr2_errors_and_satterthwaite_degrees_of_freedom_are_those_of_the_definition() -> None:
    rows = unbalanced()
    result = fit(rows, PLAIN, unit="run")
    assert result.errors == "cluster"
    for number, coefficient in enumerate(result.coefficients):
        covariance, f, freedom = dense(result, rows, np.eye(len(result.coefficients))[[number]])
        scale = 1e-6 if coefficient.name == "model_bytes" else 1.0
        assert coefficient.df == pytest.approx(freedom, rel=1e-8)
        assert coefficient.std_error == pytest.approx(scale * float(np.sqrt(covariance[0, 0])), rel=1e-8)
        assert coefficient.p_value == pytest.approx(stats.f.sf(f, 1, freedom), rel=1e-6)


def test_the_joint_test_is_hotellings_t_squared_of_the_definition() -> None:
    rows = unbalanced()
    result = fit(rows, PLAIN, unit="run")
    names = [c.name for c in result.coefficients]
    for test in result.tests:
        own = [i for i, c in enumerate(result.coefficients) if c.term == test.term]
        _, f, freedom = dense(result, rows, np.eye(len(names))[own])
        assert (test.f, test.df_denominator) == pytest.approx((f, freedom), rel=1e-7), test.term


def test_clusters_of_one_row_are_hc2_with_bell_and_mccaffreys_degrees_of_freedom() -> None:
    """The t of two groups is that of Welch's test, whose degrees of freedom these are where both scatter alike."""
    rng = np.random.default_rng(2)
    values = np.concatenate([rng.normal(0, 1, 5), rng.normal(0, 1, 9)])
    rows = pl.DataFrame(
        {"run_id": [f"r{i:02}" for i in range(14)], "framework_backend": ["a"] * 5 + ["b"] * 9, "step_bytes": values}
    ).with_columns(batch_size=pl.int_range(14))
    result = fit(rows, "step_bytes ~ C(framework_backend)")
    welch = stats.ttest_ind(values[:5], values[5:], equal_var=False)
    slope = result.coefficients[1]
    assert abs(slope.estimate / (slope.std_error or 0)) == pytest.approx(abs(welch.statistic), rel=1e-9)
    # of equal variances: (1/5 + 1/9)^2 / (1/(5^2 4) + 1/(9^2 8))
    assert slope.df == pytest.approx((1 / 5 + 1 / 9) ** 2 / (1 / 100 + 1 / 648), rel=1e-9)


def test_what_a_single_cell_determines_is_not_tested_and_the_rest_is() -> None:
    rows = repeated(6, repeats=1).with_columns(
        framework_backend=pl.when(pl.col("run_id") == "r00-0").then(pl.lit("one")).otherwise("framework_backend")
    )
    result = fit(rows, PLAIN, "cluster")
    one = next(c for c in result.coefficients if c.name == "C(framework_backend)[T.one]")
    assert (one.std_error, one.p_value) == (None, None)
    test = next(test for test in result.tests if test.term == "C(framework_backend)")
    assert (test.df, test.untested) == (2, 1)
    assert test.p_value is not None
    sentence = next(v.sentence for v in result.verdicts if v.term == "C(framework_backend)")
    assert "not tested for what a single run determines" in sentence
