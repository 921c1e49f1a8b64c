"""The thesis's event loop (Gao 2020, figures 4.3 to 4.6): a clock, a heap and a tie-breaking counter.

Here the exchange of a buffer is one event: a job that has its links for itself needs no more, since the time of an
exchange is known when it begins. Jobs that share links need shared_links.py.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ddnn_traces.traffic.simulator.job import SimulatedRun
from ddnn_traces.traffic.traffic import Floats, Ints

_READY, _DONE = 0, 1


@dataclass(frozen=True)
class Schedule:
    """When everything happened, ns since the start of the simulation.

    forward_end: steps + 1 by workers, the pass before the first step first; the backward pass begins then.
    exchange_start, exchange_end: steps by units by buffers by phases; a unit is all workers, or one of a run in which
    each exchanges by itself.
    """

    forward_end: Floats
    exchange_start: Floats
    exchange_end: Floats


def simulate(run: SimulatedRun, durations: Sequence[Floats]) -> Schedule:
    """The schedule of a run.

    durations: ns of the exchange of each buffer, buffers by phases, for each variant of the steps' transfers (step i
    has number i modulo their number).
    """
    buffers, phases = durations[0].shape
    factors = run.factors()
    start = run.start_ms * 1e6
    ends = np.empty((run.steps + 1, run.workers))
    ends[0] = start + factors[0] * run.profile.forward_ns.sum()
    begun, done = (np.empty((run.steps, buffers, phases)) for _ in range(2))
    first = np.array([buffer.first for buffer in run.buffers])
    elapsed = np.cumsum(run.profile.backward_ns[::-1])[::-1]  # from the start of the pass to a layer's end
    for step in range(run.steps):
        factor = factors[step + 1]
        ready = (ends[step] + factor * elapsed[first][:, None]).max(1)
        begun[step], done[step] = exchange_all(ready, durations[step % len(durations)], first, run)
        ends[step + 1] = forward(run, done[step], ends[step] + factor * elapsed[0], factor)[-1]
    return Schedule(ends, begun[:, None], done[:, None])


def exchange_all(ready: Floats, durations: Floats, first: Ints, run: SimulatedRun) -> tuple[Floats, Floats]:
    """When the exchange of each buffer begins and ends, buffers by phases.

    ready: when all workers have the buffer's gradients. In each phase one buffer is exchanged at a time; the next is
    the one that waits longest, or the one of the first layer.
    """
    phases = durations.shape[1]
    begun, done = np.zeros_like(durations), np.zeros_like(durations)
    # of buffers that are ready at the same time, the backward pass has the later layers first
    order = sorted(range(len(ready)), key=lambda k: (ready[k], -first[k], k))
    heap = [(float(ready[k]), turn, _READY, k, 0) for turn, k in enumerate(order)]
    heapq.heapify(heap)
    turn = len(heap)
    waiting: list[list[tuple[int, int, int]]] = [[] for _ in range(phases)]
    is_free = [True] * phases
    while heap:
        now, arrival, kind, k, phase = heapq.heappop(heap)
        if kind == _DONE:
            is_free[phase] = True
            for following in _distributed(run, begun, done, k, now) if phase + 1 < phases else []:
                turn += 1
                heapq.heappush(heap, (now + run.update_ms * 1e6, turn, _READY, following, phase + 1))
        else:
            priority = first[k] if run.queue == "priority" else 0
            heapq.heappush(waiting[phase], (priority, arrival, k))
        if heap and heap[0][0] == now:
            continue  # what else happens now may change what goes first
        for free in range(phases):
            if is_free[free] and waiting[free]:
                _, _, k = heapq.heappop(waiting[free])
                is_free[free] = False
                begun[k, free], done[k, free] = now, now + durations[k, free]
                turn += 1
                heapq.heappush(heap, (done[k, free], turn, _DONE, k, free))
    if phases == 1:
        done += run.update_ms * 1e6
    return begun, done


def _distributed(run: SimulatedRun, begun: Floats, done: Floats, k: int, now: float) -> Sequence[int]:
    """The buffers whose distribution follows when buffer k has been aggregated."""
    if not run.server_barrier:
        return [k]
    return range(len(done)) if (done[:, 0] <= now).all() and (begun[:, 0] < done[:, 0]).all() else []


def forward(run: SimulatedRun, done: Floats, ready: Floats, factor: Floats) -> Floats:
    """When each layer's forward computation ends, layers by workers.

    done: when each buffer is exchanged, buffers by phases. ready: when each worker has ended its backward pass.
    """
    received = layers_received(run, done[:, -1])
    gate = np.maximum(ready, received.max()) if run.barrier else ready
    ends = np.empty((run.profile.layers, len(ready)))
    for layer, (at, length) in enumerate(zip(received.tolist(), run.profile.forward_ns.tolist(), strict=True)):
        gate = np.maximum(gate, at) + factor * length
        ends[layer] = gate
    return ends


def layers_received(run: SimulatedRun, done: Floats) -> Floats:
    """When all gradients of each layer are exchanged; 0 for a layer without gradients."""
    received = np.zeros(run.profile.layers)
    for buffer, at in zip(run.buffers, done.tolist(), strict=True):
        received[buffer.first : buffer.last + 1] = np.maximum(received[buffer.first : buffer.last + 1], at)
    return np.where(run.profile.gradient_bytes > 0, received, 0.0)
