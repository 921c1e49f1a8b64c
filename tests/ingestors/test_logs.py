"""Training logs: when the steps of each worker began and ended."""

from __future__ import annotations

import math
import os
from pathlib import Path

import pytest

from ddnn_traces.ingestors.training_logs import (
    Event,
    Phases,
    TrainingLog,
    read_events,
    read_logs,
    read_phases,
    seconds_to_ns,
)
from ddnn_traces.messages import Messages
from ddnn_traces.text import natural_order

HEADER = "Type,ID,Timestamp,Loss,Accuracy"


def log(*rows: str, header: str = HEADER) -> str:
    return "\n".join([header, *rows, ""])


STEPS = log("batch,0,100.5,2.0,0.25", "batch,1,101.5,1.0,0.5", "batch,2,103.5,0.5,1.0")


def read(folder: Path, **files: str) -> tuple[list[TrainingLog], list[str]]:
    """Logs and warnings of a folder with these files; `worker_1` stands for train_history-worker-1.log."""
    for name, text in files.items():
        path = "train_history.log" if name == "plain" else f"train_history-{name.replace('_', '-')}.log"
        (folder / path).write_text(text)
    messages = Messages()
    return read_logs(folder, messages), messages.warnings


def read_one(folder: Path, text: str) -> tuple[TrainingLog, list[str]]:
    (found,), warnings = read(folder, worker_1=text)
    return found, warnings


def refused(folder: Path, text: str) -> str:
    found, (warning,) = read(folder, worker_1=text)
    assert not found
    assert warning.startswith(f"{folder / 'train_history-worker-1.log'}: ")
    return warning


# --- accuracy


def test_a_sixth_column_is_the_accuracy_on_held_out_data(tmp_path: Path) -> None:
    header = f"{HEADER},HeldOutAccuracy"
    found, warnings = read_one(tmp_path, log("batch,0,100.5,2.0,0.25,0.5", "batch,1,101.5,1.0,0.5,", header=header))
    assert [(step.accuracy, step.held_out_accuracy) for step in found.steps] == [(0.25, 0.5), (0.5, None)]
    assert not warnings


def test_a_row_has_as_many_cells_as_the_header(tmp_path: Path) -> None:
    rows = ("batch,0,100.5,2.0,0.25", "batch,1,101.5,1.0,0.5,0.5")
    found, (warning,) = read_one(tmp_path, log(*rows))
    assert len(found.steps) == 1 and "1 lines are not read, the first is line 3" in warning


# --- times


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("1795167743.949195", 1_795_167_743_949_195_000),
        ("1795167743.949195123", 1_795_167_743_949_195_123),  # a double is 200 ns off here
        ("1795167743.9491951235", 1_795_167_743_949_195_124),
        (" 1795167743 ", 1_795_167_743_000_000_000),
        ("1.795167743949195123e9", 1_795_167_743_949_195_123),
        ("4611686018.427387903", 2**62 - 1),
        ("0", 0),
    ],
)
def test_seconds(text: str, ns: int) -> None:
    assert seconds_to_ns(text) == ns


@pytest.mark.parametrize(
    "text",
    ["", "now", "nan", "inf", "-inf", "-1", "4611686018.427387904", "1e30", "1e999999999", "1e999990", "0x1", "1,5"],
)
def test_no_time(text: str) -> None:
    with pytest.raises(ValueError):
        seconds_to_ns(text)


# --- steps


def test_steps(tmp_path: Path) -> None:
    found, warnings = read_one(tmp_path, STEPS)
    assert (found.worker, warnings) == ("worker-1", [])
    assert [(step.step, step.epoch, step.end_ns, step.loss, step.accuracy) for step in found.steps] == [
        (0, 0, 100_500_000_000, 2.0, 0.25),
        (1, 0, 101_500_000_000, 1.0, 0.5),
        (2, 0, 103_500_000_000, 0.5, 1.0),
    ]
    # the first step is as long as the others usually are: median of 1 s and 2 s
    assert [step.start_ns for step in found.steps] == [99_000_000_000, 100_500_000_000, 101_500_000_000]
    assert [step.start_source for step in found.steps] == ["estimated", "previous_end", "previous_end"]
    assert found.bounds.tolist() == [99_000_000_000, 100_500_000_000, 101_500_000_000, 103_500_000_000]


def test_begin_of_the_first_step_by_phases(tmp_path: Path) -> None:
    (tmp_path / "phases-worker-1.csv").write_text("step,t_begin,t_end\n0,100.123456789,100.5\n1,100.6,101.5\n")
    found, warnings = read_one(tmp_path, STEPS)
    assert (found.steps[0].start_ns, found.steps[0].start_source, warnings) == (100_123_456_789, "phases", [])
    assert found.steps[1].start_ns == 100_500_000_000


@pytest.mark.parametrize(
    "phases",
    ["", "step,t_begin\n", "step,begin\n0,100.0\n", "step,t_begin\n0,soon\n", "step,t_begin\n0\n", "\0,\0\n\0"],
)
def test_phases_that_tell_nothing(tmp_path: Path, phases: str) -> None:
    (tmp_path / "phases-worker-1.csv").write_text(phases)
    found, (warning,) = read_one(tmp_path, STEPS)
    assert found.steps[0].start_source == "estimated"
    assert warning.startswith(f"{tmp_path / 'phases-worker-1.csv'}: not used")


def test_phases_of_another_time(tmp_path: Path) -> None:
    (tmp_path / "phases-worker-1.csv").write_text("step,t_begin\n0,100.6\n")
    assert read_one(tmp_path, STEPS)[0].steps[0].start_source == "estimated"


def test_a_single_step_begins_at_its_end(tmp_path: Path) -> None:
    found, _ = read_one(tmp_path, log("batch,0,100.5,2.0,0.25"))
    assert found.bounds.tolist() == [100_500_000_000, 100_500_000_000]


def test_epochs(tmp_path: Path) -> None:
    rows = ["batch,0,1,,", "batch,1,2,,", "epoch,0,2.5,,", "batch,0,3,,", "epoch,1,3.5,,"]
    found, warnings = read_one(tmp_path, log(*rows))
    assert [(step.step, step.epoch) for step in found.steps] == [(0, 0), (1, 0), (2, 1)]
    assert warnings == []


def test_numbers_that_are_none(tmp_path: Path) -> None:
    found, warnings = read_one(tmp_path, log("batch,0,1,nan,inf", "batch,1,2,,", "batch,2,3, ,1e-3"))
    (first, second, third) = found.steps
    assert first.loss is not None
    assert math.isnan(first.loss)
    assert (first.accuracy, second.loss, second.accuracy, third.loss, third.accuracy) == (
        math.inf,
        None,
        None,
        None,
        1e-3,
    )
    assert warnings == []


def test_header_of_other_programs(tmp_path: Path) -> None:
    assert len(read_one(tmp_path, STEPS.replace(HEADER, "Type, ID, Timestamp, Loss, Accuracy "))[0].steps) == 3
    assert len(read_one(tmp_path, "\ufeff" + STEPS.replace("\n", "\r\n"))[0].steps) == 3


# --- damage


def test_no_header(tmp_path: Path) -> None:
    message = refused(tmp_path, STEPS.replace(HEADER + "\n", ""))
    assert message.endswith(f"the first line is not '{HEADER}', so no step is read; add that header")


@pytest.mark.parametrize("text", ["", "\n", "Loss\n1\n", "\0", 200_000 * "x"])
def test_no_log(tmp_path: Path, text: str) -> None:
    refused(tmp_path, text)


@pytest.mark.parametrize("text", [log(), log("epoch,0,1,,"), log("batch,0,soon,,")])
def test_no_steps(tmp_path: Path, text: str) -> None:
    found, warnings = read(tmp_path, worker_1=text)
    assert not found
    assert "no row of type batch, so no step is read" in warnings[-1]


@pytest.mark.parametrize(
    "line",
    ["batch,1,101.5,1.0", "batch,1,101.5,1.0,0.5,9", "batch,1,soon,1,1", "step,1,101.5,1,1", "batch,1,101.5,low,1",
     "batch,1,1e999999999,1,1", "batch,1,-5,1,1", "batch,1,9e99,1,1"],
)  # fmt: skip
def test_bad_lines_are_left_out_and_named(tmp_path: Path, line: str) -> None:
    found, (warning,) = read_one(tmp_path, log("batch,0,100.5,2,0", line, "", line, "batch,2,103.5,1,1"))
    assert [step.end_ns for step in found.steps] == [100_500_000_000, 103_500_000_000]
    assert "2 lines are not read, the first is line 3" in warning


def test_times_that_go_back(tmp_path: Path) -> None:
    found, (warning,) = read_one(tmp_path, log("batch,0,10,,", "batch,1,5,,", "batch,2,20,,"))
    assert "time stamps go back" in warning
    assert [step.end_ns for step in found.steps] == [10 * 10**9, 5 * 10**9, 20 * 10**9]
    # the second step is empty, and the third begins where the first ended
    assert [step.start_ns for step in found.steps[1:]] == [10 * 10**9, 10 * 10**9]
    assert found.bounds.tolist() == sorted(found.bounds)


def test_times_that_only_go_back(tmp_path: Path) -> None:
    found, _ = read_one(tmp_path, log("batch,0,30,,", "batch,1,20,,", "batch,2,10,,"))
    assert found.steps[0].start_ns <= found.steps[0].end_ns
    assert found.bounds.tolist() == sorted(found.bounds)


def test_one_bad_log_leaves_the_others(tmp_path: Path) -> None:
    found, (warning,) = read(tmp_path, worker_1="nothing", worker_2=STEPS)
    assert [log.worker for log in found] == ["worker-2"]
    assert "worker-1" in warning


def test_a_log_that_is_a_folder(tmp_path: Path) -> None:
    (tmp_path / "train_history.log").mkdir()
    found, (warning,) = read(tmp_path, worker_2=STEPS)
    assert [log.worker for log in found] == ["worker-2"]
    assert warning.startswith(f"{tmp_path / 'train_history.log'}: a folder, not a file")


@pytest.mark.parametrize("name", ["train_history-worker-1.log", "phases-worker-2.csv"])
def test_a_pipe_is_not_waited_for(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / name)
    found, (warning,) = read(tmp_path, worker_2=STEPS)
    assert [log.worker for log in found] == ["worker-2"]
    assert warning == f"{tmp_path / name}: a pipe, not a file; remove or replace it"


def test_a_log_that_is_too_large(tmp_path: Path) -> None:
    """Nothing of it is read: the file has no blocks on the disk, and reading it would take its size of memory."""
    with (tmp_path / "train_history-worker-1.log").open("wb") as file:
        file.truncate(1 << 40)
    found, (warning,) = read(tmp_path, worker_2=STEPS)
    assert [log.worker for log in found] == ["worker-2"]
    assert "1,099,511,627,776 bytes; of such a file at most 67,108,864 are read" in warning


def test_a_quotation_mark_that_is_not_closed_costs_one_line(tmp_path: Path) -> None:
    found, (warning,) = read_one(tmp_path, log('"batch,0,100.5,2.0,0.25', "batch,1,101.5,1.0,0.5"))
    assert [step.end_ns for step in found.steps] == [101_500_000_000]
    assert "1 lines are not read, the first is line 2" in warning


# --- which log is whose


def test_log_without_a_worker_is_the_first_workers(tmp_path: Path) -> None:
    (tmp_path / "phases-worker-1.csv").write_text("step,t_begin\n0,100.0\n")
    found, _ = read(tmp_path, plain=STEPS)
    assert [(log.worker, log.steps[0].start_ns) for log in found] == [("worker-1", 100_000_000_000)]


def test_first_worker_may_be_number_0(tmp_path: Path) -> None:
    """As in the published Zerwas data."""
    for number in range(2):
        (tmp_path / f"worker-{number}-tcpdump.pcap").touch()
    assert [log.worker for log in read(tmp_path, plain=STEPS)[0]] == ["worker-0"]


def test_kinds_in_capitals(tmp_path: Path) -> None:
    """frameworks/*/script.py of tum-lkn/dml-network-traffic-analysis print them so."""
    text = log("Batch,0,100.5,2.0,0.25", "Epoch,0,100.5,2.0,0.25", "Batch,0,101.5,1.0,0.5")
    found, warnings = read_one(tmp_path, text)
    assert [(step.step, step.epoch) for step in found.steps] == [(0, 0), (1, 1)]
    assert warnings == []


@pytest.mark.parametrize("twin", ["worker_1", "worker_4", "chief"])
def test_twin_of_another_log_counts_once(tmp_path: Path, twin: str) -> None:
    found, warnings = read(tmp_path, plain=STEPS, **{twin: STEPS})
    assert ([log.worker for log in found], warnings) == ([twin.replace("_", "-")], [])


def test_first_workers_own_log_wins(tmp_path: Path) -> None:
    found, _ = read(tmp_path, plain=log("batch,0,1,,"), worker_1=STEPS)
    assert [(log.worker, len(log.steps)) for log in found] == [("worker-1", 3)]


def test_log_beside_other_workers_logs(tmp_path: Path) -> None:
    found, _ = read(tmp_path, plain=log("batch,0,1,,"), worker_2=STEPS)
    assert [(log.worker, len(log.steps)) for log in found] == [("worker-1", 1), ("worker-2", 3)]


def test_natural_order(tmp_path: Path) -> None:
    labels = ["worker-10", "worker-2", "ps-1", "worker-1", "9", "10", "a1b2", "a1b10", "chief"]
    assert sorted(labels, key=natural_order) == [
        "a1b2", "a1b10", "chief", "ps-1", "worker-1", "worker-2", "worker-10", "9", "10"
    ]  # fmt: skip
    found, _ = read(tmp_path, worker_10=STEPS, worker_2=STEPS)
    assert [log.worker for log in found] == ["worker-2", "worker-10"]


# --- phases


PHASES = "step,t_begin,t_comm_begin,t_comm_end,t_end\n0,100.0,100.1,100.4,100.5\n"


def read_phases_of(folder: Path, text: str) -> tuple[Phases, list[str]]:
    (folder / "phases-worker-1.csv").write_text(text)
    messages = Messages()
    return read_phases(folder / "phases-worker-1.csv", messages), messages.warnings


def test_phases_are_the_intervals_between_the_four_times(tmp_path: Path) -> None:
    phases, warnings = read_phases_of(tmp_path, PHASES)
    assert warnings == []
    assert phases.first_begin_ns == 100_000_000_000
    assert phases.events == (
        Event(0, "compute", 100_000_000_000, 100_100_000_000),
        Event(0, "communicate", 100_100_000_000, 100_400_000_000),
        Event(0, "update", 100_400_000_000, 100_500_000_000),
    )


def test_no_phases_file(tmp_path: Path) -> None:
    assert read_phases(tmp_path / "phases-worker-1.csv", Messages()) == Phases()


@pytest.mark.parametrize(
    "row", ["1,101,,101.2,101.3", "1,101,101.2,101.1,101.3", "x,1,2,3,4", "-1,1,2,3,4", "1,101", "1"]
)
def test_row_without_four_times_in_order_is_left_out(tmp_path: Path, row: str) -> None:
    phases, warnings = read_phases_of(tmp_path, PHASES + row + "\n")
    assert len(phases.events) == 3
    assert [warning for warning in warnings if "1 lines" in warning and "the first is line 3" in warning] == warnings
    assert len(warnings) == 1


def test_phases_move_with_the_log(tmp_path: Path) -> None:
    (tmp_path / "phases-worker-1.csv").write_text(PHASES)
    found, _ = read_one(tmp_path, STEPS)
    moved = found.shifted(lambda time_ns: time_ns + 7)
    assert [event.start_ns for event in moved.events] == [event.start_ns + 7 for event in found.events]
    assert len(moved.events) == 3


# --- single collectives and transfers

EVENTS = "step,kind,name,t_begin,t_end,bytes\n0,allreduce,bucket 0,100.1,100.2,4000\n0,send,,100.3,100.4,\n"


def read_events_of(folder: Path, text: str) -> tuple[tuple[Event, ...], list[str]]:
    (folder / "events-worker-1.csv").write_text(text)
    messages = Messages()
    return read_events(folder / "events-worker-1.csv", messages), messages.warnings


def test_events_have_names_and_bytes(tmp_path: Path) -> None:
    assert read_events_of(tmp_path, EVENTS) == (
        (
            Event(0, "allreduce", 100_100_000_000, 100_200_000_000, "bucket 0", 4000),
            Event(0, "send", 100_300_000_000, 100_400_000_000, None, None),
        ),
        [],
    )


def test_events_follow_the_phases_of_a_log(tmp_path: Path) -> None:
    (tmp_path / "phases-worker-1.csv").write_text(PHASES)
    (tmp_path / "events-worker-1.csv").write_text(EVENTS)
    (found,), _ = read(tmp_path, worker_1=STEPS)
    assert [event.kind for event in found.events] == ["compute", "communicate", "update", "allreduce", "send"]
    assert found.shifted(lambda ns: ns + 5).events[3] == Event(
        0, "allreduce", 100_100_000_005, 100_200_000_005, "bucket 0", 4000
    )


@pytest.mark.parametrize(
    "row",
    [
        "0,compute,,1,2,3",  # of phases
        "0,send,,2,1,3",
        "-1,send,,1,2,3",
        "0,send,,1,2,-3",
        "0,send,,1,2,99999999999999999999",
        "x,send,,1,2,3",
        "0,send,,1,2",
        "0,send,,soon,2,3",
        "0,allreduce,again,100.1,100.5,1",  # the key of events
    ],
)
def test_an_event_that_cannot_be_used(tmp_path: Path, row: str) -> None:
    events, warnings = read_events_of(tmp_path, EVENTS + row + "\n")
    assert len(events) == 2
    (warning,) = warnings
    assert warning.startswith(f"{tmp_path / 'events-worker-1.csv'}: 1 lines are not used, the first is line 4; ")


def test_an_events_file_with_another_header(tmp_path: Path) -> None:
    events, (warning,) = read_events_of(tmp_path, "step,kind\n0,send\n")
    assert events == ()
    assert "not used, its first line is not 'step,kind,name,t_begin,t_end,bytes'" in warning


@pytest.mark.parametrize(("kind", "text"), [("phases", PHASES), ("events", EVENTS)])
def test_rows_of_a_worker_without_a_log_are_named(tmp_path: Path, kind: str, text: str) -> None:
    (tmp_path / f"{kind}-worker-2.csv").write_text(text)
    _, (warning,) = read(tmp_path, worker_1=STEPS)
    assert warning.startswith(f"{tmp_path / f'{kind}-worker-2.csv'}: not read, since train_history-worker-2.log ")
