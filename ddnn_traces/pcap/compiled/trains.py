"""Trains: what messages are made of behind the loop (docs/packets.md, "Messages").

A train is payload of a flow that is new and without a gap in its numbers. No segment is smaller than the one before it
in the flow, or has PSH, unless it is the last of a train: a message may end by it. Each flow has one train that is
open; a closed one is a row of `trains`. Where else they are cut does not matter: messages are the same for any cut, and
so for any parts that a file is read in. Of an open train most segments change only the time of its last one: the flow's
NEXT tells the bytes, and so how many there are of its largest size, which are its last.
"""

from __future__ import annotations

import numpy as np

from ddnn_traces.jit import helper, inlined, u16
from ddnn_traces.pcap.compiled import compiled
from ddnn_traces.pcap.compiled.flow_table import (
    FLOW_COUNT,
    LARGEST_SEGMENT,
    LAST_SIZE,
    NEXT,
    PUSHES,
    TRAIN_BEFORE,
    TRAIN_COUNT,
    TRAIN_FIRST,
    TRAIN_LAST,
    TRAIN_RUN,
    TRAIN_RUN_FIRST,
    TRAIN_SIZE,
    TRAIN_START,
)

#: Columns of a train: flow, times of its first and last packet, number of its first byte (RoCEv2: packet), bytes,
#: packets, payload of its largest segment, time of the first such, how many it has besides the last segment, payload of
#: that, marks.
TRAIN_COLUMNS = 11
#: Rows that one packet may add at most.
TRAIN_SPACE = 4
#: Marks: the last segment has PSH; the bytes came out of order, after ones with higher numbers.
PUSHED, LATE = 1, 2
PSH_FLAG = 8


@inlined
def _append(
    details, trains, total, flow, first, last, start, size, packets, largest, largest_at, before, last_size, marks
):  # fmt: skip
    at = total[TRAIN_COUNT]
    trains[at, 0], trains[at, 1], trains[at, 2], trains[at, 3], trains[at, 4] = flow, first, last, start, size
    trains[at, 5], trains[at, 6], trains[at, 7], trains[at, 8] = packets, largest, largest_at, before
    trains[at, 9], trains[at, 10] = last_size, marks
    total[TRAIN_COUNT] += 1
    details[flow, LARGEST_SEGMENT] = max(details[flow, LARGEST_SEGMENT], largest)
    details[flow, PUSHES] += marks & PUSHED


@helper
def close_train(flow, flows, details, trains, total):
    """Append the open train of a flow, if there is one; before NEXT jumps."""
    size = flows[flow, TRAIN_SIZE]
    if size == 0:
        return
    start, packets = details[flow, TRAIN_START], details[flow, TRAIN_BEFORE]
    if details[flow, TRAIN_RUN] < 0:  # RoCEv2
        size -= 1
        sent, largest = packets * size, packets
    else:
        sent, largest = flows[flow, NEXT] - start, (flows[flow, NEXT] - details[flow, TRAIN_RUN]) // size
        packets += largest
    _append(
        details, trains, total, flow, details[flow, TRAIN_FIRST], flows[flow, TRAIN_LAST], start, sent, packets, size,
        details[flow, TRAIN_RUN_FIRST], largest - 1, size, np.int64(0),
    )  # fmt: skip
    flows[flow, TRAIN_SIZE] = 0


@helper
def add_to_train(flow, flows, details, trains, total, silence_ns, size, ts, flags):
    """Add a segment that begins at NEXT; NEXT goes on behind it afterwards."""
    if flows[flow, TRAIN_SIZE] and ts - flows[flow, TRAIN_LAST] > silence_ns:
        close_train(flow, flows, details, trains, total)
    before, start = flows[flow, TRAIN_SIZE], flows[flow, NEXT]
    if before == 0:
        details[flow, TRAIN_FIRST] = details[flow, TRAIN_RUN_FIRST] = flows[flow, TRAIN_LAST] = ts
        details[flow, TRAIN_START] = details[flow, TRAIN_RUN] = start
        details[flow, TRAIN_BEFORE] = 0
    elif size > before:
        details[flow, TRAIN_BEFORE] += (start - details[flow, TRAIN_RUN]) // before
        details[flow, TRAIN_RUN], details[flow, TRAIN_RUN_FIRST] = start, ts
    flows[flow, TRAIN_LAST] = max(flows[flow, TRAIN_LAST], ts)
    flows[flow, TRAIN_SIZE] = size
    pushed = np.int64((flags & PSH_FLAG) != 0)
    if pushed or size < details[flow, LAST_SIZE]:
        largest = max(size, before)
        of_largest = (start - details[flow, TRAIN_RUN]) // largest
        _append(
            details, trains, total, flow, details[flow, TRAIN_FIRST], flows[flow, TRAIN_LAST],
            details[flow, TRAIN_START], start + size - details[flow, TRAIN_START],
            details[flow, TRAIN_BEFORE] + of_largest + 1, largest, details[flow, TRAIN_RUN_FIRST], of_largest, size,
            pushed * PUSHED,
        )  # fmt: skip
        flows[flow, TRAIN_SIZE] = 0
    details[flow, LAST_SIZE] = size


@helper
def add_alone(flow, details, trains, total, start, new, size, ts, flags, late):
    """A segment that is a train of its own."""
    marks = ((flags & PSH_FLAG) >> 3) * PUSHED | late
    _append(details, trains, total, flow, ts, ts, start, new, np.int64(1), size, ts, np.int64(0), size, marks)


@compiled
def close_trains(state, begin):
    """Append the open trains of the flows from `begin` on: the flow at which the table was full, or -1."""
    for flow in range(begin, state.total[FLOW_COUNT]):
        if state.flows[flow, TRAIN_SIZE]:
            if state.total[TRAIN_COUNT] >= len(state.trains):
                return flow
            close_train(flow, state.flows, state.details, state.trains, state.total)
    return -1


# --- RoCEv2 (InfiniBand Architecture Specification 1, release 1.5, 9.2 to 9.4): opcodes of SEND and RDMA WRITE

FIRST, MIDDLE, LAST, ONLY = range(1, 5)


def _opcodes():
    """By opcode: its place in a message, 0 for none; and the bytes around the data: headers, and the CRC of 4."""
    places, around = np.zeros(256, np.int64), np.zeros(256, np.int64)
    of_operation = [FIRST, MIDDLE, LAST, LAST, ONLY, ONLY] * 2  # SEND, WRITE; the second LAST, ONLY have an immediate
    for transport, headers in ((0x00, 12), (0x20, 12), (0xA0, 16)):  # RC, UC, XRC
        for operation, place in enumerate(of_operation):
            extended = 4 * (operation in (3, 5, 9, 11)) + 16 * (operation in (6, 10, 11))
            places[transport | operation], around[transport | operation] = place, headers + extended + 4
        for operation, place in ((0x16, LAST), (0x17, ONLY)):  # SEND with invalidate
            places[transport | operation], around[transport | operation] = place, headers + 4 + 4
    for opcode, immediate in ((0x64, 0), (0x65, 4)):  # UD
        places[opcode], around[opcode] = ONLY, 12 + 8 + immediate + 4
    return places, around


PLACES, _AROUND = _opcodes()


@helper
def has_syndrome(opcode):
    """Whether an AETH follows the base transport header, of RC and XRC: in acknowledgements, and in answers to RDMA
    READ but the middle ones."""
    transport, operation = opcode >> 5, opcode & 31
    return (transport == 0 or transport == 5) and (operation == 13 or 15 <= operation <= 18)


@helper
def add_roce(flow, flows, details, trains, total, buf, transport, opcode, payload, ts):
    """Add a RoCEv2 packet, whose base transport header is after UDP's at `transport`. A flow has one opcode.

    Of an open train TRAIN_RUN is negative, TRAIN_BEFORE the number of its packets, TRAIN_SIZE their data and 1.
    """
    place = PLACES[opcode]
    if place == 0:
        return
    at = transport + 8
    number = (np.int64(buf[at + 9]) << 16) | u16(buf, at + 10)
    data = max(payload - _AROUND[opcode] - ((np.int64(buf[at + 1]) >> 4) & 3), np.int64(0))
    if place != MIDDLE:
        add_alone(flow, details, trains, total, number, data, data, ts, np.int64(0), np.int64(0))
        return
    following = (details[flow, TRAIN_START] + details[flow, TRAIN_BEFORE]) & 0xFFFFFF
    if number != following or data + 1 != flows[flow, TRAIN_SIZE]:
        close_train(flow, flows, details, trains, total)
    if flows[flow, TRAIN_SIZE] == 0:
        details[flow, TRAIN_FIRST] = details[flow, TRAIN_RUN_FIRST] = flows[flow, TRAIN_LAST] = ts
        details[flow, TRAIN_START], details[flow, TRAIN_RUN], details[flow, TRAIN_BEFORE] = number, -1, 0
        flows[flow, TRAIN_SIZE] = data + 1
    flows[flow, TRAIN_LAST] = max(flows[flow, TRAIN_LAST], ts)
    details[flow, TRAIN_BEFORE] += 1


# --- from trains to messages

#: How the end of a message is known.
SILENCE, SHORT_SEGMENT, OPCODE, NEXT_MESSAGE, NOTHING_AFTER = range(5)
# Columns of the trains here: flow, whether it is TCP, its largest segment, its segment size (0: not known), whether the
# largest is as large as that allows, whether the flow has any PSH, opcode (-1: none), position in the stream, and the
# columns from first_ns on.
FLOW, IS_TCP, FULL, UNIT, IS_LIMITED, HAS_PSH, ROCE_OPCODE, PLACE, BEGIN, END, START, BYTES, PACKETS = range(13)
LARGEST, LARGEST_AT, BEFORE, LAST_BYTES, TRAIN_MARKS = range(13, 18)
# Columns of a message: flow, its number there, time, duration, position, bytes, packets, how its end is known, PSH (-1:
# no TCP).
MESSAGE_COLUMNS = 9
# Entries of the state between two blocks of trains: the flow at hand, its open message, the number of that; the last
# segment in order and its time, whether a message ends by it; RoCEv2: the number after the highest, bytes so far. Of
# the gaps behind full segments: how many there are, and how many longer than a silence; their sum, without what is far
# beyond the usual of these, and the bytes before them. Place of the flow's first byte.
OPEN_FLOW, IS_OPEN, NUMBER, OPEN_FIRST, OPEN_LAST, POSITION, OPEN_BYTES, OPEN_PACKETS, OPEN_PUSHED = range(9)
SEGMENT, TIME, IS_SHORT, NEXT_NUMBER, STREAM_BYTES, GAPS, LONG_GAPS, GAPS_NS, GAPS_BYTES, BASE = range(9, 19)
# Then the number of the longer gaps by their length: eight bins an octave.
BINS_FROM, BINS_AN_OCTAVE = 19, 8
STATE_ENTRIES = BINS_FROM + 64 * BINS_AN_OCTAVE
#: Up to so many times what a link takes by its usual rate a gap is the link's, once there were so many.
LINK_GAPS, LEAST_GAPS = 2.5, 4


@helper
def _open(state, begin, position):
    state[IS_OPEN], state[OPEN_FIRST], state[OPEN_LAST], state[POSITION] = 1, begin, begin, position
    state[OPEN_BYTES] = state[OPEN_PACKETS] = state[OPEN_PUSHED] = 0


@helper
def _close(state, messages, count, end):
    """Append the open message: the number of rows then."""
    if not state[IS_OPEN]:
        return count
    messages[count, 0], messages[count, 1] = state[OPEN_FLOW], state[NUMBER]
    messages[count, 2], messages[count, 3] = state[OPEN_FIRST], state[OPEN_LAST] - state[OPEN_FIRST]
    messages[count, 4] = state[POSITION]
    messages[count, 5], messages[count, 6], messages[count, 7] = state[OPEN_BYTES], state[OPEN_PACKETS], end
    messages[count, 8] = state[OPEN_PUSHED]
    state[NUMBER] += 1
    state[IS_OPEN] = 0
    return count + 1


@helper
def _end_stream(state, messages, count):
    """Append the last message of the flow at hand."""
    return _close(state, messages, count, SHORT_SEGMENT if state[IS_SHORT] else NOTHING_AFTER)


@helper
def _add(state, train, size, packets):
    state[OPEN_FIRST], state[OPEN_LAST] = min(state[OPEN_FIRST], train[BEGIN]), max(state[OPEN_LAST], train[END])
    state[OPEN_BYTES] += size
    state[OPEN_PACKETS] += packets


@helper
def _usual_long_gap(state):
    """The median of the gaps behind full segments that are longer than a silence."""
    below, bin_number = np.int64(0), 0
    while 2 * below < state[LONG_GAPS]:
        below += state[BINS_FROM + bin_number]
        bin_number += 1
    return 2.0 ** (bin_number / BINS_AN_OCTAVE)


@helper
def _is_the_links(state, gap):
    """Whether a long gap behind a full segment is what the link took for what was sent before.

    Behind a full segment the sender mostly has more: the mean of the gaps there, also of short ones in bursts, is the
    time of a full segment on the link. A burst leaves a queue, from the begin of the message on.
    """
    if state[GAPS] < LEAST_GAPS:
        return False
    ns_per_byte = state[GAPS_NS] / state[GAPS_BYTES]
    queue = state[OPEN_BYTES] * ns_per_byte - (state[TIME] - state[OPEN_FIRST])
    return gap <= LINK_GAPS * max(queue, state[SEGMENT] * ns_per_byte)


@helper
def _ends_before(train, state, silence_ns):
    """How the open message ends before a train of TCP; -1 where that goes on with it."""
    gap, is_behind_full, is_links = train[BEGIN] - state[TIME], state[SEGMENT] == train[FULL], False
    if is_behind_full:
        usual = float(max(gap, 0))
        if gap > silence_ns:
            state[LONG_GAPS] += 1
            state[BINS_FROM + np.int64(np.log2(gap) * BINS_AN_OCTAVE)] += 1
            usual = min(usual, LINK_GAPS * _usual_long_gap(state))
        state[GAPS] += 1
        state[GAPS_NS] += np.int64(usual)
        state[GAPS_BYTES] += train[FULL]
        is_links = gap > silence_ns and train[IS_LIMITED] != 0 and _is_the_links(state, gap)
    if state[IS_SHORT]:
        return SHORT_SEGMENT
    return SILENCE if gap > silence_ns and not is_links else -1


@helper
def _add_segments(train, state, messages, count, silence_ns):
    """Of TCP."""
    if train[TRAIN_MARKS] & LATE:  # tells nothing about when the sender sent what is around it
        if not state[IS_OPEN]:
            _open(state, train[BEGIN], train[PLACE] - state[BASE])
        _add(state, train, train[BYTES], train[PACKETS])
        return count
    if state[SEGMENT]:
        end = _ends_before(train, state, silence_ns)
        if end >= 0:
            count = _close(state, messages, count, end)
    before = state[SEGMENT] if state[IS_OPEN] else np.int64(0)
    if train[PACKETS] > 1:
        before = train[LARGEST]
    if not state[IS_OPEN]:
        _open(state, train[BEGIN], train[PLACE] - state[BASE])
    _add(state, train, train[BYTES], train[PACKETS])
    if train[LARGEST] == train[FULL]:
        state[GAPS] += train[BEFORE]
        state[GAPS_NS] += train[END] - train[LARGEST_AT]
        state[GAPS_BYTES] += train[BEFORE] * train[FULL]
    pushed = train[TRAIN_MARKS] & PUSHED
    state[SEGMENT], state[TIME], state[OPEN_PUSHED] = train[LAST_BYTES], train[END], pushed
    is_last = pushed if train[HAS_PSH] else before == train[FULL]
    # a super-frame of whole segments is no end: more may have been queued
    is_whole = train[LAST_BYTES] % train[UNIT] == 0 if train[UNIT] else train[LAST_BYTES] == train[FULL]
    state[IS_SHORT] = is_last and not is_whole
    return count


@helper
def _add_numbered(train, state, messages, count):
    """Of RoCEv2."""
    place, packets, start, again = PLACES[train[ROCE_OPCODE]], train[PACKETS], train[START], np.int64(0)
    following = state[NEXT_NUMBER]
    if following >= 0:
        start = following + ((start - following + 0x800000) & 0xFFFFFF) - 0x800000
        again = min(max(following - start, np.int64(0)), packets)
    state[NEXT_NUMBER] = max(following, start + packets)
    if again == packets:
        return count
    size = train[BYTES] // packets * (packets - again)
    if place in (FIRST, ONLY):
        count = _close(state, messages, count, NEXT_MESSAGE)
    if not state[IS_OPEN]:
        _open(state, train[BEGIN], state[STREAM_BYTES])
        state[OPEN_PUSHED] = -1
    _add(state, train, size, packets - again)
    state[STREAM_BYTES] += size
    if place in (LAST, ONLY):
        count = _close(state, messages, count, OPCODE)
    return count


@compiled
def messages_of(trains, state, messages, silence_ns):
    """Messages of trains in the order of flows and of their streams: how many rows of `messages` they took.

    trains: int64 (n, columns above). state: of the trains before; zeros, with -1 as OPEN_FLOW, to begin with. messages:
    (2 n + 1, MESSAGE_COLUMNS). The last message stays open; end_messages() closes it.
    """
    count = 0
    for row in range(len(trains)):
        train = trains[row]
        if train[FLOW] != state[OPEN_FLOW]:
            count = _end_stream(state, messages, count)
            state[:] = 0
            state[OPEN_FLOW], state[NEXT_NUMBER], state[BASE] = train[FLOW], -1, train[PLACE]
        if train[IS_TCP]:
            count = _add_segments(train, state, messages, count, silence_ns)
        else:
            count = _add_numbered(train, state, messages, count)
    return count


@compiled
def end_messages(state, messages):
    """Close the message that is open after all trains: 1 or 0 rows of `messages`."""
    return _end_stream(state, messages, 0)
