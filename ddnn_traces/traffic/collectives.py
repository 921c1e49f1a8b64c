"""The laws of the collectives: the bytes that each host sends to each other in a step of data-parallel training.

A step's exchange of S bytes is a list of rounds; the transfers of a round happen at the same time, and the rounds one
after the other. Hosts are numbers from 0: the workers, then the parameter servers that are hosts of their own.

This module needs the standard library only, since the command line reads SHAPES at its start.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import isqrt
from typing import NamedTuple

from ddnn_traces.errors import UsageError


class Transfer(NamedTuple):
    """Payload bytes that one host sends to another."""

    src: int
    dst: int
    bytes: int


Round = list[Transfer]

#: The topologies by their names in the tables, and the shapes (variants) of each; the first is the default.
SHAPES = {
    "ring": ("reduce_scatter",),
    "tree": ("heap", "binomial", "chain"),
    "star": ("worker", "server"),
    "sharded_parameter_server": ("apart", "colocated"),
    "binary_tree_star": ("groups", "overlay"),
    "clique": ("full", "sharded"),
    "recursive_doubling": ("folded",),
    "halving_doubling": ("nearest_first", "farthest_first"),
    "pair_averaging": ("pull", "exchange"),
    "hierarchical_ring": ("leaders", "grid"),
}
#: Topologies that have a group_size.
GROUPED = ("binary_tree_star", "hierarchical_ring")


@dataclass(frozen=True)
class Collective:
    """An algorithm on a number of workers.

    shape: one of SHAPES[topology]; empty: the first. servers: parameter servers (sharded_parameter_server; None: half
    as many as workers, colocated: as many). group_size: hosts a group (binary_tree_star, hierarchical_ring; None: about
    the square root of the workers). order: host at each place of the algorithm, a permutation of the hosts; empty: as
    numbered. The ring's order and direction, the root and the centre (the first place) are chosen by it. relayed: part
    that goes through the tree in binary_tree_star's overlay. Raises UsageError for an impossible combination.

    Some cannot be distinguished by their traffic: all of them with 2 hosts; tree and star of 3; trees of 4 and a
    binary_tree_star of 4 in groups of 2, which are one path; groups of 1 host and the heap; parameter servers on every
    host and the sharded clique.
    """

    topology: str
    workers: int
    shape: str = ""
    servers: int | None = None
    group_size: int | None = None
    order: tuple[int, ...] = ()
    relayed: float = 1 / 3

    def __post_init__(self) -> None:
        if self.topology not in SHAPES:
            raise UsageError(f"no topology named {self.topology}; there are {', '.join(SHAPES)}")
        shapes = SHAPES[self.topology]
        object.__setattr__(self, "shape", self.shape or shapes[0])
        if self.shape not in shapes:
            raise UsageError(f"{self.topology} has no shape {self.shape}; it is one of {', '.join(shapes)}")
        if self.workers < 1:
            raise UsageError(f"{self.workers} workers: give 1 or more")
        whole, colocated = self.shape == "grid", self.shape == "colocated"
        if self.topology == "sharded_parameter_server":
            servers = self.servers or (self.workers if colocated else max(2, self.workers // 2))
            if servers < 1 or (colocated and servers > self.workers):
                raise UsageError(f"{servers} parameter servers: colocated there are at most as many as workers")
            object.__setattr__(self, "servers", servers)
        elif self.topology in GROUPED:
            size = self.group_size or _near_root(self.workers, whole)
            if size < 1 or (whole and self.workers % size):
                raise UsageError(
                    f"groups of {size} hosts do not divide {self.workers} workers; choose another group_size"
                )
            object.__setattr__(self, "group_size", size)
        if self.order and sorted(self.order) != list(range(self.hosts)):
            raise UsageError(f"order {self.order} is not a permutation of the hosts 0 to {self.hosts - 1}")

    @property
    def hosts(self) -> int:
        """Workers and the parameter servers that are hosts of their own."""
        return self.workers + len(self.own_servers)

    @property
    def own_servers(self) -> range:
        """Hosts that are parameter servers and not workers."""
        servers = {("star", "server"): 1, ("sharded_parameter_server", "apart"): self.servers or 0}
        return range(self.workers, self.workers + servers.get((self.topology, self.shape), 0))

    def rounds(self, size_bytes: int, rng: random.Random | None = None) -> list[Round]:
        """The transfers of one step that exchanges `size_bytes`. rng: draws the pairs of pair averaging."""
        if self.workers == 1 and not self.own_servers:
            return []
        rounds = _LAWS[self.topology](self, size_bytes, rng or random.Random(0))  # noqa: S311, no secret
        place = self.order or range(self.hosts)
        named = [[Transfer(place[t.src], place[t.dst], t.bytes) for t in round_ if t.bytes] for round_ in rounds]
        return [round_ for round_ in named if round_]


def broadcast(hosts: int, size_bytes: int) -> list[Round]:
    """Host 0 sends `size_bytes` to all along a binomial tree, as PyTorch (gloo) does with the model before step 0."""
    rounds, have = [], 1
    while have < hosts:
        rounds.append([Transfer(i, i + have, size_bytes) for i in range(min(have, hosts - have))])
        have *= 2
    return rounds


def shares(size_bytes: int, parts: int) -> list[int]:
    """Whole numbers of bytes that add up to `size_bytes` and differ by at most one."""
    return [size_bytes * (i + 1) // parts - size_bytes * i // parts for i in range(parts)]


# --- one law a topology


def _ring(c: Collective, size: int, _: random.Random) -> list[Round]:
    """Patarasuk & Yuan 2009, Horovod: 2(N-1) rounds of S/N along a directed cycle; 2(N-1)/N*S a worker."""
    return _ring_all_reduce(range(c.workers), shares(size, c.workers))


def _tree(c: Collective, size: int, _: random.Random) -> list[Round]:
    """Reduced to the root and sent back along the same edges: 2(N-1)*S in all.

    heap: host i's parent is (i-1)//2, level by level. binomial: Thakur, Rabenseifner & Gropp 2005, the parent is i
    without its lowest bit. chain: the parent is i-1.
    """
    if c.shape == "binomial":
        steps = [1 << k for k in range((c.workers - 1).bit_length())]
        up = [[Transfer(i, i - step, size) for i in range(step, c.workers, 2 * step)] for step in steps]
    elif c.shape == "chain":
        up = [[Transfer(i, i - 1, size)] for i in range(c.workers - 1, 0, -1)]
    else:
        up = _heap(range(c.workers), size)
    return up + _back(up)


def _star(c: Collective, size: int, _: random.Random) -> list[Round]:
    """All send to the centre, then it sends to all: S a worker each way.

    worker: the centre is the first worker (KungFu). server: it is a host of its own, one parameter server.
    """
    centre = c.workers if c.shape == "server" else 0
    up = [[Transfer(i, centre, size) for i in range(c.workers) if i != centre]]
    return up + _back(up)


def _sharded_parameter_server(c: Collective, size: int, _: random.Random) -> list[Round]:
    """Chang 2018: aggregation, then distribution, n*w transfers of S/n each; 2*w*S in all.

    colocated: the first n workers are servers, too; a host sends itself nothing over the network.
    """
    assert c.servers
    first = 0 if c.shape == "colocated" else c.workers
    shards = shares(size, c.servers)
    up = [[Transfer(i, first + s, shard) for i in range(c.workers) for s, shard in enumerate(shards) if i != first + s]]
    return up + _back(up)


def _binary_tree_star(c: Collective, size: int, _: random.Random) -> list[Round]:
    """KungFu (OSDI 2020): 2(N-1)*S in all.

    groups: a star around the first of each group, a binary tree of these. overlay, as zerwas fig. 4(b) shows it: a star
    around the root with a binary tree over it; a host that is not a child of the root sends a part (`relayed`) through
    its parent, where it is summed, and the rest directly to the root.
    """
    if c.shape == "groups":
        groups = _groups(c)
        star = [Transfer(i, group[0], size) for group in groups for i in group[1:]]
        up = [star, *_heap([group[0] for group in groups], size)]
        return up + _back(up)
    part = round(size * c.relayed)
    direct = [Transfer(i, 0, size - part) for i in range(3, c.workers)]
    tree = [[Transfer(t.src, t.dst, part if t.dst else size) for t in level] for level in _heap(range(c.workers), size)]
    up = [direct, *tree]
    return up + _back(up)


def _clique(c: Collective, size: int, _: random.Random) -> list[Round]:
    """KungFu: all send S to all, (N-1)*S a worker. sharded: S/N to each, summed, and back to each; 2(N-1)/N*S."""
    if c.shape == "full":
        return [[Transfer(i, j, size) for i in range(c.workers) for j in range(c.workers) if i != j]]
    chunks = shares(size, c.workers)
    up = [[Transfer(i, j, chunk) for i in range(c.workers) for j, chunk in enumerate(chunks) if i != j]]
    return up + _back(up)


def _recursive_doubling(c: Collective, size: int, _: random.Random) -> list[Round]:
    """Thakur, Rabenseifner & Gropp 2005: log2 N rounds in which pairs at distance 1, 2, 4, ... exchange S."""
    ranks, fold = _folded(c.workers, size)
    rounds = [
        [Transfer(host, ranks[i ^ 1 << k], size) for i, host in enumerate(ranks)]
        for k in range(len(ranks).bit_length() - 1)
    ]
    return [fold, *rounds, *_back([fold])]


def _halving_doubling(c: Collective, size: int, _: random.Random) -> list[Round]:
    """Rabenseifner; Thakur, Rabenseifner & Gropp 2005: pairs exchange S/2, S/4, ... and the same back.

    2(N-1)/N*S a worker where N is a power of two. nearest_first: at distance 1, 2, 4, ... (MPICH, gloo);
    farthest_first: at N/2, N/4, ...
    """
    ranks, fold = _folded(c.workers, size)
    bits = list(range(len(ranks).bit_length() - 1))
    chunks = shares(size, len(ranks))
    ranges = [(0, len(ranks))] * len(ranks)  # the chunks that each rank still sums
    scatter = []
    for k in bits if c.shape == "nearest_first" else reversed(bits):
        halves = []
        for i, (low, high) in enumerate(ranges):
            middle = (low + high) // 2
            halves.append((middle, high) if i >> k & 1 else (low, middle))
        scatter.append(
            [Transfer(host, ranks[j := i ^ 1 << k], sum(chunks[slice(*halves[j])])) for i, host in enumerate(ranks)]
        )
        ranges = halves
    return [fold, *scatter, *_back(scatter), *_back([fold])]


def _pair_averaging(c: Collective, size: int, rng: random.Random) -> list[Round]:
    """Asynchronous, Lian et al. 2018 (AD-PSGD), KungFu: S a worker and step.

    pull: each gets the model of a peer drawn at random. exchange: pairs drawn at random swap theirs; of an odd number
    one stays alone.
    """
    if c.shape == "pull":
        peers = [(i + rng.randrange(1, c.workers)) % c.workers for i in range(c.workers)]
        return [[Transfer(peer, i, size) for i, peer in enumerate(peers)]]
    drawn = rng.sample(range(c.workers), c.workers)
    pairs = list(zip(drawn[::2], drawn[1::2], strict=False))
    return [[Transfer(*ends, size) for i, j in pairs for ends in ((i, j), (j, i))]]


def _hierarchical_ring(c: Collective, size: int, _: random.Random) -> list[Round]:
    """Rings of rings (Horovod, NCCL).

    leaders: an all-reduce on a ring in each group, one on a ring of the first of each group, and a broadcast along the
    ring of each group. grid: reduce-scatter in each group, all-reduce on a ring of the equals of all groups,
    all-gather in each group; 2(N-1)/N*S a worker.
    """
    groups = _groups(c)
    if c.shape == "leaders":
        inside = [_ring_all_reduce(group, shares(size, len(group))) for group in groups]
        leaders = _ring_all_reduce([group[0] for group in groups], shares(size, len(groups)))
        chains = [[[Transfer(i, j, size)] for i, j in pairwise(group)] for group in groups]
        return [*_together(inside), *leaders, *_together(chains)]
    chunks = shares(size, len(groups[0]))
    rings = [_ring_all_reduce(group, chunks) for group in groups]
    half = len(chunks) - 1
    # reduce-scatter leaves chunk i+1 at host i
    columns = [
        _ring_all_reduce(column, shares(chunks[(i + 1) % len(chunks)], len(groups)))
        for i, column in enumerate(zip(*groups, strict=True))
    ]
    scatter, gather = [ring[:half] for ring in rings], [ring[half:] for ring in rings]
    return [*_together(scatter), *_together(columns), *_together(gather)]


_LAWS: dict[str, Callable[[Collective, int, random.Random], list[Round]]] = {
    "ring": _ring, "tree": _tree, "star": _star, "sharded_parameter_server": _sharded_parameter_server,
    "binary_tree_star": _binary_tree_star, "clique": _clique, "recursive_doubling": _recursive_doubling,
    "halving_doubling": _halving_doubling, "pair_averaging": _pair_averaging, "hierarchical_ring": _hierarchical_ring,
}  # fmt: skip


# --- parts of the laws


def _ring_all_reduce(hosts: Sequence[int], chunks: Sequence[int]) -> list[Round]:
    """Reduce-scatter and all-gather along the hosts, of a chunk a host: each host sends all chunks but one, twice."""
    n = len(hosts)
    starts = [-t for t in range(n - 1)] + [1 - t for t in range(n - 1)]
    return [
        [Transfer(host, hosts[(i + 1) % n], chunks[(i + start) % n]) for i, host in enumerate(hosts)]
        for start in starts
    ]


def _heap(hosts: Sequence[int], size: int) -> list[Round]:
    """Up a binary tree in the order of a heap, the lowest level first."""
    levels: list[Round] = [[] for _ in range(len(hosts).bit_length() - 1)]
    for i in range(1, len(hosts)):
        levels[-((i + 1).bit_length() - 1)].append(Transfer(hosts[i], hosts[(i - 1) // 2], size))
    return levels


def _back(rounds: list[Round]) -> list[Round]:
    """The same way back: the last round first, ends exchanged."""
    return [[Transfer(t.dst, t.src, t.bytes) for t in round_] for round_ in reversed(rounds)]


def _together(parts: list[list[Round]]) -> list[Round]:
    """Several exchanges at the same time."""
    return [
        [transfer for part in parts for transfer in (part[k] if k < len(part) else [])]
        for k in range(max(map(len, parts)))
    ]


def _folded(workers: int, size: int) -> tuple[list[int], Round]:
    """The hosts that take part, a power of two of them, and the transfers of the others to them before (MPICH)."""
    extra = workers - (1 << workers.bit_length() - 1)
    ranks = [*range(1, 2 * extra, 2), *range(2 * extra, workers)]
    return ranks, [Transfer(i, i + 1, size) for i in range(0, 2 * extra, 2)]


def _groups(c: Collective) -> list[list[int]]:
    """The workers in groups of neighbours; the last may be smaller."""
    assert c.group_size
    return [list(range(i, min(i + c.group_size, c.workers))) for i in range(0, c.workers, c.group_size)]


def _near_root(number: int, whole: bool) -> int:
    """A group size about the square root: of numbers that divide it, the largest up to the root."""
    root = max(isqrt(number), min(2, number))
    return next(size for size in range(root, 0, -1) if not whole or number % size == 0)
