"""Fair queues on ns-3: what a link gives to each flow."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from tools import needs_tool

from ddnn_traces.traffic import ns3
from ddnn_traces.traffic.ns3 import ns3_results, process
from ddnn_traces.traffic.ns3.ns3_job import Flows, Ns3Run
from ddnn_traces.traffic.ns3.ns3_results import Ns3Result

pytestmark = pytest.mark.ns3

#: The first exchange is after 300 ms.
QUIET = {"workers": 4, "layers": 20, "model_bytes": 4_000_000, "compute_ms": 900, "seconds": 0.31}
BUSY = {
    "workers": 4, "layers": 20, "model_bytes": 40_000_000, "fusion_bytes": 10_000_000, "compute_ms": 30,
    "seconds": 0.15, "flows_per_s": 60, "queue_limit": "167p",
}  # fmt: skip


@cache
def compiled() -> process.Engine:
    """g++ compiles once for all these tests; cppyy would in each."""
    needs_tool("g++")
    return process.find("g++")


def simulated(**values: Any) -> Ns3Result:
    return ns3.simulate(ns3.job(values), compiled())


def measured(**values: Any) -> dict[str, Any]:
    return ns3_results.summary(simulated(**values))


# --- fair queues


def test_fair_queues_share_a_link_evenly_where_prio_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two flows to one host: the first has filled the queue when the second begins, which is completed at half of the
    rate of the link, or at less."""
    size, starts = 1_000_000, [1_000_000, 10_000_000]
    flows = Flows(*map(np.array, (starts, [1, 2], [0, 0], [30_000_000, size])))
    monkeypatch.setattr(Ns3Run, "background", lambda _: flows)
    shares = []
    for name in ("fq_codel", "prio"):
        result = simulated(**QUIET, flows_per_s=1, queue_limit="400p", queue_disc=name)
        first, second = result.background["end_ns"]
        assert first > second > 0
        shares.append(size * 8994 / 8940 * 8 / 10 / (second - starts[1]))
    assert shares[0] == pytest.approx(0.5, abs=0.03)
    assert shares[1] < 0.4


def test_drops_of_fair_queues_are_counted_and_sent_again() -> None:
    """They drop what waits, when their limit is reached."""
    found = measured(**BUSY | {"queue_limit": "50p"}, queue_disc="fq_codel", training_priority="lower")
    assert found["dropped_low"] > 0 < found["retransmitted_bytes"]


def test_fair_queues_have_bands() -> None:
    same, lower = (measured(**BUSY, queue_disc="fq_codel", training_priority=name) for name in ("same", "lower"))
    assert same["dropped_low"] == 0 < same["dropped_high"]
    assert lower["all_mean_ms"] < 0.9 * same["all_mean_ms"]
