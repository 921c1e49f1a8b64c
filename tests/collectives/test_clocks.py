"""Clocks of hosts that differ: found by answers, and taken off where collectives are inferred."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from tools import script

import ddnn_traces
from ddnn_traces.collectives.clocks import Way, offsets
from ddnn_traces.collectives.streams import MS
from ddnn_traces.query.dataset import Dataset

CAPTURES = Path(__file__).parents[2] / "data" / "captures"
HOSTS = [f"10.0.0.{number}" for number in range(1, 6)]
RING = [(host, (host + 1) % len(HOSTS)) for host in range(len(HOSTS))]
TREE = [(0, 1), (1, 0), (0, 2), (2, 0), (2, 3), (3, 2), (2, 4), (4, 2)]


def way(src: int, dst: int, ahead_ms: list[float], delay_ms: float) -> Way:
    """Bursts of data of 3 to 30 ms, each host by its own clock; what comes back is known by windows of 1 ms."""
    random = np.random.default_rng(src * 10 + dst)
    first = 1_700_000_000_000 * MS + np.cumsum(random.uniform(80, 250, 40)) * MS
    last = first + random.uniform(3, 30, 40) * MS
    apart = (ahead_ms[dst] - ahead_ms[src] + delay_ms) * MS
    back = np.concatenate([np.arange(a, b + MS / 2, MS / 2) for a, b in zip(first + apart, last + apart, strict=True)])
    windows = np.unique(back // MS) * MS + MS / 2
    return Way(HOSTS[src], HOSTS[dst], first.astype(np.int64), last.astype(np.int64), windows.astype(np.int64))


@pytest.mark.parametrize("pairs", [RING, TREE])
@pytest.mark.parametrize("delay_ms", [0.05, 20])
@pytest.mark.parametrize("ahead_ms", [[0, 5, -5, 3, -4], [-80, 40, 7, 0, 31]])
def test_offsets_are_found(pairs: list[tuple[int, int]], delay_ms: float, ahead_ms: list[float]) -> None:
    found = offsets([way(src, dst, ahead_ms, delay_ms) for src, dst in pairs])
    if max(ahead_ms[src] - ahead_ms[dst] for src, dst in pairs) < delay_ms + 2:
        assert found == {}  # no answer comes before its data
        return
    expected = np.array(ahead_ms) - np.median(ahead_ms)
    assert [found[host] / MS for host in HOSTS] == pytest.approx(expected, abs=0.3)


@pytest.mark.parametrize("pairs", [RING, TREE])
def test_delays_alone_are_no_offsets(pairs: list[tuple[int, int]]) -> None:
    delays = np.random.default_rng(1).uniform(0.05, 60, len(pairs)).tolist()
    assert offsets([way(*pair, [0] * 5, delay) for pair, delay in zip(pairs, delays, strict=True)]) == {}


def test_groups_without_a_way_between_them_are_not_corrected() -> None:
    assert offsets([way(src, dst, [0, 9, 0, 9, 0], 0.1) for src, dst in [(0, 1), (1, 0), (2, 3), (3, 2)]]) == {}


def kinds(dataset: Dataset) -> Counter[tuple[str, str]]:
    return Counter(dataset.query("collectives").select("kind", "hosts").rows())


@pytest.mark.parametrize(
    "run", ["torch-mlp4-sgd-32-gloo-normal-fsdp-n4", "torch-blocks-sgd-32-gloo-normal-tensor_data-n4"]
)
@pytest.mark.long_after(1)
def test_captures_of_clocks_that_differ_have_the_same_collectives(run: str, tmp_path: Path) -> None:
    for name in ("right", "off"):
        (tmp_path / name).mkdir()
        for number, capture in enumerate(sorted((CAPTURES / run).glob("*.pcap.xz"))):
            ahead = [0, 7, -5, 3][number] * MS * (name == "off")
            (tmp_path / name / capture.stem).write_bytes(script("benchmarks/moved_clocks.py").moved(capture, ahead))
    with (
        ddnn_traces.ingest(tmp_path / "right", tmp_path / "right-dataset") as right,
        ddnn_traces.ingest(tmp_path / "off", tmp_path / "off-dataset") as off,
    ):
        assert kinds(off) == kinds(right)
        told = off.query("collectives")["evidence"].str.extract(r"clocks of hosts differ by ([0-9.]+) ms").cast(float)
        assert told.to_list() == pytest.approx([12] * len(told), abs=0.5)
        assert not right.query("collectives")["evidence"].str.contains("clocks").any()
        first = "SELECT min(first_ns) FROM collective_transfers WHERE src_ip = '10.10.0.2'"
        assert off.sql(first).item() - right.sql(first).item() == 7 * MS  # the captures' times
