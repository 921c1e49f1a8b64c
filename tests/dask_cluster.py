"""A Dask cluster of processes of its own, as users start it: a scheduler and workers that a nanny starts again."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tools import reserved_port

_BEGIN_S = 60.0


@dataclass
class DaskCluster:
    """Processes of a cluster, whose files are in a folder. Leaving started() ends them all."""

    folder: Path
    port: int
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def address(self) -> str:
        """Of the scheduler."""
        return f"tcp://127.0.0.1:{self.port}"

    def start_scheduler(self) -> subprocess.Popen[bytes]:
        """Start the scheduler, and return when it answers."""
        scheduler = self._start("scheduler", "--host", "127.0.0.1", "--port", str(self.port), "--no-dashboard")
        until(lambda: scheduler.poll() is None and is_open(self.port))
        return scheduler

    def start_worker(self, environment: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
        """Start a worker of one thread, with its nanny."""
        return self._start(
            "worker", self.address, "--host", "127.0.0.1", "--nthreads", "1", "--no-dashboard", "--death-timeout", "60",
            "--local-directory", str(self.folder), environment=environment,
        )  # fmt: skip

    def _start(self, *arguments: str, environment: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
        log = (self.folder / f"{arguments[0]}-{len(self.processes)}.log").open("wb")
        call = [str(Path(sys.executable).with_name("dask")), *arguments]
        code = os.environ.get("PYTHONPATH", "")
        settings = {**os.environ, "PYTHONPATH": code, **(environment or {})}
        # a session of its own: its nanny's children can be ended with it
        process = subprocess.Popen(call, stdout=log, stderr=log, env=settings, start_new_session=True)
        self.processes.append(process)
        return process

    def start(self, workers: int) -> None:
        """Start the scheduler and so many workers, and return when all are there."""
        self.start_scheduler()
        for _ in range(workers):
            self.start_worker()
        if workers:
            with client_of(self.address) as client:
                client.wait_for_workers(workers, timeout=_BEGIN_S)

    def end_all(self) -> None:
        """End all processes."""
        for process in self.processes:
            self.end(process)

    def end(self, process: subprocess.Popen[bytes]) -> None:
        """End a process and those that it has started, at once."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def worker_pids(self) -> list[int]:
        """The processes of the workers that are there now, without their nannies."""
        with client_of(self.address) as client:
            return sorted(pid for pid in client.run(os.getpid, on_error="return").values() if isinstance(pid, int))


@contextlib.contextmanager
def client_of(address: str) -> Iterator[Any]:
    """A client."""
    from distributed import Client

    with Client(address, timeout=_BEGIN_S, set_as_default=False) as client:
        yield client


@contextlib.contextmanager
def started(folder: Path, workers: int) -> Iterator[DaskCluster]:
    """A scheduler with so many workers, all of which are there."""
    with reserved_port() as port:
        cluster = DaskCluster(folder, port)
        try:
            cluster.start(workers)
            yield cluster
        finally:
            cluster.end_all()


#: Name of the cluster that all test processes share (fixture once).
SHARED = "dask"


def start_shared(file: Path) -> None:
    """Start a cluster of two workers that outlives this process; the file has its address and its processes."""
    with reserved_port() as port:
        cluster = DaskCluster(file.parent, port)
        try:
            cluster.start(workers=2)
        except BaseException:
            cluster.end_all()
            raise
    file.write_text(json.dumps({"address": cluster.address, "processes": [one.pid for one in cluster.processes]}))


def stop_shared(session: Path) -> None:
    """End the cluster of a test session, by its base folder, if it has one."""
    file = session / SHARED / "made"
    for pid in json.loads(file.read_text())["processes"] if file.exists() else ():
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)


def is_open(port: int) -> bool:
    """Whether something listens there."""
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


def until(condition: Any, seconds: float = _BEGIN_S) -> None:
    """Return when a condition holds; fail after so many seconds."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)
