"""Times: all of them moved by one secret offset, so that every interval stays, between runs too."""

from __future__ import annotations

import math
from collections.abc import Collection

from ddnn_traces.errors import UsageError
from ddnn_traces.release.anonymise.key import Key

KINDS = ("shifted", "kept")

SECOND_NS = 10**9
_YEAR_S = 31_556_952
#: Into the future, where nobody takes them for real, and not so far that a pcap's 32 bits of seconds (until 2106) end.
_LEAST_YEARS, _MOST_YEARS = 20, 60


def offset_ns(key: Key, windows_ns: Collection[int]) -> int:
    """What is added to every time, ns: a multiple of 1 s and of every window, so that windows stay where packets are.

    It depends on the key alone where the windows divide 1 s, as those of nearly all datasets do. Raises UsageError
    for windows that meet 1 s too seldom.
    """
    unit = math.lcm(SECOND_NS, *windows_ns)
    if unit > _LEAST_YEARS * _YEAR_S * SECOND_NS:
        raise UsageError(
            f"windows of {max(windows_ns)} ns begin at no multiple of 1 s for {unit / SECOND_NS / _YEAR_S:.0f} years, "
            "so that times cannot be shifted; ingest with windows of whole milliseconds, or publish with --times kept"
        )
    seconds = _LEAST_YEARS * _YEAR_S + key.number("times", (_MOST_YEARS - _LEAST_YEARS) * _YEAR_S)
    return seconds * SECOND_NS // unit * unit
