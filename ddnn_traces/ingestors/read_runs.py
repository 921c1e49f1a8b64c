"""From the files of runs to their facts: one task for each file, runs and their messages in order."""

from __future__ import annotations

import shutil
import stat
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ddnn_traces.ingestors.end_of_run import clock_of, end_on_worker, has_other_steps
from ddnn_traces.ingestors.metadata import RunMetadata
from ddnn_traces.ingestors.options import IngestOptions
from ddnn_traces.ingestors.reconcile.log_clocks import LogClock
from ddnn_traces.ingestors.reconcile.run_tables import Found, Made, RunFacts
from ddnn_traces.ingestors.run_description import Description, describe
from ddnn_traces.ingestors.schedule.tasks import ReadResult, ReadTask, RunEnd, Scheduler
from ddnn_traces.ingestors.schedule.threads import Threads
from ddnn_traces.ingestors.sources import RunInput
from ddnn_traces.ingestors.training_logs import TrainingLog
from ddnn_traces.jobs import available_cpus
from ddnn_traces.messages import Messages
from ddnn_traces.pcap.capture_facts import STDIN, CaptureFacts, ReadOptions
from ddnn_traces.pcap.link_types import describe_links
from ddnn_traces.store import hashes
from ddnn_traces.text import counted, valid_text
from ddnn_traces.version import __version__

if TYPE_CHECKING:
    from ddnn_traces.ingestors.schedule.cluster import Cluster

_MANY_RECORDS = 10  # a file with fewer may well hold no IP packet, unless its link type is not known


def read_runs(
    runs: Sequence[tuple[RunInput, RunMetadata]], options: IngestOptions, scratch: Path, messages: Messages, out: str
) -> Generator[RunFacts, None, None]:
    """Facts of each run, in order. Files of later runs are read meanwhile; closing the iterator stops that.

    scratch: folder for cells, packets, and tables that workers make; those of a run are removed when the next run is
    requested. out: the dataset in messages.
    """
    captures = [path for run, _ in runs for path in run.captures]
    total = total_bytes(captures)
    messages.start_reading(total)
    jobs = options.jobs or available_cpus()
    at_once = max(1, min(jobs, len(captures)))
    with _scheduler(options, at_once, len(captures), total or 0, messages) as scheduler:
        waiting: deque[_Run] = deque()

        def tasks() -> Iterator[ReadTask]:
            for number, (run, metadata) in enumerate(runs):
                waiting.append(_Run(run, metadata, options, scratch / f"run-{number}", messages, out))
                yield from waiting[-1].tasks(max(1, jobs // at_once))

        results = scheduler.results(tasks())
        for run, _ in runs:
            for _ in run.captures:
                result = next(results)
                waiting[0].add(result)
            current = waiting.popleft()
            yield current.facts(scheduler)
            current.remove_scratch()
        scheduler.summarize()
    messages.end_reading()


def _scheduler(options: IngestOptions, threads: int, files: int, total: int, messages: Messages) -> Threads | Cluster:
    """Where the files are read. total: their bytes."""
    if options.scheduler is None:
        return Threads(threads, messages)
    from ddnn_traces.ingestors.schedule.cluster import Cluster

    return Cluster(options.scheduler, files, total, messages)


def total_bytes(captures: Sequence[Path]) -> int | None:
    """Size of all files together, or None when one is a pipe."""
    total = 0
    for path in captures:
        if path == STDIN:
            return None
        try:
            status = path.stat()
        except OSError:
            continue
        if not stat.S_ISREG(status.st_mode):
            return None
        total += status.st_size
    return total


class _Run:
    """A run that is being read. Its logs are read before its first file; its warnings come when all files are read."""

    def __init__(
        self, run: RunInput, metadata: RunMetadata, options: IngestOptions, scratch: Path, messages: Messages, out: str
    ) -> None:
        self._run = run
        self._metadata = metadata
        self._options = options
        self._scratch = scratch
        self._messages = messages
        self._out = out
        self._ended: tuple[LogClock, Found | None] | None = None  # what a worker gives that has made the tables
        self._tasks: list[ReadTask] = []
        self._files: list[CaptureFacts] = []
        self._warnings: list[str] = []  # of the files

    def tasks(self, jobs: int) -> Iterator[ReadTask]:
        """One task for each file. jobs: threads that may work inside one file."""
        self._scratch.mkdir()
        self._described = describe(self._run, self._metadata, self._options.clock_offset_ns)
        self._needs = self._described.packet_needs
        end = self._end()
        for path, log in zip(self._run.captures, self._described.log_of_file, strict=True):
            self._tasks.append(self._task(path, log, jobs, end))
            yield self._tasks[-1]

    def _end(self) -> RunEnd | None:
        """What a worker may do with what was read. All packets would fill its memory."""
        if self._options.scheduler is None or self._options.packets:
            return None
        args = (self._run_facts((), LogClock()), self._options, self._out)
        return RunEnd(len(self._run.captures), self._tables, end_on_worker, args)

    @property
    def _tables(self) -> Path:
        """Folder of the tables that a worker makes."""
        return self._scratch / "tables"

    def _task(self, path: Path, log: TrainingLog | None, jobs: int, end: RunEnd | None) -> ReadTask:
        number = len(self._tasks)
        options = ReadOptions(
            self._options.window_ns,
            log.bounds if log else np.empty(0, np.int64),
            self._scratch / f"{number}-cells.parquet",
            self._scratch / f"{number}-packets.parquet" if self._options.packets else None,
            open_tunnels=self._options.tunnels == "inner",
            jobs=jobs,
            hash=self._options.hash,
            silence_ns=self._options.silence_ns,
        )
        name, capture_id = _name(self._run, path), self._run.name_of(path)
        return ReadTask(path, name, self._options.engine, options, self._options.filter, capture_id, end)

    def add(self, result: ReadResult) -> None:
        """Take the next file's result. Its problems are reported now, in the order of the files."""
        if not self._files:
            for warning in self._described.warnings:
                self._messages.warn(warning)
        facts = result.facts
        self._files.append(facts)
        self._ended = result.ended or self._ended
        before = len(self._messages.warnings)
        _report(result, _name(self._run, facts.path), self._messages)
        self._warnings += self._messages.warnings[before:]

    def facts(self, scheduler: Scheduler) -> RunFacts:
        """All that is known of the run, when its files are read."""
        clock = self._clock(scheduler)
        for warning in profiler_warnings(self._described, self._spans()):
            self._messages.warn(warning)
        made = Made(self._tables, self._ended[1]) if self._ended and self._ended[1] else None
        return replace(self._run_facts(self._files, clock), warnings=self._warnings, made=made)

    def _run_facts(self, files: Sequence[CaptureFacts], clock: LogClock) -> RunFacts:
        options = self._options
        described, needs = self._described, self._needs
        return RunFacts(described, files, options.window_ns, options.silence_ns, __version__, needs, clock, ())

    def _clock(self, scheduler: Scheduler) -> LogClock:
        """The logs' clock against the captures'. With --clock-offset auto it may read all files again."""
        clock = self._ended[0] if self._ended else clock_of(self._run_facts(self._files, LogClock()), self._options)
        if clock.estimate and has_other_steps(clock, self._options):
            seconds = clock.estimate.offset_ns / 1e9
            self._messages.info(f"run {self._run.run_id}: {seconds:+.3f} s added to the logs' times, reading again")
            self._described = self._described.shifted(clock.correction)
            self._read_again(scheduler)
            return replace(clock, applied_ns=clock.estimate.offset_ns)
        for warning in clock_warnings(self._described, clock, self._spans(), self._options.clock_offset):
            self._messages.warn(warning)
        return clock

    def _spans(self) -> list[tuple[int | None, int | None]]:
        """First and last time of each file, ns."""
        return [(file.first_ns, file.last_ns) for file in self._files]

    def _read_again(self, scheduler: Scheduler) -> None:
        """Read the files again, with other steps. Their hashes are known."""
        self.remove_scratch()
        self._scratch.mkdir()
        logs = self._described.log_of_file
        tasks = [_with_steps(task, log) for task, log in zip(self._tasks, logs, strict=True)]
        for number, result in enumerate(scheduler.results(tasks)):
            self._files[number] = replace(result.facts, digests=self._files[number].digests)

    def remove_scratch(self) -> None:
        """Free the disk space of cells, packets and tables: the run's tables are written, or it is read again."""
        shutil.rmtree(self._scratch)


def _with_steps(task: ReadTask, log: TrainingLog | None) -> ReadTask:
    """The same task with the steps of another log, and without hashing; what is read is wanted here."""
    bounds = log.bounds if log else task.options.step_bounds
    return replace(task, options=replace(task.options, step_bounds=bounds, hash=hashes.NONE), end=None)


def _name(run: RunInput, path: Path) -> str:
    """A capture in messages: with its run, or with its folder where it is a bare one, whose run has its name."""
    if path == STDIN:
        return "standard input"
    return f"{run.run_id if run.folder else valid_text(path.parent.name)}/{run.name_of(path)}"


#: By the status of a capture; a short one may be of a tcpdump that still runs.
_ADVICE = {
    "truncated": "wait until its capture has ended, or copy it again, or leave it out",
    "corrupt": "copy it again, or leave it out",
}


def _report(result: ReadResult, name: str, messages: Messages) -> None:
    """Warn of a file's problems, and summarize it."""
    facts = result.facts
    if facts.status != "complete":
        read = f"{counted(facts.records, 'record')} before that read" if facts.format else "nothing of it was read"
        is_unsupported = "TShark doesn't support" in str(facts.status_detail)
        advice = "try --engine numba" if is_unsupported else _ADVICE[facts.status]
        messages.warn_partial(f"{facts.path}: {facts.status}: {facts.status_detail}; {read}; {advice}")
    for remark in facts.remarks:
        messages.warn_partial(f"{facts.path}: {remark}")
    if facts.invalid_times:
        messages.warn(
            f"{facts.path}: an impossible time (before 1970 or after 2262) in {facts.invalid_times:,} of "
            f"{counted(facts.records, 'record')}: such count at the time before them, the first ones at 1970; check "
            "the program that wrote it, and remove such first ones with editcap"
        )
    if without_time := facts.untimed_records - facts.invalid_times:
        messages.warn(
            f"{facts.path}: no time in {without_time:,} of {counted(facts.records, 'record')} (Simple Packet Blocks): "
            "such count at the time before them, the first ones at 1970; capture with times where you need windows"
        )
    if _is_unread(facts):
        messages.warn(_why_no_flow(facts))
    seconds = max(result.seconds, 1e-6)
    messages.summarize(
        f"{name}: {counted(facts.records, 'packet')}, {counted(facts.flows.num_rows, 'flow')}, "
        f"{facts.records / seconds:,.0f} packets/s, {facts.file_bytes / seconds / 1e6:,.1f} MB/s, {facts.status}"
    )


def _is_unread(facts: CaptureFacts) -> bool:
    """Whether a file has no flow, and either many records or a link type that is not known."""
    unknown, _ = facts.skipped.get("unknown_link_type", (0, 0))
    return not facts.flows.num_rows and (facts.records >= _MANY_RECORDS or 0 < unknown == facts.records)


def _why_no_flow(facts: CaptureFacts) -> str:
    """What a file holds of which nothing could be read."""
    links = describe_links(facts.link_types)
    reasons = ", ".join(f"{packets:,} {reason}" for reason, (packets, _) in facts.skipped.items())
    other = (
        "try --engine pyshark, which reads all that tshark does"
        if facts.engine == "numba"
        else "look at it with tshark"
    )
    return f"{facts.path}: no flow in {counted(facts.records, 'record')} ({reasons}) of {links}; {other}"


def profiler_warnings(described: Description, spans: Sequence[tuple[int | None, int | None]]) -> Iterator[str]:
    """Profilers of which no event is in the time of the captures. spans: of these, ns."""
    firsts = [first for first, _ in spans if first is not None]
    lasts = [last for _, last in spans if last is not None]
    if not firsts or not lasts:
        return
    for recorded in described.recorded:
        for profiler in sorted({event.profiler or "" for event in recorded.events}):
            starts = [event.start_ns for event in recorded.events if event.profiler == profiler]
            if max(starts) < min(firsts) or min(starts) > max(lasts):
                hours = (min(starts) - min(firsts)) / 3.6e12
                yield (
                    f"{described.run.run_id}: {profiler} of {recorded.worker} begins {hours:+.2f} hours after the "
                    "captures and shares no time with them; 'ddnn-traces query DATASET profiler_clocks' has the "
                    "offset, if it is of this run"
                )


def clock_warnings(
    described: Description, clock: LogClock, spans: Sequence[tuple[int | None, int | None]], requested: str | float
) -> Iterator[str]:
    """What is wrong with the clock of the logs: it is off, or no packet of a file can be in a step of its log.

    spans: first and last time of each capture, ns. requested: IngestOptions.clock_offset.
    """
    if requested == "none" or (requested == "auto" and clock.applied_ns):
        return
    if clock.estimate and clock.is_off:
        seconds = clock.estimate.offset_ns / 1e9
        yield (
            f"{described.run.run_id}: its logs line up with the traffic when {seconds:+.3f} s are added to their "
            f"times; ingest with --clock-offset auto, or --clock-offset {seconds:.3f}, to have the packets in "
            "their steps, or with none to leave the times unchanged"
        )
        return
    for path, log, (first_ns, last_ns) in zip(described.run.captures, described.log_of_file, spans, strict=True):
        if log is None or first_ns is None or last_ns is None:
            continue
        begin, end = log.bounds[0], log.bounds[-1]
        if first_ns >= end or last_ns < begin:
            hours = (first_ns - begin) / 3.6e12
            yield (
                f"{path}: begins {hours:+.2f} hours after {log.worker}'s log and shares no time with its steps, "
                "so no packet is in a step; compare the two clocks"
            )
