"""Faults that slow a run: each is seen in the captures where it was made, by times, bytes and numbers of packets."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import independent
import numpy as np
import pytest
from test_runs import toy_python

import ddnn_traces
from ddnn_traces import testbed
from ddnn_traces.messages import Messages
from ddnn_traces.query.dataset import Dataset
from ddnn_traces.testbed.programs.slowness import added_s

BURST_BYTES = 262_144
MATRIX = """
[defaults]
program = "star"
workers = 3
steps = 10
pause_ms = 30
measure = false
[[runs]]
name = "slow_host"
fault = { kind = "slow_host", host = "worker-2", strength = 80, from_step = 3, to_step = 6 }
[[runs]]
name = "slow_link"
fault = { kind = "slow_link", host = "worker-2", strength = 10 }
[[runs]]
name = "slow_pair"
fault = { kind = "slow_link", host = "worker-1", peer = "worker-2", direction = "out", strength = 10 }
[[runs]]
name = "delay"
fault = { kind = "delay", host = "worker-2", direction = "in", strength = 30 }
capture.direction = "both"
[[runs]]
name = "loss"
fault = { kind = "loss", host = "worker-2", direction = "out", strength = 3 }
capture = { offload = false, direction = "both" }
[[runs]]
name = "background"
fault = { kind = "background", host = "worker-2", strength = 20, from_step = 3, to_step = 6 }
"""


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        ("", [0, 0, 0, 0, 0]),
        ("slow_host 20 1 3 5", [0, 0.02, 0.02, 0.02, 0]),
        ("slow_host 20 3 -1 5", [0, 0, 0, 0.02, 0.02]),
        ("pause 20 0 -1 2", [0.02, 0, 0.02, 0, 0.02]),
        ("growing 20 2 -1 5", [0, 0, 0.02, 0.04, 0.06]),
        ("late_start 20 0 -1 5", [0.02, 0, 0, 0, 0]),
    ],
)
def test_a_program_sleeps_in_the_steps_of_its_fault(given: str, seconds: list[float]) -> None:
    assert [added_s(given, step) for step in range(5)] == pytest.approx(seconds)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("faults")
    (folder / "matrix.toml").write_text(MATRIX)
    outcomes = testbed.run(folder / "matrix.toml", folder / "out", Messages(), {"torch": toy_python(folder)})
    assert [outcome for outcome in outcomes if outcome.outcome != "made"] == []
    return folder / "out"


@pytest.fixture(scope="module")
def dataset(runs: Path) -> Dataset:
    return ddnn_traces.ingest(runs, runs.parent / "dataset")


def sent(folder: Path, source: int, to: int) -> Any:
    """Packets with payload from a worker to another, in the order of time."""
    packets = independent.read_capture(folder / f"worker-{source}-tcpdump.pcap.gz")
    addresses = [independent.address(f"10.10.0.{number}") for number in (source, to)]
    return packets[(packets["src"] == addresses[0]) & (packets["dst"] == addresses[1]) & (packets["payload"] > 0)]


def fault(folder: Path) -> Mapping[str, Any]:
    facts: Mapping[str, Any] = tomllib.loads((folder / "run.toml").read_text())["origin"]["fault"]
    return facts


@pytest.mark.testbed
def test_truth_is_in_the_table_runs(dataset: Dataset) -> None:
    columns = "fault_kind, fault_host, fault_peer, fault_strength, fault_from_step, fault_to_step"
    assert dataset.sql(f"SELECT run_id, {columns} FROM runs ORDER BY run_id").rows() == [
        ("background", "background", "worker-2", None, 20.0, 3, 6),
        ("delay", "delay", "worker-2", None, 30.0, 0, 9),
        ("loss", "loss", "worker-2", None, 3.0, 0, 9),
        ("slow_host", "slow_host", "worker-2", None, 80.0, 3, 6),
        ("slow_link", "slow_link", "worker-2", None, 10.0, 0, 9),
        ("slow_pair", "slow_link", "worker-1", "worker-2", 10.0, 0, 9),
    ]


@pytest.mark.testbed
def test_a_slow_host_sends_later_in_these_steps(runs: Path) -> None:
    """From the end of an answer to the next step's first packet: 30 ms of pause, and 80 of the fault."""
    up, down = sent(runs / "slow_host", 2, 1), sent(runs / "slow_host", 1, 2)
    bounds = [np.searchsorted(np.cumsum(packets["payload"]), 200_000 * np.arange(1, 10)) for packets in (up, down)]
    waited_ms = (up["time"][bounds[0] + 1] - down["time"][bounds[1]]) / 1e6  # before steps 1 to 9
    assert waited_ms[2:6].min() > 110
    assert waited_ms[[0, 1, 6, 7, 8]].min() < 110


@pytest.mark.testbed
@pytest.mark.parametrize(("name", "slow", "fast"), [("slow_link", (2, 1), (3, 1)), ("slow_pair", (1, 2), (1, 3))])
def test_a_slow_link_passes_no_more_than_its_rate(
    runs: Path, name: str, slow: tuple[int, int], fast: tuple[int, int]
) -> None:
    """Beyond the bucket: of 2 MB of 10 steps 1.7 MB at 10 Mbit/s. A way beside it passes a step's 200 KB faster."""

    def seconds_a_step(way: tuple[int, int]) -> Any:
        packets = sent(runs / name, *way)
        ends = np.searchsorted(np.cumsum(packets["payload"]), 200_000 * np.arange(1, 11))
        begins = np.r_[0, ends[:-1] + 1]
        return (packets["time"][ends] - packets["time"][begins]) / 1e9

    packets = sent(runs / name, *slow)
    took_s = (packets["time"][-1] - packets["time"][0]) / 1e9
    assert packets["wire"].sum() <= BURST_BYTES + 10e6 / 8 * took_s + 65_536  # the last frame may begin before
    assert seconds_a_step(fast).min() < np.median(seconds_a_step(slow)[3:])


@pytest.mark.testbed
def test_a_delay_is_in_the_round_trip_of_its_host(runs: Path) -> None:
    def round_trip_ms(worker: int) -> float:
        """From SYN to SYN-ACK, where the worker captures both."""
        packets = independent.read_capture(runs / "delay" / f"worker-{worker}-tcpdump.pcap.gz")
        times = [packets["time"][packets["flags"] & 0x12 == flags][-1] for flags in (0x02, 0x12)]
        return float(times[1] - times[0]) / 1e6

    assert round_trip_ms(2) >= 30
    assert round_trip_ms(3) < round_trip_ms(2)


@pytest.mark.testbed
def test_frames_are_lost_on_their_way_only(runs: Path) -> None:
    """Packets that the sender captured and the receiver did not."""

    def lost(source: int, to: int) -> int:
        ends = [independent.address(f"10.10.0.{number}") for number in (source, to)]
        files = [runs / "loss" / f"worker-{number}-tcpdump.pcap.gz" for number in (source, to)]
        of_way = [
            int(((packets["src"] == ends[0]) & (packets["dst"] == ends[1])).sum())
            for packets in map(independent.read_capture, files)
        ]
        return of_way[0] - of_way[1]

    assert lost(2, 1) > 10  # of 1,400 packets 3%
    assert [lost(1, 2), lost(3, 1), lost(1, 3)] == [0, 0, 0]


@pytest.mark.testbed
def test_background_is_sent_by_another_host_in_these_steps(runs: Path, dataset: Dataset) -> None:
    facts = fault(runs / "background")
    rows = dataset.sql(
        "SELECT src_ip, dst_ip, protocol, payload_bytes, first_seen_ns / 1e9, last_seen_ns / 1e9 FROM flows "
        "JOIN hosts ON flows.run_id = hosts.run_id AND src_ip = host_ip WHERE label = 'other-1' AND dst_port = 9"
    ).rows()
    ((*flow, first_s, last_s),) = rows
    assert flow == ["10.10.0.4", "10.10.0.2", 17, facts["sent"]["other-1"]["bytes"]]
    assert facts["began_after_steps"] >= 3
    assert facts["ended_after_steps"] >= 7
    assert facts["began_s"] - 1 < first_s < last_s < facts["ended_s"] + 1
