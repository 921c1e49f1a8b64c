"""Link utilization of a ring all-reduce and of background flows: Gao 2020, equations 5.1 to 5.5, tables 5.3 and 5.4."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from ddnn_traces.errors import UsageError

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


def table(
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
    for row in table(Ring()).iter_rows(named=True):
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
