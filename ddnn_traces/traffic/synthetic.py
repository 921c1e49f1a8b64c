"""Synthetic runs that obey the laws of the collectives: every packet that a training would have sent, and when.

Nothing here is measured. Synthetic runs are truth for inference (the topology is known), load for benchmarks and
examples where no capture can be shown. SCENARIOS are those of Zerwas et al. 2021.
"""

from __future__ import annotations

import itertools
import math
import random
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from ddnn_traces.errors import UsageError
from ddnn_traces.traffic.collectives import broadcast
from ddnn_traces.traffic.table_writer import write_traffic
from ddnn_traces.traffic.traffic import (
    Connection,
    Ints,
    Port,
    Run,
    StepTimes,
    Traffic,
    Transfers,
    busier,
    packets_of,
    wire_bytes,
)

__all__ = ["SyntheticRun", "Wiring", "generate", "write_runs"]

SETUP_NS = 1_000_000_000  # from the first connection to the start-up broadcast
_OPENING_NS = 500_000_000  # in which all connections are opened
_TEARDOWN_NS = 500_000_000


@dataclass(frozen=True)
class Wiring:
    """Connections that a framework keeps between its hosts, whether they carry data or not.

    edge: of each pair of workers that exchanges (of each in `joined`, where that is not empty), side: of each other
    pair, mesh: of every pair besides. outside: from a host outside to each worker. refused: attempts that nobody
    accepts, a packet each way. neighbours: whether a pull is from one of the two neighbours in the ring.
    """

    edge: int = 1
    side: int = 0
    mesh: int = 0
    outside: int = 0
    refused: int = 0
    joined: tuple[tuple[int, int], ...] = ()
    neighbours: bool = False

    def connections(self, workers: int, exchanging: set[tuple[int, int]]) -> dict[tuple[int, int], int]:
        """Their number for each pair of hosts; the host after the last worker is the one outside."""
        edges = {(min(pair), max(pair)) for pair in self.joined or exchanging}
        pairs = itertools.combinations(range(workers), 2)
        found = {pair: self.mesh + (self.edge if pair in edges else self.side) for pair in pairs}
        return found | {(worker, workers): self.outside for worker in range(workers)}


@dataclass(frozen=True)
class SyntheticRun(Run):
    """A run to generate, and how. The same values give the same packets.

    compute_ms: a worker's time before it communicates, each time by a normal factor of standard deviation `jitter`
    off, and by the worker's own factor where `compute_factors` has one a worker (stragglers). noise: retransmissions
    (up to this share of each transfer) and payload between pairs that the algorithm does not use (this share of the
    run's). loss_pct is retransmitted, and divides the rate by 1 + loss_pct; delay_ms is between two rounds. broadcast:
    of the model before step 0. chatter: SSH from a host outside, rendezvous, control messages. wiring: the connections
    of a framework, in place of chatter; noise is on those that carry no data then.
    """

    compute_ms: float = 50.0
    compute_factors: tuple[float, ...] = ()
    jitter: float = 0.02
    update_ms: float = 2.0
    noise: float = 0.01
    broadcast: bool = True
    chatter: bool = True
    wiring: Wiring | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.compute_factors and len(self.compute_factors) != self.workers:
            raise UsageError(f"{self.run_id}: {len(self.compute_factors)} compute_factors for {self.workers} workers")

    @property
    def ns_per_byte(self) -> float:
        """Time of a byte on a link."""
        return 8e3 / self.bandwidth_mbit * (1 + self.loss_pct)


def write_runs(out: Path, runs: Iterable[SyntheticRun]) -> list[str]:
    """Write runs into the dataset at `out`, new or next to its other runs; return their names.

    Errors as of tables.write_traffic.
    """
    return write_traffic(out, map(make_traffic, runs))


class Sampler:
    """Draws what a run leaves open: here by the fields of SyntheticRun, in model/ from what was measured."""

    segment_bytes = Transfers.segment_bytes
    header_bytes = Transfers.header_bytes

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
        """Delay and duration of transfers, steps by transfers, ns: from when both ends are ready to the first byte, and
        from there to the last.

        wire: bytes of the round on the busier of a transfer's links. rounds: the round of each transfer.
        """
        delay = np.broadcast_to(np.int64(round(run.delay_ms * 1e6)), wire.shape)
        return delay, (wire * run.ns_per_byte).astype(np.int64) + 1

    def pull_ns(self, run: SyntheticRun, wire: Ints, rng: np.random.Generator) -> Ints:
        """Duration of transfers of so many wire bytes where no worker waits for another (asynchronous pulls)."""
        return (wire * run.ns_per_byte * rng.uniform(1, 1.6, wire.shape)).astype(np.int64) + 1

    def end_ns(self, run: SyntheticRun, src: Ints, dst: Ints, payload: Ints, start: Ints, end: Ints) -> Ints:
        """When transfers of a round are complete that should end at `end`; called round by round."""
        return end

    def paced(self, run: SyntheticRun, transfers: Transfers, ends: Ints) -> Transfers:
        """All transfers of a run as its links let them pass; ends: sender and receiver of each flow."""
        return transfers

    def acks(self, packets: Ints) -> Ints:
        """Acknowledgements for so many segments."""
        return (packets + 1) // 2

    def send_data(
        self, book: Book, flow: Ints, start: Ints, duration: Ints, payload: Ints, repeated: Ints, acked: Ints
    ) -> None:
        """Send transfers of the exchange, steps by transfers."""
        book.send(flow, start, duration, payload, repeated, acked, np.arange(len(flow))[:, None])

    def send_start(self, run: SyntheticRun, book: Book, rng: np.random.Generator) -> int:
        """Send what comes before the first step; return when that step begins."""
        return _send_broadcast(run, book, rng) if run.broadcast else run.start_ns + SETUP_NS

    def send_rest(self, run: SyntheticRun, laws: Laws, times: StepTimes, book: Book, rng: np.random.Generator) -> None:
        """Send everything that is not part of the exchange."""
        if run.wiring:
            _send_wiring(run, run.wiring, laws, times, book, rng)
            return
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
    traffic = Traffic(run, times, book.connections, opened, book.transfers())
    ends = np.array(traffic.ends, np.int64).reshape(-1, 2)
    paced = book.sampler.paced(run, traffic.transfers, ends)
    if paced is not traffic.transfers:
        traffic.times, traffic.transfers = times.covering(paced, ends), paced
    return traffic


class Book:
    """Collects the transfers of a run, and opens connections when they are first used."""

    def __init__(self, run: Run, sampler: Sampler) -> None:
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

    def has(self, one: int, other: int, port: int) -> bool:
        """Whether two hosts have a connection to that port."""
        return (min(one, other), max(one, other), port) in self._numbers

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
        """Add transfers, and their acknowledgements on the reverse flow where they are `acked`.

        Raises UsageError for one whose packets cannot be timed by whole numbers of 64 bits.
        """
        segment = self.sampler.segment_bytes
        header = self.sampler.header_bytes
        columns = np.broadcast_arrays(flow, start_ns, duration_ns, packets_of(payload, segment), payload, repeated)
        steps = np.broadcast_to(np.asarray(step, np.int64), columns[0].shape).ravel()
        whole = (column.astype(np.int64).ravel() for column in columns)
        data = Transfers(*whole, segment_bytes=segment, header_bytes=header, step=steps)
        if len(data) and float((data.packets.astype(float) * data.duration_ns).max()) >= 2**62:
            raise UsageError(
                f"{self._run.run_id}: a transfer of {int(data.payload.max()):,} bytes is too large and too slow: times "
                "of packets would not fit into 64 bits; give fewer model bytes, or more workers"
            )
        self.parts.append(data)
        back = data.take(np.flatnonzero(np.broadcast_to(acked, columns[0].shape).ravel()))
        nothing = np.zeros_like(back.flow)
        number = self.sampler.acks(back.packets)
        acks = Transfers(back.flow ^ 1, back.start_ns, back.duration_ns, number, nothing, nothing)
        self.parts.append(acks.take(np.flatnonzero(acks.packets)))

    def transfers(self) -> Transfers:
        """All transfers, in the order of their starts."""
        empty = np.empty(0, np.int64)
        columns = [
            np.concatenate([empty, *column]) for column in zip(*(part.columns for part in self.parts), strict=True)
        ]
        steps = [np.full(len(part), -1) if part.step is None else part.step for part in self.parts]
        step = np.concatenate([empty, *steps])
        sampler = self.sampler
        transfers = Transfers(
            *columns, segment_bytes=sampler.segment_bytes, header_bytes=sampler.header_bytes, step=step
        )
        return transfers.take(np.lexsort((transfers.flow, transfers.start_ns)))

    def open(self) -> Ints:
        """Add a packet without payload (SYN) at the start of each flow; return its times, in the order of flows."""
        pace = _OPENING_NS // max(10_000, len(self.connections))
        flow = np.arange(2 * len(self.connections))
        start = self._run.start_ns + flow * pace // 2
        one, nothing = np.ones_like(flow), np.zeros_like(flow)
        self.parts.append(Transfers(flow, start, one, one, nothing, nothing))
        return start


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
    if changes and run.wiring and run.wiring.neighbours:
        rows[..., 0] = (rows[..., 1] + rng.choice([-1, 1], rows.shape[:-1])) % run.workers
    rows = np.broadcast_to(rows, (run.steps, *rows.shape[1:]))
    stops = np.cumsum([0, *map(len, drawn[0])]).tolist()
    return Laws(rows[..., 0], rows[..., 1], rows[..., 2], tuple(pairwise(stops)))


def _exchange(run: SyntheticRun, laws: Laws, begin_ns: int, book: Book, rng: np.random.Generator) -> StepTimes:
    """Synchronous steps: a transfer begins when both ends have finished their rounds before."""
    sampler = book.sampler
    payload, repeated = sampler.payload(run, laws.size, rng)
    segment = sampler.segment_bytes
    wire = [
        busier(run.collective.hosts, laws.src[:, a:b], laws.dst[:, a:b], payload[:, a:b], segment)
        for a, b in laws.bounds
    ]
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
            end = sampler.end_ns(run, src, dst, payload[step, a:b], start[step, a:b], end)
            duration[step, a:b] = end - start[step, a:b]
            np.maximum.at(ready, src, end)
            np.maximum.at(ready, dst, end)
        times.communicated_ns[step] = ready[: run.workers]
        ready[: run.workers] += update
        times.end_ns[step] = ready[: run.workers]
    _send_data(laws, start, duration, payload, repeated, book)
    return times


def _pull(run: SyntheticRun, laws: Laws, begin_ns: int, book: Book, rng: np.random.Generator) -> StepTimes:
    """Asynchronous steps: each worker pulls a model when it is ready, at the rate that the links have left."""
    sampler = book.sampler
    payload, repeated = sampler.payload(run, laws.size, rng)
    wire = wire_bytes(payload, sampler.segment_bytes)
    duration = sampler.pull_ns(run, wire, rng)
    compute = sampler.compute_ns(run, rng) + round(run.delay_ms * 1e6)
    update = round(run.update_ms * 1e6)
    start, pulled, times_start, communicate = (np.zeros_like(payload), *(np.zeros_like(compute) for _ in range(3)))
    ready = np.full(run.workers, begin_ns)
    for step in range(run.steps):
        src, dst = laws.src[step], laws.dst[step]
        times_start[step] = ready
        communicate[step] = ready + compute[step]
        start[step] = communicate[step][dst]
        end = sampler.end_ns(run, src, dst, payload[step], start[step], start[step] + duration[step])
        duration[step] = end - start[step]
        pulled[step][dst] = duration[step]
        ready = communicate[step] + pulled[step] + update
    _send_data(laws, start, duration, payload, repeated, book)
    return StepTimes(times_start, communicate, communicate + pulled, communicate + pulled + update)


def _send_data(laws: Laws, start: Ints, duration: Ints, payload: Ints, repeated: Ints, book: Book) -> None:
    if not laws.bounds:
        return
    top = int(max(laws.src.max(), laws.dst.max())) + 1
    answered = np.zeros((top, top), bool)  # where data goes the other way, too, it carries the acknowledgements
    answered[laws.dst, laws.src] = True
    flow = book.flows(laws.src, laws.dst, Port.DATA)
    book.sampler.send_data(book, flow, start, duration, payload, repeated, ~answered[laws.src, laws.dst])


# --- everything else on the wire


def _send_broadcast(run: SyntheticRun, book: Book, rng: np.random.Generator) -> int:
    """Send the model to all workers before step 0; return when step 0 begins."""
    at = run.start_ns + SETUP_NS
    for round_ in broadcast(run.workers, run.model_bytes):
        src, dst, size = np.array(round_, np.int64).T
        payload, repeated = book.sampler.payload(run, size, rng)
        wire = busier(run.collective.hosts, src[None], dst[None], payload[None], book.sampler.segment_bytes)
        duration = book.sampler.times_ns(run, wire, np.zeros_like(src), rng)[1][0]
        flow = book.flows(src, dst, Port.DATA)
        book.send(flow, np.full(len(src), at), duration, payload, repeated, True)
        at += int(duration.max()) + 1
    return at + 10_000_000


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
    flow = book.flows(src, dst, Port.CONTROL)
    columns = [np.broadcast_to(column, src.shape).ravel() for column in (flow, start, duration, payload)]
    flow, start, duration, payload = (column[columns[3] > 0] for column in columns)
    book.send(flow, start, duration, payload, np.zeros_like(flow), True)


def _send_wiring(
    run: SyntheticRun, wiring: Wiring, laws: Laws, times: StepTimes, book: Book, rng: np.random.Generator
) -> None:
    """Open the framework's connections, and send in each step half of `noise` of its payload on those without data."""
    idle = []
    for (low, high), number in wiring.connections(run.workers, laws.pairs).items():
        carrying = int(book.has(low, high, Port.DATA))
        idle += [book.flow(low, high, Port.CONTROL + place) for place in range(number - carrying)]
    for place in range(wiring.refused):
        low = place % (run.workers - 1)
        book.flow(low, low + 1, Port.CONTROL + 1000 + place)
    payload = (laws.size.sum(1) * run.noise / 2 / max(1, len(idle))).astype(np.int64)
    if not idle or not payload.any():
        return
    shape = run.steps, len(idle)
    flow = np.array(idle, np.int64) + rng.integers(2, size=shape)  # either way
    begin, end = times.start_ns.min(1)[:, None], times.end_ns.max(1)[:, None]
    duration = np.minimum(payload[:, None] * 10 * run.ns_per_byte + 1, (end - begin) * 0.9).astype(np.int64)
    start = begin + (rng.random(shape) * (end - begin - duration)).astype(np.int64)
    flow, start, duration, sent = (
        np.broadcast_to(part, shape).ravel() for part in (flow, start, duration, payload[:, None])
    )
    book.send(flow, start, duration, sent, np.zeros_like(flow), True)


def _send_chatter(run: SyntheticRun, times: StepTimes, book: Book, rng: np.random.Generator) -> None:
    hosts = run.collective.hosts
    begin, end = run.start_ns + SETUP_NS // 2, int(times.end_ns.max()) + _TEARDOWN_NS
    first, outside = np.zeros(hosts - 1, np.int64), np.full(hosts, hosts)
    others, everyone = np.arange(1, hosts), np.arange(hosts)
    # logins, the rendezvous at the first worker, and the reports to it at the end
    _send_messages(book, outside, everyone, Port.SSH, (begin, begin + SETUP_NS // 4), (3000, 6000), rng)
    _send_messages(book, others, first, Port.RENDEZVOUS, (begin, begin + SETUP_NS // 4), (2000, 9000), rng)
    _send_messages(book, others, first, Port.RENDEZVOUS, (end - _TEARDOWN_NS // 2, end), (200, 900), rng)
    seconds = math.ceil((end - begin) / 1e9)
    terminal = np.tile(everyone, seconds)
    _send_messages(book, terminal, np.full_like(terminal, hosts), Port.SSH, (begin, end), (36, 400), rng)
    if hosts > 1:
        src = rng.integers(hosts, size=2 * seconds)
        dst = (src + rng.integers(1, hosts, size=len(src))) % hosts
        _send_messages(book, src, dst, Port.CONTROL, (begin, end), (100, 4000), rng)


def _send_messages(
    book: Book, src: Ints, dst: Ints, port: Port, span_ns: tuple[int, int], sizes: tuple[int, int],
    rng: np.random.Generator,
) -> None:  # fmt: skip
    """A short message from each `src` to its `dst` at a random time, and its acknowledgement."""
    if not len(src):
        return
    payload = rng.integers(*sizes, size=len(src))
    start = rng.integers(*span_ns, size=len(src))
    duration = packets_of(payload, book.sampler.segment_bytes) * 12_000
    book.send(book.flows(src, dst, port), start, duration, payload, np.zeros_like(payload), True)


# --- the scenarios of Zerwas et al. 2021: what their testbed would have sent if it obeyed the laws
#
# The paper measures "more than 75 scenarios" and lists their parts in section IV-B, not their combinations. From the
# paper are the models with their sizes, the settings of the frameworks, the four topologies of KungFu's S-SGD and of
# its pair averaging (section V-B), batch 64 and Adam by default, batches 128 and 512 (fig. 9), RMSProp (section V-A),
# loss with TensorFlow and MobileNetV2 (fig. 10), four nodes, six with a parameter server. The paper does not list which
# of these were combined; the combinations here are chosen so that there are 75:
#
#     60  every setting (15) with every model (4), batch 64, Adam
#      8  KungFu S-SGD on a binary tree star, batch 128 and 512, with every model
#      4  TensorFlow's ring over gRPC with RMSProp, with every model
#      3  the same with MobileNetV2 and 0.01, 0.1 and 2% of loss
#
# The four runs with a parameter server are in zerwas-79 only: the paper leaves them out from section V-B on, and a
# server of 4 workers moves 8 times the model, where the others move 6.
#
# Runs of equal volume by law differ by `noise`, the one number that is not the paper's: see `runs_of`.

#: The paper's gradient flows are 99% of what is transmitted (section V-B); noise models the other 1%.
DEFAULT_NOISE = 0.01

PREFIX = "synthetic-"
WORKERS = 4
WINDOW_NS = 100_000_000
LINK_MBIT = 10_000.0  # section IV-A
_BEGIN_NS = 1_600_000_000_000_000_000
_HOUR_NS = 3_600_000_000_000


@dataclass(frozen=True)
class Model:
    """A model of section IV-B. compute_ms: of a batch of 64 on one worker's GPU; not the paper's, changes no bytes."""

    name: str
    size_mb: int
    compute_ms: float


@dataclass(frozen=True)
class Setting:
    """A framework's setting. topology: as declared; law: the collective and shape that its bytes obey."""

    framework: str
    backend: str
    topology: str
    law: tuple[str, str]
    wiring: Wiring | None


@dataclass(frozen=True)
class Scenario:
    """A setting with a model, an optimizer, a batch and a loss."""

    setting: Setting
    model: Model
    optimizer: str = "adam"
    batch_size: int = 64
    loss_pct: float = 0.0

    @property
    def run_id(self) -> str:
        """`synthetic-` and the name in the published scheme (docs/design.md, section 4)."""
        condition = f"loss_{self.loss_pct:g}" if self.loss_pct else "normal"
        setting = self.setting
        return (
            f"{PREFIX}{setting.framework}-{self.model.name}-{self.optimizer}-{self.batch_size}-{setting.backend}-"
            f"{condition}-{setting.topology}"
        )


MODELS = (
    Model("mobilenetv2", 14, 90.0), Model("densenet201", 80, 260.0), Model("resnet50", 97, 180.0),
    Model("resnet101", 171, 300.0),
)  # fmt: skip

_RING, _GRID, _PULL = ("ring", ""), ("hierarchical_ring", "grid"), ("pair_averaging", "pull")

#: KungFu's topologies and their laws for S-SGD. All send 6 times the model, the clique because its chunks are divided
#: among the workers (each sums its own): the paper finds the same total for all S-SGD, and a clique in which every
#: worker sends everything to all would send 12 times. In the tree only the root relays, as in fig. 4(c). The binary
#: tree star has three edges, since the paper counts 12 flows in it, two connections an edge (V-B), and six large ones;
#: its fig. 4(b) shows a fourth pair, W1 and W4, which it could not clarify.
KUNGFU = {
    "binary_tree_star": ("binary_tree_star", "groups"),
    "tree": ("star", "worker"),
    "star": ("star", "worker"),
    "clique": ("clique", "sharded"),
}

# Connections, as section V-B describes them. TensorFlow: one of each pair of neighbours, and 16 flows between the two
# pairs that are none, four connections each. Horovod: 8 flows of SSH, one connection a worker; of the 8 others the
# paper says nothing: the daemon of mpirun on each worker, by assumption. KungFu: two a pair of the tree; with pair
# averaging two of every pair besides ("W1 has double the number of connections", being the root). With a clique the
# rest are flows of 54 and 74 bytes: attempts that are refused. 22 flows with S-SGD by the paper; 16 with pair averaging
# by what is left of 64. Pair averaging has eight large flows and "a more intense structure similar to the ring": pulls
# from the neighbours, by assumption.
_GRPC, _MPIRUN = Wiring(side=4), Wiring(outside=2)
_SSGD = Wiring(edge=2), Wiring(edge=2, refused=11)
_PAIRAVG = (
    Wiring(edge=2, mesh=2, joined=((0, 1), (0, 2), (0, 3)), neighbours=True),
    Wiring(edge=2, mesh=2, joined=tuple(itertools.combinations(range(4), 2)), refused=8, neighbours=True),
)

#: The settings of section IV-B and table II. NCCL's hierarchical reduce is that of a grid: reduce-scatter in the
#: group, all-reduce across, all-gather in the group. Pair averaging is declared with KungFu's topologies, and pulls.
SETTINGS = (
    Setting("tensorflow", "grpc", "ring", _RING, _GRPC),
    Setting("tensorflow", "grpc_nccl", "ring", _RING, _GRPC),
    Setting("horovod", "mpi", "ring", _RING, _MPIRUN),
    Setting("horovod", "gloo", "ring", _RING, _MPIRUN),
    Setting("horovod", "mpi_nccl", "ring", _RING, _MPIRUN),
    Setting("horovod", "gloo_nccl", "ring", _RING, _MPIRUN),
    Setting("horovod", "mpi_nccl", "hierarchical_ring", _GRID, _MPIRUN),
    *(Setting("kungfu", "ssgd", topology, law, _SSGD[topology == "clique"]) for topology, law in KUNGFU.items()),
    *(Setting("kungfu", "pairavg", topology, _PULL, _PAIRAVG[topology == "clique"]) for topology in KUNGFU),
)
PARAMETER_SERVER = Setting("tensorflow", "grpc", "parameter_server", ("star", "server"), None)

LOSSES_PCT = (0.01, 0.1, 2.0)
BATCHES = (128, 512)


def _zerwas_75() -> tuple[Scenario, ...]:
    grpc, star = SETTINGS[0], next(s for s in SETTINGS if (s.backend, s.topology) == ("ssgd", "binary_tree_star"))
    return (
        *(Scenario(setting, model) for setting, model in itertools.product(SETTINGS, MODELS)),
        *(Scenario(star, model, batch_size=batch) for batch, model in itertools.product(BATCHES, MODELS)),
        *(Scenario(grpc, model, "rmsprop") for model in MODELS),
        *(Scenario(grpc, MODELS[0], loss_pct=loss) for loss in LOSSES_PCT),
    )


SCENARIOS = {
    "zerwas-75": _zerwas_75(),
    "zerwas-79": (*_zerwas_75(), *(Scenario(PARAMETER_SERVER, model) for model in MODELS)),
}


def generate(
    out: Path, scenarios: str = "zerwas-75", steps: int = 20, seed: int = 0, noise: float = DEFAULT_NOISE
) -> list[str]:
    """Write a set of SCENARIOS into the dataset at `out`, new or next to other runs; return the runs' names.

    About 0.1 s a run of 20 steps. Arguments and errors as of `runs_of`; UsageError also where `out` is not a dataset.
    """
    return write_runs(out, runs_of(scenarios, steps, seed, noise))


def runs_of(
    scenarios: str = "zerwas-75", steps: int = 20, seed: int = 0, noise: float = DEFAULT_NOISE
) -> list[SyntheticRun]:
    """The runs of a set of SCENARIOS.

    Every run, whatever its setting, draws one share evenly between 0 and 2 * `noise` and uses it twice: half of it for
    control messages on connections without data, relative to the exchange; and as the largest part of a transfer that
    is retransmitted, half of it in the mean. So a run sends `noise` more than its law in the mean, with a standard
    deviation of 0.58 * noise, and control messages are at most that share; headers (66 bytes a segment) and
    acknowledgements (one for two segments where no data goes back) come on top, and `loss_pct` is retransmitted.
    The framework, batch and topology have no effect except through the law. The same seed gives the same bytes.

    Raises UsageError for an unknown set, fewer than 1 step, or noise outside 0 to 0.5.
    """
    if scenarios not in SCENARIOS:
        raise UsageError(f"no scenarios named {scenarios}; there are {', '.join(SCENARIOS)}")
    if steps < 1:
        raise UsageError(f"{steps} steps: give 1 or more")
    if not (math.isfinite(noise) and 0 <= noise <= 0.5):
        raise UsageError(f"noise {noise:g}: give a share between 0 and 0.5")
    return [_run(scenario, i, steps, seed, noise) for i, scenario in enumerate(SCENARIOS[scenarios])]


def _run(scenario: Scenario, number: int, steps: int, seed: int, noise: float) -> SyntheticRun:
    setting, model = scenario.setting, scenario.model
    topology, shape = setting.law
    draw = np.random.default_rng([seed, zlib.crc32(scenario.run_id.encode()), 1])  # another stream than the run's own
    return SyntheticRun(
        run_id=scenario.run_id, topology=topology, shape=shape, workers=WORKERS, model_bytes=model.size_mb * 1_000_000,
        declared_topology=setting.topology, framework=setting.framework, backend=setting.backend, model=model.name,
        optimizer=scenario.optimizer, batch_size=scenario.batch_size, loss_pct=scenario.loss_pct, steps=steps,
        compute_ms=model.compute_ms * scenario.batch_size / 64, bandwidth_mbit=LINK_MBIT,
        noise=float(draw.uniform(0, 2 * noise)), window_ns=WINDOW_NS, seed=seed, start_ns=_BEGIN_NS + number * _HOUR_NS,
        chief=setting == PARAMETER_SERVER,
        # in 20 epochs the first broadcast is nothing, in 20 steps it would be a large flow
        broadcast=False, wiring=setting.wiring,
    )  # fmt: skip


def summary(runs: Sequence[str], out: Path) -> str:
    """A sentence on the written runs that states that they are synthetic."""
    return f"wrote {len(runs)} synthetic runs, generated by the laws of the collectives, not measured, to {out}"
