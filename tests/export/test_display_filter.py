"""The display filter of a cut selects its records, and no others, in tshark."""

from __future__ import annotations

import subprocess
from pathlib import Path

import packets as p
import pytest
from captures_by_hand import CAPTURES, CONNECTIONS, FRAGMENTS, in_time
from cuts import cut, records_of
from small_runs import BEGIN_NS, SPACING_NS, A, B, Packet, ingest
from tools import mostly_long, mostly_nightly, needs_tool

import ddnn_traces
from ddnn_traces.export import display_filter
from ddnn_traces.query.dataset import Dataset


def selected(path: Path, text: str) -> int:
    """Packets that tshark selects by a display filter."""
    tshark = needs_tool("tshark")
    shown = subprocess.run(
        [tshark, "-n", "-r", path, "-Y", text, "-T", "fields", "-e", "frame.number"], capture_output=True, text=True
    )
    assert shown.returncode == 0, shown.stderr
    return len(shown.stdout.splitlines())


FILTERED = {
    **{name: CAPTURES[name] for name in ("pcap < 1", "vlan", "sll2", "raw 101", "icmp", "vxlan", "geneve", "roce",
                                         "roce v1", "roce v1, IPv4", "erf",
                                         "gre", "nested", "ipv6 extension headers")},
    "fragments": p.pcap(in_time(*FRAGMENTS)),
    "fragments, the first one last": p.pcap(in_time(*FRAGMENTS[::-1])),
    "connections": CONNECTIONS,
}  # fmt: skip


#: Each layer that a filter names once; all others in make test-nightly.
FILTERED_BEFORE_THE_NIGHT = (
    "vxlan", "vlan", "sll2", "raw 101", "icmp", "gre", "nested", "roce", "erf", "ipv6 extension headers",
    "fragments, the first one last", "connections",
)  # fmt: skip


@pytest.mark.parametrize("name", mostly_nightly(mostly_long(FILTERED, "vxlan"), *FILTERED_BEFORE_THE_NIGHT))
def test_the_filter_selects_all_of_the_cut(name: str, tmp_path: Path) -> None:
    (tmp_path / "a.pcap").write_bytes(FILTERED[name])
    with ddnn_traces.ingest(tmp_path / "a.pcap", tmp_path / "dataset") as dataset:
        for (flow,) in dataset.sql("SELECT flow_id FROM flows").rows():
            done = cut(dataset, tmp_path / "cut.pcapng", flows=[flow])
            there = len(records_of(tmp_path / "cut.pcapng"))
            assert selected(tmp_path / "cut.pcapng", done.display_filter) == done.records == there, done.display_filter


@pytest.mark.parametrize(
    ("name", "pair", "records"),
    [("roce v1, IPv4", ("10.0.0.2", "10.0.0.1"), 4), ("erf", ("100::22", "100::11"), 3),
     ("erf", ("10.0.0.2", "10.0.0.1"), 5)],
)  # fmt: skip
def test_the_filter_of_hosts_has_route_headers(name: str, pair: tuple[str, str], records: int, tmp_path: Path) -> None:
    (tmp_path / "a.pcap").write_bytes(CAPTURES[name])
    with ddnn_traces.ingest(tmp_path / "a.pcap", tmp_path / "dataset") as dataset:
        done = cut(dataset, tmp_path / "cut.pcapng", pair=pair)
        there = len(records_of(tmp_path / "cut.pcapng"))
        assert selected(tmp_path / "cut.pcapng", done.display_filter) == done.records == records == there


def test_the_filter_of_a_step_has_route_headers() -> None:
    senders = [("10.0.0.1", 0, 10**9), ("100::11", 0, 10**9)]
    sources = ["ip.src == 10.0.0.1", "ipv6.src == 100::11", "infiniband.grh.sgid == ::ffff:10.0.0.1"]
    sources.append("infiniband.lrh.slid == 17")
    assert display_filter.of_step(senders, routed=True).startswith(f"({' || '.join(sources)}) && ")


@pytest.mark.long
def test_the_filter_selects_the_same_of_the_original(sample: Path, sample_dataset: Dataset, tmp_path: Path) -> None:
    name = "torch-mlp1-sgd-32-gloo-0ms-ring-loss05"
    with ddnn_traces.open(sample_dataset.path, name) as dataset:
        flow = dataset.sql("SELECT arg_max(flow_id, packets) FROM flows").item()
        one = cut(dataset, tmp_path / "cut.pcap", flows=[flow])
        (capture,) = one.files
        assert one.records > 100
        assert selected(tmp_path / "cut.pcap", one.display_filter) == one.records
        assert selected(sample / name / capture, one.display_filter) == one.records
        both = cut(dataset, tmp_path / "cut.pcap", flows=[flow], step=1)
        assert selected(tmp_path / "cut.pcap", both.display_filter) == both.records > 10
        assert selected(sample / name / capture, both.display_filter) == both.records
        step = cut(dataset, tmp_path / "cut.pcap", step=1)
        assert selected(tmp_path / "cut.pcap", step.display_filter) == step.records
        pair = cut(dataset, tmp_path / "cut.pcap", pair=("worker-1", "worker-2"))
        assert selected(tmp_path / "cut.pcap", pair.display_filter) == pair.records


def test_the_filter_tells_connections_of_the_same_ports_apart(tmp_path: Path) -> None:
    first = [Packet(BEGIN_NS + i * SPACING_NS, A, B, 100, seq=1 + 100 * i, flags=p.ACK) for i in range(5)]
    begin = BEGIN_NS + 10**9
    second = [
        Packet(begin, A, B, 0, p.SYN, seq=7),
        Packet(begin + 5, A, B, 10, seq=8),
        Packet(begin + 9, A, B, 1, seq=18),
    ]
    ended = Packet(BEGIN_NS + 5 * SPACING_NS, A, B, 0, p.FIN | p.ACK, seq=501)
    with ingest(tmp_path, {"a.pcap": [*first, ended, *second]}) as dataset:
        assert dataset.sql("SELECT packets FROM flows ORDER BY flow_id").to_series().to_list() == [6, 3]
        for flow, packets in ((0, 6), (1, 3)):
            done = cut(dataset, tmp_path / "cut.pcap", flows=[flow])
            assert "frame.time_epoch" in done.display_filter
            assert selected(tmp_path / "run" / "a.pcap", done.display_filter) == packets == done.records
