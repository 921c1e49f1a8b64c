"""The jobs of a run with their steps and collectives, from its messages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ddnn_traces.collectives.folded import in_folded_steps
from ddnn_traces.collectives.irregular import calls_of, irregular_parts, is_exchange
from ddnn_traces.collectives.jobs import find_jobs
from ddnn_traces.collectives.kinds import collectives, unequal_all_to_all
from ddnn_traces.collectives.periods import CLEAR
from ddnn_traces.collectives.phases import Collective, Parts, measured, parts_of, phases
from ddnn_traces.collectives.steps import Job as Flows
from ddnn_traces.collectives.steps import Steps, in_few_steps, in_steps, is_closed
from ddnn_traces.collectives.streams import Stream, hosts_of, with_data


@dataclass(frozen=True)
class Job:
    """A job: its steps, the messages of its flows by step, and the collectives of a step in their order."""

    steps: Steps
    parts: dict[Stream, Parts]
    collectives: tuple[Collective, ...]

    @property
    def streams(self) -> tuple[Stream, ...]:
        return tuple(self.parts)

    @property
    def hosts(self) -> tuple[str, ...]:
        return tuple(sorted(hosts_of(self.streams)))


def infer(streams: Sequence[Stream]) -> list[Job]:
    """The jobs of a run in the order in which their first steps begin; none where no flow repeats its bytes.

    streams: of the run, with times from its start, ns.
    """
    streams = with_data(streams)
    found, left = find_jobs(streams)
    jobs = []
    in_their_steps = [one for one in map(in_steps, filter(is_closed, found)) if one and len(one[1].whole)]
    if not in_their_steps and streams and (whole := in_few_steps(streams) or in_folded_steps(streams)):
        in_their_steps, left = [whole], []
    elif len(in_their_steps) == 1 and (whole := _with_clearer_steps(*in_their_steps[0], streams)):
        in_their_steps = [whole]
    for job, steps in in_their_steps:
        parts = {stream: parts_of(stream, steps) for stream in job}
        hosts = hosts_of(job)
        irregular = irregular_parts([stream for stream in left if hosts.issuperset(stream.hosts)], steps)
        left = [stream for stream in left if stream not in irregular]
        whole_steps = replace(
            steps,
            first=steps.first | dict.fromkeys(irregular, 0.0),
            size=steps.size | {stream: float(part.stop.max()) for stream, part in irregular.items()},
        )
        jobs.append(Job(whole_steps, parts | irregular, tuple(_collectives(steps, parts, whole_steps, irregular))))
    return sorted(jobs, key=lambda job: (job.steps.start[0], min(stream.flow_id for stream in job.streams)))


def _collectives(
    steps: Steps, parts: dict[Stream, Parts], whole_steps: Steps, irregular: dict[Stream, Parts]
) -> list[Collective]:
    """The collectives of a step in their order. irregular: flows without a period; whole_steps: steps with these."""
    everything = parts | irregular
    if not is_exchange(irregular):
        return collectives(whole_steps, everything, phases(whole_steps, everything), irregular)
    bursts = [measured(spans, whole_steps, everything) for spans in calls_of(irregular)]
    exchanged = [unequal_all_to_all(phase) for phase in bursts if phase is not None]
    return sorted([*collectives(steps, parts, phases(steps, parts)), *exchanged], key=lambda one: one.phases[0].order)


def _with_clearer_steps(job: Flows, steps: Steps, streams: Sequence[Stream]) -> tuple[Flows, Steps] | None:
    """All flows of a run in folded steps, where these are the flows of its job, some have no clear period, and the job
    has another number of steps: what recurs by chance is several steps, or a round. A capture may cut two of them."""
    if len(job) < len(streams) or min(period.score for period in job.values()) >= CLEAR:
        return None
    whole = in_folded_steps(streams)
    return whole if whole and abs(len(whole[1].whole) - len(steps.whole)) > 2 else None
