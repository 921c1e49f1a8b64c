"""Figures that no paper has: steps without a log, overlap of communication with computation, stragglers, bandwidth.

Drawing only: queries/ decides what they show. Each function takes the frame of one query and returns a chart.
"""

from __future__ import annotations

from typing import Any

import altair as alt
import polars as pl

from ddnn_traces.report.charts import panels, style
from ddnn_traces.text import natural_order

_THINNEST = 0.006  # of the panel: a shorter bar has no colour
_PARTS = {
    "only_compute_ms": "computation",
    "overlap_ms": "computation and payload on the wire",
    "only_wire_ms": "payload on the wire",
    "waiting_ms": "neither",
}
_PART_COLORS = [style.PALE, style.OKABE_ITO[1], style.DARK, "#dddddd"]


@style.chart("Ends of training steps as the traffic shows and as the logs have them, by run")
def step_boundaries(frame: pl.DataFrame) -> alt.TopLevelMixin:
    """Ends of steps as inferred and as logged, of query step_boundaries."""
    is_traffic = alt.when(alt.datum.source == "traffic")
    color = is_traffic.then(alt.value(style.OKABE_ITO[1])).otherwise(alt.value(style.DARK))
    ticks, names = (
        alt.Axis(labelOverlap="greedy", labelSeparation=8),
        alt.Axis(ticks=False, grid=True, labelLimit=120),
    )

    base = panels.rows_chart(width=350, height=panels.place("height"), title=panels.place("title"))
    chart = base.mark_tick(thickness=2, size=14, orient="vertical").encode(
        x=alt.X("since_start_ms:Q", title="time since the first boundary (ms)", axis=ticks),
        y=alt.Y("source:N", title="source (traffic, log)", scale=alt.Scale(domain=panels.place("sources")), axis=names),
        color=color,
        tooltip=style.tips(
            ("source:N", "source"), ("step:Q", "step"), ("since_start_ms:Q", "end (ms)", ",.1f"), style.PANEL_RUN
        ),
    )  # fmt: skip

    def values(run_id: str, run: pl.DataFrame) -> dict[str, Any]:
        sources = run["source"].unique(maintain_order=True).to_list()
        subtitle = None if "traffic" in sources else "no structure in the traffic"
        title = style.panel_title(run_id, 430, subtitle)
        return {"sources": sources, "height": style.row_step(len(sources), 18), "title": title}

    return panels.alike_panels(frame.select("run_id", "source", "step", "since_start_ms"), chart, values, 480)


@style.chart("Slack of each worker at the start of communication, by run")
def straggler_slack(frame: pl.DataFrame) -> alt.TopLevelMixin:
    """Mean slack of each worker, and how often it is last, of query straggler_summary; runs without are left out."""
    shown = _in_order(frame.drop_nulls("worker")).select(
        "run_id", "worker", "mean_slack_ms", "share_last", "more_often_than_chance", "p_value", "mean_cost_ms",
        "cost_share", "steps",
    )  # fmt: skip
    base = panels.rows_chart().encode(
        x=alt.X("mean_slack_ms:Q", title="mean slack (ms)"), y=_worker_rows(),
        tooltip=style.tips(
            ("worker:N", "worker"), ("mean_slack_ms:Q", "mean slack (ms)", ".3~g"),
            ("share_last:Q", "last in (share of steps)", ".0%"),
            ("more_often_than_chance:N", "more often than chance"), ("p_value:Q", "p of the run", ".2~g"),
            ("mean_cost_ms:Q", "mean cost when last (ms)", ".3~g"),
            ("cost_share:Q", "cost (share of the run)", ".2~%"), ("steps:Q", "steps"), style.PANEL_RUN,
        ),
    )  # fmt: skip
    bars = base.mark_bar(color=style.DARK, size=13)
    shares = base.mark_text(align="left", dx=4, fontSize=style.FONT_SIZE, color=style.INK)
    shares = shares.encode(text=alt.Text("share_last:Q", format=".0%"))
    layers = alt.layer(bars, shares, title=panels.place("title"), width=340, height=panels.place("height"))
    costs = dict(frame.select("run_id", "run_cost_share").iter_rows())

    def values(run_id: str, run: pl.DataFrame) -> dict[str, Any]:
        subtitle = "at the bars: part of the steps in which it is last"
        if costs[run_id] is not None:
            subtitle += f"; all stragglers: {costs[run_id]:.1%} of the run"
        return {"height": style.row_step(run.height, 18), "title": style.panel_title(run_id, 430, subtitle)}

    return panels.alike_panels(shown, layers, values, 480)


@style.chart("The collectives of a step, by run, job and group of hosts")
def collectives(frame: pl.DataFrame) -> alt.TopLevelMixin:
    """When the collectives of a step are on the wire, of query collectives: a row for each job and group of hosts."""
    count = pl.col("hosts").str.split(",").list.len()
    visible = pl.max_horizontal("end_ms", pl.col("start_ms") + _THINNEST * pl.col("end_ms").max().over("run_id"))
    strip = frame.select(
        "run_id", "kind", "kind_or", "tensor_bytes", "start_ms", "end_ms", "hosts", "algorithm", "confidence",
        "position", drawn_to_ms=visible,
        row=pl.format("{}.{} ({} hosts)", "job", "communicator", count.max().over("run_id", "job", "communicator")),
    )  # fmt: skip
    base = panels.rows_chart(width=350, height=panels.place("height"), title=panels.place("title"))
    chart = base.mark_bar(size=12, opacity=0.75).encode(
        x=alt.X("start_ms:Q", title="time since the start of the step (ms)"), x2="drawn_to_ms:Q",
        # the padding: labels are a fifth wider where an SVG is shown without the fonts that it was measured with
        y=alt.Y(
            "row:N", title="job.group (hosts)", sort=None,
            axis=alt.Axis(ticks=False, grid=True, labelLimit=120, titlePadding=20),
        ),
        color=style.kind_color("kind:N", None, style.COLLECTIVES),
        tooltip=style.tips(
            ("position:Q", "place in the step"), ("kind:N", "collective"), ("kind_or:N", "or"),
            ("tensor_bytes:Q", "size (bytes)", ","), ("algorithm:N", "algorithm"), ("hosts:N", "hosts"),
            ("start_ms:Q", "first packet (ms)", ".3~f"), ("end_ms:Q", "last packet (ms)", ".3~f"),
            ("confidence:Q", "seen", ".0%"), style.PANEL_RUN,
        ),
    )  # fmt: skip

    def values(run_id: str, run: pl.DataFrame) -> dict[str, Any]:
        return {"height": style.row_step(run["row"].n_unique(), 18), "title": style.panel_title(run_id, 430)}

    return panels.alike_panels(strip, chart, values, 480)


def _in_order(frame: pl.DataFrame) -> pl.DataFrame:
    """The rows of each run by its workers in natural order."""
    place = pl.col("worker").cast(pl.Enum(sorted(frame["worker"].unique(), key=natural_order)))
    return frame.select(pl.all().sort_by(place, maintain_order=True).over("run_id"))


def _worker_rows() -> alt.Y:
    return alt.Y("worker:N", title="worker (host)", sort=None, axis=alt.Axis(ticks=False, labelLimit=120))


@style.chart("Computation, communication and their overlap in a step, by run and worker")
def overlap_shares(frame: pl.DataFrame) -> alt.TopLevelMixin:
    """How each worker spends a mean step, of query overlap_summary."""
    keys = ["run_id", "worker", "overlap_share", "measured_by"]
    rows = _in_order(frame)
    parts = rows.unpivot(list(_PARTS), index=keys, variable_name="part", value_name="ms").with_columns(
        pl.col("part").replace(_PARTS),
        place=pl.col("part").replace_strict({name: place for place, name in enumerate(_PARTS)}),
    )
    base = panels.rows_chart(width=340, height=panels.place("height"), title=panels.place("title"))
    chart = base.mark_bar(size=13).encode(
        x=alt.X("ms:Q", title="time of a mean step (ms)", stack="zero"),
        y=_worker_rows(), order=alt.Order("place:Q"),
        color=style.kind_color("part:N", None, dict(zip(_PARTS.values(), _PART_COLORS, strict=True))),
        tooltip=style.tips(
            ("worker:N", "worker"), ("part:N", "part of the step"), ("ms:Q", "mean (ms)", ".3~g"),
            ("overlap_share:Q", "bytes during computation", ".2~%"), ("measured_by:N", "measured by"),
            style.PANEL_RUN,
        ),
    )  # fmt: skip

    def values(run_id: str, run: pl.DataFrame) -> dict[str, Any]:
        height = style.row_step(run["worker"].n_unique(), 18)
        return {"height": height, "title": style.panel_title(run_id, 430)}

    return panels.alike_panels(parts.drop_nulls("ms"), chart, values, 480)


@style.chart("Bus bandwidth of each step, by elapsed time and while moving, by run")
def bus_bandwidth(frame: pl.DataFrame) -> alt.TopLevelMixin:
    """Bus bandwidth of each step by elapsed time and while moving, of query bus_bandwidth: a row a step."""
    names = {"bus_gbit_per_s": "bus", "moving_bus_gbit_per_s": "bus while moving"}
    colors = dict(zip(names.values(), (style.DARK, style.OKABE_ITO[1]), strict=True))
    keys = ["run_id", "step", "algorithm", "measured_by", "exchange_ms", "moving_ms", "algorithm_gbit_per_s"]
    rates = frame.unpivot(list(names), index=keys, variable_name="rate", value_name="gbit_per_s")
    rates = rates.with_columns(pl.col("rate").replace(names)).drop_nulls("gbit_per_s")
    base = panels.rows_chart().encode(
        x=alt.X("step:Q", title="step (number)", axis=alt.Axis(format="d")),
        y=alt.Y("gbit_per_s:Q", title="rate (Gbit/s)", scale=alt.Scale(zero=True)),
        color=style.kind_color("rate:N", None, colors),
        tooltip=style.tips(
            ("rate:N", "rate of"), ("gbit_per_s:Q", "rate (Gbit/s)", ".4~g"),
            ("algorithm_gbit_per_s:Q", "algorithm bandwidth (Gbit/s)", ".4~g"),
            ("exchange_ms:Q", "exchange (ms)", ".4~g"), ("moving_ms:Q", "moving (ms)", ".4~g"),
            ("measured_by:N", "measured by"), ("algorithm:N", "algorithm"), ("step:Q", "step"),
            style.PANEL_RUN,
        ),
    )  # fmt: skip
    layers = (base.mark_line(strokeWidth=1.3), base.mark_point(size=12, filled=True))
    chart = alt.layer(*layers, title=panels.place("title"), width=215, height=110)
    return panels.alike_panels(rates, chart, lambda run_id, _: {"title": style.panel_title(run_id, 240)}, 300)


@style.chart("Throughput of each run over time by pair of hosts, with what is sent again marked")
def run_throughput(frame: pl.DataFrame) -> alt.TopLevelMixin:
    """Throughput over time, of query run_throughput, as Wireshark's IO graph: a range of the lower strip is enlarged.

    A click in the legend leaves one pair. A red mark is a window in which payload was sent again. At first the training
    is enlarged.
    """
    ranges = {run: (start, end) for run, start, end in frame.select("run_id", *_TRAINING).unique().iter_rows()}
    # names of selections are global in a page of several panels
    zoom = alt.selection_interval(
        encodings=["x"],
        name=f"range_{panels.place('number')}",
        value={"x": [panels.place("from"), panels.place("to")]},
        mark=alt.BrushConfig(fill=style.INK, fillOpacity=0.12, stroke="#888"),
    )
    pair = alt.selection_point(fields=["pair"], bind="legend", name=f"pair_{panels.place('number')}")
    base = panels.rows_chart().transform_calculate(until_s="datum.since_start_s + datum.window_s")
    large = alt.layer(*_throughput(base.transform_filter(pair), zoom)).add_params(pair)
    strip = _whole_run(base).add_params(zoom)
    chart = alt.vconcat(
        large.properties(width=_THROUGHPUT_WIDTH, height=190), strip.properties(width=_THROUGHPUT_WIDTH, height=34),
        spacing=panels.CONNECTED, title=panels.place("title"),
    )  # fmt: skip

    def values(run_id: str, run: pl.DataFrame) -> dict[str, Any]:
        start, end = ranges[run_id]
        return {
            "title": style.panel_title(run_id, _THROUGHPUT_WIDTH),
            "window": f"{run['window_s'][0]:g} s from (s)",
            "from": start,
            "to": end,
            "pairs": run.sort("pair_place")["pair"].unique(maintain_order=True).to_list(),
        }

    return panels.alike_panels(frame.drop(_TRAINING), chart, values, panels.PAGE_WIDTH)


_TRAINING = ["training_start_s", "training_end_s"]
_AGAIN = "#c00000"
_THROUGHPUT_WIDTH = 880
_PAIR_COLORS = [*style.OKABE_ITO[:6], "#882255", "#999933", "#999999"]
_BY_SIZE = [alt.SortField("pair_place")]


def _throughput(base: alt.Chart, zoom: alt.Parameter) -> tuple[alt.Chart, alt.Chart]:
    """The pairs' rates, stacked, and the marks of what is sent again, in the range that `zoom` selects."""
    window = panels.place("window")
    time = alt.X(
        "since_start_s:Q", title="time since the run's first packet (s)",
        scale=alt.Scale(domain={"param": zoom.name, "encoding": "x"}, nice=False),
    )  # fmt: skip
    color = alt.Color(
        "pair:N", title=None, scale=alt.Scale(domain=panels.place("pairs"), range=_PAIR_COLORS),
        legend=alt.Legend(orient="top", labelLimit=180, columns=5, symbolType="square"),
    )  # fmt: skip
    stacked = base.transform_stack(["low", "high"], "gbit_per_s", groupby=["since_start_s"], sort=_BY_SIZE)
    rates = stacked.mark_rect(clip=True).encode(
        x=time, x2="until_s:Q", y=alt.Y("low:Q", title="throughput (Gbit/s)", axis=_rates(3)), y2="high:Q", color=color,
        tooltip=style.tips(
            ("pair:N", "pair"), ("since_start_s:Q", window), ("gbit_per_s:Q", "throughput (Gbit/s)", ".3~g"),
            ("packets:Q", "packets", ","), ("wire_bytes:Q", "bytes on the wire", ","),
            ("retransmitted_bytes:Q", "sent again (bytes)", ","),
        ),
    )  # fmt: skip
    sums = base.transform_filter("datum.retransmitted_bytes > 0").transform_aggregate(
        bytes="sum(retransmitted_bytes)", groupby=["since_start_s"]
    )
    again = sums.mark_point(shape="triangle-down", filled=True, size=50, color=_AGAIN, opacity=1, clip=True).encode(
        x=time, y=alt.value(5), tooltip=style.tips(("since_start_s:Q", window), ("bytes:Q", "sent again (bytes)", ","))
    )
    return rates, again


def _whole_run(base: alt.Chart) -> alt.Chart:
    """The strip below: the rate of all pairs, on which a range can be dragged."""
    sums = base.transform_aggregate(gbit_per_s="sum(gbit_per_s)", groupby=["since_start_s", "until_s"])
    strip: alt.Chart = sums.mark_rect(color="#999999").encode(
        x=alt.X("since_start_s:Q", title="the whole run: drag to enlarge a range (s)",
                scale=alt.Scale(nice=False)),
        x2="until_s:Q", y=alt.Y("gbit_per_s:Q", title=None, axis=_rates(1)), y2=alt.datum(0),
        tooltip=style.tips(
            ("since_start_s:Q", panels.place("window")), ("gbit_per_s:Q", "throughput (Gbit/s)", ".3~g")
        ),
    )  # fmt: skip
    return strip


def _rates(ticks: int) -> alt.Axis:
    return alt.Axis(tickCount=ticks, minExtent=34)
