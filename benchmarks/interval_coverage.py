"""How often 95% intervals hold the truth, by kind of scatter (docs/regression.md): 0.95 is right.

python benchmarks/interval_coverage.py --repetitions 2000
python benchmarks/interval_coverage.py --dataset data/dataset    # each cell of a data set, predicted from the others

Runs of six sizes, three frameworks and two batch sizes, of which each draw leaves some out; one more run is predicted
from them. The prediction interval is to hold that run, the interval of the size's coefficient the true one. `absolute`:
the same scatter for all runs. `relative`: scatter in proportion to the size. `largest`: the same, and the predicted run
is of the largest size. `offload`: half of the runs lack the headers of super-frames, and the formula has no offload
(response wire). `shares`: frameworks multiply the volume, with relative scatter. Formulas: default, and equation (1) of
zerwas.
"""

from __future__ import annotations

import argparse
import itertools
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

import ddnn_traces
from ddnn_traces.errors import PredictionError
from ddnn_traces.regression import PAPER_FORMULA, fit
from ddnn_traces.regression.predict import predict
from ddnn_traces.regression.results import Job

SIZES = (1e6, 4e6, 14e6, 80e6, 97e6, 171e6)
FRAMEWORKS = ("gloo", "mpi", "grpc")
SCATTERS = ("absolute", "relative", "largest", "offload", "shares")
ATTRIBUTES = (
    "model_bytes", "framework_backend", "batch_size", "topology", "workers", "law_factor", "optimizer", "delay_ms",
    "loss_pct", "bandwidth_mbit", "offload",
)  # fmt: skip
SLOPE, WORKERS = 6.0, 4
_MIN_RUNS = 14


def volumes(scatter: str, frame: pl.DataFrame, rng: np.random.Generator) -> np.ndarray:
    """Bytes of a step of each run, with its scatter."""
    size = frame["model_bytes"].to_numpy()
    framework = np.array([FRAMEWORKS.index(name) for name in frame["framework_backend"]])
    noise = rng.standard_normal(frame.height)
    if scatter == "absolute":
        return np.asarray(SLOPE * size + 2e6 + 3e6 * framework + 2e6 * noise)
    if scatter in ("relative", "largest"):
        return np.asarray(SLOPE * size * (1 + 0.04 * noise) + 2e6 + 1e6 * framework)
    if scatter == "offload":
        return np.asarray(SLOPE * size * np.where(rng.random(frame.height) < 0.5, 1.046, 1.003) + 2e5 * noise)
    return np.asarray(SLOPE * size * (1 + 0.3 * framework) * np.exp(0.04 * noise))


def draw(scatter: str, rng: np.random.Generator) -> tuple[pl.DataFrame, dict[str, Any], float]:
    """The runs to fit, the job to predict, and the volume of its run."""
    cells = list(itertools.product(SIZES, FRAMEWORKS, (32, 64)))
    while True:
        kept = [cell for cell in cells if rng.random() < 0.6]
        if len(kept) >= _MIN_RUNS and all(len(set(values)) > 1 for values in zip(*kept, strict=True)):
            break
    new = list(kept[rng.integers(len(kept))])  # measured together, within the range
    if scatter == "largest":
        new[0] = max(cell[0] for cell in kept)
    frame = pl.DataFrame(
        [*kept, tuple(new)], schema=["model_bytes", "framework_backend", "batch_size"], orient="row"
    ).with_columns(run_id=pl.int_range(pl.len()).cast(pl.String), topology=pl.lit("ring"), workers=pl.lit(WORKERS))
    frame = frame.with_columns(step_bytes=pl.Series(volumes(scatter, frame, rng)))
    frame = frame.with_columns(worker_bytes=pl.col("step_bytes") / WORKERS, step_ms=pl.lit(None, pl.Float64))
    law = 2 * (WORKERS - 1)
    frame = frame.with_columns(law_factor=pl.lit(float(law)), implied_bytes=pl.col("step_bytes") / law)
    job = dict(zip(("model_bytes", "framework_backend", "batch_size"), new, strict=True))
    job |= {"topology": "ring", "workers": WORKERS, "law_factor": float(law)}
    return frame[:-1], job, frame["step_bytes"][-1]


def coverage(scatter: str, formula: str | None, repetitions: int) -> tuple[float, float | None, int, dict[str, int]]:
    """Shares of prediction intervals and of the slope's intervals that hold the truth, predictions, and formulas."""
    held: list[bool] = []
    slopes: list[bool] = []
    chosen: dict[str, int] = defaultdict(int)
    for repetition in range(repetitions):
        rows, job, truth = draw(scatter, np.random.default_rng([SCATTERS.index(scatter), repetition]))
        regression = fit(rows, formula)
        chosen[f"{regression.formula.split(' ~ ')[0]}, {regression.errors}"] += 1
        effects = {"model_bytes": SLOPE, "np.log(model_bytes)": 1.0}
        slope = next(c for c in regression.coefficients if c.name in effects)
        scale = WORKERS if regression.left == "worker_bytes" else 1
        is_known = scatter in ("absolute", "relative") and slope.name == "model_bytes"
        if is_known and slope.ci_low is not None and slope.ci_high is not None:
            slopes.append(slope.ci_low * scale <= SLOPE <= slope.ci_high * scale)
        try:
            step = predict(rows, rows, Job(job, step_ms=1.0), formula).of("step")
        except PredictionError:
            continue
        if step is not None and step.low is not None and step.high is not None:
            held.append(step.low <= truth <= step.high)
    return float(np.mean(held)), float(np.mean(slopes)) if slopes else None, len(held), dict(chosen)


def of_cells(path: Path) -> list[tuple[str, str]]:
    """Of each cell of the default fit, left out with all its runs: the topology, and whether its mean is held."""
    with ddnn_traces.open(path) as dataset:
        rows, times = dataset.query("run_step_volume"), dataset.query("run_step_time")
        cells = ddnn_traces.regress(dataset).points.group_by("cell", maintain_order=True).agg("run_id")
    rows = rows.filter(pl.col("run_id").is_in(cells["run_id"].explode().to_list()))
    found = []
    for runs in cells["run_id"]:
        is_mine = pl.col("run_id").is_in(runs.to_list())
        mine, others = rows.filter(is_mine), rows.filter(~is_mine)
        job = Job({name: mine[name][0] for name in ATTRIBUTES if mine[name][0] is not None})
        try:
            step = predict(others, times.filter(~is_mine), job, extrapolate=True).of("step")
        except PredictionError:
            step = None
        if step is None or step.mean_low is None or step.mean_high is None:
            answer = "refused"
        else:
            answer = "held" if step.mean_low <= np.mean(mine["step_bytes"].to_numpy()) <= step.mean_high else "not held"
        found.append((mine["topology"][0], answer))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=500)
    parser.add_argument("--dataset", type=Path, help="instead: the cells of this data set")
    arguments = parser.parse_args()
    if arguments.dataset:
        counts = Counter(of_cells(arguments.dataset))
        for topology in dict.fromkeys(topology for topology, _ in counts):
            print(topology, {answer: counts[topology, answer] for answer in ("held", "not held", "refused")})
        return
    print(f"{'scatter':10} {'formula':12} {'prediction':>10} {'slope':>6} {'predicted':>9}  fits")
    for scatter, (name, formula) in itertools.product(SCATTERS, (("default", None), ("equation (1)", PAPER_FORMULA))):
        held, slope, count, chosen = coverage(scatter, formula, arguments.repetitions)
        shown = "-" if slope is None else f"{slope:.3f}"
        fits = ", ".join(f"{form}: {times}" for form, times in sorted(chosen.items()))
        print(f"{scatter:10} {name:12} {held:10.3f} {shown:>6} {count:9}  {fits}", flush=True)
    print(f"standard error of a share of 0.95: {np.sqrt(0.95 * 0.05 / arguments.repetitions):.4f}")


if __name__ == "__main__":
    main()
