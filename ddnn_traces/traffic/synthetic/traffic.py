"""Made-up runs that obey the laws of the collectives: what every packet of a training would have been, and when.

Nothing here is measured. It serves as truth for inference (the topology is known), as load for benchmarks and as
examples where no capture can be shown. tables.py writes it as a dataset.
"""

from __future__ import annotations

import math
import random
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from ddnn_traces.errors import UsageError
from ddnn_traces.traffic.collectives import Collective, Round, broadcast

SEGMENT_BYTES = 1448  # payload of a full segment with time stamps on Ethernet
HEADER_BYTES = 66  # Ethernet, IPv4, TCP with time stamps
SNAPLEN = 100

SETUP_NS = 1_000_000_000  # from the first connection to the start-up broadcast
_OPENING_NS = 500_000_000  # in which all connections are opened
_TEARDOWN_NS = 500_000_000
SSH_PORT, RENDEZVOUS_PORT, DATA_PORT, CONTROL_PORT = 22, 29500, 41000, 42000

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class SyntheticRun:
    """What run to make up. The same values give the same packets.

    topology to order: as in collectives.Collective. model_bytes: S, exchanged in each step. compute_ms: a worker's time
    before it communicates, each time by a normal factor of standard deviation `jitter` off, and by the worker's own
    factor where `compute_factors` has one a worker (stragglers). bandwidth_mbit: of each host's link, both ways.
    noise: retransmissions (up to this share of each transfer) and payload between pairs that the algorithm does not use
    (this share of the run's). loss_pct: loss, which is retransmitted, and divides the rate by 1 + loss_pct. delay_ms:
    between two rounds. log, events: whether the workers wrote logs and phases. broadcast: of the model before step 0.
    chatter: SSH from a host outside, rendezvous, control messages. chief: whether that host outside is the job's chief.
    learns: whether logs have a loss and an accuracy, a curve that is made up like all else.
    declare_ring: whether hosts have a ring_position. declared_topology: what the run says of itself; empty: `topology`.
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
    compute_ms: float = 50.0
    compute_factors: tuple[float, ...] = ()
    jitter: float = 0.02
    update_ms: float = 2.0
    bandwidth_mbit: float = 1000.0
    delay_ms: float = 0.0
    loss_pct: float = 0.0
    noise: float = 0.01
    batch_size: int = 32
    epochs: int = 1
    framework: str = "synthetic"
    backend: str = "tcp"
    model: str = "model"
    optimizer: str = "sgd"
    log: bool = True
    events: bool = True
    learns: bool = True
    broadcast: bool = True
    chatter: bool = True
    chief: bool = False
    declare_ring: bool = False
    declared_topology: str = ""
    window_ns: int = 1_000_000
    seed: int = 0
    start_ns: int = 1_600_000_000_000_000_000

    def __post_init__(self) -> None:
        if self.steps < 1 or self.model_bytes < 1 or not self.bandwidth_mbit > 0:
            raise UsageError(f"{self.run_id}: steps, model_bytes and bandwidth_mbit must be above 0")
        if self.compute_factors and len(self.compute_factors) != self.workers:
            raise UsageError(f"{self.run_id}: {len(self.compute_factors)} compute_factors for {self.workers} workers")

    @property
    def collective(self) -> Collective:
        """The law that it obeys."""
        return Collective(self.topology, self.workers, self.shape, self.servers, self.group_size, self.order)

    @property
    def untold(self) -> frozenset[str]:
        """Columns of `runs` that nobody gave, so that they are left null."""
        return frozenset()

    @property
    def ns_per_byte(self) -> float:
        """Time of a byte on a link."""
        return 8e3 / self.bandwidth_mbit * (1 + self.loss_pct)


@dataclass(frozen=True)
class Connection:
    """A TCP connection between two hosts (numbers; the last host of a run is the one outside)."""

    client: int
    server: int
    client_port: int
    server_port: int


@dataclass(frozen=True)
class Transfers:
    """Packets of a flow, one after the other at an even pace, as parallel arrays.

    Packet j of a transfer is at start_ns + j * duration_ns // packets; all are full but the last. repeated: bytes of
    the payload that had been sent before. segment_bytes: payload of a full packet. step: whose exchange a transfer is
    of, -1 for all else; None: not noted.
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


@dataclass
class Traffic:
    """A run's packets and steps. Flow 2c goes from the client of connection c to the server, 2c + 1 back."""

    run: SyntheticRun
    times: StepTimes
    connections: list[Connection] = field(default_factory=list)
    opened_ns: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    transfers: Transfers = field(default_factory=lambda: Transfers(*[np.empty(0, np.int64)] * 6))

    @property
    def hosts(self) -> int:
        """Hosts that take part; the number of the one outside."""
        return self.run.collective.hosts

    @property
    def ends(self) -> list[tuple[int, int]]:
        """Sender and receiver of each flow."""
        return [ends for c in self.connections for ends in ((c.client, c.server), (c.server, c.client))]

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
        """The host at which each flow's packets are captured: their sender, or where they come in from outside."""
        ends = np.array(self.ends, np.int64).reshape(-1, 2)
        return np.where(ends[:, 0] < self.hosts, ends[:, 0], ends[:, 1])


def learning_curve(steps: int) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Loss and accuracy at the end of each step, of no training."""
    progress = (np.arange(steps) + 1) / steps
    return 2.3 * np.exp(-3 * progress) + 0.1, 1 - 0.9 * np.exp(-4 * progress)


class Sampler:
    """Draws what a run leaves open, as the fields of SyntheticRun say; traffic_model draws from what was measured."""

    segment_bytes = SEGMENT_BYTES

    def compute_ns(self, run: SyntheticRun, rng: np.random.Generator) -> Ints:
        """Time of each worker before it communicates, steps by workers."""
        factors = np.array(run.compute_factors or (1.0,))
        varied = np.maximum(rng.normal(1, run.jitter, (run.steps, run.workers)), 0.1)
        return (run.compute_ms * 1e6 * factors * varied).astype(np.int64)

    def payload(self, run: SyntheticRun, size: Ints, rng: np.random.Generator) -> tuple[Ints, Ints]:
        """Payload of transfers of these sizes, and how much of it had been sent before."""
        share = rng.uniform(0, run.noise, size.shape) + run.loss_pct / 100
        repeated = (size * share).astype(np.int64)
        return size + repeated, repeated

    def times_ns(self, run: SyntheticRun, wire: Ints, rounds: Ints, rng: np.random.Generator) -> tuple[Ints, Ints]:
        """Of transfers, steps by transfers: from where both ends are ready to the first byte, and on to the last.

        wire: bytes of the round on the busier of a transfer's links. rounds: the round of each transfer.
        """
        delay = np.broadcast_to(np.int64(round(run.delay_ms * 1e6)), wire.shape)
        return delay, (wire * run.ns_per_byte).astype(np.int64) + 1

    def pull_ns(self, run: SyntheticRun, wire: Ints, rng: np.random.Generator) -> Ints:
        """How long transfers of so many wire bytes take where nobody waits for another (asynchronous pulls)."""
        return (wire * run.ns_per_byte * rng.uniform(1, 1.6, wire.shape)).astype(np.int64) + 1

    def acks(self, packets: Ints) -> Ints:
        """Acknowledgements for so many segments."""
        return (packets + 1) // 2

    def send_data(
        self, book: Book, flow: Ints, start: Ints, duration: Ints, payload: Ints, repeated: Ints, acked: Ints
    ) -> None:
        """Send transfers of the exchange, steps by transfers."""
        book.send(flow, start, duration, payload, repeated, acked, np.arange(len(flow))[:, None])

    def send_start(self, run: SyntheticRun, book: Book, rng: np.random.Generator) -> int:
        """What is sent before the first step; returns when that begins."""
        return _send_broadcast(run, book, rng) if run.broadcast else run.start_ns + SETUP_NS

    def send_rest(self, run: SyntheticRun, laws: Laws, times: StepTimes, book: Book, rng: np.random.Generator) -> None:
        """What is sent beside the exchange."""
        _send_noise(run, laws, times, book, rng)
        if run.chatter:
            _send_chatter(run, times, book, rng)


def make_traffic(run: SyntheticRun, sampler: Sampler | None = None) -> Traffic:
    """All packets of a run, in the order of the transfers' starts."""
    rng = np.random.default_rng([run.seed, zlib.crc32(run.run_id.encode())])
    book = Book(run, sampler or Sampler())
    begin_ns = book.sampler.send_start(run, book, rng)
    laws = _laws(run, rng)
    asynchronous = (run.topology, run.collective.shape) == ("pair_averaging", "pull")
    times = (_pull if asynchronous else _exchange)(run, laws, begin_ns, book, rng)
    book.sampler.send_rest(run, laws, times, book, rng)
    opened = book.open()
    return Traffic(run, times, book.connections, opened, book.transfers())


def packets_of(payload: Ints, segment_bytes: int = SEGMENT_BYTES) -> Ints:
    """Segments that carry so many bytes."""
    return -(-payload // segment_bytes)


class Book:
    """Connections as they are first used, and what is sent on them."""

    def __init__(self, run: SyntheticRun, sampler: Sampler) -> None:
        self.connections: list[Connection] = []
        self.parts: list[Transfers] = []
        self.sampler = sampler
        self._run = run
        self._numbers: dict[tuple[int, int, int], int] = {}

    def flow(self, src: int, dst: int, port: int) -> int:
        """The flow from `src` to `dst` of their connection to that port, which is opened when it is new."""
        key = (min(src, dst), max(src, dst), port)
        if key not in self._numbers:
            self._numbers[key] = len(self.connections)
            self.connections.append(Connection(src, dst, 45000 + len(self.connections) % 20000, port))
        number = self._numbers[key]
        return 2 * number + (self.connections[number].client != src)

    def flows(self, src: Ints, dst: Ints, port: int) -> Ints:
        """The same for arrays."""
        hosts = self._run.collective.hosts + 1
        keys, places = np.unique(src * hosts + dst, return_inverse=True)
        found = [self.flow(*divmod(int(key), hosts), port) for key in keys]
        return np.array(found, np.int64)[places].reshape(src.shape)

    def send(
        self, flow: Ints, start_ns: Ints, duration_ns: Ints, payload: Ints, repeated: Ints, acked: Ints | bool,
        step: Ints | int = -1,
    ) -> None:  # fmt: skip
        """Note transfers, and their acknowledgements on the reverse flow where they are `acked`.

        Raises UsageError for one whose packets cannot be timed by whole numbers of 64 bits.
        """
        segment = self.sampler.segment_bytes
        columns = np.broadcast_arrays(flow, start_ns, duration_ns, packets_of(payload, segment), payload, repeated)
        steps = np.broadcast_to(np.asarray(step, np.int64), columns[0].shape).ravel()
        data = Transfers(*(column.astype(np.int64).ravel() for column in columns), segment_bytes=segment, step=steps)
        if len(data) and float((data.packets.astype(float) * data.duration_ns).max()) >= 2**62:
            raise UsageError(
                f"{self._run.run_id}: a transfer of {int(data.payload.max()):,} bytes is too large and too slow: times "
                "of packets would not fit into 64 bits; give fewer model bytes, or more workers"
            )
        self.parts.append(data)
        back = data.take(np.flatnonzero(np.broadcast_to(acked, columns[0].shape).ravel()))
        nothing = np.zeros_like(back.flow)
        acks = Transfers(
            back.flow ^ 1, back.start_ns, back.duration_ns, self.sampler.acks(back.packets), nothing, nothing
        )
        self.parts.append(acks.take(np.flatnonzero(acks.packets)))

    def transfers(self) -> Transfers:
        """What was noted, in the order of the starts."""
        transfers = _concat(self.parts, self.sampler.segment_bytes)
        return transfers.take(np.lexsort((transfers.flow, transfers.start_ns)))

    def open(self) -> Ints:
        """A packet without payload (SYN) at the begin of each flow; returns its times, in the order of flows."""
        pace = _OPENING_NS // max(10_000, len(self.connections))
        flow = np.arange(2 * len(self.connections))
        start = self._run.start_ns + flow * pace // 2
        one, nothing = np.ones_like(flow), np.zeros_like(flow)
        self.parts.append(Transfers(flow, start, one, one, nothing, nothing))
        return start


def _concat(parts: Sequence[Transfers], segment_bytes: int) -> Transfers:
    empty = np.empty(0, np.int64)
    columns = zip(*(part.columns for part in parts), strict=True)
    steps = [np.full(len(part), -1) if part.step is None else part.step for part in parts]
    return Transfers(
        *(np.concatenate([empty, *column]) for column in columns),
        segment_bytes=segment_bytes,
        step=np.concatenate([empty, *steps]),
    )


# --- the steps


@dataclass(frozen=True)
class Laws:
    """The transfers of all steps: arrays of steps by transfers; bounds: where each round begins and ends."""

    src: Ints
    dst: Ints
    size: Ints
    bounds: tuple[tuple[int, int], ...]

    @property
    def rounds(self) -> Ints:
        """The number of each transfer's round."""
        return np.repeat(np.arange(len(self.bounds)), [b - a for a, b in self.bounds])

    @property
    def pairs(self) -> set[tuple[int, int]]:
        """Directed pairs that the algorithm uses."""
        return set(zip(self.src.ravel().tolist(), self.dst.ravel().tolist(), strict=True))


def _laws(run: SyntheticRun, rng: np.random.Generator) -> Laws:
    draw = random.Random(int(rng.integers(2**62)))  # noqa: S311, no secret
    changes = run.topology == "pair_averaging"  # other pairs in each step
    drawn = [run.collective.rounds(run.model_bytes, draw) for _ in range(run.steps if changes else 1)]
    rows = np.array([[tuple(t) for round_ in rounds for t in round_] for rounds in drawn], np.int64)
    rows = rows.reshape(len(drawn), -1, 3)
    rows = np.broadcast_to(rows, (run.steps, *rows.shape[1:]))
    stops = np.cumsum([0, *map(len, drawn[0])]).tolist()
    return Laws(rows[..., 0], rows[..., 1], rows[..., 2], tuple(pairwise(stops)))


def _exchange(run: SyntheticRun, laws: Laws, begin_ns: int, book: Book, rng: np.random.Generator) -> StepTimes:
    """Synchronous steps: a transfer begins when both ends have finished their rounds before."""
    sampler = book.sampler
    payload, repeated = sampler.payload(run, laws.size, rng)
    segment = sampler.segment_bytes
    wire = [_busier(run, laws.src[:, a:b], laws.dst[:, a:b], payload[:, a:b], segment) for a, b in laws.bounds]
    delay, duration = sampler.times_ns(run, np.concatenate(wire or [payload], 1), laws.rounds, rng)
    start = np.zeros_like(payload)
    compute = sampler.compute_ns(run, rng)
    update = round(run.update_ms * 1e6)
    times = StepTimes(*(np.zeros_like(compute) for _ in range(4)))
    ready = np.full(run.collective.hosts, begin_ns)
    for step in range(run.steps):
        times.start_ns[step] = ready[: run.workers]
        ready[: run.workers] += compute[step]
        times.communicate_ns[step] = ready[: run.workers]
        for a, b in laws.bounds:
            src, dst = laws.src[step, a:b], laws.dst[step, a:b]
            start[step, a:b] = np.maximum(ready[src], ready[dst]) + delay[step, a:b]
            end = start[step, a:b] + duration[step, a:b]
            np.maximum.at(ready, src, end)
            np.maximum.at(ready, dst, end)
        times.communicated_ns[step] = ready[: run.workers]
        ready[: run.workers] += update
        times.end_ns[step] = ready[: run.workers]
    _send_data(laws, start, duration, payload, repeated, book)
    return times


def _pull(run: SyntheticRun, laws: Laws, begin_ns: int, book: Book, rng: np.random.Generator) -> StepTimes:
    """Asynchronous steps: each worker gets a model when it wants one, at the pace that the links have left."""
    sampler = book.sampler
    payload, repeated = sampler.payload(run, laws.size, rng)
    wire = payload + HEADER_BYTES * packets_of(payload, sampler.segment_bytes)
    duration = sampler.pull_ns(run, wire, rng)
    compute = sampler.compute_ns(run, rng) + round(run.delay_ms * 1e6)
    pulled = duration if laws.bounds else np.zeros_like(compute)
    if laws.bounds:
        order = np.argsort(laws.dst, axis=1)
        pulled = np.take_along_axis(duration, order, 1)
    end = begin_ns + np.cumsum(compute + pulled + round(run.update_ms * 1e6), axis=0)
    first = np.broadcast_to(np.int64(begin_ns), (1, run.workers))
    times_start = np.concatenate([first, end[:-1]])
    communicate = times_start + compute
    start = np.take_along_axis(communicate, laws.dst, 1) if laws.bounds else payload
    _send_data(laws, start, duration, payload, repeated, book)
    return StepTimes(times_start, communicate, communicate + pulled, end)


def _send_data(laws: Laws, start: Ints, duration: Ints, payload: Ints, repeated: Ints, book: Book) -> None:
    if not laws.bounds:
        return
    pairs = laws.pairs
    top = int(max(laws.src.max(), laws.dst.max())) + 1
    answered = np.zeros((top, top), bool)  # data goes the other way, too, and carries the acknowledgements
    for src, dst in pairs:
        answered[dst, src] = True
    flow = book.flows(laws.src, laws.dst, DATA_PORT)
    book.sampler.send_data(book, flow, start, duration, payload, repeated, ~answered[laws.src, laws.dst])


def _busier(run: SyntheticRun, src: Ints, dst: Ints, payload: Ints, segment_bytes: int) -> Ints:
    """Wire bytes on the busier link of each transfer of a round: what a host sends shares one, and what it gets."""
    wire = payload + HEADER_BYTES * packets_of(payload, segment_bytes)
    step = np.arange(len(src))[:, None]
    sent = np.zeros((len(src), run.collective.hosts), np.int64)
    received = np.zeros_like(sent)
    np.add.at(sent, (step, src), wire)
    np.add.at(received, (step, dst), wire)
    return np.maximum(sent[step, src], received[step, dst])


# --- what else is on the wire


def _send_broadcast(run: SyntheticRun, book: Book, rng: np.random.Generator) -> int:
    """The model before step 0, to all workers; returns when it is there."""
    at = run.start_ns + SETUP_NS
    for round_ in broadcast(run.workers, run.model_bytes):
        src, dst, size = _arrays(round_)
        payload, repeated = book.sampler.payload(run, size, rng)
        wire = _busier(run, src[None], dst[None], payload[None], book.sampler.segment_bytes)
        duration = book.sampler.times_ns(run, wire, np.zeros_like(src), rng)[1][0]
        flow = book.flows(src, dst, DATA_PORT)
        book.send(flow, np.full(len(src), at), duration, payload, repeated, True)
        at += int(duration.max()) + 1
    return at + 10_000_000


def _arrays(round_: Round) -> tuple[Ints, Ints, Ints]:
    rows = np.array(round_, np.int64)
    return rows[:, 0], rows[:, 1], rows[:, 2]


def _send_noise(run: SyntheticRun, laws: Laws, times: StepTimes, book: Book, rng: np.random.Generator) -> None:
    """In each step a share of its payload between random pairs of hosts that the algorithm does not use."""
    hosts = run.collective.hosts
    every = {(i, j) for i in range(hosts) for j in range(hosts) if i != j}
    pairs = np.array(sorted(every - laws.pairs or every), np.int64)
    transfers = max(2, run.workers // 2)
    payload = (laws.size.sum(1) * run.noise / transfers).astype(np.int64)[:, None]
    if not len(pairs) or not payload.any():
        return
    drawn = pairs[rng.integers(len(pairs), size=(run.steps, transfers))]
    src, dst = drawn[..., 0], drawn[..., 1]
    clock = np.where(src < run.workers, src, 0)
    begin, end = (np.take_along_axis(bound, clock, 1) for bound in (times.start_ns, times.end_ns))
    # at a tenth of the link's rate, so that it hardly slows the exchange
    duration = np.minimum(payload * 10 * run.ns_per_byte + 1, (end - begin) * 0.9).astype(np.int64)
    start = begin + (rng.random(src.shape) * (end - begin - duration)).astype(np.int64)
    flow = book.flows(src, dst, CONTROL_PORT)
    keep = np.flatnonzero(np.broadcast_to(payload, flow.shape).ravel())
    flow, start, duration, payload = (
        np.broadcast_to(column, src.shape).ravel()[keep] for column in (flow, start, duration, payload)
    )
    book.send(flow, start, duration, payload, np.zeros_like(flow), True)


def _send_chatter(run: SyntheticRun, times: StepTimes, book: Book, rng: np.random.Generator) -> None:
    hosts = run.collective.hosts
    begin, end = run.start_ns + SETUP_NS // 2, int(times.end_ns.max()) + _TEARDOWN_NS
    first, outside = np.zeros(hosts - 1, np.int64), np.full(hosts, hosts)
    others, everyone = np.arange(1, hosts), np.arange(hosts)
    # logins, the rendezvous at the first worker, and what each tells it at the end
    _send_messages(book, outside, everyone, SSH_PORT, (begin, begin + SETUP_NS // 4), (3000, 6000), rng)
    _send_messages(book, others, first, RENDEZVOUS_PORT, (begin, begin + SETUP_NS // 4), (2000, 9000), rng)
    _send_messages(book, others, first, RENDEZVOUS_PORT, (end - _TEARDOWN_NS // 2, end), (200, 900), rng)
    seconds = math.ceil((end - begin) / 1e9)
    terminal = np.tile(everyone, seconds)
    _send_messages(book, terminal, np.full_like(terminal, hosts), SSH_PORT, (begin, end), (36, 400), rng)
    if hosts > 1:
        src = rng.integers(hosts, size=2 * seconds)
        dst = (src + rng.integers(1, hosts, size=len(src))) % hosts
        _send_messages(book, src, dst, CONTROL_PORT, (begin, end), (100, 4000), rng)


def _send_messages(
    book: Book,
    src: Ints,
    dst: Ints,
    port: int,
    span_ns: tuple[int, int],
    sizes: tuple[int, int],
    rng: np.random.Generator,
) -> None:
    """A short message from each `src` to its `dst` at a random time, and its acknowledgement."""
    if not len(src):
        return
    payload = rng.integers(*sizes, size=len(src))
    start = rng.integers(*span_ns, size=len(src))
    duration = packets_of(payload, book.sampler.segment_bytes) * 12_000
    book.send(book.flows(src, dst, port), start, duration, payload, np.zeros_like(payload), True)
