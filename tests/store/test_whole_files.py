"""Files that are there whole or not at all."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ddnn_traces.errors import UsageError
from ddnn_traces.store.whole_files import is_running, sha256_of, whole_file, whole_folder


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


def test_a_link_stays_and_a_pipe_is_refused(tmp_path: Path) -> None:
    target, link, pipe = tmp_path / "target", tmp_path / "link", tmp_path / "pipe"
    link.symlink_to(target)
    os.mkfifo(pipe)
    with whole_file(link) as half_written:
        half_written.write_text("new")
    assert (link.is_symlink(), target.read_text()) == (True, "new")
    with pytest.raises(UsageError, match="pipe: is there and not a file"), whole_file(pipe):
        raise AssertionError("not reached")
    assert sorted(tmp_path.iterdir()) == [link, pipe, target]
