"""The packet loop: record headers, header walk, flow table, windows and steps in one pass over the bytes.

tests/naive.py says the same in plain Python, one packet at a time; a test holds the two against each other. All
functions here are compiled by numba and release the interpreter. Offsets are into `buf`, a uint8 array.

One pass, one accumulator: every flow has a current *cell* (window, step); when a packet falls into another, the cell
is appended to `cells`. Windows and steps are both sums over cells, so that each packet is touched once.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

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

FAR_FUTURE, FAR_PAST = np.int64(2**63 - 1), np.int64(-(2**63))

# A captured length above this and above the file's snaplen is damage, as in libpcap and Wireshark.
MAX_CAPTURED = 262144


def _jit(function):
    """Compile, and keep the result on disk where numba finds a folder that it may write to."""
    try:
        return njit(nogil=True, cache=True, boundscheck=False)(function)
    except RuntimeError:  # neither the package's folder nor the user's cache
        return njit(nogil=True, boundscheck=False)(function)


# A call, and a view of a row, costs reference counts on its arrays, which took half of the loop's time: helpers are
# inlined, and arrays indexed by row and column.
_inline = njit(nogil=True, boundscheck=False, inline="always")


def _unaligned_load(bits, big_endian):
    """An intrinsic that reads an unsigned integer of that many bits at a byte offset, as int64.

    LLVM does not join single bytes into one load by itself here; this made the loop 1.5 times as fast.
    """

    @intrinsic
    def load(typing_context, buf, i):
        def generate(context, builder, signature, arguments):
            array = context.make_array(signature.args[0])(context, builder, arguments[0])
            kind = ir.IntType(bits)
            address = builder.gep(array.data, [arguments[1]])
            value = builder.load(builder.bitcast(address, kind.as_pointer()), align=1)
            if big_endian:
                value = builder.bswap(value)
            return builder.zext(value, ir.IntType(64)) if bits < 64 else value

        return (types.uint64 if bits == 64 else types.int64)(buf, types.int64), generate

    return load


_u16 = _unaligned_load(16, big_endian=True)
_u32 = _unaligned_load(32, big_endian=True)
_u32_little = _unaligned_load(32, big_endian=False)
_word = _unaligned_load(64, big_endian=True)


@_inline
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


@_inline
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


@_inline
def _hash(a, b, c, d, e):
    # The five products do not wait for each other; their high bits are mixed into the low ones that pick the slot.
    h = (
        (a * np.uint64(0x9E3779B97F4A7C15))
        ^ (b * np.uint64(0xBF58476D1CE4E5B9))
        ^ (c * np.uint64(0x94D049BB133111EB))
        ^ (d * np.uint64(0xD6E8FEB86659FD93))
        ^ (e * np.uint64(0xA0761D6478BD642F))
    )
    h = (h ^ (h >> np.uint64(32))) * np.uint64(0xE7037ED1A0B428DB)
    return h ^ (h >> np.uint64(29))


@_inline
def _find_slot(slots, keys, a, b, c, d, e):
    """Slot that holds the key's flow, or the free slot where it belongs. Open addressing, linear probing."""
    mask = np.uint64(len(slots) - 1)
    at = _hash(a, b, c, d, e) & mask
    while True:
        flow = slots[at]
        if flow < 0:
            return at
        if (
            keys[flow, 4] == e
            and keys[flow, 1] == b
            and keys[flow, 3] == d
            and keys[flow, 0] == a
            and keys[flow, 2] == c
        ):
            return at
        at = (at + np.uint64(1)) & mask


@_jit
def refill(slots, keys, count):
    """Fill an empty slot table with the first `count` keys: the table has grown."""
    for flow in range(count):
        slot = _find_slot(slots, keys, keys[flow, 0], keys[flow, 1], keys[flow, 2], keys[flow, 3], keys[flow, 4])
        slots[slot] = flow


@_inline
def _emit_cell(flow, flows, cells, total):
    """Append a flow's current cell, and add it to the flow's own sums."""
    if flows[flow, CELL_PACKETS] == 0:
        return
    at = total[CELL_COUNT]
    cells[at, 0] = flow
    cells[at, 1] = flows[flow, CELL_WINDOW]
    cells[at, 2] = flows[flow, CELL_STEP]
    cells[at, 3] = flows[flow, CELL_PACKETS]
    cells[at, 4] = flows[flow, CELL_WIRE]
    cells[at, 5] = flows[flow, CELL_PAYLOAD]
    total[CELL_COUNT] += 1
    flows[flow, PACKETS] += flows[flow, CELL_PACKETS]
    flows[flow, WIRE] += flows[flow, CELL_WIRE]
    flows[flow, PAYLOAD] += flows[flow, CELL_PAYLOAD]
    flows[flow, CELL_PACKETS] = 0
    flows[flow, CELL_WIRE] = 0
    flows[flow, CELL_PAYLOAD] = 0


@_jit
def emit_cells(start, flows, cells, total):
    """Append the current cells of the flows from `start` on; the flow to go on with when `cells` is full."""
    for flow in range(start, total[FLOW_COUNT]):
        if total[CELL_COUNT] == len(cells):
            return flow
        _emit_cell(flow, flows, cells, total)
    return total[FLOW_COUNT]


@_inline
def _count_tcp(flow, flows, flags, seq, payload):
    """TCP flags, and retransmissions by sequence number modulo 2^32 (RFC 9293, 3.4)."""
    syn = (flags >> 1) & 1
    fin = flags & 1
    if flags & 5:
        flows[flow, FIN] += fin
        flows[flow, RST] += (flags >> 2) & 1
    if syn:
        flows[flow, SYN] += 1
        if flags & 16:
            flows[flow, ACCEPTED] += 1
        else:
            flows[flow, OPENED] += 1
    if payload == 0 and syn == 0 and fin == 0:
        return
    following = (seq + payload + syn + fin) & 0xFFFFFFFF
    if syn or flows[flow, NEXT_SEQ] < 0:  # a new connection counts from its own number: five-tuples are used again
        flows[flow, NEXT_SEQ] = following
        return
    behind = (flows[flow, NEXT_SEQ] - seq) & 0xFFFFFFFF  # how far the segment starts below the highest seen
    if 0 < behind < 0x80000000 and payload > 0:
        flows[flow, RETX_PACKETS] += 1
        flows[flow, RETX_BYTES] += min(behind, payload)
    if ((following - flows[flow, NEXT_SEQ]) & 0xFFFFFFFF) < 0x80000000:
        flows[flow, NEXT_SEQ] = following


@_jit
def scan(buf, pos, size, big_endian, tick_ns, link, max_captured, window_ns, bounds, no_step, slots, keys, flows, cells,
         total, skipped):  # fmt: skip
    """Read complete records from buf[pos:size]; return (offset of the first unread record, why it stopped).

    bounds: begin of the first step, then the end of every step, ascending; empty: every packet gets `no_step`.
    slots: int32, a power of two long, -1 free. keys: uint64 (n, 5). flows: int64 (n, FLOW_COLUMNS). cells: int64
    (m, CELL_COLUMNS). total: int64 (TOTALS). skipped: int64 (reasons, 2), packets and wire bytes.
    """
    zero = np.uint64(0)
    records = total_wire = np.int64(0)
    earliest, latest = FAR_FUTURE, FAR_PAST
    window, window_from, window_to = np.int64(0), np.int64(0), np.int64(0)
    step, step_from, step_to = np.int64(no_step), FAR_PAST, FAR_FUTURE
    if len(bounds):
        step_to = step_from  # nothing known yet
    while True:
        if pos + 16 > size:
            why = NEED_BYTES
            break
        if big_endian:
            seconds, fraction = _u32(buf, pos), _u32(buf, pos + 4)
            captured, wire = _u32(buf, pos + 8), _u32(buf, pos + 12)
        else:
            seconds, fraction = _u32_little(buf, pos), _u32_little(buf, pos + 4)
            captured, wire = _u32_little(buf, pos + 8), _u32_little(buf, pos + 12)
        if captured > max_captured:
            why = CORRUPT
            break
        start = pos + 16
        end = start + captured
        if end > size:
            why = NEED_BYTES
            break
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
            slot = _find_slot(slots, keys, a, b, c, d, meta)
            flow = np.int64(slots[slot])
            if flow < 0:
                flow = total[FLOW_COUNT]
                if flow == len(keys):
                    why = FLOWS_FULL
                    break
                keys[flow, 0], keys[flow, 1], keys[flow, 2], keys[flow, 3], keys[flow, 4] = a, b, c, d, meta
                flows[flow, FIRST] = flows[flow, LAST] = ts
                flows[flow, NEXT_SEQ] = -1
                slots[slot] = flow
                total[FLOW_COUNT] += 1

            # --- window and step; packets come in bursts, so the last one mostly fits
            if ts < window_from or ts >= window_to:
                window = ts // window_ns
                window_from = window * window_ns
                window_to = window_from + window_ns
            if ts < step_from or ts >= step_to:
                step = np.searchsorted(bounds, ts, side="right") - 1
                step_from = bounds[step] if step >= 0 else FAR_PAST
                step_to = bounds[step + 1] if step + 1 < len(bounds) else FAR_FUTURE
            if flows[flow, CELL_WINDOW] != window or flows[flow, CELL_STEP] != step:
                if total[CELL_COUNT] == len(cells):
                    why = CELLS_FULL
                    break
                _emit_cell(flow, flows, cells, total)
                flows[flow, CELL_WINDOW] = window
                flows[flow, CELL_STEP] = step
            flows[flow, CELL_PACKETS] += 1
            flows[flow, CELL_WIRE] += wire
            flows[flow, CELL_PAYLOAD] += payload

            flows[flow, IP] += ip_bytes
            flows[flow, CAPTURED] += captured
            flows[flow, FIRST] = min(flows[flow, FIRST], ts)
            flows[flow, LAST] = max(flows[flow, LAST], ts)
            if protocol == TCP and not later and transport + 14 <= end:
                flags = np.int64(buf[transport + 13])
                _count_tcp(flow, flows, flags, _u32(buf, transport + 4), payload)
        else:
            skipped[outcome, 0] += 1
            skipped[outcome, 1] += wire

        earliest = min(earliest, ts)
        latest = max(latest, ts)
        records += 1
        total_wire += wire
        pos = end

    total[RECORDS] += records
    total[TOTAL_WIRE] += total_wire
    total[EARLIEST] = min(total[EARLIEST], earliest)
    total[LATEST] = max(total[LATEST], latest)
    return pos, why
