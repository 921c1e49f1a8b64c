"""Figures of zerwas: volume, flows and throughput (figs. 3 to 7), accuracy, batch size and loss (figs. 8 to 10).

Drawing only: queries/ decides what they show. Each function takes the frame of one query and returns a chart.
"""

from __future__ import annotations

import json
from typing import Any

import altair as alt
import polars as pl

from ddnn_traces.report.charts import panels, style
from ddnn_traces.text import counted

_SETTING = alt.Legend(title="framework, backend", orient="top", labelLimit=0, columns=4)


@style.chart("Transmitted volume of each pair of hosts, by run")
def volume_heatmaps(frame: pl.DataFrame) -> alt.TopLevelMixin:
    """Volume of every pair of hosts, of query pair_volume: zerwas fig. 4."""
    shown = frame.select(
        "run_id", "src_host", "src_place", "dst_host", "dst_place", "packets", "wire_bytes", "share_of_run"
    )
    tooltips = ("share_of_run:Q", "share of the run", ".2~%"), ("packets:Q", "packets", ","), style.PANEL_RUN
    return _heatmaps(shown, tooltips)


@style.chart("Transmitted volume of each pair of hosts, averaged, by configuration")
def mean_volume_heatmaps(frame: pl.DataFrame) -> alt.TopLevelMixin:
    """Volume of every pair of hosts, mean of a configuration's runs, of query mean_traffic_matrix: fig. 4."""
    shown = frame.select(
        "src_host", "src_place", "dst_host", "dst_place", "runs", "share_of_volume",
        run_id="configuration", wire_bytes="mean_wire_bytes",
    )  # fmt: skip
    share = ("share_of_volume:Q", "share of the volume", ".2~%")
    return _heatmaps(shown, (share, ("runs:Q", "mean over so many runs"), ("run:N", "configuration")))


def _heatmaps(frame: pl.DataFrame, tooltips: tuple[tuple[str, ...], ...]) -> alt.TopLevelMixin:
    """A panel a run_id with wire_bytes of each pair of hosts, on one logarithmic scale."""
    low, high = style.log_domain(frame["wire_bytes"])
    color = alt.Color(
        "wire_bytes:Q", title="volume (bytes on the wire)",
        scale=alt.Scale(type="log", scheme="yellowgreenblue", domain=[low, high]),
        legend=alt.Legend(
            orient="top", labelExpr=style.BYTES, values=style.log_ticks(low, high), tickCount=100, gradientLength=260,
            titleLimit=0, labelOverlap="greedy", labelSeparation=12,
        ),
    )  # fmt: skip
    hosts_of = {run_id: style.host_order(run) for run_id, run in panels.by_run(frame)}
    most_hosts = max(map(len, hosts_of.values()))
    long_names = any(len(host) > 5 for hosts in hosts_of.values() for host in hosts)
    step = 40 if most_hosts <= 6 else 22 if most_hosts <= 12 else 12
    has_numbers = step == 40  # which do not fit into smaller cells
    is_turned = long_names or step == 12  # then W10 is wider than a cell

    hosts = alt.Scale(domain=panels.place("hosts"))
    base = panels.rows_chart().encode(
        x=alt.X("dst_host:N", title="receiver (host)", scale=hosts, axis=style.host_axis(is_turned, -90)),
        y=alt.Y("src_host:N", title="sender (host)", scale=hosts, axis=style.host_axis(is_turned, 0)),
        tooltip=style.tips(
            ("src_host:N", "sender"), ("dst_host:N", "receiver"), ("wire_bytes:Q", "bytes on the wire", ",.0f"),
            *tooltips,
        ),
    )  # fmt: skip
    layers = [base.mark_rect().encode(color=color)]
    if has_numbers:
        dark_from = (low * high) ** 0.5
        ink = alt.when(alt.datum.wire_bytes > dark_from).then(alt.value("white")).otherwise(alt.value("black"))
        number = alt.Text("wire_bytes:Q", format=".2s")
        layers.append(base.mark_text(fontSize=style.FONT_SIZE).encode(text=number, color=ink))
    view, side = alt.ViewBackground(fill=style.BLANK, stroke="#bbb"), panels.place("side")
    cells = alt.layer(*layers, title=panels.place("title"), width=side, height=side, view=view)

    def values(run_id: str, _: pl.DataFrame) -> dict[str, Any]:
        side = step * len(hosts_of[run_id])
        return {"hosts": hosts_of[run_id], "side": side, "title": style.panel_title(run_id, side + 40)}

    return panels.alike_panels(frame.drop("src_place", "dst_place"), cells, values, step * most_hosts + 44)


@style.chart("Number of large flows, acknowledgement flows and side flows of each run")
def flow_counts(frame: pl.DataFrame) -> alt.TopLevelMixin:
    """Large, acknowledgement and side flows of each run, of query flow_counts: zerwas fig. 5."""
    names = {
        "large_data_flows": "large flows",
        "acknowledgement_flows": "acknowledgement flows",
        "side_flows": "side flows",
    }
    colors = dict(zip(names.values(), (style.DARK, style.OKABE_ITO[4], style.PALE), strict=True))
    bars = frame.unpivot(list(names), index="run_id", variable_name="kind", value_name="count").with_columns(
        place=pl.col("kind").replace_strict({name: place for place, name in enumerate(names)}),
        kind=pl.col("kind").replace(names),
    )
    y = style.run_rows()
    means = style.row_chart(bars).transform_aggregate(count="mean(count)", groupby=["row", "kind", "place"])
    stacked = means.mark_bar(size=13).encode(
        x=alt.X("count:Q", title="flows (number of directed five-tuples)", axis=alt.Axis(tickMinStep=1)),
        y=y, order="place:Q", color=style.kind_color("kind:N", None, colors),
        tooltip=style.tips(style.ROW, ("kind:N", "flows"), ("count:Q", "number, mean", ",.4~r")),
    )  # fmt: skip
    totals = style.row_chart(frame.select("run_id", "flows"))
    points = style.run_points(totals).encode(x="flows:Q", y=y, tooltip=style.tips(style.RUN, ("flows:Q", "flows", ",")))
    numbers = totals.transform_aggregate(
        flows="min(flows)", most="max(flows)", groupby=["row"]
    ).mark_text(align="left", dx=6, fontSize=style.FONT_SIZE, color=style.INK).encode(
        x="most:Q", y=y, text=alt.Text("label:N"), tooltip=style.tips(style.ROW, ("label:N", "flows"))
    ).transform_calculate(label=style.RANGE.format("flows", "most"))  # fmt: skip
    return alt.layer(stacked, points, numbers).properties(width=560, height=style.row_step(frame.height, 18))


@style.chart("Throughput of each flow over time, by run")
def flow_timeline(frame: pl.DataFrame) -> alt.TopLevelMixin:
    """When each flow sends, and how much, of query flow_timeline: zerwas fig. 6."""
    opacity = alt.Opacity(
        "share_of_peak:Q", title="throughput (share of the run's peak)",
        scale=alt.Scale(domain=[0, 1], range=[0.15, 1]),  # what is sent at all stays visible
        legend=alt.Legend(
            orient="top", format=".0%", values=[0, 0.25, 0.5, 0.75, 1], symbolType="square", titleLimit=0
        ),
    )  # fmt: skip
    longest: Any = frame["flow"].str.len_chars().max() or 0
    width = max(200, min(330, 490 - 6 * longest))  # names take about 6 px a letter
    base = panels.rows_chart(width=width, height=panels.place("height"), title=panels.place("title"))
    windows = base.transform_calculate(until_s=f"datum.since_start_s + {panels.place('window_s')}")
    chart = windows.mark_bar(color=style.DARK, height=8).encode(
        x=alt.X("since_start_s:Q", title="time since the run's first packet (s)"),
        x2="until_s:Q",
        y=alt.Y("flow:N", title="flow (host:port → host:port)", scale=alt.Scale(domain=panels.place("flows")),
                axis=style.NAMES_AND_GRID),
        opacity=opacity,
        tooltip=style.tips(
            ("flow:N", "flow"), ("since_start_s:Q", f"{panels.place('window')} s from (s)"),
            ("gbit_per_s:Q", "throughput (Gbit/s)", ".3~g"), ("share_of_peak:Q", "share of the run's peak", ".2~%"),
            style.PANEL_RUN,
        ),
    )  # fmt: skip
    window_of = dict(frame.select("run_id", "window_s").iter_rows())

    def values(run_id: str, run: pl.DataFrame) -> dict[str, Any]:
        window_s = window_of[run_id]
        flows = run["flow"].unique(maintain_order=True).to_list()
        title = style.panel_title(run_id, 400, f"{counted(len(flows), 'flow')}, {window_s:g} s windows")
        return {
            "window_s": window_s, "window": f"{window_s:g}", "flows": flows, "title": title,
            "height": style.row_step(len(flows), 14),
        }  # fmt: skip

    shown = frame.select("run_id", "flow", "since_start_s", "gbit_per_s", "share_of_peak")
    return panels.alike_panels(shown, chart, values, 480)


@style.chart("Throughput of each pair of hosts in the run's busiest stretch")
def pair_throughput(frame: pl.DataFrame) -> alt.TopLevelMixin:
    """Throughput of the pairs of hosts in each run's busiest stretch, of query pair_burst: zerwas fig. 7.

    A pair is a row, not a line: pairs that send at the same time would hide each other.
    """
    header = alt.Header(
        title="sender → receiver (hosts)", labelAngle=0, labelAlign="left", labelOrient="left",
        labelFontSize=style.FONT_SIZE,
        labelPadding=4, labelLimit=130, titleFontSize=style.FONT_SIZE, titleFontWeight="normal", titlePadding=2,
    )  # fmt: skip
    y = alt.Y("gbit_per_s:Q", axis=None, scale=alt.Scale(domain=[0, panels.place("peak")], nice=False))
    excerpt = {name: panels.place(name) for name in ("start", "length_ms", "window_ms", "window")}
    windows = panels.rows_chart(width=225, height=panels.place("height"))
    chart = _rates(windows, excerpt, y, ("pair:N", "pair"), style.PANEL_RUN).facet(
        row=alt.Row("pair:N", sort=panels.place("pairs"), header=header), spacing=2, title=panels.place("title")
    )
    excerpt_of = {run_id: _excerpt(run, "window_ms") for run_id, run in panels.by_run(frame)}

    def values(run_id: str, run: pl.DataFrame) -> dict[str, Any]:
        peak = float(run["gbit_per_s"].max())  # type: ignore[arg-type]
        pairs = run["pair"].unique(maintain_order=True).to_list()
        title = style.panel_title(run_id, 280, f"full height of a row: {peak:.3g} Gbit/s")
        own = {"peak": peak, "pairs": pairs, "height": max(19, 110 // len(pairs)), "title": title}
        return excerpt_of[run_id] | own

    shown = frame.select("run_id", "pair", "since_excerpt_ms", "gbit_per_s")
    return panels.alike_panels(shown, chart, values, 320)


def _excerpt(rows: pl.DataFrame, window: str) -> dict[str, Any]:
    """Start, length and windows of an excerpt, whose length is in the column `window`."""
    first = rows.row(0, named=True)
    window_ms = first[window]
    start, length_ms = f"{first['excerpt_start_ms'] / 1e3:g}", first["excerpt_ms"]
    return {"start": start, "length_ms": length_ms, "window_ms": window_ms, "window": f"{window_ms:g}"}


def _rates(
    windows: alt.Chart, excerpt: dict[str, Any], y: alt.Y, first: tuple[str, ...], *last: tuple[str, ...]
) -> alt.Chart:
    """Throughput in windows over an excerpt. first, last: tooltips around those of the window."""
    windows = windows.transform_calculate(until_ms=f"datum.since_excerpt_ms + {excerpt['window_ms']}")
    rates: alt.Chart = windows.mark_rect(color=style.DARK).encode(
        x=alt.X("since_excerpt_ms:Q", title=f"time since {excerpt['start']} s into the run (ms)",
                scale=alt.Scale(domain=[0, excerpt["length_ms"]], nice=False)),
        x2="until_ms:Q", y=y, y2=alt.datum(0),
        tooltip=style.tips(
            first, ("since_excerpt_ms:Q", f"{excerpt['window']} ms from (ms)"),
            ("gbit_per_s:Q", "throughput (Gbit/s)", ".3~g"), *last,
        ),
    )  # fmt: skip
    return rates


@style.chart("Throughput of one pair of hosts at several batch sizes of otherwise equal runs")
def batch_pair_excerpt(frame: pl.DataFrame) -> alt.TopLevelMixin:
    """Throughput of one pair of hosts at several batch sizes, a panel each, of query batch_pair_excerpt: fig. 9."""

    def panel(rows: pl.DataFrame, peak: float) -> Any:
        first = rows.row(0, named=True)
        windows = style.data_chart(rows.select("run_id", "since_excerpt_ms", "gbit_per_s"))
        y = alt.Y("gbit_per_s:Q", title="throughput (Gbit/s)", scale=alt.Scale(domain=[0, peak]))
        setting = f"{first['model']}, {first['framework_setting']}, {first['pair']}"
        title = alt.Title(f"batch size {first['batch_size']}", subtitle=setting)
        rates = _rates(windows, _excerpt(rows, "sample_ms"), y, style.RUN)
        return rates.properties(width=420, height=110, title=title)

    columns = []
    for _, rows in frame.group_by("comparison", maintain_order=True):
        peak = float(rows["gbit_per_s"].max())  # type: ignore[arg-type]
        of_runs = [panel(run, peak) for _, run in rows.group_by("run_id", maintain_order=True)]
        columns.append(alt.vconcat(*of_runs, spacing=14))
    return alt.concat(*columns, columns=2, spacing={"row": 30, "column": 30})


@style.chart("Transmitted volume of each model and framework by topology, and the model's size where it is known")
def volume_by_model(frame: pl.DataFrame) -> alt.TopLevelMixin:
    """Mean volume of the runs of each model and setting, with the model's size, of query volume_by_model: fig. 3.

    A panel a topology, all on one scale: logarithmic where the values span much, so that a distance is a ratio.
    """
    shown = frame.with_columns(volume_mb=pl.col("mean_wire_bytes") / 1e6)
    scale = style.positive_scale(shown, ["volume_mb", "model_mb"])
    axis = style.positive_axis(scale, labelExpr=style.MEGABYTES)
    settings = shown["framework_setting"].unique().sort().to_list()
    color = alt.Color("framework_setting:N", scale=alt.Scale(domain=settings, range=style.OKABE_ITO), legend=_SETTING)
    models = shown["model"].unique(maintain_order=True).to_list()

    def panel(topology: str, rows: pl.DataFrame) -> Any:
        names = alt.Axis(labelAngle=-30, labelLimit=100)
        base = style.data_chart(rows).encode(
            x=alt.X("model:N", title="model (name)", scale=alt.Scale(domain=models), axis=names),
            tooltip=style.tips(
                ("model:N", "model"), ("setting:N", "setting"),
                ("volume_mb:Q", "transmitted volume (MB, mean)", ",.4~r"), ("runs:Q", "runs"),
                ("pooled:N", "pooled"), ("model_mb:Q", "model size (MB)", ".4~g"),
            ),
        )  # fmt: skip
        volumes = base.mark_point(filled=True, size=46, opacity=1).encode(
            y=alt.Y("volume_mb:Q", title="volume, mean of the runs (bytes on the wire)", scale=scale, axis=axis),
            xOffset=alt.XOffset("setting:N"), color=color,
        )  # fmt: skip
        sizes = base.mark_tick(thickness=2, width=24, color=style.INK, orient="horizontal").encode(y="model_mb:Q")
        title = alt.Title(topology.replace("_", " "), subtitle="bar: model size" if rows["model_mb"].count() else "")
        layers = [sizes, volumes] if rows["model_mb"].count() else [volumes]
        return alt.layer(*layers, title=title).properties(width=max(150, 34 * len(models)), height=190)

    of_topologies = shown.group_by("topology", maintain_order=True)
    panels_of = [panel(topology or "topology unknown", rows) for (topology,), rows in of_topologies]
    panels = alt.concat(*panels_of, columns=3, spacing={"row": 26, "column": 26})
    chart: alt.ConcatChart = panels.resolve_scale(xOffset="independent")
    return chart


@style.chart("Training accuracy against transmitted volume, by model")
def accuracy_volume(frame: pl.DataFrame) -> alt.TopLevelMixin:
    """Accuracy against transmitted volume, one panel a model, of query accuracy_volume: fig. 8."""
    settings = frame["framework_setting"].unique().sort().to_list()
    color = alt.Color("framework_setting:N", scale=alt.Scale(domain=settings, range=style.OKABE_ITO), legend=_SETTING)

    def panel(model: str, rows: pl.DataFrame) -> Any:
        shown = rows.select(
            "run_id", "framework_setting", "step", "epoch", "accuracy", volume_mb=pl.col("wire_bytes") / 1e6
        )
        base = style.data_chart(shown).encode(
            x=alt.X("volume_mb:Q", title="volume transmitted so far (bytes on the wire)",
                    axis=alt.Axis(labelExpr=style.MEGABYTES)),
            y=alt.Y("accuracy:Q", title="training accuracy (share of the samples)", scale=alt.Scale(domain=[0, 1])),
            detail="run_id:N", color=color,
            tooltip=style.tips(
                style.RUN, ("step:Q", "step"), ("epoch:Q", "epoch"), ("accuracy:Q", "accuracy", ".3~f"),
                ("volume_mb:Q", "volume (MB)", ",.4~r"),
            ),
        )  # fmt: skip
        marks = rows.select(mark=pl.concat_list("low_mark", "high_mark")).explode("mark").unique(maintain_order=True)
        dashed = (
            style.data_chart(marks)
            .mark_rule(strokeDash=[5, 4], color=style.INK, strokeWidth=1.2)
            .encode(y="mark:Q", tooltip=style.tips(("mark:Q", "accuracy to reach", ".0%")))
        )
        lines, points = base.mark_line(strokeWidth=1.8).encode(order="step:Q"), base.mark_point(size=14, filled=True)
        layers = alt.layer(lines, points, dashed, title=style.panel_title(model, 400))
        return layers.properties(width=390, height=240)

    models = frame.group_by("model", maintain_order=True)
    of_models = [panel(str(model or "model unknown"), rows) for (model,), rows in models]
    return alt.concat(*of_models, columns=2, spacing={"row": 26, "column": 26})


@style.chart("Training duration against packet loss, normalised to the lossless runs")
def duration_by_loss(frame: pl.DataFrame) -> alt.TopLevelMixin:
    """Duration over that of the lossless runs, against packet loss, of query duration_by_loss: fig. 10.

    Loss is on a logarithmic axis, where 0 is apart at the left. A line goes through the means of the runs of a setting.
    Raises ValueError where no run with loss is compared.
    """
    shown = frame.drop_nulls(["normalised_duration", "loss_pct"]).filter(pl.col("lossy_runs") > 0)
    losses = shown.filter(pl.col("loss_pct") > 0)["loss_pct"].unique().sort().to_list()
    if not losses:
        raise ValueError("no run with loss is compared with lossless ones")
    controls = shown["congestion_control"].n_unique() > 1
    of = ["model", "congestion_control"] if controls else ["model"]
    zero = losses[0] / 4  # where a logarithmic axis has the runs without loss
    keys = ["framework_setting", "model", "batch_size", "topology", "workers", "congestion_control"]
    shown = shown.with_columns(
        trained=pl.concat_str(of, separator=", ", ignore_nulls=True), place=pl.col("loss_pct").replace(0.0, zero),
        setting=pl.struct(keys).rank("dense"),
    )  # fmt: skip
    label = f"datum.value < {losses[0] / 2} ? '0' : format(datum.value, '~r')"
    axis = alt.Axis(values=[zero, *losses], labelExpr=label, labelOverlap="greedy", tickCount=100)
    scale = alt.Scale(type="log", domain=[zero / 1.5, losses[-1] * 1.5], nice=False)
    base = style.data_chart(shown).encode(
        x=alt.X("place:Q", title="packet loss, logarithmic, 0 apart (%)", scale=scale, axis=axis),
        color=style.colors("framework_setting:N", "framework, backend"),
        detail="setting:N",
    )
    title = "training duration (lossless runs of the same setting = 1)"
    points = base.mark_point(size=80, strokeWidth=2).encode(
        y=alt.Y("normalised_duration:Q", title=title, scale=alt.Scale(zero=True)),
        shape=style.shapes("trained:N", "model, congestion control" if controls else "model (name)"),
        tooltip=style.tips(
            style.RUN, ("loss_pct:Q", "packet loss (%)"), ("normalised_duration:Q", "of the lossless duration", ".3~f"),
            ("normalised_by:N", "compared by"), ("duration_s:Q", "duration (s)", ",.4~r"),
            ("duration_source:N", "known from"), ("steps:Q", "steps"), ("lossless_runs:Q", "lossless runs"),
        ),
    )  # fmt: skip
    means = base.mark_line(strokeWidth=1.2, opacity=0.5).encode(
        y="mean(normalised_duration):Q",
        tooltip=style.tips(("mean(normalised_duration):Q", "mean of the lossless duration", ".3~f")),
    )
    lossless = (
        style.data_chart(pl.DataFrame({"one": [1], "meaning": ["lossless runs of the same setting"]}))
        .mark_rule(strokeDash=[5, 4], color=style.INK)
        .encode(y="one:Q", tooltip=alt.Tooltip("meaning:N", title="duration of"))
    )
    return alt.layer(lossless, means, points).properties(width=560, height=320)


@style.chart("Total throughput of each run with its 95% interval within the run")
def throughput_intervals(frame: pl.DataFrame) -> alt.TopLevelMixin:
    """Mean throughput of each run with its 95% interval, of query total_throughput: table I."""
    return _intervals(frame, None)


@style.chart("Throughput of the gradient-carrying flow of each run, mean and peak")
def gradient_flow_intervals(frame: pl.DataFrame) -> alt.TopLevelMixin:
    """Mean with 95% interval and peak of the gradient flow, of query gradient_flow_throughput: table II."""
    return _intervals(frame, "peak_gbit_per_s")


#: In a title where all runs have it: a mean over a capture counts its idle time, too.
_OVER = {"training": " in training", "inferred": " in inferred steps", "capture": " over the whole capture"}


def _shape_of_stretch(over: list[str]) -> alt.Shape:
    """A mark for each stretch that a mean may be over; the same in all charts."""
    shapes = dict(zip(_OVER, style.SHAPES, strict=False))
    legend = alt.Legend(title="mean", labelExpr=f"{json.dumps(_OVER)}[datum.value]")
    return alt.Shape("stretch:N", scale=alt.Scale(domain=over, range=[shapes[name] for name in over]), legend=legend)


def _intervals(frame: pl.DataFrame, peak: str | None) -> alt.TopLevelMixin:
    """A row a run: the mean as a point, the interval as a bar, the peak (a column's name) as a tick."""
    base = style.row_chart(frame).encode(
        y=style.run_rows(style.NAMES_AND_GRID), color=style.colors("framework_setting:N", "framework, backend"),
        tooltip=style.tips(
            style.RUN, ("gbit_per_s:Q", "mean (Gbit/s)", ".4~g"),
            ("low_gbit_per_s:Q", "95% interval within the run from (Gbit/s)", ".4~g"),
            ("high_gbit_per_s:Q", "to (Gbit/s)", ".4~g"),
            *([(f"{peak}:Q", "peak (Gbit/s)", ".4~g")] if peak else []), ("computation:N", "computed"),
            ("samples:Q", "samples"), ("sample_ms:Q", "each (ms)", ".4~g"),
            ("lag1_autocorrelation:Q", "their lag-1 autocorrelation", ".2f"), ("stretch:N", "over"),
        ),
    )  # fmt: skip
    over = [name for name in _OVER if name in set(frame["stretch"])] if "stretch" in frame.columns else []
    where = _OVER[over[0]] if len(over) == 1 else ""
    title = f"mean, 95% interval within the run{' and peak (tick)' if peak else ''} of the throughput{where} (Gbit/s)"
    layers: list[alt.Chart] = []
    if frame["low_gbit_per_s"].count():  # Vega warns of an axis without a number
        low = alt.X("low_gbit_per_s:Q", title=title)
        layers.append(base.mark_rule(strokeWidth=4, opacity=0.45).encode(x=low, x2="high_gbit_per_s:Q"))
    points = base.mark_point(size=55, filled=True, opacity=0.7).encode(x=alt.X("gbit_per_s:Q", title=title))
    layers.append(points.encode(shape=_shape_of_stretch(over)) if len(over) > 1 else points)
    if peak:
        layers.append(base.mark_tick(thickness=2, height=13).encode(x=f"{peak}:Q"))
    return alt.layer(*layers).properties(width=470, height=style.row_step(frame.height, 18))
