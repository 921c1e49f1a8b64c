"""Every named query, check and the report on a large dataset, and a run's figures compared with the published scripts.

    python benchmarks/queries.py                      # makes 75 runs with 100 M window rows first, in benchmarks/out
    python benchmarks/queries.py --rows 1000000
    python benchmarks/queries.py --dataset DATASET --only pair_     # a dataset of your own, some queries

A query is run with its default parameters on the whole dataset, and on one run alone (as `ddnn-traces query --run`):
the first time, and the median of --repeat more; a query that takes over half a minute is run once, and one that takes
over --limit seconds is interrupted. `files`: the most files of a table that are read for one run, of all, by --run,
and by WHERE run_id = '...' on the view (EXPLAIN ANALYZE). Slow is over 2 s, and over 10 s where the windows of all runs
are read.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import make_dataset
import pandas_way

import ddnn_traces
from ddnn_traces.errors import QueryError
from ddnn_traces.query import catalogue
from ddnn_traces.query.dataset import Dataset
from ddnn_traces.store import schema

OUT = Path(__file__).parent / "out"
SAMPLE = Path(__file__).parents[1] / "tests" / "traces" / "runs" / "torch-mlp1-sgd-32-gloo-0ms-ring"
LONG_S = 30.0
BAR_S, WINDOWS_BAR_S = 2.0, 10.0
REPORT_BAR_S, REPORT_BAR_MB = 60.0, 15.0


@dataclass(frozen=True)
class Measured:
    """Seconds the first time and the median of the next; rows of the result, None where it was interrupted."""

    first_s: float
    median_s: float
    rows: int | None


def measure(ask: Callable[[], int], stop: Callable[[], None], limit_s: float, repeat: int) -> Measured:
    """Time `ask`, which returns a number of rows; `stop` ends it from another thread."""
    times: list[float] = []
    rows: int | None = None
    timer = threading.Timer(limit_s, stop)
    timer.start()
    try:
        while len(times) < 1 + repeat and not (times and times[0] > LONG_S):
            begin = time.perf_counter()
            rows = ask()
            times.append(time.perf_counter() - begin)
    except QueryError as error:
        if "INTERRUPT" not in str(error).upper():
            raise
        return Measured(limit_s, limit_s, None)
    finally:
        timer.cancel()
    return Measured(times[0], statistics.median(times[1:] or times), rows)


def reads_windows(name: str) -> bool:
    """Whether a query, or one that it reads, reads flow_windows."""
    inputs = catalogue.find(name).inputs
    return "flow_windows" in inputs or any(reads_windows(i) for i in inputs if i in catalogue.catalogue())


def files_read(dataset: Dataset, name: str, run_id: str | None) -> str:
    """The most files of a table that a query opens, of all: 1/75 where the filter prunes; - where it reads none."""
    query = catalogue.find(name)
    source = f"FROM {name}" + ("()" if query.params else "")
    where, values = ("", None) if run_id is None else (" WHERE run_id = ?", [run_id])
    if run_id is not None and "run_id" not in dataset.sql(f"DESCRIBE {source}")["column_name"]:
        return "-"
    plan = dataset.sql(f"EXPLAIN ANALYZE {source}{where}", values)[0, 1]
    found = [(int(read), int(all_)) for read, all_ in re.findall(r"Scanning Files: (\d+)/(\d+)", plan)]
    return "{}/{}".format(*max(found)) if found else "-"


def measure_queries(path: Path, names: list[str], limit_s: float, repeat: int) -> list[str]:
    """Print the table of these queries; returns the names of the slow ones."""
    slow = []
    head = ("query", "rows", "first s", "whole s", "one run s", "files", "WHERE", "")
    print("{:<28} {:>9} {:>8} {:>8} {:>9} {:>6} {:>6} {}".format(*head))
    with ddnn_traces.open(path) as whole, ddnn_traces.open(path, [whole.run_ids[0]]) as one:
        run_id = whole.run_ids[0]
        for name in names:
            needs = {key: run_id if key.endswith("_run") else "*" for key in catalogue.find(name).needs}
            all_runs = measure(
                lambda name=name, needs=needs: whole.query(name, **needs).height,
                whole.connection.interrupt,
                limit_s,
                repeat,
            )
            one_run = measure(
                lambda name=name, needs=needs: one.query(name, **needs).height,
                one.connection.interrupt,
                limit_s,
                repeat,
            )
            pruned = files_read(one, name, None)
            by_where = files_read(whole, name, run_id) if all_runs.rows is not None else "?"
            bar = WINDOWS_BAR_S if reads_windows(name) else BAR_S
            is_slow = all_runs.median_s > bar or one_run.median_s > BAR_S
            slow += [name] if is_slow else []
            rows = "stopped" if all_runs.rows is None else f"{all_runs.rows:,}"
            print(
                f"{name:<28} {rows:>9} {all_runs.first_s:>8.2f} {all_runs.median_s:>8.2f} {one_run.median_s:>9.2f} "
                f"{pruned:>6} {by_where:>6} {f'over {bar:g} s' if is_slow else ''}",
                flush=True,
            )
    return slow


def measure_checks(path: Path, files: list[Path], limit_s: float, repeat: int) -> list[str]:
    """The same for these checks, which read everything."""
    slow = []
    with ddnn_traces.open(path) as dataset:
        for file in files:
            sql = file.read_text(encoding="utf-8")
            stop = dataset.connection.interrupt
            found = measure(lambda sql=sql: dataset.sql_arrow(sql).num_rows, stop, limit_s, repeat)
            bar = WINDOWS_BAR_S if "flow_windows" in sql else BAR_S
            is_slow = found.median_s > bar
            slow += [file.stem] if is_slow else []
            rows = "stopped" if found.rows is None else f"{found.rows:,}"
            print(
                f"{'checks/' + file.stem:<28} {rows:>9} {found.first_s:>8.2f} {found.median_s:>8.2f} {'':>23} "
                f"{f'over {bar:g} s' if is_slow else ''}",
                flush=True,
            )
    return slow


def measure_report(path: Path) -> list[str]:
    """Time and size of the report, as the command writes it."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "report.html"
        command = [sys.executable, "-c", "from ddnn_traces.cli import main; main()", "report", str(path)]
        begin = time.perf_counter()
        subprocess.run([*command, "--out", str(out)], check=True, capture_output=True)
        wall, size = time.perf_counter() - begin, out.stat().st_size / 1e6
    is_slow = wall > REPORT_BAR_S or size > REPORT_BAR_MB
    print(f"\nddnn-traces report: {wall:.1f} s, {size:.1f} MB {'over 60 s or 15 MB' if is_slow else ''}", flush=True)
    return ["report"] if is_slow else []


def compare_with_pandas(capture_bytes: float) -> None:
    """A run's figures from packet rows with pandas and by queries. Raises AssertionError where they differ."""
    with tempfile.TemporaryDirectory(dir=OUT) as name:
        scratch = Path(name)
        capture = scratch / "run.pcap"
        repeat = [sys.executable, str(Path(__file__).with_name("repeat_captures.py")), str(capture), str(SAMPLE)]
        subprocess.run([*repeat, "--bytes", str(capture_bytes)], check=True, capture_output=True)
        begin = time.perf_counter()
        with ddnn_traces.ingest(capture, scratch / "plain", hash="none"):
            ingest_s = time.perf_counter() - begin
        with ddnn_traces.ingest(capture, scratch / "dataset", hash="none", packets=True) as dataset:
            packets = pandas_way.export(dataset, scratch / "csv")
            text = sum(path.stat().st_size for path in (scratch / "csv").iterdir())
            print(f"\none run of {packets:,} packets: {text / 1e6:,.0f} MB of CSV, ingest took {ingest_s:.1f} s")
            print(f"{'figure':<28} {'pandas s':>9} {'query s':>9} {'ratio':>9}")
            slower = faster = 0.0
            for figure, (by_pandas, sql, their_column, our_column) in pandas_way.FIGURES.items():
                begin = time.perf_counter()
                theirs = by_pandas(scratch / "csv")
                pandas_s = time.perf_counter() - begin
                begin = time.perf_counter()
                ours = dataset.sql(sql)
                query_s = time.perf_counter() - begin
                assert theirs[their_column].sum() == ours[our_column].sum(), f"{figure}: the two ways differ"
                print(f"{figure:<28} {pandas_s:>9.2f} {query_s:>9.3f} {pandas_s / query_s:>9.0f}", flush=True)
                slower, faster = slower + pandas_s, faster + query_s
            print(f"{'all':<28} {slower:>9.2f} {faster:>9.3f} {slower / faster:>9.0f}")
            faster += ingest_s
            print(f"{'all, with the ingest':<28} {slower:>9.2f} {faster:>9.3f} {slower / faster:>9.1f}")


def machine() -> str:
    model = next(
        (line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line),
        platform.machine(),
    )
    return f"{model}, {os.cpu_count()} cores, Python {platform.python_version()}; {time.strftime('%Y-%m-%d')}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", type=Path, help="a dataset of your own instead of a generated one")
    parser.add_argument("--rows", type=int, default=make_dataset.ROWS, help="window rows of the generated dataset")
    parser.add_argument("--runs", type=int, default=make_dataset.RUNS, help="runs of the generated dataset")
    parser.add_argument("--only", default="", help="only queries and checks whose names begin so, and nothing else")
    parser.add_argument("--every", type=int, default=1, help="only each n-th of the queries and of the checks")
    parser.add_argument("--repeat", type=int, default=3, help="runs of a query after its first")
    parser.add_argument("--limit", type=float, default=120.0, help="seconds after which a query is interrupted")
    parser.add_argument("--pandas-bytes", type=float, default=4e8, help="size of the capture for the published way")
    options = parser.parse_args()
    OUT.mkdir(exist_ok=True)
    path = options.dataset or OUT / f"dataset-{options.runs}-{options.rows}"
    if not path.exists():
        make_dataset.write(path, options.runs, options.rows)
    with ddnn_traces.open(path) as dataset:
        rows = dataset.sql("SELECT count(*) FROM flow_windows").item()
        print(f"{machine()}\n{len(dataset.run_ids)} runs, {rows:,} window rows\n")
    names = [name for name in catalogue.catalogue() if name.startswith(options.only)][:: options.every]
    checks = sorted((schema.shipped_folder("queries") / "checks").glob(f"{options.only}*.sql"))[:: options.every]
    how = options.limit, options.repeat
    slow = measure_queries(path, names, *how) + measure_checks(path, checks, *how)
    if not options.only:
        slow += measure_report(path)
        compare_with_pandas(options.pandas_bytes)
    print(f"\nover the bar: {', '.join(slow) or 'none'}")


if __name__ == "__main__":
    main()
