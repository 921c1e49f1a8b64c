"""The docs say what the program does: generated pages are current, commands in the docs exist."""

import re
import struct
from itertools import pairwise
from pathlib import Path

import click
import pytest
from markdown_it import MarkdownIt
from tools import script

import ddnn_traces
from ddnn_traces.cli import cli
from ddnn_traces.query.catalogue import SUBJECTS, catalogue
from ddnn_traces.report import plot
from ddnn_traces.report.charts import style
from ddnn_traces.store import schema
from ddnn_traces.traffic.ns3.ns3_job import KEYS as NS3_KEYS
from ddnn_traces.traffic.ns3.ns3_job import SHORT_KEYS
from ddnn_traces.traffic.simulator import specification

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
GENERATE = script("docs/generate.py")
GENERATED = ["tables.md", "queries.md", "charts.md", "cli.md", "api.md"]  # and those of queries/
HAND_WRITTEN = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "data/README.md")),
    *sorted(page for page in DOCS.glob("*.md") if page.name not in GENERATED),
]


def test_each_locked_package_has_a_licence():
    licences = script("docs/licences.py")
    rows = re.findall(r"^\| (\S+) (\S+) \| [^|]+ \| \S", (DOCS / "licences.md").read_text(), re.M)
    assert dict(rows) == {name: version for lock in licences.LOCKS for name, version in licences.locked(lock).items()}


@pytest.mark.parametrize("lock", sorted(ROOT.glob("lock/*.txt")), ids=lambda path: path.stem)
def test_locks_have_hashes_and_name_no_registry(lock):
    text = lock.read_text()
    assert "://" not in text
    if lock.stem not in ("constraints", "torch"):  # the Makefile says why torch has none
        assert len(re.findall(r"^\S+==", text, re.M)) == len(re.findall(r"^\S+==\S+ \\\n +--hash=sha256:", text, re.M))


@pytest.mark.parametrize("page", [*GENERATED, *sorted(f"queries/{path.name}" for path in DOCS.glob("queries/*"))])
def test_generated_pages_are_current(page):
    assert (DOCS / page).read_text(encoding="utf-8") == GENERATE.PAGES[page](), "run `make docs`"


def test_every_query_has_a_subject_and_a_place():
    assert {*GENERATE.PAGES} == {*GENERATED, *(f"queries/{path.name}" for path in DOCS.glob("queries/*"))}
    assert {query.subject for query in catalogue().values()} == {*SUBJECTS}
    for query in catalogue().values():
        assert f"\n## {query.name}\n" in (DOCS / "queries" / f"{query.subject}.md").read_text(encoding="utf-8")


def test_the_python_interface_is_documented():
    page = (DOCS / "api.md").read_text(encoding="utf-8")
    headings = re.findall(r"^###? (\S+)$", page, re.M)
    assert {f"ddnn_traces.{name}" for name in ddnn_traces.__all__} <= set(headings)
    for module in GENERATE.MODULES:
        assert {f"{module}.{name}" for name in getattr(ddnn_traces, module).__all__} <= set(headings)
    assert all(f"\n| {name} | " in page for name in ddnn_traces.charts.__all__)
    for name in ("query", "sql", "plot", "close", "row_counts"):
        assert f"#### Dataset.{name}\n" in page
    for name in ("connection", "queries", "run_ids", "path", "only_run"):
        assert f"- `{name}: " in page
    assert "#### Regression.summary\n" in page
    # a docstring for each: no heading is followed by a signature and nothing else
    assert re.findall(r"^#+ .*\n\n```python\n[^`]*```\n\n(?=#|\Z)", page, re.M) == []


def test_every_query_with_a_figure_is_among_the_charts():
    page = (DOCS / "charts.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^### (\w+)$", page, re.M)) == set(plot.DRAWN)
    shown = set(re.findall(r"^- `(\w+)`: ", page, re.M))
    # charts of the commands `simulate sweep` and `simulate layers`, of queries of sweeps
    assert set(style.CHARTS) - shown == {"iteration_time", "remaining_time", "profile_layers"}
    assert len(re.findall(r"^!\[", page, re.M)) >= 3


def test_the_keys_of_a_run_are_documented():
    page = (DOCS / "files.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`(\w+)`", page.partition("### Keys of run.toml")[2].partition("```")[0]))
    columns = {column.name for column in schema.table("runs").columns if "metadata" in column.source}
    assert columns - named == set()
    assert named <= {column.name for column in schema.table("runs").columns}


def test_the_keys_of_a_simulated_job_are_documented():
    keys = {
        "docs/simulator.md": {*specification.KEYS, *specification.LIST_KEYS},
        "docs/ns3.md": {*NS3_KEYS, *SHORT_KEYS},
    }
    for page, known in keys.items():
        text = (ROOT / page).read_text().partition("## Keys of a job")[2].partition("\n## ")[0]
        rows = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `")]
        assert set(re.findall(r"`(\w+)`", " ".join(rows))) == known, page


def test_the_cookbook_has_twenty_one_questions():
    page = (DOCS / "cookbook.md").read_text(encoding="utf-8")
    assert [int(number) for number in re.findall(r"^## (\d+)\. ", page, re.M)] == [*range(1, 22)]
    assert (
        len(re.findall(r"^```(?:sql|python|sh)$", page, re.M)) == len(re.findall(r"^```text$", page, re.M)) == 22
    )  # the last has two


def test_the_readme_fits_one_screen_and_a_half():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 80
    assert (DOCS / "report.png").stat().st_size < 300_000
    width, height = struct.unpack(">II", (DOCS / "report.png").read_bytes()[16:24])
    assert (width, height) == (1400, 900)


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
    names = re.findall(r"`(_?[A-Z][A-Z_]+|test_\w+|not_in_the_report|read_pairs)`", text)
    code += "".join(path.read_text(encoding="utf-8") for path in (ROOT / "ddnn_traces/release").rglob("__init__.py"))
    assert [name for name in names if not re.search(rf"\b{name}\b", code)] == []


def paragraphs(page):
    """The prose of a Markdown page: without headings, tables, code blocks and generated parts; code is one word."""
    text = re.sub(r"<!-- begin .*?<!-- end \w+ -->", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for before, token in pairwise(MarkdownIt("commonmark").enable("table").parse(text)):
        if before.type == "paragraph_open":
            words = {"code_inline": "Code", "softbreak": " "}
            yield "".join(words.get(child.type, child.content) for child in token.children)


@pytest.mark.parametrize("page", HAND_WRITTEN, ids=lambda page: page.stem)
def test_no_sentence_has_more_than_35_words(page):
    sentences = [s for text in paragraphs(page) for s in re.split(r"(?<=[.!?])[)\"']*\s+(?=[\"'(]*[A-Z0-9])", text)]
    assert sentences
    assert [sentence for sentence in sentences if len(sentence.split()) > 35] == []


def test_every_make_target_in_the_docs_exists():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for page in ("README.md", "CONTRIBUTING.md"):
        for target in re.findall(r"`?\bmake ([a-z-]+)", (ROOT / page).read_text(encoding="utf-8")):
            assert re.search(rf"^{target}:", makefile, re.M), f"{page}: make {target}"


#: Names of result columns that are conclusions.
VERDICTS = re.compile(
    r"verdict|flagged|agrees|structured|is_ring|is_a?synchronous|more_often_than_chance|several_exchanges|interval_of|\w*confidence"
)


def test_the_page_of_verdicts_has_every_one():
    found = {
        f"{query.name}.{column.name}"
        for query in catalogue().values()
        for column in query.columns
        if VERDICTS.fullmatch(column.name)
    }
    named = re.findall(r"`(\w+\.\w+)`", (ROOT / "docs/verdicts.md").read_text(encoding="utf-8"))
    assert len(found) > 15
    assert set(named) == found


def test_questions_lead_to_queries_charts_and_commands():
    """A row that says plot has a chart; commands and their options exist."""
    text = (DOCS / "questions.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([^|]+\?[^|]*) \| (.+) \|$", text, re.M)
    assert len(rows) >= 30
    for question, answer in rows:
        names = re.findall(r"\[(\w+)\]\(queries/\w+\.md#(\w+)\)", answer)
        assert all(name == anchor and name in catalogue() for name, anchor in names), question
        if answer.endswith("plot"):
            assert names[-1][0] in plot.DRAWN, question
        for command in re.findall(r"`ddnn-traces ([^`]+)`", answer):
            found = cli
            for word in command.split():
                if isinstance(found, click.Group):
                    found = found.get_command(click.Context(found), word)
            assert found is not None, command
            options = {option for param in found.params for option in param.opts}
            assert {word for word in command.split() if word.startswith("--")} <= options, command
