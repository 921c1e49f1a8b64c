"""How often a regression finds what is not there, and what is, where runs are alike (docs/regression.md).

python benchmarks/inference.py --sets 200

Runs of two or three sizes, three frameworks and two batch sizes that follow the law of a ring of four. Kinds:
`repeats`: 12 cells of 5 runs, the cells scatter by 1%, the runs of a cell by 0.1%. `mild repeats`: both by 0.5%.
`unbalanced scatter`: one framework has 4 of 22 runs and 5 times the scatter. `length by framework`: a model size of
start-up spread over 9 to 11 steps of one framework and 18 to 22 of the others. `steps`: a row a step, 8 of each of 24
runs, which scatter by 1%.

A finding is false where the verdict on framework or batch size is significant and neither has an effect. Power: of
framework, where one framework sends 5% more. Coverage: of the size's exponent 1, and of the mean of a cell, by the
interval for all such runs (prediction from the other cells). Each share has its exact binomial 95% interval: what
another draw of as many sets may give. The two terms of a set are taken as independent there.

A second table is of the means of cells by their framework, where the scatter is unbalanced: coverage and the median
width of the interval, in % of the mean.

A third table is of effects that hide. `collinear sizes`: a second size within 0.05% of the first. `opposite effects`:
a framework sends half at one batch size and 40% more at the other. Each has the shares of sets by verdict.
"""

from __future__ import annotations

import argparse
import itertools
from collections import Counter
from collections.abc import Collection

import numpy as np
import polars as pl
from scipy import stats

from ddnn_traces.errors import PredictionError
from ddnn_traces.regression import fit
from ddnn_traces.regression.predict import predict
from ddnn_traces.regression.results import Job

FORMULA = "np.log(step_bytes) ~ np.log(model_bytes) + C(framework_backend) + C(batch_size)"
FRAMEWORKS, BATCHES = ("gloo", "mpi", "grpc"), (32, 64)
TERMS = ("C(framework_backend)", "C(batch_size)")
KINDS = ("repeats", "mild repeats", "unbalanced scatter", "length by framework", "steps")
STEPS = 8


def draw(kind: str, effect: float, rng: np.random.Generator) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The rows of a kind, and the true logarithm of each cell's mean over that of the size.

    effect: what the second framework sends more, as a logarithm.
    """
    sizes = (4e6, 40e6) if "repeats" in kind else (4e6, 12e6, 40e6, 100e6)
    cells = list(itertools.product(sizes, FRAMEWORKS, BATCHES))
    if kind == "unbalanced scatter":
        of_wild = [cell for cell in cells if cell[1] == "mpi"][::2]
        cells = [cell for cell in cells if cell[1] != "mpi"] + of_wild + [(12e6, "gloo", 32), (40e6, "grpc", 64)]
    of_cells = {"repeats": 0.01, "mild repeats": 0.005, "steps": 0.01}.get(kind, 0.002)
    of_runs = {"repeats": 0.001, "mild repeats": 0.005, "steps": 0.003}.get(kind, 0.0)
    rows = []
    for number, (size, framework, batch) in enumerate(cells):
        scatter = of_cells * (5 if kind == "unbalanced scatter" and framework == "mpi" else 1)
        mean = effect * (framework == "mpi") + scatter * rng.standard_normal()
        steps = int(rng.integers(9, 12) if framework == "gloo" else rng.integers(18, 23))
        if kind == "length by framework":
            mean += np.log1p(1 / steps)
        for repeat in range({"repeats": 5, "mild repeats": 5, "steps": STEPS}.get(kind, 1)):
            run = f"r{number:02}" if kind == "steps" else f"r{number:02}-{repeat}"
            rows.append(
                {
                    "run_id": run, "step": repeat, "model_bytes": size, "framework_backend": framework,
                    "batch_size": batch, "topology": "ring", "workers": 4, "law_factor": 6.0, "steps": steps,
                    "variant": f"{number}",
                    "implied_bytes": size * np.exp(mean + of_runs * rng.standard_normal()), "mean": mean,
                }
            )  # fmt: skip
    made = pl.DataFrame(rows).with_columns(step_bytes=pl.col("implied_bytes") * 6, step_ms=pl.lit(None, pl.Float64))
    if kind != "length by framework":
        made = made.drop("steps")
    if kind != "steps":
        made = made.drop("step")
    return made.drop("mean"), made.select("run_id", "variant", "mean")


def shown(found: Collection[bool]) -> str:
    """The share of true ones, with its binomial 95% interval."""
    if not found:
        return "-"
    low, high = stats.binomtest(sum(found), len(found)).proportion_ci()
    return f"{sum(found) / len(found):.3f} [{low:.3f}, {high:.3f}]"


def covered(rows: pl.DataFrame, truth: pl.DataFrame, number: int) -> tuple[bool, float] | None:
    """Whether the interval for all such runs, from the other cells, holds the mean of a cell, and its relative width.

    None where the cell cannot be predicted.
    """
    cell = truth["variant"][number]
    mine, others = rows.filter(pl.col("variant") == cell), rows.filter(pl.col("variant") != cell)
    names = ("model_bytes", "framework_backend", "batch_size", "topology", "workers", "law_factor")
    job = Job({name: mine[name][0] for name in names}, step_ms=1.0)
    mean = 6 * mine["model_bytes"][0] * np.exp(truth["mean"][number])
    try:
        step = predict(others, others, job, FORMULA, extrapolate=True).of("step")
    except PredictionError:
        return None
    if step is None or step.mean_low is None or step.mean_high is None:
        return None
    return bool(step.mean_low <= mean <= step.mean_high), float((step.mean_high - step.mean_low) / mean)


def judged(kind: str, sets: int) -> tuple[list[bool], ...]:
    """Of the data sets of a kind: false findings, real ones, and whether exponents and means of cells are covered."""
    false, found, slopes, means = [], [], [], []
    for number in range(sets):
        rng = np.random.default_rng([KINDS.index(kind), number])
        rows, truth = draw(kind, 0.0, rng)
        result = fit(rows, FORMULA)
        significant = {verdict.term: verdict.significant for verdict in result.verdicts}
        false += [significant[term] is True for term in TERMS]
        slope = next(c for c in result.coefficients if c.name == "np.log(model_bytes)")
        if slope.ci_low is not None and slope.ci_high is not None:
            slopes.append(slope.ci_low <= 1 <= slope.ci_high)
        if kind != "steps":
            means.append(covered(rows, truth, int(rng.integers(truth.height))))
        with_effect, _ = draw(kind, np.log(1.05), np.random.default_rng([KINDS.index(kind), number, 1]))
        verdicts = {verdict.term: verdict.significant for verdict in fit(with_effect, FORMULA).verdicts}
        found.append(verdicts[TERMS[0]] is True)
    return false, found, slopes, [mean[0] for mean in means if mean is not None]


def by_framework(sets: int) -> dict[str, tuple[list[bool], float]]:
    """Of a cell of each framework in sets of unbalanced scatter: whether its mean is covered, and the median width."""
    found: dict[str, list[tuple[bool, float]]] = {name: [] for name in FRAMEWORKS}
    for number in range(sets):
        rng = np.random.default_rng([KINDS.index("unbalanced scatter"), number])
        rows, truth = draw("unbalanced scatter", 0.0, rng)
        for name, cells in found.items():
            mine = np.flatnonzero((rows["framework_backend"] == name).to_numpy())
            cell = covered(rows, truth, int(rng.choice(mine)))
            cells += [cell] if cell is not None else []
    return {
        name: ([held for held, _ in cells], float(np.median([w for _, w in cells]))) for name, cells in found.items()
    }


def hiding(kind: str, number: int) -> tuple[pl.DataFrame, str, str]:
    """The rows of an effect that hides, the formula, and the term that has the effect."""
    rng = np.random.default_rng([len(KINDS), number])
    rows, _ = draw("no effect", 0.0, rng)
    if kind == "collinear sizes":
        near = pl.Series(1 + 0.0005 * rng.standard_normal(rows.height))
        formula = FORMULA.replace(" ~ ", " ~ np.log(nominal_bytes) + ")
        return rows.with_columns(nominal_bytes=pl.col("model_bytes") * near), formula, "np.log(model_bytes)"
    at = pl.when(pl.col("framework_backend") != "mpi").then(1.0).when(pl.col("batch_size") == BATCHES[0]).then(0.5)
    return rows.with_columns(step_bytes=pl.col("step_bytes") * at.otherwise(1.4)), FORMULA, TERMS[0]


def verdict_counts(kind: str, sets: int) -> Counter[bool | None]:
    """How often the term with the effect is called significant, insignificant and neither."""
    found: Counter[bool | None] = Counter()
    for number in range(sets):
        rows, formula, term = hiding(kind, number)
        found[next(v.significant for v in fit(rows, formula).verdicts if v.term == term)] += 1
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", type=int, default=200, help="data sets a kind")
    arguments = parser.parse_args()
    print("| kind | false findings | power | coverage of the exponent | of cell means |\n|---|---|---|---|---|")
    for kind in KINDS:
        print(f"| {kind} | {' | '.join(map(shown, judged(kind, arguments.sets)))} |", flush=True)
    print("\n| framework (unbalanced scatter) | coverage of cell means | median width (%) |\n|---|---|---|")
    for name, (held, width) in by_framework(arguments.sets).items():
        print(f"| {name} | {shown(held)} | {100 * width:.2f} |", flush=True)
    print("\n| effect | called significant | not separable, not established | insignificant |\n|---|---|---|---|")
    for kind in ("collinear sizes", "opposite effects"):
        counts = verdict_counts(kind, arguments.sets)
        shares = [f"{counts[answer] / arguments.sets:.3f}" for answer in (True, None, False)]
        print(f"| {kind} | {' | '.join(shares)} |", flush=True)


if __name__ == "__main__":
    main()
