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
    wire = len(record.frame) if record.wire is None else record.wire
    captured = record.frame[:snaplen]
    return struct.pack(order + "4I", seconds, fraction // tick_ns, len(captured), wire) + captured


def ethernet(payload: bytes, kind: int = IPV4, tags: Sequence[int] = ()) -> bytes:
    """tags: EtherTypes of the VLAN tags, outermost first."""
    stack = b"".join(type_of(tag) + b"\0\7" for tag in tags)
    return b"\2\0\0\0\0\1" + b"\2\0\0\0\0\2" + stack + type_of(kind) + payload


def sll(payload: bytes, kind: int = IPV4) -> bytes:
    return struct.pack(">HHH8s", 0, 1, 6, b"\2\0\0\0\0\1") + type_of(kind) + payload


def sll2(payload: bytes, kind: int = IPV4) -> bytes:
    return type_of(kind) + struct.pack(">HIHBB8s", 0, 3, 1, 0, 6, b"\2\0\0\0\0\1") + payload


def null(payload: bytes, kind: int = IPV4) -> bytes:
    """Family in little endian, as macOS writes it."""
    return struct.pack("<I", 30 if kind == IPV6 else 2) + payload


def raw(payload: bytes, kind: int = IPV4) -> bytes:
    """No link header; `kind` is there to be like the others."""
    return payload


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
) -> bytes:
    """total: the length in the header where it is not the true one (16 bits of it). fragment: offset in bytes."""
    size = 20 + len(options)
    total = size + len(payload) if total is None else total
    ends = ip_address(source).packed + ip_address(destination).packed
    offset = more << 13 | fragment // 8
    header = struct.pack(">BBHHHBBH", 4 << 4 | size // 4, 0, total & 0xFFFF, 1, offset, 64, protocol, 0)
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


def fragment_header(offset: int = 0, more: bool = False) -> tuple[int, bytes]:
    """offset in bytes, a multiple of 8."""
    return 44, struct.pack(">BBHI", 0, 0, offset | more, 99)


def tcp(
    payload: bytes = b"", source: int = 40000, destination: int = 5000, seq: int = 0, flags: int = ACK,
    options: bytes = b"",
) -> bytes:  # fmt: skip
    offset = (20 + len(options)) // 4 << 4
    header = struct.pack(">HHIIBBHHH", source, destination, seq % 2**32, 0, offset, flags, 0, 0, 0)
    return header + options + payload


def udp(payload: bytes = b"", source: int = 40000, destination: int = 5000) -> bytes:
    return struct.pack(">HHHH", source, destination, (8 + len(payload)) & 0xFFFF, 0) + payload


def icmp(payload: bytes = b"") -> bytes:
    return struct.pack(">BBHI", 8, 0, 0, 0) + payload


def segment(payload: int = 100, seq: int = 0, flags: int = ACK, **ends: int) -> bytes:
    """An Ethernet frame with `payload` bytes from 10.0.0.1:40000 to 10.0.0.2:5000."""
    return ethernet(ipv4(tcp(bytes(payload), seq=seq, flags=flags, **ends)))
