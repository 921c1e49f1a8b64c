"""Joining a part of a file, which was read without the parts before it, to the facts of the parts before it.

Sums always add up. What is followed from packet to packet must not depend on packets before the part; where it might,
the part is refused and has to be read again, after the others. A part is joined when

- it holds no fragment, and no record without a time, which would have that of the record before it;
- each connection that it continues begins with the sequence number that is expected (or has not met any yet), and does
  not come back to holes from before: then retransmissions, order and holes are those of one pass;
- so does each stream of RoCEv2's numbers (roce.py), by that of the flow that leads it;
- its acknowledgement numbers go on from the highest so far;
- each SYN is on ports that are new, or begins a connection also by what was known before.
"""

from __future__ import annotations

import numpy as np

from ddnn_traces.jit import helper
from ddnn_traces.pcap.compiled import compiled
from ddnn_traces.pcap.compiled.connections import (
    BEGAN_WITH_SYN,
    BELOW_FIRST,
    MADE_HOLE,
    MANY_HOLES,
    NOT_FOLLOWED,
    NOT_THE_FIRST,
    SYN_LATER,
    begins_connection,
    distance,
    take_row,
)
from ddnn_traces.pcap.compiled.flow_table import (
    ACK,
    ALLOWED,
    BELOW,
    CLOSED,
    DETAIL_COLUMNS,
    DETAIL_COUNTERS,
    EARLIEST,
    FIRST,
    FIRST_ACK,
    FIRST_SEQ,
    FLOW_COLUMNS,
    FLOW_COUNT,
    FLOW_COUNTERS,
    FORGOTTEN,
    FRAGMENTS,
    HIGHEST,
    HOLE_BEGIN,
    HOLE_END,
    HOLE_ROWS,
    HOLES,
    IDENTITY,
    IP,
    ISN,
    LAST_SIZE,
    LAST_TIME,
    LATEST,
    LEADER,
    MARKS,
    MOST_HOLES,
    NEXT,
    PSN_FIRST,
    PSN_NEXT,
    RECORDS,
    TOTAL_WIRE,
    UNTIMED,
    find_slot,
    new_flow,
)
from ddnn_traces.pcap.compiled.headers import TCP
from ddnn_traces.pcap.compiled.roce import MISSING, find_leader
from ddnn_traces.pcap.compiled.scan import CORRUPT, OPCODE_FROM, OPCODE_MASK, pcapng_block, record_header
from ddnn_traces.pcap.flow_counters import COUNTERS


def _columns(counters, parts):
    """The columns of those counters whose parts are joined in that way."""
    return np.array([counters[c.name] for c in COUNTERS if c.parts == parts and c.name in counters], np.int64)


_FLOW_SUMS, _FLOW_LEAST, _FLOW_MOST = (_columns(FLOW_COUNTERS, parts) for parts in ("sum", "min", "max"))
_DETAIL_SUMS, _DETAIL_LEAST, _DETAIL_MOST = (_columns(DETAIL_COUNTERS, parts) for parts in ("sum", "min", "max"))
#: So many records in sequence are no accident.
_CHAIN = 32


@helper
def _slot(part, row, tunnels, options, state):
    """Slot of a part's flow in the whole's table, and the sixth word of its key there."""
    keys = part.keys
    word = keys[row, 5]
    tunnel = np.int64(word >> np.uint64(40))
    if tunnel:
        word = (word & np.uint64((1 << 40) - 1)) | np.uint64(tunnels[tunnel - 1] + 1) << np.uint64(40)
    a, b, c, d, e = keys[row, 0], keys[row, 1], keys[row, 2], keys[row, 3], keys[row, 4]
    return find_slot(state.slots, state.keys, options.salt, a, b, c, d, e, word), word


@helper
def _continues(part, row, state, flow):
    """1: the part's row continues the flow; 0: it is another connection; -1: unknown without the packets before."""
    flows, details = state.flows, state.details
    marks = part.details[row, MARKS]
    if marks & BEGAN_WITH_SYN:
        return 0 if begins_connection(flow, details, part.details[row, ISN]) else -1
    if marks & SYN_LATER:
        return -1
    if part.flows[row, NEXT] >= 0 and flows[flow, NEXT] >= 0:
        if part.details[row, FIRST_SEQ] != flows[flow, NEXT] & 0xFFFFFFFF:
            return -1
        if details[flow, HOLES] and marks & BELOW_FIRST:
            return -1
        if marks & MADE_HOLE and (details[flow, CLOSED] or _too_many_holes(part, row, details, flow)):
            return -1
    acknowledges = part.flows[row, ACK] >= 0 and flows[flow, ACK] >= 0
    if acknowledges and distance(flows[flow, ACK] & 0xFFFFFFFF, part.details[row, FIRST_ACK]) < 0:
        return -1
    return 1


@helper
def _leader(part, row, word, options, state):
    """The flow of the whole that leads the stream of a part's flow; -1 without one. word: the sixth of its key."""
    opcode, keys = np.int64(word >> OPCODE_FROM & OPCODE_MASK), part.keys
    a, b, c, d, e = keys[row, 0], keys[row, 1], keys[row, 2], keys[row, 3], keys[row, 4]
    return find_leader(state.slots, state.keys, state.details, options.salt, a, b, c, d, e, word, opcode)


@helper
def _goes_on(part, row, details, leader):
    """Whether a part's stream of RoCEv2 begins where the whole's ends, and does not come back to holes from before."""
    if part.details[row, PSN_NEXT] < 0 or details[leader, PSN_NEXT] < 0:
        return True
    marks = part.details[row, MARKS]
    if part.details[row, PSN_FIRST] != details[leader, PSN_NEXT] & 0xFFFFFF:
        return False
    if details[leader, HOLES] and marks & BELOW_FIRST:
        return False
    return not (marks & MADE_HOLE and _too_many_holes(part, row, details, leader))


@helper
def _add_stream(part, row, state, leader):
    """Add the numbers of a part's stream of RoCEv2 to the whole's."""
    details, new = state.details, part.details
    details[leader, MISSING] += new[row, MISSING]
    if new[row, PSN_NEXT] < 0:
        return
    if details[leader, PSN_NEXT] < 0:
        details[leader, PSN_FIRST] = details[leader, PSN_NEXT] = new[row, PSN_FIRST]
    laps = details[leader, PSN_NEXT] - new[row, PSN_FIRST]
    details[leader, PSN_NEXT] = new[row, PSN_NEXT] + laps
    details[leader, ALLOWED] = new[row, ALLOWED]
    _add_holes(part, row, laps, state, leader)


@helper
def _too_many_holes(part, row, details, flow):
    """Whether the holes from before might have made the flow forget some in this part."""
    if not details[flow, HOLES]:
        return False
    many = part.details[row, MARKS] & MANY_HOLES or details[flow, HOLES] > MOST_HOLES // 2
    return bool(many or part.details[row, FORGOTTEN])


@helper
def _join_counters(table, flow, new, row, sums, least, most):
    for column in sums:
        table[flow, column] += new[row, column]
    for column in least:
        table[flow, column] = min(table[flow, column], new[row, column])
    for column in most:
        table[flow, column] = max(table[flow, column], new[row, column])


@helper
def _add(part, row, state, flow):
    """Add a part's row to a flow: how far its sequence numbers go on from the part's own."""
    flows, details, new, new_details = state.flows, state.details, part.flows, part.details
    _join_counters(flows, flow, new, row, _FLOW_SUMS, _FLOW_LEAST, _FLOW_MOST)
    _join_counters(details, flow, new_details, row, _DETAIL_SUMS, _DETAIL_LEAST, _DETAIL_MOST)
    details[flow, CLOSED] |= new_details[row, CLOSED]
    details[flow, MARKS] |= new_details[row, MARKS] & NOT_FOLLOWED
    if new[row, ACK] >= 0:
        if flows[flow, ACK] < 0:
            flows[flow, ACK] = details[flow, FIRST_ACK] = new_details[row, FIRST_ACK]
        flows[flow, ACK] += distance(flows[flow, ACK] & 0xFFFFFFFF, new_details[row, FIRST_ACK])
        flows[flow, ACK] += new[row, ACK] - new_details[row, FIRST_ACK]
    if new[row, NEXT] < 0:
        return np.int64(0)
    if new_details[row, LAST_SIZE]:
        details[flow, LAST_SIZE] = new_details[row, LAST_SIZE]
    if flows[flow, NEXT] < 0:
        details[flow, FIRST_SEQ] = flows[flow, NEXT] = new_details[row, FIRST_SEQ]
    laps = flows[flow, NEXT] - new_details[row, FIRST_SEQ]
    flows[flow, NEXT] = new[row, NEXT] + laps
    _add_holes(part, row, laps, state, flow)
    return laps


@helper
def _add_holes(part, row, laps, state, flow):
    """Put the holes of a part's flow above those of the whole's."""
    details, holes = state.details, state.holes
    older = details[flow, HIGHEST]
    above, at = np.int64(-1), part.details[row, HIGHEST] - 1
    while at >= 0:
        to = take_row(holes, state.total)
        holes[to, HOLE_BEGIN], holes[to, HOLE_END] = part.holes[at, HOLE_BEGIN] + laps, part.holes[at, HOLE_END] + laps
        holes[to, BELOW] = older
        if above < 0:
            details[flow, HIGHEST] = to + 1
        else:
            holes[above, BELOW] = to + 1
        above, at = to, part.holes[at, BELOW] - 1
    details[flow, HOLES] += part.details[row, HOLES]


@helper
def _enter_stream(part, row, leads, leaders, flow, state):
    """Give a flow of RoCEv2 that is new in the whole its leader, and the whole the numbers of the stream it leads."""
    details = state.details
    if leads and leaders[row] < 0:
        leaders[row] = flow
    details[flow, LEADER] = leaders[part.details[row, LEADER] - 1] + 1
    details[flow, MISSING] = details[flow, ALLOWED] = 0
    details[flow, PSN_NEXT] = -1
    if leads:
        _add_stream(part, row, state, leaders[row])


@compiled
def join(part, tunnels, mapping, laps, options, state):
    """Append a part's flows and totals to `state`; False where it is refused, and then nothing has changed.

    tunnels: row in the whole of each of the part's tunnels. mapping: int64, as long as the part's flows; filled with
    the row of each in the whole; laps with what to add to its sequence numbers. `state` has space for them all.
    """
    total = state.total
    if part.total[FRAGMENTS] or part.total[UNTIMED] or total[HOLE_ROWS] + part.total[HOLE_ROWS] > len(state.holes):
        return False
    count = part.total[FLOW_COUNT]
    leaders = np.full(count, -1)
    for row in range(count):
        slot, word = _slot(part, row, tunnels, options, state)
        flow = np.int64(state.slots[slot])
        mapping[row] = -1
        if flow >= 0 and not part.details[row, MARKS] & NOT_THE_FIRST:
            is_tcp = (part.keys[row, 4] >> np.uint64(32)) & np.uint64(0xFF) == np.uint64(TCP)
            continues = _continues(part, row, state, flow) if is_tcp else 1
            if continues < 0:
                return False
            if continues:
                mapping[row] = flow
        if part.details[row, LEADER] == row + 1:
            leaders[row] = _leader(part, row, word, options, state)
            if leaders[row] >= 0 and not _goes_on(part, row, state.details, leaders[row]):
                return False
    for row in range(count):
        leads = part.details[row, LEADER] == row + 1
        if mapping[row] >= 0:
            laps[row] = _add(part, row, state, mapping[row])
            if leads:
                _add_stream(part, row, state, leaders[row])
            continue
        slot, word = _slot(part, row, tunnels, options, state)
        a, b, c, d, e = part.keys[row, 0], part.keys[row, 1], part.keys[row, 2], part.keys[row, 3], part.keys[row, 4]
        mapping[row] = new_flow(state, slot, a, b, c, d, e, word, part.details[row, FIRST])
        for column in range(IP, FLOW_COLUMNS):  # not the cell, which was written out
            if column != IDENTITY:
                state.flows[mapping[row], column] = part.flows[row, column]
        for column in range(DETAIL_COLUMNS):
            state.details[mapping[row], column] = part.details[row, column]
        state.details[mapping[row], HIGHEST] = state.details[mapping[row], HOLES] = 0
        if part.details[row, LEADER]:
            _enter_stream(part, row, leads, leaders, mapping[row], state)
        else:
            _add_holes(part, row, 0, state, mapping[row])
    for reason in range(len(state.skipped)):
        state.skipped[reason, 0] += part.skipped[reason, 0]
        state.skipped[reason, 1] += part.skipped[reason, 1]
    total[RECORDS] += part.total[RECORDS]
    total[TOTAL_WIRE] += part.total[TOTAL_WIRE]
    total[EARLIEST] = min(total[EARLIEST], part.total[EARLIEST])
    total[LATEST] = max(total[LATEST], part.total[LATEST])
    if part.total[RECORDS]:
        total[LAST_TIME] = part.total[LAST_TIME]
    return True


@compiled
def find_record(buf, size, framing, interfaces):
    """Offset from which on records follow each other, as a guess; -1 where none was found.

    framing, interfaces: as of scan(). A guess is good when a chain of sane records begins there, and so of blocks of a
    pcapng. Whether it was right shows when the records before it end there. Of several within one header the longest
    chain is taken: where all records are of 256 bytes, their headers read one byte too early make a chain, too.
    """
    found, most = -1, 0
    from_here = 0
    while from_here + 16 <= size and (found < 0 or from_here < found + 16):
        if framing.is_pcapng:
            links, to_end = _packet_blocks(buf, from_here, size, framing.big_endian, interfaces)
        else:
            links, to_end = _records(buf, from_here, size, framing)
        if (links == _CHAIN or (links > 1 and to_end)) and links > most:
            most = links
            found = from_here
        from_here += 1
    return found


@helper
def _records(buf, pos, size, framing):
    """Sane record headers of a pcap that follow each other, up to _CHAIN; whether nothing but the end came after."""
    ticks_a_second = 1_000_000_000 // framing.tick_ns
    links, last = 0, np.int64(-1)
    while links < _CHAIN and pos + 16 <= size:
        sane, seconds, fraction, captured, wire = record_header(buf, pos, framing.big_endian, framing.max_captured)
        # some generators write original lengths below the captured ones, but none of nothing
        sane = sane and (captured <= wire or wire > 0) and fraction < ticks_a_second
        if not sane or wire > (1 << 24) or (last >= 0 and abs(seconds - last) > 3600):
            return links, False
        last = seconds
        pos += 16 + captured
        links += 1
    return links, True


@helper
def _packet_blocks(buf, pos, size, big_endian, interfaces):
    """The same of the blocks of a pcapng that hold packets; others may be between, and a description ends them, too."""
    links = 0
    while links < _CHAIN:
        stopped, is_packet, _, _, _, _, _, _, pos = pcapng_block(buf, pos, size, big_endian, interfaces, np.int64(0))
        if stopped >= 0:
            return links, stopped != CORRUPT
        links += is_packet
    return links, True
