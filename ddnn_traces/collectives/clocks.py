"""Clocks of hosts against each other, by answers: where data starts and ends, packets come back (acknowledgements).

A capture has what its host sends, by the host's own clock. So an answer comes a delay later, and by as much as the
other clock is ahead; the other way by as much less. No delay is below 0: an answer before its question proves that
clocks differ. Then the offsets of all hosts, and one delay of all ways, follow by least squares. Without such a proof
nothing is corrected: different delays explain the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ddnn_traces.collectives.streams import MS, Array, distance

_PAUSES = 60 * MS, 20 * MS, 5 * MS  # before a question and its answer, of which times between them are tried
_LONGEST = 300 * MS  # between data and its answer, clocks included
_NEAR = 1.5 * MS  # from the usual time, where packets are counted by windows of 1 ms
_LEAST_ANSWERS = 5
_LEAST_SHARE, _MOST_LESS = 0.7, 0.1  # of the starts and ends of data, which are answered in that time; than the best
_PROOF = -2 * MS  # _NEAR, and half a window
_MOST_RESIDUAL = 1.0 * MS
_TRIED = 3  # times of each length of pause
_MOST_MESSAGES = 5000  # the first ones; the effort grows with them


class Way(NamedTuple):
    """Data from a host to another: start and end of its messages, and times of packets back, to 1 ms; sorted, ns."""

    src: str
    dst: str
    first: Array
    last: Array
    back: Array


def offsets(ways: Sequence[Way]) -> dict[str, int]:
    """By how much each host's clock is ahead of the median one, ns; empty where no answer proves that clocks differ, or
    the ways do not connect all hosts."""
    known = [(way, lag) for way in ways if (lag := _lag(way)) is not None]
    if not any(lag < _PROOF for _, lag in known):
        return {}
    hosts = sorted({host for way, _ in known for host in (way.src, way.dst)})
    place = {host: number for number, host in enumerate(hosts)}
    equations = np.zeros((len(known) + 1, len(hosts) + 1))
    for row, (way, _) in zip(equations, known, strict=False):
        row[[place[way.dst], place[way.src], -1]] += 1, -1, 1
    equations[-1, :-1] = 1  # any sum of the offsets would do
    lags = np.array([*(lag for _, lag in known), 0.0])
    found, _, rank, _ = np.linalg.lstsq(equations, lags, rcond=None)
    residual = np.abs(equations @ found - lags)[:-1]
    if rank < len(hosts) + 1 or np.median(residual) > _MOST_RESIDUAL or found[-1] < -_MOST_RESIDUAL:
        return {}
    ahead = found[:-1] - np.median(found[:-1])
    return dict(zip(hosts, np.rint(ahead).astype(np.int64).tolist(), strict=True))


def _lag(way: Way) -> float | None:
    """The usual time from data to its answer: of times that are as usual, the one nearest 0."""
    if not len(way.first) or not len(way.back):
        return None
    way = way._replace(first=way.first[:_MOST_MESSAGES], last=way.last[:_MOST_MESSAGES])
    pause = way.first[1:] - way.last[:-1] > _PAUSES[-1]
    edges = np.concatenate([way.first[np.r_[True, pause]], way.last[np.r_[pause, True]]])
    if len(edges) < 2 * _LEAST_ANSWERS:
        return None
    usual = _usual(way)
    tried = sorted(usual if any(abs(lag) < _NEAR for lag in usual) else [0.0, *usual], key=abs)
    shares = [float(np.mean(distance(edges + lag, way.back) <= _NEAR)) for lag in tried]
    best = max(shares)
    if best < _LEAST_SHARE:
        return None
    return next(lag for lag, share in zip(tried, shares, strict=True) if share >= best - _MOST_LESS)


def _usual(way: Way) -> list[float]:
    """Times from data behind a pause to packets behind a pause, those that most often recur."""
    found = []
    for pause in _PAUSES:
        asked, answered = _behind(way.first, pause), _behind(way.back, pause)
        first, last = (np.searchsorted(answered, asked + side) for side in (-_LONGEST, _LONGEST))
        apart = [answered[a:b] - time for time, a, b in zip(asked, first, last, strict=True)]
        lags = np.sort(np.concatenate([np.zeros(0), *apart]))
        near = np.searchsorted(lags, lags + 2 * _NEAR, "right") - np.arange(len(lags))
        for at in np.argsort(-near, kind="stable")[:_TRIED]:
            if near[at] >= _LEAST_ANSWERS:
                found.append(_middle(lags[at : at + near[at]]))
    return found


def _middle(lags: Array) -> float:
    """Mean of what differs from the median by no more than a window does: windows round by up to half of 1 ms."""
    return float(np.mean(lags[np.abs(lags - lags[len(lags) // 2]) <= 0.6 * MS]))


def _behind(times: Array, pause: float) -> Array:
    return times[np.diff(times, prepend=times[:1] - 2 * pause) > pause]
