"""A run as a connection matrix of htsim (github.com/Broadcom/csg-htsim).

A transfer is a connection. It starts by a trigger if, in the run, it started as soon as the transfers that it waits for
were received (within the gap that ends a transfer), else at its time in the run: the format has no computation. A
trigger set off by one transfer is a oneshot, by several a barrier. Times are picoseconds.

Format: ConnectionMatrix::load in sim/datacenter/connection_matrix.cpp. It reads a start as a single-precision number
(24 bits: 8 us of 100 s), a size as a 32-bit one: larger transfers are several connections. Comments stand before the
first connection, fields are separated by one blank, an id stands before the trigger. Its fat trees have K^3/4 hosts
(FatTreeTopology::set_params in fat_tree_topology.cpp), so the matrix names more nodes than the run has.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from ddnn_traces.errors import UsageError
from ddnn_traces.store.whole_files import whole_file
from ddnn_traces.text import counted

if TYPE_CHECKING:
    from ddnn_traces.export.simulators import Replay

#: Most bytes of a connection.
MAX_BYTES = 2**31 - 1


def write(replay: Replay, out: Path) -> list[str]:
    """Write the connection matrix; return notes for the user. Raises UsageError."""
    hosts, nodes = len(replay.nodes), replay.options.nodes
    if nodes is None:
        nodes = next(size for size in (k**3 // 4 for k in count(2, 2)) if size >= hosts)
    elif not hosts <= nodes < 2**31:
        raise UsageError(f"--nodes {nodes}: the run has {hosts} hosts; give as many or more")
    transfers = _with_triggers(replay)
    connections, large = int(transfers["parts"].sum()), int((transfers["parts"] > 1).sum())
    triggers = int(transfers["waits"].sum())
    with whole_file(out) as half_written, half_written.open("w", encoding="ascii") as file:
        file.write(f"# Run {replay.name}: {replay.options.size} bytes, times in ps\n")
        file.write(f"Nodes {nodes}\nConnections {connections}\nTriggers {triggers}\n")
        file.writelines(_connections(transfers))
        for row in transfers.filter("waits").iter_rows(named=True):
            needed = row["activations"]
            kind = "oneshot" if needed == 1 else f"barrier count {needed}"
            file.write(f"trigger id {row['transfer'] + 1} {kind}\n")
    notes = [
        f"{nodes:,} nodes, {hosts:,} of them hosts of the run; --nodes sets another network than the "
        "smallest fat tree of three tiers",
        f"started by a trigger: {triggers:,} of {counted(len(transfers), 'transfer')}; the others at their times in "
        "the run: htsim's matrix has no computation",
    ]
    if large:
        notes.append(f"{large:,} transfers above {MAX_BYTES:,} bytes are several connections each")
    return notes


def _with_triggers(replay: Replay) -> pl.DataFrame:
    """The transfers with parts (connections), waits (whether it starts by a trigger, which has its number),
    activations (how often that trigger is set off) and releases (the transfer whose trigger it sets off)."""
    transfers = replay.transfers.with_columns(((pl.col("size") - 1) // MAX_BYTES + 1).alias("parts"))
    edges = transfers.select("transfer", "start_ns", pl.col("needs").alias("need")).explode("need").drop_nulls()
    edges = edges.join(transfers.select("transfer", "end_ns", "parts"), left_on="need", right_on="transfer")
    waiting = edges.group_by("transfer", "start_ns").agg(pl.col("end_ns").max(), activations=pl.col("parts").sum())
    waiting = waiting.filter(pl.col("start_ns") - pl.col("end_ns") < replay.options.gap_ms * 1e6)
    released = edges.join(waiting, on="transfer", how="semi").select(transfer="need", releases="transfer")
    for more in (waiting.select("transfer", "activations"), released):
        transfers = transfers.join(more, on="transfer", how="left", maintain_order="left")
    return transfers.with_columns(waits=pl.col("activations").is_not_null())


def _connections(transfers: pl.DataFrame) -> Iterator[str]:
    number = 0
    for row in transfers.iter_rows(named=True):
        begin = f"trigger {row['transfer'] + 1}" if row["waits"] else f"start {row['start_ns'] * 1000}"
        end = "" if row["releases"] is None else f" recv_done_trigger {row['releases'] + 1}"
        for sent in range(0, row["size"], MAX_BYTES):
            number += 1
            size = min(row["size"] - sent, MAX_BYTES)
            yield f"{row['src']}->{row['dst']} id {number} {begin} size {size}{end}\n"
