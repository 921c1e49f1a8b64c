"""A small traffic model, runs with known parameters, and what a traffic exchanges: for the tests of traffic/model."""

from __future__ import annotations

import copy
import json
from typing import Any

from ddnn_traces.traffic.model import Document
from ddnn_traces.traffic.synthetic import SyntheticRun
from ddnn_traces.traffic.traffic import Port, Traffic

RINGS = ("torch-mlp1-sgd-32-gloo-0ms-ring-tso", "torch-mlp1-sgd-128-gloo-0ms-ring-tso")

MPI = (
    "mpi-mlp1-sgd-32-openmpi-0ms-ring", "mpi-mlp1-sgd-32-openmpi-0ms-ring-sll2", "mpi-mlp4-sgd-32-openmpi-0ms-ring-tso",
)  # fmt: skip

#: Runs whose parameters a fit has to find.
KNOWN = SyntheticRun(
    "known", "ring", 4, 2_000_000, 40, order=(0, 2, 1, 3), compute_ms=50, jitter=0.05, update_ms=0, delay_ms=4,
    compute_factors=(1, 1, 1.4, 1), noise=0.0, loss_pct=1.0,
)  # fmt: skip
PULL = SyntheticRun("pull", "pair_averaging", 4, 1_000_000, 30, compute_ms=40, noise=0.0)
#: Payload of hosts to each other, over S, as no law has it.
ODD = ((0, 1.0, 0, 0), (0, 0, 0.6, 0), (0.8, 0, 0, 0.15), (0.5, 0, 0, 0))


def _known_document() -> Document:
    """A document with round numbers, to be changed by tests."""
    levels = [{"wire_bytes": 1000.0, "shared": [0.0, 1.0, 2.0], "own": [-0.5, 0.0, 0.5]}]
    return {
        "format": "ddnn-traces traffic model", "version": 5,
        "provenance": {"program": "0", "sources": ["capture"], "runs": [{
            "run_id": "r", "source": "capture", "topology": "ring", "shape": "reduce_scatter", "hosts": 4, "workers": 4,
            "steps": 10, "steps_source": "log", "model_bytes": 1000, "model_bytes_source": "law",
            "misplaced_share": 0.0, "step_ms": None}]},
        "computation": {"median_ms": 20.0, "by_size": [{"model_bytes": 1000, "median_ms": 20.0, "warm_up_ms": 0.0}],
                        "relative": [0.8, 1.0, 1.2], "worker_factors": [1.0, 1.0],
                        "worker_correlation": 0.0, "autocorrelation": 0.0},
        "exchange": {"first_completion_ms": levels, "completion_ms": levels, "ns_per_byte": 8.0,
                     "least_ns_per_byte": 4.0, "stall_ms": levels, "slow_pieces": [1.0, 3.0]},
        "bursts": {"per_flow_and_step": 1.0, "model_share": [1.0, 1.0], "duration_ms": [1.0, 1.0],
                   "gap_ms": [1.0, 2.0]},
        "packets": {"segment_bytes": 1448, "header_bytes": 66, "measured_header_bytes": 66.0, "acks_per_segment": 0.3,
                    "retransmitted_share": 0.01},
        "link": {way: {"window_ms": 1.0, "windows": 10, "burst_bytes": 300_000, "bytes": 1_400_000}
                 for way in ("sent", "received")},
        "start_up": {"duration_ms": 900.0, "broadcast_ratio": 1.0, "broadcast_pairs_per_worker": 1.0,
                     "broadcast_lead_ms": 5.0},
        "tear_down": {"duration_ms": 100.0},
        "control": [
            {"phase": phase, "kind": kind, "port_class": "dynamic", "pattern": pattern, "pairs_share": 0.5,
             "messages_per_pair": 2.0, "bytes": [48.0, 96.0]}
            for phase, kind, pattern in (("start_up", "other", "hub"), ("step", "answer", "any"),
                                         ("step", "other", "any"), ("tear_down", "other", "any"))],
        "transfer_matrix": None,
    }  # fmt: skip


DOCUMENT = _known_document()


def changed(**paths: Any) -> bytes:
    document = copy.deepcopy(DOCUMENT)
    for path, value in paths.items():
        *way, last = path.split("__")
        inner: Any = document
        for name in way:
            inner = inner[name]
        inner[last] = value
    return json.dumps(document).encode()


def exchanged(generated: Traffic) -> dict[tuple[int, int], tuple[int, int]]:
    """Payload of each pair on the connections of the exchange from the first step on: sent first, and in all."""
    t = generated.transfers
    found: dict[tuple[int, int], tuple[int, int]] = {}
    begin = generated.times.start_ns.min()
    for flow, start, fresh, payload in zip(t.flow, t.start_ns, t.fresh, t.payload, strict=True):
        if start >= begin and generated.connections[flow // 2].server_port == Port.DATA:
            before = found.get(generated.ends[flow], (0, 0))
            found[generated.ends[flow]] = (before[0] + int(fresh), before[1] + int(payload))
    return found
