"""verify: the captures of a release, ingested again, give its tables."""

from __future__ import annotations

import gzip
import hashlib
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from damages import declared, failures, found, sealed
from publishing import ABOUT
from tools import mostly_long

import ddnn_traces
from ddnn_traces.release.verify import capture_checks
from ddnn_traces.release.verify.examined import NOT_CHECKED, PASSED, Examined
from ddnn_traces.release.verify.running import results

RUNS = ("torch-mlp1-sgd-32-gloo-0ms-ring-loss05", "mpi-mlp1-sgd-32-openmpi-0ms-ring-sll2")
HEADER, RECORD = 24, struct.Struct("<IIII")


@pytest.fixture(scope="module")
def dataset(sample: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[list[str], Path]:
    """The captures of two runs, and a dataset of them with packets."""
    sources = [str(sample / run) for run in RUNS]
    out = tmp_path_factory.mktemp("captured") / "dataset"
    ddnn_traces.ingest([*sources], out, packets=True).close()
    return sources, out


@pytest.fixture(scope="module")
def captured(dataset: tuple[list[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A release with captures. Not to be changed."""
    sources, path = dataset
    out = tmp_path_factory.mktemp("captured") / "traces"
    ddnn_traces.publish(path, out, captures=sources, **ABOUT)
    return out


def lines(folder: Path, scratch: Path) -> dict[str, str]:
    return {row.subject: row.detail for row in failures(folder, scratch, "captures") if row.check == "captures"}


def test_the_captures_of_a_sound_release_give_its_tables(captured: Path, tmp_path: Path) -> None:
    (row,) = [row for row in found(captured, tmp_path / "scratch", "captures") if row.check == "captures"]
    assert (row.status, row.subject) == (PASSED, "captures")
    assert row.detail.startswith("2 runs; an ingest gives the released rows of runs, hosts, captures, capture_ledger, ")
    assert row.detail.endswith("flow_windows, messages, steps, step_flows, events, packets")
    assert not (tmp_path / "scratch" / "captures").exists()


@pytest.mark.long
@pytest.mark.parametrize(
    "options",
    [
        {"addresses": "crypto-pan", "ports": "permuted", "window_ms": 5.0},
        {"addresses": "kept", "times": "kept", "tables": ["flows", "flow_windows"]},
    ],
)
def test_also_with_other_options(dataset: tuple[list[str], Path], tmp_path: Path, options: dict[str, object]) -> None:
    sources, path = dataset
    given = {**ABOUT, **options, "captures": sources[1:], "runs": [RUNS[1]]}
    ddnn_traces.publish(path, tmp_path / "traces", **given)
    rows = [row for row in found(tmp_path / "traces", tmp_path / "scratch", "captures") if row.check == "captures"]
    assert [row.status for row in rows] == [PASSED], rows


def resealed(folder: Path, path: Path) -> None:
    """release.json and the checksums made again, as by an attacker."""
    name, content = path.relative_to(folder).as_posix(), path.read_bytes()
    values = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    declared(lambda d: [one.update(values) for one in d["captures"] if one["path"] == name])(folder)
    sealed(folder)


def changed_packet(change: Callable[[bytearray, int], None]) -> Callable[[bytes], bytes]:
    """A change of a packet in the middle of a pcap, given the place of its record."""

    def apply(content: bytes) -> bytes:
        data, place = bytearray(content), HEADER
        while place < len(data) // 2:
            place += RECORD.size + RECORD.unpack_from(data, place)[2]
        change(data, place)
        return bytes(data)

    return apply


def _longer(data: bytearray, place: int) -> None:
    seconds, ns, kept, wire = RECORD.unpack_from(data, place)
    RECORD.pack_into(data, place, seconds, ns, kept, wire + 1)


def _later(data: bytearray, place: int) -> None:
    seconds, ns, kept, wire = RECORD.unpack_from(data, place)
    RECORD.pack_into(data, place, seconds + 1, ns, kept, wire)


def _of_another(data: bytearray, place: int) -> None:
    data[place + RECORD.size + 14 + 15] ^= 1  # the last byte of the source of IPv4


#: Done to an unpacked pcap, and words of the line that names it.
CHANGES: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "a byte more in a packet": (changed_packet(_longer), "are not those of the captures"),
    "a packet a second later": (changed_packet(_later), "are not those of the captures"),
    "an address of a packet": (changed_packet(_of_another), "are not those of the captures"),
    "bytes after the last packet": (lambda data: data + b"10.0.0.1 is worker-1", "worker-2.pcap.gz is not whole"),
    "half of the file": (lambda data: data[: len(data) // 2], "are not those of the captures"),
    "no pcap": (lambda _: b"10.0.0.1 is worker-1", "worker-2.pcap.gz is not whole"),
}


@pytest.mark.parametrize("change", mostly_long(CHANGES, "a byte more in a packet"))
def test_a_change_of_a_capture_is_found(captured: Path, tmp_path: Path, change: str) -> None:
    folder = Path(shutil.copytree(captured, tmp_path / "traces"))
    path = folder / "pcap" / RUNS[0] / "worker-2.pcap.gz"
    apply, words = CHANGES[change]
    path.write_bytes(gzip.compress(apply(gzip.decompress(path.read_bytes())), 6, mtime=0))
    resealed(folder, path)
    wrong = [row for row in failures(folder, tmp_path / "scratch", "captures") if row.check == "captures"]
    assert {row.subject for row in wrong} == {f"pcap/{RUNS[0]}"}
    assert any(words in row.detail for row in wrong), wrong


@pytest.mark.long
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda data: data + b"10.0.0.1 is worker-1", "bytes after its end"),
        (lambda data: data + gzip.compress(b"", mtime=0), "bytes after its end"),
        (lambda data: data[:-4], "is not whole"),
        (lambda data: gzip.compress(gzip.decompress(data), mtime=1_795_241_902), "without a name and a time"),
    ],
)
def test_what_a_gzip_file_can_hide_is_found(
    captured: Path, tmp_path: Path, change: Callable[[bytes], bytes], words: str
) -> None:
    folder = Path(shutil.copytree(captured, tmp_path / "traces"))
    path = folder / "pcap" / RUNS[0] / "worker-2.pcap.gz"
    path.write_bytes(change(path.read_bytes()))
    resealed(folder, path)
    assert words in lines(folder, tmp_path / "scratch")[f"pcap/{RUNS[0]}"]


@pytest.mark.long
def test_a_step_of_a_log_and_a_file_of_no_run_are_found(captured: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(captured, tmp_path / "traces"))
    path = folder / "pcap" / RUNS[0] / "train_history-worker-1.log"
    rows = path.read_text().splitlines(keepends=True)
    path.write_text("".join(rows[:-2]))  # the last batch, and the line of its epoch
    resealed(folder, path)
    wrong = [row.detail for row in failures(folder, tmp_path / "one", "captures") if row.check == "captures"]
    assert any("its rows of steps are not those" in detail for detail in wrong)
    other = path.with_name("notes.txt")
    path.rename(other)
    declared(lambda d: [f.update(path=f["path"].replace(path.name, "notes.txt")) for f in d["captures"]])(folder)
    sealed(folder)
    assert "is no file of a run's captures" in lines(folder, tmp_path / "two")["release"]


@pytest.mark.long
def test_a_packed_capture_that_grows_without_end_is_not_ingested(
    captured: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Path(shutil.copytree(captured, tmp_path / "traces"))
    path = folder / "pcap" / RUNS[0] / "worker-2.pcap.gz"
    path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes())[:HEADER] + bytes(1 << 25), 6, mtime=0))
    resealed(folder, path)
    monkeypatch.setattr(capture_checks, "_SMALL", 1 << 20)
    wrong = lines(folder, tmp_path / "scratch")[f"pcap/{RUNS[0]}"]
    assert "unpacks to more than" in wrong


def test_a_sample_of_the_runs_says_so(captured: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capture_checks, "_FAST_LEAST", 1)
    (tmp_path / "scratch").mkdir()
    said: list[str] = []
    examined = Examined(captured, tmp_path / "scratch", 2, fast=True, report=said.append)
    rows = list(results(examined, only={"links and names", "checksums", "release.json", "captures"}))
    assert rows[-1].detail.startswith("a sample: 1 of 2 runs chosen at random; an ingest gives the released rows of ")
    assert said == ["captures: run 1 of 1"]


@pytest.mark.long
def test_runs_without_captures_are_named(captured: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(captured, tmp_path / "traces"))
    shutil.rmtree(folder / "pcap" / RUNS[1])
    declared(lambda d: d.update(captures=[f for f in d["captures"] if RUNS[1] not in f["path"]]))(folder)
    sealed(folder)
    rows = {row.subject: row for row in found(folder, tmp_path / "scratch", "captures") if row.check == "captures"}
    assert rows["captures"].status == PASSED
    assert rows["runs without captures"].status == NOT_CHECKED
    assert rows["runs without captures"].detail == "1 run: their tables were not compared"
