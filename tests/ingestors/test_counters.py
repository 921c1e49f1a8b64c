"""What the capturing program counted: Interface Statistics Blocks, and the closing lines of tcpdump and dumpcap."""

from __future__ import annotations

from pathlib import Path

import packets as p
import pytest
from captures_by_hand import T0
from small_runs import A, B, Packet, column, found_by, read_folder, write_captures

from ddnn_traces.pcap.interface_statistics import StatisticsFinder
from ddnn_traces.query.dataset import Dataset

NAMES = (
    "interface_received_packets", "filter_accepted_packets", "interface_dropped_packets", "kernel_dropped_packets",
    "delivered_packets", "counter_source",
)  # fmt: skip
TCPDUMP = """tcpdump: listening on eth0, link-type EN10MB (Ethernet), snapshot length 100 bytes
^C{} packets captured
{} packets received by filter
{} packets dropped by kernel
"""
DUMPCAP = """Capturing on 'eth0'
Packets captured: 90
Packets received/dropped on interface 'eth0': 90/10 (pcap:10/dumpcap:0/flushed:0/ps_ifdrop:0) (90.0%)
"""


def pcapng(order: str = "<") -> bytes:
    """Two sections; of the first one's interfaces, the first has two blocks of statistics, the last of which counts."""
    one, two = p.Section(order), p.Section(order)
    frame = p.segment(100)
    data = one.begin() + one.interface(resolution=9) * 2 + one.statistics((4, 1), (5, 1), (7, 1))
    data += one.enhanced(T0, frame) + one.statistics((4, 100), (5, 7), (6, 90), (7, 3), (8, 87), (2, 5))
    data += one.statistics((4, 10), (7, 2**64 - 1), interface=1)
    data += two.begin() + two.interface(resolution=9) + two.enhanced(T0, frame) + two.statistics((5, 2))
    return data + two.block(p.STATISTICS, bytes(4))  # too short: it states nothing


def counters(dataset: Dataset) -> list[tuple[object, ...]]:
    return dataset.sql(f"SELECT {', '.join(NAMES)} FROM captures ORDER BY capture_id").rows()


@pytest.mark.parametrize("engine", ["numba", "pyshark"])
@pytest.mark.long_after(1)
def test_statistics_of_a_pcapng(engine: str, tmp_path: Path) -> None:
    run = write_captures(tmp_path / "run", {})
    (run / "a.pcapng").write_bytes(pcapng())
    with read_folder(run, engine=engine) as dataset:
        assert counters(dataset) == [(110, 90, 9, 3, 87, "pcapng")]
        (found,) = found_by(dataset, "capture_loss")
        dropped, cut = 3 + 9, 87 - 2  # of 87 that the program got, two are in the file
        assert (found["dropped_packets"], round(found["percent_dropped"], 1)) == (dropped + cut, 98.0)


@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize("size", [1, 7, 64, 10_000])
def test_statistics_in_blocks_cut_anywhere(order: str, size: int) -> None:
    data, finder = pcapng(order), StatisticsFinder()
    for at in range(0, len(data), size):
        finder.feed(data[at : at + size])
    assert finder.statistics.counters["interface_received_packets"] == 110
    damaged = StatisticsFinder()
    damaged.feed(p.pcap([]) + data)
    assert damaged.statistics.counters == {}


def with_logs(folder: Path, captures: list[str], logs: dict[str, str]) -> Dataset:
    run = write_captures(folder / "run", {name: [Packet(T0, A, B, 100)] for name in captures})
    for name, text in logs.items():
        (run / name).write_text(text)
    return read_folder(run)


@pytest.mark.long
def test_closing_lines(tmp_path: Path) -> None:
    lines = TCPDUMP.format(90, 100, 10)
    nothing = (None,) * 6
    counted, with_interface = (None, 100, None, 10, 90, "tcpdump"), (None, 100, 4, 10, 90, "tcpdump")
    single, by_dumpcap = (None, 1, None, None, 1, "tcpdump"), (None, None, None, 10, 90, "dumpcap")
    two = ["worker-1.pcap", "worker-2.pcap"]
    cases = {
        "one": (["a.pcap"], {"anything.err": lines}, [counted]),
        "interface": (["a.pcap"], {"a.log": lines + "4 packets dropped by interface\n"}, [with_interface]),
        "the last lines": (["a.pcap"], {"a.txt": TCPDUMP.format(1, 1, 1) + "x" * 20_000 + lines}, [counted]),
        "one packet": (["a.pcap"], {"a.txt": "1 packet captured\n1 packet received by filter\n"}, [single]),
        "name": (two, {"worker-2.log": lines}, [nothing, counted]),
        "host": (two, {"worker-1-tcpdump.log": lines, "tcpdump.worker-2.err": DUMPCAP}, [counted, by_dumpcap]),
        "nobody's": (two, {"tcpdump.log": lines}, [nothing, nothing]),
        "rotated": (["a.pcap", "a.pcap1"], {"a.log": lines}, [counted, nothing]),
        "no lines": (["a.pcap"], {"a.log": "90 packets captured\n"}, [nothing]),
    }  # fmt: skip
    for name, (captures, logs, expected) in cases.items():
        with with_logs(tmp_path / name, captures, logs) as dataset:
            assert counters(dataset) == expected, name


def test_changed_lines_are_read_again(tmp_path: Path) -> None:
    with with_logs(tmp_path, ["a.pcap"], {"a.err": TCPDUMP.format(1, 1, 0)}) as dataset:
        assert column(dataset, "SELECT kernel_dropped_packets FROM captures") == [0]
    with with_logs(tmp_path, ["a.pcap"], {"a.err": TCPDUMP.format(1, 1, 5)}) as dataset:
        assert column(dataset, "SELECT kernel_dropped_packets FROM captures") == [5]
