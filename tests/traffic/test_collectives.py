"""The rounds of each collective against the closed formulas of its source."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from math import log2
from typing import Any

import duckdb
import pytest

from ddnn_traces.errors import UsageError
from ddnn_traces.query import catalogue
from ddnn_traces.traffic.collectives import SHAPES, Collective, Round, Transfer, broadcast, shares

SIZE = 1_000_003  # divides by none of the numbers of workers
QUICK = (2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 17, 33, 64)
WORKERS = [pytest.param(n, marks=[] if n in QUICK else pytest.mark.long) for n in range(2, 65)]
ALL = [(topology, shape) for topology, shapes in SHAPES.items() for shape in shapes]
#: Topologies after whose step not all workers know of all.
NO_ALL_REDUCE = ("pair_averaging",)


def summed(rounds: list[Round], key: Callable[[Transfer], Any]) -> Counter[Any]:
    """Bytes under each key of the transfers."""
    found: Counter[Any] = Counter()
    for round_ in rounds:
        for transfer in round_:
            found[key(transfer)] += transfer.bytes
    return found


def sent(rounds: list[Round]) -> Counter[int]:
    """Bytes that each host sends."""
    return summed(rounds, lambda t: t.src)


def received(rounds: list[Round]) -> Counter[int]:
    """Bytes that each host receives."""
    return summed(rounds, lambda t: t.dst)


def pairs(rounds: list[Round]) -> Counter[tuple[int, int]]:
    """Bytes of each directed pair."""
    return summed(rounds, lambda t: (t.src, t.dst))


def total(rounds: list[Round]) -> int:
    return sum(t.bytes for r in rounds for t in r)


def power_of_two(workers: int) -> int:
    return 1 << workers.bit_length() - 1


# --- every collective


@pytest.mark.parametrize(("topology", "shape"), ALL)
def test_transfers_are_between_two_hosts_of_the_run(topology: str, shape: str, subtests: pytest.Subtests) -> None:
    for workers in (1, 2, 3, 4, 5, 7, 8, 16, 33, 64):
        with subtests.test(workers=workers):
            collective = Collective(topology, workers, shape)
            rounds = collective.rounds(SIZE, random.Random(1))
            assert all(t.src != t.dst and t.bytes > 0 for r in rounds for t in r)
            assert {host for r in rounds for t in r for host in (t.src, t.dst)} <= set(range(collective.hosts))
            assert all(len({(t.src, t.dst) for t in r}) == len(r) for r in rounds), "two transfers of a pair in a round"


@pytest.mark.parametrize(("topology", "shape"), [pair for pair in ALL if pair[0] not in NO_ALL_REDUCE])
@pytest.mark.parametrize("workers", [n for n in WORKERS if n.values[0] < 18 or n.values[0] in (31, 32, 33, 64)])
def test_all_workers_learn_of_all(topology: str, shape: str, workers: int) -> None:
    """An all-reduce: when rounds pass on all that a host has heard of, all workers hear of all workers."""
    collective = Collective(topology, workers, shape)
    heard = [{host} for host in range(collective.hosts)]
    for round_ in collective.rounds(SIZE):
        before = [set(known) for known in heard]
        for t in round_:
            heard[t.dst] |= before[t.src]
    assert all(heard[worker] >= set(range(workers)) for worker in range(workers))


@pytest.mark.parametrize(("topology", "shape"), ALL)
def test_order_names_the_hosts_of_the_places(topology: str, shape: str) -> None:
    plain = Collective(topology, 6, shape)
    order = tuple(reversed(range(plain.hosts)))
    turned = Collective(topology, 6, shape, order=order)
    expected = Counter({(order[a], order[b]): n for (a, b), n in pairs(plain.rounds(SIZE, random.Random(3))).items()})
    assert pairs(turned.rounds(SIZE, random.Random(3))) == expected


def stated_laws(collective: Collective) -> list[dict[str, Any]]:
    """The rows of queries/collective_laws.sql of the collective's topology whose factor is known for its numbers."""
    workers, servers = collective.workers, collective.servers or 0
    numbers = {
        "hosts": collective.hosts,
        "core_hosts": power_of_two(workers),
        "smaller_party": min(workers, servers) if collective.shape == "apart" else None,
        "groups": -(-workers // collective.group_size) if collective.group_size else None,
    }
    query = catalogue.find("collective_laws")
    with duckdb.connect() as connection:
        rows = connection.sql(query.sql, params=query.values(numbers)).to_arrow_table().to_pylist()
    return [row for row in rows if row["topology"] == collective.topology and row["total_factor"] is not None]


def weight(law: dict[str, Any], sent_by_pair: Counter[tuple[int, int]], pair: tuple[int, int], hosts: int) -> float:
    """What a pair sends relative to others by the law, as topology_volumes and pair_conservation read it."""
    outs, ins = Counter(src for src, _ in sent_by_pair), Counter(dst for _, dst in sent_by_pair)
    if outs[pair[0]] == ins[pair[1]] == hosts - 1:
        return float(law["server_ratio"])
    heavier = [
        b for (src, dst), b in sent_by_pair.items() if src == pair[0] and ins[dst] > 1 and b > sent_by_pair[pair] + 2
    ]
    return float(law["partner_ratio"] ** len(heavier)) if outs[pair[0]] > 1 and ins[pair[1]] > 1 else 1.0


@pytest.mark.parametrize("workers", [4, 5, 8, 9])
@pytest.mark.parametrize(("topology", "shape"), ALL)
def test_the_transfers_follow_a_law_that_the_queries_know(topology: str, shape: str, workers: int) -> None:
    collective = Collective(topology, workers, shape)
    laws, by_pair = stated_laws(collective), pairs(collective.rounds(SIZE))
    moved = sum(by_pair.values()) / SIZE
    [law] = [law for law in laws if law["total_factor"] == pytest.approx(moved, rel=1e-4)][:1] or [None]
    assert law is not None, f"{moved} is none of {[law['total_factor'] for law in laws]}"
    if law["partner_ratio"] is None or len(by_pair) > (law["most_edges"] or len(by_pair)):
        return  # the law fixes only the sum
    weights = {pair: weight(law, by_pair, pair, collective.hosts) for pair in by_pair}
    shared = {pair: moved * share / sum(weights.values()) for pair, share in weights.items()}
    assert {pair: sent / SIZE for pair, sent in by_pair.items()} == pytest.approx(shared, rel=1e-4)


def test_shares_are_whole_bytes_that_add_up() -> None:
    for parts in range(2, 65):
        assert sum(shares(SIZE, parts)) == SIZE
        assert set(shares(SIZE, parts)) <= {SIZE // parts, SIZE // parts + 1}


# --- closed formulas


@pytest.mark.parametrize("workers", WORKERS)
def test_ring(workers: int) -> None:
    """Patarasuk & Yuan: 2(N-1) rounds, 2(N-1)/N*S a worker, all to the next."""
    rounds = Collective("ring", workers).rounds(SIZE)
    assert len(rounds) == 2 * (workers - 1)
    assert set(pairs(rounds)) == {(i, (i + 1) % workers) for i in range(workers)}
    assert total(rounds) == 2 * (workers - 1) * SIZE
    for number in (*sent(rounds).values(), *received(rounds).values()):
        assert number == pytest.approx(2 * (workers - 1) / workers * SIZE, abs=2)


def test_ring_of_three_by_hand() -> None:
    rounds = Collective("ring", 3).rounds(11)  # chunks of 3, 4 and 4
    chunks = [[r_bytes for *_, r_bytes in sorted(round_)] for round_ in rounds]
    assert chunks == [[3, 4, 4], [4, 3, 4], [4, 4, 3], [3, 4, 4]]


@pytest.mark.parametrize("shape", SHAPES["tree"])
@pytest.mark.parametrize("workers", WORKERS)
def test_tree(workers: int, shape: str) -> None:
    """N-1 edges, S up and S down each; the root is host 0."""
    rounds = Collective("tree", workers, shape).rounds(SIZE)
    found = pairs(rounds)
    assert len(found) == 2 * (workers - 1)
    assert set(found.values()) == {SIZE}
    depth = {"heap": workers.bit_length() - 1, "binomial": (workers - 1).bit_length(), "chain": workers - 1}[shape]
    assert len(rounds) == 2 * depth
    children = {src for src, dst in found if src > dst}
    assert children == set(range(1, workers))


def test_heap_and_binomial_tree_by_hand() -> None:
    up = {"heap": {(1, 0), (2, 0), (3, 1), (4, 1), (5, 2)}, "binomial": {(1, 0), (3, 2), (5, 4), (2, 0), (4, 0)}}
    for shape, edges in up.items():
        found = {(src, dst) for src, dst in pairs(Collective("tree", 6, shape).rounds(SIZE)) if src > dst}
        assert found == edges


@pytest.mark.parametrize("workers", WORKERS)
def test_star(workers: int) -> None:
    rounds = Collective("star", workers).rounds(SIZE)
    assert sent(rounds) == {0: (workers - 1) * SIZE} | dict.fromkeys(range(1, workers), SIZE)
    rounds = Collective("star", workers, "server").rounds(SIZE)
    assert sent(rounds) == {workers: workers * SIZE} | dict.fromkeys(range(workers), SIZE)
    assert len(rounds) == 2


@pytest.mark.parametrize("workers", WORKERS)
def test_sharded_parameter_server(workers: int) -> None:
    """Chang: n*w transfers a phase, 2*m*w bytes."""
    collective = Collective("sharded_parameter_server", workers, servers=3)
    rounds = collective.rounds(SIZE)
    assert collective.hosts == workers + 3
    assert [len(r) for r in rounds] == [3 * workers] * 2
    assert total(rounds) == 2 * SIZE * workers
    assert all(sent(rounds)[worker] == SIZE for worker in range(workers))
    assert all(sent(rounds)[workers + i] == workers * share for i, share in enumerate(shares(SIZE, 3)))


@pytest.mark.parametrize("workers", WORKERS)
def test_colocated_parameter_server(workers: int) -> None:
    """A worker's own shard stays at home."""
    rounds = Collective("sharded_parameter_server", workers, "colocated", servers=2).rounds(SIZE)
    assert total(rounds) == 2 * SIZE * (workers - 1)
    everywhere = Collective("sharded_parameter_server", workers, "colocated").rounds(SIZE)
    assert pairs(everywhere) == pairs(Collective("clique", workers, "sharded").rounds(SIZE))


@pytest.mark.parametrize("group", [1, 2, 4, 7])
@pytest.mark.parametrize("workers", WORKERS)
def test_binary_tree_star_of_groups(workers: int, group: int) -> None:
    found = pairs(Collective("binary_tree_star", workers, group_size=group).rounds(SIZE))
    assert len(found) == 2 * (workers - 1)
    assert set(found.values()) == {SIZE}
    parents = {src: dst for src, dst in found if src > dst}
    for host, parent in parents.items():
        place = host // group
        assert parent == (place * group if host % group else (place - 1) // 2 * group)


def test_binary_tree_star_as_published() -> None:
    """Zerwas fig. 4(b): W4 is a child of W2, a third of its traffic goes through it, the rest straight to W1."""
    found = pairs(Collective("binary_tree_star", 4, "overlay").rounds(900))
    up = {(1, 0): 900, (2, 0): 900, (3, 1): 300, (3, 0): 600}
    assert found == up | {(dst, src): number for (src, dst), number in up.items()}


@pytest.mark.parametrize("workers", WORKERS)
def test_binary_tree_star_overlay(workers: int) -> None:
    rounds = Collective("binary_tree_star", workers, "overlay").rounds(SIZE)
    assert total(rounds) == 2 * (workers - 1) * SIZE
    assert all(sent(rounds)[worker] >= SIZE for worker in range(1, workers))


@pytest.mark.parametrize("workers", WORKERS)
def test_clique(workers: int) -> None:
    full = Collective("clique", workers).rounds(SIZE)
    assert pairs(full) == {(i, j): SIZE for i in range(workers) for j in range(workers) if i != j}
    sharded = Collective("clique", workers, "sharded").rounds(SIZE)
    assert total(sharded) == 2 * (workers - 1) * SIZE
    assert len(sharded) == 2


@pytest.mark.parametrize("workers", WORKERS)
def test_recursive_doubling(workers: int) -> None:
    """log2 N * S a worker; the ranks beyond a power of two send S before and get S after."""
    rounds = Collective("recursive_doubling", workers).rounds(SIZE)
    core = power_of_two(workers)
    extra = workers - core
    assert len(rounds) == log2(core) + 2 * (extra > 0)
    assert total(rounds) == core * log2(core) * SIZE + 2 * extra * SIZE
    if not extra:
        assert set(pairs(rounds)) == {(i, i ^ 1 << k) for i in range(workers) for k in range(int(log2(workers)))}


@pytest.mark.parametrize("shape", SHAPES["halving_doubling"])
@pytest.mark.parametrize("workers", WORKERS)
def test_halving_doubling(workers: int, shape: str) -> None:
    """2(P-1)/P*S each of the P ranks that take part; log2 P rounds each way."""
    rounds = Collective("halving_doubling", workers, shape).rounds(SIZE)
    core = power_of_two(workers)
    extra = workers - core
    assert len(rounds) == 2 * log2(core) + 2 * (extra > 0)
    assert total(rounds) == 2 * (core - 1) * SIZE + 2 * extra * SIZE
    if not extra:
        for number in sent(rounds).values():
            assert number == pytest.approx(2 * (workers - 1) / workers * SIZE, abs=2 * len(rounds))
        first = 1 if shape == "nearest_first" else workers // 2
        assert pairs(rounds)[0, first] == pytest.approx(SIZE, abs=2)


@pytest.mark.parametrize("workers", WORKERS)
def test_pair_averaging(workers: int) -> None:
    rng = random.Random(workers)
    for _ in range(10):
        [pulls] = Collective("pair_averaging", workers).rounds(SIZE, rng)
        assert sorted(t.dst for t in pulls) == list(range(workers))
        [swaps] = Collective("pair_averaging", workers, "exchange").rounds(SIZE, rng)
        assert len({t.src for t in swaps}) == len(swaps) == workers - workers % 2
        assert {(t.dst, t.src) for t in swaps} == {(t.src, t.dst) for t in swaps}


def test_pair_averaging_draws_all_peers_alike() -> None:
    rng = random.Random(0)
    drawn = Counter(t.src for _ in range(3000) for t in Collective("pair_averaging", 4).rounds(1, rng)[0] if t.dst == 0)
    assert set(drawn) == {1, 2, 3}
    assert all(count == pytest.approx(1000, abs=120) for count in drawn.values())


@pytest.mark.parametrize("workers", WORKERS)
def test_hierarchical_ring_of_leaders(workers: int) -> None:
    collective = Collective("hierarchical_ring", workers)
    size = collective.group_size
    groups = [min(size, workers - first) for first in range(0, workers, size)]
    inside = sum(2 * (group - 1) * SIZE for group in groups)
    among = 2 * (len(groups) - 1) * SIZE
    outward = sum((group - 1) * SIZE for group in groups)
    assert total(collective.rounds(SIZE)) == inside + among + outward


@pytest.mark.parametrize(("workers", "group"), [(4, 2), (6, 3), (8, 4), (12, 3), (16, 4), (64, 8), (64, 4)])
def test_hierarchical_ring_of_equals(workers: int, group: int) -> None:
    """2(g-1)/g*S inside and 2(m-1)/m*S/g across m groups: 2(N-1)/N*S a worker."""
    rounds = Collective("hierarchical_ring", workers, "grid", group_size=group).rounds(SIZE)
    across = workers // group
    assert len(rounds) == 2 * (group - 1) + 2 * (across - 1)
    assert total(rounds) == 2 * (workers - 1) * SIZE
    for number in sent(rounds).values():
        assert number == pytest.approx(2 * (workers - 1) / workers * SIZE, abs=4)
    for src, dst in pairs(rounds):
        assert src // group == dst // group or src % group == dst % group


def test_broadcast_is_that_of_the_captures() -> None:
    """PyTorch and TensorFlow on 4 workers: 1 to 2, then 1 to 3 and 2 to 4."""
    assert pairs(broadcast(4, SIZE)) == {(0, 1): SIZE, (0, 2): SIZE, (1, 3): SIZE}
    for hosts in range(2, 65):
        assert received(broadcast(hosts, SIZE)) == dict.fromkeys(range(1, hosts), SIZE)


# --- invalid arguments


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"topology": "torus", "workers": 4}, "no topology named torus; there are ring, tree"),
        ({"topology": "tree", "workers": 4, "shape": "heep"}, "tree has no shape heep; it is one of heap, binomial"),
        ({"topology": "ring", "workers": 0}, "0 workers"),
        ({"topology": "ring", "workers": 3, "order": (0, 1)}, "not a permutation of the hosts 0 to 2"),
        ({"topology": "hierarchical_ring", "workers": 6, "shape": "grid", "group_size": 4}, "groups of 4 hosts"),
        (
            {"topology": "sharded_parameter_server", "workers": 2, "shape": "colocated", "servers": 3},
            "3 parameter servers",
        ),
    ],
)
def test_what_cannot_be_is_refused(arguments: dict, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Collective(**arguments)
