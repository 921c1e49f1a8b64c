"""Reading files: compression, damage, what is no capture, and the hash of what lies on disk."""

from __future__ import annotations

import gzip
import hashlib
import random
import time
import zlib
from pathlib import Path

import numpy as np
import packets as p
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ddnn_traces.ingestors import capture_file, numba_engine
from ddnn_traces.ingestors.capture_file import CaptureFile, looks_like_capture
from ddnn_traces.ingestors.facts import CaptureFacts, ReadOptions

NOISE = random.Random(1).randbytes(600)  # so that gzip has something to keep
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
    options = ReadOptions(
        10**6, np.zeros(0, np.int64), tmp_path / "cells", progress=lambda size, _: progress.append(size)
    )
    facts = numba_engine.read_capture(path, options)
    assert facts.sha256 == hashlib.sha256(content).hexdigest()
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
    for block in (len(GZIP) - 1, len(GZIP), len(GZIP) + 1, len(GZIP) // 2, len(PCAP), len(PCAP) // 2, 2, 18):
        monkeypatch.setattr(capture_file, "BLOCK_BYTES", block)
        content, file = blocks_of(tmp_path, GZIP + GZIP)
        assert (content, file.damage) == (PCAP + PCAP, None)


# --- damaged files


def whole_records(content: bytes) -> int:
    """Records of PCAP that `content`, a part from its begin, holds to the last byte."""
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


def test_gzip_cut_short_behind_a_corrupt_record_is_corrupt(tmp_path: Path) -> None:
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
    """A block of a type that does not exist, behind one that is whole."""
    deflate = zlib.compressobj(wbits=31)
    broken = deflate.compress(PCAP) + deflate.flush(zlib.Z_FULL_FLUSH) + b"\x07" + NOISE  # RFC 1951, 3.2.3
    facts = read(tmp_path, broken)
    assert (facts.status, facts.records) == ("corrupt", 500)
    assert "invalid block type" in facts.status_detail
    assert blocks_of(tmp_path, broken)[0] == PCAP


def test_broken_stream_is_salvaged_in_reasonable_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Megabytes of one compressed block before the error."""
    monkeypatch.setattr(capture_file, "BLOCK_BYTES", 16 << 20)
    noise = random.Random(2).randbytes(8 << 20)
    content = bytearray(gzip.compress(noise, 1))
    content[-1] ^= 1
    start = time.process_time()
    assert blocks_of(tmp_path, bytes(content))[0] == noise
    assert time.process_time() - start < 10  # it once was quadratic: minutes


def test_garbage_behind_gzip(tmp_path: Path) -> None:
    for garbage in (b"garbage", NOISE * 100, bytes(100) + b"\x1f\x8c"):
        facts = read(tmp_path, GZIP + garbage)
        assert (facts.status, facts.records, facts.trailing_bytes) == ("corrupt", 500, 0)
        assert facts.status_detail == "what follows the gzip stream is not gzip"


@settings(deadline=None, max_examples=150)
@given(st.data())
def test_any_damage_to_gzip_is_reported(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Behind gzip's header every byte is under its check sum; what comes before the damage is kept."""
    content = bytearray(data.draw(st.sampled_from([GZIP, gzip.compress(PCAP[:5000], mtime=0) + GZIP])))
    at = data.draw(st.integers(10, len(content) - 1))
    if data.draw(st.booleans()):
        content[at] ^= data.draw(st.integers(1, 255))
    else:
        del content[at:]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(capture_file, "BLOCK_BYTES", data.draw(st.sampled_from([2, 18, 333, 1 << 20])))
        facts = read(tmp_path_factory.mktemp("damaged"), bytes(content))
    assert facts.status != "complete"
    assert facts.status_detail


# --- what is no capture


PCAPNG = b"\x0a\x0d\x0d\x0a" + bytes(100)
NO_PCAPS = {  # what is said of it, and its bytes
    "pcapng is not read": PCAPNG,
    "zstd is not read": b"\x28\xb5\x2f\xfd" + bytes(100),
    "xz is not read": b"\xfd7zXZ\0" + bytes(100),
    "lz4 is not read": b"\x04\x22\x4d\x18" + bytes(100),
    "bzip2 is not read": b"BZh9" + bytes(100),
    "Kuznetzov's modified form is not read": b"\x34\xcd\xb2\xa1" + bytes(100),
    "not a capture": b"Type,ID,Timestamp,Loss,Accuracy\n" * 1000,
}


@pytest.mark.parametrize("said", NO_PCAPS)
def test_what_is_no_pcap_is_told_by_name(tmp_path: Path, said: str) -> None:
    content = NO_PCAPS[said]
    for file in (content, gzip.compress(content)):
        facts = read(tmp_path, file)
        assert (facts.status, facts.records, facts.format) == ("corrupt", 0, None)
        assert said in facts.status_detail
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


LOOK_LIKE_CAPTURES = {
    "plain": PCAP,
    "magic number alone": PCAP[:4],
    "big endian, ns": p.pcap([], ">", 1),
    "gzip": GZIP,
    "gzip cut short": GZIP[:1500],
    "pcapng": PCAPNG,
    "pcapng in gzip": gzip.compress(PCAPNG),
}
OTHER_FILES = {
    "empty": b"",
    "half a gzip magic number": b"\x1f",
    "gzip magic number alone": b"\x1f\x8b",
    "broken gzip": b"\x1f\x8bthis is not gzip",
    "text in gzip": gzip.compress(b"some text"),
    "text": b"Type,ID,Timestamp,Loss,Accuracy\n",
    "zstd": b"\x28\xb5\x2f\xfd" + bytes(100),
}


@pytest.mark.parametrize("what", [*LOOK_LIKE_CAPTURES, *OTHER_FILES])
def test_looks_like_capture(tmp_path: Path, what: str) -> None:
    """The name of the file plays no part."""
    path = tmp_path / "worker-1.log"
    path.write_bytes((LOOK_LIKE_CAPTURES | OTHER_FILES)[what])
    assert looks_like_capture(path) is (what in LOOK_LIKE_CAPTURES)
