"""Options of a run on ns-3: leaf and spine switches, a parameter server, DCTCP, priorities by layer and by deadline,
further jobs, a straggler, and iterations that are skipped."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from ns3_runs import compiled, measured, simulated

import ddnn_traces
from ddnn_traces.ingestors import pipeline
from ddnn_traces.query import checks
from ddnn_traces.traffic import ns3, simulator
from ddnn_traces.traffic.ns3 import ns3_results
from ddnn_traces.traffic.pcaps import write_description
from ddnn_traces.traffic.simulator import specification
from ddnn_traces.traffic.table_writer import write_traffic

pytestmark = pytest.mark.ns3

SMALL = {"workers": 4, "layers": 20, "model_bytes": 4_000_000, "compute_ms": 90, "fusion_bytes": 1_000_000}
#: Training that waits for the network: nearly all of an iteration is exchange.
HEAVY = {**SMALL, "model_bytes": 40_000_000, "fusion_bytes": 10_000_000, "compute_ms": 5, "iterations": 2}
HEAVY_SEGMENT = 8940
BESIDE = {**SMALL, "seconds": 0.4, "flows_per_s": 100, "queue": "priority", "barrier": False}


# --- leaf and spine


def test_oversubscription_divides_the_rate_between_leaves() -> None:
    """Two hosts a leaf, of which one sends to the other leaf: at 4 to 1 it has half of a link."""
    alone = measured(**HEAVY)["exposed_ms"]
    fits, less = (measured(**HEAVY, leaves=2, spines=1, oversubscription=o)["exposed_ms"] for o in (1, 4))
    assert fits == pytest.approx(alone, rel=0.05)
    assert less == pytest.approx(2 * alone, rel=0.05)


def test_a_flow_keeps_to_one_spine_and_flows_are_spread() -> None:
    """Every hop of this ring is between the leaves."""
    result = simulated(**HEAVY, leaves=2, spines=4, order=[0, 2, 1, 3])
    training = result.flows.filter(pl.col("dst_port") == ns3_results.TRAINING_PORT)
    up = result.uplinks.sort("leaf", "spine")["up_bytes"].to_list()
    # two data flows a leaf, and the acknowledgements of two: so many of the four spines carry anything
    for leaf in (0, 1):
        of_leaf = up[4 * leaf : 4 * leaf + 4]
        sent = training.filter(pl.col("src") // 2 == leaf)["wire_bytes"].to_list()
        large = [carried for carried in of_leaf if carried > 10**6]
        assert sum(large) == pytest.approx(sum(sent), rel=0.01) and 1 <= len(large) <= 2
    many = simulated(**BESIDE, leaves=2, spines=2)
    carried = many.uplinks["up_bytes"].to_list()
    assert min(carried) > 10**6, "both spines are used"


def test_uplinks_have_a_utilization() -> None:
    result = simulated(**HEAVY, leaves=2, spines=1)
    found = ns3_results.summary(result)
    carried = result.uplinks.select(pl.max_horizontal("up_bytes", "down_bytes")).to_series().to_list()
    assert found["uplink_utilization"] == pytest.approx(sum(carried) / 2 * 8 / 20e9 / found["simulated_s"])
    assert found["busiest_uplink_utilization"] >= found["uplink_utilization"] > 0.4


# --- a parameter server


@pytest.mark.parametrize("shape", ["worker", "server"])
def test_a_parameter_server_takes_what_the_simulator_says(shape: str) -> None:
    """With a queue that holds what all senders have under way; and the law's bytes."""
    values = {**HEAVY, "topology": "star", "shape": shape}
    result = simulated(**values, queue_limit="10000000B")
    events = simulator.simulate(specification.job({**values, "header_bytes": 9, "delay_ms": 0.02}))
    found = ns3_results.summary(result)
    assert found["iteration_ms"] == pytest.approx(simulator.summary(events)["iteration_ms"], rel=0.03)
    senders = 4 if shape == "server" else 3
    assert found["all_reduce_bytes"] == 2 * senders * result.run.model_bytes


def test_captures_of_a_parameter_server_give_the_tables_that_are_written_directly(tmp_path: Path) -> None:
    run = ns3.job({**SMALL, "topology": "star", "shape": "server", "iterations": 2})
    result = ns3.simulate(run, compiled(), tmp_path / "ns3")
    traffic = ns3_results.CountedTraffic(result)
    write_description(tmp_path / "ns3", traffic)
    pipeline.ingest([str(tmp_path / "ns3")], tmp_path / "read")
    write_traffic(tmp_path / "written", [traffic], tables=ns3_results.CountedTables)
    questions = [
        "SELECT src_ip, dst_ip, src_port, dst_port, packets, wire_bytes, payload_bytes, is_initiator FROM flows "
        "ORDER BY ALL",
        "SELECT src_ip, src_port, worker, position, step, t.packets, t.wire_bytes FROM step_flows AS t "
        "JOIN flows USING (run_id, flow_id) ORDER BY ALL",
        "SELECT capture_id, vantage_ip FROM captures ORDER BY ALL",
        "SELECT host_ip, label, role FROM hosts ORDER BY ALL",
    ]
    with ddnn_traces.open(tmp_path / "written") as written, ddnn_traces.open(tmp_path / "read") as read:
        for question in questions:
            rows = written.sql(question)
            assert len(rows) and rows.equals(read.sql(question)), question


# --- TCP


def test_dctcp_marks_where_newreno_drops() -> None:
    """Three workers that send to one at once fill a queue of the switch. (Hosts drop their own packets with both.)"""
    results_of = [simulated(**HEAVY, topology="star", congestion_control=name) for name in ("newreno", "dctcp")]
    newreno, dctcp = (each.drops.filter(pl.col("at_switch") == 1)["packets"].sum() for each in results_of)
    assert newreno > 0 == dctcp


@pytest.mark.parametrize("mbit", [1000, 10_000])
def test_dctcp_without_contention_is_as_fast_as_newreno(mbit: int) -> None:
    """A ring alone fills no queue of the switch; hosts do not mark their own packets."""
    values = {**HEAVY, "bandwidth_mbit": mbit}
    newreno, dctcp = (measured(**values, congestion_control=name)["iteration_ms"] for name in ("newreno", "dctcp"))
    assert dctcp == pytest.approx(newreno, rel=0.02)


# --- priorities


def test_exchanges_of_the_first_layers_are_in_the_background_s_band() -> None:
    result = simulated(**BESIDE, training_priority="layers", high_layers=5)
    high = sum(buffer.first < 5 for buffer in result.run.buffers)
    steps = len(result.high_exchanges) // len(result.run.buffers)
    assert 0 < high < len(result.run.buffers)
    assert result.high_exchanges[: steps * len(result.run.buffers)].sum() == steps * high


def test_all_or_no_layers_are_the_same_or_the_lower_priority() -> None:
    by_layers = [simulated(**BESIDE, training_priority="layers", high_layers=n) for n in (100, 0)]
    whole = [simulated(**BESIDE, training_priority=name) for name in ("same", "lower")]
    for part, all_ in zip(by_layers, whole, strict=True):
        assert part.windows.equals(all_.windows) and part.background.equals(all_.background)
    assert not whole[0].background.equals(whole[1].background)


def test_exchanges_that_would_come_too_late_are_in_the_background_s_band() -> None:
    """With time to spare only the first layers', which the forward pass needs at once; without it, all."""
    spare = simulated(**BESIDE | {"compute_ms": 180}, training_priority="deadline")
    tight = simulated(**HEAVY | {"queue": "priority", "barrier": False}, training_priority="deadline")
    first = [buffer.first for buffer in spare.run.buffers].count(0)
    steps = len(spare.high_exchanges) // len(spare.run.buffers)
    assert first * steps <= spare.high_exchanges.sum() < len(spare.high_exchanges) / 2
    assert tight.high_exchanges.sum() > 0.8 * len(tight.high_exchanges)


def test_a_training_that_waits_for_the_high_band_sends_nothing_again_for_that() -> None:
    """Its band has no limit of its wait: a timeout of the background's would end before it was sent."""
    values = {**HEAVY, "seconds": 0.5, "flows_per_s": 150, "training_priority": "lower"}
    early, late = measured(**values, training_min_rto_ms=5), measured(**values)
    assert early["retransmitted_bytes"] > 20 * HEAVY_SEGMENT * max(early["dropped_low"], 1)
    assert late["retransmitted_bytes"] <= HEAVY_SEGMENT * late["dropped_low"]


# --- jobs and workers


def test_two_jobs_share_the_links() -> None:
    """Each takes about twice as long as alone, and the first ends with its own steps, whatever the other has done."""
    alone, both = measured(**HEAVY), measured(**HEAVY | {"iterations": 8}, other_jobs=1)
    assert alone["other_iteration_ms"] is None
    for each in ("iteration_ms", "other_iteration_ms"):
        assert both[each] == pytest.approx(2 * alone["iteration_ms"], rel=0.25), each
    assert (both["ended"], both["steps"]) == ("iterations", 8)
    later = measured(**SMALL, iterations=3, other_jobs=1, other_jobs_after_ms=20)
    assert later["iteration_ms"] == pytest.approx(measured(**SMALL, iterations=3)["iteration_ms"], rel=0.01)


def test_a_straggler_delays_all_as_in_the_simulator() -> None:
    found = measured(**SMALL, iterations=2, straggler=1.5)["iteration_ms"]
    run = specification.job({**SMALL, "iterations": 2, "compute_factors": [1.5, 1, 1, 1], "header_bytes": 9})
    assert found == pytest.approx(simulator.summary(simulator.simulate(run))["iteration_ms"], rel=0.03)
    assert found > 1.45 * 90


# --- skipping


@pytest.mark.parametrize("values", [{}, {"straggler": 1.3}, {"leaves": 2}, {"topology": "star", "workers": 2}])
def test_skipped_iterations_are_those_of_the_full_run(values: dict[str, Any]) -> None:
    """Without background all iterations are alike: each table is the same, to the packet."""
    full, skipped = (simulated(**{**SMALL, **values}, iterations=30, skip_tolerance=t) for t in (0, 0.001))
    assert full.skipped_steps == 0 and skipped.skipped_steps > 20
    assert skipped.events < 0.4 * full.events
    for name in ("flows", "windows", "step_flows", "partitions", "uplinks"):
        assert getattr(skipped, name).equals(getattr(full, name)), name
    assert (skipped.schedule.forward_end == full.schedule.forward_end).all()
    assert skipped.simulated_ns == full.simulated_ns


def test_nothing_is_skipped_while_background_flows_come_and_go() -> None:
    values = {**SMALL, "seconds": 6.0, "flows_per_s": 0.5}
    full, skipped = (simulated(**values, skip_tolerance=t) for t in (0, 0.001))
    assert 0 < skipped.skipped_steps < full.steps
    assert skipped.background["start_ns"].to_list() == full.background["start_ns"].to_list()
    assert skipped.background["end_ns"].to_list() == pytest.approx(full.background["end_ns"].to_list(), abs=2e6)
    pair = ns3_results.summary(full), ns3_results.summary(skipped)
    assert pair[1]["small_mean_ms"] == pytest.approx(pair[0]["small_mean_ms"], rel=0.05)
    assert pair[1]["iteration_ms"] == pytest.approx(pair[0]["iteration_ms"], rel=0.01)
    assert pair[1]["simulated_s"] == pair[0]["simulated_s"] == 6.0


# --- tables


def test_the_training_s_flows_alone_obey_its_law(tmp_path: Path) -> None:
    """Beside background flows a pattern is that of all; without them it is a ring, and every data check passes."""
    result = simulated(**BESIDE, other_jobs=1)
    write_traffic(tmp_path, [ns3_results.CountedTraffic(result.of_training())], tables=ns3_results.CountedTables)
    with ddnn_traces.open(tmp_path) as dataset:
        assert dataset.query("topology")["topology"].item() == "ring"
        assert [name for name, rows in checks.run_checks(dataset).items() if rows.num_rows] == []
        ports = "SELECT DISTINCT least(src_port, dst_port) FROM flows"
        assert dataset.sql(ports).item() == ns3_results.TRAINING_PORT
        whole = result.flows.filter(pl.col("dst_port") == ns3_results.TRAINING_PORT)["wire_bytes"].sum()
        assert dataset.sql("SELECT sum(wire_bytes) FROM flows WHERE is_initiator").item() == whole
        windows = dataset.sql("SELECT sum(wire_bytes) FROM flow_windows").item()
        assert windows == dataset.sql("SELECT sum(wire_bytes) FROM flows").item()


# --- measures


def test_utilization_is_what_the_links_carried() -> None:
    """Captured bytes on the wire over the rate of the four links; windows at the end are not whole."""
    result = simulated(**BESIDE)
    found = ns3_results.summary(result)
    is_training = (pl.col("src_port") == ns3_results.TRAINING_PORT) | (pl.col("dst_port") == ns3_results.TRAINING_PORT)
    carried = {is_of: rows["wire_bytes"].sum() for (is_of,), rows in result.flows.group_by(is_training)}
    capacity = 4 * 10e9 / 8 * 0.4
    assert found["utilization"] == pytest.approx(carried[True] / capacity, rel=0.01)
    assert found["background_utilization"] == pytest.approx(carried[False] / capacity, rel=0.01)


# --- processes


def test_ns_3_ends_with_the_process_that_started_it() -> None:
    program = (
        "from ddnn_traces.traffic import ns3\n"
        "from ddnn_traces.traffic.ns3 import process\n"
        "import subprocess, sys\n"
        "start = subprocess.Popen\n"
        "class Told(start):\n"
        "    def __init__(self, *words, **options):\n"
        "        super().__init__(*words, **options)\n"
        "        print(self.pid, flush=True)\n"
        "subprocess.Popen = Told\n"
        f"ns3.simulate(ns3.job({SMALL | {'iterations': 1_000_000}!r}), process.find())\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout
        pid = int(parent.stdout.readline())
        ended = os.pidfd_open(pid)
        parent.send_signal(signal.SIGKILL)
        parent.wait()
        assert select.select([ended], [], [], 60)[0], "ns-3 went on"
        os.close(ended)
