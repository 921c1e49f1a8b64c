"""The figures of docs/scaling.md: what tasks cost, measured here, and a simulation of more workers than there are here.

    python docs/scaling.py measure      measures on this machine, into docs/scaling/measured.toml; needs the capture
                                        that benchmarks/cluster.py makes
    python docs/scaling.py              simulates with these numbers; prints the table, draws docs/scaling/curve.svg

The simulation is event-driven: tasks in order, each by the first worker that is free, started by one scheduler. What
the store gives is shared among the tasks that read at a moment. One process receives or joins their results, and
reconciles and writes a run when its last one is there.
"""

from __future__ import annotations

import argparse
import heapq
import math
import pickle
import platform
import sys
import tempfile
import time
import tomllib
from collections import deque
from dataclasses import dataclass, replace
from pathlib import Path

import altair as alt
import numpy as np
import polars as pl
import tomli_w

from ddnn_traces.ingestors import plan
from ddnn_traces.ingestors.options import IngestOptions
from ddnn_traces.ingestors.schedule.tasks import most_whole
from ddnn_traces.pcap import numba_engine, parts
from ddnn_traces.pcap.capture_facts import ReadOptions
from ddnn_traces.pcap.scanner import Scanner
from ddnn_traces.pcap.streams import digests_of
from ddnn_traces.store import hashes

HERE = Path(__file__).parent
MEASURED = HERE / "scaling" / "measured.toml"
TASK_BYTES = parts.PARTS_OF_A_TASK * parts.PART_BYTES
WORKERS = (1, 2, 4, 8, 16, 32, 64, 125, 250, 500, 1000)


@dataclass(frozen=True)
class Campaign:
    """Plain captures on a store. worker_bytes_s, store_bytes_s: what a worker, and all of them, get of it.
    results_bytes_s: what a process that joins receives. hashed: whether files have a BLAKE3, for which one that is cut
    is read a second time. ingests: that share the runs and workers; each has a scheduler and a process that joins."""

    runs: int = 75
    run_bytes: int = 500_000_000_000
    files: int = 16
    worker_bytes_s: float = 1.25e9
    store_bytes_s: float = 100e9
    results_bytes_s: float = 1.25e9
    hashed: bool = True
    ingests: int = 1


@dataclass(frozen=True)
class Result:
    """hours: of the ingest. least: hours that each resource alone would need."""

    hours: float
    least: dict[str, float]

    @property
    def limit(self) -> str:
        """The resource that needs longest."""
        return max(self.least, key=lambda name: self.least[name])


@dataclass(frozen=True)
class Tasks:
    """Those of a run. sizes: bytes that each reads. bytes_s: as a worker reads them, at most. result_s: of the process
    that joins, for each result."""

    sizes: list[float]
    bytes_s: float
    result_s: float


def tasks_of_a_run(campaign: Campaign, cost: dict[str, float], workers: int) -> Tasks:
    """Files as a whole, or cut, as an ingest does."""
    size = campaign.run_bytes / campaign.files
    loop, hashing = cost["read_s_per_gb"] / 1e9, campaign.hashed * cost["hash_s_per_gb"] / 1e9
    algorithm = hashes.DEFAULT if campaign.hashed else hashes.NONE
    if size <= most_whole(campaign.runs * campaign.run_bytes, workers, algorithm):
        received = cost["result_bytes_per_gb"] * size / 1e9 / campaign.results_bytes_s
        return Tasks([size] * campaign.files, min(campaign.worker_bytes_s, 1 / (loop + hashing)), received)
    parts_of_a_file = -(-int(size) // TASK_BYTES)
    sizes = ([size] * campaign.hashed + [float(TASK_BYTES)] * parts_of_a_file) * campaign.files
    joining = max(cost["join_s_per_task"], cost["result_bytes_per_task"] / campaign.results_bytes_s)
    return Tasks(sizes, min(campaign.worker_bytes_s, 1 / max(loop, hashing)), joining)


def simulated(campaign: Campaign, cost: dict[str, float], workers: int) -> Result:
    """The campaign with so many workers of one thread."""
    tasks = tasks_of_a_run(campaign, cost, workers)
    overhead = cost["worker_s_per_task"] * tasks.bytes_s  # as bytes
    scheduler_s = cost["scheduler_s_per_task"] / campaign.ingests
    writing = campaign.run_bytes * cost["write_s_per_gb"] / 1e9
    waiting = deque((run, size + overhead) for run in range(campaign.runs) for size in tasks.sizes)
    left = [len(tasks.sizes)] * campaign.runs
    joined, written = [0.0] * campaign.ingests, [0.0] * campaign.ingests  # when what came has been; they are threads
    running: list[tuple[float, int]] = []  # what each running task has of the store when it ends (of `got`), its run
    now = got = 0.0  # got: bytes of the store for a task that would have run from the start
    started = 0
    while waiting or running:
        rate = min(tasks.bytes_s, campaign.store_bytes_s / max(1, len(running)))
        end = now + (running[0][0] - got) / rate if running else math.inf
        begin = max(now, started * scheduler_s) if waiting and len(running) < workers else math.inf
        got += (min(begin, end) - now) * rate
        now = min(begin, end)
        if begin <= end:
            run, size = waiting.popleft()
            heapq.heappush(running, (got + size, run))
            started += 1
        else:
            run = heapq.heappop(running)[1]
            left[run] -= 1
            one = run % campaign.ingests
            joined[one] = max(joined[one], now) + tasks.result_s
            if not left[run]:
                written[one] = max(written[one], joined[one]) + writing
    return Result(max(written) / 3600, _least(campaign, tasks, workers, scheduler_s, writing))


def _least(campaign: Campaign, tasks: Tasks, workers: int, scheduler_s: float, writing: float) -> dict[str, float]:
    """Hours that each resource alone would need."""
    number, read = campaign.runs * len(tasks.sizes), campaign.runs * sum(tasks.sizes)
    name = "connection" if tasks.bytes_s == campaign.worker_bytes_s else "packet loop"
    seconds = {
        f"workers ({name} of each)": read / tasks.bytes_s / workers,
        "store": read / campaign.store_bytes_s,
        "the longest task": max(tasks.sizes) / tasks.bytes_s,
        "scheduler": number * scheduler_s,
        "joining": number * tasks.result_s / campaign.ingests,
        "writing": campaign.runs * writing / campaign.ingests,
    }
    return {name: value / 3600 for name, value in seconds.items()}


def measure() -> dict[str, float]:
    """What tasks cost here, s."""
    capture = next((HERE.parent / "benchmarks" / "out").glob("ring-86*.pcap"))
    start = numba_engine._plain_start(capture)
    assert start
    options = ReadOptions(10**6, np.empty(0, np.int64), Path())
    whole = Scanner(start[1], options, None, None)
    numba_engine.prepare(1 << 30)
    tasks = [
        parts.PartTask(capture, whole.framing, whole.interfaces, options, max(24, begin), begin + TASK_BYTES)
        for begin in range(0, 16 * TASK_BYTES, TASK_BYTES)
    ]
    digests_of(capture, "blake3")  # into the page cache
    parts.read_part(tasks[1])
    begin = time.perf_counter()
    read = [parts.read_part(task) for task in tasks]
    read_s = time.perf_counter() - begin
    sent = [pickle.dumps(part, protocol=5) for part in read]
    begin = time.perf_counter()
    assert all(whole.join(pickle.loads(part).tables) for part in sent)  # noqa: S301  made above
    join_s = time.perf_counter() - begin
    begin = time.perf_counter()
    digests_of(capture, "blake3")
    hash_s = time.perf_counter() - begin
    write_s = _writing(capture) / (capture.stat().st_size / 1e9)
    scheduler_s, worker_s = _cluster_costs()
    size = len(tasks) * TASK_BYTES / 1e9
    return {
        "read_s_per_gb": read_s / size,
        "hash_s_per_gb": hash_s / (capture.stat().st_size / 1e9),
        "join_s_per_task": join_s / len(tasks),
        "result_bytes_per_task": float(max(map(len, sent))),
        "result_bytes_per_gb": _whole_result(capture) / (capture.stat().st_size / 1e9),
        "write_s_per_gb": write_s,
        "scheduler_s_per_task": scheduler_s,
        "worker_s_per_task": worker_s,
    }


def _whole_result(capture: Path) -> int:
    """Bytes of what a worker returns that reads the capture as a whole: its windows."""
    with tempfile.TemporaryDirectory() as folder:
        facts = numba_engine.read_capture(
            capture, ReadOptions(10**6, np.empty(0, np.int64), Path(folder, "cells"), hash=hashes.NONE)
        )
        assert facts.cells
        return facts.cells.stat().st_size


def _writing(capture: Path) -> float:
    """What an ingest of the capture takes beside reading it, s, without what one of a few packets takes; the least of
    three."""
    with tempfile.TemporaryDirectory() as folder:
        small = Path(folder, "small.pcap")
        with capture.open("rb") as file:
            small.write_bytes(file.read(1 << 16))
        took = {
            path: min(plan._after(path, Path(folder, f"{path.name}-{turn}"), IngestOptions()) for turn in range(3))
            for path in (small, capture)
        }
    return max(0.0, took[capture] - took[small])


def _cluster_costs(tasks: int = 3000) -> tuple[float, float]:
    """Of a task without work: by two workers, what the scheduler takes; by one, one after the other, all of it."""
    from distributed import LocalCluster

    from ddnn_traces.ingestors.schedule.cluster import Cluster
    from ddnn_traces.messages import Messages

    with (
        LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address="127.0.0.1:0") as local,
        Cluster(local.scheduler_address, 1, 0, Messages()) as cluster,
    ):
        cluster.submit(abs, 1).result()
        begin = time.perf_counter()
        for call in [cluster.submit(abs, number) for number in range(tasks)]:
            call.result()
        many = (time.perf_counter() - begin) / tasks
        begin = time.perf_counter()
        for number in range(300):
            cluster.submit(abs, number).result()
        return many, (time.perf_counter() - begin) / 300


KINDS = {
    "16 captures a run": Campaign(),
    "16 captures, 8 ingests": Campaign(ingests=8),
    "1 capture a run": Campaign(files=1),
    "1 capture, --hash none": Campaign(files=1, hashed=False),
}


def curve(cost: dict[str, float]) -> pl.DataFrame:
    """A row a number of workers and kind of ingest."""
    rows = []
    for kind, campaign in KINDS.items():
        base = simulated(replace(campaign, ingests=1), cost, 1).hours
        for workers in WORKERS:
            if workers >= campaign.ingests:
                one = simulated(campaign, cost, workers)
                rows.append((kind, workers, one.hours, base / one.hours, one.limit))
    return pl.DataFrame(rows, schema=["ingest", "workers", "hours", "faster", "limit"], orient="row")


def table(found: pl.DataFrame) -> str:
    """The curve as Markdown."""
    lines = ["| ingest | workers | hours | times faster | limited by |", "|---|--:|--:|--:|---|"]
    for kind, workers, hours, faster, limit in found.rows():
        lines.append(f"| {kind} | {workers:,} | {hours:,.2f} | {faster:,.0f} | {limit} |")
    return "\n".join(lines)


def chart(found: pl.DataFrame) -> alt.Chart:
    """Hours over workers."""
    return (
        alt.Chart(found, width=460, height=280)
        .mark_line(point=True)
        .encode(
            alt.X("workers:Q").scale(type="log").axis(format=",d").title("workers"),
            alt.Y("hours:Q").scale(type="log").axis(format="~g").title("hours for 37.5 TB (simulated)"),
            alt.Color("ingest:N", sort=None).title(None),
            alt.StrokeDash("ingest:N", sort=None).title(None),
        )
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", choices=["measure", "simulate"], default="simulate")
    if parser.parse_args().what == "measure":
        MEASURED.parent.mkdir(exist_ok=True)
        about = f"{platform.processor() or platform.machine()}, Python {platform.python_version()}"
        found = {name: float(f"{value:.4g}") for name, value in measure().items()}
        MEASURED.write_text(tomli_w.dumps({"date": time.strftime("%Y-%m-%d"), "machine": about, "cost": found}))
    measured = tomllib.loads(MEASURED.read_text())
    sys.stdout.write(f"{measured['date']}, {measured['machine']}\n")
    for name, value in measured["cost"].items():
        sys.stdout.write(f"  {name} = {value:g}\n")
    found = curve(measured["cost"])
    sys.stdout.write(table(found) + "\n")
    with tempfile.TemporaryDirectory() as folder:  # a chart that cannot be drawn leaves the old one
        drawn = Path(folder, "curve.svg")
        chart(found).save(str(drawn))
        (HERE / "scaling" / "curve.svg").write_bytes(drawn.read_bytes())


if __name__ == "__main__":
    main()
