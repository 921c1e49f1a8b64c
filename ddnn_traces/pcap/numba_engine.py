"""The fast engine: a capture through the compiled packet loop, in memory that does not grow with the file."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import numpy as np

from ddnn_traces import jit
from ddnn_traces.capture_format import PCAP_HEADER_BYTES
from ddnn_traces.pcap import parts
from ddnn_traces.pcap.capture_facts import PACKETS, TRAINS, CaptureFacts, CellSpill, ReadOptions, Spill
from ddnn_traces.pcap.capture_file import CaptureFile, PcapHeader
from ddnn_traces.pcap.compiled import is_cached
from ddnn_traces.pcap.compiled import scan as loop
from ddnn_traces.pcap.compiled.scan import Framing
from ddnn_traces.pcap.records import pcap_framing, reader_of, split_header
from ddnn_traces.pcap.scanner import Scanner
from ddnn_traces.pcap.streams import opened

NAME = "numba"
_ANY_HEADER = PcapHeader("<", 1, 65535, 1)
_NOT_TOLD = -1  # value that stands for null


def is_compiled() -> bool:
    """Whether the packet loop need not be compiled first, which takes about half a minute."""
    return jit.INTERPRETED or bool(loop.scan.signatures) or is_cached()


def prepare(largest: int) -> None:
    """Compile or load what reads a capture, before anything is read: rates are those of reading.

    largest: bytes of the largest file, which several threads may read.
    """
    options = ReadOptions(1, np.empty(0, np.int64), Path())
    scanner = Scanner(pcap_framing(_ANY_HEADER), options, None, None)
    scanner.prepare()
    if largest >= 2 * parts.PART_BYTES:
        parts.prepare(scanner)


def read_capture(path: Path, options: ReadOptions) -> CaptureFacts:
    """Read one pcap or pcapng, compressed or not. Damage is in the result's status; raises only OSError."""
    with ExitStack() as stack:
        cells = stack.enter_context(CellSpill(options.spill))
        trains = stack.enter_context(Spill(options.trains, TRAINS))
        packets = stack.enter_context(Spill(options.packets, PACKETS, _NOT_TOLD)) if options.packets else None
        start = _plain_start(path) if _has_readers(options) and _is_large(path, options) else None
        if start:
            facts = _read_in_parts(path, *start, options, cells, trains)
        else:
            file = stack.enter_context(_opened(path, options))
            facts = _read_stream(file, options, cells, packets, trains)
    facts.cells, facts.cell_lag = cells.written, cells.lag
    facts.trains = trains.written
    facts.packets = packets.written if packets else None
    return facts


def is_cut(path: Path, options: ReadOptions, least: float) -> bool:
    """Whether a pool would read the parts of this file, if it has more than `least` bytes, not the file as a whole."""
    return _is_large(path, options) and path.stat().st_size > least and _plain_start(path) is not None


def _has_readers(options: ReadOptions) -> bool:
    """Whether there is a pool, or threads enough: with two, one that hashes, or reads ahead of the packet loop, is
    faster, and the file is read once."""
    return options.pool is not None or options.jobs > 2


def _is_large(path: Path, options: ReadOptions) -> bool:
    """Whether a file is worth cutting, if it is a plain capture whose packets are not wanted in order."""
    return not options.packets and path.is_file() and path.stat().st_size >= 2 * parts.PART_BYTES


def _plain_start(path: Path) -> tuple[PcapHeader | str, Framing] | None:
    """What split_header says of a capture that is not compressed."""
    with opened(path, PCAP_HEADER_BYTES) as file:
        header, framing, _ = split_header(iter([memoryview(file.read(PCAP_HEADER_BYTES))]))
    return (header, framing) if framing else None


def _opened(path: Path, options: ReadOptions) -> CaptureFile:
    return CaptureFile(path, lambda size: options.progress(size, 0), options.hash, own_thread=options.jobs > 1)


def _read_in_parts(
    path: Path, header: PcapHeader | str, framing: Framing, options: ReadOptions, cells: Spill, trains: Spill
) -> CaptureFacts:
    size = path.stat().st_size
    facts = CaptureFacts(path, NAME, size)
    _describe(facts, header, "")
    scanner = Scanner(framing, options, cells, None, trains)
    reader, facts.digests = parts.read_in_parts(path, size, scanner, options)
    reader.finish(facts)
    return facts


def _read_stream(
    file: CaptureFile, options: ReadOptions, cells: Spill, packets: Spill | None, trains: Spill
) -> CaptureFacts:
    facts = CaptureFacts(file.path, NAME, file.file_bytes)
    header, framing, stream = split_header(file.blocks())
    if framing is None:
        assert isinstance(header, str)
        facts.trailing_bytes = sum(len(block) for block in stream)
        facts.status = "truncated" if "cut short" in header else "corrupt"
        nothing_came = file.damage and not facts.trailing_bytes
        facts.status_detail = "nothing of it could be decompressed" if nothing_came else header
    else:
        _describe(facts, header, file.compression)
        scanner = Scanner(framing, options, cells, packets, trains)
        reader = reader_of(scanner, lambda packets: options.progress(0, packets))
        reader.read(stream)
        reader.finish(facts)
    if file.damage:
        is_cut = file.truncated and facts.status != "corrupt"
        facts.status = "truncated" if is_cut else "corrupt"
        facts.status_detail = "; ".join(filter(None, (file.damage, facts.status_detail)))
    facts.digests = file.digests
    facts.file_bytes = file.raw_bytes
    return facts


def _describe(facts: CaptureFacts, header: PcapHeader | str, compression: str) -> None:
    """The format into `facts`. header: as of split_header; a text of a pcapng."""
    if isinstance(header, PcapHeader):
        header.describe(facts, compression)
    else:
        facts.format = "pcapng" + (f"+{compression}" if compression else "")
