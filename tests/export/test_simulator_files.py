"""Exports of small runs written by hand: the text of each format, its limits, hostile names, options and folders."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest
import simulator_formats as formats
from simulator_exports import MS, TARGETS, chain, chakra_ranks, export, make, read_pairs
from tools import RunCommand

import ddnn_traces
from ddnn_traces.cli import exports
from ddnn_traces.errors import UsageError
from ddnn_traces.export import basic_sim, htsim, targets
from ddnn_traces.export.simulators import ReplayOptions
from ddnn_traces.export.targets import SIMULATORS
from ddnn_traces.query.dataset import Dataset

RUN = "torch-mlp1-sgd-32-gloo-0ms-ring"


@pytest.mark.long
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
    assert "note: 3 transfers above 2,147,483,647 bytes are several connections each" in found.lines


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
    assert any("links of 10,000 Mbit/s" in line for line in found.lines)


def test_a_chain_in_the_bytes_of_protobuf(tmp_path: Path) -> None:
    """By hand (protobuf.dev/programming-guides/encoding): fields that are 0 are written, dependencies are packed."""

    def communication(src: int, dst: int, tag: int) -> bytes:
        ends = ((b"comm_src", src), (b"comm_dst", dst), (b"comm_tag", tag))
        return b"R\x0e\n\tis_cpu_op\xd8\x01\x00R\x0e\n\tcomm_sizeH\xe8\x07" + b"".join(
            b"R\x0c\n\x08" + name + b"8" + bytes([value]) for name, value in ends
        )

    with chain(tmp_path) as dataset:
        export(dataset, tmp_path)
    messages = (
        b"\n\x050.0.4\x12\x0c\n\x06run_id\xea\x01\x01r",
        b"\x08\x00\x12\x06recv 0\x18\x060\x008\x00" + communication(0, 1, 0),
        b"\x08\x01\x12\x08before 1\x18\x04*\x01\x000\xe8\x078\x00R\x0e\n\tis_cpu_op\xd8\x01\x01",
        b"\x08\x02\x12\x06send 1\x18\x05*\x01\x010\xe8\x078\x00" + communication(1, 2, 1),
    )
    expected = b"".join(bytes([len(message)]) + message for message in messages)
    assert (tmp_path / "chakra" / "trace.1.et").read_bytes() == expected


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
        lines = SIMULATORS["basic-sim"].write_run(dataset, tmp_path / "out")
    assert lines[:2] == [
        "left out: 5 of 22 payload bytes, of hosts to themselves",
        "left out: 7 of 22 payload bytes, to or from addresses that are no hosts (multicast, broadcast)",
    ]
    assert lines[3] == "note: 10 bytes that were sent by other protocols are TCP flows here"


# --- calls


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
    with ddnn_traces.open(sample_dataset.path, [RUN]) as opened, pytest.raises(UsageError, match=words):
        SIMULATORS["goal"].write_run(opened, tmp_path / "run.goal", ReplayOptions(**options))
    assert list(tmp_path.iterdir()) == []


def test_htsim_s_network_is_a_fat_tree_or_as_requested(tmp_path: Path) -> None:
    with chain(tmp_path) as dataset:
        for nodes, found in ((None, 16), (3, 3), (54, 54)):
            SIMULATORS["htsim"].write_run(dataset, tmp_path / "run.cm", ReplayOptions(nodes=nodes))
            assert formats.htsim((tmp_path / "run.cm").read_text()).nodes == found
        with pytest.raises(UsageError, match="--nodes 2: the run has 3 hosts"):
            SIMULATORS["htsim"].write_run(dataset, tmp_path / "run.cm", ReplayOptions(nodes=2))


def test_nothing_to_replay(sample_dataset: Dataset, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--run"):
        SIMULATORS["goal"].write_run(sample_dataset, tmp_path / "run.goal")
    with chain(tmp_path) as dataset, pytest.raises(UsageError, match="it has no steps"):
        SIMULATORS["goal"].write_run(dataset, tmp_path / "run.goal", ReplayOptions(traffic="steps"))
    (tmp_path / "empty").mkdir()
    empty = make(tmp_path / "empty", "r,0,10.0.0.1,10.0.0.2,6,1,2,0,66", f"r,0,{MS},0,1,66,0")
    with empty as dataset, pytest.raises(UsageError, match="nothing between two hosts"):
        SIMULATORS["goal"].write_run(dataset, tmp_path / "run.goal")
    assert not (tmp_path / "run.goal").exists()


@pytest.mark.long
def test_folders_of_others_stay(tmp_path: Path) -> None:
    with chain(tmp_path) as dataset:
        theirs = tmp_path / "theirs"
        theirs.mkdir()
        (theirs / "notes").write_text("mine")
        with pytest.raises(UsageError, match="no earlier export"):
            SIMULATORS["chakra"].write_run(dataset, theirs)
        assert [path.name for path in theirs.iterdir()] == ["notes"]
        ours = tmp_path / "ours"
        SIMULATORS["chakra"].write_run(dataset, ours)
        (ours / "trace.3.et").write_bytes(b"of a rank that this run does not have")
        (ours / "notes").write_text("mine")
        SIMULATORS["chakra"].write_run(dataset, ours)
        assert sorted(path.name for path in ours.iterdir()) == [
            "nodes.csv",
            "notes",
            *(f"trace.{i}.et" for i in range(3)),
        ]
        SIMULATORS["basic-sim"].write_run(dataset, ours)
        assert sorted(path.name for path in ours.iterdir()) == sorted([*basic_sim.FILES, "nodes.csv", "notes"])
        (theirs / "nodes.csv").write_text("node,place\n")
        with pytest.raises(UsageError, match="no earlier export"):
            SIMULATORS["chakra"].write_run(dataset, theirs)
        with pytest.raises(UsageError, match="cannot be written"):
            SIMULATORS["goal"].write_run(dataset, theirs / "nodes.csv" / "run.goal")


def test_basic_sim_s_schedule_alone(tmp_path: Path) -> None:
    with chain(tmp_path) as dataset:
        SIMULATORS["basic-sim"].write_run(dataset, tmp_path / "folder")
        SIMULATORS["basic-sim"].write_run(dataset, tmp_path / "run.csv")
    assert (tmp_path / "run.csv").read_text() == (tmp_path / "folder" / "tcp_flow_schedule.csv").read_text() != ""
    assert (tmp_path / "run.nodes.csv").read_text() == (tmp_path / "folder" / "nodes.csv").read_text()


def test_by_the_command_line(sample_dataset: Dataset, tmp_path: Path, command: RunCommand) -> None:
    call = ("export", sample_dataset.path, "--run", RUN)
    done = command(*call, "--to", "goal", "--out", "run.goal", "--steps", "2", "--bytes", "wire")
    assert done.returncode == 0
    assert b"left out: " in done.stderr
    assert len(formats.goal((tmp_path / "run.goal").read_text())) == 4
    done = command(*call, "--to", "perfetto", "--out", "t.json", "--gap-ms", "5")
    assert done.returncode == 2
    assert b"--gap-ms does not apply to --to perfetto, which takes --out, --flows" in done.stderr


def test_every_simulator_is_read_back() -> None:
    """The other tests of exports run for each of simulator_exports.TARGETS."""
    assert TARGETS.keys() == SIMULATORS.keys()
    folders = {name for name, simulator in SIMULATORS.items() if simulator.files}
    assert folders == {name for name, out in TARGETS.items() if out == "folder"}


def test_targets_and_the_command_have_the_same_options() -> None:
    options = {option.name for option in exports.export.params}
    taken = {option for target in targets.TARGETS.values() for option in target.options}
    assert options == {*taken, "dataset", "target", "out", "quiet"}


@pytest.mark.parametrize("target", [target for target in targets.TARGETS.values() if target.example])
def test_message_where_out_is_missing(sample_dataset: Dataset, command: RunCommand, target: targets.Target) -> None:
    done = command("export", sample_dataset.path, "--run", RUN, "--to", target.name)
    assert (done.returncode, target.example.split()[-1].encode() in done.stderr) == (2, True)
    assert ("folder" in target.example) == (TARGETS.get(target.name) == "folder")
