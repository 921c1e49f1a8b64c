"""The clock of a run's training logs against that of its captures: the ends of steps against pauses in the traffic.

`estimate_clock` is for a whole run; read_runs.py reports its result and applies it with --clock-offset auto. Method,
measured results and limits: docs/clocks.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq

from ddnn_traces.ingestors.reconcile.vantage import find_vantages
from ddnn_traces.ingestors.run_description import LOGS_TRIED, captures_of
from ddnn_traces.ingestors.training_logs import TrainingLog
from ddnn_traces.pcap.capture_facts import CaptureFacts, Int64Array

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]

_MS = 1_000_000
_SECOND_NS = 1_000_000_000
_TCP = 6

#: Time zones differ by multiples of this; an offset so near to one, ns, is one.
_ZONE_NS, _NEAR_ZONE_NS = 15 * 60 * 10**9, 10_000_000
#: Largest drift of the search, and the largest error of a step's time that the grid of drifts leaves.
_MAX_DRIFT = 400e-6
_GRID_ERROR_NS = 2.0 * _MS
#: The search over all lags takes at most this many consecutive steps and, if 24 steps fit into it, this much time.
_SEARCH_STEPS, _SEARCH_LEAST, _SEARCH_NS = 256, 24, 40_000 * _MS
_SEARCH_BIN_NS, _SEARCH_BINS = 2 * _MS, 1 << 23
_CANDIDATES, _LEAST_HITS = 60, 3
#: Up to so many pairs of an end and a pause a bin, to count them takes less time than a Fourier transform.
_PAIRS_A_BIN = 4
#: Share of steps whose end no pause follows, and what one outside the capture costs, in nats, at most in all.
_UNMATCHED, _OUTSIDE, _OUTSIDE_MOST = 0.15, 0.5, 5.0
#: Scales tried for the time from the last packet to the end of its step.
_SCALES_NS = (1.5 * _MS, 4.0 * _MS, 10.0 * _MS)
#: The likelihood is a table by the distance from a pause, in so many cells; the last holds for all larger ones.
_CELL_NS, _CELLS = 0.05 * _MS, 2000
#: Nats by which the best alignment must be better than the next one and than chance.
_MARGIN = 8.0
#: Share of the nats of the best alignment that another one needs to fit as well.
_AS_WELL = 0.9
#: Matched steps must be at least so many, and such a share of those within the capture.
_LEAST_STEPS, _LEAST_SHARE = 4, 0.6
#: Spread of the matched steps about the fit (robust standard deviation) above which the end of the communication does
#: not determine the end of the step.
_MOST_SPREAD_NS = 4.0 * _MS
#: From the fitted line, steps up to so far away count as matched: at first, and in the end.
_REACHES_NS = (12.0 * _MS, 8.0 * _MS)
#: Quantile of the times from a pause's start to the step's end that counts as zero: an end is logged late, never
#: early.
_FIRST_SHARE = 0.1
#: Share of the time just after the steps' ends that may have packets. Above it, the ends found are wrong, or the worker
#: still sends then.
_MOST_BUSY = 0.4
#: Lags that differ by less are the same.
_SAME_NS = 8.0 * _MS
#: A drift is reported where its standard error is below this.
_DRIFT_ERROR = 50e-6
#: Decimals of a drift in ppm: far below its error, and above what the processor's order of additions changes, so that
#: captures give the same tables on each.
_DRIFT_DECIMALS = 3
#: An aligned log's steps end up to so much after their last packet.
_ALIGNED_NS = 5 * _MS


@dataclass(frozen=True)
class Traffic:
    """When a worker's captures have packets: ascending starts of the windows of window_ns that hold any.

    received_ns: those of start_ns in which the worker receives data, as far as its captures show.
    """

    start_ns: Int64Array
    payload_bytes: Int64Array
    received_ns: Int64Array
    window_ns: int


@dataclass(frozen=True)
class LogOffset:
    """The offset that must be added to a log's times to bring them onto the capture's clock.

    offset_ns: at the middle of the log. uncertainty_ns: spread of single steps about it, and a window. drift_ppm: how
    much faster the capture's clock runs than the log's; None where the log is too short. confidence: from 0.98
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
    """The traffic of the worker at address `host`, from the cells of its captures.

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
            if batch.column("payload_bytes").null_count:  # of a parsed file: what is data is not known
                return
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


# --- the clock of a run's logs


@dataclass(frozen=True)
class LogClock:
    """The logs' clock: applied_ns was added to their times (None: there is no log), the estimate should be added.

    estimate: None where it is not known. middle_ns: time by the logs at which it holds; away from it the drift adds up.
    """

    applied_ns: int | None = None
    estimate: LogOffset | None = None
    middle_ns: int = 0

    @property
    def is_off(self) -> bool:
        """Whether the applied offset differs from the estimate by more than the estimate's error."""
        if self.estimate is None:
            return False
        return is_off(replace(self.estimate, offset_ns=self.estimate.offset_ns - (self.applied_ns or 0)))

    def before_shift(self, applied_ns: int) -> LogClock:
        """The same relative to the original log, where the estimate was made after adding `applied_ns` to its times."""
        if self.applied_ns is None:
            return self
        estimate = self.estimate and replace(self.estimate, offset_ns=self.estimate.offset_ns + applied_ns)
        return LogClock(applied_ns, estimate, self.middle_ns - applied_ns)

    @property
    def correction(self) -> Callable[[int], int]:
        """Function from a time by the logs to one by the captures, as estimated, with the drift, ns."""
        assert self.estimate
        offset, drift, middle = self.estimate.offset_ns, (self.estimate.drift_ppm or 0.0) * 1e-6, self.middle_ns
        return lambda time_ns: time_ns + offset + round((time_ns - middle) * drift)


def estimate_clock(
    logs: Sequence[TrainingLog], files: Sequence[CaptureFacts], labels: Sequence[str | None], window_ns: int
) -> LogClock:
    """Align the run's logs with their workers' captures. labels: host in each file's name.

    The first log that gives an estimate counts for all: they are of one run, and mostly of one clock.
    """
    vantages = find_vantages(files) if logs else []
    for log in logs[:LOGS_TRIED]:
        own = captures_of(log, labels)
        hosts = {vantages[i] for i in own}
        host = next(iter(hosts)) if len(hosts) == 1 else None
        estimate = log_offset(log.bounds, read_traffic([files[i] for i in own], host, window_ns))
        if estimate:
            estimate = replace(estimate, offset_ns=_whole_zones(estimate.offset_ns))
            return LogClock(0, estimate, int(log.bounds[0] + (log.bounds[-1] - log.bounds[0]) // 2))
    return LogClock(0 if logs else None)


def _whole_zones(offset_ns: int) -> int:
    """The offset, rounded to a difference of time zones where only the time from last packet to step end differs."""
    zones = round(offset_ns / _ZONE_NS) * _ZONE_NS
    return zones if zones and abs(offset_ns - zones) <= _NEAR_ZONE_NS else offset_ns


# --- one log against the traffic of its worker


@dataclass(frozen=True)
class _Fit:
    """Lag at the log's middle and spread, ns; drift and its standard error; nats by which it is better than others.

    ambiguous: pauses of another length give another lag.
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
    """Align the ends of the steps with the starts of pauses in the traffic; None where the result is not certain.

    step_bounds_ns: start of the first step and end of every step, ns, ascending (TrainingLog.bounds).
    """
    ends = _distinct(step_bounds_ns[1:], 2 * traffic.window_ns)
    if ends.size < _LEAST_STEPS or traffic.start_ns.size < _LEAST_STEPS or not (ends % _SECOND_NS).any():
        return None
    log_origin, origin = int(ends[0] + ends[-1]) // 2, int(traffic.start_ns[0])  # doubles: 2^53 ns are 104 days
    log = (ends - log_origin).astype(np.float64)
    active, received = ((times - origin).astype(np.float64) for times in (traffic.start_ns, traffic.received_ns))
    window = float(traffic.window_ns)
    # A worker may still send when its step has ended, but it does not receive: the pauses in the received traffic
    # decide, and the pauses in all traffic must not contradict them.
    best = _best_fit(log, received, window)
    if best is None or best.ambiguous:
        return None
    other = _best_fit(log, active, window)
    if other is not None and _contradict([best, other]):
        return None
    if _busy_after(log * (1 + best.drift) + best.lag, active, log) > _MOST_BUSY:
        return None
    as_it_is = float(log_origin - origin)
    if abs(best.lag - as_it_is) > _SAME_NS and _fits_as_well(log, received, window, as_it_is, best.lag):
        return None
    return LogOffset(
        round(best.lag) + origin - log_origin,
        round(best.spread) + traffic.window_ns,
        round(best.drift * 1e6, _DRIFT_DECIMALS) if best.drift_error <= _DRIFT_ERROR else None,
        best.confidence,
    )


def _best_fit(log: FloatArray, times: FloatArray, window: float) -> _Fit | None:
    """The most certain fit of the log to the pauses between `times`; ambiguous where good ones contradict."""
    pause_sets = _pause_sets(times, window, float(np.median(np.diff(log))))
    fits = [fit for pauses in pause_sets if (fit := _align(log, pauses, window)) is not None]
    if not fits:
        return None
    best = max(fits, key=lambda fit: fit.margin)
    return replace(best, ambiguous=_contradict(fits))


def _fits_as_well(log: FloatArray, times: FloatArray, window: float, lag: float, best: float) -> bool:
    """Whether steps end at pauses of some length with this lag as with the best one.

    Where hosts wait for a late one for longer than they compute between steps, only the longest pauses are all within
    a step: they fit another lag, and shorter ones fit both.
    """
    ends = log[next(_stretches(log))]
    near, no_drift = np.arange(-_SAME_NS, _SAME_NS + 1, 0.5 * _MS), np.zeros(1)
    for pauses in _pause_sets(times, window, float(np.median(np.diff(log)))):
        nats_of_cell = _nats_of_cell(1 / max(float(np.median(np.diff(pauses))), 1.0))
        nats, of_best = (
            _best_near(ends, pauses, (at + near)[None], no_drift, nats_of_cell)[0][0] for at in (lag, best)
        )
        if nats >= max(_MARGIN, _AS_WELL * of_best):
            return True
    return False


def _contradict(fits: Sequence[_Fit]) -> bool:
    lags = [fit.lag for fit in fits]
    return max(lags) - min(lags) > _SAME_NS


def _distinct(ends: Int64Array, least: int) -> Int64Array:
    """Ends at a distance of at least `least`; of ends that coincide (two batches a round) the last."""
    ends = np.unique(ends)
    return ends[np.concatenate((np.diff(ends) > least, [True]))] if ends.size else ends


def _pause_sets(active: FloatArray, window: float, step: float) -> Iterator[FloatArray]:
    """Starts of all pauses at least as long as each of some lengths; the first packet after is never needed.

    The duration of the computation between two exchanges is not known, so all lengths are tried that occur in the
    traffic about as often as there are steps.
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
    """The whole of a short log; of a long one the middle, start and end, in case the capture lacks some."""
    if ends.size <= _SEARCH_STEPS and ends[-1] - ends[0] <= _SEARCH_NS:
        yield slice(0, ends.size)
        return
    for begin in (ends.size // 2, 0, max(0, ends.size - _SEARCH_STEPS)):
        fits = int(np.searchsorted(ends, ends[begin] + _SEARCH_NS))
        yield slice(begin, min(max(fits, begin + _SEARCH_LEAST), begin + _SEARCH_STEPS, ends.size))


def _search(ends: FloatArray, pauses: FloatArray, window: float) -> _Match | None:
    """The best lag and drift of a stretch of the log over all possible lags."""
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
    distinct = min(20 * _MS, 0.25 * float(np.median(np.diff(ends))))
    others = [other for other, at, _ in found if abs(at - lag) > distinct]
    return _Match(nats, max(others, default=0.0), chance, lag - middle, drift)


def _candidates(ends: FloatArray, pauses: FloatArray, drifts: FloatArray, width: float) -> list[float]:
    """Lags that bring the most ends near a pause: maxima of the cross-correlation of the two trains of impulses."""
    first = pauses[0] - ends[-1] * (1 + _MAX_DRIFT) - 2 * width
    size = int((pauses[-1] - pauses[0] + (ends[-1] - ends[0]) * (1 + 2 * _MAX_DRIFT)) / width) + 8
    size = 1 << (size - 1).bit_length()
    at = ((pauses - pauses[0]) / width).astype(np.int64)
    best = np.zeros(size, np.int64)
    for drift in drifts:
        backwards = (ends[-1] * (1 + drift) - ends * (1 + drift)) / width
        hits = _pairs_by_sum(at, backwards.astype(np.int64), size)
        np.maximum(best, hits + np.roll(hits, 1) + np.roll(hits, -1), out=best)
    found = []
    for _ in range(_CANDIDATES):
        peak = int(np.argmax(best))
        if best[peak] < _LEAST_HITS:
            break
        found.append(float(first + 2 * width + ends[-1] * _MAX_DRIFT + peak * width))
        best[max(0, peak - 2) : peak + 3] = 0
    return found


def _pairs_by_sum(one: Int64Array, other: Int64Array, size: int) -> Int64Array:
    """How many pairs of numbers, one of each, have each sum below `size`; by a Fourier transform where it is faster."""
    if one.size * other.size <= _PAIRS_A_BIN * size:
        return np.bincount(np.add.outer(one, other).ravel(), minlength=size)
    spectrum = np.fft.rfft(np.bincount(one, minlength=size)) * np.fft.rfft(np.bincount(other, minlength=size))
    return np.rint(np.fft.irfft(spectrum, size)).astype(np.int64)


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
    """By how much each time is after the nearest pause's start; negative before it."""
    after: FloatArray = at - pauses[np.searchsorted((pauses[:-1] + pauses[1:]) / 2, at)]
    return after


def _fit(ends: FloatArray, pauses: FloatArray, chosen: slice, match: _Match) -> _Fit | None:
    """Lag at the log's middle (its time 0), spread and drift, by a robust line through all matched steps.

    The searched stretch is doubled repeatedly, so that the drift is known well enough to find the pauses further out.
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
    """Share of the slots after the steps' ends, a tenth of a step in all, that have any packets."""
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
