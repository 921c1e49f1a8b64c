"""Which collectives the phases of a step are: their kind, hosts and bytes.

Sources: the volumes of rings are those of Patarasuk and Yuan 2009 (each host sends 2 (N-1)/N S in an all-reduce, half
of that in an all-gather or a reduce-scatter); the double binary tree is NCCL's.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from ddnn_traces.collectives import shapes
from ddnn_traces.collectives.completion import apart, completed, divided
from ddnn_traces.collectives.phases import (
    EQUAL,
    SAME_LENGTH,
    Collective,
    Parts,
    Phase,
    measured,
    part_in,
    pause,
    phase_of,
)
from ddnn_traces.collectives.rounds import cuts
from ddnn_traces.collectives.sends import (
    GLOO_HEADER,
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
from ddnn_traces.collectives.sharded import in_order, roles_of
from ddnn_traces.collectives.steps import Steps
from ddnn_traces.collectives.streams import Array, Stream, by_hosts, groups, header_bytes, hosts_of, without_control
from ddnn_traces.collectives.twins import with_same_calls
from ddnn_traces.text import counted

_SOME_ROUNDS = 4  # so many messages are no single round between two pauses
_MESSAGE = 0.003  # of a phase's bytes, between two messages of one length
_EXACT = 5e-4  # of the bytes, for a sum of messages
_OF_TWO_SHARDS = 6  # collectives
_DOUBLED = 7 / 6  # between the volume of three all-gathers and that of four
_SHARD = "each volume is there three times in the step: two all_gather and a reduce_scatter of a shard"
_AS_ALL_REDUCE = "; the reduce_scatter sends twice its volume, as gloo's, which is an all-reduce"
_OVER_CHAIN = "a part of an all_reduce over a chain of hosts"
_OTHER_JOB = "that of another job in step with this one"
_OFTEN = 2.5  # times as often is a length seen as twice that length, where ends are not seen: 4 to 13 times
_SAME_ENDS = 0.1  # of the messages of a phase, by their ends and by their length
_GLOO_SEGMENT = 2**20  # bytes (gloo's kDefaultMaxSegmentSize)
_SUPER_FRAME, _SEGMENT = 2**16, 1500  # bytes that TCP hands over at once, at most; that are no whole segment of these
_LONGEST_CHAIN = 4  # hosts of a binary tree that is a chain
_ALWAYS_FIRST = 0.9  # of the steps: a host that is late sends later, too
_SAME_END = 200.0  # bytes, of a part of a tensor: headers before it
_USUALLY = 0.6  # of the parts of all steps
_SEEN = 0.2  # of the messages of a length, so many have known ends


def collectives(
    steps: Steps, parts: dict[Stream, Parts], found: Sequence[Phase], uneven: Collection[Stream] = ()
) -> list[Collective]:
    """The collectives of a step, in the order in which they begin. uneven: flows that send other bytes in each step."""
    header = 2 * header_bytes(steps.first)  # of a message, and of the answer to it on the flow's other use
    of_rings: dict[frozenset[str], list[Phase]] = defaultdict(list)
    result = _shards_by_messages(found, steps, parts, header)
    taken = frozenset(stream for one in result for phase in one.phases for stream in phase.spans)
    found = [*_without(found, taken, steps, parts)]
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
        result += _of_ring(phases, header)
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


# Rings


@dataclass(frozen=True)
class _Piece:
    """A phase of a ring. messages: of each flow, as whole rounds of the ring where they are nearly that."""

    phase: Phase
    messages: int

    @property
    def length(self) -> float:
        """Of a message, bytes."""
        return self.phase.bytes / self.messages


def _of_ring(phases: Sequence[Phase], header: float) -> list[Collective]:
    """The collectives of the rings over the same hosts, in either direction."""
    size = len(phases[0].hosts)
    runs = list(_runs(phases, size))
    if shards := _shards(runs, size, header):
        whole = _gloo_all_reduces(phases, size) if header == 2 * GLOO_HEADER else []
        return [one for group in whole for one in _of_group(group, size, header)] or shards
    sizes = [phase.bytes for phase in phases]
    if size == 2 and max(sizes) > (1 + SAME_LENGTH) * min(sizes):
        return [_all_reduce(run, _volume(run, header), size, "pauses") for run in _without_pause(phases)]
    result = []
    for run in runs:
        lengths = [_lengths(piece.phase, size) for piece in run]
        if all(lengths):
            for piece, several in zip(run, lengths, strict=True):
                result += [
                    _all_reduce([piece], count * (one - header), size, "lengths") for count, one in several or []
                ]
            continue
        lengths_of_run = [4 * (size - 1), 2 * (size - 1), size - 1]
        divided_run = _grouped(run, lengths_of_run) or [run]
        if _are_two(divided_run, size):
            divided_run = _grouped(run, lengths_of_run[1:]) or divided_run
        for group in divided_run:
            result += _of_group(group, size, header)
    return result


def _of_group(group: Sequence[_Piece], size: int, header: float) -> list[Collective]:
    """The collectives of phases that belong together: one, or several equal ones without a pause between them."""
    rounds, volume = sum(piece.messages for piece in group), _volume(group, header)
    if rounds == size - 1 and size > 2:
        return [_half(group, "all_gather", volume, size)]
    if len(group) == 1 and header == 2 * GLOO_HEADER and (calls := _equal_calls(group[0].phase, size)) > 1:
        return [_all_reduce(group, volume / calls, size, "segments")] * calls
    return [_all_reduce(group, volume, size, "rounds")]


def _shards(runs: Sequence[list[_Piece]], size: int, header: float) -> list[Collective] | None:
    """The collectives of a fully sharded step; None where it is another one."""
    halves = [_grouped(run, [size - 1, 2 * (size - 1), 4 * (size - 1)]) for run in runs]
    divisions = [[part for run in halves for part in run or []]] if all(halves) else []
    # NCCL sends a round in as many messages as its buffers demand
    divisions.append([[piece] for run in runs for piece in run])
    divisions += _with_one_length_each_way(runs, size)
    for division in divisions:
        parts = sorted(division, key=lambda part: part[0].phase.order)
        volumes = [_volume(part, header) for part in parts]
        # the rounds of one all-reduce, with pauses between them, may look like one shard
        if size > 2 and sum(piece.messages for part in parts for piece in part) <= 2 * (size - 1):
            continue
        # three all-reduces of one size look like one shard, but for their rounds
        if len(parts) == 3 and max(volumes) < 1.5 * min(volumes) and parts[0][0].messages > size - 1:
            continue
        # two hosts pause within a transfer, and a small ring may between its rounds: a sum then proves nothing
        fewest = min(sum(piece.messages for piece in part) for part in parts)
        is_whole = size > 2 and fewest >= min(size - 1, _SOME_ROUNDS)
        if (roles := roles_of(volumes, _pauses(parts), is_whole)) is not None:
            # all volumes are four shards, not three, where reduce-scatters are sent as all-reduces
            is_doubled = sum(volumes) > _DOUBLED * sum(volume for some in roles for _, volume in some)
            told = _SHARD + (_AS_ALL_REDUCE if is_doubled else "")
            return [_half(part, *role, size, told) for part, some in zip(parts, roles, strict=True) for role in some]
    return None


def _shards_by_messages(
    found: Sequence[Phase], steps: Steps, parts: dict[Stream, Parts], header: float
) -> list[Collective]:
    """The collectives of rings whose flows send a fully sharded step and nothing else, by the lengths of their rounds:
    where the next layer is gathered while one computes there is no pause, and replicas may exchange data between."""
    rings: dict[frozenset[tuple[str, str]], set[Stream]] = defaultdict(set)
    for phase in apart(found, steps, parts):
        if shapes.is_ring(phase.streams):
            rings[frozenset(stream.hosts for stream in phase.spans)].update(phase.spans)
    flows = [[stream for stream in steps.size if stream in ring] for ring in rings.values()]
    return [one for ring in flows for one in _shards_of(ring, found, steps, parts, header)]


def _shards_of(
    flows: Sequence[Stream], found: Sequence[Phase], steps: Steps, parts: dict[Stream, Parts], header: float
) -> list[Collective]:
    """The collectives of a ring's flows in a fully sharded step; none where it is another one."""
    size = len(hosts_of(flows))
    for way, cut in enumerate(cuts(flows[0], size - 1, found, steps)):
        if not in_order([stop - begin for begin, stop in cut]):
            continue
        others = [own[way] for stream in flows[1:] if (own := cuts(stream, size - 1, found, steps))]
        if len(others) < len(flows) - 1 or any(len(other) != len(cut) for other in others):
            continue
        spans = (dict(zip(flows, some, strict=True)) for some in zip(cut, *others, strict=True))
        pieces = [[_Piece(phase, size - 1)] for one in spans if (phase := measured(one, steps, parts))]
        roles = in_order([_volume(piece, header) for piece in pieces])
        if roles and len(pieces) == len(cut):
            return [_half(part, *role, size, _SHARD) for part, role in zip(pieces, roles, strict=True)]
    return []


def _without(
    found: Sequence[Phase], taken: frozenset[Stream], steps: Steps, parts: dict[Stream, Parts]
) -> Iterator[Phase]:
    """The phases without what these flows send: what they alone had connected is apart."""
    for phase in found:
        if taken.isdisjoint((*phase.spans, *phase.little)):
            yield phase
            continue
        left = {s: span for s, span in {**phase.little, **phase.spans}.items() if s not in taken}
        for edges in shapes.components([(stream,) for stream in left]):
            if (rest := phase_of({stream: left[stream] for (stream,) in edges}, steps, parts)) is not None:
                yield rest


def _gloo_all_reduces(phases: Sequence[Phase], size: int) -> list[list[_Piece]]:
    """The phases as all-reduces of gloo, which may pause in their middle, by the lengths of their messages; none where
    they are others. Of a sharded step gloo gathers the other way around."""
    if size == 2 or len({stream.hosts for phase in phases for stream in phase.spans}) != size:
        return []
    phases = sorted(phases, key=lambda phase: phase.order)
    lengths = [_most_frequent(phase) for phase in phases]
    is_other = [abs(one / other - 1) >= SAME_LENGTH for one, other in itertools.pairwise([lengths[0], *lengths])]
    alike = groups(np.cumsum(is_other), 0.5)
    found = [_from_halves([phases[place] for place in same], lengths[same[0]], size) for same in alike]
    return [group for some in found for group in some] if all(found) else []


def _from_halves(phases: Sequence[Phase], length: float, size: int) -> list[list[_Piece]]:
    """Phases with messages of this length as all-reduces of gloo; none where these are not whole or halves of such."""
    least = 2 * (size - 1)
    ends = np.cumsum([phase.bytes for phase in phases]) / length
    half = max(1, _calls(round(ends[-1]), length, size)[0] // 2)
    halves = np.round(ends / half).astype(int)
    is_whole = halves[-1] % 2 == 0 and np.all(np.abs(ends - halves * half) < SAME_LENGTH * half)
    if not is_whole or 2 * half != least * _gloo_segments(2 * half * length / least):
        return []
    pieces = [_Piece(phase, count * half) for phase, count in zip(phases, np.diff(halves, prepend=0), strict=True)]
    return [pieces[same[0] : same[-1] + 1] for same in groups((halves - 1) // 2, 0.5)]


def _most_frequent(phase: Phase) -> float:
    """Length of its messages, bytes; all its bytes where none is frequent."""
    return max(_usual(phase.lengths, phase.bytes), default=(0, phase.bytes))[1]


def _with_one_length_each_way(runs: Sequence[list[_Piece]], size: int) -> Iterator[list[list[_Piece]]]:
    """Divisions where all collectives one way around have as many messages, and those the other way: gloo gathers one
    way, and scatters the other way with twice as many. So a late host divides none of them. Of one shard these would be
    the halves of two all-reduces."""
    ways: dict[frozenset[tuple[str, str]], list[list[_Piece]]] = defaultdict(list)
    for run in runs:
        ways[frozenset(stream.hosts for stream in run[0].phase.spans)].append(run)
    if size == 2 or len(ways) != 2:
        return
    for lengths in itertools.product([size - 1, 2 * (size - 1), 4 * (size - 1)], repeat=2):
        found = [_grouped(run, [length]) for own, length in zip(ways.values(), lengths, strict=True) for run in own]
        division = [group for some in found for group in some or []]
        if all(found) and len(division) >= _OF_TWO_SHARDS:
            yield division


def _pauses(parts: Sequence[Sequence[_Piece]]) -> list[float]:
    """Before each of a step's phases, ns; that before the first is behind the last of the step before."""
    pairs = zip([parts[-1], *parts[:-1]], parts, [1, *(0 for _ in parts[1:])], strict=True)
    return [max(1.0, pause(before[-1].phase, after[0].phase, steps)) for before, after, steps in pairs]


def _volume(pieces: Sequence[_Piece], header: float) -> float:
    """Data bytes of a flow."""
    return sum(piece.phase.bytes - header * piece.messages * piece.phase.connections for piece in pieces)


def _runs(phases: Sequence[Phase], size: int) -> Iterator[list[_Piece]]:
    """Phases one after the other in one direction whose messages have one length."""
    directions: dict[frozenset[tuple[str, str]], list[Phase]] = defaultdict(list)
    for phase in phases:
        directions[frozenset(stream.hosts for stream in phase.spans)].append(phase)
    for direction in directions.values():
        run: list[_Piece] = []
        for piece in _pieces(direction, size):
            if run and not _alike(run[-1], piece, size):
                yield _of_two(run, size)
                run = []
            run.append(piece)
        yield _of_two(run, size)


def _pieces(direction: Sequence[Phase], size: int) -> Iterator[_Piece]:
    """The phases with their messages. One that shows no whole number of rounds, since ends are not seen, has as many as
    a phase beside it with the same bytes that does: the halves of an all-reduce."""
    for place, phase in enumerate(direction):
        messages = phase.messages
        if size > 2 and not _is_whole(messages, size):
            near = [*direction[max(place - 1, 0) : place], *direction[place + 1 : place + 2]]
            like = [one.messages for one in near if _as_many_bytes(one, phase) and _is_whole(one.messages, size)]
            messages = next((other for other in like if abs(other - messages) < size - 1), messages)
        yield _Piece(phase, _rounds(messages, size))


def _is_whole(messages: float, size: int) -> bool:
    return messages > 0 and messages % (size - 1) == 0


def _as_many_bytes(one: Phase, other: Phase) -> bool:
    return abs(one.bytes / other.bytes - 1) < SAME_LENGTH


def _rounds(messages: float, size: int) -> int:
    """Messages of a flow, as a multiple of N-1 where they are nearly one: ends that are not seen are missing."""
    count = max(1, round(messages))
    rounds = max(1, round(count / (size - 1))) * (size - 1)
    return rounds if size > 2 and abs(count - rounds) <= (0.25 if size == 3 else 0.2) * rounds else count


def _alike(one: _Piece, other: _Piece, size: int) -> bool:
    if size == 2:  # every number of messages is a multiple of one
        return _as_many_bytes(one.phase, other.phase)
    return abs(one.length / other.length - 1) < SAME_LENGTH


def _without_pause(phases: Sequence[Phase]) -> Iterator[list[_Piece]]:
    """Phases of two hosts of unequal bytes: a transfer that paused, where the pause is short beside the transfers."""
    run: list[Phase] = []
    for phase in phases:
        if run and pause(run[-1], phase) > 0.5 * max(_duration([run[-1]]), _duration([phase])):
            yield [_Piece(one, 1) for one in run]
            run = []
        run.append(phase)
    yield [_Piece(one, 1) for one in run]


def _are_two(run: Sequence[Sequence[_Piece]], size: int) -> bool:
    """Whether pauses in the middle of twice as many messages as an all-reduce has are longer than the longer half: then
    these are two each, and not one of gloo's, which divides a round in two messages."""
    between, last = 0.0, 0.0
    for group in run:
        ends = np.cumsum([piece.messages for piece in group]).tolist()
        if ends[-1] != 4 * (size - 1) or 2 * (size - 1) not in ends:
            return False
        middle = ends.index(2 * (size - 1)) + 1
        halves = [[piece.phase for piece in some] for some in (group[:middle], group[middle:])]
        between += pause(halves[0][-1], halves[1][0])
        last += max(_duration(half) for half in halves)
    return between > last


def _duration(phases: Sequence[Phase]) -> float:
    """Median over the steps, ns, without waiting for a late host."""
    first, last = phases[0], phases[-1]
    took = [last.end[step] - first.start[step] for step in last.end if step in first.start]
    return float(np.median(took or [0.0])) - sum(phase.waiting for phase in phases)


def _of_two(run: list[_Piece], size: int) -> list[_Piece]:
    """Of two hosts, the least power of two that all phases of a run have."""
    if size > 2:
        return run
    least = 2 ** int(np.log2(min(piece.messages for piece in run)))
    return [replace(piece, messages=least) for piece in run]


def _grouped(run: Sequence[_Piece], sizes: Sequence[int]) -> list[list[_Piece]] | None:
    """The phases in groups of as many messages, by the first of these sizes that fits; None where none does."""
    ends = np.cumsum([piece.messages for piece in run]).tolist()
    for size in sizes:
        if ends[-1] % size == 0 and set(range(size, ends[-1] + 1, size)) <= set(ends):
            places = [0, *(ends.index(end) + 1 for end in range(size, ends[-1] + 1, size))]
            return [list(run[low:high]) for low, high in itertools.pairwise(places)]
    return None


def _lengths(phase: Phase, size: int) -> list[tuple[int, float]] | None:
    """All-reduces without a pause between them, by the lengths of their messages: number and bytes of these, in the
    order in which most of them are sent.

    None where one length explains the phase, or where none does.
    """
    if size < 3 or phase.connections > 1:
        return None
    usual = _usual(phase.lengths, phase.bytes)
    seen = [(count, one) for count, one in usual
            if count >= _SEEN * (size - 1) * phase.cases and not _are_several(one, count, usual)]  # fmt: skip
    best: tuple[int, list[tuple[int, float]]] | None = None
    for several, most in ((1, 8), (2, 8), (3, 4)):
        rounds = range(2 * (size - 1), most * (size - 1) + 1, 2 * (size - 1))
        for chosen in itertools.combinations(seen, several):
            counts, lengths = zip(*chosen, strict=True)
            fitting = [some for some in itertools.product(rounds, repeat=several)
                       if abs(np.dot(some, lengths) / phase.bytes - 1) < _EXACT]  # fmt: skip
            if fitting and (best is None or sum(counts) > 1.2 * best[0]):
                # as many ends are seen of messages of each length
                likely = min(fitting, key=lambda some: float(np.ptp(np.log(np.divide(counts, some)))))
                best = sum(counts), list(zip(likely, lengths, strict=True))
    if best is None or len(best[1]) < 2:
        return None
    ordered = sorted(best[1], key=lambda found: phase.place_of(found[1]))
    return [(count, one) for total, one in ordered for count in _calls(total, one, size)]


def _are_several(length: float, count: int, usual: Sequence[tuple[int, float]]) -> bool:
    """Whether a length is that of several messages of a far more frequent one, or of two that are twice as frequent,
    between which no end was seen."""
    sums = [round(length / one) * one for more, one in usual if more > _OFTEN * count and round(length / one) > 1]
    sums += map(sum, itertools.combinations([one for more, one in usual if more > 2 * count], 2))
    return any(abs(length / total - 1) < SAME_LENGTH for total in sums)


def _equal_calls(phase: Phase, size: int) -> int:
    """Equal all-reduces of gloo without a pause between them, by the most frequent length of their messages: one where
    the ends that are seen are not as many."""
    length = _most_frequent(phase)
    rounds = round(phase.bytes / length / (2 * (size - 1))) * 2 * (size - 1)
    is_whole = rounds and abs(phase.bytes / length / rounds - 1) < SAME_LENGTH
    return len(_calls(rounds, length, size)) if is_whole and abs(phase.messages / rounds - 1) < _SAME_ENDS else 1


def _calls(rounds: int, length: float, size: int) -> list[int]:
    """Messages of a flow in each of the equal all-reduces that so many messages of one length are: the fewest of which
    gloo would divide each so."""
    least = 2 * (size - 1)
    for calls in range(1, rounds // least + 1):
        each = rounds // calls
        if rounds % calls == 0 and each % least == 0 and each // least in (1, _gloo_segments(each * length / least)):
            return [each] * calls
    return [rounds]


def _gloo_segments(segment_of_host: float) -> int:
    """Messages in which gloo's ring sends a host's part of a tensor: at most 1 MiB each, and two (allreduce.cc)."""
    return max(2, int(-(-segment_of_host // _GLOO_SEGMENT)))


def _usual(lengths: Array, total: float) -> list[tuple[int, float]]:
    """The most frequent lengths of messages: how often, and bytes; none where most are those of TCP's super-frames: in
    a capture that begins behind the SYN the segment size is not known, and each frame may look like a message."""
    slack = max(200.0, _MESSAGE * total)
    left = np.sort(lengths[lengths > max(300.0, _MESSAGE * total)])
    found: list[tuple[int, float]] = []
    if 2 * np.sum((left < _SUPER_FRAME) & (left > _SUPER_FRAME - _SEGMENT)) > len(left):
        return found
    while len(left) and len(found) < 4:
        count = np.searchsorted(left, left + slack) - np.arange(len(left))
        place = int(np.argmax(count))
        if count[place] < 4:
            break
        same = slice(place, place + int(count[place]))
        found.append((int(count[place]), float(np.median(left[same]))))
        left = np.delete(left, same)
    return found


def _all_reduce(pieces: Sequence[_Piece], volume: float, size: int, by: str) -> Collective:
    phases = tuple(piece.phase for piece in pieces)
    rounds = sum(piece.messages for piece in pieces)
    evidence = {
        "rounds": f"{rounds} messages on each of {size} flows, in {counted(len(pieces), 'phase')}",
        "pauses": f"{counted(len(pieces), 'phase')} of {size} hosts, with pauses that are short beside them",
        "segments": f"{rounds} messages on each of {size} flows, shorter than gloo sends those of one all_reduce: of "
        "several, whose mean bytes these are, and whose times are not told apart",
        "lengths": f"messages of one of several lengths on each of {size} flows, without a pause: "
        "times are not told apart",
    }[by]
    halves = "two all_gather or reduce_scatter, or one of twice the bytes"
    if size == 2:
        halves += ", a half of a larger all_reduce, or sends both ways"
    elif rounds < size - 1:
        halves += ", or broadcasts of each host in turn: fewer messages than rounds are seen"
    order = tuple(shapes.order_of(list(phases[0].spans)))
    return Collective("all_reduce", halves, "ring", order, volume * size / (2 * (size - 1)), evidence, phases)


def _half(pieces: Sequence[_Piece], kind: str, volume: float, size: int, told: str | None = None) -> Collective:
    """told: evidence of the kind; None where it may be the other one."""
    phases = tuple(piece.phase for piece in pieces)
    order = tuple(shapes.order_of(list(phases[0].spans)))
    if told:
        return Collective(kind, None, "ring", order, volume * size / (size - 1), told, phases)
    evidence = f"{size - 1} messages on each of {size} flows"
    return Collective(kind, "reduce_scatter", "ring", order, volume * size / (size - 1), evidence, phases)


# Other shapes


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
