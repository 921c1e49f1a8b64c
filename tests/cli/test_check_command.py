"""`check`: exit code 1 and the rows that contradict each other."""

from __future__ import annotations

from pathlib import Path

import packets as p
import pyarrow.parquet as pq
import pytest
from small_runs import BEGIN_NS, A, B, ring, sent_by, write_captures, write_log
from tools import RunCommand, lines

import ddnn_traces
from ddnn_traces.store import checksums
from ddnn_traces.store.writer import partition

GOOD = p.pcap(packet.record for packet in ring(A, B))


@pytest.mark.long
def test_check_finds_rows_that_were_lost(command: RunCommand, tmp_path: Path) -> None:
    write_captures(tmp_path / "run", {"a.pcap": ring(A, B)})
    ddnn_traces.ingest(tmp_path / "run", tmp_path / "dataset").close()
    assert command("check", "dataset").returncode == 0
    path = partition(tmp_path / "dataset", "flows", "run") / "part-0.parquet"
    pq.write_table(pq.read_table(path, partitioning=None).slice(1), path)
    (tmp_path / "dataset" / checksums.FILE).unlink()  # by which the file is found before its rows
    done = command("check", "dataset")
    assert done.returncode == 1
    assert "flows" in done.stdout.decode()
    assert "offending row" in done.stdout.decode()


@pytest.mark.long
def test_check_with_nothing_to_examine_is_not_ok(command: RunCommand, tmp_path: Path) -> None:
    """One host's capture without a log, then a run that is declared and logged at both ends."""
    write_captures(tmp_path / "one", {"worker-1.pcap": filter(sent_by(A), ring(A, B))})
    ddnn_traces.ingest(tmp_path / "one", tmp_path / "dataset").close()
    alone = dict(line.split(": ", 1) for line in lines(command("check", "dataset").stdout))
    for name in ("conservation", "host_clock", "log_clock", "missing_worker", "steps_overlap", "both_vantages"):
        assert alone[name].startswith("not checked: "), name
    assert {name for name, outcome in alone.items() if outcome == "ok"} == {
        "capture_loss", "captured_copies", "flow_parts", "flow_references", "flows_match_ledger", "ledger",
        "message_parts", "negative_durations", "orphan_keys", "stored_files",
    }  # fmt: skip
    write_captures(tmp_path / "two", {f"worker-{n}.pcap": ring(A, B) for n in (1, 2)})
    write_log(tmp_path / "two", "worker-1", [BEGIN_NS, BEGIN_NS + 50_000])
    (tmp_path / "two" / "run.toml").write_text("workers = 2")
    ddnn_traces.ingest(tmp_path / "two", tmp_path / "dataset").close()
    both = dict(line.split(": ", 1) for line in lines(command("check", "dataset").stdout))
    assert both["missing_worker"].startswith("ok in 1 of 2 runs; not checked: ")
    assert both["ledger"] == "ok"


@pytest.mark.long
def test_check_names_truncated_captures(command: RunCommand, tmp_path: Path) -> None:
    """The dataset has what could be read of them, and not the rest: ingest ended with 1, check with 0."""
    for name, content in (("one", GOOD), ("two", GOOD[:-1])):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.pcap").write_bytes(content)
    command("ingest", "one", "two", "--out", "dataset")
    done = command("check", "dataset")
    assert (done.returncode, done.stderr) == (1, b"")
    last = lines(done.stdout)[-1]
    assert last.startswith(
        "partial_captures: 1 capture file read only in part (two/a.pcap truncated: last record cut short at byte "
    )
    assert last.endswith(
        "; 19 packets before that were read, what follows is missing); copy the files again where they are whole, "
        "and ingest again (query partial_captures)"
    )
    command("ingest", "one", "--out", "sound")
    sound = command("check", "sound")
    assert (sound.returncode, b"partial_captures" in sound.stdout) == (0, False)
