"""The loop itself: records of a pcap or blocks of a pcapng, one packet after the other, in one pass over the bytes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ddnn_traces.capture_format import (
    ENHANCED_PACKET,
    INTERFACE_DESCRIPTION,
    INTERFACE_STATISTICS,
    LEAST_BLOCK_BYTES,
    MOST_BLOCK_BYTES,
    OLD_PACKET,
    SECTION_HEADER,
    SIMPLE_PACKET,
)
from ddnn_traces.jit import borrowed, helper, u16, u16_little, u32, u32_little, u64
from ddnn_traces.pcap.compiled import compiled
from ddnn_traces.pcap.compiled.connections import (
    ACK_FLAG,
    BEGAN_WITH_SYN,
    CONTROL_FLAGS,
    NOT_FOLLOWED,
    NOT_THE_FIRST,
    RARE_FLAGS,
    RST_FLAG,
    SYN_FLAG,
    SYN_LATER,
    acknowledge,
    begins_connection,
    control,
    offer,
    segment,
)
from ddnn_traces.pcap.compiled.fast_path import Expected, common_packets, remember
from ddnn_traces.pcap.compiled.flow_table import (
    CELL_COUNT,
    DETAIL_COUNTERS,
    EARLIEST,
    FAR_FUTURE,
    FAR_PAST,
    FLOW_COUNT,
    FRAGMENTS,
    INVALID_TIMES,
    LAST_TIME,
    LATEST,
    MARKS,
    NEXT,
    OPEN_CELLS,
    PACKET_COUNT,
    RECORDS,
    SAMPLE_COUNT,
    SPACE,
    TOTAL_WIRE,
    TRAIN_COUNT,
    TUNNEL_COUNT,
    UNTIMED,
    WAITING_SPACE,
    WINDOW,
    borrow,
    close_cells,
    count_packet,
    find_slot,
    keep_packet,
    new_flow,
    note,
    sample_segment,
)
from ddnn_traces.pcap.compiled.fragments import first_fragment, later_fragment
from ddnn_traces.pcap.compiled.headers import (
    FOLLOW,
    LATER_FRAGMENT,
    TCP,
    UDP,
    WHOLE,
    addresses,
    interface_word,
    ip_header,
    is_infiniband,
    is_typed,
    link_row,
    network_header,
    ports,
    protocol_word,
)
from ddnn_traces.pcap.compiled.roce import follow_roce, lead
from ddnn_traces.pcap.compiled.trains import TRAIN_SPACE, add_roce, add_to_train, close_train, has_syndrome
from ddnn_traces.pcap.compiled.tunnels import (
    DATAGRAM_KEY,
    IP_AT,
    IP_BYTES,
    IP_VERSION,
    PART,
    PAYLOAD,
    PROTOCOL,
    ROCE,
    TRANSPORT,
    innermost,
)
from ddnn_traces.pcap.flow_counters import NOTES

# Why scan() returned: the next record is not complete, a table is full, damage follows, a section or an interface is
# described here, or `stop` is reached.
NEED_BYTES, FULL, CORRUPT, SECTION, INTERFACE, STOPPED = range(6)

# Columns of `interfaces`: link type, snaplen, ns a unit of time (0: less than one, or units are powers of two), units a
# second, or a ns where units are shorter (0: too many), bits of the fraction where units are powers of two (-1: they
# are powers of ten), seconds to add.
LINK, SNAPLEN, MULTIPLIER, DIVISOR, SHIFT, OFFSET = range(6)
INTERFACE_COLUMNS = 6
BILLION, MOST_SECONDS = 10**9, (2**63 - 1) // 10**9

# In place of TCP flags: of a packet without a TCP header, and of one whose header was not captured. Both are negative;
# the second one has the bit of SYN, so that it takes that rare branch.
NO_HEADER, CUT_HEADER, NO_FLAGS = -8, -6, np.int64(-1)
CONGESTED, CE, CE_NOTE = 3, DETAIL_COUNTERS["ce_packets"], NOTES["ce_packets"]
# In the sixth word of a key.
IS_ROCE, OPCODE_FROM, OPCODE_MASK = np.uint64(1 << 32), np.uint64(24), np.uint64(0xFF)


class Framing(NamedTuple):
    """How records lie in the file. The last three are for pcap alone: tick_ns: ns a unit of the fraction; max_captured:
    a captured length above it is damage."""

    is_pcapng: bool
    big_endian: bool
    tick_ns: int
    link: int
    max_captured: int


@helper
def _block_time(high, low, interfaces, number):
    """Time stamp of a pcapng packet in ns, cut; -1 where it is outside 0 to 2^63 - 1."""
    units = np.uint64(high << 32) | np.uint64(low)
    multiplier, divisor, shift = interfaces[number, MULTIPLIER], interfaces[number, DIVISOR], interfaces[number, SHIFT]
    billion = np.uint64(BILLION)
    if shift >= 0:
        seconds = units >> np.uint64(shift) if shift < 64 else np.uint64(0)
        fraction = units - (seconds << np.uint64(shift)) if shift < 64 else units
        half = np.uint64(32)
        if shift < 32:
            part = (fraction * billion) >> np.uint64(shift)
        else:
            part = (fraction >> half) * billion + (((fraction & np.uint64(0xFFFFFFFF)) * billion) >> half)
            part = part >> np.uint64(shift - 32) if shift < 96 else np.uint64(0)
    elif multiplier > 0:
        seconds = units // np.uint64(divisor)
        part = (units - seconds * np.uint64(divisor)) * np.uint64(multiplier)
    else:
        ns = units // np.uint64(divisor) if divisor > 0 else np.uint64(0)
        seconds = ns // billion
        part = ns - seconds * billion
    offset = interfaces[number, OFFSET]
    if offset > 0 and seconds > np.uint64(MOST_SECONDS):
        return np.int64(-1)
    seconds += np.uint64(offset)  # modulo 2^64: a sum below 0 is far above the most
    if seconds > np.uint64(MOST_SECONDS):
        return np.int64(-1)
    return max(np.int64(seconds * billion + part), np.int64(-1))


@helper
def pcapng_block(buf, pos, size, big_endian, interfaces, last_time):
    """The block at pos: (why to stop, or -1; packet, 0 or 1; start of the frame, captured and original length, time,
    interface; untimed; start of the next block)."""
    nothing = np.int64(0)
    if pos + 8 > size:
        return np.int64(NEED_BYTES), False, nothing, nothing, nothing, nothing, nothing, False, pos
    kind = u32(buf, pos) if big_endian else u32_little(buf, pos)
    if kind == SECTION_HEADER:
        return np.int64(SECTION), False, nothing, nothing, nothing, nothing, nothing, False, pos
    length = u32(buf, pos + 4) if big_endian else u32_little(buf, pos + 4)
    corrupt = np.int64(CORRUPT), False, nothing, nothing, nothing, nothing, nothing, False, pos
    if length < LEAST_BLOCK_BYTES or length > MOST_BLOCK_BYTES or length & 3:
        return corrupt
    following = pos + length
    if following > size:
        return np.int64(NEED_BYTES), False, nothing, nothing, nothing, nothing, nothing, False, pos
    if (u32(buf, following - 4) if big_endian else u32_little(buf, following - 4)) != length:
        return corrupt
    if kind == INTERFACE_DESCRIPTION or kind == INTERFACE_STATISTICS:  # noqa: SIM109 (compiled)
        return np.int64(INTERFACE), False, nothing, nothing, nothing, nothing, nothing, False, pos
    if kind == SIMPLE_PACKET:
        if length < 16 or len(interfaces) == 0:
            return corrupt
        wire = u32(buf, pos + 8) if big_endian else u32_little(buf, pos + 8)
        snaplen = interfaces[0, SNAPLEN]
        captured = min(wire, snaplen) if snaplen else wire
        if captured > length - 16:
            return corrupt
        return np.int64(-1), True, pos + 12, captured, wire, last_time, nothing, True, following
    if kind != ENHANCED_PACKET and kind != OLD_PACKET:
        return np.int64(-1), False, nothing, nothing, nothing, nothing, nothing, False, following
    if length < 32:
        return corrupt
    if kind == ENHANCED_PACKET:
        number = u32(buf, pos + 8) if big_endian else u32_little(buf, pos + 8)
    else:
        number = u16(buf, pos + 8) if big_endian else u16_little(buf, pos + 8)
    if big_endian:
        high, low, captured, wire = u32(buf, pos + 12), u32(buf, pos + 16), u32(buf, pos + 20), u32(buf, pos + 24)
    else:
        high, low = u32_little(buf, pos + 12), u32_little(buf, pos + 16)
        captured, wire = u32_little(buf, pos + 20), u32_little(buf, pos + 24)
    if number >= len(interfaces) or captured > length - 32:
        return corrupt
    ts = _block_time(high, low, interfaces, number)
    untimed = ts < 0
    return np.int64(-1), True, pos + 28, captured, wire, last_time if untimed else ts, number, untimed, following


@helper
def record_header(buf, pos, big_endian, max_captured):
    """The header of a pcap's record: whether it can be one, seconds, fraction of one, captured and original length."""
    if big_endian:
        seconds, fraction, captured, wire = u32(buf, pos), u32(buf, pos + 4), u32(buf, pos + 8), u32(buf, pos + 12)
    else:
        seconds, fraction = u32_little(buf, pos), u32_little(buf, pos + 4)
        captured, wire = u32_little(buf, pos + 8), u32_little(buf, pos + 12)
    # zeros are the tail of a file that was allocated and not written
    is_sane = captured <= max_captured and (wire | captured | seconds | fraction) != 0
    return is_sane, seconds, fraction, captured, wire


@helper
def record_at(buf, pos, size, framing, interfaces, last_time):
    """The record of a pcap, or block of a pcapng, at pos, as pcapng_block, with the link type in place of the
    interface's number. scan() has this in its loop, where it is faster."""
    nothing = np.int64(0)
    if framing.is_pcapng:
        stopped, is_packet, start, captured, wire, time, number, _, following = pcapng_block(
            buf, pos, size, framing.big_endian, interfaces, last_time
        )
        link = interfaces[number, LINK] if is_packet else nothing
        return stopped, is_packet, start, captured, wire, time, link, following
    if pos + 16 > size:
        return np.int64(NEED_BYTES), False, nothing, nothing, nothing, nothing, nothing, pos
    is_sane, seconds, fraction, captured, wire = record_header(buf, pos, framing.big_endian, framing.max_captured)
    start, following = pos + 16, pos + 16 + captured
    if not is_sane:
        return np.int64(CORRUPT), False, nothing, nothing, nothing, nothing, nothing, pos
    if following > size:
        return np.int64(NEED_BYTES), False, nothing, nothing, nothing, nothing, nothing, pos
    time = seconds * 1000000000 + fraction * framing.tick_ns
    return np.int64(-1), True, start, captured, wire, time, np.int64(framing.link), following


@helper
def ecn_of(buf, ip_at, version):
    """The ECN field of an IP header (RFC 3168, 5); -1 of InfiniBand's headers, which have none."""
    if version == 4:
        return np.int64(buf[ip_at + 1]) & 3
    return (np.int64(buf[ip_at + 1]) >> 4) & 3 if version == 6 else np.int64(-1)


@helper
def told_by_headers(buf, ip_at, version, protocol, transport, end, part, flags, seq):
    """The last columns of a packet's row (flow_table.py), -1: not told. transport: where UDP or TCP is."""
    none = np.int64(-1)
    ecn = ecn_of(buf, ip_at, version)
    seq = none if flags < 0 else seq
    opcode, number, syndrome, at = none, none, none, transport + 8
    is_udp = protocol == UDP and u16(buf, transport + 2) == ROCE and part == WHOLE
    if (is_udp or is_infiniband(version)) and at + 8 <= end:
        opcode = np.int64(buf[at])
        if at + 12 <= end:
            number = (np.int64(buf[at + 9]) << 16) | u16(buf, at + 10)
        if at + 13 <= end and has_syndrome(opcode):
            syndrome = np.int64(buf[at + 12])
    return flags, seq, ecn, opcode, number, syndrome


@compiled
def scan(buf, pos, size, stop, framing, interfaces, options, state):
    """Read complete records from buf[pos:size] that begin before `stop`: (offset of the first unread record, why).

    interfaces: int64 (n, INTERFACE_COLUMNS), of the pcapng section at hand. options, state: as in flow_table.py.
    On SECTION and INTERFACE the offset is that of the block, which is whole in the case of INTERFACE.
    """
    options, state = borrow(options, state)
    buf, interfaces = borrowed(buf), borrowed(interfaces)
    slots, keys, flows, details = state.slots, state.keys, state.flows, state.details
    cells, open_cells, holes, trains = state.cells, state.open_cells, state.holes, state.trains
    samples, packets, total, skipped = state.samples, state.packets, state.total, state.skipped
    found, found_key = state.found, state.found_key
    is_pcapng, big_endian, tick_ns = framing.is_pcapng, framing.big_endian, framing.tick_ns
    link, max_captured = framing.link, framing.max_captured
    window_ns, bounds, no_step, salt = options.window_ns, options.bounds, options.no_step, options.salt
    want_packets, silence_ns = options.want_packets, options.silence_ns
    most_flows, most_cells = len(keys) - SPACE, len(cells) - WAITING_SPACE
    most_packets, most_tunnels = len(packets) - WAITING_SPACE, len(state.tunnel_keys) - SPACE
    most_samples, most_trains = len(samples) - 1, len(trains) - TRAIN_SPACE

    are_common = not (big_endian or want_packets)
    unit_ns, offset_ns, latest_high = np.int64(tick_ns), np.int64(0), np.int64(0)
    number, longest = np.int64(0), np.int64(MOST_BLOCK_BYTES if is_pcapng else max_captured)

    zero = np.uint64(0)
    ts = total[LAST_TIME]
    window_from, window_to = FAR_PAST, FAR_PAST  # nothing known yet
    step, step_from, step_to = np.int64(no_step), FAR_PAST, FAR_FUTURE
    has_steps = len(bounds) > 0
    if has_steps:
        step_to = step_from  # nothing known yet
    while True:
        if pos >= stop:
            why = STOPPED
            break
        if (
            total[FLOW_COUNT] > most_flows
            or total[CELL_COUNT] + total[OPEN_CELLS] > most_cells
            or total[SAMPLE_COUNT] > most_samples
            or total[TRAIN_COUNT] > most_trains
            or total[TUNNEL_COUNT] > most_tunnels
            or (want_packets and total[PACKET_COUNT] > most_packets)
        ):
            why = FULL
            break
        if is_pcapng:
            stopped, is_packet, start, captured, wire, time, number, untimed, following = pcapng_block(
                buf, pos, size, big_endian, interfaces, ts
            )
            if stopped >= 0:
                pos = following
                why = stopped
                break
            if not is_packet:
                pos = following
                continue
            ts = time
            end = start + captured
            link = interfaces[number, LINK]
            unit_ns, offset = interfaces[number, MULTIPLIER], interfaces[number, OFFSET]
            offset_ns = offset * BILLION
            if offset < -MOST_SECONDS or offset > MOST_SECONDS:
                unit_ns = np.int64(0)  # offset_ns has overflowed: not in the loop of common packets
            if untimed:
                total[UNTIMED] += 1
                total[INVALID_TIMES] += start - pos > 12  # not a Simple Packet Block
                unit_ns = np.int64(0)
            elif unit_ns > 0:
                latest_high = np.int64(0x7FFFFFFF) // unit_ns - 1
        else:
            if pos + 16 > size:
                why = NEED_BYTES
                break
            is_sane, seconds, fraction, captured, wire = record_header(buf, pos, big_endian, max_captured)
            if not is_sane:
                why = CORRUPT
                break
            start = pos + 16
            end = following = start + captured
            if end > size:
                why = NEED_BYTES
                break
            ts = seconds * 1000000000 + fraction * tick_ns

        # --- header walk: up to the ports, from captured bytes only
        a = b = c = d = e = f = zero
        payload = ip_bytes = transport = protocol = np.int64(0)
        part = np.int64(WHOLE)
        is_common = False
        i, version = network_header(buf, start, end, link)
        ip_at = i
        if version == 0:
            outcome = i
        else:
            outcome, protocol, transport, carried, ip_bytes, part, _ = ip_header(buf, i, version, start, end, wire)
            if outcome == FOLLOW:
                if protocol == TCP and part == WHOLE:
                    outcome, both_ports, payload = ports(buf, protocol, transport, end, carried)
                    a, b, c, d = addresses(buf, i, version)
                    e = protocol_word(version, protocol, both_ports)
                    is_common = version == 4 and is_typed(link_row(link))
                else:
                    outcome = innermost(buf, i, version, start, end, wire, options, state)
                    protocol, transport, payload = found[PROTOCOL], found[TRANSPORT], found[PAYLOAD]
                    ip_bytes, part = found[IP_BYTES], found[PART]
                    ip_at, version = found[IP_AT], found[IP_VERSION]
                    a, b, c, d = found_key[0], found_key[1], found_key[2], found_key[3]
                    e, f = found_key[4], found_key[5]
                    if part != WHOLE:
                        found_key[DATAGRAM_KEY + 4] |= interface_word(buf, start, link)
                e |= interface_word(buf, start, link)

        if outcome != FOLLOW:
            skipped[outcome, 0] += 1
            skipped[outcome, 1] += wire
        elif part == LATER_FRAGMENT:
            total[FRAGMENTS] += 1
            later_fragment(total[RECORDS], ts, wire, captured, options, state)
        else:
            # --- flow
            flags, seq, ack = np.int64(NO_HEADER), np.int64(0), np.int64(0)
            if protocol == TCP:
                flags = np.int64(CUT_HEADER)
                if transport + 14 <= end:
                    flags, numbers = np.int64(buf[transport + 13]), u64(buf, transport + 4)
                    seq, ack = np.int64(numbers >> np.uint64(32)), np.int64(numbers & np.uint64(0xFFFFFFFF))
            slot = find_slot(slots, keys, salt, a, b, c, d, e, f)
            flow = np.int64(slots[slot])
            if flow < 0 or flags & SYN_FLAG:
                is_syn, marks = flags > 0 and flags & SYN_FLAG != 0, np.int64(0)
                if flow >= 0 and is_syn and not details[flow, MARKS] & BEGAN_WITH_SYN:
                    details[flow, MARKS] |= SYN_LATER
                if flow < 0 or (is_syn and begins_connection(flow, details, seq)):
                    marks = np.int64(NOT_THE_FIRST if flow >= 0 else 0)
                    marks |= BEGAN_WITH_SYN if is_syn else 0
                    flow = new_flow(state, slot, a, b, c, d, e, f, ts)
                    if f & IS_ROCE:
                        lead(
                            slots, keys, details, salt, a, b, c, d, e, f, np.int64(f >> OPCODE_FROM & OPCODE_MASK), flow
                        )
                if flags == CUT_HEADER:
                    marks |= NOT_FOLLOWED
                details[flow, MARKS] |= marks

            if is_common:
                remember(state.recent, buf, i, transport, interface_word(buf, start, link), flow)

            # --- window and step; packets come in bursts, so the last one mostly fits
            if ts < window_from or ts >= window_to:
                window = ts // window_ns
                if window != total[WINDOW]:
                    close_cells(state)
                    total[WINDOW] = window
                window_from = window * window_ns
                window_to = window_from + window_ns
            if has_steps and (ts < step_from or ts >= step_to):
                step = np.searchsorted(bounds, ts, side="right") - 1
                step_from = bounds[step] if step >= 0 else FAR_PAST
                step_to = bounds[step + 1] if step + 1 < len(bounds) else FAR_FUTURE
            count_packet(flow, flows, details, open_cells, cells, total, step, ts, wire, ip_bytes, payload, captured)
            if ecn_of(buf, ip_at, version) == CONGESTED:
                details[flow, CE] += 1
                note(flow, details, cells, total, CE_NOTE, np.int64(0))
            if want_packets:
                record = total[RECORDS]
                told = told_by_headers(buf, ip_at, version, protocol, transport, end, part, max(flags, NO_FLAGS), seq)
                keep_packet(flow, packets, total, record, ts, wire, ip_bytes, payload, captured, told)

            # --- TCP
            if flags >= 0:
                if flags & RARE_FLAGS:
                    control(flow, details, cells, total, buf, transport, end, flags, seq)
                syn, fin = (flags >> 1) & 1, flags & 1
                if payload or syn or fin:
                    if seq == flows[flow, NEXT] & 0xFFFFFFFF and flows[flow, NEXT] >= 0:
                        if syn:
                            close_train(flow, flows, details, trains, total)
                            flows[flow, NEXT] += 1
                        if payload:
                            add_to_train(flow, flows, details, trains, total, silence_ns, payload, ts, flags)
                            flows[flow, NEXT] += payload
                        if fin:
                            close_train(flow, flows, details, trains, total)
                            flows[flow, NEXT] += 1
                    else:
                        segment(flow, flows, details, holes, trains, total, seq, syn, payload, fin, ts, flags)
                    if payload:
                        sample_segment(flow, flows, samples, total, seq, ts)
                if flags & (ACK_FLAG | RST_FLAG) == ACK_FLAG:
                    acknowledge(flow, flows, details, ack)
                    if not flags & CONTROL_FLAGS and transport + 16 <= end:
                        offer(flow, details, u16(buf, transport + 14))
            if f & IS_ROCE and transport + 20 <= end:
                opcode = np.int64(f >> OPCODE_FROM & OPCODE_MASK)
                add_roce(flow, flows, details, trains, total, buf, transport, opcode, payload, ts)
                follow_roce(flow, details, holes, cells, total, buf, transport, end, opcode, payload)
            if part != WHOLE:
                details[flow, MARKS] |= NOT_FOLLOWED
                total[FRAGMENTS] += 1
                first_fragment(flow, ts, options, state)

        total[EARLIEST], total[LATEST] = min(total[EARLIEST], ts), max(total[LATEST], ts)
        total[RECORDS] += 1
        total[TOTAL_WIRE] += wire
        pos = following
        if is_common and are_common and (not is_pcapng or unit_ns > 0):
            total[LAST_TIME] = ts
            begin, until = max(window_from, step_from), min(window_to, step_to)
            expected = Expected(is_pcapng, link, number, unit_ns, offset_ns, longest, latest_high, begin, until, step)
            pos = common_packets(buf, pos, stop, size, expected, silence_ns, state)
            ts = total[LAST_TIME]

    total[LAST_TIME] = ts
    return pos, why
