"""The command line starts light. (The layers of the package are a contract of import-linter: `make lint`.)"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from small_runs import A, B, ring, write_captures

from ddnn_traces import errors

HEAVY = (
    "altair",
    "duckdb",
    "numba",
    "numpy",
    "pandas",
    "polars",
    "pyarrow",
    "pyshark",
    "rich",
    "statsmodels",
    "vl_convert",
)


@pytest.mark.parametrize("module", ["ddnn_traces", "ddnn_traces.cli"])
def test_heavy_libraries_wait_until_they_are_needed(module: str) -> None:
    """--help has to answer at once; what counts is what is loaded, not how fast this machine loads it."""
    code = f"import sys, {module}; print(*{{name.partition('.')[0] for name in sys.modules}})"
    loaded = set(
        subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True).stdout.split()
    )
    assert module.partition(".")[0] in loaded
    assert loaded.isdisjoint(HEAVY)


#: What only other commands, options and inputs need.
NOT_FOR_INGEST = {
    "altair", "cffi", "dateutil", "http.client", "jinja2", "pandas", "polars", "pyarrow.compute", "pyarrow.dataset",
    "pyshark", "rich", "scipy", "statsmodels", "tqdm", "yaml",
}  # fmt: skip


def test_a_plain_ingest_loads_only_what_it_needs(tmp_path: Path) -> None:
    write_captures(tmp_path / "run", {"a.pcap": ring(A, B)})
    code = "import atexit, sys; from ddnn_traces.cli import main; atexit.register(lambda: print(*sys.modules)); main()"
    call = [sys.executable, "-c", code, "ingest", tmp_path / "run", "--out", tmp_path / "dataset"]
    done = subprocess.run(call, capture_output=True, check=True, text=True)
    loaded = set(done.stdout.split())
    assert done.stderr.splitlines()[-1] == f"{tmp_path / 'dataset'}: 1 run written"  # no leaks
    assert {"numba", "duckdb", "ddnn_traces.ingestors.pipeline"} <= loaded
    assert loaded.isdisjoint(NOT_FOR_INGEST)


def public_functions(body: list[ast.stmt]) -> Iterator[ast.FunctionDef]:
    """Functions and methods of a module that others call."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
            yield from [node] if isinstance(node, ast.FunctionDef) else public_functions(node.body)


def own_errors(function: ast.FunctionDef) -> set[str]:
    """Names of the errors of errors.py that a function raises itself, and not one that is defined in it."""
    found: set[str] = set()
    left: list[ast.AST] = [*function.body]
    while left:
        node = left.pop()
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            continue
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and isinstance(node.exc.func, ast.Name):
            found.add(node.exc.func.id)
        left.extend(ast.iter_child_nodes(node))
    return found & vars(errors).keys()


def test_public_functions_say_what_they_raise() -> None:
    """Not commands: their docstrings are for users."""
    package = Path(errors.__file__).parent
    silent = [
        f"{path}: {function.name}"
        for path in sorted(package.rglob("*.py"))
        for function in public_functions(ast.parse(path.read_text(encoding="utf-8")).body)
        if "cli" not in path.parts and own_errors(function)
        if "raise" not in (ast.get_docstring(function) or "").lower()
    ]
    assert silent == []
