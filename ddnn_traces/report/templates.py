"""What all pages share: their templates and scripts, and Vega's programs, which draw in the browser."""

from __future__ import annotations

import base64
import contextlib
import gzip
import json
from importlib import metadata
from pathlib import Path
from typing import Any

import jinja2
import vl_convert
from markupsafe import Markup

from ddnn_traces import cache
from ddnn_traces.store.whole_files import whole_file
from ddnn_traces.text import for_xml
from ddnn_traces.version import __version__

_HERE = Path(__file__).parent


def render(template: str, **values: Any) -> str:
    """A template of this folder with the values, the style sheet and the version; texts are escaped, Markup is not."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_HERE), autoescape=True, undefined=jinja2.StrictUndefined,
        trim_blocks=True, lstrip_blocks=True, finalize=lambda value: for_xml(value) if type(value) is str else value,
    )  # fmt: skip
    environment.filters["code"] = _with_code
    return environment.get_template(template).render(css=css(), version=__version__, **values)


def _with_code(text: str) -> Markup:
    """A text in which what stands between backticks is code."""
    parts = str(for_xml(text)).split("`")
    if len(parts) % 2 == 0:  # one without its other
        return Markup.escape("`".join(parts))
    code = Markup("<code>{}</code>")
    return Markup("").join(code.format(part) if number % 2 else part for number, part in enumerate(parts))


def packed(content: Any) -> str:
    """Compressed JSON: charts of many runs, and rows of tables, are much alike."""
    document = json.dumps(content, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return base64.b64encode(gzip.compress(document.encode(), mtime=0)).decode()


def css() -> Markup:
    """The style sheet of all pages."""
    return Markup((_HERE / "page.css").read_text(encoding="utf-8"))  # noqa: S704, the project's own


def script(name: str) -> Markup:
    """A script of this folder, with what unpacks the content of the page before it."""
    return Markup("".join((_HERE / part).read_text(encoding="utf-8") for part in ("unpack.js", name)))  # noqa: S704


def vega_program() -> str:
    """Vega's programs. They are kept in the user's cache: to bundle them takes a second."""
    folder = cache.folder("vega")
    kept = folder / f"vega-{metadata.version('vl-convert-python')}.js" if folder else None
    with contextlib.suppress(OSError, UnicodeError):
        if kept:
            return kept.read_bytes().decode()
    bundle: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    if kept:
        with contextlib.suppress(OSError), whole_file(kept) as half_written:
            half_written.write_bytes(bundle.encode())
        cache.remove_older(kept, "*.js")
    return bundle


def vega() -> Markup:
    """Vega's programs, for a script element, which must not end early."""
    return Markup(vega_program().replace("</script", "<\\/script"))  # noqa: S704
