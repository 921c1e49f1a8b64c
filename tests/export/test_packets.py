"""Back to the packets: a cut has exactly the records that the tables count, byte for byte, in the order of time.

What is expected is read in plain Python (naive/captures.py) from the original files, by the numbers of the records in
the table packets, which the code under test does not read.
"""

from __future__ import annotations

import gzip
import lzma
import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import naive.captures
import numpy as np
import packets as p
import polars as pl
import pytest
from captures_by_hand import CAPTURES, CONNECTIONS, FRAGMENTS, SHUT, TUNNELS, in_time
from cuts import cut, records_of
from hypothesis import given
from hypothesis import strategies as st
from readings import SAMPLE_RUNS
from small_runs import (
    BEGIN_NS,
    SPACING_NS,
    A,
    B,
    C,
    D,
    Packet,
    exchange,
    ingest,
    passing,
    received_by,
    ring,
    sent_by,
    write_captures,
    write_log,
)
from tools import RunCommand, mostly_long, mostly_nightly

import ddnn_traces
from ddnn_traces.errors import CaptureError, UsageError
from ddnn_traces.export import packets as cutting
from ddnn_traces.export.packets import Cut
from ddnn_traces.ingestors.sources import find_runs
from ddnn_traces.pcap import capture_file
from ddnn_traces.pcap.chosen import Piece
from ddnn_traces.pcap.chosen import in_time as merged
from ddnn_traces.query.dataset import Dataset

HOSTS = {"worker-1": A, "worker-2": B, "worker-3": C, "worker-4": D}


def plain(record: naive.captures.Record) -> tuple[int, int, bytes, int]:
    return record.time, record.wire, record.captured, record.link


def expected(dataset: Dataset, folder: Path, where: str) -> list[tuple[int, int, bytes, int]]:
    """The original records of rows of the table packets, in the order of time, then of file and record."""
    files = {path.relative_to(folder).as_posix(): records_of(path) for path in folder.rglob("*.*") if path.is_file()}
    sql = f"SELECT capture_id, record FROM packets WHERE {where} ORDER BY ts_ns, capture_id, record"
    return [plain(files[capture_id][record]) for capture_id, record in dataset.sql(sql).rows()]


def assert_cut(dataset: Dataset, folder: Path, out: Path, where: str, **selection: Any) -> Cut:
    """A cut has the records that are expected, and as many as the tables count."""
    done = cut(dataset, out, **selection)
    truth = expected(dataset, folder, where)
    assert [plain(record) for record in records_of(out)] == truth
    assert done.agrees, done
    assert (done.records, done.wire_bytes) == (len(truth), sum(wire for _, wire, *_ in truth))
    assert done.captured_bytes == sum(len(captured) for _, _, captured, _ in truth)
    return done


def assert_every_flow(dataset: Dataset, folder: Path, out: Path) -> None:
    """Each flow alone, and all together."""
    flows = [flow for (flow,) in dataset.sql("SELECT flow_id FROM flows ORDER BY flow_id").rows()]
    assert flows
    for flow in flows:
        assert_cut(dataset, folder, out, f"flow_id = {flow}", flows=[flow])
    assert_cut(dataset, folder, out, "true", flows=flows)


# --- which records


def damaged(data: bytes) -> bytes:
    return data[:-7]


FILES: dict[str, bytes] = {
    **CAPTURES,
    "every tunnel": p.pcap(in_time(*(p.ethernet(packet) for packet, _ in TUNNELS.values()))),
    "no tunnels": p.pcap(in_time(*(p.ethernet(packet) for packet in SHUT.values()))),
    "fragments": p.pcap(in_time(*FRAGMENTS)),
    "fragments, the first one last": p.pcap(in_time(*FRAGMENTS[::-1])),
    "fragments without a first one": p.pcapng(in_time(FRAGMENTS[1], FRAGMENTS[2], *FRAGMENTS[6:]), ">"),
    "gzip": gzip.compress(CAPTURES["vxlan"]),
    "xz of a pcapng": lzma.compress(CAPTURES["pcapng > 1"]),
    "cut short": damaged(CAPTURES["roce"]),
    "cut short, compressed": damaged(gzip.compress(CAPTURES["gre"])),
    "pcapng cut short": damaged(CAPTURES["pcapng < 1000"]),
    "connections": CONNECTIONS,
}
QUICK = ("pcapng > 1", "fragments, the first one last", "gzip", "cut short")


#: Each layout of a file, link header, tunnel and damage once; all others in make test-nightly.
FILES_BEFORE_THE_NIGHT = (
    *QUICK, "every tunnel",
    "pcap < 1", "pcapng < 1000", "vlan", "mpls in pppoe", "sll2", "interfaces", "raw 101",
    "ipv6 extension headers", "nested",
    "roce", "snaplen 60", "beyond 65,535 bytes, cut", "flags", "no tunnels", "fragments without a first one",
    "xz of a pcapng", "cut short, compressed", "pcapng cut short", "connections",
)  # fmt: skip


@pytest.mark.parametrize("name", mostly_nightly(mostly_long(FILES, *QUICK), *FILES_BEFORE_THE_NIGHT))
def test_the_records_of_every_flow(name: str, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "a.pcap").write_bytes(FILES[name])
    with ddnn_traces.ingest(tmp_path / "run", tmp_path / "dataset", packets=True) as dataset:
        assert_every_flow(dataset, tmp_path / "run", tmp_path / "cut.pcapng")


@pytest.mark.long
def test_tunnels_that_are_not_opened(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "a.pcap").write_bytes(FILES["every tunnel"])
    with ddnn_traces.ingest(tmp_path / "run", tmp_path / "dataset", packets=True, tunnels="outer") as dataset:
        assert_every_flow(dataset, tmp_path / "run", tmp_path / "cut.pcapng")


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "block"),
    [("plain", 64), ("gzip", 4099), ("pcapng", 64)]
    + [pytest.param(*other, marks=pytest.mark.nightly) for other in (("plain", 4099), ("gzip", 64), ("pcapng", 4099))],
)
def test_records_that_blocks_cut(name: str, block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And only the parts of a plain pcap that have wanted records are read again."""
    packets = [packet.record for packet in [*exchange([(A, B)], 300), *exchange([(A, C)], 5)]]
    data = {"plain": p.pcap(packets), "gzip": gzip.compress(p.pcap(packets)), "pcapng": p.pcapng(packets)}[name]
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "a.pcap").write_bytes(data)
    with ddnn_traces.ingest(tmp_path / "run", tmp_path / "dataset", packets=True) as dataset:
        monkeypatch.setattr(capture_file, "BLOCK_BYTES", block)
        monkeypatch.setattr(capture_file, "OUTPUT_BYTES", block)
        assert_every_flow(dataset, tmp_path / "run", tmp_path / "cut.pcapng")
        pair = cut(dataset, tmp_path / "cut.pcapng", pair=(A, C))
    if name == "plain":
        assert pair.copied_bytes < len(data) / 3


MIXES: dict[str, dict[str, list[Packet]]] = {
    "both ends": {f"{name}.pcap": list(filter(passing(ip), ring(A, B, C, D))) for name, ip in HOSTS.items()},
    "sent by each": {f"{name}.pcap": list(filter(sent_by(ip), ring(A, B, C, D))) for name, ip in HOSTS.items()},
    "received by each": {f"{name}.pcap": list(filter(received_by(ip), ring(A, B, C, D))) for name, ip in HOSTS.items()},
    "one end": {"worker-1.pcap": list(filter(passing(A), ring(A, B)))},
    "mirror port": {"mirror.pcap": ring(A, B, C)},
    "the sender lost some": {
        "worker-1.pcap": [packet for packet in ring(A, B, rounds=50) if packet.time_ns % 7],
        "worker-2.pcap": ring(A, B, rounds=50),
    },
    "rotated": {"worker-1.pcap": ring(A, B)[:7], "worker-1.pcap1": ring(A, B)[7:13], "worker-1.pcap2": ring(A, B)[13:]},
    "sender lost half": {
        "worker-1.pcap": [packet for i, packet in enumerate(filter(passing(A), ring(A, B, C))) if i % 3],
        "worker-2.pcap": list(filter(passing(B), ring(A, B, C))),
        "worker-3.pcap": list(filter(passing(C), ring(A, B, C))),
    },
}


@pytest.mark.long
@pytest.mark.parametrize("name", MIXES)
def test_only_the_copy_that_counts(name: str, tmp_path: Path) -> None:
    """With --filter too, which changes nothing for the flows that it keeps."""
    with ingest(tmp_path, MIXES[name], packets=True, filter="tcp") as dataset:
        assert_every_flow(dataset, tmp_path / "run", tmp_path / "cut.pcap")
        pair = assert_cut(
            dataset, tmp_path / "run", tmp_path / "cut.pcap",
            f"flow_id IN (SELECT flow_id FROM flows WHERE '{A}' IN (src_ip, dst_ip) AND '{B}' IN (src_ip, dst_ip))",
            pair=(A, B),
        )  # fmt: skip
    flows = ddnn_traces.read_pcap(tmp_path / "cut.pcap")
    assert (flows["packets"].sum(), flows["wire_bytes"].sum()) == (pair.records, pair.wire_bytes) == pair.expected


def test_only_captures_of_the_senders_are_read(tmp_path: Path) -> None:
    with ingest(tmp_path, MIXES["both ends"]) as dataset:
        flow = dataset.sql(f"SELECT flow_id FROM flows WHERE src_ip = '{B}' AND dst_ip = '{C}'").item()
        done = cut(dataset, tmp_path / "cut.pcap", flows=[flow])
    assert done.searched == ("worker-2.pcap",) and list(done.files) == ["worker-2.pcap"]


def test_where_the_senders_capture_does_not_count_the_others_are_read(tmp_path: Path) -> None:
    with ingest(tmp_path, MIXES["sender lost half"]) as dataset:
        flow = dataset.sql(f"SELECT flow_id FROM flows WHERE src_ip = '{A}' AND dst_ip = '{B}'").item()
        done = cut(dataset, tmp_path / "cut.pcap", flows=[flow])
    assert done.searched[0] == "worker-1.pcap" and list(done.files) == ["worker-2.pcap"] and done.agrees


# --- steps


def two_clocks(folder: Path) -> Path:
    """A run of workers whose steps do not begin at the same time, and traffic before and after."""
    packets = ring(A, B, C, rounds=60)
    run = write_captures(
        folder / "run", {f"worker-{n}.pcap": filter(passing(f"10.0.0.{n}"), packets) for n in (1, 2, 3)}
    )
    for worker, late in ((1, 0), (2, 7), (3, 14)):
        write_log(run, f"worker-{worker}", [BEGIN_NS + (50 + late + 40 * step) * SPACING_NS for step in range(4)])
    return run


@pytest.mark.parametrize("offset", [pytest.param("none", marks=pytest.mark.nightly), 0.000_1])
@pytest.mark.long
def test_a_step_is_that_of_the_worker_where_the_packets_were_captured(offset: Any, tmp_path: Path) -> None:
    run = two_clocks(tmp_path)
    with ddnn_traces.ingest(run, tmp_path / "dataset", packets=True, clock_offset=offset) as dataset:
        steps = dataset.sql(
            "SELECT step, sum(packets)::BIGINT, sum(wire_bytes)::BIGINT FROM step_flows WHERE step IS NOT NULL "
            "GROUP BY step ORDER BY step"
        ).rows()
        assert [step for step, *_ in steps] == [0, 1, 2, 3]
        dataset.sql(
            "CREATE TEMP VIEW bounds AS SELECT worker || '.pcap' AS capture_id, step, end_ns, "
            "lag(end_ns, 1, start_ns) OVER (PARTITION BY worker ORDER BY step) AS begin_ns FROM steps"
        )
        for step, packets, wire_bytes in steps:
            times = f"FROM bounds AS b WHERE b.capture_id = packets.capture_id AND step = {step}"
            where = f"ts_ns >= (SELECT begin_ns {times}) AND ts_ns < (SELECT end_ns {times})"
            done = assert_cut(dataset, run, tmp_path / "cut.pcap", where, step=step)
            assert (done.records, done.wire_bytes) == (packets, wire_bytes)
        for flow, step, packets in dataset.sql(
            "SELECT flow_id, step, packets FROM step_flows WHERE step IS NOT NULL"
        ).rows():
            assert cut(dataset, tmp_path / "cut.pcap", flows=[flow], step=step).records == packets
        pair = cut(dataset, tmp_path / "cut.pcap", pair=("worker-1", "worker-2"), step=0)
    assert pair.agrees and 0 < pair.records < steps[0][1]


#: A run of TensorFlow, and one captured at both ends; all others in make test-nightly.
BEFORE_THE_NIGHT = ("tf-mlp1-sgd-32-grpc-0ms-ps", "torch-mlp1-sgd-32-gloo-0ms-ring-both")


@pytest.mark.long
@pytest.mark.parametrize("run", mostly_nightly(SAMPLE_RUNS, *BEFORE_THE_NIGHT))
def test_every_step_and_pair_of_real_runs(run: str, sample_dataset: Dataset, tmp_path: Path) -> None:
    with ddnn_traces.open(sample_dataset.path, run) as dataset:
        steps = dataset.sql("SELECT DISTINCT step FROM step_flows WHERE step IS NOT NULL").to_series()
        pairs = dataset.sql("SELECT DISTINCT least(src_ip, dst_ip), greatest(src_ip, dst_ip) FROM flows").rows()
        selections = [*({"step": step} for step in steps), *({"pair": pair} for pair in pairs)]
        assert len(selections) > 4
        for selection in selections:
            assert cut(dataset, tmp_path / "cut.pcapng", **selection).agrees, selection


def test_a_run_with_both_ends_captured(sample_dataset: Dataset, tmp_path: Path) -> None:
    with ddnn_traces.open(sample_dataset.path, "torch-mlp1-sgd-32-gloo-0ms-ring-both") as dataset:
        step = cut(dataset, tmp_path / "step.pcap", step=2)
        volume = dataset.sql("SELECT sum(packets), sum(wire_bytes) FROM step_flows WHERE step = 2").row(0)
        assert (step.records, step.wire_bytes) == tuple(map(int, volume)) and len(step.files) == 4
        times = [record.time for record in records_of(tmp_path / "step.pcap")]
        assert times == sorted(times)
    flows = ddnn_traces.read_pcap(tmp_path / "step.pcap")
    assert (flows["packets"].sum(), flows["wire_bytes"].sum()) == (step.records, step.wire_bytes)


# --- order


@given(
    files=st.lists(st.lists(st.integers(0, 30), max_size=12), min_size=1, max_size=3),
    size=st.integers(1, 4),
)
def test_pieces_of_several_files_come_in_the_order_of_time(files: list[list[int]], size: int) -> None:
    """Also where the times of a file go back. Of the same time: in the order of files and records."""

    def pieces(number: int, times: list[int]) -> Iterator[Piece]:
        for begin in range(0, len(times), size):
            some = times[begin : begin + size]
            rows = np.array([(time, 3 * i, 3) for i, time in enumerate(some)], np.int64)
            data = bytes(byte for i, time in enumerate(some) for byte in (time, number, begin + i))
            yield Piece(rows, np.frombuffer(data, np.uint8))

    lags = [max((max(times[: i + 1]) - time for i, time in enumerate(times)), default=0) for times in files]
    parts = merged([(pieces(number, times), lag) for number, (times, lag) in enumerate(zip(files, lags, strict=True))])
    out = b"".join(part.tobytes() for part in parts)
    everything = sorted((time, number, i) for number, times in enumerate(files) for i, time in enumerate(times))
    assert [tuple(out[at : at + 3]) for at in range(0, len(out), 3)] == everything


def test_times_that_go_back(tmp_path: Path) -> None:
    packets = exchange([(A, B)], 20)
    mixed = [packets[i] for i in np.random.default_rng(7).permutation(len(packets))]
    with ingest(tmp_path, {"a.pcap": mixed}, packets=True) as dataset:
        assert_every_flow(dataset, tmp_path / "run", tmp_path / "cut.pcap")


# --- the output


def two_links(folder: Path) -> Path:
    ip = p.ipv4(p.tcp(b"x"))
    section = p.Section()
    packets = section.enhanced(10**15, p.ethernet(ip)) + section.enhanced(10**15 + 1, ip, interface=1)
    folder.mkdir()
    (folder / "a.pcapng").write_bytes(
        section.begin() + section.interface(p.ETHERNET) + section.interface(101) + packets
    )
    return folder


def test_several_link_types_need_a_pcapng(tmp_path: Path) -> None:
    run = two_links(tmp_path / "run")
    with ddnn_traces.ingest(run, tmp_path / "dataset", packets=True) as dataset:
        with pytest.raises(UsageError, match=r"cut\.pcap: a pcap has one link type.*1 and 101; name it \.pcapng"):
            cut(dataset, tmp_path / "cut.pcap", flows=[0])
        assert sorted(path.name for path in tmp_path.iterdir()) == ["dataset", "run"], "nothing half written"
        assert_cut(dataset, run, tmp_path / "cut.pcapng", "true", flows=[0])


def test_a_time_that_a_pcap_cannot_hold(tmp_path: Path) -> None:
    (tmp_path / "late.pcapng").write_bytes(p.pcapng([p.Record(2**32 * 10**9, p.segment())]))
    with ddnn_traces.ingest(tmp_path / "late.pcapng", tmp_path / "dataset") as dataset:
        with pytest.raises(UsageError, match=r"after 2106.*name the output \.pcapng"):
            cut(dataset, tmp_path / "cut.pcap", flows=[0])
        assert cut(dataset, tmp_path / "cut.pcapng", flows=[0]).agrees


def test_the_same_bytes_again(tmp_path: Path) -> None:
    with ingest(tmp_path, MIXES["both ends"]) as dataset:
        for name in ("one.pcapng", "two.pcapng"):
            cut(dataset, tmp_path / name, pair=(A, B))
    assert (tmp_path / "one.pcapng").read_bytes() == (tmp_path / "two.pcapng").read_bytes()


@pytest.mark.parametrize("name", ["cut.txt", "cut.pcap.gz", "cut"])
def test_an_output_of_another_kind_is_refused(name: str, tmp_path: Path) -> None:
    with (
        ingest(tmp_path, MIXES["one end"]) as dataset,
        pytest.raises(UsageError, match=r"name it \.pcap or \.pcapng"),
    ):
        cut(dataset, tmp_path / name, flows=[0])


def test_a_capture_of_the_run_is_never_replaced(tmp_path: Path) -> None:
    with ingest(tmp_path, MIXES["one end"]) as dataset:
        before = (tmp_path / "run" / "worker-1.pcap").read_bytes()
        with pytest.raises(UsageError, match="is a capture of run run, which would be lost"):
            cut(dataset, tmp_path / "run" / "worker-1.pcap", flows=[0])
    assert (tmp_path / "run" / "worker-1.pcap").read_bytes() == before


def test_an_interrupt_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any) -> Any:
        raise KeyboardInterrupt

    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "cut.pcap").write_bytes(b"old")
    with ingest(tmp_path, MIXES["one end"]) as dataset:
        monkeypatch.setattr(cutting._Writer, "write", interrupted)
        with pytest.raises(KeyboardInterrupt):
            cut(dataset, tmp_path / "out" / "cut.pcap", flows=[0])
    assert [path.read_bytes() for path in (tmp_path / "out").iterdir()] == [b"old"]


# --- where the captures are, and whether they are the same


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run of which a dataset is next to it."""
    ingest(tmp_path, MIXES["both ends"]).close()
    return tmp_path / "run"


def written(run: Path, **options: Any) -> Cut:
    return ddnn_traces.write_packets(run.parent / "dataset", run.parent / "cut.pcap", flow=0, **options)


def test_captures_and_dataset_moved_together(run: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    for name in ("run", "dataset"):
        (tmp_path / name).rename(tmp_path / "elsewhere" / name)
    assert written(tmp_path / "elsewhere" / "run").agrees


def test_captures_that_were_moved(run: Path, tmp_path: Path) -> None:
    run.rename(tmp_path / "archive")
    with pytest.raises(UsageError, match=r"/run/worker-1\.pcap: no such file; name with `captures` the folder"):
        written(run)
    assert written(run, captures=tmp_path / "archive").agrees
    (tmp_path / "archive" / "worker-1.pcap").unlink()
    with pytest.raises(UsageError, match=r"worker-1\.pcap of run run is not in .*/archive; name with `captures`"):
        written(run, captures=tmp_path / "archive")


def test_an_ingest_in_another_place_tells_where_they_are(run: Path, tmp_path: Path) -> None:
    """Although the run is unchanged, and not read again."""
    run.rename(tmp_path / "moved")
    (tmp_path / "sub").mkdir()
    (tmp_path / "moved").rename(tmp_path / "sub" / "run")
    ddnn_traces.ingest(tmp_path / "sub" / "run", tmp_path / "dataset").close()
    assert written(run).agrees


def test_a_file_of_another_time_is_hashed(run: Path) -> None:
    os.utime(run / "worker-1.pcap", ns=(1, 1))
    assert written(run).files == {"worker-1.pcap": "size and blake3"}


@pytest.mark.parametrize("change", ["size", "content"])
def test_a_changed_file_is_refused(change: str, run: Path) -> None:
    data = (run / "worker-1.pcap").read_bytes()
    (run / "worker-1.pcap").write_bytes(data + b"x" if change == "size" else data[:-1] + b"x")
    why = "bytes, then" if change == "size" else "another blake3"
    with pytest.raises(
        CaptureError, match=rf"worker-1\.pcap: is not the file that was ingested \(.*{why}.*ingest again"
    ):
        written(run)
    assert not (run.parent / "cut.pcap").exists()


def test_a_file_that_was_not_hashed(tmp_path: Path) -> None:
    ingest(tmp_path, MIXES["one end"], hash="none").close()
    run = tmp_path / "run"
    assert written(run).files == {"worker-1.pcap": "size and time"}
    os.utime(run / "worker-1.pcap", ns=(1, 1))
    with pytest.raises(CaptureError, match=r"another time.*was not hashed then \(`hash` none\).*ingest it again"):
        written(run)


@pytest.mark.parametrize("options", [{"layout": "{run}/{host}/*.pcap"}, {"run_id": "job"}])
@pytest.mark.long_after(1)
def test_folders_of_hosts(options: dict[str, str], tmp_path: Path) -> None:
    for host, ip in (("nodeA", A), ("nodeB", B)):
        write_captures(tmp_path / "in" / "job" / host, {"eth0.pcap": filter(passing(ip), ring(A, B))})
    ddnn_traces.ingest(tmp_path / "in", tmp_path / "dataset", **options).close()
    assert find_runs([str(tmp_path / "in")])[0].run_id == "nodeA"
    assert written(tmp_path / "in").agrees
    shutil.move(tmp_path / "in", tmp_path / "moved")
    assert written(tmp_path / "in", captures=[tmp_path / "moved"]).agrees


def test_a_bare_capture(tmp_path: Path) -> None:
    write_captures(tmp_path / "files", {"trace.pcap": ring(A, B), "other.pcap": ring(C, D)})
    ddnn_traces.ingest(tmp_path / "files" / "trace.pcap", tmp_path / "dataset").close()
    assert written(tmp_path / "files").agrees


# --- wrong calls


@pytest.fixture(scope="module")
def both_ends(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of one run. Not to be changed."""
    folder = tmp_path_factory.mktemp("both-ends")
    ingest(folder, MIXES["both ends"]).close()
    return folder / "dataset"


@pytest.mark.parametrize(
    ("selection", "message"),
    [
        ({}, "which packets"),
        ({"pair": (A,)}, "give two hosts"),
        ({"pair": (A, B, C)}, "give two hosts"),
        ({"pair": (A, "")}, "give two hosts"),
        ({"flows": [99]}, "run run has no flow 99; it has 0 to 7"),
        ({"flows": [-1]}, "run run has no flow -1"),
        ({"pair": (A, "worker-9")}, "no host worker-9; did you mean worker-"),
        ({"pair": (A, "X1")}, f"no host X1; there are: worker-1.*{A}"),
        ({"pair": (A, "10.9.9.9")}, r"no host 10\.9\.9\.9"),
        ({"pair": (A, C)}, "no packets of pair"),
        ({"step": 0}, "no training log, so it has no logged steps; --infer-steps takes those that its traffic shows"),
    ],
)
def test_a_wrong_selection_is_one_line_with_the_next_step(
    selection: dict[str, Any], message: str, both_ends: Path, tmp_path: Path
) -> None:
    with ddnn_traces.open(both_ends) as dataset, pytest.raises(UsageError, match=message) as error:
        cut(dataset, tmp_path / "cut.pcap", **selection)
    assert "\n" not in str(error.value) and not (tmp_path / "cut.pcap").exists()


@pytest.mark.long
def test_a_step_of_a_run_without_a_log_is_inferred(tmp_path: Path) -> None:
    """Its packets are those from the end of the step before to its own end, at all hosts."""
    run = tmp_path / "run"
    packets = [
        replace(packet, time_ns=packet.time_ns + step * 100_000_000)
        for step in range(10)
        for packet in ring(A, B, C, D, rounds=100)
    ]
    write_captures(run, {f"{name}.pcap": filter(passing(host), packets) for name, host in HOSTS.items()})
    with ddnn_traces.ingest(run, tmp_path / "dataset", packets=True) as dataset:
        (begin_ns, end_ns) = dataset.query("inferred_steps").filter(pl.col("step").is_in([2, 3]))["end_ns"].to_list()
    with ddnn_traces.open(tmp_path / "dataset", infer_steps=True) as dataset:
        where = f"ts_ns >= {begin_ns} AND ts_ns < {end_ns}"
        assert assert_cut(dataset, run, tmp_path / "cut.pcap", where, step=3).records > 100
        with pytest.raises(UsageError, match="has no step 10; it has 0 to 9"):
            cut(dataset, tmp_path / "cut.pcap", step=10)


def test_a_run_without_sure_steps_is_said_to_be_so_once(command: RunCommand, both_ends: Path) -> None:
    done = command("packets", both_ends, "--step", "0", "--infer-steps", "--out", "cut.pcap")
    assert done.returncode == 2
    assert done.stderr.count(b"no sure steps in the traffic") == 1
    assert done.stderr.endswith(b"write the packets of a --pair or --flow\n")


@pytest.mark.parametrize("step", [4, -1])
def test_an_unknown_step(step: int, tmp_path: Path) -> None:
    ddnn_traces.ingest(two_clocks(tmp_path), tmp_path / "dataset").close()
    with pytest.raises(UsageError, match=rf"has no step {step}; it has 0 to 3"):
        ddnn_traces.write_packets(tmp_path / "dataset", tmp_path / "cut.pcap", step=step)


def test_runs_without_files(command: RunCommand, process: RunCommand, tmp_path: Path) -> None:
    data = p.pcap(packet.record for packet in ring(A, B))
    assert process("ingest", "-", "--out", "piped", stdin=data).returncode == 0
    (tmp_path / "jobs.toml").write_text("model_bytes = 9000000\nlayers = 20\n[[jobs]]\n[[jobs]]\nstart_ms = 50\n")
    assert command("simulate", "run", "jobs.toml", "--out", "made").returncode == 0
    cases: dict[str, tuple[list[str], str]] = {
        "piped": (["piped"], "was read from standard input, so no file is known that has its packets"),
        "simulated": (["made", "--run", "job-1"], "has no captures (source simulation)"),
        "several": (["made"], "choose one run with --run, in Python runs=[NAME]; made has "),
        "unknown": (["made", "--run", "nothing"], "no run named nothing"),
        "no dataset": (["nowhere"], "no such dataset"),
    }
    for arguments, message in cases.values():
        done = command("packets", *arguments, "--flow", "0", "--out", "cut.pcap")
        said = done.stderr.decode()
        assert (done.returncode, done.stdout, said.count("\n")) == (2, b"", 1) and message in said, said


# --- the command


def test_the_command_prints_the_filter_and_says_what_it_did(command: RunCommand, run: Path, tmp_path: Path) -> None:
    done = command("packets", "dataset", "--pair", f"W1,{B}", "--out", "cut.pcap")
    said = done.stderr.decode()
    assert done.returncode == 0, said
    assert done.stdout.decode() == f"ip.addr == {A} && ip.addr == {B}\n"
    size = sum((run / f"worker-{n}.pcap").stat().st_size for n in (1, 2))
    assert f"found by a scan of 2 of the run's captures (worker-1.pcap, worker-2.pcap; {size:,} bytes)" in said
    assert "unchanged since the ingest by size and time: worker-1.pcap, worker-2.pcap" in said
    assert "wrote cut.pcap: 10 records of" in said and "as many as the table flows has" in said
    assert len(records_of(tmp_path / "cut.pcap")) == 10


def test_standard_output_is_a_pcapng(command: RunCommand, run: Path, tmp_path: Path) -> None:
    done = command("packets", "dataset", "--flow", "0", "--flow", "1", "--out", "-")
    (tmp_path / "piped.pcapng").write_bytes(done.stdout)
    assert len(records_of(tmp_path / "piped.pcapng")) == 10
    assert "ip.src == 10.0.0.1" in done.stderr.decode()
    refused = command("packets", "dataset", "--flow", "99", "--out", "-")
    assert (refused.returncode, refused.stdout) == (2, b"")


def test_a_cut_that_differs_from_the_tables_is_said(
    command: RunCommand, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cutting._Wanted, "expected", property(lambda _: (6, 1000)))
    done = command("packets", "dataset", "--flow", "0", "--out", "cut.pcap")
    assert done.returncode == 1
    assert "warning: cut.pcap: has 5 records of" in done.stderr.decode()
    assert "but the tables count 6 packets of 1,000: another version" in done.stderr.decode()


def test_a_cut_next_to_the_captures_is_warned_of(command: RunCommand, run: Path) -> None:
    done = command("packets", "dataset", "--flow", "0", "--out", "run/cut.pcap")
    assert done.returncode == 0 and "an ingest of that folder would take it for one more" in done.stderr.decode()


def test_a_release_is_refused(tmp_path: Path, command: RunCommand) -> None:
    """Its addresses are others than those of the captures."""
    ours = Path(__file__).parents[2] / "data" / "dataset"
    with ddnn_traces.open(ours) as release:
        run = release.run_ids[0]
    done = command("packets", ours, "--run", run, "--flow", "0", "--out", "cut.pcap")
    assert (
        done.returncode == 2 and "is a release, whose addresses are not those of the captures" in done.stderr.decode()
    )
