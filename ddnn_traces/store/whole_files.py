"""Files and folders that are complete or absent: written next to their place, then put there by one rename.

Also after a loss of power: what a rename publishes is on the disk before it, and the rename itself when it is done.
Without that, a file system may have the new names on the disk half a minute before the content.
"""

from __future__ import annotations

import contextlib
import errno
import glob
import hashlib
import os
import secrets
import shutil
import stat
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ddnn_traces.errors import UsageError

#: `errno` of an OSError that means that nothing more can be written: disk or quota full, file too large, read-only.
NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)

#: What DuckDB's errors of memory say where the disk that it offloads to is full.
_DISK_WORDS = ("offload", os.strerror(errno.ENOSPC))

#: `errno` of fsync or open where a file system cannot sync, or a folder may be entered but not read.
_CANNOT_SYNC = (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EACCES)

#: Threads that wait for the disk: a journal writes what many of them wait for at once.
_SYNCS = 16


def no_space(error: BaseException | None) -> str | None:
    """Why nothing more can be written, where an error of the system or of DuckDB says that; else None.

    An error of memory is among them where DuckDB could not offload to the disk what does not fit; else no_memory()
    tells. Its other I/O errors are of Parquet files, which it only reads.
    """
    import duckdb

    if isinstance(error, OSError) and error.errno in NO_SPACE:
        return error.strerror or str(error)
    unread = isinstance(error, duckdb.IOException) and ".parquet" in str(error)
    if isinstance(error, duckdb.OutOfMemoryException | duckdb.IOException) and not unread and no_memory(error) is None:
        return str(error).splitlines()[0]
    return None


def no_memory(error: BaseException | None) -> str | None:
    """Why DuckDB has not enough memory, where the disk is not what it lacks; else None."""
    import duckdb

    reason = str(error).partition("\n")[0]
    is_of_disk = any(words in reason for words in _DISK_WORDS)
    return reason if isinstance(error, duckdb.OutOfMemoryException) and not is_of_disk else None


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


def sync(paths: Iterable[Path]) -> None:
    """Return when files with their content, and folders with the names in them, are on the disk. Raises OSError."""
    with ThreadPoolExecutor(_SYNCS) as threads:
        for _ in threads.map(_sync, paths):
            pass


def _sync(path: Path) -> None:
    try:
        file = os.open(path, os.O_RDONLY)
        try:
            os.fsync(file)
        finally:
            os.close(file)
    except OSError as error:
        if error.errno not in _CANNOT_SYNC:
            raise OSError(error.errno, error.strerror, str(path)) from error


def sync_tree(folder: Path, linked: bool = True) -> None:
    """As sync() for a folder and all that is in it. linked: also files that have another name (hard links).

    Raises OSError.
    """
    files, folders = [], []
    for above, _, names in os.walk(folder, onerror=_raise):
        folders.append(Path(above))
        for path in (Path(above, name) for name in names):
            status = path.lstat()
            if stat.S_ISREG(status.st_mode) and (linked or status.st_nlink == 1):
                files.append(path)
    sync(files)
    sync(folders)


def _raise(error: OSError) -> None:
    raise error


def make_folders(path: Path) -> list[Path]:
    """Make a folder and those above it, on the disk too; return the new ones, the lowest first. Raises OSError."""
    new = [folder for folder in (path, *path.parents) if not folder.exists()]
    try:
        path.mkdir(parents=True, exist_ok=True)
    except FileExistsError as error:  # a file is there
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path)) from error
    sync(folder.parent for folder in new)
    return new


def _half_written(path: Path) -> Path:
    """A new name next to a path for what is not whole yet, which nobody can foresee; remove_left_behind() knows it."""
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}.{os.getpid()}")


def passes_on(path: Path) -> bool:
    """Whether what is written there goes elsewhere: to a device, a pipe or an open file (/dev/stdout)."""
    above = path.parent.resolve()
    is_of_system = above == Path("/dev") or above.is_relative_to("/proc")
    return is_of_system or (path.exists() and not path.is_file())


@contextlib.contextmanager
def whole_file(path: Path, folder: Path | None = None) -> Iterator[Path]:
    """The path to write to: it takes the place of `path` when the context is left, and is removed after an error.

    Folders above `path` that are missing are made, and removed after an error. folder: for what is half written, on the
    file system of `path`; None: that of `path`. A link is replaced and never followed: a folder that others made may
    have links to any file. Raises OSError, and UsageError where something else than a file is there, such as a pipe.
    """
    if passes_on(path):
        raise UsageError(f"{path}: is there and not a file; give the name of a file to write")
    path = path.parent.resolve() / path.name
    above = make_folders(path.parent)
    half_written = _half_written((folder or path.parent) / path.name)
    os.close(os.open(half_written, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
    try:
        yield half_written
        sync([half_written])
        half_written.replace(path)
        sync([path.parent])
    finally:
        with contextlib.suppress(OSError):
            half_written.unlink()
        for new in above:  # which hold nothing after an error
            with contextlib.suppress(OSError):
                new.rmdir()


@contextlib.contextmanager
def whole_files(folder: Path) -> Iterator[Path]:
    """A folder to write files into: they take the places of those of `folder`, which is made where it is missing, when
    all are on the disk; after an error no file there has changed. Raises OSError.
    """
    make_folders(folder)
    half_written = _half_written(folder.resolve() / "files")
    half_written.mkdir()
    try:
        yield half_written
        sync_tree(half_written)
        for path in sorted(half_written.iterdir()):
            path.replace(folder / path.name)
        sync([folder])
    finally:
        shutil.rmtree(half_written, ignore_errors=True)


def remove(path: Path) -> None:
    """Remove a file, a link or a folder, where there is one; what a link leads to stays."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def remove_left_behind(path: Path) -> None:
    """Remove the half-written files of killed programs next to a file or folder; not those of running programs."""
    for half_written in path.parent.glob(f".{glob.escape(path.name)}.*"):
        pid = half_written.name.rpartition(".")[2]
        if pid.isdigit() and not is_running(int(pid)):
            remove(half_written)


@contextlib.contextmanager
def whole_folder(path: Path) -> Iterator[Path]:
    """The same for a folder that is new, or is there and empty; folders above it are made, and removed after an error.

    What a killed program leaves is hidden (.NAME.RANDOM.PID), and no run to ingest.
    """
    above = [folder for folder in path.parents if not folder.exists()]
    half_written = _half_written(path)
    try:
        make_folders(path.parent)
        half_written.mkdir()
        yield half_written
        sync_tree(half_written)
        half_written.replace(path)
        sync([path.parent])
    except BaseException:
        shutil.rmtree(half_written, ignore_errors=True)
        for folder in above:
            with contextlib.suppress(OSError):
                folder.rmdir()
        raise
