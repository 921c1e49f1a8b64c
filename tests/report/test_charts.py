"""The charts draw the results of the queries, with a title and a unit on every axis."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import vl_convert
from datasets import write_dataset

import ddnn_traces
from ddnn_traces.query.dataset import Dataset
from ddnn_traces.report.chapters import host_pairs
from ddnn_traces.report.charts import regression, style
from ddnn_traces.report.charts.panels import RunPanels, choosable, panels
from ddnn_traces.report.page import CHARTS, report
from ddnn_traces.report.section import Results

Query = Callable[..., pl.DataFrame]

SWEEP = Path(__file__).parents[1] / "queries/condition_response/delay_and_loss/expected.csv"
DURATIONS = Path(__file__).parents[1] / "queries/duration_by_loss/mean_of_the_lossless_runs/expected.csv"
SLACK = Path(__file__).parents[1] / "queries/layer_slack/priority_and_parts/expected.csv"
#: Points of a regression; the last run determines a coefficient alone.
SYNTHETIC_FIT = pl.DataFrame(
    {
        "run_id": ["a", "b", "c", "d"],
        "observed": [11e6, 9e6, 30e6, 50e6],
        "fitted": [10e6, 10e6, 29e6, 50e6],
        "residual": [1e6, -1e6, 1e6, 0.0],
        "studentized_residual": [0.5, -2.5, 0.5, None],
    }
)


#: The four runs have one law and number of workers, which is a sentence in the report.
BY_LAW = pl.DataFrame(
    {"run_id": ["a", "b"], "topology": ["ring", "tree"], "workers": [4, 6], "law_factor": [6.0, 10.0],
     "step_bytes": [6.1e6, 1.02e7], "size_bytes": [1e6, 1e6]}
)  # fmt: skip

ITERATIONS = pl.DataFrame(
    {"series": "priority", "parameter": "bandwidth_mbit", "value": [1e3, 2e4], "iteration_ms": [972.0, 905.0]}
)
SIMULATED = pl.DataFrame(
    {
        "model": "thesis", "topology": "ring", "workers": 2, "variant": ["fifo-barrier", None],
        "bandwidth_mbit": [1e3, 2e4], "step_ms": [1100.1, 905.0],
    }
)  # fmt: skip


@pytest.fixture(scope="module")
def query(dataset: Dataset) -> Query:
    """Runs a query, once for all tests."""
    return functools.cache(dataset.query)


@pytest.fixture(scope="module")
def fit(dataset: Dataset, query: Query) -> pl.DataFrame:
    """The frame of step_volume_fit and step_volume_runs."""
    attributes = query("run_step_volume").select("run_id", "framework_backend", "topology", "workers", law_factor=6.0)
    return ddnn_traces.regress(dataset).points.join(attributes, on="run_id")


@pytest.fixture(scope="module")
def specs(dataset: Dataset, query: Query) -> dict[str, dict[str, Any]]:
    """Every chart's specification: those of the report, and of charts that its runs have no data for."""
    specs = {figure.name: figure.spec for figure in report(dataset).figures}
    # none of its runs loses packets or is in a sweep, and four are too few for studentized residuals
    not_in_the_report = {
        "duration_by_loss": lossy(), "regression_quantiles": SYNTHETIC_FIT,
        "samples_by_condition": sweep(), "iteration_time": ITERATIONS, "simulated_step_time": SIMULATED,
        "layer_timeline": pl.read_csv(SLACK), "volume_by_law": BY_LAW,
    }  # fmt: skip
    assert specs.keys().isdisjoint(not_in_the_report)
    return specs | {name: spec_of(name, frame) for name, frame in not_in_the_report.items()}


def lossy() -> pl.DataFrame:
    """The frame of duration_by_loss: of two settings there is no lossless run."""
    return pl.read_csv(DURATIONS)


def sweep() -> pl.DataFrame:
    """The frame of samples_by_condition: one delay of three did not finish."""
    empty = {"congestion_control": pl.String, "high_samples_per_s": pl.Float64}
    return pl.read_csv(SWEEP, schema_overrides=empty)


#: Queries of charts, where they have another name.
QUERIES = {
    "volume_heatmaps": "pair_volume", "pair_throughput": "pair_burst", "throughput_intervals": "total_throughput",
    "gradient_flow_intervals": "gradient_flow_throughput", "overlap_shares": "overlap_summary",
}  # fmt: skip


def spec_of(name: str, frame: pl.DataFrame, *others: pl.DataFrame) -> dict[str, Any]:
    spec: dict[str, Any] = CHARTS[name](frame, *others).to_dict()
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


def test_a_training_that_did_not_finish_is_a_cross() -> None:
    spec = spec_of("samples_by_condition", sweep())
    crosses = [row for row in drawn(spec) if "at" in row]
    assert [(row["value"], row["did"]) for row in crosses] == [("100", "0 of 1 runs")]
    speeds = sorted(row["samples_per_s"] for row in drawn(spec) if "at" not in row and row["condition"] == "delay_ms")
    assert speeds == [256, 1280]


def test_residuals_are_drawn_in_megabytes_and_far_ones_are_distinguishable() -> None:
    rows = [row for row in drawn(spec_of("regression_residuals", SYNTHETIC_FIT)) if "row" in row]
    assert [(row["fitted"], row["residual"]) for row in rows] == [(10, -1), (50, 0), (10, 1), (29, 1)]
    assert [row["kind"] for row in rows if row["row"] == "b"] == ["beyond 2"]
    plain = regression.regression_residuals(SYNTHETIC_FIT, "step_ms").to_dict()
    assert [row["fitted"] for row in drawn(plain) if "row" in row] == [10e6, 50e6, 10e6, 29e6]
    assert "duration of a step (ms)" in json.dumps(plain)


def test_a_name_with_characters_that_xml_does_not_allow_is_drawn() -> None:
    """vl-convert ends the whole process on them."""
    names = ["a\x1b[31m", "b\x00", "c\uffff", "d\u2028e\n"]
    spec = spec_of("regression_residuals", SYNTHETIC_FIT.with_columns(run_id=pl.Series(names)))
    svg = vl_convert.vegalite_to_svg(spec)
    assert "a?[31m" in svg
    assert vl_convert.svg_to_png(svg).startswith(b"\x89PNG")


def test_many_residuals_are_thinned_but_for_the_farthest() -> None:
    many = 10 * regression.MOST
    frame = pl.DataFrame({"run_id": [f"r{i}" for i in range(many)], "residual": [float(i % 9973) for i in range(many)]})
    frame = frame.with_columns(observed=2e6, fitted=1e6, studentized_residual=pl.col("residual") / 1e4)
    for name in ("regression_residuals", "regression_quantiles"):
        rows = [row for row in drawn(spec_of(name, frame)) if "row" in row]
        assert regression.MOST / 2 < len(rows) <= regression.MOST
        assert {"r0", "r9973", "r9972", "r19945"} <= {row["row"] for row in rows}


def test_quantiles_are_blom_s_and_leave_out_what_is_not_defined() -> None:
    rows = [row for row in drawn(spec_of("regression_quantiles", SYNTHETIC_FIT)) if "row" in row]
    # scipy.stats.norm.ppf((rank - 0.375) / (3 + 0.25))
    assert [(row["row"], round(row["quantile"], 4)) for row in rows] == [("b", -0.8694), ("a", 0.0), ("c", 0.8694)]


def test_the_rows_of_pair_throughput_have_a_title_and_a_scale(query: Query, runs: tuple[str, ...]) -> None:
    text = json.dumps(spec_of("pair_throughput", query("pair_burst")), ensure_ascii=False)
    assert "sender → receiver (hosts)" in text
    assert len(re.findall(r"full height of a row: [\d.]+ Gbit/s", text)) == len(runs)


def test_heatmaps_show_every_byte_of_the_flows(dataset: Dataset, query: Query) -> None:
    shown = sum(row["wire_bytes"] for row in drawn(spec_of("volume_heatmaps", query("pair_volume"))))
    assert shown == dataset.sql("SELECT sum(wire_bytes)::BIGINT AS bytes FROM flows")["bytes"][0]


def test_bars_count_every_flow(dataset: Dataset, query: Query) -> None:
    rows = [row for row in drawn(spec_of("flow_counts", query("flow_counts"))) if "kind" in row]
    assert sum(row["count"] for row in rows) == dataset.sql("SELECT count(*) AS flows FROM flows")["flows"][0]
    kinds = {"large_data_flows": "large", "acknowledgement_flows": "acknowledgement", "side_flows": "side"}
    for column, kind in kinds.items():
        of_kind = sum(row["count"] for row in rows if row["kind"].startswith(kind))
        assert of_kind == query("flow_counts")[column].sum()


def test_mean_heatmaps_hold_the_mean_of_all_runs(dataset: Dataset, query: Query) -> None:
    rows = drawn(spec_of("mean_volume_heatmaps", query("mean_traffic_matrix")))
    shown = sum(row["wire_bytes"] * row["runs"] for row in rows)
    assert shown == pytest.approx(dataset.sql("SELECT sum(wire_bytes)::BIGINT AS bytes FROM flows")["bytes"][0])


@pytest.mark.long
def test_no_mean_is_drawn_over_runs_of_which_nothing_is_known(tmp_path: Path) -> None:
    flows = [{"run_id": run, "flow_id": 0, "src_ip": "a", "dst_ip": "b", "wire_bytes": 100, "packets": 1,
              "payload_bytes": 80} for run in ("r", "s")]  # fmt: skip
    hosts = pl.DataFrame({"run_id": ["r", "r", "s", "s"], "host_ip": ["a", "b"] * 2})
    tables = {"runs": pl.DataFrame({"run_id": ["r", "s"]}), "hosts": hosts, "flows": pl.DataFrame(flows)}
    with write_dataset(tmp_path / "dataset", tables) as unknown, Results(unknown) as results:
        [section] = host_pairs.chapter.sections(results, only=["heatmaps"])
    assert [figure.name for figure in section.figures] == ["volume_heatmaps"]


def test_bars_hold_the_volume_of_all_runs(dataset: Dataset, query: Query) -> None:
    rows = drawn(spec_of("volume_by_model", query("volume_by_model")))
    shown = sum(row["volume_mb"] * row["runs"] for row in rows) * 1e6
    assert shown == pytest.approx(dataset.sql("SELECT sum(wire_bytes)::BIGINT AS bytes FROM flows")["bytes"][0])


def test_the_accuracy_chart_has_every_step_and_the_marks(query: Query) -> None:
    frame = query("accuracy_volume")
    spec = spec_of("accuracy_volume", frame)
    assert sum("accuracy" in row for row in drawn(spec)) == frame.height
    assert len(spec["concat"]) == frame["model"].n_unique()
    for panel in spec["concat"]:
        [marks] = [layer for layer in panel["layer"] if layer["mark"]["type"] == "rule"]
        assert [row["mark"] for row in spec["datasets"][marks["data"]["name"]]] == [0.6, 0.8]


def test_batch_sizes_are_compared_panel_by_panel(query: Query) -> None:
    spec = spec_of("batch_pair_excerpt", query("batch_pair_excerpt"))
    [comparison] = spec["concat"]
    assert [panel["title"]["text"] for panel in comparison["vconcat"]] == ["batch size 32", "batch size 128"]
    assert len({str(panel["encoding"]["y"]["scale"]) for panel in comparison["vconcat"]}) == 1
    frame = query("batch_pair_excerpt")
    assert len(drawn(spec)) == frame.height
    assert frame["excerpt_ms"].n_unique() == 1  # so that valleys compare


def test_durations_without_a_lossless_run_are_not_drawn_and_none_is_left_of_the_least_loss() -> None:
    frame = lossy().with_columns(loss_pct=pl.when(run_id=pl.lit("b")).then(0.01).otherwise("loss_pct"))
    places = {row["run_id"]: row["place"] for row in drawn(spec_of("duration_by_loss", frame)) if "run_id" in row}
    assert set(places) == {"a", "b", "c"}
    assert 0 < places["a"] < places["b"] == 0.01 and places["c"] == 2


@pytest.mark.parametrize("name", ["throughput_intervals", "gradient_flow_intervals"])
def test_intervals_are_drawn_where_they_are_known(name: str, query: Query, runs: tuple[str, ...]) -> None:
    """Of the longest training here none is: it has fewer than 200 steps. So the first run is given one."""
    frame = query(QUERIES.get(name, name)).sort("run_id")
    assert frame["low_gbit_per_s"].null_count() == frame.height == len(runs)
    ends = {"low_gbit_per_s": 0.9, "high_gbit_per_s": 1.1}
    first = pl.int_range(pl.len()) == 0
    known = frame.with_columns(
        pl.when(first).then(pl.col("gbit_per_s") * share).alias(end) for end, share in ends.items()
    )
    rows = drawn(spec_of(name, known))
    assert [row["run_id"] for row in rows] == sorted(runs)
    for end in ends:
        assert [row[end] for row in rows] == [one and pytest.approx(one, rel=1e-6) for one in known[end]]
    assert all(0 < row["gbit_per_s"] <= row.get("peak_gbit_per_s", float("inf")) for row in rows)


def test_the_timeline_holds_all_traffic(dataset: Dataset, query: Query) -> None:
    frame = query("flow_timeline")
    spec = spec_of("flow_timeline", frame)
    windows = dict(frame.select("run_id", "window_s").unique().iter_rows())
    bits = 0.0
    for panel in spec["concat"]:
        run_id = json.loads(panel["transform"][0]["calculate"])
        rows = spec["datasets"][panel["data"]["name"]]
        bits += sum(row["gbit_per_s"] for row in rows) * 1e9 * windows[run_id]
        assert max(row["share_of_peak"] for row in rows) == 1
    assert bits / 8 == pytest.approx(dataset.sql("SELECT sum(wire_bytes)::BIGINT AS bytes FROM flows")["bytes"][0])


def test_the_throughput_of_pairs_adds_up_to_the_excerpt(query: Query) -> None:
    frame = query("pair_burst")
    rows = drawn(spec_of("pair_throughput", frame))
    assert sum(row["gbit_per_s"] for row in rows) * 1e9 / 8 * 0.01 == pytest.approx(frame["wire_bytes"].sum())
    assert all(0 <= row["since_excerpt_ms"] < 250 for row in rows)


def test_the_excerpt_is_the_busiest(dataset: Dataset, query: Query, runs: tuple[str, ...]) -> None:
    """Against all stretches of 25 windows, added up one by one."""
    run_id = runs[0]
    windows = dataset.sql(
        """SELECT (window_start_ns - min(window_start_ns) OVER ()) // 10_000_000 AS number, wire_bytes
           FROM flow_windows WHERE run_id = ?""",
        [run_id],
    )
    bytes_of = dict(windows.group_by("number").agg(pl.col("wire_bytes").sum()).iter_rows())
    busiest = max(sum(bytes_of.get(first + i, 0) for i in range(25)) for first in bytes_of)
    assert query("pair_burst").filter(run_id=run_id)["wire_bytes"].sum() == busiest


def test_the_fit_counts_every_run_once_beside_the_law(fit: pl.DataFrame, runs: tuple[str, ...]) -> None:
    rows = drawn(spec_of("step_volume_fit", fit))
    marks = [row for row in rows if "runs" in row]
    assert sum(row["runs"] for row in marks) == len(runs) == sum(row["at_spot"] or 0 for row in marks)
    for column, total in (("step_mb", fit["step_bytes"].sum()), ("fitted_mb", fit["fitted_bytes"].sum())):
        assert sum(row[column] * row["runs"] for row in marks) == pytest.approx(total / 1e6)
    law = [row for row in rows if "runs" not in row]
    assert len(law) == 2 * fit["workers"].n_unique()  # both ends of a line in each panel
    assert all(row["law_mb"] == pytest.approx(6 * row["model_mb"]) for row in law)


def test_a_panel_of_the_fit_has_runs_of_one_number_of_workers_and_no_shape_twice() -> None:
    names = [f"framework-{i}" for i in range(4)]
    frame = pl.DataFrame(
        {"run_id": names * 2, "step_bytes": 6e6, "size_bytes": 1e6, "fitted_bytes": 6e6, "framework_backend": names * 2,
         "topology": ["ring"] * 8, "workers": [4] * 4 + [6] * 4, "law_factor": [6.0] * 4 + [None] * 4}
    )  # fmt: skip
    spec = spec_of("step_volume_fit", frame)
    assert [panel["title"]["text"] for panel in spec["concat"]] == ["4 workers", "6 workers"]
    assert [panel["title"]["subtitle"] for panel in spec["concat"]] == ["dashed: 6 × model by law", "no law known"]
    shapes = spec["concat"][0]["layer"][2]["encoding"]["shape"]["scale"]
    assert len(set(shapes["range"][: len(shapes["domain"])])) == len(names)


def test_runs_without_a_fit_are_drawn_without_it(fit: pl.DataFrame) -> None:
    frame = fit.with_columns(fitted_bytes=pl.lit(None, pl.Float64))
    for name in ("step_volume_fit", "step_volume_runs"):
        assert vl_convert.vegalite_to_svg(spec_of(name, frame)).startswith("<svg")


def test_shares_of_the_positions_make_the_whole_run(query: Query, runs: tuple[str, ...]) -> None:
    rows = pl.DataFrame(drawn(spec_of("position_volume", query("position_volume"))))
    assert sorted(rows["run_id"].unique()) == sorted(runs)
    totals = rows.group_by("run_id", "measure").agg(pl.col("share").sum())["share"].to_list()
    assert totals == pytest.approx([1] * 2 * len(runs))


def test_packets_lie_between_the_marks_of_the_iterations(dataset: Dataset, query: Query, runs: tuple[str, ...]) -> None:
    frame, markers = query("packets_over_iterations"), query("iteration_markers", step_count=5)
    spec = spec_of("packets_over_iterations", frame, markers)
    for run_id, panel in zip(runs, spec["concat"], strict=True):
        bars, marks = (spec["datasets"][layer["data"]["name"]] for layer in panel["layer"])
        counted = dataset.sql(
            """SELECT sum(packets)::BIGINT AS packets FROM flow_windows
               WHERE run_id = ? AND window_start_ns + window_ns > (SELECT min(start_ns) FROM iteration_markers()
                                                                   WHERE run_id = ?)
                 AND window_start_ns < (SELECT max(end_ns) FROM iteration_markers(step_count := 5) WHERE run_id = ?)""",
            [run_id] * 3,
        )
        assert sum(row["packets"] for row in bars) == counted["packets"][0]
        ends = [row["at_ms"] for row in marks if row["mark"] == "end"]
        assert len(ends) == 5
        assert max(row["since_excerpt_ms"] for row in bars) < max(ends)


@pytest.mark.parametrize("name", ["iteration_duration_cdf", "iteration_flow_size_cdf"])
def test_a_cumulative_share_climbs_from_nothing_to_all(name: str, query: Query) -> None:
    spec = spec_of(name, query(QUERIES.get(name, name)))
    for panel in spec["concat"]:
        shares = [row["cumulative_share"] for row in spec["datasets"][panel["data"]["name"]]]
        assert shares == sorted(shares)
        assert (shares[0], shares[-1]) == (0, 1)


def test_the_classes_hold_every_flow(dataset: Dataset, query: Query) -> None:
    rows = drawn(spec_of("flow_classes", query("flow_class_counts")))
    assert sum(row["flows"] for row in rows) == dataset.sql("SELECT count(*) AS flows FROM flows")["flows"][0]
    assert all(row["least_bytes"] <= row["most_bytes"] for row in rows)


def test_flow_sizes_are_those_of_the_query(query: Query, runs: tuple[str, ...]) -> None:
    frame = query("iteration_flow_size")
    rows = [row for row in drawn(spec_of("iteration_flow_size", frame)) if "run_id" in row]
    assert [row["run_id"] for row in rows] == frame["run_id"].to_list() == sorted(runs)
    assert [row["flow_mb"] for row in rows] == pytest.approx((frame["mean_bytes"] / 1e6).to_list())


def test_without_a_model_size_no_flow_size_is_drawn(query: Query) -> None:
    frame = query("iteration_flow_size").with_columns(model_size_bytes=pl.lit(None, pl.Float64))
    with pytest.raises(ValueError, match="no run has both a model size and a data flow"):
        spec_of("iteration_flow_size", frame)


def test_both_phases_of_the_star_are_drawn_along_with_the_model(query: Query, runs: tuple[str, ...]) -> None:
    frame = query("parameter_server_transfers")
    rows = drawn(spec_of("parameter_server_phases", frame))
    assert {(row["run_id"], row["phase"]) for row in rows} == {(runs[-1], "aggregation"), (runs[-1], "distribution")}
    expected = dict(frame.select("phase", "payload_bytes").iter_rows())
    for row in rows:
        assert row["payload_mb"] == pytest.approx(expected[row["phase"]] / 1e6)
        assert row["expected_mb"] == pytest.approx(3 * 3.6762)  # three workers and a model of 3,676,200 bytes
        assert row["payload_mb"] == pytest.approx(row["expected_mb"], rel=0.01)


def test_without_phases_nothing_is_drawn(query: Query) -> None:
    frame = query("parameter_server_transfers").clear()
    with pytest.raises(ValueError, match="no run has parameter-server phases"):
        spec_of("parameter_server_phases", frame)


def test_boundaries_are_those_of_the_query(query: Query) -> None:
    frame = query("step_boundaries")
    rows = drawn(spec_of("step_boundaries", frame))
    assert [row["since_start_ms"] for row in rows] == pytest.approx(frame["since_start_ms"].to_list())
    assert {row["source"] for row in rows} >= {"traffic", "worker-1"}


def test_a_run_without_structure_is_marked(query: Query) -> None:
    logs = query("step_boundaries").filter(pl.col("source") != "traffic")
    titles = [panel["title"] for panel in spec_of("step_boundaries", logs)["concat"]]
    assert {title["subtitle"] for title in titles} == {"no structure in the traffic"}


def test_slack_leaves_out_runs_in_which_nobody_waits(query: Query) -> None:
    frame = query("straggler_summary")
    nobody = frame.head(1).with_columns(run_id=pl.lit("asynchronous"), worker=pl.lit(None, pl.String))
    assert spec_of("straggler_slack", pl.concat([frame, nobody])) == spec_of("straggler_slack", frame)


def test_the_parts_of_a_step_add_up(query: Query) -> None:
    frame = query("overlap_summary")
    rows = drawn(spec_of("overlap_shares", frame))
    assert sum(row["ms"] for row in rows) == pytest.approx(frame["step_ms"].sum(), rel=1e-3)


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


def test_throughput_over_time_holds_every_byte_and_what_was_sent_again(dataset: Dataset, query: Query) -> None:
    rows = drawn(spec_of("run_throughput", query("run_throughput")))
    flows = dataset.sql("SELECT sum(wire_bytes)::BIGINT AS bytes, sum(retransmitted_bytes)::BIGINT AS again FROM flows")
    assert sum(row["wire_bytes"] for row in rows) == flows["bytes"][0]
    assert sum(row["retransmitted_bytes"] or 0 for row in rows) == flows["again"][0] > 0


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
