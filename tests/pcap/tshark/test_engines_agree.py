"""The pyshark engine against the numba engine, field by field: captures made by hand."""

from __future__ import annotations

import gzip
import itertools
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import packets as p
import pytest
from captures_by_hand import CAPTURES
from engines import (
    DATA,
    DATA6,
    GOOD,
    MS,
    START,
    cells_of,
    columns,
    flow_of_each,
    flows_of,
    from_hosts,
    read_both,
    records,
    write,
)

# each starts tshark, which takes half a second
pytestmark = [pytest.mark.filterwarnings("error"), pytest.mark.long]


# --- captures made by hand

LINKS: dict[str, tuple[int, list[bytes]]] = {
    "vlan": (p.ETHERNET, [p.ethernet(DATA, tags=[p.VLAN]), p.ethernet(DATA6, p.IPV6, [p.SERVICE_VLAN, p.VLAN])]),
    "sll": (p.SLL, [p.sll(DATA), p.sll(DATA6, p.IPV6), p.sll(bytes(28), p.ARP)]),
    "sll2": (p.SLL2, [p.sll2(DATA), p.sll2(DATA6, p.IPV6), p.sll2(bytes(28), p.ARP)]),
    "raw": (p.RAW, [DATA, DATA6]),
    "ipoib": (242, [p.ipoib(DATA), p.ipoib(DATA6, p.IPV6)]),
    "ppp": (9, [p.ppp(DATA), p.ppp(DATA6, p.IPV6, False), p.ppp(DATA, 0xC021)]),
    "ppp with direction": (204, [b"\0" + p.ppp(DATA), b"\1" + p.ppp(DATA6, p.IPV6, False)]),
    "pppoe": (51, [p.pppoe(DATA), p.pppoe(DATA6, p.IPV6)]),
    "c-hdlc": (104, [p.chdlc(DATA), p.chdlc(DATA6, p.IPV6)]),
    "ppi": (192, [p.ppi(p.ethernet(DATA)), p.ppi(p.ppp(DATA6, p.IPV6), 9, b"\5\0\4\0" + bytes(4))]),
    "nflog": (239, [p.nflog(DATA), p.nflog(DATA6, p.IPV6)]),
    "llc": (p.ETHERNET, [p.ethernet_llc(DATA), p.ethernet_llc(DATA6, p.IPV6, [p.VLAN])]),
    "llc without snap": (p.ETHERNET, [p.ethernet(b"\6\6\3" + DATA, 143), p.ethernet(DATA6, p.IPV6)]),
    "llc of a cooked capture": (p.SLL, [p.sll(p.snap(DATA), 4), p.sll(p.snap(DATA6, p.IPV6), 4)]),
    "llc of atm": (100, [p.snap(DATA), p.snap(DATA6, p.IPV6)]),
    "null": (p.NULL, [p.null(DATA), p.null(DATA6, p.IPV6)]),
}


@pytest.mark.parametrize("name", LINKS)
def test_link_types(name: str, tmp_path: Path) -> None:
    link, frames = LINKS[name]
    facts = read_both(write(tmp_path, p.pcap(records(*frames), link=link)))
    assert facts.link_types == str(link)
    assert facts.flows["src_ip"].to_pylist() == ["10.0.0.1", "fd00::1"]
    assert set(facts.flows["ip_bytes"].to_pylist()) == {140, 160}


def frames_by_name() -> Iterator[tuple[str, bytes, dict[str, Any]]]:
    """Name, frame, and expected columns of its flow, or the reason why it is skipped."""
    eth = p.ethernet
    flow = {"protocol": p.TCP, "src_port": 40000, "dst_port": 5000, "payload_bytes": 100}
    yield "ipv4", eth(DATA), flow
    yield "ipv4 padded", eth(p.ipv4(p.tcp()) + bytes(6)), flow | {"ip_bytes": 40, "payload_bytes": 0}
    yield "ipv4 options", eth(p.ipv4(p.tcp(bytes(100)), options=b"\x94\x04\0\0")), flow | {"ip_bytes": 144}
    yield "tcp options", eth(p.ipv4(p.tcp(bytes(100), options=p.TIMESTAMPS))), flow | {"ip_bytes": 152}
    yield "ipv4 length 0", eth(p.ipv4(p.tcp(bytes(100)), total=0)), flow | {"ip_bytes": 140}
    yield "ipv4 length beyond the frame", eth(p.ipv4(p.tcp(bytes(100)), total=9000)), flow | {"ip_bytes": 140}
    yield "ipv4 source mapped", eth(p.ipv6(p.tcp(bytes(100)), source="::ffff:10.1.2.3"), p.IPV6), flow
    yield "ipv6", eth(DATA6, p.IPV6), flow | {"ip_bytes": 160}
    yield "ipv6 length 0", eth(p.ipv6(p.tcp(bytes(100)), length=0), p.IPV6), flow | {"ip_bytes": 160}
    for name, headers in {
        "hop by hop": [p.hop_by_hop()],
        "destination options twice": [p.hop_by_hop(1), p.destination_options(), p.destination_options(2)],
        "authentication": [p.authentication()],
        "first fragment": [p.fragment_header(more=True)],
    }.items():
        yield f"ipv6 {name}", eth(p.ipv6(p.tcp(bytes(100)), extensions=headers), p.IPV6), flow
    port0 = {"src_port": 0, "dst_port": 0}
    later = p.ipv6(bytes(64), extensions=[p.fragment_header(64)])
    yield "ipv6 later fragment", eth(later, p.IPV6), port0 | {"protocol": p.TCP, "payload_bytes": 64}
    yield "first fragment", eth(p.ipv4(p.tcp(bytes(100)), more=True)), flow
    yield "later fragment", eth(p.ipv4(bytes(64), fragment=120)), port0 | {"protocol": p.TCP, "payload_bytes": 64}
    yield "udp", eth(p.ipv4(p.udp(bytes(30)), protocol=p.UDP)), flow | {"protocol": p.UDP, "payload_bytes": 30}
    yield "icmp", eth(p.ipv4(p.icmp(), protocol=p.ICMP)), port0 | {"protocol": p.ICMP, "payload_bytes": 8}
    unreachable = struct.pack(">BBHI", 3, 1, 0, 0) + p.ipv4(p.tcp(bytes(100)), "9.9.9.9", "8.8.8.8")[:28]
    yield "icmp error", eth(p.ipv4(unreachable, protocol=p.ICMP)), port0 | {"dst_ip": "10.0.0.2", "payload_bytes": 36}
    yield "arp", p.arp(), {"reason": "not_ip"}
    yield "lldp", eth(bytes(40), 0x88CC), {"reason": "not_ip"}
    yield "version 5", eth(b"\x55" + DATA[1:]), {"reason": "malformed"}
    yield "header of 16 bytes", eth(b"\x44" + DATA[1:]), {"reason": "malformed"}
    yield "length within the header", eth(p.ipv4(p.tcp(bytes(100)), total=10)), {"reason": "malformed"}
    yield "length within tcp", eth(p.ipv4(p.tcp(bytes(100)), total=30)), {"reason": "malformed"}
    short_tcp = bytearray(p.tcp(bytes(100)))
    short_tcp[12] = 4 << 4
    yield "tcp header of 16 bytes", eth(p.ipv4(bytes(short_tcp))), {"reason": "malformed"}


FRAMES = {name: rest for name, *rest in frames_by_name()}


def test_frames(tmp_path: Path, subtests: pytest.Subtests) -> None:
    """All in one file, each a flow of its own."""
    flows = {name: (frame, expected) for name, (frame, expected) in FRAMES.items() if "reason" not in expected}
    facts = read_both(write(tmp_path, p.pcap(records(*from_hosts(frame for frame, _ in flows.values())))))
    assert facts.skipped == {}
    assert set(facts.flows["packets"].to_pylist()) == {1}
    for (name, (frame, expected)), flow in zip(flows.items(), flow_of_each(facts), strict=True):
        with subtests.test(name):
            assert {name: flow[name] for name in expected} == expected
            assert flow["wire_bytes"] == len(frame)


@pytest.mark.parametrize("reason", ["not_ip", "malformed"])
def test_frames_that_are_skipped(reason: str, tmp_path: Path) -> None:
    frames = [frame for frame, expected in FRAMES.values() if expected.get("reason") == reason]
    facts = read_both(write(tmp_path, p.pcap(records(*frames))))
    assert facts.skipped == {reason: (len(frames), sum(map(len, frames)))}
    assert len(frames) > 1 and facts.flows.num_rows == 0


@pytest.mark.parametrize("total", [0, 4464], ids=["IP length 0", "IP length modulo 2^16"])
def test_frame_beyond_64_kib(total: int, tmp_path: Path) -> None:
    frame = p.ethernet(p.ipv4(p.tcp(bytes(100)), total=total))
    [flow] = read_both(write(tmp_path, p.pcap(records((frame, 70_014))))).flows.to_pylist()
    assert (flow["wire_bytes"], flow["ip_bytes"], flow["payload_bytes"]) == (70_014, 70_000, 69_960)


@pytest.mark.parametrize("frame", [p.ethernet(DATA), p.ethernet(DATA, tags=[p.VLAN]), p.ethernet(DATA6, p.IPV6)])
def test_every_snaplen(frame: bytes, tmp_path: Path) -> None:
    """Cut everywhere but where tshark does not show the TCP header's 13th and 14th byte, though they are there."""
    tcp_at = frame.index(struct.pack(">HH", 40000, 5000))
    snaplens = [n for n in range(len(frame)) if n - tcp_at not in (14, 15)]
    cut = [(frame[:n], len(frame)) for n in snaplens]
    facts = read_both(write(tmp_path, p.pcap(records(*cut))))
    assert facts.skipped["cut_short"][0] == tcp_at + 4
    assert facts.flows["packets"].to_pylist() == [len(cut) - tcp_at - 4]


def test_segments(tmp_path: Path) -> None:
    """Flags, retransmissions, a wrap of the sequence numbers, and a five-tuple that is used again."""
    top = 2**32
    steps = [
        (0, top - 150, p.SYN), (0, top - 149, p.ACK), (100, top - 149, p.ACK), (100, top - 49, p.ACK | p.PUSH),
        (100, top - 149, p.ACK), (80, 21, p.ACK), (0, 51, p.ACK), (0, 101, p.FIN | p.ACK), (0, 0, p.RST),
        (0, 5000, p.SYN), (60, 5001, p.ACK), (0, 77, p.SYN | p.ACK),
    ]  # fmt: skip
    flows = flows_of([p.segment(payload, seq % top, flags) for payload, seq, flags in steps], tmp_path)
    assert columns(flows, "flow", "packets", "syn_packets", "fin_packets", "rst_packets", "opened", "accepted") == [
        (0, 9, 1, 1, 1, 1, 0), (1, 2, 1, 0, 0, 1, 0), (2, 1, 1, 0, 0, 0, 1),
    ]  # fmt: skip
    assert columns(flows, "initial_sequence", "retransmitted_packets", "retransmitted_bytes") == [
        (top - 150, 2, 130), (5000, 0, 0), (77, 0, 0),
    ]  # fmt: skip
    assert all(flow["kept"] for flow in flows)


@pytest.mark.parametrize(
    ("segments", "connections"),
    [
        ([(0, 9, p.SYN), (0, 9, p.SYN), (5, 10, p.ACK)], 1),  # the SYN once more
        ([(0, 9, p.SYN), (0, 8, p.SYN)], 2),
        ([(0, 9, p.SYN), (0, 10, p.RST), (0, 9, p.SYN)], 2),
        ([(5, 10, p.ACK), (0, 9, p.SYN)], 1),  # the SYN of the segment before
        ([(5, 10, p.ACK), (0, 10, p.SYN)], 2),
        ([(0, 10, p.ACK), (0, 9, p.SYN)], 2),  # nothing before occupies sequence space
    ],
)
def test_connections(segments: list[tuple[int, int, int]], connections: int, tmp_path: Path) -> None:
    assert len(flows_of([p.segment(*each) for each in segments], tmp_path)) == connections


HOLES = {
    "filled in two parts": ([0, 200, 100, 150], [100, 100, 50, 50], (2, 100, 0, 0)),
    "filled in the middle, then around": ([0, 400, 200, 100, 300], [100, 100, 100, 100, 100], (3, 300, 0, 0)),
    "filled, and once more": ([0, 200, 100, 100], [100, 100, 100, 100], (1, 100, 1, 100)),
    "partly filled, partly old": ([0, 200, 50], [100, 100, 100], (1, 50, 0, 50)),
    "over the end": ([0, 200, 150], [100, 100, 300], (1, 50, 0, 100)),
    "a fifth hole": ([0, 20, 40, 60, 80, 100, 10], [10] * 7, (1, 10, 0, 0)),
    "in the middle of one of four": ([0, 40, 60, 80, 100, 20, 30, 10], [10] * 8, (3, 30, 0, 0)),
}


def test_out_of_order_and_retransmitted(tmp_path: Path, subtests: pytest.Subtests) -> None:
    """Across the wrap of sequence numbers, too. All in one file, each a flow of its own port."""
    cases = list(itertools.product(HOLES.items(), (1000, 2**32 - 120)))
    frames = [
        p.segment(size, (base + start) % 2**32, source=port)
        for port, ((_, (starts, sizes, _)), base) in enumerate(cases, 40000)
        for start, size in zip(starts, sizes, strict=True)
    ]
    flows = flows_of(frames, tmp_path)
    counts = columns(
        flows, "out_of_order_packets", "out_of_order_bytes", "retransmitted_packets", "retransmitted_bytes"
    )
    for ((name, (*_, expected)), base), found in zip(cases, counts, strict=True):
        with subtests.test(name, base=base):
            assert found == expected


def test_mss(tmp_path: Path) -> None:
    """Of the first SYN that shows one, however much was captured after it; not of other segments."""

    def syn(options: bytes, source: int, flags: int = p.SYN) -> bytes:
        return p.ethernet(p.ipv4(p.tcp(flags=flags, options=options, source=source)))

    option = p.mss_option(1460)
    frames = [
        syn(b"", 1), syn(option, 1), syn(p.mss_option(9000), 1), syn(p.TIMESTAMPS + option, 2), syn(option, 3, p.ACK),
    ]  # fmt: skip
    assert columns(flows_of(frames, tmp_path), "src_port", "mss") == [(1, 1460), (2, 1460), (3, None)]
    whole = syn(option + p.TIMESTAMPS, 1)
    for captured, mss in ((57, None), (58, 1460), (60, 1460)):
        path = write(tmp_path, p.pcap(records((whole[:captured], len(whole)))))
        assert read_both(path).flows["mss"].to_pylist() == [mss]


def test_large_and_huge(tmp_path: Path) -> None:
    """By the IP length: above 1,500, above 9,000."""
    [flow] = flows_of([p.segment(size - 40) for size in (1500, 1501, 9000, 9001)], tmp_path)
    assert (flow["large_packets"], flow["large_payload_bytes"]) == (3, 1461 + 8960 + 8961)
    assert (flow["huge_packets"], flow["huge_payload_bytes"]) == (1, 8961)


# --- RoCEv2


def roce(payload: bytes = bytes(20), port: int = 4791, **header: int) -> bytes:
    return p.ethernet(p.ipv4(p.udp(p.roce(payload, **header), destination=port), protocol=p.UDP))


def test_queue_pairs_and_opcodes(tmp_path: Path) -> None:
    """One row each; sizes as of any UDP packet."""
    frames = [
        roce(opcode=6, queue_pair=0x123), roce(opcode=8, queue_pair=0x123), roce(opcode=6, queue_pair=0xFFFFFF),
        roce(opcode=6, queue_pair=0x123), roce(port=4790),
    ]  # fmt: skip
    flows = flows_of(frames, tmp_path)
    assert columns(flows, "roce_dest_qp", "roce_opcode", "packets") == [
        (0x123, 6, 2), (0x123, 8, 1), (0xFFFFFF, 6, 1), (None, None, 1),
    ]  # fmt: skip
    assert flows[1]["payload_bytes"] == 36


def test_transport_header_that_is_cut(tmp_path: Path) -> None:
    """Eight bytes of it are needed, which begins at 42."""
    frame = roce(queue_pair=0x123)
    facts = read_both(write(tmp_path, p.pcap(records(*[(frame[:n], len(frame)) for n in range(38, 60)]))))
    assert columns(facts.flows.to_pylist(), "roce_dest_qp", "packets") == [(None, 12), (0x123, 10)]


@pytest.mark.parametrize("name", [name for name in CAPTURES if name.startswith(("roce v1", "erf"))])
def test_route_headers(name: str, tmp_path: Path) -> None:
    read_both(write(tmp_path, CAPTURES[name]))


# --- steps and windows


def test_steps_and_windows(tmp_path: Path) -> None:
    """A time that is a bound belongs to the step that begins there; times need not ascend."""
    path = write(tmp_path, p.pcap([p.Record(START + t, p.segment()) for t in (0, 10 * MS, 5 * MS, 20 * MS, 19 * MS)]))
    facts = read_both(path, bounds=(START + 5 * MS, START + 10 * MS, START + 20 * MS))
    assert [step for _, _, step, *_ in cells_of(facts)] == [-1, 0, 1, 1, 2]
    assert (facts.first_ns, facts.last_ns) == (START, START + 20 * MS)


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("tick_ns", [1, 1000])
def test_byte_orders_and_time_resolutions(order: str, tick_ns: int, tmp_path: Path) -> None:
    stamps = [START + tick_ns, START + 999 * tick_ns, START + 10**9 - START % 10**9 - tick_ns]
    content = p.pcap([p.Record(t, p.segment()) for t in stamps], order, tick_ns, snaplen=96)
    facts = read_both(write(tmp_path, content))
    assert (facts.first_ns, facts.last_ns) == (stamps[0], stamps[2])
    assert (facts.format, facts.time_resolution_ns, facts.snaplen) == (
        "pcap-le" if order == "<" else "pcap-be", tick_ns, 96,
    )  # fmt: skip


@pytest.mark.parametrize("compress", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_truncated_last_record(compress: Callable[[bytes], bytes], tmp_path: Path) -> None:
    path = write(tmp_path, compress(GOOD), "whole")
    assert (read_both(path).records, read_both(path).status) == (20, "complete")
    cut = read_both(write(tmp_path, compress(GOOD[:-5])))
    assert (cut.records, cut.status, cut.trailing_bytes) == (19, "truncated", 165)
    assert cut.status_detail == "appears to have been cut short in the middle of a packet."


@pytest.mark.parametrize("name", ["-r.pcap", "-", "a \"b' \\ ü $(x).pcap", "line\nbreak.pcap", "not utf-8 \udcff"])
def test_names(name: str, tmp_path: Path) -> None:
    cut = read_both(write(tmp_path, GOOD[:-5], name))
    assert (cut.records, cut.status_detail) == (19, "appears to have been cut short in the middle of a packet.")


def test_relative_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A relative name that looks like an option."""
    monkeypatch.chdir(tmp_path)
    Path("-c1").write_bytes(p.pcap(records(p.segment(), p.segment())))
    assert read_both(Path("-c1")).records == 2


DAMAGED = {
    "empty": (b"", "truncated", 0),
    "text": (b"no capture, but long enough to be one", "corrupt", 0),
    "inside the file header": (GOOD[:10], "truncated", 0),
    "file header only": (GOOD[:24], "complete", 0),
    "inside a record header": (GOOD[:-165], "truncated", 19),
    "nonsense after the records": (GOOD + struct.pack("<4I", 1, 1, 2**31, 9) + bytes(99), "corrupt", 20),
    "zeros after the records": (GOOD + bytes(1000), "corrupt", 20),
    "gzip cut short": (gzip.compress(GOOD)[:-20], "truncated", None),
    "gzip and other bytes": (gzip.compress(GOOD) + b"something else", "corrupt", 20),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damage(name: str, tmp_path: Path) -> None:
    content, status, readable = DAMAGED[name]
    facts = read_both(write(tmp_path, content))
    assert facts.status == status
    assert readable in (None, facts.records)
    assert str(tmp_path) not in str(facts.status_detail)
