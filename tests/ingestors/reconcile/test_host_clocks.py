"""Clocks of captures against each other: on computed segments, on the sample, and through an ingest."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from small_runs import BEGIN_NS, Packet, contradictions, ingest, ring

from ddnn_traces.ingestors.reconcile.host_clocks import HostOffset, host_offsets
from ddnn_traces.pcap import numba_engine
from ddnn_traces.pcap.capture_facts import FLOW_FACTS, SAMPLES, CaptureFacts, ReadOptions

MS = 1_000_000
HOUR = 3_600_000 * MS
START = 1_795_167_713_000 * MS
A, B, C, D = "10.10.0.1", "10.10.0.2", "10.10.0.3", "10.10.0.10"


class Network:
    """Segments between hosts, each captured at both ends, on clocks that are ahead by `ahead` ns."""

    def __init__(self, **ahead: int) -> None:
        self.ahead = {address.replace("_", "."): ns for address, ns in ahead.items()}
        self.rows: dict[str, list[tuple[int, int, int]]] = {host: [] for host in self.ahead}
        self.flows: list[tuple[str, str]] = []
        self.random = np.random.default_rng(1)

    def send(self, src: str, dst: str, count: int, delay_ns: int, span_ns: int = 10_000 * MS, ppm: float = 0) -> None:
        """Random segments; queues add up to 2 ms to the delay. ppm: by how much dst's clock runs faster."""
        flow = len(self.flows)
        self.flows.append((src, dst))
        sent = np.sort(self.random.integers(0, span_ns, count))
        queued = self.random.exponential(0.3 * MS, count).astype(np.int64)
        queued[self.random.integers(0, count, max(1, count // 10))] = 0
        drift = (sent * ppm * 1e-6).astype(np.int64)
        for number in range(count):
            identity = int(self.random.integers(-(2**62), 2**62))
            here = START + int(sent[number])
            there = here + delay_ns + int(queued[number]) + int(drift[number])
            self.rows[src].append((identity, flow, here + self.ahead[src]))
            self.rows[dst].append((identity, flow, there + self.ahead[dst]))

    def file(self, host: str) -> CaptureFacts:
        """The capture at a host; its flow rows are in another order than at the others."""
        own = sorted({flow for _, flow, _ in self.rows[host]}, reverse=True)
        return facts(
            [(own.index(flow), *self.flows[flow]) for flow in own],
            [(identity, own.index(flow), ts) for identity, flow, ts in self.rows[host]],
        )

    def offsets(self, *hosts: str) -> list[HostOffset | None]:
        return host_offsets([self.file(host) for host in hosts], hosts)


def facts(flows: list[tuple[int, str, str]], samples: list[tuple[int, int, int]]) -> CaptureFacts:
    numbers = {name: [flow[i] for flow in flows] for i, name in enumerate(("flow", "src_ip", "dst_ip"))}
    columns = [
        pa.array(
            numbers.get(field.name, [6] * len(flows) if field.name == "protocol" else [None] * len(flows)), field.type
        )
        for field in FLOW_FACTS
    ]
    rows = [pa.array([row[i] for row in samples], field.type) for i, field in enumerate(SAMPLES)]
    return CaptureFacts(
        Path("x.pcap"), "test", None, 0,
        flows=pa.Table.from_arrays(columns, schema=FLOW_FACTS), samples=pa.Table.from_arrays(rows, schema=SAMPLES),
    )  # fmt: skip


def both_ways(ahead_ns: int, delay_ns: int = 100_000, back_ns: int | None = None, count: int = 200) -> Network:
    network = Network(**{"10_10_0_1": 0, "10_10_0_2": ahead_ns})
    network.send(A, B, count, delay_ns)
    network.send(B, A, count, delay_ns if back_ns is None else back_ns)
    return network


@pytest.mark.parametrize("ahead_ns", [0, 37, -1_500_000, 5 * HOUR, -HOUR])
def test_offset_of_two_hosts(ahead_ns: int) -> None:
    first, second = both_ways(ahead_ns).offsets(A, B)
    assert first == HostOffset(0, 0, A)
    assert second is not None and second.reference_ip == A and second.uncertainty_ns is not None
    assert abs(second.offset_ns - ahead_ns) <= 5_000
    assert 90_000 <= second.uncertainty_ns <= 130_000  # half the round trip


def test_unequal_delays_stay_within_the_uncertainty() -> None:
    _, found = both_ways(7 * MS, delay_ns=50_000, back_ns=950_000).offsets(A, B)
    assert found is not None and found.uncertainty_ns is not None
    assert abs(found.offset_ns - 7 * MS) <= found.uncertainty_ns
    assert abs(found.offset_ns - 7 * MS) > 300_000  # asymmetry is not visible


def test_one_direction_supposes_no_delay() -> None:
    network = Network(**{"10_10_0_1": 0, "10_10_0_2": 3 * MS})
    network.send(B, A, 50, 20_000)
    _, found = network.offsets(A, B)
    assert found == HostOffset(pytest.approx(3 * MS - 20_000, abs=3_000), None, A)


def test_chain_of_hosts_and_the_order_of_addresses() -> None:
    network = Network(**{"10_10_0_1": 0, "10_10_0_2": 2 * MS, "10_10_0_10": -5 * MS, "10_10_0_3": 0})
    for src, dst in ((A, B), (B, D)):
        network.send(src, dst, 100, 100_000)
        network.send(dst, src, 100, 100_000)
    network.rows[C].append((1, 0, START))
    d, c, a, b = network.offsets(D, C, A, B)
    assert a == HostOffset(0, 0, A)  # the smallest as a number, not as text
    assert b is not None and abs(b.offset_ns - 2 * MS) < 20_000
    assert d is not None and abs(d.offset_ns + 5 * MS) < 40_000
    assert d.uncertainty_ns is not None and b.uncertainty_ns is not None and d.uncertainty_ns > 1.8 * b.uncertainty_ns
    assert c is None  # shares nothing with the others


def test_the_surest_way_is_taken() -> None:
    network = Network(**{"10_10_0_1": 0, "10_10_0_2": 0, "10_10_0_3": 0})
    for src, dst, delay in ((A, C, 50 * MS), (A, B, MS), (B, C, MS)):
        network.send(src, dst, 50, delay)
        network.send(dst, src, 50, delay)
    found = network.offsets(A, B, C)[2]
    assert found is not None and found.uncertainty_ns is not None and found.uncertainty_ns < 5 * MS


def test_retransmissions_losses_and_wrong_matches() -> None:
    network = both_ways(MS)
    rows = network.rows
    twice = rows[A][3]
    rows[A].append((twice[0], twice[1], twice[2] + 200 * MS))  # retransmitted: which copy arrived is not known
    rows[B] = [row for number, row in enumerate(rows[B]) if number % 7]  # lost
    rows[A].append((42, 0, START + 9_000 * MS))  # an identity that means two segments
    rows[B].append((42, 0, START + 2_000 * MS))
    _, found = network.offsets(A, B)
    assert found is not None and abs(found.offset_ns - MS) < 10_000
    assert found.uncertainty_ns is not None and found.uncertainty_ns < 200_000


def test_files_of_one_host_have_one_clock() -> None:
    network = both_ways(4 * MS)
    whole = network.file(B)
    half = whole.samples.num_rows // 2
    parts = [CaptureFacts(Path(n), "test", 0, flows=whole.flows, samples=s) for n, s in
             (("b.pcap", whole.samples.slice(0, half)), ("b.pcap1", whole.samples.slice(half)))]  # fmt: skip
    _, first, second = host_offsets([network.file(A), *parts], [A, B, B])
    assert first == second == network.offsets(A, B)[1]


def test_drift_widens_the_uncertainty() -> None:
    network = Network(**{"10_10_0_1": 0, "10_10_0_2": 0})
    span = 1_000_000 * MS
    network.send(A, B, 400, 100_000, span, ppm=20)
    network.send(B, A, 400, 100_000, span, ppm=-20)
    _, found = network.offsets(A, B)
    assert found is not None and found.uncertainty_ns is not None
    assert abs(found.offset_ns - 10 * MS) < 2 * MS  # 20 ppm of 500 s
    assert found.uncertainty_ns > 4 * MS


def test_no_vantage_no_offset_and_nothing_in_common() -> None:
    network = both_ways(0)
    assert host_offsets([network.file(A), network.file(B)], [A, None]) == [None, None]
    assert host_offsets([], []) == []
    assert host_offsets([facts([], [])], [A]) == [None]


# --- through an ingest


def conversation(rounds: int = 1000) -> list[Packet]:
    """Segments in turn, 50 us apart, whose numbers are all different."""
    ends = ((A, B, (40000, 5000)), (B, A, (5000, 40000)))
    return [
        Packet(BEGIN_NS + (2 * i + back) * 50_000, *ends[back][:2], 100, ports=ends[back][2], seq=100 * i)
        for i in range(rounds)
        for back in (0, 1)
    ]


@pytest.mark.parametrize("ahead_ns", [0, 5 * MS, -HOUR])
@pytest.mark.long_after(1)
def test_clocks_of_two_hosts(tmp_path: Path, ahead_ns: int) -> None:
    """Every packet takes 30 us. The clocks are recorded, and the captured times are unchanged."""
    packets = conversation()

    def seen_at(host: str, ahead: int) -> list[Packet]:
        return [replace(x, time_ns=x.time_ns + ahead + (30_000 if x.dst == host else 0)) for x in packets]

    files = {
        "a.pcap": seen_at(A, 0) + ring(A, C),
        "b.pcap": seen_at(B, ahead_ns) + ring(B, D),
    }  # shows the host of each file
    with ingest(tmp_path, files) as dataset:
        clocks = "SELECT vantage_ip, clock_offset_ns, clock_offset_uncertainty_ns, clock_reference_ip FROM captures"
        (at_a, at_b) = dataset.sql(f"{clocks} ORDER BY vantage_ip").rows()
        assert at_a == (A, 0, 0, A)
        assert (at_b[0], at_b[3]) == (B, A)
        assert abs(at_b[1] - ahead_ns) <= at_b[2] <= 31_000
        pair = f"'{A}' IN (src_ip, dst_ip) AND '{B}' IN (src_ip, dst_ip)"
        first = dict(dataset.sql(f"SELECT src_ip, first_seen_ns FROM flows WHERE {pair}").rows())
        assert first == {A: BEGIN_NS, B: BEGIN_NS + 50_000 + ahead_ns}
        assert contradictions(dataset) == {}


def test_one_capture_has_no_clock_to_compare(tmp_path: Path) -> None:
    with ingest(tmp_path, {"a.pcap": conversation()}) as dataset:
        clocks = "SELECT clock_offset_ns, clock_offset_uncertainty_ns, clock_reference_ip FROM captures"
        assert dataset.sql(clocks).rows() == [(None, None, None)]


# --- the sample


def test_sample_captures_of_both_ends(sample: Path, tmp_path: Path) -> None:
    """Both ends of every packet were captured, on one clock."""
    run = sample / "torch-mlp1-sgd-32-gloo-0ms-ring-both"
    options = ReadOptions(MS, np.empty(0, np.int64), tmp_path / "cells")
    files = [
        numba_engine.read_capture(path, replace(options, spill=tmp_path / path.name))
        for path in sorted(run.glob("*.pcap.gz"))
    ]
    assert all(file.samples.num_rows > 100 for file in files)
    for found in host_offsets(files, [f"10.10.0.{n}" for n in range(1, 5)]):
        assert found is not None and found.reference_ip == A and found.uncertainty_ns is not None
        assert abs(found.offset_ns) <= found.uncertainty_ns < MS
