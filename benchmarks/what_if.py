"""How far what-if predictions are from measured runs, as docs/what_if_score.md: data/dataset together with data/sample.

    python benchmarks/what_if.py            # writes the page

Each job is left out of the constants and of the choice of the exponent that predict it (ddnn_traces/traffic/simulator/
what_if_score.py). The last part predicts jobs from runs of other models and batches. No random numbers.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import polars as pl

import ddnn_traces
from ddnn_traces.errors import UsageError
from ddnn_traces.traffic.simulator import what_if, what_if_score
from ddnn_traces.traffic.simulator.what_if import Change, Facts

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "what_if_score.md"


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        sample = Path(folder) / "sample"
        ddnn_traces.ingest([ROOT / "data" / "sample"], sample)
        facts = [*read(ROOT / "data" / "dataset"), *read(sample)]
    PAGE.write_text(page(facts), encoding="utf-8")


def read(path: Path) -> list[Facts]:
    with ddnn_traces.open(path) as dataset:
        return what_if.read(dataset)[0]


def page(facts: Sequence[Facts]) -> str:
    rows = what_if_score.score(facts)
    below = [f.run_id for f in facts if f.is_below_floor]
    parts = [
        "# Errors of what-if predictions",
        "`python benchmarks/what_if.py` writes this page from data/dataset and data/sample. "
        "[simulator.md](simulator.md#a-measured-run-on-another-network) has the law and the rules of the score.",
        f"{len(facts)} runs. Below their floor by more than 2%: {len(below)} ({', '.join(below) or 'none'}).",
        "## Classes",
        "\n".join(f"- {line}" for line in what_if_score.summary(rows)),
        "## Exponents",
        "Of conditions without loss, where all jobs have the same exponent; each job is left out of its constants.",
        table(["p", "median error", "mean error"], exponents(facts)),
        f"Chosen without the job itself: {chosen(rows)}.",
        "## Another model or batch",
        "Each run without loss is predicted from each run of another model or batch of its program, under the same "
        "condition and with the same number of workers. Its own job is left out; where no other run tells its "
        "computation, there is no prediction.",
        other_jobs(facts),
        "## Conditions",
        "Times are ms, the interval is of 90%. nearest: the job's nearest run unchanged; line: in delay and 1/rate; "
        "repeats: difference of two runs.",
        table(
            ["job", "condition", "runs", "measured", "predicted", "interval", "error", "nearest", "line", "repeats"],
            conditions(rows),
        ),
    ]
    return "\n\n".join(parts) + "\n"


def exponents(facts: Sequence[Facts]) -> Iterator[list[str]]:
    left = what_if_score.LeftOut(facts)
    for exponent in what_if_score.EXPONENTS:
        errors = left.errors(list(left.cells), frozenset(), exponent)
        yield [f"{exponent:g}", f"{np.expm1(np.median(errors)):.1%}", f"{np.expm1(np.mean(errors)):.1%}"]


def chosen(rows: pl.DataFrame) -> str:
    counts = rows.unique("job").group_by("exponent").len().sort("exponent")
    return ", ".join(f"{exponent:g} for {number} jobs" for exponent, number in counts.iter_rows())


def other_jobs(facts: Sequence[Facts]) -> str:
    """Errors of predictions of a job by runs of other jobs, in one line a kind of change."""
    clean = [f for f in facts if f.loss_pct == 0 and f.compute_ms is not None]
    errors: dict[str, list[float]] = {"another model": [], "another batch": []}
    unknown = 0
    for wanted in clean:
        rest = [f for f in clean if f.job != wanted.job]
        for run in rest:
            same = (run.program, run.workers, run.condition) == (wanted.program, wanted.workers, wanted.condition)
            is_batch = run.batch_size != wanted.batch_size
            if not same or (run.model != wanted.model) == is_batch:
                continue
            change = Change(
                model=None if is_batch else wanted.model, batch_size=wanted.batch_size if is_batch else None
            )
            try:
                predicted = what_if.like(rest, run.run_id, change)["step_ms"][-1]
            except UsageError:
                unknown += 1
                continue
            errors["another batch" if is_batch else "another model"].append(abs(predicted / wanted.step_ms - 1))
    lines = [
        f"- {kind}: median error {np.median(found):.1%}, mean {np.mean(found):.1%} of {len(found)} predictions"
        for kind, found in errors.items()
        if found
    ]
    return "\n".join([*lines, f"- {unknown} without a prediction"])


def conditions(rows: pl.DataFrame) -> Iterator[list[str]]:
    for row in rows.iter_rows(named=True):
        interval = "" if row["low_ms"] is None else f"{row['low_ms']:.1f} to {row['high_ms']:.1f}"
        shares = [row[name] for name in ("error", "nearest_error", "additive_error")]
        repeats = row["repeat_error"]
        yield [
            row["job"], row["condition"], str(row["runs"]), f"{row['measured_ms']:.1f}", f"{row['predicted_ms']:.1f}",
            interval, *(f"{share:+.0%}" for share in shares), "" if repeats is None else f"{repeats:.0%}",
        ]  # fmt: skip


def table(names: Sequence[str], rows: Iterator[list[str]]) -> str:
    lines = [names, ["---"] * len(names), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


if __name__ == "__main__":
    main()
