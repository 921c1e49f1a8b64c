"""Runs the notebooks and writes their outputs into them: `make notebooks`, or `python notebooks/execute.py`.

Each runs in an empty temporary folder, with the interpreter that runs this and this checkout of the package. Nothing of
the user's Jupyter or IPython is read, and nothing is written that would differ in the next run: no times of execution,
no version of the interpreter, no states of the notebook program. Images are as the fonts of the machine draw them.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from jupyter_client import AsyncKernelManager
from jupyter_client.kernelspec import KernelSpec
from nbclient import NotebookClient
from nbformat import NotebookNode

FOLDER = Path(__file__).resolve().parent
#: Metadata of a notebook; the language switches on syntax colours.
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
#: One cell may take this long.
CELL_SECONDS = 300
_ADDRESS = re.compile(r"(?<= at )0x[0-9a-f]+")  # of an object without a text of its own


class OwnKernelManager(AsyncKernelManager):
    """Starts a kernel with this interpreter, whatever kernels are installed; it listens on no port."""

    @property
    def kernel_spec(self) -> KernelSpec:
        return KernelSpec(
            argv=[sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"],
            display_name="Python 3",
            language="python",
        )


def notebooks() -> list[Path]:
    """The notebooks, in their order."""
    return sorted(FOLDER.glob("*.ipynb"))


def read(path: Path) -> NotebookNode:
    """A notebook as it stands in its file."""
    return nbformat.read(path, as_version=4)


def execute(path: Path, package: Path = FOLDER.parent) -> NotebookNode:
    """The notebook with the outputs that it has now; the file is not changed. Raises CellExecutionError.

    package: the folder with the ddnn_traces that it uses; this checkout, unless given.
    """
    notebook = read(path)
    with tempfile.TemporaryDirectory(prefix="nb-") as name:
        folder = Path(name)
        (folder / "work").mkdir()
        manager = OwnKernelManager(transport="ipc", connection_file=str(folder / "kernel.json"))
        client = NotebookClient(notebook, km=manager, kernel_name="python3", timeout=CELL_SECONDS, record_timing=False)
        asyncio.run(_run(client, manager, cwd=str(folder / "work"), env=_environment(folder, package)))
    return without_noise(notebook)


async def _run(client: NotebookClient, manager: OwnKernelManager, **kernel: Any) -> None:
    try:
        await client.async_execute(**kernel)
    finally:  # nbclient leaves a kernel that it was given running
        await manager.shutdown_kernel(now=True)


def without_noise(notebook: NotebookNode) -> NotebookNode:
    """Remove the fields that differ from run to run, in place."""
    notebook.metadata = nbformat.from_dict(METADATA)
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    for cell in notebook.cells:
        cell.metadata = NotebookNode()
        for output in cell.get("outputs", []):
            output.get("metadata", {}).clear()
            data: dict[str, Any] = output.get("data", {})
            for kind, text in data.items():
                if kind.startswith("text/"):
                    data[kind] = _ADDRESS.sub("0x0", text)
    return notebook


def write(notebook: NotebookNode, path: Path) -> None:
    """Write a notebook into a file."""
    nbformat.validate(notebook)
    nbformat.write(notebook, path)


def _environment(folder: Path, package: Path) -> dict[str, str]:
    paths = [str(package), os.environ.get("PYTHONPATH", "")]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "IPYTHONDIR": str(folder / "ipython"),
        "JUPYTER_CONFIG_DIR": str(folder / "config"),
        "PYDEVD_DISABLE_FILE_VALIDATION": "1",  # else the kernel warns of itself
        "NO_COLOR": "1",
    }


def main() -> None:
    chosen = [Path(name) for name in sys.argv[1:]] or notebooks()
    for path in chosen:
        write(execute(path), path)
        print(f"{path.name}: written", file=sys.stderr)


if __name__ == "__main__":
    main()
