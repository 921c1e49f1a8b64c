"""Headers in plain Python: from a frame to the innermost IP packet that can be read. One function a header."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, replace
from ipaddress import ip_address

from ddnn_traces.pcap.tshark.flows import Encapsulation, Fragment, Packet, Roce, Segment, captured_at

# In place of an IP version: InfiniBand's global route header, by its next header; its local one, without the other.
GRH, LRH = 0x1B, 2
LID_PREFIX = bytes([1]) + bytes(13)  # 100::/64 (RFC 6666)
ERF_ETHERNET, ERF_HDLC, ERF_INFINIBAND, ERF_IP = {2, 11, 16, 20}, {1, 10, 15, 19}, 21, {22, 23}
ETHERTYPES = {0x0800: 4, 0x86DD: 6, 0x8915: GRH}
PPP_PROTOCOLS = {0x0021: 0x0800, 0x0057: 0x86DD, 0x0281: 0x8847, 0x0283: 0x8848}  # EtherTypes of the same meaning
LONGEST_802_3, LEAST_ETHERTYPE = 1500, 1536
SNAP, LLC_IP, SNAP_ORGANIZATIONS = b"\xaa\xaa\3", b"\6\6\3", {b"\0\0\0", b"\0\0\xf8"}
NFLOG_FAMILIES, NFLOG_PAYLOAD = {2: 4, 10: 6}, 9
VLAN_TAGS = {0x8100, 0x88A8, 0x9100}
MPLS = {0x8847, 0x8848}
PPPOE, BRIDGED, ERSPAN, ERSPAN_3 = 0x8864, 0x6558, 0x88BE, 0x22EB
HOP_BY_HOP, IPIP, TCP, UDP, IPV6_IN_IP, ROUTING, FRAGMENT, GRE = 0, 4, 6, 17, 41, 43, 44, 47
AUTHENTICATION, DESTINATION, MOBILITY = 51, 60, 135
EXTENSIONS = {HOP_BY_HOP, ROUTING, FRAGMENT, AUTHENTICATION, DESTINATION, MOBILITY}
VXLAN_PORTS, GENEVE_PORT, ROCE_PORT = {4789, 8472}, 6081, 4791
VXLAN_GPE_PORT, GTP_U_PORT, PPP_IN_GRE, G_PDU = 4790, 2152, 0x880B, 255
MOST_TUNNELS = 4


class Skip(Exception):
    """There is no packet of a flow here; the argument is one of facts.SKIP_REASONS."""


@dataclass(frozen=True)
class Part:
    """The rest of a frame after some header: the captured bytes, and the length it had on the wire."""

    captured: bytes
    length: int

    def first(self, size: int) -> bytes:
        if len(self.captured) < size:
            raise Skip("cut_short")
        return self.captured[:size]

    def after(self, size: int) -> Part:
        return Part(self.captured[size:], self.length - size)


@dataclass(frozen=True)
class Ip:
    """An IP header. rest: the bytes that follow it. headers: bytes of all IP headers."""

    source: str
    destination: str
    protocol: int
    ip_bytes: int
    headers: int
    rest: Part
    fragment: Fragment | None
    ecn: int

    @property
    def later(self) -> bool:
        """Whether it is a fragment other than the first, without a transport header."""
        return self.fragment is not None and self.fragment.offset > 0


Datagram = tuple[int, Part]  # IP version, GRH or LRH, and all from that header on


def parse(frame: Part, link: int, open_tunnels: bool = True) -> Packet:
    """The flow's packet in a frame; raises Skip where there is none."""
    found = packet(link_payload(frame, link), None, MOST_TUNNELS if open_tunnels else 0, False)
    return captured_at(found, *struct.unpack(">4xI", frame.first(8))) if link == 276 else found


# --- link layer


def link_payload(frame: Part, link: int) -> Datagram:
    """Link types as in tcpdump.org/linktypes."""
    if link == 1:
        return ethernet(frame)
    if link == 113:  # Linux cooked
        return cooked(frame.after(14), 2)
    if link == 276:  # Linux cooked 2, where the type comes first
        return cooked(frame, 20)
    if link in (0, 108):  # BSD loopback: four bytes of address family, whose numbers differ by system
        return by_version(frame.after(4))
    if link in (12, 14, 101, 228, 229):  # raw IP
        return by_version(frame)
    return rare_link_payload(frame, link)


def rare_link_payload(frame: Part, link: int) -> Datagram:
    if link in (9, 50):
        return ppp_or_hdlc(frame)
    if link == 204:  # a byte of direction before it
        return ppp_or_hdlc(frame.after(1))
    if link == 166:  # the direction in place of the address
        return ppp(frame.after(2))
    if link == 51:
        return pppoe(frame)
    if link in (104, 112):
        return by_ethertype(frame.after(2), 2)
    if link == 205:
        return by_ethertype(frame.after(3), 2)
    if link == 100:
        return llc(frame)
    if link == 192:
        return ppi(frame)
    if link == 239:
        return nflog(frame)
    if link == 242:  # 40 bytes of addresses, then RFC 4391, 6: EtherType and two reserved bytes
        return by_ethertype(frame.after(40), 4)
    if link == 247:
        return local_route_header(frame)
    if link == 197:
        return erf(frame)
    raise Skip("unknown_link_type")


def local_route_header(part: Part) -> Datagram:
    """InfiniBand Architecture Specification 1, 7.7: the low two bits of byte 1 say what follows."""
    following = part.first(8)[1] & 3
    if following == 3:
        return route_header(part.after(8))
    if following == 2:
        return LRH, part
    if following == 1:
        return 6, part.after(8)
    return by_ethertype(part.after(10), 2)


def erf(part: Part) -> Datagram:
    """Endace's Extensible Record Format: 16 bytes with the type at byte 8, whose upper bit says that others follow."""
    first = part.first(16)[8]
    part, more = part.after(16), first & 0x80
    while more:
        more = part.first(8)[0] & 0x80
        part = part.after(8)
    kind = first & 0x7F
    if kind in ERF_ETHERNET:
        return ethernet(part.after(2))
    if kind in ERF_HDLC:
        return ppp_or_hdlc(part)
    if kind == ERF_INFINIBAND:
        return local_route_header(part)
    if kind in ERF_IP:
        return by_version(part)
    raise Skip("unknown_link_type")


def ppp_or_hdlc(part: Part) -> Datagram:
    """RFC 1662, 3.1: address and control bytes may be missing; those of C-HDLC are others."""
    first = part.first(1)[0]
    if first in (0x0F, 0x8F):
        return by_ethertype(part.after(2), 2)
    return ppp(part.after(2) if first == 0xFF else part)


def ppp(part: Part) -> Datagram:
    """RFC 1661, 2 and 6.5: a protocol of two bytes, or of one odd byte."""
    size = 1 if part.first(1)[0] & 1 else 2
    protocol = int.from_bytes(part.first(size), "big")
    if protocol not in PPP_PROTOCOLS:
        raise Skip("not_ip")
    return of_ethertype(PPP_PROTOCOLS[protocol], part.after(size))


def ppi(part: Part) -> Datagram:
    """Per-Packet Information, in little endian: version, flags, length, link type of what follows."""
    length, link = struct.unpack("<2xHI", part.first(8))
    if length < 8:
        raise Skip("malformed")
    return link_payload(part.after(length), link)


def nflog(part: Part) -> Datagram:
    """Family, version and resource; then values with length and type, in the byte order of the writing host."""
    family = part.first(4)[0]
    if family not in NFLOG_FAMILIES:
        raise Skip("not_ip")
    part = part.after(4)
    while True:
        header = part.first(4)
        order = ">" if header[2] & 0x3F == 0 else "<"
        length, kind = struct.unpack(order + "HH", header)
        if length < 4:
            raise Skip("malformed")
        if kind & 0xFF == NFLOG_PAYLOAD:
            return NFLOG_FAMILIES[family], part.after(4)
        part = part.after(length + -length % 4)


def ethernet(frame: Part) -> Datagram:
    """IEEE 802.3, 3.2.6: an EtherType, or a length."""
    (ethertype,) = struct.unpack(">H", frame.after(12).first(2))
    return of_ethertype(ethertype, frame.after(14))


def cooked(part: Part, size: int) -> Datagram:
    """As by_ethertype; 4 stands for 802.2 (ETH_P_802_2 in Linux)."""
    return llc(part.after(size)) if part.first(2) == b"\0\4" else by_ethertype(part, size)


def by_ethertype(part: Part, size: int) -> Datagram:
    """By the EtherType at the start of `part`, which is no length: the header `size` bytes after it."""
    (ethertype,) = struct.unpack(">H", part.first(2))
    return of_ethertype(no_length(ethertype), part.after(size))


def no_length(ethertype: int) -> int:
    if ethertype < LEAST_ETHERTYPE:
        raise Skip("not_ip")
    return ethertype


def llc(part: Part) -> Datagram:
    """IEEE 802.2, RFC 1042: SNAP and an EtherType, or IP itself."""
    head = part.first(3)
    if head == LLC_IP:
        return 4, part.after(3)
    if head != SNAP:
        raise Skip("not_ip")
    if part.first(8)[3:6] not in SNAP_ORGANIZATIONS:
        raise Skip("not_ip")
    return by_ethertype(part.after(6), 2)


def of_ethertype(ethertype: int, part: Part) -> Datagram:
    while ethertype in VLAN_TAGS:  # 802.1Q: two bytes of tag, an EtherType
        (ethertype,) = struct.unpack(">2xH", part.first(4))
        part = part.after(4)
    if ethertype in MPLS:
        return mpls(part)
    if ethertype == PPPOE:
        return pppoe(part)
    if 0 < ethertype <= LONGEST_802_3:
        return llc(part)
    if ethertype not in ETHERTYPES:
        raise Skip("not_ip")
    if ETHERTYPES[ethertype] == GRH:
        return route_header(part)
    return ETHERTYPES[ethertype], part


def route_header(part: Part) -> Datagram:
    """InfiniBand Architecture Specification 1, 8.3: IPv6's layout; next header 0x1B is InfiniBand's own transport."""
    if part.first(40)[6] != GRH:
        raise Skip("not_ip")
    return GRH, part


def mpls(part: Part) -> Datagram:
    """RFC 3032, 2.1 for the stack; RFC 4928, 3 for the nibble after it; RFC 4448, 4.6 for the control word."""
    while not part.first(4)[2] & 1:
        part = part.after(4)
    part = part.after(4)
    if part.first(1)[0] >> 4 == 0:
        return ethernet(part.after(4))
    return by_version(part)


def pppoe(part: Part) -> Datagram:
    """RFC 2516, 4."""
    return ppp(part.after(6))


def by_version(part: Part) -> Datagram:
    version = part.first(1)[0] >> 4
    if version not in (4, 6):
        raise Skip("not_ip")
    return version, part


# --- IP


def packet(datagram: Datagram, around: Encapsulation | None, tunnels: int, in_fragment: bool) -> Packet:
    """The innermost packet that can be read. around: the tunnel it is in; tunnels: how many may yet be opened."""
    version, part = datagram
    if version == GRH:
        return infiniband(part, around)
    if version == LRH:
        return local_infiniband(part)
    ip = ipv4(part, around) if version == 4 else ipv6(part, around)
    if ip.fragment and in_fragment:
        raise Skip("not_ip")  # never counted: the packet belongs to the flow around it
    outer = transport(ip, around)
    if ip.later or not tunnels:
        return outer
    try:
        identifier, kind, inside = tunnel(ip, outer)
        ends = ip.source, ip.destination, ip.protocol, outer.src_port, outer.dst_port
        here = Encapsulation(kind, *ends, identifier, around)
        inner = packet(inside(), here, tunnels - 1, in_fragment or ip.fragment is not None)
    except Skip:
        return outer
    return replace(inner, fragment=ip.fragment) if ip.fragment else inner


def ipv4(datagram: Part, around: Encapsulation | None) -> Ip:
    """RFC 791, 3.1."""
    header = datagram.first(20)
    first, service, total, identification, offset, protocol, *ends = struct.unpack(">BBHHHxB2x4s4s", header)
    size = (first & 15) * 4
    ip_bytes = datagram_bytes(total, datagram.length, total == 0, most=0xFFFF)
    if first >> 4 != 4 or not 20 <= size <= ip_bytes:
        raise Skip("malformed")
    source, destination = map(address, ends)
    fragment = None
    if offset & 0x3FFF:
        shared = around, source, destination, protocol, identification
        fragment = Fragment(shared, (offset & 0x1FFF) * 8, ip_bytes - size, bool(offset & 0x2000))
    return Ip(source, destination, protocol, ip_bytes, size, datagram.after(size), fragment, service & 3)


def ipv6(datagram: Part, around: Encapsulation | None) -> Ip:
    """RFC 8200, 3 and 4; RFC 4302, 2.2 for the length of the authentication header."""
    first, second, length, following, *ends = struct.unpack(">BB2xHBx16s16s", datagram.first(40))
    if first >> 4 != 6:
        raise Skip("malformed")
    source, destination = map(address, ends)
    ip_bytes = datagram_bytes(40 + length, datagram.length, length == 0, most=40 + 0xFFFF)
    rest, size, fragment = datagram.after(40), 40, None
    while following in EXTENSIONS and not (fragment and fragment.offset):
        kind = following
        following, length, offset, identification = struct.unpack(">BBHI", rest.first(8))
        extension = {FRAGMENT: 8, AUTHENTICATION: 4 * (length + 2)}.get(kind, 8 * (length + 1))
        rest, size = rest.after(extension), size + extension
        if kind == FRAGMENT and offset & 0xFFF9:
            shared = around, source, destination, following, identification
            fragment = Fragment(shared, offset & 0xFFF8, ip_bytes - size, bool(offset & 1))
    if size > ip_bytes:
        raise Skip("malformed")
    return Ip(source, destination, following, ip_bytes, size, rest, fragment, second >> 4 & 3)


def infiniband(datagram: Part, around: Encapsulation | None) -> Packet:
    """A global route header and a base transport header. GIDs that both map IPv4 (RFC 4291, 2.5.5.2) are IPv4."""
    ip = ipv6(datagram, around)
    mapped = [ip_address(end).ipv4_mapped for end in (ip.source, ip.destination)]
    source, destination = map(str, mapped) if all(mapped) else (ip.source, ip.destination)
    payload = ip.ip_bytes - ip.headers
    roce = Roce.parse(ip.rest.captured)
    return Packet(source, destination, ip.protocol, 0, 0, ip.ip_bytes, payload, around, None, roce)


def local_infiniband(part: Part) -> Packet:
    """A local route header and a base transport header: LIDs of 16 bits, and a length in units of 4 bytes."""
    destination, words, source = struct.unpack(">2xHHH", part.first(8))
    size = datagram_bytes(4 * (words & 0x7FF), part.length, words & 0x7FF == 0, most=part.length) - 8
    if size < 0:
        raise Skip("malformed")
    ends = (address(LID_PREFIX + lid.to_bytes(2, "big")) for lid in (source, destination))
    return Packet(*ends, GRH, 0, 0, size, size, roce=Roce.parse(part.captured[8:]))


def address(packed: bytes) -> str:
    return str(ip_address(packed))


def datagram_bytes(declared: int, on_wire: int, is_undeclared: bool, most: int) -> int:
    """IP length as the header declares it, or from the frame where the header does not or cannot."""
    return on_wire if is_undeclared or on_wire > most or declared > on_wire else declared


# --- transport


def transport(ip: Ip, around: Encapsulation | None) -> Packet:
    """Ports and payload (RFC 9293, 3.1; RFC 768)."""
    payload = ip.ip_bytes - ip.headers
    ecn = None if ip.later else ip.ecn
    ends = ip.source, ip.destination, ip.protocol, 0, 0
    plain = Packet(*ends, ip.ip_bytes, payload, around, ip.fragment, ecn=ecn)
    if ip.later or ip.protocol not in (TCP, UDP):
        return plain
    source, destination = struct.unpack(">HH", ip.rest.first(4))
    header = 8 if ip.protocol == UDP else tcp_header(ip.rest)
    if payload < header:
        raise Skip("malformed")
    known = replace(plain, src_port=source, dst_port=destination, payload_bytes=payload - header)
    if ip.protocol == TCP:
        return replace(known, segment=segment(ip.rest, header))
    return replace(known, roce=Roce.parse(ip.rest.captured[8:]) if destination == ROCE_PORT else None)


def tcp_header(part: Part) -> int:
    """Length of the TCP header; the shortest one where the capture ends before the field."""
    size = (part.captured[12] >> 4) * 4 if len(part.captured) > 12 else 20
    if size < 20:
        raise Skip("malformed")
    return size


def segment(part: Part, header: int) -> Segment | None:
    if len(part.captured) < 14:
        return None
    sequence, acknowledgement, flags = struct.unpack(">4xIIxB", part.first(14))
    options = part.captured[20:header]
    window = int.from_bytes(part.captured[14:16], "big") if len(part.captured) >= 16 else None
    return Segment(sequence, acknowledgement, flags, option(options, 2, 4), option(options, 3, 3), window)


def option(options: bytes, wanted: int, size: int) -> int | None:
    """An option's value: maximum segment size (2; RFC 9293, 3.7.1), shift of windows (3; RFC 7323), as captured."""
    while len(options) >= 2:
        kind, length = options[0], options[1]
        if kind == 0:
            return None
        if kind == 1:
            options = options[1:]
            continue
        if kind == wanted and length == size and len(options) >= size:
            return int.from_bytes(options[2:size], "big")
        if length < 2:
            return None
        options = options[length:]
    return None


# --- tunnels

Tunnel = tuple[int | None, str, Callable[[], Datagram]]  # identifier, kind, and a function that reads the inside


def tunnel(ip: Ip, outer: Packet) -> Tunnel:
    """The tunnel that a packet is; raises Skip for other packets."""
    if ip.protocol in (IPIP, IPV6_IN_IP):  # RFC 2003, RFC 4213
        return None, "ipip", lambda: (4 if ip.protocol == IPIP else 6, ip.rest)
    if ip.protocol == GRE:
        return gre(ip.rest)
    if ip.protocol == UDP and outer.dst_port in VXLAN_PORTS:
        return vxlan(ip.rest.after(8))
    if ip.protocol == UDP and outer.dst_port == GENEVE_PORT:
        return geneve(ip.rest.after(8))
    if ip.protocol == UDP and outer.dst_port == VXLAN_GPE_PORT:
        return vxlan_gpe(ip.rest.after(8))
    if ip.protocol == UDP and outer.dst_port == GTP_U_PORT:
        return gtp_u(ip.rest.after(8))
    raise Skip("not_ip")


def gre(part: Part) -> Tunnel:
    """RFC 2784, RFC 2890; ERSPAN: draft-foschiano-erspan, 4."""
    flags, kind = struct.unpack(">HH", part.first(4))
    if flags & 7 == 1:
        return pptp(part)
    if flags & 0x4007:  # routing, or another version
        raise Skip("not_ip")
    checksum, key, sequence = flags & 0x8000, flags & 0x2000, flags & 0x1000
    size = 4 + 4 * (bool(checksum) + bool(key) + bool(sequence))
    header = part.first(size)
    identifier = None
    if key:
        at = 8 if checksum else 4
        identifier = int.from_bytes(header[at : at + 4], "big")
    inside = part.after(size)
    if kind == ERSPAN:
        return identifier, "gre", lambda: ethernet(inside.after(8 if sequence else 0))
    if kind == ERSPAN_3:
        return identifier, "gre", lambda: ethernet(inside.after(20 if inside.first(12)[11] & 1 else 12))
    if kind == PPP_IN_GRE:
        return identifier, "gre", lambda: ppp_or_hdlc(inside)
    return identifier, "gre", lambda: bridged_or(kind, inside)


def pptp(part: Part) -> Tunnel:
    """RFC 2637, 4.1: a key of payload length and call, and no checksum or routing."""
    flags, kind, length, call = struct.unpack(">HHHH", part.first(8))
    if flags & 0xE000 != 0x2000 or kind != PPP_IN_GRE or not length:
        raise Skip("not_ip")
    size = 8 + 4 * bool(flags & 0x1000) + 4 * bool(flags & 0x0080)
    return call, "pptp", lambda: ppp_or_hdlc(part.after(size))


def vxlan_gpe(part: Part) -> Tunnel:
    """draft-ietf-nvo3-vxlan-gpe, 3.1."""
    flags, following, word = struct.unpack(">BxxBI", part.first(8))
    if flags & 0x31 or not flags & 0x04:  # version, OAM; next protocol
        raise Skip("not_ip")
    inside = part.after(8)
    identifier = word >> 8 if flags & 0x08 else None
    readers: dict[int, Callable[[], Datagram]] = {
        1: lambda: (4, inside), 2: lambda: (6, inside), 3: lambda: ethernet(inside), 5: lambda: mpls(inside),
    }  # fmt: skip
    if following not in readers:
        raise Skip("not_ip")
    return identifier, "vxlan_gpe", readers[following]


def gtp_u(part: Part) -> Tunnel:
    """3GPP TS 29.281, 5.1 and 5.2."""
    flags, message, identifier = struct.unpack(">BBxxI", part.first(8))
    if flags >> 4 != 3 or message != G_PDU:  # version 1, GTP and not GTP'
        raise Skip("not_ip")
    part = part.after(8)
    if flags & 7:
        following = part.first(4)[3] if flags & 4 else 0
        part = part.after(4)
        while following:
            size = 4 * part.first(1)[0]
            if not size:
                raise Skip("not_ip")
            following = part.first(size)[-1]
            part = part.after(size)
    return identifier, "gtp_u", lambda: by_version(part)


def vxlan(part: Part) -> Tunnel:
    """RFC 7348, 5."""
    flags, identifier = struct.unpack(">B3xI", part.first(8))
    if not flags & 0x08:
        raise Skip("not_ip")
    return identifier >> 8, "vxlan", lambda: ethernet(part.after(8))


def geneve(part: Part) -> Tunnel:
    """RFC 8926, 3.4."""
    first, kind, identifier = struct.unpack(">BxHI", part.first(8))
    if first >> 6 != 0:
        raise Skip("not_ip")
    return identifier >> 8, "geneve", lambda: bridged_or(kind, part.after(8 + 4 * (first & 0x3F)))


def bridged_or(kind: int, part: Part) -> Datagram:
    """An Ethernet frame, or the header that the EtherType names."""
    return ethernet(part) if kind == BRIDGED else of_ethertype(no_length(kind), part)
