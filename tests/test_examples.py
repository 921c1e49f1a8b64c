"""Every example of README.md and of the pages in docs/ is run, and prints what the page shows below it.

docs/examples.py finds and runs them, and has the list of lines that are not run, with reasons. What needs an extra is
run by tests/release/test_release_examples.py and tests/store/test_store_examples.py.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest
from documented import BLOCKS, Once, examples, lines_of, run_page
from tools import mostly_long

from ddnn_traces.cli import cli

ROOT = Path(__file__).parents[1]


#: Pages with an example that is run here, and those of the quick set.
RUN = [page for page, blocks in BLOCKS.items() if blocks and page not in examples.OF_RELEASES | examples.OF_STORES]
QUICK = ("docs/our_dataset.md", "docs/testbed.md")


@pytest.mark.views
@pytest.mark.parametrize("page", mostly_long(RUN, *QUICK))
def test_examples_run_and_print_what_the_page_shows(page: str, tmp_path: Path, once: Once) -> None:
    run_page(page, tmp_path, once)


def checked(words: list[str]) -> click.Command:
    """The command of a line. Raises UsageError for a command, an option, a choice or an argument that is not known."""
    command: click.Command = cli
    context = click.Context(cli, info_name="ddnn-traces", **cli.context_settings)
    while isinstance(command, click.Group):
        command.parse_args(context, list(words))
        name, inner, words = command.resolve_command(context, [*context._protected_args, *context.args])
        assert inner is not None
        command, context = inner, click.Context(inner, info_name=name, parent=context)
    values, left, _ = command.make_parser(context).parse_args(args=list(words))
    if left:
        raise click.UsageError(f"unexpected {shlex.join(left)}")
    for param in command.params:
        if isinstance(param.type, click.Choice) and isinstance(value := values.get(param.name or ""), str):
            param.type.convert(value, param, context)
    return command


@pytest.mark.parametrize("page", [page for page in BLOCKS if next(lines_of(page), "")])
def test_commands_and_options_of_the_examples_exist(page: str) -> None:
    for line in lines_of(page):
        checked(examples.command_words(line))


@pytest.mark.parametrize(
    "words", ["nothing dataset", "runs dataset --nothing", "runs dataset other", "ingest a --out b --engine quick"]
)
def test_what_the_command_does_not_know_is_found(words: str) -> None:
    with pytest.raises(click.UsageError):
        checked(words.split())


def test_commands_in_the_text_of_a_page_exist() -> None:
    """As `ddnn-traces query DATASET --describe` in a sentence: the command and its options."""
    pages = [path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").glob("*.md")]
    named = 0
    for page in {*pages, *examples.PAGES}:
        for span in re.findall(r"`ddnn-traces ([a-z][^`]*)`", examples.page_text(page)):
            words = span.split()
            command: click.Command = cli
            while isinstance(command, click.Group) and words and words[0] in command.commands:
                command = command.commands[words.pop(0)]
            assert command is not cli, f"{page}: {span}"
            if isinstance(command, click.Group):  # options stand for its first command
                command = command.commands.get("run", command)
            known = {option for param in command.params for option in (*param.opts, *param.secondary_opts)}
            used = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", span))
            assert used <= {*known, "--help"}, f"{page}: {span}"
            named += 1
    assert named > 40


def test_every_line_that_is_not_run_is_in_a_page() -> None:
    for page, beginning in examples.NOT_RUN:
        lines = [line for block in BLOCKS[page] for line in (block.lines if block.kind == "sh" else [block.code])]
        assert any(line.startswith(beginning) for line in lines), f"{page}: {beginning}"
    assert all(reason for reason in examples.NOT_RUN.values())
    of_sudo = [line for page in BLOCKS for line in lines_of(page) if line.startswith("sudo ")]
    assert not any(examples.is_run(page, line) for page in BLOCKS for line in lines_of(page) if line in of_sudo)


def test_python_is_in_a_fenced_block() -> None:
    """Python in an indented block is not found, and so not run."""
    for page in examples.PAGES:
        indented = re.findall(r"^ {4}(?:>>> |import |from \w+ import ).*$", examples.page_text(page), re.M)
        fenced = "".join(block.code for block in BLOCKS[page])
        assert [line for line in indented if line.strip() not in fenced] == [], page


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        ("a\nb\n", "a\nb\n", True),
        ("a\n...\nc\n", "a\nb\nb\nc\n", True),
        ("a\n...\nc\n", "a\nc\n", True),
        ("a\nb\n", "a\nb\nc\n", False),
        ("a\n...\nd\n", "a\nb\nc\n", False),
        ("1.5\n", "1x5\n", False),
    ],
)
def test_shown_output_is_compared(shown: str, printed: str, same: bool) -> None:
    assert examples.agrees(shown, printed) is same


def test_an_example_that_fails_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pages = {
        "sh": "```sh\nddnn-traces runs nothing\n```\n",
        "pipe": "```sh\nddnn-traces runs nothing | cat\n```\n",
        "python": "```python\nassert False\n```\n",
        "doctest": "```python\n>>> 1 + 1\n3\n\n```\n",
    }
    monkeypatch.setattr(examples, "page_text", pages.__getitem__)
    for page in pages:
        with pytest.raises(AssertionError):
            examples.outputs(page, tmp_path)
