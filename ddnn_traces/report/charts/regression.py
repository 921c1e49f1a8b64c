"""Figures of a regression: its fitted values (zerwas section VI), and its residuals as diagnostics."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import altair as alt
import polars as pl

from ddnn_traces.regression.results import VOLUMES
from ddnn_traces.report.charts import style
from ddnn_traces.text import counted

_FITTED = alt.Title("Marks: the runs; black lines: fitted values of the same runs", fontWeight="normal")
_NOT_FITTED = alt.Title("Marks: the runs; nothing is fitted", fontWeight="normal")
# Residuals whose studentized value is beyond this are coloured as far off: 5% of Student's t are, of large fits.
_FAR = 2
#: Rows that a chart draws at most; the farthest off are always among them.
MOST = 2000
#: A chart of Regression.points and the left side of the formula.
OfResiduals = Callable[[pl.DataFrame, str], alt.TopLevelMixin]
_FARTHEST = 50
_TITLES = {
    "step_ms": "duration of a step (ms)",
    "samples_per_s": "throughput (samples/s)",
    "normalised_duration": "duration (over that without loss)",
    "np.log(comparable_s)": "natural logarithm of the duration of a step, or of a run without a log (s)",
}


@style.chart("Volume of a step against model size by number of workers, with the laws of the collectives and the fit")
def step_volume_fit(frame: pl.DataFrame) -> alt.TopLevelMixin:
    """Volume of a step against model size, a panel a number of workers: measured, by law, and fitted.

    Runs of one framework, size and law are one mark, whose volume is their mean, since they would lie on one another.
    frame: run_id, step_bytes, size_bytes, fitted_bytes (null: nothing is fitted), framework_backend, topology, workers,
    and law_factor, model sizes that the declared collective sends in a step (null: no law).
    """
    spot = ["workers", "size_bytes", "law_factor", "framework_backend"]
    marks = frame.group_by(spot, maintain_order=True).agg(
        pl.len().alias("runs"), pl.col("topology").unique().sort().drop_nulls().str.join(", "),
        pl.col("step_bytes", "fitted_bytes").mean() / 1e6, least_mb=pl.col("step_bytes").min() / 1e6,
        most_mb=pl.col("step_bytes").max() / 1e6,
    )  # fmt: skip
    marks = marks.rename({"step_bytes": "step_mb", "fitted_bytes": "fitted_mb"}).with_columns(
        model_mb=pl.col("size_bytes") / 1e6,
        law_mb=pl.col("size_bytes") * pl.col("law_factor") / 1e6,
        # of all frameworks, at one of their marks
        at_spot=pl.when(pl.int_range(pl.len()).over(spot[:3]) == 0).then(pl.col("runs").sum().over(spot[:3])),
    )
    volumes = style.positive_scale(marks, ["least_mb", "most_mb", "fitted_mb", "law_mb"])
    sizes = style.positive_scale(marks, ["model_mb"])
    of_volumes, of_sizes = (style.positive_axis(scale, labelExpr=style.MEGABYTES) for scale in (volumes, sizes))
    x = alt.X("model_mb:Q", title="model size (bytes)", scale=sizes, axis=of_sizes)
    frameworks = alt.Scale(domain=marks["framework_backend"].unique().sort().to_list(), range=style.OKABE_ITO)
    title = "framework and backend"
    color = alt.Color("framework_backend:N", title=title, scale=frameworks)
    shape = alt.Shape("framework_backend:N", title=title, scale=alt.Scale(domain=frameworks.domain, range=style.SHAPES))

    def panel(workers: int | None, rows: pl.DataFrame) -> alt.LayerChart | alt.FacetChart:
        base = style.data_chart(rows).encode(
            x=x, tooltip=style.tips(
                ("framework_backend:N", "framework and backend"), ("topology:N", "topologies"), ("runs:Q", "runs"),
                ("model_mb:Q", "model size (MB)", ".4~g"), ("step_mb:Q", "volume of a step, mean (MB)", ".4~g"),
                ("least_mb:Q", "least (MB)", ".4~g"), ("most_mb:Q", "most (MB)", ".4~g"),
                ("law_factor:Q", "by law, models", ".4~g"), ("fitted_mb:Q", "fitted, mean (MB)", ".4~g"),
            ),
        )  # fmt: skip
        y = alt.Y("step_mb:Q", title="volume of a step (bytes on the cable)", scale=volumes, axis=of_volumes)
        measured = base.mark_point(size=80, strokeWidth=2, opacity=1).encode(y=y, color=color, shape=shape)
        fitted = base.mark_tick(color=style.INK, thickness=1.5, width=22, orient="horizontal").encode(y="fitted_mb:Q")
        numbers = base.transform_filter("datum.at_spot > 1").mark_text(align="left", dx=8, dy=6, fontSize=9)
        ends = [(pl.col("model_mb").min() * 0.85).alias("low"), (pl.col("model_mb").max() / 0.85).alias("high")]
        of_laws = rows.drop_nulls("law_factor").group_by("law_factor").agg(ends).sort("law_factor")
        lines = style.data_chart(
            of_laws.unpivot(["low", "high"], index="law_factor", value_name="model_mb").with_columns(
                law_mb=pl.col("law_factor") * pl.col("model_mb")
            )
        ).mark_line(color="#888", strokeDash=[4, 3], strokeWidth=1).encode(
            x=x, y="law_mb:Q", detail="law_factor:N", tooltip=style.tips(("law_factor:Q", "by law, models", ".4~g"))
        )  # fmt: skip
        factors = ", ".join(f"{factor:.3g}" for factor in of_laws["law_factor"])
        of = "number of workers unknown" if workers is None else counted(workers, "worker")
        title = alt.Title(of, subtitle=f"dashed: {factors} × model by law" if factors else "no law known")
        layers = [lines, fitted, measured, numbers.encode(y="step_mb:Q", text="at_spot:Q")]
        return alt.layer(*layers, title=title).properties(width=390, height=270)

    groups = marks.sort("workers", maintain_order=True).group_by("workers", maintain_order=True)
    return alt.concat(*(panel(workers, rows) for (workers,), rows in groups), columns=2, spacing=26)


@style.chart("Volume of a step, in model sizes, against the number of workers, with the law of each topology")
def volume_by_law(frame: pl.DataFrame) -> alt.TopLevelMixin:
    """Volume of a step as a multiple of the model's size, by workers: measured runs on the lines of the laws.

    A point is a run; the name of those of a number of workers whose topologies have one law stands at their median run.
    frame: as step_volume_fit; rows without a law or workers are left out.
    """
    there = frame.drop_nulls(["workers", "law_factor"]).with_columns(
        topology=pl.col("topology").str.replace_all("_", " "), models=pl.col("step_bytes") / pl.col("size_bytes")
    )
    names = pl.col("topology").unique().sort().str.join(", ")
    marks = there.group_by("workers", "law_factor").agg(
        pl.len().alias("runs"), names,
        pl.col("models").quantile(0.5, "lower"),
    )  # fmt: skip
    marks = marks.with_columns(label=pl.format("{} ({})", "topology", "runs"))
    least, most = (cast(int, marks["workers"].min()), cast(int, marks["workers"].max()))
    workers = alt.Scale(domain=[least - 0.3, most + 0.6 * max(1, most - least)], nice=False)
    x = alt.X(
        "workers:Q",
        title="workers (number)",
        axis=alt.Axis(values=marks["workers"].unique().sort().to_list()),
        scale=workers,
    )
    of_topology = there.group_by("topology", "workers").agg(pl.col("law_factor").median()).sort("topology", "workers")
    laws = style.data_chart(of_topology).mark_line(color="#888", strokeDash=[4, 3], strokeWidth=1).encode(
        x=x, y="law_factor:Q", detail="topology:N",
        tooltip=style.tips(("topology:N", "topology"), ("law_factor:Q", "by law (model sizes)", ".4~g")),
    )  # fmt: skip
    of_law = ("workers:Q", "workers"), ("law_factor:Q", "by law (model sizes)", ".4~g")
    y = alt.Y("models:Q", title="volume of a step (model sizes)")
    base = style.data_chart(marks.sort("workers", "law_factor")).encode(
        x=x, y=y, tooltip=style.tips(("topology:N", "topologies"), ("runs:Q", "runs"), *of_law),
    )  # fmt: skip
    points = there.select("run_id", "topology", "workers", "law_factor", "models").sort("workers", "run_id")
    measured = style.data_chart(points).mark_point(size=70, strokeWidth=2, opacity=1, color=style.DARK).encode(
        x=x, y=y,
        tooltip=style.tips(
            style.RUN, ("topology:N", "topology"), *of_law, ("models:Q", "measured (model sizes)", ".4~g"),
        ),
    )  # fmt: skip
    expected = base.mark_tick(color="#888", orient="horizontal", width=22).encode(y="law_factor:Q")
    # on a narrow page three topologies are a number, and marks with others at their right have names at the left
    topologies = "length(split(datum.topology, ', '))"
    left = f"is_narrow && datum.workers > {least} && datum.workers < {most}"
    named = base.transform_calculate(
        label=f"is_narrow && {topologies} > 2 ? {topologies} + ' topologies (' + datum.runs + ')' : datum.label"
    ).mark_text(
        align=alt.expr(f"{left} ? 'right' : 'left'"), dx=alt.expr(f"{left} ? -13 : 13"),
        # clear of the line of a law, which rises from the mark to its right
        dy=alt.expr(f"datum.workers == {most} ? 0 : {left} ? -10 : 10"), fontSize=style.FONT_SIZE,
    ).encode(text="label:N")  # fmt: skip
    title = alt.Title("points: runs, with their number; grey: by the law of the collective", fontWeight="normal")
    return alt.layer(laws, expected, measured, named, title=title).properties(width=760, height=210)


@style.chart("Volume of a step for each MB of model, by run, with the fit")
def step_volume_runs(frame: pl.DataFrame) -> alt.TopLevelMixin:
    """Volume of a step as a multiple of the model's size, by run, with the fitted value. frame: as step_volume_fit."""
    shown = frame.select(
        "run_id", "framework_backend",
        measured=pl.col("step_bytes") / pl.col("size_bytes"), fitted=pl.col("fitted_bytes") / pl.col("size_bytes"),
    )  # fmt: skip
    base = style.row_chart(shown).encode(
        y=style.run_rows(style.NAMES_AND_GRID),
        tooltip=style.tips(
            style.RUN, ("measured:Q", "measured (MB per MB)", ".4~g"), ("fitted:Q", "fitted (MB per MB)", ".4~g")
        ),
    )
    fitted = base.mark_tick(color=style.INK, thickness=1.5, height=15, orient="vertical").encode(x="fitted:Q")
    measured = base.mark_point(size=60, strokeWidth=2.2).encode(
        x=alt.X("measured:Q", title="volume of a step for each MB of model (MB on the cable per MB)"),
        color=style.colors("framework_backend:N", "framework and backend"),
    )
    layers = alt.layer(fitted, measured, title=_marks(shown))
    return layers.properties(width=430, height=style.row_step(frame.height, 18))


def _marks(frame: pl.DataFrame) -> alt.Title:
    """A title that explains the marks of a chart with fitted values."""
    fitted = any("fitted" in name and frame[name].count() for name in frame.columns)
    return _FITTED if fitted else _NOT_FITTED


@style.chart("Residual of each row of the regression against its fitted value")
def regression_residuals(frame: pl.DataFrame, left: str = "step_bytes") -> alt.TopLevelMixin:
    """Residual of each row against its fitted value.

    frame: columns of Regression.points, fitted not null. left: left side of the formula.
    """
    factor, unit = _scale(left)
    thinned = _thinned(_named(frame).sort("residual", "row", maintain_order=True))
    shown = thinned.with_columns(pl.col("fitted", "residual", "observed") * factor)
    base = style.data_chart(shown).encode(
        x=alt.X("fitted:Q", title=f"fitted: {unit}", scale=alt.Scale(zero=False)),
        y=alt.Y("residual:Q", title=f"residual: {unit}"),
        tooltip=style.tips(
            ("row:N", "run"), *((f"{name}:Q", f"{name} {unit}", ".4~g") for name in ("observed", "fitted", "residual")),
            ("studentized_residual:Q", "studentized", ".3~g"),
        ),
    )  # fmt: skip
    zero = (
        alt.Chart(alt.InlineData(({"zero": 0},)))
        .mark_rule(color="#888")
        .encode(y="zero:Q", tooltip=alt.Tooltip("zero:Q", title="residual of a row on the fit"))
    )
    return _of_residuals(zero, base, "Residuals against fitted values")


@style.chart("Normal quantile-quantile plot of the regression's studentized residuals")
def regression_quantiles(frame: pl.DataFrame, left: str = "step_bytes") -> alt.TopLevelMixin:
    """Studentized residuals, in order, against the quantiles of the normal distribution (Q-Q plot); the line is y = x.

    frame: columns of Regression.points; rows without a studentized residual are left out. left: not used, since
    studentized residuals have no unit.
    """
    from statistics import NormalDist

    there = _named(frame.drop_nulls("studentized_residual")).sort("studentized_residual", "row")
    count = there.height
    # Blom's plotting positions
    places = [NormalDist().inv_cdf((rank + 1 - 0.375) / (count + 0.25)) for rank in range(count)]
    shown = _thinned(there.with_columns(quantile=pl.Series(places, dtype=pl.Float64)))
    base = style.data_chart(shown).encode(
        x=alt.X("quantile:Q", title="quantile of the normal distribution (standard deviations)"),
        y=alt.Y("studentized_residual:Q", title="studentized residual (standard errors)"),
        tooltip=style.tips(
            ("row:N", "run"), ("studentized_residual:Q", "studentized residual", ".3~g"),
            ("quantile:Q", "normal quantile", ".3~g"),
        ),
    )  # fmt: skip
    reach = max([2.0, *(abs(place) for place in places)])
    ends = alt.Chart(alt.InlineData(({"end": -reach}, {"end": reach})))
    line = ends.mark_line(color="#888").encode(
        x="end:Q", y="end:Q", tooltip=alt.Tooltip("end:Q", title="on the line: normal", format=".3~g")
    )
    return _of_residuals(line, base, "Studentized residuals against a normal distribution")


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


def _of_residuals(line: alt.Chart, base: alt.Chart, title: str) -> alt.TopLevelMixin:
    """The line of a perfect fit, and a mark a row, coloured where it lies far off."""
    color = alt.Color(
        "kind:N", title="studentized residual",
        scale=alt.Scale(domain=["within 2, or not defined", "beyond 2"], range=[style.DARK, "#D55E00"]),
        legend=alt.Legend(orient="bottom", direction="vertical"),
    )  # fmt: skip
    points = base.mark_point(size=46, strokeWidth=1.8).encode(color=color)
    return alt.layer(line, points, title=title).properties(width=400, height=280)


def _scale(left: str) -> tuple[float, str]:
    """The factor by which the left side is drawn, and its title with its unit."""
    if left in VOLUMES:
        return 1e-6, f"{VOLUMES[left]} (MB)"
    return 1.0, _TITLES.get(left, f"left side of the formula ({left})")
