"""TCP: connections of a five-tuple, retransmissions and segments out of order (docs/packets.md; RFC 9293, 3.4)."""

from __future__ import annotations

import numpy as np

from ddnn_traces.ingestors.packets.compiled.flow_table import (
    ACCEPTED,
    CELL_RETX,
    CLOSED,
    FIN,
    FIRST_SEQ,
    HOLE,
    HOLES,
    ISN,
    MARKS,
    MOST_HOLES,
    MSS,
    NEXT,
    OPENED,
    ORDER_BYTES,
    ORDER_PACKETS,
    RETX_BYTES,
    RETX_PACKETS,
    RST,
    SYN,
)
from ddnn_traces.ingestors.packets.compiled.jit import helper, u16

FIN_FLAG, SYN_FLAG, RST_FLAG, ACK_FLAG = 1, 2, 4, 16

# Facts that join.py needs of a connection that was followed from the middle of a file on.
BEGAN_WITH_SYN, SYN_LATER, BELOW_FIRST, MADE_HOLE, NOT_THE_FIRST = 1, 2, 4, 8, 16


@helper
def distance(start, end):
    """From one sequence number to another, -2^31 + 1 to 2^31."""
    return ((end - start + 0x7FFFFFFF) & 0xFFFFFFFF) - 0x7FFFFFFF


@helper
def begins_connection(flow, details, seq):
    """Whether a SYN on the ports of a connection begins another one."""
    if details[flow, CLOSED]:
        return True
    if details[flow, ISN] >= 0:
        return seq != details[flow, ISN]
    return not (details[flow, FIRST_SEQ] >= 0 and ((seq + 1) & 0xFFFFFFFF) == details[flow, FIRST_SEQ])


@helper
def control(flow, details, buf, transport, end, flags, seq):
    """Count SYN, FIN and RST, and store the sequence number and MSS of a SYN."""
    details[flow, FIN] += flags & FIN_FLAG
    details[flow, RST] += (flags & RST_FLAG) >> 2
    if flags & (FIN_FLAG | RST_FLAG):
        details[flow, CLOSED] = 1
    if flags & SYN_FLAG:
        details[flow, SYN] += 1
        details[flow, ACCEPTED if flags & ACK_FLAG else OPENED] += 1
        if details[flow, ISN] < 0:
            details[flow, ISN] = seq
        if details[flow, MSS] < 0:
            details[flow, MSS] = _mss(buf, transport, end)


@helper
def _mss(buf, transport, end):
    """The MSS option of a TCP header, -1 without one or where it was not captured (RFC 9293, 3.1 and 3.2)."""
    last = min(end, transport + np.int64(buf[transport + 12] >> 4) * 4)
    i = transport + 20
    while i + 1 < last:
        kind, size = buf[i], np.int64(buf[i + 1])
        if kind == 1:
            i += 1
            continue
        if kind == 0 or size < 2:
            break
        if kind == 2:
            return u16(buf, i + 2) if size == 4 and i + 4 <= last else np.int64(-1)
        i += size
    return np.int64(-1)


@helper
def segment(flow, flows, details, seq, syn, payload, fin):
    """Follow a segment that occupies sequence space but does not begin where the one before ended. syn, fin: 0 or 1.

    NEXT and the holes go on counting beyond 2^32, so that a hole is not matched again one round of the numbers later.
    """
    expected = flows[flow, NEXT]
    if expected < 0:
        details[flow, FIRST_SEQ] = seq
        flows[flow, NEXT] = seq + syn + payload + fin
        return
    begin = expected + distance(expected, seq)
    following = begin + syn + payload + fin
    if begin > expected:
        _add_hole(flow, details, expected, begin)
    elif begin < expected:
        if begin < details[flow, FIRST_SEQ]:
            details[flow, MARKS] |= BELOW_FIRST
        if payload:
            below = max(np.int64(0), min(expected - begin - syn, payload))
            filled = np.int64(0)
            if details[flow, HOLES]:
                filled = _fill_holes(flow, details, begin + syn, begin + syn + below)
            details[flow, ORDER_PACKETS if filled else RETX_PACKETS] += 1
            details[flow, ORDER_BYTES] += filled
            details[flow, RETX_BYTES] += below - filled
            flows[flow, CELL_RETX] += below - filled
    flows[flow, NEXT] = max(expected, following)


@helper
def _add_hole(flow, details, begin, end):
    """Remember a hole as the newest; the oldest one is forgotten where all are taken."""
    details[flow, MARKS] |= MADE_HOLE
    if details[flow, HOLES] == MOST_HOLES:
        _remove_hole(flow, details, 0)
    at = HOLE + 2 * details[flow, HOLES]
    details[flow, at], details[flow, at + 1] = begin, end
    details[flow, HOLES] += 1


@helper
def _remove_hole(flow, details, number):
    for at in range(HOLE + 2 * number, HOLE + 2 * (details[flow, HOLES] - 1)):
        details[flow, at] = details[flow, at + 2]
    details[flow, HOLES] -= 1


@helper
def _fill_holes(flow, details, begin, end):
    """Take the bytes from `begin` to `end` out of the holes; how many there were."""
    filled, number = np.int64(0), 0
    right_begin = right_end = np.int64(0)
    while number < details[flow, HOLES]:
        at = HOLE + 2 * number
        first, last = details[flow, at], details[flow, at + 1]
        low, high = max(first, begin), min(last, end)
        if high <= low:
            number += 1
            continue
        filled += high - low
        if first < low:
            details[flow, at + 1] = low
            if high < last:
                right_begin, right_end = high, last
            number += 1
        elif high < last:
            details[flow, at] = high
            number += 1
        else:
            _remove_hole(flow, details, number)
    if right_end > right_begin:
        _add_hole(flow, details, right_begin, right_end)
    return filled
