"""Any capture that Hypothesis makes: the numba engine and the naive reader read the same."""

from __future__ import annotations

import gzip
import itertools
import math
import pickle
from concurrent.futures import Future
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import naive
import numpy as np
import packets as p
import pytest
from captures_by_hand import (
    LINK,
    LINKS,
    MS,
    SECOND,
    T0,
)
from hypothesis import given
from hypothesis import strategies as st
from readings import assert_same, in_naive_terms, read, read_fast, set_sizes

from ddnn_traces.pcap import numba_engine, parts
from ddnn_traces.pcap.capture_facts import CaptureFacts, Pool, ReadOptions
from ddnn_traces.pcap.capture_file import PcapHeader
from ddnn_traces.pcap.compiled.flow_table import State
from ddnn_traces.pcap.records import pcap_framing
from ddnn_traces.pcap.scanner import Scanner

# --- any capture

addresses = st.sampled_from(["10.0.0.1", "255.0.0.2"])
addresses6 = st.sampled_from(["fd00::1", "fd01::1", "fd00::a:2"])
ports = st.sampled_from([5000, 5000, 65535, p.ROCE_PORT, p.VXLAN_PORT, p.GENEVE_PORT])
orders = st.sampled_from("<>")
filler = st.integers(0, 120).map(bytes)
SEQUENCES = [0, 1, 50, 100, 101, 2**31 - 1, 2**31, 2**31 + 60, 2**32 - 60, 2**32 - 1]

segments = st.builds(
    p.tcp, filler, ports, ports,
    seq=st.sampled_from(SEQUENCES), flags=st.one_of(st.just(p.ACK), st.integers(0, 63)),
    options=st.sampled_from([b"", p.TIMESTAMPS, bytes(40), p.mss_option(1460), b"\1\1\1\2" + p.mss_option(9)]),
    acknowledgement=st.sampled_from(SEQUENCES), window=st.sampled_from([0, 1, 65535]),
)  # fmt: skip
opcodes = st.sampled_from([4, 4, 7, 8, 12, 14, 15, 16, 17, 0x2A, 0x64, 0xAC, 0x81])
numbers = st.sampled_from([0, 1, 2, 3, 4, 2**24 - 1, 2**16, 2**17])
queues = st.builds(p.roce, filler, opcodes, st.sampled_from([1, 0xFFFFFF]), numbers, st.integers(0, 3))
transports = st.one_of(
    segments.map(lambda body: (p.TCP, body)),
    st.builds(p.udp, filler, ports, ports).map(lambda body: (p.UDP, body)),
    st.builds(p.udp, queues, ports, st.just(p.ROCE_PORT)).map(lambda body: (p.UDP, body)),
    filler.map(lambda body: (p.ICMP, p.icmp(body))),
    st.tuples(st.sampled_from([p.TCP, p.UDP, 0, 4, 41, 44, 47, 51, 132]), filler),
)
fragment_headers = st.builds(
    p.fragment_header, st.sampled_from([0, 0, 8, 1480]), st.booleans(), st.sampled_from([1, 99])
)
extensions = st.one_of(
    st.builds(p.hop_by_hop, st.integers(0, 3)), st.builds(p.destination_options, st.integers(0, 3)),
    st.builds(p.authentication, st.integers(0, 6)), fragment_headers,
)  # fmt: skip
#: Of SLL2: no number, and those at the limits of what the loop tells apart.
interfaces = st.sampled_from([0, 3, 3, 4, 2**16 - 1, 2**16, 2**32 - 1])
tags = st.lists(st.sampled_from([p.VLAN, p.SERVICE_VLAN, 0x9100]), max_size=2)
Datagram = tuple[bytes, int]  # an IP packet and its EtherType


@st.composite
def datagrams(draw: st.DrawFn, inside: st.SearchStrategy[tuple[int, bytes]] = transports) -> Datagram:
    """inside: protocol and payload of the IP packet. Half of the datagrams are whole and declare their true length."""
    protocol, body = draw(inside)
    if draw(st.booleans()):
        return p.ipv4(body, draw(addresses), draw(addresses), protocol), p.IPV4
    declared = draw(st.one_of(st.none(), st.none(), st.sampled_from([0, 19, 39, 60, 65535])))
    if draw(st.booleans()):
        chain = draw(st.lists(extensions, max_size=2))
        return p.ipv6(body, draw(addresses6), draw(addresses6), protocol, chain, declared), p.IPV6
    options = bytes(draw(st.sampled_from([0, 0, 4, 40])))
    fragment = draw(st.sampled_from([0, 0, 0, 8, 1480]))
    more = draw(st.integers(0, 3)) == 0
    packet = p.ipv4(
        body, draw(addresses), draw(addresses), protocol, options, declared, fragment, more, draw(st.integers(1, 2))
    )
    return packet, p.IPV4


@st.composite
def tunnels(draw: st.DrawFn, inside: st.SearchStrategy[Datagram]) -> Datagram:
    """An IP packet around another one."""
    packet, kind = draw(inside)
    frame = p.ethernet(packet, kind, draw(tags))
    way = draw(st.integers(0, 9))
    if way == 7:
        ppp = draw(st.sampled_from([p.ppp, p.ppp_compressed, p.chdlc]))(packet, kind)
        plain = p.gre(ppp, p.PPP_IN_GRE, draw(st.sampled_from([None, 1])))
        enhanced = p.pptp(
            ppp, draw(st.integers(0, 1)), draw(st.sampled_from([None, 0])), draw(st.sampled_from([None, 0]))
        )
        body = p.GRE, draw(st.sampled_from([plain, enhanced]))
    elif way == 8:
        following = draw(
            st.sampled_from([(packet, 1 if kind == p.IPV4 else 2), (frame, 3), (p.mpls(packet), 5), (frame, 4)])
        )
        header = p.vxlan_gpe(*following, draw(st.integers(0, 1)), draw(st.sampled_from([12, 12, 4, 8, 13])))
        body = p.UDP, p.udp(header, 50000, p.VXLAN_GPE_PORT)
    elif way == 9:
        more = draw(
            st.sampled_from([(0x30, b""), (0x32, bytes(4)), (0x34, b"\0\0\0\1\1" + bytes(3)), (0x34, b"\0\0\0\1\0")])
        )
        header = p.gtp_u(packet, draw(st.integers(0, 1)), more[0], draw(st.sampled_from([255, 255, 255, 1])), more[1])
        body = p.UDP, p.udp(header, 50000, p.GTP_U_PORT)
    elif way == 0:
        body = (p.IPIP if kind == p.IPV4 else p.IPV6_IN_IP), packet
    elif way == 1:
        key, sequence = draw(st.one_of(st.none(), st.integers(0, 2))), draw(st.sampled_from([None, 0]))
        bridged = draw(st.booleans())
        inner = (frame, p.BRIDGED) if bridged else (packet, kind)
        body = p.GRE, p.gre(*inner, key, draw(st.booleans()), sequence, draw(st.sampled_from([0, 0, 0, 1, 0x4000])))
    elif way == 2:
        body = p.GRE, p.erspan(frame, draw(st.integers(1, 3)), draw(st.booleans()))
    elif way < 5:
        port = draw(st.sampled_from([p.VXLAN_PORT, p.VXLAN_LINUX_PORT]))
        body = p.UDP, p.udp(p.vxlan(frame, draw(st.integers(0, 1)), draw(st.sampled_from([8, 8, 0]))), 50000, port)
    else:
        inner = draw(st.sampled_from([(frame, p.BRIDGED), (packet, kind)]))
        header = p.geneve(
            *inner, draw(st.integers(0, 1)), bytes(4 * draw(st.integers(0, 2))), draw(st.integers(0, 5)) // 5
        )
        body = p.UDP, p.udp(header, 50000, p.GENEVE_PORT)
    return draw(datagrams(st.just(body)))


@st.composite
def packets(draw: st.DrawFn) -> Datagram:
    """In up to five tunnels; the last one is not opened."""
    made = datagrams()
    for _ in range(draw(st.sampled_from([0, 0, 0, 1, 1, 2, 4, 5]))):
        made = tunnels(made)
    return draw(made)


@st.composite
def pieces(draw: st.DrawFn) -> list[Datagram]:
    """A datagram in fragments, in any order, some of them missing or twice."""
    protocol, body = draw(transports)
    body += bytes(draw(st.integers(0, 40)))
    six = draw(st.booleans())
    sizes = draw(st.lists(st.sampled_from([8, 16, 40]), min_size=1, max_size=3))
    cut = [size for i, size in enumerate(sizes) if sum(sizes[: i + 1]) < len(body)]
    made = p.fragments(body, cut, protocol, draw(st.integers(1, 2)), six)
    chosen = draw(st.lists(st.sampled_from(range(len(made))), min_size=1, max_size=6))
    order = draw(st.one_of(st.just(chosen), st.permutations(range(len(made)))))
    return [(made[i], LINK[six]) for i in order]


@st.composite
def streams(draw: st.DrawFn) -> list[Datagram]:
    """Segments of one flow: in order, again, ahead and late, around the end of the sequence numbers."""
    start, units = draw(st.sampled_from(SEQUENCES)), st.integers(0, 12)
    flags = st.sampled_from([p.ACK, p.ACK, p.ACK, p.ACK, p.ACK | p.FIN, p.SYN, p.RST])
    steps = draw(st.lists(st.tuples(units, units, flags), min_size=2, max_size=14))
    options = st.sampled_from([b"", p.mss_option(1460), p.TIMESTAMPS + p.mss_option(9), p.scale_option(3)])
    acknowledged = st.sampled_from([*range(0, 120, 20), 2**31])
    windows = st.sampled_from([0, 7, 500])
    bodies = [
        p.tcp(
            bytes(10 * n), 40000, 5000, start + 10 * at, flag, draw(options), (start + draw(acknowledged)) % 2**32,
            draw(windows),
        )
        for at, n, flag in steps
    ]  # fmt: skip
    return [(p.ipv4(body), p.IPV4) for body in bodies]


@st.composite
def frames(draw: st.DrawFn, link: int) -> list[bytes]:
    """Frames mostly as they should be."""
    made = draw(st.one_of(packets().map(lambda one: [one]), pieces(), streams()))
    return [draw(framed(packet, kind, link)) for packet, kind in made]


@st.composite
def framed(draw: st.DrawFn, packet: bytes, kind: int, link: int) -> bytes:
    if link == p.ETHERNET:
        way = draw(st.integers(0, 9))
        wrapped = {
            0: (p.mpls(packet, 2), p.MPLS), 1: (p.pseudowire(p.ethernet(packet, kind)), p.MPLS),
            2: (p.pppoe(packet, kind), p.PPPOE), 3: (p.snap(packet, kind), 100), 4: (b"\6\6\3" + packet, 1500),
            5: (p.snap(packet, kind, draw(st.sampled_from([b"\0\0\xf8", b"\0\0\1"]))), draw(st.integers(0, 1600))),
        }.get(way, (packet, kind))  # fmt: skip
        frame = p.ethernet(*wrapped, draw(tags))
    elif link == 192:
        inner = draw(st.sampled_from([each for each in LINKS if each != 192] + [147]))
        frame = p.ppi(LINKS.get(inner, p.raw)(packet, kind), inner, bytes(draw(st.integers(0, 9))))
        frame = p.ppi(frame, 192) if draw(st.booleans()) else frame
    elif link == p.SLL2:
        frame = p.sll2(packet, kind, draw(interfaces))
    elif link == 239:
        frame = p.nflog(packet, kind, draw(orders))
    else:
        frame = LINKS.get(link, p.raw)(packet, kind)
    other = st.one_of(st.just(frame + bytes(6)), st.just(p.arp()), st.binary(max_size=80))
    return draw(other) if draw(st.integers(0, 9)) == 0 else frame


wire_lengths = st.sampled_from([0, 60, 1515, 9015, 65_549, 65_550, 65_589, 65_590, 100_000, 2**32 - 1])
far_times = st.sampled_from([0, 1, T0 + 30 * SECOND, T0 + 30 * SECOND + 1000, (2**32 - 1) * 10**9])
times = st.one_of(st.integers(0, 8).map(lambda i: T0 + i * 500), far_times)
bounds = st.lists(st.integers(0, 8).map(lambda i: T0 + i * 500), max_size=5).map(sorted)
damages = st.lists(st.tuples(st.integers(4, 2000), st.integers(0, 255)), max_size=3)
link_types = st.sampled_from([*LINKS, p.ETHERNET, p.ETHERNET, p.ETHERNET, p.SLL2, 147])


@st.composite
def records(draw: st.DrawFn, link: int) -> list[p.Record]:
    """Times that tie, go back and hit window and step bounds; original lengths that do not fit the frame."""
    made = [frame for group in draw(st.lists(frames(link), min_size=1, max_size=5)) for frame in group]
    wire = st.integers(0, 7).flatmap(lambda i: wire_lengths if i == 0 else st.none())
    return [p.Record(draw(times), frame, draw(wire)) for frame in made]


@st.composite
def pcaps(draw: st.DrawFn) -> bytes:
    link, snaplen = draw(link_types), draw(st.one_of(st.integers(0, 200), st.just(262144)))
    return p.pcap(draw(records(link)), draw(orders), draw(st.sampled_from([1, 1000])), snaplen, link)


@st.composite
def sections(draw: st.DrawFn) -> bytes:
    """A section of a pcapng: interfaces, and packets of them (rarely of another one) in blocks of all kinds."""
    section = p.Section(draw(orders))
    links = draw(st.lists(link_types, min_size=1, max_size=2))
    data = section.begin()
    for link in links:
        resolution, ticks_a_second = draw(clocks)
        data += section.interface(link, draw(st.sampled_from([0, 60, 65535])), resolution, draw(offsets))
        for record in draw(records(link)):
            number = draw(st.sampled_from([links.index(link)] * 20 + [0, 1]))
            frame = record.frame[: draw(st.sampled_from([54, 96, 300, 262144]))]
            ticks = min(record.time_ns * ticks_a_second // SECOND, 2**64 - 1) | draw(absurd)
            way = draw(st.integers(0, 9))
            if way == 0:
                data += section.simple(frame, record.wire)
            elif way == 1:
                data += section.block(draw(st.sampled_from([4, 5, 0x80000BAD])), frame)
            else:
                data += (section.old if way == 2 else section.enhanced)(ticks, frame, record.wire, number)
    return data


clocks = st.sampled_from([(None, 10**6), (0, 1), (9, SECOND), (10, 10 * SECOND), (0x9E, 2**30), (0x80, 1)])
offsets = st.sampled_from([None, None, None, None, 0, 1, -1, 2**63 - 1, -(2**63)])
absurd = st.sampled_from([0] * 15 + [1 << 63])
pcapngs = st.lists(sections(), min_size=1, max_size=3).map(b"".join)


@st.composite
def captures(draw: st.DrawFn) -> bytes:
    """A capture: whole, cut anywhere, or with some bytes changed."""
    data = bytearray(draw(st.one_of(pcaps(), pcapngs)))
    harm = draw(st.integers(0, 3))
    for at, value in draw(damages) if harm == 0 else []:
        if at < len(data):
            data[at] = value
    return bytes(data[: draw(st.integers(24, len(data)))] if harm == 1 else data)


@given(captures(), bounds, st.sampled_from([1, 500, MS]), st.booleans())
def test_equal_to_the_naive_reading(data: bytes, bounds: list[int], window_ns: int, open_tunnels: bool) -> None:
    read(data, window_ns, bounds, open_tunnels)


@given(
    captures(), bounds, st.one_of(st.integers(2, 63), st.integers(64, 300)), st.integers(1, 5),
    st.sampled_from([1, 2, 4]), st.booleans(),
)  # fmt: skip
def test_equal_in_small_blocks_and_buffers(
    data: bytes, bounds: list[int], block: int, cells: int, flows: int, compressed: bool
) -> None:
    """Every way in which the loop is left and entered again."""
    sizes = {"block": block, "cells": cells, "flows": flows}
    whole = naive.read(data, 500, bounds)
    assert_same(read_fast(gzip.compress(data) if compressed else data, 500, bounds, **sizes), whole)


class OtherMachine:
    """A Pool whose calls, arguments and results are pickled, as on a cluster; it takes any number of flows."""

    ahead, most_flows = 3, math.inf

    @property
    def part_bytes(self) -> int:
        return parts.PART_BYTES

    def submit(self, function: Any, /, *args: Any) -> Future[Any]:
        function, args = pickle.loads(pickle.dumps((function, args), protocol=5))
        answer: Future[Any] = Future()
        answer.set_result(pickle.loads(pickle.dumps(function(*args), protocol=5)))
        return answer


def all_facts(path: Path, jobs: int, want_packets: bool, pool: Pool | None = None) -> tuple[Any, ...]:
    """Every fact of a file but its name; the cells added up, for they may be in other rows."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        packets, steps = folder / "packets" if want_packets else None, np.array([T0, T0 + 1000], np.int64)
        options = ReadOptions(500, steps, folder / "cells", packets, jobs=jobs, pool=pool)
        facts = numba_engine.read_capture(path, options)
        tables = [table.to_pylist() for table in (facts.flows, facts.encapsulations, facts.samples)]
        others = (facts.format, facts.link_types, facts.time_resolution_ns, facts.snaplen, facts.digests)
        return in_naive_terms(facts), list(in_naive_terms(facts).flows), tables, others


@given(captures(), st.sampled_from([64, 200, 1000]), st.sampled_from([1, 2, 1000]), st.booleans())
def test_threads_change_nothing(data: bytes, chunk: int, most_flows: int, want_packets: bool) -> None:
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        path = Path(folder) / "capture"
        path.write_bytes(data)
        set_sizes(patch, {"block": 1 << 20, "cells": 1 << 10, "samples": 1})
        one = all_facts(path, 1, want_packets)
        set_sizes(patch, {"chunk": chunk, "most_flows": most_flows, "descriptions": chunk})
        assert all_facts(path, 3, want_packets) == one
        assert all_facts(path, 1, want_packets, OtherMachine()) == one


@pytest.mark.parametrize("shares", [(0.3, 0.6), (0.5, 0.51), (0.05, 0.9)])
def test_joining_is_associative(sample: Path, tmp_path: Path, shares: tuple[float, float]) -> None:
    """(a + b) + c is a + (b + c): parts may be joined in any order of neighbours, and give what one pass gives."""
    data = gzip.decompress((sample / "mpi-mlp1-sgd-32-openmpi-0ms-ring-sll2" / "worker-1-tcpdump.pcap.gz").read_bytes())
    path = tmp_path / "capture"
    path.write_bytes(data)
    header = PcapHeader.parse(data[:24])
    assert isinstance(header, PcapHeader)
    options = ReadOptions(MS, np.empty(0, np.int64), path)
    cuts = (24, *(int(share * len(data)) for share in shares), len(data))
    empty = Scanner(pcap_framing(header), options, None, None)

    def task(begin: int, end: int) -> parts.PartTask:
        return parts.PartTask(path, empty.framing, empty.interfaces, options, begin, end)

    tasks = [task(*ends) for ends in itertools.pairwise(cuts)]
    read = [parts.read_part(task) for task in tasks]
    assert [part.begin for part in read[1:]] == [part.end for part in read[:-1]]

    def joined(*tables: State) -> State:
        whole = Scanner(pcap_framing(header), options, None, None)
        assert all(whole.join(copied(one)) for one in tables)
        return whole.partial()

    def found(tables: State) -> tuple[Any, ...]:
        whole = Scanner(pcap_framing(header), options, None, None)
        assert whole.join(copied(tables))
        facts = CaptureFacts(path, "", 0)
        whole.finish(facts)
        rows = [table.to_pylist() for table in (facts.flows, facts.encapsulations, facts.samples)]
        return rows, facts.records, facts.wire_bytes, facts.skipped, facts.first_ns, summed(tables.cells)

    a, b, c = (part.tables for part in read)
    whole = parts.read_part(task(24, len(data))).tables
    assert found(whole)[1] > 100
    for tables in (joined(a, b, c), joined(a, joined(b, c)), joined(joined(a, b), c)):
        assert found(tables) == found(whole)


def copied(tables: State) -> State:
    return State(*(rows.copy() for rows in tables))


def summed(cells: np.ndarray) -> dict[tuple[int, ...], list[int]]:
    """Sums of each flow, window and step."""
    sums: dict[tuple[int, ...], list[int]] = {}
    for flow, window, step, *values in cells.tolist():
        before = sums.get((flow, window, step), [0] * len(values))
        sums[flow, window, step] = [a + b for a, b in zip(before, values, strict=True)]
    return sums


# --- common packets, which have a loop of their own (compiled/fast_path.py), and one that is not common among them

TRAIN = 30  # packets of each flow; at first all are samples, which are not common, and fewer with each one


def train_frame(number: int, flow: int, way: str) -> bytes:
    """Segment `number` of a flow in order, or with the header that `way` names."""
    seq = {"again": number - 1, "ahead": number + 1}.get(way, number) * 100
    flags = {"fin": p.ACK | p.FIN, "syn": p.SYN, "rst": p.RST, "push": p.ACK | 8}.get(way, p.ACK)
    body = p.tcp(bytes(0 if way == "empty" else 100), 40000 + flow, seq=seq, flags=flags,
                 options=p.TIMESTAMPS if way == "options" else b"")  # fmt: skip
    if way == "udp":
        return p.ethernet(p.ipv4(p.udp(bytes(100), 40000 + flow), protocol=p.UDP))
    if way == "offset":
        body = body[:12] + b"\x40" + body[13:]
    total = {"no length": 0, "long": 60_000, "short": 39}.get(way)
    packet = p.ipv4(body, options=bytes(4) if way == "IP options" else b"", total=total, more=way == "fragment",
                    fragment=8 if way == "later fragment" else 0)  # fmt: skip
    tags, kind = [p.VLAN] * (way == "tag"), 0x86DD if way == "kind" else p.IPV4
    return p.ethernet(b"\x65" + packet[1:] if way == "version" else packet, kind, tags)


DEVIATIONS = (
    "again", "ahead", "fin", "syn", "rst", "push", "empty", "options", "udp", "offset", "no length", "long", "short",
    "IP options", "fragment", "later fragment", "tag", "kind", "version", "super-frame", "jumbo", "wire", "cut", "back",
    "window", "later window", "damage",
)  # fmt: skip


def train_record(at: int, way: str) -> p.Record:
    time = T0 + 1000 * at + {"back": -3000, "window": MS, "later window": 7 * MS}.get(way, 0)
    frame = train_frame(at // 2, at % 2, way)
    if way in ("super-frame", "jumbo"):
        size = 20_000 if way == "super-frame" else 4000
        frame = p.ethernet(p.ipv4(p.tcp(bytes(size), 40000 + at % 2, seq=at // 2 * 100)))[:200]
        return p.Record(time, frame, size + 54)
    if way == "damage":
        return p.Record(time, frame.ljust(262_145, b"\0"), len(frame))
    return p.Record(time, frame[:50] if way == "cut" else frame, 60 if way == "wire" else None)


@pytest.mark.parametrize("way", DEVIATIONS)
@pytest.mark.parametrize("is_pcapng", [False, True])
def test_packet_that_is_not_common(way: str, is_pcapng: bool) -> None:
    made = [train_record(at, way if at in (TRAIN, TRAIN + 5) else "") for at in range(2 * TRAIN)]
    # longer frames than the snaplen are damage in a pcap
    data = p.pcapng(made, snaplen=10**6) if is_pcapng else p.pcap([], snaplen=65535) + p.pcap(made, snaplen=10**6)[24:]
    facts = read(data, MS, [T0, T0 + 33_000, T0 + 40_000])
    assert facts.records == (TRAIN if way == "damage" and not is_pcapng else 2 * TRAIN)


@pytest.mark.parametrize("harm", ["type", "length", "end", "interface", "captured", "time", "wrapped", "odd"])
def test_block_that_is_not_common(harm: str) -> None:
    """wrapped: a time in microseconds that is the right one after an overflow of 64 bits."""
    section = p.Section("<")
    blocks = [section.enhanced(T0 // 1000 + at, train_frame(at, 0, "")) for at in range(TRAIN)]
    block = bytearray(blocks[-3])
    if harm == "odd":
        length = (len(block) + 1).to_bytes(4, "little")
        block = block[:4] + length + block[8:-4] + b"\0" + length
    else:
        at, value = {
            "type": (0, 99), "length": (4, block[4] ^ 1), "end": (len(block) - 4, block[-4] ^ 4), "interface": (8, 1),
            "captured": (22, 1), "time": (15, 0x7F), "wrapped": (15, 0x20),
        }[harm]  # fmt: skip
        block[at] = value
    begin = section.begin() + section.interface(p.ETHERNET, 0, 6, None)
    facts = read(begin + b"".join([*blocks[:-3], bytes(block), *blocks[-2:]]))
    assert facts.records in (TRAIN - 3, TRAIN - 1, TRAIN)


# --- a pcapng in parts

MIDDLES = {
    "nothing": b"",
    "interface": p.Section("<").interface(101, 100, 9),
    "statistics": p.Section("<").statistics((4, 300), (5, 2)),
    "other section": p.Section(">").begin() + p.Section(">").interface(p.ETHERNET, 0, 6),
    "other block": p.Section("<").block(0xBAD, bytes(4000)),
    "untimed": p.Section("<").simple(train_frame(0, 1, "")),
    "looks like blocks": p.Section("<").enhanced(T0 // 1000, p.Section("<").block(12, b"") * 500),
    "damage": bytes(40),
}


@pytest.fixture
def joined(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Of each part that is joined whether it fits."""
    found: list[bool] = []
    join = Scanner.join

    def noted(whole: Scanner, part: State) -> bool:
        found.append(join(whole, part))
        return found[-1]

    monkeypatch.setattr(Scanner, "join", noted)
    return found


@pytest.mark.parametrize("middle", MIDDLES)
@pytest.mark.long_after(4)
def test_most_of_a_pcapng_is_read_in_parts(
    middle: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, joined: list[bool]
) -> None:
    """What is in the middle costs only the parts near it, and changes nothing."""
    first, second = p.Section("<"), p.Section(">" if middle == "other section" else "<")
    data = first.begin() + first.interface(p.ETHERNET, 0, 6)
    data += b"".join(first.enhanced(T0 // 1000 + at, train_frame(at, 0, "")) for at in range(500))
    data += MIDDLES[middle]
    data += b"".join(second.enhanced(T0 // 1000 + at, train_frame(at, 0, "")) for at in range(500, 1000))
    path = tmp_path / "capture"
    path.write_bytes(data)
    one = all_facts(path, 1, want_packets=False)
    set_sizes(monkeypatch, {"chunk": 8000, "descriptions": 1000})
    assert all_facts(path, 1, want_packets=False, pool=OtherMachine()) == one
    assert sum(joined) > (len(data) // 8000 - 5 if middle != "damage" else len(data) // 16000 - 2)


@pytest.mark.parametrize(("captured", "original"), [(175, 154), (154, 1514)])
def test_records_of_one_length_are_read_in_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, joined: list[bool], captured: int, original: int
) -> None:
    """More captured than there was; and 154 bytes, of which headers make a chain one byte too early, too."""
    path = tmp_path / "capture"
    frames = (train_frame(at, 0, "").ljust(captured, b"\0") for at in range(1000))
    data = p.pcap([p.Record(T0 + 1000 * at, frame, original) for at, frame in enumerate(frames)])
    path.write_bytes(data)
    one = all_facts(path, 1, want_packets=False)
    set_sizes(monkeypatch, {"chunk": 8000})
    assert all_facts(path, 1, want_packets=False, pool=OtherMachine()) == one
    assert sum(joined) == -(-len(data) // 8000)
