"""The flow table: the row of a key, the counters in it, and the cells that windows and steps are made of.

One pass, one accumulator: every flow has a current *cell* (window, step). When a packet of the file falls into another
window, the cells of all flows that sent in the one before are appended to `cells`, so that cells come in the order of
time. Windows and steps are both sums over cells: each packet is touched once.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ddnn_traces.jit import borrowed, helper, inlined
from ddnn_traces.pcap.compiled import compiled
from ddnn_traces.pcap.flow_counters import COUNTERS

# Columns of `flows`, int64, one row a connection: two cache lines, which every packet touches. TRAIN_SIZE, TRAIN_LAST:
# of the open train (trains.py) the payload of its last segment, 0 without one, and its time.
CELL_STEP, CELL_PACKETS, CELL_WIRE, CELL_PAYLOAD, IP, CAPTURED, NEXT, IDENTITY = range(8)
TRAIN_SIZE, LAST, PACKETS, WIRE, PAYLOAD, ACK, TRAIN_LAST = range(8, 15)
CELL_RETX = 15  # bytes, of the cell
FLOW_COLUMNS = 16

#: The counters (flow_counters.py) that are columns of `flows`; the others are columns of `details`.
FLOW_COUNTERS = {
    "ip_bytes": IP, "captured_bytes": CAPTURED, "next_sequence": NEXT, "last_seen_ns": LAST, "packets": PACKETS,
    "wire_bytes": WIRE, "payload_bytes": PAYLOAD, "acknowledged": ACK,
}  # fmt: skip

# Columns of `details`, int64, one row a connection: those that few packets touch. HOLES: number of holes, HIGHEST: row
# + 1 of the highest. From LAST_SIZE on: payload of the last segment that was new; of the open train its first time and
# number, how many packets it has before those of its largest size, the number of these and the time of the first.
# Then the row + 1 of the flow that leads its stream of RoCEv2 (roce.py), and of such a flow the first number, the one
# after the highest, and how far the next may jump; and the row of `cells` with the flow's last note.
CLOSED, MARKS, HOLES, HIGHEST = range(4)
LAST_SIZE, TRAIN_FIRST, TRAIN_START, TRAIN_BEFORE, TRAIN_RUN, TRAIN_RUN_FIRST = range(4, 10)
LEADER, PSN_FIRST, PSN_NEXT, ALLOWED, NOTE = range(10, 15)
DETAIL_COUNTERS = {
    name: column for column, name in enumerate((c.name for c in COUNTERS if c.name not in FLOW_COUNTERS), start=15)
}
DETAIL_COLUMNS = 15 + len(DETAIL_COUNTERS)
FIRST, SYN, FIN, RST, OPENED, ACCEPTED, ISN, MSS, SCALE, LARGE_PACKETS, LARGE_PAYLOAD, HUGE_PACKETS, HUGE_PAYLOAD = (
    DETAIL_COUNTERS[name]
    for name in (
        "first_seen_ns", "syn_packets", "fin_packets", "rst_packets", "opened", "accepted", "initial_sequence", "mss",
        "window_scale", "large_packets", "large_payload_bytes", "huge_packets", "huge_payload_bytes",
    )
)  # fmt: skip
OFFERED, CLOSED_WINDOWS = (DETAIL_COUNTERS[name] for name in ("largest_window", "zero_window_packets"))
RETX_PACKETS, RETX_BYTES, ORDER_PACKETS, ORDER_BYTES, FIRST_SEQ, FIRST_ACK, FORGOTTEN, LARGEST_SEGMENT, PUSHES = (
    DETAIL_COUNTERS[name]
    for name in (
        "retransmitted_packets", "retransmitted_bytes", "out_of_order_packets", "out_of_order_bytes", "first_sequence",
        "first_acknowledged", "forgotten_bytes", "largest_segment_bytes", "pushed_segments",
    )
)  # fmt: skip
_UNKNOWN_FLOWS, _UNKNOWN_DETAILS = (
    tuple(columns[c.name] for c in COUNTERS if c.unknown and c.name in columns)
    for columns in (FLOW_COUNTERS, DETAIL_COUNTERS)
)

# Columns of `holes`, int64: sequence numbers, and row + 1 of the next lower hole of the flow (or of the next free row).
HOLE_BEGIN, HOLE_END, BELOW = range(3)
HOLE_COLUMNS = 3
#: Holes that a flow remembers at most; with one more, only the higher half of them.
MOST_HOLES = 1024

# Words of a key: source and destination (high, low), interface (from bit 48), version, protocol and ports, and the rare
# parts: tunnel (row + 1, from bit 40), RoCEv2 (bit 32), its opcode (from bit 24) and queue pair.
KEY_WORDS = 6
WITHOUT_INTERFACE = (1 << 48) - 1  # of the fifth

# Entries of `total`, int64.
RECORDS, TOTAL_WIRE, EARLIEST, LATEST, FLOW_COUNT, CELL_COUNT, PACKET_COUNT, SAMPLE_COUNT = range(8)
TUNNEL_COUNT, SAMPLE_LIMIT, LAST_TIME, UNTIMED, FRAGMENTS, DATAGRAMS, WAITING, WINDOW, OPEN_CELLS = range(8, 17)
HOLE_ROWS, FREE_HOLE = range(17, 19)  # rows of `holes` that were ever used; row + 1 of the first one that is free again
INVALID_TIMES, TRAIN_COUNT = range(19, 21)
TOTALS = 21

#: Rows that one packet may add at most: to flows and tunnels, and to cells and packets (fragments that have waited).
SPACE, WAITING_SPACE = 8, 4096 + 8

# Columns of a cell: flow, window, step, packets, wire bytes, payload bytes, retransmitted bytes.
CELL_COLUMNS = 7
# Columns of a packet: record, flow, time, wire, IP, payload and captured bytes; and, -1 where there is none: TCP flags
# and sequence number, ECN, RoCEv2's opcode, packet sequence number and syndrome.
PACKET_COLUMNS = 13
# Columns of a sample: identity, flow, time.
SAMPLE_COLUMNS = 3

FAR_FUTURE, FAR_PAST = np.int64(2**63 - 1), np.int64(-(2**63))

Int64Array = npt.NDArray[np.int64]


class Options(NamedTuple):
    """The options for reading a file. window_ns: length of a base window. bounds: start of the first step,
    then the end of every step, ascending, ns; empty: every packet gets `no_step`. silence_ns: as of ReadOptions.
    salt: of the hash."""

    window_ns: int
    bounds: Int64Array
    no_step: int
    open_tunnels: bool
    want_packets: bool
    silence_ns: int
    salt: np.uint64


class State(NamedTuple):
    """The state of reading a file. All int64 but slots (int32, a power of two long, -1 free) and the words of keys
    (uint64). Rows: keys, flows and details a connection each, open_cells a flow that has a cell in the current window
    (total[WINDOW]), holes those of all flows, cells, trains, packets and samples by their counts in total,
    skipped a reason each (packets, wire bytes); tunnels as a flow table of their own; recent: flows by the bytes of
    their packets, as in fast_path.py; the others as in headers.py and fragments.py."""

    slots: npt.NDArray[np.int32]
    keys: npt.NDArray[np.uint64]
    flows: Int64Array
    details: Int64Array
    holes: Int64Array
    open_cells: Int64Array
    cells: Int64Array
    trains: Int64Array
    packets: Int64Array
    samples: Int64Array
    total: Int64Array
    skipped: Int64Array
    tunnel_slots: npt.NDArray[np.int32]
    tunnel_keys: npt.NDArray[np.uint64]
    datagrams: Int64Array
    datagram_keys: npt.NDArray[np.uint64]
    waiting: Int64Array
    found: Int64Array
    found_key: npt.NDArray[np.uint64]
    recent: npt.NDArray[np.uint64]


@inlined
def borrow(options, state):
    """Options and state whose arrays are not reference-counted, for the length of one call."""
    o, s = options, state
    return (
        Options(o.window_ns, borrowed(o.bounds), o.no_step, o.open_tunnels, o.want_packets, o.silence_ns, o.salt),
        State(
            borrowed(s.slots), borrowed(s.keys), borrowed(s.flows), borrowed(s.details), borrowed(s.holes),
            borrowed(s.open_cells), borrowed(s.cells), borrowed(s.trains), borrowed(s.packets), borrowed(s.samples),
            borrowed(s.total),
            borrowed(s.skipped), borrowed(s.tunnel_slots), borrowed(s.tunnel_keys), borrowed(s.datagrams),
            borrowed(s.datagram_keys), borrowed(s.waiting), borrowed(s.found), borrowed(s.found_key),
            borrowed(s.recent),
        ),
    )  # fmt: skip


@inlined
def mixed(a, b, c, d, e, f):
    # The products do not wait for each other; their high bits are mixed into the low ones that pick the slot.
    h = (
        (a * np.uint64(0x9E3779B97F4A7C15))
        ^ (b * np.uint64(0xBF58476D1CE4E5B9))
        ^ (c * np.uint64(0x94D049BB133111EB))
        ^ (d * np.uint64(0xD6E8FEB86659FD93))
        ^ (e * np.uint64(0xA0761D6478BD642F))
        ^ (f * np.uint64(0x8EBC6AF09C88C6E3))
    )
    h = (h ^ (h >> np.uint64(32))) * np.uint64(0xE7037ED1A0B428DB)
    return h ^ (h >> np.uint64(29))


@inlined
def find_slot(slots, keys, salt, a, b, c, d, e, f):
    """Slot that holds the key's latest row, or the free slot where it belongs. Open addressing, linear probing.

    The salt is drawn anew for every file, so that no capture can be made whose keys all fall into one slot.
    """
    mask = np.uint64(len(slots) - 1)
    at = slot_of(slots, salt, a, b, c, d, e, f)
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
            and keys[flow, 5] == f
        ):
            return at
        at = (at + np.uint64(1)) & mask


@inlined
def slot_of(slots, salt, a, b, c, d, e, f):
    """Slot that is examined first for a key."""
    return mixed(a + salt, b + salt, c + salt, d + salt, e + salt, f + salt) & np.uint64(len(slots) - 1)


@inlined
def new_flow(state, slot, a, b, c, d, e, f, ts):
    """A row for the key, which the slot holds from now on."""
    total, keys, flows, details = state.total, state.keys, state.flows, state.details
    flow = total[FLOW_COUNT]
    total[FLOW_COUNT] += 1
    state.slots[slot] = flow
    keys[flow, 0], keys[flow, 1], keys[flow, 2], keys[flow, 3], keys[flow, 4], keys[flow, 5] = a, b, c, d, e, f
    details[flow, FIRST] = flows[flow, LAST] = ts
    flows[flow, IDENTITY] = np.int64(mixed(a, b, c, d, e & np.uint64(WITHOUT_INTERFACE), np.uint64(0)))
    for column in _UNKNOWN_FLOWS:
        flows[flow, column] = -1
    for column in _UNKNOWN_DETAILS:
        details[flow, column] = -1
    return flow


@compiled
def refill(slots, keys, count, salt):
    """Fill an empty slot table with the first `count` keys: the table has grown. The latest row of a key stays."""
    for flow in range(count):
        a, b, c, d, e, f = keys[flow, 0], keys[flow, 1], keys[flow, 2], keys[flow, 3], keys[flow, 4], keys[flow, 5]
        slots[find_slot(slots, keys, salt, a, b, c, d, e, f)] = flow


@inlined
def add_cell(flow, flows, cells, total, window, step, packets, wire, payload, again):
    """Append a cell, and add it to the flow's own sums."""
    at = total[CELL_COUNT]
    cells[at, 0], cells[at, 1], cells[at, 2] = flow, window, step
    cells[at, 3], cells[at, 4], cells[at, 5], cells[at, 6] = packets, wire, payload, again
    total[CELL_COUNT] += 1
    flows[flow, PACKETS] += packets
    flows[flow, WIRE] += wire
    flows[flow, PAYLOAD] += payload


@helper
def note(flow, details, cells, total, kind, size):
    """Count a packet that is noted by window: in a cell whose step is `kind`, one of NOTES."""
    at = details[flow, NOTE]
    if at >= total[CELL_COUNT] or cells[at, 0] != flow or cells[at, 1] != total[WINDOW] or cells[at, 2] != kind:
        at = details[flow, NOTE] = total[CELL_COUNT]
        total[CELL_COUNT] += 1
        cells[at, 0], cells[at, 1], cells[at, 2] = flow, total[WINDOW], kind
        cells[at, 3], cells[at, 4], cells[at, 5], cells[at, 6] = 0, 0, 0, 0
    cells[at, 3] += 1
    cells[at, 4] += size


@inlined
def _close_cell(flow, flows, cells, total):
    packets, wire, payload = flows[flow, CELL_PACKETS], flows[flow, CELL_WIRE], flows[flow, CELL_PAYLOAD]
    step, again = flows[flow, CELL_STEP], flows[flow, CELL_RETX]
    add_cell(flow, flows, cells, total, total[WINDOW], step, packets, wire, payload, again)
    flows[flow, CELL_PACKETS] = 0
    flows[flow, CELL_WIRE] = 0
    flows[flow, CELL_PAYLOAD] = 0
    flows[flow, CELL_RETX] = 0


@compiled
def close_cells(state):
    """Append the cells of the current window, of all flows."""
    for i in range(state.total[OPEN_CELLS]):
        _close_cell(state.open_cells[i], state.flows, state.cells, state.total)
    state.total[OPEN_CELLS] = 0


@inlined
def count_packet(flow, flows, details, open_cells, cells, total, step, ts, wire, ip_bytes, payload, captured):
    """Add a packet of the current window to a flow and its cell."""
    if flows[flow, CELL_PACKETS] == 0:
        open_cells[total[OPEN_CELLS]] = flow
        total[OPEN_CELLS] += 1
        flows[flow, CELL_STEP] = step
    elif flows[flow, CELL_STEP] != step:
        _close_cell(flow, flows, cells, total)
        flows[flow, CELL_STEP] = step
    flows[flow, CELL_PACKETS] += 1
    flows[flow, CELL_WIRE] += wire
    flows[flow, CELL_PAYLOAD] += payload
    count_sizes(flow, flows, details, ts, ip_bytes, payload, captured)


@inlined
def count_sizes(flow, flows, details, ts, ip_bytes, payload, captured):
    """Add a packet to those columns of a flow that are not in its cells."""
    flows[flow, IP] += ip_bytes
    flows[flow, CAPTURED] += captured
    details[flow, FIRST] = min(details[flow, FIRST], ts)
    flows[flow, LAST] = max(flows[flow, LAST], ts)
    if ip_bytes > 1500:
        count_large(flow, details, ip_bytes, payload)


@inlined
def count_large(flow, details, ip_bytes, payload):
    """Add a packet above 1,500 bytes to those columns that only such packets have."""
    details[flow, LARGE_PACKETS] += 1
    details[flow, LARGE_PAYLOAD] += payload
    if ip_bytes > 9000:
        details[flow, HUGE_PACKETS] += 1
        details[flow, HUGE_PAYLOAD] += payload


@inlined
def keep_packet(flow, packets, total, record, ts, wire, ip_bytes, payload, captured, told):
    """Append a row to `packets`. told: its last columns, which the headers tell."""
    at = total[PACKET_COUNT]
    packets[at, 0], packets[at, 1], packets[at, 2], packets[at, 3] = record, flow, ts, wire
    packets[at, 4], packets[at, 5], packets[at, 6], packets[at, 7] = ip_bytes, payload, captured, told[0]
    packets[at, 8], packets[at, 9], packets[at, 10], packets[at, 11] = told[1], told[2], told[3], told[4]
    packets[at, 12] = told[5]
    total[PACKET_COUNT] += 1


@inlined
def sample_identity(flow, flows, seq):
    """Identity of a segment, the same in every file that it is in: 63 bits of a hash."""
    identity = (np.uint64(flows[flow, IDENTITY]) ^ np.uint64(seq)) * np.uint64(0x9E3779B97F4A7C15)
    identity ^= identity >> np.uint64(32)
    return (identity * np.uint64(0xD6E8FEB86659FD93)) >> np.uint64(1)


@inlined
def sample_segment(flow, flows, samples, total, seq, ts):
    """Keep a segment when its identity, a hash of five-tuple and sequence number, is below the limit."""
    identity = sample_identity(flow, flows, seq)
    if identity <= np.uint64(total[SAMPLE_LIMIT]):
        at = total[SAMPLE_COUNT]
        samples[at, 0], samples[at, 1], samples[at, 2] = np.int64(identity), flow, ts
        total[SAMPLE_COUNT] += 1


@inlined
def step_of(ts, bounds, no_step):
    """Step that a time is in: -1 before the first, their number after the last."""
    return np.int64(np.searchsorted(bounds, ts, side="right") - 1) if len(bounds) else np.int64(no_step)


# --- sums of cells: sorting the cells of many flows in NumPy took longer than reading their packets

_DIGIT_BITS = 11
_DIGITS = 1 << _DIGIT_BITS


@inlined
def _digit(value, least, shift):
    return np.int64((np.uint64(value) - np.uint64(least)) >> shift & np.uint64(_DIGITS - 1))


@compiled
def sum_cells(cells):
    """The sums of the cells of a window and flow, ordered by both. cells: int64 (columns, n), the first two are these.

    A radix sort from the last digit of the flow to the first one of the window, each pass of which keeps equals in
    their order.
    """
    columns, size = cells.shape
    order, sorted_by_digit = np.arange(size), np.empty(size, np.int64)
    for column in (1, 0):
        least, span = cells[column].min(), np.uint64(cells[column].max()) - np.uint64(cells[column].min())
        shift = np.uint64(0)
        while shift < np.uint64(64) and span >> shift:
            begins = np.zeros(_DIGITS + 1, np.int64)
            for i in range(size):
                begins[_digit(cells[column, i], least, shift) + 1] += 1
            begins = np.cumsum(begins)
            for i in range(size):
                digit = _digit(cells[column, order[i]], least, shift)
                sorted_by_digit[begins[digit]] = order[i]
                begins[digit] += 1
            order, sorted_by_digit = sorted_by_digit, order
            shift += np.uint64(_DIGIT_BITS)
    sums, rows = np.empty((columns, size), np.int64), 0
    for i in range(size):
        at = order[i]
        if rows and sums[0, rows - 1] == cells[0, at] and sums[1, rows - 1] == cells[1, at]:
            for column in range(2, columns):
                sums[column, rows - 1] += cells[column, at]
        else:
            for column in range(columns):
                sums[column, rows] = cells[column, at]
            rows += 1
    return sums[:, :rows]
