"""Run the examples of docs/cookbook.md and put their output below them.

A block of SQL is run as `ddnn-traces sql dataset`, one of Python as a program, one of sh as commands, all in a folder
with the ingested sample in `dataset`; the text block after it is its output.

    python docs/cookbook.py    # ingests the sample and writes docs/cookbook.md anew
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

PAGE = Path(__file__).with_name("cookbook.md")
EXAMPLE = re.compile(r"```(sql|python|sh)\n(.*?)```\n\n```text\n.*?```\n", re.S)
SAMPLE = Path(__file__).parents[1] / "tests" / "traces" / "runs"
COMMAND = [sys.executable, "-c", "from ddnn_traces.cli import main; main()"]


def answered(text: str, folder: Path) -> str:
    """The page with the answers of all examples, run in `folder`, which holds the sample as `dataset`."""
    with contextlib.chdir(folder):
        return EXAMPLE.sub(
            lambda match: f"```{match[1]}\n{match[2]}```\n\n```text\n{_answer(*match.groups())}```\n", text
        )


def _answer(language: str, code: str) -> str:
    lines = {"sql": _sql, "python": _python, "sh": _commands}[language](code).rstrip().splitlines()
    kept = [line.rstrip() for line in lines]
    while kept and not kept[0]:
        kept.pop(0)
    return "".join(f"{line}\n" for line in kept)


def _sql(code: str) -> str:
    import ddnn_traces
    from ddnn_traces.cli import terminal

    printed = io.StringIO()
    with ddnn_traces.open("dataset", read_only=True) as dataset, contextlib.redirect_stdout(printed):
        for statement in dataset.statements(code):
            terminal.print_table(dataset.sql_arrow(statement))
    return printed.getvalue()


def _python(code: str) -> str:
    return _run([sys.executable, "-c", code])


def _commands(code: str) -> str:
    printed = ""
    for line in code.splitlines():
        words = shlex.split(line)
        printed += _run([*COMMAND, *words[1:]] if words[0] == "ddnn-traces" else words)
    return printed


def _run(call: list[str]) -> str:
    package = str(Path(__file__).parents[1])
    path = os.pathsep.join(filter(None, (package, os.environ.get("PYTHONPATH"))))
    done = subprocess.run(call, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True,
                          env=os.environ | {"PYTHONPATH": path})  # fmt: skip
    return done.stdout


if __name__ == "__main__":
    import ddnn_traces

    with tempfile.TemporaryDirectory() as scratch:
        ddnn_traces.ingest(SAMPLE, Path(scratch) / "dataset").close()
        PAGE.write_text(answered(PAGE.read_text(encoding="utf-8"), Path(scratch)), encoding="utf-8")
