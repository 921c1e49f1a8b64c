"""Regressions of a dataset: the default formula, presets, and the user's formulas.

The default formula is of the volume of a step over the number of model sizes that the declared collective sends among
the run's workers (query declared_law): its logarithm is that of the model's size, and every factor says what is beyond
the law. The unit is the cell: runs that agree in all that was set. They are averaged, or their errors clustered.

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
from ddnn_traces.query import missing
from ddnn_traces.regression import design, documents, inference, robustness
from ddnn_traces.regression.design import CELL, MIN_RUNS, RUN, STEP, make_design, split_aliased
from ddnn_traces.regression.estimate import Estimate
from ddnn_traces.regression.formula import INTERCEPT, PAPER_FORMULA, Formula, in_logarithms, inverse, parse, terms_of
from ddnn_traces.regression.results import (
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
)
from ddnn_traces.regression.verdicts import fit_notes, not_estimable, row_notes, single_runs, verdicts
from ddnn_traces.text import as_sentence, counted

if TYPE_CHECKING:
    from ddnn_traces.query.dataset import Dataset

BY_LAW = "np.log(implied_bytes) ~ np.log(model_bytes) + C(framework_backend) + C(batch_size) + C(topology)"
_NETWORK = "delay_ms + bandwidth_mbit + loss_pct + C(batch_size) + C(model)"
_LOSS = "loss_pct"
#: Column of a query's rows with the reason why a row is not part of the preset's own formula; null where it is.
_REASON = "left_out_reason"


@dataclass(frozen=True)
class Preset:
    """A regression with a name. run_query, step_query: the queries with a row a run, and with a row a run and step."""

    formula: str
    run_query: str
    step_query: str | None


_DEFAULT = Preset(BY_LAW, "run_step_volume", "step_volume_rows")
PRESETS = {
    # the volume of a step, with the sentences of zerwas section VI
    "paper": Preset(PAPER_FORMULA, "run_step_volume", "step_volume_rows"),
    # duration of a step, and samples a second, on the conditions that cheng varies
    "step-time": Preset(f"step_ms ~ {_NETWORK}", "run_step_time", "step_time_rows"),
    "throughput": Preset(f"samples_per_s ~ {_NETWORK}", "run_step_time", "step_time_rows"),
    # duration compared with equal runs of other loss, zerwas fig. 10
    "duration-on-loss": Preset(f"np.log(comparable_s) ~ C(setting) + {_LOSS}", "run_relative_duration", None),
}
ROWS = ("runs", "steps")
#: What is averaged before the fit: the runs of a cell, or nothing.
UNITS = ("cell", "run")
#: Runs with a disturbed volume, by the first word of run_attributes.disturbance, and the columns
#: that explain them where a formula has one.
DISTURBANCES: dict[str, tuple[str, ...]] = {
    "incomplete": (), "fault": ("fault",), "unfinished": ("steps", "finished", "planned_steps"), "loss": ("loss_pct",),
}  # fmt: skip
_WORDS = {"incomplete": "incomplete captures", "fault": "fault", "unfinished": "unfinished", "loss": "heavy loss"}
BATCH = ("indicator", "number")
#: Bytes of a step beyond its law, over it, with which no headers are explained.
_FAR_FROM_LAW = 0.1
_NO_LAW = "no law of the volume of"
SIZE = ("exchanged", "nominal")
#: Bytes that a step's volume counts, the first by default: segmentation offload hides headers from the captured ones.
RESPONSES = ("cable", "wire", "payload")


def regress(
    dataset: Dataset, formula: str | None = None, *, preset: str | None = None, rows: str = "runs", unit: str = "cell",
    batch: str = "indicator", size: str = "exchanged", errors: str | None = None, response: str = RESPONSES[0],
    include: Sequence[str] = (),
) -> Regression:  # fmt: skip
    """Fit a formula to the runs of a dataset, or to their steps.

    formula: in statsmodels' language; None: that of the preset, and default_formula without one. preset: a name of
    PRESETS, which also decides the rows. rows: runs or steps. unit: cell averages the runs of a cell, run does not;
    errors take the cells as independent either way. batch, size: whether the batch size is an indicator or a number,
    and the model's size the exchanged or the nominal one; both only without `formula`. errors: classic, scaled, hc3 or
    cluster (by cell); None: by the rule of `ols`. response: the bytes of a step's volume: those on the cable, as
    captured (wire), or payload. include: which of DISTURBANCES are not left out of fits of a volume.

    Raises RegressionError for an unknown name, and for a formula that cannot be used.
    """
    for option, value, known in (
        ("preset", preset, (None, *PRESETS)), ("rows", rows, ROWS), ("batch", batch, BATCH), ("size", size, SIZE),
        ("response", response, RESPONSES), *(("disturbance", kind, (*DISTURBANCES,)) for kind in include),
    ):  # fmt: skip
        if value not in known:
            raise RegressionError(f"No {option} named {value}; there are: {', '.join(name for name in known if name)}")
    chosen = _DEFAULT if preset is None else PRESETS[preset]
    query = chosen.run_query if rows == "runs" else chosen.step_query
    if query is None:
        raise RegressionError(f"{preset} has a row a run only; leave out rows = {rows}")
    form = _variant(chosen.formula, batch, size)
    if formula is not None and form != chosen.formula:
        raise RegressionError(f"batch and size change the default formula only; write them into yours: {form}")
    is_volume = query in (_DEFAULT.run_query, _DEFAULT.step_query)
    found = dataset.query(query, **({"response": response} if is_volume else {}))
    if formula is not None:
        fitted = fit(found, formula, errors, unit=unit, include=include)
    else:
        used, unused = _comparable(found)
        fitted = fit(used, None, errors, form, unit, include)
        fitted = replace(
            fitted, notes=(*fitted.notes, *_loss_notes(fitted, used)), excluded=(*fitted.excluded, *unused)
        )
    notes = fitted.notes
    if is_volume:
        notes = (
            *_word_notes(dataset, fitted),
            *_law_notes(dataset, found, fitted),
            *_response_notes(found, fitted, response),
            *notes,
        )
    return replace(fitted, preset=preset, notes=(*_inferred_notes(dataset), *_capture_notes(dataset, fitted), *notes))


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


def _inferred_notes(dataset: Dataset) -> list[str]:
    return [*map(as_sentence, dataset.step_notes)]


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
        f"{run} ({', '.join([*_percentages(lost, dropped), *filter(None, [problem])])})"
        for run, lost, dropped, problem in losses.select(RUN, "percent_lost", "percent_dropped", "problem").iter_rows()
    ]
    return [
        f"The captures of {losses.height} of the runs lost more than 0.1%, so that their volumes are too low: "
        f"{first_names(named)}."
    ]


def _word_notes(dataset: Dataset, fitted: Regression) -> list[str]:
    """What to do with the runs that are left out for want of a law."""
    if not any(one.reason.startswith(_NO_LAW) for one in fitted.excluded):
        return []
    return [as_sentence(missing.known_laws(dataset.query("topology_words")["topology"]))]


def _law_notes(dataset: Dataset, rows: pl.DataFrame, fitted: Regression) -> list[str]:
    """The runs in the fit whose volume breaks its law (query conservation, which takes longer than the fit)."""
    used = rows.filter(pl.col(RUN).is_in(fitted.points[RUN].to_list() if fitted.points.height else []))
    if used.filter((pl.col("implied_bytes") / pl.col("model_bytes") - 1).abs() > _FAR_FROM_LAW).is_empty():
        return []
    broken = dataset.query("conservation").filter(pl.col("flagged") & pl.col(RUN).is_in(used[RUN].to_list()))
    if broken.is_empty():
        return []
    named = [f"{run} ({share:+.0%})" for run, share in broken.select(RUN, "unexplained_share").iter_rows()]
    inferred = " --infer-steps" if dataset.runs_of_inferred_steps else ""
    sends = "sends" if broken.height == 1 else "send"
    return [
        f"{broken.height} of {counted(used[RUN].n_unique(), 'run')} {sends} more or less than the law of the "
        f"collective makes of model_bytes: {first_names(named)}. A wrong model_bytes, or packets that are missing or "
        f"there twice, pass for an effect: see its run.toml, and 'ddnn-traces query DATASET conservation{inferred}'."
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
    rows: pl.DataFrame, formula: str | None = None, errors: str | None = None, form: str = BY_LAW, unit: str = "cell",
    include: Sequence[str] = (),
) -> Regression:  # fmt: skip
    """Fit a formula to `rows`, one row a run, or one a run and step where `rows` has a column step.

    formula: the user's. None: `form`, as default_formula adapts it to the rows. `rows` has run_id and the formula's
    columns, null where unknown, and may have source, model, and other attributes of runs: they tell which runs are of
    one cell (design.SETTINGS), and the fit is repeated with each in which the runs differ (robustness). Rows that lack
    a value are excluded and their runs named. errors: classic, scaled, hc3 or cluster (by cell); None: by the rule of
    `ols`. unit, include: as of regress.

    Raises RegressionError for a formula that names an unknown column, is not a formula, or cannot be evaluated.
    """
    for option, value, names in (("standard errors", errors, (None, *ERRORS)), ("unit", unit, UNITS)):
        if value not in names:
            raise RegressionError(f"No {option} named {value}; there are: {', '.join(name for name in names if name)}")
    clean = design.clean_numbers(rows)
    chosen, form_notes = default_formula(clean, form) if formula is None else (formula, [])
    parsed = parse(chosen, clean.columns)
    known, unknown = _without_unknown(parsed, clean)
    clear, disturbed = undisturbed(clean, parsed, include)
    lawful, lawless = _with_law(clear, parsed)
    usable, incomplete = design.usable_rows(lawful, known)
    usable = design.with_cells(usable, known)
    runs = usable[RUN].n_unique()
    found: tuple[Refit, ...] = ()
    if not parsed.left_names:
        outcome = OlsFit(notes=("Nothing is fitted: the left side of the formula names no column.",))
    elif usable[CELL].n_unique() < MIN_RUNS:
        outcome = OlsFit(notes=(f"Nothing is fitted: {too_few_text(usable)}.",))
    else:
        outcome, found = _with_refits(usable, known, errors, unit)
    size = next((name for name in SIZES if name in known.right_names), None)
    order = list(terms_of(parsed)) if unknown else []
    points = _points(usable, outcome, size, known)
    about_disturbed = _disturbance_notes(disturbed)
    notes = [*outcome.notes, *form_notes]  # why nothing is fitted
    if outcome.coefficients:
        missing = sorted(parsed.right_names - known.right_names)
        if missing:
            form_notes.append(f"No run has {', '.join(missing)}: the estimates include the effect of it.")
        notes = [*form_notes, *robustness.notes(found), *outcome.notes, *row_notes(usable, parsed.left_names)]
        notes = [*_repeat_notes(points, unit), *about_disturbed, *notes]
    else:
        notes += [*about_disturbed, *_other_formula(clean, parsed)]
    sources = usable.unique(RUN)["source"].to_list() if "source" in usable.columns else []
    terms = (*outcome.verdicts, *unknown)
    parts = vars(outcome) | {
        "verdicts": tuple(sorted(terms, key=lambda verdict: order.index(verdict.term))) if unknown else terms,
        "notes": tuple(notes),
    }
    logs = _log_log(usable, known, outcome.estimate, size, outcome.errors, unit)
    return Regression(
        **parts, formula=parsed.text, grain="step" if STEP in rows.columns else "run", unit=unit, rows=usable.height,
        runs=runs, synthetic_runs=generated(sources), correlation=_correlation(usable, size, parsed), size_column=size,
        log_log=logs, excluded=(*lawless, *incomplete, *disturbed), refits=found, points=points,
        _formats=documents.FORMATS,
    )  # fmt: skip


def _other_formula(rows: pl.DataFrame, formula: Formula) -> list[str]:
    """Where nothing is fitted, a formula over a model's size that the runs have and that the formula does not name."""
    named = next((name for name in SIZES if name in formula.names), None)
    size = next((name for name in SIZES if name in rows.columns and rows[name].drop_nulls().n_unique() > 1), None)
    if named or size is None or not formula.left_names:
        return []
    return [f"The runs differ in {size}, which is no term of this formula: --formula '{formula.left} ~ {size}' has it."]


def cells_text(rows: pl.DataFrame) -> str:
    """How many runs in how many cells (as of design.with_cells)."""
    runs, cells = rows[RUN].n_unique(), rows[CELL].n_unique()
    return f"{runs} usable runs" if runs == cells else f"{runs} usable runs in {counted(cells, 'cell')}"


def too_few_text(rows: pl.DataFrame) -> str:
    """How many runs there are, and how many a fit needs: runs of one cell repeat it, and say nothing of a slope."""
    needed = f"at least {MIN_RUNS}" + (
        "" if rows[RUN].n_unique() == rows[CELL].n_unique() else " cells (runs that differ in their settings)"
    )
    return f"{cells_text(rows)}, and {needed} are needed"


def undisturbed(
    rows: pl.DataFrame, formula: Formula, include: Sequence[str] = ()
) -> tuple[pl.DataFrame, tuple[Excluded, ...]]:
    """Of a fit of a volume, the rows without any of DISTURBANCES, and the runs of the others.

    Kept are the kinds of `include`, and those of which the formula has the attribute that explains them.
    """
    if "disturbance" not in rows.columns or formula.left_names.isdisjoint(VOLUMES):
        return rows, ()
    left_out = [
        _WORDS[kind] for kind, names in DISTURBANCES.items() if kind not in include and formula.names.isdisjoint(names)
    ]
    is_out = pl.any_horizontal(
        pl.lit(False), *(pl.col("disturbance").str.starts_with(word) for word in left_out)
    ).fill_null(False)
    out = rows.filter(is_out).group_by(RUN, "disturbance", maintain_order=True).len()
    return rows.filter(~is_out), tuple(Excluded(str(run), reason, count) for run, reason, count in out.iter_rows())


def _disturbance_notes(disturbed: Sequence[Excluded]) -> list[str]:
    counts = {kind: sum(run.reason.startswith(word) for run in disturbed) for kind, word in _WORDS.items()}
    kinds = [kind for kind, count in counts.items() if count]
    if not kinds:
        return []
    named = ", ".join(f"{counts[kind]} of {_WORDS[kind]}" for kind in kinds)
    are, them = ("is", "it") if len(disturbed) == 1 else ("are", "them")
    return [
        f"{counted(len(disturbed), 'run')} with a disturbed volume {are} left out: {named} "
        f"(--include {' --include '.join(kinds)} keeps {them})."
    ]


def _with_law(rows: pl.DataFrame, formula: Formula) -> tuple[pl.DataFrame, tuple[Excluded, ...]]:
    """The rows but those with a volume whose declared collective has no law, and the runs of these."""
    needed = {"implied_bytes", "step_bytes", "topology", "workers"}
    if "implied_bytes" not in formula.names or not needed <= set(rows.columns):
        return rows, ()
    why = pl.col("disturbance") if "disturbance" in rows.columns else pl.lit(None, pl.String)
    unknown = pl.when(why.str.starts_with("unknown steps")).then(why)  # a step of the log: one worker's, or that of all
    is_out = pl.col("implied_bytes").is_null() & (
        unknown.is_not_null()
        | pl.all_horizontal(pl.col(name).is_not_null() for name in sorted(needed - {"implied_bytes"}))
    )
    out = rows.filter(is_out).group_by(RUN, "topology", "workers", unknown.alias("unknown"), maintain_order=True).len()
    return rows.filter(~is_out), tuple(
        Excluded(str(run), reason or f"{_NO_LAW} {topology} among {counted(workers, 'worker')}", count)
        for run, topology, workers, reason, count in out.iter_rows()
    )


def _repeat_notes(points: pl.DataFrame, unit: str) -> list[str]:
    """How runs of a cell resemble each other, where cells are repeated."""
    runs = points.unique(RUN, maintain_order=True)
    repeated = runs.filter(pl.len().over("cell") > 1)
    if repeated.is_empty() or STEP in points.columns or points["fitted"].null_count():
        return []
    cells = repeated["cell"].n_unique()
    correlation = inference.intraclass_correlation(repeated["residual"].to_numpy(), repeated["cell"].to_list())
    alike = "" if correlation is None else f", and their residuals correlate by {correlation:.2f} within a cell"
    how = (
        "the runs of a cell are averaged" if unit == "cell" else "errors are clustered by cell, with Satterthwaite's df"
    )
    return [
        f"{repeated.height} of {runs.height} runs are repeats, in {counted(cells, 'cell')} (whose runs agree in all "
        f"that was set){alike}: {how}. The unit is the cell, n = {runs['cell'].n_unique()}."
    ]


def _with_refits(
    rows: pl.DataFrame, formula: Formula, errors: str | None, unit: str
) -> tuple[OlsFit, tuple[Refit, ...]]:
    """The fit, its conclusions limited to those that no refit with another attribute changes, and the refits."""
    first = ols(rows, formula.text, errors, unit=unit)
    found: tuple[Refit, ...] = ()
    if first.coefficients:
        powers = (first.scatter_power,)  # the scatter is that of the same rows
        found = robustness.refits(
            rows, formula, first, lambda some, text: ols(some, text, first.errors, powers=powers, unit=unit)
        )
    unsettled = robustness.depends_on(found)
    return (ols(rows, formula.text, errors, unsettled, unit=unit) if unsettled else first), found


def ols(
    rows: pl.DataFrame, formula: str, errors: str | None = "classic",
    unsettled: Mapping[str, tuple[str, ...]] = MappingProxyType({}), powers: Sequence[float] = design.POWERS,
    unit: str = "cell",
) -> OlsFit:  # fmt: skip
    """Fit `formula` to rows that have `run_id` and no missing value in the formula's columns.

    errors: None: scaled where no row shares its cell and the scatter grows with the model's size (scatter_power), else
    cluster: a test decides poorly whether classic errors hold in small samples (Long and Ervin 2000).
    unsettled: of terms and coefficients, the attributes on which their conclusions depend (robustness). powers: of the
    model's size, with which the scatter may grow. unit: cell averages the runs of a cell (column CELL), where a row is
    a run.

    Columns that are combinations of those before them, in formula order, are dropped and named in the term's verdict,
    and so are terms at the end for which there are too few rows. Raises RegressionError.
    """
    rows = rows if CELL in rows.columns else rows.with_columns(pl.col(RUN).cast(pl.String).alias(CELL))
    is_repeated = rows[CELL].n_unique() < rows[RUN].n_unique()
    made = make_design(rows, parse(formula, rows.columns))
    if unit == "cell" and is_repeated and STEP not in rows.columns:
        made, rows = design.averaged(made, rows)
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
    estimate = Estimate(made.response, tuple(kept), tuple(rows[CELL].to_list()), deviations)
    statistic, p_value = inference.breusch_pagan(estimate)
    notes = []
    if errors is None:
        is_scaled = power and not estimate.is_exact and len(estimate.rows_of) == rows.height
        errors = "scaled" if is_scaled else "cluster"
        if is_scaled:
            notes.append(
                f"Intervals and p take the scatter as growing with the model's size to the power of {power:g} "
                "(size-scaled errors), which has the largest restricted likelihood of 0, 0.5 and 1."
            )
    by_term = design.shares(columns)
    mixed = {carrier.name for alias in aliases for carrier in alias.carriers}
    coefficients = inference.coefficients_of(estimate, errors, mixed)
    coefficients = tuple(replace(c, depends_on=unsettled.get(c.name, ())) for c in coefficients)
    tests = inference.term_tests(estimate, by_term, errors)
    together = inference.joint_tests(estimate, columns, by_term, tests, errors)
    f_statistic, f_p_value = inference.whole_f(estimate)
    aic, bic = (None, None) if estimate.is_exact else estimate.information_criteria
    fitted_terms = [term.name for term in made.terms if any(column.term == term.name for column in kept)]
    models = rows["model"].to_list() if "model" in rows.columns else None
    by = "cell" if is_repeated else "run"
    return OlsFit(
        coefficients=coefficients, tests=tests,
        verdicts=verdicts(estimate, made, rows, dropped, by_term, coefficients, tests, errors, unsettled, by, together),
        crowded=tuple(crowded), notes=(*notes, *fit_notes(estimate, made, crowded, aliases, errors, by)),
        errors=errors, scatter_power=power, clusters=len(estimate.rows_of), df_resid=estimate.df_resid,
        r_squared=float(estimate.result.rsquared), adj_r_squared=float(estimate.result.rsquared_adj),
        residual_std_error=None if estimate.is_exact else estimate.variance**0.5,
        f_statistic=f_statistic, f_p_value=f_p_value, aic=aic, bic=bic, condition_number=estimate.condition_number,
        breusch_pagan=statistic, breusch_pagan_p_value=p_value,
        group_scatter=inference.group_scatter(estimate, made, rows), influence=inference.influence(estimate),
        single_runs=single_runs(estimate),
        left_out=inference.left_out(estimate, models, made.formula, by),
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
    rows: pl.DataFrame, formula: Formula, plain: Estimate | None, size: str | None, errors: str, unit: str
) -> LogLog | None:
    """The log-log alternative, where size and left side are positive and not logarithms already."""
    if plain is None or plain.is_exact or size is None or formula.left not in VOLUMES:
        return None
    logarithmic = in_logarithms(formula, size)
    if logarithmic is None or not (rows[[formula.left, size]].min_horizontal() > 0).all():
        return None
    same = {column.term for column in plain.columns}
    made = make_design(rows, parse(logarithmic, rows.columns))
    if unit == "cell" and STEP not in rows.columns:
        made, _ = design.averaged(made, rows)
    columns = [c for c in made.columns if c.term in same or c.name == f"np.log({size})"]
    logs = Estimate(made.response, tuple(split_aliased(columns)[0]), plain.groups)
    if logs.is_exact or not any(c.name == f"np.log({size})" for c in logs.columns):
        return None
    return inference.log_log(logarithmic, size, plain, logs, errors)


def _points(rows: pl.DataFrame, outcome: OlsFit, size: str | None, formula: Formula) -> pl.DataFrame:
    estimate = outcome.estimate
    names = ("observed", "fitted", "residual", "studentized_residual", "leverage")
    given: dict[str, Any] = {name: [None] * rows.height for name in names}
    if estimate:
        studentized = inference.studentized_residuals(estimate)
        observed, numbers = estimate.response, np.arange(rows.height)
        if len(observed) < rows.height:  # cells are fitted, and runs shown
            observed = make_design(rows, formula).response
            place = {cell: number for number, cell in enumerate(estimate.groups)}
            numbers = np.array([place[cell] for cell in rows[CELL]])
        fitted, leverage = estimate.fitted[numbers], estimate.leverage[numbers]
        values = (observed, fitted, observed - fitted, [studentized[n] for n in numbers], leverage)
        given = dict(zip(names, values, strict=True))
    known = {"step_bytes": "step_bytes", "size_bytes": size}
    return rows.select(
        RUN,
        *([STEP] if STEP in rows.columns else []),
        pl.col(CELL).alias("cell"),
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
    factor = {"worker_bytes": "workers", "implied_bytes": "law_factor"}.get(column)
    return volumes * rows[factor].to_numpy() if factor in rows.columns else volumes


# --- the default formula


def default_formula(rows: pl.DataFrame, form: str) -> tuple[str, list[str]]:
    """The formula with what these rows have, and notes on what they lack.

    rows: as of design.clean_numbers. The volume of the whole step takes the place of the one over the law's where no
    row has a law, and the nominal size that of the exchanged one where no usable row has that.
    """
    notes = []
    lawful = rows["implied_bytes"].count() if "implied_bytes" in rows.columns else 0
    if "implied_bytes" in form and not lawful:
        form = form.replace("implied_bytes", "step_bytes")
        declared = "law_factor" in rows.columns and rows["law_factor"].count()
        lack = (
            "No run whose collective has a law has the volume of a step (is its log read?)"
            if declared
            else "No run has a declared collective with a law (topology and workers in a run.toml)"
        )
        notes.append(
            f"{lack}: the volume of the whole step is fitted, and topologies and numbers of workers are compared as "
            "they are."
        )
    chosen, more = sized(rows, form)
    return chosen, [*notes, *more]


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
