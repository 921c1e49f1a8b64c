"""The tests' options of publish, names of the two runs, and the command push as a process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import ddnn_traces

#: What every release needs; the date, so that a test at midnight does not fail.
ABOUT = {"title": "Two runs", "licence": "CC-BY-4.0", "creators": ["Ada Lovelace"], "date": "2026-01-31"}
#: The same for the command line.
OPTIONS = ("--title", "Two runs", "--licence", "CC-BY-4.0", "--creator", "Ada Lovelace", "--date", "2026-01-31")

#: The runs of the fixture `small`.
RUN, OTHER = "torch-mlp1-sgd-32-gloo-0ms-ring", "mpi-mlp1-sgd-32-openmpi-0ms-ring"

#: The fixture run.
Run = Callable[..., subprocess.CompletedProcess[str]]

#: Claims that hold of the two runs.
CLAIMS = (
    "claim,source,command,expected,tolerance,unit,n\n"
    "runs,a test,ddnn-traces sql RELEASE 'SELECT count(*) FROM runs -- all of them',2,0,,2\n"
    "topology,a test,ddnn-traces sql RELEASE 'SELECT max(topology) FROM runs',ring,exact,,2\n"
)


def run_push(*arguments: str | Path, cwd: Path, **environment: str) -> subprocess.Popen[str]:
    """`ddnn-traces push`, started in `cwd` with more variables in its environment; a pipe for each of its streams."""
    root = str(Path(ddnn_traces.__file__).parents[1])
    code = f"import sys; sys.path.insert(0, {root!r}); from ddnn_traces.cli import main; main()"
    return subprocess.Popen(
        [sys.executable, "-c", code, "push", *map(str, arguments)],
        cwd=cwd, env=os.environ | environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
