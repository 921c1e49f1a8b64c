"""Distances of generated traffic from held-out runs: of the model's, and of two baselines with the same volume.

A baseline lasts as long as the volume takes at the rate of the fitted runs (constant_rate), or as the same number of
their steps (poisson).
"""

from __future__ import annotations

import tempfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from ddnn_traces.errors import UsageError
from ddnn_traces.query.dataset import Dataset
from ddnn_traces.traffic.model.document import Document
from ddnn_traces.traffic.model.fit_model import fit_measured, grouped
from ddnn_traces.traffic.model.generation import Job, on_line, traffic
from ddnn_traces.traffic.model.measure import MeasuredRun, measure
from ddnn_traces.traffic.synthetic import Book, Sampler
from ddnn_traces.traffic.table_writer import write_traffic
from ddnn_traces.traffic.traffic import Floats, Port, StepTimes, Traffic, packets_of

#: Without a structure, and of another run's steps.
BASELINES = ("constant_rate", "poisson", "resampled")

#: Attributes that a held-out run shares with the runs that the model is fitted to: the first set that any share. The
#: law tells what another model's size changes, but not what more workers on the same cores or a larger batch do.
LADDER = (
    ("framework", "backend", "topology", "delay_ms", "loss_pct", "bandwidth_mbit", "workers", "batch_size"),
    ("framework", "backend", "model", "topology", "delay_ms", "loss_pct", "bandwidth_mbit"),
    ("framework", "backend", "model", "topology"),
    ("framework", "backend", "topology"),
    ("framework", "backend"),
    ("topology",),
    (),
)

#: Columns that measure a distance; smaller is better.
DISTANCES = (
    "pair_volume_error", "burst_bytes_ks", "burst_bytes_ks_1pct", "burst_bytes_wasserstein", "burst_ms_ks",
    "burst_ms_wasserstein", "gap_ms_ks", "gap_ms_wasserstein", "acf_rmse", "training_error",
)  # fmt: skip


def score(
    dataset: Dataset, holdout: Sequence[str] | None = None, document: Document | None = None, gap_ms: float = 5.0,
    seed: int = 0,
) -> pl.DataFrame:  # fmt: skip
    """A row a held-out run and generator (model, and those of BASELINES that apply), with DISTANCES.

    holdout: runs to score on, None: each with a known topology, by turns. Without a document the model is fitted to
    those of the other runs that are most like the held-out one (LADDER). gap_ms: silence that separates two bursts, ms.
    The generator is given the held-out run's workers, topology, steps and model size, and nothing else of it.
    Raises UsageError where there is nothing to score on, or to fit to, and for a gap_ms that is not above 0.
    """
    if not 0 < gap_ms < 1e12:
        raise UsageError(f"--gap-ms {gap_ms:g}: give milliseconds above 0 and below 1e12")
    measured = measure(dataset)
    wanted = list(holdout) if holdout else [name for name, run in measured.items() if run.collective is not None]
    for name in wanted:
        if name not in measured or measured[name].collective is None:
            raise UsageError(
                f"{name}: cannot be held out: no such run in {dataset.name}, or one without steps, or of unknown "
                f"topology; 'ddnn-traces query {dataset.name} topology' lists the topology of each run"
            )
    if not wanted:
        raise UsageError(f"{dataset.name}: no run has steps and a known topology; there is nothing to score on")
    rows = []
    for name in wanted:
        others = {k: v for k, v in measured.items() if k not in (holdout or (name,))}
        rows += _score_run(dataset, measured[name], others, document, gap_ms, seed)
    return pl.DataFrame(rows)


def wins(scores: pl.DataFrame) -> pl.DataFrame:
    """A row a distance: on how many held-out runs each generator is nearest (a tie counts for all that share it)."""
    rows = []
    for distance in DISTANCES:
        least = scores.filter(pl.col(distance) == pl.col(distance).min().over("run_id"))["generator"].to_list()
        rows.append({"distance": distance, **{name: least.count(name) for name in ("model", *BASELINES)}})
    return pl.DataFrame(rows)


def _score_run(
    dataset: Dataset, run: MeasuredRun, others: dict[str, MeasuredRun], document: Document | None, gap_ms: float,
    seed: int,
) -> list[dict[str, Any]]:  # fmt: skip
    alike, common = _most_alike(run, others)
    if document is None and not alike:
        raise UsageError(f"{run.run_id}: no other run to fit a model to; give a model with --model")
    size, size_source = _size(run, others)
    fitted = document or fit_measured(alike)
    by_model = traffic(fitted, _job(run, size, seed))
    lengths = _lengths(by_model, run.steps, alike) if document is None else (None, None)
    generators = {"model": by_model}
    for kind, training_ns in zip(BASELINES, lengths, strict=False):
        generators[kind] = baseline(kind, by_model, seed, training_ns)
    if document is None and (again := resampled(by_model, run.steps, size, alike, seed)):
        generators["resampled"] = again
    truth = _observe(dataset, run.run_id, run.hosts, gap_ms)
    about = {
        "fitted_runs": len(alike) if document is None else len(fitted["provenance"]["runs"]),
        "fitted_by": common if document is None else "given", "model_bytes": size, "model_bytes_source": size_source,
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        write_traffic(Path(folder) / "dataset", generators.values())
        with Dataset(Path(folder) / "dataset") as generated:
            hosts = by_model.addresses[: by_model.hosts]
            seen = {kind: _observe(generated, kind, hosts, gap_ms) for kind in generators}
    return [{"run_id": run.run_id, "generator": kind, **about, **_distances(truth, seen[kind])} for kind in seen]


def _job(run: MeasuredRun, size: int, seed: int) -> Job:
    c = run.collective
    assert c is not None
    group = None if c.shape == "overlay" else c.group_size
    return Job(c.workers, size, c.topology, run.steps, c.shape, c.servers, group, c.order, seed=seed, run_id="model")


def _most_alike(run: MeasuredRun, others: dict[str, MeasuredRun]) -> tuple[list[MeasuredRun], str]:
    """The runs to fit to, and the attributes that they share with the held-out one."""
    known = [other for other in others.values() if other.collective is not None]
    for keys in LADDER:
        alike = [other for other in known if all(_trait(other, key) == _trait(run, key) for key in keys)]
        if alike:
            return alike, " ".join(keys) or "nothing"
    return [], "nothing"


def _trait(run: MeasuredRun, key: str) -> Any:
    if key == "topology":
        return run.collective and (run.collective.topology, run.collective.shape)
    return run.attributes[key]


def _size(run: MeasuredRun, others: dict[str, MeasuredRun]) -> tuple[int, str]:
    """S as known before the run: declared, or of the other runs of the same model; else from its own volume."""
    if run.model_bytes_source == "declared":
        return run.model_bytes, "declared"
    name = run.attributes["model"]
    same = [other.model_bytes for other in others.values() if name and other.attributes["model"] == name]
    return (round(float(np.median(same))), "other runs") if same else (run.model_bytes, "own volume")


# --- the baselines


def _lengths(by_model: Traffic, steps: int, alike: Sequence[MeasuredRun]) -> tuple[float, float]:
    """Lengths of the training, ns, without a model: at the median rate of the fitted runs, and at their median step."""
    payload = sum(_exchanged(by_model).values())
    rate = np.median([run.matrix.sum() * run.steps / (run.end_ns - run.begin_ns) for run in alike])
    step_ns = np.median([(run.end_ns - run.begin_ns) / run.steps for run in alike])
    return payload / float(rate), steps * float(step_ns)


def baseline(kind: str, by_model: Traffic, seed: int = 0, training_ns: float | None = None) -> Traffic:
    """Traffic of the pairs of `by_model`, as much as they exchange in its steps, in `training_ns`; None: in its time.

    constant_rate: packets at an even pace. poisson: a Poisson number of packets, with as many expected, at independent
    and uniform times.
    """
    run = replace(by_model.run, run_id=kind)
    rng = np.random.default_rng([seed, zlib.crc32(kind.encode())])
    sampler = Sampler()
    sampler.segment_bytes = segment = by_model.transfers.segment_bytes
    book = Book(run, sampler)
    times = by_model.times if training_ns is None else _stretched(by_model.times, training_ns)
    begin_ns, end_ns = int(times.start_ns.min()), int(times.end_ns.max())
    for (src, dst), payload in sorted(_exchanged(by_model).items()):
        flow = np.array([book.flow(src, dst, Port.DATA)])
        packets = int(packets_of(np.array(payload), segment))
        if kind == "constant_rate":
            start, lasting, size = np.array([begin_ns]), end_ns - begin_ns, np.array([payload])
        else:
            start = np.sort(rng.integers(begin_ns, end_ns, rng.poisson(packets)))
            lasting, size = 1, np.full(len(start), min(segment, payload))
        flow = np.broadcast_to(flow, start.shape)
        book.send(flow, start, np.full(start.shape, lasting), size, np.zeros_like(size), acked=False)
    opened = book.open()
    return Traffic(run, times, book.connections, opened, book.transfers())


def resampled(by_model: Traffic, steps: int, size: int, alike: Sequence[MeasuredRun], seed: int = 0) -> Traffic | None:
    """The steps of the run of the nearest S, drawn again: what a user has without a model.

    Bytes are scaled by S, and times to the length of a step on the line of the two next sizes (on_line()). The first
    step, in which programs warm up, comes first. None where no run has as many hosts.
    """
    known = [run for run in alike if len(run.hosts) == by_model.hosts]
    if not known:
        return None
    source = min(known, key=lambda run: abs(np.log(size / run.model_bytes)))
    bounds = np.full(source.steps + 1, source.begin_ns, float)
    for t in source.transfers:
        if t.step < source.steps:
            bounds[t.step + 1] = max(bounds[t.step + 1], t.end_ns)
    bounds = np.maximum.accumulate(bounds)
    lasting = np.diff(bounds) * max(_step_ns(known, size) * source.steps / max(bounds[-1] - bounds[0], 1), 1e-3)
    rng = np.random.default_rng([seed, zlib.crc32(b"resampled")])
    chosen = np.append(0, rng.integers(min(1, source.steps - 1), source.steps, steps - 1))
    starts = by_model.times.start_ns.min() + np.append(0, np.cumsum(lasting[chosen])).astype(np.int64)
    sampler = Sampler()
    sampler.segment_bytes = by_model.transfers.segment_bytes
    places = _places(source, by_model)
    run = replace(by_model.run, run_id="resampled")
    book = Book(run, sampler)
    for number, step in enumerate(chosen.tolist()):
        part = lasting[step] / max(bounds[step + 1] - bounds[step], 1)
        for t in (t for t in source.transfers if t.step == step):
            start = starts[number] + int(max(t.start_ns - bounds[step], 0) * part)
            sent = max(round(t.transfer.bytes * size / source.model_bytes), 1)
            flow = book.flow(places[t.transfer.src], places[t.transfer.dst], Port.DATA)
            took = int((t.end_ns - t.start_ns) * part) + 1
            row = np.array([[flow], [start], [took], [sent], [0]], np.int64)
            book.send(row[0], row[1], row[2], row[3], row[4], acked=False)
    workers = by_model.times.start_ns.shape[1]
    begun, ended = (np.repeat(some[:, None], workers, 1) for some in (starts[:-1], starts[1:]))
    opened = book.open()
    return Traffic(run, StepTimes(begun, begun, ended, ended), book.connections, opened, book.transfers())


def _places(source: MeasuredRun, by_model: Traffic) -> dict[int, int]:
    """The host of the generated run in the place of each host of the measured one."""
    hosts = range(by_model.hosts)
    orders = [list(order or hosts) for order in (source.collective and source.collective.order, by_model.run.order)]
    return dict(zip(*orders, strict=True))


def _step_ns(runs: Sequence[MeasuredRun], size: int) -> float:
    """Length of a step at this S, on the line of those of the two next sizes."""
    lengths = grouped((run.model_bytes, (run.end_ns - run.begin_ns) / run.steps) for run in runs)
    return max(float(on_line([one for one, _ in lengths], size, [float(np.mean(some)) for _, some in lengths])), 0.0)


def _stretched(times: StepTimes, training_ns: float) -> StepTimes:
    """Steps of the same proportions from the same start."""
    begin_ns = times.start_ns.min()
    factor = training_ns / (times.end_ns.max() - begin_ns)
    columns = (times.start_ns, times.communicate_ns, times.communicated_ns, times.end_ns)
    return StepTimes(*(begin_ns + np.ceil((column - begin_ns) * factor).astype(np.int64) for column in columns))


def _exchanged(by_model: Traffic) -> dict[tuple[int, int], int]:
    """Payload of each pair from the first step on, on the connections of the exchange."""
    t = by_model.transfers
    port = np.array([c.server_port for c in by_model.connections])
    inside = (t.start_ns >= by_model.times.start_ns.min()) & (port[t.flow // 2] == Port.DATA)
    total = np.bincount(t.flow[inside], t.payload[inside], len(by_model.ends)).astype(np.int64)
    return {by_model.ends[flow]: int(total[flow]) for flow in np.flatnonzero(total)}


# --- the comparison


@dataclass(frozen=True)
class _Observed:
    """The flows that carry the exchange, in the training: payload of each pair (numbers of hosts), bursts and the
    silence between them, and payload of each base window."""

    pairs: dict[tuple[int, int], int]
    burst_bytes: Floats
    burst_ms: Floats
    gap_ms: Floats
    series: Floats
    steps: int
    window_ms: float


def _observe(dataset: Dataset, run_id: str, hosts: Sequence[str], gap_ms: float) -> _Observed:
    places = {host: i for i, host in enumerate(hosts)}
    payload = dataset.sql("SELECT src_ip, dst_ip, payload_bytes FROM pair_payload WHERE run_id = ?", [run_id])
    pairs = {(places[src], places[dst]): bytes_ for src, dst, bytes_ in payload.rows() if {src, dst} <= places.keys()}
    bursts = dataset.sql(_BURSTS, [gap_ms, run_id])
    span = dataset.sql("SELECT base_ns, begin_ns, end_ns FROM run_spans WHERE run_id = ?", [run_id])
    base_ns, begin_ns, end_ns = span.row(0)
    windows = dataset.sql(_SERIES, [base_ns / 1e6, run_id])
    number = (windows["window_start_ns"].to_numpy() - begin_ns) // base_ns
    series = np.zeros(max(int((end_ns - begin_ns) // base_ns), 1))
    inside = (number >= 0) & (number < len(series))
    np.add.at(series, number[inside], windows["payload_bytes"].to_numpy()[inside])
    steps = dataset.sql("SELECT count(DISTINCT step) FROM steps WHERE run_id = ?", [run_id]).item()
    if not steps:
        steps = dataset.sql("SELECT count(*) FROM inferred_steps() WHERE run_id = ? AND structured", [run_id]).item()
    gaps = bursts["gap_before_ms"].drop_nulls().to_numpy()
    sizes, lengths = bursts["payload_bytes"].to_numpy().astype(float), bursts["burst_ms"].to_numpy()
    return _Observed(pairs, sizes, lengths, gaps, series, steps, base_ns / 1e6)


_BURSTS = """
    WITH large AS (
        SELECT run_id, flow_id FROM gradient_payload
        QUALIFY training_payload_bytes >= 0.02 * max(training_payload_bytes) OVER (PARTITION BY run_id)
            AND training_payload_bytes > 0)
    SELECT b.payload_bytes, burst_ms, CASE WHEN start_ns - gap_before_ms * 1e6 >= begin_ns THEN gap_before_ms END
               AS gap_before_ms
    FROM flow_bursts(gap_ms := ?) AS b JOIN large USING (run_id, flow_id) JOIN run_spans AS s USING (run_id)
    WHERE run_id = ? AND b.end_ns > s.begin_ns AND b.start_ns < s.end_ns
    ORDER BY b.flow_id, b.burst"""
_SERIES = """
    SELECT window_start_ns, sum(payload_bytes)::BIGINT AS payload_bytes FROM pair_throughput(window_ms := ?)
    WHERE run_id = ? GROUP BY window_start_ns ORDER BY window_start_ns"""


def _distances(truth: _Observed, observed: _Observed) -> dict[str, Any]:
    from scipy.stats import ks_2samp, wasserstein_distance

    found: dict[str, Any] = {"pair_volume_error": _pair_error(truth.pairs, observed.pairs)}
    for name in ("burst_bytes", "burst_ms", "gap_ms"):
        measured, generated = (_some(getattr(one, name)) for one in (truth, observed))
        found[f"{name}_ks"] = float(ks_2samp(measured, generated).statistic)
        found[f"{name}_wasserstein"] = float(wasserstein_distance(measured, generated))
        if name == "burst_bytes":
            found[f"{name}_wasserstein"] /= max(float(measured.mean()), 1)
            found[f"{name}_ks_1pct"] = tolerant_ks(measured, generated, 0.01)
    period = max(round(len(truth.series) / truth.steps), 2)
    found["acf_rmse"] = acf_rmse(truth.series, observed.series, period)
    for side, one in (("measured", truth), ("generated", observed)):
        found[f"training_ms_{side}"] = len(one.series) * one.window_ms
    found["training_error"] = abs(found["training_ms_generated"] / found["training_ms_measured"] - 1)
    return found


def tolerant_ks(left: Floats, right: Floats, tolerance: float) -> float:
    """The Kolmogorov-Smirnov distance where values that differ by less than `tolerance` of them may be equal.

    Bursts of nearly one size have a distance of 1 as soon as they differ by a byte; this distance tolerates that
    (Levy's metric, with the distance along the values given and relative).
    """
    worst = 0.0
    for a, b in ((np.sort(left), np.sort(right)), (np.sort(right), np.sort(left))):
        # the part of a below x, less that of b below the slightly larger x, just after each value of a
        above = np.searchsorted(a, a, "right") / len(a) - np.searchsorted(b, a * (1 + tolerance), "right") / len(b)
        worst = max(worst, float(above.max()))
    return worst


def _some(values: Floats) -> Floats:
    """The values; where there are none, a single 0: no gap counts as a gap of length 0."""
    return values if len(values) else np.zeros(1)


def _pair_error(truth: dict[tuple[int, int], int], observed: dict[tuple[int, int], int]) -> float:
    """Mean over the pairs that carry the exchange of |generated - measured| / measured."""
    large = {pair: number for pair, number in truth.items() if number >= 0.02 * max(truth.values())}
    return float(np.mean([abs(observed.get(pair, 0) - number) / number for pair, number in large.items()]))


def acf(series: Floats, lags: int) -> Floats:
    """Autocorrelation at lags 1 to `lags`; 0 where nothing varies."""
    off = series - series.mean()
    size = 1 << (2 * len(off)).bit_length()
    power = np.abs(np.fft.rfft(off, size)) ** 2
    covariance = np.fft.irfft(power, size)[: lags + 1]
    covariance = np.pad(covariance, (0, lags + 1 - len(covariance)))
    found: Floats = covariance[1:] / covariance[0] if covariance[0] > 0 else np.zeros(lags)
    return found


def acf_rmse(truth: Floats, observed: Floats, lags: int) -> float:
    """Root of the mean squared difference of two autocorrelations over the lags of one step."""
    lags = min(lags, len(truth) - 1, len(observed) - 1)
    return float(np.sqrt(np.mean((acf(truth, lags) - acf(observed, lags)) ** 2))) if lags > 0 else 0.0
