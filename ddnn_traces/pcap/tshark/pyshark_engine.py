"""The pyshark engine: tshark's dissectors through pyshark, one packet at a time, in plain Python.

It reads all that tshark reads (802.11, ...) and is written to be checked by eye; the numba engine is a thousand times
faster. Both give the same facts, by docs/packets.md.

Where the two differ, and why:
- link types and file formats that numba does not open;
- a pcapng: only records are known here, not snaplen, time resolution, unused interfaces and trailing bytes; tshark
  decides which blocks and sections are damaged;
- tshark shows a TCP header's length, flags and sequence number only when 16 bytes of it were captured (numba: 13, 14);
- a frame that was captured whole but ends inside its headers is malformed here and cut_short there;
- an IPv6 extension header of which fewer than 8 bytes were captured is cut_short there; here its next header counts;
- a payload length of 0 before an IPv6 extension header other than jumbo's is malformed here;
- when one of the first three records of a file is damaged, tshark takes the file for an old variant of pcap;
- between MPLS and an Ethernet frame, tshark guesses whether there is a control word; numba expects one;
- VLAN tags and PPPoE right after GRE, and a VXLAN or Geneve packet whose source port is another, smaller protocol's
  (DNS, ...), are not opened here;
- a pcap's fraction of a second of 2^31 ns and more has no time here: tshark prints it as negative;
- PPP_PPPD, C_HDLC_WITH_DIR, and LOOP in little endian: tshark 4.0 does not read them;
- other LLC than SNAP and IP (bridged, OSI) is opened here;
- a PPP protocol of one byte is taken for two, for tshark's output does not show it: where nothing follows the IP
  packet, its length is a byte too small;
- the values before an NFLOG packet are not in tshark's output, so an IP length of 0 is not derived right;
- extension headers of GTP-U are not counted as headers, so an IP length of 0 inside is not derived right;
- InfiniBand (247): tshark 4.0 does not read it, but does in ERF, where a record's time is that of the ERF header;
- RoCEv1 and InfiniBand: tshark shows a base transport header only when 12 bytes of it were captured (numba: 8), and a
  header behind it only when that was captured whole (numba: the byte of an acknowledgement's syndrome);
- samples stay empty: they serve to compare clocks, which is not checked with this engine.
"""

from __future__ import annotations

import asyncio
import functools
import os
import re
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ddnn_traces.capture_format import PCAP_HEADER_BYTES, PCAPNG
from ddnn_traces.errors import EngineError
from ddnn_traces.pcap.capture_facts import (
    ENCAPSULATIONS,
    FLOW_FACTS,
    PACKETS,
    TRAINS,
    CaptureFacts,
    CellSpill,
    ReadOptions,
    Spill,
)
from ddnn_traces.pcap.capture_file import CaptureFile, PcapHeader
from ddnn_traces.pcap.interface_statistics import StatisticsFinder
from ddnn_traces.pcap.link_types import OF_WIRESHARK
from ddnn_traces.pcap.tshark.dissect import (
    SHOWN,
    Skipped,
    captured_bytes,
    dissect,
    encapsulation_type,
    left_out,
    time_ns,
)
from ddnn_traces.pcap.tshark.flows import FlowTable, Record

try:
    from pyshark.capture.pipe_capture import PipeCapture
    from pyshark.tshark.output_parser.tshark_json import TsharkJsonParser
    from pyshark.tshark.tshark import TSharkNotFoundException, TSharkVersionException, get_tshark_version
except ImportError as error:
    raise EngineError("pyshark is not installed: pip install pyshark, or use --engine numba") from error

NAME = "pyshark"

#: Wireshark's numbers of link types (wiretap/wtap.h) as LINKTYPE_ numbers (www.tcpdump.org/linktypes.html).
_LINK_TYPES = {number: link.number for number, link in OF_WIRESHARK.items()} | {20: 105, 23: 127}
_PREFERENCES = {
    "ip.defragment": "FALSE",  # every fragment is a packet of its own
    "ipv6.defragment": "FALSE",
    "ip.tso_support": "TRUE",  # a total length of 0 is a super-frame, whose transport header is to be dissected too
    "ipv6.tso_support": "TRUE",
    "tcp.desegment_tcp_streams": "FALSE",
    "tcp.analyze_sequence_numbers": "FALSE",  # keeps memory even, and saves a third of the time
    "tcp.relative_sequence_numbers": "FALSE",
}
_DECODE_AS = {"udp.port==8472": "vxlan"}  # Linux's own port of VXLAN
_REPORT_EVERY = 1000  # packets
_CELLS_AT_ONCE = 1 << 18
_PACKETS_AT_ONCE = 1 << 16
_NOT_TOLD = -1  # value that stands for null


def read_capture(path: Path, options: ReadOptions) -> CaptureFacts:
    """Read one capture file of any format that tshark knows. Damage is in the result's status.

    Raises OSError, and EngineError when tshark is missing or fails for another reason than the file.
    """
    with ExitStack() as stack:
        pool = ThreadPoolExecutor(1, thread_name_prefix="feed")
        stack.enter_context(pool)  # ends last: closing the file ends a wait for input
        file = stack.enter_context(CaptureFile(path, hash=options.hash, own_thread=options.jobs > 1))
        cells = stack.enter_context(CellSpill(options.spill))
        trains = stack.enter_context(Spill(options.trains, TRAINS))
        packets = stack.enter_context(Spill(options.packets, PACKETS, _NOT_TOLD)) if options.packets else None
        facts = CaptureFacts(path, NAME, file.file_bytes)
        with _Feed(file).pipe(pool) as feed:
            reader = _Reader(options, facts, feed, cells, packets, trains)
            complaint = _run_tshark(feed, path, reader.add)
            complaint = reader.damage or complaint
        reader.finish()
        facts.digests = file.digests
        facts.file_bytes = file.raw_bytes
    facts.cells, facts.cell_lag = cells.written, cells.lag
    facts.trains = trains.written
    facts.packets = packets.written if packets else None
    facts.counters = feed.finder.statistics.counters
    _describe(facts, file, feed, reader)
    header = PcapHeader.parse(feed.start)
    if isinstance(header, PcapHeader):
        facts.trailing_bytes = max(0, feed.size - PCAP_HEADER_BYTES - reader.record_bytes)
    elif not facts.records and facts.format is None:  # not a file that either engine reads
        complaint = header
        facts.trailing_bytes = feed.size
    _judge(facts, file, complaint)
    reader.report_rest()
    return facts


def _describe(facts: CaptureFacts, file: CaptureFile, feed: _Feed, reader: _Reader) -> None:
    """Set the facts of the file header, or for files without one those of the packets."""
    header = PcapHeader.parse(feed.start)
    if isinstance(header, PcapHeader):
        header.describe(facts, file.compression)
        return
    if feed.start.startswith(PCAPNG):
        facts.format = "pcapng" + (f"+{file.compression}" if file.compression else "")
    elif facts.records:
        facts.format = "other"
    known = sorted(_LINK_TYPES[number] for number in reader.encapsulation_types if number in _LINK_TYPES)
    facts.link_types = ",".join(map(str, known)) or None


def _judge(facts: CaptureFacts, file: CaptureFile, complaint: str | None) -> None:
    """Set the status from the damage that the decompression and tshark report."""
    if file.damage:
        facts.status, facts.status_detail = "truncated" if file.truncated else "corrupt", file.damage
    elif complaint:
        facts.status, facts.status_detail = "truncated" if "cut short" in complaint else "corrupt", complaint


# --- tshark


class _Feed:
    """The file's decompressed bytes on their way to tshark's standard input.

    So tshark reads every compression and every source that CaptureFile knows, and the file is read once. start: first
    bytes; size: number of bytes, both as far as the file has been read.
    """

    def __init__(self, file: CaptureFile) -> None:
        self.file = file
        self.start = b""
        self.size = 0
        self.read_end = -1
        self.finder = StatisticsFinder()
        self._stopped = False

    @contextmanager
    def pipe(self, pool: ThreadPoolExecutor) -> Iterator[_Feed]:
        """Feed the pipe `read_end` from the pool's thread; at the end the whole file has been read and hashed.

        After an exception the thread is not waited for: it may be waiting for standard input.
        """
        self.read_end, write_end = os.pipe()
        fed = pool.submit(self._write, write_end)
        try:
            yield self
        except BaseException:
            self._stopped = True
            raise
        finally:
            os.close(self.read_end)  # a writer gets BrokenPipeError
        fed.result()

    def _write(self, write_end: int) -> None:
        with open(write_end, "wb", buffering=0) as pipe:  # a descriptor, not a path
            broken = False
            for block in self.file.blocks():
                self.start += bytes(block[: PCAP_HEADER_BYTES - len(self.start)])
                self.size += len(block)
                self.finder.feed(block)
                while len(block) and not broken:
                    try:
                        block = block[pipe.write(block) :]
                    except BrokenPipeError:  # tshark reads no further; the rest is for the hash
                        broken = True
                if self._stopped:
                    return


class _Parser(TsharkJsonParser):  # type: ignore[misc]  # pyshark has no types
    """pyshark's parser, which fails without the time of a packet: a pcapng's Simple Packet Block has none."""

    def _parse_single_packet(self, packet: bytes) -> Any:
        if b'"frame.time_epoch"' not in packet:
            packet = packet.replace(b'"frame.number"', b'"frame.time_epoch": "", "frame.number"', 1)
        return super()._parse_single_packet(packet)


class _Tshark(PipeCapture):  # type: ignore[misc]
    """tshark on a pipe, with its exit status and its whole error output, which pyshark does not collect reliably."""

    def __init__(self, pipe: int, loop: asyncio.AbstractEventLoop) -> None:
        self.errors = ""
        self.exit_status = 0
        super().__init__(
            pipe,
            use_json=True,
            custom_parameters=["-j", SHOWN],
            override_prefs=_PREFERENCES,
            decode_as=_DECODE_AS,
            eventloop=loop,  # pyshark's own choice of a loop leaves a child watcher, and is deprecated
        )

    def _get_tshark_version(self) -> Any:
        path = self._get_tshark_path()
        return _version(path, Path(path).stat().st_mtime_ns)

    def _setup_tshark_output_parser(self) -> _Parser:
        return _Parser(self._get_tshark_version())

    def _created_new_process(self, parameters: Any, process: Any, process_name: str = "TShark") -> None:
        self._running_processes.add(process)  # pyshark raises if it has ended by now, before its errors are read

    async def _handle_process_stderr_forever(self, stderr: asyncio.StreamReader) -> None:
        self.errors = (await stderr.read()).decode(errors="replace")

    async def _cleanup_subprocess(self, process: asyncio.subprocess.Process) -> None:
        if not self._eof_reached and process.returncode is None:
            process.kill()
        if process.stdout is not None:
            await process.stdout.read()  # asyncio notices its end only when the pipe is empty
        self.exit_status = await process.wait()


@functools.cache
def _version(tshark: str, _changed_ns: int) -> Any:
    """The version of a tshark, which pyshark asks for at each file: that takes as long as to read a small one."""
    return get_tshark_version(tshark)


def _run_tshark(feed: _Feed, path: Path, callback: Callable[[Any], None]) -> str | None:
    """Call `callback` with every packet of the file, in order. Returns the damage that tshark reports, or None.

    tshark has ended when this returns or raises, KeyboardInterrupt included.
    """

    async def run() -> _Tshark:
        capture = _Tshark(feed.read_end, asyncio.get_running_loop())
        await capture.packets_from_tshark(callback)
        return capture

    try:
        capture = _run_coroutine(run)
    except TSharkNotFoundException as error:
        raise EngineError("tshark is not installed: apt-get install tshark, or use --engine numba") from error
    except TSharkVersionException as error:
        raise EngineError(f"unsupported tshark ({error}): install 4.0 or newer, or use --engine numba") from error
    complaint = re.search(r'^tshark: The (?:file ".*?"|standard input) (.*)', capture.errors, re.DOTALL | re.MULTILINE)
    if complaint:
        return " ".join(complaint[1].split())
    if capture.exit_status:
        last_line = capture.errors.strip().rpartition("\n")[2]
        raise EngineError(
            f"tshark failed on {path} with exit status {capture.exit_status} ({last_line}): "
            "install tshark 4.0 or newer, or use --engine numba"
        )
    return None


def _run_coroutine(function: Callable[[], Coroutine[Any, Any, _Tshark]]) -> _Tshark:
    """Result of the coroutine on an event loop of its own; in another thread where this one has a loop (notebooks)."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        # The loop factory leaves the caller's current loop unchanged. Runner turns Ctrl-C into a cancellation.
        with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
            return runner.run(function())
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(_run_coroutine, function).result()


# --- records


class _Reader:
    """Counts the records of a file, and the packets of flows into a FlowTable, whose long tables go to disk."""

    def __init__(
        self,
        options: ReadOptions,
        facts: CaptureFacts,
        feed: _Feed,
        cells: Spill,
        packets: Spill | None,
        trains: Spill,
    ) -> None:
        self.record_bytes = 0  # with 16 bytes of header each, as in a pcap
        self.encapsulation_types: set[int] = set()
        self._options = options
        self._facts = facts
        self._feed = feed
        self._cells, self._packets, self._trains = cells, packets, trains
        self._table = FlowTable(options.window_ns, options.step_bounds.tolist(), options.silence_ns)
        self._reported = 0, 0  # bytes, packets
        self._time_ns = 0
        self.damage: str | None = None

    def add(self, packet: Any) -> None:
        """Count one pyshark packet; none after zeros in place of a pcap's record."""
        facts = self._facts
        time = time_ns(packet.sniff_timestamp)
        if self.damage or (time == packet.length == captured_bytes(packet) == 0 and self._is_pcap()):
            at = PCAP_HEADER_BYTES + self.record_bytes
            self.damage = f"zeros instead of a record header at byte {at} of the uncompressed file"
            return
        if time is None:  # it gets the time of the packet before it
            facts.untimed_records += 1
            facts.invalid_times += bool(packet.sniff_timestamp)
        else:
            self._time_ns = time
        off = left_out(packet)
        record = Record(facts.records, self._time_ns, packet.length + off, captured_bytes(packet) + off)
        self.encapsulation_types.add(encapsulation_type(packet))
        self._count_record(record)
        try:
            dissected = dissect(packet, self._options.open_tunnels)
        except Skipped as skipped:
            reason = str(skipped)
            packets, wire_bytes = facts.skipped.get(reason, (0, 0))
            facts.skipped[reason] = packets + 1, wire_bytes + record.wire_bytes
        else:
            self._table.add(dissected, record)
            self._spill(_CELLS_AT_ONCE, _PACKETS_AT_ONCE, _PACKETS_AT_ONCE)

    def _is_pcap(self) -> bool:
        return isinstance(PcapHeader.parse(self._feed.start), PcapHeader)

    def _spill(self, most_cells: int, most_packets: int, most_trains: int) -> None:
        """Write the table's cells, packets and trains to disk where there are as many."""
        cells, packets = self._table.cells, self._table.packets
        if len(cells) >= most_cells:
            self._cells.write(np.array([(*place, *sums) for place, sums in cells.items()], np.int64).reshape(-1, 7))
            cells.clear()
        if len(packets) >= most_packets:
            if self._packets:
                rows = [[_NOT_TOLD if value is None else value for value in row] for row in packets]
                self._packets.write(np.array(rows, np.int64))
            packets.clear()
        if len(self._table.trains) >= most_trains:
            self._trains.write(np.array(self._table.trains, np.int64).reshape(-1, len(TRAINS)))
            self._table.trains.clear()

    def finish(self) -> None:
        """Fill the flows into the facts, and write the last rows; the file has been read to the end."""
        table = self._table
        table.finish()
        self._spill(0, 0, 0)
        self._facts.flows = pa.Table.from_pylist([vars(flow) for flow in table.flows], schema=FLOW_FACTS)
        rows = table.encapsulations
        tunnels = [each._asdict() | {"parent": rows[each.around] if each.around else None} for each in rows]
        self._facts.encapsulations = pa.Table.from_pylist(tunnels, schema=ENCAPSULATIONS)

    def _count_record(self, record: Record) -> None:
        facts = self._facts
        facts.records += 1
        facts.wire_bytes += record.wire_bytes
        facts.first_ns = record.time_ns if facts.first_ns is None else min(facts.first_ns, record.time_ns)
        facts.last_ns = record.time_ns if facts.last_ns is None else max(facts.last_ns, record.time_ns)
        self.record_bytes += 16 + record.captured_bytes
        if facts.records % _REPORT_EVERY == 0:
            # The pipe is fed in large blocks: of the bytes read, the share counts whose packets tshark has printed.
            shown = min(1.0, self.record_bytes / max(1, self._feed.size))
            self._report(int(self._feed.file.raw_bytes * shown))

    def _report(self, position: int) -> None:
        before, packets = self._reported
        position = max(position, before)
        self._reported = position, self._facts.records
        self._options.progress(position - before, self._facts.records - packets)

    def report_rest(self) -> None:
        """Report the progress up to the end of the file."""
        self._report(self._facts.file_bytes)
