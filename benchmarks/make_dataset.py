"""The dataset of benchmarks/queries.py: synthetic runs of the paper's matrix, with a given number of window rows.

    python benchmarks/make_dataset.py OUT --rows 100000000

Frameworks and backends, models, batch sizes and topologies are those of zerwas section IV; 4 workers, with a parameter
server 6 hosts. Every run has about the same number of rows in flow_windows, so a small model has more steps.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Iterator
from pathlib import Path

from ddnn_traces.traffic.synthetic import SyntheticRun, make_traffic, write_runs
from ddnn_traces.traffic.table_writer import TrafficTables

RUNS, ROWS = 75, 100_000_000

#: Name, bytes and the time to compute a batch of 64, ms.
MODELS = (
    ("mobilenetv2", 14_000_000, 90.0),
    ("densenet201", 80_000_000, 260.0),
    ("resnet50", 98_000_000, 180.0),
    ("resnet101", 171_000_000, 300.0),
)

#: Framework, backend, topology, shape, workers.
SETTINGS = (
    ("tensorflow", "grpc", "ring", "", 4),
    ("tensorflow", "nccl", "ring", "", 4),
    ("tensorflow", "grpc", "star", "server", 5),
    ("horovod", "gloo", "ring", "", 4),
    ("horovod", "mpi", "ring", "", 4),
    ("horovod", "nccl", "ring", "", 4),
    ("kungfu", "ssgd", "binary_tree_star", "overlay", 4),
    ("kungfu", "ssgd", "tree", "", 4),
    ("kungfu", "ssgd", "star", "", 4),
    ("kungfu", "ssgd", "clique", "", 4),
    ("kungfu", "pairavg", "pair_averaging", "", 4),
)

BATCHES = (64, 32, 128)


def matrix(runs: int, rows: int) -> Iterator[SyntheticRun]:
    """The first `runs` of the matrix, with about `rows` window rows in all."""
    begin_ns = 1_600_000_000_000_000_000
    combinations = itertools.product(BATCHES, SETTINGS, MODELS)
    for number, (batch, setting, model) in enumerate(itertools.islice(combinations, runs)):
        framework, backend, topology, shape, workers = setting
        name, size, compute_ms = model
        made = {
            "framework": framework, "backend": backend, "topology": topology, "shape": shape, "workers": workers,
            "model": name, "model_bytes": size, "batch_size": batch, "compute_ms": compute_ms * batch / 64,
            "run_id": f"{framework}-{name}-sgd-{batch}-{backend}-normal-{topology}", "epochs": 5,
            "start_ns": begin_ns + number * 3_600_000_000_000, "seed": number,
        }  # fmt: skip
        yield SyntheticRun(**made, steps=steps_for(made, rows / runs))


def steps_for(made: dict, rows: float) -> int:
    """How many steps fill so many window rows."""
    few, more = (window_rows(SyntheticRun(**made, steps=steps)) for steps in (2, 6))
    return max(2, round((rows - few) / (more - few) * 4 + 2))


def window_rows(run: SyntheticRun) -> int:
    """Rows that a run has in flow_windows."""
    return sum(batch.num_rows for batch in TrafficTables(make_traffic(run)).batches("flow_windows"))


def write(out: Path, runs: int, rows: int) -> None:
    """Write the dataset, and print how long it took and what it holds."""
    begin = time.perf_counter()
    write_runs(out, matrix(runs, rows))
    wall = time.perf_counter() - begin
    size = sum(path.stat().st_size for path in out.rglob("*.parquet"))
    print(f"{out}: {runs} runs, {size / 1e6:,.0f} MB of Parquet, made in {wall:.0f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--runs", type=int, default=RUNS)
    options = parser.parse_args()
    write(options.out, options.runs, options.rows)


if __name__ == "__main__":
    main()
