"""A fully sharded step (FSDP, ZeRO 3): what each of its phases is, by their bytes alone.

A layer's parameters are gathered for the forward pass and again for the backward pass, and its gradients scattered
behind (Zhao et al. 2023). So each shard's volume is there three times.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np

from ddnn_traces.collectives.streams import groups

_SAME = 0.03  # of a shard, between its three volumes
_SAME_ROUNDS = 0.01  # the same, of collectives that messages bound
_EXACT = 5e-4  # of the bytes, for a sum of shards
_MOST_SUMS = 300
_MOST_PHASES = 9  # that are looked at as sums of shards
_MOST_SHARDS = 4
_LEAST_SHARD = 100.0  # bytes
_LEAST_JOINED = 3  # shards, where two all-gathers of the last one are a phase, or one is missing: fewer fit by chance
_LEAST_CALLS = 6  # of a step with two shards

#: Of a collective: its kind, and the bytes of the all-gather of its shard.
Role = tuple[str, float]


def roles_of(volumes: Sequence[float], pauses: Sequence[float], is_whole: bool) -> list[list[Role]] | None:
    """The collectives of each phase of a fully sharded step, by the bytes of the phases; None where it is another one.

    pauses: before each phase, ns, above 0.
    is_whole: whether each phase is at least one collective; it may then be several without a pause between them.
    """
    if found := sharded(volumes):
        return [[role] for role in found]
    if not is_whole:
        return None
    if in_layers := _in_layers(volumes, pauses):
        return in_layers
    for summands in _as_sums(volumes):
        if found := sharded([volume for some in summands for volume in some]):
            ordered = iter(found)
            return [list(itertools.islice(ordered, len(some))) for some in summands]
    return None


def sharded(volumes: Sequence[float]) -> list[Role] | None:
    """The kinds of a fully sharded step, and the volume of the all-gather of each; None where it is another one.

    Each shard is gathered twice, for the forward and the backward pass, and its gradients are scattered behind: its
    volume is there three times. gloo's reduce-scatter is an all-reduce, of twice the volume. All shards are gathered
    for the forward pass before any is gathered again, and the backward pass goes through them in reverse. The
    longest silence, where a step is taken to begin, may be anywhere in it.
    """
    if len(volumes) % 3:
        return None
    # from another place, two shards look like three all-reduces of one size behind three of another
    for begin in range(len(volumes) if len(volumes) > 6 else 1):
        if roles := _sharded_from_its_start([*volumes[begin:], *volumes[:begin]]):
            return [*roles[len(volumes) - begin :], *roles[: len(volumes) - begin]]
    return None


def _sharded_from_its_start(volumes: Sequence[float]) -> list[Role] | None:
    shards: list[float] = []
    member: list[tuple[int, bool]] = []
    for volume in volumes:
        known = [(i, _same(2 * s, volume)) for i, s in enumerate(shards) if _same(s, volume) or _same(2 * s, volume)]
        member.append(known[0] if known else (len(shards), False))
        if not known:
            shards.append(volume)
    if len(volumes) != 3 * len(shards) or len({index for index, _ in member[: len(shards)]}) != len(shards):
        return None
    roles: list[Role] = [("all_gather", volume) for volume in volumes]
    again: list[list[int]] = []
    for index, shard in enumerate(shards):
        places = [place for place, (i, _) in enumerate(member) if i == index]
        doubled = [place for place in places if member[place][1]]
        if len(places) != 3 or len(doubled) > 1:
            return None
        scattered = doubled[0] if doubled else places[-1]
        roles[scattered] = ("reduce_scatter", shard if doubled else volumes[scattered])
        again.append(places[1:])
    in_reverse = all(one[place] > other[place] for one, other in itertools.pairwise(again) for place in (0, 1))
    return roles if in_reverse else None


def in_order(volumes: Sequence[float]) -> list[Role] | None:
    """The collectives of a fully sharded step, by their volumes in their order; None where it is another one.

    Layers may have equal sizes, but not all. The first and the last one may stay whole between the passes, and
    gradients may have twice the bytes of the parameters, as float32 beside bfloat16.
    """
    if len(volumes) < _LEAST_CALLS or _nearly(min(volumes), max(volumes)):
        return None
    ways = itertools.product(range(len(volumes)), (1, 2), (False, True), (False, True), (False, True))
    sent = np.concatenate([[0.0], np.cumsum([*volumes, *volumes])])
    for begin, scattered, is_kept, is_ahead, is_last_kept in ways:
        count, left = divmod(len(volumes) + is_kept + is_last_kept, 3)
        if left or count < (_LEAST_JOINED if is_kept or is_last_kept else 2):
            continue
        gathered = float(sent[begin + count] - sent[begin]) * (2 + scattered)
        kept = is_kept * volumes[begin] + is_last_kept * volumes[(begin + count - 1) % len(volumes)]
        if not _same(gathered - kept, float(sent[len(volumes)])):
            continue
        turned = [*volumes[begin:], *volumes[:begin]]
        shards = turned[:count]
        backward = _backward(shards, is_kept, is_ahead)
        backward[0] = backward[0][is_last_kept:]
        kinds = [*(("all_gather", shard) for shard in shards), *itertools.chain.from_iterable(backward)]
        roles = [(kind, shard * (scattered if kind == "reduce_scatter" else 1)) for kind, shard in kinds]
        if all(_nearly(expected, volume) for (_, expected), volume in zip(roles, turned, strict=True)):
            return [*roles[len(volumes) - begin :], *roles[: len(volumes) - begin]]
    return None


def _in_layers(volumes: Sequence[float], pauses: Sequence[float]) -> list[list[Role]] | None:
    """The same of layers that may have equal sizes, by the order of their collectives.

    In the forward pass each has a phase. In the backward pass two may follow each other without a pause, and where
    nothing else fits, the last layer's passes, too. Where several orders fit, the backward computations are taken that
    differ least: layers of equal size compute for as long.
    """
    if _same(min(volumes), max(volumes)):
        return None
    found = []
    ways = itertools.product(range(len(volumes)), (1, 2), (False, True), (False, True), (False, True))
    for begin, scattered, is_kept, is_ahead, is_joined in ways:
        places = [*range(begin, len(volumes)), *range(begin)]
        turned = [volumes[place] for place in places]
        last = np.array(turned)
        if is_joined:
            last = (last - [0.0, *turned[:-1]] * np.array(is_ahead)) / 2
        gathered = (np.cumsum(turned) - turned + last) * (2 + scattered) - (turned[0] if is_kept else 0)
        for count in np.flatnonzero(np.abs(gathered - sum(volumes)) < _SAME * sum(volumes)) + 1:
            if is_joined and count < _LEAST_JOINED:
                continue
            shards = [*turned[: count - 1], float(last[count - 1])]
            forward: list[list[Role]] = [[("all_gather", one)] for one in shards]
            backward = _backward(shards, is_kept, is_ahead) if count > 1 else []
            if is_joined:
                forward[-1] += backward.pop(0)
            if roles := _matched(backward, turned[count:], scattered):
                of_place = dict(zip(places, [*forward, *roles], strict=True))
                before = [pauses[place] for place, some in of_place.items() if some[0][0] == "reduce_scatter"]
                uneven = float(np.std(np.log(before)))
                found.append((is_joined, uneven, [of_place[place] for place in range(len(volumes))]))
    return min(found, key=lambda one: one[:2])[2] if found else None


def _backward(shards: Sequence[float], is_kept: bool, is_ahead: bool) -> list[list[Role]]:
    """The collectives of a backward pass between two computations each, with the shards in the order of the forward
    pass.

    is_kept: the first shard stays whole since then, as that of PyTorch's root module. is_ahead: a layer computes while
    the one before is gathered, as in PyTorch.
    """
    gathers: list[list[Role]] = [[("all_gather", shard)] for shard in reversed(shards)]
    if is_kept:
        gathers[-1] = []
    scatters: list[list[Role]] = [[("reduce_scatter", shard)] for shard in reversed(shards)]
    if is_ahead:
        gathers = [gathers[0] + gathers[1], *gathers[2:], []]
    return [gathers[0], *(s + g for s, g in zip(scatters, [*gathers[1:], []], strict=True))]


def _matched(backward: Sequence[list[Role]], volumes: Sequence[float], scattered: int) -> list[list[Role]] | None:
    """The collectives of each volume; None where these are others. scattered: volume of a reduce-scatter, in shards."""
    found: list[list[Role]] = []
    for between in backward:
        left = list(between)
        while left:
            if len(found) == len(volumes):
                return None
            sizes = np.cumsum([volume * (scattered if kind == "reduce_scatter" else 1) for kind, volume in left])
            fits = [count for count, size in enumerate(sizes, 1) if _same(size, volumes[len(found)])]
            if not fits:
                return None
            found.append(left[: fits[0]])
            left = left[fits[0] :]
    return found if len(found) == len(volumes) else None


def _nearly(one: float, other: float) -> bool:
    return abs(one - other) <= max(_SAME_ROUNDS * one, 100.0)


def _same(one: float, other: float) -> bool:
    return abs(one - other) <= max(_SAME * one, 100.0)


def _as_sums(volumes: Sequence[float]) -> Iterator[tuple[tuple[float, ...], ...]]:
    """Each volume as the sum of up to three shards, of two to four: collectives without a pause between them.

    All shards add up to a third of the step, for each is there three times. A shard that is in no phase alone is the
    difference of two phases.
    """
    apart = [one - other for one, other in itertools.permutations(volumes, 2)]
    seen = np.sort([volume for volume in (*volumes, *apart) if volume > _LEAST_SHARD])
    possible = [float(np.median(seen[same])) for same in groups(seen, _LEAST_SHARD)]
    for count in range(2, _MOST_SHARDS + 1) if len(volumes) <= _MOST_PHASES else ():
        for shards in itertools.combinations(possible, count):
            if _is_sum([3 * shard for shard in shards], sum(volumes)):
                several = [some for n in (1, 2, 3) for some in itertools.permutations(shards, n)]
                ways = [[some for some in several if _is_sum(some, volume)] for volume in volumes]
                yield from itertools.islice(itertools.product(*ways), _MOST_SUMS)


def _is_sum(parts: Sequence[float], whole: float) -> bool:
    return abs(sum(parts) - whole) <= max(100.0, _EXACT * whole)
