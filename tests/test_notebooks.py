"""The notebooks show what they give: each is executed in an empty folder, and its outputs are the committed ones.

`make notebooks` writes them anew. Of images only the kind is compared, since fonts differ from machine to machine.
"""

from __future__ import annotations

import gc
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from nbclient.exceptions import CellExecutionError
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_notebook
from tools import mostly_nightly, script

from ddnn_traces.errors import UsageError
from ddnn_traces.store import samples

FOLDER = Path(__file__).resolve().parents[1] / "notebooks"
#: Charts in each.
IMAGES = {"01-explore": 2, "02-topology": 0, "03-steps": 6, "04-regression": 3, "05-simulation": 2, "06-sharing": 5}
NAMES = list(IMAGES)


@pytest.fixture(autouse=True)
def collected() -> Iterator[None]:
    """Sockets of kernels are collected here, not in a later test for which an unclosed socket is an error."""
    yield
    gc.collect()


execute = script("notebooks/execute.py")


def shown(notebook: NotebookNode) -> dict[str, list[object]]:
    """What each cell of code shows, by the cell's id: the text of streams, errors and results, the kind of images."""
    return {cell.id: [_shown(output) for output in cell.outputs] for cell in notebook.cells if cell.cell_type == "code"}


def _shown(output: NotebookNode) -> object:
    if output.output_type == "stream":
        return output.name, output.text
    if output.output_type == "error":
        return output.ename, output.evalue
    return {kind: None if kind.startswith("image/") else text for kind, text in output.data.items()}


def test_these_are_the_notebooks() -> None:
    assert [path.stem for path in execute.notebooks()] == NAMES


@pytest.mark.long
@pytest.mark.parametrize("name", mostly_nightly(NAMES, "01-explore"))
def test_outputs_are_the_committed_ones(name: str) -> None:
    path = FOLDER / f"{name}.ipynb"
    before = sorted(FOLDER.iterdir())
    assert shown(execute.execute(path)) == shown(execute.read(path)), "run `make notebooks` and look at what changed"
    assert sorted(FOLDER.iterdir()) == before


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.long_after(1)
def test_file_is_as_execute_writes_it(name: str, tmp_path: Path) -> None:
    """No states of a notebook program, no times of execution: a change in the file is a change of what it says."""
    path = FOLDER / f"{name}.ipynb"
    execute.write(execute.without_noise(execute.read(path)), tmp_path / "written.ipynb")
    assert (tmp_path / "written.ipynb").read_bytes() == path.read_bytes()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.long_after(1)
def test_outputs_are_whole_and_hold_nothing_of_the_machine(name: str) -> None:
    notebook = execute.read(FOLDER / f"{name}.ipynb")
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    outputs = [output for cell in code for output in cell.outputs]
    assert [output.output_type for output in outputs if output.output_type == "error"] == []
    assert [output.text for output in outputs if output.get("name") == "stderr"] == []
    images = sum("image/png" in output.get("data", {}) for output in outputs)
    assert images == IMAGES[name]
    text = str(shown(notebook))
    assert not re.search(r"/tmp|/home|/root|/Users|site-packages|0x[0-9a-f]{6}", text)
    assert "…" not in text  # a table that is cut off


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.long_after(1)
def test_each_cell_of_code_says_its_question(name: str) -> None:
    """Text before it, or another cell of code that it goes on from; links lead to files."""
    cells = execute.read(FOLDER / f"{name}.ipynb").cells
    assert cells[0].cell_type == "markdown"
    links = [link for cell in cells for link in re.findall(r"\]\((?!http)([^)]+)\)", cell.source)]
    assert [link for link in links if not (FOLDER / link).exists()] == []
    kinds = "".join("t" if cell.cell_type == "markdown" else "c" for cell in cells)
    assert "cccc" not in kinds
    assert max(len(cell.source.splitlines()) for cell in cells) <= 24


INTERNAL = re.compile(r"^ *(?:from|import) ddnn_traces\.(?!errors\b)|__file__", re.M)


def test_they_import_the_public_interface_alone() -> None:
    for path in execute.notebooks():
        code = "\n".join(cell.source for cell in execute.read(path).cells if cell.cell_type == "code")
        assert "ddnn_traces" in code and not INTERNAL.findall(code), path.name
    assert INTERNAL.findall("import ddnn_traces.query") and INTERNAL.findall("Path(ddnn_traces.__file__)")


def test_the_written_notebooks_are_the_shipped_ones_without_links_that_lead_nowhere(tmp_path: Path) -> None:
    written = samples.write_notebooks(tmp_path / "notebooks")
    assert [path.stem for path in written] == NAMES
    links = ""
    for path in written:
        shipped = execute.read(FOLDER / path.name)
        assert shown(execute.read(path)) == shown(shipped)
        links += "".join(re.findall(r"\]\((?!http)([^)]+)\)", path.read_text(encoding="utf-8")))
    assert "02-topology.ipynb" in links and ".." not in links
    with pytest.raises(UsageError, match=r"01-explore\.ipynb: exists"):
        samples.write_notebooks(tmp_path / "notebooks")


def test_no_kernel_is_left_behind(tmp_path: Path) -> None:
    """What a cell raises reaches the caller, and the kernel has ended by then."""
    cells = [new_code_cell("import os\nraise ValueError(os.getpid())", id="fails")]
    execute.write(new_notebook(cells=cells), tmp_path / "fails.ipynb")
    with pytest.raises(CellExecutionError, match="ValueError") as caught:
        execute.execute(tmp_path / "fails.ipynb")
    with pytest.raises(ProcessLookupError):
        os.kill(int(caught.value.evalue), 0)


def test_a_changed_output_is_seen() -> None:
    notebook = execute.read(FOLDER / "01-explore.ipynb")
    before = shown(notebook)
    cell = next(cell for cell in notebook.cells if cell.id == "matrix-code")
    cell.outputs[0].data["text/plain"] = cell.outputs[0].data["text/plain"].replace("7,061,332", "7,061,333")
    assert shown(notebook) != before
