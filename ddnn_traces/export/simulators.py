"""A run for other simulators: its transfers between numbered nodes, what each waits for, and how they are written.

Nodes are the hosts of the run (query run_hosts) and all that a transfer is from or to, numbered from 0 in the order of
query host_names (by rank). Times are ns since the start of the first transfer. Queries step_transfers and
transfer_dependencies define a transfer and what it waits for.

A Replay is not a traffic.Traffic. Traffic holds every packet of a run that was never captured, to be written as tables
or captures; a Replay is read from a dataset's tables, holds no packets, and adds the dependencies by which a simulator
decides when a transfer starts. A module a target writes it in that target's format; targets.py puts its files in place.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import polars as pl

from ddnn_traces.errors import UsageError
from ddnn_traces.query.dataset import Dataset

#: Most transfers of a file: numbers that the tags and ids of every format can hold.
MAX_TRANSFERS = 2**31 - 2

#: Columns of the table of nodes and their hosts.
NODE_COLUMNS = ("node", "host_ip", "host", "label", "role")


@dataclass(frozen=True)
class ReplayOptions:
    """The part of a run that is exported.

    size: bytes that count: payload, or wire (whole frames, acknowledgements too). gap_ms: silence that ends a transfer,
    ms. traffic: all, or steps (only traffic in training steps). from_step, steps: the first step and the number of
    steps; None: all. calc: computation between two transfers of a host: all of the time that passed, or events (only
    the host's compute phases, where it has any). nodes: hosts of the simulated network (htsim); None: of the smallest
    that fits. collectives: those of a job in place of transfers; job: its number; None: of the only one. profiler: the
    collectives that it recorded, in place of transfers. transfers: bursts of base windows, or messages, the table of
    that name, which has payload only.
    """

    size: str = "payload"
    gap_ms: float = 5.0
    traffic: str = "all"
    from_step: int | None = None
    steps: int | None = None
    calc: str = "all"
    nodes: int | None = None
    collectives: bool = False
    job: int | None = None
    profiler: str | None = None
    transfers: str = "bursts"

    def parameters(self) -> dict[str, Any]:
        """Parameters of the queries. Raises UsageError for a value that is out of range."""
        if not 0 < self.gap_ms < 1e12:
            raise UsageError(f"--gap-ms {self.gap_ms:g}: give milliseconds above 0 and below 1e12")
        if self.job is not None and not self.collectives:
            raise UsageError("--job chooses a job of --collectives; transfers are those of all jobs")
        if self.transfers == "messages" and self.size != "payload":
            raise UsageError("--transfers messages: a message is payload; --bytes wire is of bursts")
        return {
            "gap_ms": self.gap_ms, "cut": self.transfers, "counted": self.size, "traffic": self.traffic,
            **self.step_range(),
        }  # fmt: skip

    def step_range(self) -> dict[str, int | None]:
        """Parameters of the queries that choose steps. Raises UsageError for a value that is out of range."""
        for name, value in (("--from-step", self.from_step), ("--steps", self.steps)):
            if value is not None and not (name == "--steps") <= value < 2**62:
                raise UsageError(f"{name} {value} is out of range; give {'1' if name == '--steps' else '0'} or more")
        first = self.from_step if self.from_step is not None or self.steps is None else 0
        last = None if self.steps is None or first is None else first + self.steps - 1
        return {"first_step": first, "last_step": last}


@dataclass(frozen=True)
class Replay:
    """A run's transfers and their dependencies.

    nodes: node, host_ip, host, label, role. transfers, in the order of their starts: transfer (from 0), src and dst
    (nodes), protocol, step, flow_id, start_ns, end_ns, size (bytes), calc_ns (computation before the start), compute_ns
    (the part of it in the workers' phases), ready_ns (when the computation starts), needs (transfers that it waits for;
    at most one waits for each). link_mbit, delay_ms: of the run's metadata, null where it has none. left_out: a line
    for each kind of bytes that is not in transfers.
    """

    run: str
    options: ReplayOptions
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
        """The operations of a node in their order in the run, each with its transfer: calc (before the start of a
        transfer that the node sends), send and recv (at the transfer's end).

        An operation comes after all that it waits for: a transfer ends after it starts, and sends and receives come
        before calcs of the same time.
        """
        sent, received = self.transfers.filter(src=node), self.transfers.filter(dst=node)
        parts = [(sent, "calc", "start_ns", 1), (sent, "send", "end_ns", 0), (received, "recv", "end_ns", 0)]
        rows = pl.concat(
            part.with_columns(turn=pl.lit(turn), time=pl.col(time), place=pl.lit(place))
            for part, turn, time, place in parts
        )
        for row in rows.sort("time", "place", "transfer").iter_rows(named=True):
            yield row["turn"], row


def load(dataset: Dataset, options: ReplayOptions) -> Replay:
    """The transfers of a dataset opened for a single run.

    Raises UsageError where the dataset has several runs, no transfer is selected, or some are not known.
    """
    run, parameters = dataset.only_run, options.parameters()
    for problem in dataset.query("unknown_payload")["problem"]:
        raise UsageError(
            f"run {run}: {problem}, so its transfers cannot be replayed; ingest the pcaps if there are any"
        )
    every = dataset.query("step_transfers", **parameters)
    nodes = nodes_of(dataset, pl.concat([every["src_ip"], every["dst_ip"]]))
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
    return Replay(run, options, nodes, _timed(every, needs, options), link_mbit, delay_ms, left_out)


def usual_transfers(dataset: Dataset, size: str) -> str:
    """Messages, where a run has them and payload is exported; else bursts."""
    has_messages = dataset.sql("SELECT EXISTS (FROM messages) AS found")["found"][0]
    return "messages" if size == "payload" and has_messages else "bursts"


def nodes_of(dataset: Dataset, ends: pl.Series) -> pl.DataFrame:
    """Replay.nodes of a run: its hosts, and the ends of transfers, which for a ping need not be hosts of it."""
    hosts = pl.concat([dataset.query("run_hosts")["host_ip"], ends]).unique()
    names = dataset.query("host_names").filter(pl.col("host_ip").is_in(hosts.implode()))
    known = dataset.sql("SELECT host_ip, label, role FROM hosts ORDER BY host_ip")
    return names.join(known, on="host_ip", how="left", maintain_order="left").select(
        pl.int_range(pl.len()).alias("node"), *NODE_COLUMNS[1:]
    )


def _timed(transfers: pl.DataFrame, needs: pl.DataFrame, options: ReplayOptions) -> pl.DataFrame:
    """The transfers with the columns of Replay.transfers."""
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


def _nothing(run: str, dataset: Dataset, options: ReplayOptions) -> str:
    if options.traffic == "steps" or options.from_step is not None or options.steps is not None:
        least, most = dataset.sql("SELECT min(step) AS least, max(step) AS most FROM steps").row(0)
        there = "no steps: export all its traffic" if least is None else f"steps {least} to {most}"
        return f"run {run} sent nothing between its hosts in the selected steps; it has {there}"
    return f"run {run} sent nothing between two hosts: there is nothing to replay"


def _left_out(matrix: pl.DataFrame, number: dict[str, int], exported: int, options: ReplayOptions) -> list[str]:
    """The bytes of the run that are not exported, a line a reason."""
    column = f"{options.size}_bytes"
    is_host = pl.col("src_ip").is_in(list(number)) & pl.col("dst_ip").is_in(list(number))
    is_itself = pl.col("src_ip") == pl.col("dst_ip")
    between, itself, total = (
        int(matrix.filter(which)[column].sum()) for which in (is_host & ~is_itself, is_host & is_itself, True)
    )
    is_part = options.traffic == "steps" or options.from_step is not None or options.steps is not None
    again = "sent again, or captured in part" if options.transfers == "messages" else ""
    outside = "outside the selected steps" if is_part else ""
    reasons = {
        " or ".join(filter(None, (outside, again))) or "outside the selected steps": between - exported,
        "of hosts to themselves": itself,
        "to or from addresses that are no hosts (multicast, broadcast)": total - between - itself,
    }
    return [f"{count:,} of {total:,} {options.size} bytes, {reason}" for reason, count in reasons.items() if count]
