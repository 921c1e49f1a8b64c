"""Whether one worker is the last to start more often than chance: the exact multinomial tail, counted one by one."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from math import comb, factorial, prod
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from datasets import write_dataset

from ddnn_traces.query.dataset import Dataset


def run_with(run_id: str, times_last: Sequence[int]) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Steps and events of a run whose workers are last to start so many times."""
    order = [last for last, times in enumerate(times_last) for _ in range(times)]
    places = [(step, worker, last) for step, last in enumerate(order) for worker in range(len(times_last))]
    steps = pl.DataFrame(
        {"run_id": run_id, "worker": f"w{worker}", "step": step, "start_ns": step * 100, "end_ns": step * 100 + 100}
        for step, worker, _ in places
    )
    events = pl.DataFrame(
        {
            "run_id": run_id, "worker": f"w{worker}", "step": step, "kind": "communicate",
            "start_ns": step * 100 + (50 if worker == last else worker), "end_ns": step * 100 + 90,
        }
        for step, worker, last in places
    )  # fmt: skip
    return steps, events


def tail(steps: int, workers: int, most: int) -> float:
    """Probability that of workers with equal chances one is last at least `most` times: each result counted."""
    held = sum(
        factorial(steps) // prod(map(factorial, counts))
        for counts in itertools.product(range(steps + 1), repeat=workers)
        if sum(counts) == steps and max(counts) >= most
    )
    return held / workers**steps


@pytest.fixture(scope="module")
def chances(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, object]]:
    runs = {
        "10 of 30": (10, 8, 7, 5), "16 of 30": (16, 6, 4, 4), "5 of 6": (5, 1, 0), "2 of 2": (2, 0, 0),
        "230 of 400": (230, 170),
    }  # fmt: skip
    tables = [run_with(run_id, times) for run_id, times in runs.items()]
    frames = {"runs": pl.DataFrame({"run_id": list(runs)})} | {
        name: pl.concat(parts) for name, parts in zip(("steps", "events"), zip(*tables, strict=True), strict=True)
    }
    with write_dataset(tmp_path_factory.mktemp("stragglers") / "dataset", frames) as dataset:
        rows = dataset.query("straggler_chance", skip_steps=0)
    return {row["run_id"]: row for row in rows.iter_rows(named=True)}


def test_the_tail_is_exact(chances: dict[str, dict[str, object]]) -> None:
    for run_id, arguments in {"10 of 30": (30, 4, 10), "16 of 30": (30, 4, 16), "5 of 6": (6, 3, 5)}.items():
        assert chances[run_id]["p_value"] == pytest.approx(tail(*arguments), rel=1e-9)


def test_beyond_300_steps_it_is_a_bound(chances: dict[str, dict[str, object]]) -> None:
    assert chances["230 of 400"]["p_value"] == pytest.approx(
        2 * sum(comb(400, own) for own in range(230, 401)) / 2**400, rel=1e-9
    )


def test_what_chance_does_is_not_called_a_straggler(chances: dict[str, dict[str, object]]) -> None:
    assert chances["10 of 30"]["verdict"] == "no worker more often than chance"
    assert chances["16 of 30"]["verdict"] == "more often than chance"
    assert chances["5 of 6"]["verdict"] == "no worker more often than chance"  # p = 39 / 729
    assert chances["2 of 2"]["verdict"] == "too few steps"


@pytest.mark.long
def test_at_most_one_run_in_twenty_by_chance(tmp_path: Path) -> None:
    drawn = np.random.default_rng(3).multinomial(12, [1 / 3] * 3, 200).tolist()
    tables = [run_with(f"r{number}", times) for number, times in enumerate(drawn)]
    frames = {
        "runs": pl.DataFrame({"run_id": [f"r{number}" for number in range(len(drawn))]}),
        "steps": pl.concat(steps for steps, _ in tables),
        "events": pl.concat(events for _, events in tables),
    }
    with write_dataset(tmp_path / "dataset", frames) as dataset:
        verdicts = dataset.query("straggler_chance", skip_steps=0)["verdict"]
    assert 0 < (verdicts == "more often than chance").sum() <= 0.08 * len(drawn)


def test_one_worker_with_servers_has_no_straggler(sample_dataset: Dataset) -> None:
    """In none of the runs is a parameter server named, which starts when it has the gradients."""
    named = sample_dataset.query("straggler_summary").drop_nulls("worker")
    servers = sample_dataset.sql("SELECT run_id, label AS worker FROM hosts WHERE role = 'parameter_server'")
    assert servers.height and named.join(servers, on=["run_id", "worker"]).is_empty()
