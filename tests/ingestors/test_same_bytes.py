"""The same inputs give the same bytes, wherever they lie and whoever reads them first."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

import packets as p
import pytest
from ingesting import Lines, ingest
from small_runs import (
    A,
    B,
    hashes_of,
    ring,
)

import ddnn_traces
from ddnn_traces.ingestors import pipeline
from ddnn_traces.ingestors.options import IngestOptions
from ddnn_traces.pcap import numba_engine
from ddnn_traces.pcap.capture_facts import CaptureFacts, ReadOptions
from ddnn_traces.query.dataset import Dataset


@pytest.mark.long
def test_sample_twice(sample: Path, sample_dataset: Dataset, tmp_path: Path) -> None:
    ddnn_traces.ingest(sorted(sample.iterdir(), reverse=True), tmp_path / "again").close()
    assert hashes_of(tmp_path / "again") == hashes_of(sample_dataset.path)


@pytest.mark.long
def test_wherever_the_inputs_lie(runs: Path, tmp_path: Path) -> None:
    shutil.copytree(runs, tmp_path / "elsewhere" / "copy")
    ingest(runs, out=tmp_path / "first")
    ingest(tmp_path / "elsewhere" / "copy", out=tmp_path / "second")
    assert hashes_of(tmp_path / "first") == hashes_of(tmp_path / "second")


@pytest.mark.long
def test_run_by_run_or_at_once(runs: Path, tmp_path: Path) -> None:
    ingest(runs, out=tmp_path / "at once")
    ingest(runs / "two", out=tmp_path / "run by run")
    ingest(runs / "one", out=tmp_path / "run by run")
    assert hashes_of(tmp_path / "at once") == hashes_of(tmp_path / "run by run")


@pytest.mark.parametrize("jobs", [2, 3, 16])
@pytest.mark.long_after(1)
def test_whatever_the_number_of_jobs(runs: Path, tmp_path: Path, jobs: int) -> None:
    (runs / "one" / "worker-2.pcap").write_bytes(GOOD[:-1])
    (runs / "two" / "worker-1.pcap").write_bytes(b"nothing")
    first = ingest(runs, out=tmp_path / "first", jobs=1)
    assert ingest(runs, out=tmp_path / "second", jobs=jobs) == first
    assert len(first) == 2
    assert hashes_of(tmp_path / "first") == hashes_of(tmp_path / "second")


def test_whichever_file_is_read_first(runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first file is read last, and reported first."""
    ingest(runs, out=tmp_path / "first")
    read = numba_engine.read_capture
    others = threading.Semaphore(0)

    def first_waits(path: Path, options: ReadOptions) -> CaptureFacts:
        if path == runs / "one" / "worker-1.pcap":
            for _ in range(3):
                assert others.acquire(timeout=60)
        facts = read(path, options)
        others.release()
        return facts

    monkeypatch.setattr(numba_engine, "read_capture", first_waits)
    messages = Lines()
    pipeline.ingest([str(runs)], tmp_path / "second", IngestOptions(jobs=2), messages)
    files = ["one/worker-1.pcap", "one/worker-2.pcap", "two/worker-1.pcap", "two/worker-2.pcap", "two/worker-3.pcap"]
    assert [line.split(":")[0] for line in messages.files] == files
    assert hashes_of(tmp_path / "first") == hashes_of(tmp_path / "second")


@pytest.mark.parametrize(("jobs", "files", "inside"), [(1, 5, 1), (2, 5, 1), (16, 5, 3), (7, 1, 7)])
@pytest.mark.long_after(1)
def test_jobs_that_no_file_needs_work_inside_the_files(
    runs: Path, tmp_path: Path, jobs: int, files: int, inside: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = numba_engine.read_capture
    given = []

    def note_jobs(path: Path, options: ReadOptions) -> CaptureFacts:
        given.append(options.jobs)
        return read(path, options)

    monkeypatch.setattr(numba_engine, "read_capture", note_jobs)
    ingest(*sorted(runs.rglob("*.pcap"))[:files], out=tmp_path / "dataset", jobs=jobs)
    assert given == [inside] * files


GOOD = p.pcap(packet.record for packet in ring(A, B))
