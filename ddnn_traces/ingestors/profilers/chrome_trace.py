"""Kineto's traces of torch.profiler: the collectives, and the steps that the program marks.

Format: Trace Event Format (JSON object form) as libkineto/src/output_json.cpp writes it: `baseTimeNanoseconds`, `ts`
and `dur` in microseconds, from that base on (before PyTorch 2.4: since the epoch), `distributedInfo` with rank and
pg_config. Of a collective on a GPU there are the host's call and the kernel. Both have the arguments of
record_param_comms (torch/csrc/distributed/c10d/ParamCommsUtils.hpp): Collective name, dtype, In msg nelems, Out msg
nelems, Group size, Process Group Name, Process Group Ranks, Seq. The kernel is taken, as HTA does, and the call where
there is no kernel. On gloo it is the annotation gloo:all_reduce, with Input Dims and Input type under record_shapes;
fields looked at with PyTorch 2.13. `ProfilerStep#N`, `Optimizer.step` and `DistributedDataParallel.forward` are taken,
too: the first numbers what is inside it.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, TypeGuard

from ddnn_traces.ingestors.profilers.calls import (
    MOST_NS,
    Recording,
    count_of,
    element_bytes,
    is_count,
    kind_of,
    largest,
    ranks_of,
    ranks_text,
    tensors_bytes,
    text_of,
)
from ddnn_traces.ingestors.training_logs import Event
from ddnn_traces.text import counted, valid_text

_STEP = re.compile(r"ProfilerStep#(\d{1,18})")
_BACKENDS = ("gloo:", "nccl:", "xccl:", "ucc:", "mpi:", "hccl:")
_CALL = "record_param_comms"


def read(items: Iterator[tuple[str, Any]], recording: Recording) -> None:
    """Take the collectives. Raises LogError after those before a fault."""
    base_ns, others, odd = 0, 0, 0
    steps: list[tuple[int, int, int]] = []
    calls: list[Event] = []  # of the host, for which there may be kernels
    try:
        for key, item in items:
            if key == "baseTimeNanoseconds" and is_count(item):
                base_ns = item
            elif key == "distributedInfo" and isinstance(item, dict):
                _describe(item, recording)
            elif key == "traceEvents":
                if not isinstance(item, dict) or item.get("ph") != "X":
                    others += 1
                    continue
                name = text_of(item, "name")
                times = _times(item)
                if times is None:
                    odd += 1
                elif step := _STEP.fullmatch(name):
                    steps.append((*times, int(step[1])))
                elif event := _event(name, item, times):
                    if name == _CALL:
                        calls.append(event)
                    else:
                        recording.add(event)
                else:
                    others += 1
    finally:
        kernels = {(event.process_group, event.sequence) for event in recording.events if event.state == _KERNEL}
        recording.events += [call for call in calls if (call.process_group, call.sequence) not in kernels]
        _finish(recording, base_ns, sorted(steps))
        if odd:
            recording.notes.append(f"{counted(odd, 'event')} without a time in range not read")


#: Put for a state while a file is read: of an event of the GPU.
_KERNEL = "kernel"


def _finish(recording: Recording, base_ns: int, steps: list[tuple[int, int, int]]) -> None:
    """Times since the epoch, the step of each event, and whole sizes."""
    begins = [begin for begin, _, _ in steps]
    only = next(iter(recording.groups)) if len(recording.groups) == 1 else None
    finished, early = [], 0
    for event in recording.events:
        place = bisect.bisect_right(begins, event.start_ns) - 1
        step = steps[place][2] if place >= 0 and event.start_ns < steps[place][1] else None
        group = event.process_group if event.process_group is not None else only
        ranks = recording.groups.get(group or "", ())
        size = event.bytes
        if event.process_group is None and event.kind in ("allgather", "gather", "scatter") and size is not None:
            size = size * len(ranks) if ranks else None  # the size was that of one rank's part
        start_ns, end_ns = event.start_ns + base_ns, (event.end_ns or 0) + base_ns
        if not 0 <= start_ns <= end_ns < MOST_NS:
            early += 1
            continue
        finished.append(
            replace(
                event, step=step, start_ns=start_ns, end_ns=end_ns, bytes=size, process_group=group, state=None,
                group_ranks=event.group_ranks or ranks_text(ranks),
            )
        )  # fmt: skip
    recording.events = finished
    if early:
        recording.notes.append(f"{counted(early, 'event')} outside of 1970 to 2116 not read")


def _describe(info: dict[str, Any], recording: Recording) -> None:
    recording.rank = count_of(info, "rank")
    config = info.get("pg_config")
    for one in config if isinstance(config, list) else ():
        if isinstance(one, dict) and text_of(one, "pg_name") and ranks_of(one.get("ranks")):
            recording.groups[valid_text(text_of(one, "pg_name"))] = ranks_of(one["ranks"])


def _times(item: dict[str, Any]) -> tuple[int, int] | None:
    """Start and end, ns from the base; None where they are no numbers in range."""
    start, duration = item.get("ts"), item.get("dur", 0)
    if not _is_micros(start) or not _is_micros(duration) or duration < 0:
        return None
    return _ns(start), _ns(start) + _ns(duration)


def _is_micros(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < MOST_NS / 1000


def _ns(micros: float) -> int:
    """Whole microseconds exactly: their product with 1000 as a double may be off by 256 ns."""
    whole = int(micros // 1)
    return whole * 1000 + round((micros - whole) * 1000)


def _event(name: str, item: dict[str, Any], times: tuple[int, int]) -> Event | None:
    """A collective, a forward pass or an optimizer's step; None: something else."""
    arguments = item.get("args")
    arguments = arguments if isinstance(arguments, dict) else {}
    category = text_of(item, "cat")
    if text_of(arguments, "Collective name") and (name == _CALL or category in ("kernel", "gpu_memcpy")):
        return _described(name, arguments, times, is_kernel=name != _CALL)
    if category == "user_annotation" and name.startswith(_BACKENDS):
        size = tensors_bytes(arguments.get("Input Dims"), arguments.get("Input type"))
        return Event(None, kind_of(name) or "collective", *times, valid_text(name), size, profiler="kineto")
    if name.startswith("Optimizer.step#"):
        return Event(None, "update", *times, valid_text(name), profiler="kineto")
    if name == "DistributedDataParallel.forward":
        return Event(None, "forward", *times, name, profiler="kineto")
    return None


def _described(name: str, arguments: dict[str, Any], times: tuple[int, int], is_kernel: bool) -> Event | None:
    """A collective that has its arguments; None for what is none (wait, init)."""
    collective = text_of(arguments, "Collective name")
    kind = kind_of(collective)
    if kind is None:
        return None
    elements = largest(*(count_of(arguments, side) for side in ("In msg nelems", "Out msg nelems")))
    element = element_bytes(arguments.get("dtype"))
    size = elements * element if elements is not None and element is not None and elements < 2**58 else None
    group = text_of(arguments, "Process Group Name")
    return Event(
        None, kind, *times, valid_text(name if is_kernel else collective), size, profiler="kineto",
        process_group=valid_text(group) or None, sequence=count_of(arguments, "Seq"),
        group_ranks=ranks_text(ranks_of(arguments.get("Process Group Ranks"))), state=_KERNEL if is_kernel else None,
    )  # fmt: skip
