"""The first ingest: small captures are read before the packet loop is compiled, with the same result."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import polars as pl
import pytest
from ingesting import Lines
from tools import COMMAND

import ddnn_traces
from ddnn_traces.cli import first_ingest
from ddnn_traces.pcap import compiled
from ddnn_traces.query import views

TRACES = Path(__file__).parents[1] / "traces" / "runs"
RUN = TRACES / "mpi-mlp1-sgd-32-openmpi-0ms-ring-sll2"


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """As in a new process with nothing compiled; the commands that would be started."""
    commands: list[list[str]] = []
    monkeypatch.setattr(compiled, "is_cached", lambda: False)

    def start(command: list[str], **_: object) -> SimpleNamespace:
        commands.append(command)
        return SimpleNamespace(pid=len(commands))

    monkeypatch.setattr(first_ingest.subprocess, "Popen", start)
    monkeypatch.setattr(first_ingest.os, "setpriority", lambda _, pid, nice: commands[pid - 1].append(f"nice {nice}"))
    monkeypatch.delitem(sys.modules, "numba", raising=False)
    monkeypatch.setenv("NUMBA_DISABLE_JIT", "0")  # so that it is as before after the test
    monkeypatch.delenv("NUMBA_DISABLE_JIT")
    return commands


def test_small_captures_do_not_wait_for_the_compiler(started: list[list[str]]) -> None:
    messages = Lines()
    first_ingest.prepare([str(RUN)], messages)
    assert os.environ["NUMBA_DISABLE_JIT"] == "1"
    assert [command[1:] for command in started] == [["-P", "-m", "ddnn_traces.cli.first_ingest", "nice 19"]]
    assert messages.lines == [
        "compiling the packet loop in the background, once (half a minute); Python reads these small captures"
    ]


def test_where_compiled_code_cannot_be_kept_nothing_is_started(
    started: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiled, "FOLDER", None)
    first_ingest.prepare([str(RUN)], Lines())
    assert os.environ["NUMBA_DISABLE_JIT"] == "1"
    assert started == []


@pytest.mark.parametrize("case", ["compiled", "large", "compressed and large", "missing", "imported"])
def test_else_all_is_compiled_first(
    case: str, started: list[list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / ("a.pcap.gz" if case == "compressed and large" else "a.pcap")
    if case == "compiled":
        monkeypatch.setattr(compiled, "is_cached", lambda: True)
    elif case == "imported":  # its functions are compiled ones by now
        monkeypatch.setitem(sys.modules, "numba", sys)
    if case != "missing":
        size = {"large": 8_000_001, "compressed and large": 2_000_001}.get(case, 24)
        with source.open("wb") as file:
            file.truncate(size)
    messages = Lines()
    first_ingest.prepare([str(source)], messages)
    assert (started, messages.lines) == ([], [])
    assert "NUMBA_DISABLE_JIT" not in os.environ


@pytest.mark.parametrize("is_cached", [True, False])
def test_queries_for_later_are_kept_by_an_ingest_with_compiled_code(
    is_cached: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the first result waits for them, and the process that compiles has an ingest of its own."""
    kept: list[bool] = []
    monkeypatch.setattr(compiled, "is_cached", lambda: is_cached)
    monkeypatch.setattr(views, "keep_queries", lambda: kept.append(True))
    (tmp_path / "a.pcap").write_bytes(first_ingest._CAPTURE)
    ddnn_traces.ingest(tmp_path / "a.pcap", tmp_path / "dataset").close()
    assert kept == [True] * is_cached


def tables(dataset: Path) -> dict[str, pl.DataFrame]:
    names = sorted(path.name for path in dataset.iterdir() if path.is_dir())
    found = {name: pl.read_parquet(dataset / name / "**" / "*.parquet") for name in names}
    return {name: table.drop("provenance", strict=False) for name, table in found.items()}


@pytest.mark.long
def test_a_new_installation(tmp_path: Path) -> None:
    """The first ingest, in Python, leaves a process that compiles; the second one is compiled, with the same tables."""
    environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    run = [*COMMAND, "ingest", str(RUN), "--out"]
    first = subprocess.run([*run, "first"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    assert "compiling the packet loop in the background" in first.stderr
    (folder,) = (tmp_path / "cache" / "ddnn_traces").glob("packet-loop-*")
    code = "from ddnn_traces.cli.first_ingest import compile_loop; compile_loop()"
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)  # where it is slow to start
    with (folder / "compiling").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # until the other process ends
    second = subprocess.run([*run, "second"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    assert "compiling" not in second.stderr
    assert list((tmp_path / "cache" / "ddnn_traces" / "queries").glob("queries-*.duckdb"))
    before, after = tables(tmp_path / "first"), tables(tmp_path / "second")
    assert before.keys() == after.keys() >= {"flows", "flow_windows", "messages", "steps"}
    for name, table in before.items():
        assert table.equals(after[name]), name


#: Tests that fill the tables of fragments: half of the time of all, since Python looks through them slowly.
FULL = "4096_fragments or 1024_datagrams"


@pytest.mark.parametrize(
    "chosen",
    [
        pytest.param(f"not ({FULL})", id="most", marks=pytest.mark.long),
        pytest.param(FULL, id="full", marks=pytest.mark.nightly),
    ],
)
def test_python_counts_as_compiled_code_does(chosen: str) -> None:
    """The tests of the packet loop against tests/naive, without a compiler. Those of whole files take too long so."""
    folder = Path(__file__).parents[1] / "pcap"
    modules = ["counting", "fragments", "headers", "records", "tcp", "tunnels"]
    files = [str(folder / f"test_{name}.py") for name in modules]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "0", "-k", chosen, *files]
    environment = os.environ | {"NUMBA_DISABLE_JIT": "1"}
    done = subprocess.run(command, cwd=folder.parents[1], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-4000:]
    assert " passed" in done.stdout
