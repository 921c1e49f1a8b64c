"""Which collectives the phases of a step are: their kind, hosts and bytes.

Sources: the volumes of rings are those of Patarasuk and Yuan 2009 (each host sends 2 (N-1)/N S in an all-reduce, half
of that in an all-gather or a reduce-scatter); the double binary tree is NCCL's.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from ddnn_traces.collectives import shapes
from ddnn_traces.collectives.completion import apart, completed, divided, without
from ddnn_traces.collectives.phases import (
    EQUAL,
    Collective,
    Parts,
    Phase,
    measured,
    part_in,
)
from ddnn_traces.collectives.rings import of_ring, shards_by_messages
from ddnn_traces.collectives.sends import (
    MOSTLY,
    as_sends,
    divided_sends,
    sends_of,
    whole_sends,
    without_circles,
    without_exchanges,
    without_headers,
    without_pairs,
)
from ddnn_traces.collectives.steps import Steps
from ddnn_traces.collectives.streams import Stream, by_hosts, header_bytes, hosts_of, without_control
from ddnn_traces.collectives.twins import with_same_calls

_OVER_CHAIN = "a part of an all_reduce over a chain of hosts"
_OTHER_JOB = "that of another job in step with this one"
_LONGEST_CHAIN = 4  # hosts of a binary tree that is a chain
_ALWAYS_FIRST = 0.9  # of the steps: a host that is late sends later, too
_SAME_END = 200.0  # bytes, of a part of a tensor: headers before it
_USUALLY = 0.6  # of the parts of all steps


def collectives(
    steps: Steps, parts: dict[Stream, Parts], found: Sequence[Phase], uneven: Collection[Stream] = ()
) -> list[Collective]:
    """The collectives of a step, in the order in which they begin. uneven: flows that send other bytes in each step."""
    header = 2 * header_bytes(steps.first)  # of a message, and of the answer to it on the flow's other use
    of_rings: dict[frozenset[str], list[Phase]] = defaultdict(list)
    result = shards_by_messages(found, steps, parts, header)
    taken = frozenset(stream for one in result for phase in one.phases for stream in phase.spans)
    found = [*without(found, taken, steps, parts)]
    whole = [*apart(completed(divided(found, steps, parts), steps, parts), steps, parts)]
    for phase in whole:
        streams = phase.streams
        is_chance = any(stream in uneven for stream in phase.spans)  # that two of these have the same bytes, on average
        if len(phase.spans) == 2 and (is_chance or _one_after_the_other(phase, steps, parts)):
            result += sends_of(phase, steps, parts)
        elif shapes.is_ring(streams):
            of_rings[phase.hosts].append(phase)
        elif len({s.hosts for s in streams}) == len(streams) and shapes.is_all_to_all(streams):
            result.append(_all_to_all(phase, header))
        else:
            result += _at_once(phase, steps, parts) or sends_of(phase, steps, parts)
    for phases in of_rings.values():
        result += of_ring(phases, header)
    result = with_same_calls(result, steps, parts)
    if (one := _whole_step(result, steps, header)) is not None:
        if (told := _of_chain(one, steps, parts)) is not None:
            return (_rings_of_three(steps, parts) if one.algorithm == "direct" else []) or [told]
        result = [replace(send, kind_or=_OVER_CHAIN) for send in as_sends(result, steps, parts)]
    if several := _whole_of_several(result, steps, parts):
        return several
    result = without_pairs(without_exchanges(result, whole, steps, parts), steps, parts)
    result = whole_sends(without_circles(result, whole, steps, parts), steps, parts)
    result = [without_headers(one, header, steps, parts) if one.kind == "send" else one for one in result]
    return _with_other_jobs(divided_sends(result))


def _with_other_jobs(found: Sequence[Collective]) -> list[Collective]:
    """The collectives; where those of the same hosts are the same on several sets of flows, what else they could be:
    a second training of the model that keeps in step sends nothing else. Rings and trees at once are one's channels."""
    parts: dict[frozenset[Stream], list[Collective]] = {}
    for one in found:
        flows = frozenset(stream for phase in one.phases for stream in phase.spans)
        joined = [other for other in parts if not other.isdisjoint(flows)]
        parts[flows.union(*joined)] = [*itertools.chain.from_iterable(parts.pop(other) for other in joined), one]
    alike = [
        part for part in parts.values() if len({frozenset(one.hosts) for one in part}) == 1 < len(part[0].hosts) - 1
    ]
    twins = {one for part, other in itertools.permutations(alike, 2) if _is_as(part, other) for one in part}
    return [
        replace(one, kind_or=" or ".join(filter(None, [one.kind_or, _OTHER_JOB]))) if one in twins else one
        for one in found
    ]


def _is_as(part: Sequence[Collective], other: Sequence[Collective]) -> bool:
    """Whether two sets of collectives have the same kinds, hosts and bytes."""
    if len(part) != len(other) or set(part[0].hosts) != set(other[0].hosts):
        return False
    both = (sorted(some, key=lambda one: (one.kind, one.tensor_bytes)) for some in (part, other))
    return all(
        a.kind == b.kind and abs(a.tensor_bytes / b.tensor_bytes - 1) <= EQUAL for a, b in zip(*both, strict=True)
    )


def _one_after_the_other(phase: Phase, steps: Steps, parts: dict[Stream, Parts]) -> bool:
    """Whether of two hosts always the same one sends all before the other does, as a worker and its server: in each
    collective of two hosts one needs data of the other before it has sent all."""
    one, other = (_times_of(part_in(parts[stream], span, steps)) for stream, span in phase.spans.items())
    both = [(one[step], other[step]) for step in one.keys() & other.keys()]
    orders = (sum(a[1] < b[0] for a, b in both), sum(b[1] < a[0] for a, b in both))
    return bool(both) and max(orders) >= _ALWAYS_FIRST * len(both)


def _times_of(part: Parts) -> dict[int, tuple[float, float]]:
    """Start of the first message and end of the last one in each step, ns."""
    number, place = np.unique(part.step, return_index=True)
    last = np.maximum.reduceat(part.last, place) if len(place) else part.last
    return dict(zip(number.tolist(), zip(part.first[place], last, strict=True), strict=True))


def _at_once(phase: Phase, steps: Steps, parts: dict[Stream, Parts]) -> list[Collective]:
    """The trees or rings of an all-reduce over several channels; none where the phase is no such."""
    if not phase.is_balanced:
        return []
    streams = phase.streams
    if trees := shapes.double_tree(streams, _times(phase, steps, parts)):
        return [_tree(phase, channel) for channel in range(len(trees))]
    return [_one_of_rings(phase, order, channel) for channel, order in enumerate(shapes.rings(streams) or [])]


def _whole_of_several(found: Sequence[Collective], steps: Steps, parts: dict[Stream, Parts]) -> list[Collective]:
    """The step as one all-reduce over several rings or trees, where its parts are sends: hosts wait for a late one."""
    if len(found) < 2 or any(collective.kind != "send" for collective in found):
        return []
    whole = measured({stream: (0.0, steps.size[stream]) for stream in without_control(steps.size)}, steps, parts)
    return _at_once(whole, steps, parts) if whole and whole.hosts == hosts_of(steps.size) else []


def _rings_of_three(steps: Steps, parts: dict[Stream, Parts]) -> list[Collective]:
    """Two rings over three hosts, one each way, have the flows of hosts that send to each other directly; but each part
    of the tensor is a message of its own. None where the messages are others."""
    streams = without_control(steps.size)
    if len(streams) != 6 or len(hosts_of(streams)) != 3 or not all(_ends_in_parts(s, steps, 4) for s in streams):
        return []
    whole = measured({stream: (0.0, steps.size[stream]) for stream in streams}, steps, parts)
    orders = shapes.rings(streams) if whole else None
    return [_one_of_rings(whole, order, channel) for channel, order in enumerate(orders or []) if whole]


def _ends_in_parts(stream: Stream, steps: Steps, parts: int) -> bool:
    """Whether messages of a flow certainly end at each of so many equal parts of most steps."""
    size = steps.size[stream] / parts
    at = (stream.ends - steps.first[stream]) / size
    part = np.round(at).astype(int)
    inside = part[(np.abs(at - part) * size <= _SAME_END) & (part % parts > 0)]
    return len(np.unique(inside)) >= _USUALLY * (parts - 1) * len(steps.whole)


def _times(phase: Phase, steps: Steps, parts: dict[Stream, Parts]) -> dict[Stream, float]:
    """When each flow of a phase sends in a step: mean of its messages, median over the steps, ns since its start."""
    found = {}
    for stream, span in phase.spans.items():
        part = part_in(parts[stream], span, steps)
        begin = np.array([phase.start[step] for step in part.step.tolist()])
        number, place = np.unique(part.step, return_inverse=True)
        mean = np.bincount(place, part.first - begin, len(number)) / np.bincount(place, minlength=len(number))
        found[stream] = float(np.median(mean)) if len(mean) else 0.0
    return found


def _all_to_all(phase: Phase, header: float) -> Collective:
    hosts = tuple(sorted(phase.hosts))
    sent = sum(phase.volumes) / len(hosts) - (len(hosts) - 1) * header * phase.connections
    tensor = sent * len(hosts) / (len(hosts) - 1)
    evidence = f"{len(phase.edges)} transfers between {len(hosts)} hosts"
    kind_or = "all_gather or all_reduce, sent directly"
    return Collective("all_to_all", kind_or, "direct", hosts, tensor, evidence, (phase,))


def unequal_all_to_all(phase: Phase) -> Collective:
    """The all-to-all of flows that send other bytes in each step, as to experts with other numbers of tokens."""
    evidence = f"{len(phase.edges)} transfers between {len(phase.hosts)} hosts, of other bytes in each step"
    return replace(_all_to_all(phase, 2 * header_bytes(phase.streams)), kind_or=None, evidence=evidence)


def _tree(phase: Phase, channel: int) -> Collective:
    hosts = tuple(sorted(phase.hosts))
    evidence = f"two trees over {len(hosts)} hosts, each host a leaf of one"
    return Collective("all_reduce", None, "double_binary_tree", hosts, phase.bytes, evidence, (phase,), channel)


def _one_of_rings(phase: Phase, order: Sequence[str], channel: int) -> Collective:
    size = len(order)
    evidence = f"{len(phase.edges) // size} rings over {size} hosts at once"
    tensor = phase.bytes * size / (2 * (size - 1))
    return Collective("all_reduce", None, "rings", tuple(order), tensor, evidence, (phase,), channel)


def _whole_step(found: Sequence[Collective], steps: Steps, header: float) -> Collective | None:
    """The step as one all-reduce of all hosts, where its flows are the graph of one and its parts are those of a few.

    Without pauses, or where hosts pause at different bytes, parts of an all-reduce look like sends and small groups.
    """
    hosts = hosts_of(steps.size)
    flows = by_hosts(_with_data(found, steps))
    if len(hosts) < 3 or hosts_of(stream for same in flows.values() for stream in same) != hosts:
        return None
    phases = dict.fromkeys(phase for collective in found for phase in collective.phases)
    calls: dict[tuple[str, str], list[Phase]] = defaultdict(list)
    messages: dict[tuple[str, str], float] = defaultdict(float)
    for phase in phases:
        for edge in phase.edges:
            calls[edge[0].hosts].append(phase)
            messages[edge[0].hosts] += phase.messages * len(edge)
    volumes = {pair: sum(steps.size[one] for one in same) - header * messages[pair] for pair, same in flows.items()}
    size, pattern = len(hosts), [same[0] for same in flows.values()]
    once = float(np.median([_transfers(pair, calls[pair]) for pair in flows])) <= 1
    whole = partial(Collective, "all_reduce", phases=tuple(phases))
    if max(volumes.values()) - min(volumes.values()) > EQUAL * max(volumes.values()):
        if not shapes.halves(volumes) or not _outside_in(volumes, calls):
            return None
        evidence = f"{size} hosts send half the bytes to the next partner, and back in reverse order"
        name, instead = "halving_doubling", "all_reduce of pairs of hosts"
        return whole(instead, name, tuple(sorted(hosts)), max(volumes.values()), evidence)
    volume = float(np.median([*volumes.values()]))
    if once and len(flows) == size * (size - 1):
        evidence = f"each of {size} hosts sends the same bytes to each other once, and nothing else in a step"
        return whole("all_to_all or all_gather, sent directly", "direct", tuple(sorted(hosts)), volume, evidence)
    if all(set(collective.hosts) == hosts for collective in found):
        return None
    if shapes.is_ring(pattern):
        evidence = f"all flows of the step are one ring of {size} hosts with equal bytes"
        instead = "several collectives of the same hosts"
        return whole(instead, "ring", tuple(shapes.order_of(pattern)), volume * size / (2 * (size - 1)), evidence)
    if (shape := shapes.exchange(pattern)) is None or not once:
        return None
    name, other = shape
    evidence = f"each of {len(flows) // 2} pairs of {size} hosts sends the same bytes both ways once a step"
    return whole(other, name, tuple(sorted(hosts)), volume, evidence)


def _of_chain(one: Collective, steps: Steps, parts: dict[Stream, Parts]) -> Collective | None:
    """An all-reduce of the whole step; None where its hosts are a chain, along which a pipeline passes sends on and
    back. In a tree both ends send up before they receive. Of three hosts either may be."""
    streams = {stream for phase in one.phases for stream in phase.spans}
    if not (order := shapes.chain([*streams])):
        return one
    is_passed_on = _is_passed_on(order, by_hosts(streams), steps, parts)
    if len(order) == 3:
        return one if is_passed_on else replace(one, kind_or="a parameter server")
    return replace(one, kind_or=None) if len(order) <= _LONGEST_CHAIN and not is_passed_on else None


def _is_passed_on(
    order: Sequence[str], flows: Mapping[tuple[str, str], Sequence[Stream]], steps: Steps, parts: dict[Stream, Parts]
) -> bool:
    """Whether in most steps flows begin in the order along a chain of hosts and back, wherever a step begins."""
    there = list(itertools.pairwise(order))
    times = []
    for pair in [*there, *((dst, src) for src, dst in reversed(there))]:
        begin: dict[int, float] = {}
        for stream in flows[pair]:
            for step, (first, _) in _times_of(part_in(parts[stream], (0.0, steps.size[stream]), steps)).items():
                begin[step] = min(begin.get(step, first), first)
        times.append(begin)
    common = set(times[0]).intersection(*times[1:])
    orders = [[begin[step] for begin in times] for step in common]
    turns = [sum(one > other for one, other in itertools.pairwise([*some, some[0]])) for some in orders]
    return turns.count(1) > MOSTLY * len(turns)


def _transfers(pair: tuple[str, str], phases: Sequence[Phase]) -> int:
    """Phases with at least half the bytes of the largest: a transfer that paused is one, or two."""
    sizes = [sum(b - a for stream, (a, b) in phase.spans.items() if stream.hosts == pair) for phase in phases]
    return sum(size >= 0.5 * max(sizes) for size in sizes)


def _with_data(found: Sequence[Collective], steps: Steps) -> list[Stream]:
    """The flows of a step without those that carry little, and that for no collective of several hosts."""
    used = {s for one in found if one.kind != "send" for phase in one.phases for s in phase.spans}
    kept = used.union(without_control(steps.size))
    return [stream for stream in steps.size if stream in kept]


def _outside_in(volumes: dict[tuple[str, str], float], calls: dict[tuple[str, str], list[Phase]]) -> bool:
    """Whether each host sends to the partner with more bytes before and after that with fewer."""
    times = {pair: [phase.order for phase in calls[pair]] for pair in volumes if pair in calls}
    if len(times) < len(volumes):
        return False
    for host in {src for src, _ in volumes}:
        own = sorted((pair for pair in volumes if pair[0] == host), key=lambda pair: -volumes[pair])
        if any(
            min(times[more]) >= min(times[less]) or max(times[more]) <= max(times[less])
            for more, less in itertools.pairwise(own)
        ):
            return False
    return True
