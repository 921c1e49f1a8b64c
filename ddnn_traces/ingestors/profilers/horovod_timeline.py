"""Horovod's timeline (HOROVOD_TIMELINE): the collectives, of the tensors that were fused as one.

Format: horovod/common/timeline.cc writes a JSON array of trace events. The first one states when the times begin
(start_time_since_epoch_in_micros); `ts` is in us from then on. Each tensor has a `pid`, named by a metadata event.
There are its negotiation (NEGOTIATE_ALLREDUCE, with a mark of each rank that is ready), and then the operation
(ALLREDUCE) with activities inside, as MEMCPY_IN_FUSION_BUFFER and NCCL_ALLREDUCE (common/common.h). The end of the
operation has the tensor's dtype and shape. Operations of tensors that are fused begin one after the other, before any
activity of them (PerformOperation in common/operations.cc). Tested on documents written after these sources, not on
files of Horovod.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from ddnn_traces.errors import LogError
from ddnn_traces.ingestors.profilers.calls import (
    MOST_EVENTS,
    MOST_NS,
    Recording,
    count_of,
    element_bytes,
    is_count,
    kind_of,
    ranks_text,
    text_of,
)
from ddnn_traces.ingestors.training_logs import Event
from ddnn_traces.text import counted, valid_text

NAME = "horovod_timeline"
_START = "start_time_since_epoch_in_micros"
_RANK = re.compile(r"\d{1,9}")


@dataclass
class _Operation:
    """A collective. begin, end: of the activities that send, us; of the operation where there are none."""

    kind: str
    begin: int
    end: int = 0
    sends: bool = False
    tensors: list[str] = field(default_factory=list)
    sizes: list[int | None] = field(default_factory=list)


@dataclass
class _Tensor:
    """What a pid is: its name, and the intervals that are open, with the operation that each belongs to."""

    name: str = ""
    open: list[tuple[str, _Operation | None]] = field(default_factory=list)


def read(items: Iterator[tuple[str, Any]], recording: Recording) -> None:
    """Take the collectives. Marks of ready ranks are written by the coordinator, which is rank 0.

    Raises LogError after those before a fault, and where a file does not state when its times begin.
    """
    _, first = next(items)
    begin = count_of(_arguments(first), _START)
    if begin is None or begin * 1000 >= MOST_NS:
        raise LogError(f"has no {_START}: it is no timeline of Horovod, or one of an old release, with times from 0 on")
    timeline = _Timeline(begin, recording)
    try:
        for _, item in items:
            timeline.take(item)
    finally:
        timeline.finish()


class _Timeline:
    """The state of a timeline, one event after the other."""

    def __init__(self, begin: int, recording: Recording) -> None:
        self._begin, self._recording = begin, recording
        self._tensors: dict[int, _Tensor] = {}
        self._ranks: set[int] = set()
        self._begun: _Operation | None = None  # tensors that begin an operation now are fused with it
        self._open = self._odd = 0

    def take(self, item: Any) -> None:
        """Raises LogError where there are too many collectives."""
        phase = text_of(item, "ph") if isinstance(item, dict) else None
        if phase == "i":  # CYCLE_START
            return
        pid = count_of(item, "pid") if phase else None
        if pid is None:
            self._odd += 1
            return
        tensor = self._tensors.setdefault(pid, _Tensor())
        if max(len(self._tensors), self._open) > MOST_EVENTS:
            raise LogError(f"has more than {MOST_EVENTS:,} tensors, or intervals without an end")
        name, at = text_of(item, "name"), item.get("ts")
        if phase == "M":
            tensor.name = text_of(_arguments(item), "name") or tensor.name
        elif not is_count(at) or (self._begin + at) * 1000 >= MOST_NS:
            self._odd += 1
        elif phase == "X" and _RANK.fullmatch(name):
            self._ranks.add(int(name))
        elif phase == "B":
            self._open += 1
            tensor.open.append((name, self._begins(tensor, name, at)))
        elif phase == "E" and tensor.open:
            self._ends(tensor, item, at)
        else:
            self._odd += 1

    def _begins(self, tensor: _Tensor, name: str, at: int) -> _Operation | None:
        """The operation that an interval is, or is part of; None for a negotiation."""
        if name.startswith("NEGOTIATE_"):
            return None
        if tensor.open:
            operation = tensor.open[-1][1]
            self._begun = None
            if operation and _kind(name) and not operation.sends:
                operation.begin, operation.sends = at, True
            return operation
        if self._begun is None or self._begun.kind != _kind(name):
            self._begun = _Operation(_kind(name) or "collective", at)
        self._begun.tensors.append(tensor.name)
        return self._begun

    def _ends(self, tensor: _Tensor, item: dict[str, Any], at: int) -> None:
        name, operation = tensor.open.pop()
        self._open -= 1
        if operation is None:
            return
        if tensor.open:  # of an activity
            if _kind(name):
                operation.end = max(operation.end, at)
            return
        if not operation.sends:
            operation.end = max(operation.end, at)
        operation.sizes.append(_bytes(_arguments(item)))
        if self._begun is operation:
            self._begun = None
        if len(operation.sizes) == len(operation.tensors):
            self._recording.add(self._event(operation))

    def _event(self, operation: _Operation) -> Event:
        tensors = operation.tensors
        name = tensors[0] + (f" and {counted(len(tensors) - 1, 'other')}" if len(tensors) > 1 else "")
        sizes = [size for size in operation.sizes if size is not None]
        # the output of a reduce-scatter is a rank's part
        is_known = len(sizes) == len(tensors) and operation.kind != "reduce_scatter" and sum(sizes) < 2**63
        start_ns = (self._begin + operation.begin) * 1000
        return Event(
            None, operation.kind, start_ns, max(start_ns, (self._begin + operation.end) * 1000), valid_text(name),
            sum(sizes) if is_known else None, profiler=NAME,
        )  # fmt: skip

    def finish(self) -> None:
        """Note what was not read."""
        recording = self._recording
        if self._ranks:
            recording.rank = 0
            ranks = ranks_text(range(max(self._ranks) + 1))
            recording.events = [replace(event, group_ranks=ranks) for event in recording.events]
        unended = {id(operation) for tensor in self._tensors.values() for _, operation in tensor.open if operation}
        if unended:
            recording.notes.append(f"{counted(len(unended), 'collective')} without an end not read")
        if self._odd:
            recording.notes.append(f"{counted(self._odd, 'event')} without a tensor, a time or a begin not read")


def _arguments(item: Any) -> dict[str, Any]:
    value = item.get("args") if isinstance(item, dict) else None
    return value if isinstance(value, dict) else {}


def _kind(name: str) -> str | None:
    """The kind of an operation (ALLREDUCE) or of an activity that sends (MPI_ALLREDUCE, NCCL_BCAST); None of others."""
    word = name.rpartition("_")[2]
    return {"BCAST": "broadcast", "ADASUM": "allreduce"}.get(word) or kind_of(word)


def _bytes(arguments: dict[str, Any]) -> int | None:
    """Bytes of a tensor by its dtype (float32) and shape ([3, 4]); None where one is not known."""
    element = element_bytes(arguments.get("dtype"))
    shape = text_of(arguments, "shape")
    if element is None or not re.fullmatch(r"\[(\d{1,18}(, ?\d{1,18})*)?\]", shape):
        return None
    return element * math.prod(map(int, re.findall(r"\d+", shape)))
