"""RoCEv2's reliability: numbers sent again, late or missing, NAKs and notifications (docs/packets.md).

A queue pair has a stream of numbers for requests and one for answers to RDMA READ, and a flow here has one opcode. The
flow of a stream that was met first leads it: its row holds what is followed from packet to packet.
"""

from __future__ import annotations

import numpy as np

from ddnn_traces.jit import helper, u16, u32
from ddnn_traces.pcap.compiled.connections import (
    BELOW_FIRST,
    MADE_HOLE,
    MANY_HOLES,
    add_hole,
    fill_holes,
    forget_lower_holes,
)
from ddnn_traces.pcap.compiled.flow_table import (
    ALLOWED,
    DETAIL_COUNTERS,
    HOLES,
    LEADER,
    MARKS,
    MOST_HOLES,
    PSN_FIRST,
    PSN_NEXT,
    find_slot,
    note,
)
from ddnn_traces.pcap.compiled.trains import has_syndrome
from ddnn_traces.pcap.flow_counters import NOTES

NAK, RNR, CNP, REPEATED, REPEATED_BYTES, LATE, MISSING = (
    DETAIL_COUNTERS[name]
    for name in (
        "nak_packets", "rnr_packets", "cnp_packets", "psn_repeated_packets", "psn_repeated_bytes", "psn_late_packets",
        "psn_missing_packets",
    )
)  # fmt: skip
_NAK_NOTE, _RNR_NOTE, _CNP_NOTE, _REPEATED_NOTE = (
    NOTES[name] for name in ("nak_packets", "rnr_packets", "cnp_packets", "psn_repeated_packets")
)
CNP_OPCODE, READ_REQUEST = 0x81, 12
#: Numbers further away than this are those of another connection of the queue pair.
MOST_JUMP = 1 << 16
#: The smallest packet of the answer to a READ: the least MTU.
_LEAST_MTU = 256
_OPCODE_FROM, _OPCODE_BITS = np.uint64(24), np.uint64(0xFF << 24)
REQUEST, ANSWER = 1, 2


def _streams():
    """By opcode: the stream that its packets number, 0 for none; and the bytes around the data of a packet."""
    streams, around = np.zeros(256, np.int64), np.zeros(256, np.int64)
    extended = {3: 4, 5: 4, 6: 16, 9: 4, 10: 16, 11: 20, 12: 16, 13: 4, 15: 4, 16: 4, 19: 28, 20: 28, 22: 4, 23: 4}
    for transport, headers in ((0x00, 12), (0x20, 12), (0xA0, 16)):  # RC, UC, XRC
        for operation in (*range(12), 22, 23) if transport == 0x20 else (*range(17), 19, 20, 22, 23):
            is_answer = 13 <= operation <= 16
            streams[transport | operation] = ANSWER if is_answer else REQUEST
            own = 12 if is_answer else headers  # answers have no header of XRC
            around[transport | operation] = own + extended.get(operation, 0) + 4
    return streams, around


STREAMS, _AROUND = _streams()


@helper
def find_leader(slots, keys, details, salt, a, b, c, d, e, f, opcode):
    """The flow that leads the stream of a key, whose sixth word is f; -1 where none has it yet."""
    rest = f & ~_OPCODE_BITS
    transport = opcode & 0xE0
    for operation in range(24):
        if STREAMS[transport | operation] == STREAMS[opcode]:
            word = rest | np.uint64(transport | operation) << _OPCODE_FROM
            flow = np.int64(slots[find_slot(slots, keys, salt, a, b, c, d, e, word)])
            if flow >= 0 and details[flow, LEADER]:
                return details[flow, LEADER] - 1
    return np.int64(-1)


@helper
def lead(slots, keys, details, salt, a, b, c, d, e, f, opcode, flow):
    """Enter the leader of a new flow: itself, where no other has its stream."""
    if STREAMS[opcode] == 0:
        return
    leader = find_leader(slots, keys, details, salt, a, b, c, d, e, f, opcode)
    details[flow, PSN_NEXT] = -1
    details[flow, LEADER] = (leader if leader >= 0 else flow) + 1


@helper
def number_distance(start, end):
    """From one packet sequence number to another, -2^23 + 1 to 2^23."""
    return ((end - start + 0x7FFFFF) & 0xFFFFFF) - 0x7FFFFF


@helper
def _allowed_after(buf, at, end, opcode, operation):
    """How many numbers after a packet may be in the other stream: after a READ request those of its answer (RETH's
    length: its last 4 bytes), after an answer those of other requests."""
    if operation == 15 or operation == 16:
        return np.int64(MOST_JUMP)
    if operation != READ_REQUEST:
        return np.int64(0)
    reth = at + (12 if opcode < 0x20 else 16)
    if reth + 16 > end:
        return np.int64(MOST_JUMP)
    return max((u32(buf, reth + 12) + _LEAST_MTU - 1) // _LEAST_MTU - 1, np.int64(0))


@helper
def _number(flow, leader, details, holes, total, number, goes_on):
    """Follow the number of a packet: whether it was met before. goes_on: its message began before it."""
    expected = details[leader, PSN_NEXT]
    if expected < 0:
        details[leader, PSN_FIRST], details[leader, PSN_NEXT] = number, number + 1
        return False
    ahead = number_distance(expected, number)
    if ahead == 0:
        details[leader, PSN_NEXT] = expected + 1
        return False
    if ahead > MOST_JUMP or ahead < -MOST_JUMP:
        details[leader, PSN_NEXT] = expected + ((number - expected) & 0xFFFFFF) + 1
        details[leader, ALLOWED] = 0
        return False
    if ahead > 0:
        details[leader, PSN_NEXT] = expected + ahead + 1
        if goes_on or ahead > details[leader, ALLOWED]:
            details[leader, MARKS] |= MADE_HOLE
            details[leader, MISSING] += ahead
            add_hole(leader, details, holes, total, expected, expected + ahead)
            if details[leader, HOLES] > MOST_HOLES // 2:
                details[leader, MARKS] |= MANY_HOLES
                if details[leader, HOLES] > MOST_HOLES:
                    forget_lower_holes(leader, details, holes, total)
        return False
    begin = expected + ahead
    if begin < details[leader, PSN_FIRST]:
        details[leader, MARKS] |= BELOW_FIRST
    if details[leader, HOLES] and fill_holes(leader, details, holes, total, begin, begin + 1):
        details[leader, MISSING] -= 1
        details[flow, LATE] += 1
        return False
    return True


@helper
def follow_roce(flow, details, holes, cells, total, buf, transport, end, opcode, payload):
    """Follow a RoCEv2 packet, whose base transport header is after UDP's at `transport`; 12 bytes of it are there."""
    at = transport + 8
    if opcode == CNP_OPCODE:
        details[flow, CNP] += 1
        note(flow, details, cells, total, _CNP_NOTE, np.int64(0))
        return
    if at + 13 <= end and has_syndrome(opcode):
        kind = buf[at + 12] & 0x60
        if kind == 0x20:
            details[flow, RNR] += 1
            note(flow, details, cells, total, _RNR_NOTE, np.int64(0))
        elif kind == 0x60:
            details[flow, NAK] += 1
            note(flow, details, cells, total, _NAK_NOTE, np.int64(0))
    if details[flow, LEADER] == 0:
        return
    leader, operation = details[flow, LEADER] - 1, opcode & 31
    number, before = (np.int64(buf[at + 9]) << 16) | u16(buf, at + 10), details[leader, PSN_NEXT]
    if _number(flow, leader, details, holes, total, number, operation == 14 or operation == 15):
        data = max(payload - _AROUND[opcode] - ((np.int64(buf[at + 1]) >> 4) & 3), np.int64(0))
        details[flow, REPEATED] += 1
        details[flow, REPEATED_BYTES] += data
        note(flow, details, cells, total, _REPEATED_NOTE, data)
    if details[leader, PSN_NEXT] != before:
        details[leader, ALLOWED] = _allowed_after(buf, at, end, opcode, operation)
