"""What all profilers' formats have in common: names of collectives, sizes of tensors, and what a file gives."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeGuard

from ddnn_traces.errors import LogError
from ddnn_traces.ingestors.training_logs import Event

#: Events that are kept of one file: some 300 bytes of memory each.
MOST_EVENTS = 1_000_000
#: As of training logs: times end in 2116.
MOST_NS = 2**62

_KINDS = {
    "allreduce": "allreduce", "allreducecoalesced": "allreduce", "allgather": "allgather", "allgatherbase": "allgather",
    "allgatherv": "allgather", "allgathercoalesced": "allgather", "allgatherinto": "allgather",
    "allgatherintotensor": "allgather", "allgatherintotensorcoalesced": "allgather", "reducescatter": "reduce_scatter",
    "reducescatterbase": "reduce_scatter", "reducescatterv": "reduce_scatter", "reducescattertensor": "reduce_scatter",
    "reducescattertensorcoalesced": "reduce_scatter", "alltoall": "alltoall", "alltoallv": "alltoall",
    "alltoallbase": "alltoall", "alltoallsingle": "alltoall", "broadcast": "broadcast", "broadcastoop": "broadcast",
    "reduce": "reduce", "reduceoop": "reduce", "gather": "gather", "scatter": "scatter", "barrier": "barrier",
    "send": "send", "recv": "recv", "recvanysource": "recv",
}  # fmt: skip
#: Bytes of an element, by PyTorch's names of types without their marks (ScalarType, and those of C++ in traces), and
#: Horovod's (DataType_Name).
_SIZES = {
    "byte": 1, "char": 1, "bool": 1, "unsignedchar": 1, "signedchar": 1, "short": 2, "half": 2, "bfloat16": 2,
    "int": 4, "float": 4, "long": 8, "longint": 8, "double": 8, "complexhalf": 4, "complexfloat": 8,
    "complexdouble": 16, "float8e5m2": 1, "float8e4m3fn": 1, "float8e5m2fnuz": 1, "float8e4m3fnuz": 1, "uint16": 2,
    "uint32": 4, "uint64": 8, "uint8": 1, "int8": 1, "int16": 2, "int32": 4, "int64": 8, "float16": 2, "float32": 4,
    "float64": 8,
}  # fmt: skip


@dataclass
class Recording:
    """What one file gives. profiler: as in the table events. rank: of its process, by its content; None: not said.

    groups: ranks of each group of processes, by its name, where said. notes: what is wrong with it, without its name.
    """

    profiler: str
    rank: int | None = None
    events: list[Event] = field(default_factory=list)
    groups: dict[str, tuple[int, ...]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def add(self, event: Event) -> None:
        """Raises LogError where there are too many."""
        if len(self.events) == MOST_EVENTS:
            raise LogError(f"has more than {MOST_EVENTS:,} collectives, of which these are read")
        self.events.append(event)


def kind_of(name: str) -> str | None:
    """The kind of events for a library's name of a collective (nccl:_all_gather_base, c10d::allreduce_, AllReduce)."""
    word = re.split(r"[:\s]", name.strip().removeprefix("c10d::").split(":", 1)[-1].strip())[0]
    return _KINDS.get(re.sub(r"[^a-z]", "", word.lower()))


def element_bytes(dtype: Any) -> int | None:
    """Bytes of an element of this type; None where it is not known."""
    if not isinstance(dtype, str):
        return None
    return _SIZES.get(re.sub(r"[^a-z0-9]", "", dtype.lower().removeprefix("c10::").removeprefix("torch.")))


def tensors_bytes(sizes: Any, dtypes: Any) -> int | None:
    """Bytes of tensors of these sizes, a list of dimensions each; None where a size or type is not known."""
    if not isinstance(sizes, list) or not isinstance(dtypes, list) or len(sizes) != len(dtypes):
        return None
    total = 0
    for dimensions, dtype in zip(sizes, dtypes, strict=True):
        size = element_bytes(dtype)
        if size is None or not isinstance(dimensions, list) or not all(map(is_count, dimensions)):
            return None
        total += size * math.prod(dimensions)
    return total if 0 <= total < 2**63 else None


def largest(*sizes: int | None) -> int | None:
    """The larger of the known sizes: the whole tensor of an all-gather or a reduce-scatter is one of them."""
    return max((size for size in sizes if size is not None), default=None)


def is_count(value: Any) -> TypeGuard[int]:
    """Whether a value of a file is a whole number from 0 that a table holds."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63


def count_of(item: Mapping[str, Any], name: str) -> int | None:
    """A whole number from 0 of an item; None where it has none."""
    value = item.get(name)
    return value if is_count(value) else None


def is_time(value: Any) -> TypeGuard[int]:
    """Whether a value of a file is a number of ns since the epoch in the range of tables."""
    return is_count(value) and value < MOST_NS


def ranks_text(ranks: Iterable[int]) -> str | None:
    """Ranks as events.group_ranks has them."""
    return ",".join(map(str, ranks)) or None


def ranks_of(value: Any) -> tuple[int, ...]:
    """Ranks in a list, or in a text such as [0, 1, 2]; empty where there are none, or some are left out (...)."""
    if isinstance(value, str) and re.fullmatch(r"\[?\s*(\d{1,9}\s*(,\s*\d{1,9}\s*)*)?\]?", value):
        return tuple(map(int, re.findall(r"\d+", value)))
    if isinstance(value, list) and all(map(is_count, value)):
        return tuple(value)
    return ()


def text_of(item: Mapping[str, Any], name: str) -> str:
    """A text of an item; '' where it has none."""
    value = item.get(name)
    return value if isinstance(value, str) else ""
