"""Captures read from a store, and a dataset written to it, through a proxy that fails: nothing is lost or differs."""

from __future__ import annotations

import itertools
import os
import random
import signal
import subprocess
import sys
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import ceph
import pytest
from dask_cluster import started
from proxy import proxy
from small_runs import parquet_hashes, plain_and_compressed
from stored import state
from tools import CODE, Notes, Once, mostly_nightly

from ddnn_traces.errors import StorageError, UsageError
from ddnn_traces.ingestors import pipeline
from ddnn_traces.ingestors.options import IngestOptions
from ddnn_traces.pcap import parts, streams
from ddnn_traces.query import checks
from ddnn_traces.query.dataset import Dataset
from ddnn_traces.store import object_store, schema
from ddnn_traces.store.copying import copy
from ddnn_traces.store.delta.delta_dataset import LAST, StoredDataset

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def runs(sample: Path, once: Once) -> Path:
    """A plain capture of several requests and parts, and a run of compressed ones with logs. Not to be changed."""
    return once("store-runs", lambda path: plain_and_compressed(path, sample, rounds=500))


@pytest.fixture(scope="module")
def here(runs: Path, once: Once) -> Path:
    """The dataset that one thread makes of the files here. Not to be changed."""

    def make(path: Path) -> None:
        pipeline.ingest([str(runs)], path, IngestOptions(jobs=1))
        check(path)

    return once("store-expected", make)


@pytest.fixture
def captures(runs: Path, bucket: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """URL of these runs on the store, which are read in small requests."""
    import fsspec
    from s3fs import S3FileSystem

    monkeypatch.setattr(streams, "REQUEST_BYTES", 1 << 16)
    monkeypatch.setattr(parts, "PART_BYTES", 1 << 16)
    monkeypatch.setattr(object_store, "_FIRST_S", 0.001)
    S3FileSystem.clear_instance_cache()
    store = fsspec.filesystem("s3", skip_instance_cache=True)
    for run in runs.iterdir():
        for path in run.iterdir():
            store.put_file(str(path), f"{bucket}/campaign/{run.name}/{path.name}")
    return f"{bucket}/campaign"


def check(where: str | Path) -> None:
    with Dataset(where) as dataset:
        assert not {name: rows for name, rows in checks.run_checks(dataset).items() if rows.num_rows}
    assert not checks.damaged_files(where)


@pytest.mark.parametrize("what", ["busy", "short", "slow", "lost"])
def test_captures_through_a_bad_store(
    what: str, here: Path, captures: str, tmp_path: Path, s3: ceph.Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every third request of an object fails."""
    with proxy(s3.endpoint, lambda *request: what if request[2] % 3 == 1 else "pass") as bad:
        monkeypatch.setenv("AWS_ENDPOINT_URL", bad.endpoint)
        pipeline.ingest([captures], tmp_path / "out", IngestOptions(jobs=2))
    assert bad.done[what] > 10
    assert parquet_hashes(tmp_path / "out") == parquet_hashes(here)
    assert not checks.damaged_files(tmp_path / "out")


@pytest.mark.parametrize("what", ["busy", "lost", "short"])
def test_a_dataset_through_a_bad_store(
    what: str, runs: Path, here: Path, bucket: str, s3: ceph.Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A third of all requests, by chance, fails while runs are written; of one object at most three in a row, since
    no request is made more than seven times. Answers are cut short less often: Delta Lake repeats all requests of an
    operation then."""
    chance, in_a_row = random.Random(21), Counter[tuple[str, str]]()
    share, least = (0.05, 3) if what == "short" else (0.3, 10)

    def fault(method: str, path: str, _: int) -> str:
        fails = chance.random() < share and in_a_row[method, path] < 3
        in_a_row[method, path] = in_a_row[method, path] + 1 if fails else 0
        return what if fails else "pass"

    monkeypatch.setattr(object_store, "_FIRST_S", 0.001)
    with proxy(s3.endpoint, fault) as bad:
        monkeypatch.setenv("AWS_ENDPOINT_URL", bad.endpoint)
        pipeline.ingest([str(runs)], f"{bucket}/dataset", IngestOptions(jobs=2))
    assert bad.done[what] > least
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3.endpoint)
    assert state(f"{bucket}/dataset") == state(here)
    check(f"{bucket}/dataset")


def test_a_store_that_never_answers_ends_the_ingest(
    captures: str, tmp_path: Path, s3: ceph.Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line, and no run of half of its files."""
    with proxy(
        s3.endpoint, lambda *request: "busy" if request[0] == "GET" and ".pcap" in request[1] else "pass"
    ) as bad:
        monkeypatch.setenv("AWS_ENDPOINT_URL", bad.endpoint)
        with pytest.raises(StorageError, match="busy or the connection failed 7 times; try again later") as failed:
            pipeline.ingest([captures], tmp_path / "out", IngestOptions())
    assert "\n" not in str(failed.value)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("answered", range(4))
def test_a_folder_that_cannot_be_listed_is_not_empty(
    answered: int, captures: str, tmp_path: Path, s3: ceph.Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So many listings are answered: of the campaign, and of its folders."""
    bucket = urlsplit(captures).netloc

    def fault(method: str, path: str, number: int) -> str:
        return "busy" if (method, path.strip("/")) == ("GET", bucket) and number >= answered else "pass"

    with proxy(s3.endpoint, fault) as bad:
        monkeypatch.setenv("AWS_ENDPOINT_URL", bad.endpoint)
        with pytest.raises(StorageError, match="busy or the connection failed"):
            pipeline.ingest([captures], tmp_path / "out", IngestOptions())
    assert bad.done["busy"]
    assert not (tmp_path / "out").exists()


def test_on_a_cluster_through_a_bad_store(
    here: Path, captures: str, tmp_path: Path, s3: ceph.Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The workers repeat requests, and the summary says how many."""
    with proxy(s3.endpoint, lambda *request: "short" if request[2] % 3 == 1 else "pass") as bad:
        monkeypatch.setenv("AWS_ENDPOINT_URL", bad.endpoint)
        said = Notes()
        pipeline.ingest([captures], tmp_path / "out", IngestOptions(scheduler="local:2"), said)
    assert parquet_hashes(tmp_path / "out") == parquet_hashes(here)
    (summary,) = (line for line in said.notes if line.startswith("cluster: "))
    assert "to the store repeated" in summary


def test_two_ingests_at_once(sample: Path, bucket: str, tmp_path: Path) -> None:
    """Each with a run of its own, into one dataset: both runs are there, and inputs.json has both."""
    names = ("mpi-mlp1-sgd-32-openmpi-0ms-ring-sll2", "mpi-mlp12-sgd-32-openmpi-0ms-ring-tso")
    where, begin = f"{bucket}/dataset", threading.Barrier(2)

    def work(name: str) -> list[str]:
        begin.wait()
        return pipeline.ingest([str(sample / name)], where, IngestOptions(jobs=1))

    with ThreadPoolExecutor(2) as threads:
        assert [*threads.map(work, names)] == [[name] for name in names]
    here = tmp_path / "expected"
    pipeline.ingest([str(sample / name) for name in names], here, IngestOptions(jobs=1))
    assert state(where) == state(here)
    check(where)
    assert pipeline.ingest([str(sample / name) for name in names], where, IngestOptions()) == []


@pytest.mark.parametrize("moment", mostly_nightly([8, 14, 27], "14"))
def test_killed_in_mid_commit(moment: int, sample: Path, bucket: str, tmp_path: Path, s3: ceph.Server) -> None:
    """An ingest that replaces a run is killed when it writes an entry of a Delta log: the dataset is the old or the
    new one, and the next ingest makes it the new one."""
    where, run = f"{bucket}/dataset", sample / "mpi-mlp1-sgd-32-openmpi-0ms-ring-sll2"
    here = [tmp_path / "old", tmp_path / "new"]
    for out, window_ms in zip(here, (1.0, 4.0), strict=True):
        pipeline.ingest([str(run)], out, IngestOptions(window_ms=window_ms, jobs=1))
    pipeline.ingest([str(run)], where, IngestOptions(jobs=1))
    running: list[subprocess.Popen[bytes]] = []
    entries = 0

    def kill(method: str, path: str, _: int) -> str:
        nonlocal entries
        entries += method == "PUT" and "_delta_log" in path
        if entries == moment and running[0].poll() is None:
            running[0].kill()
            running[0].wait()
            return "lost"
        return "pass"

    with proxy(s3.endpoint, kill) as between:
        call = [sys.executable, "-c", CODE, "ingest", str(run), "--out", where, "--window-ms", "4"]
        environment = {**os.environ, "AWS_ENDPOINT_URL": between.endpoint}
        running.append(subprocess.Popen(call, env=environment, stderr=subprocess.DEVNULL))
        ended = running[0].wait(timeout=120)
    was_killed = ended == -signal.SIGKILL
    assert was_killed == (entries >= moment)
    assert state(where) == state(here[1 if not was_killed else 0]) or state(where) == state(here[1])
    check(where)
    pipeline.ingest([str(run)], where, IngestOptions(window_ms=4.0))
    assert state(where) == state(here[1])
    check(where)


@pytest.mark.parametrize("checkpoints", mostly_nightly([False, True], "False"))
def test_power_that_a_store_loses_leaves_the_old_or_the_new_dataset(
    checkpoints: bool, local: Path, newer: Path, bucket: str, s3: ceph.Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store that loses power keeps what it has confirmed: a reader comes after each change of a first commit and of
    one that replaces all runs. With checkpoints, each commit writes one of each log; else every hundredth does."""
    where = f"{bucket}/dataset"
    if checkpoints:
        from deltalake import DeltaTable

        create, each = DeltaTable.create, {"delta.checkpointInterval": "1"}

        def with_checkpoints(*arguments: Any, configuration: dict[str, str], **options: Any) -> DeltaTable:
            return create(*arguments, configuration=configuration | each, **options)

        monkeypatch.setattr(DeltaTable, "create", with_checkpoints)
        copy(newer, where)
    known: dict[str, frozenset[str]] = {}
    for made in (local, newer):
        seen = [_there(where, known)]
        with proxy(s3.endpoint, lambda *_: "pass", lambda _, seen=seen: seen.append(_there(where, known))) as between:
            call = [sys.executable, "-c", CODE, "copy", str(made), where]
            subprocess.run(call, env={**os.environ, "AWS_ENDPOINT_URL": between.endpoint}, check=True)
        assert len(seen) > len(schema.TABLES) * (2 if made == newer or checkpoints else 3)
        assert [found for found, _ in itertools.groupby(seen)] == [seen[0], _there(where, {})]
        assert state(where) == state(made)
    logs = StoredDataset(where).filesystem.find(where)
    assert any("_last_checkpoint" in path for path in logs) == checkpoints


def _there(where: str, known: dict[str, frozenset[str]]) -> frozenset[str]:
    """The files and log entries of a dataset, all of which are there: each file has a name of its own. known: those of
    the commits that were read before, by mark; an entry of a log never changes."""
    dataset = StoredDataset(where)
    head = dataset.head()
    if head.mark not in known:
        tables = dataset.all_files(head).items()
        versions = {**head.versions, LAST: head.version} if head.is_dataset else {}
        logs = (
            f"{table}/_delta_log/{number:020}.json" for table, last in versions.items() for number in range(last + 1)
        )
        files = (f"{table}/{path}" for table, found in tables for path in found)
        known[head.mark] = frozenset({*head.files.values(), *files, *logs})
    assert known[head.mark] <= dataset.listing("").keys()
    return known[head.mark]


def test_an_interrupt_in_mid_commit_loses_no_finished_run(
    sample: Path, bucket: str, tmp_path: Path, s3: ceph.Server
) -> None:
    where, run = f"{bucket}/dataset", sample / "mpi-mlp1-sgd-32-openmpi-0ms-ring-sll2"
    pipeline.ingest([str(run)], tmp_path / "new", IngestOptions(jobs=1))
    running: list[subprocess.Popen[bytes]] = []
    seen: list[str] = []

    def interrupt(method: str, path: str, _: int) -> str:
        if method == "PUT" and "/flows/_delta_log" in path and not seen:
            seen.append(path)
            running[0].send_signal(signal.SIGINT)
        return "pass"

    with proxy(s3.endpoint, interrupt) as between:
        environment = {**os.environ, "AWS_ENDPOINT_URL": between.endpoint}
        call = [sys.executable, "-c", CODE, "ingest", str(run), "--out", where]
        running.append(subprocess.Popen(call, env=environment, stderr=subprocess.PIPE))
        _, said = running[0].communicate(timeout=120)
    assert seen and running[0].returncode != 0
    assert b"Traceback" not in said
    assert state(where) == state(tmp_path / "new")
    check(where)


def test_a_dataset_s_url_that_gives_its_secret(sample: Path) -> None:
    for where in ("s3://key:secret@bucket/dataset", "s3://bucket/dataset?token=secret"):
        with pytest.raises(UsageError, match="password or signature") as refused:
            pipeline.ingest([str(sample)], where, IngestOptions())
        assert "secret@" not in str(refused.value) and "=secret" not in str(refused.value)
        with pytest.raises(UsageError, match="password or signature"):
            Dataset(where)


def test_a_wrong_secret(captures: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from s3fs import S3FileSystem

    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    S3FileSystem.clear_instance_cache()
    with pytest.raises(UsageError, match="does not accept these credentials"):
        pipeline.ingest([captures], tmp_path / "out", IngestOptions())


@pytest.mark.parametrize("minutes", [-60, 60])
def test_a_clock_that_is_wrong(
    minutes: int, captures: str, bucket: str, runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Signatures have the time; Ceph, as Amazon's S3, takes those of a quarter of an hour around its own."""
    from botocore import auth

    now = auth.get_current_datetime
    monkeypatch.setattr(auth, "get_current_datetime", lambda: now() + timedelta(minutes=minutes))
    for source, out in ((captures, tmp_path / "out"), (str(runs), f"{bucket}/dataset")):
        with pytest.raises(StorageError, match="times differ; set the clock of this machine") as failed:
            pipeline.ingest([source], out, IngestOptions())
        assert "\n" not in str(failed.value)


def test_workers_without_credentials(captures: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as without:
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            without.delenv(name)
        cluster = started(tmp_path, workers=1)
        running = cluster.__enter__()
    try:
        with pytest.raises(UsageError, match=r"^worker tcp://\S+: .*no credentials; give them") as refused:
            pipeline.ingest([captures], tmp_path / "out", IngestOptions(scheduler=running.address))
        assert "\n" not in str(refused.value)
    finally:
        cluster.__exit__(None, None, None)


def test_a_url_that_gives_its_secret(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="password or signature") as refused:
        pipeline.ingest(["s3://key:secret@bucket/x.pcap"], tmp_path / "out", IngestOptions())
    assert "secret@" not in str(refused.value)


def test_what_is_not_there(bucket: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file or folder; check the URL"):
        pipeline.ingest([f"{bucket}/nothing"], tmp_path / "out", IngestOptions())


def test_a_bucket_that_is_not_there(bucket: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such bucket; make it"):
        pipeline.ingest([f"{bucket}-other/campaign"], tmp_path / "out", IngestOptions())


def test_a_single_file_and_a_pattern_of_files(captures: str, tmp_path: Path) -> None:
    """A store that lists a folder tells the time of a file more exactly than one that is asked for the file."""
    said = Notes()
    pipeline.ingest([f"{captures}/large/worker-1.pcap"], tmp_path / "one", IngestOptions(), said)
    pipeline.ingest([f"{captures}/*/worker-*"], tmp_path / "all", IngestOptions(), said)
    pipeline.ingest([f"{captures}/large/worker-1.pcap"], tmp_path / "one", IngestOptions(), said)
    assert not said.warnings
    assert sum("unchanged, not read again" in line for line in said.notes) == 1


def test_again_reads_only_what_changed(captures: str, tmp_path: Path) -> None:
    pipeline.ingest([captures], tmp_path / "out", IngestOptions())
    again = Notes()
    assert pipeline.ingest([f"{captures}/*"], tmp_path / "out", IngestOptions(), again) == []
    assert sum("unchanged, not read again" in line for line in again.notes) == 2
