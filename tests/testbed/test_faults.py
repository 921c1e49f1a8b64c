"""Processes killed on purpose: what the others do, and what a checkpoint saves, by the events and steps of the logs."""

from __future__ import annotations

import os
import sys
import tomllib
from pathlib import Path

import pytest

import ddnn_traces
from ddnn_traces import testbed
from ddnn_traces.messages import Messages
from ddnn_traces.testbed import launch
from ddnn_traces.testbed.programs.logs import Recorder

TORCH = os.environ.get("DDNN_TRACES_TORCH_PYTHON", sys.executable)
MATRIX = """
[defaults]
steps = 16
workers = 2
pause_ms = 100
measure = false
fault.step = 4
options.checkpoint = 2

[[runs]]
program = "ddp"
fault.kill = "worker-1"
[[runs]]
program = "elastic"
[[runs]]
program = "ps"
fault.kill = "ps-1"
fault.restart = false
"""


def test_a_process_that_is_started_again_counts_on(tmp_path: Path) -> None:
    for _ in range(2):
        recorder = Recorder(tmp_path, "worker-1")
        for _ in range(3):
            recorder.begin_step()
            recorder.end_step()
    assert recorder.done == 6
    history = (tmp_path / "train_history-worker-1.log").read_text().splitlines()
    assert [line.split(",")[1] for line in history] == ["ID", "0", "1", "2", "3", "4", "5"]
    events = (tmp_path / "events-worker-1.csv").read_text().splitlines()
    assert events[0] == "step,kind,name,t_begin,t_end,bytes"
    assert [line.split(",")[:3] for line in events[1:]] == [["3", "restart", "process"]]


@pytest.mark.testbed
def test_what_a_killed_process_costs(tmp_path: Path) -> None:
    (tmp_path / "matrix.toml").write_text(MATRIX)
    outcomes = testbed.run(tmp_path / "matrix.toml", tmp_path / "out", Messages(), {"torch": TORCH})
    assert [outcome for outcome in outcomes if outcome.outcome != "made"] == []
    with ddnn_traces.ingest(tmp_path / "out", tmp_path / "dataset") as dataset:
        rows = dataset.query("fault_recovery")
    seen = rows.select("killed", "role", "is_restarted", "planned_steps", "finished", "workers_after")
    assert seen.sort("killed").rows() == [
        ("ps-1", "parameter_server", False, 16, False, 0),  # and the worker ended with it
        ("worker-1", "worker", True, 16, True, 2),  # DistributedDataParallel ends, and is started by the testbed
        ("worker-2", "worker", False, 16, True, 2),  # by torchrun
    ]
    # a busy machine kills some steps later; what is done anew came after the last checkpoint, which the kill may spoil
    assert (rows["steps_before"] >= 5).all()
    restored = rows.drop_nulls("checkpoint_steps")
    assert set(restored["killed"]) == {"worker-1", "worker-2"}
    assert set(restored["steps_before"] - restored["checkpoint_steps"]) <= {0, 1, 2}
    assert set(restored["lost_steps"] - restored["steps_before"] + restored["checkpoint_steps"]) <= {0, 1}
    facts = {
        path.parent.name: tomllib.loads(path.read_text())["origin"]["fault"] for path in tmp_path.glob("out/*/run.toml")
    }
    others = {fact["kill"]: fact["others"] for fact in facts.values()}
    assert others["worker-2"] == "went on to the end"
    assert others["ps-1"].startswith("worker-") and "ended" in others["ps-1"]
    assert not any(str(tmp_path) in text or "site-packages" in text for text in others.values())


def test_what_is_recorded_names_no_folder_of_the_machine() -> None:
    said = f'File "{Path.home()}/venv/lib/python3.11/site-packages/torch/store.py", line 1 / File "/out/run/w/a.py"'
    assert launch._without_folders(said, Path("/out/run")) == 'File "torch/store.py", line 1 / File "w/a.py"'
