"""The pattern of a phase, as a graph of its flows."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from ddnn_traces.collectives.streams import Stream, by_hosts, hosts_of

_HALF = 0.02  # that bytes may differ from half of others
_MOST_TRIES = 20_000  # of the searches for cycles and trees
_MOST_SEARCHED = 32  # hosts whose rings are searched for
_MOST_MESSAGES = 500  # of a flow, whose times are looked at
_MOST_PARTS = 8
_MOST_DEGREE = 3  # of a host in a tree

Tree = tuple[tuple[str, str], ...]


def is_ring(streams: Sequence[Stream]) -> bool:
    """Whether each host sends to one other, and all are on one cycle; of two hosts, whether both send."""
    following = {stream.src: stream.dst for stream in streams}
    if len(following) != len(streams) or len(streams) < 2 or set(following) != set(following.values()):
        return False
    return len(order_of(streams)) == len(following)


def order_of(streams: Sequence[Stream]) -> list[str]:
    """The hosts of a ring in the order of sending, from the least."""
    following = {stream.src: stream.dst for stream in streams}
    order = [min(following)]
    while (host := following[order[-1]]) not in order:
        order.append(host)
    return order


def rings(streams: Sequence[Stream]) -> list[list[str]] | None:
    """The orders of several rings over all hosts that use each flow once; None where there are none.

    Of several ways to divide the flows into rings, the first is taken.
    """
    hosts = hosts_of(streams)
    channels, rest = divmod(len(streams), len(hosts))
    sends, receives = Counter(s.src for s in streams), Counter(s.dst for s in streams)
    if rest or channels < 2 or len(hosts) < 3 or {*sends.values(), *receives.values()} != {channels}:
        return None
    divided = _by_time(streams, channels) or _by_search(streams, channels) or _by_stride(streams, channels)
    return None if divided is None else [order_of(cycle) for cycle in divided]


def _by_time(streams: Sequence[Stream], channels: int) -> list[list[Stream]] | None:
    """At each host a message on a ring is followed by one on the same ring: flows are paired where that comes soonest.

    None where the pairs are no rings over all hosts, as where hosts send whenever they like.
    """
    from scipy.optimize import linear_sum_assignment

    following: dict[Stream, Stream] = {}
    of_host: dict[str, tuple[list[Stream], list[Stream]]] = defaultdict(lambda: ([], []))
    for stream in streams:
        of_host[stream.dst][0].append(stream)
        of_host[stream.src][1].append(stream)
    for received, sent in of_host.values():
        wait = [[_wait(one, other) for other in sent] for one in received]
        for row, column in zip(*linear_sum_assignment(wait), strict=True):
            following[received[row]] = sent[column]
    return _trails(following, channels)


def _wait(received: Stream, sent: Stream) -> float:
    """Median time from the end of a received message to the start of the next one that is sent, ns."""
    ends = received.last[:_MOST_MESSAGES]
    place = np.searchsorted(sent.first, ends)
    there = place < len(sent.first)
    return float(np.median(sent.first[place[there]] - ends[there])) if there.any() else 0.0


def _trails(following: dict[Stream, Stream], channels: int) -> list[list[Stream]] | None:
    """The rings that these pairs are; None where one is not over all hosts."""
    left, found = set(following), []
    for first in following:
        if first not in left:
            continue
        ring, stream = [], first
        while stream in left:
            left.remove(stream)
            ring.append(stream)
            stream = following[stream]
        found.append(ring)
    over_all = all(len({stream.src for stream in ring}) == len(ring) for ring in found)
    return found if over_all and len(found) == channels else None


def _by_stride(streams: Sequence[Stream], channels: int) -> list[list[Stream]] | None:
    """Rings that go on by the same number of places in the order of addresses."""
    hosts = sorted(hosts_of(streams), key=lambda host: [part.zfill(3) for part in host.split(".")])
    place = {host: number for number, host in enumerate(hosts)}
    of_stride: dict[int, list[Stream]] = defaultdict(list)
    for stream in streams:
        of_stride[(place[stream.dst] - place[stream.src]) % len(hosts)].append(stream)
    rings = list(of_stride.values())
    return rings if len(rings) == channels and all(map(is_ring, rings)) else None


def _by_search(streams: Sequence[Stream], channels: int) -> list[list[Stream]] | None:
    """The first division into rings of a search that ends after so many tries."""
    hosts = hosts_of(streams)
    if len(hosts) > _MOST_SEARCHED:
        return None
    tries = [0]

    def cycles(path: list[Stream], used: frozenset[Stream]) -> Iterator[list[Stream]]:
        tries[0] += 1
        if tries[0] > _MOST_TRIES:
            return
        host = path[-1].dst if path else start
        if len(path) == len(hosts):
            if host == start:
                yield list(path)
            return
        visited = {start, *(stream.dst for stream in path)}
        for stream in of_host[host]:
            if stream not in used and (stream.dst not in visited or len(path) == len(hosts) - 1):
                yield from cycles([*path, stream], used | {stream})

    def divide(left: int, used: frozenset[Stream]) -> list[list[Stream]] | None:
        if not left:
            return []
        for cycle in cycles([], used):
            if (others := divide(left - 1, used | set(cycle))) is not None:
                return [cycle, *others]
        return None

    start = min(hosts)
    of_host: dict[str, list[Stream]] = defaultdict(list)
    for stream in streams:
        of_host[stream.src].append(stream)
    return divide(channels, frozenset())


def components(edges: Sequence[tuple[Stream, ...]]) -> list[list[tuple[Stream, ...]]]:
    """Edges by the hosts that they connect. The flows of an edge have the same hosts."""
    found: list[tuple[set[str], list[tuple[Stream, ...]]]] = []
    for edge in edges:
        touched = [group for group in found if group[0] & set(edge[0].hosts)]
        found = [group for group in found if group not in touched]
        hosts = set(edge[0].hosts).union(*(group[0] for group in touched))
        found.append((hosts, [*(one for group in touched for one in group[1]), edge]))
    return [group for _, group in found]


def exchange(streams: Sequence[Stream]) -> tuple[str, str | None] | None:
    """The all-reduce whose pairs of hosts send all data both ways, by its graph, and what has the same graph.

    A star, a tree or a hypercube (recursive doubling; Thakur, Rabenseifner and Gropp 2005). None where it is none
    of these, or where two flows have the same hosts.
    """
    pairs = {stream.hosts for stream in streams}
    hosts = hosts_of(streams)
    neighbours = Counter(src for src, _ in pairs)
    if len(pairs) != len(streams) or any((dst, src) not in pairs for src, dst in pairs) or len(hosts) < 3:
        return None
    if len(components([(stream,) for stream in streams])) > 1:
        return None
    if len(pairs) // 2 == len(hosts) - 1:
        if max(neighbours.values()) == len(hosts) - 1:
            pipeline = ", or a pipeline of one micro-batch" if len(hosts) == 3 else ""
            return "star", f"a parameter server{pipeline}"
        return "tree", "a pipeline of one micro-batch" if max(neighbours.values()) == 2 else None
    if len(hosts) > 3 and set(neighbours.values()) == {len(hosts).bit_length() - 1} and len(hosts).bit_count() == 1:
        return "recursive_doubling", "rings in both directions" if len(hosts) == 4 else None
    return None


def chain(streams: Sequence[Stream]) -> list[str]:
    """The hosts of a chain of at least three, of which neighbours send to each other, from one end to the other; none
    where the flows are no such."""
    pairs = {stream.hosts for stream in streams}
    neighbours: dict[str, set[str]] = defaultdict(set)
    for src, dst in pairs:
        neighbours[src].add(dst)
    ends = sorted(host for host, others in neighbours.items() if len(others) == 1)
    if len(ends) != 2 or len(neighbours) < 3 or any((dst, src) not in pairs for src, dst in pairs):
        return []
    order = ends[:1]
    while further := neighbours[order[-1]].difference(order):
        order.append(min(further))
    return order if len(order) == len(neighbours) and len(pairs) == 2 * (len(order) - 1) else []


def halves(volumes: dict[tuple[str, str], float]) -> bool:
    """Whether hosts exchange with a partner in each dimension of a hypercube, half the bytes of the dimension before:
    the all-reduce by recursive halving and doubling (Thakur, Rabenseifner and Gropp 2005).

    volumes: bytes that one host sends to another.
    """
    partners: dict[str, list[tuple[float, str]]] = defaultdict(list)
    for (src, dst), volume in volumes.items():
        partners[src].append((volume, dst))
    size, most = len(partners), max(volumes.values())
    if size < 4 or size.bit_count() != 1 or {len(own) for own in partners.values()} != {size.bit_length() - 1}:
        return False
    return all(
        abs(volume * 2**dimension / most - 1) <= _HALF and abs(volumes.get((dst, src), 0.0) / volume - 1) <= _HALF
        for src, own in partners.items()
        for dimension, (volume, dst) in enumerate(sorted(own, reverse=True))
    )


def is_all_to_all(streams: Sequence[Stream]) -> bool:
    """Whether nine of ten pairs of at least three hosts send to each other."""
    hosts = hosts_of(streams)
    return len(hosts) >= 3 and len({s.hosts for s in streams}) >= 0.9 * len(hosts) * (len(hosts) - 1)


def double_tree(streams: Sequence[Stream], times: Mapping[Stream, float] | None = None) -> tuple[Tree, Tree] | None:
    """Two spanning trees, each edge both ways, in which every host is a leaf of one and none has more than three
    neighbours in one: NCCL's double binary tree (ncclGetDtree). None where the flows are not of this kind.

    times: when each flow sends in a step, on average. What goes up a tree goes before what comes down.
    """
    hosts = hosts_of(streams)
    flows = Counter((min(s.hosts), max(s.hosts)) for s in streams)
    if len(hosts) < 4 or flows.total() != 4 * (len(hosts) - 1) or any(count % 2 for count in flows.values()):
        return None
    edges = [edge for edge, count in sorted(flows.items()) for _ in range(count // 2)]
    if times and (trees := _by_direction(streams, times)) and _are_complements(trees, hosts):
        return trees
    tries = [0]

    def divide(place: int, trees: tuple[Tree, Tree]) -> tuple[Tree, Tree] | None:
        tries[0] += 1
        if tries[0] > _MOST_TRIES:
            return None
        if place == len(edges):
            return trees if _are_complements(trees, hosts) else None
        for index in (0, 1) if place else (0,):
            tree = trees[index]
            if len(tree) < len(hosts) - 1 and not _connected(tree, edges[place]):
                longer = (*tree, edges[place])
                if found := divide(place + 1, (longer, trees[1]) if index == 0 else (trees[0], longer)):
                    return found
        return None

    return divide(0, ((), ()))


def _by_direction(streams: Sequence[Stream], times: Mapping[Stream, float]) -> tuple[Tree, Tree] | None:
    """The trees by what goes up. A host is a leaf of one tree, and there sends up at once; in the other one it waits
    for its children, whose edges are of that tree, too. The parts that roots leave open are tried."""
    up: dict[str, list[int]] = defaultdict(list)
    children: dict[str, list[int]] = defaultdict(list)
    edges: list[tuple[str, str]] = []
    ascending: list[float] = []
    flows = by_hosts(streams)
    for (one, other), sent in flows.items():
        if one > other:
            continue
        back = sorted(flows.get((other, one), []), key=times.__getitem__)
        for first, second in zip(sorted(sent, key=times.__getitem__), reversed(back), strict=True):
            rising = min(first, second, key=times.__getitem__)
            up[rising.src].append(len(edges))
            children[rising.dst].append(len(edges))
            edges.append((one, other))
            ascending.append(times[rising])
    # which edges are of the same tree as which, and which are not
    related: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for host in hosts_of(streams):
        own = sorted(up[host], key=ascending.__getitem__)
        pairs = [(own[0], own[1], 1)] if len(own) == 2 else []
        pairs += [(own[1], child, 0) for child in children[host]] if len(own) == 2 else []
        if len(own) == 1 and len(children[host]) == 1:
            pairs.append((own[0], children[host][0], 1))
        for edge, another, differs in pairs:
            related[edge].append((another, differs))
            related[another].append((edge, differs))
    parts: list[dict[int, int]] = []
    seen: set[int] = set()
    for begin in range(len(edges)):
        if begin in seen:
            continue
        colour, waiting = {begin: 0}, [begin]
        while waiting:
            edge = waiting.pop()
            for another, differs in related[edge]:
                if another not in colour:
                    colour[another] = colour[edge] ^ differs
                    waiting.append(another)
        seen |= colour.keys()
        parts.append(colour)
    hosts = hosts_of(streams)
    if len(parts) > _MOST_PARTS:
        return None
    for flips in itertools.product((0, 1), repeat=len(parts) - 1):
        trees: tuple[list[tuple[str, str]], list[tuple[str, str]]] = ([], [])
        for part, flip in zip(parts, (0, *flips), strict=True):
            for edge, one_colour in part.items():
                trees[one_colour ^ flip].append(edges[edge])
        made = tuple(trees[0]), tuple(trees[1])
        if _are_complements(made, hosts):
            return made
    return None


def _are_complements(trees: tuple[Tree, Tree], hosts: frozenset[str]) -> bool:
    """Whether both are trees over all hosts, each host is a leaf of one, and no host has more than three neighbours."""
    for tree in trees:
        parts = {host: host for host in hosts}

        def root(host: str, parts: dict[str, str] = parts) -> str:
            while parts[host] != host:
                host = parts[host]
            return host

        for one, other in tree:
            parts[root(one)] = root(other)
        if len(tree) != len(hosts) - 1 or len({root(host) for host in hosts}) > 1:
            return False
    degrees = [Counter(host for edge in tree for host in edge) for tree in trees]
    return all(min(d[host] for d in degrees) == 1 and max(d[host] for d in degrees) <= _MOST_DEGREE for host in hosts)


def _connected(tree: Tree, edge: tuple[str, str]) -> bool:
    reached, added = {edge[0]}, True
    while added:
        new = {host for pair in tree for host in pair if reached & set(pair)} - reached
        reached |= new
        added = bool(new)
    return edge[1] in reached
