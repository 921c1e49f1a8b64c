"""The traffic of a described job by the regression's own least squares: a step, a run of so many steps, an hour.

The prediction is the fit at the job's row of the design, with its errors. A job that the runs do not determine is
refused; one that differs from the runs is refused too, unless the caller requests it, and then has the differences as
warnings. docs/prediction.md has the definitions.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from typing import Any

import numpy as np
import polars as pl

from ddnn_traces.errors import PredictionError, RegressionError, UsageError
from ddnn_traces.regression import design, fitting, robustness
from ddnn_traces.regression.design import CELL, MEASURED, MIN_RUNS, RUN, clean_numbers
from ddnn_traces.regression.estimate import Column, Estimate, Vector
from ddnn_traces.regression.formula import INTERCEPT, Formula, inverse, parse, terms_of
from ddnn_traces.regression.inference import breusch_pagan, level_variances
from ddnn_traces.regression.results import (
    ALPHA,
    LEVEL,
    SIZES,
    VOLUMES,
    Job,
    Predicted,
    Prediction,
    degrees,
    generated,
    p_text,
    plain,
)
from ddnn_traces.text import counted, nearest

#: p of Bartlett's test below which the scatter is taken by level: a wrong pooling costs coverage, a wrong separation
#: only width (docs/regression.md has both).
_DIFFERS = 0.5
#: Degrees of freedom from which a level's variance is its own also where it is smaller than that of all.
_OF_MANY = 5
#: Draws of volume and step time for the interval of an hour, and their seed.
DRAWS, SEED = 200_000, 0
_MS_AN_HOUR = 3_600_000.0
#: An interval of the step time whose ends differ by more times says nothing.
_WIDEST = 3
#: Columns of a model's size, one of which in a formula represents all.
_ALL_SIZES = frozenset({*SIZES, "model_size_mb"})
_POSITIVE = _ALL_SIZES | {"batch_size", "workers", "steps", "step_ms"}
_MOST_NAMED = 5
#: Levels that whoever plans a job chooses, beside those of the default formula.
_OF_A_JOB = ("optimizer", "congestion_control")
_IMPOSSIBLE = "cannot be predicted from these runs:"
#: Of a dropped column's largest value, how far the job's may lie from the combination of the other columns.
_OUTSIDE = 1e-7


def predict(
    volumes: pl.DataFrame, times: pl.DataFrame, job: Job, formula: str | None = None, extrapolate: bool = False
) -> Prediction:
    """Predict a job from runs: `volumes` as of the query run_step_volume, `times` as of run_step_time, one row a run.

    formula: of step_bytes or worker_bytes; None: the default one of regress. The hour needs job.step_ms, or a fit of
    the logarithm of step_ms to the formula's right side. Raises PredictionError where the runs do not determine the
    job's traffic, or where the job differs from them and `extrapolate` is false; UsageError for a job whose description
    is incomplete or invalid, RegressionError for a formula that cannot be used.
    """
    for name, value in (("steps", job.steps), ("step_ms", job.step_ms)):
        if value is not None:
            _number(name, value)
    chosen, notes = (formula, []) if formula is not None else _default(volumes, job)
    volume = _point(volumes, chosen, VOLUMES, job)
    warnings = [*volume.warnings, *_dependences(volumes, volume, job), *_left_open(volumes, volume, job)]
    notes += volume.notes
    step = volume.predicted("step", "bytes")
    if not step.estimate > 0:
        warnings.append(
            f"the predicted volume is negative ({step.estimate / 1e6:,.3f} MB a step), which is impossible; a "
            "formula of logarithms, np.log(step_bytes) ~ np.log(model_bytes) + ..., never predicts one"
        )
    elif step.low is not None and step.low < 0:
        notes.append("the prediction interval extends below 0, which no volume does: read its lower end as 0")
    found = [step]
    if job.steps is not None:
        found.append(step.times(job.steps, "run"))
    if job.step_ms is not None:
        found.append(step.times(_MS_AN_HOUR / job.step_ms, "hour"))
    else:
        hour, more, why = _hour(volume, times, job)
        if more and not extrapolate and "implied_bytes" in volume.formula.left_names:
            # the law tells the volume of what was never run, and not its time
            notes.append(f"no step time and no volume of an hour: {'; '.join(more)}; give step_ms")
        else:
            found += hour
            warnings += more
            notes += why
    if warnings and not extrapolate:
        refused = _refused("not predicted, since the job differs from the runs:", warnings)
        raise PredictionError(f"{refused}\n--extrapolate shows the numbers anyway")
    sources = volume.rows["source"].to_list() if "source" in volume.rows.columns else []
    return Prediction(
        formula=volume.formula.text, job=job, runs=volume.rows.height, synthetic_runs=generated(sources),
        predicted=tuple(found), warnings=tuple(dict.fromkeys(warnings)), notes=tuple(dict.fromkeys(notes)),
    )  # fmt: skip


def _default(volumes: pl.DataFrame, job: Job) -> tuple[str, list[str]]:
    """The formula of regress for these runs, and the note on its size. Raises UsageError if the job lacks that."""
    chosen, notes = fitting.default_formula(clean_numbers(volumes), fitting.BY_LAW)
    nominal = SIZES[1]
    if nominal in chosen and job.values.get(nominal) is None:
        raise UsageError(f"{notes[-1]} Give the job's {nominal} too, or another formula.")
    return chosen, [f"{note[0].lower()}{note[1:].rstrip('.')}" for note in notes]


def _dependences(rows: pl.DataFrame, volume: _Point, job: Job) -> Iterator[str]:
    """Attributes of the job that the formula lacks and on which the prediction depends.

    The prediction is repeated with each in which the runs differ: it depends on the attribute if it then cannot be
    made, or lies outside the interval of the mean.
    """
    mean = volume.predicted("step", "bytes")
    for name in robustness.ATTRIBUTES:
        known = volume.rows[name].drop_nulls() if name in volume.rows.columns else pl.Series()
        by_law = name == "workers" and "implied_bytes" in volume.formula.left_names
        if name in volume.formula.names or by_law or known.n_unique() < 2 or job.values.get(name) is None:
            continue
        longer = robustness.with_attributes(volume.formula, (name,), volume.rows)
        try:
            other = _point(rows, longer, VOLUMES, job).predicted("step", "bytes")
        except (PredictionError, RegressionError):
            yield f"the prediction depends on {name}, which the formula lacks: with it the runs do not determine it"
            continue
        if mean.mean_low is not None and not mean.mean_low <= other.estimate <= (mean.mean_high or math.inf):
            yield (
                f"the prediction depends on {name}, which the formula lacks: with it {other.estimate / 1e6:,.3f} MB a "
                f"step, without it {mean.estimate / 1e6:,.3f}"
            )


def _left_open(rows: pl.DataFrame, volume: _Point, job: Job) -> Iterator[str]:
    """Attributes that the job does not state, in which the runs like it differ, and on which the prediction depends.

    It depends on one where the prediction interval at a level does not hold the estimate at another.
    """
    stated = [name for name in volume.formula.right_names if isinstance(job.values.get(name), str)]
    alike = volume.rows.filter(pl.lit(True), *(pl.col(name) == job.values[name] for name in stated))
    for name in (name for name in _OF_A_JOB if name in alike.columns and name not in volume.formula.names):
        levels = sorted(alike[name].drop_nulls().unique().to_list())
        if len(levels) < 2 or job.values.get(name) is not None:
            continue
        longer = robustness.with_attributes(volume.formula, (name,), volume.rows)
        try:
            jobs = {level: replace(job, values={**job.values, name: level}) for level in levels}
            found = {level: _point(rows, longer, VOLUMES, jobs[level]).predicted("step", "bytes") for level in levels}
        except (PredictionError, RegressionError):
            continue  # the runs do not tell their effect
        ends = [(one.low, one.high) for one in found.values()]
        if any(
            low is not None and high is not None and not low <= other.estimate <= high
            for low, high in ends for other in found.values()
        ):  # fmt: skip
            volumes = ", ".join(f"{level} {other.estimate / 1e6:,.3f} MB" for level, other in found.items())
            yield f"the volume of a step depends on {name}, which the job does not state ({volumes}): give {name}"


def _refused(start: str, reasons: Iterable[str]) -> PredictionError:
    return PredictionError("\n- ".join([start, *dict.fromkeys(reasons)]))


# --- the hour


def _hour(volume: _Point, times: pl.DataFrame, job: Job) -> tuple[list[Predicted], Sequence[str], Sequence[str]]:
    """Step time and the volume of an hour by the runs' own step times, warnings, and notes.

    Both are a number for each run. Errors of the two fits are drawn together, as Student's t with the correlation that
    the residuals of the same runs have; the ends of the hour's intervals are quantiles of the draws.
    """
    from scipy import stats

    text, notes = _step_time_formula(volume.formula)
    try:
        time = _point(times, text, ("step_ms",), job)
        step_time = time.predicted("step_time", "ms")
    except (PredictionError, RegressionError) as error:
        return [], [], [f"no volume of an hour, for the step time {str(error).replace(chr(10), ' ')}; give step_ms"]
    if step_time.low is not None and step_time.high is not None and step_time.high > _WIDEST * step_time.low:
        return [], [], [
            f"no step time and no volume of an hour: the step time of such a run lies between {step_time.low:,.0f} and "
            f"{step_time.high:,.0f} ms (95%), whose ends differ by more than {_WIDEST} times; give step_ms, or a "
            "--formula with what the step time depends on (delay_ms, bandwidth_mbit, loss_pct)"
        ]  # fmt: skip
    step = volume.predicted("step", "bytes")
    hour = Predicted("hour", "bytes", step.estimate * _MS_AN_HOUR / step_time.estimate, *(None,) * 4, "ratio")
    warnings = [f"step time: {warning}" for warning in time.warnings if warning not in volume.warnings]
    notes += [f"step time: {note}" for note in time.notes if note not in volume.notes]
    if step.low is None and step_time.low is None:
        return [step_time, hour], warnings, notes
    correlation = _correlation(volume, time)
    draws = np.random.default_rng(SEED)
    normal = draws.standard_normal((2, DRAWS))
    normal[1] = correlation * normal[0] + math.sqrt(1 - correlation**2) * normal[1]
    student = [stats.t.ppf(stats.norm.cdf(z), p.df) for z, p in zip(normal, (volume, time), strict=True)]
    ends: dict[str, Any] = {}
    for kind, names in (("mean_error", ("mean_low", "mean_high")), ("new_error", ("low", "high"))):
        drawn = [p.invert(p.centre + getattr(p, kind) * t) for p, t in zip((volume, time), student, strict=True)]
        quantiles = np.quantile(drawn[0] / drawn[1], [(1 - LEVEL) / 2, (1 + LEVEL) / 2]) * _MS_AN_HOUR
        ends |= dict(zip(names, quantiles.tolist(), strict=True))
    notes.append(
        "hour: the volume of a step over the median step time; the two vary together (their residuals correlate by "
        f"{correlation:.2f}), and the intervals are quantiles of {DRAWS:,} draws of both"
    )
    return [step_time, replace(hour, **ends)], warnings, notes


def _step_time_formula(formula: Formula) -> tuple[str, list[str]]:
    """The formula of the logarithm of the step time, and a note where it differs.

    It always has an intercept: without one, the step of a job of no size would last 1 ms.
    """
    terms = terms_of(formula)
    if INTERCEPT in terms:
        return f"np.log(step_ms) ~ {formula.right}", []
    text = f"np.log(step_ms) ~ {' + '.join(['1', *terms])}"
    return text, [f"the step time is fitted with an intercept, which the formula leaves out: {text}"]


def _correlation(volume: _Point, time: _Point) -> float:
    """Of the residuals of the two fits over the runs that are in both; 0 where those are few, or one fit is exact."""
    mine, other = (dict(zip(p.cells[RUN].to_list(), p.fit.residuals.tolist(), strict=True)) for p in (volume, time))
    common = [run for run in mine if run in other]
    if len(common) < MIN_RUNS or volume.fit.is_exact or time.fit.is_exact:
        return 0.0
    pairs = np.array([[mine[run], other[run]] for run in common])
    return float(np.clip(np.corrcoef(pairs.T)[0, 1], -1, 1)) if pairs.std(axis=0).all() else 0.0


# --- the fit at the job


@dataclass(frozen=True)
class _Point:
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


def _point(rows: pl.DataFrame, text: str, responses: Collection[str], job: Job) -> _Point:
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
    described = _described(usable, formula, job)
    scale = 1.0
    if response == "worker_bytes":
        scale = _workers(usable, described)
    elif response == "implied_bytes":
        scale = _law_factor(usable, described)
    values = {name: described[name] for name in sorted(formula.right_names)}
    _check_levels(usable, formula, values)
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
        *_outside(usable, formula, values), *_never_together(usable, formula, values),
        *_differences(usable, formula, described),
    ]  # fmt: skip
    if leverage > largest * (1 + 1e-9):
        warnings.append(
            f"the job lies outside the space that the runs span together: leverage {leverage:.3g}, where the largest "
            f"of a run is {largest:.3g} (hidden extrapolation)"
        )
    of_cell, df, by_level, by_level_p = _of_cell(fit, cells, formula, values, own, coordinates)
    notes = [*_unused_notes(usable, formula, described), *_fit_notes(fit, formula, by_level, by_level_p)]
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

    return _Point(formula, usable, cells, fit, centre, mean_error, new_error, df, invert, tuple(warnings), tuple(notes))


def _workers(rows: pl.DataFrame, described: Mapping[str, Any]) -> float:
    """The workers of the job: as described, else those of the runs where all have the same."""
    known = rows["workers"].drop_nulls().unique().to_list()
    if "workers" in described:
        return float(described["workers"])
    if len(known) == 1:
        return float(known[0])
    raise UsageError(
        f"what a worker sends is predicted: give the job's workers (the runs have {_range(rows, 'workers')})"
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
        raise PredictionError(
            f"no law is known of the volume of {described.get('topology', 'this topology')} among "
            f"{counted(int(described['workers']), 'worker')}; give --set law_factor=, the model sizes that all send "
            "in a step"
        )
    raise UsageError(
        f"the law of the collective needs the job's workers (the runs have {_range(rows, 'workers')}) and topology"
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
    filled = [name for name in _attributes(rows) if name != "source" and rows[name].count()]
    why = f"; no run has {' or '.join(empty)}, but there are {', '.join(filled)} for a --formula" if empty else ""
    return f"{fitting.cells_text(found)}, and at least {MIN_RUNS} are needed{why}"


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
        raise _refused(_IMPOSSIBLE, [*_never_together(rows, formula, values), *reasons])
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


# --- the job's description


def _attributes(rows: pl.DataFrame) -> list[str]:
    """The columns that are attributes of a job."""
    return sorted(set(rows.columns) - MEASURED)


def _described(rows: pl.DataFrame, formula: Formula, job: Job) -> dict[str, Any]:
    """The given attributes of the job, numbers as floats.

    Raises UsageError for a name that is not an attribute, an invalid value, and a missing column of the right side.
    """
    values: dict[str, Any] = {}
    for name, value in job.values.items():
        if value is None:
            continue
        if name not in _attributes(rows):
            raise UsageError(f"{name} is not an attribute of the runs; {nearest(name, _attributes(rows))}")
        values[name] = _value(name, value, rows[name].dtype)
    missing = sorted(formula.right_names - values.keys())
    if missing:
        raise UsageError(
            f"the formula {formula.text} needs the job's {', '.join(missing)}; give them, or another formula"
        )
    return values


def _value(name: str, value: Any, of_runs: pl.DataType) -> Any:
    """The value in the type that the runs have. Raises UsageError."""
    if of_runs == pl.Boolean:
        if str(value).lower() not in ("true", "false"):
            raise UsageError(f"{name} = {value}: give true or false")
        return str(value).lower() == "true"
    return _number(name, value) if of_runs.is_numeric() else str(value)


def _number(name: str, value: Any) -> float:
    """The value as a number that the attribute can have. Raises UsageError."""
    try:
        found = float(value)
    except (TypeError, ValueError):
        raise UsageError(f"{name} = {value}: give a number") from None
    if not math.isfinite(found):
        raise UsageError(f"{name} = {value}: give a finite number")
    if name in _POSITIVE and not found > 0:
        raise UsageError(f"{name} = {value}: give a number above 0")
    return found


# --- differences of the job from the runs


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
            near = ", ".join(str(level) for level in _nearest_first(values[name], levels))
            reasons.append(f"no run has {name} = {plain(values[name])}; there are, the nearest first: {near}")
    if reasons:
        raise _refused(_IMPOSSIBLE, reasons)


def _nearest_first(value: Any, levels: Sequence[Any]) -> list[Any]:
    """The levels, the nearest first: in value where they are numbers, else in letters."""
    if isinstance(value, float):
        return sorted(levels, key=lambda level: (abs(level - value), level))
    return sorted(levels, key=lambda level: (-SequenceMatcher(None, value, str(level)).ratio(), str(level)))


def _outside(rows: pl.DataFrame, formula: Formula, values: Mapping[str, Any]) -> list[str]:
    """Numbers outside the measured range."""
    found = []
    for name in sorted(formula.right_names - set(_categorical(rows, formula))):
        low, high = float(rows[name].min()), float(rows[name].max())  # type: ignore[arg-type]
        if not low <= values[name] <= high:
            found.append(f"{name} = {plain(values[name])} is outside the measured range, {plain(low)} to {plain(high)}")
    return found


def _never_together(rows: pl.DataFrame, formula: Formula, values: Mapping[str, Any]) -> list[str]:
    """The job's levels, where they were never measured together, and the combination that shares most of them."""
    levels = _categorical(rows, formula)
    combinations = rows.select(levels).unique().sort(levels).to_dicts() if len(levels) > 1 else []
    if len(levels) < 2 or any(all(row[name] == values[name] for name in levels) for row in combinations):
        return []
    nearest_one = max(combinations, key=lambda row: sum(row[name] == values[name] for name in levels))
    together, near = (", ".join(f"{name} = {plain(row[name])}" for name in levels) for row in (values, nearest_one))
    return [f"no run has these together: {together}; the nearest: {near}"]


def _differences(rows: pl.DataFrame, formula: Formula, values: Mapping[str, Any]) -> list[str]:
    """Attributes of the job that are not in the formula, and so without effect, and that differ from the runs'.

    Workers and words differ where no run has the value, other numbers where they are outside the runs' range. A second
    size of the model may differ from the runs'.
    """
    found = []
    used = formula.right_names | (_ALL_SIZES if formula.right_names & _ALL_SIZES else set())
    if "implied_bytes" in formula.left_names:
        used |= {"workers"}
    for name in sorted(set(values) - used - {"law_factor"}):
        known, value = rows[name].drop_nulls(), values[name]
        if known.is_empty():
            found.append(f"the runs have no {name}, which is not in the formula")
            continue
        if name == "workers" or not known.dtype.is_numeric():
            differs = value not in known.to_list()
        else:
            differs = not float(known.min()) <= value <= float(known.max())  # type: ignore[arg-type]
        if differs:
            found.append(
                f"{name} = {plain(value)}, where the runs have {_range(rows, name)}, and it is not in the formula"
            )
    return found


def _unused_notes(rows: pl.DataFrame, formula: Formula, values: Mapping[str, Any]) -> list[str]:
    """Attributes of the job, and workers of the runs, that are not in the formula."""
    notes = []
    unused = [
        f"{name} (the runs have {_range(rows, name)})" if rows[name].drop_nulls().n_unique() > 1 else name
        for name in sorted(set(values) - formula.right_names - {"workers", "law_factor"})
    ]
    if unused:
        notes.append(f"not in the formula, and so without effect: {', '.join(unused)}")
    if "implied_bytes" in formula.left_names:
        if "workers" in values and values["workers"] not in rows["workers"].to_list():
            notes.append(
                f"no run has {plain(values['workers'])} workers: they enter by the law of the collective, "
                f"{plain(values['law_factor'])} model sizes a step"
            )
        return notes
    has_workers = "workers" in rows.columns and "workers" not in formula.right_names
    if has_workers and rows["workers"].drop_nulls().n_unique() > 1:
        notes.append(f"the runs have {_range(rows, 'workers')} workers, not in the formula")
    return notes


def _range(rows: pl.DataFrame, name: str) -> str:
    """The values of workers and of words, least and largest of other numbers."""
    values = rows[name].drop_nulls().unique().sort().to_list()
    if name == "workers" or not rows[name].dtype.is_numeric():
        return ", ".join(map(plain, values))
    return plain(float(values[0])) if len(values) == 1 else f"{plain(float(values[0]))} to {plain(float(values[-1]))}"
