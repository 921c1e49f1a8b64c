"""NCCL Inspector's JSON: a document a collective, one after the other.

Fields: ext-profiler/inspector/README.md and inspector.cc of NCCL, format v4.0: `header` with id (of the communicator),
rank and n_ranks in it, `coll_perf` with coll, coll_sn, coll_msg_size_bytes and, with NCCL_INSPECTOR_DUMP_VERBOSE=1,
event_trace_ts in us since the epoch (coll_start_ts, coll_stop_ts, kernel_events). Without these a collective has no
time and is not read. The size is that of a rank's part in all-gather and reduce-scatter. Tested on documents written
after the README's examples, not on files of NCCL.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ddnn_traces.errors import LogError
from ddnn_traces.ingestors.profilers.calls import MOST_NS, Recording, count_of, is_count, kind_of, text_of
from ddnn_traces.ingestors.training_logs import Event
from ddnn_traces.text import counted, valid_text


def read(documents: Iterator[Any], recording: Recording) -> None:
    """Take the collectives. The rank is that in the largest communicator. Raises LogError where there are too many."""
    unread, untimed, largest = 0, 0, -1
    try:
        for document in documents:
            header, call = (_object(document, name) for name in ("header", "coll_perf"))
            ranks = header.get("n_ranks")
            if isinstance(document, LogError) or not text_of(call, "coll") or not is_count(ranks):
                unread += 1
                continue
            if ranks > largest and is_count(header.get("rank")):
                largest, recording.rank = ranks, header["rank"]
            event = _event(header, call, ranks)
            if event is None:
                untimed += 1
            else:
                recording.add(event)
    finally:
        if unread:
            recording.notes.append(f"{counted(unread, 'document')} without header and coll_perf not read")
        if untimed:
            recording.notes.append(
                f"{counted(untimed, 'collective')} without event_trace_ts not read; NCCL_INSPECTOR_DUMP_VERBOSE=1 "
                "writes it"
            )


def _event(header: dict[str, Any], call: dict[str, Any], ranks: int) -> Event | None:
    """A collective; None where it has no time."""
    times = _object(call, "event_trace_ts")
    kernels = times.get("kernel_events")
    kernels = [kernel for kernel in kernels if isinstance(kernel, dict)] if isinstance(kernels, list) else []
    stops = [times.get("coll_stop_ts"), *(kernel.get("kernel_stop_ts") for kernel in kernels)]
    start, known = times.get("coll_start_ts"), [stop for stop in stops if is_count(stop) and stop * 1000 < MOST_NS]
    if not is_count(start) or not 0 < start * 1000 < MOST_NS or (known and max(known) < start):
        return None
    kind = kind_of(text_of(call, "coll")) or "collective"
    size = count_of(call, "coll_msg_size_bytes")
    parts = ranks if kind in ("allgather", "reduce_scatter") else 1
    whole = size * parts if size is not None and size * parts < 2**63 else None
    return Event(
        None, kind, start * 1000, max(known) * 1000 if known else None, valid_text(text_of(call, "coll")), whole,
        profiler="nccl_inspector", process_group=valid_text(text_of(header, "id")) or None,
        sequence=count_of(call, "coll_sn"),
    )  # fmt: skip


def _object(item: Any, name: str) -> dict[str, Any]:
    value = item.get(name) if isinstance(item, dict) else None
    return value if isinstance(value, dict) else {}
