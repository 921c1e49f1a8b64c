"""Flows of a capture in plain Python, one packet at a time, by the rules of docs/packets.md.

The part of the pyshark engine after the dissection: it knows packets, not how they were read. The naive reader of the
tests (tests/naive) counts with it, too, so it is written for reading and shares nothing with the compiled code.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import NamedTuple

from ddnn_traces.pcap.capture_facts import NO_STEP, SILENCE_NS
from ddnn_traces.pcap.flow_counters import COUNTERS, NOTES
from ddnn_traces.pcap.link_types import told_interface

FIN, SYN, RST, PSH, ACK, ECE = 1, 2, 4, 8, 16, 64
TCP = 6
LARGE, HUGE = 1500, 9000  # IP lengths above these
MOST_HOLES = 1024
_MOST_SCALE = 14  # RFC 7323, 2.3
MOST_DATAGRAMS, MOST_WAITING, DATAGRAM_NS = 1024, 4096, 30 * 10**9


# --- packets


class Encapsulation(NamedTuple):
    """A tunnel. Ports: 0 without. identifier: VNI or GRE key, None without. around: None for the outermost."""

    kind: str
    src_ip: str
    dst_ip: str
    protocol: int
    src_port: int
    dst_port: int
    identifier: int | None
    around: Encapsulation | None


#: What the fragments of a datagram share: encapsulation, source, destination, protocol and identification; interface.
DatagramKey = tuple[Encapsulation | str | int | None, ...]


class Fragment(NamedTuple):
    """A piece of a datagram. offset, size: bytes of the datagram's payload. more: whether others follow it."""

    datagram: DatagramKey
    offset: int
    size: int
    more: bool


class Segment(NamedTuple):
    """The fields of a TCP header that are counted. mss, scale (of windows): None without the option. window: as it
    stands there, None where it was not captured."""

    sequence: int
    acknowledgement: int
    flags: int
    mss: int | None
    scale: int | None = None
    window: int | None = None


class Roce(NamedTuple):
    """RoCE: fields of the base transport header. number: packet sequence number, pad: bytes of padding; both None
    where 12 bytes of it were not captured. syndrome: of the acknowledgement that follows, read: bytes that an RDMA READ
    asks for; None without."""

    queue_pair: int
    opcode: int
    number: int | None = None
    pad: int | None = None
    syndrome: int | None = None
    read: int | None = None

    @classmethod
    def parse(cls, header: bytes) -> Roce | None:
        """header: what was captured from the base transport header on. None below 8 bytes."""
        if len(header) < 8:
            return None
        pair, opcode = int.from_bytes(header[5:8], "big"), header[0]
        if len(header) < 12:
            return cls(pair, opcode)
        with_aeth = opcode >> 5 in (0, 5) and opcode & 31 in (13, 15, 16, 17, 18)
        syndrome = header[12] if with_aeth and len(header) > 12 else None
        length = header[24:28] if opcode >> 5 == 0 else header[28:32]
        read = int.from_bytes(length, "big") if opcode & 31 == 12 and len(length) == 4 else None
        return cls(pair, opcode, int.from_bytes(header[9:12], "big"), header[1] >> 4 & 3, syndrome, read)


@dataclass(frozen=True, slots=True)
class Packet:
    """A packet that belongs to a flow. Sizes as in schemas/flows.toml.

    fragment: None for a whole datagram; the outermost one where the packet is in a tunnel. roce: None for others. ecn:
    None for fragments after the first, and for RoCEv1. segment: None but for TCP with as much of its header. interface:
    as in FLOW_FACTS.
    """

    src_ip: str
    dst_ip: str
    protocol: int
    src_port: int
    dst_port: int
    ip_bytes: int
    payload_bytes: int
    encapsulation: Encapsulation | None = None
    fragment: Fragment | None = None
    roce: Roce | None = None
    ecn: int | None = None
    segment: Segment | None = None
    interface: int | None = None


def captured_at(packet: Packet, number: int) -> Packet:
    """The packet of the interface with that number."""
    interface = told_interface(number)
    fragment = packet.fragment and packet.fragment._replace(datagram=(*packet.fragment.datagram, interface))
    return replace(packet, interface=interface, fragment=fragment)


class Record(NamedTuple):
    """The record of a packet in the file: its number from 0, its time and its two lengths."""

    number: int
    time_ns: int
    wire_bytes: int
    captured_bytes: int


# --- one flow


class Flow(SimpleNamespace):
    """A flow: attributes by the names of capture_facts.FLOW_FACTS, all counters of flow_counters.py among them."""

    gaps: list[list[int]]
    initial_sequence: int | None
    mss: int | None
    window_scale: int | None
    first_sequence: int | None
    next_sequence: int | None
    acknowledged: int | None
    largest_segment_bytes: int
    largest_window: int
    zero_window_packets: int

    def __init__(
        self, flow: int, src_ip: str, dst_ip: str, protocol: int, src_port: int, dst_port: int,
        encapsulation: int | None, interface: int | None, roce_dest_qp: int | None, roce_opcode: int | None,
        time_ns: int,
    ) -> None:  # fmt: skip
        super().__init__(**{counter.name: None if counter.unknown else 0 for counter in COUNTERS})
        self.flow, self.src_ip, self.dst_ip, self.protocol = flow, src_ip, dst_ip, protocol
        self.src_port, self.dst_port, self.encapsulation = src_port, dst_port, encapsulation
        self.interface, self.roce_dest_qp, self.roce_opcode = interface, roce_dest_qp, roce_opcode
        self.first_seen_ns = self.last_seen_ns = time_ns
        self.kept = self.followed = True
        self.gaps = []  # start and end of each, ascending
        self.silence_ns = SILENCE_NS
        self.stream: Numbers | None = None  # of RoCEv2, which it shares with other opcodes
        self.trains: list[tuple[int, ...]] = []  # rows of TRAINS that have ended
        self._train: list[tuple[Record, int, int, int]] = []  # record, start, new bytes, payload of each segment
        self._last_bytes = 0  # payload of the last segment with new bytes, in order

    def goes_on_with(self, segment: Segment) -> bool:
        """Whether the segment belongs to this connection; only a SYN may begin another."""
        if not segment.flags & SYN:
            return True
        if self.fin_packets or self.rst_packets:
            return False
        if self.initial_sequence is not None:
            return segment.sequence == self.initial_sequence
        return self.first_sequence is not None and self.first_sequence == (segment.sequence + 1) % 2**32

    def add(self, packet: Packet, record: Record) -> None:
        """Count a packet."""
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
        if packet.fragment or (packet.protocol == TCP and packet.segment is None):
            self.followed = False
        if packet.segment is not None:
            self._add_segment(packet.segment, packet.payload_bytes, record)
        self.ce_packets += packet.ecn == 3
        if packet.roce is not None and packet.roce.number is not None:
            self._follow(packet.roce, packet.payload_bytes)
            self._add_roce(packet.roce, packet.payload_bytes, record)

    def _add_segment(self, segment: Segment, payload: int, record: Record) -> None:
        """TCP flags and sequence numbers (RFC 9293, 3.1 and 3.4)."""
        fin, syn, rst, ack = (segment.flags & bit != 0 for bit in (FIN, SYN, RST, ACK))
        ended = self.fin_packets + self.rst_packets + rst > 0
        self.fin_packets += fin
        self.syn_packets += syn
        self.rst_packets += rst
        self.ece_packets += segment.flags & (ECE | SYN) == ECE
        self.opened += syn and not ack
        self.accepted += syn and ack
        if syn and self.initial_sequence is None:
            self.initial_sequence = segment.sequence
        if syn and self.mss is None:
            self.mss = segment.mss
        if syn and self.window_scale is None and segment.scale is not None:
            self.window_scale = min(segment.scale, _MOST_SCALE)
        if payload or syn or fin:
            self._occupy(segment.sequence, syn, payload, fin, ended, record, segment.flags & PSH != 0)
        if ack and not rst:
            self._acknowledge(segment.acknowledgement)
            if segment.window is not None and not (syn or fin):
                self.largest_window = max(self.largest_window, segment.window)
                self.zero_window_packets += segment.window == 0

    def _acknowledge(self, number: int) -> None:
        """Take over an acknowledgement number, if it is the highest so far."""
        if self.acknowledged is None:
            self.first_acknowledged = self.acknowledged = number
        self.acknowledged += max(0, (number - self.acknowledged + 2**31) % 2**32 - 2**31)

    def _occupy(
        self, sequence: int, syn: bool, payload: int, fin: bool, ended: bool, record: Record, pushed: bool
    ) -> None:
        """Take the numbers from `sequence` on: SYN, payload, FIN. ended: whether there was a FIN or RST before; numbers
        ahead are then those of another connection. record, pushed: of the segment, whether it has PSH."""
        is_first = self.next_sequence is None
        if self.next_sequence is None:
            self.first_sequence = self.next_sequence = sequence
        begin = self.next_sequence + distance(self.next_sequence, sequence)
        if begin > self.next_sequence or (syn and begin == self.next_sequence):
            self.trains += self.close_train()
        if begin > self.next_sequence:
            if not ended:
                self.gaps.append([self.next_sequence, begin])
        elif begin < self.next_sequence and payload:
            start, end = begin + syn, min(begin + syn + payload, self.next_sequence)
            filled = self._fill(start, end)
            self.out_of_order_bytes += filled
            self.retransmitted_bytes += max(0, end - start) - filled
            self.out_of_order_packets += filled > 0
            self.retransmitted_packets += filled == 0
            if filled:
                self._end([(record, start, filled, payload)], pushed, _LATE)
        if payload and begin + syn + payload > self.next_sequence:
            is_next = not is_first and begin == self.next_sequence
            self._send(record, max(begin + syn, self.next_sequence), begin + syn + payload, payload, pushed, is_next)
        if fin:
            self.trains += self.close_train()
        self.next_sequence = max(self.next_sequence, begin + syn + payload + fin)
        if len(self.gaps) > MOST_HOLES:
            forgotten, self.gaps = self.gaps[: -MOST_HOLES // 2], self.gaps[-MOST_HOLES // 2 :]
            self.forgotten_bytes += sum(last - first for first, last in forgotten)

    # the reliability of RoCEv2

    def _follow(self, roce: Roce, payload: int) -> None:
        """Count notifications, NAKs, and numbers that come again or late."""
        kind = None if roce.syndrome is None else roce.syndrome & 0x60
        self.cnp_packets += roce.opcode == 0x81
        self.nak_packets += kind == 0x60
        self.rnr_packets += kind == 0x20
        if self.stream is None:
            return
        assert roce.number is not None
        assert roce.pad is not None
        what = self.stream.meet(roce)
        self.stream.leader.forgotten_bytes = self.stream.forgotten
        self.stream.leader.psn_missing_packets = len(self.stream.missing) + self.stream.forgotten
        self.psn_late_packets += what == "late"
        if what == "again":
            answer = 13 <= roce.opcode & 31 <= 16
            headers = (12 if answer else _HEADERS[roce.opcode >> 5]) + _NUMBERED.get(roce.opcode & 31, 0)
            self.psn_repeated_packets += 1
            self.psn_repeated_bytes += max(0, payload - headers - 4 - roce.pad)

    # trains (capture_facts.TRAINS)

    def _send(self, record: Record, start: int, end: int, payload: int, pushed: bool, is_next: bool) -> None:
        """A segment with new bytes from the number `start` on. is_next: all are, and follow those before."""
        if self._train and (not is_next or record.time_ns - self._last_ns() > self.silence_ns):
            self.trains += self.close_train()
        is_less, self._last_bytes = payload < self._last_bytes, payload
        if not is_next:
            self._end([(record, start, end - start, payload)], pushed)
            return
        self._train.append((record, start, end - start, payload))
        if is_less or pushed:
            self.trains += self.close_train(pushed)

    def _add_roce(self, roce: Roce, payload: int, record: Record) -> None:
        place = place_of(roce.opcode)
        if place is None:
            return
        assert roce.number is not None
        assert roce.pad is not None
        data = max(0, payload - bytes_around(roce.opcode) - roce.pad)
        if place != "middle":
            self._end([(record, roce.number, data, data)])
            return
        if self._train and (roce.number, data) != ((self._train[-1][1] + 1) % 2**24, self._train[-1][3]):
            self.trains += self.close_train()
        self._train.append((record, roce.number, data, data))

    def _last_ns(self) -> int:
        return max(record.time_ns for record, *_ in self._train)

    def close_train(self, pushed: bool = False, late: int = 0) -> list[tuple[int, ...]]:
        """The row of the train that is open, if any; there is none then. pushed: whether its last segment has PSH."""
        if not self._train:
            return []
        segments, self._train = self._train, []
        times, sizes = [record.time_ns for record, *_ in segments], [payload for *_, payload in segments]
        largest = max(sizes)
        row = (
            self.flow, times[0], max(times), segments[0][1], sum(new for _, _, new, _ in segments), len(segments),
            largest, times[sizes.index(largest)], sizes[:-1].count(largest), sizes[-1], pushed | late,
        )  # fmt: skip
        self.largest_segment_bytes = max(self.largest_segment_bytes, largest)
        self.pushed_segments += pushed
        return [row]

    def _end(self, segments: list[tuple[Record, int, int, int]], pushed: bool = False, late: int = 0) -> None:
        """A train that consists of these, next to the open one."""
        open_train, self._train = self._train, segments
        self.trains += self.close_train(pushed, late)
        self._train = open_train

    def _fill(self, start: int, end: int) -> int:
        """Take the bytes from `start` to `end` out of the holes; how many of them were in any."""
        left: list[list[int]] = []
        filled = 0
        for first, last in self.gaps:
            low, high = max(first, start), min(last, end)
            if low >= high:
                left.append([first, last])
                continue
            filled += high - low
            left += [[begin, end] for begin, end in ((first, low), (high, last)) if begin < end]
        self.gaps = left
        return filled


class Numbers:
    """A stream of RoCEv2's packet sequence numbers: those of a queue pair's requests, or of its answers to READ."""

    def __init__(self, leader: Flow) -> None:
        self.leader = leader  # the flow that has the count of what is missing
        self.missing: list[int] = []  # numbers, ascending, counted on beyond 2^24
        self.forgotten = 0
        self._next: int | None = None
        self._allowed = 0

    def meet(self, roce: Roce) -> str:
        """What the number of a packet is: new, late (it was missing) or again."""
        assert roce.number is not None
        operation = roce.opcode & 31
        if self._next is None:
            self._next = roce.number
        ahead = (roce.number - self._next + 2**23 - 1) % 2**24 - 2**23 + 1
        number = self._next + ahead
        is_other = abs(ahead) > 2**16
        if ahead < 0 and not is_other:
            if number in self.missing:
                self.missing.remove(number)
                return "late"
            return "again"
        if is_other:
            number = self._next + (roce.number - self._next) % 2**24
        elif ahead > self._allowed or (ahead and operation in (14, 15)):
            self._miss(number)
        self._next, self._allowed = number + 1, 2**16 if operation in (12, 15, 16) else 0
        if operation == 12 and roce.read is not None:
            self._allowed = max(0, -(-roce.read // 256) - 1)
        return "new"

    def _miss(self, number: int) -> None:
        """Remember the numbers before this one as missing; of more than 1,024 gaps only the higher 512."""
        assert self._next is not None
        self.missing += range(self._next, number)
        if len(gaps := self._runs()) > MOST_HOLES:
            least = gaps[-MOST_HOLES // 2][0]
            self.forgotten += sum(each < least for each in self.missing)
            self.missing = [each for each in self.missing if each >= least]

    def _runs(self) -> list[list[int]]:
        runs: list[list[int]] = []
        for number in self.missing:
            if runs and runs[-1][-1] == number - 1:
                runs[-1].append(number)
            else:
                runs.append([number])
        return runs


#: Bytes of the extended headers of those operations of RC, UC and XRC whose packets are numbered, where they have any.
_NUMBERED = {3: 4, 5: 4, 6: 16, 9: 4, 10: 16, 11: 20, 12: 16, 13: 4, 15: 4, 16: 4, 19: 28, 20: 28, 22: 4, 23: 4}


def stream_of(opcode: int) -> str | None:
    """The stream of numbers that packets of an opcode are in; None where they are in none."""
    transport, operation = opcode >> 5, opcode & 31
    if transport not in (0, 1, 5) or operation > 23 or operation in (17, 18, 21):
        return None
    if transport == 1 and 12 <= operation <= 20:
        return None
    return f"{transport} {'answers' if 13 <= operation <= 16 else 'requests'}"


_LATE = 2  # mark of a train; 1: its last segment has PSH

#: Of SEND and RDMA WRITE by their opcode below the transport's bits, and bytes of their extended headers.
_PLACES = dict(enumerate(("first", "middle", "last", "last", "only", "only") * 2)) | {0x16: "last", 0x17: "only"}
_EXTENDED = {3: 4, 5: 4, 6: 16, 9: 4, 10: 16, 11: 20, 0x16: 4, 0x17: 4}
#: Bytes of the headers by transport: RC, UC, UD, XRC.
_HEADERS = {0: 12, 1: 12, 3: 20, 5: 16}


def place_of(opcode: int) -> str | None:
    """Place of a RoCEv2 packet in its message: first, middle, last, only; None where it is in none."""
    transport, operation = opcode >> 5, opcode & 31
    if transport not in _HEADERS or (transport == 3 and operation not in (4, 5)):
        return None
    return _PLACES.get(operation)


def bytes_around(opcode: int) -> int:
    """Bytes of a UDP payload that are not data: headers and the checksum."""
    return _HEADERS[opcode >> 5] + _EXTENDED.get(opcode & 31, 0) + 4


def _told_of_roce(packet: Packet) -> tuple[int | None, ...]:
    """Opcode, packet sequence number and syndrome, of whole datagrams."""
    if packet.roce is None or packet.fragment is not None:
        return None, None, None
    return packet.roce.opcode, packet.roce.number, packet.roce.syndrome


def distance(start: int, end: int) -> int:
    """From one sequence number to another, modulo 2^32, -2^31 + 1 to 2^31."""
    return (end - start + 2**31 - 1) % 2**32 - 2**31 + 1


# --- all flows of a file


@dataclass(slots=True)
class _Datagram:
    """A datagram in fragments. flow: of its first fragment, None before that came. received: bytes that came.

    total: all its bytes, None before the last fragment came. waiting: fragments to be counted once the flow is known.
    """

    opened_ns: int
    flow: Flow | None = None
    received: int = 0
    total: int | None = None
    waiting: list[tuple[Packet, Record]] = field(default_factory=list)


class FlowTable:
    """Adds the packets of a file up to flows, encapsulations, cells and packet rows. Lengths of windows: ns.

    bounds: start of the first step and the end of every step, ns, ascending; empty without a log.
    """

    def __init__(self, window_ns: int, bounds: list[int], silence_ns: int = SILENCE_NS) -> None:
        self.flows: list[Flow] = []
        #: Rows of the encapsulations, in the order of first appearance.
        self.encapsulations: dict[Encapsulation, int] = {}
        #: (flow, window, step) -> packets, wire, payload, retransmitted bytes. The caller may empty it at any time.
        self.cells: dict[tuple[int, int, int], list[int]] = {}
        #: Rows of PACKETS (capture_facts.py); fragments stand where their flow was known. The caller may empty it.
        self.packets: list[tuple[int | None, ...]] = []
        #: Rows of TRAINS, of each flow in the order in which they ended. The caller may empty it.
        self.trains: list[tuple[int, ...]] = []
        self._window_ns = window_ns
        self._silence_ns = silence_ns
        self._bounds = bounds
        self._current: dict[tuple[object, ...], Flow] = {}  # key -> flow, the last connection where there are several
        self._streams: dict[tuple[object, ...], Numbers] = {}
        self._datagrams: dict[DatagramKey, _Datagram] = {}  # those that are open, the one opened first in front
        self._waiting = 0  # fragments that wait, of all datagrams

    def add(self, packet: Packet, record: Record) -> None:
        """Count a packet, or let it wait until its datagram's flow is known."""
        self._register(packet.encapsulation)
        if packet.fragment is None:
            self._count(self._flow_of(packet, record), packet, record)
        elif packet.fragment.offset == 0:
            self._add_first(packet.fragment, packet, record)
        else:
            self._add_later(packet.fragment, packet, record)

    def finish(self) -> None:
        """Count the fragments that still wait; the file has been read to the end."""
        for key in list(self._datagrams):
            self._close(key)
        for flow in self.flows:
            self.trains += flow.close_train()

    def _register(self, encapsulation: Encapsulation | None) -> None:
        if encapsulation is not None and encapsulation not in self.encapsulations:
            self._register(encapsulation.around)
            self.encapsulations[encapsulation] = len(self.encapsulations)

    def _flow_of(self, packet: Packet, record: Record) -> Flow:
        """The packet's flow by its own headers; a new one where it begins a flow or a connection."""
        row = None if packet.encapsulation is None else self.encapsulations[packet.encapsulation]
        ends = packet.src_ip, packet.dst_ip, packet.protocol, packet.src_port, packet.dst_port
        queue_pair, opcode = packet.roce[:2] if packet.roce else (None, None)
        key = *ends, row, packet.interface, queue_pair, opcode
        flow = self._current.get(key)
        if flow is None or (packet.segment and not flow.goes_on_with(packet.segment)):
            flow = Flow(len(self.flows), *key, record.time_ns)
            flow.silence_ns = self._silence_ns
            self.flows.append(flow)
            self._current[key] = flow
            if opcode is not None and (stream := stream_of(opcode)) is not None:
                flow.stream = self._streams.setdefault((*key[:-1], stream), Numbers(flow))
        return flow

    def _count(self, flow: Flow, packet: Packet, record: Record) -> None:
        again, repeated = flow.retransmitted_bytes, flow.psn_repeated_bytes
        noted = {name: getattr(flow, name) for name in NOTES}
        flow.add(packet, record)
        self.trains += flow.trains
        flow.trains.clear()
        window = record.time_ns // self._window_ns
        cell = self.cells.setdefault((flow.flow, window, step_of(record.time_ns, self._bounds)), [0, 0, 0, 0])
        cell[0] += 1
        cell[1] += record.wire_bytes
        cell[2] += packet.payload_bytes
        cell[3] += flow.retransmitted_bytes - again
        for name, kind in NOTES.items():
            if getattr(flow, name) > noted[name]:
                cell = self.cells.setdefault((flow.flow, window, kind), [0, 0, 0, 0])
                cell[0] += 1
                cell[1] += (flow.psn_repeated_bytes - repeated) * (name == "psn_repeated_packets")
        sizes = record.wire_bytes, packet.ip_bytes, packet.payload_bytes, record.captured_bytes
        flags, sequence = (packet.segment.flags, packet.segment.sequence) if packet.segment else (None, None)
        told = flags, sequence, packet.ecn, *_told_of_roce(packet)
        self.packets.append((record.number, flow.flow, record.time_ns, *sizes, *told))

    # fragments

    def _add_first(self, fragment: Fragment, packet: Packet, record: Record) -> None:
        """The fragment with the transport header. A skipped one is not given here, as if it had not come."""
        flow = self._flow_of(packet, record)
        self._count(flow, packet, record)  # before those that have waited for it
        datagram = self._open(fragment, record)
        if datagram.flow is not None:  # of another datagram with the same identification
            self._close(fragment.datagram)
            datagram = self._open(fragment, record)
        datagram.flow = flow
        self._release(datagram)
        self._receive(datagram, fragment)

    def _add_later(self, fragment: Fragment, packet: Packet, record: Record) -> None:
        datagram = self._open(fragment, record)
        if datagram.flow is not None:
            self._count(datagram.flow, packet, record)
        else:
            datagram.waiting.append((packet, record))
            self._waiting += 1
        self._receive(datagram, fragment)
        if self._waiting > MOST_WAITING:
            self._close(next(key for key, each in self._datagrams.items() if each.waiting))

    def _open(self, fragment: Fragment, record: Record) -> _Datagram:
        """The fragment's open datagram, which it opens where there is none."""
        key = fragment.datagram
        if key in self._datagrams and record.time_ns - self._datagrams[key].opened_ns >= DATAGRAM_NS:
            self._close(key)
        if key not in self._datagrams:
            if len(self._datagrams) >= MOST_DATAGRAMS:
                self._close(next(iter(self._datagrams)))
            self._datagrams[key] = _Datagram(record.time_ns)
        return self._datagrams[key]

    def _receive(self, datagram: _Datagram, fragment: Fragment) -> None:
        """Add up the datagram's bytes; it is closed when they are complete."""
        datagram.received += fragment.size
        if not fragment.more:
            datagram.total = fragment.offset + fragment.size
        if datagram.total is not None and datagram.received >= datagram.total:
            self._close(fragment.datagram)

    def _close(self, key: DatagramKey) -> None:
        """Forget a datagram. Fragments that still wait for its first one are a flow without ports."""
        self._release(self._datagrams.pop(key))

    def _release(self, datagram: _Datagram) -> None:
        for packet, record in datagram.waiting:
            self._count(datagram.flow or self._flow_of(packet, record), packet, record)
        self._waiting -= len(datagram.waiting)
        datagram.waiting = []


def step_of(time_ns: int, bounds: list[int]) -> int:
    """Step with start <= time < end; -1 before the first, the number of steps after the last."""
    return bisect_right(bounds, time_ns) - 1 if bounds else NO_STEP
