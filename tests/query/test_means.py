"""Means over runs and over batches, recomputed with numpy from the tables of the sample."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from scipy.stats import t as student

from ddnn_traces.query.dataset import Dataset


def samples_and_mean(dataset: Dataset, run_id: str) -> tuple[int, float]:
    """Whole samples of a step in a run's training, and its throughput from the first step to the last, in Gbit/s."""
    windows = dataset.sql("FROM flow_windows WHERE run_id = ?", [run_id])
    begin, end, steps = dataset.sql(
        "SELECT min(start_ns), max(end_ns), count(DISTINCT step) FROM steps WHERE run_id = ?", [run_id]
    ).row(0)
    base = windows["window_ns"].max()
    length = max(int((end - begin) / steps) // base, 1) * base
    first, starts = windows["window_start_ns"].min(), windows["window_start_ns"].to_numpy()
    begin, end = max(begin, first), min(end, starts.max() + base)
    inside = (starts >= begin) & (starts < end)
    next_window = first - (first - begin) // base * base
    return (end - next_window) // length, windows["wire_bytes"].to_numpy()[inside].sum() * 8 / (end - begin)


def test_throughput_and_its_intervals(sample_dataset: Dataset) -> None:
    """Steps of one run, of which the sample has few, give no interval; three runs or more do, a run as one value."""
    rows = sample_dataset.query("total_throughput")
    logged = rows.filter(stretch="training")
    for row in logged.iter_rows(named=True):
        samples, mean = samples_and_mean(sample_dataset, row["run_id"])
        assert (row["samples"], row["gbit_per_s"]) == (samples, pytest.approx(mean))
        (compared,) = (
            figure
            for figure in sample_dataset.query("compare", a_runs=row["run_id"], b_runs=row["run_id"]).to_dicts()
            if figure["figure"] == "mean throughput of the training"
        )
        assert row["gbit_per_s"] == pytest.approx(compared["a_mean"])
    assert logged["samples"].max() < 200
    assert rows["half_width_gbit_per_s"].null_count() == rows.height == rows["interval_of"].null_count()
    means = dict(rows["run_id", "gbit_per_s"].iter_rows())
    runs = sample_dataset.sql("SELECT run_id, framework, model FROM runs")
    groups = {
        f"framework {framework}, model {model}": group["run_id"].to_list()
        for (framework, model), group in runs.group_by("framework", "model")
    }
    pooled = sample_dataset.query("total_throughput", pool_by="framework,model")
    assert set(pooled["pooled_by"]) == set(groups)
    assert pooled["runs"].max() > 2
    for row in pooled.iter_rows(named=True):
        of_runs = np.array([means[run] for run in groups[row["pooled_by"]]])
        assert row["gbit_per_s"] == pytest.approx(of_runs.mean())
        if len(of_runs) < 3:
            assert row["half_width_gbit_per_s"] is None
        else:
            half = student.ppf(0.975, len(of_runs) - 1) * of_runs.std(ddof=1) / np.sqrt(len(of_runs))
            assert row["half_width_gbit_per_s"] == pytest.approx(half, rel=1e-5)


def autoregressive(lag1: float, count: int, series: int) -> np.ndarray:
    """Series of mean 0, a row each, whose neighbouring values have this correlation."""
    values = np.random.default_rng(1).standard_normal((series, count + 200))
    for place in range(1, values.shape[1]):
        values[:, place] += lag1 * values[:, place - 1]
    return values[:, 200:]


def within_run(dataset: Dataset, series: np.ndarray) -> pl.DataFrame:
    return dataset.sql(
        "SELECT w.* FROM (SELECT unnest(?::DOUBLE[][]) AS series, unnest(range(?)) AS number), "
        "within_run(series := series) AS w ORDER BY number",
        [series.tolist(), len(series)],
    )


def test_intervals_within_a_run_hold_the_mean_of_alike_steps(sample_dataset: Dataset) -> None:
    """Where s / sqrt(n) holds it in 3 of 5 series; of independent steps they are at most half as wide again."""
    alike = autoregressive(0.7, 200, 500)
    found = within_run(sample_dataset, alike)
    held = found["mean"].abs() <= found["half_width"]
    naive = student.ppf(0.975, 199) * alike.std(axis=1, ddof=1) / np.sqrt(200)
    assert held.mean() >= 0.93
    assert np.mean(abs(alike.mean(axis=1)) <= naive) < 0.7
    independent = autoregressive(0.0, 200, 100)
    assert (within_run(sample_dataset, independent)["half_width"] / (1.96 / np.sqrt(200))).median() < 1.5


def test_an_interval_within_a_run_by_hand(sample_dataset: Dataset) -> None:
    for series in autoregressive(0.5, 207, 3):
        row = within_run(sample_dataset, series[None]).row(0, named=True)
        off = series - series.mean()
        lag1 = (off[1:] * off[:-1]).sum() / (off * off).sum()
        corrected = min(max(lag1 + (1 + 4 * max(lag1, 0)) / 207, 0), 0.99)
        of_batches = series[7:].reshape(10, 20).mean(axis=1).std(ddof=1) / np.sqrt(10)
        of_lag1 = series.std(ddof=1) / np.sqrt(207) * np.sqrt((1 + corrected) / (1 - corrected))
        assert row["lag1_autocorrelation"] == pytest.approx(lag1)
        assert row["error"] == pytest.approx(max(of_batches, of_lag1))
        assert row["half_width"] == pytest.approx(student.ppf(0.975, 9) * row["error"])
    assert within_run(sample_dataset, series[None, :199])["half_width"].item() is None


@pytest.mark.long
def test_volumes_of_a_step(sample_dataset: Dataset) -> None:
    """Runs of one ring order, model and number of steps are averaged, and a ring of 4 sends 6 models a step."""
    rows = sample_dataset.query("volume_by_model")
    assert rows["runs"].sum() == len(sample_dataset.run_ids)
    rings = rows.filter(pl.col("worker_order").str.contains(">"))
    assert rings["worker_order"].n_unique() == 2
    assert ((rings["step_model_sizes"] - 6).abs() < 0.1).all()
    pooled = rows.filter(pl.col("pooled").is_not_null())
    assert set(pooled["pooled"]) == {"batch_size 128, 32", "loss_pct 0.0, 0.5; variant loss05, unknown"}


@pytest.mark.long
def test_the_steps_of_a_matrix_add_up_to_those_of_the_runs(sample_dataset: Dataset) -> None:
    matrix = sample_dataset.query("mean_traffic_matrix", models="apart")
    volume = matrix.group_by("configuration").agg(pl.col("mean_step_payload_bytes").sum(), pl.col("runs").first())
    steps = sample_dataset.sql(
        "SELECT configuration, sum(payload) / count(*) AS payload FROM (SELECT run_id, "
        "sum(payload_bytes) / (SELECT count(DISTINCT step) FROM steps AS s WHERE s.run_id = f.run_id) AS payload "
        "FROM step_flows AS f WHERE position = 'during' GROUP BY run_id) JOIN run_configurations USING (run_id) "
        "GROUP BY configuration"
    )
    both = volume.join(steps, on="configuration")
    assert both.height == volume.height
    assert both["mean_step_payload_bytes"].to_list() == pytest.approx(both["payload"].to_list())


@pytest.mark.long
def test_a_burst_is_what_a_pair_sends_in_a_step(sample_dataset: Dataset) -> None:
    bursts = sample_dataset.query("batch_burst_structure")
    found = sample_dataset.query("step_inference_score").select("run_id", "inferred", "structured")
    both = bursts.join(found, on="run_id")
    assert both.filter("structured").select(pl.col("bursts_of").unique()).rows() == [("step",)]
    assert both.filter("structured")["bursts"].to_list() == both.filter("structured")["inferred"].to_list()
    assert both.filter(pl.col("structured").not_())["bursts_of"].to_list() == ["pause"]
