"""Flows of a run: initiators, connections, super-frames, queue pairs, packets and filters, on synthetic captures."""

from __future__ import annotations

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
    column,
    contradictions,
    counted,
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
)

from ddnn_traces.query.dataset import Dataset

HANDSHAKE = [
    Packet(BEGIN_NS, A, B, 0, p.SYN),
    Packet(BEGIN_NS + 1000, B, A, 0, p.SYN | p.ACK, (5000, 40000)),
    Packet(BEGIN_NS + 2000, A, B, 0),
]


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
        # both at the same time: the order of their addresses tells nothing
        ([Packet(BEGIN_NS, A, B, 1, ports=(5000, 6000)), Packet(BEGIN_NS, B, A, 1, ports=(6000, 5000))],
         {A: (None, None), B: (None, None)}),
        # two ends messages to B's port 40000: it is the server's, whatever its number
        ([Packet(BEGIN_NS, A, B, 1, ports=(5000, 40000)), Packet(BEGIN_NS, C, B, 1, ports=(5000, 40000))],
         {A: (True, "shared_port"), C: (True, "shared_port")}),
        ([Packet(BEGIN_NS, B, A, 1, ports=(40000, 5000)), Packet(BEGIN_NS, B, C, 1, ports=(40000, 5000))],
         {B: (False, "shared_port")}),
    ],
)  # fmt: skip
@pytest.mark.long_after(2)
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
@pytest.mark.long_after(1)
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
@pytest.mark.long_after(2)
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


@pytest.mark.parametrize(
    "order",
    [
        pytest.param([0, 1, 2, 3, 4, 4, 5, 6], id="the-last-again"),
        pytest.param([0, 1, 2, 3, 4, 2, 5, 6], id="an-earlier-one-again"),
        pytest.param([0, 1, 2, 3, 2, 3, 4, 4, 5, 6], id="several-again"),
    ],
)
@pytest.mark.long_after(1)
def test_what_is_sent_again_after_a_rotation_counts_as_in_one_file(tmp_path: Path, order: list[int]) -> None:
    """Wherever the capture is cut: the next file begins with what the file before has."""
    packets = [Packet(BEGIN_NS, A, B, 0, p.SYN, seq=0)]
    packets += [
        Packet(BEGIN_NS + (place + 1) * SPACING_NS, A, B, 100, seq=1 + 100 * number)
        for place, number in enumerate(order)
    ]
    for cut in range(len(packets)):
        files = {"x.pcap": packets[:cut], "x.pcap1": packets[cut:]} if cut else {"x.pcap": packets}
        write_captures(tmp_path / "runs" / str(cut), files)
    with read_folder(tmp_path / "runs") as dataset:
        assert contradictions(dataset) == {}
        found = dataset.sql(
            "SELECT run_id, packets, payload_bytes, retransmitted_packets, retransmitted_bytes, missed_bytes, sent "
            "FROM flows JOIN (SELECT run_id, list((stream_offset, bytes) ORDER BY message) AS sent FROM messages "
            "GROUP BY run_id) USING (run_id)"
        )
    rows = {cut: row for cut, *row in found.iter_rows()}
    assert rows["0"][2:5] == [len(order) - 7, 100 * (len(order) - 7), 0] and len(rows) == len(packets)
    assert {cut: row for cut, row in rows.items() if row != rows["0"]} == {}


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
@pytest.mark.long_after(1)
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


def test_receive_window_is_scaled_by_the_syn(tmp_path: Path) -> None:
    """Where the SYN was not captured with the option, the window in bytes is not known; that it was closed is."""
    syn = Packet(BEGIN_NS, A, B, 0, p.SYN, options=p.scale_option(7), window=64_000)
    data = [Packet(BEGIN_NS + 1000 * i, A, B, 10, seq=1 + 10 * i, window=each) for i, each in enumerate((500, 0, 300))]
    columns = "receive_window_bytes, zero_window_packets"
    with ingest(tmp_path, {"a.pcap": [syn, *data]}) as dataset:
        assert dataset.sql(f"SELECT {columns} FROM flows").rows() == [(500 << 7, 1)]
    with ingest(tmp_path / "without", {"a.pcap": data}) as dataset:
        assert dataset.sql(f"SELECT {columns} FROM flows").rows() == [(None, 1)]


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
        for name, captured in sorted(files.items())
        for number, packet in enumerate(captured)
        if packet.src == name.removesuffix(".pcap")
    ]


def test_no_packets_unless_requested(tmp_path: Path) -> None:
    with ingest(tmp_path, {"a.pcap": ring(A, B)}) as dataset:
        assert dataset.sql("SELECT * FROM packets").is_empty()


def test_filter_leaves_the_rest_in_the_ledger(tmp_path: Path) -> None:
    """Vantages are found from all packets: those of one pair alone do not show each file's host."""
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
