"""Bytes of a capture file: compression, the pcap file header, and blocks of whatever follows it.

pcap as in draft-ietf-opsawg-pcap (magic numbers a1b2c3d4 for microseconds, a1b23c4d for nanoseconds, in either byte
order), plain or gzip, told by content and never by name. Damage is reported, not raised: what could be read counts.
"""

from __future__ import annotations

import hashlib
import itertools
import struct
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

HEADER_BYTES = 24
BLOCK_BYTES = 16 << 20

_PCAP = {  # magic as it lies in the file -> byte order, ns a tick of the fraction
    b"\xd4\xc3\xb2\xa1": ("<", 1000),
    b"\xa1\xb2\xc3\xd4": (">", 1000),
    b"\x4d\x3c\xb2\xa1": ("<", 1),
    b"\xa1\xb2\x3c\x4d": (">", 1),
}
PCAPNG = b"\x0a\x0d\x0d\x0a"
_GZIP = b"\x1f\x8b"
_NOT_YET = {  # known formats that this reader does not read, and what to do about it
    b"\x34\xcd\xb2\xa1": ("pcap in Kuznetzov's modified form", "convert it with 'editcap -F pcap'"),
    b"\xa1\xb2\xcd\x34": ("pcap in Kuznetzov's modified form", "convert it with 'editcap -F pcap'"),
    b"\x28\xb5\x2f\xfd": ("zstd", "decompress it first"),
    b"\xfd7zX": ("xz", "decompress it first"),
    b"\x04\x22\x4d\x18": ("lz4", "decompress it first"),
    b"BZh": ("bzip2", "decompress it first"),
}


@dataclass(frozen=True)
class PcapHeader:
    """File header of a pcap: byte order '<' or '>', nanoseconds a tick, snaplen in bytes, LINKTYPE_ number."""

    byte_order: str
    tick_ns: int
    snaplen: int
    link_type: int

    @classmethod
    def parse(cls, header: bytes) -> Self | str:
        """The header, or what is wrong with it and what to do, as a clause."""
        if not header:
            return "the file is empty, cut short before the pcap file header"
        for magic, (name, advice) in _NOT_YET.items():
            if header.startswith(magic):
                return f"{name} is not read by the numba engine: {advice}"
        if not any(magic.startswith(header[:4]) for magic in _PCAP):
            return "not a capture (no pcap magic number)"
        if len(header) < HEADER_BYTES:
            return f"cut short inside the pcap file header, after {len(header)} of {HEADER_BYTES} bytes"
        byte_order, tick_ns = _PCAP[header[:4]]
        snaplen, link = struct.unpack(byte_order + "II", header[16:24])
        return cls(byte_order, tick_ns, snaplen, link & 0xFFFF)  # upper bits: FCS length, reserved


def looks_like_capture(path: Path) -> bool:
    """Whether the first bytes, decompressed where they are gzip, are the magic number of a pcap or pcapng."""
    with path.open("rb") as file:
        start = file.read(4096)
    if start.startswith(_GZIP):
        try:
            start = zlib.decompressobj(wbits=31).decompress(start, 16)
        except zlib.error:
            return False
    return start[:4] in _PCAP or any(start.startswith(m) for m, (name, _) in _NOT_YET.items() if "pcap" in name)


class CaptureFile:
    """A capture file being read, as a context manager.

    After the last block: `damage` says what is wrong with the compressed stream (None: nothing), `truncated` whether
    that is a mere cut, and `sha256` is that of the file as it lies on disk (None without `hashing`). `progress` is
    called with the number of bytes of the file read since the last call.
    """

    def __init__(self, path: Path, progress: Callable[[int], None] = lambda _: None, hashing: bool = True) -> None:
        self.path = path
        self.file_bytes = path.stat().st_size
        self.compression = ""
        self.damage: str | None = None
        self.truncated = False
        self.raw_bytes = 0
        self._progress = progress
        self._file: BinaryIO = path.open("rb", buffering=0)
        self._hash = hashlib.sha256() if hashing else None
        # The hash runs beside the packet loop: both release the interpreter, and the hash is the slower of the two.
        self._hasher = ThreadPoolExecutor(1, thread_name_prefix="sha256")
        self._hashed: list[Future[None]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._hasher.shutdown(wait=True, cancel_futures=True)
        self._file.close()

    @property
    def sha256(self) -> str | None:
        """SHA-256 in hex of what has been read so far."""
        self._wait_for_hash(0)
        return self._hash.hexdigest() if self._hash else None

    def blocks(self) -> Iterator[memoryview]:
        """Decompressed bytes of the file in blocks. A block is overwritten when the one after next is asked for."""
        plain = self._plain_blocks()
        first = next(plain, memoryview(b""))
        if bytes(first[:2]) == _GZIP:
            self.compression = "gzip"
            yield from self._gunzip(first, plain)
        else:
            yield first
            yield from plain

    def _plain_blocks(self) -> Iterator[memoryview]:
        buffers = [bytearray(BLOCK_BYTES), bytearray(BLOCK_BYTES)]
        while True:
            self._wait_for_hash(1)  # the buffer to be filled has been hashed, the other may still be
            view = memoryview(buffers[0])
            size = self._file.readinto(view)  # type: ignore[attr-defined]  # raw files have it
            if not size:
                return
            self.raw_bytes += size
            self._progress(size)
            if self._hash:
                self._hashed.append(self._hasher.submit(self._hash.update, view[:size]))
            yield view[:size]
            buffers.reverse()

    def _wait_for_hash(self, pending: int) -> None:
        while len(self._hashed) > pending:
            self._hashed.pop(0).result()

    def _gunzip(self, first: memoryview, rest: Iterator[memoryview]) -> Iterator[memoryview]:
        """All members of a gzip file, one after the other (RFC 1952, 2.2)."""
        inflate: zlib._Decompress | None = None  # None between members
        for block in itertools.chain([first], rest):
            data, out = bytes(block), b""
            while data or len(out) == BLOCK_BYTES:  # a full block may have left something inside zlib
                if inflate is None:
                    data = data.lstrip(b"\0")  # some tools pad with zeros
                    if not data:
                        break
                    if not data.startswith(_GZIP[: len(data)]):
                        self.damage = "what follows the gzip stream is not gzip"
                        break
                    inflate = zlib.decompressobj(wbits=31)
                before = inflate.copy()
                try:
                    out = inflate.decompress(data, BLOCK_BYTES)
                except zlib.error as error:
                    self.damage = f"gzip is damaged ({error})"
                    yield from _salvage(before, data)
                    break
                if out:
                    yield memoryview(out)
                data = inflate.unused_data if inflate.eof else inflate.unconsumed_tail
                if inflate.eof:
                    inflate = None
            if self.damage:
                break
        for _ in rest:  # for the hash
            pass
        if inflate is not None and not self.damage:
            self.damage, self.truncated = "gzip is cut short", True


def _salvage(inflate: zlib._Decompress, data: bytes) -> Iterator[memoryview]:
    """What `data` inflates to before the error that is known to be in it: up to the very byte, by halving."""
    at, portion = 0, 1 << 16
    while portion and at < len(data):
        trial = inflate.copy()
        try:
            out = trial.decompress(data[at : at + portion])
        except zlib.error:
            portion //= 2
            continue
        inflate, at = trial, at + portion
        if out:
            yield memoryview(out)


def hash_file(path: Path) -> str:
    """SHA-256 of a file in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
