"""Messages of one flow from its packets, by docs/packets.md, "Messages": in plain Python, byte by byte.

Packets are rows of the table packets, in the order of the file. Nothing is taken from the package.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import log2
from typing import Any

PSH = 8
#: Rows as of the table messages, without names: stream_offset, bytes, packets, times of the first and last packet,
#: end_source, pushed.
Row = tuple[int, int, int, int, int, str, bool | None]


@dataclass
class Segment:
    """Payload that is new in the stream. start: place of its first new byte; size: of all its payload."""

    time_ns: int
    start: int
    new: int
    size: int
    pushed: bool
    late: bool


@dataclass
class Message:
    """Segments of one message."""

    segments: list[Segment] = field(default_factory=list)
    end: str = "last"

    def row(self, base: int) -> Row:
        times = [each.time_ns for each in self.segments]
        in_order = [each for each in self.segments if not each.late]
        sums = sum(each.new for each in self.segments), len(self.segments)
        pushed = bool(in_order) and in_order[-1].pushed
        return self.segments[0].start - base, *sums, min(times), max(times), self.end, pushed


def of_tcp(
    packets: Sequence[Mapping[str, Any]], silence_ns: int = 200_000, segment_size: int | None = None
) -> list[Row]:
    """The messages of a connection. segment_size: payload of a full segment, as far as its SYN tells."""
    segments = new_segments(packets)
    if not segments:
        return []
    full = max(each.size for each in segments)
    limited = full % segment_size == 0 if segment_size else full >= 1200
    uses_psh = any(each.pushed for each in segments)
    messages = [Message()]
    gaps: list[tuple[int, bool]] = []  # behind full segments: length, whether longer than a silence
    last: Segment | None = None
    for each in sorted((each for each in segments if not each.late), key=lambda each: each.start):
        if last is not None:
            gap, message = each.time_ns - last.time_ns, messages[-1]
            is_links = False
            if last.size == full:
                gaps.append((gap, gap > silence_ns))
                is_links = limited and gap <= links_time(gaps, full, message, last)
            if is_short(message, full, segment_size, uses_psh):
                message.end = "short_segment"
            elif gap > silence_ns and not is_links:
                message.end = "silence"
            if message.end != "last":
                messages.append(Message())
        messages[-1].segments.append(each)
        last = each
    if is_short(messages[-1], full, segment_size, uses_psh):
        messages[-1].end = "short_segment"
    for each in segments:
        if each.late:
            holder = [m for m in messages if m.segments[0].start <= each.start] or messages[:1]
            holder[-1].segments.append(each)
    base = min(each.start for each in segments)
    return [message.row(base) for message in messages]


def is_short(message: Message, full: int, segment_size: int | None, uses_psh: bool) -> bool:
    """Whether the message ends by its last segment so far."""
    *before, last = message.segments
    is_last = last.pushed if uses_psh else bool(before) and before[-1].size == full
    is_whole = last.size % segment_size == 0 if segment_size else last.size == full
    return is_last and not is_whole


def new_segments(packets: Sequence[Mapping[str, Any]]) -> list[Segment]:
    """Each packet's payload that no packet before had."""
    seen: set[int] = set()
    highest: int | None = None  # after the highest place so far
    found = []
    for packet in packets:
        sequence, size = packet["tcp_seq"], packet["payload_bytes"]
        if not size:
            if packet["tcp_flags"] & 2 and highest is None:
                highest = sequence + 1
            continue
        highest = sequence if highest is None else highest
        start = highest + (sequence - highest + 2**31 - 1) % 2**32 - 2**31 + 1
        places = [place for place in range(start, start + size) if place not in seen]
        pushed = bool(packet["tcp_flags"] & PSH)
        above = [place for place in places if place >= highest]
        below = [place for place in places if place < highest and seen]
        if below:
            found.append(Segment(packet["ts_ns"], start, len(below), size, pushed, True))
        if above:
            found.append(Segment(packet["ts_ns"], above[0], len(above), size, pushed, False))
        seen.update(places)
        highest = max(highest, start + size)
    return found


def links_time(gaps: Sequence[tuple[int, bool]], full: int, message: Message, last: Segment) -> float:
    """What may have passed on the link for what was sent: of the mean gap behind full segments, the queue of it."""
    if len(gaps) < 4:
        return 0
    long = sorted(int(log2(gap) * 8) for gap, is_long in gaps if is_long)
    total = 0
    for number, (gap, is_long) in enumerate(gaps):
        # as it was known then: the median of those so far
        so_far = sorted(int(log2(g) * 8) for g, is_l in gaps[: number + 1] if is_l)
        most = 2.5 * 2.0 ** ((so_far[(len(so_far) + 1) // 2 - 1] + 1) / 8) if is_long else gap
        total += int(min(gap, most))
    assert long or total >= 0
    ns_per_byte = total / (full * len(gaps))
    sent = sum(each.new for each in message.segments)
    queue = sent * ns_per_byte - (last.time_ns - message.segments[0].time_ns)
    return 2.5 * max(queue, last.size * ns_per_byte)
