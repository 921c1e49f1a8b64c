"""The traffic of a run: its hosts and connections, every transfer on them with its times, and the workers' steps.

A Traffic holds a run that was not captured. synthetic/ produces it by the laws of the collectives, model/ from a
fitted model. tables.py writes it as tables, run_folder.py as captures. A single transfer
(src, dst, bytes) is collectives.Transfer, which is defined there because that module is read without NumPy.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from ddnn_traces.errors import UsageError
from ddnn_traces.traffic.collectives import Collective, Transfer

SEGMENT_BYTES = 1448  # payload of a full segment with time stamps on Ethernet
HEADER_BYTES = 66  # Ethernet, IPv4, TCP with time stamps
SNAPLEN = 100


class Port(IntEnum):
    """Server ports of a run's connections."""

    SSH = 22
    RENDEZVOUS = 29500
    DATA = 41000
    CONTROL = 42000


Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Run:
    """The facts of a run, as `runs`, `hosts` and run.toml state them.

    topology to order: as in collectives.Collective. model_bytes: S, exchanged in each step. bandwidth_mbit: of each
    host's link, both ways. loss_pct: packets lost, percent. delay_ms: latency. log, events: whether the workers wrote
    logs and phases. learns: whether logs have a loss and an accuracy, which are a generated curve. chief: whether the
    host outside is the job's chief. declare_ring: whether hosts have a ring_position. declared_topology: the topology
    that the run declares; empty: `topology`. window_ns: base window of the tables. start_ns: unix time of the start.
    Raises UsageError for sizes that are not above 0.
    """

    run_id: str
    topology: str
    workers: int = 4
    model_bytes: int = 10_000_000
    steps: int = 20
    shape: str = ""
    servers: int | None = None
    group_size: int | None = None
    order: tuple[int, ...] = ()
    bandwidth_mbit: float = 1000.0
    delay_ms: float = 0.0
    loss_pct: float = 0.0
    batch_size: int = 32
    epochs: int = 1
    framework: str = "synthetic"
    backend: str = "tcp"
    model: str = "model"
    optimizer: str = "sgd"
    log: bool = True
    events: bool = True
    learns: bool = True
    chief: bool = False
    declare_ring: bool = False
    declared_topology: str = ""
    window_ns: int = 1_000_000
    start_ns: int = 1_600_000_000_000_000_000

    def __post_init__(self) -> None:
        if self.steps < 1 or self.model_bytes < 1 or not self.bandwidth_mbit > 0:
            raise UsageError(f"{self.run_id}: steps, model_bytes and bandwidth_mbit must be above 0")

    @property
    def collective(self) -> Collective:
        """The law that the run obeys."""
        return Collective(self.topology, self.workers, self.shape, self.servers, self.group_size, self.order)

    @property
    def undeclared(self) -> frozenset[str]:
        """Columns of `runs` that were not given and are left null."""
        return frozenset()


@dataclass(frozen=True)
class Connection:
    """A TCP connection between two hosts (numbers; the last host of a run is the one outside)."""

    client: int
    server: int
    client_port: int
    server_port: int


@dataclass(frozen=True)
class TimedTransfer:
    """A transfer of a step's round with the times of its first and last byte, ns; pieces: bursts that it comes in."""

    transfer: Transfer
    step: int
    round: int
    start_ns: float
    end_ns: float
    pieces: int = 1


@dataclass(frozen=True)
class Transfers:
    """Transfers on flows, as parallel arrays: a row is a transfer, whose packets follow each other at an even pace.

    Packet j of a transfer is at start_ns + j * duration_ns // packets; all are full but the last. payload: bytes.
    repeated: bytes of the payload that had been sent before. segment_bytes: payload of a full packet. step: the step
    whose exchange a transfer belongs to, -1 for all other transfers; None: unknown.
    """

    flow: Ints
    start_ns: Ints
    duration_ns: Ints
    packets: Ints
    payload: Ints
    repeated: Ints
    segment_bytes: int = field(default=SEGMENT_BYTES, kw_only=True)
    step: Ints | None = field(default=None, kw_only=True)

    def __len__(self) -> int:
        return len(self.flow)

    def take(self, rows: Ints | slice) -> Transfers:
        """The rows of these numbers."""
        step = None if self.step is None else self.step[rows]
        return Transfers(*(column[rows] for column in self.columns), segment_bytes=self.segment_bytes, step=step)

    @property
    def columns(self) -> tuple[Ints, ...]:
        return self.flow, self.start_ns, self.duration_ns, self.packets, self.payload, self.repeated

    @property
    def fresh(self) -> Ints:
        """Payload bytes that had not been sent before; they go first."""
        return self.payload - self.repeated

    @property
    def captured(self) -> Ints:
        """Bytes that captures hold of each transfer: at most SNAPLEN of a packet, without the records' headers."""
        full = np.maximum(self.packets - 1, 0)
        most = SNAPLEN - HEADER_BYTES
        last = np.minimum(self.payload - full * self.segment_bytes, most)
        return self.packets * HEADER_BYTES + np.where(self.payload > 0, full * most + last, 0)

    @property
    def last_ns(self) -> Ints:
        """Time of each transfer's last packet."""
        return self.start_ns + (self.packets - 1) * self.duration_ns // self.packets

    def before(self, rows: Ints, bound_ns: Ints) -> tuple[Ints, Ints]:
        """Packets and payload of transfers `rows` before the times `bound_ns`."""
        packets = self.packets[rows]
        gone = np.maximum(bound_ns - self.start_ns[rows], 0)
        duration = self.duration_ns[rows]
        count = np.minimum(-(-np.minimum(gone, duration) * packets // duration), packets)
        return count, np.minimum(count * self.segment_bytes, self.payload[rows])


@dataclass(frozen=True)
class StepTimes:
    """When each worker did what; arrays of steps by workers, ns. A step begins where the one before ended."""

    start_ns: Ints
    communicate_ns: Ints
    communicated_ns: Ints
    end_ns: Ints

    @property
    def bounds_ns(self) -> Ints:
        """The start of the first step and the end of each, a column a worker."""
        return np.concatenate([self.start_ns[:1], self.end_ns])


@dataclass
class Traffic:
    """A run's transfers and steps. Flow 2c goes from the client of connection c to the server, 2c + 1 back.

    opened_ns: time of each flow's first packet (SYN).
    """

    run: Run
    times: StepTimes
    connections: list[Connection] = field(default_factory=list)
    opened_ns: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    transfers: Transfers = field(default_factory=lambda: Transfers(*[np.empty(0, np.int64)] * 6))

    @property
    def hosts(self) -> int:
        """Number of the hosts that take part, which is also the number that identifies the host outside."""
        return self.run.collective.hosts

    @property
    def ends(self) -> list[tuple[int, int]]:
        """Sender and receiver of each flow."""
        return [ends for c in self.connections for ends in ((c.client, c.server), (c.server, c.client))]

    @property
    def ports(self) -> Ints:
        """Sender's and receiver's port of each flow, flows by 2."""
        forward = np.array([(c.client_port, c.server_port) for c in self.connections], np.int64).reshape(-1, 2)
        return np.stack([forward, forward[:, ::-1]], 1).reshape(-1, 2)

    @property
    def addresses(self) -> list[str]:
        """IP address of each host, the one outside included."""
        return [f"10.1.{i // 250}.{i % 250 + 1}" for i in range(self.hosts)] + ["10.0.0.254"]

    @property
    def labels(self) -> list[str]:
        """Label of each host that takes part."""
        servers = self.run.collective.own_servers
        return [f"ps-{i - servers.start + 1}" if i in servers else f"worker-{i + 1}" for i in range(self.hosts)]

    @property
    def vantage(self) -> Ints:
        """The host that captures each flow's packets: their sender, or their receiver where the sender is outside."""
        ends = np.array(self.ends, np.int64).reshape(-1, 2)
        return np.where(ends[:, 0] < self.hosts, ends[:, 0], ends[:, 1])

    @property
    def clock(self) -> Ints:
        """The worker whose steps count for each flow: that of its capture, else the first."""
        vantage = self.vantage
        return np.where(vantage < self.run.workers, vantage, 0)


def packets_of(payload: Ints, segment_bytes: int = SEGMENT_BYTES) -> Ints:
    """Packets that carry so many bytes."""
    return -(-payload // segment_bytes)


def wire_bytes(payload: Ints, segment_bytes: int = SEGMENT_BYTES) -> Ints:
    """Bytes of these payloads with the headers of their packets."""
    return payload + HEADER_BYTES * packets_of(payload, segment_bytes)


def learning_curve(steps: int) -> tuple[Floats, Floats]:
    """Loss and accuracy at the end of each step: a generated curve, of no training."""
    progress = (np.arange(steps) + 1) / steps
    return 2.3 * np.exp(-3 * progress) + 0.1, 1 - 0.9 * np.exp(-4 * progress)
