"""The collectives that a profiler recorded, or that were simulated, as those of a job's traffic (collectives.py): for
simulators.

Nodes are the profiler's workers in their order. The calls of a group are put together by the numbers that the profiler
gives them, or else by their order at each worker, which is the same at all of them in MPI, NCCL and gloo.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import polars as pl

from ddnn_traces.chakra_format import COMM_TYPES
from ddnn_traces.errors import UsageError
from ddnn_traces.export.collectives import JobReplay, check_options, what_a_node_gives
from ddnn_traces.export.simulators import NODE_COLUMNS, ReplayOptions
from ddnn_traces.text import counted, natural_order

if TYPE_CHECKING:
    from ddnn_traces.query.dataset import Dataset

_GROUP = "process_group"
# what the workers of a simulated job say of the exchange of each buffer: the simulator names it so
_BUFFERS = """
    SELECT worker, host_ip, replace(kind, 'allreduce', 'all_reduce') AS kind, start_ns, end_ns, bytes,
           'all workers' AS process_group, dense_rank() OVER (ORDER BY step, name, kind) - 1 AS sequence
    FROM events
    JOIN runs USING (run_id)
    JOIN worker_hosts USING (run_id, worker)
    WHERE source = 'simulation' AND profiler IS NULL AND name LIKE 'buffer-%'
      AND step BETWEEN coalesce($first_step, step) AND coalesce($last_step, step)
    ORDER BY worker, start_ns, sequence
"""


def load_buffers(dataset: Dataset, options: ReplayOptions) -> JobReplay | None:
    """The exchanges of the buffers of a simulated job; None where the run is no such. Raises UsageError."""
    every = dataset.sql(_BUFFERS, options.step_range())
    if every.is_empty():
        return None
    check_options(options)
    if options.job:
        raise UsageError(f"--job {options.job}: the simulated run {dataset.only_run} has job 0")
    return _replay(dataset, every, "simulated")


def load(dataset: Dataset, options: ReplayOptions) -> JobReplay:
    """The collectives that a profiler recorded in a dataset opened for a single run.

    Raises UsageError where it recorded none, or not when they ended.
    """
    if options != ReplayOptions(profiler=options.profiler):
        raise UsageError("--profiler: takes no option but --run; a profiler's calls are exported as a whole")
    profiler = str(options.profiler)
    return _replay(dataset, _recorded(dataset, dataset.only_run, profiler), f"{profiler} recorded them")


def _replay(dataset: Dataset, every: pl.DataFrame, how: str) -> JobReplay:
    """The calls of all workers, of which `how` says by whom they are known. Raises UsageError where none is whole."""
    run = dataset.only_run
    nodes = _nodes(dataset, every)
    groups = {name: number for number, name in enumerate(every[_GROUP].unique(maintain_order=True))}
    known = every.filter(
        pl.col("kind").is_in(COMM_TYPES) & (pl.col("bytes").is_not_null() | (pl.col("kind") == "barrier"))
    )
    numbered = _numbered(known, run).with_columns(
        node=pl.col("worker").replace_strict(dict(nodes.select("label", "node").iter_rows()), return_dtype=pl.Int64),
        communicator=pl.col(_GROUP).replace_strict(groups, return_dtype=pl.Int64),
    )
    calls = _whole(numbered)
    if calls.is_empty():
        raise UsageError(f"run {run}: no collective, as {how}, has its kind, its bytes and all its workers")
    timed = _timed(calls)
    return JobReplay(
        run, nodes,
        groups=dict(calls.group_by("communicator", maintain_order=True).agg(pl.col("members").first()).iter_rows()),
        calls=timed,
        left_out=_left_out(every, numbered, calls),
        notes=[f"{counted(timed['call'].n_unique(), 'collective')}, as {how}"],
    )  # fmt: skip


def _recorded(dataset: Dataset, run: str, profiler: str) -> pl.DataFrame:
    """The profiler's calls, on the captures' clock where it is known."""
    rows = dataset.query("profiler_collectives")
    if rows.is_empty():
        raise UsageError(f"--profiler {profiler}: run {run} has no collectives of a profiler (docs/profilers.md)")
    profilers = sorted(rows["profiler"].unique())
    if profiler not in profilers:
        raise UsageError(f"--profiler {profiler}: run {run} has collectives of {', '.join(profilers)}")
    found = rows.filter(profiler=profiler)
    if open_ones := found["end_ns"].null_count():
        raise UsageError(
            f"--profiler {profiler}: run {run} has {counted(len(found), 'call')}, {open_ones:,} without "
            "an end, so the time between calls is not known; take another profiler, or the traffic with --collectives"
        )
    offsets = dataset.query("profiler_clocks").filter(profiler=profiler).select("worker", "offset_ns")
    moved = pl.col("start_ns", "end_ns") + pl.col("offset_ns").fill_null(0)
    return found.join(offsets, on="worker", how="left").with_columns(moved).sort("worker", "call").drop("call")


def _nodes(dataset: Dataset, calls: pl.DataFrame) -> pl.DataFrame:
    """Replay.nodes, of the profiler's workers: their names are the labels."""
    workers = calls.select("host_ip", label="worker").unique("label")
    names = dataset.query("host_names").select("host_ip", "host")
    roles = dataset.sql("SELECT host_ip, role FROM hosts").unique("host_ip")
    told = workers.join(names, on="host_ip", how="left").join(roles, on="host_ip", how="left")
    order = pl.Enum(sorted(told["label"], key=natural_order))
    return told.sort(pl.col("label").cast(order)).select(pl.int_range(pl.len()).alias("node"), *NODE_COLUMNS[1:])


def _numbered(calls: pl.DataFrame, run: str) -> pl.DataFrame:
    """The calls with their number in their group, the same at all its workers."""
    order = pl.int_range(pl.len()).over("worker", _GROUP)
    has_all = pl.col("sequence").is_not_null().all().over(_GROUP)
    numbered = calls.with_columns(number=pl.when(has_all).then("sequence").otherwise(order), by_order=~has_all)
    counts = numbered.filter("by_order").group_by(_GROUP, "worker").len().group_by(_GROUP).agg(pl.col("len").n_unique())
    for name, _ in counts.filter(pl.col("len") > 1).iter_rows():
        group = f"group {name}" if name else "a group without a name"
        raise UsageError(
            f"run {run} has workers with fewer calls than others in {group}, and calls without "
            "numbers, so it is not known which belong together"
        )
    return numbered


def _whole(numbered: pl.DataFrame) -> pl.DataFrame:
    """The collectives of two workers and more that all workers of their group have alike."""
    one = ["communicator", "number"]
    members = numbered.group_by("communicator").agg(members=pl.col("node").unique().sort())
    alike = (
        (pl.col("kind").n_unique() == 1) & (pl.col("bytes").n_unique() == 1) & (pl.col("node").n_unique() == pl.len())
    )
    return numbered.join(members, on="communicator").filter(
        (pl.col("members").list.len() > 1) & (pl.len().over(one) == pl.col("members").list.len()) & alike.over(one)
    )


def _timed(calls: pl.DataFrame) -> pl.DataFrame:
    """JobReplay.calls, in one order of all nodes."""
    one = ["communicator", "number"]
    order = calls.group_by(one).agg(pl.col("start_ns").min()).sort("start_ns", *one)
    rows = calls.join(order.select(*one, call=pl.int_range(pl.len())), on=one)
    rows = rows.with_columns(pl.col("start_ns", "end_ns") - calls["start_ns"].min()).sort("node", "start_ns", "call")
    waits = [wait for _, of_node in rows.group_by("node", maintain_order=True) for wait in _waits(of_node)]
    return rows.select(
        "node", "call", "communicator", "members", "kind", what_a_node_gives(pl.col("bytes").fill_null(1)), "start_ns",
        "end_ns", pl.DataFrame(waits, ["ready_ns", "needs"], orient="row").to_struct("waits"),
        said=pl.format("{} {} of {}", "kind", "number", pl.col(_GROUP).fill_null("a group without a name")),
        tensor_bytes="bytes", process_group=_GROUP,
    ).unnest("waits")  # fmt: skip


def _waits(of_node: pl.DataFrame) -> Iterator[tuple[int, list[int]]]:
    """Of each call of a node: when those that it waits for had ended and the one before began, and which these are.

    It waits for those that ended before it starts and that the one before did not wait for.
    """
    running: list[tuple[int, int]] = []
    before = 0
    for call, start, end in of_node.select("call", "start_ns", "end_ns").iter_rows():
        ended = sorted(one for one in running if one[0] <= start)
        yield max([before, *(at for at, _ in ended)]), [number for _, number in ended]
        running = [*(one for one in running if one[0] > start), (end, call)]
        before = start


def _left_out(every: pl.DataFrame, numbered: pl.DataFrame, calls: pl.DataFrame) -> list[str]:
    told = {
        "of kinds without a collective, or without bytes": len(every) - len(numbered),
        "that not all workers of their group have alike": len(numbered) - len(calls),
    }
    return [
        f"{number:,} of {counted(len(every), 'call')} {why}; their time is computation"
        for why, number in told.items()
        if number
    ]
