"""A run with a pattern of today's training: simulated task by task, checked, and as traffic with its events."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ddnn_traces.errors import SimulationError, UsageError
from ddnn_traces.traffic.simulator import chakra_trace, task_loop
from ddnn_traces.traffic.simulator.exchange import Transmissions
from ddnn_traces.traffic.simulator.job import SimulatedRun
from ddnn_traces.traffic.simulator.result import SETUP_NS, booked
from ddnn_traces.traffic.simulator.task_graph import NOBODY, Graph, graph_of
from ddnn_traces.traffic.traffic import Events, Floats, Ints, Port, StepTimes, Traffic


@dataclass(frozen=True)
class PatternResult:
    """A simulated run of a pattern. begin, end: of each task of the graph in each step, ns; steps by tasks. src, dst,
    channel, amount: of the tasks. Raises SimulationError for a task that never ends."""

    run: SimulatedRun
    graph: Graph
    begin: Floats
    end: Floats
    src: Ints
    dst: Ints
    channel: Ints
    amount: Ints

    def __post_init__(self) -> None:
        if np.isnan(self.end).any():
            raise SimulationError(f"{self.run.run_id}: a task never ends; this is an error of the simulator")

    @cached_property
    def sent(self) -> Ints:
        """Numbers of the tasks that are transfers with bytes."""
        return np.flatnonzero((self.dst != NOBODY) & (self.amount > 0))

    @property
    def iteration_ms(self) -> Floats:
        """Time of each step, steps by workers."""
        times = self.times(0)
        return (times.end_ns - times.start_ns) / 1e6

    def times(self, origin: int) -> StepTimes:
        """Steps by workers; a worker's communication is from its first collective to the end of the last one."""
        workers = self.run.workers
        first, last = np.full((2, workers, len(self.begin)), np.nan)
        for span in self.graph.spans:
            if span.bytes >= 0:
                start, end = self.of_span(span.after, span.until)
                np.fmin.at(first, span.hosts, start.T)
                np.fmax.at(last, span.hosts, end.T)
        # a step's last tasks are the joins of all workers, and so are its first
        begin, end = self.begin[:, :workers], self.end[:, -workers:]
        columns = (begin, np.where(np.isnan(first.T), end, first.T), np.where(np.isnan(last.T), end, last.T), end)
        return StepTimes(*(origin + np.rint(column).astype(np.int64) for column in columns))

    def of_span(self, after: Ints, until: Ints) -> tuple[Floats, Floats]:
        """When the events of a span begin and end, steps by rows."""
        return np.where(after == NOBODY, self.begin[:, until], self.end[:, after]), self.end[:, until]

    def summary(self) -> dict[str, float | None]:
        """Times of the run, as simulator.summary explains them, without those of a forward pass or a server."""
        run = self.run
        computed = np.zeros((run.workers, run.steps))
        for span in self.graph.spans:
            if span.bytes < 0:
                start, end = self.of_span(span.after, span.until)
                np.add.at(computed, span.hosts, (end - start).T / 1e6)
        mean = float(self.iteration_ms.mean())
        return {
            "iteration_ms": mean,
            "exposed_ms": float((self.iteration_ms - computed.T).mean()),
            "sent_bytes": float(self.amount[self.sent].sum()),
            "samples_per_s": None if "batch_size" in run.undeclared else run.workers * run.batch_size / mean * 1e3,
        }

    def traffic(self, layers: bool) -> Traffic:
        """The run as traffic: each channel has connections of its own, and each transfer a message. layers: unused."""
        run, rows = self.run, self.sent
        steps = np.repeat(np.arange(run.steps), len(rows))
        src, dst, payload, channel = (
            np.tile(column[rows], run.steps) for column in (self.src, self.dst, self.amount, self.channel)
        )
        times = self.begin[:, rows].ravel(), self.end[:, rows].ravel()
        sent = Transmissions(src, dst, *times, payload, run.wire(payload).astype(float))
        book = booked(run, sent, steps, Port.DATA + channel)
        begin, opened = run.start_ns + SETUP_NS, book.open()
        made = Traffic(run, self.times(begin), book.connections, opened, book.transfers())
        made.events, made.is_uneven, made.are_whole = self.events(begin, run.labels), False, True
        return made

    def events(self, origin: int, labels: list[str]) -> Events:
        """Rows of events: each worker's computations and collectives, and sends, which their senders have."""
        spans = self.graph.spans
        start, end = (
            np.concatenate(times, 1)
            for times in zip(*(self.of_span(span.after, span.until) for span in spans), strict=True)
        )
        host = np.concatenate([span.hosts for span in spans])
        number = [len(span.hosts) for span in spans]
        kind = np.repeat(np.array([span.kind for span in spans], object), number)
        name = np.array([name for span in spans for name in span.name], object)
        size = np.repeat([span.bytes for span in spans], number)
        place = np.argsort(np.argsort(np.array(labels)))  # of each worker in the order of the table
        step = np.repeat(np.arange(len(start)), len(host))
        row = np.tile(np.arange(len(host)), len(start))
        begin = origin + np.rint(start.ravel()).astype(np.int64)
        # at the same time on several channels: as the spans are
        order = np.lexsort((row, kind[row].astype(str), begin, step, place[host[row]]))
        step, row, begin = step[order], row[order], begin[order]
        done = origin + np.rint(end.ravel()[order]).astype(np.int64)
        return Events(
            np.array(labels, object)[host[row]], step, kind[row], name[row], begin, done,
            np.ma.masked_less(size[row], 0), np.ma.masked_equal(np.zeros_like(row), 0),
        )  # fmt: skip


def simulate(run: SimulatedRun) -> PatternResult:
    """Simulate a run with a pattern, every transfer of it.

    Raises UsageError for a trace that never ends and a fault at a host that does not compute, SimulationError for a
    result that cannot be.
    """
    assert run.pattern
    steps, workers = run.steps, run.workers
    graph = graph_of(run.pattern.step(run), workers, steps)
    joins = graph.end()
    src, dst, amount, channel = (
        np.concatenate(columns) for columns in (graph.src, graph.dst, graph.amount, graph.channel)
    )
    wire = np.where(dst == NOBODY, amount, run.wire(amount)).astype(float)
    every = np.tile(wire, (steps, 1))
    computes = np.flatnonzero((dst == NOBODY) & (amount > 0))
    every[:, computes] *= run.factors()[1:, src[computes]]
    if run.fault and run.fault.kind == "slow_host":
        slowed = computes[src[computes] == run.fault.place(run.labels)]
        if not len(slowed):
            raise UsageError(f"fault.host = {run.fault.host!r}; it has no computation in the trace")
        every[run.fault.steps(steps), slowed[0]] += run.fault.strength * 1e6
    # in the next step the host goes on: beyond the last step there is no such task
    edges = [*graph.edges, (joins, graph.begin + graph.tasks)]
    task, waiting = (np.concatenate(ends) for ends in zip(*edges, strict=True))
    order = np.argsort(task, kind="stable")
    waits = np.bincount(waiting, minlength=2 * graph.tasks)
    bounds = np.searchsorted(task[order], np.arange(graph.tasks))
    steps_by = np.arange(steps)[:, None]
    first = waits[: graph.tasks]
    again = first + waits[graph.tasks :]
    begin, end = task_loop.run(
        np.tile(src, steps), np.tile(dst, steps), every.ravel(),
        np.concatenate([first, np.tile(again, steps - 1)]),
        np.append((bounds + steps_by * len(order)).ravel(), steps * len(order)),
        (waiting[order] + steps_by * graph.tasks).ravel(), run.rates(), run.delay_ms * 1e6,
    )  # fmt: skip
    if run.pattern.trace and np.isnan(end).any():
        never = int(np.flatnonzero(np.isnan(end))[0]) % graph.tasks - workers  # nodes are behind the first joins
        where = chakra_trace.read(run.pattern.trace).place(never)
        raise UsageError(
            f"{run.pattern.trace}: {where} never begins; nodes wait for each other in a circle, or ranks call "
            "collectives in different orders"
        )
    shape = (steps, graph.tasks)
    return PatternResult(run, graph, begin.reshape(shape), end.reshape(shape), src, dst, channel, amount)
