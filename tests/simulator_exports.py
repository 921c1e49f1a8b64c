"""Runs exported to the simulators' formats, and what the readers of simulator_formats.py make of the files."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import simulator_formats as formats
from datasets import write_dataset
from simulator_formats import Node

from ddnn_traces.export import simulators
from ddnn_traces.export.simulators import Replay, ReplayOptions
from ddnn_traces.export.targets import SIMULATORS
from ddnn_traces.query.dataset import Dataset

#: What `export` writes of each simulator: a file, or a folder of the target's name.
TARGETS = {"basic-sim": "folder", "htsim": "run.cm", "goal": "run.goal", "chakra": "folder"}
MS = 1_000_000

Pairs = dict[tuple[str, str], int]


@dataclass
class Exported:
    """A run and what was written of it."""

    dataset: Dataset
    replay: Replay
    folder: Path
    lines: list[str]

    def pairs_of_flows(self) -> Pairs:
        rows = self.dataset.sql(
            f"SELECT src_ip, dst_ip, sum({self.replay.options.size}_bytes)::BIGINT AS size FROM flows "
            "WHERE src_ip IN (SELECT host_ip FROM hosts) AND dst_ip IN (SELECT host_ip FROM hosts) "
            "GROUP BY ALL HAVING size > 0"
        ).rows()
        return {(source, target): size for source, target, size in rows}


def export(dataset: Dataset, folder: Path, **options: Any) -> Exported:
    """All four formats: folder/basic-sim/, run.cm, run.goal, chakra/."""
    lines = []
    for target, name in TARGETS.items():
        out = folder / (target if name == "folder" else name)
        lines += SIMULATORS[target].write_run(dataset, out, ReplayOptions(**options))
    return Exported(dataset, simulators.load(dataset, ReplayOptions(**options)), folder, lines)


def hosts(path: Path) -> dict[int, str]:
    with path.open(newline="", encoding="utf-8") as file:
        return {int(row["node"]): row["host_ip"] for row in csv.DictReader(file)}


def pairs(sizes: Iterator[tuple[int, int, int]], names: Mapping[int, str]) -> Pairs:
    found: Counter[tuple[str, str]] = Counter()
    for source, target, size in sizes:
        found[names[source], names[target]] += size
    return dict(found)


def chakra_ranks(folder: Path) -> list[dict[int, Node]]:
    return [formats.chakra(folder / f"trace.{rank}.et")[1] for rank in range(len(list(folder.glob("trace.*.et"))))]


def read_pairs(target: str, folder: Path) -> Pairs:
    """The bytes that each pair sends by the files of a target."""
    names = hosts(folder / target / "nodes.csv" if TARGETS[target] == "folder" else folder / "run.nodes.csv")
    if target == "basic-sim":
        return pairs(((f.source, f.target, f.size) for f in formats.basic_sim(folder / target)[0]), names)
    if target == "htsim":
        matrix = formats.htsim((folder / "run.cm").read_text())
        return pairs(((c.source, c.target, c.size) for c in matrix.connections), names)
    if target == "goal":
        sends = [
            (rank, operation.peer, operation.size)
            for rank, operations in enumerate(formats.goal((folder / "run.goal").read_text()))
            for operation in operations.values()
            if operation.kind == "send"
        ]
        return pairs(iter(sends), names)
    nodes = [node for rank in chakra_ranks(folder / target) for node in rank.values() if node.kind == "send"]
    return pairs(((node.comm_src, node.comm_dst, node.comm_size) for node in nodes), names)


def make(folder: Path, flows: str, windows: str, **tables: str) -> Dataset:
    """A dataset of one run r (or whose names the rows give) from rows of text."""
    heads = {
        "flows": "run_id,flow_id,src_ip,dst_ip,protocol,src_port,dst_port,payload_bytes,wire_bytes",
        "flow_windows": "run_id,window_start_ns,window_ns,flow_id,packets,wire_bytes,payload_bytes",
        "hosts": "run_id,host_ip,label,role",
        "events": "run_id,worker,step,kind,start_ns,end_ns",
        "runs": "run_id,source",
    }
    given = {"flows": flows, "flow_windows": windows, **tables}
    given.setdefault("hosts", "r,10.0.0.1,worker-1,worker\nr,10.0.0.2,worker-2,worker\nr,10.0.0.3,worker-3,worker")
    given.setdefault("runs", "r,capture")
    frames = {
        name: pl.read_csv(f"{heads[name]}\n{rows}\n".encode(), infer_schema=False) for name, rows in given.items()
    }
    return write_dataset(folder / "dataset", frames)


def chain(folder: Path, size: int = 1000, **tables: str) -> Dataset:
    """1 sends to 2 at 0 ms, 2 to 3 at 1 ms and 3 to 1 at 20 ms."""
    flows = "\n".join(
        f"r,{i},10.0.0.{a},10.0.0.{b},6,1,2,{size},{size}" for i, (a, b) in enumerate(((1, 2), (2, 3), (3, 1)))
    )
    windows = "\n".join(f"r,{ms * MS},{MS},{i},1,{size},{size}" for i, ms in enumerate((0, 1, 20)))
    return make(folder, flows, windows, **tables)
