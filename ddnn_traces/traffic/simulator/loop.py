"""The general event loop: jobs that share links, transfer by transfer. Compiled by numba.

A clock, a heap and a tie-breaking counter, as in event_loop.py; here the end of each transfer is an event, too. Each
time the set of transfers changes, their rates become max-min fair again. shared_links.py makes the arrays.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import NamedTuple

import numpy as np
from numba import njit

PHASES = 2  # places that each job has for its phases

_FORWARD, _BACKWARD, _READY, _ROUND, _DONE, _FLOWS = range(6)
_NOTHING = -1
_LEFT = 1e-9  # of a transfer: so much may be left over by rounding
_SHORT_NS = 1e-3  # and what takes less time than times can tell
_SAME = 1e-12


class Model(NamedTuple):
    """What is simulated, as arrays; numbers of jobs, workers, layers, buffers and transfers run through all jobs.

    A job's workers, layers and buffers are ranges: those of job j are from entry j to entry j + 1. steps, phases,
    variants (of the transfers), is_priority, has_barrier, has_server_barrier, start_ns, delay_ns, update_ns: a job.
    job_of: a worker. forward_ns, backward_ns, need (buffers with its gradients), ready (range of buffers that are
    complete with it): a layer. first, last (layers): a buffer. factors: steps + 1 by workers. exchanges: the first
    exchange of each job, of which there are steps by buffers by phases. rounds_of: the first phase of each job, of
    which there are variants by buffers by phases; phase_rounds: their ranges of rounds; round_transfers: their ranges
    of transfers. src, dst: links; size: bytes on the wire. rates: bytes a ns of the links.
    """

    workers: np.ndarray
    layers: np.ndarray
    buffers: np.ndarray
    steps: np.ndarray
    phases: np.ndarray
    variants: np.ndarray
    is_priority: np.ndarray
    has_barrier: np.ndarray
    has_server_barrier: np.ndarray
    start_ns: np.ndarray
    delay_ns: np.ndarray
    update_ns: np.ndarray
    job_of: np.ndarray
    forward_ns: np.ndarray
    backward_ns: np.ndarray
    need: np.ndarray
    ready: np.ndarray
    first: np.ndarray
    last: np.ndarray
    factors: np.ndarray
    exchanges: np.ndarray
    rounds_of: np.ndarray
    phase_rounds: np.ndarray
    round_transfers: np.ndarray
    src: np.ndarray
    dst: np.ndarray
    size: np.ndarray
    rates: np.ndarray


class State(NamedTuple):
    """What changes. turn: the tie-breaking counter, one number.

    forward_end: steps + 1 by workers, ns. step, waits_at (layer): a worker. pending (buffers), received (steps): a
    layer. missing, aggregated (buffers), complete (steps): a job. computed (workers), buffer_step: a buffer. waiting:
    the turn in which a buffer came into the queue of a phase. in_flight (buffer), round, open (transfers): a job and
    phase. exchanged: start and end of each exchange, ns. flows: the open transfers, in the places below `open`; owner:
    their jobs and phases; left, rate, moved (bytes), since (ns): of each. link_left (bytes a ns), link_number
    (transfers), link_is_full: work space of share().
    """

    turn: np.ndarray
    forward_end: np.ndarray
    step: np.ndarray
    waits_at: np.ndarray
    pending: np.ndarray
    received: np.ndarray
    missing: np.ndarray
    complete: np.ndarray
    aggregated: np.ndarray
    computed: np.ndarray
    buffer_step: np.ndarray
    waiting: np.ndarray
    in_flight: np.ndarray
    round: np.ndarray
    open: np.ndarray
    exchanged: np.ndarray
    flows: np.ndarray
    owner: np.ndarray
    left: np.ndarray
    rate: np.ndarray
    moved: np.ndarray
    since: np.ndarray
    link_left: np.ndarray
    link_number: np.ndarray
    link_is_full: np.ndarray


@njit(cache=True, nogil=True)
def simulate(model, state, most_events):
    """Run all jobs to their ends; state then holds when.

    Returns transmissions (transfer, exchange, start, end and bytes; one more each time the rate of a transfer changes)
    and the number of events: of the heap, and ends of transfers.
    """
    heap = [(0.0, 0, 0, 0, 0)]
    heap.pop()
    sent, rows = np.zeros((1024, 5)), 0
    open_flows, version, updated, events, has_changed = 0, 0, 0.0, 0, False
    for w in range(len(model.job_of)):
        state.waits_at[w] = 0
        start_forward(model, state, heap, model.start_ns[model.job_of[w]], w)
    while len(heap) > 0 and events < most_events:
        now, number, kind, a, b = heappop(heap)
        events += 1
        if kind == _FORWARD:
            forward_done(model, state, heap, now, a, b)
        elif kind == _BACKWARD:
            backward_done(model, state, heap, now, a, b)
        elif kind == _READY:
            state.waiting[b, a] = number
        elif kind == _ROUND:
            begun = next_round(model, state, heap, now, a, b, open_flows)
            open_flows += begun
            has_changed = has_changed or begun > 0
        elif kind == _DONE:
            exchange_done(model, state, heap, now, a)
        elif a == version:
            advance(state, open_flows, now - updated)
            updated = now
            while len(sent) < rows + open_flows:
                sent = grown(sent)
            before = open_flows
            rows, open_flows = end_transfers(model, state, heap, now, open_flows, sent, rows)
            events += before - open_flows
            has_changed = True
        if len(heap) > 0 and heap[0][0] == now:
            continue  # what else happens now may change what goes first, and the rates
        start_exchanges(model, state, heap, now)
        if not has_changed or (len(heap) > 0 and heap[0][0] == now):
            continue
        has_changed = False
        advance(state, open_flows, now - updated)
        updated = now
        while len(sent) < rows + open_flows:
            sent = grown(sent)
        next_end, rows = share(model, state, open_flows, now, sent, rows)
        if open_flows > 0:
            version += 1
            push(state, heap, next_end, _FLOWS, version, 0)
    return sent[:rows], events


@njit(nogil=True, inline="always")
def push(state, heap, time, kind, a, b):
    heappush(heap, (time, state.turn[0], kind, a, b))
    state.turn[0] += 1


@njit(nogil=True, inline="always")
def start_forward(model, state, heap, now, w):
    """Start the layer that a worker waits at, if its gradients are there (figure 4.5)."""
    layer, job, step = state.waits_at[w], model.job_of[w], state.step[w]
    place = model.layers[job] + layer
    if step >= 0:
        if model.need[place] > 0 and state.received[place] <= step:
            return
        if model.has_barrier[job] and state.complete[job] <= step:
            return
    state.waits_at[w] = _NOTHING
    push(state, heap, now + model.factors[step + 1, w] * model.forward_ns[place], _FORWARD, w, layer)


@njit(nogil=True, inline="always")
def forward_done(model, state, heap, now, w, layer):
    job = model.job_of[w]
    layers = model.layers[job + 1] - model.layers[job]
    if layer + 1 < layers:
        state.waits_at[w] = layer + 1
        start_forward(model, state, heap, now, w)
        return
    state.step[w] += 1
    step = state.step[w]
    state.forward_end[step, w] = now
    if step < model.steps[job]:
        length = model.factors[step + 1, w] * model.backward_ns[model.layers[job] + layer]
        push(state, heap, now + length, _BACKWARD, w, layer)


@njit(nogil=True, inline="always")
def backward_done(model, state, heap, now, w, layer):
    """A buffer is ready when all workers have its gradients (figure 4.4)."""
    job, step = model.job_of[w], state.step[w]
    place = model.layers[job] + layer
    for k in range(model.ready[place, 0], model.ready[place, 1]):
        state.computed[k] += 1
        if state.computed[k] == model.workers[job + 1] - model.workers[job]:
            state.computed[k] = 0
            state.buffer_step[k] = step
            push(state, heap, now, _READY, k, 0)
    if layer > 0:
        push(state, heap, now + model.factors[step + 1, w] * model.backward_ns[place - 1], _BACKWARD, w, layer - 1)
    else:
        state.waits_at[w] = 0
        start_forward(model, state, heap, now, w)


@njit(nogil=True, inline="always")
def start_exchanges(model, state, heap, now):
    """In each phase without an exchange begin that of the buffer which goes first."""
    for job in range(len(model.steps)):
        for phase in range(model.phases[job]):
            if state.in_flight[job, phase] != _NOTHING:
                continue
            best = _NOTHING
            for k in range(model.buffers[job], model.buffers[job + 1]):
                if state.waiting[phase, k] != _NOTHING and (
                    best == _NOTHING
                    or (model.is_priority[job] and model.first[k] < model.first[best])
                    or (
                        (not model.is_priority[job] or model.first[k] == model.first[best])
                        and state.waiting[phase, k] < state.waiting[phase, best]
                    )
                ):
                    best = k
            if best != _NOTHING:
                state.waiting[phase, best] = _NOTHING
                state.in_flight[job, phase] = best
                state.round[job, phase] = -1
                state.exchanged[exchange_of(model, state, job, best, phase), 0] = now
                push(state, heap, now, _ROUND, job, phase)


@njit(nogil=True, inline="always")
def exchange_of(model, state, job, k, phase):
    buffers = model.buffers[job + 1] - model.buffers[job]
    place = state.buffer_step[k] * buffers + k - model.buffers[job]
    return model.exchanges[job] + place * model.phases[job] + phase


@njit(nogil=True, inline="always")
def next_round(model, state, heap, now, job, phase, open_flows):
    """Begin the next round of an exchange, or end it; returns how many transfers began."""
    k = state.in_flight[job, phase]
    state.round[job, phase] += 1
    variant = state.buffer_step[k] % model.variants[job]
    place = variant * (model.buffers[job + 1] - model.buffers[job]) + k - model.buffers[job]
    place = model.rounds_of[job] + place * model.phases[job] + phase
    round_ = model.phase_rounds[place] + state.round[job, phase]
    if round_ == model.phase_rounds[place + 1]:
        end_exchange(model, state, heap, now, job, phase)
        return 0
    begin, end = model.round_transfers[round_], model.round_transfers[round_ + 1]
    for i in range(begin, end):
        state.flows[open_flows + i - begin] = i
        state.owner[i, 0], state.owner[i, 1] = job, phase
        state.left[i], state.rate[i], state.moved[i], state.since[i] = model.size[i], 0.0, 0.0, now
    state.open[job, phase] = end - begin
    return end - begin


@njit(nogil=True, inline="always")
def end_exchange(model, state, heap, now, job, phase):
    k = state.in_flight[job, phase]
    state.in_flight[job, phase] = _NOTHING
    x = exchange_of(model, state, job, k, phase)
    state.exchanged[x, 1] = now
    if phase + 1 < model.phases[job]:
        first, stop = k, k + 1
        if model.has_server_barrier[job]:
            first, stop = model.buffers[job], model.buffers[job + 1]
            state.aggregated[job] += 1
            if state.aggregated[job] < stop - first:
                return
            state.aggregated[job] = 0
        for following in range(first, stop):
            push(state, heap, now + model.update_ns[job], _READY, following, phase + 1)
        return
    if model.phases[job] == 1:
        state.exchanged[x, 1] = now + model.update_ns[job]
    push(state, heap, state.exchanged[x, 1], _DONE, k, 0)


@njit(nogil=True, inline="always")
def exchange_done(model, state, heap, now, k):
    """All workers have a buffer's gradients: those that wait for them go on (figure 4.6)."""
    job = 0
    while model.buffers[job + 1] <= k:
        job += 1
    for place in range(model.layers[job] + model.first[k], model.layers[job] + model.last[k] + 1):
        state.pending[place] -= 1
        if state.pending[place] == 0:
            state.pending[place] = model.need[place]
            state.received[place] += 1
    state.missing[job] -= 1
    if state.missing[job] == 0:
        state.missing[job] = model.buffers[job + 1] - model.buffers[job]
        state.complete[job] += 1
    for w in range(model.workers[job], model.workers[job + 1]):
        if state.waits_at[w] != _NOTHING:
            start_forward(model, state, heap, now, w)


@njit(nogil=True, inline="always")
def advance(state, open_flows, length):
    """Move all open transfers on by a time."""
    if length > 0:
        for i in range(open_flows):
            f = state.flows[i]
            moved = state.rate[f] * length
            state.left[f] -= moved
            state.moved[f] += moved


@njit(nogil=True, inline="always")
def end_transfers(model, state, heap, now, open_flows, sent, rows):
    """Close the transfers that have nothing left; returns rows and open transfers."""
    i = 0
    while i < open_flows:
        f = state.flows[i]
        if state.left[f] > max(_LEFT * model.size[f], _SHORT_NS * state.rate[f]):
            i += 1
            continue
        state.moved[f] += state.left[f]
        rows = record(model, state, f, now, sent, rows)
        state.rate[f] = 0.0
        open_flows -= 1
        state.flows[i] = state.flows[open_flows]
        job, phase = state.owner[f, 0], state.owner[f, 1]
        state.open[job, phase] -= 1
        if state.open[job, phase] == 0:
            push(state, heap, now + model.delay_ns[job], _ROUND, job, phase)
    return rows, open_flows


@njit(nogil=True, inline="always")
def record(model, state, f, now, sent, rows):
    """Note what a transfer sent at its rate until now."""
    job, phase = state.owner[f, 0], state.owner[f, 1]
    exchange = exchange_of(model, state, job, state.in_flight[job, phase], phase)
    sent[rows, 0], sent[rows, 1], sent[rows, 2], sent[rows, 3], sent[rows, 4] = (
        f, exchange, state.since[f], now, state.moved[f],
    )  # fmt: skip
    state.since[f], state.moved[f] = now, 0.0
    return rows + 1


@njit(nogil=True, inline="always")
def share(model, state, open_flows, now, sent, rows):
    """Give all open transfers their max-min fair rates; returns when the first ends, and rows."""
    left, number, is_full = state.link_left, state.link_number, state.link_is_full
    left[:], number[:], is_full[:] = model.rates, 0, False
    new = np.full(open_flows, -1.0)
    for i in range(open_flows):
        number[model.src[state.flows[i]]] += 1
        number[model.dst[state.flows[i]]] += 1
    unfilled = open_flows
    while unfilled > 0:  # the link with the least share a transfer is filled first
        least = np.inf
        for link in range(len(left)):
            if number[link] > 0:
                least = min(least, left[link] / number[link])
        for link in range(len(left)):
            is_full[link] = number[link] > 0 and left[link] <= least * (1 + _SAME) * number[link]
        for i in range(open_flows):
            f = state.flows[i]
            out, into = model.src[f], model.dst[f]
            if new[i] < 0 and (is_full[out] or is_full[into]):
                new[i] = least
                unfilled -= 1
                left[out], left[into] = max(left[out] - least, 0.0), max(left[into] - least, 0.0)
                number[out] -= 1
                number[into] -= 1
    first = np.inf
    for i in range(open_flows):
        f = state.flows[i]
        if abs(new[i] - state.rate[f]) > _SAME * new[i]:
            if state.moved[f] > 0:
                rows = record(model, state, f, now, sent, rows)
            state.rate[f] = new[i]
        first = min(first, now + state.left[f] / new[i])
    return first, rows


@njit(cache=True, nogil=True)
def grown(rows):
    """The same rows with as many empty ones after them."""
    larger = np.zeros((2 * len(rows), rows.shape[1]), rows.dtype)
    larger[: len(rows)] = rows
    return larger
