"""Collectives that profilers recorded, as Chakra's: a real run against its Kineto files, and calls written by hand."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from datasets import write_dataset
from simulator_exports import chakra_ranks, hosts
from simulator_formats import Node
from tools import run_here

from ddnn_traces.errors import UsageError
from ddnn_traces.export.simulators import ReplayOptions
from ddnn_traces.export.targets import SIMULATORS
from ddnn_traces.query.dataset import Dataset

PROFILED = Path(__file__).parents[1] / "traces/profilers/torch-mlp1-sgd-32-gloo-normal-ring-n4"
US = 1000
#: Two all-reduces at once, and an all-gather that waits for both; on a clock of microseconds.
WORKERS = ("worker-1", "worker-2", "worker-10")
OVERLAPPING = [
    (worker, kind, late + start, late + end, size, "dp", number)
    for late, worker in zip((0, 5, 9), WORKERS, strict=True)
    for kind, start, end, size, number in (
        ("allreduce", 100, 300, 4000, 7), ("allreduce", 150, 320, 8000, 8), ("allgather", 400, 450, 3000, 9),
    )
]  # fmt: skip


def dataset(folder: Path, calls: list[tuple[Any, ...]], profiler: str = "kineto") -> Dataset:
    """A run of these calls: worker, kind, start and end (us), bytes, group, sequence."""
    names = ("worker", "kind", "start_ns", "end_ns", "bytes", "process_group", "sequence")
    events = pl.DataFrame(calls, names, orient="row").with_columns(
        pl.col("start_ns", "end_ns") * US, run_id=pl.lit("r"), profiler=pl.lit(profiler)
    )
    addresses = [f"10.0.0.{i}" for i in range(1, 4)]
    about = pl.DataFrame({"run_id": "r", "host_ip": addresses, "label": WORKERS, "role": "worker"})
    flows = pl.DataFrame(
        {
            "run_id": "r", "flow_id": [0, 1], "src_ip": addresses[:2], "dst_ip": addresses[1:], "protocol": 6,
            "src_port": 1, "dst_port": 2, "payload_bytes": 9, "wire_bytes": 9,
        }
    )  # fmt: skip
    runs = pl.DataFrame({"run_id": ["r"], "source": ["capture"]})
    return write_dataset(folder / "dataset", {"events": events, "hosts": about, "flows": flows, "runs": runs})


def written(of: Dataset, folder: Path, profiler: str = "kineto") -> tuple[list[dict[int, Node]], list[str]]:
    with of:
        lines = SIMULATORS["chakra"].write_run(of, folder / "out", ReplayOptions(profiler=profiler))
    return chakra_ranks(folder / "out"), lines


def test_calls_at_once_do_not_wait_for_each_other(tmp_path: Path) -> None:
    """By hand, of the first worker: 50 us between two starts, and 80 us of computation behind the last end."""
    ranks, lines = written(dataset(tmp_path, OVERLAPPING), tmp_path)
    assert lines == ["note: 3 collectives, as kineto recorded them"]
    assert hosts(tmp_path / "out" / "nodes.csv") == {i: f"10.0.0.{i + 1}" for i in range(3)}, "2 is before 10"
    assert json.loads((tmp_path / "out" / "comm_groups.json").read_text()) == {"1": [0, 1, 2]}
    first, second, third = (list(nodes.items()) for nodes in ranks)
    shown = [(number, n.kind, n.start_us, n.duration_us, n.comm_size, sorted(n.depends)) for number, n in first]
    assert shown == [
        (0, "calc", 0, 0, 0, []), (1, "coll", 0, 200, 4000, [0]),
        (2, "calc", 0, 50, 0, [0]), (3, "coll", 50, 170, 8000, [2]),
        (4, "calc", 220, 80, 0, [1, 2, 3]), (5, "coll", 300, 50, 1000, [4]),
    ]  # fmt: skip
    assert [node.comm_type for _, node in first if node.kind == "coll"] == [0, 0, 2]
    assert [node.duration_us for _, node in second if node.kind == "calc"] == [5, 50, 80], "it came 5 us later"
    for of_rank in (second, third):
        assert [node.comm_tag for _, node in of_rank] == [node.comm_tag for _, node in first]


def test_each_group_has_its_ranks(tmp_path: Path) -> None:
    pairs = [(worker, "allreduce", 10, 20, 8, "tp", 0) for worker in WORKERS[1:]]
    alone = ("worker-1", "allreduce", 10, 20, 8, "alone", 0)
    ranks, lines = written(dataset(tmp_path, [*OVERLAPPING, *pairs, alone]), tmp_path)
    groups = json.loads((tmp_path / "out" / "comm_groups.json").read_text())
    assert sorted(groups.values()) == [[0, 1, 2], [1, 2]]
    assert [sum(node.kind == "coll" for node in nodes.values()) for nodes in ranks] == [3, 4, 4]
    names = {node.pg_name: node.others["process_group"] for node in ranks[1].values() if node.kind == "coll"}
    assert {name: groups[number] for number, name in names.items()} == {"dp": [0, 1, 2], "tp": [1, 2]}
    assert "left out: 1 of 12 calls that not all workers of their group have alike; their time is computation" in lines


def test_what_is_not_alike_is_left_out(tmp_path: Path) -> None:
    """A recorder that began one call later, another size, a send, and a call without bytes."""
    calls = [call for call in OVERLAPPING if call[:2] != ("worker-2", "allgather") and call[0::6] != ("worker-1", 7)]
    more = [("worker-1", "send", 500, 510, 8, "dp", 10), ("worker-2", "allreduce", 600, 610, None, "dp", 11)]
    ranks, lines = written(dataset(tmp_path, [*calls, *more]), tmp_path)
    assert [[n.comm_size for n in nodes.values() if n.kind == "coll"] for nodes in ranks] == [[8000]] * 3
    assert {n.comm_tag for nodes in ranks for n in nodes.values() if n.kind == "coll"} == {0}
    assert lines == [
        "left out: 2 of 9 calls of kinds without a collective, or without bytes; their time is computation",
        "left out: 4 of 9 calls that not all workers of their group have alike; their time is computation",
        "note: 1 collective, as kineto recorded them",
    ]


def unnumbered(*left_out: int) -> list[tuple[Any, ...]]:
    return [(*call[:5], None, None) for number, call in enumerate(OVERLAPPING) if number not in left_out]


def test_calls_without_numbers_are_put_together_by_their_order(tmp_path: Path) -> None:
    ranks, _ = written(dataset(tmp_path, unnumbered()), tmp_path)
    assert [[n.name for n in nodes.values() if n.kind == "coll"] for nodes in ranks] == [
        [f"{kind} of a group without a name" for kind in ("all_reduce 0", "all_reduce 1", "all_gather 2")]
    ] * 3
    assert all("step" not in node.others for nodes in ranks for node in nodes.values())


@pytest.mark.parametrize(
    ("calls", "profiler", "says"),
    [
        (unnumbered(4), "kineto", "fewer calls than others in a group without a name, and calls without numbers"),
        ([(*OVERLAPPING[0][:3], None, *OVERLAPPING[0][4:]), *OVERLAPPING[1:]], "kineto", "9 calls, 1 without an end"),
        (OVERLAPPING, "nsys", "--profiler nsys: run r has collectives of kineto"),
        (
            OVERLAPPING[:3],
            "kineto",
            "no collective, as kineto recorded them, has its kind, its bytes and all its workers",
        ),
    ],
)
def test_what_cannot_be_exported_is_one_line(
    calls: list[tuple[Any, ...]], profiler: str, says: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=says):
        written(dataset(tmp_path, calls), tmp_path, profiler)
    assert not (tmp_path / "out").exists()


@pytest.mark.long
def test_the_calls_of_a_real_run_are_those_of_its_kineto_files(tmp_path: Path) -> None:
    assert run_here("ingest", PROFILED, "--out", tmp_path / "dataset").returncode == 0
    done = run_here("export", tmp_path / "dataset", "--to", "chakra", "--profiler", "kineto", "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    ranks = chakra_ranks(tmp_path / "out")
    assert len(ranks) == 4
    for number, nodes in enumerate(ranks, 1):
        trace = json.loads(gzip.decompress((PROFILED / f"kineto-worker-{number}.json.gz").read_bytes()))
        calls = sorted(
            (event["ts"], event["dur"], event["name"].removeprefix("gloo:"))
            for event in trace["traceEvents"]
            if event["name"] in ("gloo:all_reduce", "gloo:broadcast")
        )
        exported = [node for node in nodes.values() if node.kind == "coll"]
        assert [node.comm_type for node in exported] == [{"all_reduce": 0, "broadcast": 5}[name] for *_, name in calls]
        for node, (ts, duration, _) in zip(exported, calls, strict=True):
            assert node.duration_us == pytest.approx(duration, abs=2)
            assert node.start_us - exported[0].start_us == pytest.approx(ts - calls[0][0], abs=3)


def test_options_of_other_collectives_are_refused(tmp_path: Path) -> None:
    with dataset(tmp_path, OVERLAPPING) as of, pytest.raises(UsageError, match="--profiler: takes no option but --run"):
        SIMULATORS["chakra"].write_run(of, tmp_path / "out", ReplayOptions(profiler="kineto", steps=3))
