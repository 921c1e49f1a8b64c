"""Regressions of a dataset: the default formula, presets, and the user's formulas.

The default formula is of what a worker sends in a step, or of the logarithm of the step's volume, with that of workers.
An all-reduce of S bytes among N workers sends 2(N-1)S in all, by a ring, tree, star or halving and doubling. Of one
worker that is 2(N-1)/N S, nearly the same for any N: a line in S. The volume itself is a product of S, of a factor of N
and of those of the other attributes: its logarithm is their sum. The one with the lower AIC, both in terms of the
step's bytes (Box and Cox 1964), is fitted; docs/regression.md derives them.

Terms and columns that the rows do not determine are dropped and named with the reason: a constant column, levels that
always occur together, more coefficients than rows.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from ddnn_traces.errors import RegressionError
from ddnn_traces.regression import design, documents, inference, robustness
from ddnn_traces.regression.design import MIN_RUNS, RUN, STEP, make_design, split_aliased
from ddnn_traces.regression.estimate import Estimate, Vector
from ddnn_traces.regression.formula import INTERCEPT, PAPER_FORMULA, Formula, in_logarithms, inverse, parse, terms_of
from ddnn_traces.regression.results import (
    ALPHA,
    ERRORS,
    LARGEST_LOG,
    SIZES,
    VOLUMES,
    Excluded,
    LogLog,
    OlsFit,
    Refit,
    Regression,
    TermVerdict,
    first_names,
    generated,
    p_text,
)
from ddnn_traces.regression.verdicts import fit_notes, not_estimable, row_notes, single_runs, verdicts

if TYPE_CHECKING:
    from ddnn_traces.query.dataset import Dataset

_OTHERS = "C(framework_backend) + C(batch_size) + C(topology)"
_WORKERS = " + np.log(workers)"
PER_WORKER = f"worker_bytes ~ model_bytes + {_OTHERS}"
LOGARITHMS = f"np.log(step_bytes) ~ np.log(model_bytes){_WORKERS} + {_OTHERS}"
FORMS = (PER_WORKER, LOGARITHMS)
#: Residual degrees of freedom below which AIC does not compare forms.
_MIN_DF = 3
_NETWORK = "delay_ms + bandwidth_mbit + loss_pct + C(batch_size) + C(model)"
_LOSS = "loss_pct"
#: Column of a query's rows with the reason why a row is not part of the preset's own formula; null where it is.
_REASON = "left_out_reason"


@dataclass(frozen=True)
class Preset:
    """A regression with a name. run_query, step_query: the queries with a row a run, and with a row a run and step.

    forms: its formula, or several of which the data choose one (default_formula).
    """

    forms: tuple[str, ...]
    run_query: str
    step_query: str | None


_DEFAULT = Preset(FORMS, "run_step_volume", "step_volume_rows")
PRESETS = {
    # the volume of a step, with the sentences of zerwas section VI
    "paper": Preset((PAPER_FORMULA,), "run_step_volume", "step_volume_rows"),
    # duration of a step, and samples a second, on the conditions that cheng varies
    "step-time": Preset((f"step_ms ~ {_NETWORK}",), "run_step_time", "step_time_rows"),
    "throughput": Preset((f"samples_per_s ~ {_NETWORK}",), "run_step_time", "step_time_rows"),
    # duration compared with equal runs of other loss, zerwas fig. 10
    "duration-on-loss": Preset((f"np.log(comparable_s) ~ C(setting) + {_LOSS}",), "run_relative_duration", None),
}
ROWS = ("runs", "steps")
BATCH = ("indicator", "number")
SIZE = ("exchanged", "nominal")
#: Bytes that a step's volume counts, the first by default: segmentation offload hides headers from the captured ones.
RESPONSES = ("cable", "wire", "payload")


def regress(
    dataset: Dataset, formula: str | None = None, *, preset: str | None = None, rows: str = "runs",
    batch: str = "indicator", size: str = "exchanged", errors: str | None = None, response: str = RESPONSES[0],
) -> Regression:  # fmt: skip
    """Fit a formula to the runs of a dataset, or to their steps.

    formula: in statsmodels' language; None: that of the preset, and default_formula without one. preset: a name of
    PRESETS, which also decides the rows. rows: runs or steps. batch, size: whether the batch size is an indicator or a
    number, and the model's size the exchanged or the nominal one; both only without `formula`. errors: classic, scaled,
    hc3 or cluster (by run); None: by the rule of `ols`, cluster for steps. response: the bytes of a step's volume:
    those on the cable, as captured (wire), or payload.

    Raises RegressionError for an unknown name, and for a formula that cannot be used.
    """
    for option, value, known in (
        ("preset", preset, (None, *PRESETS)), ("rows", rows, ROWS), ("batch", batch, BATCH), ("size", size, SIZE),
        ("response", response, RESPONSES),
    ):  # fmt: skip
        if value not in known:
            raise RegressionError(f"No {option} named {value}; there are: {', '.join(name for name in known if name)}")
    chosen = _DEFAULT if preset is None else PRESETS[preset]
    query = chosen.run_query if rows == "runs" else chosen.step_query
    if query is None:
        raise RegressionError(f"{preset} has a row a run only; leave out rows = {rows}")
    forms = tuple(_variant(form, batch, size) for form in chosen.forms)
    if formula is not None and forms != chosen.forms:
        raise RegressionError(f"batch and size change the default formula only; write them into yours: {forms[0]}")
    is_volume = query in (_DEFAULT.run_query, _DEFAULT.step_query)
    found = dataset.query(query, **({"response": response} if is_volume else {}))
    if formula is not None:
        fitted = fit(found, formula, errors)
    else:
        used, unused = _comparable(found)
        fitted = fit(used, None, errors, forms)
        fitted = replace(
            fitted, notes=(*fitted.notes, *_loss_notes(fitted, used)), excluded=(*fitted.excluded, *unused)
        )
    notes = (*_response_notes(found, fitted, response), *fitted.notes) if is_volume else fitted.notes
    return replace(fitted, preset=preset, notes=(*_capture_notes(dataset, fitted), *notes))


def _variant(form: str, batch: str, size: str) -> str:
    """The form with the batch size as a number, or with the nominal size."""
    form = form if batch == "indicator" else form.replace("C(batch_size)", "batch_size")
    return form if size == "exchanged" else re.sub(r"\bmodel_bytes\b", "nominal_bytes", form)


def _response_notes(rows: pl.DataFrame, fitted: Regression, response: str) -> list[str]:
    """What the volume counts, where that is not the default or not known of all runs."""
    if not any(name in fitted.formula for name in VOLUMES):
        return []
    used = rows.filter(pl.col(RUN).is_in(fitted.points[RUN].to_list()))
    mixed = used["offload"].drop_nulls().n_unique() > 1
    if response == "wire" and mixed:
        runs = used.filter(pl.col("offload"))[RUN].n_unique()
        return [
            f"{runs} of {used[RUN].n_unique()} runs were captured with segmentation offload: wire bytes lack the "
            "headers of their super-frames, about 4% of full segments, so that offload passes for an effect of what "
            "goes with it. Cable bytes (the default response) do not."
        ]
    lost = rows.filter(pl.col("step_bytes").is_null() & pl.col("offload").is_null())[RUN].unique().sort().to_list()
    if response == "cable" and lost:
        return [
            f"Bytes on the cable are not known of {first_names(lost)}: their flows are missing, or super-frames were "
            "captured and the MSS of their connections was not. The response wire or payload has what was captured."
        ]
    return []


def _capture_notes(dataset: Dataset, fitted: Regression) -> list[str]:
    """The runs in the fit of which the captures lost more than 0.1% (run_capture_loss), with how much."""
    if not fitted.points.height:
        return []
    losses = dataset.query("run_capture_loss").filter(
        pl.col("flagged") & pl.col(RUN).is_in(fitted.points[RUN].to_list())
    )
    if losses.is_empty():
        return []
    named = [
        f"{run} ({', '.join(_percentages(lost, dropped))})"
        for run, lost, dropped in losses.select(RUN, "percent_lost", "percent_dropped").iter_rows()
    ]
    return [
        f"The captures of {losses.height} of the runs lost more than 0.1%, so that their volumes are too low: "
        f"{first_names(named)}."
    ]


def _percentages(lost: float | None, dropped: float | None) -> list[str]:
    parts = [f"{lost:.3g}% of the bytes by their sequence numbers"] if lost else []
    return parts + ([f"{dropped:.3g}% of the packets by the capture's counters"] if dropped else [])


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
    return f"{math.exp(logarithm):.4g}" if abs(logarithm) < LARGEST_LOG else "1e300" if logarithm > 0 else "1e-300"


# --- fits of given rows


def fit(
    rows: pl.DataFrame, formula: str | None = None, errors: str | None = None, forms: Sequence[str] = FORMS
) -> Regression:
    """Fit a formula to `rows`, one row a run, or one a run and step where `rows` has a column step.

    formula: the user's. None: the one of `forms` that default_formula chooses. `rows` has run_id and the formula's
    columns, null where unknown, and may have source, model, and other attributes of runs: the fit is repeated with
    each in which the runs differ (robustness). Rows that lack a value are excluded and their runs named. errors:
    classic, scaled, hc3 or cluster. None: cluster where a row is a step, else by the rule of `ols`.

    Raises RegressionError for a formula that names an unknown column, is not a formula, or cannot be evaluated.
    """
    grain, robust = ("step", "cluster") if STEP in rows.columns else ("run", "hc3")
    chosen_errors = errors or ("cluster" if grain == "step" else None)
    if errors not in (None, *ERRORS):
        raise RegressionError(f"No standard errors named {errors}; there are: {', '.join(ERRORS)}")
    clean = design.clean_numbers(rows)
    chosen, form_notes = default_formula(clean, forms) if formula is None else (formula, [])
    parsed = parse(chosen, clean.columns)
    known, unknown = _without_unknown(parsed, clean)
    usable, excluded = design.usable_rows(clean, known)
    runs = usable[RUN].n_unique()
    found: tuple[Refit, ...] = ()
    if not parsed.left_names:
        outcome = OlsFit(notes=("Nothing is fitted: the left side of the formula names no column.",))
    elif runs < MIN_RUNS:
        few = f"Nothing is fitted: {runs} usable runs, and at least {MIN_RUNS} are needed."
        outcome = OlsFit(notes=(few,))
    else:
        outcome, found = _with_refits(usable, known, chosen_errors, robust)
    size = next((name for name in SIZES if name in known.right_names), None)
    correlation = _correlation(usable, size, parsed)
    order = list(terms_of(parsed)) if unknown else []
    notes = [*outcome.notes, *form_notes]  # why nothing is fitted
    if outcome.coefficients:
        missing = sorted(parsed.right_names - known.right_names)
        if missing:
            form_notes.append(f"No run has {', '.join(missing)}: the estimates include the effect of it.")
        notes = [*form_notes, *robustness.notes(found), *outcome.notes, *row_notes(usable, parsed.left_names)]
    sources = usable.unique(RUN)["source"].to_list() if "source" in usable.columns else []
    terms = (*outcome.verdicts, *unknown)
    parts = vars(outcome) | {
        "verdicts": tuple(sorted(terms, key=lambda verdict: order.index(verdict.term))) if unknown else terms,
        "notes": tuple(notes),
    }
    logs = _log_log(usable, known, outcome.estimate, size, outcome.errors, robust)
    return Regression(
        **parts, formula=parsed.text, grain=grain, rows=usable.height, runs=runs,
        synthetic_runs=generated(sources), correlation=correlation, size_column=size, log_log=logs,
        excluded=excluded, refits=found, points=_points(usable, outcome, size, parsed),
        _text=documents.text,
    )  # fmt: skip


def _with_refits(
    rows: pl.DataFrame, formula: Formula, errors: str | None, robust: str
) -> tuple[OlsFit, tuple[Refit, ...]]:
    """The fit, its conclusions limited to those that no refit with another attribute changes, and the refits."""
    first = ols(rows, formula.text, errors, robust)
    found: tuple[Refit, ...] = ()
    if first.coefficients:
        powers = (first.scatter_power,)  # the scatter is that of the same rows
        found = robustness.refits(
            rows, formula, first, lambda some, text: ols(some, text, first.errors, robust, powers=powers)
        )
    unsettled = robustness.depends_on(found)
    return (ols(rows, formula.text, errors, robust, unsettled) if unsettled else first), found


def ols(
    rows: pl.DataFrame, formula: str, errors: str | None = "classic", robust: str = "hc3",
    unsettled: Mapping[str, tuple[str, ...]] = MappingProxyType({}), powers: Sequence[float] = design.POWERS,
) -> OlsFit:  # fmt: skip
    """Fit `formula` to rows that have `run_id` and no missing value in the formula's columns.

    errors: None: scaled where the scatter grows with the model's size (design.scatter_power), else `robust` where the
    Breusch-Pagan test finds that it changes with the terms, else classic.
    unsettled: of terms and coefficients, the attributes on which their conclusions depend (robustness). powers: of the
    model's size, with which the scatter may grow.

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
        note = "Nothing is fitted: no term of the formula can be estimated."
        return OlsFit(verdicts=nothing, crowded=tuple(crowded), notes=(note,))
    power, deviations = design.scatter_power(made.response, kept, rows, made.formula, powers)
    estimate = Estimate(made.response, tuple(kept), tuple(str(run) for run in rows[RUN]), deviations)
    statistic, p_value = inference.breusch_pagan(estimate)
    notes = []
    if errors is None and power and not estimate.is_exact:
        errors = "scaled"
        notes.append(
            f"Intervals and p take the scatter as growing with the model's size to the power of {power:g} (size-scaled "
            "errors), which has the largest restricted likelihood of 0, 0.5 and 1."
        )
    elif errors is None:
        errors = "classic"
        if p_value is not None and p_value < ALPHA:
            errors = robust
            notes.append(
                f"Intervals and p are by {ERRORS[errors]} errors, since the scatter changes with the terms "
                f"(Breusch-Pagan, {p_text(p_value)})."
            )
    by_term = design.shares(columns)
    mixed = {carrier.name for alias in aliases for carrier in alias.carriers}
    coefficients = inference.coefficients_of(estimate, errors, robust, mixed)
    coefficients = tuple(replace(c, depends_on=unsettled.get(c.name, ())) for c in coefficients)
    tests = inference.term_tests(estimate, by_term, errors)
    f_statistic, f_p_value = inference.whole_f(estimate)
    aic, bic = (None, None) if estimate.is_exact else estimate.information_criteria
    fitted_terms = [term.name for term in made.terms if any(column.term == term.name for column in kept)]
    models = rows["model"].to_list() if "model" in rows.columns else None
    return OlsFit(
        coefficients=coefficients, tests=tests,
        verdicts=verdicts(estimate, made, rows, dropped, by_term, coefficients, tests, errors, unsettled),
        crowded=tuple(crowded), notes=(*notes, *fit_notes(estimate, made, crowded, aliases, errors)),
        errors=errors, robust=robust, scatter_power=power, clusters=len(estimate.rows_of), df_resid=estimate.df_resid,
        r_squared=float(estimate.result.rsquared), adj_r_squared=float(estimate.result.rsquared_adj),
        residual_std_error=None if estimate.is_exact else estimate.variance**0.5,
        f_statistic=f_statistic, f_p_value=f_p_value, aic=aic, bic=bic, condition_number=estimate.condition_number,
        breusch_pagan=statistic, breusch_pagan_p_value=p_value, influence=inference.influence(estimate),
        single_runs=single_runs(estimate),
        left_out=inference.left_out(estimate, models, made.formula),
        nested=inference.nested(estimate, made, fitted_terms, by_term),
        fitted=tuple(estimate.fitted.tolist()), estimate=estimate,
    )  # fmt: skip


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
    if plain is None or plain.is_exact or size is None or formula.left not in VOLUMES:
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


def _points(rows: pl.DataFrame, outcome: OlsFit, size: str | None, formula: Formula) -> pl.DataFrame:
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
        fitted_bytes=pl.Series(_step_bytes(rows, given["fitted"], formula), dtype=pl.Float64),
    )


def _step_bytes(rows: pl.DataFrame, fitted: Any, formula: Formula) -> Any:
    """The fitted volume of a step in bytes, where the left side is a function of it or of what a worker sends."""
    column = formula.left_column
    invert = None if column is None else inverse(formula.left, column)
    if column not in VOLUMES or invert is None or None in fitted[:1]:
        return [None] * rows.height
    with np.errstate(over="ignore"):
        volumes = invert(np.asarray(fitted))
    return volumes * rows["workers"].to_numpy() if column == "worker_bytes" else volumes


# --- the default formula


def default_formula(rows: pl.DataFrame, forms: Sequence[str]) -> tuple[str, list[str]]:
    """The form that these rows support, and notes on the choice.

    rows: as of design.clean_numbers. forms: FORMS, a variant of it, or one formula of a preset. The nominal size
    replaces the exchanged one where no usable row has that, and the whole step what a worker sends where no row has
    workers. Both forms are compared on the rows that both can use.
    """
    adapted = [_without_workers(rows, form) for form in forms] if len(forms) > 1 else list(forms)
    chosen, notes = sized(rows, adapted[0])
    if len(forms) == 1:
        return chosen, notes
    if adapted[0] != forms[0]:
        notes.append("No run has workers: the response is the volume of the whole step, and not what a worker sends.")
    other = sized(rows, adapted[1])[0]
    common, _ = design.split_missing(rows, parse(chosen, rows.columns).names | parse(other, rows.columns).names)
    criteria = [_aic(common, form) for form in (chosen, other)]
    if None in criteria:
        return chosen, notes
    plain, logarithms = (math.inf if found is None else found for found in criteria)
    best, second = (other, chosen) if logarithms < plain else (chosen, other)
    low, high = sorted((plain, logarithms))
    notes.append(
        f"The data support this formula rather than {second}: its AIC is {_rounded(low)}, that of the other "
        f"{_rounded(high)}, both in terms of step_bytes."
    )
    return best, notes


def _rounded(criterion: float) -> str:
    return f"{criterion:.1f}" if math.isfinite(criterion) else "without bound (all rows lie on the fit)"


def _without_workers(rows: pl.DataFrame, form: str) -> str:
    """The form without the workers where no row has them, or all have the same."""
    known = rows["workers"].drop_nulls() if {"workers", "worker_bytes"} <= set(rows.columns) else pl.Series()
    if known.is_empty():
        form = form.replace("worker_bytes", "step_bytes")
    return form if known.n_unique() > 1 else form.replace(_WORKERS, "")


def sized(rows: pl.DataFrame, formula: str) -> tuple[str, list[str]]:
    """The formula with the nominal size where no row that is usable but for the size has the exchanged one."""
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


def _aic(rows: pl.DataFrame, text: str) -> float | None:
    """AIC of the form as a model of step_bytes; minus infinity where all rows lie on it, None where it has no scatter.

    The density of a function of step_bytes is that of step_bytes over the function's derivative.
    """
    formula = parse(text, rows.columns)
    usable, _ = design.usable_rows(rows, formula)
    if usable.height < rows.height or usable.is_empty():  # a volume of 0 has no logarithm
        return None
    made = make_design(usable, formula)
    dropped = design.constant_terms(made, usable)
    kept, _ = split_aliased([column for column in made.columns if column.term not in dropped])
    if len(made.response) - len(kept) < _MIN_DF:
        return None
    estimate = Estimate(made.response, tuple(kept), tuple(str(run) for run in usable[RUN]))
    if estimate.is_exact:
        return -math.inf
    derivative = {"np.log(step_bytes)": "step_bytes", "worker_bytes": "workers"}.get(formula.left)
    jacobian = 0.0 if derivative is None else float(np.log(usable[derivative].to_numpy()).sum())
    return _best_scatter(estimate, design.relative_sizes(usable, formula)) + 2 * jacobian


def _best_scatter(estimate: Estimate, relative: Vector | None) -> float:
    """The AIC of the fit, or of the one with scatter that grows with the size, whose power is a parameter more."""
    found = [estimate.information_criteria[0]]
    if relative is None:
        return found[0]
    for power in design.POWERS[1:]:
        deviations = relative**power
        criterion, _ = estimate.weighted(deviations).information_criteria
        found.append(criterion + 2 * float(np.log(deviations).sum()) + 2)
    return min(found)
