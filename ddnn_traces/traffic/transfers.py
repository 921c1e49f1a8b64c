"""What of a run other simulators replay: its transfers between numbered nodes, and what each waits for.

Nodes are the hosts of the run, numbered from 0 in the order of query host_names (by rank). Times are ns since the first
transfer's begin. Queries step_transfers and transfer_dependencies say what a transfer is and what it waits for.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from ddnn_traces.errors import UsageError
from ddnn_traces.store.whole_files import whole_file

if TYPE_CHECKING:
    from ddnn_traces.query.dataset import Dataset

#: Transfers of a file: numbers that every format's tags and ids can hold.
MAX_TRANSFERS = 2**31 - 2

#: Of the table that says which node is which host.
NODE_COLUMNS = ("node", "host_ip", "host", "label", "role")


@dataclass(frozen=True)
class Options:
    """What of a run is exported.

    size: payload, or wire (whole frames, acknowledgements too). gap_ms: a silence of so long ends a transfer.
    traffic: all, or steps (only what was sent in training steps). from_step, steps: only so many steps from that one
    on; None: all. calc: what a host computes between two transfers: all of the time that passed, or events (only what
    its phases say, where they say something). nodes: hosts of the simulated network (htsim); None: of the smallest.
    """

    size: str = "payload"
    gap_ms: float = 5.0
    traffic: str = "all"
    from_step: int | None = None
    steps: int | None = None
    calc: str = "all"
    nodes: int | None = None

    def parameters(self) -> dict[str, Any]:
        """Parameters of the queries. Raises UsageError for a value that is none."""
        if not 0 < self.gap_ms < 1e12:
            raise UsageError(f"--gap-ms {self.gap_ms:g} is no length of time; give milliseconds above 0 and below 1e12")
        for name, value in (("--from-step", self.from_step), ("--steps", self.steps)):
            if value is not None and not (name == "--steps") <= value < 2**62:
                raise UsageError(f"{name} {value} is out of range; give {'1' if name == '--steps' else '0'} or more")
        first = self.from_step if self.from_step is not None or self.steps is None else 0
        last = None if self.steps is None or first is None else first + self.steps - 1
        return {
            "gap_ms": self.gap_ms, "counted": self.size, "traffic": self.traffic,
            "first_step": first, "last_step": last,
        }  # fmt: skip


@dataclass(frozen=True)
class Traffic:
    """A run's transfers, ready to be written.

    nodes: node, host_ip, host, label, role. transfers, in the order of their begins: transfer (from 0), src and dst
    (nodes), protocol, step, flow_id, start_ns, end_ns, size (bytes), calc_ns (before the begin), compute_ns (of that,
    by the workers' phases), ready_ns (when calc_ns begins), needs (transfers that it waits for; each is of one at
    most). link_mbit, delay_ms: as the run's metadata has them. left_out: a line for each thing not in transfers.
    """

    run: str
    options: Options
    nodes: pl.DataFrame
    transfers: pl.DataFrame
    link_mbit: float | None
    delay_ms: float | None
    left_out: list[str]

    @property
    def name(self) -> str:
        """The run's name as one word of plain letters, for comments and metadata of any format."""
        return re.sub(r"[^A-Za-z0-9._+-]", "_", self.run)

    @property
    def end_ns(self) -> int:
        """End of the last transfer."""
        return int(self.transfers["end_ns"].max())  # type: ignore[arg-type]

    def turns(self, node: int) -> Iterator[tuple[str, dict[str, Any]]]:
        """What a node does, in the order in which it did: calc (before a transfer that it sends begins), send and recv
        (at the transfer's end), each with the transfer.

        Whatever one waits for stands before it: a transfer ends after it begins, and of what happens at one time the
        transfers come before the calcs.
        """
        sent, received = self.transfers.filter(src=node), self.transfers.filter(dst=node)
        parts = [(sent, "calc", "start_ns", 1), (sent, "send", "end_ns", 0), (received, "recv", "end_ns", 0)]
        rows = pl.concat(
            part.with_columns(turn=pl.lit(turn), time=pl.col(time), place=pl.lit(place))
            for part, turn, time, place in parts
        )
        for row in rows.sort("time", "place", "transfer").iter_rows(named=True):
            yield row["turn"], row


def load(dataset: Dataset, options: Options) -> Traffic:
    """The transfers of a dataset opened for a single run.

    Raises UsageError where the dataset shows several runs, or nothing of the run is wanted.
    """
    run, parameters = dataset.only_run, options.parameters()
    nodes = _nodes(dataset)
    every = dataset.query("step_transfers", **parameters)
    needs = dataset.query("transfer_dependencies", **parameters)
    number = dict(zip(nodes["host_ip"], nodes["node"], strict=True))
    if every.is_empty():
        raise UsageError(_nothing(run, dataset, options))
    if len(every) > MAX_TRANSFERS:
        raise UsageError(f"run {run} has {len(every):,} transfers, more than a file holds; take fewer --steps")
    ends = pl.col("src_ip", "dst_ip").replace_strict(number, return_dtype=pl.Int64)
    every = every.with_columns(ends).rename({"src_ip": "src", "dst_ip": "dst", "transfer_bytes": "size"})
    link_mbit, delay_ms = dataset.sql("SELECT bandwidth_mbit, delay_ms FROM runs").row(0)
    left_out = _left_out(dataset.query("traffic_matrix"), number, int(every["size"].sum()), options)
    return Traffic(run, options, nodes, _timed(every, needs, options), link_mbit, delay_ms, left_out)


def write_nodes(traffic: Traffic, path: Path) -> None:
    """Write which node is which host, as CSV."""
    with (
        whole_file(path) as half_written,
        half_written.open("w", newline="", encoding="utf-8", errors="replace") as file,
    ):
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(traffic.nodes.columns)
        writer.writerows(traffic.nodes.iter_rows())


def _nodes(dataset: Dataset) -> pl.DataFrame:
    names = dataset.query("host_names")
    known = dataset.sql("SELECT host_ip, label, role FROM hosts ORDER BY host_ip")
    return names.join(known, on="host_ip", how="left", maintain_order="left").select(
        pl.int_range(pl.len()).alias("node"), *NODE_COLUMNS[1:]
    )


def _timed(transfers: pl.DataFrame, needs: pl.DataFrame, options: Options) -> pl.DataFrame:
    """The transfers with what they wait for."""
    waits = needs.group_by("transfer").agg(
        pl.col("delay_ns").first(), pl.col("compute_ns").first(),
        pl.col("needs_transfer").drop_nulls().sort().alias("needs"),
    )  # fmt: skip
    calc = pl.coalesce("compute_ns", "delay_ns") if options.calc == "events" else pl.col("delay_ns")
    return (
        transfers.join(waits, on="transfer", how="left", maintain_order="left")
        .with_columns(pl.col("start_ns", "end_ns") - pl.col("start_ns").min())
        .with_columns(calc.alias("calc_ns"), (pl.col("start_ns") - pl.col("delay_ns")).alias("ready_ns"))
        .select(
            "transfer", "src", "dst", "protocol", "step", "flow_id", "start_ns", "end_ns", "size", "calc_ns",
            "compute_ns", "ready_ns", "needs",
        )
    )  # fmt: skip


def _nothing(run: str, dataset: Dataset, options: Options) -> str:
    steps = dataset.sql("SELECT min(step) AS least, max(step) AS most FROM steps").row(0)
    if options.traffic == "steps" or options.from_step is not None or options.steps is not None:
        there = "no steps: ask for all its traffic" if steps[0] is None else f"steps {steps[0]} to {steps[1]}"
        return f"run {run} sent nothing between its hosts in the steps that were asked for; it has {there}"
    return f"run {run} sent nothing between two hosts: there is nothing to replay"


def _left_out(matrix: pl.DataFrame, number: dict[str, int], exported: int, options: Options) -> list[str]:
    """What of the run's bytes is not exported, and why."""
    column = f"{options.size}_bytes"
    is_host = pl.col("src_ip").is_in(list(number)) & pl.col("dst_ip").is_in(list(number))
    is_itself = pl.col("src_ip") == pl.col("dst_ip")
    between, itself, total = (
        int(matrix.filter(which)[column].sum()) for which in (is_host & ~is_itself, is_host & is_itself, True)
    )
    reasons = {
        "outside the steps that were asked for": between - exported,
        "of hosts to themselves": itself,
        "to or from addresses that are no hosts (multicast, broadcast)": total - between - itself,
    }
    return [f"{count:,} of {total:,} {options.size} bytes, {reason}" for reason, count in reasons.items() if count]
