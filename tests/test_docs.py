"""The docs say what the program does: generated pages are current, commands in the docs exist."""

import importlib.util
import re
from pathlib import Path

import pytest

from ddnn_traces.cli import cli

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"


def generator():
    spec = importlib.util.spec_from_file_location("generate", DOCS / "generate.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("page", ["tables.md", "queries.md", "cli.md"])
def test_generated_pages_are_current(page):
    assert (DOCS / page).read_text(encoding="utf-8") == generator().PAGES[page](), "run `make docs`"


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "data/README.md", "docs/design.md"])
def test_commands_named_in_the_docs_exist(page):
    named = re.findall(r"ddnn-traces ([a-z]+)", (ROOT / page).read_text(encoding="utf-8"))
    assert set(named) <= set(cli.commands)


def test_files_named_in_the_readme_exist():
    links = re.findall(r"\]\((?!http)([^)#]+)\)", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_every_make_target_in_the_docs_exists():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for page in ("README.md", "CONTRIBUTING.md"):
        for target in re.findall(r"`?\bmake ([a-z-]+)", (ROOT / page).read_text(encoding="utf-8")):
            assert re.search(rf"^{target}:", makefile, re.M), f"{page}: make {target}"
