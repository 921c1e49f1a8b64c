"""Streams of gzip, zstd, lz4, xz and bzip2, decompressed piece by piece.

A stream is one member (zstd, lz4: frame; xz, bzip2: stream) after the other, all of the format of the first. The
libraries of all formats are brought to the interface that the standard library's lzma and bz2 have (`Decoder`). They
verify the check sums; damage of a stream is reported, not raised. Each is loaded when its format occurs.
"""

from __future__ import annotations

import bz2
import lzma
import struct
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, Self, cast

if TYPE_CHECKING:
    from zlib_ng import zlib_ng

#: Compressed bytes that a decoder is given at once.
PIECE_BYTES = 1 << 18
#: The furthest that a stream may refer back to, as zstd has it by default: it must be held in memory.
MAX_WINDOW_BYTES = 128 << 20
_XZ_MEMORY = MAX_WINDOW_BYTES + (32 << 20)  # and its own need: some MB
_SKIPPABLE = tuple(bytes([0x50 + i]) + b"\x2a\x4d\x18" for i in range(16))  # RFC 8878, 3.1.2; lz4 has the same
_ZSTD = b"\x28\xb5\x2f\xfd"
_TOO_WIDE = "Memory usage limit exceeded"  # in lzma's words


class Decoder(Protocol):
    """One member, as in lzma and bz2. unused_data: the bytes after the member, once `eof`; may be None for none."""

    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes | None: ...
    def decompress(self, data: bytes, max_length: int) -> bytes: ...


class _Inflate:
    """A gzip member, by zlib-ng."""

    def __init__(self, inflate: zlib_ng._Decompress) -> None:
        self._inflate = inflate
        self.needs_input = True

    @property
    def eof(self) -> bool:
        return self._inflate.eof

    @property
    def unused_data(self) -> bytes:
        return self._inflate.unused_data

    def decompress(self, data: bytes, max_length: int) -> bytes:
        tail = self._inflate.unconsumed_tail
        out = self._inflate.decompress(tail + data if tail else data, max_length)
        self.needs_input = not self._inflate.unconsumed_tail and len(out) < max_length
        return out

    def copy(self) -> Self:
        return type(self)(self._inflate.copy())  # type: ignore[attr-defined]  # its stub lacks it


class _Unzstd:
    """A zstd frame (RFC 8878, 3.1), by zstandard.

    zstandard decompresses all its input at once, and 4 bytes may become 128 KiB. So it is given one block at a time,
    which limits the output of a call; max_length is ignored. An error loses none of the output before it.
    """

    def __init__(self) -> None:
        self.eof = False
        self.unused_data = b""
        self._held, self._at = b"", 0
        self._out = b""
        self._walk = self._parts()
        self._least, self._most = next(self._walk)  # bytes that the walk needs next

    @property
    def needs_input(self) -> bool:
        return len(self._held) - self._at < self._least

    def decompress(self, data: bytes, max_length: int) -> bytes:
        if data:
            self._held, self._at = self._held[self._at :] + data, 0
        self._out = b""
        try:
            while not self._out and not self.needs_input:
                part = self._held[self._at : self._at + self._most]
                self._at += len(part)
                self._least, self._most = self._walk.send(part)
        except StopIteration:
            self.eof = True
            self.unused_data = self._held[self._at :]
        return self._out

    def _parts(self) -> Generator[tuple[int, int], bytes, None]:
        """Yields the least and the most bytes it needs next, is sent them, and leaves their output in _out."""
        import zstandard

        start = yield 5, 5
        if start.startswith(_SKIPPABLE):
            left = int.from_bytes(start[4:] + (yield 3, 3), "little")
            while left:
                left -= len((yield 1, left))
            return
        single, content_size = start[4] >> 5 & 1, start[4] >> 6
        more = (1 - single) + (0, 1, 2, 4)[start[4] & 3] + (single, 2, 4, 8)[content_size]
        header = start + (yield more, more)
        frame = zstandard.get_frame_parameters(header)
        if frame.window_size > MAX_WINDOW_BYTES:
            raise zstandard.ZstdError(_TOO_WIDE)
        content = zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW_BYTES).decompressobj()
        content.decompress(header)
        last = False
        while not last:
            block = yield 3, 3
            content.decompress(block)
            bits = int.from_bytes(block, "little")
            last, kind, left = bool(bits & 1), bits >> 1 & 3, bits >> 3
            if kind == 1:  # one byte, `left` times
                left = 1
            while left:
                part = yield (1 if kind == 0 else left), left  # a stored block may come in any parts
                left -= len(part)
                self._out = content.decompress(part)
        if frame.has_checksum:
            content.decompress((yield 4, 4))


#: A function that makes a decoder, and the exception that its library raises for damaged data.
Library = tuple[Callable[[], Decoder], type[Exception]]


def _gzip() -> Library:
    from zlib_ng import zlib_ng

    error = cast("type[Exception]", zlib_ng.error)  # its stub declares an instance
    return lambda: _Inflate(zlib_ng.decompressobj(wbits=31)), error


def _zstd() -> Library:
    import zstandard

    return _Unzstd, zstandard.ZstdError


def _lz4() -> Library:
    from lz4.frame import LZ4FrameDecompressor

    return LZ4FrameDecompressor, RuntimeError


def _xz() -> Library:
    return lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, _XZ_MEMORY), lzma.LZMAError


def _bzip2() -> Library:
    return bz2.BZ2Decompressor, OSError


@dataclass(frozen=True)
class Compression:
    """A format. magics: how a member may begin. padded: whether zeros may follow a member.

    exact: whether an error in a decoder loses none of the output before it in the same call.
    """

    name: str
    magics: tuple[bytes, ...]
    load: Callable[[], Library]
    padded: bool = False
    exact: bool = False

    def begins(self, data: bytes) -> bool:
        """Whether a member may begin with `data`, which may be shorter than a magic number."""
        return any(magic.startswith(data[: len(magic)]) for magic in self.magics)


FORMATS = (
    Compression("gzip", (b"\x1f\x8b",), _gzip, padded=True),
    Compression("zstd", (_ZSTD, *_SKIPPABLE), _zstd, exact=True),
    Compression("lz4", (b"\x04\x22\x4d\x18", *_SKIPPABLE), _lz4),
    Compression("xz", (b"\xfd7zXZ\0",), _xz, padded=True),
    Compression("bzip2", tuple(b"BZh%d" % level for level in range(1, 10)), _bzip2),
)


def compression_of(start: bytes) -> Compression | None:
    """The format of a file by its first bytes, or None for a plain file.

    zstd and lz4 may begin with the same skippable frames; where `start` holds nothing else it counts as zstd.
    """
    at = 0
    while start.startswith(_SKIPPABLE, at) and at + 8 < len(start):
        at += 8 + int(struct.unpack_from("<I", start, at + 4)[0])
    for known in FORMATS:
        if start.startswith(known.magics, at) or (at >= len(start) and start.startswith(known.magics)):
            return known
    return None


class Decompression:
    """A compressed stream being read: `pieces()`, once.

    stream: the compressed bytes. max_bytes: how many decompressed bytes are made at a time. again: the compressed bytes
    from one offset to another once more; without it an error may lose up to max_bytes before it.
    Afterwards `damage` states the damage of the stream (None: none), and `truncated` whether it only ends early.
    """

    def __init__(
        self,
        kind: Compression,
        stream: Iterable[bytes | memoryview],
        max_bytes: int,
        again: Callable[[int, int], Iterable[bytes | memoryview]] | None = None,
    ) -> None:
        self.damage: str | None = None
        self.truncated = False
        self._kind = kind
        self._decoder, self._error = kind.load()
        self._stream = stream
        self._max_bytes = max_bytes
        self._again = again
        self._offset = 0  # in the stream, after the bytes taken from it
        self._member = 0  # offset of the member's start

    def pieces(self) -> Iterator[bytes]:
        """The decompressed bytes, up to the last before any damage; no bytes after that are taken from the stream."""
        name = self._kind.name
        decoder: Decoder | None = None  # None between members
        for data in _cut(self._stream):
            self._offset += len(data)
            while data:
                if decoder is None:
                    data = data.lstrip(b"\0") if self._kind.padded else data
                    if not data:
                        break
                    if not self._kind.begins(data):
                        self.damage = f"the bytes after the {name} stream are not {name}"
                        return
                    decoder, self._member = self._decoder(), self._offset - len(data)
                yield from self._feed(decoder, data)
                if self.damage:
                    return
                data = (decoder.unused_data or b"") if decoder.eof else b""
                decoder = None if decoder.eof else decoder
        if decoder is not None:
            self.damage, self.truncated = f"{name} is cut short", True

    def _feed(self, decoder: Decoder, data: bytes) -> Iterator[bytes]:
        before = decoder.copy() if isinstance(decoder, _Inflate) else None
        given = 0
        try:
            for out in _drain(decoder, data, self._max_bytes):
                given += len(out)
                yield out
        except self._error as error:
            self.damage = f"{self._kind.name} {_what(error)}"
        if self.damage and not self._kind.exact:
            yield from self._salvage(before, data, given)

    def _salvage(self, before: Decoder | None, data: bytes, given: int) -> Iterator[bytes]:
        """The output of `data`, byte by byte, up to the error in it; without the first `given` bytes."""
        decoder = before or self._replay(self._offset - len(data))
        if decoder is None:
            return
        try:
            for at in range(len(data)):
                for out in _drain(decoder, data[at : at + 1], self._max_bytes):
                    if out[given:]:
                        yield out[given:]
                    given = max(0, given - len(out))
        except self._error:
            return

    def _replay(self, end: int) -> Decoder | None:
        """A decoder in the state that it has at an offset of the stream: from the start of the member once more."""
        if self._again is None:
            return None
        decoder = self._decoder()
        for data in _cut(self._again(self._member, end)):
            for _ in _drain(decoder, data, self._max_bytes):
                pass
        return decoder


def _cut(stream: Iterable[bytes | memoryview]) -> Iterator[bytes]:
    """The stream in pieces of PIECE_BYTES at most."""
    for block in stream:
        for at in range(0, len(block), PIECE_BYTES):
            yield bytes(block[at : at + PIECE_BYTES])


def _drain(decoder: Decoder, data: bytes, max_bytes: int) -> Iterator[bytes]:
    """All output of a decoder for `data`, max_bytes at a time."""
    out = decoder.decompress(data, max_bytes)
    # bz2 and lz4 request input while they still hold output back: they are done when they give none without input.
    while data or out or not decoder.needs_input:
        if out:
            yield out
        if decoder.eof:
            return
        data = b""
        out = decoder.decompress(data, max_bytes)


def _what(error: Exception) -> str:
    if str(error).startswith(_TOO_WIDE):
        return f"needs a window above {MAX_WINDOW_BYTES >> 20} MB: decompress the file first, with its own tool"
    return f"is damaged ({error})"
