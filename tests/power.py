"""What is on the disk: a rename that publishes what a loss of power would destroy fails the test."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ddnn_traces.store import whole_files, writer

_SYNC = whole_files.sync

#: What a loss of power can change: of a file its size and time, of a folder the names in it.
State = tuple[int, int] | tuple[str, ...]


class Disk:
    """Records fsync, and checks each rename below a folder when it happens.

    Before it, all that it publishes has to be on the disk as it is then. After it, the folders with the changed names
    have to be, before another folder is removed, and in the end.
    """

    def __init__(self, top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.published: list[str] = []
        self.synced_folders: set[Path] = set()
        self._top = top
        self._synced: dict[tuple[int, int], State] = {}
        self._changed: set[tuple[int, int]] = set()
        monkeypatch.setattr(whole_files, "sync", _SYNC)  # other tests leave it out
        for name, replacement in (
            ("fsync", self._recorded_sync(os.fsync)),
            ("rename", self._checked(os.rename)),
            ("replace", self._checked(os.replace)),
        ):
            monkeypatch.setattr(os, name, replacement)
        monkeypatch.setattr(writer, "_exchange", self._checked(writer._exchange, both=True))
        monkeypatch.setattr(shutil, "rmtree", self._after_sync(shutil.rmtree))

    def assert_durable(self, *published: str) -> None:
        """These names were first published in this order, and no rename can be lost any more."""
        assert tuple(dict.fromkeys(self.published)) == published, self.published
        assert not self._changed

    def _recorded_sync(self, sync: Callable[[int], None]) -> Callable[[int], None]:
        def recorded(file: int) -> None:
            path = Path(f"/proc/self/fd/{file}").readlink()
            before = _state(path)  # what is written meanwhile may not be on the disk
            sync(file)
            self._synced[_identity(path)] = before
            self._changed.discard(_identity(path))
            self.synced_folders |= {path} if path.is_dir() else set()

        return recorded

    def _checked(self, rename: Callable[[Path, Path], object], both: bool = False) -> Callable[[Path, Path], object]:
        def checked(source: Path, target: Path) -> object:
            source, target = Path(source), Path(target)
            is_old = target.name == "old"  # the version before: nothing of it changes
            if target.resolve().is_relative_to(self._top) and not is_old:  # not a cache
                for path in _everything(source):
                    assert self._synced.get(_identity(path)) == _state(path), f"{path}: published, not on the disk"
            done = rename(source, target)
            if done is False:  # folders cannot be exchanged here
                return False
            if target.resolve().is_relative_to(self._top):
                self._changed |= {_identity(target.parent)} | ({_identity(source.parent)} if both else set())
                self.published += [] if is_old else [target.name]
            return done

        return checked

    def _after_sync(self, remove: Callable[..., None]) -> Callable[..., None]:
        def checked(path: Path, **options: object) -> None:
            assert not self._changed, f"{path}: removed before the rename is on the disk"
            remove(path, **options)

        return checked


def _identity(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_dev, status.st_ino


def _everything(path: Path) -> Iterator[Path]:
    """A path and all files and folders below it, without links."""
    yield from (found for found in (path, *path.rglob("*")) if not found.is_symlink())


def _state(path: Path) -> State:
    status = path.stat()
    if stat.S_ISDIR(status.st_mode):
        return tuple(sorted(below.name for below in path.iterdir()))
    return status.st_size, status.st_mtime_ns
