"""The naive reader against still simpler models: sets of bytes, and the same packets in another file."""

from __future__ import annotations

from dataclasses import replace

import naive
import packets as p
from hypothesis import given
from hypothesis import strategies as st

from ddnn_traces.pcap.tshark.flows import Flow, Packet, Record, Segment

T0 = 1_700_000_000 * 10**9
STARTS = st.sampled_from([0, 1000, 2**31 - 60, 2**32 - 60, 2**32 - 1])


def runs(numbers: set[int]) -> int:
    """How many stretches without a gap the numbers form."""
    return sum(number - 1 not in numbers for number in numbers)


@given(STARTS, st.lists(st.tuples(st.integers(0, 60), st.integers(1, 25)), min_size=1, max_size=20))
def test_sequence_numbers_are_a_set_of_bytes(start: int, segments: list[tuple[int, int]]) -> None:
    """Every byte below the highest is new once, and then again; those that never came are the gaps."""
    flow = Flow(0, "a", "b", p.TCP, 1, 2, None, None, None, None, 0)
    sent, lowest, following = set(), segments[0][0], None
    new = again = packets_new = packets_again = 0
    for at, size in segments:
        body = set(range(at, at + size))
        if following is not None and at < following:
            below = {number for number in body if number < following}
            filled = {number for number in below - sent if number >= lowest}
            new, again = new + len(filled), again + len(below - filled)
            packets_new, packets_again = packets_new + bool(filled), packets_again + (not filled)
        sent |= body
        following = max(following or 0, at + size)
        segment = Segment((start + at) % 2**32, 0, p.ACK, None)
        flow.add(Packet("a", "b", p.TCP, 1, 2, 40 + size, size, segment=segment), Record(0, 0, 54 + size, 54))
    assert (flow.out_of_order_bytes, flow.retransmitted_bytes) == (new, again)
    assert (flow.out_of_order_packets, flow.retransmitted_packets) == (packets_new, packets_again)
    assert flow.next_sequence % 2**32 == (start + following) % 2**32
    missing = {number - lowest + flow.first_sequence for number in set(range(lowest, following)) - sent}
    assert {number for begin, end in flow.gaps for number in range(begin, end)} == missing
    assert len(flow.gaps) == runs(missing)


@given(st.data(), st.booleans())
def test_fragments_in_any_order_are_their_datagram(data: st.DataObject, six: bool) -> None:
    """Pieces of three datagrams, of any sizes, shuffled: each flow has its datagram's payload."""
    lengths = data.draw(st.lists(st.integers(1, 300), min_size=3, max_size=3))
    frames, expected = [], {}
    for i, length in enumerate(lengths):
        body = p.udp(bytes(length), source=1000 + i)
        sizes = data.draw(st.lists(st.sampled_from([8, 16, 64]), max_size=5))
        cut = [size for j, size in enumerate(sizes) if sum(sizes[: j + 1]) < len(body)]
        kind = p.IPV6 if six else p.IPV4
        pieces = p.fragments(body, cut, identification=7 + i, six=six)
        frames += [p.ethernet(packet, kind) for packet in pieces]
        expected[1000 + i] = (length, len(pieces))
    shuffled = data.draw(st.permutations(frames))
    facts = naive.read(p.pcap([p.Record(T0 + i * 1000, frame) for i, frame in enumerate(shuffled)]), 10**6, [])
    assert {key[3]: (row["payload_bytes"], row["packets"]) for key, row in facts.flows.items()} == expected


@given(
    st.lists(st.tuples(st.integers(0, 10**10), st.integers(0, 2000), st.sampled_from([1, 2, 3])), max_size=20),
    st.sampled_from("<>"),
    st.sampled_from([40, 54, 96, 65535]),
)
def test_pcap_and_pcapng_of_the_same_packets_are_read_alike(
    packets: list[tuple[int, int, int]], order: str, snaplen: int
) -> None:
    records = [p.Record(T0 + time, p.segment(size, source=port)) for time, size, port in packets]
    one = naive.read(p.pcap(records, order, 1, snaplen), 1000, [T0 + 10**6])
    assert naive.read(p.pcapng(records, order, snaplen), 1000, [T0 + 10**6]) == one
    assert one.records == len(records)
    later = naive.read(
        p.pcap([replace(each, time_ns=each.time_ns + 7000) for each in records], order, 1, snaplen), 1000, []
    )
    assert [row[2] - 7000 for row in later.packets] == [row[2] for row in one.packets]
