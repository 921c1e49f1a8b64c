"""The collectives of a job of a run, as its traffic shows them, for simulators that have collectives of their own.
Those that a profiler or a simulation recorded: recorded.py.

Nodes are the hosts of the job, numbered from 0 in the order of query host_names. A call is a collective of one step at
one node. Query collectives has their kinds and sizes, collective_dependencies what each waits for.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl

from ddnn_traces.errors import UsageError
from ddnn_traces.export.simulators import Replay, ReplayOptions, nodes_of
from ddnn_traces.text import counted

if TYPE_CHECKING:
    from ddnn_traces.query.dataset import Dataset

_CALL = ["step", "position"]


@dataclass(frozen=True)
class JobReplay:
    """A job's collectives.

    nodes: as in simulators.Replay, of the job's hosts. groups: nodes of each communicator. calls, ordered by node, step
    and position: call (number of the collective in all steps, the same at each node), kind, said (its name), members
    (nodes: of a send from and to), size (bytes that a node gives), ready_ns, start_ns and end_ns since the first of
    all, needs (calls of the same node that it waits for), communicator; columns of query collectives, where there are.
    """

    run: str
    nodes: pl.DataFrame
    groups: dict[int, list[int]]
    calls: pl.DataFrame
    left_out: list[str]
    notes: list[str]

    def at(self, node: int) -> Iterator[dict[str, Any]]:
        """The calls of a node in their order."""
        return self.calls.filter(node=node).iter_rows(named=True)


def load(dataset: Dataset, options: ReplayOptions) -> JobReplay:
    """The collectives of a job of a dataset opened for a single run.

    Raises UsageError where the traffic shows no job, or several and none is chosen, or the steps have no collective.
    """
    run, job, nodes = _chosen(dataset, options)
    number = dict(zip(nodes["host_ip"], nodes["node"], strict=True))
    kinds = dataset.query("collectives", job=job).with_columns(members=_members(pl.col("hosts"), number))
    every = _calls(dataset.query("collective_dependencies", job=job, **options.step_range()), number)
    calls = every.join(kinds, on="position", maintain_order="left").filter(
        pl.col("node").n_unique().over(_CALL) == pl.col("members").list.len()
    )
    _check_any(calls, run, job)
    return JobReplay(
        run, nodes,
        groups={row["communicator"]: sorted(row["members"]) for row in kinds.iter_rows(named=True)},
        calls=_numbered(calls).with_columns(
            what_a_node_gives(pl.col("tensor_bytes")),
            said=pl.format("{} of step {}, position {}", "kind", "step", "position")
            + pl.concat_str(pl.lit(", or "), "kind_or").fill_null(""),
        ),
        left_out=_left_out(dataset, job, every, calls),
        notes=_notes(job, kinds),
    )  # fmt: skip


def load_messages(dataset: Dataset, options: ReplayOptions) -> Replay:
    """The messages of a job's collectives as transfers, which have a column more: said, their collective. As load."""
    run, job, nodes = _chosen(dataset, options)
    number = dict(zip(nodes["host_ip"], nodes["node"], strict=True))
    rows = dataset.query("collective_messages", job=job, **options.step_range())
    _check_any(rows, run, job)
    said = pl.format("{} of step {}, position {}", "kind", "step", "position")
    transfers = (
        rows.group_by("transfer", maintain_order=True)
        .agg(pl.exclude("needs_transfer").first(), needs=pl.col("needs_transfer").drop_nulls())
        .join(dataset.query("collectives", job=job).select("position", "kind"), on="position", maintain_order="left")
        .with_columns(
            pl.col("src_ip", "dst_ip").replace_strict(number, return_dtype=pl.Int64),
            pl.col("first_ns", "last_ns") - pl.col("first_ns").min(),
            said=said,
        )
        .rename({"src_ip": "src", "dst_ip": "dst", "first_ns": "start_ns", "last_ns": "end_ns", "bytes": "size"})
        .with_columns(calc_ns="delay_ns", ready_ns=pl.col("start_ns") - pl.col("delay_ns"))
    )
    left_out = _bytes_left_out(dataset, job, int(transfers["size"].sum()))
    link_mbit, delay_ms = dataset.sql("SELECT bandwidth_mbit, delay_ms FROM runs").row(0)
    return Replay(run, options, nodes, transfers, link_mbit, delay_ms, left_out)


def check_options(options: ReplayOptions) -> None:
    """Raises UsageError for options that are not of collectives."""
    taken = ReplayOptions(collectives=True, job=options.job, from_step=options.from_step, steps=options.steps)
    if options != taken:
        raise UsageError("--collectives takes --job, --from-step and --steps; the other options are of transfers")


def _chosen(dataset: Dataset, options: ReplayOptions) -> tuple[str, int, pl.DataFrame]:
    """Run, job and the job's nodes."""
    check_options(options)
    run = dataset.only_run
    job, addresses = _job(run, dataset.query("jobs"), options.job)
    nodes = nodes_of(dataset, pl.Series(addresses)).filter(pl.col("host_ip").is_in(addresses))
    return run, job, nodes.with_columns(node=pl.int_range(pl.len()))


def _check_any(rows: pl.DataFrame, run: str, job: int) -> None:
    if rows.is_empty():
        raise UsageError(f"run {run}, job {job}: no collective in the selected steps; query job_steps lists its steps")


def _job(run: str, jobs: pl.DataFrame, chosen: int | None) -> tuple[int, list[str]]:
    found = {row["job"]: row["hosts"].split(",") for row in jobs.iter_rows(named=True)}
    if not found:
        raise UsageError(f"run {run}: its traffic shows no job, so no collective is known (docs/collectives.md)")
    if chosen is None and len(found) > 1:
        raise UsageError(f"run {run} has {len(found)} jobs: choose one with --job; query jobs lists them")
    job = next(iter(found)) if chosen is None else chosen
    if job not in found:
        raise UsageError(f"--job {job}: run {run} has {', '.join(f'job {number}' for number in found)}")
    return job, found[job]


def _members(hosts: pl.Expr, number: dict[str, int]) -> pl.Expr:
    return hosts.str.split(",").list.eval(pl.element().replace_strict(number, return_dtype=pl.Int64))


def _calls(rows: pl.DataFrame, number: dict[str, int]) -> pl.DataFrame:
    """A row a call, with what it waits for as a list."""
    origin = rows["ready_ns"].min()
    return rows.group_by("host_ip", *_CALL, maintain_order=True).agg(
        pl.col("ready_ns", "start_ns", "end_ns").first() - origin,
        needs=pl.struct(step="needs_step", position="needs_position").filter(pl.col("needs_step").is_not_null()),
        node=pl.col("host_ip").first().replace_strict(number, return_dtype=pl.Int64),
    )  # fmt: skip


def _numbered(calls: pl.DataFrame) -> pl.DataFrame:
    """The calls with their numbers, also in needs; of those that are not exported none is needed."""
    order = calls.select(_CALL).unique().sort(_CALL).rows()
    numbers = {call: number for number, call in enumerate(order)}
    needs = [
        [numbers[call] for need in row if (call := (need["step"], need["position"])) in numbers]
        for row in calls["needs"]
    ]
    return calls.with_columns(
        call=pl.Series([numbers[call] for call in calls.select(_CALL).iter_rows()], dtype=pl.Int64),
        needs=pl.Series(needs, dtype=pl.List(pl.Int64)),
    ).sort("node", "call")


def what_a_node_gives(tensor_bytes: pl.Expr) -> pl.Expr:
    """Column size, of columns kind and members: of an all-gather its part of what nccl-tests prints, the whole."""
    parts = pl.when(kind="all_gather").then(pl.col("members").list.len()).otherwise(1)
    return (tensor_bytes / parts).round().cast(pl.Int64).clip(1).alias("size")


def _bytes_left_out(dataset: Dataset, job: int, inside: int) -> list[str]:
    total = int(dataset.query("traffic_matrix")["payload_bytes"].sum())
    return [f"{total - inside:,} of {total:,} payload bytes, in no exported collective of job {job}"]


def _left_out(dataset: Dataset, job: int, every: pl.DataFrame, calls: pl.DataFrame) -> list[str]:
    sent = dataset.query("collective_transfers", job=job).join(calls.select(_CALL).unique(), on=_CALL, how="semi")
    once = sent.unique(["step", "flow_id", "first_ns"])  # channels, and buckets at once, share their flows' bytes
    lines = _bytes_left_out(dataset, job, int(once["bytes"].sum()))
    known, kept = (len(frame.select(_CALL).unique()) for frame in (every, calls))
    if known > kept:
        lines.append(f"{known - kept:,} of {known:,} collectives, which were not seen at all of their hosts")
    return lines


def _notes(job: int, kinds: pl.DataFrame) -> list[str]:
    doubtful = len(kinds) - kinds["kind_or"].null_count()
    said = f"job {job}: {counted(len(kinds), 'collective')} a step, as inferred from the traffic"
    return [said + (f"; {doubtful} may be of another kind (attribute kind_or)" if doubtful else "")]
