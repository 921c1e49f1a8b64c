"""What a measured run would be on another network: replayed, calibrated on measured runs, and scored on others.

A step takes sqrt(W^2 + L^2): W = C + B is work, C of computation and software and B of bytes at the rate of the links;
L is latency, of round trips. A transport that waits for neither would take the larger, one that waits for each their
sum; a pipeline of messages is between them (docs/simulator.md compares exponents). B and the number of rounds are those
of the collective's law (exchange.py). Two constants belong to a program (framework, backend, topology): `rounds`, the
delays that a round of the law costs, and `window_bytes`, after which a transfer waits for another round trip; C
belongs to a job.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl
from scipy.optimize import least_squares

from ddnn_traces.errors import UsageError
from ddnn_traces.query.dataset import Dataset
from ddnn_traces.text import counted, listed
from ddnn_traces.traffic.collectives import SHAPES, Collective
from ddnn_traces.traffic.simulator.job import MOST_WORKERS
from ddnn_traces.traffic.traffic import HEADER_BYTES, SEGMENT_BYTES, Floats

_HEADERS = 1 + HEADER_BYTES / SEGMENT_BYTES
_START = (1.5, 4e6)  # rounds and window_bytes to begin with, and where nothing is known
_WEIGHT = 0.02  # of these, against a run's error


@dataclass(frozen=True)
class Facts:
    """A measured run, as query replay_facts has it."""

    run_id: str
    job: str
    program: str
    topology: str
    model_bytes: int
    workers: int
    bandwidth_mbit: float
    delay_ms: float
    loss_pct: float
    congestion_control: str | None
    burst_bytes: int | None
    steps: int
    step_ms: float
    compute_ms: float | None

    @property
    def condition(self) -> str:
        """The condition of the network, in words."""
        control = f", {self.congestion_control}" if self.congestion_control else ""
        return f"{self.delay_ms:g} ms, {self.bandwidth_mbit:g} Mbit/s, {self.loss_pct:g}% loss{control}"

    @property
    def collective(self) -> Collective:
        if self.topology in ("parameter_server", "ps"):
            return Collective("star", self.workers, "server")
        return Collective(self.topology, self.workers)

    @cached_property
    def transmission_ms(self) -> float:
        """B: time of the busiest link in each round, one after the other.

        Where burst_bytes is declared, links are shaped where they send, by a token bucket: what it holds goes at once,
        and comes back at the link's rate. Other links are taken to be of the same rate both ways, without a bucket.
        """
        is_shaped = self.burst_bytes is not None
        burst = float(self.burst_bytes or 0)
        total, tokens = 0.0, dict[tuple[str, int], float]()
        for round_ in self.collective.rounds(self.model_bytes):
            loads: dict[tuple[str, int], float] = {}
            for t in round_:
                for end in [("out", t.src)] if is_shaped else [("out", t.src), ("in", t.dst)]:
                    loads[end] = loads.get(end, 0.0) + t.bytes * _HEADERS
            waiting = max(0.0, *(load - tokens.get(end, burst) for end, load in loads.items()))
            for end in tokens.keys() | loads.keys():
                tokens[end] = min(tokens.get(end, burst) + waiting - loads.get(end, 0.0), burst)
            total += waiting
        return total * 8 / (self.bandwidth_mbit * 1e3)

    @cached_property
    def rounds(self) -> int:
        return len(self.collective.rounds(self.model_bytes))


@dataclass(frozen=True)
class Program:
    """Constants of a program: delays that a round costs, and bytes after which a transfer waits another round trip."""

    rounds: float = _START[0]
    window_bytes: float = _START[1]


@dataclass(frozen=True)
class Calibration:
    """Constants of programs, and C of jobs in ms."""

    programs: Mapping[str, Program]
    jobs: Mapping[str, float]

    def step_ms(self, facts: Facts, own_ms: float | None = None) -> float:
        """Predicted time of a step. own_ms: C; None: that of the job."""
        c = self.jobs[facts.job] if own_ms is None else own_ms
        return math.hypot(c + facts.transmission_ms, latency_ms(facts, self.programs.get(facts.program, Program())))


def latency_ms(facts: Facts, program: Program) -> float:
    """L: delays of the rounds, and round trips for windows."""
    rounds = facts.rounds
    trips = rounds * facts.model_bytes / program.window_bytes
    return facts.delay_ms * (program.rounds * rounds + 2 * trips)


def read(dataset: Dataset, link_mbit: float | None = None) -> tuple[list[Facts], list[tuple[str, str]]]:
    """The runs that can be replayed, and the others with the reasons.

    link_mbit: rate of the links of runs that declare none; without it they cannot be replayed. What a run sent is no
    rate: a link that is not full has a higher one.
    """
    rows = dataset.query("replay_facts").with_columns(pl.coalesce("bandwidth_mbit", pl.lit(link_mbit, pl.Float64)))
    names = list(Facts.__dataclass_fields__)
    facts, problems = [], []
    for row in rows.iter_rows(named=True):
        problem = row["problem"] or _unknown(row)
        if problem:
            problems.append((row["run_id"], problem))
        else:
            found = Facts(**{name: row[name] for name in names})
            facts.append(found if found.model_bytes else _sized(found, row["step_payload_bytes"]))
    return facts, problems


def _sized(facts: Facts, payload: int) -> Facts:
    """A run whose model's size is not declared, with the size that the law of its topology gives for its volume."""
    unit = 1_000_000
    sent = sum(t.bytes for round_ in facts.collective.rounds(unit) for t in round_)
    return replace(facts, model_bytes=max(round(payload * unit / sent), 1))


def _unknown(row: Mapping[str, Any]) -> str | None:
    known = (*SHAPES, "parameter_server", "ps")
    if row["topology"] not in known:
        return f"there is no law for the topology {row['topology']}"
    if row["workers"] < 2 and row["topology"] not in ("parameter_server", "ps"):
        return "one worker exchanges nothing"
    if row["bandwidth_mbit"] is None:
        return "the rate of its links is not declared; give --link-mbit, or bandwidth_mbit in its run.toml"
    return None


def calibrate(facts: Sequence[Facts]) -> Calibration:
    """Fit the constants to runs: least squares of the logarithm of the step's time, robust against outliers.

    Raises UsageError.
    """
    if not facts:
        raise UsageError("no run that can be replayed; see the problems that query replay_facts states")
    programs, jobs = sorted({f.program for f in facts}), sorted({f.job for f in facts})
    start = np.log([*_START * len(programs), *(_first_guess(facts, job) for job in jobs)])
    prior = np.log([*_START * len(programs)])

    def found(x: Floats) -> Calibration:
        values = np.exp(x).tolist()
        pairs = zip(programs, values[: 2 * len(programs) : 2], values[1 : 2 * len(programs) : 2], strict=True)
        constants = {name: Program(rounds, window) for name, rounds, window in pairs}
        return Calibration(constants, dict(zip(jobs, values[2 * len(programs) :], strict=True)))

    def errors(x: Floats) -> Floats:
        calibration = found(x)
        of_runs = [math.log(calibration.step_ms(f) / f.step_ms) for f in facts]
        return np.concatenate([of_runs, _WEIGHT * (x[: len(prior)] - prior)])

    return found(least_squares(errors, start, loss="soft_l1", f_scale=0.05).x)


def _first_guess(facts: Sequence[Facts], job: str) -> float:
    return max(float(np.median([f.step_ms - f.transmission_ms for f in facts if f.job == job])), 1.0)


def halves(facts: Sequence[Facts], turn: int = 0) -> tuple[list[Facts], list[Facts]]:
    """Conditions to fit to and conditions to score on: of each job every other condition, in order.

    Jobs take turns in which of them is first. A job with one condition is only fitted to. turn: 0 or 1, the other half.
    """
    fitted: list[Facts] = []
    scored: list[Facts] = []
    for i, job in enumerate(sorted({f.job for f in facts})):
        conditions = sorted({_order(f) for f in facts if f.job == job})
        for f in facts:
            if f.job == job:
                is_scored = len(conditions) > 1 and (conditions.index(_order(f)) + i + turn) % 2
                (scored if is_scored else fitted).append(f)
    return fitted, scored


def _order(facts: Facts) -> tuple[float, float, float, str]:
    return facts.delay_ms, facts.bandwidth_mbit, facts.loss_pct, facts.congestion_control or ""


def score(facts: Sequence[Facts]) -> pl.DataFrame:
    """Predict each half of the conditions from the other: a row a job and condition.

    job, condition, runs, measured_ms (median of the runs), predicted_ms, error (share of the measured), repeat_error
    (median difference of two runs of this cell; null for one), reason: why the law does not hold, where it cannot.
    """
    rows = []
    for turn in (0, 1):
        fitted, scored = halves(facts, turn)
        calibration = calibrate([f for f in fitted if not reason(f)])
        for cell in sorted({(f.job, f.condition) for f in scored}):
            runs = [f for f in scored if (f.job, f.condition) == cell]
            if cell[0] not in calibration.jobs:
                continue
            measured = float(np.median([f.step_ms for f in runs]))
            predicted = calibration.step_ms(runs[0])
            rows.append(
                (*cell, len(runs), measured, predicted, predicted / measured - 1, _repeat(runs), reason(runs[0]))
            )
    names = ("job", "condition", "runs", "measured_ms", "predicted_ms", "error", "repeat_error", "reason")
    types = (pl.String, pl.String, pl.Int64, pl.Float64, pl.Float64, pl.Float64, pl.Float64, pl.String)
    return pl.DataFrame(rows, schema=dict(zip(names, types, strict=True)), orient="row").sort("job", "condition")


def _repeat(runs: Sequence[Facts]) -> float | None:
    times = [f.step_ms for f in runs]
    pairs = [abs(a / b - 1) for i, a in enumerate(times) for j, b in enumerate(times) if i != j]
    return float(np.median(pairs)) if pairs else None


def reason(facts: Facts) -> str | None:
    """Why the law cannot hold for a run: it has no loss."""
    if facts.loss_pct >= 5:
        return "loss of 5% or more: retransmission timeouts are not in the law"
    if facts.loss_pct >= 1 and facts.congestion_control != "bbr":
        return "a congestion control that slows down for each loss: not in the law"
    if facts.loss_pct >= 1 and facts.workers > 1 and facts.delay_ms == 0:
        return "loss in a round for which all others wait: timeouts are not in the law"
    return None


@dataclass(frozen=True)
class Change:
    """What is asked: None as measured. factor and more: of the measured value."""

    bandwidth_mbit: float | None = None
    bandwidth_factor: float | None = None
    delay_ms: float | None = None
    more_delay_ms: float | None = None
    workers: int | None = None
    topology: str | None = None

    def of(self, facts: Facts) -> Facts:
        """The run with the change. Raises UsageError for a change that cannot be."""
        for names in (("bandwidth_mbit", "bandwidth_factor"), ("delay_ms", "more_delay_ms")):
            if all(getattr(self, name) is not None for name in names):
                raise UsageError(f"{names[0]} and {names[1]} contradict each other; give one")
        rate = self.bandwidth_mbit or facts.bandwidth_mbit * (self.bandwidth_factor or 1)
        delay = facts.delay_ms if self.delay_ms is None else self.delay_ms
        delay += self.more_delay_ms or 0
        for name, value in (("bandwidth_mbit", self.bandwidth_mbit), ("bandwidth_factor", self.bandwidth_factor)):
            if value is not None and not 0 < value < math.inf:
                raise UsageError(f"{name} = {value!r}; it must be above 0")
        if not 0 <= delay < 1e6:
            raise UsageError(f"delay_ms = {delay!r}; it must be 0 or more")
        workers = self.workers or facts.workers
        if not 1 <= workers <= MOST_WORKERS:
            raise UsageError(f"workers = {workers}; it must be 1 to {MOST_WORKERS:,}")
        changed = replace(facts, bandwidth_mbit=rate, delay_ms=delay, workers=workers)
        changed = replace(changed, topology=self.topology or facts.topology)
        if problem := _unknown({"topology": changed.topology, "workers": changed.workers, "bandwidth_mbit": rate}):
            raise UsageError(f"topology, workers: {problem}")
        return changed


def like(facts: Sequence[Facts], run_id: str, change: Change) -> pl.DataFrame:
    """A measured run, its replay and the run with a change; a row each.

    what; bandwidth_mbit, delay_ms, workers, topology; step_ms; error (of the replay, share of the measured time); what
    the time is made of: computation_ms (logged), software_ms, transmission_ms, latency_ms, where the step is
    sqrt((the first three)^2 + latency^2). The replay takes software from other runs of the job, and without such runs
    none. The change is the ratio of two predictions times the measured time. Raises UsageError for an unknown run.
    """
    known = {f.run_id: f for f in facts}
    if run_id not in known:
        raise UsageError(f"{run_id}: no run of this name that can be replayed; there are {listed(sorted(known), 10)}")
    run = known[run_id]
    others = [f for f in facts if f.run_id != run_id and not reason(f)]
    calibration = calibrate(others) if others else Calibration({}, {})
    program = calibration.programs.get(run.program, Program())
    computed = run.compute_ms or 0.0
    latency = latency_ms(run, program)
    work = math.sqrt(max(run.step_ms**2 - latency**2, 0)) - run.transmission_ms
    replayed = max(calibration.jobs.get(run.job, computed), computed)
    own = replayed if run.job in calibration.jobs else max(work, computed)
    changed = change.of(run)
    again, later = calibration.step_ms(run, replayed), calibration.step_ms(changed, own)
    rows = [_row("measured", run, run.step_ms), _row("replayed", run, again, replayed, program)]
    rows[1]["error"] = again / run.step_ms - 1
    if changed != run:
        later *= run.step_ms / calibration.step_ms(run, own)
        rows.append(_row("changed", changed, later, own, program))
    return pl.DataFrame(rows, infer_schema_length=None)


def of_run(dataset: Dataset, run_id: str, given: Mapping[str, Any], link_mbit: float | None = None) -> pl.DataFrame:
    """like() for a run of a dataset. link_mbit: as of read().

    Raises UsageError for a key that is no change of the network.
    """
    if link_mbit is not None and not 0 < link_mbit < math.inf:
        raise UsageError(f"link_mbit = {link_mbit!r}; it must be above 0")
    changes = set(Change.__dataclass_fields__)
    if unknown := sorted(given.keys() - changes):
        raise UsageError(f"{unknown[0]}: --like does not change it; it changes {', '.join(sorted(changes))}")
    facts, problems = read(dataset, link_mbit)
    if found := [problem for name, problem in problems if name == run_id]:
        raise UsageError(f"{run_id}: cannot be replayed: {found[0]}")
    return like(facts, run_id, Change(**given))


def scored(dataset: Dataset) -> tuple[pl.DataFrame, list[str]]:
    """score() of a dataset, and what it comes to in lines: medians, noise, runs that were left out.

    Raises UsageError.
    """
    facts, problems = read(dataset)
    rows = score(facts)
    if rows.is_empty():
        raise UsageError("no job of this dataset was measured under two conditions of the network")
    holds = rows.filter(pl.col("reason").is_null())
    errors, every = (np.array(frame["error"].abs().to_list()) for frame in (holds, rows))
    lines = [
        f"median error {np.median(errors):.1%}, three quarters below {np.quantile(errors, 0.75):.1%}, of "
        f"{counted(len(holds), 'condition')} for which the law holds; of all "
        f"{counted(len(rows), 'condition')} {np.median(every):.1%}"
    ]
    if repeats := holds["repeat_error"].drop_nulls().to_list():
        lines.append(f"two runs of the same condition differ by {np.median(repeats):.1%} (median of {len(repeats)})")
    single = len({f.job for f in facts}) - rows["job"].n_unique()
    lines.append(
        f"{counted(single, 'job')} with one condition only: fitted to, not scored; "
        f"{counted(len(problems), 'run')} not replayed"
    )
    return rows, lines


def _row(
    what: str, facts: Facts, step_ms: float, own: float | None = None, program: Program | None = None
) -> dict[str, Any]:
    computed = facts.compute_ms
    return {
        "what": what, "run_id": facts.run_id, "bandwidth_mbit": facts.bandwidth_mbit, "delay_ms": facts.delay_ms,
        "workers": facts.workers, "topology": facts.topology, "step_ms": step_ms, "error": None,
        "computation_ms": computed, "software_ms": None if own is None or computed is None else own - computed,
        "transmission_ms": facts.transmission_ms, "latency_ms": None if program is None else latency_ms(facts, program),
    }  # fmt: skip
