"""How far the what-if is from runs that no fit saw: each job is left out of the constants and of the choice of p.

A condition of a job is predicted from its other conditions without loss, which give C, by constants of its program that
other jobs were fitted to, and with the exponent that predicts those other jobs best, each left out of its own fit
again. Classes are given by the condition alone. Beside each prediction: the nearest run of the job unchanged, a line in
delay and 1/rate through the job's other conditions, and how far repeats of the condition differ.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from ddnn_traces.errors import UsageError
from ddnn_traces.query.dataset import Dataset
from ddnn_traces.text import counted
from ddnn_traces.traffic.simulator import what_if
from ddnn_traces.traffic.simulator.what_if import Calibration, Change, Facts, Program

#: Exponents to choose from; 1 is the sum, 8 nearly the larger.
EXPONENTS = (1.0, 1.5, 2.0, 3.0, 4.0, 8.0)
NO_LOSS = "no loss"
_COVERED = 0.9
#: Errors from which quantile() tells: the least n with ceil((n + 1) * _COVERED) <= n.
_LEAST_ERRORS = 9


def condition_class(facts: Facts) -> str:
    """The class of a condition: of its loss and congestion control, nothing measured."""
    if facts.loss_pct == 0:
        return NO_LOSS
    return f"loss, {facts.congestion_control or 'congestion control not declared'}"


class _Cell(NamedTuple):
    """A condition of a job: its runs, and those of the job's other conditions without loss."""

    runs: list[Facts]
    others: list[list[Facts]]

    @property
    def first(self) -> Facts:
        return self.runs[0]

    @property
    def measured_ms(self) -> float:
        return _median_ms(self.runs)


class LeftOut:
    """Errors of jobs that are left out, each fit made once."""

    def __init__(self, facts: Sequence[Facts]) -> None:
        self.facts = facts
        self._programs: dict[tuple[str, frozenset[str], float], Program] = {}

    @cached_property
    def cells(self) -> dict[str, list[_Cell]]:
        """The conditions of each job that another condition without loss can predict."""
        jobs: dict[str, dict[str, list[Facts]]] = {}
        for f in sorted(self.facts, key=lambda f: (f.job, f.condition, f.run_id)):
            jobs.setdefault(f.job, {}).setdefault(f.condition, []).append(f)
        found = {}
        for job, conditions in jobs.items():
            clean = {name: runs for name, runs in conditions.items() if runs[0].loss_pct == 0}
            cells = [_Cell(runs, [clean[n] for n in clean if n != name]) for name, runs in conditions.items()]
            if cells := [cell for cell in cells if cell.others]:
                found[job] = cells
        return found

    def program(self, name: str, without: frozenset[str], exponent: float) -> Program:
        """Constants of a program, fitted to its runs without loss of other jobs than these."""
        own = frozenset(job for job in without if job in self._jobs_of(name))
        key = (name, own, exponent)
        if key not in self._programs:
            fitted = [f for f in self.facts if f.program == name and f.job not in own and f.loss_pct == 0]
            self._programs[key] = what_if.fit_program(fitted, exponent)
        return self._programs[key]

    def _jobs_of(self, program: str) -> set[str]:
        return {f.job for f in self.facts if f.program == program}

    def predicted_ms(self, cell: _Cell, without: frozenset[str], exponent: float) -> float:
        f = cell.first
        program = self.program(f.program, without | {f.job}, exponent)
        own = what_if.own_ms([run for runs in cell.others for run in runs], program, exponent)
        return Calibration({f.program: program}, {}, exponent).step_ms(f, own)

    def errors(self, jobs: Sequence[str], without: frozenset[str], exponent: float) -> list[float]:
        """|log(predicted / measured)| of the conditions without loss of these jobs."""
        return [
            abs(math.log(self.predicted_ms(cell, without, exponent) / cell.measured_ms))
            for job in jobs
            for cell in self.cells[job]
            if cell.first.loss_pct == 0
        ]

    def choice(self, job: str | None) -> tuple[float, list[float]]:
        """The exponent with the least mean error of all jobs but this one, and those errors."""
        jobs = [name for name in self.cells if name != job]
        without = frozenset(() if job is None else (job,))
        errors = {exponent: self.errors(jobs, without, exponent) for exponent in EXPONENTS}
        if not any(errors.values()):
            return what_if.EXPONENT, []
        chosen = min(EXPONENTS, key=lambda exponent: float(np.mean(errors[exponent])))
        return chosen, errors[chosen]


def score(facts: Sequence[Facts]) -> pl.DataFrame:
    """Predict each condition of each job by fits and a choice that did not see the job: a row a job and condition.

    job, condition, class (condition_class), runs, measured_ms (median of the runs), predicted_ms, low_ms and high_ms
    (90% by the errors of other jobs; null where those are too few), exponent (chosen), error, nearest_error and
    additive_error (shares of the measured), repeat_error (median difference of two runs of this cell; null for one).
    """
    left, rows = LeftOut(facts), []
    for job, cells in left.cells.items():
        exponent, errors = left.choice(job)
        wide = quantile(errors)
        for cell in cells:
            measured = cell.measured_ms
            predicted = left.predicted_ms(cell, frozenset((job,)), exponent)
            rows.append({
                "job": job, "condition": cell.first.condition, "class": condition_class(cell.first),
                "runs": len(cell.runs), "measured_ms": measured, "predicted_ms": predicted,
                "low_ms": None if wide is None else predicted / wide,
                "high_ms": None if wide is None else predicted * wide, "exponent": exponent,
                "error": predicted / measured - 1, "nearest_error": _nearest_ms(cell) / measured - 1,
                "additive_error": _additive_ms(cell) / measured - 1, "repeat_error": _repeat(cell.runs),
            })  # fmt: skip
    texts, numbers = ("job", "condition", "class"), ("measured_ms", "predicted_ms", "low_ms", "high_ms", "exponent")
    errors_of = ("error", "nearest_error", "additive_error", "repeat_error")
    types = (
        dict.fromkeys(texts, pl.String()) | {"runs": pl.Int64()} | dict.fromkeys((*numbers, *errors_of), pl.Float64())
    )
    return pl.DataFrame(rows, schema=types).sort("job", "condition")


def quantile(errors: Sequence[float]) -> float | None:
    """Factor within which 90% of predictions of a new run are, by errors of others (conformal); None for under 9."""
    rank = math.ceil((len(errors) + 1) * _COVERED)
    return math.exp(sorted(errors)[rank - 1]) if rank <= len(errors) else None


def _nearest_ms(cell: _Cell) -> float:
    """The measured time of the nearest other condition."""

    def distance(runs: Sequence[Facts]) -> float:
        other = runs[0]
        rate = abs(math.log(other.bandwidth_mbit / cell.first.bandwidth_mbit))
        delay = abs(math.log((other.delay_ms + 1) / (cell.first.delay_ms + 1)))
        return float(rate + delay) + 0.1 * (other.congestion_control != cell.first.congestion_control)

    return _median_ms(min(cell.others, key=distance))


def _additive_ms(cell: _Cell) -> float:
    """A line in delay and 1/rate through the other conditions (the shortest one, where they are fewer than three)."""

    def terms(f: Facts) -> list[float]:
        return [1.0, f.delay_ms / 100, 1000 / f.bandwidth_mbit]

    times = [_median_ms(runs) for runs in cell.others]
    found = np.linalg.lstsq(np.array([terms(runs[0]) for runs in cell.others]), np.array(times), rcond=None)[0]
    return float(np.dot(terms(cell.first), found))


def _median_ms(runs: Sequence[Facts]) -> float:
    return float(np.median([f.step_ms for f in runs]))


def _repeat(runs: Sequence[Facts]) -> float | None:
    times = [f.step_ms for f in runs]
    pairs = [abs(a / b - 1) for i, a in enumerate(times) for j, b in enumerate(times) if i != j]
    return float(np.median(pairs)) if pairs else None


def of_run(dataset: Dataset, run_id: str, given: Mapping[str, Any], link_mbit: float | None = None) -> pl.DataFrame:
    """what_if.like() for a run of a dataset. link_mbit: as of read().

    low_ms and high_ms: 90% of a changed network, by the errors of the dataset's jobs that were left out; null where
    fewer than 9 conditions tell, and for changes of more than the network, which are not in that score.

    Raises UsageError for an unknown run and for a key that is no change of the network.
    """
    if link_mbit is not None and not 0 < link_mbit < math.inf:
        raise UsageError(f"link_mbit = {link_mbit!r}; it must be above 0")
    changes = set(Change.__dataclass_fields__)
    if unknown := sorted(given.keys() - changes):
        raise UsageError(f"{unknown[0]}: --like does not change it; it changes {', '.join(sorted(changes))}")
    if run_id not in (runs := dataset.run_ids):
        raise what_if.unknown_run(run_id, runs)  # before all runs are read, which takes seconds
    facts, problems = what_if.read(dataset, link_mbit)
    if found := [problem for name, problem in problems if name == run_id]:
        raise UsageError(f"{run_id}: cannot be replayed: {found[0]}")
    change = Change(**given)
    rows = what_if.like(facts, run_id, change)
    wide = quantile(LeftOut(facts).choice(None)[1]) if change.is_of_network else None
    is_changed, step = pl.col("what") == "changed", pl.col("step_ms")
    factor = pl.when(is_changed).then(pl.lit(wide, pl.Float64))
    low = pl.max_horizontal(step / factor, pl.min_horizontal("floor_ms", step))
    return rows.with_columns(low_ms=pl.when(factor.is_not_null()).then(low), high_ms=step * factor)


def why_no_interval(rows: pl.DataFrame, given: Mapping[str, Any]) -> str | None:
    """Why a changed run in the rows of of_run() has no interval; None where it has one, or nothing is changed."""
    if rows.filter((pl.col("what") == "changed") & pl.col("high_ms").is_null()).is_empty():
        return None
    if not Change(**given).is_of_network:
        return "low_ms, high_ms: the interval of 90% is of changes of rate and delay alone"
    return (
        f"low_ms, high_ms: no interval of 90%: it takes {_LEAST_ERRORS} conditions without loss, of jobs of this "
        "dataset that were measured under two or more; 'ddnn-traces simulate score' lists them"
    )


def unknown_computation(rows: pl.DataFrame) -> str | None:
    """That the computation of the replayed run in the rows of of_run() is unknown; None where it is known."""
    if rows.filter((pl.col("what") == "replayed") & pl.col("computation_ms").is_null()).is_empty():
        return None
    return (
        "computation_ms: unknown without phases-worker-N.csv in the run's folder; a step's time is less sure then: "
        "error says how far off the replayed one is"
    )


def scored(dataset: Dataset) -> tuple[pl.DataFrame, list[str]]:
    """score() of a dataset, and what it comes to in lines: a class each, what it is compared with, what is not scored.

    Raises UsageError.
    """
    facts, problems = what_if.read(dataset)
    rows = score(facts)
    if rows.is_empty():
        raise UsageError("no job of this dataset was measured under two conditions of the network")
    single = len({f.job for f in facts}) - rows["job"].n_unique()
    left_out = (
        f"{counted(single, 'job')} with one condition only: not scored; {counted(len(problems), 'run')} not replayed"
    )
    return rows, [*summary(rows), left_out]


def summary(rows: pl.DataFrame) -> list[str]:
    """A line for each class of score(), and one for the noise between repeats."""
    names = sorted(set(rows["class"]), key=lambda name: (name != NO_LOSS, name))
    lines = [_summary(name, rows.filter(pl.col("class") == name)) for name in names]
    if repeats := rows.filter(pl.col("class") == NO_LOSS)["repeat_error"].drop_nulls().to_list():
        differ = f"{np.median(np.array(repeats)):.1%} (median of {counted(len(repeats), 'condition')})"
        lines.append(f"two runs of one condition without loss differ by {differ}")
    return lines


def _summary(name: str, rows: pl.DataFrame) -> str:
    errors, nearest, additive = (
        np.abs(rows[column].to_numpy()) for column in ("error", "nearest_error", "additive_error")
    )
    said = f"{name}: median error {np.median(errors):.1%}, mean {np.mean(errors):.1%} "
    said += f"of {counted(len(rows), 'condition')}, {int((errors <= 0.15).sum())} within 15%"
    told = rows.drop_nulls("low_ms")
    if len(told):
        covered = told.filter(pl.col("measured_ms").is_between("low_ms", "high_ms"))
        said += f", {len(covered)} of {len(told)} in their interval of 90%"
    said += f". The nearest run {np.median(nearest):.1%}, a line in delay and 1/rate {np.median(additive):.1%}"
    return said + " (medians)"
