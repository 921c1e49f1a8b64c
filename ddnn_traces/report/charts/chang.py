"""Figures of chang: the phases of parameter-server training.

Drawing only: queries/ decides what they show. Each function takes the frame of one query and returns a chart.
"""

from __future__ import annotations

from typing import Any

import altair as alt
import polars as pl

from ddnn_traces.report.charts import style

_PHASES = {"aggregation": "#E69F00", "distribution": style.DARK}


@style.chart("Duration and payload of aggregation and distribution in an iteration, by run")
def parameter_server_phases(frame: pl.DataFrame) -> alt.TopLevelMixin:
    """Time and volume of both phases of an iteration, of query parameter_server_transfers: chang section 3 and fig. 2.

    Runs without measured phases are not drawn. Raises ValueError where no run is left.
    """
    phases = frame.filter(pl.col("phase").is_in(list(_PHASES)))
    if phases.is_empty():
        raise ValueError("no run has parameter-server phases")
    shown = phases.with_columns(payload_mb=pl.col("payload_bytes") / 1e6, expected_mb=pl.col("expected_bytes") / 1e6)
    duration = alt.X("mean_ms:Q", title="duration, mean; mark: still to send after computation (ms)")
    times = _bars(shown, duration, "mean_remaining_ms")
    axis = alt.Axis(labelExpr=style.MEGABYTES)
    payload = alt.X("payload_mb:Q", title="payload, mean; mark: model × workers (MB)", axis=axis)
    volumes = _bars(shown, payload, "expected_mb")
    return alt.hconcat(times, volumes, spacing=14)


def _bars(frame: pl.DataFrame, x: alt.X, mark: str) -> Any:
    """A bar a phase and run, with a mark at the other column's value."""
    base = style.data_chart(frame).encode(
        y=style.run_rows(), yOffset=alt.YOffset("phase:N", sort=list(_PHASES)),
        tooltip=style.tips(
            style.RUN, ("phase:N", "phase"), ("mean_ms:Q", "duration, mean (ms)", ".4~g"),
            ("mean_remaining_ms:Q", "still to send, mean (ms)", ".4~g"), ("measured_by:N", "measured by"),
            ("mean_overlap_ms:Q", "overlap of the phases, mean (ms)", ".4~g"),
            ("payload_mb:Q", "payload, mean (MB)", ".4~g"), ("expected_mb:Q", "model × workers (MB)", ".4~g"),
            ("transfers:Q", "transfers, mean", ".4~g"), ("expected_transfers:Q", "servers × workers"),
            ("steps:Q", "steps"),
        ),
    ).properties(width=290, height=style.row_step(frame["run_id"].n_unique(), 40))  # fmt: skip
    bars = base.mark_bar().encode(x=x, color=style.kind_color("phase:N", "phase", _PHASES))
    if not frame[mark].count():
        return bars
    marks = base.mark_tick(color=style.INK, thickness=2.5, orient="vertical").encode(x=f"{mark}:Q")
    return alt.layer(bars, marks)
