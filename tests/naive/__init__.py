"""The naive reader: what the packet loop does, in plain Python, one packet at a time, one function a header.

Files (captures.py) and headers (headers.py) are read here, from docs/packets.md, the RFCs named at the functions and
the column meanings in schemas/, not from the loop. What follows the headers is counted by the package's plain flows
(ddnn_traces/pcap/tshark/flows.py), which the pyshark engine uses, too. tests/readings.py compares the numba engine
with it.
"""

from __future__ import annotations

import collections
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ddnn_traces.pcap import capture_facts
from ddnn_traces.pcap.tshark import flows
from ddnn_traces.pcap.tshark.flows import Encapsulation
from naive.captures import Record, records
from naive.headers import Part, Skip, parse

#: Source, destination, protocol, ports, tunnel, RoCEv2's destination queue pair and opcode, number of the connection.
Key = tuple[str, str, int, int, int, Encapsulation | None, int | None, int | None, int]

ROW_NUMBERS = ("flow", "kept", "encapsulation")


@dataclass
class Facts:
    """As CaptureFacts. flows: in the order of first appearance, with the columns of FLOW_FACTS that are not in
    ROW_NUMBERS. cells: added up, (flow key, window, step) -> [packets, wire, payload, sent again].
    encapsulations: those of the flows, and those around them. packets: rows of PACKETS by record."""

    flows: dict[Key, dict[str, Any]] = field(default_factory=dict)
    cells: dict[tuple[Key, int, int], list[int]] = field(default_factory=dict)
    encapsulations: set[Encapsulation] = field(default_factory=set)
    packets: list[tuple[int | None, ...]] = field(default_factory=list)
    skipped: dict[str, tuple[int, int]] = field(default_factory=dict)
    records: int = 0
    wire_bytes: int = 0
    untimed_records: int = 0
    first_ns: int | None = None
    last_ns: int | None = None
    trailing_bytes: int = 0
    status: str = "complete"


def read(data: bytes, window_ns: int, bounds: list[int], open_tunnels: bool = True) -> Facts:
    """Facts of a whole capture. bounds: start of the first step and the end of each, in order; empty: no log."""
    found, status, end = records(data)
    facts = Facts(status=status, trailing_bytes=len(data) - end)
    table = flows.FlowTable(window_ns, bounds)
    for number, record in enumerate(found):
        count_record(facts, record)
        try:
            packet = parse(Part(record.captured, record.wire), record.link, open_tunnels)
        except Skip as skip:
            packets, wire = facts.skipped.get(str(skip), (0, 0))
            facts.skipped[str(skip)] = packets + 1, wire + record.wire
        else:
            table.add(packet, flows.Record(number, record.time, record.wire, len(record.captured)))
    table.finish()
    tunnels = list(table.encapsulations)
    rows = [vars(flow) for flow in table.flows]
    keys = keys_of(rows, tunnels)
    facts.flows = {key: without_row_numbers(row) for key, row in zip(keys, rows, strict=True)}
    facts.cells = {(keys[flow], window, step): sums for (flow, window, step), sums in table.cells.items()}
    facts.encapsulations = set(tunnels)
    facts.packets = sorted(table.packets)
    return facts


def count_record(facts: Facts, record: Record) -> None:
    facts.records += 1
    facts.wire_bytes += record.wire
    facts.untimed_records += not record.timed
    facts.first_ns = record.time if facts.first_ns is None else min(facts.first_ns, record.time)
    facts.last_ns = record.time if facts.last_ns is None else max(facts.last_ns, record.time)


def keys_of(rows: list[dict[str, Any]], tunnels: Sequence[Encapsulation]) -> list[Key]:
    """Keys of rows of FLOW_FACTS. The connection is the number of rows before with the same rest of the key."""
    connections: dict[tuple, int] = collections.Counter()
    keys = []
    for row in rows:
        tunnel = None if row["encapsulation"] is None else tunnels[row["encapsulation"]]
        five_tuple = [row[name] for name in ("src_ip", "dst_ip", "protocol", "src_port", "dst_port")]
        rest = (*five_tuple, tunnel, row["roce_dest_qp"], row["roce_opcode"])
        keys.append((*rest, connections[rest]))
        connections[rest] += 1
    return keys


def without_row_numbers(row: dict[str, Any]) -> dict[str, Any]:
    """The columns of FLOW_FACTS that two readings of a file agree on."""
    return {name: row[name] for name in capture_facts.FLOW_FACTS.names if name not in ROW_NUMBERS}
