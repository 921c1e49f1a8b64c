"""The logs' clock: one log against computed traffic, and against the captures of the sample."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ddnn_traces.ingestors.reconcile.log_clocks import LogOffset, Traffic, is_off, log_offset, read_traffic
from ddnn_traces.ingestors.training_logs import read_logs
from ddnn_traces.messages import Messages
from ddnn_traces.pcap import numba_engine
from ddnn_traces.pcap.capture_facts import CELLS, FLOW_FACTS, CaptureFacts, Int64Array, ReadOptions

MS = 1_000_000
HOUR = 3_600_000 * MS
START = 1_795_167_713_000 * MS
A, B = "10.10.0.1", "10.10.0.2"


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
    bounds, observed = training()
    found = log_offset(bounds - shift_ms * MS, observed)
    assert found is not None and abs(found.offset_ns - shift_ms * MS) < 3 * MS
    assert found.confidence > 0.98
    assert is_off(found) == (shift_ms != 0)


def test_a_wait_for_a_late_worker_is_no_offset() -> None:
    """50 ms after each end the worker sends, and then waits for 100 ms, longer than it computed: a fit by the long
    pauses alone is 52 ms off."""
    bounds, observed = training(step_ms=160, pause_ms=50)
    since = observed.start_ns[:, None] - bounds[:-1][None, :]
    waits = ((since > 52 * MS) & (since < np.diff(bounds) - 4 * MS)).any(axis=1)
    waited = traffic(observed.start_ns[~waits])
    found = log_offset(bounds, waited)
    assert found is None or not is_off(found)


@pytest.mark.parametrize("ppm", [200, -200, 50])
def test_drift_is_found_and_the_offset_is_at_the_middle(ppm: int) -> None:
    bounds, observed = training(2000)
    middle = (int(bounds[1]) + int(bounds[-1])) // 2
    slow = bounds - HOUR - ((bounds - middle) * ppm * 1e-6).astype(np.int64)
    found = log_offset(slow, observed)
    assert found is not None and found.drift_ppm is not None
    assert abs(found.drift_ppm - ppm) < 5 and abs(found.offset_ns - HOUR) < 3 * MS


def test_a_short_log_gives_no_drift() -> None:
    found = log_offset(*training(30))
    assert found is not None and found.drift_ppm is None


def test_equal_steps_cannot_be_aligned() -> None:
    """Only the first and last step could decide; a value that is a step off would be worse than no value."""
    assert log_offset(*training(100, jitter_ms=0)) is None


@pytest.mark.parametrize("seed", range(8))
def test_traffic_of_another_run_does_not_fit(seed: int) -> None:
    bounds, _ = training(seed=seed)
    _, other = training(seed=seed + 100)
    assert log_offset(bounds, other) is None


def test_traffic_without_pauses_or_without_steps_gives_no_offset() -> None:
    bounds, observed = training()
    always = np.arange(START // MS, START // MS + 10_000) * MS
    assert log_offset(bounds, traffic(always)) is None
    random = np.random.default_rng(3)
    assert log_offset(bounds, traffic(np.unique(random.choice(always, 2500)))) is None
    assert log_offset(bounds, traffic(always[:0])) is None
    assert log_offset(bounds[:3], observed) is None
    assert log_offset(bounds[:1], observed) is None
    assert log_offset(np.repeat(bounds[:1], 50), observed) is None
    assert log_offset(bounds // 10**9 * 10**9, observed) is None  # whole seconds


def test_half_of_the_traffic_or_of_the_log_is_enough() -> None:
    bounds, observed = training(80)
    late = observed.start_ns[observed.start_ns > bounds[40]]
    for log, windows in ((bounds, late), (bounds[:40], observed.start_ns), (bounds[40:], observed.start_ns)):
        found = log_offset(log - HOUR, traffic(windows))
        assert found is not None and abs(found.offset_ns - HOUR) < 3 * MS


def test_a_worker_that_still_sends_is_not_misread() -> None:
    """A parameter server's step ends when the answer is in the socket's buffer; it goes out for 25 ms more."""
    bounds, observed = training(jitter_ms=5)
    sending = (np.floor(bounds[1:, None] / MS) + np.arange(25)).ravel().astype(np.int64) * MS
    everything = np.union1d(observed.start_ns, sending)
    assert log_offset(bounds, traffic(everything, observed.start_ns)) is None  # the two kinds of pauses contradict
    assert log_offset(bounds, traffic(everything, everything[:0])) is None  # nothing known of what it receives


def test_two_batches_a_round_are_one_end() -> None:
    bounds, observed = training()
    twice = np.sort(np.concatenate((bounds, bounds[1:] - 1000)))
    found = log_offset(twice, observed)
    assert found is not None and not is_off(found)


def test_windows_of_another_width() -> None:
    bounds, observed = training()
    coarse = np.unique(observed.start_ns // (5 * MS)) * 5 * MS
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
        "retransmitted_bytes": [0] * 5,
    }
    path = tmp_path / "cells.parquet"
    pq.write_table(pa.table(cells, schema=CELLS), path)
    columns = {"flow": [0, 1], "src_ip": [B, A], "dst_ip": [A, B], "protocol": [6, 6]}
    arrays = [pa.array(columns.get(field.name, [None, None]), field.type) for field in FLOW_FACTS]
    file = CaptureFacts(Path("x.pcap"), "test", 0, flows=pa.Table.from_arrays(arrays, schema=FLOW_FACTS))
    file.cells = path
    at_b, at_a = (read_traffic([file, CaptureFacts(path, "test", 0)], host, 1000) for host in (B, A))
    assert at_b.start_ns.tolist() == [5000, 7000, 9000]
    assert at_b.payload_bytes.tolist() == [10, 50, 0]
    assert at_b.received_ns.tolist() == [5000, 7000, 9000]
    assert at_a.received_ns.tolist() == []
    assert read_traffic([], B, 1000).start_ns.size == 0


# --- the sample


def read(path: Path, cells: Path) -> CaptureFacts:
    return numba_engine.read_capture(path, ReadOptions(MS, np.empty(0, np.int64), cells))


def sample_logs(run: Path, tmp_path: Path) -> list[tuple[Int64Array, Traffic]]:
    found = []
    for number, log in enumerate(read_logs(run, Messages())):
        file = read(next(run.glob(f"{log.worker}-tcpdump.pcap*")), tmp_path / f"{number}.parquet")
        found.append((log.bounds, read_traffic([file], f"10.10.0.{log.worker[-1]}", MS)))
    return found


@pytest.mark.parametrize(
    ("run", "estimated"),
    [
        ("mpi-mlp1-sgd-32-openmpi-0ms-ring-sll2", 4),
        pytest.param("torch-mlp1-sgd-32-gloo-0ms-ring-tso", 4, marks=pytest.mark.long),
        pytest.param("torch-mlp1-sgd-128-gloo-0ms-ring-tso", 4, marks=pytest.mark.long),
        ("torchp2p-mlp4-sgd-32-gloo-0ms-star-tso", 3),  # all but the root, which still sends then
        ("torch-mlp1-sgd-32-gloo-0ms-ring", 0),  # five steps are too few
    ],
)
@pytest.mark.long_after(1)
def test_sample_runs(run: str, estimated: int, sample: Path, tmp_path: Path) -> None:
    """All workers and captures share one clock (tests/traces/README.md)."""
    logs = sample_logs(sample / run, tmp_path)
    for shift in (0, HOUR, -120 * MS):
        estimates = [log_offset(bounds - shift, observed) for bounds, observed in logs]
        found = [estimate for estimate in estimates if estimate is not None]
        assert len(found) == estimated
        assert all(abs(estimate.offset_ns - shift) < 5 * MS for estimate in found)
        assert all(is_off(estimate) == bool(shift) for estimate in found)
