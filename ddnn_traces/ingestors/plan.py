"""What an ingest will do, and how long it is expected to take, by reading the start of one capture for real.

The time of reading is that of the slower of two, which overlap: the store (or disk), and the packet loop with the hash.
The time after it, of joining, reconciling and writing, is by a line through two measured sizes. Of a run whose files a
cluster reads as a whole, it is a worker's; else this process's.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from ddnn_traces.errors import CaptureError, UsageError
from ddnn_traces.ingestors import pipeline
from ddnn_traces.ingestors.options import IngestOptions
from ddnn_traces.ingestors.parsed_files import is_parsed_file
from ddnn_traces.ingestors.schedule.tasks import most_whole
from ddnn_traces.ingestors.sources import RunInput, find_runs
from ddnn_traces.jobs import available_cpus
from ddnn_traces.messages import Messages
from ddnn_traces.pcap.capture_facts import STDIN, ReadOptions
from ddnn_traces.pcap.engines import ENGINES
from ddnn_traces.pcap.parts import PART_BYTES, PARTS_OF_A_TASK
from ddnn_traces.pcap.streams import REQUEST_BYTES, digests_of, is_local, measured, opened
from ddnn_traces.store import hashes, object_store, schema
from ddnn_traces.store.places import is_url
from ddnn_traces.text import counted

#: Bytes of a capture that are read to measure with, and the share that is written a second time.
MEASURED_BYTES = 64 << 20
_SMALLER = 4
#: Requests for a part beyond those for its bytes: its size, the rest of its last record; for each table and run.
_EXTRA_REQUESTS, _REQUESTS_A_TABLE = 2, 4
#: Small requests to a store that are under way together.
_AT_ONCE = 8


@dataclass(frozen=True)
class PlannedFile:
    """A capture. tasks: 1: it is read as a whole; more: for its parts and its hash."""

    run_id: str
    capture: str
    bytes: int
    tasks: int
    on_store: bool


@dataclass(frozen=True)
class Calibration:
    """What was measured. path, bytes: of the capture's start; fetch_s, read_s, hash_s: for its bytes, for the packet
    loop and hash, and for the hash alone, 0 for none; after_s: of a run without packets, after_s_byte: for each byte of
    a capture; request_s: of a request for a few bytes."""

    path: Path
    bytes: int
    fetch_s: float
    read_s: float
    hash_s: float
    after_s: float
    after_s_byte: float
    request_s: float

    @property
    def whole_s_byte(self) -> float:
        """To read a file once, s a byte."""
        return max(self.fetch_s, self.read_s) / self.bytes

    @property
    def part_s_byte(self) -> float:
        """To read it in parts, without its hash."""
        return max(self.fetch_s, self.read_s - self.hash_s) / self.bytes

    @property
    def hash_s_byte(self) -> float:
        """To read it for its hash alone."""
        return max(self.fetch_s, self.hash_s) / self.bytes if self.hash_s else 0.0


@dataclass(frozen=True)
class Plan:
    """An ingest to come: its files, what was measured, and where it will run. workers: threads of all machines. reader:
    what one of them is called. ends_runs: whether it ends a run whose files are not cut."""

    files: Sequence[PlannedFile]
    calibration: Calibration
    workers: int
    on_store: bool
    reader: str = "worker"
    ends_runs: bool = False

    @property
    def bytes(self) -> int:
        """Of all captures."""
        return sum(file.bytes for file in self.files)

    @property
    def tasks(self) -> int:
        """Of all files."""
        return sum(file.tasks for file in self.files)

    @property
    def task_s(self) -> float:
        """Time of all that workers do, s of one worker."""
        found = self.calibration
        cut = sum(file.bytes for file in self.files if file.tasks > 1)
        reading = (self.bytes - cut) * found.whole_s_byte + cut * (found.part_s_byte + found.hash_s_byte)
        return reading + self._ending_s([file for file in self.files if file.run_id not in self._ended_here])

    @property
    def after_s(self) -> float:
        """Time of this process for joining, reconciling and writing, s."""
        small = self._small_requests * self.calibration.request_s / _AT_ONCE
        return self._ending_s([file for file in self.files if file.run_id in self._ended_here]) + small

    def _ending_s(self, files: Sequence[PlannedFile]) -> float:
        """Time of one worker, or of this process, for what follows the reading of whole runs, s."""
        runs = len({file.run_id for file in files})
        return runs * self.calibration.after_s + sum(file.bytes for file in files) * self.calibration.after_s_byte

    @cached_property
    def _ended_here(self) -> set[str]:
        """The runs that no worker ends."""
        return {file.run_id for file in self.files if file.tasks > 1 or not self.ends_runs}

    @property
    def _runs(self) -> int:
        return len({file.run_id for file in self.files})

    @property
    def _small_requests(self) -> int:
        """For the tables on a store."""
        return self.on_store * self._runs * len(schema.TABLES) * _REQUESTS_A_TABLE

    @property
    def longest_s(self) -> float:
        """Time of the longest task, s: a file that is not cut, or the hash of one that is."""
        found = self.calibration
        return max(file.bytes * (found.hash_s_byte if file.tasks > 1 else found.whole_s_byte) for file in self.files)

    @property
    def expected_s(self) -> float:
        """Time of the ingest, s: tasks are read while earlier runs are written."""
        return max(self.task_s / self.workers, self.longest_s, self.after_s)

    @property
    def core_hours(self) -> float:
        """Of all workers and this process."""
        return (self.task_s + self.after_s) / 3600

    @property
    def requests(self) -> int:
        """Requests to stores."""
        of_a_cut_file = 2 if self.calibration.hash_s else 1
        reads = sum(
            (of_a_cut_file if file.tasks > 1 else 1) * -(-file.bytes // REQUEST_BYTES) + _EXTRA_REQUESTS * file.tasks
            for file in self.files
            if file.on_store
        )
        return reads + self._small_requests

    @property
    def limit(self) -> str:
        """What the expected time is that of."""
        times = {
            f"{'the store' if self.calibration.fetch_s > self.calibration.read_s else 'the packet loop'} of "
            f"{counted(self.workers, self.reader)}": self.task_s / self.workers,
            "the longest task, a whole file": self.longest_s,
            "joining and writing in this process": self.after_s,
        }
        return max(times, key=lambda name: times[name])


def plan(sources: list[str], out: str, options: IngestOptions, messages: Messages) -> Plan:
    """The plan of an ingest. Reads the start of its largest capture. Raises errors as pipeline.ingest()."""
    options.check()
    if is_url(out):
        with object_store.errors(out):
            object_store.look(out)
    runs = find_runs(sources, messages.warn_partial, options.layout, options.run_id)
    captures = [path for run in runs for path in run.captures if path != STDIN]
    if not captures:
        raise UsageError("standard input cannot be planned: it is read once; name files")
    workers = _workers(options, messages)
    most = most_whole(sum(path.stat().st_size for path in captures), workers, options.hash)
    files = [_file(run, path, options, most) for run in runs for path in run.captures if path != STDIN]
    measurable = [path for path in captures if not is_parsed_file(path)] or captures
    largest = max(measurable, key=lambda path: path.stat().st_size)
    reader = "worker" if options.scheduler else "thread"
    ends_runs = options.scheduler is not None and not options.packets
    return Plan(files, _calibrated(largest, options), workers, is_url(out), reader, ends_runs)


def _workers(options: IngestOptions, messages: Messages) -> int:
    if options.scheduler is None:
        return options.jobs or available_cpus()
    from ddnn_traces.ingestors.schedule.cluster import Cluster

    with Cluster(options.scheduler, 0, 0, messages) as cluster:
        return cluster.workers


def _file(run: RunInput, path: Path, options: IngestOptions, most: float) -> PlannedFile:
    size = path.stat().st_size
    is_cut = options.scheduler is not None and ENGINES[options.engine].is_cut(path, _reading(options, Path()), most)
    parts_of_it = -(-size // (PARTS_OF_A_TASK * PART_BYTES))
    tasks = parts_of_it + (options.hash != hashes.NONE) if is_cut else 1
    return PlannedFile(run.run_id, run.name_of(path), size, tasks, not is_local(path))


def _reading(options: IngestOptions, spill: Path) -> ReadOptions:
    packets = spill.parent / "packets" if options.packets else None
    return ReadOptions(options.window_ns, np.empty(0, np.int64), spill, packets, hash=options.hash)


def _calibrated(path: Path, options: IngestOptions) -> Calibration:
    """What the start of a capture takes."""
    with tempfile.TemporaryDirectory(prefix="ddnn-traces-") as name:
        begin = Path(name, path.name)
        fetch_s, request_s = _fetched(path, begin)
        size = begin.stat().st_size
        ENGINES[options.engine].prepare(size)
        part = Path(name, f"part-{path.name}")
        part.write_bytes(begin.read_bytes()[: size // _SMALLER])
        ENGINES[options.engine].read_capture(part, _reading(options, Path(name, "part-cells")))  # libraries are loaded
        started = time.perf_counter()
        facts = ENGINES[options.engine].read_capture(begin, _reading(options, Path(name, "cells")))
        read_s = time.perf_counter() - started
        started = time.perf_counter()
        digests_of(begin, options.hash)
        hash_s = time.perf_counter() - started if options.hash != hashes.NONE else 0.0
        if not facts.format:
            raise CaptureError(f"{path}: {facts.status_detail}; measuring needs a capture, so leave this file out")
        after = [_after(one, Path(name, f"dataset-{one.name}"), options) for one in (part, begin)]
    slope = max(0.0, after[1] - after[0]) / (size - size // _SMALLER)
    fixed = max(0.0, after[1] - slope * size)
    return Calibration(path, size, fetch_s, read_s, hash_s, fixed, slope, request_s)


def _fetched(path: Path, begin: Path) -> tuple[float, float]:
    """Copy the start of a capture; return for how long its bytes were waited for, and one request takes, s."""
    started = time.perf_counter()
    opened(path, 1).close()
    request_s = time.perf_counter() - started
    left, buffer = MEASURED_BYTES, memoryview(bytearray(1 << 20))
    with measured() as cost, opened(path, MEASURED_BYTES) as file, begin.open("wb") as copy:
        while left > 0 and (size := file.readinto(buffer[: min(left, len(buffer))])):
            copy.write(buffer[:size])
            left -= size
    return cost.waited_s, request_s


def _after(capture: Path, dataset: Path, options: IngestOptions) -> float:
    """What an ingest of a capture takes in addition to reading it, s."""
    started = time.perf_counter()
    messages = _Reading()
    pipeline.ingest(
        [str(capture)], dataset, replace(options, scheduler=None, jobs=1, layout=None, run_id=None), messages
    )
    return max(0.0, time.perf_counter() - started - messages.seconds)


class _Reading(Messages):
    """Measures how long files are read, s."""

    seconds = 0.0
    _begin = 0.0

    def start_file(self, name: str) -> None:
        self._begin = time.perf_counter()

    def end_file(self, name: str) -> None:
        self.seconds += time.perf_counter() - self._begin
