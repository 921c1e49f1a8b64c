"""The packet loop said plainly: one packet at a time, one function a header. Slow, and meant to be read.

tests/test_packet_loop.py holds the numba engine against it. Written from docs/packets.md, the RFCs named at the
functions and the column meanings in schemas/, not from the loop.
"""

from __future__ import annotations

import bisect
from dataclasses import dataclass, field
from typing import Any

from naive.captures import Record, records
from naive.connections import Connection
from naive.fragments import Fragments
from naive.headers import TCP, Encapsulation, Packet, Part, Skip, parse

NO_STEP = -2
LARGE, HUGE = 1500, 9000

#: Source, destination, protocol, ports, tunnel, RoCEv2's destination queue pair and opcode, number of the connection.
Key = tuple[str, str, int, int, int, Encapsulation | None, int | None, int | None, int]


@dataclass
class Facts:
    """What facts.CaptureFacts says. flows: in the order of first appearance, with the columns of FLOW_FACTS that are
    no row numbers. cells: added up, (flow key, window, step) -> [packets, wire, payload]. encapsulations: those of
    the flows, and those around them. packets: rows of PACKETS by record."""

    flows: dict[Key, dict[str, Any]] = field(default_factory=dict)
    cells: dict[tuple[Key, int, int], list[int]] = field(default_factory=dict)
    encapsulations: set[Encapsulation] = field(default_factory=set)
    packets: list[tuple[int | None, ...]] = field(default_factory=list)
    skipped: dict[str, tuple[int, int]] = field(default_factory=dict)
    records: int = 0
    wire_bytes: int = 0
    untimed_records: int = 0
    first_ns: int | None = None
    last_ns: int | None = None
    trailing_bytes: int = 0
    status: str = "complete"


def read(data: bytes, window_ns: int, bounds: list[int], open_tunnels: bool = True) -> Facts:
    """Facts of a whole capture. bounds: begin of the first step and the end of each, in order; empty: no log."""
    found, status, end = records(data)
    facts = Facts(status=status, trailing_bytes=len(data) - end)
    counter = Counter(facts, window_ns, bounds)
    for number, record in enumerate(found):
        count_record(facts, record)
        try:
            packet = parse(Part(record.captured, record.wire), record.link, open_tunnels)
        except Skip as skip:
            packets, wire = facts.skipped.get(str(skip), (0, 0))
            facts.skipped[str(skip)] = packets + 1, wire + record.wire
        else:
            counter.add(Piece(number, record, packet))
    counter.fragments.finish()
    facts.packets.sort()
    return facts


def count_record(facts: Facts, record: Record) -> None:
    facts.records += 1
    facts.wire_bytes += record.wire
    facts.untimed_records += not record.timed
    facts.first_ns = record.time if facts.first_ns is None else min(facts.first_ns, record.time)
    facts.last_ns = record.time if facts.last_ns is None else max(facts.last_ns, record.time)


@dataclass(frozen=True)
class Piece:
    """A packet on its way into a flow, which for a fragment may be known later than the packet."""

    number: int
    record: Record
    packet: Packet


class Counter:
    """Packets into flows: behind fragments and connections comes the flow's row."""

    def __init__(self, facts: Facts, window_ns: int, bounds: list[int]) -> None:
        self.fragments = Fragments[Piece, Key](self._count)
        self._facts, self._window_ns, self._bounds = facts, window_ns, bounds
        self._connections: dict[tuple, list[Connection]] = {}  # of each five-tuple and tunnel
        self._numbers: dict[Key, int] = {}  # rows of the flows

    def add(self, piece: Piece) -> None:
        fragment, time = piece.packet.fragment, piece.record.time
        if fragment is None:
            self._count(piece, None)
        elif fragment.offset == 0:
            self.fragments.first(fragment, time, piece)
        else:
            self.fragments.later(fragment, time, piece)

    def _count(self, piece: Piece, flow: Key | None) -> Key:
        """Count a packet, in the flow of its datagram's first fragment or else in that which its headers say."""
        record, packet = piece.record, piece.packet
        key = flow or self._key(packet)
        row = self._row(key, record.time)
        count_packet(row, packet, record)
        self._count_cell(key, packet, record)
        if packet.segment:
            self._connections[key[:6]][-1].send(packet.segment, packet.payload, row)
        flags = packet.segment.flags if packet.segment else None
        sizes = record.wire, packet.ip_bytes, packet.payload, len(record.captured)
        self._facts.packets.append((piece.number, self._numbers[key], record.time, *sizes, flags))
        return key

    def _key(self, packet: Packet) -> Key:
        flow = packet.source, packet.destination, packet.protocol, *packet.ports, packet.encapsulation
        if packet.protocol != TCP:
            return *flow, *(packet.roce or (None, None)), 0
        connections = self._connections.setdefault(flow, [])
        if not connections or (packet.segment and not connections[-1].goes_on_with(packet.segment)):
            connections.append(Connection())
        return *flow, None, None, len(connections) - 1

    def _row(self, key: Key, time: int) -> dict[str, Any]:
        if key not in self._facts.flows:
            self._numbers[key] = len(self._numbers)
            self._facts.flows[key] = new_row(key, time)
            self._appear(key[5])
        return self._facts.flows[key]

    def _appear(self, tunnel: Encapsulation | None) -> None:
        while tunnel:
            self._facts.encapsulations.add(tunnel)
            tunnel = tunnel.around

    def _count_cell(self, key: Key, packet: Packet, record: Record) -> None:
        window, step = record.time // self._window_ns, step_of(record.time, self._bounds)
        cell = self._facts.cells.setdefault((key, window, step), [0, 0, 0])
        for i, value in enumerate((1, record.wire, packet.payload)):
            cell[i] += value


def step_of(time: int, bounds: list[int]) -> int:
    """Step with start <= time < end; -1 before the first, the number of steps after the last."""
    return bisect.bisect_right(bounds, time) - 1 if bounds else NO_STEP


def new_row(key: Key, time: int) -> dict[str, Any]:
    """A flow without packets."""
    source, destination, protocol, source_port, destination_port, _, queue_pair, opcode, _ = key
    return {
        "src_ip": source, "dst_ip": destination, "protocol": protocol,
        "src_port": source_port, "dst_port": destination_port,
        "roce_dest_qp": queue_pair, "roce_opcode": opcode,
        "first_seen_ns": time, "last_seen_ns": time,
        "packets": 0, "wire_bytes": 0, "ip_bytes": 0, "payload_bytes": 0, "captured_bytes": 0,
        "syn_packets": 0, "fin_packets": 0, "rst_packets": 0,
        "retransmitted_packets": 0, "retransmitted_bytes": 0, "out_of_order_packets": 0, "out_of_order_bytes": 0,
        "opened": 0, "accepted": 0, "initial_sequence": None, "mss": None,
        "large_packets": 0, "large_payload_bytes": 0, "huge_packets": 0, "huge_payload_bytes": 0,
    }  # fmt: skip


def count_packet(row: dict[str, Any], packet: Packet, record: Record) -> None:
    row["first_seen_ns"] = min(row["first_seen_ns"], record.time)
    row["last_seen_ns"] = max(row["last_seen_ns"], record.time)
    row["packets"] += 1
    row["wire_bytes"] += record.wire
    row["ip_bytes"] += packet.ip_bytes
    row["payload_bytes"] += packet.payload
    row["captured_bytes"] += len(record.captured)
    for name, least in (("large", LARGE), ("huge", HUGE)):
        if packet.ip_bytes > least:
            row[f"{name}_packets"] += 1
            row[f"{name}_payload_bytes"] += packet.payload
