"""RoCE's reliability in both readings of a capture, against traffic whose losses are known (docs/packets.md)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import naive
import packets as p
import pytest
import roce_traffic as roce
from captures_by_hand import KEY, KEY6, T0, V4, V6, in_time
from readings import read
from roce_traffic import Sent

from ddnn_traces.pcap.scanner import Scanner

NAMES = ("psn_repeated_packets", "psn_repeated_bytes", "psn_late_packets", "psn_missing_packets")


def sums(facts: naive.Facts, is_answer: bool = False) -> dict[str, int]:
    """The counters of one direction, of all opcodes."""
    pair = (roce.REQUESTER if is_answer else roce.RESPONDER)[1]
    rows = [flow for flow in facts.flows.values() if flow["roce_dest_qp"] == pair]
    return {name: sum(row[name] for row in rows) for name in (*NAMES, "nak_packets", "rnr_packets", "cnp_packets")}


def read_packets(packets: Iterable[Sent], carrier: str = "v2", **sizes: int) -> naive.Facts:
    frames = in_time(*(each.frame(carrier) for each in packets))
    return read(p.pcap(frames, link=roce.LINK_OF.get(carrier, p.ETHERNET)), **sizes)


def numbers(packets: Iterable[Sent], is_answer: bool = False) -> tuple[int, ...]:
    found = sums(read_packets(packets), is_answer)
    return tuple(found[name] for name in NAMES)


def only(*places: int, start: int = 0, opcode: int = 10) -> list[Sent]:
    """WRITEs of one packet of 100 bytes with these numbers."""
    return [Sent(opcode, start + place, bytes(116), 100) for place in places]


STARTS = [0, 2**24 - 3, 2**23 - 2]


@pytest.mark.parametrize("start", STARTS)
def test_numbers_at_every_place(start: int) -> None:
    def sent(*places: int) -> tuple[int, ...]:
        return numbers(only(*places, start=start))

    assert sent(0, 1, 2, 3, 4) == (0, 0, 0, 0)
    assert sent(0, 1, 1, 2) == (1, 100, 0, 0)
    assert sent(0, 3, 4) == (0, 0, 0, 2)
    assert sent(0, 3, 1, 4) == (0, 0, 1, 1)
    assert sent(0, 3, 1, 1, 2, 4) == (1, 100, 2, 0)
    assert sent(5, 4, 3) == (2, 200, 0, 0)  # before the first: sent before the capture began
    assert sent(0, 2**16) == (0, 0, 0, 2**16 - 1)
    assert sent(0, 2**16 + 2, 2**16 + 3) == (0, 0, 0, 0)  # another connection
    assert sent(2**17, 5, 6, 8, 8) == (1, 100, 0, 1)


LOSSES = {"none": (), "one": (7,), "two": (7, 9), "neighbours": (7, 8), "apart": (3, 40), "late": (49,)}


@pytest.mark.parametrize("selective", [False, True])
@pytest.mark.parametrize("losses", LOSSES)
@pytest.mark.parametrize("operation", ["send", "write", "read"])
@pytest.mark.long_after(12)
def test_losses(operation: str, losses: str, selective: bool) -> None:
    """At the sender, before the network lost packets, and at the receiver; across the wrap of the numbers."""
    sizes, number, packets = [10 * roce.MTU, 100, 20 * roce.MTU - 1, 0, 18 * roce.MTU], 2**24 - 20, list[Sent]()
    first = {"send": roce.SEND, "write": roce.WRITE, "read": roce.READ_ANSWER}[operation]
    for size in sizes:
        packets += roce.message(first, number, size, immediate=operation == "write")
        number = packets[-1].number + 1
    assert len(packets) == 50
    sent = list(roce.lossy(packets, LOSSES[losses], 6, selective))
    arrived = [packet for packet, arrives in sent if arrives]
    is_answer = operation == "read"
    for captured in [packet for packet, _ in sent], arrived:
        found = sums(read_packets(captured), is_answer)
        truth = roce.counted(captured, is_answer)
        assert [found[name] for name in NAMES] == [truth.repeated, truth.repeated_bytes, truth.late, truth.missing]
        naks = sum(packet.opcode == roce.ACKNOWLEDGE for packet, _ in sent)
        assert sums(read_packets(captured), not is_answer)["nak_packets"] == naks
    if losses == "one":  # the generator itself
        again = 1 if selective else 7
        assert roce.counted((packet for packet, _ in sent), is_answer).repeated == again
        assert (roce.counted(arrived, is_answer).repeated, roce.counted(arrived, is_answer).late) == (again - 1, 1)


def test_a_read_takes_the_numbers_of_its_answer() -> None:
    def request(number: int, size: int) -> Sent:
        return roce.read_request(number, size)

    assert numbers([request(10, 3 * roce.MTU), *only(13, 14)]) == (0, 0, 0, 0)
    assert numbers([request(10, 0), *only(12)]) == (0, 0, 0, 1)
    assert numbers([request(10, 3 * 256), *only(13, 15)]) == (0, 0, 0, 1)
    assert numbers([request(10, 3 * 256), *only(14)]) == (0, 0, 0, 3)  # more than it can need
    assert numbers([request(10, 3 * roce.MTU), request(11, 2 * roce.MTU), *only(13)]) == (0, 0, 0, 0)
    answers = [*roce.message(roce.READ_ANSWER, 10, 2 * roce.MTU), *roce.message(roce.READ_ANSWER, 20, 100)]
    assert numbers(answers, is_answer=True) == (0, 0, 0, 0)  # other requests took those between
    assert numbers([answers[0], answers[2]], is_answer=True) == (0, 0, 0, 9)  # unless the answer before has no end


def test_acknowledgements_and_notifications() -> None:
    syndromes = [0x1F, 0x00, roce.RNR_NAK, roce.SEQUENCE_NAK, roce.ACCESS_NAK, 0x40]
    packets = [roce.acknowledgement(7, syndrome) for syndrome in syndromes]
    found = sums(read_packets([*packets, roce.notification(), roce.notification()]), is_answer=True)
    assert found == dict.fromkeys(NAMES, 0) | {"nak_packets": 2, "rnr_packets": 1, "cnp_packets": 2}


def test_marks() -> None:
    """CE is counted for all protocols, ECE without SYN for TCP."""
    marked = [Sent(10, number, bytes(116), 100, ecn) for number, ecn in enumerate([0, 1, 2, 3, 3])]
    assert [flow["ce_packets"] for flow in read_packets(marked).flows.values()] == [2]
    segments = []
    for i, (ecn, flags) in enumerate([(0, p.SYN | 0xC0), (2, p.ACK), (3, p.ACK), (2, p.ACK | 0x40), (3, p.ACK | 0xC0)]):
        packet = p.ipv4(p.tcp(bytes(10), flags=flags, seq=10 * i, acknowledgement=1))
        segments.append(p.ethernet(packet[:1] + bytes([ecn]) + packet[2:]))
    (flow,) = read(p.pcap(in_time(*segments * 3))).flows.values()
    assert (flow["ce_packets"], flow["ece_packets"]) == (6, 6)
    six = p.ipv6(p.tcp(bytes(10)))
    six = bytes([six[0], six[1] | 0x30]) + six[2:]
    assert [flow["ce_packets"] for flow in read(p.pcap(in_time(p.ethernet(six, p.IPV6)))).flows.values()] == [1]


def test_streams_do_not_mix() -> None:
    """Other queue pairs, the other direction, answers and acknowledgements have numbers of their own."""
    writes, answers = only(1, 2, 3, opcode=10), roce.message(roce.READ_ANSWER, 2**20, 3 * roce.MTU)
    mixed = [each for pair in zip(writes, answers, strict=True) for each in pair]
    mixed += [roce.acknowledgement(3), roce.acknowledgement(3), *only(4, opcode=4), *only(5, opcode=19)]
    facts = read_packets(mixed)
    for is_answer in False, True:
        assert [sums(facts, is_answer)[name] for name in NAMES] == [0, 0, 0, 0]


def test_too_many_gaps() -> None:
    packets = only(*range(0, 2 * 1026, 2), 1, 2 * 1025 - 1)
    assert numbers(packets) == (1, 100, 1, 1024)


def test_numbers_that_were_not_captured() -> None:
    frames = [each.frame() for each in only(1, 1, 5)]
    cut = read(p.pcap(in_time(*frames), snaplen=14 + 20 + 8 + 11))
    assert [sums(cut)[name] for name in NAMES] == [0, 0, 0, 0]


@pytest.mark.parametrize("selective", [False, True])
def test_parts_of_a_file(selective: bool) -> None:
    """The same whatever parts the file is read in."""
    packets: list[Sent] = []
    for size in [30 * roce.MTU, 40 * roce.MTU, 100] * 4:
        packets += roce.message(roce.WRITE, packets[-1].number + 1 if packets else 2**24 - 90, size)
    sent = list(roce.lossy(packets, [20, 21, 90, 200], 5, selective))
    for captured in [each for each, _ in sent], [each for each, arrives in sent if arrives]:
        whole = sums(read_packets(captured))
        for size in (3000, 10_000, 50_000):
            assert sums(read_packets(captured, jobs=3, chunk=size, part_block=1 << 12)) == whole


def test_parts_without_losses_are_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    """They need not be read again, also where a message goes on in the next part with another opcode."""
    joined: list[bool] = []
    join = Scanner.join

    def noted(self: Scanner, part: Any) -> bool:
        joined.append(join(self, part))
        return joined[-1]

    monkeypatch.setattr(Scanner, "join", noted)
    packets = [each for i in range(4) for each in roce.message(roce.WRITE, 2**24 - 60 + 40 * i, 40 * roce.MTU)]
    facts = read_packets(packets, jobs=3, chunk=10_000, part_block=1 << 12)
    assert [sums(facts)[name] for name in NAMES] == [0, 0, 0, 0]
    assert len(joined) > 10
    assert all(joined)


# --- without UDP

V1 = [name for name in roce.CARRIERS if name != "v2"]


def traffic() -> list[Sent]:
    """Messages, losses, answers, notifications, and marks in the place of IP's ECN."""
    packets = [each for size in (9 * roce.MTU, 10, 0) for each in roce.message(roce.WRITE, 7, size, immediate=True)]
    packets = [Sent(each.opcode, 7 + i, each.body, each.data, roce.CONGESTED) for i, each in enumerate(packets)]
    sent = [each for each, _ in roce.lossy(packets, [3, 8], 3, selective=False)]
    answers = roce.message(roce.READ_ANSWER, 30, 3 * roce.MTU)
    return [*sent, roce.read_request(30, 3 * roce.MTU), *answers, roce.acknowledgement(33), roce.notification()]


#: What differs between the versions: sizes of frames and IP, and marks, which RoCEv1 has none of.
OTHER_SIZES = ("wire_bytes", "captured_bytes", "ip_bytes", "large_packets", "large_payload_bytes", "ce_packets")


@pytest.mark.parametrize("carrier", V1)
def test_the_same_without_udp(carrier: str) -> None:
    """Queue pairs, opcodes, counters, trains and rows of packets are those of RoCEv2; ECN is not told."""
    one, two = read_packets(traffic(), carrier), read_packets(traffic())

    def rows(facts: naive.Facts) -> list[dict[str, Any]]:
        ends = ("src_ip", "dst_ip", "protocol", "src_port", "dst_port")
        return [
            {name: value for name, value in flow.items() if name not in (*ends, *OTHER_SIZES)}
            for flow in facts.flows.values()
        ]

    assert rows(one) == rows(two)
    assert sums(one)["psn_repeated_packets"] == sums(two)["psn_repeated_packets"] > 0
    assert [row[-3:] for row in one.packets] == [row[-3:] for row in two.packets]
    assert {row[-4] for row in one.packets} == {None}
    assert {flow["ce_packets"] for flow in one.flows.values()} == {0}


def test_addresses_of_route_headers() -> None:
    """GIDs that map IPv4 addresses are these; one that is made from a hardware address is as it is."""
    ends = [tuple(key[:5]) for key in read_packets(only(1), "v1").flows]
    assert ends == [("10.0.0.1", "10.0.0.2", 27, 0, 0)]
    for carrier in ("v1 of ports", "infiniband, global", "erf, global"):
        ends = [tuple(key[:5]) for key in read_packets(only(1), carrier).flows]
        assert ends == [("fe80::202:c9ff:fe00:1", "fe80::202:c9ff:fe00:2", 27, 0, 0)]


def test_lids_are_addresses_that_no_host_has() -> None:
    for carrier in ("infiniband", "erf"):
        (flow,) = read_packets(only(1), carrier).flows.items()
        assert flow[0][:5] == ("100::1", "100::2", 27, 0, 0)
        assert flow[1]["ip_bytes"] == flow[1]["payload_bytes"] == 12 + 16 + 100 + 4


def test_only_the_link_layer_says_what_a_route_header_is() -> None:
    """27 is another protocol's number behind IPv6, and other next headers are no base transport header."""
    six = p.ethernet(p.ipv6(p.roce(bytes(20)), protocol=27), p.IPV6)
    flows = list(read(p.pcap(in_time(six))).flows.values())
    assert [(flow["protocol"], flow["roce_dest_qp"]) for flow in flows] == [(27, None)]
    other = p.ethernet(p.route_header(p.tcp(bytes(9)), following=p.TCP), p.ROCE_V1)
    assert read(p.pcap(in_time(other))).skipped == {"not_ip": (1, len(other))}


@pytest.mark.parametrize("carrier", V1)
def test_every_snaplen(carrier: str) -> None:
    """What is before is needed, 8 bytes of it for the queue pair, 12 for the number, 13 for the syndrome."""
    frame = roce.acknowledgement(7, roce.SEQUENCE_NAK).frame(carrier)
    begin = frame.index(p.roce(opcode=roce.ACKNOWLEDGE, queue_pair=0x11, number=7)[:12])
    records = [p.Record(T0, frame[:n], len(frame)) for n in range(len(frame))]
    facts = read(p.pcap(records, link=roce.LINK_OF.get(carrier, p.ETHERNET)))
    assert facts.skipped == {"cut_short": (begin, begin * len(frame))}
    told = [(flow["roce_dest_qp"], flow["packets"], flow["nak_packets"]) for flow in facts.flows.values()]
    assert told == [(None, 8, 0), (0x11, len(frame) - begin - 8, len(frame) - begin - 13)]
    assert [row[-2] for row in facts.packets] == [None] * 12 + [7] * (len(frame) - begin - 12)


def test_lengths_of_local_route_headers() -> None:
    """In units of 4 bytes, up to the checksum; from the frame where it is 0 or too large, which has 2 bytes more."""
    body = p.roce(bytes(64))
    frames = [p.local_route(body, 2, size=size) for size in (None, 0, 400, 4)]
    facts = read(p.pcap(in_time(*frames), link=247))
    (flow,) = facts.flows.values()
    assert (flow["packets"], flow["payload_bytes"]) == (3, 80 + 82 + 82)
    assert facts.skipped == {"malformed": (1, len(frames[3]))}


def test_raw_packets_of_infiniband() -> None:
    """Of IPv6, and by EtherType; one of another protocol."""
    facts = read(p.pcap(in_time(p.infiniband(V4), p.infiniband(V6, p.IPV6), p.infiniband(b"", p.ARP)), link=247))
    assert list(facts.flows) == [KEY, KEY6]
    assert list(facts.skipped) == ["not_ip"]


@pytest.mark.parametrize("kind", range(64))
def test_types_of_erf(kind: int) -> None:
    """Those of docs/packets.md; each with extension headers, too."""
    frame = {21: p.infiniband(V4), **dict.fromkeys((2, 11, 16, 20), p.ethernet(V4))}.get(kind, V4)
    if kind in (1, 10, 15, 19):
        frame = p.chdlc(V4)
    frames = [p.erf(frame, kind, extensions=extensions) for extensions in (0, 1, 3)]
    facts = read(p.pcap(in_time(*frames), link=197))
    if kind in (1, 2, 10, 11, 15, 16, *range(19, 24)):
        assert [flow["packets"] for flow in facts.flows.values()] == [3]
        assert list(facts.flows) == [KEY]
    else:
        assert {reason: packets for reason, (packets, _) in facts.skipped.items()} == {"unknown_link_type": 3}
