"""Both readings of a capture in the same terms: the numba engine and the naive reader (tests/naive)."""

from __future__ import annotations

import collections
import itertools
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import naive
import numpy as np
import packets as p
import pyarrow.parquet as pq
import pytest
from captures_by_hand import MS, in_time
from tools import mostly_long

from ddnn_traces.pcap import capture_file, numba_engine, parts, scanner
from ddnn_traces.pcap.capture_facts import FLOW_FACTS, PACKETS, CaptureFacts, ReadOptions
from ddnn_traces.pcap.flow_counters import NOTES

SAMPLE = Path(__file__).resolve().parents[1] / "tests" / "traces" / "runs"


#: Runs of the sample as parameters of a test that starts tshark for each of their files.
SAMPLE_RUNS = mostly_long(
    sorted(run.name for run in SAMPLE.iterdir() if run.is_dir()), "mpi-mlp1-sgd-32-openmpi-0ms-ring-sll2"
)
#: A run of each framework, and one that lost packets; all others in make test-nightly.
BEFORE_THE_NIGHT = {
    "mpi-mlp1-sgd-32-openmpi-0ms-ring-sll2", "tf-mlp1-sgd-32-grpc-0ms-ps", "torch-mlp1-sgd-32-gloo-0ms-ring-loss05",
    "torch-mlp1-sgd-32-gloo-0ms-ring-tso", "torchp2p-mlp1-pairavg-32-gloo-0ms-gossip",
}  # fmt: skip


def set_sizes(patch: pytest.MonkeyPatch, sizes: dict[str, int]) -> None:
    """Set sizes of the engine's buffers, whose names only this function knows."""
    places = {
        "block": (capture_file, "BLOCK_BYTES"), "flows": (scanner, "FLOWS_AT_FIRST"),
        "cells": (scanner, "CELLS_AT_ONCE"), "packets": (scanner, "PACKETS_AT_ONCE"),
        "tunnels": (scanner, "TUNNELS_AT_FIRST"), "samples": (scanner, "SAMPLES_AT_MOST"),
        "chunk": (parts, "PART_BYTES"), "part_block": (parts, "BLOCK_BYTES"), "most_flows": (parts, "MOST_FLOWS"),
        "descriptions": (parts, "DESCRIPTIONS_BYTES"),
    }  # fmt: skip
    for name, size in sizes.items():
        patch.setattr(*places[name], size)


def read_fast(
    data: bytes, window_ns: int, bounds: list[int], open_tunnels: bool = True, jobs: int = 1, **sizes: int
) -> naive.Facts:
    """The facts of a file by the numba engine, in the terms of the naive reader. sizes: of the engine's buffers.

    The file is read with a list of its packets, one by one, and without, by the loop of common packets too; a segment
    that is a sample is not common, so only few are taken.
    """
    with TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        set_sizes(patch, {"block": 1 << 20, "cells": 1 << 10, "samples": 1} | sizes)
        folder = Path(name)
        (folder / "capture").write_bytes(data)
        steps = np.array(bounds, np.int64)
        options = ReadOptions(window_ns, steps, folder / "cells", None, open_tunnels, jobs)
        without = numba_engine.read_capture(folder / "capture", options)
        facts = in_naive_terms(without)
        options = replace(options, spill=folder / "cells again", packets=folder / "packets")
        one_by_one = numba_engine.read_capture(folder / "capture", options)
        assert one_by_one.samples == without.samples
        listed = in_naive_terms(one_by_one)
        assert listed == replace(facts, packets=listed.packets)
        return listed


def in_naive_terms(facts: CaptureFacts) -> naive.Facts:
    """The facts of an engine, in the terms of the naive reader."""
    rows = facts.flows.to_pylist()
    assert facts.flows.schema == FLOW_FACTS
    assert [row["flow"] for row in rows] == list(range(len(rows)))
    assert all(row["kept"] for row in rows)
    tunnels = tunnels_of(facts)
    keys = naive.keys_of(rows, tunnels)
    cells: dict[tuple, list[int]] = collections.defaultdict(lambda: [0, 0, 0, 0])
    for flow, window, step, *values in rows_of(facts.cells):
        for i, value in enumerate(values):
            cells[keys[flow], window, step][i] += value
    if facts.packets:
        assert pq.read_schema(facts.packets) == PACKETS
    flows = {key: naive.without_row_numbers(row) for key, row in zip(keys, rows, strict=True)}
    return naive.Facts(
        flows, dict(cells), set(tunnels), sorted(rows_of(facts.packets)), facts.skipped, facts.records,
        facts.wire_bytes, facts.untimed_records, facts.first_ns, facts.last_ns, facts.trailing_bytes, facts.status,
    )  # fmt: skip


def tunnels_of(facts: CaptureFacts) -> list[naive.Encapsulation]:
    """Tunnels with their parents instead of the parents' rows."""
    tunnels: list[naive.Encapsulation] = []
    for parent, *columns in zip(*facts.encapsulations.to_pydict().values(), strict=True):
        tunnels.append(naive.Encapsulation(*columns, around=None if parent is None else tunnels[parent]))
    assert len(tunnels) == len(set(tunnels))
    return tunnels


def rows_of(path: Path | None) -> list[tuple]:
    """Rows of a Parquet file; none without a file."""
    return list(zip(*pq.read_table(path).to_pydict().values(), strict=True)) if path else []


def assert_balanced(facts: naive.Facts) -> None:
    """The ledger: every record is in a flow or skipped for a reason, and the cells of a flow add up to it."""
    flows, skipped = facts.flows.values(), facts.skipped.values()
    assert sum(flow["packets"] for flow in flows) + sum(n for n, _ in skipped) == facts.records
    assert sum(flow["wire_bytes"] for flow in flows) + sum(wire for _, wire in skipped) == facts.wire_bytes
    sums, noted = (
        {key: np.zeros(4, int) for key in facts.flows},
        dict.fromkeys(itertools.product(facts.flows, NOTES), 0),
    )
    kinds = {step: name for name, step in NOTES.items()}
    for (key, _, step), cell in facts.cells.items():
        if step in kinds:
            noted[key, kinds[step]] += cell[0]
        else:
            sums[key] += cell
    assert noted == {(key, name): flow[name] for key, flow in facts.flows.items() for name in NOTES}
    for key, flow in facts.flows.items():
        names = ("packets", "wire_bytes", "payload_bytes", "retransmitted_bytes")
        assert sums[key].tolist() == [flow[name] for name in names]
    assert len(facts.packets) == sum(flow["packets"] for flow in flows)


def read(
    data: bytes, window_ns: int = MS, bounds: list[int] | None = None, open_tunnels: bool = True, **sizes: int
) -> naive.Facts:
    """The facts of a file, on which both agree."""
    plain = naive.read(data, window_ns, bounds or [], open_tunnels)
    assert_balanced(plain)
    fast = read_fast(data, window_ns, bounds or [], open_tunnels, **sizes)
    assert_same(fast, plain)
    return plain


def assert_same(fast: naive.Facts, plain: naive.Facts) -> None:
    assert fast == plain
    assert list(fast.flows) == list(plain.flows)  # the order of first appearance


def read_frames(*frames: bytes, open_tunnels: bool = True, **file: int) -> naive.Facts:
    """Frames of a pcap, a microsecond apart."""
    return read(p.pcap(in_time(*frames), **file), open_tunnels=open_tunnels)


def payloads(facts: naive.Facts) -> dict[naive.Key, int]:
    """Payload bytes a flow."""
    return {key: flow["payload_bytes"] for key, flow in facts.flows.items()}


def the_flow(facts: naive.Facts) -> dict[str, int]:
    (flow,) = facts.flows.values()
    return flow
