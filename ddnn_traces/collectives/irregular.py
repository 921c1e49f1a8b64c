"""Flows that send other bytes in each step, such as the all-to-all of a mixture of experts.

They have no period in bytes. Their bursts are counted instead: the silence is looked for that divides most of them into
equally many bursts in most steps.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ddnn_traces.collectives.phases import Parts, Spans
from ddnn_traces.collectives.shapes import is_all_to_all
from ddnn_traces.collectives.steps import Steps
from ddnn_traces.collectives.streams import MS, SMALL, Array, Stream

_SILENCES = MS * np.array([0.3, 0.5, 0.7, 1, 1.4, 2, 2.8, 4, 5.6, 8, 11, 16])
_LEAST_SHARE = 0.5  # of flows and steps with as many bursts
_LEAST_OF_EXCHANGE = 0.25  # the same of each flow of an all-to-all: that to an expert with few tokens pauses elsewhere
_PRESENCE = 0.8  # share of the steps in which a flow of the job sends data
_LEAST_BYTES = 100  # control messages are no burst

#: Bytes, first and last message of a burst, ns.
Burst = tuple[float, float, float]


@dataclass(frozen=True)
class _Division:
    share: float
    bursts: int
    silence: float
    streams: list[Stream]
    number: Array
    times: Array


def irregular_parts(streams: Sequence[Stream], steps: Steps) -> dict[Stream, Parts]:
    """The bursts of a job's flows without a period, as Parts: each has the median bytes of its place in the step."""
    found = _division(streams, steps)
    if found is None:
        return {}
    parts = {}
    least = _LEAST_OF_EXCHANGE if is_exchange(found.streams) else _LEAST_SHARE
    for stream in found.streams:
        rows = [
            (int(number), bursts)
            for number, low, high in zip(found.number, found.times, found.times[1:], strict=False)
            if len(bursts := _bursts(stream, low, high, found.silence)) == found.bursts
        ]
        if len(rows) >= least * (len(found.times) - 1):
            size = np.median([[burst[0] for burst in bursts] for _, bursts in rows], axis=0)
            begin, stop = np.cumsum(size) - size, np.cumsum(size)
            times = np.array([burst[1:] for _, bursts in rows for burst in bursts])
            number = np.repeat([number for number, _ in rows], found.bursts)
            parts[stream] = Parts(number, np.tile(begin, len(rows)), np.tile(stop, len(rows)), times[:, 0], times[:, 1])
    return parts


def is_exchange(streams: Collection[Stream]) -> bool:
    """Whether these flows are an all-to-all, one between each two hosts."""
    pairs = [stream.hosts for stream in streams]
    return len(set(pairs)) == len(pairs) and is_all_to_all([*streams])


def calls_of(parts: Mapping[Stream, Parts]) -> list[Spans]:
    """The bytes of each burst of flows that irregular_parts() found."""
    begins = {stream: np.unique(part.begin) for stream, part in parts.items()}
    stops = {stream: np.unique(part.stop) for stream, part in parts.items()}
    count = min(len(begin) for begin in begins.values())
    return [{stream: (float(begins[stream][call]), float(stops[stream][call])) for stream in parts}
            for call in range(count)]  # fmt: skip


def _division(streams: Sequence[Stream], steps: Steps) -> _Division | None:
    """Steps from the job's first byte to the next one's, or from the last byte before, whichever fits better."""
    best = None
    for bounds in (steps.start, steps.idle):
        times = bounds + 0.05 * MS
        sending = [s for s in streams if _presence(s, times) >= _PRESENCE]
        if len(sending) < 2:
            continue
        for silence in _SILENCES:
            counts = Counter(
                len(_bursts(stream, low, high, silence))
                for stream in sending
                for low, high in itertools.pairwise(times)
            )
            bursts, cases = max(((n, c) for n, c in counts.items() if n), key=lambda item: item[1], default=(0, 0))
            share = cases / counts.total()
            if bursts and (best is None or share > best.share + 0.02):
                best = _Division(share, bursts, float(silence), sending, steps.number, times)
    return best if best is not None and best.share >= _LEAST_SHARE else None


def _presence(stream: Stream, times: Array) -> float:
    data = stream.first[stream.size > SMALL]
    return float(np.mean(np.diff(np.searchsorted(data, times)) > 0)) if len(times) > 1 else 0.0


def _bursts(stream: Stream, low: float, high: float, silence: float) -> list[Burst]:
    begin, stop = np.searchsorted(stream.first, [low, high])
    if begin == stop:
        return []
    first, last, size = (values[begin:stop] for values in (stream.first, stream.last, stream.size))
    cuts = np.flatnonzero(first[1:] - last[:-1] > silence) + 1
    divided: Iterable[Array] = np.split(np.arange(len(first)), cuts)
    return [
        (float(size[same].sum()), float(first[same[0]]), float(last[same[-1]]))
        for same in divided
        if size[same].sum() > _LEAST_BYTES
    ]
