"""Files and folders that are complete or absent: written next to their place, then put there by one rename."""

from __future__ import annotations

import contextlib
import errno
import glob
import hashlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

#: `errno` of an OSError that means that nothing more can be written: disk or quota full, file too large, read-only.
NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)


def sha256_of(path: Path) -> str:
    """SHA-256 of a file, in hex. Raises OSError."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def is_running(pid: int) -> bool:
    """Whether a process of that number exists; True where that cannot be known."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True


@contextlib.contextmanager
def whole_file(path: Path, folder: Path | None = None) -> Iterator[Path]:
    """The path to write to: it takes the place of `path` when the context is left, and is removed after an error.

    folder: for what is half written, on the file system of `path`; None: that of `path`. Raises OSError.
    """
    half_written = (folder or path.parent) / f".{path.name}.{os.getpid()}"
    try:
        yield half_written
        half_written.replace(path)
    finally:
        with contextlib.suppress(OSError):
            half_written.unlink()


def remove_left_behind(path: Path) -> None:
    """Remove the half-written files of killed programs next to a file or folder; not those of running programs."""
    for half_written in path.parent.glob(f".{glob.escape(path.name)}.*"):
        pid = half_written.name.rpartition(".")[2]
        if pid.isdigit() and not is_running(int(pid)):
            if half_written.is_dir() and not half_written.is_symlink():
                shutil.rmtree(half_written, ignore_errors=True)
            else:
                half_written.unlink(missing_ok=True)


@contextlib.contextmanager
def whole_folder(path: Path) -> Iterator[Path]:
    """The same for a folder that is new, or is there and empty; folders above it are made, and removed after an error.

    What a killed program leaves is hidden (.NAME.PID), and no run to ingest.
    """
    above = [folder for folder in path.parents if not folder.exists()]
    half_written = path.parent / f".{path.name}.{os.getpid()}"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(half_written, ignore_errors=True)  # of a killed one: in a container process numbers come again
        half_written.mkdir()
        yield half_written
        half_written.replace(path)
    except BaseException:
        shutil.rmtree(half_written, ignore_errors=True)
        for folder in above:
            with contextlib.suppress(OSError):
                folder.rmdir()
        raise
