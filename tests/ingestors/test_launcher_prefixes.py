"""Logs that a launcher wrote: its prefix before each line is no part of it, and says whose the line is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ddnn_traces.ingestors.launcher_prefixes import ranks_of, without_prefix
from ddnn_traces.ingestors.training_logs import TrainingLog, read_logs, read_phases
from ddnn_traces.messages import Messages

HEADER = "Type,ID,Timestamp,Loss,Accuracy"
ROWS = ["Batch,0,100.5,2.0,0.25", "Epoch,0,100.6,2.0,0.25", "Batch,0,101.5,1.0,0.5"]
TIME = "Thu Nov 26 10:00:00 2026"

#: By launcher: the prefix of a rank's line on a stream.
PREFIXES: dict[str, Callable[[int, str], str]] = {
    "Open MPI": lambda rank, stream: f"[1,{rank}]<{stream}>:",
    "Open MPI 5": lambda rank, stream: f"[1,{rank}]<{stream}>: ",
    "Open MPI 5, full name": lambda rank, stream: f"[prterun-node-0-4711@1,{rank}]<{stream}>: ",
    "Open MPI, times": lambda rank, stream: f"{TIME}[1,{rank}]<{stream}>:",
    "horovodrun, gloo": lambda rank, stream: f"[{rank}]<{stream}>:",
    "horovodrun, gloo, times": lambda rank, stream: f"Sun Nov  1 10:00:00 2026[{rank}]<{stream}>:",
    "kungfu-run": lambda rank, stream: f"[192.168.17.{50 + rank}.10000::{stream}] ",
    "kungfu-run, colours": lambda rank, stream: (
        f"[\x1b[1;{32 + rank}m192.168.17.{50 + rank}.10000\x1b[m::"
        f"{stream if stream == 'stdout' else f'{chr(27)}[1;35mstderr{chr(27)}[m'}] "
    ),
}
each = pytest.mark.parametrize("prefix", PREFIXES.values(), ids=list(PREFIXES))


def read(folder: Path, *lines: str, name: str = "train_history.log") -> tuple[dict[str, TrainingLog], list[str]]:
    """The logs of a folder with the captures of four workers, by worker, and the warnings."""
    for number in range(4):
        (folder / f"worker-{number}-tcpdump.pcap").touch()
    (folder / name).write_text("\n".join([*lines, ""]))
    messages = Messages()
    return {log.worker: log for log in read_logs(folder, messages)}, messages.warnings


@each
def test_the_log_is_as_without_prefixes(tmp_path: Path, prefix: Callable[[int, str], str]) -> None:
    """tf.print writes the header to stderr, print the rows to stdout, as frameworks/*/script.py do."""
    plain, _ = read(tmp_path, HEADER, *ROWS)
    found, warnings = read(tmp_path, prefix(0, "stderr") + HEADER, *(prefix(0, "stdout") + row for row in ROWS))
    assert found == plain
    assert [*found] == ["worker-0"]
    assert [(step.epoch, step.end_ns) for step in found["worker-0"].steps] == [
        (0, 100_500_000_000),
        (1, 101_500_000_000),
    ]
    assert warnings == []


@each
def test_each_line_belongs_to_its_rank(tmp_path: Path, prefix: Callable[[int, str], str]) -> None:
    lines = [prefix(0, "stderr") + HEADER]
    for step in range(3):
        lines += [prefix(rank, "stdout") + f"Batch,{step},{100 + step}.{rank},{rank},0.5" for rank in (2, 0, 3, 1)]
    found, warnings = read(tmp_path, *lines)
    assert {worker: [step.end_ns for step in log.steps] for worker, log in found.items()} == {
        f"worker-{rank}": [(1000 + 10 * step + rank) * 100_000_000 for step in range(3)] for rank in range(4)
    }
    assert {worker: {step.loss for step in log.steps} for worker, log in found.items()} == {
        f"worker-{rank}": {float(rank)} for rank in range(4)
    }
    assert warnings == []


@each
def test_lines_of_other_programs_are_counted(tmp_path: Path, prefix: Callable[[int, str], str]) -> None:
    """Before the header, between the rows, and of ranks that have no step."""
    noise = ["[I] 4 peers", f"{prefix(1, 'stderr')}NCCL INFO Using network Socket", f"{prefix(0, 'stdout')}Batch,1"]
    lines = [noise[0], prefix(0, "stderr") + HEADER, *(prefix(0, "stdout") + row for row in ROWS), *noise[1:]]
    found, (warning,) = read(tmp_path, *lines)
    assert [(worker, len(log.steps)) for worker, log in found.items()] == [("worker-0", 2)]
    assert "train_history.log: 3 lines are not read, the first is line 1" in warning


@each
def test_prefix_in_the_middle_of_a_training(tmp_path: Path, prefix: Callable[[int, str], str]) -> None:
    found, warnings = read(tmp_path, HEADER, *ROWS, prefix(0, "stdout") + "Batch,1,102.5,1.0,0.5", "Batch,2,103.5,1,1")
    assert [(worker, len(log.steps)) for worker, log in found.items()] == [("worker-0", 4)]
    assert warnings == []


@each
def test_lines_without_a_prefix_are_nobodys_among_those_of_several(
    tmp_path: Path, prefix: Callable[[int, str], str]
) -> None:
    lines = [HEADER, *(prefix(rank, "stdout") + ROWS[0] for rank in (0, 1)), ROWS[2]]
    found, (warning,) = read(tmp_path, *lines)
    assert {worker: len(log.steps) for worker, log in found.items()} == {"worker-0": 1, "worker-1": 1}
    assert "1 lines are not read, the first is line 4" in warning


def test_the_name_of_the_file_says_whose_a_single_ranks_log_is(tmp_path: Path) -> None:
    lines = [f"[1,0]<stdout>:{line}" for line in (HEADER, *ROWS)]
    assert [*read(tmp_path, *lines, name="train_history-worker-2.log")[0]] == ["worker-2"]


def test_a_single_rank_says_whose_a_log_without_a_name_is(tmp_path: Path) -> None:
    assert [*read(tmp_path, *(f"[1,3]<stdout>:{line}" for line in (HEADER, *ROWS)))[0]] == ["worker-3"]


def test_workers_count_from_1_where_no_capture_is_worker_0s(tmp_path: Path) -> None:
    (tmp_path / "train_history.log").write_text(f"[0]<stdout>:{HEADER}\n[0]<stdout>:{ROWS[0]}\n[1]<stdout>:{ROWS[0]}\n")
    assert [log.worker for log in read_logs(tmp_path, Messages())] == ["worker-1", "worker-2"]


def test_times_without_a_rank(tmp_path: Path) -> None:
    """--timestamp-output of Open MPI without --tag-output."""
    found, warnings = read(tmp_path, *(f"{TIME}<stdout>:{line}" for line in (HEADER, *ROWS)))
    assert ([(worker, len(log.steps)) for worker, log in found.items()], warnings) == ([("worker-0", 2)], [])


def test_no_header(tmp_path: Path) -> None:
    found, (warning,) = read(tmp_path, *(f"[0]<stdout>:{row}" for row in ROWS))
    assert not found
    assert f"train_history.log: no line is '{HEADER}'" in warning


def test_phases(tmp_path: Path) -> None:
    rows = ["step,t_begin,t_comm_begin,t_comm_end,t_end", "0,100.0,100.1,100.4,100.5"]
    (tmp_path / "phases-worker-0.csv").write_text("\n".join(f"[1,0]<stdout>:{row}" for row in rows))
    phases = read_phases(tmp_path / "phases-worker-0.csv", Messages())
    assert (phases.first_begin_ns, len(phases.events)) == (100_000_000_000, 3)


@pytest.mark.parametrize(
    "line",
    ["Batch,0,1,1,1", "[I] kungfu-run", "[0] step", "[1,0]<stdin>:x", "[x]<stdout>:x", "[1,0]stdout:x", "[::stdout] x",
     "[a b::stdout] x", " [1,0]<stdout>:x", "[1,99999999999]<stdout>:x", "[" * 100_000, "[" + 100_000 * "1"],
)  # fmt: skip
def test_other_lines_have_no_prefix(line: str) -> None:
    assert without_prefix(line) == (None, line)


def test_peers_have_ranks_in_the_order_of_addresses_and_ports() -> None:
    peers = ["10.0.0.10.10000", "10.0.0.9.10001", "10.0.0.9.10000"]
    assert ranks_of(peers) == {"10.0.0.9.10000": 0, "10.0.0.9.10001": 1, "10.0.0.10.10000": 2}
    assert ranks_of(["10.0.0.9.10000"]) == {"10.0.0.9.10000": None}
    assert ranks_of([3, 0]) == {3: 3, 0: 0}
