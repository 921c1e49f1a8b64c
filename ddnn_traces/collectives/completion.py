"""Parts of a collective put together: where hosts wait for a slow host or link, phases end within it."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from ddnn_traces.collectives import shapes
from ddnn_traces.collectives.phases import (
    EQUAL,
    SAME_BYTES,
    Parts,
    Pattern,
    Phase,
    Spans,
    measured,
    merge,
    pause,
    phase_of,
)
from ddnn_traces.collectives.steps import Steps
from ddnn_traces.collectives.streams import Stream, groups

Edge = tuple[Stream, ...]  # the flows of one transfer

_NEAR_PHASES = 5  # so far a fragment of a phase is looked for
_FEWER = 0.1  # of the bytes of a collective of the same hosts elsewhere in the step
_BURST = 0.1  # of the bytes of a phase of two hosts, that one of them sends ahead


def divided(found: Sequence[Phase], steps: Steps, parts: dict[Stream, Parts]) -> list[Phase]:
    """Phases in their order; one in which hosts do not pause behind a ring that is a phase elsewhere, as this ring and
    the groups of hosts that exchange the rest. Beside much larger transfers, that ring may look like control messages,
    and so may what a flow sends elsewhere.
    """
    whole = [phase for phase in apart(found, steps, parts) if _is_complete(phase)]
    rings = {frozenset(one.spans): one for one in whole if shapes.is_ring(one.streams)}
    sent: dict[Stream, list[float]] = defaultdict(list)
    for phase in found:
        for stream, (begin, stop) in phase.spans.items():
            sent[stream].append(stop - begin)
    result: list[Phase] = []
    for phase in found:
        everything = replace(phase, spans={**phase.little, **phase.spans}, little={}) if phase.little else phase
        sizes = dict(zip(everything.edges, everything.volumes, strict=True))
        able = phase.little if phase in whole else everything.spans
        own = [
            ring.edges
            for ring in rings.values()
            if ring.spans.keys() <= able.keys()
            and ring.spans.keys() != phase.spans.keys()
            and _is_of_ring(ring, sizes, phase.little)
        ]
        of_rings = {edge for edges in own for edge in edges}
        sends = [edge for edge in everything.edges if _is_sent_elsewhere(edge, phase.little, sent)]
        own += [[edge] for edge in sends if edge not in of_rings]
        taken = {stream for edges in own for edge in edges for stream in edge}
        if not taken:
            result.append(phase)
            continue
        left = replace(phase, little={s: span for s, span in phase.little.items() if s not in taken})
        if phase in whole:
            result += [left, *_of_edges(own, everything, steps, parts)]
        else:
            rest = shapes.components([edge for edge in phase.edges if taken.isdisjoint(edge)])
            rest = [group for edges in rest for group in _rings_and_sends({edge: sizes[edge] for edge in edges}, 2)]
            result += [*_of_edges(own, everything, steps, parts), *_of_edges(rest, left, steps, parts)]
    return sorted(result, key=lambda phase: phase.order)


def _is_of_ring(ring: Phase, sizes: Mapping[Edge, float], little: Spans) -> bool:
    """Whether edges with these bytes have a collective of a ring: as many as in its phase elsewhere. Beside another
    collective they may be fewer, if they are as many on each edge: replicas sum up the gradients of a smaller layer."""
    volumes = [sizes.get(edge, 0.0) for edge in ring.edges]
    is_beside = ring.spans.keys() <= little.keys() and min(volumes) >= _FEWER * ring.bytes
    usual = min(volumes) if is_beside else ring.bytes
    return all(abs(volume - usual) <= EQUAL * usual for volume in volumes)


def _is_sent_elsewhere(edge: Edge, little: Spans, sent: Mapping[Stream, Sequence[float]]) -> bool:
    """Whether all flows of an edge look like control messages, and send as many bytes as data elsewhere."""
    sizes = {stream: little[stream][1] - little[stream][0] for stream in edge if stream in little}
    return sizes.keys() == set(edge) and all(
        any(abs(size / other - 1) <= EQUAL for other in sent[stream]) for stream, size in sizes.items()
    )


def apart(found: Sequence[Phase], steps: Steps, parts: dict[Stream, Parts]) -> Iterator[Phase]:
    """Phases; one of rings, of which one has more than two hosts, and sends, with different volumes, as these."""
    for phase in found:
        sizes = dict(zip(phase.edges, phase.volumes, strict=True))
        pairs = _pairs_of_channels(sizes)
        rest = {edge: size for edge, size in sizes.items() if not any(edge in pair for pair in pairs)}
        several = [*pairs, *(_rings_and_sends(rest, 3) if rest else [])]
        yield from _of_edges(several, phase, steps, parts) if len(several) > 1 else [phase]


def _pairs_of_channels(sizes: Mapping[Edge, float]) -> list[list[Edge]]:
    """Edges of each two hosts that send the same bytes to each other on several connections, and to no third host: an
    all-reduce over NCCL's channels. None where nothing else is beside them."""
    pairs = []
    for parts in _alike(sizes):
        if all(map(_is_over_channels, parts)):
            pairs += parts
    return pairs if sum(map(len, pairs)) < len(sizes) else []


def _is_over_channels(edges: Sequence[Edge]) -> bool:
    """Whether these are several edges each way between two hosts."""
    ways = Counter(edge[0].hosts for edge in edges)
    return (
        len({host for hosts in ways for host in hosts}) == len(ways) == 2
        and min(ways.values()) == max(ways.values()) > 1
    )


def _rings_and_sends(sizes: Mapping[Edge, float], least: int) -> list[list[Edge]]:
    """Edges by the rings, of which one has at least so many hosts, and the sends that they are by their bytes; else all
    together."""
    parts = [part for some in _alike(sizes) for part in some]
    rings = [part for part in parts if shapes.is_ring([edge[0] for edge in part])]
    if any(len(ring) >= least for ring in rings) and all(part in rings or len(part) == 1 for part in parts):
        return parts
    return [[*sizes]]


def _alike(sizes: Mapping[Edge, float]) -> list[list[list[Edge]]]:
    """Edges with the same bytes, by the hosts that these connect."""
    ordered = np.sort([*sizes.values()])
    classes = [set(ordered[same].tolist()) for same in groups(np.log(ordered), EQUAL)]
    return [shapes.components([edge for edge, size in sizes.items() if size in some]) for some in classes]


def without(
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


def _of_edges(
    groups_of_edges: Sequence[Sequence[Edge]], phase: Phase, steps: Steps, parts: dict[Stream, Parts]
) -> Iterator[Phase]:
    """The parts of a phase that have these edges."""
    for edges in groups_of_edges:
        spans = {stream: phase.spans[stream] for edge in edges for stream in edge}
        if (part := measured(spans, steps, parts)) is not None:
            yield replace(part, little=phase.little)


def completed(found: Sequence[Phase], steps: Steps, parts: dict[Stream, Parts]) -> list[Phase]:
    """Phases; a part of a ring or of an all-to-all has taken what completes it from phases nearby: where hosts wait for
    a late one, the collective has come so far on each flow."""
    left = list(found)
    place = 0
    while place < len(left):
        taken, left[place] = _with_rest(place, left, steps, parts)
        for other in sorted(taken, reverse=True):
            del left[other]
            place -= other < place
        place += 1
    return left


def _with_rest(
    place: int, phases: Sequence[Phase], steps: Steps, parts: dict[Stream, Parts]
) -> tuple[list[int], Phase]:
    """A phase with the phases that complete it, and their places. Else a ring takes a phase of some of its flows."""
    phase = phases[place]
    if len(phase.hosts) < 3:
        ahead = _sent_ahead(place, phases)
        return _whole(place, ahead, phases, steps, parts) if ahead else ([], phase)
    if _is_complete(phase):
        return [], phase
    for others in _neighbours(place, phases):
        several = [phase, *(phases[other] for other in others)]
        whole = Pattern(_union(several))
        # stages of a pipeline that send in a circle are no ring: they send the same bytes
        if _is_complete(whole) and not (phase.is_balanced and shapes.is_ring(whole.streams)):
            return _whole(place, others, phases, steps, parts)
    if shapes.is_ring(phase.streams):
        for other in [*range(place + 1, place + 1 + _NEAR_PHASES), *range(place - 1, place - 1 - _NEAR_PHASES, -1)]:
            if 0 <= other < len(phases) and phases[other].spans.keys() < phase.spans.keys():
                return _whole(place, [other], phases, steps, parts)
    return [], phase


def _sent_ahead(place: int, phases: Sequence[Phase]) -> list[int]:
    """The phases before one of two hosts in which one of them sends what it lacks beside the other: a shaper lets a
    burst pass, or TCP pauses behind the first bytes."""
    phase = phases[place]
    if not shapes.is_ring(phase.streams):
        return []
    sizes = dict(zip(phase.streams, phase.volumes, strict=True))
    stream = min(sizes, key=sizes.__getitem__)
    lacking, low = max(sizes.values()) - sizes[stream], phase.spans[stream][0]
    if not SAME_BYTES < lacking <= _BURST * phase.bytes:
        return []
    found: list[int] = []
    for other in range(place - 1, -1, -1):
        span = phases[other].spans.get(stream)
        if phases[other].hosts.isdisjoint(phase.hosts):
            continue
        is_ahead = span is not None and len(phases[other].spans) == 1 and abs(low - span[1]) <= SAME_BYTES
        if span is None or not is_ahead:
            break
        found, low = [*found, other], span[0]
        if abs(phase.spans[stream][0] - low - lacking) <= SAME_BYTES:
            return found
    return []


def _whole(
    place: int, others: list[int], phases: Sequence[Phase], steps: Steps, parts: dict[Stream, Parts]
) -> tuple[list[int], Phase]:
    """The places of these phases and of those whose bytes lie between theirs on a flow, and all as one phase."""
    spans = _union([phases[place], *(phases[other] for other in others)])
    between = [
        other
        for other, phase in enumerate(phases)
        if other not in (place, *others)
        and any(
            min(b, spans[s][1]) - max(a, spans[s][0]) > SAME_BYTES for s, (a, b) in phase.spans.items() if s in spans
        )
    ]
    taken = [*others, *between]
    return taken, _together([phases[place], *(phases[other] for other in taken)], steps, parts)


def _neighbours(place: int, phases: Sequence[Phase]) -> Iterator[list[int]]:
    """What may complete a phase: those of its hosts up to a complete one, before it, behind it, of both sides, few
    first; and those nearby of other flows between its hosts."""
    phase = phases[place]
    before, behind = (
        [other for other in others if phases[other].hosts & phase.hosts]
        for others in (range(place - 1, -1, -1), range(place + 1, len(phases)))
    )
    most = max(_NEAR_PHASES, len(phase.hosts))  # behind a slow link, each host of a ring goes on a round later
    back, after = (
        list(itertools.takewhile(lambda other: not _is_complete(phases[other]), others[:most]))
        for others in (before, behind)
    )
    for side in (back, after):
        yield from (side[:count] for count in range(1, len(side) + 1))
    for earlier, later in itertools.product(range(1, _NEAR_PHASES), repeat=2):
        if earlier + later <= _NEAR_PHASES and earlier <= len(back) and later <= len(after):
            yield back[:earlier] + after[:later]
    # the others exchange theirs before those with the late host
    near = sorted(before[:_NEAR_PHASES] + behind[:_NEAR_PHASES], key=lambda other: abs(other - place))
    near = [o for o in near if phases[o].hosts <= phase.hosts and phases[o].spans.keys().isdisjoint(phase.spans)]
    yield from (near[:count] for count in range(1, len(near) + 1))


def _is_complete(phase: Pattern) -> bool:
    """Whether these are all transfers of a ring or of an all-to-all, with equal bytes."""
    streams, size = phase.streams, len(phase.hosts)
    is_all = size > 2 and len(streams) == len({stream.hosts for stream in streams}) == size * (size - 1)
    return phase.is_balanced and (is_all or shapes.is_ring(streams))


def _union(some: Sequence[Phase]) -> Spans:
    """The bytes of parts of a collective."""
    spans: Spans = {}
    for phase in some:
        merge(spans, phase.spans)
    for phase in some:
        merge(spans, {stream: span for stream, span in phase.little.items() if stream in spans})
    return spans


def _together(some: Sequence[Phase], steps: Steps, parts: dict[Stream, Parts]) -> Phase:
    """Parts of a collective as one phase."""
    whole = measured(_union(some), steps, parts) or some[0]
    idle = sum(pause(one, other) for one, other in itertools.pairwise(sorted(some, key=lambda phase: phase.order)))
    return replace(whole, waiting=max(0.0, idle) if np.isfinite(idle) else 0.0)
