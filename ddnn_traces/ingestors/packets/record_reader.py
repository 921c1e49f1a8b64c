"""From blocks of bytes, cut anywhere, to whole records for the packet loop; what pcapng says between them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal

from ddnn_traces.ingestors.facts import CaptureFacts
from ddnn_traces.ingestors.packets import pcapng
from ddnn_traces.ingestors.packets.capture_file import PCAP_MAGICS
from ddnn_traces.ingestors.packets.compiled import scan as loop
from ddnn_traces.ingestors.packets.compiled.scan import Framing
from ddnn_traces.ingestors.packets.scanner import Scanner

_AT_ONCE = 4096  # bytes that are first tried to complete a record that is cut by the end of a block


class RecordReader:
    """Reads the records of a pcap. position: offset in the (uncompressed) file of the first byte that is not read yet.

    stop: the first record that begins there, or behind, is not read. progress: called with the packets of each block.
    """

    def __init__(
        self, scanner: Scanner, position: int, stop: int | None = None, progress: Callable[[int], None] | None = None
    ) -> None:
        self.scanner = scanner
        self.position = position
        self.fed = position  # offset behind the last byte that came in
        self.damage: str | None = None
        self.ended = False  # there was damage, or `stop` is reached
        self.described = True  # whether a file header, or a section's, was read
        self._stop = stop
        self._progress = progress
        self._waiting = b""  # begin of a record whose rest is in the next block

    def read(self, blocks: Iterable[memoryview]) -> None:
        """Read all blocks, up to the last even behind damage (whoever reads them may want to hash them)."""
        for block in blocks:
            self.feed(block)

    def feed(self, block: memoryview) -> None:
        """Read the records of one block, and the one that the block before left unfinished."""
        records = self.scanner.records
        self.fed += len(block)
        taken = 0
        while self._waiting and taken < len(block) and not self.ended:
            # Copied are only bytes that may belong to the record that spans both blocks.
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
        """Bytes of complete records read from the begin of `block`."""
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
                    self.damage = f"no sane record header at byte {self.position + pos} of the uncompressed file"
                    if bytes(block[max(0, pos - 16) :][:4]) in PCAP_MAGICS:
                        self.damage += ", where a second pcap begins: take them apart, or join them with mergecap"
        self.position += pos
        return pos

    def _describe(self, why: int, block: memoryview | bytes, pos: int) -> int | None:
        raise AssertionError("a pcap has no sections")

    def finish(self, facts: CaptureFacts) -> None:
        """Write the scanner's facts and what is left over into `facts`."""
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
        self.described = False
        self._section: pcapng.Section | None = None
        self._described: list[pcapng.Interface] = []

    def _describe(self, why: int, block: memoryview | bytes, pos: int) -> int | None:
        """Take over the section header or interface description at `pos`; where to go on.

        None where the header is not complete or damaged.
        """
        try:
            if why == loop.SECTION:
                size = pcapng.section_bytes(bytes(block[pos : pos + 12]))
                if size is None or pos + size > len(block):
                    return None
                self._section = pcapng.parse_section(bytes(block[pos : pos + size]))
                self.described = True
                pos += size
            else:
                assert self._section
                order: Literal["little", "big"] = "little" if self._section.byte_order == "<" else "big"
                size = int.from_bytes(block[pos + 4 : pos + 8], order)
                self._described.append(pcapng.add_interface(self._section, bytes(block[pos : pos + size])))
                pos += size
        except pcapng.BadBlock as error:
            self.ended, self.damage = True, f"{error} at byte {self.position + pos} of the uncompressed file"
            return None
        self.scanner.framing = pcapng_framing(self._section.byte_order == ">")
        self.scanner.interfaces = self._section.interfaces
        return pos

    def finish(self, facts: CaptureFacts) -> None:
        super().finish(facts)
        if self._described:
            links = sorted({interface.link for interface in self._described})
            facts.link_types = ",".join(map(str, links))
            facts.time_resolution_ns = max(interface.resolution_ns for interface in self._described)
            facts.snaplen = max(interface.snaplen for interface in self._described)


def pcapng_framing(big_endian: bool) -> Framing:
    """Framing of a pcapng section; what only a pcap has is 0."""
    return Framing(True, big_endian, 0, 0, 0)
