"""The collectives of the phases of a ring, by the number and the lengths of their messages.

Source: Patarasuk and Yuan 2009: each host sends 2 (N-1)/N S in an all-reduce, half of that in an all-gather or a
reduce-scatter.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ddnn_traces.collectives import shapes
from ddnn_traces.collectives.completion import apart
from ddnn_traces.collectives.phases import SAME_LENGTH, Collective, Parts, Phase, measured, pause
from ddnn_traces.collectives.rounds import cuts
from ddnn_traces.collectives.sends import GLOO_HEADER
from ddnn_traces.collectives.sharded import in_order, roles_of
from ddnn_traces.collectives.steps import Steps
from ddnn_traces.collectives.streams import Array, Stream, groups, hosts_of
from ddnn_traces.text import counted

_SOME_ROUNDS = 4  # so many messages are no single round between two pauses
_MESSAGE = 0.003  # of a phase's bytes, between two messages of one length
_EXACT = 5e-4  # of the bytes, for a sum of messages
_OF_TWO_SHARDS = 6  # collectives
_DOUBLED = 7 / 6  # between the volume of three all-gathers and that of four
_SHARD = "each volume is there three times in the step: two all_gather and a reduce_scatter of a shard"
_AS_ALL_REDUCE = "; the reduce_scatter sends twice its volume, as gloo's, which is an all-reduce"
_OFTEN = 2.5  # times as often is a length seen as twice that length, where ends are not seen: 4 to 13 times
_SAME_ENDS = 0.1  # of the messages of a phase, by their ends and by their length
_GLOO_SEGMENT = 2**20  # bytes (gloo's kDefaultMaxSegmentSize)
_SUPER_FRAME, _SEGMENT = 2**16, 1500  # bytes that TCP hands over at once, at most; that are no whole segment of these
_SEEN = 0.2  # of the messages of a length, so many have known ends


@dataclass(frozen=True)
class _Piece:
    """A phase of a ring. messages: of each flow, as whole rounds of the ring where they are nearly that."""

    phase: Phase
    messages: int

    @property
    def length(self) -> float:
        """Of a message, bytes."""
        return self.phase.bytes / self.messages


def of_ring(phases: Sequence[Phase], header: float) -> list[Collective]:
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


def shards_by_messages(
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
