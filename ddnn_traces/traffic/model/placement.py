"""Which collective a measured exchange is, and which host takes which of its places."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ddnn_traces.errors import UsageError
from ddnn_traces.traffic.collectives import SHAPES, Collective

Floats = npt.NDArray[np.float64]

#: Hosts up to which all permutations are tried; beyond, the ring's order and the root decide.
MOST_TRIED = 7

_PROBE_BYTES = 1 << 24


@dataclass(frozen=True)
class Placement:
    """A collective with its places, and the part of the measured payload that is elsewhere than it says."""

    collective: Collective
    misplaced: float


def place(topology: str, matrix: Floats, workers: int, given: tuple[int, ...]) -> Placement | None:
    """The collective of a topology that fits best the payload that each host sends to each other (`matrix`).

    workers: how many of the hosts, from the first, compute; the others are parameter servers. given: hosts in the
    order of the ring, or the root first; it decides where several fit equally. None where there is no such law, or it
    has another number of hosts.
    """
    best: Placement | None = None
    for shape in SHAPES.get(topology, ()):
        for collective in _candidates(topology, shape, workers, len(matrix)):
            found = _best_order(collective, matrix, given)
            if best is None or found.misplaced < best.misplaced - 0.01:
                best = found
    return best


def _candidates(topology: str, shape: str, workers: int, hosts: int) -> list[Collective]:
    grouped = topology in ("binary_tree_star", "hierarchical_ring")
    sizes: list[int | None] = list(range(2, workers)) if grouped else [None]
    found = []
    for size in sizes or [None]:
        try:
            servers = hosts - workers if shape == "apart" else None
            collective = Collective(topology, workers, shape, servers, size)
        except UsageError:
            continue
        if collective.hosts == hosts:
            found.append(collective)
    return found


def _best_order(collective: Collective, matrix: Floats, given: tuple[int, ...]) -> Placement:
    law = pair_matrix(collective, _PROBE_BYTES)
    law, wanted = law / max(law.sum(), 1), matrix / max(matrix.sum(), 1)
    hosts = len(matrix)
    named = (*given, *(host for host in range(hosts) if host not in given))
    orders: list[tuple[int, ...]] = [named]
    if collective.topology in ("clique", "pair_averaging"):  # all places are alike
        orders = [tuple(range(hosts))]
    elif hosts <= MOST_TRIED:
        orders += list(itertools.permutations(range(hosts)))
    places = np.array(orders)
    off = np.abs(wanted[places[:, :, None], places[:, None, :]] - law).sum((1, 2)) / 2
    best = int(np.flatnonzero(off <= off.min() + 0.01)[0])
    order = () if orders[best] == tuple(range(hosts)) else orders[best]
    fields = (collective.topology, collective.workers, collective.shape, collective.servers, collective.group_size)
    return Placement(Collective(*fields, order), float(off[best]))


def pair_matrix(collective: Collective, size_bytes: int) -> Floats:
    """Payload that each host sends to each other in a step; of pair averaging, on average."""
    matrix = np.zeros((collective.hosts, collective.hosts))
    if collective.topology == "pair_averaging" and collective.workers > 1:
        lonely = collective.shape == "exchange" and collective.workers % 2 == 1
        number = collective.workers - lonely
        share = size_bytes * number / (collective.workers * (collective.workers - 1))
        matrix[:] = share
        np.fill_diagonal(matrix, 0)
        return matrix
    for round_ in collective.rounds(size_bytes):
        for transfer in round_:
            matrix[transfer.src, transfer.dst] += transfer.bytes
    return matrix
