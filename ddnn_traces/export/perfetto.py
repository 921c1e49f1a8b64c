"""A run as a timeline for Perfetto (ui.perfetto.dev): its own format where the file is named .pftrace, else the
trace-event format, which chrome://tracing opens, too. track_events.py writes the former from the events of the latter.

A host or worker is a process of the trace: its steps are complete events (ph X) of its only thread, with the step's
events nested in them; what cannot be nested, since it overlaps, is an asynchronous event (ph b and e). A flow's
throughput is a counter (ph C) of the host that sends it. A job that the traffic shows is a process, too, with a thread
for each group of hosts, whose collectives are asynchronous events. So are those that profilers recorded, with a thread
for each profiler of a worker, shifted onto the captures' clock. Times are microseconds since the run's start, with
decimals.

Format: "Trace Event Format" of the Chromium project, JSON object form.
"""

from __future__ import annotations

import contextlib
import gzip
import heapq
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from ddnn_traces.errors import UsageError
from ddnn_traces.export import track_events
from ddnn_traces.query.dataset import Dataset
from ddnn_traces.store.whole_files import whole_file
from ddnn_traces.version import __version__

#: Most events of a file: what Perfetto opens within seconds, some 70 MB.
MAX_EVENTS = 500_000

#: Columns of timeline_intervals that become an event's arguments where they are not null.
_ARGUMENTS = ("step", "epoch", "loss", "accuracy", "bytes", "priority")

#: The processes of jobs come after those of hosts and workers.
_JOBS = 1_000_000
#: And that of the profilers after these.
_PROFILERS = 2_000_000

#: Most windows of a flow, where their length is not given: as many as a screen can show, with some zooming.
_WINDOWS = 5_000

Row = Mapping[str, Any]
Event = dict[str, Any]
#: Time since the run's start, ns, and its events.
Drawn = tuple[int, list[Event]]


@dataclass(frozen=True)
class TimelineOptions:
    """The part of a run that is written.

    window_ms: window of the counters, ms; None: so that there are at most 5,000. from_ms, length_ms: excerpt, ms since
    the run's start; None: to the end. flows: number of flows, the largest, with a counter of their own. max_events:
    the timeline ends where it has so many.
    """

    window_ms: float | None = None
    from_ms: float = 0.0
    length_ms: float | None = None
    flows: int = 20
    max_events: int = MAX_EVENTS

    def check(self) -> None:
        """Raise UsageError for a value that is out of range."""
        for name, value in (("--window-ms", self.window_ms), ("--length-ms", self.length_ms)):
            if value is not None and not 0 < value < 1e12:
                raise UsageError(f"{name} {value:g}: give milliseconds above 0 and below 1e12")
        if not 0 <= self.from_ms < 1e12:
            raise UsageError(f"--from-ms {self.from_ms:g}: a timeline begins at 0 ms or later")


def export(where: str | Path, out: Path, run: str | None, **options: Any) -> tuple[Path, list[str]]:
    """As write(), for targets.Target."""
    with Dataset(where, [run] if run else None) as dataset:
        return out, [f"left out: {line}" for line in write(dataset, out, TimelineOptions(**options))]


def write(dataset: Dataset, out: Path, options: TimelineOptions | None = None) -> list[str]:
    """Write the timeline of a dataset opened for a single run to `out` (compressed where it ends in .gz).

    Returns a line for everything that was left out. The same run and options give the same bytes. Raises UsageError
    where the dataset has several runs, or the run has nothing to draw.
    """
    options = options or TimelineOptions()
    options.check()
    run = dataset.only_run
    start = dataset.query("timeline_start").to_dicts()
    if not start:
        raise UsageError(f"run {run} has no packets, steps or events: there is nothing to draw")
    excerpt = {"from_ms": options.from_ms, "length_ms": options.length_ms}
    intervals = dataset.query("timeline_intervals", **excerpt).to_dicts()
    counters = dataset.query(
        "timeline_throughput", **excerpt, window_ms=options.window_ms, windows=_WINDOWS, flows=options.flows
    ).to_dicts()
    sound = [row for row in intervals if row["duration_ns"] >= 0]
    left_out = _left_out(len(intervals) - len(sound), counters, options)
    lanes = {row["lane"]: row["name"] for row in dataset.query("timeline_lanes").to_dicts()}
    used = {row["lane"] for row in (*sound, *counters)}
    start_ns = start[0]["run_start_ns"]
    groups = dataset.query("communicators").to_dicts()
    collectives = _within(dataset.query("collective_times"), start_ns, options)
    kinds = dataset.query("collectives").select("job", "position", "kind", "tensor_bytes", "hosts", "kind_or")
    calls = collectives.join(kinds, on=["job", "position"], maintain_order="left").to_dicts()
    recorded = _of_profilers(dataset, start_ns, options)
    timed = heapq.merge(
        _intervals(sound), _counters(counters), _collectives(calls, start_ns), _recorded(recorded),
        key=lambda drawn: drawn[0],
    )  # fmt: skip
    events, end_ns = _at_most(timed, options.max_events)
    if end_ns is not None:
        left_out.append(
            f"everything from {end_ns / 1e6:,.3f} ms on: the timeline is full at {options.max_events:,} events; take a "
            "larger --window-ms, an excerpt (--from-ms, --length-ms) or a larger --max-events"
        )
    names = {lane: lanes.get(lane, "other flows") for lane in sorted(used)}
    about = {"run_id": run, "run_start_ns": start_ns, "excerpt": excerpt, "left_out": left_out}
    processes = [*_metadata(names), *(_group_metadata(groups) if calls else ()), *_profiler_metadata(recorded)]
    _write(out, [*processes, *events], about)
    return left_out


def _at_most(timed: Iterable[Drawn], most: int) -> tuple[list[Event], int | None]:
    """The first events, and the time of the first that is left out."""
    events: list[Event] = []
    for since_ns, drawn in timed:
        if len(events) + len(drawn) > most:
            return events, since_ns
        events += drawn
    return events, None


def _left_out(backwards: int, counters: list[dict[str, Any]], options: TimelineOptions) -> list[str]:
    lines = []
    if backwards:
        lines.append(f"steps or events that end before they begin: {backwards:,}; 'ddnn-traces check' lists them")
    if any(row["flow_place"] > options.flows for row in counters):
        lines.append(f"the counters of all flows but the {options.flows} largest: they are one, other flows (--flows)")
    return lines


def _write(out: Path, events: Iterable[Event], about: dict[str, Any]) -> None:
    """Write the file, whole or not at all."""
    try:
        with whole_file(out) as half_written, contextlib.ExitStack() as stack:
            file: Any = stack.enter_context(half_written.open("wb"))
            if out.suffix == ".gz":  # without a time and name: the same bytes
                file = stack.enter_context(gzip.GzipFile(filename="", fileobj=file, mode="wb", mtime=0))
            about = {"program": f"ddnn-traces {__version__}", **about}
            if ".pftrace" in out.suffixes:
                track_events.write(file, about, events)
            else:
                _write_json(file, about, events)
    except OSError as error:
        raise UsageError(f"{out}: cannot be written ({error.strerror}); choose another --out") from error


def _write_json(file: Any, about: dict[str, Any], events: Iterable[Event]) -> None:
    file.write(b'{"displayTimeUnit":"ms","otherData":')
    file.write(_json(about))
    file.write(b',"traceEvents":[')
    for number, event in enumerate(events):
        file.write(b",\n" if number else b"\n")
        file.write(_json(event))
    file.write(b"\n]}\n")


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode(errors="replace")


def _metadata(names: Mapping[int, str]) -> Iterator[Event]:
    for lane, name in names.items():
        common = {"ph": "M", "pid": lane, "tid": lane, "ts": 0}
        yield {"name": "process_name", **common, "args": {"name": name}}
        yield {"name": "process_sort_index", **common, "args": {"sort_index": lane}}
        yield {"name": "thread_name", **common, "args": {"name": "steps"}}


def _group_metadata(groups: Iterable[Row]) -> Iterator[Event]:
    for row in groups:
        common = {"ph": "M", "pid": _JOBS + row["job"], "tid": row["communicator"], "ts": 0}
        if row["communicator"] == 0:
            yield {"name": "process_name", **common, "args": {"name": f"job {row['job']}, from the traffic"}}
            yield {"name": "process_sort_index", **common, "args": {"sort_index": common["pid"]}}
        said = f"{row['role']} group {row['communicator']}: {row['hosts']}"
        yield {"name": "thread_name", **common, "args": {"name": said}}


def _within(collectives: pl.DataFrame, start_ns: int, options: TimelineOptions) -> pl.DataFrame:
    """The rows of collective_times in the excerpt, in the order of their starts."""
    from_ns = start_ns + round(options.from_ms * 1e6)
    found = collectives.filter(pl.col("end_ns") >= from_ns)
    if options.length_ms is not None:
        found = found.filter(pl.col("start_ns") < from_ns + round(options.length_ms * 1e6))
    return found.sort("start_ns", "job", "step", "position")


def _collectives(rows: Iterable[Row], start_ns: int) -> Iterator[Drawn]:
    """The collectives of each group of hosts as pairs of asynchronous events: channels overlap."""
    for number, row in enumerate(rows):
        begin, end = row["start_ns"] - start_ns, row["end_ns"] - start_ns
        common = {
            "name": row["kind"], "cat": "collective", "pid": _JOBS + row["job"], "tid": row["communicator"],
            "id": f"collective {number:#x}",
        }  # fmt: skip
        names = ("step", "position", "tensor_bytes", "hosts", "kind_or", "last_host")
        arguments = {name: row[name] for name in names if row[name] is not None}
        yield (
            begin,
            [
                common | {"ph": "b", "ts": begin / 1000, "args": arguments},
                common | {"ph": "e", "ts": end / 1000, "args": {}},
            ],
        )


def _of_profilers(dataset: Dataset, start_ns: int, options: TimelineOptions) -> list[dict[str, Any]]:
    """What profilers recorded in the excerpt, on the captures' clock, in order; nothing without an offset."""
    calls = dataset.query("profiler_collectives")
    if calls.is_empty():
        return []
    offsets = dataset.query("profiler_clocks").select("profiler", "worker", "offset_ns", "uncertainty_ns")
    tracks = calls.select("profiler", "worker").unique().sort("profiler", "worker").with_row_index("track")
    since = (pl.col("start_ns") + pl.col("offset_ns") - start_ns).alias("since_ns")
    lasts = (pl.col("end_ns") - pl.col("start_ns")).fill_null(0).alias("duration_ns")
    clocked = calls.join(offsets, on=["profiler", "worker"]).join(tracks, on=["profiler", "worker"])
    found = clocked.with_columns(since, lasts).drop_nulls("since_ns")
    found = found.filter(pl.col("since_ns") + pl.col("duration_ns") >= max(0, options.from_ms * 1e6))
    if options.length_ms is not None:
        found = found.filter(pl.col("since_ns") < (options.from_ms + options.length_ms) * 1e6)
    return found.sort("since_ns", "track", "call").to_dicts()


def _profiler_metadata(rows: Iterable[Row]) -> Iterator[Event]:
    tracks = {row["track"]: row for row in rows}
    for track, row in sorted(tracks.items()):
        common = {"ph": "M", "pid": _PROFILERS, "tid": track, "ts": 0}
        if track == min(tracks):
            yield {"name": "process_name", **common, "args": {"name": "profilers, on the captures' clock"}}
            yield {"name": "process_sort_index", **common, "args": {"sort_index": _PROFILERS}}
        yield {"name": "thread_name", **common, "args": {"name": f"{row['profiler']} of {row['worker']}"}}


def _recorded(rows: Iterable[Row]) -> Iterator[Drawn]:
    """The collectives of profilers as pairs of asynchronous events: they may overlap."""
    for number, row in enumerate(rows):
        common = {
            "name": row["kind"], "cat": row["profiler"], "pid": _PROFILERS, "tid": row["track"],
            "id": f"profiler {number:#x}",
        }  # fmt: skip
        names = ("bytes", "process_group", "sequence", "uncertainty_ns")
        arguments = {name: row[name] for name in names if row[name] is not None}
        yield (
            row["since_ns"],
            [
                common | {"ph": "b", "ts": row["since_ns"] / 1000, "args": arguments},
                common | {"ph": "e", "ts": (row["since_ns"] + row["duration_ns"]) / 1000, "args": {}},
            ],
        )


def _intervals(rows: Iterable[Row]) -> Iterator[Drawn]:
    """Steps and events as complete events, or as pairs of asynchronous ones where they overlap others of their lane."""
    for number, row in enumerate(rows):
        begin, end = row["since_start_ns"], row["since_start_ns"] + row["duration_ns"]
        name = f"step {row['step']}" if row["kind"] == "step" else " ".join(filter(None, (row["kind"], row["name"])))
        common = {"name": name, "cat": row["kind"], "pid": row["lane"], "tid": row["lane"]}
        arguments = {key: _finite(row[key]) for key in _ARGUMENTS if row[key] is not None}
        if row["is_nested"]:
            drawn = [common | {"ph": "X", "ts": begin / 1000, "dur": row["duration_ns"] / 1000, "args": arguments}]
        else:
            drawn = [
                common | {"ph": "b", "id": f"{number:#x}", "ts": begin / 1000, "args": arguments},
                common | {"ph": "e", "id": f"{number:#x}", "ts": end / 1000, "args": {}},
            ]
        yield begin, drawn


def _counters(rows: Iterable[Row]) -> Iterator[Drawn]:
    for row in rows:
        since_ns = row["since_start_ns"]
        event = {"name": row["flow"], "cat": "flow", "ph": "C", "pid": row["lane"], "ts": since_ns / 1000}
        yield since_ns, [event | {"args": {"Gbit/s": row["gbit_per_s"]}}]


def _finite(value: Any) -> Any:
    """A number; NaN and infinities, which JSON lacks (the loss of a run that diverged), as text."""
    return value if not isinstance(value, float) or math.isfinite(value) else str(value)
