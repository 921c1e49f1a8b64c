"""Patterns of today's training in the simulator, against arithmetic and as a dataset that the inference reads."""

from __future__ import annotations

import itertools
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import ddnn_traces
from ddnn_traces.errors import UsageError
from ddnn_traces.query import checks
from ddnn_traces.traffic import simulator
from ddnn_traces.traffic.collectives import Collective
from ddnn_traces.traffic.simulator import specification
from ddnn_traces.traffic.simulator.job import SimulatedRun
from ddnn_traces.traffic.simulator.patterned import PatternResult
from ddnn_traces.traffic.simulator.patterns import Call
from ddnn_traces.traffic.simulator.task_graph import double_tree, rounds_of
from ddnn_traces.traffic.table_writer import write_traffic

BYTES_PER_MS = 125_000  # of 1 Gbit/s
KEYS = {"workers": 8, "iterations": 2, "bandwidth_mbit": 1000, "delay_ms": 0.5, "model_bytes": 16_000_000}


def simulated(**values: Any) -> PatternResult:
    layers = {"compute_ms": 30, "layers": 4, "rescale": True, "fusion_bytes": 9_000_000}
    [run] = specification.jobs(KEYS | layers | values)
    found = simulator.simulate(run)
    assert isinstance(found, PatternResult)
    return found


@pytest.mark.parametrize(
    ("pattern", "values", "expected"),
    [
        # 2 (N-1) rounds of S/N
        ({"name": "rings"}, {}, 30 + 14 * (2_000_000 / BYTES_PER_MS + 0.5)),
        # two rings, each with half of the bytes and half of the link
        ({"name": "rings", "channels": 2}, {}, 30 + 14 * (2_000_000 / BYTES_PER_MS + 0.5)),
        # two all-gathers and a reduce-scatter of the model in three buffers, each N-1 rounds
        ({"name": "fsdp"}, {}, 30 + 3 * 7 * 16_000_000 / 8 / BYTES_PER_MS + 3 * 3 * 7 * 0.5),
        (
            {"name": "tensor_data", "group_size": 2, "blocks": 1, "activation_bytes": 250_000},
            {},
            30 + 2 * 2 * (1 + 0.5) + 6 * (2_000_000 / BYTES_PER_MS + 0.5),
        ),
        # three rounds of shifts, in which each host sends a quarter
        (
            {"name": "moe", "group_size": 4, "blocks": 1, "activation_bytes": 500_000},
            {},
            30 + 4 * 3 * (1 + 0.5) + 14 * (2_000_000 / BYTES_PER_MS + 0.5),
        ),
        ({"name": "fsdp"}, {"loading_ms": 7}, 37 + 3 * 7 * 16_000_000 / 8 / BYTES_PER_MS + 3 * 3 * 7 * 0.5),
        # two layers whole, two in three parts each: gathered apart, and computed once
        (
            {"name": "fsdp"},
            {"split_tensors": True, "fusion_bytes": 2_700_000},
            30 + 3 * 7 * 16_000_000 / 8 / BYTES_PER_MS + 3 * 8 * 7 * 0.5,
        ),
        ({"name": "rings"}, {"loading_ms": 7}, 37 + 14 * (2_000_000 / BYTES_PER_MS + 0.5)),
        ({"name": "rings"}, {"update_ms": 7}, 37 + 14 * (2_000_000 / BYTES_PER_MS + 0.5)),
    ],
)
def test_the_time_of_a_step_is_that_of_its_rounds(
    pattern: dict[str, Any], values: dict[str, Any], expected: float
) -> None:
    found = simulated(pattern=pattern, **values).iteration_ms
    assert found == pytest.approx(np.full((2, 8), expected))


def test_a_pipeline_of_one_micro_batch_after_the_other_fills_and_drains() -> None:
    """1F1B: (N - 1 + M) forward and backward passes, and the way of the first batch there and back (Narayanan 2019)."""
    pattern = {"name": "pipeline", "micro_batches": 8, "activation_bytes": 12_500}
    found = simulated(workers=4, iterations=1, delay_ms=0, bandwidth_mbit=100_000, compute_ms=48, pattern=pattern)
    assert found.iteration_ms[0, 0] == pytest.approx((4 - 1 + 8) * 6, rel=2e-3)
    sent = Counter(zip(found.src[found.sent].tolist(), found.dst[found.sent].tolist(), strict=True))
    assert sent == dict.fromkeys([(0, 1), (1, 2), (2, 3), (1, 0), (2, 1), (3, 2)], 8)


def test_groups_wait_for_their_own_workers_only() -> None:
    pattern = {"name": "tensor_data", "group_size": 4, "blocks": 1}
    slow = simulated(pattern=pattern, compute_factors=[3, 1, 1, 1, 1, 1, 1, 1], iterations=1)
    of_tensor = [span for span in slow.graph.spans if span.name[0].startswith("tensor")]
    _, ends = slow.of_span(of_tensor[0].after, of_tensor[0].until)
    assert ends[0, :4].min() > ends[0, 4:].max() + 15e6  # ns; a third of 30 ms, twice more


def test_a_slow_link_delays_the_ring() -> None:
    rates = [1000] * 7 + [500]
    expected = 30 + 14 * (2 * 2_000_000 / BYTES_PER_MS + 0.5)
    assert simulated(pattern={"name": "rings"}, link_mbit=rates).iteration_ms.max() == pytest.approx(expected, rel=0.02)


def test_a_fault_is_in_its_steps_and_stated() -> None:
    fault = {"kind": "slow_host", "host": "worker-3", "strength": 40, "from_step": 1, "to_step": 2}
    usual = 30 + 14 * (2_000_000 / BYTES_PER_MS + 0.5)
    slow = simulated(pattern={"name": "rings"}, fault=fault, iterations=4)
    assert slow.iteration_ms[:, 2] == pytest.approx([usual, usual + 40, usual + 40, usual], abs=3)
    run = slow.run
    stated = (run.fault_kind, run.fault_host, run.fault_strength, run.fault_from_step, run.fault_to_step)
    assert stated == ("slow_host", "worker-3", 40, 1, 2)
    link = simulated(pattern={"name": "rings"}, fault={"kind": "slow_link", "host": "worker-8", "strength": 500})
    assert link.end == pytest.approx(simulated(pattern={"name": "rings"}, link_mbit=[1000] * 7 + [500]).end)
    assert (simulated(pattern={"name": "rings"}).run.fault_kind, SimulatedRun().fault_kind) == ("none", None)


@pytest.mark.parametrize("hosts", [2, 3, 8])
def test_rings_send_what_the_law_states(hosts: int) -> None:
    call = Call("allreduce", "workers", 1_000_003, np.arange(hosts)[None])
    [rounds] = rounds_of(call, 1000)
    made = [list(zip(*(column.tolist() for column in round_), strict=True)) for round_ in rounds]
    assert made == [[tuple(t) for t in round_] for round_ in Collective("ring", hosts).rounds(1_000_003)]


def test_rounds_become_one_where_there_are_too_many() -> None:
    call = Call("allreduce", "workers", 1_000_003, np.arange(8)[None])
    [rounds], [all_rounds] = rounds_of(call, 4), rounds_of(call, 1000)
    assert len(rounds) == 4
    assert sum(r.bytes for r in rounds).tolist() == sum(r.bytes for r in all_rounds).tolist()


def test_the_double_tree_is_nccls() -> None:
    """Of eight ranks as in NCCL's comment on ncclGetBtree; of any number each rank is a leaf of one tree."""
    assert double_tree(8)[0] == [-1, 2, 4, 2, 0, 6, 4, 6]
    for ranks in (3, 4, 9, 64, 101):
        trees = double_tree(ranks)
        for parents in trees:
            assert parents.count(-1) == 1
            assert max(Counter(parents).values()) <= 2
        inner = [set(parents) - {-1} for parents in trees]
        assert not inner[0] & inner[1] or (ranks % 2 and len(inner[0] & inner[1]) <= 1)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Any:
    path = tmp_path_factory.mktemp("patterns") / "dataset"
    patterns: list[dict[str, Any]] = [
        {"name": "fsdp"}, {"name": "pipeline"}, {"name": "tensor_data"}, {"name": "moe"},
        {"name": "rings", "channels": 3}, {"name": "double_tree"}, {"name": "three_d", "group_size": 2},
    ]  # fmt: skip
    chosen = [{"run_id": pattern["name"], "pattern": pattern} for pattern in patterns]
    chosen += [
        {"run_id": "moe_16", "pattern": {"name": "moe", "group_size": 8}, "workers": 16},
        {"run_id": "pipeline_2", "pattern": {"name": "pipeline"}, "workers": 2},
        {"run_id": "tensor_pairs", "pattern": {"name": "tensor_data", "group_size": 2}},
        {"run_id": "three_d_16", "pattern": {"name": "three_d", "stages": 4}, "workers": 16},
    ]
    found = [
        simulated(
            **values, iterations=8, compute_ms=90, compute_jitter=0.02, update_ms=5, rescale=False,
            fusion_bytes=6_000_000, bandwidth_mbit=10_000, delay_ms=0.05,
        )
        for values in chosen
    ]  # fmt: skip
    write_traffic(path, map(simulator.traffic, found))
    with ddnn_traces.open(path) as opened:
        yield opened


def test_three_dimensions() -> None:
    """One micro-batch: both passes in both stages, each with an all-reduce of a pair. The gradient shares its link with
    the all-reduce of the last stage's replicas; that of the first stage comes last."""
    result = simulated(pattern={"name": "three_d", "group_size": 2, "micro_batches": 1, "activation_bytes": 250_000})
    passes = 2 * 30 + 4 * 2 * (1 + 0.5) + (2 + 0.5)
    replicas = 2 * (2_000_000 / BYTES_PER_MS + 0.5)
    expected = [passes + (4 + 0.5) + replicas] * 4
    assert result.iteration_ms[0, :4] == pytest.approx(expected)
    names = {(span.kind, name) for span in result.graph.spans for name in span.name}
    assert {name for kind, name in names if kind == "allreduce"} == {
        *(f"stage {stage} tensor {group}" for stage in (0, 1) for group in (0, 1)),
        *(f"data {part}" for part in range(4)),
    }


@pytest.mark.long
def test_data_checks_pass(dataset: ddnn_traces.Dataset) -> None:
    assert [check for check, rows in checks.run_with_stored_inputs(dataset).items() if rows.num_rows] == []


@pytest.mark.long
def test_the_collectives_are_inferred_as_simulated(dataset: ddnn_traces.Dataset) -> None:
    """Stages of three_d that send to each other at once do not reduce. Most flows of moe_16 recur within its step, and
    micro-batches in most of pipeline_2's. Tensor pairs reduce right before much larger gradients."""
    rows = dataset.query("collective_score")
    assert rows["logged_calls"].to_list() == rows["inferred_calls"].to_list()
    assert rows["bytes_ratio"].to_list() == pytest.approx([1] * rows.height, rel=0.03)
    assert dataset.query("jobs")["run_id"].to_list() == sorted(dataset.query("jobs")["run_id"].unique())


@pytest.mark.parametrize(("name", "workers"), [("rings", 8), ("double_tree", 16)])
@pytest.mark.long_after(1)
def test_a_late_host_hides_no_all_reduce_over_several_channels(name: str, workers: int, tmp_path: Path) -> None:
    """Hosts wait for it at the same bytes in each step; its cost counts once, not for each channel."""
    run = simulated(
        pattern={"name": name} | ({"channels": 3} if name == "rings" else {}), run_id=name, iterations=8, compute_ms=90,
        workers=workers, compute_jitter=0.02, rescale=False, bandwidth_mbit=10_000, delay_ms=0.05,
        fault={"kind": "slow_host", "host": "worker-5", "strength": 60},
    )  # fmt: skip
    write_traffic(tmp_path / "dataset", [simulator.traffic(run)])
    with ddnn_traces.open(tmp_path / "dataset") as dataset:
        kinds = dataset.query("collectives")["kind"].to_list()
        [found] = dataset.query("verdicts").rows(named=True)
    assert kinds == ["all_reduce"] * (3 if name == "rings" else 2)
    assert (found["kind"], found["host_ip"]) == ("slow_host", "10.1.0.5")
    assert found["cost_ms"] == pytest.approx(60, rel=0.15)


@pytest.fixture(scope="module")
def slowed(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Each pattern with a slow host, and with a slow link; the last layer of the profile computes for 13 us."""
    path = tmp_path_factory.mktemp("slowed") / "dataset"
    faults = {"slow_host": {"host": "worker-3", "strength": 40}, "slow_link": {"host": "worker-3", "strength": 2500}}
    runs = [
        run
        for name, fault in itertools.product(("fsdp", "tensor_data", "moe", "rings", "double_tree"), faults)
        for run in specification.jobs(
            KEYS
            | {
                "run_id": f"{name} {fault}", "pattern": {"name": name}, "fault": {"kind": fault, **faults[fault]},
                "workers": 16 if name == "tensor_data" else 8, "iterations": 9, "model_bytes": 20_000_000,
                "fusion_bytes": 5_000_000, "compute_ms": 200, "compute_jitter": 0.02, "update_ms": 5,
                "bandwidth_mbit": 10_000, "delay_ms": 0.02,
            }
        )
    ]  # fmt: skip
    write_traffic(path, (simulator.traffic(simulator.simulate(run)) for run in runs))
    with ddnn_traces.open(path) as opened:
        yield opened


@pytest.mark.long
def test_hosts_that_wait_divide_no_collective(slowed: ddnn_traces.Dataset) -> None:
    """Behind a slow host or link, each flow of a collective has come so far when its hosts pause."""
    rows = slowed.query("collective_score")
    assert rows["logged_calls"].to_list() == rows["inferred_calls"].to_list()
    assert rows["bytes_ratio"].to_list() == pytest.approx([1] * rows.height, rel=0.03)


@pytest.mark.long
def test_a_slow_host_is_named_where_its_sender_waits_for_it(slowed: ddnn_traces.Dataset) -> None:
    """Two hosts send late: the slow one, and the one whose receiver it is."""
    found = slowed.query("verdicts").filter(pl.col("run_id").str.ends_with("slow_host"))
    assert found.select("run_id", "kind", "host_ip").rows() == [
        (f"{name} slow_host", "slow_host", "10.1.0.3")
        for name in ("double_tree", "fsdp", "moe", "rings", "tensor_data")
    ]
    assert found["cost_ms"].to_list() == pytest.approx([40] * 5, rel=0.2)


def test_runs_and_events_state_the_pattern(dataset: ddnn_traces.Dataset) -> None:
    rows = dataset.sql("SELECT topology, variant, source FROM runs WHERE run_id = 'rings'").rows()
    assert rows == [("rings", "rings-3", "simulation")]
    events = dataset.sql("SELECT kind, count(*) FROM events WHERE run_id = 'moe' AND step = 3 GROUP BY 1 ORDER BY 1")
    assert events.rows() == [("allreduce", 8), ("alltoall", 64), ("backward", 48), ("forward", 48), ("update", 8)]
    messages = dataset.sql("SELECT count(*), sum(bytes) FROM messages WHERE run_id = 'rings'").rows()
    assert messages == [(8 * 3 * 14 * 8, 8 * 14 * dataset.sql("SELECT DISTINCT model_bytes FROM runs").item())]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"pattern": {"name": "fdsp"}}, "pattern.name = 'fdsp'; it must be one of fsdp,"),
        ({"pattern": {}}, "pattern.name = None"),
        ({"pattern": "fsdp"}, "pattern = 'fsdp'; it must be a table"),
        ({"pattern": {"name": "fsdp", "chanels": 2}}, "pattern.chanels: no such key"),
        ({"pattern": {"name": "fsdp", "group_size": 2}}, "pattern.group_size: has no effect in the pattern fsdp"),
        ({"pattern": {"name": "moe", "group_size": 3}}, "pattern.group_size = 3; it must divide workers = 8"),
        ({"pattern": {"name": "rings", "channels": 0}}, "pattern.channels = 0; it must be a whole number"),
        ({"pattern": {"name": "rings", "channels": 17}}, "pattern.channels = 17; it must be 1 to 16"),
        ({"pattern": {"name": "rings", "channels": 5}}, "pattern.channels = 5; 8 workers have 4 rings"),
        ({"pattern": {"name": "rings"}, "topology": "tree"}, "topology: has no effect beside a pattern"),
        ({"fault": {"kind": "slow_link"}}, "fault: has no effect without a pattern"),
        (
            {"pattern": {"name": "rings"}, "fault": {"kind": "slow"}},
            "fault.kind = 'slow'; it must be one of slow_host,",
        ),
        (
            {"pattern": {"name": "rings"}, "fault": {"kind": "slow_link", "host": "worker-9", "strength": 1}},
            "fault.host = 'worker-9'; it must be one of worker-1 to worker-8",
        ),
        (
            {"pattern": {"name": "rings"}, "fault": {"kind": "slow_link", "host": "worker-1", "strength": 0}},
            "fault.strength = 0; it must be a number above 0: Mbit/s",
        ),
        (
            {"pattern": {"name": "rings"}, "fault": {"kind": "slow_link", "strength": 1, "from_step": 2}},
            "fault.from_step = 2; it must be 0 or more, and is of slow_host only",
        ),
        ({"pattern": {"name": "rings"}, "fault": {"hosts": "worker-1"}}, "fault.hosts: no such key"),
        ({"jobs": [{"pattern": {"name": "rings"}}, {}]}, "pattern: jobs that share links have none"),
    ],
)
def test_a_wrong_key_is_one_line_that_names_it(values: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        specification.jobs(KEYS | values)
