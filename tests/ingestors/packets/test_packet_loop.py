"""The packet loop against tests/naive, and against what is known of packets made by hand: docs/packets.md, by line."""

from __future__ import annotations

import collections
import gzip
import itertools
import struct
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import naive
import numpy as np
import packets as p
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ddnn_traces.ingestors import capture_file
from ddnn_traces.ingestors.facts import FLOW_FACTS, NO_STEP, PACKETS, CaptureFacts, ReadOptions
from ddnn_traces.ingestors.packets import numba_engine, parts, scanner
from ddnn_traces.ingestors.packets.compiled import jit

T0 = 1_700_000_000 * 10**9
ODD_TIME = (1_700_000_000 | 0xFFFF) * 10**9  # a record header that starts with 0xffff
US = 1000
MS = 10**6
SECOND = 10**9
FREE = (None, None, None, 0)  # of a key: no tunnel, no queue pair, no opcode, the first connection
KEY = ("10.0.0.1", "10.0.0.2", p.TCP, 40000, 5000, *FREE)


# --- reading both ways


def set_sizes(patch: pytest.MonkeyPatch, sizes: dict[str, int]) -> None:
    """Sizes of the engine's buffers: the only place that knows their names."""
    places = {
        "block": (capture_file, "BLOCK_BYTES"), "flows": (scanner, "FLOWS_AT_FIRST"),
        "cells": (scanner, "CELLS_AT_ONCE"), "packets": (scanner, "PACKETS_AT_ONCE"),
        "tunnels": (scanner, "TUNNELS_AT_FIRST"), "samples": (scanner, "SAMPLES_AT_MOST"),
        "chunk": (parts, "PART_BYTES"), "part_block": (parts, "BLOCK_BYTES"), "most_flows": (parts, "MOST_FLOWS"),
    }  # fmt: skip
    for name, size in sizes.items():
        patch.setattr(*places[name], size)


def read_fast(
    data: bytes, window_ns: int, bounds: list[int], open_tunnels: bool = True, jobs: int = 1, **sizes: int
) -> naive.Facts:
    """What the numba engine says of a file, in the terms of the naive one. sizes: of its buffers."""
    with TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        set_sizes(patch, {"block": 1 << 20, "cells": 1 << 10} | sizes)
        folder = Path(name)
        (folder / "capture").write_bytes(data)
        steps = np.array(bounds, np.int64)
        options = ReadOptions(window_ns, steps, folder / "cells", folder / "packets", open_tunnels, jobs)
        return in_naive_terms(numba_engine.read_capture(folder / "capture", options))


def in_naive_terms(facts: CaptureFacts) -> naive.Facts:
    rows = facts.flows.to_pylist()
    assert facts.flows.schema == FLOW_FACTS
    assert [row.pop("flow") for row in rows] == list(range(len(rows)))
    assert all(row.pop("kept") for row in rows)
    tunnels = tunnels_of(facts)
    keys = keys_of(rows, tunnels)
    cells: dict[tuple, list[int]] = collections.defaultdict(lambda: [0, 0, 0])
    for flow, window, step, *values in rows_of(facts.cells):
        for i, value in enumerate(values):
            cells[keys[flow], window, step][i] += value
    if facts.packets:
        assert pq.read_schema(facts.packets) == PACKETS
    return naive.Facts(
        dict(zip(keys, rows, strict=True)), dict(cells), set(tunnels), sorted(rows_of(facts.packets)), facts.skipped,
        facts.records, facts.wire_bytes, facts.untimed_records, facts.first_ns, facts.last_ns, facts.trailing_bytes,
        facts.status,
    )  # fmt: skip


def tunnels_of(facts: CaptureFacts) -> list[naive.Encapsulation]:
    """Tunnels with their parents instead of the parents' rows."""
    tunnels: list[naive.Encapsulation] = []
    for parent, *columns in zip(*facts.encapsulations.to_pydict().values(), strict=True):
        tunnels.append(naive.Encapsulation(*columns, around=None if parent is None else tunnels[parent]))
    assert len(tunnels) == len(set(tunnels))
    return tunnels


def keys_of(rows: list[dict[str, Any]], tunnels: list[naive.Encapsulation]) -> list[naive.Key]:
    """The connection is the number of rows before with the same rest of the key."""
    connections: dict[tuple, int] = collections.Counter()
    keys = []
    for row in rows:
        tunnel = row.pop("encapsulation")
        five_tuple = [row[name] for name in ("src_ip", "dst_ip", "protocol", "src_port", "dst_port")]
        rest = (*five_tuple, None if tunnel is None else tunnels[tunnel], row["roce_dest_qp"], row["roce_opcode"])
        keys.append((*rest, connections[rest]))
        connections[rest] += 1
    return keys


def rows_of(path: Path | None) -> list[tuple]:
    """Rows of a Parquet file; none without a file."""
    return list(zip(*pq.read_table(path).to_pydict().values(), strict=True)) if path else []


def assert_balanced(facts: naive.Facts) -> None:
    """The ledger: every record is in a flow or skipped for a reason, and the cells of a flow add up to it."""
    flows, skipped = facts.flows.values(), facts.skipped.values()
    assert sum(flow["packets"] for flow in flows) + sum(n for n, _ in skipped) == facts.records
    assert sum(flow["wire_bytes"] for flow in flows) + sum(wire for _, wire in skipped) == facts.wire_bytes
    sums = {key: np.zeros(3, int) for key in facts.flows}
    for (key, *_), cell in facts.cells.items():
        sums[key] += cell
    for key, flow in facts.flows.items():
        assert sums[key].tolist() == [flow["packets"], flow["wire_bytes"], flow["payload_bytes"]]
    assert len(facts.packets) == sum(flow["packets"] for flow in flows)


def read(
    data: bytes, window_ns: int = MS, bounds: list[int] | None = None, open_tunnels: bool = True, **sizes: int
) -> naive.Facts:
    """What both engines say of a file."""
    plain = naive.read(data, window_ns, bounds or [], open_tunnels)
    assert_balanced(plain)
    fast = read_fast(data, window_ns, bounds or [], open_tunnels, **sizes)
    assert_same(fast, plain)
    return plain


def assert_same(fast: naive.Facts, plain: naive.Facts) -> None:
    assert fast == plain
    assert list(fast.flows) == list(plain.flows)  # the order of first appearance


def read_frames(*frames: bytes, open_tunnels: bool = True, **file: int) -> naive.Facts:
    """Frames of a pcap, a microsecond apart."""
    return read(p.pcap(in_time(*frames), **file), open_tunnels=open_tunnels)


def in_time(*frames: bytes) -> list[p.Record]:
    return [p.Record(T0 + i * US, frame) for i, frame in enumerate(frames)]


def payloads(facts: naive.Facts) -> dict[naive.Key, int]:
    """Payload bytes a flow."""
    return {key: flow["payload_bytes"] for key, flow in facts.flows.items()}


def the_flow(facts: naive.Facts) -> dict[str, int]:
    (flow,) = facts.flows.values()
    return flow


# --- sizes


def test_sizes_are_the_original_ones_not_the_captured_ones() -> None:
    flow = the_flow(read_frames(p.segment(1000), snaplen=96))
    assert (flow["wire_bytes"], flow["captured_bytes"]) == (14 + 20 + 20 + 1000, 96)
    assert (flow["ip_bytes"], flow["payload_bytes"]) == (1040, 1000)


@pytest.mark.parametrize("payload", [65_535 - 40, 65_536 - 40, 65_537 - 54, 65_537, 100_000, 512 << 10])
@pytest.mark.parametrize("snaplen", [96, 262144])
def test_super_frames_do_not_wrap_at_16_bits(payload: int, snaplen: int) -> None:
    """The header's 16 bits hold the length modulo 65536, as no driver promises but some write."""
    flow = the_flow(read_frames(p.segment(payload), snaplen=snaplen))
    assert (flow["wire_bytes"], flow["ip_bytes"], flow["payload_bytes"]) == (payload + 54, payload + 40, payload)


@pytest.mark.parametrize("payload", [1460, 80_000])
def test_ip_length_zero_is_taken_from_the_frame(payload: int) -> None:
    v4 = p.ethernet(p.ipv4(p.tcp(bytes(payload)), total=0))
    v6 = p.ethernet(p.ipv6(p.tcp(bytes(payload)), length=0), p.IPV6)
    flows = list(read_frames(v4, v6, snaplen=128).flows.values())
    assert [flow["payload_bytes"] for flow in flows] == [payload, payload]
    assert [flow["ip_bytes"] for flow in flows] == [payload + 40, payload + 60]


def test_padding_of_short_frames_is_wire_but_not_payload() -> None:
    ack = p.segment(0)
    flow = the_flow(read_frames(ack + bytes(60 - len(ack))))
    assert (flow["wire_bytes"], flow["ip_bytes"], flow["payload_bytes"]) == (60, 40, 0)


def test_length_beyond_the_frame_is_taken_from_the_frame() -> None:
    flow = the_flow(read_frames(p.ethernet(p.ipv4(p.tcp(bytes(100)), total=1500))))
    assert (flow["ip_bytes"], flow["payload_bytes"]) == (140, 100)


def test_header_lengths_that_cannot_be_are_malformed() -> None:
    shorter_than_headers = p.ethernet(p.ipv4(p.tcp(bytes(10)), total=39))
    ihl_4 = bytearray(p.segment(10))
    ihl_4[14] = 0x44
    version_5 = bytearray(p.segment(10))
    version_5[14] = 0x55
    offset_4 = bytearray(p.segment(10))
    offset_4[46] = 0x40
    udp_of_4 = p.ethernet(p.ipv4(bytes(4), protocol=p.UDP))
    total_of_19 = p.ethernet(p.ipv4(p.icmp(), protocol=p.ICMP, total=19))
    frames = [shorter_than_headers, ihl_4, version_5, offset_4, udp_of_4, total_of_19]
    assert read_frames(*map(bytes, frames)).skipped == {"malformed": (6, sum(map(len, frames)))}


# --- cut packets


def test_ports_are_enough() -> None:
    """Four bytes of transport header are a flow; TCP's own fields need more, and a header of 20 bytes is assumed."""
    frame = p.ethernet(p.ipv4(p.tcp(bytes(100), flags=p.SYN, options=p.TIMESTAMPS)))
    facts = read_frames(frame, snaplen=38)
    flow = the_flow(facts)
    assert KEY in facts.flows
    assert (flow["payload_bytes"], flow["syn_packets"]) == (100 + len(p.TIMESTAMPS), 0)
    assert read_frames(frame, snaplen=37).skipped == {"cut_short": (1, len(frame))}


@pytest.mark.parametrize("snaplen", [54, 60, 128])
def test_cut_tcp_options_still_count_as_header(snaplen: int) -> None:
    flow = the_flow(read_frames(p.ethernet(p.ipv4(p.tcp(bytes(100), options=p.TIMESTAMPS * 3))), snaplen=snaplen))
    assert flow["payload_bytes"] == 100


@pytest.mark.parametrize(("tcp_bytes", "payload", "syns"), [(12, 112, 0), (13, 100, 0), (14, 100, 2)])
def test_bytes_of_the_next_record_are_not_read(tcp_bytes: int, payload: int, syns: int) -> None:
    """Data offset and flags are bytes 12 and 13 of TCP; the next record is there to be mistaken for them."""
    frame = p.ethernet(p.ipv4(p.tcp(bytes(100), flags=p.SYN, options=p.TIMESTAMPS)))
    flow = the_flow(read(p.pcap([p.Record(ODD_TIME, frame)] * 2, snaplen=14 + 20 + tcp_bytes)))
    assert (flow["payload_bytes"], flow["syn_packets"]) == (2 * payload, syns)


def test_cut_ipv6() -> None:
    """Snaplen 54 holds the IPv6 header of an Ethernet frame and not one byte more."""
    frame = p.ethernet(p.ipv6(p.tcp(bytes(100))), p.IPV6)
    assert read_frames(frame, snaplen=54).skipped == {"cut_short": (1, len(frame))}
    assert the_flow(read_frames(frame, snaplen=58))["payload_bytes"] == 100
    assert the_flow(read_frames(p.ethernet(p.ipv6(bytes(100), protocol=p.ICMP), p.IPV6), snaplen=54))["packets"] == 1


@pytest.mark.parametrize("snaplen", range(38))
def test_frames_without_a_whole_ip_header_are_cut_short(snaplen: int) -> None:
    frame = p.ethernet(p.ipv4(p.tcp()), tags=[p.VLAN])
    facts = read(p.pcap([p.Record(ODD_TIME, frame)] * 2, snaplen=snaplen))
    assert facts.skipped == {"cut_short": (2, 2 * len(frame))}


# --- link types and headers

LINKS = {
    p.ETHERNET: p.ethernet,
    p.SLL: p.sll,
    p.SLL2: p.sll2,
    p.NULL: p.null,
    108: p.null,
    **dict.fromkeys((12, 14, 101, 228, 229), p.raw),
}


@pytest.mark.parametrize("link", LINKS)
def test_link_types(link: int) -> None:
    v4, v6 = LINKS[link](p.ipv4(p.tcp(bytes(100)))), LINKS[link](p.ipv6(p.tcp(bytes(100))), p.IPV6)
    facts = read_frames(v4, v6, link=link)
    assert list(facts.flows) == [KEY, ("fd00::1", "fd00::2", *KEY[2:])]
    assert [flow["payload_bytes"] for flow in facts.flows.values()] == [100, 100]


@pytest.mark.parametrize(
    "tags", [[p.VLAN], [p.SERVICE_VLAN, p.VLAN], [p.VLAN, p.VLAN], [0x9100, p.VLAN], [p.SERVICE_VLAN, p.VLAN, p.VLAN]]
)
def test_vlan_tags_are_wire_but_not_ip(tags: list[int]) -> None:
    facts = read_frames(p.segment(100), p.ethernet(p.ipv4(p.tcp(bytes(100), seq=100)), tags=tags))
    flow = facts.flows[KEY]
    assert (flow["packets"], flow["payload_bytes"]) == (2, 200)
    assert flow["wire_bytes"] == 2 * 154 + 4 * len(tags)


def test_unknown_link_type_is_in_the_ledger() -> None:
    assert read_frames(p.segment(), link=147).skipped == {"unknown_link_type": (1, 154)}


def test_upper_bits_of_the_link_type_are_not_part_of_it() -> None:
    """They hold the length of a frame check sequence."""
    assert KEY in read_frames(p.segment(), link=p.ETHERNET | 0x14000000).flows


def test_other_packets_are_not_ip() -> None:
    llc = p.ethernet(b"\x42\x42\x03" + bytes(50), 53)
    assert read_frames(p.arp(), llc).skipped == {"not_ip": (2, len(p.arp()) + len(llc))}
    assert read_frames(b"\x10" + bytes(50), link=p.RAW).skipped == {"not_ip": (1, 51)}


def test_protocols_and_ports() -> None:
    facts = read_frames(
        p.ethernet(p.ipv4(p.udp(bytes(30)), protocol=p.UDP)), p.ethernet(p.ipv4(p.icmp(bytes(30)), protocol=p.ICMP))
    )
    assert {key[2:5]: payload for key, payload in payloads(facts).items()} == {
        (p.UDP, 40000, 5000): 30,
        (p.ICMP, 0, 0): 38,
    }


def test_ip_options() -> None:
    flow = the_flow(read_frames(p.ethernet(p.ipv4(p.tcp(bytes(100)), options=bytes(40)))))
    assert (flow["ip_bytes"], flow["payload_bytes"]) == (180, 100)


EXTENSIONS = [p.hop_by_hop(), p.destination_options(2), p.authentication(), p.fragment_header(more=True)]


def test_ipv6_extension_headers() -> None:
    frame = p.ethernet(p.ipv6(p.tcp(bytes(100)), extensions=EXTENSIONS), p.IPV6)
    facts = read_frames(frame)
    assert the_flow(facts)["payload_bytes"] == 100
    assert next(iter(facts.flows))[2:] == KEY[2:]
    assert read_frames(frame, snaplen=14 + 40 + 8 + 24 + 4).skipped == {"cut_short": (1, len(frame))}


def test_addresses_that_differ_anywhere_are_other_flows() -> None:
    ends = ["fd00::1", "fd01::1", "fd00::2"]
    frames = [p.ethernet(p.ipv6(p.tcp(), *pair), p.IPV6) for pair in itertools.product(ends, ends)]
    assert [key[:2] for key in read_frames(*frames).flows] == list(itertools.product(ends, ends))


def test_chain_longer_than_the_packet_is_malformed() -> None:
    frame = p.ethernet(p.ipv6(p.tcp(bytes(100)), extensions=[p.hop_by_hop(8)], length=60), p.IPV6)
    assert read_frames(frame).skipped == {"malformed": (1, len(frame))}


# --- MPLS, PPPoE

V4, V6 = p.ipv4(p.tcp(bytes(100))), p.ipv6(p.tcp(bytes(100)))
KEY6 = ("fd00::1", "fd00::2", *KEY[2:])


@pytest.mark.parametrize("kind", [0x8847, 0x8848])
@pytest.mark.parametrize("labels", [1, 2, 5])
def test_mpls(kind: int, labels: int) -> None:
    frames = [p.ethernet(p.mpls(V4, labels), kind), p.ethernet(p.mpls(V6, labels), kind, [p.VLAN])]
    assert payloads(read_frames(*frames)) == {KEY: 100, KEY6: 100}
    inside = p.ethernet(p.pseudowire(p.ethernet(V4, tags=[p.VLAN]), labels), kind)
    assert payloads(read_frames(inside)) == {KEY: 100}


def test_mpls_that_holds_no_ip() -> None:
    other = p.ethernet(p.mpls(b"\x20" + bytes(60)), p.MPLS)
    arp = p.ethernet(p.pseudowire(p.arp()), p.MPLS)
    assert read_frames(other, arp).skipped == {"not_ip": (2, len(other) + len(arp))}
    assert read_frames(p.ethernet(p.mpls(V4), p.MPLS), snaplen=18).skipped == {"cut_short": (1, 158)}  # the nibble
    assert read_frames(p.ethernet(p.mpls(V4, 9), p.MPLS), snaplen=20).skipped == {"cut_short": (1, 190)}  # no bottom


def test_pppoe() -> None:
    frames = [p.ethernet(p.pppoe(V4), p.PPPOE, [p.SERVICE_VLAN]), p.ethernet(p.pppoe(V6, p.IPV6), p.PPPOE)]
    assert payloads(read_frames(*frames)) == {KEY: 100, KEY6: 100}
    assert read_frames(frames[1], snaplen=21).skipped == {"cut_short": (1, len(frames[1]))}
    link_control, discovery = p.ethernet(p.pppoe(bytes(20), 0xC021), p.PPPOE), p.ethernet(p.pppoe(V4), 0x8863)
    assert read_frames(link_control, discovery).skipped == {"not_ip": (2, len(link_control) + len(discovery))}


def test_other_link_types_hold_them_too() -> None:
    assert payloads(read_frames(p.sll2(p.mpls(V4), p.MPLS), p.sll2(p.pppoe(V6, p.IPV6), p.PPPOE), link=p.SLL2)) == {
        KEY: 100,
        KEY6: 100,
    }


# --- RoCEv2


def roce_frame(payload: int = 100, port: int = p.ROCE_PORT, **header: int) -> bytes:
    return p.ethernet(p.ipv4(p.udp(p.roce(bytes(payload), **header), destination=port), protocol=p.UDP))


def test_queue_pair_and_opcode_are_in_the_key() -> None:
    headers = [{"opcode": 4}, {"opcode": 17}, {"opcode": 4, "queue_pair": 0xFFFFFF}, {"opcode": 4}]
    facts = read_frames(*(roce_frame(**header) for header in headers))
    assert {(key[6:], flow["packets"]) for key, flow in facts.flows.items()} == {
        ((0x123456, 4, 0), 2),
        ((0x123456, 17, 0), 1),
        ((0xFFFFFF, 4, 0), 1),
    }
    assert {key[:6] for key in facts.flows} == {("10.0.0.1", "10.0.0.2", p.UDP, 40000, p.ROCE_PORT, None)}
    assert {flow["roce_dest_qp"] for flow in facts.flows.values()} == {0x123456, 0xFFFFFF}


@pytest.mark.parametrize(("captured", "known"), [(50, (0x123456, 4)), (49, (None, None)), (38, (None, None))])
def test_queue_pair_that_was_not_captured(captured: int, known: tuple[int | None, int | None]) -> None:
    flow = the_flow(read_frames(roce_frame(), snaplen=captured))
    assert (flow["roce_dest_qp"], flow["roce_opcode"]) == known
    assert flow["payload_bytes"] == 116


def test_only_the_destination_port_is_roce() -> None:
    answer = p.ethernet(p.ipv4(p.udp(p.roce(), p.ROCE_PORT, 4792), protocol=p.UDP))
    assert the_flow(read_frames(answer))["roce_dest_qp"] is None
    tcp = p.ethernet(p.ipv4(p.tcp(p.roce(), destination=p.ROCE_PORT)))
    assert the_flow(read_frames(tcp))["roce_dest_qp"] is None


# --- tunnels

OUTER = "192.0.2.1", "192.0.2.2"


def outer(body: bytes, protocol: int, six: bool = False) -> bytes:
    """An IP packet between the tunnel's ends."""
    if six:
        return p.ipv6(body, "2001:db8::1", "2001:db8::2", protocol)
    return p.ipv4(body, *OUTER, protocol)


def in_udp(body: bytes, port: int, source: int = 50000) -> bytes:
    return outer(p.udp(body, source, port), p.UDP)


def tunnel(
    kind: str, protocol: int, ports: tuple[int, int] = (0, 0), identifier: int | None = None,
    around: naive.Encapsulation | None = None, ends: tuple[str, str] = OUTER,
) -> naive.Encapsulation:  # fmt: skip
    return naive.Encapsulation(kind, *ends, protocol, *ports, identifier, around)


def within(encapsulation: naive.Encapsulation | None, key: naive.Key = KEY) -> naive.Key:
    return *key[:5], encapsulation, *key[6:]


FRAME = p.ethernet(V4, tags=[p.VLAN])
GRE = tunnel("gre", p.GRE)
GRE7 = tunnel("gre", p.GRE, identifier=7)
TUNNELS = {
    "ipip": (outer(V4, p.IPIP), tunnel("ipip", p.IPIP)),
    "gre": (outer(p.gre(V4), p.GRE), GRE),
    "gre checksum": (outer(p.gre(V4, checksum=True), p.GRE), GRE),
    "gre key": (outer(p.gre(V4, key=7), p.GRE), GRE7),
    "gre sequence": (outer(p.gre(V4, sequence=9), p.GRE), GRE),
    "gre all three": (outer(p.gre(V4, key=7, checksum=True, sequence=9), p.GRE), GRE7),
    "gre key 0": (outer(p.gre(V4, key=0), p.GRE), tunnel("gre", p.GRE, identifier=0)),
    "gre key of 32 bits": (outer(p.gre(V4, key=2**32 - 1), p.GRE), tunnel("gre", p.GRE, identifier=2**32 - 1)),
    "gre ethernet": (outer(p.gre(FRAME, p.BRIDGED, key=7), p.GRE), GRE7),
    "gre mpls": (outer(p.gre(p.mpls(V4, 2), p.MPLS), p.GRE), GRE),
    "erspan 1": (outer(p.erspan(FRAME, 1), p.GRE), GRE),
    "erspan 2": (outer(p.erspan(FRAME, 2), p.GRE), GRE),
    "erspan 3": (outer(p.erspan(FRAME, 3), p.GRE), GRE),
    "erspan 3 with subheader": (outer(p.erspan(FRAME, 3, subheader=True), p.GRE), GRE),
    "vxlan": (in_udp(p.vxlan(FRAME), p.VXLAN_PORT), tunnel("vxlan", p.UDP, (50000, 4789), 7)),
    "vxlan of old": (in_udp(p.vxlan(FRAME, 2**24 - 1), 8472), tunnel("vxlan", p.UDP, (50000, 8472), 2**24 - 1)),
    "vxlan policy": (in_udp(p.vxlan(FRAME, flags=0x88), p.VXLAN_PORT), tunnel("vxlan", p.UDP, (50000, 4789), 7)),
    "geneve": (in_udp(p.geneve(FRAME), p.GENEVE_PORT), tunnel("geneve", p.UDP, (50000, 6081), 7)),
    "geneve options": (
        in_udp(p.geneve(FRAME, options=bytes(12)), p.GENEVE_PORT),
        tunnel("geneve", p.UDP, (50000, 6081), 7),
    ),
    "geneve ip": (in_udp(p.geneve(V4, p.IPV4, 0), p.GENEVE_PORT), tunnel("geneve", p.UDP, (50000, 6081), 0)),
}


@pytest.mark.parametrize("name", TUNNELS)
def test_tunnels(name: str) -> None:
    """The flow is what is inside, with its own sizes but the frame's; or what is outside, when tunnels stay shut."""
    packet, encapsulation = TUNNELS[name]
    frame = p.ethernet(packet)
    facts = read_frames(frame, frame)
    assert list(facts.flows) == [within(encapsulation)]
    assert facts.encapsulations == {encapsulation}
    flow = the_flow(facts)
    assert (flow["ip_bytes"], flow["payload_bytes"], flow["wire_bytes"]) == (2 * 140, 200, 2 * len(frame))
    shut = read_frames(frame, open_tunnels=False)
    assert [key[:6] for key in shut.flows] == [(*OUTER, *encapsulation[3:6], None)]
    assert the_flow(shut)["ip_bytes"] == len(packet)
    assert shut.encapsulations == set()


def test_ipv6_in_and_around_tunnels() -> None:
    ends = "2001:db8::1", "2001:db8::2"
    frames = [p.ethernet(outer(V6, p.IPV6_IN_IP)), p.ethernet(outer(V4, p.IPIP, six=True), p.IPV6),
              p.ethernet(outer(p.gre(V6, p.IPV6), p.GRE, six=True), p.IPV6)]  # fmt: skip
    assert list(read_frames(*frames).flows) == [
        within(tunnel("ipip", p.IPV6_IN_IP), KEY6),
        within(tunnel("ipip", p.IPIP, ends=ends)),
        within(tunnel("gre", p.GRE, ends=ends), KEY6),
    ]


SHUT = {
    "ip protocol 4 with IPv6": outer(V6, p.IPIP),
    "no ip": outer(p.gre(p.arp(), p.BRIDGED), p.GRE),
    "unknown type": outer(p.gre(V4, 0x880B), p.GRE),
    "gre version 1": outer(p.gre(V4, flags=1), p.GRE),
    "gre routing": outer(p.gre(V4, flags=0x4000), p.GRE),
    "malformed": outer(p.ipv4(p.tcp(), total=30), p.IPIP),
    "vxlan without flag": in_udp(p.vxlan(FRAME, flags=0x80), p.VXLAN_PORT),
    "vxlan from the port": outer(p.udp(p.vxlan(FRAME), p.VXLAN_PORT, 50000), p.UDP),
    "geneve version 1": in_udp(p.geneve(FRAME, version=1), p.GENEVE_PORT),
    "geneve options beyond": in_udp(p.geneve(b"", options=bytes(252)), p.GENEVE_PORT),
    "nothing inside": in_udp(b"", p.VXLAN_PORT),
}


@pytest.mark.parametrize("name", SHUT)
def test_what_cannot_be_read_inside_leaves_the_packet_outside(name: str) -> None:
    facts = read_frames(p.ethernet(SHUT[name]))
    (key,) = facts.flows
    assert (key[:2], key[5], facts.encapsulations) == (OUTER, None, set())
    assert the_flow(facts)["ip_bytes"] == len(SHUT[name])


def test_every_snaplen_of_a_tunnel() -> None:
    """50 bytes of Ethernet, IP, UDP and VXLAN, and 18 + 24 of what is inside up to the ports."""
    frame = p.ethernet(in_udp(p.vxlan(FRAME), p.VXLAN_PORT))
    cut = [p.Record(T0, frame[:n], len(frame)) for n in range(len(frame))]
    facts = read(p.pcap(cut))
    counts = {key[5] and key[5].kind: flow["packets"] for key, flow in facts.flows.items()}
    assert counts == {None: 50 + 42 - 38, "vxlan": len(frame) - 92}
    assert facts.skipped["cut_short"][0] == 38


def test_tunnels_within_tunnels() -> None:
    first = tunnel("ipip", p.IPIP)
    second = tunnel("gre", p.GRE, identifier=7, around=first)
    third = tunnel("vxlan", p.UDP, (50000, 4789), 7, second)
    fourth = tunnel("geneve", p.UDP, (50000, 6081), 7, third)
    inside = in_udp(p.geneve(p.ethernet(V4)), p.GENEVE_PORT)
    packet = outer(outer(p.gre(in_udp(p.vxlan(p.ethernet(inside)), p.VXLAN_PORT), key=7), p.GRE), p.IPIP)
    facts = read_frames(p.ethernet(packet))
    assert list(facts.flows) == [within(fourth)]
    assert facts.encapsulations == {first, second, third, fourth}
    deeper = read_frames(p.ethernet(outer(packet, p.IPIP)))  # one more than are opened
    assert next(iter(deeper.flows))[:5] == (*OUTER, p.UDP, 50000, p.GENEVE_PORT)
    assert len(deeper.encapsulations) == 4


def test_tunnels_that_differ_part_flows() -> None:
    packets = [outer(p.gre(V4, key=key), p.GRE) for key in (1, 2, 1)] + [outer(p.gre(V4), p.GRE), V4]
    facts = read_frames(*map(p.ethernet, packets))
    assert [flow["packets"] for flow in facts.flows.values()] == [2, 1, 1, 1]
    assert {each.identifier for each in facts.encapsulations} == {1, 2, None}


def test_roce_and_connections_inside_a_tunnel() -> None:
    syns = [p.ipv4(p.tcp(seq=seq, flags=p.SYN)) for seq in (1, 2)]
    queue = p.ipv4(p.udp(p.roce(), destination=p.ROCE_PORT), protocol=p.UDP)
    facts = read_frames(*(p.ethernet(outer(p.gre(packet), p.GRE)) for packet in [*syns, queue]))
    assert [key[5:] for key in facts.flows] == [
        (GRE, None, None, 0),
        (GRE, None, None, 1),
        (GRE, 0x123456, 4, 0),
    ]


# --- fragments

BODY = p.udp(bytes(1000))
UDP_KEY = ("10.0.0.1", "10.0.0.2", p.UDP, 40000, 5000, *FREE)
NO_PORTS = ("10.0.0.1", "10.0.0.2", p.UDP, 0, 0, *FREE)
LINK = {False: p.IPV4, True: p.IPV6}


def fragment_frames(body: bytes, sizes: list[int], six: bool = False, **said: Any) -> list[bytes]:
    return [p.ethernet(packet, LINK[six]) for packet in p.fragments(body, sizes, six=six, **said)]


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
@pytest.mark.parametrize("six", [False, True])
def test_fragments_have_the_flow_of_their_first(order: tuple[int, ...], six: bool) -> None:
    frames = fragment_frames(BODY, [400, 320], six)
    facts = read_frames(*(frames[i] for i in order))
    assert [key[2:5] for key in facts.flows] == [UDP_KEY[2:5]]
    flow = the_flow(facts)
    assert (flow["packets"], flow["payload_bytes"]) == (3, 1000)
    assert [row[0] for row in facts.packets] == [0, 1, 2]


def test_later_fragments_hold_no_transport_header() -> None:
    """Though it may look like one."""
    first = p.ipv4(p.tcp(bytes(1460), flags=p.SYN), more=True)
    later = p.ipv4(p.tcp(bytes(500), flags=p.SYN), fragment=1480)
    facts = read_frames(p.ethernet(first), p.ethernet(later), snaplen=80)
    assert payloads(facts) == {KEY: 1460 + 520}
    assert facts.flows[KEY]["syn_packets"] == 1
    assert [row[-1] for row in facts.packets] == [p.SYN, None]


def test_fragments_whose_first_does_not_come() -> None:
    frames = fragment_frames(BODY, [400, 320])
    facts = read_frames(frames[2], p.segment(), frames[1])
    assert payloads(facts) == {KEY: 100, NO_PORTS: 608}  # the order in which they appeared


def test_fragments_whose_first_was_skipped() -> None:
    frames = fragment_frames(BODY, [400, 320])
    cut = p.Record(T0, frames[0][:37], len(frames[0]))
    for order in ([1, None, 2], [None, 1, 2], [2, 1, None]):
        records = [cut if i is None else p.Record(T0, frames[i]) for i in order]
        facts = read(p.pcap(records))
        assert payloads(facts) == {NO_PORTS: 608}
        assert facts.skipped == {"cut_short": (1, len(frames[0]))}


@pytest.mark.parametrize(
    "other",
    [
        fragment_frames(BODY, [400, 320], identification=2),
        fragment_frames(BODY, [400, 320], protocol=132),
        fragment_frames(BODY, [400, 320], source="10.0.0.3"),
        fragment_frames(BODY, [400, 320], destination="10.0.0.3"),
        [p.ethernet(outer(packet, p.IPIP)) for packet in p.fragments(BODY, [400, 320])],
    ],
)
def test_what_a_datagram_is_known_by(other: list[bytes]) -> None:
    facts = read_frames(fragment_frames(BODY, [400, 320])[0], other[1])
    assert [flow["packets"] for flow in facts.flows.values()] == [1, 1]
    assert [key[3:5] for key in facts.flows] == [(40000, 5000), (0, 0)]


def test_complete_datagram_is_closed() -> None:
    """Its identification may be used again at once."""
    frames = fragment_frames(BODY, [400, 320])
    again = fragment_frames(p.udp(bytes(1000), source=7), [400, 320])
    assert payloads(read_frames(*frames, again[1], again[2], again[0])) == {
        UDP_KEY: 1000,
        (*UDP_KEY[:3], 7, *UDP_KEY[4:]): 1000,
    }
    # what comes behind the last byte begins a new datagram
    assert payloads(read_frames(*frames, frames[1])) == {UDP_KEY: 1000, NO_PORTS: 320}
    assert payloads(read_frames(*frames[:2], frames[1])) == {UDP_KEY: 1000 - 288 + 320}  # while the end is not known


def test_second_first_fragment_begins_a_datagram() -> None:
    first, later, _ = fragment_frames(BODY, [400, 320])
    other = fragment_frames(p.udp(bytes(1000), source=7), [400, 320])[0]
    facts = read_frames(first, later, other, later)
    assert payloads(facts) == {UDP_KEY: 392 + 320, (*UDP_KEY[:3], 7, *UDP_KEY[4:]): 392 + 320}


@pytest.mark.parametrize(("later_by", "joined"), [(30 * SECOND - 1000, True), (30 * SECOND, False), (-SECOND, True)])
@pytest.mark.parametrize("first_at", [0, 1])
def test_datagram_is_open_for_30_seconds(later_by: int, joined: bool, first_at: int) -> None:
    frames = fragment_frames(BODY, [400])
    frames = [frames[first_at], frames[1 - first_at]]
    facts = read(p.pcap([p.Record(T0, frames[0]), p.Record(T0 + later_by, frames[1])]))
    assert (NO_PORTS in facts.flows) != joined


def test_1024_datagrams_are_open() -> None:
    pairs = [fragment_frames(BODY, [400], identification=i) for i in range(1025)]
    for count, lost in ((1024, 0), (1025, 1)):
        facts = read_frames(*(first for first, _ in pairs[:count]), *(later for _, later in pairs[:count][::-1]))
        assert facts.flows.get(NO_PORTS, {"packets": 0})["packets"] == lost
        assert facts.flows[UDP_KEY]["packets"] == 2 * count - lost


@pytest.mark.parametrize(("count", "lost"), [(4096, 0), (4097, 5)])
def test_4096_fragments_wait(count: int, lost: int) -> None:
    """The oldest datagram gives way: 4 of its fragments wait already when there are too many, and its last comes."""
    body = p.udp(bytes(8 * 5))
    datagrams = [fragment_frames(body, [8] * 5, identification=i) for i in range(820)]
    laters = [frame for datagram in datagrams for frame in datagram[1:]][:count]
    facts = read_frames(*laters, *(datagram[0] for datagram in datagrams))
    assert facts.flows.get(NO_PORTS, {"packets": 0})["packets"] == lost
    assert facts.flows[UDP_KEY]["packets"] == count + 820 - lost


def test_atomic_fragment_is_none() -> None:
    whole = p.ipv6(p.udp(bytes(100)), protocol=p.UDP, extensions=[p.fragment_header()])
    later = p.ipv6(bytes(64), protocol=p.UDP, extensions=[p.fragment_header(104)])
    facts = read_frames(p.ethernet(whole, p.IPV6), p.ethernet(later, p.IPV6))
    assert [key[3:5] for key in facts.flows] == [(40000, 5000), (0, 0)]


def test_extension_headers_behind_a_first_fragments_header() -> None:
    """The datagram is known by the protocol that the fragments' headers name."""
    first = p.ipv6(p.udp(bytes(96)), protocol=p.UDP, extensions=[p.fragment_header(0, True), p.destination_options(0)])
    later = p.ipv6(bytes(64), protocol=60, extensions=[p.fragment_header(112)])
    flow = the_flow(read_frames(p.ethernet(later, p.IPV6), p.ethernet(first, p.IPV6)))
    assert (flow["packets"], flow["payload_bytes"], flow["src_port"]) == (2, 96 + 64, 40000)


def test_first_fragment_tells_what_is_inside_a_tunnel() -> None:
    inside = p.udp(p.vxlan(p.ethernet(p.ipv4(p.tcp(bytes(1000))))), 50000, p.VXLAN_PORT)
    frames = fragment_frames(inside, [560], source=OUTER[0], destination=OUTER[1])
    expected = within(tunnel("vxlan", p.UDP, (50000, 4789), 7))
    for order in (frames, frames[::-1]):
        facts = read_frames(*order)
        later = len(inside) - 560
        assert payloads(facts) == {expected: (560 - 16 - 14 - 40) + later}  # what is inside the first, and the rest
        assert the_flow(facts)["ip_bytes"] == (560 - 16 - 14) + 20 + later


def test_fragments_inside_a_tunnel() -> None:
    packets = [outer(p.gre(packet), p.GRE) for packet in p.fragments(BODY, [400, 320])]
    facts = read_frames(*(p.ethernet(packet) for packet in reversed(packets)))
    assert payloads(facts) == {within(GRE, UDP_KEY): 1000}


def test_fragment_inside_a_fragment_is_not_opened() -> None:
    inside = p.gre(p.fragments(BODY, [800])[0])
    first, later = fragment_frames(inside, [600], protocol=p.GRE, source=OUTER[0], destination=OUTER[1])
    expected = (*OUTER, p.GRE, 0, 0, *FREE)
    assert payloads(read_frames(first, later)) == {expected: len(inside)}


def test_fragments_of_roce() -> None:
    frames = fragment_frames(p.udp(p.roce(bytes(1000)), destination=p.ROCE_PORT), [400, 320])
    flow = the_flow(read_frames(*frames[::-1]))
    assert (flow["packets"], flow["roce_dest_qp"], flow["roce_opcode"]) == (3, 0x123456, 4)


def test_fragments_belong_to_the_connection_of_their_first() -> None:
    old, new = p.segment(0, 1, p.SYN), p.segment(0, 1000, p.SYN)
    first, later = fragment_frames(p.tcp(bytes(1000), seq=2), [400], protocol=p.TCP)
    facts = read_frames(old, first, new, later)
    assert [flow["packets"] for flow in facts.flows.values()] == [3, 1]


# --- large packets, and packets one by one


@pytest.mark.parametrize(
    ("ip_bytes", "large", "huge"), [(1500, 0, 0), (1501, 1, 0), (9000, 1, 0), (9001, 1, 1), (70_000, 1, 1)]
)
def test_large_and_huge_packets(ip_bytes: int, large: int, huge: int) -> None:
    flow = the_flow(read_frames(p.segment(ip_bytes - 40), snaplen=96))
    assert (flow["large_packets"], flow["large_payload_bytes"]) == (large, large * (ip_bytes - 40))
    assert (flow["huge_packets"], flow["huge_payload_bytes"]) == (huge, huge * (ip_bytes - 40))


def test_packets_one_by_one() -> None:
    frames = [p.arp(), p.segment(flags=p.SYN | 0xC0), p.ethernet(p.ipv4(BODY, protocol=p.UDP)), p.segment(seq=101)]
    facts = read_frames(*frames, snaplen=60)
    assert facts.packets == [
        (1, 0, T0 + US, 154, 140, 100, 60, 0xC2),
        (2, 1, T0 + 2 * US, 1042, 1028, 1000, 60, None),
        (3, 0, T0 + 3 * US, 154, 140, 100, 60, p.ACK),
    ]


# --- times


@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize("tick_ns", [1, 1000])
def test_byte_orders_and_resolutions(order: str, tick_ns: int) -> None:
    time = T0 + 123_456_789
    facts = read(p.pcap([p.Record(time, p.segment())], order, tick_ns))
    assert facts.first_ns == facts.last_ns == time // tick_ns * tick_ns


def test_times_out_of_order() -> None:
    times = [T0 + 5 * MS, T0 + 9 * MS, T0 - 3 * MS, T0 + 5 * MS + 1000]
    facts = read(p.pcap([p.Record(time, p.segment()) for time in times]))
    flow = the_flow(facts)
    assert (facts.first_ns, facts.last_ns) == (flow["first_seen_ns"], flow["last_seen_ns"]) == (times[2], times[1])
    windows = {window - T0 // MS: packets for (_, window, _), (packets, *_) in facts.cells.items()}
    assert windows == {5: 2, 9: 1, -3: 1}


def test_skipped_packets_count_for_the_times_of_the_file() -> None:
    facts = read(p.pcap([p.Record(T0, p.arp()), p.Record(T0 + MS, p.segment()), p.Record(T0 + 2 * MS, p.arp())]))
    assert (facts.first_ns, facts.last_ns) == (T0, T0 + 2 * MS)
    assert the_flow(facts)["first_seen_ns"] == the_flow(facts)["last_seen_ns"] == T0 + MS


def steps_of(times: list[int], bounds: list[int]) -> dict[int, int]:
    """Packets a step."""
    data = p.pcap([p.Record(T0 + time, p.segment()) for time in times], tick_ns=1)
    facts = read(data, bounds=[T0 + bound for bound in bounds])
    counts: dict[int, int] = collections.Counter()
    for (_, _, step), (packets, *_) in facts.cells.items():
        counts[step] += packets
    return counts


def test_step_holds_its_start_but_not_its_end() -> None:
    assert steps_of([99, 100, 199, 200, 299, 300, 301], [100, 200, 300]) == {-1: 1, 0: 2, 1: 2, 2: 2}


def test_steps_of_no_length_hold_nothing() -> None:
    assert steps_of([100, 200, 300], [100, 200, 200, 200, 300]) == {0: 1, 3: 1, 4: 1}


def test_steps_of_times_out_of_order() -> None:
    assert steps_of([350, 150, 50, 250, 150], [100, 200, 300]) == {2: 1, 0: 2, -1: 1, 1: 1}


def test_no_steps() -> None:
    assert steps_of([1, 2], []) == {NO_STEP: 2}


# --- TCP: what is new, out of order, retransmitted


def read_segments(*segments: tuple[int, int, int]) -> list[dict[str, Any]]:
    """The flows (one a connection) of segments: sequence number, payload, flags."""
    return list(read_frames(*(p.segment(payload, seq, flags) for seq, payload, flags in segments)).flows.values())


def retransmitted(*segments: tuple[int, int, int]) -> tuple[int, int]:
    """Retransmitted packets and bytes of the segments of one connection."""
    (flow,) = read_segments(*segments)
    return flow["retransmitted_packets"], flow["retransmitted_bytes"]


def out_of_order(*segments: tuple[int, int, int]) -> tuple[int, int]:
    (flow,) = read_segments(*segments)
    return flow["out_of_order_packets"], flow["out_of_order_bytes"]


STARTS = [0, 1000, 2**31 - 150, 2**32 - 150, 2**32 - 100, 2**32 - 1]


@pytest.mark.parametrize("start", STARTS)
def test_retransmissions_at_every_place_of_the_sequence_space(start: int) -> None:
    def sent(*segments: tuple[int, int]) -> tuple[int, int]:
        return retransmitted(*((start + seq, payload, p.ACK) for seq, payload in segments))

    assert sent((0, 100), (100, 100), (200, 100)) == (0, 0)
    assert sent((0, 100), (0, 100), (100, 100)) == (1, 100)
    assert sent((0, 100), (50, 100), (150, 100)) == (1, 50)  # only what was there before
    assert sent((0, 100), (200, 100), (100, 100)) == (0, 0)  # a hole that is filled
    assert sent((0, 100), (200, 100), (100, 100), (100, 100)) == (1, 100)  # but once
    assert sent((0, 300), (100, 100), (300, 100)) == (1, 100)  # the highest number stays
    assert sent((0, 100), (-(2**30), 100), (0, 100)) == (2, 200)
    assert sent((0, 100), (100, 0), (50, 0)) == (0, 0)  # bare acknowledgements
    assert sent((0, 100), (100 + 2**31 + 1, 100)) == (1, 100)  # the far end of what counts as before
    assert sent((0, 100), (100 + 2**31, 100)) == (0, 0)  # not before


@pytest.mark.parametrize("start", STARTS)
def test_segments_out_of_order(start: int) -> None:
    def sent(*segments: tuple[int, int]) -> tuple[tuple[int, int], tuple[int, int]]:
        moved = [(start + seq, payload, p.ACK) for seq, payload in segments]
        return out_of_order(*moved), retransmitted(*moved)

    nothing = 0, 0
    assert sent((0, 100), (200, 100), (100, 100)) == ((1, 100), nothing)
    assert sent((0, 100), (300, 100), (200, 100), (100, 100)) == ((2, 200), nothing)
    assert sent((0, 100), (300, 100), (150, 100), (100, 200)) == ((2, 200), (0, 100))  # a hole cut in two, both filled
    assert sent((0, 100), (200, 100), (50, 200)) == ((1, 100), (0, 100))  # beyond the hole at both ends
    assert sent((0, 100), (200, 100), (100, 300)) == ((1, 100), (0, 100))  # and beyond the highest number
    assert sent((0, 100), (200, 100), (100, 300), (400, 10), (390, 10)) == ((1, 100), (1, 110))


def test_four_holes_are_remembered() -> None:
    ahead = [(200 * i, 100, p.ACK) for i in range(6)]  # five holes, at 100, 300, ... 900
    assert out_of_order(*ahead, *((200 * i + 100, 100, p.ACK) for i in range(5))) == (4, 400)
    assert retransmitted(*ahead, (100, 100, p.ACK)) == (1, 100)


def test_hole_cut_in_two_may_push_out_the_oldest() -> None:
    """Its part behind becomes the newest; its part in front keeps its place, the oldest of all."""
    ahead = [(200 * i, 100, p.ACK) for i in range(5)]  # holes at 100, 300, 500, 700
    cut = (530, 10, p.ACK)
    assert out_of_order(*ahead, cut, (500, 30, p.ACK), (540, 60, p.ACK)) == (3, 100)
    assert out_of_order(*ahead, cut, (100, 100, p.ACK)) == (1, 10)
    assert out_of_order(*ahead, (130, 10, p.ACK), (100, 30, p.ACK)) == (1, 10)
    assert out_of_order(*ahead, (130, 10, p.ACK), (140, 60, p.ACK)) == (2, 70)
    assert out_of_order(*ahead, (130, 10, p.ACK), (1000, 10, p.ACK), (300, 100, p.ACK)) == (1, 10)


@pytest.mark.parametrize("start", [5, 2**32 - 1])
def test_syn_and_fin_take_a_sequence_number(start: int) -> None:
    opening = [(start, 0, p.SYN), (start + 1, 100, p.ACK)]
    assert retransmitted(*opening, (start + 101, 50, p.ACK | p.FIN)) == (0, 0)
    assert retransmitted(*opening, (start + 1, 100, p.ACK)) == (1, 100)
    assert retransmitted(*opening, *[(start + 101, 50, p.ACK | p.FIN)] * 2) == (1, 50)
    assert retransmitted(*opening, (start + 101, 0, p.ACK | p.FIN), (start + 102, 10, p.ACK)) == (0, 0)
    assert out_of_order(*opening, (start + 151, 0, p.ACK | p.FIN), (start + 101, 50, p.ACK)) == (1, 50)
    assert retransmitted((start, 0, p.SYN), (start, 0, p.SYN)) == (0, 0)


def test_data_in_a_repeated_syn_lies_behind_it() -> None:
    """TCP Fast Open: the first byte of data has the number after the SYN's. The packet begins below all the same."""
    assert retransmitted((5, 0, p.SYN), (5, 100, p.SYN), (106, 100, p.ACK)) == (1, 0)


def test_flags_are_counted() -> None:
    flags = [p.SYN, p.SYN | p.ACK, p.SYN | p.ACK, p.ACK, p.FIN | p.ACK, p.RST, p.PUSH | p.ACK]
    flow = the_flow(read_frames(*(p.segment(0, flags=each) for each in flags)))
    assert (flow["syn_packets"], flow["opened"], flow["accepted"]) == (3, 1, 2)
    assert (flow["fin_packets"], flow["rst_packets"]) == (1, 1)


# --- TCP: connections

SYN5 = (5, 0, p.SYN)
DATA6 = (6, 100, p.ACK)


@pytest.mark.parametrize(
    ("before", "syn", "packets"),
    [
        ([SYN5], 5, [2]),  # repeated
        ([SYN5], 6, [1, 1]),  # another number
        ([SYN5, DATA6], 5, [3]),
        ([SYN5, (6, 0, p.FIN)], 5, [2, 1]),  # the same number, but the flow has ended
        ([SYN5, (6, 0, p.RST)], 5, [2, 1]),
        ([DATA6], 5, [2]),  # the SYN came late
        ([DATA6, (106, 10, p.ACK)], 5, [3]),
        ([DATA6], 105, [1, 1]),
        ([(106, 10, p.ACK), DATA6], 5, [2, 1]),  # that of the first segment counts, not the smallest
        ([(0, 0, p.ACK)], 5, [1, 1]),  # of what occupies sequence space there is none yet
        ([(0, 0, p.ACK), DATA6], 5, [3]),
        ([(0, 10, p.ACK)], 2**32 - 1, [2]),
        ([(6, 0, p.FIN)], 5, [1, 1]),
        ([], 5, [1]),
    ],
)
def test_syn_begins_a_connection(before: list[tuple[int, int, int]], syn: int, packets: list[int]) -> None:
    flows = read_segments(*before, (syn, 0, p.SYN | p.ACK))
    assert [flow["packets"] for flow in flows] == packets
    first = 5 if before[:1] == [SYN5] else None  # None where the connection before began without a SYN
    assert [flow["initial_sequence"] for flow in flows] == [first] * (len(packets) - 1) + [syn]


def test_connections_are_numbered() -> None:
    facts = read_frames(*(p.segment(0, seq, p.SYN) for seq in (1, 2, 2, 3)), p.segment(0, 0, p.RST))
    assert [(key[-1], flow["packets"]) for key, flow in facts.flows.items()] == [(0, 1), (1, 2), (2, 2)]


@pytest.mark.parametrize("isn", [0, 10**6 - 500, 2**30, 2**31 + 10**6, 2**32 - 1])
def test_five_tuple_reuse_is_no_retransmission(isn: int) -> None:
    """A new connection with the ports of an old one starts anywhere."""
    first = [(10**6, 0, p.SYN), (10**6 + 1, 100, p.ACK)]
    second = [(isn, 0, p.SYN), (isn + 1, 100, p.ACK), (isn + 101, 100, p.ACK)]
    flows = read_segments(*first, *second, (isn + 101, 100, p.ACK))
    assert [flow["retransmitted_bytes"] for flow in flows] == [0, 100]
    assert [flow["packets"] for flow in flows] == [2, 4]


def test_too_short_a_segment_is_part_of_the_connection() -> None:
    """Its SYN is not seen, nor its sequence number."""
    frames = [p.segment(0, seq, p.SYN) for seq in (1, 2)]
    cut = p.Record(T0, p.segment(100, 3, p.SYN)[: 14 + 20 + 13], 154)
    flows = list(read(p.pcap([*in_time(*frames), cut])).flows.values())
    assert [(flow["packets"], flow["syn_packets"]) for flow in flows] == [(1, 1), (2, 1)]


def syn_with(*options: bytes, captured: int = 100) -> bytes:
    joined = b"".join(options)
    return p.ethernet(p.ipv4(p.tcp(flags=p.SYN, options=joined + bytes(-len(joined) % 4))))[:captured]


@pytest.mark.parametrize(
    ("options", "captured", "mss"),
    [
        ([p.mss_option(1460)], 100, 1460),
        ([p.mss_option(1460)], 14 + 20 + 24, 1460),
        ([p.mss_option(1460)], 14 + 20 + 23, None),
        ([b"\1", b"\1", p.mss_option(9000), p.TIMESTAMPS], 100, 9000),
        ([p.TIMESTAMPS, p.mss_option(536)], 100, 536),
        ([b"\0", p.mss_option(536)], 100, None),  # behind the end of the options
        ([b"\3\0", p.mss_option(536)], 100, None),  # an option of no length
        ([b"\3\3\7", p.mss_option(536)], 100, 536),
        ([], 100, None),
    ],
)
def test_mss(options: list[bytes], captured: int, mss: int | None) -> None:
    frame = syn_with(*options)
    assert the_flow(read(p.pcap([p.Record(T0, frame[:captured], len(frame))])))["mss"] == mss


def test_first_mss_of_a_connection_counts() -> None:
    no_syn = p.ethernet(p.ipv4(p.tcp(options=p.mss_option(1))))
    facts = read_frames(syn_with(), syn_with(p.mss_option(100)), syn_with(p.mss_option(200)), no_syn)
    assert the_flow(facts)["mss"] == 100
    assert the_flow(read_frames(no_syn))["mss"] is None


# --- pcapng


def times_of(facts: naive.Facts) -> list[int]:
    return [row[2] for row in facts.packets]


@pytest.mark.parametrize("order", "<>")
def test_pcapng_packets(order: str) -> None:
    """Enhanced, simple and old packet blocks; blocks of other types are nothing."""
    section = p.Section(order)
    time = T0 // 1000
    data = section.begin() + section.interface(snaplen=100) + section.block(p.NAMES, bytes(4))
    data += section.simple(p.segment(1000)[:100], 1054) + section.enhanced(time, p.segment()[:53], 154)
    data += section.block(0x80000BAD, b"own") + section.old(time + 1, p.segment()) + section.simple(p.segment(0))
    facts = read(data)
    assert facts.packets == [
        (0, 0, 0, 1054, 1040, 1000, 100, p.ACK),
        (1, 0, T0, 154, 140, 100, 53, p.ACK),
        (2, 0, T0 + 1000, 154, 140, 100, 154, p.ACK),
        (3, 0, T0 + 1000, 54, 40, 0, 54, p.ACK),
    ]
    assert (facts.records, facts.untimed_records, facts.status, facts.trailing_bytes) == (4, 2, "complete", 0)


def test_sections_and_interfaces() -> None:
    """Each section has its byte order and interfaces, each interface its link type and clock."""
    little, big = p.Section("<"), p.Section(">")
    data = little.begin(length=1000) + little.interface(p.RAW) + little.interface(resolution=9)
    data += little.enhanced(T0, p.ethernet(V6, p.IPV6), interface=1) + little.enhanced(T0 // 1000, V4)
    data += big.begin() + big.interface(p.SLL2, resolution=3) + big.enhanced(T0 // MS + 1, p.sll2(V4))
    data += big.simple(p.sll2(V4)) + big.interface(p.RAW) + big.old(T0 // 1000 + 2, V4, interface=1)
    data += little.begin()
    facts = read(data)
    assert times_of(facts) == [T0, T0, T0 + MS, T0 + MS, T0 + 2000]
    assert {key: flow["packets"] for key, flow in facts.flows.items()} == {KEY6: 1, KEY: 4}


def test_time_of_a_simple_packet_is_that_before_it_in_the_file() -> None:
    """Also of a packet that is in no flow, and of a section before."""
    section = p.Section()
    data = section.begin() + section.interface() + section.enhanced(5, p.arp()) + section.begin()
    facts = read(data + section.interface() + section.simple(p.segment()) + section.simple(p.segment()))
    assert times_of(facts) == [5000, 5000]
    assert (facts.first_ns, facts.last_ns, facts.untimed_records) == (5000, 5000, 2)


@pytest.mark.parametrize(
    ("resolution", "offset", "ticks", "time"),
    [
        (None, None, 7, 7000),
        (0, None, 7, 7 * SECOND),
        (3, None, 7, 7 * MS),
        (9, None, 7, 7),
        (12, None, 7999, 7),  # cut to whole nanoseconds
        (19, None, 2**64 - 1, 1_844_674_407),
        (30, None, 2**64 - 1, 0),
        (0x80, None, 7, 7 * SECOND),
        (0x81, None, 7, 3_500_000_000),
        (0x9E, None, 3, 2),  # 2^-30 s is 0.93 ns
        (0xBF, None, 2**63 + 1, SECOND),
        (0xC0, None, 2**64 - 1, SECOND - 1),
        (0xFF, None, 2**64 - 1, 0),
        (9, 3, 7, 3 * SECOND + 7),
        (9, -3, 3 * SECOND + 7, 7),
        (12, -3, 3 * 10**12 + 7, 0),
        (9, None, 2**63 - 1, 2**63 - 1),
        (9, 9_223_372_036, 854_775_807, 2**63 - 1),
    ],
)
def test_resolutions_and_offsets(resolution: int | None, offset: int | None, ticks: int, time: int) -> None:
    section = p.Section()
    facts = read(section.begin() + section.interface(resolution=resolution, offset=offset) + section.enhanced(
        ticks, p.segment()), window_ns=SECOND)  # fmt: skip
    assert times_of(facts) == [time]


@pytest.mark.parametrize(
    ("resolution", "offset", "ticks"),
    [
        (9, None, 2**63),
        (9, -1, SECOND - 1),
        (0, None, 9_223_372_037),
        (0, None, 2**64 - 1),
        (6, 2**63 - 1, 0),
        (6, -(2**63), 2**64 - 1),
        (9, 9_223_372_036, 854_775_808),
        (0x80, None, 2**63),
    ],
)
def test_time_beyond_what_there_is_room_for(resolution: int, offset: int | None, ticks: int) -> None:
    section = p.Section()
    good = section.begin() + section.interface(9) + section.interface(resolution=resolution, offset=offset)
    bad = section.enhanced(ticks, p.segment(), interface=1) + section.enhanced(0, p.segment())
    facts = read(good + bad)
    assert (facts.status, facts.records, facts.trailing_bytes) == ("corrupt", 0, len(bad))


def test_simple_packets_are_cut_to_the_snaplen_of_interface_0() -> None:
    section = p.Section()
    for snaplen, captured in ((60, 60), (0, 154), (400, 154)):
        data = section.begin() + section.interface(snaplen=snaplen) + section.interface(snaplen=20)
        flow = the_flow(read(data + section.simple(p.segment()[:captured], 154)))
        assert (flow["captured_bytes"], flow["wire_bytes"]) == (captured, 154)


def test_padding_of_a_block_is_no_packet() -> None:
    section = p.Section()
    frame = p.segment()[:37]  # and a byte of the ports that is padding
    assert read(section.begin() + section.interface() + section.enhanced(0, frame, 154)).skipped == {
        "cut_short": (1, 154)
    }


def test_options_that_are_none() -> None:
    """Of other lengths than they should be, cut short, or behind the end."""
    section = p.Section()
    for options in (
        struct.pack("<HHI", p.RESOLUTION, 2, 9),
        struct.pack("<HHI", p.OFFSET, 4, 9),
        struct.pack("<HH", p.RESOLUTION, 9) + b"\3" * 8,
        bytes(4) + struct.pack("<HHI", p.RESOLUTION, 1, 9),
    ):
        interface = section.block(p.INTERFACE, struct.pack("<HHI", p.ETHERNET, 0, 0) + options)
        assert times_of(read(section.begin() + interface + section.enhanced(7, p.segment()))) == [7000]


def damaged_blocks() -> dict[str, bytes]:
    section = p.Section()
    packet = section.enhanced(0, p.segment())

    def block(length: int, behind: int | None = None) -> bytes:
        """Lengths in front of a body and behind it; enough of a body for what is no damage."""
        return struct.pack("<II", 5, length) + bytes(max(0, length - 12) % 2**24) + struct.pack("<I", behind or length)

    return {
        "length 0": block(0) + bytes(99),
        "length 8": block(8) + bytes(99),
        "length of no whole words": block(13) + bytes(99),
        "too long": block((1 << 24) + 4),
        "far too long": block(2**32 - 4),
        "other length behind": block(20, 24),
        "version 2": section.begin(major=2),
        "version 0": section.begin(major=0),
        "no byte-order magic": section.begin()[:8] + bytes(20) + section.begin()[-4:],
        "section without a version": section.block(p.SECTION, struct.pack("<I", 0x1A2B3C4D)),
        "interface without a link type": section.block(p.INTERFACE, bytes(4)),
        "packet without a length": section.block(p.ENHANCED_PACKET, bytes(16)),
        "unknown interface": section.enhanced(0, p.segment(), interface=1),
        "unknown interface of an old packet": section.old(0, p.segment(), interface=65535),
        "captured beyond the block": section.block(p.ENHANCED_PACKET, struct.pack("<5I", 0, 0, 0, 61, 60) + bytes(60)),
        "captured far beyond": section.block(p.ENHANCED_PACKET, struct.pack("<5I", 0, 0, 0, 2**32 - 1, 60) + bytes(60)),
        "old captured beyond": section.block(p.OLD_PACKET, struct.pack("<HH4I", 0, 0, 0, 0, 61, 60) + bytes(60)),
        "simple captured beyond": section.simple(bytes(60), 61),
        "simple without interface": section.begin() + section.simple(bytes(60)),
        "packet of the section before": section.begin() + packet,
    }


@pytest.mark.parametrize("name", damaged_blocks())
def test_damaged_blocks(name: str) -> None:
    section = p.Section()
    good = section.begin() + section.interface(snaplen=0) + section.enhanced(0, p.segment())
    bad = damaged_blocks()[name]
    intact = len(section.begin()) if bad.startswith(section.begin()) and len(bad) > len(section.begin()) else 0
    for block in (1 << 20, 100):
        facts = read(good + bad + section.enhanced(0, p.segment()), block=block)
        assert (facts.status, facts.records) == ("corrupt", 1)
        assert facts.trailing_bytes == len(bad) - intact + len(section.enhanced(0, p.segment()))


@pytest.mark.parametrize("order", "<>")
def test_pcapng_cut_anywhere(order: str) -> None:
    section = p.Section(order)
    blocks = [section.begin(), section.interface(), section.enhanced(0, p.segment()[:60], 154), section.begin()]
    data = b"".join(blocks)
    ends = list(itertools.accumulate(map(len, blocks), initial=0))
    for cut in range(4, len(data)):
        whole = max(end for end in ends if end <= cut)
        facts = read(data[:cut])
        assert (facts.status, facts.trailing_bytes) == ("complete" if cut == whole else "truncated", cut - whole)
        assert facts.records == (cut >= ends[3])


def test_other_files_are_refused() -> None:
    kuznetzov = struct.pack("<IHHiIII", 0xA1B2CD34, 2, 4, 0, 0, 65535, 1) + bytes(100)
    for data in (kuznetzov, b"no capture, but long enough to be one", p.SECTION.to_bytes(4, "big") + bytes(60)):
        facts = read(data)
        assert (facts.status, facts.records, facts.trailing_bytes) == ("corrupt", 0, len(data))
    for data in (b"", p.pcap([])[:10], p.pcap([])[:23], p.Section().begin()[:11]):
        facts = read(data)
        assert (facts.status, facts.records, facts.trailing_bytes) == ("truncated", 0, len(data))


def test_what_a_pcapng_says_of_itself(tmp_path: Path) -> None:
    """All link types, the coarsest clock, the largest snaplen."""
    little, big = p.Section("<"), p.Section(">")
    data = little.begin() + little.interface(p.SLL2, 96, 9) + little.interface(p.ETHERNET, 54, 0x94)
    data += big.begin() + big.interface(p.ETHERNET, 128, 9)
    path = tmp_path / "capture"
    path.write_bytes(data)
    facts = numba_engine.read_capture(path, ReadOptions(MS, np.array([], np.int64), tmp_path / "cells"))
    assert (facts.format, facts.snaplen, facts.time_resolution_ns) == ("pcapng", 128, 954)  # 2^-20 s, rounded up
    assert sorted(facts.link_types.split(",")) == ["1", "276"]


# --- damage


def test_last_record_cut_short() -> None:
    whole = p.pcap([p.Record(T0, p.segment())])
    for cut in (1, 15, 16, 17, 100):
        facts = read(whole + p.record_bytes(p.Record(T0 + MS, p.segment()))[:cut])
        assert (facts.status, facts.trailing_bytes, facts.records) == ("truncated", cut, 1)


@pytest.mark.parametrize("captured", [262145, 2**31, 2**32 - 1])
def test_absurd_record_is_corrupt_and_what_came_before_stays(captured: int) -> None:
    whole = p.pcap([p.Record(T0, p.segment()), p.Record(T0, p.segment())])
    absurd = bytes(8) + captured.to_bytes(4, "little") + bytes(300_000)
    for block in (1 << 20, 100):
        facts = read(whole + absurd, block=block)
        assert (facts.status, facts.trailing_bytes, facts.records) == ("corrupt", len(absurd), 2)


def test_records_as_long_as_the_snaplen_says_are_sane() -> None:
    facts = read_frames(p.segment(300_000), p.segment(100, seq=300_000), snaplen=400_000)
    assert (facts.status, the_flow(facts)["captured_bytes"]) == ("complete", 300_000 + 100 + 2 * 54)


def test_file_without_records() -> None:
    assert read(p.pcap([])) == naive.Facts()


# --- more than the buffers hold


def test_flow_table_grows() -> None:
    ports = list(itertools.product(range(1, 6), range(1, 2001)))  # more than twice what the table starts with
    frames = [p.segment(source=source, destination=port) for source, port in ports]
    facts = read_frames(*frames, *frames[::-1])
    assert [key[3:5] for key in facts.flows] == ports
    assert {flow["packets"] for flow in facts.flows.values()} == {2}


@pytest.mark.parametrize("cells", [1, 2, 7])
def test_cells_are_spilled(cells: int) -> None:
    records = [p.Record(T0 + i * MS // 2, p.segment(source=1 + i % 3)) for i in range(60)]
    facts = read(p.pcap(records), window_ns=MS, bounds=[T0 + 5 * MS, T0 + 10 * MS], cells=cells)
    assert len(facts.cells) == 60


# --- any capture

addresses = st.sampled_from(["10.0.0.1", "255.0.0.2"])
addresses6 = st.sampled_from(["fd00::1", "fd01::1", "fd00::a:2"])
ports = st.sampled_from([5000, 5000, 65535, p.ROCE_PORT, p.VXLAN_PORT, p.GENEVE_PORT])
filler = st.integers(0, 120).map(bytes)
SEQUENCES = [0, 1, 50, 100, 101, 2**31 - 1, 2**31, 2**31 + 60, 2**32 - 60, 2**32 - 1]

segments = st.builds(
    p.tcp, filler, ports, ports,
    seq=st.sampled_from(SEQUENCES), flags=st.one_of(st.just(p.ACK), st.integers(0, 63)),
    options=st.sampled_from([b"", p.TIMESTAMPS, bytes(40), p.mss_option(1460), b"\1\1\1\2" + p.mss_option(9)]),
)  # fmt: skip
queues = st.builds(p.roce, filler, st.sampled_from([4, 17]), st.sampled_from([1, 0xFFFFFF]))
transports = st.one_of(
    segments.map(lambda body: (p.TCP, body)),
    st.builds(p.udp, filler, ports, ports).map(lambda body: (p.UDP, body)),
    st.builds(p.udp, queues, ports, st.just(p.ROCE_PORT)).map(lambda body: (p.UDP, body)),
    filler.map(lambda body: (p.ICMP, p.icmp(body))),
    st.tuples(st.sampled_from([p.TCP, p.UDP, 0, 4, 41, 44, 47, 51, 132]), filler),
)
fragment_headers = st.builds(
    p.fragment_header, st.sampled_from([0, 0, 8, 1480]), st.booleans(), st.sampled_from([1, 99])
)
extensions = st.one_of(
    st.builds(p.hop_by_hop, st.integers(0, 3)), st.builds(p.destination_options, st.integers(0, 3)),
    st.builds(p.authentication, st.integers(0, 6)), fragment_headers,
)  # fmt: skip
tags = st.lists(st.sampled_from([p.VLAN, p.SERVICE_VLAN, 0x9100]), max_size=2)
Datagram = tuple[bytes, int]  # an IP packet and its EtherType


@st.composite
def datagrams(draw: st.DrawFn, inside: st.SearchStrategy[tuple[int, bytes]] = transports) -> Datagram:
    """inside: protocol and what follows the IP headers. Half of them are whole and say no other length than theirs."""
    protocol, body = draw(inside)
    if draw(st.booleans()):
        return p.ipv4(body, draw(addresses), draw(addresses), protocol), p.IPV4
    said = draw(st.one_of(st.none(), st.none(), st.sampled_from([0, 19, 39, 60, 65535])))
    if draw(st.booleans()):
        chain = draw(st.lists(extensions, max_size=2))
        return p.ipv6(body, draw(addresses6), draw(addresses6), protocol, chain, said), p.IPV6
    options = bytes(draw(st.sampled_from([0, 0, 4, 40])))
    fragment = draw(st.sampled_from([0, 0, 0, 8, 1480]))
    more = draw(st.integers(0, 3)) == 0
    packet = p.ipv4(
        body, draw(addresses), draw(addresses), protocol, options, said, fragment, more, draw(st.integers(1, 2))
    )
    return packet, p.IPV4


@st.composite
def tunnels(draw: st.DrawFn, inside: st.SearchStrategy[Datagram]) -> Datagram:
    """An IP packet around another one."""
    packet, kind = draw(inside)
    frame = p.ethernet(packet, kind, draw(tags))
    way = draw(st.integers(0, 6))
    if way == 0:
        body = (p.IPIP if kind == p.IPV4 else p.IPV6_IN_IP), packet
    elif way == 1:
        key, sequence = draw(st.one_of(st.none(), st.integers(0, 2))), draw(st.sampled_from([None, 0]))
        bridged = draw(st.booleans())
        what = (frame, p.BRIDGED) if bridged else (packet, kind)
        body = p.GRE, p.gre(*what, key, draw(st.booleans()), sequence, draw(st.sampled_from([0, 0, 0, 1, 0x4000])))
    elif way == 2:
        body = p.GRE, p.erspan(frame, draw(st.integers(1, 3)), draw(st.booleans()))
    elif way < 5:
        port = draw(st.sampled_from([p.VXLAN_PORT, p.VXLAN_LINUX_PORT]))
        body = p.UDP, p.udp(p.vxlan(frame, draw(st.integers(0, 1)), draw(st.sampled_from([8, 8, 0]))), 50000, port)
    else:
        what = draw(st.sampled_from([(frame, p.BRIDGED), (packet, kind)]))
        header = p.geneve(
            *what, draw(st.integers(0, 1)), bytes(4 * draw(st.integers(0, 2))), draw(st.integers(0, 5)) // 5
        )
        body = p.UDP, p.udp(header, 50000, p.GENEVE_PORT)
    return draw(datagrams(st.just(body)))


@st.composite
def packets(draw: st.DrawFn) -> Datagram:
    """In up to five tunnels, of which the last one is not opened."""
    made = datagrams()
    for _ in range(draw(st.sampled_from([0, 0, 0, 1, 1, 2, 4, 5]))):
        made = tunnels(made)
    return draw(made)


@st.composite
def pieces(draw: st.DrawFn) -> list[Datagram]:
    """A datagram in fragments, in any order, some of them missing or twice."""
    protocol, body = draw(transports)
    body += bytes(draw(st.integers(0, 40)))
    six = draw(st.booleans())
    sizes = draw(st.lists(st.sampled_from([8, 16, 40]), min_size=1, max_size=3))
    cut = [size for i, size in enumerate(sizes) if sum(sizes[: i + 1]) < len(body)]
    made = p.fragments(body, cut, protocol, draw(st.integers(1, 2)), six)
    chosen = draw(st.lists(st.sampled_from(range(len(made))), min_size=1, max_size=6))
    order = draw(st.one_of(st.just(chosen), st.permutations(range(len(made)))))
    return [(made[i], LINK[six]) for i in order]


@st.composite
def streams(draw: st.DrawFn) -> list[Datagram]:
    """Segments of one flow: in order, again, ahead and behind, around the end of the sequence numbers."""
    start, units = draw(st.sampled_from(SEQUENCES)), st.integers(0, 12)
    flags = st.sampled_from([p.ACK, p.ACK, p.ACK, p.ACK, p.ACK | p.FIN, p.SYN, p.RST])
    steps = draw(st.lists(st.tuples(units, units, flags), min_size=2, max_size=14))
    options = st.sampled_from([b"", p.mss_option(1460), p.TIMESTAMPS + p.mss_option(9)])
    bodies = [p.tcp(bytes(10 * n), seq=start + 10 * at, flags=flag, options=draw(options)) for at, n, flag in steps]
    return [(p.ipv4(body), p.IPV4) for body in bodies]


@st.composite
def frames(draw: st.DrawFn, link: int) -> list[bytes]:
    """Frames mostly as they should be."""
    made = draw(st.one_of(packets().map(lambda one: [one]), pieces(), streams()))
    return [draw(framed(packet, kind, link)) for packet, kind in made]


@st.composite
def framed(draw: st.DrawFn, packet: bytes, kind: int, link: int) -> bytes:
    if link == p.ETHERNET:
        way = draw(st.integers(0, 9))
        wrapped = {
            0: (p.mpls(packet, 2), p.MPLS), 1: (p.pseudowire(p.ethernet(packet, kind)), p.MPLS),
            2: (p.pppoe(packet, kind), p.PPPOE),
        }.get(way, (packet, kind))  # fmt: skip
        frame = p.ethernet(*wrapped, draw(tags))
    else:
        frame = LINKS.get(link, p.raw)(packet, kind)
    other = st.one_of(st.just(frame + bytes(6)), st.just(p.arp()), st.binary(max_size=80))
    return draw(other) if draw(st.integers(0, 9)) == 0 else frame


wire_lengths = st.sampled_from([0, 60, 1515, 9015, 65_549, 65_550, 65_589, 65_590, 100_000, 2**32 - 1])
far_times = st.sampled_from([0, 1, T0 + 30 * SECOND, T0 + 30 * SECOND + 1000, (2**32 - 1) * 10**9])
times = st.one_of(st.integers(0, 8).map(lambda i: T0 + i * 500), far_times)
bounds = st.lists(st.integers(0, 8).map(lambda i: T0 + i * 500), max_size=5).map(sorted)
damages = st.lists(st.tuples(st.integers(4, 2000), st.integers(0, 255)), max_size=3)
orders = st.sampled_from("<>")
link_types = st.sampled_from([*LINKS, p.ETHERNET, p.ETHERNET, p.ETHERNET, 147])


@st.composite
def records(draw: st.DrawFn, link: int) -> list[p.Record]:
    """Times that tie, go back and hit window and step bounds; original lengths that do not fit the frame."""
    made = [frame for group in draw(st.lists(frames(link), min_size=1, max_size=5)) for frame in group]
    wire = st.integers(0, 7).flatmap(lambda i: wire_lengths if i == 0 else st.none())
    return [p.Record(draw(times), frame, draw(wire)) for frame in made]


@st.composite
def pcaps(draw: st.DrawFn) -> bytes:
    link, snaplen = draw(link_types), draw(st.one_of(st.integers(0, 200), st.just(262144)))
    return p.pcap(draw(records(link)), draw(orders), draw(st.sampled_from([1, 1000])), snaplen, link)


@st.composite
def sections(draw: st.DrawFn) -> bytes:
    """A section of a pcapng: interfaces, and packets of them (and seldom of none) in blocks of all kinds."""
    section = p.Section(draw(orders))
    links = draw(st.lists(link_types, min_size=1, max_size=2))
    data = section.begin()
    for link in links:
        resolution, ticks_a_second = draw(clocks)
        data += section.interface(link, draw(st.sampled_from([0, 60, 65535])), resolution, draw(offsets))
        for record in draw(records(link)):
            number = draw(st.sampled_from([links.index(link)] * 20 + [0, 1]))
            frame = record.frame[: draw(st.sampled_from([54, 96, 300, 262144]))]
            ticks = min(record.time_ns * ticks_a_second // SECOND, 2**64 - 1)
            way = draw(st.integers(0, 9))
            if way == 0:
                data += section.simple(frame, record.wire)
            elif way == 1:
                data += section.block(draw(st.sampled_from([4, 5, 0x80000BAD])), frame)
            else:
                data += (section.old if way == 2 else section.enhanced)(ticks, frame, record.wire, number)
    return data


clocks = st.sampled_from([(None, 10**6), (0, 1), (9, SECOND), (10, 10 * SECOND), (0x9E, 2**30), (0x80, 1)])
offsets = st.sampled_from([None, None, None, 0, 1, -1])
pcapngs = st.lists(sections(), min_size=1, max_size=3).map(b"".join)


@st.composite
def captures(draw: st.DrawFn) -> bytes:
    """A capture: whole, cut anywhere, or with some bytes changed."""
    data = bytearray(draw(st.one_of(pcaps(), pcapngs)))
    harm = draw(st.integers(0, 3))
    for at, value in draw(damages) if harm == 0 else []:
        if at < len(data):
            data[at] = value
    return bytes(data[: draw(st.integers(24, len(data)))] if harm == 1 else data)


@settings(deadline=None, max_examples=300)
@given(captures(), bounds, st.sampled_from([1, 500, MS]), st.booleans())
def test_equal_to_the_naive_reading(data: bytes, bounds: list[int], window_ns: int, open_tunnels: bool) -> None:
    read(data, window_ns, bounds, open_tunnels)


@settings(deadline=None, max_examples=300)
@given(
    captures(), bounds, st.one_of(st.integers(2, 63), st.integers(64, 300)), st.integers(1, 5),
    st.sampled_from([1, 2, 4]), st.booleans(),
)  # fmt: skip
def test_equal_in_small_blocks_and_buffers(
    data: bytes, bounds: list[int], block: int, cells: int, flows: int, compressed: bool
) -> None:
    """Every way in which the loop is left and entered again."""
    sizes = {"block": block, "cells": cells, "flows": flows}
    whole = naive.read(data, 500, bounds)
    assert_same(read_fast(gzip.compress(data) if compressed else data, 500, bounds, **sizes), whole)


def all_facts(path: Path, jobs: int, want_packets: bool) -> tuple[Any, ...]:
    """Every fact of a file but its name; the cells added up, for they may be in other rows."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        packets, steps = folder / "packets" if want_packets else None, np.array([T0, T0 + 1000], np.int64)
        options = ReadOptions(500, steps, folder / "cells", packets, jobs=jobs)
        facts = numba_engine.read_capture(path, options)
        tables = [table.to_pylist() for table in (facts.flows, facts.encapsulations, facts.samples)]
        told = (facts.format, facts.link_types, facts.time_resolution_ns, facts.snaplen, facts.sha256)
        return in_naive_terms(facts), list(in_naive_terms(facts).flows), tables, told


@settings(deadline=None, max_examples=100)
@given(captures(), st.sampled_from([64, 200, 1000]), st.sampled_from([1, 2, 1000]), st.booleans())
def test_threads_change_nothing(data: bytes, chunk: int, most_flows: int, want_packets: bool) -> None:
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        path = Path(folder) / "capture"
        path.write_bytes(data)
        set_sizes(patch, {"block": 1 << 20, "cells": 1 << 10})
        one = all_facts(path, 1, want_packets)
        set_sizes(patch, {"chunk": chunk, "most_flows": most_flows})
        assert all_facts(path, 3, want_packets) == one


def test_compiles_without_a_folder_to_keep_the_result_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jit, "_FOLDER", None)
    assert jit.compiled(lambda number: number + 1)(2) == 3
