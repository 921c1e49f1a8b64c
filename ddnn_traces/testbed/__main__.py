"""What the testbed starts of itself: `python -m ddnn_traces.testbed runs ...` and `limits`, inside the namespaces
of network.py, and `delay-line`."""

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ddnn_traces.testbed import conditions, delay_line, matrix, matrix_runs, network


def _print(line: dict[str, Any]) -> None:
    """A line of JSON for the command outside."""
    print(json.dumps(line), flush=True)


def _report(name: str, outcome: str, why: str) -> None:
    _print({"name": name, "outcome": outcome, "why": why})


def _isolated() -> None:
    network.take_names()
    os.environ["PATH"] = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"  # where Debian has ip and tc


def _runs(arguments: Sequence[str]) -> None:
    path, out, scratch, pythons, tries = arguments
    _isolated()
    matrix_runs.make_all(matrix.read(Path(path)), Path(out), Path(scratch), json.loads(pythons), _report, int(tries))


def _limits(arguments: Sequence[str]) -> None:
    (scratch,) = arguments
    _isolated()
    _print(conditions.reached(Path(scratch)))


if __name__ == "__main__":
    {"runs": _runs, "limits": _limits, "delay-line": delay_line.main}[sys.argv[1]](sys.argv[2:])
