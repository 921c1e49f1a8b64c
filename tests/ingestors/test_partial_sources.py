"""Damaged, unreadable and wrong sources: what could be read is kept and marked, the rest is named."""

from __future__ import annotations

import gzip
import os
import shutil
from pathlib import Path

import packets as p
import pytest
from ingesting import ingest
from small_runs import (
    A,
    B,
    C,
    contradictions,
    counted,
    ring,
    sent,
    write_captures,
)

import ddnn_traces
from ddnn_traces.errors import CaptureError, MetadataError
from ddnn_traces.ingestors import pipeline
from ddnn_traces.messages import Messages
from ddnn_traces.pcap import capture_file, numba_engine
from ddnn_traces.pcap.capture_facts import CaptureFacts, ReadOptions


def test_metadata_that_is_wrong_leaves_out_the_run(runs: Path, tmp_path: Path) -> None:
    """And does not change what the dataset has of it; without any other run nothing is written."""
    (runs / "two" / "run.toml").write_text("workers = 'many'")
    (said,) = ingest(runs, out=tmp_path / "dataset")
    assert said.startswith(f"{runs}/two/run.toml: workers = 'many' is not of type int")
    assert said.endswith("; run two is left out")
    with ddnn_traces.open(tmp_path / "dataset") as dataset:
        assert dataset.run_ids == ["one"]
    shutil.copy2(runs / "two" / "run.toml", runs / "one")
    for sources in ((runs,), (runs / "two",)):
        with pytest.raises(MetadataError, match=r"two/run\.toml: workers"):
            ingest(*sources, out=tmp_path / "other")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dataset", "runs"]


def test_what_is_left_out_is_named(runs: Path, tmp_path: Path) -> None:
    """Links that lead nowhere, pipes, which are never opened, and rows of runs.csv without a folder."""
    (runs / "three").symlink_to("gone")
    (runs / ".hidden").symlink_to("gone")
    os.mkfifo(runs / "one" / "worker-3.pcap")
    (runs / "runs.csv").write_text(f"run_id,workers\none,2\nthree,2\nfour,2\n{'x' * 3000},1\n")
    said = ingest(runs, out=tmp_path / "dataset")
    assert said == [
        f"{runs}/three: a link to gone, which is not there; correct or remove it",
        f"{runs}/one/worker-3.pcap: a pipe, which is not read; a capture from one is named as a source",
        f"{runs}/runs.csv: 3 rows without a folder of that name next to it: 'three', 'four', '{'x' * 96}...; correct "
        "run_id, or remove such rows",
    ]
    (runs / "runs.csv").write_text("run_id,workers\nonne,2\n")
    assert "next to it: 'onne' (did you mean one?); correct" in ingest(runs, out=tmp_path / "dataset")[-1]
    assert ingest(f"{runs}/*", out=tmp_path / "dataset")[0] == said[0]
    assert ingest(f"{runs}/one/*", out=tmp_path / "dataset")[0] == said[1]


def test_a_capture_that_becomes_a_device_is_not_read(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the folder was listed: /dev/zero has no end."""
    open_file = capture_file.opened

    def replaced(path: Path) -> object:
        if path.name == "worker-1.pcap" and not path.is_symlink():
            path.unlink()
            path.symlink_to("/dev/zero")
        return open_file(path)

    monkeypatch.setattr(capture_file, "opened", replaced)
    said = ingest(runs / "one", out=tmp_path / "dataset")
    assert any("worker-1.pcap" in line and "a device" in line for line in said)
    with ddnn_traces.open(tmp_path / "dataset") as dataset:
        rows = dataset.sql("SELECT capture_id, status FROM captures ORDER BY capture_id").rows()
    assert rows[0] == ("worker-1.pcap", "corrupt")
    assert {status for _, status in rows[1:]} == {"complete"}


def test_unreadable_file(runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is marked, and the others are kept."""
    read = numba_engine.read_capture

    def refuse(path: Path, options: ReadOptions) -> CaptureFacts:
        if path.name == "worker-1.pcap":
            raise PermissionError(13, "Permission denied")
        return read(path, options)

    monkeypatch.setattr(numba_engine, "read_capture", refuse)
    messages = Messages()
    pipeline.ingest([str(runs)], tmp_path / "dataset", messages=messages)
    assert all("worker-1.pcap: corrupt: cannot be read (Permission denied)" in warning for warning in messages.warnings)
    assert messages.warnings
    with ddnn_traces.open(tmp_path / "dataset") as dataset:
        marked = dataset.sql("SELECT DISTINCT capture_id, engine FROM captures WHERE status = 'corrupt'")
        assert marked.rows() == [("worker-1.pcap", "none")]
        assert dataset.sql("SELECT count(*) FROM flows").item() > 0


GOOD = p.pcap(packet.record for packet in ring(A, B))

RECORD = 16 + len(ring(A, B)[-1].record.frame)


@pytest.mark.parametrize(
    ("content", "status", "records", "message"),
    [
        (GOOD[:-1], "truncated", len(ring(A, B)) - 1, "last record cut short"),
        (GOOD[: -RECORD + 5], "truncated", len(ring(A, B)) - 1, "last record cut short"),
        (GOOD + b"\xff" * 400, "corrupt", len(ring(A, B)), "no sane record header"),
        (GOOD + bytes(1 << 20), "corrupt", len(ring(A, B)), "zeros instead of a record header"),
        (b"", "truncated", 0, "empty"),
        (GOOD[:10], "truncated", 0, "cut short inside the pcap file header"),
        (b"This is no capture at all, but text.", "corrupt", 0, "not a capture"),
        (GOOD[:4] + b"\1\0\0\0" + GOOD[8:], "corrupt", 0, "pcap of version 1.0, only 2 is read"),
        (GOOD[:4] + b"\x1f\2\0\0" + GOOD[8:], "corrupt", 0, "pcap of version 543.0, only 2 is read"),
    ],
)
@pytest.mark.long_after(2)
def test_damage(tmp_path: Path, content: bytes, status: str, records: int, message: str) -> None:
    folder = write_captures(tmp_path / "run", {"good.pcap": ring(C, B)})
    (folder / "bad.pcap").write_bytes(content)
    (warning,) = ingest(folder, out=tmp_path / "dataset")
    assert warning.startswith(f"{folder / 'bad.pcap'}: {status}: ")
    assert message in warning
    wait = "wait until its capture has ended, or " if status == "truncated" else ""
    assert warning.endswith(f"; {wait}copy it again, or leave it out")
    with ddnn_traces.open(tmp_path / "dataset") as dataset:
        found = "SELECT status, records, status_detail IS NULL FROM captures ORDER BY capture_id"
        assert dataset.sql(found).rows() == [(status, records, False), ("complete", 20, True)]
        assert counted(dataset) == sent([*ring(C, B), *ring(A, B)[:records]])
        assert contradictions(dataset) == {}


def test_a_bad_row_of_runs_csv_is_reported_and_the_runs_are_read(runs: Path, tmp_path: Path) -> None:
    """Again by the next ingest, which reads no run again, until the row is corrected."""
    (runs / "runs.csv").write_text("run_id,batch_size\none,32\ntwo,many\n")
    out = tmp_path / "dataset"
    said = f"{runs / 'runs.csv'}: line 3: run 'two': batch_size = 'many' is not of type int; change it"
    assert ingest(runs, out=out) == ingest(runs, out=out) == [f"{said}; the row is not used"]
    (runs / "runs.csv").write_text("run_id,batch_size\none,32\ntwo,64\n")
    assert ingest(runs, out=out) == []
    with ddnn_traces.open(out) as dataset:
        assert dataset.sql("SELECT run_id, batch_size FROM runs ORDER BY run_id").rows() == [("one", 32), ("two", 64)]


def test_gzip_cut_short_keeps_what_was_there(tmp_path: Path) -> None:
    folder = write_captures(tmp_path / "run", {})
    (folder / "cut.pcap.gz").write_bytes(gzip.compress(GOOD, mtime=0)[:-12])
    (warning,) = ingest(folder, out=tmp_path / "dataset")
    assert "cut.pcap.gz: truncated: gzip is cut short" in warning
    with ddnn_traces.open(tmp_path / "dataset") as dataset:
        (records,) = dataset.sql("SELECT records FROM captures").row(0)
        assert 0 < records <= len(ring(A, B))
        assert contradictions(dataset) == {}


def test_run_without_a_readable_file_is_left_out(runs: Path, tmp_path: Path) -> None:
    write_captures(runs / "bad", {})
    (runs / "bad" / "a.pcap").write_bytes(b"nothing")
    warnings = ingest(runs, out=tmp_path / "dataset")
    assert warnings[-1] == "bad: left out, none of its files is a capture that can be read"
    with ddnn_traces.open(tmp_path / "dataset") as dataset:
        assert dataset.run_ids == ["one", "two"]


def test_nothing_readable_at_all(tmp_path: Path) -> None:
    (tmp_path / "a.pcap").write_bytes(b"nothing")
    with pytest.raises(CaptureError, match=r"no run could be read from .*a\.pcap; .* was not made"):
        ingest(tmp_path / "a.pcap", out=tmp_path / "dataset")
    assert [path.name for path in tmp_path.iterdir()] == ["a.pcap"]


def test_log_on_another_clock_is_reported(tmp_path: Path) -> None:
    folder = write_captures(tmp_path / "run", {"worker-1.pcap": ring(A, B)})
    (folder / "train_history.log").write_text(
        "Type,ID,Timestamp,Loss,Accuracy\nbatch,0,1700028800.1,0,0\nbatch,1,1700028800.2,0,0\n"
    )
    messages = Messages()
    pipeline.ingest([str(folder)], tmp_path / "dataset", messages=messages)
    (warning,) = messages.warnings
    assert "begins -8.00 hours after worker-1's log" in warning
