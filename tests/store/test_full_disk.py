"""A full disk: a clear error, the old dataset unchanged, no files left. On small file systems made for the test."""

from __future__ import annotations

import errno
import json
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

import duckdb
import pytest
from small_runs import A, B, C, hashes_of, ring, write_captures
from tools import COMMAND, needs_namespaces

import ddnn_traces
from ddnn_traces.errors import InternalError, StorageError
from ddnn_traces.ingestors import end_of_run, pipeline
from ddnn_traces.ingestors.reconcile import described, run_tables
from ddnn_traces.messages import Messages
from ddnn_traces.pcap import numba_engine
from ddnn_traces.pcap.capture_facts import CaptureFacts, ReadOptions
from ddnn_traces.store import writer
from ddnn_traces.store.whole_files import no_memory, no_space

pytestmark = pytest.mark.views

#: KiB that the file system has in addition to the old dataset: from too few to enough.
SPACE = (16, 64, 128, 256, 512, 768, 1024, 1280, 16000)

#: Ingests into file systems of these sizes; prints exit code, stderr and what is left of each.
PROGRAM = """
import hashlib, json, shutil, subprocess, sys
from pathlib import Path

old, source, small, sizes, command = json.loads(sys.argv[1])
def files(folder):
    found = sorted(path for path in folder.rglob("*") if path.is_file())
    hashes = {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in found}
    return {name: digest for name, digest in hashes.items() if name not in ("traces.duckdb", "sources.json")}
for size in sizes:
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}k", "none", small], check=True)
    out = Path(small, "dataset")
    shutil.copytree(old, out)
    done = subprocess.run([*command, "ingest", source, "--out", str(out)], capture_output=True, text=True)
    left = sorted(path.name for path in Path(small).iterdir())
    print(json.dumps([done.returncode, done.stderr, left, files(out)]))
    subprocess.run(["umount", small], check=True)
"""


@pytest.mark.long
@needs_namespaces
def test_full_at_any_point(tmp_path: Path, sample: Path) -> None:
    ddnn_traces.ingest(write_captures(tmp_path / "run", {"a.pcap": ring(A, B)}), tmp_path / "old").close()
    (tmp_path / "small").mkdir()
    source = sample / "torch-mlp1-sgd-32-gloo-0ms-ring"
    files = [path.stat().st_size for path in (tmp_path / "old").rglob("*") if path.is_file()]
    old_kib = sum(-(-size // 4096) * 4 for size in files)  # whole pages, as a file system in memory takes them
    sizes = [old_kib + room for room in SPACE]
    arguments = [str(tmp_path / "old"), str(source), str(tmp_path / "small"), sizes, COMMAND]
    call = ["unshare", "-m", sys.executable, "-c", PROGRAM, json.dumps(arguments)]
    printed = subprocess.run(call, capture_output=True, text=True, check=True).stdout
    before = hashes_of(tmp_path / "old")
    answers = [json.loads(line) for line in printed.splitlines()]
    whole = answers[-1][3]
    assert any(source.name in name for name in whole)
    codes = []
    for code, said, left, after in answers:
        codes.append(code)
        assert left == ["dataset"]
        assert "Traceback" not in said
        if code:
            assert after in (before, whole)  # whole: space for the tables, but not for the database of views
            assert f"ddnn-traces: {tmp_path / 'small'}: no space to write (" in said.splitlines()[-1]
            assert said.endswith("free some space there and ingest again\n")
        else:
            assert after == whole
    assert len(codes) == len(SPACE)
    assert codes == sorted(codes, reverse=True)
    assert set(codes) == {0, 1}


def no_room(*_: object, **__: object) -> NoReturn:
    raise OSError(errno.ENOSPC, "No space left on device")


def duckdb_has_none(*_: object) -> NoReturn:
    raise duckdb.IOException("IO Error: could not write\nmore of it")


def quota(_: Path, __: ReadOptions) -> CaptureFacts:
    raise OSError(errno.EDQUOT, "Disk quota exceeded")


@pytest.mark.parametrize(
    ("module", "name", "failure", "said"),
    [
        (numba_engine, "read_capture", quota, "Disk quota exceeded"),
        (end_of_run, "RunTables", duckdb_has_none, "run: IO Error: could not write"),
        (writer.pq, "ParquetWriter", no_room, "No space left on device"),
        (writer, "_link_tree", no_room, "No space left on device"),
        (writer, "_put_in_place", no_room, "No space left on device"),
    ],
    ids=["cells", "duckdb", "tables", "links", "exchange"],
)
@pytest.mark.parametrize("jobs", [2, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.long_after(2)
def test_whoever_finds_the_disk_full(
    tmp_path: Path, module: object, name: str, failure: object, said: str, jobs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_captures(tmp_path / "kept", {"a.pcap": ring(A, B)})
    ddnn_traces.ingest(tmp_path / "kept", tmp_path / "dataset").close()
    before = hashes_of(tmp_path / "dataset")
    write_captures(tmp_path / "run", {"a.pcap": ring(B, C), "b.pcap": ring(A, C)})
    monkeypatch.setattr(module, name, failure)
    with pytest.raises(StorageError, match=rf"no space to write \({said}\); .*dataset holds what was finished before"):
        ddnn_traces.ingest(tmp_path / "run", tmp_path / "dataset", jobs=jobs)
    assert hashes_of(tmp_path / "dataset") == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dataset", "kept", "run"]


def test_more_flows_than_memory_are_no_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The memory of a run's tables grows with its flows; where it still lacks, no space on a disk would help."""
    write_captures(tmp_path / "run", {"a.pcap": ring(A, B)})
    limits = []
    for flows in (0, 10_000_000):
        with described.connect(tmp_path, flows) as connection:
            limits.append(connection.sql("SELECT current_setting('memory_limit')").fetchall()[0][0])
    assert limits == ["122.0 MiB", "3.8 GiB"]
    monkeypatch.setattr(described, "_MEMORY_MB", 1)
    with pytest.raises(StorageError, match=r"^run: more flows than its tables have memory for .* with `filter`$"):
        ddnn_traces.ingest(tmp_path / "run", tmp_path / "dataset")
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_wrong_sql_is_no_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = run_tables._sql
    monkeypatch.setattr(run_tables, "_sql", lambda name: "SELECT nosuch" if name == "merged" else right(name))
    write_captures(tmp_path / "run", {"a.pcap": ring(A, B)})
    with pytest.raises(InternalError, match=r'^run: reconcile/merged\.sql: Binder Error: .*"nosuch".* please report'):
        ddnn_traces.ingest(tmp_path / "run", tmp_path / "dataset")
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


@pytest.mark.parametrize(
    ("error", "step"),
    [
        (duckdb.IOException("IO Error: no room"), "free space in the folder of temporary files"),
        (OSError(errno.EACCES, "Permission denied"), "correct that and ingest again"),
        (duckdb.BinderException("Binder Error: x"), "please report"),
    ],
)
def test_views_that_cannot_be_written(
    tmp_path: Path, error: Exception, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: object) -> NoReturn:
        raise error

    monkeypatch.setattr(pipeline.views, "replace_views", failing)
    write_captures(tmp_path / "run", {"a.pcap": ring(A, B)})
    messages = Messages()
    pipeline.ingest([str(tmp_path / "run")], tmp_path / "dataset", messages=messages)
    assert [warning for warning in messages.warnings if "traces.duckdb: not written" in warning and step in warning]


def test_errors_of_duckdb_that_mean_a_full_disk() -> None:
    unread = duckdb.IOException('IO Error: Cannot open file "part-0.parquet": Permission denied')
    assert [no_space(error) for error in (duckdb.BinderException("Binder Error: x"), unread, None)] == [None] * 3
    memory = duckdb.OutOfMemoryException("Out of Memory Error: y\nmore of it")
    assert (no_space(memory), no_memory(memory)) == (None, "Out of Memory Error: y")
    for text in ("failed to offload data block of size 256 KiB", "No space left on device"):
        disk = duckdb.OutOfMemoryException(f"Out of Memory Error: {text}")
        assert (no_space(disk), no_memory(disk)) == (f"Out of Memory Error: {text}", None)


def test_full_disk_before_anything_is_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_captures(tmp_path / "run", {"a.pcap": ring(A, B)})
    monkeypatch.setattr(writer.pq, "ParquetWriter", no_room)
    with pytest.raises(StorageError, match=r"No space left on device\); nothing was finished; "):
        ddnn_traces.ingest(tmp_path / "run", tmp_path / "dataset")
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
