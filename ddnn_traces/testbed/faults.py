"""A training process or a host killed on purpose at a step, and what became of the training.

docs/testbed.md explains it. Only on network namespaces of this machine, whose files are all here.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ddnn_traces.testbed.hosts import Host
from ddnn_traces.testbed.matrix import Fault

#: Seconds between two looks at the logs.
LOOK_S = 0.05


@dataclass
class Watch:
    """Kills what a run's fault names after its step, and tells when the training stands still after that.

    host_pid: of the command that lasts on the host to be killed. facts: for run.toml.
    """

    fault: Fault
    hosts: Sequence[Host]
    host_pid: int
    facts: dict[str, Any] = field(default_factory=dict)
    _steps: int = 0
    _progress_s: float = 0.0

    @property
    def has_killed(self) -> bool:
        """Whether it is done."""
        return bool(self.facts)

    def look(self) -> str | None:
        """Kill, once it is time; afterwards why the training is given up, or None while it goes on."""
        log, steps = _most_steps(self.hosts)
        if steps > self._steps:
            self._steps, self._progress_s = steps, time.monotonic()
        if log is None or steps <= self.fault.step:
            return None
        if not self.has_killed:
            self._kill(log)
            return None
        if time.monotonic() - self._progress_s > self.fault.patience_s:
            return f"no step for {self.fault.patience_s:g} s after {self.fault.kill} was killed"
        return None

    def _kill(self, log: Path) -> None:
        processes = _below(self.host_pid)
        parents = {parent for _, parent in processes}
        training = [pid for pid, _ in processes if pid not in parents]
        now = time.time()
        for pid in training if self.fault.what == "process" else [pid for pid, _ in processes]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        record(log, self._steps, f"{self.fault.what}_killed", self.fault.kill, now)
        self._progress_s = time.monotonic()
        self.facts = {"kill": self.fault.kill, "what": self.fault.what, "after_step": self.fault.step, "killed_s": now}


def record_restart(hosts: Sequence[Host]) -> None:
    """An event of the testbed's in the log of a host: all processes are started again."""
    log, steps = _most_steps(hosts)
    if log is not None:
        record(log, steps, "restart", "all", time.time())


def record(log: Path, step: int, kind: str, name: str, now: float) -> None:
    """Add an event to the events of a host that has a log of steps."""
    events = log.with_name(log.name.replace("train_history-", "events-").replace(".log", ".csv"))
    with events.open("a") as file:
        file.write(f"{step},{kind},{name},{now:.9f},{now:.9f},\n")


def _most_steps(hosts: Sequence[Host]) -> tuple[Path | None, int]:
    """The log of most steps, the first of several, and how many these are."""
    counts = [
        (log.read_text().count("\nbatch,"), log)
        for host in hosts
        for log in sorted(Path(host.results("")).glob("train_history-*.log"))
    ]
    if not counts:
        return None, 0
    most = max(count for count, _ in counts)
    return next(log for count, log in counts if count == most), most


def _below(pid: int) -> list[tuple[int, int]]:
    """All processes that a process has started, and those that these have, each with its parent."""
    parents = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            # the command's name, in parentheses, may contain anything
            parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
    found, level = [], [pid]
    while level:
        below = [(child, parent) for child, parent in parents.items() if parent in level]
        found += below
        level = [child for child, _ in below]
    return found
