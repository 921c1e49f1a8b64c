"""The common packet: a whole IPv4 TCP segment of a known flow, in order, in the window and step of the one before.

Of a capture of training nearly all packets are such. This loop reads them and leaves each other one to scan.py: it
decides before it changes anything, and its result is that of scan.py.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ddnn_traces.capture_format import ENHANCED_PACKET
from ddnn_traces.jit import helper, inlined, prefetch, u16, u32, u32_little, u64_little
from ddnn_traces.pcap.compiled.connections import ACK_FLAG, RARE_FLAGS, offer
from ddnn_traces.pcap.compiled.flow_table import (
    ACK,
    CAPTURED,
    CELL_COUNT,
    CELL_PACKETS,
    CELL_PAYLOAD,
    CELL_STEP,
    CELL_WIRE,
    FLOW_COLUMNS,
    FLOW_COUNT,
    IP,
    LAST,
    LAST_TIME,
    LATEST,
    NEXT,
    OPEN_CELLS,
    RECORDS,
    SAMPLE_LIMIT,
    TOTAL_WIRE,
    TRAIN_COUNT,
    TRAIN_LAST,
    TRAIN_SIZE,
    WAITING_SPACE,
    count_large,
    sample_identity,
)
from ddnn_traces.pcap.compiled.headers import INTERFACE_AT, LINKS, SIZE, TYPE_AT, interface_word, link_row
from ddnn_traces.pcap.compiled.trains import PSH_FLAG, TRAIN_SPACE, add_to_train

# From so many flows on, their table is not in the caches, and is prefetched for records so far ahead: twice the speed.
MANY_FLOWS, NEAR_AHEAD, FAR_AHEAD = 2048, 8, 16


class Expected(NamedTuple):
    """What the packet before had, and the next ones are expected to have.

    interface: its number (pcapng). unit_ns: ns a unit of time: of the fraction (pcap), of all (pcapng). offset_ns: to
    add to the time. longest: captured length (pcap) or block (pcapng) above which there is damage. latest_high: upper
    half of a pcapng's time above which it may overflow. begin, end: times that are in its window and step.
    """

    is_pcapng: bool
    link: int
    interface: int
    unit_ns: int
    offset_ns: int
    longest: int
    latest_high: int
    begin: int
    end: int
    step: int


@inlined
def recent_slot(recent, ends, ports):
    """First of the two places where a flow may be in `recent`, the other one is beside it.

    ends: 8 bytes of IPv4 addresses, ports: 4 bytes, both as they are in the packet.
    """
    mixed = (
        (ends & np.uint64(0xFFFFFFFF)) * np.uint64(0x9E3779B97F4A7C15)
        + (ends >> np.uint64(32)) * np.uint64(0xBF58476D1CE4E5B9)
        + ports * np.uint64(0x94D049BB133111EB)
    )
    return np.int64((mixed >> np.uint64(32)) & np.uint64(len(recent) - 1))


@inlined
def _spread(word):
    """What the interface adds to `ends`. Those of two flows are hardly ever the same then; their keys tell."""
    return (word >> np.uint64(48)) * np.uint64(0x9E3779B97F4A7C15)


@helper
def remember(recent, buf, i, transport, word, flow):
    """Enter the flow of the IPv4 TCP packet at i: where it is, in a free place, or in that of another one.

    word: headers.interface_word of its frame.
    """
    ends, ports = u64_little(buf, i + 12) ^ _spread(word), np.uint64(u32_little(buf, transport))
    slot = recent_slot(recent, ends, ports)
    other = slot ^ 1
    if recent[slot, 1] != 0 and not (recent[slot, 0] == ends and recent[slot, 1] >> np.uint64(32) == ports):
        slot = other
    recent[slot, 0], recent[slot, 1] = ends, (ports << np.uint64(32)) | np.uint64(flow + 1)


@helper
def common_packets(buf, pos, stop, size, expected, silence_ns, state):
    """Read little-endian records from pos on: offset of the first one that is left to scan.py."""
    keys, flows, details, recent, total = state.keys, state.flows, state.details, state.recent, state.total
    open_cells, trains = state.open_cells, state.trains
    most_cells, most_trains = len(state.cells) - WAITING_SPACE, len(trains) - TRAIN_SPACE
    is_pcapng, interface, unit, offset = expected.is_pcapng, expected.interface, expected.unit_ns, expected.offset_ns
    longest, latest_high, begin, end = expected.longest, expected.latest_high, expected.begin, expected.end
    step, limit = expected.step, np.uint64(total[SAMPLE_LIMIT])
    row = link_row(expected.link)
    kind_at, ip_at = LINKS[row, TYPE_AT], LINKS[row, SIZE]
    has_interface, word, mixed_in = LINKS[row, INTERFACE_AT] >= 0, np.uint64(0), np.uint64(0)
    head = 28 if is_pcapng else 16
    records, wires, latest = np.int64(0), np.int64(0), total[LATEST]
    is_many = total[FLOW_COUNT] > MANY_FLOWS
    begin = max(begin, latest)  # so the time of a packet is the latest of its flow, too
    while pos < stop and pos + 32 <= size:
        # --- record
        start = pos + head
        if is_pcapng:
            length, high = u32_little(buf, pos + 4), u32_little(buf, pos + 12)
            captured, wire = u32_little(buf, pos + 20), u32_little(buf, pos + 24)
            following = pos + length
            time = ((high << 32) | u32_little(buf, pos + 16)) * unit + offset
            if u32_little(buf, pos) != ENHANCED_PACKET or u32_little(buf, pos + 8) != interface or high > latest_high:
                break
            if length & 3 or length > longest or following > size or captured > length - 32:
                break
            if u32_little(buf, following - 4) != length:
                break
        else:
            captured, wire = u32_little(buf, pos + 8), u32_little(buf, pos + 12)
            following = start + captured
            time = u32_little(buf, pos) * 1000000000 + u32_little(buf, pos + 4) * unit
            if captured > longest or following > size:
                break
        if time < begin or time >= end:
            break

        # --- headers
        i = start + ip_at
        if ip_at + 40 > captured or u16(buf, start + kind_at) != 0x0800:
            break
        kind = u16(buf, i) & 0xFF03  # version and header length; ECN, of which 3 is counted
        if kind < 0x4500 or kind > 0x4502 or buf[i + 9] != 6 or u16(buf, i + 6) & 0x3FFF:
            break
        ip_bytes, header, flags = u16(buf, i + 2), np.int64(buf[i + 32] >> 4) * 4, buf[i + 33]
        available, payload = wire - ip_at, ip_bytes - 20 - header
        if (
            ip_bytes > available
            or available > 65535
            or header < 20
            or payload < 0
            or flags & (RARE_FLAGS | ACK_FLAG) != ACK_FLAG
        ):
            break

        # --- flow
        goes_on = False
        ends, ports = u64_little(buf, i + 12), np.uint64(u32_little(buf, i + 20))
        if has_interface:
            word = interface_word(buf, start, expected.link)
            mixed_in = _spread(word)
            ends ^= mixed_in
        slot = recent_slot(recent, ends, ports)
        known = recent[slot, 1]
        if recent[slot, 0] != ends or known >> np.uint64(32) != ports or known == 0:
            slot ^= 1
            known = recent[slot, 1]
            if recent[slot, 0] != ends or known >> np.uint64(32) != ports or known == 0:
                break
        flow = np.int64(known & np.uint64(0xFFFFFFFF)) - 1
        if has_interface and (keys[flow, 4] ^ word) >> np.uint64(48):
            break
        if payload:
            expected_seq, seq = flows[flow, NEXT], u32(buf, i + 24)
            if expected_seq < 0 or seq != expected_seq & 0xFFFFFFFF or sample_identity(flow, flows, seq) <= limit:
                break
            goes_on = (
                payload == flows[flow, TRAIN_SIZE]
                and time - flows[flow, TRAIN_LAST] <= silence_ns
                and flags & PSH_FLAG == 0
            )
            if not goes_on and total[TRAIN_COUNT] > most_trains:
                break
        if flows[flow, ACK] < 0:
            break
        if flows[flow, CELL_PACKETS] == 0:
            if total[CELL_COUNT] + total[OPEN_CELLS] > most_cells:
                break
            open_cells[total[OPEN_CELLS]] = flow
            total[OPEN_CELLS] += 1
            flows[flow, CELL_STEP] = step
        elif flows[flow, CELL_STEP] != step:
            break

        # --- counters
        flows[flow, CELL_PACKETS] += 1
        flows[flow, CELL_WIRE] += wire
        flows[flow, CELL_PAYLOAD] += payload
        if payload:
            if goes_on:
                flows[flow, TRAIN_LAST] = time
            else:
                add_to_train(flow, flows, details, trains, total, silence_ns, payload, time, flags)
            flows[flow, NEXT] += payload
        flows[flow, IP] += ip_bytes
        flows[flow, CAPTURED] += captured
        flows[flow, LAST] = time
        newer = (u32(buf, i + 28) - flows[flow, ACK]) & 0xFFFFFFFF  # as connections.acknowledge
        flows[flow, ACK] += newer if newer < 0x80000000 else 0
        offer(flow, details, u16(buf, i + 34))
        if ip_bytes > 1500:
            count_large(flow, details, ip_bytes, payload)
        if is_many:
            # What packets some way ahead need is fetched; where they are is a guess, which costs only time.
            ahead = following - pos
            near, far = i + NEAR_AHEAD * ahead, min(i + FAR_AHEAD * ahead, size - 24)
            near = min(near, far)
            slot = recent_slot(recent, u64_little(buf, far + 12) ^ mixed_in, np.uint64(u32_little(buf, far + 20)))
            prefetch(recent, slot * 2)
            slot = recent_slot(recent, u64_little(buf, near + 12) ^ mixed_in, np.uint64(u32_little(buf, near + 20)))
            flow = max(np.int64(recent[slot, 1] & np.uint64(0xFFFFFFFF)) - 1, 0)
            prefetch(flows, flow * FLOW_COLUMNS)
            prefetch(flows, flow * FLOW_COLUMNS + 8)
        begin = time
        records += 1
        wires += wire
        pos = following
    total[RECORDS] += records
    total[TOTAL_WIRE] += wires
    if records:
        total[LATEST] = total[LAST_TIME] = begin
    return pos
