"""Capture files in plain Python: records of a pcap (draft-ietf-opsawg-pcap) or pcapng (draft-ietf-opsawg-pcapng)."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

PCAP = {  # magic number as it lies in the file -> byte order, nanoseconds a tick
    b"\xd4\xc3\xb2\xa1": ("<", 1000), b"\xa1\xb2\xc3\xd4": (">", 1000),
    b"\x4d\x3c\xb2\xa1": ("<", 1), b"\xa1\xb2\x3c\x4d": (">", 1),
}  # fmt: skip
FILE_HEADER, RECORD_HEADER = 24, 16
MOST_CAPTURED, MOST_SNAPLEN = 262144, 1 << 24  # a longer record is damage, unless the file's snaplen allows it

SECTION = b"\x0a\x0d\x0d\x0a"
SECTION_ORDERS = {b"\x4d\x3c\x2b\x1a": "<", b"\x1a\x2b\x3c\x4d": ">"}
SECTION_HEADER, INTERFACE, OLD_PACKET, SIMPLE_PACKET, ENHANCED_PACKET = 0x0A0D0D0A, 1, 2, 3, 6
LONGEST_BLOCK = 1 << 24
END_OF_OPTIONS, RESOLUTION, OFFSET = 0, 9, 14
LAST_TIME = 2**63 - 1


class Damage(Exception):
    """The file cannot be read further; the argument is its status: truncated or corrupt."""


@dataclass(frozen=True)
class Record:
    """A packet in a file. wire: its length on the wire. timed: whether the time is its own."""

    time: int
    wire: int
    captured: bytes
    link: int
    timed: bool = True


@dataclass(frozen=True)
class Interface:
    """An interface of a pcapng. Its resolution, 10^-n or 2^-n s, is 1 / ticks_a_second; offset in seconds."""

    link: int
    snaplen: int
    ticks_a_second: int
    offset: int

    def time(self, ticks: int) -> int | None:
        time = ticks * 10**9 // self.ticks_a_second + self.offset * 10**9
        return time if 0 <= time <= LAST_TIME else None


def records(data: bytes) -> tuple[list[Record], str, int]:
    """All records up to the first damage, the file's status, and the offset of the first byte that is in no record."""
    found: list[tuple[Record | None, int]] = [(None, 0)]
    status = "complete"
    try:
        for record_and_end in pcapng(data) if data[:4] == SECTION else pcap(data):
            found.append(record_and_end)  # records before the damage count
    except Damage as damage:
        status = str(damage)
    return [record for record, _ in found if record], status, found[-1][1]


def pcap(data: bytes) -> Iterator[tuple[Record | None, int]]:
    """Records and where they end; first None and the end of the file header."""
    if data[:4] not in PCAP:
        begun = len(data) < 4 and any(magic.startswith(data) for magic in [*PCAP, SECTION])
        raise Damage("truncated" if begun else "corrupt")
    if len(data) < FILE_HEADER:
        raise Damage("truncated")
    order, tick_ns = PCAP[data[:4]]
    major, snaplen, link = struct.unpack_from(order + "4xH10xII", data)
    if major != 2:
        raise Damage("corrupt")
    most_captured = max(MOST_CAPTURED, min(snaplen, MOST_SNAPLEN))
    at = FILE_HEADER
    yield None, at
    while at < len(data):
        if len(data) - at < RECORD_HEADER:
            raise Damage("truncated")
        seconds, ticks, captured, wire = struct.unpack_from(order + "4I", data, at)
        if captured > most_captured or not any((seconds, ticks, captured, wire)):
            raise Damage("corrupt")
        at += RECORD_HEADER + captured
        if at > len(data):
            raise Damage("truncated")
        yield Record(seconds * 10**9 + ticks * tick_ns, wire, data[at - captured : at], link & 0xFFFF), at


def pcapng(data: bytes) -> Iterator[tuple[Record | None, int]]:
    """Records and where their blocks end, and None and the ends of the other blocks."""
    order, interfaces, time = "<", [], 0
    at = 0
    while at < len(data):
        order, kind, body = block(data, at, order)
        record = None
        if kind == SECTION_HEADER:
            interfaces = []
            (version,) = fields(order + "4xH10x", body)
            if version != 1:
                raise Damage("corrupt")
        elif kind == INTERFACE:
            interfaces.append(interface(order, body))
        elif kind == ENHANCED_PACKET:
            number, high, low, captured, wire = fields(order + "5I", body)
            record = packet(interfaces, time, number, high << 32 | low, captured, wire, body[20:])
        elif kind == OLD_PACKET:
            number, high, low, captured, wire = fields(order + "H2x4I", body)
            record = packet(interfaces, time, number, high << 32 | low, captured, wire, body[20:])
        elif kind == SIMPLE_PACKET:
            (wire,) = fields(order + "I", body)
            record = simple_packet(interfaces, time, wire, body[4:])
        if record:
            time = record.time
        at += len(body) + 12
        yield record, at


def block(data: bytes, at: int, order: str) -> tuple[str, int, bytes]:
    """Byte order (of the section that begins, or goes on), type and body of the block at `at`."""
    if len(data) - at < 8:
        raise Damage("truncated")
    if data[at : at + 4] == SECTION:
        magic = data[at + 8 : at + 12]
        if len(magic) < 4:
            raise Damage("truncated")
        if magic not in SECTION_ORDERS:
            raise Damage("corrupt")
        order = SECTION_ORDERS[magic]
    kind, length = struct.unpack_from(order + "II", data, at)
    if not 12 <= length <= LONGEST_BLOCK or length % 4:
        raise Damage("corrupt")
    if at + length > len(data):
        raise Damage("truncated")
    if struct.unpack_from(order + "I", data, at + length - 4) != (length,):
        raise Damage("corrupt")
    return order, kind, data[at + 8 : at + length - 4]


def fields(form: str, body: bytes) -> tuple[int, ...]:
    """The fields that every block of its type begins with."""
    if len(body) < struct.calcsize(form):
        raise Damage("corrupt")
    return struct.unpack_from(form, body)


def interface(order: str, body: bytes) -> Interface:
    link, snaplen = fields(order + "H2xI", body)
    ticks_a_second, offset = 10**6, 0
    for code, value in options(order, body[8:]):
        if code == RESOLUTION and len(value) == 1:
            ticks_a_second = 2 ** (value[0] & 0x7F) if value[0] & 0x80 else 10 ** value[0]
        if code == OFFSET and len(value) == 8:
            (offset,) = struct.unpack(order + "q", value)
    return Interface(link, snaplen, ticks_a_second, offset)


def options(order: str, body: bytes) -> Iterator[tuple[int, bytes]]:
    """Codes and values, up to the end or to an incomplete option."""
    at = 0
    while at + 4 <= len(body):
        code, length = struct.unpack_from(order + "HH", body, at)
        value = body[at + 4 : at + 4 + length]
        if code == END_OF_OPTIONS or len(value) < length:
            return
        yield code, value
        at += 4 + length + -length % 4


def packet(
    interfaces: list[Interface], before: int, number: int, ticks: int, captured: int, wire: int, rest: bytes
) -> Record:
    """before: time of the packet before, which one without a valid time gets."""
    if number >= len(interfaces) or captured > len(rest):
        raise Damage("corrupt")
    time = interfaces[number].time(ticks)
    timed = time is not None
    return Record(before if time is None else time, wire, rest[:captured], interfaces[number].link, timed)


def simple_packet(interfaces: list[Interface], time: int, wire: int, rest: bytes) -> Record:
    """A packet of interface 0 without a time of its own. A snaplen of 0 is no limit."""
    if not interfaces:
        raise Damage("corrupt")
    captured = min(wire, interfaces[0].snaplen or wire)
    if captured > len(rest):
        raise Damage("corrupt")
    return Record(time, wire, rest[:captured], interfaces[0].link, timed=False)
