"""Clocks of captures against each other, from segments captured at both ends. Offsets are recorded, never applied.

Method, measured results and limits: docs/clocks.md.
"""

from __future__ import annotations

import heapq
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ddnn_traces.pcap.capture_facts import CaptureFacts, Int64Array

BoolArray = npt.NDArray[np.bool_]

_MS = 1_000_000

#: One-way times below the median by more than this many times its distance to the lower quartile, and by more than
#: 1 ms, are wrong matches: queues make times longer, nothing makes single ones shorter.
_ABSURD_SPREADS = 10
#: Matches that each direction must have in each half before the halves are compared.
_HALF_MATCHES = 8


@dataclass(frozen=True)
class HostOffset:
    """By how much a capture's clock is ahead of that at reference_ip, in ns.

    The offset is right to plus and minus uncertainty_ns; None where segments were captured in one direction only, so
    that the delay is in the offset.
    """

    offset_ns: int
    uncertainty_ns: int | None
    reference_ip: str


@dataclass(frozen=True)
class _Segments:
    """Segments captured at one host: identity, time, source and destination; ascending by identity."""

    identity: Int64Array
    ts_ns: Int64Array
    src: npt.NDArray[np.str_]
    dst: npt.NDArray[np.str_]


def host_offsets(files: Sequence[CaptureFacts], vantages: Sequence[str | None]) -> list[HostOffset | None]:
    """Offset of each file's clock, from segments captured at both ends (docs/clocks.md).

    Files of one vantage share one clock. The reference is the smallest address among the hosts that can be compared,
    directly or over others. None for files without a vantage, and for hosts that share no segments with another.
    """
    own: dict[str, list[CaptureFacts]] = {}
    for file, vantage in zip(files, vantages, strict=True):
        if vantage is not None:
            own.setdefault(vantage, []).append(file)
    hosts = sorted(own, key=_address_order)
    segments = {host: _merge(own[host]) for host in hosts}
    edges: dict[str, dict[str, tuple[int, int | None]]] = {host: {} for host in hosts}
    for i, j in _pairs([segments[host].identity for host in hosts]):
        a, b = hosts[i], hosts[j]
        found = _pair_offset(segments[a], segments[b], a, b)
        if found is not None:
            edges[a][b] = found
            edges[b][a] = (-found[0], found[1])
    offsets: dict[str, HostOffset] = {}
    for host in hosts:
        if host not in offsets and edges[host]:
            offsets.update(_from_reference(host, edges))
    return [offsets.get(vantage) if vantage is not None else None for vantage in vantages]


def _pairs(identities: Sequence[Int64Array]) -> list[tuple[int, int]]:
    """Numbers of the hosts that have a segment in common; of a thousand hosts, most pairs have none."""
    if not identities:
        return []
    identity = np.concatenate(identities)
    host = np.repeat(np.arange(len(identities)), [part.size for part in identities])
    order = np.lexsort((host, identity))
    identity, host = identity[order], host[order]
    pairs: set[tuple[int, int]] = set()
    for apart in range(1, len(identities)):  # a segment was captured at two hosts, seldom at more
        is_same = identity[apart:] == identity[:-apart]
        if not is_same.any():
            break
        found = np.stack([host[:-apart][is_same], host[apart:][is_same]], axis=1)
        pairs.update((int(a), int(b)) for a, b in np.unique(found, axis=0))
    return sorted(pairs)


def _address_order(address: str) -> tuple[int, int]:
    ip = ipaddress.ip_address(address)
    return ip.version, int(ip)


def _merge(files: Sequence[CaptureFacts]) -> _Segments:
    """The segments in the files of one host.

    A segment that a file holds more than once, of one interface, was retransmitted, and which of the copies the other
    host captured is not known: it is left out. In two files (a series, or two interfaces), and of two interfaces of a
    file, the earlier time counts; a retransmission that is matched with its original only makes a longer one-way time,
    which does not change the smallest one.
    """
    identities, times, rows, sources, targets = [], [], [], [], []
    flows = 0
    for file in files:
        identity = file.samples["identity"].to_numpy()
        row = _row_of_flow(file)[file.samples["flow"].to_numpy()]
        interface = file.flows["interface"].fill_null(0).to_numpy()[row]
        once = _once(identity, interface)
        identities.append(identity[once])
        times.append(file.samples["ts_ns"].to_numpy()[once])
        rows.append(row[once] + flows)
        sources += file.flows["src_ip"].to_pylist()
        targets += file.flows["dst_ip"].to_pylist()
        flows = len(sources)
    identity, ts, row = (np.concatenate(parts).astype(np.int64) for parts in (identities, times, rows))
    order = np.lexsort((ts, identity))
    order = order[np.concatenate(([True], np.diff(identity[order]) != 0))] if order.size else order
    src, dst = (np.array(names, np.str_) if names else np.empty(0, "U1") for names in (sources, targets))
    return _Segments(identity[order], ts[order], src[row[order]], dst[row[order]])


def _once(identity: Int64Array, interface: Int64Array) -> Int64Array:
    """Positions of the segments that their interface has once."""
    order = np.lexsort((interface, identity))
    is_same = (np.diff(identity[order]) == 0) & (np.diff(interface[order]) == 0)
    edges = np.concatenate(([False], is_same, [False])) if order.size else np.zeros(1, bool)
    return order[~(edges[:-1] | edges[1:])]


def _row_of_flow(file: CaptureFacts) -> Int64Array:
    """Position in the table of flows, by the number in its column `flow`."""
    numbers = file.flows["flow"].to_numpy().astype(np.int64)
    rows = np.zeros(int(numbers.max()) + 1 if numbers.size else 0, np.int64)
    rows[numbers] = np.arange(numbers.size)
    return rows


def _pair_offset(at_a: _Segments, at_b: _Segments, a: str, b: str) -> tuple[int, int | None] | None:
    """By how much b's clock is ahead of a's, and the uncertainty, both ns; None without a common segment."""
    _, in_a, in_b = np.intersect1d(at_a.identity, at_b.identity, assume_unique=True, return_indices=True)
    ahead = at_b.ts_ns[in_b] - at_a.ts_ns[in_a]
    forward = (at_a.src[in_a] == a) & (at_a.dst[in_a] == b)
    back = (at_a.src[in_a] == b) & (at_a.dst[in_a] == a)
    whole = _bounds(ahead, forward, back)
    if whole is None:
        return None
    offset, uncertainty = whole
    if uncertainty is None:
        return whole
    time = at_a.ts_ns[in_a]
    used = time[forward | back]
    first_half = time < (int(used.min()) + int(used.max())) // 2
    halves = [half for half in (first_half, ~first_half) if _enough(forward & half) and _enough(back & half)]
    parts = [_bounds(ahead, forward & half, back & half) for half in halves]
    known = [(theta, width) for part in parts if part is not None for theta, width in [part] if width is not None]
    if len(known) == 2:
        (before, before_width), (after, after_width) = known
        change = abs(after - before)
        # clocks that drift: the smallest times of the whole are from opposite ends of the capture
        if change > before_width + after_width:
            offset, uncertainty = (before + after) // 2, max(before_width, after_width)
        uncertainty += (change + 1) // 2
    return offset, uncertainty


def _enough(chosen: BoolArray) -> bool:
    return int(np.count_nonzero(chosen)) >= _HALF_MATCHES


def _bounds(ahead: Int64Array, forward: BoolArray, back: BoolArray) -> tuple[int, int | None] | None:
    """Offset and uncertainty from the smallest one-way times; ahead: time at b less time at a, ns."""
    to_b, to_a = _smallest(ahead[forward]), _smallest(-ahead[back])
    if to_b is None:
        return None if to_a is None else (-to_a, None)
    if to_a is None:
        return to_b, None
    return (to_b - to_a) // 2, (abs(to_b + to_a) + 1) // 2


def _smallest(one_way_ns: Int64Array) -> int | None:
    """Smallest one-way time that is not a wrong match. The minimum itself: only for it the uncertainty is a bound."""
    if not one_way_ns.size:
        return None
    quartile, median = np.quantile(one_way_ns, [0.25, 0.5])
    least = median - _ABSURD_SPREADS * (median - quartile) - _MS
    return int(one_way_ns[one_way_ns >= least].min())


def _from_reference(reference: str, edges: dict[str, dict[str, tuple[int, int | None]]]) -> dict[str, HostOffset]:
    """Offsets of all hosts that are connected with the reference, on the path of the least uncertainty.

    A path with comparisons in one direction only is taken only where there is no other.
    """
    found: dict[str, HostOffset] = {}
    heap: list[tuple[int, int, tuple[int, int], str, int]] = [(0, 0, _address_order(reference), reference, 0)]
    while heap:
        unknown, uncertainty, _, host, offset = heapq.heappop(heap)
        if host in found:
            continue
        found[host] = HostOffset(offset, None if unknown else uncertainty, reference)
        for other, (ahead, width) in edges[host].items():
            path = unknown + int(width is None), uncertainty + int(width or 0)
            heapq.heappush(heap, (*path, _address_order(other), other, offset + ahead))
    return found
