"""Sends: what no pattern of several hosts explains. What a program sent at once may have paused, or run into another.

Stages of a pipeline send as many micro-batches of one size.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from ddnn_traces.collectives import shapes
from ddnn_traces.collectives.phases import EQUAL, Collective, Parts, Phase, measured, part_in
from ddnn_traces.collectives.steps import Steps
from ddnn_traces.collectives.streams import Stream

GLOO_HEADER = 48  # bytes of a message
MOSTLY = 0.5  # of the steps, or of the bytes of sends

_WHOLE_SEND = 0.01  # of a send, by which several differ from a whole number of it
_AS_ONE = 8  # sends that are seen as one, at most: without a pause between them
_FEW_PAIRS = 0.1  # of the sends of a step
_MOST_BESIDE = 256.0  # bytes: messages of control beside a send; gloo's are up to four of 48


def sends_of(phase: Phase, steps: Steps, parts: dict[Stream, Parts]) -> list[Collective]:
    result = []
    for edge in phase.edges:
        own = measured({stream: phase.spans[stream] for stream in edge}, steps, parts)
        if own is not None:
            result.append(Collective("send", None, "direct", edge[0].hosts, own.bytes, "one transfer", (own,)))
    return result


def without_pairs(found: list[Collective], steps: Steps, parts: dict[Stream, Parts]) -> list[Collective]:
    """Among sends only, a few all-reduces of two hosts are sends there and back: the last stages of a pipeline answer
    each other without a pause. Not where each host is in one: then pipelines sum up their gradients."""
    pairs = [one for one in found if one.kind != "send"]
    sends = [one for one in found if one.kind == "send"]
    exchanging = {host for one in pairs for host in one.hosts}
    if (
        len(pairs) > _FEW_PAIRS * len(sends)
        or any(len(one.hosts) > 2 for one in pairs)
        or exchanging.issuperset(host for one in sends for host in one.hosts)
    ):
        return found
    return [*sends, *as_sends(pairs, steps, parts)]


def without_exchanges(
    found: list[Collective], phases: Sequence[Phase], steps: Steps, parts: dict[Stream, Parts]
) -> list[Collective]:
    """Two hosts that send the same bytes to each other, and elsewhere in the step one way at a time, exchange these
    sends: stages of a pipeline send activations on while gradients come back."""
    one_way: dict[tuple[str, ...], list[float]] = defaultdict(list)
    for phase in phases:
        volumes = dict(zip((stream.hosts for stream in phase.streams), phase.volumes, strict=True))
        for hosts, volume in volumes.items():
            if hosts[::-1] not in volumes:
                one_way[hosts].append(volume)
    kept, exchanges = [], []
    for one in found:
        both = [one_way.get(hosts, []) for hosts in (one.hosts, one.hosts[::-1]) if len(hosts) == 2]
        sent = one.phases[0].bytes
        if both and one.kind != "send" and all(any(abs(size / sent - 1) <= EQUAL for size in way) for way in both):
            exchanges.append(one)
        else:
            kept.append(one)
    return [*kept, *as_sends(exchanges, steps, parts)]


def without_circles(
    found: list[Collective], phases: Sequence[Phase], steps: Steps, parts: dict[Stream, Parts]
) -> list[Collective]:
    """Hosts that send the same bytes around a ring, and elsewhere in the step on each of its flows without the others,
    pass these sends on: stages of a pipeline that have several parts of the model each."""
    elsewhere: dict[Stream, list[float]] = defaultdict(list)
    for phase in phases:
        if not shapes.is_ring(phase.streams):
            for stream, (begin, stop) in phase.spans.items():
                elsewhere[stream].append(stop - begin)
    circles = [
        one
        for one in found
        if one.algorithm == "ring" and len(one.hosts) > 2
        and all(
            phase.messages < 2 * (len(one.hosts) - 1)
            and all(any(abs(size / phase.bytes - 1) <= EQUAL for size in elsewhere[stream]) for stream in phase.spans)
            for phase in one.phases
        )
    ]  # fmt: skip
    rest = set(found).difference(circles)
    return [*(one for one in found if one in rest), *as_sends(circles, steps, parts)]


def as_sends(found: Sequence[Collective], steps: Steps, parts: dict[Stream, Parts]) -> list[Collective]:
    """The phases of these collectives as one transfer of each flow."""
    phases = dict.fromkeys(phase for one in found for phase in one.phases)
    return [send for phase in phases for send in sends_of(phase, steps, parts)]


def whole_sends(found: Sequence[Collective], steps: Steps, parts: dict[Stream, Parts]) -> list[Collective]:
    """The collectives. Where a flow's sends have one size, or that of the job's, parts of such are put together: a
    sender pauses within one, as TCP does behind a silence, and beside large sends a part looks like control messages.
    """
    by_flow: dict[Stream, list[tuple[float, float, Collective]]] = defaultdict(list)
    for one in found:
        for phase in one.phases:
            for stream, span in phase.spans.items():
                by_flow[stream].append((*span, one))
    sends = [one for one in found if _is_of_one_flow(one)]
    of_job = _usual_send([send.phases[0].bytes for send in sends])
    replaced: dict[Collective, list[Collective]] = {}
    for stream in dict.fromkeys(_flow_of(send) for send in sends):
        pieces = sorted(by_flow[stream], key=lambda piece: piece[:2])
        usual = _usual_send([one.phases[0].bytes for *_, one in pieces if _is_of_one_flow(one)]) or of_job
        if usual is None:
            continue
        for low, stop, several in _of_usual(pieces, steps.size[stream], usual):
            if (whole := measured({stream: (low, stop)}, steps, parts)) is not None:
                replaced |= {part: [] for part in several}
                replaced[several[0]] = [replace(several[0], tensor_bytes=whole.bytes, phases=(whole,))]
    return [send for one in found for send in replaced.get(one, [one])]


def _usual_send(sizes: Sequence[float]) -> float | None:
    """The median size of sends, where whole ones of that have most of their bytes; None elsewhere."""
    usual = float(np.median(sizes)) if sizes else np.inf
    whole = sum(size for size in sizes if _is_whole_send(size, usual))
    return usual if sizes and whole >= MOSTLY * sum(sizes) else None


def _of_usual(
    pieces: Sequence[tuple[float, float, Collective]], size: float, usual: float
) -> Iterator[tuple[float, float, list[Collective]]]:
    """Parts of sends that are whole ones together, with what no collective has before and between them: begin, stop
    and collectives. pieces: begin, stop and collective of a flow's bytes in their order. size: of its step."""
    low, some = 0.0, list[Collective]()
    for begin, stop, one in [*pieces, (size, size, None)]:
        is_part = one is not None and _is_of_one_flow(one) and not _is_whole_send(stop - begin, usual)
        if one is not None and is_part:
            some.append(one)
        end = stop if is_part else begin
        if some and _is_whole_send(end - low, usual):
            yield low, end, some
            low, some = end, []
        if not is_part:
            low, some = stop, []


def _is_of_one_flow(one: Collective) -> bool:
    return one.kind == "send" and len(one.phases[0].spans) == 1


def _is_whole_send(size: float, usual: float) -> bool:
    """Whether so many bytes are one or several sends of the usual ones."""
    return size > 0.5 * usual and abs(size / usual - round(size / usual)) <= _WHOLE_SEND


def _are_whole_sends(sizes: Sequence[float], usual: float) -> bool:
    return all(_is_whole_send(size, usual) for size in sizes)


def without_headers(send: Collective, header: float, steps: Steps, parts: dict[Stream, Parts]) -> Collective:
    """A send without the messages of control beside it on its flows, and without gloo's header."""
    (phase,) = send.phases
    data = 0.0
    for stream, span in phase.spans.items():
        part = part_in(parts[stream], span, steps)
        if not len(part.step):
            return send
        of_steps = np.bincount(np.unique(part.step, return_inverse=True)[1], part.stop - part.begin)
        data += float(np.median(of_steps))
    own = GLOO_HEADER if header == 2 * GLOO_HEADER else 0
    if not 0 <= phase.bytes - data <= _MOST_BESIDE or data < 10 * (_MOST_BESIDE + own):
        return send
    return replace(send, tensor_bytes=data - own)


def divided_sends(found: Sequence[Collective]) -> list[Collective]:
    """The collectives in their order. Where a flow's sends have one size, or that of the job's, what has a few times as
    much is several, and what has less than half is a rest. Else those without another collective between them are one
    that paused, as in TCP's slow start."""
    by_flow: dict[Stream, list[Collective]] = defaultdict(list)
    for collective in found:
        if collective.kind == "send":
            by_flow[_flow_of(collective)].append(collective)
    usual_of = _usual_sends({stream: [send.tensor_bytes for send in sends] for stream, sends in by_flow.items()})
    result = [collective for collective in found if collective.kind != "send"]
    paused: set[Stream] = set()
    for stream, sends in by_flow.items():
        usual = usual_of[stream]
        times = [_times_as_many(send.tensor_bytes / usual) for send in sends]
        of_one_size = sum(send.tensor_bytes for send, several in zip(sends, times, strict=True) if several)
        if of_one_size < 0.5 * sum(send.tensor_bytes for send in sends):
            result += sends
            paused.add(stream)
            continue
        for send, several in zip(sends, times, strict=True):
            if several > 1:
                result += [replace(send, tensor_bytes=usual)] * several
            elif send.tensor_bytes >= 0.5 * usual:
                result.append(send)
    return _joined(sorted(result, key=lambda collective: collective.phases[0].order), paused)


def _usual_sends(sizes: Mapping[Stream, Sequence[float]]) -> dict[Stream, float]:
    """Bytes of a usual send of each flow: the median, or that of the job where all are whole ones of that, and not of
    the median, or the flow has as many bytes as one with such sends: stages send as many micro-batches."""
    own = {stream: float(np.median(some)) for stream, some in sizes.items()}
    of_job = float(np.median([size for some in sizes.values() for size in some] or [np.inf]))
    totals = {stream: sum(some) for stream, some in sizes.items()}
    typical = [totals[stream] for stream, usual in own.items() if abs(usual / of_job - 1) <= _WHOLE_SEND]
    return {
        stream: of_job
        if _are_whole_sends(some, of_job)
        and (
            not _are_whole_sends(some, own[stream]) or any(abs(totals[stream] / t - 1) <= _WHOLE_SEND for t in typical)
        )
        else own[stream]
        for stream, some in sizes.items()
    }


def _times_as_many(ratio: float) -> int:
    """How many sends of the usual bytes make up so many times as much; 0 where they do not. Any large number is near a
    whole one."""
    several = round(ratio)
    return several if several <= _AS_ONE and abs(ratio - several) < min(0.05 * several, 0.1) else 0


def _joined(found: Sequence[Collective], paused: Collection[Stream]) -> list[Collective]:
    """Collectives, of which sends of one of these flows that follow each other are one."""
    result: list[Collective] = []
    for one in found:
        before = result[-1] if result else None
        if before and before.kind == one.kind == "send" and _flow_of(before) == _flow_of(one) in paused:
            volume = before.tensor_bytes + one.tensor_bytes
            result[-1] = replace(before, tensor_bytes=volume, phases=(*before.phases, *one.phases))
        else:
            result.append(one)
    return result


def _flow_of(send: Collective) -> Stream:
    return next(iter(send.phases[0].spans))
