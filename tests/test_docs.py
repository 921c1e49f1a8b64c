"""The docs say what the program does: generated pages are current, commands in the docs exist."""

import doctest
import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

import ddnn_traces
from ddnn_traces.cli import cli

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"


def generator(name="generate"):
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("page", ["tables.md", "queries.md", "cli.md"])
def test_generated_pages_are_current(page):
    assert (DOCS / page).read_text(encoding="utf-8") == generator().PAGES[page](), "run `make docs`"


@pytest.mark.long
def test_the_cookbook_shows_what_its_examples_print(sample_dataset, tmp_path):
    cookbook = generator("cookbook")
    page = (DOCS / "cookbook.md").read_text(encoding="utf-8")
    assert [int(number) for number in re.findall(r"^## (\d+)\. ", page, re.M)] == [*range(1, 21)]
    examples = cookbook.EXAMPLE.findall(page)
    assert len(examples) == len(re.findall(r"^```(?:sql|python|sh)$", page, re.M)) == 20
    (tmp_path / "dataset").symlink_to(sample_dataset.path)
    assert cookbook.answered(page, tmp_path) == page, "look at it, then run `python docs/cookbook.py`"


@pytest.mark.parametrize(
    "page",
    [
        "README.md",
        "CONTRIBUTING.md",
        "data/README.md",
        "docs/testbed.md",
        "docs/design.md",
        "docs/cookbook.md",
        "docs/clocks.md",
        "docs/exports.md",
        "docs/traffic_model.md",
        "docs/simulator.md",
        "docs/regression.md",
    ],
)
def test_commands_named_in_the_docs_exist(page):
    named = re.findall(r"ddnn-traces ([a-z]+)", (ROOT / page).read_text(encoding="utf-8"))
    assert set(named) <= set(cli.commands)


def test_files_named_in_the_readme_exist():
    links = re.findall(r"\]\((?!http)([^)#]+)\)", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_files_and_names_in_contributing_exist():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    paths = [path for path in re.findall(r"`([a-z_]+/[\w./-]+)`", text) if not re.search("[A-Z]{4}", path)]
    assert len(paths) > 40
    assert [path for path in paths if not (ROOT / path).exists()] == []
    code = "".join(path.read_text(encoding="utf-8") for path in map(ROOT.joinpath, paths) if path.suffix == ".py")
    names = re.findall(r"`(_?[A-Z][A-Z_]+|test_\w+|not_in_the_report|without_log|of_logs|read_pairs)`", text)
    code += "".join(path.read_text(encoding="utf-8") for path in (ROOT / "ddnn_traces/release").rglob("__init__.py"))
    assert [name for name in names if not re.search(rf"\b{name}\b", code)] == []


def test_every_make_target_in_the_docs_exists():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for page in ("README.md", "CONTRIBUTING.md"):
        for target in re.findall(r"`?\bmake ([a-z-]+)", (ROOT / page).read_text(encoding="utf-8")):
            assert re.search(rf"^{target}:", makefile, re.M), f"{page}: make {target}"


@pytest.fixture
def demo(once):
    """Folder in which `ddnn-traces demo` has run, and what it printed."""
    folder = once("demo", run_demo)
    return folder, (folder / "printed.txt").read_text(encoding="utf-8")


def run_demo(folder):
    folder.mkdir()
    command = [sys.executable, "-c", "from ddnn_traces.cli import main; main()", "demo"]
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    (folder / "printed.txt").write_text(result.stdout, encoding="utf-8")


@pytest.mark.long
def test_the_readme_shows_what_the_demo_prints(demo):
    _, printed = demo
    (block,) = re.findall(r"^```text\n(.*?)^```", (ROOT / "README.md").read_text(encoding="utf-8"), re.M | re.S)
    lines = {line.rstrip() for line in printed.splitlines()}
    assert [line for line in block.splitlines() if line not in lines] == []


@pytest.mark.long
def test_the_demo_leaves_a_dataset_and_a_report(demo):
    folder, _ = demo
    assert (folder / "demo" / "report.html").stat().st_size > 100_000
    with ddnn_traces.open(folder / "demo" / "dataset", read_only=True) as dataset:
        compared = dataset.query("ring_comparison")
        assert len(compared) == 48
        assert compared["agrees"].all()


@pytest.mark.long
def test_python_examples_in_the_readme(demo, monkeypatch):
    folder, _ = demo
    monkeypatch.chdir(folder)
    result = doctest.testfile(str(ROOT / "README.md"), module_relative=False)
    assert result.attempted >= 5
    assert result.failed == 0
