"""Sweeps of runs on ns-3: a row a cell, and tables of their flows, transfers and layers.

    OUT/cells.parquet, background_flows.parquet, transfers.parquet, layers.parquet, buffers.parquet
    OUT/cells/NAME/          tables of a finished cell; with --dataset also what ns-3 wrote
    OUT/cells/.NAME.PID/     a cell that is under way

NAME is made from the cell's keys, so that a sweep with more values keeps the cells that it has.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from ddnn_traces.errors import DdnnTracesError
from ddnn_traces.messages import Messages
from ddnn_traces.store.whole_files import is_running, whole_file, whole_folder
from ddnn_traces.text import counted
from ddnn_traces.traffic.ns3 import ns3_results, process
from ddnn_traces.traffic.ns3.ns3_job import ALL_KEYS, CONDITIONS, Ns3Run, job
from ddnn_traces.traffic.ns3.ns3_results import CountedTraffic, Ns3Result
from ddnn_traces.traffic.simulator import specification, sweep
from ddnn_traces.traffic.simulator.closed_forms import COMPUTE_TO_NETWORK, FLOW_MB, FLOW_RATES, Ring
from ddnn_traces.traffic.simulator.sweep import DATASET, Row
from ddnn_traces.traffic.table_writer import write_traffic

#: The thesis's campaign (Gao 2020, section 5.4.4), with two seeds more than its three: the least that have an interval
#: (queries/sweep/sharing_results.sql).
THESIS: dict[str, Any] = {
    "preset": "fast", "compute_to_network": list(COMPUTE_TO_NETWORK), "flows_per_s": list(FLOW_RATES),
    "training_priority": ["same", "lower"], "seed": [0, 1, 2, 3, 4],
}  # fmt: skip
CELLS = "cells"
TABLES = ("background_flows", "transfers", "layers")
_OF_NS3 = "ns3"


def run(
    path: Path | None,
    out: Path,
    jobs: int | None,
    dataset: bool,
    messages: Messages,
    compiler: str | None = None,
    debug: bool = False,
    training_only: bool = False,
) -> pl.DataFrame:
    """Simulate the sweep of a TOML file, or THESIS, into OUT; its cells.

    dataset: also write each as a run; training_only: the flows of its training alone.
    compiler, debug: as of engine.find. Raises UsageError and MissingExtra.
    """
    values = _specified(path)
    cells = list(specification.cells(values, ALL_KEYS))
    specification.check_used(cells, CONDITIONS)
    chosen = process.find(compiler, debug)
    messages.info(
        f"{chosen}; {counted(len(cells), 'cell')} into {out}, finished ones are kept: the same command goes on"
    )
    (out / CELLS).mkdir(parents=True, exist_ok=True)
    cell = Cell(chosen, out / CELLS, dataset)
    simulation = sweep.Simulation(cell.measures, ALL_KEYS, cost=packets, is_kept=cell.is_kept, apart=True)
    try:
        frame = sweep.sweep_and_say(values, out, jobs, messages, simulation)
    finally:
        _remove_under_way(out / CELLS)
    if "ended" in frame.columns and (stopped := frame.filter(ended=ns3_results.TIME_LIMIT)).height:
        messages.warn(
            f"{counted(len(stopped), 'cell')} of {len(frame):,} stopped at time_limit_s, measured is what is there; "
            f"the first: {_values(values, stopped.row(0, named=True))}"
        )
    frame = frame.select(pl.int_range(pl.len()).alias("cell"), pl.all())
    _write(frame, out / sweep.CELLS)
    done = {number: keys for number, keys in enumerate(cells) if frame["error"][number] is None}
    for name in TABLES if done else ():
        _join(name, {number: cell.folder(keys) for number, keys in done.items()}, out)
    _write(_buffers(done), out / "buffers.parquet")
    if dataset:
        names = sweep.named(values, frame, ALL_KEYS)
        runs = (cell.traffic(*pair, training_only) for pair in zip(done.values(), names, strict=True))
        write_traffic(out / DATASET, runs, tables=ns3_results.CountedTables)
    return frame


def axes(path: Path | None) -> list[str]:
    """Names of the axes of a TOML file, or of THESIS."""
    return list(specification.axes(_specified(path), ALL_KEYS))


def _specified(path: Path | None) -> dict[str, Any]:
    return specification.read_file(path) if path else THESIS


def _values(values: Mapping[str, Any], row: Row) -> str:
    return ", ".join(f"{name} {row[name]}" for name in specification.axes(values, ALL_KEYS))


def _remove_under_way(folder: Path) -> None:
    """Remove what processes that were ended have left."""
    for path in folder.glob(".*"):
        process = path.name.rpartition(".")[2]
        if process.isdigit() and not is_running(int(process)):
            shutil.rmtree(path, ignore_errors=True)


@dataclass(frozen=True)
class Cell:
    """Simulates cells into folders of their own below `above`. keeps: what ns-3 wrote, from which a run is made."""

    engine: process.Engine
    above: Path
    keeps: bool

    def folder(self, cell: Row) -> Path:
        """The folder of a finished cell."""
        return self.above / hashlib.sha256(sweep.key(cell).encode()).hexdigest()[:16]

    def is_kept(self, cell: Row, row: Row) -> bool:
        """Whether a finished cell has what is wanted of it; one that cannot be simulated has nothing."""
        folder = self.folder(cell)
        return row["error"] is not None or (folder / _OF_NS3 if self.keeps else folder).exists()

    def measures(self, cell: Row) -> Row:
        """Simulate a cell; its measures. Raises UsageError and SimulationError."""
        wanted = job(cell)
        folder = self.folder(cell)
        shutil.rmtree(folder, ignore_errors=True)  # finished, but not in the journal
        with whole_folder(folder) as half_written:
            written = half_written / _OF_NS3
            written.mkdir()
            result = ns3_results.read(wanted, written, process.simulate(wanted, self.engine, written))
            for name, table in tables(result).items():
                table.write_parquet(half_written / f"{name}.parquet")
            if not self.keeps:
                shutil.rmtree(written)
        return _facts(cell, wanted) | ns3_results.summary(result)

    def traffic(self, cell: Row, named: Row, training_only: bool) -> CountedTraffic:
        """A finished cell as traffic, from what ns-3 wrote. named: the cell with the name of its run."""
        written = self.folder(cell) / _OF_NS3
        summary = json.loads((written / process.SUMMARY).read_text(encoding="utf-8"))
        result = ns3_results.read(job(named), written, summary)
        return CountedTraffic(result.of_training() if training_only else result)


def packets(cell: Row) -> float:
    """Packets of a cell, about: what its simulation costs."""
    try:
        wanted = job(cell)
    except DdnnTracesError:
        return 0.0
    passes_s = wanted.profile.compute_ns / 1e9
    seconds = wanted.seconds or wanted.steps * passes_s
    bytes_per_s = _ring(wanted).bytes_per_iteration / passes_s + wanted.flows_per_s * wanted.sizes.mean
    return wanted.workers * bytes_per_s * seconds / wanted.segment_bytes


def _ring(wanted: Ns3Run) -> Ring:
    return Ring(wanted.model_bytes, wanted.workers, wanted.bandwidth_mbit)


def _facts(cell: Row, wanted: Ns3Run) -> Row:
    """What a cell is: its job, and the utilization that equations 5.1 to 5.5 expect of it."""
    ring = _ring(wanted)
    ratio = cell.get("compute_to_network") or ring.compute_to_network(wanted.profile.compute_ns / 1e6)
    flow_mb = wanted.sizes.mean / 1e6 if wanted.flow_sizes else FLOW_MB
    background = ring.background_utilization(wanted.flows_per_s, flow_mb)
    return {
        "compute_to_network": float(ratio), "flows_per_s": float(wanted.flows_per_s),
        "training_priority": wanted.training_priority, "seed": wanted.seed, "workers": wanted.workers,
        "bandwidth_mbit": wanted.bandwidth_mbit, "warm_up_s": wanted.warm_up_s, "cool_down_s": wanted.cool_down_s,
        "expected_utilization": 1 / ratio, "expected_background_utilization": background,
        "background_ratio": background * ratio,
    }  # fmt: skip


# --- tables


def tables(result: Ns3Result) -> dict[str, pl.DataFrame]:
    """The tables of a cell, by name; times in ns since the simulation began.

    background_flows: a row a flow; end_ns is null where it did not end. transfers: a row a partition that a worker
    received. layers: a row a pass of a layer, of worker 0.
    """
    begin, end = result.measured_ns()
    flows = result.background.select(
        "flow", "src", "dst", "bytes", "start_ns",
        end_ns=pl.when(pl.col("end_ns") >= 0).then(pl.col("end_ns")),
        is_measured=pl.col("start_ns").is_between(begin, end),
    )  # fmt: skip
    return {"background_flows": flows, "transfers": result.partitions, "layers": _layers(result)}


def _layers(result: Ns3Result) -> pl.DataFrame:
    """Passes of the layers at worker 0 in complete steps."""
    traffic = CountedTraffic(result)
    events = traffic.events
    columns = {"step": pl.Int64, "layer": pl.Int64, "kind": pl.String, "start_ns": pl.Int64, "end_ns": pl.Int64}
    if events is None:
        return pl.DataFrame(schema=columns)
    is_pass = np.isin(events.kind.astype(str), ("forward", "backward")) & (events.worker == traffic.labels[0])
    return pl.DataFrame(
        {
            "step": events.step[is_pass],
            "layer": events.priority[is_pass].filled(-1),
            "kind": events.kind[is_pass].astype(str),
            "start_ns": events.start_ns[is_pass] - traffic.begin_ns,
            "end_ns": events.end_ns[is_pass] - traffic.begin_ns,
        },
        schema=columns,
    )


def _join(name: str, folders: Mapping[int, Path], out: Path) -> None:
    """Write OUT/NAME.parquet with the rows of all cells."""
    parts = [
        pl.scan_parquet(folder / f"{name}.parquet").select(pl.lit(number, pl.Int64).alias("cell"), pl.all())
        for number, folder in folders.items()
    ]
    with whole_file(out / f"{name}.parquet") as half_written:
        pl.concat(parts).sink_parquet(half_written)


def _buffers(cells: Mapping[int, Row]) -> pl.DataFrame:
    """A row a fusion buffer of a cell: its first and last layer, bytes."""
    rows = [
        (number, place, buffer.first, buffer.last, buffer.bytes)
        for number, cell in cells.items()
        for place, buffer in enumerate(job(cell).buffers)
    ]
    names = ("cell", "buffer", "first_layer", "last_layer", "bytes")
    return pl.DataFrame(rows, schema=dict.fromkeys(names, pl.Int64), orient="row")


def _write(frame: pl.DataFrame, path: Path) -> None:
    with whole_file(path) as half_written:
        frame.write_parquet(half_written)
