"""The checks in a process of their own, which is ended when it takes too much memory or time.

A release is untrusted, and libraries read it: a small file can make one of them fill the memory, run without end or
crash. Then the check that it was in fails, and another process makes the checks after it.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from ddnn_traces.release.verify.examined import ASK, Examined, Result, failed

#: A release of 745 million rows takes 1.3 GB.
_MEMORY_BYTES = 8 << 30
#: Of one check: at least these, and a second for each of so many bytes. Sound releases take a tenth of it or less.
_SECONDS, _BYTES_A_SECOND = 600.0, 1e6
_LOOK_SECONDS = 0.2

_CODE = """
import json, sys
sys.path[:] = json.loads(sys.argv[1])
from ddnn_traces.release.verify import running
running.main()
"""


@dataclass(frozen=True)
class Limits:
    """Most memory of the process, bytes, and most time of a check, seconds."""

    memory_bytes: int
    seconds: float


def limits(folder: Path) -> Limits:
    """The limits for a release of this size; holes in files do not count."""
    size = 0
    for where, _, names in os.walk(folder):
        for name in names:
            state = (Path(where) / name).lstat()
            size += min(state.st_size, state.st_blocks * 512)
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return Limits(min(_MEMORY_BYTES, machine * 4 // 5), _SECONDS + size / _BYTES_A_SECOND)


def results(examined: Examined, names: list[str], limits: Limits) -> Iterator[Result]:
    """As running.results(), all checks, by processes. names: of the checks, in order."""
    done: list[str] = []
    while len(done) < len(names):
        with _process(examined, done) as process:
            reason = yield from _watched(process, examined.report, names, done, limits)
        if not reason:
            return
        name = names[len(done)]
        yield Result(**vars(failed("release", f"the check was ended: {reason}; {ASK}")), check=name)
        done.append(name)


@contextlib.contextmanager
def _process(examined: Examined, done: list[str]) -> Iterator[subprocess.Popen[str]]:
    """A process that makes the checks after those that are done; it does not outlive the block."""
    archive = str(examined.archive) if examined.archive else None
    paths = {"folder": str(examined.folder), "scratch": str(examined.scratch), "archive": archive}
    given = json.dumps({**paths, "jobs": examined.jobs, "fast": examined.fast, "maker": examined.maker, "done": done})
    call = [sys.executable, "-c", _CODE, json.dumps(sys.path), given]
    process = subprocess.Popen(call, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def _watched(
    process: subprocess.Popen[str], report: Callable[[str], None], names: list[str], done: list[str], limits: Limits
) -> Generator[Result, None, str]:
    """What the process finds. Returns why it was ended or ended, '' where it made all checks; adds to `done`."""
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(process.stdout, lines), daemon=True).start()
    start = time.monotonic()
    while True:
        try:
            line = lines.get(timeout=_LOOK_SECONDS)
        except queue.Empty:
            if time.monotonic() - start > limits.seconds:
                return f"it took more than {limits.seconds:,.0f} seconds"
            if (memory := _memory(process.pid)) > limits.memory_bytes:
                return f"it took {memory:,} bytes of memory"
            continue
        if not line:
            return f"its process ended with code {process.wait()}, as of a crash or a lack of memory"
        message: dict[str, Any] = json.loads(line)
        if "check" in message:
            done[:] = names[: names.index(message["check"])]
            start = time.monotonic()
            report(message["check"])
        elif "say" in message:
            report(message["say"])
        elif "result" in message:
            yield Result(**message["result"])
        else:
            return ""


def _read(source: IO[str], lines: queue.SimpleQueue[str]) -> None:
    for line in source:
        lines.put(line)
    lines.put("")


def _memory(pid: int) -> int:
    """Bytes of a process in memory; 0 where the system does not tell."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0
