"""Exports of captured runs: read back by the readers' rules they have the run's bytes a pair, and no deadlock."""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path

import polars as pl
import pytest
import simulator_formats as formats
from datasets import write_dataset
from simulator_exports import MS, TARGETS, Exported, chakra_ranks, export, read_pairs
from simulator_formats import Node, Operation
from tools import mostly_long, mostly_nightly

import ddnn_traces
from ddnn_traces.export import simulators
from ddnn_traces.export.simulators import ReplayOptions
from ddnn_traces.export.targets import SIMULATORS
from ddnn_traces.query.dataset import Dataset

RUNS = (
    "torch-mlp1-sgd-32-gloo-0ms-ring", "torchp2p-mlp1-sgd-32-gloo-0ms-star", "torchp2p-mlp1-sgd-32-gloo-0ms-tree",
    "tf-mlp1-sgd-32-grpc-0ms-ps", "torchp2p-mlp1-pairavg-32-gloo-0ms-gossip",
)  # fmt: skip
QUICK = (RUNS[0], "payload"), (RUNS[3], "wire")
#: Each run and each size; all of both in the night.
BEFORE_THE_NIGHT = *QUICK, (RUNS[1], "wire"), (RUNS[2], "payload"), (RUNS[4], "payload")
CASES = mostly_nightly(
    mostly_long(product(RUNS, ("payload", "wire")), *QUICK, name="-".join), *map("-".join, BEFORE_THE_NIGHT)
)


@pytest.fixture(scope="module", params=CASES)
def exported(
    request: pytest.FixtureRequest, sample_dataset: Dataset, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Exported]:
    run, size = request.param
    with ddnn_traces.open(sample_dataset.path, [run]) as opened:
        yield export(opened, tmp_path_factory.mktemp("export"), size=size)


# --- nodes


def test_nodes_are_the_hosts_that_exchange_data_and_ends_of_transfers(tmp_path: Path) -> None:
    """10.0.0.4 and 10.0.0.5 have no data, the link-local addresses only discover neighbours; a ping is a transfer."""
    case = Path(__file__).parents[1] / "queries" / "run_hosts" / "neighbour_discovery"
    write_dataset(tmp_path / "d", {table: pl.read_csv(case / f"{table}.csv") for table in ("runs", "hosts", "flows")})
    with ddnn_traces.open(tmp_path / "d", ["a"]) as opened:
        hosts = opened.query("run_hosts")["host_ip"].to_list()
        alone, with_ping = (
            simulators.nodes_of(opened, pl.Series(ends, dtype=pl.String)) for ends in ([], ["10.0.0.5", "10.0.0.1"])
        )
    assert "fe80::1" not in hosts and "10.0.0.5" not in hosts
    assert sorted(alone["host_ip"]) == sorted(hosts)
    assert sorted(with_ping["host_ip"]) == sorted([*hosts, "10.0.0.5"])
    assert with_ping["node"].to_list() == [*range(len(hosts) + 1)]


# --- bytes a pair


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.long_after(3)
def test_each_pair_sends_what_its_flows_sent(exported: Exported, target: str) -> None:
    assert read_pairs(target, exported.folder) == exported.pairs_of_flows() != {}
    assert [line for line in exported.lines if line.startswith("left out")] == []


@pytest.mark.parametrize("size", ["payload", pytest.param("wire", marks=pytest.mark.long)])
def test_steps_hold_what_was_sent_in_them(sample_dataset: Dataset, tmp_path: Path, size: str) -> None:
    with ddnn_traces.open(sample_dataset.path, [RUNS[0]]) as opened:
        export(opened, tmp_path, size=size, from_step=2, steps=3)
        rows = opened.sql(
            f"SELECT src_ip, dst_ip, sum(s.{size}_bytes)::BIGINT FROM step_flows AS s "
            f"JOIN flows USING (run_id, flow_id) WHERE step BETWEEN 2 AND 4 AND s.{size}_bytes > 0 GROUP BY ALL"
        ).rows()
        lines = SIMULATORS["goal"].write_run(opened, tmp_path / "steps.goal", ReplayOptions(size=size, traffic="steps"))
        whole, inside = opened.sql(
            f"SELECT sum({size}_bytes)::BIGINT, "
            f"(SELECT sum({size}_bytes)::BIGINT FROM step_flows WHERE position = 'during') FROM flows"
        ).row(0)
    for target in TARGETS:
        assert read_pairs(target, tmp_path) == {(source, to): count for source, to, count in rows} != {}
    assert lines == [
        f"left out: {whole - inside:,} of {whole:,} {size} bytes, outside the selected steps",
        "note: times are ns: LogGOPSim -L 0 -o 0 -g 0 -G 8 of 1000 Mbit/s",
    ]


# --- dependencies


def start_times(ranks: list[dict[str, Operation]], took: Mapping[int, int]) -> dict[int, int]:
    """When each send begins where a transfer takes so long and nothing else does, by tag. None is left waiting."""
    waiting = {
        (r, label): len(o.requires) + (o.kind == "recv") for r, ops in enumerate(ranks) for label, o in ops.items()
    }
    dependents: dict[tuple[int, str], list[tuple[int, str]]] = defaultdict(list)
    receives = {
        (r, o.peer, o.tag): (r, label) for r, ops in enumerate(ranks) for label, o in ops.items() if o.kind == "recv"
    }
    for rank, operations in enumerate(ranks):
        for label, operation in operations.items():
            for need in operation.requires:
                dependents[rank, need].append((rank, label))
    ready = [(0, key) for key, count in waiting.items() if count == 0]
    heapq.heapify(ready)
    begun, done = {}, 0
    latest: dict[tuple[int, str], int] = defaultdict(int)
    while ready:
        time, (rank, label) = heapq.heappop(ready)
        operation, done = ranks[rank][label], done + 1
        then = [(time + (operation.size if operation.kind == "calc" else 0), key) for key in dependents[rank, label]]
        if operation.kind == "send":
            begun[operation.tag] = time
            then.append((time + took[operation.tag], receives[operation.peer, rank, operation.tag]))
        for at, key in then:
            latest[key], waiting[key] = max(latest[key], at), waiting[key] - 1
            if waiting[key] == 0:
                heapq.heappush(ready, (latest[key], key))
    assert done == len(waiting), f"{len(waiting) - done} operations never begin"
    return begun


def as_operations(ranks: list[dict[int, Node]]) -> list[dict[str, Operation]]:
    """Chakra nodes as GOAL's operations, ns."""
    found = []
    for rank, nodes in enumerate(ranks):
        found.append({})
        for number, node in nodes.items():
            requires = [str(need) for need in node.depends]
            peer = node.comm_dst if rank == node.comm_src else node.comm_src
            size = node.duration_us * 1000 if node.kind == "calc" else node.comm_size
            found[-1][str(number)] = Operation(node.kind, size, peer, node.comm_tag, requires)
    return found


def check_operations(ranks: list[dict[str, Operation]]) -> None:
    """Both ends of each message are there once and agree, and an operation comes after those that it requires."""
    for operations in ranks:
        before: set[str] = set()
        for label, operation in operations.items():
            assert set(operation.requires) <= before
            before.add(label)
    ends = {
        kind: Counter(
            (rank, o.peer, o.tag, o.size) if kind == "send" else (o.peer, rank, o.tag, o.size)
            for rank, operations in enumerate(ranks)
            for o in operations.values()
            if o.kind == kind
        )
        for kind in ("send", "recv")
    }
    assert ends["send"] == ends["recv"]
    assert set(ends["send"].values()) == {1}
    assert all(0 <= peer < len(ranks) != rank for rank, peer, _, _ in ends["send"])


def test_goal_begins_each_transfer_when_it_began(exported: Exported) -> None:
    ranks = formats.goal((exported.folder / "run.goal").read_text())
    check_operations(ranks)
    rows = exported.replay.transfers
    took = dict(zip(rows["transfer"], rows["end_ns"] - rows["start_ns"], strict=True))
    assert start_times(ranks, took) == dict(zip(rows["transfer"], rows["start_ns"], strict=True))


def test_messages_in_place_of_bursts(sample_dataset: Dataset, tmp_path: Path) -> None:
    """Each message is a send that begins when its first packet did; the rounds of a ring are apart."""
    with ddnn_traces.open(sample_dataset.path, [RUNS[0]]) as opened:
        options = ReplayOptions(transfers="messages", traffic="steps")
        lines = SIMULATORS["goal"].write_run(opened, tmp_path / "run.goal", options)
        rows = simulators.load(opened, options).transfers
        bursts = simulators.load(opened, ReplayOptions(traffic="steps")).transfers
        sizes = opened.sql("SELECT bytes FROM messages")["bytes"]
        between = opened.sql("SELECT sum(payload_bytes)::BIGINT FROM flows").item()
    ranks = formats.goal((tmp_path / "run.goal").read_text())
    check_operations(ranks)
    took = dict(zip(rows["transfer"], rows["end_ns"] - rows["start_ns"], strict=True))
    assert start_times(ranks, took) == dict(zip(rows["transfer"], rows["start_ns"], strict=True))
    assert len(rows) > len(bursts) and not Counter(rows["size"]) - Counter(sizes)
    left = between - rows["size"].sum()
    assert f"left out: {left:,} of {between:,} payload bytes, outside the selected steps or sent again, " in lines[0]


def test_chakra_begins_each_transfer_when_it_began(exported: Exported) -> None:
    ranks = chakra_ranks(exported.folder / "chakra")
    assert all(node.is_cpu_op == (node.kind == "calc") for rank in ranks for node in rank.values())
    operations = as_operations(ranks)
    check_operations(operations)
    rows = exported.replay.transfers
    took = dict(zip(rows["transfer"], rows["end_ns"] // 1000 * 1000 - rows["start_ns"] // 1000 * 1000, strict=True))
    begun = start_times(operations, took)
    assert begun == dict(zip(rows["transfer"], rows["start_ns"] // 1000 * 1000, strict=True))
    assert {n.comm_tag: n.start_us * 1000 for rank in ranks for n in rank.values() if n.kind == "send"} == begun


@pytest.mark.parametrize("divisor", [1, 1000])
def test_no_transfer_waits_for_ever_on_a_faster_network(exported: Exported, divisor: int) -> None:
    rows = exported.replay.transfers
    took = dict(zip(rows["transfer"], (rows["end_ns"] - rows["start_ns"]) // divisor, strict=True))
    begun = start_times(formats.goal((exported.folder / "run.goal").read_text()), took)
    assert all(begun[number] <= start for number, start in zip(rows["transfer"], rows["start_ns"], strict=True))


def test_chakra_runs_where_a_rank_has_one_communication_at_a_time(exported: Exported) -> None:
    """As ASTRA-sim's HardwareResource: of what may begin, the lowest id; a receive holds it until it has come."""
    ranks = chakra_ranks(exported.folder / "chakra")
    left = [dict(nodes) for nodes in ranks]
    done: list[set[int]] = [set() for _ in ranks]
    sent: set[int] = set()
    holds: list[int | None] = [None] * len(ranks)
    moved = True
    while moved:
        moved = False
        for rank, nodes in enumerate(left):
            free = sorted(n for n, node in nodes.items() if done[rank].issuperset(node.depends))
            for number in free:
                node = nodes[number]
                if node.kind == "recv" and holds[rank] is None:
                    holds[rank] = number
                if (node.kind == "send" and holds[rank] is None) or node.kind == "calc":
                    sent |= {node.comm_tag} if node.kind == "send" else set()
                elif not (node.kind == "recv" and holds[rank] == number and node.comm_tag in sent):
                    continue
                else:
                    holds[rank] = None
                done[rank].add(number)
                del nodes[number]
                moved = True
    assert left == [{} for _ in ranks]


def test_htsim_starts_what_waited_by_triggers(exported: Exported) -> None:
    matrix = formats.htsim((exported.folder / "run.cm").read_text())
    rows = exported.replay.transfers.rows(named=True)
    assert len(matrix.connections) == len(rows)
    for connection, row in zip(matrix.connections, rows, strict=True):
        needs = {number for number, c in enumerate(matrix.connections) if c.recv_done_trigger == connection.trigger}
        if connection.trigger:
            assert needs == set(row["needs"])
            assert row["start_ns"] - max(rows[need]["end_ns"] for need in needs) < 5 * MS
        else:
            assert connection.start_ps == pytest.approx(row["start_ns"] * 1000, rel=2**-23)
    assert any(connection.trigger for connection in matrix.connections)
    by_trigger = sum(bool(connection.trigger) for connection in matrix.connections)
    assert any(f"{by_trigger:,} of {len(rows):,} transfers" in line for line in exported.lines)


def test_basic_sim_has_the_run_s_times_and_links(exported: Exported) -> None:
    flows, topology = formats.basic_sim(exported.folder / "basic-sim")
    rows = exported.replay.transfers
    assert [flow.start_ns for flow in flows] == rows["start_ns"].to_list()
    assert float(topology["link_net_device_data_rate_megabit_per_s"]) == 1000  # of the run's metadata
    assert flows[-1].metadata.startswith(f"{exported.replay.run};flow={rows['flow_id'][-1]};step=")


@pytest.mark.long
def test_the_same_bytes_again(sample_dataset: Dataset, tmp_path: Path) -> None:
    files: list[dict[str, bytes]] = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        with ddnn_traces.open(sample_dataset.path, [RUNS[0]]) as opened:
            export(opened, tmp_path / name)
        paths = [path for path in (tmp_path / name).rglob("*") if path.is_file()]
        files.append({str(path.relative_to(tmp_path / name)): path.read_bytes() for path in paths})
    assert files[0] == files[1]
    outs = {target if name == "folder" else name for target, name in TARGETS.items()}
    assert {Path(name).parts[0] for name in files[0]} >= outs
