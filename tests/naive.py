"""The packet loop said plainly: one packet at a time, one function a header. Slow, and meant to be read.

tests/test_packet_loop.py holds the numba engine against it. Written from draft-ietf-opsawg-pcap, the RFCs named below
and the column meanings in schemas/, not from the loop.
"""

from __future__ import annotations

import bisect
import struct
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Any

NO_STEP = -2
NANOSECONDS = {0xA1B2C3D4: 1000, 0xA1B23C4D: 1}  # magic number -> length of a tick
FILE_HEADER, RECORD_HEADER = 24, 16
MOST_CAPTURED, MOST_SNAPLEN = 262144, 1 << 24  # a longer record is damage, unless the file's snaplen allows it

ETHERTYPES = {0x0800: 4, 0x86DD: 6}
VLAN_TAGS = {0x8100, 0x88A8, 0x9100}
HOP_BY_HOP, TCP, UDP, ROUTING, FRAGMENT, AUTHENTICATION, DESTINATION, MOBILITY = 0, 6, 17, 43, 44, 51, 60, 135
FIN, SYN, RST, ACK = 1, 2, 4, 16

Key = tuple[str, str, int, int, int]  # source, destination, protocol, source port, destination port


class Skip(Exception):
    """The packet is in no flow; the argument says why."""


@dataclass(frozen=True)
class Part:
    """What is left of a frame behind some header: the captured bytes, and the length it had on the wire."""

    captured: bytes
    length: int

    def first(self, size: int) -> bytes:
        if len(self.captured) < size:
            raise Skip("cut_short")
        return self.captured[:size]

    def behind(self, size: int) -> Part:
        return Part(self.captured[size:], self.length - size)


@dataclass(frozen=True)
class Packet:
    """A packet that belongs to a flow. tcp: sequence number and flags, None where they are not there."""

    key: Key
    ip_bytes: int
    payload: int
    tcp: tuple[int, int] | None = None


@dataclass
class Facts:
    """What facts.CaptureFacts says, with cells added up: (flow key, window, step) -> [packets, wire, payload]."""

    flows: dict[Key, dict[str, Any]] = field(default_factory=dict)
    cells: dict[tuple[Key, int, int], list[int]] = field(default_factory=dict)
    skipped: dict[str, tuple[int, int]] = field(default_factory=dict)
    records: int = 0
    wire_bytes: int = 0
    first_ns: int | None = None
    last_ns: int | None = None
    trailing_bytes: int = 0
    status: str = "complete"


def read(data: bytes, window_ns: int, bounds: list[int]) -> Facts:
    """Facts of a whole pcap. bounds: begin of the first step and the end of each, in order; empty: no log."""
    order = "<" if struct.unpack_from("<I", data)[0] in NANOSECONDS else ">"
    magic, snaplen, link = struct.unpack_from(order + "I12xII", data)
    most_captured = max(MOST_CAPTURED, min(snaplen, MOST_SNAPLEN))
    facts, next_sequence = Facts(), {}
    at = FILE_HEADER
    while at < len(data):
        if len(data) - at < RECORD_HEADER:
            facts.status = "truncated"
            break
        seconds, ticks, captured, wire = struct.unpack_from(order + "4I", data, at)
        if captured > most_captured:
            facts.status = "corrupt"
            break
        end = at + RECORD_HEADER + captured
        if end > len(data):
            facts.status = "truncated"
            break
        frame = Part(data[at + RECORD_HEADER : end], wire)
        time = seconds * 10**9 + ticks * NANOSECONDS[magic]
        count_record(facts, time, wire)
        try:
            packet = parse(frame, link & 0xFFFF)
        except Skip as reason:
            packets, skipped_wire = facts.skipped.get(str(reason), (0, 0))
            facts.skipped[str(reason)] = (packets + 1, skipped_wire + wire)
        else:
            count_packet(facts, packet, time, frame)
            count_cell(facts, packet, time // window_ns, step_of(time, bounds), wire)
            if packet.tcp:
                count_segment(facts.flows[packet.key], next_sequence, packet)
        at = end
    facts.trailing_bytes = len(data) - at
    return facts


def parse(frame: Part, link: int) -> Packet:
    """Link header, IP header, ports."""
    version, datagram = link_payload(frame, link)
    return ipv4(datagram) if version == 4 else ipv6(datagram)


def link_payload(frame: Part, link: int) -> tuple[int, Part]:
    """IP version and datagram in a frame (tcpdump.org/linktypes)."""
    if link == 1:  # Ethernet
        return by_ethertype(frame.behind(12), 2)
    if link == 113:  # Linux cooked
        return by_ethertype(frame.behind(14), 2)
    if link == 276:  # Linux cooked 2, where the type comes first
        return by_ethertype(frame, 20)
    if link in (0, 108):  # BSD loopback: four bytes of address family, whose numbers differ by system
        return by_version(frame.behind(4))
    if link in (12, 14, 101, 228, 229):  # raw IP
        return by_version(frame)
    raise Skip("unknown_link_type")


def by_ethertype(part: Part, size: int) -> tuple[int, Part]:
    """The EtherType at the begin of `part` and what it stands for, `size` bytes on; VLAN tags (802.1Q) skipped."""
    (ethertype,) = struct.unpack(">H", part.first(2))
    part = part.behind(size)
    while ethertype in VLAN_TAGS:
        (ethertype,) = struct.unpack(">2xH", part.first(4))
        part = part.behind(4)
    if ethertype not in ETHERTYPES:
        raise Skip("not_ip")
    return ETHERTYPES[ethertype], part


def by_version(part: Part) -> tuple[int, Part]:
    version = part.first(1)[0] >> 4
    if version not in (4, 6):
        raise Skip("not_ip")
    return version, part


def ipv4(datagram: Part) -> Packet:
    """RFC 791, 3.1."""
    header = datagram.first(20)
    first, total, fragment, protocol, source, destination = struct.unpack(">BxH2xHxB2x4s4s", header)
    size = (first & 15) * 4
    ip_bytes = datagram_bytes(total, datagram.length, total == 0)
    if first >> 4 != 4 or not 20 <= size <= ip_bytes:
        raise Skip("malformed")
    return transport(datagram.behind(size), protocol, source, destination, ip_bytes, size, (fragment & 0x1FFF) > 0)


def ipv6(datagram: Part) -> Packet:
    """RFC 8200, 3 and 4; RFC 4302, 2.2 for the length of the authentication header."""
    first, length, following, source, destination = struct.unpack(">B3xHBx16s16s", datagram.first(40))
    if first >> 4 != 6:
        raise Skip("malformed")
    ip_bytes = datagram_bytes(40 + length, datagram.length, length == 0, most=40 + 0xFFFF)
    rest, size, later = datagram.behind(40), 40, False
    while following in (HOP_BY_HOP, ROUTING, FRAGMENT, AUTHENTICATION, DESTINATION, MOBILITY) and not later:
        kind = following
        following, length, offset = struct.unpack(">BBH4x", rest.first(8))
        later = kind == FRAGMENT and offset >> 3 > 0
        extension = {FRAGMENT: 8, AUTHENTICATION: 4 * (length + 2)}.get(kind, 8 * (length + 1))
        rest, size = rest.behind(extension), size + extension
    if size > ip_bytes:
        raise Skip("malformed")
    return transport(rest, following, source, destination, ip_bytes, size, later)


def datagram_bytes(said: int, on_wire: int, unsaid: bool, most: int = 0xFFFF) -> int:
    """IP length as the header says it, or from the frame where the header does not or cannot say it."""
    return on_wire if unsaid or on_wire > most or said > on_wire else said


def transport(
    part: Part, protocol: int, source: bytes, destination: bytes, ip_bytes: int, ip_header: int, later: bool
) -> Packet:
    """Ports and payload (RFC 9293, 3.1; RFC 768). later: a fragment but the first, which has no transport header."""
    ends = str(ip_address(source)), str(ip_address(destination))
    if protocol not in (TCP, UDP) or later:
        return Packet((*ends, protocol, 0, 0), ip_bytes, ip_bytes - ip_header)
    key = (*ends, protocol, *struct.unpack(">HH", part.first(4)))
    header = 8 if protocol == UDP else tcp_header(part)
    payload = ip_bytes - ip_header - header
    if payload < 0 or (protocol == TCP and header < 20):
        raise Skip("malformed")
    flagged = protocol == TCP and len(part.captured) >= 14
    return Packet(key, ip_bytes, payload, struct.unpack(">4xI5xB", part.first(14)) if flagged else None)


def tcp_header(part: Part) -> int:
    """Length of the TCP header; the shortest one where the capture ends before it is said."""
    return (part.captured[12] >> 4) * 4 if len(part.captured) > 12 else 20


def step_of(time: int, bounds: list[int]) -> int:
    """Step with start <= time < end; -1 before the first, the number of steps after the last."""
    return bisect.bisect_right(bounds, time) - 1 if bounds else NO_STEP


def count_record(facts: Facts, time: int, wire: int) -> None:
    facts.records += 1
    facts.wire_bytes += wire
    facts.first_ns = time if facts.first_ns is None else min(facts.first_ns, time)
    facts.last_ns = time if facts.last_ns is None else max(facts.last_ns, time)


def count_packet(facts: Facts, packet: Packet, time: int, frame: Part) -> None:
    if packet.key not in facts.flows:
        names = ("src_ip", "dst_ip", "protocol", "src_port", "dst_port")
        facts.flows[packet.key] = dict(zip(names, packet.key, strict=True)) | {
            "first_seen_ns": time, "last_seen_ns": time,
            "packets": 0, "wire_bytes": 0, "ip_bytes": 0, "payload_bytes": 0, "captured_bytes": 0,
            "syn_packets": 0, "fin_packets": 0, "rst_packets": 0,
            "retransmitted_packets": 0, "retransmitted_bytes": 0, "opened": 0, "accepted": 0,
        }  # fmt: skip
    flow = facts.flows[packet.key]
    flow["first_seen_ns"] = min(flow["first_seen_ns"], time)
    flow["last_seen_ns"] = max(flow["last_seen_ns"], time)
    flow["packets"] += 1
    flow["wire_bytes"] += frame.length
    flow["ip_bytes"] += packet.ip_bytes
    flow["payload_bytes"] += packet.payload
    flow["captured_bytes"] += len(frame.captured)


def count_cell(facts: Facts, packet: Packet, window: int, step: int, wire: int) -> None:
    cell = facts.cells.setdefault((packet.key, window, step), [0, 0, 0])
    for i, value in enumerate((1, wire, packet.payload)):
        cell[i] += value


def count_segment(flow: dict[str, Any], next_sequence: dict[Key, int], packet: Packet) -> None:
    """TCP flags and retransmissions. next_sequence: what follows the highest sequence number seen of each flow."""
    assert packet.tcp
    sequence, flags = packet.tcp
    syn, fin, payload = bool(flags & SYN), bool(flags & FIN), packet.payload
    flow["syn_packets"] += syn
    flow["fin_packets"] += fin
    flow["rst_packets"] += bool(flags & RST)
    flow["opened"] += syn and not flags & ACK
    flow["accepted"] += syn and bool(flags & ACK)
    following = sequence + syn + payload + fin  # SYN and FIN take a sequence number each (RFC 9293, 3.4)
    highest = next_sequence.get(packet.key)
    if syn or (highest is None and (payload or fin)):  # a new connection counts from its own number
        next_sequence[packet.key] = following
    elif payload or fin:
        overlap = distance(sequence, highest)
        if payload and overlap > 0:
            flow["retransmitted_packets"] += 1
            flow["retransmitted_bytes"] += min(overlap, payload)
        if distance(highest, following) > 0:
            next_sequence[packet.key] = following


def distance(start: int, end: int) -> int:
    """From one sequence number to another, -2^31 to 2^31 - 1 (RFC 9293, 3.4: modulo 2^32)."""
    return (end - start + 2**31) % 2**32 - 2**31
