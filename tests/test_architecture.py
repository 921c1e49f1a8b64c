"""The command line starts light. (The layers of the package are a contract of import-linter: `make lint`.)"""

from __future__ import annotations

import subprocess
import sys

import pytest

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
