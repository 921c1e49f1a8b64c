"""Links of hosts, as token buckets: how fast hosts were measured to send and receive, and transfers at no higher rate.

In one base window a host passes at most `burst` bytes, in k of them at most burst + (k - 1) * refill. Both are
measured peaks: of one window, and of as many windows up to LONGEST_NS as a host was busy without a pause. A link
shaped by tbf is such a bucket.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ddnn_traces import cache, jit
from ddnn_traces.traffic.traffic import HEADER_BYTES, Floats, Ints, Transfers

#: Where the compiled code is kept; this file has all that is compiled here.
CODE = cache.code_folder("pacing", [Path(__file__)])
_compiled = partial(jit.compiled, folder=CODE)
#: Longest window in which the rate of a link is measured.
LONGEST_NS = 10_000_000
_IDLE = 0.01  # part of the fullest window below which a window is not busy


@dataclass(frozen=True)
class Peaks:
    """Most wire bytes of a host in one base window (burst_bytes), and in `windows` consecutive ones (bytes)."""

    window_ns: int
    windows: int
    burst_bytes: int
    bytes: int


def peaks(series: list[Floats], window_ns: int) -> Peaks:
    """Of the wire bytes of each host, in consecutive windows, in one direction."""
    burst = max((_most(one, 1) for one in series), default=0.0)
    # a window is busy with half of what a second window adds to the first
    least = max((max((_most(one, 2) for one in series), default=0.0) - burst) / 2, 1.0)
    if least < _IDLE * burst:  # messages beside a single full window: they show no rate
        return Peaks(window_ns, 1, max(int(burst), 1), max(int(burst), 1))
    windows = 1
    busy = [(one >= least).astype(np.float64) for one in series]
    while windows < LONGEST_NS // window_ns and any(_most(one, windows + 1) > windows for one in busy):
        windows += 1
    most = max((_most(one, windows) for one in series), default=0.0)
    return Peaks(window_ns, windows, max(int(burst), 1), max(int(most), 1))


def _most(series: Floats, windows: int) -> float:
    """Largest sum of so many consecutive values."""
    sums = np.cumsum(np.concatenate([[0.0], series, np.zeros(windows)]))
    return float((sums[windows:] - sums[:-windows]).max())


def joint(runs: list[Peaks]) -> dict[str, Any]:
    """One direction of a model's link: peaks of the runs with the longest busy time."""
    longest = max((run.windows, run.window_ns) for run in runs)
    runs = [run for run in runs if (run.windows, run.window_ns) == longest]
    return {
        "window_ms": runs[0].window_ns / 1e6, "windows": runs[0].windows,
        "burst_bytes": max(run.burst_bytes for run in runs), "bytes": max(run.bytes for run in runs),
    }  # fmt: skip


class Buckets:
    """The links of all hosts, in both directions, while transfers are planned round by round."""

    def __init__(self, hosts: int, link: dict[str, Any]) -> None:
        limits = np.array([bucket(link[way]) for way in ("sent", "received")], np.float64)
        self._burst, self._rate = limits[:, 0], limits[:, 1] / (link["sent"]["window_ms"] * 1e6)
        self._level, self._at = np.repeat(self._burst[:, None], hosts, 1), np.zeros((2, hosts), np.int64)

    def end_ns(self, src: Ints, dst: Ints, wire: Ints, acks: Ints, start: Ints, end: Ints) -> Ints:
        """When the transfers of a round are complete that should end at `end`: not before all that a host sends and
        receives in it, with the acknowledgements of the receiver, has passed its link. wire, acks: bytes."""
        found: Ints = _finish(self._level, self._at, self._burst, self._rate, src, dst, wire, acks, start, end)
        return found


def bucket(link: dict[str, Any]) -> tuple[int, int]:
    """Most bytes of a window, and by how much each further window increases what windows hold together."""
    burst, windows = link["burst_bytes"], link["windows"]
    return burst, max((link["bytes"] - burst) // (windows - 1), 1) if windows > 1 else burst


def paced(transfers: Transfers, ends: Ints, hosts: int, link: dict[str, Any]) -> Transfers:
    """The transfers, in the order of their starts, with packets that would exceed a link in a later window.

    ends: sender and receiver of each flow. A transfer that is delayed becomes one transfer a window.
    """
    if not len(transfers):
        return transfers
    window_ns = round(link["sent"]["window_ms"] * 1e6)
    limits = np.array([bucket(link["sent"]), bucket(link["received"])], np.int64)
    size = np.where(transfers.payload > 0, np.minimum(transfers.payload, transfers.segment_bytes), 0) + HEADER_BYTES
    src, dst = ends[transfers.flow].T
    served = (transfers.start_ns, transfers.duration_ns, transfers.packets, size, src, dst, hosts, window_ns, limits)
    late, pieces = np.zeros(len(transfers), np.bool_), np.empty((0, 3), np.int64)
    _serve(*served, late, pieces)
    if not late.any():
        return transfers
    pieces = np.empty((_serve(*served, late, pieces), 3), np.int64)  # now it is known which are late
    _serve(*served, late, pieces)
    parts = _pieces(transfers, pieces, window_ns)
    rest = transfers.take(np.flatnonzero(~late))
    columns = [np.concatenate(both) for both in zip(rest.columns, parts.columns, strict=True)]
    step = None if transfers.step is None else np.concatenate([rest.step, parts.step])
    found = Transfers(*columns, segment_bytes=transfers.segment_bytes, step=step)
    return found.take(np.lexsort((found.flow, found.start_ns)))


def _pieces(transfers: Transfers, pieces: Ints, window_ns: int) -> Transfers:
    """A transfer for each row of `pieces`: transfer, window, packets."""
    order = np.lexsort((pieces[:, 1], pieces[:, 0]))
    row, window, packets = pieces[order].T
    whole = transfers.take(row)
    before = np.cumsum(packets) - packets
    first = np.searchsorted(row, row)
    before -= before[first]
    begin = np.minimum(before * transfers.segment_bytes, whole.payload)
    end = np.minimum((before + packets) * transfers.segment_bytes, whole.payload)
    start = np.maximum(window * window_ns, whole.start_ns)
    repeated = np.maximum(end - np.maximum(begin, whole.fresh), 0)
    return replace(
        whole, start_ns=start, duration_ns=(window + 1) * window_ns - start, packets=packets, payload=end - begin,
        repeated=repeated,
    )  # fmt: skip


@_compiled
def _finish(level, at, burst, rate, src, dst, wire, acks, start, end):  # type: ignore[no-untyped-def]
    """Ends of a round's transfers; level: bytes that each link may pass at once at the times `at`; both are updated."""
    total = np.zeros(level.shape)
    first = np.full(level.shape, np.iinfo(np.int64).max)
    for i in range(len(src)):
        for way, host, size in ((0, src[i], wire[i]), (1, dst[i], wire[i]), (0, dst[i], acks[i]), (1, src[i], acks[i])):
            if size > 0:
                total[way, host] += size
                first[way, host] = min(first[way, host], start[i])
    for way in range(2):
        for host in range(level.shape[1]):
            if total[way, host] > 0:
                begin = max(first[way, host], at[way, host])
                full = min(level[way, host] + rate[way] * (begin - at[way, host]), burst[way])
                at[way, host] = begin + np.int64(np.ceil(max(total[way, host] - full, 0.0) / rate[way]))
                level[way, host] = max(full - total[way, host], 0.0)
    found = end.copy()
    for i in range(len(src)):
        found[i] = max(end[i], at[0, src[i]], at[1, dst[i]])
    return found


@_compiled
def _serve(start, duration, packets, size, src, dst, hosts, window_ns, limits, late, pieces):  # type: ignore[no-untyped-def]
    """Sends packets window by window, first come first served; marks the transfers that are `late`.

    Returns how many pairs of a late transfer and a window there are, and writes them to `pieces` where these have rows.
    """
    number = len(start)
    sent = np.zeros(number, np.int64)
    level = np.empty((2, hosts), np.int64)
    for way in range(2):
        level[way] = limits[way, 0]
    active = np.empty(number, np.int64)
    waiting = following = found = window = 0
    while following < number or waiting > 0:
        elapsed = start[following] // window_ns - window if waiting == 0 else 1
        window += elapsed
        for way in range(2):
            for host in range(hosts):
                missing = limits[way, 0] - level[way, host]
                if missing > 0:
                    if elapsed > missing // limits[way, 1]:
                        level[way, host] = limits[way, 0]
                    else:
                        level[way, host] += elapsed * limits[way, 1]
        until = (window + 1) * window_ns
        while following < number and start[following] < until:
            active[waiting] = following
            waiting += 1
            following += 1
        kept = 0
        for place in range(waiting):
            i = active[place]
            gone = min(until - start[i], duration[i])
            wanted = min(-(-gone * packets[i] // duration[i]), packets[i]) - sent[i]
            if wanted > 0:
                room = min(level[0, src[i]], level[1, dst[i]])
                can = min(wanted, max(room, 0) // size[i])
                if can == 0 and size[i] > min(limits[0, 0], limits[1, 0]) and room == min(limits[0, 0], limits[1, 0]):
                    can = 1  # a packet larger than any window's bytes
                if can < wanted:
                    late[i] = True
                if late[i] and can > 0:
                    if found < len(pieces):
                        pieces[found, 0], pieces[found, 1], pieces[found, 2] = i, window, can
                    found += 1
                sent[i] += can
                level[0, src[i]] -= can * size[i]
                level[1, dst[i]] -= can * size[i]
            if sent[i] < packets[i]:
                active[kept] = i
                kept += 1
        waiting = kept
    return found
