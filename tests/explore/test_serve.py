"""What `explore` refuses, which address it shows, and who may ask its server."""

from __future__ import annotations

import asyncio
import os
import queue
import socket
import sys
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pyarrow.parquet as pq
import pytest
from tools import RunCommand

import ddnn_traces
from ddnn_traces import explore
from ddnn_traces.explore import guard
from ddnn_traces.query.dataset import Dataset

LIBRARIES = ("marimo", "mosaic_widget", "starlette.staticfiles", "uvicorn")
RUN = "mpi-mlp1-sgd-32-openmpi-0ms-ring-sll2"


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


def test_a_port_in_use_is_refused(
    command: RunCommand, sample_dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in LIBRARIES:
        monkeypatch.setitem(sys.modules, name, MagicMock())
    with socket.socket() as taken:
        taken.bind((explore.HOST, 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        done = command("explore", sample_dataset.path, "--port", port)
    (line,) = done.stderr.decode().splitlines()
    assert done.returncode == 2
    assert f"port {port}" in line
    assert "--port" in line


def test_something_is_said_before_the_seconds_that_it_takes(
    command: RunCommand, sample_dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The libraries are imported after the first line."""

    class Stopped(MagicMock):
        def create_asgi_app(self, **_: object) -> None:
            raise KeyboardInterrupt

    for name in LIBRARIES:
        monkeypatch.setitem(sys.modules, name, MagicMock())
    monkeypatch.setitem(sys.modules, "marimo", Stopped())
    done = command("explore", sample_dataset.path, "--no-browser")
    assert done.stdout == b""
    assert done.stderr.decode().startswith("starting the page; its address follows in some seconds\n")


def test_without_the_extra_it_says_what_to_install(
    command: RunCommand, sample_dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "marimo", None)
    done = command("explore", sample_dataset.path)
    (line,) = done.stderr.decode().splitlines()
    assert done.returncode == 2
    assert "marimo is not installed" in line
    assert "pip install 'ddnn-traces[explore]'" in line


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_terminal_alone_shows_the_token(is_terminal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in LIBRARIES:
        monkeypatch.setitem(sys.modules, name, MagicMock())
    monkeypatch.setattr("sys.stdout", MagicMock(isatty=lambda: is_terminal))
    monkeypatch.setenv(explore.DATASET, "")
    opened: queue.Queue[str] = queue.Queue()
    monkeypatch.setattr("webbrowser.open", opened.put)
    shown: list[str] = []
    explore.serve(Path("--a dataset; $(date)"), shown.append, starting=lambda: shown.append("starting"))
    starting, address = shown
    assert starting == "starting"
    assert ("access_token=" in address) == is_terminal
    assert address.startswith("http://127.0.0.1:" if is_terminal else "file:///")
    assert opened.get().startswith("file:///")
    assert os.environ[explore.DATASET] == str(Path.cwd() / "--a dataset; $(date)")


@pytest.mark.parametrize(
    ("kind", "origin", "host", "passes"),
    [
        ("http", None, "127.0.0.1:5", True),
        ("http", "http://localhost:5", "localhost:5", True),
        ("http", "http://attacker.example", "127.0.0.1:5", False),
        ("http", None, "attacker.example:5", False),
        ("http", None, "127.0.0.1@attacker.example", False),
        ("http", None, "[", False),
        ("websocket", None, "127.0.0.1:5", False),
        ("websocket", "http://127.0.0.1:6", "127.0.0.1:5", False),
        ("websocket", "http://127.0.0.1:5", "127.0.0.1:5", True),
    ],
)
def test_who_may_ask(kind: str, origin: str | None, host: str, passes: bool) -> None:
    reached: list[str] = []

    async def server(scope: Any, receive: Any, send: Any) -> None:
        reached.append(scope["type"])

    async def assets(scope: Any, receive: Any, send: Any) -> None:
        reached.append("asset")

    async def send(message: Any) -> None:
        assert message["type"] == "websocket.close" or message.get("status", 403) == 403

    async def receive() -> Any:
        raise AssertionError

    headers = [(b"host", host.encode())] + ([(b"origin", origin.encode())] if origin else [])
    scope = {"type": kind, "headers": headers, "query_string": b"", "path": "/"}
    guarded = guard.Guard(server, assets, "token", lambda: None)
    asyncio.run(guarded(scope, receive, send))
    asyncio.run(guarded(scope | {"path": "/assets/index.js"}, receive, send))
    assert reached == ([kind, "asset" if kind == "http" else kind] if passes else [])
