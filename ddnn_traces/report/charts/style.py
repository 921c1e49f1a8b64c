"""What all figures share: their register, colours, fonts, panels, scales.

Colours are from scales that colour-blind readers and black-and-white printers can distinguish (Okabe and Ito;
ColorBrewer's YlGnBu). Small multiples are one panel a run.
"""

from __future__ import annotations

import functools
import math
import re
import textwrap
from collections.abc import Callable, Mapping
from typing import Any, ParamSpec

import altair as alt
import polars as pl
import polars.selectors as cs
import vl_convert
from altair.utils.schemapi import debug_mode

from ddnn_traces.report.charts.panels import RunPanels, rows_of
from ddnn_traces.text import for_xml

DARK, PALE, INK = "#0b5394", "#a6c8e4", "#222222"
BLANK = "#fefefe"  # background of cells: as white, but report/page.css gives it another colour on dark pages
OKABE_ITO = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#F0E442"]
#: Kinds of collectives, the same in explorer.js.
COLLECTIVES = {
    "all_reduce": OKABE_ITO[0], "all_gather": OKABE_ITO[5], "reduce_scatter": OKABE_ITO[2],
    "all_to_all": OKABE_ITO[1], "send": OKABE_ITO[4],
}  # fmt: skip
SHAPES = ["circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-left", "triangle-right"]
FONT_SIZE = 11  # px of every text
_TICKS = 3  # asked for on each axis of numbers: Vega then draws two to five
_MOST_LOG_TICKS = 6
# names of runs differ at both ends: a long one loses its middle
_SHORTENED = (
    "(length(datum.label) > label_characters ? slice(datum.label, 0, floor(label_characters * 0.6)) + '…' + "
    "slice(datum.label, -floor(label_characters * 0.4) + 1) : datum.label)"
)
# on a narrow page in lines of at most 24 letters
_IN_LINES = (
    f"!is_narrow || length(datum.label) <= 24 ? {_SHORTENED} : "
    f"split(replace({_SHORTENED}, regexp('(.{{6,23}}[ _-])(?=.)(?!runs)', 'g'), '$1\\n'), '\\n')"
)
#: Parameters of every chart, which a page sets: characters of a run's name on an axis, and whether the page is narrow.
PAGE = [alt.VariableParameter(name="label_characters", value=52), alt.VariableParameter(name="is_narrow", value=False)]
NAMES = alt.Axis(labelExpr=_IN_LINES, labelLimit=400, ticks=False)
NAMES_AND_GRID = alt.Axis(labelExpr=_IN_LINES, labelLimit=400, ticks=False, grid=True)
#: Numbers as labels: 800, 1.2k. The format of an axis would give all the prefix of the largest: 0k.
COUNTS = "format(datum.value, '~s')"
#: Bytes with their unit (powers of 1000): 1.5 GB.
BYTES = "replace(format(datum.value, '.6~s'), regexp('([a-zA-Z]?)$'), ' $1B')"
MEGABYTES = BYTES.replace("datum.value", "datum.value * 1e6")  # the same, of a number of MB
FONT = "Arial, Liberation Sans, Helvetica, sans-serif"

#: Tooltips of the run: in a chart with a column run_id, and in that of one run (alike_panels).
RUN, PANEL_RUN = ("run_id:N", "run"), ("run:N", "run")
ROW = ("row:N", "run, or setting")  # of a mark for all runs of a row
#: Expression: the numbers of two fields as a range, 4 to 6; one where they are equal.
RANGE = "format(datum.{0}, ',') + (datum.{1} > datum.{0} ? ' to ' + format(datum.{1}, ',') : '')"

_P = ParamSpec("_P")
_Draw = Callable[_P, alt.TopLevelMixin]

#: Every chart of the report by its name, which is that of its function and of its files.
CHARTS: dict[str, Callable[..., alt.TopLevelMixin]] = {}
#: What each chart shows, in one sentence.
DESCRIPTIONS: dict[str, str] = {}


def chart(description: str) -> Callable[[_Draw[_P]], _Draw[_P]]:
    """Decorator of a function that draws a chart: registers it in CHARTS and gives the chart the look of all.

    description: the chart in one sentence, for readers that do not see it.
    """

    def declare(draw: _Draw[_P]) -> _Draw[_P]:
        @functools.wraps(draw)
        def finished(*args: _P.args, **kwargs: _P.kwargs) -> alt.TopLevelMixin:
            safe: Callable[..., alt.TopLevelMixin] = draw
            with debug_mode(False):  # a test validates each chart; here that would take half of the time
                return with_look(safe(*map(_drawable, args), **kwargs), description)

        CHARTS[draw.__name__] = finished
        DESCRIPTIONS[draw.__name__] = description
        return finished

    return declare


def _drawable(argument: Any) -> Any:
    """A frame or a text with nothing in it that cannot be drawn: on such characters vl-convert ends the process."""
    if isinstance(argument, pl.DataFrame):
        return argument.with_columns(cs.string().map_batches(_each_for_xml, return_dtype=pl.String))
    return for_xml(argument) if isinstance(argument, str) else argument


def _each_for_xml(texts: pl.Series) -> pl.Series:
    return pl.Series([None if text is None else for_xml(text) for text in texts], dtype=pl.String)


def data_chart(frame: pl.DataFrame) -> alt.Chart:
    """A chart of the frame's rows."""
    # a tuple, since Altair copies lists with all that is in them, and several times
    return alt.Chart(alt.InlineData(tuple(rows_of(frame))))


def with_look(chart: alt.TopLevelMixin, description: str) -> alt.TopLevelMixin:
    """The chart with the look of all figures. Every call on a chart copies it whole, hence a single one."""
    config = alt.Config(
        font=FONT,
        numberFormat=",~r",  # 1e+2 is what a logarithmic axis has else
        axis=alt.AxisConfig(
            labelColor=INK, titleColor=INK, titleFontWeight="normal", labelFontSize=FONT_SIZE,
            titleFontSize=FONT_SIZE, tickCount=_TICKS, gridColor="#e6e6e6", domainColor="#888", tickColor="#888",
        ),
        axisY=alt.AxisConfig(maxExtent=400),  # else a title stands on long names of runs
        legend=alt.LegendConfig(
            labelColor=INK, titleColor=INK, titleFontWeight="normal", titleFontSize=FONT_SIZE,
            labelFontSize=FONT_SIZE, labelLimit=300,
        ),
        title=alt.TitleConfig(
            color=INK, anchor="start", fontSize=FONT_SIZE, subtitleColor="#555", subtitleFontSize=FONT_SIZE
        ),
        view=alt.ViewConfig(stroke="#bbb"),
    )  # fmt: skip
    look = {"description": description, "padding": 6, "background": "white"}
    if isinstance(chart, RunPanels):
        return chart.finished({**look, "config": config.to_dict(), "params": [param.to_dict() for param in PAGE]})
    styled: Any = chart.properties(**look, config=config)
    own = [] if styled["params"] is alt.Undefined else styled["params"]
    styled["params"] = [*own, *PAGE]
    finished: alt.TopLevelMixin = styled
    return finished


def svg(spec: dict[str, Any]) -> str:
    """A chart's specification drawn as SVG."""
    drawn: str = vl_convert.vegalite_to_svg(spec, allowed_base_urls=[])
    # Vega numbers gradients through the whole process; a file must not depend on what was drawn before it
    for number, name in enumerate(dict.fromkeys(re.findall(r' id="(gradient_\d+)"', drawn))):
        drawn = drawn.replace(f' id="{name}"', f' id="gradient-{number}"').replace(
            f"url(#{name})", f"url(#gradient-{number})"
        )
    return drawn


def panel_title(run_id: str, width: int, subtitle: str | None = None) -> alt.Title:
    """The run's name over a panel of that many px, in at most three lines; the tooltips hold the whole name."""
    lines = textwrap.wrap(run_id, max(12, width // 7), break_on_hyphens=True) or [run_id]
    if len(lines) > 3:
        lines = [*lines[:2], lines[2][:-1] + "…"]
    return alt.Title(lines, subtitle=subtitle) if subtitle else alt.Title(lines)


def row_chart(frame: pl.DataFrame) -> Any:
    """A chart of the frame's rows with a row a run, or, of many runs, a setting (panels.choosable): field `row`."""
    return data_chart(frame).transform_calculate(row="datum.row || datum.run_id")


def run_rows(axis: alt.Axis | None = NAMES) -> alt.Y:
    """The rows of a row_chart, in its order. axis: NAMES, NAMES_AND_GRID, or None beside one with the names."""
    return alt.Y("row:N", title="run, or setting (name)", sort=None, axis=axis)


def run_points(base: Any) -> Any:
    """A point for each run of a row_chart; it is not seen where the row is the run's own."""
    # not a filter: Vega warns of a layer without data
    opacity = alt.condition("datum.row != datum.run_id", alt.value(0.4), alt.value(0))
    return base.mark_point(size=20, filled=True, color=INK).encode(opacity=opacity)


def tips(*fields: tuple[str, ...]) -> list[alt.Tooltip]:
    """Tooltips: each field with its title and, of some numbers, the format."""
    return [alt.Tooltip(name, title=title, format=form[0] if form else alt.Undefined) for name, title, *form in fields]


def colors(field: str, title: str) -> alt.Color:
    """Colours of names."""
    return alt.Color(field, title=title, scale=alt.Scale(range=OKABE_ITO))


def shapes(field: str, title: str) -> alt.Shape:
    """Shapes of marks by names."""
    return alt.Shape(field, title=title, scale=alt.Scale(range=SHAPES))


def kind_color(field: str, title: str | None, colors: Mapping[str, str]) -> alt.Color:
    """Colours of kinds by name, in that order, with a legend above."""
    scale = alt.Scale(domain=list(colors), range=list(colors.values()))
    return alt.Color(field, title=title, scale=scale, legend=alt.Legend(orient="top", labelLimit=0))


def row_step(count: int, step: int) -> alt.Step:
    """Height of so many rows: `step` px each, but enough for the axis title."""
    return alt.Step(max(step, 120 // count))


def host_order(run: pl.DataFrame) -> list[str]:
    """Names of a run's hosts in their order."""
    ends = [run.select(host=f"{end}_host", place=f"{end}_place") for end in ("src", "dst")]
    return pl.concat(ends).unique().sort("place")["host"].to_list()


def host_axis(has_long_names: bool, angle_of_long: int) -> alt.Axis:
    """An axis of hosts. angle_of_long: degrees by which names of more than five letters are turned."""
    return alt.Axis(
        labelAngle=angle_of_long if has_long_names else 0, labelLimit=110, labelFontSize=FONT_SIZE, ticks=False,
        labelPadding=3, domain=False,
    )  # fmt: skip


def log_domain(values: pl.Series) -> tuple[float, float]:
    """Domain of a log scale that holds the values, and is never empty."""
    low, high = (max(1.0, float(value)) for value in (values.min(), values.max()))  # type: ignore[arg-type]
    return min(low, high / 10), high


def positive_scale(frame: pl.DataFrame, names: list[str]) -> alt.Scale:
    """Logarithmic where the values span much, for then small runs would lie on one another."""
    values = pl.concat([frame[name].rename("value").drop_nulls() for name in names])
    low, high = float(values.min()), float(values.max())  # type: ignore[arg-type]
    if low <= 0 or high / low < 5:
        return alt.Scale(zero=low < 0.5 * high, nice=True)
    return alt.Scale(type="log", domain=[low / 1.3, high * 1.3], nice=False)


def positive_axis(scale: alt.Scale, **properties: Any) -> alt.Axis:
    """The axis of a positive_scale: a logarithmic one has chosen ticks, as Vega labels nearly every digit."""
    domain: Any = scale.domain
    if scale.type == "log":  # Vega leaves labels out where there are more ticks than tickCount
        properties |= {"values": log_ticks(*domain), "tickCount": 100}
    return alt.Axis(labelOverlap="greedy", labelSeparation=8, **properties)


def log_ticks(low: float, high: float) -> list[float]:
    """At most six values of 1, 2, 5 or 1, 3 or 1 times powers of ten from low to high, which are above 0."""
    decades = range(math.floor(math.log10(low)), math.floor(math.log10(high)) + 1)
    for digits in ((1, 2, 5), (1, 3), (1,)):
        ticks = [digit * 10.0**decade for decade in decades for digit in digits]
        inside = [tick for tick in ticks if low <= tick <= high]
        if len(inside) <= _MOST_LOG_TICKS:
            return inside
    return inside[:: math.ceil(len(inside) / _MOST_LOG_TICKS)]
