"""Steps of flows that pause all the time: behind a slow link hosts wait within a step nearly as long as between steps,
and not at the same time, so no flow has a clear period, and all are hardly ever silent together.

From its first byte to its last, each flow sends a whole number of equal steps. Laid over each other, the silences at
the start of the steps are longer than those at any other byte of a step, though not in each step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ddnn_traces.collectives.periods import Period
from ddnn_traces.collectives.steps import CONSTANT, SAME_PLACE, Job, Steps, is_closed
from ddnn_traces.collectives.streams import SILENCE, Array, Stream, groups, hosts_of

_FEWEST, _MOST = 10, 2000  # steps
_MOST_FLOWS = 256  # each number of steps is tried: 20 s of CPU time
_LEAST_BYTES = 10_000  # of a step
_LONGER = 1.3  # times the silences at any other byte
_LEAST_OTHERS = 2  # silences at other bytes: where there are none, parts look as steps do
_MOST_PARTS = 6
_LEAST_OF_PART = 5  # steps whose silences have a median
_ALIKE = 0.6  # of the longest: silences before the first, second, ... part of what would be several steps


@dataclass(frozen=True, eq=False)
class _Silences:
    """Silences of a flow. place: bytes before each, from the flow's first; length: ns; sent: all bytes of the flow."""

    place: Array
    length: Array
    sent: float

    def before(self, steps: int) -> Array | None:
        """The longest silence before each of these equal steps but the first, ns, 0 where there is none; None where too
        few have one."""
        places = np.arange(1, steps) * self.sent / steps
        low, high = (np.searchsorted(self.place, places + side).astype(int) for side in (-SAME_PLACE, SAME_PLACE))
        if np.mean(high > low) < CONSTANT:
            return None
        # reduceat takes the element itself of an empty range
        found = np.maximum.reduceat(np.append(self.length, 0.0), np.stack([low, high], 1).ravel())[::2]
        return np.where(high > low, found, 0.0)


def in_folded_steps(streams: Sequence[Stream]) -> tuple[Job, Steps] | None:
    """All flows as one job of the most equal steps at whose start most flows pause longest.

    None where there are no such steps, or fewer than ten, or where the flows are no closed job of three hosts or more,
    or are more than 256.
    """
    hosts = len(hosts_of(streams))
    if hosts < 3 or len(streams) > _MOST_FLOWS:
        return None
    silences = [_silences(stream) for stream in streams]
    parts = max(_MOST_PARTS, 2 * (hosts - 1))  # a ring has so many rounds
    most = min(_MOST, *(int(some.sent) // _LEAST_BYTES for some in silences))
    least = CONSTANT * len(streams)
    for steps in range(most, _FEWEST - 1, -1):
        seen = _seen(silences, steps, least)
        if not seen or not _are_alike([*seen.values()], parts):
            continue
        if sum(_is_longest(some, steps) for some in seen) >= least:
            job = _job(streams, steps)
            return (job, _steps_of(job, steps)) if is_closed(job) else None
    return None


def _seen(silences: Sequence[_Silences], steps: int, least: float) -> dict[_Silences, Array]:
    """The flows that have a silence before most of these steps, with its length; none where fewer than `least` have."""
    seen: dict[_Silences, Array] = {}
    for left, some in zip(range(len(silences), 0, -1), silences, strict=True):
        if len(seen) + left < least:
            return {}
        if (lengths := some.before(steps)) is not None:
            seen[some] = lengths
    return seen if len(seen) >= least else {}


def _silences(stream: Stream) -> _Silences:
    length = (stream.first[1:] - stream.last[:-1]).astype(float)
    behind = np.flatnonzero(length > SILENCE)
    place = (stream.start[1:] - stream.start[0])[behind].astype(float)
    return _Silences(place, length[behind], float(stream.end - stream.start[0]))


def _are_alike(before: Sequence[Array], most_parts: int) -> bool:
    """Whether equal parts are steps: of parts of a step, the silence before the first one is longer than those before
    the others. before: silence of each flow before each part but the first."""
    length = np.median([lengths / np.median(lengths) for lengths in before], axis=0)
    for parts in range(2, min(most_parts, len(length) // _LEAST_OF_PART) + 1):
        usual = [float(np.median(length[first::parts])) for first in range(parts)]
        if min(usual) < _ALIKE * max(usual):
            return False
    return True


def _is_longest(silences: _Silences, steps: int) -> bool:
    """Whether the median silence before these steps is longer than that at any other byte of a step: by far, and at all
    in each half of the steps."""
    size = silences.sent / steps
    number = np.floor((silences.place + SAME_PLACE) / size).astype(int)
    offset = silences.place - number * size
    order = np.argsort(offset, kind="stable")
    some = [order[same] for same in groups(offset[order], SAME_PLACE)]
    others = 0
    for low, high, longer in ((1, steps, _LONGER), (1, steps // 2, 1.0), (steps // 2, steps, 1.0)):
        own, *usual = [_usual(silences, number, one, low, high) for one in some]
        if own <= longer * max(usual, default=0.0):
            return False
        others = max(others, sum(length > 0 for length in usual))
    return others >= _LEAST_OTHERS


def _usual(silences: _Silences, number: Array, some: Array, low: int, high: int) -> float:
    """Median over steps low to high - 1 of the longest of some silences in each, ns. number: step of each silence."""
    longest = np.zeros(high - low)
    mine = some[(number[some] >= low) & (number[some] < high)]
    np.maximum.at(longest, number[mine] - low, silences.length[mine])
    return float(np.median(longest))


def _job(streams: Sequence[Stream], steps: int) -> Job:
    return {stream: _period(stream, steps) for stream in streams}


def _period(stream: Stream, steps: int) -> Period:
    size = (stream.end - stream.start[0]) / steps
    at = np.searchsorted(stream.start, stream.start[0] + np.arange(steps) * size - SAME_PLACE)
    silence = float(np.median(np.maximum(stream.first[at[1:]] - stream.last[at[1:] - 1], 0)))
    return Period(size, 0.0, at, np.arange(steps), silence, float(np.median(np.diff(stream.first[at]))))


def _steps_of(job: Job, steps: int) -> Steps:
    """All steps: each starts with its first message, also where another flow still sends bytes of the one before."""
    start = np.min([stream.first[period.message] for stream, period in job.items()], axis=0)
    last = [np.maximum.accumulate(stream.last)[period.message - 1] for stream, period in job.items()]
    idle = np.append(start[:1], np.max(last, axis=0)[1:])
    first = {stream: float(stream.start[0]) for stream in job}
    size = {stream: period.size for stream, period in job.items()}
    every = np.arange(steps)
    return Steps(first, size, every, start.astype(float), idle.astype(float), every)
