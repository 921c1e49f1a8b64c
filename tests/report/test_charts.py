"""What holds of every chart: a title and a unit on every axis, tooltips, names as they are, panels that stand alone."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import vl_convert
from chart_specs import QUERIES, SYNTHETIC_FIT, Query, drawn, lossy, spec_of, sweep

from ddnn_traces.report.charts import style
from ddnn_traces.report.charts.panels import RunPanels, choosable, panels
from ddnn_traces.report.page import CHARTS, Report

SLACK = Path(__file__).parents[1] / "queries/layer_slack/priority_and_parts/expected.csv"
#: The four runs have one law and number of workers, which is a sentence in the report.
BY_LAW = pl.DataFrame(
    {"run_id": ["a", "b"], "topology": ["ring", "tree"], "workers": [4, 6], "law_factor": [6.0, 10.0],
     "step_bytes": [6.1e6, 1.02e7], "size_bytes": [1e6, 1e6]}
)  # fmt: skip

ITERATIONS = pl.DataFrame(
    {"series": "priority", "parameter": "bandwidth_mbit", "value": [1e3, 2e4], "iteration_ms": [972.0, 905.0]}
)
REMAINING = pl.DataFrame(
    {
        "series": ["multicast no", "multicast yes"] * 2, "parameter": "workers", "value": [2, 2, 4, 4],
        "panel": "profile vgg16", "measure": ["aggregation_remaining_ms"] * 2 +
        ["distribution_remaining_ms"] * 2, "ms": [9.0, 12.5, 250.0, 130.0],
    }
)  # fmt: skip
LAYERS = pl.DataFrame(
    {
        "place": range(5), "pass": ["loading", "forward", "forward", "backward", "backward"], "layer": [-1, 0, 1, 1, 0],
        "name": ["loading", "a", "b", "b", "a"], "ms": [9.0, 4.0, 2.0, 5.0, 7.0],
        "so_far_ms": [9.0, 13.0, 15.0, 20.0, 27.0], "gradient_bytes": [0, 100_000, 9_000_000, 9_000_000, 100_000],
    }
)  # fmt: skip
SIMULATED = pl.DataFrame(
    {
        "model": "thesis", "topology": "ring", "workers": 2, "variant": ["fifo-barrier", None],
        "bandwidth_mbit": [1e3, 2e4], "step_ms": [1100.1, 905.0],
    }
)  # fmt: skip


@pytest.fixture(scope="module")
def specs(made: Report, query: Query) -> dict[str, dict[str, Any]]:
    """Every chart's specification: those of the report, and of charts that its runs have no data for."""
    specs = {figure.name: figure.spec for figure in made.figures}
    # none of its runs loses packets or is in a sweep, and four are too few for studentized residuals
    not_in_the_report = {
        "duration_by_loss": lossy(), "regression_quantiles": SYNTHETIC_FIT,
        "samples_by_condition": sweep(), "iteration_time": ITERATIONS, "simulated_step_time": SIMULATED,
        "remaining_time": REMAINING, "profile_layers": LAYERS, "layer_timeline": pl.read_csv(SLACK),
        "volume_by_law": BY_LAW,
    }  # fmt: skip
    assert specs.keys().isdisjoint(not_in_the_report)
    return specs | {name: spec_of(name, frame) for name, frame in not_in_the_report.items()}


def test_runs_of_one_law_are_points_of_their_own() -> None:
    """Runs of 6 and of 12 model sizes were one mark at 9, which neither has."""
    runs = pl.concat([BY_LAW, BY_LAW.head(1).with_columns(run_id=pl.lit("c"), step_bytes=12.4e6)])
    drawn_at = {
        row["run_id"]: row["models"]
        for rows in spec_of("volume_by_law", runs)["datasets"].values() for row in rows if "run_id" in row
    }  # fmt: skip
    assert drawn_at == pytest.approx({"a": 6.1, "b": 10.2, "c": 12.4})


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


def axis_labels(mark: dict[str, Any]) -> Iterator[list[str]]:
    """The visible labels of each axis in a drawn scene."""
    if mark.get("role") == "axis-label":
        yield [item["text"] for item in mark["items"] if item["text"] and item.get("opacity", 1) > 0]
    for below in mark.get("items", []):
        yield from axis_labels(below)


def strings(node: Any) -> Iterator[str]:
    """All strings in a drawn scene, among them the tooltips."""
    if isinstance(node, str):
        yield node
    for value in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        yield from strings(value)


def units(node: Any, inherited: bool = False) -> Iterator[tuple[Any, bool]]:
    """Every mark of a specification, and whether it has a tooltip."""
    if isinstance(node, dict):
        has_tooltip = inherited or bool(node.get("encoding", {}).get("tooltip"))
        if "mark" in node:
            yield node["mark"], has_tooltip
        for key in ("layer", "concat", "hconcat", "vconcat", "spec"):
            yield from units(node.get(key), has_tooltip)
    elif isinstance(node, list):
        for one in node:
            yield from units(one, inherited)


@pytest.mark.long
def test_every_chart_is_proven_here(specs: dict[str, dict[str, Any]]) -> None:
    assert set(specs) == set(CHARTS)


@pytest.mark.long
def test_every_mark_has_a_tooltip(specs: dict[str, dict[str, Any]]) -> None:
    for name, spec in specs.items():
        marks = list(units(spec))
        assert marks, name
        assert [mark for mark, has_tooltip in marks if not has_tooltip] == [], name


@pytest.mark.long
def test_every_axis_has_a_title_with_a_unit(specs: dict[str, dict[str, Any]]) -> None:
    for name, spec in specs.items():
        found = list(axes(vl_convert.vegalite_to_vega(spec)))
        assert {axis["orient"] for axis in found} >= ({"bottom"} if name != "topology_graph" else set()), name
        for axis in found:
            assert re.search(r"\(.+\)$", str(axis["title"])), (name, axis["title"])


@pytest.mark.long
def test_labels_with_a_unit_stand_on_an_axis_of_bytes(specs: dict[str, dict[str, Any]]) -> None:
    """Not of MB, which each label has itself."""
    titles = [
        axis["title"]
        for spec in specs.values()
        for axis in axes(vl_convert.vegalite_to_vega(spec))
        if "$1B" in str(axis.get("encode", ""))
    ]
    assert len(titles) > 10
    assert [title for title in titles if "(bytes" not in title] == []


@pytest.mark.long
def test_an_axis_of_numbers_has_at_most_six_labels_and_no_exponent(specs: dict[str, dict[str, Any]]) -> None:
    number = re.compile(r"[\d.,\N{MINUS SIGN}]+( ?[kMGT]?B?|%)")
    found = 0
    for name, spec in specs.items():
        for labels in axis_labels(vl_convert.vegalite_to_scenegraph(spec)["scenegraph"]):
            if labels and all(map(number.fullmatch, labels)) and "0" <= labels[0] <= "9":
                assert len(labels) <= 6, (name, labels)
                found += 1
            assert not any(re.search(r"\de[+\N{MINUS SIGN}-]?\d", label) for label in labels), (name, labels)
    assert found > 50


def test_flows_between_addresses_keep_their_whole_names() -> None:
    ends = ["192.168.100.101:38697", "192.168.100.102:40001", "192.168.100.103:50001"]
    flows = [f"{source} → {sink}" for source in ends for sink in ends if source != sink]
    windows = {"run_id": "capture", "since_start_s": 0.0, "window_s": 1.0, "gbit_per_s": 1.0, "share_of_peak": 1.0}
    spec = spec_of("flow_timeline", pl.DataFrame({"flow": flows, **windows}))
    labels = list(axis_labels(vl_convert.vegalite_to_scenegraph(spec)["scenegraph"]))
    assert sorted(max(labels, key=len)) == sorted(flows)


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (6, 110, [10, 20, 50, 100]),
        (0.7, 60, [1, 2, 5, 10, 20, 50]),
        (0.7, 300, [1, 3, 10, 30, 100, 300]),
        (60, 1e9, [1e2, 1e4, 1e6, 1e8]),
        (3, 2e5, [10, 100, 1e3, 1e4, 1e5]), (1, 1e12, [1, 1e3, 1e6, 1e9, 1e12]),
    ],
)  # fmt: skip
def test_ticks_of_a_logarithmic_axis_are_few_and_round(low: float, high: float, ticks: list[float]) -> None:
    assert style.log_ticks(low, high) == pytest.approx(ticks)


def test_a_name_with_characters_that_xml_does_not_allow_is_drawn() -> None:
    """vl-convert ends the whole process on them."""
    names = ["a\x1b[31m", "b\x00", "c\uffff", "d\u2028e\n"]
    spec = spec_of("regression_residuals", SYNTHETIC_FIT.with_columns(run_id=pl.Series(names)))
    svg = vl_convert.vegalite_to_svg(spec)
    assert "a?[31m" in svg
    assert vl_convert.svg_to_png(svg).startswith(b"\x89PNG")


def test_the_title_of_groups_stands_clear_of_their_labels(query: Query) -> None:
    """In an SVG that a viewer draws in a wider font than Liberation Sans, the title was on the labels."""
    svg = vl_convert.vegalite_to_svg(json.dumps(spec_of("collectives", query("collectives"))))
    [away] = {float(x) for x in re.findall(r"translate\(-([\d.]+),[^>]*>job\.group \(hosts\)<", svg)}
    longest = max(map(len, re.findall(r">(\d+\.\d+ \(\d+ hosts\))<", svg)))
    size = style.FONT_SIZE
    assert away > 0.48 * size * longest + 4  # DejaVu Sans; 4: between label and axis


def test_the_rows_of_pair_throughput_have_a_title_and_a_scale(query: Query, runs: tuple[str, ...]) -> None:
    text = json.dumps(spec_of("pair_throughput", query("pair_burst")), ensure_ascii=False)
    assert "sender → receiver (hosts)" in text
    assert len(re.findall(r"full height of a row: [\d.]+ Gbit/s", text)) == len(runs)


@pytest.mark.parametrize(
    ("name", "source"), [("straggler_slack", "straggler_summary"), ("overlap_shares", "overlap_summary")]
)
def test_workers_are_in_natural_order(name: str, source: str, query: Query) -> None:
    first = query(source).drop_nulls("worker").head(1)
    frame = pl.concat([first.with_columns(worker=pl.lit(f"worker-{number}")) for number in (1, 10, 11, 2, 9)])
    workers = [row["worker"] for row in drawn(spec_of(name, frame)) if "worker" in row]
    assert list(dict.fromkeys(workers)) == [f"worker-{number}" for number in (1, 2, 9, 10, 11)]


HOSTILE = "a\"'); datum.x = alert(1) // \\u003c </script> \u2028 {{7*7}}"


@pytest.mark.parametrize(
    "name", ["volume_heatmaps", "flow_timeline", "pair_throughput", "iteration_duration_cdf", "overlap_shares"]
)
def test_a_name_reaches_expressions_as_one_string(name: str, query: Query, runs: tuple[str, ...]) -> None:
    frame = query(QUERIES.get(name, name)).filter(run_id=runs[0]).with_columns(run_id=pl.lit(HOSTILE))
    compiled = vl_convert.vegalite_to_vega(spec_of(name, frame))
    formulas = [t for source in compiled["data"] for t in source.get("transform", []) if t.get("as") == "run"]
    assert {json.loads(formula["expr"]) for formula in formulas} == {HOSTILE}


def test_vega_reads_the_name_unchanged(query: Query, runs: tuple[str, ...]) -> None:
    frame = query("flow_timeline").filter(run_id=runs[0]).with_columns(run_id=pl.lit(HOSTILE))
    assert HOSTILE in strings(vl_convert.vegalite_to_scenegraph(spec_of("flow_timeline", frame)))


def test_long_names_are_wrapped_and_cut(query: Query, runs: tuple[str, ...]) -> None:
    frame = query("pair_volume").filter(run_id=runs[0]).with_columns(run_id=pl.lit("name-" * 100))
    lines = spec_of("volume_heatmaps", frame)["concat"][0]["title"]["text"]
    assert len(lines) == 3
    assert max(len(line) for line in lines) <= 40
    assert lines[-1].endswith("…")


def test_one_pair_has_a_colour_scale(query: Query) -> None:
    """A logarithmic domain of one value would leave everything white."""
    spec = spec_of("volume_heatmaps", query("pair_volume").head(1))
    low, high = spec["concat"][0]["layer"][0]["encoding"]["color"]["scale"]["domain"]
    assert 0 < low < high


def test_numbers_stand_only_in_cells_that_hold_them(query: Query) -> None:
    """All panels have cells of one size: that of the run with the most hosts."""
    frame = query("pair_volume")
    many = pl.concat(
        frame.head(1).with_columns(run_id=pl.lit("many"), dst_host=pl.lit(f"W{i}"), dst_place=pl.lit(i, pl.Int64))
        for i in range(2, 10)
    )
    for shown, has_numbers in ((frame, True), (pl.concat([frame, many]), False)):
        spec = spec_of("volume_heatmaps", shown)
        texts = [layer for panel in spec["concat"] for layer in panel["layer"] if layer["mark"]["type"] == "text"]
        assert bool(texts) == has_numbers
        cells = {
            panel["width"] / len(panel["layer"][0]["encoding"]["x"]["scale"]["domain"]) for panel in spec["concat"]
        }
        assert len(cells) == 1


@pytest.mark.long
def test_a_range_of_the_whole_run_is_enlarged_and_one_pair_can_be_chosen(query: Query) -> None:
    spec = spec_of("run_throughput", query("run_throughput"))
    for number, (_, panel) in enumerate(panels(spec)):
        assert {param["name"] for param in panel["params"]} == {
            f"range_{number}",
            f"pair_{number}",
            "label_characters",
            "is_narrow",
        }
        large, strip = panel["vconcat"]
        x = large["layer"][0]["encoding"]["x"]["scale"]["domain"]
        assert x == {"param": f"range_{number}", "encoding": "x"}
        [views] = [param["views"] for param in panel["params"] if param["name"] == f"range_{number}"]
        assert views == [strip["name"]]
        vl_convert.vegalite_to_vega(panel)


def test_the_charts_next_to_each_other_are_charts_of_their_own(query: Query) -> None:
    frame = query("straggler_summary")
    spec = spec_of("straggler_slack", frame)
    parts = panels(spec)
    assert [run_id for run_id, _ in parts] == frame.drop_nulls("worker")["run_id"].unique(maintain_order=True).to_list()
    assert sum(len(rows) for _, part in parts for rows in part["datasets"].values()) == len(drawn(spec))
    for _, part in parts:
        assert vl_convert.vegalite_to_svg(part).startswith("<svg")


def test_a_reader_chooses_the_runs_of_a_chart_with_rows_of_many(query: Query, runs: tuple[str, ...]) -> None:
    first, *others = sorted(runs)
    svg = vl_convert.vegalite_to_svg(choosable(spec_of("flow_counts", query("flow_counts")), [first]))
    shown = {run for run in runs if run[:20] in svg}
    assert shown == {first}, others


def test_names_are_no_places_of_values(query: Query, runs: tuple[str, ...]) -> None:
    """A host may be called as the place of a value that differs from run to run."""
    frame = query("run_throughput").filter(run_id=runs[0]).with_columns(pair=pl.lit("@title@ @rows@"))
    spec = spec_of("run_throughput", frame)
    assert spec["concat"][0]["vconcat"][0]["layer"][0]["encoding"]["color"]["scale"]["domain"] == ["@title@ @rows@"]
    assert isinstance(CHARTS["run_throughput"](frame), RunPanels)
