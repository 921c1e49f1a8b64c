"""The plain peers that a traffic model is compared with: the same volume, at a constant rate or as Poisson arrivals."""

from __future__ import annotations

import zlib
from dataclasses import replace

import numpy as np

from ddnn_traces.traffic.synthetic.traffic import DATA_PORT, Book, Sampler, Traffic, packets_of

PEERS = ("constant_rate", "poisson")


class _Plain(Sampler):
    def __init__(self, segment_bytes: int) -> None:
        self.segment_bytes = segment_bytes


def peer(kind: str, made: Traffic, run_id: str) -> Traffic:
    """Traffic of the pairs of `made`, as much as they exchange in its steps, in the same time.

    constant_rate: packets at an even pace. poisson: a Poisson number of packets, with as many expected, at independent
    and uniform times.
    """
    run = replace(made.run, run_id=run_id)
    rng = np.random.default_rng([run.seed, zlib.crc32(run_id.encode())])
    book = Book(run, _Plain(made.transfers.segment_bytes))
    begin_ns, end_ns = int(made.times.start_ns.min()), int(made.times.end_ns.max())
    for (src, dst), payload in sorted(_exchanged(made).items()):
        flow = np.array([book.flow(src, dst, DATA_PORT)])
        segment = made.transfers.segment_bytes
        packets = int(packets_of(np.array(payload), segment))
        if kind == "constant_rate":
            start, lasting, size = np.array([begin_ns]), end_ns - begin_ns, np.array([payload])
        else:
            start = np.sort(rng.integers(begin_ns, end_ns, rng.poisson(packets)))
            lasting, size = 1, np.full(len(start), min(segment, payload))
        flow = np.broadcast_to(flow, start.shape)
        book.send(flow, start, np.full(start.shape, lasting), size, np.zeros_like(size), acked=False)
    opened = book.open()
    transfers = book.transfers()
    return Traffic(run, made.times, book.connections, opened, transfers)


def _exchanged(made: Traffic) -> dict[tuple[int, int], int]:
    """Payload of each pair from the first step on, on the connections of the exchange."""
    t = made.transfers
    port = np.array([c.server_port for c in made.connections])
    inside = (t.start_ns >= made.times.start_ns.min()) & (port[t.flow // 2] == DATA_PORT)
    total = np.bincount(t.flow[inside], t.payload[inside], len(made.ends)).astype(np.int64)
    return {made.ends[flow]: int(total[flow]) for flow in np.flatnonzero(total)}
