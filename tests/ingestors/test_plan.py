"""`ingest --plan`: the tasks of each capture, and what the measured start of one means for all."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import packets as p
import pytest
from small_runs import A, B, ring
from tools import RunCommand

from ddnn_traces.errors import UsageError
from ddnn_traces.ingestors.options import IngestOptions
from ddnn_traces.ingestors.plan import Calibration, Plan, PlannedFile, plan
from ddnn_traces.messages import Messages


def planned(
    workers: int,
    *files: PlannedFile,
    fetch_s: float = 0.2,
    read_s: float = 2.0,
    hash_s: float = 0.5,
    after_s_byte: float = 0,
) -> Plan:
    """A plan by a calibration of 100 bytes."""
    measured = Calibration(Path("a.pcap"), 100, fetch_s, read_s, hash_s, 3.0, after_s_byte, 0.5)
    return Plan(files, measured, workers, False)


def test_the_slower_of_store_and_packet_loop_counts() -> None:
    whole = PlannedFile("run", "a.pcap", 1000, 1, True)
    assert planned(1, whole).task_s == pytest.approx(20)
    assert planned(1, whole, fetch_s=4.0).task_s == pytest.approx(40)


def test_a_file_that_is_cut_is_read_twice() -> None:
    """In parts, without its hash, and for the hash."""
    cut = PlannedFile("run", "a.pcap", 1000, 10, True)
    assert planned(2, cut).task_s == pytest.approx(15 + 5)
    assert planned(2, cut, fetch_s=4.0).task_s == pytest.approx(40 + 40)
    assert planned(2, cut, read_s=1.5, hash_s=0.0).task_s == pytest.approx(15)
    assert planned(2, cut).expected_s == pytest.approx(10)
    assert planned(2, cut).limit == "the packet loop of 2 workers"
    assert planned(2, cut, fetch_s=4.0).limit == "the store of 2 workers"
    assert planned(2, cut).core_hours == pytest.approx((20 + 3) / 3600)


def test_the_longest_task_limits() -> None:
    """A file that is not cut, or the hash of one that is."""
    found = planned(100, PlannedFile("run", "a.pcap.gz", 1000, 1, True), PlannedFile("run", "b.pcap.gz", 10, 1, True))
    assert found.expected_s == pytest.approx(20.0)
    assert found.limit == "the longest task, a whole file"
    assert planned(100, PlannedFile("run", "a.pcap", 1000, 10, True)).expected_s == pytest.approx(5.0)


def test_writing_limits() -> None:
    found = planned(100, PlannedFile("run", "a.pcap", 1000, 100, False), after_s_byte=0.1)
    assert found.expected_s == pytest.approx(3 + 100)
    assert found.limit == "joining and writing in this process"
    assert found.requests == 0


def test_workers_end_runs_of_whole_files() -> None:
    """What follows the reading of these is the workers'; of a run with a file that is cut it is this process's."""
    whole, cut = PlannedFile("whole", "a.pcap", 1000, 1, False), PlannedFile("cut", "b.pcap", 1000, 10, False)
    found = planned(2, whole, cut, after_s_byte=0.1)
    assert (found.task_s, found.after_s) == (pytest.approx(20 + 20), pytest.approx(2 * 3 + 200))
    found = replace(found, ends_runs=True)
    assert (found.task_s, found.after_s) == (pytest.approx(20 + 20 + 3 + 100), pytest.approx(3 + 100))


def test_requests_to_the_store() -> None:
    """8 MiB each, twice for a file in parts, which is also hashed; two more for each task."""
    found = planned(1, PlannedFile("r", "a", 17 << 20, 2, True), PlannedFile("r", "b", 17 << 20, 1, True))
    assert found.requests == (2 * 3 + 2 * 2) + (3 + 2)


def test_nothing_is_written(tmp_path: Path, command: RunCommand) -> None:
    for name in ("worker-1", "worker-2"):
        (tmp_path / f"{name}.pcap").write_bytes(p.pcap(packet.record for packet in ring(A, B)))
    done = command("ingest", str(tmp_path), "--out", str(tmp_path / "out"), "--plan", "--jobs", "1")
    assert done.returncode == 0
    assert done.stdout.count(b"worker-") == 2
    assert b"2 tasks, 0.00 GB, 1 thread: about " in done.stderr
    assert b"0 requests to the store; limited by " in done.stderr
    assert not (tmp_path / "out").exists()


def test_wrong_options_and_sources(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file or folder"):
        plan([str(tmp_path / "none")], "out", IngestOptions(), Messages())
