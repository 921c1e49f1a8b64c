"""A synthetic capture of a ring all-reduce, made with NumPy: as large as one likes, cheap to make, the same each time.

Four workers, 24 directed flows as zerwas counts them for TensorFlow's ring: 4 that carry the gradients, 4 with the
answers to them, 16 side flows. Every record holds 100 bytes of an Ethernet, IPv4 and TCP frame of 1,514 (gradients)
or 120 bytes; steps of bursts at 10 Gbit/s a link with pauses of 50 ms.
"""

from __future__ import annotations

import argparse
import itertools
from pathlib import Path

import numpy as np

from ddnn_traces.capture_format import pcap_header
from ddnn_traces.traffic.pcaps import new_records
from ddnn_traces.traffic.traffic import SNAPLEN

WORKERS = 4
PACKETS_A_STEP = 200_000
CHUNK = 1_000_000
PAUSE_US = 50_000
PACKET_US = 0.3  # 1,514 bytes on four links of 10 Gbit/s


def ring_flows() -> np.ndarray:
    """The 24 five-tuples as rows (source, destination, source port, destination port), gradient flows first."""
    hosts = [(10 << 24) | (1 + n) for n in range(WORKERS)]
    ring = [(n, (n + 1) % WORKERS, 40000 + n, 2222) for n in range(WORKERS)]
    answers = [(b, a, q, p) for a, b, p, q in ring]
    pairs = itertools.cycle(itertools.permutations(range(WORKERS), 2))
    side = [(a, b, 50000 + i, 2223) for i, (a, b) in zip(range(16), pairs, strict=False)]
    return np.array([(hosts[a], hosts[b], p, q) for a, b, p, q in ring + answers + side], np.uint32)


def shuffled_flows(count: int, rng: np.random.Generator, answered: bool) -> np.ndarray:
    """`count` different five-tuples among many hosts. answered: half of them are the others with the ends exchanged."""
    number = np.arange(count, dtype=np.uint32) // (2 if answered else 1)
    src = (10 << 24) | (number % 250 + 1)
    dst = (10 << 24) | (1 << 16) | (number // 250 % 250 + 1)
    flows = np.stack([src, dst, 1024 + number // 62500, np.full(count, 2222, np.uint32)], axis=1)
    if answered:
        flows[1::2] = flows[1::2][:, [1, 0, 3, 2]]
    return rng.permutation(flows)


def write(path: Path, packets: int, flow_count: int = 24, answered: bool = False) -> None:
    """Write a pcap of that many packets; flow_count other than 24: that many flows, drawn at random.

    answered: as of shuffled_flows.
    """
    rng = np.random.default_rng(1)
    flows = ring_flows() if flow_count == 24 else shuffled_flows(flow_count, rng, answered)
    sent = np.zeros(len(flows), np.int64)  # payload so far: the next sequence number
    with path.open("wb") as file:
        file.write(pcap_header(SNAPLEN, 1, nanoseconds=False))
        for begin in range(0, packets, CHUNK):
            _records(begin, min(CHUNK, packets - begin), flows, sent, rng).tofile(file)


def _records(begin: int, count: int, flows: np.ndarray, sent: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    number = np.arange(begin, begin + count)
    if len(flows) == 24:
        # of 100 packets 92 carry gradients, 7 are answers and 1 is on a side flow; trains of 8 as TCP sends them
        kind = rng.random(count)
        link = (number // 8) % WORKERS
        flow = np.where(kind < 0.92, link, np.where(kind < 0.99, 4 + link, 8 + rng.integers(16, size=count)))
        large = kind < 0.92
    else:
        flow = rng.integers(len(flows), size=count)
        large = np.ones(count, bool)
    time_us = (number * PACKET_US).astype(np.int64) + (number // PACKETS_A_STEP) * PAUSE_US
    records = new_records(count)
    records["seconds"] = 1_700_000_000 + time_us // 1_000_000
    records["fraction"] = time_us % 1_000_000
    records["captured"] = SNAPLEN
    records["wire"] = np.where(large, 1514, 120)
    records["ethernet"] = b"\2\0\0\0\0\1\2\0\0\0\0\2"
    records["ip_bytes"] = records["wire"] - 14
    for column, name in enumerate(("src_ip", "dst_ip", "src_port", "dst_port")):
        records[name] = flows[flow, column]
    payload = records["wire"].astype(np.int64) - 66
    following = sent[flow] + _sum_so_far(flow, payload)
    records["seq"] = (following - payload) & 0xFFFFFFFF
    if len(flows) == 24:  # answers acknowledge what their gradient flow has sent, as far as this chunk goes
        for link in range(WORKERS):
            gradients, answers = flow == link, flow == WORKERS + link
            acknowledged = np.maximum.accumulate(np.where(gradients, following, sent[link]))
            records["ack"][answers] = acknowledged[answers] & 0xFFFFFFFF
    np.add.at(sent, flow, payload)
    return records


def _sum_so_far(group: np.ndarray, values: np.ndarray) -> np.ndarray:
    """For each value the sum of the values of its group up to and with it."""
    order = np.argsort(group, kind="stable")
    running = np.cumsum(values[order])
    first = np.r_[True, group[order][1:] != group[order][:-1]]
    before = np.maximum.accumulate(np.where(first, running - values[order], 0))
    result = np.empty_like(running)
    result[order] = running - before
    return result


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", type=Path)
    parser.add_argument("--packets", type=int, default=20_000_000)
    parser.add_argument("--flows", type=int, default=24)
    parser.add_argument("--answered", action="store_true", help="flows drawn at random in both directions")
    arguments = parser.parse_args()
    write(arguments.path, arguments.packets, arguments.flows, arguments.answered)
