"""The traffic of a described job by the regression's own least squares: a step, a run of so many steps, an hour.

The prediction is the fit at the job's row of the design, with its errors. A job that the runs do not determine is
refused; one that differs from the runs is refused too, unless the caller requests it, and then has the differences as
warnings. docs/prediction.md has the definitions.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl

from ddnn_traces.errors import PredictionError, RegressionError, UsageError
from ddnn_traces.regression import fitting, robustness
from ddnn_traces.regression.design import MIN_RUNS, RUN, clean_numbers
from ddnn_traces.regression.fit_at_job import FitAtJob, at_job
from ddnn_traces.regression.formula import INTERCEPT, Formula, terms_of
from ddnn_traces.regression.job_values import number_of, refused
from ddnn_traces.regression.results import LEVEL, SIZES, VOLUMES, Job, Predicted, Prediction, generated

#: Draws of volume and step time for the interval of an hour, and their seed.
DRAWS, SEED = 200_000, 0
_MS_AN_HOUR = 3_600_000.0
#: An interval of the step time whose ends differ by more times says nothing.
_WIDEST = 3
#: Levels that whoever plans a job chooses, beside those of the default formula.
_OF_A_JOB = ("optimizer", "congestion_control")


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
            number_of(name, value)
    chosen, notes = (formula, []) if formula is not None else _default(volumes, job)
    volume = at_job(volumes, chosen, VOLUMES, job)
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
        error = refused("not predicted, since the job differs from the runs:", warnings)
        raise PredictionError(f"{error}\n--extrapolate shows the numbers anyway")
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


def _dependences(rows: pl.DataFrame, volume: FitAtJob, job: Job) -> Iterator[str]:
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
            other = at_job(rows, longer, VOLUMES, job).predicted("step", "bytes")
        except (PredictionError, RegressionError):
            yield f"the prediction depends on {name}, which the formula lacks: with it the runs do not determine it"
            continue
        if mean.mean_low is not None and not mean.mean_low <= other.estimate <= (mean.mean_high or math.inf):
            yield (
                f"the prediction depends on {name}, which the formula lacks: with it {other.estimate / 1e6:,.3f} MB a "
                f"step, without it {mean.estimate / 1e6:,.3f}"
            )


def _left_open(rows: pl.DataFrame, volume: FitAtJob, job: Job) -> Iterator[str]:
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
            found = {level: at_job(rows, longer, VOLUMES, jobs[level]).predicted("step", "bytes") for level in levels}
        except (PredictionError, RegressionError):
            continue  # the runs do not tell their effect
        ends = [(one.low, one.high) for one in found.values()]
        if any(
            low is not None and high is not None and not low <= other.estimate <= high
            for low, high in ends for other in found.values()
        ):  # fmt: skip
            volumes = ", ".join(f"{level} {other.estimate / 1e6:,.3f} MB" for level, other in found.items())
            yield f"the volume of a step depends on {name}, which the job does not state ({volumes}): give {name}"


# --- the hour


def _hour(volume: FitAtJob, times: pl.DataFrame, job: Job) -> tuple[list[Predicted], Sequence[str], Sequence[str]]:
    """Step time and the volume of an hour by the runs' own step times, warnings, and notes.

    Both are a number for each run. Errors of the two fits are drawn together, as Student's t with the correlation that
    the residuals of the same runs have; the ends of the hour's intervals are quantiles of the draws.
    """
    from scipy import stats

    text, notes = _step_time_formula(volume.formula)
    try:
        time = at_job(times, text, ("step_ms",), job)
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


def _correlation(volume: FitAtJob, time: FitAtJob) -> float:
    """Of the residuals of the two fits over the runs that are in both; 0 where those are few, or one fit is exact."""
    mine, other = (dict(zip(p.cells[RUN].to_list(), p.fit.residuals.tolist(), strict=True)) for p in (volume, time))
    common = [run for run in mine if run in other]
    if len(common) < MIN_RUNS or volume.fit.is_exact or time.fit.is_exact:
        return 0.0
    pairs = np.array([[mine[run], other[run]] for run in common])
    return float(np.clip(np.corrcoef(pairs.T)[0, 1], -1, 1)) if pairs.std(axis=0).all() else 0.0
