"""The regression against outside truths: what NIST certifies, R's own regression, statsmodels, refits by hand."""

from __future__ import annotations

import json
import tomllib
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import statsmodels.formula.api as smf
from statsmodels.stats.diagnostic import het_breuschpagan
from tools import mostly_long

from ddnn_traces.regression import OlsFit, fit, ols

HERE = Path(__file__).parent
NIST = tomllib.loads((HERE / "nist" / "certified.toml").read_text())
R = json.loads((HERE / "reference.json").read_text())
EQUATION = "step_bytes ~ model_bytes + C(framework_backend) + C(batch_size) + C(topology)"
SMALL = "step_bytes ~ model_bytes + C(framework_backend) + C(batch_size)"


# --- NIST

#: Digits that agree (-log10 of the relative error), of NIST's 15. Double precision gives no more where the data is so
#: nearly collinear (Filip, condition number 5e9) or the residuals dwarf what is fitted (Wampler4, Wampler5).
DIGITS = {"Filip": 7, "Wampler4": 11, "Wampler5": 9}


@pytest.mark.parametrize("name", NIST)
def test_agrees_with_the_values_that_nist_certifies(name: str) -> None:
    certified, within = NIST[name], 10.0 ** -DIGITS.get(name, 12)
    frame = pl.read_csv(HERE / "nist" / f"{name}.csv").cast(pl.Float64)
    result = ols(frame.with_columns(run_id=pl.int_range(pl.len()).cast(pl.String)), certified["formula"])
    assert [c.estimate for c in result.coefficients] == pytest.approx(certified["estimates"], rel=within)
    assert result.r_squared == pytest.approx(certified["r_squared"], rel=within)
    assert result.df_resid == certified["df"]
    assert all(verdict.estimable for verdict in result.verdicts)
    if certified["residual"] == 0:  # an exact fit: there is no scatter, and nothing is tested against rounding
        assert {c.std_error for c in result.coefficients} == {None}
        assert result.residual_std_error is None
        return
    assert [c.std_error for c in result.coefficients] == pytest.approx(certified["deviations"], rel=within)
    assert result.residual_std_error == pytest.approx(certified["residual"], rel=within)
    assert result.f_statistic == pytest.approx(certified["f"], rel=within)


# --- R


def rows(name: str) -> pl.DataFrame:
    """Every run a cell of its own, as R's commands take them."""
    return pl.read_csv(HERE / f"{name}.csv").with_columns(variant="run_id")


@pytest.fixture(scope="module")
def small() -> OlsFit:
    return fit(rows("runs"), SMALL, "hc3")


def named_as_in_r(name: str) -> str:
    return name.replace("C(", "").replace(")[T.", "").replace("]", "").replace("Intercept", "(Intercept)")


def by_name(result: OlsFit, attribute: str) -> dict[str, Any]:
    return {named_as_in_r(c.name): getattr(c, attribute) for c in result.coefficients}


def of(values: list[float]) -> Any:
    return pytest.approx(values, rel=1e-8)


@pytest.mark.parametrize(
    ("design", "file", "formula"),
    [("equation", "runs", EQUATION), ("small", "runs", SMALL), ("by_step", "steps", SMALL)],
)
def test_agrees_with_lm_of_r(design: str, file: str, formula: str) -> None:
    result, theirs = fit(rows(file), formula, "classic"), R[design]
    for attribute, name in (
        ("estimate", "coefficients"),
        ("std_error", "std_errors"),
        ("ci_low", "low"),
        ("ci_high", "high"),
    ):
        assert by_name(result, attribute) == of(theirs[name]), attribute
    assert by_name(result, "p_value") == pytest.approx(theirs["p_values"], rel=1e-7, abs=1e-300)
    for attribute, name in (
        ("r_squared", "r_squared"),
        ("adj_r_squared", "adj_r_squared"),
        ("residual_std_error", "sigma"),
        ("df_resid", "df"),
        ("f_statistic", "f"),
        ("aic", "aic"),
        ("bic", "bic"),
    ):
        assert getattr(result, attribute) == of(theirs[name]), attribute
    drops = {nested.change.removeprefix("- "): nested for nested in result.nested if nested.change.startswith("- ")}
    assert {named_as_in_r(term).rstrip(")"): nested.f for term, nested in drops.items()} == of(theirs["drop_f"])
    assert {named_as_in_r(term).rstrip(")"): nested.aic for term, nested in drops.items()} == of(theirs["drop_aic"])
    tests = {test.term: test for test in result.tests}
    for term, nested in drops.items():  # by the classic errors, the joint test is that of dropping the term
        assert tests[term].f == pytest.approx(nested.f, rel=1e-9)
        assert tests[term].p_value == pytest.approx(nested.p_value, rel=1e-6)
        assert tests[term].p_value == pytest.approx(theirs["drop_p"][named_as_in_r(term).rstrip(")")], rel=1e-6)


def test_hc3_agrees_with_sandwich_of_r(small: OlsFit) -> None:
    theirs = R["small"]
    assert by_name(small, "std_error") == of(theirs["hc3"])
    assert by_name(small, "std_error_classic") == of(theirs["std_errors"])
    test = next(test for test in small.tests if test.term == "C(framework_backend)")
    assert [test.f, test.df, test.df_denominator] == of(theirs["hc3_f"])


def test_hc3_of_coefficients_that_no_single_run_determines_agrees_with_sandwich_of_r() -> None:
    """R gives NaN for all where a run has leverage 1; without those runs it gives the others."""
    ours = {name: error for name, error in by_name(fit(rows("runs"), EQUATION, "hc3"), "std_error").items() if error}
    theirs = R["equation"]["shared_hc3"]
    assert set(ours) == {"(Intercept)", "model_bytes", "framework_backendmpi-openmpi", "batch_size128"}
    assert ours == of({name: theirs[name] for name in ours})


TERMS = ("model_bytes", "C(framework_backend)", "C(topology)", "C(workers)")


@pytest.mark.parametrize("errors", mostly_long(["classic", "hc3"]))
def test_the_verdict_on_a_term_does_not_depend_on_the_order_of_terms(errors: str) -> None:
    """Framework and topology together determine the workers, so that each of the three loses some of its own."""
    workers = {name: 2 + i % 3 for i, name in enumerate(sorted(set(rows("runs")["topology"])))}
    frame = rows("runs").with_columns(workers=pl.col("topology").replace_strict(workers, return_dtype=pl.Int64))
    found = []
    for terms in permutations(TERMS):
        result = fit(frame, "step_bytes ~ " + " + ".join(terms), errors)
        of_term = {verdict.term: verdict for verdict in result.verdicts}
        tests = {test.term: test for test in result.tests}
        assert (tests["C(workers)"].df, of_term["C(workers)"].estimable) == (0, False)
        assert of_term["C(workers)"].significant is None
        assert "cannot be separated from topology = " in of_term["C(workers)"].sentence
        found.append({t: (of_term[t].significant, tests[t].df, tests[t].f, of_term[t].sentence) for t in TERMS})
        if errors == "classic":
            for nested in (nested for nested in result.nested if nested.change.startswith("- ")):
                assert nested.f == (tests[nested.change[2:]].f and pytest.approx(tests[nested.change[2:]].f, rel=1e-8))
    for other in found[1:]:
        for term in TERMS:
            assert other[term][:2] == found[0][term][:2]
            assert other[term][2] == (found[0][term][2] and pytest.approx(found[0][term][2], rel=1e-8))
            if "combination" not in found[0][term][3]:
                assert other[term][3] == found[0][term][3]
    assert 0 < found[0]["C(topology)"][1] < 5


def test_a_level_that_cannot_be_separated_from_its_slope_is_not_judged() -> None:
    """Both write the same fit; parameter_server has one model only, so that its level and its slope are one."""
    for formula in ("step_bytes ~ C(topology)/model_bytes", "step_bytes ~ model_bytes*C(topology)"):
        result = fit(rows("runs"), formula)
        sentence = next(verdict.sentence for verdict in result.verdicts if verdict.term == "C(topology)")
        assert "topology = parameter_server cannot be separated from" in sentence
        assert "(positive)" not in sentence and "(negative)" not in sentence
        separate = {c.name: c.told_apart for c in result.coefficients}
        assert not separate["C(topology)[T.parameter_server]"]
        assert separate["C(topology)[T.star]"]


def test_levels_in_place_of_an_intercept_are_compared_with_each_other() -> None:
    """`- 1` changes the coefficients and not the fit, so that no test of it may change."""
    runs = rows("runs").select("run_id", "step_bytes", "model_bytes", "topology")
    base = fit(runs, "step_bytes ~ model_bytes + C(topology)", "classic")
    result = fit(runs, "step_bytes ~ model_bytes - 1 + C(topology)", "classic")
    for one, other in zip(base.tests, result.tests, strict=True):
        assert (one.term, one.df, one.df_denominator) == (other.term, other.df, other.df_denominator)
        assert other.f == pytest.approx(one.f, rel=1e-8)
    for name in ("breusch_pagan", "breusch_pagan_p_value", "f_statistic", "r_squared"):
        assert getattr(result, name) == pytest.approx(getattr(base, name), rel=1e-8), name
    drops = [{n.change: n.f for n in r.nested if n.change.startswith("- ")} for r in (base, result)]
    assert drops[1] == pytest.approx(drops[0], rel=1e-8)
    sentence = result.verdicts[1].sentence
    assert ", its levels against each other; each against 0: topology = parameter_server (negative)" in sentence


def test_a_term_that_an_intercept_and_another_span_cannot_be_separated_without_an_intercept() -> None:
    """Two batch sizes are a line: the number and the constant span the indicators."""
    for formula in ("0 + batch_size + C(batch_size) + C(topology)", "0 + C(topology) + batch_size + C(batch_size)"):
        result = fit(rows("runs"), f"step_bytes ~ {formula}")
        assert {test.term: test.df for test in result.tests}["C(batch_size)"] == 0
        (sentence,) = (verdict.sentence for verdict in result.verdicts if verdict.term == "C(batch_size)")
        assert "cannot be separated from" in sentence


def test_what_single_runs_determine_is_tested_by_classic_errors_only() -> None:
    formula = "step_bytes ~ model_bytes + C(topology)"
    classic, robust = (fit(rows("runs").tail(8), formula, errors) for errors in ("classic", "hc3"))
    drops = {nested.change: nested.f for nested in classic.nested}
    assert [(test.df, test.df_denominator) for test in classic.tests] == [(1, 2), (4, 2)]
    for test in classic.tests:
        assert test.f == pytest.approx(drops[f"- {test.term}"], rel=1e-8)
    assert [(test.df, test.untested) for test in robust.tests] == [(1, 0), (1, 3)]


def test_the_single_runs_that_determine_a_term_are_counted() -> None:
    sentences = {verdict.term: verdict.sentence for verdict in fit(rows("runs"), EQUATION).verdicts}
    assert "6 single runs" in sentences["C(topology)"]
    assert "3 single runs" in sentences["C(framework_backend)"]
    assert "single run" not in sentences["model_bytes"] + sentences["C(batch_size)"]


def test_diagnostics_agree_with_car_and_lmtest_of_r(small: OlsFit) -> None:
    theirs = R["small"]
    assert {named_as_in_r(t.term).rstrip(")"): t.gvif for t in small.tests} == of(theirs["gvif"])
    assert [small.breusch_pagan, small.breusch_pagan_p_value] == of(theirs["breusch_pagan"])
    assert [run.cooks_distance for run in small.influence] == of(theirs["cooks_distance"])
    assert [run.leverage for run in small.influence] == of(theirs["leverage"])
    assert [run.studentized_residual for run in small.influence] == of(theirs["studentized"])
    assert small.condition_number == of(theirs["condition_number"])


def test_leave_one_run_out_agrees_with_refits_in_r(small: OlsFit) -> None:
    errors = np.array(R["small"]["left_out"])
    assert small.estimate is not None
    parts = small.estimate.without_run.values()
    assert np.concatenate([part.errors for part in parts]).tolist() == of(errors.tolist())
    found = small.left_out[0]
    assert (found.by, found.groups, found.rows, found.impossible) == ("run", 20, 20, ())
    assert found.root_mean_square == of(float(np.sqrt(np.mean(errors**2))))
    observed = rows("runs")["step_bytes"].to_numpy()
    assert found.median_relative == of(float(np.median(abs(errors / observed))))
    about_mean = float(((observed - observed.mean()) ** 2).sum())
    assert found.r_squared == of(float(1 - errors @ errors / about_mean))


# --- statsmodels, and refits


def test_robust_errors_and_breusch_pagan_agree_with_statsmodels(small: OlsFit) -> None:
    theirs = smf.ols(
        'step_bytes ~ model_bytes + C(framework_backend, Treatment("torch-gloo")) + C(batch_size)',
        rows("runs").to_pandas(),
    ).fit()
    expected = theirs.get_robustcov_results("HC3").bse
    assert sorted(c.std_error for c in small.coefficients if c.std_error) == of(sorted(expected))
    statistic, p_value, _, _ = het_breuschpagan(theirs.resid, theirs.model.exog)
    assert [small.breusch_pagan, small.breusch_pagan_p_value] == of([statistic, p_value])


def test_runs_that_cannot_be_predicted_without_themselves_are_named() -> None:
    result = fit(rows("runs"), EQUATION)
    by_run, by_model = result.left_out
    only = {run.run_id: run.reason for run in by_run.impossible}
    assert only["torchp2p-mlp1-sgd-32-gloo-0ms-tree"] == "only it determines topology = tree"
    assert by_run.rows == by_run.groups - len(only) == 20 - 6
    assert (by_model.by, by_model.groups) == ("model", 3)
    # six runs have leverage 1: robust errors and Cook's distance are 0/0 there, and not reported as 0
    assert {run.run_id for run in result.influence if run.cooks_distance is None} == set(only)
    robust = {c.name: c.std_error_robust for c in result.coefficients}
    assert robust["C(topology)[T.tree]"] is None
    assert robust["model_bytes"] is not None


def refit_error(frame: pl.DataFrame, formula: str, column: str, value: str) -> list[float]:
    """Errors of the rows with that value, predicted by a fit to the others."""
    left, right = formula.split(" ~ ")
    theirs = smf.ols(formula, frame.filter(pl.col(column) != value).to_pandas()).fit()
    rest = frame.filter(pl.col(column) == value)
    assert right
    return (rest[left].to_numpy() - theirs.predict(rest.to_pandas()).to_numpy()).tolist()


def test_leave_one_model_out_agrees_with_refits() -> None:
    frame, formula = rows("runs"), "step_bytes ~ model_bytes"
    errors = [e for model in frame["model"].unique() for e in refit_error(frame, formula, "model", model)]
    found = fit(frame, formula).left_out[1]
    assert (found.by, found.groups, found.rows) == ("model", 3, 20)
    assert found.root_mean_square == pytest.approx(float(np.sqrt(np.mean(np.square(errors)))), rel=1e-8)


def test_cooks_distance_of_a_run_of_many_steps_is_how_far_the_fit_moves() -> None:
    frame, run = rows("steps"), "torchp2p-mlp4-sgd-32-gloo-0ms-star-tso"
    result = fit(frame, SMALL)
    found = next(entry for entry in result.influence if entry.run_id == run)
    less = fit(frame.filter(pl.col("run_id") != run), SMALL)
    whole, part = ({c.name: c.estimate for c in r.coefficients} for r in (result, less))
    assert result.estimate is not None
    moved = result.estimate.matrix @ np.array([whole[c.name] - part[c.name] for c in result.estimate.columns])
    expected = float(moved @ moved) / len(whole) / result.estimate.variance
    assert found.cooks_distance == pytest.approx(expected, rel=1e-6)
    assert found.studentized_residual is None


def test_log_log_predictions_are_compared_on_the_scale_of_bytes() -> None:
    frame = rows("runs")
    result = fit(frame, "step_bytes ~ model_bytes")
    logs = result.log_log
    assert logs is not None
    assert logs.formula == "np.log(step_bytes) ~ np.log(model_bytes)"
    theirs = smf.ols(logs.formula, frame.to_pandas()).fit()
    assert logs.exponent == pytest.approx(theirs.params.iloc[1], rel=1e-8)
    observed = frame["step_bytes"].to_numpy()
    linear = np.array([refit_error(frame, "step_bytes ~ model_bytes", "run_id", run)[0] for run in frame["run_id"]])
    log = np.array([refit_error_of_log(frame, run) for run in frame["run_id"]])
    back = observed - np.exp(np.log(observed) - log)
    for errors, found in (
        (linear, (logs.median_relative_linear, logs.root_mean_square_linear)),
        (back, (logs.median_relative, logs.root_mean_square)),
    ):
        expected = (np.median(np.abs(errors) / observed), np.sqrt(np.mean(np.square(errors))))
        assert found == pytest.approx(expected, rel=1e-7)


@pytest.mark.parametrize(
    ("left", "invert"),
    [
        ("np.log(step_bytes)", np.exp),
        ("np.log10(step_bytes)", lambda values: 10**values),
        ("np.sqrt(step_bytes)", np.square),
        ("I(step_bytes / 1e6)", lambda values: 1e6 * values),
    ],
)
@pytest.mark.long_after(1)
def test_errors_of_left_out_runs_are_of_the_column_and_not_of_its_logarithm(left: str, invert: Any) -> None:
    frame = rows("runs")
    found = fit(frame, f"{left} ~ model_bytes").left_out[0]
    predicted = []
    for run in frame["run_id"]:
        theirs = smf.ols(f"{left} ~ model_bytes", frame.filter(pl.col("run_id") != run).to_pandas()).fit()
        predicted.append(invert(theirs.predict(frame.filter(pl.col("run_id") == run).to_pandas()).iloc[0]))
    observed = frame["step_bytes"].to_numpy()
    errors = observed - np.array(predicted)
    assert found.of == "step_bytes"
    assert found.median_relative == pytest.approx(np.median(abs(errors) / observed), rel=1e-7)
    assert found.root_mean_square == pytest.approx(np.sqrt(np.mean(errors**2)), rel=1e-7)


def test_a_left_side_that_cannot_be_inverted_has_no_relative_error() -> None:
    found = fit(rows("runs"), "np.log(I(step_bytes + 1)) ~ model_bytes").left_out[0]
    assert (found.of, found.median_relative) == ("np.log(I(step_bytes + 1))", None)


def refit_error_of_log(frame: pl.DataFrame, run: str) -> float:
    logs = frame.with_columns(y=pl.col("step_bytes").log(), x=pl.col("model_bytes").log())
    return refit_error(logs, "y ~ x", "run_id", run)[0]


def test_a_built_up_formula_gains_a_term_a_line(small: OlsFit) -> None:
    assert [nested.change for nested in small.nested] == [
        "", "- model_bytes", "- C(framework_backend)", "- C(batch_size)",
        "intercept alone", "+ model_bytes", "+ C(framework_backend)",
    ]  # fmt: skip
    frame = rows("runs").to_pandas()
    theirs = smf.ols("step_bytes ~ model_bytes", frame).fit()
    built = small.nested[5]
    assert built.coefficients == 2
    assert built.aic == pytest.approx(theirs.aic + 2, rel=1e-10)  # statsmodels does not count the variance
    assert built.bic == pytest.approx(theirs.bic + np.log(20), rel=1e-10)
    whole = smf.ols("step_bytes ~ model_bytes + C(framework_backend) + C(batch_size)", frame).fit()
    f, p_value, _ = whole.compare_f_test(theirs)
    assert (built.f, built.p_value) == pytest.approx((f, p_value), rel=1e-6)
