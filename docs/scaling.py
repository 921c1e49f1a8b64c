"""The figures of docs/scaling.md: what tasks cost, measured here, and a simulation of more workers than there are here.

    python docs/scaling.py measure      measures on this machine, into docs/scaling/measured.toml; needs the capture
                                        that benchmarks/cluster.py makes
    python docs/scaling.py              simulates with these numbers; prints the table, draws docs/scaling/curve.svg

The simulation is event-driven: tasks in order, each by the first worker that is free, started by one scheduler; their
results joined by one process, which also reconciles and writes each run when its last part is joined.
"""

from __future__ import annotations

import argparse
import heapq
import pickle
import platform
import sys
import tempfile
import time
import tomllib
from dataclasses import dataclass
from pathlib import Path

import altair as alt
import numpy as np
import polars as pl
import tomli_w

from ddnn_traces.ingestors import plan
from ddnn_traces.ingestors.facts import ReadOptions
from ddnn_traces.ingestors.options import IngestOptions
from ddnn_traces.ingestors.packets import numba_engine, parts
from ddnn_traces.ingestors.packets.records import pcap_framing
from ddnn_traces.ingestors.packets.scanner import Scanner
from ddnn_traces.ingestors.streams import digests_of

HERE = Path(__file__).parent
MEASURED = HERE / "scaling" / "measured.toml"
TASK_BYTES = parts.PARTS_OF_A_TASK * parts.PART_BYTES
WORKERS = (1, 2, 4, 8, 16, 32, 64, 125, 250, 500, 1000)


@dataclass(frozen=True)
class Campaign:
    """Plain captures on a store. worker_bytes_s, store_bytes_s: what a worker, and all of them, get of it.
    results_bytes_s: what the process that joins receives. hashed: whether files are read a second time, by one task
    each, for BLAKE3."""

    runs: int = 75
    run_bytes: int = 500_000_000_000
    files: int = 16
    worker_bytes_s: float = 1.25e9
    store_bytes_s: float = 100e9
    results_bytes_s: float = 1.25e9
    hashed: bool = True


@dataclass(frozen=True)
class Result:
    """hours: of the ingest. least: hours that each resource alone would need."""

    hours: float
    least: dict[str, float]

    @property
    def limit(self) -> str:
        """The resource that needs longest."""
        return max(self.least, key=lambda name: self.least[name])


def simulated(campaign: Campaign, cost: dict[str, float], workers: int, clients: int = 1) -> Result:
    """The campaign with so many workers of one thread, its runs shared among so many ingests."""
    share = min(campaign.worker_bytes_s, campaign.store_bytes_s / workers)
    loop_s, hashing = TASK_BYTES * cost["read_s_per_gb"] / 1e9, cost["hash_s_per_gb"] / 1e9
    read_s = max(loop_s, TASK_BYTES / share) + cost["worker_s_per_task"]
    file_bytes = campaign.run_bytes / campaign.files
    hash_s = file_bytes * max(hashing, 1 / share)
    of_a_run = [hash_s] * campaign.files * campaign.hashed + [read_s] * (
        -(-int(file_bytes) // TASK_BYTES) * campaign.files
    )
    joining = max(cost["join_s_per_task"], cost["result_bytes_per_task"] / campaign.results_bytes_s)
    writing = campaign.run_bytes * cost["write_s_per_gb"] / 1e9
    free = [0.0] * workers
    started, joined, written = 0.0, [0.0] * clients, [0.0] * clients
    for run in range(campaign.runs):
        client = run % clients
        for seconds in of_a_run:
            started += cost["scheduler_s_per_task"] / clients  # each ingest has a cluster of its own
            end = max(heapq.heappop(free), started) + seconds
            heapq.heappush(free, end)
            joined[client] = max(joined[client], end) + joining
        written[client] = max(written[client], joined[client]) + writing
    number, passes = campaign.runs * len(of_a_run), 1 + campaign.hashed
    all_bytes = campaign.runs * campaign.run_bytes * passes
    alone = max(loop_s, TASK_BYTES / campaign.worker_bytes_s) + cost["worker_s_per_task"]
    name = "packet loop" if loop_s > TASK_BYTES / campaign.worker_bytes_s else "connection of a worker"
    least = {
        f"workers ({name})": all_bytes / TASK_BYTES * alone / workers,
        "store": all_bytes / campaign.store_bytes_s,
        "hash of one file": hash_s * campaign.hashed,
        "scheduler": number * cost["scheduler_s_per_task"] / clients,
        "joining": number * joining / clients,
        "writing": campaign.runs * writing / clients,
    }
    return Result(max(*written, *free) / 3600, {name: seconds / 3600 for name, seconds in least.items()})


def measure() -> dict[str, float]:
    """What tasks cost here, s."""
    capture = next((HERE.parent / "benchmarks" / "out").glob("ring-86*.pcap"))
    header = numba_engine._plain_pcap(capture)
    assert header
    options = ReadOptions(10**6, np.empty(0, np.int64), Path())
    numba_engine.prepare(1 << 30)
    tasks = [
        parts.PartTask(capture, pcap_framing(header), options, max(24, begin), begin + TASK_BYTES)
        for begin in range(0, 16 * TASK_BYTES, TASK_BYTES)
    ]
    digests_of(capture, "blake3")  # into the page cache
    parts.read_part(tasks[1])
    begin = time.perf_counter()
    read = [parts.read_part(task) for task in tasks]
    read_s = time.perf_counter() - begin
    sent = [pickle.dumps(part, protocol=5) for part in read]
    whole = Scanner(pcap_framing(header), options, None, None)
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
        "write_s_per_gb": write_s,
        "scheduler_s_per_task": scheduler_s,
        "worker_s_per_task": worker_s,
    }


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


def curve(cost: dict[str, float]) -> pl.DataFrame:
    """A row a number of workers and kind of ingest."""
    kinds = {"default": (True, 1), "--hash none": (False, 1), "8 ingests, --hash none": (False, 8)}
    rows = []
    for kind, (hashed, clients) in kinds.items():
        campaign = Campaign(hashed=hashed)
        base = simulated(campaign, cost, 1).hours
        for workers in WORKERS:
            if workers >= clients:
                one = simulated(campaign, cost, workers, clients)
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
