"""Sizes, link types and headers of packets made by hand, in both readings (docs/packets.md)."""

from __future__ import annotations

import itertools
import re
import struct
from pathlib import Path

import packets as p
import pytest
from captures_by_hand import (
    KEY,
    KEY6,
    LINKS,
    ODD_TIME,
    T0,
    V4,
    V6,
    roce_frame,
)
from readings import payloads, read, read_frames, the_flow

from ddnn_traces.pcap.link_types import LINK_TYPES

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


def test_each_link_type_has_a_capture_and_a_row_in_the_docs() -> None:
    numbers = {link.number for link in LINK_TYPES}
    page = (Path(__file__).parents[2] / "docs" / "packets.md").read_text()
    table = page.partition("| link type |")[2].partition("\n\n")[0]
    first_cells = " ".join(line.split("|")[1] for line in table.splitlines()[2:])
    assert numbers == set(LINKS) == {int(number) for number in re.findall(r"(?<=[( ])\d+(?=[,)])", first_cells)}


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


LLC = {
    "SNAP": p.ethernet_llc(V4),
    "SNAP of bridges": p.ethernet(p.snap(V4, organization=b"\0\0\xf8"), 148),
    "SNAP in a VLAN": p.ethernet_llc(V4, tags=[p.VLAN]),
    "a VLAN tag in SNAP": p.ethernet(p.snap(b"\0\7\x08\0" + V4, p.VLAN), 152),
    "IP by its own service access point": p.ethernet(b"\6\6\3" + V4, 143),
    "the longest length": p.ethernet(p.snap(V4), 1500),
    "in a pseudowire": p.ethernet(p.pseudowire(p.ethernet_llc(V4)), p.MPLS),
}


@pytest.mark.parametrize("name", LLC)
def test_llc(name: str) -> None:
    assert list(read_frames(LLC[name]).flows) == [KEY]


@pytest.mark.parametrize("kind", [0, 1501, 1535])
def test_lengths_that_are_none(kind: int) -> None:
    assert list(read_frames(p.ethernet(p.snap(V4), kind)).skipped) == ["not_ip"]


def test_llc_of_other_protocols() -> None:
    bodies = [
        p.snap(V4, organization=b"\0\0\x0c"),
        p.snap(bytes(28), p.ARP),
        p.snap(p.snap(V4), 100),
        b"\x42\x42\3" + V4,
    ]
    facts = read_frames(*(p.ethernet(body, 100) for body in bodies))
    assert (facts.flows, facts.skipped["not_ip"][0]) == ({}, 4)


def test_cooked_llc() -> None:
    for make, link in ((p.sll, p.SLL), (p.sll2, p.SLL2)):
        facts = read_frames(make(p.snap(V4), 4), make(V4, 1), make(p.snap(V4), 100), link=link)
        assert (list(facts.flows), facts.skipped["not_ip"][0]) == ([KEY], 2)


PPP = {
    9: [p.ppp(V4), p.ppp(V4, framed=False), p.ppp_compressed(V4), p.chdlc(V4), b"\xff\3" + p.ppp_compressed(V4)],
    204: [b"\0" + p.ppp(V4), b"\1" + p.ppp_compressed(V4)],
    104: [b"\x8f\0" + p.type_of(p.IPV4) + V4, b"\x0f\0" + p.type_of(p.MPLS) + p.mpls(V4)],
    50: [p.ppp(p.mpls(V4, 2), p.MPLS)],
}


@pytest.mark.parametrize("link", PPP)
def test_ppp(link: int) -> None:
    facts = read_frames(*PPP[link], link=link)
    assert [flow["packets"] for flow in facts.flows.values()] == [len(PPP[link])]
    assert list(facts.flows) == [KEY]


def test_ppp_of_other_protocols() -> None:
    facts = read_frames(p.ppp(V4, 0xC021), p.ppp(V4, 0x002D), p.ppp(V4)[:3], p.ppp(V4)[:2], link=9)
    assert {reason: packets for reason, (packets, _) in facts.skipped.items()} == {"not_ip": 2, "cut_short": 2}


def test_ppi_has_a_link_of_its_own() -> None:
    frames = [p.ppi(make(V4), link) for link, make in LINKS.items()] + [p.ppi(p.ppi(p.segment()), 192)]
    assert [flow["packets"] for flow in read_frames(*frames, link=192).flows.values()] == [len(frames)]
    bad = [p.ppi(V4, 147), b"\0\0\7\0" + bytes(60), p.ppi(V4)[:7], p.ppi(b"", 101)]
    assert {reason: packets for reason, (packets, _) in read_frames(*bad, link=192).skipped.items()} == {
        "unknown_link_type": 1, "malformed": 1, "cut_short": 2,
    }  # fmt: skip


def test_nflog() -> None:
    """In the byte order of either host; values before the packet are passed."""
    made = [p.nflog(V4), p.nflog(V4, order=">"), b"\2\0\0\0" + struct.pack("<HH", 144, 9 | 0x8000) + V4]
    assert [flow["packets"] for flow in read_frames(*made, link=239).flows.values()] == [3]
    bad = [b"\7" + p.nflog(V4)[1:], p.nflog(V4)[:9], b"\2\0\0\0\3\0\1\0" + V4, b"\2\0\0\0"]
    assert {reason: packets for reason, (packets, _) in read_frames(*bad, link=239).skipped.items()} == {
        "not_ip": 1, "cut_short": 2, "malformed": 1,
    }  # fmt: skip


@pytest.mark.parametrize("link", [242, 239, 192, 204, 166, 104, 100])
def test_every_snaplen_of_rare_links(link: int) -> None:
    frame = LINKS[link](V4)
    facts = read(p.pcap([p.Record(T0, frame[:n], len(frame)) for n in range(len(frame))], link=link))
    assert facts.skipped == {"cut_short": (frame.index(V4) + 24, (frame.index(V4) + 24) * len(frame))}


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
