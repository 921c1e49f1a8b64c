"""Verdicts on the runs of data/faults, whose faults are known. The thresholds were chosen with these runs in view."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

import ddnn_traces

FAULTS = Path(__file__).parents[2] / "data" / "faults"


@pytest.mark.long
def test_faults_are_found_where_they_are_and_nowhere_else(tmp_path: Path) -> None:
    with ddnn_traces.ingest(FAULTS, tmp_path / "dataset", hash="none") as dataset:
        score = dataset.query("fault_score")
        [name] = [run for run in dataset.run_ids if run.endswith("ring-n4-sleep-slow_host_worker3_60")]
        with ddnn_traces.open(dataset.path, name) as one:
            path = one.query("critical_path")
    assert score.height == len(list(FAULTS.iterdir()))
    clean = score.filter(fault_kind="none")
    assert clean.height >= 13
    assert clean.filter("is_false_alarm")["run_id"].to_list() == []
    found = score.filter((pl.col("fault_kind") != "none") & pl.col("found_kind").is_not_null())
    assert found.filter(~pl.col("is_place_right"))["run_id"].to_list() == []
    large = {
        "slow_host": ["slow_host_worker3_60", "slow_host_worker3_20", "pause_worker2_100", "growing_worker4_6"],
        "slow_link": ["slow_link_worker2_100", "slow_link_worker2_300", "slow_link_worker3_worker2_out_100"],
        "delay": ["delay_worker3_worker2_10", "delay_worker4_2"],
        "receiver": ["small_buffer_worker4_16"],
    }
    right = found.filter("is_kind_right")
    for kind, names in large.items():
        for name in names:
            assert right.filter(pl.col("run_id").str.contains(f"{name}$"), fault_kind=kind).height >= 1, name
    slow = path.filter(pl.col("place") == 1, pl.col("step").is_between(4, 11))  # the steps of the fault in its run.toml
    assert slow["host_ip"].to_list() == 8 * ["10.10.0.3"]
    assert slow["own_ms"].min() > 120 > path.filter(pl.col("place") == 1, pl.col("step") < 4)["own_ms"].max()  # type: ignore[operator]
