"""Records of pcap and pcapng files: blocks, sections, times, damage, in both readings (docs/packets.md)."""

from __future__ import annotations

import itertools
import struct
from pathlib import Path

import naive
import numpy as np
import packets as p
import pytest
from captures_by_hand import (
    KEY,
    KEY6,
    MS,
    SECOND,
    T0,
    V4,
    V6,
)
from readings import read, read_frames, the_flow
from tools import mostly_long

from ddnn_traces.pcap import numba_engine
from ddnn_traces.pcap.capture_facts import ReadOptions

# --- pcapng


def times_of(facts: naive.Facts) -> list[int]:
    return [row[2] for row in facts.packets]


@pytest.mark.parametrize("order", "<>")
def test_pcapng_packets(order: str) -> None:
    """Enhanced, simple and old packet blocks; blocks of other types are skipped."""
    section = p.Section(order)
    time = T0 // 1000
    data = section.begin() + section.interface(snaplen=100) + section.block(p.NAMES, bytes(4))
    data += section.simple(p.segment(1000)[:100], 1054) + section.enhanced(time, p.segment()[:53], 154)
    data += section.block(0x80000BAD, b"own") + section.old(time + 1, p.segment()) + section.simple(p.segment(0))
    facts = read(data)
    assert [row[:8] for row in facts.packets] == [
        (0, 0, 0, 1054, 1040, 1000, 100, p.ACK),
        (1, 0, T0, 154, 140, 100, 53, p.ACK),
        (2, 0, T0 + 1000, 154, 140, 100, 154, p.ACK),
        (3, 0, T0 + 1000, 54, 40, 0, 54, p.ACK),
    ]
    assert (facts.records, facts.untimed_records, facts.status, facts.trailing_bytes) == (4, 2, "complete", 0)


def test_sections_and_interfaces() -> None:
    """Each section has its byte order and interfaces, each interface its link type and clock."""
    little, big = p.Section("<"), p.Section(">")
    data = little.begin(length=1000) + little.interface(p.RAW) + little.interface(resolution=9)
    data += little.enhanced(T0, p.ethernet(V6, p.IPV6), interface=1) + little.enhanced(T0 // 1000, V4)
    data += big.begin() + big.interface(p.SLL2, resolution=3) + big.enhanced(T0 // MS + 1, p.sll2(V4))
    data += big.simple(p.sll2(V4)) + big.interface(p.RAW) + big.old(T0 // 1000 + 2, V4, interface=1)
    data += little.begin()
    facts = read(data)
    assert times_of(facts) == [T0, T0, T0 + MS, T0 + MS, T0 + 2000]
    of_sll2 = (*KEY[:-1], 1)  # of an interface that has a number
    assert {key: flow["packets"] for key, flow in facts.flows.items()} == {KEY6: 1, KEY: 2, of_sll2: 2}


def test_time_of_a_simple_packet_is_that_before_it_in_the_file() -> None:
    """Also of a packet that is in no flow, and of a section before."""
    section = p.Section()
    data = section.begin() + section.interface() + section.enhanced(5, p.arp()) + section.begin()
    facts = read(data + section.interface() + section.simple(p.segment()) + section.simple(p.segment()))
    assert times_of(facts) == [5000, 5000]
    assert (facts.first_ns, facts.last_ns, facts.untimed_records) == (5000, 5000, 2)


@pytest.mark.parametrize(
    ("resolution", "offset", "ticks", "time"),
    [
        (None, None, 7, 7000),
        (0, None, 7, 7 * SECOND),
        (3, None, 7, 7 * MS),
        (9, None, 7, 7),
        (12, None, 7999, 7),  # cut to whole nanoseconds
        (19, None, 2**64 - 1, 1_844_674_407),
        (30, None, 2**64 - 1, 0),
        (0x80, None, 7, 7 * SECOND),
        (0x81, None, 7, 3_500_000_000),
        (0x9E, None, 3, 2),  # 2^-30 s is 0.93 ns
        (0xBF, None, 2**63 + 1, SECOND),
        (0xC0, None, 2**64 - 1, SECOND - 1),
        (0xFF, None, 2**64 - 1, 0),
        (9, 3, 7, 3 * SECOND + 7),
        (9, -3, 3 * SECOND + 7, 7),
        (12, -3, 3 * 10**12 + 7, 0),
        (9, None, 2**63 - 1, 2**63 - 1),
        (9, 9_223_372_036, 854_775_807, 2**63 - 1),
        (0, -(2**63), 2**63 + 7, 7 * SECOND),
        (0, -10_000_000_000, 10_000_000_007, 7 * SECOND),
        (3, -(2**53), 1000 * 2**53 + 7, 7_000_000),
        (0x80, -(2**63), 2**63 + 7, 7 * SECOND),
    ],
)
def test_resolutions_and_offsets(resolution: int | None, offset: int | None, ticks: int, time: int) -> None:
    section = p.Section()
    facts = read(section.begin() + section.interface(resolution=resolution, offset=offset) + section.enhanced(
        ticks, p.segment()), window_ns=SECOND)  # fmt: skip
    assert times_of(facts) == [time]


@pytest.mark.parametrize(
    ("resolution", "offset", "ticks"),
    [
        (9, None, 2**63),
        (9, -1, SECOND - 1),
        (0, None, 9_223_372_037),
        (0, None, 2**64 - 1),
        (6, 2**63 - 1, 0),
        (6, -(2**63), 2**64 - 1),
        (0, 2**63 - 1, 2**64 - 1),
        (0, 7, 2**64 - 7),
        (0, -(2**63), 2**63 + 9_223_372_037),
        (9, 9_223_372_036, 854_775_808),
        (0x80, None, 2**63),
    ],
)
@pytest.mark.parametrize("kind", ["enhanced", "old"])
def test_time_out_of_range(resolution: int, offset: int | None, ticks: int, kind: str) -> None:
    """The packet gets the time of the one before, and the next ones are read; also of the common ones."""
    section = p.Section()
    begin = section.begin() + section.interface() + section.interface(resolution=resolution, offset=offset)
    good = [section.enhanced(at, p.segment(seq=100 * at)) for at in range(1, 7)]
    bad = getattr(section, kind)(ticks, p.segment(seq=400), interface=1)
    facts = read(begin + b"".join([*good[:3], bad, *good[4:]]))
    assert times_of(facts) == [1000, 2000, 3000, 3000, 5000, 6000]
    assert (facts.status, facts.untimed_records, facts.trailing_bytes) == ("complete", 1, 0)
    assert (facts.first_ns, facts.last_ns, the_flow(facts)["retransmitted_packets"]) == (1000, 6000, 0)


@pytest.mark.parametrize("offset", [-(2**63), -10_000_000_000, -9_223_372_036])
def test_large_offset_in_common_packets(offset: int) -> None:
    """The second half of the ticks is right only in numbers that overflow."""
    section = p.Section()
    data = section.begin() + section.interface(resolution=0, offset=offset)
    ticks = [*range(-offset, 8 - offset), *range(8)]
    facts = read(data + b"".join(section.enhanced(at, p.segment(seq=100 * i)) for i, at in enumerate(ticks)))
    assert times_of(facts) == [at * SECOND for at in [*range(8), *[7] * 8]]


def test_fraction_beyond_a_second() -> None:
    """It adds to the seconds, in both resolutions."""
    for tick_ns in (1, 1000):
        header = p.pcap([], tick_ns=tick_ns)
        record = struct.pack("<4I", 7, 2**32 - 1, 154, 154) + p.segment()
        assert times_of(read(header + record)) == [7 * SECOND + (2**32 - 1) * tick_ns]


def test_simple_packets_are_cut_to_the_snaplen_of_interface_0() -> None:
    section = p.Section()
    for snaplen, captured in ((60, 60), (0, 154), (400, 154)):
        data = section.begin() + section.interface(snaplen=snaplen) + section.interface(snaplen=20)
        flow = the_flow(read(data + section.simple(p.segment()[:captured], 154)))
        assert (flow["captured_bytes"], flow["wire_bytes"]) == (captured, 154)


def test_padding_of_a_block_is_not_part_of_the_packet() -> None:
    section = p.Section()
    frame = p.segment()[:37]  # and a byte of the ports that is padding
    assert read(section.begin() + section.interface() + section.enhanced(0, frame, 154)).skipped == {
        "cut_short": (1, 154)
    }


def test_invalid_options() -> None:
    """Of wrong lengths, cut short, or after the end."""
    section = p.Section()
    for options in (
        struct.pack("<HHI", p.RESOLUTION, 2, 9),
        struct.pack("<HHI", p.OFFSET, 4, 9),
        struct.pack("<HH", p.RESOLUTION, 9) + b"\3" * 8,
        bytes(4) + struct.pack("<HHI", p.RESOLUTION, 1, 9),
    ):
        interface = section.block(p.INTERFACE, struct.pack("<HHI", p.ETHERNET, 0, 0) + options)
        assert times_of(read(section.begin() + interface + section.enhanced(7, p.segment()))) == [7000]


def damaged_blocks() -> dict[str, bytes]:
    section = p.Section()
    packet = section.enhanced(0, p.segment())

    def block(length: int, at_end: int | None = None) -> bytes:
        """A block with these lengths at its start and end, and at most 100 bytes between them."""
        return (
            struct.pack("<II", 5, length) + bytes(min(max(0, length - 12), 100)) + struct.pack("<I", at_end or length)
        )

    return {
        "length 0": block(0) + bytes(99),
        "length 8": block(8) + bytes(99),
        "length of no whole words": block(13) + bytes(99),
        "too long": block((1 << 24) + 4),
        "far too long": block(2**32 - 4),
        "other length at the end": block(20, 24),
        "version 2": section.begin(major=2),
        "version 0": section.begin(major=0),
        "no byte-order magic": section.begin()[:8] + bytes(20) + section.begin()[-4:],
        "section without a version": section.block(p.SECTION, struct.pack("<I", 0x1A2B3C4D)),
        "interface without a link type": section.block(p.INTERFACE, bytes(4)),
        "packet without a length": section.block(p.ENHANCED_PACKET, bytes(16)),
        "unknown interface": section.enhanced(0, p.segment(), interface=1),
        "unknown interface of an old packet": section.old(0, p.segment(), interface=65535),
        "captured beyond the block": section.block(p.ENHANCED_PACKET, struct.pack("<5I", 0, 0, 0, 61, 60) + bytes(60)),
        "captured far beyond": section.block(p.ENHANCED_PACKET, struct.pack("<5I", 0, 0, 0, 2**32 - 1, 60) + bytes(60)),
        "old captured beyond": section.block(p.OLD_PACKET, struct.pack("<HH4I", 0, 0, 0, 0, 61, 60) + bytes(60)),
        "simple captured beyond": section.simple(bytes(60), 61),
        "simple without interface": section.begin() + section.simple(bytes(60)),
        "packet of the section before": section.begin() + packet,
    }


@pytest.mark.parametrize("name", damaged_blocks())
def test_damaged_blocks(name: str) -> None:
    section = p.Section()
    good = section.begin() + section.interface(snaplen=0) + section.enhanced(0, p.segment())
    bad = damaged_blocks()[name]
    intact = len(section.begin()) if bad.startswith(section.begin()) and len(bad) > len(section.begin()) else 0
    for block in (1 << 20, 100):
        facts = read(good + bad + section.enhanced(0, p.segment()), block=block)
        assert (facts.status, facts.records) == ("corrupt", 1)
        assert facts.trailing_bytes == len(bad) - intact + len(section.enhanced(0, p.segment()))


@pytest.mark.parametrize("order", mostly_long("<>", "<"))
def test_pcapng_cut_anywhere(order: str) -> None:
    section = p.Section(order)
    blocks = [section.begin(), section.interface(), section.enhanced(0, p.segment()[:60], 154), section.begin()]
    data = b"".join(blocks)
    ends = list(itertools.accumulate(map(len, blocks), initial=0))
    for cut in range(4, len(data)):
        whole = max(end for end in ends if end <= cut)
        facts = read(data[:cut])
        assert (facts.status, facts.trailing_bytes) == ("complete" if cut == whole else "truncated", cut - whole)
        assert facts.records == (cut >= ends[3])


def test_other_files_are_refused() -> None:
    kuznetzov = struct.pack("<IHHiIII", 0xA1B2CD34, 2, 4, 0, 0, 65535, 1) + bytes(100)
    for data in (kuznetzov, b"no capture, but long enough to be one", p.SECTION.to_bytes(4, "big") + bytes(60)):
        facts = read(data)
        assert (facts.status, facts.records, facts.trailing_bytes) == ("corrupt", 0, len(data))
    for data in (b"", p.pcap([])[:10], p.pcap([])[:23], p.Section().begin()[:11]):
        facts = read(data)
        assert (facts.status, facts.records, facts.trailing_bytes) == ("truncated", 0, len(data))


def test_what_a_pcapng_says_of_itself(tmp_path: Path) -> None:
    """All link types, the coarsest clock, the largest snaplen."""
    little, big = p.Section("<"), p.Section(">")
    data = little.begin() + little.interface(p.SLL2, 96, 9) + little.interface(p.ETHERNET, 54, 0x94)
    data += big.begin() + big.interface(p.ETHERNET, 128, 9)
    path = tmp_path / "capture"
    path.write_bytes(data)
    facts = numba_engine.read_capture(path, ReadOptions(MS, np.array([], np.int64), tmp_path / "cells"))
    assert (facts.format, facts.snaplen, facts.time_resolution_ns) == ("pcapng", 128, 954)  # 2^-20 s, rounded up
    assert sorted(facts.link_types.split(",")) == ["1", "276"]


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
