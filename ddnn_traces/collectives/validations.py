"""What flows send behind few steps only, as for a validation: found, and taken off."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ddnn_traces.collectives.periods import ALWAYS, SAME_SIZE, Period, tolerance
from ddnn_traces.collectives.streams import Array, Stream

_SMOOTHED = 5  # steps, for the place of a step in a flow
_FIRST_STEPS = 2  # the start of the first is unclear: what hosts send to connect is before it
_EXTRA = 150.0  # bytes behind a step: an all-reduce of 8 bytes sends 200 to 400 on each flow of a ring
RARE = 1 / 3  # of the steps
_MUCH_EXTRA = 300.0  # in all steps: less moves no step


def without_rare(stream: Stream, ends: Array, number: Array, least: float = 0.0) -> Stream | None:
    """A flow without what it sends more in a few steps than in the others, at their start; None where there is no such.

    ends: when the step before each of these numbers has ended. least: bytes of a step that are no control messages.
    """
    at = stream.position_at(ends)
    sent = np.diff(at) / np.diff(number)
    usual = float(np.median(sent))
    more = np.diff(at) - usual * np.diff(number)
    rare = more > max(_EXTRA, SAME_SIZE * usual)
    others = np.abs(more[~rare]) <= tolerance(usual)
    if usual <= least or not 0 < rare.sum() <= RARE * len(more) or others.sum() < ALWAYS * (~rare).sum():
        return None
    return _without(stream, at[:-1][rare], more[rare])[0]


def without_extra(stream: Stream, period: Period, at: Array, number: Array) -> tuple[Stream, Period]:
    """A flow and its period without what it sends behind few steps of all; as they are where its steps are not these.

    at: where the steps of these numbers start in the flow, bytes.
    """
    usual = float(np.median(np.diff(at) / np.diff(number)))
    around = np.pad(at - number * usual, _SMOOTHED // 2, "edge")
    later = np.median(np.lib.stride_tricks.sliding_window_view(around, _SMOOTHED), axis=1)
    more = np.diff(later)
    behind = np.flatnonzero(more[_FIRST_STEPS:] > _EXTRA) + _FIRST_STEPS + 1
    extra = more[behind - 1]
    # elsewhere the steps are not those of the flow
    is_rare = len(behind) <= RARE * len(at) and more[_FIRST_STEPS:].min(initial=0.0) >= -_EXTRA
    if not is_rare or extra.sum() <= _MUCH_EXTRA or np.abs(more).max() > SAME_SIZE * usual:
        return stream, period
    left, kept = _without(stream, at[behind] - extra, extra)
    message = np.searchsorted(np.flatnonzero(kept), period.message).clip(max=int(kept.sum()) - 1)
    return left, replace(period, message=message)


def _without(stream: Stream, places: Array, sizes: Array) -> tuple[Stream, Array]:
    """A flow without so many bytes at these places, and which of its messages are left of it."""
    around = np.column_stack([places, places + sizes]).ravel()
    sums = np.column_stack([np.cumsum(sizes) - sizes, np.cumsum(sizes)]).ravel()

    def even(position: Array) -> Array:
        before: Array = np.interp(position, around, sums).astype(position.dtype)
        return position - before

    begin, end = even(stream.start), even(stream.start + stream.size)
    kept = end > begin
    size, first, last = (end - begin)[kept], stream.first[kept], stream.last[kept]
    left = replace(stream, start=begin[kept], size=size, first=first, last=last, ends=even(stream.ends))
    return left, kept
