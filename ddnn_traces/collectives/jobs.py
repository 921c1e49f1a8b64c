"""Jobs: flows that take their steps together."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ddnn_traces.collectives.periods import ALMOST_BEST, ALWAYS, BETTER, CLEAR, Period, periods, tolerance
from ddnn_traces.collectives.shapes import is_ring
from ddnn_traces.collectives.steps import (
    CONSTANT,
    PRESENT,
    Job,
    constant,
    is_closed,
    is_one_size,
    recurring_silences,
    share_of_equal,
    step_silences,
)
from ddnn_traces.collectives.streams import (
    CONTROL_SHARE,
    SMALL,
    Array,
    Stream,
    concatenated,
    distance,
    hosts_of,
    without_control,
)
from ddnn_traces.collectives.validations import RARE, without_rare

_SAME_TIME = 1.35  # factor between the step times of two flows: medians of loaded hosts
_BY_CHANCE = 0.3  # of the best score of all flows: a background has 0.2, control messages of training 0.37 and more
_FEW_VOTES = 0.2  # of the flows that take a part of a step for the whole
_MOST_JITTER = 0.15  # of a step, between the steps of two flows of one job: 0.01 to 0.1, of two jobs 0.28 and more
_MANY_FLOWS, _LITTLE_JITTER = 200, 0.05
_OF_A_PART, _OF_A_JOB = 0.8, 0.95  # share of steps: two jobs of near step times often send constant bytes, too
_OF_ONE_SIZE = 0.7  # the same of flows that send as much in a step as the job's: a fault for some steps shifts them
_MOST_STARTS = 200
_SURE = 0.5  # score: of a false period it was at most 0.48, with 10% of the packets lost
_MANY_UNCLEAR = 0.2  # of the bytes, in flows without a clear period
_BEHIND = 0.1  # of a silence of a step, from its start
_MOST_UNLIKE = 1.2  # factor between the steps in all bytes of two flows of one job
_MOST_TRIED = 3  # step times that nearly all flows share: silences of all flows take a second each
_MOST_OTHER_WAY = 0.4  # of the bytes of a ring, that a validation sends the other way


def find_jobs(streams: Sequence[Stream]) -> tuple[list[Job], list[Stream]]:
    """The jobs by their flows, the largest first, and the flows without a period."""
    streams, possible = _without_validation(
        streams, {stream: found for stream in streams if (found := periods(stream))}
    )
    possible = _without_validation_beside_ring(possible)
    jobs = _by_step_times(possible)
    if not any(is_closed(job) for job in jobs) and (
        job := _with_clear_periods(possible) or _with_best_periods(possible)
    ):
        jobs = [job]
    jobs = _completed(_with_others(jobs, possible), streams)
    if not any(is_closed(job) for job in jobs) and (whole := _with_other_edges(possible)):
        jobs = [whole]
    known = {stream for job in jobs for stream in job}
    return jobs, [stream for stream in streams if stream not in known]


def _with_other_edges(possible: dict[Stream, list[Period]]) -> Job | None:
    """All flows of a short run, where they are one closed job in phase but for the first and the last step of some."""
    if any(found[0].score < _SURE for found in possible.values()):
        return None
    job = _with_best_periods(possible, has_edges=False)
    return job and (_with_others([job], possible) or [job])[0]


def _by_step_times(possible: dict[Stream, list[Period]]) -> list[Job]:
    """Flows whose steps are as long and in phase, those of the step time that most have first."""
    jobs: list[Job] = []
    left = set(possible)
    latest: Job = {}
    while left:
        time = _step_time({stream: found for stream, found in possible.items() if stream in left})
        if time is None:
            break
        alike = {
            stream: max((p for p in possible[stream] if _near(p.time, time)), key=lambda p: p.score)
            for stream in possible
            if stream in left and any(_near(p.time, time) for p in possible[stream])
        }
        latest |= alike
        clusters = _in_phase(alike)
        # the others may be of another job, with a time of their own that is not far from this one
        taken = [job for job in clusters if is_closed(job)] or clusters
        jobs += taken
        left -= {stream for job in taken for stream in job}
    return _merged([*jobs, *({stream: latest[stream]} for stream in possible if stream in left and stream in latest)])


def _without_validation(
    streams: Sequence[Stream], possible: dict[Stream, list[Period]]
) -> tuple[Sequence[Stream], dict[Stream, list[Period]]]:
    """The flows and their periods; those that show none, since they send more before some steps of the others, without
    that: a validation gathers parameters, as of FSDP, and sends back no gradients."""
    clear = {stream: found for stream, found in possible.items() if found[0].score >= CLEAR}
    unclear = [stream for stream in streams if stream not in clear]
    if not clear or sum(s.end for s in unclear) < _MANY_UNCLEAR * sum(s.end for s in streams):
        return streams, possible
    even: dict[Stream, Stream] = {}
    for job in filter(is_closed, _by_step_times(clear)):
        silences, hosts = step_silences(job), hosts_of(job)
        near = [stream for stream in unclear if hosts.issuperset(stream.hosts) and stream not in even]
        if silences is not None:
            number, start, idle = silences
            ends = idle + _BEHIND * float(np.median(start - idle))
            least = CONTROL_SHARE * max(period.size for period in job.values())
            cleaned = ((stream, without_rare(stream, ends, number, least)) for stream in near)
            even |= {stream: left for stream, left in cleaned if left is not None}
    found = {even.get(stream, stream): periods(even[stream]) if stream in even else possible.get(stream, [])
             for stream in streams}  # fmt: skip
    return list(found), {stream: some for stream, some in found.items() if some}


def _without_validation_beside_ring(possible: dict[Stream, list[Period]]) -> dict[Stream, list[Period]]:
    """The flows without those that send only between some steps of a ring over their hosts, as a validation that
    gathers predictions the other way around. What a sharded step sends the other way is half of it and more."""
    heaviest = max(possible, key=lambda stream: stream.end, default=None)
    if heaviest is None:
        return possible
    time = possible[heaviest][0].time
    ring = {stream: found[0] for stream, found in possible.items() if _near(found[0].time, time)}
    hosts = hosts_of(ring)
    others = [stream for stream in possible if stream not in ring and hosts.issuperset(stream.hosts)]
    if len(hosts) < 3 or not others or not is_ring(list(ring)):
        return possible
    if sum(s.end for s in others) > _MOST_OTHER_WAY * sum(s.end for s in ring) or not are_between(ring, others):
        return possible
    return {stream: found for stream, found in possible.items() if stream not in others}


def are_between(job: Job, others: Sequence[Stream]) -> bool:
    """Whether other flows send between few of a job's steps, and nowhere else. Behind a part of a step, as behind a
    bucket, hosts wait for less time than they compute before the next step."""
    if (silences := step_silences(job)) is None:
        return False
    number, start, _ = silences
    # the answers to the other ring's data go this way
    first, last = _data_times(list(job))
    idle = np.maximum.accumulate(last)[np.searchsorted(first, start).clip(1) - 1]
    first, last = _data_times(others)
    between = (first > idle[0]) & (first < start[-1])
    first, last = first[between], last[between]
    behind = np.searchsorted(start, first)
    inside = first > idle[behind]
    ends = np.zeros(len(start))
    np.maximum.at(ends, behind[inside], last[inside])
    rare = ends > 0
    return bool(
        2 <= rare.sum() <= RARE * len(rare)
        and inside.sum() >= ALWAYS * len(inside)
        and len(number) >= ALWAYS * (number[-1] + 1)
        and np.median((start - ends)[rare]) <= 2 * np.median((start - idle)[~rare])
    )


def _data_times(streams: Sequence[Stream]) -> tuple[Array, Array]:
    """First and last packets of all messages with data, by the first, ns."""
    first, last = (
        concatenated([getattr(stream, time)[stream.size > SMALL] for stream in streams]) for time in ("first", "last")
    )
    order = np.argsort(first, kind="stable")
    return first[order], last[order]


def _with_others(jobs: list[Job], possible: dict[Stream, list[Period]]) -> list[Job]:
    """The jobs; the closed ones with other flows between their hosts.

    These send as much in each step, though they recur less often; or a longer step is nearly the best of all: then the
    job's was a part of it, as of a step whose layers are equal.
    """
    jobs = _of_whole_steps(jobs, possible)
    closed = _with_longer_steps([job for job in jobs if is_closed(job) and step_silences(job)], possible)
    left = set(possible).difference(*closed)
    whole: list[Job] = []
    for job in closed:
        hosts = hosts_of(job)
        near = [stream for stream in possible if stream in left and {stream.src, stream.dst} <= hosts]
        found = max((_with_equal_bytes(near, times) for times in _boundaries(job)), key=len) if near else {}
        data = without_control({stream: period.size for stream, period in {**job, **found}.items()})
        job = job | {stream: period for stream, period in found.items() if stream in data}
        others = [stream for stream in near if stream not in job]
        if others and (longer := _with_best_periods({stream: possible[stream] for stream in [*job, *others]})):
            job = longer
        whole.append(job)
        left -= set(job)
    rest = ({stream: job[stream] for stream in job if stream in left} for job in jobs)
    return [*whole, *filter(None, rest)]


def _of_whole_steps(jobs: list[Job], possible: dict[Stream, list[Period]]) -> list[Job]:
    """The jobs; those whose flows all recur better with a common longer step, of which they have a part.

    Stages of a pipeline, of which each two have taken a micro-batch for their step: jobs that share hosts, one with the
    other, are one. Two jobs on the same hosts have no such step. Rounds of a ring: its step has N-1 or 2(N-1) of them.
    """
    found: list[Job] = []
    for some in _sharing_hosts(jobs):
        flows = {stream: period for job in some for stream, period in job.items()}
        whole = None
        if len(some) > 1 or is_ring(list(flows)):
            both = {stream: possible[stream] for stream in flows}
            whole = _with_best_periods(both) or (_with_equal_steps(both) if len(some) > 1 else None)
        is_whole = whole and _recur_better(flows, whole) and (len(some) > 1 or _are_rounds(flows, whole))
        found += [whole] if whole and is_whole else some
    return found


def _recur_better(flows: Job, whole: Job) -> bool:
    """Whether flows recur better with the steps of a whole job: each that has not these already, and there is such."""
    parts = [stream for stream, period in flows.items() if whole[stream].size > period.size + tolerance(period.size)]
    others = [stream for stream in flows if stream not in parts]
    return bool(parts) and (
        all(whole[stream].score >= BETTER * flows[stream].score for stream in parts)
        and all(abs(whole[stream].size - flows[stream].size) <= tolerance(flows[stream].size) for stream in others)
    )


def _are_rounds(part: Job, whole: Job) -> bool:
    """Whether the steps of a ring's job are its rounds, and another job of its flows has a step for all of these.

    A round has fewer messages than a step has rounds. A step has more, also where the ring pauses behind every few of
    them, as for a checkpoint.
    """
    rounds = len(hosts_of(part)) - 1
    times = {round(whole[stream].size / period.size) for stream, period in part.items()}
    if rounds < 2 or len(times) > 1 or not times <= {rounds, 2 * rounds}:
        return False
    messages = [np.sum(stream.size > SMALL) * period.size / stream.end for stream, period in part.items()]
    return bool(max(messages) < min(times))


def _sharing_hosts(jobs: Sequence[Job]) -> list[list[Job]]:
    """The jobs in groups, each of which shares hosts with no other one."""
    found: list[list[Job]] = []
    for job in jobs:
        near = [some for some in found if any(hosts_of(job) & hosts_of(other) for other in some)]
        found = [some for some in found if some not in near] + [[*itertools.chain(*near), job]]
    return found


def _with_longer_steps(jobs: list[Job], possible: dict[Stream, list[Period]]) -> list[Job]:
    """The jobs; two, of which one has all hosts of the other, are one where all their flows recur best with one step, a
    part of which the job with the shorter time has taken for it: layers are equal, and some flows are in one collective
    of the step only."""
    for one, other in itertools.permutations(jobs, 2):
        hosts = hosts_of(one), hosts_of(other)
        if hosts[0] | hosts[1] in hosts:
            whole = _with_best_periods({stream: possible[stream] for stream in [*one, *other]})
            # several steps of another job recur no better than one
            if whole and all(whole[stream].score >= BETTER * period.score for stream, period in one.items()):
                rest = [job for job in jobs if job is not one and job is not other]
                return _with_longer_steps([whole, *rest], possible)
    return jobs


def _completed(jobs: list[Job], streams: Sequence[Stream]) -> list[Job]:
    """The jobs; those that are not closed, with flows of no closed job that close them, where there are such."""
    closed = [job for job in jobs if is_closed(job)]
    known = {stream for job in closed for stream in job}
    for job in jobs:
        left = [stream for stream in streams if stream not in known]
        if known.isdisjoint(job) and (whole := _with_disturbed(job, left)):
            closed.append(whole)
            known.update(whole)
    return [*closed, *(job for job in jobs if known.isdisjoint(job))]


def _with_clear_periods(possible: dict[Stream, list[Period]]) -> Job | None:
    """Most flows, with a clear period, and those without one that send the same bytes in most of their steps, where
    these close a job; else None. A flow over a slow link pauses anywhere: what recurs in it by chance tells nothing."""
    score = {stream: max(period.score for period in found) for stream, found in possible.items()}
    clear = {stream: found for stream, found in possible.items() if score[stream] >= CLEAR}
    unclear = [stream for stream in possible if score[stream] < _SURE]
    if not unclear or len(clear) <= len(possible) / 2:
        return None
    job = _with_best_periods(clear, must_close=False)
    # the slow link may send what was sent before a step, while the other flows are already silent
    return job and _with_disturbed(job, unclear, [start for _, start, _ in recurring_silences(job)])


def _with_best_periods(
    possible: dict[Stream, list[Period]], must_close: bool = True, has_edges: bool = True
) -> Job | None:
    """All flows, with the shortest step time at which each has nearly its best score, in phase and closed; else None.

    Equal rounds of a ring recur nearly as well as its steps: then no time of its own is clear in any flow. What two
    hosts lost and sent again recurs as well as their steps, but not nearly always.
    """
    two = len(hosts_of(possible)) == 2
    best = {
        stream: [p for p in found if p.score >= ALMOST_BEST * max(other.score for other in found)]
        for stream, found in possible.items()
    }
    for time in sorted({period.time for found in best.values() for period in found}):
        near = {stream: [p for p in found if _near(p.time, time)] for stream, found in best.items()}
        if all(near.values()):
            job = {stream: max(found, key=lambda p: p.score) for stream, found in near.items()}
            sure = not two or min(period.score for period in job.values()) >= ALWAYS
            if sure and (is_closed(job) or not must_close) and len(_in_phase(job, has_edges)) == 1:
                return job
    return None


def _with_equal_steps(possible: dict[Stream, list[Period]]) -> Job | None:
    """All flows, with the shortest step time at which their mean score is nearly the best, and a silence of all flows
    divides what each of them sends into equal bytes; else None.

    Where layers take another time in each step, flows pause behind different ones: so they are not in phase.
    """
    best = float(np.mean([max(period.score for period in found) for found in possible.values()]))
    tried: list[list[float]] = []  # sizes: most times have those of one before
    for time in sorted({period.time for found in possible.values() for period in found}):
        near = {stream: [p for p in found if _near(p.time, time)] for stream, found in possible.items()}
        if not all(near.values()):
            continue
        job = {stream: max(found, key=lambda p: p.score) for stream, found in near.items()}
        sizes = [period.size for period in job.values()]
        steps = [stream.end / period.size for stream, period in job.items()]
        is_likely = max(steps) <= _MOST_UNLIKE * min(steps) and sizes not in tried
        if not is_likely or np.mean([period.score for period in job.values()]) < ALMOST_BEST * best:
            continue
        if len(tried) == _MOST_TRIED or not is_closed(job):
            return None
        tried.append(sizes)
        silences = step_silences(job)
        if silences is not None and constant(job, silences[1], _OF_A_JOB) == 1:
            return job
    return None


def _with_disturbed(job: Job, streams: Sequence[Stream], more: Sequence[Array] = ()) -> Job | None:
    """The job with all flows that send the same bytes in most of its steps, where it is closed with these; else None.

    A link with loss or a long delay pauses so often that its flows show no period of their own. more: times that recur
    once a step, beside those of its steps.
    """
    if max(period.score for period in job.values()) < _SURE:
        return None
    for times in [*_boundaries(job), *more]:
        sent = sum(float(np.median(np.diff(stream.position_at(times)))) for stream in job)
        # equal parts of a step may have silences as long
        parts = max(1, round(sum(period.size for period in job.values()) / max(1.0, sent)))
        found = _with_equal_bytes(streams, times)
        whole = job | {stream: replace(period, size=parts * period.size) for stream, period in found.items()}
        if len(job) < len(whole) <= 2 * len(job) and len(hosts_of(whole)) > 2 and is_closed(whole):
            return whole
    return None


def _with_equal_bytes(streams: Sequence[Stream], times: Array) -> Job:
    """The flows that send the same bytes between most of these times, which are taken for starts of their steps."""
    found: Job = {}
    for stream in streams:
        at = np.searchsorted(stream.first, times)
        at = at[at < len(stream.first)]
        if len(at) > max(1, PRESENT * len(times)) and share_of_equal(stream, times) >= CONSTANT:
            size = float(np.median(np.diff(stream.position_at(times))))
            silence = float(np.median(stream.first[at[1:]] - stream.last[at[1:] - 1]))
            found[stream] = Period(size, 0.0, at, np.arange(len(at)), silence, float(np.median(np.diff(times))))
    return found


def _near(time: float, other: float) -> bool:
    return other / _SAME_TIME <= time <= other * _SAME_TIME


def _step_time(possible: dict[Stream, list[Period]]) -> float | None:
    """The step time that most flows have, ns; None for a flow alone. What recurs by chance, as in a background, tells
    nothing beside flows that recur far better.

    A flow may pause as long within the step: a time is a part of the step where other flows have a multiple of it,
    which is possible for these, too.
    """
    times = {stream: found[0].time for stream, found in possible.items()}
    least = _BY_CHANCE * max((found[0].score for found in possible.values()), default=0.0)

    def votes(time: float) -> int:
        return sum(_near(times[stream], time) for stream, found in possible.items() if found[0].score >= least)

    most = max(times.values(), key=votes)
    count = votes(most)
    if count < 2:
        return None
    time = float(np.median([other for other in times.values() if _near(other, most)]))
    for longer in sorted(set(times.values())):
        parts = round(longer / time)
        if parts < 2 or not _near(parts * time, longer):
            continue
        if votes(longer) < max(2, _FEW_VOTES * count):
            continue
        mine = [found for stream, found in possible.items() if _near(times[stream], time)]
        if sum(any(_near(p.time, longer) for p in found) for found in mine) >= CONSTANT * len(mine):
            time = longer
    return time


def _in_phase(alike: Job, has_edges: bool = True) -> list[Job]:
    """Flows whose steps keep their distance in time: average linkage by jitter(). has_edges: as there.

    Of many flows, the first ones stand for those that keep theirs to them: pairs of all would take hours.
    """
    from scipy.cluster import hierarchy

    starts = {stream: stream.first[period.message].astype(float) for stream, period in alike.items()}

    def between(one: Stream, other: Stream) -> float:
        return jitter(starts[one], starts[other], min(alike[one].time, alike[other].time), has_edges)

    standing: dict[Stream, list[Stream]] = {}
    for stream in alike:
        near = (one for one in standing if len(alike) > _MANY_FLOWS and between(one, stream) < _LITTLE_JITTER)
        standing.setdefault(next(near, stream), []).append(stream)
    if len(standing) < 2:
        return [alike]
    apart = [between(one, other) for one, other in itertools.combinations(standing, 2)]
    found = hierarchy.fcluster(hierarchy.linkage(apart, "average"), _MOST_JITTER, "distance")
    clusters: dict[int, Job] = {}
    for flows, number in zip(standing.values(), found.tolist(), strict=True):
        clusters.setdefault(number, {}).update((stream, alike[stream]) for stream in flows)
    return list(clusters.values())


def jitter(one: Array, other: Array, step: float, has_edges: bool = True) -> float:
    """80th percentile of the difference between two series of times, at the shift that fits best; in steps.

    has_edges: whether all times count. Else the first and the last one of `one` do not where they are half a step
    before or behind all others: where flows begin and end with other steps, that is a fifth of six steps and more.
    """
    one, other = one[:_MOST_STARTS], other[:_MOST_STARTS]
    shifts = (other[None, :] - one[:, None]).ravel()
    shifts = np.unique(shifts[np.abs(shifts) < step])
    if not len(shifts):
        return 1.0
    times = one[None, :] + shifts[:, None]
    apart = distance(times, other)
    if not has_edges:
        apart[:, 0][times[:, 0] < other[0] - step / 2] = np.inf
        apart[:, -1][times[:, -1] > other[-1] + step / 2] = np.inf
    apart.sort(axis=1)
    # by linear interpolation, as numpy's quantile, which takes ten times as long
    place = 0.8 * np.maximum(np.isfinite(apart).sum(axis=1) - 1, 0)
    low, high = (np.take_along_axis(apart, at.astype(int)[:, None], 1)[:, 0] for at in (place, np.ceil(place)))
    return min(1.0, float((low + (high - low) * (place % 1)).min()) / step)


def _merged(jobs: list[Job]) -> list[Job]:
    """Jobs on the same hosts are one where most flows of one send constant bytes in the other's steps."""
    jobs = sorted(jobs, key=len, reverse=True)
    for one, other in itertools.permutations(jobs, 2):
        near = len(one) >= len(other) and hosts_of(one) & hosts_of(other)
        least = _OF_A_JOB if is_closed(other) else _OF_ONE_SIZE if is_one_size({**one, **other}) else _OF_A_PART
        for times in _boundaries(one) if near else ():
            if constant(other, times, least) >= CONSTANT:
                rest = [job for job in jobs if job is not one and job is not other]
                return _merged([{**one, **(_in_steps(other, times) if is_closed(one) else other)}, *rest])
    return jobs


def _in_steps(job: Job, times: Array) -> Job:
    """The job's flows; a period that is neither a part nor a multiple of these steps becomes that of the steps."""
    found = _with_equal_bytes(list(job), times)
    odd = {}
    for stream, period in found.items():
        less, more = sorted((job[stream].size, period.size))
        if abs(more - round(more / less) * less) > tolerance(more):
            odd[stream] = period
    return {**job, **odd}


def _boundaries(job: Job) -> list[Array]:
    """Times between the steps of a job: at the start, in the middle and at the end of its silence."""
    silences = step_silences(job)
    if silences is None:
        longest = max(job, key=lambda stream: job[stream].silence * len(job[stream].step))
        return [longest.first[job[longest].message].astype(float)]
    _, start, idle = silences
    return [start, (start + idle) / 2, idle + 0.1 * (start - idle)]
