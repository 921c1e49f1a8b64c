"""A regression as a document: text, a page of its own, LaTeX, JSON or CSV."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from ddnn_traces.regression import Regression, data, latex, layout, text
from ddnn_traces.version import __version__

if TYPE_CHECKING:
    from markupsafe import Markup

_HERE = Path(__file__).parent


def html(regression: Regression) -> str:
    """One HTML page that loads nothing, with the residual plots as SVG; light or dark as the reader's system is."""
    import jinja2
    from markupsafe import Markup

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_HERE), autoescape=True, undefined=jinja2.StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    return environment.get_template("regression.html").render(
        title=f"Regression of {regression.left}",
        regression=regression,
        summary=layout.summary(regression),
        tables=layout.tables(regression),
        figures=_figures(regression),
        chapters=layout.chapters(regression),
        css=Markup((_HERE / "page.css").read_text(encoding="utf-8")),  # noqa: S704, the project's own
        version=__version__,
    )


def _figures(regression: Regression) -> list[tuple[str, Markup]]:
    import vl_convert
    from markupsafe import Markup

    from ddnn_traces.report.charts import residuals  # Altair takes longer to load than a regression to fit

    points = regression.points.drop_nulls("fitted")
    is_whole = points.height <= residuals.MOST
    drawn = "" if is_whole else f" At most {residuals.MOST:,} of {points.height:,} rows are drawn."
    charts = {}
    if points.height:
        caption = "Residuals against fitted values: a funnel is scatter that grows, a bend a term that is missing."
        charts[caption + drawn] = residuals.residuals_against_fitted(points, regression.left)
    if points["studentized_residual"].count():
        caption = "Studentized residuals in order against normal quantiles: on the line, they are normal."
        charts[caption + drawn] = residuals.normal_quantiles(points)
    svg = {
        caption: vl_convert.vegalite_to_svg(chart.to_dict(validate=False), allowed_base_urls=[])
        for caption, chart in charts.items()
    }
    return [(caption, Markup(drawing)) for caption, drawing in svg.items()]  # noqa: S704, Vega escapes names


#: Kinds of documents and what makes them.
FORMATS: dict[str, Callable[[Regression], str]] = {
    "text": text.text,
    "table": text.text,  # the word of the other commands
    "html": html,
    "latex": latex.latex,
    "json": data.json_text,
    "csv": data.csv_text,
}
