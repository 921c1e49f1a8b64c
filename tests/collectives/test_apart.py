"""Jobs that are told apart: two on the same hosts at once, of which one hides the other or both look like one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from message_streams import CAPTURES, streams_of

from ddnn_traces.collectives import tables
from ddnn_traces.collectives.infer import infer
from ddnn_traces.collectives.streams import Stream

MS = 1_000_000
RUN = "torch-{}-sgd-32-gloo-normal-{}-n4"


def flow(number: int, src: str, dst: str, sizes: Sequence[int], times_ms: Sequence[float], takes_ms: float) -> Stream:
    """A flow with a message of each of these sizes at each of these times."""
    size, first = np.array(sizes), (MS * np.array(times_ms)).astype(np.int64)
    start = np.cumsum(size) - size
    return Stream(number, src, dst, start, size, first, first + int(takes_ms * MS), start + size)


def at_once(one: Sequence[Stream], other: Sequence[Stream], apart_ms: int) -> list[Stream]:
    """The flows of two runs, the middle of whose data is so far apart."""
    middle = [np.median(np.concatenate([s.first[s.size > 1000] for s in some])) for some in (one, other)]
    shift, number = int(middle[0] - middle[1]) + apart_ms * MS, 1 + max(stream.flow_id for stream in one)
    moved = [replace(s, flow_id=s.flow_id + number, first=s.first + shift, last=s.last + shift) for s in other]
    return [*one, *moved]


def shape(streams: Sequence[Stream]) -> list[tuple[int, list[tuple[str, tuple[str, ...]]]]]:
    """Steps, kinds and hosts of each job."""
    return sorted(
        (len(job.steps.whole), sorted((one.kind, tuple(sorted(one.hosts))) for one in job.collectives))
        for job in infer(streams)
    )


@pytest.mark.parametrize(
    ("one", "other", "apart_ms"),
    [
        (("blocks", "pipeline"), ("mlp4", "fsdp"), 10),
        pytest.param(("experts", "moe"), ("mlp4", "fsdp"), -30, marks=pytest.mark.long),
    ],
)
def test_jobs_that_are_in_phase_for_a_while_are_two(
    one: tuple[str, str], other: tuple[str, str], apart_ms: int
) -> None:
    """A step of one is about as long as one or two of the other: the flows of both have a common period."""
    first, second = (streams_of(CAPTURES / RUN.format(*run)) for run in (one, other))
    alone = [*shape(first), *shape(second)]
    assert len(alone) == 2
    assert shape(at_once(first, second, apart_ms)) == sorted(alone)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("rounds_of_a_ring_of_four", "tree_of_other_edges"),
        pytest.param("late_host_of_a_ring", "tree_of_other_edges", marks=pytest.mark.long),
        ("ring_with_loss", "two_lengths_and_their_sum"),
        pytest.param("steps_that_get_longer", "two_lengths_and_their_sum", marks=pytest.mark.long),
        pytest.param("late_host_of_experts", "validation_every_seven_steps", marks=pytest.mark.long),
    ],
)
def test_a_job_that_another_hides_is_found_in_what_this_leaves(one: str, other: str) -> None:
    """Of one alone, steps are found as no flow has a clear period; clear ones of the other are no reason to stop."""
    tables_ = (pq.read_table(Path(__file__).parent / f"{name}.parquet") for name in (one, other))
    first, second = ([tables._stream(flow, 0) for flow in tables._flows(table)] for table in tables_)
    alone = [*shape(first), *shape(second)]
    assert len(alone) == 2
    assert shape(at_once(first, second, 0)) == sorted(alone)


def test_lost_messages_divide_no_job() -> None:
    """Halving and doubling by four hosts, captures without 1% of the messages. Exchanges with one partner and with the
    other would be jobs of 6 and 12 steps; few pauses show them."""
    table = pq.read_table(Path(__file__).parent / "halving_doubling_with_lost_messages.parquet")
    assert len(shape([tables._stream(flow, 0) for flow in tables._flows(table)])) < 2


def test_a_chief_that_only_sends_control_messages_leaves_a_job_whole() -> None:
    """A parameter server with two workers, and a host that writes 3.5 kB to both workers in each step."""
    times = 100.0 * np.arange(19)
    links = [("ps", "w1"), ("ps", "w2"), ("w1", "ps"), ("w2", "ps")]
    streams = [flow(place, *link, [940_000] * 19, times + 20 * place, 10) for place, link in enumerate(links)]
    (alone,) = shape(streams)
    assert alone == (18, [("all_reduce", ("ps", "w1", "w2"))])
    chief = [flow(8 + place, "chief", worker, [3_500] * 19, times, 1) for place, worker in enumerate(("w1", "w2"))]
    assert shape([*streams, *chief]) == [alone]
