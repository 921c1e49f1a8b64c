"""Zerwas section VI: the volume of a step against model size and other attributes of the runs."""

from __future__ import annotations

import polars as pl

from ddnn_traces.regression import ERRORS, Regression, words
from ddnn_traces.report.charts import regression as charts
from ddnn_traces.report.section import Chapter, Section, Source, Table
from ddnn_traces.report.words import number_of, percent
from ddnn_traces.text import counted

RUNS = 80  # of a chart with a row a run
_SOURCE = Source("run_step_volume")
_HOW_TO_FIT = (
    "The fit needs three or more runs with a training log (train_history.log next to the captures) and a run.toml with "
    "model_bytes, framework, batch_size and topology."
)

chapter = Chapter("volume-of-a-step", "Zerwas: the volume of a step")


@chapter.section("step-volume", "Volume of a step and model size (section VI)", _SOURCE)
def step_volume(section: Section, frame: pl.DataFrame) -> None:
    fit = section.results.fit
    attributes = frame.select("run_id", "framework_backend", "batch_size", "topology")
    reasons = sorted({run.reason for run in fit.excluded})
    why = f" ({'; '.join(reasons[:3])})" if reasons else ""
    shown = section.need(
        fit.points.drop_nulls(["step_bytes", "size_bytes"]).join(
            attributes, on="run_id", how="left", maintain_order="left"
        ),
        f"No run has both a volume for each step and a model size{why}. {_HOW_TO_FIT}",
    )
    ratio = shown["step_bytes"] / shown["size_bytes"]
    smallest, largest = (f"{number_of(value):.3g}" for value in (ratio.min(), ratio.max()))
    between = smallest if smallest == largest else f"between {smallest} and {largest}"
    slope = "".join(
        f"; {verdict.sentence.removeprefix('significant: ')}"
        for verdict in fit.verdicts
        if fit.size_column in (verdict.term, verdict.term.removeprefix("np.log(").removesuffix(")"))
    )
    section.headline = f"A step transmits {between} times the model's size{slope}. {fit.synthetic or ''}".rstrip()
    caption = "Mean volume of a training step against model size; a mark is a run."
    section.figure(charts.step_volume_fit, shown, caption)
    caption = "The same for each MB of model, which separates the runs."
    section.figure(charts.step_volume_runs, shown.head(RUNS), caption, of=shown)


@chapter.section("regression", "Attributes that explain the volume of a step (section VI)", _SOURCE)
def drivers(section: Section, _: pl.DataFrame) -> None:
    fit = section.results.fit
    excluded = [f"{run.run_id} is not in the fit: {run.reason}" for run in fit.excluded[:RUNS]]
    if len(fit.excluded) > RUNS:
        excluded.append(f"{counted(len(fit.excluded) - RUNS, 'further run')} not in the fit")
    notes = fit.notes
    if fit.coefficients:
        correlation = f"; model size alone correlates with {fit.correlation:.3f}" if fit.correlation else ""
        without_size = " No run declares the size of its model (model_bytes in a run.toml), so it is not among them."
        section.headline = (
            f"The attributes of the runs explain {percent(fit.r_squared or 0)} of the variance of the volume of a "
            f"step over {counted(fit.rows, 'run')}{correlation}.{'' if fit.size_column else without_size} "
            f"{fit.synthetic or ''}"
        ).rstrip()
        for chart, points, caption in residual_charts(fit):
            section.figure(chart, points, caption, others=[fit.left])
        section.tables = [_coefficients(fit), *([_terms(fit)] if fit.tests else [])]
    else:
        section.headline = " ".join(notes[:1]) or "Nothing is fitted."
        notes, excluded = notes[1:], [*excluded, _HOW_TO_FIT]
    verdicts = [f"{verdict.term}: {verdict.sentence}" for verdict in fit.verdicts]
    lists = (("Read first", notes), ("Terms", verdicts), ("Diagnostics", words.diagnosis(fit)), ("Left out", excluded))
    section.lists = [(heading, sentences) for heading, sentences in lists if sentences]


def residual_charts(fit: Regression) -> list[tuple[charts.OfResiduals, pl.DataFrame, str]]:
    """Charts of the residuals, each with the frame that it draws and a caption; none where nothing is fitted."""
    points = fit.points.drop_nulls("fitted")
    if points.is_empty():
        return []
    drawn = f" At most {charts.MOST:,} of {points.height:,} rows are drawn." if points.height > charts.MOST else ""
    caption = "Residuals against fitted values: a funnel is scatter that grows, a bend a term that is missing."
    found: list[tuple[charts.OfResiduals, pl.DataFrame, str]]
    found = [(charts.regression_residuals, points, caption + drawn)]
    if points["studentized_residual"].count():
        caption = (
            "Studentized residuals in order against the quantiles of a normal distribution: normal residuals lie on "
            "the line. Runs that determine a coefficient alone are left out."
        )
        found.append((charts.regression_quantiles, points, caption + drawn))
    return found


def _terms(fit: Regression) -> Table:
    """The joint test of each term."""
    found = words.term_table(fit)
    numeric = [found.columns[place] for place in found.numeric]
    caption = f"{found.title}. GVIF^(1/(2 df)) is by how much other terms widen its intervals (1: not at all)."
    return Table(caption, found.columns, found.rows, numeric, [_SOURCE])


def _coefficients(fit: Regression) -> Table:
    found = words.coefficient_table(fit, verbose=True)
    caption = (
        f"{fit.formula}, by ordinary least squares over {counted(fit.rows, 'run')}: R² {_r_squared(fit.r_squared)}, "
        f"adjusted R² {_r_squared(fit.adj_r_squared)}, {counted(fit.df_resid or 0, 'residual degree')} of freedom. "
        f"Intervals and p-values are by {ERRORS[fit.errors]} standard errors."
    )
    return Table(caption, found.columns, found.rows, [found.columns[place] for place in found.numeric], [_SOURCE])


def _r_squared(value: float | None) -> str:
    return "–" if value is None else f"{value:.6g}"
