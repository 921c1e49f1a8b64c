"""Datasets on a real S3 server: check, commands with a URL, copies there and back, vacuum."""

from __future__ import annotations

import filecmp
from pathlib import Path

import pytest
from stored import NEXT, OTHER, RUN, TABLES, in_use, killed, objects, of, state
from tools import RunCommand

import ddnn_traces
from ddnn_traces.errors import UsageError
from ddnn_traces.store import checksums
from ddnn_traces.store.copying import copy
from ddnn_traces.store.delta.commit import vacuum
from ddnn_traces.store.delta.delta_dataset import StoredDataset
from ddnn_traces.store.parquet import partition

pytestmark = pytest.mark.cluster


def test_check_finds_a_changed_and_a_missing_file(local: Path, bucket: str, command: RunCommand) -> None:
    copy(local, bucket)
    assert command("check", bucket).returncode == 0
    dataset = StoredDataset(bucket)
    flows = {file.run_id: f"flows/{path}" for path, file in dataset.files("flows", 1).items()}
    content = dataset.read(flows[RUN])
    dataset.put(flows[RUN], content[:100] + bytes([content[100] ^ 1]) + content[101:])
    dataset.filesystem.rm_file(dataset.at(flows[OTHER]))
    with ddnn_traces.open(bucket, [RUN]) as opened:
        assert opened.place.damages is not None
        found = {(damage.run_id, damage.file, damage.problem) for damage in opened.place.damages()}
    changed = "changed: it does not match its checksum"
    assert found == {(RUN, flows[RUN], changed), (OTHER, flows[OTHER], "missing")}
    done = command("check", bucket)
    assert done.returncode == 1 and b"2 damaged files" in done.stdout
    with pytest.raises(UsageError, match=r"is not what was written|no such object"):
        copy(bucket, f"{bucket}/copy")


def test_commands_take_the_url(local: Path, bucket: str, command: RunCommand, tmp_path: Path) -> None:
    assert command("copy", local, bucket).returncode == 0
    for arguments in (
        ("runs", bucket),
        ("describe", bucket),
        ("query", bucket, "run_overview", "--run", "*-tso"),
        ("sql", bucket, "SELECT count(*) FROM flows"),
        ("report", bucket, "--out", tmp_path / "report.html"),
    ):
        done = command(*arguments)
        assert done.returncode == 0, done.stderr
    assert (tmp_path / "report.html").stat().st_size > 100_000


def same_but_views(one: Path, other: Path) -> bool:
    found = filecmp.dircmp(one, other, ignore=["traces.duckdb"])

    def same(pair: filecmp.dircmp[str]) -> bool:
        wrong = [*pair.left_only, *pair.right_only, *pair.funny_files]
        equal = filecmp.cmpfiles(pair.left, pair.right, pair.common_files, shallow=False)[1:] == ([], [])
        return not wrong and equal and all(map(same, pair.subdirs.values()))

    return same(found)


def test_there_and_back_is_the_same_folder(local: Path, newer: Path, bucket: str, tmp_path: Path) -> None:
    copy(local, bucket)
    copy(bucket, tmp_path / "back")
    assert same_but_views(local, tmp_path / "back")
    assert not same_but_views(newer, tmp_path / "back")
    copy(bucket, f"{bucket}/other/place")
    assert state(f"{bucket}/other/place") == state(local)


def test_copies_of_some_runs(local: Path, newer: Path, bucket: str, tmp_path: Path) -> None:
    copy(local, bucket, ["*-tso"])
    assert {run for _, run in state(bucket)} == {OTHER}
    copy(newer, tmp_path / "mixed")
    copy(bucket, tmp_path / "mixed")
    assert of(state(tmp_path / "mixed"), OTHER) == of(state(local), OTHER)
    assert of(state(tmp_path / "mixed"), RUN) == of(state(newer), RUN)
    assert checksums.all_damages(tmp_path / "mixed") == []
    with pytest.raises(UsageError, match="no run named nope"):
        copy(local, bucket, ["nope"])


def test_a_damaged_folder_is_not_copied(local: Path, bucket: str, tmp_path: Path) -> None:
    copy(local, tmp_path / "damaged")
    path = partition(tmp_path / "damaged", "flows", RUN) / "part-0.parquet"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(UsageError, match="bytes instead of"):
        copy(tmp_path / "damaged", bucket)
    assert objects(bucket) == set()


def test_vacuum_removes_exactly_what_is_not_needed(local: Path, newer: Path, bucket: str) -> None:
    copy(local, bucket)
    first = in_use(bucket)
    copy(newer, bucket)
    stray = "flows/run_id=x/part-0-0123456789abcdef.parquet"
    StoredDataset(bucket).put(stray, b"never committed")
    notes = "notes.txt"
    StoredDataset(bucket).put(notes, b"of the user")
    expected = (first - in_use(bucket)) | {stray}
    assert vacuum(bucket) == []
    assert {one.path for one in vacuum(bucket, 0, dry_run=True)} == expected
    assert objects(bucket) == in_use(bucket) | expected | {notes}
    assert {one.path for one in vacuum(bucket, 0)} == expected
    assert objects(bucket) == in_use(bucket) | {notes}
    with ddnn_traces.open(bucket) as dataset:
        assert dataset.run_ids == sorted([RUN, OTHER])
    assert state(bucket) == state(newer)


def test_vacuum_after_a_killed_writer_keeps_the_named_versions(local: Path, newer: Path, bucket: str) -> None:
    copy(local, bucket)
    assert killed(newer, bucket, (NEXT, "before"))  # all tables but runs have the new files
    dataset = StoredDataset(bucket)
    assert int(dataset.table("flows").version()) > dataset.head().versions["flows"]
    removed = {one.path for one in vacuum(bucket, 0)}
    assert len(removed) >= 2 * TABLES
    assert state(bucket) == state(local) and objects(bucket) == in_use(bucket)
    copy(newer, bucket)
    assert state(bucket) == state(newer)


def test_vacuum_keeps_what_was_in_use_within_the_days(
    local: Path, newer: Path, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ddnn_traces.store.delta import commit as module

    copy(local, bucket)
    copy(newer, bucket, [RUN])
    # all objects are old, the commits are not
    monkeypatch.setattr(module, "_written", lambda _: 0.0)
    StoredDataset(bucket).put("flows/run_id=x/part-0-0.parquet", b"stray")
    assert [one.path for one in vacuum(bucket)] == ["flows/run_id=x/part-0-0.parquet"]
