"""TCP: connections of a five-tuple, retransmissions and segments out of order (docs/packets.md; RFC 9293, 3.4)."""

from __future__ import annotations

import numpy as np

from ddnn_traces.jit import helper, inlined, u16
from ddnn_traces.pcap.compiled.flow_table import (
    ACCEPTED,
    ACK,
    BELOW,
    CELL_RETX,
    CLOSED,
    CLOSED_WINDOWS,
    DETAIL_COUNTERS,
    FIN,
    FIRST_ACK,
    FIRST_SEQ,
    FORGOTTEN,
    FREE_HOLE,
    HIGHEST,
    HOLE_BEGIN,
    HOLE_END,
    HOLE_ROWS,
    HOLES,
    ISN,
    LAST_SIZE,
    MARKS,
    MOST_HOLES,
    MSS,
    NEXT,
    OFFERED,
    OPENED,
    ORDER_BYTES,
    ORDER_PACKETS,
    RETX_BYTES,
    RETX_PACKETS,
    RST,
    SCALE,
    SYN,
    note,
)
from ddnn_traces.pcap.compiled.trains import LATE, add_alone, close_train
from ddnn_traces.pcap.flow_counters import NOTES

FIN_FLAG, SYN_FLAG, RST_FLAG, ACK_FLAG, ECE_FLAG = 1, 2, 4, 16, 64
CONTROL_FLAGS = FIN_FLAG | SYN_FLAG | RST_FLAG
#: The flags that control() is called for.
RARE_FLAGS = CONTROL_FLAGS | ECE_FLAG

ECE, _ECE_NOTE = DETAIL_COUNTERS["ece_packets"], NOTES["ece_packets"]
#: The shift of windows is at most this (RFC 7323, 2.3).
MOST_SCALE = 14

# Facts that join.py needs of a connection that was followed from the middle of a file on.
BEGAN_WITH_SYN, SYN_LATER, BELOW_FIRST, MADE_HOLE, NOT_THE_FIRST, MANY_HOLES = 1, 2, 4, 8, 16, 32
# The numbers of some of its packets are unknown: fragments, and those whose TCP header was not captured.
NOT_FOLLOWED = 64


@inlined
def acknowledge(flow, flows, details, ack):
    """Take over an acknowledgement number, if it is the highest of the flow so far. ACK goes on beyond 2^32."""
    newer = (ack - flows[flow, ACK]) & 0xFFFFFFFF
    if flows[flow, ACK] < 0:
        flows[flow, ACK] = details[flow, FIRST_ACK] = ack
    elif newer < 0x80000000:
        flows[flow, ACK] += newer


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
def control(flow, details, cells, total, buf, transport, end, flags, seq):
    """Count SYN, FIN, RST and ECE, and store the sequence number, MSS and shift of windows of a SYN."""
    if flags & (ECE_FLAG | SYN_FLAG) == ECE_FLAG:
        details[flow, ECE] += 1
        note(flow, details, cells, total, _ECE_NOTE, np.int64(0))
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
            option = _option(buf, transport, end, np.int64(2), np.int64(4))
            details[flow, MSS] = u16(buf, option) if option >= 0 else np.int64(-1)
        if details[flow, SCALE] < 0:
            option = _option(buf, transport, end, np.int64(3), np.int64(3))
            details[flow, SCALE] = min(np.int64(buf[option]), MOST_SCALE) if option >= 0 else np.int64(-1)


@inlined
def offer(flow, details, window):
    """Count the window that a segment with ACK and none of CONTROL_FLAGS offers."""
    if np.uint64(window - 1) >= np.uint64(details[flow, OFFERED]):  # the largest so far, or 0: in one comparison
        if window:
            details[flow, OFFERED] = window
        else:
            details[flow, CLOSED_WINDOWS] += 1


@helper
def _option(buf, transport, end, wanted, length):
    """Where the value of an option of a TCP header is, -1 where it is not or was not captured (RFC 9293, 3.1, 3.2)."""
    last = min(end, transport + np.int64(buf[transport + 12] >> 4) * 4)
    i = transport + 20
    while i + 1 < last:
        kind, size = buf[i], np.int64(buf[i + 1])
        if kind == 1:
            i += 1
            continue
        if kind == 0 or size < 2:
            break
        if kind == wanted and size == length:  # of another length it is damaged
            return i + 2 if i + size <= last else np.int64(-1)
        i += size
    return np.int64(-1)


@helper
def segment(flow, flows, details, holes, trains, total, seq, syn, payload, fin, ts, flags):
    """Follow a segment that occupies sequence space but does not begin where the one before ended. syn, fin: 0 or 1.

    NEXT and the holes go on counting beyond 2^32, so that a hole is not matched again one round of the numbers later.
    """
    expected = flows[flow, NEXT]
    if expected < 0:
        details[flow, FIRST_SEQ] = seq
        flows[flow, NEXT] = seq + syn + payload + fin
        if payload:  # alone: in a part of a file it may be the last of a message that began before
            add_alone(flow, details, trains, total, seq + syn, payload, payload, ts, flags, np.int64(0))
            details[flow, LAST_SIZE] = payload
        return
    begin = expected + distance(expected, seq)
    following = begin + syn + payload + fin
    if begin > expected:
        if details[flow, FIN] <= fin and not details[flow, RST]:  # else another connection, whose SYN was not captured
            details[flow, MARKS] |= MADE_HOLE
            add_hole(flow, details, holes, total, expected, begin)
    elif begin < expected:
        if begin < details[flow, FIRST_SEQ]:
            details[flow, MARKS] |= BELOW_FIRST
        if payload:
            below = max(np.int64(0), min(expected - begin - syn, payload))
            filled = np.int64(0)
            if details[flow, HOLES]:
                filled = fill_holes(flow, details, holes, total, begin + syn, begin + syn + below)
            details[flow, ORDER_PACKETS if filled else RETX_PACKETS] += 1
            details[flow, ORDER_BYTES] += filled
            details[flow, RETX_BYTES] += below - filled
            flows[flow, CELL_RETX] += below - filled
            if filled:
                add_alone(flow, details, trains, total, begin + syn, filled, payload, ts, flags, np.int64(LATE))
    first_new = max(begin + syn, expected)
    if following > expected:
        close_train(flow, flows, details, trains, total)
        flows[flow, NEXT] = following
    if begin + syn + payload > first_new:
        new = begin + syn + payload - first_new
        add_alone(flow, details, trains, total, first_new, new, payload, ts, flags, np.int64(0))
        details[flow, LAST_SIZE] = payload
    if details[flow, HOLES] > MOST_HOLES // 2:
        details[flow, MARKS] |= MANY_HOLES
        if details[flow, HOLES] > MOST_HOLES:
            forget_lower_holes(flow, details, holes, total)


@helper
def take_row(holes, total):
    """A free row of `holes`; -1 where there is none."""
    row = total[FREE_HOLE] - 1
    if row >= 0:
        total[FREE_HOLE] = holes[row, BELOW]
    elif total[HOLE_ROWS] < len(holes):
        row = total[HOLE_ROWS]
        total[HOLE_ROWS] += 1
    return row


@helper
def _release_row(row, holes, total):
    holes[row, BELOW] = total[FREE_HOLE]
    total[FREE_HOLE] = row + 1


@helper
def add_hole(flow, details, holes, total, begin, end):
    """Remember a hole above all others of the flow; where there is no space, only its bytes."""
    row = take_row(holes, total)
    if row < 0:
        details[flow, FORGOTTEN] += end - begin
        return
    holes[row, HOLE_BEGIN], holes[row, HOLE_END], holes[row, BELOW] = begin, end, details[flow, HIGHEST]
    details[flow, HIGHEST] = row + 1
    details[flow, HOLES] += 1


@helper
def forget_lower_holes(flow, details, holes, total):
    """Remember only the bytes of the lower holes of a flow that has too many."""
    last = details[flow, HIGHEST] - 1
    for _ in range(MOST_HOLES // 2 - 1):
        last = holes[last, BELOW] - 1
    row = holes[last, BELOW] - 1
    holes[last, BELOW] = 0
    details[flow, HOLES] = MOST_HOLES // 2
    while row >= 0:
        below = holes[row, BELOW] - 1
        details[flow, FORGOTTEN] += holes[row, HOLE_END] - holes[row, HOLE_BEGIN]
        _release_row(row, holes, total)
        row = below


@helper
def fill_holes(flow, details, holes, total, begin, end):
    """Take the bytes from `begin` to `end` out of the holes; how many there were."""
    filled, above, row = np.int64(0), np.int64(-1), details[flow, HIGHEST] - 1
    while row >= 0 and holes[row, HOLE_END] > begin:
        first, last, below = holes[row, HOLE_BEGIN], holes[row, HOLE_END], holes[row, BELOW] - 1
        low, high = max(first, begin), min(last, end)
        kept = True
        if low < high:
            filled += high - low
            if first < low and high < last:
                _split_hole(flow, details, holes, total, row, low, high)
            elif first < low:
                holes[row, HOLE_END] = low
            elif high < last:
                holes[row, HOLE_BEGIN] = high
            else:
                kept = False
        if kept:
            above = row
        else:
            if above >= 0:
                holes[above, BELOW] = below + 1
            else:
                details[flow, HIGHEST] = below + 1
            details[flow, HOLES] -= 1
            _release_row(row, holes, total)
        row = below
    return filled


@helper
def _split_hole(flow, details, holes, total, row, low, high):
    """Take the bytes from `low` to `high` out of the middle of a hole."""
    rest = take_row(holes, total)
    if rest < 0:
        details[flow, FORGOTTEN] += low - holes[row, HOLE_BEGIN]
    else:
        holes[rest, HOLE_BEGIN], holes[rest, HOLE_END], holes[rest, BELOW] = (
            holes[row, HOLE_BEGIN],
            low,
            holes[row, BELOW],
        )
        holes[row, BELOW] = rest + 1
        details[flow, HOLES] += 1
    holes[row, HOLE_BEGIN] = high
