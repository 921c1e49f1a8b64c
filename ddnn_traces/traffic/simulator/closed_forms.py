"""What can be computed in closed form: samples a second by rate, delay and loss, and the utilization of links.

Samples a second are what cheng and farhat measured. A transfer of TCP is modelled simply. It sends at the least of: the
rate of the link; a window a round trip; where packets are lost, MSS / RTT * sqrt(3/2) / sqrt(p) (Mathis, Semke, Mahdavi
& Ott 1997). That law is of a Reno-like control without timeouts: above some percent of loss it is far too fast (Padhye
et al. 1998), and for BBR, which does not slow down for a loss, too slow. With slow_start each transfer begins with ten
segments (RFC 6928), doubled each round trip (RFC 5681): a sender begins anew when it was idle for a retransmission
timeout, 200 ms or more on Linux.

Utilization is of a ring all-reduce and of background flows: Gao 2020, equations 5.1 to 5.5, tables 5.3 and 5.4.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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


def mathis_mbit(rtt_ms: float, loss: float) -> float:
    """Rate in Mbit/s at a share of lost packets: Mathis et al. 1997; infinite without loss or round trip."""
    if loss == 0 or rtt_ms == 0:
        return math.inf
    return SEGMENT_BYTES * 8 / (rtt_ms * 1e3) * math.sqrt(1.5 / loss)


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


#: Mean size of a flow of web search, MB (section 5.4.4).
FLOW_MB = 1.7
COMPUTE_TO_NETWORK = (16.0, 8.0, 4.0, 2.0)
FLOW_RATES = (23.0, 46.0, 92.0, 184.0)
#: Tables 5.3 and 5.4 as the thesis prints them, by ratio of computation to transmission, in the order of FLOW_RATES.
#: Its 72.5% stands where the sum of the two lines above it is 62.5%.
PRINTED_ITERATION_MS = {16: 2240, 8: 1120, 4: 560, 2: 280}
PRINTED_UTILIZATION_PCT = {16: 6.25, 8: 12.5, 4: 25, 2: 50}
PRINTED_BACKGROUND_PCT = (3.125, 6.25, 12.5, 25)
PRINTED_TOTAL_PCT = {
    16: (9.375, 12.5, 18.75, 31.25), 8: (15.63, 18.76, 25.01, 37.5), 4: (28.13, 31.25, 37.51, 50.02),
    2: (53.13, 56.25, 72.5, 75),
}  # fmt: skip
PRINTED_RATIO = {
    16: (0.5, 1, 2, 4), 8: (0.25, 0.5, 1, 2), 4: (0.125, 0.25, 0.5, 1), 2: (0.0625, 0.125, 0.25, 0.5),
}  # fmt: skip


@dataclass(frozen=True)
class Ring:
    """A ring all-reduce of model_bytes among workers over links of bandwidth_mbit."""

    model_bytes: int = 100_000_000
    workers: int = 8
    bandwidth_mbit: float = 10_000.0

    def __post_init__(self) -> None:
        if self.model_bytes < 1 or self.workers < 2 or not self.bandwidth_mbit > 0:
            raise UsageError("model_bytes and bandwidth_mbit must be above 0, workers 2 or more")

    @property
    def bytes_per_iteration(self) -> float:
        """Bytes that a worker sends in an iteration, 2 (1 - 1/N) S (equation 4.1)."""
        return 2 * (1 - 1 / self.workers) * self.model_bytes

    @property
    def network_ms(self) -> float:
        """Time of these bytes on a link."""
        return self.bytes_per_iteration * 8 / (self.bandwidth_mbit * 1e3)

    def compute_to_network(self, iteration_ms: float) -> float:
        """Equation 5.1: an iteration's time, taken for its computation, over the time of its transmission."""
        return iteration_ms / self.network_ms

    def utilization(self, iteration_ms: float) -> float:
        """Equation 5.2, a share: the reciprocal."""
        return self.network_ms / iteration_ms

    def background_utilization(self, flows_per_s: float, flow_mb: float = FLOW_MB) -> float:
        """Equation 5.3, a share: flows of flow_mb that begin at this rate."""
        return flows_per_s * flow_mb * 8 / self.bandwidth_mbit

    def background_ratio(self, flows_per_s: float, iteration_ms: float, flow_mb: float = FLOW_MB) -> float:
        """Equation 5.5: bytes a second of the background flows over those of the all-reduce."""
        return flows_per_s * flow_mb * 1e6 / (self.bytes_per_iteration / (iteration_ms / 1e3))


def utilization(
    ring: Ring, compute_to_network: Sequence[float] = COMPUTE_TO_NETWORK, flow_rates: Sequence[float] = FLOW_RATES
) -> pl.DataFrame:
    """Tables 5.3 and 5.4: a row a ratio of computation to transmission and a rate of background flows.

    iteration_ms; utilization, background_utilization and total_utilization (equation 5.4) are shares of the link.
    Raises UsageError for ratios and rates that are not above 0.
    """
    if not all(value > 0 for value in (*compute_to_network, *flow_rates)):
        raise UsageError("compute-to-network and flow-rate must be above 0")
    rows = []
    for ratio in compute_to_network:
        iteration = ratio * ring.network_ms
        for rate in flow_rates:
            own, others = ring.utilization(iteration), ring.background_utilization(rate)
            rows.append((ratio, iteration, rate, own, others, own + others, ring.background_ratio(rate, iteration)))
    names = (
        "compute_to_network", "iteration_ms", "flows_per_s", "utilization", "background_utilization",
        "total_utilization", "background_ratio",
    )  # fmt: skip
    return pl.DataFrame(rows, schema=names, orient="row")


def beside_thesis() -> pl.DataFrame:
    """Tables 5.3 and 5.4 as the equations give them, as the thesis prints them, and ours less printed.

    NAME, NAME_printed, NAME_difference of iteration_ms, utilization_pct, background_pct, total_pct, background_ratio.
    """
    rows = []
    for row in utilization(Ring()).iter_rows(named=True):
        ratio, place = int(row["compute_to_network"]), FLOW_RATES.index(row["flows_per_s"])
        both = {
            "iteration_ms": (row["iteration_ms"], PRINTED_ITERATION_MS[ratio]),
            "utilization_pct": (100 * row["utilization"], PRINTED_UTILIZATION_PCT[ratio]),
            "background_pct": (100 * row["background_utilization"], PRINTED_BACKGROUND_PCT[place]),
            "total_pct": (100 * row["total_utilization"], PRINTED_TOTAL_PCT[ratio][place]),
            "background_ratio": (row["background_ratio"], PRINTED_RATIO[ratio][place]),
        }
        found = {name: row[name] for name in ("compute_to_network", "flows_per_s")}
        for name, (ours, printed) in both.items():
            found |= {name: ours, f"{name}_printed": float(printed), f"{name}_difference": ours - printed}
        rows.append(found)
    return pl.DataFrame(rows)
