"""Fair queues and streams on ns-3: what a link gives to each flow, and how long packets at a constant rate take."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from ns3_runs import compiled, measured, simulated
from tools import needs_tool

import ddnn_traces
from ddnn_traces.ingestors import pipeline
from ddnn_traces.traffic import ns3
from ddnn_traces.traffic.ns3 import ns3_results, process
from ddnn_traces.traffic.ns3.ns3_job import Flows, Ns3Run
from ddnn_traces.traffic.pcaps import write_description
from ddnn_traces.traffic.table_writer import write_traffic

pytestmark = pytest.mark.ns3

#: The first exchange is after 300 ms.
QUIET = {"workers": 4, "layers": 20, "model_bytes": 4_000_000, "compute_ms": 900, "seconds": 0.31}
BUSY = {
    "workers": 4, "layers": 20, "model_bytes": 20_000_000, "fusion_bytes": 10_000_000, "compute_ms": 15,
    "seconds": 0.08, "flows_per_s": 60, "queue_limit": "167p",
}  # fmt: skip


# --- fair queues


def test_fair_queues_share_a_link_evenly_where_prio_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two flows to one host: the first has filled the queue when the second begins, which is completed at half of the
    rate of the link, or at less."""
    size, starts = 1_000_000, [1_000_000, 10_000_000]
    flows = Flows(*map(np.array, (starts, [1, 2], [0, 0], [30_000_000, size])))
    monkeypatch.setattr(Ns3Run, "background", lambda _: flows)
    shares = []
    for name in ("fq_codel", "prio"):
        result = simulated(**QUIET, flows_per_s=1, queue_limit="400p", queue_disc=name)
        first, second = result.background["end_ns"]
        assert first > second > 0
        shares.append(size * 8994 / 8940 * 8 / 10 / (second - starts[1]))
    assert shares[0] == pytest.approx(0.5, abs=0.03)
    assert shares[1] < 0.4


def test_drops_of_fair_queues_are_counted_and_sent_again() -> None:
    """They drop what waits, when their limit is reached."""
    found = measured(**BUSY | {"queue_limit": "20p"}, queue_disc="fq_codel", training_priority="lower")
    assert found["dropped_low"] > 0 < found["retransmitted_bytes"]


def test_fair_queues_have_bands() -> None:
    same, lower = (measured(**BUSY, queue_disc="fq_codel", training_priority=name) for name in ("same", "lower"))
    assert same["dropped_low"] == 0 < same["dropped_high"]
    assert lower["all_mean_ms"] < 0.9 * same["all_mean_ms"]


# --- a stream

STREAM = {"stream_mbit": 10, "stream_packet_bytes": 1250}


def test_a_stream_alone_arrives_whole_after_what_links_take() -> None:
    """A packet a ms, after the first connections and before the first exchange: two links of 10 us, and on each of
    them 1250 bytes of payload and 30 of headers at 10 bits a ns."""
    found = measured(**QUIET, **STREAM, warm_up_s=0.0105, cool_down_s=0.0205)
    assert (found["stream_packets"], found["stream_delivered_pct"]) == (279, 100)
    assert found["stream_mean_ms"] == pytest.approx((2 * 10_000 + 2 * 1280 * 8 / 10) / 1e6, abs=2e-6)
    assert found["stream_p99_ms"] == pytest.approx(found["stream_mean_ms"], abs=1e-9)
    assert found["stream_jitter_ms"] == 0


def test_jitter_is_that_of_rfc_3550() -> None:
    """J += (|D| - J) / 16, of the time between arrivals less that between starts."""
    result = simulated(**BUSY, **STREAM)
    jitter, all_of_it, before = 0.0, [], None
    for start, end in result.stream.select("start_ns", "end_ns").iter_rows():
        if end < 0:
            continue
        if before is not None:
            jitter += (abs((end - before[1]) - (start - before[0])) / 1e6 - jitter) / 16
        before = start, end
        all_of_it.append(jitter)
    found = ns3_results.summary(result)
    assert found["stream_jitter_ms"] == pytest.approx(np.mean(all_of_it)) and np.mean(all_of_it) > 0
    assert found["stream_delivered_pct"] == 100 * len(all_of_it) / len(result.stream)


def test_a_stream_is_steadier_beside_a_training_of_lower_priority() -> None:
    same, lower = (measured(**BUSY | {"flows_per_s": 0}, **STREAM, training_priority=p) for p in ("same", "lower"))
    assert lower["stream_jitter_ms"] < 0.2 * same["stream_jitter_ms"]
    assert lower["stream_p99_ms"] < 0.2 * same["stream_p99_ms"]


def test_captures_of_a_stream_give_the_tables_that_are_written_directly(tmp_path: Path) -> None:
    result = ns3.simulate(ns3.job({**BUSY, **STREAM, "queue_disc": "fq_codel"}), compiled(), tmp_path / "ns3")
    traffic = ns3_results.CountedTraffic(result)
    write_description(tmp_path / "ns3", traffic)
    pipeline.ingest([str(tmp_path / "ns3")], tmp_path / "read")
    write_traffic(tmp_path / "written", [traffic], tables=ns3_results.CountedTables)
    flow = "protocol, src_ip, dst_ip, src_port, dst_port"
    counts = "t.packets, t.wire_bytes, t.payload_bytes, t.retransmitted_bytes"
    questions = [
        "SELECT is_initiator, initiator_source, connection, reverse_flow_id, first_seen_ns, last_seen_ns, ip_bytes, "
        "captured_bytes, cable_bytes_estimate, syn_packets, fin_packets, rst_packets, retransmitted_packets, "
        "out_of_order_packets, out_of_order_bytes FROM flows WHERE protocol = 17",
        f"SELECT {flow}, is_initiator, {counts} FROM flows AS t ORDER BY ALL",
        f"SELECT {flow}, window_start_ns, {counts} FROM flow_windows AS t JOIN flows USING (run_id, flow_id) "
        "ORDER BY ALL",
        f"SELECT {flow}, worker, position, step, {counts} FROM step_flows AS t JOIN flows USING (run_id, flow_id) "
        "ORDER BY ALL",
    ]
    with ddnn_traces.open(tmp_path / "written") as written, ddnn_traces.open(tmp_path / "read") as read:
        for question in questions:
            rows = written.sql(question)
            assert len(rows) and rows.equals(read.sql(question)), question
        port = written.sql("SELECT dst_port, src_ip, dst_ip, payload_bytes FROM flows WHERE protocol = 17").row(0)
    assert port == (ns3_results.STREAM_PORT, "10.1.0.1", "10.1.0.4", 1250 * result.stream.height)


@pytest.mark.long
@pytest.mark.parametrize("compiler", ["cppyy", "system"])
def test_other_compilers_and_versions_have_fair_queues_and_streams(
    compiler: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = {**QUIET, **STREAM, "flows_per_s": 50, "queue_disc": "fq_codel", "queue_limit": "167p"}
    own = simulated(**values)
    if compiler == "system":
        if not Path("/usr/include/ns3").is_dir():
            needs_tool("libns3-dev")
        monkeypatch.setattr(process, "_of_wheel", lambda _: None)
    other = ns3.simulate(ns3.job(values), process.find("g++" if compiler == "system" else compiler))
    sent = own.stream["start_ns"].to_list()
    assert other.stream["start_ns"].to_list()[: len(sent)] == sent
    found, expected = (ns3_results.summary(result) for result in (other, own))
    assert found["stream_mean_ms"] == pytest.approx(expected["stream_mean_ms"], rel=0.01)
    assert found["all_flows"] == expected["all_flows"] > 20
