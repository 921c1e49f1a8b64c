"""Figures of zerwas: who sends to whom, how many flows, when, how bursty, and what a step transmits.

Drawing only: what they show is decided in queries/. Each function takes the frame of one query and returns a chart.
"""

from __future__ import annotations

from typing import Any

import altair as alt
import polars as pl

from ddnn_traces.report.charts.style import (  # fmt: skip
    BLANK,
    DARK,
    INK,
    OKABE_ITO,
    PALE,
    SHAPES,
    by_run,
    data_chart,
    finished,
    host_axis,
    host_order,
    log_domain,
    panel_title,
    positive_scale,
    row_step,
    run_chart,
    run_panels,
)

_FITTED = alt.Title("Marks: the runs; black lines: fitted values of the same runs", fontWeight="normal")
_NOT_FITTED = alt.Title("Marks: the runs; nothing is fitted", fontWeight="normal")


def volume_heatmaps(frame: pl.DataFrame) -> alt.TopLevelMixin:
    """Volume of every pair of hosts, of query pair_volume: zerwas fig. 4."""
    shown = frame.select(
        "run_id", "src_host", "src_place", "dst_host", "dst_place", "packets", "wire_bytes", "share_of_run"
    )
    tooltip = [
        alt.Tooltip("share_of_run:Q", title="share of the run", format=".2~%"),
        alt.Tooltip("packets:Q", title="packets", format=","),
        alt.Tooltip("run:N", title="run"),
    ]
    return _heatmaps(shown, tooltip, "Transmitted volume of each pair of hosts, by run")


def mean_volume_heatmaps(frame: pl.DataFrame) -> alt.TopLevelMixin:
    """Volume of every pair of hosts, mean of a configuration's runs, of query mean_traffic_matrix: fig. 4."""
    shown = frame.select(
        "src_host", "src_place", "dst_host", "dst_place", "runs", "share_of_volume",
        run_id="configuration", wire_bytes="mean_wire_bytes",
    )  # fmt: skip
    tooltip = [
        alt.Tooltip("share_of_volume:Q", title="share of the volume", format=".2~%"),
        alt.Tooltip("runs:Q", title="mean over so many runs"),
        alt.Tooltip("run:N", title="configuration"),
    ]
    return _heatmaps(shown, tooltip, "Transmitted volume of each pair of hosts, averaged, by configuration")


def _heatmaps(frame: pl.DataFrame, tooltip: list[alt.Tooltip], description: str) -> alt.TopLevelMixin:
    """A panel a run_id with wire_bytes of each pair of hosts, on one logarithmic scale."""
    low, high = log_domain(frame["wire_bytes"])
    color = alt.Color(
        "wire_bytes:Q",
        title="transmitted volume (bytes on the wire; blank: nothing)",
        scale=alt.Scale(type="log", scheme="yellowgreenblue", domain=[low, high]),
        legend=alt.Legend(
            orient="top", format="~s", gradientLength=360, titleLimit=0, labelOverlap="greedy", labelSeparation=12
        ),
    )
    most_hosts = max(len(host_order(run)) for _, run in by_run(frame))
    step = 40 if most_hosts <= 6 else 22 if most_hosts <= 12 else 12
    has_numbers = step == 40  # which do not fit into smaller cells

    def panel(run_id: str, run: pl.DataFrame) -> Any:
        hosts = host_order(run)
        base = run_chart(run_id, run.drop("run_id", "src_place", "dst_place")).encode(
            x=alt.X("dst_host:N", title="receiver (host)", scale=alt.Scale(domain=hosts), axis=host_axis(hosts, -90)),
            y=alt.Y("src_host:N", title="sender (host)", scale=alt.Scale(domain=hosts), axis=host_axis(hosts, 0)),
            tooltip=[
                alt.Tooltip("src_host:N", title="sender"),
                alt.Tooltip("dst_host:N", title="receiver"),
                alt.Tooltip("wire_bytes:Q", title="bytes on the wire", format=",.0f"),
                *tooltip,
            ],
        )
        layers = [base.mark_rect().encode(color=color)]
        if has_numbers:
            dark_from = (low * high) ** 0.5
            ink = alt.when(alt.datum.wire_bytes > dark_from).then(alt.value("white")).otherwise(alt.value("black"))
            layers.append(base.mark_text(fontSize=10).encode(text=alt.Text("wire_bytes:Q", format=".2s"), color=ink))
        return alt.layer(*layers, title=panel_title(run_id, step * len(hosts) + 40)).properties(
            width=step * len(hosts),
            height=step * len(hosts),
            view=alt.ViewBackground(fill=BLANK, stroke="#bbb"),
        )

    return run_panels(frame, panel, step * most_hosts + 44, description)


def flow_counts(frame: pl.DataFrame) -> alt.TopLevelMixin:
    """Large, acknowledgement and side flows of each run, of query flow_counts: zerwas fig. 5."""
    names = {
        "large_data_flows": "large flows (with their acknowledgements 99% of the wire bytes)",
        "acknowledgement_flows": "acknowledgement flows",
        "side_flows": "side flows",
    }
    kinds = list(names.values())
    bars = frame.unpivot(list(names), index="run_id", variable_name="kind", value_name="count").with_columns(
        place=pl.col("kind").replace_strict({name: place for place, name in enumerate(names)}),
        kind=pl.col("kind").replace(names),
    )
    y = alt.Y("run_id:N", title="run (name)", sort=None, axis=alt.Axis(labelLimit=330, ticks=False))
    stacked = (
        data_chart(bars)
        .mark_bar(size=13)
        .encode(
            x=alt.X("count:Q", title="flows (number of directed five-tuples)", axis=alt.Axis(tickMinStep=1)),
            y=y,
            order="place:Q",
            color=alt.Color(
                "kind:N",
                scale=alt.Scale(domain=kinds, range=[DARK, OKABE_ITO[4], PALE]),
                legend=alt.Legend(title=None, orient="top", labelLimit=0),
            ),
            tooltip=[
                alt.Tooltip("run_id:N", title="run"),
                alt.Tooltip("kind:N", title="flows"),
                alt.Tooltip("count:Q", title="number", format=","),
            ],
        )
    )
    totals = (
        data_chart(frame.select("run_id", "flows"))
        .mark_text(align="left", dx=4, fontSize=10, color=INK)
        .encode(
            x="flows:Q",
            y=y,
            text=alt.Text("flows:Q", format=","),
            tooltip=[alt.Tooltip("run_id:N", title="run"), alt.Tooltip("flows:Q", title="flows", format=",")],
        )
    )
    return finished(
        alt.layer(stacked, totals).properties(width=560, height=row_step(frame.height, 18)),
        "Number of large flows, acknowledgement flows and side flows of each run",
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
            run_chart(run_id, shown)
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
                height=row_step(len(flows), 11),
                title=panel_title(run_id, 400, f"{len(flows)} flows, {window_s:g} s windows"),
            )
        )

    return run_panels(frame, panel, 480, "Throughput of each flow over time, by run")


def pair_throughput(frame: pl.DataFrame) -> alt.TopLevelMixin:
    """Throughput of the pairs of hosts in each run's busiest stretch, of query pair_burst: zerwas fig. 7.

    A pair is a row, not a line: pairs that send at the same time would hide each other.
    """

    def panel(run_id: str, run: pl.DataFrame) -> Any:
        window_ms, start_ms, length_ms = (run[name][0] for name in ("window_ms", "excerpt_start_ms", "excerpt_ms"))
        peak = float(run["gbit_per_s"].max())  # type: ignore[arg-type]
        pairs = run["pair"].unique(maintain_order=True).to_list()
        return (
            run_chart(run_id, run.select("pair", "since_excerpt_ms", "gbit_per_s"))
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
                title=panel_title(run_id, 280, f"full height of a row: {peak:.3g} Gbit/s"),
            )
        )

    return run_panels(frame, panel, 320, "Throughput of each pair of hosts in the run's busiest stretch")


def step_volume_fit(frame: pl.DataFrame) -> alt.TopLevelMixin:
    """Volume of a step against model size: what was measured, and the regression's fitted value of the same run.

    frame: run_id, step_bytes, size_bytes, fitted (null: nothing is fitted), framework_backend, batch_size, topology.
    """
    shown = frame.select(
        "run_id", "framework_backend", "batch_size", "topology",
        model_mb=pl.col("size_bytes") / 1e6, step_mb=pl.col("step_bytes") / 1e6, fitted_mb=pl.col("fitted") / 1e6,
    )  # fmt: skip
    base = data_chart(shown).encode(
        x=alt.X("model_mb:Q", title="model size (MB)", scale=positive_scale(shown, ["model_mb"])),
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
        .scale(positive_scale(shown, ["step_mb", "fitted_mb"]))
    )
    fitted = base.mark_tick(color=INK, thickness=1.5, width=26, orient="horizontal").encode(y="fitted_mb:Q")
    measured = base.mark_point(size=90, strokeWidth=2.2).encode(
        y=y,
        color=alt.Color("framework_backend:N", title="framework and backend", scale=alt.Scale(range=OKABE_ITO)),
        shape=alt.Shape("topology:N", title="topology (declared)", scale=alt.Scale(range=SHAPES)),
    )
    return finished(
        alt.layer(fitted, measured, title=_marks(shown)).properties(width=620, height=360),
        "Volume of a step against model size, with the fit",
    )


def step_volume_runs(frame: pl.DataFrame) -> alt.TopLevelMixin:
    """Volume of a step as a multiple of the model's size, by run, with the fitted value. frame: as step_volume_fit."""
    shown = frame.select(
        "run_id", "framework_backend",
        measured=pl.col("step_bytes") / pl.col("size_bytes"), fitted=pl.col("fitted") / pl.col("size_bytes"),
    )  # fmt: skip
    base = data_chart(shown).encode(
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
    return finished(
        alt.layer(fitted, measured, title=_marks(shown)).properties(width=430, height=row_step(frame.height, 18)),
        "Volume of a step for each MB of model, by run, with the fit",
    )


def _marks(frame: pl.DataFrame) -> alt.Title:
    """What the marks of a chart with fitted values are."""
    fitted = any("fitted" in name and frame[name].count() for name in frame.columns)
    return _FITTED if fitted else _NOT_FITTED
