"""From the files of runs to their facts: files in parallel, runs and what is said about them in their order."""

from __future__ import annotations

import stat
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow.compute as pc

from ddnn_traces.ingestors.facts import STDIN, CaptureFacts, ReadOptions
from ddnn_traces.ingestors.flow_filter import FlowFilter, apply_filter
from ddnn_traces.ingestors.logs import TrainingLog, read_logs
from ddnn_traces.ingestors.metadata import RunMetadata
from ddnn_traces.ingestors.reconcile.log_clock import LogClock, estimate_clock
from ddnn_traces.ingestors.reconcile.tables import RunFacts
from ddnn_traces.ingestors.schedule.parallel import OrderedPool
from ddnn_traces.ingestors.sources import RunInput, host_label
from ddnn_traces.store.whole_files import NO_SPACE
from ddnn_traces.talk import Talk
from ddnn_traces.version import __version__

Engine = Callable[[Path, ReadOptions], CaptureFacts]


@dataclass(frozen=True)
class ReadPlan:
    """How to read. options: window, tunnels and the like; its spill names the scratch folder."""

    engine: Engine
    options: ReadOptions
    flow_filter: FlowFilter | None
    packets: bool
    jobs: int
    clock_offset: str | float = "offer"


@dataclass(frozen=True)
class _Reading:
    """A file that was read, and how long that took, s."""

    facts: CaptureFacts
    seconds: float


def read_runs(runs: list[tuple[RunInput, RunMetadata]], plan: ReadPlan, talk: Talk) -> Generator[RunFacts, None, None]:
    """Facts of each run, in order. The files behind are being read meanwhile; close the iterator to stop that."""
    captures = [path for run, _ in runs for path in run.captures]
    talk.start_files(total_bytes(captures))
    in_parallel = max(1, min(plan.jobs, len(captures)))
    with OrderedPool[_Reading](in_parallel) as pool:

        def progress(size: int, packets: int) -> None:
            pool.checkpoint()
            talk.advance(size, packets)

        options = replace(plan.options, jobs=max(1, plan.jobs // in_parallel), progress=progress)
        plan = replace(plan, options=options)
        waiting: deque[_Run] = deque()

        def calls() -> Iterator[Callable[[], _Reading]]:
            for number, (run, metadata) in enumerate(runs):
                waiting.append(_Run(run, metadata, number, plan, talk))
                yield from waiting[-1].calls()

        results = pool.results(calls())
        for run, _ in runs:
            for _ in run.captures:
                reading = next(results)
                waiting[0].add(reading)
            read = waiting.popleft()
            yield read.facts()
            read.remove_scratch()
    talk.end_files()


def total_bytes(captures: list[Path]) -> int | None:
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
    """A run that is being read. Its logs are read with its first file, its warnings told when all are there."""

    def __init__(self, run: RunInput, metadata: RunMetadata, number: int, plan: ReadPlan, talk: Talk) -> None:
        self._run = run
        self._metadata = metadata
        self._number = number
        self._plan = plan
        self._talk = talk
        self._labels = [host_label(path) for path in run.captures]
        self._log_talk = Talk()
        self._logs: list[TrainingLog] = []
        self._log_of_file: list[TrainingLog | None] = []
        self._files: list[CaptureFacts] = []

    def calls(self) -> Iterator[Callable[[], _Reading]]:
        """One call a file."""
        self._logs = read_logs(self._run.folder, self._log_talk)
        if not isinstance(self._plan.clock_offset, str):
            offset_ns = round(self._plan.clock_offset * 1e9)
            self._logs = [log.shifted(lambda time_ns: time_ns + offset_ns) for log in self._logs]
        by_worker = {log.worker: log for log in self._logs}
        for number, (path, label) in enumerate(zip(self._run.captures, self._labels, strict=True)):
            log = by_worker.get(label or "", self._logs[0] if self._logs else None)
            self._log_of_file.append(log)
            yield self._call(path, self._options(number, log))

    def _options(self, file: int, log: TrainingLog | None) -> ReadOptions:
        options = self._plan.options
        return replace(
            options,
            step_bounds=log.bounds if log else options.step_bounds,
            spill=self._scratch(f"{file}-cells"),
            packets=self._scratch(f"{file}-packets") if self._plan.packets else None,
        )

    def _scratch(self, name: str) -> Path:
        return self._plan.options.spill.with_name(f"{self._number}-{name}.parquet")

    def _call(self, path: Path, options: ReadOptions) -> Callable[[], _Reading]:
        return lambda: _read_file(path, self._plan, options, self._talk)

    def add(self, reading: _Reading) -> None:
        """The next file is read. What was not right is told now, in the order of the files."""
        if not self._files:
            for warning in self._log_talk.warnings:
                self._talk.warn(warning)
        self._files.append(reading.facts)
        _tell(reading, self._talk)

    def facts(self) -> RunFacts:
        """All that is known of the run; its files are read."""
        clock = self._clock()
        workers = [log.worker if log else None for log in self._log_of_file]
        window_ns, version = self._plan.options.window_ns, __version__
        return RunFacts(
            self._run.run_id, self._metadata, self._logs, self._files, self._labels, workers, window_ns, version, clock
        )

    def _clock(self) -> LogClock:
        """The logs' clock against the captures'. Where it is off, and that is wanted, all is read again."""
        asked = self._plan.clock_offset
        clock = estimate_clock(self._logs, self._files, self._labels, self._plan.options.window_ns)
        if not isinstance(asked, str):
            clock = clock.behind(round(asked * 1e9))
        if asked == "none":
            return clock
        if not clock.estimate or not clock.is_off:
            self._warn_of_clocks()
            return clock
        seconds = clock.estimate.offset_ns / 1e9
        if asked != "auto":
            self._talk.warn(
                f"{self._run.run_id}: its logs line up with the traffic when {seconds:+.3f} s are added to their "
                f"times; ingest with --clock-offset auto, or --clock-offset {seconds:.3f}, to have the packets in "
                "their steps, or with none to leave it so"
            )
            return clock
        self._talk.say(f"run {self._run.run_id}: {seconds:+.3f} s added to the logs' times, reading again")
        self._read_again([log.shifted(clock.correction) for log in self._logs])
        return replace(clock, applied_ns=clock.estimate.offset_ns)

    def _read_again(self, logs: list[TrainingLog]) -> None:
        """Read the files anew, with other steps."""
        self._logs = logs
        by_worker = {log.worker: log for log in logs}
        self._log_of_file = [by_worker[log.worker] if log else None for log in self._log_of_file]
        self.remove_scratch()
        for number, (path, log) in enumerate(zip(self._run.captures, self._log_of_file, strict=True)):
            options = replace(self._options(number, log), hashing=False)
            facts = _read_file(path, self._plan, options, self._talk).facts
            self._files[number] = replace(facts, sha256=self._files[number].sha256)

    def _warn_of_clocks(self) -> None:
        """Warn where no packet of a file can fall into a step of its log, and nothing told why."""
        for file, log in zip(self._files, self._log_of_file, strict=True):
            if log:
                _compare_clocks(file, log, self._talk)

    def remove_scratch(self) -> None:
        """The run's tables are written: its scratch files make room."""
        for path in self._plan.options.spill.parent.glob(f"{self._number}-*.parquet"):
            path.unlink()


def _read_file(path: Path, plan: ReadPlan, options: ReadOptions, talk: Talk) -> _Reading:
    """Runs in a thread of its own."""
    name = _name(path)
    talk.start_file(name)
    begin = time.monotonic()
    try:
        facts = plan.engine(path, options)
    except OSError as error:
        if error.errno in NO_SPACE:  # of writing; any other is the capture's that is being read
            raise
        reason = f"cannot be read ({error.strerror}), check its permissions"
        facts = CaptureFacts(path, "none", None, _size(path), status="corrupt", status_detail=reason)
    if plan.flow_filter:
        apply_filter(facts, plan.flow_filter)
    talk.end_file(name)
    return _Reading(facts, time.monotonic() - begin)


def _size(path: Path) -> int:
    try:
        return path.lstat().st_size
    except OSError:
        return 0


def _name(path: Path) -> str:
    return "standard input" if path == STDIN else f"{path.parent.name}/{path.name}"


def _tell(reading: _Reading, talk: Talk) -> None:
    facts = reading.facts
    if facts.status != "complete":
        kept = f"kept {facts.records:,} records before that" if facts.format else "nothing of it is kept"
        talk.warn(f"{facts.path}: {facts.status}: {facts.status_detail}; {kept}; copy it again, or leave it out")
    if _is_doubled(facts):
        talk.warn(
            f"{facts.path}: nearly every segment is there twice, as at a mirror port of both directions, and counts "
            "twice; remove the copies with 'editcap -d'"
        )
    seconds = max(reading.seconds, 1e-6)
    talk.summarize(
        f"{_name(facts.path)}: {facts.records:,} packets, {facts.flows.num_rows:,} flows, "
        f"{facts.records / seconds:,.0f} packets/s, {facts.file_bytes / seconds / 1e6:,.1f} MB/s, {facts.status}"
    )


def _is_doubled(facts: CaptureFacts) -> bool:
    """Whether about half of the TCP payload was there before, which no network loses."""
    flows = facts.flows
    payload = pc.sum(pc.filter(flows["payload_bytes"], pc.equal(flows["protocol"], 6))).as_py() or 0
    again = pc.sum(flows["retransmitted_bytes"]).as_py() or 0
    return payload > 1_000_000 and 0.45 * payload <= again <= 0.55 * payload


def _compare_clocks(facts: CaptureFacts, log: TrainingLog, talk: Talk) -> None:
    """Warn when no packet can fall into a step of the log."""
    begin, end = log.bounds[0], log.bounds[-1]
    if facts.first_ns is None or facts.last_ns is None or (facts.first_ns < end and facts.last_ns >= begin):
        return
    hours = (facts.first_ns - begin) / 3.6e12
    talk.warn(
        f"{facts.path}: begins {hours:+.2f} hours after {log.worker}'s log and shares no time with its steps, "
        "so no packet is in a step; compare the two clocks"
    )
