"""GOAL of simulated runs, replayed by the rules of LogGP: it ends when the simulation does.

The rules are those of LogGOPSim (Hoefler, Schneider & Lumsdaine 2010; LogGOPsim.cpp): a host sends one message at a
time; s bytes leave it in o + (s - 1) G, and the last is there L later; a receive ends with its last byte.
"""

from __future__ import annotations

import heapq
import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import simulator_formats as formats

from ddnn_traces.export import goal
from ddnn_traces.export.targets import SIMULATORS
from ddnn_traces.traffic import simulator
from ddnn_traces.traffic.simulator.job import SimulatedRun
from ddnn_traces.traffic.simulator.layers import thesis
from ddnn_traces.traffic.table_writer import write_traffic

EXPORTS = (Path(__file__).parents[2] / "docs" / "exports.md").read_text(encoding="utf-8")
Operations = list[dict[str, formats.Operation]]
Message = tuple[int, int, int]  # sender, receiver, tag


def completion_ns(ranks: Operations, latency: float, overhead: float, gap: float, byte_gap: float) -> float:
    """When the last operation of a schedule ends: latency L, overhead o and gap g of a message, gap G of a byte, ns."""
    missing = {(r, name): len(op.requires) for r, rank in enumerate(ranks) for name, op in rank.items()}
    following: dict[tuple[int, str], list[tuple[int, str]]] = {key: [] for key in missing}
    for r, rank in enumerate(ranks):
        for name, op in rank.items():
            for need in op.requires:
                following[r, need].append((r, name))
    cpu, nic_out, nic_in = ([0.0] * len(ranks) for _ in range(3))
    ready = {key: 0.0 for key, number in missing.items() if not number}
    heap: list[tuple[float, int, tuple[int, str] | None, Message]] = []
    last, turns = 0.0, itertools.count()
    arrived: dict[Message, float] = {}
    posted: dict[Message, tuple[tuple[int, str], float]] = {}

    def push(at: float, key: tuple[int, str] | None, message: Message = (0, 0, 0)) -> None:
        heapq.heappush(heap, (at, next(turns), key, message))

    def done(key: tuple[int, str], at: float) -> None:
        nonlocal last
        last = max(last, at)
        for other in following[key]:
            missing[other] -= 1
            ready[other] = max(ready.get(other, 0.0), at)
            if not missing[other]:
                push(ready[other], other)

    def receive(key: tuple[int, str], size: int, at: float) -> None:
        begin = max(at, cpu[key[0]], nic_in[key[0]])
        cpu[key[0]] = begin + overhead
        nic_in[key[0]] = begin + gap + (size - 1) * byte_gap
        done(key, begin + overhead + (size - 1) * byte_gap)

    for key in ready:
        push(0.0, key)
    while heap:
        now, _, key, message = heapq.heappop(heap)
        if key is None:  # the first byte arrives
            if message in posted:
                waiting, since = posted.pop(message)
                receive(waiting, ranks[waiting[0]][waiting[1]].size, max(now, since))
            else:
                arrived[message] = now
            continue
        r, name = key
        op = ranks[r][name]
        if op.kind == "calc":
            done(key, now + op.size)
        elif op.kind == "send":
            begin = max(now, cpu[r], nic_out[r])
            cpu[r] = begin + overhead
            nic_out[r] = begin + gap + (op.size - 1) * byte_gap
            done(key, begin + overhead)
            push(begin + overhead + latency, None, (r, op.peer, op.tag))
        else:
            message = (op.peer, r, op.tag)
            if message in arrived:
                receive(key, op.size, max(arrived.pop(message), now))
            else:
                posted[message] = (key, now)
    assert not any(missing.values()) and not posted
    return last


def test_the_rules_on_a_message_that_can_be_computed_by_hand() -> None:
    text = "num_ranks 2\nrank 0 {\nc1: calc 100\ns1: send 11b to 1 tag 1\ns1 requires c1\n}\n"
    text += "rank 1 {\nr1: recv 11b from 0 tag 1\n}\n"
    assert completion_ns(formats.goal(text), latency=50, overhead=3, gap=0, byte_gap=2) == 100 + 3 + 50 + 3 + 10 * 2


RINGS = {"topology": "ring", "workers": 8}, {"topology": "ring", "workers": 4, "compute_factors": (1, 1.3, 1, 1)}
FREE: list[dict[str, Any]] = [
    *RINGS,
    {"topology": "ring", "workers": 2},
    {"topology": "pair_averaging", "shape": "exchange", "workers": 4},
    {"topology": "pair_averaging", "shape": "exchange", "workers": 8},
    {"topology": "halving_doubling", "workers": 4},
    {"topology": "halving_doubling", "workers": 8},
    {"topology": "recursive_doubling", "workers": 8},
    {"topology": "tree", "shape": "chain", "workers": 4},
    {"topology": "tree", "shape": "chain", "workers": 8},
]
SHARED = [{"topology": "star", "workers": 4}, {"topology": "tree", "workers": 7}, {"topology": "clique", "workers": 4}]


def replayed(folder: Path, values: dict[str, Any], fusion_bytes: int, latency: float) -> tuple[float, float]:
    """Time from the first transfer to the end of the last, ns: of the exported schedule, and of the simulation.

    latency: ms more than those of the run that is exported.
    """
    given = {"delay_ms": 1, "bandwidth_mbit": 1000, "steps": 3, "profile": thesis(20, 20_000_000, 600)} | values
    run = SimulatedRun(**given, fusion_bytes=fusion_bytes)
    write_traffic(folder / "dataset", [simulator.traffic(simulator.simulate(run))])
    SIMULATORS["goal"].write(folder / "dataset", folder / "run.goal", OPTIONS)
    ranks = formats.goal((folder / "run.goal").read_text())
    sent = simulator.simulate(replace(run, delay_ms=run.delay_ms + latency)).transmissions
    rounds = run.collective.rounds(run.model_bytes)
    sends = sum(op.kind == "send" for rank in ranks for op in rank.values())
    assert sends == run.steps * len(run.buffers) * sum(map(len, rounds))
    return completion_ns(ranks, latency * 1e6, 0, 0, 8), float(sent.end_ns.max() - sent.begin_ns.min())


OPTIONS = {
    "run": None, "size": "payload", "gap_ms": 5.0, "traffic": "steps", "from_step": None, "steps": None,
    "transfers": None, "calc": "all", "collectives": False, "job": None,
}  # fmt: skip


@pytest.mark.parametrize("values", FREE, ids=lambda values: f"{values['topology']}-{values['workers']}-{len(values)}")
@pytest.mark.long_after(2)
def test_an_exported_simulation_ends_when_the_simulation_does(values: dict[str, Any], tmp_path: Path) -> None:
    """Within 1%, where the network is free of contention. The delay is part of what receivers wait, so that L is 0."""
    predicted, simulated = replayed(tmp_path, values, 3_000_000, latency=0)
    assert predicted == pytest.approx(simulated, rel=0.01)


@pytest.mark.parametrize("values", [FREE[0], FREE[5], FREE[7], FREE[8]], ids=lambda values: values["topology"])
@pytest.mark.long_after(1)
def test_more_latency_costs_each_round(values: dict[str, Any], tmp_path: Path) -> None:
    """A ring of 8 has 14 rounds a step. Of several buffers, waits for the backward pass are computation."""
    predicted, simulated = replayed(tmp_path, values, 20_000_000, latency=8)
    assert predicted == pytest.approx(simulated, rel=0.01)


@pytest.mark.parametrize("values", SHARED, ids=lambda values: values["topology"])
@pytest.mark.long
def test_links_that_are_shared_are_another_model(values: dict[str, Any], tmp_path: Path) -> None:
    """As docs/exports.md says: LogGP serves one message of a host at a time, the simulator all at once."""
    predicted, simulated = replayed(tmp_path, values, 3_000_000, latency=0)
    assert abs(predicted / simulated - 1) > 0.1


@pytest.mark.parametrize(
    ("link_mbit", "unit"), [(None, (1, None)), (1000, (1, 8)), (10_000, (10, 8)), (400_000, (100, 2)), (25, (1, 320))]
)
def test_a_byte_takes_a_whole_number_of_units(link_mbit: float | None, unit: tuple[int, int | None]) -> None:
    """LogGOPSim's -G is an integer: at 10 Gbit/s a byte takes 8 tenths of a ns."""
    assert goal.time_unit(link_mbit) == unit


def test_times_are_scaled_with_the_rate(tmp_path: Path) -> None:
    """The note is the command of docs/exports.md."""
    text, lines = {}, {}
    for mbit in (1000, 10_000):
        run = SimulatedRun(workers=2, steps=2, bandwidth_mbit=mbit, profile=thesis(4, 1_000_000, 10))
        write_traffic(tmp_path / str(mbit), [simulator.traffic(simulator.simulate(run))])
        lines[mbit] = SIMULATORS["goal"].write(tmp_path / str(mbit), tmp_path / f"{mbit}.goal", OPTIONS)[1]
        text[mbit] = (tmp_path / f"{mbit}.goal").read_text()
    said = "note: times are 1/10 ns: LogGOPSim -L 0 -o 0 -g 0 -G 8 of 10000 Mbit/s"
    assert said in lines[10_000] and said.removeprefix("note: times are 1/10 ns: ").split(" of ")[0] in EXPORTS
    assert text[10_000].startswith("// Run simulation: payload bytes, calculations in 1/10 ns\n")
    calcs = [op.size for rank in formats.goal(text[10_000]) for op in rank.values() if op.kind == "calc"]
    assert max(calcs) > 10 * 5_000_000 and all(size % 10 == 0 for size in calcs)
