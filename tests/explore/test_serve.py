"""What `explore` refuses, and the command that it becomes."""

from __future__ import annotations

import socket
import sys
from pathlib import Path
from types import ModuleType

import pyarrow.parquet as pq
import pytest
from tools import RunCommand

import ddnn_traces
from ddnn_traces import explore
from ddnn_traces.query.dataset import Dataset

RUN = "mpi-mlp1-sgd-32-openmpi-0ms-ring-sll2"


@pytest.fixture(autouse=True)
def replaced(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The commands that this process would have become, and their token."""
    commands: list[list[str]] = []
    monkeypatch.setattr("os.execve", lambda _, command, environment: commands.append([*command, environment]))
    monkeypatch.setattr(explore, "_give_token", lambda: None)
    return commands


def test_bad_datasets_are_named_with_the_next_step(command: RunCommand, tmp_path: Path, sample: Path) -> None:
    (tmp_path / "folder").mkdir()
    ddnn_traces.ingest(sample / RUN, tmp_path / "empty").close()
    (runs,) = (tmp_path / "empty" / "runs").rglob("*.parquet")
    pq.write_table(pq.read_table(runs, partitioning=None).slice(0, 0), runs)
    for name in ("nowhere", "folder", "empty"):
        done = command("explore", name)
        assert done.returncode == 2
        (line,) = done.stderr.decode().splitlines()
        assert name in line
        assert "ddnn-traces ingest" in line


def test_a_port_in_use_is_refused(command: RunCommand, sample_dataset: Dataset) -> None:
    with socket.socket() as taken:
        taken.bind((explore.HOST, 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        done = command("explore", sample_dataset.path, "--port", port)
    (line,) = done.stderr.decode().splitlines()
    assert done.returncode == 2
    assert f"port {port}" in line
    assert "--port" in line


def test_without_the_extra_it_says_what_to_install(
    command: RunCommand, sample_dataset: Dataset, monkeypatch: pytest.MonkeyPatch, replaced: list[list[str]]
) -> None:
    monkeypatch.setitem(sys.modules, "marimo", None)
    done = command("explore", sample_dataset.path)
    (line,) = done.stderr.decode().splitlines()
    assert done.returncode == 2
    assert "marimo is not installed" in line
    assert "pip install 'ddnn-traces[explore]'" in line
    assert replaced == []


def test_the_command_is_bound_to_loopback_and_shows_neither_token_nor_dataset(
    monkeypatch: pytest.MonkeyPatch, replaced: list[list[str]]
) -> None:
    for name in ("marimo", "mosaic_widget"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    explore.serve(Path("--a dataset; $(date)"), browser=False)
    (found,) = replaced
    *line, environment = found
    assert line[line.index("--host") + 1] == "127.0.0.1"
    assert line[line.index("--token-password-file") + 1] == "-"
    assert not any("dataset" in word for word in line)
    assert environment[explore.DATASET] == str(Path.cwd() / "--a dataset; $(date)")  # type: ignore[call-overload]
