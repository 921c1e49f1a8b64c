"""Simulated runs as datasets: queries, checks, topology and report work on them unchanged."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import ddnn_traces
from ddnn_traces.query import checks
from ddnn_traces.query.dataset import Dataset
from ddnn_traces.traffic import simulator
from ddnn_traces.traffic.simulator.job import SimulatedRun
from ddnn_traces.traffic.simulator.layers import thesis
from ddnn_traces.traffic.table_writer import write_traffic

SMALL = thesis(20, 4_000_000, 90)
JOBS = {
    "ring": {"topology": "ring"},
    "priority": {"topology": "ring", "queue": "priority", "barrier": False, "bandwidth_mbit": 500.0},
    "tree": {"topology": "tree"},
    "star": {"topology": "star", "shape": "server", "server_barrier": True},
    "sharded_parameter_server": {"topology": "sharded_parameter_server", "servers": 3},
    "clique": {"topology": "clique"},
    "recursive_doubling": {"topology": "recursive_doubling"},
    "halving_doubling": {"topology": "halving_doubling"},
    "pair_averaging": {"topology": "pair_averaging", "steps": 12},
    "hierarchical_ring": {"topology": "hierarchical_ring", "workers": 9},
    "headers": {"topology": "ring", "header_bytes": 66},
    "multicast": {"topology": "star", "shape": "server", "multicast": True, "in_network_aggregation": True},
}


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dataset]:
    path = tmp_path_factory.mktemp("simulated") / "dataset"
    runs = [
        SimulatedRun(**{"workers": 8, "steps": 4, "bandwidth_mbit": 1000.0} | job, run_id=name, profile=SMALL)
        for name, job in JOBS.items()
    ]
    write_traffic(path, (simulator.traffic(simulator.simulate(run)) for run in runs))
    with ddnn_traces.open(path) as opened:
        yield opened


@pytest.mark.long
def test_every_data_check_passes(dataset: Dataset) -> None:
    assert [check for check, rows in checks.run_with_stored_inputs(dataset).items() if rows.num_rows] == []


@pytest.mark.long
def test_the_topology_is_inferred_as_simulated(dataset: Dataset) -> None:
    found = dict(dataset.query("topology").select("run_id", "topology").iter_rows())
    expected = {name: str(job["topology"]) for name, job in JOBS.items()}
    assert found == expected


def test_runs_state_what_they_are(dataset: Dataset) -> None:
    rows = dataset.sql("SELECT DISTINCT source, model_bytes FROM runs").rows()
    assert rows == [("simulation", SMALL.model_bytes)]
    assert dataset.sql("SELECT variant FROM runs WHERE run_id = 'priority'").item() == "priority-no_barrier"


def test_the_volume_of_a_step_is_that_of_the_law(dataset: Dataset) -> None:
    size = SMALL.model_bytes
    rows = dataset.sql("SELECT run_id, avg(payload_bytes) FROM step_volume GROUP BY run_id")
    found = dict(rows.iter_rows())
    assert found["ring"] == found["priority"] == found["headers"] == 2 * 7 * size  # 2(N-1)/N*S a worker
    assert found["star"] == 2 * 8 * size and found["clique"] == 8 * 7 * size and found["tree"] == 2 * 7 * size
    assert found["multicast"] == 2 * (8 + 1) * size  # each worker's link, and the server's once


def test_no_window_holds_more_than_its_link_carries(dataset: Dataset) -> None:
    rows = dataset.sql("""
        SELECT w.run_id, bandwidth_mbit * window_ns / 8000 AS most, f.src_ip, sum(w.wire_bytes) AS bytes,
               count(*) AS flows
        FROM flow_windows AS w JOIN flows AS f USING (run_id, flow_id) JOIN runs USING (run_id)
        WHERE f.src_ip <> '10.0.0.254'  -- the switch, which has many links
        GROUP BY ALL""")
    total = rows.group_by("run_id", "src_ip").agg(pl.len())
    assert len(total) > 80
    windows = dataset.sql("""
        SELECT max(bytes - most - flows * 1514) FROM (
            SELECT w.run_id, f.src_ip, window_start_ns, sum(w.wire_bytes) AS bytes, count(*) AS flows,
                   any_value(bandwidth_mbit * window_ns / 8000) AS most
            FROM flow_windows AS w JOIN flows AS f USING (run_id, flow_id) JOIN runs USING (run_id)
            WHERE f.src_ip <> '10.0.0.254'
            GROUP BY ALL)""").item()
    assert windows <= 0


def test_steps_and_events_are_those_of_the_schedule(dataset: Dataset) -> None:
    run = SimulatedRun("ring", workers=8, steps=4, bandwidth_mbit=1000.0, profile=SMALL)
    result = simulator.simulate(run)
    steps = dataset.sql("SELECT step, end_ns - start_ns AS ns FROM steps WHERE run_id = 'ring' AND worker = 'worker-3'")
    assert steps["ns"].to_list() == pytest.approx(result.iteration_ms[:, 2] * 1e6, abs=1)
    events = dataset.sql("""
        SELECT kind, count(*) AS rows, sum(end_ns - start_ns) / 1e6 AS ms, sum(bytes) AS bytes
        FROM events WHERE run_id = 'ring' AND worker = 'worker-1' AND step = 2 GROUP BY kind ORDER BY kind""")
    expected = pl.DataFrame(
        {
            "kind": ["allreduce", "backward", "forward"], "rows": [len(run.buffers), 20, 20],
            "ms": [0.0, 60.0, 30.0], "bytes": [SMALL.model_bytes, SMALL.model_bytes, None],
        }
    )  # fmt: skip
    assert_frame_equal(events.drop("ms"), expected.drop("ms"), check_dtypes=False)
    assert events["ms"][1:].to_list() == pytest.approx([60, 30], rel=1e-6)


def test_the_servers_phases_are_those_of_chang(dataset: Dataset) -> None:
    run = SimulatedRun(**JOBS["star"], workers=8, steps=4, bandwidth_mbit=1000.0, profile=SMALL)
    expected = simulator.summary(simulator.simulate(run))
    rows = dataset.sql("SELECT * FROM parameter_server_phases WHERE run_id = 'star'")
    assert rows["problem"].null_count() == 4
    assert rows["aggregation_transfers"].to_list() == [8] * 4 and rows["distribution_transfers"].to_list() == [8] * 4
    assert rows["aggregation_remaining_ms"].mean() == pytest.approx(expected["aggregation_remaining_ms"], abs=1.1)
    assert rows["distribution_remaining_ms"].mean() == pytest.approx(expected["distribution_remaining_ms"], abs=1.1)


@pytest.mark.long
def test_the_report_is_written(dataset: Dataset, tmp_path: Path) -> None:
    page = ddnn_traces.write_report(dataset, tmp_path / "report.html").read_text()
    assert "simulation" in page


def test_the_same_seed_gives_the_same_bytes(tmp_path: Path) -> None:
    run = SimulatedRun(workers=4, profile=SMALL, compute_jitter=0.1, seed=5)
    for name in ("a", "b"):
        write_traffic(tmp_path / name, [simulator.traffic(simulator.simulate(run))])
    files = [
        sorted(path.relative_to(tmp_path / name) for path in (tmp_path / name).rglob("*.parquet")) for name in "ab"
    ]
    assert files[0] == files[1] != []
    assert all((tmp_path / "a" / path).read_bytes() == (tmp_path / "b" / path).read_bytes() for path in files[0])
