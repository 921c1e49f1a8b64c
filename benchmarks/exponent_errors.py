"""Which errors hold the size's exponent where one framework scatters five times as much (docs/regression.md).

python benchmarks/exponent_errors.py --sets 2000

Data sets as of benchmarks/inference.py, without an effect, fitted once and without the refits of regress. Least squares
with CR2, the default, HC3 and classic errors; and weighted by level of the factor by which the scatter differs most,
with CR2 errors, where Brown and Forsythe's p is below 0.05: by each level's own variance, and by one moderated with 4
degrees of freedom of the variance of all. Then CR2 alone, by how many times as much the framework scatters.
"""

from __future__ import annotations

import argparse
from collections import defaultdict

import inference as data_sets  # type: ignore[import-not-found]
import numpy as np

from ddnn_traces.regression import design, inference
from ddnn_traces.regression.estimate import Estimate
from ddnn_traces.regression.formula import parse

KINDS = ("unbalanced scatter", "mild repeats")
OF_ALL, LIMIT = {0: "weighted by level", 4: "weighted by level, moderated"}, 0.05
RATIOS = (1, 2, 5, 10, 30, 1000)
SIZE = "np.log(model_bytes)"


def answers(estimate: Estimate, errors: str) -> tuple[bool, float, bool, bool]:
    """Whether the exponent is covered, its interval's width, and whether framework and batch size are significant."""
    slope = next(c for c in inference.coefficients_of(estimate, errors) if c.name == SIZE)
    tests = inference.term_tests(estimate, design.shares(estimate.columns), errors)
    significant = {test.term: test.p_value is not None and test.p_value < 0.05 for test in tests}
    low, high = slope.ci_low or np.nan, slope.ci_high or np.nan
    return (bool(low <= 1 <= high), high - low, *(significant[term] for term in data_sets.TERMS))


def weighted(estimate: Estimate, levels: np.ndarray, of_all: int) -> Estimate:
    """Weighted by the variances of the levels, three times anew from the residuals."""
    found = estimate
    for _ in range(3):
        residuals = estimate.response - estimate.matrix @ found.coefficients
        deviations = np.ones(len(levels))
        for mine in (levels == level for level in np.unique(levels)):
            df = (1 - found.leverage[mine]).sum()
            squares = (residuals[mine] ** 2).sum() + of_all * estimate.variance
            deviations[mine] = np.sqrt(squares / (df + of_all))
        found = estimate.weighted(deviations)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", type=int, default=500, help="data sets a kind")
    sets = parser.parse_args().sets
    columns = ("kind", "errors", "coverage of the exponent", "median width", "false: framework", "batch size")
    print(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}")
    for kind in KINDS:
        found = defaultdict(list)
        for number in range(sets):
            rows, _ = data_sets.draw(kind, 0.0, np.random.default_rng([data_sets.KINDS.index(kind), number]))
            formula = parse(data_sets.FORMULA, rows.columns)
            rows = design.with_cells(design.clean_numbers(rows), formula)
            made, cells = design.averaged(design.make_design(rows, formula), rows)
            estimate = Estimate(made.response, made.columns, tuple(cells[design.CELL].to_list()))
            for errors in ("cluster", "hc3", "classic"):
                found[errors].append(answers(estimate, errors))
            by = min(inference.group_scatter(estimate, made, cells), key=lambda one: one.p_value)
            levels = cells[made.term(by.term).variables[0]].to_numpy()
            for of_all, name in OF_ALL.items():
                differs = by.p_value < LIMIT
                found[name].append(
                    answers(weighted(estimate, levels, of_all), "cluster") if differs else found["cluster"][-1]
                )
        for errors, sample in found.items():
            held, width, *false = np.array(sample, float).T
            shares = [f"{one.mean():.3f}" for one in false]
            print(
                f"| {kind} | {errors} | {held.mean():.3f} | {np.median(width):.5f} | {' | '.join(shares)} |", flush=True
            )
    print("\n| ratio of scatter | coverage of the exponent |\n|---|---|")
    rows, _ = data_sets.draw(KINDS[0], 0.0, np.random.default_rng(0))
    made = design.make_design(rows, parse(data_sets.FORMULA, rows.columns))
    is_wild = (rows["framework_backend"] == "mpi").to_numpy()
    rng = np.random.default_rng(1)
    for ratio in RATIOS:
        held = []
        for _ in range(sets):
            response = np.where(is_wild, ratio, 1) * rng.standard_normal(rows.height)
            estimate = Estimate(response, made.columns, tuple(rows["run_id"].to_list()))
            slope = next(c for c in inference.coefficients_of(estimate, "cluster") if c.name == SIZE)
            held.append((slope.ci_low or 0.0) <= 0 <= (slope.ci_high or 0.0))
        print(f"| {ratio} | {np.mean(held):.3f} |", flush=True)


if __name__ == "__main__":
    main()
