"""The charts draw what the queries say, with a title and a unit on every axis."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import vl_convert

import ddnn_traces
from ddnn_traces.charts import wire, zerwas
from ddnn_traces.dataset import Dataset

SAMPLE = Path(__file__).parents[1] / "data" / "sample"
RUNS = (
    "mpi-mlp1-sgd-32-openmpi-0ms-ring-sll2",
    "torch-mlp1-sgd-128-gloo-0ms-ring-tso",
    "torchp2p-mlp4-sgd-32-gloo-0ms-star-tso",
)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dataset]:
    with ddnn_traces.ingest([SAMPLE / run for run in RUNS], tmp_path_factory.mktemp("charts") / "dataset") as opened:
        yield opened


@pytest.fixture(scope="module")
def frames(dataset: Dataset) -> dict[str, pl.DataFrame]:
    """The frame of every chart."""
    attributes = dataset.query("run_step_volume").select("run_id", "framework_backend", "batch_size", "topology")
    fit = ddnn_traces.regress(dataset).fitted.join(attributes, on="run_id")
    return {
        "volume_heatmaps": dataset.query("pair_volume"),
        "flow_counts": dataset.query("flow_counts"),
        "flow_timeline": dataset.query("flow_timeline"),
        "pair_throughput": dataset.query("pair_burst"),
        "step_volume_fit": fit,
        "step_volume_runs": fit,
        "step_boundaries": dataset.query("step_boundaries"),
        "straggler_slack": dataset.query("straggler_summary"),
        "overlap_shares": dataset.query("overlap_summary"),
    }


NAMES = (
    "volume_heatmaps", "flow_counts", "flow_timeline", "pair_throughput", "step_volume_fit", "step_volume_runs",
    "step_boundaries", "straggler_slack", "overlap_shares",
)  # fmt: skip


def spec_of(name: str, frame: pl.DataFrame) -> dict[str, Any]:
    module = wire if hasattr(wire, name) else zerwas
    spec: dict[str, Any] = getattr(module, name)(frame).to_dict()
    return spec


def drawn(spec: dict[str, Any]) -> list[dict[str, Any]]:
    """All rows of data in a specification."""
    return [row for rows in spec["datasets"].values() for row in rows]


def axes(node: Any) -> Iterator[dict[str, Any]]:
    """The axes and headers of a compiled chart that have a title."""
    if isinstance(node, dict):
        for axis in node.get("axes", []):
            if "title" in axis:
                yield axis
        for value in node.values():
            yield from axes(value)
    elif isinstance(node, list):
        for value in node:
            yield from axes(value)


def strings(node: Any) -> Iterator[str]:
    """All strings in a drawn scene, among them the tooltips."""
    if isinstance(node, str):
        yield node
    for value in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        yield from strings(value)


@pytest.mark.parametrize("name", NAMES)
def test_every_axis_has_a_title_with_a_unit(name: str, frames: dict[str, pl.DataFrame]) -> None:
    compiled = vl_convert.vegalite_to_vega(spec_of(name, frames[name]))
    found = list(axes(compiled))
    assert {axis["orient"] for axis in found} >= {"bottom"}
    for axis in found:
        assert re.search(r"\(.+\)$", str(axis["title"])), axis["title"]


def test_the_rows_of_pair_throughput_have_a_title_and_a_scale(frames: dict[str, pl.DataFrame]) -> None:
    text = json.dumps(spec_of("pair_throughput", frames["pair_throughput"]), ensure_ascii=False)
    assert "sender → receiver (hosts)" in text
    assert len(re.findall(r"full height of a row: [\d.]+ Gbit/s", text)) == len(RUNS)


def test_heatmaps_show_every_byte_of_the_flows(dataset: Dataset, frames: dict[str, pl.DataFrame]) -> None:
    shown = sum(row["wire_bytes"] for row in drawn(spec_of("volume_heatmaps", frames["volume_heatmaps"])))
    assert shown == dataset.sql("SELECT sum(wire_bytes)::BIGINT AS bytes FROM flows")["bytes"][0]


def test_bars_count_every_flow(dataset: Dataset, frames: dict[str, pl.DataFrame]) -> None:
    rows = drawn(spec_of("flow_counts", frames["flow_counts"]))
    total = sum(row["count"] for row in rows if row["kind"] == "all flows")
    assert total == dataset.sql("SELECT count(*) AS flows FROM flows")["flows"][0]
    assert sum(row["count"] for row in rows) - total == frames["flow_counts"]["large_flows"].sum()


def test_the_timeline_holds_all_traffic(dataset: Dataset, frames: dict[str, pl.DataFrame]) -> None:
    frame = frames["flow_timeline"]
    spec = spec_of("flow_timeline", frame)
    windows = dict(frame.select("run_id", "window_s").unique().iter_rows())
    bits = 0.0
    for panel in spec["concat"]:
        run_id = json.loads(panel["transform"][0]["calculate"])
        rows = spec["datasets"][panel["data"]["name"]]
        bits += sum(row["gbit_per_s"] for row in rows) * 1e9 * windows[run_id]
        assert max(row["share_of_peak"] for row in rows) == 1
    assert bits / 8 == pytest.approx(dataset.sql("SELECT sum(wire_bytes)::BIGINT AS bytes FROM flows")["bytes"][0])


def test_the_throughput_of_pairs_adds_up_to_the_excerpt(frames: dict[str, pl.DataFrame]) -> None:
    frame = frames["pair_throughput"]
    rows = drawn(spec_of("pair_throughput", frame))
    assert sum(row["gbit_per_s"] for row in rows) * 1e9 / 8 * 0.01 == pytest.approx(frame["wire_bytes"].sum())
    assert all(0 <= row["since_excerpt_ms"] < 250 for row in rows)


def test_the_excerpt_is_the_busiest(dataset: Dataset, frames: dict[str, pl.DataFrame]) -> None:
    """Against all stretches of 25 windows, added up one by one."""
    run_id = RUNS[0]
    windows = dataset.sql(
        """SELECT (window_start_ns - min(window_start_ns) OVER ()) // 10_000_000 AS number, wire_bytes
           FROM flow_windows WHERE run_id = ?""",
        [run_id],
    )
    bytes_of = dict(windows.group_by("number").agg(pl.col("wire_bytes").sum()).iter_rows())
    busiest = max(sum(bytes_of.get(first + i, 0) for i in range(25)) for first in bytes_of)
    assert frames["pair_throughput"].filter(run_id=run_id)["wire_bytes"].sum() == busiest


def test_the_fit_draws_every_run_once(frames: dict[str, pl.DataFrame]) -> None:
    frame = frames["step_volume_fit"]
    rows = drawn(spec_of("step_volume_fit", frame))
    assert [row["run_id"] for row in rows] == frame["run_id"].to_list() == sorted(RUNS)
    assert [row["step_mb"] for row in rows] == pytest.approx((frame["step_bytes"] / 1e6).to_list())
    assert [row["fitted_mb"] for row in rows] == pytest.approx((frame["fitted"] / 1e6).to_list())


def test_runs_without_a_fit_are_drawn_without_it(frames: dict[str, pl.DataFrame]) -> None:
    frame = frames["step_volume_fit"].with_columns(fitted=pl.lit(None, pl.Float64))
    for name in ("step_volume_fit", "step_volume_runs"):
        assert vl_convert.vegalite_to_svg(spec_of(name, frame)).startswith("<svg")


def test_boundaries_are_those_of_the_query(frames: dict[str, pl.DataFrame]) -> None:
    frame = frames["step_boundaries"]
    rows = drawn(spec_of("step_boundaries", frame))
    assert [row["since_start_ms"] for row in rows] == pytest.approx(frame["since_start_ms"].to_list())
    assert {row["source"] for row in rows} >= {"traffic", "worker-1"}


def test_a_run_without_structure_says_so(frames: dict[str, pl.DataFrame]) -> None:
    logs = frames["step_boundaries"].filter(pl.col("source") != "traffic")
    titles = [panel["title"] for panel in spec_of("step_boundaries", logs)["concat"]]
    assert {title["subtitle"] for title in titles} == {"no structure in the traffic"}


def test_slack_leaves_out_runs_in_which_nobody_waits(frames: dict[str, pl.DataFrame]) -> None:
    frame = frames["straggler_slack"]
    nobody = frame.head(1).with_columns(run_id=pl.lit("asynchronous"), worker=pl.lit(None, pl.String))
    assert spec_of("straggler_slack", pl.concat([frame, nobody])) == spec_of("straggler_slack", frame)


def test_the_parts_of_a_step_add_up(frames: dict[str, pl.DataFrame]) -> None:
    frame = frames["overlap_shares"]
    rows = drawn(spec_of("overlap_shares", frame))
    assert sum(row["ms"] for row in rows) == pytest.approx(frame["step_ms"].sum(), rel=1e-3)


HOSTILE = "a\"'); datum.x = alert(1) // \\u003c </script> \u2028 {{7*7}}"


@pytest.mark.parametrize("name", ["volume_heatmaps", "flow_timeline", "pair_throughput", "overlap_shares"])
def test_a_name_reaches_expressions_as_one_string(name: str, frames: dict[str, pl.DataFrame]) -> None:
    frame = frames[name].filter(run_id=RUNS[0]).with_columns(run_id=pl.lit(HOSTILE))
    compiled = vl_convert.vegalite_to_vega(spec_of(name, frame))
    formulas = [t for source in compiled["data"] for t in source.get("transform", []) if t.get("as") == "run"]
    assert {json.loads(formula["expr"]) for formula in formulas} == {HOSTILE}


def test_vega_reads_the_name_as_it_is(frames: dict[str, pl.DataFrame]) -> None:
    frame = frames["flow_timeline"].filter(run_id=RUNS[0]).with_columns(run_id=pl.lit(HOSTILE))
    assert HOSTILE in strings(vl_convert.vegalite_to_scenegraph(spec_of("flow_timeline", frame)))


def test_long_names_are_wrapped_and_cut(frames: dict[str, pl.DataFrame]) -> None:
    frame = frames["volume_heatmaps"].filter(run_id=RUNS[0]).with_columns(run_id=pl.lit("name-" * 100))
    lines = spec_of("volume_heatmaps", frame)["concat"][0]["title"]["text"]
    assert len(lines) == 3
    assert max(len(line) for line in lines) <= 40
    assert lines[-1].endswith("…")


def test_one_pair_has_a_colour_scale(frames: dict[str, pl.DataFrame]) -> None:
    """A logarithmic domain of one value would leave everything white."""
    spec = spec_of("volume_heatmaps", frames["volume_heatmaps"].head(1))
    low, high = spec["concat"][0]["layer"][0]["encoding"]["color"]["scale"]["domain"]
    assert 0 < low < high
