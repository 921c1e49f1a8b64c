"""Training logs on another clock than the captures, through whole ingests."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from small_runs import A, B, contradictions, ingest, read_folder, ring
from tools import RunCommand

from ddnn_traces.messages import Messages
from ddnn_traces.query.dataset import Dataset

HOUR = 3600

RUN = "torch-mlp1-sgd-32-gloo-0ms-ring-tso"


@pytest.fixture
def late_run(sample: Path, tmp_path: Path) -> Path:
    """A run of the sample whose logs' clocks are an hour slow."""
    folder = tmp_path / "runs" / RUN
    shutil.copytree(sample / RUN, folder)
    paths = [*folder.glob("*.log"), *folder.glob("phases-*.csv")]
    assert len(paths) == 9  # of four workers each, and the reference log
    for path in paths:
        head, *rows = [row.split(",") for row in path.read_text().splitlines()]
        for place, name in enumerate(head):
            if name in ("Timestamp", "t_begin"):
                for row in rows:
                    whole, point, fraction = row[place].partition(".")
                    row[place] = f"{int(whole) - HOUR}{point}{fraction}"
        path.write_text("\n".join([",".join(row) for row in (head, *rows)]) + "\n")
    return folder


def offset(dataset: Dataset) -> tuple[int, int]:
    """The offset that was added to the logs' times, and the estimate."""
    (row,) = dataset.sql("SELECT clock_offset_ns, clock_offset_estimate_ns FROM runs").rows()
    return row


def in_steps(dataset: Dataset) -> list[tuple[object, ...]]:
    columns = "src_ip, dst_ip, src_port, dst_port, connection, worker, position, step, s.packets, s.wire_bytes"
    return dataset.sql(f"""SELECT {columns} FROM step_flows AS s JOIN flows USING (run_id, flow_id)
                           WHERE run_id = '{RUN}' ORDER BY ALL""").rows()


@pytest.mark.long
def test_log_that_is_off_is_reported(late_run: Path, tmp_path: Path, command: RunCommand) -> None:
    done = command("ingest", late_run, "--out", "dataset")
    said = done.stderr.decode()
    assert done.returncode == 0, "every record was read"
    assert re.search(rf"{RUN}: its logs line up with the traffic when \+(3600|3599)\.\d\d\d s are added", said)
    assert said.count("--clock-offset auto") == 1  # not once a file, and nothing else about clocks
    assert "shares no time" not in said
    again = command("ingest", late_run, "--out", "dataset")
    assert (again.returncode, "--clock-offset auto" in again.stderr.decode()) == (0, True)
    offered = said.split("or --clock-offset ")[1].split(",")[0]
    taken = command("ingest", late_run, "--out", "dataset", "--clock-offset", offered)
    assert (taken.returncode, taken.stderr.decode().count("clock")) == (0, 0)


def test_none_declines_the_offer(late_run: Path, tmp_path: Path, command: RunCommand) -> None:
    done = command("ingest", late_run, "--out", "dataset", "--clock-offset", "none")
    assert (done.returncode, done.stderr.decode().count("clock")) == (0, 0)


def test_wrong_seconds_are_reported(late_run: Path) -> None:
    messages = Messages()
    with read_folder(late_run, messages, clock_offset=-1800.0) as dataset:
        assert offset(dataset) == (-1800 * 10**9, HOUR * 10**9)
    assert [warning.count("+3600.000 s") for warning in messages.warnings] == [1]


def test_without_an_offset_no_packet_is_in_a_step(late_run: Path) -> None:
    with read_folder(late_run) as dataset:
        assert {row[6] for row in in_steps(dataset)} == {"after"}
        assert offset(dataset)[0] == 0
        assert offset(dataset)[1] == HOUR * 10**9
        assert contradictions(dataset) == {}


def test_seconds_put_the_packets_into_their_steps(late_run: Path, sample_dataset: Dataset) -> None:
    messages = Messages()
    with read_folder(late_run, messages, clock_offset=3600.0) as dataset:
        assert offset(dataset)[0] == HOUR * 10**9
        assert in_steps(dataset) == in_steps(sample_dataset)
        steps = "SELECT worker, step, start_ns, end_ns FROM steps WHERE run_id = $1 ORDER BY ALL"
        assert dataset.sql(steps, [RUN]).rows() == sample_dataset.sql(steps, [RUN]).rows()
        assert contradictions(dataset) == {}
    assert messages.warnings == []


def test_auto_puts_the_packets_into_their_steps(late_run: Path, sample_dataset: Dataset) -> None:
    """Except those within the few milliseconds by which the estimate may be off."""
    messages = Messages()
    with read_folder(late_run, messages, clock_offset="auto", packets=True) as dataset:
        applied, estimate = offset(dataset)
        assert applied == estimate == HOUR * 10**9  # time zones are whole
        volume = "SELECT step, wire_bytes FROM step_volume WHERE run_id = $1"
        right, found = (dict(each.sql(volume, [RUN]).rows()) for each in (sample_dataset, dataset))
        assert found.keys() == right.keys()
        assert all(abs(found[step] - size) < 0.1 * size for step, size in right.items())
        hashes = "SELECT capture_id, blake3 FROM captures WHERE run_id = $1 ORDER BY ALL"
        assert dataset.sql(hashes, [RUN]).rows() == sample_dataset.sql(hashes, [RUN]).rows()  # from the first pass
        assert contradictions(dataset) == {}
    assert messages.warnings == []


def test_auto_leaves_a_log_that_is_right(sample: Path, tmp_path: Path, sample_dataset: Dataset) -> None:
    shutil.copytree(sample / RUN, tmp_path / "runs" / RUN)
    with read_folder(tmp_path / "runs" / RUN, clock_offset="auto") as dataset:
        assert offset(dataset)[0] == 0
        assert in_steps(dataset) == in_steps(sample_dataset)


def test_run_without_a_log_has_no_offset(tmp_path: Path) -> None:
    for value in ("none", "auto", 3600.0):
        with ingest(tmp_path / str(value), {"a.pcap": ring(A, B)}, clock_offset=value) as dataset:
            assert offset(dataset) == (None, None)
