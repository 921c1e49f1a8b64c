"""A regression as a document: text, a page of its own, LaTeX, JSON or CSV.

Only the page loads Altair, which takes longer to load than a regression to fit; hence the imports in `html`.
"""

from __future__ import annotations

from collections.abc import Callable

from ddnn_traces.regression import Regression, documents, words


def html(regression: Regression) -> str:
    """One HTML page that loads nothing, with the residual plots as SVG; light or dark as the reader's system is."""
    import vl_convert
    from markupsafe import Markup

    from ddnn_traces.report import page
    from ddnn_traces.report.chapters.regression import residual_charts

    figures = []
    for chart, points, caption in residual_charts(regression):
        svg = vl_convert.vegalite_to_svg(chart(points, regression.left).to_dict(validate=False), allowed_base_urls=[])
        figures.append((caption, Markup(svg)))  # noqa: S704, Vega escapes names
    return page.render(
        "regression.html",
        title=f"Regression of {regression.left}",
        regression=regression,
        summary=words.summary(regression),
        tables=words.tables(regression),
        figures=figures,
        chapters=words.sections(regression),
    )


#: Formats and the functions that write them.
FORMATS: dict[str, Callable[[Regression], str]] = {
    "text": documents.text,
    "table": documents.text,  # as the other commands name it
    "html": html,
    "latex": documents.latex,
    "json": documents.json_text,
    "csv": documents.csv_text,
}
