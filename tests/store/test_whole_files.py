"""Files that are there whole or not at all."""

from __future__ import annotations

import contextlib
import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ddnn_traces.errors import UsageError
from ddnn_traces.store.whole_files import is_running, sha256_of, whole_file, whole_files, whole_folder


def test_a_file_takes_its_place_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    with whole_file(path) as half_written:
        half_written.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_an_error_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    with pytest.raises(ZeroDivisionError), whole_file(path) as half_written:
        half_written.write_text("new")
        _ = 1 / 0
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_folders_above_a_file_are_made_and_removed_after_an_error(tmp_path: Path) -> None:
    path = tmp_path / "new" / "deep" / "file"
    with pytest.raises(ZeroDivisionError), whole_file(path):
        _ = 1 / 0
    assert list(tmp_path.iterdir()) == []
    with whole_file(path) as half_written:
        half_written.write_text("new")
    assert path.read_text() == "new"


def test_what_is_half_written_may_stand_in_another_folder(tmp_path: Path) -> None:
    (tmp_path / "scratch").mkdir()
    with whole_file(tmp_path / "file", tmp_path / "scratch") as half_written:
        assert half_written.parent == tmp_path / "scratch"
        half_written.write_text("new")
    assert (tmp_path / "file").read_text() == "new"


def test_a_folder_is_there_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "above" / "folder"
    with whole_folder(path) as half_written:
        (half_written / "file").write_text("new")
        assert half_written.name.startswith(".")
        assert not path.exists()
    assert sorted(tmp_path.rglob("*")) == [path.parent, path, path / "file"]


def test_an_error_leaves_no_folder_but_those_that_were_there(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    with pytest.raises(ZeroDivisionError), whole_folder(tmp_path / "there" / "new" / "folder") as half_written:
        (half_written / "file").write_text("new")
        _ = 1 / 0
    assert list(tmp_path.rglob("*")) == [tmp_path / "there"]


def test_a_folder_with_files_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("old")
    with pytest.raises(OSError, match="not empty"), whole_folder(tmp_path):
        pass
    assert (tmp_path / "file").read_text() == "old"


@pytest.mark.parametrize("size", [0, 1, 1 << 18, (1 << 18) + 1, 5_000_000])
def test_sha256_of_a_file(tmp_path: Path, size: int) -> None:
    content = bytes(range(256)) * (size // 256 + 1)
    (tmp_path / "file").write_bytes(content[:size])
    assert sha256_of(tmp_path / "file") == hashlib.sha256(content[:size]).hexdigest()


def test_running_processes() -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    assert not is_running(ended.pid)
    assert is_running(os.getpid())
    assert is_running(1)
    assert is_running(2**70)  # no process number at all: it may be another system's


@pytest.mark.parametrize("is_broken", [False, True])
def test_a_link_is_replaced_and_what_it_leads_to_stays(tmp_path: Path, is_broken: bool) -> None:
    path, other = tmp_path / "file", tmp_path / "other"
    if not is_broken:
        other.write_text("mine")
    path.symlink_to(other)
    with whole_file(path) as half_written:
        half_written.write_text("new")
    assert (path.is_symlink(), path.read_text()) == (False, "new")
    assert not other.exists() if is_broken else other.read_text() == "mine"
    assert sorted(tmp_path.iterdir()) == ([path] if is_broken else [path, other])


def test_what_passes_on_is_no_file_to_replace(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (
        tmp_path / "pipe",
        tmp_path,
        Path("/dev/null"),
        Path("/dev/stdout"),
        Path("/dev/fd/1"),
        Path("/dev/no"),
    ):
        with pytest.raises(UsageError, match="is there and not a file"), whole_file(path):
            raise AssertionError("not reached")
    assert not Path("/dev/no").exists()


def test_files_take_their_places_together(tmp_path: Path) -> None:
    (tmp_path / "one").write_text("old")
    (tmp_path / "two").symlink_to(tmp_path / "one")
    (tmp_path / "kept").write_text("kept")
    for fails in (True, False):
        with contextlib.suppress(ZeroDivisionError), whole_files(tmp_path) as new:
            (new / "one").write_text("new")
            (new / "two").write_text("second")
            assert (tmp_path / "one").read_text() == "old"
            _ = 1 / (not fails)
        assert (tmp_path / "one").read_text() == ("old" if fails else "new")
        assert (tmp_path / "two").is_symlink() == fails
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {
        "one": "new", "two": "second", "kept": "kept",
    }  # fmt: skip
