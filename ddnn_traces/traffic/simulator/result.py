"""The result of a simulation, checked, as traffic: transfers, steps and events, which table_writer.py writes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ddnn_traces.errors import SimulationError, UsageError
from ddnn_traces.traffic.simulator.event_loop import Schedule, forward
from ddnn_traces.traffic.simulator.exchange import Transmissions, link_rates
from ddnn_traces.traffic.simulator.job import SimulatedRun
from ddnn_traces.traffic.synthetic import Book, Sampler
from ddnn_traces.traffic.traffic import Events, Floats, Ints, Port, StepTimes, Traffic

#: Rows of events that a run has at most.
MOST_EVENTS = 20_000_000
SETUP_NS = 1_000_000_000  # from the first connection to the start of the simulation
_KINDS = {1: ("allreduce",), 2: ("reduce", "broadcast")}


@dataclass(frozen=True)
class Timeline:
    """When a simulated run computed and exchanged, ns since the simulation began."""

    run: SimulatedRun
    schedule: Schedule

    @property
    def iteration_ms(self) -> Floats:
        """Time of each iteration, from the end of a forward pass to the end of the next; steps by workers."""
        return np.diff(self.schedule.forward_end, axis=0) / 1e6

    @property
    def exposed_ms(self) -> Floats:
        """Time of each iteration in which the worker does not compute; steps by workers."""
        return self.iteration_ms - self.run.factors()[1:] * self.run.profile.compute_ns / 1e6

    def times(self) -> dict[str, float]:
        """Means over steps and workers of iteration_ms, exposed_ms and first_forward_ms, as of summary()."""
        start = first_forward(self) - self.schedule.forward_end[:-1]
        return {
            "iteration_ms": float(self.iteration_ms.mean()),
            "exposed_ms": float(self.exposed_ms.mean()),
            "first_forward_ms": float(start.mean()) / 1e6,
        }


@dataclass(frozen=True)
class Result(Timeline):
    """A simulated run, with what it sent. step: of each transmission.

    is_merged: whether the transmissions of an exchange between two hosts are one. Raises SimulationError for a result
    that cannot be.
    """

    transmissions: Transmissions
    step: Ints
    is_merged: bool = False

    def __post_init__(self) -> None:
        _check(self)

    def summary(self) -> dict[str, float | None]:
        """Times of the run, as simulator.summary explains them."""
        run, schedule = self.run, self.schedule
        turn = schedule.forward_end[:-1] + run.factors()[1:] * run.profile.backward_ns.sum()
        times = self.times()
        found: dict[str, float | None] = {
            **times,
            "sent_bytes": float(self.transmissions.payload.sum()) / run.steps,
            "samples_per_s": run.workers * run.batch_size / times["iteration_ms"] * 1e3,
            "aggregation_remaining_ms": None,
            "distribution_remaining_ms": None,
        }
        if run.is_phased:
            aggregated, distributed = (schedule.exchange_end[..., i].max((1, 2)) for i in (0, 1))
            found["aggregation_remaining_ms"] = float((aggregated - turn.max(1)).clip(0).mean()) / 1e6
            found["distribution_remaining_ms"] = float((distributed - aggregated).mean()) / 1e6 - run.update_ms
        return found

    def traffic(self, layers: bool) -> Traffic:
        """The run as traffic. layers: whether events have the passes of each layer, and not of the model only."""
        run = self.run
        begin = run.start_ns + SETUP_NS
        book = booked(run, self.transmissions, self.step, Port.DATA)
        opened = book.open()
        made = Traffic(
            run, step_times(self, begin), book.connections, opened, book.transfers(), is_uneven=False,
            first_host=run.first_host,
        )  # fmt: skip
        made.events = events(self, begin, made.labels[: run.workers], layers)
        return made


def first_forward(result: Timeline) -> Floats:
    """When each worker begins the forward pass of the first layer, ns; steps by workers."""
    run, done = result.run, result.schedule.exchange_end[..., -1]  # steps by units by buffers
    ends: Floats = result.schedule.forward_end[:-1] + run.factors()[1:] * run.profile.backward_ns.sum()
    first = [k for k, buffer in enumerate(run.buffers) if run.barrier or buffer.first == 0]
    if not run.barrier and run.profile.gradient_bytes[0] == 0:
        return ends
    return np.asarray(np.maximum(ends, done[:, :, first].max(2))) if first else ends


def _check(result: Result) -> None:
    """Raise SimulationError for no bytes, no time, a worker that never ends or a link above its rate."""
    run, sent = result.run, result.transmissions
    if np.isnan(result.schedule.forward_end).any():
        raise SimulationError(f"{run.run_id}: a worker never ends")
    if not sent.payload.sum() > 0:
        raise SimulationError(f"{run.run_id}: nothing was sent in {run.steps} steps")
    if not (result.iteration_ms > 0).all() or not (sent.end_ns > sent.begin_ns).all():
        raise SimulationError(f"{run.run_id}: a step or a transfer takes no time")
    rates = link_rates(run)
    for host, way in ((sent.src, "out"), (sent.dst, "in")):
        worst = _busiest(host, sent, run, rates)
        if worst > 1 + 1e-6:
            raise SimulationError(f"{run.run_id}: a link carries {worst:.4g} times its rate ({way})")


def _busiest(host: Ints, sent: Transmissions, run: SimulatedRun, rates: Floats) -> float:
    """Largest ratio of what goes over a link, at any time, to its rate."""
    length = sent.end_ns - sent.begin_ns + 2 * np.spacing(sent.end_ns)  # a time is no finer than its float
    rate = sent.wire / length / rates[host]
    times = np.concatenate([sent.begin_ns, sent.end_ns])
    change = np.concatenate([rate, -rate])
    hosts = np.concatenate([host, host])
    is_begin = np.concatenate([np.ones(len(rate), bool), np.zeros(len(rate), bool)])
    order = np.lexsort((is_begin, np.rint(times), hosts))  # what ends goes before what begins
    return float(np.cumsum(change[order]).max(initial=0.0))


def booked(run: SimulatedRun, sent: Transmissions, step: Ints, port: Ints | int) -> Book:
    """The transmissions, on connections to these ports. step: of each."""
    book = Book(run, _NoHeaders() if run.header_bytes == 0 else Sampler())
    start = run.start_ns + SETUP_NS + np.rint(sent.begin_ns).astype(np.int64)
    length = np.maximum(np.rint(sent.end_ns - sent.begin_ns), 1).astype(np.int64)
    ports = np.broadcast_to(np.asarray(port), sent.src.shape)
    flow = np.empty(len(sent), np.int64)
    for one in np.unique(ports):
        mine = ports == one
        flow[mine] = book.flows(sent.src[mine], sent.dst[mine], int(one))
    rows = np.flatnonzero(sent.payload)  # a part of a transfer may be less than a packet
    book.send(flow[rows], start[rows], length[rows], sent.payload[rows], np.zeros_like(rows), False, step[rows])
    return book


class _NoHeaders(Sampler):
    """Packets of a network without headers."""

    header_bytes = 0


def _whole(times: Floats, begin: int) -> Ints:
    return begin + np.rint(times).astype(np.int64)


def step_times(result: Timeline, begin: int) -> StepTimes:
    """Steps by workers; a step begins with the end of a forward pass."""
    schedule = result.schedule
    shape = (result.run.steps, result.run.workers)
    first = np.broadcast_to(schedule.exchange_start.min((2, 3)), shape)
    last = np.broadcast_to(schedule.exchange_end.max((2, 3)), shape)
    ends = _whole(schedule.forward_end, begin)
    return StepTimes(ends[:-1], _whole(first, begin), _whole(last, begin), ends[1:])


def events(result: Timeline, begin: int, labels: list[str], layers: bool) -> Events:
    """Rows of events: workers in the order of their labels, steps, times. Raises UsageError."""
    run = result.run
    columns = [*_exchanges(result), *(_passes(result) if layers else _whole_passes(result))]
    start, end = (np.concatenate([column[i] for column in columns], 2) for i in (0, 1))  # steps, workers, rows
    if start.size > MOST_EVENTS:
        raise UsageError(f"{run.run_id}: {start.size:,} events are more than {MOST_EVENTS:,}; give --no-layer-events")
    kind, name, size, priority = (np.concatenate([column[i] for column in columns]) for i in (2, 3, 4, 5))
    by_label = sorted(range(run.workers), key=lambda i: labels[i])
    start, end = (_whole(times, begin)[:, by_label].swapaxes(0, 1) for times in (start, end))
    order = np.argsort(start, axis=2, kind="stable")
    rows = order.ravel()
    start, end = (np.take_along_axis(times, order, 2).ravel() for times in (start, end))
    worker, step, _ = np.indices(order.shape)
    there = end > start
    number = size[rows]
    return Events(
        np.array([labels[i] for i in by_label], object)[worker.ravel()[there]], step.ravel()[there],
        kind[rows][there], name[rows][there], start[there], end[there],
        np.ma.masked_less(number[there], 0), np.ma.masked_less(priority[rows][there], 0),
    )  # fmt: skip


_Column = tuple[Floats, Floats, Ints, Ints, Ints, Ints]


def _column(start: Floats, end: Floats, kind: str, names: list[str], size: list[int], priority: list[int]) -> _Column:
    """Events of a kind: start and end, steps by workers by rows; kind, name, bytes and priority of a row; -1: none."""
    columns = np.array([kind] * len(names), object), np.array(names, object), np.array(size), np.array(priority)
    return (start, end, *columns)


def _exchanges(result: Timeline) -> list[_Column]:
    run, schedule = result.run, result.schedule
    kinds = ("recv",) if run.is_asynchronous else _KINDS[schedule.exchange_start.shape[3]]
    shape = (run.steps, run.workers, len(run.buffers))
    names = [f"buffer-{k}" for k in range(len(run.buffers))]
    sizes, priorities = [buffer.bytes for buffer in run.buffers], [buffer.first for buffer in run.buffers]
    columns = []
    for i, kind in enumerate(kinds):
        start, end = (np.broadcast_to(t[..., i], shape) for t in (schedule.exchange_start, schedule.exchange_end))
        columns.append(_column(start, end, kind, names, sizes, priorities))
    return columns


def _passes(result: Timeline) -> list[_Column]:
    """Backward computation of each layer, with the bytes of its gradients, and forward computation."""
    run, schedule = result.run, result.schedule
    factors = run.factors()[1:, :, None]
    profile = run.profile
    backward_end = schedule.forward_end[:-1, :, None] + factors * np.cumsum(profile.backward_ns[::-1])[::-1]
    forward_end = np.empty_like(backward_end)
    for step in range(run.steps):
        for worker in range(run.workers) if run.is_asynchronous else [slice(None)]:
            done = schedule.exchange_end[step, worker if run.is_asynchronous else 0]
            ready = np.atleast_1d(backward_end[step, worker, 0])
            ends = forward(run, done, ready, np.atleast_1d(factors[step, worker, 0]))
            forward_end[step, worker] = ends.T
    names, numbers = list(profile.names), list(range(profile.layers))
    sizes = profile.gradient_bytes.tolist()
    return [
        _column(backward_end - factors * profile.backward_ns, backward_end, "backward", names, sizes, numbers),
        _column(forward_end - factors * profile.forward_ns, forward_end, "forward", names, [-1] * len(names), numbers),
    ]


def _whole_passes(result: Timeline) -> list[_Column]:
    """The backward pass, and the forward pass with its waits for gradients."""
    run, schedule = result.run, result.schedule
    ends = schedule.forward_end[:, :, None]
    turn = ends[:-1] + run.factors()[1:, :, None] * run.profile.backward_ns.sum()
    start = ends[1:] - run.factors()[1:, :, None] * run.profile.forward_ns.sum() if run.barrier else turn
    return [
        _column(ends[:-1], turn, "backward", [""], [-1], [-1]),
        _column(start, ends[1:], "forward", [""], [-1], [-1]),
    ]
