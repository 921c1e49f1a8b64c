"""The page: one HTML file that loads nothing, with every chart as SVG and PNG in a folder beside it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import jinja2
import vl_convert
from markupsafe import Markup

from ddnn_traces.errors import UsageError
from ddnn_traces.query import catalogue
from ddnn_traces.report import contents
from ddnn_traces.report.section import Chapter, Figure
from ddnn_traces.store.whole_files import whole_file
from ddnn_traces.version import __version__

if TYPE_CHECKING:
    from ddnn_traces.query.dataset import Dataset

PNG_SCALE = 2
_HERE = Path(__file__).parent


def write(dataset: Dataset, out: Path) -> Path:
    """Write the report to `out` and its charts to the folder `<stem of out>-charts` beside it; return `out`.

    The same dataset gives the same bytes. Files are replaced whole, and a chart that the dataset no longer has is
    removed. Raises UsageError where `out` is a folder.
    """
    if out.is_dir():
        raise UsageError(f"{out} is a folder; name the report's file, for example {out / 'report.html'}")
    drawings: dict[str, Future[dict[str, bytes]]] = {}
    with ThreadPoolExecutor(1) as artist:  # draws while DuckDB answers

        def begin(figure: Figure) -> None:
            drawings[figure.name] = artist.submit(_draw, figure)

        chapters = contents.chapters(dataset, begin)
    folder = out.with_name(f"{out.stem}-charts")
    folder.mkdir(parents=True, exist_ok=True)
    for name in contents.FIGURES:
        files = drawings[name].result() if name in drawings else {}
        for suffix in ("svg", "png"):
            if suffix in files:
                _write(folder / f"{name}.{suffix}", files[suffix])
            else:
                (folder / f"{name}.{suffix}").unlink(missing_ok=True)
    _write(out, _page(contents.title(dataset), chapters, folder.name).encode())
    return out


def _draw(figure: Figure) -> dict[str, bytes]:
    """The figure's files, by suffix."""
    svg = _renumbered(vl_convert.vegalite_to_svg(figure.spec, allowed_base_urls=[]))
    return {"svg": svg.encode(), "png": vl_convert.svg_to_png(svg, scale=PNG_SCALE)}


def _renumbered(svg: str) -> str:
    """Vega numbers gradients through the whole process; a file must not depend on what was drawn before it."""
    for number, name in enumerate(dict.fromkeys(re.findall(r' id="(gradient_\d+)"', svg))):
        svg = svg.replace(f' id="{name}"', f' id="gradient-{number}"').replace(
            f"url(#{name})", f"url(#gradient-{number})"
        )
    return svg


def _write(path: Path, content: bytes) -> None:
    with whole_file(path) as half_written:
        half_written.write_bytes(content)


def _page(title: str, chapters: Sequence[Chapter], folder: str) -> str:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_HERE), autoescape=True, undefined=jinja2.StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    # all are the project's or Vega's own text; only an early end of the element must be kept out
    css, script = (Markup((_HERE / name).read_text(encoding="utf-8")) for name in ("page.css", "page.js"))  # noqa: S704
    vega = Markup(vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;").replace("</script", "<\\/script"))  # noqa: S704
    return environment.get_template("page.html").render(
        title=title,
        chapters=chapters,
        queries=_queries(chapters),
        folder=folder,
        css=css,
        script=script,
        vega=vega,
        version=__version__,
    )


def _queries(chapters: Sequence[Chapter]) -> list[catalogue.Query]:
    """The queries that the page's figures and tables come from, and those that these read, by name."""
    wanted = {source.query for chapter in chapters for source in chapter.sources}
    read: set[str] = set()
    while wanted:
        read |= wanted
        wanted = {
            name for query in wanted for name in catalogue.find(query).inputs if name in catalogue.catalogue()
        } - read
    return [catalogue.find(name) for name in sorted(read)]
