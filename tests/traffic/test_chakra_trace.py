"""Chakra traces replayed by the simulator: against arithmetic and what was exported, and traces that are not whole."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from google.protobuf.proto import serialize_length_prefixed

import ddnn_traces
from ddnn_traces.chakra_format import COLL, COMP, RECV, SEND, attribute, message
from ddnn_traces.cli import cli
from ddnn_traces.errors import UsageError
from ddnn_traces.export.simulators import ReplayOptions
from ddnn_traces.export.targets import SIMULATORS
from ddnn_traces.traffic import simulator
from ddnn_traces.traffic.simulator import specification
from ddnn_traces.traffic.table_writer import write_traffic

BYTES_PER_MS = 125_000  # of 1 Gbit/s
MB = 1_000_000


def node(number: int, kind: int, needs: Sequence[int] = (), ms: float = 0, **values: Any) -> Any:
    attributes = [attribute(name, value) for name, value in values.items()]
    return message(
        "Node", id=number, name=f"node {number}", type=kind, data_deps=needs, duration_micros=round(1000 * ms),
        attr=attributes,
    )  # fmt: skip


def comp(number: int, ms: float, *needs: int) -> Any:
    return node(number, COMP, needs, ms)


def call(number: int, kind: int, size: int, *needs: int, **values: Any) -> Any:
    return node(number, COLL, needs, comm_type=kind, comm_size=size, **values)


def write(folder: Path, ranks: Sequence[Sequence[Any]], groups: Mapping[str, list[int]] | None = None) -> Path:
    folder.mkdir(exist_ok=True)
    for rank, nodes in enumerate(ranks):
        with (folder / f"trace.{rank}.et").open("wb") as file:
            for one in (message("GlobalMetadata", version="0.0.4"), *nodes):
                serialize_length_prefixed(one, file)
    if groups is not None:
        (folder / "comm_groups.json").write_text(json.dumps(groups))
    return folder


def run(folder: Path, **values: Any) -> Any:
    keys = {"pattern": {"name": "chakra", "trace": str(folder)}, "bandwidth_mbit": 1000, "delay_ms": 0.5} | values
    [one] = specification.jobs(keys)
    return simulator.simulate(one)


def ms(folder: Path, **values: Any) -> float:
    """When the last rank has ended."""
    return float(run(folder, **values).end.max() / 1e6)


@pytest.mark.parametrize(
    ("kind", "size", "expected"),
    [
        (0, 4 * MB, 6 * (MB / BYTES_PER_MS + 0.5)),  # all_reduce: 2 (N-1) rounds of a part
        (2, MB, 3 * (MB / BYTES_PER_MS + 0.5)),  # all_gather: what a rank gives is sent N-1 times
        (7, 4 * MB, 3 * (MB / BYTES_PER_MS + 0.5)),  # reduce_scatter
        (6, 4 * MB, 3 * (MB / BYTES_PER_MS + 0.5)),  # all_to_all: a part to each other rank, one after the other
        (9, 0, 6 * 0.5),  # barrier: the way alone
        (5, 32 * MB, 34 * MB / BYTES_PER_MS + 3 * 0.5),  # broadcast: 32 chunks over three links
        (1, 32 * MB, 34 * MB / BYTES_PER_MS + 3 * 0.5),  # reduce
    ],
)
def test_a_collective_takes_its_law_s_time(tmp_path: Path, kind: int, size: int, expected: float) -> None:
    """The last rank comes 7 ms later than the others, who wait for it; but for those of a broadcast and all-to-all."""
    late = 0 if kind in (5, 6) else 7
    ranks = [[comp(0, 27 - late * (rank < 3)), call(1, kind, size, 0)] for rank in range(4)]
    assert ms(write(tmp_path / "t", ranks)) == pytest.approx(27 + expected, rel=1e-6)


def test_what_waits_for_nothing_runs_at_once_and_what_waits_goes_on(tmp_path: Path) -> None:
    """Rank 0 computes 30 ms beside a send of 1 MB; rank 1 goes on when it has arrived, by a dependency of control."""
    receive = node(5, RECV, comm_src=0, comm_tag=3)
    after = comp(6, 4)
    after.ctrl_deps.append(5)
    ranks = [[comp(0, 30), comp(1, 2), node(2, SEND, [1], comm_dst=1, comm_tag=3, comm_size=MB)], [receive, after]]
    found = run(write(tmp_path / "t", ranks))
    assert found.end.max() == 30 * MB
    events = found.events(0, ["a", "b"])
    rows = {name: (kind, begin, end) for name, kind, begin, end in zip(
        events.name, events.kind, events.start_ns, events.end_ns, strict=True
    )}  # fmt: skip
    assert rows["node 2"] == ("send", 2 * MB, 10 * MB)
    assert rows["node 6"] == ("compute", 10.5 * MB, 14.5 * MB)


def test_groups_and_repeats(tmp_path: Path) -> None:
    """Two pairs reduce at the same time, then all four; three times."""
    pairs = {"1": [0, 1], "2": [2, 3]}
    ranks = [
        [call(0, 0, 2 * MB, pg_name="1" if rank < 2 else "2"), call(1, 0, 4 * MB, 0, pg_name="0")] for rank in range(4)
    ]
    expected = 2 * (MB / BYTES_PER_MS + 0.5) + 6 * (MB / BYTES_PER_MS + 0.5)
    found = run(write(tmp_path / "t", ranks, pairs), iterations=3)
    assert found.iteration_ms.mean() == pytest.approx(expected, rel=1e-6)
    assert found.end.shape[0] == 3


def test_an_exported_run_takes_as_long(tmp_path: Path) -> None:
    """Its transfers, replayed on the same links. The exported waits hold the delay, but not the last one. A trace
    begins at the first transfer, behind the first computation."""
    keys = {"workers": 4, "iterations": 3, "bandwidth_mbit": 1000, "delay_ms": 0.5, "model_bytes": 8 * MB}
    [job] = specification.jobs(keys | {"compute_ms": 40, "pattern": {"name": "rings"}})
    simulated = simulator.simulate(job)
    write_traffic(tmp_path / "ds", [simulator.traffic(simulated)])
    with ddnn_traces.open(tmp_path / "ds") as dataset:
        SIMULATORS["chakra"].write_run(dataset, tmp_path / "trace", ReplayOptions(transfers="messages"))
    whole = float(simulated.end.max() / 1e6)
    assert ms(tmp_path / "trace", delay_ms=0.0) == pytest.approx(whole - 40 - 0.5, rel=1e-6)


def test_what_a_trace_does_not_state_is_null(tmp_path: Path) -> None:
    """From the command line; its folder is in no table."""
    folder = write(tmp_path / "t", [[comp(0, 5), call(1, 0, MB, 0)] for _ in range(2)])
    words = ["simulate", "--from", "chakra", str(folder), "--out", str(tmp_path / "ds")]
    CliRunner().invoke(cli, words, catch_exceptions=False, standalone_mode=False)
    with ddnn_traces.open(tmp_path / "ds") as dataset:
        [row] = dataset.sql("SELECT model, model_bytes, model_params, batch_size, topology, workers FROM runs").rows()
        assert row == (None, None, None, None, "chakra", 2)
        assert dataset.sql("SELECT kind, bytes FROM events WHERE worker = 'worker-1'").rows() == [
            ("compute", None), ("allreduce", MB)
        ]  # fmt: skip
    assert not any(
        str(tmp_path).encode() in path.read_bytes() for path in (tmp_path / "ds").rglob("*") if path.is_file()
    )


TWO = [[comp(0, 1), call(1, 0, MB, 0)]] * 2
ALONE = [[node(0, SEND, comm_dst=1, comm_tag=1, comm_size=5)], [comp(0, 1)]]
CIRCLE = [[comp(0, 1, 1), comp(1, 1, 0)], [comp(0, 1)]]
CROSSED = [
    [call(0, 0, 8, pg_name="1"), call(1, 0, 8, 0, pg_name="2")],
    [call(0, 0, 8, pg_name="2"), call(1, 0, 8, 0, pg_name="1")],
]


@pytest.mark.parametrize(
    ("ranks", "groups", "message"),
    [
        ([], None, "has no Chakra trace, a file NAME.RANK.et a rank"),
        (ALONE, None, "1 sends and 0 receives, of which 0 match by ranks and comm_tag; the trace is not whole"),
        (CIRCLE, None, "rank 0, node 'node 0' never begins; nodes wait for each other in a circle"),
        (CROSSED, {"1": [0, 1], "2": [0, 1]}, "rank 0, node 'node 1' never begins"),
        (TWO, {"1": [0, 7]}, "group '1' must have ranks of 0 to 1, each once"),
        ([[call(0, 0, 8, pg_name="5")]] * 2, {"1": [0, 1]}, "node 0: pg_name = '5' is no group of comm_groups.json"),
        ([[call(0, 0, 8, pg_name="1")]] * 2, {"1": [1]}, "rank 0 is not of its group '1'"),
        ([[call(0, 0, 8)], []], None, "group of all ranks: rank 1 has 0 collectives, rank 0 has 1"),
        ([[call(0, 0, 8)], [call(0, 2, 8)]], None, "its group has other kinds or sizes at the same place"),
        ([[call(0, 3, 8)]] * 2, None, "node 0: comm_type = 3 is not simulated; these are: 0 (all_reduce)"),
        ([[call(0, 0, -8)]] * 2, None, "node 0: comm_size = -8; it must be a whole number, 0 or more"),
        ([[comp(0, 1), comp(0, 1)]] * 2, None, "node 0 is there twice"),
        ([[comp(0, 1, 9)]] * 2, None, "node 'node 0' depends on node 9, which is not there"),
        ([[comp(0, 1e12)]] * 2, None, "duration_micros = 1000000000000000 is above 1,000,000,000,000"),
    ],
)  # fmt: skip
def test_a_trace_that_is_not_whole_is_one_line(
    tmp_path: Path, ranks: list[Any], groups: dict[str, list[int]] | None, message: str
) -> None:
    folder = write(tmp_path / "t", ranks, groups)
    with pytest.raises(UsageError) as caught:
        run(folder)
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_damaged_files(tmp_path: Path) -> None:
    folder = write(tmp_path / "t", TWO)
    data = (folder / "trace.1.et").read_bytes()
    for number, (damaged, line) in enumerate(
        [(data[:-3], "ends in the middle of message 2"), (b"\xff" * 40, "ends in the middle of a message, or is no"),
         (b"", "is empty"), (data + b"\x03abc", "message 3 is no Node of a Chakra trace")]
    ):  # fmt: skip
        other = write(tmp_path / str(number), TWO)
        (other / "trace.1.et").write_bytes(damaged)
        with pytest.raises(UsageError, match=line):
            run(other)
    (folder / "trace.0.et").rename(folder / "trace.2.et")
    with pytest.raises(UsageError, match="there are 2 files, but none of rank 0; ranks count from 0"):
        run(folder)


def test_keys_without_an_effect_are_refused(tmp_path: Path) -> None:
    folder = write(tmp_path / "t", TWO)
    for key, value in {"compute_ms": 5, "model_bytes": 5, "batch_size": 4, "topology": "ring"}.items():
        with pytest.raises(UsageError, match=f"{key}: has no effect beside a Chakra trace; leave it out"):
            run(folder, **{key: value})
    with pytest.raises(UsageError, match=r"workers = 3; the trace .* has 2 ranks"):
        run(folder, workers=3)
