"""Facts of a measured run that a traffic model needs, from queries: which collective it runs, who exchanges what, when.

A transfer is the payload that one host sends to another in one round of the collective. Windows do not mark transfers;
they are found by counting: a pair's payload in the training, in equal parts for the steps, in a step in the parts of
the law, and each bound moved to a pause that is near. The collective, and which host takes which of its places, are
those that fit the measured pairs best.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from ddnn_traces.errors import UsageError
from ddnn_traces.query.dataset import Dataset
from ddnn_traces.traffic.collectives import GROUPED, SHAPES, Collective, Transfer
from ddnn_traces.traffic.model.pacing import Peaks, peaks
from ddnn_traces.traffic.traffic import Floats, TimedTransfer

#: Hosts up to which all permutations are tried; beyond, the ring's order and the root decide.
MOST_TRIED = 7

#: Part of a transfer's bytes that may be a message before or after it.
_EDGE = 0.02
_BIG_BURST = 20_000  # bytes from where on a burst shows how full its packets are
_LARGEST_SEGMENT = 65_160  # 45 segments of 1448: the largest super-frame of Linux
#: Part of the largest flow's payload from where on a flow carries the exchange.
_LARGE = 0.02
_PROBE_BYTES = 1 << 24  # large enough for exact shares of a law


@dataclass
class MeasuredRun:
    """Facts of a run.

    steps: number of steps in which all workers take part. hosts: addresses, workers first. matrix: payload a step that
    each host sends to each other, without retransmissions. collective: None where the topology is unknown. misplaced:
    part of the payload that is elsewhere than the collective puts it. model_bytes: S; model_bytes_source: declared, law
    (by the law of the topology from the volume) or volume (a host's largest, where no law is known). communicate_ns:
    when each worker began to communicate, steps by workers, NaN where there are no events. bursts: of all flows
    (flow_bursts), with the flows' ends as numbers, is_large (it carries the exchange) and is_answer (the other
    direction of such a flow). sent,
    received: how much hosts sent and received at most.
    """

    run_id: str
    attributes: dict[str, Any]
    hosts: list[str]
    workers: int
    collective: Collective | None
    misplaced: float
    matrix: Floats
    model_bytes: int
    model_bytes_source: str
    steps: int
    steps_source: str
    window_ns: int
    first_ns: int
    begin_ns: int
    end_ns: int
    last_ns: int
    communicate_ns: Floats
    bursts: pl.DataFrame
    flows: pl.DataFrame
    sent: Peaks
    received: Peaks
    transfers: list[TimedTransfer] = field(default_factory=list)

    @property
    def is_asynchronous(self) -> bool:
        """Whether no worker waits for another."""
        return self.collective is not None and self.collective.topology == "pair_averaging"

    @property
    def segment_bytes(self) -> int:
        """Payload of a full packet: from MSS where packets are about that size, else from large bursts (TSO)."""
        big = self.bursts.filter(pl.col("is_large") & (pl.col("payload_bytes") >= _BIG_BURST))
        mss = self.flows.filter(pl.col("is_large"))["mss"].drop_nulls()
        full = float(mss.median()) - 12 if len(mss) else 1448.0  # type: ignore[arg-type]
        if big.is_empty():
            return round(full)
        usual = float((big["payload_bytes"] / big["packets"]).quantile(0.75))  # type: ignore[arg-type]
        return round(full) if usual <= 1.1 * full else min(round(usual), _LARGEST_SEGMENT)


def measure(dataset: Dataset, run_ids: Sequence[str] | None = None) -> dict[str, MeasuredRun]:
    """Facts of each run that has steps, of a log or inferred, with an exchange. Raises UsageError for unknown runs."""
    wanted = list(run_ids) if run_ids else dataset.run_ids
    if unknown := sorted(set(wanted) - set(dataset.run_ids)):
        raise UsageError(f"{dataset.name}: no run named {unknown[0]}; 'ddnn-traces runs {dataset.name}' lists them")
    shapes = {row["run_id"]: row for row in dataset.query("topology").iter_rows(named=True)}
    rings = dataset.query("ring_order").filter(pl.col("is_ring"))
    found = {}
    for run_id in wanted:
        run = _measure(dataset, run_id, shapes[run_id], rings.filter(pl.col("run_id") == run_id))
        if run is not None and run.transfers:
            found[run_id] = run
    return found


def _measure(dataset: Dataset, run_id: str, shape: dict[str, Any], ring: pl.DataFrame) -> MeasuredRun | None:
    steps, steps_source = _steps(dataset, run_id)
    if steps.is_empty():
        return None
    flows = dataset.sql(_FLOWS, [run_id])
    if flows["training_payload_bytes"].sum() == 0:
        return None
    # a burst is a stretch without an empty window
    window_ns, first_ns, last_ns = dataset.sql(_SPAN, [run_id]).row(0)
    bursts = dataset.sql(_BURSTS, [window_ns / 1e6, run_id])
    attributes = dataset.sql("SELECT * FROM runs WHERE run_id = ?", [run_id]).row(0, named=True)
    names = dataset.sql("SELECT * FROM hosts WHERE run_id = ? ORDER BY rank NULLS LAST, host_ip", [run_id])
    number = steps["step"].n_unique()
    hosts, workers = _hosts(names, flows, set(steps["worker"].drop_nulls()))
    places = {host: i for i, host in enumerate(hosts)}
    bursts = _numbered(bursts, flows, places)
    begin_ns, end_ns = int(steps["start_ns"].min()), int(steps["end_ns"].max())  # type: ignore[arg-type]
    # data that the last step leaves in the sockets is sent after its end
    matrix = _matrix(bursts, flows, (begin_ns, end_ns + (end_ns - begin_ns) // (2 * number)), len(places), number)
    given = tuple(places[host] for host in ring.sort("position")["host_ip"] if host in places)
    if not given and shape["root_ip"] in places:
        given = (places[shape["root_ip"]],)
    # between two hosts every topology is the same
    topology = "star" if shape["hosts"] == 2 else shape["topology"]
    collective, misplaced = place(topology, matrix, workers, given)
    size, size_source = _model_bytes(attributes, collective, matrix)
    communicate_ns = _communicate(dataset, run_id, hosts[:workers], steps)
    rounds = _rounds(collective, matrix, size, number)
    if rounds != number:
        matrix, number = matrix * (number / rounds), rounds
        communicate_ns = np.full((rounds, workers), np.nan)
    sent, received = (_link(dataset, run_id, int(window_ns), host) for host in ("src_ip", "dst_ip"))
    run = MeasuredRun(
        run_id, attributes, hosts, workers, collective, misplaced, matrix, size, size_source, number, steps_source,
        int(window_ns), int(first_ns), begin_ns, end_ns, int(last_ns), communicate_ns, bursts, flows,
        sent, received,
    )  # fmt: skip
    run.transfers = _transfers(run)
    return run


_SPAN = "SELECT base_ns, first_ns, last_ns FROM run_spans WHERE run_id = ?"
_BURSTS = "SELECT * FROM flow_bursts(gap_ms := ?) WHERE run_id = ? ORDER BY flow_id, burst"
_FLOWS = f"""
    SELECT f.run_id, f.flow_id, f.reverse_flow_id, f.src_ip, f.dst_ip, f.src_port, f.dst_port, f.is_initiator,
           f.packets, f.wire_bytes, f.payload_bytes, f.retransmitted_bytes, f.mss, g.training_payload_bytes,
           g.training_payload_bytes >= {_LARGE} * max(g.training_payload_bytes) OVER ()
               AND g.training_payload_bytes > 0 AS is_large
    FROM flows AS f JOIN gradient_payload AS g USING (run_id, flow_id)
    WHERE f.run_id = ? ORDER BY f.flow_id"""


_HOST_WINDOWS = """
    SELECT {host}, window_start_ns // ? AS place, sum(w.wire_bytes)::DOUBLE AS wire_bytes
    FROM flow_windows AS w JOIN flows AS f USING (run_id, flow_id)
    WHERE run_id = ? GROUP BY ALL ORDER BY ALL"""


def _link(dataset: Dataset, run_id: str, window_ns: int, host: str) -> Peaks:
    """How much hosts sent (`src_ip`) or received (`dst_ip`) at most; the host outside counts as one of them."""
    rows = dataset.sql(_HOST_WINDOWS.format(host=host), [window_ns, run_id])
    first = rows["place"].min()
    series = []
    for _, mine in rows.group_by(host, maintain_order=True):
        places = mine["place"].to_numpy() - first
        series.append(np.bincount(places, mine["wire_bytes"].to_numpy()).astype(np.float64))
    return peaks(series, window_ns)


def _steps(dataset: Dataset, run_id: str) -> tuple[pl.DataFrame, str]:
    columns = "SELECT worker, step, start_ns, end_ns FROM"
    logged = dataset.sql(f"{columns} steps WHERE run_id = ? ORDER BY worker, step", [run_id])
    meets = dataset.sql("SELECT span_source FROM run_spans WHERE run_id = ?", [run_id])["span_source"].to_list()
    if not logged.is_empty() and meets == ["training"]:
        return logged, "log"
    inferred = dataset.sql(
        "SELECT NULL::VARCHAR AS worker, step, start_ns, end_ns FROM inferred_steps() WHERE run_id = ? AND structured "
        "ORDER BY step",
        [run_id],
    )
    return inferred, "traffic"


def _hosts(names: pl.DataFrame, flows: pl.DataFrame, logging: set[str]) -> tuple[list[str], int]:
    """Hosts of the exchange, workers first, and the number of workers: hosts that log steps, where only some do."""
    large = flows.filter(pl.col("is_large"))
    taking_part = set(large["src_ip"]) | set(large["dst_ip"])
    rows = [row for row in names.iter_rows(named=True) if row["host_ip"] in taking_part]
    servers = {row["host_ip"] for row in rows if row["role"] == "parameter_server"}
    silent = {row["host_ip"] for row in rows if row["label"] not in logging}
    if not servers and 0 < len(silent) < len(rows) / 2:
        servers = silent
    return sorted((row["host_ip"] for row in rows), key=lambda host: host in servers), len(rows) - len(servers)


def _matrix(bursts: pl.DataFrame, flows: pl.DataFrame, span_ns: tuple[int, int], hosts: int, steps: int) -> Floats:
    """Payload a step, less the part of each flow that was retransmitted: neither S nor a law includes it."""
    matrix = np.zeros((hosts, hosts))
    fresh = 1 - pl.col("retransmitted_bytes") / pl.col("payload_bytes")
    large = flows.filter(pl.col("is_large")).select("flow_id", fresh.alias("fresh"))
    inside = (pl.col("end_ns") > span_ns[0]) & (pl.col("start_ns") < span_ns[1])
    sent = bursts.filter(inside).join(large, on="flow_id")
    for src, dst, payload in sent.select("src", "dst", pl.col("payload_bytes") * pl.col("fresh")).rows():
        matrix[src, dst] += payload / steps
    return matrix


def _model_bytes(attributes: dict[str, Any], collective: Collective | None, matrix: Floats) -> tuple[int, str]:
    if attributes["model_bytes"]:
        return int(attributes["model_bytes"]), "declared"
    if collective is None:
        return max(int(matrix.sum(1).max()), 1), "volume"
    law = pair_matrix(collective, _PROBE_BYTES)
    used = law > 0
    return max(round(float(matrix[used].sum() / law[used].sum() * _PROBE_BYTES)), 1), "law"


def _rounds(collective: Collective | None, matrix: Floats, size: int, steps: int) -> int:
    """How often all workers take part: in each step, or in fewer where one worker at a time uses the server."""
    if collective is None or collective.topology != "star":
        return steps
    clients = collective.workers - (collective.shape == "worker")
    part = float(matrix.sum() / pair_matrix(collective, size).sum())
    if clients < 2 or not 0.7 < part * clients < 1.4:
        return steps
    return max(round(steps / clients), 1)


def _communicate(dataset: Dataset, run_id: str, workers: list[str], steps: pl.DataFrame) -> Floats:
    begins = dataset.sql(
        "SELECT host_ip, step, min(start_ns) AS start_ns FROM events JOIN hosts USING (run_id) "
        "WHERE run_id = ? AND label = worker AND kind IN ('communicate', 'allreduce') GROUP BY ALL",
        [run_id],
    )
    numbers = {step: i for i, step in enumerate(sorted(steps["step"].unique()))}
    found = np.full((len(numbers), len(workers)), np.nan)
    for host, step, start_ns in begins.rows():
        if host in workers and step in numbers:
            found[numbers[step], workers.index(host)] = start_ns
    return found


def _numbered(bursts: pl.DataFrame, flows: pl.DataFrame, places: dict[str, int]) -> pl.DataFrame:
    """Bursts with the numbers of their ends (null for other hosts) and the kind of their flow."""
    large = flows.filter(pl.col("is_large"))
    answers = set(large["reverse_flow_id"].drop_nulls()) - set(large["flow_id"])
    return bursts.with_columns(
        pl.col("src_ip").replace_strict(places, default=None, return_dtype=pl.Int64).alias("src"),
        pl.col("dst_ip").replace_strict(places, default=None, return_dtype=pl.Int64).alias("dst"),
        pl.col("flow_id").is_in(large["flow_id"].to_list()).alias("is_large"),
        pl.col("flow_id").is_in(list(answers)).alias("is_answer"),
    )


# --- transfers


def _transfers(run: MeasuredRun) -> list[TimedTransfer]:
    wanted = _law_transfers(run)
    data = run.bursts.filter(pl.col("is_large") & (pl.col("end_ns") > run.begin_ns)).sort("start_ns")
    begin, end = _unsmeared(run, data)
    src, dst = data["src"].to_numpy(), data["dst"].to_numpy()
    payload = data["payload_bytes"].to_numpy().astype(float)
    asynchronous = run.is_asynchronous
    found = []
    for (i, j), parts in wanted.items():
        mine = (src == i) & (dst == j)
        if not mine.any():
            continue
        sent = np.concatenate([[0], np.cumsum(payload[mine])])
        sizes = np.array([size for _, size in parts])
        if asynchronous:  # as many transfers as there were
            number, numbers = max(round(sent[-1] / sizes[0]), 1), np.zeros(1)
            sizes = np.full(number, sizes[0])
        else:
            number, numbers = run.steps, np.array([number for number, _ in parts])
            sizes = np.tile(sizes, run.steps)
        bounds = _bounds(sizes, len(numbers), sent, begin[mine], end[mine])
        part = np.diff(bounds)
        start_ns, first = _when(bounds[:-1] + _EDGE * part, sent, begin[mine], end[mine], last=False)
        end_ns, last = _when(bounds[1:] - _EDGE * part, sent, begin[mine], end[mine], last=True)
        pieces = np.maximum(last - first + 1, 1)
        for k, size in enumerate(sizes):
            step, round_ = divmod(k, len(numbers))
            times = (float(start_ns[k]), float(max(end_ns[k], start_ns[k])))
            transfer = Transfer(i, j, int(size))
            found.append(TimedTransfer(transfer, step, int(numbers[round_]), *times, int(pieces[k])))
    return _by_receiver(found) if asynchronous else found


def _law_transfers(run: MeasuredRun) -> dict[tuple[int, int], list[tuple[int, int]]]:
    """Round and payload of the transfers of each pair in a step."""
    wanted: dict[tuple[int, int], list[tuple[int, int]]] = {}
    if run.collective is None or run.is_asynchronous:
        size = np.full_like(run.matrix, run.model_bytes) if run.collective else run.matrix
        used = run.matrix > _LARGE * run.matrix.max()
        return {(int(i), int(j)): [(0, max(int(size[i, j]), 1))] for i, j in zip(*np.nonzero(used), strict=True)}
    for number, round_ in enumerate(run.collective.rounds(run.model_bytes)):
        for transfer in round_:
            wanted.setdefault((transfer.src, transfer.dst), []).append((number, transfer.bytes))
    return wanted


def _unsmeared(run: MeasuredRun, data: pl.DataFrame) -> tuple[Floats, Floats]:
    """Start and end of bursts, ns: one that lasts d touches d / window + 1 windows on average.

    None is shorter than at the rate of the fastest ones.
    """
    begin, end = data["start_ns"].to_numpy().astype(float), data["end_ns"].to_numpy().astype(float)
    payload = data["payload_bytes"].to_numpy().astype(float)
    large = payload > 0.01 * payload.max(initial=1)
    fastest = np.quantile((payload / (end - begin))[large], 0.99) if large.any() else 1.0
    lasting = np.minimum(np.maximum(end - begin - run.window_ns, payload / fastest), end - begin)
    spare = (end - begin - lasting) / 2
    return begin + spare, end - spare


def _bounds(sizes: Floats, a_step: int, sent: Floats, begin: Floats, end: Floats) -> Floats:
    """Bytes sent before each transfer and after the last, moved to pauses that are near, first between steps.

    Retransmissions and messages make a step a bit larger than another; the pauses show where it ends.
    """
    pause = begin[1:] - end[:-1]
    step_bytes = np.add.reduceat(sizes, np.arange(0, len(sizes), a_step))
    even = np.concatenate([[0], np.cumsum(step_bytes)]) * sent[-1] / sizes.sum()
    steps = _snapped(even, sent, pause)
    inside = sizes.reshape(-1, a_step) / step_bytes[:, None]
    within = np.cumsum(inside, 1)[:, :-1] * np.diff(steps)[:, None] + steps[:-1, None]
    return _snapped(np.concatenate([np.column_stack([steps[:-1], within]).ravel(), steps[-1:]]), sent, pause)


def _snapped(bounds: Floats, sent: Floats, pause: Floats) -> Floats:
    """Each bound at the longest pause within a tenth of the distance to the nearer of its neighbours."""
    moved = bounds.copy()
    for k in range(1, len(bounds) - 1):
        reach = 0.1 * min(bounds[k] - bounds[k - 1], bounds[k + 1] - bounds[k])
        low, high = np.searchsorted(sent[1:-1], [bounds[k] - reach, bounds[k] + reach])
        if high > low:
            moved[k] = sent[1 + low + int(np.argmax(pause[low:high]))]
    return moved


def _when(wanted: Floats, sent: Floats, begin: Floats, end: Floats, last: bool) -> tuple[Floats, npt.NDArray[np.int64]]:
    """When so many bytes had been sent, ns, and in which burst; sent: bytes before each burst."""
    burst = np.clip(np.searchsorted(sent, wanted, "left" if last else "right") - 1, 0, len(begin) - 1)
    inside = (wanted - sent[burst]) / np.maximum(sent[burst + 1] - sent[burst], 1)
    return begin[burst] + np.clip(inside, 0, 1) * (end - begin)[burst], burst


def _by_receiver(transfers: list[TimedTransfer]) -> list[TimedTransfer]:
    """Asynchronous ones: a worker's k-th transfer is of its step k."""
    numbers: defaultdict[int, Iterator[int]] = defaultdict(itertools.count)
    in_order = sorted(transfers, key=lambda t: t.start_ns)
    return [replace(t, step=next(numbers[t.transfer.dst]), round=0) for t in in_order]


# --- the collective


def place(topology: str, matrix: Floats, workers: int, given: tuple[int, ...]) -> tuple[Collective | None, float]:
    """The collective of a topology that fits best the payload that each host sends to each other (`matrix`), and the
    part of the payload that is elsewhere than the collective puts it.

    workers: how many of the hosts, from the first, compute; the others are parameter servers. given: hosts in the
    order of the ring, or the root first; it decides where several fit equally. None, and 1, where there is no such law,
    or it has another number of hosts.
    """
    best: tuple[Collective | None, float] = (None, 1.0)
    for shape in SHAPES.get(topology, ()):
        for collective in _candidates(topology, shape, workers, len(matrix)):
            ordered, misplaced = _best_order(collective, matrix, given)
            if best[0] is None or misplaced < best[1] - 0.01:
                best = ordered, misplaced
    return best


def _candidates(topology: str, shape: str, workers: int, hosts: int) -> list[Collective]:
    servers = hosts - workers if shape == "apart" else None
    sizes = range(2, workers) if topology in GROUPED else ()
    found = []
    for size in sizes or (None,):
        with suppress(UsageError):
            found.append(Collective(topology, workers, shape, servers, size))
    return [collective for collective in found if collective.hosts == hosts]


def _best_order(collective: Collective, matrix: Floats, given: tuple[int, ...]) -> tuple[Collective, float]:
    law = pair_matrix(collective, _PROBE_BYTES)
    law, wanted = law / max(law.sum(), 1), matrix / max(matrix.sum(), 1)
    hosts = len(matrix)
    orders: list[tuple[int, ...]] = [(*given, *(host for host in range(hosts) if host not in given))]
    if collective.topology in ("clique", "pair_averaging"):  # all places are alike
        orders = [tuple(range(hosts))]
    elif hosts <= MOST_TRIED:
        orders += list(itertools.permutations(range(hosts)))
    places = np.array(orders)
    off = np.abs(wanted[places[:, :, None], places[:, None, :]] - law).sum((1, 2)) / 2
    best = int(np.flatnonzero(off <= off.min() + 0.01)[0])
    order = () if orders[best] == tuple(range(hosts)) else orders[best]
    return replace(collective, order=order), float(off[best])


def pair_matrix(collective: Collective, size_bytes: int) -> Floats:
    """Payload that each host sends to each other in a step; of pair averaging, on average."""
    matrix = np.zeros((collective.hosts, collective.hosts))
    if collective.topology == "pair_averaging" and collective.workers > 1:
        lonely = collective.shape == "exchange" and collective.workers % 2 == 1
        number = collective.workers - lonely
        matrix[:] = size_bytes * number / (collective.workers * (collective.workers - 1))
        np.fill_diagonal(matrix, 0)
        return matrix
    for round_ in collective.rounds(size_bytes):
        for transfer in round_:
            matrix[transfer.src, transfer.dst] += transfer.bytes
    return matrix
