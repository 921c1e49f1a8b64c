"""The event-driven simulator of data-parallel training (Gao 2020, chapter 4; Chang 2018).

layers.py what a model computes and exchanges, job.py what is simulated, exchange.py a collective on the links.
event_loop.py the thesis's event loop, in which an exchange is one event: for a job alone. shared_links.py and loop.py
the general one, transfer by transfer, for jobs that share links. result.py what comes out, checked, as traffic.
patterns.py, task_graph.py, task_loop.py and patterned.py: today's training, in which workers wait for their groups.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from ddnn_traces.traffic.simulator import event_loop, patterned, shared_links, specification
from ddnn_traces.traffic.simulator import what_if as what_if
from ddnn_traces.traffic.simulator import what_if_score as what_if_score
from ddnn_traces.traffic.simulator.exchange import Phase, all_variants, joined, later, merged, phases, ring, timed
from ddnn_traces.traffic.simulator.job import SimulatedRun
from ddnn_traces.traffic.simulator.patterned import PatternResult
from ddnn_traces.traffic.simulator.result import Result
from ddnn_traces.traffic.table_writer import write_traffic
from ddnn_traces.traffic.traffic import Traffic

#: Transmissions beyond which those of an exchange between two hosts become one.
MOST_TRANSMISSIONS = 2_000_000


#: Rows of events beyond which a run has those of the model's passes only, unless asked for.
MOST_LAYER_EVENTS = 2_000_000


def run(
    path: Path | None, given: Mapping[str, Any], out: Path | None, layers: bool | None, say: Callable[[str], None]
) -> pl.DataFrame:
    """Simulate the job or jobs of a TOML file, with keys given beside it, which win; a row of times for each.

    out: dataset to write them into. layers: whether events have each layer's passes; None: where that is not too many.
    Raises UsageError and SimulationError.
    """
    values = (specification.read_file(path) if path else {}) | dict(given)
    runs = specification.jobs(values)
    results: Sequence[Result | PatternResult] = simulate_all(runs) if len(runs) > 1 else [simulate(runs[0])]
    if out:
        write_traffic(out, (traffic(one, _has_layers(one.run, layers, say)) for one in results))
        say(f"wrote {out}: {', '.join(run.run_id for run in runs)}")
    facts = {"run_id": "run_id", "topology": "stated_topology"}
    facts |= {name: name for name in ("workers", "bandwidth_mbit", "variant")}
    frame = pl.DataFrame([{name: getattr(r.run, of) for name, of in facts.items()} | summary(r) for r in results])
    return frame.select(column.name for column in frame if column.null_count() < len(frame))


def _has_layers(run: SimulatedRun, layers: bool | None, say: Callable[[str], None]) -> bool:
    number = 0 if run.pattern else 2 * run.steps * run.workers * run.profile.layers
    if layers is None and number > MOST_LAYER_EVENTS:
        say(f"{run.run_id}: {number:,} events of layers are left out; --layer-events writes them")
        return False
    return layers is not False


def simulate(run: SimulatedRun) -> Result | PatternResult:
    """Simulate a run that has its links for itself.

    Exact: workers that differ are computed each, those that do not share what they share. Raises UsageError for what
    cannot be simulated, SimulationError for a result that cannot be.
    """
    if run.pattern:
        return patterned.simulate(run)
    return simulate_all([run])[0] if run.is_asynchronous else _alone(run)


def summary(simulated: Result | PatternResult) -> dict[str, float | None]:
    """Times of a run: means over steps and workers.

    iteration_ms: from the end of one forward pass to the end of the next. exposed_ms: of it without computation.
    first_forward_ms: from its start to the start of the first layer's forward pass. sent_bytes: payload of a step of
    all hosts, and transfers. aggregation_remaining_ms, distribution_remaining_ms: parameter servers, what is left to
    send when the last worker's backward pass, and the servers' computation, have ended (Chang 2018, figure 2).
    samples_per_s: workers x batch_size over iteration_ms. A pattern has iteration_ms, exposed_ms, sent_bytes and
    samples_per_s.
    """
    return simulated.summary()


def traffic(simulated: Result | PatternResult, layers: bool = True) -> Traffic:
    """The result as traffic. layers: whether events have the passes of each layer, and not of the model only."""
    return simulated.traffic(layers)


def simulate_all(runs: Sequence[SimulatedRun]) -> list[Result]:
    """Simulate runs that share links, transfer by transfer; errors as of simulate."""
    found, _ = shared_links.simulate(runs)
    return [Result(run, *parts) for run, parts in zip(runs, found, strict=True)]


def _alone(run: SimulatedRun) -> Result:
    sizes = {buffer.bytes for buffer in run.buffers}
    variants = [{size: _phases(run, size, rng) for size in sizes} for rng in all_variants(run)]
    durations = [
        np.array([[phase.duration_ns for phase in found[buffer.bytes]] for buffer in run.buffers]) for found in variants
    ]
    schedule = event_loop.simulate(run, durations)
    number = sum(len(phase.transmissions) for found in variants for b in run.buffers for phase in found[b.bytes])
    is_merged = number * run.steps // len(variants) > MOST_TRANSMISSIONS or _is_large_ring(run)
    if is_merged:
        hosts = run.collective.hosts
        variants = [
            {size: [merged(phase, hosts) for phase in each] for size, each in found.items()} for found in variants
        ]
    parts, steps = [], []
    for step in range(run.steps):
        found = variants[step % len(variants)]
        for k, buffer in enumerate(run.buffers):
            for i, phase in enumerate(found[buffer.bytes]):
                parts.append(later(phase.transmissions, schedule.exchange_start[step, 0, k, i]))
                steps.append(np.full(len(parts[-1]), step))
    return Result(run, schedule, joined(parts), np.concatenate(steps), is_merged)


def _phases(run: SimulatedRun, size: int, rng: random.Random) -> list[Phase]:
    if _is_large_ring(run):
        return [ring(run, size)]
    return [timed(run, rounds) for rounds in phases(run, size, rng)]


def _is_large_ring(run: SimulatedRun) -> bool:
    """Whether the law of the ring has more transfers than are worth making one by one; its links must be equal."""
    return run.topology == "ring" and run.workers > 64 and not run.link_mbit
