"""The figures: drawing only, what they show is decided in queries/.

Each function takes the frame of one query and returns a chart. Small multiples are one panel a run. Colours are from
scales that colour-blind readers and black-and-white printers can tell apart (Okabe and Ito; ColorBrewer's YlGnBu).
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable
from typing import Any

import altair as alt
import polars as pl
import polars.selectors as cs

PAGE_WIDTH = 980  # px that a row of panels may take
DARK, PALE, INK = "#0b5394", "#a6c8e4", "#222222"
OKABE_ITO = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#F0E442"]
SHAPES = ["circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-left", "triangle-right"]
_FITTED = alt.Title("Marks: measured; black lines: fitted values of the same runs", fontWeight="normal")
_MEASURED = alt.Title("Marks: measured; nothing is fitted", fontWeight="normal")
FONT = "Arial, Liberation Sans, Helvetica, sans-serif"


def volume_heatmaps(frame: pl.DataFrame) -> alt.TopLevelMixin:
    """Volume of every pair of hosts, of query pair_volume: zerwas fig. 4."""
    low, high = _span(frame["wire_bytes"])
    color = alt.Color(
        "wire_bytes:Q",
        title="transmitted volume (bytes on the wire; white: nothing)",
        scale=alt.Scale(type="log", scheme="yellowgreenblue", domain=[low, high]),
        legend=alt.Legend(
            orient="top", format="~s", gradientLength=360, titleLimit=0, labelOverlap="greedy", labelSeparation=12
        ),
    )
    most_hosts = max(len(_hosts(run)) for _, run in _runs(frame))
    step = 40 if most_hosts <= 6 else 12

    def panel(run_id: str, run: pl.DataFrame) -> Any:
        hosts = _hosts(run)
        shown = run.select("src_host", "dst_host", "packets", "wire_bytes", "share_of_run")
        base = _run_chart(run_id, shown).encode(
            x=alt.X("dst_host:N", title="receiver (host)", scale=alt.Scale(domain=hosts), axis=_host_axis(hosts, -90)),
            y=alt.Y("src_host:N", title="sender (host)", scale=alt.Scale(domain=hosts), axis=_host_axis(hosts, 0)),
            tooltip=[
                alt.Tooltip("src_host:N", title="sender"),
                alt.Tooltip("dst_host:N", title="receiver"),
                alt.Tooltip("wire_bytes:Q", title="bytes on the wire", format=","),
                alt.Tooltip("share_of_run:Q", title="share of the run", format=".2~%"),
                alt.Tooltip("packets:Q", title="packets", format=","),
                alt.Tooltip("run:N", title="run"),
            ],
        )
        layers = [base.mark_rect().encode(color=color)]
        if len(hosts) <= 6:
            dark_from = (low * high) ** 0.5
            ink = alt.when(alt.datum.wire_bytes > dark_from).then(alt.value("white")).otherwise(alt.value("black"))
            layers.append(base.mark_text(fontSize=10).encode(text=alt.Text("wire_bytes:Q", format=".2s"), color=ink))
        return alt.layer(*layers, title=_title(run_id, step * len(hosts) + 40)).properties(
            width=step * len(hosts), height=step * len(hosts)
        )

    return _panels(frame, panel, step * most_hosts + 44, "Transmitted volume of each pair of hosts, by run")


def flow_counts(frame: pl.DataFrame) -> alt.TopLevelMixin:
    """All flows and large flows of each run, of query flow_counts: zerwas fig. 5."""
    names = {"flows": "all flows", "large_flows": "large flows (99% of the wire bytes together)"}
    # in this order the bar of the large flows is drawn over that of all flows
    bars = frame.unpivot(list(names), index="run_id", variable_name="kind", value_name="count").with_columns(
        pl.col("kind").replace(names)
    )
    base = _chart(bars).encode(
        x=alt.X("count:Q", stack=None, title="flows (number of directed five-tuples)", axis=alt.Axis(tickMinStep=1)),
        y=alt.Y("run_id:N", title="run (name)", sort=None, axis=alt.Axis(labelLimit=330, ticks=False)),
        tooltip=[
            alt.Tooltip("run_id:N", title="run"),
            alt.Tooltip("kind:N", title="flows"),
            alt.Tooltip("count:Q", title="number", format=","),
        ],
    )
    color = alt.Color(
        "kind:N",
        scale=alt.Scale(domain=list(names.values()), range=[PALE, DARK]),
        legend=alt.Legend(title=None, orient="top", labelLimit=0),
    )
    return _finished(
        alt.layer(
            base.mark_bar(size=13).encode(color=color),
            base.mark_text(align="left", dx=4, fontSize=10).encode(text=alt.Text("count:Q", format=",")),
        ).properties(width=560, height=_rows(frame.height, 18)),
        "Number of flows and of large flows of each run",
    )


def flow_timeline(frame: pl.DataFrame) -> alt.TopLevelMixin:
    """When each flow sends, and how much, of query flow_timeline: zerwas fig. 6."""
    opacity = alt.Opacity(
        "share_of_peak:Q",
        title="throughput in the window (share of the run's busiest flow and window)",
        # what is sent at all stays visible
        scale=alt.Scale(domain=[0, 1], range=[0.15, 1]),
        legend=alt.Legend(
            orient="top", format=".0%", values=[0, 0.25, 0.5, 0.75, 1], titleLimit=0, symbolType="square"
        ),
    )

    def panel(run_id: str, run: pl.DataFrame) -> Any:
        window_s = run["window_s"][0]
        flows = run["flow"].unique(maintain_order=True).to_list()
        shown = run.select("flow", "since_start_s", "gbit_per_s", "share_of_peak")
        return (
            _run_chart(run_id, shown)
            .transform_calculate(until_s=f"datum.since_start_s + {window_s}")
            .mark_bar(color=DARK, height=8)
            .encode(
                x=alt.X("since_start_s:Q", title="time since the run's first packet (s)", axis=alt.Axis(tickCount=6)),
                x2="until_s:Q",
                y=alt.Y(
                    "flow:N",
                    title="flow (host:port → host:port)",
                    scale=alt.Scale(domain=flows),
                    axis=alt.Axis(labelFontSize=9, labelLimit=150, ticks=False, titlePadding=6, grid=True),
                ),
                opacity=opacity,
                tooltip=[
                    alt.Tooltip("flow:N", title="flow"),
                    alt.Tooltip("since_start_s:Q", title=f"{window_s:g} s from (s)"),
                    alt.Tooltip("gbit_per_s:Q", title="throughput (Gbit/s)", format=".3~g"),
                    alt.Tooltip("share_of_peak:Q", title="share of the run's peak", format=".2~%"),
                    alt.Tooltip("run:N", title="run"),
                ],
            )
            .properties(
                width=330,
                height=_rows(len(flows), 11),
                title=_title(run_id, 400, f"{len(flows)} flows, {window_s:g} s windows"),
            )
        )

    return _panels(frame, panel, 480, "Throughput of each flow over time, by run")


def pair_throughput(frame: pl.DataFrame) -> alt.TopLevelMixin:
    """Throughput of the pairs of hosts in each run's busiest stretch, of query pair_burst: zerwas fig. 7.

    A pair is a row, not a line: pairs that send at the same time would hide each other.
    """

    def panel(run_id: str, run: pl.DataFrame) -> Any:
        window_ms, start_ms, length_ms = (run[name][0] for name in ("window_ms", "excerpt_start_ms", "excerpt_ms"))
        peak = float(run["gbit_per_s"].max())  # type: ignore[arg-type]
        pairs = run["pair"].unique(maintain_order=True).to_list()
        return (
            _run_chart(run_id, run.select("pair", "since_excerpt_ms", "gbit_per_s"))
            .transform_calculate(until_ms=f"datum.since_excerpt_ms + {window_ms}")
            .mark_rect(color=DARK)
            .encode(
                x=alt.X(
                    "since_excerpt_ms:Q",
                    title=f"time since {start_ms / 1e3:g} s into the run (ms)",
                    scale=alt.Scale(domain=[0, length_ms], nice=False),
                    axis=alt.Axis(tickCount=5),
                ),
                x2="until_ms:Q",
                y=alt.Y("gbit_per_s:Q", axis=None, scale=alt.Scale(domain=[0, peak], nice=False)),
                y2=alt.datum(0),
                tooltip=[
                    alt.Tooltip("pair:N", title="pair"),
                    alt.Tooltip("since_excerpt_ms:Q", title=f"{window_ms:g} ms from (ms)"),
                    alt.Tooltip("gbit_per_s:Q", title="throughput (Gbit/s)", format=".3~g"),
                    alt.Tooltip("run:N", title="run"),
                ],
            )
            .properties(width=225, height=max(19, 110 // len(pairs)))
            .facet(
                row=alt.Row(
                    "pair:N",
                    sort=pairs,
                    header=alt.Header(
                        title="sender → receiver (hosts)",
                        labelAngle=0,
                        labelAlign="left",
                        labelOrient="left",
                        labelFontSize=10,
                        labelPadding=4,
                        labelLimit=130,
                        titleFontSize=11,
                        titleFontWeight="normal",
                        titlePadding=2,
                    ),
                ),
                spacing=2,
                title=_title(run_id, 280, f"full height of a row: {peak:.3g} Gbit/s"),
            )
        )

    return _panels(frame, panel, 320, "Throughput of each pair of hosts in the run's busiest stretch")


def step_volume_fit(frame: pl.DataFrame) -> alt.TopLevelMixin:
    """Volume of a step against model size: what was measured, and the regression's fitted value of the same run.

    frame: run_id, step_bytes, model_size, fitted (null: nothing is fitted), framework_backend, batch_size, topology.
    """
    shown = frame.select(
        "run_id", "framework_backend", "batch_size", "topology",
        model_mb=pl.col("model_size") / 1e6, step_mb=pl.col("step_bytes") / 1e6, fitted_mb=pl.col("fitted") / 1e6,
    )  # fmt: skip
    base = _chart(shown).encode(
        x=alt.X("model_mb:Q", title="model size (MB)", scale=_positive_scale(shown, ["model_mb"])),
        tooltip=[
            alt.Tooltip("run_id:N", title="run"),
            alt.Tooltip("model_mb:Q", title="model size (MB)", format=".4~g"),
            alt.Tooltip("step_mb:Q", title="volume of a step (MB)", format=".4~g"),
            alt.Tooltip("fitted_mb:Q", title="fitted (MB)", format=".4~g"),
            alt.Tooltip("framework_backend:N", title="framework and backend"),
            alt.Tooltip("topology:N", title="topology"),
            alt.Tooltip("batch_size:Q", title="batch size (samples)"),
        ],
    )
    y = (
        alt.Y("step_mb:Q")
        .title("volume of a step (MB on the wire)")
        .scale(_positive_scale(shown, ["step_mb", "fitted_mb"]))
    )
    fitted = base.mark_tick(color=INK, thickness=1.5, width=26, orient="horizontal").encode(y="fitted_mb:Q")
    measured = base.mark_point(size=90, strokeWidth=2.2).encode(
        y=y,
        color=alt.Color("framework_backend:N", title="framework and backend", scale=alt.Scale(range=OKABE_ITO)),
        shape=alt.Shape("topology:N", title="topology (declared)", scale=alt.Scale(range=SHAPES)),
    )
    return _finished(
        alt.layer(fitted, measured, title=_marks(shown)).properties(width=620, height=360),
        "Volume of a step against model size, with the fit",
    )


def step_volume_runs(frame: pl.DataFrame) -> alt.TopLevelMixin:
    """Volume of a step as a multiple of the model's size, by run, with the fitted value. frame: as step_volume_fit."""
    shown = frame.select(
        "run_id", "framework_backend",
        measured=pl.col("step_bytes") / pl.col("model_size"), fitted=pl.col("fitted") / pl.col("model_size"),
    )  # fmt: skip
    base = _chart(shown).encode(
        y=alt.Y("run_id:N", title="run (name)", sort=None, axis=alt.Axis(labelLimit=330, ticks=False, grid=True)),
        tooltip=[
            alt.Tooltip("run_id:N", title="run"),
            alt.Tooltip("measured:Q", title="measured (MB per MB)", format=".4~g"),
            alt.Tooltip("fitted:Q", title="fitted (MB per MB)", format=".4~g"),
        ],
    )
    fitted = base.mark_tick(color=INK, thickness=1.5, height=15, orient="vertical").encode(x="fitted:Q")
    measured = base.mark_point(size=60, strokeWidth=2.2).encode(
        x=alt.X("measured:Q", title="volume of a step for each MB of model (MB on the wire per MB)"),
        color=alt.Color("framework_backend:N", title="framework and backend", scale=alt.Scale(range=OKABE_ITO)),
    )
    return _finished(
        alt.layer(fitted, measured, title=_marks(shown)).properties(width=430, height=_rows(frame.height, 18)),
        "Volume of a step for each MB of model, by run, with the fit",
    )


def _marks(frame: pl.DataFrame) -> alt.Title:
    """What the marks of a chart with fitted values are."""
    fitted = any("fitted" in name and frame[name].count() for name in frame.columns)
    return _FITTED if fitted else _MEASURED


def _chart(frame: pl.DataFrame) -> alt.Chart:
    """A chart of the frame's rows. Seven digits are more than a reader sees, and keep the page small."""
    no_json = [float("nan"), float("inf"), float("-inf")]
    rows = frame.with_columns(cs.float().round_sig_figs(7).replace(no_json, None))
    return alt.Chart(alt.InlineData(rows.to_dicts()))


def _run_chart(run_id: str, run: pl.DataFrame) -> alt.Chart:
    """As _chart, of one run, with its name as `run` in every row."""
    # a JSON string is a string of Vega's expression language too, so that no name can be read as code
    return _chart(run).transform_calculate(run=json.dumps(run_id))


def _runs(frame: pl.DataFrame) -> list[tuple[str, pl.DataFrame]]:
    return [(str(run_id), run) for (run_id,), run in frame.group_by("run_id", maintain_order=True)]


def _panels(
    frame: pl.DataFrame, panel: Callable[[str, pl.DataFrame], Any], panel_width: int, description: str
) -> alt.TopLevelMixin:
    """One panel a run, as many in a row as fit."""
    panels = [panel(run_id, run) for run_id, run in _runs(frame)]
    columns = max(1, PAGE_WIDTH // panel_width)
    return _finished(alt.concat(*panels, columns=columns, spacing={"row": 26, "column": 22}), description)


def _finished(chart: alt.TopLevelMixin, description: str) -> alt.TopLevelMixin:
    styled: alt.TopLevelMixin = (
        chart.properties(description=description, padding=6, background="white")
        .configure(font=FONT)
        .configure_axis(
            labelColor=INK, titleColor=INK, titleFontWeight="normal", labelFontSize=10, titleFontSize=11,
            gridColor="#e6e6e6", domainColor="#888", tickColor="#888",
        )
        .configure_axisY(maxExtent=400)  # else a title stands on long names of runs
        .configure_legend(labelColor=INK, titleColor=INK, titleFontWeight="normal", titleFontSize=11, labelFontSize=10)
        .configure_title(color=INK, anchor="start", fontSize=11, subtitleColor="#555", subtitleFontSize=10)
        .configure_view(stroke="#bbb")
    )  # fmt: skip
    return styled


def _title(run_id: str, width: int, subtitle: str | None = None) -> alt.Title:
    """The run's name over a panel of that many px, in at most three lines; the tooltips hold the whole name."""
    lines = textwrap.wrap(run_id, max(12, width // 6), break_on_hyphens=True) or [run_id]
    if len(lines) > 3:
        lines = [*lines[:2], lines[2][:-1] + "…"]
    return alt.Title(lines, subtitle=subtitle) if subtitle else alt.Title(lines)


def _rows(count: int, step: int) -> alt.Step:
    """Height of so many rows: `step` px each, but enough for the axis title."""
    return alt.Step(max(step, 120 // count))


def _hosts(run: pl.DataFrame) -> list[str]:
    """Names of a run's hosts in their order."""
    ends = [run.select(host=f"{end}_host", place=f"{end}_place") for end in ("src", "dst")]
    return pl.concat(ends).unique().sort("place")["host"].to_list()


def _host_axis(hosts: list[str], angle_of_long: int) -> alt.Axis:
    is_short = all(len(host) <= 5 for host in hosts)
    return alt.Axis(
        labelAngle=0 if is_short else angle_of_long,
        labelLimit=110,
        labelFontSize=10 if len(hosts) <= 6 else 9,
        ticks=False,
        labelPadding=3,
        domain=False,
    )


def _span(values: pl.Series) -> tuple[float, float]:
    """Domain of a log scale that holds the values, and is never empty."""
    low, high = (max(1.0, float(value)) for value in (values.min(), values.max()))  # type: ignore[arg-type]
    return min(low, high / 10), high


def _positive_scale(frame: pl.DataFrame, names: list[str]) -> alt.Scale:
    """Logarithmic where the values span much, for then small runs would lie on one another."""
    values = pl.concat([frame[name].rename("value").drop_nulls() for name in names])
    low, high = float(values.min()), float(values.max())  # type: ignore[arg-type]
    if low <= 0 or high / low < 5:
        return alt.Scale(zero=low < 0.5 * high, nice=True)
    return alt.Scale(type="log", domain=[low / 1.3, high * 1.3], nice=False)
