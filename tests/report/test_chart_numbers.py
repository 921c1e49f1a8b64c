"""Each chart draws the numbers of its query."""

from __future__ import annotations

import json
import re
from pathlib import Path

import polars as pl
import pytest
import vl_convert
from chart_specs import QUERIES, SYNTHETIC_FIT, Query, drawn, lossy, spec_of, sweep
from datasets import write_dataset

import ddnn_traces
from ddnn_traces.query.dataset import Dataset
from ddnn_traces.report.chapters import host_pairs
from ddnn_traces.report.charts import regression
from ddnn_traces.report.section import Results


@pytest.fixture(scope="module")
def fit(dataset: Dataset, query: Query) -> pl.DataFrame:
    """The frame of step_volume_fit and step_volume_runs."""
    attributes = query("run_step_volume").select("run_id", "framework_backend", "topology", "workers", law_factor=6.0)
    return ddnn_traces.regress(dataset).points.join(attributes, on="run_id")


def test_a_training_that_did_not_finish_is_a_cross() -> None:
    spec = spec_of("samples_by_condition", sweep())
    crosses = [row for row in drawn(spec) if "at" in row]
    assert [(row["value"], row["did"]) for row in crosses] == [("100", "0 of 1 runs")]
    speeds = sorted(row["samples_per_s"] for row in drawn(spec) if "at" not in row and row["condition"] == "delay_ms")
    assert speeds == [256, 1280]


def test_the_line_of_a_law_does_not_strike_through_the_name_of_a_mark() -> None:
    """It rises to the right of a mark, where the name is."""
    runs = pl.DataFrame({"run_id": ["a", "b"], "topology": "ring", "workers": [4, 6], "law_factor": [6.0, 10.0]})
    chart = regression.volume_by_law(runs.with_columns(step_bytes=pl.col("law_factor") * 1.05e6, size_bytes=1e6))
    svg = vl_convert.vegalite_to_svg(chart.to_dict())
    places = r'translate\((?P<x>[-0-9.]+),(?P<y>[-0-9.]+)\)"[^>]*>'
    names = [float(found["y"]) for found in re.finditer(places + r"ring \(1\)<", svg)]
    marks = sorted({float(found["y"]) for found in re.finditer(places.replace(r'"[^>]*>', "") + '"[^>]*d="M4.18', svg)})
    assert len(names) == len(marks) == 2
    below = sorted(name - mark for name, mark in zip(sorted(names), marks, strict=True))
    assert below[1] - below[0] == pytest.approx(10)  # the last mark has no line at its right


def test_residuals_are_drawn_in_megabytes_and_far_ones_are_distinguishable() -> None:
    rows = [row for row in drawn(spec_of("regression_residuals", SYNTHETIC_FIT)) if "row" in row]
    assert [(row["fitted"], row["residual"]) for row in rows] == [(10, -1), (50, 0), (10, 1), (29, 1)]
    assert [row["kind"] for row in rows if row["row"] == "b"] == ["beyond 2"]
    plain = regression.regression_residuals(SYNTHETIC_FIT, "step_ms").to_dict()
    assert [row["fitted"] for row in drawn(plain) if "row" in row] == [10e6, 50e6, 10e6, 29e6]
    assert "duration of a step (ms)" in json.dumps(plain)


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


def test_throughput_over_time_holds_every_byte_and_what_was_sent_again(dataset: Dataset, query: Query) -> None:
    rows = drawn(spec_of("run_throughput", query("run_throughput")))
    flows = dataset.sql("SELECT sum(wire_bytes)::BIGINT AS bytes, sum(retransmitted_bytes)::BIGINT AS again FROM flows")
    assert sum(row["wire_bytes"] for row in rows) == flows["bytes"][0]
    assert sum(row["retransmitted_bytes"] or 0 for row in rows) == flows["again"][0] > 0
