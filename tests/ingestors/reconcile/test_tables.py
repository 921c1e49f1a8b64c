"""The tables of a run: flows, windows, steps, hosts and the ledger, on made-up runs and on real captures."""

from __future__ import annotations

import gzip
import json
import shutil
import struct
import tomllib
from pathlib import Path
from typing import Any

import packets as p
import pytest
from small_runs import (
    BEGIN_NS,
    SPACING_NS,
    A,
    B,
    C,
    D,
    Packet,
    contradictions,
    counted,
    exchange,
    ingest,
    ingest_frames,
    passing,
    read_folder,
    ring,
    sent,
    sent_by,
    star,
    vantages,
    write_captures,
    write_log,
)
from tools import FULL, needs_full_captures

import ddnn_traces
from ddnn_traces.errors import LedgerError
from ddnn_traces.ingestors.facts import CaptureFacts
from ddnn_traces.ingestors.packets import numba_engine
from ddnn_traces.query.dataset import Dataset
from ddnn_traces.talk import Talk

HANDSHAKE = [
    Packet(BEGIN_NS, A, B, 0, p.SYN),
    Packet(BEGIN_NS + 1000, B, A, 0, p.SYN | p.ACK, (5000, 40000)),
    Packet(BEGIN_NS + 2000, A, B, 0),
]


def column(dataset: Dataset, sql: str) -> list[Any]:
    """First column of a query's result."""
    return dataset.sql(sql).to_series().to_list()


# --- flows


def test_flow_holds_what_was_sent(tmp_path: Path) -> None:
    packets = [Packet(BEGIN_NS + 5000, A, B, 1000), Packet(BEGIN_NS, A, B, 10, p.FIN | p.ACK)]
    with ingest(tmp_path, {"a.pcap": packets}) as dataset:
        (flow,) = dataset.sql("SELECT * FROM flows").to_dicts()
    expected = {
        "run_id": "run", "flow_id": 0, "src_ip": A, "dst_ip": B, "protocol": 6, "src_port": 40000, "dst_port": 5000,
        "encapsulation_id": None, "first_seen_ns": BEGIN_NS, "last_seen_ns": BEGIN_NS + 5000, "packets": 2,
        "wire_bytes": 1010 + 2 * 54, "ip_bytes": 1010 + 2 * 40, "payload_bytes": 1010, "captured_bytes": 1010 + 2 * 54,
        "syn_packets": 0, "fin_packets": 1, "rst_packets": 0,
    }  # fmt: skip
    assert expected.items() <= flow.items()
    assert (flow["is_initiator"], flow["initiator_source"], flow["reverse_flow_id"]) == (True, "port", None)


def test_flow_ids_follow_the_first_packets(tmp_path: Path) -> None:
    times = {A: 30, B: 10, C: 20}
    packets = [Packet(BEGIN_NS + ms * 10**6, src, D, 1) for src, ms in times.items()]
    with ingest(tmp_path, {f"{packet.src}.pcap": [packet] for packet in packets}) as dataset:
        assert column(dataset, "SELECT src_ip FROM flows ORDER BY flow_id") == [B, C, A]


@pytest.mark.parametrize(
    ("heard", "expected"),
    [
        (HANDSHAKE, {A: (True, "syn"), B: (False, "syn")}),
        (HANDSHAKE[1:], {A: (True, "reverse_syn"), B: (False, "syn")}),
        (HANDSHAKE[:1] + HANDSHAKE[2:], {A: (True, "syn")}),
        ([*HANDSHAKE[:1], Packet(BEGIN_NS + 1, B, A, 1, ports=(5000, 40000))],
         {A: (True, "syn"), B: (False, "reverse_syn")}),
        (HANDSHAKE[2:], {A: (True, "port")}),
        ([Packet(BEGIN_NS, A, B, 1, ports=(700, 5000))], {A: (False, "port")}),
        ([Packet(BEGIN_NS, A, B, 1, ports=(700, 800))], {A: (True, "only_direction")}),
        ([Packet(BEGIN_NS, A, B, 1, ports=(5000, 6000))], {A: (True, "only_direction")}),
        ([Packet(BEGIN_NS + 1000, A, B, 1, ports=(5000, 6000)), Packet(BEGIN_NS, B, A, 1, ports=(6000, 5000))],
         {A: (False, "first_packet"), B: (True, "first_packet")}),
        # two ends talk to B's port 40000: it is the server's, whatever its number
        ([Packet(BEGIN_NS, A, B, 1, ports=(5000, 40000)), Packet(BEGIN_NS, C, B, 1, ports=(5000, 40000))],
         {A: (True, "shared_port"), C: (True, "shared_port")}),
        ([Packet(BEGIN_NS, B, A, 1, ports=(40000, 5000)), Packet(BEGIN_NS, B, C, 1, ports=(40000, 5000))],
         {B: (False, "shared_port")}),
    ],
)  # fmt: skip
def test_initiator(tmp_path: Path, heard: list[Packet], expected: dict[str, tuple[bool | None, str | None]]) -> None:
    with ingest(tmp_path, {"a.pcap": heard}) as dataset:
        rows = dataset.sql("SELECT src_ip, is_initiator, initiator_source FROM flows").rows()
        assert {src: (opened, source) for src, opened, source in rows} == expected
        assert contradictions(dataset) == {}


def test_initiator_is_known_from_the_other_ends_capture(tmp_path: Path) -> None:
    files = {f"{host}.pcap": list(filter(sent_by(host), HANDSHAKE)) for host in (A, B)}
    with ingest(tmp_path, files) as dataset:
        assert dataset.sql("SELECT src_ip, is_initiator FROM flows").rows() == [(A, True), (B, False)]
        assert column(dataset, "SELECT reverse_flow_id FROM flows ORDER BY flow_id") == [1, 0]


# --- several connections on the same ports


def connection(begin_ms: int, sequence: int, payload: int, close: int = p.FIN) -> list[Packet]:
    """A connection from A to B from handshake to end, with its data in two segments 1 ms apart."""

    def packet(place: int, back: bool, size: int, flags: int, seq: int) -> Packet:
        src, dst, ports = (B, A, (5000, 40000)) if back else (A, B, (40000, 5000))
        return Packet(BEGIN_NS + begin_ms * 10**6 + place * 500_000, src, dst, size, flags, ports, seq)

    end, answer = sequence + 1 + payload, sequence + 7
    return [
        packet(0, False, 0, p.SYN, sequence), packet(1, True, 0, p.SYN | p.ACK, answer),
        packet(2, False, payload // 2, p.ACK, sequence + 1),
        packet(4, False, payload - payload // 2, p.ACK, sequence + 1 + payload // 2),
        packet(5, True, 0, p.ACK, answer + 1),
        packet(6, False, 0, close | p.ACK, end), packet(7, True, 0, close | p.ACK, answer + 1),
    ]  # fmt: skip


def connections(dataset: Dataset) -> list[tuple[Any, ...]]:
    sql = "SELECT flow_id, src_ip, connection, payload_bytes, reverse_flow_id FROM flows ORDER BY flow_id"
    return dataset.sql(sql).rows()


ONE_AFTER_THE_OTHER = [(0, A, 0, 1001, 1), (1, B, 0, 0, 0), (2, A, 1, 55, 3), (3, B, 1, 0, 2)]


@pytest.mark.parametrize("close", [p.FIN, p.RST, 0])
def test_ports_that_are_used_again(tmp_path: Path, close: int) -> None:
    """Without an end, too: the SYN has another number."""
    packets = connection(0, 1000, 1001, close) + connection(1000, 900_000, 55)
    with ingest(tmp_path, {"a.pcap": packets}) as dataset:
        assert connections(dataset) == ONE_AFTER_THE_OTHER
        assert counted(dataset) == sent(packets)
        assert column(dataset, "SELECT retransmitted_packets + out_of_order_packets FROM flows") == [0, 0, 0, 0]
        assert contradictions(dataset) == {}


def test_ports_that_are_used_again_seen_from_both_ends(tmp_path: Path) -> None:
    packets = connection(0, 1000, 1001) + connection(1000, 900_000, 55)
    with ingest(tmp_path, {"a.pcap": [*packets, *ring(A, C)], "b.pcap": [*packets, *ring(B, D)]}) as dataset:
        sql = "SELECT src_ip, connection, payload_bytes FROM flows WHERE src_ip IN ($1, $2) AND dst_ip IN ($1, $2)"
        assert dataset.sql(sql, [A, B]).rows() == [(A, 0, 1001), (B, 0, 0), (A, 1, 55), (B, 1, 0)]
        assert contradictions(dataset) == {}


ROTATED = connection(0, 1000, 1001)


@pytest.mark.parametrize("at", range(1, len(ROTATED)))
def test_connection_goes_on_in_the_next_file(tmp_path: Path, at: int) -> None:
    """tcpdump -C cuts anywhere; a file that begins in a connection does not begin one."""
    with ingest(tmp_path, {"x.pcap": ROTATED[:at], "x.pcap1": ROTATED[at:]}) as dataset:
        assert connections(dataset) == ONE_AFTER_THE_OTHER[:2]
        assert counted(dataset) == sent(ROTATED)
        assert contradictions(dataset) == {}


@pytest.mark.parametrize("close", [p.FIN, 0])
def test_next_file_begins_another_connection(tmp_path: Path, close: int) -> None:
    files = {"x.pcap": connection(0, 1000, 1001, close), "x.pcap1": connection(1000, 900_000, 55)}
    with ingest(tmp_path, files) as dataset:
        assert connections(dataset) == ONE_AFTER_THE_OTHER
        assert contradictions(dataset) == {}


def test_next_file_begins_a_connection_with_the_same_number(tmp_path: Path) -> None:
    """After a FIN a SYN opens another connection, whatever its number."""
    packets = connection(0, 1000, 1001) + connection(1000, 1000, 55)
    for name, files in {"one": {"x.pcap": packets}, "two": {"x.pcap": packets[:7], "x.pcap1": packets[7:]}}.items():
        with ingest(tmp_path / name, files) as dataset:
            assert connections(dataset) == ONE_AFTER_THE_OTHER
            assert contradictions(dataset) == {}


def test_connections_through_three_files(tmp_path: Path) -> None:
    """The second file ends one connection and holds another, which the third goes on with."""
    first, second = connection(0, 1000, 1001), connection(1000, 900_000, 55)
    files = {"x.pcap": first[:3], "x.pcap1": first[3:] + second[:3], "x.pcap2": second[3:]}
    with ingest(tmp_path, files, packets=True) as dataset:
        assert connections(dataset) == ONE_AFTER_THE_OTHER
        assert counted(dataset) == sent(first + second)
        assert contradictions(dataset) == {}


def test_syn_sent_again_after_a_rotation_begins_nothing(tmp_path: Path) -> None:
    again = [Packet(ROTATED[0].time_ns + 100_000, A, B, 0, p.SYN, seq=1000)]
    with ingest(tmp_path, {"x.pcap": ROTATED[:1], "x.pcap1": again + ROTATED[1:]}) as dataset:
        assert connections(dataset) == ONE_AFTER_THE_OTHER[:2]
        assert contradictions(dataset) == {}


def test_nearest_connection_is_the_reverse(tmp_path: Path) -> None:
    """B's end of the second connection was not captured: it is nobody's reverse."""
    packets = connection(0, 1000, 1001) + [x for x in connection(1000, 900_000, 55) if x.src == A]
    with ingest(tmp_path, {"a.pcap": packets}) as dataset:
        assert connections(dataset) == [*ONE_AFTER_THE_OTHER[:2], (2, A, 1, 55, None)]
        assert contradictions(dataset) == {}


# --- super-frames


@pytest.mark.parametrize(
    ("mss", "options", "sizes"),
    [
        (1460, b"", range(2, 12)),
        (1460, p.TIMESTAMPS, range(30, 40)),
        (8960, p.TIMESTAMPS, [2, 3, 4, 5, 6, 7, 7, 6, 5, 4]),
        (1460, b"", [1] * 10),
    ],
)
def test_segments_of_super_frames(tmp_path: Path, mss: int, options: bytes, sizes: list[int]) -> None:
    """Each super-frame holds so many full segments: the estimate is what these had on the cable, to the byte."""
    packets = [Packet(BEGIN_NS, A, B, 0, p.SYN, seq=0, options=p.mss_option(mss) + options)]
    cable = len(packets[0].record.frame)
    full, seq = mss - len(options), 1
    for i, size in enumerate(sizes, 1):
        packets.append(Packet(BEGIN_NS + i * SPACING_NS, A, B, size * full, seq=seq, options=options))
        seq += size * full
        cable += size * len(Packet(0, A, B, full, options=options).record.frame)
    with ingest(tmp_path, {"a.pcap": packets}) as dataset:
        (flow,) = dataset.sql("SELECT mss, wire_bytes, cable_bytes_estimate, retransmitted_packets FROM flows").rows()
        assert flow == (mss, sum(len(packet.record.frame) for packet in packets), cable, 0)
        assert contradictions(dataset) == {}


def test_smaller_mss_of_both_directions_counts(tmp_path: Path) -> None:
    """B announces less than A: A's segments keep to that. Where neither is known, neither is the estimate."""
    handshake = [
        Packet(BEGIN_NS, A, B, 0, p.SYN, options=p.mss_option(8960)),
        Packet(BEGIN_NS + 1000, B, A, 0, p.SYN | p.ACK, (5000, 40000), options=p.mss_option(1000)),
    ]
    data = [Packet(BEGIN_NS + 2000 + i * 1000, A, B, 4000, seq=1 + 4000 * i) for i in range(9)]
    with ingest(tmp_path, {"a.pcap": handshake + data}) as dataset:
        rows = dataset.sql("SELECT src_ip, mss, cable_bytes_estimate FROM flows ORDER BY flow_id").rows()
        assert rows == [(A, 8960, 58 + 36 * 1054), (B, 1000, 58)]
    with ingest(tmp_path / "without", {"a.pcap": data}) as dataset:
        assert dataset.sql("SELECT mss, cable_bytes_estimate FROM flows").rows() == [(None, None)]


# --- RoCEv2


def test_queue_pairs_are_flows_and_opcodes_add_up(tmp_path: Path) -> None:
    """Opcodes in turn: in the capture's facts each is a row of its own, and no connection."""
    kinds = [(4, 1, 1000), (17, 2, 4), (4, 1, 900), (5, 1, 10), (4, 2, 300), (17, 1, 4)]  # opcode, queue pair, payload
    frames = [
        p.ethernet(p.ipv4(p.udp(p.roce(bytes(size), opcode, qp), 50000, p.ROCE_PORT), A, B, p.UDP))
        for opcode, qp, size in kinds
    ]
    with ingest_frames(tmp_path, {"a.pcap": frames}, packets=True) as dataset:
        flows = dataset.sql("SELECT roce_dest_qp, connection, packets, payload_bytes FROM flows ORDER BY ALL").rows()
        # 12 bytes of transport header and 4 of checksum each
        assert flows == [(1, 0, 4, 1914 + 4 * 16), (2, 0, 2, 304 + 2 * 16)]
        opcodes = "SELECT roce_dest_qp, roce_opcode, o.packets FROM flow_opcodes AS o JOIN flows USING (flow_id)"
        assert dataset.sql(f"{opcodes} ORDER BY ALL").rows() == [
            (1, 4, 2),
            (1, 5, 1),
            (1, 17, 1),
            (2, 4, 1),
            (2, 17, 1),
        ]
        assert contradictions(dataset) == {}


# --- packets, filters


def test_packets_are_those_that_count(tmp_path: Path) -> None:
    """Both ends' captures: the sender's copy of each packet, by the number of its record."""
    packets = ring(A, B, C)
    files = {f"{host}.pcap": list(filter(passing(host), packets)) for host in (A, B, C)}
    with ingest(tmp_path, files, packets=True) as dataset:
        rows = dataset.sql("SELECT capture_id, record, ts_ns, payload_bytes, tcp_flags FROM packets").rows()
        assert contradictions(dataset) == {}
    assert rows == [
        (name, number, packet.time_ns, packet.payload, p.ACK)
        for name, seen in sorted(files.items())
        for number, packet in enumerate(seen)
        if packet.src == name.removesuffix(".pcap")
    ]


def test_no_packets_unless_asked_for(tmp_path: Path) -> None:
    with ingest(tmp_path, {"a.pcap": ring(A, B)}) as dataset:
        assert dataset.sql("SELECT * FROM packets").is_empty()


def test_filter_leaves_the_rest_in_the_ledger(tmp_path: Path) -> None:
    """Vantages are found by all packets: with those of one pair alone, each file's host could not be told."""
    packets = star(A, B, C)
    files = {f"{host}.pcap": list(filter(passing(host), packets)) for host in (A, B, C)}
    with ingest(tmp_path, files, filter=f"host {B}", packets=True) as dataset:
        kept = [packet for packet in packets if B in (packet.src, packet.dst)]
        assert counted(dataset) == sent(kept)
        assert vantages(dataset) == {f"{host}.pcap": host for host in (A, B, C)}
        ledger = dataset.sql("SELECT capture_id, reason, packets, wire_bytes FROM capture_ledger").rows()
        assert contradictions(dataset) == {}
    others = [packet for packet in packets if C in (packet.src, packet.dst)]
    wire = sum(len(packet.record.frame) for packet in others)
    filtered = {capture: (number, size) for capture, reason, number, size in ledger if reason == "filtered"}
    assert filtered == {f"{A}.pcap": (len(others), wire), f"{C}.pcap": (len(others), wire)}


def test_filter_that_nothing_passes(tmp_path: Path) -> None:
    with ingest(tmp_path, {"a.pcap": ring(A, B)}, filter="udp") as dataset:
        assert dataset.sql("SELECT * FROM flows").is_empty()
        assert dataset.sql("SELECT reason, packets FROM capture_ledger").rows() == [("filtered", len(ring(A, B)))]
        assert contradictions(dataset) == {}


# --- pcapng


def test_packets_without_a_time(tmp_path: Path) -> None:
    section = p.Section()
    frame = p.segment(100)
    blocks = section.interface(resolution=9) + section.enhanced(BEGIN_NS, frame) + section.simple(frame) * 2
    folder = write_captures(tmp_path / "run", {})
    (folder / "a.pcapng").write_bytes(section.begin() + blocks)
    with read_folder(folder) as dataset:
        captures = dataset.sql("SELECT records, untimed_records, first_ns, last_ns, status FROM captures").rows()
        assert captures == [(3, 2, BEGIN_NS, BEGIN_NS, "complete")]
        assert column(dataset, "SELECT packets FROM flows") == [3]
        assert contradictions(dataset) == {}


def test_truncated_pcapng(tmp_path: Path) -> None:
    packets = ring(A, B)
    folder = write_captures(tmp_path / "run", {})
    content = p.pcapng(packet.record for packet in packets)
    (folder / "a.pcapng").write_bytes(content[:-5])
    talk = Talk()
    with read_folder(folder, talk) as dataset:
        captures = dataset.sql("SELECT records, status, trailing_bytes FROM captures").rows()
        last = 32 + len(p.padded(packets[-1].record.frame)) + 8  # of the block with the last packet and its option
        assert captures == [(len(packets) - 1, "truncated", last + 4 - 5)]
        assert counted(dataset) == sent(packets[:-1])
        assert contradictions(dataset) == {}
    (warning,) = talk.warnings
    assert "a.pcapng: truncated: " in warning


# --- windows


def test_windows_are_multiples_of_their_length(tmp_path: Path) -> None:
    times = [0, 999_999, 1_000_000, 5_500_000]
    packets = [Packet(BEGIN_NS + ns, A, B, 1 + ns % 7) for ns in times]
    folder = write_captures(tmp_path / "run", {})
    (folder / "a.pcap").write_bytes(p.pcap([packet.record for packet in packets], tick_ns=1))
    with ddnn_traces.ingest(folder, tmp_path / "dataset") as dataset:
        windows = dataset.sql("SELECT window_start_ns - $1, window_ns, packets FROM flow_windows", [BEGIN_NS]).rows()
        assert windows == [(0, 10**6, 2), (10**6, 10**6, 1), (5 * 10**6, 10**6, 1)]


def test_window_of_another_length(tmp_path: Path) -> None:
    folder = write_captures(tmp_path / "run", {"a.pcap": ring(A, B, C)})
    with ddnn_traces.ingest(folder, tmp_path / "dataset", window_ms=0.015) as dataset:
        assert column(dataset, "SELECT DISTINCT window_ns FROM flow_windows") == [15_000]
        assert contradictions(dataset) == {}


# --- steps


def test_packets_are_in_the_step_that_their_own_worker_was_in(tmp_path: Path) -> None:
    """The second worker's steps lie later: the first's would put its packets elsewhere."""
    packets = [Packet(BEGIN_NS + i * SPACING_NS, src, dst, 1) for i in range(6) for src, dst in ((A, B), (B, A))]
    folder = write_captures(tmp_path / "run", {
        f"worker-{n}.pcap": list(filter(sent_by(host), packets)) for n, host in ((1, A), (2, B))
    })  # fmt: skip
    write_log(folder, "worker-1", [BEGIN_NS + i * SPACING_NS for i in (1, 2, 3)])
    write_log(folder, "worker-2", [BEGIN_NS + i * SPACING_NS for i in (3, 5)])
    with ddnn_traces.ingest(folder, tmp_path / "dataset") as dataset:
        rows = dataset.sql(
            "SELECT worker, src_ip, position, step, s.packets FROM step_flows AS s JOIN flows USING (run_id, flow_id)"
        ).rows()
        assert contradictions(dataset) == {}
    assert set(rows) == {
        ("worker-1", A, "during", 0, 1), ("worker-1", A, "during", 1, 1), ("worker-1", A, "during", 2, 1),
        ("worker-1", A, "after", None, 3),
        ("worker-2", B, "before", None, 1), ("worker-2", B, "after", None, 1),
        ("worker-2", B, "during", 0, 2), ("worker-2", B, "during", 1, 2),
    }  # fmt: skip


def test_a_worker_without_a_log_goes_by_the_first_one(tmp_path: Path) -> None:
    packets = ring(A, B)
    folder = write_captures(tmp_path / "run", {
        f"worker-{n}.pcap": list(filter(sent_by(host), packets)) for n, host in ((1, A), (2, B))
    })  # fmt: skip
    write_log(folder, "worker-2", [BEGIN_NS, BEGIN_NS + 10**9])
    with ddnn_traces.ingest(folder, tmp_path / "dataset") as dataset:
        assert column(dataset, "SELECT DISTINCT worker FROM step_flows") == ["worker-2"]
        assert contradictions(dataset) == {}


def test_a_packet_counted_at_its_receiver_goes_by_the_receivers_log(tmp_path: Path) -> None:
    packets = exchange([(A, B), (A, C)])
    folder = write_captures(tmp_path / "run", {"worker-2.pcap": list(filter(passing(B), packets)),
                                               "worker-3.pcap": list(filter(sent_by(C), packets))})  # fmt: skip
    for worker in ("worker-2", "worker-3"):
        write_log(folder, worker, [BEGIN_NS, BEGIN_NS + 10**9])
    with ddnn_traces.ingest(folder, tmp_path / "dataset") as dataset:
        from_a = "SELECT DISTINCT worker FROM step_flows JOIN flows USING (run_id, flow_id) WHERE src_ip = $1"
        assert dataset.sql(from_a, [A]).rows() == [("worker-2",)]
        assert contradictions(dataset) == {}


def test_run_without_a_log_has_no_steps(tmp_path: Path) -> None:
    with ingest(tmp_path, {"a.pcap": ring(A, B)}) as dataset:
        assert dataset.sql("SELECT * FROM steps").is_empty()
        assert dataset.sql("SELECT * FROM step_flows").is_empty()


# --- hosts and runs


def test_hosts_by_the_files_names(tmp_path: Path) -> None:
    packets = star(A, B, C)
    names = {"ps-0.pcap": A, "worker-1.pcap": B, "worker-10.pcap": C}
    with ingest(tmp_path, {name: list(filter(sent_by(ip), packets)) for name, ip in names.items()}) as dataset:
        assert dataset.sql("SELECT host_ip, label, role, rank FROM hosts").rows() == [
            (A, "ps-0", "parameter_server", None),
            (B, "worker-1", "worker", 0),
            (C, "worker-10", "worker", 9),
        ]


def test_ranks_where_workers_count_from_0(tmp_path: Path) -> None:
    """As in the published Zerwas data."""
    packets = star(A, B)
    names = {"worker-0.pcap": A, "worker-1.pcap": B}
    with ingest(tmp_path, {name: list(filter(sent_by(ip), packets)) for name, ip in names.items()}) as dataset:
        assert dataset.sql("SELECT label, rank FROM hosts").rows() == [("worker-0", 0), ("worker-1", 1)]


def test_names_that_contradict_each_other_name_nobody(tmp_path: Path) -> None:
    """What the centre of a star sent, captured at two leaves: neither name is the centre's."""
    packets = exchange([(A, B), (A, C)])
    files = {f"worker-{n}.pcap": [x for x in packets if (x.src, x.dst) == (A, leaf)] for n, leaf in ((2, B), (3, C))}
    with ingest(tmp_path, files) as dataset:
        assert column(dataset, "SELECT DISTINCT label FROM hosts") == [None]


def test_declared_hosts_win_and_are_there_without_packets(tmp_path: Path) -> None:
    folder = write_captures(tmp_path / "run", {"worker-1.pcap": list(filter(sent_by(A), ring(A, B, C)))})
    (folder / "run.toml").write_text(
        f'[[hosts]]\nip = "{A}"\nlabel = "boss"\nrole = "chief"\nrank = 7\n[[hosts]]\nip = "{D}"\nring_position = 0\n'
    )
    with ddnn_traces.ingest(folder, tmp_path / "dataset") as dataset:
        assert dataset.sql("SELECT host_ip, label, role, rank, ring_position FROM hosts").rows() == [
            (A, "boss", "chief", 7, None),
            (B, None, None, None, None),
            (C, None, None, None, None),
            (D, None, None, None, 0),
        ]


def test_broadcast_address_is_no_host(tmp_path: Path) -> None:
    packets = [Packet(BEGIN_NS, A, "10.0.0.255", 1), Packet(BEGIN_NS, A, "255.255.255.255", 1)]
    with ingest(tmp_path, {"a.pcap": packets}) as dataset:
        assert column(dataset, "SELECT host_ip FROM hosts") == [A]


def test_capture_without_metadata_is_a_run_with_nulls(tmp_path: Path) -> None:
    with ingest(tmp_path, {"a.pcap": ring(A, B)}) as dataset:
        (run,) = dataset.sql("SELECT * FROM runs").to_dicts()
    assert {name: value for name, value in run.items() if value is not None} == {"run_id": "run", "source": "capture"}


# --- ledger


def test_every_record_is_in_the_ledger(tmp_path: Path) -> None:
    folder = write_captures(tmp_path / "run", {})
    whole = p.segment(100)
    records = [
        whole,
        p.arp(),
        p.ethernet(p.ipv4(b"\0\0")),
        p.ethernet(p.ipv4(p.tcp())[:22]),
        whole,
        p.ethernet(b"", 0x86DD),
    ]
    (folder / "a.pcap").write_bytes(p.pcap(p.Record(BEGIN_NS, frame) for frame in records))
    with ddnn_traces.ingest(folder, tmp_path / "dataset") as dataset:
        ledger = dict(dataset.sql("SELECT reason, (packets, wire_bytes) FROM capture_ledger").rows())
        assert contradictions(dataset) == {}
    assert tuple(ledger["in_flows"].values()) == (2, 2 * len(whole))
    assert tuple(ledger["not_ip"].values()) == (1, len(p.arp()))
    assert sum(next(iter(sums.values())) for sums in ledger.values()) == len(records)


def test_capture_without_packets(tmp_path: Path) -> None:
    with ingest(tmp_path, {"empty.pcap": [], "a.pcap": ring(A, B)}) as dataset:
        rows = dataset.sql("SELECT capture_id, records, first_ns, vantage_ip, status FROM captures").rows()
        assert rows[1] == ("empty.pcap", 0, None, None, "complete")
        assert counted(dataset) == sent(ring(A, B))


def test_run_without_packets(tmp_path: Path) -> None:
    with ingest(tmp_path, {"empty.pcap": []}) as dataset:
        assert dataset.run_ids == ["run"]
        assert dataset.sql("SELECT * FROM flows").is_empty()
        assert contradictions(dataset) == {}


def test_a_record_that_got_lost_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = numba_engine.read_capture

    def one_more(*arguments: Any) -> CaptureFacts:
        facts = read(*arguments)
        facts.records += 1
        return facts

    monkeypatch.setattr(numba_engine, "read_capture", one_more)
    with pytest.raises(LedgerError, match=r"a\.pcap: 21 records .* 20 of"):
        ingest(tmp_path, {"a.pcap": ring(A, B)})
    assert not (tmp_path / "dataset").exists()


# --- the shipped sample

SAMPLE_RUNS = sorted(path.name for path in (Path(__file__).parents[3] / "data" / "sample").iterdir())


def test_sample_tables_agree(sample_dataset: Dataset) -> None:
    assert contradictions(sample_dataset) == {}
    assert sample_dataset.run_ids == SAMPLE_RUNS
    assert column(sample_dataset, "SELECT DISTINCT status FROM captures") == ["complete"]


@pytest.mark.parametrize("run_id", SAMPLE_RUNS)
def test_sample_records_are_those_in_the_files(sample: Path, sample_dataset: Dataset, run_id: str) -> None:
    found = sample_dataset.sql(
        "SELECT capture_id, records, wire_bytes FROM captures WHERE run_id = $1", [run_id]
    ).rows()
    assert found == [(path.name, *records_in(path)) for path in sorted((sample / run_id).glob("*.pcap*"))]


def records_in(path: Path) -> tuple[int, int]:
    """Records of a little-endian pcap and their bytes on the wire, counted by their headers alone."""
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    at, records, wire = 24, 0, 0
    while at < len(data):
        captured, original = struct.unpack_from("<II", data, at + 8)
        at, records, wire = at + 16 + captured, records + 1, wire + original
    assert at == len(data)
    return records, wire


def test_sample_counts_are_those_of_its_readme(sample: Path, sample_dataset: Dataset) -> None:
    lines = (sample.parent / "README.md").read_text().splitlines()
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
    told = {row[0]: int(row[5].replace(",", "")) for row in rows if row and row[0] in SAMPLE_RUNS}
    assert dict(sample_dataset.sql("SELECT run_id, sum(records)::BIGINT FROM captures GROUP BY ALL").rows()) == told


@pytest.mark.parametrize("run_id", SAMPLE_RUNS)
def test_sample_copies(sample_dataset: Dataset, run_id: str) -> None:
    """Where both directions were captured everywhere, each packet is there twice and counts once."""
    ledger = "SELECT reason, sum(packets)::BIGINT FROM capture_ledger WHERE run_id = $1 GROUP BY ALL"
    packets = dict(sample_dataset.sql(ledger, [run_id]).rows())
    copies = packets["in_flows"] if run_id.endswith("-both") else 0
    assert packets.get("duplicate_vantage", 0) == copies
    assert packets.keys() <= {"in_flows", "duplicate_vantage", "not_ip"}
    (counted_packets,) = sample_dataset.sql("SELECT sum(packets)::BIGINT FROM flows WHERE run_id = $1", [run_id]).row(0)
    assert counted_packets == packets["in_flows"]


@pytest.mark.parametrize("run_id", SAMPLE_RUNS)
def test_sample_hosts(sample: Path, sample_dataset: Dataset, run_id: str) -> None:
    declared = tomllib.loads((sample / run_id / "run.toml").read_text())["hosts"]
    found = sample_dataset.sql("SELECT * EXCLUDE run_id FROM hosts WHERE run_id = $1", [run_id]).to_dicts()
    keys = ("label", "role", "rank", "ring_position")
    assert found == [{"host_ip": host["ip"]} | {key: host.get(key) for key in keys} for host in declared]


@pytest.mark.parametrize("run_id", SAMPLE_RUNS)
def test_sample_rings(sample: Path, sample_dataset: Dataset, run_id: str) -> None:
    declared = tomllib.loads((sample / run_id / "run.toml").read_text())
    order = sorted((h for h in declared["hosts"] if "ring_position" in h), key=lambda host: host["ring_position"])
    found = ring_rows(sample_dataset, run_id)
    assert bool(order) == (declared["topology"] == "ring")
    assert found == expected_ring([host["ip"] for host in order])


def ring_rows(dataset: Dataset, run_id: str) -> list[tuple[Any, ...]]:
    sql = "SELECT is_ring, position, host_ip, next_host_ip FROM ring_order WHERE run_id = $1 ORDER BY position"
    return dataset.sql(sql, [run_id]).rows()


def expected_ring(order: list[str]) -> list[tuple[Any, ...]]:
    if not order:
        return [(False, None, None, None)]
    return [(True, i, host, order[(i + 1) % len(order)]) for i, host in enumerate(order)]


@pytest.mark.parametrize("run_id", [run_id for run_id in SAMPLE_RUNS if "-ring" in run_id])
def test_sample_rings_carry_what_an_all_reduce_needs(sample_dataset: Dataset, run_id: str) -> None:
    """2(N-1)/N model sizes a step from each worker to the next (data/README.md), but for what is cut or sent again."""
    rows = sample_dataset.sql(
        """
        SELECT sum(s.payload_bytes) / any_value(model_bytes)
               / (SELECT count(DISTINCT step) FROM steps WHERE run_id = $1)
        FROM step_flows AS s JOIN flows USING (run_id, flow_id) JOIN runs USING (run_id)
        JOIN ring_order ON ring_order.run_id = s.run_id AND host_ip = src_ip AND next_host_ip = dst_ip
        WHERE s.run_id = $1 GROUP BY src_ip
        """,
        [run_id],
    ).rows()
    assert len(rows) == 4
    for (model_sizes,) in rows:
        assert 1.5 <= model_sizes < 1.95


BOTH = "torch-mlp1-sgd-32-gloo-0ms-ring-both"


@pytest.mark.parametrize("worker", [1, 2, 3, 4])
@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9])
def test_one_capture_missing_or_cut_changes_nothing(
    sample: Path, sample_dataset: Dataset, tmp_path: Path, worker: int, share: float
) -> None:
    """What was captured at both ends is in the other ends' captures. share: of the worker's file that is left."""
    folder = tmp_path / "runs" / BOTH
    shutil.copytree(sample / BOTH, folder)
    path = folder / f"worker-{worker}-tcpdump.pcap.gz"
    content = gzip.decompress(path.read_bytes())
    path.unlink()
    if share:
        path.with_suffix("").write_bytes(content[: int(share * len(content))])
    talk = Talk()
    matrix = "SELECT src_ip, dst_ip, payload_bytes, packets FROM traffic_matrix WHERE run_id = $1"
    with read_folder(folder, talk) as dataset:
        assert dataset.sql(matrix, [BOTH]).rows() == sample_dataset.sql(matrix, [BOTH]).rows()
        assert contradictions(dataset) == {}
    assert sum(": truncated: " in warning for warning in talk.warnings) == (share > 0)


# --- the full captures, where they are at hand (they are not shipped)

FULL_RUNS = sorted(path.parent.name for path in FULL.glob("*/truth.json"))


@needs_full_captures
def test_full_captures_agree(full_dataset: Dataset) -> None:
    assert contradictions(full_dataset) == {}


@pytest.mark.parametrize("run_id", FULL_RUNS)
def test_full_captures_equal_their_truth(full_dataset: Dataset, run_id: str) -> None:
    """truth.json: what an independent reader counted in the files, so twice where both directions were captured."""
    declared = json.loads((FULL / run_id / "truth.json").read_text())
    truth, copies = declared["truth"], 2 if run_id.endswith("-both") else 1
    matrix = full_dataset.sql("SELECT * FROM traffic_matrix WHERE run_id = $1", [run_id]).to_dicts()
    for size in ("wire_bytes", "payload_bytes"):
        if f"pair_{size}" in truth:
            pairs = {f"{row['src_ip']}>{row['dst_ip']}": copies * row[size] for row in matrix}
            assert pairs == truth[f"pair_{size}"]
    sums = "SELECT count(*), sum(retransmitted_packets)::BIGINT FROM flows WHERE run_id = $1"
    assert full_dataset.sql(sums, [run_id]).row(0) == (truth["directed_five_tuples"], truth["retransmitted"])
    records = "SELECT sum(records)::BIGINT FROM captures WHERE run_id = $1"
    assert full_dataset.sql(records, [run_id]).row(0) == (truth["packets"],)


@pytest.mark.parametrize("run_id", FULL_RUNS)
def test_full_captures_rings(full_dataset: Dataset, run_id: str) -> None:
    """No run.toml here: the hosts' names come from the names of the files."""
    declared = json.loads((FULL / run_id / "truth.json").read_text())
    addresses = {label: ip for ip, label in declared["workers"].items()}
    order = [addresses[label] for label in declared.get("ring_order", [])]
    assert ring_rows(full_dataset, run_id) == expected_ring(order)
    hosts = "SELECT host_ip, label FROM hosts WHERE run_id = $1"
    assert dict(full_dataset.sql(hosts, [run_id]).rows()) == declared["workers"]
