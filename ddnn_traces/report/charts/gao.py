"""Figures of gao: simulated runs (figs. 4.7 to 4.11), and a sweep on ns-3 beside background flows (figs. 5.5 to 5.23).

Drawing only: queries/ and queries/sweep/ decide what they show. Functions take frames of queries and return a chart.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import altair as alt
import polars as pl

from ddnn_traces.query import sweep_queries
from ddnn_traces.report.charts import style
from ddnn_traces.report.charts.panels import alike_panels, place, rows_chart
from ddnn_traces.store.whole_files import whole_file, whole_files
from ddnn_traces.text import for_xml

#: Axes that a sweep of the thesis's figures has, and those that it may have beside them.
NEEDED = {"compute_to_network", "flows_per_s", "training_priority"}
_ALLOWED = NEEDED | {"seed"}
BLUE, ORANGE, GREEN, PINK = style.OKABE_ITO[:4]
_PRIORITY = {"same": BLUE, "lower": ORANGE}
#: Colours of all lines of the panels, by what they are of; one legend has them all.
_LINES = {
    "same priority": BLUE, "lower priority": ORANGE, "expected": "#666666", "small flows": GREEN, "large flows": PINK,
}  # fmt: skip
_WIDTH, _HEIGHT = 250, 170
_X = {
    "flows_per_s": "background flows that begin at a host (flows/s)",
    "compute_to_network": "computation over transmission time (ratio)",
    "expected_total_utilization": "expected utilization of the links (share)",
}


def write(out: Path, axes: list[str]) -> list[Path]:
    """Draw the sweep in OUT, which has these axes, into OUT/figures; the files."""
    charts = _of_thesis(out) if set(axes) >= NEEDED and set(axes) <= _ALLOWED else _by_axis(out, axes)
    folder = out / "figures"
    with whole_files(folder) as new:
        for name, (chart, description) in charts.items():
            svg = style.svg(style.with_look(chart, description).to_dict())
            (new / f"{name}.svg").write_text(svg, encoding="utf-8")
    for old in folder.glob("*.svg"):
        if old.stem not in charts:
            old.unlink()
    return [folder / f"{name}.svg" for name in charts]


_Charts = dict[str, tuple[Any, str]]


def _of_thesis(out: Path) -> _Charts:
    results, seeds = sweep_queries.run(out, "sharing_results"), sweep_queries.run(out, "seed_results")
    charts: _Charts = {}
    if results.is_empty():
        return charts
    for fixed, x, name in (
        ("compute_to_network", "flows_per_s", "ratio"), ("flows_per_s", "compute_to_network", "rate"),
    ):  # fmt: skip
        for value in results[fixed].unique().sort():
            rows, dots = results.filter(pl.col(fixed) == value), seeds.filter(pl.col(fixed) == value)
            charts[f"{name}_{value:g}"] = (panels(rows, dots, x), f"Results by {_X[x]}, {fixed} {value:g}")
    for ratio in (0.5, 0.25):
        rows = results.filter((pl.col("background_ratio") / ratio - 1).abs() < 0.01)
        keys = ["compute_to_network", "flows_per_s"]
        dots = seeds.join(rows.select(*keys, "expected_total_utilization").unique(), on=keys)
        if rows.height:
            description = (
                f"Results where the background is {ratio} of the training, by {_X['expected_total_utilization']}"
            )
            charts[f"application_ratio_{ratio:g}"] = (panels(rows, dots, "expected_total_utilization"), description)
    charts["operating_boundary"] = (
        operating_boundary(sweep_queries.run(out, "operating_boundary")),
        "Change of iteration time and of durations of flows, by the expected utilization of the links",
    )
    durations, gains = sweep_queries.run(out, "flow_duration_cdf"), sweep_queries.run(out, "flow_gains")
    periods = sweep_queries.run(out, "all_reduce_periods")
    for value in durations["compute_to_network"].unique().sort():
        is_it = pl.col("compute_to_network") == value
        charts[f"duration_cdf_{value:g}"] = (duration_cdf(durations.filter(is_it)), "Durations of small flows")
        if gains.filter(is_it).height:
            description = "Small flows whose duration the lower priority changes, and when the training exchanges"
            charts[f"gains_{value:g}"] = (flow_gains(gains.filter(is_it), periods.filter(is_it)), description)
    return charts | _progressions(out)


def _progressions(out: Path) -> _Charts:
    """Of the cells of figures 5.20 to 5.23, ratio 4 and 2 with 92 flows/s, where the sweep has them."""
    charts: _Charts = {}
    cells = sweep_queries.run(out, "progression_cells")
    for cell, ratio, rate, priority in cells.iter_rows():
        name = f"progression_{ratio:g}_{rate:g}_{priority}"
        rows = sweep_queries.run(out, "progression", number=cell, receiver=0)
        charts[name] = (
            progression(rows),
            f"Transfers to worker 0 and its computation in the first {_SHOWN_S} s of cell {cell}",
        )
    return charts


def panels(results: pl.DataFrame, seeds: pl.DataFrame, x: str) -> alt.TopLevelMixin:
    """Change of durations, durations, iteration time and utilization against a column of sharing_results.

    A dot is a seed, a line the mean of the seeds. seeds: rows of seed_results, with the column x.
    """
    upper = alt.hconcat(
        _changes(results, seeds, x),
        _pair(results, seeds, x, "iteration_ms", "iteration time (s)", 1e-3),
        spacing=40,
    )
    middle = alt.hconcat(
        _pair(results, seeds, x, "small_mean_ms", "duration of small flows (ms)"),
        _pair(results, seeds, x, "large_mean_ms", "duration of large flows (ms)"),
        spacing=40,
    )
    return alt.vconcat(upper, middle, _utilization(results, x), spacing=24)


def _x(frame: pl.DataFrame, x: str) -> alt.X:
    """A logarithmic axis, as values of a sweep are doubled, with the values as ticks; shares and 0 have another."""
    values = frame[x].unique().sort().to_list()
    if x == "expected_total_utilization":
        return alt.X(f"{x}:Q", title=_X[x], scale=alt.Scale(domain=[0, max(0.8, *values)]))
    if values[0] <= 0:
        return alt.X(f"{x}:Q", title=_X[x], axis=alt.Axis(values=values, grid=False))
    scale = alt.Scale(type="log", domain=[values[0] / 1.2, values[-1] * 1.2], nice=False)
    return alt.X(f"{x}:Q", title=_X[x], scale=scale, axis=alt.Axis(values=values, tickCount=100, grid=False))


def _lines(rows: pl.DataFrame, dots: pl.DataFrame, x: alt.X, y: alt.Y, titles: tuple[str, str]) -> Any:
    """Lines through the means, and a dot for each seed; `what` has the colours of both."""
    color = style.kind_color("what:N", None, _LINES)
    tips = style.tips((x.shorthand, titles[0], ",.4~g"), (y.shorthand, titles[1], ",.4~g"))
    means = style.data_chart(rows).encode(x=x, y=y, color=color, tooltip=tips)
    each = style.data_chart(dots).encode(x=x, y=y, color=color, tooltip=[*tips, alt.Tooltip("seed:N", title="seed")])
    layers = (means.mark_line(), each.mark_point(size=22, filled=True, opacity=0.55))
    return alt.layer(*layers).properties(width=_WIDTH, height=_HEIGHT)


def _changes(results: pl.DataFrame, seeds: pl.DataFrame, x: str) -> Any:
    def of_sizes(frame: pl.DataFrame) -> pl.DataFrame:
        named = frame.with_columns(what=pl.col("measure").str.replace("_mean_ms", " flows"))
        return named.filter(pl.col("what").is_in([*_LINES]), pl.col("change_pct").is_not_null())

    title = "change of the mean duration (%)"
    zero = style.data_chart(pl.DataFrame({"zero": [0]})).mark_rule(color="#888").encode(y="zero:Q")
    y = alt.Y("change_pct:Q", title=title)
    lines = _lines(of_sizes(results), of_sizes(seeds), _x(results, x), y, (_X[x], title))
    return alt.layer(zero, lines).properties(width=_WIDTH, height=_HEIGHT)


def _pair(results: pl.DataFrame, seeds: pl.DataFrame, x: str, measure: str, title: str, factor: float = 1.0) -> Any:
    """A measure at both priorities."""
    rows, dots = (_by_priority(frame.filter(measure=measure), factor) for frame in (results, seeds))
    y = alt.Y("value:Q", title=title, scale=alt.Scale(zero=True))
    return _lines(rows, dots, _x(results, x), y, (_X[x], title))


def _by_priority(frame: pl.DataFrame, factor: float = 1.0) -> pl.DataFrame:
    kept = [name for name in frame.columns if name not in ("same", "lower")]
    long = frame.unpivot(["same", "lower"], index=kept, variable_name="what", value_name="value")
    return long.with_columns(pl.col("value") * factor, pl.col("what") + " priority").drop_nulls("value")


def _utilization(results: pl.DataFrame, x: str) -> Any:
    """Measured utilization by the training and by the background at both priorities, and what is expected."""
    drawn = []
    for measure, expected, name in (
        ("utilization", "expected_utilization", "training"),
        ("background_utilization", "expected_background_utilization", "background"),
    ):
        rows = results.filter(measure=measure)
        line = rows.select(x, pl.lit("expected").alias("what"), pl.col(expected).alias("value"))
        measured = _by_priority(rows).select(x, "what", "value")
        title = f"utilization by the {name} (share)"
        y = alt.Y("value:Q", title=title, scale=alt.Scale(domainMin=0))
        tips = style.tips((f"{x}:Q", _X[x], ",.4~g"), ("what:N", "priority"), ("value:Q", title, ".3f"))
        color = style.kind_color("what:N", None, _LINES)
        base = style.data_chart(pl.concat([line, measured])).encode(x=_x(results, x), y=y, color=color, tooltip=tips)
        dash = alt.condition("datum.what == 'expected'", alt.value([4, 3]), alt.value([1, 0]))
        layers = alt.layer(base.mark_line().encode(strokeDash=dash), base.mark_point(size=22, filled=True))
        drawn.append(layers.properties(width=_WIDTH, height=_HEIGHT))
    return alt.hconcat(*drawn, spacing=40)


def duration_cdf(frame: pl.DataFrame) -> alt.TopLevelMixin:
    """Cumulative distribution of the durations of small flows, a panel a seed, of rows of flow_duration_cdf."""
    scale = style.positive_scale(frame, ["duration_ms"])
    x = alt.X("duration_ms:Q", title="duration (ms)", scale=scale, axis=style.positive_axis(scale))
    y = alt.Y("share:Q", title="share of the small flows (share)", scale=alt.Scale(domain=[0, 1]))
    color = style.kind_color("training_priority:N", "training's priority", _PRIORITY)
    drawn = []
    for seed in frame["seed"].unique().sort():
        rows = frame.filter(seed=seed).select("training_priority", "duration_ms", "share")
        tips = style.tips(("duration_ms:Q", "duration (ms)", ",.4~g"), ("share:Q", "share", ".3f"))
        line = style.data_chart(rows).mark_line(interpolate="step-after").encode(x=x, y=y, color=color, tooltip=tips)
        drawn.append(line.properties(width=_WIDTH - 30, height=_HEIGHT, title=f"seed {seed}"))
    return alt.hconcat(*drawn, spacing=24)


def flow_gains(gains: pl.DataFrame, periods: pl.DataFrame) -> alt.TopLevelMixin:
    """Small flows as lines from their duration at the same priority to that at the lower, over the all-reduces.

    Rows of flow_gains and of all_reduce_periods, a panel a seed.
    """
    x_title, y_title = "time since the simulation began (s)", "duration (ms)"
    scale = style.positive_scale(gains, ["same_ms", "lower_ms"])
    begin, end = float(gains["start_s"].min()), float(gains["start_s"].max())  # type: ignore[arg-type]
    seen = periods.filter(pl.col("training_priority") == "same", pl.col("end_s") >= begin, pl.col("start_s") <= end)
    x = alt.X("start_s:Q", title=x_title, scale=alt.Scale(domain=[begin, end], nice=False, zero=False))
    drawn = []
    for seed in gains["seed"].unique().sort():
        rows = gains.filter(seed=seed).with_columns(
            kind=pl.when(pl.col("gain_ms") < 0).then(pl.lit("longer")).otherwise(pl.lit("shorter"))
        )
        behind = style.data_chart(seen.filter(seed=seed)).mark_rect(color="#dddddd", clip=True)
        behind = behind.encode(
            x=alt.X("start_s:Q", title=x_title), x2="end_s:Q", tooltip=style.tips(("step:Q", "step"))
        )
        y = alt.Y("same_ms:Q", title=y_title, scale=scale, axis=style.positive_axis(scale))
        tips = style.tips(
            ("flow:Q", "flow"), ("start_s:Q", "start (s)", ",.4~g"),
            ("same_ms:Q", "at the same priority (ms)", ",.4~g"), ("lower_ms:Q", "at the lower priority (ms)", ",.4~g"),
        )  # fmt: skip
        color = style.kind_color("kind:N", "at the lower priority", {"shorter": BLUE, "longer": ORANGE})
        base = style.data_chart(rows).encode(x=x, tooltip=tips, color=color)
        lines = base.mark_rule(strokeWidth=1.2).encode(y=y, y2="lower_ms:Q")
        ends = base.mark_point(size=8, filled=True).encode(y=alt.Y("lower_ms:Q", scale=scale))
        panel = alt.layer(behind, lines, ends, title=f"seed {seed}; grey: all-reduces at the same priority")
        drawn.append(panel.properties(width=640, height=150))
    return alt.vconcat(*drawn, spacing=14)


_UNTOLD = "#d4d4d4"
_REGIONS = {"green": "#5ab45a", "yellow": "#f5dd67", "red": "#d7674c", "cannot be told": _UNTOLD}


def operating_boundary(frame: pl.DataFrame) -> alt.TopLevelMixin:
    """Three maps of the changes by expected utilization, of rows of operating_boundary.

    A cell has its number and, below it, how far its 95% interval reaches to each side.
    """
    percent = [(pl.col(name) * 100).round(2) for name in ("expected_utilization", "expected_background_utilization")]
    rows = frame.with_columns(percent)
    x = alt.X(
        "expected_background_utilization:O", title="background's utilization, expected (%)", axis=alt.Axis(labelAngle=0)
    )
    y = alt.Y("expected_utilization:O", title="training's utilization, expected (%)", sort="descending")
    regions = alt.Scale(domain=[*_REGIONS], range=[*_REGIONS.values()])
    said = (
        "{green: 'green: below 1%', yellow: 'yellow: 1% to 30%', red: 'red: above 30% longer'}[datum.label]"
        " || 'grey: cannot be told'"
    )
    legend = alt.Legend(orient="bottom", direction="vertical", title="95% interval", labelExpr=said)
    maps = [
        ("iteration", "iteration time, change (%)", alt.Color("region:N", scale=regions, legend=legend)),
        ("small", "duration of small flows, change (%)", _greens("small", rows)),
        ("large", "duration of large flows, change (%)", _greens("large", rows)),
    ]
    drawn = []
    for name, title, color in maps:
        there = rows.filter(pl.col(f"{name}_change_pct").is_not_null())
        there = there.with_columns(reach=(pl.col(f"{name}_high_pct") - pl.col(f"{name}_low_pct")) / 2)
        tips = style.tips(
            ("compute_to_network:Q", "computation over transmission (ratio)"), ("flows_per_s:Q", "flows/s"),
            (f"{name}_change_pct:Q", title, ",.2f"), ("reach:Q", "half of the 95% interval (%)", ",.2f"),
            ("seeds:Q", "seeds with iterations"),
        )  # fmt: skip
        base = style.data_chart(there).encode(x=x, y=y, tooltip=tips)
        layers = [base.mark_rect().encode(color=color)]
        layers.append(
            base.mark_text(fontSize=style.FONT_SIZE, dy=-7).encode(text=alt.Text(f"{name}_change_pct:Q", format="+.1f"))
        )
        half = base.transform_filter("datum.reach !== null").transform_calculate(
            half="'± ' + format(datum.reach, '.1f')"
        )
        layers.append(half.mark_text(fontSize=style.FONT_SIZE, dy=7).encode(text="half:N"))
        drawn.append(alt.layer(*layers, title=title).properties(width=220, height=190))
    maps_together: alt.TopLevelMixin = alt.hconcat(*drawn, spacing=30).resolve_scale(color="independent")
    return maps_together


def _greens(name: str, rows: pl.DataFrame) -> Any:
    """Darker where the change is more of a gain; grey where the interval holds 0 or is lacking."""
    best = rows[f"{name}_change_pct"].min()
    low = min(float(best), -1.0) if isinstance(best, float) else -1.0
    scale = alt.Scale(domain=[low, 0], range=["#41ab5d", "#ffffff"], interpolate="rgb", clamp=True)
    color = alt.Color(f"{name}_change_pct:Q", scale=scale, legend=None)
    is_told = f"datum.{name}_low_pct !== null && datum.{name}_low_pct * datum.{name}_high_pct > 0"
    return alt.condition(is_told, color, alt.value(_UNTOLD))


#: Seconds of a run that its progression shows: of 12 s the file would have several MB.
_SHOWN_S = 3


def progression(frame: pl.DataFrame) -> alt.TopLevelMixin:
    """Transfers of partitions and passes of layers over time, the layer on the y axis, of rows of progression."""
    begin = pl.col("start_ms").min()
    frame = frame.filter(pl.col("start_ms") < begin + _SHOWN_S * 1e3)
    colors = {"transfer": ORANGE, "forward": GREEN, "backward": BLUE}
    rows = frame.select(
        "kind",
        "step",
        "layer",
        start_s=pl.col("start_ms") / 1e3,
        end_s=(pl.col("start_ms") + pl.col("duration_ms")) / 1e3,
    )
    base = style.data_chart(rows).encode(
        x=alt.X("start_s:Q", title="time since the simulation began (s)"),
        x2="end_s:Q",
        y=alt.Y("layer:Q", title="layer (number from the input on)", scale=alt.Scale(nice=False)),
        color=style.kind_color("kind:N", None, colors),
        tooltip=style.tips(
            ("kind:N", "what"), ("step:Q", "step"), ("layer:Q", "layer"), ("start_s:Q", "start (s)", ",.4f")
        ),
    )
    drawn: alt.TopLevelMixin = base.mark_rule(strokeWidth=2).properties(width=760, height=260)
    return drawn


_MEASURES = {
    "iteration_ms": "iteration time (ms)",
    "small_mean_ms": "small flows, mean (ms)",
    "small_p99_ms": "small flows, 99th percentile (ms)",
    "large_mean_ms": "large flows, mean (ms)",
    "stream_p99_ms": "stream, 99th percentile of delay (ms)",
    "stream_jitter_ms": "stream, jitter (ms)",
}


def _by_axis(out: Path, axes: list[str]) -> _Charts:
    cells = pl.read_parquet(out / "cells.parquet")
    measures = [name for name in _MEASURES if name in cells.columns and cells[name].count()]
    if not measures:
        return {}
    return {"by_axis": (by_axis(cells, axes, measures), "Iteration time and durations of flows of each cell")}


def by_axis(cells: pl.DataFrame, axes: list[str], measures: list[str]) -> alt.TopLevelMixin:
    """Measures of each cell of any sweep; a row for its values on the axes, whose names are the title.

    Seeds are dots of a row, with a line at their mean.
    """
    axes = [name for name in axes if name != "seed"] or axes
    words = [pl.col(name).cast(pl.String).str.strip_suffix(".0") for name in axes]
    rows = cells.select(pl.concat_str(words, separator=", ").map_elements(for_xml, pl.String).alias("label"), *measures)
    labels = rows["label"].unique(maintain_order=True).to_list()
    drawn = []
    for i, name in enumerate(measures):
        axis = style.NAMES_AND_GRID if i == 0 else None
        scale = alt.Scale(domain=labels)  # the same rows in each panel, measured or not
        y = alt.Y("label:N", title=None, sort=None, axis=axis, scale=scale)
        x = alt.X(f"{name}:Q", title=_MEASURES[name], scale=alt.Scale(zero=True))
        tips = style.tips(("label:N", "cell"), (f"{name}:Q", _MEASURES[name], ",.4~g"))
        chart = style.data_chart(rows)
        points = chart.mark_point(size=30, filled=True, color=BLUE).encode(x=x, y=y, tooltip=tips)
        if len(labels) < len(rows):
            points += chart.mark_tick(color=BLUE, thickness=2).encode(x=x.aggregate("mean"), y=y)
        drawn.append(points.properties(width=170, height=style.row_step(len(labels), 15)))
    return alt.hconcat(*drawn, spacing=16, title=f"by {', '.join(axes)}")


# --- simulated runs

_MOST_TICKS = 8
_DASHES = [[1, 0], [8, 4], [2, 3], [8, 3, 2, 3]]
_PARAMETERS = {
    "bandwidth_mbit": "rate of each link (Mbit/s)", "server_mbit": "rate of the server's link (Mbit/s)",
    "delay_ms": "propagation delay (ms)", "workers": "workers (number)", "model_bytes": "model (bytes)",
}  # fmt: skip
_REMAINING = ("aggregation_remaining_ms", "distribution_remaining_ms")


def write_sweep(out: Path) -> list[Path]:
    """Draw what measures_by_axis has of the sweep in OUT: iteration time, and what is left to send; the files."""
    rows = sweep_queries.run(out, "measures_by_axis")
    iterations = rows.filter(measure="iteration_ms").rename({"ms": "iteration_ms"})
    remaining = rows.filter(pl.col("measure").is_in(_REMAINING))
    written = []
    for draw, drawn in ((iteration_time, iterations), (remaining_time, remaining)):
        file = out / f"{draw.__name__}.svg"
        if drawn.is_empty():
            file.unlink(missing_ok=True)  # of a sweep before this one
            continue
        written.append(_written(draw(drawn), file))
    return written


def _written(chart: alt.TopLevelMixin, file: Path) -> Path:
    with whole_file(file) as half_written:
        half_written.write_text(style.svg(chart.to_dict()), encoding="utf-8")
    return file


@style.chart("Iteration time of simulated runs against a parameter, a line for each combination of the others")
def iteration_time(frame: pl.DataFrame) -> alt.TopLevelMixin:
    """Iteration time against `value` of the `parameter` of a sweep, a line a `series`: gao fig. 4.7, chang fig. 1.

    Where the frame has a column panel, each of its values has a panel.
    """
    name = str(frame["parameter"][0])
    drawn = [
        _job_lines(rows.rename({"iteration_ms": "ms"}), _PARAMETERS.get(name, name), "iteration time (ms)", title)
        for title, rows in _by_panel(frame)
    ]
    charts: alt.TopLevelMixin = alt.vconcat(*drawn) if len(drawn) > 1 else drawn[0]
    return charts


@style.chart(
    "What simulated runs have left to send when a phase's computation has ended, against a parameter of a sweep"
)
def remaining_time(frame: pl.DataFrame) -> alt.TopLevelMixin:
    """What is left to send in each phase against `value` of the `parameter`, a line a `series`: chang fig. 2.

    A row of panels is a `panel` of the frame, where it has them; its two phases have one scale.
    """
    name = str(frame["parameter"][0])
    x_title = _PARAMETERS.get(name, name)
    rows_of_panels = []
    for title, rows in _by_panel(frame):
        most = float(rows["ms"].max())  # type: ignore[arg-type]
        phases = [
            _job_lines(rows.filter(measure=measure), x_title, "left to send (ms)", _phase(title, measure), most, 300)
            for measure in _REMAINING
        ]
        rows_of_panels.append(alt.hconcat(*phases))
    return alt.vconcat(*rows_of_panels)


def _phase(title: str, measure: str) -> str:
    phase = measure.removesuffix("_remaining_ms")
    return f"{title}, {phase}" if title else phase


def _by_panel(frame: pl.DataFrame) -> list[tuple[str, pl.DataFrame]]:
    """The rows of each panel with its title, in the order of the frame; of a frame without panels all."""
    if "panel" not in frame.columns or not frame["panel"].count():
        return [("", frame)]
    return [(str(title), rows) for (title,), rows in frame.group_by(["panel"], maintain_order=True)]


def _job_lines(
    frame: pl.DataFrame, x_title: str, y_title: str, title: str = "", most: float | None = None, width: int = 560
) -> Any:
    """Lines of ms against value. Of lines that lie on one another, the later ones have gaps. most: ms of the scale."""
    scale = style.positive_scale(frame, ["value"])
    series = frame["series"].unique(maintain_order=True).to_list()
    legend = alt.Legend(
        labelLimit=500, orient="bottom", columns=1, symbolType="stroke", symbolSize=500, symbolStrokeWidth=2
    )
    values = frame["value"].unique().sort().to_list()
    axis = (
        alt.Axis(values=values, tickCount=100, labelOverlap="greedy")
        if len(values) <= _MOST_TICKS
        else style.positive_axis(scale)
    )
    dashes = [_DASHES[i % len(_DASHES)] for i in range(len(series))]
    base = style.data_chart(frame.select("series", "value", "ms")).encode(
        x=alt.X("value:Q", title=x_title, scale=scale, axis=axis),
        y=alt.Y(
            "ms:Q", title=y_title, scale=alt.Scale(zero=True) if most is None else alt.Scale(domain=[0, most * 1.05])
        ),
        color=alt.Color("series:N", title="job", scale=alt.Scale(domain=series, range=style.OKABE_ITO), legend=legend),
        tooltip=style.tips(("series:N", "job"), ("value:Q", x_title, ",.6~g"), ("ms:Q", y_title, ",.1f")),
    )
    gaps = alt.StrokeDash("series:N", title="job", scale=alt.Scale(domain=series, range=dashes), legend=legend)
    lines = base.mark_line(opacity=0.8).encode(strokeDash=gaps)
    layers: Any = (lines + base.mark_point(size=30, filled=True)).properties(width=width, height=300 * width // 560)
    return layers.properties(title=title) if title else layers


_PASSES = {"loading": PINK, "forward": BLUE, "backward": ORANGE}


def write_profile(out: Path) -> Path:
    """Draw the profile in OUT into OUT/profile.svg; the file."""
    return _written(profile_layers(sweep_queries.run(out, "layer_computation")), out / "profile.svg")


@style.chart("Forward time and gradients of each layer, computation in the order of an iteration, and its stages")
def profile_layers(frame: pl.DataFrame) -> alt.TopLevelMixin:
    """The layers of a profile, of rows of layer_computation: gao figs. 3.4 (above), 3.6, 3.7, 3.5 (below)."""
    rows = frame.with_columns(gradient_mb=pl.col("gradient_bytes") / 1e6)
    forward, computed = rows.filter(pl.col("pass") == "forward"), rows.filter(pl.col("pass") != "loading")
    colors = {name: color for name, color in _PASSES.items() if name in rows["pass"]}
    color = style.kind_color("pass:N", None, colors)
    layer = alt.X("layer:Q", title="layer (number from the input on)", scale=alt.Scale(nice=False))
    place = alt.X("place:Q", title="place in the iteration (number)", scale=alt.Scale(nice=False))
    stages = style.data_chart(rows).transform_aggregate(ms="sum(ms)", groupby=["pass"])
    bars = stages.mark_bar(height=14).encode(
        x=alt.X("ms:Q", title="duration in an iteration (ms)"),
        y=alt.Y("pass:N", title=None, sort=[*_PASSES]),
        color=color,
        tooltip=style.tips(("pass:N", "stage"), ("ms:Q", "duration (ms)", ",.1f")),
    )
    drawn: alt.TopLevelMixin = alt.vconcat(
        alt.hconcat(
            _of_layers(forward, layer, "ms", "forward time (ms)", alt.value(BLUE)),
            _of_layers(forward, layer, "gradient_mb", "gradients (MB)", alt.value(GREEN)),
        ),
        alt.hconcat(
            _of_layers(computed, place, "ms", "computation (ms)", color),
            _of_layers(computed, layer, "so_far_ms", "computation so far (ms)", color),
        ),
        bars.properties(width=2 * _WIDTH + 70),
    )
    return drawn


def _of_layers(rows: pl.DataFrame, x: alt.X, y: str, title: str, color: Any) -> Any:
    tips = style.tips(("name:N", "layer"), ("pass:N", "pass"), (f"{y}:Q", title, ",.4~g"))
    line = style.data_chart(rows).mark_line(strokeWidth=1.2)
    drawn = line.encode(x=x, y=alt.Y(f"{y}:Q", title=title), color=color, tooltip=tips)
    return drawn.properties(width=_WIDTH, height=_HEIGHT)


@style.chart("Step time of simulated runs by rate of the links, a line for each job and each order of exchanges")
def simulated_step_time(frame: pl.DataFrame) -> alt.TopLevelMixin:
    """Step time against the rate of the links, a line a job and variant, of query link_utilization: gao fig. 4.7."""
    job = pl.concat_str("model", pl.lit(", "), "topology", pl.lit(" of "), "workers")
    series = pl.concat_str(job, pl.lit(", "), pl.col("variant").fill_null(""))
    rows = frame.select(series=series, value=pl.col("bandwidth_mbit"), ms=pl.col("step_ms"))
    drawn: alt.TopLevelMixin = _job_lines(rows, _PARAMETERS["bandwidth_mbit"], "step time (ms)")
    return drawn


@style.chart("Computation and exchange of each layer in one step of a simulated run, and when its gradients are needed")
def layer_timeline(frame: pl.DataFrame) -> alt.TopLevelMixin:
    """Exchange of each layer's gradients (bar), when they are needed (orange) and computed, of rows of layer_slack.

    The rows are of one worker and step of each run: gao figs. 4.8 to 4.11, with a row a layer. The slack of a layer is
    the space between its bar and its orange mark.
    """
    x = alt.X("exchange_start_ms:Q", title="time since the step began (ms)")
    y = alt.Y("layer:Q", title="layer (number from the input on)", scale=alt.Scale(reverse=True, nice=False))
    base = rows_chart().encode(
        y=y,
        tooltip=style.tips(
            ("name:N", "layer"), ("gradient_bytes:Q", "bytes", ","), ("computed_ms:Q", "computed (ms)", ",.1f"),
            ("exchange_start_ms:Q", "exchange from (ms)", ",.1f"), ("exchange_end_ms:Q", "to (ms)", ",.1f"),
            ("needed_ms:Q", "needed (ms)", ",.1f"), ("slack_ms:Q", "slack (ms)", ",.1f"),
        ),
    )  # fmt: skip
    layers = [
        base.mark_rule(strokeWidth=2.4, color=style.OKABE_ITO[0]).encode(x=x, x2="exchange_end_ms:Q"),
        base.mark_tick(orient="vertical", thickness=2, color="#D55E00", size=5).encode(x="needed_ms:Q"),
        base.mark_tick(orient="vertical", thickness=1, color="#666", size=4).encode(x="computed_ms:Q"),
    ]
    chart = alt.layer(*layers, title=place("title"), width=410, height=230)
    return alike_panels(frame, chart, lambda run_id, _: {"title": run_id}, 470)
