"""Jobs that are told apart: those with steps of their own, two that look like one, and what one hides of another."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from ddnn_traces.collectives.folded import in_folded_steps
from ddnn_traces.collectives.jobs import are_between, find_jobs
from ddnn_traces.collectives.periods import ALWAYS, CLEAR, SAME_SIZE
from ddnn_traces.collectives.steps import PRESENT, Job, Steps, in_few_steps, in_steps, is_closed, share_of_equal
from ddnn_traces.collectives.streams import SMALL, Stream, groups, hosts_of, with_data, without_control

_EVEN = 0.9  # share of steps with the usual bytes: of one job 0.95 and more, of two that look like one 0.67 and 0.87
_MOST_DIVISIONS = 64  # of six sizes of flows there are 62
_FEW = 10  # messages: equal parts of fewer are chance
_MOST_FLOWS = 256  # to look for the jobs of a division takes seconds

InSteps = tuple[Job, Steps]


def jobs_in_steps(streams: Sequence[Stream]) -> tuple[list[InSteps], list[Stream]]:
    """The jobs of these flows that have steps, with these, and the flows that have no period."""
    jobs, left, uneven = _even_jobs(streams)
    for job, _ in uneven:
        jobs += _divided(job, without(streams, jobs)) if without(job, jobs) else []
    if not jobs and streams and (few := in_few_steps(streams)):
        return [few], []
    jobs += [one for job, one in uneven if one and len(without(job, jobs)) == len(job)]
    if not jobs:
        return ([whole], []) if streams and (whole := in_folded_steps(streams)) else ([], left)
    jobs = [_in_clearer_steps(one, without(streams, [other for other in jobs if other is not one])) for one in jobs]
    return jobs, without(left, jobs)


def _even_jobs(streams: Sequence[Stream]) -> tuple[list[InSteps], list[Stream], list[tuple[Job, InSteps | None]]]:
    """The jobs of these flows that have even steps, the flows without a period, and the other jobs with their steps."""
    found, left = find_jobs(streams)
    jobs: list[InSteps] = []
    uneven: list[tuple[Job, InSteps | None]] = []
    for job in filter(is_closed, map(_between_hosts_with_data, found)):
        one = _with_steps(job)
        if one and _evenness(*one) >= _EVEN:
            jobs.append(one)
        else:
            uneven.append((job, one))
    return jobs, left, uneven


def without(streams: Iterable[Stream], jobs: Iterable[tuple[Iterable[Stream], Steps]]) -> list[Stream]:
    """The flows of none of the jobs. A job may have a flow without some of its messages."""
    known = {stream.flow_id for job, _ in jobs for stream in job}
    return [stream for stream in streams if stream.flow_id not in known]


def beside(streams: Iterable[Stream], jobs: Iterable[InSteps]) -> list[Stream]:
    """The flows without those between hosts of a job that send a few messages, or nearly all within the time of a step,
    as its first parameters, or between few of its steps, as a validation."""
    for job, steps in jobs:
        hosts, step = hosts_of(job), float(np.median(np.diff(steps.start))) if len(steps.start) > 1 else 0.0
        streams = [
            one
            for one in streams
            if not hosts.issuperset(one.hosts)
            or (np.sum(one.size > SMALL) >= _FEW and _duration(one) > step and not are_between(job, [one]))
        ]
    return list(streams)


def _duration(stream: Stream) -> float:
    """Time in which a flow sends nearly all of its bytes, ns."""
    sent = np.cumsum(stream.size) / stream.size.sum()
    low, high = np.searchsorted(sent, ((1 - ALWAYS) / 2, (1 + ALWAYS) / 2))
    return float(stream.last[high] - stream.first[low])


def _between_hosts_with_data(job: Job) -> Job:
    """The job without control messages from or to a host that has no data in it, as a parameter server's chief."""
    hosts = hosts_of(without_control({stream: period.size for stream, period in job.items()}))
    return {stream: period for stream, period in job.items() if hosts.issuperset(stream.hosts)}


def _with_steps(job: Job) -> InSteps | None:
    found = in_steps(job)
    return found if found and len(found[1].whole) else None


def _evenness(job: Job, steps: Steps) -> float:
    """Share of steps in which a flow sends its usual bytes, mean over flows."""
    return float(np.mean([share_of_equal(stream, steps.start) for stream in job]))


def _divided(job: Job, streams: Sequence[Stream]) -> list[InSteps]:
    """The fewest jobs with all flows of one that has no even steps: several that are in phase for a while; else none.
    Of several divisions, the one whose jobs are silent longest before their steps."""
    found = []
    for part in [job, *_divisions(job)] if len(streams) <= _MOST_FLOWS else []:
        mine, *_ = _even_jobs([*part])
        if len(mine) == 1 and len(mine[0][0]) == len(part):
            others, *_ = _even_jobs(with_data(without(streams, mine)))
            jobs = [*mine, *others]
            # parts of one job with losses pause before some of its steps only
            if not without(job, jobs) and all(len(steps.start) >= PRESENT * len(steps.whole) for _, steps in jobs):
                found.append(jobs)
    return min(found, key=lambda jobs: (len(jobs), -min(_silence(steps) for _, steps in jobs)), default=[])


def _silence(steps: Steps) -> float:
    return float(np.median(steps.start - steps.idle))


def _divisions(job: Job) -> Iterator[Job]:
    """Parts of a job that may be another one, closed and with all its hosts. Flows that send as much in a step are in
    the same part."""
    order = sorted(job, key=lambda stream: job[stream].size)
    sizes = np.log([job[stream].size for stream in order])
    alike = [[order[place] for place in same] for same in groups(sizes, SAME_SIZE)]
    chosen = itertools.chain.from_iterable(itertools.combinations(alike, count) for count in range(1, len(alike)))
    for some in itertools.islice(chosen, _MOST_DIVISIONS):
        part = {stream: job[stream] for stream in itertools.chain(*some)}
        if hosts_of(part) == hosts_of(job) and is_closed(part):
            yield part


def _in_clearer_steps(one: InSteps, streams: Sequence[Stream]) -> InSteps:
    """The job; or these flows in folded steps, where they are its flows, some have no clear period, and the job has
    another number of steps: what recurs by chance is several steps, or a round. A capture may cut two of them."""
    job, steps = one
    if len(job) < len(streams) or min(period.score for period in job.values()) >= CLEAR:
        return one
    whole = in_folded_steps(streams)
    return whole if whole and abs(len(whole[1].whole) - len(steps.whole)) > 2 else one
