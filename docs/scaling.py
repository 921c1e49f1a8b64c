"""The figures of docs/scaling.md: what tasks cost, measured here, and a simulation of more workers than there are here.

    python docs/scaling.py measure      measures on this machine, into docs/scaling/measured.toml; needs the capture
                                        that benchmarks/cluster.py makes
    python docs/scaling.py              simulates with these numbers; prints the table, draws docs/scaling/curve.svg

The simulation is event-driven: tasks in order, each by the first worker that is free, started by one scheduler. What
the store gives is shared among the tasks that read at a moment. A run of whole files is ended by the next worker that
is free, which gets what the others read; one process receives its tables. That process joins files in parts, and
reconciles and writes their runs when the last part is there.
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
from typing import Any

import altair as alt
import numpy as np
import polars as pl
import tomli_w

from ddnn_traces.ingestors import pipeline, plan
from ddnn_traces.ingestors.options import IngestOptions
from ddnn_traces.ingestors.schedule.cluster import Call, Cluster, Done, without_files
from ddnn_traces.ingestors.schedule.tasks import ReadResult, ReadTask, most_whole, read
from ddnn_traces.messages import Messages
from ddnn_traces.pcap import numba_engine, parts
from ddnn_traces.pcap.capture_facts import ReadOptions
from ddnn_traces.pcap.scanner import Scanner
from ddnn_traces.pcap.streams import Cost, digests_of
from ddnn_traces.store import hashes, schema
from ddnn_traces.store.parquet import partition
from ddnn_traces.store.writer import PART, DatasetWriter

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
    """Those of a run. sizes: bytes that each reads. bytes_s: as a worker reads them, at most. call_s: of the scheduler
    for each. result_s: of the process that joins, for each result. end_s: of a worker that ends the run, 0: the process
    that joins does. last_s: of that process, for all of the run when this is done."""

    sizes: list[float]
    bytes_s: float
    call_s: float
    result_s: float
    end_s: float
    last_s: float


def tasks_of_a_run(campaign: Campaign, cost: dict[str, float], workers: int) -> Tasks:
    """Files as a whole, or cut, as an ingest does."""
    size, run_gb = campaign.run_bytes / campaign.files, campaign.run_bytes / 1e9
    loop, hashing = cost["read_s_per_gb"] / 1e9, campaign.hashed * cost["hash_s_per_gb"] / 1e9
    writing = run_gb * cost["write_s_per_gb"]
    algorithm = hashes.DEFAULT if campaign.hashed else hashes.NONE
    if size <= most_whole(campaign.runs * campaign.run_bytes, workers, algorithm):
        moving = run_gb * cost["result_bytes_per_gb"] / campaign.worker_bytes_s
        coming = run_gb * max(cost["tables_bytes_per_gb"] / campaign.results_bytes_s, cost["take_s_per_gb"])
        small = cost["facts_bytes_per_file"] / campaign.results_bytes_s
        bytes_s = min(campaign.worker_bytes_s, 1 / (loop + hashing))
        call_s = cost["scheduler_s_per_whole_file"] / campaign.ingests
        return Tasks([size] * campaign.files, bytes_s, call_s, small, moving + writing, coming)
    parts_of_a_file = -(-int(size) // TASK_BYTES)
    sizes = ([size] * campaign.hashed + [float(TASK_BYTES)] * parts_of_a_file) * campaign.files
    joining = max(cost["join_s_per_task"], cost["result_bytes_per_task"] / campaign.results_bytes_s)
    call_s = cost["scheduler_s_per_task"] / campaign.ingests
    return Tasks(sizes, min(campaign.worker_bytes_s, 1 / max(loop, hashing)), call_s, joining, 0.0, writing)


def simulated(campaign: Campaign, cost: dict[str, float], workers: int) -> Result:
    """The campaign with so many workers of one thread."""
    tasks = tasks_of_a_run(campaign, cost, workers)
    overhead = cost["worker_s_per_task"] * tasks.bytes_s  # as bytes
    waiting = deque((run, size + overhead) for run in range(campaign.runs) for size in tasks.sizes)
    left = [len(tasks.sizes)] * campaign.runs
    joined, written = [0.0] * campaign.ingests, [0.0] * campaign.ingests  # when what came has been; they are threads
    running: list[tuple[float, int]] = []  # what each running task has of the store when it ends (of `got`), its run
    read: deque[int] = deque()  # runs that wait for a worker to end them
    ending: list[tuple[float, int]] = []  # when each run that a worker ends is there
    now = got = 0.0  # got: bytes of the store for a task that would have run from the start
    started = 0
    while waiting or running or read or ending:
        rate = min(tasks.bytes_s, campaign.store_bytes_s / max(1, len(running)))
        next_read = now + (running[0][0] - got) / rate if running else math.inf
        next_end = ending[0][0] if ending else math.inf
        is_free = len(running) + len(ending) < workers
        begin = max(now, started * tasks.call_s) if (waiting or read) and is_free else math.inf
        got += (min(begin, next_read, next_end) - now) * rate
        now = min(begin, next_read, next_end)
        if begin == now:
            if read:
                heapq.heappush(ending, (now + tasks.end_s, read.popleft()))
            else:
                run, size = waiting.popleft()
                heapq.heappush(running, (got + size, run))
            started += 1
        elif next_read == now:
            run = heapq.heappop(running)[1]
            left[run] -= 1
            one = run % campaign.ingests
            joined[one] = max(joined[one], now) + tasks.result_s
            if not left[run] and tasks.end_s:
                read.append(run)
            elif not left[run]:
                written[one] = max(written[one], joined[one]) + tasks.last_s
        else:
            one = heapq.heappop(ending)[1] % campaign.ingests
            written[one] = max(written[one], joined[one], now) + tasks.last_s
    return Result(max(written) / 3600, _least(campaign, tasks, workers))


def _least(campaign: Campaign, tasks: Tasks, workers: int) -> dict[str, float]:
    """Hours that each resource alone would need."""
    number, bytes_read = campaign.runs * len(tasks.sizes), campaign.runs * sum(tasks.sizes)
    name = "connection" if tasks.bytes_s == campaign.worker_bytes_s else "packet loop"
    longest = max(tasks.sizes) / tasks.bytes_s
    seconds = {
        f"workers ({name} of each)": (bytes_read / tasks.bytes_s + campaign.runs * tasks.end_s) / workers,
        "store": bytes_read / campaign.store_bytes_s,
        "the longest task": longest + tasks.end_s,
        "scheduler": number * tasks.call_s,
        "joining": number * tasks.result_s / campaign.ingests,
        "taking tables" if tasks.end_s else "writing": campaign.runs * tasks.last_s / campaign.ingests,
    }
    if tasks.end_s:
        seconds["whole files a worker"] = math.ceil(number / workers) * longest + tasks.end_s
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
    take_s, tables = _taking(capture)
    scheduler_s, whole_s, worker_s = _cluster_costs()
    size = len(tasks) * TASK_BYTES / 1e9
    return {
        "read_s_per_gb": read_s / size,
        "hash_s_per_gb": hash_s / (capture.stat().st_size / 1e9),
        "join_s_per_task": join_s / len(tasks),
        "result_bytes_per_task": float(max(map(len, sent))),
        "result_bytes_per_gb": _whole_result(capture) / (capture.stat().st_size / 1e9),
        "facts_bytes_per_file": float(_facts(capture)),
        "write_s_per_gb": write_s,
        "tables_bytes_per_gb": tables / (capture.stat().st_size / 1e9),
        "take_s_per_gb": take_s / (capture.stat().st_size / 1e9),
        "scheduler_s_per_task": scheduler_s,
        "scheduler_s_per_whole_file": whole_s,
        "worker_s_per_task": worker_s,
    }


def _read_as_a_whole(capture: Path) -> tuple[ReadResult, dict[str, bytes]]:
    with tempfile.TemporaryDirectory() as folder:
        options = ReadOptions(10**6, np.empty(0, np.int64), Path(folder, "cells"), hash=hashes.NONE)
        result = read(ReadTask(capture, "", "numba", options))
        return result, {name: path.read_bytes() for name, path in options.outputs.items() if path.exists()}


def _whole_result(capture: Path) -> int:
    """Bytes of what a worker keeps that reads the capture as a whole."""
    return sum(map(len, _read_as_a_whole(capture)[1].values()))


def _facts(capture: Path) -> int:
    """Bytes of what comes to the command's process at once."""
    result, outputs = _read_as_a_whole(capture)
    return len(pickle.dumps(without_files(Done((result, outputs), "", 0.0, Cost())), protocol=5))


def _taking(capture: Path) -> tuple[float, int]:
    """CPU time for taking a run's tables from a worker and putting them into a dataset, s, without what those of a few
    packets take; bytes of the tables."""
    with tempfile.TemporaryDirectory() as folder:
        small = _beginning(capture, folder)
        took, sizes = {}, {}
        for path in (small, capture):
            dataset = Path(folder, f"dataset-{path.name}")
            (run_id,) = pipeline.ingest([str(path)], dataset)
            of_run = {table: partition(dataset, table, run_id) / PART for table in schema.TABLES}
            sent = pickle.dumps({table: file.read_bytes() for table, file in of_run.items()}, protocol=5)
            took[path] = min(_taken(sent, run_id, Path(folder, f"{turn}-{path.name}")) for turn in range(3))
            sizes[path] = len(sent)
    return max(0.0, took[capture] - took[small]), sizes[capture]


def _taken(sent: bytes, run_id: str, dataset: Path) -> float:
    """CPU time of taking these tables into a new dataset, s."""
    begin = time.process_time()
    with DatasetWriter(dataset) as writer:
        with writer.new_run(run_id):
            for table, content in pickle.loads(sent).items():  # noqa: S301  made above
                (writer.scratch / table).write_bytes(content)
                writer.take(table, run_id, writer.scratch / table)
        writer.commit({})
    return time.process_time() - begin


def _beginning(capture: Path, folder: str) -> Path:
    """A capture of its first packets."""
    small = Path(folder, "small.pcap")
    with capture.open("rb") as file:
        small.write_bytes(file.read(1 << 16))
    return small


def _writing(capture: Path) -> float:
    """What an ingest of the capture takes beside reading it, s, without what one of a few packets takes; the least of
    three."""
    with tempfile.TemporaryDirectory() as folder:
        small = _beginning(capture, folder)
        took = {
            path: min(plan._after(path, Path(folder, f"{path.name}-{turn}"), IngestOptions()) for turn in range(3))
            for path in (small, capture)
        }
    return max(0.0, took[capture] - took[small])


def _kept(number: int) -> tuple[int, dict[str, bytes]]:
    """On a worker: something small, and no file."""
    return number, {}


def _cluster_costs(tasks: int = 1500) -> tuple[float, float, float]:
    """Of a task without work: by two workers, CPU time of the scheduler and the command, which are this process, for a
    task, and for one of which the worker keeps something; by time, all of one after the other."""
    from distributed import LocalCluster

    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0") as local,
        Cluster(local.scheduler_address, 1, 0, Messages()) as cluster,
    ):

        def keeping(number: int) -> Call[Any]:
            return Call(cluster, without_files, (Call(cluster, _kept, (number,), counts=False),))

        cluster.submit(abs, 1).result()
        took = []
        for submit in (lambda number: cluster.submit(abs, number), keeping):
            begin = time.process_time()
            for call in [submit(number) for number in range(tasks)]:
                call.result()
            took.append((time.process_time() - begin) / tasks)
        begin = time.perf_counter()
        for number in range(300):
            cluster.submit(abs, number).result()
        return took[0], took[1], (time.perf_counter() - begin) / 300


KINDS = {
    "16 captures a run": Campaign(),
    "16 captures, 8 ingests": Campaign(ingests=8),
    "16 captures, store without a common limit": Campaign(store_bytes_s=math.inf),
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
        lines.append(f"| {kind} | {workers:,} | {hours:,.3g} | {faster:,.0f} | {limit} |")
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
