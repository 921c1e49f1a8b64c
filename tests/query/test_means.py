"""Means over runs and over batches, recomputed with numpy from the tables of the sample."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import polars as pl
import pytest
from scipy.stats import t as student

from ddnn_traces.query.dataset import Dataset


def batch_means(dataset: Dataset, run_id: str, batches: int) -> list[float]:
    """Throughput of so many batches of a run's training, in Gbit/s."""
    windows = dataset.sql("FROM flow_windows WHERE run_id = ?", [run_id])
    begin, end = dataset.sql("SELECT min(start_ns), max(end_ns) FROM steps WHERE run_id = ?", [run_id]).row(0)
    base = windows["window_ns"].max()
    first, starts = windows["window_start_ns"].min(), windows["window_start_ns"].to_numpy()
    begin = first - (first - max(begin, first)) // base * base  # the next base window
    end = min(end, starts.max() + base)
    length = max((end - begin) // batches // base, 1) * base
    edges = begin + length * np.arange(min((end - begin) // length, batches) + 1)
    return [
        windows["wire_bytes"].filter((starts >= low) & (starts < high)).sum() * 8 / length
        for low, high in pairwise(edges)
    ]


def test_pooled_throughput_and_its_intervals(sample_dataset: Dataset) -> None:
    rows = sample_dataset.query("total_throughput", pool_by="framework,model")
    runs = sample_dataset.sql("SELECT run_id, framework, model FROM runs")
    groups = {
        f"framework {framework}, model {model}": group["run_id"].to_list()
        for (framework, model), group in runs.group_by("framework", "model")
    }
    assert set(rows["pooled_by"]) == set(groups)
    assert max(rows["runs"]) > 2
    for row in rows.iter_rows(named=True):
        of_runs = [batch_means(sample_dataset, run, 30 // row["runs"]) for run in groups[row["pooled_by"]]]
        samples, means = np.concatenate(of_runs), np.array([np.mean(rates) for rates in of_runs])
        assert row["samples"] == len(samples)
        assert row["gbit_per_s"] == pytest.approx(samples.mean())
        half = student.ppf(0.975, len(samples) - 1) * samples.std(ddof=1) / np.sqrt(len(samples))
        assert row["half_width_gbit_per_s"] == pytest.approx(half, rel=1e-5)
        if len(means) > 1:
            half = student.ppf(0.975, len(means) - 1) * means.std(ddof=1) / np.sqrt(len(means))
            assert row["run_half_width_gbit_per_s"] == pytest.approx(half, rel=1e-5)


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
    matrix = sample_dataset.query("mean_traffic_matrix")
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
