"""Clocks: of captures against each other, and of a training log against the traffic. Nothing is ever applied here.

Method, measured results and limits: docs/clocks.md.
"""

from __future__ import annotations

import heapq
import ipaddress
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq

from ddnn_traces.ingestors.facts import CaptureFacts, Int64Array

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]

_MS = 1_000_000
_SECOND_NS = 1_000_000_000
_TCP = 6

# --- A. captures against each other ---------------------------------------------------------------------------------

#: One-way times below the median by more than this many times its distance to the lower quartile, and by more than
#: 1 ms, are of wrong matches: queues make times longer, nothing makes single ones shorter.
_ABSURD_SPREADS = 10
#: Matches that each direction must have in each half before the halves are compared.
_HALF_MATCHES = 8


@dataclass(frozen=True)
class HostOffset:
    """By how much a capture's clock is ahead of that at reference_ip, in ns.

    The offset lies within plus and minus uncertainty_ns; None where segments were seen in one direction only, so that
    the delay is in the offset.
    """

    offset_ns: int
    uncertainty_ns: int | None
    reference_ip: str


@dataclass(frozen=True)
class _Seen:
    """Segments seen at one host: identity, time, and the hosts that they go from and to; ascending by identity."""

    identity: Int64Array
    ts_ns: Int64Array
    src: npt.NDArray[np.str_]
    dst: npt.NDArray[np.str_]


def host_offsets(files: Sequence[CaptureFacts], vantages: Sequence[str | None]) -> list[HostOffset | None]:
    """Offset of each file's clock, from segments captured at both ends (docs/clocks.md).

    Files of one vantage have one clock. The reference is the smallest address among the hosts that can be compared,
    directly or over others. None for files without a vantage, and for hosts that share no segments with another.
    """
    hosts = sorted({vantage for vantage in vantages if vantage is not None}, key=_address_order)
    seen = {host: _merge([f for f, v in zip(files, vantages, strict=True) if v == host]) for host in hosts}
    edges: dict[str, dict[str, tuple[int, int | None]]] = {host: {} for host in hosts}
    for a, b in itertools.combinations(hosts, 2):
        found = _pair_offset(seen[a], seen[b], a, b)
        if found is not None:
            edges[a][b] = found
            edges[b][a] = (-found[0], found[1])
    offsets: dict[str, HostOffset] = {}
    for host in hosts:
        if host not in offsets and edges[host]:
            offsets.update(_from_reference(host, edges))
    return [offsets.get(vantage) if vantage is not None else None for vantage in vantages]


def _address_order(address: str) -> tuple[int, int]:
    ip = ipaddress.ip_address(address)
    return ip.version, int(ip)


def _merge(files: Sequence[CaptureFacts]) -> _Seen:
    """The segments seen in the files of one host.

    What a file holds more than once was retransmitted, and which of the copies the other host saw cannot be told: left
    out. In two files (a series, or two interfaces) the earlier time counts; a retransmission that is matched with its
    original only makes a longer one-way time, which the smallest one disregards.
    """
    identities, times, rows, sources, targets = [], [], [], [], []
    flows = 0
    for file in files:
        identity = file.samples["identity"].to_numpy()
        _, first, counts = np.unique(identity, return_index=True, return_counts=True)
        once = first[counts == 1]
        identities.append(identity[once])
        times.append(file.samples["ts_ns"].to_numpy()[once])
        rows.append(_row_of_flow(file)[file.samples["flow"].to_numpy()[once]] + flows)
        sources += file.flows["src_ip"].to_pylist()
        targets += file.flows["dst_ip"].to_pylist()
        flows = len(sources)
    identity, ts, row = (np.concatenate(parts).astype(np.int64) for parts in (identities, times, rows))
    order = np.lexsort((ts, identity))
    order = order[np.concatenate(([True], np.diff(identity[order]) != 0))] if order.size else order
    src, dst = (np.array(names, np.str_) if names else np.empty(0, "U1") for names in (sources, targets))
    return _Seen(identity[order], ts[order], src[row[order]], dst[row[order]])


def _row_of_flow(file: CaptureFacts) -> Int64Array:
    """Position in the table of flows, by the number in its column `flow`."""
    numbers = file.flows["flow"].to_numpy().astype(np.int64)
    rows = np.zeros(int(numbers.max()) + 1 if numbers.size else 0, np.int64)
    rows[numbers] = np.arange(numbers.size)
    return rows


def _pair_offset(at_a: _Seen, at_b: _Seen, a: str, b: str) -> tuple[int, int | None] | None:
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
        apart = abs(after - before)
        # clocks that drift apart: the smallest times of the whole are from opposite ends of the capture
        if apart > before_width + after_width:
            offset, uncertainty = (before + after) // 2, max(before_width, after_width)
        uncertainty += (apart + 1) // 2
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
    """Smallest one-way time that is no wrong match. The minimum itself: only for it is the uncertainty a bound."""
    if not one_way_ns.size:
        return None
    quartile, median = np.quantile(one_way_ns, [0.25, 0.5])
    least = median - _ABSURD_SPREADS * (median - quartile) - _MS
    return int(one_way_ns[one_way_ns >= least].min())


def _from_reference(reference: str, edges: dict[str, dict[str, tuple[int, int | None]]]) -> dict[str, HostOffset]:
    """Offsets of all hosts that are connected with the reference, on the way of the least uncertainty.

    A way with one-directional comparisons is taken only where there is no other.
    """
    found: dict[str, HostOffset] = {}
    heap: list[tuple[int, int, tuple[int, int], str, int]] = [(0, 0, _address_order(reference), reference, 0)]
    while heap:
        unknown, uncertainty, _, host, offset = heapq.heappop(heap)
        if host in found:
            continue
        found[host] = HostOffset(offset, None if unknown else uncertainty, reference)
        for other, (ahead, width) in edges[host].items():
            way = unknown + int(width is None), uncertainty + int(width or 0)
            heapq.heappush(heap, (*way, _address_order(other), other, offset + ahead))
    return found


# --- B. a training log against the traffic ----------------------------------------------------------------------------

#: Drift that is looked for, and the largest error of a step's time that the grid of drifts leaves.
_MAX_DRIFT = 400e-6
_GRID_ERROR_NS = 2.0 * _MS
#: The search over all lags takes at most this many consecutive steps and, if 24 steps fit into it, this much time.
_SEARCH_STEPS, _SEARCH_LEAST, _SEARCH_NS = 256, 24, 40_000 * _MS
_SEARCH_BIN_NS, _SEARCH_BINS = 2 * _MS, 1 << 23
_CANDIDATES = 60
#: Share of steps whose end no pause follows, and what one outside the capture costs, in nats, at most in all.
_UNMATCHED, _OUTSIDE, _OUTSIDE_MOST = 0.15, 0.5, 5.0
#: Scales tried for the time from the last packet to the end of its step.
_SCALES_NS = (1.5 * _MS, 4.0 * _MS, 10.0 * _MS)
#: The likelihood is looked up by the distance from a pause, in so many cells; the last counts for all beyond.
_CELL_NS, _CELLS = 0.05 * _MS, 2000
#: Nats by which the best alignment must be better than the next, and than chance.
_MARGIN = 8.0
#: Matched steps must be at least so many, and such a share of those within the capture.
_LEAST_STEPS, _LEAST_SHARE = 4, 0.6
#: Spread of the matched steps about the fit (robust standard deviation) above which the end of the communication does
#: not tell the end of the step.
_MOST_SPREAD_NS = 4.0 * _MS
#: From the fitted line, steps up to so far away count as matched: at first, and in the end.
_REACHES_NS = (12.0 * _MS, 8.0 * _MS)
#: Quantile of the times from a pause's begin to the step's end that counts as no time: an end is logged late, never
#: early.
_FIRST_SHARE = 0.1
#: Share of the time soon after the steps' ends that may have packets. Above, what was found is no step's end, or the
#: worker still sends then.
_MOST_BUSY = 0.4
#: Lags that differ by less are the same.
_SAME_NS = 8.0 * _MS
#: A drift is told where its standard error is below this.
_DRIFT_ERROR = 50e-6
#: An aligned log's steps end up to so much after their last packet.
_ALIGNED_NS = 5 * _MS


@dataclass(frozen=True)
class Traffic:
    """When a worker's captures have packets: ascending begins of the windows of window_ns that hold any.

    received_ns: those of start_ns in which the worker receives data, as far as its captures tell.
    """

    start_ns: Int64Array
    payload_bytes: Int64Array
    received_ns: Int64Array
    window_ns: int


@dataclass(frozen=True)
class LogOffset:
    """What must be added to a log's times to bring them onto the capture's clock.

    offset_ns: at the middle of the log. uncertainty_ns: spread of single steps about it, and a window. drift_ppm: how
    much faster the capture's clock runs than the log's; None where the log is too short to tell. confidence: from 0.98
    (less is not reported) to 1, by the odds against the next best alignment and against chance.
    """

    offset_ns: int
    uncertainty_ns: int
    drift_ppm: float | None
    confidence: float


def is_off(estimate: LogOffset | None) -> bool:
    """Whether log and capture are on clocks that differ by more than the estimate's own error."""
    return estimate is not None and abs(estimate.offset_ns) > _ALIGNED_NS + 2 * estimate.uncertainty_ns


def read_traffic(files: Sequence[CaptureFacts], host: str | None, window_ns: int) -> Traffic:
    """The traffic of the worker at address `host` by the cells of its captures.

    It receives data in a cell with payload for it, and, where only what it sends was captured, in one of its TCP flows
    that holds packets but no payload: acknowledgements.
    """
    windows, payloads, received = ([np.empty(0, np.int64)] for _ in range(3))
    for file in files:
        incoming, outgoing = _directions(file, host)
        for flow, window, payload in _cells(file):
            found, inverse = np.unique(window, return_inverse=True)
            windows.append(found)
            payloads.append(np.bincount(inverse, payload, found.size).astype(np.int64))
            gets = np.where(payload > 0, incoming[flow], outgoing[flow])
            received.append(np.unique(window[gets]))
    window, inverse = np.unique(np.concatenate(windows), return_inverse=True)
    payload = np.bincount(inverse, np.concatenate(payloads), window.size).astype(np.int64)
    return Traffic(window * window_ns, payload, np.unique(np.concatenate(received)) * window_ns, window_ns)


def _cells(file: CaptureFacts) -> Iterator[tuple[Int64Array, Int64Array, Int64Array]]:
    """Flow, window and payload bytes of the cells, a batch at a time: those of a long capture fill the memory."""
    if file.cells is None:
        return
    with pq.ParquetFile(file.cells) as cells:
        for batch in cells.iter_batches(columns=["flow", "window", "payload_bytes"]):
            flow, window, payload = (batch.column(name).to_numpy() for name in ("flow", "window", "payload_bytes"))
            yield flow.astype(np.int64), window, payload


def _directions(file: CaptureFacts, host: str | None) -> tuple[BoolArray, BoolArray]:
    """By flow number: whether its data is for the host, and whether it is one of the host's TCP flows."""
    columns = (file.flows[name].to_pylist() for name in ("flow", "src_ip", "dst_ip", "protocol"))
    size = 1 + max(file.flows["flow"].to_pylist(), default=-1)
    incoming, outgoing = np.zeros(size, np.bool_), np.zeros(size, np.bool_)
    for flow, src, dst, protocol in zip(*columns, strict=True):
        incoming[flow] = dst == host
        outgoing[flow] = src == host and protocol == _TCP
    return incoming, outgoing


@dataclass(frozen=True)
class _Fit:
    """Lag at the log's middle and spread, ns; drift and its standard error; nats by which it is better than others.

    ambiguous: pauses of another length tell another lag.
    """

    lag: float
    spread: float
    drift: float
    drift_error: float
    margin: float
    ambiguous: bool = False

    @property
    def confidence(self) -> float:
        return float(1 / (1 + np.exp(-self.margin / 2)))  # halved: neighbouring steps are not independent


@dataclass(frozen=True)
class _Match:
    """Log against pauses: nats better than chance of the best alignment, of the next, and where the best one is."""

    nats: float
    next_nats: float
    chance: float
    lag: float
    drift: float

    @property
    def margin(self) -> float:
        return min(self.nats - self.next_nats, self.nats - self.chance)


def log_offset(step_bounds_ns: Int64Array, traffic: Traffic) -> LogOffset | None:
    """Line up the ends of the steps with the begins of pauses in the traffic; None where the two do not tell.

    step_bounds_ns: begin of the first step and end of every step, ns, ascending (TrainingLog.bounds).
    """
    ends = _distinct(step_bounds_ns[1:], 2 * traffic.window_ns)
    if ends.size < _LEAST_STEPS or traffic.start_ns.size < _LEAST_STEPS or not (ends % _SECOND_NS).any():
        return None
    log_origin, origin = int(ends[0] + ends[-1]) // 2, int(traffic.start_ns[0])  # doubles: 2^53 ns are 104 days
    log = (ends - log_origin).astype(np.float64)
    active, received = ((times - origin).astype(np.float64) for times in (traffic.start_ns, traffic.received_ns))
    window = float(traffic.window_ns)
    # A worker may send on when its step has ended, but it does not receive: the pauses in what it receives tell, and
    # the pauses in all traffic must not contradict.
    best = _best_fit(log, received, window)
    if best is None or best.ambiguous:
        return None
    other = _best_fit(log, active, window)
    if other is not None and _apart([best, other]):
        return None
    if _busy_after(log * (1 + best.drift) + best.lag, active, log) > _MOST_BUSY:
        return None
    return LogOffset(
        round(best.lag) + origin - log_origin,
        round(best.spread) + traffic.window_ns,
        best.drift * 1e6 if best.drift_error <= _DRIFT_ERROR else None,
        best.confidence,
    )


def _best_fit(log: FloatArray, times: FloatArray, window: float) -> _Fit | None:
    """The most certain fit of the log to the pauses between `times`; ambiguous where good ones contradict."""
    pause_sets = _pause_sets(times, window, float(np.median(np.diff(log))))
    fits = [fit for pauses in pause_sets if (fit := _align(log, pauses, window)) is not None]
    if not fits:
        return None
    best = max(fits, key=lambda fit: fit.margin)
    return replace(best, ambiguous=_apart(fits))


def _apart(fits: Sequence[_Fit]) -> bool:
    lags = [fit.lag for fit in fits]
    return max(lags) - min(lags) > _SAME_NS


def _distinct(ends: Int64Array, least: int) -> Int64Array:
    """Ends that are at least so far apart; of ends that coincide (two batches a round) the last."""
    ends = np.unique(ends)
    return ends[np.concatenate((np.diff(ends) > least, [True]))] if ends.size else ends


def _pause_sets(active: FloatArray, window: float, step: float) -> Iterator[FloatArray]:
    """Begins of all pauses at least as long as each of some lengths; the first packet after is never needed.

    How long the computation between two exchanges is cannot be known, so all lengths are tried that the traffic has
    about as often as there are steps.
    """
    ends = active + window
    idle = np.append(active[1:], np.inf) - ends
    length, before = max(3 * window, 0.02 * step), 0
    while length < step:
        pauses = ends[idle >= length]
        if pauses.size >= _LEAST_STEPS and pauses.size != before:
            yield pauses
        before = pauses.size
        length *= 1.4


def _align(ends: FloatArray, pauses: FloatArray, window: float) -> _Fit | None:
    """The log fitted to one set of pauses."""
    for chosen in _stretches(ends):
        match = _search(ends[chosen], pauses, window)
        if match is not None and match.margin >= _MARGIN:
            return _fit(ends, pauses, chosen, match)
    return None


def _stretches(ends: FloatArray) -> Iterator[slice]:
    """The whole of a short log; of a long one the middle, begin and end, in case the capture lacks some."""
    if ends.size <= _SEARCH_STEPS and ends[-1] - ends[0] <= _SEARCH_NS:
        yield slice(0, ends.size)
        return
    for begin in (ends.size // 2, 0, max(0, ends.size - _SEARCH_STEPS)):
        fits = int(np.searchsorted(ends, ends[begin] + _SEARCH_NS))
        yield slice(begin, min(max(fits, begin + _SEARCH_LEAST), begin + _SEARCH_STEPS, ends.size))


def _search(ends: FloatArray, pauses: FloatArray, window: float) -> _Match | None:
    """The best lag and drift of a stretch of the log over all lags there are."""
    middle = (ends[0] + ends[-1]) / 2
    half = max((ends[-1] - ends[0]) / 2, 1.0)
    count = int(np.ceil(_MAX_DRIFT * half / _GRID_ERROR_NS))
    drifts = np.linspace(-_MAX_DRIFT, _MAX_DRIFT, 2 * count + 1)
    span = ends[-1] - ends[0] + pauses[-1] - pauses[0]
    width = max(float(_SEARCH_BIN_NS), window, span / (_SEARCH_BINS - 8))
    rate = 1 / max(float(np.median(np.diff(pauses))), 1.0)
    chance = float(np.log(max(span / _SEARCH_BIN_NS, 2)))
    nats_of_cell = _nats_of_cell(rate)
    if ends.size * float(nats_of_cell.max()) - chance < _MARGIN:
        return None  # not even if every step fitted
    candidates = _candidates(ends - middle, pauses, drifts, width)
    if not candidates:
        return None
    shifts = np.arange(-3 * width, 3.5 * width, max(width / 2, 0.5 * _MS))
    fine = np.linspace(-_MAX_DRIFT, _MAX_DRIFT, 4 * count + 1)
    found = _best_near(ends - middle, pauses, np.add.outer(candidates, shifts), fine, nats_of_cell)
    nats, lag, drift = found[0]
    apart = min(20 * _MS, 0.25 * float(np.median(np.diff(ends))))
    others = [other for other, at, _ in found if abs(at - lag) > apart]
    return _Match(nats, max(others, default=0.0), chance, lag - middle, drift)


def _candidates(ends: FloatArray, pauses: FloatArray, drifts: FloatArray, width: float) -> list[float]:
    """Lags that bring the most ends near a pause: maxima of the cross-correlation of the two trains of impulses."""
    first = pauses[0] - ends[-1] * (1 + _MAX_DRIFT) - 2 * width
    size = int((pauses[-1] - pauses[0] + (ends[-1] - ends[0]) * (1 + 2 * _MAX_DRIFT)) / width) + 8
    size = 1 << (size - 1).bit_length()
    spectrum = np.fft.rfft(np.bincount(((pauses - pauses[0]) / width).astype(np.int64), minlength=size))
    best = np.zeros(size)
    for drift in drifts:
        backwards = (ends[-1] * (1 + drift) - ends * (1 + drift)) / width
        train = np.fft.rfft(np.bincount(backwards.astype(np.int64), minlength=size))
        hits = np.fft.irfft(spectrum * train, size)
        hits += np.roll(hits, 1) + np.roll(hits, -1)
        np.maximum(best, hits, out=best)
    found = []
    for _ in range(_CANDIDATES):
        peak = int(np.argmax(best))
        if best[peak] < 2.5:
            break
        found.append(float(first + 2 * width + ends[-1] * _MAX_DRIFT + peak * width))
        best[max(0, peak - 2) : peak + 3] = 0
    return found


def _nats_of_cell(rate: float) -> FloatArray:
    """By scale, and by distance from a pause in cells: nats better than chance. The last: outside the capture."""
    distance = np.arange(_CELLS + 1) * _CELL_NS
    scale = np.array(_SCALES_NS)[:, None]
    density = np.exp(-distance / scale) / (2 * scale)
    nats: FloatArray = np.log((1 - _UNMATCHED) * density / rate + _UNMATCHED)
    nats[:, -1] = 0
    return nats


def _best_near(
    ends: FloatArray, pauses: FloatArray, lags: FloatArray, drifts: FloatArray, nats_of_cell: FloatArray
) -> list[tuple[float, float, float]]:
    """Nats, lag and drift of the best alignment of each row of lags; descending."""
    rows = np.arange(len(lags))
    found = np.full((3, rows.size), -np.inf)
    for drift in drifts:
        at = ends * (1 + drift) + lags[:, :, None]
        cell = np.minimum(np.abs(_after_pause(at, pauses)) / _CELL_NS + 0.5, _CELLS - 1).astype(np.int32)
        outside = (at < pauses[0] - _SCALES_NS[-1]) | (at > pauses[-1] + _SCALES_NS[-1])
        cell[outside] = _CELLS
        cost = np.minimum(_OUTSIDE * outside.sum(axis=2), _OUTSIDE_MOST)
        nats = np.max([scale[cell].sum(axis=2) for scale in nats_of_cell], axis=0) - cost
        best = nats.argmax(axis=1)
        here = np.array([nats[rows, best], lags[rows, best], np.full(rows.size, drift)])
        found = np.where(here[0] > found[0], here, found)
    return sorted(((float(n), float(lag), float(drift)) for n, lag, drift in found.T), reverse=True)


def _after_pause(at: FloatArray, pauses: FloatArray) -> FloatArray:
    """By how much each time is after the nearest pause's begin; negative before it."""
    after: FloatArray = at - pauses[np.searchsorted((pauses[:-1] + pauses[1:]) / 2, at)]
    return after


def _fit(ends: FloatArray, pauses: FloatArray, chosen: slice, match: _Match) -> _Fit | None:
    """Lag at the log's middle (its time 0), spread and drift, by a robust line through all matched steps.

    The searched stretch is made twice as long again and again, so that the drift is known well enough to find the
    pauses further out.
    """
    begin, end = chosen.start, chosen.stop
    middle = (ends[begin] + ends[end - 1]) / 2
    lag, drift = match.lag, match.drift
    while True:
        time = ends[begin:end] - middle
        for reach in _REACHES_NS:
            after = _after_pause(ends[begin:end] + lag + drift * time, pauses)
            near = np.abs(after) <= reach
            if np.count_nonzero(near) < _LEAST_STEPS:
                return None
            constant, slope = _line(time[near], after[near])
            lag, drift = lag - constant, drift - slope
        if begin == 0 and end == ends.size:
            break
        length = end - begin
        begin, end = max(0, begin - length // 2), min(ends.size, end + length // 2 + 1)
    at = ends + lag + drift * time
    after = _after_pause(at, pauses)
    near = np.abs(after) <= _REACHES_NS[-1]
    inside = (at >= pauses[0] - _REACHES_NS[-1]) & (at <= pauses[-1] + _REACHES_NS[-1])
    if np.count_nonzero(near) < max(_LEAST_STEPS, _LEAST_SHARE * np.count_nonzero(inside)):
        return None
    spread = 1.4826 * float(np.median(np.abs(after[near] - np.median(after[near]))))
    if spread > _MOST_SPREAD_NS:
        return None
    lag -= float(np.quantile(after[near], _FIRST_SHARE)) + drift * middle
    error = max(spread, _MS) / (float(np.std(time[near])) * np.sqrt(np.count_nonzero(near)))
    return _Fit(lag, spread, drift, error, match.margin)


def _busy_after(at: FloatArray, active: FloatArray, ends: FloatArray) -> float:
    """Share of the slots behind the steps' ends, of a tenth of a step in all, that have packets of any kind."""
    slots = np.linspace(0, 0.1 * float(np.median(np.diff(ends))), 6)
    begin = at[:, None] + _REACHES_NS[-1] + slots[None, :-1]
    packets = np.searchsorted(active, begin + slots[1]) - np.searchsorted(active, begin)
    return float(np.mean(packets > 0))


def _line(x: FloatArray, y: FloatArray) -> tuple[float, float]:
    """Constant and slope of the line of least absolute deviations, by reweighted least squares."""
    weight = np.ones(x.size)
    constant = slope = 0.0
    for _ in range(12):
        total = weight.sum()
        mean_x, mean_y = (weight @ x) / total, (weight @ y) / total
        slope = float((weight @ ((x - mean_x) * (y - mean_y))) / max(float(weight @ (x - mean_x) ** 2), 1.0))
        constant = float(mean_y - slope * mean_x)
        weight = 1 / np.maximum(np.abs(y - constant - slope * x), 0.2 * _MS)
    return constant, slope
