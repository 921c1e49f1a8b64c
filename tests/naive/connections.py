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
    sequence space. next, holes (begin and end, the newest last): numbers that go on counting beyond 2^32."""

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
        if self.next is None:
            self.first = self.next = sequence
        begin = self.next + distance(self.next, sequence)
        if begin > self.next:
            self._remember([*self.holes, (self.next, begin)])
        elif begin < self.next and payload:
            self._send_again(begin + syn, payload, flow)
        self.next = max(self.next, begin + syn + payload + fin)

    def _send_again(self, start: int, payload: int, flow: dict[str, Any]) -> None:
        """Payload of a segment that begins below `next`: what of it fills holes, and what was there before."""
        end = min(start + payload, self.next)
        filled = self._fill(start, end)
        flow["out_of_order_bytes"] += filled
        flow["retransmitted_bytes"] += max(0, end - start) - filled
        flow["out_of_order_packets" if filled else "retransmitted_packets"] += 1

    def _fill(self, start: int, end: int) -> int:
        """Take the bytes from `start` to `end` out of the holes; how many were in any."""
        kept, behind, filled = [], [], 0
        for first, last in self.holes:
            low, high = max(first, start), min(last, end)
            if low >= high:
                kept.append((first, last))
                continue
            filled += high - low
            left, right = (first, low), (high, last)
            if first < low:
                kept.append(left)
            if high < last:
                (behind if first < low else kept).append(right)
        self._remember(kept + behind)
        return filled

    def _remember(self, holes: list[tuple[int, int]]) -> None:
        self.holes = holes[-MOST_HOLES:]


def distance(start: int, end: int) -> int:
    """From one sequence number to another, modulo 2^32, -2^31 + 1 to 2^31."""
    return (end - start + 2**31 - 1) % 2**32 - 2**31 + 1
