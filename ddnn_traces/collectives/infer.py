"""The jobs of a run with their steps and collectives, from its messages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ddnn_traces.collectives.apart import beside, jobs_in_steps, without
from ddnn_traces.collectives.irregular import calls_of, irregular_parts, is_exchange
from ddnn_traces.collectives.kinds import collectives, unequal_all_to_all
from ddnn_traces.collectives.phases import Collective, Parts, measured, parts_of, phases
from ddnn_traces.collectives.steps import Steps
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
    found = _jobs(with_data(streams))
    return sorted(found, key=lambda job: (job.steps.start[0], min(stream.flow_id for stream in job.streams)))


def _jobs(streams: Sequence[Stream]) -> list[Job]:
    """The jobs of these flows. What is left beside some is looked at alone: clear periods hide others."""
    in_their_steps, left = jobs_in_steps(streams)
    jobs = []
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
    rest = without(streams, [(job.parts, job.steps) for job in jobs])
    return [*jobs, *_jobs(with_data(beside(rest, in_their_steps)))] if jobs else []


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
