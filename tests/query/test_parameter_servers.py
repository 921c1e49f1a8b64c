"""Phases of parameter servers by the wire alone, against what the workers of data/dataset logged."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pyarrow.parquet as pq
import pytest

import ddnn_traces
from ddnn_traces.query.dataset import Dataset

MEASURED = Path(__file__).parents[2] / "data" / "dataset"

#: PyTorch's workers log when they compute and when they have received.
LOGGED = """
    SELECT e.run_id, host_ip AS worker_ip, step, max(end_ns) FILTER (kind = 'compute') AS computed_ns,
           max(end_ns) FILTER (kind = 'recv') AS received_ns
    FROM events AS e
    JOIN hosts AS h ON h.run_id = e.run_id AND h.label = e.worker
    GROUP BY ALL
"""
WIRED = """
    SELECT run_id, worker_ip, step, any_value(delay_ms) * 1e6 AS delay_ns,
           min(begin_ns) FILTER (phase = 'aggregation') AS push_ns,
           max(end_ns) FILTER (phase = 'distribution') AS pulled_ns
    FROM parameter_server_pairs
    JOIN parameter_server_runs USING (run_id)
    JOIN runs USING (run_id)
    WHERE problem IS NULL AND steps_from = 'log'
    GROUP BY ALL
"""


@pytest.fixture(scope="module")
def measured() -> Iterator[Dataset]:
    with ddnn_traces.open(MEASURED) as dataset:
        yield dataset


@pytest.fixture(scope="module")
def without_events(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dataset]:
    """The same runs, without what the workers logged inside their steps."""
    folder = tmp_path_factory.mktemp("wire") / "dataset"
    shutil.copytree(MEASURED, folder)
    for path in (folder / "events").iterdir():
        pq.write_table(pq.read_schema(path).empty_table(), path)
    with ddnn_traces.open(folder) as dataset:
        yield dataset


def errors(differences: pl.Series) -> tuple[float, float]:
    """Median and 95th percentile of absolute differences, ms."""
    found = differences.drop_nulls().abs() / 1e6
    return float(found.median()), float(found.quantile(0.95))  # type: ignore[arg-type]


@pytest.mark.long
def test_gradients_begin_where_the_computation_ends(measured: Dataset) -> None:
    """The figures are those in the head of parameter_server_phases."""
    pairs = measured.sql(WIRED).join(measured.sql(LOGGED), on=["run_id", "worker_ip", "step"])
    pairs = pairs.sort("run_id", "worker_ip", "step").with_columns(
        pl.col("pulled_ns", "received_ns").shift(1).over("run_id", "worker_ip").name.prefix("last_")
    )
    assert pairs["run_id"].n_unique() == 123 and pairs.height == 3170
    by_wire = pairs["push_ns"] - pairs["last_pulled_ns"] - pairs["delay_ns"]
    median, most = errors(pairs["push_ns"] - pairs["computed_ns"])
    assert (round(median, 1), round(most, 1)) == (0.4, 2.0)
    median, most = errors(by_wire - (pairs["computed_ns"] - pairs["last_received_ns"]))
    assert (round(median, 1), round(most, 1)) == (0.7, 3.7)


@pytest.mark.long
def test_times_by_the_wire_are_upper_limits_of_the_logged_ones(measured: Dataset, without_events: Dataset) -> None:
    times = ["compute_ms", "compute_measured_by", "aggregation_ms", "aggregation_remaining_ms"]
    columns = ["run_id", "step", "steps_from", *times]
    wired = without_events.query("parameter_server_phases").select(columns)
    assert set(wired["compute_measured_by"].drop_nulls()) == {"wire"}
    logged = measured.query("parameter_server_phases").select(columns).filter(compute_measured_by="events")
    both = logged.join(wired, on=["run_id", "step", "steps_from"]).drop_nulls("compute_ms_right")
    assert both.height == 1828 and both["aggregation_ms"].equals(both["aggregation_ms_right"])
    assert (both["compute_ms_right"] - both["compute_ms"]).min() > -1  # type: ignore[operator]  # a base window
    median, most = errors(1e6 * (both["aggregation_remaining_ms_right"] - both["aggregation_remaining_ms"]))
    assert (round(median, 1), round(most, 1)) == (0.3, 0.8)


@pytest.mark.long
def test_tensorflows_workers_have_phases_from_the_wire(measured: Dataset) -> None:
    """Its chief alone logs. Each worker pulls the model, computes and pushes gradients while the chief waits; where
    one is killed, another takes its place."""
    phases = measured.query("parameter_server_phases").filter(pl.col("run_id").str.starts_with("tf-"))
    phases = phases.join(measured.sql("SELECT run_id, workers FROM runs"), on="run_id")
    assert phases["run_id"].n_unique() == 42 and phases.height == 534
    assert set(phases["steps_from"]) == {"chief"} and set(phases["aggregation_measured_by"]) == {"wire"}
    for phase in ("aggregation", "distribution"):
        models = phases[f"{phase}_payload_bytes"] / 940_584 / phases["workers"]
        lossy = phases["run_id"].str.contains("loss_")  # where a frame of 64 KB is sent again
        assert ((models - 1).abs() < pl.select(pl.when(lossy).then(0.25).otherwise(0.01)).to_series()).all()
    assert (phases["distribution_start_ns"] < phases["aggregation_end_ns"]).all()
    assert phases["distribution_remaining_ms"].null_count() == 534 and phases["not_told"].null_count() == 0
    waits = measured.sql("""
        SELECT run_id, step, min(start_ns) AS begin_ns, max(end_ns) FILTER (kind = 'communicate') AS waited_ns
        FROM events
        WHERE worker = 'chief-1'
        GROUP BY ALL
    """)
    within = phases.join(waits, on=["run_id", "step"])
    assert within.height == 534
    for phase in ("aggregation", "distribution"):
        assert (within[f"{phase}_start_ns"] > within["begin_ns"]).all()
        assert (within[f"{phase}_end_ns"] < within["waited_ns"] + 1e6).all()  # a base window
