"""Hooks of `make site`: pages from files that are outside docs/, and links to files of the repository.

README.md is the site's home. A link to a file that has no page leads to the repository, if pyproject.toml names its
address, and is else the text alone.
"""

from __future__ import annotations

import posixpath
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parents[1]
#: Pages by the file that they are made from.
PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "data/README.md": "sample.md",
}
_LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)\s#]+)(#[^)\s]*)?\)")
_IMAGE = re.compile(r"(!\[[^\]]*\])\(([^)\s]+)\)")


def on_files(files: Any, config: Any) -> Any:
    """Add the pages from outside docs/."""
    for source, page in PAGES.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """The page's text with links that are right in the site."""
    name = page.file.src_uri
    source = next((source for source, made in PAGES.items() if made == name), f"docs/{name}")
    return linked(markdown, source, repository(), dict(_titles(config.nav)))


def _titles(nav: Any) -> Iterator[tuple[str, str]]:
    """The pages of mkdocs.yml's nav, each with its title."""
    for entry in nav:
        for title, inner in entry.items():
            if isinstance(inner, str):
                yield inner, title
            else:
                yield from _titles(inner)


def linked(markdown: str, source: str, address: str | None, titles: Mapping[str, str]) -> str:
    """The text of the repository's file `source` with links from docs/, and titles where a link's text is a file.

    address: of the repository's files, or None. titles: of pages, by file.
    """
    folder = posixpath.dirname(source)
    # the folder of the page that is made of it
    place = posixpath.dirname(PAGES.get(source, source.removeprefix("docs/")))

    def link(match: re.Match[str]) -> str:
        text, target, anchor = match[1], match[2], match[3] or ""
        if re.match(r"[a-z]+:", target):
            return match[0]
        path = posixpath.normpath(posixpath.join(folder, target))
        if not (ROOT / path).exists():
            return match[0]  # the build reports it
        if path in PAGES or (path.startswith("docs/") and (ROOT / path).is_file()):
            page = PAGES.get(path, path.removeprefix("docs/"))
            title = titles.get(page, text) if re.fullmatch(r"[\w./]+\.md", text) else text
            return f"[{title}]({posixpath.relpath(page, place)}{anchor})"
        return f"[{text}]({address}/{path}{anchor})" if address else text

    def image(match: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(folder, match[2]))
        return f"{match[1]}({posixpath.relpath(path.removeprefix('docs/'), place)})"

    return _IMAGE.sub(image, _outside_code(_LINK, link, markdown))


def _outside_code(pattern: re.Pattern[str], change: Any, markdown: str) -> str:
    """The text with each match changed that is not in a fenced block."""
    parts = re.split(r"(^```.*?^```$)", markdown, flags=re.M | re.S)
    return "".join(part if number % 2 else pattern.sub(change, part) for number, part in enumerate(parts))


def repository() -> str | None:
    """Where files of the repository are read in a browser, from the project's URLs."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    urls = {name.lower(): url.rstrip("/") for name, url in project.get("urls", {}).items()}
    found = urls.get("repository") or urls.get("source")
    return f"{found}/blob/HEAD" if found else None
