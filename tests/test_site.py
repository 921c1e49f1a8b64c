"""The docs site: it asks no other server for anything, and its build fails for what leads nowhere.

`make test-extras` runs these, with mkdocs in DDNN_TRACES_MKDOCS.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
pytestmark = pytest.mark.site


def build(source: Path, out: Path) -> subprocess.CompletedProcess[str]:
    """Build the site of a checkout into a folder, as `make site` does (with --quiet, --strict would find nothing)."""
    command = [os.environ["DDNN_TRACES_MKDOCS"], "build", "--strict", "--site-dir", str(out)]
    return subprocess.run(command, cwd=source, capture_output=True, text=True)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site. Not to be changed."""
    out = tmp_path_factory.mktemp("site")
    done = build(ROOT, out)
    assert done.returncode == 0, done.stderr
    return out


class Loaded(HTMLParser):
    """What a page makes a browser load, and its text."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note the addresses of scripts, style sheets, fonts, pictures and frames; not those of links."""
        values = dict(attrs)
        if tag in ("script", "img", "iframe", "source", "video", "audio", "embed"):
            self.addresses.append(values.get("src") or "")
        if tag == "link" and values.get("rel") not in ("canonical", "next", "prev"):
            self.addresses.append(values.get("href") or "")


def is_elsewhere(address: str) -> bool:
    """Whether an address is of another server."""
    return re.match(r"(?:[a-z]+:)?//", address) is not None


def test_no_page_loads_anything_from_another_server(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 30
    for page in pages:
        addresses = Loaded(page).addresses
        assert any(addresses), page
        assert [address for address in addresses if is_elsewhere(address)] == [], page
    sheets = sorted(site.rglob("*.css"))
    assert sheets
    for sheet in sheets:
        used = re.findall(r"url\(['\"]?([^'\")]+)|@import\s+['\"]([^'\"]+)", sheet.read_text(encoding="utf-8"))
        assert [address for address in (a or b for a, b in used) if is_elsewhere(address)] == [], sheet


def test_such_an_address_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text(
        '<link rel="stylesheet" href="https://fonts.example.org/a.css"><script src="//cdn.example.org/a.js">'
    )
    assert all(is_elsewhere(address) for address in Loaded(page).addresses)
    assert len(Loaded(page).addresses) == 2


def test_everything_that_a_page_loads_is_there(site: Path) -> None:
    for page in site.rglob("*.html"):
        if page.name != "404.html":  # whose addresses are those of the server's root
            for address in filter(None, Loaded(page).addresses):
                if not address.startswith("data:"):
                    assert (page.parent / address.partition("?")[0]).is_file(), f"{page}: {address}"


def test_the_search_knows_the_pages(site: Path) -> None:
    index = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))
    places = {entry["location"].partition("#")[0] for entry in index["docs"]}
    assert {"tutorial.html", "api.html", "queries.html", "contributing.html"} <= places
    assert any("traffic_matrix" in entry["title"] for entry in index["docs"])
    assert (site / "search" / "search_index.js").is_file(), "for pages that are opened from a folder"


def test_pages_from_outside_docs_have_links_that_work(site: Path) -> None:
    home = (site / "index.html").read_text(encoding="utf-8")
    for target in ("tutorial.html", "benchmarks.html#speed-of-ingest", "sample.html", "contributing.html"):
        assert f'href="{target}"' in home
    assert 'src="report.png"' in home


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[a](nothing.md)", "nothing.md"),
        ("[a](tables.md#nothing)", "#nothing"),
        ("[a](../nothing/README.md)", "nothing/README.md"),
        ("![a](nothing.png)", "nothing.png"),
    ],
)
def test_what_leads_nowhere_ends_the_build(tmp_path: Path, text: str, message: str) -> None:
    copy(tmp_path / "copy")
    with (tmp_path / "copy" / "docs" / "papers.md").open("a") as page:
        page.write(f"\n{text}\n")
    done = build(tmp_path / "copy", tmp_path / "site")
    assert done.returncode == 1
    assert message in done.stderr


def test_a_page_without_a_place_ends_the_build(tmp_path: Path) -> None:
    copy(tmp_path / "copy")
    (tmp_path / "copy" / "docs" / "other.md").write_text("# Other\n")
    done = build(tmp_path / "copy", tmp_path / "site")
    assert done.returncode == 1
    assert "other.md" in done.stderr


def copy(folder: Path) -> None:
    """Copy what the site is made from."""
    shutil.copytree(ROOT / "docs", folder / "docs", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("mkdocs.yml", "pyproject.toml", "README.md", "CONTRIBUTING.md", "CHANGELOG.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    for name in ("data", "schemas"):
        (folder / name).symlink_to(ROOT / name)
