"""The reference engine: tshark's dissectors through pyshark, one packet at a time, in plain Python.

It reads whatever tshark reads (802.11, ...) and is written to be checked by eye; the numba engine is a thousand times
faster. Both give the same facts, by docs/packets.md.

Where the two differ, and why:
- link types and file formats that numba does not open;
- a pcapng: only records are known here, not snaplen, time resolution, unused interfaces and trailing bytes; a damaged
  block or section is what tshark takes for one;
- tshark shows a TCP header's length, flags and sequence number only when 16 bytes of it were captured (numba: 13, 14);
- a frame that was captured whole but ends inside its headers is malformed here and cut_short there;
- an IPv6 extension header of which fewer than 8 bytes were captured is cut_short there; here its next header counts;
- a payload length of 0 before an IPv6 extension header other than jumbo's is malformed here;
- when one of the first three records of a file is damaged, tshark takes the file for an old variant of pcap;
- tshark guesses whether there is a control word between MPLS and an Ethernet frame, and that one is there;
- VLAN tags and PPPoE right behind GRE, and a VXLAN or Geneve packet whose source port is another, smaller protocol's
  (DNS, ...), are not opened here;
- samples stay empty: they are for clocks, which need no second opinion.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ddnn_traces.errors import EngineError
from ddnn_traces.ingestors.capture_file import HEADER_BYTES, PCAPNG, CaptureFile, PcapHeader
from ddnn_traces.ingestors.facts import CaptureFacts, ReadOptions
from ddnn_traces.ingestors.spill import CellSpill
from ddnn_traces.ingestors.tshark.dissect import SHOWN, Skipped, captured_bytes, dissect, encapsulation_type, time_ns
from ddnn_traces.ingestors.tshark.plain_flows import FlowTable, Record

try:
    from pyshark.capture.pipe_capture import PipeCapture
    from pyshark.tshark.output_parser.tshark_json import TsharkJsonParser
    from pyshark.tshark.tshark import TSharkNotFoundException, TSharkVersionException
except ImportError as error:
    raise EngineError("pyshark is not installed: pip install pyshark, or use --engine numba") from error

NAME = "pyshark"

#: Wireshark's numbers of link types (wiretap/wtap.h) as LINKTYPE_ numbers (www.tcpdump.org/linktypes.html).
_LINK_TYPES = {1: 1, 4: 9, 7: 101, 15: 0, 20: 105, 23: 127, 25: 113, 129: 228, 130: 229, 174: 108, 210: 276}
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


def read_capture(path: Path, options: ReadOptions) -> CaptureFacts:
    """Read one capture file of any format that tshark knows. Damage is in the result's status.

    Raises OSError, and EngineError when tshark is missing or fails for another reason than the file.
    """
    with (
        ThreadPoolExecutor(1, thread_name_prefix="feed") as pool,  # ends last: closing the file ends a wait for input
        CaptureFile(path, hashing=options.hashing) as file,
        CellSpill(options.spill) as spill,
    ):
        facts = CaptureFacts(path, NAME, None, file.file_bytes)
        flows = FlowTable(options, spill)
        try:
            with _Feed(file).pipe(pool) as feed:
                reader = _Reader(options, flows, facts, feed)
                complaint = _run_tshark(feed, path, reader.add)
            flows.finish(facts)
        finally:
            flows.rows.close()
        facts.sha256 = file.sha256
        facts.file_bytes = file.raw_bytes
    facts.cells, facts.cell_lag = spill.written, spill.lag
    _describe(facts, file, feed, reader)
    header = PcapHeader.parse(feed.start)
    if isinstance(header, PcapHeader):
        facts.trailing_bytes = max(0, feed.size - HEADER_BYTES - reader.record_bytes)
    elif not facts.records and facts.format is None:  # nothing that anybody reads
        complaint = header
        facts.trailing_bytes = feed.size
    _judge(facts, file, complaint)
    reader.report_rest()
    return facts


def _describe(facts: CaptureFacts, file: CaptureFile, feed: _Feed, reader: _Reader) -> None:
    """Set what the file header says, or what stands for it."""
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
    """Set the status from what the compression and tshark had to complain about."""
    if file.damage:
        facts.status, facts.status_detail = "truncated" if file.truncated else "corrupt", file.damage
    elif complaint:
        facts.status, facts.status_detail = "truncated" if "cut short" in complaint else "corrupt", complaint


# --- tshark


class _Feed:
    """The file's decompressed bytes on their way to tshark's standard input.

    Like this, every compression and every source that CaptureFile knows is one for tshark, too, and the file is read
    once. start: first bytes; size: number of bytes, both as far as the file has been read.
    """

    def __init__(self, file: CaptureFile) -> None:
        self.file = file
        self.start = b""
        self.size = 0
        self.read_end = -1
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
            os.close(self.read_end)  # who still writes gets BrokenPipeError
        fed.result()

    def _write(self, write_end: int) -> None:
        with open(write_end, "wb", buffering=0) as pipe:  # a descriptor, not a path
            broken = False
            for block in self.file.blocks():
                self.start += bytes(block[: HEADER_BYTES - len(self.start)])
                self.size += len(block)
                while len(block) and not broken:
                    try:
                        block = block[pipe.write(block) :]
                    except BrokenPipeError:  # tshark has seen enough; the rest is for the hash
                        broken = True
                if self._stopped:
                    return


class _Parser(TsharkJsonParser):  # type: ignore[misc]  # pyshark has no types
    """pyshark's parser, which takes it that every packet has a time: a pcapng's Simple Packet Block has none."""

    def _parse_single_packet(self, packet: bytes) -> Any:
        if b'"frame.time_epoch"' not in packet:
            packet = packet.replace(b'"frame.number"', b'"frame.time_epoch": "", "frame.number"', 1)
        return super()._parse_single_packet(packet)


class _Tshark(PipeCapture):  # type: ignore[misc]
    """tshark on a pipe, with its exit status and all that it said at the end, of which pyshark is not sure."""

    def __init__(self, pipe: int, loop: asyncio.AbstractEventLoop) -> None:
        self.said = ""
        self.exit_status = 0
        super().__init__(
            pipe,
            use_json=True,
            custom_parameters=["-j", SHOWN],
            override_prefs=_PREFERENCES,
            decode_as=_DECODE_AS,
            eventloop=loop,  # pyshark's own choice of a loop leaves a child watcher behind, and is deprecated
        )

    def _setup_tshark_output_parser(self) -> _Parser:
        return _Parser(self._get_tshark_version())

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


def _run_tshark(feed: _Feed, path: Path, callback: Callable[[Any], None]) -> str | None:
    """Call `callback` with every packet of the file, in order; what tshark finds wrong with the file, if anything.

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
        raise EngineError(f"this tshark does not do ({error}): install 4.0 or newer, or use --engine numba") from error
    complaint = re.search(r'^tshark: The (?:file ".*?"|standard input) (.*)', capture.said, re.DOTALL | re.MULTILINE)
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


# --- records


class _Reader:
    """Counts the records of a file, and hands those that are in a flow on."""

    def __init__(self, options: ReadOptions, flows: FlowTable, facts: CaptureFacts, feed: _Feed) -> None:
        self.record_bytes = 0  # with 16 bytes of header each, which is pcap's
        self.encapsulation_types: set[int] = set()
        self._options = options
        self._flows = flows
        self._facts = facts
        self._feed = feed
        self._reported = 0, 0  # bytes, packets
        self._time_ns = 0

    def add(self, packet: Any) -> None:
        """Count one pyshark packet."""
        facts = self._facts
        if packet.sniff_timestamp:
            self._time_ns = time_ns(packet.sniff_timestamp)
        else:  # the time of the packet before it stands in
            facts.untimed_records += 1
        record = Record(facts.records, self._time_ns, packet.length, captured_bytes(packet))
        self.encapsulation_types.add(encapsulation_type(packet))
        self._count_record(record)
        try:
            dissected = dissect(packet, self._options.open_tunnels)
        except Skipped as skipped:
            packets, wire_bytes = facts.skipped.get(skipped.reason, (0, 0))
            facts.skipped[skipped.reason] = packets + 1, wire_bytes + record.wire_bytes
            if skipped.fragment:
                self._flows.skip_first(skipped.fragment, record)
        else:
            self._flows.add(dissected, record)

    def _count_record(self, record: Record) -> None:
        facts = self._facts
        facts.records += 1
        facts.wire_bytes += record.wire_bytes
        facts.first_ns = record.time_ns if facts.first_ns is None else min(facts.first_ns, record.time_ns)
        facts.last_ns = record.time_ns if facts.last_ns is None else max(facts.last_ns, record.time_ns)
        self.record_bytes += 16 + record.captured_bytes
        if facts.records % _REPORT_EVERY == 0:
            # The pipe is fed in large blocks: of what was read, as much counts as tshark has shown.
            shown = min(1.0, self.record_bytes / max(1, self._feed.size))
            self._report(int(self._feed.file.raw_bytes * shown))

    def _report(self, position: int) -> None:
        before, packets = self._reported
        position = max(position, before)
        self._reported = position, self._facts.records
        self._options.progress(position - before, self._facts.records - packets)

    def report_rest(self) -> None:
        """The file has been read to the end."""
        self._report(self._facts.file_bytes)
