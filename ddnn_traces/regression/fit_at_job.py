"""A fit over runs, evaluated at the row that a described job has in its design, with its errors."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl

from ddnn_traces.errors import PredictionError, RegressionError, UsageError
from ddnn_traces.regression import design, fitting
from ddnn_traces.regression.design import CELL, MIN_RUNS, clean_numbers
from ddnn_traces.regression.estimate import Column, Estimate, Vector
from ddnn_traces.regression.formula import INTERCEPT, Formula, inverse, parse
from ddnn_traces.regression.inference import breusch_pagan, level_variances
from ddnn_traces.regression.job_values import (
    IMPOSSIBLE,
    attributes,
    check_levels,
    described_values,
    differences,
    never_together,
    outside,
    range_text,
    refused,
    unused_notes,
)
from ddnn_traces.regression.results import ALPHA, LEVEL, SIZES, Job, Predicted, degrees, p_text, plain
from ddnn_traces.text import counted, meant

#: p of Bartlett's test below which the scatter is taken by level: a wrong pooling costs coverage, a wrong separation
#: only width (docs/regression.md has both).
_DIFFERS = 0.5
#: Degrees of freedom from which a level's variance is its own also where it is smaller than that of all.
_OF_MANY = 5
_MOST_NAMED = 5
#: Of a dropped column's largest value, how far the job's may lie from the combination of the other columns.
_OUTSIDE = 1e-7


@dataclass(frozen=True)
class FitAtJob:
    """A fit, and the job's place in it. centre and errors are on the scale of the formula's left side.

    rows: the usable runs. cells: the rows that were fitted, the first run of each cell. mean_error: standard error of
    the mean of all runs of such a cell; new_error: of one run of it; df: degrees of freedom of both. invert: computes
    what is predicted from values of the left side.
    """

    formula: Formula
    rows: pl.DataFrame
    cells: pl.DataFrame
    fit: Estimate
    centre: float
    mean_error: float
    new_error: float
    df: float
    invert: Callable[[Any], Any]
    warnings: tuple[str, ...]
    notes: tuple[str, ...]

    def predicted(self, quantity: str, unit: str) -> Predicted:
        """The estimate and both intervals, on the scale of the column. Raises PredictionError where they overflow."""
        from scipy import stats

        is_exact = self.fit.is_exact
        reach = 0.0 if is_exact else float(stats.t.ppf((1 + LEVEL) / 2, self.df))
        ends = [sign * reach * error for error in (self.mean_error, self.new_error) for sign in (-1, 1)]
        with np.errstate(over="ignore"):
            estimate, *bounds = (float(self.invert(self.centre + end)) for end in (0.0, *ends))
        if not all(map(math.isfinite, (estimate, *bounds))):
            raise PredictionError(f"{self.formula.left} of this job is too large to be converted to a number")
        statistic = "mean" if self.formula.left in self.formula.left_names else "median"
        found = Predicted(quantity, unit, estimate, *((None,) * 4 if is_exact else bounds))
        return replace(found, statistic=statistic)


def at_job(rows: pl.DataFrame, text: str, responses: Collection[str], job: Job) -> FitAtJob:
    """Fit `text`, whose left side is of one column of `responses`, and evaluate it at the job's row.

    Runs whose scatter grows with the model's size are weighted (design.scatter_power).

    Raises PredictionError for a job that the rows do not determine, UsageError for an incomplete description (with the
    column's name), RegressionError for a wrong formula.
    """
    formula = parse(text, rows.columns)
    response = formula.left_column
    if response is None or response not in responses:
        names = " or ".join(responses)
        raise RegressionError(f"The left side of the formula must be {names} or a function of it: {text}")
    of_response = inverse(formula.left, response)
    if of_response is None:
        raise RegressionError(
            f"The left side {formula.left} cannot be inverted; give {response} or its np.log, np.log10 or np.sqrt"
        )
    undisturbed, _ = fitting.undisturbed(clean_numbers(rows), formula)
    usable, _ = design.usable_rows(undisturbed, formula)
    usable = design.with_cells(usable, formula)
    if usable[CELL].n_unique() < MIN_RUNS:
        raise PredictionError(_too_few(rows, usable, formula))
    described = described_values(usable, formula, job)
    scale = 1.0
    if response == "worker_bytes":
        scale = _workers(usable, described)
    elif response == "implied_bytes":
        scale = _law_factor(usable, described)
    values = {name: described[name] for name in sorted(formula.right_names)}
    check_levels(usable, formula, values)
    kept, place, response_values, cells = _design_with(usable, formula, values)
    if len(kept) >= cells.height:
        unit = "run" if cells.height == usable.height else "cell"
        raise PredictionError(
            f"{counted(cells.height, unit)} for {counted(len(kept), 'coefficient')} leave no scatter for an interval; "
            "give a --formula with fewer terms"
        )
    power, deviations = design.scatter_power(response_values, kept, cells, formula)
    size = next((name for name in SIZES if name in formula.right_names), None)
    own = float((values[size] / design.mean(cells, size)) ** power) if power and size else 1.0
    fit = Estimate(response_values, tuple(kept), tuple(cells[CELL].to_list())).weighted(deviations)
    coordinates = fit.to_coefficients.T @ place
    leverage, largest = float(coordinates @ coordinates), float((fit.leverage * deviations**2).max())
    warnings = [
        *outside(usable, formula, values), *never_together(usable, formula, values),
        *differences(usable, formula, described),
    ]  # fmt: skip
    if leverage > largest * (1 + 1e-9):
        warnings.append(
            f"the job lies outside the space that the runs span together: leverage {leverage:.3g}, where the largest "
            f"of a run is {largest:.3g} (hidden extrapolation)"
        )
    of_cell, df, by_level, by_level_p = _of_cell(fit, cells, formula, values, own, coordinates)
    notes = [*unused_notes(usable, formula, described), *_fit_notes(fit, formula, by_level, by_level_p)]
    if power:
        notes.append(
            f"the scatter grows as {size} to the power of {power:g} (restricted likelihood): the runs are weighted by "
            "1 over its square, and the intervals follow it"
        )
    if usable.height < rows.height:
        unused = rows.height - usable.height
        notes.append(
            f"{unused} of {rows.height} runs are not in the fit: they lack a value of the formula, or have a "
            "disturbed volume (regress names them)"
        )
    more, note = _scatter_within(usable, cells, formula, deviations)
    notes += note
    mean_error, new_error = math.sqrt(of_cell), math.sqrt(of_cell + more * own**2)
    centre = float(place @ fit.coefficients)

    def invert(value: Any) -> Any:
        return of_response(value) * scale

    return FitAtJob(
        formula, usable, cells, fit, centre, mean_error, new_error, df, invert, tuple(warnings), tuple(notes)
    )


def _workers(rows: pl.DataFrame, described: Mapping[str, Any]) -> float:
    """The workers of the job: as described, else those of the runs where all have the same."""
    known = rows["workers"].drop_nulls().unique().to_list()
    if "workers" in described:
        return float(described["workers"])
    if len(known) == 1:
        return float(known[0])
    raise UsageError(
        f"what a worker sends is predicted: give the job's workers (the runs have {range_text(rows, 'workers')})"
    )


def _law_factor(rows: pl.DataFrame, described: Mapping[str, Any]) -> float:
    """How many model sizes the law of the job's collective sends: as described, else that of runs like it."""
    if "law_factor" in described:
        return float(described["law_factor"])
    alike = [name for name in ("topology", "workers") if name in described]
    known = rows.filter(pl.all_horizontal(pl.lit(True), *(pl.col(name) == described[name] for name in alike)))
    factors = known["law_factor"].unique().to_list()
    if len(factors) == 1 and known["workers"].n_unique() == 1:
        return float(factors[0])
    if "workers" in described:
        if len(factors) > 1:
            several = " or ".join(plain(factor) for factor in sorted(factors))
            raise PredictionError(
                f"the runs like the job send {several} model sizes in a step (updates of an asynchronous server are "
                "steps of their own): give --set law_factor="
            )
        word = str(described.get("topology", "this topology"))
        near = meant(
            word, rows["topology"].drop_nulls().unique().sort().to_list() if "topology" in rows.columns else ()
        )
        raise PredictionError(
            f"no law is known of the volume of {word} among {counted(int(described['workers']), 'worker')}; "
            f"{near and f'{near} Else '}give --set law_factor=, the model sizes that all send in a step"
        )
    raise UsageError(
        f"the law of the collective needs the job's workers (the runs have {range_text(rows, 'workers')}) and topology"
    )


def _of_cell(
    fit: Estimate, cells: pl.DataFrame, formula: Formula, values: Mapping[str, Any], own: float, coordinates: Vector
) -> tuple[float, float, str, float]:
    """The variance of the job's cell about its prediction, Satterthwaite's degrees of freedom, a note, and its p.

    It is a sum over the levels of the term by which the scatter differs most: the variance of each level times the part
    of its cells in the prediction, and that of the job's level for the cell itself. It is that of all for levels
    without one of their own, and everywhere where the job's level has none.
    """
    parts = (fit.basis @ coordinates) ** 2
    all_alike = fit.variance, float(fit.df_resid)
    name, p_value, levels, variances = _by_level(fit, cells, formula)
    mine = plain(values[name]) if variances else ""
    if mine not in variances:
        return fit.variance * (own**2 + float(parts.sum())), all_alike[1], "", p_value
    shares: dict[tuple[float, float], float] = defaultdict(float)
    for level, part in zip(levels, parts.tolist(), strict=True):
        shares[variances.get(level, all_alike)] += part
    shares[variances[mine]] += own**2
    found = [(part * variance, df) for (variance, df), part in shares.items()]
    variance = sum(part for part, _ in found)
    df = variance**2 / sum(part**2 / df for part, df in found)
    note = (
        f"the scatter of {formula.left} is taken by {name} (Bartlett, {p_text(p_value)}): that of the "
        f"{levels.count(mine)} cells with {mine}, and of other levels as far as they enter, with {degrees(df)} degrees "
        "of freedom"
    )
    return variance, df, note, p_value


def _by_level(
    fit: Estimate, cells: pl.DataFrame, formula: Formula
) -> tuple[str, float, list[str], dict[str, tuple[float, float]]]:
    """The attribute by which the scatter differs most, p of that, each cell's level, and levels' variances with df.

    Nothing where none differs. A level has its own variance where that is larger than that of all, or of many cells:
    few cells tell a smaller one poorly.
    """
    found: list[tuple[float, str, float, list[str], dict[str, tuple[float, float]]]] = []
    if not fit.is_exact:
        for term in design.make_design(cells, formula).terms:
            if term.categorical and len(term.variables) == 1:
                levels = [plain(level) for level in cells[term.variables[0]]]
                variances, statistic, p_value = level_variances(fit, levels)
                found.append((statistic, term.variables[0], p_value, levels, variances))
    statistic, name, p_value, levels, variances = max(found, key=lambda one: one[0], default=(0.0, "", 1.0, [], {}))
    if p_value >= _DIFFERS:
        return name, p_value, levels, {}
    own = {level: one for level, one in variances.items() if one[0] > fit.variance or one[1] >= _OF_MANY}
    return name, p_value, levels, own


def _scatter_within(
    rows: pl.DataFrame, cells: pl.DataFrame, formula: Formula, deviations: Vector
) -> tuple[float, list[str]]:
    """What one run's variance is more than that of a cell's mean, by the repeated cells, and a note where none is."""
    counts = rows.group_by(CELL, maintain_order=True).len()["len"].to_numpy()
    if counts.max() == 1:
        return 0.0, [
            "no cell was measured twice, so that both intervals are those of one run: the mean of all such runs is in "
            "it at least as often"
        ]
    response = design.make_design(rows, formula).response
    place = {cell: number for number, cell in enumerate(cells[CELL])}
    numbers = np.array([place[cell] for cell in rows[CELL]])
    off = (response - (np.bincount(numbers, weights=response) / counts)[numbers]) / deviations[numbers]
    within = float(off @ off) / (len(response) - len(counts))
    return within * (1 - float(np.mean(1 / counts))), []


def _too_few(rows: pl.DataFrame, found: pl.DataFrame, formula: Formula) -> str:
    empty = sorted(name for name in formula.names if not rows[name].count())
    filled = [name for name in attributes(rows) if name != "source" and rows[name].count()]
    why = f"; no run has {' or '.join(empty)}, but there are {', '.join(filled)} for a --formula" if empty else ""
    return f"{fitting.too_few_text(found)}{why}"


def _fit_notes(fit: Estimate, formula: Formula, by_level: str, by_level_p: float) -> list[str]:
    """The assumptions and the scale of the intervals; by_level: whose scatter they take, where not that of all."""
    notes = []
    if formula.left not in formula.left_names:
        notes.append(
            f"{formula.left_column} is fitted as {formula.left}: the estimate is a median, and its interval that of a "
            "median"
        )
    if fit.is_exact:
        notes.append("every run lies on the fit to within rounding: there is no scatter to compute an interval from")
    if by_level:
        notes.append(by_level)
    _, p_value = breusch_pagan(fit)
    follows = bool(by_level) and by_level_p < ALPHA
    if not follows and p_value is not None and p_value < ALPHA:
        notes.append(
            f"the scatter of {formula.left} changes with the terms (Breusch-Pagan, {p_text(p_value)}), and the "
            "intervals assume that it does not: too wide for some jobs, too narrow for others"
        )
    return notes


def _design_with(
    rows: pl.DataFrame, formula: Formula, values: Mapping[str, Any]
) -> tuple[list[Column], Vector, Vector, pl.DataFrame]:
    """The independent columns of the cells' design, the job's row in them, the response, and each cell's first run.

    The job is evaluated as one more row, so that its levels become the same columns. Raises PredictionError where its
    row is not a combination of the runs' rows: then the data has no estimate of it.
    """
    (left,) = formula.left_names
    numbers = [name for name in formula.numeric_names if rows.schema[name].is_integer()]
    used = rows.select(sorted(formula.names)).cast(dict.fromkeys(numbers, pl.Float64))
    # the response of the job's row is not used: any value will do
    job = pl.DataFrame([{**values, left: used[left][0]}]).select(
        pl.col(name).cast(used.schema[name]) for name in used.columns
    )
    made = design.make_design(pl.concat([used, job]), formula)
    of_runs = tuple(replace(column, values=column.values[:-1]) for column in made.columns)
    of_cells, cells = design.averaged(replace(made, response=made.response[:-1], columns=of_runs), rows)
    columns = of_cells.columns
    at = {column.name: float(column.values[-1]) for column in made.columns}
    kept, aliases = design.split_aliased(columns)
    matrix = np.column_stack([column.values for column in kept])
    scale = np.linalg.norm(matrix, axis=0)
    place = np.array([at[column.name] for column in kept])
    reasons = []
    for alias in aliases:
        weights = np.linalg.lstsq(matrix / scale, alias.column.values, rcond=None)[0]
        expected = float(place / scale @ weights)
        mine = at[alias.column.name]
        if abs(mine - expected) > _OUTSIDE * max(abs(mine), float(np.abs(alias.column.values).max())):
            others = [c.label for c in alias.carriers if c.label != INTERCEPT]
            reasons.append(_confounded(alias.column, others, rows))
    if reasons:
        raise refused(IMPOSSIBLE, [*never_together(rows, formula, values), *reasons])
    return kept, place, of_cells.response, cells


def _confounded(column: Column, others: Sequence[str], rows: pl.DataFrame) -> str:
    if not others:
        names = [name for name in re.findall(r"\w+", column.label) if name in rows.columns]
        held = " and ".join(f"{name} = {plain(rows[name].drop_nulls()[0])}" for name in names) or column.label
        return (
            f"every run has {held}, so that its effect is not known: ingest runs with another, or leave it out with "
            "--formula"
        )
    named = f"{', '.join(others[:_MOST_NAMED])}{' and others' if len(others) > _MOST_NAMED else ''}"
    return (
        f"the runs cannot separate {column.label} from {'a combination of ' if len(others) > 1 else ''}{named}, and "
        "in this job they do not occur together as in the runs"
    )
