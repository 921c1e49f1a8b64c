"""Fragments after the first, which have no ports: they belong to their datagram's flow (RFC 791, 2.3; RFC 8200, 4.5).

A datagram is a row of state.datagrams while it is open; fragments whose first has not come yet wait in state.waiting.
"""

from __future__ import annotations

import numpy as np

from ddnn_traces.jit import helper
from ddnn_traces.pcap.compiled import compiled
from ddnn_traces.pcap.compiled.connections import NOT_FOLLOWED
from ddnn_traces.pcap.compiled.flow_table import (
    DATAGRAMS,
    FAR_FUTURE,
    MARKS,
    WAITING,
    add_cell,
    count_sizes,
    find_slot,
    keep_packet,
    new_flow,
    step_of,
)
from ddnn_traces.pcap.compiled.tunnels import (
    DATAGRAM_KEY,
    FRAGMENT_BEGIN,
    FRAGMENT_BYTES,
    FRAGMENT_MORE,
    IP_BYTES,
    PAYLOAD,
)

#: Of a packet without a transport header: TCP's flags, and the rest.
NOTHING_TOLD = (np.int64(-1),) * 6
MOST_DATAGRAMS, MOST_WAITING = 1024, 4096
MOST_AGE_NS = 30_000_000_000

# Columns of `datagrams`: number of its opening (0: the row is free), flow (-1: no first fragment yet), time of the
# first fragment observed, bytes received, end (-1: no last fragment yet), how many fragments wait.
OPENED, FLOW, BEGAN, RECEIVED, END, WAITS = range(6)
DATAGRAM_COLUMNS = 6
# Columns of `waiting`, in the order of arrival: datagram, record, time, wire, IP, payload and captured bytes.
DATAGRAM, RECORD, TIME = range(3)
WAITING_COLUMNS = 7


@helper
def _count(flow, record, ts, wire, ip_bytes, payload, captured, options, state):
    window = ts // options.window_ns
    step = step_of(ts, options.bounds, options.no_step)
    add_cell(flow, state.flows, state.cells, state.total, window, step, 1, wire, payload, 0)
    count_sizes(flow, state.flows, state.details, ts, ip_bytes, payload, captured)
    state.details[flow, MARKS] |= NOT_FOLLOWED
    if options.want_packets:
        keep_packet(flow, state.packets, state.total, record, ts, wire, ip_bytes, payload, captured, NOTHING_TOLD)


@helper
def _release(row, flow, options, state):
    """Count the waiting fragments of a datagram in a flow."""
    waiting, left = state.waiting, 0
    for i in range(state.total[WAITING]):
        if waiting[i, DATAGRAM] == row:
            w = waiting[i]
            _count(flow, w[RECORD], w[TIME], w[3], w[4], w[5], w[6], options, state)
        else:
            waiting[left] = waiting[i]
            left += 1
    state.total[WAITING] = left
    state.datagrams[row, WAITS] = 0


@helper
def _give_up(row, options, state):
    """Close a datagram. Fragments that still wait for its first one become a flow without ports."""
    datagrams, keys = state.datagrams, state.datagram_keys
    if datagrams[row, WAITS]:
        a, b, c, d, e = keys[row, 0], keys[row, 1], keys[row, 2], keys[row, 3], keys[row, 4]
        f = (keys[row, 5] >> np.uint64(40)) << np.uint64(40)
        slot = find_slot(state.slots, state.keys, options.salt, a, b, c, d, e, f)
        flow = np.int64(state.slots[slot])
        if flow < 0:
            flow = new_flow(state, slot, a, b, c, d, e, f, _first_time(row, state))
        _release(row, flow, options, state)
    datagrams[row, OPENED] = 0


@helper
def _first_time(row, state):
    for i in range(state.total[WAITING]):
        if state.waiting[i, DATAGRAM] == row:
            return state.waiting[i, TIME]
    return FAR_FUTURE


@helper
def _oldest(state, waits):
    """Row of the datagram opened first, of those that have fragments waiting where `waits`; -1 without one."""
    oldest = np.int64(-1)
    for row in range(MOST_DATAGRAMS):
        opened = state.datagrams[row, OPENED]
        counts = opened and (not waits or state.datagrams[row, WAITS])
        if counts and (oldest < 0 or opened < state.datagrams[oldest, OPENED]):
            oldest = np.int64(row)
    return oldest


@helper
def _find(ts, options, state):
    """Row of the open datagram of state.found_key; -1 without one, or when it is too old."""
    key, keys, datagrams = state.found_key, state.datagram_keys, state.datagrams
    for row in range(min(state.total[DATAGRAMS], MOST_DATAGRAMS)):
        same = datagrams[row, OPENED] != 0
        for word in range(6):
            same = same and keys[row, word] == key[DATAGRAM_KEY + word]
        if same:
            if ts - datagrams[row, BEGAN] < MOST_AGE_NS:
                return np.int64(row)
            _give_up(row, options, state)
    return np.int64(-1)


@helper
def _open(ts, options, state):
    """A row for the datagram of state.found_key; where all are taken, that of the one opened first."""
    datagrams, row = state.datagrams, np.int64(-1)
    for free in range(MOST_DATAGRAMS):
        if datagrams[free, OPENED] == 0:
            row = np.int64(free)
            break
    if row < 0:
        row = _oldest(state, False)
        _give_up(row, options, state)
    state.total[DATAGRAMS] += 1
    datagrams[row, OPENED] = state.total[DATAGRAMS]
    datagrams[row, FLOW], datagrams[row, BEGAN], datagrams[row, RECEIVED] = -1, ts, 0
    datagrams[row, END], datagrams[row, WAITS] = -1, 0
    for word in range(6):
        state.datagram_keys[row, word] = state.found_key[DATAGRAM_KEY + word]
    return row


@helper
def _add_bytes(row, options, state):
    """Add the bytes of the current fragment; close the datagram when they are complete."""
    datagrams, found = state.datagrams, state.found
    datagrams[row, RECEIVED] += found[FRAGMENT_BYTES]
    if not found[FRAGMENT_MORE]:
        datagrams[row, END] = found[FRAGMENT_BEGIN] + found[FRAGMENT_BYTES]
    if 0 <= datagrams[row, END] <= datagrams[row, RECEIVED]:
        _give_up(row, options, state)


@helper
def first_fragment(flow, ts, options, state):
    """The current fragment is a datagram's first, and counted in `flow`: those that wait for it follow."""
    row = _find(ts, options, state)
    if row >= 0 and state.datagrams[row, FLOW] >= 0:  # another datagram of the same identification
        state.datagrams[row, OPENED] = 0
        row = np.int64(-1)
    if row < 0:
        row = _open(ts, options, state)
    state.datagrams[row, FLOW] = flow
    if state.datagrams[row, WAITS]:
        _release(row, flow, options, state)
    _add_bytes(row, options, state)


@helper
def later_fragment(record, ts, wire, captured, options, state):
    """Count a fragment that is not the first in its datagram's flow, or let it wait."""
    datagrams, waiting, found = state.datagrams, state.waiting, state.found
    row = _find(ts, options, state)
    if row >= 0 and datagrams[row, FLOW] >= 0:
        flow = datagrams[row, FLOW]
        _count(flow, record, ts, wire, found[IP_BYTES], found[PAYLOAD], captured, options, state)
        _add_bytes(row, options, state)
        return
    if row < 0:
        row = _open(ts, options, state)
    at = state.total[WAITING]
    waiting[at, DATAGRAM], waiting[at, RECORD], waiting[at, TIME] = row, record, ts
    waiting[at, 3], waiting[at, 4], waiting[at, 5], waiting[at, 6] = wire, found[IP_BYTES], found[PAYLOAD], captured
    state.total[WAITING] += 1
    datagrams[row, WAITS] += 1
    _add_bytes(row, options, state)
    if state.total[WAITING] > MOST_WAITING:
        _give_up(_oldest(state, True), options, state)


@compiled
def give_up_one(options, state):
    """At the end of a file: close the datagram opened first that has fragments waiting; False where there is none."""
    row = _oldest(state, True)
    if row < 0:
        return False
    _give_up(row, options, state)
    return True
