"""How fast the simulator is: python benchmarks/simulate.py [--small]

One core, but for the sweep. Events of the general loop are those of its heap and ends of transfers; beside them stand
those with the times at which a transfer gets another rate, which are found in the same loop. The peers' figures are
published ones, of other machines: LogGOPSim "over 1 million events per second" (Hoefler, Schneider & Lumsdaine, HPDC
2010, abstract).
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ddnn_traces.traffic import simulator
from ddnn_traces.traffic.simulator import shared_links, sweep
from ddnn_traces.traffic.simulator.job import SimulatedRun
from ddnn_traces.traffic.simulator.layers import thesis
from ddnn_traces.traffic.simulator.patterns import PATTERNS


def timed(work: Callable[[], Any], repeat: int) -> tuple[float, Any]:
    """The least time of several, and the last result."""
    times = []
    for _ in range(repeat):
        begin = time.perf_counter()
        result = work()
        times.append(time.perf_counter() - begin)
    return min(times), result


def tensor_level(workers: int, iterations: int, repeat: int) -> None:
    """A ring of workers that are the same, and of workers that differ."""
    for jitter in (0.0, 0.1):
        run = SimulatedRun(workers=workers, profile=thesis(160), steps=iterations, compute_jitter=jitter)
        seconds, result = timed(lambda run=run: simulator.simulate(run), repeat)
        kind = "that differ" if jitter else "that are the same"
        print(
            f"{workers:,} workers {kind}, 160 layers, {iterations} iterations: {seconds:.2f} s, "
            f"{result.iteration_ms.mean():.1f} ms an iteration"
        )


def general_loop(iterations: int, repeat: int) -> None:
    """Jobs that share links."""
    for workers, jobs in ((8, 1), (8, 2), (16, 2), (8, 4)):
        runs = [SimulatedRun(run_id=str(i), workers=workers, steps=iterations, start_ms=100 * i) for i in range(jobs)]
        shared_links.simulate([run.changed(steps=1) for run in runs])  # compiles, or loads what is compiled
        seconds, (results, events) = timed(lambda runs=runs: shared_links.simulate(runs), repeat)
        rates = sum(len(sent) for _, sent, _ in results)
        print(
            f"{jobs} jobs of {workers} workers on shared links: {events / seconds / 1e6:.2f} M events/s, with changes "
            f"of rates {(events + rates) / seconds / 1e6:.2f} M ({events:,} events in {seconds:.2f} s)"
        )


def of_today(workers: int, iterations: int, repeat: int) -> None:
    """Patterns of today's training, transfer by transfer, with jitter; of rings, beyond 2 million, some as one."""
    for pattern in ({"name": "rings", "channels": 4}, *({"name": name} for name in PATTERNS if name != "chakra")):
        keys = {"workers": workers, "iterations": iterations, "compute_jitter": 0.02, "pattern": pattern}
        [run] = simulator.specification.jobs(keys)
        simulator.simulate(run.changed(workers=8, steps=1))  # compiles, or loads what is compiled
        seconds, result = timed(lambda run=run: simulator.simulate(run), repeat)
        transfers = len(result.sent) * run.steps
        print(f"{run.variant}, {workers:,} workers, {iterations} iterations: {transfers:,} transfers, {seconds:.2f} s")


def cells(number: int) -> None:
    """A sweep of the default, with processes for all CPUs."""
    values = {
        "bandwidth_mbit": [1000 + 100 * i for i in range(number // 4)],
        "queue": ["fifo", "priority"],
        "barrier": [True, False],
    }
    with tempfile.TemporaryDirectory() as folder:
        seconds, frame = timed(lambda: sweep.sweep(values, Path(folder), os.cpu_count() or 1), 1)
    print(f"sweep of {len(frame):,} cells of the default, {os.cpu_count()} processes: {seconds:.1f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--small", action="store_true", help="Little work, to see that it runs.")
    small = parser.parse_args().small
    tensor_level(*((100, 5, 1) if small else (1000, 100, 3)))
    general_loop(*((2, 1) if small else (100, 3)))
    of_today(*((16, 2, 1) if small else (1024, 2, 1)))
    cells(8 if small else 1000)


if __name__ == "__main__":
    main()
