"""Bytes of a capture file: compression, the pcap file header, and the bytes after it in blocks.

pcap as in draft-ietf-opsawg-pcap (magic numbers a1b2c3d4 for microseconds, a1b23c4d for nanoseconds, in either byte
order), plain or in any format of `compression`, recognised by content and never by name. Damage is reported, not
raised: the bytes before it count.
"""

from __future__ import annotations

import io
import itertools
import mmap
import os
import select
import struct
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from threading import Semaphore, Thread
from types import TracebackType
from typing import BinaryIO, Generic, Self, TypeVar

from ddnn_traces.capture_format import PCAP_HEADER_BYTES, PCAP_MAGICS, PCAPNG
from ddnn_traces.errors import UsageError
from ddnn_traces.pcap.capture_facts import STDIN, CaptureFacts
from ddnn_traces.pcap.compression import Compression, Decompression, compression_of
from ddnn_traces.pcap.streams import RawFile, opened
from ddnn_traces.store import hashes

#: Bytes of the file that are read at once: fastest for a plain file here.
BLOCK_BYTES = 1 << 22
#: About the size of decompressed blocks.
OUTPUT_BYTES = 1 << 20
#: Blocks that a thread may be ahead of the reader, with the one that he has.
BLOCKS_AHEAD = 3
_SNIFFED_BYTES = 4096
#: In this many bytes every format has a complete block (lz4's are the largest), so that something comes out.
_START_BYTES = 5 << 20

_MAJOR = 2  # of the version; libpcap refuses all others but 543.0 of DG/UX, whose two lengths are exchanged
_KUZNETZOV = (b"\x34\xcd\xb2\xa1", b"\xa1\xb2\xcd\x34")

_Block = TypeVar("_Block", bytes, memoryview)


@dataclass(frozen=True)
class PcapHeader:
    """File header of a pcap: byte order '<' or '>', nanoseconds a tick, snaplen in bytes, LINKTYPE_ number."""

    byte_order: str
    tick_ns: int
    snaplen: int
    link_type: int

    @classmethod
    def parse(cls, header: bytes) -> Self | str:
        """The header, or a clause that states the damage and the remedy."""
        if not header:
            return "the file is empty, cut short before the pcap file header"
        if header.startswith(_KUZNETZOV):
            return "pcap in Kuznetzov's modified form is not read: convert it with 'editcap -F pcap'"
        if header.startswith(PCAPNG):
            return "pcapng, which has no pcap file header"
        if not any(magic.startswith(header[:4]) for magic in PCAP_MAGICS):
            return "not a capture (no pcap magic number)"
        if len(header) < PCAP_HEADER_BYTES:
            return f"cut short inside the pcap file header, after {len(header)} of {PCAP_HEADER_BYTES} bytes"
        byte_order, tick_ns = PCAP_MAGICS[header[:4]]
        major, minor = struct.unpack(byte_order + "HH", header[4:8])
        if major != _MAJOR:
            return (
                f"pcap of version {major}.{minor}, only {_MAJOR} is read, as by libpcap: where only the file "
                "header is damaged, write 2.4 into the bytes 4 to 7"
            )
        snaplen, link = struct.unpack(byte_order + "II", header[16:24])
        return cls(byte_order, tick_ns, snaplen, link & 0xFFFF)  # upper bits: FCS length, reserved

    def describe(self, facts: CaptureFacts, compression: str) -> None:
        """Set format, link types, time resolution and snaplen. compression: empty for a plain file."""
        order = "le" if self.byte_order == "<" else "be"
        facts.format = f"pcap-{order}" + (f"+{compression}" if compression else "")
        facts.link_types = str(self.link_type)
        facts.time_resolution_ns = self.tick_ns
        facts.snaplen = self.snaplen


def looks_like_capture(path: Path) -> bool:
    """Whether the first bytes, decompressed where they are compressed, are the magic number of a pcap or pcapng."""
    with io.BufferedReader(opened(path, _SNIFFED_BYTES), _SNIFFED_BYTES) as file:
        start = file.read(_SNIFFED_BYTES)
        if kind := compression_of(start):
            file.seek(0)
            blocks = (file.read(_SNIFFED_BYTES) for _ in range(_START_BYTES // _SNIFFED_BYTES))
            start = _at_least(4, Decompression(kind, blocks, 16).pieces())
    return start[:4] in (*PCAP_MAGICS, PCAPNG, *_KUZNETZOV)


def _at_least(size: int, pieces: Iterator[bytes]) -> bytes:
    start = b""
    while len(start) < size and (piece := next(pieces, b"")):
        start += piece
    return start


def page_aligned(size: int) -> mmap.mmap:
    """A buffer that begins at a page: into another one the kernel copies a file at half the speed."""
    return mmap.mmap(-1, size)


class CaptureFile:
    """A capture file being read, as a context manager; STDIN is read from standard input.

    `file_bytes` is the file's size, for standard input 0 until all is read. After the last block: `raw_bytes` is what
    has been read of the file, `compression` the name of a format or empty, `damage` states the damage of the
    compressed stream (None: none), `truncated` whether it only ends early, and `digests` has the hash of the file as
    it lies on disk, by `hash`, one of store.hashes.CHOICES. With `own_thread` another thread
    hashes; without a hash, it reads ahead.
    `progress` is called, in the reader's thread, with the number of bytes of the file read since the last call.
    Raises OSError, and UsageError where standard input cannot be one.
    """

    def __init__(
        self,
        path: Path,
        progress: Callable[[int], None] = lambda _: None,
        hash: str = hashes.DEFAULT,
        own_thread: bool = False,
    ) -> None:
        self.path = path
        self.compression = ""
        self.damage: str | None = None
        self.truncated = False
        self.raw_bytes = 0
        self.file_bytes = 0 if path == STDIN else path.stat().st_size
        self._progress = progress
        self._reported = 0  # bytes that progress has been called with
        self._stdin = _Stdin() if path == STDIN else None
        self._file: BinaryIO | RawFile = self._stdin.file if self._stdin else opened(path)
        self._algorithm = hash
        self._hash = None if hash == hashes.NONE else hashes.hasher(hash)
        # On one core the blocks are hashed where they are read, while they are in its cache.
        self._hasher = ThreadPoolExecutor(1, thread_name_prefix="hash") if own_thread and self._hash else None
        self._hashed: list[Future[object]] = []
        # A thread that reads and hashes is slower than one that hashes. A named pipe has no size: nothing would end a
        # thread that waits for it.
        is_long = self._stdin is not None or self.file_bytes > BLOCK_BYTES
        self._reads_ahead = own_thread and is_long and not self._hash
        self._ahead: list[_Ahead[bytes] | _Ahead[memoryview]] = []  # each takes from the one before
        self._stopped = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._stop()
        if self._hasher:
            self._hasher.shutdown()
        self._file.close()
        if self._stdin:
            self._stdin.close()

    def _stop(self) -> None:
        """End the threads, whatever they wait for."""
        self._stopped = True
        if self._stdin:
            self._stdin.interrupt()
        for ahead in self._ahead:
            ahead.stop()

    @property
    def digests(self) -> dict[str, str]:
        """The hash in hex of the bytes read so far, by its algorithm; not between the blocks of a compressed file."""
        self._wait_for_hash(0)
        return {self._algorithm: self._hash.hexdigest()} if self._hash else {}

    def blocks(self) -> Iterator[memoryview]:
        """Decompressed bytes of the file in blocks. A block is overwritten when the one after next is requested."""
        raw = self._raw_blocks()
        if self._reads_ahead:
            raw = self._made_ahead(raw, "read")
        first = next(raw, memoryview(b""))
        kind = compression_of(bytes(first[:_SNIFFED_BYTES]))
        blocks = itertools.chain([first], raw)
        for block in self._decompressed(kind, blocks) if kind else blocks:
            self._report_progress()
            yield block
        self._report_progress()
        if self._stdin:
            self.file_bytes = self.raw_bytes

    def _raw_blocks(self) -> Iterator[memoryview]:
        """Blocks of the file as it is."""
        # those ahead, the one that is being read, and the reader's last one
        count = BLOCKS_AHEAD + 2 if self._reads_ahead else 2
        for buffer in itertools.cycle([page_aligned(BLOCK_BYTES) for _ in range(count)]):
            self._wait_for_hash(1)  # the buffer to be filled has been hashed, the other may still be
            view = memoryview(buffer)
            size = self._fill(view)
            if not size:
                return
            self.raw_bytes += size
            self._take(view[:size])
            yield view[:size]

    def _fill(self, view: memoryview) -> int:
        """Read until the buffer is full or the file at its end; a pipe gives little at a time."""
        filled = 0
        while filled < len(view) and not self._stopped and (not self._stdin or self._stdin.wait()):
            size = self._file.readinto(view[filled:])  # type: ignore[union-attr]  # raw files have it
            if not size:
                break
            filled += size
        return filled

    def _take(self, block: memoryview) -> None:
        if self._hash and self._hasher:
            self._hashed.append(self._hasher.submit(self._hash.update, block))
        elif self._hash:
            self._hash.update(block)

    def _wait_for_hash(self, pending: int) -> None:
        while len(self._hashed) > pending:
            self._hashed.pop(0).result()

    def _made_ahead(self, blocks: Iterator[_Block], name: str) -> Iterator[_Block]:
        ahead = _Ahead(blocks, name)
        self._ahead.append(ahead)
        return iter(ahead)

    def _report_progress(self) -> None:
        read = self.raw_bytes
        if read > self._reported:
            self._progress(read - self._reported)
            self._reported = read

    def _decompressed(self, kind: Compression, raw: Iterator[memoryview]) -> Iterator[memoryview]:
        """The decompressed blocks of `raw`, made in a thread of their own."""
        self.compression = kind.name
        size = min(BLOCK_BYTES, OUTPUT_BYTES)
        stream = Decompression(kind, raw, size, None if self._stdin else self._again)
        blocks = itertools.chain(_joined(stream.pieces(), size), _exhausted(raw))
        try:
            for block in self._made_ahead(blocks, "decompress"):
                yield memoryview(block)
        finally:
            self._stop()
        self.damage, self.truncated = stream.damage, stream.truncated

    def _again(self, begin: int, end: int) -> Iterator[bytes]:
        """The file's bytes from `begin` to `end` once more."""
        with opened(self.path, end) as file:
            file.seek(begin)
            while begin < end and (block := file.read(min(OUTPUT_BYTES, end - begin))):
                begin += len(block)
                yield block


class _Ahead(Generic[_Block]):
    """The items of an iterator, made in a thread of its own, up to BLOCKS_AHEAD before they are requested.

    The iterator's exception is raised where its blocks are taken. `stop` must be called in the end.
    """

    def __init__(self, blocks: Iterator[_Block], name: str) -> None:
        self._space = Semaphore(BLOCKS_AHEAD)
        self._made: SimpleQueue[_Block | BaseException | None] = SimpleQueue()
        self._stopped = False
        self._thread = Thread(target=self._make, args=(blocks,), name=name, daemon=True)
        self._thread.start()

    def _make(self, blocks: Iterator[_Block]) -> None:
        end: BaseException | None = None
        try:
            for block in blocks:
                self._space.acquire()
                if self._stopped:
                    break
                self._made.put(block)
        except BaseException as error:
            end = error
        self._made.put(end)

    def __iter__(self) -> Iterator[_Block]:
        while (block := self._made.get()) is not None:
            if isinstance(block, BaseException):
                raise block
            yield block
            self._space.release()

    def stop(self) -> None:
        """End the thread as soon as it waits for space or for input, and wait for its end."""
        self._stopped = True
        self._space.release()
        self._thread.join()


def _joined(pieces: Iterator[bytes], size: int) -> Iterator[bytes]:
    """The same bytes in pieces of `size` at least: decoders give few at a time, and each block has a cost."""
    held: list[bytes] = []
    left = size
    for piece in pieces:
        held.append(piece)
        left -= len(piece)
        if left <= 0:
            yield b"".join(held)
            held, left = [], size
    if held:
        yield b"".join(held)


def _exhausted(raw: Iterator[memoryview]) -> Iterator[bytes]:
    """Nothing, when `raw` has been taken to its end: for the hash of a file that is damaged before it."""
    for _ in raw:
        pass
    yield from ()


class _Stdin:
    """Standard input. One thread may wait for it while another ends the wait."""

    def __init__(self) -> None:
        try:
            number = sys.stdin.fileno()
        except (AttributeError, ValueError, OSError):
            raise UsageError("standard input is closed; pipe a capture in, or name a file") from None
        if os.isatty(number):
            raise UsageError(
                "standard input is a terminal; pipe a capture in, as in 'tcpdump -w - | ddnn-traces ingest -'"
            )
        self.file: BinaryIO = open(number, "rb", buffering=0, closefd=False)  # noqa: SIM115
        self._woken, self._wake = os.pipe()
        self._poll = select.poll()
        self._poll.register(number, select.POLLIN)
        self._poll.register(self._woken, select.POLLIN)

    def wait(self) -> bool:
        """Until there is something to read, or the end; False when interrupted."""
        return self._woken not in dict(self._poll.poll())

    def interrupt(self) -> None:
        os.write(self._wake, b"\0")

    def close(self) -> None:
        os.close(self._woken)
        os.close(self._wake)
