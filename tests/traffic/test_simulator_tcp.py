"""Samples a second in closed form."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from ddnn_traces.errors import UsageError
from ddnn_traces.query.dataset import Dataset
from ddnn_traces.traffic.collectives import Collective
from ddnn_traces.traffic.simulator import closed_forms as tcp

HEADERS = 1 + 66 / 1448


def test_without_delay_a_transfer_takes_its_bytes_at_the_rate() -> None:
    assert tcp.transfer_ms(1_000_000, 1000, 0) == pytest.approx(8 * HEADERS)


def test_a_window_a_round_trip_is_the_most() -> None:
    """1 MB at 100,000 bytes each 20 ms: 200 ms, and the last byte travels 10."""
    assert tcp.transfer_ms(1_000_000, 10_000, 10, window_bytes=100_000) == pytest.approx(210)


def test_slow_start_doubles_each_round_trip() -> None:
    """10, 20, 40, ... segments each 100 ms; 100 are all sent in the fourth, which is not full: the rest at the rate."""
    size = 100 * 1448
    found = tcp.transfer_ms(size, 1000, 50, window_bytes=10**9, slow_start=True)
    rest = (100 - 70) * 1448 * 8 * HEADERS / 1e6
    assert found == pytest.approx(3 * 100 + rest + 50, rel=1e-6)


def test_the_law_of_mathis() -> None:
    """1448 bytes, 100 ms, 1%: 1448 * 8 / 0.1 * sqrt(150) bit/s."""
    assert tcp.mathis_mbit(100, 0.01) == pytest.approx(1448 * 8 / 0.1 * math.sqrt(150) / 1e6)
    assert tcp.mathis_mbit(100, 0) == tcp.mathis_mbit(0, 0.5) == math.inf


def test_a_step_is_computation_and_rounds() -> None:
    found = tcp.step_ms(Collective("star", 2, "server"), 1_000_000, 30, 1000, 1, 0)
    assert found == pytest.approx(30 + 2 * (2 * 8 * HEADERS + 1))


def test_throughput_stands_beside_what_was_measured() -> None:
    dataset = Path(__file__).parents[2] / "data" / "dataset"
    values = {
        "model_bytes": 4835752, "compute_ms": 130, "batch_size": 32, "workers": 1, "topology": "star",
        "shape": "server",
        "bandwidth_mbit": [250, 500, 1000], "delay_ms": [1],
    }  # fmt: skip
    with Dataset(dataset) as opened:
        rows = tcp.throughput(values, opened)
    assert rows["bandwidth_mbit"].to_list() == [250, 500, 1000, 1000]  # bbr and cubic
    assert rows["measured_samples_per_s"].null_count() == 0
    ratio = rows["samples_per_s"] / rows["measured_samples_per_s"]
    assert ratio.is_between(0.9, 1.2).all()  # by one chosen computation, at three rates


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"modelbytes": 1}, "modelbytes: no such key"),
        ({}, "model_bytes = None"),
        ({"model_bytes": 10, "compute_ms": -1}, "compute_ms = -1"),
        ({"model_bytes": 10, "compute_ms": 1, "bandwidth_mbit": [0]}, "bandwidth_mbit = 0.0; it must be above 0"),
        ({"model_bytes": 10, "compute_ms": 1, "delay_ms": [-1]}, "delay_ms = -1.0"),
        ({"model_bytes": 10, "compute_ms": 1, "loss_pct": [100]}, "loss_pct = 100.0"),
        ({"model_bytes": 10, "compute_ms": 1, "slow_start": 3}, "slow_start = 3"),
    ],
)
def test_wrong_keys_and_values_are_named(values: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        tcp.throughput(values)
