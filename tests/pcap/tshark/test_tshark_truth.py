"""tshark as an independent reference: packets, bytes, times and flags of innermost five-tuples, in both readings."""

from __future__ import annotations

import collections
import itertools
import subprocess
import tomllib
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import naive
import numpy as np
import packets as p
import pyarrow.parquet as pq
import pytest
from captures_by_hand import CAPTURES, LINKS, SHUT, START, TCP, TUNNELS, UDP, US, V4, V6, eth, file
from readings import BEFORE_THE_NIGHT, SAMPLE, SAMPLE_RUNS
from tools import mostly_long, mostly_nightly, needs_tool

from ddnn_traces.pcap import numba_engine
from ddnn_traces.pcap.capture_facts import ReadOptions
from ddnn_traces.pcap.link_types import LINK_TYPES

PREFERENCES = (
    "ip.defragment:FALSE", "ipv6.defragment:FALSE", "tcp.desegment_tcp_streams:FALSE",
    "tcp.analyze_sequence_numbers:FALSE", "ip.tso_support:TRUE", "ipv6.tso_support:TRUE",
)  # fmt: skip
FIELDS = (
    "frame.time_epoch", "frame.len", "frame.protocols", "ip.src", "ip.dst", "ip.proto", "ipv6.src", "ipv6.dst",
    "tcp.srcport", "tcp.dstport", "udp.srcport", "udp.dstport", "tcp.flags.syn", "tcp.flags.fin", "tcp.flags.reset",
    "infiniband.bth.destqp", "infiniband.bth.opcode", "infiniband.grh.sgid", "infiniband.grh.dgid",
    "infiniband.grh.nxthdr", "infiniband.grh.ipver", "infiniband.lrh.slid", "infiniband.lrh.dlid",
    "infiniband.lrh.lnh", "erf.rlen",
)  # fmt: skip

PROTOCOLS = {"tcp": 6, "udp": 17}


@dataclass
class Counts:
    """The comparable counts. flows: innermost addresses and ports -> packets, wire bytes, SYN, FIN, RST."""

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
    """By tshark: packets with an IP header, and the times of all that have one."""
    counts = Counts()
    for packet in fields(path):
        if found := flow_of(packet):
            add_packet(counts, packet, *found)
    return counts


def fields(path: Path) -> list[dict[str, str]]:
    """What tshark says of each record."""
    command = [needs_tool("tshark"), "-n", "-r", path, "-T", "fields", "-E", "occurrence=l", "-E", "separator=\t"]
    command += ["-d", f"mpls.label=={p.PSEUDOWIRE_LABEL},pwethcw"]  # MPLS itself does not declare its payload
    command += itertools.chain.from_iterable(("-o", each) for each in PREFERENCES)
    command += itertools.chain.from_iterable(("-e", each) for each in FIELDS)
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [dict(zip(FIELDS, line.split("\t"), strict=True)) for line in done.stdout.splitlines()]


def flow_of(packet: dict[str, str]) -> tuple[tuple, tuple[int, ...]] | None:
    """The innermost five-tuple of a record, and its SYN, FIN and RST; None: no IP header that was captured whole."""
    layers = packet["frame.protocols"].split(":")
    inner = max((i for i, layer in enumerate(layers) if layer in ("ip", "ipv6") or is_routed(layers, i)), default=None)
    if inner is None:
        return None
    if layers[inner] == "infiniband":
        if packet["infiniband.lrh.lnh"] and int(packet["infiniband.lrh.lnh"], 0) == 2:
            lids = (f"100::{int(packet[f'infiniband.lrh.{name}'], 0):x}" for name in ("slid", "dlid"))
            return (*lids, None, 0, 0), (0, 0, 0)
        is_read = packet["infiniband.grh.nxthdr"] == "27" and packet["infiniband.grh.ipver"] == "6"
        return ((*gids_of(packet), None, 0, 0), (0, 0, 0)) if is_read else None
    ends = packet[f"{layers[inner]}.src"], packet[f"{layers[inner]}.dst"]
    if not all(ends):
        return None
    transport = next((layer for layer in layers[inner + 1 :] if layer in PROTOCOLS), None)
    ports = (0, 0)
    if transport:
        ports = int(packet[f"{transport}.srcport"] or 0), int(packet[f"{transport}.dstport"] or 0)
    flags = (packet[f"tcp.flags.{flag}"] == "1" and transport == "tcp" for flag in ("syn", "fin", "reset"))
    return (*ends, PROTOCOLS.get(transport or ""), *ports), tuple(map(int, flags))


def is_routed(layers: list[str], place: int) -> bool:
    """Whether a layer is InfiniBand's with headers of its own, not behind UDP."""
    return layers[place] == "infiniband" and layers[place - 1] != "udp"


def gids_of(packet: dict[str, str]) -> tuple[str, str]:
    """Where both are IPv4's, in the form of IPv4."""
    ends = [packet[f"infiniband.grh.{name}"] for name in ("sgid", "dgid")]
    if all(end.startswith("::ffff:") for end in ends):
        ends = [end.removeprefix("::ffff:") for end in ends]
    return tuple(str(ip_address(end)) for end in ends)


def add_packet(counts: Counts, packet: dict[str, str], key: tuple, flags: tuple[int, ...]) -> None:
    counts.add(key, (1, int(packet["erf.rlen"] or packet["frame.len"]), *flags))
    if packet["frame.time_epoch"]:
        seconds, fraction = packet["frame.time_epoch"].split(".")
        counts.times.append(int(seconds) * 10**9 + int(fraction))
    if packet["infiniband.bth.destqp"]:
        queue = int(packet["infiniband.bth.destqp"], 0), int(packet["infiniband.bth.opcode"], 0)
        counts.queues[queue] = counts.queues.get(queue, 0) + 1


def of_rows(rows: list[dict[str, Any]], times: list[int]) -> Counts:
    """The counts of these rows of flows. Protocols but TCP and UDP are one, as tshark names them differently."""
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
    assert len(SAMPLE_RUNS) == 20


@pytest.mark.parametrize("run", mostly_nightly(SAMPLE_RUNS, *BEFORE_THE_NIGHT))
def test_the_sample(run: str, tmp_path: Path) -> None:
    """Every five-tuple of every file; 400,000 packets in the whole sample."""
    for path in sorted((SAMPLE / run).glob("worker-*-tcpdump.pcap*")):
        truth = by_tshark(path)
        assert truth.flows
        assert by_engine(path, tmp_path) == truth


# --- captures made by hand


def compare(name: str, ours: Counts, truth: Counts) -> None:
    assert ours.flows == truth.flows
    assert ours.queues == truth.queues
    # a Simple Packet Block has no time, and is known by its record number here: the third one
    assert (ours.times[:2] + ours.times[3:] if "pcapng" in name else ours.times) == truth.times


#: tshark 4.0 does not open a file of InfiniBand alone; the capture of ERF has the same frames.
READ_BY_TSHARK = [name for name in CAPTURES if name != "infiniband"]


@pytest.mark.parametrize(
    "name", mostly_long(READ_BY_TSHARK, "pcapng < 1", "mpls", "nested", "roce", "erf", "beyond 65,535 bytes, cut")
)
@pytest.mark.long_after(2)
def test_hand_made_captures(name: str, tmp_path: Path) -> None:
    path = tmp_path / "capture"
    path.write_bytes(CAPTURES[name])
    truth = by_tshark(path)
    compare(name, by_naive(CAPTURES[name]), truth)
    compare(name, by_engine(path, tmp_path), truth)


def test_tshark_reads_roce(tmp_path: Path) -> None:
    """Otherwise the comparison would be of empty sets."""
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


# --- record by record, of every link type


def ip_packets() -> dict[str, bytes]:
    """IP packets by name: transports, options, fragments, damage, and each tunnel around TCP."""
    six = {"tcp6": V6, "udp6": p.ipv6(UDP, protocol=p.UDP), "extensions6": p.ipv6(TCP, extensions=[p.hop_by_hop()])}
    whole = p.ipv4(p.tcp(bytes(100)))
    return {
        "tcp": V4,
        "udp": p.ipv4(UDP, protocol=p.UDP),
        "icmp": p.ipv4(p.icmp(bytes(30)), protocol=p.ICMP),
        **{f"tcp {flags}": p.ipv4(p.tcp(flags=flags)) for flags in (p.SYN, p.SYN | p.ACK, p.FIN | p.ACK, p.RST)},
        "options": p.ipv4(TCP, options=b"\x94\x04\0\0"),
        "first fragment": p.ipv4(TCP, more=True),
        "later fragment": p.ipv4(bytes(64), fragment=120),
        "length 0": p.ipv4(TCP, total=0),
        "length beyond the frame": p.ipv4(TCP, total=9000),
        "length within the header": p.ipv4(TCP, total=10),
        "length within tcp": p.ipv4(TCP, total=30),
        "header of 16 bytes": b"\x44" + whole[1:],
        "version 5": b"\x55" + whole[1:],
        **six,
        **{f"tunnel: {name}": packet for name, (packet, _) in TUNNELS.items()},
        **{f"shut: {name}": packet for name, packet in SHUT.items()},
    }


#: The loopback of OpenBSD has its address family in the order of the network: the loop reads both, tshark this one.
COMPARED_LINKS = LINKS | {108: lambda packet, kind=p.IPV4: p.null(packet, kind)[3::-1] + packet}

ONLY = {228: 4, 229: 6}  # link types of one version


def all_links() -> tuple[list[tuple[int, str]], bytes]:
    """A file with an interface for each link type, and names of its records: link type and packet."""
    section, names = p.Section("<"), []
    data = section.begin() + b"".join(section.interface(link) for link in COMPARED_LINKS)
    for number, (link, make) in enumerate(COMPARED_LINKS.items()):
        for name, packet in ip_packets().items():
            version = 6 if packet[0] >> 4 == 6 else 4
            if ONLY.get(link, version) == version:
                names.append((link, name))
                frame, time = make(packet, p.IPV6 if version == 6 else p.IPV4), START // US + len(names)
                if link == 197:  # tshark takes the time of the ERF header
                    frame = p.erf_time(time * US) + frame[8:]
                data += section.enhanced(time, frame, interface=number)
    return names, data


def record_by_record(path: Path, folder: Path) -> dict[int, tuple]:
    """What the packet loop says of each record that is in a flow, as flow_of()."""
    options = ReadOptions(10**6, np.array([], np.int64), folder / "cells", folder / "packets")
    facts = numba_engine.read_capture(path, options)
    flows = {row["flow"]: row for row in facts.flows.to_pylist()}
    found = {}
    for packet in pq.read_table(facts.packets).to_pylist():
        row, flags = flows[packet["flow"]], packet["tcp_flags"] or 0
        protocol = row["protocol"] if row["protocol"] in PROTOCOLS.values() and row["src_port"] else None
        key = row["src_ip"], row["dst_ip"], protocol, row["src_port"], row["dst_port"]
        of_tcp = tuple(int(bool(flags & flag)) for flag in (p.SYN, p.FIN, p.RST))
        found[packet["record"]] = key, of_tcp, packet["wire_bytes"], packet["ts_ns"]
    return found


def by_tshark_record(packet: dict[str, str], link: int) -> tuple | None:
    """The same of tshark, whose lengths are without what it takes off."""
    found = flow_of(packet)
    seconds, fraction = packet["frame.time_epoch"].split(".")
    wire = int(packet["erf.rlen"] or packet["frame.len"]) + LEFT_OUT[link]
    return (*found, wire, int(seconds) * 10**9 + int(fraction)) if found else None


LEFT_OUT = {link.number: link.left_out for link in LINK_TYPES}


def test_every_record_of_every_link_type(tmp_path: Path) -> None:
    """Each has the same five-tuple, flags, length and time, but for what differences.toml has, with reasons."""
    listed = tomllib.loads(Path(__file__).with_name("differences.toml").read_text())
    unread = set(map(int, listed["link_types"]))
    names, data = all_links()
    path = tmp_path / "capture.pcapng"
    path.write_bytes(data)
    ours, packets = record_by_record(path, tmp_path), fields(path)
    assert {link for link, _ in names} == {link.number for link in LINK_TYPES}
    truth = [by_tshark_record(packet, link) for packet, (link, _) in zip(packets, names, strict=True)]
    differing = {name for i, name in enumerate(names) if ours.get(i) != truth[i]}
    assert {(link, name) for link, name in differing if link not in unread} == {
        (link, name) for link, name in names if name in listed["packets"] and link not in unread
    }
    assert {link for link, _ in names} - {names[i][0] for i, found in enumerate(truth) if found} == unread
    # of those link types the loop finds what it finds in the same packets after Ethernet
    flows = {name: ours[i][:2] for i, (link, name) in enumerate(names) if link == p.ETHERNET and i in ours}
    for link in unread:
        assert {name: ours[i][:2] for i, (of, name) in enumerate(names) if of == link and i in ours} == flows
    assert len(names) > 1400
