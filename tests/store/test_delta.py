"""Datasets on a real S3 server: commits, writers at the same time, killed writers, bad input."""

from __future__ import annotations

import json
import os
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import ceph
import pytest
from stored import FIRST, NEXT, OTHER, RUN, entries, fails, in_use, killed, objects, of, state, texts, write
from tools import RunCommand

import ddnn_traces
from ddnn_traces.errors import StorageError, UsageError
from ddnn_traces.store import checksums, layout, schema
from ddnn_traces.store.copying import copy
from ddnn_traces.store.delta import commit as commits
from ddnn_traces.store.delta.commit import vacuum
from ddnn_traces.store.delta.delta_dataset import StoredDataset
from ddnn_traces.store.delta.delta_writer import StoreWriter
from ddnn_traces.store.layout import INPUTS, SOURCES
from ddnn_traces.store.parquet import partition
from ddnn_traces.store.writer import DatasetWriter

pytestmark = pytest.mark.cluster

ODD = ["a b=%/ü?#", "null", "2021-05-01", "q\"\\'", "+,@~ x", "é" * 60, "a%20b", "[*]"]


# --- commits


def test_a_commit_has_the_bytes_of_the_folder(local: Path, bucket: str) -> None:
    url = f"{bucket}/deep/dataset"
    copy(local, url)
    assert state(url) == state(local)
    assert len(state(url)) == 2 * len(schema.TABLES)
    dataset = StoredDataset(url)
    found = dataset.texts(dataset.head(), [INPUTS, SOURCES, checksums.FILE])
    assert found == {name: (local / name).read_text() for name in found}
    assert len(found) == 3
    assert dataset.read(layout.MARKER) == (local / layout.MARKER).read_bytes()


def test_written_rows_are_the_bytes_that_a_folder_gets(local: Path, bucket: str, tmp_path: Path) -> None:
    table = schema.table("hosts").arrow()
    rows = [{field.name: {"string": "x", "int64": 1}.get(str(field.type)) for field in table}]
    import pyarrow as pa

    batch = pa.RecordBatch.from_pylist(rows, table)
    for writer in (DatasetWriter(tmp_path / "folder"), StoreWriter(f"{bucket}/d")):
        with writer:
            with writer.new_run("r"):
                writer.write("hosts", "r", [batch], {"version": "1"})
            writer.commit(texts(writer, ["r"]))
    assert of(state(f"{bucket}/d"), "r") == of(state(tmp_path / "folder"), "r")
    assert "hosts" in of(state(f"{bucket}/d"), "r")


def test_a_file_that_is_taken_is_as_if_written(local: Path, bucket: str, tmp_path: Path) -> None:
    """As those that a worker of a cluster has made."""
    file = partition(local, "hosts", RUN) / "part-0.parquet"
    for writer in (DatasetWriter(tmp_path / "folder"), StoreWriter(f"{bucket}/d")):
        with writer:
            shutil.copyfile(file, writer.scratch / "hosts")
            with writer.new_run(RUN):
                writer.take("hosts", RUN, writer.scratch / "hosts")
            writer.commit(texts(writer, [RUN]))
    expected = {("hosts", RUN): state(local)["hosts", RUN]}
    assert state(f"{bucket}/d") == state(tmp_path / "folder") == expected


def test_a_run_of_the_same_name_is_replaced_and_the_others_stay(local: Path, newer: Path, bucket: str) -> None:
    copy(local, bucket)
    done = copy(newer, bucket, [RUN])
    assert (done.runs, done.replaced) == ([RUN], 1)
    assert of(state(bucket), RUN) == of(state(newer), RUN) != of(state(local), RUN)
    assert of(state(bucket), OTHER) == of(state(local), OTHER)
    assert entries(bucket, INPUTS).keys() == {RUN, OTHER}


def test_the_writer_knows_what_is_there(local: Path, bucket: str) -> None:
    with StoreWriter(bucket) as writer:
        assert (writer.exists, writer.folder, writer.is_there("a"), writer.texts()) == (False, None, False, {})
        writer.commit(write(writer, local, RUN, ["a"]))
        assert (writer.exists, writer.is_there("a"), writer.has_run("b")) == (True, True, False)
        assert (writer.uncommitted, writer.committed, writer.written) == (False, 1, ["a"])
    with StoreWriter(bucket) as writer:
        assert (writer.exists, writer.is_there("a")) == (True, True)
        assert json.loads(writer.texts()[SOURCES]) == {"folders": {"a": "../a"}}


def test_leaving_without_a_commit_changes_nothing(local: Path, bucket: str) -> None:
    with StoreWriter(bucket) as writer:
        write(writer, local, RUN, ["a"])
    assert objects(bucket) == set()


def test_an_interrupt_keeps_finished_runs_only(local: Path, bucket: str) -> None:
    with StoreWriter(bucket) as writer:
        made = write(writer, local, RUN, ["a"])
        with pytest.raises(KeyboardInterrupt), writer.new_run("b"):
            writer.put("flows", "b", partition(local, "flows", RUN) / "part-0.parquet")
            raise KeyboardInterrupt
        writer.commit_finished(made)
    assert {run for _, run in state(bucket)} == {"a"}


def test_replace_files_commits_the_texts_alone(local: Path, bucket: str) -> None:
    copy(local, bucket)
    before, found = StoredDataset(bucket).head(), state(bucket)
    with StoreWriter(bucket) as writer:
        writer.replace_files(writer.texts())
        assert StoredDataset(bucket).head() == before
        writer.replace_files(writer.texts() | {SOURCES: '{"folders": {}}\n'})
    after = StoredDataset(bucket).head()
    assert (after.version, after.versions, state(bucket)) == (before.version + 1, before.versions, found)
    assert entries(bucket, SOURCES) == {}


def test_tables_that_are_kept_stay_and_a_run_replaced_meanwhile_is_an_error(
    local: Path, newer: Path, bucket: str
) -> None:
    copy(local, bucket)
    windows = partition(newer, "flow_windows", RUN) / "part-0.parquet"
    with StoreWriter(bucket) as writer:
        with writer.new_run(RUN, keep=True):
            writer.put("flow_windows", RUN, windows)
        writer.commit(writer.texts())
    found = of(state(bucket), RUN)
    expected = of(state(local), RUN) | {"flow_windows": of(state(newer), RUN)["flow_windows"]}
    assert found == expected != of(state(local), RUN)
    with StoreWriter(bucket) as writer:
        with writer.new_run(RUN, keep=True):
            writer.put("flow_windows", RUN, windows)
        copy(newer, bucket)
        with pytest.raises(StorageError, match=f"run {RUN} was replaced by another ingest meanwhile"):
            writer.commit(writer.texts())
    assert state(bucket) == state(newer)


def test_odd_names_of_runs(local: Path, bucket: str, tmp_path: Path) -> None:
    for _ in range(2):  # the second time they are replaced
        with StoreWriter(bucket) as writer:
            writer.commit(write(writer, local, RUN, ODD))
    assert {run for _, run in state(bucket)} == {*ODD}
    with ddnn_traces.open(bucket) as dataset:
        assert dataset.run_ids == sorted(ODD)
        flows = dataset.sql("SELECT run_id, count(*) FROM flows GROUP BY run_id")
        assert len({count for _, count in flows.rows()}) == 1 and flows.height == len(ODD)
    removed = vacuum(bucket, 0)
    assert len(removed) == len(ODD) * len(schema.TABLES)
    assert objects(bucket) == in_use(bucket)
    copy(bucket, tmp_path / "back")
    assert state(tmp_path / "back") == state(bucket)


def test_two_thousand_files_are_one_transaction(local: Path, bucket: str) -> None:
    names = [f"run-{number:04}" for number in range(2000)]
    files = [commits.TableFile(f"run_id={name}/part-0-x.parquet", name, 1, 1) for name in names]
    dataset = StoredDataset(bucket)
    head = commits.commit(dataset, {"runs": files, "flows": files}, lambda _: {})
    assert (head.version, head.versions["flows"]) == (1, 1)
    assert {file.run_id for file in dataset.files("flows", 1).values()} == {*names}


# --- several writers


def test_two_writers_at_once_lose_nothing(local: Path, bucket: str) -> None:
    rounds, together, notes = 4, threading.Barrier(2), []

    def work(name: str) -> None:
        with StoreWriter(bucket, report=notes.append) as writer:
            for number in range(rounds):
                together.wait(60)
                writer.commit(write(writer, local, RUN, [f"{name}-{number}"]))

    with ThreadPoolExecutor(2) as threads:
        assert [*threads.map(work, "ab")] == [None, None]
    names = {f"{name}-{number}" for name in "ab" for number in range(rounds)}
    found = state(bucket)
    assert {run for _, run in found} == names
    assert {tuple(of(found, name).items()) for name in names} == {tuple(of(state(local), RUN).items())}
    assert entries(bucket, INPUTS) == {name: {"made": name} for name in names}
    assert entries(bucket, SOURCES).keys() == entries(bucket, checksums.FILE).keys() == names
    assert any("had to be repeated" in note for note in notes)
    assert StoredDataset(bucket).head().version == 2 * rounds
    with ddnn_traces.open(bucket) as dataset:
        assert dataset.place.damages is not None and dataset.place.damages() == []


def test_the_last_texts_lose_nothing_of_others(local: Path, bucket: str) -> None:
    """An ingest that has committed a run commits its texts once more at its end; they do not know others' runs."""
    with StoreWriter(bucket) as writer:
        ours = write(writer, local, RUN, ["ours"])
        with StoreWriter(bucket) as other:
            other.commit(write(other, local, RUN, ["theirs"]))
        writer.commit(ours)
        version = StoredDataset(bucket).head().version
        writer.replace_files(ours)
    assert entries(bucket, INPUTS) == {name: {"made": name} for name in ("ours", "theirs")}
    assert entries(bucket, SOURCES).keys() == {"ours", "theirs"}
    assert StoredDataset(bucket).head().version == version  # nothing was to be committed


def test_a_writer_gives_up_after_many_attempts(
    local: Path, newer: Path, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy(local, bucket)
    monkeypatch.setattr(commits.object_store, "pause", lambda _: None)
    monkeypatch.setattr(commits, "ATTEMPTS", 3)
    bring = commits._bring
    busy = threading.local()

    def faster(*arguments: Any) -> int:
        """Another writer commits between the tables and runs."""
        if arguments[1] == "flows" and not getattr(busy, "is_other", False):
            with ThreadPoolExecutor(1) as thread:
                thread.submit(other).result()
        return bring(*arguments)

    def other() -> None:
        monkeypatch.setattr(commits, "_bring", bring)
        try:
            with StoreWriter(bucket) as writer:
                writer.replace_files(writer.texts() | {SOURCES: json.dumps({"folders": {"x": os.urandom(4).hex()}})})
        finally:
            monkeypatch.setattr(commits, "_bring", faster)

    monkeypatch.setattr(commits, "_bring", faster)
    with pytest.raises(StorageError, match=f"other writers were faster {commits.ATTEMPTS} times; nothing was changed"):
        copy(newer, bucket)
    assert state(bucket) == state(local)


def test_a_commit_whose_answer_was_lost_is_not_repeated_behind_anothers(
    local: Path, newer: Path, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from deltalake.exceptions import CommitFailedError

    copy(local, bucket)
    attempt = commits._attempt

    def unanswered(*arguments: Any) -> Any:
        monkeypatch.setattr(commits, "_attempt", attempt)
        attempt(*arguments)
        with StoreWriter(bucket) as other:
            other.replace_files(other.texts() | {SOURCES: json.dumps({"folders": {"x": "other"}})})
        raise CommitFailedError("no answer")

    version = StoredDataset(bucket).head().version
    with StoreWriter(bucket) as writer:
        run = write(writer, newer, RUN, ["new"])
        monkeypatch.setattr(commits, "_attempt", unanswered)
        writer.commit(run)
    assert StoredDataset(bucket).head().version == version + 2
    assert {run for _, run in state(bucket)} >= {"new"}


# --- killed writers


def spread(last: int, number: int) -> list[tuple[int, str]]:
    """Points over all changes, always with the last two, before and after."""
    chosen = {round(1 + place * (last - 1) / (number - 1)) for place in range(number)} | {last - 1, last}
    return [(point, when) for point in sorted(chosen) for when in ("before", "after")]


def test_readers_of_a_killed_replacement_see_the_old_or_the_new(local: Path, newer: Path, bucket: str) -> None:
    old, new = state(local), state(newer)
    assert old.keys() == new.keys() and of(old, RUN) != of(new, RUN)

    def tried(point: tuple[int, str]) -> tuple[bool, bool]:
        url = f"{bucket}/{'-'.join(map(str, point))}"
        copy(local, url)
        was_killed, found = killed(newer, url, point), state(url)
        assert found in (old, new), point
        with ddnn_traces.open(url) as dataset:
            assert dataset.place.damages is not None and dataset.place.damages() == []
        copy(newer, url)
        assert state(url) == new
        vacuum(url, 0)
        assert objects(url) == in_use(url) and state(url) == new
        return was_killed, found == new

    with ThreadPoolExecutor(6) as threads:
        points = spread(NEXT, 3)
        found = dict(zip(points, threads.map(tried, points), strict=True))
    assert all(was_killed for was_killed, _ in found.values())
    assert [point for point, (_, is_new) in found.items() if is_new] == [(NEXT, "after")]


def test_a_killed_first_commit_is_no_dataset_and_the_next_one_makes_it(local: Path, bucket: str) -> None:
    def tried(point: tuple[int, str]) -> bool:
        url = f"{bucket}/{'-'.join(map(str, point))}"
        assert killed(local, url, point)
        is_there = StoredDataset(url).head().is_dataset
        if not is_there:
            with pytest.raises(UsageError, match=r"no dataset yet|no dataset and no release"):
                ddnn_traces.open(url)
        copy(local, url)
        assert state(url) == state(local)
        return is_there

    with ThreadPoolExecutor(6) as threads:
        points = spread(FIRST, 3)
        found = dict(zip(points, threads.map(tried, points), strict=True))
    assert [point for point, is_there in found.items() if is_there] == [(FIRST, "after")]


def test_a_real_ingest_after_a_killed_one_passes_the_check(
    local: Path, newer: Path, bucket: str, command: RunCommand
) -> None:
    copy(local, bucket)
    assert killed(newer, bucket, (NEXT - 2, "after"))
    assert command("check", bucket).returncode == 0
    copy(newer, bucket)
    done = command("check", bucket)
    assert done.returncode == 0 and b"stored_files: ok" in done.stdout


# --- bad input


def test_a_missing_bucket(local: Path, bucket: str) -> None:
    missing = f"{bucket}-missing/dataset"
    for call in (
        lambda: copy(local, missing),
        lambda: copy(missing, local.parent / "out"),
        lambda: ddnn_traces.open(missing),
        lambda: vacuum(missing),
    ):
        fails(call, "no such bucket; make it, or check its name")


def test_no_permission(local: Path, bucket: str, s3: ceph.Server, monkeypatch: pytest.MonkeyPatch) -> None:
    copy(local, bucket)
    for name, value in s3.environment(ceph.OTHER_KEY, ceph.OTHER_SECRET).items():
        monkeypatch.setenv(name, value)
    for call in (lambda: copy(local, bucket), lambda: ddnn_traces.open(bucket), lambda: vacuum(bucket)):
        fails(call, r"not allowed \(403\)")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    for call in (lambda: copy(local, bucket), lambda: ddnn_traces.open(bucket), lambda: vacuum(bucket)):
        fails(call, "does not accept these credentials")


def test_no_server(local: Path, bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    monkeypatch.setattr("ddnn_traces.store.object_store.pause", lambda _: None)
    for call in (lambda: copy(local, bucket), lambda: ddnn_traces.open(bucket)):
        fails(call, "cannot be reached; check the network", StorageError)


def test_something_else_is_at_the_target(local: Path, bucket: str) -> None:
    from deltalake import DeltaTable

    other = StoredDataset(f"{bucket}/other")
    other.put("part-0.parquet", b"of another program")
    fails(lambda: copy(local, other.url), "something else than a ddnn_traces dataset")
    options = {"allow_http": "true"}
    DeltaTable.create(f"{bucket}/delta/flows", schema.table("flows").arrow(), storage_options=options)
    fails(lambda: copy(local, f"{bucket}/delta"), "something else than a ddnn_traces dataset")
    plain = StoredDataset(f"{bucket}/plain")
    for path in ("dataset.json", "checksums.json"):
        plain.put(path, (local / path).read_bytes())
    fails(lambda: copy(local, plain.url), "copied there as plain files")
    newer_program = StoredDataset(f"{bucket}/newer")
    marker = {"format": "ddnn_traces dataset", "schema_version": schema.SCHEMA_VERSION + 1}
    newer_program.put("dataset.json", json.dumps(marker).encode())
    fails(lambda: copy(local, newer_program.url), "update ddnn_traces")


def test_commits_of_another_program_are_left_out(local: Path, newer: Path, bucket: str) -> None:
    copy(local, bucket)
    for table in ("runs", "flows"):
        StoredDataset(bucket).table(table).alter.set_table_properties({"delta.logRetentionDuration": "interval 9 days"})
        StoredDataset(bucket).table(table).delete()
    assert state(bucket) == state(local)
    copy(newer, bucket, [RUN])
    assert of(state(bucket), RUN) == of(state(newer), RUN) and of(state(bucket), OTHER) == of(state(local), OTHER)
    vacuum(bucket, 0)
    assert objects(bucket) == in_use(bucket)
    with ddnn_traces.open(bucket) as dataset:
        assert dataset.place.damages is not None and dataset.place.damages() == []


def test_columns_that_are_new_are_added_to_the_tables(
    local: Path, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pyarrow as pa

    whole = schema.Table.arrow

    def older(self: schema.Table) -> pa.Schema:
        fields = [field for field in whole(self) if field.name not in ("split", "mss")]
        return pa.schema(fields)

    with monkeypatch.context() as patch:
        patch.setattr(schema.Table, "arrow", older)
        copy(local, bucket, [RUN])
    names = [field.name for field in StoredDataset(bucket).table("flows").schema().fields]
    assert "mss" not in names
    copy(local, bucket, [OTHER])
    for table in ("runs", "flows"):
        found = {field.name for field in StoredDataset(bucket).table(table).schema().fields}
        assert found == {column.name for column in schema.table(table).columns}
    assert state(bucket) == state(local)


def test_repeated_uploads_are_counted(local: Path, bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from botocore.exceptions import ClientError

    monkeypatch.setattr("ddnn_traces.store.object_store.pause", lambda _: None)
    notes: list[str] = []
    with StoreWriter(bucket, report=notes.append) as writer:
        made, left = write(writer, local, RUN, ["a"]), [3]
        upload = writer._dataset.filesystem.put_file

        def busy(*arguments: Any) -> None:
            if left[0] > 0:
                left[0] -= 1
                raise OSError(16, "busy") from ClientError({"Error": {"Code": "SlowDown"}}, "PutObject")
            upload(*arguments)

        monkeypatch.setattr(writer._dataset.filesystem, "put_file", busy)
        writer.commit(made)
    assert notes == [f"{bucket}: 3 requests had to be repeated (a busy store, or another writer)"]
    assert {run for _, run in state(bucket)} == {"a"}
