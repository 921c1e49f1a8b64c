"""The reference engine: tshark's dissectors through pyshark, one packet at a time, in plain Python.

It reads whatever tshark reads (pcapng, MPLS, PPPoE, 802.11, ...) and is written to be checked by eye; the numba engine
is a thousand times faster. Both give the same facts. tshark says what is in which header; sizes are derived here, from
original lengths, by the rules of schemas/flows.toml.

Where the two differ, and why:
- encapsulations that numba does not open (MPLS, PPPoE, ...);
- tshark shows a TCP header's length, flags and sequence number only when 16 bytes of it were captured (numba: 13, 14);
- a frame that was captured whole but ends inside its headers is malformed here and cut_short there;
- an IPv6 extension header of which fewer than 8 bytes were captured is cut_short there; here its next header counts;
- a payload length of 0 before an IPv6 extension header other than jumbo's is malformed here;
- when one of the first three records of a file is damaged, tshark takes the file for an old variant of pcap.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
from bisect import bisect_right
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ddnn_traces.errors import EngineError
from ddnn_traces.ingestors.capture_file import HEADER_BYTES, PCAPNG, CaptureFile, PcapHeader
from ddnn_traces.ingestors.cell_spill import CellSpill
from ddnn_traces.ingestors.facts import FLOW_FACTS, NO_STEP, CaptureFacts, ReadOptions

try:
    import pyshark
    from pyshark.tshark.tshark import TSharkNotFoundException, TSharkVersionException
except ImportError as error:
    raise EngineError("pyshark is not installed: pip install pyshark, or use --engine numba") from error

NAME = "pyshark"

TCP, UDP = 6, 17
NOT_IP, MALFORMED, CUT_SHORT, UNKNOWN_LINK = "not_ip", "malformed", "cut_short", "unknown_link_type"

#: Bytes in front of what a link-layer protocol carries, by its name in frame.protocols.
_LINK_HEADER_BYTES = {
    "eth": 14, "ethertype": 0, "vlan": 4, "ieee8021ad": 4, "sll": 16, "raw": 0, "null": 4, "mpls": 4, "pppoes": 6,
}  # fmt: skip
#: Wireshark's numbers of link types (wiretap/wtap.h) as LINKTYPE_ numbers (www.tcpdump.org/linktypes.html).
_LINK_TYPES = {1: 1, 4: 9, 7: 101, 15: 0, 20: 105, 25: 113, 129: 228, 130: 229, 174: 108, 210: 276}
_WIRETAP_SLL2 = 210
_NO_DISSECTOR = ("", "data", "user_dlt")

#: IPv6 extension headers (RFC 8200): layer, field of the next header, field of the length; length n is
#: (n + first) * unit bytes (RFC 4302 for AH, RFC 6275 for Mobility).
_EXTENSIONS = {
    0: ("hopopts", "nxt", "len", 1, 8),
    43: ("routing", "nxt", "len", 1, 8),
    44: ("fraghdr", "nxt", None, 1, 8),
    51: ("ah", "next_header", "length", 2, 4),
    60: ("dstopts", "nxt", "len", 1, 8),
    135: ("mipv6", "proto", "hlen", 1, 8),
}

# Only these layers are printed: tshark's output is what takes the time.
_SHOWN = "frame ip ipv6 ipv6.hopopts ipv6.routing ipv6.fraghdr ipv6.dstopts ah mipv6 tcp udp"
_PREFERENCES = {
    "ip.defragment": "FALSE",  # every fragment is a packet of its own
    "ipv6.defragment": "FALSE",
    "ip.tso_support": "TRUE",  # a total length of 0 is a super-frame, whose transport header is to be dissected too
    "ipv6.tso_support": "TRUE",
    "tcp.desegment_tcp_streams": "FALSE",
    "tcp.analyze_sequence_numbers": "FALSE",  # keeps memory even, and saves a third of the time
    "tcp.relative_sequence_numbers": "FALSE",
}
_CELLS_AT_ONCE = 1 << 18


def read_capture(path: Path, options: ReadOptions) -> CaptureFacts:
    """Read one capture file of any format that tshark knows. Damage is in the result's status.

    Raises OSError, and EngineError when tshark is missing or fails for another reason than the file.
    """
    with CaptureFile(path, hashing=options.hashing) as file:
        facts = CaptureFacts(path, NAME, None, file.file_bytes)
        start, raw_bytes = _survey(file)
        facts.sha256 = file.sha256
        facts.file_bytes = file.raw_bytes
    header = PcapHeader.parse(start)
    if isinstance(header, PcapHeader):
        facts.describe(header, file.compression)
    elif start.startswith(PCAPNG):
        facts.format = "pcapng" + (f"+{file.compression}" if file.compression else "")
    with CellSpill(options.spill) as spill:
        reader = _Reader(options, spill, facts, raw_bytes)
        complaint = _run_tshark(path, reader.add)
        reader.finish()
    if isinstance(header, PcapHeader):
        # tshark may get more out of a damaged gzip than CaptureFile does.
        facts.trailing_bytes = max(0, raw_bytes - HEADER_BYTES - reader.record_bytes)
    elif not facts.records and facts.format is None:  # nothing that anybody reads
        complaint = header
        facts.trailing_bytes = raw_bytes
    _judge(facts, file, complaint)
    facts.cells = spill.written
    return facts


def _survey(file: CaptureFile) -> tuple[bytes, int]:
    """First bytes of the file and its size, both uncompressed; the file's hash is a by-product."""
    start, size = b"", 0
    for block in file.blocks():
        start += bytes(block[: HEADER_BYTES - len(start)])
        size += len(block)
    return start, size


def _judge(facts: CaptureFacts, file: CaptureFile, complaint: str | None) -> None:
    """Set the status from what the compression and tshark had to complain about."""
    if file.damage:
        facts.status, facts.status_detail = "truncated" if file.truncated else "corrupt", file.damage
    elif complaint:
        facts.status, facts.status_detail = "truncated" if "cut short" in complaint else "corrupt", complaint


# --- tshark


class _Tshark(pyshark.FileCapture):  # type: ignore[misc]  # pyshark has no types
    """tshark on one file, with its exit status and all that it said at the end, of which pyshark is not sure."""

    def __init__(self, path: Path, loop: asyncio.AbstractEventLoop) -> None:
        self.said = ""
        self.exit_status = 0
        super().__init__(
            path.absolute(),  # "-" would be stdin
            keep_packets=False,
            use_json=True,
            custom_parameters=["-j", _SHOWN],
            override_prefs=_PREFERENCES,
            eventloop=loop,  # pyshark's own choice of a loop leaves a child watcher behind, and is deprecated
        )

    def _created_new_process(self, parameters: Any, process: Any, process_name: str = "TShark") -> None:
        self._running_processes.add(process)  # pyshark raises if it has ended by now; but why it has is still to come

    async def _handle_process_stderr_forever(self, stderr: asyncio.StreamReader) -> None:
        self.said = (await stderr.read()).decode(errors="replace")

    async def _cleanup_subprocess(self, process: asyncio.subprocess.Process) -> None:
        if not self._eof_reached and process.returncode is None:
            process.kill()
        if process.stdout is not None:
            await process.stdout.read()  # its end is seen only when the pipe is empty
        self.exit_status = await process.wait()


def _run_tshark(path: Path, callback: Callable[[Any], None]) -> str | None:
    """Call `callback` with every packet of the file, in order; what tshark finds wrong with the file, if anything.

    tshark has ended when this returns or raises, KeyboardInterrupt included.
    """

    async def run() -> _Tshark:
        capture = _Tshark(path, asyncio.get_running_loop())
        await capture.packets_from_tshark(callback)
        return capture

    try:
        capture = _run_coroutine(run)
    except TSharkNotFoundException as error:
        raise EngineError("tshark is not installed: apt-get install tshark, or use --engine numba") from error
    except TSharkVersionException as error:
        raise EngineError(f"this tshark does not do ({error}): install 4.0 or newer, or use --engine numba") from error
    complaint = re.search(r'^tshark: The file ".*?" (.*)', capture.said, re.DOTALL | re.MULTILINE)
    if complaint:
        return " ".join(complaint[1].split())
    if capture.exit_status:
        said = capture.said.strip().rpartition("\n")[2]
        raise EngineError(
            f"tshark failed on {path} with exit status {capture.exit_status} ({said}): "
            "install tshark 4.0 or newer, or use --engine numba"
        )
    return None


def _run_coroutine(function: Callable[[], Coroutine[Any, Any, _Tshark]]) -> _Tshark:
    """Result of the coroutine on an event loop of its own; in another thread where this one has a loop (notebooks)."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        # The loop factory keeps the caller's current loop as it is. Runner turns Ctrl-C into a cancellation.
        with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
            return runner.run(function())
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(_run_coroutine, function).result()


# --- one packet


@dataclass(frozen=True, slots=True)
class Packet:
    """A packet that belongs to a flow. Sizes as in schemas/flows.toml; flags and sequence: None but for TCP."""

    src_ip: str
    dst_ip: str
    protocol: int
    src_port: int
    dst_port: int
    ip_bytes: int
    payload_bytes: int
    flags: int | None = None
    sequence: int | None = None


class _Skipped(Exception):
    """The packet is in no flow; the argument is one of facts.SKIP_REASONS."""


def dissect(packet: Any) -> Packet:
    """The flow's part of a pyshark packet: its first, outermost IP header and what that carries."""
    link_protocols = _link_protocols(packet)
    network = next((layer for layer in packet.layers if layer.layer_name in ("ip", "ipv6")), None)
    if network is None:
        raise _Skipped(_why_not_ip(packet, link_protocols))
    available = _available(packet, link_protocols)
    try:
        if network.layer_name == "ip":
            return _dissect_ipv4(packet, network, available)
        return _dissect_ipv6(packet, network, available)
    except AttributeError:  # pyshark's word for a field that tshark did not come to
        raise _Skipped(CUT_SHORT if "_ws.short" in packet else MALFORMED) from None


def _link_protocols(packet: Any) -> list[str]:
    """Protocols in front of the first IP header."""
    protocols = _text(packet.frame_info, "protocols").split(":")
    first = next((i for i, name in enumerate(protocols) if name in ("ip", "ipv6")), len(protocols))
    return protocols[:first]


def _why_not_ip(packet: Any, protocols: list[str]) -> str:
    if protocols[:1] in ([name] for name in _NO_DISSECTOR):
        return UNKNOWN_LINK
    if all(name in _LINK_HEADER_BYTES for name in protocols):  # it might still have become IP
        if "_ws.short" in packet:
            return CUT_SHORT
        if "_ws.malformed" in packet:
            return MALFORMED
    return NOT_IP


def _available(packet: Any, link_protocols: list[str]) -> int | None:
    """Original bytes from the IP header on; None behind a link header of unknown size."""
    if not all(name in _LINK_HEADER_BYTES for name in link_protocols):
        return None
    header = sum(_LINK_HEADER_BYTES[name] for name in link_protocols)
    if "sll" in link_protocols and _number(packet.frame_info, "encap_type") == _WIRETAP_SLL2:
        header += 4
    return int(packet.length) - header


def _ip_bytes(said: int, empty: int, largest: int, available: int | None) -> int:
    """IP length as the header says, unless it says nothing (`empty`) or could not hold the frame."""
    if available is None:
        return said
    return available if said == empty or said > available or available > largest else said


def _dissect_ipv4(packet: Any, ip: Any, available: int | None) -> Packet:
    if _number(ip, "version") != 4:
        raise _Skipped(MALFORMED)
    ip_bytes = _ip_bytes(_number(ip, "len"), 0, 65535, available)
    payload = ip_bytes - _number(ip, "hdr_len")
    later = _number(ip, "frag_offset") > 0
    return _dissect_transport(packet, ip, _number(ip, "proto"), ip_bytes, payload, later)


def _dissect_ipv6(packet: Any, ip: Any, available: int | None) -> Packet:
    if _number(ip, "version") != 6:
        raise _Skipped(MALFORMED)
    ip_bytes = _ip_bytes(40 + _number(ip, "plen"), 40, 65575, available)
    payload = ip_bytes - 40
    protocol, later = _number(ip, "nxt"), False
    headers: dict[int, list[Any]] = {}  # extension headers not yet passed; some may occur twice
    while protocol in _EXTENSIONS and not later:
        name, following, length, first, unit = _EXTENSIONS[protocol]
        if protocol not in headers:
            layer = ip.get_field(name)
            headers[protocol] = list(layer) if isinstance(layer, list) else [layer]
        if not headers[protocol]:
            raise _Skipped(CUT_SHORT if "_ws.short" in packet else MALFORMED)
        header = headers[protocol].pop(0)
        payload -= (first + (_number(header, length) if length else 0)) * unit
        later = protocol == 44 and _number(header, "offset") > 0
        protocol = _number(header, following)
    return _dissect_transport(packet, ip, protocol, ip_bytes, payload, later)


def _dissect_transport(packet: Any, ip: Any, protocol: int, ip_bytes: int, payload: int, later: bool) -> Packet:
    """The packet, given its IP layer, the protocol and bytes that it carries, and whether it is a later fragment."""
    src_port = dst_port = 0
    flags = sequence = None
    if protocol in (TCP, UDP) and not later:
        transport = getattr(packet, "tcp" if protocol == TCP else "udp")
        src_port, dst_port = _number(transport, "srcport"), _number(transport, "dstport")
        if protocol == UDP:
            payload -= 8
        else:
            header = _number_if_any(transport, "hdr_len")
            header = 20 if header is None else header
            if header < 20:
                raise _Skipped(MALFORMED)
            payload -= header
            flags, sequence = _number_if_any(transport, "flags"), _number_if_any(transport, "seq_raw")
    if payload < 0:
        raise _Skipped(MALFORMED)
    src_ip, dst_ip = _address(_text(ip, "src")), _address(_text(ip, "dst"))
    return Packet(src_ip, dst_ip, protocol, src_port, dst_port, ip_bytes, payload, flags, sequence)


def _text(layer: Any, name: str) -> str:
    """A field's text, the first one where it is repeated; AttributeError where there is none."""
    value = layer.get_field(name)
    return str(value[0] if isinstance(value, list) else value)


def _number(layer: Any, name: str) -> int:
    """A field as a number; tshark prints some in hexadecimal."""
    return int(_text(layer, name), 0)


def _number_if_any(layer: Any, name: str) -> int | None:
    try:
        return _number(layer, name)
    except AttributeError:
        return None


@lru_cache(maxsize=1 << 16)
def _address(text: str) -> str:
    """The address in Python's form (RFC 5952), which is that of the tables."""
    return str(ipaddress.ip_address(text))


def _time_ns(text: str) -> int:
    """Nanoseconds of frame.time_epoch: seconds with 9 decimals, or ISO 8601 with as many (tshark 4.2 and newer)."""
    seconds, _, fraction = text.rstrip("Z").partition(".")
    whole = int(datetime.fromisoformat(seconds).replace(tzinfo=UTC).timestamp()) if "T" in seconds else int(seconds)
    return whole * 1_000_000_000 + int(fraction.ljust(9, "0"))


# --- accumulation


@dataclass(slots=True)
class _Flow:
    """Counters of a flow, by their names in facts.FLOW_FACTS."""

    src_ip: str
    dst_ip: str
    protocol: int
    src_port: int
    dst_port: int
    first_seen_ns: int
    last_seen_ns: int
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
    opened: int = 0
    accepted: int = 0
    next_sequence: int | None = None  # what follows the highest sequence number so far, modulo 2^32

    def add(self, packet: Packet, time_ns: int, wire_bytes: int, captured_bytes: int) -> None:
        self.first_seen_ns = min(self.first_seen_ns, time_ns)
        self.last_seen_ns = max(self.last_seen_ns, time_ns)
        self.packets += 1
        self.wire_bytes += wire_bytes
        self.ip_bytes += packet.ip_bytes
        self.payload_bytes += packet.payload_bytes
        self.captured_bytes += captured_bytes
        if packet.flags is not None and packet.sequence is not None:
            self._add_segment(packet.flags, packet.sequence, packet.payload_bytes)

    def _add_segment(self, flags: int, sequence: int, payload: int) -> None:
        """TCP flags and retransmissions (RFC 9293, 3.1 and 3.4)."""
        fin, syn, rst, ack = (flags & bit != 0 for bit in (1, 2, 4, 16))
        self.fin_packets += fin
        self.syn_packets += syn
        self.rst_packets += rst
        self.opened += syn and not ack
        self.accepted += syn and ack
        following = (sequence + payload + syn + fin) % 2**32
        if syn or (self.next_sequence is None and (payload or fin)):
            self.next_sequence = following  # a new connection counts from its own number: five-tuples are used again
        elif self.next_sequence is not None and (payload or fin):
            behind = _distance(sequence, self.next_sequence)
            if payload and behind > 0:
                self.retransmitted_packets += 1
                self.retransmitted_bytes += min(behind, payload)
            if _distance(self.next_sequence, following) > 0:
                self.next_sequence = following


def _distance(start: int, end: int) -> int:
    """From one sequence number to another, -2^31 to 2^31 - 1."""
    return (end - start + 2**31) % 2**32 - 2**31


class _Reader:
    """Adds packets up to the facts of a file.

    Progress is counted in uncompressed records (16 bytes of header each, which is pcap's) and scaled to the file.
    """

    def __init__(self, options: ReadOptions, spill: CellSpill, facts: CaptureFacts, raw_bytes: int) -> None:
        self.record_bytes = 0
        self._options = options
        self._spill = spill
        self._facts = facts
        self._raw_bytes = raw_bytes
        self._reported = 0
        self._bounds: list[int] = options.step_bounds.tolist()
        self._flows: dict[tuple[str, str, int, int, int], tuple[int, _Flow]] = {}  # key -> number, flow
        self._cells: dict[tuple[int, int, int], list[int]] = {}  # flow, window, step -> packets, wire, payload
        self._encapsulations: set[int] = set()

    def add(self, packet: Any) -> None:
        """Count one pyshark packet."""
        time_ns = _time_ns(packet.sniff_timestamp)
        wire, captured = packet.length, _number(packet.frame_info, "cap_len")
        if self._facts.link_types is None:  # no file header said it
            self._encapsulations.add(_number(packet.frame_info, "encap_type"))
        self._count_record(time_ns, wire, captured)
        try:
            dissected = dissect(packet)
        except _Skipped as skipped:
            reason = str(skipped)
            packets, wire_bytes = self._facts.skipped.get(reason, (0, 0))
            self._facts.skipped[reason] = packets + 1, wire_bytes + wire
        else:
            self._count_packet(dissected, time_ns, wire, captured)

    def _count_record(self, time_ns: int, wire: int, captured: int) -> None:
        facts = self._facts
        facts.records += 1
        facts.wire_bytes += wire
        facts.first_ns = time_ns if facts.first_ns is None else min(facts.first_ns, time_ns)
        facts.last_ns = time_ns if facts.last_ns is None else max(facts.last_ns, time_ns)
        self.record_bytes += 16 + captured
        if facts.records % 1000 == 0:
            self._report(min(self.record_bytes * facts.file_bytes // self._raw_bytes, facts.file_bytes))

    def _report(self, position: int) -> None:
        self._options.progress(position - self._reported, 0)
        self._reported = position

    def _count_packet(self, packet: Packet, time_ns: int, wire: int, captured: int) -> None:
        key = packet.src_ip, packet.dst_ip, packet.protocol, packet.src_port, packet.dst_port
        if key not in self._flows:
            self._flows[key] = len(self._flows), _Flow(*key, first_seen_ns=time_ns, last_seen_ns=time_ns)
        number, flow = self._flows[key]
        flow.add(packet, time_ns, wire, captured)
        step = bisect_right(self._bounds, time_ns) - 1 if self._bounds else NO_STEP
        cell = self._cells.setdefault((number, time_ns // self._options.window_ns, step), [0, 0, 0])
        cell[0] += 1
        cell[1] += wire
        cell[2] += packet.payload_bytes
        if len(self._cells) >= _CELLS_AT_ONCE:
            self._write_cells()

    def _write_cells(self) -> None:
        self._spill.write(np.array([(*place, *sums) for place, sums in self._cells.items()], np.int64).reshape(-1, 6))
        self._cells.clear()

    def finish(self) -> None:
        """Write the last cells and fill in the flows; the file has been read to the end."""
        self._write_cells()
        self._facts.flows = pa.Table.from_pylist([asdict(flow) for _, flow in self._flows.values()], schema=FLOW_FACTS)
        if self._facts.format is None and self._facts.records:
            self._facts.format = "other"
        if self._facts.link_types is None:
            known = sorted(_LINK_TYPES[number] for number in self._encapsulations if number in _LINK_TYPES)
            self._facts.link_types = ",".join(map(str, known)) or None
        self._report(self._facts.file_bytes)
