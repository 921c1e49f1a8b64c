"""Training logs: start and end of each worker's steps, and the phases of these steps.

`train_history.log` and `train_history-WORKER.log` have a header `Type,ID,Timestamp,Loss,Accuracy`, with a sixth column
`HeldOutAccuracy` where the program tests the model on other data in each step; a row of type batch is a step, its time
stamp (unix seconds) the step's end; a row of type epoch ends an epoch (Batch and Epoch in the published Zerwas logs).
The start of the very first step is not in such a log: it is in `phases-WORKER.csv`, where the training program wrote
one. A row there is a step with four times in unix seconds:
`step,t_begin,t_comm_begin,t_comm_end,t_end`. Computation comes before communication, and the update after it.
`events-WORKER.csv` has single collectives and transfers, each with its bytes: `step,kind,name,t_begin,t_end,bytes`.

A launcher's prefix (launcher_prefixes.py) is no part of a line, and says whose it is: one file may have the steps of
several workers.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal, DecimalException
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ddnn_traces.errors import LogError
from ddnn_traces.ingestors.launcher_prefixes import Source, ranks_of, without_prefix
from ddnn_traces.ingestors.parsed_files import files_in
from ddnn_traces.ingestors.sources import host_label, role_of
from ddnn_traces.messages import Messages
from ddnn_traces.pcap.capture_facts import Int64Array
from ddnn_traces.text import natural_order, shown, valid_text
from ddnn_traces.text_files import MOST_LOG, csv_cells, is_missing, read_bytes, text_lines

HEADER = ["Type", "ID", "Timestamp", "Loss", "Accuracy"]
HELD_OUT = "HeldOutAccuracy"
#: The worker of train_history.log where no capture is the first worker's, as _worker_of() names it. They count from 0
#: in the published Zerwas data (worker-0-tcpdump.pcap), from 1 elsewhere.
FIRST_WORKER = "worker-1"

_TIMES = ("t_begin", "t_comm_begin", "t_comm_end", "t_end")
_KINDS = ("compute", "communicate", "update")
_EVENT_HEADER = ["step", "kind", "name", "t_begin", "t_end", "bytes"]
#: Kinds in an events file; those of phases are not among them.
_EVENT_KINDS = (
    "allreduce", "allgather", "reduce_scatter", "alltoall", "broadcast", "reduce", "send", "recv", "forward",
    "backward", "checkpoint", "restore", "process_killed", "host_killed", "restart",
)  # fmt: skip

_ROWS_NAME = re.compile(r"(?:phases|events)-(?P<worker>.+)\.csv", re.DOTALL)
_LOG_NAME = re.compile(r"train_history(?:-(?P<worker>.+))?\.log", re.DOTALL)
#: Times end here, in 2116, so that an offset of the clocks can be added.
_MOST_NS = 2**62


@dataclass(frozen=True, slots=True)  # a log has up to a million
class Step:
    """One row of `steps`, without run and worker."""

    step: int
    epoch: int
    start_ns: int
    start_source: str
    end_ns: int
    loss: float | None
    accuracy: float | None
    held_out_accuracy: float | None = None


@dataclass(frozen=True, slots=True)
class Event:
    """One row of `events`, without run and worker. step, end_ns: None only where a profiler does not know them."""

    step: int | None
    kind: str
    start_ns: int
    end_ns: int | None
    name: str | None = None
    bytes: int | None = None
    profiler: str | None = None
    process_group: str | None = None
    sequence: int | None = None
    group_ranks: str | None = None
    state: str | None = None

    def shifted(self, clock: Callable[[int], int]) -> Event:
        """The same with other times: `clock` converts each, ns."""
        return replace(self, start_ns=clock(self.start_ns), end_ns=None if self.end_ns is None else clock(self.end_ns))

    def key(self) -> tuple[int | str, ...]:
        """What tells rows of a worker apart, and their order: the key of the table events."""
        known = [-1 if number is None else number for number in (self.step, self.sequence)]
        return known[0], self.start_ns, self.kind, self.profiler or "", self.process_group or "", known[1]

    def of_ranks(self, ranks: str | None) -> Event:
        """The same in a group of these ranks."""
        return replace(self, group_ranks=ranks)


@dataclass(frozen=True)
class TrainingLog:
    """The steps of one worker, in the log's order, at least one, and the intervals inside them where known."""

    worker: str
    steps: tuple[Step, ...]
    events: tuple[Event, ...] = ()

    def shifted(self, clock: Callable[[int], int]) -> TrainingLog:
        """The same with other times: `clock` converts each, ns."""
        steps = (replace(step, start_ns=clock(step.start_ns), end_ns=clock(step.end_ns)) for step in self.steps)
        return TrainingLog(self.worker, tuple(steps), tuple(event.shifted(clock) for event in self.events))

    @property
    def bounds(self) -> Int64Array:
        """Start of the first step, end of every step, int64 ns, ascending: step i is [bounds[i], bounds[i+1])."""
        times = [self.steps[0].start_ns, *(step.end_ns for step in self.steps)]
        return np.maximum.accumulate(np.array(times, np.int64))


def read_logs(folder: Path, messages: Messages, host: str | None = None) -> list[TrainingLog]:
    """All logs in a folder, in the order of their workers; unusable ones are left out with a warning.

    host: whose folder it is; then train_history.log is its log.
    """
    files = sorted(folder.iterdir())
    paths = {path: m["worker"] for path in files if (m := _LOG_NAME.fullmatch(path.name))}
    named = [*files, *files_in(folder)]
    first = host or _worker_of(0, named)
    logs: dict[str, TrainingLog] = {}
    for path, worker in paths.items():
        try:
            if worker is None and _has_twin(path, paths, first):
                continue
            for log in _read_log(path, worker or host, named, messages):
                logs.setdefault(log.worker, log)
        except LogError as error:
            messages.warn(str(error))
    _warn_of_rows_without_log(files, {*logs, *(worker or first for worker in paths.values())}, messages)
    return sorted(logs.values(), key=lambda log: natural_order(log.worker))


def _warn_of_rows_without_log(files: Sequence[Path], workers: set[str], messages: Messages) -> None:
    for path in files:
        if (m := _ROWS_NAME.fullmatch(path.name)) and m["worker"] not in workers:
            log = f"train_history-{m['worker']}.log"
            messages.warn(f"{path}: not read, since {log} is not beside it; add that log, or remove this file")


def first_number(labels: Iterable[str | None]) -> int:
    """Number of the worker that has rank 0: 0 where a file is worker-0's (the published Zerwas data), else 1."""
    return (
        0
        if any(role_of(label) == "worker" and label and natural_order(label)[-1][:2] == (True, 0) for label in labels)
        else 1
    )


def rank_of(label: str | None, first: int) -> int | None:
    """Rank in a worker's label, where the first worker has the number `first`."""
    if role_of(label) != "worker" or label is None:
        return None
    number = natural_order(label)[-1]
    return number[1] - first if number[0] and first <= number[1] < 2**63 else None


def _worker_of(rank: int, files: Sequence[Path]) -> str:
    """The worker of a rank by the names of the captures: that of rank 0 is worker-0 or worker-1 (w1), worker-1 where
    these name none."""
    labels = {label for path in files if (label := host_label(path))}
    first = first_number(labels)
    known = (label for label in labels if rank_of(label, first) == rank)
    return min(known, key=natural_order, default=f"worker-{first + rank}")


def _has_twin(path: Path, paths: dict[Path, str | None], first: str) -> bool:
    """Whether a log without a worker is another worker's log under a second name, or the first worker's is there."""
    if first in paths.values():
        return True
    text = read_bytes(path, MOST_LOG, LogError)
    others = (other for other, worker in paths.items() if worker is not None and _size(other) == len(text))
    return any(read_bytes(other, MOST_LOG, LogError) == text for other in others)


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except OSError:
        return None


class _Line(NamedTuple):
    """A line of a log without its launcher's prefix. cells: None where they cannot be read. source: who printed it."""

    number: int
    cells: list[str] | None
    source: Source | None


def _lines(path: Path) -> Iterator[_Line]:
    """The lines that are not empty. Raises LogError."""
    for number, text in text_lines(read_bytes(path, MOST_LOG, LogError)):
        source, line = without_prefix(text)
        cells = csv_cells(line)
        if cells is None or cells:
            yield _Line(number, cells, source)


#: Epoch, time in ns, loss, accuracy and that of held-out data.
_End = tuple[int, int, float | None, float | None, float | None]


@dataclass
class _Rows:
    """The rows of one worker. ends: epoch, time, loss, accuracy and that of held-out data at the end of each step."""

    ends: list[_End] = field(default_factory=list)
    epoch: int = 0

    def add(self, line: _Line, width: int) -> bool:
        """Take a row of so many cells; False where the line is none."""
        try:
            kind, _, seconds, *values = line.cells or []
            if len(values) != width - 3:
                return False
            kind = kind.strip().lower()
            if kind == "batch":
                loss, accuracy, held_out = [_number(value) for value in [*values, ""][:3]]
                self.ends.append((self.epoch, seconds_to_ns(seconds), loss, accuracy, held_out))
            elif kind == "epoch":
                self.epoch += 1
        except ValueError:
            return False
        return kind in ("batch", "epoch")


def _read_log(path: Path, worker: str | None, files: Sequence[Path], messages: Messages) -> Iterator[TrainingLog]:
    """The log of each worker that has steps in a file. worker: whose it is by its name or folder; None: not known."""
    lines = list(_lines(path))
    begin = _begin(path, lines)
    unread = [line.number for line in lines[:begin]]
    width = len(lines[begin].cells or ())
    owners = _owners(lines, worker, files)
    rows: dict[str, _Rows] = {}
    for line in lines[begin + 1 :]:
        owner = owners.get(line.source)
        if owner is None or not rows.setdefault(owner, _Rows()).add(line, width):
            unread.append(line.number)
    if unread:
        messages.warn(
            f"{path}: {len(unread)} lines are not read, the first is line {unread[0]}; compare with the header; "
            "Type is batch or epoch"
        )
    found = {owner: own for owner, own in rows.items() if own.ends}
    if not found:
        raise LogError(f"{path}: no row of type batch, so no step is read; remove it if that is right")
    if any(later[1] < earlier[1] for own in found.values() for earlier, later in itertools.pairwise(own.ends)):
        messages.warn(f"{path}: time stamps go back; a step that ends before the previous one is empty")
    for owner, own in found.items():
        phases = read_phases(path.parent / f"phases-{owner}.csv", messages)
        events = phases.events + read_events(path.parent / f"events-{owner}.csv", messages)
        yield TrainingLog(valid_text(owner), tuple(_steps(own.ends, phases.first_begin_ns)), events)


def _begin(path: Path, lines: Sequence[_Line]) -> int:
    """Place of the header: the first line, or in a launcher's output any. Raises LogError without one."""
    header = ",".join(HEADER)
    places = (
        place
        for place, line in enumerate(lines)
        if [name.strip() for name in line.cells or ()] in (HEADER, [*HEADER, HELD_OUT])
    )
    begin = next(places, None)
    launched = any(line.source is not None for line in lines)
    if begin is None or (begin and not launched):
        what = f"no line is '{header}'" if launched else f"the first line is not '{header}'"
        raise LogError(f"{path}: {what}, so no step is read; add that header")
    return begin


def _owners(lines: Sequence[_Line], worker: str | None, files: Sequence[Path]) -> Mapping[Source | None, str]:
    """Whose lines those of each source are. Where one process has steps, lines without a prefix are its own, too."""
    sources = {line.source for line in lines if line.cells and line.cells[0].strip().lower() == "batch"}
    ranks = ranks_of(source for source in sources if source is not None)
    if len(ranks) > 1:
        return {source: _worker_of(rank or 0, files) for source, rank in ranks.items()}
    (rank,) = ranks.values() or (0,)
    return dict.fromkeys([None, *ranks], worker or _worker_of(rank or 0, files))


def _steps(ends: list[_End], begin_ns: int | None) -> list[Step]:
    """Every step begins where the one before ended."""
    source = "phases"
    if begin_ns is None or begin_ns > ends[0][1]:
        source = "estimated"
        durations = [later[1] - earlier[1] for earlier, later in itertools.pairwise(ends)]
        begin_ns = ends[0][1] - max(0, int(np.median(durations or [0])))
    steps = []
    for number, (epoch, end_ns, *values) in enumerate(ends):
        steps.append(Step(number, epoch, begin_ns, source, end_ns, *values))
        begin_ns, source = max(begin_ns, end_ns), "previous_end"
    return steps


def _number(text: str) -> float | None:
    return float(text) if text.strip() else None


# --- phases


@dataclass(frozen=True)
class Phases:
    """The content of a phases file: start of its first step, ns (None: not known), and the intervals."""

    first_begin_ns: int | None = None
    events: tuple[Event, ...] = ()


def read_phases(path: Path, messages: Messages) -> Phases:
    """The phases in a file, empty where it is missing; rows that cannot be read are left out with a warning."""
    if is_missing(path):
        return Phases()
    try:
        rows = list(_lines(path))
    except LogError as error:
        messages.warn(str(error))
        return Phases()
    names = (rows[0].cells if rows else None) or []
    begin_ns: int | None = None
    events: list[Event] = []
    unread = []
    for line, cells, _ in rows[1:]:
        row = dict(zip(names, cells or (), strict=False))
        try:
            if begin_ns is None:
                begin_ns = seconds_to_ns(row.get("t_begin", ""))
            events += _events(row)
        except ValueError:
            if begin_ns is None:
                break
            unread.append(line)
    if begin_ns is None:
        messages.warn(f"{path}: not used, no t_begin in unix seconds in its first row; correct it")
        return Phases()
    if not set(_TIMES) <= set(names):
        return Phases(begin_ns)
    if unread:
        messages.warn(
            f"{path}: {len(unread)} lines have no step and four times in order, the first is line {unread[0]}; the "
            "phases of these steps are not known"
        )
    return Phases(begin_ns, tuple(events))


def _events(row: dict[str, str]) -> list[Event]:
    """Intervals of a step. Raises ValueError where a time is missing or before the one it follows."""
    step = int(row.get("step", ""))
    times = [seconds_to_ns(row.get(name, "")) for name in _TIMES]
    if not 0 <= step < 2**63 or times != sorted(times):
        raise ValueError(row)
    return [Event(step, kind, start, end) for kind, start, end in zip(_KINDS, times[:-1], times[1:], strict=True)]


def read_events(path: Path, messages: Messages) -> tuple[Event, ...]:
    """The collectives and transfers in a file, none where it is missing; lines that cannot be read are left out with a
    warning, also a second one of the same step, kind and start."""
    if is_missing(path):
        return ()
    try:
        lines = list(_lines(path))
    except LogError as error:
        messages.warn(str(error))
        return ()
    if not lines or lines[0].cells != _EVENT_HEADER:
        messages.warn(f"{path}: not used, its first line is not '{','.join(_EVENT_HEADER)}'; correct it")
        return ()
    events: dict[tuple[int | None, str, int], Event] = {}
    unread = []
    for line, cells, _ in lines[1:]:
        try:
            event = _event(cells or [])
        except ValueError:
            unread.append(line)
            continue
        if events.setdefault((event.step, event.kind, event.start_ns), event) is not event:
            unread.append(line)
    if unread:
        messages.warn(
            f"{path}: {len(unread)} lines are not used, the first is line {unread[0]}; a line has step, kind, name, "
            "two times in order and bytes, and no other line the same step, kind and start"
        )
    return tuple(events.values())


def _event(cells: list[str]) -> Event:
    """Raises ValueError."""
    step, kind, name, begin, end, size = cells
    begins_ns, ends_ns = seconds_to_ns(begin), seconds_to_ns(end)
    if kind not in _EVENT_KINDS or begins_ns > ends_ns or not 0 <= int(step) < 2**63:
        raise ValueError(cells)
    bytes_of = int(size) if size else None
    if bytes_of is not None and not 0 <= bytes_of < 2**63:
        raise ValueError(cells)
    return Event(int(step), kind, begins_ns, ends_ns, valid_text(name) or None, bytes_of)


def seconds_to_ns(text: str) -> int:
    """Decimal unix seconds to int ns, exactly (a double is good to about 200 ns there). Raises ValueError."""
    try:
        ns = Decimal(text.strip()) * 1_000_000_000
        in_range = 0 <= ns < _MOST_NS  # before int(), which takes seconds for 1e999990
    except DecimalException as error:
        raise ValueError(shown(text)) from error
    if not in_range:
        raise ValueError(f"{shown(text)} is not a time after 1970 in seconds")
    return int(ns.to_integral_value())
