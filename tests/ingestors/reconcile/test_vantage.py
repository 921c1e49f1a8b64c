"""Where captures were taken, and which of several copies of a packet counts.

Every mix of captures of the same small run must come to what was really sent: each packet once, none lost.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from pathlib import Path

import packets as p
import pytest
from small_runs import (
    BEGIN_NS,
    EVERYBODY,
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
    received_by,
    ring,
    sent,
    sent_by,
    star,
    vantages,
    write_captures,
)

from ddnn_traces.ingestors.reconcile import vantage
from ddnn_traces.ingestors.reconcile.vantage import is_host, number_series
from ddnn_traces.pcap.capture_facts import CaptureFacts

RING = ring(A, B, C, D)
STAR = star(A, B, C, D)
PAIR = exchange([(A, B)])
HOSTS = {"worker-1": A, "worker-2": B, "worker-3": C, "worker-4": D}

Captures = dict[str, list[Packet]]


def captures(packets: Sequence[Packet], view, workers: Iterable[str] = HOSTS) -> Captures:  # type: ignore[no-untyped-def]
    """A file for each of these workers with what `view` of its address lets through."""
    return {f"{name}.pcap": list(filter(view(HOSTS[name]), packets)) for name in workers}


def rotated(name: str, packets: Sequence[Packet], sizes: Sequence[int]) -> Captures:
    """As tcpdump -C writes: name, name1, name2 with that many packets each."""
    rest = list(packets)
    files = {}
    for number, size in enumerate([*sizes, len(rest)]):
        files[name + (str(number) if number else "")] = rest[:size]
        rest = rest[size:]
    return files


def check(
    folder: Path, packets: Sequence[Packet], files: Captures, expected: dict[str, str | None] | None = None
) -> None:
    """The dataset of these files holds each of the packets once, and every other copy in the ledger."""
    with ingest(folder, files) as dataset:
        assert counted(dataset) == sent(packets)
        assert contradictions(dataset) == {}
        if expected is not None:
            assert vantages(dataset) == expected


def test_each_sender(tmp_path: Path) -> None:
    check(tmp_path, RING, captures(RING, sent_by), {f"{name}.pcap": ip for name, ip in HOSTS.items()})


@pytest.mark.parametrize("packets", [RING, STAR], ids=["ring", "star"])
def test_both_directions_everywhere(tmp_path: Path, packets: list[Packet]) -> None:
    check(tmp_path, packets, captures(packets, passing), {f"{name}.pcap": ip for name, ip in HOSTS.items()})


@pytest.mark.parametrize("packets", [RING, STAR], ids=["ring", "star"])
def test_each_receiver(tmp_path: Path, packets: list[Packet]) -> None:
    check(tmp_path, packets, captures(packets, received_by))


def test_mirror_port(tmp_path: Path) -> None:
    check(tmp_path, RING, {"mirror.pcap": RING}, {"mirror.pcap": None})


@pytest.mark.parametrize("view", [sent_by, passing, received_by])
@pytest.mark.long_after(1)
def test_mirror_port_beside_own_captures(tmp_path: Path, view) -> None:  # type: ignore[no-untyped-def]
    check(tmp_path, RING, {"mirror.pcap": RING} | captures(RING, view))


@pytest.mark.parametrize("view", [sent_by, passing])
@pytest.mark.long_after(1)
def test_mirror_port_of_both_directions_beside_own_captures(tmp_path: Path, view) -> None:  # type: ignore[no-untyped-def]
    """It sees every packet twice, and is no fuller for that."""
    check(tmp_path, RING, {"mirror.pcap": [packet for packet in RING for _ in range(2)]} | captures(RING, view))


def test_two_mirror_ports(tmp_path: Path) -> None:
    check(tmp_path, RING, {"left.pcap": RING, "right.pcap": RING[3:]})


def test_copy_at_the_sender_counts_where_packets_were_lost_on_the_way(tmp_path: Path) -> None:
    """The receivers' captures miss two packets: the sender has the word. Where it is the sender's, the receiver has."""
    heard = [packet for i, packet in enumerate(RING) if i not in (8, 16)]
    received = {
        f"{name}.pcap": [*filter(sent_by(ip), RING), *filter(received_by(ip), heard)] for name, ip in HOSTS.items()
    }
    check(tmp_path / "lost", RING, received)
    dropped = {
        f"{name}.pcap": [*filter(sent_by(ip), heard), *filter(received_by(ip), RING)] for name, ip in HOSTS.items()
    }
    check(tmp_path / "not captured", RING, dropped)


@pytest.mark.parametrize("packets", [RING, STAR], ids=["ring", "star"])
@pytest.mark.long_after(1)
def test_capture_that_ends_early_gives_way_to_the_fuller_copy(tmp_path: Path, packets: list[Packet]) -> None:
    files = {name: list(packets_of_file) for name, packets_of_file in captures(packets, passing).items()}
    first = next(iter(files))
    files[first] = files[first][: len(files[first]) // 3]
    check(tmp_path, packets, files)


def test_acknowledgements_after_the_capture_at_their_sender_ended(tmp_path: Path) -> None:
    """They have no payload: the receiver's capture counts, since it has them for seconds longer."""
    second = 10**9
    packets = [Packet(BEGIN_NS, A, B, 1000)]
    packets += [Packet(BEGIN_NS + i * second // 10, A, B, 0) for i in range(1, 101)]
    packets += [Packet(BEGIN_NS + i * second, C, B, 100) for i in range(2)]
    early = [packet for packet in packets if packet.src == A][:85]
    check(tmp_path / "late", packets, {"worker-1.pcap": early, "worker-2.pcap": packets})
    check(tmp_path / "soon", packets, {"worker-1.pcap": early[:5], "worker-2.pcap": packets})


def test_own_captures_that_miss_a_host(tmp_path: Path) -> None:
    there = ["worker-1", "worker-2", "worker-4"]
    check(tmp_path, RING, captures(RING, passing, there), {f"{name}.pcap": HOSTS[name] for name in there})


def test_mirror_port_holds_what_own_captures_miss(tmp_path: Path) -> None:
    check(tmp_path, RING, {"mirror.pcap": RING} | captures(RING, sent_by, ["worker-1", "worker-2"]))


def test_some_senders_some_both_directions(tmp_path: Path) -> None:
    files = captures(RING, passing, ["worker-1", "worker-3"]) | captures(RING, sent_by, ["worker-2", "worker-4"])
    check(tmp_path, RING, files, {f"{name}.pcap": ip for name, ip in HOSTS.items()})


@pytest.mark.parametrize("view", [sent_by, passing, received_by])
@pytest.mark.long_after(1)
def test_two_hosts(tmp_path: Path, view) -> None:  # type: ignore[no-untyped-def]
    check(tmp_path, PAIR, captures(PAIR, view, ["worker-1", "worker-2"]))


def test_two_hosts_with_one_capture(tmp_path: Path) -> None:
    check(tmp_path, PAIR, captures(PAIR, passing, ["worker-1"]), {"worker-1.pcap": None})


def test_one_of_two_hosts_is_known(tmp_path: Path) -> None:
    files = captures(PAIR, passing, ["worker-1"]) | captures(PAIR, sent_by, ["worker-2"])
    check(tmp_path, PAIR, files, {"worker-1.pcap": A, "worker-2.pcap": B})


@pytest.mark.parametrize("leaves", [["worker-2"], ["worker-2", "worker-3", "worker-4"]])
@pytest.mark.long_after(1)
def test_leaves_of_a_star_in_both_directions(tmp_path: Path, leaves: list[str]) -> None:
    files = captures(STAR, sent_by) | captures(STAR, passing, leaves)
    check(tmp_path, STAR, files, {f"{name}.pcap": ip for name, ip in HOSTS.items()})


def test_leaves_without_the_centre(tmp_path: Path) -> None:
    check(tmp_path, STAR, captures(STAR, passing, ["worker-2", "worker-3", "worker-4"]))


# --- several files of one host


@pytest.mark.parametrize("view", [sent_by, passing])
@pytest.mark.parametrize("sizes", [[7], [1, 5], [4, 4]])
@pytest.mark.long_after(2)
def test_rotated_files_continue_each_other(tmp_path: Path, view, sizes: list[int]) -> None:  # type: ignore[no-untyped-def]
    files: Captures = {}
    for name, packets in captures(RING, view).items():
        files |= rotated(name, packets, sizes)
    check(tmp_path, RING, files)


def test_rotated_files_between_two_hosts(tmp_path: Path) -> None:
    files = rotated("worker-1.pcap", PAIR, [4]) | rotated("worker-2.pcap", PAIR, [5])
    check(tmp_path, PAIR, files)


def test_last_file_of_a_rotation_may_hold_one_neighbour_only(tmp_path: Path) -> None:
    late = exchange([(A, B)], rounds=1)
    packets = STAR + [Packet(p.time_ns + 10**9, p.src, p.dst, p.payload, ports=p.ports) for p in late]
    files = captures(packets, sent_by, ["worker-2", "worker-3"]) | rotated("centre.pcap", packets, [len(STAR)])
    check(tmp_path, packets, files, {"worker-2.pcap": B, "worker-3.pcap": C, "centre.pcap": A, "centre.pcap1": A})


def test_rotation_amid_packets_out_of_order(tmp_path: Path) -> None:
    packets = exchange([(A, B), (A, C)], rounds=200)
    mine = list(filter(sent_by(A), packets))
    mine[199], mine[200] = mine[200], mine[199]
    files = rotated("worker-1.pcap", mine, [200]) | captures(packets, sent_by, ["worker-2", "worker-3"])
    check(tmp_path, packets, files)


def test_two_interfaces_of_one_host(tmp_path: Path) -> None:
    files = captures(RING, sent_by, ["worker-2", "worker-3", "worker-4"])
    files |= {"any.pcap": list(filter(passing(A), RING)), "eth0.pcap": list(filter(passing(A), RING))}
    check(tmp_path, RING, files)


def test_two_interfaces_with_a_single_packet(tmp_path: Path) -> None:
    check(tmp_path, PAIR[:1], {"any.pcap": PAIR[:1], "eth0.pcap": PAIR[:1]})


def test_fuller_of_two_interfaces_counts(tmp_path: Path) -> None:
    mine = list(filter(sent_by(A), RING))
    check(tmp_path, mine, {"any.pcap": mine, "eth0.pcap": mine[1:-1]}, {"any.pcap": A, "eth0.pcap": A})


def test_two_rotated_interfaces_of_one_host(tmp_path: Path) -> None:
    mine = list(filter(sent_by(A), RING))
    files = rotated("any.pcap", mine, [4]) | rotated("eth0.pcap", mine, [6])
    check(tmp_path, mine, files)


# --- multicast


def test_multicast_counts_once(tmp_path: Path) -> None:
    shouts = [Packet(BEGIN_NS + i * SPACING_NS, B, EVERYBODY, 50, ports=(9, 9)) for i in range(3)]
    check(tmp_path, RING + shouts, captures(RING + shouts, passing))


def test_multicast_is_no_host(tmp_path: Path) -> None:
    shouts = [Packet(BEGIN_NS + i * SPACING_NS, A, EVERYBODY, 50, ports=(9, 9)) for i in range(3)]
    with ingest(tmp_path, {"worker-1.pcap": shouts}) as dataset:
        assert vantages(dataset) == {"worker-1.pcap": A}
        assert dataset.sql("SELECT host_ip FROM hosts").rows() == [(A,)]


SOLICITATION = p.ethernet(p.ipv6(bytes([133]) + bytes(7), "fe80::9", "ff02::2", 58), p.IPV6)


def test_a_rotated_file_with_an_announcement_only_is_its_folders(tmp_path: Path) -> None:
    """A router solicitation, in the first file of each host, was sent by a host of no file."""
    second = [Packet(one.time_ns + 10**9, one.src, one.dst, one.payload, ports=one.ports) for one in RING]
    expected = {}
    for folder, ip in (("h1", A), ("h2", B), ("h3", C), ("h4", D)):
        write_captures(tmp_path / "run" / folder, {"trace-20261128-200419.pcap": filter(passing(ip), second)})
        (tmp_path / "run" / folder / "trace-20261128-200411.pcap").write_bytes(
            p.pcap([p.Record(BEGIN_NS - 10**10, SOLICITATION)])
        )
        expected |= {f"{folder}/trace-20261128-{time}.pcap": ip for time in ("200411", "200419")}
    with read_folder(tmp_path / "run", run_id="run") as dataset:
        assert vantages(dataset) == expected
        assert contradictions(dataset) == {}


def test_a_capture_of_an_announcement_alone_has_no_known_host(tmp_path: Path) -> None:
    with ingest_frames(tmp_path, {"worker-1.pcap": [SOLICITATION]}) as dataset:
        assert vantages(dataset) == {"worker-1.pcap": None}


@pytest.mark.parametrize(
    ("address", "expected"),
    [("10.0.0.1", True), ("fe80::1", True), ("10.0.0.255", True), ("224.0.0.1", False), ("ff02::1", False),
     ("255.255.255.255", False), ("0.0.0.0", False), ("::", False)],
)  # fmt: skip
def test_addresses_of_hosts(address: str, expected: bool) -> None:
    assert is_host(address) is expected


# --- series of files, by their times


@pytest.mark.parametrize(
    ("spans", "expected"),
    [
        ([], []),
        ([(0, 100)], [0]),
        ([(0, 100), (100, 200), (201, 300)], [0, 0, 0]),
        ([(201, 300), (0, 100), (100, 200)], [1, 1, 1]),
        ([(0, 100), (0, 100)], [0, 1]),
        ([(0, 100), (50, 200)], [0, 1]),
        ([(0, 100), (20, 30)], [0, 1]),  # one within the other
        ([(0, 1000), (995, 2000)], [0, 0]),  # out of order at the rotation
        ([(0, 1000), (900, 2000)], [0, 1]),
        ([(5, 5), (5, 5)], [0, 1]),  # the same packet at two interfaces
        ([(0, 5), (5, 5)], [0, 1]),
        ([(0, 100), (0, 102), (100, 200), (102, 200)], [0, 1, 0, 1]),  # two hosts, each rotated
        ([(0, 100), (0, 102), (400, 500), (410, 490)], [0, 1, 1, 0]),
    ],
)
def test_series(spans: list[tuple[int, int]], expected: list[int]) -> None:
    files = [facts(number, *span) for number, span in enumerate(spans)]
    assert number_series(files, [None] * len(files)) == expected


def test_series_are_of_one_host() -> None:
    files = [facts(0, 0, 100), facts(1, 100, 200)]
    assert number_series(files, [A, B]) == [0, 1]


def test_each_of_many_files_is_compared_with_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """300 hosts behind a mirror port, each rotated twice at about the same time."""
    files = [facts(turn * 300 + i, turn * 10**6 + i, (turn + 1) * 10**6 + i) for turn in range(3) for i in range(300)]
    compared = 0

    def counting(before: CaptureFacts, after: CaptureFacts, continues=vantage._continues) -> bool:  # type: ignore[no-untyped-def]
        nonlocal compared
        compared += 1
        return bool(continues(before, after))

    monkeypatch.setattr(vantage, "_continues", counting)
    assert number_series(files, [None] * len(files)) == [*range(300)] * 3
    assert compared < 3 * len(files)


def test_the_hosts_of_a_chain_of_files_are_found_one_after_the_other() -> None:
    """Each has its own host and its successor's, and only the last of 5,000 tells by itself."""
    ends = [f"host {i}" for i in range(5000)]
    assert vantage._distinct([*map(set, itertools.pairwise(ends)), {ends[-1]}]) == ends
    assert vantage._distinct([{"a", "b"}, {"a"}, {"b"}, set()]) == [None, "a", "b", None]


def facts(number: int, first: int, last: int) -> CaptureFacts:
    return CaptureFacts(Path(f"{number}.pcap"), "numba", 0, records=2, first_ns=first, last_ns=last)
