"""Parsed files of the published Zerwas analysis: tshark's fields as text in place of a capture."""

from __future__ import annotations

import gzip
import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

import ddnn_traces
from ddnn_traces.errors import UsageError
from ddnn_traces.export import simulators
from ddnn_traces.ingestors import parsed_files, pipeline
from ddnn_traces.messages import Messages
from ddnn_traces.pcap import capture_file
from ddnn_traces.pcap.capture_facts import CaptureFacts, ReadOptions
from ddnn_traces.query.checks import run_checks

#: As BASIC_TSHARK_COMMAND in parsing_script.py has them.
FIELDS = ("frame.time", "ip.src", "ip.dst", "tcp.srcport", "tcp.dstport", "frame.interface_name", "frame.len")
HEADER = "\t".join(FIELDS)
MS = 1_000_000
#: Nov 20, 2026 10:50:09 CET.
T0 = 1_795_168_209_000_000_000


def line(
    ms: float = 0,
    src: str = "10.0.0.1",
    dst: str = "10.0.0.2",
    ports: tuple[object, object] = (40000, 2222),
    length: object = 1500,
) -> str:
    """A packet, ms after T0, at most 1 s."""
    return f"Nov 20, 2026 10:50:09.{round(ms * MS):09} CET\t{src}\t{dst}\t{ports[0]}\t{ports[1]}\t\t{length}"


def read(
    folder: Path, *lines: str | bytes, end: bytes = b"\n", bounds: tuple[int, ...] = (), header: str = HEADER
) -> CaptureFacts:
    path = folder / parsed_files.FOLDER / "worker-0-tcpdump.csv"
    path.parent.mkdir(exist_ok=True)
    rows = [text if isinstance(text, bytes) else text.encode() for text in (header, *lines)]
    path.write_bytes(b"\n".join(rows) + end)
    cells = folder / "cells.parquet"
    cells.unlink(missing_ok=True)
    return parsed_files.read_capture(path, ReadOptions(MS, np.array(bounds, np.int64), cells))


def flows(facts: CaptureFacts) -> list[tuple[object, ...]]:
    names = (
        "src_ip",
        "dst_ip",
        "protocol",
        "src_port",
        "dst_port",
        "packets",
        "wire_bytes",
        "first_seen_ns",
        "last_seen_ns",
    )
    return list(zip(*(facts.flows[name].to_pylist() for name in names), strict=True))


def cells(facts: CaptureFacts) -> dict[tuple[int, int, int], tuple[int, int]]:
    """Packets and bytes by flow, window since T0, and step."""
    sums: dict[tuple[int, int, int], tuple[int, int]] = {}
    for row in pq.read_table(facts.cells).to_pylist():
        assert row["payload_bytes"] is row["retransmitted_bytes"] is None
        key = row["flow"], row["window"] - T0 // MS, row["step"]
        packets, size = sums.get(key, (0, 0))
        sums[key] = packets + row["packets"], size + row["wire_bytes"]
    return sums


# --- what the lines say


def test_flows_and_windows(tmp_path: Path) -> None:
    back = {"src": "10.0.0.2", "dst": "10.0.0.1", "ports": (2222, 40000), "length": 66}
    facts = read(tmp_path, line(0.25), line(0.5, **back), line(0.75), line(2), bounds=(T0, T0 + 2 * MS))  # type: ignore[arg-type]
    assert flows(facts) == [
        ("10.0.0.1", "10.0.0.2", 6, 40000, 2222, 3, 4500, T0 + 250_000, T0 + 2 * MS),
        ("10.0.0.2", "10.0.0.1", 6, 2222, 40000, 1, 66, T0 + 500_000, T0 + 500_000),
    ]
    assert cells(facts) == {(0, 0, 0): (2, 3000), (1, 0, 0): (1, 66), (0, 2, 1): (1, 1500)}
    assert (facts.records, facts.wire_bytes, facts.first_ns, facts.last_ns) == (4, 4566, T0 + 250_000, T0 + 2 * MS)
    assert (facts.status, facts.format, facts.engine, facts.skipped) == (
        "complete",
        "tshark-fields",
        "tshark_fields",
        {},
    )


def test_what_a_line_does_not_tell_is_null(tmp_path: Path) -> None:
    (row,) = read(tmp_path, line()).flows.to_pylist()
    known = {"flow", "kept", "src_ip", "dst_ip", "protocol", "src_port", "dst_port", "first_seen_ns", "last_seen_ns",
             "packets", "wire_bytes", "followed", "gaps"}  # fmt: skip
    assert {name for name, value in row.items() if value is not None} == known


@pytest.mark.parametrize(
    ("time", "since_ns"),
    [
        ("Nov 20, 2026 10:50:09.000000001 CET", 1),
        ("Nov 20, 2026 09:50:09.636538000 UTC", 636_538_000),
        ("Nov 20, 2026 11:50:09.5 CEST", 500_000_000),
        ("2026-11-20T10:50:09.636538000+0100", 636_538_000),
        ("2026-11-20 09:50:09.000000000Z", 0),
        ("Nov  1, 2026 10:50:09.000000000 CET", -19 * 86_400 * 10**9),
        ("Nov 1, 2026 10:50:09.000000000 CET", -19 * 86_400 * 10**9),
    ],
)
def test_times(tmp_path: Path, time: str, since_ns: int) -> None:
    facts = read(tmp_path, "\t".join([time, *line().split("\t")[1:]]))
    assert (facts.first_ns, facts.remarks) == (T0 + since_ns, ())


@pytest.mark.parametrize(
    "time",
    ["", "soon", "1795168209.5", "Nov 20, 2026 10:50:09 CET", "Nov 20, 2026 10:50:09.5", "Nov 20, 2026 10:50:09.5 CST",
     "Nov 31, 2026 10:50:09.5 CET", "Nox 20, 2026 10:50:09.5 CET", "Nov 20, 2026 25:50:09.5 CET",
     "Jan 1, 1960 10:50:09.5 CET", "Nov 20, 2300 10:50:09.5 CET", "Nov 20, 2026 10:50:09.-5 CET",
     "Nov 20, 2026 10:50:09.1234567890 CET"],
)  # fmt: skip
def test_wrong_times_are_counted(tmp_path: Path, time: str) -> None:
    facts = read(tmp_path, line(), "\t".join([time, *line().split("\t")[1:]]))
    assert (facts.records, facts.skipped, facts.flows["packets"].to_pylist()) == (2, {"malformed": (1, 1500)}, [1])


@pytest.mark.parametrize(
    ("wrong", "wire_bytes"),
    [
        (line(length=-66), 0),
        (line(length=""), 0),
        (line(length="1e3"), 0),
        (line(length=2**32), 0),
        (line(length=10**40), 0),
        (line(src="10.0.0.256"), 1500),
        (line(src="10.0.0.1\0"), 1500),
        (line(src="fe80::1"), 1500),
        (line(ports=(70000, 1)), 1500),
        (line(ports=(-1, 1)), 1500),
        ("\0" * 100, 0),
        (b"\xff\xfe\t" * 9, 0),
        (line() + "\t", 0),
        ("no line", 0),
        ('"' + line(), 1500),
        ("x" * 100_000, 0),
    ],
)
def test_wrong_lines_are_counted_and_named(tmp_path: Path, wrong: str | bytes, wire_bytes: int) -> None:
    facts = read(tmp_path, line(), wrong, line())
    assert (facts.records, facts.wire_bytes) == (3, 3000 + wire_bytes)
    assert facts.skipped == {"malformed": (1, wire_bytes)}
    assert [(row[5], row[6]) for row in flows(facts)] == [(2, 3000)]
    (remark,) = facts.remarks
    assert remark.startswith("1 of 3 lines are not read, the first is ")
    assert len(remark) < 400


@pytest.mark.parametrize(
    "other",
    [
        line(src="", dst="", ports=("", "")),  # ARP, IPv6
        line(ports=("", "")),  # UDP
        line(src="10.0.0.1,10.0.0.9", dst="10.0.0.2,10.0.0.8"),  # a tunnel, an ICMP error
    ],
)
def test_packets_without_one_five_tuple(tmp_path: Path, other: str) -> None:
    facts = read(tmp_path, other, line(5))
    assert (facts.skipped, facts.first_ns, facts.remarks) == ({"no_five_tuple": (1, 1500)}, T0, ())
    assert [row[5] for row in flows(facts)] == [1]


def test_high_addresses_and_ports(tmp_path: Path) -> None:
    ends = ("255.255.255.254", "128.0.0.1", (65535, 0))
    (row,) = flows(read(tmp_path, line(0, *ends), line(1, *ends)))
    assert row[:6] == ("255.255.255.254", "128.0.0.1", 6, 65535, 0, 2)


def test_times_out_of_order(tmp_path: Path) -> None:
    facts = read(tmp_path, line(9), line(1), line(5))
    assert (facts.first_ns, facts.last_ns) == (T0 + MS, T0 + 9 * MS)
    assert flows(facts)[0][7:] == (T0 + MS, T0 + 9 * MS)
    assert cells(facts) == {(0, ms, -2): (1, 1500) for ms in (1, 5, 9)}


def test_columns_in_another_order(tmp_path: Path) -> None:
    def turned(text: str) -> str:
        return "\t".join(reversed(text.split("\t")))

    assert flows(read(tmp_path, turned(line()), header=turned(HEADER))) == flows(read(tmp_path, line()))


@pytest.mark.parametrize(
    "header", ["", "frame.time,ip.src", HEADER.replace("frame.len", "ip.len"), HEADER + "\tip.src"]
)
def test_other_columns(tmp_path: Path, header: str) -> None:
    facts = read(tmp_path, line(), header=header)
    assert (facts.format, facts.status, facts.records) == (None, "corrupt", 0)


def test_ends_in_a_line(tmp_path: Path) -> None:
    """As where the disk was full: the last line may have lost digits of its length."""
    facts = read(tmp_path, line(), line(1), end=b"")
    assert (facts.status, facts.trailing_bytes, facts.records) == ("truncated", len(line(1)), 1)


@pytest.mark.parametrize("size", [1, 7, 64, 1000])
def test_blocks_of_any_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    lines = [line(n, ports=(40000 + n % 3, 2222)) for n in range(60)]
    lines[20:20] = ["x" * 70_000, "", "wrong"] if size == 1000 else ["", "wrong"]
    whole = read(tmp_path, *lines)
    expected = flows(whole), cells(whole), whole.records, whole.skipped, whole.first_ns, whole.last_ns, whole.digests
    monkeypatch.setattr(capture_file, "BLOCK_BYTES", size)
    parts = read(tmp_path, *lines)
    assert (
        flows(parts),
        cells(parts),
        parts.records,
        parts.skipped,
        parts.first_ns,
        parts.last_ns,
        parts.digests,
    ) == expected


@pytest.mark.parametrize("lines", [(), ("",), ("\r",)])
def test_no_packets(tmp_path: Path, lines: tuple[str, ...]) -> None:
    facts = read(tmp_path, *lines)
    assert (facts.records, facts.status, facts.first_ns, facts.flows.num_rows, facts.cells) == (
        0,
        "complete",
        None,
        0,
        None,
    )


# --- in the folder of a run


def run_folder(top: Path, sample: Path, workers: int = 2) -> Path:
    """A run of the published layout with the captures of its first workers, and a log of the first."""
    source, folder = sample / "mpi-mlp1-sgd-32-openmpi-0ms-ring", top / "horovod-mobilenetv2-adam-64-mpi-normal-ring"
    (folder / parsed_files.FOLDER).mkdir(parents=True)
    for number in range(workers):
        packed = source / f"worker-{number + 1}-tcpdump.pcap.gz"
        (folder / f"worker-{number}-tcpdump.pcap").write_bytes(gzip.decompress(packed.read_bytes()))
    shutil.copy(source / "train_history.log", folder)
    return folder


def parse(folder: Path, zone: str) -> None:
    """What parsing_script.py does in a run's folder."""
    for path in folder.glob("*.pcap"):
        options = [word for field in FIELDS for word in ("-e", field)]
        text = subprocess.run(
            ["tshark", "-r", path, "-T", "fields", "-E", "header=y", *options],
            check=True, capture_output=True, env={**os.environ, "TZ": zone},
        ).stdout  # fmt: skip
        (folder / parsed_files.FOLDER / f"{path.stem}.csv").write_bytes(text)


def ingest(folder: Path, out: Path) -> tuple[ddnn_traces.Dataset, list[str]]:
    messages = Messages()
    pipeline.ingest([str(folder)], out, messages=messages)
    return ddnn_traces.open(out), messages.warnings


@pytest.mark.long
@pytest.mark.skipif(not shutil.which("tshark"), reason="tshark is not installed")
@pytest.mark.parametrize("zone", ["Europe/Berlin", "UTC"])
def test_tables_are_those_of_the_captures(tmp_path: Path, sample: Path, zone: str) -> None:
    """Where a parsed file has the facts; and where both are there the capture counts, once."""
    folder = run_folder(tmp_path, sample)
    parse(folder, zone)
    both, warnings = ingest(folder, tmp_path / "both")
    assert not any("parsed" in warning for warning in warnings)
    for path in folder.glob("*.pcap"):
        path.unlink()
    parsed, warnings = ingest(folder, tmp_path / "parsed")
    assert any("parsed files stand for 2 of 2 captures" in warning for warning in warnings)
    for query in (
        "SELECT flow_id, src_ip, dst_ip, protocol, src_port, dst_port, connection, packets, wire_bytes, first_seen_ns, "
        "last_seen_ns, reverse_flow_id FROM flows ORDER BY ALL",
        "SELECT window_start_ns, window_ns, flow_id, packets, wire_bytes FROM flow_windows ORDER BY ALL",
        "SELECT flow_id, worker, step, position, packets, wire_bytes FROM step_flows ORDER BY ALL",
        "SELECT records, wire_bytes, first_ns, last_ns, vantage_ip, status FROM captures ORDER BY ALL",
        "FROM hosts ORDER BY ALL",
        "FROM steps ORDER BY ALL",
    ):
        rows = both.sql(query).rows()
        assert rows, query
        assert parsed.sql(query).rows() == rows, query
    assert both.sql("SELECT DISTINCT format FROM captures").rows() == [("pcap-le",)]
    assert parsed.sql("SELECT DISTINCT format, engine FROM captures").rows() == [("tshark-fields", "tshark_fields")]
    assert parsed.sql("SELECT count(*) FROM messages").rows() == [(0,)]
    (unknown,) = parsed.sql(
        "SELECT count(payload_bytes), count(retransmitted_bytes), count(missed_bytes), count(syn_packets) FROM flows"
    ).rows()
    assert unknown == (0, 0, 0, 0)
    assert parsed.sql("SELECT count(payload_bytes), count(ce_packets) FROM flow_windows").rows() == [(0, 0)]
    assert {name for name, rows in run_checks(parsed).items() if rows.num_rows} == set()
    both.close()
    parsed.close()


def made(folder: Path, *numbers: int) -> None:
    """Parsed files of workers, 3 packets each to the next one."""
    place = folder / parsed_files.FOLDER
    place.mkdir(parents=True, exist_ok=True)
    for number in numbers:
        rows = [line(ms, f"10.10.0.{number + 1}", f"10.10.0.{number + 2}") for ms in (1, 2, 3)]
        (place / f"worker-{number}-tcpdump.csv").write_text("\n".join([HEADER, *rows, ""]))


def test_a_folder_of_parsed_files_is_a_run(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "kungfu_ssgd-resnet50-adam-64-kungfu-normal-TREE"
    made(folder, 0, 1)
    (folder / "parsed-files" / "joint_sent_received.json").write_text("{}")
    (folder / "train_history.log").write_text("Type,ID,Timestamp,Loss,Accuracy\nBatch,0,1795168209.002,1,1\n")
    dataset, _ = ingest(tmp_path / "runs", tmp_path / "dataset")
    with dataset:
        assert dataset.sql("SELECT run_id, framework, topology FROM runs").rows() == [
            (folder.name, "kungfu_ssgd", "tree")
        ]
        assert dataset.sql("SELECT capture_id, records, vantage_ip FROM captures ORDER BY ALL").rows() == [
            (f"parsed-files/worker-{n}-tcpdump.csv", 3, f"10.10.0.{n + 1}") for n in (0, 1)
        ]
        assert dataset.sql("SELECT label, rank FROM hosts WHERE label IS NOT NULL ORDER BY ALL").rows() == [
            ("worker-0", 0), ("worker-1", 1)
        ]  # fmt: skip
        assert dataset.sql("SELECT DISTINCT worker FROM steps").rows() == [("worker-0",)]


def test_only_the_missing_captures_are_from_parsed_files(tmp_path: Path, sample: Path) -> None:
    folder = run_folder(tmp_path, sample, workers=1)
    made(folder, 0, 1)
    dataset, warnings = ingest(folder, tmp_path / "dataset")
    with dataset:
        assert dataset.sql("SELECT capture_id, format FROM captures ORDER BY ALL").rows() == [
            ("parsed-files/worker-1-tcpdump.csv", "tshark-fields"), ("worker-0-tcpdump.pcap", "pcap-le")
        ]  # fmt: skip
        of_worker_1 = "SELECT payload_bytes, wire_bytes FROM flows WHERE src_ip = '10.10.0.2' AND src_port = 40000"
        assert dataset.sql(of_worker_1).rows() == [(None, 4500)]
        assert dataset.sql(
            "SELECT bool_and(payload_bytes IS NOT NULL) FROM flows WHERE src_ip = '10.10.0.1'"
        ).rows() == [(True,)]
        assert dataset.query("total_volume")["payload_bytes"].to_list() == [None]
        assert dataset.query("topology").select("topology", "problem").rows() == [
            ("unknown", "the payload of some flows is not known: parsed files stand for captures")
        ]
        assert any("parsed files stand for captures" in text for text in dataset.missing("total_volume"))
        assert dataset.query("jobs").is_empty()
        with pytest.raises(UsageError, match="parsed files stand for captures, so its transfers cannot be replayed"):
            simulators.load(dataset, simulators.ReplayOptions())
    assert any("parsed files stand for 1 of 2 captures" in warning for warning in warnings)


def test_a_file_with_other_columns_is_named(tmp_path: Path) -> None:
    made(tmp_path / "run", 0)
    wrong = tmp_path / "run" / parsed_files.FOLDER / "worker-1-tcpdump.csv"
    wrong.write_text("time\tlength\n1\t2\n")
    dataset, warnings = ingest(tmp_path / "run", tmp_path / "dataset")
    dataset.close()
    (warning,) = [text for text in warnings if "worker-1" in text]
    assert warning.startswith(f"{wrong}: not read, its first line does not have the columns")


def test_wrong_lines_are_a_warning_of_the_file(tmp_path: Path) -> None:
    made(tmp_path / "run", 0)
    path = tmp_path / "run" / parsed_files.FOLDER / "worker-0-tcpdump.csv"
    path.write_text(path.read_text() + line(length=-1) + "\n")
    dataset, warnings = ingest(tmp_path / "run", tmp_path / "dataset")
    with dataset:
        assert dataset.sql("SELECT reason, packets FROM capture_ledger ORDER BY ALL").rows() == [
            ("in_flows", 3), ("malformed", 1)
        ]  # fmt: skip
    (warning,) = [text for text in warnings if "lines are not read" in text]
    assert warning.startswith(f"{path}: 1 of 4 lines are not read, the first is ")


def test_a_changed_parsed_file_is_read_again(tmp_path: Path) -> None:
    made(tmp_path / "run", 0)
    ingest(tmp_path / "run", tmp_path / "dataset")[0].close()
    assert pipeline.ingest([str(tmp_path / "run")], tmp_path / "dataset", messages=Messages()) == []
    made(tmp_path / "run", 1)
    assert pipeline.ingest([str(tmp_path / "run")], tmp_path / "dataset", messages=Messages()) == ["run"]


def test_a_folder_without_either(tmp_path: Path) -> None:
    (tmp_path / parsed_files.FOLDER).mkdir()
    (tmp_path / parsed_files.FOLDER / "flow_cdf.json").write_text("{}")
    with pytest.raises(UsageError, match="no captures in this folder"):
        pipeline.ingest([str(tmp_path)], tmp_path / "dataset")
