"""What is simulated on ns-3: a job of the simulator with TCP, queues and background flows (Gao 2020, section 5)."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from ddnn_traces.errors import UsageError
from ddnn_traces.traffic.ns3.background import WEB_SEARCH, Flows, Sizes, arrivals, read_sizes
from ddnn_traces.traffic.simulator import specification
from ddnn_traces.traffic.simulator.job import SimulatedRun
from ddnn_traces.traffic.simulator.utilization import Ring

#: Type of ns-3's TCP of each congestion control.
TCP_TYPES = {"newreno": "ns3::TcpNewReno", "cubic": "ns3::TcpCubic", "linuxreno": "ns3::TcpLinuxReno"}
QUEUE_DISCS = ("prio", "pfifo_fast")
#: Type of service of the training against that of the background: the same band, or a lower one.
TRAINING_TOS = {"same": 0x10, "lower": 0x08}
BACKGROUND_TOS = 0x10
MOST_WORKERS = 250

_NUMBER = (int, float)
#: Keys beside those of the simulator.
KEYS: dict[str, tuple[type, ...]] = {
    "training_priority": (str,), "flows_per_s": _NUMBER, "flow_sizes": (str,), "seconds": _NUMBER, "warm_up_s": _NUMBER,
    "cool_down_s": _NUMBER, "segment_bytes": (int,), "buffer_bytes": (int,), "queue_disc": (str,),
    "queue_limit": (str,), "congestion_control": (str,), "initial_window": (int,), "min_rto_ms": _NUMBER,
    "delayed_ack": (int,), "time_limit_s": _NUMBER,
}  # fmt: skip
#: Keys that stand for others.
SHORT_KEYS: dict[str, tuple[type, ...]] = {"preset": (str,), "compute_to_network": _NUMBER}
#: Values by preset. The thesis's fusion buffer (5,333,329 bytes) is 4 bytes less than the largest layer of its formula.
PRESETS: dict[str, dict[str, Any]] = {
    "thesis": {
        "workers": 8, "layers": 50, "fusion_bytes": 5_333_333, "fuse_from": "last", "queue": "priority",
        "barrier": False, "seconds": 12, "warm_up_s": 2, "cool_down_s": 2, "segment_bytes": 1380,
        "buffer_bytes": 32 << 20, "queue_disc": "pfifo_fast", "queue_limit": "1000p", "congestion_control": "newreno",
        "initial_window": 10,
    },
}  # fmt: skip
PRESETS["fast"] = PRESETS["thesis"] | {
    "segment_bytes": 8940, "buffer_bytes": 1 << 20, "queue_disc": "prio", "queue_limit": "1500000B",
}  # fmt: skip


@dataclass(frozen=True)
class Ns3Run(SimulatedRun):
    """A job to simulate packet by packet. Fields of SimulatedRun as there; the topology is a ring.

    delay_ms: between any two hosts, half of it on each of the two links. seconds: simulated time at which the run ends,
    whatever is under way. training_priority: same or lower, against the background. flows_per_s: background flows that
    begin at each host. flow_sizes: file of their distribution; None: web search. warm_up_s, cool_down_s: what begins
    in the first, or ends (flows: begins) in the last, so many seconds is in no measure. segment_bytes: payload of a
    full packet; buffer_bytes: of each socket, either way. queue_disc: prio has three queues, each with queue_limit
    (packets, 1000p, or bytes, 1500000B), pfifo_fast one limit for three bands. initial_window: segments.
    min_rto_ms: shortest retransmission timeout; None: twice the longest round trip, all queues full (section 5.4.1).
    delayed_ack: packets an acknowledgement. time_limit_s: wall clock. Raises UsageError for what cannot be.
    """

    run_id: str = "ns3"
    delay_ms: float = 0.02
    framework: str = "ns3"
    backend: str = "ns3"
    seconds: float | None = None
    training_priority: str = "same"
    flows_per_s: float = 0.0
    flow_sizes: str | None = None
    warm_up_s: float = 0.0
    cool_down_s: float = 0.0
    segment_bytes: int = 8940
    buffer_bytes: int = 1 << 20
    queue_disc: str = "prio"
    queue_limit: str = "1500000B"
    congestion_control: str = "newreno"
    initial_window: int = 10
    min_rto_ms: float | None = None
    delayed_ack: int = 2
    time_limit_s: float = 3600.0
    planned_steps: int | None = None

    def _check(self) -> None:
        super()._check()
        self._need("topology", self.topology == "ring", "ring")
        self._need("workers", self.workers <= MOST_WORKERS, f"2 to {MOST_WORKERS}")
        for name, choices in (
            ("training_priority", TRAINING_TOS), ("queue_disc", QUEUE_DISCS), ("congestion_control", TCP_TYPES),
        ):  # fmt: skip
            self._need(name, getattr(self, name) in choices, " or ".join(choices))
        for name, most in (
            ("segment_bytes", 65_000),
            ("buffer_bytes", 1 << 30),
            ("initial_window", 1000),
            ("delayed_ack", 100),
        ):
            self._need(name, 1 <= getattr(self, name) <= most, f"1 to {most:,}")
        self._need("buffer_bytes", self.buffer_bytes >= 2 * self.segment_bytes, "two segments or more")
        self._need("queue_limit", bool(re.fullmatch(r"[1-9]\d{0,8}[pB]", self.queue_limit)), "as 1000p or 1500000B")
        for name in ("flows_per_s", "warm_up_s", "cool_down_s"):
            self._need(name, 0 <= getattr(self, name) < 1e6, "0 or more")
        self._need("time_limit_s", 0 < self.time_limit_s < 1e6, "above 0")
        self._need("min_rto_ms", self.min_rto_ms is None or 0 < self.min_rto_ms < 1e6, "above 0")
        self._need("seconds", self.seconds is None or 0 < self.seconds < 1e5, "above 0")
        self._need("flows_per_s", not self.flows_per_s or self.seconds is not None, "left out without seconds")
        measured = (self.seconds or math.inf) - self.warm_up_s - self.cool_down_s
        self._need("warm_up_s", measured > 0, "with cool_down_s less than seconds")
        for name in ("header_bytes", "first_host", "start_ms"):
            self._need(name, not getattr(self, name), "left out: packets have their headers, and a job its own links")
        smallest = min(buffer.bytes for buffer in self.buffers)
        self._need("workers", smallest >= self.workers, f"at most {smallest}, the bytes of the smallest buffer")

    @property
    def source(self) -> str:
        return "ns3"

    @property
    def variant(self) -> str:
        return "-".join([super().variant, f"{self.training_priority}_priority", self.queue_disc])

    @property
    def rto_ms(self) -> float:
        """The shortest retransmission timeout, ms."""
        if self.min_rto_ms is not None:
            return self.min_rto_ms
        number = int(self.queue_limit[:-1])
        full = number if self.queue_limit.endswith("B") else number * self.segment_bytes
        queues = 2 * 2 * full / float(self.rates().min()) / 1e6  # there and back, at a host and at the switch
        return 2 * (queues + 2 * self.delay_ms)

    @cached_property
    def sizes(self) -> Sizes:
        """The distribution of the background flows' sizes."""
        return read_sizes(Path(self.flow_sizes)) if self.flow_sizes else WEB_SEARCH

    def background(self) -> Flows:
        """The background flows: the same ones at every priority."""
        return arrivals(self.workers, self.flows_per_s, self.seconds or 0.0, self.sizes, self.seed)


def job(values: Mapping[str, Any]) -> Ns3Run:
    """The run of keys and values: those of the simulator, KEYS and SHORT_KEYS. Raises UsageError."""
    if "jobs" in values:
        raise UsageError("jobs: ns3 runs one job; give its keys at the top")
    values = _with_preset(values)
    ratio = values.pop("compute_to_network", None)
    if ratio is not None:
        values["compute_ms"] = _compute_ms(values, ratio)
    found = specification.fields(values, KEYS)
    if values.get("seconds") is not None and values.get("iterations") is None:
        found["steps"] = _most_steps(Ns3Run(**found))
    return Ns3Run(**found)


def _with_preset(values: Mapping[str, Any]) -> dict[str, Any]:
    given = {name: value for name, value in values.items() if value is not None}
    name = given.pop("preset", None)
    if name is not None and name not in PRESETS:
        raise UsageError(f"preset = {name!r}; it must be {' or '.join(PRESETS)}")
    return {**PRESETS.get(name, {}), **given}


def _compute_ms(values: Mapping[str, Any], ratio: Any) -> float:
    """The computation of an iteration by equation 5.1, of the size that the profile is named after (table 5.3)."""
    if values.get("compute_ms") is not None:
        raise UsageError("compute_to_network: gives compute_ms, too; give one of both")
    if not isinstance(ratio, _NUMBER) or isinstance(ratio, bool) or not 0 < ratio < 1e6:
        raise UsageError(f"compute_to_network = {ratio!r}; it must be above 0")
    run = Ns3Run(**specification.fields(values, KEYS))
    nominal = 100_000_000 if run.profile.name == "thesis" else run.model_bytes
    return ratio * Ring(values.get("model_bytes") or nominal, run.workers, run.bandwidth_mbit).network_ms


def _most_steps(run: Ns3Run) -> int:
    """More iterations than fit into the simulated time: an iteration lasts at least as long as its computation."""
    passes = float(run.profile.forward_ns.sum() + run.profile.backward_ns.sum()) * max(run.compute_factors, default=1.0)
    return 2 * math.ceil((run.seconds or 0) * 1e9 / passes) + 2
