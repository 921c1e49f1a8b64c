"""TCP said plainly: connections, and what is out of order or retransmitted; numbers modulo 2^32 (RFC 9293, 3.4)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from naive.headers import Segment

FIN, SYN, RST, ACK = 1, 2, 4, 16
MOST_HOLES = 4


@dataclass
class Connection:
    """What a flow has sent so far. initial: number of its first SYN. first: of its first segment that occupies
    sequence space. holes: begin and length, the newest last."""

    initial: int | None = None
    first: int | None = None
    ended: bool = False
    next: int | None = None
    holes: list[tuple[int, int]] = field(default_factory=list)

    def goes_on_with(self, segment: Segment) -> bool:
        """Whether the segment belongs to this connection; only a SYN may begin another."""
        if not segment.flags & SYN:
            return True
        if self.ended:
            return False
        if self.initial is not None:
            return self.initial == segment.sequence
        return self.first is not None and self.first == (segment.sequence + 1) % 2**32

    def send(self, segment: Segment, payload: int, flow: dict[str, Any]) -> None:
        """Count the segment in the flow's row."""
        syn, fin, rst = (bool(segment.flags & flag) for flag in (SYN, FIN, RST))
        acknowledges = bool(segment.flags & ACK)
        flow["syn_packets"] += syn
        flow["fin_packets"] += fin
        flow["rst_packets"] += rst
        flow["opened"] += syn and not acknowledges
        flow["accepted"] += syn and acknowledges
        self.ended |= fin or rst
        if syn and self.initial is None:
            flow["initial_sequence"] = self.initial = segment.sequence
        if syn and flow["mss"] is None:
            flow["mss"] = segment.mss
        if syn or payload or fin:
            self._occupy(segment.sequence, syn, payload, fin, flow)

    def _occupy(self, sequence: int, syn: bool, payload: int, fin: bool, flow: dict[str, Any]) -> None:
        following = (sequence + syn + payload + fin) % 2**32
        if self.first is None:
            self.first = sequence
        if self.next is None or sequence == self.next:
            self.next = following
        elif is_below(sequence, self.next):
            if payload:
                self._send_again((sequence + syn) % 2**32, payload, flow)
            if is_below(self.next, following):
                self.next = following
        else:
            self._remember([*self.holes, (self.next, (sequence - self.next) % 2**32)])
            self.next = following

    def _send_again(self, start: int, payload: int, flow: dict[str, Any]) -> None:
        """Payload of a segment that begins below `next`: what of it fills holes, and what was there before."""
        below = min(payload, (self.next - start) % 2**32) if is_below(start, self.next) else 0
        filled = self._fill(start, below)
        flow["out_of_order_bytes"] += filled
        flow["retransmitted_bytes"] += below - filled
        flow["out_of_order_packets" if filled else "retransmitted_packets"] += 1

    def _fill(self, start: int, length: int) -> int:
        """Take `length` bytes from `start` on out of the holes; how many were in any."""
        kept, behind, filled = [], [], []
        for begin, size in self.holes:
            at = distance(start, begin)  # begin of the hole, counted from `start`
            low, high = max(at, 0), min(at + size, length)
            if low >= high:
                kept.append((begin, size))
                continue
            filled.append((low, high))
            left, right = low - at, at + size - high
            rest = ((start + high) % 2**32, right)
            if left:
                kept.append((begin, left))
            if right:
                (behind if left else kept).append(rest)
        self._remember(kept + behind)
        return covered(filled)

    def _remember(self, holes: list[tuple[int, int]]) -> None:
        self.holes = holes[-MOST_HOLES:]


def covered(ranges: list[tuple[int, int]]) -> int:
    """Numbers that are in any of the ranges: after a lap of 2^32 bytes, holes may lie on each other."""
    count, reached = 0, 0
    for low, high in sorted(ranges):
        count += max(0, high - max(low, reached))
        reached = max(reached, high)
    return count


def is_below(number: int, other: int) -> bool:
    return 0 < (other - number) % 2**32 < 2**31


def distance(start: int, end: int) -> int:
    """From one sequence number to another, -2^31 to 2^31 - 1."""
    return (end - start + 2**31) % 2**32 - 2**31
