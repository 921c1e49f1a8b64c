"""How well intervals over the steps of runs hold (queries/within_run.sql, compare): coverage, and false differences.

python benchmarks/within_run.py --repetitions 4000

Series whose mean is known: first-order autoregressive steps. `naive` is s / sqrt(n) with Student's t, which takes steps
for independent; `within run` is query within_run. Then two settings that do not differ: runs of 200 such steps, each of
which also has a level of its own, of the standard deviation `level` (1: that of a step). `naive` compares the steps of
one run a side by Welch's test, `runs` three runs a side as query compare does. At the end the pairs of runs of
data/dataset that have equal attributes and lose no packet.
"""

from __future__ import annotations

import argparse
from itertools import combinations
from pathlib import Path

import numpy as np
import polars as pl
from scipy import stats

import ddnn_traces
from ddnn_traces.query.dataset import Dataset

AUTOCORRELATIONS = (0.0, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95)
STEPS = (100, 200, 500, 1000)
LEVELS = (0.0, 0.1, 0.3, 1.0)
DATASET = Path(__file__).parents[1] / "data" / "dataset"
_BURN_IN = 200
_CELL = (
    "framework, backend, model, optimizer, batch_size, topology, workers, delay_ms, bandwidth_mbit, congestion_control"
)


def steps(autocorrelation: float, count: int, series: int, rng: np.random.Generator) -> np.ndarray:
    """Stationary first-order autoregressive series of mean 0, a row each."""
    values = rng.standard_normal((series, count + _BURN_IN))
    for place in range(1, values.shape[1]):
        values[:, place] += autocorrelation * values[:, place - 1]
    return values[:, _BURN_IN:]


def within_run(dataset: Dataset, series: np.ndarray) -> pl.DataFrame:
    """The row of query within_run for each series."""
    return dataset.sql(
        "SELECT w.* FROM (SELECT unnest(?::DOUBLE[][]) AS series, unnest(range(?)) AS number), "
        "within_run(series := series) AS w ORDER BY number",
        [series.tolist(), len(series)],
    )


def coverage(dataset: Dataset, autocorrelation: float, count: int, series: int) -> tuple[float, float | None, float]:
    """Shares of intervals that hold the mean, naive and within the run; and of series that have the latter."""
    values = steps(autocorrelation, count, series, np.random.default_rng([round(autocorrelation * 100), count]))
    half = stats.t.ppf(0.975, count - 1) * values.std(axis=1, ddof=1) / np.sqrt(count)
    naive = float(np.mean(abs(values.mean(axis=1)) <= half))
    found = within_run(dataset, values).drop_nulls("half_width")
    held = (found["mean"].abs() <= found["half_width"]).mean() if found.height else None
    return naive, held, found.height / series  # type: ignore[return-value]


def false_differences(autocorrelation: float, level: float, pairs: int) -> tuple[float, float]:
    """Shares of pairs of equal settings called different: by steps of one run a side, by three runs a side."""
    rng = np.random.default_rng([round(autocorrelation * 100), round(level * 100)])
    runs = [steps(autocorrelation, 200, pairs, rng) for _ in range(6)]
    runs = [run + level * rng.standard_normal((pairs, 1)) / np.sqrt(1 - autocorrelation**2) for run in runs]
    by_steps = stats.ttest_ind(runs[0], runs[1], axis=1, equal_var=False).pvalue < 0.05
    means = np.stack([run.mean(axis=1) for run in runs])
    a, b = means[:3].var(axis=0, ddof=1) / 3, means[3:].var(axis=0, ddof=1) / 3
    df = np.maximum(np.floor((a + b) ** 2 / (a**2 / 2 + b**2 / 2)), 1)
    difference = abs(means[:3].mean(axis=0) - means[3:].mean(axis=0))
    return float(by_steps.mean()), float(np.mean(difference > stats.t.ppf(0.975, df) * np.sqrt(a + b)))


def identical_cells(dataset: Dataset) -> str:
    """What intervals over steps, and query compare, say of pairs of equal runs without loss."""
    times = dataset.sql("SELECT run_id, list(step_ms ORDER BY step) AS ms FROM step_time_rows() GROUP BY run_id")
    of_run = {run_id: np.array(ms) for run_id, ms in times.iter_rows()}
    repeats = "SELECT list(run_id ORDER BY run_id) FROM runs WHERE loss_pct = 0 AND run_id GLOB '*-r[0-9]'"
    cells = [runs for (runs,) in dataset.sql(f"{repeats} GROUP BY {_CELL} ORDER BY 1").iter_rows() if len(runs) > 1]
    pairs = [pair for runs in cells for pair in combinations(runs, 2)]
    different = sum(stats.ttest_ind(of_run[a], of_run[b], equal_var=False).pvalue < 0.05 for a, b in pairs)
    verdicts = [
        dataset.query("compare", a_runs=a, b_runs=b).filter(figure="duration of a step")["verdict"][0] for a, b in pairs
    ]
    between = sum(np.var([of_run[run].mean() for run in runs], ddof=1) for runs in cells)
    predicted = sum(np.mean([of_run[run].var(ddof=1) / len(of_run[run]) for run in runs]) for runs in cells)
    ratio = np.median(
        [
            np.var([of_run[run].mean() for run in runs], ddof=1)
            / np.mean([of_run[run].var(ddof=1) / len(of_run[run]) for run in runs])
            for runs in cells
        ]
    )
    return (
        f"{len(pairs)} pairs of runs in {len(cells)} cells: different by steps {different}, by compare "
        f"{verdicts.count('differs')}; variance between runs over what steps predict: "
        f"{between / predicted:.1f} (sums), {ratio:.1f} (median cell)"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=4000)
    repetitions = parser.parse_args().repetitions
    with ddnn_traces.open(DATASET) as dataset:
        print("coverage       steps " + "".join(f"{count:>14}" for count in STEPS))
        for autocorrelation in AUTOCORRELATIONS:
            found = [coverage(dataset, autocorrelation, count, repetitions) for count in STEPS]
            shown = [f"{naive:.3f} {'    -' if held is None else f'{held:.3f}'}" for naive, held, _ in found]
            print(f"lag-1 {autocorrelation:4} naive within" + "".join(f"{one:>14}" for one in shown), flush=True)
        print("called different, of equal settings: level, by steps, by runs")
        for autocorrelation in (0.0, 0.5, 0.9):
            for level in LEVELS:
                by_steps, by_runs = false_differences(autocorrelation, level, repetitions)
                print(f"lag-1 {autocorrelation:4} {level:6} {by_steps:8.3f} {by_runs:8.3f}", flush=True)
        print(identical_cells(dataset))


if __name__ == "__main__":
    main()
