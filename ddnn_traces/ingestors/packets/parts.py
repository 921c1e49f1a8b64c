"""One large pcap read by several threads: cut into parts at byte offsets, each read without the parts before it.

The first record after a cut is guessed; the guess is proven when the records before it end there. A part with a wrong
guess, or one that depends on the parts before it (compiled/join.py), is read again in its place, so that the result is
that of one pass for any number of threads.
"""

from __future__ import annotations

import mmap
import os
import threading
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import numpy as np

from ddnn_traces.ingestors.capture_file import HEADER_BYTES, page_aligned
from ddnn_traces.ingestors.facts import ReadOptions
from ddnn_traces.ingestors.packets.compiled.join import find_record
from ddnn_traces.ingestors.packets.records import RecordReader
from ddnn_traces.ingestors.packets.scanner import Scanner
from ddnn_traces.store.hashes import digests_of

#: Size of a part: its tables should fit into the caches, and many parts share the work evenly.
PART_BYTES = 64 << 20
BLOCK_BYTES = 1 << 20
#: With more flows than this, one pass is faster, and does not need their table several times.
MOST_FLOWS = 1 << 14


class _Part:
    """A scanner of one part after the other, with the buffer that it reads into."""

    def __init__(self, scanner: Scanner) -> None:
        self.scanner = scanner
        self.buffer = page_aligned(BLOCK_BYTES)
        self.begin = -1  # offset of its first record, -1 where none was found
        self.reader = RecordReader(scanner, 0)


class PartsReader:
    """Reads one plain pcap into `whole` with options.jobs threads."""

    def __init__(self, path: Path, whole: Scanner, options: ReadOptions) -> None:
        self.reader = RecordReader(whole, HEADER_BYTES)
        self._whole = whole
        self._options = options
        self._path = path
        self._size = path.stat().st_size
        self._stopped = threading.Event()
        self._free: deque[_Part] = deque()

    def read(self) -> None:
        """Read all. `reader` has the position and damage as after one pass."""
        with self._path.open("rb", buffering=0) as file:
            self._read_in_one_pass(file.fileno(), PART_BYTES)  # which shows whether there are many flows
            if self._whole.flows <= MOST_FLOWS and not self.reader.damage:
                self._read_parts(file.fileno())
            self._free.clear()
            if not self.reader.damage:
                self._read_in_one_pass(file.fileno(), self._size)
        self.reader.fed = self._size

    def _read_parts(self, file: int) -> None:
        """All parts but the first, as long as there are few flows."""
        starts = iter(range(PART_BYTES, self._size, PART_BYTES))
        running: deque[tuple[int, Future[_Part]]] = deque()
        with ThreadPoolExecutor(self._options.jobs, "part") as pool:

            def submit() -> None:
                if (start := next(starts, None)) is not None:
                    running.append((start, pool.submit(self._read_part, file, start)))

            try:
                for _ in range(self._options.jobs + 1):
                    submit()
                while running and not self.reader.damage and self._whole.flows <= MOST_FLOWS:
                    start, future = running.popleft()
                    part = future.result()
                    self._append(file, part, min(start + PART_BYTES, self._size))
                    part.scanner.reset(self._whole)
                    self._free.append(part)
                    submit()
            finally:
                self._stopped.set()
                pool.shutdown(wait=True, cancel_futures=True)
                self._stopped.clear()

    def _read_in_one_pass(self, file: int, stop: int) -> None:
        """The records from the reader's position on that begin before `stop`."""
        self.reader = RecordReader(self._whole, self.reader.position, stop)
        for block in self._blocks(file, self.reader.position, page_aligned(BLOCK_BYTES)):
            position, records = self.reader.position, self._whole.records
            self.reader.feed(block)
            self._options.progress(self.reader.position - position, self._whole.records - records)
            if self.reader.ended:
                break

    def _read_part(self, file: int, start: int) -> _Part:
        """Read the records that begin in [start, start + PART_BYTES), as far as a part alone can."""
        try:
            part = self._free.popleft()
        except IndexError:
            part = _Part(self._whole.for_part())
        stop = min(start + PART_BYTES, self._size)
        part.begin, part.reader = -1, RecordReader(part.scanner, 0, stop)
        blocks = self._blocks(file, start, part.buffer)
        first = next(blocks, memoryview(b""))
        skipped = self._guess(first)
        if skipped >= 0:
            part.begin = part.reader.position = start + skipped
            part.reader.feed(first[skipped:])
            while not part.reader.ended and (block := next(blocks, None)) is not None:
                part.reader.feed(block)
            part.scanner.close_cells()
        return part

    def _guess(self, block: memoryview) -> int:
        framing = self._whole.framing
        data = np.frombuffer(block, np.uint8)
        ticks = 1_000_000_000 // framing.tick_ns
        return int(find_record(data, len(data), framing.big_endian, framing.max_captured, ticks))

    def _append(self, file: int, part: _Part, stop: int) -> None:
        """Append a part to the whole, or read its bytes again where it does not fit there."""
        position, records = self.reader.position, self._whole.records
        if position < stop:
            if part.begin == position and self._whole.join(part.scanner):
                self.reader.position, self.reader.damage = part.reader.position, part.reader.damage
                self._options.progress(self.reader.position - position, self._whole.records - records)
            else:
                self._read_in_one_pass(file, stop)

    def _blocks(self, file: int, start: int, buffer: mmap.mmap) -> Iterator[memoryview]:
        view = memoryview(buffer)
        while not self._stopped.is_set() and (size := os.preadv(file, [view], start)):
            yield view[:size]
            start += size


def prepare(whole: Scanner) -> None:
    """Call the compiled functions that the parts of a file need, on nothing."""
    data = np.frombuffer(bytearray(1), np.uint8)
    find_record(data, 0, whole.framing.big_endian, whole.framing.max_captured, 1_000_000_000 // whole.framing.tick_ns)
    whole.join(whole.for_part())


def read_in_parts(path: Path, whole: Scanner, options: ReadOptions) -> tuple[RecordReader, dict[str, str]]:
    """Read a plain pcap with options.jobs threads, and hash it: (the reader, at its end, and its digests)."""
    with ThreadPoolExecutor(1, "hash") as hasher:
        digests = hasher.submit(digests_of, path, options.hash)
        parts = PartsReader(path, whole, options)
        parts.read()
        return parts.reader, digests.result()
