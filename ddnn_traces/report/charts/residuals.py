"""Residuals of a regression: what a reader looks at before believing it."""

from __future__ import annotations

import altair as alt
import polars as pl

from ddnn_traces.report.charts.style import DARK, data_chart, finished

# Residuals whose studentized value is beyond this are named as far off: 5% of Student's t are, of large fits.
_FAR = 2
#: Rows that a chart draws at most; the farthest off are always among them.
MOST = 2000
_FARTHEST = 50
_TITLES = {
    "step_ms": "duration of a step (ms)",
    "samples_per_s": "throughput (samples/s)",
    "normalised_duration": "duration (over that without loss)",
    "np.log(comparable_s)": "natural logarithm of the duration of a step, or of a run without a log (s)",
}


def residuals_against_fitted(frame: pl.DataFrame, left: str = "step_bytes") -> alt.TopLevelMixin:
    """Residual of each row against its fitted value.

    frame: columns of Regression.points, fitted not null. left: left side of the formula.
    """
    factor, unit = _scale(left)
    thinned = _thinned(_named(frame).sort("residual", "row", maintain_order=True))
    shown = thinned.with_columns(pl.col("fitted", "residual", "observed") * factor)
    base = data_chart(shown).encode(
        x=alt.X("fitted:Q", title=f"fitted: {unit}", scale=alt.Scale(zero=False)),
        y=alt.Y("residual:Q", title=f"residual: {unit}"),
        tooltip=[
            alt.Tooltip("row:N", title="run"),
            alt.Tooltip("observed:Q", title=f"observed {unit}", format=".4~g"),
            alt.Tooltip("fitted:Q", title=f"fitted {unit}", format=".4~g"),
            alt.Tooltip("residual:Q", title=f"residual {unit}", format=".4~g"),
            alt.Tooltip("studentized_residual:Q", title="studentized", format=".3~g"),
        ],
    )
    zero = (
        alt.Chart(alt.InlineData(({"zero": 0},)))
        .mark_rule(color="#888")
        .encode(y="zero:Q", tooltip=alt.Tooltip("zero:Q", title="residual of a row on the fit"))
    )
    points = base.mark_point(size=46, strokeWidth=1.8).encode(color=_far_color())
    return finished(
        alt.layer(zero, points, title="Residuals against fitted values").properties(width=400, height=280),
        "Residual of each row of the regression against its fitted value",
    )


def normal_quantiles(frame: pl.DataFrame) -> alt.TopLevelMixin:
    """Studentized residuals, in order, against the quantiles of the normal distribution (Q-Q plot); the line is y = x.

    frame: columns of Regression.points; rows without a studentized residual are left out.
    """
    from statistics import NormalDist

    there = _named(frame.drop_nulls("studentized_residual")).sort("studentized_residual", "row")
    count = there.height
    # Blom's plotting positions
    places = [NormalDist().inv_cdf((rank + 1 - 0.375) / (count + 0.25)) for rank in range(count)]
    shown = _thinned(there.with_columns(quantile=pl.Series(places, dtype=pl.Float64)))
    base = data_chart(shown).encode(
        x=alt.X("quantile:Q", title="quantile of the normal distribution (standard deviations)"),
        y=alt.Y("studentized_residual:Q", title="studentized residual (standard errors)"),
        tooltip=[
            alt.Tooltip("row:N", title="run"),
            alt.Tooltip("studentized_residual:Q", title="studentized residual", format=".3~g"),
            alt.Tooltip("quantile:Q", title="normal quantile", format=".3~g"),
        ],
    )
    reach = max([2.0, *(abs(place) for place in places)])
    ends = alt.Chart(alt.InlineData(({"end": -reach}, {"end": reach})))
    line = ends.mark_line(color="#888").encode(
        x="end:Q", y="end:Q", tooltip=alt.Tooltip("end:Q", title="on the line: normal", format=".3~g")
    )
    points = base.mark_point(size=46, strokeWidth=1.8).encode(color=_far_color())
    return finished(
        alt.layer(line, points, title="Studentized residuals against a normal distribution").properties(
            width=400, height=280
        ),
        "Normal quantile-quantile plot of the regression's studentized residuals",
    )


def _named(frame: pl.DataFrame) -> pl.DataFrame:
    """The rows with their name, and whether they lie far off."""
    name = pl.col("run_id") + (pl.format(", step {}", "step") if "step" in frame.columns else pl.lit(""))
    far = pl.col("studentized_residual").abs() > _FAR
    kind = pl.when(far.fill_null(False)).then(pl.lit("beyond 2")).otherwise(pl.lit("within 2, or not defined"))
    columns = ("observed", "fitted", "residual", "studentized_residual")
    return frame.select(*columns, row=name, kind=kind)


def _thinned(frame: pl.DataFrame) -> pl.DataFrame:
    """At most MOST rows of an ordered frame: both ends, and evenly spread ones of the others."""
    if frame.height <= MOST:
        return frame
    inner = frame.slice(_FARTHEST, frame.height - 2 * _FARTHEST)
    every = -(-inner.height // (MOST - 2 * _FARTHEST))
    return pl.concat([frame.head(_FARTHEST), inner.gather_every(every), frame.tail(_FARTHEST)])


def _far_color() -> alt.Color:
    return alt.Color(
        "kind:N",
        title="studentized residual",
        scale=alt.Scale(domain=["within 2, or not defined", "beyond 2"], range=[DARK, "#D55E00"]),
        legend=alt.Legend(orient="bottom", direction="vertical"),
    )


def _scale(left: str) -> tuple[float, str]:
    """What to multiply the left side by to draw it, and its title with its unit."""
    if left == "step_bytes":
        return 1e-6, "volume of a step (MB on the wire)"
    return 1.0, _TITLES.get(left, f"left side of the formula ({left})")
