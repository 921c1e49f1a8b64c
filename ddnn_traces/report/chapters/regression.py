"""Zerwas section VI: the volume of a step, beside model size and what else may explain it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ddnn_traces.regression import ERRORS, Coefficient, Regression, layout
from ddnn_traces.report.answers import Answers, figure
from ddnn_traces.report.charts import residuals, zerwas
from ddnn_traces.report.section import Figure, Section, Source, Table
from ddnn_traces.report.words import left_out, number, number_of, percent

RUNS = 80  # that a chart with a row a run shows
_SOURCE = Source("run_step_volume")
_HOW_TO_FIT = (
    "The fit needs three or more runs with a training log (train_history.log beside the captures) and a run.toml with "
    "model_bytes, framework, batch_size and topology."
)


def step_volume(answers: Answers) -> Section:
    slug, title = "step-volume", "Volume of a step and model size (section VI)"
    fit = answers.fit
    attributes = answers.frame(_SOURCE).select("run_id", "framework_backend", "batch_size", "topology")
    frame = fit.points.drop_nulls(["step_bytes", "size_bytes"]).join(
        attributes, on="run_id", how="left", maintain_order="left"
    )
    if frame.is_empty():
        return Section(slug, title, _missing(fit))
    ratio = frame["step_bytes"] / frame["size_bytes"]
    smallest, largest = (f"{number_of(value):.3g}" for value in (ratio.min(), ratio.max()))
    slope = "".join(
        f"; {verdict.sentence.removeprefix('significant: ')}"
        for verdict in fit.verdicts
        if verdict.term == fit.size_column and verdict.estimable
    )
    between = smallest if smallest == largest else f"between {smallest} and {largest}"
    headline = f"A step transmits {between} times the model's size{slope}."
    if fit.synthetic:
        headline = f"{headline} {fit.synthetic}"
    shown = frame.head(RUNS)
    figures = [
        figure(
            "step_volume_fit",
            zerwas.step_volume_fit(frame),
            "Mean volume of a training step against model size; a mark is a run.",
            [_SOURCE],
        ),
        figure(
            "step_volume_runs",
            zerwas.step_volume_runs(shown),
            "The same for each MB of model, so that runs can be told apart. "
            + left_out(shown.height, frame.height, _SOURCE.query),
            [_SOURCE],
        ),
    ]
    return Section(slug, title, headline, figures)


def _missing(fit: Regression) -> str:
    """Why no run can be drawn, from the reasons of those that are left out."""
    reasons = sorted({run.reason for run in fit.excluded})
    why = f" ({'; '.join(reasons[:3])})" if reasons else ""
    return f"No run has both a volume for each step and a model size{why}. {_HOW_TO_FIT}"


def drivers(answers: Answers) -> Section:
    slug, title = "regression", "What drives the volume of a step (section VI)"
    fit = answers.fit
    excluded = [f"{run.run_id} is not in the fit: {run.reason}" for run in fit.excluded[:RUNS]]
    if len(fit.excluded) > RUNS:
        excluded.append(f"{number(len(fit.excluded) - RUNS, 'further run')} not in the fit")
    verdicts = [f"{verdict.term}: {verdict.sentence}" for verdict in fit.verdicts]
    if not fit.coefficients:
        headline = " ".join(fit.notes[:1]) or "Nothing is fitted."
        lists = _lists(("Terms", verdicts), ("Notes", fit.notes[1:]), ("Left out", [*excluded, _HOW_TO_FIT]))
        return Section(slug, title, headline, lists=lists)
    headline = (
        f"The attributes of the runs explain {percent(fit.r_squared or 0)} of the variance of the volume of a "
        f"step over {number(fit.rows, 'run')}"
        + (f"; model size alone correlates with {fit.correlation:.3f}." if fit.correlation else ".")
    )
    if fit.size_column is None:
        headline = f"{headline} The size of the model is not among them: no run tells it (run.toml: model_bytes)."
    if fit.synthetic:
        headline = f"{headline} {fit.synthetic}"
    tables = [_coefficients(fit), *([_terms(fit)] if fit.tests else [])]
    diagnosis = layout.diagnosis(fit)
    lists = _lists(("Terms", verdicts), ("Notes", fit.notes), ("May it be believed", diagnosis), ("Left out", excluded))
    return Section(slug, title, headline, _residuals(fit), tables, lists=lists)


def _lists(*lists: tuple[str, Sequence[str]]) -> list[tuple[str, Sequence[str]]]:
    """Those that say something."""
    return [(heading, sentences) for heading, sentences in lists if sentences]


def _residuals(fit: Regression) -> list[Figure]:
    """What shows whether the fit may be believed."""
    points = fit.points.drop_nulls("fitted")
    figures = [
        figure(
            "regression_residuals",
            residuals.residuals_against_fitted(points, fit.left),
            "What the regression leaves of each run's volume, against its fitted value: a funnel is scatter that "
            "grows, a bend a term that is missing.",
            [_SOURCE],
        )
    ]
    if points["studentized_residual"].count():
        caption = (
            "The same in standard errors, in order, against the quantiles of a normal distribution: normal residuals "
            "lie on the line. Runs that settle a coefficient alone are left out."
        )
        figures.append(figure("regression_quantiles", residuals.normal_quantiles(points), caption, [_SOURCE]))
    return figures


def _terms(fit: Regression) -> Table:
    """The joint test of each term."""
    found = next(table for table in layout.tables(fit) if table.title.startswith("Joint F-test"))
    numeric = [found.columns[place] for place in found.numeric]
    caption = f"{found.title}. GVIF^(1/(2 df)) is by how much other terms widen its intervals (1: not at all)."
    return Table(caption, found.columns, found.rows, numeric, [_SOURCE])


def _coefficients(fit: Regression) -> Table:
    columns = ("coefficient", "estimate", *layout.shown_errors(fit), "95% interval", "p-value", "unit")
    rows = [_coefficient_row(fit, coefficient) for coefficient in fit.coefficients]
    caption = (
        f"{fit.formula}, by ordinary least squares over {number(fit.rows, 'run')}: "
        f"R² {_r_squared(fit.r_squared)}, adjusted R² {_r_squared(fit.adj_r_squared)}, "
        f"{number(fit.df_resid or 0, 'residual degree')} of freedom. "
        f"Intervals and p-values are by {ERRORS[fit.errors]} standard errors."
    )
    return Table(caption, columns, rows, columns[1:6], [_SOURCE])


def _coefficient_row(fit: Regression, coefficient: Coefficient) -> tuple[str, ...]:
    factor, unit = fit.readable(coefficient)
    units = {"MB/MB": "MB a step for each MB of model", "MB": "MB a step", "bytes": "bytes a step for each 1 of it"}
    unit = units.get(unit, unit)
    interval = "–"
    if coefficient.ci_low is not None and coefficient.ci_high is not None:
        interval = f"{coefficient.ci_low * factor:.4g} to {coefficient.ci_high * factor:.4g}"
    p = coefficient.p_value
    p_text = "–" if p is None else "< 0.001" if p < 0.001 else f"{p:.3f}"
    name = re.sub(r"^C\((\w+)\)\[T\.(.*)\]$", r"\1 = \2", coefficient.name)
    errors = (getattr(coefficient, name) for name in layout.shown_errors(fit).values())
    shown = ("–" if error is None else f"{error * factor:.3g}" for error in errors)
    return name, f"{coefficient.estimate * factor:.4g}", *shown, interval, p_text, unit


def _r_squared(value: float | None) -> str:
    return "–" if value is None else f"{value:.6g}"
