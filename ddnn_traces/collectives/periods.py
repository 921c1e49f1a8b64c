"""The period of a flow in bytes: training sends the same bytes in each step, whatever time it takes.

A silence of a flow that recurs after the same number of bytes is a place in the step. Noise does not recur in bytes.
"""

from __future__ import annotations

import bisect
import math
import statistics
from dataclasses import dataclass

import numpy as np

from ddnn_traces.collectives.streams import MS, Array, Stream, groups

_SILENCE = 1 * MS
_MOST_SILENCES = 400  # the longest of the first ones; the effort grows with their square
_FIRST_SILENCES = 4000
_MOST_CANDIDATES = 60
_MOST_STARTS = 40  # silences of the first steps, the longest, that are tried
_LEAST_STEPS = 5
_LEAST_PRESENCE = 0.6  # share of the steps that have the silence
_MOST_SPREAD = 8.0  # 90th over 10th percentile of a silence's length over the steps
CLEAR = 0.65  # score: the first silences alone have 0.76 and more in long runs, at most 0.51 where much disturbs them
_NEARLY_BEST = 0.8  # of the best score: the shortest such period is the period, its multiples score as well
_POSSIBLE = 0.5
_LEAST_RECURRENCE = 0.8  # share of the steps with a silence behind the last of equal layers, or far above others
BETTER = 1.02  # score of a step beside that of its layers; multiples of a true step score at most as well
_HARDLY_EVER = 0.1  # share of these silences that another one follows, as noise does
_AS_LONG = 0.3  # of a silence: what is shorter is noise, 1 to 4 ms behind 17 to 35
_CHANCE = 1e-3
ALWAYS = 0.95  # score of what recurs in each step
ALMOST_BEST = 0.97  # of a flow's best score: rounds of its step have 0.88 to 0.96 of it, or as much in some flows only
SAME_SIZE = 0.02  # of the bytes of a step


@dataclass(frozen=True)
class Period:
    """A recurrence of a flow's silences. size: bytes of a step. score: share of the silences' weight that recurs.
    message: indices of the messages behind the silence, one a step; step: number of each, from 0. silence: its
    median length, ns. time: median time of a step, ns."""

    size: float
    score: float
    message: Array
    step: Array
    silence: float
    time: float


def tolerance(size: float) -> float:
    """Bytes by which a place in a step differs from one step to the next: control messages before or behind it."""
    return max(200.0, 5e-4 * size)


def periods(stream: Stream) -> list[Period]:
    """Possible periods of a flow, the shortest first; the first is the likely one, if any."""
    silence = stream.first[1:] - stream.last[:-1]
    every = np.flatnonzero(silence > _SILENCE) + 1
    behind = every[:_FIRST_SILENCES]
    if len(behind) <= _MOST_SILENCES:
        return _periods(stream, behind, silence)
    longest = np.sort(behind[np.argsort(silence[behind - 1])[-_MOST_SILENCES:]])
    found = _periods(stream, longest, silence)
    # of one silence a step, the longest ones leave steps out, and the first ones none
    if not found or found[0].score < CLEAR:
        first = _periods(stream, behind[:_MOST_SILENCES], silence)
        # a slow link makes the sender pause within its data, hundreds of times a step
        few = [one for one in _periods(stream, _outstanding(every, silence), silence) if _is_whole(one, stream)]
        clear = [some for some in (first, few) if some and some[0].score >= CLEAR]
        return max(clear, key=lambda some: some[0].score, default=found)
    return found


def _outstanding(behind: Array, silence: Array) -> Array:
    """Those of these silences that are the most times as long as all others, in their order."""
    order = behind[np.argsort(-silence[behind - 1], kind="stable")]
    length = silence[order - 1]
    ratio = length[_LEAST_STEPS - 2 : _MOST_SILENCES - 1] / length[_LEAST_STEPS - 1 : _MOST_SILENCES]
    return np.sort(order[: _LEAST_STEPS - 1 + int(np.argmax(ratio))])


def _is_whole(period: Period, stream: Stream) -> bool:
    """Whether nearly all of its steps have the silence, and most bytes of the flow: control messages recur, too, beside
    parameters that are sent once."""
    steps = period.step[-1] + 1
    is_often = len(period.step) >= _LEAST_RECURRENCE * steps
    return bool(is_often and 2 * period.size * steps >= stream.end - stream.start[0])


def _periods(stream: Stream, behind: Array, silence: Array) -> list[Period]:
    """The same from the silences before these messages."""
    if len(behind) < _LEAST_STEPS - 1:
        return []
    places, lengths = stream.start[behind].astype(float), silence[behind - 1].astype(float)
    found = []
    for size in _distances(places, np.log1p(lengths / MS)):
        if (chain := chain_of(places, lengths, size, tolerance(size))) is not None:
            message = behind[chain[0]]
            time = float(np.median(np.diff(stream.first[message]) / np.diff(chain[1])))
            score = _score(places, np.log1p(lengths / MS), size)
            found.append(Period(size, score, message, chain[1], float(np.median(lengths[chain[0]])), time))
    best = max((period.score for period in found), default=0.0)
    good = [period for period in found if period.score >= _NEARLY_BEST * best]
    possible = sorted((p for p in found if p.score >= _POSSIBLE * best), key=lambda p: p.size)
    possible = [p for p in possible if not any(_is_part(p, longer, places, lengths) for longer in good)]
    likely = next((p for p in possible if p.score >= _NEARLY_BEST * best), None)
    return [] if likely is None else [likely, *(period for period in possible if period is not likely)]


def _is_part(short: Period, longer: Period, places: Array, lengths: Array) -> bool:
    """Whether a period is that of equal layers within a step: the last layer's silence has none behind it.

    That is a silence which recurs with the longer period, and hardly ever after the short one. Losses of a true period
    are of any step. What recurs with a multiple of a true period recurs no better with it.
    """
    parts, slack = round(longer.size / short.size), tolerance(short.size)
    if parts < 2 or longer.score < BETTER * short.score:
        return False
    if abs(longer.size - parts * short.size) > tolerance(longer.size):
        return False
    seen = places[places + short.size + slack <= places[-1]]
    next_ = np.searchsorted(places, seen + short.size - slack)
    # noise pauses for a part of the time, but at the same messages
    behind = np.where(np.abs(places[next_] - seen - short.size) <= slack, lengths[next_], 0.0)
    follows = behind >= _AS_LONG * lengths[: len(seen)]
    step = np.floor((seen - places[0]) / longer.size)
    offset = seen - places[0] - step * longer.size
    order = np.argsort(offset, kind="stable")
    alike = [order[same] for same in groups(offset[order], slack)]
    usually = float(follows.mean()) if len(seen) else 0.0
    often = _LEAST_RECURRENCE * (step[-1] + 1) if len(seen) else 0.0
    never = [s for s in alike if follows[s].mean() <= _HARDLY_EVER and len(np.unique(step[s])) >= often]
    missing = sum(int(np.sum(~follows[same])) for same in never)
    return bool(never) and (1 - usually) ** missing * math.comb(len(alike), len(never)) < _CHANCE


def _distances(places: Array, weights: Array) -> list[float]:
    """Distances in bytes between silences of like length, those of the greatest weight first."""
    first, second = np.triu_indices(len(places), 1)
    distance = places[second] - places[first]
    low, high = np.minimum(weights[first], weights[second]), np.maximum(weights[first], weights[second])
    usable = (distance > 500) & (distance < (places[-1] - places[0]) / (_LEAST_STEPS - 2))
    order = np.argsort(distance[usable], kind="stable")
    distance, weight = distance[usable][order], (low * low / high)[usable][order]
    slack = np.maximum(200.0, 5e-4 * distance)
    above = np.searchsorted(distance, distance + slack, "right")
    below = np.searchsorted(distance, distance - slack, "left")
    total = np.concatenate([[0.0], np.cumsum(weight)])
    sums = total[above] - total[below]
    taken, found = np.zeros(len(distance), bool), []
    for place in np.argsort(-sums, kind="stable"):
        if not taken[place]:
            found.append(float(np.median(distance[below[place] : above[place]])))
            taken[below[place] : above[place]] = True
            if len(found) == _MOST_CANDIDATES:
                break
    return found


def _score(places: Array, weights: Array, size: float) -> float:
    """sum of w min(w/w', w'/w) over sum of w, for silences with a partner at their place + size."""
    slack, total, possible = tolerance(size), 0.0, 0.0
    below, above = (np.searchsorted(places, places + size + side).tolist() for side in (-slack, slack))
    weight = weights.tolist()
    for place in range(int(np.searchsorted(places, places[-1] + slack - size, "right"))):
        own = weight[place]
        possible += own
        total += max(
            (own * min(own, other) / max(own, other) for other in weight[below[place] : above[place]]), default=0
        )
    return total / possible if possible else 0.0


def chain_of(places: Array, lengths: Array, size: float, slack: float, even: bool = True) -> tuple[Array, Array] | None:
    """The silences, one a step of `size` bytes, that are the longest and in most steps; None where no such exist.

    Returns their indices and the number of each one's step. even: demand that their lengths are alike.
    """
    # lists: for a few numbers at a time numpy takes ten times as long
    if found := _best_chain(places.tolist(), lengths.tolist(), size, slack, even):
        return np.array(list(found.values())), np.array(list(found))
    # parameters sent before training are no whole number of steps: no chain begins there, but one ends with training
    back = places[-1] - places[::-1]
    found = _best_chain(back.tolist(), lengths[::-1].tolist(), size, slack, even)
    if found is None:
        return None
    steps = np.array(list(found))[::-1]
    return len(places) - 1 - np.array(list(found.values()))[::-1], steps[0] - steps


def _best_chain(
    place: list[float], length: list[float], size: float, slack: float, even: bool
) -> dict[int, int] | None:
    """As chain_of(), by the step, of those that begin in the first one or two steps."""
    best, found = -1.0, None
    begin = range(bisect.bisect_left(place, place[0] + 1.5 * size))
    for first in sorted(sorted(begin, key=lambda index: -length[index])[:_MOST_STARTS]):
        last = int((place[-1] + slack - place[first]) // size)
        if not _LEAST_STEPS - 1 <= last < len(place) / _LEAST_PRESENCE:
            continue
        least = max(_LEAST_STEPS, math.ceil(_LEAST_PRESENCE * (last + 1)))
        chain = _chain(place, length, first, last, size, slack, least)
        if len(chain) < least:
            continue
        usual = sorted(length[index] for index in chain.values())
        value = statistics.median(math.log1p(one / MS) for one in usual) * len(chain) / (last + 1)
        if value > best and (not even or _quantile(usual, 0.9) <= _MOST_SPREAD * _quantile(usual, 0.1)):
            best, found = value, chain
    return found


def _chain(
    place: list[float], length: list[float], first: int, last: int, size: float, slack: float, least: int
) -> dict[int, int]:
    """The silence of each step behind the first one, by the step; fewer than `least` where so many are not there."""
    chain, at = {0: first}, place[first]
    for step in range(1, last + 1):
        low = bisect.bisect_left(place, at + size - slack)
        high = bisect.bisect_left(place, at + size + slack, low)
        if high > low:
            chain[step] = max(range(low, high), key=length.__getitem__)
            at = place[chain[step]]
        elif len(chain) + last - step < least:
            break
        else:
            at += size
    return chain


def _quantile(ordered: list[float], share: float) -> float:
    """By linear interpolation, as numpy's."""
    whole, rest = divmod(share * (len(ordered) - 1), 1)
    low = int(whole)
    return ordered[low] + rest * (ordered[min(low + 1, len(ordered) - 1)] - ordered[low])
