"""A run for other simulators: which target is written by which module, and to where."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from ddnn_traces.errors import UsageError
from ddnn_traces.export import basic_sim, chakra, goal, htsim
from ddnn_traces.traffic import transfers

if TYPE_CHECKING:
    from ddnn_traces.query.dataset import Dataset

_FILES: dict[str, Callable[[transfers.Traffic, Path], list[str]]] = {
    "htsim": htsim.write, "goal": goal.write, "basic-sim": basic_sim.write_schedule,
}  # fmt: skip
_FOLDERS: dict[str, Callable[[transfers.Traffic, Path], list[str]]] = {
    "basic-sim": basic_sim.write, "chakra": chakra.write,
}  # fmt: skip

#: In a folder that was written here.
NODES = "nodes.csv"


def write(dataset: Dataset, target: str, out: Path, options: transfers.Options | None = None) -> list[str]:
    """Write the run of a dataset opened for a single one: a file (htsim, goal; basic-sim's schedule alone, where `out`
    ends in .csv), or a folder (basic-sim, chakra).

    Which node is which host is written to NAME.nodes.csv beside the file NAME.*, or to nodes.csv in the folder. Returns
    a line for each thing that was left out or that the format cannot hold. The same run and options give the same
    bytes. Raises UsageError where nothing of the run is wanted, or `out` cannot be written.
    """
    traffic = transfers.load(dataset, options or transfers.Options())
    try:
        if target in _FILES and (target not in _FOLDERS or out.suffix == ".csv"):
            told = _FILES[target](traffic, out)
            transfers.write_nodes(traffic, out.with_name(f"{out.stem}.{NODES}"))
        else:
            _prepare(out, target, len(traffic.nodes))
            transfers.write_nodes(traffic, out / NODES)
            told = _FOLDERS[target](traffic, out)
    except OSError as error:
        raise UsageError(f"{out}: cannot be written ({error.strerror}); choose another --out") from error
    return [*(f"left out: {line}" for line in traffic.left_out), *(f"note: {line}" for line in told)]


def _prepare(folder: Path, target: str, nodes: int) -> None:
    """Make the folder, or take one of an earlier export, without what of it this one does not write again."""
    if folder.exists() and not _is_ours(folder):
        raise UsageError(f"{folder}: exists and is no earlier export; choose another --out")
    folder.mkdir(exist_ok=True)
    ranks = {f"{chakra.NAME}.{node}.et" for node in range(nodes)}
    written = {"basic-sim": set(basic_sim.FILES), "chakra": ranks}
    for path in folder.iterdir():
        is_trace = re.fullmatch(rf"{chakra.NAME}\.\d+\.et", path.name) is not None
        if (is_trace or path.name in basic_sim.FILES) and path.name not in written[target]:
            path.unlink()


def _is_ours(folder: Path) -> bool:
    """Whether a folder is empty, or was written by an export: then NODES begins as it does."""
    if not folder.is_dir():
        return False
    if not (folder / NODES).is_file():
        return not any(folder.iterdir())
    with (folder / NODES).open(encoding="utf-8", errors="replace") as file:
        return file.readline() == ",".join(transfers.NODE_COLUMNS) + "\n"
