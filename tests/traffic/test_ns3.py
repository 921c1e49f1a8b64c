"""Ring all-reduce on real ns-3: its bytes, times and end state, its tables against captures, its queues."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from tools import needs_tool

import ddnn_traces
from ddnn_traces.ingestors import pipeline
from ddnn_traces.query import checks
from ddnn_traces.query.dataset import Dataset
from ddnn_traces.traffic import ns3, simulator
from ddnn_traces.traffic.ns3 import ns3_results, process
from ddnn_traces.traffic.ns3.ns3_results import Ns3Result
from ddnn_traces.traffic.simulator import specification
from ddnn_traces.traffic.table_writer import write_traffic

pytestmark = pytest.mark.ns3

SMALL = {"workers": 4, "layers": 20, "model_bytes": 4_000_000, "compute_ms": 90, "fusion_bytes": 1_000_000}
BESIDE = {**SMALL, "seconds": 0.5, "flows_per_s": 60}


def simulated(**values: Any) -> Ns3Result:
    return ns3.simulate(ns3.job(values), process.find())


@pytest.fixture(scope="module")
def alone() -> Ns3Result:
    return simulated(**SMALL, iterations=3)


@pytest.fixture(scope="module")
def beside(tmp_path_factory: pytest.TempPathFactory) -> tuple[Ns3Result, Path]:
    """A run beside background flows, and the folder of its captures."""
    folder = tmp_path_factory.mktemp("captures") / "ns3"
    return ns3.simulate(ns3.job(BESIDE), process.find(), folder), folder


@pytest.fixture(scope="module")
def dataset(
    alone: Ns3Result, beside: tuple[Ns3Result, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Dataset]:
    path = tmp_path_factory.mktemp("written") / "dataset"
    named = replace(alone, run=alone.run.changed(run_id="alone"))
    write_traffic(path, map(ns3_results.CountedTraffic, (beside[0], named)), tables=ns3_results.CountedTables)
    with ddnn_traces.open(path) as opened:
        yield opened


def test_the_system_s_ns_3_gives_nearly_the_same_run(alone: Ns3Result, monkeypatch: pytest.MonkeyPatch) -> None:
    needs_tool("g++")
    if not Path("/usr/include/ns3").is_dir():
        needs_tool("libns3-dev")
    wheel = process.find("g++")
    monkeypatch.setattr(process, "_of_wheel", lambda _: None)
    chosen = process.find("g++")
    assert chosen.version.startswith("3.") and chosen.version != wheel.version
    other = ns3_results.summary(ns3.simulate(ns3.job({**SMALL, "iterations": 3}), chosen))
    own = ns3_results.summary(alone)
    assert other["all_reduce_bytes"] == own["all_reduce_bytes"]
    assert other["iteration_ms"] == pytest.approx(own["iteration_ms"], rel=0.001)


def test_the_bytes_of_an_all_reduce_are_those_of_the_law(alone: Ns3Result) -> None:
    size, steps, workers = alone.run.model_bytes, 3, 4
    assert ns3_results.summary(alone)["all_reduce_bytes"] == 2 * (workers - 1) * size
    sent = alone.flows.filter(pl.col("dst_port") == ns3_results.TRAINING_PORT)
    assert sent["payload_bytes"].sum() == 2 * (workers - 1) * size * steps
    assert sent["retransmitted_bytes"].sum() == 0
    # on the wire: PPP, IPv4, and TCP of 20 bytes with time stamps; the first packets are SYNs of 58 bytes
    headers = sent["wire_bytes"] - sent["payload_bytes"]
    assert headers.to_list() == [54 * (packets - 1) + 58 for packets in sent["packets"]]


def test_what_is_sent_again_is_all_that_is_more(beside: tuple[Ns3Result, Path]) -> None:
    """Flows that ended: payload is their bytes and what was sent again, of which there is some."""
    result, _ = beside
    ended = result.background.filter(pl.col("end_ns") >= 0).select("src", "src_port", "bytes")
    rows = ended.join(result.flows, on=["src", "src_port"])
    assert len(rows) == len(ended) > 50
    assert (rows["payload_bytes"] == rows["bytes"] + rows["retransmitted_bytes"]).all()


def test_a_ring_of_four_ends_as_figure_5_2() -> None:
    """Progress of partitions at the end: of worker 0 partition 2 has 6, 3 has 5, 0 has 4, 1 has 3."""
    rows = simulated(**SMALL, iterations=1).partitions.filter(pl.col("buffer") == 0)
    progress = np.zeros((4, 4), int)
    for interval, worker, partition in rows.sort("interval").select("interval", "worker", "partition").iter_rows():
        before = progress[(worker - 1) % 4, partition]
        assert before == interval, "a worker passes on what it received in the interval before"
        progress[worker, partition] = before + 1
    assert progress.tolist() == [[4, 3, 6, 5], [5, 4, 3, 6], [6, 5, 4, 3], [3, 6, 5, 4]]


def test_a_worker_sends_a_partition_when_it_has_received_the_one_before(alone: Ns3Result) -> None:
    rows = alone.partitions.filter(pl.col("step") == 1, pl.col("buffer") == 1)
    received = {(i, w): end for i, w, end in rows.select("interval", "worker", "end_ns").iter_rows()}
    sent = {(i, (w - 1) % 4): start for i, w, start in rows.select("interval", "worker", "start_ns").iter_rows()}
    assert all(sent[i + 1, w] == end for (i, w), end in received.items() if i < 5)


@pytest.mark.parametrize("mbit", [1000, 2000, 5000, 10_000, 20_000])
def test_an_iteration_takes_what_the_simulator_says(mbit: int) -> None:
    """Within 3%, without background; headers counted: 54 bytes a packet of 8940 are 9 of 1448 bytes."""
    values = {**SMALL, "bandwidth_mbit": mbit, "model_bytes": 40_000_000, "fusion_bytes": 10_000_000, "iterations": 2}
    packets = ns3_results.summary(simulated(**values))["iteration_ms"]
    events = simulator.simulate(specification.job({**values, "header_bytes": 9, "delay_ms": 0.02}))
    assert packets == pytest.approx(simulator.summary(events)["iteration_ms"], rel=0.03)


@pytest.mark.parametrize("barrier", [True, False])
@pytest.mark.parametrize("queue", ["fifo", "priority"])
def test_the_order_of_exchanges_is_the_simulators(queue: str, barrier: bool) -> None:
    """With small partitions, as here, it counts that the switch stores a packet before it forwards it."""
    values = {**SMALL, "bandwidth_mbit": 200, "queue": queue, "barrier": barrier, "iterations": 2}
    packets = simulated(**values).schedule
    delay_ms = 0.02 + 8994 * 8 / 200e3
    events = simulator.simulate(specification.job({**values, "header_bytes": 9, "delay_ms": delay_ms})).schedule
    order = np.argsort(events.exchange_start[1, 0, :, 0]).tolist()
    assert np.argsort(packets.exchange_start[1, 0, :, 0]).tolist() == order
    assert np.diff(packets.forward_end[:, 0]) == pytest.approx(np.diff(events.forward_end[:, 0]), rel=0.03)


def test_captures_give_the_tables_that_are_written_directly(
    beside: tuple[Ns3Result, Path], dataset: Dataset, tmp_path: Path
) -> None:
    from ddnn_traces.traffic.pcaps import write_description

    result, folder = beside
    write_description(folder, ns3_results.CountedTraffic(result))
    pipeline.ingest([str(folder)], tmp_path / "dataset")
    flow = "src_ip, dst_ip, src_port, dst_port"
    facts = (
        "first_seen_ns, last_seen_ns, packets, wire_bytes, ip_bytes, payload_bytes, captured_bytes, syn_packets, "
        "fin_packets, rst_packets, retransmitted_packets, retransmitted_bytes, out_of_order_packets, "
        "out_of_order_bytes, is_initiator"
    )
    counts = "packets, t.wire_bytes, t.payload_bytes, t.retransmitted_bytes"
    questions = [
        f"SELECT {flow}, {facts} FROM flows WHERE run_id = 'ns3' ORDER BY ALL",
        f"SELECT {flow}, window_start_ns, t.{counts} FROM flow_windows AS t JOIN flows USING (run_id, flow_id) "
        "WHERE run_id = 'ns3' ORDER BY ALL",
        f"SELECT {flow}, worker, position, step, t.{counts} FROM step_flows AS t JOIN flows USING (run_id, flow_id) "
        "WHERE run_id = 'ns3' ORDER BY ALL",
        "SELECT worker, step, start_ns, end_ns FROM steps WHERE run_id = 'ns3' ORDER BY ALL",
    ]
    with ddnn_traces.open(tmp_path / "dataset") as ingested:
        for question in questions:
            written, read = dataset.sql(question), ingested.sql(question)
            assert len(written) and written.equals(read)


def test_captures_and_tables_show_the_same_ring(alone: Ns3Result, dataset: Dataset, tmp_path: Path) -> None:
    rows = dataset.sql("SELECT * FROM ring_order WHERE run_id = 'alone' ORDER BY position")
    assert rows["is_ring"].all()
    assert rows["next_host_ip"].to_list() == ["10.1.0.2", "10.1.0.3", "10.1.0.4", "10.1.0.1"]
    ns3.simulate(alone.run, process.find(), tmp_path / "alone")
    pipeline.ingest([str(tmp_path / "alone")], tmp_path / "dataset")
    with ddnn_traces.open(tmp_path / "dataset") as ingested:
        assert ingested.query("ring_order").equals(rows)


def test_every_data_check_passes(dataset: Dataset) -> None:
    """Of a run without background; what goes on beside the training is no part of its law."""
    found = {check: rows["run_id"].to_pylist() for check, rows in checks.run_checks(dataset).items() if rows.num_rows}
    assert [check for check, runs in found.items() if "alone" in runs] == []


def test_runs_state_what_they_are(dataset: Dataset) -> None:
    row = dataset.sql("SELECT source, congestion_control, variant, planned_steps FROM runs WHERE run_id = 'alone'")
    assert row.row(0) == ("ns3", "newreno", "fifo-barrier-same_priority-prio", 3)
    assert dataset.sql("SELECT DISTINCT engine, link_types FROM captures").rows() == [("ns3", "9")]


def test_the_same_seed_gives_the_same_run(beside: tuple[Ns3Result, Path]) -> None:
    again, other = simulated(**BESIDE), simulated(**BESIDE, seed=1)
    assert again.flows.equals(beside[0].flows) and again.partitions.equals(beside[0].partitions)
    assert not other.background.equals(again.background)


def test_both_compilers_give_the_same_run(beside: tuple[Ns3Result, Path]) -> None:
    compiled = ns3.simulate(ns3.job(BESIDE), process.find("g++"))
    assert compiled.flows.equals(beside[0].flows) and compiled.events == beside[0].events


BUSY = {
    **SMALL, "model_bytes": 40_000_000, "fusion_bytes": 10_000_000, "compute_ms": 60, "seconds": 0.3, "flows_per_s": 60,
    "seed": 2,
}  # fmt: skip


def test_a_lower_priority_of_the_training_helps_small_flows() -> None:
    same, lower = (ns3_results.summary(simulated(**BUSY, training_priority=name)) for name in ("same", "lower"))
    assert lower["all_flows"] == same["all_flows"] > 50
    assert lower["small_mean_ms"] < 0.8 * same["small_mean_ms"]


def test_one_limit_for_all_bands_drops_packets_of_the_high_one() -> None:
    """Training fills the queue of pfifo_fast; with three queues it does not take the background's place."""
    values = {**BUSY, "training_priority": "lower", "flows_per_s": 10, "queue_limit": "100p"}
    three, one = (ns3_results.summary(simulated(**values, queue_disc=name)) for name in ("prio", "pfifo_fast"))
    assert one["dropped_high"] > three["dropped_high"]
    assert one["dropped_low"] > 0 < three["dropped_low"] and three["retransmitted_bytes"] > 0


def test_a_run_that_cannot_end_stops_at_the_time_limit_with_what_it_has() -> None:
    """Background above the links' rate."""
    values = {**SMALL, "bandwidth_mbit": 1000, "seconds": 1000, "flows_per_s": 120, "time_limit_s": 3}
    result = simulated(**values, training_priority="lower")
    found = ns3_results.summary(result)
    assert not result.is_whole and found["ended"] == "time limit"
    assert found["simulated_s"] < 1000 and found["all_flows"] > 0
    assert found["all_completed_pct"] < 100


def test_measures_leave_out_warm_up_and_cool_down() -> None:
    values = {**BESIDE, "compute_jitter": 0.2}
    whole = simulated(**values)
    part = replace(whole, run=whole.run.changed(warm_up_s=0.15, cool_down_s=0.15))
    began = whole.background.filter(pl.col("start_ns").is_between(0.15e9, 0.35e9))
    assert ns3_results.summary(part)["all_flows"] == len(began) < len(whole.background)
    ends = whole.schedule.forward_end
    inside = [i for i in range(whole.steps) if (ends[i] >= 0.15e9).all() and (ends[i + 1] <= 0.35e9).all()]
    assert 0 < len(inside) < whole.steps
    expected = np.diff(ends, axis=0)[inside].mean() / 1e6
    assert ns3_results.summary(part)["iteration_ms"] == pytest.approx(expected)


def test_other_tcp_moves_the_same_bytes() -> None:
    """Of the flows, not of the program's own sums; and each option changes what is sent."""
    found = {}
    for name, change in {
        "as it is": {}, "cubic": {"congestion_control": "cubic"}, "small": {"segment_bytes": 1380},
        "acks": {"delayed_ack": 1},
    }.items():  # fmt: skip
        result = simulated(**{**BUSY, "flows_per_s": 0, **change}, iterations=1)
        data = result.flows.filter(pl.col("payload_bytes") > 0)
        fresh = data["payload_bytes"].sum() - data["retransmitted_bytes"].sum()
        assert fresh == 2 * 3 * result.run.model_bytes
        acknowledgements = result.flows.filter(pl.col("payload_bytes") == 0)["packets"].sum()
        found[name] = data["packets"].sum(), acknowledgements, result.windows["packets"].to_list()
    assert found["small"][0] > 6 * found["as it is"][0]
    assert found["acks"][1] > 1.9 * found["as it is"][1]
    assert found["cubic"][2] != found["as it is"][2]


def test_slow_start_and_loss_recovery_are_as_given() -> None:
    """Of 20 segments at once a window of 20 needs one round trip (4 ms), of 1, 2, 4, 8 and 16 four more; where slow
    start ends at 2 segments, further ones. Without SACK more than what was lost is sent again."""
    alone = {**BUSY, "flows_per_s": 0, "compute_ms": 1, "workers": 2, "model_bytes": 2 * 20 * 8940, "delay_ms": 2}
    windows = [{"initial_window": 20}, {"initial_window": 1}, {"initial_window": 1, "initial_ssthresh": 2 * 8940}]
    at_once, doubled, by_one = (
        ns3_results.summary(simulated(**{**alone, **one}, iterations=1))["iteration_ms"] for one in windows
    )
    assert doubled - at_once >= 4 * 4 and by_one - doubled >= 4
    again = []
    for sack in (True, False):
        sent = simulated(**{**BUSY, "flows_per_s": 0, "topology": "star", "queue_limit": "300000B", "sack": sack})
        again.append(sent.flows["retransmitted_bytes"].sum())
    assert 0 < 2 * again[0] < again[1]
