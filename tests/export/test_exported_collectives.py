"""The collectives of captured jobs as Chakra's, against what the programs did: run.toml's groups."""

from __future__ import annotations

import functools
import json
import tomllib
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import simulator_formats as formats
from simulator_exports import chain, chakra_ranks, hosts
from simulator_formats import Node
from test_simulators import check_operations, start_times

import ddnn_traces
from ddnn_traces.errors import UsageError
from ddnn_traces.export.collectives import load_messages
from ddnn_traces.export.simulators import ReplayOptions
from ddnn_traces.export.targets import SIMULATORS
from ddnn_traces.query.dataset import Dataset
from ddnn_traces.traffic import simulator
from ddnn_traces.traffic.simulator.job import SimulatedRun
from ddnn_traces.traffic.simulator.layers import thesis
from ddnn_traces.traffic.table_writer import write_traffic

DATA = Path(__file__).parents[2] / "data"
TWO_JOBS, PIPELINE = "jobs-ddp-moe-normal-n4", "torch-blocks-sgd-32-gloo-normal-pipeline-n4"
#: Runs with the program of each job.
JOBS = [
    ("torch-mlp4-sgd-32-gloo-normal-fsdp-n4", 0, "fsdp"),
    ("torch-mlp4-sgd-32-gloo-normal-two_rings-n4", 0, "two_rings"),
    (PIPELINE, 0, "pipeline"),
    ("torch-blocks-sgd-32-gloo-normal-tensor_data-n4", 0, "tensor_data"),
    ("torch-experts-sgd-32-gloo-normal-moe-n4", 0, "moe"),
    (TWO_JOBS, 0, "moe"),
    (TWO_JOBS, 1, "ddp"),
]
STEPS = 10
#: CollectiveCommType of et_def.proto.
TYPES = {"allreduce": 0, "reduce": 1, "allgather": 2, "broadcast": 5, "alltoall": 6, "reduce_scatter": 7}
#: Type of a collective (-1: sends, in both directions) and its ranks.
Key = tuple[int, tuple[int, ...]]
Ranks = list[dict[int, Node]]
Groups = dict[str, list[int]]


def opened(run: str) -> Dataset:
    return ddnn_traces.open(DATA / "dataset", [run])


def written(dataset: Dataset, folder: Path, **options: Any) -> tuple[Ranks, Groups, list[str]]:
    lines = SIMULATORS["chakra"].write_run(dataset, folder, ReplayOptions(collectives=True, **options))
    return chakra_ranks(folder), json.loads((folder / "comm_groups.json").read_text()), lines


def truth(run: str, program: str) -> dict[Key, tuple[int, float]]:
    """Calls of all steps, and bytes that a rank gives in a step."""
    about = tomllib.loads((DATA / "captures" / run / "run.toml").read_text())
    (job,) = (job for job in about["origin"]["jobs"] if job["program"] == program)
    found: dict[Key, tuple[int, float]] = defaultdict(lambda: (0, 0.0))
    for group in job["groups"]:
        for one in group["collectives"]:
            key = TYPES.get(one["kind"], -1), (*sorted(ranks := group["ranks"]),)
            given = one["bytes"] / (len(ranks) if one["kind"] == "allgather" else 1)
            times = 2 if program == "ddp" else one["per_step"]  # DistributedDataParallel's two buckets
            count, size = found[key]
            found[key] = count + STEPS * times, size + given * one["per_step"]
    return found


#: Of a run and a job: ranks, groups, and the addresses of the ranks.
Exported = Callable[[str, int], tuple[Ranks, Groups, dict[int, str]]]


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Exported:
    """Each job is exported once."""

    @functools.cache
    def export(run: str, job: int) -> tuple[Ranks, Groups, dict[int, str]]:
        folder = tmp_path_factory.mktemp("exported") / "out"
        with opened(run) as dataset:
            ranks, groups, _ = written(dataset, folder, job=job)
        return ranks, groups, hosts(folder / "nodes.csv")

    return export


@pytest.mark.parametrize(("run", "job", "program"), JOBS, ids=[f"{program}-{job}" for _, job, program in JOBS])
@pytest.mark.long_after(1)
def test_each_rank_has_the_collectives_of_its_program(exported: Exported, run: str, job: int, program: str) -> None:
    ranks, groups, addresses = exported(run, job)
    assert addresses == {rank: f"10.10.0.{rank + 1}" for rank in range(4)}
    wanted = truth(run, program)
    for rank, nodes in enumerate(ranks):
        calls: Counter[Key] = Counter()
        sizes: dict[Key, float] = defaultdict(float)
        for node in nodes.values():
            if node.kind != "calc":
                members = groups[node.pg_name] if node.kind == "coll" else (node.comm_src, node.comm_dst)
                key = node.comm_type if node.kind == "coll" else -1, (*sorted(members),)
                calls[key] += 1
                sizes[key] += node.comm_size / STEPS
        mine = {key for key in wanted if rank in key[1]}
        assert calls == {key: wanted[key][0] for key in mine}
        assert sizes == {key: pytest.approx(wanted[key][1], rel=0.03) for key in mine}


@pytest.fixture(
    scope="module", params=[("fsdp", 0), ("pipeline", 2), ("tensor_data", 3), ("two_rings", 1)], ids=lambda p: p[0]
)
def replay(request: pytest.FixtureRequest, exported: Exported) -> tuple[Ranks, Groups]:
    return exported(*JOBS[request.param[1]][:2])[:2]


@pytest.mark.long_after(1)
def test_with_the_times_of_the_run_each_begins_when_it_did(replay: tuple[Ranks, Groups]) -> None:
    for nodes in replay[0]:
        ended: dict[int, int] = {}
        for number, node in nodes.items():
            begin = max((ended[need] for need in node.depends), default=node.start_us)
            assert node.start_us == begin
            ended[number] = begin + node.duration_us
            if node.kind == "calc" and node.depends:  # the next call begins after the one before did
                last = max(n for n in node.depends if nodes[n].kind == "calc")
                assert node.start_us >= nodes[last].start_us + nodes[last].duration_us
    assert sum(n.duration_us for n in replay[0][0].values() if n.kind == "calc") > 10_000


def _done(ranks: Ranks, groups: Groups, order: list[int]) -> bool:
    """Whether all nodes end where a rank has one communication at a time, of the lowest id, and a collective begins as
    soon as all its ranks have it."""
    left, done = [dict(nodes) for nodes in ranks], [set[int]() for _ in ranks]
    holds: dict[int, int] = {}
    moved = True
    while moved:
        moved = False
        for rank in order:
            free = sorted(n for n, node in left[rank].items() if done[rank].issuperset(node.depends))
            for number in free:
                node = left[rank][number]
                if node.kind == "calc":
                    done[rank].add(number)
                    del left[rank][number]
                    moved = True
                elif rank not in holds:
                    holds[rank] = number
                    moved = True
        held = {rank: left[rank][number] for rank, number in holds.items()}
        for rank, node in list(held.items()):
            members = groups[node.pg_name] if node.kind == "coll" else [node.comm_src, node.comm_dst]
            if rank in holds and all(other in holds and held[other].comm_tag == node.comm_tag for other in members):
                for other in members:
                    done[other].add(holds[other])
                    del left[other][holds.pop(other)]
                moved = True
    return not any(left)


@pytest.mark.parametrize("order", [[0, 1, 2, 3], [3, 1, 2, 0]])
def test_no_rank_waits_for_ever(replay: tuple[Ranks, Groups], order: list[int]) -> None:
    assert _done(*replay, order)


@pytest.mark.long
def test_what_cannot_be_told_is_said(tmp_path: Path) -> None:
    with opened(TWO_JOBS) as dataset:
        with pytest.raises(UsageError, match=r"has 2 jobs: choose one with --job"):
            written(dataset, tmp_path / "out")
        with pytest.raises(UsageError, match=r"--job 2: run \S+ has job 0, job 1"):
            written(dataset, tmp_path / "out", job=2)
        with pytest.raises(UsageError, match="no collective in the selected steps"):
            written(dataset, tmp_path / "out", job=1, from_step=10)
        assert not (tmp_path / "out").exists()
        ranks, _, lines = written(dataset, tmp_path / "out", job=1, from_step=2, steps=3)
        kinds = dataset.query("collectives", job=1)
        total = dataset.query("traffic_matrix")["payload_bytes"].sum()
    calls = [node for node in ranks[0].values() if node.kind == "coll"]
    assert {node.others["step"] for node in calls} == {2, 3, 4}
    for node in calls:
        (row,) = kinds.filter(position=node.others["position"]).to_dicts()
        assert node.others["kind_or"] == row["kind_or"] == "two all_gather or reduce_scatter, or one of twice the bytes"
        assert node.name.endswith(f", or {row['kind_or']}")
        assert (node.others["tensor_bytes"], node.others["confidence"]) == (row["tensor_bytes"], row["confidence"])
    left_out = int(lines[0].removeprefix("left out: ").split(" ")[0].replace(",", ""))
    # each of 4 ranks sends 2 * 3/4 of the tensors: what both buckets send at once counts once
    assert total - left_out == pytest.approx(3 * 4 * 1.5 * kinds["tensor_bytes"].sum(), rel=0.001)
    assert lines == [
        f"left out: {left_out:,} of {total:,} payload bytes, in no exported collective of job 1",
        "note: job 1: 2 collectives a step, as inferred from the traffic; 2 may be of another kind (attribute kind_or)",
    ]


def test_options_of_transfers_do_not_go_with_collectives(tmp_path: Path) -> None:
    with chain(tmp_path) as dataset:
        with pytest.raises(UsageError, match="--job chooses a job of --collectives"):
            SIMULATORS["chakra"].write_run(dataset, tmp_path / "out", ReplayOptions(job=0))
        with pytest.raises(UsageError, match="the other options are of transfers"):
            written(dataset, tmp_path / "out", gap_ms=1.0)
        with pytest.raises(UsageError, match="shows no job"):
            written(dataset, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("run", "job", "program"), JOBS[1:4], ids=[program for _, _, program in JOBS[1:4]])
@pytest.mark.long_after(1)
def test_goal_has_the_messages_of_the_collectives(run: str, job: int, program: str, tmp_path: Path) -> None:
    with opened(run) as dataset:
        line, note = SIMULATORS["goal"].write_run(dataset, tmp_path / "run.goal", ReplayOptions(collectives=True))
        loaded = load_messages(dataset, ReplayOptions(collectives=True)).transfers
        sent = dataset.query("collective_transfers").unique(["step", "flow_id", "first_ns"])
        total = dataset.query("traffic_matrix")["payload_bytes"].sum()
    text = (tmp_path / "run.goal").read_text()
    ranks = formats.goal(text)
    check_operations(ranks)
    took = dict(zip(loaded["transfer"], loaded["end_ns"] - loaded["start_ns"], strict=True))
    assert start_times(ranks, took) == dict(zip(loaded["transfer"], loaded["start_ns"], strict=True))
    pairs: Counter[tuple[str, str]] = Counter()
    for rank, operations in enumerate(ranks):
        for operation in operations.values():
            if operation.kind == "send":
                pairs[f"10.10.0.{rank + 1}", f"10.10.0.{operation.peer + 1}"] += operation.size
    wanted = sent.group_by("src_ip", "dst_ip").agg(pl.col("bytes").sum()).rows()
    assert pairs == {(src, dst): pytest.approx(size, rel=0.01) for src, dst, size in wanted}
    inside = sum(pairs.values())
    assert line == f"left out: {total - inside:,} of {total:,} payload bytes, in no exported collective of job 0"
    assert note == "note: times are ns: LogGOPSim -L 0 -o 0 -g 0 -G 8 of 1000 Mbit/s"
    assert sum(len(operations) for operations in ranks) > 3 * STEPS * len(truth(run, program))
    for rank in text.split("\nrank ")[1:]:
        assert {f"of step {step}," in rank for step in range(STEPS)} == {True}


@pytest.mark.parametrize(
    ("topology", "mbit", "steps", "kinds"),
    [
        ("ring", 1000, 6, ["allreduce"]), ("ring", 100, 2, ["allreduce"]), ("tree", 100, 2, ["allreduce"]),
        ("star", 100, 2, ["broadcast", "reduce"]),
    ],
)  # fmt: skip
def test_a_simulated_job_has_the_collectives_of_each_buffer(
    topology: str, mbit: int, steps: int, kinds: list[str], tmp_path: Path
) -> None:
    """With the buffer's bytes, at each rank and in each step, also where no pause tells them apart."""
    run = SimulatedRun(
        workers=4, bandwidth_mbit=mbit, delay_ms=1, steps=steps, profile=thesis(20, 20_000_000, 300),
        fusion_bytes=6_000_000, topology=topology,
    )  # fmt: skip
    write_traffic(tmp_path / "dataset", [simulator.traffic(simulator.simulate(run))])
    with ddnn_traces.open(tmp_path / "dataset") as dataset:
        ranks, groups, lines = written(dataset, tmp_path / "out")
        second, *_ = written(dataset, tmp_path / "second", from_step=1)
        took = dataset.sql(
            "SELECT (max(end_ns) - min(start_ns)) / 1e3 FROM events WHERE kind IN ('allreduce', 'reduce', 'broadcast') "
            "GROUP BY worker ORDER BY worker"
        )
        with pytest.raises(UsageError, match="--job 1: the simulated run simulation has job 0"):
            written(dataset, tmp_path / "out", job=1)
    each = len(run.buffers) * len(kinds)
    assert len(run.buffers) > 2 and lines == [f"note: {steps * each} collectives, as simulated"]
    assert groups == {"1": [0, 1, 2, 3]} and len(ranks) == 4
    for nodes, of_second, (of_all,) in zip(ranks, second, took.iter_rows(), strict=True):
        calls = [node for node in nodes.values() if node.kind == "coll"]
        assert len(calls) == len(nodes) / 2 == steps * each and len(of_second) == len(nodes) * (steps - 1) / steps
        sizes = [(TYPES[kind], b.bytes) for kind in kinds for b in run.buffers for _ in range(steps)]
        assert sorted((node.comm_type, node.comm_size) for node in calls) == sorted(sizes)
        last = max(node.start_us + node.duration_us for node in calls)
        assert last - min(node.start_us for node in calls) == pytest.approx(of_all, abs=2)
        computed = sum(node.duration_us for node in nodes.values() if node.kind == "calc") / 1e3
        # forward passes, and what is computed while none runs
        assert (steps - 1) * 100 < computed < steps * 300
