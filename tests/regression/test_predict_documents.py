"""Predictions as they are written: their formats, and the command on a dataset."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import polars as pl
import pytest
from predictions import ROWS, number, predicted
from tools import RunCommand

from ddnn_traces.regression import documents
from ddnn_traces.traffic import synthetic
from ddnn_traces.traffic.synthetic import write_runs

pytestmark = pytest.mark.usefixtures("few_draws")


def test_json_and_csv_hold_the_numbers() -> None:
    prediction = predicted(ROWS.with_columns(source=pl.lit("synthetic")), steps=10)
    document = json.loads(documents.prediction(prediction, "json"))
    rows = list(csv.DictReader(io.StringIO(documents.prediction(prediction, "csv"))))
    assert [row["quantity"] for row in rows] == [p["quantity"] for p in document["predicted"]]
    assert [row["quantity"] for row in rows] == ["step", "run", "step_time", "hour"]
    words = ("quantity", "unit", "statistic")
    for row, given in zip(rows, document["predicted"], strict=True):
        assert {name: row[name] for name in words} == {name: given[name] for name in words}
        assert {name: float(row[name]) for name in given if name not in words} == {
            name: value for name, value in given.items() if name not in words
        }
    assert document["extrapolation"] is False and rows[0]["extrapolation"] == "false"


def test_every_format_counts_the_synthetic_runs() -> None:
    mixed = ROWS.with_columns(source=pl.Series(["synthetic"] * 3 + ["capture"] * 13))
    prediction = predicted(mixed)
    count = "3 of 16 runs are synthetic"
    for output_format in documents.PREDICTION_FORMATS:
        assert count in documents.prediction(prediction, output_format)
        assert "are synthetic" not in documents.prediction(predicted(), output_format)


def test_a_mean_a_median_and_a_ratio_are_distinguished() -> None:
    prediction = predicted(steps=10)
    assert [(p.quantity, p.statistic) for p in prediction.predicted] == [
        ("step", "mean"), ("run", "mean"), ("step_time", "median"), ("hour", "ratio")
    ]  # fmt: skip
    lines = documents.prediction(prediction, "table").splitlines()
    assert [line.split("  ")[0] for line in lines if "[" in line] == [
        "volume of a step", "volume of a run of 10 steps", "step time, median", "volume of an hour"
    ]  # fmt: skip
    root = predicted(
        formula="np.sqrt(step_bytes) ~ model_bytes", framework_backend=None, batch_size=None, topology=None
    )
    assert number(root, "step").statistic == "median"
    assert any("step_bytes is fitted as np.sqrt(step_bytes): the estimate is a median" in note for note in root.notes)
    assert any("step time: step_ms is fitted as np.log(step_ms): the estimate is a median" in n for n in root.notes)
    assert number(predicted(step_ms=50.0), "hour").statistic == "mean"


# --- from a dataset


@pytest.mark.parametrize("few", [True, pytest.param(False, marks=pytest.mark.long)])
def test_the_paper_s_scenarios_predict_and_refuse(command: RunCommand, tmp_path: Path, few: bool) -> None:
    runs = [run for run in synthetic.runs_of(steps=3) if run.loss_pct == 0]
    if few:  # the models with horovod over mpi in a ring
        runs = [run for run in runs if (run.framework, run.backend, run.topology) == ("horovod", "mpi", "ring")]
    write_runs(tmp_path / "dataset", runs)
    job = ["--framework-backend", "horovod-mpi", "--batch-size", "64", "--topology", "ring", "--steps", "100"]
    done = command("predict", "dataset", "--model-bytes", "97e6", *job, "--format", "json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    step, run, *_ = document["predicted"]
    assert step["prediction_low"] < 6.5 * 97e6 < step["prediction_high"]
    assert run["estimate"] == pytest.approx(100 * step["estimate"], rel=1e-12)
    assert document["synthetic_runs"] == document["runs"] == len(runs) == (4 if few else 72)
    refused = command("predict", "dataset", "--model-bytes", "500e6", *job)
    assert refused.returncode == 1 and refused.stdout == b""
    assert b"model_bytes = 500000000 is outside the measured range, 14000000 to 171000000" in refused.stderr
