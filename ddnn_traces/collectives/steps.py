"""The steps of a job: silences of all its flows that recur with the bytes of a step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from ddnn_traces.collectives.late import waits_for_one
from ddnn_traces.collectives.periods import ALMOST_BEST, ALWAYS, BETTER, SAME_SIZE, Period, chain_of, periods, tolerance
from ddnn_traces.collectives.streams import (
    SILENCE,
    SMALL,
    Array,
    Stream,
    groups,
    hosts_of,
    silences_of,
    without_control,
)
from ddnn_traces.collectives.validations import without_extra

CONSTANT = 0.6  # share of flows, and of steps, with constant bytes
_MOST_PARTS = 6  # a period may be of several steps: the shortest counts whose silence is as long
_ALIKE = 0.4
PRESENT = 0.8
_MOST_RECURRING = 8  # silences of a step that are tried as its start
SAME_PLACE = 400.0  # bytes: control messages
_FEWEST, _MOST_FEW = 4, 12  # steps of a job without a period: three equal parts may be those of one sharded step
_LONGER = 2.0  # times any other silence behind the first step
_LONGEST = 64  # silences that are looked at
_MOST_CHANCE = 0.01  # that silences by turns are so by chance
_SEVERAL = 3  # steps without the silence
_SOME_STEPS = 0.2  # share, in which a host that computes for itself is not behind all that send to it

Job = dict[Stream, Period]


@dataclass(frozen=True)
class Steps:
    """The steps of a job. first: for each flow, the position where step 0 begins, bytes. size: bytes of its step.
    number, start: number of each step whose start is seen, and the time of its first message, ns; idle: the time of
    the last message before it. whole: numbers of the steps of which the capture has all bytes."""

    first: dict[Stream, float]
    size: dict[Stream, float]
    number: Array
    start: Array
    idle: Array
    whole: Array


def in_steps(job: Job) -> tuple[Job, Steps] | None:
    """The job without what its flows send behind some steps only, as for a validation, and its steps, which then have
    the same bytes; None where its flows have no common silence."""
    silences = step_silences(job)
    if silences is None:
        return None
    number, start, _ = silences
    even = dict(without_extra(stream, period, stream.position_at(start), number) for stream, period in job.items())
    if even.keys() != job.keys():
        silences = step_silences(even)
    return None if silences is None or is_of_parts(silences[0]) else _without_halves(even, *silences)


def in_few_steps(streams: Sequence[Stream]) -> tuple[Job, Steps] | None:
    """All flows as one job of so few steps that none shows a period; None where they show no such steps.

    The silences of all flows between steps are far longer than any other behind the first step, in which programs
    start, and divide what each flow sends, from its first byte to its last, into equal parts.
    """
    starts, ends = silences_of(streams)
    longest = np.sort(np.argsort(-(starts - ends), kind="stable")[:_LONGEST])
    starts, ends = starts[longest], ends[longest]
    sent = [stream.position_at(starts) - stream.start[0] for stream in streams]
    for steps in range(_MOST_FEW, _FEWEST - 1, -1):
        sizes = [(stream.end - stream.start[0]) / steps for stream in streams]
        number = np.round(sent[0] / sizes[0]).astype(int)
        whole = (number > 0) & (number < steps)
        for at, size in zip(sent, sizes, strict=True):
            whole &= np.abs(at - number * size) <= max(SAME_PLACE, SAME_SIZE * size)
        chosen = [max(same, key=lambda place: starts[place] - ends[place])
                  for one in range(1, steps) if len(same := np.flatnonzero(whole & (number == one)))]  # fmt: skip
        others = np.setdiff1d(np.flatnonzero(starts > starts[chosen[0]]), chosen) if len(chosen) == steps - 1 else None
        if others is None or min(starts[chosen] - ends[chosen]) < _LONGER * max(
            starts[others] - ends[others], default=0
        ):
            continue
        start, idle = starts[chosen], ends[chosen]
        job = {stream: Period(size, 0.0, np.searchsorted(stream.first, start), np.arange(steps - 1),
                              float(np.median(start - idle)), float(np.median(np.diff(start))))
               for stream, size in zip(streams, sizes, strict=True)}  # fmt: skip
        if is_closed(job):
            return job, _steps_at(job, np.arange(steps - 1), start, idle)
    return None


def step_silences(job: Job) -> tuple[Array, Array, Array] | None:
    """The silence of all flows behind which a step starts: it recurs with the sum of the bytes of their steps.

    Of several, the longest, or where few hosts end that, or one late host, one behind which more start. Returns the
    number of each step, the time of its first message and of the last one before it, ns; None where there is none.
    """
    found = recurring_silences(job)
    if not found:
        return None
    longest, hosts = found[0], len(hosts_of(job))
    # a step starts when hosts have computed; behind a pause within a collective, most wait for the last host
    starters = _starters(job, *longest[1:]) if hosts > 2 else hosts
    if hosts > 2 and (starters == 1 or not _is_even(job, *longest[:2])):
        least = min(hosts - 1, max(3, 2 * starters))  # inner hosts of a tree wait for others
        for other in found[1:]:
            often = starters <= hosts // 2 or len(other[0]) >= len(longest[0])
            if often and _is_even(job, *other[:2]) and _starters(job, *other[1:]) >= least:
                return other
    for other in found[1:] if hosts > 2 else ():
        # no whole number of steps is asked for: a capture may begin and end within one
        if waits_for_one(job, longest[1:], other[1:]) and _starters(job, *other[1:]) > hosts / 2:
            return other
    return longest


def recurring_silences(job: Job) -> list[tuple[Array, Array, Array]]:
    """The silences of all flows that recur once a step, as step_silences() has them: that of steps is one of these."""
    first = np.concatenate([stream.first for stream in job])
    order = np.argsort(first, kind="stable")
    first = first[order]
    last = np.maximum.accumulate(np.concatenate([stream.last for stream in job])[order])
    size = np.concatenate([stream.size for stream in job])[order]
    before = np.cumsum(size) - size
    silence = first[1:] - last[:-1]
    behind = np.flatnonzero(silence > SILENCE) + 1
    places, lengths = before[behind].astype(float), silence[behind - 1].astype(float)
    starts, ends = first[behind].astype(float), last[behind - 1].astype(float)
    found = _step_places(job, places, lengths, starts) or _places_of_half(job, places, lengths, starts)
    return [(number, starts[at], ends[at]) for at, number in found]


def _places_of_half(job: Job, places: Array, lengths: Array, starts: Array) -> list[tuple[Array, Array]]:
    """As _step_places(), of the first or the second half of the bytes: where a link gets slow, other hosts have sent
    a part of the next step by then, and from there on the silence is at other bytes."""
    middle = np.searchsorted(places, places[-1] / 2) if len(places) else 0
    for half in (slice(None, middle), slice(middle, None)):
        found = _step_places(job, places[half], lengths[half], starts[half])
        even = [(at + (half.start or 0), number) for at, number in found]
        even = [(at, number) for at, number in even if _is_even(job, number, starts[at])]
        if even:
            return even
    return []


def _step_places(job: Job, places: Array, lengths: Array, starts: Array) -> list[tuple[Array, Array]]:
    """The silences of all flows that recur once a step, the longest first: as chain_of() has them.

    places: position of each silence in the sum of all flows, bytes; lengths, starts: its length and its end, ns.
    """
    step = sum(period.size for period in job.values())
    longest, steps = 0.0, 0
    recurring: list[tuple[Array, Array]] = []
    own = cache(lambda: {stream: periods(stream) for stream in job})
    for parts in range(1, _MOST_PARTS + 1) if len(places) else ():
        slack = max(min(400.0 * len(job), 0.05 * step / parts), 0.002 * step / parts)
        found = chain_of(places, lengths, step / parts, slack, even=False)
        if found is None:
            continue
        short = float(np.quantile(lengths[found[0]], 0.2))
        if parts == 1:
            longest, steps = float(np.median(lengths[found[0]])), len(found[0])
        elif short < _ALIKE * longest or len(found[0]) < PRESENT * parts * steps or not _recurs(job, parts, own()):
            continue
        if parts == 2 and (first := _first_of_halves(found[1], starts[found[0]])) is not None:
            whole = found[1] % 2 == first
            recurring = [(found[0][whole], (found[1][whole] - first) // 2), *recurring]
            continue
        if parts == 1 or constant(job, starts[found[0]]) >= CONSTANT:
            recurring = [found, *_recurring(places, lengths, found, step / parts, slack)]
    return recurring


def _recurring(
    places: Array, lengths: Array, chain: tuple[Array, Array], size: float, slack: float
) -> list[tuple[Array, Array]]:
    """Other silences that are in most steps of `size` bytes, the longest first, as chain_of() has them."""
    begin = places[chain[0]]
    step = np.searchsorted(begin, places, "right") - 1
    inside = np.flatnonzero((step >= 0) & (places - begin[step] < size - slack) & (places > begin[step] + slack))
    offset = (places - begin[step])[inside]
    order = np.argsort(offset, kind="stable")
    found = []
    for same in groups(offset[order], slack):
        indices = inside[order][same]
        indices = indices[np.lexsort((-lengths[indices], step[indices]))]
        _, firsts = np.unique(step[indices], return_index=True)
        if len(firsts) >= CONSTANT * len(begin):
            found.append((indices[firsts], chain[1][step[indices[firsts]]]))
    return sorted(found, key=lambda one: -float(np.median(lengths[one[0]])))[:_MOST_RECURRING]


def _recurs(job: Job, parts: int, possible: dict[Stream, list[Period]]) -> bool:
    """Whether most flows have this part of their step as a period of their own, with nearly the score of the step if
    that always recurs: micro-batches recur in most of a step. Where each flow recurs better with the step, that is no
    chance."""
    found, better = [], []
    for stream, period in job.items():
        scores = [p.score for p in possible[stream] if abs(parts * p.size / period.size - 1) < SAME_SIZE]
        found.append(any(score >= ALMOST_BEST * period.score or period.score < ALWAYS for score in scores))
        better.append(period.score >= BETTER * max(scores, default=0.0))
    return float(np.mean(found)) >= CONSTANT and not all(better)


def _first_of_halves(number: Array, start: Array) -> int | None:
    """Whether steps start at the even or the odd ones of these parts, where these always take a long and a short time
    by turns: hosts compute before a step only, at the end of the long one. None where parts are steps."""
    time, next_ = np.diff(start), np.diff(number) == 1
    for first in (0, 1):
        is_short = number[:-1] % 2 == first
        short, long = time[next_ & is_short], time[next_ & ~is_short]
        is_rare = _MOST_CHANCE * math.comb(len(long) + len(short), len(long)) >= 2
        if is_rare and len(short) and long.min() > short.max():
            return first
    return None


def _is_even(job: Job, number: Array, start: Array) -> bool:
    """Whether each flow has sent a whole number of steps where these steps start, counted from its first byte, or each
    will have at its last byte: what is sent to connect, or the capture of a part, makes one of them false."""
    ahead: list[bool] = []
    behind: list[bool] = []
    parts: set[int] = set()
    for stream, period in job.items():
        sent = stream.position_at(start)
        step = float(np.median(np.diff(sent) / np.diff(number)))
        parts.add(max(1, round(period.size / step)) if step > 0 else 1)
        if len(parts) > 1 or abs(max(parts) * step / period.size - 1) > SAME_SIZE:
            return False
        rest = float(np.median(sent - number * step))
        slack = max(SAME_PLACE, SAME_SIZE * step)
        for places, place in ((ahead, rest - stream.start[0]), (behind, stream.end - rest)):
            places.append(min(place % step, -place % step) <= slack)
    return all(ahead) or all(behind)


def _starters(job: Job, start: Array, idle: Array) -> int:
    """Hosts that send data before they have received any, in some steps that would start at these silences."""
    sends: dict[str, Array] = {}
    receives: dict[str, Array] = {}
    for stream in job:
        data = stream.size > SMALL
        first, last = (np.append(times[data], np.inf) for times in (stream.first, stream.last))
        next_ = np.searchsorted(first, start)
        sends[stream.src] = np.minimum(sends.get(stream.src, np.inf), first[next_])
        receives[stream.dst] = np.minimum(receives.get(stream.dst, np.inf), last[next_])
    return sum(float(np.mean(sends[host] < receives.get(host, np.inf))) >= _SOME_STEPS for host in sends)


def is_of_parts(number: Array) -> bool:
    """Whether the silence is missing at the same part of each three to six of these steps, and at no other: they are
    parts of longer steps, of which the capture has too few to show them."""
    every = np.arange(number[-1] + 1)
    missing = np.setdiff1d(every, number)
    return len(missing) >= _SEVERAL and any(
        np.array_equal(missing, every[every % parts == missing[0] % parts]) for parts in range(3, _MOST_PARTS + 1)
    )


def _without_halves(job: Job, number: Array, start: Array, idle: Array) -> tuple[Job, Steps]:
    """The job and its steps; of two hosts, steps by turns behind a long and a short silence are halves of steps.

    The halves of an all-reduce of two hosts send the same bytes, as steps do. Between halves hosts wait for half as
    long as they send, or less; before a step they compute.
    """
    steps = _steps_at(job, number, start, idle)
    if len(hosts_of(job)) > 2 or not is_one_size(job):
        return job, steps
    between = np.isin(number, steps.whole) & np.isin(number - 1, steps.whole)
    silence, waits = start - idle, float(np.median(idle[1:] - start[:-1])) / 2
    for turn in (0, 1):
        is_long = number % 2 == turn
        long, short = silence[between & is_long], silence[between & ~is_long]
        is_rare = _MOST_CHANCE * math.comb(len(long) + len(short), len(long)) >= 2
        if is_rare and len(short) and long.min() > short.max() and np.median(short) <= waits:
            whole = {stream: replace(period, size=2 * period.size) for stream, period in job.items()}
            return whole, _steps_at(whole, (number[is_long] - turn) // 2, start[is_long], idle[is_long])
    return job, steps


def _steps_at(job: Job, number: Array, start: Array, idle: Array) -> Steps:
    """number, start, idle: as of Steps."""
    at = {stream: stream.position_at(start) for stream in job}
    sent = {stream: float(np.median(np.diff(places) / np.diff(number))) for stream, places in at.items()}
    total = sum(sent.values())
    parts = max(1, round(sum(period.size for period in job.values()) / total)) if total else 1
    first, size = {}, {}
    for stream, period in job.items():
        seen = sent[stream]
        steps = max(1, round(period.size / seen)) if seen else 1
        size[stream] = seen if abs(steps * seen / period.size - 1) < 0.02 else period.size / parts
        first[stream] = float(np.median(at[stream] - number * size[stream]))
    return Steps(first, size, number, start, idle, _whole(job, first, size, number))


def _whole(job: Job, first: dict[Stream, float], size: dict[Stream, float], number: Array) -> Array:
    """Numbers of the steps of which most flows have all bytes."""
    found = []
    low, high = -2, int(number[-1])
    begin = min(math.floor((stream.start[0] - first[stream]) / size[stream]) for stream in job)
    end = max(math.floor((stream.end - first[stream]) / size[stream]) for stream in job)
    if len(number) < CONSTANT * (end - begin):  # silences of half of the bytes
        low, high = begin, end
    for step in range(low, high + 2):
        complete = [
            first[s] + (step + 0.02) * size[s] >= s.start[0] and s.end >= first[s] + (step + 0.98) * size[s]
            for s in job
        ]
        if np.mean(complete) >= 0.8:
            found.append(step)
    return np.array(found, int)


def is_closed(job: Job) -> bool:
    """Whether all hosts send and receive data, as in training; otherwise the flows are a part of something.

    Control messages of a connection's other direction close nothing.
    """
    flows = without_control({stream: period.size for stream, period in job.items()})
    return {stream.src for stream in flows} == {stream.dst for stream in flows} == hosts_of(job)


def is_one_size(job: Job) -> bool:
    """Whether all flows send the same bytes in a step, as on a ring, but for control messages."""
    sizes = [period.size for period in job.values()]
    return max(sizes) - min(sizes) <= tolerance(min(sizes))


def constant(job: Job, times: Array, least: float = CONSTANT) -> float:
    """Share of a job's flows that send constant bytes between so many of these times."""
    return sum(share_of_equal(stream, times) >= least for stream in job) / len(job)


def share_of_equal(stream: Stream, times: Array) -> float:
    """Share of the stretches between these times with the flow's usual bytes; 0 where it mostly sends nothing."""
    sent = np.diff(stream.position_at(times))
    usual = float(np.median(sent))
    return float(np.mean(np.abs(sent - usual) <= max(300.0, SAME_SIZE * usual))) if usual > 0 else 0.0
