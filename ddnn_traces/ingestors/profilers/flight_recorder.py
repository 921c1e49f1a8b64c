"""PyTorch's flight recorder as JSON: the collectives that each process last scheduled.

Fields: torch/csrc/distributed/c10d/FlightRecorder.hpp and FlightRecorderDetail.hpp of PyTorch (dump_json); those of
PyTorch 2.13 on gloo were looked at. `entries` has record_id, process_group (name and description), collective_seq_id,
p2p_seq_id, op_id, is_p2p, profiling_name, input_sizes and input_dtypes, output_sizes and output_dtypes, time_created_ns
(when the call was made), time_discovered_started_ns, time_discovered_completed_ns (0 or null: not known), duration_ms,
state. `pg_config` has name, desc and ranks of each group. The rank of the process is in the file's name only. On gloo
no end is recorded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from ddnn_traces.ingestors.profilers.calls import (
    Recording,
    count_of,
    is_time,
    kind_of,
    largest,
    ranks_of,
    ranks_text,
    tensors_bytes,
    text_of,
)
from ddnn_traces.ingestors.training_logs import Event
from ddnn_traces.text import counted, shown, valid_text

_STATES = ("scheduled", "started", "completed")


def read(items: Iterator[tuple[str, Any]], recording: Recording) -> None:
    """Take the entries. Raises LogError after those before a fault."""
    unread = 0
    seen: Counter[tuple[Any, ...]] = Counter()
    first: dict[str, int] = {}
    try:
        for key, item in items:
            if key == "pg_config":
                recording.groups |= _groups(item)
            elif key == "entries":
                event = _event(item)
                if event is None:
                    unread += 1
                    continue
                recording.add(event)
                if event.kind not in ("send", "recv") and event.sequence is not None:
                    group = event.process_group or ""
                    seen[group, event.sequence, item.get("op_id")] += 1
                    first[group] = min(first.get(group, event.sequence), event.sequence)
    finally:
        recording.events = [_with_ranks(event, recording) for event in recording.events]
        recording.notes += _notes(unread, seen, first)


def _notes(unread: int, seen: Counter[tuple[Any, ...]], first: dict[str, int]) -> Iterator[str]:
    if unread:
        yield f"{counted(unread, 'record')} without process_group, profiling_name or time_created_ns not read"
    begun = {group: number for group, number in first.items() if number > 1}
    if begun:
        group, number = next(iter(begun.items()))
        yield f"the ring buffer begins at collective {number:,} of group {shown(group)}; earlier ones were overwritten"
    again = [key for key, count in seen.items() if count > 1]
    if again:
        group, number, _ = again[0]
        yield (
            f"{counted(len(again), 'collective')} recorded twice, the first is {number:,} of group {shown(group)}; "
            "all are kept"
        )


def _event(item: Any) -> Event | None:
    """An entry; None where it has no name, group or time."""
    if not isinstance(item, dict):
        return None
    group, created = item.get("process_group"), item.get("time_created_ns")
    name = text_of(item, "profiling_name")
    if not name or not is_time(created) or not isinstance(group, list) or not group or not isinstance(group[0], str):
        return None
    is_p2p = item.get("is_p2p") is True
    state = text_of(item, "state")
    return Event(
        None,
        kind_of(name) or "collective",
        created,
        _end(item, created),
        valid_text(name),
        largest(
            tensors_bytes(item.get("input_sizes"), item.get("input_dtypes")),
            tensors_bytes(item.get("output_sizes"), item.get("output_dtypes")),
        ),
        profiler="flight_recorder",
        process_group=valid_text(group[0]),
        sequence=count_of(item, "p2p_seq_id" if is_p2p else "collective_seq_id"),
        state=state if state in _STATES else None,
    )


def _end(item: dict[str, Any], created: int) -> int | None:
    """When it was seen to have ended; None: not known."""
    completed = item.get("time_discovered_completed_ns")
    return completed if completed and is_time(completed) and completed >= created else None


def _groups(config: Any) -> dict[str, tuple[int, ...]]:
    groups = config.values() if isinstance(config, dict) else ()
    return {
        valid_text(text_of(one, "name")): ranks_of(one.get("ranks"))
        for one in groups
        if isinstance(one, dict) and ranks_of(one.get("ranks"))
    }


def _with_ranks(event: Event, recording: Recording) -> Event:
    """gloo names its only group '' in pg_config, and 0 in entries."""
    groups = recording.groups
    ranks = groups.get(event.process_group or "", next(iter(groups.values())) if len(groups) == 1 else ())
    return event.of_ranks(ranks_text(ranks))
