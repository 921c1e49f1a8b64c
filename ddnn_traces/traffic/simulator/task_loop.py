"""The event loop of a graph of tasks: computations and transfers with what waits for them. Compiled by numba.

Each link is shared max-min fairly, as in loop.py. Here only the transfers are looked at again that share a link, over
others too, with one that begins or ends: so a thousand hosts that each have their links for themselves cost no more
each than one.
"""

from __future__ import annotations

from heapq import heappop, heappush

import numpy as np
from numba import njit

_SAME = 1e-12
_ARRIVED = -1


@njit(cache=True, nogil=True)
def run(src, dst, amount, waits, bounds, waiting, rates, delay_ns):
    """When each task begins and ends, ns.

    dst: below 0 of a computation. amount: ns of a computation, bytes of a transfer. waits: for how many tasks each
    waits; waiting: what waits for task t, from bounds[t] to bounds[t + 1]; numbers beyond the tasks are of no task.
    rates: bytes a ns of each host's link, either way. A transfer ends with its last byte, which arrives delay_ns
    later: then what waits for it elsewhere goes on.
    """
    tasks, hosts = len(src), len(rates)
    begin, end = np.full(tasks, np.nan), np.full(tasks, np.nan)
    waits = waits.copy()
    rate, left, since = np.zeros(tasks), np.zeros(tasks), np.zeros(tasks)
    version = np.zeros(tasks, np.int64)
    # the open transfers of each link, out of a host or into it (+ hosts), as doubly linked lists
    head = np.full(2 * hosts, -1)
    following, before = np.full((2, tasks), -1), np.full((2, tasks), -1)
    is_dirty, dirty = np.zeros(2 * hosts, np.bool_), np.empty(2 * hosts, np.int64)
    seen, found = np.zeros(tasks, np.bool_), np.empty(tasks, np.int64)
    links, is_seen = np.empty(2 * hosts, np.int64), np.zeros(2 * hosts, np.bool_)
    capacity, number, full = np.zeros(2 * hosts), np.zeros(2 * hosts, np.int64), np.zeros(2 * hosts, np.bool_)
    new = np.zeros(tasks)
    ready = np.empty(tasks, np.int64)
    heap = [(0.0, 0, 0)]
    heap.pop()
    readies, dirties, now = 0, 0, 0.0
    for t in range(tasks):
        if waits[t] == 0:
            ready[readies] = t
            readies += 1
    while True:
        while readies > 0:
            readies -= 1
            t = ready[readies]
            begin[t] = now
            if dst[t] >= 0:
                left[t], since[t] = amount[t], now
                for way in range(2):
                    link = src[t] if way == 0 else dst[t] + hosts
                    following[way, t], before[way, t] = head[link], -1
                    if head[link] >= 0:
                        before[way, head[link]] = t
                    head[link] = t
                    if not is_dirty[link]:
                        is_dirty[link] = True
                        dirty[dirties] = link
                        dirties += 1
            elif amount[t] > 0:
                heappush(heap, (now + amount[t], t, _ARRIVED))
            else:
                end[t] = now
                for i in range(bounds[t], bounds[t + 1]):
                    w = waiting[i]
                    if w < tasks:
                        waits[w] -= 1
                        if waits[w] == 0:
                            ready[readies] = w
                            readies += 1
        if not (len(heap) > 0 and heap[0][0] == now) and dirties > 0:
            for k in range(dirties):
                if is_dirty[dirty[k]]:
                    share(
                        dirty[k], now, src, dst, head, following, is_dirty, seen, found, links, is_seen, capacity,
                        number, full, new, rates, rate, left, since, version, heap,
                    )  # fmt: skip
            dirties = 0
        if len(heap) == 0:
            return begin, end
        now, t, kind = heappop(heap)
        if kind != _ARRIVED and kind != version[t]:
            continue
        if kind != _ARRIVED:
            end[t], version[t] = now, version[t] + 1
            for way in range(2):
                link = src[t] if way == 0 else dst[t] + hosts
                if before[way, t] >= 0:
                    following[way, before[way, t]] = following[way, t]
                else:
                    head[link] = following[way, t]
                if following[way, t] >= 0:
                    before[way, following[way, t]] = before[way, t]
                if not is_dirty[link]:
                    is_dirty[link] = True
                    dirty[dirties] = link
                    dirties += 1
            heappush(heap, (now + delay_ns, t, _ARRIVED))
        elif dst[t] < 0:
            end[t] = now
        for i in range(bounds[t], bounds[t + 1]):
            w = waiting[i]
            # the sender goes on when all is sent, others when it has arrived
            if w >= tasks or (dst[t] >= 0 and (src[w] == src[t]) != (kind != _ARRIVED)):
                continue
            waits[w] -= 1
            if waits[w] == 0:
                ready[readies] = w
                readies += 1


@njit(nogil=True)
def share(
    first, now, src, dst, head, following, is_dirty, seen, found, links, is_seen, capacity, number, full, new, rates,
    rate, left, since, version, heap,
):  # fmt: skip
    """Give the transfers that share links with this one, over others too, their max-min fair rates."""
    hosts = len(rates)
    links[0], is_seen[first] = first, True
    count, flows, place = 1, 0, 0
    while place < count:
        link = links[place]
        place += 1
        is_dirty[link] = False
        way = 0 if link < hosts else 1
        capacity[link], number[link] = rates[link % hosts], 0
        f = head[link]
        while f >= 0:
            number[link] += 1
            if not seen[f]:
                seen[f] = True
                found[flows] = f
                flows += 1
                new[f] = -1.0
                other = dst[f] + hosts if way == 0 else src[f]
                if not is_seen[other]:
                    is_seen[other] = True
                    links[count] = other
                    count += 1
            f = following[way, f]
    unfilled = flows
    while unfilled > 0:  # the link with the least share a transfer is filled first
        least = np.inf
        for i in range(count):
            if number[links[i]] > 0:
                least = min(least, capacity[links[i]] / number[links[i]])
        for i in range(count):
            link = links[i]
            full[link] = number[link] > 0 and capacity[link] <= least * (1 + _SAME) * number[link]
        for i in range(flows):
            f = found[i]
            if new[f] < 0 and (full[src[f]] or full[dst[f] + hosts]):
                new[f] = least
                unfilled -= 1
                for link in (src[f], dst[f] + hosts):
                    number[link] -= 1
                    capacity[link] = max(0.0, capacity[link] - least)
    for i in range(count):
        is_seen[links[i]] = False
    for i in range(flows):
        f = found[i]
        seen[f] = False
        if new[f] != rate[f]:
            left[f] = max(0.0, left[f] - rate[f] * (now - since[f]))
            since[f], rate[f] = now, new[f]
            version[f] += 1
            heappush(heap, (now + left[f] / new[f], f, version[f]))
