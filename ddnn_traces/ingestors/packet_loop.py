"""The packet loop: record headers, header walk, flow table, windows and steps in one pass over the bytes.

tests/naive.py says the same in plain Python, one packet at a time; a test holds the two against each other. All
functions here are compiled by numba and release the interpreter. Offsets are into `buf`, a uint8 array.

One pass, one accumulator: every flow has a current *cell* (window, step); when a packet falls into another, the cell
is appended to `cells`. Windows and steps are both sums over cells, so that each packet is touched once.
"""

from __future__ import annotations

import numpy as np
from numba import njit

# Why scan() returned.
NEED_BYTES, FLOWS_FULL, CELLS_FULL, CORRUPT = range(4)

# Columns of `flows`, int64, one row a flow.
FIRST, LAST, PACKETS, WIRE, IP, PAYLOAD, CAPTURED = range(7)
SYN, FIN, RST, RETX_PACKETS, RETX_BYTES, OPENED, ACCEPTED = range(7, 14)
NEXT_SEQ = 14  # highest sequence number seen so far, plus 1; -1 before the first segment
CELL_WINDOW, CELL_STEP, CELL_PACKETS, CELL_WIRE, CELL_PAYLOAD = range(15, 20)
FLOW_COLUMNS = 20

# Entries of `total`, int64.
RECORDS, TOTAL_WIRE, EARLIEST, LATEST, FLOW_COUNT, CELL_COUNT = range(6)
TOTALS = 6

# Columns of a cell, int64: flow, window, step, packets, wire bytes, payload bytes.
CELL_COLUMNS = 6

# Outcomes of the header walk: in a flow, or an index into facts.SKIP_REASONS.
FOLLOW, NOT_IP, MALFORMED, CUT_SHORT, UNKNOWN_LINK = -1, 0, 1, 2, 3

TCP, UDP = 6, 17
ETHERNET, SLL, SLL2 = 1, 113, 276
RAW_LINKS = (12, 14, 101, 228, 229)
NULL_LINKS = (0, 108)

# A captured length above this and above the file's snaplen is damage, as in libpcap and Wireshark.
MAX_CAPTURED = 262144

_jit = njit(nogil=True, cache=True, boundscheck=False)


@_jit
def _u16(buf, i):
    return (np.int64(buf[i]) << 8) | np.int64(buf[i + 1])


@_jit
def _u32(buf, i):
    return (np.int64(buf[i]) << 24) | (np.int64(buf[i + 1]) << 16) | (np.int64(buf[i + 2]) << 8) | np.int64(buf[i + 3])


@_jit
def _u32_little(buf, i):
    return np.int64(buf[i]) | (np.int64(buf[i + 1]) << 8) | (np.int64(buf[i + 2]) << 16) | (np.int64(buf[i + 3]) << 24)


@_jit
def _word(buf, i):
    return (np.uint64(_u32(buf, i)) << np.uint64(32)) | np.uint64(_u32(buf, i + 4))


@_jit
def network_header(buf, start, end, link):
    """(offset of the IP header, IP version) of a frame; version 0 and an outcome code where there is none."""
    if link == ETHERNET:
        i = start + 12
    elif link == SLL:
        i = start + 14
    elif link == SLL2:
        i = start
    elif link in RAW_LINKS or link in NULL_LINKS:
        i = start + 4 if link in NULL_LINKS else start
        if i >= end:
            return CUT_SHORT, 0
        version = np.int64(buf[i] >> 4)
        return (i, version) if version == 4 or version == 6 else (NOT_IP, 0)
    else:
        return UNKNOWN_LINK, 0
    if i + 2 > end:
        return CUT_SHORT, 0
    kind = _u16(buf, i)
    i = start + 20 if link == SLL2 else i + 2
    while kind == 0x8100 or kind == 0x88A8 or kind == 0x9100:  # 802.1Q and 802.1ad tags
        if i + 4 > end:
            return CUT_SHORT, 0
        kind = _u16(buf, i + 2)
        i += 4
    if kind == 0x0800:
        return i, 4
    if kind == 0x86DD:
        return i, 6
    return NOT_IP, 0


@_jit
def ipv6_transport(buf, i, end):
    """(next header, offset behind the extension headers, fragment) of the IPv6 header at i; RFC 8200, section 4.

    fragment is true for all but the first one. Offset -1: the captured bytes end inside the chain.
    """
    protocol = np.int64(buf[i + 6])
    i += 40
    while protocol == 0 or protocol == 43 or protocol == 60 or protocol == 135 or protocol == 51 or protocol == 44:
        if i + 8 > end:
            return protocol, -1, False
        following = np.int64(buf[i])
        if protocol == 44:
            later = (_u16(buf, i + 2) & 0xFFF8) != 0
            i += 8
            if later:
                return following, i, True
        elif protocol == 51:
            i += (np.int64(buf[i + 1]) + 2) * 4
        else:
            i += (np.int64(buf[i + 1]) + 1) * 8
        protocol = following
    return protocol, i, False


@_jit
def _hash(a, b, c, d, e):
    h = a * np.uint64(0x9E3779B97F4A7C15) ^ b
    h = (h ^ (h >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9) ^ c
    h = (h ^ (h >> np.uint64(32))) * np.uint64(0x94D049BB133111EB) ^ d
    h = (h ^ (h >> np.uint64(29))) * np.uint64(0x9E3779B97F4A7C15) ^ e
    h = (h ^ (h >> np.uint64(32))) * np.uint64(0xBF58476D1CE4E5B9)
    return h ^ (h >> np.uint64(31))


@_jit
def _find_slot(slots, keys, a, b, c, d, e):
    """Slot that holds the key's flow, or the free slot where it belongs. Open addressing, linear probing."""
    mask = np.uint64(len(slots) - 1)
    at = _hash(a, b, c, d, e) & mask
    while True:
        flow = slots[at]
        if flow < 0:
            return at
        key = keys[flow]
        if key[4] == e and key[1] == b and key[3] == d and key[0] == a and key[2] == c:
            return at
        at = (at + np.uint64(1)) & mask


@_jit
def refill(slots, keys, count):
    """Fill an empty slot table with the first `count` keys: the table has grown."""
    for flow in range(count):
        key = keys[flow]
        slots[_find_slot(slots, keys, key[0], key[1], key[2], key[3], key[4])] = flow


@_jit
def _emit_cell(flow, row, cells, total):
    if row[CELL_PACKETS] == 0:
        return
    cell = cells[total[CELL_COUNT]]
    cell[0] = flow
    cell[1] = row[CELL_WINDOW]
    cell[2] = row[CELL_STEP]
    cell[3] = row[CELL_PACKETS]
    cell[4] = row[CELL_WIRE]
    cell[5] = row[CELL_PAYLOAD]
    total[CELL_COUNT] += 1
    row[CELL_PACKETS] = 0
    row[CELL_WIRE] = 0
    row[CELL_PAYLOAD] = 0


@_jit
def emit_cells(start, flows, cells, total):
    """Append the current cells of the flows from `start` on; the flow to go on with when `cells` is full."""
    for flow in range(start, total[FLOW_COUNT]):
        if total[CELL_COUNT] == len(cells):
            return flow
        _emit_cell(flow, flows[flow], cells, total)
    return total[FLOW_COUNT]


@_jit
def _count_tcp(row, flags, seq, payload):
    """TCP flags, and retransmissions by sequence number modulo 2^32 (RFC 9293, 3.4)."""
    syn = (flags >> 1) & 1
    fin = flags & 1
    row[FIN] += fin
    row[RST] += (flags >> 2) & 1
    if syn:
        row[SYN] += 1
        if flags & 16:
            row[ACCEPTED] += 1
        else:
            row[OPENED] += 1
    if payload == 0 and syn == 0 and fin == 0:
        return
    following = (seq + payload + syn + fin) & 0xFFFFFFFF
    if syn or row[NEXT_SEQ] < 0:  # a new connection counts from its own number: five-tuples are used again
        row[NEXT_SEQ] = following
        return
    behind = (row[NEXT_SEQ] - seq) & 0xFFFFFFFF  # how far the segment starts below the highest seen
    if 0 < behind < 0x80000000 and payload > 0:
        row[RETX_PACKETS] += 1
        row[RETX_BYTES] += min(behind, payload)
    if ((following - row[NEXT_SEQ]) & 0xFFFFFFFF) < 0x80000000:
        row[NEXT_SEQ] = following


@_jit
def scan(buf, pos, size, big_endian, tick_ns, link, max_captured, window_ns, bounds, no_step, slots, keys, flows, cells,
         total, skipped):  # fmt: skip
    """Read complete records from buf[pos:size]; return (offset of the first unread record, why it stopped).

    bounds: begin of the first step, then the end of every step, ascending; empty: every packet gets `no_step`.
    slots: int32, a power of two long, -1 free. keys: uint64 (n, 5). flows: int64 (n, FLOW_COLUMNS). cells: int64
    (m, CELL_COLUMNS). total: int64 (TOTALS). skipped: int64 (reasons, 2), packets and wire bytes.
    """
    zero = np.uint64(0)
    last_flow = np.int64(0)  # its key is all zero before the first packet, and so no packet's
    window, window_from, window_to = np.int64(0), np.int64(0), np.int64(0)
    step, step_from, step_to = np.int64(no_step), np.int64(-(2**63)), np.int64(2**63 - 1)
    if len(bounds):
        step_to = step_from  # nothing known yet
    while True:
        if pos + 16 > size:
            return pos, NEED_BYTES
        if big_endian:
            seconds, fraction = _u32(buf, pos), _u32(buf, pos + 4)
            captured, wire = _u32(buf, pos + 8), _u32(buf, pos + 12)
        else:
            seconds, fraction = _u32_little(buf, pos), _u32_little(buf, pos + 4)
            captured, wire = _u32_little(buf, pos + 8), _u32_little(buf, pos + 12)
        if captured > max_captured:
            return pos, CORRUPT
        start = pos + 16
        end = start + captured
        if end > size:
            return pos, NEED_BYTES
        ts = seconds * 1000000000 + fraction * tick_ns

        # --- header walk: up to the ports, from captured bytes only
        outcome = FOLLOW
        ip_bytes = payload = np.int64(0)
        transport = np.int64(-1)
        a = b = c = d = meta = zero
        i, version = network_header(buf, start, end, link)
        if version == 0:
            outcome = i
        elif version == 4:
            if i + 20 > end:
                outcome = CUT_SHORT
            else:
                header = np.int64(buf[i] & 15) * 4
                available = wire - (i - start)
                ip_bytes = _u16(buf, i + 2)
                if ip_bytes == 0 or ip_bytes > available or available > 65535:
                    ip_bytes = available
                protocol = np.int64(buf[i + 9])
                later = (_u16(buf, i + 6) & 0x1FFF) != 0
                b = np.uint64(_u32(buf, i + 12))
                d = np.uint64(_u32(buf, i + 16))
                if buf[i] >> 4 != 4 or header < 20 or header > ip_bytes:
                    outcome = MALFORMED
                else:
                    payload = ip_bytes - header
                    transport = i + header
        else:
            if i + 40 > end:
                outcome = CUT_SHORT
            else:
                available = wire - (i - start)
                ip_bytes = 40 + _u16(buf, i + 4)
                if ip_bytes == 40 or ip_bytes > available or available > 65575:
                    ip_bytes = available
                a, b = _word(buf, i + 8), _word(buf, i + 16)
                c, d = _word(buf, i + 24), _word(buf, i + 32)
                if buf[i] >> 4 != 6:
                    outcome = MALFORMED
                else:
                    protocol, transport, later = ipv6_transport(buf, i, end)
                    if transport < 0:
                        outcome = CUT_SHORT
                    else:
                        payload = ip_bytes - (transport - i)
                        if payload < 0:
                            outcome = MALFORMED
        if outcome == FOLLOW:
            meta = np.uint64((version << 40) | (protocol << 32))
            if protocol in (TCP, UDP) and not later:
                if transport + 4 > end:
                    outcome = CUT_SHORT
                else:
                    meta |= np.uint64(_u32(buf, transport))  # both ports
                    header = np.int64(8)
                    if protocol == TCP:
                        header = np.int64(20)
                        if transport + 13 <= end:
                            header = np.int64(buf[transport + 12] >> 4) * 4
                    payload -= header
                    if payload < 0 or header < 8 or (protocol == TCP and header < 20):
                        outcome = MALFORMED

        # --- flow table
        if outcome == FOLLOW:
            key = keys[last_flow]
            if key[4] == meta and key[1] == b and key[3] == d and key[0] == a and key[2] == c:
                flow = last_flow
            else:
                slot = _find_slot(slots, keys, a, b, c, d, meta)
                flow = np.int64(slots[slot])
                if flow < 0:
                    flow = total[FLOW_COUNT]
                    if flow == len(keys):
                        return pos, FLOWS_FULL
                    key = keys[flow]
                    key[0], key[1], key[2], key[3], key[4] = a, b, c, d, meta
                    row = flows[flow]
                    row[:] = 0
                    row[FIRST] = row[LAST] = ts
                    row[NEXT_SEQ] = -1
                    slots[slot] = flow
                    total[FLOW_COUNT] += 1
                last_flow = flow
            row = flows[flow]

            # --- window and step; packets come in bursts, so the last one mostly fits
            if ts < window_from or ts >= window_to:
                window = ts // window_ns
                window_from = window * window_ns
                window_to = window_from + window_ns
            if ts < step_from or ts >= step_to:
                step = np.searchsorted(bounds, ts, side="right") - 1
                step_from = bounds[step] if step >= 0 else np.int64(-(2**63))
                step_to = bounds[step + 1] if step + 1 < len(bounds) else np.int64(2**63 - 1)
            if row[CELL_WINDOW] != window or row[CELL_STEP] != step:
                if total[CELL_COUNT] == len(cells):
                    return pos, CELLS_FULL
                _emit_cell(flow, row, cells, total)
                row[CELL_WINDOW] = window
                row[CELL_STEP] = step
            row[CELL_PACKETS] += 1
            row[CELL_WIRE] += wire
            row[CELL_PAYLOAD] += payload

            row[PACKETS] += 1
            row[WIRE] += wire
            row[IP] += ip_bytes
            row[PAYLOAD] += payload
            row[CAPTURED] += captured
            row[FIRST] = min(row[FIRST], ts)
            row[LAST] = max(row[LAST], ts)
            if protocol == TCP and not later and transport + 14 <= end:
                flags = np.int64(buf[transport + 13])
                _count_tcp(row, flags, _u32(buf, transport + 4), payload)
        else:
            skipped[outcome, 0] += 1
            skipped[outcome, 1] += wire

        if total[RECORDS] == 0 or ts < total[EARLIEST]:
            total[EARLIEST] = ts
        if total[RECORDS] == 0 or ts > total[LATEST]:
            total[LATEST] = ts
        total[RECORDS] += 1
        total[TOTAL_WIRE] += wire
        pos = end
