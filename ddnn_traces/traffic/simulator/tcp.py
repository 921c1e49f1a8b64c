"""Samples a second by rate, delay and loss of the links, in closed form: what cheng and farhat measured.

A transfer of TCP is modelled simply. It sends at the least of: the rate of the link; a window a round trip; where
packets are lost, Mathis, Semke, Mahdavi & Ott 1997: MSS / RTT * sqrt(3/2) / sqrt(p). That law is of a Reno-like control
without timeouts: above some percent of loss it is far too fast (Padhye et al. 1998), and for BBR, which does not slow
down for a loss, too slow. With slow_start each transfer begins with ten segments (RFC 6928), doubled each round trip
(RFC 5681): a sender begins anew when it was idle for a retransmission timeout, 200 ms or more on Linux.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import product
from typing import Any

import polars as pl

from ddnn_traces.errors import UsageError
from ddnn_traces.query.dataset import Dataset
from ddnn_traces.traffic.collectives import Collective
from ddnn_traces.traffic.traffic import HEADER_BYTES, SEGMENT_BYTES

INITIAL_SEGMENTS = 10
#: Half of Linux's default limit of a receive buffer (tcp_rmem, 6 MiB), which the kernel offers as a window.
WINDOW_BYTES = 3 << 20
AXES = ("bandwidth_mbit", "delay_ms", "loss_pct")
_KEYS = {
    "model_bytes": None, "compute_ms": None, "batch_size": 32, "workers": 2, "topology": "ring", "shape": "",
    "window_bytes": WINDOW_BYTES, "slow_start": False, "bandwidth_mbit": [1000.0], "delay_ms": [1.0], "loss_pct": [0.0],
}  # fmt: skip


def mathis_mbit(rtt_ms: float, loss: float, segment_bytes: int = SEGMENT_BYTES) -> float:
    """Rate in Mbit/s at a share of lost packets: Mathis et al. 1997; infinite without loss or round trip."""
    if loss == 0 or rtt_ms == 0:
        return math.inf
    return segment_bytes * 8 / (rtt_ms * 1e3) * math.sqrt(1.5 / loss)


def transfer_ms(
    size: float, bandwidth_mbit: float, delay_ms: float, loss: float = 0.0, window_bytes: float = WINDOW_BYTES,
    slow_start: bool = False,
) -> float:  # fmt: skip
    """Time of a transfer of `size` payload bytes, to its last byte's arrival. delay_ms: one way; loss: a share."""
    rtt_ms = 2 * delay_ms
    mbit = min(bandwidth_mbit / (1 + HEADER_BYTES / SEGMENT_BYTES), mathis_mbit(rtt_ms, loss))
    if rtt_ms:
        mbit = min(mbit, window_bytes * 8 / (rtt_ms * 1e3))
    full = mbit * 1e3 / 8 * rtt_ms  # bytes of a round trip at that rate
    sent, window, elapsed = 0.0, float(INITIAL_SEGMENTS * SEGMENT_BYTES), 0.0
    while slow_start and window < full and sent + window < size:
        sent, window, elapsed = sent + window, 2 * window, elapsed + rtt_ms
    return elapsed + (size - sent) * 8 / (mbit * 1e3) + delay_ms


def step_ms(
    collective: Collective, model_bytes: int, compute_ms: float, bandwidth_mbit: float, delay_ms: float, loss: float,
    window_bytes: float = WINDOW_BYTES, slow_start: bool = False,
) -> float:  # fmt: skip
    """Time of a step: computation, then the collective's rounds one after the other, each as long as its busiest link
    needs for all its bytes."""
    total = compute_ms
    for round_ in collective.rounds(model_bytes):
        loads: dict[tuple[str, int], int] = {}
        for t in round_:
            for end in (("out", t.src), ("in", t.dst)):
                loads[end] = loads.get(end, 0) + t.bytes
        total += transfer_ms(max(loads.values()), bandwidth_mbit, delay_ms, loss, window_bytes, slow_start)
    return total


def throughput(values: Mapping[str, Any], measured: Dataset | None = None) -> pl.DataFrame:
    """Samples a second for each rate, delay and loss: a row a combination, beside what was measured where there is it.

    values: model_bytes and compute_ms (forward and backward pass), and batch_size, workers, topology, shape,
    window_bytes, slow_start; bandwidth_mbit, delay_ms, loss_pct are lists. measured: a dataset whose query sweep_cells
    has cells of this batch size, topology and number of workers. Raises UsageError for other keys and impossible
    values.
    """
    given = _checked(values)
    collective = Collective(given["topology"], given["workers"], given["shape"])
    rows = []
    for rate, delay, loss in product(*(given[name] for name in AXES)):
        tcp = given["window_bytes"], given["slow_start"]
        step = step_ms(collective, given["model_bytes"], given["compute_ms"], rate, delay, loss / 100, *tcp)
        rows.append((rate, delay, loss, step, given["workers"] * given["batch_size"] / step * 1e3))
    frame = pl.DataFrame(rows, schema=[*AXES, "step_ms", "samples_per_s"], orient="row")
    return frame if measured is None else frame.join(_measured(measured, given), on=list(AXES), how="left")


def _checked(values: Mapping[str, Any]) -> dict[str, Any]:
    if unknown := sorted(values.keys() - _KEYS.keys()):
        raise UsageError(f"{unknown[0]}: no such key; there are {', '.join(_KEYS)}")
    given: dict[str, Any] = {**_KEYS, **values}
    for name in AXES:
        given[name] = [float(value) for value in (given[name] if isinstance(given[name], list) else [given[name]])]
    for name, least in (("model_bytes", 1), ("compute_ms", 0), ("batch_size", 1), ("workers", 1), ("window_bytes", 1)):
        value = given[name]
        if not isinstance(value, (int, float)) or isinstance(value, bool) or not least <= value < 1e15:
            raise UsageError(f"{name} = {value!r}; it must be {least} or more")
    if not isinstance(given["slow_start"], bool):
        raise UsageError(f"slow_start = {given['slow_start']!r}; it must be true or false")
    bounds = {"bandwidth_mbit": (0, math.inf), "delay_ms": (-1, 1e6), "loss_pct": (-1, 100)}
    for name, (above, below) in bounds.items():
        if wrong := [value for value in given[name] if not max(above, 0) <= value < below or value == above]:
            raise UsageError(f"{name} = {wrong[0]!r}; it must be {'above 0' if above == 0 else f'0 to {below:g}'}")
    return given


def _measured(dataset: Dataset, given: Mapping[str, Any]) -> pl.DataFrame:
    """Cells of the dataset's sweep with this topology, batch size, number of workers and size of the model."""
    cells = dataset.query("sweep_cells")
    sizes = dataset.sql("SELECT DISTINCT model, model_bytes FROM runs WHERE model_bytes IS NOT NULL")
    names = {"star": ("star", "parameter_server") if given["shape"] == "server" else ("star",)}
    topologies = names.get(given["topology"], (given["topology"],))
    there = (
        cells.join(sizes, on="model")
        .filter(pl.col("topology").is_in(topologies), pl.col("workers") == given["workers"])
        .filter(pl.col("batch_size") == given["batch_size"], pl.col("model_bytes") == given["model_bytes"])
    )
    return there.select(
        *(pl.col(name).cast(pl.Float64) for name in AXES), "model", "framework_backend", "congestion_control",
        measured_samples_per_s="samples_per_s",
    )  # fmt: skip
