"""Fragments of packets made by hand, in both readings (docs/packets.md)."""

from __future__ import annotations

import itertools

import packets as p
import pytest
from captures_by_hand import (
    FREE,
    GRE,
    KEY,
    OUTER,
    SECOND,
    T0,
    fragment_frames,
    outer,
    tunnel,
    within,
)
from readings import payloads, read, read_frames, the_flow

# --- fragments

BODY = p.udp(bytes(1000))
UDP_KEY = ("10.0.0.1", "10.0.0.2", p.UDP, 40000, 5000, *FREE)
NO_PORTS = ("10.0.0.1", "10.0.0.2", p.UDP, 0, 0, *FREE)


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
    # flags, sequence number, ECN, which a later fragment may not have as its datagram has it
    assert [row[7:10] for row in facts.packets] == [(p.SYN, 0, 0), (None, None, None)]


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
def test_what_distinguishes_datagrams(other: list[bytes]) -> None:
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
    # a fragment after the last byte begins a new datagram
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


def test_atomic_fragment_is_a_whole_datagram() -> None:
    whole = p.ipv6(p.udp(bytes(100)), protocol=p.UDP, extensions=[p.fragment_header()])
    later = p.ipv6(bytes(64), protocol=p.UDP, extensions=[p.fragment_header(104)])
    facts = read_frames(p.ethernet(whole, p.IPV6), p.ethernet(later, p.IPV6))
    assert [key[3:5] for key in facts.flows] == [(40000, 5000), (0, 0)]


def test_extension_headers_after_the_header_of_a_first_fragment() -> None:
    """The protocol in the fragment headers distinguishes datagrams."""
    first = p.ipv6(p.udp(bytes(96)), protocol=p.UDP, extensions=[p.fragment_header(0, True), p.destination_options(0)])
    later = p.ipv6(bytes(64), protocol=60, extensions=[p.fragment_header(112)])
    flow = the_flow(read_frames(p.ethernet(later, p.IPV6), p.ethernet(first, p.IPV6)))
    assert (flow["packets"], flow["payload_bytes"], flow["src_port"]) == (2, 96 + 64, 40000)


def test_first_fragment_has_the_inside_of_a_tunnel() -> None:
    inside = p.udp(p.vxlan(p.ethernet(p.ipv4(p.tcp(bytes(1000))))), 50000, p.VXLAN_PORT)
    frames = fragment_frames(inside, [560], source=OUTER[0], destination=OUTER[1])
    expected = within(tunnel("vxlan", p.UDP, (50000, 4789), 7))
    for order in (frames, frames[::-1]):
        facts = read_frames(*order)
        later = len(inside) - 560
        assert payloads(facts) == {expected: (560 - 16 - 14 - 40) + later}  # inside the first, and the rest
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
