"""Whether a silence within a collective is the wait for a late host."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ddnn_traces.collectives.streams import SMALL, Array, Stream, silences_of

_COMPARABLE = 0.2  # of the wait's length: the late host computes for six times as long as the others
_NEARLY_ALL = 0.9  # of the steps: the first and the last one may lack a part
_HALF = 0.5  # of the other silence's length: nobody computes in between, as stages do for the next micro-batch
_LESS = 0.5  # of a step's bytes: the others stop soon without the late host's data


def waits_for_one(streams: Iterable[Stream], wait: tuple[Array, Array], other: tuple[Array, Array]) -> bool:
    """Whether the host that ends a silence in most steps has sent no data since another silence.

    So the hosts that end the other silence are in the collective for which the late host still computes. What they
    send without it is less than what follows. A fast host, which is alone in the other order, sends little, too: then
    the little comes behind the longest silence.

    streams: the flows of a job. wait, other: when the silences end and begin, ns.
    """
    flows = list(streams)
    (start, idle), (begin, quiet) = wait, other
    if np.median(begin - quiet) < _COMPARABLE * np.median(start - idle):
        return False
    latest = np.searchsorted(begin, start) - 1
    both = np.flatnonzero(latest >= 0)
    both = both[(both == 0) | (begin[latest[both]] > start[both - 1])]
    if len(both) < max(2, _NEARLY_ALL * (len(start) - 1)):
        return False
    begin, end = begin[latest[both]], start[both]
    sent, sent_before = (sum(stream.position_at(times) for stream in flows) for times in (end, begin))
    first = _first_hosts(flows, end)
    late = max(set(first), key=first.count)
    return bool(
        first.count(late) > len(first) / 2  # those that wait answer within microseconds
        and np.median(sent - sent_before) < _LESS * np.median(np.diff(sent))
        and np.mean(_are_silent([stream for stream in flows if stream.src == late], begin, end)) >= _NEARLY_ALL
        and np.median(_longest_between(flows, begin, idle[both])) < _HALF * np.median(other[0] - quiet)
    )


def _first_hosts(flows: list[Stream], start: Array) -> list[str]:
    """The host that sends first at or behind each of these times."""
    next_ = [np.append(stream.first, np.inf)[np.searchsorted(stream.first, start)] for stream in flows]
    return [flows[place].src for place in np.argmin(next_, axis=0)]


def _are_silent(flows: list[Stream], begin: Array, end: Array) -> Array:
    """Whether these flows begin no message with data from each of these times until the other."""
    found = np.ones(len(begin), bool)
    for stream in flows:
        data = stream.first[stream.size > SMALL]
        found &= np.searchsorted(data, begin) == np.searchsorted(data, end)
    return found


def _longest_between(flows: list[Stream], begin: Array, end: Array) -> Array:
    """The longest silence of all flows between each of these times and the other, ns; 0 where there is none."""
    starts, ends = silences_of(flows)
    first, next_ = np.searchsorted(starts, begin, "right"), np.searchsorted(starts, end, "right")
    return np.array([max((starts - ends)[one:other], default=0.0) for one, other in zip(first, next_, strict=True)])
