"""Chakra execution traces: the collectives, sends and receives of a rank.

Format: chakra_format.py. The rank is in the file's name (NAME.RANK.et). comm_size is what a rank gives: of an
all-gather its own part, whose whole is told where comm_groups.json has the ranks of the group. start_time_micros is
since the epoch where the trace was linked with one of Kineto, else from the start of the trace.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ddnn_traces.chakra_format import COLL, COMM_TYPES, GROUPS, RECV, SEND, attributes_of, nodes
from ddnn_traces.errors import LogError
from ddnn_traces.ingestors.profilers.calls import MOST_NS, Recording, count_of, kind_of, ranks_of, ranks_text
from ddnn_traces.ingestors.training_logs import Event
from ddnn_traces.text import counted, valid_text

NAME = "chakra"


def read(path: Path, recording: Recording) -> None:
    """Take the communication of a rank. Raises LogError after what is before a fault, and OSError."""
    groups = _groups(path.parent / GROUPS)
    rank = path.name.split(".")[-2]
    recording.rank = int(rank) if rank.isascii() and rank.isdigit() else None
    odd = 0
    try:
        for node in nodes(path):
            if node.type not in (COLL, SEND, RECV):
                continue
            event = _event(node, attributes_of(node), groups)
            if event is None:
                odd += 1
            else:
                recording.add(event)
    except ValueError as error:
        raise LogError(str(error)) from None
    finally:
        if odd:
            recording.notes.append(f"{counted(odd, 'node')} without comm_type or a time in range not read")


def _groups(path: Path) -> dict[str, tuple[int, ...]]:
    """Ranks of the groups by their names; none where the file has none."""
    try:
        found = json.loads(path.read_bytes()) if path.is_file() and path.stat().st_size < 1 << 26 else {}
    except (OSError, ValueError, RecursionError):
        return {}
    return {str(name): ranks_of(ranks) for name, ranks in found.items()} if isinstance(found, dict) else {}


def _event(node: Any, values: dict[str, Any], groups: dict[str, tuple[int, ...]]) -> Event | None:
    start_ns = node.start_time_micros * 1000
    end_ns = start_ns + node.duration_micros * 1000
    kind, size = _kind(node.type, count_of(values, "comm_type")), count_of(values, "comm_size")
    if kind is None or end_ns >= MOST_NS:
        return None
    group = str(values.get("pg_name", ""))
    ranks = groups.get(group, ())
    if kind in ("allgather", "gather") and size is not None:
        size = size * len(ranks) if ranks and size * len(ranks) < 2**63 else None
    return Event(
        None, kind, start_ns, end_ns if node.duration_micros else None, valid_text(node.name), size, profiler=NAME,
        process_group=valid_text(group) or None, group_ranks=ranks_text(ranks),
    )  # fmt: skip


def _kind(node: int, number: int | None) -> str | None:
    """The kind of the table events for a node of this type and comm_type; None for a collective of no known one."""
    if node != COLL:
        return {SEND: "send", RECV: "recv"}[node]
    return kind_of(COMM_TYPES[number]) if number is not None and number < len(COMM_TYPES) else None
