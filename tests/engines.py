"""Both engines on one capture: their facts, compared field by field."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import numpy as np
import packets as p
import pyarrow.parquet as pq
import pytest

from ddnn_traces.pcap import numba_engine
from ddnn_traces.pcap.capture_facts import CELLS, PACKETS, TRAINS, CaptureFacts, ReadOptions

MS = 1_000_000
START = 1_700_000_000 * 10**9 + 123_456_000
DATA = p.ipv4(p.tcp(bytes(100)))
DATA6 = p.ipv6(p.tcp(bytes(100)))

pyshark_engine = pytest.importorskip("ddnn_traces.pcap.tshark.pyshark_engine")


def read(
    engine: Any, path: Path, folder: Path, bounds: tuple[int, ...] = (), open_tunnels: bool = True
) -> CaptureFacts:
    """Facts of the file, packets included; the reported progress must add up to it."""
    progress: list[tuple[int, int]] = []
    spill, packets = folder / f"{engine.NAME}.cells", folder / f"{engine.NAME}.packets"
    spill.unlink(missing_ok=True)
    packets.unlink(missing_ok=True)
    options = ReadOptions(
        MS, np.array(bounds, np.int64), spill, packets, open_tunnels, progress=lambda *step: progress.append(step)
    )
    options.trains.unlink(missing_ok=True)
    facts = engine.read_capture(path, options)
    if facts.records:
        assert [sum(each) for each in zip(*progress, strict=True)] == [facts.file_bytes, facts.records]
        assert min(min(step) for step in progress) >= 0
    return facts


def cells_of(facts: CaptureFacts) -> list[tuple[int, ...]]:
    """Cells added up and in order: engines may write a cell in several rows."""
    if facts.cells is None:
        return []
    table = pq.read_table(facts.cells)
    assert table.schema == CELLS
    sums = table.group_by(CELLS.names[:3]).aggregate([(name, "sum") for name in CELLS.names[3:]])
    return sorted(tuple(row.values()) for row in sums.to_pylist())


def packets_of(facts: CaptureFacts) -> list[dict[str, Any]]:
    """Rows of the packets by record: where fragments waited, engines may write them later."""
    if facts.packets is None:
        return []
    table = pq.read_table(facts.packets)
    assert table.schema == PACKETS
    return table.sort_by("record").to_pylist()


def trains_of(facts: CaptureFacts) -> list[tuple[int, ...]]:
    """Trains in order: engines may write those of several flows in another one."""
    if facts.trains is None:
        return []
    table = pq.read_table(facts.trains)
    assert table.schema == TRAINS
    return sorted(tuple(row.values()) for row in table.to_pylist())


def assert_same(fast: CaptureFacts, reference: CaptureFacts) -> None:
    """Every fact but the engine's name and its own words for damage."""
    others = {"engine", "status_detail", "cells", "cell_lag", "packets", "flows", "encapsulations", "samples", "trains"}
    for field in dataclasses.fields(CaptureFacts):
        if field.name not in others:
            assert getattr(reference, field.name) == getattr(fast, field.name), field.name
    assert (reference.status_detail is None) == (fast.status_detail is None)
    assert_same_traffic(fast, reference)


def assert_same_traffic(fast: CaptureFacts, reference: CaptureFacts) -> None:
    assert reference.flows.schema == fast.flows.schema
    assert reference.flows.to_pylist() == fast.flows.to_pylist()
    assert reference.encapsulations.schema == fast.encapsulations.schema
    assert reference.encapsulations.to_pylist() == fast.encapsulations.to_pylist()
    assert cells_of(reference) == cells_of(fast)
    assert packets_of(reference) == packets_of(fast)
    assert trains_of(reference) == trains_of(fast)


def read_both(path: Path, bounds: tuple[int, ...] = (), open_tunnels: bool = True) -> CaptureFacts:
    """Facts of the pyshark engine, which are those of the numba engine."""
    reference = read(pyshark_engine, path, path.parent, bounds, open_tunnels)
    assert_same(read(numba_engine, path, path.parent, bounds, open_tunnels), reference)
    return reference


def flows_of(frames: list[bytes], folder: Path, **options: Any) -> list[dict[str, Any]]:
    """Flows of frames 0.4 ms apart, which both engines agree on."""
    return read_both(write(folder, p.pcap(records(*frames))), **options).flows.to_pylist()


def columns(flows: list[dict[str, Any]], *names: str) -> list[tuple[Any, ...]]:
    return [tuple(flow[name] for name in names) for flow in flows]


def records(*frames: bytes | tuple[bytes, int]) -> list[p.Record]:
    """Frames, or frames with their original lengths, 0.4 ms apart."""
    pairs = [frame if isinstance(frame, tuple) else (frame, None) for frame in frames]
    return [p.Record(START + i * 400_000, frame, wire) for i, (frame, wire) in enumerate(pairs)]


def from_hosts(frames: Iterable[bytes]) -> list[bytes]:
    """The frames, each from a host of its own in place of 10.0.0.1 or fd00::1: in one capture no two share a flow."""
    sent = []
    for number, frame in enumerate(frames, 1):
        for address in (ip_address("10.0.0.1"), ip_address("fd00::1")):
            frame = frame.replace(address.packed, (address + (number << 8)).packed, 1)
        sent.append(frame)
    return sent


def flow_of_each(facts: CaptureFacts) -> list[dict[str, Any]]:
    """The flow of each record, in the order of the file."""
    flows = {flow["flow"]: flow for flow in facts.flows.to_pylist()}
    return [flows[packet["flow"]] for packet in packets_of(facts)]


def write(folder: Path, content: bytes, name: str = "capture.pcap") -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


GOOD = p.pcap(records(*[p.segment(seq=100 * i) for i in range(20)]))
FIRST, *LATER = (p.ethernet(each) for each in p.fragments(p.udp(bytes(2992)), [1000, 1000]))  # 3,000 bytes in all
