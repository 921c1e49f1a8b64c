"""Whether a file is a trace in the trace-event format (JSON object form), by the rules of the format's definition.

Checked are the phases that this project writes: M (metadata), X (complete), b and e (asynchronous), C (counter).
"""

from __future__ import annotations

import math
from typing import Any

#: Metadata events and the argument that each must have.
METADATA = {"process_name": ("name", str), "thread_name": ("name", str), "process_sort_index": ("sort_index", int)}

#: Fields that each phase must have besides name, ph, pid and ts.
REQUIRED = {"M": {"args"}, "X": {"tid", "dur"}, "b": {"tid", "id", "cat"}, "e": {"tid", "id", "cat"}, "C": {"args"}}

KNOWN = {"name", "cat", "ph", "ts", "dur", "pid", "tid", "id", "args"}


def problems(trace: Any) -> list[str]:
    """What is wrong with a parsed trace; nothing where it is sound."""
    if not isinstance(trace, dict) or not isinstance(trace.get("traceEvents"), list):
        return ["no JSON object with a list of traceEvents"]
    found = [] if trace.get("displayTimeUnit") in ("ms", "ns", None) else ["displayTimeUnit is neither ms nor ns"]
    events = trace["traceEvents"]
    found += [f"event {i}: {problem}" for i, event in enumerate(events) for problem in _event_problems(event)]
    if found:
        return found
    return [*_order(events), *_nesting(events), *_pairs(events), *_names(events)]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _event_problems(event: Any) -> list[str]:
    if not isinstance(event, dict):
        return ["is no object"]
    phase = event.get("ph")
    if phase not in REQUIRED:
        return [f"phase {phase!r} is not known"]
    needed = {"name", "ph", "pid", "ts"} | REQUIRED[phase]
    found = [f"lacks {name}" for name in sorted(needed - event.keys())]
    found += [f"has {name}, which is no field" for name in sorted(event.keys() - KNOWN)]
    found += [f"{name} is no text" for name in ("name", "cat") if not isinstance(event.get(name, ""), str)]
    found += [f"{name} is no whole number" for name in ("pid", "tid") if type(event.get(name, 0)) is not int]
    for name in ("ts", "dur"):
        if not _is_number(event.get(name, 0)) or event.get(name, 0) < 0:
            found.append(f"{name} is no time from 0 on")
    arguments = event.get("args", {})
    if not isinstance(arguments, dict):
        return [*found, "args is no object"]
    if phase == "C" and not (arguments and all(map(_is_number, arguments.values()))):
        found.append("a counter needs numbers")
    if phase == "M":
        key, kind = METADATA.get(event.get("name", ""), ("", object))
        if not isinstance(arguments.get(key), kind) or not key:
            found.append("metadata of an unknown name or without its argument")
    return found


def _order(events: list[dict[str, Any]]) -> list[str]:
    """Counters of a name go forward in time, and so do the complete events of a lane, as they stand in the file."""
    last: dict[tuple[Any, ...], float] = {}
    found = []
    for event in events:
        if event["ph"] in ("C", "X"):
            key = (event["ph"], event["pid"], event.get("tid"), event["name"] if event["ph"] == "C" else "")
            if event["ts"] < last.get(key, 0) or (event["ph"] == "C" and event["ts"] == last.get(key)):
                found.append(f"{event['name']} at {event['ts']} goes back in time")
            last[key] = event["ts"]
    return found


def _nesting(events: list[dict[str, Any]]) -> list[str]:
    """Complete events of a lane lie next to or inside each other, to the nanosecond."""
    found = []
    open_until: dict[tuple[int, int], list[int]] = {}
    for event in sorted((e for e in events if e["ph"] == "X"), key=lambda e: (e["ts"], -e["dur"])):
        begin, end = round(event["ts"] * 1000), round(event["ts"] * 1000) + round(event["dur"] * 1000)
        stack = open_until.setdefault((event["pid"], event["tid"]), [])
        while stack and stack[-1] <= begin:
            stack.pop()
        if stack and end > stack[-1]:
            found.append(f"{event['name']} at {event['ts']} leaves the event around it")
        stack.append(end)
    return found


def _pairs(events: list[dict[str, Any]]) -> list[str]:
    """Each asynchronous begin has one end, not before it."""
    begun: dict[tuple[Any, ...], float] = {}
    found = []
    for event in events:
        key = (event["pid"], event.get("cat"), event.get("id"), event["name"])
        if event["ph"] == "b":
            if key in begun:
                found.append(f"{key} begins twice")
            begun[key] = event["ts"]
        elif event["ph"] == "e" and begun.pop(key, math.inf) > event["ts"]:
            found.append(f"{key} ends before it begins")
    return found + [f"{key} never ends" for key in begun]


def _names(events: list[dict[str, Any]]) -> list[str]:
    """Each process that has events has one name."""
    named = [event["pid"] for event in events if event["name"] == "process_name"]
    used = {event["pid"] for event in events}
    found = [] if len(named) == len(set(named)) else ["a process has two names"]
    return found + [f"process {pid} has no name" for pid in sorted(used - set(named))]
