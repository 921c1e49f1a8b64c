"""Measured runs on another network: the law, its calibration, and what it predicts of runs that it has not seen."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from datasets import write_dataset

import ddnn_traces
from ddnn_traces.errors import UsageError
from ddnn_traces.query.dataset import Dataset
from ddnn_traces.traffic.simulator import what_if
from ddnn_traces.traffic.simulator.what_if import Calibration, Change, Facts, Program

MEASURED = Path(__file__).parents[2] / "data" / "dataset"
HEADERS = 1 + 66 / 1448
RUN = Facts("r", "torch ring m 32 4", "torch ring", "ring", 4_000_000, 4, 1000.0, 0.0, 0.0, None, None, 10, 100.0, 40.0)


@pytest.fixture(scope="module")
def dataset() -> Iterator[Dataset]:
    with ddnn_traces.open(MEASURED) as opened:
        yield opened


def test_transmission_is_that_of_the_law() -> None:
    assert RUN.transmission_ms == pytest.approx(2 * 3 / 4 * 4e6 * HEADERS * 8 / 1e6)
    star = replace(RUN, topology="parameter_server")
    assert star.transmission_ms == pytest.approx(2 * 4 * 4e6 * HEADERS * 8 / 1e6)


def test_a_token_bucket_passes_once_what_it_holds() -> None:
    """Of a ring's rounds, which follow each other at once, only the first; of a server's phases each host's once."""
    burst = 262_144
    ring = replace(RUN, burst_bytes=burst)
    star = replace(ring, topology="parameter_server")
    assert ring.transmission_ms == pytest.approx((2 * 3 / 4 * 4e6 * HEADERS - burst) * 8 / 1e6)
    assert star.transmission_ms == pytest.approx(((1 + 4) * 4e6 * HEADERS - 2 * burst) * 8 / 1e6)


def test_latency_and_work_overlap() -> None:
    calibration = Calibration({"torch ring": Program(2.0, 1e6)}, {RUN.job: 50.0})
    slow = replace(RUN, delay_ms=10.0)
    assert what_if.latency_ms(slow, Program(2.0, 1e6)) == pytest.approx(10 * (2 * 6 + 2 * 6 * 4))
    assert calibration.step_ms(slow) == pytest.approx(math.hypot(50 + RUN.transmission_ms, 600))
    assert calibration.step_ms(RUN) == pytest.approx(50 + RUN.transmission_ms)


def test_constants_that_made_runs_are_found_again() -> None:
    true = Calibration({"torch ring": Program(2.5, 3e6)}, {RUN.job: 60.0})
    runs = [
        replace(RUN, run_id=f"{rate}-{delay}", bandwidth_mbit=float(rate), delay_ms=float(delay))
        for rate in (100, 300, 1000)
        for delay in (0, 5, 20, 50)
    ]
    other = replace(RUN, job="torch ring n 32 4", model_bytes=20_000_000)
    runs += [replace(other, run_id=f"other-{delay}", delay_ms=float(delay)) for delay in (0, 30)]
    true = replace(true, jobs={**true.jobs, other.job: 90.0})
    found = what_if.calibrate([replace(run, step_ms=true.step_ms(run)) for run in runs])
    assert found.jobs == pytest.approx(true.jobs, rel=0.01)
    program = found.programs["torch ring"]
    assert (program.rounds, program.window_bytes) == pytest.approx((2.5, 3e6), rel=0.05)


@pytest.mark.long
def test_no_condition_is_fitted_to_and_scored(dataset: Dataset) -> None:
    facts, _ = what_if.read(dataset)
    for turn in (0, 1):
        fitted, scored = what_if.halves(facts, turn)
        assert len(fitted) + len(scored) == len(facts)
        assert {(f.job, f.condition) for f in fitted}.isdisjoint((f.job, f.condition) for f in scored)
    first, second = ({(f.job, f.condition) for f in what_if.halves(facts, turn)[1]} for turn in (0, 1))
    assert first.isdisjoint(second)


def test_what_is_predicted_of_measured_runs(dataset: Dataset) -> None:
    """docs/simulator.md has the table. Two runs of one condition differ by more than the median error."""
    rows, said = what_if.scored(dataset)
    holds = rows.filter(pl.col("reason").is_null())
    assert len(rows) == 85 and len(holds) == 64
    assert holds["error"].abs().median() < 0.07
    assert rows.filter(pl.col("reason").is_not_null())["error"].abs().median() > 0.1  # the reasons are reasons
    assert said[0].startswith("median error 6.") and "85 conditions" in said[0]


def test_a_run_without_a_declared_size_has_that_of_its_volume(tmp_path: Path) -> None:
    from ddnn_traces.traffic import simulator
    from ddnn_traces.traffic.simulator.job import SimulatedRun
    from ddnn_traces.traffic.simulator.layers import thesis
    from ddnn_traces.traffic.table_writer import write_traffic

    run = SimulatedRun(workers=4, steps=4, profile=thesis(20, 4_000_000, 90))
    write_traffic(tmp_path / "dataset", [simulator.traffic(simulator.simulate(run))])
    with ddnn_traces.open(tmp_path / "dataset") as opened:
        row = opened.query("replay_facts").row(0, named=True)
    facts = replace(RUN, model_bytes=0)
    assert what_if._sized(facts, row["step_payload_bytes"]).model_bytes == pytest.approx(run.model_bytes, rel=1e-5)
    assert row["step_ms"] == pytest.approx(float(simulator.simulate(run).iteration_ms.mean()), rel=1e-6)
    assert row["compute_ms"] == pytest.approx(90, rel=1e-6)


@pytest.mark.long
def test_ten_times_less_bandwidth_and_more_delay(dataset: Dataset) -> None:
    name = "torchp2p-resnet_like-sgd-32-gloo-1ms-ps-n1-r1"
    facts, _ = what_if.read(dataset)
    if name not in {f.run_id for f in facts}:
        name = next(f.run_id for f in facts if f.delay_ms == 1 and f.bandwidth_mbit == 1000 and "resnet" in f.run_id)
    rows = what_if.like(facts, name, Change(bandwidth_factor=0.1))
    measured, replayed, changed = rows.iter_rows(named=True)
    assert measured["error"] is None and abs(replayed["error"]) < 0.2
    assert replayed["step_ms"] == pytest.approx(measured["step_ms"] * (1 + replayed["error"]))
    assert changed["bandwidth_mbit"] == 100
    parts = changed["computation_ms"] + changed["software_ms"] + changed["transmission_ms"]
    scale = measured["step_ms"] / replayed["step_ms"]
    assert changed["step_ms"] == pytest.approx(math.hypot(parts, changed["latency_ms"]) * scale, rel=1e-6)
    later = what_if.like(facts, name, Change(more_delay_ms=200)).row(2, named=True)
    assert later["delay_ms"] == 201 and later["step_ms"] > 4 * 200


def test_what_is_asked_must_be_possible() -> None:
    facts = [RUN]
    for change, message in (
        (Change(bandwidth_mbit=1, bandwidth_factor=2), "contradict each other"),
        (Change(bandwidth_mbit=-1), "bandwidth_mbit = -1"),
        (Change(delay_ms=-1), "delay_ms"),
        (Change(workers=10**6), "workers = 1000000"),
        (Change(topology="mesh"), "there is no law for the topology mesh"),
    ):
        with pytest.raises(UsageError, match=message):
            what_if.like(facts, "r", change)
    with pytest.raises(UsageError, match="q: no run of this name that can be replayed; there are r"):
        what_if.like(facts, "q", Change())


def test_an_unknown_rate_is_asked_for(tmp_path: Path) -> None:
    """The run of a ring at 1 Gbit/s that uses a fifth of it is not a run at 201 Mbit/s."""
    columns = {"run_id": "r", "framework": "torch", "backend": "gloo", "model": "m", "model_bytes": 4_000_000}
    runs = pl.DataFrame([columns | {"batch_size": 32, "topology": "ring", "workers": 2, "source": "capture"}])
    steps = pl.DataFrame(
        {"run_id": "r", "worker": worker, "step": step, "start_ns": step * 10**9, "end_ns": (step + 1) * 10**9}
        for worker in ("w1", "w2")
        for step in range(3)
    )
    sent = pl.DataFrame({"run_id": ["r"], "flow_id": [0], "src_ip": ["10.0.0.1"], "dst_ip": ["10.0.0.2"]})
    windows = pl.DataFrame(
        {"run_id": "r", "flow_id": 0, "window_start_ns": start * 10**7, "window_ns": 10**7, "wire_bytes": 251_250}
        for start in range(100, 300)
    )
    tables = {"runs": runs, "steps": steps, "flows": sent, "flow_windows": windows}
    with write_dataset(tmp_path / "dataset", tables) as dataset:
        row = dataset.query("replay_facts").row(0, named=True)
        assert (row["bandwidth_mbit"], row["measured_mbit"]) == (None, pytest.approx(201))
        with pytest.raises(UsageError, match="rate of its links is not declared; give --link-mbit"):
            what_if.of_run(dataset, "r", {"bandwidth_factor": 2})
        measured, _, changed = what_if.of_run(dataset, "r", {"bandwidth_factor": 2}, link_mbit=1000).iter_rows(
            named=True
        )
        assert (measured["bandwidth_mbit"], changed["bandwidth_mbit"]) == (1000, 2000)


def test_a_single_run_is_replayed_by_its_computation() -> None:
    rows = what_if.like([RUN], "r", Change(bandwidth_mbit=500))
    replayed, changed = rows.row(1, named=True), rows.row(2, named=True)
    assert replayed["step_ms"] == pytest.approx(40 + RUN.transmission_ms)
    assert changed["step_ms"] == pytest.approx(100 + RUN.transmission_ms)
