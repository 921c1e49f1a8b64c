"""Groups of hosts that send the same bytes in a step, as those of a tensor-parallel training: where some pause within a
call, or go on to the next one without a pause, they have the calls of those that do not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ddnn_traces.collectives import shapes
from ddnn_traces.collectives.phases import SAME_BYTES, Collective, Parts, measured
from ddnn_traces.collectives.steps import Steps
from ddnn_traces.collectives.streams import Array, Stream

_FEWEST = 2  # calls, between which groups pause
_MOSTLY = 0.5  # of the pauses

Flows = frozenset[Stream]


def with_same_calls(found: Sequence[Collective], steps: Steps, parts: dict[Stream, Parts]) -> list[Collective]:
    """The collectives. Of rings that send the same bytes in a step, those that are told apart otherwise have the equal
    all-reduces of the others, where they pause behind most of these, too."""
    groups = {flows: some for flows, some in _by_flows(found) if _is_ring(flows, steps)}
    equal = {flows: calls for flows, calls in groups.items() if len(calls) >= _FEWEST and _are_equal(calls)}
    size = {flows: float(np.median([steps.size[stream] for stream in flows])) for flows in groups}
    gone: set[Collective] = set()
    calls: list[Collective] = []
    for flows, some in groups.items() if equal else ():
        alike = [other for other in equal if len(other) == len(flows) and abs(size[other] - size[flows]) <= SAME_BYTES]
        counts = Counter(len(equal[other]) for other in alike)
        most = max(counts, key=lambda count: (counts[count], count), default=0)
        if flows not in equal and most and _pauses_there(some, most, steps):
            like = next(equal[other] for other in alike if len(equal[other]) == most)
            own = [_as(one, place / most, flows, most, steps, parts) for place, one in enumerate(like)]
            calls += [one for one in own if one is not None]
            gone.update(some)
    return [*(one for one in found if one not in gone), *calls] if gone else list(found)


def _as(
    one: Collective, begin: float, flows: Flows, calls: int, steps: Steps, parts: dict[Stream, Parts]
) -> Collective | None:
    """An all-reduce as this one, of other flows, from this share of a step's bytes on."""
    spans = {stream: (begin * steps.size[stream], (begin + 1 / calls) * steps.size[stream]) for stream in flows}
    if (phase := measured(spans, steps, parts)) is None:
        return None
    evidence = f"{calls} equal calls, as of other groups with as many bytes in a step"
    hosts = tuple(shapes.order_of([*flows]))
    return replace(one, hosts=hosts, evidence=evidence, phases=(phase,))


def _by_flows(found: Sequence[Collective]) -> list[tuple[Flows, list[Collective]]]:
    """The collectives by sets of flows that share none."""
    groups: dict[int, tuple[set[Stream], list[Collective]]] = {}
    place: dict[Stream, int] = {}
    for number, one in enumerate(found):
        flows, some = {stream for phase in one.phases for stream in phase.spans}, [one]
        for joined in sorted({place[stream] for stream in flows if stream in place}):
            others, before = groups.pop(joined)
            flows |= others
            some += before
        groups[number] = flows, some
        place.update(dict.fromkeys(flows, number))
    return [(frozenset(flows), some) for flows, some in groups.values()]


def _is_ring(flows: Flows, steps: Steps) -> bool:
    sizes = [steps.size[stream] for stream in flows]
    return shapes.is_ring([*flows]) and max(sizes) - min(sizes) <= SAME_BYTES


def _are_equal(calls: Sequence[Collective]) -> bool:
    """Whether these are all-reduces of the same bytes."""
    sizes = [one.tensor_bytes for one in calls]
    return all(one.kind == "all_reduce" for one in calls) and max(sizes) - min(sizes) <= SAME_BYTES


def _pauses_there(some: Sequence[Collective], calls: int, steps: Steps) -> bool:
    """Whether a flow pauses behind most of so many equal calls."""
    spans = [(stream, stop) for one in some for phase in one.phases for stream, (_, stop) in phase.spans.items()]
    ends: Array = np.array([calls * stop / steps.size[stream] for stream, stop in spans])
    slack = max(SAME_BYTES * calls / steps.size[stream] for stream, _ in spans)
    return float(np.mean(np.min(np.abs(ends[:, None] - np.arange(1, calls)), axis=0) <= slack)) > _MOSTLY
