"""The long description of the wheel: README.md with links that also work away from the repository.

Pages of docs/ are at the project's URL `Documentation`, other files at its `Repository`, both in pyproject.toml.
Without such a URL a link is its text alone, and a picture is left out. All else is in pyproject.toml.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from setuptools import setup

HERE = Path(__file__).resolve().parent
_LINK = re.compile(r"(!?)\[([^\]]*)\]\((?![a-z]+:)([^)\s#]+)(#[^)\s]*)?\)")


def long_description() -> str:
    """README.md with absolute links."""
    project = tomllib.loads((HERE / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    urls = {name.lower(): url.rstrip("/") for name, url in project.get("urls", {}).items()}
    site, files = urls.get("documentation"), urls.get("repository") or urls.get("source")

    def absolute(match: re.Match[str]) -> str:
        picture, text, path, anchor = match[1], match[2], match[3], match[4] or ""
        if path.startswith("docs/") and site:
            address = f"{site}/{re.sub('[.]md$', '.html', path.removeprefix('docs/'))}{anchor}"
        elif files:
            address = f"{files}/{'raw' if picture else 'blob'}/HEAD/{path}{anchor}"
        else:
            return "" if picture else text
        return f"{picture}[{text}]({address})"

    return _LINK.sub(absolute, (HERE / "README.md").read_text(encoding="utf-8"))


setup(long_description=long_description(), long_description_content_type="text/markdown")
