"""What the hosts of a job do one after the other in a step, cut where they pause at the same bytes.

A host that has finished a collective begins the next one behind a pause. The pause is at the same byte of each of its
flows in most steps, which no other silence is. Phases of two hosts that share bytes of a flow are one, so groups of
hosts that do not wait for each other come apart. No pause of all hosts is needed.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from ddnn_traces.collectives.steps import Steps
from ddnn_traces.collectives.streams import MS, SMALL, Array, Stream, by_hosts, concatenated, groups, hosts_of

_PAUSE = 0.2 * MS
_LEAST_PRESENCE = 0.6  # share of the steps that have the pause
_DATA_SHARE = 0.15  # of the largest flow of a phase: the others carry only control messages
_LEAST_BYTES = 500.0
_SAME_END = 60.0
_LEAST_ENDS = 0.5  # share of the steps in which a message ends there
_MOST_STEPS = 200  # for the template of a step; the times of all are taken

EQUAL = 0.02  # of the bytes of two flows
SAME_LENGTH = 0.04  # of two messages
SAME_BYTES = 300.0  # control messages before or behind a pause
_UNEQUAL_BYTES = 350.0  # control messages

#: Bytes of each flow, from and to, counted from the start of the step.
Spans = dict[Stream, tuple[float, float]]


@dataclass(frozen=True, eq=False)
class Pattern:
    """Who sends how much to whom. spans: bytes of each flow with data."""

    spans: Spans

    @cached_property
    def hosts(self) -> frozenset[str]:
        return hosts_of(self.spans)

    @cached_property
    def connections(self) -> int:
        """Flows between two hosts that carry one transfer together, as NCCL's channels do: so many that each pair has
        them once or several times."""
        return math.gcd(*Counter(stream.hosts for stream in self.spans).values())

    @cached_property
    def edges(self) -> list[tuple[Stream, ...]]:
        """Flows that are one edge of the pattern: those of one transfer."""
        return [
            tuple(same[place : place + self.connections])
            for same in by_hosts(self.spans).values()
            for place in range(0, len(same), self.connections)
        ]

    @cached_property
    def volumes(self) -> list[float]:
        """Bytes of each edge."""
        return [sum(self.spans[one][1] - self.spans[one][0] for one in edge) for edge in self.edges]

    @property
    def bytes(self) -> float:
        """Median over the edges."""
        return float(np.median(self.volumes))

    @property
    def streams(self) -> list[Stream]:
        """A flow of each edge."""
        return [edge[0] for edge in self.edges]

    @property
    def is_balanced(self) -> bool:
        """Whether all edges carry the same bytes, but for control messages."""
        return max(self.volumes) - min(self.volumes) <= max(EQUAL * max(self.volumes), _UNEQUAL_BYTES)


@dataclass(frozen=True, eq=False)
class Phase(Pattern):
    """A part of a step. start, end: first and last message in each step, ns, by its number. order: median start, ns
    since the step's. messages: messages of each flow in it, by their ends. lengths: of messages whose both ends are
    known, bytes; places: where these begin in the step, bytes; cases: number of flows times steps that they are from.
    little: bytes of other flows, which may be control messages. waiting: time in which all flows wait for a late host,
    ns."""

    start: dict[int, float]
    end: dict[int, float]
    order: float
    messages: float
    lengths: Array
    places: Array
    cases: int
    little: Spans = field(default_factory=dict)
    waiting: float = 0.0

    def place_of(self, length: float) -> float:
        """Where messages of nearly this length begin, on average, bytes."""
        return float(np.mean(self.places[np.abs(self.lengths - length) <= SAME_LENGTH * length]))


@dataclass(frozen=True)
class Parts:
    """Messages of a flow by step: number of the step, first and last byte in it, times of first and last packet."""

    step: Array
    begin: Array
    stop: Array
    first: Array
    last: Array


@dataclass(frozen=True)
class Collective:
    """A collective of a step. kind: all_reduce, all_gather, reduce_scatter, all_to_all or send; kind_or: what else the
    same traffic could be. algorithm: ring, rings, double_binary_tree, star, tree, recursive_doubling, halving_doubling,
    direct. hosts: in the order of a ring, else sorted; of a send, sender and receiver. tensor_bytes: as nccl-tests'
    size; of an all-to-all what a host has for all, on average. evidence: why. phases: those that it is made of."""

    kind: str
    kind_or: str | None
    algorithm: str
    hosts: tuple[str, ...]
    tensor_bytes: float
    evidence: str
    phases: tuple[Phase, ...]
    #: Rings over the same hosts, or trees, that are one communicator's channels.
    channel: int = 0


def pause(one: Phase, other: Phase, steps: int = 0) -> float:
    """Between two phases, of which the other is so many steps later, ns; inf where they share no step."""
    found = [other.start[step + steps] - end for step, end in one.end.items() if step + steps in other.start]
    return float(np.median(found or [np.inf]))


def phases(steps: Steps, parts: dict[Stream, Parts]) -> list[Phase]:
    """The phases of a job's step, in the order in which they begin."""
    whole = steps.whole[:_MOST_STEPS]
    first = {host: _of_host(host, steps, parts, whole) for host in sorted(hosts_of(steps.first))}
    found = [phase_of(spans, steps, parts) for spans in _joined(first)]
    return sorted((phase for phase in found if phase is not None), key=lambda phase: phase.order)


def parts_of(stream: Stream, steps: Steps) -> Parts:
    """The messages of a flow by step; one that reaches into the next step is divided."""
    size = steps.size[stream]
    begin = stream.start - steps.first[stream]
    slack = min(SAME_BYTES, 0.01 * size)
    step = np.floor((begin + slack) / size)
    until = np.maximum(np.ceil((begin + stream.size - slack) / size), step + 1)
    copies = np.minimum(until - step, 1000).astype(int)
    each = np.repeat(np.arange(len(step)), copies)
    number = step[each] + np.arange(len(each)) - np.repeat(np.cumsum(copies) - copies, copies)
    low = np.where(number == step[each], begin[each] - number * size, 0.0)
    high = np.minimum(begin[each] + stream.size[each] - number * size, size + slack)
    return Parts(number.astype(int), low, high, stream.first[each].astype(float), stream.last[each].astype(float))


def _of_host(host: str, steps: Steps, parts: dict[Stream, Parts], whole: Array) -> list[Spans]:
    """The phases of a host: the bytes of its flows between its pauses."""
    own = [stream for stream in steps.first if host in stream.hosts]
    bounds = [np.zeros(len(own)), *_pauses(own, parts, whole), np.array([steps.size[stream] for stream in own])]
    found = []
    for low, high in itertools.pairwise(bounds):
        spans = {s: (a, b) for s, a, b in zip(own, low, high, strict=True) if b - a > SMALL}
        if spans:
            found.append(spans)
    return found


def _pauses(own: list[Stream], parts: dict[Stream, Parts], whole: Array) -> list[Array]:
    """The bytes of each flow at the pauses of a host that recur in most steps."""
    step = concatenated([parts[stream].step for stream in own], int)
    first = concatenated([parts[stream].first for stream in own])
    last = concatenated([parts[stream].last for stream in own])
    stop = concatenated([parts[stream].stop for stream in own])
    flow = np.repeat(np.arange(len(own)), [len(parts[stream].step) for stream in own])
    order = np.lexsort((first, step))
    order = order[np.isin(step[order], whole)]
    step, first, last, stop, flow = (values[order] for values in (step, first, last, stop, flow))
    if not len(step):
        return []
    begins = np.flatnonzero(np.diff(step, prepend=step[0] - 1))
    cuts, at = [], []
    for low, high in zip(begins, [*begins[1:], len(step)], strict=True):
        busy = np.maximum.accumulate(last[low:high])
        behind = low + 1 + np.flatnonzero(first[low + 1 : high] - busy[:-1] > _PAUSE)
        if len(behind):
            done = np.zeros((len(behind), len(own)))
            for index in range(len(own)):
                sent = np.maximum.accumulate(np.where(flow[low:high] == index, stop[low:high], 0.0))
                done[:, index] = sent[behind - low - 1]
            cuts.append(done)
            at.append(step[behind])
    if not cuts:
        return []
    bytes_, steps = np.concatenate(cuts), np.concatenate(at)
    order = np.argsort(bytes_.sum(axis=1), kind="stable")
    bytes_, steps = bytes_[order], steps[order]
    apart = np.concatenate([[0.0], np.cumsum(np.max(np.abs(np.diff(bytes_, axis=0)), axis=1) > SAME_BYTES)])
    found = []
    for same in groups(apart, 0.5):
        if len(np.unique(steps[same])) >= _LEAST_PRESENCE * len(whole):
            found.append(np.median(bytes_[same], axis=0))
    return found


def _joined(of_hosts: dict[str, list[Spans]]) -> list[Spans]:
    """Phases of hosts that share bytes of a flow as one: the classes of this relation."""
    from scipy import sparse
    from scipy.sparse import csgraph

    all_spans = [spans for found in of_hosts.values() for spans in found]
    shared = []
    by_flow: dict[Stream, list[int]] = defaultdict(list)
    for index, spans in enumerate(all_spans):
        for stream in spans:
            by_flow[stream].append(index)
    for stream, indices in by_flow.items():
        for pair in itertools.combinations(indices, 2):
            (low, high), (begin, stop) = (all_spans[index][stream] for index in pair)
            if min(high, stop) - max(low, begin) > SAME_BYTES:
                shared.append(pair)
    one, other = np.array(shared, int).reshape(-1, 2).T
    graph = sparse.coo_array((np.ones(len(shared)), (one, other)), (len(all_spans), len(all_spans)))
    joined: dict[int, Spans] = defaultdict(dict)
    for spans, number in zip(all_spans, csgraph.connected_components(graph, directed=False)[1].tolist(), strict=True):
        merge(joined[number], spans)
    return list(joined.values())


def merge(spans: Spans, more: Spans) -> None:
    """Add the bytes of other spans."""
    for stream, (begin, stop) in more.items():
        low, high = spans.get(stream, (begin, stop))
        spans[stream] = (min(low, begin), max(high, stop))


def phase_of(spans: Spans, steps: Steps, parts: dict[Stream, Parts]) -> Phase | None:
    """A phase with its times and messages; None where it has only control messages."""
    most = max(stop - begin for begin, stop in spans.values())
    with_data = {s: b for s, b in spans.items() if b[1] - b[0] > max(_DATA_SHARE * most, _LEAST_BYTES)}
    phase = measured(with_data, steps, parts) if with_data else None
    return phase and replace(phase, little={s: b for s, b in spans.items() if s not in with_data})


def measured(spans: Spans, steps: Steps, parts: dict[Stream, Parts]) -> Phase | None:
    """The times and messages of these bytes; None where no message is in them."""
    whole = steps.whole[:_MOST_STEPS]
    start: dict[int, float] = {}
    end: dict[int, float] = {}
    for stream, span in spans.items():
        part = part_in(parts[stream], span, steps)
        for step, first, last in zip(part.step, part.first, part.last, strict=True):
            start[int(step)] = min(start.get(int(step), first), first)
            end[int(step)] = max(end.get(int(step), last), last)
    if not start:
        return None
    begins = dict(zip(steps.number.tolist(), steps.start, strict=True))
    order = float(np.median([start[step] - begins[step] for step in start if step in begins] or [0.0]))
    found = [_messages(stream, span, steps, whole) for stream, span in spans.items()]
    counts, lengths, places = zip(*found, strict=True)
    messages, cases = float(np.median(counts)), len(whole) * len(spans)
    return Phase(spans, start, end, order, messages, concatenated(lengths), concatenated(places), cases)


def part_in(part: Parts, span: tuple[float, float], steps: Steps) -> Parts:
    """The messages with data of which most is in these bytes of a whole step."""
    inside = part.stop - part.begin > SMALL
    inside &= np.minimum(part.stop, span[1]) - np.maximum(part.begin, span[0]) > 0.5 * (part.stop - part.begin)
    inside &= np.isin(part.step, steps.whole)
    return Parts(*(values[inside] for values in (part.step, part.begin, part.stop, part.first, part.last)))


def common_ends(ends: Array, begins: Array, span: tuple[float, float]) -> list[float]:
    """Places in these bytes of a step at which a message of a flow ends in most steps. ends: of its messages; begins:
    of the steps; bytes of the stream."""
    low, high = (np.searchsorted(ends, begins + at, "right") for at in span)
    places = concatenated([ends[a:b] - begin for a, b, begin in zip(low, high, begins, strict=True)])
    step = np.repeat(np.arange(len(begins)), high - low)
    order = np.argsort(places, kind="stable")
    places, step = places[order], step[order]
    return [
        float(places[same[len(same) // 2]])  # they are sorted
        for same in groups(places, _SAME_END)
        if len(np.unique(step[same])) >= _LEAST_ENDS * len(begins)
    ]


def _messages(stream: Stream, span: tuple[float, float], steps: Steps, whole: Array) -> tuple[int, Array, Array]:
    """Places in a span at which a message of a flow ends in most steps; lengths of messages, and where they begin."""
    begins = steps.first[stream] + whole * steps.size[stream]
    count = len(common_ends(stream.ends, begins, (span[0] + 100, span[1] + 200)))
    sure = stream.sure if len(stream.sure) else stream.ends
    before, high = (np.searchsorted(sure, begins + at, "right") for at in (span[0] - 200, span[1] + 200))
    lengths = concatenated([np.diff(sure[a:b]) for a, b in zip(before, high, strict=True)])
    places = concatenated([sure[a:b][:-1] - begin for a, b, begin in zip(before, high, begins, strict=True)])
    return count, lengths, places
