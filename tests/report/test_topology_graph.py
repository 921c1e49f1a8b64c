"""The graph of a topology: where its hosts are, and how wide its arrows."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest
import vl_convert
from chart_specs import drawn, spec_of

GRAPH = pl.DataFrame(
    {"src_place": [1, 1, 2, 3], "dst_place": [2, 3, 1, 1], "payload_bytes": [100, 50, 100, 1]}
).with_columns(
    run_id=pl.lit("r"), topology=pl.lit("star"), confidence=0.9, src_host=pl.format("h{}", "src_place"),
    dst_host=pl.format("h{}", "dst_place"), share_of_heaviest=pl.col("payload_bytes") / 100,
    src_position=pl.lit(None, pl.Int64), src_is_root=pl.col("src_place") == 1, dst_is_root=pl.col("dst_place") == 1,
)  # fmt: skip


def test_the_root_is_drawn_on_top_and_arrows_are_as_wide_as_their_payload() -> None:
    rows = drawn(spec_of("topology_graph", GRAPH))
    hosts = {row["host"]: row for row in rows if row["kind"] == "host"}
    assert (hosts["h1"]["role"], hosts["h1"]["y"]) == ("root", 1)
    assert hosts["h2"]["y"] == hosts["h3"]["y"] == -1
    assert hosts["h1"]["color"] != hosts["h2"]["color"] == hosts["h3"]["color"]
    pairs = {row["pair"]: row for row in rows if row["kind"] == "pair"}
    assert len(pairs) == 4
    assert pairs["h1 → h2"]["width"] > pairs["h1 → h3"]["width"] > pairs["h3 → h1"]["width"]
    assert pairs["h1 → h2"]["angle"] == pytest.approx(pairs["h2 → h1"]["angle"] + 180, abs=360.1)
    assert pairs["h3 → h1"]["head_size"] == 0 < pairs["h1 → h2"]["head_size"]


def test_hosts_of_a_ring_are_drawn_clockwise_in_its_order() -> None:
    # data flow 1 > 3 > 2 > 1
    ring = GRAPH.with_columns(topology=pl.lit("ring"), src_is_root=False, dst_is_root=False).filter(
        pl.struct("src_place", "dst_place").is_in([{"src_place": 1, "dst_place": 3}]).or_(pl.col("src_place") > 1)
    ).with_columns(src_position=pl.col("src_place").replace({1: 0, 3: 1, 2: 2}))  # fmt: skip
    hosts = {row["host"]: row for row in drawn(spec_of("topology_graph", ring)) if row["kind"] == "host"}
    assert [hosts[name]["label"] for name in ("h1", "h3", "h2")] == ["0: h1", "1: h3", "2: h2"]
    assert hosts["h1"]["y"] == 1 and hosts["h3"]["x"] > 0 > hosts["h2"]["x"]


@pytest.mark.long
def test_64_hosts_have_places_of_their_own() -> None:
    many = pl.DataFrame({"src_place": range(1, 65), "dst_place": [*range(2, 65), 1]}).with_columns(
        run_id=pl.lit("r"), topology=pl.lit("ring"), confidence=0.9, src_host=pl.format("h{}", "src_place"),
        dst_host=pl.format("h{}", "dst_place"), payload_bytes=1, share_of_heaviest=1.0,
        src_position=pl.col("src_place") - 1, src_is_root=False, dst_is_root=False,
    )  # fmt: skip
    spec = spec_of("topology_graph", many)
    hosts = {(round(row["x"], 3), round(row["y"], 3)) for row in drawn(spec) if row["kind"] == "host"}
    assert len(hosts) == 64
    assert vl_convert.vegalite_to_svg(spec).count("h64") >= 1


def graph_of(topology: str, pairs: list[tuple[int, int]]) -> dict[str, list[dict[str, Any]]]:
    """What is drawn of pairs that send the same in both directions; the root is host 1."""
    both = pl.DataFrame([*pairs, *((dst, src) for src, dst in pairs)], schema=["src_place", "dst_place"], orient="row")
    frame = both.with_columns(
        run_id=pl.lit("r"), topology=pl.lit(topology), confidence=0.9, src_host=pl.format("h{}", "src_place"),
        dst_host=pl.format("h{}", "dst_place"), payload_bytes=1, share_of_heaviest=1.0,
        src_position=pl.lit(None, pl.Int64), src_is_root=pl.col("src_place") == 1, dst_is_root=pl.col("dst_place") == 1,
    )  # fmt: skip
    rows = drawn(spec_of("topology_graph", frame))
    return {kind: [row for row in rows if row["kind"] == kind] for kind in ("host", "pair")}


def test_hosts_of_a_tree_are_below_those_that_they_hang_on_and_no_lines_cross() -> None:
    hosts = {row["host"]: row for row in graph_of("tree", [(1, 2), (1, 3), (2, 5), (3, 4), (3, 6)])["host"]}
    assert [hosts[name]["y"] for name in ("h1", "h2", "h3", "h4", "h5", "h6")] == [1, 0, 0, -1, -1, -1]
    assert [name for name, _ in sorted(hosts.items(), key=lambda item: (-item[1]["y"], item[1]["x"]))] == [
        "h1", "h2", "h3", "h5", "h4", "h6"
    ]  # fmt: skip
    assert hosts["h3"]["x"] == pytest.approx((hosts["h4"]["x"] + hosts["h6"]["x"]) / 2)


def test_many_hosts_of_a_star_are_around_the_root_with_their_names_turned_outwards() -> None:
    star = graph_of("star", [(1, leaf) for leaf in range(2, 65)])
    root, *leaves = sorted(star["host"], key=lambda row: int(row["host"][1:]))
    assert (root["x"], root["y"], root["role"]) == (0, 0, "root")
    assert len({(row["x"], row["y"]) for row in leaves}) == 63
    assert all(row["x"] ** 2 + row["y"] ** 2 == pytest.approx(1) for row in leaves)
    assert all((row["label_align"] == "left") == (row["x"] > 0) for row in leaves if abs(row["x"]) > 1e-9)
    few = graph_of("star", [(1, 2), (1, 3)])
    assert star["pair"][0]["width"] < few["pair"][0]["width"] / 2  # so many lines of that width would be an area


def test_a_host_with_light_pairs_only_is_drawn_too() -> None:
    light = GRAPH.with_columns(topology=pl.lit("star"), share_of_heaviest=0.01)
    names = {row["host"] for row in drawn(spec_of("topology_graph", light)) if row["kind"] == "host"}
    assert names == set(GRAPH["src_host"]) | set(GRAPH["dst_host"])
