"""Tunnels of a run, end to end: what is inside them, their rows, and packets captured inside and outside of one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import packets as p
from small_runs import A, B, C, D, contradictions, ingest_frames

from ddnn_traces.query.dataset import Dataset

LEFT, RIGHT = "192.168.0.1", "192.168.0.2"


def inner(src: str, dst: str, payload: int = 100, port: int = 40000) -> bytes:
    """An Ethernet frame with a TCP segment."""
    return p.ethernet(p.ipv4(p.tcp(bytes(payload), port), src, dst))


def in_vxlan(frame: bytes, src: str = LEFT, dst: str = RIGHT, port: int = 50000, vni: int = 7) -> bytes:
    return p.ethernet(p.ipv4(p.udp(p.vxlan(frame, vni), port, p.VXLAN_PORT), src, dst, p.UDP))


def tunnels(dataset: Dataset) -> list[dict[str, Any]]:
    return dataset.sql("SELECT * EXCLUDE run_id FROM encapsulations ORDER BY encapsulation_id").to_dicts()


def row(number: int, kind: str, identifier: int | None, **other: Any) -> dict[str, Any]:
    """A row of encapsulations; from LEFT to RIGHT in VXLAN's UDP unless given otherwise."""
    udp = {"protocol": p.UDP, "src_port": 50000, "dst_port": p.VXLAN_PORT}
    ends = {"encapsulation_id": number, "parent_id": None, "kind": kind, "src_ip": LEFT, "dst_ip": RIGHT}
    return ends | udp | {"identifier": identifier} | other


def test_files_number_their_tunnels_alike(tmp_path: Path) -> None:
    """Each file meets the tunnels in another order; a flow is in the same one in both."""
    one, other = in_vxlan(inner(A, B), vni=8), in_vxlan(inner(C, D), vni=5)
    with ingest_frames(tmp_path, {"a.pcap": [one, other, one], "b.pcap": [other, one]}) as dataset:
        assert tunnels(dataset) == [row(0, "vxlan", 5), row(1, "vxlan", 8)]
        flows = "SELECT src_ip, encapsulation_id, packets, payload_bytes, wire_bytes FROM flows ORDER BY src_ip"
        assert dataset.sql(flows).rows() == [(A, 1, 2, 200, 2 * len(one)), (C, 0, 1, 100, len(other))]
        assert contradictions(dataset) == {}


def test_flow_in_two_tunnels_is_two_flows(tmp_path: Path) -> None:
    """The same addresses may mean other hosts in another network."""
    frames = [in_vxlan(inner(A, B, size), vni=vni) for size, vni in ((10, 1), (20, 2), (30, 1))]
    with ingest_frames(tmp_path, {"a.pcap": frames}, packets=True) as dataset:
        flows = "SELECT encapsulation_id, connection, payload_bytes FROM flows ORDER BY flow_id"
        assert dataset.sql(flows).rows() == [(0, 0, 40), (1, 0, 20)]
        assert contradictions(dataset) == {}


def test_tunnel_inside_a_tunnel(tmp_path: Path) -> None:
    """GRE in VXLAN: its row names the one around it; the way back has tunnels of its own, and is the reverse flow."""
    frames = [
        in_vxlan(p.ethernet(p.ipv4(p.gre(inner(src, dst, 7, port)[14:], key=3), C, D, p.GRE)), *ends)
        for src, dst, port, ends in ((A, B, 40000, (LEFT, RIGHT)), (A, B, 40000, (LEFT, RIGHT)))
    ]
    back = p.ethernet(p.ipv4(p.tcp(b"", 5000, 40000), B, A))
    frames.append(in_vxlan(back, RIGHT, LEFT))
    with ingest_frames(tmp_path, {"a.pcap": frames}) as dataset:
        gre = row(0, "gre", 3, src_ip=C, dst_ip=D, protocol=p.GRE, src_port=0, dst_port=0, parent_id=1)
        there, around = row(1, "vxlan", 7), row(2, "vxlan", 7, src_ip=RIGHT, dst_ip=LEFT)
        found = {each["encapsulation_id"]: each for each in tunnels(dataset)}
        by_kind = sorted(found.values(), key=lambda each: (each["kind"], each["src_ip"]))
        expected = [gre, there, around]
        ids = [each["encapsulation_id"] for each in by_kind]
        assert sorted(ids) == [0, 1, 2]
        for each, wanted in zip(by_kind, expected, strict=True):
            parent = ids[1] if wanted["kind"] == "gre" else None
            assert each == wanted | {"encapsulation_id": each["encapsulation_id"], "parent_id": parent}
        flows = "SELECT src_ip, encapsulation_id, packets, reverse_flow_id FROM flows ORDER BY flow_id"
        assert dataset.sql(flows).rows() == [(A, ids[0], 2, 1), (B, ids[2], 1, 0)]
        assert contradictions(dataset) == {}


def test_outer_flows_where_they_are_wanted(tmp_path: Path) -> None:
    frames = [in_vxlan(inner(A, B)), in_vxlan(inner(C, D))]
    with ingest_frames(tmp_path, {"a.pcap": frames}, tunnels="outer") as dataset:
        flows = "SELECT src_ip, dst_ip, protocol, src_port, dst_port, encapsulation_id, packets, wire_bytes FROM flows"
        key = (LEFT, RIGHT, p.UDP, 50000, p.VXLAN_PORT)
        assert dataset.sql(flows).rows() == [(*key, None, 2, sum(map(len, frames)))]
        assert tunnels(dataset) == []
        assert contradictions(dataset) == {}


def test_packets_seen_inside_and_outside_count_once(tmp_path: Path) -> None:
    """tcpdump -i any at a tunnel's host sees each packet twice; one that is only on one side still counts once."""
    plain, tunneled = inner(A, B), in_vxlan(inner(A, B))
    with ingest_frames(tmp_path, {"a.pcap": [plain, tunneled] * 3}, packets=True) as dataset:
        flows = dataset.sql("SELECT src_ip, dst_ip, encapsulation_id, packets, wire_bytes FROM flows").rows()
        assert flows == [(A, B, None, 3, 3 * len(plain))]
        ledger = dict(dataset.sql("SELECT reason, (packets, wire_bytes) FROM capture_ledger").rows())
        assert {reason: tuple(sums.values()) for reason, sums in ledger.items()} == {
            "in_flows": (3, 3 * len(plain)),
            "duplicate_vantage": (3, 3 * len(tunneled)),
        }
        assert contradictions(dataset) == {}


def test_the_fuller_side_of_a_tunnel_counts(tmp_path: Path) -> None:
    plain, tunneled = inner(A, B), in_vxlan(inner(A, B))
    with ingest_frames(tmp_path, {"a.pcap": [plain, tunneled, tunneled, in_vxlan(inner(A, B), vni=9)]}) as dataset:
        flows = dataset.sql("SELECT encapsulation_id, packets FROM flows ORDER BY flow_id").rows()
        assert flows == [(0, 2), (1, 1)]  # both tunnels' packets, without the copy outside of them
        assert contradictions(dataset) == {}
