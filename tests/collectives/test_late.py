"""The wait for a late host within a collective, beside other silences that recur once a step."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from ddnn_traces.collectives import tables
from ddnn_traces.collectives.late import waits_for_one
from ddnn_traces.collectives.streams import Stream

STEPS, STEP_MS = 10, 300


def test_a_step_begins_before_the_wait_for_a_late_host() -> None:
    """DistributedDataParallel on gloo, three hosts that compute for 61 ms, one of them for 161: it is silent while the
    first of the others has sent a third of its data and waits, for longer than all are silent before the step."""
    table = pq.read_table(Path(__file__).parent / "late_host_of_three.parquet")
    [job] = tables.jobs_of("run", table).to_pylist()
    [one] = job["collectives"]
    assert (one["kind"], one["tensor_bytes"]) == ("all_reduce", pytest.approx(2_380_840, rel=0.001))
    source = {row["flow_id"]: row["src_ip"] for row in table.select(["flow_id", "src_ip"]).to_pylist()}
    first: dict[int, dict[str, int]] = {}
    for transfer in one["transfers"]:
        first.setdefault(transfer["step"], {})[source[transfer["flow_id"]]] = transfer["first_ns"]
    late = [times["10.99.0.2"] - min(times.values()) for times in first.values()]
    assert np.median(late) == pytest.approx(100e6, rel=0.1)


def flows_of(messages: list[tuple[float, str, str, int]]) -> list[Stream]:
    """The flows of ten steps of these messages: when each begins, ms, its hosts, and kB that take 0.1 ms each ten."""
    streams = []
    for number, hosts in enumerate(sorted({message[1:3] for message in messages})):
        sent = sorted((ms, kb) for ms, *ends, kb in messages if tuple(ends) == hosts)
        first = np.concatenate([1e6 * (step * STEP_MS + np.array([ms for ms, _ in sent])) for step in range(STEPS)])
        size = np.tile([1000 * kb for _, kb in sent], STEPS)
        start = np.cumsum(size) - size
        streams.append(
            Stream(number, *hosts, start, size, first.astype(int), (first + 10 * size).astype(int), start + size)
        )
    return streams


def silence(end_ms: float, length_ms: float) -> tuple[np.ndarray, np.ndarray]:
    end = 1e6 * (STEP_MS * np.arange(STEPS) + end_ms)
    return end, end - 1e6 * length_ms


# three hosts on a ring: two begin at 60 ms, the late one, b, at 160
RING = [(60, "a", "c", 100), (160, "b", "a", 400), (161, "a", "c", 300), (161, "c", "b", 400)]


@pytest.mark.parametrize(
    ("messages", "wait", "other", "found"),
    [
        (RING, (160, 98), (60, 62), True),
        (RING, (160, 398), (60, 62), False),  # not comparable
        ([*RING, (61, "b", "a", 10)], (160, 98), (60, 62), False),  # b is not late: it has sent
        ([*RING, (62, "a", "c", 1900)], (160, 98), (60, 62), False),  # most of the step lies before
        ([*RING, (100, "c", "b", 50)], (160, 59), (60, 62), False),  # c computes in between, as a stage of a pipeline
        # a fast host sends its first part alone: the step begins with it, not behind what it then waits for
        ([(100, "b", "a", 100), (180, "a", "c", 400), (180, "c", "b", 400), (181, "b", "a", 300)],
         (100, 99), (180, 79), False),
    ],
)  # fmt: skip
def test_only_who_has_sent_nothing_is_waited_for(
    messages: list[tuple[float, str, str, int]], wait: tuple[float, float], other: tuple[float, float], found: bool
) -> None:
    assert waits_for_one(flows_of(messages), silence(*wait), silence(*other)) is found


def test_no_host_is_waited_for_that_others_are_as_often_before() -> None:
    """Behind the pause each host in turn begins first."""
    streams = flows_of(RING)
    begins, _ = silence(160, 98)
    for host in "abc":
        mine = next(stream for stream in streams if stream.src == host)
        for step in range("abc".index(host), STEPS, 3):
            mine.first[np.searchsorted(mine.first, begins[step])] = begins[step]
    late = next(stream for stream in streams if stream.src == "b")
    late.first[np.arange(STEPS) % 3 != 1] += 500_000
    assert not waits_for_one(streams, (begins, begins - 98e6), silence(60, 62))
