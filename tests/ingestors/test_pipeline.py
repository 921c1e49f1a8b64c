"""Ingest, end to end: the same bytes for the same inputs, and an old dataset that stays whole whatever happens."""

from __future__ import annotations

import errno
import gzip
import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import duckdb
import packets as p
import pyarrow.parquet as pq
import pytest
from blake3 import blake3
from small_runs import (
    BEGIN_NS,
    A,
    B,
    C,
    contradictions,
    counted,
    hashes_of,
    ingest_frames,
    ring,
    sent,
    sent_by,
    write_captures,
    write_log,
)
from tools import mostly_long

import ddnn_traces
from ddnn_traces.errors import CaptureError, MetadataError, UsageError
from ddnn_traces.ingestors import pipeline
from ddnn_traces.ingestors import runs as runs_module
from ddnn_traces.ingestors.facts import CaptureFacts, ReadOptions
from ddnn_traces.ingestors.options import IngestOptions
from ddnn_traces.ingestors.packets import numba_engine
from ddnn_traces.messages import Messages
from ddnn_traces.query import checks, views
from ddnn_traces.query.dataset import Dataset
from ddnn_traces.store import schema, writer
from ddnn_traces.store.parquet import part, partition


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Run folders one and two."""
    for name, hosts in (("one", (A, B)), ("two", (A, B, C))):
        packets = ring(*hosts)
        files = {f"worker-{n}.pcap": list(filter(sent_by(host), packets)) for n, host in enumerate(hosts, 1)}
        write_captures(tmp_path / "runs" / name, files)
    return tmp_path / "runs"


#: Hosts with names that are not usual ones.
NAMES = [(A, "alice"), (B, "rack-7b")]


def ingest(*sources: Path, out: Path, **options: Any) -> list[str]:
    """Warnings of an ingest."""
    messages = Messages()
    pipeline.ingest([str(source) for source in sources], out, IngestOptions(**options), messages)
    return messages.warnings


# --- the same inputs give the same bytes


@pytest.mark.long
def test_sample_twice(sample: Path, sample_dataset: Dataset, tmp_path: Path) -> None:
    ddnn_traces.ingest(sorted(sample.iterdir(), reverse=True), tmp_path / "again").close()
    assert hashes_of(tmp_path / "again") == hashes_of(sample_dataset.path)


@pytest.mark.long
def test_wherever_the_inputs_lie(runs: Path, tmp_path: Path) -> None:
    shutil.copytree(runs, tmp_path / "elsewhere" / "copy")
    ingest(runs, out=tmp_path / "first")
    ingest(tmp_path / "elsewhere" / "copy", out=tmp_path / "second")
    assert hashes_of(tmp_path / "first") == hashes_of(tmp_path / "second")


@pytest.mark.long
def test_run_by_run_or_at_once(runs: Path, tmp_path: Path) -> None:
    ingest(runs, out=tmp_path / "at once")
    ingest(runs / "two", out=tmp_path / "run by run")
    ingest(runs / "one", out=tmp_path / "run by run")
    assert hashes_of(tmp_path / "at once") == hashes_of(tmp_path / "run by run")


@pytest.mark.parametrize("jobs", [2, 3, 16])
@pytest.mark.long_after(1)
def test_whatever_the_number_of_jobs(runs: Path, tmp_path: Path, jobs: int) -> None:
    (runs / "one" / "worker-2.pcap").write_bytes(GOOD[:-1])
    (runs / "two" / "worker-1.pcap").write_bytes(b"nothing")
    first = ingest(runs, out=tmp_path / "first", jobs=1)
    assert ingest(runs, out=tmp_path / "second", jobs=jobs) == first
    assert len(first) == 2
    assert hashes_of(tmp_path / "first") == hashes_of(tmp_path / "second")


def test_whichever_file_is_read_first(runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first file is read last, and reported first."""
    ingest(runs, out=tmp_path / "first")
    read = numba_engine.read_capture
    others = threading.Semaphore(0)

    def first_waits(path: Path, options: ReadOptions) -> CaptureFacts:
        if path == runs / "one" / "worker-1.pcap":
            for _ in range(3):
                assert others.acquire(timeout=60)
        facts = read(path, options)
        others.release()
        return facts

    monkeypatch.setattr(numba_engine, "read_capture", first_waits)
    messages = Lines()
    pipeline.ingest([str(runs)], tmp_path / "second", IngestOptions(jobs=2), messages)
    files = ["one/worker-1.pcap", "one/worker-2.pcap", "two/worker-1.pcap", "two/worker-2.pcap", "two/worker-3.pcap"]
    assert [line.split(":")[0] for line in messages.files] == files
    assert hashes_of(tmp_path / "first") == hashes_of(tmp_path / "second")


class Lines(Messages):
    """The lines about files, and all the others."""

    def __init__(self) -> None:
        super().__init__()
        self.files: list[str] = []
        self.lines: list[str] = []

    def summarize(self, line: str) -> None:
        self.files.append(line)

    def info(self, message: str) -> None:
        self.lines.append(message)


@pytest.mark.parametrize(("jobs", "files", "inside"), [(1, 5, 1), (2, 5, 1), (16, 5, 3), (7, 1, 7)])
@pytest.mark.long_after(1)
def test_jobs_that_no_file_needs_work_inside_the_files(
    runs: Path, tmp_path: Path, jobs: int, files: int, inside: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = numba_engine.read_capture
    given = []

    def note_jobs(path: Path, options: ReadOptions) -> CaptureFacts:
        given.append(options.jobs)
        return read(path, options)

    monkeypatch.setattr(numba_engine, "read_capture", note_jobs)
    ingest(*sorted(runs.rglob("*.pcap"))[:files], out=tmp_path / "dataset", jobs=jobs)
    assert given == [inside] * files


# --- what is in the files


def test_layout_is_one_file_a_table_and_run(sample_dataset: Dataset) -> None:
    expected = {
        str(partition(Path(), table, run_id) / "part-0.parquet")
        for table in schema.TABLES
        for run_id in sample_dataset.run_ids
    }
    assert hashes_of(sample_dataset.path).keys() == expected | {"dataset.json", "inputs.json", "checksums.json"}
    assert (sample_dataset.path / views.FILE).is_file()


@pytest.fixture(scope="module")
def every_table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset with rows in the tables that the sample leaves empty."""
    top = tmp_path_factory.mktemp("every_table")
    tunneled = p.vxlan(p.ethernet(p.ipv4(p.tcp(bytes(9)))))
    datagrams = [p.udp(p.roce(opcode=opcode), 50000, p.ROCE_PORT) for opcode in (17, 4)]
    datagrams += [p.udp(tunneled, 50000 - i, p.VXLAN_PORT) for i in (0, 1)]
    frames = [p.ethernet(p.ipv4(datagram, A, B, p.UDP)) for datagram in datagrams]
    with ingest_frames(top, {"b.pcap": frames, "a.pcap": frames[:3]}, packets=True) as dataset:
        assert contradictions(dataset) == {}
        return dataset.path


@pytest.mark.parametrize("table", schema.TABLES)
@pytest.mark.long_after(4)
def test_files_have_the_schema_their_order_and_a_page_index(
    sample_dataset: Dataset, every_table: Path, table: str
) -> None:
    wanted = schema.table(table)
    paths = [*(sample_dataset.path / table).glob("*/*.parquet"), *(every_table / table).glob("*/*.parquet")]
    assert max(pq.read_metadata(path).num_rows for path in paths) > 0
    for path in sorted(paths):
        file = pq.ParquetFile(path)
        assert file.schema_arrow.equals(wanted.arrow())
        for i, column in enumerate(wanted.columns):
            notes = file.schema_arrow.field(i).metadata
            assert notes[b"meaning"].decode() == column.meaning
            assert notes[b"unit"].decode() == column.unit
        rows = file.read().select(wanted.key).to_pylist()
        keys = [tuple((row[name] is not None, row[name]) for name in wanted.key) for row in rows]
        assert keys == sorted(set(keys)), path
        for group in range(file.num_row_groups if rows else 0):  # nothing has no pages
            first = file.metadata.row_group(group).column(0)
            assert (first.has_column_index, first.has_offset_index) == (True, True)
            assert first.compression == "ZSTD"


def test_provenance(sample: Path, sample_dataset: Dataset) -> None:
    run_id = sample_dataset.run_ids[0]
    captures = (sample / run_id).glob("*.pcap*")
    inputs = {path.name: f"blake3:{blake3(path.read_bytes()).hexdigest()}" for path in captures}
    for table in schema.TABLES:
        path = partition(sample_dataset.path, table, run_id) / "part-0.parquet"
        stated = {key.decode(): value.decode() for key, value in pq.read_schema(path).metadata.items()}
        assert stated["ddnn_traces.version"] == ddnn_traces.__version__
        assert stated["ddnn_traces.schema_version"] == str(schema.SCHEMA_VERSION)
        assert json.loads(stated["ddnn_traces.inputs"]) == inputs
        assert json.loads(stated["ddnn_traces.parameters"]) == {
            "engine": "numba",
            "window_ns": 1_000_000,
            "tunnels": "inner",
            "packets": False,
            "filter": None,
            "clock_offset": "offer",
        }


# --- several ingests


def test_second_ingest_adds_replaces_and_keeps(runs: Path, tmp_path: Path) -> None:
    out = tmp_path / "dataset"
    ingest(runs, out=out)
    before = hashes_of(out)
    changed = ring(B, C)
    write_captures(runs / "three", {"a.pcap": ring(A, C)})
    shutil.rmtree(runs / "two")
    write_captures(runs / "two", {"b.pcap": changed})
    ingest(runs / "two", runs / "three", out=out)
    after = hashes_of(out)
    with ddnn_traces.open(out) as dataset:
        assert dataset.run_ids == ["one", "three", "two"]
        assert dataset.sql("SELECT capture_id FROM captures WHERE run_id = 'two'").rows() == [("b.pcap",)]
        assert contradictions(dataset) == {}
    assert {name: sha for name, sha in after.items() if "run_id=one" in name} == {
        name: sha for name, sha in before.items() if "run_id=one" in name
    }


# --- wrong calls


@pytest.mark.parametrize("window_ms", [0.0, -1.0, 1e-9, float("nan"), float("inf"), 1e300])
def test_invalid_windows(runs: Path, tmp_path: Path, window_ms: float) -> None:
    with pytest.raises(UsageError, match=r"window of .* ms"):
        ingest(runs, out=tmp_path / "dataset", window_ms=window_ms)


def test_unknown_engine(runs: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no engine named steam; there are numba, pyshark"):
        ingest(runs, out=tmp_path / "dataset", engine="steam")


def test_metadata_that_is_wrong_leaves_out_the_run(runs: Path, tmp_path: Path) -> None:
    """And does not change what the dataset has of it; without any other run nothing is written."""
    (runs / "two" / "run.toml").write_text("workers = 'many'")
    (said,) = ingest(runs, out=tmp_path / "dataset")
    assert said.startswith(f"{runs}/two/run.toml: workers = 'many' is not of type int")
    assert said.endswith("; run two is left out")
    with ddnn_traces.open(tmp_path / "dataset") as dataset:
        assert dataset.run_ids == ["one"]
    shutil.copy2(runs / "two" / "run.toml", runs / "one")
    for sources in ((runs,), (runs / "two",)):
        with pytest.raises(MetadataError, match=r"two/run\.toml: workers"):
            ingest(*sources, out=tmp_path / "other")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dataset", "runs"]


def test_what_is_left_out_is_named(runs: Path, tmp_path: Path) -> None:
    """Links that lead nowhere, pipes, which are never opened, and rows of runs.csv without a folder."""
    (runs / "three").symlink_to("gone")
    (runs / ".hidden").symlink_to("gone")
    os.mkfifo(runs / "one" / "worker-3.pcap")
    (runs / "runs.csv").write_text(f"run_id,workers\none,2\nthree,2\nfour,2\n{'x' * 3000},1\n")
    said = ingest(runs, out=tmp_path / "dataset")
    assert said == [
        f"{runs}/three: a link to gone, which is not there; correct or remove it",
        f"{runs}/one/worker-3.pcap: a pipe, which is not read; a capture from one is named as a source",
        f"{runs}/runs.csv: 3 rows without a folder of that name next to it: 'three', 'four', '{'x' * 96}...; correct "
        "run_id, or remove such rows",
    ]
    assert ingest(f"{runs}/*", out=tmp_path / "dataset")[0] == said[0]
    assert ingest(f"{runs}/one/*", out=tmp_path / "dataset")[0] == said[1]


def test_unreadable_file(runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is marked, and the others are kept."""
    read = numba_engine.read_capture

    def refuse(path: Path, options: ReadOptions) -> CaptureFacts:
        if path.name == "worker-1.pcap":
            raise PermissionError(13, "Permission denied")
        return read(path, options)

    monkeypatch.setattr(numba_engine, "read_capture", refuse)
    messages = Messages()
    pipeline.ingest([str(runs)], tmp_path / "dataset", messages=messages)
    assert all("worker-1.pcap: corrupt: cannot be read (Permission denied)" in warning for warning in messages.warnings)
    assert messages.warnings
    with ddnn_traces.open(tmp_path / "dataset") as dataset:
        marked = dataset.sql("SELECT DISTINCT capture_id, engine FROM captures WHERE status = 'corrupt'")
        assert marked.rows() == [("worker-1.pcap", "none")]
        assert dataset.sql("SELECT count(*) FROM flows").item() > 0


# --- partial data: what could be read is kept and marked

GOOD = p.pcap(packet.record for packet in ring(A, B))
RECORD = 16 + len(ring(A, B)[-1].record.frame)


@pytest.mark.parametrize(
    ("content", "status", "records", "message"),
    [
        (GOOD[:-1], "truncated", len(ring(A, B)) - 1, "last record cut short"),
        (GOOD[: -RECORD + 5], "truncated", len(ring(A, B)) - 1, "last record cut short"),
        (GOOD + b"\xff" * 400, "corrupt", len(ring(A, B)), "no sane record header"),
        (b"", "truncated", 0, "empty"),
        (GOOD[:10], "truncated", 0, "cut short inside the pcap file header"),
        (b"This is no capture at all, but text.", "corrupt", 0, "not a capture"),
        (GOOD[:4] + b"\1\0\0\0" + GOOD[8:], "corrupt", 0, "pcap of version 1.0, only 2 is read"),
        (GOOD[:4] + b"\x1f\2\0\0" + GOOD[8:], "corrupt", 0, "pcap of version 543.0, only 2 is read"),
    ],
)
@pytest.mark.long_after(4)
def test_damage(tmp_path: Path, content: bytes, status: str, records: int, message: str) -> None:
    folder = write_captures(tmp_path / "run", {"good.pcap": ring(C, B)})
    (folder / "bad.pcap").write_bytes(content)
    (warning,) = ingest(folder, out=tmp_path / "dataset")
    assert warning.startswith(f"{folder / 'bad.pcap'}: {status}: ")
    assert message in warning
    assert warning.endswith("; copy it again, or leave it out")
    with ddnn_traces.open(tmp_path / "dataset") as dataset:
        found = "SELECT status, records, status_detail IS NULL FROM captures ORDER BY capture_id"
        assert dataset.sql(found).rows() == [(status, records, False), ("complete", 20, True)]
        assert counted(dataset) == sent([*ring(C, B), *ring(A, B)[:records]])
        assert contradictions(dataset) == {}


def test_a_bad_row_of_runs_csv_is_reported_and_the_runs_are_read(runs: Path, tmp_path: Path) -> None:
    """Again by the next ingest, which reads no run again, until the row is corrected."""
    (runs / "runs.csv").write_text("run_id,batch_size\none,32\ntwo,many\n")
    out = tmp_path / "dataset"
    said = f"{runs / 'runs.csv'}: line 3: run 'two': batch_size = 'many' is not of type int; change it"
    assert ingest(runs, out=out) == ingest(runs, out=out) == [f"{said}; the row is not used"]
    (runs / "runs.csv").write_text("run_id,batch_size\none,32\ntwo,64\n")
    assert ingest(runs, out=out) == []
    with ddnn_traces.open(out) as dataset:
        assert dataset.sql("SELECT run_id, batch_size FROM runs ORDER BY run_id").rows() == [("one", 32), ("two", 64)]


# --- names and paths


@pytest.mark.views
@pytest.mark.long
def test_equals_signs_above_the_dataset(tmp_path: Path) -> None:
    """Readers of Hive partitions take a folder step=3 for a column: the one in the file has to win."""
    folder = write_captures(tmp_path / "run", {"worker-1.pcap": ring(A, B)})
    rows = "".join(f"batch,{i},{BEGIN_NS / 1e9 + i / 1e4:.6f},1,1\n" for i in range(1, 4))
    (folder / "train_history-worker-1.log").write_text(f"Type,ID,Timestamp,Loss,Accuracy\n{rows}")
    out = tmp_path / "step=7" / "run_id=x" / "a=b"
    assert ingest(folder, out=out, clock_offset="none") == []
    with ddnn_traces.open(out) as dataset:
        assert dataset.sql("SELECT run_id, step FROM steps ORDER BY step").rows() == [("run", i) for i in range(3)]
        assert counted(dataset) == sent(ring(A, B))
        assert contradictions(dataset) == {}
    with duckdb.connect(out / "traces.duckdb") as connection:
        assert connection.execute("SELECT DISTINCT run_id FROM flows").fetchall() == [("run",)]
    release = tmp_path / "step=7" / "release"
    for table in schema.TABLES:
        (release / table).mkdir(parents=True)
        shutil.copy(partition(out, table, "run") / "part-0.parquet", release / part(table, 0))
    with duckdb.connect() as connection:  # as a release's own database does
        connection.execute(f"SET file_search_path = '{release}'")
        views.define_relative(connection, schema.TABLES)
        found = connection.execute("SELECT run_id, step FROM steps ORDER BY step").fetchall()
        assert found == [("run", i) for i in range(3)]


@pytest.mark.parametrize("name", [b"dataset\xff", b"back\\slash"])
def test_a_dataset_s_path_that_duckdb_cannot_open(runs: Path, tmp_path: Path, name: bytes) -> None:
    with pytest.raises(UsageError, match="choose another name"):
        ingest(runs, out=tmp_path / os.fsdecode(name))


@pytest.mark.parametrize("name", ["n" * 248, "実" * 28, "実" * 82, "%" * 80, "ö" * 100 + " ="])
@pytest.mark.long_after(1)
def test_long_names(tmp_path: Path, name: str) -> None:
    folder = write_captures(tmp_path / name, {"worker-1.pcap": ring(A, B)})
    assert ingest(folder, out=tmp_path / "dataset") == []
    assert ingest(folder, out=tmp_path / "dataset") == []
    with ddnn_traces.open(tmp_path / "dataset") as dataset:
        assert dataset.sql("SELECT run_id FROM runs").rows() == [(name,)]
    with ddnn_traces.open(tmp_path / "dataset", [name]) as dataset:
        assert counted(dataset) == sent(ring(A, B))


@pytest.mark.parametrize("name", ["n" * 249, "実" * 83, "\x1b" * 100])
def test_a_name_that_is_too_long_is_refused_before_anything_is_read(tmp_path: Path, name: str) -> None:
    folder = write_captures(tmp_path / name, {"worker-1.pcap": ring(A, B)})
    with pytest.raises(UsageError, match="ingest it by itself with a shorter --run-id"):
        ingest(folder, out=tmp_path / "dataset")
    assert ingest(folder, out=tmp_path / "dataset", run_id="short") == []


def test_names_of_files_that_are_not_utf_8(tmp_path: Path) -> None:
    """Names that differ only in such bytes stay different."""
    names = [os.fsdecode(name) for name in (b"a\xff.pcap", b"a\xfe.pcap", b"a\n.pcap")]
    folder = write_captures(tmp_path / "run", dict(zip(names, (ring(A, B), ring(C, B), ring(A, C)), strict=True)))
    (folder / os.fsdecode(b"train_history-w\xff.log")).write_text("Type,ID,Timestamp,Loss,Accuracy\nbatch,0,1,1,1\n")
    ingest(folder, out=tmp_path / "dataset", clock_offset="none")
    with ddnn_traces.open(tmp_path / "dataset") as dataset:
        found = dataset.sql("SELECT capture_id FROM captures ORDER BY 1").rows()
        assert found == [("a%0A.pcap",), ("a%FE.pcap",), ("a%FF.pcap",)]
        assert dataset.sql("SELECT DISTINCT worker FROM steps").rows() == [("w%FF",)]


def test_a_worker_s_number_that_fits_no_column(tmp_path: Path) -> None:
    folder = write_captures(tmp_path / "run", {"worker-199999999999999999999-tcpdump.pcap": ring(A, B)})
    (folder / "train_history-².log").write_text(f"Type,ID,Timestamp,Loss,Accuracy\nbatch,0,{BEGIN_NS / 1e9},1,1\n")
    ingest(folder, out=tmp_path / "dataset")
    with ddnn_traces.open(tmp_path / "dataset") as dataset:
        assert set(dataset.sql("SELECT rank FROM hosts").rows()) == {(None,)}
        assert dataset.sql("SELECT worker FROM steps").rows() == [("²",)]


def test_a_full_folder_of_temporary_files_costs_only_the_views(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(views, "replace_views", full)
        (said,) = ingest(runs, out=tmp_path / "dataset")
    assert said.startswith(f"{tmp_path / 'dataset'}/traces.duckdb: not written (No space left on device); ")
    assert "TMPDIR" in said
    with ddnn_traces.open(tmp_path / "dataset") as dataset:
        assert contradictions(dataset) == {}
    assert ingest(runs, out=tmp_path / "dataset") == []


def test_gzip_cut_short_keeps_what_was_there(tmp_path: Path) -> None:
    folder = write_captures(tmp_path / "run", {})
    (folder / "cut.pcap.gz").write_bytes(gzip.compress(GOOD, mtime=0)[:-12])
    (warning,) = ingest(folder, out=tmp_path / "dataset")
    assert "cut.pcap.gz: truncated: gzip is cut short" in warning
    with ddnn_traces.open(tmp_path / "dataset") as dataset:
        (records,) = dataset.sql("SELECT records FROM captures").row(0)
        assert 0 < records <= len(ring(A, B))
        assert contradictions(dataset) == {}


def test_run_without_a_readable_file_is_left_out(runs: Path, tmp_path: Path) -> None:
    write_captures(runs / "bad", {})
    (runs / "bad" / "a.pcap").write_bytes(b"nothing")
    warnings = ingest(runs, out=tmp_path / "dataset")
    assert warnings[-1] == "bad: left out, none of its files is a capture that can be read"
    with ddnn_traces.open(tmp_path / "dataset") as dataset:
        assert dataset.run_ids == ["one", "two"]


def test_nothing_readable_at_all(tmp_path: Path) -> None:
    (tmp_path / "a.pcap").write_bytes(b"nothing")
    with pytest.raises(CaptureError, match=r"no run could be read from .*a\.pcap; .* was not made"):
        ingest(tmp_path / "a.pcap", out=tmp_path / "dataset")
    assert [path.name for path in tmp_path.iterdir()] == ["a.pcap"]


# --- finished runs are put in place while others are read


def stop_at_the_third_run(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    check, calls = pipeline._check_ledger, []

    def check_or_stop(*arguments: Any) -> None:
        calls.append(arguments)
        if len(calls) == 3:
            raise error
        check(*arguments)

    monkeypatch.setattr(pipeline, "_check_ledger", check_or_stop)


@pytest.mark.parametrize("seconds", [0.0, 3600.0])
@pytest.mark.long_after(1)
def test_interrupted_ingest_keeps_the_finished_runs(
    runs: Path, tmp_path: Path, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_captures(runs / "zzz", {"a.pcap": ring(A, C)})
    out = tmp_path / "dataset"
    ingest(runs, out=tmp_path / "expected")
    with monkeypatch.context() as patched:
        patched.setattr(pipeline, "COMMIT_SECONDS", seconds)
        patched.setattr(pipeline, "_COMMIT_SHARE", 0.0)
        stop_at_the_third_run(patched, KeyboardInterrupt())
        with pytest.raises(KeyboardInterrupt) as caught:
            ingest(runs, out=out)
    assert str(caught.value) == "interrupted; the dataset has 2 finished runs, ingest again for the others"
    assert checks.damaged_files(out) == []
    with ddnn_traces.open(out) as dataset:
        assert dataset.run_ids == ["one", "two"]
        assert contradictions(dataset) == {}
    messages = Lines()
    pipeline.ingest([str(runs)], out, messages=messages)
    assert len(messages.files) == 1
    assert hashes_of(out) == hashes_of(tmp_path / "expected")


@pytest.mark.long
def test_interrupted_while_it_puts_runs_in_place(runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Just after the exchange: the old version, which is removed then, is not put back."""
    out = tmp_path / "dataset"
    ingest(runs, out=out)
    write_captures(runs / "one", {"worker-1.pcap": ring(A, C)})
    ingest(runs, out=tmp_path / "expected")
    put_in_place = writer._put_in_place

    def put_and_stop(new: Path, old: Path) -> None:
        put_in_place(new, old)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(pipeline, "COMMIT_SECONDS", 0.0)
        patched.setattr(pipeline, "_COMMIT_SHARE", 0.0)
        patched.setattr(writer, "_put_in_place", put_and_stop)
        with pytest.raises(KeyboardInterrupt):
            ingest(runs, out=out)
    assert by_table(out, "flows") == by_table(tmp_path / "expected", "flows")


def by_table(dataset: Path, table: str) -> dict[str, str]:
    return {name: sha for name, sha in hashes_of(dataset).items() if name.startswith(table)}


# --- names, and sources that are no files


def test_run_id(runs: Path, tmp_path: Path) -> None:
    ingest(runs / "one", out=tmp_path / "dataset", run_id="monday")
    with ddnn_traces.open(tmp_path / "dataset") as dataset:
        assert dataset.run_ids == ["monday"]
    with pytest.raises(UsageError, match="--run-id"):
        ingest(runs / "one", out=tmp_path / "dataset", run_id=" ")


def test_a_log_with_the_name_of_a_capture_is_its_log(tmp_path: Path) -> None:
    """Whatever the name; and that names the host, whose role it does not tell."""
    folder = write_captures(tmp_path / "run", {f"{host}.pcap": filter(sent_by(ip), ring(A, B)) for ip, host in NAMES})
    for _, host in NAMES:
        write_log(folder, host, [BEGIN_NS + 50_000, BEGIN_NS + 100_000])
    ingest(folder, out=tmp_path / "dataset")
    with ddnn_traces.open(tmp_path / "dataset") as dataset:
        assert dataset.sql("SELECT host_ip, label, role FROM hosts ORDER BY ALL").rows() == [
            (ip, host, None) for ip, host in NAMES
        ]
        binned = "SELECT DISTINCT src_ip, worker FROM step_flows JOIN flows USING (run_id, flow_id) ORDER BY ALL"
        assert dataset.sql(binned).rows() == NAMES


def test_folders_of_hosts_as_one_run(tmp_path: Path) -> None:
    """A packet captured at both hosts counts once; a host's log is in its folder, the run's metadata in that of all."""
    top = tmp_path / "exp"
    for name in ("nodeA", "nodeB"):
        write_captures(top / name, {"eth0.pcap": ring(A, B)[::2], "eth0.pcap1": ring(A, B)[1::2]})
        write_log(top / name, name, [BEGIN_NS + 50_000, BEGIN_NS + 100_000])
        (top / name / f"train_history-{name}.log").rename(top / name / "train_history.log")
        (top / name / "eth0.err").write_text("9 packets captured\n9 packets received by filter\n")
    (top / "run.toml").write_text("model = 'mlp1'")
    assert ingest(top, out=tmp_path / "dataset", run_id="joined") == []
    with ddnn_traces.open(tmp_path / "dataset") as dataset:
        assert dataset.sql("SELECT run_id, model FROM runs").rows() == [("joined", "mlp1")]
        assert dataset.sql("SELECT DISTINCT worker FROM steps ORDER BY ALL").rows() == [("nodeA",), ("nodeB",)]
        stated = "SELECT capture_id FROM captures WHERE delivered_packets = 9 ORDER BY ALL"
        assert dataset.sql(stated).rows() == [("nodeA/eth0.pcap",), ("nodeB/eth0.pcap",)]
        assert dataset.sql("SELECT sum(packets) FROM flows").item() == 20
        assert contradictions(dataset) == {}
    assert ingest(top / "nodeB", top / "nodeA", out=tmp_path / "dataset", run_id="joined") == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"jobs": 0}, "--jobs 0 is not a number of threads"),
        ({"tunnels": "both"}, "--tunnels both: it is one of inner, outer"),
        ({"clock_offset": "later"}, "--clock-offset later: it is auto, none or a number of seconds"),
        ({"clock_offset": float("inf")}, "--clock-offset inf"),
        ({"filter": "port"}, "filter 'port': at its end: expected a port"),
    ],
)
def test_invalid_options(runs: Path, tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        ingest(runs, out=tmp_path / "dataset", **options)
    assert message in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]


def test_first_compilation_is_reported(runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for compiled in (True, False):
        monkeypatch.setattr(numba_engine, "is_compiled", lambda compiled=compiled: compiled, raising=False)
        messages = Lines()
        pipeline.ingest([str(runs)], tmp_path / "dataset", IngestOptions(force=True), messages)
        message = ["compiling the packet loop, once (about half a minute)"] if not compiled else []
        assert messages.lines[:-1] == message


def test_what_reads_is_compiled_before_the_clock_starts(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that the rates are those of reading."""
    happened: list[str] = []
    prepare = numba_engine.prepare

    class Clock(Messages):
        def start_reading(self, total_bytes: int | None) -> None:
            happened.append("start")

    def prepared(largest: int) -> None:
        happened.append(f"prepare {largest}")
        prepare(largest)

    monkeypatch.setattr(numba_engine, "prepare", prepared)
    largest = max(path.stat().st_size for path in runs.glob("*/*"))
    pipeline.ingest([str(runs)], tmp_path / "dataset", messages=Clock())
    assert happened == [f"prepare {largest}", "start"]


def test_nothing_is_compiled_while_a_file_is_read(tmp_path: Path) -> None:
    """In a new process, of a file in parts."""
    code = """
import sys
from pathlib import Path
from ddnn_traces.ingestors.facts import ReadOptions
from ddnn_traces.ingestors.packets import numba_engine, parts, scanner
from ddnn_traces.ingestors.packets.compiled import flow_table, fragments, join, scan
import numpy as np
parts.PART_BYTES = parts.BLOCK_BYTES = 4096
numba_engine.prepare(parts.PART_BYTES * 2)
used = [scan.scan, join.join, join.find_record, flow_table.close_cells, flow_table.refill, fragments.give_up_one]
before = [len(function.signatures) for function in used]
options = ReadOptions(10**6, np.empty(0, np.int64), Path("cells"), jobs=4)
facts = numba_engine.read_capture(Path("a.pcap"), options)
print(facts.records, before, [len(function.signatures) for function in used] == before)
"""
    (tmp_path / "a.pcap").write_bytes(p.pcap(packet.record for packet in ring(A, B, rounds=500)))
    call = [sys.executable, "-c", code]
    done = subprocess.run(call, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == "2000 [1, 1, 1, 1, 1, 1] True\n"


def test_filter_reaches_the_flows(runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[bool] = []
    tables = pipeline.RunTables
    monkeypatch.setattr(
        pipeline,
        "RunTables",
        lambda facts, scratch: (
            [kept.extend(file.flows["kept"].to_pylist()) for file in facts.files],
            tables(facts, scratch),
        )[1],
    )
    ingest(runs / "one", out=tmp_path / "dataset", filter=f"src host {A}")
    assert sorted(kept) == [False, False, True, True]


def test_a_filter_that_keeps_nothing_warns(runs: Path, tmp_path: Path) -> None:
    for _ in range(2):
        said = ingest(runs, out=tmp_path / "dataset", filter=f"host {C}")
        assert [warning.removeprefix("run one: ") for warning in said] == [
            f"one: --filter 'host {C}' keeps none of its 20 packets; correct the expression, or ingest without it"
        ]
    assert ingest(runs, out=tmp_path / "dataset", filter="tcp") == []


# --- an error on the way


@pytest.mark.parametrize("where", ["runs._report", "pipeline._write_run"])
@pytest.mark.parametrize("error", mostly_long([KeyboardInterrupt, SystemExit, RuntimeError], KeyboardInterrupt))
@pytest.mark.long_after(1)
def test_old_dataset_stays(
    runs: Path, tmp_path: Path, where: str, error: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "dataset"
    ingest(runs, out=out)
    before = hashes_of(out)
    (runs / "one" / "worker-1.pcap").write_bytes(GOOD)
    (runs / "two" / "worker-1.pcap").write_bytes(GOOD)
    module = {"runs": runs_module, "pipeline": pipeline}[where.split(".")[0]]
    name = where.split(".")[1]
    work = getattr(module, name)
    calls = []

    def fail_at_the_second_call(*arguments: Any) -> Any:
        calls.append(arguments)
        if len(calls) == 2:
            raise error
        return work(*arguments)

    monkeypatch.setattr(module, name, fail_at_the_second_call)
    with pytest.raises(error):
        ingest(runs, out=out)
    after = hashes_of(out)
    if error is KeyboardInterrupt and where == "pipeline._write_run":  # one is finished
        before, after = ({n: sha for n, sha in found.items() if "run_id=two" in n} for found in (before, after))
    assert after == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dataset", "runs"]


def test_error_in_the_first_ingest_leaves_nothing(runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "_check_ledger", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        ingest(runs, out=tmp_path / "dataset")
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]


def test_log_on_another_clock_is_reported(tmp_path: Path) -> None:
    folder = write_captures(tmp_path / "run", {"worker-1.pcap": ring(A, B)})
    (folder / "train_history.log").write_text(
        "Type,ID,Timestamp,Loss,Accuracy\nbatch,0,1700028800.1,0,0\nbatch,1,1700028800.2,0,0\n"
    )
    messages = Messages()
    pipeline.ingest([str(folder)], tmp_path / "dataset", messages=messages)
    (warning,) = messages.warnings
    assert "begins -8.00 hours after worker-1's log" in warning
