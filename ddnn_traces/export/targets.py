"""The targets of `export`: what each writes, with which options, in which module.

The command takes its choices, options and messages from TARGETS. Modules of targets are imported when used: this one is
imported at each start of the command line.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ddnn_traces.errors import UsageError
from ddnn_traces.store.whole_files import sync, whole_file, whole_files

if TYPE_CHECKING:
    from ddnn_traces.export.simulators import Replay, ReplayOptions
    from ddnn_traces.query.dataset import Dataset

#: The table of nodes and their hosts: NAME.nodes.csv next to a file NAME.*, nodes.csv in a folder.
NODES = "nodes.csv"


@dataclass(frozen=True)
class Target:
    """A target, whose module in ddnn_traces/export/ has a function `export(where, out, **options)`.

    name: of the command's --to. about: what is written, and for which program. out: what --out names. example: of an
    --out, for the user who gave none; empty where --out may be left out. options: those of the command that apply.
    next_step: what to do with the output.
    """

    name: str
    module: str
    about: str
    out: str
    example: str = ""
    options: tuple[str, ...] = ()
    next_step: str = ""

    def imported(self) -> Any:
        """The target's module."""
        return import_module(f"ddnn_traces.export.{self.module}")

    def write(self, where: str | Path, out: Path | None, options: dict[str, Any]) -> tuple[Path, list[str]]:
        """Write the dataset of a path or URL. Returns what was written, and lines for the user. Raises UsageError."""
        written: tuple[Path, list[str]] = self.imported().export(where, out, **options)
        return written


@dataclass(frozen=True)
class Simulator(Target):
    """A simulator, whose module has a function `write(replay, out)` (simulators.py), which returns notes for the user.

    A module that takes --collectives also has a function `load(dataset, options)` for these.

    files: a regular expression of the names of the files, where a folder is written; the module then also has a
    function `files(replay)`, which returns their names. single: suffix of an --out that is one file all the same.
    """

    options: tuple[str, ...] = ("run", "size", "gap_ms", "traffic", "from_step", "steps")
    next_step: str = "docs/exports.md explains how the simulator reads it"
    files: str = ""
    single: str | None = None

    def write(self, where: str | Path, out: Path | None, options: dict[str, Any]) -> tuple[Path, list[str]]:
        """As Target.write."""
        from ddnn_traces.export.simulators import ReplayOptions, usual_transfers
        from ddnn_traces.query.dataset import Dataset

        assert out is not None, "a simulator's example makes --out necessary"
        given = {**options}
        run = given.pop("run")
        with Dataset(where, [run] if run else None) as dataset:
            of_calls = given.get("collectives") or given.get("profiler")
            if of_calls or given.get("transfers", "") is None:
                given["transfers"] = "bursts" if of_calls else usual_transfers(dataset, given["size"])
            return out, self.write_run(dataset, out, ReplayOptions(**given))

    def write_run(self, dataset: Dataset, out: Path, options: ReplayOptions | None = None) -> list[str]:
        """Write the run of a dataset opened for a single one: a file or a folder.

        NODES lists the node of each host, in the folder or next to the file. Returns a line for everything that was
        left out or that the format cannot hold. The same run and options give the same bytes. Raises UsageError where
        the dataset has several runs, no transfer is selected, or `out` cannot be written.
        """
        from ddnn_traces.export import simulators

        module, options = self.imported(), options or simulators.ReplayOptions()
        replay = (module if options.collectives or options.profiler else simulators).load(dataset, options)
        try:
            if self.files and out.suffix != self.single:
                _make(out, replay.nodes.columns)
                with whole_files(out) as new:
                    _write_nodes(replay, new / NODES)
                    notes = module.write(replay, new)
                _remove_earlier(out, module.files(replay))
            else:
                notes = module.write(replay, out)
                _write_nodes(replay, out.with_name(f"{out.stem}.{NODES}"))
        except OSError as error:
            raise UsageError(f"{out}: cannot be written ({error.strerror}); choose another --out") from error
        return [*(f"left out: {line}" for line in replay.left_out), *(f"note: {line}" for line in notes)]


def _make(folder: Path, columns: Sequence[str]) -> None:
    """Make the folder, or take one of an earlier export. columns: of NODES."""
    if folder.exists() and not _is_export(folder, columns):
        raise UsageError(f"{folder}: exists and is no earlier export; choose another --out")
    folder.mkdir(exist_ok=True)
    sync([folder.parent])


def _remove_earlier(folder: Path, written: Collection[str]) -> None:
    """Remove the files of earlier exports that were not written again."""
    for path in folder.iterdir():
        earlier = any(re.fullmatch(simulator.files, path.name) for simulator in SIMULATORS.values())
        if earlier and path.name not in written:
            path.unlink()


def _is_export(folder: Path, columns: Sequence[str]) -> bool:
    """Whether a folder is empty, or was written by an export: then it has NODES with its columns."""
    if not (folder / NODES).is_file():
        return folder.is_dir() and not any(folder.iterdir())
    with (folder / NODES).open(encoding="utf-8", errors="replace") as file:
        return file.readline() == ",".join(columns) + "\n"


def _write_nodes(replay: Replay, path: Path) -> None:
    with (
        whole_file(path) as half_written,
        half_written.open("w", newline="", encoding="utf-8", errors="replace") as file,
    ):
        csv.writer(file, lineterminator="\n").writerows([replay.nodes.columns, *replay.nodes.iter_rows()])


_ALL: tuple[Target, ...] = (
    Target(
        "duckdb",
        "duckdb_file",
        about="all tables and queries as views and macros, which plain DuckDB opens",
        out="a file, by default DATASET/traces.duckdb",
    ),
    Target(
        "frozen-duckdb",
        "frozen_database",
        about="the rows themselves and all queries in one file, for ATTACH from any folder or URL",
        out="a file",
        example="a file: --out frozen.duckdb",
        options=("run",),
        next_step="ATTACH it (READ_ONLY) in DuckDB, and USE it for queries with parameters",
    ),
    Target(
        "perfetto",
        "perfetto",
        about="a timeline of one run, for ui.perfetto.dev",
        out="FILE.pftrace (extra explore), or FILE.json for others; also .gz",
        example="a file: --out timeline.json.gz",
        options=("run", "window_ms", "from_ms", "length_ms", "flows", "max_events"),
        next_step="open it in https://ui.perfetto.dev",
    ),
    Simulator(
        "basic-sim",
        "basic_sim",
        about="the transfers of one run as a TCP flow schedule, for basic-sim",
        out="a folder, or FILE.csv for the schedule alone",
        example="a folder: --out folder",
        files=r"tcp_flow_schedule\.csv|topology\.properties|config_ns3\.properties",
        single=".csv",
    ),
    Simulator(
        "htsim",
        "htsim",
        about="the transfers as a connection matrix, for htsim",
        out="a file",
        example="a file: --out run.cm",
        options=(*Simulator.options, "nodes"),
    ),
    Simulator(
        "goal",
        "goal",
        about="the transfers, or the messages of a job's collectives (--collectives), and their dependencies as a "
        "schedule, for LogGOPSim",
        out="a file",
        example="a file: --out run.goal",
        options=(*Simulator.options, "transfers", "calc", "collectives", "job"),
    ),
    Simulator(
        "chakra",
        "chakra",
        about="the transfers, or the collectives of a job (--collectives) or of a profiler (--profiler), and their "
        "dependencies as execution traces, for ASTRA-sim",
        out="a folder",
        example="a folder: --out folder",
        options=(*Simulator.options, "transfers", "calc", "collectives", "job", "profiler"),
        files=r"trace\.\d+\.et|comm_groups\.json",
    ),
)
TARGETS = {target.name: target for target in _ALL}

SIMULATORS = {name: target for name, target in TARGETS.items() if isinstance(target, Simulator)}
