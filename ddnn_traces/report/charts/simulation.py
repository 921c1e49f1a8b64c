"""Figures of simulated runs: gao fig. 4.7 (iteration time against a parameter) and figs. 4.8 to 4.11 (timelines)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import altair as alt
import polars as pl

from ddnn_traces.report.charts import panels, style
from ddnn_traces.store.whole_files import whole_file

CHART = "iteration_time.svg"
_TITLES = {
    "bandwidth_mbit": "rate of each link (Mbit/s)", "server_mbit": "rate of the server's link (Mbit/s)",
    "delay_ms": "propagation delay (ms)", "workers": "workers (number)", "model_bytes": "model (bytes)",
}  # fmt: skip
_RESULTS = 8  # columns of a sweep that follow its axes


def write_sweep(cells: pl.DataFrame, out: Path) -> Path | None:
    """Draw a sweep's iteration time against its first axis of numbers into OUT; None where there is none."""
    axes = cells.columns[:-_RESULTS]
    numbers = [name for name in axes if cells[name].dtype.is_numeric() and cells[name].n_unique() > 1]
    rows = cells.filter(pl.col("iteration_ms").is_not_null())
    if not numbers or rows.is_empty():
        return None
    others = [pl.format(f"{name} {{}}", pl.col(name).cast(pl.String)) for name in axes if name != numbers[0]]
    series = pl.concat_str(others, separator=", ") if others else pl.lit("all")
    about = {"series": series, "parameter": pl.lit(numbers[0]), "value": pl.col(numbers[0])}
    chart = iteration_time(rows.select("iteration_ms", **about))
    with whole_file(out / CHART) as half_written:
        half_written.write_text(style.svg(chart.to_dict()), encoding="utf-8")
    return out / CHART


@style.chart("Iteration time of simulated runs against a parameter, a line for each combination of the others")
def iteration_time(frame: pl.DataFrame) -> alt.TopLevelMixin:
    """Iteration time against `value` of the `parameter` of a sweep, a line a `series`: gao fig. 4.7, chang fig. 1."""
    name = str(frame["parameter"][0])
    return _lines(frame.rename({"iteration_ms": "ms"}), _TITLES.get(name, name), "iteration time (ms)")


def _lines(frame: pl.DataFrame, x_title: str, y_title: str) -> alt.TopLevelMixin:
    """Lines of ms against value."""
    scale = style.positive_scale(frame, ["value"])
    base = style.data_chart(frame).encode(
        x=alt.X("value:Q", title=x_title, scale=scale, axis=style.positive_axis(scale)),
        y=alt.Y("ms:Q", title=y_title, scale=alt.Scale(zero=True)),
        color=alt.Color(
            "series:N", title="job", scale=alt.Scale(range=style.OKABE_ITO), legend=alt.Legend(labelLimit=500)
        ),
        tooltip=style.tips(("series:N", "job"), ("value:Q", x_title, ",.6~g"), ("ms:Q", y_title, ",.1f")),
    )
    layers: alt.TopLevelMixin = (base.mark_line(opacity=0.8) + base.mark_point(size=30, filled=True)).properties(
        width=560, height=300
    )
    return layers


@style.chart("Step time of simulated runs by rate of the links, a line for each job and each order of exchanges")
def simulated_step_time(frame: pl.DataFrame) -> alt.TopLevelMixin:
    """Step time against the rate of the links, a line a job and variant, of query link_utilization: gao fig. 4.7."""
    job = pl.concat_str("model", pl.lit(", "), "topology", pl.lit(" of "), "workers")
    series = pl.concat_str(job, pl.lit(", "), pl.col("variant").fill_null(""))
    rows = frame.select(series=series, value=pl.col("bandwidth_mbit"), ms=pl.col("step_ms"))
    return _lines(rows, _TITLES["bandwidth_mbit"], "step time (ms)")


@style.chart("Computation and exchange of each layer in one step of a simulated run, and when its gradients are needed")
def layer_timeline(frame: pl.DataFrame) -> alt.TopLevelMixin:
    """Exchange of each layer's gradients (bar), when they are needed (orange) and computed, of rows of layer_slack.

    The rows are of one worker and step of each run: gao figs. 4.8 to 4.11, with a row a layer. The slack of a layer is
    the space between its bar and its orange mark.
    """
    x = alt.X("exchange_start_ms:Q", title="time since the step began (ms)")
    y = alt.Y("layer:Q", title="layer (number from the input on)", scale=alt.Scale(reverse=True, nice=False))

    def panel(run_id: str, rows: pl.DataFrame) -> Any:
        base = style.run_chart(run_id, rows).encode(
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
        return alt.layer(*layers, title=alt.TitleParams(run_id)).properties(width=410, height=230)

    return panels.run_panels(frame, panel, 470)
