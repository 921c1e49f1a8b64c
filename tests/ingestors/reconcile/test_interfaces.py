"""Captures of all interfaces of a host whose link type tells them (SLL2): each packet counts once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import packets as p
import pytest
from small_runs import BEGIN_NS, SPACING_NS, A, B, C, Packet, contradictions, in_sequence, read_folder, ring, write_log

from ddnn_traces.query.dataset import Dataset

BRIDGE, PORTS = 2, {A: 7, B: 70_007, C: 9}
LOOPBACK = "127.0.0.1"
PASS_NS = 2000
TRAFFIC = list(in_sequence(ring(A, B, C, rounds=40)))
Seen = tuple[int, Packet]  # an interface and what it has


def bridged(packets: Iterable[Packet]) -> list[Seen]:
    """Each packet at the port in, the bridge and the port out."""
    return [
        (interface, replace(packet, time_ns=packet.time_ns + place * PASS_NS))
        for packet in packets
        for place, interface in enumerate((PORTS[packet.src], BRIDGE, PORTS[packet.dst]))
    ]


def only(interface: int, seen: Iterable[Seen]) -> list[Seen]:
    return [each for each in seen if each[0] == interface]


def record(seen: Seen) -> p.Record:
    interface, packet = seen
    return p.Record(packet.time_ns, p.sll2(packet.record.frame[14:], interface=interface))


def ingest(folder: Path, files: Mapping[str, Iterable[Seen]], log: bool = False, **options: object) -> Dataset:
    run = folder / "run"
    run.mkdir(parents=True)
    for name, seen in files.items():
        (run / name).write_bytes(p.pcap(map(record, seen), link=p.SLL2))
    if log:
        write_log(run, "worker-1", [BEGIN_NS + i * 20 * SPACING_NS for i in range(4)])
    return read_folder(run, **options)


def tables(dataset: Dataset) -> dict[str, list[tuple]]:
    """What counts."""
    names = ("flows", "flow_windows", "messages", "step_flows")
    found = {name: dataset.sql(f"FROM {name}").rows() for name in names}
    return found | {"packets": dataset.sql("SELECT flow_id, ts_ns, wire_bytes, tcp_seq FROM packets").rows()}


def counted(dataset: Dataset) -> tuple[int, int]:
    """Packets and payload of all flows."""
    return dataset.sql("SELECT sum(packets)::BIGINT, sum(payload_bytes)::BIGINT FROM flows").rows()[0]


def ledger(dataset: Dataset) -> dict[str, int]:
    return dict(dataset.sql("SELECT reason, sum(packets)::BIGINT FROM capture_ledger GROUP BY reason").rows())


def total(packets: Iterable[Packet]) -> tuple[int, int]:
    packets = list(packets)
    return len(packets), sum(packet.payload for packet in packets)


@pytest.mark.parametrize("engine", ["numba", "pyshark"])
@pytest.mark.long_after(1)
def test_packets_of_three_interfaces_count_as_the_bridges(engine: str, tmp_path: Path) -> None:
    seen = bridged(TRAFFIC)
    options = {"engine": engine, "packets": True, "log": True}
    with (
        ingest(tmp_path / "all", {"any.pcap": seen}, **options) as dataset,
        ingest(tmp_path / "one", {"any.pcap": only(BRIDGE, seen)}, **options) as of_bridge,
    ):
        assert tables(dataset) == tables(of_bridge)
        assert counted(dataset) == total(TRAFFIC)
        assert ledger(dataset) == {"in_flows": len(TRAFFIC), "duplicate_vantage": 2 * len(TRAFFIC)}
        assert contradictions(dataset) == {}


def test_an_unanswered_datagram_of_three_interfaces_counts_once(tmp_path: Path) -> None:
    """Its copies are of no time in common; so are those of a burst that each interface passes on as a whole."""
    burst = [replace(packet, src=A, dst=C, ports=(9, 9), time_ns=BEGIN_NS + n) for n, packet in enumerate(TRAFFIC[:3])]
    single = replace(TRAFFIC[0], src=C, dst=A, ports=(8, 8), payload=0, flags=p.SYN)
    with ingest(tmp_path, {"any.pcap": [*bridged(TRAFFIC), *bridged([single]), *bridged(burst)]}) as dataset:
        assert counted(dataset) == total([*TRAFFIC, single, *burst])


def test_what_other_interfaces_alone_have_counts(tmp_path: Path) -> None:
    """The loopback's traffic, and a capture of several hosts that no bridge joins."""
    inside = [replace(packet, src=LOOPBACK, dst=LOOPBACK) for packet in TRAFFIC[::2]]
    seen = [(1, packet) for packet in inside] + [(PORTS[packet.src], packet) for packet in TRAFFIC]
    with ingest(tmp_path, {"any.pcap": seen}) as dataset:
        assert counted(dataset) == total([*inside, *TRAFFIC])
        assert set(ledger(dataset)) == {"in_flows"}


@pytest.mark.parametrize("is_bridged", [False, True])
@pytest.mark.parametrize("pause_ns", [0, 10**9])
@pytest.mark.long_after(2)
def test_an_interface_that_takes_over_from_another(is_bridged: bool, pause_ns: int, tmp_path: Path) -> None:
    """A link fails, or a route changes: what each interface has counts, once each where a bridge has it, too.

    The two directions of the connection change at once. Without a pause each part must be longer than a host takes to
    pass a packet on.
    """
    slow = [replace(packet, time_ns=BEGIN_NS + n * 2_000_000) for n, packet in enumerate(TRAFFIC)]
    half = len(slow) // 2
    later = [replace(packet, time_ns=packet.time_ns + pause_ns) for packet in slow[half:]]
    seen = [(3, packet) for packet in slow[:half]] + [(4, packet) for packet in later]
    if is_bridged:
        copies = [(number + 10, replace(packet, time_ns=packet.time_ns + PASS_NS)) for number, packet in seen]
        seen = sorted([*seen, *copies], key=lambda each: each[1].time_ns)
    with ingest(tmp_path, {"any.pcap": seen}) as dataset:
        assert counted(dataset) == total(TRAFFIC)
        again = dataset.sql("SELECT sum(retransmitted_bytes), sum(missed_bytes) FROM flows").rows()
        assert again == [(0, 0)]
        assert contradictions(dataset) == {}


def test_files_that_follow_each_other_count_the_same_interface(tmp_path: Path) -> None:
    """A file ends between the copies of a packet: the one at the port is in it, the bridge's in the next."""
    seen = bridged(TRAFFIC)
    cut = len(seen) // 2 // 3 * 3 + 1
    with ingest(tmp_path, {"any.pcap": seen[:cut], "any.pcap1": seen[cut:]}) as dataset:
        assert counted(dataset) == total(TRAFFIC)
        assert contradictions(dataset) == {}


def test_an_interface_that_lost_packets_does_not_count(tmp_path: Path) -> None:
    seen = [each for n, each in enumerate(bridged(TRAFFIC)) if each[0] != BRIDGE or n % 5]
    with ingest(tmp_path, {"any.pcap": seen}) as dataset:
        assert counted(dataset) == total(TRAFFIC)


def test_copies_are_chosen_from_among_vantages_too(tmp_path: Path) -> None:
    """The host behind a port has its own capture, which has what it sent."""
    own = [(5, packet) for packet in TRAFFIC if A in (packet.src, packet.dst)]
    with ingest(tmp_path, {"any.pcap": bridged(TRAFFIC), "worker-a.pcap": own}) as dataset:
        assert counted(dataset) == total(TRAFFIC)
        assert contradictions(dataset) == {}


def test_clocks_are_compared_by_segments_of_several_interfaces(tmp_path: Path) -> None:
    """Copies of a segment at several interfaces of a file are no retransmissions, of which none is taken."""
    ahead_ns = 5_000_000
    at_a = [(number, packet) for packet in TRAFFIC if A in (packet.src, packet.dst) for number in (3, 4)]
    at_b = [
        (3, replace(packet, time_ns=packet.time_ns + ahead_ns)) for packet in TRAFFIC if B in (packet.src, packet.dst)
    ]
    with ingest(tmp_path, {"worker-a.pcap": at_a, "worker-b.pcap": at_b}) as dataset:
        offsets = dataset.sql("SELECT capture_id, clock_offset_ns FROM captures ORDER BY ALL").rows()
    assert offsets == [("worker-a.pcap", 0), ("worker-b.pcap", ahead_ns)]
