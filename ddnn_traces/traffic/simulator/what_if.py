"""What a measured run would be on another network, or with another model or batch: a law fitted to measured runs.

A step takes C + T - O. C is computation and software. T is the exchange: B, the bytes of the busiest link in each round
at the rate of the links, and latency. Each round costs its delay in full, and beside it waits W: the rest of the delays
that a round costs, and a round trip for each window of bytes that one connection sends. B and W overlap:
T = rounds x delay + (B^p + W^p)^(1/p). A ring is pipelined, a host passes on the first bytes of a round before it has
the last: there all latency may overlap, T = (B^p + L^p)^(1/p). O is what the run's events show to be hidden behind
computation, a share of the bytes; most programs hide nothing.

So no step is shorter than floor_ms: of pair averaging, which has no barrier, the longer of computation and exchange, as
hosts send while others compute. B and the number of rounds are those of the collective's law. Two constants belong
to a program (framework, backend, topology): `rounds`, the delays that a round costs, at least 1, and `window_bytes`; C
belongs to a job. what_if_score.py has the choice of p, and how far predictions are from runs that no fit saw.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl
from scipy.optimize import least_squares

from ddnn_traces.errors import UsageError
from ddnn_traces.query.dataset import Dataset
from ddnn_traces.text import listed
from ddnn_traces.traffic.collectives import SHAPES, Collective
from ddnn_traces.traffic.simulator.job import MOST_WORKERS
from ddnn_traces.traffic.traffic import HEADER_BYTES, SEGMENT_BYTES, Floats

_HEADERS = 1 + HEADER_BYTES / SEGMENT_BYTES
_NO_RATE = "the rate of its links is not declared: give --link-mbit, or bandwidth_mbit in its run.toml or runs.csv"
_START = (0.5, 4e6)  # delays of a round beyond the first, and window_bytes: to begin with, and where nothing is known
_WEIGHT = 0.02  # of these, against a run's error

#: p with the least mean error on data/dataset with data/sample, each job left out (docs/what_if_score.md).
EXPONENT = 3.0
_LEAST_OF_FLOOR = 0.98  # what a measured step may be of its floor: rounding of logs and rates


@dataclass(frozen=True)
class Facts:
    """A measured run, as query replay_facts has it. overlap_share: of its program, bytes sent during computation."""

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
    batch_size: int | None = None
    model: str | None = None
    overlap_share: float = 0.0

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

    @cached_property
    def connection_bytes(self) -> int:
        """What the connection with most bytes sends in each round, of all rounds."""
        return sum(max(t.bytes for t in round_) for round_ in self.collective.rounds(self.model_bytes))

    @property
    def is_pipelined(self) -> bool:
        """Whether hosts pass on what they receive before a round has ended: rings of libraries work on segments."""
        return self.topology == "ring"

    def hidden_ms(self, exchange_ms: float) -> float:
        """O: what computation hides of an exchange."""
        return min(self.overlap_share * exchange_ms, self.compute_ms or 0.0)

    @property
    def floor_ms(self) -> float:
        """Least time of a step: its logged computation, its bytes at the links' rate, the delay of each round."""
        delays = self.rounds * self.delay_ms
        exchange = max(self.transmission_ms, delays) if self.is_pipelined else self.transmission_ms + delays
        if self.topology == "pair_averaging":  # no barrier: hosts send while others compute
            return max(self.compute_ms or 0.0, exchange)
        return (self.compute_ms or 0.0) + exchange - self.hidden_ms(exchange)

    @property
    def is_below_floor(self) -> bool:
        """Whether its measured step contradicts its floor, as where the rate of its links is declared wrongly."""
        return self.step_ms < _LEAST_OF_FLOOR * self.floor_ms


@dataclass(frozen=True)
class Program:
    """Constants of a program: delays that a round costs, 1 or more, and bytes of a window."""

    rounds: float = 1 + _START[0]
    window_bytes: float = _START[1]


@dataclass(frozen=True)
class Calibration:
    """Constants of programs, C of jobs in ms, and p."""

    programs: Mapping[str, Program]
    jobs: Mapping[str, float]
    exponent: float = EXPONENT

    def exchange_ms(self, facts: Facts) -> float:
        """T."""
        return _exchange_ms(facts, self.programs.get(facts.program, Program()), self.exponent)

    def step_ms(self, facts: Facts, own_ms: float | None = None) -> float:
        """Predicted time of a step. own_ms: C; None: that of the job."""
        exchange = self.exchange_ms(facts)
        return (self.jobs[facts.job] if own_ms is None else own_ms) + exchange - facts.hidden_ms(exchange)


def latency_ms(facts: Facts, program: Program) -> tuple[float, float]:
    """Delays of the rounds, and W: what a round costs beyond its delay, and round trips for windows."""
    delays = facts.rounds * facts.delay_ms
    windows = facts.connection_bytes / program.window_bytes
    return delays, (program.rounds - 1) * delays + 2 * facts.delay_ms * windows


def _exchange_ms(facts: Facts, program: Program, p: float) -> float:
    delays, waiting = latency_ms(facts, program)
    if facts.is_pipelined:
        return _norm(facts.transmission_ms, delays + waiting, p)
    return delays + _norm(facts.transmission_ms, waiting, p)


def _norm(a: float, b: float, p: float) -> float:
    larger = max(a, b)
    return larger * float((a / larger) ** p + (b / larger) ** p) ** (1 / p) if larger else 0.0


def read(dataset: Dataset, link_mbit: float | None = None) -> tuple[list[Facts], list[tuple[str, str]]]:
    """The runs that can be replayed, and the others with the reasons.

    link_mbit: rate of the links of runs that declare none; without it they cannot be replayed. What a run sent is no
    rate: a link that is not full has a higher one. Raises UsageError where all runs declare theirs, but link_mbit is
    given.
    """
    rows = dataset.query("replay_facts")
    if link_mbit is not None and len(rows) and not rows["bandwidth_mbit"].null_count():
        raise UsageError(
            f"link_mbit = {link_mbit:g}: all runs declare the rate of their links; bandwidth_mbit asks for another"
        )
    rows = rows.with_columns(pl.coalesce("bandwidth_mbit", pl.lit(link_mbit, pl.Float64)))
    rows = rows.join(dataset.sql("SELECT run_id, model FROM runs"), on="run_id", maintain_order="left")
    rows = rows.with_columns(_overlap(dataset, rows))
    several = dict(dataset.sql("SELECT run_id, problem FROM jobs_of_run WHERE problem IS NOT NULL").iter_rows())
    names = list(Facts.__dataclass_fields__)
    facts, problems = [], []
    for row in rows.iter_rows(named=True):
        is_known = row["topology"] not in (None, "unknown") and row["workers"] is not None
        law = _no_law(row["topology"], row["workers"]) if is_known else None
        rate = _NO_RATE if row["bandwidth_mbit"] is None else None
        problem = "; ".join(filter(None, (row["problem"], several.get(row["run_id"]), law, rate)))
        if problem:
            problems.append((row["run_id"], problem))
        else:
            found = Facts(**{name: row[name] for name in names})
            facts.append(found if found.model_bytes else _sized(found, row["step_payload_bytes"]))
    return facts, problems


def _overlap(dataset: Dataset, rows: pl.DataFrame) -> pl.Series:
    """overlap_share of each row: of its program the median of the runs, of a run the median of its workers."""
    workers = dataset.query("overlap_summary").drop_nulls("overlap_share")
    runs = workers.group_by("run_id").agg(pl.col("overlap_share").median())
    joined = rows.select("run_id", "program").join(runs, on="run_id", how="left", maintain_order="left")
    return joined.select(pl.col("overlap_share").median().over("program").fill_null(0.0)).to_series()


def _sized(facts: Facts, payload: int) -> Facts:
    """A run whose model's size is not declared, with the size that the law of its topology gives for its volume."""
    unit = 1_000_000
    sent = sum(t.bytes for round_ in facts.collective.rounds(unit) for t in round_)
    return replace(facts, model_bytes=max(round(payload * unit / sent), 1))


def _no_law(topology: str, workers: int) -> str | None:
    if topology not in (*SHAPES, "parameter_server", "ps"):
        return f"there is no law for the topology {topology}"
    if workers < 2 and topology not in ("parameter_server", "ps"):
        return "one worker exchanges nothing"
    return None


def calibrate(facts: Sequence[Facts]) -> Calibration:
    """Fit the constants to runs: of each program apart, robust least squares of the logarithm of the step's time.

    Raises UsageError.
    """
    if not facts:
        raise UsageError("no run that can be replayed: query replay_facts states the problem of each")
    by_program: dict[str, list[Facts]] = {}
    for f in facts:
        by_program.setdefault(f.program, []).append(f)
    programs = {name: fit_program(runs, EXPONENT) for name, runs in by_program.items()}
    jobs = {job: own_ms(runs, programs[runs[0].program], EXPONENT) for job, runs in _by_job(facts).items()}
    return Calibration(programs, jobs)


def fit_program(facts: Sequence[Facts], exponent: float) -> Program:
    """Constants of the program of these runs; what is known of none where no job has two conditions."""
    jobs = [runs for runs in _by_job(facts).values() if len({f.condition for f in runs}) > 1]
    start = np.log(_START)

    def found(x: Floats) -> Program:
        beyond, window = np.exp(x).tolist()
        return Program(1 + beyond, window)

    def errors(x: Floats) -> Floats:
        program, of_runs = found(x), list[float]()
        for runs in jobs:
            calibration = Calibration({runs[0].program: program}, {}, exponent)
            own = own_ms(runs, program, exponent)
            of_runs += [math.log(calibration.step_ms(f, own) / f.step_ms) for f in runs]
        return np.concatenate([of_runs, _WEIGHT * (x - start)])

    if not jobs:
        return Program()
    return found(least_squares(errors, start, loss="soft_l1", f_scale=0.05, diff_step=0.01).x)


def own_ms(runs: Sequence[Facts], program: Program, exponent: float) -> float:
    """C of a job: what its steps take beside the exchange, the median; a step weighs one over its length."""
    calibration = Calibration({runs[0].program: program}, {}, exponent)
    rest = np.array([f.step_ms - calibration.step_ms(f, 0.0) for f in runs])
    order = np.argsort(rest)
    weights = np.cumsum([1 / runs[i].step_ms for i in order])
    return max(float(rest[order[np.searchsorted(weights, weights[-1] / 2)]]), 1.0)


def _by_job(facts: Sequence[Facts]) -> dict[str, list[Facts]]:
    jobs: dict[str, list[Facts]] = {}
    for f in facts:
        jobs.setdefault(f.job, []).append(f)
    return jobs


@dataclass(frozen=True)
class Change:
    """What is asked: None as measured. factor and more: of the measured value.

    model, batch_size: of other runs of the dataset, whose computation is taken; compute_ms and model_bytes win over it.
    cores: that all workers share: where they are fewer than workers, these take turns to compute.
    """

    bandwidth_mbit: float | None = None
    bandwidth_factor: float | None = None
    delay_ms: float | None = None
    more_delay_ms: float | None = None
    workers: int | None = None
    topology: str | None = None
    model: str | None = None
    batch_size: int | None = None
    model_bytes: int | None = None
    compute_ms: float | None = None
    cores: int | None = None

    @property
    def is_of_network(self) -> bool:
        """Whether nothing but rate and delay changes."""
        others = (
            self.workers, self.topology, self.model, self.batch_size, self.model_bytes, self.compute_ms, self.cores,
        )  # fmt: skip
        return all(value is None for value in others)

    def of(self, run: Facts, facts: Sequence[Facts]) -> Facts:
        """The run with the change; facts: the runs of the dataset. Raises UsageError for a change that cannot be."""
        for names in (("bandwidth_mbit", "bandwidth_factor"), ("delay_ms", "more_delay_ms")):
            if all(getattr(self, name) is not None for name in names):
                raise UsageError(f"{names[0]} and {names[1]} contradict each other; give one")
        for name in ("bandwidth_mbit", "bandwidth_factor", "batch_size", "model_bytes", "compute_ms", "cores"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise UsageError(f"{name} = {value!r}; it must be above 0")
        rate = self.bandwidth_mbit or run.bandwidth_mbit * (self.bandwidth_factor or 1)
        delay = (run.delay_ms if self.delay_ms is None else self.delay_ms) + (self.more_delay_ms or 0)
        if not 0 <= delay < 1e6:
            more = "" if self.more_delay_ms is None else f" with more_delay_ms = {self.more_delay_ms!r}"
            raise UsageError(f"delay_ms = {delay!r}{more}; it must be 0 or more")
        workers = run.workers if self.workers is None else self.workers
        if not 1 <= workers <= MOST_WORKERS:
            raise UsageError(f"workers = {workers}; it must be 1 to {MOST_WORKERS:,}")
        topology = self.topology or run.topology
        if problem := _no_law(topology, workers):
            raise UsageError(f"topology, workers: {problem}")
        changed = replace(run, bandwidth_mbit=rate, delay_ms=delay, workers=workers, topology=topology)
        return self._with_job(changed, run, facts)

    def _with_job(self, changed: Facts, run: Facts, facts: Sequence[Facts]) -> Facts:
        """With model, batch size and computation."""
        model, batch = self.model or run.model, self.batch_size or run.batch_size
        size, compute = self.model_bytes or run.model_bytes, self.compute_ms
        if self.model is not None and self.model_bytes is None:
            sizes = sorted({f.model_bytes for f in facts if f.model == model})
            if not sizes:
                raise UsageError(f"model = {model}: no run of this dataset has it; give model_bytes and compute_ms")
            size = sizes[0]
        if compute is None:
            compute, measured_with = run.compute_ms, run.workers
            if (model, batch) != (run.model, run.batch_size):
                compute, measured_with = _computation(facts, model, batch, run.workers)
            if compute is not None and self.cores is not None:
                compute *= max(changed.workers / self.cores, 1) / max(measured_with / self.cores, 1)
        return replace(changed, model=model, batch_size=batch, model_bytes=size, compute_ms=compute)


def _computation(facts: Sequence[Facts], model: str | None, batch: int | None, workers: int) -> tuple[float, int]:
    """Computation of a model with a batch, ms, and with how many workers it was measured: the nearest number.

    Between measured batches it is a line, as beyond them. Raises UsageError.
    """
    known = [f for f in facts if f.model == model and f.compute_ms is not None and f.batch_size is not None]
    numbers = sorted({f.workers for f in known}, key=lambda number: (abs(number - workers), number))
    for number in numbers:
        by_batch: dict[int, list[float]] = {}
        for f in known:
            if f.workers == number:
                by_batch.setdefault(f.batch_size or 0, []).append(f.compute_ms or 0.0)
        medians = {size: float(np.median(times)) for size, times in by_batch.items()}
        if batch in medians:
            return medians[batch], number
        if len(medians) > 1 and batch is not None:
            slope, zero = np.polyfit(list(medians), list(medians.values()), 1)
            if (line := float(zero + slope * batch)) > 0:
                return line, number
    raise UsageError(f"batch_size = {batch}: no run of {model} tells its computation; give compute_ms")


def unknown_run(run_id: str, known: Iterable[str]) -> UsageError:
    """That no run has this name, and which there are."""
    names = sorted(known)
    there = f"; there are {listed(names, 10)}" if names else ", and no other that can be replayed"
    return UsageError(f"{run_id}: no run of this name{there}")


def like(facts: Sequence[Facts], run_id: str, change: Change) -> pl.DataFrame:
    """A measured run, its replay and the run with a change; a row each.

    what; bandwidth_mbit, delay_ms, workers, topology; step_ms; error (of the replay, share of the measured time); what
    the time is made of: computation_ms (logged, or of the change), software_ms, exchange_ms (T), of which
    transmission_ms (B), latency_ms (L, or the delays and W) and hidden_ms (O); floor_ms, the least that it can be. The
    replay takes software from other runs of the job, and without such runs none. The change is the measured time and
    the difference of two predictions, with the measured software, in proportion to the model's bytes. Raises UsageError
    for an unknown run, one with loss, or one whose step is shorter than its floor by more than 2%.
    """
    known = {f.run_id: f for f in facts}
    if run_id not in known:
        raise unknown_run(run_id, known)
    run = known[run_id]
    if run.loss_pct > 0:
        raise UsageError(f"{run_id}: loss_pct = {run.loss_pct:g}: what TCP sends again is not in the law; take another")
    if run.is_below_floor:
        raise UsageError(
            f"{run_id}: its step of {run.step_ms:.4g} ms is shorter than the {run.floor_ms:.4g} ms that it takes at "
            f"least with links of {run.bandwidth_mbit:g} Mbit/s; correct bandwidth_mbit in its run.toml or runs.csv, "
            "or --link-mbit"
        )
    others = [f for f in facts if f.run_id != run_id and f.loss_pct == 0]
    calibration = calibrate(others) if others else Calibration({}, {})
    computed = run.compute_ms or 0.0
    replayed = max(calibration.jobs.get(run.job, computed), computed)
    again = calibration.step_ms(run, replayed)
    rows = [_row("measured", run, run.step_ms), _row("replayed", run, again, calibration, replayed)]
    rows[1]["error"] = again / run.step_ms - 1
    changed = change.of(run, facts)
    if changed != run:
        own, later = _changed_ms(calibration, run, changed)
        rows.append(_row("changed", changed, later, calibration, own))
    return pl.DataFrame(rows, infer_schema_length=None)


def _changed_ms(calibration: Calibration, run: Facts, changed: Facts) -> tuple[float, float]:
    """C and the time of a step of a changed run, not below its floor."""
    computed = run.compute_ms or 0.0
    work = max(run.step_ms - calibration.step_ms(run, 0.0), computed)
    own = (changed.compute_ms or 0.0) + (work - computed) * changed.model_bytes / run.model_bytes
    later = run.step_ms + calibration.step_ms(changed, own) - calibration.step_ms(run, work)
    return own, max(later, changed.floor_ms)


def _row(
    what: str, facts: Facts, step_ms: float, calibration: Calibration | None = None, own: float | None = None
) -> dict[str, Any]:
    computed, exchange, latency = facts.compute_ms, None, None
    if calibration is not None:
        exchange = calibration.exchange_ms(facts)
        latency = sum(latency_ms(facts, calibration.programs.get(facts.program, Program())))
    return {
        "what": what, "run_id": facts.run_id, "bandwidth_mbit": facts.bandwidth_mbit, "delay_ms": facts.delay_ms,
        "workers": facts.workers, "topology": facts.topology, "model": facts.model, "batch_size": facts.batch_size,
        "step_ms": step_ms, "error": None, "floor_ms": facts.floor_ms, "computation_ms": computed,
        "software_ms": None if own is None or computed is None else own - computed,
        "exchange_ms": exchange, "transmission_ms": facts.transmission_ms, "latency_ms": latency,
        "hidden_ms": None if exchange is None else facts.hidden_ms(exchange),
    }  # fmt: skip
