"""What drives the data of a training step: equation (1) of Zerwas et al. 2021, section VI, fitted by OLS.

One row is a run. Whatever the runs cannot tell is left out and named, with the reason: a constant column, levels
that always occur together, more coefficients than runs.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ddnn_traces.errors import RegressionError
from ddnn_traces.regression.aliasing import (
    alias_sentence,
    constant_terms,
    crowded_terms,
    resting_on_one_run,
    split_aliased,
)
from ddnn_traces.regression.design import INTERCEPT, is_constant, make_design
from ddnn_traces.regression.estimate import estimate
from ddnn_traces.regression.formula import DEFAULT_FORMULA, parse
from ddnn_traces.regression.results import OlsFit, Regression, TermVerdict
from ddnn_traces.regression.rows import split_missing, with_model_size
from ddnn_traces.regression.verdicts import fit_notes, verdict

if TYPE_CHECKING:
    import polars as pl

MIN_RUNS = 3


def fit(rows: pl.DataFrame, formula: str = DEFAULT_FORMULA) -> Regression:
    """Fit `formula` to `rows`, one row a run (Zerwas et al. 2021, section VI, equation 1).

    `rows` has run_id, step_bytes (mean wire bytes of a training step), model_bytes, model_size_mb,
    framework_backend, batch_size and topology, null where unknown; the formula may use any further column too, and
    `model_size` [bytes], which is made here. Runs that lack a value are excluded and named.

    Raises RegressionError for a formula that names no column, is more than a formula, or cannot be evaluated.
    """
    parsed = parse(formula, {*rows.columns, "model_size"})
    if parsed.left_names != {"step_bytes"}:
        raise RegressionError(f"The left side of the formula must be step_bytes or a function of it: {formula}")
    sized, source = with_model_size(rows, parsed.names - {"model_size"})
    usable, excluded = split_missing(sized, parsed.names, source)
    obstacle = _obstacle(usable)
    outcome = OlsFit(notes=(obstacle,)) if obstacle else ols(usable, formula)
    correlation, sentences = _correlation(usable)
    return Regression(
        formula=formula,
        rows=usable.height,
        r_squared=outcome.r_squared,
        adj_r_squared=outcome.adj_r_squared,
        df_resid=outcome.df_resid,
        coefficients=outcome.coefficients,
        verdicts=outcome.verdicts,
        correlation=correlation,
        model_size_source=source,
        excluded=excluded,
        notes=(*outcome.notes, *sentences),
        fitted=_fitted_frame(usable, outcome),
    )


def ols(frame: pl.DataFrame, formula: str) -> OlsFit:
    """Fit `formula` to a frame that has `run_id` and no missing value in the formula's columns.

    Columns that the rows cannot tell apart from those before them, in formula order, are dropped and named in the
    term's verdict, and so are terms at the end for which there are too few rows. Raises RegressionError.
    """
    design = make_design(frame, parse(formula, frame.columns))
    if is_constant(design.response):
        return OlsFit(notes=(f"Nothing is fitted: every run has the same {design.left}.",))
    constant = constant_terms(design, frame)
    crowded = crowded_terms(design, constant)
    kept, aliases = split_aliased([c for c in design.columns if c.term not in {*constant, *crowded}])
    aliased = {
        term.name: "; ".join(alias_sentence(a, design, frame) for a in aliases if a.column.term == term.name)
        for term in design.terms
    }
    fitted_terms = {column.term for column in kept} - {INTERCEPT}
    lost = {
        name: TermVerdict(name, False, None, f"cannot be estimated: {reason}")
        for name, reason in {**aliased, **constant, **crowded}.items()
        if name not in fitted_terms
    }
    if not fitted_terms:
        note = "Nothing is fitted: no term of the formula can be estimated."
        return OlsFit(verdicts=tuple(lost.values()), notes=(note,))

    estimated = estimate(design.response, kept)
    verdicts = tuple(
        lost.get(term.name) or verdict(term, design, estimated.coefficients, aliased[term.name])
        for term in design.terms
    )
    resting = resting_on_one_run(kept, frame["run_id"].to_list())
    notes = (*fit_notes(design, crowded, aliases), *estimated.notes, *resting)
    return replace(estimated, verdicts=verdicts, notes=notes)


def _obstacle(rows: pl.DataFrame) -> str | None:
    """Why nothing can be fitted to `rows` at all, as a sentence; None where something can."""
    if rows.height < MIN_RUNS:
        return f"Nothing is fitted: {rows.height} usable runs, and at least {MIN_RUNS} are needed."
    return None


def _correlation(rows: pl.DataFrame) -> tuple[float | None, list[str]]:
    """Pearson's correlation of model size with data a step (Zerwas section VI: 0.97), and its sentence."""
    import numpy as np

    pairs = rows.select("model_size", "step_bytes").drop_nulls().to_numpy()
    if len(pairs) < MIN_RUNS or any(is_constant(column) for column in pairs.T):
        return None, []
    value = float(np.corrcoef(pairs.T)[0, 1])
    return value, [f"correlation of model size with data a step: {value:.3f} over {len(pairs)} runs"]


def _fitted_frame(rows: pl.DataFrame, outcome: OlsFit) -> pl.DataFrame:
    import polars as pl

    values = pl.Series("fitted", outcome.fitted or [None] * rows.height, dtype=pl.Float64)
    return rows.select("run_id", "step_bytes", "model_size", values)
