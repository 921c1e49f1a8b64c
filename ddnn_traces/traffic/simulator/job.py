"""What is simulated: a training job on a network, with the thesis's defaults (Gao 2020, table 4.1)."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np

from ddnn_traces.errors import UsageError
from ddnn_traces.traffic.collectives import GROUPED
from ddnn_traces.traffic.simulator.layers import Buffer, LayerProfile, fuse, parts, thesis
from ddnn_traces.traffic.simulator.patterns import Fault, Pattern
from ddnn_traces.traffic.traffic import HEADER_BYTES, SEGMENT_BYTES, Floats, Ints, Run, packets_of

QUEUES = ("fifo", "priority")
DISTRIBUTIONS = ("normal", "lognormal", "exponential")
MOST_WORKERS = 100_000
#: Topologies (shape) whose two phases use opposite directions of each link, so that one buffer is aggregated while
#: another is distributed.
_PHASED = {("star", "worker"), ("star", "server"), ("sharded_parameter_server", "apart")}
_BYTES_PER_NS = 1 / 8000  # of 1 Mbit/s
_FUSION_BYTES = 6_280_000


@dataclass(frozen=True)
class SimulatedRun(Run):
    """A job to simulate. Fields of Run as there; steps are iterations, each from the end of one forward pass to the
    end of the next; model_bytes is the profile's.

    profile: layers. link_mbit: rate of each host's link (workers, then servers); empty: bandwidth_mbit for all, and
    server_mbit for parameter servers.
    delay_ms: propagation delay of a transfer, which counts in each round of a collective. queue: order in which
    buffers that are ready are exchanged, by the time they became ready or by their first layer. barrier: whether the
    forward pass waits for all gradients. fusion_bytes, fuse_from, split_tensors: as in profile.fuse; None: 6,280,000,
    or the largest tensor where that is larger and not split. partition_bytes:
    buffers are exchanged in parts of at most so many bytes; between two parts a buffer of higher priority may go.
    compression: gradient bytes over bytes exchanged. compute_factors: of each worker's computation. compute_jitter:
    relative standard deviation of the computation of a worker in an iteration, drawn from compute_distribution.
    update_ms: between a buffer's aggregation and its distribution (parameter servers), or after its exchange.
    server_barrier: whether the distribution waits for the aggregation of all buffers (Chang 2018, section 2).
    multicast, in_network_aggregation: distribution is sent once, aggregation received once (Chang 2018, section 3).
    header_bytes: of each packet of 1448 bytes; 0: as in the thesis, 66: Ethernet, IPv4, TCP. start_ms: of the job, and
    first_host: number of its first host, where several jobs share links. pattern: of today's training, in place of the
    collective, which `runs` states as the topology. fault: what slows one of its hosts. Raises UsageError
    for what cannot be.
    """

    run_id: str = "simulation"
    topology: str = "ring"
    workers: int = 2
    model_bytes: int = 0
    steps: int = 2
    bandwidth_mbit: float = 10_000.0
    delay_ms: float = 0.01
    framework: str = "simulation"
    backend: str = "simulation"
    learns: bool = False
    profile: LayerProfile = field(default_factory=thesis)
    link_mbit: tuple[float, ...] = ()
    server_mbit: float | None = None
    queue: str = "fifo"
    barrier: bool = True
    fusion_bytes: int | None = None
    fuse_from: str = "first"
    split_tensors: bool = False
    partition_bytes: int | None = None
    compression: float = 1.0
    compute_factors: tuple[float, ...] = ()
    compute_jitter: float = 0.0
    compute_distribution: str = "normal"
    update_ms: float = 0.0
    server_barrier: bool = False
    multicast: bool = False
    in_network_aggregation: bool = False
    header_bytes: int = 0
    start_ms: float = 0.0
    first_host: int = 0
    seed: int = 0
    pattern: Pattern | None = None
    fault: Fault | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "model_bytes", self.profile.model_bytes)
        object.__setattr__(self, "model", self.profile.name)
        self._check()
        super().__post_init__()

    def _check(self) -> None:
        """Raise UsageError that names the first field with an impossible value."""
        is_name = self.run_id not in ("", ".", "..") and not {"/", "\0"} & set(self.run_id)
        self._need("run_id", is_name, "a name that a folder can have, without /")
        for name in ("bandwidth_mbit", "compression"):
            self._need(name, 0 < getattr(self, name) < math.inf, "above 0")
        for name in ("delay_ms", "update_ms", "start_ms", "compute_jitter"):
            self._need(name, 0 <= getattr(self, name) < 1e9, "0 or more")
        self._need("workers", 2 <= self.workers <= MOST_WORKERS, f"2 to {MOST_WORKERS:,}")
        if self.steps < 1:
            raise UsageError(f"{self.run_id}: iterations = {self.steps}; it must be 1 or more")
        if self.pattern:
            self.pattern.check(self.workers)
        if self.fault:
            self.fault.place(self.labels)
        self._need("queue", self.queue in QUEUES, " or ".join(QUEUES))
        self._need("fuse_from", self.fuse_from in ("first", "last"), "first or last")
        self._need("compute_distribution", self.compute_distribution in DISTRIBUTIONS, " or ".join(DISTRIBUTIONS))
        self._need("partition_bytes", self.partition_bytes is None or self.partition_bytes >= 1, "1 or more")
        self._need("header_bytes", 0 <= self.header_bytes <= HEADER_BYTES, f"0 to {HEADER_BYTES}")
        self._need("first_host", self.first_host >= 0, "0 or more")
        self._need("loss_pct", self.loss_pct == 0, "0: the simulator loses nothing (simulate throughput has a law)")
        hosts = self.collective.hosts
        for name, number, of in (("link_mbit", hosts, "host"), ("compute_factors", self.workers, "worker")):
            values = getattr(self, name)
            fits = not values or (len(values) == number and all(0 < value < math.inf for value in values))
            self._need(name, fits, f"{number} numbers above 0, one a {of}")
        servers = bool(self.is_phased and self.collective.own_servers)
        for name in ("multicast", "in_network_aggregation", "server_barrier", "server_mbit"):
            self._need(name, servers or not getattr(self, name), "left out without a parameter server of its own")
        self._need("server_mbit", self.server_mbit is None or 0 < self.server_mbit < math.inf, "above 0")
        self._need("server_mbit", self.server_mbit is None or not self.link_mbit, "left out where link_mbit is given")
        takes = {"servers": self.topology == "sharded_parameter_server", "group_size": self.topology in GROUPED}
        for name, is_taken in takes.items():
            self._need(name, is_taken or getattr(self, name) is None, f"left out for the topology {self.topology}")
        if self.is_asynchronous and self.queue == "priority":
            raise UsageError("queue = 'priority': asynchronous pair averaging pulls whole models; give fifo")

    def _need(self, name: str, holds: bool, what: str) -> None:
        if not holds:
            raise UsageError(f"{self.run_id}: {name} = {getattr(self, name)!r}; it must be {what}")

    @property
    def source(self) -> str:
        return "simulation"

    @property
    def undeclared(self) -> frozenset[str]:
        """A recorded trace has no model and no batch."""
        unknown = ("model", "model_bytes", "model_params", "model_size_mb", "batch_size", "optimizer")
        return frozenset(unknown if self.pattern and self.pattern.trace else ())

    @property
    def variant(self) -> str:
        """The scheduling of the exchange, in words: what other columns of runs do not say."""
        if self.pattern:
            return f"{self.pattern.name}-{self.pattern.channels}" if self.pattern.channels > 1 else self.pattern.name
        words = [self.queue, "barrier" if self.barrier else "no_barrier"]
        words += [name for name in ("server_barrier", "multicast", "in_network_aggregation") if getattr(self, name)]
        return "-".join(words)

    @property
    def fault_kind(self) -> str | None:
        """As the column of runs; none, where a pattern has no fault."""
        return self.fault.kind if self.fault else "none" if self.pattern else None

    @property
    def fault_host(self) -> str | None:
        return self.fault.host if self.fault else None

    @property
    def fault_strength(self) -> float | None:
        return self.fault.strength if self.fault else None

    @property
    def fault_from_step(self) -> int | None:
        return self.fault.from_step if self.fault else None

    @property
    def fault_to_step(self) -> int | None:
        return self.fault.to_step if self.fault else None

    @property
    def stated_topology(self) -> str:
        return self.pattern.name if self.pattern else super().stated_topology

    @property
    def outside(self) -> tuple[str | None, str | None]:
        return ("switch", "other") if self.has_switch else (None, None)

    @property
    def has_switch(self) -> bool:
        """Whether the network copies or sums: the switch is then a host of its own."""
        return self.multicast or self.in_network_aggregation

    @property
    def is_asynchronous(self) -> bool:
        """Whether each worker exchanges by itself (pair averaging by pulling)."""
        return (self.topology, self.collective.shape) == ("pair_averaging", "pull")

    @property
    def is_phased(self) -> bool:
        """Whether aggregation and distribution of different buffers go on at the same time."""
        return (self.topology, self.collective.shape) in _PHASED

    @property
    def is_redrawn(self) -> bool:
        """Whether each iteration has other pairs."""
        return self.topology == "pair_averaging"

    @property
    def most_fused_bytes(self) -> int:
        """fusion_bytes, or its default."""
        if self.fusion_bytes is not None:
            return self.fusion_bytes
        return max(_FUSION_BYTES, 0 if self.split_tensors else int(self.profile.gradient_bytes.max()))

    @cached_property
    def buffers(self) -> list[Buffer]:
        """What is exchanged, in the order of layers, with the bytes that are exchanged of each."""
        fused = fuse(self.profile, self.most_fused_bytes, self.fuse_from, self.split_tensors)
        most = self.partition_bytes or self.most_fused_bytes
        return [
            Buffer(buffer.first, buffer.last, part)
            for buffer in fused
            for part in parts(max(1, math.ceil(buffer.bytes / self.compression)), most)
        ]

    def rates(self) -> Floats:
        """Rate of each host's link in bytes a ns, either way."""
        servers = len(self.collective.own_servers)
        of_servers = (self.server_mbit or self.bandwidth_mbit,) * servers
        rates = self.link_mbit or ((self.bandwidth_mbit,) * self.workers + of_servers)
        if self.fault and self.fault.kind == "slow_link":
            place = self.fault.place(self.labels)
            rates = (*rates[:place], min(rates[place], self.fault.strength), *rates[place + 1 :])
        return np.array(rates) * _BYTES_PER_NS

    def factors(self) -> Floats:
        """Factor of the computation of each worker in each iteration and, in row 0, the forward pass before the first:
        steps + 1 by workers."""
        shape = (self.steps + 1, self.workers)
        own = np.array(self.compute_factors or (1.0,)) * np.ones(shape)
        if not self.compute_jitter:
            return own
        rng = np.random.default_rng(self.seed)
        jitter = self.compute_jitter
        if self.compute_distribution == "normal":
            drawn = np.maximum(rng.normal(1, jitter, shape), 0.01)
        elif self.compute_distribution == "lognormal":
            sigma = math.sqrt(math.log1p(jitter**2))
            drawn = rng.lognormal(-(sigma**2) / 2, sigma, shape)
        else:  # a fixed part, and an exponential one of that standard deviation
            drawn = 1 + rng.exponential(jitter, shape)
        return own * drawn

    def wire(self, payload: Ints) -> Ints:
        """Bytes of these payloads with the headers of their packets."""
        return payload + self.header_bytes * packets_of(payload, SEGMENT_BYTES)

    def parameters(self) -> dict[str, Any]:
        """As in Run; of the profile name and sums."""
        shown = {one.name: getattr(self, one.name) for one in fields(self) if one.name != "profile"}
        shown |= {name: shown[name] and asdict(shown[name]) for name in ("pattern", "fault")}
        if self.pattern:  # of a path its last part: it may lie in a user's folder
            shown["pattern"]["trace"] = Path(self.pattern.trace).name
        profile = self.profile
        return shown | {
            "fusion_bytes": self.most_fused_bytes,
            "profile": profile.name,
            "layers": profile.layers,
            "forward_ms": float(profile.forward_ns.sum()) / 1e6,
            "backward_ms": float(profile.backward_ns.sum()) / 1e6,
        }

    def changed(self, **values: Any) -> Self:
        """The same run with other values."""
        return replace(self, **values)
