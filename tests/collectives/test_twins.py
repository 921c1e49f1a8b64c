"""Calls of groups with as many bytes, what one of two hosts sends ahead, and frames that are no messages."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest

from ddnn_traces.collectives.kinds import collectives
from ddnn_traces.collectives.phases import Collective, measured, parts_of
from ddnn_traces.collectives.steps import Steps
from ddnn_traces.collectives.streams import Array, Stream

STEPS, STEP_NS, MB = 6, 200_000_000, 1_000_000


def found_of(flows: list[tuple[str, str, list[int]]], cuts: list[dict[int, tuple[int, int]]]) -> list[Collective]:
    """The collectives of phases: bytes of each flow, by its number. flows: hosts, and the messages of a step, which
    follow each other by 0.2 ms, and by 15 more behind each MB."""
    number, streams = np.arange(STEPS), []
    for src, dst, messages in flows:
        size: Array = np.tile(messages, STEPS)
        before = np.cumsum(messages) - messages
        first = (STEP_NS * number[:, None] + 200_000 * np.arange(len(messages)) + 15_000_000 * (before // MB)).ravel()
        start = np.cumsum(size) - size
        streams.append(Stream(len(streams), src, dst, start, size, first, first + 100_000, start + size))
    begin = STEP_NS * number
    sizes = {stream: float(sum(messages)) for stream, (*_, messages) in zip(streams, flows, strict=True)}
    steps = Steps(dict.fromkeys(streams, 0.0), sizes, number, begin, begin - STEP_NS // 2, number[:-1])
    parts = {stream: parts_of(stream, steps) for stream in streams}
    spans = [{streams[flow]: (float(low), float(high)) for flow, (low, high) in cut.items()} for cut in cuts]
    phases = [phase for span in spans if (phase := measured(span, steps, parts)) is not None]
    return collectives(steps, parts, phases)


def both_ways(pair: str, first: int, ends: list[int]) -> list[dict[int, tuple[int, int]]]:
    return [dict.fromkeys((first, first + 1), span) for span in itertools.pairwise([0, *ends])]


@pytest.mark.parametrize(
    ("others", "calls"),
    [
        ([2 * MB, 5 * MB // 2, 3 * MB, 4 * MB], 4),  # two without a pause between them, and one that pauses
        ([5 * MB // 2, 4 * MB], 1),  # pauses elsewhere
        ([4 * MB], 1),  # never pauses, as a data group's one call
    ],
)
def test_groups_with_as_many_bytes_have_the_same_calls(others: list[int], calls: int) -> None:
    flows = [(*hosts, [MB // 2] * 8) for pair in ("ab", "cd") for hosts in (pair, pair[::-1])]
    cuts = both_ways("ab", 0, [MB, 2 * MB, 3 * MB, 4 * MB]) + both_ways("cd", 2, others)
    found = found_of([(src, dst, sizes) for src, dst, sizes in flows], cuts)
    assert Counter("".join(sorted(one.hosts)) for one in found) == {"ab": 4, "cd": calls}
    if calls == 4:
        assert {(one.kind, one.tensor_bytes) for one in found} == {("all_reduce", MB)}


@pytest.mark.parametrize(("ahead", "kinds"), [(65_000, ["all_reduce"]), (2 * MB, ["all_reduce", "send"])])
def test_what_one_of_two_hosts_sends_ahead_is_of_their_all_reduce(ahead: int, kinds: list[str]) -> None:
    """A shaper lets a burst pass; stages of a pipeline send as much as they exchange."""
    flows = [("a", "b", [ahead, 4 * MB - ahead]), ("b", "a", [ahead, 4 * MB - ahead])]
    found = found_of(flows, [{0: (0, ahead)}, {0: (ahead, 4 * MB), 1: (0, 4 * MB)}])
    assert sorted(one.kind for one in found) == kinds
    assert (sum(one.tensor_bytes for one in found) == 4 * MB) == (kinds == ["all_reduce"])


def test_super_frames_are_no_messages() -> None:
    """A ring of 4 MiB, six messages of 1 MiB, in a capture that begins behind the SYN: whole frames of 45 segments look
    like messages, of several all-reduces."""
    message = [48, *[65_160] * 16, 2**20 - 16 * 65_160]
    flows = [(str(host), str((host + 1) % 4), message * 6) for host in range(4)]
    (one,) = found_of(flows, [dict.fromkeys(range(4), (0, 6 * (2**20 + 48)))])
    assert (one.kind, one.tensor_bytes) == ("all_reduce", pytest.approx(2**22, rel=0.003))
