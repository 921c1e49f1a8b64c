"""The events of a timeline as Perfetto's own TrackEvents, in protobuf, by the builder of its Python package.

Lanes, jobs and profilers are processes, as in the trace-event format. A track of a process holds slices that nest;
slices that overlap are on tracks of one name, which Perfetto draws as one. Counters have a unit. Times are whole ns.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ddnn_traces.errors import needs_extra

#: Slices of a group, as (begin ns, end ns, event).
Slices = list[tuple[int, int, dict[str, Any]]]
_SEQUENCE = 1


def write(file: Any, about: Mapping[str, Any], events: Iterable[Mapping[str, Any]]) -> None:
    """Write a trace. about: facts of the timeline, arguments of an instant event at its start. events: of perfetto.py.

    Raises MissingExtra without the extra explore.
    """
    with needs_extra("explore"):
        from perfetto.trace_builder.proto_builder import StreamingTraceProtoBuilder
    _Writer(StreamingTraceProtoBuilder(file)).write(about, list(events))


class _Writer:
    def __init__(self, builder: Any) -> None:
        self._builder, self._tracks = builder, 0

    def write(self, about: Mapping[str, Any], events: list[Mapping[str, Any]]) -> None:
        names = {(e["name"], e["pid"], e.get("tid")): e["args"] for e in events if e["ph"] == "M"}
        processes = {pid: args["name"] for (name, pid, _), args in names.items() if name == "process_name"}
        parents = {pid: self._track(name, process=pid) for pid, name in processes.items()}
        drawn = list(self._instant(self._track("ddnn-traces"), about))
        for (pid, tid, overlaps), slices in _slices(events).items():
            name = names.get(("thread_name", pid, tid), {"name": "steps"})["name"]
            rows = _apart(slices) if overlaps else [slices]
            for row in rows:
                drawn += _nested(self._track(f"{name}, overlapping" if overlaps else name, parents[pid]), row)
        counters: dict[tuple[int, str], int] = {}
        for event in events:
            if event["ph"] == "C":
                key = event["pid"], event["name"]
                counters[key] = counters.get(key) or self._track(event["name"], parents[event["pid"]], unit="Gbit/s")
                drawn.append((_ns(event["ts"]), counters[key], "COUNTER", event))
        for at, track, kind, event in sorted(drawn, key=lambda each: each[0]):
            self._event(at, track, kind, event)

    def _track(self, name: str, parent: int = 0, *, process: int | None = None, unit: str = "") -> int:
        self._tracks += 1
        packet = self._packet()
        packet.track_descriptor.uuid = self._tracks
        if process is not None:
            packet.track_descriptor.process.pid = process
            packet.track_descriptor.process.process_name = name
        else:
            packet.track_descriptor.name = name
        if parent:
            packet.track_descriptor.parent_uuid = parent
        if unit:
            packet.track_descriptor.counter.unit_name = unit
        self._builder.write_packet(packet)
        return self._tracks

    def _packet(self) -> Any:
        packet = self._builder.create_packet()
        packet.trusted_packet_sequence_id = _SEQUENCE
        return packet

    def _instant(self, track: int, about: Mapping[str, Any]) -> Iterator[tuple[int, int, str, Mapping[str, Any]]]:
        args = {key: value if isinstance(value, int) else str(value) for key, value in about.items()}
        yield 0, track, "INSTANT", {"name": "about this timeline", "args": args}

    def _event(self, at: int, track: int, kind: str, event: Mapping[str, Any]) -> None:
        packet = self._packet()
        packet.timestamp = at
        written = packet.track_event
        written.track_uuid = track
        written.type = (
            written.DESCRIPTOR.enum_types_by_name["Type"].values_by_name[f"TYPE_{_TYPES.get(kind, kind)}"].number
        )
        if kind == "COUNTER":
            written.double_counter_value = event["args"]["Gbit/s"]
        elif kind != "END":
            written.name = event["name"]
            if "cat" in event:
                written.categories.append(event["cat"])
            for key, value in event["args"].items():
                argument = written.debug_annotations.add(name=key)
                setattr(argument, _VALUES[type(value)], value)
        self._builder.write_packet(packet)


_TYPES = {"BEGIN": "SLICE_BEGIN", "END": "SLICE_END"}
_VALUES: dict[type, str] = {bool: "bool_value", int: "int_value", float: "double_value", str: "string_value"}


def _ns(us: float) -> int:
    return round(us * 1000)


def _slices(events: Iterable[Mapping[str, Any]]) -> dict[tuple[int, int, bool], Slices]:
    """The slices of each track, and those that overlap apart from the others."""
    found: dict[tuple[int, int, bool], Slices] = {}
    begun: dict[tuple[int, str, str], tuple[Slices, int, dict[str, Any]]] = {}
    for event in map(dict, events):
        if event["ph"] == "X":
            begin = _ns(event["ts"])
            slices = found.setdefault((event["pid"], event["tid"], False), [])
            slices.append((begin, begin + _ns(event["dur"]), event))
        elif event["ph"] == "b":
            slices = found.setdefault((event["pid"], event["tid"], True), [])
            begun[event["pid"], event["cat"], event["id"]] = slices, _ns(event["ts"]), event
        elif event["ph"] == "e":
            slices, begin, first = begun.pop((event["pid"], event["cat"], event["id"]))
            slices.append((begin, _ns(event["ts"]), first))
    return found


def _apart(slices: Slices) -> list[Slices]:
    """The slices in as few rows as they need, in none of which two overlap."""
    rows: list[Slices] = []
    free: list[tuple[int, int]] = []  # when a row is free, and its number
    for one in sorted(slices, key=lambda each: each[:2]):
        if free and free[0][0] <= one[0]:
            _, number = heapq.heappop(free)
        else:
            number = len(rows)
            rows.append([])
        rows[number].append(one)
        heapq.heappush(free, (one[1], number))
    return rows


def _nested(track: int, slices: Slices) -> Iterator[tuple[int, int, str, dict[str, Any]]]:
    """Begins and ends of slices that nest or lie apart, in order: the outer begins first, the inner ends first."""
    open_slices: list[int] = []
    for begin, end, event in sorted(slices, key=lambda each: (each[0], -each[1])):
        while open_slices and open_slices[-1] <= begin:
            yield open_slices.pop(), track, "END", {}
        yield begin, track, "BEGIN", event
        open_slices.append(end)
    while open_slices:
        yield open_slices.pop(), track, "END", {}
