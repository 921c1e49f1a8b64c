"""Jobs: flows that take their steps together, and the steps of each job."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from ddnn_traces.collectives.periods import BETTER, CLEAR, Period, chain_of, periods, tolerance
from ddnn_traces.collectives.shapes import is_ring
from ddnn_traces.collectives.streams import (
    CONTROL_SHARE,
    MS,
    SMALL,
    Array,
    Stream,
    concatenated,
    distance,
    groups,
    hosts_of,
    without_control,
)

_SAME_TIME = 1.35  # factor between the step times of two flows: medians of loaded hosts
_ALMOST_BEST = 0.97  # of a flow's best score: rounds of its step have 0.88 to 0.96 of it, or as much in some flows only
_ALWAYS = 0.95  # score of what recurs in each step
_FEW_VOTES = 0.2  # of the flows that take a part of a step for the whole
_MOST_JITTER = 0.15  # of a step, between the steps of two flows of one job: 0.01 to 0.1, of two jobs 0.28 and more
_MANY_FLOWS, _LITTLE_JITTER = 200, 0.05
_OF_A_PART, _OF_A_JOB = 0.8, 0.95  # share of steps: two jobs of near step times often send constant bytes, too
_OF_ONE_SIZE = 0.7  # the same of flows that send as much in a step as the job's: a fault for some steps shifts them
_CONSTANT = 0.6  # share of flows, and of steps, with constant bytes
_MOST_STARTS = 200
_SILENCE = 0.3 * MS
_MOST_PARTS = 6  # a period may be of several steps: the shortest counts whose silence is as long
_ALIKE = 0.4
_PRESENT = 0.8
_SURE = 0.5  # score: of a false period it was at most 0.48, with 10% of the packets lost
_MOST_RECURRING = 8  # silences of a step that are tried as its start
_SAME_PLACE = 400.0  # bytes: control messages
_SAME_SIZE = 0.02  # of the bytes of a step
_SMOOTHED = 5  # steps, for the place of a step in a flow
_FIRST_STEPS = 2  # the start of the first is unclear: what hosts send to connect is before it
_MANY_UNCLEAR = 0.2  # of the bytes, in flows without a clear period
_BEHIND = 0.1  # of a silence of a step, from its start
_EXTRA = 150.0  # bytes behind a step: an all-reduce of 8 bytes sends 200 to 400 on each flow of a ring
_RARE = 1 / 3  # of the steps
_MOST_OTHER_WAY = 0.4  # of the bytes of a ring, that a validation sends the other way
_MUCH_EXTRA = 300.0  # in all steps: less moves no step
_FEWEST, _MOST_FEW = 4, 12  # steps of a job without a period: three equal parts may be those of one sharded step
_LONGER = 2.0  # times any other silence behind the first step
_LONGEST = 64  # silences that are looked at
_MOST_CHANCE = 0.01  # that silences by turns are so by chance
_SEVERAL = 3  # steps without the silence
_SOME_STEPS = 0.2  # share, in which a host that computes for itself is not behind all that send to it


@dataclass(frozen=True)
class Steps:
    """The steps of a job. first: for each flow, the position where step 0 begins, bytes. size: bytes of its step.
    number, start: number of each step whose start is seen, and the time of its first message, ns; idle: the time of
    the last message before it. whole: numbers of the steps of which the capture has all bytes."""

    first: dict[Stream, float]
    size: dict[Stream, float]
    number: Array
    start: Array
    idle: Array
    whole: Array


Job = dict[Stream, Period]


def find_jobs(streams: Sequence[Stream]) -> tuple[list[Job], list[Stream]]:
    """The jobs by their flows, the largest first, and the flows without a period."""
    streams, possible = _without_validation(
        streams, {stream: found for stream in streams if (found := periods(stream))}
    )
    possible = _without_validation_beside_ring(possible)
    jobs = _by_step_times(possible)
    if not any(is_closed(job) for job in jobs) and (job := _with_best_periods(possible)):
        jobs = [job]
    jobs = _completed(_with_others(jobs, possible), streams)
    known = {stream for job in jobs for stream in job}
    return jobs, [stream for stream in streams if stream not in known]


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
    if sum(s.end for s in others) > _MOST_OTHER_WAY * sum(s.end for s in ring) or not _are_between(ring, others):
        return possible
    return {stream: found for stream, found in possible.items() if stream not in others}


def _are_between(job: Job, others: Sequence[Stream]) -> bool:
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
        2 <= rare.sum() <= _RARE * len(rare)
        and inside.sum() >= _ALWAYS * len(inside)
        and len(number) >= _ALWAYS * (number[-1] + 1)
        and np.median((start - ends)[rare]) <= 2 * np.median((start - idle)[~rare])
    )


def _data_times(streams: Sequence[Stream]) -> tuple[Array, Array]:
    """First and last packets of all messages with data, by the first, ns."""
    first, last = (
        concatenated([getattr(stream, time)[stream.size > SMALL] for stream in streams]) for time in ("first", "last")
    )
    order = np.argsort(first, kind="stable")
    return first[order], last[order]


def without_rare(stream: Stream, ends: Array, number: Array, least: float = 0.0) -> Stream | None:
    """A flow without what it sends more in a few steps than in the others, at their start; None where there is no such.

    ends: when the step before each of these numbers has ended. least: bytes of a step that are no control messages.
    """
    at = stream.position_at(ends)
    sent = np.diff(at) / np.diff(number)
    usual = float(np.median(sent))
    more = np.diff(at) - usual * np.diff(number)
    rare = more > max(_EXTRA, _SAME_SIZE * usual)
    others = np.abs(more[~rare]) <= tolerance(usual)
    if usual <= least or not 0 < rare.sum() <= _RARE * len(more) or others.sum() < _ALWAYS * (~rare).sum():
        return None
    return _without(stream, at[:-1][rare], more[rare])[0]


def _with_others(jobs: list[Job], possible: dict[Stream, list[Period]]) -> list[Job]:
    """The jobs; the closed ones with other flows between their hosts.

    These send as much in each step, though they recur less often; or a longer step is nearly the best of all: then the
    job's was a part of it, as of a step whose layers are equal.
    """
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


def _with_best_periods(possible: dict[Stream, list[Period]]) -> Job | None:
    """All flows, with the shortest step time at which each has nearly its best score, in phase and closed; else None.

    Equal rounds of a ring recur nearly as well as its steps: then no time of its own is clear in any flow. What two
    hosts lost and sent again recurs as well as their steps, but not nearly always.
    """
    two = len(hosts_of(possible)) == 2
    best = {
        stream: [p for p in found if p.score >= _ALMOST_BEST * max(other.score for other in found)]
        for stream, found in possible.items()
    }
    for time in sorted({period.time for found in best.values() for period in found}):
        near = {stream: [p for p in found if _near(p.time, time)] for stream, found in best.items()}
        if all(near.values()):
            job = {stream: max(found, key=lambda p: p.score) for stream, found in near.items()}
            sure = not two or min(period.score for period in job.values()) >= _ALWAYS
            if sure and is_closed(job) and len(_in_phase(job)) == 1:
                return job
    return None


def _with_disturbed(job: Job, streams: Sequence[Stream]) -> Job | None:
    """The job with all flows that send the same bytes in most of its steps, where it is closed with these; else None.

    A link with loss or a long delay pauses so often that its flows show no period of their own.
    """
    if max(period.score for period in job.values()) < _SURE:
        return None
    for times in _boundaries(job):
        whole = job | _with_equal_bytes(streams, times)
        if len(job) < len(whole) <= 2 * len(job) and len(hosts_of(whole)) > 2 and is_closed(whole):
            return whole
    return None


def _with_equal_bytes(streams: Sequence[Stream], times: Array) -> Job:
    """The flows that send the same bytes between most of these times, which are taken for starts of their steps."""
    found: Job = {}
    for stream in streams:
        at = np.searchsorted(stream.first, times)
        at = at[at < len(stream.first)]
        if len(at) > max(1, _PRESENT * len(times)) and _share_of_equal(stream, times) >= _CONSTANT:
            size = float(np.median(np.diff(stream.position_at(times))))
            silence = float(np.median(stream.first[at[1:]] - stream.last[at[1:] - 1]))
            found[stream] = Period(size, 0.0, at, np.arange(len(at)), silence, float(np.median(np.diff(times))))
    return found


def _near(time: float, other: float) -> bool:
    return other / _SAME_TIME <= time <= other * _SAME_TIME


def _step_time(possible: dict[Stream, list[Period]]) -> float | None:
    """The step time that most flows have, ns; None for a flow alone.

    A flow may pause as long within the step: a time is a part of the step where other flows have a multiple of it,
    which is possible for these, too.
    """
    times = {stream: found[0].time for stream, found in possible.items()}

    def votes(time: float) -> int:
        return sum(_near(other, time) for other in times.values())

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
        if sum(any(_near(p.time, longer) for p in found) for found in mine) >= _CONSTANT * len(mine):
            time = longer
    return time


def _in_phase(alike: Job) -> list[Job]:
    """Flows whose steps keep their distance in time: average linkage by jitter().

    Of many flows, the first ones stand for those that keep theirs to them: pairs of all would take hours.
    """
    from scipy.cluster import hierarchy

    starts = {stream: stream.first[period.message].astype(float) for stream, period in alike.items()}

    def between(one: Stream, other: Stream) -> float:
        return jitter(starts[one], starts[other], min(alike[one].time, alike[other].time))

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


def jitter(one: Array, other: Array, step: float) -> float:
    """80th percentile of the difference between two series of times, at the shift that fits best; in steps."""
    one, other = one[:_MOST_STARTS], other[:_MOST_STARTS]
    shifts = (other[None, :] - one[:, None]).ravel()
    shifts = np.unique(shifts[np.abs(shifts) < step])
    if not len(shifts):
        return 1.0
    apart = distance(one[None, :] + shifts[:, None], other)
    apart.sort(axis=1)
    # by linear interpolation, as numpy's quantile, which takes ten times as long
    whole, rest = divmod(0.8 * (len(one) - 1), 1)
    low, high = apart[:, int(whole)], apart[:, min(int(whole) + 1, len(one) - 1)]
    return min(1.0, float((low + (high - low) * rest).min()) / step)


def _merged(jobs: list[Job]) -> list[Job]:
    """Jobs on the same hosts are one where most flows of one send constant bytes in the other's steps."""
    jobs = sorted(jobs, key=len, reverse=True)
    for one, other in itertools.permutations(jobs, 2):
        near = len(one) >= len(other) and hosts_of(one) & hosts_of(other)
        least = _OF_A_JOB if is_closed(other) else _OF_ONE_SIZE if _is_one_size({**one, **other}) else _OF_A_PART
        for times in _boundaries(one) if near else ():
            if _constant(other, times, least) >= _CONSTANT:
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


def _is_one_size(job: Job) -> bool:
    """Whether all flows send the same bytes in a step, as on a ring, but for control messages."""
    sizes = [period.size for period in job.values()]
    return max(sizes) - min(sizes) <= tolerance(min(sizes))


def is_closed(job: Job) -> bool:
    """Whether all hosts send and receive data, as in training; otherwise the flows are a part of something.

    Control messages of a connection's other direction close nothing.
    """
    flows = without_control({stream: period.size for stream, period in job.items()})
    return {stream.src for stream in flows} == {stream.dst for stream in flows} == hosts_of(job)


def _boundaries(job: Job) -> list[Array]:
    """Times between the steps of a job: at the start, in the middle and at the end of its silence."""
    silences = step_silences(job)
    if silences is None:
        longest = max(job, key=lambda stream: job[stream].silence * len(job[stream].step))
        return [longest.first[job[longest].message].astype(float)]
    _, start, idle = silences
    return [start, (start + idle) / 2, idle + 0.1 * (start - idle)]


def _constant(job: Job, times: Array, least: float = _CONSTANT) -> float:
    """Share of a job's flows that send constant bytes between so many of these times."""
    return sum(_share_of_equal(stream, times) >= least for stream in job) / len(job)


def _share_of_equal(stream: Stream, times: Array) -> float:
    """Share of the stretches between these times with the flow's usual bytes; 0 where it mostly sends nothing."""
    sent = np.diff(stream.position_at(times))
    usual = float(np.median(sent))
    return float(np.mean(np.abs(sent - usual) <= max(300.0, _SAME_SIZE * usual))) if usual > 0 else 0.0


def step_silences(job: Job) -> tuple[Array, Array, Array] | None:
    """The silence of all flows behind which a step starts: it recurs with the sum of the bytes of their steps.

    Of several, the longest, or where few hosts end that, one behind which more start by themselves. Returns the
    number of each step, the time of its first message and of the last one before it, ns; None where there is none.
    """
    first = np.concatenate([stream.first for stream in job])
    order = np.argsort(first, kind="stable")
    first = first[order]
    last = np.maximum.accumulate(np.concatenate([stream.last for stream in job])[order])
    size = np.concatenate([stream.size for stream in job])[order]
    before = np.cumsum(size) - size
    silence = first[1:] - last[:-1]
    behind = np.flatnonzero(silence > _SILENCE) + 1
    places, lengths = before[behind].astype(float), silence[behind - 1].astype(float)
    starts, ends = first[behind].astype(float), last[behind - 1].astype(float)
    found = [(number, starts[at], ends[at]) for at, number in _step_places(job, places, lengths, starts)]
    if not found:
        return None
    longest, hosts = found[0], len(hosts_of(job))
    # a step starts when hosts have computed; behind a pause within a collective, most wait for the last host
    starters = _starters(job, *longest[1:]) if hosts > 2 else hosts
    if hosts > 2 and (starters == 1 or not _is_even(job, *longest[:2])):
        least = min(hosts - 1, max(3, 2 * starters))  # inner hosts of a tree wait for others
        for other in found[1:]:
            often = starters <= hosts // 2 or len(other[0]) >= len(longest[0])
            if often and _is_even(job, *other[:2]) and _starters(job, *other[1:]) >= least:
                return other
    return longest


def _step_places(job: Job, places: Array, lengths: Array, starts: Array) -> list[tuple[Array, Array]]:
    """The silences of all flows that recur once a step, the longest first: as chain_of() has them.

    places: position of each silence in the sum of all flows, bytes; lengths, starts: its length and its end, ns.
    """
    step = sum(period.size for period in job.values())
    longest, steps = 0.0, 0
    recurring: list[tuple[Array, Array]] = []
    own = cache(lambda: {stream: periods(stream) for stream in job})
    for parts in range(1, _MOST_PARTS + 1) if len(places) else ():
        slack = max(min(400.0 * len(job), 0.05 * step / parts), 0.002 * step / parts)
        found = chain_of(places, lengths, step / parts, slack, even=False)
        if found is None:
            continue
        short = float(np.quantile(lengths[found[0]], 0.2))
        if parts == 1:
            longest, steps = float(np.median(lengths[found[0]])), len(found[0])
        elif short < _ALIKE * longest or len(found[0]) < _PRESENT * parts * steps or not _recurs(job, parts, own()):
            continue
        if parts == 1 or _constant(job, starts[found[0]]) >= _CONSTANT:
            recurring = [found, *_recurring(places, lengths, found, step / parts, slack)]
    return recurring


def _recurring(
    places: Array, lengths: Array, chain: tuple[Array, Array], size: float, slack: float
) -> list[tuple[Array, Array]]:
    """Other silences that are in most steps of `size` bytes, the longest first, as chain_of() has them."""
    begin = places[chain[0]]
    step = np.searchsorted(begin, places, "right") - 1
    inside = np.flatnonzero((step >= 0) & (places - begin[step] < size - slack) & (places > begin[step] + slack))
    offset = (places - begin[step])[inside]
    order = np.argsort(offset, kind="stable")
    found = []
    for same in groups(offset[order], slack):
        indices = inside[order][same]
        indices = indices[np.lexsort((-lengths[indices], step[indices]))]
        _, firsts = np.unique(step[indices], return_index=True)
        if len(firsts) >= _CONSTANT * len(begin):
            found.append((indices[firsts], chain[1][step[indices[firsts]]]))
    return sorted(found, key=lambda one: -float(np.median(lengths[one[0]])))[:_MOST_RECURRING]


def _is_even(job: Job, number: Array, start: Array) -> bool:
    """Whether each flow has sent a whole number of steps where these steps start, counted from its first byte, or each
    will have at its last byte: what is sent to connect, or the capture of a part, makes one of them false."""
    ahead: list[bool] = []
    behind: list[bool] = []
    parts: set[int] = set()
    for stream, period in job.items():
        sent = stream.position_at(start)
        step = float(np.median(np.diff(sent) / np.diff(number)))
        parts.add(max(1, round(period.size / step)) if step > 0 else 1)
        if len(parts) > 1 or abs(max(parts) * step / period.size - 1) > _SAME_SIZE:
            return False
        rest = float(np.median(sent - number * step))
        slack = max(_SAME_PLACE, _SAME_SIZE * step)
        for places, place in ((ahead, rest - stream.start[0]), (behind, stream.end - rest)):
            places.append(min(place % step, -place % step) <= slack)
    return all(ahead) or all(behind)


def _starters(job: Job, start: Array, idle: Array) -> int:
    """Hosts that send data before they have received any, in some steps that would start at these silences."""
    sends: dict[str, Array] = {}
    receives: dict[str, Array] = {}
    for stream in job:
        data = stream.size > SMALL
        first, last = (np.append(times[data], np.inf) for times in (stream.first, stream.last))
        next_ = np.searchsorted(first, start)
        sends[stream.src] = np.minimum(sends.get(stream.src, np.inf), first[next_])
        receives[stream.dst] = np.minimum(receives.get(stream.dst, np.inf), last[next_])
    return sum(float(np.mean(sends[host] < receives.get(host, np.inf))) >= _SOME_STEPS for host in sends)


def _recurs(job: Job, parts: int, possible: dict[Stream, list[Period]]) -> bool:
    """Whether most flows have this part of their step as a period of their own, with nearly the score of the step if
    that always recurs: micro-batches recur in most of a step."""
    found = [
        any(
            abs(parts * part.size / period.size - 1) < _SAME_SIZE
            and (part.score >= _ALMOST_BEST * period.score or period.score < _ALWAYS)
            for part in possible[stream]
        )
        for stream, period in job.items()
    ]
    return float(np.mean(found)) >= _CONSTANT


def in_steps(job: Job) -> tuple[Job, Steps] | None:
    """The job without what its flows send behind some steps only, as for a validation, and its steps, which then have
    the same bytes; None where its flows have no common silence."""
    silences = step_silences(job)
    if silences is None:
        return None
    number, start, _ = silences
    even = dict(_without_extra(stream, period, stream.position_at(start), number) for stream, period in job.items())
    if even.keys() != job.keys():
        silences = step_silences(even)
    return None if silences is None or is_of_parts(silences[0]) else _without_halves(even, *silences)


def is_of_parts(number: Array) -> bool:
    """Whether the silence is missing at the same part of each three to six of these steps, and at no other: they are
    parts of longer steps, of which the capture has too few to show them."""
    every = np.arange(number[-1] + 1)
    missing = np.setdiff1d(every, number)
    return len(missing) >= _SEVERAL and any(
        np.array_equal(missing, every[every % parts == missing[0] % parts]) for parts in range(3, _MOST_PARTS + 1)
    )


def _without_halves(job: Job, number: Array, start: Array, idle: Array) -> tuple[Job, Steps]:
    """The job and its steps; of two hosts, steps by turns behind a long and a short silence are halves of steps.

    The halves of an all-reduce of two hosts send the same bytes, as steps do. Between halves hosts wait for half as
    long as they send, or less; before a step they compute.
    """
    steps = _steps_at(job, number, start, idle)
    if len(hosts_of(job)) > 2 or not _is_one_size(job):
        return job, steps
    between = np.isin(number, steps.whole) & np.isin(number - 1, steps.whole)
    silence, waits = start - idle, float(np.median(idle[1:] - start[:-1])) / 2
    for turn in (0, 1):
        is_long = number % 2 == turn
        long, short = silence[between & is_long], silence[between & ~is_long]
        is_rare = _MOST_CHANCE * math.comb(len(long) + len(short), len(long)) >= 2
        if is_rare and len(short) and long.min() > short.max() and np.median(short) <= waits:
            whole = {stream: replace(period, size=2 * period.size) for stream, period in job.items()}
            return whole, _steps_at(whole, (number[is_long] - turn) // 2, start[is_long], idle[is_long])
    return job, steps


def in_few_steps(streams: Sequence[Stream]) -> tuple[Job, Steps] | None:
    """All flows as one job of so few steps that none shows a period; None where they show no such steps.

    The silences of all flows between steps are far longer than any other behind the first step, in which programs
    start, and divide what each flow sends, from its first byte to its last, into equal parts.
    """
    starts, ends = _silences(streams)
    longest = np.sort(np.argsort(-(starts - ends), kind="stable")[:_LONGEST])
    starts, ends = starts[longest], ends[longest]
    sent = [stream.position_at(starts) - stream.start[0] for stream in streams]
    for steps in range(_MOST_FEW, _FEWEST - 1, -1):
        sizes = [(stream.end - stream.start[0]) / steps for stream in streams]
        number = np.round(sent[0] / sizes[0]).astype(int)
        whole = (number > 0) & (number < steps)
        for at, size in zip(sent, sizes, strict=True):
            whole &= np.abs(at - number * size) <= max(_SAME_PLACE, _SAME_SIZE * size)
        chosen = [max(same, key=lambda place: starts[place] - ends[place])
                  for one in range(1, steps) if len(same := np.flatnonzero(whole & (number == one)))]  # fmt: skip
        others = np.setdiff1d(np.flatnonzero(starts > starts[chosen[0]]), chosen) if len(chosen) == steps - 1 else None
        if others is None or min(starts[chosen] - ends[chosen]) < _LONGER * max(
            starts[others] - ends[others], default=0
        ):
            continue
        start, idle = starts[chosen], ends[chosen]
        job = {stream: Period(size, 0.0, np.searchsorted(stream.first, start), np.arange(steps - 1),
                              float(np.median(start - idle)), float(np.median(np.diff(start))))
               for stream, size in zip(streams, sizes, strict=True)}  # fmt: skip
        if is_closed(job):
            return job, _steps_at(job, np.arange(steps - 1), start, idle)
    return None


def _silences(streams: Sequence[Stream]) -> tuple[Array, Array]:
    """When silences of all flows end and begin, ns: those in which none has a message."""
    first = np.concatenate([stream.first for stream in streams])
    order = np.argsort(first, kind="stable")
    last = np.maximum.accumulate(np.concatenate([stream.last for stream in streams])[order])
    starts, ends = first[order][1:], last[:-1]
    is_long = starts - ends > _SILENCE
    return starts[is_long].astype(float), ends[is_long].astype(float)


def _without_extra(stream: Stream, period: Period, at: Array, number: Array) -> tuple[Stream, Period]:
    """at: where the steps of these numbers start in the flow, bytes."""
    usual = float(np.median(np.diff(at) / np.diff(number)))
    around = np.pad(at - number * usual, _SMOOTHED // 2, "edge")
    later = np.median(np.lib.stride_tricks.sliding_window_view(around, _SMOOTHED), axis=1)
    more = np.diff(later)
    behind = np.flatnonzero(more[_FIRST_STEPS:] > _EXTRA) + _FIRST_STEPS + 1
    extra = more[behind - 1]
    # elsewhere the steps are not those of the flow
    is_rare = len(behind) <= _RARE * len(at) and more[_FIRST_STEPS:].min(initial=0.0) >= -_EXTRA
    if not is_rare or extra.sum() <= _MUCH_EXTRA or np.abs(more).max() > _SAME_SIZE * usual:
        return stream, period
    left, kept = _without(stream, at[behind] - extra, extra)
    message = np.searchsorted(np.flatnonzero(kept), period.message).clip(max=int(kept.sum()) - 1)
    return left, replace(period, message=message)


def _without(stream: Stream, places: Array, sizes: Array) -> tuple[Stream, Array]:
    """A flow without so many bytes at these places, and which of its messages are left of it."""
    around = np.column_stack([places, places + sizes]).ravel()
    sums = np.column_stack([np.cumsum(sizes) - sizes, np.cumsum(sizes)]).ravel()

    def even(position: Array) -> Array:
        before: Array = np.interp(position, around, sums).astype(position.dtype)
        return position - before

    begin, end = even(stream.start), even(stream.start + stream.size)
    kept = end > begin
    size, first, last = (end - begin)[kept], stream.first[kept], stream.last[kept]
    left = replace(stream, start=begin[kept], size=size, first=first, last=last, ends=even(stream.ends))
    return left, kept


def _steps_at(job: Job, number: Array, start: Array, idle: Array) -> Steps:
    """number, start, idle: as of Steps."""
    at = {stream: stream.position_at(start) for stream in job}
    sent = {stream: float(np.median(np.diff(places) / np.diff(number))) for stream, places in at.items()}
    total = sum(sent.values())
    parts = max(1, round(sum(period.size for period in job.values()) / total)) if total else 1
    first, size = {}, {}
    for stream, period in job.items():
        seen = sent[stream]
        steps = max(1, round(period.size / seen)) if seen else 1
        size[stream] = seen if abs(steps * seen / period.size - 1) < 0.02 else period.size / parts
        first[stream] = float(np.median(at[stream] - number * size[stream]))
    return Steps(first, size, number, start, idle, _whole(job, first, size, number))


def _whole(job: Job, first: dict[Stream, float], size: dict[Stream, float], number: Array) -> Array:
    """Numbers of the steps of which most flows have all bytes."""
    found = []
    for step in range(-2, int(number[-1]) + 2):
        complete = [
            first[s] + (step + 0.02) * size[s] >= s.start[0] and s.end >= first[s] + (step + 0.98) * size[s]
            for s in job
        ]
        if np.mean(complete) >= 0.8:
            found.append(step)
    return np.array(found, int)
