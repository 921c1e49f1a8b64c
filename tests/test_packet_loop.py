"""The packet loop against tests/naive.py, and against what is known of packets made by hand."""

from __future__ import annotations

import collections
import gzip
import itertools
from pathlib import Path
from tempfile import TemporaryDirectory

import naive
import numpy as np
import packets as p
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ddnn_traces.ingestors import capture_file, numba_engine, packet_loop
from ddnn_traces.ingestors.facts import NO_STEP, CaptureFacts, ReadOptions

T0 = 1_700_000_000 * 10**9
ODD_TIME = (1_700_000_000 | 0xFFFF) * 10**9  # a record header that starts with 0xffff
US = 1000
MS = 10**6
KEY = ("10.0.0.1", "10.0.0.2", p.TCP, 40000, 5000)


# --- reading both ways


def read_fast(
    data: bytes, window_ns: int, bounds: list[int], *, block: int = 1 << 20, flows: int = 4096, cells: int = 1 << 10
) -> naive.Facts:
    """What the numba engine says of a file, in the terms of the naive one; the rest are its buffer sizes."""
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(capture_file, "BLOCK_BYTES", block)
        patch.setattr(numba_engine, "_FLOWS_AT_FIRST", flows)
        patch.setattr(numba_engine, "_CELLS_AT_ONCE", cells)
        path = Path(folder) / "capture"
        path.write_bytes(data)
        options = ReadOptions(window_ns, np.array(bounds, np.int64), Path(folder) / "cells")
        return in_naive_terms(numba_engine.read_capture(path, options))


def in_naive_terms(facts: CaptureFacts) -> naive.Facts:
    rows = facts.flows.to_pylist()
    keys = [tuple(row[name] for name in facts.flows.column_names[:5]) for row in rows]
    cells: dict[tuple, list[int]] = collections.defaultdict(lambda: [0, 0, 0])
    for flow, window, step, *values in cell_rows(facts):
        for i, value in enumerate(values):
            cells[keys[flow], window, step][i] += value
    return naive.Facts(
        dict(zip(keys, rows, strict=True)), dict(cells), facts.skipped, facts.records, facts.wire_bytes, facts.first_ns,
        facts.last_ns, facts.trailing_bytes, facts.status,
    )  # fmt: skip


def cell_rows(facts: CaptureFacts) -> list[tuple[int, ...]]:
    if facts.cells is None:
        return []
    return list(zip(*pq.read_table(facts.cells).to_pydict().values(), strict=True))


def assert_balanced(facts: naive.Facts) -> None:
    """The ledger: every record is in a flow or skipped for a reason, and the cells of a flow add up to it."""
    flows, skipped = facts.flows.values(), facts.skipped.values()
    assert sum(flow["packets"] for flow in flows) + sum(n for n, _ in skipped) == facts.records
    assert sum(flow["wire_bytes"] for flow in flows) + sum(wire for _, wire in skipped) == facts.wire_bytes
    sums = {key: np.zeros(3, int) for key in facts.flows}
    for (key, *_), cell in facts.cells.items():
        sums[key] += cell
    for key, flow in facts.flows.items():
        assert sums[key].tolist() == [flow["packets"], flow["wire_bytes"], flow["payload_bytes"]]


def read(data: bytes, window_ns: int = MS, bounds: list[int] | None = None, **sizes: int) -> naive.Facts:
    """What both engines say of a file."""
    fast, plain = read_fast(data, window_ns, bounds or [], **sizes), naive.read(data, window_ns, bounds or [])
    assert fast == plain
    assert list(fast.flows) == list(plain.flows)  # the order of first appearance
    assert_balanced(fast)
    return fast


def read_frames(*frames: bytes, **file: int) -> naive.Facts:
    return read(p.pcap([p.Record(T0 + i * US, frame) for i, frame in enumerate(frames)], **file))


def the_flow(facts: naive.Facts) -> dict[str, int]:
    (flow,) = facts.flows.values()
    return flow


# --- sizes


def test_sizes_are_the_original_ones_not_the_captured_ones() -> None:
    flow = the_flow(read_frames(p.segment(1000), snaplen=96))
    assert (flow["wire_bytes"], flow["captured_bytes"]) == (14 + 20 + 20 + 1000, 96)
    assert (flow["ip_bytes"], flow["payload_bytes"]) == (1040, 1000)


@pytest.mark.parametrize("payload", [65_535 - 40, 65_536 - 40, 65_537 - 54, 65_537, 100_000, 512 << 10])
@pytest.mark.parametrize("snaplen", [96, 262144])
def test_super_frames_do_not_wrap_at_16_bits(payload: int, snaplen: int) -> None:
    """The header's 16 bits hold the length modulo 65536, as no driver promises but some write."""
    flow = the_flow(read_frames(p.segment(payload), snaplen=snaplen))
    assert (flow["wire_bytes"], flow["ip_bytes"], flow["payload_bytes"]) == (payload + 54, payload + 40, payload)


@pytest.mark.parametrize("payload", [1460, 80_000])
def test_ip_length_zero_is_taken_from_the_frame(payload: int) -> None:
    v4 = p.ethernet(p.ipv4(p.tcp(bytes(payload)), total=0))
    v6 = p.ethernet(p.ipv6(p.tcp(bytes(payload)), length=0), p.IPV6)
    flows = list(read_frames(v4, v6, snaplen=128).flows.values())
    assert [flow["payload_bytes"] for flow in flows] == [payload, payload]
    assert [flow["ip_bytes"] for flow in flows] == [payload + 40, payload + 60]


def test_padding_of_short_frames_is_wire_but_not_payload() -> None:
    ack = p.segment(0)
    flow = the_flow(read_frames(ack + bytes(60 - len(ack))))
    assert (flow["wire_bytes"], flow["ip_bytes"], flow["payload_bytes"]) == (60, 40, 0)


def test_length_beyond_the_frame_is_taken_from_the_frame() -> None:
    flow = the_flow(read_frames(p.ethernet(p.ipv4(p.tcp(bytes(100)), total=1500))))
    assert (flow["ip_bytes"], flow["payload_bytes"]) == (140, 100)


def test_header_lengths_that_cannot_be_are_malformed() -> None:
    shorter_than_headers = p.ethernet(p.ipv4(p.tcp(bytes(10)), total=39))
    ihl_4 = bytearray(p.segment(10))
    ihl_4[14] = 0x44
    version_5 = bytearray(p.segment(10))
    version_5[14] = 0x55
    offset_4 = bytearray(p.segment(10))
    offset_4[46] = 0x40
    udp_of_4 = p.ethernet(p.ipv4(bytes(4), protocol=p.UDP))
    total_of_19 = p.ethernet(p.ipv4(p.icmp(), protocol=p.ICMP, total=19))
    frames = [shorter_than_headers, ihl_4, version_5, offset_4, udp_of_4, total_of_19]
    assert read_frames(*map(bytes, frames)).skipped == {"malformed": (6, sum(map(len, frames)))}


# --- cut packets


def test_ports_are_enough() -> None:
    """Four bytes of transport header are a flow; TCP's own fields need more, and a header of 20 bytes is assumed."""
    frame = p.ethernet(p.ipv4(p.tcp(bytes(100), flags=p.SYN, options=p.TIMESTAMPS)))
    facts = read_frames(frame, snaplen=38)
    flow = the_flow(facts)
    assert KEY in facts.flows
    assert (flow["payload_bytes"], flow["syn_packets"]) == (100 + len(p.TIMESTAMPS), 0)
    assert read_frames(frame, snaplen=37).skipped == {"cut_short": (1, len(frame))}


@pytest.mark.parametrize("snaplen", [54, 60, 128])
def test_cut_tcp_options_still_count_as_header(snaplen: int) -> None:
    flow = the_flow(read_frames(p.ethernet(p.ipv4(p.tcp(bytes(100), options=p.TIMESTAMPS * 3))), snaplen=snaplen))
    assert flow["payload_bytes"] == 100


@pytest.mark.parametrize(("tcp_bytes", "payload", "syns"), [(12, 112, 0), (13, 100, 0), (14, 100, 2)])
def test_bytes_of_the_next_record_are_not_read(tcp_bytes: int, payload: int, syns: int) -> None:
    """Data offset and flags are bytes 12 and 13 of TCP; the next record is there to be mistaken for them."""
    frame = p.ethernet(p.ipv4(p.tcp(bytes(100), flags=p.SYN, options=p.TIMESTAMPS)))
    flow = the_flow(read(p.pcap([p.Record(ODD_TIME, frame)] * 2, snaplen=14 + 20 + tcp_bytes)))
    assert (flow["payload_bytes"], flow["syn_packets"]) == (2 * payload, syns)


def test_cut_ipv6() -> None:
    """Snaplen 54 holds the IPv6 header of an Ethernet frame and not one byte more."""
    frame = p.ethernet(p.ipv6(p.tcp(bytes(100))), p.IPV6)
    assert read_frames(frame, snaplen=54).skipped == {"cut_short": (1, len(frame))}
    assert the_flow(read_frames(frame, snaplen=58))["payload_bytes"] == 100
    assert the_flow(read_frames(p.ethernet(p.ipv6(bytes(100), protocol=p.ICMP), p.IPV6), snaplen=54))["packets"] == 1


@pytest.mark.parametrize("snaplen", range(38))
def test_frames_without_a_whole_ip_header_are_cut_short(snaplen: int) -> None:
    frame = p.ethernet(p.ipv4(p.tcp()), tags=[p.VLAN])
    facts = read(p.pcap([p.Record(ODD_TIME, frame)] * 2, snaplen=snaplen))
    assert facts.skipped == {"cut_short": (2, 2 * len(frame))}


# --- link types and headers

LINKS = {
    p.ETHERNET: p.ethernet,
    p.SLL: p.sll,
    p.SLL2: p.sll2,
    p.NULL: p.null,
    108: p.null,
    **dict.fromkeys((12, 14, 101, 228, 229), p.raw),
}


@pytest.mark.parametrize("link", LINKS)
def test_link_types(link: int) -> None:
    v4, v6 = LINKS[link](p.ipv4(p.tcp(bytes(100)))), LINKS[link](p.ipv6(p.tcp(bytes(100))), p.IPV6)
    facts = read_frames(v4, v6, link=link)
    assert list(facts.flows) == [KEY, ("fd00::1", "fd00::2", *KEY[2:])]
    assert [flow["payload_bytes"] for flow in facts.flows.values()] == [100, 100]


@pytest.mark.parametrize(
    "tags", [[p.VLAN], [p.SERVICE_VLAN, p.VLAN], [p.VLAN, p.VLAN], [0x9100, p.VLAN], [p.SERVICE_VLAN, p.VLAN, p.VLAN]]
)
def test_vlan_tags_are_wire_but_not_ip(tags: list[int]) -> None:
    facts = read_frames(p.segment(100), p.ethernet(p.ipv4(p.tcp(bytes(100), seq=100)), tags=tags))
    flow = facts.flows[KEY]
    assert (flow["packets"], flow["payload_bytes"]) == (2, 200)
    assert flow["wire_bytes"] == 2 * 154 + 4 * len(tags)


def test_unknown_link_type_is_in_the_ledger() -> None:
    assert read_frames(p.segment(), link=147).skipped == {"unknown_link_type": (1, 154)}


def test_upper_bits_of_the_link_type_are_not_part_of_it() -> None:
    """They hold the length of a frame check sequence."""
    assert KEY in read_frames(p.segment(), link=p.ETHERNET | 0x14000000).flows


def test_other_packets_are_not_ip() -> None:
    llc = p.ethernet(b"\x42\x42\x03" + bytes(50), 53)
    assert read_frames(p.arp(), llc).skipped == {"not_ip": (2, len(p.arp()) + len(llc))}
    assert read_frames(b"\x10" + bytes(50), link=p.RAW).skipped == {"not_ip": (1, 51)}


def test_protocols_and_ports() -> None:
    facts = read_frames(
        p.ethernet(p.ipv4(p.udp(bytes(30)), protocol=p.UDP)), p.ethernet(p.ipv4(p.icmp(bytes(30)), protocol=p.ICMP))
    )
    assert {key[2:]: flow["payload_bytes"] for key, flow in facts.flows.items()} == {
        (p.UDP, 40000, 5000): 30,
        (p.ICMP, 0, 0): 38,
    }


def test_ip_options() -> None:
    flow = the_flow(read_frames(p.ethernet(p.ipv4(p.tcp(bytes(100)), options=bytes(40)))))
    assert (flow["ip_bytes"], flow["payload_bytes"]) == (180, 100)


EXTENSIONS = [p.hop_by_hop(), p.destination_options(2), p.authentication(), p.fragment_header(more=True)]


def test_ipv6_extension_headers() -> None:
    frame = p.ethernet(p.ipv6(p.tcp(bytes(100)), extensions=EXTENSIONS), p.IPV6)
    facts = read_frames(frame)
    assert the_flow(facts)["payload_bytes"] == 100
    assert next(iter(facts.flows))[2:] == KEY[2:]
    assert read_frames(frame, snaplen=14 + 40 + 8 + 24 + 4).skipped == {"cut_short": (1, len(frame))}


def test_later_fragments_count_with_port_zero() -> None:
    """What they carry is no transport header, though it may look like one."""
    v4 = [p.ipv4(p.tcp(bytes(1460)), more=True), p.ipv4(p.tcp(bytes(500), flags=p.SYN), fragment=1480)]
    v6 = [
        p.ipv6(p.udp(bytes(1000)), protocol=p.UDP, extensions=[p.fragment_header(more=True)]),
        p.ipv6(bytes(300), protocol=p.UDP, extensions=[p.fragment_header(1008)]),
    ]
    facts = read_frames(*map(p.ethernet, v4), *(p.ethernet(packet, p.IPV6) for packet in v6), snaplen=80)
    assert {key[2:]: flow["payload_bytes"] for key, flow in facts.flows.items()} == {
        (p.TCP, 40000, 5000): 1460,
        (p.TCP, 0, 0): 520,
        (p.UDP, 40000, 5000): 1000,
        (p.UDP, 0, 0): 300,
    }
    assert facts.flows[*KEY[:3], 0, 0]["syn_packets"] == 0


def test_addresses_that_differ_anywhere_are_other_flows() -> None:
    ends = ["fd00::1", "fd01::1", "fd00::2"]
    frames = [p.ethernet(p.ipv6(p.tcp(), *pair), p.IPV6) for pair in itertools.product(ends, ends)]
    assert [key[:2] for key in read_frames(*frames).flows] == list(itertools.product(ends, ends))


def test_chain_longer_than_the_packet_is_malformed() -> None:
    frame = p.ethernet(p.ipv6(p.tcp(bytes(100)), extensions=[p.hop_by_hop(8)], length=60), p.IPV6)
    assert read_frames(frame).skipped == {"malformed": (1, len(frame))}


# --- times


@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize("tick_ns", [1, 1000])
def test_byte_orders_and_resolutions(order: str, tick_ns: int) -> None:
    time = T0 + 123_456_789
    facts = read(p.pcap([p.Record(time, p.segment())], order, tick_ns))
    assert facts.first_ns == facts.last_ns == time // tick_ns * tick_ns


def test_times_out_of_order() -> None:
    times = [T0 + 5 * MS, T0 + 9 * MS, T0 - 3 * MS, T0 + 5 * MS + 1000]
    facts = read(p.pcap([p.Record(time, p.segment()) for time in times]))
    flow = the_flow(facts)
    assert (facts.first_ns, facts.last_ns) == (flow["first_seen_ns"], flow["last_seen_ns"]) == (times[2], times[1])
    windows = {window - T0 // MS: packets for (_, window, _), (packets, *_) in facts.cells.items()}
    assert windows == {5: 2, 9: 1, -3: 1}


def test_skipped_packets_count_for_the_times_of_the_file() -> None:
    facts = read(p.pcap([p.Record(T0, p.arp()), p.Record(T0 + MS, p.segment()), p.Record(T0 + 2 * MS, p.arp())]))
    assert (facts.first_ns, facts.last_ns) == (T0, T0 + 2 * MS)
    assert the_flow(facts)["first_seen_ns"] == the_flow(facts)["last_seen_ns"] == T0 + MS


def steps_of(times: list[int], bounds: list[int]) -> dict[int, int]:
    """Packets a step."""
    data = p.pcap([p.Record(T0 + time, p.segment()) for time in times], tick_ns=1)
    facts = read(data, bounds=[T0 + bound for bound in bounds])
    counts: dict[int, int] = collections.Counter()
    for (_, _, step), (packets, *_) in facts.cells.items():
        counts[step] += packets
    return counts


def test_step_holds_its_start_but_not_its_end() -> None:
    assert steps_of([99, 100, 199, 200, 299, 300, 301], [100, 200, 300]) == {-1: 1, 0: 2, 1: 2, 2: 2}


def test_steps_of_no_length_hold_nothing() -> None:
    assert steps_of([100, 200, 300], [100, 200, 200, 200, 300]) == {0: 1, 3: 1, 4: 1}


def test_steps_of_times_out_of_order() -> None:
    assert steps_of([350, 150, 50, 250, 150], [100, 200, 300]) == {2: 1, 0: 2, -1: 1, 1: 1}


def test_no_steps() -> None:
    assert steps_of([1, 2], []) == {NO_STEP: 2}


# --- TCP


def retransmitted(*segments: tuple[int, int, int]) -> tuple[int, int]:
    """Retransmitted packets and bytes of segments (sequence number, payload, flags)."""
    flow = the_flow(read_frames(*(p.segment(payload, seq, flags) for seq, payload, flags in segments)))
    return flow["retransmitted_packets"], flow["retransmitted_bytes"]


@pytest.mark.parametrize("start", [0, 1000, 2**31 - 150, 2**32 - 150, 2**32 - 100, 2**32 - 1])
def test_retransmissions_at_every_place_of_the_sequence_space(start: int) -> None:
    def sent(*segments: tuple[int, int]) -> tuple[int, int]:
        return retransmitted(*((start + seq, payload, p.ACK) for seq, payload in segments))

    assert sent((0, 100), (100, 100), (200, 100)) == (0, 0)
    assert sent((0, 100), (0, 100), (100, 100)) == (1, 100)
    assert sent((0, 100), (50, 100), (150, 100)) == (1, 50)  # only what was there before
    assert sent((0, 100), (200, 100), (100, 100)) == (1, 100)  # a hole that is filled
    assert sent((0, 300), (100, 100), (300, 100)) == (1, 100)  # the highest number stays
    assert sent((0, 100), (-(2**30), 100), (0, 100)) == (2, 200)
    assert sent((0, 100), (100, 0), (50, 0)) == (0, 0)  # bare acknowledgements
    assert sent((0, 100), (100 + 2**31 + 1, 100)) == (1, 100)  # the far end of what counts as before
    assert sent((0, 100), (100 + 2**31, 100)) == (0, 0)  # neither before nor behind


@pytest.mark.parametrize("start", [5, 2**32 - 1])
def test_syn_and_fin_take_a_sequence_number(start: int) -> None:
    opening = [(start, 0, p.SYN), (start + 1, 100, p.ACK)]
    assert retransmitted(*opening, (start + 101, 50, p.ACK | p.FIN)) == (0, 0)
    assert retransmitted(*opening, (start + 1, 100, p.ACK)) == (1, 100)
    assert retransmitted(*opening, *[(start + 101, 50, p.ACK | p.FIN)] * 2) == (1, 50)
    assert retransmitted(*opening, (start + 101, 0, p.ACK | p.FIN), (start + 102, 10, p.ACK)) == (0, 0)
    assert retransmitted((start, 0, p.SYN), (start, 0, p.SYN)) == (0, 0)


def test_data_in_a_repeated_syn_lies_behind_it() -> None:
    """TCP Fast Open: the first byte of data has the number after the SYN's."""
    assert retransmitted((5, 0, p.SYN), (5, 100, p.SYN), (106, 100, p.ACK)) == (0, 0)


@pytest.mark.parametrize("isn", [0, 10**6 - 500, 2**30, 2**31 + 10**6, 2**32 - 1])
def test_five_tuple_reuse_is_no_retransmission(isn: int) -> None:
    """A new connection with the ports of an old one starts anywhere."""
    first = [(10**6, 0, p.SYN), (10**6 + 1, 100, p.ACK)]
    second = [(isn, 0, p.SYN), (isn + 1, 100, p.ACK), (isn + 101, 100, p.ACK)]
    assert retransmitted(*first, *second) == (0, 0)
    assert retransmitted(*first, *second, (isn + 101, 100, p.ACK)) == (1, 100)


def test_flags_are_counted() -> None:
    flags = [p.SYN, p.SYN | p.ACK, p.SYN | p.ACK, p.ACK, p.FIN | p.ACK, p.RST, p.PUSH | p.ACK]
    flow = the_flow(read_frames(*(p.segment(0, flags=each) for each in flags)))
    assert (flow["syn_packets"], flow["opened"], flow["accepted"]) == (3, 1, 2)
    assert (flow["fin_packets"], flow["rst_packets"]) == (1, 1)


# --- damage


def test_last_record_cut_short() -> None:
    whole = p.pcap([p.Record(T0, p.segment())])
    for cut in (1, 15, 16, 17, 100):
        facts = read(whole + p.record_bytes(p.Record(T0 + MS, p.segment()))[:cut])
        assert (facts.status, facts.trailing_bytes, facts.records) == ("truncated", cut, 1)


@pytest.mark.parametrize("captured", [262145, 2**31, 2**32 - 1])
def test_absurd_record_is_corrupt_and_what_came_before_stays(captured: int) -> None:
    whole = p.pcap([p.Record(T0, p.segment()), p.Record(T0, p.segment())])
    absurd = bytes(8) + captured.to_bytes(4, "little") + bytes(300_000)
    for block in (1 << 20, 100):
        facts = read(whole + absurd, block=block)
        assert (facts.status, facts.trailing_bytes, facts.records) == ("corrupt", len(absurd), 2)


def test_records_as_long_as_the_snaplen_says_are_sane() -> None:
    facts = read_frames(p.segment(300_000), p.segment(100, seq=300_000), snaplen=400_000)
    assert (facts.status, the_flow(facts)["captured_bytes"]) == ("complete", 300_000 + 100 + 2 * 54)


def test_file_without_records() -> None:
    assert read(p.pcap([])) == naive.Facts()


# --- more than the buffers hold


def test_flow_table_grows() -> None:
    ports = list(itertools.product(range(1, 6), range(1, 2001)))  # more than twice what the table starts with
    frames = [p.segment(source=source, destination=port) for source, port in ports]
    facts = read_frames(*frames, *frames[::-1])
    assert [key[3:] for key in facts.flows] == ports
    assert {flow["packets"] for flow in facts.flows.values()} == {2}


@pytest.mark.parametrize("cells", [1, 2, 7])
def test_cells_are_spilled(cells: int) -> None:
    records = [p.Record(T0 + i * MS // 2, p.segment(source=1 + i % 3)) for i in range(60)]
    facts = read(p.pcap(records), window_ns=MS, bounds=[T0 + 5 * MS, T0 + 10 * MS], cells=cells)
    assert len(facts.cells) == 60


# --- any capture

addresses = st.sampled_from(["10.0.0.1", "255.0.0.2"])
addresses6 = st.sampled_from(["fd00::1", "fd01::1", "fd00::a:2"])
ports = st.sampled_from([5000, 5000, 65535])
filler = st.integers(0, 120).map(bytes)

segments = st.builds(
    p.tcp, filler, ports, ports,
    seq=st.sampled_from([0, 1, 50, 100, 101, 2**31 - 1, 2**31, 2**31 + 60, 2**32 - 60, 2**32 - 1]),
    flags=st.one_of(st.just(p.ACK), st.integers(0, 63)),
    options=st.sampled_from([b"", p.TIMESTAMPS, bytes(40)]),
)  # fmt: skip
transports = st.one_of(
    segments.map(lambda body: (p.TCP, body)),
    st.builds(p.udp, filler, ports, ports).map(lambda body: (p.UDP, body)),
    filler.map(lambda body: (p.ICMP, p.icmp(body))),
    st.tuples(st.sampled_from([p.TCP, p.UDP, 0, 44, 51, 132]), filler),
)
extensions = st.one_of(
    st.builds(p.hop_by_hop, st.integers(0, 3)),
    st.builds(p.destination_options, st.integers(0, 3)),
    st.builds(p.authentication, st.integers(0, 6)),
    st.builds(p.fragment_header, st.sampled_from([0, 8, 1480]), st.booleans()),
)


@st.composite
def datagrams(draw: st.DrawFn) -> tuple[bytes, int]:
    """An IP packet and its EtherType."""
    protocol, body = draw(transports)
    said = draw(st.one_of(st.none(), st.none(), st.sampled_from([0, 19, 39, 60, 65535])))
    if draw(st.booleans()):
        chain = draw(st.lists(extensions, max_size=3))
        return p.ipv6(body, draw(addresses6), draw(addresses6), protocol, chain, said), p.IPV6
    options = bytes(draw(st.sampled_from([0, 0, 4, 40])))
    fragment = draw(st.sampled_from([0, 0, 8, 1480]))
    packet = p.ipv4(body, draw(addresses), draw(addresses), protocol, options, said, fragment, draw(st.booleans()))
    return packet, p.IPV4


@st.composite
def records(draw: st.DrawFn, link: int) -> p.Record:
    """Frames mostly as they should be; times that tie, go back and hit window and step bounds."""
    packet, kind = draw(datagrams())
    if link == p.ETHERNET:
        frame = p.ethernet(packet, kind, draw(st.lists(st.sampled_from([p.VLAN, p.SERVICE_VLAN, 0x9100]), max_size=2)))
    else:
        frame = LINKS.get(link, p.raw)(packet, kind)
    frame = draw(st.one_of(st.just(frame), st.just(frame + bytes(6)), st.just(p.arp()), st.binary(max_size=80)))
    wire = draw(st.one_of(st.none(), st.none(), wire_lengths))
    return p.Record(draw(times), frame, wire)


wire_lengths = st.sampled_from([0, 60, 65_549, 65_550, 65_589, 65_590, 100_000, 2**32 - 1])
times = st.one_of(st.integers(0, 8).map(lambda i: T0 + i * 500), st.sampled_from([0, 1, (2**32 - 1) * 10**9]))
bounds = st.lists(st.integers(0, 8).map(lambda i: T0 + i * 500), max_size=5).map(sorted)
damages = st.lists(st.tuples(st.integers(4, 2000), st.integers(0, 255)), max_size=3)


@st.composite
def captures(draw: st.DrawFn) -> bytes:
    """A pcap: whole, cut anywhere behind the file header, or with some bytes changed."""
    link = draw(st.sampled_from([*LINKS, p.ETHERNET, p.ETHERNET, 147]))
    data = bytearray(
        p.pcap(
            draw(st.lists(records(link), max_size=12)), draw(st.sampled_from("<>")), draw(st.sampled_from([1, 1000])),
            draw(st.one_of(st.integers(0, 200), st.just(262144))), link,
        )
    )  # fmt: skip
    for at, value in draw(st.one_of(st.just([]), damages)):
        if at < len(data):
            data[at] = value
    return bytes(data[: draw(st.one_of(st.just(len(data)), st.integers(24, len(data))))])


@settings(deadline=None, max_examples=300)
@given(captures(), bounds, st.sampled_from([1, 500, MS]))
def test_equal_to_the_naive_reading(data: bytes, bounds: list[int], window_ns: int) -> None:
    read(data, window_ns, bounds)


@settings(deadline=None, max_examples=300)
@given(
    captures(), bounds, st.one_of(st.integers(2, 63), st.integers(64, 300)), st.integers(1, 5),
    st.sampled_from([1, 2, 4]), st.booleans(),
)  # fmt: skip
def test_equal_in_small_blocks_and_buffers(
    data: bytes, bounds: list[int], block: int, cells: int, flows: int, compressed: bool
) -> None:
    sizes = {"block": block, "cells": cells, "flows": flows}
    whole = naive.read(data, 500, bounds)
    assert read_fast(gzip.compress(data) if compressed else data, 500, bounds, **sizes) == whole


def test_compiles_without_a_folder_to_keep_the_result_in(monkeypatch: pytest.MonkeyPatch) -> None:
    compile_it = packet_loop.njit

    def njit(**options: bool) -> object:
        if options.get("cache"):
            raise RuntimeError("cannot cache function: no locator available")
        return compile_it(**options)

    monkeypatch.setattr(packet_loop, "njit", njit)
    assert packet_loop._jit(lambda number: number + 1)(2) == 3
