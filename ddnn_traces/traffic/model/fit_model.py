"""Fits a traffic model to measured runs. schemas/documents/traffic_model.json describes each of its fields."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import polars as pl

from ddnn_traces.errors import UsageError
from ddnn_traces.query.dataset import Dataset
from ddnn_traces.traffic.model.document import FORMAT, VERSION, Document
from ddnn_traces.traffic.model.measure import MeasuredRun, measure, pair_matrix
from ddnn_traces.traffic.model.pacing import joint
from ddnn_traces.traffic.traffic import HEADER_BYTES, Floats, TimedTransfer, busier, wire_bytes
from ddnn_traces.version import __version__

_T = TypeVar("_T")

_POINTS = np.linspace(0, 1, 101)
#: Part of S from where on what a flow or pair sends before the first step is of a broadcast, and no burst is a message.
_BROADCAST = 0.05
_SAME_SIZE = 1.05  # times as large are transfers that count as of one size
_MOST_SIZES = 50
_SMALL = 0.01  # part of a transfer from where on a burst is no message


def fit(dataset: Dataset, runs: Sequence[str] | None = None) -> Document:
    """The traffic model of the runs of a dataset: all that have steps, or those named.

    Raises UsageError where no run has steps, and where the topology of one run, but not of all, is unknown.
    """
    wanted = list(runs or dataset.run_ids)
    if len(wanted) > 1:  # told before all are measured
        shapes = dataset.query("topology").filter(pl.col("run_id").is_in(wanted), topology="unknown")
        for run_id in shapes["run_id"].head(1):
            if measure(dataset, [run_id]):
                raise _alone(run_id)
    measured = measure(dataset, runs)
    if not measured:
        raise UsageError(
            f"{dataset.name}: no run has steps with an exchange, neither of a log nor in its traffic; put "
            "train_history.log next to the captures and ingest again, or choose other runs with --run"
        )
    return fit_measured(list(measured.values()))


def _alone(run_id: str) -> UsageError:
    return UsageError(
        f"{run_id}: its topology is unknown, so that its pairs are known only as they were measured; fit it alone "
        f"(--run {run_id}), and the others without it"
    )


def summary(document: Document) -> str:
    """The runs that a document was fitted to, in a sentence or two."""
    runs = document["provenance"]["runs"]
    fitted = f"fitted to {len(runs)} run{'s' if len(runs) > 1 else ''}"
    matrix = document["transfer_matrix"]
    if matrix is None:
        return fitted
    return (
        f"{fitted}. The topology of {runs[0]['run_id']} is unknown, so the model has its pairs and no law: it "
        f"generates traffic only for --topology unknown --workers {len(matrix)}"
    )


def fit_measured(runs: Sequence[MeasuredRun]) -> Document:
    """The same for one or more runs that are already measured. Raises UsageError."""
    unknown = [run.run_id for run in runs if run.collective is None]
    if unknown and len(runs) > 1:
        raise _alone(unknown[0])
    timed = [(_asynchronous if run.is_asynchronous else _synchronous)(run) for run in runs]
    pace = _median(t.ns_per_byte for t in timed)
    return {
        "format": FORMAT,
        "version": VERSION,
        "provenance": {
            "program": __version__,
            "sources": sorted({str(run.attributes["source"]) for run in runs}),
            "runs": [_origin(run) for run in runs],
        },
        "computation": _computation(timed, [run.model_bytes for run in runs]),
        "exchange": {
            "first_completion_ms": _by_size([t.first_completion for t in timed], pace),
            "completion_ms": _by_size([t.completion for t in timed], pace),
            "ns_per_byte": pace,
            "least_ns_per_byte": _median(t.least_ns_per_byte for t in timed),
            "stall_ms": _by_size([t.stall for t in timed], pace),
            "slow_pieces": _slow_pieces(runs),
        },
        "bursts": _bursts(runs),
        "packets": _packets(runs),
        "link": {"sent": joint([run.sent for run in runs]), "received": joint([run.received for run in runs])},
        "start_up": _start_up(runs),
        "tear_down": {"duration_ms": _median((run.last_ns - run.end_ns) / 1e6 for run in runs)},
        "control": _control(runs),
        "transfer_matrix": _rows(runs[0].matrix / runs[0].model_bytes) if unknown else None,
    }


def _origin(run: MeasuredRun) -> dict[str, Any]:
    collective = run.collective
    return {
        "run_id": run.run_id, "source": str(run.attributes["source"]),
        "topology": collective.topology if collective else "unknown", "shape": collective.shape if collective else "",
        "hosts": len(run.hosts), "workers": run.workers, "steps": run.steps, "steps_source": run.steps_source,
        "model_bytes": run.model_bytes, "model_bytes_source": run.model_bytes_source,
        "misplaced_share": _number(run.misplaced), "step_ms": _step_ms(run),
    }  # fmt: skip


def _step_ms(run: MeasuredRun) -> float | None:
    """Mean length of the steps behind the first, in which programs warm up; null of one step."""
    ends = [max((t.end_ns for t in run.transfers if t.step == step), default=0) for step in (0, run.steps - 1)]
    return _number((ends[1] - ends[0]) / 1e6 / (run.steps - 1)) if run.steps > 1 and ends[0] < ends[1] else None


# --- times


@dataclass(frozen=True)
class _Timing:
    """gap: silence of each worker before its communication, steps by workers, ns, NaN where unknown; first_gap: that of
    the first step, in which programs warm up, of the slowest worker. completion: from when both ends have finished the
    rounds before to the last byte; stall: from the first byte to the last."""

    gap: Floats
    first_gap: float
    first_completion: list[_Round]
    completion: list[_Round]
    stall: list[_Round]
    ns_per_byte: float
    least_ns_per_byte: float


@dataclass(frozen=True)
class _Round:
    """Of each transfer of a round: ns that it took, and the wire bytes on the busier of its two links."""

    took: Floats
    wire: Floats


def _asynchronous(run: MeasuredRun) -> _Timing:
    """A worker's gap is between two transfers that it receives."""
    last: dict[int, float] = {}
    gap = np.full((run.steps, run.workers), np.nan)
    rounds = []
    for t in sorted(run.transfers, key=lambda t: t.start_ns):
        dst = t.transfer.dst
        if dst in last and t.step < run.steps and dst < run.workers:
            gap[t.step, dst] = max(t.start_ns - last[dst], 0)
        last[dst] = t.end_ns
        rounds.append([t])
    wire = [_wire(run, round_) for round_ in rounds]
    usual, least = _pace(rounds, wire)
    begun = [run.communicate_ns[0], *(np.array([t.start_ns]) for t in run.transfers if t.step == 0)]
    return _Timing(gap, _first_gap(run, np.concatenate(begun)), [], [], _stalls(rounds, wire), usual, least)


def _synchronous(run: MeasuredRun) -> _Timing:
    """By the rule by which synthetic runs are generated: a transfer waits for both its ends (synthetic.py)."""
    hosts = len(run.hosts)
    gap = np.full((run.steps, run.workers), np.nan)
    first_completion: list[_Round] = []
    completion: list[_Round] = []
    finished = np.full(hosts, np.nan)
    steps = _by_step_and_round(run)
    every = [round_ for rounds in steps for round_ in rounds]
    wire = [_wire(run, round_) for round_ in every]
    usual, least = _pace(every, wire)
    sizes = iter(wire)
    first_gap = 0.0
    for step, rounds in enumerate(steps):
        begun = _begun(run, step, [t for round_ in rounds for t in round_])
        gap[step] = np.maximum(begun - finished, 0)[: run.workers]
        if step == 0:
            first_gap = _first_gap(run, begun[: run.workers])
        ready = np.where(np.arange(hosts) < run.workers, begun, -np.inf)
        for number, round_ in enumerate(rounds):
            waited = np.array([max(ready[t.transfer.src], ready[t.transfer.dst]) for t in round_])
            took, size = np.array([t.end_ns for t in round_]) - waited, next(sizes)
            known = np.isfinite(took)
            if known.any():
                (completion if number else first_completion).append(_Round(took[known], size[known]))
            for t in round_:
                for host in (t.transfer.src, t.transfer.dst):
                    ready[host] = np.nanmax([ready[host], t.end_ns])
        finished = np.where(np.isfinite(ready), ready, np.nan)
    return _Timing(gap, first_gap, first_completion, completion, _stalls(every, wire), usual, least)


def _first_gap(run: MeasuredRun, begun: Floats) -> float:
    """ns from the start of the first step, 0 where only its traffic tells that, until all have begun to communicate."""
    known = begun[np.isfinite(begun)] if run.steps_source == "log" else np.empty(0)
    return max(float(known.max()) - run.begin_ns, 0.0) if len(known) else 0.0


def _begun(run: MeasuredRun, step: int, transfers: Iterable[TimedTransfer]) -> Floats:
    """When each host began to communicate: by the worker's events, else its first transfer."""
    begun = np.full(len(run.hosts), np.nan)
    for t in transfers:
        for host in (t.transfer.src, t.transfer.dst):
            begun[host] = np.fmin(begun[host], t.start_ns)
    logged = run.communicate_ns[step]
    begun[: run.workers] = np.where(np.isnan(logged), begun[: run.workers], logged)
    return begun


def _by_step_and_round(run: MeasuredRun) -> list[list[list[TimedTransfer]]]:
    found: list[dict[int, list[TimedTransfer]]] = [{} for _ in range(run.steps)]
    for t in sorted(run.transfers, key=lambda t: t.round):
        found[t.step].setdefault(t.round, []).append(t)
    return [list(rounds.values()) for rounds in found]


def _wire(run: MeasuredRun, round_: Sequence[TimedTransfer]) -> Floats:
    """Wire bytes on the busier of each transfer's two links, which the transfers of a round share."""
    src, dst, payload = np.array([t.transfer for t in round_], np.int64).T[:, None]
    return busier(len(run.hosts), src, dst, payload, run.segment_bytes).ravel().astype(float)


def _pace(rounds: Sequence[Sequence[TimedTransfer]], wire: Sequence[Floats]) -> tuple[float, float]:
    """Median and (but for a hundredth) least ns a wire byte."""
    pace = np.array([t.end_ns - t.start_ns for round_ in rounds for t in round_]) / np.concatenate(wire)
    return float(np.median(pace)), float(np.quantile(pace, 0.01))


def _stalls(rounds: Sequence[Sequence[TimedTransfer]], wire: Sequence[Floats]) -> list[_Round]:
    return [
        _Round(np.array([t.end_ns - t.start_ns for t in round_], float), bytes_)
        for round_, bytes_ in zip(rounds, wire, strict=True)
    ]


def _slow_pieces(runs: Sequence[MeasuredRun]) -> list[float]:
    """Number of bursts of the transfers that take twice as long as their bytes, and two windows longer."""
    found = []
    for run in runs:
        wire = wire_bytes(np.array([t.transfer.bytes for t in run.transfers]), run.segment_bytes)
        lasting = np.array([t.end_ns - t.start_ns for t in run.transfers])
        alone = wire * float(np.quantile(lasting / wire, 0.25))
        slow = (lasting >= 2 * alone) & (lasting >= alone + 2 * run.window_ns)
        found += [t.pieces for t, is_slow in zip(run.transfers, slow, strict=True) if is_slow]
    return _quantiles(np.array(found or [1]))


def _by_size(runs: Sequence[Sequence[_Round]], pace: float) -> list[dict[str, Any]]:
    """What rounds take beyond the time of their bytes at `pace`, ns a byte, for each size of the runs' transfers."""
    sized = [(float(np.median(np.concatenate([round_.wire for round_ in run]))), run) for run in runs if run]
    groups = grouped(sized)
    found = [
        {"wire_bytes": _number(size), **_levels([[r.took - pace * r.wire for r in run] for run in some])}
        for size, some in (groups[i] for i in _evenly(len(groups)))
    ]
    return found or [{"wire_bytes": 0.0, **_levels([])}]


def grouped(sized: Iterable[tuple[float, _T]]) -> list[tuple[float, list[_T]]]:
    """What has one size but for _SAME_SIZE together, by the smallest of it, in order."""
    groups: list[tuple[float, list[_T]]] = []
    for size, one in sorted(sized, key=lambda pair: pair[0]):
        if groups and size <= _SAME_SIZE * groups[-1][0]:
            groups[-1][1].append(one)
        else:
            groups.append((size, [one]))
    return groups


def _evenly(number: int) -> list[int]:
    """Places of at most _MOST_SIZES of so many, the first and the last among them: the others lie between."""
    return sorted({round(place) for place in np.linspace(0, number - 1, min(number, _MOST_SIZES))})


def _levels(runs: Iterable[list[Floats]]) -> dict[str, Any]:
    """Quantiles of the value that the transfers of a round share (their median), and of each transfer's rest, ms.

    Each is the median over the runs of their quantiles: a run with losses among others does not make all slow.
    """
    shared, own = [], []
    for run in runs:
        rounds = [round_ / 1e6 for round_ in run]
        if rounds:
            middles = [np.median(round_) for round_ in rounds]
            rests = [round_ - middle for round_, middle in zip(rounds, middles, strict=True)]
            shared.append(np.quantile(middles, _POINTS))
            own.append(np.quantile(np.concatenate(rests), _POINTS))
    return {"shared": _medians(shared), "own": _medians(own)}


def _medians(quantiles: Sequence[Floats]) -> list[float]:
    """Median of each quantile over the runs."""
    if not quantiles:
        return [0.0, 0.0]
    return [_number(value) for value in np.median(np.stack(quantiles), 0)]


def _computation(timed: Sequence[_Timing], sizes: Sequence[int]) -> dict[str, Any]:
    """Gaps relative to their run's median and their worker's factor, and their correlations. sizes: S of each run."""
    medians, factors, relative, between, before = [], [], [], [], []
    sized: list[tuple[float, tuple[float, float]]] = []
    for t, size in zip(timed, sizes, strict=True):
        gap = t.gap[~np.isnan(t.gap).all(1)]
        median = float(np.nanmedian(gap)) if np.isfinite(gap).any() else 0.0
        sized.append((size, (median / 1e6, max(t.first_gap - median, 0) / 1e6)))
        if not median > 0:
            continue
        own = np.maximum(np.nanmedian(gap[:, ~np.isnan(gap).all(0)], 0), 1) / median
        rest = gap[:, ~np.isnan(gap).all(0)] / median / own
        medians.append(median / 1e6)
        factors += own.tolist()
        relative += rest[np.isfinite(rest)].tolist()
        between += _correlations(rest, rest, across=True)
        before += _correlations(rest[1:], rest[:-1], across=False)
    return {
        "median_ms": _median(medians),
        "by_size": [
            {
                "model_bytes": int(size),
                "median_ms": _median(run[0] for run in runs),
                "warm_up_ms": _median(run[1] for run in runs),
            }
            for size, runs in grouped(sized)
        ],
        "relative": _quantiles(np.array(relative or [1.0])),
        "worker_factors": _quantiles(np.array(factors or [1.0])),
        "worker_correlation": _number(float(np.clip(np.mean(between or [0]), 0, 1))),
        "autocorrelation": _number(float(np.clip(np.mean(before or [0]), -0.95, 0.95))),
    }


def _correlations(left: Floats, right: Floats, across: bool) -> list[float]:
    """Rank correlations of the workers with each other, or of each with itself; ranks, since outliers are common."""
    from scipy.stats import spearmanr

    workers = range(left.shape[1])
    pairs = itertools.combinations(workers, 2) if across else zip(workers, workers, strict=True)
    found = []
    for i, j in pairs:
        both = np.isfinite(left[:, i]) & np.isfinite(right[:, j])
        if both.sum() >= 5 and np.ptp(left[both, i]) > 0 and np.ptp(right[both, j]) > 0:
            found.append(float(spearmanr(left[both, i], right[both, j]).statistic))
    return found


# --- sizes


def _repeated(run: MeasuredRun) -> float:
    large = run.flows.filter(pl.col("is_large"))
    return float(large["retransmitted_bytes"].sum()) / max(float(large["payload_bytes"].sum()), 1)


def _bursts(runs: Sequence[MeasuredRun]) -> dict[str, Any]:
    """Stretches without an empty window, of the flows that carry the exchange, in the training."""
    number, relative, lasting, silent = [], [], [], []
    for run in runs:
        mine = run.bursts.filter(pl.col("is_large") & pl.col("start_ns").is_between(run.begin_ns, run.end_ns))
        number.append(mine.height / max(mine["flow_id"].n_unique(), 1) / run.steps)
        relative.append(mine["payload_bytes"].to_numpy() / run.model_bytes)
        lasting.append(mine["burst_ms"].to_numpy())
        silent.append(mine["gap_before_ms"].drop_nulls().to_numpy())
    return {
        "per_flow_and_step": _number(float(np.mean(number))),
        "model_share": _quantiles(np.concatenate(relative)),
        "duration_ms": _quantiles(np.concatenate(lasting)),
        "gap_ms": _quantiles(np.concatenate(silent)),
    }


def _packets(runs: Sequence[MeasuredRun]) -> dict[str, Any]:
    segments = [run.segment_bytes for run in runs]
    acks, wire = [], []
    for run, segment in zip(runs, segments, strict=True):
        large = run.flows.filter(pl.col("is_large"))
        back = large["reverse_flow_id"].drop_nulls().to_list()
        both = run.flows.filter(pl.col("is_large") | pl.col("flow_id").is_in(back))
        data = float(np.ceil(both["payload_bytes"].to_numpy() / segment).sum())
        acks.append(max(float(both["packets"].sum()) - data, 0) / data)
        wire.append(float((large["wire_bytes"] - large["payload_bytes"]).sum()) / float(large["packets"].sum()))
    return {
        "segment_bytes": sorted(segments)[len(segments) // 2],
        "header_bytes": HEADER_BYTES,
        "measured_header_bytes": _number(float(np.mean(wire))),
        "acks_per_segment": _number(float(np.mean(acks))),
        "retransmitted_share": _number(float(np.mean([_repeated(run) for run in runs]))),
    }


# --- everything but the exchange


def _start_up(runs: Sequence[MeasuredRun]) -> dict[str, Any]:
    """Traffic before the first step; a pair with a twentieth of the model or more takes part in a broadcast."""
    ratios, pairs, leads = [], [], []
    for run in runs:
        early = run.bursts.filter((pl.col("end_ns") <= run.begin_ns) & pl.col("src").is_not_null())
        volume = early.group_by("src", "dst").agg(pl.col("payload_bytes").sum(), pl.col("end_ns").max())
        large = volume.filter((pl.col("payload_bytes") >= _BROADCAST * run.model_bytes) & pl.col("dst").is_not_null())
        pairs.append(large.height / max(len(run.hosts) - 1, 1))
        if large.height:
            ratios.append(float(large["payload_bytes"].median()) / run.model_bytes)  # type: ignore[arg-type]
            leads.append(float(run.begin_ns - large["end_ns"].max()) / 1e6)  # type: ignore[operator]
    present = 2 * len(ratios) >= len(runs)
    return {
        "duration_ms": _median((run.begin_ns - run.first_ns) / 1e6 for run in runs),
        "broadcast_ratio": _median(ratios) if present else 0.0,
        "broadcast_pairs_per_worker": _median(pairs),
        "broadcast_lead_ms": _median(leads) if present else 0.0,
    }


_PHASES = ("start_up", "step", "tear_down")
_PORT_CLASSES = ("system", "registered", "dynamic")


def _control(runs: Sequence[MeasuredRun]) -> list[dict[str, Any]]:
    """Messages of the flows that do not carry the exchange, and small ones of those that do; one a window."""
    small = pl.concat([_messages(run) for run in runs])
    ordered = sum(len(run.hosts) * (len(run.hosts) - 1) for run in runs)
    found = []
    for phase, kind, port in itertools.product(_PHASES, ("answer", "exchange", "other"), _PORT_CLASSES):
        mine = small.filter(phase=phase, kind=kind, port_class=port)
        if mine.is_empty():
            continue
        times = sum(run.steps if phase == "step" else 1 for run in runs)
        pairs = mine.select("run_id", "src_ip", "dst_ip").unique().height
        ends = mine.select("run_id", pl.concat_list("src_ip", "dst_ip").alias("ends")).explode("ends")
        hub = ends.group_by("run_id", "ends").len().group_by("run_id").agg(pl.col("len").max())["len"].sum()
        found.append(
            {
                "phase": phase, "kind": kind, "port_class": port, "pattern": "hub" if hub == mine.height else "any",
                "pairs_share": _number(min(pairs / max(ordered, 1), 1.0)),
                "messages_per_pair": _number(mine.height / pairs / (times / len(runs))),
                "bytes": _quantiles(mine["payload_bytes"].to_numpy()),
            }
        )  # fmt: skip
    return found


def _messages(run: MeasuredRun) -> pl.DataFrame:
    server, is_early = pl.min_horizontal("src_port", "dst_port"), pl.col("end_ns") <= run.begin_ns
    # however slow, and so in however many bursts, a flow sends its part of the model before the first step
    early_bytes = pl.col("payload_bytes").filter(is_early).sum().over("flow_id")
    is_broadcast = is_early & (early_bytes >= _BROADCAST * run.model_bytes)
    small = run.bursts.filter(~is_broadcast & (pl.col("payload_bytes") < _BROADCAST * run.model_bytes))
    return pl.concat([small.filter(~pl.col("is_large")), _of_exchange(run)]).select(
        "run_id", "src_ip", "dst_ip", "payload_bytes",
        phase=_first_of(start_up=is_early, tear_down=pl.col("start_ns") > run.end_ns, step=True),
        kind=_first_of(answer=pl.col("is_answer"), exchange=pl.col("is_large"), other=True),
        port_class=_first_of(system=server < 1024, registered=server < 32768, dynamic=True),
    )  # fmt: skip


def _of_exchange(run: MeasuredRun) -> pl.DataFrame:
    """Bursts that are messages, of the flows that carry the exchange: the smallest of a pair, up to what it sends
    beyond its law.

    Size alone does not tell: senders that meet at a receiver send a transfer in hundreds of small bursts.
    """
    usual = float(np.median([t.transfer.bytes for t in run.transfers]))
    training = (pl.col("end_ns") > run.begin_ns) & (pl.col("start_ns") <= run.end_ns)
    small = run.bursts.filter(pl.col("is_large") & training & (pl.col("payload_bytes") < _SMALL * usual))
    beyond = _beyond_law(run)
    allowed = [beyond[src, dst] for src, dst in small.select("src", "dst").rows()]
    small = small.with_columns(pl.Series("allowed", allowed, pl.Float64)).sort("payload_bytes", "start_ns", "flow_id")
    kept = pl.col("payload_bytes").cum_sum().over("src", "dst") <= pl.col("allowed")
    return small.filter(kept).drop("allowed")


def _beyond_law(run: MeasuredRun) -> Floats:
    """Payload of each host to each other in all steps, without retransmissions, less that of the law."""
    sent = run.matrix * run.steps
    if run.collective is None:
        return np.zeros_like(sent)
    if run.is_asynchronous:  # whole models, as many as there were
        return sent - np.round(sent / run.model_bytes) * run.model_bytes
    return sent - pair_matrix(run.collective, run.model_bytes) * run.steps


def _first_of(**cases: pl.Expr | bool) -> pl.Expr:
    """The name of the first case that holds."""
    return pl.coalesce(pl.when(case).then(pl.lit(name)) for name, case in cases.items())


# --- numbers


def _quantiles(values: npt.NDArray[Any]) -> list[float]:
    """Evenly spaced quantiles from the least to the largest value."""
    if not len(values):
        return [0.0, 0.0]
    return [_number(value) for value in np.quantile(values, _POINTS)]


def _rows(matrix: Floats) -> list[list[float]]:
    return [[_number(value) for value in row] for row in matrix]


def _median(values: Iterable[float]) -> float:
    found = list(values)
    return _number(max(float(np.median(found)), 0.0)) if found else 0.0


def _number(value: float) -> float:
    """Six digits, which is more than the precision of a model."""
    return float(f"{float(value):.6g}")
