"""Traffic of a job that was never run, drawn from a traffic model: as a dataset, as captures, as a list of flows."""

from __future__ import annotations

import random
import shutil
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ddnn_traces.errors import ModelError, StorageError, UsageError
from ddnn_traces.store import layout
from ddnn_traces.text import counted, is_plain_name
from ddnn_traces.traffic import pcaps, table_writer
from ddnn_traces.traffic.collectives import GROUPED, SHAPES, Collective, Round, Transfer, broadcast
from ddnn_traces.traffic.model import pacing
from ddnn_traces.traffic.model.document import Document, check
from ddnn_traces.traffic.model.fit_model import grouped
from ddnn_traces.traffic.synthetic import Book, Laws, Sampler, SyntheticRun, make_traffic
from ddnn_traces.traffic.traffic import (
    HEADER_BYTES,
    Floats,
    Ints,
    Port,
    StepTimes,
    Traffic,
    Transfers,
    packets_of,
    wire_bytes,
)

#: Transfers of a run, about, beyond which memory would not hold them.
MOST_TRANSFERS = 20_000_000
MOST_WORKERS = 2000
#: A day: silences drawn around it stay below _LONGEST_NS, and a run within 64 bits of nanoseconds.
MOST_COMPUTE_MS = 86_400_000

#: Part of its law by which a generated run may be off it: what messages and start-up add. More is an error.
MOST_OFF_LAW = 0.02
_USUAL_STEPS = 40  # tell how long a step is that its parts add up to
_FAR = 1.5  # times as large is a size that tells a slope beyond those measured
_MESSAGES = 0.01  # of what the law gives, at most, is added by messages in the steps

FORMATS = ("dataset", "pcap", "flows")


@dataclass(frozen=True)
class Job:
    """A job to generate. model_bytes: S, exchanged in a step. topology, shape, servers, group_size, order: as in
    collectives.Collective; topology unknown: the pairs as measured, and workers then the number of their hosts.
    compute_ms: median silence of a worker before it communicates; None: the model's.
    """

    workers: int
    model_bytes: int
    topology: str
    steps: int
    shape: str = ""
    servers: int | None = None
    group_size: int | None = None
    order: tuple[int, ...] = ()
    compute_ms: float | None = None
    seed: int = 0
    run_id: str = "synthetic"


def traffic(document: Document, job: Job) -> Traffic:
    """Every packet of a job. Raises ModelError for an invalid document and for traffic that is off its law, UsageError
    for an impossible job."""
    check(document, "the model")
    run = modelled_run(document, job)
    stretch = _stretch(document, run)
    if job.compute_ms is None:
        run = replace(run, compute_ms=run.compute_ms * stretch)
    generated = make_traffic(run, ModelSampler(document, stretch))
    _check_volume(generated)
    return generated


def _stretch(document: Document, run: ModelledRun) -> float:
    """How many times as long the parts of a step must be for the step to be as long as on its own line.

    Each part has a line over sizes, and the slowest of several hosts counts: so they add up to another length than
    that of the measured steps. 1 where S was measured, or no run of this topology and number of hosts.
    """
    alike = (run.topology, run.collective.shape, run.collective.hosts)
    measured = [one for one in document["provenance"]["runs"] if (one["topology"], one["shape"], one["hosts"]) == alike]
    wanted_ms = _between_measured([(one["model_bytes"], one["step_ms"]) for one in measured if one["step_ms"]], run)
    if wanted_ms is None:
        return 1.0
    usual = replace(run, steps=_USUAL_STEPS, compute_ms=_computation(document, run.model_bytes), seed=0)
    ends = make_traffic(usual, ModelSampler(document)).times.end_ns.max(1)
    return wanted_ms * 1e6 * (_USUAL_STEPS - 1) / float(ends[-1] - ends[0])


def _between_measured(lengths: Sequence[tuple[int, float]], run: ModelledRun) -> float | None:
    """The length at the run's S on the line of the two next sizes.

    None where it was measured, or where the line falls, as no time does with its bytes.
    """
    known = grouped(lengths)
    if len(known) < 2 or len(known) == len(grouped([*lengths, (run.model_bytes, 0.0)])):
        return None
    sizes, medians = [size for size, _ in known], [float(np.median(some)) for _, some in known]
    smaller, found, larger = (float(on_line(sizes, part * run.model_bytes, medians)) for part in (0.99, 1, 1.01))
    return found if found > 0 and smaller <= larger else None


def law_share(generated: Traffic) -> float:
    """Payload of a generated run in its steps, without retransmissions, over what its law gives."""
    run, sent = generated.run, generated.transfers
    law = sum(t.bytes for round_ in run.collective.rounds(run.model_bytes) for t in round_) * run.steps
    inside = (sent.start_ns >= generated.times.start_ns.min()) & (sent.start_ns <= generated.times.end_ns.max())
    if sent.step is not None:
        inside |= sent.step >= 0
    return float(sent.fresh[inside].sum()) / law


def _check_volume(generated: Traffic) -> None:
    share = law_share(generated)
    if abs(share - 1) > MOST_OFF_LAW:
        raise ModelError(
            f"{generated.run.run_id}: would send {share:.3f} times what its law gives in its steps, which is off by "
            f"more than {MOST_OFF_LAW:.0%}; fit the model again, to other runs"
        )


def modelled_run(document: Document, job: Job) -> ModelledRun:
    """The job as a run to generate. Raises UsageError for an impossible job."""
    _check(document, job)
    sources = sorted({run["run_id"] for run in document["provenance"]["runs"]})
    relative = _relative(document, job)
    compute_ms = _computation(document, job.model_bytes) if job.compute_ms is None else job.compute_ms
    run = ModelledRun(
        job.run_id, job.topology, job.workers, job.model_bytes, job.steps, job.shape, job.servers, job.group_size,
        job.order, compute_ms=compute_ms, update_ms=0.0, noise=0.0, seed=job.seed,
        model=f"traffic model {zlib.crc32(repr(sources).encode()):08x}", relative=relative,
    )  # fmt: skip
    number = sum(len(round_) for round_ in run.collective.rounds(job.model_bytes)) * job.steps
    if not number:
        raise UsageError(
            f"{counted(job.workers, 'worker')} of {job.topology}: nothing to send; give --workers 2 or more"
        )
    if number > MOST_TRANSFERS:
        raise UsageError(
            f"{job.run_id}: {counted(number, 'transfer')} in {counted(job.steps, 'step')}, more than the "
            f"{MOST_TRANSFERS:,} that are made at a time; give fewer --steps or --workers"
        )
    return run


def _computation(document: Document, size: int, name: str = "median_ms") -> float:
    """The runs' median_ms or warm_up_ms at this S: on the line of the two sizes next to it, but not below 0."""
    known = document["computation"]["by_size"]
    return max(float(on_line([run["model_bytes"] for run in known], size, [run[name] for run in known])), 0.0)


def _warm_up(document: Document, size: int) -> float:
    """The runs' warm_up_ms at this S; beyond the measured sizes that of the last one: it follows no law of bytes."""
    sizes = [run["model_bytes"] for run in document["computation"]["by_size"]]
    return _computation(document, min(max(size, sizes[0]), sizes[-1]), "warm_up_ms")


def _check(document: Document, job: Job) -> None:
    if not is_plain_name(job.run_id):
        raise UsageError(
            f"--run-id {job.run_id!r} is no plain name, and a folder is named by it; give one without / and \\, "
            "without line breaks and the like, that does not begin with a dot"
        )
    if not 1 <= job.workers <= MOST_WORKERS:
        raise UsageError(f"{job.workers} workers: give 1 to {MOST_WORKERS}")
    if job.steps < 1 or not 1 <= job.model_bytes <= 10**13:
        raise UsageError("steps must be 1 or more, model_bytes from 1 to 10,000,000,000,000")
    if job.compute_ms is not None and not 0 <= job.compute_ms <= MOST_COMPUTE_MS:  # not a number, either
        raise UsageError(
            f"--compute-ms {job.compute_ms:g}: give 0 to {MOST_COMPUTE_MS:,} (a day), so that the times of a run fit "
            "into 64 bits of nanoseconds"
        )
    if job.topology not in (*SHAPES, "unknown"):
        raise UsageError(f"no topology named {job.topology}; there are {', '.join(SHAPES)} and unknown")
    _check_meaning(job)
    if document["transfer_matrix"] is not None and job.topology != "unknown":
        raise UsageError(
            "the model is of a run whose topology is unknown, so its pairs are known, and no law; give --topology "
            f"unknown and --workers {len(document['transfer_matrix'])}, or a model of other runs"
        )


def _check_meaning(job: Job) -> None:
    """Raise UsageError for an option that does not apply to the topology."""
    options = {
        "--shape": (job.shape, tuple(SHAPES)),
        "--servers": (job.servers, ("sharded_parameter_server",)),
        "--group-size": (job.group_size, GROUPED),
    }
    for option, (given, topologies) in options.items():
        if given and job.topology not in topologies:
            raise UsageError(f"{option} does not apply to {job.topology}; leave it out, or choose another --topology")
    if job.group_size and job.shape == "overlay":
        raise UsageError("--group-size does not apply to the shape overlay, which has one group; leave it out")


def _relative(document: Document, job: Job) -> tuple[tuple[float, ...], ...]:
    if job.topology != "unknown":
        return ()
    matrix = document["transfer_matrix"]
    if matrix is None:
        raise UsageError(
            "the model is of runs whose topology is known and has no measured pairs; give one of " + ", ".join(SHAPES)
        )
    if job.workers != len(matrix):
        raise UsageError(
            f"{job.workers} workers: the model has the pairs of {len(matrix)} hosts in an unknown topology, and no law "
            f"for another number; give --workers {len(matrix)}"
        )
    return tuple(tuple(map(float, row)) for row in matrix)


def write(document: Document, job: Job, out: Path, to: str, report: Callable[[str], None] = lambda _: None) -> Path:
    """Write a job's traffic and return where it is.

    to: dataset (new, or next to its other runs), pcap (the run folder OUT/RUN_ID, which ingest reads) or flows (CSV: a
    row a transfer, tables.FLOW_COLUMNS). The same model, job and seed give the same bytes. Raises UsageError as
    `traffic`, and where a run of that name exists; StorageError where captures would not fit on the disk. report: is
    called, before captures are written, with a line that states how many bytes they will have.
    """
    if to not in FORMATS:
        raise UsageError(f"no format named {to}; there are {', '.join(FORMATS)}")
    if to == "flows" and out.is_dir():
        raise UsageError(f"{out}: a folder; name a file for the list of flows")
    layout.refuse_inside(out)
    check(document, "the model")
    _check(document, job)
    if to == "pcap":
        return _write_captures(document, job, out / job.run_id, report)
    if to == "dataset":
        # before the work; write_traffic checks again under its lock
        table_writer.check_free(out, job.run_id, replace=False)
        table_writer.write_traffic(out, [traffic(document, job)], replace=False)
    else:
        table_writer.write_flow_list(traffic(document, job), out)
    return out


def _write_captures(document: Document, job: Job, folder: Path, report: Callable[[str], None]) -> Path:
    if folder.exists():
        raise UsageError(f"{folder}: is there already; choose another --out or --run-id")
    generated = traffic(document, job)
    needed = pcaps.folder_bytes(generated)
    there = next(above for above in folder.absolute().parents if above.exists())
    free = shutil.disk_usage(there).free
    if needed > free:
        raise StorageError(
            f"{folder}: would have {needed:,} bytes, and {there} has space for {free:,}; give fewer --steps or another "
            "--out, or write it --to dataset, which takes far less"
        )
    report(f"writing {counted(int(generated.transfers.packets.sum()), 'packet')}, about {needed:,} bytes, to {folder}")
    return pcaps.write_folder(folder, generated)


# --- draws from the document

_PORTS = {"system": Port.SSH, "registered": Port.RENDEZVOUS, "dynamic": Port.CONTROL}
_SLOW_NS = 2_000_000
_LONGEST_NS = 1e14  # about a day: longer times, which a document may hold, would not fit into 64 bits
_MOST_NS = 3e18  # of all silence, and of all transfers: with the start they fit into 64 bits
_EARLIEST_NS = 400_000_000  # no transfer begins so long before its ends are ready, nor before the run
MOST_MESSAGES = 20_000_000
MOST_PIECES = 16
_LEAST_START_NS = 600_000_000  # in which connections are opened


@dataclass(frozen=True)
class MeasuredExchange(Collective):
    """Measured pairs of an unknown topology, not a law. relative: payload of each host to each other in a step, over
    S."""

    relative: tuple[tuple[float, ...], ...] = ()

    def __post_init__(self) -> None:
        """There is nothing to choose or to check."""

    def rounds(self, size_bytes: int, rng: random.Random | None = None) -> list[Round]:
        """All at once."""
        every = (
            Transfer(i, j, round(part * size_bytes))
            for i, row in enumerate(self.relative)
            for j, part in enumerate(row)
        )
        used = [transfer for transfer in every if transfer.src != transfer.dst and transfer.bytes > 0]
        return [used] if used else []


@dataclass(frozen=True)
class ModelledRun(SyntheticRun):
    """A run generated from a traffic model. relative: as in MeasuredExchange, for topology unknown."""

    relative: tuple[tuple[float, ...], ...] = ()
    learns: bool = False

    @property
    def undeclared(self) -> frozenset[str]:
        """A job has no values for these: the model holds their effects on the traffic, mixed."""
        return frozenset({"batch_size", "optimizer", "epochs", "delay_ms", "loss_pct", "bandwidth_mbit"})

    @property
    def collective(self) -> Collective:
        unknown = MeasuredExchange(self.topology, self.workers, relative=self.relative)
        return unknown if self.relative else super().collective


class ModelSampler(Sampler):
    """Draws from a document that was checked. stretch: how many times as long as there an exchange takes."""

    def __init__(self, document: Document, stretch: float = 1.0) -> None:
        self._document = document
        self._stretch = stretch
        self._buckets: pacing.Buckets | None = None
        self.segment_bytes = int(document["packets"]["segment_bytes"])

    def compute_ns(self, run: SyntheticRun, rng: np.random.Generator) -> Ints:
        """Gaps with the model's dependence between workers and from step to step (a Gaussian copula).

        Raises UsageError.
        """
        from scipy.special import ndtr

        model = self._document["computation"]
        # of a rank correlation r, the normal one is 2 sin(pi r / 6)
        shared = 2 * np.sin(np.pi / 6 * model["worker_correlation"])
        carried = 2 * np.sin(np.pi / 6 * model["autocorrelation"])
        together, alone = rng.normal(size=(run.steps, 1)), rng.normal(size=(run.steps, run.workers))
        fresh = np.sqrt(shared) * together + np.sqrt(1 - shared) * alone
        normal = fresh.copy()
        for step in range(1, run.steps):
            normal[step] = carried * normal[step - 1] + np.sqrt(1 - carried**2) * fresh[step]
        factors = np.array(run.compute_factors or _draw(model["worker_factors"], run.workers, rng))
        gap = run.compute_ms * 1e6 * factors * _at(model["relative"], ndtr(normal))
        gap[0] += _warm_up(self._document, run.model_bytes) * 1e6
        gap = np.clip(gap, 0, _LONGEST_NS)
        _check_length(run, float(gap.max(1).sum()))
        return gap.astype(np.int64)

    def payload(self, run: SyntheticRun, size: Ints, rng: np.random.Generator) -> tuple[Ints, Ints]:
        share = self._document["packets"]["retransmitted_share"] + run.loss_pct / 100
        repeated = (size * np.minimum(rng.uniform(0, 2 * share, size.shape), 1)).astype(np.int64)
        return size + repeated, repeated

    def times_ns(self, run: SyntheticRun, wire: Ints, rounds: Ints, rng: np.random.Generator) -> tuple[Ints, Ints]:
        """Draws when a transfer is complete; it begins earlier by the time that it takes.

        So a transfer that was slow because it waited for other slow ones does not delay a step twice.
        Raises UsageError.
        """
        model = self._document["exchange"]
        first, later = (_beyond_bytes(model[f"{name}completion_ms"], wire, rounds, rng) for name in ("first_", ""))
        complete = (wire * model["ns_per_byte"] + np.where(rounds == 0, first, later) * 1e6) * self._stretch
        duration = self._duration_ns(wire, rounds, rng)
        complete = np.maximum(complete, wire * model["least_ns_per_byte"]) + run.delay_ms * 1e6
        complete = np.minimum(complete, _LONGEST_NS)
        begins = np.flatnonzero(np.diff(rounds, prepend=-1))
        _check_length(run, float(np.maximum.reduceat(complete, begins, axis=1).sum()) if len(begins) else 0.0)
        whole = complete.astype(np.int64)
        duration = np.minimum(duration, whole + _EARLIEST_NS)
        return whole - duration, duration

    def _duration_ns(self, wire: Ints, rounds: Ints, rng: np.random.Generator) -> Ints:
        model = self._document["exchange"]
        stall = _beyond_bytes(model["stall_ms"], wire, rounds, rng) * 1e6
        lasting: Floats = np.maximum(wire * model["ns_per_byte"] + stall, wire * model["least_ns_per_byte"])
        return np.minimum(lasting, _LONGEST_NS).astype(np.int64) + 1

    def send_data(
        self, book: Book, flow: Ints, start: Ints, duration: Ints, payload: Ints, repeated: Ints, acked: Ints
    ) -> None:
        """A transfer that takes twice as long as its bytes pauses: it comes in pieces at the usual rate."""
        model = self._document["exchange"]
        rng = np.random.default_rng([int(payload.sum()), int(start.sum() & 0xFFFFFFFF)])
        wire = wire_bytes(payload, self.segment_bytes)
        alone = np.minimum(wire * model["ns_per_byte"], _LONGEST_NS).astype(np.int64) + 1
        drawn = np.clip(np.round(_draw(model["slow_pieces"], flow.shape, rng)), 1, MOST_PIECES).astype(np.int64)
        slow = (duration >= 2 * alone) & (duration >= alone + _SLOW_NS)
        pieces = np.where(slow, np.minimum(drawn, packets_of(payload - repeated, self.segment_bytes)), 1)
        step = np.broadcast_to(np.arange(len(flow))[:, None], flow.shape)
        for number in np.unique(pieces):
            mine = pieces == number
            columns = [column[mine] for column in (flow, start, duration, payload, repeated, acked, step)]
            self._send_pieces(book, int(number), alone[mine], *columns)

    def _send_pieces(
        self, book: Book, number: int, alone: Ints, flow: Ints, start: Ints, duration: Ints, payload: Ints,
        repeated: Ints, acked: Ints, step: Ints,
    ) -> None:  # fmt: skip
        segment = self.segment_bytes
        for k in range(number):
            # whole segments, so that pieces have no more packets; retransmissions are in the last piece
            begin = payload * k // number // segment * segment
            end = payload if k + 1 == number else payload * (k + 1) // number // segment * segment
            lasting = duration if number == 1 else alone // number + 1
            at = start if k == 0 else start + (duration - lasting) * k // (number - 1)
            size = end - begin
            again = np.minimum(repeated if k + 1 == number else 0, size)
            sent = np.flatnonzero(size)
            book.send(*(column[sent] for column in (flow, at, lasting, size, again, acked, step)))

    def pull_ns(self, run: SyntheticRun, wire: Ints, rng: np.random.Generator) -> Ints:
        """Drawn for each transfer by itself: pulls have no rounds. Raises UsageError."""
        duration = self._duration_ns(wire.reshape(-1, 1), np.zeros(1, np.int64), rng).reshape(wire.shape)
        _check_length(run, float(duration.max(1, initial=0).astype(float).sum()))
        return duration

    def end_ns(self, run: SyntheticRun, src: Ints, dst: Ints, payload: Ints, start: Ints, end: Ints) -> Ints:
        """Not before the links have let pass what each host sends and receives in the round, and acknowledgements.

        Where one is late for its link, the hosts' next is complete that much earlier, if their links let it: where one
        round ends and the next begins is known less exactly than both together.
        """
        if self._buckets is None:
            self._buckets = pacing.Buckets(run.collective.hosts, self._document["link"])
            self._late = np.zeros(run.collective.hosts, np.int64)
        acks = self.acks(packets_of(payload, self.segment_bytes)) * HEADER_BYTES
        planned = np.maximum(end - np.minimum(self._late[src], self._late[dst]), start + 1)
        found = self._buckets.end_ns(src, dst, wire_bytes(payload, self.segment_bytes), acks, start, planned)
        self._late[src] = self._late[dst] = 0
        np.maximum.at(self._late, src, found - planned)
        np.maximum.at(self._late, dst, found - planned)
        return found

    def paced(self, run: SyntheticRun, transfers: Transfers, ends: Ints) -> Transfers:
        """No host exceeds the link of the model in any window of its length."""
        return pacing.paced(transfers, ends, run.collective.hosts + 1, self._document["link"])

    def acks(self, packets: Ints) -> Ints:
        number: Floats = np.round(packets * self._document["packets"]["acks_per_segment"])
        return number.astype(np.int64)

    def send_start(self, run: SyntheticRun, book: Book, rng: np.random.Generator) -> int:
        model = self._document["start_up"]
        begin_ns = run.start_ns + max(round(float(model["duration_ms"]) * 1e6), _LEAST_START_NS)
        size = round(run.model_bytes * model["broadcast_ratio"])
        sent, at = [], 0
        for round_ in broadcast(run.workers, size) if size else []:
            src, dst, bytes_ = np.array(round_, np.int64).T
            payload, repeated = self.payload(run, bytes_, rng)
            wire = wire_bytes(payload, self.segment_bytes) * np.bincount(src)[src]  # copies share the sender's link
            duration = self._duration_ns(wire[:, None], np.zeros(1, np.int64), rng)[:, 0]
            begun = np.full(len(src), at)
            duration = self.end_ns(run, src, dst, payload, begun, begun + duration) - begun  # no faster than the links
            sent.append((src, dst, at, duration, payload, repeated))
            at += int(duration.max())
        lead_ns = round(float(model["broadcast_lead_ms"]) * 1e6)
        begin_ns = max(begin_ns, run.start_ns + _LEAST_START_NS + at + lead_ns)
        broadcast_ns = begin_ns - lead_ns - at
        for src, dst, offset, duration, payload, repeated in sent:
            flow = book.flows(src, dst, Port.DATA)
            book.send(flow, np.full(len(flow), broadcast_ns + offset), duration, payload, repeated, True)
        return begin_ns

    def send_rest(self, run: SyntheticRun, laws: Laws, times: StepTimes, book: Book, rng: np.random.Generator) -> None:
        """Messages, each kind by itself. Raises UsageError."""
        first, last = int(times.start_ns.min()), int(times.end_ns.max())
        last = max(last, first + 1)
        tear_down_ns = max(round(self._document["tear_down"]["duration_ms"] * 1e6), 1)
        opened = min(run.start_ns + _LEAST_START_NS, first - 1)
        spans = {"start_up": (opened, first), "step": (first, last), "tear_down": (last, last + tear_down_ns)}
        room = int(laws.size.sum() * _MESSAGES)
        for kind in self._document["control"]:
            exchanging = kind["kind"] != "other"
            pairs = _exchanging(kind["kind"], laws) if exchanging else _pairs(kind, run.collective.hosts, rng)
            if not len(pairs):
                continue
            port = Port.DATA if exchanging else _PORTS[kind["port_class"]]
            expected = kind["messages_per_pair"] * (run.steps if kind["phase"] == "step" else 1)
            if expected * len(pairs) > MOST_MESSAGES:
                raise UsageError(
                    f"{run.run_id}: {expected * len(pairs):.3g} messages of the kind {kind['kind']} in phase "
                    f"{kind['phase']}, more than {MOST_MESSAGES:,}; give fewer --steps or --workers"
                )
            src = np.repeat(pairs, rng.poisson(expected, len(pairs)), 0)
            payload = np.maximum(np.round(_draw(kind["bytes"], len(src), rng)), 1).astype(np.int64)
            if kind["phase"] == "step":
                src, payload = _fitting(src, payload, room, rng)
                room -= int(payload.sum())
            start = rng.integers(*spans[kind["phase"]], size=len(src))
            if kind["phase"] == "step" and exchanging and run.topology != "pair_averaging":
                start = _while_communicating(times, src[:, 0], rng)
            self._send(book, src, port, start, payload)

    def _send(self, book: Book, pairs: Ints, port: int, start: Ints, payload: Ints) -> None:
        if not len(pairs):
            return
        flow = book.flows(pairs[:, 0], pairs[:, 1], port)
        duration = packets_of(payload, self.segment_bytes) * 12_000
        book.send(flow, start, duration, payload, np.zeros_like(payload), port != Port.DATA)


def _check_length(run: SyntheticRun, lasting_ns: float) -> None:
    if lasting_ns > _MOST_NS:
        raise UsageError(
            f"{run.run_id}: would last {lasting_ns / 1e9 / 86400 / 365:.3g} years, and its times would not fit into 64 "
            "bits of nanoseconds; give fewer --steps, a shorter --compute-ms or fewer --model-bytes"
        )


def _at(quantiles: Sequence[float], u: Floats) -> Floats:
    """The values at the probabilities `u`, by interpolating."""
    return np.interp(u, np.linspace(0, 1, len(quantiles)), quantiles)


def _draw(quantiles: Sequence[float], shape: int | tuple[int, ...], rng: np.random.Generator) -> Floats:
    return _at(quantiles, rng.random(shape))


def _beyond_bytes(by_size: Sequence[dict[str, Any]], wire: Ints, rounds: Ints, rng: np.random.Generator) -> Floats:
    """What transfers take beyond the time of their bytes, ms; wire: steps by transfers.

    It is a value that the transfers of a round share plus one of each transfer's own. Each lies, at its quantile, on
    the line of the next smaller and the next larger size, or of the two sizes at that end.
    """
    shared = rng.random((len(wire), int(rounds.max(initial=0)) + 1))[:, rounds]
    own = rng.random((len(wire), len(rounds)))
    beyond = (_at(levels["shared"], shared) + _at(levels["own"], own) for levels in by_size)
    return on_line([levels["wire_bytes"] for levels in by_size], wire, beyond)


def on_line(sizes: Sequence[float], at: Ints | float, values: Iterable[Floats | float]) -> Floats:
    """The value at each of `at`, on the line of the two next of the sizes, which have these values and increase.

    Outside, it is on the line of the last size and the next one that is _FAR times away: nearer ones tell no slope.
    """
    known = np.asarray(sizes, float)
    last = len(known) - 1
    inside = np.clip(np.searchsorted(known, at), min(1, last), last)
    lower = max(np.searchsorted(known, known[-1] / _FAR, "right") - 1, 0) if known[-1] >= _FAR * known[0] else last
    upper = min(np.searchsorted(known, known[0] * _FAR), last) if known[-1] >= _FAR * known[0] else 0
    left = np.where(at > known[-1], lower, np.where(at < known[0], 0, np.maximum(inside - 1, 0)))
    right = np.where(at > known[-1], last, np.where(at < known[0], upper, inside))
    part = (at - known[left]) / np.where(left == right, np.inf, known[right] - known[left])
    found: Floats = np.zeros(np.shape(at))
    for number, value in enumerate(values):
        found = found + np.where(left == number, 1 - part, np.where(right == number, part, 0.0)) * value
    return found


def _exchanging(kind: str, laws: Laws) -> Ints:
    """Pairs that carry the exchange (exchange), or only its other direction (answer)."""
    pairs = laws.pairs
    wanted = pairs if kind == "exchange" else {(dst, src) for src, dst in pairs} - pairs
    return np.array(sorted(wanted), np.int64).reshape(-1, 2)


def _pairs(kind: dict[str, Any], hosts: int, rng: np.random.Generator) -> Ints:
    """The model's share of all pairs, with the first host at one end where the pattern is a hub."""
    hub = kind["pattern"] == "hub"
    every = [(i, j) for i in range(hosts) for j in range(hosts) if i != j and not (hub and i and j)]
    if not every:
        return np.empty((0, 2), np.int64)
    number = min(max(round(kind["pairs_share"] * hosts * (hosts - 1)), 1), len(every))
    chosen = rng.choice(len(every), number, replace=False)
    pairs: Ints = np.array(every, np.int64)[np.sort(chosen)]
    return pairs


def _fitting(pairs: Ints, payload: Ints, room: int, rng: np.random.Generator) -> tuple[Ints, Ints]:
    """Messages that together have at most `room` bytes: all, or as many of them, drawn at random.

    A message does not shrink with the model, so that those of a large model would be more than a tiny one's exchange.
    """
    if payload.sum() <= room:
        return pairs, payload
    order = rng.permutation(len(payload))
    kept = np.sort(order[np.cumsum(payload[order]) <= room])
    return pairs[kept], payload[kept]


def _while_communicating(times: StepTimes, worker: Ints, rng: np.random.Generator) -> Ints:
    """Times in the communication of a step, drawn from all, of each of these workers."""
    steps, workers = times.end_ns.shape
    at = rng.integers(steps, size=len(worker)), np.where(worker < workers, worker, 0)
    begin, end = times.communicate_ns[at], times.communicated_ns[at]
    return begin + (rng.random(len(worker)) * (end - begin)).astype(np.int64)
