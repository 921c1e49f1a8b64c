"""Regressions of a dataset: equation (1) of Zerwas et al. 2021, section VI, other presets, and the user's formulas.

Terms and columns that the rows do not determine are dropped and named with the reason: a constant column, levels that
always occur together, more coefficients than rows.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from ddnn_traces.errors import RegressionError
from ddnn_traces.regression import design, inference
from ddnn_traces.regression.design import MIN_RUNS, RUN, STEP, make_design, split_aliased
from ddnn_traces.regression.estimate import Estimate
from ddnn_traces.regression.formula import DEFAULT_FORMULA, INTERCEPT, Formula, in_logarithms, parse, terms_of
from ddnn_traces.regression.results import ERRORS, SIZES, Excluded, LogLog, OlsFit, Regression, TermVerdict
from ddnn_traces.regression.verdicts import fit_notes, not_estimable, row_notes, verdicts

if TYPE_CHECKING:
    from ddnn_traces.query.dataset import Dataset

_NETWORK = "delay_ms + bandwidth_mbit + loss_pct + C(batch_size) + C(model)"
_LOSS = "loss_pct"
#: Column of a query's rows with the reason why a row is not part of the preset's own formula; null where it is.
_REASON = "left_out_reason"
#: Logarithms beyond it overflow in exp().
_LARGEST_LOG = math.log(1e300)


@dataclass(frozen=True)
class Preset:
    """A regression with a name. run_query, step_query: the queries with a row a run, and with a row a run and step."""

    formula: str
    run_query: str
    step_query: str | None


PRESETS = {
    # the volume of a step, with the sentences of zerwas section VI
    "paper": Preset(DEFAULT_FORMULA, "run_step_volume", "step_volume_rows"),
    # duration of a step, and samples a second, on the conditions that cheng varies
    "step-time": Preset(f"step_ms ~ {_NETWORK}", "run_step_time", "step_time_rows"),
    "throughput": Preset(f"samples_per_s ~ {_NETWORK}", "run_step_time", "step_time_rows"),
    # duration compared with equal runs of other loss, zerwas fig. 10
    "duration-on-loss": Preset(f"np.log(comparable_s) ~ C(setting) + {_LOSS}", "run_relative_duration", None),
}
ROWS = ("runs", "steps")
BATCH = ("indicator", "number")
SIZE = ("exchanged", "nominal")


def regress(
    dataset: Dataset, formula: str | None = None, *, preset: str | None = None, rows: str = "runs",
    batch: str = "indicator", size: str = "exchanged", errors: str | None = None,
) -> Regression:  # fmt: skip
    """Fit a formula to the runs of a dataset, or to their steps.

    formula: in statsmodels' language; None: that of the preset, and equation (1) of zerwas without one. preset: a name
    of PRESETS, which also decides the rows. rows: runs or steps. batch, size: whether the batch size is an indicator or
    a number, and the model's size the exchanged or the nominal one; both only without `formula`. errors: classic
    (default for runs), hc3 or cluster (by run; default for steps).

    Raises RegressionError for an unknown name, and for a formula that cannot be used.
    """
    for option, value, known in (
        ("preset", preset, (None, *PRESETS)), ("rows", rows, ROWS), ("batch", batch, BATCH), ("size", size, SIZE),
    ):  # fmt: skip
        if value not in known:
            raise RegressionError(f"No {option} named {value}; there are: {', '.join(name for name in known if name)}")
    chosen = PRESETS[preset or "paper"]
    query = chosen.run_query if rows == "runs" else chosen.step_query
    if query is None:
        raise RegressionError(f"{preset} has a row a run only; leave out rows = {rows}")
    default = chosen.formula if batch == "indicator" else chosen.formula.replace("C(batch_size)", "batch_size")
    default = default if size == "exchanged" else re.sub(r"\bmodel_bytes\b", "nominal_bytes", default)
    if formula is not None and default != chosen.formula:
        raise RegressionError(f"batch and size change the default formula only; write them into yours: {default}")
    found = dataset.query(query)
    if formula is not None:
        return replace(fit(found, formula, errors, default), preset=preset)
    used, unused = _comparable(found)
    fitted = fit(used, None, errors, default)
    notes = (*fitted.notes, *_loss_notes(fitted, used))
    return replace(fitted, preset=preset, notes=notes, excluded=(*fitted.excluded, *unused))


def _comparable(rows: pl.DataFrame) -> tuple[pl.DataFrame, tuple[Excluded, ...]]:
    """The rows that the query does not leave out, and the others with its reason."""
    if _REASON not in rows.columns:
        return rows, ()
    unused = rows.drop_nulls(_REASON)
    excluded = tuple(Excluded(str(run), reason) for run, reason in unused.select(RUN, _REASON).iter_rows())
    return rows.filter(pl.col(_REASON).is_null()), excluded


def _loss_notes(fitted: Regression, rows: pl.DataFrame) -> list[str]:
    """The slope of a logarithm on loss as a factor."""
    slope = next((c for c in fitted.coefficients if c.name == _LOSS), None)
    if slope is None or fitted.left != "np.log(comparable_s)":
        return []
    low, high = slope.ci_low, slope.ci_high
    interval = f" [{_factor(low)}, {_factor(high)}]" if low is not None and high is not None else ""
    losses = [float(loss) for loss in rows[_LOSS].drop_nulls()]
    return [
        f"With 1% more of the packets lost a run takes {_factor(slope.estimate)}{interval} times as long as another of "
        f"its setting, where the logarithm of the duration is a line in loss; measured from {min(losses):g}% to "
        f"{max(losses):g}%."
    ]


def _factor(logarithm: float) -> str:
    return f"{math.exp(logarithm):.4g}" if abs(logarithm) < _LARGEST_LOG else "1e300" if logarithm > 0 else "1e-300"


# --- fits of given rows


def fit(
    rows: pl.DataFrame, formula: str | None = None, errors: str | None = None, default: str = DEFAULT_FORMULA
) -> Regression:
    """Fit a formula to `rows`, one row a run, or one a run and step where `rows` has a column step.

    formula: the user's. None: `default`, in which nominal_bytes replaces model_bytes where no usable row has the
    latter (Zerwas et al. 2021, section VI, equation 1). `rows` has run_id and the formula's columns, null where
    unknown, and may have source and model. Rows that lack a value are excluded and their runs named. errors: classic,
    hc3 or cluster; None: classic, and cluster where a row is a step.

    Raises RegressionError for a formula that names an unknown column, is not a formula, or cannot be evaluated.
    """
    grain, robust = ("step", "cluster") if STEP in rows.columns else ("run", "hc3")
    errors = errors or ("cluster" if grain == "step" else "classic")
    if errors not in ERRORS:
        raise RegressionError(f"No standard errors named {errors}; there are: {', '.join(ERRORS)}")
    clean = design.clean_numbers(rows)
    chosen, size_notes = sized(clean, default) if formula is None else (formula, [])
    parsed = parse(chosen, clean.columns)
    known, unknown = _without_unknown(parsed, clean)
    usable, excluded = design.usable_rows(clean, known)
    runs = usable[RUN].n_unique()
    if not parsed.left_names:
        outcome = OlsFit(notes=("Nothing is fitted: the left side of the formula names no column.",))
    elif runs < MIN_RUNS:
        few = f"Nothing is fitted: {runs} usable runs, and at least {MIN_RUNS} are needed."
        outcome = OlsFit(notes=(few,))
    else:
        outcome = ols(usable, known.text, errors, robust)
    size = next((name for name in SIZES if name in known.right_names), None)
    correlation = _correlation(usable, size, parsed)
    order = list(terms_of(parsed)) if unknown else []
    notes = [*size_notes, *outcome.notes]
    if outcome.coefficients:
        notes += row_notes(usable, parsed.left_names, parsed.names)
    if correlation is not None:
        name = "data a step" if parsed.left == "step_bytes" else parsed.left
        notes.append(f"correlation of model size with {name}: {correlation:.3f} over {usable.height} {grain}s")
    sources = usable.unique(RUN)["source"].to_list() if "source" in usable.columns else []
    terms = (*outcome.verdicts, *unknown)
    parts = vars(outcome) | {
        "verdicts": tuple(sorted(terms, key=lambda verdict: order.index(verdict.term))) if unknown else terms,
        "notes": tuple(notes),
    }
    logs = _log_log(usable, known, outcome.estimate, size, errors, robust)
    return Regression(
        **parts, formula=parsed.text, grain=grain, rows=usable.height, runs=runs,
        synthetic_runs=sources.count("synthetic"), correlation=correlation, size_column=size, log_log=logs,
        excluded=excluded, points=_points(usable, outcome, size),
    )  # fmt: skip


def ols(rows: pl.DataFrame, formula: str, errors: str = "classic", robust: str = "hc3") -> OlsFit:
    """Fit `formula` to rows that have `run_id` and no missing value in the formula's columns.

    Columns that are combinations of those before them, in formula order, are dropped and named in the term's verdict,
    and so are terms at the end for which there are too few rows. Raises RegressionError.
    """
    made = make_design(rows, parse(formula, rows.columns))
    if design.is_constant(made.response):
        return OlsFit(notes=(f"Nothing is fitted: every run has the same {made.formula.left}.",))
    constant = design.constant_terms(made, rows)
    crowded = design.crowded_terms(made, constant)
    dropped = constant | crowded
    columns = [c for c in made.columns if c.term not in dropped]
    kept, aliases = split_aliased(columns)
    if made.terms and {column.term for column in kept} <= {INTERCEPT}:
        nothing = tuple(not_estimable(term.name, dropped[term.name]) for term in made.terms)
        return OlsFit(verdicts=nothing, notes=("Nothing is fitted: no term of the formula can be estimated.",))
    estimate = Estimate(made.response, tuple(kept), tuple(str(run) for run in rows[RUN]))
    by_term = design.shares(columns)
    mixed = {carrier.name for alias in aliases for carrier in alias.carriers}
    coefficients = inference.coefficients_of(estimate, errors, robust, mixed)
    tests = inference.term_tests(estimate, by_term, errors)
    f_statistic, f_p_value = inference.whole_f(estimate)
    aic, bic = (None, None) if estimate.is_exact else estimate.information_criteria
    statistic, p_value = inference.breusch_pagan(estimate)
    fitted_terms = [term.name for term in made.terms if any(column.term == term.name for column in kept)]
    models = rows["model"].to_list() if "model" in rows.columns else None
    return OlsFit(
        coefficients=coefficients, tests=tests,
        verdicts=verdicts(estimate, made, rows, dropped, by_term, coefficients, tests, errors),
        notes=fit_notes(estimate, made, crowded, aliases, errors),
        errors=errors, robust=robust, clusters=len(estimate.rows_of), df_resid=estimate.df_resid,
        r_squared=float(estimate.result.rsquared), adj_r_squared=float(estimate.result.rsquared_adj),
        residual_std_error=None if estimate.is_exact else estimate.variance**0.5,
        f_statistic=f_statistic, f_p_value=f_p_value, aic=aic, bic=bic, condition_number=estimate.condition_number,
        breusch_pagan=statistic, breusch_pagan_p_value=p_value, influence=inference.influence(estimate),
        left_out=inference.left_out(estimate, models, made.formula),
        nested=inference.nested(estimate, made, fitted_terms, by_term),
        fitted=tuple(estimate.fitted.tolist()), estimate=estimate,
    )  # fmt: skip


def sized(rows: pl.DataFrame, formula: str) -> tuple[str, list[str]]:
    """The default formula for these rows, and a note where it has the nominal size.

    It has that where no row that is usable but for the size has the exchanged one.
    """
    exchanged, nominal = SIZES
    names = parse(formula, {*rows.columns, *SIZES}).names
    if exchanged not in names or not {exchanged, nominal} <= set(rows.columns):
        return formula, []
    usable, _ = design.split_missing(rows, names - {exchanged})
    if usable[exchanged].count() or not usable[nominal].count():
        return formula, []
    note = (
        "No run has the bytes that it exchanges (model_bytes): the nominal size is used instead (nominal_bytes), "
        "which is rounded and may count parameters that are not trained."
    )
    return formula.replace(exchanged, nominal), [note]


def _without_unknown(formula: Formula, rows: pl.DataFrame) -> tuple[Formula, list[TermVerdict]]:
    """The formula without terms of columns in which no row has a value, and the verdicts on those terms."""
    missing = {name for name in formula.right_names if rows.height and not rows[name].count()}
    if not missing:
        return formula, []
    terms = terms_of(formula)
    lost = {name: sorted(columns & missing) for name, columns in terms.items() if columns & missing}
    kept = [name for name in terms if name not in lost and name != INTERCEPT]
    right = " + ".join(["1" if INTERCEPT in terms else "0", *kept])
    unknown = [not_estimable(name, f"no run has {' or '.join(columns)}") for name, columns in lost.items()]
    return parse(f"{formula.left} ~ {right}", rows.columns), unknown


def _correlation(rows: pl.DataFrame, size: str | None, formula: Formula) -> float | None:
    """Pearson's correlation of model size with the left side, where that is a column (Zerwas section VI: 0.97)."""
    left = formula.left
    if size is None or left not in formula.left_names or not rows.schema[left].is_numeric():
        return None
    pairs = rows.select(size, left).to_numpy().astype(float)
    if len(pairs) < MIN_RUNS or any(design.is_constant(column) for column in pairs.T):
        return None
    return float(np.corrcoef(pairs.T)[0, 1])


def _log_log(
    rows: pl.DataFrame, formula: Formula, plain: Estimate | None, size: str | None, errors: str, robust: str
) -> LogLog | None:
    """The log-log alternative, where size and left side are positive and not logarithms already."""
    if plain is None or plain.is_exact or size is None or formula.left != "step_bytes":
        return None
    logarithmic = in_logarithms(formula, size)
    if logarithmic is None or not (rows[[formula.left, size]].min_horizontal() > 0).all():
        return None
    same = {column.term for column in plain.columns}
    made = make_design(rows, parse(logarithmic, rows.columns))
    columns = [c for c in made.columns if c.term in same or c.name == f"np.log({size})"]
    logs = Estimate(made.response, tuple(split_aliased(columns)[0]), plain.groups)
    if logs.is_exact or not any(c.name == f"np.log({size})" for c in logs.columns):
        return None
    return inference.log_log(logarithmic, size, plain, logs, errors, robust)


def _points(rows: pl.DataFrame, outcome: OlsFit, size: str | None) -> pl.DataFrame:
    estimate = outcome.estimate
    names = ("observed", "fitted", "residual", "studentized_residual", "leverage")
    given: dict[str, Any] = {name: [None] * rows.height for name in names}
    if estimate:
        studentized = inference.studentized_residuals(estimate)
        values = (estimate.response, estimate.fitted, estimate.residuals, studentized, estimate.leverage)
        given = dict(zip(names, values, strict=True))
    known = {"step_bytes": "step_bytes", "size_bytes": size}
    return rows.select(
        RUN,
        *([STEP] if STEP in rows.columns else []),
        *(pl.Series(name, values, dtype=pl.Float64) for name, values in given.items()),
        *(
            (pl.col(name) if name in rows.columns else pl.lit(None)).cast(pl.Float64).alias(as_name)
            for as_name, name in known.items()
        ),
    )
