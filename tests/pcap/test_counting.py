"""Large packets, packet rows, times, steps and tables that outgrow their buffers, in both readings."""

from __future__ import annotations

import collections
import itertools

import packets as p
import pytest
from captures_by_hand import MS, T0, US, in_time
from readings import read, read_frames, the_flow

from ddnn_traces.pcap.capture_facts import NO_STEP

# --- large packets, and packets one by one


@pytest.mark.parametrize(
    ("ip_bytes", "large", "huge"), [(1500, 0, 0), (1501, 1, 0), (9000, 1, 0), (9001, 1, 1), (70_000, 1, 1)]
)
def test_large_and_huge_packets(ip_bytes: int, large: int, huge: int) -> None:
    flow = the_flow(read_frames(p.segment(ip_bytes - 40), snaplen=96))
    assert (flow["large_packets"], flow["large_payload_bytes"]) == (large, large * (ip_bytes - 40))
    assert (flow["huge_packets"], flow["huge_payload_bytes"]) == (huge, huge * (ip_bytes - 40))


def test_packets_one_by_one() -> None:
    frames = [
        p.arp(),
        p.segment(flags=p.SYN | 0xC0),
        p.ethernet(p.ipv4(p.udp(bytes(1000)), protocol=p.UDP)),
        p.segment(seq=101),
    ]
    facts = read_frames(*frames, snaplen=60)
    assert facts.packets == [
        (1, 0, T0 + US, 154, 140, 100, 60, 0xC2, 0, 0, None, None, None),
        (2, 1, T0 + 2 * US, 1042, 1028, 1000, 60, None, None, 0, None, None, None),
        (3, 0, T0 + 3 * US, 154, 140, 100, 60, p.ACK, 101, 0, None, None, None),
    ]


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


# --- more than the buffers hold


def test_flow_table_grows() -> None:
    ports = list(itertools.product(range(1, 6), range(1, 521)))  # above the 2,048 from which on the loop prefetches
    frames = [p.segment(source=source, destination=port) for source, port in ports]
    facts = read(p.pcap(in_time(*frames, *frames[::-1])), flows=256)
    assert [key[3:5] for key in facts.flows] == ports
    assert {flow["packets"] for flow in facts.flows.values()} == {2}


@pytest.mark.parametrize("cells", [1, 2, 7])
def test_cells_are_spilled(cells: int) -> None:
    records = [p.Record(T0 + i * MS // 2, p.segment(source=1 + i % 3)) for i in range(60)]
    facts = read(p.pcap(records), window_ns=MS, bounds=[T0 + 5 * MS, T0 + 10 * MS], cells=cells)
    assert len(facts.cells) == 60
