"""The tables of docs/ns3.md: `python benchmarks/ns3.py [--small] [TABLE ...] [--cell ...]`; it needs ns3 and g++.

agreement: iteration times of ns-3 and of the simulator without background. by_hand: the command against the same C++
program by hand. events: segment size and delayed acknowledgements. skipping: skipped iterations against the full run.
ablation: what changes one cell of the campaign, ratio 4 and 92 flows/s unless --cell gives another. presets: thesis
against fast in that cell (an hour of one core).
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any
from unittest import mock

from ddnn_traces.traffic import ns3, simulator
from ddnn_traces.traffic.ns3 import ns3_results, process
from ddnn_traces.traffic.simulator import specification

RATES_MBIT = (1000, 2000, 5000, 10_000, 20_000)
#: The thesis's default model among eight workers; 54 bytes of headers a packet of 8940 are 9 of 1448.
JOB = {"workers": 8, "iterations": 2, "delay_ms": 0.02}
HEADER_BYTES = 9
#: A cell where the lower priority costs time (yellow in figure 5.19).
CELL = {
    "preset": "fast", "compute_to_network": 4, "flows_per_s": 92, "seconds": 2.0, "warm_up_s": 0.15, "cool_down_s": 0.1,
}  # fmt: skip
#: A model that takes seconds, to see that all tables are made.
SMALL = {"workers": 4, "layers": 20, "model_bytes": 4_000_000, "fusion_bytes": 1_000_000}
PRIORITIES = ("same", "lower")
VARIANTS: dict[str, dict[str, Any]] = {
    "fast preset": {}, "cubic": {"congestion_control": "cubic"}, "Linux' Reno": {"congestion_control": "linuxreno"},
    "DCTCP": {"congestion_control": "dctcp"}, "queues of 150,000 bytes": {"queue_limit": "150000B"},
    "queues of 15,000,000 bytes": {"queue_limit": "15000000B"},
    "pfifo_fast, 1000 packets": {"queue_disc": "pfifo_fast", "queue_limit": "1000p"},
    "training's timeout as the background's, 9.7 ms": {"training_min_rto_ms": 9.7},
    "shortest timeout 200 ms for all": {"min_rto_ms": 200}, "another seed": {"seed": 1},
    "initial window of 1 segment": {"initial_window": 1}, "without SACK": {"sack": False},
    "slow start to 65,535 bytes": {"initial_ssthresh": 65_535},
}  # fmt: skip
TCP = {
    "segments of 8940 bytes": {}, "one acknowledgement a packet": {"delayed_ack": 1},
    "one in four packets": {"delayed_ack": 4}, "segments of 1380 bytes": {"segment_bytes": 1380},
}  # fmt: skip


def agreement() -> None:
    """A row a rate."""
    _head("Mbit/s", "ns3 (ms)", "simulate (ms)", "difference", "events", "events/s", "simulated s a wall s")
    for rate in RATES_MBIT:
        values = {**JOB, "bandwidth_mbit": rate}
        found = _measured(values)
        events = simulator.simulate(specification.job({**values, "header_bytes": HEADER_BYTES}))
        expected, packets = float(events.iteration_ms.mean()), found["iteration_ms"]
        _row(
            f"{rate:,}", f"{packets:,.1f}", f"{expected:,.1f}", f"{packets / expected - 1:+.2%}",
            f"{found['events']:,}", f"{found['events_per_s']:,.0f}", f"{found['simulated_per_wall']:.2f}",
        )  # fmt: skip


def by_hand() -> None:
    """The default command, and the program that g++ makes, on the same scenario; each three times, by turns."""
    program = [str(Path(sys.executable).with_name("ddnn-traces")), "ns3"]
    options = [word for name, value in CELL.items() for word in ("--set", f"{name}={value}")]
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder)
        by_gpp = process.find("g++")
        process.simulate(ns3.job({**JOB, "iterations": 1}), by_gpp, _new(out / "compiled"))  # compiles it
        own, scenario = process.prepared(ns3.job(CELL), by_gpp, _new(out / "scenario"))
        times: dict[str, list[float]] = {"command": [], "by hand": []}
        for i in range(3):
            times["command"].append(_timed([*program, *options]))
            times["by hand"].append(_timed([*own, str(scenario), str(_new(out / str(i)))]))
    _head("", "shortest (s)", "all (s)")
    for name, each in times.items():
        _row(name, f"{min(each):.1f}", ", ".join(f"{t:.1f}" for t in sorted(each)))
    print(f"ratio of the shortest: {min(times['command']) / min(times['by hand']):.2f}")


def _timed(command: list[str]) -> float:
    begin = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    return time.perf_counter() - begin


def _new(folder: Path) -> Path:
    folder.mkdir()
    return folder


def events() -> None:
    """What fewer packets and acknowledgements change."""
    _compare({name: {**CELL, **values} for name, values in TCP.items()})


def ablation() -> None:
    """What changes the effect of the lower priority in one cell; the system's ns-3 at the end, if it has one."""
    _compare({name: {**CELL, **values} for name, values in VARIANTS.items()})
    with mock.patch.object(process, "_of_wheel", lambda _: None):
        other = process.find("g++")
    _compare({f"ns-3 {other.version}": CELL}, other)


def presets() -> None:
    """The thesis preset and fast, and what is between them."""
    between = {"segment_bytes": 1380, "queue_disc": "pfifo_fast", "queue_limit": "1000p"}
    thesis = {**CELL, "preset": "thesis", "time_limit_s": 7200}
    _compare({"fast": CELL, "fast with segments and queues of thesis": {**CELL, **between}, "thesis": thesis})


def _compare(variants: Mapping[str, Mapping[str, Any]], chosen: process.Engine | None = None) -> None:
    """A row a variant: at the same and at a lower priority of the training, both at once."""
    _head(
        "variant", "iteration, same (ms)", "lower (ms)", "change", "small flows, same (ms)", "lower (ms)", "change",
        "large flows, same (ms)", "lower (ms)", "change", "drops, same / lower", "events", "wall (s)",
    )  # fmt: skip
    for name, values in variants.items():
        with ThreadPoolExecutor(len(PRIORITIES)) as pool:
            cells = [{**values, "training_priority": priority} for priority in PRIORITIES]
            same, lower = pool.map(lambda cell: _measured(cell, chosen), cells)
        columns = []
        for key in ("iteration_ms", "small_mean_ms", "large_mean_ms"):
            a, b = same[key], lower[key]
            columns += [_digits(a), _digits(b), f"{b / a - 1:+.1%}" if a and b else "-"]
        drops = " / ".join(
            str(sum(of[f"dropped_{band}"] for band in ("high", "middle", "low"))) for of in (same, lower)
        )
        _row(name, *columns, drops, f"{same['events']:,}", f"{same['wall_s']:.0f}, {lower['wall_s']:.0f}")


def _digits(value: float | None) -> str:
    return "-" if value is None else f"{value:,.3g}" if value < 100 else f"{value:,.0f}"


def skipping() -> None:
    """Twelve iterations, skipped against in full, in cells of the campaign with little or no background."""
    names = ("ratio", "flows/s a host", "iterations", "skipped", "error of iteration", "of flows' mean", "events")
    _head(*names, "times faster")
    for ratio, rate in (*product((16, 8, 4, 2), (0, 0.02)), (4, 23)):
        run = ns3.job({**CELL, "compute_to_network": ratio})
        seconds = 12.5 * run.profile.compute_ns / 1e9
        values = {**CELL, "compute_to_network": ratio, "flows_per_s": rate, "seconds": seconds}
        full, skipped = (_measured({**values, "skip_tolerance": tolerance}) for tolerance in (0, 0.001))
        errors = [_error(full[key], skipped[key]) for key in ("iteration_ms", "all_mean_ms")]
        share = f"{skipped['events'] / full['events']:.1%}"
        faster = f"{full['wall_s'] / skipped['wall_s']:.1f}"
        _row(str(ratio), f"{rate:g}", str(full["steps"]), str(skipped["skipped_steps"]), *errors, share, faster)


def _error(full: float | None, skipped: float | None) -> str:
    return f"{skipped / full - 1:+.3%}" if full and skipped else "-"


def _measured(values: Mapping[str, Any], chosen: process.Engine | None = None) -> dict[str, Any]:
    return ns3_results.summary(ns3.simulate(ns3.job(values), chosen or process.find("g++")))


def _head(*names: str) -> None:
    _row(*names)
    _row(*["---"] * len(names))


def _row(*values: str) -> None:
    print(f"| {' | '.join(values)} |", flush=True)


TABLES: dict[str, Callable[[], None]] = {
    "agreement": agreement, "by_hand": by_hand, "events": events, "skipping": skipping, "ablation": ablation,
    "presets": presets,
}  # fmt: skip


def main() -> None:
    """Print the tables that are named; without a name agreement."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tables", nargs="*", metavar="TABLE", help=", ".join(TABLES))
    parser.add_argument("--small", action="store_true", help="a small model: seconds, and figures that mean nothing")
    parser.add_argument(
        "--cell", nargs=3, type=float, metavar=("RATIO", "FLOWS_PER_S", "SECONDS"), help="in place of 4, 92 and 2"
    )
    given = parser.parse_args()
    if given.cell:
        CELL.update(zip(("compute_to_network", "flows_per_s", "seconds"), given.cell, strict=True))
    if given.small:
        JOB.update(SMALL)
        CELL.update(SMALL, seconds=0.3, warm_up_s=0.02, cool_down_s=0.02)
    for name in given.tables or ["agreement"]:
        if name not in TABLES:
            parser.error(f"no table {name}; there are {', '.join(TABLES)}")
        print(f"\n{name}, {process.find('g++')}\n", flush=True)
        TABLES[name]()


if __name__ == "__main__":
    main()
