"""Tasks of ingest: one capture file to read, as plain values, so that another thread, process or machine can do it.

A task names what it needs: the file, the engine, the filter's text, and where the cells and packets are written. On
another machine these paths must lead to the same files (a shared file system). Its result can be pickled too.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from ddnn_traces.ingestors import parsed_files
from ddnn_traces.ingestors.flow_filter import apply_filter, parse
from ddnn_traces.pcap.capture_facts import CaptureFacts, Progress, ReadOptions, ignore_progress
from ddnn_traces.pcap.engines import ENGINES
from ddnn_traces.pcap.streams import errors
from ddnn_traces.store import hashes
from ddnn_traces.store.whole_files import NO_SPACE
from ddnn_traces.text_files import why_it_leads_nowhere


@dataclass(eq=False)
class RunEnd:
    """What a cluster does with a run whose files were all read as a whole, on the worker that has most of them.

    files: of the run. function: of `args` and a list with what was read of each file; it returns something small, and
    files by name, which come into `folder`. reads: what is read so far; only the scheduler uses it.
    """

    files: int
    folder: Path
    function: Callable[..., tuple[Any, Mapping[str, bytes]]]
    args: tuple[Any, ...]
    reads: list[Any] = field(default_factory=list)


@dataclass(frozen=True)
class ReadTask:
    """One capture file to read.

    name: of the file in messages. engine: key of ENGINES. options: window, steps and output files, without a progress
    callback. filter: capture-filter expression for flows (flow_filter.py), None for all. capture_id: of the file in its
    run; "": its name. end: of the run, where a cluster may end it on a worker.
    """

    path: Path
    name: str
    engine: str
    options: ReadOptions
    filter: str | None = None
    capture_id: str = ""
    end: RunEnd | None = None


@dataclass(frozen=True)
class ReadResult:
    """The facts of a task's file, and how long reading it took, in s.

    ended: of the last file of a run that was ended on a worker, what its function gave; then no file of the run has
    cells, trains, packets or samples here.
    """

    facts: CaptureFacts
    seconds: float
    ended: Any = None


class Scheduler(Protocol):
    """Runs tasks somewhere: `threads.Threads` in this process, `cluster.Cluster` on others."""

    def results(self, tasks: Iterable[ReadTask]) -> Iterator[ReadResult]:
        """Results in the order of the tasks, of which only some are taken in advance. The first error ends all."""

    def summarize(self) -> None:
        """One line about the work, when all is read."""


def most_whole(total_bytes: int, workers: int, algorithm: str) -> float:
    """Bytes up to which a cluster does not cut a file of an ingest, so that a worker reads it once, as a whole.

    algorithm: one of store.hashes.CHOICES. A file that has a hash and is cut is read again for it, and so pays off only
    where it is more than a worker's share of all bytes: then others would wait for it. Without a hash, it pays off as
    soon as they would wait noticeably. One worker has nobody to share with.
    """
    if workers == 1:
        return math.inf
    share = total_bytes / workers
    return share * _NOTICED if algorithm == hashes.NONE else share


#: Part of a worker's share.
_NOTICED = 0.1


def read(task: ReadTask, progress: Progress = ignore_progress) -> ReadResult:
    """Read the task's file. A file that cannot be read is a result too, of status corrupt.

    progress: called with the bytes and packets read since the last call. Raises OSError when the output files cannot be
    written, EngineError when the engine is missing or fails.
    """
    begin = time.monotonic()
    try:
        with errors(task.path):
            reader = parsed_files if parsed_files.is_parsed_file(task.path) else ENGINES[task.engine]
            facts = reader.read_capture(task.path, replace(task.options, progress=progress))
    except OSError as error:
        if error.errno in NO_SPACE:
            raise
        reason = f"cannot be read ({error.strerror}), check its permissions"
        if task.path.is_symlink() and not task.path.exists():
            reason = why_it_leads_nowhere(task.path)
        facts = CaptureFacts(task.path, "none", _size(task.path), status="corrupt", status_detail=reason)
    facts.capture_id = task.capture_id or facts.capture_id
    if task.filter is not None:
        apply_filter(facts, parse(task.filter))
    return ReadResult(facts, time.monotonic() - begin)


def _size(path: Path) -> int:
    try:
        return path.lstat().st_size
    except OSError:
        return 0
