"""Sequence numbers and connections of TCP, in both readings (docs/packets.md)."""

from __future__ import annotations

from typing import Any

import packets as p
import pytest
from captures_by_hand import T0, in_time
from readings import read, read_frames, the_flow

# --- new, out of order, retransmitted


def read_segments(*segments: tuple[int, int, int]) -> list[dict[str, Any]]:
    """The flows (one a connection) of segments: sequence number, payload, flags."""
    return list(read_frames(*(p.segment(payload, seq, flags) for seq, payload, flags in segments)).flows.values())


def retransmitted(*segments: tuple[int, int, int]) -> tuple[int, int]:
    """Retransmitted packets and bytes of the segments of one connection."""
    (flow,) = read_segments(*segments)
    return flow["retransmitted_packets"], flow["retransmitted_bytes"]


def out_of_order(*segments: tuple[int, int, int]) -> tuple[int, int]:
    (flow,) = read_segments(*segments)
    return flow["out_of_order_packets"], flow["out_of_order_bytes"]


STARTS = [0, 1000, 2**31 - 150, 2**32 - 150, 2**32 - 100, 2**32 - 1]


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.long_after(2)
def test_retransmissions_at_every_place_of_the_sequence_space(start: int) -> None:
    def sent(*segments: tuple[int, int]) -> tuple[int, int]:
        return retransmitted(*((start + seq, payload, p.ACK) for seq, payload in segments))

    assert sent((0, 100), (100, 100), (200, 100)) == (0, 0)
    assert sent((0, 100), (0, 100), (100, 100)) == (1, 100)
    assert sent((0, 100), (50, 100), (150, 100)) == (1, 50)  # only the bytes sent before
    assert sent((0, 100), (200, 100), (100, 100)) == (0, 0)  # a hole that is filled
    assert sent((0, 100), (200, 100), (100, 100), (100, 100)) == (1, 100)  # but once
    assert sent((0, 300), (100, 100), (300, 100)) == (1, 100)  # the highest number stays
    assert sent((0, 100), (-(2**30), 100), (0, 100)) == (2, 200)
    assert sent((0, 100), (100, 0), (50, 0)) == (0, 0)  # bare acknowledgements
    assert sent((0, 100), (100 + 2**31 + 1, 100)) == (1, 100)  # the far end of what counts as before
    assert sent((0, 100), (100 + 2**31, 100)) == (0, 0)  # not before


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.long_after(2)
def test_segments_out_of_order(start: int) -> None:
    def sent(*segments: tuple[int, int]) -> tuple[tuple[int, int], tuple[int, int]]:
        moved = [(start + seq, payload, p.ACK) for seq, payload in segments]
        return out_of_order(*moved), retransmitted(*moved)

    nothing = 0, 0
    assert sent((0, 100), (200, 100), (100, 100)) == ((1, 100), nothing)
    assert sent((0, 100), (300, 100), (200, 100), (100, 100)) == ((2, 200), nothing)
    assert sent((0, 100), (300, 100), (150, 100), (100, 200)) == ((2, 200), (0, 100))  # a hole cut in two, both filled
    assert sent((0, 100), (200, 100), (50, 200)) == ((1, 100), (0, 100))  # beyond the hole at both ends
    assert sent((0, 100), (200, 100), (100, 300)) == ((1, 100), (0, 100))  # and beyond the highest number
    assert sent((0, 100), (200, 100), (100, 300), (400, 10), (390, 10)) == ((1, 100), (1, 110))


def gaps(*segments: tuple[int, int, int]) -> list[list[int]]:
    (flow,) = read_segments(*segments)
    return flow["gaps"]


def test_every_gap_is_known_by_its_numbers() -> None:
    ahead = [(200 * i, 100, p.ACK) for i in range(7)]
    holes = [[200 * i + 100, 200 * i + 200] for i in range(6)]
    assert gaps(*ahead) == holes
    fill = [(200 * i + 100, 100, p.ACK) for i in range(6)]
    assert out_of_order(*ahead, *fill) == (6, 600)
    assert gaps(*ahead, *fill) == []
    assert gaps(*ahead, *fill[::-1]) == []
    assert gaps(*ahead, fill[2], fill[4]) == [holes[i] for i in (0, 1, 3, 5)]
    assert gaps(*ahead, (530, 10, p.ACK)) == [*holes[:2], [500, 530], [540, 600], *holes[3:]]
    assert gaps(*ahead, (530, 10, p.ACK), (500, 30, p.ACK), (540, 60, p.ACK)) == [*holes[:2], *holes[3:]]
    assert gaps(*ahead, (150, 600, p.ACK)) == [[100, 150], [750, 800], *holes[4:]]


@pytest.mark.parametrize("start", STARTS)
def test_gaps_go_on_beyond_the_wrap(start: int) -> None:
    found = gaps(*((start + 200 * i, 100, p.ACK) for i in range(4)))
    begin = start % 2**32
    assert found == [[begin + 200 * i + 100, begin + 200 * i + 200] for i in range(3)]


def test_of_too_many_gaps_the_bytes_are_known() -> None:
    """1,025 gaps: the higher half of 1,024 is remembered, a segment that fills another one counts as sent again."""
    ahead = [(20 * i, 10, p.ACK) for i in range(1026)]
    (flow,) = read_segments(*ahead, (10, 10, p.ACK), (20 * 1024 + 10, 10, p.ACK))
    assert (len(flow["gaps"]), flow["forgotten_bytes"]) == (511, 513 * 10)
    assert flow["gaps"][0] == [20 * 513 + 10, 20 * 513 + 20]
    assert (flow["retransmitted_bytes"], flow["out_of_order_bytes"]) == (10, 10)


def test_numbers_ahead_after_an_end_are_no_gap() -> None:
    """They are those of another connection, whose SYN was not captured."""
    for end in ((100, 0, p.FIN | p.ACK), (100, 0, p.RST)):
        assert gaps((0, 100, p.ACK), end, (90_000, 100, p.ACK), (90_200, 100, p.ACK)) == []
    assert gaps((0, 100, p.ACK), (200, 0, p.FIN | p.ACK)) == [[100, 200]]  # data before the FIN


def test_highest_acknowledgement() -> None:
    def acknowledged(*numbers: int) -> tuple[int, int]:
        frames = [p.ethernet(p.ipv4(p.tcp(flags=p.ACK, acknowledgement=each % 2**32))) for each in numbers]
        flow = the_flow(read_frames(*frames))
        return flow["first_acknowledged"], flow["acknowledged"]

    assert acknowledged(5) == (5, 5)
    assert acknowledged(2**32 - 1) == (2**32 - 1, 2**32 - 1)
    assert acknowledged(0, 7, 3, 7) == (0, 7)
    assert acknowledged(2**32 - 10, 5, -12, 2**31 - 11) == (2**32 - 10, 2**32 + 2**31 - 11)
    assert acknowledged(100, 100 + 2**31) == (100, 100)  # neither before nor after
    without = [p.ethernet(p.ipv4(p.tcp(flags=flags, acknowledgement=9))) for flags in (p.SYN, p.RST | p.ACK)]
    flow = the_flow(read_frames(*without))
    assert (flow["first_acknowledged"], flow["acknowledged"]) == (None, None)


def test_flows_whose_numbers_are_not_all_known() -> None:
    """A fragment's segment goes on in another; of a TCP header cut before the flags nothing is known."""
    whole = p.segment(100)
    first, second = (p.ethernet(each) for each in p.fragments(p.tcp(bytes(160)), [80]))
    assert the_flow(read_frames(whole))["followed"]
    assert [flow["followed"] for flow in read_frames(first, second).flows.values()] == [False]
    assert [flow["followed"] for flow in read_frames(second).flows.values()] == [False]
    cut = p.Record(T0, whole[: 14 + 20 + 13], len(whole))
    assert [flow["followed"] for flow in read(p.pcap([*in_time(whole), cut])).flows.values()] == [False]


@pytest.mark.parametrize("start", [5, 2**32 - 1])
def test_syn_and_fin_take_a_sequence_number(start: int) -> None:
    opening = [(start, 0, p.SYN), (start + 1, 100, p.ACK)]
    assert retransmitted(*opening, (start + 101, 50, p.ACK | p.FIN)) == (0, 0)
    assert retransmitted(*opening, (start + 1, 100, p.ACK)) == (1, 100)
    assert retransmitted(*opening, *[(start + 101, 50, p.ACK | p.FIN)] * 2) == (1, 50)
    assert retransmitted(*opening, (start + 101, 0, p.ACK | p.FIN), (start + 102, 10, p.ACK)) == (0, 0)
    assert out_of_order(*opening, (start + 151, 0, p.ACK | p.FIN), (start + 101, 50, p.ACK)) == (1, 50)
    assert retransmitted((start, 0, p.SYN), (start, 0, p.SYN)) == (0, 0)


def test_data_in_a_repeated_syn_follows_it() -> None:
    """TCP Fast Open: the first byte of data has the number after the SYN's. The packet begins below all the same."""
    assert retransmitted((5, 0, p.SYN), (5, 100, p.SYN), (106, 100, p.ACK)) == (1, 0)


def test_flags_are_counted() -> None:
    flags = [p.SYN, p.SYN | p.ACK, p.SYN | p.ACK, p.ACK, p.FIN | p.ACK, p.RST, p.PUSH | p.ACK]
    flow = the_flow(read_frames(*(p.segment(0, flags=each) for each in flags)))
    assert (flow["syn_packets"], flow["opened"], flow["accepted"]) == (3, 1, 2)
    assert (flow["fin_packets"], flow["rst_packets"]) == (1, 1)


# --- TCP: connections

SYN5 = (5, 0, p.SYN)
DATA6 = (6, 100, p.ACK)


@pytest.mark.parametrize(
    ("before", "syn", "packets"),
    [
        ([SYN5], 5, [2]),  # repeated
        ([SYN5], 6, [1, 1]),  # another number
        ([SYN5, DATA6], 5, [3]),
        ([SYN5, (6, 0, p.FIN)], 5, [2, 1]),  # the same number, but the flow has ended
        ([SYN5, (6, 0, p.RST)], 5, [2, 1]),
        ([DATA6], 5, [2]),  # the SYN came late
        ([DATA6, (106, 10, p.ACK)], 5, [3]),
        ([DATA6], 105, [1, 1]),
        ([(106, 10, p.ACK), DATA6], 5, [2, 1]),  # that of the first segment counts, not the smallest
        ([(0, 0, p.ACK)], 5, [1, 1]),  # nothing occupies sequence space yet
        ([(0, 0, p.ACK), DATA6], 5, [3]),
        ([(0, 10, p.ACK)], 2**32 - 1, [2]),
        ([(6, 0, p.FIN)], 5, [1, 1]),
        ([], 5, [1]),
    ],
)
def test_syn_begins_a_connection(before: list[tuple[int, int, int]], syn: int, packets: list[int]) -> None:
    flows = read_segments(*before, (syn, 0, p.SYN | p.ACK))
    assert [flow["packets"] for flow in flows] == packets
    first = 5 if before[:1] == [SYN5] else None  # None where the connection before began without a SYN
    assert [flow["initial_sequence"] for flow in flows] == [first] * (len(packets) - 1) + [syn]


def test_connections_are_numbered() -> None:
    facts = read_frames(*(p.segment(0, seq, p.SYN) for seq in (1, 2, 2, 3)), p.segment(0, 0, p.RST))
    assert [(key[-1], flow["packets"]) for key, flow in facts.flows.items()] == [(0, 1), (1, 2), (2, 2)]


@pytest.mark.parametrize("isn", [0, 10**6 - 500, 2**30, 2**31 + 10**6, 2**32 - 1])
def test_five_tuple_reuse_is_no_retransmission(isn: int) -> None:
    """A new connection with the ports of an old one starts anywhere."""
    first = [(10**6, 0, p.SYN), (10**6 + 1, 100, p.ACK)]
    second = [(isn, 0, p.SYN), (isn + 1, 100, p.ACK), (isn + 101, 100, p.ACK)]
    flows = read_segments(*first, *second, (isn + 101, 100, p.ACK))
    assert [flow["retransmitted_bytes"] for flow in flows] == [0, 100]
    assert [flow["packets"] for flow in flows] == [2, 4]


def test_too_short_a_segment_is_part_of_the_connection() -> None:
    """Its SYN and its sequence number are not read."""
    frames = [p.segment(0, seq, p.SYN) for seq in (1, 2)]
    cut = p.Record(T0, p.segment(100, 3, p.SYN)[: 14 + 20 + 13], 154)
    flows = list(read(p.pcap([*in_time(*frames), cut])).flows.values())
    assert [(flow["packets"], flow["syn_packets"]) for flow in flows] == [(1, 1), (2, 1)]


def syn_with(*options: bytes, captured: int = 100) -> bytes:
    joined = b"".join(options)
    return p.ethernet(p.ipv4(p.tcp(flags=p.SYN, options=joined + bytes(-len(joined) % 4))))[:captured]


@pytest.mark.parametrize(
    ("options", "captured", "mss"),
    [
        ([p.mss_option(1460)], 100, 1460),
        ([p.mss_option(1460)], 14 + 20 + 24, 1460),
        ([p.mss_option(1460)], 14 + 20 + 23, None),
        ([b"\1", b"\1", p.mss_option(9000), p.TIMESTAMPS], 100, 9000),
        ([p.TIMESTAMPS, p.mss_option(536)], 100, 536),
        ([b"\0", p.mss_option(536)], 100, None),  # after the end of the options
        ([b"\3\0", p.mss_option(536)], 100, None),  # an option of no length
        ([b"\3\3\7", p.mss_option(536)], 100, 536),
        ([], 100, None),
    ],
)
def test_mss(options: list[bytes], captured: int, mss: int | None) -> None:
    frame = syn_with(*options)
    assert the_flow(read(p.pcap([p.Record(T0, frame[:captured], len(frame))])))["mss"] == mss


def test_first_mss_of_a_connection_counts() -> None:
    no_syn = p.ethernet(p.ipv4(p.tcp(options=p.mss_option(1))))
    facts = read_frames(syn_with(), syn_with(p.mss_option(100)), syn_with(p.mss_option(200)), no_syn)
    assert the_flow(facts)["mss"] == 100
    assert the_flow(read_frames(no_syn))["mss"] is None


def test_windows_that_a_flow_offers() -> None:
    """The largest one, and how many are 0: of segments with ACK that neither open nor end the connection."""

    def offered(*segments: tuple[int, int]) -> tuple[int, int]:
        frames = [p.ethernet(p.ipv4(p.tcp(flags=flags, window=window))) for flags, window in segments]
        flow = the_flow(read_frames(*frames))
        return flow["largest_window"], flow["zero_window_packets"]

    assert offered((p.ACK, 7), (p.ACK, 501), (p.ACK, 0), (p.ACK, 300), (p.ACK, 0)) == (501, 2)
    assert offered((p.SYN, 65535), (p.SYN | p.ACK, 65535), (p.ACK, 9)) == (9, 0)
    assert offered((p.ACK, 9), (p.RST | p.ACK, 0), (p.ACK | p.FIN, 0)) == (9, 0)
    cut = p.segment(0, window=9)[: 14 + 20 + 15]
    assert the_flow(read(p.pcap([p.Record(T0, cut, 54)])))["largest_window"] == 0


@pytest.mark.parametrize(
    ("options", "captured", "scale"),
    [
        ([p.mss_option(1460), p.TIMESTAMPS, p.scale_option(7)], 100, 7),
        ([p.scale_option(15)], 100, 14),
        ([p.scale_option(7)], 14 + 20 + 23, None),
        ([p.mss_option(1460)], 100, None),
        ([bytes((3, 4, 5, 180)), p.scale_option(7)], 100, 7),  # of another length: an MSS whose kind is damaged
    ],
)
def test_scale_of_windows(options: list[bytes], captured: int, scale: int | None) -> None:
    frame = syn_with(*options)
    assert the_flow(read(p.pcap([p.Record(T0, frame[:captured], len(frame))])))["window_scale"] == scale
