"""Steps of flows that pause all the time, laid over each other."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from ddnn_traces.collectives import tables
from ddnn_traces.collectives.folded import in_folded_steps
from ddnn_traces.collectives.streams import Stream


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "steps", "hosts", "tensor_bytes"),
    [
        ("ring_of_nine_with_a_slow_link", 25, 9, 9 << 20),  # 120 Mbit/s beside 400, one way
        ("steps_that_get_longer", 45, 4, 4 << 20),  # hosts compute for 100 ms in the first step, 370 ms in the last
    ],
)
def test_a_ring_whose_flows_pause_all_the_time_has_its_steps(
    name: str, steps: int, hosts: int, tensor_bytes: int
) -> None:
    """An all-reduce a step on links with a shaper, of which no job was seen."""
    [job] = tables.jobs_of("run", pq.read_table(Path(__file__).parent / f"{name}.parquet")).to_pylist()
    [one] = job["collectives"]
    assert (one["kind"], one["algorithm"], len(one["hosts"])) == ("all_reduce", "ring", hosts)
    assert one["tensor_bytes"] == pytest.approx(tensor_bytes, rel=0.001)
    assert {transfer["step"] for transfer in one["transfers"]} == set(range(steps))


def test_what_recurs_by_chance_in_a_ring_with_loss_is_no_step() -> None:
    """30 all-reduces of 4 MiB with 1% of one host's packets lost, which were 4 steps of seven."""
    [job] = tables.jobs_of("run", pq.read_table(Path(__file__).parent / "ring_with_loss.parquet")).to_pylist()
    [one] = job["collectives"]
    assert (one["kind"], one["tensor_bytes"]) == ("all_reduce", pytest.approx(4 << 20, rel=0.001))
    assert {transfer["step"] for transfer in one["transfers"]} == set(range(30))


@pytest.mark.parametrize(
    ("own_ms", "steps", "found"),
    [
        (60, 20, 20),
        (0, 20, None),  # rounds alone are no steps
        (5, 20, None),  # nor what chance makes a little longer
        (60, 9, None),  # too few for a median
    ],
)
def test_folded_steps_are_those_behind_the_longest_silences(own_ms: int, steps: int, found: int | None) -> None:
    """Six equal rounds a step of a ring of four, before each of which each host waits for a random time by itself."""
    random, streams = np.random.default_rng(3), []
    size = np.full(6 * steps, 200_000)
    start = np.cumsum(size) - size
    for host in range(4):
        wait = random.exponential(30e6, 6 * steps) + 1e6
        wait[::6] += own_ms * 1e6
        first = np.cumsum(wait + 4e6).astype(np.int64)
        streams.append(
            Stream(host, str(host), str((host + 1) % 4), start, size, first, first + 4_000_000, start + size)
        )
    job = in_folded_steps(streams)
    assert (job and len(job[1].whole)) == found
