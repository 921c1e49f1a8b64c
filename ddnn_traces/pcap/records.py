"""Records of a capture: from blocks of bytes, cut anywhere, to whole records for the packet loop.

The packet loop reads the packets. The sections and interfaces of a pcapng, which stand between them, are read here
(draft-ietf-opsawg-pcapng, 4.1 and 4.2).
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from ddnn_traces.capture_format import (
    BYTE_ORDERS,
    INTERFACE_STATISTICS,
    MOST_BLOCK_BYTES,
    PCAP_HEADER_BYTES,
    PCAP_MAGICS,
    PCAPNG,
    pcapng_options,
)
from ddnn_traces.pcap.capture_facts import CaptureFacts, Int64Array
from ddnn_traces.pcap.capture_file import PcapHeader
from ddnn_traces.pcap.compiled import scan as loop
from ddnn_traces.pcap.compiled.scan import INTERFACE_COLUMNS, Framing
from ddnn_traces.pcap.interface_statistics import InterfaceStatistics
from ddnn_traces.pcap.scanner import Scanner

_AT_ONCE = 4096  # bytes that are tried first to complete a record that is cut by the end of a block
# A captured length above this and above the file's snaplen is damage, as in libpcap and Wireshark.
_MAX_CAPTURED, _MOST_SNAPLEN = 262144, 1 << 24

_IF_TSRESOL, _IF_TSOFFSET = 9, 14
_SECTION_BYTES, _INTERFACE_BYTES = 28, 20


def pcap_framing(header: PcapHeader) -> Framing:
    """How records lie in a pcap with that file header."""
    max_captured = max(_MAX_CAPTURED, min(header.snaplen, _MOST_SNAPLEN))
    return Framing(False, header.byte_order == ">", header.tick_ns, header.link_type, max_captured)


def _pcapng_framing(byte_order: str) -> Framing:
    """How records lie in a section of a pcapng; the fields that only a pcap has are 0."""
    return Framing(True, byte_order == ">", 0, 0, 0)


def split_header(blocks: Iterator[memoryview]) -> tuple[PcapHeader | str, Framing | None, Iterator[memoryview]]:
    """The file header of a pcap (or why there is none), how records lie in the file, and the bytes that hold them.

    The framing is None for a file that is neither a pcap nor a pcapng. The bytes begin after the header of a pcap, and
    with the first byte of any other file.
    """
    start = b""
    while len(start) < PCAP_HEADER_BYTES and (block := next(blocks, None)) is not None:
        start += bytes(block)
    header = PcapHeader.parse(start[:PCAP_HEADER_BYTES])
    framing, begin = None, 0
    if isinstance(header, PcapHeader):
        framing, begin = pcap_framing(header), PCAP_HEADER_BYTES
    elif start.startswith(PCAPNG):
        framing = _pcapng_framing("<")
    return header, framing, itertools.chain([memoryview(start)[begin:]], blocks)


def reader_of(scanner: Scanner, progress: Callable[[int], None] | None = None) -> RecordReader:
    """The reader for the bytes that `split_header` leaves, by the scanner's framing."""
    if scanner.framing.is_pcapng:
        return PcapngReader(scanner, progress)
    return RecordReader(scanner, PCAP_HEADER_BYTES, progress=progress)


class RecordReader:
    """Reads the records of a pcap, or of a part of a pcapng, up to the next description of a section or interface.

    position: offset in the (uncompressed) file of the first byte that is not read yet. stop: records that begin at this
    offset or after it are not read. progress: called with the number of packets of each block.
    """

    def __init__(
        self, scanner: Scanner, position: int, stop: int | None = None, progress: Callable[[int], None] | None = None
    ) -> None:
        self.scanner = scanner
        self.position = position
        self.fed = position  # offset after the last byte received
        self.damage: str | None = None
        self.ended = False  # there was damage, or `stop` is reached
        self._stop = stop
        self._progress = progress
        self._waiting = b""  # start of a record whose rest is in the next block

    def resume(self, stop: int) -> None:
        """Read on up to another `stop`: what is fed next begins at `position`."""
        self.ended, self._stop, self._waiting = False, stop, b""

    def read(self, blocks: Iterable[memoryview]) -> None:
        """Read all blocks, up to the last one even after damage: the caller may need their hash."""
        for block in blocks:
            self.feed(block)

    def feed(self, block: memoryview) -> None:
        """Read the records of one block, and the one that the block before left unfinished."""
        records = self.scanner.records
        self.fed += len(block)
        taken = 0
        while self._waiting and taken < len(block) and not self.ended:
            # Only bytes that may belong to the record that spans both blocks are copied.
            piece = bytes(block[taken : taken + max(_AT_ONCE, len(self._waiting))])
            joined = self._waiting + piece
            used = self._scan(joined)
            taken += used - len(self._waiting) if used else len(piece)
            self._waiting = b"" if used else joined
        if not self._waiting and not self.ended:
            rest = block[taken:]
            self._waiting = bytes(rest[self._scan(rest) :])
        if self._progress:
            self._progress(self.scanner.records - records)

    def _scan(self, block: memoryview | bytes) -> int:
        """Bytes of complete records read from the start of `block`."""
        stop = None if self._stop is None else self._stop - self.position
        pos = 0
        while not self.ended:
            pos, why = self.scanner.scan(block, pos, stop)
            if why == loop.NEED_BYTES:
                break
            if why in (loop.SECTION, loop.INTERFACE):
                following = self._describe(why, block, pos)
                if following is None:
                    break
                pos = following
            else:
                self.ended = True
                if why == loop.CORRUPT:
                    is_zero = not any(block[pos : pos + 16])
                    what = "zeros instead of a" if is_zero else "no sane"
                    self.damage = f"{what} record header at byte {self.position + pos} of the uncompressed file"
                    if bytes(block[max(0, pos - 16) :][:4]) in PCAP_MAGICS:
                        self.damage += ", where a second pcap begins: split the file, or join the two with mergecap"
        self.position += pos
        return pos

    def _describe(self, why: int, block: memoryview | bytes, pos: int) -> int | None:
        """What to do with a description: end before it."""
        self.ended = True
        return None

    def finish(self, facts: CaptureFacts) -> None:
        """Write the scanner's facts, and how the file ended, into `facts`."""
        self.scanner.finish(facts)
        facts.trailing_bytes = self.fed - self.position
        if self.damage:
            facts.status, facts.status_detail = "corrupt", self.damage
        elif facts.trailing_bytes:
            facts.status = "truncated"
            facts.status_detail = f"last record cut short at byte {self.position} of the uncompressed file"


class PcapngReader(RecordReader):
    """Reads the blocks of a pcapng, from its first section header on."""

    def __init__(self, scanner: Scanner, progress: Callable[[int], None] | None = None) -> None:
        super().__init__(scanner, 0, progress=progress)
        self._section: _Section | None = None
        self._described: list[_Interface] = []
        self._sections = 0
        self._statistics = InterfaceStatistics()

    def _describe(self, why: int, block: memoryview | bytes, pos: int) -> int | None:
        """Take over the section header, interface description or statistics at `pos`; offset of the next block.

        None where the header is not complete or damaged.
        """
        try:
            if why == loop.SECTION:
                size = _section_bytes(bytes(block[pos : pos + 12]))
                if size is None or pos + size > len(block):
                    return None
                self._section = _parse_section(bytes(block[pos : pos + size]))
                self._sections += 1
                pos += size
            else:
                assert self._section
                order: Literal["little", "big"] = "little" if self._section.byte_order == "<" else "big"
                size = int.from_bytes(block[pos + 4 : pos + 8], order)
                content = bytes(block[pos : pos + size])
                if int.from_bytes(content[:4], order) == INTERFACE_STATISTICS:
                    self._statistics.add(self._sections, self._section.byte_order, content)
                else:
                    self._described.append(_add_interface(self._section, content))
                pos += size
        except _BadBlock as error:
            self.ended, self.damage = True, f"{error} at byte {self.position + pos} of the uncompressed file"
            return None
        self.scanner.framing = _pcapng_framing(self._section.byte_order)
        self.scanner.interfaces = self._section.interfaces
        return pos

    def finish(self, facts: CaptureFacts) -> None:
        super().finish(facts)
        if not self._sections:
            facts.format = None
        facts.counters = self._statistics.counters
        if self._described:
            links = sorted({interface.link for interface in self._described})
            facts.link_types = ",".join(map(str, links))
            facts.time_resolution_ns = max(interface.resolution_ns for interface in self._described)
            facts.snaplen = max(interface.snaplen for interface in self._described)


# --- sections and interfaces of a pcapng


class _BadBlock(Exception):
    """A block that violates the format; the argument describes the damage."""


@dataclass
class _Section:
    """The section being read: its byte order and interfaces, int64 (n, INTERFACE_COLUMNS) as in scan.py."""

    byte_order: str
    interfaces: Int64Array = field(default_factory=lambda: np.zeros((0, INTERFACE_COLUMNS), np.int64))


@dataclass(frozen=True)
class _Interface:
    """An interface: LINKTYPE_ number, snaplen in bytes (0: unlimited), ns of a time unit (rounded up)."""

    link: int
    snaplen: int
    resolution_ns: int


def _section_bytes(start: bytes) -> int | None:
    """Length of the section header block that begins so; None while there are too few bytes. Raises _BadBlock."""
    if len(start) < 12:
        return None
    order = BYTE_ORDERS.get(start[8:12])
    if order is None:
        raise _BadBlock("a section without a byte-order magic")
    (length,) = struct.unpack_from(order + "I", start, 4)
    if not _SECTION_BYTES <= length <= MOST_BLOCK_BYTES or length % 4:
        raise _BadBlock(f"a section header of {length} bytes")
    return int(length)


def _parse_section(block: bytes) -> _Section:
    """A whole section header block. Raises _BadBlock."""
    section = _Section(BYTE_ORDERS[block[8:12]])
    length, major, at_end = struct.unpack(section.byte_order + "4xI4xH" + f"{len(block) - 18}x" + "I", block)
    if length != at_end:
        raise _BadBlock("a section header whose two lengths differ")
    if major != 1:
        raise _BadBlock(f"a section of pcapng version {major}; convert it with 'editcap -F pcapng'")
    return section


def _add_interface(section: _Section, block: bytes) -> _Interface:
    """Append the interface of a whole interface description block to its section. Raises _BadBlock."""
    if len(block) < _INTERFACE_BYTES:
        raise _BadBlock(f"an interface description of {len(block)} bytes")
    link, snaplen = struct.unpack_from(section.byte_order + "8xH2xI", block)
    resolution, seconds = 6, 0
    for code, value in pcapng_options(section.byte_order, block[16:-4]):
        if code == _IF_TSRESOL and len(value) == 1:
            resolution = value[0]
        elif code == _IF_TSOFFSET and len(value) == 8:
            (seconds,) = struct.unpack(section.byte_order + "q", value)
    row = np.array([[link, snaplen, *_units(resolution), seconds]], np.int64)
    section.interfaces = np.vstack([section.interfaces, row])
    return _Interface(link, snaplen, _resolution_ns(resolution))


def _units(resolution: int) -> tuple[int, int, int]:
    """ns a unit, units a second or a ns, bits of the fraction: see scan.py. resolution: if_tsresol."""
    exponent = resolution & 0x7F
    if resolution & 0x80:
        return 0, 0, exponent
    if exponent <= 9:
        return 10 ** (9 - exponent), 10**exponent, -1
    return 0, 10 ** (exponent - 9) if exponent <= 27 else 0, -1


def _resolution_ns(resolution: int) -> int:
    exponent = resolution & 0x7F
    units = 2**exponent if resolution & 0x80 else 10**exponent
    return int(-(-(10**9) // units))
