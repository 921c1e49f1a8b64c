"""Reading files: compression, damage, files that are not captures, and the hash of the file on disk."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import lzma
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import zlib
from collections.abc import Iterator
from pathlib import Path

import lz4.frame
import numpy as np
import packets as p
import pytest
import zstandard
from blake3 import blake3
from hypothesis import given
from hypothesis import strategies as st

from ddnn_traces.pcap import capture_file, numba_engine
from ddnn_traces.pcap.capture_facts import CaptureFacts, ReadOptions
from ddnn_traces.pcap.capture_file import CaptureFile, PcapHeader, looks_like_capture
from ddnn_traces.store import hashes

NOISE = random.Random(1).randbytes(600)  # which gzip cannot compress
RECORDS = [p.Record(i * 10**9, p.ethernet(p.ipv4(p.tcp(NOISE[i:], seq=i)))) for i in range(500)]
PCAP = p.pcap(RECORDS)
GZIP = gzip.compress(PCAP, mtime=0)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several blocks a file, and another end of block at every kind of place."""
    monkeypatch.setattr(capture_file, "BLOCK_BYTES", 4099)


def read(tmp_path: Path, content: bytes) -> CaptureFacts:
    """Facts of a file; hash, size and progress must be those of the file, whatever is in it."""
    path = tmp_path / "capture"
    path.write_bytes(content)
    progress: list[int] = []
    bounds = np.zeros(0, np.int64)
    options = ReadOptions(10**6, bounds, tmp_path / "cells", progress=lambda size, _=0: progress.append(size))
    facts = numba_engine.read_capture(path, options)
    assert facts.digests == {"blake3": blake3(content).hexdigest()}
    assert facts.file_bytes == sum(progress) == len(content)
    return facts


def blocks_of(tmp_path: Path, content: bytes) -> tuple[bytes, CaptureFile]:
    """All that can be read of a file."""
    path = tmp_path / "capture"
    path.write_bytes(content)
    with CaptureFile(path) as file:
        return b"".join(map(bytes, file.blocks())), file


# --- whole files


def test_plain(tmp_path: Path) -> None:
    facts = read(tmp_path, PCAP)
    assert (facts.status, facts.status_detail, facts.records, facts.format) == ("complete", None, 500, "pcap-le")
    assert (facts.link_types, facts.time_resolution_ns, facts.snaplen) == ("1", 1000, 262144)


def test_format_says_byte_order_and_compression(tmp_path: Path) -> None:
    facts = read(tmp_path, gzip.compress(p.pcap(RECORDS, ">", 1, 96, p.RAW)))
    assert (facts.format, facts.link_types, facts.time_resolution_ns, facts.snaplen) == ("pcap-be+gzip", "101", 1, 96)


@pytest.mark.parametrize(
    "content",
    [
        GZIP,
        gzip.compress(PCAP, 0),
        gzip.compress(PCAP[:10]) + gzip.compress(PCAP[10:3000]) + gzip.compress(b"") + gzip.compress(PCAP[3000:]),
        GZIP + bytes(1),
        GZIP + bytes(10_000),
        gzip.compress(PCAP[:999]) + bytes(5000) + gzip.compress(PCAP[999:]) + bytes(512),
    ],
    ids=["one member", "stored", "several members", "one zero", "padding", "padding between members"],
)
def test_gzip(tmp_path: Path, content: bytes) -> None:
    facts = read(tmp_path, content)
    assert (facts.status, facts.status_detail, facts.records) == ("complete", None, 500)
    assert blocks_of(tmp_path, content)[0] == PCAP


def test_gzip_members_that_end_with_a_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ends = (len(GZIP) - 1, len(GZIP), len(GZIP) + 1, len(GZIP) // 2, len(PCAP), len(PCAP) // 2)
    for pcap, blocks in ((PCAP, ends), (PCAP[:9000], (2, 18))):
        member = gzip.compress(pcap, mtime=0)
        for block in blocks:
            monkeypatch.setattr(capture_file, "BLOCK_BYTES", block)
            content, file = blocks_of(tmp_path, member + member)
            assert (content, file.damage) == (pcap + pcap, None)


# --- damaged files


def whole_records(content: bytes) -> int:
    """Records of PCAP that `content`, a part from its start, holds to the last byte."""
    return sum(len(p.pcap(RECORDS[: i + 1])) <= len(content) for i in range(len(RECORDS)))


@pytest.mark.parametrize("cut", [1, 4, 8, 9, 1000, 5000])
def test_gzip_cut_short(tmp_path: Path, cut: int) -> None:
    facts = read(tmp_path, GZIP[:-cut])
    assert facts.status == "truncated"
    assert facts.status_detail.startswith("gzip is cut short")
    there = blocks_of(tmp_path, GZIP[:-cut])[0]
    assert PCAP.startswith(there)
    if cut <= 8:  # only the check sum is missing
        assert there == PCAP
    assert facts.records == whole_records(there) > 0
    assert facts.trailing_bytes == len(there) - len(p.pcap(RECORDS[: facts.records]))


def test_gzip_cut_to_nothing(tmp_path: Path) -> None:
    for size in (2, 9, 10, 11):
        facts = read(tmp_path, GZIP[:size])
        assert (facts.status, facts.records, facts.format) == ("truncated", 0, None)


def test_gzip_cut_short_after_a_corrupt_record_is_corrupt(tmp_path: Path) -> None:
    content = gzip.compress(PCAP + b"\xff" * 50 + NOISE)[:-4]
    facts = read(tmp_path, content)
    assert (facts.status, facts.records) == ("corrupt", 500)
    assert "cut short" in facts.status_detail
    assert "no sane record header" in facts.status_detail


def test_wrong_check_sum_keeps_all_records(tmp_path: Path) -> None:
    for at in (-8, -1):  # CRC and length
        content = bytearray(GZIP)
        content[at] ^= 1
        facts = read(tmp_path, bytes(content))
        assert (facts.status, facts.records) == ("corrupt", 500)
        assert "gzip is damaged" in facts.status_detail


def test_broken_stream_keeps_what_came_before(tmp_path: Path) -> None:
    """A block of a type that does not exist, after a whole one."""
    deflate = zlib.compressobj(wbits=31)
    broken = deflate.compress(PCAP) + deflate.flush(zlib.Z_FULL_FLUSH) + b"\x07" + NOISE  # RFC 1951, 3.2.3
    facts = read(tmp_path, broken)
    assert (facts.status, facts.records) == ("corrupt", 500)
    assert "invalid block type" in facts.status_detail
    assert blocks_of(tmp_path, broken)[0] == PCAP


def test_garbage_after_gzip(tmp_path: Path) -> None:
    for garbage in (b"garbage", NOISE * 100, bytes(100) + b"\x1f\x8c"):
        facts = read(tmp_path, GZIP + garbage)
        assert (facts.status, facts.records, facts.trailing_bytes) == ("corrupt", 500, 0)
        assert facts.status_detail == "the bytes after the gzip stream are not gzip"


@given(st.data())
def test_any_damage_to_gzip_is_reported(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """After gzip's header every byte is covered by its check sum; the bytes before the damage count."""
    block = data.draw(st.sampled_from([2, 18, 333, 1 << 20]))
    last = GZIP if block > 18 else gzip.compress(PCAP[:9000], mtime=0)  # of 100,000 blocks few differ
    content = bytearray(data.draw(st.sampled_from([last, gzip.compress(PCAP[:5000], mtime=0) + last])))
    at = data.draw(st.integers(10, len(content) - 1))
    if data.draw(st.booleans()):
        content[at] ^= data.draw(st.integers(1, 255))
    else:
        del content[at:]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(capture_file, "BLOCK_BYTES", block)
        facts = read(tmp_path_factory.mktemp("damaged"), bytes(content))
    assert facts.status != "complete"
    assert facts.status_detail


# --- files that are not captures


PCAPNG = b"\x0a\x0d\x0d\x0a" + bytes(100)
NO_PCAPS = {  # what its status_detail states, and its bytes
    "Kuznetzov's modified form is not read": b"\x34\xcd\xb2\xa1" + bytes(100),
    "not a capture": b"Type,ID,Timestamp,Loss,Accuracy\n" * 1000,
}


def test_pcapng_has_no_pcap_header() -> None:
    assert PcapHeader.parse(PCAPNG) == "pcapng, which has no pcap file header"


@pytest.mark.parametrize("stated", NO_PCAPS)
def test_status_detail_names_other_files(tmp_path: Path, stated: str) -> None:
    content = NO_PCAPS[stated]
    for file in (content, gzip.compress(content), lzma.compress(content)):
        facts = read(tmp_path, file)
        assert (facts.status, facts.records, facts.format) == ("corrupt", 0, None)
        assert stated in facts.status_detail
        assert facts.trailing_bytes == len(content)


def test_empty_file(tmp_path: Path) -> None:
    for content in (b"", gzip.compress(b"")):
        facts = read(tmp_path, content)
        assert (facts.status, facts.records, facts.first_ns, facts.cells) == ("truncated", 0, None, None)
        assert "the file is empty" in facts.status_detail


@pytest.mark.parametrize("size", [1, 3, 4, 20, 23])
def test_file_header_cut_short(tmp_path: Path, size: int) -> None:
    for content in (PCAP[:size], gzip.compress(PCAP[:size])):
        facts = read(tmp_path, content)
        assert (facts.status, facts.format, facts.trailing_bytes) == ("truncated", None, size)
        assert f"after {size} of 24 bytes" in facts.status_detail


def test_file_header_alone_is_complete(tmp_path: Path) -> None:
    facts = read(tmp_path, PCAP[:24])
    assert (facts.status, facts.records, facts.trailing_bytes, facts.cells) == ("complete", 0, 0, None)


LARGE_NOISE = random.Random(5).randbytes(1 << 20)
LOOK_LIKE_CAPTURES = {
    "plain": PCAP,
    "magic number alone": PCAP[:4],
    "big endian, ns": p.pcap([], ">", 1),
    "gzip": GZIP,
    "gzip cut short": GZIP[:1500],
    "pcapng": PCAPNG,
    "pcapng in gzip": gzip.compress(PCAPNG),
    "Kuznetzov's modified form": NO_PCAPS["Kuznetzov's modified form is not read"],
    "zstd": zstandard.compress(PCAP),
    "zstd after a skippable frame": b"\x50\x2a\x4d\x18\x03\0\0\0abc" + zstandard.compress(PCAP),
    "lz4": lz4.frame.compress(PCAP),
    "lz4 in one large block": lz4.frame.compress(PCAP[:24] + LARGE_NOISE, block_size=lz4.frame.BLOCKSIZE_MAX4MB),
    "xz": lzma.compress(PCAP),
    "bzip2": bz2.compress(PCAP),
    "bzip2 in one large block": bz2.compress(PCAP[:24] + LARGE_NOISE),
    "pcapng in zstd": zstandard.compress(PCAPNG),
    "a byte a member": b"".join(bz2.compress(PCAP[i : i + 1]) for i in range(4)),
}
OTHER_FILES = {
    "empty": b"",
    "half a gzip magic number": b"\x1f",
    "gzip magic number alone": b"\x1f\x8b",
    "broken gzip": b"\x1f\x8bthis is not gzip",
    "text in gzip": gzip.compress(b"some text"),
    "text": b"Type,ID,Timestamp,Loss,Accuracy\n",
    "broken zstd": b"\x28\xb5\x2f\xfd" + bytes(100),
    "text in zstd": zstandard.compress(b"some text"),
    "text in xz": lzma.compress(b"some text"),
    "nothing in bzip2": bz2.compress(b""),
    "two bytes in lz4": lz4.frame.compress(PCAP[:2]),
}


@pytest.mark.parametrize("what", [*LOOK_LIKE_CAPTURES, *OTHER_FILES])
def test_looks_like_capture(tmp_path: Path, what: str) -> None:
    """The name of the file plays no part."""
    path = tmp_path / "worker-1.log"
    path.write_bytes((LOOK_LIKE_CAPTURES | OTHER_FILES)[what])
    assert looks_like_capture(path) is (what in LOOK_LIKE_CAPTURES)


def test_without_hashing(tmp_path: Path) -> None:
    path = tmp_path / "capture"
    path.write_bytes(GZIP)
    with CaptureFile(path, hash="none") as file:
        assert b"".join(map(bytes, file.blocks())) == PCAP
    assert (file.digests, file.raw_bytes) == ({}, len(GZIP))


@pytest.mark.parametrize("own_thread", [False, True])
@pytest.mark.parametrize("algorithm", hashes.CHOICES)
@pytest.mark.parametrize("content", [b"", PCAP * 3, GZIP], ids=["empty", "plain", "gzip"])
def test_digest_is_that_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes, algorithm: str, own_thread: bool
) -> None:
    """Of many blocks, whose buffers are filled again."""
    monkeypatch.setattr(capture_file, "BLOCK_BYTES", len(PCAP) // 7)
    path = tmp_path / "capture"
    path.write_bytes(content)
    with CaptureFile(path, hash=algorithm, own_thread=own_thread) as file:
        held, copy, got = memoryview(b""), b"", b""
        for block in file.blocks():
            assert held == copy  # the block before is still there
            held, copy = block, bytes(block)
            got += copy
        assert got == (PCAP if content == GZIP else content)
        truths = {
            name: make(content).hexdigest() for name, make in {"blake3": blake3, "sha256": hashlib.sha256}.items()
        }
        expected = {name: truth for name, truth in truths.items() if name == algorithm}
        assert file.digests == expected == hashes.digests_of(path, algorithm)


# --- the threads that read ahead and decompress


@pytest.fixture
def no_thread_left() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    assert set(threading.enumerate()) <= before


@pytest.fixture
def long_file(tmp_path: Path) -> Path:
    """Many blocks, compressed."""
    path = tmp_path / "long"
    path.write_bytes(gzip.compress(PCAP * 20, 1))
    return path


@pytest.mark.usefixtures("no_thread_left")
def test_reader_stops_early(long_file: Path) -> None:
    for wanted in (0, 1, 5):
        with CaptureFile(long_file) as file:
            blocks = file.blocks()
            got = b"".join(bytes(next(blocks)) for _ in range(wanted))
        assert (PCAP * 20).startswith(got)
        assert len(got) >= wanted * 4099
        assert file.raw_bytes < file.file_bytes / 2  # it did not go on by itself
        assert file.damage is None


@pytest.mark.usefixtures("no_thread_left")
@pytest.mark.parametrize("wanted", [0, 1, 5])
def test_thread_that_reads_ends_early(tmp_path: Path, wanted: int) -> None:
    path = tmp_path / "long"
    path.write_bytes(PCAP * 20)
    with CaptureFile(path, hash="none", own_thread=True) as file:
        blocks = file.blocks()
        got = b"".join(bytes(next(blocks)) for _ in range(wanted))
    assert got == (PCAP * 20)[: wanted * 4099]
    assert file.raw_bytes <= (wanted + capture_file.BLOCKS_AHEAD + 1) * 4099


@pytest.mark.usefixtures("no_thread_left")
@pytest.mark.parametrize("own_thread", [False, True])
def test_reader_fails(long_file: Path, own_thread: bool) -> None:
    with pytest.raises(ZeroDivisionError), CaptureFile(long_file, own_thread=own_thread) as file:
        for block in file.blocks():
            assert block[0] / 0


@pytest.mark.usefixtures("no_thread_left")
@pytest.mark.parametrize("own_thread", [False, True])
def test_error_of_the_thread_reaches_the_reader(
    long_file: Path, monkeypatch: pytest.MonkeyPatch, own_thread: bool
) -> None:
    fill, calls = CaptureFile._fill, []

    def failing(self: CaptureFile, view: memoryview) -> int:
        calls.append(threading.current_thread().name)
        if len(calls) == 4:
            raise OSError(5, "Input/output error")
        return fill(self, view)

    monkeypatch.setattr(CaptureFile, "_fill", failing)
    got = b""
    with (
        CaptureFile(long_file, hash="none", own_thread=own_thread) as file,
        pytest.raises(OSError, match="Input/output error"),
    ):
        for block in file.blocks():
            got += bytes(block)
    assert calls[1:] == ["read" if own_thread else "decompress"] * 3
    assert (PCAP * 20).startswith(got)


@pytest.mark.usefixtures("no_thread_left")
def test_thread_waits_for_a_slow_reader() -> None:
    made: list[int] = []
    finished = threading.Event()

    def blocks() -> Iterator[bytes]:
        for number in range(100):
            made.append(number)
            yield bytes([number])
        finished.set()

    ahead = capture_file._Ahead(blocks(), "made")
    taken = iter(ahead)
    assert next(taken) == b"\0"
    assert not finished.wait(0.2)
    assert len(made) <= capture_file.BLOCKS_AHEAD + 2  # the one taken, and the one that waits for room
    assert b"".join(taken) == bytes(range(1, 100))
    assert finished.is_set()
    ahead.stop()


# --- standard input

READER = """
import hashlib, sys
from ddnn_traces.errors import UsageError
from ddnn_traces.pcap import capture_file
capture_file.BLOCK_BYTES = 40_000
try:
    file = capture_file.CaptureFile(capture_file.STDIN, lambda size: progress.append(size))
except UsageError as error:
    sys.exit(str(error))
progress, before, sizes, digest = [], file.file_bytes, [], hashlib.sha256()
with file:
    for block in file.blocks():
        digest.update(block)
        sizes.append(len(block))
        if sys.argv[1:] == ["--first"]:
            sys.exit("stopped")
        print("block", flush=True)
counts = before, file.file_bytes, file.raw_bytes, sum(progress)
print(digest.hexdigest(), file.digests["blake3"], *counts, file.compression or "plain")
print({*sizes[:-1]} or 0, file.damage)
"""
STREAMS = {"plain": PCAP, "gzip": GZIP, "zstd": zstandard.compress(PCAP), "lz4": lz4.frame.compress(PCAP)}


def reader(*arguments: str) -> list[str]:
    return [sys.executable, "-c", READER, *arguments]


def printed_by(output: bytes) -> list[str]:
    return [line for line in output.decode().splitlines() if line != "block"]


def expected(kind: str, content: bytes, truth: bytes) -> str:
    size = len(content)
    return f"{hashlib.sha256(truth).hexdigest()} {blake3(content).hexdigest()} 0 {size} {size} {size} {kind}"


@pytest.mark.parametrize("kind", STREAMS)
@pytest.mark.long_after(2)
def test_pipe_with_small_writes(kind: str) -> None:
    content, chance = STREAMS[kind], random.Random(6)
    with subprocess.Popen(reader(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0) as child:
        assert child.stdin
        assert child.stdout
        at = 0
        while at < len(content):
            at += child.stdin.write(content[at : at + chance.choice((1, 7, 1500, 9000))])
        child.stdin.close()
        printed, _ = printed_by(child.stdout.read())
    assert printed == expected(kind, content, PCAP)


def test_short_reads_fill_whole_blocks() -> None:
    """One message a read, which a pipe may do as well."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs, subprocess.Popen(reader(), stdin=theirs, stdout=subprocess.PIPE) as child:
        assert child.stdout
        with ours:
            for at in range(0, len(PCAP), 1000):  # of which whole ones fit a block
                ours.send(PCAP[at : at + 1000])
        printed, sizes = printed_by(child.stdout.read())
    assert printed == expected("plain", PCAP, PCAP)
    assert sizes == "{40000} None"


@pytest.mark.parametrize("kind", STREAMS)
@pytest.mark.long_after(2)
def test_file_as_standard_input(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "capture"
    path.write_bytes(STREAMS[kind])
    with path.open("rb") as stdin:
        done = subprocess.run(reader(), stdin=stdin, capture_output=True, check=True)
    assert printed_by(done.stdout)[0] == expected(kind, STREAMS[kind], PCAP)


def test_damage_on_standard_input() -> None:
    done = subprocess.run(reader(), input=GZIP[:-5], capture_output=True, check=True)
    printed, damage = printed_by(done.stdout)
    assert printed == expected("gzip", GZIP[:-5], PCAP)
    assert damage.endswith("gzip is cut short")
    done = subprocess.run(reader(), input=b"", capture_output=True, check=True)
    assert printed_by(done.stdout) == [expected("plain", b"", b""), "0 None"]


@pytest.mark.parametrize("kind", STREAMS)
@pytest.mark.long_after(2)
def test_pipe_that_stays_open_does_not_hold_the_reader(kind: str) -> None:
    """The reader has enough, while the thread waits for more."""
    noise = random.Random(7).randbytes(100_000)
    content = noise if kind == "plain" else {"gzip": gzip, "zstd": zstandard, "lz4": lz4.frame}[kind].compress(noise)
    with subprocess.Popen(reader("--first"), stdin=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0) as child:
        assert child.stdin
        assert child.stderr
        for at in range(0, len(content), 1000):
            try:
                child.stdin.write(content[at : at + 1000])
            except BrokenPipeError:
                break
        assert child.stderr.read().strip() == b"stopped"
        assert child.wait(60) == 1


@pytest.mark.parametrize("kind", STREAMS)
@pytest.mark.long_after(1)
def test_interrupt_while_waiting_for_a_pipe(kind: str) -> None:
    noise = random.Random(7).randbytes(100_000)
    content = noise if kind == "plain" else {"gzip": gzip, "zstd": zstandard, "lz4": lz4.frame}[kind].compress(noise)
    with subprocess.Popen(
        reader(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0
    ) as child:
        assert child.stdin
        assert child.stdout
        assert child.stderr
        at = 0
        while at < len(content) - 100:
            at += child.stdin.write(content[at : min(at + 1000, len(content) - 100)])
        assert child.stdout.readline() == b"block\n"
        child.send_signal(signal.SIGINT)
        assert child.wait(60) == -signal.SIGINT
        assert child.stderr.read().strip().endswith(b"KeyboardInterrupt")


def test_terminal_as_standard_input() -> None:
    controller, terminal = os.openpty()
    try:
        done = subprocess.run(reader(), stdin=terminal, capture_output=True, text=True)
    finally:
        os.close(controller)
        os.close(terminal)
    assert done.returncode == 1
    assert done.stderr.startswith("standard input is a terminal; pipe a capture in, as in ")


def test_closed_standard_input() -> None:
    done = subprocess.run(["sh", "-c", 'exec "$@" <&-', "sh", *reader()], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.strip() == "standard input is closed; pipe a capture in, or name a file"


def test_two_captures_joined_by_cat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capture_file, "BLOCK_BYTES", 1 << 20)
    data = p.pcap([p.Record(1_700_000_000 * 10**9, record.frame) for record in RECORDS[:3]])
    facts = read(tmp_path, data + data)
    assert facts.status == "corrupt"
    assert "a second pcap begins" in facts.status_detail


@pytest.mark.parametrize("size", [3, 5, 11])
def test_compressed_file_cut_before_anything(tmp_path: Path, size: int) -> None:
    facts = read(tmp_path, GZIP[:size])
    assert (facts.status, facts.format) == ("truncated", None)
    assert "the file is empty" not in facts.status_detail
