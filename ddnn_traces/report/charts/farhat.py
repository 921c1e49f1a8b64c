"""Figures of farhat and chang: traffic before, during and after training; iterations, and their phases with servers.

Drawing only: queries/ decides what they show. Each function takes the frame of a query and returns a chart.
"""

from __future__ import annotations

from typing import Any

import altair as alt
import polars as pl

from ddnn_traces.report.charts import panels, style

_POSITIONS = {"before": "#E69F00", "during": style.DARK, "after": "#999999"}
_PHASES = {"aggregation": "#E69F00", "distribution": style.DARK}
_CLASSES = {"small": "#E69F00", "medium": "#56B4E9", "large": style.DARK}


@style.chart("Packets and bytes before, during and after training, by run")
def position_volume(frame: pl.DataFrame) -> alt.TopLevelMixin:
    """Shares of packets and bytes before, during and after training, of query position_volume: farhat figs. 2 and 3."""
    names = {"share_of_packets": "packets", "share_of_wire_bytes": "bytes on the wire"}
    keys = ["run_id", "position", "place", "packets", "wire_bytes"]
    shown = frame.unpivot(list(names), index=keys, variable_name="measure", value_name="share").with_columns(
        pl.col("measure").replace(names)
    )
    height = style.row_step(frame["run_id"].n_unique(), 18)

    def bars(measure: str) -> Any:
        scale, percent = alt.Scale(domain=[0, 1], nice=False), alt.Axis(format=".0%")
        of_runs = style.row_chart(shown.filter(measure=measure)).encode(
            x=alt.X("share:Q", title=f"{measure} (share of the run)", scale=scale, axis=percent), y=style.run_rows()
        )
        means = of_runs.transform_aggregate(
            share="mean(share)", packets="mean(packets)", wire_bytes="mean(wire_bytes)",
            groupby=["row", "position", "place"],
        )  # fmt: skip
        stacked = means.mark_bar(size=12).encode(
            order=alt.Order("place:Q"), color=style.kind_color("position:N", "sent", _POSITIONS),
            tooltip=style.tips(
                style.ROW, ("position:N", "sent"), ("share:Q", f"share of {measure}, mean", ".4~%"),
                ("packets:Q", "packets, mean", ",.6~r"), ("wire_bytes:Q", "bytes on the wire, mean", ",.6~r"),
            ),
        )  # fmt: skip
        starts = style.run_points(of_runs.transform_filter("datum.position == 'before'")).encode(
            tooltip=style.tips(style.RUN, ("share:Q", f"share of {measure} before training", ".4~%"))
        )
        return alt.layer(stacked, starts).properties(width=270, height=height)

    packets, volume = names.values()
    return alt.hconcat(bars(packets), bars(volume), spacing=14)


@style.chart("Packets over time, with the start and end of each iteration")
def packets_over_iterations(frame: pl.DataFrame, markers: pl.DataFrame) -> alt.TopLevelMixin:
    """Packets over time with the start and end of each iteration: farhat section 3.

    frame: of query packets_over_iterations; markers: of iteration_markers with the same parameters.
    """
    marks_of = dict(panels.by_run(markers))
    dashes = alt.Scale(domain=["start", "end"], range=[[1, 0], [4, 3]])
    length = f"{panels.place('length')} ms"
    windows = panels.rows_chart().transform_calculate(until_ms=f"datum.since_excerpt_ms + {panels.place('length_ms')}")
    bars = windows.mark_rect(color=style.DARK).encode(
        x=alt.X("since_excerpt_ms:Q", title=f"time since step {panels.place('step')} began (ms)",
                scale=alt.Scale(nice=False, zero=False)),
        x2="until_ms:Q",
        y=alt.Y("packets:Q", title=f"packets (number in {length})", axis=alt.Axis(labelExpr=style.COUNTS)),
        y2=alt.datum(0),
        tooltip=style.tips(
            ("since_excerpt_ms:Q", f"{length} from (ms)", ".4~f"), ("packets:Q", "packets", ","),
            ("wire_bytes:Q", "bytes on the wire", ","), ("gbit_per_s:Q", "throughput (Gbit/s)", ".3~g"),
            style.PANEL_RUN,
        ),
    )  # fmt: skip
    rules = alt.Chart(alt.NamedData(panels.place("marks"))).mark_rule(strokeWidth=1.2).encode(
        x="at_ms:Q",
        color=style.kind_color("mark:N", "iteration", {"start": "#009E73", "end": "#D55E00"}),
        strokeDash=alt.StrokeDash("mark:N", title="iteration", scale=dashes),
        tooltip=style.tips(
            ("mark:N", "mark"), ("step:Q", "step"), ("at_ms:Q", "time (ms)", ".4~f"),
            ("worker:N", "by the log of"), style.PANEL_RUN,
        ),
    )  # fmt: skip
    chart = alt.layer(bars, rules, title=panels.place("title"), width=370, height=110)
    length_of = dict(frame.select("run_id", "length_ms").iter_rows())

    def values(run_id: str, _: pl.DataFrame) -> dict[str, Any]:
        length_ms, marks = length_of[run_id], marks_of[run_id]
        ends = marks.unpivot(["begin_ms", "end_ms"], index=["step", "worker"], variable_name="mark", value_name="at_ms")
        ends = ends.with_columns(pl.col("mark").replace({"begin_ms": "start", "end_ms": "end"}))
        title = style.panel_title(run_id, 400, f"steps by the log of {marks['worker'][0]}")
        return {
            "length_ms": length_ms, "length": f"{length_ms:g}", "step": marks["step"][0], "title": title,
            "marks": ends,
        }  # fmt: skip

    shown = frame.select("run_id", "since_excerpt_ms", "packets", "wire_bytes", "gbit_per_s")
    return panels.alike_panels(shown, chart, values, 440)


def _steps_of_share(frame: pl.DataFrame, column: str, title: str, **form: Any) -> alt.TopLevelMixin:
    """The cumulative share of a column's values as steps, one panel a run, all on one scale. form: of the axis."""
    scale = style.positive_scale(frame, [column])
    axis = style.positive_axis(scale, **form)
    # a curve begins at zero, where its smallest value is
    first = frame.group_by("run_id", maintain_order=True).head(1).with_columns(cumulative_share=pl.lit(0.0))
    base = panels.rows_chart().encode(
        x=alt.X(f"{column}:Q", title=title, scale=scale, axis=axis),
        y=alt.Y("cumulative_share:Q", title="cumulative share (%)", scale=alt.Scale(domain=[0, 1], nice=False),
                axis=alt.Axis(format=".0%")),
        tooltip=style.tips(
            (f"{column}:Q", title, ",.7~g"), ("cumulative_share:Q", "at most that", ".3~%"), style.PANEL_RUN
        ),
    )  # fmt: skip
    line = base.mark_line(color=style.DARK, strokeWidth=1.8, interpolate="step-after")
    points = base.mark_point(color=style.DARK, filled=True, size=14)
    chart = alt.layer(line, points, title=panels.place("title"), width=205, height=120)
    rows = pl.concat([first.select(frame.columns), frame])
    return panels.alike_panels(rows, chart, lambda run_id, _: {"title": style.panel_title(run_id, 240)}, 300)


@style.chart("Cumulative distribution of the durations of iterations, by run")
def iteration_duration_cdf(frame: pl.DataFrame) -> alt.TopLevelMixin:
    """Cumulative distribution of iteration durations, of query iteration_duration_cdf: farhat fig. 4."""
    shown = frame.select("run_id", "duration_ms", "cumulative_share")
    return _steps_of_share(shown, "duration_ms", "duration of an iteration (ms)")


@style.chart("Cumulative distribution of the sizes of flows in an iteration, by run")
def iteration_flow_size_cdf(frame: pl.DataFrame) -> alt.TopLevelMixin:
    """Cumulative distribution of flow sizes in an iteration, of query iteration_flow_size_cdf: farhat fig. 5."""
    shown = frame.select("run_id", "cumulative_share", "wire_bytes")
    return _steps_of_share(shown, "wire_bytes", "flow size of an iteration (bytes on the wire)", labelExpr=style.BYTES)


@style.chart("Sizes and numbers of small, medium and large flows, by run")
def flow_classes(frame: pl.DataFrame) -> alt.TopLevelMixin:
    """Sizes and numbers of small, medium and large flows, of query flow_class_counts: farhat section 3."""
    title = "size of a flow, with the number of flows right of their range (bytes on the wire)"
    shown = frame.filter(pl.col("flows") > 0)
    scale = style.positive_scale(shown, ["least_bytes", "most_bytes"])
    y, of_runs = style.run_rows(style.NAMES_AND_GRID), style.row_chart(shown)
    lane = alt.YOffset("size_class:N", sort=list(_CLASSES))
    base = of_runs.transform_aggregate(
        least_bytes="min(least_bytes)", most_bytes="max(most_bytes)", flows="min(flows)", most_flows="max(flows)",
        share_of_wire_bytes="mean(share_of_wire_bytes)", groupby=["row", "size_class"],
    ).transform_calculate(number=style.RANGE.format("flows", "most_flows")).encode(
        x=alt.X("least_bytes:Q", title=title, scale=scale,
                axis=style.positive_axis(scale, labelExpr=style.BYTES)),
        y=y, yOffset=lane,
        tooltip=style.tips(
            style.ROW, ("size_class:N", "class"), ("number:N", "flows of a run"),
            ("least_bytes:Q", "smallest (bytes)", ","), ("most_bytes:Q", "largest (bytes)", ","),
            ("share_of_wire_bytes:Q", "share of a run, mean", ".3~%"),
        ),
    )  # fmt: skip
    ranges = base.mark_rule(strokeWidth=6, strokeCap="round").encode(
        x2="most_bytes:Q", color=style.kind_color("size_class:N", "flows", _CLASSES)
    )
    largest = style.run_points(of_runs).encode(
        x="most_bytes:Q", y=y, yOffset=lane,
        tooltip=style.tips(
            style.RUN, ("size_class:N", "class"), ("flows:Q", "flows", ","), ("least_bytes:Q", "smallest (bytes)", ","),
            ("most_bytes:Q", "largest (bytes)", ","), ("share_of_wire_bytes:Q", "share of the run", ".3~%"),
            ("thresholds:N", "thresholds"),
        ),
    )  # fmt: skip
    numbers = base.mark_text(align="left", dx=9, fontSize=style.FONT_SIZE, color=style.INK).encode(
        x="most_bytes:Q", text="number:N"
    )
    return alt.layer(ranges, largest, numbers).properties(
        width=560, height=style.row_step(frame["run_id"].n_unique(), 9)
    )


@style.chart("Size of a data flow in an iteration against model size")
def iteration_flow_size(frame: pl.DataFrame) -> alt.TopLevelMixin:
    """Size of a data flow in an iteration against model size, of query iteration_flow_size: farhat section 3.

    Runs without a model size or a data flow are not drawn; lines are one and two bytes a byte of model. Raises
    ValueError where no run is left.
    """
    known = frame.drop_nulls(["model_size_bytes", "mean_bytes"])
    if known.is_empty():
        raise ValueError("no run has both a model size and a data flow")
    shown = known.select(
        "run_id", "topology", "data_flows", "ratio", "ring_ratio",
        kind=pl.concat_str("framework", "backend", separator="-", ignore_nulls=True),
        model_mb=pl.col("model_size_bytes") / 1e6, flow_mb=pl.col("mean_bytes") / 1e6,
    )  # fmt: skip
    ends = shown.select(pl.concat([pl.col("model_mb").min(), pl.col("model_mb").max()]))
    multiples = pl.concat(
        ends.with_columns(times=pl.lit(f"{times} × model"), flow_mb=times * pl.col("model_mb")) for times in (1, 2)
    )
    both = pl.concat([shown.select("flow_mb"), multiples.select("flow_mb")])
    dashes = alt.Scale(domain=["1 × model", "2 × model"], range=[[2, 2], [7, 3]])
    lines = style.data_chart(multiples).mark_line(color="#777", strokeWidth=1).encode(
        x="model_mb:Q", y="flow_mb:Q", strokeDash=alt.StrokeDash("times:N", title="lines", scale=dashes),
        tooltip=alt.Tooltip("times:N", title="flow size"),
    )  # fmt: skip
    sizes, models = style.positive_scale(both, ["flow_mb"]), style.positive_scale(shown, ["model_mb"])
    points = style.data_chart(shown).mark_point(size=80, strokeWidth=2).encode(
        x=alt.X("model_mb:Q", title="model size (bytes)", scale=models,
                axis=style.positive_axis(models, labelExpr=style.MEGABYTES)),
        y=alt.Y("flow_mb:Q", title="flow size of an iteration, mean (bytes on the wire)",
                scale=sizes, axis=style.positive_axis(sizes, labelExpr=style.MEGABYTES)),
        color=style.colors("kind:N", "framework and backend"), shape=style.shapes("topology:N", "topology (declared)"),
        tooltip=style.tips(
            style.RUN, ("model_mb:Q", "model size (MB)", ".4~g"),
            ("flow_mb:Q", "flow size of an iteration (MB)", ".4~g"), ("ratio:Q", "flow size / model size", ".4~g"),
            ("ring_ratio:Q", "2(N-1)/N of a ring", ".4~g"), ("data_flows:Q", "data flows"), ("topology:N", "topology"),
        ),
    )  # fmt: skip
    layers: alt.LayerChart = alt.layer(lines, points).resolve_scale(color="independent")
    return layers.properties(width=560, height=330)


@style.chart("Duration and payload of aggregation and distribution in an iteration, by run")
def parameter_server_phases(frame: pl.DataFrame) -> alt.TopLevelMixin:
    """Time and volume of both phases of an iteration, of query parameter_server_transfers: chang section 3 and fig. 2.

    Runs without measured phases are not drawn. Raises ValueError where no run is left.
    """
    phases = frame.filter(pl.col("phase").is_in(list(_PHASES)))
    if phases.is_empty():
        raise ValueError("no run has parameter-server phases")
    shown = phases.with_columns(payload_mb=pl.col("payload_bytes") / 1e6, expected_mb=pl.col("expected_bytes") / 1e6)
    duration = alt.X("mean_ms:Q", title="mean duration; mark: still to send after computation (ms)")
    times = _bars(shown, duration, "mean_remaining_ms")
    axis = alt.Axis(labelExpr=style.MEGABYTES, labelOverlap="greedy", labelSeparation=8)
    payload = alt.X("payload_mb:Q", title="mean payload; mark: model × workers (bytes)", axis=axis)
    volumes = _bars(shown, payload, "expected_mb")
    return alt.hconcat(times, volumes, spacing=14)


def _bars(frame: pl.DataFrame, x: alt.X, mark: str) -> Any:
    """A bar a phase and row, with a mark at the other column's value: medians of the row's runs."""
    names = ("mean_ms", "mean_remaining_ms", "mean_overlap_ms", "payload_mb", "expected_mb", "transfers",
             "expected_transfers", "steps")  # fmt: skip
    tips = (
        ("phase:N", "phase"), ("mean_ms:Q", "duration, mean (ms)", ".4~g"),
        ("mean_remaining_ms:Q", "still to send, mean (ms)", ".4~g"), ("measured_by:N", "measured by"),
        ("mean_overlap_ms:Q", "overlap of the phases, mean (ms)", ".4~g"),
        ("payload_mb:Q", "payload, mean (MB)", ".4~g"), ("expected_mb:Q", "model × workers (MB)", ".4~g"),
        ("transfers:Q", "transfers, mean", ".4~g"), ("expected_transfers:Q", "servers × workers"),
        ("steps:Q", "steps", ".4~g"),
    )  # fmt: skip
    of_runs = style.row_chart(frame).encode(x=x, y=style.run_rows(), yOffset=alt.YOffset("phase:N", sort=list(_PHASES)))
    means = of_runs.transform_aggregate(
        **{name: f"median({name})" for name in names}, way="min(measured_by)", other_way="max(measured_by)",
        groupby=["row", "phase"],
    ).transform_calculate(measured_by="datum.way == datum.other_way ? datum.way : 'mixed'").encode(
        tooltip=style.tips(style.ROW, *tips)
    )  # fmt: skip
    layers = [
        means.mark_bar().encode(color=style.kind_color("phase:N", "phase", _PHASES)),
        style.run_points(of_runs).encode(tooltip=style.tips(style.RUN, *tips)),
    ]
    if frame[mark].count():
        layers.append(means.mark_tick(color=style.INK, thickness=2.5, orient="vertical").encode(x=f"{mark}:Q"))
    return alt.layer(*layers).properties(width=290, height=style.row_step(frame["run_id"].n_unique(), 13))
