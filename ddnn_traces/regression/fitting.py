"""What drives the data of a training step: equation (1) of Zerwas et al. 2021, section VI, fitted by OLS.

Whatever the rows cannot tell is left out and named, with the reason: a constant column, levels that always occur
together, more coefficients than rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ddnn_traces.errors import RegressionError
from ddnn_traces.regression.aliasing import Share, alias_sentence, constant_terms, crowded_terms, shares, split_aliased
from ddnn_traces.regression.compare import log_formula, log_log, nested
from ddnn_traces.regression.design import INTERCEPT, Design, is_constant, make_design, split_infinite, terms_of
from ddnn_traces.regression.diagnostics import breusch_pagan, influence, left_out, studentized_residuals
from ddnn_traces.regression.estimate import Estimate, resting_on_one_run
from ddnn_traces.regression.formula import DEFAULT_FORMULA, Formula, parse
from ddnn_traces.regression.inference import cluster_notes, coefficients_of, runs_settling, term_tests, whole_f
from ddnn_traces.regression.outcome import OlsFit, Regression
from ddnn_traces.regression.results import ERRORS, Coefficient, LogLog, TermTest, TermVerdict
from ddnn_traces.regression.rows import RUN, STEP, clean_numbers, split_missing
from ddnn_traces.regression.verdicts import SIZES, Judged, fit_notes, unheard_notes, verdict, zero_notes

if TYPE_CHECKING:
    import polars as pl

MIN_RUNS = 3


def fit(
    rows: pl.DataFrame, formula: str | None = None, errors: str | None = None, default: str = DEFAULT_FORMULA
) -> Regression:
    """Fit a formula to `rows`, one row a run, or one a run and step where `rows` has a column step.

    formula: the user's. None: `default`, in which nominal_bytes takes the place of model_bytes where no usable row has
    the latter (Zerwas et al. 2021, section VI, equation 1). `rows` has run_id and the formula's columns, null where
    unknown, and may have source and model. Rows that lack a value are excluded and their runs named. errors: classic,
    hc3 or cluster; None: classic, and cluster where a row is a step.

    Raises RegressionError for a formula that names no column, is more than a formula, or cannot be evaluated.
    """
    grain = "step" if STEP in rows.columns else "run"
    errors = errors or ("cluster" if grain == "step" else "classic")
    if errors not in ERRORS:
        raise RegressionError(f"No standard errors named {errors}; there are: {', '.join(ERRORS)}")
    clean = clean_numbers(rows)
    chosen, size_notes = sized(clean, default) if formula is None else (formula, [])
    parsed = parse(chosen, clean.columns)
    known, unknown = _without_unknown(parsed, clean)
    complete, excluded = split_missing(clean, known.names)
    usable, infinite = split_infinite(complete, known)
    obstacle = _obstacle(usable, parsed.left_names)
    robust = "cluster" if grain == "step" else "hc3"
    outcome = OlsFit(notes=(obstacle,)) if obstacle else ols(usable, known.text, errors, robust)
    size = next((name for name in SIZES if name in known.right_names), None)
    left = parsed.left if parsed.left in parsed.left_names else None
    correlation, sentences = _correlation(usable, size, left)
    verdicts = outcome.verdicts
    if unknown:
        order = list(terms_of(parsed))
        verdicts = tuple(sorted((*verdicts, *unknown), key=lambda verdict: order.index(verdict.term)))
    unheard = [*zero_notes(usable, parsed.left_names), *unheard_notes(usable, parsed.names)]
    unheard = unheard if outcome.coefficients else []
    parts = vars(outcome) | {"verdicts": verdicts, "notes": (*size_notes, *outcome.notes, *unheard, *sentences)}
    sources = usable.unique(RUN)["source"].to_list() if "source" in usable.columns else []
    return Regression(
        **parts,
        formula=parsed.text,
        grain=grain,
        rows=usable.height,
        runs=usable[RUN].n_unique(),
        synthetic_runs=sources.count("synthetic"),
        correlation=correlation,
        size_column=size,
        log_log=_log_log(usable, outcome, left, size, errors, robust),
        excluded=(*excluded, *infinite),
        points=_points(usable, outcome, size),
    )


def ols(frame: pl.DataFrame, formula: str, errors: str = "classic", robust: str = "hc3") -> OlsFit:
    """Fit `formula` to a frame that has `run_id` and no missing value in the formula's columns.

    Columns that the rows cannot tell apart from those before them, in formula order, are dropped and named in the
    term's verdict, and so are terms at the end for which there are too few rows. Raises RegressionError.
    """
    design = make_design(frame, parse(formula, frame.columns))
    if is_constant(design.response):
        return OlsFit(notes=(f"Nothing is fitted: every run has the same {design.left}.",))
    constant = constant_terms(design, frame)
    crowded = crowded_terms(design, constant)
    columns = [c for c in design.columns if c.term not in {*constant, *crowded}]
    kept, aliases = split_aliased(columns)
    lost = {name: f"cannot be estimated: {reason}" for name, reason in {**constant, **crowded}.items()}
    if design.terms and {column.term for column in kept} <= {INTERCEPT}:
        nothing = tuple(TermVerdict(term.name, False, None, lost[term.name]) for term in design.terms)
        note = "Nothing is fitted: no term of the formula can be estimated."
        return OlsFit(verdicts=nothing, notes=(note,))
    estimate = Estimate(design.response, tuple(kept), tuple(str(run) for run in frame[RUN]))
    beside = shares(columns)
    mixed = {carrier.name for alias in aliases for carrier in alias.carriers}
    coefficients = coefficients_of(estimate, errors, robust, mixed)
    tests = term_tests(estimate, beside, errors)
    verdicts = _verdicts(estimate, design, frame, lost, beside, coefficients, tests, errors)
    models = frame["model"].to_list() if "model" in frame.columns else None
    f_statistic, f_p_value = whole_f(estimate)
    aic, bic = (None, None) if estimate.is_exact else estimate.information_criteria
    statistic, p_value = breusch_pagan(estimate)
    terms = [term.name for term in design.terms if any(column.term == term.name for column in kept)]
    return OlsFit(
        coefficients=coefficients,
        tests=tests,
        verdicts=verdicts,
        notes=(*fit_notes(design, crowded, aliases), *_estimate_notes(estimate, errors)),
        errors=errors,
        robust=robust,
        clusters=len(estimate.rows_of),
        r_squared=float(estimate.result.rsquared),
        adj_r_squared=float(estimate.result.rsquared_adj),
        df_resid=estimate.df_resid,
        residual_std_error=None if estimate.is_exact else estimate.variance**0.5,
        f_statistic=f_statistic,
        f_p_value=f_p_value,
        aic=aic,
        bic=bic,
        condition_number=estimate.condition_number,
        breusch_pagan=statistic,
        breusch_pagan_p_value=p_value,
        influence=influence(estimate),
        left_out=left_out(estimate, models, design.left, left_column(design.formula)),
        nested=nested(estimate, design, terms, beside),
        fitted=tuple(estimate.fitted.tolist()),
        estimate=estimate,
        design=design,
    )


def left_column(formula: Formula) -> str | None:
    """The only column on the left side; None where there are several."""
    return next(iter(formula.left_names)) if len(formula.left_names) == 1 else None


def _verdicts(
    estimate: Estimate,
    design: Design,
    frame: pl.DataFrame,
    lost: Mapping[str, str],
    beside: Mapping[str, Share],
    coefficients: Sequence[Coefficient],
    tests: Sequence[TermTest],
    errors: str,
) -> tuple[TermVerdict, ...]:
    """On every term of the design. lost: why some have nothing to estimate, in words."""
    by_term = {test.term: test for test in tests}
    found = []
    for term in design.terms:
        if term.name in lost:
            found.append(TermVerdict(term.name, False, None, lost[term.name]))
            continue
        share = beside[term.name]
        aliased = "; ".join(alias_sentence(alias, design, frame) for alias in share.aliases)
        if not share.df:
            found.append(TermVerdict(term.name, False, None, f"cannot be estimated: {aliased}"))
            continue
        own = [c for c in coefficients if c.term == term.name]
        judged = Judged(
            term, own, by_term[term.name], share, aliased, estimate.is_exact, errors, runs_settling(estimate, share)
        )
        found.append(verdict(judged, design))
    return tuple(found)


def _estimate_notes(estimate: Estimate, errors: str) -> list[str]:
    notes = []
    if estimate.is_exact:
        notes.append("Every row lies on the fit to within rounding: there is no scatter to test an estimate against.")
    if not estimate.result.k_constant:
        notes.append("Without an intercept R² is the share of the squares about 0, not about the mean.")
    return [*notes, *cluster_notes(estimate, errors), *resting_on_one_run(estimate)]


def _without_unknown(formula: Formula, rows: pl.DataFrame) -> tuple[Formula, list[TermVerdict]]:
    """The formula without terms of columns that no row has a value of, and what to say of them."""
    missing = {name for name in formula.right_names if rows.height and not rows[name].count()}
    if not missing:
        return formula, []
    terms = terms_of(formula)
    lost = {name: sorted(columns & missing) for name, columns in terms.items() if columns & missing}
    kept = [name for name in terms if name not in lost and name != INTERCEPT]
    right = " + ".join(["1" if INTERCEPT in terms else "0", *kept])
    verdicts = [
        TermVerdict(name, False, None, f"cannot be estimated: no run has {' or '.join(columns)}")
        for name, columns in lost.items()
    ]
    return parse(f"{formula.left} ~ {right}", rows.columns), verdicts


def sized(rows: pl.DataFrame, formula: str) -> tuple[str, list[str]]:
    """The default formula, on the nominal size where no row that is usable but for the size has the exchanged one."""
    exchanged, nominal = SIZES
    names = parse(formula, {*rows.columns, *SIZES}).names
    if exchanged not in names or not {exchanged, nominal} <= set(rows.columns):
        return formula, []
    usable, _ = split_missing(rows, names - {exchanged})
    if usable[exchanged].count() or not usable[nominal].count():
        return formula, []
    note = (
        "No run tells the bytes that it exchanges (model_bytes): the nominal size is used instead (nominal_bytes), "
        "which is rounded and may count parameters that are not trained."
    )
    return formula.replace(exchanged, nominal), [note]


def _obstacle(rows: pl.DataFrame, left_names: frozenset[str]) -> str | None:
    """Why nothing can be fitted to `rows` at all, as a sentence; None where something can."""
    if not left_names:
        return "Nothing is fitted: the left side of the formula names no column."
    runs = rows[RUN].n_unique()
    if runs < MIN_RUNS:
        return f"Nothing is fitted: {runs} usable runs, and at least {MIN_RUNS} are needed."
    return None


def _correlation(rows: pl.DataFrame, size: str | None, left: str | None) -> tuple[float | None, list[str]]:
    """Pearson's correlation of model size with the left side (Zerwas section VI: 0.97), and its sentence."""
    import numpy as np

    if size is None or left is None or not rows.schema[left].is_numeric():
        return None, []
    pairs = rows.select(size, left).to_numpy().astype(float)
    if len(pairs) < MIN_RUNS or any(is_constant(column) for column in pairs.T):
        return None, []
    value = float(np.corrcoef(pairs.T)[0, 1])
    name = "data a step" if left == "step_bytes" else left
    unit = "steps" if STEP in rows.columns else "runs"
    return value, [f"correlation of model size with {name}: {value:.3f} over {len(pairs)} {unit}"]


def _log_log(
    rows: pl.DataFrame, outcome: OlsFit, left: str | None, size: str | None, errors: str, robust: str
) -> LogLog | None:
    """The log-log alternative, where size and left side are positive and not logarithms already."""
    if left != "step_bytes" or size is None or outcome.estimate is None or outcome.estimate.is_exact:
        return None
    assert outcome.design is not None
    formula = log_formula(outcome.design.formula.text, left, size)
    if formula is None or not (rows[[left, size]].min_horizontal() > 0).all():
        return None
    design = make_design(rows, parse(formula, rows.columns))
    same = {column.term for column in outcome.estimate.columns}
    columns = [c for c in design.columns if c.term in same or c.name == f"np.log({size})"]
    logs = Estimate(design.response, tuple(split_aliased(columns)[0]), outcome.estimate.groups)
    if logs.is_exact or not any(c.name == f"np.log({size})" for c in logs.columns):
        return None
    return log_log(formula, size, outcome.estimate, logs, errors, robust)


def _points(rows: pl.DataFrame, outcome: OlsFit, size: str | None) -> pl.DataFrame:
    import polars as pl

    estimate = outcome.estimate
    empty = [None] * rows.height
    given = {
        "observed": estimate.response.tolist() if estimate else empty,
        "fitted": list(outcome.fitted or empty),
        "residual": estimate.residuals.tolist() if estimate else empty,
        "studentized_residual": studentized_residuals(estimate) if estimate else empty,
        "leverage": estimate.leverage.tolist() if estimate else empty,
    }
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
