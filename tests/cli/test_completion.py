"""Completion as a shell asks for it: a process with click's variables, which answers at once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tools import COMMAND

from ddnn_traces.query import catalogue
from ddnn_traces.query.dataset import Dataset
from ddnn_traces.store import schema


def complete(line: str, shell: str = "zsh", code: str | None = None) -> list[str]:
    """Lines of the answer; the cursor is at the end of the line."""
    words = line.split(" ")
    environment = os.environ | {"_DDNN_TRACES_COMPLETE": f"{shell}_complete"}
    environment |= {"COMP_WORDS": line if shell != "fish" else " ".join(words[:-1]), "COMP_CWORD": str(len(words) - 1)}
    if shell == "fish":
        environment |= {"COMP_WORDS": line, "COMP_CWORD": words[-1]}
    call = [sys.executable, "-c", code] if code else list(COMMAND)
    done = subprocess.run(call, env=environment, capture_output=True, text=True)
    assert done.stderr == ""
    return [line for line in done.stdout.splitlines() if line]


def names(answer: list[str]) -> list[str]:
    """Of zsh's three lines an item (type, name, help), the names."""
    assert set(answer[0::3]) <= {"plain"}
    return answer[1::3]


@pytest.mark.long
def test_queries_with_their_questions(sample_dataset: Dataset) -> None:
    answer = complete(f"ddnn-traces query {sample_dataset.path} ")
    assert names(answer) == sorted(catalogue.catalogue())
    # zsh wants colons of a name escaped; there are none in ours
    assert answer[2::3] == [catalogue.find(name).question for name in sorted(catalogue.catalogue())]
    assert names(complete(f"ddnn-traces query {sample_dataset.path} ring_")) == ["ring_comparison", "ring_order"]


@pytest.mark.parametrize(
    ("shell", "expected"),
    [
        ("bash", ["plain,ring_comparison", "plain,ring_order"]),
        ("fish", [f"plain,ring_{n}\t{catalogue.find('ring_' + n).question}" for n in ("comparison", "order")]),
    ],
)
def test_other_shells(sample_dataset: Dataset, shell: str, expected: list[str]) -> None:
    answer = complete(f"ddnn-traces query {sample_dataset.path} ring_", shell)
    assert "\n".join(answer) == "\n".join(expected)


def test_runs_of_the_dataset(sample_dataset: Dataset) -> None:
    line = f"ddnn-traces query {sample_dataset.path} traffic_matrix --run "
    assert names(complete(line)) == sample_dataset.run_ids
    assert names(complete(line + "tf-")) == [run for run in sample_dataset.run_ids if run.startswith("tf-")]
    assert names(complete(f"ddnn-traces export {sample_dataset.path} --run tf-")) != []
    assert complete("ddnn-traces query nowhere traffic_matrix --run ") == []


def test_parameters_of_the_query(sample_dataset: Dataset) -> None:
    line = f"ddnn-traces query {sample_dataset.path} pair_throughput --param "
    assert names(complete(line)) == ["window_ms=", "from_ms=", "length_ms=", "job=", "communicator="]
    answer = complete(line + "w")
    assert names(answer) == ["window_ms="]
    assert "DOUBLE, default 10.0: length of a window, ms" in answer[2]
    assert complete(f"ddnn-traces query {sample_dataset.path} no_such --param ") == []


def test_tables() -> None:
    assert names(complete("ddnn-traces describe --table ")) == list(schema.TABLES)
    assert names(complete("ddnn-traces describe --table step")) == ["steps", "step_flows"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_script_that_switches_it_on(shell: str) -> None:
    environment = os.environ | {"_DDNN_TRACES_COMPLETE": f"{shell}_source"}
    done = subprocess.run(COMMAND, env=environment, capture_output=True, text=True)
    assert f"_DDNN_TRACES_COMPLETE={shell}_complete" in done.stdout
    assert "ddnn-traces" in done.stdout


def test_nothing_heavy_is_imported(sample_dataset: Dataset, tmp_path: Path) -> None:
    reported = tmp_path / "modules"
    code = COMMAND[2].replace(
        "; main()",
        f"\nimport atexit; atexit.register(lambda: open({str(reported)!r}, 'w').write(' '.join(sys.modules)))\nmain()",
    )
    assert complete(f"ddnn-traces query {sample_dataset.path} ring_", code=code) != []
    loaded = {name.partition(".")[0] for name in reported.read_text().split()}
    assert "click" in loaded
    assert loaded.isdisjoint({"duckdb", "numpy", "polars", "pyarrow", "rich", "altair", "numba"})
