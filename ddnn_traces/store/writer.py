"""Writing a dataset: what every writer does, and that of a folder: next to the old dataset, then in its place by one
rename. delta/delta_writer.py has that of an object store.

DATASET/dataset.json marks a dataset; DATASET/TABLE/run_id=RUN/part-0.parquet holds a run's rows; DATASET/traces.duckdb
(query/views.py) is written after a commit. A new version is built
in a hidden folder next to it (unchanged runs as hard links) and exchanged with the old one in one system call where
Linux has it, so that a reader finds the old dataset or the new one, never a mixture. A long ingest does so several
times: all tables of a run are the old ones or all are the new ones. The same holds after a loss of power: the new
files and all new folders are on the disk before they are exchanged, the exchange before the old version is removed.

    .NAME.partial-PID/next/       the next version
    .NAME.partial-PID/scratch/    temporary files
    .NAME.partial-PID/old/        the old version, where folders cannot be exchanged, between two renames
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import glob
import os
import re
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Self

import pyarrow as pa
import pyarrow.parquet as pq

from ddnn_traces.errors import UsageError
from ddnn_traces.store import checksums, layout, schema
from ddnn_traces.store.layout import MARKER, has_marker, is_dataset, read_marker, write_marker
from ddnn_traces.store.locking import DatasetLock
from ddnn_traces.store.parquet import annotated, encodings, partition, row_groups, rows_file
from ddnn_traces.store.whole_files import is_running, make_folders, remove, sync, sync_tree, whole_file

ROW_GROUP_ROWS = 1 << 17

_OLD = "old"

_AT_FDCWD, _RENAME_EXCHANGE = -100, 2  # linux/fcntl.h, linux/fs.h


class Writer(ABC):
    """New versions of a dataset: commit() puts one in place, leaving the context discards the rest.

    name: of the dataset as users see it.
    """

    #: Folder for what is not finished, on this machine.
    partial: Path

    def __init__(self, name: str) -> None:
        self.name = name
        #: Whether it had to wait for another ingest.
        self.waited = False
        #: Runs that were written, and how many of them are in the dataset.
        self.written: list[str] = []
        self.committed = 0
        self._ended: set[str] = set()  # those that were written
        self._kept: set[str] = set()  # runs whose other tables are those in the dataset

    @abstractmethod
    def __enter__(self) -> Self: ...

    @abstractmethod
    def __exit__(self, *_: object) -> None: ...

    @property
    def scratch(self) -> Path:
        """Folder for temporary files."""
        return self.partial / "scratch"

    @property
    @abstractmethod
    def exists(self) -> bool:
        """Whether there is a dataset now."""

    @property
    @abstractmethod
    def folder(self) -> Path | None:
        """The folder of the dataset, None where it is on a store."""

    @abstractmethod
    def is_there(self, run_id: str) -> bool:
        """Whether the dataset has the run now."""

    @abstractmethod
    def texts(self) -> dict[str, str]:
        """Content of inputs.json and sources.json of the dataset now, without those that are missing or no text."""

    @abstractmethod
    def damages(self, run_id: str) -> Sequence[checksums.Damage]:
        """What is damaged of a run in the dataset."""

    @abstractmethod
    def damaged_records(self) -> Sequence[checksums.Damage]:
        """Damaged files that belong to no run, which a commit writes again."""

    @property
    def uncommitted(self) -> bool:
        """Whether there is a run that is not in the dataset yet."""
        return self.committed < len(self.written)

    def has_run(self, run_id: str) -> bool:
        """Whether the next version will hold the run."""
        return run_id in self._ended or self.is_there(run_id)

    @contextlib.contextmanager
    def new_run(self, run_id: str, keep: bool = False) -> Iterator[None]:
        """Around the writing of a run's tables; the run counts when it is left without an error.

        keep: tables that are not written remain as they are in the dataset, of a run without damages().
        """
        yield
        self.written.append(run_id)
        self._ended.add(run_id)
        if keep:
            self._kept.add(run_id)

    @abstractmethod
    def write(self, table: str, run_id: str, batches: Iterable[pa.RecordBatch], provenance: dict[str, str]) -> None:
        """Write a run's rows of one table. batches: in the table's schema and order."""

    @abstractmethod
    def put(self, table: str, run_id: str, file: Path) -> None:
        """As write(), of a Parquet file of another dataset, which is left as it is."""

    def new_file(self, table: str, run_id: str) -> Path:
        """Where a run's rows of one table are written."""
        return rows_file(self.partial / "next", table, run_id)

    def take(self, table: str, run_id: str, file: Path) -> None:
        """As write(), of a Parquet file with these rows in `scratch`, which is moved."""
        path = self.new_file(table, run_id)
        path.parent.mkdir(parents=True)
        file.rename(path)

    @abstractmethod
    def commit(self, files: Mapping[str, str]) -> None:
        """Put the old dataset's other runs and the ones written in its place, with these text files (name: content)."""

    @abstractmethod
    def commit_finished(self, files: Mapping[str, str]) -> None:
        """As commit(), after an interrupt."""

    @abstractmethod
    def replace_files(self, files: Mapping[str, str]) -> None:
        """Write these text files where they differ, and nothing else of the dataset."""


class DatasetWriter(Writer):
    """New versions of the dataset at `out`: commit() puts one in place, leaving the context discards the rest.

    Entering waits until no other ingest writes the dataset, and reports that with `report`; with `wait` false it raises
    BusyError instead. Raises UsageError when `out` exists and is not a dataset, or cannot be written.
    """

    def __init__(self, out: Path, wait: bool = True, report: Callable[[str], None] = lambda _: None) -> None:
        super().__init__(str(out))
        self.out = out.resolve()
        self._stored: dict[str, checksums.Files] = {}
        self._wait, self._report = wait, report
        self._is_committing = False
        self._oldest = schema.SCHEMA_VERSION  # of the runs that were written
        self._lock = DatasetLock(self.out)
        if not _lacks_marker(self.out):
            check_target(self.out)
        self.partial = self.out.parent / f".{self.out.name}.partial-{os.getpid()}"

    def __enter__(self) -> Self:
        try:
            make_folders(self.out.parent)
            self.waited = self._lock.acquire(self._wait, self._report)
            try:
                _remove_stale(self.out, all_are_stale=self._lock.is_held)
                self.partial.mkdir()
                self.scratch.mkdir()
                if _lacks_marker(self.out):
                    self._write_marker()
                check_target(self.out)  # again: no other process changes it now
                self._stored = checksums.read(self.out)
            except BaseException:
                self.__exit__()
                raise
        except OSError as error:
            raise UsageError(f"{self.out}: cannot be written ({error.strerror}); choose another --out") from error
        return self

    def __exit__(self, *_: object) -> None:
        try:
            _discard(self.partial, self.out)
        finally:
            self._lock.release()

    def _write_marker(self) -> None:
        """Write dataset.json, which is damaged or gone, as the files of the runs have it; not of a newer version's."""
        versions = {schema.SCHEMA_VERSION, *map(schema_version, (self.out / "runs").glob("*/*.parquet"))}
        if max(versions) > schema.SCHEMA_VERSION:
            return
        write_marker(self.scratch, oldest=min(versions))
        sync([self.scratch / MARKER])
        (self.scratch / MARKER).replace(self.out / MARKER)
        self._report(f"{self.name}/{MARKER}: damaged or missing; it is written again")

    @property
    def next(self) -> Path:
        """The version that is being built."""
        return self.partial / "next"

    @property
    def exists(self) -> bool:
        return is_dataset(self.out)

    @property
    def folder(self) -> Path | None:
        return self.out

    def is_there(self, run_id: str) -> bool:
        return partition(self.out, "runs", run_id).is_dir()

    def texts(self) -> dict[str, str]:
        return layout.texts(self.out)

    def damages(self, run_id: str) -> list[checksums.Damage]:
        """What is damaged of a run in the dataset. The files of one without a record are recorded if they are sound."""
        found = checksums.damages(self.out, run_id, self._stored.get(run_id))
        if not found and run_id not in self._stored:
            self._stored[run_id] = checksums.of_run(self.out, run_id)
        return found

    def damaged_records(self) -> list[checksums.Damage]:
        return list(checksums.damaged_records(self.out)) if is_dataset(self.out) else []

    def write(self, table: str, run_id: str, batches: Iterable[pa.RecordBatch], provenance: dict[str, str]) -> None:
        write_rows(self.new_file(table, run_id), table, batches, provenance)

    def put(self, table: str, run_id: str, file: Path) -> None:
        path = self.new_file(table, run_id)
        path.parent.mkdir(parents=True)
        shutil.copyfile(file, path)
        self._oldest = min(self._oldest, schema_version(file))

    def commit(self, files: Mapping[str, str]) -> None:
        self._is_committing = True
        new = {run_id: self._files_of(run_id) for run_id in checksums.run_ids(self.next)}
        oldest = self._oldest
        before = min(oldest, read_marker(self.out).oldest) if is_dataset(self.out) else oldest
        for table in schema.TABLES:
            (self.next / table).mkdir(parents=True, exist_ok=True)
            for old in sorted((self.out / table).glob("run_id=*")):
                if not (self.next / table / old.name).exists():
                    _link_tree(old, self.next / table / old.name)
                    oldest = before
        there = checksums.run_ids(self.next)
        self._stored = {run_id: stored for run_id, stored in (self._stored | new).items() if run_id in there}
        files = {**files, checksums.FILE: checksums.text(self._stored)}
        _keep_other_files(self.out, self.next, files)
        for name, text in files.items():
            (self.next / name).write_text(text, encoding="utf-8")
        write_marker(self.next, oldest=oldest)
        sync_tree(self.next, linked=False)  # a file that is linked was synced when it was written
        _put_in_place(self.next, self.out)
        self.committed = len(self.written)
        for old in (self.next, self.partial / _OLD):
            shutil.rmtree(old, ignore_errors=True)
        self._is_committing = False

    def _files_of(self, run_id: str) -> checksums.Files:
        """The record of a run that was written."""
        kept = self._stored.get(run_id, {}) if run_id in self._kept else {}
        return {**kept, **checksums.of_run(self.next, run_id)}

    def commit_finished(self, files: Mapping[str, str]) -> None:
        """As commit(), after an interrupt; nothing where that came during a commit: `next` may mix versions then."""
        if self.uncommitted and not self._is_committing:
            for run_id in checksums.run_ids(self.next) - {*self.written}:
                for table in schema.TABLES:
                    shutil.rmtree(partition(self.next, table, run_id), ignore_errors=True)
            self.commit(files)

    def replace_files(self, files: Mapping[str, str]) -> None:
        """Write these text files and the record of checksums where they differ, and nothing else of the dataset."""
        for name, text in {**files, checksums.FILE: checksums.text(self._stored)}.items():
            path = self.out / name
            if not path.is_file() or path.read_bytes() != text.encode():
                with whole_file(path, self.partial) as new:
                    new.write_text(text, encoding="utf-8")


def write_rows(path: Path, table: str, batches: Iterable[pa.RecordBatch], provenance: Mapping[str, str]) -> None:
    """Write a table's Parquet file, in a new folder. batches: in the table's schema and order."""
    path.parent.mkdir(parents=True)
    arrow = annotated(table, provenance)
    options = {"compression": "zstd", "write_page_index": True, "write_page_checksum": True}
    with pq.ParquetWriter(path, arrow, **options, **encodings(table)) as writer:
        for group in row_groups(batches, arrow, ROW_GROUP_ROWS):
            writer.write_table(group, row_group_size=ROW_GROUP_ROWS)


def check_target(out: Path) -> None:
    """Raise UsageError unless `out` is new, an empty folder or a dataset of this schema version, and no release."""
    layout.refuse_inside(out)
    layout.check_path(out)
    if not out.exists():
        return
    if not out.is_dir() or (any(out.iterdir()) and not is_dataset(out)):
        raise UsageError(f"{out}: exists and is not a ddnn_traces dataset; choose another --out or remove it")
    if is_dataset(out):
        read_marker(out)
    if _is_mount_point(out):
        raise UsageError(
            f"{out}: is a mount point, which cannot be replaced by another folder; choose a folder in it, like "
            f"{out / 'dataset'}"
        )


def _lacks_marker(out: Path) -> bool:
    """Whether a folder is a dataset but for dataset.json, which is damaged or gone: DatasetWriter writes it again."""
    return not has_marker(out) and bool(checksums.read(out))


def schema_version(path: Path) -> int:
    """As a Parquet file states it; of a damaged one that of this program, which will write it again."""
    try:
        return int((pq.read_schema(path).metadata or {})[b"ddnn_traces.schema_version"])
    except (OSError, ValueError, KeyError, pa.ArrowException):
        return schema.SCHEMA_VERSION


def _is_mount_point(folder: Path) -> bool:
    """Whether something is mounted there, also from the same file system (bind mounts)."""
    if os.path.ismount(folder):
        return True
    try:
        lines = Path("/proc/self/mountinfo").read_bytes().splitlines()
    except OSError:
        return False
    escaped = re.sub(rb"[ \t\n\\]", lambda match: b"\\%03o" % match[0][0], os.fsencode(folder))
    return any(line.split()[4] == escaped for line in lines)


def _link_tree(source: Path, target: Path) -> None:
    shutil.copytree(source, target, symlinks=True, copy_function=_link)


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # a file system without hard links
        shutil.copy2(source, target)


def _keep_other_files(old: Path, new: Path, replaced: Iterable[str]) -> None:
    """Keep other files in the dataset's folder (a report, notes)."""
    for path in sorted(old.iterdir()) if old.exists() else []:
        if path.name in (*schema.TABLES, MARKER, *replaced):
            continue
        if path.is_dir() and not path.is_symlink():
            _link_tree(path, new / path.name)
        else:
            shutil.copy2(path, new / path.name, follow_symlinks=False)


def _put_in_place(new: Path, out: Path) -> None:
    """Rename `new` to `out`, on the disk too. The old folder is then at `new` or next to it: the caller removes it."""
    folders = [new.parent, out.parent]
    sync(folders)  # or the old version could be in a folder that is lost
    if not out.exists():
        new.rename(out)
    elif not _exchange(new, out):
        old = new.with_name(_OLD)
        out.rename(old)
        new.rename(out)  # after a kill before this line, the next ingest restores the old one: see _discard
    sync(folders)


def _exchange(one: Path, other: Path) -> bool:
    """Swap two folders atomically (renameat2); False where the system or file system cannot."""
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "renameat2"):
        return False
    if libc.renameat2(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE) == 0:
        return True
    if (code := ctypes.get_errno()) in (errno.EINVAL, errno.ENOSYS):
        return False
    raise OSError(code, os.strerror(code), str(other))


def _discard(partial: Path, out: Path) -> None:
    """Remove a hidden folder. An old version in it is moved back if its place is empty."""
    old = partial / _OLD
    if not out.exists() and is_dataset(old):
        old.rename(out)
    remove(partial)


def _remove_stale(out: Path, all_are_stale: bool) -> None:
    """Remove the folders that killed ingests left next to `out`: all, or those of processes that no longer run."""
    for path in out.parent.glob(f".{glob.escape(out.name)}.partial-*"):
        pid = path.name.rsplit("-", 1)[1]
        # In a container pids come again: one that is ours is not that ingest.
        if pid.isdigit() and (all_are_stale or int(pid) == os.getpid() or not is_running(int(pid))):
            _discard(path, out)
