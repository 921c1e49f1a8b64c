"""A step as a graph of tasks: computations, transfers, and joins, where a host has a round behind it.

A transfer waits for the round before of its sender, and in its first round for its receiver to come to the collective.
So hosts of a group go apart as far as their transfers let them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from ddnn_traces.traffic.collectives import shares
from ddnn_traces.traffic.simulator.patterns import Call, Compute, Grid, Part, Replay, Stages, strides
from ddnn_traces.traffic.traffic import Ints

NOBODY = -1
#: Transfers of a run that are made one by one, and times that one gets another rate.
MOST_TRANSFERS = 2_000_000
MOST_CHANGES = 200_000_000
_ALGORITHMS = {"alltoall": "direct", "broadcast": "chain", "reduce": "chain"}  # of a trace; others: ring
_CHUNKS = 32  # of a chain


class Round(NamedTuple):
    """Transfers at the same time, as arrays."""

    src: Ints
    dst: Ints
    bytes: Ints


class Span(NamedTuple):
    """An event of each of these hosts: behind task `after` it begins, with task `until` it ends; -1 in `after`: it
    begins with `until`. name: of each host's group."""

    kind: str
    name: list[str]
    bytes: int
    hosts: Ints
    after: Ints
    until: Ints


@dataclass
class Graph:
    """Tasks of a step. src: host; dst: receiver of a transfer, else NOBODY; amount: bytes of a transfer, else ns;
    channel: of a transfer. edges: task, and what waits for it. last: what each host did last."""

    hosts: int
    src: list[Ints] = field(default_factory=list)
    dst: list[Ints] = field(default_factory=list)
    amount: list[Ints] = field(default_factory=list)
    channel: list[Ints] = field(default_factory=list)
    edges: list[tuple[Ints, Ints]] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    tasks: int = 0

    def __post_init__(self) -> None:
        everybody = np.arange(self.hosts)
        self.begin = self.add(everybody)
        self.last = self.begin.copy()

    def add(self, src: Ints, dst: Ints | int = NOBODY, amount: Ints | int = 0, channel: int = 0) -> Ints:
        """New tasks; joins, where nothing else is given."""
        for column, values in (
            (self.src, src), (self.dst, dst), (self.amount, amount), (self.channel, channel),
        ):  # fmt: skip
            column.append(np.broadcast_to(np.asarray(values, np.int64), len(src)))
        self.tasks += len(src)
        return np.arange(self.tasks - len(src), self.tasks)

    def edge(self, task: Ints, waiting: Ints) -> None:
        self.edges.append((task, waiting))

    def end(self) -> Ints:
        """Joins behind all that each host did."""
        joins = self.add(np.arange(self.hosts))
        self.edge(self.last, joins)
        return joins

    def _events(self, kind: str, names: list[str], size: int, hosts: Ints, tasks: Ints) -> None:
        """Events of these hosts that begin with their own task."""
        self.spans.append(Span(kind, names, size, hosts, np.full(len(hosts), NOBODY), tasks))

    def compute(self, part: Compute) -> None:
        hosts = np.arange(self.hosts)
        tasks = self.add(hosts, amount=round(part.ns))
        self.edge(self.last, tasks)
        self.last = tasks
        self._events(part.kind, [""] * self.hosts, -1, hosts, tasks)

    def call(self, part: Call, most_rounds: int) -> None:
        hosts = np.sort(part.groups.ravel())
        group = np.empty(self.hosts, np.int64)
        group[part.groups] = np.arange(len(part.groups))[:, None]
        names = [f"{part.name} {number}" if len(part.groups) > 1 else part.name for number in group[hosts]]
        channels = rounds_of(part, most_rounds)
        sizes = shares(part.bytes, len(channels))
        ends = [self._rounds(rounds, number) for number, rounds in enumerate(channels)]
        for number, (size, end) in enumerate(zip(sizes, ends, strict=True)):
            own = names if len(channels) == 1 else [f"{name} channel {number}" for name in names]
            self.spans.append(Span(part.kind, own, size, hosts, self.last[hosts], end[hosts]))
        last = ends[0].copy()
        if len(ends) > 1:
            last[hosts] = self.add(hosts)
            for end in ends:
                self.edge(end[hosts], last[hosts])
        self.last = last

    def _rounds(self, rounds: list[Round], channel: int) -> Ints:
        """The transfers of a collective; returns what each host did last then."""
        at = self.last.copy()
        known = np.empty(0, np.int64)
        for round_ in rounds:
            sent = self.add(round_.src, round_.dst, round_.bytes, channel)
            self.edge(at[round_.src], sent)
            pairs = round_.src * self.hosts + round_.dst
            if not np.array_equal(pairs, known[-len(pairs) :]):
                new = ~np.isin(pairs, known)
                self.edge(self.last[round_.dst[new]], sent[new])
                known = np.concatenate([known, pairs])
            touched = np.unique(np.concatenate([round_.src, round_.dst]))
            joins = self.add(touched)
            self.edge(at[touched], joins)
            for ends in (round_.src, round_.dst):
                self.edge(sent, joins[np.searchsorted(touched, ends)])
            at[touched] = joins
        return at

    def stages(self, part: Stages) -> None:
        """Each stage computes one micro-batch at a time: forward as many as there are stages behind it, then backward
        and forward in turn. What it sends goes while it computes."""
        stages, batches = self.hosts, part.micro_batches
        rank = np.repeat(np.arange(stages), batches)
        ahead, back = (
            self.add(rank, amount=round(ns)).reshape(stages, batches) for ns in (part.forward_ns, part.backward_ns)
        )
        to, size = rank[batches:], part.bytes
        activations = self.add(to - 1, to, size).reshape(-1, batches)
        gradients = self.add(to, to - 1, size).reshape(-1, batches)
        for tasks, sent, received in (
            (ahead[:-1], activations, ahead[1:]), (back[1:], gradients, back[:-1]),
        ):  # fmt: skip
            self.edge(tasks.ravel(), sent.ravel())
            self.edge(sent.ravel(), received.ravel())
        orders = [_order(ahead[stage], back[stage], stages - 1 - stage) for stage in range(stages)]
        chains = np.column_stack([self.last, np.array(orders)])
        self.edge(chains[:, :-1].ravel(), chains[:, 1:].ravel())
        self.last = chains[:, -1]
        for kind, tasks in (("forward", ahead), ("backward", back)):
            self._events(kind, [""] * tasks.size, -1, rank, tasks.ravel())
        for sent, src, dst in ((activations, to - 1, to), (gradients, to, to - 1)):
            names = [f"to {host}" for host in dst]
            self._events("send", names, size, src, sent.ravel())

    def grid(self, part: Grid, most_rounds: int) -> None:
        """As stages(), with a tensor group's all-reduce behind each micro-batch of a pass, which is then sent on."""
        stages, batches = len(part.stages), part.micro_batches
        rank = np.repeat(part.stages.ravel(), batches)
        ahead, back = (
            self.add(rank, amount=round(ns)).reshape(*part.stages.shape, batches)
            for ns in (part.forward_ns, part.backward_ns)
        )
        for stage, hosts in enumerate(part.stages):
            order = _order(np.arange(batches), batches + np.arange(batches), stages - 1 - stage)
            for number in order:
                passes, way = (ahead, 1) if number < batches else (back, -1)
                computed = passes[stage, :, number % batches]
                self.edge(self.last[hosts], computed)
                self.last[hosts] = computed
                self.call(Call("allreduce", f"stage {stage} tensor", part.bytes, hosts[part.groups]), most_rounds)
                if 0 <= stage + way < stages:
                    to = part.stages[stage + way]
                    sent = self.add(hosts, to, part.bytes)
                    self.edge(self.last[hosts], sent)
                    self.edge(sent, passes[stage + way, :, number % batches])
                    self._events("send", [f"to {host}" for host in to], part.bytes, hosts, sent)
        for kind, tasks in (("forward", ahead), ("backward", back)):
            self._events(kind, [""] * tasks.size, -1, rank, tasks.ravel())

    def replay(self, part: Replay, most_rounds: int) -> None:
        """Each node begins when all that it waits for has ended: also computations of a rank at the same time, where
        the trace has no order of them. A receive ends when its transfer has arrived."""
        trace = part.trace
        rank, ns = np.array(trace.rank, np.int64), np.array(trace.ns, np.int64)
        dst, amount = np.full(len(rank), NOBODY), ns.copy()
        sent, received, size = np.array(trace.sends, np.int64).reshape(-1, 3).T
        dst[sent], amount[sent] = rank[received], size
        begin = self.add(rank, dst, amount)
        self.edge(begin[sent], begin[received])
        done = begin.copy()
        self.edge(self.last[rank], begin)
        start = self.last
        for one in trace.collectives:
            nodes, members = np.array(one.nodes), np.array(one.members, np.int64)
            self.last = start.copy()
            self.last[members] = begin[nodes]
            algorithm = _ALGORITHMS.get(one.kind, "ring")
            channels = min(part.channels, len(strides(len(members)))) if one.bytes and algorithm == "ring" else 1
            self.call(Call(one.kind, one.name, one.bytes, members[None], algorithm, channels, _CHUNKS), most_rounds)
            done[nodes] = self.last[members]
        before, after = np.array(trace.waits, np.int64).reshape(-1, 2).T
        self.edge(done[before], begin[after])
        self.last = self.add(np.arange(self.hosts))
        self.edge(done, self.last[rank])
        computed = np.flatnonzero(ns)
        self._events("compute", [trace.name[node] for node in computed], -1, rank[computed], begin[computed])
        for bytes_ in np.unique(size):
            nodes = sent[size == bytes_]
            self._events("send", [trace.name[node] for node in nodes], int(bytes_), rank[nodes], begin[nodes])


def _order(ahead: Ints, back: Ints, behind: int) -> list[int]:
    """A stage's forward and backward passes in turn, where so many stages are behind it."""
    warm = min(behind, len(ahead))
    turns = np.column_stack([ahead[warm:], back[: len(ahead) - warm]]).ravel()
    return [*ahead[:warm], *turns, *back[len(ahead) - warm :]]


def graph_of(parts: list[Part], hosts: int, steps: int) -> Graph:
    """The graph of one of so many steps. Beyond MOST_TRANSFERS rounds of rings that follow each other become one."""
    most_transfers = MOST_TRANSFERS // steps
    ring_hosts = sum(_ring_hosts(part, hosts) for part in parts)
    channels = max([part.channels for part in parts if isinstance(part, Call | Replay)], default=1)
    if channels > 1:  # all transfers share links with each other, and each that ends gives all of them another rate
        most_transfers = min(most_transfers, MOST_CHANGES // (hosts * channels * steps))
    most_rounds = max(1, most_transfers // (max(hosts, ring_hosts) * channels))
    graph = Graph(hosts)
    for part in parts:
        if isinstance(part, Compute):
            graph.compute(part)
        elif isinstance(part, Call):
            graph.call(part, most_rounds)
        elif isinstance(part, Grid):
            graph.grid(part, most_rounds)
        elif isinstance(part, Replay):
            graph.replay(part, most_rounds)
        else:
            graph.stages(part)
    return graph


def _ring_hosts(part: Part, hosts: int) -> int:
    """Hosts of the rings of a part: each sends once in a round."""
    if isinstance(part, Replay):
        return sum(len(one.members) for one in part.trace.collectives if one.kind not in _ALGORITHMS)
    if isinstance(part, Grid):
        return 2 * part.micro_batches * hosts
    return hosts if isinstance(part, Call) and part.algorithm == "ring" else 0


def rounds_of(call: Call, most_rounds: int) -> list[list[Round]]:
    """The rounds of a collective, of each channel."""
    members = call.groups.shape[1]
    if call.algorithm == "double_tree":
        halves = shares(call.bytes, 2)
        return [
            _tree(call.groups[0], shape, shares(half, call.chunks))
            for shape, half in zip(double_tree(members), halves, strict=True)
        ]
    if call.algorithm == "chain":
        return [_chain(call.groups[0], shares(call.bytes, call.chunks), call.kind)]
    if call.algorithm == "direct":
        parts = np.array(shares(call.bytes, members), np.int64)
        return [[_shifted(call.groups, by, parts) for by in range(1, members)]]
    return [
        _ring(call.groups[:, np.arange(members) * stride % members], call.kind, size, most_rounds)
        for stride, size in zip(strides(members), shares(call.bytes, call.channels), strict=False)
    ]


def _ring(groups: Ints, kind: str, size: int, most_rounds: int) -> list[Round]:
    """The law of collectives._ring_all_reduce; reduce_scatter is its first half, allgather the second."""
    members = groups.shape[1]
    place, parts = np.arange(members), np.array(shares(size, members), np.int64)
    halves = {"reduce_scatter": (0,), "allgather": (1,), "allreduce": (0, 1), "barrier": (0, 1)}[kind]
    starts = np.concatenate([half - np.arange(members - 1) for half in halves])
    sent = parts[(place + starts[:, None]) % members]
    number = min(len(starts), most_rounds)
    sent = np.add.reduceat(sent, np.arange(number) * len(starts) // number)
    src, dst = groups.ravel(), np.roll(groups, -1, 1).ravel()
    return [Round(src, dst, np.tile(row, len(groups))) for row in sent]


def _chain(hosts: Ints, parts: list[int], kind: str) -> list[Round]:
    """From the first host to the last, chunk behind chunk, as NCCL's ring passes a broadcast on; a reduce goes back."""
    hop, rounds = np.arange(len(hosts) - 1), []
    for number in range(len(hop) + len(parts) - 1):
        chunk = number - hop
        there = (chunk >= 0) & (chunk < len(parts))
        ends = (hosts[:-1], hosts[1:]) if kind == "broadcast" else (hosts[::-1][:-1], hosts[::-1][1:])
        rounds.append(Round(ends[0][there], ends[1][there], np.array(parts, np.int64)[chunk[there]]))
    return rounds


def _shifted(groups: Ints, by: int, parts: Ints) -> Round:
    """Each sends its part to the member so many places on: no member receives from two."""
    place = (np.arange(groups.shape[1]) + by) % groups.shape[1]
    return Round(groups.ravel(), groups[:, place].ravel(), np.tile(parts[place], len(groups)))


def double_tree(ranks: int) -> list[list[int]]:
    """Parent of each rank in NCCL's two trees (ncclGetDtree), -1 of the root. The second one is the first mirrored, or
    shifted by one where the number of ranks is odd; so a rank is a leaf of one at least."""
    parents = [-1] + [0] * (ranks - 1)
    for rank in range(1, ranks):
        bit = rank & -rank
        up = (rank ^ bit) | (bit << 1)
        parents[rank] = up if up < ranks else rank ^ bit
    if ranks % 2:
        other = [parents[rank - 1] for rank in range(ranks)]
        return [parents, [(up + 1) % ranks if up >= 0 else -1 for up in other]]
    return [parents, [ranks - 1 - up if up >= 0 else -1 for up in reversed(parents)]]


def _tree(hosts: Ints, parents: list[int], parts: list[int]) -> list[Round]:
    """Chunk by chunk reduced to the root, and sent back along the same edges; the next chunks are on their way."""
    chunks = len(parts)
    depth = [0] * len(parents)
    for rank in range(len(parents)):
        above = parents[rank]
        while above >= 0:
            depth[rank], above = depth[rank] + 1, parents[above]
    ranks = np.flatnonzero(np.array(parents) >= 0)
    below, above, levels = hosts[ranks], hosts[np.array(parents)[ranks]], np.array(depth)[ranks]
    deepest = max(depth)
    rounds = []
    for number in range(2 * deepest + chunks - 1):
        # in this round chunk number - before goes up from this depth, and down to it
        chunk = np.concatenate([number - (deepest - levels), number - (deepest + levels - 1)])
        there = (chunk >= 0) & (chunk < chunks)
        src, dst = np.concatenate([below, above]), np.concatenate([above, below])
        rounds.append(Round(src[there], dst[there], np.array(parts, np.int64)[chunk[there]]))
    return rounds
