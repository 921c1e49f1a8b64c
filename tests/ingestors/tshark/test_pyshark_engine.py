"""The reference engine against the fast one, field by field, and what each alone must do."""

from __future__ import annotations

import asyncio
import bz2
import dataclasses
import gzip
import lzma
import os
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import packets as p
import pyarrow.parquet as pq
import pytest
from tools import needs_tool

from ddnn_traces.errors import EngineError
from ddnn_traces.ingestors.facts import CELLS, PACKETS, CaptureFacts, ReadOptions
from ddnn_traces.ingestors.packets import numba_engine

ROOT = Path(__file__).resolve().parents[3]
SAMPLE = ROOT / "data" / "sample"
SAMPLE_RUNS = sorted({path.parent for path in SAMPLE.glob("*/worker-*-tcpdump.pcap*")})

MS = 1_000_000
START = 1_700_000_000 * 10**9 + 123_456_000
DATA = p.ipv4(p.tcp(bytes(100)))
DATA6 = p.ipv6(p.tcp(bytes(100)))

pyshark_engine = pytest.importorskip("ddnn_traces.ingestors.tshark.pyshark_engine")
from ddnn_traces.ingestors.tshark import dissect, plain_flows  # noqa: E402  # where that can be imported

pytestmark = pytest.mark.filterwarnings("error")


@pytest.fixture(autouse=True)
def _tshark() -> None:
    needs_tool("tshark")


# --- reading with both


def read(
    engine: Any, path: Path, folder: Path, bounds: tuple[int, ...] = (), open_tunnels: bool = True
) -> CaptureFacts:
    """Facts of the file, packets included; what was reported as progress must add up to it."""
    progress: list[tuple[int, int]] = []
    spill, packets = folder / f"{engine.NAME}.cells", folder / f"{engine.NAME}.packets"
    spill.unlink(missing_ok=True)
    packets.unlink(missing_ok=True)
    options = ReadOptions(
        MS, np.array(bounds, np.int64), spill, packets, open_tunnels, progress=lambda *step: progress.append(step)
    )
    facts = engine.read_capture(path, options)
    if facts.records:
        assert [sum(each) for each in zip(*progress, strict=True)] == [facts.file_bytes, facts.records]
        assert min(min(step) for step in progress) >= 0
    return facts


def cells_of(facts: CaptureFacts) -> list[tuple[int, ...]]:
    """Cells added up and in order: engines may write a cell in several rows."""
    if facts.cells is None:
        return []
    table = pq.read_table(facts.cells)
    assert table.schema == CELLS
    sums = table.group_by(CELLS.names[:3]).aggregate([(name, "sum") for name in CELLS.names[3:]])
    return sorted(tuple(row.values()) for row in sums.to_pylist())


def packets_of(facts: CaptureFacts) -> list[dict[str, Any]]:
    """Rows of the packets by record: where fragments waited, engines may write them later."""
    if facts.packets is None:
        return []
    table = pq.read_table(facts.packets)
    assert table.schema == PACKETS
    return table.sort_by("record").to_pylist()


def assert_same(fast: CaptureFacts, reference: CaptureFacts) -> None:
    """Every fact but the engine's name and its own words for damage."""
    others = {"engine", "status_detail", "cells", "cell_lag", "packets", "flows", "encapsulations", "samples"}
    for field in dataclasses.fields(CaptureFacts):
        if field.name not in others:
            assert getattr(reference, field.name) == getattr(fast, field.name), field.name
    assert (reference.status_detail is None) == (fast.status_detail is None)
    assert_same_traffic(fast, reference)


def assert_same_traffic(fast: CaptureFacts, reference: CaptureFacts) -> None:
    assert reference.flows.schema == fast.flows.schema
    assert reference.flows.to_pylist() == fast.flows.to_pylist()
    assert reference.encapsulations.schema == fast.encapsulations.schema
    assert reference.encapsulations.to_pylist() == fast.encapsulations.to_pylist()
    assert cells_of(reference) == cells_of(fast)
    assert packets_of(reference) == packets_of(fast)


def read_both(path: Path, bounds: tuple[int, ...] = (), open_tunnels: bool = True) -> CaptureFacts:
    """Facts of the reference engine, which are those of the fast one."""
    reference = read(pyshark_engine, path, path.parent, bounds, open_tunnels)
    assert_same(read(numba_engine, path, path.parent, bounds, open_tunnels), reference)
    return reference


def flows_of(frames: list[bytes], folder: Path, **options: Any) -> list[dict[str, Any]]:
    """Flows of frames 0.4 ms apart, which both engines agree on."""
    return read_both(write(folder, p.pcap(records(*frames))), **options).flows.to_pylist()


def columns(flows: list[dict[str, Any]], *names: str) -> list[tuple[Any, ...]]:
    return [tuple(flow[name] for name in names) for flow in flows]


def records(*frames: bytes | tuple[bytes, int]) -> list[p.Record]:
    """Frames, or frames with their original lengths, 0.4 ms apart."""
    pairs = [frame if isinstance(frame, tuple) else (frame, None) for frame in frames]
    return [p.Record(START + i * 400_000, frame, wire) for i, (frame, wire) in enumerate(pairs)]


def write(folder: Path, content: bytes, name: str = "capture.pcap") -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


# --- the sample


def test_there_is_a_sample() -> None:
    assert SAMPLE_RUNS


@pytest.mark.parametrize("run", SAMPLE_RUNS, ids=lambda path: path.name)
def test_engines_agree_on_the_sample(run: Path, tmp_path: Path) -> None:
    """All records of all files of the run: 400,000 in the whole sample, which takes about 70 s."""
    for path in sorted(run.glob("worker-*-tcpdump.pcap*")):
        fast = read(numba_engine, path, tmp_path)
        assert fast.records
        bounds = tuple(int(t) for t in np.linspace(fast.first_ns, fast.last_ns, 6)[1:-1])
        assert_same(read(numba_engine, path, tmp_path, bounds), read(pyshark_engine, path, tmp_path, bounds))


# --- captures made by hand

LINKS: dict[str, tuple[int, list[bytes]]] = {
    "vlan": (p.ETHERNET, [p.ethernet(DATA, tags=[p.VLAN]), p.ethernet(DATA6, p.IPV6, [p.SERVICE_VLAN, p.VLAN])]),
    "sll": (p.SLL, [p.sll(DATA), p.sll(DATA6, p.IPV6), p.sll(bytes(28), p.ARP)]),
    "sll2": (p.SLL2, [p.sll2(DATA), p.sll2(DATA6, p.IPV6), p.sll2(bytes(28), p.ARP)]),
    "raw": (p.RAW, [DATA, DATA6]),
    "null": (p.NULL, [p.null(DATA), p.null(DATA6, p.IPV6)]),
}


@pytest.mark.parametrize("name", LINKS)
def test_link_types(name: str, tmp_path: Path) -> None:
    link, frames = LINKS[name]
    facts = read_both(write(tmp_path, p.pcap(records(*frames), link=link)))
    assert facts.link_types == str(link)
    assert facts.flows["src_ip"].to_pylist() == ["10.0.0.1", "fd00::1"]
    assert set(facts.flows["ip_bytes"].to_pylist()) == {140, 160}


def frames_by_name() -> Iterator[tuple[str, bytes, dict[str, Any]]]:
    """Name, frame, and what its flow's columns (or the reason why there is none) must be."""
    eth = p.ethernet
    flow = {"protocol": p.TCP, "src_port": 40000, "dst_port": 5000, "payload_bytes": 100}
    yield "ipv4", eth(DATA), flow
    yield "ipv4 padded", eth(p.ipv4(p.tcp()) + bytes(6)), flow | {"ip_bytes": 40, "payload_bytes": 0}
    yield "ipv4 options", eth(p.ipv4(p.tcp(bytes(100)), options=b"\x94\x04\0\0")), flow | {"ip_bytes": 144}
    yield "tcp options", eth(p.ipv4(p.tcp(bytes(100), options=p.TIMESTAMPS))), flow | {"ip_bytes": 152}
    yield "ipv4 length 0", eth(p.ipv4(p.tcp(bytes(100)), total=0)), flow | {"ip_bytes": 140}
    yield "ipv4 length beyond the frame", eth(p.ipv4(p.tcp(bytes(100)), total=9000)), flow | {"ip_bytes": 140}
    yield "ipv4 source mapped", eth(p.ipv6(p.tcp(bytes(100)), source="::ffff:10.1.2.3"), p.IPV6), flow
    yield "ipv6", eth(DATA6, p.IPV6), flow | {"ip_bytes": 160}
    yield "ipv6 length 0", eth(p.ipv6(p.tcp(bytes(100)), length=0), p.IPV6), flow | {"ip_bytes": 160}
    for name, headers in {
        "hop by hop": [p.hop_by_hop()],
        "destination options twice": [p.hop_by_hop(1), p.destination_options(), p.destination_options(2)],
        "authentication": [p.authentication()],
        "first fragment": [p.fragment_header(more=True)],
    }.items():
        yield f"ipv6 {name}", eth(p.ipv6(p.tcp(bytes(100)), extensions=headers), p.IPV6), flow
    port0 = {"src_port": 0, "dst_port": 0}
    later = p.ipv6(bytes(64), extensions=[p.fragment_header(64)])
    yield "ipv6 later fragment", eth(later, p.IPV6), port0 | {"protocol": p.TCP, "payload_bytes": 64}
    yield "first fragment", eth(p.ipv4(p.tcp(bytes(100)), more=True)), flow
    yield "later fragment", eth(p.ipv4(bytes(64), fragment=120)), port0 | {"protocol": p.TCP, "payload_bytes": 64}
    yield "udp", eth(p.ipv4(p.udp(bytes(30)), protocol=p.UDP)), flow | {"protocol": p.UDP, "payload_bytes": 30}
    yield "icmp", eth(p.ipv4(p.icmp(), protocol=p.ICMP)), port0 | {"protocol": p.ICMP, "payload_bytes": 8}
    unreachable = struct.pack(">BBHI", 3, 1, 0, 0) + p.ipv4(p.tcp(bytes(100)), "9.9.9.9", "8.8.8.8")[:28]
    yield "icmp error", eth(p.ipv4(unreachable, protocol=p.ICMP)), port0 | {"src_ip": "10.0.0.1", "payload_bytes": 36}
    yield "arp", p.arp(), {"reason": "not_ip"}
    yield "lldp", eth(bytes(40), 0x88CC), {"reason": "not_ip"}
    yield "version 5", eth(b"\x55" + DATA[1:]), {"reason": "malformed"}
    yield "header of 16 bytes", eth(b"\x44" + DATA[1:]), {"reason": "malformed"}
    yield "length within the header", eth(p.ipv4(p.tcp(bytes(100)), total=10)), {"reason": "malformed"}
    yield "length within tcp", eth(p.ipv4(p.tcp(bytes(100)), total=30)), {"reason": "malformed"}
    short_tcp = bytearray(p.tcp(bytes(100)))
    short_tcp[12] = 4 << 4
    yield "tcp header of 16 bytes", eth(p.ipv4(bytes(short_tcp))), {"reason": "malformed"}


@pytest.mark.parametrize(("frame", "expected"), [pytest.param(*rest, id=name) for name, *rest in frames_by_name()])
def test_frames(frame: bytes, expected: dict[str, Any], tmp_path: Path) -> None:
    facts = read_both(write(tmp_path, p.pcap(records(frame))))
    if "reason" in expected:
        assert facts.skipped == {expected["reason"]: (1, len(frame))}
    else:
        [flow] = facts.flows.to_pylist()
        assert {name: flow[name] for name in expected} == expected
        assert facts.skipped == {}


@pytest.mark.parametrize("total", [0, 4464], ids=["IP length 0", "IP length modulo 2^16"])
def test_frame_beyond_64_kib(total: int, tmp_path: Path) -> None:
    frame = p.ethernet(p.ipv4(p.tcp(bytes(100)), total=total))
    [flow] = read_both(write(tmp_path, p.pcap(records((frame, 70_014))))).flows.to_pylist()
    assert (flow["wire_bytes"], flow["ip_bytes"], flow["payload_bytes"]) == (70_014, 70_000, 69_960)


@pytest.mark.parametrize("frame", [p.ethernet(DATA), p.ethernet(DATA, tags=[p.VLAN]), p.ethernet(DATA6, p.IPV6)])
def test_every_snaplen(frame: bytes, tmp_path: Path) -> None:
    """Cut everywhere but where tshark does not show the TCP header's 13th and 14th byte, though they are there."""
    tcp_at = frame.index(struct.pack(">HH", 40000, 5000))
    snaplens = [n for n in range(len(frame)) if n - tcp_at not in (14, 15)]
    cut = [(frame[:n], len(frame)) for n in snaplens]
    facts = read_both(write(tmp_path, p.pcap(records(*cut))))
    assert facts.skipped["cut_short"][0] == tcp_at + 4
    assert facts.flows["packets"].to_pylist() == [len(cut) - tcp_at - 4]


def test_segments(tmp_path: Path) -> None:
    """Flags, retransmissions, a wrap of the sequence numbers, and a five-tuple that is used again."""
    top = 2**32
    steps = [
        (0, top - 150, p.SYN), (0, top - 149, p.ACK), (100, top - 149, p.ACK), (100, top - 49, p.ACK | p.PUSH),
        (100, top - 149, p.ACK), (80, 21, p.ACK), (0, 51, p.ACK), (0, 101, p.FIN | p.ACK), (0, 0, p.RST),
        (0, 5000, p.SYN), (60, 5001, p.ACK), (0, 77, p.SYN | p.ACK),
    ]  # fmt: skip
    flows = flows_of([p.segment(payload, seq % top, flags) for payload, seq, flags in steps], tmp_path)
    assert columns(flows, "flow", "packets", "syn_packets", "fin_packets", "rst_packets", "opened", "accepted") == [
        (0, 9, 1, 1, 1, 1, 0), (1, 2, 1, 0, 0, 1, 0), (2, 1, 1, 0, 0, 0, 1),
    ]  # fmt: skip
    assert columns(flows, "initial_sequence", "retransmitted_packets", "retransmitted_bytes") == [
        (top - 150, 2, 130), (5000, 0, 0), (77, 0, 0),
    ]  # fmt: skip
    assert all(flow["kept"] for flow in flows)


@pytest.mark.parametrize(
    ("segments", "connections"),
    [
        ([(0, 9, p.SYN), (0, 9, p.SYN), (5, 10, p.ACK)], 1),  # the SYN once more
        ([(0, 9, p.SYN), (0, 8, p.SYN)], 2),
        ([(0, 9, p.SYN), (0, 10, p.RST), (0, 9, p.SYN)], 2),
        ([(5, 10, p.ACK), (0, 9, p.SYN)], 1),  # the SYN of what was seen before
        ([(5, 10, p.ACK), (0, 10, p.SYN)], 2),
        ([(0, 10, p.ACK), (0, 9, p.SYN)], 2),  # nothing that occupies sequence space was seen before
    ],
)
def test_connections(segments: list[tuple[int, int, int]], connections: int, tmp_path: Path) -> None:
    assert len(flows_of([p.segment(*each) for each in segments], tmp_path)) == connections


HOLES = {
    "filled in two parts": ([0, 200, 100, 150], [100, 100, 50, 50], (2, 100, 0, 0)),
    "filled in the middle, then around": ([0, 400, 200, 100, 300], [100, 100, 100, 100, 100], (3, 300, 0, 0)),
    "filled, and once more": ([0, 200, 100, 100], [100, 100, 100, 100], (1, 100, 1, 100)),
    "partly filled, partly old": ([0, 200, 50], [100, 100, 100], (1, 50, 0, 50)),
    "over the end": ([0, 200, 150], [100, 100, 300], (1, 50, 0, 100)),
    "a fifth hole makes the first forgotten": ([0, 20, 40, 60, 80, 100, 10], [10] * 7, (0, 0, 1, 10)),
    "the part behind is the newest": ([0, 40, 60, 80, 100, 20, 30, 10], [10] * 8, (2, 20, 1, 10)),
}


@pytest.mark.parametrize("name", HOLES)
def test_out_of_order_and_retransmitted(name: str, tmp_path: Path) -> None:
    """Across the wrap of sequence numbers, too."""
    starts, sizes, expected = HOLES[name]
    for base in (1000, 2**32 - 120):
        frames = [p.segment(size, (base + start) % 2**32) for start, size in zip(starts, sizes, strict=True)]
        [counts] = columns(
            flows_of(frames, tmp_path),
            "out_of_order_packets", "out_of_order_bytes", "retransmitted_packets", "retransmitted_bytes",
        )  # fmt: skip
        assert counts == expected


def test_mss(tmp_path: Path) -> None:
    """Of the first SYN that shows one, however much was captured behind it; not of other segments."""

    def syn(options: bytes, source: int, flags: int = p.SYN) -> bytes:
        return p.ethernet(p.ipv4(p.tcp(flags=flags, options=options, source=source)))

    option = p.mss_option(1460)
    frames = [
        syn(b"", 1), syn(option, 1), syn(p.mss_option(9000), 1), syn(p.TIMESTAMPS + option, 2), syn(option, 3, p.ACK),
    ]  # fmt: skip
    assert columns(flows_of(frames, tmp_path), "src_port", "mss") == [(1, 1460), (2, 1460), (3, None)]
    whole = syn(option + p.TIMESTAMPS, 1)
    for captured, mss in ((57, None), (58, 1460), (60, 1460)):
        path = write(tmp_path, p.pcap(records((whole[:captured], len(whole)))))
        assert read_both(path).flows["mss"].to_pylist() == [mss]


def test_large_and_huge(tmp_path: Path) -> None:
    """By the IP length: above 1,500, above 9,000."""
    [flow] = flows_of([p.segment(size - 40) for size in (1500, 1501, 9000, 9001)], tmp_path)
    assert (flow["large_packets"], flow["large_payload_bytes"]) == (3, 1461 + 8960 + 8961)
    assert (flow["huge_packets"], flow["huge_payload_bytes"]) == (1, 8961)


# --- RoCEv2


def roce(payload: bytes = bytes(20), port: int = 4791, **header: int) -> bytes:
    return p.ethernet(p.ipv4(p.udp(p.roce(payload, **header), destination=port), protocol=p.UDP))


def test_queue_pairs_and_opcodes(tmp_path: Path) -> None:
    """One row each; sizes as of any UDP packet."""
    frames = [
        roce(opcode=6, queue_pair=0x123), roce(opcode=8, queue_pair=0x123), roce(opcode=6, queue_pair=0xFFFFFF),
        roce(opcode=6, queue_pair=0x123), roce(port=4790),
    ]  # fmt: skip
    flows = flows_of(frames, tmp_path)
    assert columns(flows, "roce_dest_qp", "roce_opcode", "packets") == [
        (0x123, 6, 2), (0x123, 8, 1), (0xFFFFFF, 6, 1), (None, None, 1),
    ]  # fmt: skip
    assert flows[1]["payload_bytes"] == 36


def test_transport_header_that_is_cut(tmp_path: Path) -> None:
    """Eight bytes of it are needed, which begins at 42."""
    frame = roce(queue_pair=0x123)
    facts = read_both(write(tmp_path, p.pcap(records(*[(frame[:n], len(frame)) for n in range(38, 60)]))))
    assert columns(facts.flows.to_pylist(), "roce_dest_qp", "packets") == [(None, 12), (0x123, 10)]


# --- between Ethernet and IP

INSIDE = p.ipv4(p.tcp(bytes(100)), "9.9.9.9", "8.8.8.8")
UNSAID = p.ipv4(p.tcp(bytes(100)), "9.9.9.9", "8.8.8.8", total=0)  # its length is what the frame leaves for it
#: Locally administered addresses have a maker for tshark: only in front of such it sees a control word.
BEHIND_CONTROL_WORD = b"\0\x1b\x21\0\0\1\0\x1b\x21\0\0\2\x08\0"
BETWEEN = {
    "one label": p.ethernet(p.mpls(UNSAID), p.MPLS),
    "three labels": p.ethernet(p.mpls(UNSAID, 3), p.MPLS),
    "label behind a tag": p.ethernet(p.mpls(UNSAID), p.MPLS, [p.VLAN]),
    "pseudowire": p.ethernet(p.pseudowire(BEHIND_CONTROL_WORD + UNSAID, 2), p.MPLS),
    "pppoe": p.ethernet(p.pppoe(UNSAID), p.PPPOE),
}


@pytest.mark.parametrize("name", BETWEEN)
def test_between_ethernet_and_ip(name: str, tmp_path: Path) -> None:
    assert columns(flows_of([BETWEEN[name]], tmp_path), "src_ip", "src_port", "ip_bytes", "encapsulation") == [
        ("9.9.9.9", 40000, 140, None)
    ]


@pytest.mark.parametrize(
    "frame", [p.ethernet(p.mpls(b"\x55" * 60), p.MPLS), p.ethernet(p.pppoe(INSIDE, 0xC021), p.PPPOE)]
)
def test_no_ip_between(frame: bytes, tmp_path: Path) -> None:
    facts = read_both(write(tmp_path, p.pcap(records(frame))))
    assert facts.skipped == {"not_ip": (1, len(frame))}


# --- tunnels


def to(port: int, payload: bytes, **ends: Any) -> bytes:
    """A frame with UDP from 10.0.0.1."""
    return p.ethernet(p.ipv4(p.udp(payload, destination=port), protocol=p.UDP, **ends))


def over(protocol: int, payload: bytes) -> bytes:
    return p.ethernet(p.ipv4(payload, protocol=protocol))


BRIDGED = p.ethernet(UNSAID)
TUNNELS: dict[str, tuple[bytes, tuple[Any, ...]]] = {  # frame -> kind, protocol, ports and identifier
    "ipip": (over(4, UNSAID), ("ipip", 4, 0, 0, None)),
    "ipv6 in ipv4": (over(41, p.ipv6(p.tcp(bytes(80)), "9::9", length=0)), ("ipip", 41, 0, 0, None)),
    "gre": (over(47, p.gre(UNSAID)), ("gre", 47, 0, 0, None)),
    "gre with everything": (over(47, p.gre(UNSAID, key=77, checksum=True, sequence=5)), ("gre", 47, 0, 0, 77)),
    "gre of key 0": (over(47, p.gre(UNSAID, key=0)), ("gre", 47, 0, 0, 0)),
    "gre bridged": (over(47, p.gre(BRIDGED, p.BRIDGED)), ("gre", 47, 0, 0, None)),
    "gre, mpls": (over(47, p.gre(p.mpls(UNSAID, 2), p.MPLS, key=1)), ("gre", 47, 0, 0, 1)),
    "erspan 1": (over(47, p.erspan(BRIDGED, 1)), ("gre", 47, 0, 0, None)),
    "erspan 2": (over(47, p.erspan(BRIDGED, 2)), ("gre", 47, 0, 0, None)),
    "erspan 3": (over(47, p.erspan(BRIDGED, 3)), ("gre", 47, 0, 0, None)),
    "erspan 3, subheader": (over(47, p.erspan(BRIDGED, 3, subheader=True)), ("gre", 47, 0, 0, None)),
    "vxlan": (to(4789, p.vxlan(BRIDGED, vni=0x123456)), ("vxlan", 17, 40000, 4789, 0x123456)),
    "vxlan, Linux": (to(8472, p.vxlan(BRIDGED)), ("vxlan", 17, 40000, 8472, 7)),
    "vxlan, tags": (to(4789, p.vxlan(p.ethernet(UNSAID, tags=[p.VLAN, p.VLAN]))), ("vxlan", 17, 40000, 4789, 7)),
    "geneve": (to(6081, p.geneve(BRIDGED)), ("geneve", 17, 40000, 6081, 7)),
    "geneve, options": (to(6081, p.geneve(UNSAID, p.IPV4, 9, b"\1\2\0\1" + bytes(4))), ("geneve", 17, 40000, 6081, 9)),
    "first fragment": (p.ethernet(p.ipv4(p.gre(UNSAID), protocol=47, more=True)), ("gre", 47, 0, 0, None)),
}


@pytest.mark.parametrize("name", TUNNELS)
def test_tunnels(name: str, tmp_path: Path) -> None:
    """The flow is what is inside, whose unsaid length is the frame's less all headers in front."""
    frame, tunnel = TUNNELS[name]
    facts = read_both(write(tmp_path, p.pcap(records(frame))))
    [flow] = facts.flows.to_pylist()
    assert flow["src_ip"][0] == "9"
    assert (flow["encapsulation"], flow["src_port"], flow["ip_bytes"], flow["wire_bytes"]) == (
        0,
        40000,
        140,
        len(frame),
    )
    [row] = facts.encapsulations.to_pylist()
    kind, protocol, src_port, dst_port, identifier = tunnel
    assert row == {
        "parent": None, "kind": kind, "src_ip": "10.0.0.1", "dst_ip": "10.0.0.2", "protocol": protocol,
        "src_port": src_port, "dst_port": dst_port, "identifier": identifier,
    }  # fmt: skip
    [outer] = flows_of([frame], tmp_path, open_tunnels=False)
    assert (outer["src_ip"], outer["dst_port"], outer["encapsulation"]) == ("10.0.0.1", dst_port, None)


ICMP_ERROR = struct.pack(">BBHI", 3, 1, 0, 0) + INSIDE[:28]
NO_TUNNELS = {
    "gre, another version": over(47, p.gre(INSIDE, flags=1)),
    "gre, routing": over(47, p.gre(bytes(4) + INSIDE, flags=0x4000)),
    "gre, something else": over(47, p.gre(INSIDE, 0x88B5)),
    "vxlan without its flag": to(4789, p.vxlan(BRIDGED, flags=0)),
    "vxlan at another port": to(4788, p.vxlan(BRIDGED)),
    "from vxlan's port": p.ethernet(p.ipv4(p.udp(p.vxlan(BRIDGED), 4789, 40000), protocol=p.UDP)),
    "geneve, another version": to(6081, p.geneve(BRIDGED, version=1)),
    "arp inside": to(4789, p.vxlan(p.arp())),
    "malformed inside": to(4789, p.vxlan(p.ethernet(b"\x44" + INSIDE[1:]))),
    "cut short inside": to(4789, p.vxlan(BRIDGED[:36])),
    "protocol 4, IPv6 inside": over(4, p.ipv6(p.tcp(bytes(80)))),
    "an ICMP error": over(p.ICMP, ICMP_ERROR),
    "a fragment in a fragment": p.ethernet(p.ipv4(p.ipv4(p.tcp(bytes(80)), more=True), protocol=4, more=True)),
    "a later fragment": p.ethernet(p.ipv4(p.gre(INSIDE), protocol=47, fragment=80)),
}


@pytest.mark.parametrize("name", NO_TUNNELS)
def test_what_is_not_opened(name: str, tmp_path: Path) -> None:
    facts = read_both(write(tmp_path, p.pcap(records(NO_TUNNELS[name]))))
    assert columns(facts.flows.to_pylist(), "src_ip", "encapsulation") == [("10.0.0.1", None)]
    assert facts.encapsulations.num_rows == 0


def test_tunnels_in_tunnels(tmp_path: Path) -> None:
    """Four at most; the same tunnel inside another is another one."""

    def nested(depth: int) -> bytes:
        packet = INSIDE
        for i in range(depth):
            packet = p.ipv4(packet, f"10.1.0.{i}", protocol=4)
        return p.ethernet(packet)

    bridged = to(4789, p.vxlan(p.ethernet(p.ipv4(INSIDE, "10.1.0.0", protocol=4))))
    facts = read_both(write(tmp_path, p.pcap(records(nested(1), nested(4), nested(5), bridged))))
    assert columns(facts.flows.to_pylist(), "src_ip", "encapsulation", "ip_bytes") == [
        ("9.9.9.9", 0, 140), ("9.9.9.9", 4, 140), ("10.1.0.0", 8, 160), ("9.9.9.9", 10, 140),
    ]  # fmt: skip
    assert columns(facts.encapsulations.to_pylist(), "kind", "src_ip", "parent") == [
        ("ipip", "10.1.0.0", None),
        ("ipip", "10.1.0.3", None), ("ipip", "10.1.0.2", 1), ("ipip", "10.1.0.1", 2), ("ipip", "10.1.0.0", 3),
        ("ipip", "10.1.0.4", None), ("ipip", "10.1.0.3", 5), ("ipip", "10.1.0.2", 6), ("ipip", "10.1.0.1", 7),
        ("vxlan", "10.0.0.1", None), ("ipip", "10.1.0.0", 9),
    ]  # fmt: skip


# --- fragments

FIRST, *LATER = (p.ethernet(each) for each in p.fragments(p.udp(bytes(2992)), [1000, 1000]))  # 3,000 bytes in all


@pytest.mark.parametrize("six", [False, True])
@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2)])
def test_fragments_belong_to_their_datagrams_flow(order: tuple[int, ...], six: bool, tmp_path: Path) -> None:
    packets = p.fragments(p.udp(bytes(2992)), [1000, 1000], six=six)
    frames = [p.ethernet(packets[i], p.IPV6 if six else p.IPV4) for i in order]
    [flow] = flows_of(frames, tmp_path)
    assert (flow["src_port"], flow["dst_port"], flow["packets"], flow["payload_bytes"]) == (40000, 5000, 3, 2992)


def test_packets_are_in_the_order_of_the_file(tmp_path: Path) -> None:
    """Also those that waited for their first fragment, and those that came meanwhile."""
    facts = read_both(write(tmp_path, p.pcap(records(LATER[0], p.segment(), p.arp(), FIRST, p.segment(7, 100)))))
    rows = packets_of(facts)
    assert columns(rows, "record", "flow", "payload_bytes", "tcp_flags") == [
        (0, 1, 1000, None), (1, 0, 100, p.ACK), (3, 1, 992, None), (4, 0, 7, p.ACK),
    ]  # fmt: skip
    assert columns(rows, "ts_ns", "wire_bytes", "ip_bytes", "captured_bytes")[1] == (START + 400_000, 154, 140, 154)
    assert pq.read_table(facts.packets)["record"].to_pylist() == [0, 1, 3, 4]  # the reference engine's own order


def test_fragments_whose_first_does_not_come(tmp_path: Path) -> None:
    """A flow without ports; a skipped first fragment is as good as none."""
    skipped = p.ethernet(p.ipv4(p.udp(bytes(992))[:7], protocol=p.UDP, more=True, identification=1))
    for frames, packets in (([LATER[0]], 1), ([LATER[0], skipped, LATER[1]], 2)):
        flows = flows_of(frames, tmp_path)
        assert columns(flows, "protocol", "src_port", "packets") == [(p.UDP, 0, packets)]


def test_datagrams_are_told_apart(tmp_path: Path) -> None:
    """By identification, by completeness, by a second first fragment, and by 30 s."""

    def datagram(source: int, identification: int) -> list[bytes]:
        body = p.udp(bytes(1992), source)
        return [p.ethernet(each) for each in p.fragments(body, [1000], identification=identification)]

    one, other, same = datagram(1, 1), datagram(2, 2), datagram(3, 1)
    for frames in (
        [one[0], other[0], one[1], other[1], same[1], same[0]],
        [one[1], other[1], other[0], one[0], same[0], same[1]],
    ):
        flows = flows_of(frames, tmp_path)
        assert sorted(columns(flows, "src_port", "packets")) == [(1, 2), (2, 2), (3, 2)]
    assert columns(flows_of([one[0], same[0], same[1]], tmp_path), "src_port", "packets") == [(1, 1), (3, 2)]
    for seconds, expected in ((29, [(1, 2)]), (30, [(1, 1), (0, 1)])):
        late = [p.Record(START, one[0]), p.Record(START + seconds * 10**9, one[1])]
        facts = read_both(write(tmp_path, p.pcap(late)))
        assert columns(facts.flows.to_pylist(), "src_port", "packets") == expected


@pytest.mark.parametrize("limit", ["MOST_DATAGRAMS", "MOST_WAITING"])
def test_limits_of_fragments(limit: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The datagram opened first gives way; so does the oldest one with waiting fragments: here it is the same."""
    many = [p.fragments(p.udp(bytes(1992), i), [1000], identification=i) for i in (1, 2, 3, 4)]
    first, later = ([p.ethernet(each[i]) for each in many] for i in (0, 1))
    path = write(tmp_path, p.pcap(records(*later, *reversed(first))))
    monkeypatch.setattr(plain_flows, limit, 3)
    flows = read(pyshark_engine, path, tmp_path).flows.to_pylist()
    assert columns(flows, "src_port", "packets") == [(0, 1), (4, 2), (3, 2), (2, 2), (1, 1)]


def test_fragments_of_a_tunnel(tmp_path: Path) -> None:
    """The later fragments of the tunnel's packet belong to the flow inside; fragments inside know their tunnel."""
    body = p.gre(p.ipv4(p.tcp(bytes(1936)), "9.9.9.9", "8.8.8.8"))
    first, second = (p.ethernet(each) for each in p.fragments(body, [1000], protocol=47))
    for frames in ([first, second], [second, first]):
        [flow] = flows_of(frames, tmp_path)
        assert (flow["src_ip"], flow["encapsulation"], flow["packets"], flow["wire_bytes"]) == (
            "9.9.9.9", 0, 2, len(first) + len(second),
        )  # fmt: skip
    inner = p.fragments(p.udp(bytes(1992)), [1000])
    frames = [to(4789, p.vxlan(p.ethernet(each), vni=vni)) for vni in (1, 2) for each in reversed(inner)]
    flows = flows_of(frames, tmp_path)
    assert columns(flows, "encapsulation", "src_port", "packets") == [(0, 40000, 2), (1, 40000, 2)]


# --- steps and windows


def test_steps_and_windows(tmp_path: Path) -> None:
    """A time that is a bound belongs to the step that begins there; times need not ascend."""
    path = write(tmp_path, p.pcap([p.Record(START + t, p.segment()) for t in (0, 10 * MS, 5 * MS, 20 * MS, 19 * MS)]))
    facts = read_both(path, bounds=(START + 5 * MS, START + 10 * MS, START + 20 * MS))
    assert [step for _, _, step, *_ in cells_of(facts)] == [-1, 0, 1, 1, 2]
    assert (facts.first_ns, facts.last_ns) == (START, START + 20 * MS)


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("tick_ns", [1, 1000])
def test_byte_orders_and_time_resolutions(order: str, tick_ns: int, tmp_path: Path) -> None:
    stamps = [START + tick_ns, START + 999 * tick_ns, START + 10**9 - START % 10**9 - tick_ns]
    content = p.pcap([p.Record(t, p.segment()) for t in stamps], order, tick_ns, snaplen=96)
    facts = read_both(write(tmp_path, content))
    assert (facts.first_ns, facts.last_ns) == (stamps[0], stamps[2])
    assert (facts.format, facts.time_resolution_ns, facts.snaplen) == (
        "pcap-le" if order == "<" else "pcap-be", tick_ns, 96,
    )  # fmt: skip


@pytest.mark.parametrize("compress", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_truncated_last_record(compress: Callable[[bytes], bytes], tmp_path: Path) -> None:
    path = write(tmp_path, compress(GOOD), "whole")
    assert (read_both(path).records, read_both(path).status) == (20, "complete")
    cut = read_both(write(tmp_path, compress(GOOD[:-5])))
    assert (cut.records, cut.status, cut.trailing_bytes) == (19, "truncated", 165)
    assert cut.status_detail == "appears to have been cut short in the middle of a packet."


@pytest.mark.parametrize("name", ["-r.pcap", "-", "a \"b' \\ ü $(x).pcap", "line\nbreak.pcap", "not utf-8 \udcff"])
def test_names(name: str, tmp_path: Path) -> None:
    cut = read_both(write(tmp_path, GOOD[:-5], name))
    assert (cut.records, cut.status_detail) == (19, "appears to have been cut short in the middle of a packet.")


def test_relative_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A relative name that looks like an option."""
    monkeypatch.chdir(tmp_path)
    Path("-c1").write_bytes(p.pcap(records(p.segment(), p.segment())))
    assert read_both(Path("-c1")).records == 2


GOOD = p.pcap(records(*[p.segment(seq=100 * i) for i in range(20)]))
DAMAGED = {
    "empty": (b"", "truncated", 0),
    "text": (b"no capture, but long enough to be one", "corrupt", 0),
    "inside the file header": (GOOD[:10], "truncated", 0),
    "file header only": (GOOD[:24], "complete", 0),
    "inside a record header": (GOOD[:-165], "truncated", 19),
    "nonsense after the records": (GOOD + struct.pack("<4I", 1, 1, 2**31, 9) + bytes(99), "corrupt", 20),
    "gzip cut short": (gzip.compress(GOOD)[:-20], "truncated", None),
    "gzip and something else": (gzip.compress(GOOD) + b"something else", "corrupt", 20),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damage(name: str, tmp_path: Path) -> None:
    content, status, readable = DAMAGED[name]
    facts = read_both(write(tmp_path, content))
    assert facts.status == status
    assert readable in (None, facts.records)
    assert str(tmp_path) not in str(facts.status_detail)


# --- what only the reference engine reads


def test_pcapng(tmp_path: Path) -> None:
    """The same packets give the same flows; what only pcap's file header says is unknown."""
    editcap = needs_tool("editcap")
    path = write(tmp_path, p.pcap(records(*[p.segment(seq=100 * i) for i in range(20)]), tick_ns=1))
    plain = read(pyshark_engine, path, tmp_path)
    converted = tmp_path / "capture.pcapng"
    subprocess.run([editcap, "-F", "pcapng", path, converted], check=True)
    facts = read(pyshark_engine, converted, tmp_path)
    assert (facts.format, facts.link_types, facts.status) == ("pcapng", "1", "complete")
    assert (facts.snaplen, facts.time_resolution_ns, facts.trailing_bytes) == (None, None, 0)
    assert facts.flows.to_pylist() == plain.flows.to_pylist()
    assert facts.records == 20


@pytest.mark.parametrize("order", ["<", ">"])
def test_engines_agree_on_pcapng(order: str, tmp_path: Path) -> None:
    """Sections, interfaces with their own resolutions, every kind of packet block; all but what their headers say."""
    section = p.Section(order)
    ticks = START // 1000
    content = section.begin() + section.interface(p.ETHERNET, 96, 6) + section.interface(p.RAW, 200, 0x80 | 30)
    content += section.enhanced(ticks, p.segment(100)[:96], 154) + section.enhanced(3 << 29, DATA, interface=1)
    content += section.simple(p.segment(100, 100)[:96], 154) + section.old(ticks + 5, p.segment(20, 200)[:60], 74)
    content += p.pcapng(records(p.segment(30, 220), p.segment(100, 100)), "<" if order == ">" else ">")
    path = write(tmp_path, content)
    fast, reference = (read(engine, path, tmp_path) for engine in (numba_engine, pyshark_engine))
    assert_same_traffic(fast, reference)
    for name in ("format", "link_types", "records", "untimed_records", "wire_bytes", "first_ns", "last_ns", "status"):
        assert getattr(reference, name) == getattr(fast, name), name
    assert (reference.records, reference.link_types, reference.first_ns) == (6, "1,101", 1_500_000_000)


def test_80211(tmp_path: Path) -> None:
    """Radiotap, a data frame from an access point, LLC and SNAP: link headers whose sizes only tshark knows."""
    radiotap = struct.pack("<BBHI", 0, 0, 8, 0)
    wlan = b"\x08\x02\0\0" + b"\2\0\0\0\0\1" + b"\2\0\0\0\0\2" + b"\2\0\0\0\0\3" + bytes(2)
    snap = b"\xaa\xaa\3\0\0\0\x08\0"
    frame = radiotap + wlan + snap + DATA
    facts = read(pyshark_engine, write(tmp_path, p.pcap(records(frame), link=127)), tmp_path)
    [flow] = facts.flows.to_pylist()
    assert (flow["src_ip"], flow["src_port"], flow["ip_bytes"], flow["payload_bytes"]) == ("10.0.0.1", 40000, 140, 100)
    assert (facts.link_types, flow["wire_bytes"]) == ("127", len(frame))


def test_packets_without_time(tmp_path: Path) -> None:
    """A pcapng's Simple Packet Blocks: the time of the packet before stands in."""
    section = p.Section()
    simple = section.simple(p.segment(100)[:96], 154)
    content = section.begin() + section.interface(p.ETHERNET, 96, 9) + simple
    content += section.enhanced(START, p.segment(50)[:96], 104) + simple
    facts = read(pyshark_engine, write(tmp_path, content), tmp_path)
    assert (facts.records, facts.untimed_records, facts.wire_bytes) == (3, 2, 412)
    assert (facts.first_ns, facts.last_ns) == (0, START)
    assert columns(packets_of(facts), "ts_ns", "captured_bytes") == [(0, 96), (START, 96), (START, 96)]


COMPRESSIONS: dict[str, Callable[[bytes], bytes]] = {"gzip": gzip.compress, "bzip2": bz2.compress, "xz": lzma.compress}


@pytest.mark.parametrize("name", COMPRESSIONS)
def test_compressions(name: str, tmp_path: Path) -> None:
    """Also those that tshark does not know."""
    facts = read_both(write(tmp_path, COMPRESSIONS[name](GOOD)))
    assert (facts.format, facts.records, facts.status) == (f"pcap-le+{name}", 20, "complete")


def test_standard_input(tmp_path: Path) -> None:
    program = f"""
import numpy
from pathlib import Path
from ddnn_traces.ingestors.tshark import pyshark_engine
from ddnn_traces.ingestors.facts import ReadOptions
options = ReadOptions(1000, numpy.array([], numpy.int64), Path({str(tmp_path / "cells")!r}))
facts = pyshark_engine.read_capture(Path("-"), options)
print(facts.records, facts.file_bytes, facts.status)
"""
    done = subprocess.run([sys.executable, "-c", program], input=GOOD, capture_output=True, check=True, cwd=ROOT)
    assert done.stdout.decode().split() == ["20", str(len(GOOD)), "complete"]


def test_unknown_link_type(tmp_path: Path) -> None:
    """One that tshark leaves to the user; at one that it does not know at all it stops."""
    path = write(tmp_path, p.pcap(records(p.segment()), link=147))
    assert read_both(path).skipped == {"unknown_link_type": (1, 154)}
    facts = read(pyshark_engine, write(tmp_path, p.pcap(records(p.segment()), link=9999)), tmp_path)
    assert (facts.status, facts.records) == ("corrupt", 0)
    assert "9999" in str(facts.status_detail)


def test_damage_in_gzip_costs_no_record(tmp_path: Path) -> None:
    """A wrong checksum comes after the last record."""
    content = gzip.compress(GOOD)
    facts = read(pyshark_engine, write(tmp_path, content[:-8] + b"12345678"), tmp_path)
    assert (facts.records, facts.status, facts.trailing_bytes) == (20, "corrupt", 0)


def test_time_stamps_of_other_versions() -> None:
    assert dissect.time_ns("1700000000.123456789") == 1_700_000_000_123_456_789
    assert dissect.time_ns("2023-11-14T22:13:20.123456789Z") == 1_700_000_000_123_456_789


def test_cells_and_packets_are_written_in_portions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain_flows, "_CELLS_AT_ONCE", 3)
    monkeypatch.setattr(plain_flows, "_PACKETS_AT_ONCE", 3)
    facts = read_both(write(tmp_path, GOOD))
    assert [row["record"] for row in packets_of(facts)] == list(range(20))
    frames = [p.segment(), LATER[0], *[p.segment()] * 8, FIRST, p.segment()]
    facts = read_both(write(tmp_path, p.pcap(records(*frames))))
    assert columns(packets_of(facts), "record", "flow") == [(i, int(i in (1, 10))) for i in range(12)]


# --- the program behind it


def children() -> set[str]:
    return {pid for task in Path("/proc/self/task").iterdir() for pid in (task / "children").read_text().split()}


def test_many_times_in_a_process_and_its_threads(tmp_path: Path) -> None:
    """No child process stays; a running loop, as in a notebook, is no obstacle."""
    path = write(tmp_path, GOOD)
    before = children()
    counts = [read(pyshark_engine, path, tmp_path).records for _ in range(2)]
    thread = threading.Thread(target=lambda: counts.append(read(pyshark_engine, path, tmp_path).records))
    thread.start()
    thread.join()

    async def in_a_notebook() -> None:
        counts.append(read(pyshark_engine, path, tmp_path).records)

    asyncio.run(in_a_notebook())
    assert counts == [20] * 4
    assert children() == before


def test_error_in_the_reader_leaves_no_process(tmp_path: Path) -> None:
    path = write(tmp_path, p.pcap(records(*[p.segment()] * 20_000)))

    def fail(_bytes: int, _packets: int) -> None:
        raise ZeroDivisionError

    before = children()
    with pytest.raises(ZeroDivisionError):
        pyshark_engine.read_capture(path, ReadOptions(MS, np.array([], np.int64), tmp_path / "cells", progress=fail))
    assert children() == before


def test_interrupt_leaves_no_process(tmp_path: Path) -> None:
    path = write(tmp_path, p.pcap(records(*[p.segment()] * 50_000)))
    program = f"""
import sys, numpy
from pathlib import Path
from ddnn_traces.ingestors.tshark import pyshark_engine
from ddnn_traces.ingestors.facts import ReadOptions
said = []
def progress(_bytes, _packets):
    if not said:
        said.append(print("reading", flush=True))
try:
    pyshark_engine.read_capture(Path({str(path)!r}), ReadOptions(1000, numpy.array([], numpy.int64),
                                Path({str(tmp_path / "cells")!r}), progress=progress))
except KeyboardInterrupt:
    print("left:", [p.read_text() for p in Path("/proc/self/task").glob("*/children") if p.read_text()])
"""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "error"}
    with subprocess.Popen([sys.executable, "-c", program], stdout=-1, stderr=-1, env=environment, text=True) as process:
        assert process.stdout
        assert process.stdout.readline() == "reading\n"
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=30) == ("left: []\n", "")


def test_interrupt_while_standard_input_is_silent(tmp_path: Path) -> None:
    content = p.pcap(records(*[p.segment()] * 50_000))
    program = f"""
import numpy
from pathlib import Path
from ddnn_traces.ingestors.tshark import pyshark_engine
from ddnn_traces.ingestors.facts import ReadOptions
said = []
def progress(_bytes, _packets):
    if not said:
        said.append(print("reading", flush=True))
try:
    pyshark_engine.read_capture(Path("-"), ReadOptions(1000, numpy.array([], numpy.int64),
                                Path({str(tmp_path / "cells")!r}), progress=progress))
except KeyboardInterrupt:
    print("left:", [p.read_text() for p in Path("/proc/self/task").glob("*/children") if p.read_text()])
"""
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen([sys.executable, "-c", program], stdin=-1, stdout=-1, stderr=-1, env=environment) as process:
        assert process.stdin
        assert process.stdout
        process.stdin.write(content)
        process.stdin.flush()
        assert process.stdout.readline() == b"reading\n"
        process.send_signal(signal.SIGINT)
        assert process.stdout.read() == b"left: []\n"  # its input is open still
        process.stdin.close()
        assert process.wait(timeout=30) == 0


def fake_tshark(folder: Path, script: str) -> None:
    """A tshark that says its version, and otherwise does what the script does."""
    program = folder / "tshark"
    program.write_text(f'#!/bin/sh\n[ "$1" = -v ] && echo "TShark (Wireshark) 4.0.17" && exit 0\n{script}\n')
    program.chmod(0o755)


@pytest.mark.parametrize(
    ("script", "message"),
    [
        (
            "echo 'tshark: -o flag \"ipv6.tso_support:TRUE\" specifies unknown preference' >&2; exit 1",
            "unknown preference",
        ),
        ("kill -9 $$", "exit status -9"),
    ],
)
def test_tshark_fails(script: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_tshark(tmp_path, script)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    with pytest.raises(EngineError, match=message) as error:
        read(pyshark_engine, write(tmp_path, GOOD), tmp_path)
    assert "use --engine numba" in str(error.value)


def test_tshark_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.path.exists", lambda path: "tshark" not in str(path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EngineError, match="apt-get install tshark, or use --engine numba"):
        read(pyshark_engine, write(tmp_path, GOOD), tmp_path)


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read(pyshark_engine, tmp_path / "none.pcap", tmp_path)


def test_slow_reader_is_waited_for(tmp_path: Path) -> None:
    """tshark blocks on a full pipe while packets are counted; nothing may be lost."""
    path = write(tmp_path, p.pcap(records(*[p.segment()] * 2000)))
    spill = tmp_path / "cells"
    options = ReadOptions(MS, np.array([], np.int64), spill, progress=lambda *_: time.sleep(0.2))
    assert pyshark_engine.read_capture(path, options).records == 2000
