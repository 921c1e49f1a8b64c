"""What ingest says of captures that were taken apart or thrown together."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import packets as p
import pytest
from small_runs import A, B, C, D, Packet, ring, write_captures

import ddnn_traces
from ddnn_traces.ingestors import pipeline
from ddnn_traces.ingestors.options import IngestOptions
from ddnn_traces.messages import Messages
from ddnn_traces.report.chapters import trust

_HOUR_NS = 3_600 * 10**9


def later(packets: list[Packet], by_ns: int) -> list[Packet]:
    return [dataclasses.replace(packet, time_ns=packet.time_ns + by_ns) for packet in packets]


def warnings(sources: list[Path], out: Path, run_id: str | None = None) -> list[str]:
    messages = Messages()
    pipeline.ingest([str(source) for source in sources], out, IngestOptions(run_id=run_id), messages)
    return messages.warnings


def test_parts_of_a_rotated_capture_are_recognised(tmp_path: Path) -> None:
    whole = ring(A, B)
    third = len(whole) // 3
    parts = {f"trace{n}": whole[n * third : (n + 1) * third] for n in range(3)}
    folder = write_captures(tmp_path / "captures", parts)
    sources = [folder / name for name in parts]
    (said,) = warnings(sources, tmp_path / "apart")
    assert said.startswith("runs trace0, trace1, trace2: connections go on from one to the next") and "--run-id" in said
    assert warnings(sources, tmp_path / "joined", run_id="trace") == []


def test_runs_of_a_copied_folder_are_named_and_count_once_in_a_comparison(tmp_path: Path) -> None:
    """Three copies were three runs without a word, and an interval of width 0 told them apart from others."""
    for name in ("a", "b", "c"):
        write_captures(tmp_path / "all" / name, {"w.pcap": ring(A, B)})
    write_captures(tmp_path / "all" / "other", {"w.pcap": later(ring(A, B, rounds=6), _HOUR_NS)})
    (said,) = warnings([tmp_path / "all"], tmp_path / "dataset")
    assert said.startswith("runs a, b, c: their captures hold the same packets, as copies of a folder do")
    assert warnings([tmp_path / "all"], tmp_path / "dataset") == [said]  # while nothing is read
    with ddnn_traces.open(tmp_path / "dataset") as dataset:
        copies = dataset.query("run_copies")
        sides = {"a_runs": "[abc]", "b_runs": "other"}
        volume = dataset.query("compare", **sides).row(0, named=True)
        (note,) = [line for line in dataset.remarks("compare", sides) if "same packets" in line]
        assert not [line for line in dataset.remarks("compare", {"a_runs": "a", "b_runs": "b"}) if "same" in line]
    assert copies.select("run_id", "first_run_id", "runs").rows() == [("a", "a", 3), ("b", "a", 3), ("c", "a", 3)]
    assert (volume["a_n"], volume["b_n"], volume["verdict"]) == (
        1,
        1,
        "cannot be told: one run a side; at least 3 can tell",
    )
    assert note.startswith("runs a, b, c: they hold the same packets")


def test_captures_of_several_trainings_of_the_same_hosts_are_runs(tmp_path: Path) -> None:
    """On other ports, later and meanwhile."""
    later_one = [dataclasses.replace(packet, ports=(50_000, 6_000)) for packet in later(ring(A, B), _HOUR_NS)]
    meanwhile = [dataclasses.replace(packet, ports=(50_001, 6_001)) for packet in ring(A, B)]
    folder = write_captures(tmp_path / "captures", {"one": ring(A, B), "two": later_one, "three": meanwhile})
    assert warnings([folder / name for name in ("one", "two", "three")], tmp_path / "dataset") == []


def test_captures_at_the_hosts_of_one_training_are_recognised(tmp_path: Path) -> None:
    """Each has the connections of its host; the later training is a run of its own."""
    whole = ring(A, B, C)
    hosts = {f"{host}.pcap": [one for one in whole if host in (one.src, one.dst)] for host in (A, B, C)}
    hosts[f"{B}.pcap"] = hosts[f"{B}.pcap"][1:]  # so that its first packet goes the other way
    hosts["later.pcap"] = [dataclasses.replace(one, ports=(50_000, 6_000)) for one in later(whole, _HOUR_NS)]
    folder = write_captures(tmp_path / "captures", hosts)
    sources = [folder / name for name in hosts]
    (said,) = warnings(sources, tmp_path / "apart")
    assert said.startswith(f"runs {A}, {B}, {C}: the same connections at the same time") and "--run-id NAME" in said
    assert warnings(sources[:3], tmp_path / "joined", run_id="one") == []


def test_folders_of_the_hosts_of_one_training_are_recognised(tmp_path: Path) -> None:
    """Not the folder of a later training, nor folders that say what they are."""
    whole = ring(A, B, C)
    top = tmp_path / "all" / "my training"
    for host in (A, B, C):
        write_captures(top / f"at-{host}", {"x.pcap": [one for one in whole if host in (one.src, one.dst)]})
    after = [dataclasses.replace(one, ports=(50_000, 6_000)) for one in later(whole, _HOUR_NS)]
    write_captures(tmp_path / "all" / "after", {"x.pcap": after})
    (said,) = warnings([tmp_path / "all"], tmp_path / "apart")
    assert said.startswith(f"runs at-{A}, at-{B}, at-{C}: the same connections at the same time, as in captures at ")
    assert f"--run-id 'my training' with {top} as the only source" in said and "--layout '{run}/{host}/*.pcap*'" in said
    assert warnings([top], tmp_path / "joined", run_id="my training") == []
    for host in (A, B, C):
        (top / f"at-{host}" / "run.toml").write_text('framework = "torch"')
    assert warnings([top], tmp_path / "described") == []


def test_copies_of_a_folder_are_no_hosts_of_one_training(tmp_path: Path) -> None:
    folders = [write_captures(tmp_path / name, {"x.pcap": ring(A, B)}) for name in ("one", "two")]
    (said,) = warnings(folders, tmp_path / "dataset")
    assert "hold the same packets" in said and "same time" not in said


def test_announcements_are_no_connection(tmp_path: Path) -> None:
    """A router solicitation alone in a rotated file is no training, and one that several folders saw joins none."""
    solicitation = p.ethernet(p.ipv6(bytes([133]) + bytes(7), "fe80::9", "ff02::2", 58), p.IPV6)
    announced = p.pcap([p.Record(ring(A, B)[0].time_ns - 10**10, solicitation)])
    for name, packets in (("one", ring(A, B)), ("two", ring(C, D))):
        folder = write_captures(tmp_path / name, {"trace1.pcap": packets})
        (folder / "trace0.pcap").write_bytes(announced)
    assert warnings([tmp_path / "one", tmp_path / "two"], tmp_path / "dataset") == []


def test_trainings_of_the_same_hosts_in_one_folder_are_a_question(tmp_path: Path) -> None:
    after = [dataclasses.replace(one, ports=(50_000, 6_000)) for one in later(ring(A, B), _HOUR_NS)]
    of_one = {"a.pcap": ring(A, B), "b.pcap": ring(A, B)}
    folder = write_captures(tmp_path / "mixed", {**of_one, "c.pcap": after})
    (said,) = warnings([folder], tmp_path / "dataset")
    assert said.startswith("mixed: its captures are 2 groups one after the other, without a connection in common (a.pc")
    assert warnings([write_captures(tmp_path / "one", of_one)], tmp_path / "related") == []


def test_copies_of_a_capture_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(Messages, "info", lambda _, line: said.append(line))
    folder = write_captures(tmp_path / "run", {"a.pcap": ring(A, B), "b.pcap": ring(A, B, C), "copy.pcap": ring(A, B)})
    assert warnings([folder], tmp_path / "dataset") == []
    [copies] = [line for line in said if "same packets" in line]
    assert copies.startswith("run: a.pcap and copy.pcap hold the same packets, as copies of a file do")
    with ddnn_traces.open(tmp_path / "dataset") as opened:
        [overview] = opened.query("run_overview").to_dicts()
        ledger = dict(opened.query("ledger_sums").select("reason", "captures").iter_rows())
    assert (overview["captures"], overview["copied_captures"]) == (3, 1)
    assert trust._files(overview) == "3, 1 copy" and ledger["duplicate_vantage"]


def test_captures_without_a_common_host_are_a_question(tmp_path: Path) -> None:
    folder = write_captures(tmp_path / "mixed", {"x.pcap": ring(A, B), "y.pcap": ring(C, D)})
    (said,) = warnings([folder], tmp_path / "dataset")
    assert said.startswith("mixed: its captures are 2 groups without a host in common (x.pcap, y.pcap); are they one")
    assert warnings([folder], tmp_path / "named", run_id="mixed") == []
    (folder / "run.toml").write_text('framework = "torch"')
    assert warnings([folder], tmp_path / "described") == []


def test_a_pause_of_more_than_a_day_is_named(tmp_path: Path) -> None:
    packets = {"x.pcap": ring(A, B), "y.pcap": later(ring(A, B), 72 * _HOUR_NS), "z.pcap": later(ring(A, B), _HOUR_NS)}
    (said,) = warnings([write_captures(tmp_path / "run", packets)], tmp_path / "dataset")
    assert said.startswith("run: nothing was captured for 3 days, 2023-11-14 23:13:20 to 2023-11-17 22:13:20; ")


@pytest.mark.parametrize("protocol", ["ip", "other"])
def test_a_frame_larger_than_networks_send_is_named(tmp_path: Path, protocol: str) -> None:
    """By its record's original length, whether it is in a flow or not."""
    records = [packet.record for packet in ring(A, B)]
    frame = records[1].frame if protocol == "ip" else p.ethernet(b"\0" * 40, 0x88CC)
    records[1] = dataclasses.replace(records[1], frame=frame, wire=4_090_000_000)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "x.pcap").write_bytes(p.pcap(records))
    found = [line for line in warnings([tmp_path / "run"], tmp_path / "dataset") if "a frame has" in line]
    least = {"ip": "818,000,0", "other": "4,090,000,000 "}[protocol]  # the mean of a flow's five packets, and of one
    assert len(found) == 1 and found[0].startswith(f"run/x.pcap: a frame has {least}")
