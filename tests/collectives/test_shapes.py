"""Graphs of collectives, and steps by the order of their volumes: rings, trees, exchanges, sharded steps."""

from __future__ import annotations

import duckdb
import numpy as np
import polars as pl
import pytest

from ddnn_traces.collectives import shapes
from ddnn_traces.collectives.infer import infer
from ddnn_traces.collectives.sharded import roles_of, sharded
from ddnn_traces.collectives.streams import Array, Stream
from ddnn_traces.query import catalogue
from ddnn_traces.traffic.simulator.task_graph import double_tree


@pytest.mark.parametrize(("order", "found"), [("lsl", True), ("ssll", False), ("sl", False), ("lls", False)])
def test_half_the_bytes_between_other_pairs_are_halving_doubling_from_outside_in(order: str, found: bool) -> None:
    """Otherwise they are all-reduces of pairs, as of tensors and of data. l: pairs 01 and 23, s: 02 and 13."""
    pairs = {"l": [("0", "1"), ("2", "3")], "s": [("0", "2"), ("1", "3")]}
    both_ways = {step: [pair for a, b in some for pair in ((a, b), (b, a))] for step, some in pairs.items()}
    whole = {"l": 800_000, "s": 400_000}
    number = np.arange(6)
    begin = 100_000_000 * number
    streams = []
    for step, hosts in both_ways.items():
        places = [place for place, one in enumerate(order) if one == step]
        for src, dst in hosts:
            first = np.concatenate([at + 5_000_000 * np.array(places) for at in begin])
            size = np.full(len(first), whole[step] // len(places))
            start = np.cumsum(size) - size
            streams.append(Stream(len(streams), src, dst, start, size, first, first + 1_000_000, start + size))
    (job,) = infer(streams)
    assert [c.algorithm == "halving_doubling" for c in job.collectives if len(c.hosts) > 2] == [True] * found


def made(pairs: list[tuple[str, str]]) -> list[Stream]:
    none: Array = np.zeros(0, np.int64)
    return [Stream(number, src, dst, none, none, none, none, none) for number, (src, dst) in enumerate(pairs)]


def both(edges: list[tuple[int, int]]) -> list[tuple[str, str]]:
    return [pair for a, b in edges for pair in ((str(a), str(b)), (str(b), str(a)))]


def test_a_double_binary_tree_is_two_trees() -> None:
    """NCCL's ncclGetDtree for eight ranks: the second tree is the first one mirrored."""
    tree = [(0, 4), (4, 2), (4, 6), (2, 1), (2, 3), (6, 5), (6, 7)]
    mirrored = [(7 - a, 7 - b) for a, b in tree]
    trees = shapes.double_tree(made(both(tree) + both(mirrored)))
    assert trees is not None
    assert [len(found) for found in trees] == [7, 7]
    assert sorted(trees[0] + trees[1]) == sorted((str(min(e)), str(max(e))) for e in tree + mirrored)
    assert shapes.double_tree(made(both(tree) + both(tree))) is None  # inner hosts are a leaf of none


@pytest.mark.parametrize("ranks", [9, 64, 101])
def test_a_large_double_tree_is_divided_by_what_goes_up_first(ranks: int) -> None:
    """Each rank sends up at once where it is a leaf, and else behind its children; hosts have other names."""
    names = np.random.default_rng(1).permutation(ranks)
    streams, times, wanted = [], {}, []
    for parents in double_tree(ranks):
        height = [0] * ranks
        for _ in range(ranks.bit_length()):
            for rank in range(ranks):
                if parents[rank] >= 0:
                    height[parents[rank]] = max(height[parents[rank]], height[rank] + 1)
        edges = [(rank, parents[rank]) for rank in range(ranks) if parents[rank] >= 0]
        for rank, parent in edges:
            up, down = made([(str(names[rank]), str(names[parent])), (str(names[parent]), str(names[rank]))])
            streams += [up, down]
            times |= {up: height[rank], down: 100 - height[rank]}
        wanted.append({frozenset((str(names[a]), str(names[b]))) for a, b in edges})
    trees = shapes.double_tree(streams, times)
    assert trees is not None
    found = [{frozenset(edge) for edge in tree} for tree in trees]
    assert found in (wanted, wanted[::-1])


def test_large_rings_are_told_apart_by_what_follows_at_each_host() -> None:
    random = np.random.default_rng(1)
    orders = [random.permutation(40) for _ in range(3)]
    streams = []
    for channel, order in enumerate(orders):
        for place, host in enumerate(order):
            first = 1000 * place + 40_000 * np.arange(5) + 300 * channel
            edge = str(host), str(order[(place + 1) % 40])
            streams.append(Stream(len(streams), *edge, first, first, first, first + 900, first))
    found = shapes.rings(streams)
    assert found is not None
    following = [{(o[i], o[(i + 1) % 40]) for i in range(40)} for o in found]
    assert all({(str(o[i]), str(o[(i + 1) % 40])) for i in range(40)} in following for o in orders)


def test_rings_are_told_apart() -> None:
    orders = ["01234567", "03614725", "05274163"]
    pairs = [(order[i], order[(i + 1) % 8]) for order in orders for i in range(8)]
    found = shapes.rings(made(pairs))
    assert found is not None
    assert {frozenset(zip(o, [*o[1:], o[0]], strict=True)) for o in found} == {
        frozenset(zip(o, o[1:] + o[0], strict=True)) for o in orders
    }
    assert shapes.rings(made(pairs[:-1])) is None


@pytest.mark.parametrize(
    ("volumes", "kinds"),
    [
        ([9, 5, 1, 1, 5, 2, 9, 10, 18], "ggg ggsgss"),
        ([9, 5, 1, 1, 1, 5, 5, 9, 9], "ggg gsgsgs"),
        ([9, 9, 9], "ggs"),
        ([1, 9, 5, 9, 9, 5, 1, 1, 5], "sgs sgg ggg"),  # begins in the backward pass
        ([9, 5, 1, 9, 5, 1, 9, 5, 1], None),  # not in reverse
        ([9, 9], None),
        ([9, 9, 9, 5, 5, 5], None),
        ([9, 5, 1], None),
    ],
)
def test_a_sharded_step_has_each_volume_three_times(volumes: list[int], kinds: str | None) -> None:
    found = sharded([1e6 * volume for volume in volumes])
    assert (found and "".join({"all_gather": "g", "reduce_scatter": "s"}[kind] for kind, _ in found)) == (
        kinds and kinds.replace(" ", "")
    )


@pytest.mark.parametrize(
    ("volumes", "kinds"),
    [
        ([1, 1, 1, 1, 2, 2, 1], "g g g g sg sg s"),  # nothing is gathered ahead
        ([2, 2, 1, 1, 1, 1, 1], "sg sg s g g g g"),  # begins in the backward pass
        ([1, 1, 1, 1, 1, 2, 1, 2, 2], "g g g g g s g s s"),  # gloo's reduce-scatter; a layer is gathered ahead
        ([3, 1, 1, 1, 2, 2, 1, 1, 3], "g g g g gg sg s s s"),  # the first shard stays whole
        ([2, 3, 2, 4, 5, 2], "g g gg sg sg s"),  # the last layer computes for less than a pause
        ([1, 1, 2, 2], None),
        ([1] * 9, None),
        ([1, 1, 2, 2, 1, 1, 3], None),
    ],
)
def test_a_sharded_step_of_equal_layers_is_told_by_its_order(volumes: list[int], kinds: str | None) -> None:
    found = roles_of([1e6 * volume for volume in volumes], [1e6] * len(volumes), is_whole=True)
    short = {"all_gather": "g", "reduce_scatter": "s"}
    assert (found and ["".join(short[kind] for kind, _ in some) for some in found]) == (kinds and kinds.split())


def test_of_two_orders_that_fit_the_one_with_even_backward_computations_counts() -> None:
    volumes, backward = [1e6, 1e6, 1e6, 1e6, 2e6, 2e6, 1e6], [8.0, 8.0, 8.0, 8.0, 16.0, 16.0, 16.0]
    found = roles_of(volumes, [5.0, *backward[1:]], is_whole=True)
    assert found is not None and [len(some) for some in found] == [1, 1, 1, 1, 2, 2, 1]
    assert [some[0][0] for some in found].count("reduce_scatter") == 3
    later = roles_of(volumes, [16.0, 8.0, 8.0, 8.0, 5.0, 16.0, 16.0], is_whole=True)
    assert later is not None and later[0] == [("reduce_scatter", 1e6)]


@pytest.mark.parametrize(
    ("edges", "shape"),
    [
        ([(0, 1), (0, 2), (0, 3)], ("star", "a parameter server")),
        ([(0, 1), (1, 2)], ("star", "a parameter server, or a pipeline of one micro-batch")),
        ([(0, 1), (1, 2), (2, 3)], ("tree", "a pipeline of one micro-batch")),
        ([(0, 1), (0, 2), (1, 3), (1, 4)], ("tree", None)),
        ([(0, 1), (2, 3), (0, 2), (1, 3)], ("recursive_doubling", "rings in both directions")),
        ([(a, a ^ bit) for a in range(8) for bit in (1, 2, 4) if a < a ^ bit], ("recursive_doubling", None)),
        ([(0, 1), (1, 2), (0, 2), (3, 4)], None),  # as many pairs as a tree has, not connected
        ([(0, 1)], None),
    ],
)
def test_pairs_that_exchange_all_are_an_all_reduce_by_their_graph(
    edges: list[tuple[int, int]], shape: tuple[str, str | None] | None
) -> None:
    assert shapes.exchange(made(both(edges))) == shape
    assert shapes.exchange(made(both(edges)[:-1])) is None, "a direction is missing"


DIRECT = "all_gather or all_reduce, sent directly"


@pytest.mark.parametrize(
    ("collectives", "role"),
    [
        ([("all_reduce", None, 2_380_848), ("all_to_all", DIRECT, 2_381_992)], "sharded_data"),  # ZeRO-1
        ([("all_reduce", None, 65_536), ("all_to_all", DIRECT, 2_381_992)], "expert"),
        ([("all_reduce", None, 2_380_848), ("all_to_all", None, 2_381_992)], "expert"),  # not balanced
        ([("all_reduce", None, 900_000), *[("all_to_all", DIRECT, 450_000)] * 2], "expert"),
        ([("all_to_all", DIRECT, 450_000)], "expert"),
    ],
)
def test_one_all_to_all_of_what_is_all_reduced_is_of_updated_shards(
    collectives: list[tuple[str, str | None, int]], role: str
) -> None:
    rows = pl.DataFrame(collectives, ["kind", "kind_or", "tensor_bytes"], orient="row").cast({"kind_or": pl.String})
    with duckdb.connect() as connection:
        connection.register("rows", rows.to_arrow())
        connection.execute(
            "CREATE VIEW step_collectives AS "
            "SELECT 'r' AS run_id, 0 AS job, 0 AS communicator, 0 AS channel, 'a,b,c' AS hosts, * FROM rows"
        )
        assert connection.sql(catalogue.find("communicators").sql).pl()["role"].to_list() == [role]
