"""The pyshark engine against the numba engine, field by field: MPLS, PPPoE, tunnels and fragments."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import packets as p
import pytest
from engines import (
    FIRST,
    LATER,
    START,
    columns,
    flow_of_each,
    flows_of,
    from_hosts,
    packets_of,
    pyshark_engine,
    read,
    read_both,
    records,
    write,
)

from ddnn_traces.pcap.tshark import flows

# each starts tshark, which takes half a second
pytestmark = [pytest.mark.filterwarnings("error"), pytest.mark.long]


# --- between Ethernet and IP

INSIDE = p.ipv4(p.tcp(bytes(100)), "9.9.9.9", "8.8.8.8")
NO_LENGTH = p.ipv4(p.tcp(bytes(100)), "9.9.9.9", "8.8.8.8", total=0)  # its length follows from the frame
#: tshark knows a vendor of these addresses: only in front of such addresses it recognises a control word.
AFTER_CONTROL_WORD = b"\0\x1b\x21\0\0\1\0\x1b\x21\0\0\2\x08\0"
BETWEEN = {
    "one label": p.ethernet(p.mpls(NO_LENGTH), p.MPLS),
    "three labels": p.ethernet(p.mpls(NO_LENGTH, 3), p.MPLS),
    "label after a tag": p.ethernet(p.mpls(NO_LENGTH), p.MPLS, [p.VLAN]),
    "pseudowire": p.ethernet(p.pseudowire(AFTER_CONTROL_WORD + NO_LENGTH, 2), p.MPLS),
    "pppoe": p.ethernet(p.pppoe(NO_LENGTH), p.PPPOE),
}


def test_between_ethernet_and_ip(tmp_path: Path) -> None:
    """All in one file: each is a packet of the flow."""
    facts = read_both(write(tmp_path, p.pcap(records(*BETWEEN.values()))))
    assert columns(facts.flows.to_pylist(), "src_ip", "src_port", "packets", "encapsulation") == [
        ("9.9.9.9", 40000, len(BETWEEN), None)
    ]
    assert [(packet["ip_bytes"], packet["wire_bytes"]) for packet in packets_of(facts)] == [
        (140, len(frame)) for frame in BETWEEN.values()
    ]


def test_no_ip_between(tmp_path: Path) -> None:
    frames = [p.ethernet(p.mpls(b"\x55" * 60), p.MPLS), p.ethernet(p.pppoe(INSIDE, 0xC021), p.PPPOE)]
    facts = read_both(write(tmp_path, p.pcap(records(*frames))))
    assert facts.skipped == {"not_ip": (2, sum(map(len, frames)))}


# --- tunnels


def to(port: int, payload: bytes, **ends: Any) -> bytes:
    """A frame with UDP from 10.0.0.1."""
    return p.ethernet(p.ipv4(p.udp(payload, destination=port), protocol=p.UDP, **ends))


def over(protocol: int, payload: bytes) -> bytes:
    return p.ethernet(p.ipv4(payload, protocol=protocol))


BRIDGED = p.ethernet(NO_LENGTH)
TUNNELS: dict[str, tuple[bytes, tuple[Any, ...]]] = {  # frame -> kind, protocol, ports and identifier
    "ipip": (over(4, NO_LENGTH), ("ipip", 4, 0, 0, None)),
    "ipv6 in ipv4": (over(41, p.ipv6(p.tcp(bytes(80)), "9::9", length=0)), ("ipip", 41, 0, 0, None)),
    "gre": (over(47, p.gre(NO_LENGTH)), ("gre", 47, 0, 0, None)),
    "gre with all options": (over(47, p.gre(NO_LENGTH, key=77, checksum=True, sequence=5)), ("gre", 47, 0, 0, 77)),
    "gre of key 0": (over(47, p.gre(NO_LENGTH, key=0)), ("gre", 47, 0, 0, 0)),
    "gre bridged": (over(47, p.gre(BRIDGED, p.BRIDGED)), ("gre", 47, 0, 0, None)),
    "gre, mpls": (over(47, p.gre(p.mpls(NO_LENGTH, 2), p.MPLS, key=1)), ("gre", 47, 0, 0, 1)),
    "erspan 1": (over(47, p.erspan(BRIDGED, 1)), ("gre", 47, 0, 0, None)),
    "erspan 2": (over(47, p.erspan(BRIDGED, 2)), ("gre", 47, 0, 0, None)),
    "erspan 3": (over(47, p.erspan(BRIDGED, 3)), ("gre", 47, 0, 0, None)),
    "erspan 3, subheader": (over(47, p.erspan(BRIDGED, 3, subheader=True)), ("gre", 47, 0, 0, None)),
    "vxlan": (to(4789, p.vxlan(BRIDGED, vni=0x123456)), ("vxlan", 17, 40000, 4789, 0x123456)),
    "vxlan, Linux": (to(8472, p.vxlan(BRIDGED)), ("vxlan", 17, 40000, 8472, 7)),
    "vxlan, tags": (to(4789, p.vxlan(p.ethernet(NO_LENGTH, tags=[p.VLAN, p.VLAN]))), ("vxlan", 17, 40000, 4789, 7)),
    "geneve": (to(6081, p.geneve(BRIDGED)), ("geneve", 17, 40000, 6081, 7)),
    "geneve, options": (
        to(6081, p.geneve(NO_LENGTH, p.IPV4, 9, b"\1\2\0\1" + bytes(4))),
        ("geneve", 17, 40000, 6081, 9),
    ),
    "ppp in gre": (over(47, p.gre(p.ppp(NO_LENGTH), p.PPP_IN_GRE, key=5)), ("gre", 47, 0, 0, 5)),
    "pptp": (over(47, p.pptp(p.ppp(NO_LENGTH), acknowledged=3)), ("pptp", 47, 0, 0, 7)),
    "vxlan-gpe": (to(4790, p.vxlan_gpe(NO_LENGTH, 1)), ("vxlan_gpe", 17, 40000, 4790, 7)),
    "vxlan-gpe, bridged": (to(4790, p.vxlan_gpe(BRIDGED, 3)), ("vxlan_gpe", 17, 40000, 4790, 7)),
    "gtp-u": (to(2152, p.gtp_u(NO_LENGTH)), ("gtp_u", 17, 40000, 2152, 7)),
    "gtp-u, sequence": (to(2152, p.gtp_u(NO_LENGTH, flags=0x32, more=bytes(4))), ("gtp_u", 17, 40000, 2152, 7)),
    "first fragment": (p.ethernet(p.ipv4(p.gre(NO_LENGTH), protocol=47, more=True)), ("gre", 47, 0, 0, None)),
}


def test_tunnels(tmp_path: Path, subtests: pytest.Subtests) -> None:
    """The flow is inside, whose missing length is the frame's less all headers in front. All in one file."""
    frames = from_hosts(frame for frame, _ in TUNNELS.values())
    facts = read_both(write(tmp_path, p.pcap(records(*frames))))
    rows = facts.encapsulations.to_pylist()
    assert len(rows) == facts.flows.num_rows == len(TUNNELS)
    outside = flows_of(frames, tmp_path, open_tunnels=False)
    for number, (name, frame, flow, outer) in enumerate(
        zip(TUNNELS, frames, flow_of_each(facts), outside, strict=True), 1
    ):
        with subtests.test(name):
            kind, protocol, src_port, dst_port, identifier = TUNNELS[name][1]
            assert flow["src_ip"][0] == "9"
            assert (flow["src_port"], flow["ip_bytes"], flow["wire_bytes"]) == (40000, 140, len(frame))
            assert rows[flow["encapsulation"]] == {
                "parent": None, "kind": kind, "src_ip": f"10.0.{number}.1", "dst_ip": "10.0.0.2", "protocol": protocol,
                "src_port": src_port, "dst_port": dst_port, "identifier": identifier,
            }  # fmt: skip
            assert (outer["src_ip"], outer["dst_port"], outer["encapsulation"]) == (f"10.0.{number}.1", dst_port, None)


ICMP_ERROR = struct.pack(">BBHI", 3, 1, 0, 0) + INSIDE[:28]
NO_TUNNELS = {
    "gre, another version": over(47, p.gre(INSIDE, flags=1)),
    "gre, routing": over(47, p.gre(bytes(4) + INSIDE, flags=0x4000)),
    "gre, another EtherType": over(47, p.gre(INSIDE, 0x88B5)),
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


def test_what_is_not_opened(tmp_path: Path, subtests: pytest.Subtests) -> None:
    """All in one file."""
    facts = read_both(write(tmp_path, p.pcap(records(*from_hosts(NO_TUNNELS.values())))))
    assert facts.encapsulations.num_rows == 0
    flows = columns(flow_of_each(facts), "src_ip", "packets", "encapsulation")
    for number, (name, flow) in enumerate(zip(NO_TUNNELS, flows, strict=True), 1):
        with subtests.test(name):
            assert flow == (f"10.0.{number}.1", 1, None)


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


@pytest.mark.parametrize("six", [False, True])
@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2)])
def test_fragments_belong_to_their_datagrams_flow(order: tuple[int, ...], six: bool, tmp_path: Path) -> None:
    packets = p.fragments(p.udp(bytes(2992)), [1000, 1000], six=six)
    frames = [p.ethernet(packets[i], p.IPV6 if six else p.IPV4) for i in order]
    [flow] = flows_of(frames, tmp_path)
    assert (flow["src_port"], flow["dst_port"], flow["packets"], flow["payload_bytes"]) == (40000, 5000, 3, 2992)


def test_packet_rows_of_fragments(tmp_path: Path) -> None:
    """Of those that waited for their first fragment, and of those that came meanwhile."""
    facts = read_both(write(tmp_path, p.pcap(records(LATER[0], p.segment(), p.arp(), FIRST, p.segment(7, 100)))))
    rows = packets_of(facts)
    assert columns(rows, "record", "flow", "payload_bytes", "tcp_flags") == [
        (0, 1, 1000, None), (1, 0, 100, p.ACK), (3, 1, 992, None), (4, 0, 7, p.ACK),
    ]  # fmt: skip
    assert columns(rows, "ts_ns", "wire_bytes", "ip_bytes", "captured_bytes")[1] == (START + 400_000, 154, 140, 154)


def test_fragments_whose_first_does_not_come(tmp_path: Path) -> None:
    """A flow without ports; a skipped first fragment counts as missing."""
    skipped = p.ethernet(p.ipv4(p.udp(bytes(992))[:7], protocol=p.UDP, more=True, identification=1))
    for frames, packets in (([LATER[0]], 1), ([LATER[0], skipped, LATER[1]], 2)):
        flows = flows_of(frames, tmp_path)
        assert columns(flows, "protocol", "src_port", "packets") == [(p.UDP, 0, packets)]


def test_what_distinguishes_datagrams(tmp_path: Path) -> None:
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
    monkeypatch.setattr(flows, limit, 3)
    rows = read(pyshark_engine, path, tmp_path).flows.to_pylist()
    assert columns(rows, "src_port", "packets") == [(0, 1), (4, 2), (3, 2), (2, 2), (1, 1)]


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
