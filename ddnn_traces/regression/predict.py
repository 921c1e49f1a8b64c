"""What a described job would send: a step, a run of so many steps, an hour; with intervals, or not at all.

The prediction is that of the regression's own ordinary least squares at the job's row of the design. A job that is not
like the runs is refused with all reasons, or predicted with them as warnings where the caller insists; what the runs
say nothing of is never predicted. docs/prediction.md has the definitions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ddnn_traces.errors import PredictionError, RegressionError, UsageError
from ddnn_traces.regression.design import INTERCEPT, terms_of
from ddnn_traces.regression.fitting import sized
from ddnn_traces.regression.formula import DEFAULT_FORMULA, Formula
from ddnn_traces.regression.job import Job, number
from ddnn_traces.regression.point import LEVEL, MIN_RUNS, Point, Predicted, point_of, refusal
from ddnn_traces.regression.results import made_up
from ddnn_traces.regression.rows import RUN, clean_numbers
from ddnn_traces.regression.verdicts import SIZES

if TYPE_CHECKING:
    import polars as pl

#: Draws of volume and step time for the interval of an hour, and where they begin.
DRAWS, SEED = 200_000, 0
_MS_AN_HOUR = 3_600_000.0


@dataclass(frozen=True)
class Prediction:
    """What a job would send. warnings: why it is an extrapolation; empty where it is none. notes: what else to know.

    runs: those of the fit; synthetic_runs: of them made up, not measured.
    """

    formula: str
    job: Job
    runs: int
    synthetic_runs: int
    predicted: tuple[Predicted, ...]
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def of(self, quantity: str) -> Predicted | None:
        """The number for that quantity, where there is one."""
        return next((p for p in self.predicted if p.quantity == quantity), None)

    @property
    def synthetic(self) -> str | None:
        """What must be said of made-up runs; None where there are none."""
        if not self.synthetic_runs:
            return None
        return f"{made_up(self.synthetic_runs, self.runs)} (made up by the laws of the collectives), not measured"


def predict(
    volumes: pl.DataFrame,
    times: pl.DataFrame,
    job: Job,
    formula: str | None = None,
    extrapolate: bool = False,
) -> Prediction:
    """Predict a job from runs: `volumes` as of the query run_step_volume, `times` as of run_step_time, one row a run.

    formula: None: that of regress, which takes nominal_bytes where no usable run has model_bytes. The hour needs
    job.step_ms, or a fit of the logarithm of step_ms to the formula's right side. Raises PredictionError
    where the runs say nothing of such a job, or where it is none like them and `extrapolate` is false; UsageError for a
    job that is not described, RegressionError for a formula that cannot be used.
    """
    for name, value in (("steps", job.steps), ("step_ms", job.step_ms)):
        if value is not None:
            number(name, value)
    chosen, notes = (formula, []) if formula is not None else _default(volumes, job)
    volume = point_of(volumes, chosen, "step_bytes", job)
    warnings = [*volume.warnings]
    notes += volume.notes
    step = volume.predicted("step", "bytes")
    if not step.estimate > 0:
        warnings.append(
            f"the predicted volume is negative ({step.estimate / 1e6:,.3f} MB a step), which none can be; a "
            "formula of logarithms, np.log(step_bytes) ~ np.log(model_bytes) + ..., never predicts one"
        )
    elif step.low is not None and step.low < 0:
        notes.append("the prediction interval reaches below 0, which no volume does: read its lower end as 0")
    found = [step]
    if job.steps is not None:
        found.append(step.times(job.steps, "run"))
    if job.step_ms is not None:
        found.append(step.times(_MS_AN_HOUR / job.step_ms, "hour"))
    else:
        hour, more, why = _hour(volume, times, job)
        found += hour
        warnings += more
        notes += why
    if warnings and not extrapolate:
        raise PredictionError(refusal(warnings, True))
    return Prediction(
        formula=volume.formula.text,
        job=job,
        runs=volume.rows.height,
        synthetic_runs=volume.synthetic_runs,
        predicted=tuple(found),
        warnings=tuple(dict.fromkeys(warnings)),
        notes=tuple(dict.fromkeys(notes)),
    )


def _default(volumes: pl.DataFrame, job: Job) -> tuple[str, list[str]]:
    """The formula of regress for these runs, and what to say of its size. Raises UsageError if the job lacks that."""
    chosen, said = sized(clean_numbers(volumes), DEFAULT_FORMULA)
    nominal = SIZES[1]
    if said and job.values.get(nominal) is None:
        raise UsageError(f"{' '.join(said)} Give the job's {nominal} too, or another formula.")
    return chosen, [f"{note[0].lower()}{note[1:].rstrip('.')}" for note in said]


# --- the hour


def _step_time_formula(formula: Formula) -> tuple[str, list[str]]:
    """The formula of the logarithm of the step time, and what to say of it.

    It has an intercept always: without one, the step of a job of no size would last 1 ms.
    """
    right = formula.text.split("~")[1].strip()
    terms = terms_of(formula)
    if INTERCEPT in terms:
        return f"np.log(step_ms) ~ {right}", []
    text = f"np.log(step_ms) ~ {' + '.join(['1', *terms])}"
    return text, [f"the step time is fitted with an intercept, which the formula leaves out: {text}"]


def _hour(volume: Point, times: pl.DataFrame, job: Job) -> tuple[list[Predicted], Sequence[str], Sequence[str]]:
    """Step time and the volume of an hour by the runs' own step times, warnings, and notes.

    Both are a number for each run. Errors of the two fits are drawn together, as Student's t with the correlation that
    the residuals of the same runs have; the ends of the hour's intervals are quantiles of the draws.
    """
    import numpy as np
    from scipy import stats

    text, notes = _step_time_formula(volume.formula)
    try:
        time = point_of(times, text, "step_ms", job)
        step_time = time.predicted("step_time", "ms")
    except (PredictionError, RegressionError) as error:
        return [], [], [f"no volume of an hour, for the step time {str(error).replace(chr(10), ' ')}; give step_ms"]
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
        drawn = [p.undone(p.centre + getattr(p, kind) * t) for p, t in zip((volume, time), student, strict=True)]
        quantiles = np.quantile(drawn[0] / drawn[1], [(1 - LEVEL) / 2, (1 + LEVEL) / 2]) * _MS_AN_HOUR
        ends |= dict(zip(names, quantiles.tolist(), strict=True))
    notes.append(
        "hour: the volume of a step over the median step time; the two vary together (their residuals correlate by "
        f"{correlation:.2f}), and the intervals are quantiles of {DRAWS:,} draws of both"
    )
    return [step_time, replace(hour, **ends)], warnings, notes


def _correlation(volume: Point, time: Point) -> float:
    """Of the two fits' residuals over the runs that are in both; 0 where too few are, or one fit is exact."""
    import numpy as np

    mine = dict(zip(volume.rows[RUN].to_list(), volume.residuals.tolist(), strict=True))
    other = dict(zip(time.rows[RUN].to_list(), time.residuals.tolist(), strict=True))
    common = [run for run in mine if run in other]
    if len(common) < MIN_RUNS or volume.is_exact or time.is_exact:
        return 0.0
    pairs = np.array([[mine[run], other[run]] for run in common])
    if not pairs.std(axis=0).all():
        return 0.0
    return float(np.clip(np.corrcoef(pairs.T)[0, 1], -1, 1))
