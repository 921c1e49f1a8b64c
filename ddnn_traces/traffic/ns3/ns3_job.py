"""What is simulated on ns-3: a job of the simulator with TCP, queues and background flows (Gao 2020, section 5).

Background flows are Poisson arrivals at each host, with sizes drawn from a distribution (section 5.4.2).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ddnn_traces.errors import UsageError
from ddnn_traces.text_files import MOST_TABLE, read_text
from ddnn_traces.traffic.simulator import specification
from ddnn_traces.traffic.simulator.closed_forms import Ring
from ddnn_traces.traffic.simulator.exchange import phases, timed
from ddnn_traces.traffic.simulator.job import SimulatedRun
from ddnn_traces.traffic.traffic import Floats, Ints

_MOST_FLOWS = 1_000_000
#: Limits of small and large flows, bytes (Gao 2020, section 5.4.5).
SMALL, LARGE = 100_000, 10_000_000


@dataclass(frozen=True)
class Sizes:
    """A cumulative distribution of flow sizes: bytes, and the share of the flows that have at most so many.

    Between two points it is linear. Raises UsageError unless both rise, from a share of 0 to 1.
    """

    name: str
    bytes: tuple[float, ...]
    share: tuple[float, ...]

    def __post_init__(self) -> None:
        points = len(self.bytes) == len(self.share) >= 2 and np.isfinite([*self.bytes, *self.share]).all()
        rises = points and (np.diff(self.bytes) > 0).all() and (np.diff(self.share) >= 0).all()
        if not rises or self.bytes[0] < 0 or self.share[0] != 0 or self.share[-1] != 1:
            raise UsageError(
                f"{self.name}: is no distribution of flow sizes; give lines of bytes and cumulative share, both "
                "rising, the share from 0 to 1"
            )

    @cached_property
    def mean(self) -> float:
        """Mean size, bytes."""
        middle = (np.array(self.bytes[1:]) + self.bytes[:-1]) / 2
        return float((np.diff(self.share) * middle).sum())

    def drawn(self, rng: np.random.Generator, number: int) -> Ints:
        """So many sizes, at least a byte each."""
        sizes = np.interp(rng.random(number), self.share, self.bytes)
        return np.maximum(np.rint(sizes), 1).astype(np.int64)


#: Flows of a web search (DCTCP, pFabric), as the thesis interprets them: 1.71 MB in the mean.
WEB_SEARCH = Sizes(
    "web search",
    (4e3, 10e3, 20e3, 30e3, 50e3, 80e3, 200e3, 1e6, 2e6, 5e6, 10e6, 30e6),
    (0, 0.15, 0.2, 0.3, 0.4, 0.53, 0.6, 0.7, 0.8, 0.9, 0.97, 1),
)


def read_sizes(path: Path) -> Sizes:
    """The distribution of a file: a line a point, bytes and cumulative share, separated by a comma or spaces.

    Lines that begin with # are comments. Raises UsageError.
    """
    lines = [line for line in read_text(path, MOST_TABLE, UsageError).splitlines() if line.strip()]
    rows = [line.replace(",", " ").split() for line in lines if not line.startswith("#")]
    try:
        points = [(float(size), float(share)) for size, share in rows]
    except ValueError as error:
        raise UsageError(f"{path}: has a line that is not two numbers, bytes and cumulative share") from error
    return Sizes(str(path), tuple(size for size, _ in points), tuple(share for _, share in points))


@dataclass(frozen=True)
class Flows:
    """Background flows in the order of their start, as parallel arrays: ns, sending and receiving host, bytes."""

    start_ns: Ints
    src: Ints
    dst: Ints
    bytes: Ints

    def __len__(self) -> int:
        return len(self.start_ns)


def arrivals(hosts: int, per_host_s: float, seconds: float, sizes: Sizes, seed: int) -> Flows:
    """Flows that begin within `seconds`: at each host a Poisson process of rate per_host_s, to any other host alike.

    The same for the same arguments. Raises UsageError for more than a million.
    """
    if hosts * per_host_s * seconds > _MOST_FLOWS:
        raise UsageError(f"flows_per_s = {per_host_s:g}: more than {_MOST_FLOWS:,} background flows; give less")
    parts = [_of_host(host, hosts, per_host_s, seconds, sizes, seed) for host in range(hosts)]
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
    order = np.argsort(columns[0], kind="stable")
    return Flows(*(column[order] for column in columns))


def _of_host(
    host: int, hosts: int, per_host_s: float, seconds: float, sizes: Sizes, seed: int
) -> tuple[Ints, Ints, Ints, Ints]:
    rng = np.random.default_rng([seed, host])
    begins = _poisson(rng, per_host_s, seconds)
    others = (host + rng.integers(1, hosts, len(begins))) % hosts
    start = np.rint(begins * 1e9).astype(np.int64)
    return start, np.full(len(begins), host, np.int64), others, sizes.drawn(rng, len(begins))


def _poisson(rng: np.random.Generator, rate: float, seconds: float) -> Floats:
    """Times of a Poisson process, s: their number is Poisson, and they are uniform."""
    return np.sort(rng.random(rng.poisson(rate * seconds)) * seconds)


#: Type of ns-3's TCP of each congestion control.
TCP_TYPES = {
    "newreno": "ns3::TcpNewReno", "cubic": "ns3::TcpCubic", "linuxreno": "ns3::TcpLinuxReno", "dctcp": "ns3::TcpDctcp",
}  # fmt: skip
QUEUE_DISCS = ("prio", "pfifo_fast", "fq_codel")
#: Type of service of the training against that of the background: the same band, or a lower one; with layers and
#: deadline it is the lower one but for exchanges that go in the band of the background.
TRAINING_TOS = {"same": 0x10, "lower": 0x08, "layers": 0x08, "deadline": 0x08}
BACKGROUND_TOS = 0x10
#: Shortest retransmission timeout of Linux (TCP_RTO_MIN), ms.
LOW_RTO_MS = 200.0
TOPOLOGIES = ("ring", "star")
#: Of a packet of the stream: PPP, IPv4, UDP; bytes.
UDP_HEADERS = 2 + 20 + 8
MOST_WORKERS = 250
_NO_SSTHRESH = 2**32 - 1  # bytes, of ns-3: slow start has no limit

_NUMBER = (int, float)
#: Keys beside those of the simulator.
KEYS: dict[str, tuple[type, ...]] = {
    "training_priority": (str,), "flows_per_s": _NUMBER, "flow_sizes": (str,), "seconds": _NUMBER, "warm_up_s": _NUMBER,
    "cool_down_s": _NUMBER, "segment_bytes": (int,), "buffer_bytes": (int,), "queue_disc": (str,),
    "queue_limit": (str,), "congestion_control": (str,), "initial_window": (int,), "initial_ssthresh": (int,),
    "sack": (bool,), "min_rto_ms": _NUMBER,
    "training_min_rto_ms": _NUMBER, "delayed_ack": (int,), "time_limit_s": _NUMBER, "leaves": (int,), "spines": (int,),
    "oversubscription": _NUMBER, "ecn_threshold": (int,), "high_layers": (int,), "other_jobs": (int,),
    "other_jobs_after_ms": _NUMBER, "skip_tolerance": _NUMBER, "stream_mbit": _NUMBER, "stream_packet_bytes": (int,),
}  # fmt: skip
#: Keys that stand for others.
SHORT_KEYS: dict[str, tuple[type, ...]] = {"preset": (str,), "compute_to_network": _NUMBER, "straggler": _NUMBER}
_FIELD_KEYS: specification.Keys = {**specification.KEYS, **KEYS}
ALL_KEYS: specification.Keys = {**_FIELD_KEYS, **SHORT_KEYS}
CONDITIONS: specification.Conditions = {
    "compute_distribution": specification.CONDITIONS["compute_distribution"],
    "seed": (lambda values: values.get("compute_jitter") or values.get("flows_per_s"), "compute_jitter or flows_per_s"),
    "flow_sizes": (lambda values: values.get("flows_per_s"), "flows_per_s"),
    "spines": (lambda values: (values.get("leaves") or 1) > 1, "leaves = 2 or more"),
    "other_jobs_after_ms": (lambda values: values.get("other_jobs"), "other_jobs"),
    "stream_packet_bytes": (lambda values: values.get("stream_mbit"), "stream_mbit"),
}
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
    """A job to simulate packet by packet. Fields of SimulatedRun as there; the topology is a ring, or a star: a
    parameter server.

    delay_ms: between any two hosts, half of it on each of the two links. seconds: simulated time at which the run ends,
    whatever is under way. training_priority: same or lower, against the background. flows_per_s: background flows that
    begin at each host. flow_sizes: file of their distribution; None: web search. warm_up_s, cool_down_s: what begins
    in the first, or ends (flows: begins) in the last, so many seconds is in no measure. segment_bytes: payload of a
    full packet; buffer_bytes: of each socket, either way. queue_disc: prio has three queues, each with queue_limit
    (packets, 1000p, or bytes, 1500000B), pfifo_fast one limit for three bands, fq_codel three of fair queues, each with
    its limit, in packets. initial_window: segments. initial_ssthresh: bytes at which slow start ends; None: no limit.
    sack: selective acknowledgements.
    min_rto_ms: shortest retransmission timeout; None: twice the longest round trip, the band's queues full (section
    5.4.1). training_min_rto_ms: the training's; None: the same, but LOW_RTO_MS where it has a lower priority, since a
    low band waits for the high one without a limit.
    delayed_ack: packets an acknowledgement. time_limit_s: wall clock. leaves, spines: switches; with several leaves
    hosts are in blocks on them, and each leaf is connected to each spine. oversubscription: rate of a leaf's hosts over
    that of its links to the spines. training_priority: layers has the exchanges of the high_layers (None: half of the
    layers) first layers in the background's band, deadline those for which there is less time left than they take.
    ecn_threshold: bytes in a switch's queue above which packets are marked, of dctcp; None: 65 packets of 1500 bytes at
    10 Gbit/s, and in proportion, 20 at least (Alizadeh 2010). other_jobs: further jobs like this on the
    same hosts, each other_jobs_after_ms after the one before; they are traffic of this run, and go on until it ends.
    skip_tolerance: iterations are skipped when they would repeat the one before, all times within this share; 0: none
    are. stream_mbit: payload of packets of stream_packet_bytes that the first worker sends to the last at a constant
    rate, in the background's band; 0: none. is_stopped: whether it ended at its time limit. Raises
    UsageError for what cannot be.
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
    initial_ssthresh: int | None = None
    sack: bool = True
    min_rto_ms: float | None = None
    training_min_rto_ms: float | None = None
    delayed_ack: int = 2
    time_limit_s: float = 3600.0
    leaves: int = 1
    spines: int = 2
    oversubscription: float = 1.0
    ecn_threshold: int | None = None
    high_layers: int | None = None
    other_jobs: int = 0
    other_jobs_after_ms: float = 0.0
    skip_tolerance: float = 0.0
    stream_mbit: float = 0.0
    stream_packet_bytes: int = 1316
    is_stopped: bool = False
    planned_steps: int | None = None

    def _check(self) -> None:
        super()._check()
        self._need("topology", self.topology in TOPOLOGIES, " or ".join(TOPOLOGIES))
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
        self._need("initial_ssthresh", self.segment_bytes <= self.ssthresh <= _NO_SSTHRESH, "a segment or more")
        self._need("queue_limit", bool(re.fullmatch(r"[1-9]\d{0,8}[pB]", self.queue_limit)), "as 1000p or 1500000B")
        for name in ("flows_per_s", "warm_up_s", "cool_down_s"):
            self._need(name, 0 <= getattr(self, name) < 1e6, "0 or more")
        self._need("time_limit_s", 0 < self.time_limit_s < 1e6, "above 0")
        for name in ("min_rto_ms", "training_min_rto_ms"):
            self._need(name, getattr(self, name) is None or 0 < getattr(self, name) < 1e6, "above 0")
        self._need("seconds", self.seconds is None or 0 < self.seconds < 1e5, "above 0")
        self._need("flows_per_s", not self.flows_per_s or self.seconds is not None, "given with seconds")
        measured = (self.seconds or math.inf) - self.warm_up_s - self.cool_down_s
        self._need("warm_up_s", measured > 0, "with cool_down_s less than seconds")
        self._check_options()
        for name in ("header_bytes", "first_host", "start_ms", "server_barrier", "multicast", "in_network_aggregation"):
            self._need(name, not getattr(self, name), "left out: it is an option of simulate alone")
        smallest = min(buffer.bytes for buffer in self.buffers)
        self._need("workers", smallest >= self.workers, f"at most {smallest}, the bytes of the smallest buffer")

    def _check_options(self) -> None:
        """As _check, of networks, priorities, other jobs and skipping."""
        hosts = self.collective.hosts
        self._need("leaves", 1 <= self.leaves <= hosts, f"1 to {hosts}, a host each")
        self._need("spines", 1 <= self.spines <= MOST_WORKERS, f"1 to {MOST_WORKERS}")
        self._need("oversubscription", 0 < self.oversubscription < 1e6, "above 0")
        self._need("oversubscription", self.oversubscription == 1 or self.leaves > 1, "left out with one leaf")
        is_dctcp = self.congestion_control == "dctcp"
        self._need("ecn_threshold", self.ecn_threshold is None or is_dctcp, "left out: it is an option of dctcp")
        self._need("ecn_threshold", self.ecn_threshold is None or self.ecn_threshold > 0, "above 0")
        self._need("queue_disc", not is_dctcp or self.queue_disc == "prio", "prio for dctcp: its queues mark packets")
        self._need("queue_limit", not is_dctcp or self.queue_limit.endswith("B"), "in bytes for dctcp, as 1500000B")
        is_fair = self.queue_disc == "fq_codel"
        self._need("queue_limit", not is_fair or self.queue_limit.endswith("p"), "in packets for fq_codel, as 1000p")
        by_layer = self.training_priority == "layers"
        self._need("high_layers", self.high_layers is None or by_layer, "left out: training_priority is not layers")
        self._need("high_layers", self.high_layers is None or self.high_layers >= 0, "0 or more")
        self._need("other_jobs", 0 <= self.other_jobs <= 100, "0 to 100")
        self._need("other_jobs_after_ms", 0 <= self.other_jobs_after_ms < 1e6, "0 or more")
        self._need("skip_tolerance", 0 <= self.skip_tolerance < 1, "0 to 1")
        self._check_stream()
        for name in ("other_jobs", "compute_jitter", "stream_mbit"):
            alone = not self.skip_tolerance or not getattr(self, name)
            self._need(name, alone, "left out with skip_tolerance: iterations would not repeat")

    def _check_stream(self) -> None:
        """As _check, of the stream. Its packets are whole ones, and have at least the header of RTP."""
        size, most = self.stream_packet_bytes, self.segment_bytes
        self._need("stream_packet_bytes", 12 <= size <= most, f"12 to {most:,}, the segment_bytes")
        slowest = min([*self.rates()[[0, self.workers - 1]], *[self.uplink_rate] * (self.leaves > 1)])
        fits = 8e3 * slowest * size / (size + UDP_HEADERS)
        self._need("stream_mbit", 0 <= self.stream_mbit <= fits, f"0 to {fits:,.0f}, a link's rate less headers")

    @property
    def source(self) -> str:
        return "ns3"

    @property
    def variant(self) -> str:
        words = [super().variant, f"{self.training_priority}_priority", self.queue_disc]
        words += [f"{self.flows_per_s:g}_flows_per_s"] * bool(self.flows_per_s)
        words += [f"{self.stream_mbit:g}_mbit_stream"] * bool(self.stream_mbit)
        words += [f"{self.leaves}_leaves"] * (self.leaves > 1)
        words += [f"{self.other_jobs}_other_jobs"] * bool(self.other_jobs)
        words += ["stopped_at_time_limit"] * self.is_stopped
        return "-".join(words)

    @property
    def ssthresh(self) -> int:
        """Bytes at which slow start ends, as ns-3 takes it."""
        return _NO_SSTHRESH if self.initial_ssthresh is None else self.initial_ssthresh

    @property
    def rto_ms(self) -> float:
        """The shortest retransmission timeout, ms."""
        if self.min_rto_ms is not None:
            return self.min_rto_ms
        number = int(self.queue_limit[:-1])
        full = number if self.queue_limit.endswith("B") else number * self.segment_bytes
        rates = [self.rates().min()] * 2 + [self.uplink_rate] * 2 * (self.leaves > 1)  # at a host, at each switch
        queues = 2 * sum(full / float(rate) for rate in rates) / 1e6  # there and back
        return 2 * (queues + len(rates) * self.delay_ms)

    @property
    def training_rto_ms(self) -> float:
        """The training's shortest retransmission timeout, ms."""
        if self.training_min_rto_ms is not None:
            return self.training_min_rto_ms
        waits = self.training_priority != "same" and self.min_rto_ms is None
        return max(self.rto_ms, LOW_RTO_MS) if waits else self.rto_ms

    @property
    def uplink_rate(self) -> float:
        """Rate of each link between a leaf and a spine, bytes a ns."""
        hosts = math.ceil(self.collective.hosts / self.leaves)
        return hosts * float(self.rates().max()) / (self.spines * self.oversubscription)

    @property
    def stream_gap_ns(self) -> float:
        """Time between two packets of the stream; 0: there is none."""
        return self.stream_packet_bytes * 8e3 / self.stream_mbit if self.stream_mbit else 0.0

    @property
    def first_layers(self) -> int:
        """Number of layers, from the input on, that go in the background's band by training_priority = layers."""
        return self.profile.layers // 2 if self.high_layers is None else self.high_layers

    @property
    def marking(self) -> int | None:
        """Bytes in a queue above which packets are marked; None: none are."""
        if self.congestion_control != "dctcp":
            return None
        return self.ecn_threshold or max(20 * 1500, round(65 * 1500 * self.bandwidth_mbit / 10_000))

    @property
    def server(self) -> int:
        """Number of the host that is the parameter server of a star."""
        return next(iter(self.collective.own_servers), 0)

    def phase_ns(self) -> list[float]:
        """Time of each buffer's longest phase without headers and other traffic, ns."""
        sizes = {buffer.bytes for buffer in self.buffers}
        longest = {size: max(timed(self, part).duration_ns for part in phases(self, size)) for size in sizes}
        return [longest[buffer.bytes] for buffer in self.buffers]

    @cached_property
    def sizes(self) -> Sizes:
        """The distribution of the background flows' sizes."""
        return read_sizes(Path(self.flow_sizes)) if self.flow_sizes else WEB_SEARCH

    def background(self) -> Flows:
        """The background flows: the same ones at every priority."""
        return arrivals(self.collective.hosts, self.flows_per_s, self.seconds or 0.0, self.sizes, self.seed)


def job(values: Mapping[str, Any]) -> Ns3Run:
    """The run of keys and values: those of the simulator, KEYS and SHORT_KEYS. Raises UsageError."""
    if "jobs" in values:
        raise UsageError("jobs: ns3 runs one job; give its keys at the top")
    values = _with_preset(values)
    ratio, straggler = (values.pop(name, None) for name in ("compute_to_network", "straggler"))
    if ratio is not None:
        values["compute_ms"] = _compute_ms(values, ratio)
    found = specification.fields(values, _FIELD_KEYS)
    if straggler is not None:
        slow = _short("straggler", straggler, "compute_factors", values)
        found["compute_factors"] = (slow, *[1.0] * (found.get("workers", Ns3Run.workers) - 1))
    if values.get("seconds") is not None and values.get("iterations") is None:
        found["steps"] = _most_steps(Ns3Run(**found))
    return Ns3Run(**found)


def _with_preset(values: Mapping[str, Any]) -> dict[str, Any]:
    given = {name: value for name, value in values.items() if value is not None}
    name = given.pop("preset", None)
    if name is not None and name not in PRESETS:
        raise UsageError(f"preset = {name!r}; it must be {' or '.join(PRESETS)}")
    return {**PRESETS.get(name, {}), **given}


def _short(name: str, value: Any, other: str, values: Mapping[str, Any]) -> float:
    """The value of a key that stands for another. Raises UsageError where that is given, too, or it is no number."""
    if values.get(other) not in (None, []):
        raise UsageError(f"{name}: gives {other}, too; give one of both")
    if not isinstance(value, _NUMBER) or isinstance(value, bool) or not 0 < value < 1e6:
        raise UsageError(f"{name} = {value!r}; it must be above 0")
    return value


def _compute_ms(values: Mapping[str, Any], ratio: Any) -> float:
    """The computation of an iteration by equation 5.1, of the size that the profile is named after (table 5.3)."""
    factor = _short("compute_to_network", ratio, "compute_ms", values)
    run = Ns3Run(**specification.fields(values, _FIELD_KEYS))
    nominal = 100_000_000 if run.profile.name == "thesis" else run.model_bytes
    return factor * Ring(values.get("model_bytes") or nominal, run.workers, run.bandwidth_mbit).network_ms


def _most_steps(run: Ns3Run) -> int:
    """More iterations than fit into the simulated time: an iteration lasts at least as long as its computation."""
    slowest = run.profile.compute_ns * max(run.compute_factors, default=1.0)
    return 2 * math.ceil((run.seconds or 0) * 1e9 / slowest) + 2
