"""What flows and flow_windows count of RoCEv2's reliability and of congestion marks."""

from __future__ import annotations

from pathlib import Path

import packets as p
import pytest
import roce_traffic as roce
from roce_traffic import Sent
from small_runs import BEGIN_NS, contradictions, read_folder

from ddnn_traces.ingestors.reconcile import run_tables

MS = 1_000_000
COUNTERS = "ce_packets, ece_packets, nak_packets, rnr_packets, cnp_packets, psn_repeated_packets, psn_repeated_bytes"


def capture(*packets: tuple[float, Sent], carrier: str = "v2") -> bytes:
    """Packets with their times in ms."""
    return p.pcap([p.Record(BEGIN_NS + round(at * MS), packet.frame(carrier)) for at, packet in packets])


def write(number: int, ecn: int = 0) -> Sent:
    return Sent(10, number, bytes(16 + 1000), 1000, ecn)


PACKETS = [
    (0.1, write(1)), (0.2, write(2, roce.CONGESTED)), (0.3, write(3)),
    (0.5, roce.acknowledgement(2, roce.SEQUENCE_NAK)),
    (1.1, write(2)), (1.2, write(3, roce.CONGESTED)), (1.3, roce.notification()), (1.4, roce.notification()),
    (2.1, write(3)), (2.2, write(6)), (2.3, roce.acknowledgement(6, roce.RNR_NAK)),
]  # fmt: skip


@pytest.mark.parametrize("is_sorted", [False, True])
def test_flows_and_windows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_sorted: bool) -> None:
    """is_sorted: by DuckDB, as where time stamps are far out of order."""
    if is_sorted:
        monkeypatch.setattr(run_tables, "MOST_LAG", -1)
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "a.pcap").write_bytes(capture(*PACKETS))
    with read_folder(folder) as dataset:
        flows = dataset.sql(
            f"SELECT roce_dest_qp, {COUNTERS}, psn_late_packets, psn_missing_packets FROM flows ORDER BY roce_dest_qp"
        ).rows()
        assert flows == [(0x11, 0, 0, 1, 1, 2, 0, 0, 0, 0), (0x22, 2, 0, 0, 0, 0, 3, 3000, 0, 2)]
        windows = dataset.sql(
            f"SELECT roce_dest_qp, (window_start_ns - {BEGIN_NS}) // {MS} AS ms, w.packets, {COUNTERS} "
            "FROM flow_windows AS w "
            "JOIN (SELECT flow_id, roce_dest_qp FROM flows) USING (flow_id) ORDER BY 1, 2"
        ).rows()
        assert windows == [
            (0x11, 0, 1, 0, 0, 1, 0, 0, 0, 0), (0x11, 1, 2, 0, 0, 0, 0, 2, 0, 0), (0x11, 2, 1, 0, 0, 0, 1, 0, 0, 0),
            (0x22, 0, 3, 1, 0, 0, 0, 0, 0, 0), (0x22, 1, 2, 1, 0, 0, 0, 0, 2, 2000),
            (0x22, 2, 2, 0, 0, 0, 0, 0, 1, 1000),
        ]  # fmt: skip
        assert contradictions(dataset) == {}


def test_both_captures_count_once(tmp_path: Path) -> None:
    """The sender's and the receiver's capture: one copy of each flow counts."""
    folder = tmp_path / "run"
    folder.mkdir()
    packets = [packet for size in (40 * roce.MTU, 100) for packet in roce.message(roce.WRITE, 7, size)][:40]
    sent = list(roce.lossy(packets, [20], 5, selective=False))
    for name, rows in {"sender": sent, "receiver": [each for each in sent if each[1]]}.items():
        (folder / f"{name}.pcap").write_bytes(capture(*((i / 100, packet) for i, (packet, _) in enumerate(rows))))
    with read_folder(folder) as dataset:
        assert dataset.sql("SELECT sum(psn_repeated_packets), sum(psn_late_packets) FROM flows").rows() == [(6, 0)]


#: Columns that tell how packets travelled: sizes with headers, source port, and marks of IP.
_OF_CARRIER = ("wire_bytes", "captured_bytes", "ip_bytes", "src_port", "ce_packets")


@pytest.mark.long
def test_queries_do_not_depend_on_the_carrier(tmp_path: Path) -> None:
    """RoCEv1 between GIDs that map IPv4 addresses has the rows of RoCEv2."""
    sent = [each for size in (9 * roce.MTU, 10) for each in roce.message(roce.WRITE, 7, size)]
    rows: dict[str, list[str]] = {}
    for carrier in ("v2", "v1"):
        folder = tmp_path / carrier / "run"
        folder.mkdir(parents=True)
        timed = [*PACKETS, *((3 + i / 10, packet) for i, packet in enumerate(sent))]
        (folder / "a.pcap").write_bytes(capture(*timed, carrier=carrier))
        with read_folder(folder) as dataset:
            assert contradictions(dataset) == {}
            for name in ("queue_pairs", "roce_events", "traffic_matrix"):
                found = dataset.query(name)
                assert len(found) > 0
                told = found.drop(_OF_CARRIER, strict=False).rows()
                assert rows.setdefault(name, told) == told, name
            told = dataset.sql("SELECT * FROM messages ORDER BY ALL").rows()
            assert rows.setdefault("messages", told) == told
            assert len(told) > 4


def ring(carrier: str) -> bytes:
    """Steps of a ring all-reduce by WRITEs with immediate, between four hosts with a queue pair each."""
    hosts, numbers, records, time = 4, dict.fromkeys(range(4), 1), list[p.Record](), BEGIN_NS
    for _ in range(12):
        time += 50 * MS
        for _ in range(2 * (hosts - 1)):
            for host in range(hosts):
                ends = (f"10.0.0.{host + 1}", f"10.0.0.{(host + 1) % hosts + 1}")
                sent = roce.message(roce.WRITE, numbers[host], 40_000, immediate=True)
                numbers[host] += len(sent)
                for i, each in enumerate(sent):
                    body = p.roce(each.body, each.opcode, 0x100 + host, each.number)
                    frame = roce.CARRIERS[carrier](body, *ends, 0)
                    records.append(p.Record(time + i * 1000 + host * 100, frame))
            time += 200_000
    records.sort(key=lambda record: record.time_ns)
    return p.pcap(records, link=roce.LINK_OF.get(carrier, p.ETHERNET))


@pytest.mark.long
def test_a_ring_is_found_on_any_carrier(tmp_path: Path) -> None:
    """The inference of topology, jobs and collectives asks for no protocol."""
    told = {}
    for carrier in ("v2", "v1", "infiniband"):
        folder = tmp_path / carrier / "run"
        folder.mkdir(parents=True)
        (folder / "a.pcap").write_bytes(ring(carrier))
        with read_folder(folder) as dataset:
            (topology,), jobs = dataset.query("topology").rows(named=True), dataset.query("jobs").rows(named=True)
            kinds = dataset.query("collectives")["kind"].to_list()
            told[carrier] = topology["topology"], topology["confidence"], [job["steps"] for job in jobs], kinds
    assert told["v2"][0] == "ring"
    assert told["v2"][2:] == ([12], ["all_reduce"])
    assert told["v1"] == told["infiniband"] == told["v2"]
