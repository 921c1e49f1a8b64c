"""Pages, each one HTML file that loads nothing: the report, with its charts as files next to it, and a regression."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jinja2
import vl_convert
from markupsafe import Markup

from ddnn_traces.errors import UsageError
from ddnn_traces.query import catalogue
from ddnn_traces.regression import words
from ddnn_traces.report.chapters import chang, cheng, farhat, gao, overview, regression, wire, zerwas
from ddnn_traces.report.charts import style
from ddnn_traces.report.charts.style import CHARTS
from ddnn_traces.report.section import Chapter, Results, Section
from ddnn_traces.store.whole_files import make_folders, whole_file
from ddnn_traces.text import for_xml
from ddnn_traces.version import __version__

if TYPE_CHECKING:
    from ddnn_traces.query.dataset import Dataset
    from ddnn_traces.regression import Regression

CHAPTERS = (
    overview.chapter, zerwas.chapter, regression.chapter, farhat.chapter, chang.chapter, cheng.chapter, gao.chapter,
    wire.chapter,
)  # fmt: skip
PNG_SCALE = 2
_HERE = Path(__file__).parent


def write(dataset: Dataset, out: Path) -> Path:
    """Write the report to `out` and its charts to the folder `<stem of out>-charts` next to it; return `out`.

    The same dataset gives the same bytes. Files are replaced whole, and a chart that the dataset no longer has is
    removed. Raises UsageError where `out` is a folder or a pipe.
    """
    if out.exists() and not out.is_file():
        raise UsageError(f"{out} is a folder or a pipe; name the report's file, for example report.html")
    chapters: dict[Chapter, list[Section]] = {}
    drawings: dict[str, Future[dict[str, bytes]]] = {}
    with ThreadPoolExecutor(1) as artist, Results(dataset) as results:  # the thread draws while DuckDB runs queries
        heading = title(results)
        for chapter, section in sections(results):
            chapters.setdefault(chapter, []).append(section)
            for figure in section.figures:
                drawings[figure.name] = artist.submit(_draw, figure.spec)
    folder = out.with_name(f"{out.stem}-charts")
    make_folders(folder)
    for name in CHARTS:
        files = drawings[name].result() if name in drawings else {}
        for suffix in ("svg", "png"):
            if suffix in files:
                _write(folder / f"{name}.{suffix}", files[suffix])
            else:
                (folder / f"{name}.{suffix}").unlink(missing_ok=True)
    _write(out, _page(heading, chapters, folder.name).encode())
    return out


def title(results: Results) -> str:
    """The page's title, which states how many runs are synthetic."""
    note = f" ({results.synthetic} synthetic, not measured)" if results.synthetic else ""
    return f"Traffic of distributed training runs{note}"


def sections(results: Results) -> Iterator[tuple[Chapter, Section]]:
    """All sections of the report, in the page's order."""
    for chapter in CHAPTERS:
        for section in chapter.sections(results):
            yield chapter, section


def _draw(spec: dict[str, Any]) -> dict[str, bytes]:
    """A chart's files, by suffix."""
    svg = style.svg(spec)
    return {"svg": svg.encode(), "png": vl_convert.svg_to_png(svg, scale=PNG_SCALE)}


def _write(path: Path, content: bytes) -> None:
    with whole_file(path) as half_written:
        half_written.write_bytes(content)


def _page(heading: str, chapters: dict[Chapter, list[Section]], folder: str) -> str:
    # both are the project's or Vega's own text; only an early end of the element must be prevented
    script = Markup((_HERE / "page.js").read_text(encoding="utf-8"))  # noqa: S704
    vega = Markup(vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;").replace("</script", "<\\/script"))  # noqa: S704
    return _render(
        "page.html", title=heading, chapters=chapters, queries=_queries(chapters), folder=folder, script=script,
        vega=vega,
    )  # fmt: skip


def _render(template: str, **values: Any) -> str:
    """A template of this folder with the values, the style sheet and the version; texts are escaped, Markup is not."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_HERE), autoescape=True, undefined=jinja2.StrictUndefined,
        trim_blocks=True, lstrip_blocks=True, finalize=lambda value: for_xml(value) if type(value) is str else value,
    )  # fmt: skip
    css = Markup((_HERE / "page.css").read_text(encoding="utf-8"))  # noqa: S704, the project's own
    return environment.get_template(template).render(css=css, version=__version__, **values)


def regression_page(fit: Regression, verbose: bool = False) -> str:
    """A regression's page, with its residual plots as SVG in it; light or dark as the reader's system is."""
    figures = [
        (caption, Markup(style.svg(chart(points, fit.left).to_dict(validate=False))))  # noqa: S704, Vega escapes names
        for chart, points, caption in regression.residual_charts(fit)
    ]
    return _render(
        "regression.html", title=f"Regression of {fit.left}", regression=fit, summary=words.summary(fit),
        blocks=words.blocks(fit, verbose), figures=figures,
    )  # fmt: skip


def _queries(chapters: dict[Chapter, list[Section]]) -> list[catalogue.Query]:
    """The queries that the page's figures and tables come from, and those that these read, by name."""
    wanted = {source.query for found in chapters.values() for section in found for source in section.sources}
    read: set[str] = set()
    while wanted:
        read |= wanted
        wanted = {
            name for query in wanted for name in catalogue.find(query).inputs if name in catalogue.catalogue()
        } - read
    return [catalogue.find(name) for name in sorted(read)]
