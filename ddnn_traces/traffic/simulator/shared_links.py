"""Jobs that share links, simulated transfer by transfer: their arrays for loop.py, and what comes out of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ddnn_traces.errors import SimulationError, UsageError
from ddnn_traces.traffic.collectives import Round, Transfer
from ddnn_traces.traffic.simulator import loop
from ddnn_traces.traffic.simulator.event_loop import Schedule
from ddnn_traces.traffic.simulator.exchange import Transmissions, all_variants, phases
from ddnn_traces.traffic.simulator.job import SimulatedRun
from ddnn_traces.traffic.traffic import SEGMENT_BYTES, Floats, Ints

MOST_TRANSFERS = 20_000_000
#: A bound far above what a run needs, so that an error of the loop ends.
_MOST_EVENTS = 10**10


@dataclass(frozen=True)
class _Unit:
    """What the loop takes for a job: a run, or a worker of a run in which each exchanges by itself."""

    run: SimulatedRun
    workers: Sequence[int]
    rounds: dict[int, list[list[list[Round]]]]  # by size: of each variant, phases of rounds


def simulate(runs: Sequence[SimulatedRun]) -> tuple[list[tuple[Schedule, Transmissions, Ints]], int]:
    """Simulate runs that share the links of their hosts (number first_host on).

    Returns the schedule of each, its transmissions and their steps; and the number of events. Raises UsageError for
    more transfers than memory would hold and for a link that two runs give different rates, SimulationError for a
    worker that never ends.
    """
    units = [unit for run in runs for unit in _units(run)]
    transfers = _transfers(units)
    model = _model(units, transfers, _rates(runs))
    state = _state(model)
    sent, events = loop.simulate(model, state, _MOST_EVENTS)
    results, first = [], 0
    for run in runs:
        number = run.workers if run.is_asynchronous else 1
        results.append(_result(run, range(first, first + number), model, state, transfers, sent))
        first += number
    return results, int(events)


def _units(run: SimulatedRun) -> list[_Unit]:
    sizes = {buffer.bytes for buffer in run.buffers}
    rounds: dict[int, list[list[list[Round]]]] = {
        size: [_placed(phases(run, size, rng), run.first_host) for rng in all_variants(run)] for size in sizes
    }
    if not run.is_asynchronous:
        return [_Unit(run, range(run.workers), rounds)]
    return [
        _Unit(run, [worker], {size: [_received(found, worker, run) for found in each] for size, each in rounds.items()})
        for worker in range(run.workers)
    ]


def _placed(found: list[list[Round]], first: int) -> list[list[Round]]:
    """The rounds with the hosts' numbers in the network that all runs share."""
    return [[[Transfer(t.src + first, t.dst + first, t.bytes) for t in r] for r in rounds] for rounds in found]


def _received(found: list[list[Round]], worker: int, run: SimulatedRun) -> list[list[Round]]:
    host = run.first_host + worker
    return [[[t for t in round_ if t.dst == host] for round_ in rounds] for rounds in found]


@dataclass(frozen=True)
class _Transfers:
    """All transfers, in the order in which the loop numbers them, and the ranges of rounds and phases."""

    rows: Ints  # src, dst, payload
    wire: Ints
    round_transfers: Ints
    phase_rounds: Ints


def _transfers(units: Sequence[_Unit]) -> _Transfers:
    rows: list[Transfer] = []
    wires: list[Ints] = []
    round_ends, phase_ends = [0], [0]
    for unit in units:
        begin = len(rows)
        for variant in range(len(next(iter(unit.rounds.values())))):
            for buffer in unit.run.buffers:
                for rounds in unit.rounds[buffer.bytes][variant]:
                    for round_ in rounds:
                        rows += round_
                        round_ends.append(len(rows))
                    phase_ends.append(len(round_ends) - 1)
        if len(rows) > MOST_TRANSFERS:
            raise UsageError(
                f"{unit.run.run_id}: more than {MOST_TRANSFERS:,} transfers in a step; give fewer workers or layers"
            )
        wires.append(unit.run.wire(np.array([t.bytes for t in rows[begin:]], np.int64)))
    table = np.array(rows, np.int64).reshape(-1, 3)
    return _Transfers(table, np.concatenate(wires), np.array(round_ends), np.array(phase_ends))


def _rates(runs: Sequence[SimulatedRun]) -> Floats:
    """Rate of each host's link; the switch's, after the hosts, has no limit of its own."""
    rates = np.full(max(run.first_host + run.collective.hosts for run in runs) + 1, np.inf)
    for run in runs:
        mine = slice(run.first_host, run.first_host + run.collective.hosts)
        known = np.where(np.isfinite(rates[mine]), rates[mine], run.rates())
        if (known != run.rates()).any():
            host = run.first_host + int((known != run.rates()).argmax())
            raise UsageError(f"{run.run_id}: bandwidth_mbit: another job gives the link of host {host} another rate")
        rates[mine] = known
    return rates


def _model(units: Sequence[_Unit], transfers: _Transfers, rates: Floats) -> loop.Model:
    runs = [unit.run for unit in units]
    hosts = len(rates)
    layer_of = [_layers(run) for run in runs]
    buffers = np.cumsum([0, *(len(run.buffers) for run in runs)])
    ready = [begin + ranges for begin, (_, ranges) in zip(buffers, layer_of, strict=False)]
    factors = np.ones((max(run.steps for run in runs) + 1, sum(len(unit.workers) for unit in units)))
    place = 0
    for unit in units:
        columns = unit.run.factors()[:, list(unit.workers)]
        factors[: len(columns), place : place + len(unit.workers)] = columns
        place += len(unit.workers)
    phases_of = [len(next(iter(unit.rounds.values()))[0]) for unit in units]
    variants = [len(next(iter(unit.rounds.values()))) for unit in units]
    per_step = [len(run.buffers) * number for run, number in zip(runs, phases_of, strict=True)]
    return loop.Model(
        workers=np.cumsum([0, *(len(unit.workers) for unit in units)]),
        layers=np.cumsum([0, *(run.profile.layers for run in runs)]),
        buffers=buffers,
        steps=np.array([run.steps for run in runs]),
        phases=np.array(phases_of),
        variants=np.array(variants),
        is_priority=np.array([run.queue == "priority" for run in runs]),
        has_barrier=np.array([run.barrier for run in runs]),
        has_server_barrier=np.array([run.server_barrier for run in runs]),
        start_ns=np.array([run.start_ms * 1e6 for run in runs]),
        delay_ns=np.array([run.delay_ms * 1e6 for run in runs]),
        update_ns=np.array([run.update_ms * 1e6 for run in runs]),
        job_of=np.repeat(np.arange(len(units)), [len(unit.workers) for unit in units]),
        forward_ns=np.concatenate([run.profile.forward_ns for run in runs]),
        backward_ns=np.concatenate([run.profile.backward_ns for run in runs]),
        need=np.concatenate([need for need, _ in layer_of]),
        ready=np.concatenate(ready),
        first=np.array([buffer.first for run in runs for buffer in run.buffers]),
        last=np.array([buffer.last for run in runs for buffer in run.buffers]),
        factors=factors,
        exchanges=np.cumsum([0, *(run.steps * number for run, number in zip(runs, per_step, strict=True))]),
        rounds_of=np.cumsum([0, *(a * b for a, b in zip(variants, per_step, strict=True))]),
        phase_rounds=transfers.phase_rounds,
        round_transfers=transfers.round_transfers,
        src=transfers.rows[:, 0].copy(),
        dst=transfers.rows[:, 1] + hosts,
        size=transfers.wire.astype(float),
        rates=np.concatenate([rates, rates]),
    )


def _layers(run: SimulatedRun) -> tuple[Ints, Ints]:
    """Of each layer, how many buffers have its gradients, and the range of buffers that are complete with it."""
    need = np.zeros(run.profile.layers, np.int64)
    for buffer in run.buffers:
        need[buffer.first : buffer.last + 1] += 1
    need[run.profile.gradient_bytes == 0] = 0
    firsts = [buffer.first for buffer in run.buffers]
    layers = np.arange(run.profile.layers)
    return need, np.stack([np.searchsorted(firsts, layers), np.searchsorted(firsts, layers, "right")], 1)


def _state(model: loop.Model) -> loop.State:
    jobs, workers, layers, buffers = (len(a) for a in (model.steps, model.job_of, model.need, model.first))
    transfers = len(model.src)

    def nothing(*shape: int) -> Ints:
        return np.full(shape, -1, np.int64)

    def zeros(*shape: int) -> Ints:
        return np.zeros(shape, np.int64)

    return loop.State(
        turn=zeros(1), forward_end=np.full((len(model.factors), workers), np.nan), step=nothing(workers),
        waits_at=nothing(workers), pending=model.need.copy(), received=zeros(layers),
        missing=np.diff(model.buffers), complete=zeros(jobs), aggregated=zeros(jobs), computed=zeros(buffers),
        buffer_step=zeros(buffers),
        waiting=nothing(loop.PHASES, buffers), in_flight=nothing(jobs, loop.PHASES), round=zeros(jobs, loop.PHASES),
        open=zeros(jobs, loop.PHASES), exchanged=np.full((int(model.exchanges[-1]), 2), np.nan),
        flows=zeros(transfers + 1), owner=zeros(transfers, 2), left=np.zeros(transfers), rate=np.zeros(transfers),
        moved=np.zeros(transfers), since=np.zeros(transfers), link_left=np.zeros(len(model.rates)),
        link_number=zeros(len(model.rates)), link_is_full=np.zeros(len(model.rates), bool),
    )  # fmt: skip


def _result(
    run: SimulatedRun, units: range, model: loop.Model, state: loop.State, transfers: _Transfers, sent: Floats
) -> tuple[Schedule, Transmissions, Ints]:
    workers = slice(model.workers[units.start], model.workers[units.stop])
    ends = state.forward_end[: run.steps + 1, workers]
    first, stop = model.exchanges[units.start], model.exchanges[units.stop]
    shape = (len(units), run.steps, len(run.buffers), int(model.phases[units.start]))
    begun, done = (column.reshape(shape).swapaxes(0, 1) for column in state.exchanged[first:stop].T)
    if np.isnan(ends).any() or np.isnan(done).any():
        worker = int(np.isnan(ends).any(0).argmax())
        raise SimulationError(f"{run.run_id}: worker-{worker + 1} never ends; this is an error of the simulator")
    mine = sent[(sent[:, 1] >= first) & (sent[:, 1] < stop)]
    transfer, exchange = mine[:, 0].astype(np.int64), mine[:, 1].astype(np.int64)
    rows = transfers.rows[transfer]
    payload = _payload(transfer, exchange, mine[:, 4], transfers)
    of_unit = (exchange - first) % (run.steps * shape[2] * shape[3])
    step = of_unit // (shape[2] * shape[3])
    hosts = rows[:, :2] - run.first_host
    switch = len(model.rates) // 2 - 1 - run.first_host
    hosts[hosts == switch] = run.collective.hosts
    times = mine[:, 2], mine[:, 3]
    return Schedule(ends, begun, done), Transmissions(hosts[:, 0], hosts[:, 1], *times, payload, mine[:, 4]), step


def _payload(transfer: Ints, exchange: Ints, moved: Floats, transfers: _Transfers) -> Ints:
    """Payload of each transmission: of one that is cut, whole packets until its last part has the rest."""
    order = np.argsort(exchange * len(transfers.rows) + transfer, kind="stable")
    transfer, moved = transfer[order], moved[order]
    begins = np.ones(len(order), bool)
    begins[1:] = (transfer[1:] != transfer[:-1]) | (np.diff(exchange[order]) != 0)
    ends = np.append(begins[1:], True)[: len(order)]
    whole = transfers.rows[transfer, 2]
    total = np.cumsum(moved)
    before = np.maximum.accumulate(np.where(begins, total - moved, 0))
    reached = ((total - before) / transfers.wire[transfer] * whole).astype(np.int64) // SEGMENT_BYTES * SEGMENT_BYTES
    reached[ends] = whole[ends]
    payload: Ints = np.empty(len(reached), np.int64)
    payload[order] = np.diff(reached, prepend=0)
    payload[order[begins]] = reached[begins]
    return payload
