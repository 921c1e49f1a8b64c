"""A sweep: what a machine cannot do is refused first, what does not finish is a result, what fails is tried twice."""

from __future__ import annotations

import subprocess
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
from test_left_behind import fake_python
from test_matrix import read
from test_runs import STEPS, toy_python
from tools import RunCommand

import ddnn_traces
from ddnn_traces import testbed
from ddnn_traces.errors import UsageError
from ddnn_traces.messages import Messages
from ddnn_traces.testbed import conditions, network

FOUND = {"rate_mbit": 5000.0, "rate_with_delay_mbit": 800.0}
MATRIX = """
[defaults]
program = "star"
workers = 2
steps = 10
time_limit_s = 120
measure = false
[[runs]]
"""


@pytest.mark.parametrize(
    ("link", "message"),
    [
        ("rate_mbit = 9000", "rate_mbit = 9000, and links of this machine reach 5000 Mbit/s; give a lower rate"),
        ("delay_ms = 5", "rate_mbit = 1000, and links of this machine reach 800 Mbit/s with a delay; give a lower"),
    ],
)
def test_a_link_that_is_too_fast_is_refused(tmp_path: Path, link: str, message: str) -> None:
    text = f'[[runs]]\nprogram = "ddp"\ntime_limit_s = 9\nlink = {{ {link} }}\n'
    with pytest.raises(UsageError, match=message) as error:
        conditions.check_links(read(tmp_path, text), FOUND)
    assert str(error.value).startswith("torch-mlp1-sgd-32-gloo-")


def test_a_delay_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    wanted = read(tmp_path, '[[runs]]\nprogram = "ddp"\ntime_limit_s = 9\nlink.delay_ms = 5\n')
    with pytest.raises(UsageError, match="5ms-ring-n4: delay_ms = 5 cannot be made here: no tun"):
        conditions.check_links(wanted, {"rate_mbit": 5000.0, "why_no_delay": "no tun"})
    conditions.check_links(replace(wanted, runs=()), {})


def test_a_run_without_a_time_limit_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"ring-n4: no time_limit_s; give one, also in \[defaults\]"):
        conditions.check_time_limits(read(tmp_path, '[[runs]]\nprogram = "ddp"\n'))


@pytest.mark.testbed
def test_a_sweep_from_the_command_line(tmp_path: Path, process: RunCommand) -> None:
    (tmp_path / "sweep.toml").write_text(f"{MATRIX}link.rate_mbit = [200, 400]\n")
    done = process("testbed", "sweep", "sweep.toml", "--out", "out", "--python", f"torch={toy_python(tmp_path)}")
    assert done.returncode == 0, done.stderr
    assert b"Samples a second in each cell" in done.stdout
    with ddnn_traces.open(tmp_path / "out" / "dataset") as dataset:
        cells = dataset.query("sweep_cells").select("bandwidth_mbit", "runs", "finished_runs", "interval_of").rows()
        assert cells == [(200.0, 1, 1, None), (400.0, 1, 1, None)]  # a run of few steps has no interval
        assert dataset.sql("SELECT DISTINCT planned_steps FROM runs").rows() == [(STEPS,)]


@pytest.fixture
def limits_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """What links of this machine reach is not measured, which takes seconds."""
    start = network.start
    monkeypatch.setattr(network, "start", lambda what, *rest: iter([FOUND]) if what == "limits" else start(what, *rest))


@pytest.mark.testbed
def test_a_run_that_does_not_finish_is_a_result(tmp_path: Path, limits_are_known: None) -> None:
    (tmp_path / "sweep.toml").write_text(MATRIX.replace("time_limit_s = 120", "time_limit_s = 1"))
    python = {"torch": str(fake_python(tmp_path, "sleep 1000"))}
    (outcome,) = testbed.run(tmp_path / "sweep.toml", tmp_path / "out", Messages(), python, sweep=True)
    assert outcome.outcome == "made", outcome
    declared = tomllib.loads((tmp_path / "out" / outcome.name / "run.toml").read_text())
    assert declared["planned_steps"] == STEPS
    assert not (tmp_path / "out" / outcome.name / "train_history.log").exists()


@pytest.mark.testbed
def test_a_run_that_fails_is_tried_twice(tmp_path: Path, limits_are_known: None) -> None:
    (tmp_path / "sweep.toml").write_text(MATRIX)
    program = f'[ "$RANK" = 0 ] && {{ echo once >> {tmp_path}/tries; exit 7; }}; sleep 1000'
    python = {"torch": str(fake_python(tmp_path, program))}
    (outcome,) = testbed.run(tmp_path / "sweep.toml", tmp_path / "out", Messages(), python, sweep=True)
    assert outcome.outcome == "rejected"
    assert (tmp_path / "tries").read_text().split() == ["once"] * 2


@pytest.mark.testbed
def test_a_full_disk_keeps_what_is_done(tmp_path: Path, limits_are_known: None) -> None:
    (tmp_path / "sweep.toml").write_text(f"{MATRIX}link.rate_mbit = [200, 400, 600]\n")
    out = tmp_path / "out"
    out.mkdir()
    toy = toy_python(tmp_path)
    filling = tmp_path / "filling"  # the disk, once a run is there
    fill = f'[ "$(ls {out})" ] && mkdir -p "$results" && cat /dev/zero > "$results"/zeros'
    filling.write_text(f'#!/bin/sh\nfor results; do :; done\n[ "$1" != -c ] && {fill}\nexec {toy} "$@"\n')
    filling.chmod(0o755)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=20m", "tmpfs", out], check=True)
    try:
        outcomes = testbed.run(tmp_path / "sweep.toml", out, Messages(), {"torch": str(filling)}, sweep=True)
        assert [outcome.outcome for outcome in outcomes] == ["made", "failed", "failed"]
        assert "No space left on device" in outcomes[1].why
        assert "not tried: the disk is full" in outcomes[2].why
        assert [path.name for path in out.iterdir() if not path.name.startswith(".")] == [outcomes[0].name]
        # with space again the others are made, and the first is left as it is
        subprocess.run(["mount", "-o", "remount,size=100m", out], check=True)
        outcomes = testbed.run(tmp_path / "sweep.toml", out, Messages(), {"torch": toy})  # measures no limits
        assert [outcome.outcome for outcome in outcomes] == ["there", "made", "made"]
    finally:
        subprocess.run(["umount", out], check=True)
