"""publish, whole or not at all: interrupted, killed, without power, and with too little memory or disk."""

from __future__ import annotations

import errno
import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

import duckdb
import pyarrow as pa
import pytest
from power import Disk
from publishing import ABOUT, OPTIONS, Run
from small_release import content
from tools import CODE, COMMAND

import ddnn_traces
from ddnn_traces.errors import QueryError, StorageError
from ddnn_traces.query import checks
from ddnn_traces.query.dataset import Dataset
from ddnn_traces.release import packaging, publish, released_tables


def test_a_loss_of_power_leaves_it_whole_or_not_at_all(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(tmp_path, monkeypatch)
    out = tmp_path / "releases" / "traces"
    ddnn_traces.publish(small, out, bagit=True, **ABOUT)
    disk.assert_durable("traces.key", "traces")
    ddnn_traces.push(out, str(tmp_path / "share" / "pushed"))
    disk.assert_durable("traces.key", "traces", "1.0.0")
    assert {tmp_path, tmp_path / "releases", tmp_path / "share"} <= disk.synced_folders


def test_what_memory_does_not_hold_is_spilled_next_to_the_release(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sorting 80 MB in a quarter of that has to spill."""
    places: list[str] = []

    def spill(dataset: Dataset) -> dict[str, pa.Table]:
        dataset.connection.execute("SET memory_limit = '20MB'; SET threads = 1")
        dataset.sql("CREATE TEMP TABLE big AS SELECT range, hash(range) AS h FROM range(5000000)")
        places.extend(row[0] for row in dataset.sql("SELECT path FROM duckdb_temporary_files()").rows())
        return {name: pa.table({"run_id": []}) for name in checks.names()}

    monkeypatch.setattr(checks, "run_checks", spill)
    monkeypatch.chdir(small)
    before = content(small)
    ddnn_traces.publish(small, tmp_path / "new" / "out", **ABOUT, key=tmp_path / "key")
    assert places
    assert {Path(place).parent.parent for place in places} == {tmp_path}
    assert content(small) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["key", "new"]
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["out"]


def full_disk(*_: object, **__: object) -> NoReturn:
    raise OSError(errno.ENOSPC, "No space left on device")


def query_without_space(*_: object, **__: object) -> NoReturn:
    error = duckdb.OutOfMemoryException("No space left on device")
    raise QueryError(str(error)) from error


@pytest.mark.parametrize(
    ("module", "name", "failure"),
    [
        (released_tables.pq, "ParquetWriter", full_disk),
        (packaging, "write_checksums", full_disk),
        (packaging, "write_database", full_disk),
        (publish, "write_marker", full_disk),
        (checks, "run_checks", query_without_space),
    ],
    ids=["tables", "checksums", "database", "descriptions", "checks"],
)
def test_a_full_disk_leaves_nothing(
    small: Path, tmp_path: Path, module: object, name: str, failure: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, name, failure)
    with pytest.raises(StorageError, match=r"no space to write \(No space left on device\); nothing is left there"):
        ddnn_traces.publish(small, tmp_path / "out", **ABOUT)
    assert list(tmp_path.iterdir()) == []


def test_too_little_memory_is_no_full_disk(small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: object, **__: object) -> NoReturn:
        error = duckdb.OutOfMemoryException("Out of Memory Error: could not allocate block of size 256.0 KiB")
        raise QueryError(str(error)) from error

    monkeypatch.setattr(checks, "run_checks", failing)
    with pytest.raises(StorageError, match=r"not enough memory \(Out of Memory.*publish fewer runs") as caught:
        ddnn_traces.publish(small, tmp_path / "out", **ABOUT)
    assert "space" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


#: Publishes into file systems of these sizes (KiB); prints exit code, stderr and what is left of each.
SMALL_DISKS = """
import json, subprocess, sys
from pathlib import Path
dataset, small, sizes, command, options = json.loads(sys.argv[1])
for size in sizes:
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}k", "none", small], check=True)
    call = [*command, "publish", dataset, "--out", f"{small}/out", *options]
    done = subprocess.run(call, capture_output=True, text=True)
    print(json.dumps([done.returncode, done.stderr, sorted(path.name for path in Path(small).iterdir())]))
    subprocess.run(["umount", small], check=True)
"""


def can_mount() -> bool:
    made = subprocess.run(["unshare", "-m", "true"], capture_output=True)
    return made.returncode == 0


@pytest.mark.skipif(not can_mount(), reason="needs mount namespaces")
@pytest.mark.parametrize("sizes", [[600], pytest.param([32, 200, 1000, 8000], marks=pytest.mark.nightly)], ids=str)
def test_disks_that_are_too_small(sizes: list[int], small: Path, tmp_path: Path) -> None:
    (tmp_path / "small").mkdir()
    arguments = json.dumps([str(small), str(tmp_path / "small"), sizes, COMMAND, OPTIONS])
    call = ["unshare", "-m", sys.executable, "-c", SMALL_DISKS, arguments]
    answers = [
        json.loads(line)
        for line in subprocess.run(call, capture_output=True, text=True, check=True).stdout.splitlines()
    ]
    assert [code for code, _, _ in answers] == [0 if size == 8000 else 1 for size in sizes]
    for code, stderr, left in answers:
        assert "Traceback" not in stderr
        assert left == ([] if code else ["out", "out.key"])
        assert not code or "no space to write" in stderr.splitlines()[-1]


def slow_publish(small: Path, out: Path) -> subprocess.Popen[str]:
    """A publish that stays in its first table, once it is there."""
    code = CODE.replace("from ddnn_traces.cli", (
        "import os\nfrom ddnn_traces.release import released_tables\nread = released_tables._read\n"
        "def slow(source, progress):\n    for batch in read(source, progress):\n"
        "        os.write(1, b'in\\n')\n        progress.stop.wait()\n        yield batch\n"
        "released_tables._read = slow\nfrom ddnn_traces.cli"
    ))  # fmt: skip
    call = [sys.executable, "-c", code, "publish", str(small), "--out", str(out), *OPTIONS]
    return subprocess.Popen(call, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_interrupted_it_leaves_nothing(small: Path, tmp_path: Path, sent: signal.Signals, code: int) -> None:
    with slow_publish(small, tmp_path / "out") as process:
        assert process.stdout
        assert process.stdout.readline() == "in\n"
        process.send_signal(sent)
        _, stderr = process.communicate(timeout=120)  # it would wait for ever if nothing told its threads to stop
    assert process.returncode == code
    assert "Traceback" not in stderr
    assert list(tmp_path.iterdir()) == []


def test_killed_it_leaves_what_the_next_one_removes(small: Path, tmp_path: Path, run: Run) -> None:
    with slow_publish(small, tmp_path / "out") as process:
        assert process.stdout
        assert process.stdout.readline() == "in\n"
        process.kill()
    assert not (tmp_path / "out").exists()
    done = run("publish", small, "--out", "out", *OPTIONS)
    assert done.returncode == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "out.key"]
