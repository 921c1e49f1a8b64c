"""Figures of farhat: traffic before, during and after training, and the duration and volume of an iteration.

Drawing only: queries/ decides what they show. Each function takes the frame of a query and returns a chart.
"""

from __future__ import annotations

from typing import Any

import altair as alt
import polars as pl

from ddnn_traces.report.charts import style

_POSITIONS = {"before": "#E69F00", "during": style.DARK, "after": "#999999"}
_CLASSES = {"small": "#E69F00", "medium": "#56B4E9", "large": style.DARK}


@style.chart("Packets and bytes before, during and after training, by run")
def position_volume(frame: pl.DataFrame) -> alt.TopLevelMixin:
    """Shares of packets and bytes before, during and after training, of query position_volume: farhat figs. 2 and 3."""
    names = {"share_of_packets": "packets", "share_of_wire_bytes": "bytes on the wire"}
    keys = ["run_id", "position", "place", "packets", "wire_bytes"]
    shown = frame.unpivot(list(names), index=keys, variable_name="measure", value_name="share").with_columns(
        pl.col("measure").replace(names)
    )

    def bars(measure: str, axis: alt.Axis | None) -> Any:
        return (
            style.data_chart(shown.filter(measure=measure))
            .mark_bar(size=12)
            .encode(
                x=alt.X(
                    "share:Q",
                    title=f"{measure} (share of the run)",
                    scale=alt.Scale(domain=[0, 1], nice=False),
                    axis=alt.Axis(format=".0%", tickCount=5),
                ),
                y=style.run_rows(axis),
                color=style.kind_color("position:N", "sent", _POSITIONS),
                order=alt.Order("place:Q"),
                tooltip=[
                    alt.Tooltip("run_id:N", title="run"),
                    alt.Tooltip("position:N", title="sent"),
                    alt.Tooltip("share:Q", title=f"share of {measure}", format=".4~%"),
                    alt.Tooltip("packets:Q", title="packets", format=","),
                    alt.Tooltip("wire_bytes:Q", title="bytes on the wire", format=","),
                ],
            )
            .properties(width=270, height=style.row_step(frame["run_id"].n_unique(), 18))
        )

    packets, volume = names.values()
    return alt.hconcat(bars(packets, style.NAMES), bars(volume, None), spacing=14)


@style.chart("Packets over time, with the begin and end of each iteration")
def packets_over_iterations(frame: pl.DataFrame, markers: pl.DataFrame) -> alt.TopLevelMixin:
    """Packets over time with the begin and end of each iteration: farhat section 3.

    frame: of query packets_over_iterations; markers: of iteration_markers with the same parameters.
    """
    marks_of = dict(style.by_run(markers))

    def panel(run_id: str, run: pl.DataFrame) -> Any:
        length_ms = run["length_ms"][0]
        marks = marks_of[run_id]
        y = alt.Y("packets:Q", title=f"packets (number in {length_ms:g} ms)", axis=alt.Axis(format="~s", tickCount=4))
        bars = (
            style.run_chart(run_id, run.select("since_excerpt_ms", "packets", "wire_bytes", "gbit_per_s"))
            .transform_calculate(until_ms=f"datum.since_excerpt_ms + {length_ms}")
            .mark_rect(color=style.DARK)
            .encode(
                x=alt.X(
                    "since_excerpt_ms:Q",
                    title=f"time since step {marks['step'][0]} began (ms)",
                    scale=alt.Scale(nice=False, zero=False),
                ),
                x2="until_ms:Q",
                y=y,
                y2=alt.datum(0),
                tooltip=[
                    alt.Tooltip("since_excerpt_ms:Q", title=f"{length_ms:g} ms from (ms)", format=".4~f"),
                    alt.Tooltip("packets:Q", title="packets", format=","),
                    alt.Tooltip("wire_bytes:Q", title="bytes on the wire", format=","),
                    alt.Tooltip("gbit_per_s:Q", title="throughput (Gbit/s)", format=".3~g"),
                    alt.Tooltip("run:N", title="run"),
                ],
            )
        )
        ends = marks.unpivot(["begin_ms", "end_ms"], index=["step", "worker"], variable_name="mark", value_name="at_ms")
        ends = ends.with_columns(pl.col("mark").replace({"begin_ms": "begin", "end_ms": "end"}))
        rules = (
            style.run_chart(run_id, ends)
            .mark_rule(strokeWidth=1.2)
            .encode(
                x="at_ms:Q",
                color=style.kind_color("mark:N", "iteration", {"begin": "#009E73", "end": "#D55E00"}),
                strokeDash=alt.StrokeDash(
                    "mark:N", title="iteration", scale=alt.Scale(domain=["begin", "end"], range=[[1, 0], [4, 3]])
                ),
                tooltip=[
                    alt.Tooltip("mark:N", title="mark"),
                    alt.Tooltip("step:Q", title="step"),
                    alt.Tooltip("at_ms:Q", title="time (ms)", format=".4~f"),
                    alt.Tooltip("worker:N", title="by the log of"),
                    alt.Tooltip("run:N", title="run"),
                ],
            )
        )
        title = style.panel_title(run_id, 400, f"steps by the log of {marks['worker'][0]}")
        return alt.layer(bars, rules, title=title).properties(width=370, height=110)

    return style.run_panels(frame, panel, 440)


def _steps_of_share(frame: pl.DataFrame, column: str, title: str) -> alt.TopLevelMixin:
    """The cumulative share of a column's values as steps, one panel a run."""

    def panel(run_id: str, run: pl.DataFrame) -> Any:
        # a curve begins at zero, where its smallest value is
        first = run.head(1).with_columns(cumulative_share=pl.lit(0.0))
        base = style.run_chart(run_id, pl.concat([first, run])).encode(
            x=alt.X(
                f"{column}:Q",
                title=title,
                scale=style.positive_scale(run, [column]),
                axis=alt.Axis(tickCount=4, labelOverlap="greedy", format="~g"),
            ),
            y=alt.Y(
                "cumulative_share:Q",
                title="cumulative share (%)",
                scale=alt.Scale(domain=[0, 1], nice=False),
                axis=alt.Axis(format=".0%", tickCount=4),
            ),
            tooltip=[
                alt.Tooltip(f"{column}:Q", title=title, format=",.7~g"),
                alt.Tooltip("cumulative_share:Q", title="at most that", format=".3~%"),
                alt.Tooltip("run:N", title="run"),
            ],
        )
        line = base.mark_line(color=style.DARK, strokeWidth=1.8, interpolate="step-after")
        points = base.mark_point(color=style.DARK, filled=True, size=14)
        return alt.layer(line, points, title=style.panel_title(run_id, 240)).properties(width=205, height=120)

    return style.run_panels(frame, panel, 300)


@style.chart("Cumulative distribution of the durations of iterations, by run")
def iteration_duration_cdf(frame: pl.DataFrame) -> alt.TopLevelMixin:
    """Cumulative distribution of iteration durations, of query iteration_duration_cdf: farhat fig. 4."""
    return _steps_of_share(
        frame.select("run_id", "duration_ms", "cumulative_share"),
        "duration_ms",
        "duration of an iteration (ms)",
    )


@style.chart("Cumulative distribution of the sizes of flows in an iteration, by run")
def iteration_flow_size_cdf(frame: pl.DataFrame) -> alt.TopLevelMixin:
    """Cumulative distribution of flow sizes in an iteration, of query iteration_flow_size_cdf: farhat fig. 5."""
    return _steps_of_share(
        frame.select("run_id", "cumulative_share", size_mb=pl.col("wire_bytes") / 1e6),
        "size_mb",
        "flow size of an iteration (MB on the wire)",
    )


@style.chart("Sizes and numbers of small, medium and large flows, by run")
def flow_classes(frame: pl.DataFrame) -> alt.TopLevelMixin:
    """Sizes and numbers of small, medium and large flows, of query flow_class_counts: farhat section 3."""
    shown = frame.filter(pl.col("flows") > 0)
    base = style.data_chart(shown).encode(
        x=alt.X(
            "least_bytes:Q",
            title="size of a flow, with the number of flows right of their range (bytes on the wire)",
            scale=alt.Scale(type="log", nice=True),
            axis=alt.Axis(format="~s", tickCount=8),
        ),
        y=style.run_rows(style.NAMES_AND_GRID),
        tooltip=[
            alt.Tooltip("run_id:N", title="run"),
            alt.Tooltip("size_class:N", title="class"),
            alt.Tooltip("flows:Q", title="flows", format=","),
            alt.Tooltip("least_bytes:Q", title="smallest (bytes)", format=","),
            alt.Tooltip("most_bytes:Q", title="largest (bytes)", format=","),
            alt.Tooltip("share_of_wire_bytes:Q", title="share of the run", format=".3~%"),
            alt.Tooltip("thresholds:N", title="thresholds"),
        ],
    )
    ranges = base.mark_rule(strokeWidth=9, strokeCap="round").encode(
        x2="most_bytes:Q", color=style.kind_color("size_class:N", "flows", _CLASSES)
    )
    numbers = base.mark_text(align="left", dx=9, fontSize=10, color=style.INK).encode(
        x="most_bytes:Q", text=alt.Text("flows:Q", format=",")
    )
    return alt.layer(ranges, numbers).properties(width=560, height=style.row_step(frame["run_id"].n_unique(), 18))


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
    scale = style.positive_scale(shown, ["model_mb"])
    ends = shown.select(pl.concat([pl.col("model_mb").min(), pl.col("model_mb").max()]))
    multiples = pl.concat(
        ends.with_columns(times=pl.lit(f"{times} × model"), flow_mb=times * pl.col("model_mb")) for times in (1, 2)
    )
    both = pl.concat([shown.select("flow_mb"), multiples.select("flow_mb")])
    lines = (
        style.data_chart(multiples)
        .mark_line(color="#777", strokeWidth=1)
        .encode(
            x="model_mb:Q",
            y="flow_mb:Q",
            strokeDash=alt.StrokeDash(
                "times:N", title="lines", scale=alt.Scale(domain=["1 × model", "2 × model"], range=[[2, 2], [7, 3]])
            ),
            tooltip=alt.Tooltip("times:N", title="flow size"),
        )
    )
    points = (
        style.data_chart(shown)
        .mark_point(size=80, strokeWidth=2)
        .encode(
            x=alt.X("model_mb:Q", title="model size (MB)", scale=scale),
            y=alt.Y(
                "flow_mb:Q",
                title="flow size of an iteration, mean (MB on the wire)",
                scale=style.positive_scale(both, ["flow_mb"]),
            ),
            color=alt.Color("kind:N", title="framework and backend", scale=alt.Scale(range=style.OKABE_ITO)),
            shape=alt.Shape("topology:N", title="topology (declared)", scale=alt.Scale(range=style.SHAPES)),
            tooltip=[
                alt.Tooltip("run_id:N", title="run"),
                alt.Tooltip("model_mb:Q", title="model size (MB)", format=".4~g"),
                alt.Tooltip("flow_mb:Q", title="flow size of an iteration (MB)", format=".4~g"),
                alt.Tooltip("ratio:Q", title="flow size / model size", format=".4~g"),
                alt.Tooltip("ring_ratio:Q", title="2(N-1)/N of a ring", format=".4~g"),
                alt.Tooltip("data_flows:Q", title="data flows"),
                alt.Tooltip("topology:N", title="topology"),
            ],
        )
    )
    layers: alt.LayerChart = alt.layer(lines, points).resolve_scale(color="independent")
    return layers.properties(width=560, height=330)
