"""How long publish and verify take on a large dataset, and how much memory.

    python benchmarks/publish.py                            # 5 GB, in benchmarks/out
    python benchmarks/publish.py --gigabytes 0.1 --keep
    python benchmarks/publish.py --base DATASET --out FOLDER    # copies of a dataset of your own

The dataset is made of copies of synthetic runs (make_dataset.py) under other names. Windows of synthetic packets
compress better than real ones (1.2 bytes a row, as Parquet): so the bytes of a flow are moved between neighbouring
windows, at random, up to 30% of each, which leaves all sums as they are, so that the checks hold.

Memory is the largest sum of VmRSS of the command and all its children, sampled 20 times a second.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import make_dataset
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ddnn_traces.store import schema
from ddnn_traces.store.parquet import partition
from ddnn_traces.store.writer import DatasetWriter

OUT = Path(__file__).parent / "out"
BASE_RUNS, BASE_ROWS, BYTES_A_ROW = 75, 100_000_000, 10
CLI = "import sys; from ddnn_traces.cli import main; main()"


def noisy(batch: pa.RecordBatch, rng: np.random.Generator) -> pa.RecordBatch:
    """Rows of flow_windows with bytes of a flow moved between neighbouring windows; sums of each flow stay."""
    flow = batch.column("flow_id").to_numpy()
    order = np.argsort(flow, kind="stable")
    same = np.append(flow[order][1:] == flow[order][:-1], False)  # whether the next row is of the same flow
    columns = {name: batch.column(name) for name in batch.schema.names}

    def moved(values: np.ndarray) -> np.ndarray:
        ordered = values[order]
        after = np.append(ordered[1:], 0)
        share = (rng.random(len(ordered)) * 0.3 * np.minimum(ordered, after)).astype(np.int64) * same
        ordered = ordered + share - np.append(0, share[:-1])
        back = np.empty_like(ordered)
        back[order] = ordered
        return back

    payload = columns["payload_bytes"].to_numpy()
    headers = columns["wire_bytes"].to_numpy() - payload
    new_payload = moved(payload)
    columns["payload_bytes"] = pa.array(new_payload)
    columns["wire_bytes"] = pa.array(new_payload + moved(headers))
    columns["packets"] = pa.array(moved(columns["packets"].to_numpy()))
    return pa.RecordBatch.from_pydict(columns, schema=batch.schema)


def copied(source: Path, table: str, run_id: str, name: str, seed: int | None) -> Iterator[pa.RecordBatch]:
    """Rows of a run under another name. seed: of noise in the windows; None: none."""
    arrow = schema.table(table).arrow()
    for batch in pq.ParquetFile(partition(source, table, run_id) / "part-0.parquet").iter_batches(1 << 17):
        columns = [
            pa.repeat(name, batch.num_rows) if column == "run_id" else batch.column(column) for column in arrow.names
        ]
        named = pa.RecordBatch.from_arrays(columns, schema=arrow)
        noise = table == "flow_windows" and seed is not None
        yield noisy(named, np.random.default_rng(seed)) if noise else named


def make(base: Path, out: Path, size: float) -> None:
    """Write copies of the base's runs until the dataset has so many bytes: once with noise, then copies of those."""
    runs = [row["run_id"] for row in pq.read_table(base / "runs", partitioning=None, columns=["run_id"]).to_pylist()]
    with DatasetWriter(out) as writer, ThreadPoolExecutor(2) as threads:

        def copy(number: int) -> str:
            run_id = runs[number % len(runs)]
            name = f"{run_id}-copy{number // len(runs)}"
            first = number < len(runs)
            source, old, seed = (base, run_id, number) if first else (writer.next, f"{run_id}-copy0", None)
            for table in schema.TABLES:
                writer.write(table, name, copied(source, table, old, name, seed), {"version": "benchmark"})
            return name

        number = 0
        while sum(path.stat().st_size for path in writer.next.rglob("*.parquet")) < size:
            for name in threads.map(copy, range(number, number + 3)):
                with writer.new_run(name):
                    pass
            number += 3
        writer.commit({})


def resident(pid: int) -> int:
    """Bytes that a process and its children hold."""
    total = 0
    try:
        status = Path(f"/proc/{pid}/status").read_text()
        total = int(status.partition("VmRSS:")[2].split()[0]) * 1024
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except (OSError, IndexError):
        return total
    return total + sum(resident(int(child)) for child in children)


def measured(arguments: list[str]) -> tuple[float, float, float]:
    """Wall seconds, CPU seconds and peak memory, GB, of a command; its output goes to stderr."""
    begin, before = time.perf_counter(), os.times()
    with subprocess.Popen([sys.executable, "-c", CLI, *arguments], stdout=subprocess.DEVNULL) as process:
        peak, done = 0, threading.Event()

        def watch() -> None:
            nonlocal peak
            while not done.wait(0.05):
                peak = max(peak, resident(process.pid))

        watcher = threading.Thread(target=watch)
        watcher.start()
        code = process.wait()
        done.set()
        watcher.join()
    if code:
        raise SystemExit(f"{' '.join(arguments)}: exit code {code}")
    after = os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return time.perf_counter() - begin, cpu, peak / 1e9


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gigabytes", type=float, default=5.0)
    parser.add_argument("--base", type=Path, help="dataset to copy; default: synthetic, of 100 M window rows at most")
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--keep", action="store_true", help="leave the dataset and the release where they are")
    options = parser.parse_args()
    size = options.gigabytes * 1e9
    base, dataset, release = options.base or options.out / "base", options.out / "dataset", options.out / "release"
    if not base.exists():
        rows = min(BASE_ROWS, int(size / BYTES_A_ROW))
        make_dataset.write(base, min(BASE_RUNS, max(4, rows // 500_000)), rows)
    if not dataset.exists():
        begin = time.perf_counter()
        make(base, dataset, size)
        print(f"dataset made in {time.perf_counter() - begin:.0f} s")
    files = list(dataset.rglob("*.parquet"))
    rows = sum(pq.read_metadata(path).num_rows for path in files)
    runs = len(list((dataset / "runs").iterdir()))
    print(f"{sum(path.stat().st_size for path in files) / 1e9:.2f} GB, {rows:,} rows, {runs} runs")
    print(f"{platform.machine()}, {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}")
    shutil.rmtree(release, ignore_errors=True)
    about = ["--title", "Benchmark", "--licence", "CC0-1.0", "--creator", "Nobody", "--date", "2026-01-01"]
    for name, arguments in (
        ("publish", ["publish", str(dataset), "--out", str(release), *about]),
        ("verify", ["verify", str(release)]),
    ):
        wall, cpu, memory = measured(arguments)
        print(f"{name}: {wall:.1f} s, {cpu:.1f} s of CPU, at most {memory:.2f} GB of memory", flush=True)
    if not options.keep:
        for folder in (dataset, release, *(() if options.base else (base,))):
            shutil.rmtree(folder, ignore_errors=True)
        release.with_name(f"{release.name}.key").unlink(missing_ok=True)


if __name__ == "__main__":
    main()
