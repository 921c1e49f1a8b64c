"""The targets of `export`: what each writes, with which options, in which module.

The command takes its choices, options and messages from TARGETS. Modules of targets are imported when used: this one is
imported at each start of the command line.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any


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

    files: a regular expression of the names of the files, where a folder is written; the module then also has a
    function `files(replay)`, which returns their names. single: suffix of an --out that is one file all the same.
    """

    options: tuple[str, ...] = ("run", "size", "gap_ms", "traffic", "from_step", "steps")
    next_step: str = "docs/exports.md explains how the simulator reads it"
    files: str = ""
    single: str | None = None

    def write(self, where: str | Path, out: Path | None, options: dict[str, Any]) -> tuple[Path, list[str]]:
        """As Target.write."""
        from ddnn_traces.export import simulators

        assert out is not None, "a simulator's example makes --out necessary"
        return out, simulators.export(self.name, where, out, **options)


_ALL: tuple[Target, ...] = (
    Target(
        "duckdb",
        "duckdb_file",
        about="all tables and queries as views and macros, which plain DuckDB opens",
        out="a file, by default DATASET/traces.duckdb",
    ),
    Target(
        "perfetto",
        "perfetto",
        about="a timeline of one run in the trace-event format, for ui.perfetto.dev",
        out="FILE.json or FILE.json.gz",
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
        about="the transfers and their dependencies as a schedule, for LogGOPSim",
        out="a file",
        example="a file: --out run.goal",
        options=(*Simulator.options, "calc"),
    ),
    Simulator(
        "chakra",
        "chakra",
        about="the transfers and their dependencies as execution traces, for ASTRA-sim",
        out="a folder",
        example="a folder: --out folder",
        options=(*Simulator.options, "calc"),
        files=r"trace\.\d+\.et",
    ),
)
TARGETS = {target.name: target for target in _ALL}

SIMULATORS = {name: target for name, target in TARGETS.items() if isinstance(target, Simulator)}
