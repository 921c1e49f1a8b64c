"""What hosts wrote to each other: the messages of each flow, as arrays."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

MS = 1_000_000  # ns

SILENCE = 0.3 * MS
SMALL = 64  # bytes: gloo's headers have 48, and no data of training is as small
_LEAST_BYTES = 10_000
_LEAST_SHARE = 0.002  # of the largest flow
_PACKET, _NEARLY_ALL = 1500, 0.9  # bytes; share of messages
CONTROL_SHARE = 0.02  # of the bytes that the largest flow of a job sends in a step


@dataclass(frozen=True, eq=False)
class Stream:
    """The messages of a flow, in the order of the stream.

    start: first byte of each, counted from the flow's first data byte. size: bytes. first, last: times of its first and
    last packet, ns. ends: positions where a message ends, by an opcode, a short segment or a silence. sure: those of
    them that no silence tells, which may be within a message, as behind what a shaper lets pass at once.
    """

    flow_id: int
    src: str
    dst: str
    start: Array
    size: Array
    first: Array
    last: Array
    ends: Array
    sure: Array = field(default_factory=lambda: np.zeros(0, int))

    @property
    def hosts(self) -> tuple[str, str]:
        return self.src, self.dst

    @property
    def end(self) -> float:
        """Position behind the last byte."""
        return float(self.start[-1] + self.size[-1])

    def position_at(self, times: Array) -> Array:
        """Position behind the last message that began before each time, bytes."""
        ends = np.concatenate([self.start[:1], self.start + self.size])
        return ends[np.searchsorted(self.first, times, "left")]


def with_data(streams: Iterable[Stream]) -> list[Stream]:
    """The streams that carry data of training: not those of control messages alone, as what a receiver answers."""
    found = [(int(stream.size[stream.size > SMALL].sum()), stream) for stream in streams]
    least = max([_LEAST_BYTES, *(_LEAST_SHARE * size for size, _ in found)])
    sent: Counter[tuple[str, str]] = Counter()
    for size, stream in found:
        sent[stream.hosts] += size
    return [
        stream
        for size, stream in found
        if size >= least and not _is_answer(stream, CONTROL_SHARE * sent[stream.dst, stream.src])
    ]


def _is_answer(stream: Stream, most: float) -> bool:
    """Whether nearly all messages fit into a packet, and these are less than `most` bytes: gRPC's acknowledgements of
    data the other way, of 600 to 900 bytes."""
    in_one = (stream.size > SMALL) & (stream.size <= _PACKET)
    return bool(in_one.sum() >= _NEARLY_ALL * (stream.size > SMALL).sum() and stream.size[in_one].sum() <= most)


def header_bytes(streams: Iterable[Stream]) -> float:
    """Bytes of the header of each message: the size of most small messages, 0 where they have none in common."""
    small = np.concatenate([np.zeros(0, int), *(stream.size[stream.size <= SMALL] for stream in streams)])
    if not len(small):
        return 0.0
    sizes, counts = np.unique(small, return_counts=True)
    most = int(np.argmax(counts))
    return float(sizes[most]) if counts[most] > max(20, len(small) / 2) else 0.0


def hosts_of(streams: Iterable[Stream]) -> frozenset[str]:
    return frozenset(host for stream in streams for host in stream.hosts)


def without_control(sizes: Mapping[Stream, float]) -> list[Stream]:
    """The flows that send more than control messages. sizes: bytes that each flow of a job sends in a step."""
    most = max(sizes.values())
    return [stream for stream, size in sizes.items() if size > CONTROL_SHARE * most]


def by_hosts(streams: Iterable[Stream]) -> dict[tuple[str, str], list[Stream]]:
    """The streams by sender and receiver."""
    found: dict[tuple[str, str], list[Stream]] = {}
    for stream in streams:
        found.setdefault(stream.hosts, []).append(stream)
    return found


def silences_of(streams: Sequence[Stream]) -> tuple[Array, Array]:
    """When silences of all flows end and begin, ns: those in which none has a message."""
    first = np.concatenate([stream.first for stream in streams])
    order = np.argsort(first, kind="stable")
    last = np.maximum.accumulate(np.concatenate([stream.last for stream in streams])[order])
    starts, ends = first[order][1:], last[:-1]
    is_long = starts - ends > SILENCE
    return starts[is_long].astype(float), ends[is_long].astype(float)


def groups(values: Array, gap: float) -> list[Array]:
    """Indices of sorted values, divided where one is more than `gap` above the one before."""
    return np.split(np.arange(len(values)), np.flatnonzero(np.diff(values) > gap) + 1) if len(values) else []


def concatenated(arrays: Sequence[Array], dtype: Any = float) -> Array:
    return np.concatenate([np.zeros(0, dtype), *arrays])


def distance(times: Array, others: Array) -> Array:
    """From each time to the nearest one of `others`, which are sorted; inf where there is none."""
    padded = np.concatenate([[-np.inf], others, [np.inf]])
    place = np.searchsorted(others, times)
    nearest: Array = np.minimum(np.abs(padded[place + 1] - times), np.abs(padded[place] - times))
    return nearest
