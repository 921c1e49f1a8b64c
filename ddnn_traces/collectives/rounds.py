"""Where rings change the length of their rounds: collectives without a pause between them, by their messages alone.

A collective on a ring of N hosts has N-1 equal rounds (Patarasuk and Yuan 2009). So each ends at as many equal parts of
its bytes, whatever pauses there are, and however many messages a round has.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ddnn_traces.collectives.phases import SAME_BYTES, Phase, common_ends
from ddnn_traces.collectives.steps import Steps
from ddnn_traces.collectives.streams import Array, Stream, groups

_SAME_END = 60.0  # bytes
_SAME_ROUND = 0.003  # of the bytes of a round
_MOST_STEPS = 50
_LEAST_ROUND = 500.0  # bytes
_MOST_RUNS = 1000  # of a step: a model has fewer layers

#: Bytes of a flow in each collective, from and to, counted from the start of the step.
Cut = list[tuple[float, float]]


@dataclass(frozen=True)
class _Run:
    """Equal rounds one after the other: where they begin in the step, bytes of a round, how many."""

    begin: float
    length: float
    count: int


def cuts(stream: Stream, least: int, phases: Sequence[Phase], steps: Steps) -> list[Cut]:
    """Ways to cut what a flow of a ring sends in a step into collectives; none where its messages do not tell.

    least: rounds of a collective, one less than hosts of the ring. phases: of the step. Equal collectives one after the
    other are told apart where a pause is between some, or, in the second way, where one of them is alone elsewhere in
    the step: hosts may pause within a collective, too.
    """
    runs = _runs(stream, steps, least)
    if runs is None:
        return []
    pauses = [phase.spans[stream][0] for phase in phases if stream in phase.spans]
    return [_cut(some, _calls(some, least)) for some in (_with_pauses(runs, pauses, least), runs)]


def _with_pauses(runs: Sequence[_Run], pauses: Sequence[float], least: int) -> list[_Run]:
    """The runs, divided at the pauses behind so many rounds, or a multiple."""
    found = []
    for run in runs:
        rounds = (np.array(pauses) - run.begin) / run.length
        whole = np.round(rounds / least).astype(int) * least
        is_between = (np.abs(rounds - whole) * run.length <= SAME_BYTES) & (whole > 0) & (whole < run.count)
        bounds = [0, *np.unique(whole[is_between]).tolist(), run.count]
        found += [_Run(run.begin + a * run.length, run.length, b - a) for a, b in itertools.pairwise(bounds)]
    return found


def _runs(stream: Stream, steps: Steps, least: int) -> list[_Run] | None:
    """What a flow sends in a step as runs of at least so many equal rounds; None where its messages are none."""
    begins = steps.first[stream] + steps.whole[:_MOST_STEPS] * steps.size[stream]
    sure = stream.sure if len(stream.sure) else stream.ends
    ends = np.array([0.0, *common_ends(sure, begins, (_SAME_END, steps.size[stream] + _SAME_END))])
    for is_longest in (False, True):
        found: list[_Run] = []
        place = 0
        while place < len(ends) - 1 and len(found) < _MOST_RUNS and (some := _runs_at(place, ends, least, is_longest)):
            run, messages = max(some, key=lambda one: (one[1] * one[0].count, -one[1]))
            place += messages * run.count
            found.append(run)
        if place == len(ends) - 1:
            return found
    return None


def _runs_at(place: int, ends: Array, least: int, are_all: bool) -> list[tuple[_Run, int]]:
    """The runs that begin at one of these ends, with the messages of a round: that of the fewest, or all. A round may
    have several, of which the last one is shorter."""
    runs = []
    for messages in range(1, (len(ends) - 1 - place) // least + 1):
        bounds = ends[place::messages]
        length = (bounds[least] - bounds[0]) / least
        is_even = np.abs(bounds - bounds[0] - length * np.arange(len(bounds))) <= _SAME_END
        count = (len(bounds) if is_even.all() else int(np.argmin(is_even))) - 1
        if count >= least and length > _LEAST_ROUND:
            runs.append((_Run(float(bounds[0]), length, count - count % least), messages))
            if not are_all:
                break
    return runs


def _calls(runs: Sequence[_Run], least: int) -> list[int]:
    """How many equal collectives each run is: rounds of one length are as many in each."""
    classes = groups(np.sort(np.log([run.length for run in runs])), _SAME_ROUND)
    of_run = np.empty(len(runs), int)
    order = np.argsort([run.length for run in runs], kind="stable")
    for same in classes:
        counts = [runs[place].count for place in order[same]]
        of_run[order[same]] = max(least, math.gcd(*counts))
    return [run.count // each for run, each in zip(runs, of_run.tolist(), strict=True)]


def _cut(runs: Sequence[_Run], calls: Sequence[int]) -> Cut:
    """The bytes of each collective."""
    bounds = [
        np.linspace(run.begin, run.begin + run.length * run.count, several + 1)
        for run, several in zip(runs, calls, strict=True)
    ]
    return [pair for some in bounds for pair in itertools.pairwise(some.tolist())]
