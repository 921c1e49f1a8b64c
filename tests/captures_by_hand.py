"""Captures made by hand that several tests read: tunnels, fragments, and a file for each kind of header."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import naive
import packets as p

T0 = 1_700_000_000 * 10**9
ODD_TIME = (1_700_000_000 | 0xFFFF) * 10**9  # a record header that starts with 0xffff
US = 1000
MS = 10**6
SECOND = 10**9
FREE = (None, None, None, 0)  # of a key: no tunnel, no queue pair, no opcode, the first connection
KEY = ("10.0.0.1", "10.0.0.2", p.TCP, 40000, 5000, *FREE)
START = T0 + 123_456_000


def in_time(*frames: bytes) -> list[p.Record]:
    return [p.Record(T0 + i * US, frame) for i, frame in enumerate(frames)]


TCP, UDP = p.tcp(bytes(100)), p.udp(bytes(100))
V4, V6 = p.ipv4(TCP), p.ipv6(TCP)
KEY6 = ("fd00::1", "fd00::2", *KEY[2:])


LINKS = {
    p.ETHERNET: p.ethernet,
    p.SLL: p.sll,
    p.SLL2: p.sll2,
    p.NULL: p.null,
    108: p.null,
    **dict.fromkeys((12, 14, 101, 228, 229), p.raw),
    9: p.ppp,
    50: p.ppp_compressed,
    51: p.pppoe,
    100: p.snap,
    104: p.chdlc,
    112: p.chdlc,
    166: lambda packet, kind=p.IPV4: b"\1" + p.ppp(packet, kind)[1:],
    192: lambda packet, kind=p.IPV4: p.ppi(p.ethernet(packet, kind), p.ETHERNET, bytes(12)),
    197: p.erf_ethernet,
    204: lambda packet, kind=p.IPV4: b"\1" + p.ppp(packet, kind),
    205: lambda packet, kind=p.IPV4: b"\1" + p.chdlc(packet, kind),
    239: p.nflog,
    242: p.ipoib,
    247: p.infiniband,
}


def roce_frame(payload: int = 100, port: int = p.ROCE_PORT, **header: int) -> bytes:
    return p.ethernet(p.ipv4(p.udp(p.roce(bytes(payload), **header), destination=port), protocol=p.UDP))


OUTER = "192.0.2.1", "192.0.2.2"
MAPPED = "::ffff:10.0.0.1", "::ffff:10.0.0.2"  # GIDs


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


PPTP = tunnel("pptp", p.GRE, identifier=7)
GPE = tunnel("vxlan_gpe", p.UDP, (50000, 4790), 7)
GTP = tunnel("gtp_u", p.UDP, (50000, 2152), 7)
EXTENSION, LONGER_EXTENSION = b"\0\0\0\x85\1\x10\5\0", b"\0\0\0\x85\1\x10\5\x40\2" + bytes(7)
TUNNELS |= {
    "ppp in gre": (outer(p.gre(p.ppp(V4), p.PPP_IN_GRE, key=7), p.GRE), GRE7),
    "pptp": (outer(p.pptp(p.ppp(V4)), p.GRE), PPTP),
    "pptp, compressed": (outer(p.pptp(p.ppp_compressed(V4), sequence=2, acknowledged=3), p.GRE), PPTP),
    "pptp, mpls": (outer(p.pptp(p.ppp(p.mpls(V4), p.MPLS), acknowledged=1), p.GRE), PPTP),
    "vxlan gpe": (in_udp(p.vxlan_gpe(V4, 1), p.VXLAN_GPE_PORT), GPE),
    "vxlan gpe ethernet": (in_udp(p.vxlan_gpe(FRAME, 3), p.VXLAN_GPE_PORT), GPE),
    "vxlan gpe mpls": (in_udp(p.vxlan_gpe(p.mpls(V4, 2), 5), p.VXLAN_GPE_PORT), GPE),
    "vxlan gpe without identifier": (
        in_udp(p.vxlan_gpe(V4, 1, flags=4), p.VXLAN_GPE_PORT), tunnel("vxlan_gpe", p.UDP, (50000, 4790)),
    ),
    "gtp-u": (in_udp(p.gtp_u(V4), p.GTP_U_PORT), GTP),
    "gtp-u of 32 bits": (in_udp(p.gtp_u(V4, 2**32 - 1), 2152), tunnel("gtp_u", p.UDP, (50000, 2152), 2**32 - 1)),
    "gtp-u sequence": (in_udp(p.gtp_u(V4, flags=0x32, more=b"\0\1\0\x85"), p.GTP_U_PORT), GTP),
    "gtp-u extension": (in_udp(p.gtp_u(V4, flags=0x34, more=EXTENSION), p.GTP_U_PORT), GTP),
    "gtp-u extensions": (in_udp(p.gtp_u(V4, flags=0x37, more=LONGER_EXTENSION), p.GTP_U_PORT), GTP),
}  # fmt: skip


SHUT = {
    "ip protocol 4 with IPv6": outer(V6, p.IPIP),
    "no ip": outer(p.gre(p.arp(), p.BRIDGED), p.GRE),
    "unknown type": outer(p.gre(V4, 0x88B5), p.GRE),
    "pptp of another protocol": outer(p.pptp(p.ppp(V4, 0xC021)), p.GRE),
    "pptp acknowledgement": outer(p.pptp(b"", sequence=None, acknowledged=1) + p.ppp(V4), p.GRE),
    "vxlan gpe oam": in_udp(p.vxlan_gpe(V4, 1, flags=0x0D), p.VXLAN_GPE_PORT),
    "vxlan gpe version 1": in_udp(p.vxlan_gpe(V4, 1, flags=0x1C), p.VXLAN_GPE_PORT),
    "vxlan gpe without protocol": in_udp(p.vxlan_gpe(FRAME, 0, flags=8), p.VXLAN_GPE_PORT),
    "vxlan gpe nsh": in_udp(p.vxlan_gpe(V4, 4), p.VXLAN_GPE_PORT),
    "gtp-u echo": in_udp(p.gtp_u(V4, message=1), p.GTP_U_PORT),
    "gtp version 2": in_udp(p.gtp_u(V4, flags=0x50), p.GTP_U_PORT),
    "gtp prime": in_udp(p.gtp_u(V4, flags=0x20), p.GTP_U_PORT),
    "gtp-u empty extension": in_udp(p.gtp_u(V4, flags=0x34, more=b"\0\0\0\x85" + bytes(4)), p.GTP_U_PORT),
    "gtp-u extension beyond": in_udp(p.gtp_u(b"", flags=0x34, more=b"\0\0\0\x85\x40"), p.GTP_U_PORT),
    "gre version 1": outer(p.gre(V4, flags=1), p.GRE),
    "gre routing": outer(p.gre(V4, flags=0x4000), p.GRE),
    "malformed": outer(p.ipv4(p.tcp(), total=30), p.IPIP),
    "vxlan without flag": in_udp(p.vxlan(FRAME, flags=0x80), p.VXLAN_PORT),
    "vxlan from the port": outer(p.udp(p.vxlan(FRAME), p.VXLAN_PORT, 50000), p.UDP),
    "geneve version 1": in_udp(p.geneve(FRAME, version=1), p.GENEVE_PORT),
    "geneve options beyond": in_udp(p.geneve(b"", options=bytes(252)), p.GENEVE_PORT),
    "nothing inside": in_udp(b"", p.VXLAN_PORT),
}


LINK = {False: p.IPV4, True: p.IPV6}


def fragment_frames(body: bytes, sizes: list[int], six: bool = False, **header: Any) -> list[bytes]:
    return [p.ethernet(packet, LINK[six]) for packet in p.fragments(body, sizes, six=six, **header)]


# --- whole files


def file(*frames: bytes, **header: Any) -> bytes:
    return p.pcap([p.Record(START + i * US, frame) for i, frame in enumerate(frames)], **header)


def eth(packet: bytes, kind: int = p.IPV4, tags: list[int] | None = None) -> bytes:
    return p.ethernet(packet, kind, tags or [])


def hand_made() -> Iterator[tuple[str, bytes]]:
    for order, tick_ns in itertools.product("<>", (1, 1000)):
        yield f"pcap {order} {tick_ns}", file(eth(V4), eth(V6, p.IPV6), order=order, tick_ns=tick_ns)
        yield f"pcapng {order} {tick_ns}", pcapng(order, tick_ns)
    yield "vlan", file(eth(V4, tags=[p.VLAN]), eth(V6, p.IPV6, [p.SERVICE_VLAN, p.VLAN]), eth(V4, tags=[0x9100]))
    yield "mpls", file(eth(p.mpls(V4), p.MPLS), eth(p.mpls(V6, 3), p.MPLS), eth(p.mpls(V4, 2), 0x8848))
    yield "pseudowire", file(eth(p.pseudowire(eth(V4)), p.MPLS))
    yield "pppoe", file(eth(p.pppoe(V4), p.PPPOE), eth(p.pppoe(V6, p.IPV6), p.PPPOE, [p.VLAN]))
    yield (
        "llc",
        file(p.ethernet_llc(V4), p.ethernet_llc(V6, p.IPV6, [p.VLAN]), eth(b"\6\6\3" + V4, 143), eth(p.snap(b"x"), 9)),
    )
    yield "llc of sll", file(p.sll(p.snap(V4), 4), p.sll(p.snap(V6, p.IPV6), 4), p.sll(bytes(9), 4), link=p.SLL)
    yield "mpls in pppoe", file(eth(p.pppoe(p.mpls(V4), 0x0281), p.PPPOE))
    yield "sll", file(p.sll(V4), p.sll(V6, p.IPV6), p.sll(bytes(28), p.ARP), link=p.SLL)
    yield "sll2", file(p.sll2(V4), p.sll2(V6, p.IPV6), p.sll2(bytes(28), p.ARP), link=p.SLL2)
    copies = [p.sll2(each, kind, number) for each, kind in ((V4, p.IPV4), (V6, p.IPV6)) for number in (7, 2, 0, 70_000)]
    yield "interfaces", file(*copies, link=p.SLL2)
    for link in (12, 14, 101):
        yield f"raw {link}", file(V4, V6, link=link)
    yield "raw IPv4", file(V4, link=228)
    yield "raw IPv6", file(V6, link=229)
    yield "null", file(p.null(V4), p.null(V6, p.IPV6), link=p.NULL)
    yield "loop", file(b"\0\0\0\2" + V4, b"\0\0\0\x1e" + V6, link=108)
    yield (
        "ipv4 options",
        file(eth(p.ipv4(TCP, options=b"\x94\x04\0\0")), eth(p.ipv4(UDP, protocol=p.UDP))),
    )
    chains = [
        [p.hop_by_hop()],
        [p.hop_by_hop(1), p.destination_options(2)],
        [p.authentication()],
        [p.fragment_header()],
    ]
    yield (
        "ipv6 extension headers",
        file(*(eth(p.ipv6(TCP, extensions=chain), p.IPV6) for chain in chains)),
    )
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
    yield "gre", file(*(eth(outer(gre, p.GRE)) for gre in gres))
    yield "ip in ip", file(
        eth(outer(V4, p.IPIP)), eth(outer(V6, p.IPV6_IN_IP)),
        eth(p.ipv6(V4, protocol=p.IPIP), p.IPV6), eth(p.ipv6(V6, "fd01::1", protocol=p.IPV6_IN_IP), p.IPV6),
    )  # fmt: skip
    yield (
        "nested",
        file(
            eth(in_udp(p.vxlan(eth(outer(p.gre(outer(V4, p.IPIP), key=1), p.GRE))), 4789)),
            eth(outer(p.gre(eth(in_udp(p.geneve(eth(V6, p.IPV6)), 6081), tags=[p.VLAN]), p.BRIDGED), p.GRE)),
        ),
    )
    headers = [(4, 1), (17, 1), (4, 0xFFFFFF), (129, 1)]
    yield "roce", file(*(eth(in_udp(p.roce(bytes(64), *header), p.ROCE_PORT)) for header in headers))
    headers = [(4, 1), (17, 1), (4, 0xFFFFFF), (129, 1)]
    one = [eth(p.route_header(p.roce(bytes(64), *header)), p.ROCE_V1) for header in headers]
    yield "roce v1", file(*one)
    yield (
        "roce v1, IPv4",
        file(*(eth(p.route_header(p.roce(bytes(64), *header), *MAPPED), p.ROCE_V1, [p.VLAN]) for header in headers)),
    )
    yield "roce v1, not", file(
        eth(p.route_header(TCP, following=p.TCP), p.ROCE_V1), eth(bytes([0x40]) + one[0][15:], p.ROCE_V1), one[0],
        eth(p.route_header(b""), p.ROCE_V1), eth(p.route_header(p.roce(), "::ffff:10.0.0.1"), p.ROCE_V1),
    )  # fmt: skip
    yield "roce v1 in vxlan", file(eth(in_udp(p.vxlan(one[0]), 4789)), eth(outer(p.erspan(one[0], 2), p.GRE)))
    yield "roce v1 of sll", file(p.sll(one[0][14:], p.ROCE_V1), p.sll(one[0][14:], p.ROCE_V1), link=p.SLL)
    two = p.route_header(p.roce(bytes(64)), *MAPPED)
    infiniband = [
        p.local_route(p.roce(bytes(64)), 2), p.local_route(two, 3), p.local_route(V6, 1), p.infiniband(V4),
        p.infiniband(bytes(28), p.ARP), p.local_route(p.route_header(TCP, following=p.TCP), 3),
        p.local_route(p.roce(bytes(64)), 2, size=0), p.local_route(p.roce(bytes(64)), 2, size=400),
    ]  # fmt: skip
    yield "infiniband", file(*infiniband, link=247)
    kinds = [(21, frame) for frame in infiniband] + [(kind, one[0]) for kind in (2, 11, 16, 20)]
    kinds += [(1, p.ppp(V4)), (10, p.chdlc(V4)), (15, p.chdlc(V6, p.IPV6)), (22, V4), (23, V6)]
    yield "erf", file(*(p.erf(frame, kind, START + i * US, i % 3) for i, (kind, frame) in enumerate(kinds)), link=197)
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
    data += one.enhanced(START // tick_ns, eth(V4)) + one.enhanced(1_700_000_000 << 20 | 0x80000, V6, interface=1)
    data += one.simple(eth(V4)) + one.block(p.NAMES, bytes(4))
    data += two.begin() + two.interface(p.SLL2, offset=-3600) + two.old(START // 1000, p.sll2(V4))
    return data + two.interface(resolution=3, offset=3600) + two.enhanced(START // 10**6, eth(V6, p.IPV6), interface=1)


CAPTURES = dict(hand_made())


#: Two datagrams in fragments, of each IP version.
FRAGMENTS = [
    frame
    for six in (False, True)
    for identification in (1, 2)
    for frame in fragment_frames(p.udp(bytes(1000)), [400, 320], six, identification=identification)
]
#: The packets of "flags" twice.
CONNECTIONS = CAPTURES["flags"] + CAPTURES["flags"][24:]
