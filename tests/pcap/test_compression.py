"""Compressed streams: whole, in members, cut, damaged, and larger than memory should be."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import lzma
import random
import struct
import subprocess
import sys
import time
import tracemalloc
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import lz4.frame
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from tools import mostly_long

from ddnn_traces.pcap import capture_file
from ddnn_traces.pcap.capture_file import CaptureFile
from ddnn_traces.pcap.compression import FORMATS, PIECE_BYTES, compression_of
from ddnn_traces.store.hashes import digests_of

CHANCE = random.Random(3)
#: Incompressible, slightly and highly compressible bytes; more than a block of every format.
TRUTH = CHANCE.randbytes(70_000) + b"".join(b"%d " % CHANCE.randrange(10**6) for _ in range(30_000)) + bytes(150_000)


def zstd(data: bytes) -> bytes:
    return zstandard.ZstdCompressor(write_checksum=True).compress(data)


def lz4_frame(data: bytes) -> bytes:
    return lz4.frame.compress(data, content_checksum=True)


ENCODERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": lambda data: gzip.compress(data, mtime=0),
    "zstd": zstd,
    "lz4": lz4_frame,
    "xz": lzma.compress,
    "bzip2": lambda data: bz2.compress(data, 1),
}
#: The library's own decoder and its error.
DECODERS: dict[str, tuple[Callable[[], Any], type[Exception]]] = {
    "gzip": (lambda: zlib.decompressobj(wbits=31), zlib.error),
    "zstd": (lambda: zstandard.ZstdDecompressor().decompressobj(), zstandard.ZstdError),
    "lz4": (lz4.frame.LZ4FrameDecompressor, RuntimeError),
    "xz": (lzma.LZMADecompressor, lzma.LZMAError),
    "bzip2": (bz2.BZ2Decompressor, OSError),
}
EVERY = pytest.mark.parametrize("name", ENCODERS)
#: Tests that read a file many times: one format in make test, all in make test-all.
MOSTLY_LONG = pytest.mark.parametrize("name", mostly_long(ENCODERS, "gzip"))
SKIPPABLE = pytest.mark.parametrize("name", ["zstd", "lz4"])


def read(folder: Path, content: bytes) -> tuple[bytes, CaptureFile]:
    """All that can be read of a file; its hash and size must be right whatever is in it."""
    path = folder / "capture"
    path.write_bytes(content)
    progress: list[int] = []
    with CaptureFile(path, progress.append) as file:
        got = b"".join(map(bytes, file.blocks()))
    assert file.raw_bytes == file.file_bytes == sum(progress) == len(content)
    assert file.digests == digests_of(path, "blake3")
    return got, file


#: Bytes that a library gets at once where they have no error.
PIECE = 512


def byte_by_byte(name: str, content: bytes) -> bytes:
    """What the library itself makes of one member until an error: byte by byte in the piece that has the error."""
    pieces = [content[at : at + PIECE] for at in range(0, len(content), PIECE)]
    sound = min(decoded(name, pieces)[1], len(pieces) - 1)
    return decoded(name, [*pieces[:sound], *(bytes([byte]) for byte in content[sound * PIECE :])])[0]


def decoded(name: str, pieces: Iterable[bytes]) -> tuple[bytes, int]:
    """What the library makes of these, and the number of pieces before the one with an error or the end."""
    new, error = DECODERS[name]
    decoder, got, sound = new(), [], 0
    limit = () if name == "zstd" else (1 << 20,)  # without one lz4 makes room for little, and holds the rest back
    with contextlib.suppress(error):
        for piece in pieces:
            got.append(decoder.decompress(piece, *limit))
            while not decoder.eof and (more := decoder.decompress(b"", *limit)):  # some hold it back until asked
                got.append(more)
            if decoder.eof:
                break
            sound += 1
    return b"".join(got), sound


def skippable_frame(content: bytes, number: int = 0) -> bytes:
    return struct.pack("<II", 0x184D2A50 + number, len(content)) + content


# --- whole streams


@EVERY
def test_members(tmp_path: Path, name: str) -> None:
    encode = ENCODERS[name]
    one = encode(TRUTH)
    assert read(tmp_path, one)[0] == TRUTH
    several = encode(TRUTH[:10]) + encode(TRUTH[10:200_000]) + encode(b"") + encode(b"") + encode(TRUTH[200_000:])
    for content, truth in ((several, TRUTH), (one + one, TRUTH + TRUTH), (encode(b""), b""), (encode(b"x"), b"x")):
        got, file = read(tmp_path, content)
        assert got == truth
        assert (file.damage, file.truncated, file.compression) == (None, False, name)


@EVERY
@pytest.mark.parametrize("block", [10, 18, 333, 4099])
def test_blocks_of_any_size(tmp_path: Path, name: str, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capture_file, "BLOCK_BYTES", block)
    truth = TRUTH[69_000:71_000]
    one = ENCODERS[name](truth)
    got, file = read(tmp_path, one + one)
    assert (got, file.damage, file.compression) == (truth + truth, None, name)


@EVERY
def test_stream_longer_than_a_piece(tmp_path: Path, name: str) -> None:
    """Members that begin at another place of every piece."""
    noise = random.Random(4).randbytes(3 * PIECE_BYTES // 7)
    got, file = read(tmp_path, ENCODERS[name](noise) * 8)
    assert len(got) > PIECE_BYTES
    assert (got == noise * 8, file.damage) == (True, None)


@EVERY
def test_thousands_of_members(tmp_path: Path, name: str) -> None:
    member = ENCODERS[name](b"x")
    got, file = read(tmp_path, member * 3000)
    assert (got, file.damage) == (b"x" * 3000, None)


@SKIPPABLE
def test_skippable_frames(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    skip, encode = skippable_frame, ENCODERS[name]
    first, second = encode(TRUTH[:1000]), encode(TRUTH[1000:])
    for content in (
        skip(b"abc") + first + second,
        skip(b"", 15) + skip(bytes(2000)) + first + skip(b"abc" * 100_000, 7) + second + skip(b""),
    ):
        got, file = read(tmp_path, content)
        assert (got == TRUTH, file.damage, file.compression) == (True, None, name)
    for cut in (1, 8, 9, 10):
        content = first + second + skip(b"abc")
        got, file = read(tmp_path, content[:-cut])
        assert (got == TRUTH, file.truncated) == (True, True)


def test_skippable_frame_alone(tmp_path: Path) -> None:
    got, file = read(tmp_path, skippable_frame(b"abc"))
    assert (got, file.damage, file.compression) == (b"", None, "zstd")


def zstd_variants() -> Iterator[bytes]:
    for level in (-5, 1, 19):
        yield zstandard.ZstdCompressor(level, write_content_size=False).compress(TRUTH)
    stream = zstandard.ZstdCompressor(write_checksum=True).compressobj()  # content size unknown: not one segment
    yield (
        b"".join(
            stream.compress(TRUTH[at : at + 999]) + stream.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)
            for at in range(0, len(TRUTH), 999)
        )
        + stream.flush()
    )


def lz4_variants() -> Iterator[bytes]:
    for size in (lz4.frame.BLOCKSIZE_MAX64KB, lz4.frame.BLOCKSIZE_MAX4MB):
        for linked in (True, False):
            yield lz4.frame.compress(TRUTH, 0, size, linked, block_checksum=True, store_size=linked)


def xz_variants() -> Iterator[bytes]:
    for check in (lzma.CHECK_NONE, lzma.CHECK_CRC32, lzma.CHECK_SHA256):
        yield lzma.compress(TRUTH, check=check, preset=1)


@pytest.mark.parametrize("variants", [zstd_variants, lz4_variants, xz_variants])
def test_variants_of_a_format(tmp_path: Path, variants: Callable[[], Iterator[bytes]]) -> None:
    for content in variants():
        got, file = read(tmp_path, content)
        assert (got == TRUTH, file.damage) == (True, None)


# --- damage


@MOSTLY_LONG
@pytest.mark.long_after(2)
def test_cut_short(tmp_path: Path, name: str) -> None:
    """Down to the last byte that the library gives for the remaining bytes."""
    content = ENCODERS[name](TRUTH)
    cuts = {6, 7, 10, 18, *range(20, len(content), len(content) // 9), *range(len(content) - 12, len(content))}
    lengths = []
    for cut in sorted(cuts):
        got, file = read(tmp_path, content[:cut])
        assert (file.damage, file.truncated) == (f"{name} is cut short", True)
        assert TRUTH.startswith(got)
        assert len(got) == len(byte_by_byte(name, content[:cut]))
        lengths.append(len(got))
    assert lengths == sorted(lengths)
    assert len(set(lengths)) > 3
    assert lengths[-1] == len(TRUTH)


@EVERY
def test_cut_between_members_is_not_detectable(tmp_path: Path, name: str) -> None:
    first, second = ENCODERS[name](TRUTH[:5000]), ENCODERS[name](TRUTH[5000:9000])
    for cut, damage in ((0, None), (1, f"{name} is cut short"), (3, f"{name} is cut short")):
        got, file = read(tmp_path, first + second[:cut])
        assert (got, file.damage, file.truncated) == (TRUTH[:5000], damage, damage is not None)


@SKIPPABLE
def test_cut_inside_a_block_that_is_stored(tmp_path: Path, name: str) -> None:
    noise = random.Random(8).randbytes(400_000)
    content = ENCODERS[name](noise)
    for cut in (100, 1000, 200_000, 399_000):
        got, file = read(tmp_path, content[:cut])
        assert noise.startswith(got)
        assert len(got) > cut - 100
        assert file.truncated


@pytest.mark.long
@EVERY
@pytest.mark.parametrize("output", [5000, 1 << 20])
def test_flipped_bytes(tmp_path: Path, name: str, output: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bytes that the library gives before the error, after a whole member."""
    monkeypatch.setattr(capture_file, "OUTPUT_BYTES", output)
    first, content = ENCODERS[name](TRUTH[:999]), ENCODERS[name](TRUTH)
    damaged = 0
    for at in {*range(10, len(content), len(content) // 6), *range(len(content) - 12, len(content), 3)}:
        broken = bytearray(content)
        broken[at] ^= 0x55
        got, file = read(tmp_path, first + broken)
        library = TRUTH[:999] + byte_by_byte(name, bytes(broken))
        # bz2 reports a bad block at its end; how much of it came by then depends on how much is requested.
        leeway = 1 << 15 if name == "bzip2" else 0
        assert abs(len(got) - len(library)) <= leeway
        assert got.startswith(library) or library.startswith(got)
        if file.damage is None:
            assert got == TRUTH[:999] + TRUTH
        damaged += file.damage is not None
    assert damaged > 7


#: A byte from the end, of the last check sum.
CHECK_SUMS = {"gzip": (-8, -1), "zstd": (-4, -1), "lz4": (-4, -1), "xz": (-1, -12), "bzip2": (-2, -3)}


@EVERY
@pytest.mark.long_after(2)
def test_wrong_check_sum_loses_no_bytes(tmp_path: Path, name: str) -> None:
    for truth in (TRUTH, b"x"):
        for at in CHECK_SUMS[name]:
            content = bytearray(ENCODERS[name](truth))
            content[at] ^= 0x10
            got, file = read(tmp_path, bytes(content))
            assert got == truth
            assert (file.truncated, str(file.damage).startswith(f"{name} is damaged (")) == (False, True)


@EVERY
def test_what_follows_the_last_member(tmp_path: Path, name: str) -> None:
    content = ENCODERS[name](TRUTH)
    damage = f"the bytes after the {name} stream are not {name}"
    for garbage in (b"garbage", b"\xff", bytes(100) + b"\x1f\x8c", CHANCE.randbytes(PIECE_BYTES)):
        got, file = read(tmp_path, content + garbage)
        assert (got == TRUTH, file.damage, file.truncated) == (True, damage, False)
    for padding in (1, 4, 3 * PIECE_BYTES):
        got, file = read(tmp_path, content + bytes(padding) + content)
        tolerated = name in ("gzip", "xz")
        assert got == (TRUTH + TRUTH if tolerated else TRUTH)
        assert file.damage == (None if tolerated else damage)


@EVERY
def test_another_format_after_it(tmp_path: Path, name: str) -> None:
    for other in ENCODERS.keys() - {name}:
        got, file = read(tmp_path, ENCODERS[name](b"abc") + ENCODERS[other](b"def"))
        assert (got, file.damage) == (b"abc", f"the bytes after the {name} stream are not {name}")


def test_long_damaged_stream_is_salvaged_in_reasonable_time(tmp_path: Path) -> None:
    """Megabytes of one compressed block before the error: it once was quadratic, minutes."""
    noise = random.Random(2).randbytes(8 << 20)
    content = bytearray(gzip.compress(noise, 1))
    content[-1] ^= 1
    start = time.process_time()
    assert read(tmp_path, bytes(content))[0] == noise
    assert time.process_time() - start < 10


def zstd_frame(window_exponent: int) -> bytes:
    """An empty frame that declares how far it may refer back: 2^(10 + exponent) bytes (RFC 8878, 3.1.1.1.2)."""
    return b"\x28\xb5\x2f\xfd\0" + bytes([window_exponent << 3]) + b"\1\0\0"


def test_window_larger_than_memory_should_be(tmp_path: Path) -> None:
    assert read(tmp_path, zstd_frame(17))[1].damage is None
    for exponent in (18, 21):  # 256 MB, zstd --long=31
        damage = read(tmp_path, zstd_frame(exponent))[1].damage
        assert damage == "zstd needs a window above 128 MB: decompress the file first, with its own tool"


def test_xz_dictionary_larger_than_memory_should_be(tmp_path: Path) -> None:
    def xz(size: int) -> bytes:
        chain = [{"id": lzma.FILTER_LZMA2, "dict_size": size, "mf": lzma.MF_HC3, "mode": lzma.MODE_FAST}]
        return lzma.compress(b"x", filters=chain)

    assert read(tmp_path, xz(128 << 20))[0] == b"x"
    damage = read(tmp_path, xz(256 << 20))[1].damage
    assert damage == "xz needs a window above 128 MB: decompress the file first, with its own tool"


@EVERY
@pytest.mark.long_after(2)
def test_bomb(tmp_path: Path, name: str) -> None:
    """A little file that becomes a lot is made in small portions."""
    size = 48 << 20
    path = tmp_path / "bomb"
    path.write_bytes(ENCODERS[name](bytes(size)))
    assert path.stat().st_size < size // 200
    tracemalloc.start()
    try:
        with CaptureFile(path) as file:
            lengths = [len(block) for block in file.blocks()]
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (sum(lengths), file.damage) == (size, None)
    assert max(lengths) <= 2 * capture_file.OUTPUT_BYTES
    assert peak < 2 * capture_file.BLOCK_BYTES + 16 * capture_file.OUTPUT_BYTES


# --- recognising a format


def test_formats_are_recognised_by_their_first_bytes() -> None:
    for name, encode in ENCODERS.items():
        found = compression_of(encode(b"some bytes"))
        assert found is not None
        assert found.name == name
    for plain in (b"", b"\x1f", b"BZ", b"BZh0", b"\xd4\xc3\xb2\xa1", b"text", bytes(10)):
        assert compression_of(plain) is None
    assert {known.name for known in FORMATS} == ENCODERS.keys() == DECODERS.keys()


@given(st.data())
def test_any_members_cut_anywhere(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """What is read of a part is the start of the truth, and only a cut between members passes unnoticed."""
    name = data.draw(st.sampled_from(sorted(ENCODERS)))
    parts = data.draw(st.lists(st.binary(max_size=300).map(lambda part: part * 7), min_size=1, max_size=5))
    members = [ENCODERS[name](part) for part in parts]
    content = b"".join(members)
    cut = data.draw(st.integers(10, len(content)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(capture_file, "BLOCK_BYTES", data.draw(st.sampled_from([10, 18, 333, 1 << 20])))
        got, file = read(tmp_path_factory.mktemp("cut"), content[:cut])
    ends = {sum(map(len, members[: i + 1])): b"".join(parts[: i + 1]) for i in range(len(parts))}
    whole = [truth for end, truth in ends.items() if end <= cut]
    assert b"".join(parts).startswith(got)
    assert len(got) >= len(whole[-1] if whole else b"")
    assert file.truncated is (cut not in ends)
    assert (file.damage is None) is (cut in ends)
    assert cut not in ends or got == ends[cut]


def test_libraries_are_loaded_when_their_format_is_met(tmp_path: Path) -> None:
    path = tmp_path / "capture"
    path.write_bytes(zstd(b"x"))
    code = """
import sys
from pathlib import Path
from ddnn_traces.pcap.capture_file import looks_like_capture
def loaded():
    print(*sorted({"zlib_ng", "zstandard", "lz4"} & sys.modules.keys()), sep=",")
loaded()
looks_like_capture(Path(sys.argv[1]))
loaded()
"""
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["", "zstandard"]
