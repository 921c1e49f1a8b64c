"""Clocks: of captures against each other, and of a training log against the traffic."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ddnn_traces.ingestors.facts import CELLS, FLOW_FACTS, SAMPLES, CaptureFacts, Int64Array, ReadOptions
from ddnn_traces.ingestors.logs import read_logs
from ddnn_traces.ingestors.packets import numba_engine
from ddnn_traces.ingestors.reconcile.clocks import (
    HostOffset,
    LogOffset,
    Traffic,
    host_offsets,
    is_off,
    log_offset,
    read_traffic,
)
from ddnn_traces.talk import Talk

SAMPLE = Path(__file__).parents[3] / "data" / "sample"
MS = 1_000_000
HOUR = 3_600_000 * MS
START = 1_795_167_713_000 * MS
A, B, C, D = "10.10.0.1", "10.10.0.2", "10.10.0.3", "10.10.0.10"


# --- captures against each other --------------------------------------------------------------------------------------


class Network:
    """Segments between hosts, each seen at both ends, on clocks that are ahead by `ahead` ns."""

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
    assert abs(found.offset_ns - 7 * MS) > 300_000  # asymmetry cannot be seen


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
    parts = [CaptureFacts(Path(n), "test", None, 0, flows=whole.flows, samples=s) for n, s in
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


# --- a log against the traffic ----------------------------------------------------------------------------------------


def training(
    steps: int = 60, step_ms: float = 100, jitter_ms: float = 8, pause_ms: float = 50, seed: int = 1
) -> tuple[Int64Array, Traffic]:
    """Bounds of steps and the traffic of a worker: a pause, an exchange up to about 1 ms before the step's end.

    2 s before, the model is handed out for 300 ms.
    """
    random = np.random.default_rng(seed)
    durations = np.maximum(random.normal(step_ms, jitter_ms, steps), pause_ms + 3)
    bounds = START // MS + 2000 + np.concatenate(([0], np.cumsum(durations)))
    late = random.exponential(0.5, steps)
    parts = [np.arange(START // MS, START // MS + 300)]
    for begin, end in zip(bounds[:-1] + pause_ms, bounds[1:] - late, strict=True):
        parts.append(np.arange(int(begin), max(int(end), int(begin) + 1)))
    return (bounds * MS).astype(np.int64), traffic(np.unique(np.concatenate(parts)) * MS)


def traffic(start_ns: Int64Array, received_ns: Int64Array | None = None, window_ns: int = MS) -> Traffic:
    received = start_ns if received_ns is None else received_ns
    return Traffic(start_ns, np.full(start_ns.size, 1000, np.int64), received, window_ns)


SHIFTS_MS = (0, 3_600_000, -3_600_000, 7_200_000, -19_800_000, 35_100_000, 37_000, 500, -120)


@pytest.mark.parametrize("shift_ms", SHIFTS_MS)
def test_any_offset_is_found(shift_ms: int) -> None:
    bounds, seen = training()
    found = log_offset(bounds - shift_ms * MS, seen)
    assert found is not None and abs(found.offset_ns - shift_ms * MS) < 3 * MS
    assert found.confidence > 0.98
    assert is_off(found) == (shift_ms != 0)


@pytest.mark.parametrize("ppm", [200, -200, 50])
def test_drift_is_found_and_the_offset_is_at_the_middle(ppm: int) -> None:
    bounds, seen = training(2000)
    middle = (int(bounds[1]) + int(bounds[-1])) // 2
    slow = bounds - HOUR - ((bounds - middle) * ppm * 1e-6).astype(np.int64)
    found = log_offset(slow, seen)
    assert found is not None and found.drift_ppm is not None
    assert abs(found.drift_ppm - ppm) < 5 and abs(found.offset_ns - HOUR) < 3 * MS


def test_a_short_log_tells_no_drift() -> None:
    found = log_offset(*training(30))
    assert found is not None and found.drift_ppm is None


def test_equal_steps_do_not_tell_which_is_which() -> None:
    """Nothing but the first and last step could tell; a value that is a step off would be worse than none."""
    assert log_offset(*training(100, jitter_ms=0)) is None


@pytest.mark.parametrize("seed", range(8))
def test_traffic_of_another_run_does_not_fit(seed: int) -> None:
    bounds, _ = training(seed=seed)
    _, other = training(seed=seed + 100)
    assert log_offset(bounds, other) is None


def test_traffic_without_pauses_or_without_steps_does_not_tell() -> None:
    bounds, seen = training()
    always = np.arange(START // MS, START // MS + 10_000) * MS
    assert log_offset(bounds, traffic(always)) is None
    random = np.random.default_rng(3)
    assert log_offset(bounds, traffic(np.unique(random.choice(always, 2500)))) is None
    assert log_offset(bounds, traffic(always[:0])) is None
    assert log_offset(bounds[:3], seen) is None
    assert log_offset(bounds[:1], seen) is None
    assert log_offset(np.repeat(bounds[:1], 50), seen) is None
    assert log_offset(bounds // 10**9 * 10**9, seen) is None  # whole seconds


def test_half_of_the_traffic_or_of_the_log_is_enough() -> None:
    bounds, seen = training(80)
    late = seen.start_ns[seen.start_ns > bounds[40]]
    for log, windows in ((bounds, late), (bounds[:40], seen.start_ns), (bounds[40:], seen.start_ns)):
        found = log_offset(log - HOUR, traffic(windows))
        assert found is not None and abs(found.offset_ns - HOUR) < 3 * MS


def test_a_worker_that_sends_on_is_not_misread() -> None:
    """A parameter server's step ends when the answer is in the socket's buffer; it goes out for 25 ms more."""
    bounds, seen = training(jitter_ms=5)
    sending = (np.floor(bounds[1:, None] / MS) + np.arange(25)).ravel().astype(np.int64) * MS
    everything = np.union1d(seen.start_ns, sending)
    assert log_offset(bounds, traffic(everything, seen.start_ns)) is None  # the two kinds of pauses contradict
    assert log_offset(bounds, traffic(everything, everything[:0])) is None  # nothing known of what it receives


def test_two_batches_a_round_are_one_end() -> None:
    bounds, seen = training()
    twice = np.sort(np.concatenate((bounds, bounds[1:] - 1000)))
    found = log_offset(twice, seen)
    assert found is not None and not is_off(found)


def test_windows_of_another_width() -> None:
    bounds, seen = training()
    coarse = np.unique(seen.start_ns // (5 * MS)) * 5 * MS
    found = log_offset(bounds + HOUR, traffic(coarse, window_ns=5 * MS))
    assert found is not None and abs(found.offset_ns + HOUR) < 8 * MS


def test_is_off_needs_more_than_the_estimates_own_error() -> None:
    assert not is_off(None)
    assert not is_off(LogOffset(-4 * MS, 0, None, 1.0))
    assert not is_off(LogOffset(12 * MS, 4 * MS, None, 1.0))
    assert is_off(LogOffset(-60 * MS, 4 * MS, None, 1.0))


def test_traffic_from_cells(tmp_path: Path) -> None:
    """Payload for the host, and what the host sends without payload, is receiving."""
    cells = {
        "flow": [0, 1, 0, 1, 1],
        "window": [7, 7, 9, 5, 7],
        "step": [0] * 5,
        "packets": [1] * 5,
        "wire_bytes": [99] * 5,
        "payload_bytes": [0, 20, 0, 10, 30],
    }
    path = tmp_path / "cells.parquet"
    pq.write_table(pa.table(cells, schema=CELLS), path)
    file = facts([(0, B, A), (1, A, B)], [])
    file.cells = path
    at_b, at_a = (read_traffic([file, CaptureFacts(path, "test", None, 0)], host, 1000) for host in (B, A))
    assert at_b.start_ns.tolist() == [5000, 7000, 9000]
    assert at_b.payload_bytes.tolist() == [10, 50, 0]
    assert at_b.received_ns.tolist() == [5000, 7000, 9000]
    assert at_a.received_ns.tolist() == []
    assert read_traffic([], B, 1000).start_ns.size == 0


# --- the real ones ----------------------------------------------------------------------------------------------------


def read(path: Path, cells: Path) -> CaptureFacts:
    return numba_engine.read_capture(path, ReadOptions(MS, np.empty(0, np.int64), cells))


def sample_logs(run: str, tmp_path: Path) -> list[tuple[Int64Array, Traffic]]:
    found = []
    for number, log in enumerate(read_logs(SAMPLE / run, Talk())):
        file = read(next((SAMPLE / run).glob(f"{log.worker}-tcpdump.pcap*")), tmp_path / f"{number}.parquet")
        found.append((log.bounds, read_traffic([file], f"10.10.0.{log.worker[-1]}", MS)))
    return found


@pytest.mark.parametrize(
    ("run", "told"),
    [
        ("mpi-mlp1-sgd-32-openmpi-0ms-ring-sll2", 4),
        ("torch-mlp1-sgd-32-gloo-0ms-ring-tso", 4),
        ("torch-mlp1-sgd-128-gloo-0ms-ring-tso", 4),
        ("torchp2p-mlp4-sgd-32-gloo-0ms-star-tso", 3),  # all but the root, which sends on
        ("torch-mlp1-sgd-32-gloo-0ms-ring", 0),  # five steps are too few
    ],
)
def test_sample_runs(run: str, told: int, tmp_path: Path) -> None:
    """All workers and captures share one clock (data/README.md)."""
    logs = sample_logs(run, tmp_path)
    for shift in (0, HOUR, -120 * MS):
        estimates = [log_offset(bounds - shift, seen) for bounds, seen in logs]
        found = [estimate for estimate in estimates if estimate is not None]
        assert len(found) == told
        assert all(abs(estimate.offset_ns - shift) < 5 * MS for estimate in found)
        assert all(is_off(estimate) == bool(shift) for estimate in found)


def test_sample_captures_of_both_ends(tmp_path: Path) -> None:
    """Both ends of every packet were captured, on one clock."""
    run = SAMPLE / "torch-mlp1-sgd-32-gloo-0ms-ring-both"
    files = [read(path, tmp_path / path.name) for path in sorted(run.glob("*.pcap.gz"))]
    assert all(file.samples.num_rows > 100 for file in files)
    for found in host_offsets(files, [f"10.10.0.{n}" for n in range(1, 5)]):
        assert found is not None and found.reference_ip == A and found.uncertainty_ns is not None
        assert abs(found.offset_ns) <= found.uncertainty_ns < MS
