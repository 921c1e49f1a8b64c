"""tshark as an outside truth: packets, bytes, times and flags of the innermost five-tuples, of both readings."""

from __future__ import annotations

import collections
import itertools
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import naive
import numpy as np
import packets as p
import pyarrow.parquet as pq
import pytest
from tools import needs_tool

from ddnn_traces.ingestors.facts import ReadOptions
from ddnn_traces.ingestors.packets import numba_engine

SAMPLE = Path(__file__).resolve().parents[3] / "data" / "sample"
RUNS = sorted({path.parent for path in SAMPLE.glob("*/worker-*-tcpdump.pcap*")})
T0 = 1_700_000_000 * 10**9 + 123_456_000
US = 1000

PREFERENCES = (
    "ip.defragment:FALSE", "ipv6.defragment:FALSE", "tcp.desegment_tcp_streams:FALSE",
    "tcp.analyze_sequence_numbers:FALSE", "ip.tso_support:TRUE", "ipv6.tso_support:TRUE",
)  # fmt: skip
FIELDS = (
    "frame.time_epoch", "frame.len", "frame.protocols", "ip.src", "ip.dst", "ip.proto", "ipv6.src", "ipv6.dst",
    "tcp.srcport", "tcp.dstport", "udp.srcport", "udp.dstport", "tcp.flags.syn", "tcp.flags.fin", "tcp.flags.reset",
    "infiniband.bth.destqp", "infiniband.bth.opcode",
)  # fmt: skip

FiveTuple = tuple[str, str, int, int]  # source, destination, and ports; the protocol is told by `Counts.protocols`
PROTOCOLS = {"tcp": 6, "udp": 17}


@dataclass
class Counts:
    """What can be compared. flows: innermost addresses and ports -> packets, wire bytes, SYN, FIN, RST."""

    flows: dict[tuple, tuple[int, ...]] = field(default_factory=dict)
    queues: dict[tuple, int] = field(default_factory=dict)
    times: list[int] = field(default_factory=list)

    def add(self, key: tuple, numbers: tuple[int, ...]) -> None:
        before = self.flows.get(key, (0,) * len(numbers))
        self.flows[key] = tuple(a + b for a, b in zip(before, numbers, strict=True))

    def without_ports(self) -> dict[tuple, tuple[int, ...]]:
        """Packets and bytes of each address pair."""
        pairs = Counts()
        for (source, destination, *_), numbers in self.flows.items():
            pairs.add((source, destination), numbers[:2])
        return pairs.flows


def by_tshark(path: Path) -> Counts:
    """What tshark says: packets with an IP header, and the times of all that have one."""
    command = [needs_tool("tshark"), "-n", "-r", path, "-T", "fields", "-E", "occurrence=l", "-E", "separator=\t"]
    command += ["-d", f"mpls.label=={p.PSEUDOWIRE_LABEL},pwethcw"]  # MPLS itself does not say what it carries
    command += itertools.chain.from_iterable(("-o", each) for each in PREFERENCES)
    command += itertools.chain.from_iterable(("-e", each) for each in FIELDS)
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    counts = Counts()
    for line in done.stdout.splitlines():
        add_packet(counts, dict(zip(FIELDS, line.split("\t"), strict=True)))
    return counts


def add_packet(counts: Counts, packet: dict[str, str]) -> None:
    layers = packet["frame.protocols"].split(":")
    inner = max((i for i, layer in enumerate(layers) if layer in ("ip", "ipv6")), default=None)
    if inner is None:
        return
    ends = packet[f"{layers[inner]}.src"], packet[f"{layers[inner]}.dst"]
    transport = next((layer for layer in layers[inner + 1 :] if layer in PROTOCOLS), None)
    ports = (0, 0)
    if transport:
        ports = int(packet[f"{transport}.srcport"]), int(packet[f"{transport}.dstport"])
    flags = (packet[f"tcp.flags.{flag}"] == "1" and transport == "tcp" for flag in ("syn", "fin", "reset"))
    key = (*ends, PROTOCOLS.get(transport or ""), *ports)
    counts.add(key, (1, int(packet["frame.len"]), *map(int, flags)))
    if packet["frame.time_epoch"]:
        seconds, fraction = packet["frame.time_epoch"].split(".")
        counts.times.append(int(seconds) * 10**9 + int(fraction))
    if packet["infiniband.bth.destqp"]:
        queue = int(packet["infiniband.bth.destqp"], 0), int(packet["infiniband.bth.opcode"], 0)
        counts.queues[queue] = counts.queues.get(queue, 0) + 1


def of_rows(rows: list[dict[str, Any]], times: list[int]) -> Counts:
    """What our flows say in the same terms. Protocols but TCP and UDP are one, as tshark names them differently."""
    counts = Counts(times=times)
    for row in rows:
        protocol = row["protocol"] if row["protocol"] in PROTOCOLS.values() and row["src_port"] else None
        key = row["src_ip"], row["dst_ip"], protocol, row["src_port"], row["dst_port"]
        names = ("packets", "wire_bytes", "syn_packets", "fin_packets", "rst_packets")
        counts.add(key, tuple(row[name] for name in names))
        if row["roce_dest_qp"] is not None:
            queue = row["roce_dest_qp"], row["roce_opcode"]
            counts.queues[queue] = counts.queues.get(queue, 0) + row["packets"]
    return counts


def by_engine(path: Path, folder: Path) -> Counts:
    options = ReadOptions(10**6, np.array([], np.int64), folder / "cells", folder / "packets")
    facts = numba_engine.read_capture(path, options)
    times = pq.read_table(facts.packets)["ts_ns"].to_pylist() if facts.packets else []
    for left in (facts.cells, facts.packets):
        if left:
            left.unlink()
    return of_rows(facts.flows.to_pylist(), times)


def by_naive(data: bytes) -> Counts:
    facts = naive.read(data, 10**6, [])
    return of_rows(list(facts.flows.values()), [row[2] for row in facts.packets])


# --- the sample


def test_there_is_a_sample() -> None:
    assert len(RUNS) == 20


@pytest.mark.parametrize("run", RUNS, ids=lambda path: path.name)
def test_the_sample(run: Path, tmp_path: Path) -> None:
    """Every five-tuple of every file; 400,000 packets in the whole sample."""
    for path in sorted(run.glob("worker-*-tcpdump.pcap*")):
        truth = by_tshark(path)
        assert truth.flows
        assert by_engine(path, tmp_path) == truth


# --- captures made by hand

TCP, UDP = p.tcp(bytes(100)), p.udp(bytes(100))
V4, V6 = p.ipv4(TCP), p.ipv6(TCP)
OUTER = {"source": "192.0.2.1", "destination": "192.0.2.2"}


def file(*frames: bytes, **header: Any) -> bytes:
    return p.pcap([p.Record(T0 + i * US, frame) for i, frame in enumerate(frames)], **header)


def eth(packet: bytes, kind: int = p.IPV4, tags: list[int] | None = None) -> bytes:
    return p.ethernet(packet, kind, tags or [])


def in_ip(body: bytes, protocol: int) -> bytes:
    return p.ipv4(body, protocol=protocol, **OUTER)


def in_udp(body: bytes, port: int) -> bytes:
    return in_ip(p.udp(body, 50000, port), p.UDP)


def hand_made() -> Iterator[tuple[str, bytes]]:
    for order, tick_ns in itertools.product("<>", (1, 1000)):
        yield f"pcap {order} {tick_ns}", file(eth(V4), eth(V6, p.IPV6), order=order, tick_ns=tick_ns)
        yield f"pcapng {order} {tick_ns}", pcapng(order, tick_ns)
    yield "vlan", file(eth(V4, tags=[p.VLAN]), eth(V6, p.IPV6, [p.SERVICE_VLAN, p.VLAN]), eth(V4, tags=[0x9100]))
    yield "mpls", file(eth(p.mpls(V4), p.MPLS), eth(p.mpls(V6, 3), p.MPLS), eth(p.mpls(V4, 2), 0x8848))
    yield "pseudowire", file(eth(p.pseudowire(eth(V4)), p.MPLS))
    yield "pppoe", file(eth(p.pppoe(V4), p.PPPOE), eth(p.pppoe(V6, p.IPV6), p.PPPOE, [p.VLAN]))
    yield "sll", file(p.sll(V4), p.sll(V6, p.IPV6), p.sll(bytes(28), p.ARP), link=p.SLL)
    yield "sll2", file(p.sll2(V4), p.sll2(V6, p.IPV6), p.sll2(bytes(28), p.ARP), link=p.SLL2)
    for link in (12, 14, 101):
        yield f"raw {link}", file(V4, V6, link=link)
    yield "raw IPv4", file(V4, link=228)
    yield "raw IPv6", file(V6, link=229)
    yield "null", file(p.null(V4), p.null(V6, p.IPV6), link=p.NULL)
    yield "loop", file(b"\0\0\0\2" + V4, b"\0\0\0\x1e" + V6, link=108)
    yield "ipv4 options", file(eth(p.ipv4(TCP, options=b"\x94\x04\0\0")), eth(p.ipv4(UDP, protocol=p.UDP)))
    chains = [
        [p.hop_by_hop()],
        [p.hop_by_hop(1), p.destination_options(2)],
        [p.authentication()],
        [p.fragment_header()],
    ]
    yield "ipv6 extension headers", file(*(eth(p.ipv6(TCP, extensions=chain), p.IPV6) for chain in chains))
    yield "icmp", file(eth(p.ipv4(p.icmp(bytes(30)), protocol=p.ICMP)), eth(V4), p.arp())
    yield "vxlan", file(eth(in_udp(p.vxlan(eth(V4)), 4789)), eth(in_udp(p.vxlan(eth(V6, p.IPV6, [p.VLAN])), 4789)))
    yield (
        "geneve",
        file(eth(in_udp(p.geneve(eth(V4)), 6081)), eth(in_udp(p.geneve(eth(V6, p.IPV6), options=bytes(8)), 6081))),
    )
    yield "geneve ip", file(eth(in_udp(p.geneve(V4, p.IPV4), 6081)))
    gres = [p.gre(V4), p.gre(V4, key=7), p.gre(V4, checksum=True), p.gre(V4, sequence=7), p.gre(eth(V4), p.BRIDGED),
            p.gre(V6, p.IPV6, 7, True, 7), p.erspan(eth(V4), 1), p.erspan(eth(V4), 2), p.erspan(eth(V4), 3),
            p.erspan(eth(V4), 3, subheader=True)]  # fmt: skip
    yield "gre", file(*(eth(in_ip(gre, p.GRE)) for gre in gres))
    yield "ip in ip", file(
        eth(in_ip(V4, p.IPIP)), eth(in_ip(V6, p.IPV6_IN_IP)),
        eth(p.ipv6(V4, protocol=p.IPIP), p.IPV6), eth(p.ipv6(V6, "fd01::1", protocol=p.IPV6_IN_IP), p.IPV6),
    )  # fmt: skip
    yield (
        "nested",
        file(
            eth(in_udp(p.vxlan(eth(in_ip(p.gre(in_ip(V4, p.IPIP), key=1), p.GRE))), 4789)),
            eth(in_ip(p.gre(eth(in_udp(p.geneve(eth(V6, p.IPV6)), 6081), tags=[p.VLAN]), p.BRIDGED), p.GRE)),
        ),
    )
    headers = [(4, 1), (17, 1), (4, 0xFFFFFF), (129, 1)]
    yield "roce", file(*(eth(in_udp(p.roce(bytes(64), *header), p.ROCE_PORT)) for header in headers))
    for snaplen in (54, 58, 60, 96, 110):
        frames = eth(V4), eth(p.ipv4(UDP, protocol=p.UDP)), eth(p.ipv4(p.tcp(bytes(2000), options=p.TIMESTAMPS)))
        yield f"snaplen {snaplen}", file(*frames, snaplen=snaplen)
    big = p.ipv4(p.tcp(bytes(70_000)), total=0), p.ipv6(p.tcp(bytes(70_000)), length=0)
    yield "beyond 65,535 bytes", file(eth(big[0]), eth(big[1], p.IPV6), snaplen=200_000)
    yield "beyond 65,535 bytes, cut", file(eth(big[0]), eth(big[1], p.IPV6), snaplen=128)
    yield "IP length 0", file(eth(p.ipv4(TCP, total=0)), eth(p.ipv6(TCP, length=0), p.IPV6))
    flags = [p.SYN, p.SYN | p.ACK, p.ACK, p.FIN | p.ACK, p.RST, p.RST | p.ACK, p.PUSH | p.ACK, p.SYN]
    yield "flags", file(*(p.segment(0, i, each) for i, each in enumerate(flags)))


def pcapng(order: str, tick_ns: int) -> bytes:
    """Sections of both byte orders, interfaces with a clock and a link type each, all three kinds of packets."""
    one, two = p.Section(order), p.Section("<>"[order == "<"])
    data = one.begin() + one.interface(resolution={1: 9, 1000: 6}[tick_ns]) + one.interface(p.RAW, resolution=0x94)
    data += one.enhanced(T0 // tick_ns, eth(V4)) + one.enhanced(1_700_000_000 << 20 | 0x80000, V6, interface=1)
    data += one.simple(eth(V4)) + one.block(p.NAMES, bytes(4))
    data += two.begin() + two.interface(p.SLL2, offset=-3600) + two.old(T0 // 1000, p.sll2(V4))
    return data + two.interface(resolution=3, offset=3600) + two.enhanced(T0 // 10**6, eth(V6, p.IPV6), interface=1)


CAPTURES = dict(hand_made())


def compare(name: str, ours: Counts, truth: Counts) -> None:
    assert ours.flows == truth.flows
    assert ours.queues == truth.queues
    # a Simple Packet Block has no time, and is told by its record number here: the third one
    assert (ours.times[:2] + ours.times[3:] if "pcapng" in name else ours.times) == truth.times


@pytest.mark.parametrize("name", CAPTURES)
def test_hand_made_captures(name: str, tmp_path: Path) -> None:
    path = tmp_path / "capture"
    path.write_bytes(CAPTURES[name])
    truth = by_tshark(path)
    compare(name, by_naive(CAPTURES[name]), truth)
    compare(name, by_engine(path, tmp_path), truth)


def test_roce_is_seen_by_tshark(tmp_path: Path) -> None:
    """Or the comparison would be one of nothing with nothing."""
    path = tmp_path / "capture"
    path.write_bytes(CAPTURES["roce"])
    assert by_tshark(path).queues == {(1, 4): 1, (1, 17): 1, (0xFFFFFF, 4): 1, (1, 129): 1}


@pytest.mark.parametrize("six", [False, True])
def test_fragments(six: bool, tmp_path: Path) -> None:
    """tshark gives ports to no fragment but the first, so that only address pairs can be compared."""
    kind = p.IPV6 if six else p.IPV4
    pieces = p.fragments(p.udp(bytes(4000)), [1480, 1480], six=six)
    frames = [eth(pieces[i], kind) for i in (2, 0, 1)]
    path = tmp_path / "capture"
    path.write_bytes(file(*frames))
    truth = by_tshark(path).without_ports()
    assert len(truth) == 1
    for ours in (by_naive(path.read_bytes()), by_engine(path, tmp_path)):
        assert ours.without_ports() == truth
        assert [key[3:] for key in ours.flows] == [(40000, 5000)]


def test_connections_are_tsharks_streams(tmp_path: Path) -> None:
    """A five-tuple that is used again is a stream of its own for tshark, too (4.0: a SYN of another number)."""
    frames = [p.segment(10 * (i > 0), seq + i, p.SYN if i == 0 else p.ACK) for seq in (5, 9000, 70_000) for i in (0, 1)]
    path = tmp_path / "capture"
    path.write_bytes(file(*frames))
    command = [needs_tool("tshark"), "-n", "-r", path, "-T", "fields", "-e", "tcp.stream"]
    streams = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    truth = sorted(collections.Counter(streams).values())
    rows = naive.read(path.read_bytes(), 10**6, []).flows.values()
    assert truth == sorted(row["packets"] for row in rows) == [2, 2, 2]
    options = ReadOptions(10**6, np.array([], np.int64), tmp_path / "cells")
    assert numba_engine.read_capture(path, options).flows["packets"].to_pylist() == [2, 2, 2]
