"""The exchange of a buffer on the links: its phases, rounds and transfers with their times.

The rounds of a collective follow each other (traffic/collectives.py). In a round each link is shared max-min fairly
(Bertsekas & Gallager, Data Networks, section 6.5.2) and the propagation delay counts once.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace

import numpy as np

from ddnn_traces.traffic.collectives import Round, Transfer, shares
from ddnn_traces.traffic.simulator.job import SimulatedRun
from ddnn_traces.traffic.traffic import Floats, Ints


@dataclass(frozen=True)
class Transmissions:
    """Transfers at a constant rate, as parallel arrays: sender, receiver, start and end in ns, payload bytes, and bytes
    on the wire, which are exact: the payload of a transfer that is cut is rounded to whole packets.
    """

    src: Ints
    dst: Ints
    begin_ns: Floats
    end_ns: Floats
    payload: Ints
    wire: Floats

    def __len__(self) -> int:
        return len(self.src)


@dataclass(frozen=True)
class Phase:
    """A part of an exchange that has its links for itself: duration in ns, and transmissions from its start on."""

    duration_ns: float
    transmissions: Transmissions


def phases(run: SimulatedRun, size: int, rng: random.Random | None = None) -> list[list[Round]]:
    """Rounds of the exchange of `size` bytes: one phase, or aggregation and distribution."""
    rounds = run.collective.rounds(size, rng)
    if not run.is_phased:
        return [rounds]
    middle = len(rounds) // 2
    up, down = rounds[:middle], rounds[middle:]
    switch = run.collective.hosts
    if run.in_network_aggregation:
        up = [_summed(round_, switch) for round_ in up]
    if run.multicast:
        down = [_copied(round_, switch) for round_ in down]
    return [up, down]


def _summed(round_: Round, switch: int) -> Round:
    """The switch adds what goes to the same host: each sends to the switch, which sends the sum once."""
    sums = {t.dst: t.bytes for t in round_}
    sent = [Transfer(t.src, switch, t.bytes) for t in round_]
    return sent + [Transfer(switch, dst, size) for dst, size in sums.items()]


def _copied(round_: Round, switch: int) -> Round:
    """The switch copies what comes from the same host: that sends once, the switch to each receiver."""
    sources = {t.src: t.bytes for t in round_}
    sent = [Transfer(src, switch, size) for src, size in sources.items()]
    return sent + [Transfer(switch, t.dst, t.bytes) for t in round_]


def timed(run: SimulatedRun, rounds: list[Round]) -> Phase:
    """Rounds one after the other on the run's own links."""
    rates = link_rates(run)
    delay_ns = run.delay_ms * 1e6
    now, parts = 0.0, []
    for round_ in rounds:
        src, dst, payload = np.array(round_, np.int64).reshape(-1, 3).T
        part = _round(src, dst, payload, run, rates)
        parts.append(later(part, now))
        now += float(part.end_ns.max()) + delay_ns
    return Phase(now, joined(parts))


def ring(run: SimulatedRun, size: int) -> Phase:
    """What timed() gives for a ring of equal links, in closed form (equation 4.1), a transmission a worker.

    In each of the 2(N-1) rounds some worker sends the largest of the chunks. Worker i sends all chunks twice but those
    of i + 1 and i + 2.
    """
    number = run.workers
    chunks = np.array(shares(size, number), np.int64)
    largest = float(run.wire(chunks.max()[None])[0])
    rounds = 2 * (number - 1)
    duration = rounds * (largest / run.rates()[0] + run.delay_ms * 1e6)
    order = np.array(run.order or range(number), np.int64)
    sent = 2 * size - np.roll(chunks, -1) - np.roll(chunks, -2)
    times = np.zeros(number), np.full(number, duration)
    return Phase(duration, Transmissions(order, np.roll(order, -1), *times, sent, run.wire(sent).astype(float)))


def merged(phase: Phase, hosts: int) -> Phase:
    """A transmission a pair of hosts, as long as the phase."""
    part = phase.transmissions
    pairs, place = np.unique(part.src * (hosts + 1) + part.dst, return_inverse=True)
    payload = np.zeros(len(pairs), np.int64)
    np.add.at(payload, place, part.payload)
    wire = np.bincount(place, part.wire).astype(float)
    times = np.zeros(len(pairs)), np.full(len(pairs), phase.duration_ns)
    return Phase(phase.duration_ns, Transmissions(pairs // (hosts + 1), pairs % (hosts + 1), *times, payload, wire))


def link_rates(run: SimulatedRun) -> Floats:
    """Bytes a ns of each host's link, the switch's (without a limit of its own) last."""
    return np.append(run.rates(), np.inf)


def joined(parts: list[Transmissions]) -> Transmissions:
    """All of them, in this order."""
    names = [field.name for field in fields(Transmissions)]
    return Transmissions(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))


def later(part: Transmissions, by_ns: float) -> Transmissions:
    """The same so much later."""
    return replace(part, begin_ns=part.begin_ns + by_ns, end_ns=part.end_ns + by_ns)


def _round(src: Ints, dst: Ints, payload: Ints, run: SimulatedRun, rates: Floats) -> Transmissions:
    """Transfers that begin at the same time; one whose rate changes becomes several transmissions."""
    wire = run.wire(payload).astype(float)
    left, sent = wire.copy(), np.zeros_like(payload)
    now, parts = 0.0, []
    open_ = np.flatnonzero(left > 0)
    while len(open_):
        rate = max_min_rates(src[open_], dst[open_], rates)
        length = float((left[open_] / rate).min())
        left[open_] -= rate * length
        left[open_[left[open_] < 1e-9 * wire[open_]]] = 0
        reached = (payload[open_] * (1 - left[open_] / wire[open_])).astype(np.int64)
        moved = reached - sent[open_]
        sent[open_] = reached
        times = np.full(len(open_), now), np.full(len(open_), now + length)
        parts.append(Transmissions(src[open_], dst[open_], *times, moved, rate * length))
        now += length
        open_ = open_[left[open_] > 0]
    return joined(parts)


def max_min_rates(src: Ints, dst: Ints, rates: Floats) -> Floats:
    """Max-min fair rates of transfers, bytes a ns, by progressive filling: the link with the least share a transfer is
    filled first, then what is left is shared among the others."""
    hosts = len(rates)
    links = np.stack([src, dst + hosts])  # senders' links out, receivers' links in
    left = np.concatenate([rates, rates])
    found = np.zeros(len(src))
    open_ = np.ones(len(src), bool)
    while open_.any():
        number = np.bincount(links[:, open_].ravel(), minlength=2 * hosts)
        share = np.full(2 * hosts, np.inf)
        share[number > 0] = left[number > 0] / number[number > 0]
        least = share.min()
        full = share <= least * (1 + 1e-12)
        filled = open_ & full[links].any(0)
        found[filled] = least
        used = np.bincount(links[:, filled].ravel(), minlength=2 * hosts) * least
        left = np.where(np.isfinite(left), np.maximum(left - used, 0), left)
        open_ &= ~filled
    return found


def all_variants(run: SimulatedRun) -> Iterator[random.Random]:
    """A generator of pairs for each iteration whose transfers differ; one where they do not."""
    for iteration in range(run.steps if run.is_redrawn else 1):
        yield random.Random(f"{run.seed}-{iteration}")  # noqa: S311, no secret
