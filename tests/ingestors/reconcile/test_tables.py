"""Windows, steps, hosts and the ledger of a run, on synthetic captures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import packets as p
import pytest
from captures_by_hand import CAPTURES
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
    exchange,
    ingest,
    passing,
    read_folder,
    ring,
    sent,
    sent_by,
    star,
    write_captures,
    write_log,
)
from tools import mostly_long, mostly_nightly

import ddnn_traces
from ddnn_traces.errors import LedgerError
from ddnn_traces.ingestors.reconcile import run_tables
from ddnn_traces.messages import Messages
from ddnn_traces.pcap import numba_engine
from ddnn_traces.pcap.capture_facts import CaptureFacts
from ddnn_traces.store import schema

# --- the statements


#: Hand-made captures in which a five-tuple has several rows: tunnels, queue pairs or connections.
SEVERAL_ROWS = {
    "gre", "ip in ip", "flags", "roce", "roce v1", "roce v1, IPv4", "roce v1, not", "roce v1 in vxlan", "pcapng < 1",
    "pcapng > 1", "pcapng < 1000", "pcapng > 1000", "interfaces",  # of Ethernet and of SLL2
}  # fmt: skip


#: And each fourth of the others.
BEFORE_THE_NIGHT = {"nested", "roce", *SEVERAL_ROWS, *[name for name in CAPTURES if name not in SEVERAL_ROWS][::4]}


@pytest.mark.parametrize("name", mostly_nightly(mostly_long(CAPTURES, "nested", "roce"), *BEFORE_THE_NIGHT))
def test_the_short_statement_gives_the_same_tables(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is run where no five-tuple has several rows, in place of those that choose among them."""

    def execute(con: Any, statement: str, parameters: Any) -> None:
        executed.append(statement)
        executes(con, statement, parameters)

    executes, executed, tables = run_tables._execute, list[str](), []
    monkeypatch.setattr(run_tables, "_execute", execute)
    for way in ("as it is", "with a choice"):
        folder = tmp_path / way / "run"
        folder.mkdir(parents=True)
        (folder / "a.pcap").write_bytes(CAPTURES[name])
        with read_folder(folder) as dataset:
            tables.append({table: dataset.sql(f"FROM {table}").to_dicts() for table in schema.TABLES})
        monkeypatch.setattr(run_tables, "_SEVERAL", "SELECT 1")
    assert ("single" in executed, "ranked" in executed) == (name not in SEVERAL_ROWS, True)
    assert tables[0]["flows"]
    assert tables[0] == tables[1]


# --- pcapng


def test_packets_without_a_time(tmp_path: Path) -> None:
    section = p.Section()
    frame = p.segment(100)
    blocks = section.interface(resolution=9) + section.enhanced(BEGIN_NS, frame) + section.simple(frame) * 2
    folder = write_captures(tmp_path / "run", {})
    (folder / "a.pcapng").write_bytes(section.begin() + blocks)
    messages = Messages()
    with read_folder(folder, messages) as dataset:
        captures = dataset.sql("SELECT records, untimed_records, first_ns, last_ns, status FROM captures").rows()
        assert captures == [(3, 2, BEGIN_NS, BEGIN_NS, "complete")]
        assert column(dataset, "SELECT packets FROM flows") == [3]
        assert contradictions(dataset) == {}
    assert [warning for warning in messages.warnings if "no time in 2 of 3 records (Simple Packet Blocks)" in warning]


def test_impossible_times_are_counted_and_reported(tmp_path: Path) -> None:
    section = p.Section()
    times = [BEGIN_NS, BEGIN_NS + 5, 2**63, BEGIN_NS + 9]
    blocks = [section.enhanced(time, p.segment(seq=100 * at)) for at, time in enumerate(times)]
    folder = write_captures(tmp_path / "run", {})
    (folder / "a.pcapng").write_bytes(section.begin() + section.interface(resolution=9) + b"".join(blocks))
    messages = Messages()
    with read_folder(folder, messages) as dataset:
        captures = dataset.sql("SELECT records, untimed_records, first_ns, last_ns, status FROM captures").rows()
        assert captures == [(4, 1, BEGIN_NS, BEGIN_NS + 9, "complete")]
        assert contradictions(dataset) == {}
    assert [warning for warning in messages.warnings if "in 1 of 4 records: " in warning]


@pytest.mark.parametrize(
    ("link", "frame", "count", "message"),
    [
        (
            147,
            p.segment(),
            1,
            "1 record (1 unknown_link_type) of link type 147 (USER0); try --engine pyshark",
        ),
        (
            225,
            bytes(60),
            30,
            "30 records (30 unknown_link_type) of link type 225 (FC_2_WITH_FRAME_DELIMS); try --engine pyshark",
        ),
        (1, p.arp(), 30, "no flow in 30 records (30 not_ip) of link type 1 (ETHERNET); try --engine pyshark"),
        (1, p.arp(), 3, None),
        (242, p.ipoib(p.ipv4(p.tcp())), 30, None),
    ],
)
@pytest.mark.long_after(2)
def test_file_without_flows_is_reported(
    link: int, frame: bytes, count: int, message: str | None, tmp_path: Path
) -> None:
    folder = write_captures(tmp_path / "run", {"a": ring(A, B)})
    (folder / "b.pcap").write_bytes(p.pcap([p.Record(BEGIN_NS + at, frame) for at in range(count)], link=link))
    messages = Messages()
    with read_folder(folder, messages):
        found = [warning for warning in messages.warnings if "no flow in" in warning]
    assert len(found) == (message is not None)
    assert not found or (message or "") in found[0]


def test_truncated_pcapng(tmp_path: Path) -> None:
    packets = ring(A, B)
    folder = write_captures(tmp_path / "run", {})
    content = p.pcapng(packet.record for packet in packets)
    (folder / "a.pcapng").write_bytes(content[:-5])
    messages = Messages()
    with read_folder(folder, messages) as dataset:
        captures = dataset.sql("SELECT records, status, trailing_bytes FROM captures").rows()
        last = 32 + len(p.padded(packets[-1].record.frame)) + 8  # of the block with the last packet and its option
        assert captures == [(len(packets) - 1, "truncated", last + 4 - 5)]
        assert counted(dataset) == sent(packets[:-1])
        assert contradictions(dataset) == {}
    (warning,) = messages.warnings
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


def test_names_that_contradict_each_other_are_not_used(tmp_path: Path) -> None:
    """What the centre of a star sent, captured at two leaves: neither name is the centre's."""
    packets = exchange([(A, B), (A, C)])
    files = {f"worker-{n}.pcap": [x for x in packets if (x.src, x.dst) == (A, leaf)] for n, leaf in ((2, B), (3, C))}
    with ingest(tmp_path, files) as dataset:
        assert column(dataset, "SELECT DISTINCT label FROM hosts") == [None]


def test_declared_hosts_take_precedence_and_need_no_packets(tmp_path: Path) -> None:
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


def test_broadcast_address_is_not_a_host(tmp_path: Path) -> None:
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


def test_a_missing_record_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = numba_engine.read_capture

    def one_more(*arguments: Any) -> CaptureFacts:
        facts = read(*arguments)
        facts.records += 1
        return facts

    monkeypatch.setattr(numba_engine, "read_capture", one_more)
    with pytest.raises(LedgerError, match=r"a\.pcap: 21 records .* 20 of"):
        ingest(tmp_path, {"a.pcap": ring(A, B)})
    assert not (tmp_path / "dataset").exists()
