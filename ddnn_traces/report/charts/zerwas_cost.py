"""Figures of zerwas on what training costs: volume by model, accuracy, batch size, loss, throughput with intervals.

Drawing only: what they show is decided in queries/. Each function takes the frame of one query and returns a chart.
"""

from __future__ import annotations

from typing import Any

import altair as alt
import polars as pl

from ddnn_traces.report.charts.style import (  # fmt: skip
    DARK,
    INK,
    OKABE_ITO,
    PAGE_WIDTH,
    SHAPES,
    data_chart,
    finished,
    panel_title,
    row_step,
)

_SETTING = alt.Legend(title="framework, backend", orient="top", labelLimit=0, columns=4)
_NAMES = alt.Axis(labelLimit=330, ticks=False, grid=True)


def volume_by_model(frame: pl.DataFrame) -> alt.TopLevelMixin:
    """Mean volume of the runs of each model and framework, with the model's size, of query volume_by_model: fig. 3."""
    shown = frame.with_columns(volume_mb=pl.col("mean_wire_bytes") / 1e6)
    base = data_chart(shown).encode(
        x=alt.X("model:N", title="model (name)", sort=None, axis=alt.Axis(labelAngle=0, labelLimit=140)),
        tooltip=[
            alt.Tooltip("model:N", title="model"),
            alt.Tooltip("framework_setting:N", title="framework, backend"),
            alt.Tooltip("volume_mb:Q", title="transmitted volume (MB, mean)", format=",.4~r"),
            alt.Tooltip("runs:Q", title="runs"),
            alt.Tooltip("mean_steps:Q", title="steps (mean)", format=".4~g"),
            alt.Tooltip("model_mb:Q", title="model size (MB)", format=".4~g"),
        ],
    )
    bars = base.mark_bar().encode(
        xOffset=alt.XOffset("framework_setting:N"),
        y=alt.Y("volume_mb:Q", title="transmitted volume (MB on the wire, mean of the runs)"),
        color=alt.Color("framework_setting:N", scale=alt.Scale(range=OKABE_ITO), legend=_SETTING),
    )
    width = max(360, min(PAGE_WIDTH - 200, 26 * frame.height))
    if not frame["model_mb"].count():
        return finished(bars.properties(width=width, height=320), "Transmitted volume of each model and framework")
    size = base.mark_point(shape="diamond", filled=True, size=110, color=INK, stroke="white", strokeWidth=1.2).encode(
        y=alt.Y("model_mb:Q", title="diamonds: model size (MB)", axis=alt.Axis(orient="right", grid=False)),
    )
    return finished(
        alt.layer(bars, size).resolve_scale(y="independent").properties(width=width, height=320),
        "Transmitted volume of each model and framework, beside the model's size",
    )


def accuracy_volume(frame: pl.DataFrame) -> alt.TopLevelMixin:
    """Accuracy against transmitted volume, one panel a model, of query accuracy_volume: fig. 8."""
    settings = frame["framework_setting"].unique().sort().to_list()
    color = alt.Color("framework_setting:N", scale=alt.Scale(domain=settings, range=OKABE_ITO), legend=_SETTING)

    def panel(model: str, rows: pl.DataFrame) -> Any:
        shown = rows.select(
            "run_id", "framework_setting", "step", "epoch", "accuracy", volume_mb=pl.col("wire_bytes") / 1e6
        )
        base = data_chart(shown).encode(
            x=alt.X("volume_mb:Q", title="volume transmitted so far (MB on the wire)", axis=alt.Axis(tickCount=5)),
            y=alt.Y("accuracy:Q", title="training accuracy (share of the samples)", scale=alt.Scale(domain=[0, 1])),
            detail="run_id:N",
            color=color,
            tooltip=[
                alt.Tooltip("run_id:N", title="run"),
                alt.Tooltip("step:Q", title="step"),
                alt.Tooltip("epoch:Q", title="epoch"),
                alt.Tooltip("accuracy:Q", title="accuracy", format=".3~f"),
                alt.Tooltip("volume_mb:Q", title="volume (MB)", format=",.4~r"),
            ],
        )
        marks = (
            rows.select(pl.concat_list("low_mark", "high_mark").alias("mark"))
            .explode("mark")
            .unique(maintain_order=True)
        )
        dashed = (
            data_chart(marks)
            .mark_rule(strokeDash=[5, 4], color=INK, strokeWidth=1.2)
            .encode(y="mark:Q", tooltip=[alt.Tooltip("mark:Q", title="accuracy to reach", format=".0%")])
        )
        return alt.layer(
            base.mark_line(strokeWidth=1.8).encode(order="step:Q"),
            base.mark_point(size=14, filled=True),
            dashed,
            title=panel_title(model, 400),
        ).properties(width=390, height=240)

    panels = [
        panel(str(model or "model unknown"), rows) for (model,), rows in frame.group_by("model", maintain_order=True)
    ]
    return finished(
        alt.concat(*panels, columns=2, spacing={"row": 26, "column": 26}),
        "Training accuracy against transmitted volume, by model",
    )


def batch_pair_excerpt(frame: pl.DataFrame) -> alt.TopLevelMixin:
    """Throughput of one pair of hosts at several batch sizes, a panel each, of query batch_pair_excerpt: fig. 9."""

    def panel(rows: pl.DataFrame, peak: float) -> Any:
        first = rows.row(0, named=True)
        shown = rows.select("run_id", "since_excerpt_ms", "gbit_per_s")
        return (
            data_chart(shown)
            .transform_calculate(until_ms=f"datum.since_excerpt_ms + {first['sample_ms']}")
            .mark_rect(color=DARK)
            .encode(
                x=alt.X(
                    "since_excerpt_ms:Q",
                    title=f"time since {first['excerpt_start_ms'] / 1e3:g} s into the run (ms)",
                    scale=alt.Scale(domain=[0, first["excerpt_ms"]], nice=False),
                ),
                x2="until_ms:Q",
                y=alt.Y("gbit_per_s:Q", title="throughput (Gbit/s)", scale=alt.Scale(domain=[0, peak])),
                y2=alt.datum(0),
                tooltip=[
                    alt.Tooltip("run_id:N", title="run"),
                    alt.Tooltip("since_excerpt_ms:Q", title=f"{first['sample_ms']:g} ms from (ms)"),
                    alt.Tooltip("gbit_per_s:Q", title="throughput (Gbit/s)", format=".3~g"),
                ],
            )
            .properties(
                width=420,
                height=110,
                title=alt.Title(
                    f"batch size {first['batch_size']}",
                    subtitle=f"{first['model']}, {first['framework_setting']}, {first['pair']}",
                ),
            )
        )

    columns = []
    for _, rows in frame.group_by("comparison", maintain_order=True):
        peak = float(rows["gbit_per_s"].max())  # type: ignore[arg-type]
        panels = [panel(run, peak) for _, run in rows.group_by("run_id", maintain_order=True)]
        columns.append(alt.vconcat(*panels, spacing=14))
    return finished(
        alt.concat(*columns, columns=2, spacing={"row": 30, "column": 30}),
        "Throughput of one pair of hosts at several batch sizes of otherwise equal runs",
    )


def duration_by_loss(frame: pl.DataFrame) -> alt.TopLevelMixin:
    """Duration over that of the lossless runs, against packet loss, of query duration_by_loss: fig. 10."""
    shown = frame.filter(pl.col("normalised_duration").is_not_null() & pl.col("loss_pct").is_not_null()).with_columns(
        setting=pl.concat_str(pl.col("model"), pl.col("framework_setting"), separator=", ")
    )
    base = data_chart(shown).encode(
        x=alt.X("loss_pct:Q", title="packet loss (%)", scale=alt.Scale(nice=False, padding=14)),
        y=alt.Y(
            "normalised_duration:Q", title="training duration (lossless runs of the same setting = 1)",
            scale=alt.Scale(zero=True),
        ),
        tooltip=[
            alt.Tooltip("run_id:N", title="run"),
            alt.Tooltip("loss_pct:Q", title="packet loss (%)"),
            alt.Tooltip("normalised_duration:Q", title="of the lossless duration", format=".3~f"),
            alt.Tooltip("normalised_by:N", title="compared by"),
            alt.Tooltip("duration_s:Q", title="duration (s)", format=",.4~r"),
            alt.Tooltip("duration_source:N", title="known from"),
            alt.Tooltip("lossless_runs:Q", title="lossless runs"),
        ],
    )  # fmt: skip
    points = base.mark_point(size=80, strokeWidth=2).encode(
        color=alt.Color("framework_setting:N", title="framework, backend", scale=alt.Scale(range=OKABE_ITO)),
        shape=alt.Shape("model:N", title="model (name)", scale=alt.Scale(range=SHAPES)),
    )
    lossless = (
        data_chart(pl.DataFrame({"one": [1], "meaning": ["lossless runs of the same setting"]}))
        .mark_rule(strokeDash=[5, 4], color=INK)
        .encode(y="one:Q", tooltip=alt.Tooltip("meaning:N", title="duration of"))
    )
    return finished(
        alt.layer(lossless, points).properties(width=560, height=320),
        "Training duration against packet loss, normalised to the lossless runs",
    )


def throughput_intervals(frame: pl.DataFrame) -> alt.TopLevelMixin:
    """Mean throughput of each run with its 95% interval, of query total_throughput: table I."""
    return _intervals(frame, None, "Total throughput of each run with 95% interval")


def gradient_flow_intervals(frame: pl.DataFrame) -> alt.TopLevelMixin:
    """Mean with 95% interval and peak of the gradient flow, of query gradient_flow_throughput: table II."""
    return _intervals(frame, "peak_gbit_per_s", "Throughput of the gradient-carrying flow of each run, mean and peak")


def _intervals(frame: pl.DataFrame, peak: str | None, description: str) -> alt.TopLevelMixin:
    """A row a run: the mean as a point, the interval as a bar, the peak (a column's name) as a tick."""
    base = data_chart(frame).encode(
        y=alt.Y("run_id:N", title="run (name)", sort=None, axis=_NAMES),
        color=alt.Color("framework_setting:N", title="framework, backend", scale=alt.Scale(range=OKABE_ITO)),
        tooltip=[
            alt.Tooltip("run_id:N", title="run"),
            alt.Tooltip("gbit_per_s:Q", title="mean (Gbit/s)", format=".4~g"),
            alt.Tooltip("low_gbit_per_s:Q", title="95% interval from (Gbit/s)", format=".4~g"),
            alt.Tooltip("high_gbit_per_s:Q", title="to (Gbit/s)", format=".4~g"),
            *([alt.Tooltip(f"{peak}:Q", title="peak (Gbit/s)", format=".4~g")] if peak else []),
            alt.Tooltip("computation:N", title="computed"),
            alt.Tooltip("samples:Q", title="samples"),
            alt.Tooltip("sample_ms:Q", title="each (ms)", format=".4~g"),
            alt.Tooltip("lag1_autocorrelation:Q", title="their lag-1 autocorrelation", format=".2f"),
        ],
    )
    title = f"mean, 95% interval{' and peak (tick)' if peak else ''} of the throughput (Gbit/s)"
    layers = [
        base.mark_rule(strokeWidth=4, opacity=0.45).encode(
            x=alt.X("low_gbit_per_s:Q", title=title), x2="high_gbit_per_s:Q"
        ),
        base.mark_point(size=55, filled=True, opacity=1).encode(x="gbit_per_s:Q"),
    ]
    if peak:
        layers.append(base.mark_tick(thickness=2, height=13).encode(x=f"{peak}:Q"))
    return finished(alt.layer(*layers).properties(width=470, height=row_step(frame.height, 18)), description)
