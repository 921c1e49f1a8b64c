"""A fit at one row of the design: a described job's mean and errors, whether the runs tell of it, and how it differs.

A job of which the runs say nothing is refused here; one that is not like them gets the reasons as warnings.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, Any

from ddnn_traces.errors import PredictionError, RegressionError, UsageError
from ddnn_traces.regression.aliasing import split_aliased
from ddnn_traces.regression.design import Column, make_design, split_infinite
from ddnn_traces.regression.diagnostics import breusch_pagan
from ddnn_traces.regression.estimate import Estimate
from ddnn_traces.regression.formula import Formula, parse, undone
from ddnn_traces.regression.job import Job, attributes, described, idle_notes, plain, unlike
from ddnn_traces.regression.results import ALPHA
from ddnn_traces.regression.rows import RUN, clean_numbers, split_missing

if TYPE_CHECKING:
    import numpy as np
    import polars as pl

    Vector = np.ndarray[Any, np.dtype[np.float64]]

LEVEL = 0.95
MIN_RUNS = 3
_MOST_NAMED = 5
#: Of a dropped column's largest value, how far the job's may lie from what the other columns say.
_OUTSIDE = 1e-7


@dataclass(frozen=True)
class Predicted:
    """One number: quantity step, run, hour (unit bytes) or step_time (ms).

    mean_low to mean_high: the 95% confidence interval of the mean of all such runs. low to high: the 95% prediction
    interval, in which one such run lies. All four are None where the runs lie on the fit exactly. statistic: mean,
    median (of what is fitted as its logarithm or root), or ratio (of an hour: the volume of a step over the median step
    time).
    """

    quantity: str
    unit: str
    estimate: float
    mean_low: float | None
    mean_high: float | None
    low: float | None
    high: float | None
    statistic: str = "mean"

    def times(self, factor: float, quantity: str) -> Predicted:
        """The same for another quantity that is `factor` times this one."""
        names = ("estimate", "mean_low", "mean_high", "low", "high")
        ends = {name: getattr(self, name) for name in names}
        scaled: dict[str, Any] = {name: None if end is None else end * factor for name, end in ends.items()}
        return replace(self, quantity=quantity, **scaled)


@dataclass(frozen=True)
class Point:
    """A fit, and the job's place in it. centre and errors are on the scale of the formula's left side.

    mean_error: standard error of the mean; new_error: of one more run. undone: makes the left side's values those of
    its column.
    """

    formula: Formula
    rows: pl.DataFrame
    centre: float
    mean_error: float
    new_error: float
    df: int
    residuals: Vector
    is_exact: bool
    undone: Callable[[Any], Any]
    warnings: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def synthetic_runs(self) -> int:
        if "source" not in self.rows.columns:
            return 0
        return self.rows["source"].to_list().count("synthetic")

    def predicted(self, quantity: str, unit: str) -> Predicted:
        """The estimate and both intervals, on the scale of the column. Raises PredictionError where they overflow."""
        import numpy as np
        from scipy import stats

        reach = 0.0 if self.is_exact else float(stats.t.ppf((1 + LEVEL) / 2, self.df))
        ends = [sign * reach * error for error in (self.mean_error, self.new_error) for sign in (-1, 1)]
        with np.errstate(over="ignore"):
            estimate, *bounds = (float(self.undone(self.centre + end)) for end in (0.0, *ends))
        if not all(map(math.isfinite, (estimate, *bounds))):
            raise PredictionError(f"{self.formula.left} of this job is too far off to be a number again")
        statistic = "mean" if self.formula.left in self.formula.left_names else "median"
        found = Predicted(quantity, unit, estimate, *((None,) * 4 if self.is_exact else bounds))
        return replace(found, statistic=statistic)


def point_of(rows: pl.DataFrame, text: str, response: str, job: Job) -> Point:
    """Fit `text`, whose left side is of the column `response`, and go to the job's row.

    Raises PredictionError for a job of which the rows say nothing, UsageError for one that is not described (with the
    column's name), RegressionError for a wrong formula.
    """
    formula = parse(text, rows.columns)
    if formula.left_names != {response}:
        raise RegressionError(f"The left side of the formula must be {response} or a function of it: {text}")
    undo = _undo(formula.left, response)
    complete, missing = split_missing(clean_numbers(rows), formula.names)
    usable, infinite = split_infinite(complete, formula)
    excluded = (*missing, *infinite)
    if usable.height < MIN_RUNS:
        raise PredictionError(_too_few(rows, usable.height, formula))
    said = _job_values(usable, formula, job)
    values = {name: said[name] for name in sorted(formula.right_names)}
    _check_levels(usable, formula, values)
    kept, place, response_values = _design_with(usable, formula, values)
    if len(kept) >= usable.height:
        raise PredictionError(
            f"{usable.height} runs for {len(kept)} coefficients leave no scatter to tell an interval from; "
            "give a --formula with fewer terms"
        )
    fit = Estimate(response_values, tuple(kept), tuple(str(run) for run in usable[RUN]))
    coordinates = fit.to_coefficients.T @ place
    leverage, largest = float(coordinates @ coordinates), float(fit.leverage.max())
    warnings = [
        *_outside(usable, formula, values), *_never_together(usable, formula, values),
        *unlike(usable, formula, said),
    ]  # fmt: skip
    if leverage > largest * (1 + 1e-9):
        warnings.append(
            f"the job lies outside what the runs span together: leverage {leverage:.3g}, where the largest of a run is "
            f"{largest:.3g} (hidden extrapolation)"
        )
    notes = [*idle_notes(usable, formula, said), *_notes(formula)]
    if fit.is_exact:
        notes.append("every run lies on the fit to within rounding: there is no scatter to tell an interval from")
    _, p_value = breusch_pagan(fit)
    if p_value is not None and p_value < ALPHA:
        notes.append(
            f"the scatter of {formula.left} changes with the terms (Breusch-Pagan, p = {p_value:.2g}), and the "
            "intervals suppose that it does not: too wide for some jobs, too narrow for others"
        )
    if excluded:
        left_out = rows.height - usable.height
        notes.append(f"{left_out} of {rows.height} runs are not in the fit, since they lack a value of the formula")
    mean_error, new_error = (math.sqrt(fit.variance * share) for share in (leverage, 1 + leverage))
    return Point(
        formula, usable, float(place @ fit.coefficients), mean_error, new_error, fit.df_resid, fit.residuals,
        fit.is_exact, undo, tuple(warnings), tuple(notes),
    )  # fmt: skip


def _too_few(rows: pl.DataFrame, usable: int, formula: Formula) -> str:
    empty = sorted(name for name in formula.names if not rows[name].count())
    filled = [name for name in attributes(rows) if name != "source" and rows[name].count()]
    why = f"; no run has {' or '.join(empty)}, but there are {', '.join(filled)} for a --formula" if empty else ""
    return f"{usable} usable runs, and at least {MIN_RUNS} are needed{why}"


def _job_values(rows: pl.DataFrame, formula: Formula, job: Job) -> dict[str, Any]:
    """What is said of the job. Raises UsageError where a column of the formula's right side is not."""
    values = described(rows, job)
    missing = sorted(formula.right_names - values.keys())
    if missing:
        raise UsageError(
            f"the formula {formula.text} needs the job's {', '.join(missing)}; give them, or another formula"
        )
    return values


def _categorical(rows: pl.DataFrame, formula: Formula) -> list[str]:
    """The columns of the right side that are levels to the formula, not numbers."""
    return sorted(
        name for name in formula.right_names if name not in formula.numeric_names or not rows[name].dtype.is_numeric()
    )


def _check_levels(rows: pl.DataFrame, formula: Formula, values: Mapping[str, Any]) -> None:
    """Raise PredictionError for levels that no run has."""
    reasons = []
    for name in _categorical(rows, formula):
        levels = rows[name].unique().to_list()
        if values[name] not in levels:
            near = ", ".join(str(level) for level in _nearest(values[name], levels))
            reasons.append(f"no run has {name} = {plain(values[name])}; there are, the nearest first: {near}")
    if reasons:
        raise PredictionError(refusal(reasons, False))


def _nearest(value: Any, levels: Sequence[Any]) -> list[Any]:
    """The levels, the nearest first: in value where they are numbers, else in letters."""
    if isinstance(value, float):
        return sorted(levels, key=lambda level: (abs(level - value), level))
    return sorted(levels, key=lambda level: (-SequenceMatcher(None, value, str(level)).ratio(), str(level)))


def _design_with(
    rows: pl.DataFrame, formula: Formula, values: Mapping[str, Any]
) -> tuple[list[Column], Vector, Vector]:
    """The independent columns of the runs' design, the job's row in them, and the response.

    The job is evaluated as one more row, so that its levels become the same columns. Raises PredictionError where its
    row is no combination of the runs' rows: then no estimate of it is the data's.
    """
    import numpy as np
    import polars as pl

    (left,) = formula.left_names
    numbers = [name for name in formula.numeric_names if rows.schema[name].is_integer()]
    used = rows.select(sorted(formula.names)).cast(dict.fromkeys(numbers, pl.Float64))
    # any value of the response will do for the job's row
    job = pl.DataFrame([{**values, left: used[left][0]}]).select(
        pl.col(name).cast(used.schema[name]) for name in used.columns
    )
    design = make_design(pl.concat([used, job]), formula)
    columns = [replace(column, values=column.values[:-1]) for column in design.columns]
    at = {column.name: float(column.values[-1]) for column in design.columns}
    kept, aliases = split_aliased(columns)
    matrix = np.column_stack([column.values for column in kept])
    scale = np.linalg.norm(matrix, axis=0)
    place = np.array([at[column.name] for column in kept])
    reasons = []
    for alias in aliases:
        weights = np.linalg.lstsq(matrix / scale, alias.column.values, rcond=None)[0]
        expected = float(place / scale @ weights)
        size = max(abs(at[alias.column.name]), float(np.abs(alias.column.values).max()))
        if abs(at[alias.column.name] - expected) > _OUTSIDE * size:
            others = [c.label for c in alias.carriers if c.label != "Intercept"]
            reasons.append(_confounded(alias.column, others))
    if reasons:
        raise PredictionError(refusal([*_never_together(rows, formula, values), *reasons], False))
    return kept, place, design.response[:-1]


def _confounded(column: Column, others: Sequence[str]) -> str:
    if not others:
        value = float(column.values[0])
        return f"every run has {column.label} = {value:g}, so that they say nothing of its effect"
    named = f"{', '.join(others[:_MOST_NAMED])}{' and others' if len(others) > _MOST_NAMED else ''}"
    return (
        f"the runs cannot tell {column.label} apart from {'a combination of ' if len(others) > 1 else ''}{named}, and "
        "in this job they do not go together as in the runs"
    )


# --- how the job differs from the runs


def _outside(rows: pl.DataFrame, formula: Formula, values: Mapping[str, Any]) -> list[str]:
    """Numbers outside the measured range."""
    found = []
    for name in sorted(formula.right_names - set(_categorical(rows, formula))):
        low, high = float(rows[name].min()), float(rows[name].max())  # type: ignore[arg-type]
        if not low <= values[name] <= high:
            found.append(f"{name} = {plain(values[name])} is outside the measured range, {plain(low)} to {plain(high)}")
    return found


def _never_together(rows: pl.DataFrame, formula: Formula, values: Mapping[str, Any]) -> list[str]:
    """The job's levels, where they were never measured together."""
    import polars as pl

    levels = _categorical(rows, formula)
    same = pl.all_horizontal([pl.col(name) == values[name] for name in levels] or [pl.lit(True)])
    if len(levels) < 2 or not rows.filter(same).is_empty():
        return []
    together = ", ".join(f"{name} = {plain(values[name])}" for name in levels)
    near = _nearest_combination(rows, levels, values)
    return [f"no run has these together: {together}; the nearest: {near}"]


def _nearest_combination(rows: pl.DataFrame, levels: Sequence[str], values: Mapping[str, Any]) -> str:
    """The first of the combinations that share most levels with the job."""
    combinations = rows.select(levels).unique().sort(levels).to_dicts()
    best = max(combinations, key=lambda row: sum(row[name] == values[name] for name in levels))
    return ", ".join(f"{name} = {plain(best[name])}" for name in levels)


def _notes(formula: Formula) -> list[str]:
    if formula.left in formula.left_names:
        return []
    (name,) = formula.left_names
    return [f"{name} is fitted as {formula.left}: the estimate is a median, and its interval that of a median"]


def refusal(reasons: Iterable[str], can_be_forced: bool) -> str:
    lines = "".join(f"\n- {reason}" for reason in dict.fromkeys(reasons))
    if can_be_forced:
        return f"not predicted, since the runs are not like this job:{lines}\n--extrapolate shows the numbers anyway"
    return f"cannot be predicted from these runs:{lines}"


def _undo(left: str, name: str) -> Callable[[Any], Any]:
    """What makes the left side's values those of the column again. Raises RegressionError where that is not known."""
    found = undone(left, name)
    if found is None:
        raise RegressionError(f"The left side {left} cannot be undone; give {name} or its np.log, np.log10 or np.sqrt")
    return found
