"""Figures of cheng: samples a second under each condition of the links (figs. 2 to 10).

Drawing only: queries/ decides what they show. Each function takes the frame of one query and returns a chart.
"""

from __future__ import annotations

from typing import Any

import altair as alt
import polars as pl

from ddnn_traces.report.charts import style
from ddnn_traces.text import counted

_TITLES = {
    "delay_ms": "one-way delay (ms)", "bandwidth_mbit": "rate of each link (Mbit/s)", "loss_pct": "packet loss (%)",
}  # fmt: skip
_CROSS = "#c00000"
_CONTROL = pl.col("congestion_control").fill_null("unknown congestion control")


@style.chart("Samples a second by delay, rate and loss of the links, for each model, batch size and number of workers")
def samples_by_condition(frame: pl.DataFrame) -> alt.TopLevelMixin:
    """Samples a second against each condition, a panel a condition and number of workers, of query condition_response.

    A cross is a training that did not finish: cheng figs. 2 to 10.
    """
    shown = frame.with_columns(
        training=pl.concat_str(
            "model", pl.lit(", batch "), "batch_size", pl.lit(", "), "framework_backend", pl.lit(", "), _CONTROL
        ),
        control=_CONTROL,
        batch=pl.col("batch_size").cast(pl.String),
        did=pl.concat_str("finished_runs", pl.lit(" of "), "runs", pl.lit(" runs")),
    )
    scale = style.positive_scale(shown, ["samples_per_s", "low_samples_per_s", "high_samples_per_s"])
    axis = style.positive_axis(scale)
    lowest = float(scale.domain[0]) if isinstance(scale.domain, list) else 0.0
    order = [str(size) for size in shown["batch_size"].unique().sort().to_list()]

    def panel(condition: str, rows: pl.DataFrame) -> Any:
        first = rows.row(0, named=True)
        values = [f"{value:g}" for value in rows["value"].unique().sort().to_list()]
        rows = rows.with_columns(value=pl.col("value").map_elements("{:g}".format, return_dtype=pl.String))
        x = alt.X("value:N", title=_TITLES[condition], sort=values, axis=alt.Axis(labelAngle=0))
        y_title = "throughput (samples/s)"
        base = style.data_chart(rows.drop_nulls("samples_per_s")).encode(
            x=x, y=alt.Y("samples_per_s:Q", title=y_title, scale=scale, axis=axis), detail="training:N",
            color=alt.Color("model:N", title="model (name)", scale=alt.Scale(range=style.OKABE_ITO), legend=_LEGEND),
            tooltip=style.tips(
                ("training:N", "training"), ("value:N", _TITLES[condition]),
                ("samples_per_s:Q", "samples/s", ",.4~r"), ("low_samples_per_s:Q", "95% interval from", ",.4~r"),
                ("high_samples_per_s:Q", "to", ",.4~r"), ("interval_of:N", "interval over"),
                ("of_best:Q", "of the best condition's", ".3~f"), ("verdict:N", "against the best"),
                ("did:N", "finished"),
            ),
        )  # fmt: skip
        layers = [
            base.mark_line(strokeWidth=1.4, opacity=0.6).encode(
                strokeDash=alt.StrokeDash("control:N", title="congestion control", legend=_LEGEND)
            ),
            base.mark_rule(strokeWidth=3, opacity=0.4).encode(y="low_samples_per_s:Q", y2="high_samples_per_s:Q"),
            base.mark_point(size=45, filled=True, opacity=1).encode(
                shape=alt.Shape(
                    "batch:N", title="batch size (samples)", sort=order, scale=alt.Scale(range=style.SHAPES),
                    legend=_LEGEND,
                )
            ),
        ]  # fmt: skip
        unfinished = rows.filter(pl.col("samples_per_s").is_null())
        if not unfinished.is_empty():
            crosses = style.data_chart(unfinished.with_columns(at=pl.lit(lowest)))
            layers.append(
                crosses.mark_text(text="✕", color=_CROSS, fontSize=14, fontWeight="bold", dy=-6).encode(
                    x=x, y=alt.Y("at:Q", title=y_title, scale=scale),
                    tooltip=style.tips(("training:N", "did not finish"), ("value:N", _TITLES[condition]),
                                       ("did:N", "finished")),
                )
            )  # fmt: skip
        ranks = f" of {first['ranks_per_host']} ranks" if first["ranks_per_host"] > 1 else ""
        title = f"{counted(first['workers'], 'worker')}{ranks}, {first['topology']}".replace("_", " ")
        return alt.layer(*layers, title=title).properties(width=250, height=220)

    rows_of_panels = []
    for _, rows in shown.group_by("workers", "ranks_per_host", "topology", maintain_order=True):
        panels = [panel(str(condition), part) for (condition,), part in rows.group_by("condition", maintain_order=True)]
        rows_of_panels.append(alt.hconcat(*panels, spacing=22))
    return alt.vconcat(*rows_of_panels, spacing=26)


_LEGEND = alt.Legend(orient="top", labelLimit=0, titleLimit=0)
