"""Flows, connections, fragments and cells of a file, in plain Python, by the rules of docs/packets.md.

The part of the reference engine behind the dissection: it knows packets, not how they were read.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ddnn_traces.ingestors.facts import ENCAPSULATIONS, FLOW_FACTS, NO_STEP, PACKETS, CaptureFacts, ReadOptions
from ddnn_traces.ingestors.spill import Spill

FIN, SYN, RST, ACK = 1, 2, 4, 16
LARGE, HUGE = 1500, 9000  # IP lengths above these
MOST_HOLES = 4
MOST_DATAGRAMS, MOST_WAITING, DATAGRAM_NS = 1024, 4096, 30 * 10**9
_CELLS_AT_ONCE = 1 << 18
_PACKETS_AT_ONCE = 1 << 16


@dataclass(frozen=True, slots=True)
class Tunnel:
    """An encapsulation, but for the one around it. Ports: 0 without. identifier: VNI or GRE key."""

    kind: str
    src_ip: str
    dst_ip: str
    protocol: int
    src_port: int
    dst_port: int
    identifier: int | None


@dataclass(frozen=True, slots=True)
class Fragment:
    """A fragment of the datagram that the fields up to `identification` name. offset, size: bytes of its payload."""

    tunnels: tuple[Tunnel, ...]
    src_ip: str
    dst_ip: str
    protocol: int
    identification: int
    offset: int
    size: int
    more: bool

    @property
    def datagram(self) -> tuple[Any, ...]:
        return self.tunnels, self.src_ip, self.dst_ip, self.protocol, self.identification


@dataclass(frozen=True, slots=True)
class Packet:
    """A packet that belongs to a flow. Sizes as in schemas/flows.toml.

    flags, sequence: None but for TCP with as much of its header. tunnels: outermost first. fragment: None for a whole
    datagram; the outermost where the packet is in a tunnel.
    """

    src_ip: str
    dst_ip: str
    protocol: int
    src_port: int
    dst_port: int
    ip_bytes: int
    payload_bytes: int
    flags: int | None = None
    sequence: int | None = None
    mss: int | None = None
    queue_pair: int | None = None
    opcode: int | None = None
    tunnels: tuple[Tunnel, ...] = ()
    fragment: Fragment | None = None


@dataclass(frozen=True, slots=True)
class Record:
    """What the file says of a packet: its number in the file from 0, its time and its two lengths."""

    number: int
    time_ns: int
    wire_bytes: int
    captured_bytes: int


# --- one flow


@dataclass(slots=True)
class Flow:
    """Counters of a flow, by their names in facts.FLOW_FACTS, and below them what the next segment is held against."""

    flow: int
    src_ip: str
    dst_ip: str
    protocol: int
    src_port: int
    dst_port: int
    encapsulation: int | None
    roce_dest_qp: int | None
    roce_opcode: int | None
    first_seen_ns: int
    last_seen_ns: int
    kept: bool = True
    packets: int = 0
    wire_bytes: int = 0
    ip_bytes: int = 0
    payload_bytes: int = 0
    captured_bytes: int = 0
    syn_packets: int = 0
    fin_packets: int = 0
    rst_packets: int = 0
    retransmitted_packets: int = 0
    retransmitted_bytes: int = 0
    out_of_order_packets: int = 0
    out_of_order_bytes: int = 0
    opened: int = 0
    accepted: int = 0
    initial_sequence: int | None = None
    mss: int | None = None
    large_packets: int = 0
    large_payload_bytes: int = 0
    huge_packets: int = 0
    huge_payload_bytes: int = 0
    first_occupied: int | None = None  # number of the first segment that occupies sequence space
    next_sequence: int | None = None  # what follows the highest sequence number so far, counted on beyond 2^32
    holes: list[tuple[int, int]] = field(default_factory=list)  # begin and end, the newest last

    def ends_with(self, sequence: int) -> bool:
        """Whether a SYN of that number begins another connection."""
        if self.fin_packets or self.rst_packets:
            return True
        if self.initial_sequence is not None:
            return sequence != self.initial_sequence
        return self.first_occupied is None or (sequence + 1) % 2**32 != self.first_occupied

    def add(self, packet: Packet, record: Record) -> None:
        self.first_seen_ns = min(self.first_seen_ns, record.time_ns)
        self.last_seen_ns = max(self.last_seen_ns, record.time_ns)
        self.packets += 1
        self.wire_bytes += record.wire_bytes
        self.ip_bytes += packet.ip_bytes
        self.payload_bytes += packet.payload_bytes
        self.captured_bytes += record.captured_bytes
        if packet.ip_bytes > LARGE:
            self.large_packets += 1
            self.large_payload_bytes += packet.payload_bytes
        if packet.ip_bytes > HUGE:
            self.huge_packets += 1
            self.huge_payload_bytes += packet.payload_bytes
        if packet.flags is not None and packet.sequence is not None:
            self._add_segment(packet.flags, packet.sequence, packet.payload_bytes, packet.mss)

    def _add_segment(self, flags: int, sequence: int, payload: int, mss: int | None) -> None:
        """TCP flags and sequence numbers (RFC 9293, 3.1 and 3.4)."""
        fin, syn, rst, ack = (flags & bit != 0 for bit in (FIN, SYN, RST, ACK))
        self.fin_packets += fin
        self.syn_packets += syn
        self.rst_packets += rst
        self.opened += syn and not ack
        self.accepted += syn and ack
        if syn and self.initial_sequence is None:
            self.initial_sequence = sequence
        if syn and self.mss is None:
            self.mss = mss
        if payload or syn or fin:
            self._occupy(sequence, syn, payload, fin)

    def _occupy(self, sequence: int, syn: bool, payload: int, fin: bool) -> None:
        """Take the numbers from `sequence` on: SYN, payload, FIN."""
        if self.next_sequence is None:
            self.first_occupied = self.next_sequence = sequence
        begin = self.next_sequence + distance(self.next_sequence, sequence)
        if begin > self.next_sequence:
            self._remember(self.next_sequence, begin)
        elif begin < self.next_sequence and payload:
            start, end = begin + syn, min(begin + syn + payload, self.next_sequence)
            filled = self._fill(start, end)
            self.out_of_order_bytes += filled
            self.retransmitted_bytes += max(0, end - start) - filled
            self.out_of_order_packets += filled > 0
            self.retransmitted_packets += filled == 0
        self.next_sequence = max(self.next_sequence, begin + syn + payload + fin)

    def _remember(self, begin: int, end: int) -> None:
        self.holes.append((begin, end))
        del self.holes[:-MOST_HOLES]

    def _fill(self, start: int, end: int) -> int:
        """How many of the bytes from `start` to `end` are in holes, which they fill."""
        kept: list[tuple[int, int]] = []
        behind: list[tuple[int, int]] = []
        filled = 0
        for first, last in self.holes:
            low, high = max(first, start), min(last, end)
            if low >= high:
                kept.append((first, last))
                continue
            filled += high - low
            if first < low:
                kept.append((first, low))
            if high < last:
                (behind if first < low else kept).append((high, last))
        self.holes = (kept + behind)[-MOST_HOLES:]
        return filled


def distance(start: int, end: int) -> int:
    """From one sequence number to another, modulo 2^32, -2^31 + 1 to 2^31."""
    return (end - start + 2**31 - 1) % 2**32 - 2**31 + 1


# --- packets, where they are wanted


class PacketRows:
    """Rows of facts.PACKETS on their way to a Parquet file. They wait for the flow of those in front of them."""

    def __init__(self, options: ReadOptions) -> None:
        self._path = options.packets
        self._rows: list[dict[str, int | None]] = []
        self._writer: pq.ParquetWriter | None = None

    def add(self, packet: Packet, record: Record) -> dict[str, int | None]:
        """The packet's row, whose flow is still to be said."""
        row = {
            "record": record.number, "flow": None, "ts_ns": record.time_ns, "wire_bytes": record.wire_bytes,
            "ip_bytes": packet.ip_bytes, "payload_bytes": packet.payload_bytes,
            "captured_bytes": record.captured_bytes,
            "tcp_flags": packet.flags if packet.sequence is not None else None,
        }  # fmt: skip
        if self._path is not None:
            self._rows.append(row)
            if len(self._rows) % _PACKETS_AT_ONCE == 0:
                self._write()
        return row

    def _write(self) -> None:
        known = next((i for i, row in enumerate(self._rows) if row["flow"] is None), len(self._rows))
        if known and self._path is not None:
            if self._writer is None:
                self._writer = pq.ParquetWriter(self._path, PACKETS, compression="lz4", use_dictionary=False)
            self._writer.write_table(pa.Table.from_pylist(self._rows[:known], schema=PACKETS))
            del self._rows[:known]

    def finish(self, facts: CaptureFacts) -> None:
        """Write the last rows; every flow is known now."""
        self._write()
        if self._writer is not None:
            facts.packets = self._path
        self.close()

    def close(self) -> None:
        """Leave no file open, whatever has happened."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None


# --- all flows of a file


@dataclass(slots=True)
class _Waiting:
    """A packet that is to be counted once its flow is known."""

    packet: Packet
    record: Record
    row: dict[str, int | None]


@dataclass(slots=True)
class _Datagram:
    """A datagram in fragments. flow: of its first fragment, None where that was skipped or did not come yet.

    seen: bytes that came; total: all of them, once the last fragment has said it.
    """

    opened_ns: int
    had_first: bool = False
    flow: Flow | None = None
    seen: int = 0
    total: int | None = None
    waiting: list[_Waiting] = field(default_factory=list)


class FlowTable:
    """Adds the packets of a file up to flows, encapsulations, cells and packet rows."""

    def __init__(self, options: ReadOptions, spill: Spill) -> None:
        self._window_ns = options.window_ns
        self._bounds: list[int] = options.step_bounds.tolist()
        self._spill = spill
        self.rows = PacketRows(options)
        self._flows: list[Flow] = []
        self._current: dict[tuple[Any, ...], Flow] = {}  # key -> flow, the last connection where there are several
        self._tunnels: dict[tuple[Tunnel, ...], int] = {}  # outermost first -> row of the innermost
        self._datagrams: dict[tuple[Any, ...], _Datagram] = {}  # the one opened first in front
        self._number_waiting = 0
        self._cells: dict[tuple[int, int, int], list[int]] = {}  # flow, window, step -> packets, wire, payload

    def add(self, packet: Packet, record: Record) -> None:
        """Count a packet, or keep it until its datagram's flow is known."""
        waiting = _Waiting(packet, record, self.rows.add(packet, record))
        if packet.fragment is None:
            self._count(self._flow_of(packet, record), waiting)
        else:
            self._add_fragment(packet.fragment, waiting)

    def finish(self, facts: CaptureFacts) -> None:
        """Fill the flows into the facts; the file has been read to the end."""
        for key in list(self._datagrams):
            self._close(key)
        self._write_cells()
        self.rows.finish(facts)
        facts.flows = pa.Table.from_pylist([asdict(flow) for flow in self._flows], schema=FLOW_FACTS)
        rows = [{"parent": self._tunnels.get(path[:-1])} | asdict(path[-1]) for path in self._tunnels]
        facts.encapsulations = pa.Table.from_pylist(rows, schema=ENCAPSULATIONS)

    # flows and connections

    def _flow_of(self, packet: Packet, record: Record) -> Flow:
        """The packet's flow, which may begin with it."""
        ends = packet.src_ip, packet.dst_ip, packet.protocol, packet.src_port, packet.dst_port
        key = *ends, self._encapsulation(packet.tunnels), packet.queue_pair, packet.opcode
        flow = self._current.get(key)
        syn = packet.flags is not None and packet.flags & SYN
        if flow is None or (syn and packet.sequence is not None and flow.ends_with(packet.sequence)):
            flow = Flow(len(self._flows), *key, first_seen_ns=record.time_ns, last_seen_ns=record.time_ns)
            self._flows.append(flow)
            self._current[key] = flow
        return flow

    def _encapsulation(self, tunnels: tuple[Tunnel, ...]) -> int | None:
        """Row of the innermost tunnel; None outside of any."""
        for depth in range(1, len(tunnels) + 1):
            self._tunnels.setdefault(tunnels[:depth], len(self._tunnels))
        return self._tunnels.get(tunnels)

    def _count(self, flow: Flow, waiting: _Waiting) -> None:
        packet, record = waiting.packet, waiting.record
        flow.add(packet, record)
        waiting.row["flow"] = flow.flow
        step = bisect_right(self._bounds, record.time_ns) - 1 if self._bounds else NO_STEP
        cell = self._cells.setdefault((flow.flow, record.time_ns // self._window_ns, step), [0, 0, 0])
        cell[0] += 1
        cell[1] += record.wire_bytes
        cell[2] += packet.payload_bytes
        if len(self._cells) >= _CELLS_AT_ONCE:
            self._write_cells()

    def _write_cells(self) -> None:
        self._spill.write(np.array([(*place, *sums) for place, sums in self._cells.items()], np.int64).reshape(-1, 6))
        self._cells.clear()

    # fragments

    def skip_first(self, fragment: Fragment, record: Record) -> None:
        """A first fragment that is in no flow: its datagram's other fragments need not wait for it."""
        datagram = self._open(fragment, record)
        datagram.had_first = True
        self._release(datagram)
        self._take(datagram, fragment)

    def _add_fragment(self, fragment: Fragment, waiting: _Waiting) -> None:
        datagram = self._open(fragment, waiting.record)
        if fragment.offset == 0:
            datagram.had_first = True
            datagram.flow = self._flow_of(waiting.packet, waiting.record)
            self._count(datagram.flow, waiting)
            self._release(datagram)
        else:
            datagram.waiting.append(waiting)
            self._number_waiting += 1
            if datagram.had_first:
                self._release(datagram)
        self._take(datagram, fragment)
        if self._number_waiting > MOST_WAITING:
            self._close(next(key for key, other in self._datagrams.items() if other.waiting))

    def _open(self, fragment: Fragment, record: Record) -> _Datagram:
        """The fragment's datagram, which may be opened by it."""
        key = fragment.datagram
        datagram = self._datagrams.get(key)
        if datagram is not None:
            again = fragment.offset == 0 and datagram.had_first
            if again or record.time_ns - datagram.opened_ns >= DATAGRAM_NS:
                self._close(key)
                datagram = None
        if datagram is None:
            if len(self._datagrams) >= MOST_DATAGRAMS:
                self._close(next(iter(self._datagrams)))
            datagram = self._datagrams[key] = _Datagram(record.time_ns)
        return datagram

    def _take(self, datagram: _Datagram, fragment: Fragment) -> None:
        """Add up its bytes; the datagram is closed when they are complete."""
        datagram.seen += fragment.size
        if not fragment.more:
            datagram.total = fragment.offset + fragment.size
        if datagram.total is not None and datagram.seen >= datagram.total:
            self._close(fragment.datagram)

    def _release(self, datagram: _Datagram) -> None:
        """Count what waits in the first fragment's flow, or in one without ports."""
        for waiting in datagram.waiting:
            self._count(datagram.flow or self._flow_of(waiting.packet, waiting.record), waiting)
        self._number_waiting -= len(datagram.waiting)
        datagram.waiting = []

    def _close(self, key: tuple[Any, ...]) -> None:
        """Forget a datagram; what still waits for its first fragment is a flow without ports."""
        self._release(self._datagrams.pop(key))
