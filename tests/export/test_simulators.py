"""Exports for other simulators: each read back by its reader's rules has the run's bytes a pair, and no deadlock."""

from __future__ import annotations

import csv
import heapq
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import simulator_formats as formats
from datasets import write_dataset
from simulator_formats import Node, Operation
from tools import RunCommand

import ddnn_traces
from ddnn_traces.errors import UsageError
from ddnn_traces.export import basic_sim, htsim, simulators
from ddnn_traces.query.dataset import Dataset
from ddnn_traces.traffic import transfers
from ddnn_traces.traffic.transfers import Options, Traffic

RUNS = (
    "torch-mlp1-sgd-32-gloo-0ms-ring", "torchp2p-mlp1-sgd-32-gloo-0ms-star", "torchp2p-mlp1-sgd-32-gloo-0ms-tree",
    "tf-mlp1-sgd-32-grpc-0ms-ps", "torchp2p-mlp1-pairavg-32-gloo-0ms-gossip",
)  # fmt: skip
TARGETS = {"basic-sim": "folder", "htsim": "run.cm", "goal": "run.goal", "chakra": "folder"}
MS = 1_000_000

Pairs = dict[tuple[str, str], int]


@dataclass
class Exported:
    """A run and what was written of it."""

    dataset: Dataset
    traffic: Traffic
    folder: Path
    told: list[str]

    def pairs_of_flows(self) -> Pairs:
        rows = self.dataset.sql(
            f"SELECT src_ip, dst_ip, sum({self.traffic.options.size}_bytes)::BIGINT AS size FROM flows "
            "WHERE src_ip IN (SELECT host_ip FROM hosts) AND dst_ip IN (SELECT host_ip FROM hosts) "
            "GROUP BY ALL HAVING size > 0"
        ).rows()
        return {(source, target): size for source, target, size in rows}


def export(dataset: Dataset, folder: Path, **options: Any) -> Exported:
    """All four formats: folder/basic-sim/, run.cm, run.goal, chakra/."""
    told = []
    for target, name in TARGETS.items():
        out = folder / (target if name == "folder" else name)
        told += simulators.write(dataset, target, out, Options(**options))
    return Exported(dataset, transfers.load(dataset, Options(**options)), folder, told)


@pytest.fixture(scope="module", params=[(run, size) for run in RUNS for size in ("payload", "wire")], ids="-".join)
def exported(
    request: pytest.FixtureRequest, sample_dataset: Dataset, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Exported]:
    run, size = request.param
    with ddnn_traces.open(sample_dataset.path, [run]) as opened:
        yield export(opened, tmp_path_factory.mktemp("export"), size=size)


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
    """What each pair sends by the files of a target."""
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


# --- bytes a pair


@pytest.mark.parametrize("target", TARGETS)
def test_each_pair_sends_what_its_flows_sent(exported: Exported, target: str) -> None:
    assert read_pairs(target, exported.folder) == exported.pairs_of_flows() != {}
    assert [line for line in exported.told if line.startswith("left out")] == []


@pytest.mark.parametrize("size", ["payload", "wire"])
def test_steps_hold_what_was_sent_in_them(sample_dataset: Dataset, tmp_path: Path, size: str) -> None:
    with ddnn_traces.open(sample_dataset.path, [RUNS[0]]) as opened:
        export(opened, tmp_path, size=size, from_step=2, steps=3)
        rows = opened.sql(
            f"SELECT src_ip, dst_ip, sum(s.{size}_bytes)::BIGINT FROM step_flows AS s "
            f"JOIN flows USING (run_id, flow_id) WHERE step BETWEEN 2 AND 4 AND s.{size}_bytes > 0 GROUP BY ALL"
        ).rows()
        told = simulators.write(opened, "goal", tmp_path / "steps.goal", Options(size=size, traffic="steps"))
        whole, inside = opened.sql(
            f"SELECT sum({size}_bytes)::BIGINT, "
            f"(SELECT sum({size}_bytes)::BIGINT FROM step_flows WHERE position = 'during') FROM flows"
        ).row(0)
    for target in TARGETS:
        assert read_pairs(target, tmp_path) == {(source, to): count for source, to, count in rows} != {}
    assert told == [f"left out: {whole - inside:,} of {whole:,} {size} bytes, outside the steps that were asked for"]


# --- what waits for what


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
    """Both ends of each message are there once and agree, and what is required stands before what requires it."""
    for operations in ranks:
        seen: set[str] = set()
        for label, operation in operations.items():
            assert set(operation.requires) <= seen
            seen.add(label)
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
    rows = exported.traffic.transfers
    took = dict(zip(rows["transfer"], rows["end_ns"] - rows["start_ns"], strict=True))
    assert start_times(ranks, took) == dict(zip(rows["transfer"], rows["start_ns"], strict=True))


def test_chakra_begins_each_transfer_when_it_began(exported: Exported) -> None:
    ranks = chakra_ranks(exported.folder / "chakra")
    assert all(node.is_cpu_op == (node.kind == "calc") for rank in ranks for node in rank.values())
    operations = as_operations(ranks)
    check_operations(operations)
    rows = exported.traffic.transfers
    took = dict(zip(rows["transfer"], rows["end_ns"] // 1000 * 1000 - rows["start_ns"] // 1000 * 1000, strict=True))
    begun = start_times(operations, took)
    assert begun == dict(zip(rows["transfer"], rows["start_ns"] // 1000 * 1000, strict=True))
    assert {n.comm_tag: n.start_us * 1000 for rank in ranks for n in rank.values() if n.kind == "send"} == begun


@pytest.mark.parametrize("divisor", [1, 1000])
def test_no_transfer_waits_for_ever_on_a_faster_network(exported: Exported, divisor: int) -> None:
    rows = exported.traffic.transfers
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
    rows = exported.traffic.transfers.rows(named=True)
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
    assert any(f"{by_trigger:,} of {len(rows):,} transfers" in line for line in exported.told)


def test_basic_sim_has_the_run_s_times_and_links(exported: Exported) -> None:
    flows, topology = formats.basic_sim(exported.folder / "basic-sim")
    rows = exported.traffic.transfers
    assert [flow.start_ns for flow in flows] == rows["start_ns"].to_list()
    assert float(topology["link_net_device_data_rate_megabit_per_s"]) == 1000  # of the run's metadata
    assert flows[-1].metadata.startswith(f"{exported.traffic.run};flow={rows['flow_id'][-1]};step=")


# --- made by hand


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


def test_sizes_beyond_32_bits(tmp_path: Path) -> None:
    size = 3 * 2**32 + 1
    with chain(tmp_path, size) as dataset:
        found = export(dataset, tmp_path)
        for target in TARGETS:
            assert read_pairs(target, tmp_path) == found.pairs_of_flows() != {}
        assert set(found.pairs_of_flows().values()) == {size}
    matrix = formats.htsim((tmp_path / "run.cm").read_text())
    parts = -(-size // htsim.MAX_BYTES)
    assert [c.trigger for c in matrix.connections] == [0] * parts + [2] * parts + [0] * parts
    assert matrix.triggers == {2: ("barrier", parts)}
    assert "note: 3 transfers above 2,147,483,647 bytes are several connections each" in found.told


def test_a_chain_as_text(tmp_path: Path) -> None:
    with chain(tmp_path) as dataset:
        found = export(dataset, tmp_path)
    assert (tmp_path / "run.cm").read_text() == (
        "# Run r: payload bytes, times in ps\nNodes 16\nConnections 3\nTriggers 1\n"
        "0->1 id 1 start 0 size 1000 recv_done_trigger 2\n"
        "1->2 id 2 trigger 2 size 1000\n"
        "2->0 id 3 start 20000000000 size 1000\n"
        "trigger id 2 oneshot\n"
    )
    assert (tmp_path / "run.goal").read_text() == (
        "// Run r: payload bytes, calculations in ns\nnum_ranks 3\n"
        "\nrank 0 {\nc0: calc 0\ns0: send 1000b to 1 tag 0\ns0 requires c0\nr2: recv 1000b from 2 tag 2\n}\n"
        "\nrank 1 {\nr0: recv 1000b from 0 tag 0\nc1: calc 0\nc1 requires r0\n"
        "s1: send 1000b to 2 tag 1\ns1 requires c1\n}\n"
        "\nrank 2 {\nr1: recv 1000b from 1 tag 1\nc2: calc 18000000\nc2 requires r1\n"
        "s2: send 1000b to 0 tag 2\ns2 requires c2\n}\n"
    )
    assert (tmp_path / "basic-sim" / "tcp_flow_schedule.csv").read_text() == (
        "0,0,1,1000,0,,r;flow=0;step=none\n1,1,2,1000,1000000,,r;flow=1;step=none\n2,2,0,1000,20000000,,r;flow=2;step=none\n"
    )
    assert any("links of 10,000 Mbit/s" in line for line in found.told)


def test_computation_by_the_workers_phases(tmp_path: Path) -> None:
    events = f"r,worker-3,0,compute,{5 * MS},{12 * MS}"
    with chain(tmp_path, events=events) as dataset:
        export(dataset, tmp_path, calc="events")
    ranks = formats.goal((tmp_path / "run.goal").read_text())
    assert [ranks[i][f"c{i}"].size for i in range(3)] == [0, 0, 7 * MS]
    [calc] = [node for node in chakra_ranks(tmp_path / "chakra")[2].values() if node.kind == "calc"]
    assert (calc.duration_us, calc.others) == (7000, {"compute_ns": 7 * MS})


HOSTILE = 'r,\n="x" }\u202e/..; ä'


def test_names_that_a_format_cannot_hold(tmp_path: Path) -> None:
    run = HOSTILE.replace("\n", " ")  # a run's name is a folder's: the label may have a line end too
    quoted = '"' + run.replace('"', '""') + '"'
    label = '"' + HOSTILE.replace('"', '""') + '"'
    flows = f"{quoted},0,10.0.0.1,10.0.0.2,6,1,2,10,20"
    known = f"{quoted},10.0.0.1,{label},worker\n{quoted},10.0.0.2,worker-2,worker"
    with make(tmp_path, flows, f"{quoted},0,{MS},0,1,20,10", hosts=known, runs=f"{quoted},capture") as dataset:
        export(dataset, tmp_path)
        for target in TARGETS:
            assert read_pairs(target, tmp_path) == {("10.0.0.1", "10.0.0.2"): 10}
    with (tmp_path / "run.nodes.csv").open(newline="", encoding="utf-8") as file:
        assert [row["label"] for row in csv.DictReader(file)] == [HOSTILE, "worker-2"]
    assert formats.chakra(tmp_path / "chakra" / "trace.0.et")[0] == {"run_id": run}


def test_what_is_no_host_s_is_left_out(tmp_path: Path) -> None:
    flows = "r,0,10.0.0.1,10.0.0.2,17,1,2,10,20\nr,1,10.0.0.1,224.0.0.251,17,1,2,7,20\nr,2,10.0.0.1,10.0.0.1,6,1,2,5,20"
    windows = f"r,0,{MS},0,1,20,10\nr,0,{MS},1,1,20,7\nr,0,{MS},2,1,20,5"
    with make(tmp_path, flows, windows) as dataset:
        told = simulators.write(dataset, "basic-sim", tmp_path / "out")
    assert told[:2] == [
        "left out: 5 of 22 payload bytes, of hosts to themselves",
        "left out: 7 of 22 payload bytes, to or from addresses that are no hosts (multicast, broadcast)",
    ]
    assert told[3] == "note: 10 bytes that were sent by other protocols are TCP flows here"


# --- calls


def test_the_same_bytes_again(sample_dataset: Dataset, tmp_path: Path) -> None:
    files: list[dict[str, bytes]] = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        with ddnn_traces.open(sample_dataset.path, [RUNS[0]]) as opened:
            export(opened, tmp_path / name)
        paths = [path for path in (tmp_path / name).rglob("*") if path.is_file()]
        files.append({str(path.relative_to(tmp_path / name)): path.read_bytes() for path in paths})
    assert files[0] == files[1]
    assert len(files[0]) == 3 + 4 + 5


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"gap_ms": 0.0}, "--gap-ms 0"),
        ({"gap_ms": float("nan")}, "--gap-ms nan"),
        ({"steps": 0}, "--steps 0"),
        ({"from_step": -1}, "--from-step -1"),
        ({"from_step": 10**6}, "it has steps 0 to"),
    ],
)
def test_wrong_options(sample_dataset: Dataset, tmp_path: Path, options: dict[str, Any], words: str) -> None:
    with ddnn_traces.open(sample_dataset.path, [RUNS[0]]) as opened, pytest.raises(UsageError, match=words):
        simulators.write(opened, "goal", tmp_path / "run.goal", Options(**options))
    assert list(tmp_path.iterdir()) == []


def test_htsim_s_network_is_a_fat_tree_or_as_asked(tmp_path: Path) -> None:
    with chain(tmp_path) as dataset:
        for nodes, found in ((None, 16), (3, 3), (54, 54)):
            simulators.write(dataset, "htsim", tmp_path / "run.cm", Options(nodes=nodes))
            assert formats.htsim((tmp_path / "run.cm").read_text()).nodes == found
        with pytest.raises(UsageError, match="--nodes 2: the run has 3 hosts"):
            simulators.write(dataset, "htsim", tmp_path / "run.cm", Options(nodes=2))


def test_nothing_to_replay(sample_dataset: Dataset, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is of one run"):
        simulators.write(sample_dataset, "goal", tmp_path / "run.goal")
    with chain(tmp_path) as dataset, pytest.raises(UsageError, match="it has no steps"):
        simulators.write(dataset, "goal", tmp_path / "run.goal", Options(traffic="steps"))
    (tmp_path / "empty").mkdir()
    empty = make(tmp_path / "empty", "r,0,10.0.0.1,10.0.0.2,6,1,2,0,66", f"r,0,{MS},0,1,66,0")
    with empty as dataset, pytest.raises(UsageError, match="nothing between two hosts"):
        simulators.write(dataset, "goal", tmp_path / "run.goal")
    assert not (tmp_path / "run.goal").exists()


def test_folders_of_others_stay(tmp_path: Path) -> None:
    with chain(tmp_path) as dataset:
        theirs = tmp_path / "theirs"
        theirs.mkdir()
        (theirs / "notes").write_text("mine")
        with pytest.raises(UsageError, match="no earlier export"):
            simulators.write(dataset, "chakra", theirs)
        assert [path.name for path in theirs.iterdir()] == ["notes"]
        ours = tmp_path / "ours"
        simulators.write(dataset, "chakra", ours)
        (ours / "trace.3.et").write_bytes(b"of a rank that is no more")
        (ours / "notes").write_text("mine")
        simulators.write(dataset, "chakra", ours)
        assert sorted(path.name for path in ours.iterdir()) == [
            "nodes.csv",
            "notes",
            *(f"trace.{i}.et" for i in range(3)),
        ]
        simulators.write(dataset, "basic-sim", ours)
        assert sorted(path.name for path in ours.iterdir()) == sorted([*basic_sim.FILES, "nodes.csv", "notes"])
        (theirs / "nodes.csv").write_text("node,place\n")
        with pytest.raises(UsageError, match="no earlier export"):
            simulators.write(dataset, "chakra", theirs)
        with pytest.raises(UsageError, match="cannot be written"):
            simulators.write(dataset, "goal", tmp_path / "nowhere" / "run.goal")


def test_basic_sim_s_schedule_alone(tmp_path: Path) -> None:
    with chain(tmp_path) as dataset:
        simulators.write(dataset, "basic-sim", tmp_path / "folder")
        simulators.write(dataset, "basic-sim", tmp_path / "run.csv")
    assert (tmp_path / "run.csv").read_text() == (tmp_path / "folder" / "tcp_flow_schedule.csv").read_text() != ""
    assert (tmp_path / "run.nodes.csv").read_text() == (tmp_path / "folder" / "nodes.csv").read_text()


def test_by_the_command_line(sample_dataset: Dataset, tmp_path: Path, command: RunCommand) -> None:
    call = ("export", sample_dataset.path, "--run", RUNS[0])
    done = command(*call, "--to", "goal", "--out", "run.goal", "--steps", "2", "--bytes", "wire")
    assert done.returncode == 0
    assert b"left out: " in done.stderr
    assert len(formats.goal((tmp_path / "run.goal").read_text())) == 4
    done = command(*call, "--to", "perfetto", "--out", "t.json", "--gap-ms", "5")
    assert done.returncode == 2
    assert b"--gap-ms means nothing to --to perfetto, which takes --out, --flows" in done.stderr
    assert b"--out run.cm" in command(*call, "--to", "htsim").stderr


# --- the readers refuse what they should

Change = Callable[[str], str]


@pytest.mark.parametrize(
    ("words", "change"),
    [
        ("undefined label", lambda text: text.replace("requires c0", "requires c9")),
        ("a rank is missing", lambda text: text.replace("num_ranks 3", "num_ranks 4")),
        ("a blank begins", lambda text: text.replace("c0: calc", " c0: calc")),
        ("recv|send", lambda text: text.replace("to 1", "from 1")),
        ("peer or tag", lambda text: text.replace("to 1", "to 3")),
        ("closing bracket", lambda text: text[:-2]),
    ],
)
def test_broken_goal_is_refused(tmp_path: Path, words: str, change: Change) -> None:
    with chain(tmp_path) as dataset:
        simulators.write(dataset, "goal", tmp_path / "run.goal")
    text = (tmp_path / "run.goal").read_text()
    assert len(formats.goal(text)) == 3
    with pytest.raises(ValueError, match=words):
        formats.goal(change(text))


@pytest.mark.parametrize(
    ("words", "change"),
    [
        ("number of connections", lambda text: text.replace("Connections 3", "Connections 4")),
        ("no int", lambda text: text.replace("size 1000", "size 2147483648")),
        ("unknown token", lambda text: text.replace(" start", "  start")),
        ("unspecified|no target|trigger", lambda text: text.replace("trigger id 2", "trigger id 3")),
        ("no such node", lambda text: text.replace("Nodes 16", "Nodes 2")),
        ("before a trigger", lambda text: text.replace("id 2 trigger 2", "trigger 2 id 2")),
        ("unknown id", lambda text: text + "# a comment behind the header\n"),
    ],
)
def test_broken_matrix_is_refused(tmp_path: Path, words: str, change: Change) -> None:
    with chain(tmp_path) as dataset:
        simulators.write(dataset, "htsim", tmp_path / "run.cm")
    text = (tmp_path / "run.cm").read_text()
    assert len(formats.htsim(text).connections) == 3
    with pytest.raises(ValueError, match=words):
        formats.htsim(change(text))


@pytest.mark.parametrize(
    ("words", "change"),
    [
        ("8 fields", lambda text: text.replace("r;", "r,")),
        ("not the next id", lambda text: text.replace("0,0,1", "1,0,1")),
        ("start", lambda text: text.replace(",20000000,", ",200000,")),
        ("no two servers", lambda text: text.replace("0,0,1", "0,0,3")),
        ("1 fields", lambda text: text + "\n"),
    ],
)
def test_broken_schedule_is_refused(tmp_path: Path, words: str, change: Change) -> None:
    with chain(tmp_path) as dataset:
        simulators.write(dataset, "basic-sim", tmp_path / "out")
    assert len(formats.basic_sim(tmp_path / "out")[0]) == 3
    path = tmp_path / "out" / "tcp_flow_schedule.csv"
    path.write_text(change(path.read_text()))
    with pytest.raises(ValueError, match=words):
        formats.basic_sim(tmp_path / "out")
