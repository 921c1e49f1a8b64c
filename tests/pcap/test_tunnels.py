"""Tunnels of packets made by hand, in both readings (docs/packets.md)."""

from __future__ import annotations

import packets as p
import pytest
from captures_by_hand import (
    FRAME,
    GRE,
    KEY6,
    OUTER,
    SHUT,
    T0,
    TUNNELS,
    V4,
    V6,
    in_udp,
    outer,
    tunnel,
    within,
)
from readings import read, read_frames, the_flow

# --- tunnels


@pytest.mark.parametrize("name", TUNNELS)
def test_tunnels(name: str) -> None:
    """The flow is the inner one, with its own sizes but the frame's; or the outer one, when tunnels are not opened."""
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


@pytest.mark.parametrize("name", SHUT)
def test_unreadable_inside_leaves_the_packet_to_the_outer_flow(name: str) -> None:
    facts = read_frames(p.ethernet(SHUT[name]))
    (key,) = facts.flows
    assert (key[:2], key[5], facts.encapsulations) == (OUTER, None, set())
    assert the_flow(facts)["ip_bytes"] == len(SHUT[name])


def test_every_snaplen_of_a_tunnel() -> None:
    """50 bytes of Ethernet, IP, UDP and VXLAN, and 18 + 24 of the inside up to the ports."""
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


def test_different_tunnels_are_different_flows() -> None:
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
