"""Regressions of a dataset: its rows, the presets and their options."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from datasets import write_dataset
from regression_runs import noted
from scipy import stats

import ddnn_traces
from ddnn_traces.errors import RegressionError
from ddnn_traces.query.dataset import Dataset


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """12 runs of 3 steps by 2 workers; one of them is synthetic, one has no log."""
    runs, steps, flows = [], [], []
    rng = np.random.default_rng(5)
    for i in range(12):
        run, size, delay, loss = f"r{i:02d}", (1_000_000, 4_000_000, 9_000_000)[i % 3], 10.0 * (i % 2), i // 6 / 2
        runs.append(
            {
                "run_id": run, "framework": "tf" if i % 6 in (0, 4, 5) else "torch", "backend": "x",
                "model": f"m{size}",
                "model_bytes": size, "model_size_mb": size / 1e6 + 0.5, "batch_size": 32 * (1 + i // 3 % 2),
                "topology": "ring", "workers": 2, "delay_ms": delay, "loss_pct": loss,
                "source": "synthetic" if i == 0 else "capture", "optimizer": "sgd", "bandwidth_mbit": 1000.0,
            }
        )  # fmt: skip
        duration = int(1e8 + 1e6 * delay + 3e7 * loss + 5 * size + rng.integers(0, 2_000_000))
        for step in range(0 if i == 11 else 3):
            for worker in ("worker-1", "worker-2"):
                steps.append(
                    {"run_id": run, "worker": worker, "step": step, "epoch": 0, "start_ns": step * duration,
                     "end_ns": (step + 1) * duration, "start_source": "phases"}
                )  # fmt: skip
            flows.append(
                {"run_id": run, "flow_id": 0, "worker": "worker-1", "position": "during", "step": step,
                 "wire_bytes": 2 * size + int(rng.integers(0, 50_000)), "payload_bytes": 2 * size}
            )  # fmt: skip
    tables = {"runs": runs, "steps": steps, "step_flows": flows}
    frames = {name: pl.DataFrame(rows) for name, rows in tables.items()}
    sums = frames["step_flows"].group_by("run_id", "flow_id", maintain_order=True)
    frames["flows"] = sums.agg(pl.col("wire_bytes", "payload_bytes").sum()).with_columns(
        cable_bytes_estimate="wire_bytes"
    )
    return write_dataset(tmp_path_factory.mktemp("regress") / "dataset", frames)


def test_a_row_is_a_run_or_a_step(dataset: Dataset) -> None:
    by_run = ddnn_traces.regress(dataset, errors="classic")
    assert (by_run.grain, by_run.rows, by_run.runs, by_run.errors) == ("run", 11, 11, "classic")
    by_step = ddnn_traces.regress(dataset, rows="steps")
    assert (by_step.grain, by_step.rows, by_step.runs, by_step.errors) == ("step", 33, 11, "cluster")
    assert [(e.run_id, e.reason) for e in by_step.excluded] == [("r11", "implied_bytes is missing")]
    # balanced steps: the same slope, and the errors of 11 runs, not of 33 rows
    slopes = [next(c for c in r.coefficients if c.name == "np.log(model_bytes)") for r in (by_run, by_step)]
    assert slopes[0].estimate == pytest.approx(slopes[1].estimate, rel=1e-3)
    assert by_step.tests[0].df_denominator < 10


def test_batch_as_a_number_and_nominal_size(dataset: Dataset) -> None:
    result = ddnn_traces.regress(dataset, batch="number", size="nominal")
    assert result.formula == (
        "np.log(implied_bytes) ~ np.log(nominal_bytes) + C(framework_backend) + batch_size + C(topology)"
    )
    assert result.size_column == "nominal_bytes"
    assert set(result.points["size_bytes"]) == {1.5e6, 4.5e6, 9.5e6}


def test_step_time_and_throughput_by_what_the_network_does(dataset: Dataset) -> None:
    time = ddnn_traces.regress(dataset, preset="step-time")
    by_name = {c.name: c.estimate for c in time.coefficients}
    assert by_name["delay_ms"] == pytest.approx(1.0, abs=0.15)  # ms a ms, as generated
    assert by_name["loss_pct"] == pytest.approx(30.0, abs=2)
    sentences = {v.term: v.sentence for v in time.verdicts}
    assert sentences["bandwidth_mbit"] == "cannot be estimated: every run has bandwidth_mbit = 1000.0"
    throughput = ddnn_traces.regress(dataset, preset="throughput", rows="steps")
    assert (throughput.left, throughput.rows) == ("samples_per_s", 22), "the first step of each run is left out"
    assert next(c for c in throughput.coefficients if c.name == "loss_pct").estimate < 0


def loss_runs() -> dict[str, list[dict[str, Any]]]:
    """Settings a and b lossless and lossy, c lossless twice, d lossy once, e of unknown loss.

    Of two steps, the second of which is the duration.
    """
    settings = {"a": (0.0, 0.0, 1.0, 2.0), "b": (0.0, 0.5, 1.5), "c": (0.0, 0.0), "d": (1.0,), "e": (None,)}
    noise = np.random.default_rng(2).normal(0, 0.1, 20).tolist()
    runs: list[dict[str, Any]] = []
    steps: list[dict[str, Any]] = []
    for model, losses in settings.items():
        for number, loss in enumerate(losses):
            run = f"{model}{number}"
            seconds = {"a": 1.0, "b": 8.0}.get(model, 3.0) * np.exp(0.3 * (loss or 0) + noise.pop())
            runs.append({"run_id": run, "framework": "tf", "model": model, "loss_pct": loss, "source": "capture"})
            first = {"run_id": run, "worker": "w", "step": 0, "start_ns": -(10**9), "end_ns": 0}
            steps += [first, {**first, "step": 1, "start_ns": 0, "end_ns": int(seconds * 1e9)}]
    return {"runs": runs, "steps": steps}


def test_duration_on_loss_is_fitted_within_settings(tmp_path: Path) -> None:
    """As deviations from the settings' means, with a degree of freedom less for each: Frisch, Waugh and Lovell.

    The two lossless runs of setting a are repeats: their logarithms are averaged.
    """
    frames = {name: pl.DataFrame(rows) for name, rows in loss_runs().items()}
    result = ddnn_traces.regress(
        write_dataset(tmp_path / "dataset", frames), preset="duration-on-loss", errors="classic"
    )
    assert result.formula == "np.log(comparable_s) ~ C(setting) + loss_pct"
    ends = (
        frames["steps"].join(frames["runs"], on="run_id").filter(pl.col("model").is_in(["a", "b"]), pl.col("step") == 1)
    )
    values = ends.select("model", "loss_pct", y=(pl.col("end_ns") / 1e9).log())
    values = values.group_by("model", "loss_pct", maintain_order=True).agg(pl.col("y").mean())
    x, y = values.select(pl.col("loss_pct", "y") - pl.col("loss_pct", "y").mean().over("model")).to_numpy().T
    slope, df = x @ y / (x @ x), 6 - 2 - 1
    error = np.sqrt(((y - slope * x) ** 2).sum() / df / (x @ x))
    low, high = (slope + sign * stats.t.ppf(0.975, df) * error for sign in (-1, 1))
    found = result.coefficients[-1]
    assert (found.name, result.rows, result.df_resid) == ("loss_pct", 7, df)
    assert [found.estimate, found.std_error, found.ci_low, found.ci_high, found.p_value] == pytest.approx(
        [slope, error, low, high, 2 * stats.t.sf(slope / error, df)], rel=1e-8
    )
    assert noted(result, f" {np.exp(slope):.4g} [{np.exp(low):.4g}, {np.exp(high):.4g}] times as long", "from 0% to 2%")
    alone = "no run of that setting with other loss"
    assert [(run.run_id, run.reason) for run in result.excluded] == [
        ("c0", alone), ("c1", alone), ("d0", alone), ("e0", "loss_pct is missing")
    ]  # fmt: skip


def test_duration_on_loss_of_other_rows_and_formulas(dataset: Dataset) -> None:
    own = ddnn_traces.regress(dataset, "np.log(duration_s) ~ loss_pct", preset="duration-on-loss")
    assert (own.rows, [run.reason for run in own.excluded]) == (11, ["duration_s is missing"])
    assert not noted(own, "times as long")
    with pytest.raises(RegressionError, match="a row a run only"):
        ddnn_traces.regress(dataset, preset="duration-on-loss", rows="steps")


def test_the_left_side_may_be_any_number_of_the_rows(dataset: Dataset) -> None:
    result = ddnn_traces.regress(dataset, "np.log(step_ms) ~ delay_ms + model_bytes", preset="step-time")
    assert (result.left, result.correlation) == ("np.log(step_ms)", None)
    assert next(c for c in result.coefficients if c.name == "model_bytes").is_significant


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"preset": "papers"}, "No preset named papers; there are: paper, step-time, throughput, duration-on-loss"),
        ({"rows": "epochs"}, "No rows named epochs; there are: runs, steps"),
        ({"batch": "none"}, "No batch named none"),
        ({"size": "none"}, "No size named none"),
        ({"response": "ip"}, "No response named ip; there are: cable, wire, payload"),
        ({"errors": "hc9"}, "No standard errors named hc9; there are: classic, hc3, cluster"),
        (
            {"formula": "step_bytes ~ model_bytes", "batch": "number"},
            "write them into yours: np.log\\(implied_bytes\\) ~ np.log\\(model_bytes",
        ),
    ],
)
def test_unknown_names_are_refused_with_the_known_ones(options: dict[str, Any], message: str, dataset: Dataset) -> None:
    with pytest.raises(RegressionError, match=message):
        ddnn_traces.regress(dataset, **options)


def test_runs_whose_captures_lost_packets_are_named(tmp_path: Path) -> None:
    """They stay in the fit; what they lost is in a note."""
    runs, steps, flows, sent = [], [], [], []
    for i in range(8):
        run, size = f"r{i}", 1_000_000 * (1 + i % 4)
        runs.append({"run_id": run, "framework": "torch", "model": f"m{i}", "model_bytes": size, "workers": 2})
        steps.append({"run_id": run, "worker": "w", "step": 0, "start_ns": 0, "end_ns": 10**9})
        lost = {3: 20_000, 5: 100}.get(i, 0)
        flows.append(
            {"run_id": run, "flow_id": 0, "protocol": 6, "payload_bytes": size - lost, "retransmitted_bytes": 0,
             "missed_bytes": lost, "unacknowledged_missed_bytes": 0, "wire_bytes": size, "cable_bytes_estimate": size}
        )  # fmt: skip
        sent.append(
            {"run_id": run, "flow_id": 0, "worker": "w", "position": "during", "step": 0, "packets": 9,
             "wire_bytes": 2 * size + i, "payload_bytes": size - lost}
        )  # fmt: skip
    tables = {"runs": runs, "steps": steps, "flows": flows, "step_flows": sent}
    with write_dataset(tmp_path / "dataset", {name: pl.DataFrame(rows) for name, rows in tables.items()}) as dataset:
        found = ddnn_traces.regress(dataset, formula="step_bytes ~ model_bytes", response="wire")
    assert found.runs == 8
    (note,) = noted(found, "0.1%")
    assert "1 of the runs" in note and "r3 (0.5% of the bytes" in note
