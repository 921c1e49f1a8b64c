"""The fast engine: a capture through the compiled packet loop, in memory that does not grow with the file."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path

from ddnn_traces.ingestors.facts import PACKETS, CaptureFacts, ReadOptions
from ddnn_traces.ingestors.packets import parts
from ddnn_traces.ingestors.packets.capture_file import HEADER_BYTES, PCAPNG, CaptureFile, PcapHeader
from ddnn_traces.ingestors.packets.compiled import scan as loop
from ddnn_traces.ingestors.packets.compiled.jit import is_cached
from ddnn_traces.ingestors.packets.compiled.scan import Framing
from ddnn_traces.ingestors.packets.record_reader import PcapngReader, RecordReader, pcapng_framing
from ddnn_traces.ingestors.packets.scanner import Scanner
from ddnn_traces.ingestors.spill import CellSpill, Spill

NAME = "numba"
# A captured length above this and above the file's snaplen is damage, as in libpcap and Wireshark.
_MAX_CAPTURED, _MOST_SNAPLEN = 262144, 1 << 24
_NO_PACKET = -1  # value of tcp_flags that stands for null


def is_compiled() -> bool:
    """Whether the packet loop need not be compiled first, which takes about half a minute."""
    return bool(loop.scan.signatures) or is_cached()


def read_capture(path: Path, options: ReadOptions) -> CaptureFacts:
    """Read one pcap or pcapng, compressed or not. Damage is in the result's status; raises only OSError."""
    with ExitStack() as stack:
        cells = stack.enter_context(CellSpill(options.spill))
        packets = stack.enter_context(Spill(options.packets, PACKETS, _NO_PACKET)) if options.packets else None
        header = _plain_pcap(path, options)
        if header:
            facts = _read_in_parts(path, header, options, cells)
        else:
            file = stack.enter_context(CaptureFile(path, lambda size: options.progress(size, 0), options.hashing))
            facts = _read_stream(file, options, cells, packets)
    facts.cells, facts.cell_lag = cells.written, cells.lag
    facts.packets = packets.written if packets else None
    return facts


def _plain_pcap(path: Path, options: ReadOptions) -> PcapHeader | None:
    """The header of a file that several threads can read: large, a pcap, not compressed."""
    if options.jobs < 2 or options.packets or not path.is_file() or path.stat().st_size < 2 * parts.PART_BYTES:
        return None
    with path.open("rb") as file:
        header = PcapHeader.parse(file.read(HEADER_BYTES))
    return None if isinstance(header, str) else header


def _read_in_parts(path: Path, header: PcapHeader, options: ReadOptions, cells: Spill) -> CaptureFacts:
    facts = CaptureFacts(path, NAME, None, path.stat().st_size)
    header.describe(facts, "")
    scanner = Scanner(pcap_framing(header), options, cells, None)
    reader, facts.sha256 = parts.read_in_parts(path, scanner, options)
    reader.finish(facts)
    return facts


def _read_stream(file: CaptureFile, options: ReadOptions, cells: Spill, packets: Spill | None) -> CaptureFacts:
    facts = CaptureFacts(file.path, NAME, None, file.file_bytes)
    blocks = file.blocks()
    start, rest = _split_off(blocks, HEADER_BYTES)
    stream: Iterable[memoryview] = itertools.chain([rest], blocks)
    header = PcapHeader.parse(start)
    reader: RecordReader | None = None

    def progress(packets: int) -> None:
        options.progress(0, packets)

    if start.startswith(PCAPNG):
        facts.format = "pcapng" + (f"+{file.compression}" if file.compression else "")
        stream = itertools.chain([memoryview(start)], stream)
        reader = PcapngReader(Scanner(pcapng_framing(False), options, cells, packets), progress)
    elif isinstance(header, str):
        facts.status = "truncated" if "cut short" in header else "corrupt"
        facts.status_detail = header if start or not file.damage else "nothing of it could be decompressed"
        facts.trailing_bytes = len(start) + sum(len(block) for block in stream)
    else:
        header.describe(facts, file.compression)
        scanner = Scanner(pcap_framing(header), options, cells, packets)
        reader = RecordReader(scanner, HEADER_BYTES, progress=progress)
    if reader:
        reader.read(stream)
        reader.finish(facts)
        if not facts.records and not reader.described:
            facts.format = None
    if file.damage:
        mere_cut = file.truncated and facts.status != "corrupt"
        facts.status = "truncated" if mere_cut else "corrupt"
        facts.status_detail = "; ".join(filter(None, (file.damage, facts.status_detail)))
    facts.sha256 = file.sha256
    facts.file_bytes = file.raw_bytes
    return facts


def pcap_framing(header: PcapHeader) -> Framing:
    max_captured = max(_MAX_CAPTURED, min(header.snaplen, _MOST_SNAPLEN))
    return Framing(False, header.byte_order == ">", header.tick_ns, header.link_type, max_captured)


def _split_off(blocks: Iterator[memoryview], size: int) -> tuple[bytes, memoryview]:
    """The first `size` bytes (fewer where the file ends before), and the rest of the block that they end in."""
    start = b""
    for block in blocks:
        start += bytes(block)
        if len(start) >= size:
            break
    return start[:size], memoryview(start)[size:]
