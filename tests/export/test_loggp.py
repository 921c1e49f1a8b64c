"""GOAL of simulated runs, replayed by the rules of LogGP: it ends when the simulation does.

The rules are those of LogGOPSim (Hoefler, Schneider & Lumsdaine 2010; LogGOPsim.cpp): a host sends one message at a
time; s bytes leave it in o + (s - 1) G, and the last is there L later; a receive ends with its last byte.
"""

from __future__ import annotations

import heapq
from pathlib import Path
from typing import Any

import pytest
import simulator_formats as formats

import ddnn_traces
from ddnn_traces.export.simulators import ReplayOptions
from ddnn_traces.export.targets import SIMULATORS
from ddnn_traces.traffic import simulator
from ddnn_traces.traffic.simulator.job import SimulatedRun
from ddnn_traces.traffic.simulator.layers import thesis
from ddnn_traces.traffic.table_writer import write_traffic

Operations = list[dict[str, formats.Operation]]


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
    heap = [(0.0, turn, key) for turn, key in enumerate(ready)]
    turn, last = len(heap), 0.0
    arrived: dict[tuple[int, int, int], float] = {}
    posted: dict[tuple[int, int, int], tuple[tuple[int, str], float]] = {}

    def done(key: tuple[int, str], at: float) -> None:
        nonlocal turn, last
        last = max(last, at)
        for other in following[key]:
            missing[other] -= 1
            ready[other] = max(ready.get(other, 0.0), at)
            if not missing[other]:
                turn += 1
                heapq.heappush(heap, (ready[other], turn, other))

    def receive(key: tuple[int, str], size: int, at: float) -> None:
        begin = max(at, cpu[key[0]], nic_in[key[0]])
        cpu[key[0]] = begin + overhead
        nic_in[key[0]] = begin + gap + (size - 1) * byte_gap
        done(key, begin + overhead + (size - 1) * byte_gap)

    while heap:
        now, _, (r, name) = heapq.heappop(heap)
        op = ranks[r][name]
        if op.kind == "calc":
            done((r, name), now + op.size)
        elif op.kind == "send":
            begin = max(now, cpu[r], nic_out[r])
            cpu[r] = begin + overhead
            nic_out[r] = begin + gap + (op.size - 1) * byte_gap
            message = (r, op.peer, op.tag)
            at = begin + overhead + latency
            done((r, name), begin + overhead)
            if message in posted:
                key, since = posted.pop(message)
                receive(key, op.size, max(at, since))
            else:
                arrived[message] = at
        else:
            message = (op.peer, r, op.tag)
            if message in arrived:
                receive((r, name), op.size, max(arrived.pop(message), now))
            else:
                posted[message] = ((r, name), now)
    assert not any(missing.values()) and not posted
    return last


def test_the_rules_on_a_message_that_can_be_computed_by_hand() -> None:
    text = "num_ranks 2\nrank 0 {\nc1: calc 100\ns1: send 11b to 1 tag 1\ns1 requires c1\n}\n"
    text += "rank 1 {\nr1: recv 11b from 0 tag 1\n}\n"
    assert completion_ns(formats.goal(text), latency=50, overhead=3, gap=0, byte_gap=2) == 100 + 3 + 50 + 3 + 10 * 2


@pytest.mark.parametrize(
    "values",
    [
        {"topology": "ring", "workers": 4},
        {"topology": "ring", "workers": 4, "compute_factors": (1, 1.3, 1, 1)},
        {"topology": "pair_averaging", "shape": "exchange", "workers": 4},
        {"topology": "halving_doubling", "workers": 4},
        {"topology": "recursive_doubling", "workers": 8},
        {"topology": "tree", "shape": "chain", "workers": 4},
    ],
    ids=lambda values: f"{values['topology']}-{len(values)}",
)
@pytest.mark.long_after(2)
def test_an_exported_simulation_ends_when_the_simulation_does(values: dict[str, Any], tmp_path: Path) -> None:
    """Within 1%, where the network is free of contention.

    The export sees transfers between silences of 5 ms or more, at their senders: the propagation delay is part of what
    a receiver waits before it sends, so that L is 0.
    """
    run = SimulatedRun(
        **values, bandwidth_mbit=1000, delay_ms=8, steps=3, profile=thesis(20, 20_000_000, 600), fusion_bytes=20_000_000
    )
    result = simulator.simulate(run)
    write_traffic(tmp_path / "dataset", [simulator.traffic(result)])
    with ddnn_traces.open(tmp_path / "dataset") as dataset:
        SIMULATORS["goal"].write_run(dataset, tmp_path / "run.goal", ReplayOptions(traffic="steps"))
    ranks = formats.goal((tmp_path / "run.goal").read_text())
    predicted = completion_ns(ranks, latency=0, overhead=0, gap=0, byte_gap=8)
    sent = result.transmissions
    simulated = float(sent.end_ns.max() - sent.begin_ns.min())
    assert predicted == pytest.approx(simulated, rel=0.01)
