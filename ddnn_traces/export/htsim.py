"""A run as a connection matrix of htsim (github.com/Broadcom/csg-htsim).

A transfer is a connection. It starts by a trigger when what it waits for is received, where it did so at once in the
run (within the gap that ends a transfer), else at its time in the run: the format has no computation. A trigger of one
transfer is a oneshot, of several a barrier. Times are picoseconds.

Format: ConnectionMatrix::load in sim/datacenter/connection_matrix.cpp. It reads a start as a single-precision number
(24 bits: 8 us of 100 s), a size as a 32-bit one: larger transfers are several connections. Comments stand before the
first connection, fields are parted by one blank, an id stands before the trigger. Its fat trees have K^3/4 hosts
(FatTreeTopology::set_params in fat_tree_topology.cpp), so the matrix names more nodes than the run has.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import polars as pl

from ddnn_traces.errors import UsageError
from ddnn_traces.store.whole_files import whole_file
from ddnn_traces.traffic.transfers import Traffic

#: Most bytes of a connection.
MAX_BYTES = 2**31 - 1


def write(traffic: Traffic, out: Path) -> list[str]:
    """Write the connection matrix; return what the reader should know of it."""
    nodes = _network_nodes(len(traffic.nodes), traffic.options.nodes)
    transfers = _with_triggers(traffic)
    connections, large = int(transfers["parts"].sum()), int((transfers["parts"] > 1).sum())
    triggers = int(transfers["waits"].sum())
    with whole_file(out) as half_written, half_written.open("w", encoding="ascii") as file:
        file.write(f"# Run {traffic.name}: {traffic.options.size} bytes, times in ps\n")
        file.write(f"Nodes {nodes}\nConnections {connections}\nTriggers {triggers}\n")
        file.writelines(_connections(transfers))
        for row in transfers.filter("waits").iter_rows(named=True):
            needed = row["activations"]
            kind = "oneshot" if needed == 1 else f"barrier count {needed}"
            file.write(f"trigger id {row['transfer'] + 1} {kind}\n")
    told = [
        f"{nodes:,} nodes, of which the run has {len(traffic.nodes):,}: --nodes is for another network than the "
        "smallest fat tree of three tiers",
        f"{triggers:,} of {len(transfers):,} transfers start by a trigger, the others at their times in the run: "
        "htsim's matrix has no computation",
    ]
    if large:
        told.append(f"{large:,} transfers above {MAX_BYTES:,} bytes are several connections each")
    return told


def _network_nodes(hosts: int, wanted: int | None) -> int:
    """Hosts of the network: as wanted, else of the smallest fat tree of three tiers that has enough."""
    if wanted is None:
        return next(size for size in (k**3 // 4 for k in count(2, 2)) if size >= hosts)
    if not hosts <= wanted < 2**31:
        raise UsageError(f"--nodes {wanted}: the run has {hosts} hosts; give as many or more")
    return wanted


def _with_triggers(traffic: Traffic) -> pl.DataFrame:
    """waits: whether a transfer starts by a trigger, which has its number; activations: how often that is set off;
    releases: the transfer whose trigger it sets off."""
    transfers = traffic.transfers.with_columns(((pl.col("size") - 1) // MAX_BYTES + 1).alias("parts"))
    edges = transfers.select("transfer", "start_ns", pl.col("needs").alias("need")).explode("need").drop_nulls()
    edges = edges.join(transfers.select("transfer", "end_ns", "parts"), left_on="need", right_on="transfer")
    waiting = edges.group_by("transfer", "start_ns").agg(
        pl.col("end_ns").max(), pl.col("parts").sum().alias("activations")
    )
    waiting = waiting.filter(pl.col("start_ns") - pl.col("end_ns") < traffic.options.gap_ms * 1e6)
    released = edges.join(waiting, on="transfer", how="semi")
    return (
        transfers.join(waiting.select("transfer", "activations"), on="transfer", how="left", maintain_order="left")
        .join(
            released.select(pl.col("need").alias("transfer"), pl.col("transfer").alias("releases")),
            on="transfer", how="left", maintain_order="left",
        )
        .with_columns(pl.col("activations").is_not_null().alias("waits"))
    )  # fmt: skip


def _connections(transfers: pl.DataFrame) -> Iterator[str]:
    number = 0
    for row in transfers.iter_rows(named=True):
        for size in _parts(row["size"]):
            number += 1
            yield _connection(row, number, size)


def _parts(size: int) -> Iterator[int]:
    while size > 0:
        yield min(size, MAX_BYTES)
        size -= MAX_BYTES


def _connection(row: dict[str, Any], number: int, size: int) -> str:
    begin = f"trigger {row['transfer'] + 1}" if row["waits"] else f"start {row['start_ns'] * 1000}"
    end = "" if row["releases"] is None else f" recv_done_trigger {row['releases'] + 1}"
    return f"{row['src']}->{row['dst']} id {number} {begin} size {size}{end}\n"
