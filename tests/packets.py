"""Frames and capture files made by hand. Each builder wraps a payload of bytes in one header."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from ipaddress import ip_address

ETHERNET, SLL, SLL2, RAW, NULL = 1, 113, 276, 101, 0
IPV4, IPV6, ARP, VLAN, SERVICE_VLAN = 0x0800, 0x86DD, 0x0806, 0x8100, 0x88A8
ICMP, TCP, UDP = 1, 6, 17
FIN, SYN, RST, PUSH, ACK = 1, 2, 4, 8, 16
MAGIC = {1000: 0xA1B2C3D4, 1: 0xA1B23C4D}

TIMESTAMPS = b"\x01\x01\x08\x0a" + bytes(8)  # the TCP options of nearly every Linux segment


@dataclass(frozen=True)
class Record:
    """A packet on its way into a file. wire: its original length where that is not the frame's."""

    time_ns: int
    frame: bytes
    wire: int | None = None


def pcap(
    records: Iterable[Record], order: str = "<", tick_ns: int = 1000, snaplen: int = 262144, link: int = ETHERNET
) -> bytes:
    """A whole file; frames are cut to the snaplen."""
    file = struct.pack(order + "IHHiIII", MAGIC[tick_ns], 2, 4, 0, 0, snaplen, link)
    return file + b"".join(record_bytes(record, order, tick_ns, snaplen) for record in records)


def record_bytes(record: Record, order: str = "<", tick_ns: int = 1000, snaplen: int = 262144) -> bytes:
    seconds, fraction = divmod(record.time_ns, 10**9)
    captured = record.frame[:snaplen]
    return struct.pack(order + "4I", seconds, fraction // tick_ns, len(captured), wire_length(record)) + captured


def ethernet(payload: bytes, kind: int = IPV4, tags: Sequence[int] = ()) -> bytes:
    """tags: EtherTypes of the VLAN tags, outermost first."""
    stack = b"".join(type_of(tag) + b"\0\7" for tag in tags)
    return b"\2\0\0\0\0\1" + b"\2\0\0\0\0\2" + stack + type_of(kind) + payload


def sll(payload: bytes, kind: int = IPV4) -> bytes:
    return struct.pack(">HHH8s", 0, 1, 6, b"\2\0\0\0\0\1") + type_of(kind) + payload


def sll2(payload: bytes, kind: int = IPV4, interface: int = 3) -> bytes:
    return type_of(kind) + struct.pack(">HIHBB8s", 0, interface, 1, 0, 6, b"\2\0\0\0\0\1") + payload


def null(payload: bytes, kind: int = IPV4) -> bytes:
    """Family in little endian, as macOS writes it."""
    return struct.pack("<I", 30 if kind == IPV6 else 2) + payload


def raw(payload: bytes, kind: int = IPV4) -> bytes:
    """No link header; `kind` is there to be like the others."""
    return payload


def ipoib(payload: bytes, kind: int = IPV4) -> bytes:
    """40 bytes of addresses, as libpcap has them, and the header of RFC 4391, 6."""
    return bytes(range(40)) + type_of(kind) + bytes(2) + payload


def ppp(payload: bytes, kind: int = IPV4, framed: bool = True) -> bytes:
    protocol = {IPV4: 0x0021, IPV6: 0x0057, 0x8847: 0x0281}.get(kind, kind)
    return b"\xff\3" * framed + type_of(protocol) + payload


def ppp_compressed(payload: bytes, kind: int = IPV4) -> bytes:
    """Without address and control, and a protocol of one byte."""
    return bytes([0x57 if kind == IPV6 else 0x21]) + payload


def chdlc(payload: bytes, kind: int = IPV4) -> bytes:
    return b"\x0f\0" + type_of(kind) + payload


def snap(payload: bytes, kind: int = IPV4, organization: bytes = bytes(3)) -> bytes:
    return b"\xaa\xaa\3" + organization + type_of(kind) + payload


def ethernet_llc(payload: bytes, kind: int = IPV4, tags: Sequence[int] = ()) -> bytes:
    """IEEE 802.3 with a length, and SNAP."""
    body = snap(payload, kind)
    return ethernet(body, min(len(body), 1500), tags)


def ppi(frame: bytes, link: int = ETHERNET, fields: bytes = b"") -> bytes:
    return struct.pack("<BBHI", 0, 0, 8 + len(fields), link) + fields + frame


def nflog(payload: bytes, kind: int = IPV4, order: str = "<") -> bytes:
    def value(number: int, content: bytes) -> bytes:
        return struct.pack(order + "HH", 4 + len(content), number) + padded(content)

    return bytes([10 if kind == IPV6 else 2, 0, 0, 7]) + value(1, bytes(4)) + value(10, b"pre\0") + value(9, payload)


def type_of(kind: int) -> bytes:
    return struct.pack(">H", kind)


def arp() -> bytes:
    return ethernet(struct.pack(">HHBBH20x", 1, IPV4, 6, 4, 1), ARP)


def ipv4(
    payload: bytes,
    source: str = "10.0.0.1",
    destination: str = "10.0.0.2",
    protocol: int = TCP,
    options: bytes = b"",
    total: int | None = None,
    fragment: int = 0,
    more: bool = False,
    identification: int = 1,
) -> bytes:
    """total: the length in the header where it is not the true one (its lower 16 bits). fragment: offset in bytes."""
    size = 20 + len(options)
    total = size + len(payload) if total is None else total
    ends = ip_address(source).packed + ip_address(destination).packed
    offset = more << 13 | fragment // 8
    header = struct.pack(">BBHHHBBH", 4 << 4 | size // 4, 0, total & 0xFFFF, identification, offset, 64, protocol, 0)
    return header + ends + options + payload


def ipv6(
    payload: bytes,
    source: str = "fd00::1",
    destination: str = "fd00::2",
    protocol: int = TCP,
    extensions: Sequence[tuple[int, bytes]] = (),
    length: int | None = None,
) -> bytes:
    """extensions: number and bytes of each extension header, whose first byte is filled in here."""
    kinds = [*(kind for kind, _ in extensions), protocol]
    chain = b"".join(bytes([after]) + body[1:] for after, (_, body) in zip(kinds[1:], extensions, strict=True))
    length = len(chain) + len(payload) if length is None else length
    ends = ip_address(source).packed + ip_address(destination).packed
    return struct.pack(">IHBB", 6 << 28, length & 0xFFFF, kinds[0], 64) + ends + chain + payload


def hop_by_hop(units: int = 0) -> tuple[int, bytes]:
    """units: of 8 bytes, beyond the first."""
    return 0, bytes([0, units]) + bytes(6 + 8 * units)


def destination_options(units: int = 0) -> tuple[int, bytes]:
    return 60, bytes([0, units]) + bytes(6 + 8 * units)


def authentication(units: int = 4) -> tuple[int, bytes]:
    """units: of 4 bytes, beyond the first two."""
    return 51, bytes([0, units]) + bytes(6 + 4 * units)


def fragment_header(offset: int = 0, more: bool = False, identification: int = 99) -> tuple[int, bytes]:
    """offset in bytes, a multiple of 8."""
    return 44, struct.pack(">BBHI", 0, 0, offset | more, identification)


def tcp(
    payload: bytes = b"", source: int = 40000, destination: int = 5000, seq: int = 0, flags: int = ACK,
    options: bytes = b"", acknowledgement: int = 0, window: int = 0,
) -> bytes:  # fmt: skip
    offset = (20 + len(options)) // 4 << 4
    header = struct.pack(">HHIIBBHHH", source, destination, seq % 2**32, acknowledgement, offset, flags, window, 0, 0)
    return header + options + payload


def udp(payload: bytes = b"", source: int = 40000, destination: int = 5000) -> bytes:
    return struct.pack(">HHHH", source, destination, (8 + len(payload)) & 0xFFFF, 0) + payload


def icmp(payload: bytes = b"") -> bytes:
    return struct.pack(">BBHI", 8, 0, 0, 0) + payload


def segment(payload: int = 100, seq: int = 0, flags: int = ACK, **ends: int) -> bytes:
    """An Ethernet frame with `payload` bytes from 10.0.0.1:40000 to 10.0.0.2:5000."""
    return ethernet(ipv4(tcp(bytes(payload), seq=seq, flags=flags, **ends)))


# --- pcapng

SECTION, INTERFACE, OLD_PACKET, SIMPLE_PACKET, NAMES, STATISTICS, ENHANCED_PACKET = 0x0A0D0D0A, 1, 2, 3, 4, 5, 6
RESOLUTION, OFFSET = 9, 14  # options of an interface


@dataclass(frozen=True)
class Section:
    """The blocks of one section of a pcapng; its methods make blocks in its byte order."""

    order: str = "<"

    def block(self, kind: int, body: bytes) -> bytes:
        length = struct.pack(self.order + "I", 12 + len(body) + -len(body) % 4)
        return struct.pack(self.order + "I", kind) + length + padded(body) + length

    def begin(self, major: int = 1, length: int = -1) -> bytes:
        return self.block(SECTION, struct.pack(self.order + "IHHq", 0x1A2B3C4D, major, 0, length))

    def options(self, *options: tuple[int, bytes]) -> bytes:
        """Codes and values; with the end of options where there are any."""
        each = [struct.pack(self.order + "HH", code, len(value)) + padded(value) for code, value in options]
        return b"".join(each) + (bytes(4) if options else b"")

    def interface(
        self, link: int = ETHERNET, snaplen: int = 262144, resolution: int | None = None, offset: int | None = None
    ) -> bytes:
        """resolution: if_tsresol as it is written; offset: if_tsoffset in seconds."""
        options = [(2, b"eth0")]
        if resolution is not None:
            options.append((RESOLUTION, bytes([resolution])))
        if offset is not None:
            options.append((OFFSET, struct.pack(self.order + "q", offset)))
        return self.block(INTERFACE, struct.pack(self.order + "HHI", link, 0, snaplen) + self.options(*options))

    def statistics(self, *counts: tuple[int, int], interface: int = 0) -> bytes:
        """counts: option and its number, 64 bits."""
        options = [(code, struct.pack(self.order + "Q", count)) for code, count in counts]
        return self.block(STATISTICS, struct.pack(self.order + "III", interface, 0, 0) + self.options(*options))

    def enhanced(self, ticks: int, frame: bytes, wire: int | None = None, interface: int = 0) -> bytes:
        sizes = len(frame), len(frame) if wire is None else wire
        body = struct.pack(self.order + "5I", interface, ticks >> 32, ticks & 0xFFFFFFFF, *sizes) + padded(frame)
        return self.block(ENHANCED_PACKET, body + self.options((2, bytes(4))))

    def simple(self, frame: bytes, wire: int | None = None) -> bytes:
        return self.block(SIMPLE_PACKET, struct.pack(self.order + "I", len(frame) if wire is None else wire) + frame)

    def old(self, ticks: int, frame: bytes, wire: int | None = None, interface: int = 0) -> bytes:
        sizes = len(frame), len(frame) if wire is None else wire
        body = struct.pack(self.order + "HH4I", interface, 7, ticks >> 32, ticks & 0xFFFFFFFF, *sizes)
        return self.block(OLD_PACKET, body + frame)


def padded(body: bytes) -> bytes:
    return body + bytes(-len(body) % 4)


def pcapng(records: Iterable[Record], order: str = "<", snaplen: int = 262144, link: int = ETHERNET) -> bytes:
    """A whole file with one section and one interface, in nanoseconds; frames are cut to the snaplen."""
    section = Section(order)
    packets = [section.enhanced(each.time_ns, each.frame[:snaplen], wire_length(each)) for each in records]
    return section.begin() + section.interface(link, snaplen, 9) + b"".join(packets)


def wire_length(record: Record) -> int:
    return len(record.frame) if record.wire is None else record.wire


# --- between Ethernet and IP

MPLS, PPPOE = 0x8847, 0x8864


PSEUDOWIRE_LABEL = 17


def mpls(payload: bytes, labels: int = 1, label: int = 16) -> bytes:
    """RFC 3032: label, bottom bit, time to live."""
    return b"".join(struct.pack(">I", label << 12 | (i == labels - 1) << 8 | 64) for i in range(labels)) + payload


def pseudowire(frame: bytes, labels: int = 1) -> bytes:
    """An Ethernet frame after a control word (RFC 4448)."""
    return mpls(bytes(4) + frame, labels, PSEUDOWIRE_LABEL)


def pppoe(payload: bytes, kind: int = IPV4) -> bytes:
    protocol = {IPV4: 0x0021, IPV6: 0x0057}.get(kind, kind)
    return struct.pack(">BBHHH", 0x11, 0, 1, 2 + len(payload), protocol) + payload


# --- tunnels: payloads of IP or UDP

IPIP, IPV6_IN_IP, GRE = 4, 41, 47
BRIDGED, ERSPAN, ERSPAN_3 = 0x6558, 0x88BE, 0x22EB
VXLAN_PORT, VXLAN_LINUX_PORT, GENEVE_PORT, ROCE_PORT = 4789, 8472, 6081, 4791


def gre(
    payload: bytes, kind: int = IPV4, key: int | None = None, checksum: bool = False, sequence: int | None = None,
    flags: int = 0,
) -> bytes:  # fmt: skip
    """flags: more of them than key, checksum and sequence call for."""
    header = b"" if not checksum else bytes(4)
    header += b"" if key is None else struct.pack(">I", key)
    header += b"" if sequence is None else struct.pack(">I", sequence)
    flags |= checksum << 15 | (key is not None) << 13 | (sequence is not None) << 12
    return struct.pack(">HH", flags, kind) + header + payload


def erspan(frame: bytes, version: int, subheader: bool = False) -> bytes:
    """GRE with a mirrored frame. version: 1, 2 or 3; subheader: of version 3, 8 bytes."""
    if version == 1:
        return gre(frame, ERSPAN)
    if version == 2:
        return gre(struct.pack(">HHI", 1 << 12, 5, 0) + frame, ERSPAN, sequence=1)
    return gre(struct.pack(">HHIHH", 2 << 12, 5, 0, 0, subheader) + bytes(8 * subheader) + frame, ERSPAN_3, sequence=1)


def vxlan(frame: bytes, vni: int = 7, flags: int = 8) -> bytes:
    return struct.pack(">BxxxI", flags, vni << 8) + frame


def geneve(payload: bytes, kind: int = BRIDGED, vni: int = 7, options: bytes = b"", version: int = 0) -> bytes:
    """options: a multiple of 4 bytes."""
    return struct.pack(">BBHI", version << 6 | len(options) // 4, 0, kind, vni << 8) + options + payload


PPP_IN_GRE, VXLAN_GPE_PORT, GTP_U_PORT = 0x880B, 4790, 2152


def pptp(payload: bytes, call: int = 7, sequence: int | None = 1, acknowledged: int | None = None) -> bytes:
    """RFC 2637: enhanced GRE."""
    flags = 0x2001 | (sequence is not None) << 12 | (acknowledged is not None) << 7
    numbers = b"".join(struct.pack(">I", number) for number in (sequence, acknowledged) if number is not None)
    return struct.pack(">HHHH", flags, PPP_IN_GRE, len(payload), call) + numbers + payload


def vxlan_gpe(payload: bytes, following: int, vni: int = 7, flags: int = 0x0C) -> bytes:
    return struct.pack(">BxxBI", flags, following, vni << 8) + payload


def gtp_u(payload: bytes, identifier: int = 7, flags: int = 0x30, message: int = 255, more: bytes = b"") -> bytes:
    """more: the optional fields and extension headers that the flags announce."""
    return struct.pack(">BBHI", flags, message, len(more) + len(payload), identifier) + more + payload


def roce(payload: bytes = b"", opcode: int = 4, queue_pair: int = 0x123456, number: int = 0, pad: int = 0) -> bytes:
    """Base transport header, and the checksum after the payload, which has the extended headers and the pad."""
    return struct.pack(">BBHII", opcode, pad << 4, 0xFFFF, queue_pair, number % 2**24) + payload + bytes(4)


ROCE_V1 = 0x8915


def route_header(payload: bytes, source: str = "fd00::1", destination: str = "fd00::2", following: int = 27) -> bytes:
    """InfiniBand's global route header and what follows it; addresses are GIDs."""
    return ipv6(payload, source, destination, following)


def local_route(payload: bytes, following: int, ends: tuple[int, int] = (0x11, 0x22), size: int | None = None) -> bytes:
    """InfiniBand's local route header, what follows it, and the checksum of the link.

    following: 0 a raw header, 1 IPv6, 2 a base transport header, 3 a global route header. ends: LIDs of source and
    destination. size: bytes that the header says.
    """
    words = (8 + len(payload) if size is None else size) // 4
    return struct.pack(">BBHHH", 0, following, ends[1], words, ends[0]) + payload + b"\xaa\xbb"


def infiniband(packet: bytes, kind: int = IPV4) -> bytes:
    """An IP packet in InfiniBand's raw packets, of which those of IPv6 have a number of their own."""
    if kind == IPV6:
        return local_route(packet, 1)
    return local_route(bytes(2) + type_of(kind) + packet, 0)


def erf(frame: bytes, kind: int, time_ns: int = 0, extensions: int = 0) -> bytes:
    """A record of Endace's format, with the two bytes that stand before Ethernet. extensions: headers of 8 bytes."""
    more = b"".join(bytes([0x80 * (i + 1 < extensions) | 5]) + bytes(7) for i in range(extensions))
    body = bytes(2) * (kind in (2, 11, 16, 20)) + frame
    head = struct.pack(">BBHHH", kind | 0x80 * (extensions > 0), 4, 16 + len(more) + len(body), 0, len(frame))
    return erf_time(time_ns) + head + more + body


def erf_time(time_ns: int) -> bytes:
    """Seconds and 2^-32 of them, in little endian."""
    return struct.pack("<II", ((time_ns % 10**9) << 32) // 10**9, time_ns // 10**9)


def erf_ethernet(packet: bytes, kind: int = IPV4) -> bytes:
    return erf(ethernet(packet, kind), 2)


def mss_option(size: int) -> bytes:
    return b"\x02\x04" + struct.pack(">H", size)


def scale_option(shift: int) -> bytes:
    return b"\1\3\3" + bytes([shift])


# --- fragments


def fragments(
    body: bytes, sizes: Sequence[int], protocol: int = UDP, identification: int = 1, six: bool = False, **ends: str
) -> list[bytes]:
    """IP packets with the pieces of a datagram's payload. sizes: bytes of all but the last, multiples of 8."""
    starts = [0, *(sum(sizes[: i + 1]) for i in range(len(sizes)))]
    packets = []
    for start, end in zip(starts, [*starts[1:], len(body)], strict=True):
        piece, more = body[start:end], end < len(body)
        if six:
            header = fragment_header(start, more, identification)
            packets.append(ipv6(piece, protocol=protocol, extensions=[header], **ends))
        else:
            packets.append(
                ipv4(piece, protocol=protocol, fragment=start, more=more, identification=identification, **ends)
            )
    return packets
