"""The examples of README.md and of the pages in docs/: found, run, and their output put below them.

Examples are blocks of code: fenced as sh, sql or python, and indented ones with a line that begins with `ddnn-traces`.
The blocks of a page run one after the other in one folder, which holds what GIVEN says. A block of sh or an indented
one is run by bash, one of SQL as `ddnn-traces sql dataset`, one of Python as a program, or as a doctest where it has
`>>>`. A fenced block of text after a block is its output; where a line of it is `...`, lines are left out there.
tests/test_examples.py runs all of them and compares; of OF_RELEASES, tests/release/test_release_examples.py; of
OF_STORES, tests/store/test_store_examples.py.

    python docs/examples.py [PAGE...]    # runs the examples and writes their output into the pages (make docs-examples)
"""

from __future__ import annotations

import contextlib
import doctest
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
#: Pages that hold no examples of their own, but what a program wrote.
_GENERATED = {"docs/tables.md", "docs/queries.md", "docs/charts.md", "docs/cli.md", "docs/api.md"}
PAGES = [
    *("README.md", "CONTRIBUTING.md", "data/README.md"),
    *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md") if f"docs/{path.name}" not in _GENERATED),
]

_RING = "tests/traces/runs/torch-mlp1-sgd-32-gloo-0ms-ring"
_FEW = [
    _RING,
    *(f"tests/traces/runs/{name}" for name in ("mpi-mlp1-sgd-32-openmpi-0ms-ring", "torchp2p-mlp1-sgd-32-gloo-0ms-ps")),
]
#: What the folder of a page holds before its first block: a name there, and a source, which is a folder of the
#: repository, copied, or a dataset: `sample` of data/sample, `traces` of tests/traces/runs, `few` of three of these, or
#: the `release` of the three. Pages on releases show no output, and a release of all runs takes many times as long.
GIVEN: dict[str, dict[str, str]] = {
    "README.md": {"demo/dataset": "sample", "captures": _RING},
    "data/README.md": {"data/sample": "data/sample", "demo/dataset": "sample"},
    "docs/cluster.md": {"captures": _RING},
    "docs/compare.md": {"demo/dataset": "sample"},
    "docs/cookbook.md": {"dataset": "traces", "captures": _RING},
    "docs/delays.md": {"demo/dataset": "sample"},
    "docs/drivers.md": {"demo/dataset": "sample"},
    "docs/explore.md": {"demo/dataset": "sample"},
    "docs/exports.md": {"dataset": "traces"},
    "docs/files.md": {"demo/dataset": "sample"},
    "docs/ingest.md": {"captures": _RING},
    "docs/our_dataset.md": {"data/dataset": "data/dataset"},
    "docs/prediction.md": {"dataset": "sample"},
    "docs/publish.md": {"dataset": "few"},
    "docs/push.md": {"release": "release"},
    "docs/regression.md": {"dataset": "sample"},
    "docs/releases.md": {"dataset": "few"},
    "docs/report.md": {"demo/dataset": "sample"},
    "docs/sharing.md": {"docs/simulations": "docs/simulations"},
    "docs/simulator.md": {"dataset": "traces", "docs/simulations": "docs/simulations"},
    "docs/stores.md": {"dataset": "traces"},
    "docs/testbed.md": {"captures": _RING},
    "docs/traffic_model.md": {"dataset": "traces"},
    "docs/tutorial.md": {"demo/dataset": "sample", "captures/my-run": _RING},
    "docs/verify.md": {"release": "release"},
    "docs/what_if.md": {"demo/dataset": "sample"},
}
#: Pages whose examples need the extra publish: tests/release runs them.
OF_RELEASES = {"docs/publish.md", "docs/releases.md", "docs/verify.md", "docs/push.md"}
#: Pages whose examples need the extra cluster and an object store: tests/store/test_store_examples.py runs them. Their
#: output is not shown.
OF_STORES = {"docs/cluster.md", "docs/stores.md"}
#: Words that stand for a name of the reader's, and what they are in the tests.
WORDS = {
    "DATASET": "dataset",
    "RUN": "torch-mlp1-sgd-32-gloo-0ms-ring",
    "RELEASE": "release",
    "OUT": "out",
    "TARGET": "archive",
}
#: What a reader does by hand after a line of sh.
BY_HAND = {
    "ddnn-traces publish --template > release.toml": (
        """sed -i 's/^title = .*/title = "Flow tables"/; s/^name = .*/name = "Ada Lovelace"/' release.toml"""
    ),
}
#: Lines of sh, and programs, that no test runs, and why; commands and options are checked. Each is named by its start.
_ROOT = "needs root, tcpdump and PyTorch; tests/testbed makes such runs"
_SERVER = "needs a network and an account; tests/release pushes to servers of its own"
NOT_RUN: dict[tuple[str, str], str] = {
    ("data/README.md", "sudo ddnn-traces testbed data/sample.toml"): _ROOT,
    ("data/README.md", "sudo ddnn-traces testbed data/faults.toml"): _ROOT,
    ("docs/our_dataset.md", "sudo ddnn-traces testbed sweep data/dataset.toml"): _ROOT,
    ("docs/testbed.md", "sudo ddnn-traces testbed run matrix.toml"): _ROOT,
    ("docs/testbed.md", "sudo ddnn-traces testbed sweep sweep.toml"): _ROOT,
    ("docs/cluster.md", "ddnn-traces ingest ssh://"): "needs a server of ssh",
    ("docs/cluster.md", "# ingest_on_slurm.py"): "needs Slurm",
    ("docs/explore.md", "pip install"): "installs the extra",
    ("docs/ns3.md", "pip install"): "installs the extra",
    (
        "docs/ns3.md",
        "ddnn-traces ns3",
    ): "needs the extra ns3; tests/cli/test_ns3_command.py and tests/traffic/test_ns3.py run it",
    ("docs/sharing.md", "ddnn-traces ns3 sweep"): "needs the extra ns3, and hours; tests/traffic/test_ns3_sweep.py",
    ("docs/explore.md", "ddnn-traces explore DATASET"): "serves a page until Ctrl-C; tests/explore opens it",
    ("docs/push.md", "ddnn-traces push RELEASE --to zenodo"): _SERVER,
    (
        "docs/verify.md",
        "ddnn-traces query https://example.org",
    ): "needs a network; tests/store reads a server of its own",
    ("docs/zerwas_dataset.md", "ddnn-traces"): "tests/release/test_zerwas_dataset.py runs the walk-through",
}

COMMAND = [sys.executable, "-c", "from ddnn_traces.cli import main; main()"]

#: Runs a command line in this process: tests set it, since a start of Python takes longer than most examples. Without
#: it, and for lines that need a shell, each command is a process.
run_here: Callable[..., subprocess.CompletedProcess[bytes]] | None = None


@dataclass(frozen=True)
class Block:
    """A block of code of a page. kind: sh, sql, python or doctest. shown: its output as the page has it, or None.

    code: as in the page, without its indentation. start, end: of `shown` in the page's text.
    """

    kind: str
    code: str
    shown: str | None = None
    start: int = 0
    end: int = 0

    @property
    def lines(self) -> list[str]:
        """The lines of a block of sh; a command that goes on in the next line, or a text in quotes, is one of them."""
        joined: list[str] = []
        is_open = False
        for line in re.sub(r"\\\n *", "", self.code).splitlines():
            if is_open:
                joined[-1] += f"\n{line}"
            else:
                joined.append(line)
            is_open = joined[-1].startswith("ddnn-traces") and joined[-1].count('"') % 2 == 1
        return joined


_BLOCK = re.compile(
    r"^```(?P<kind>sh|sql|python)\n(?P<fenced>.*?)^```\n(?:\n```text\n(?P<shown>.*?)^```\n)?"
    r"|^```.*?^```\n"
    r"|(?:(?<=\n\n)|\A)(?P<indented>(?: {4}[^\n]*\n|\n(?= {4}))+)",
    re.M | re.S,
)


def blocks(text: str) -> Iterator[Block]:
    """The examples of a page, in order."""
    for found in _BLOCK.finditer(text):
        if found["kind"]:
            kind = "doctest" if ">>>" in found["fenced"] else found["kind"]
            yield Block(kind, found["fenced"], found["shown"], *found.span("shown"))
        elif found["indented"]:
            code = re.sub(r"^ {4}", "", found["indented"], flags=re.M)
            if any(command_words(line) for line in code.splitlines()):
                yield Block("sh", code)


def command_words(line: str) -> list[str] | None:
    """The words after `ddnn-traces` in a line of sh that begins with it, or has it in a pipe; None: in no place."""
    found = re.search(r"^(?:sudo )?ddnn-traces\b(.*)|\| ddnn-traces\b(.*)", line, re.S)
    if found is None:
        return None
    lexer = shlex.shlex(found[1] or found[2] or "", posix=True, punctuation_chars="<>|;&")
    lexer.whitespace_split = True
    words: list[str] = []
    for word in lexer:
        if set(word) <= set("<>|;&"):
            break
        words.append(word)
    return words


def page_text(page: str) -> str:
    """The text of a page, by its path in the repository."""
    return (ROOT / page).read_text(encoding="utf-8")


def is_run(page: str, code: str) -> bool:
    """Whether a line of sh, or a program, is run, and not one of NOT_RUN."""
    return not any(page == of and code.startswith(beginning) for of, beginning in NOT_RUN)


def prepare(page: str, folder: Path, source: Callable[[str], Path]) -> None:
    """Put what the page's examples need into `folder`. source: where the datasets of GIVEN are, by name."""
    for name, given in GIVEN.get(page, {}).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        if "/" in given:
            shutil.copytree(ROOT / given, folder / name)
        else:
            (folder / name).symlink_to(source(given))


def outputs(page: str, folder: Path) -> list[tuple[Block, str]]:
    """Each example of the page with what it printed, run in `folder`. Raises CalledProcessError where one fails."""
    globs: dict[str, object] = {}
    done = []
    with contextlib.chdir(folder):
        for block in blocks(page_text(page)):
            done.append((block, _tidy(_run(page, block, globs))))
    return done


def answered(page: str, folder: Path) -> str:
    """The page's text with the output of each example below it."""
    text = page_text(page)
    for block, printed in reversed(outputs(page, folder)):
        if block.shown is not None and "...\n" not in block.shown:
            text = text[: block.start] + printed + text[block.end :]
    return text


def agrees(shown: str, printed: str) -> bool:
    """Whether the output that a page shows is what was printed, but for the lines left out at `...`."""
    pattern = "".join(r"(?:.*\n)*?" if line.strip() == "..." else re.escape(line) for line in shown.splitlines(True))
    return re.fullmatch(pattern, printed) is not None


def _tidy(printed: str) -> str:
    """Printed lines without empty ones around them and without spaces at their ends."""
    lines = [line.rstrip() for line in printed.rstrip().splitlines()]
    while lines and not lines[0]:
        lines.pop(0)
    return "".join(f"{line}\n" for line in lines)


def _run(page: str, block: Block, globs: dict[str, object]) -> str:
    if block.kind == "sh":
        lines = [line for line in block.lines if is_run(page, line)]
        return _sh("\n".join(f"{line}\n{BY_HAND[line]}" if line in BY_HAND else line for line in lines))
    if block.kind == "sql":
        return _sql(block.code)
    if block.kind == "doctest":
        return _doctest(page, block.code, globs)
    return _python(block.code) if is_run(page, block.code) else ""


def _python(code: str) -> str:
    if run_here is None:
        return _call([sys.executable, "-c", code])
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(code, "example", "exec"), {"__name__": "__main__"})  # noqa: S102 (an example of the docs)
    return printed.getvalue()


def _needs_shell(line: str) -> bool:
    """Whether a line has more than a call of the command, its words and a comment."""
    plain = re.sub(r"'[^']*'|\"[^\"$`\\]*\"", "_", line)
    return re.fullmatch(r"(ddnn-traces( [^\s#|<>;&$`*?~\\\"'(]+)*)?\s*(#.*)?", plain) is None


def _sh(code: str) -> str:
    for word, value in WORDS.items():
        code = re.sub(rf"(?<![\w/.-]){word}(?![\w/.-])", value, code)
    lines = Block("sh", code).lines
    if run_here is not None and not any(map(_needs_shell, lines)):
        return "".join(_command(words[1:]) for line in lines if (words := shlex.split(line, comments=True)))
    # messages on standard error have times and rates: not in the output
    return _call(["bash", "-euo", "pipefail", "-c", f'ddnn-traces() {{ {shlex.join(COMMAND)} "$@"; }}\n{code}'])


def _sql(code: str) -> str:
    import ddnn_traces
    from ddnn_traces.cli import terminal

    printed = io.StringIO()
    with ddnn_traces.open("dataset", read_only=True) as dataset, contextlib.redirect_stdout(printed):
        for statement in dataset.statements(code):
            terminal.print_table(dataset.sql_arrow(statement))
    return printed.getvalue()


def _doctest(page: str, code: str, globs: dict[str, object]) -> str:
    said = io.StringIO()
    test = doctest.DocTestParser().get_doctest(code, globs, page, page, 0)
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    if runner.run(test, out=said.write, clear_globs=False).failed:
        raise AssertionError(said.getvalue())
    globs |= test.globs
    return ""


def _command(words: list[str]) -> str:
    assert run_here is not None
    done = run_here(*words)
    if done.returncode:
        raise AssertionError(f"{words}\nexit code {done.returncode}\n{done.stdout.decode()}{done.stderr.decode()}")
    return done.stdout.decode()


def _call(call: list[str]) -> str:
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    done = subprocess.run(call, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": path})
    if done.returncode:
        raise AssertionError(f"{call[-1]}\nexit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def make_source(name: str, path: Path) -> None:
    """Make one of the datasets of GIVEN at `path`."""
    import ddnn_traces

    if name == "release":
        with tempfile.TemporaryDirectory() as scratch:
            make_source("few", Path(scratch) / "dataset")
            about = {"title": "Flow tables", "licence": "CC-BY-4.0", "creators": ["Ada Lovelace"]}
            ddnn_traces.publish(Path(scratch) / "dataset", path, **about)
    else:
        folders = {"sample": ["data/sample"], "traces": ["tests/traces/runs"], "few": _FEW}[name]
        ddnn_traces.ingest([ROOT / folder for folder in folders], path).close()


def _write(pages: list[str]) -> None:
    with tempfile.TemporaryDirectory() as scratch:

        def source(name: str) -> Path:
            path = Path(scratch) / "sources" / name
            if not path.exists():
                path.parent.mkdir(exist_ok=True)
                make_source(name, path)
            return path

        for page in pages:
            folder = Path(scratch) / page.replace("/", "-")
            folder.mkdir()
            prepare(page, folder, source)
            (ROOT / page).write_text(answered(page, folder), encoding="utf-8")


if __name__ == "__main__":
    _write(sys.argv[1:] or [page for page in PAGES if page not in OF_STORES])
