"""Writing a dataset: beside the old one, then in its place by one rename.

DATASET/dataset.json marks a dataset; DATASET/TABLE/run_id=RUN/part-0.parquet holds a run's rows. A new version is built
in a hidden folder beside it (unchanged runs as hard links) and exchanged with the old one in one system call where
Linux has it, so that a reader sees the old dataset or the new one, never a half.
"""

from __future__ import annotations

import ctypes
import errno
import glob
import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Self
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq

from ddnn_traces import schema
from ddnn_traces.errors import UsageError
from ddnn_traces.marker import MARKER, is_dataset, read_marker, write_marker

ROW_GROUP_ROWS = 1 << 17

_HIVE_NULLS = ("null", "__hive_default_partition__")  # what readers of Hive partitions take for NULL

_AT_FDCWD, _RENAME_EXCHANGE = -100, 2  # linux/fcntl.h, linux/fs.h


class DatasetWriter:
    """A new version of the dataset at `out`, as a context manager: commit() puts it in place, leaving discards it.

    Raises UsageError when `out` exists and is no dataset, or cannot be written.
    """

    def __init__(self, out: Path) -> None:
        self.out = out.resolve()
        check_target(self.out)
        self.partial = self.out.parent / f".{self.out.name}.partial-{os.getpid()}"

    def __enter__(self) -> Self:
        try:
            self.out.parent.mkdir(parents=True, exist_ok=True)
            _remove_stale(self.out)
            self.partial.mkdir()
        except OSError as error:
            raise UsageError(f"{self.out}: cannot be written ({error.strerror}); choose another --out") from error
        self.scratch.mkdir()
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.partial, ignore_errors=True)

    @property
    def scratch(self) -> Path:
        """Folder for temporary files, gone with commit."""
        return self.partial / "scratch"

    def write(self, table: str, run_id: str, batches: Iterable[pa.RecordBatch], provenance: dict[str, str]) -> None:
        """Write a run's rows of one table. batches: in the table's schema and order."""
        path = partition(self.partial, table, run_id) / "part-0.parquet"
        path.parent.mkdir(parents=True)
        arrow = _annotated(table, provenance)
        with pq.ParquetWriter(path, arrow, compression="zstd", write_page_index=True) as writer:
            for group in _row_groups(batches, arrow):
                writer.write_table(group, row_group_size=ROW_GROUP_ROWS)

    def commit(self) -> None:
        """Add the runs of the old dataset that were not written anew, and take its place."""
        shutil.rmtree(self.scratch)
        for table in schema.TABLES:
            (self.partial / table).mkdir(exist_ok=True)
            for old in sorted((self.out / table).glob("run_id=*")):
                if not (self.partial / table / old.name).exists():
                    _link_tree(old, self.partial / table / old.name)
        _keep_other_files(self.out, self.partial)
        write_marker(self.partial)
        _put_in_place(self.partial, self.out)


def check_target(out: Path) -> None:
    """Raise UsageError unless `out` is new, an empty folder or a dataset of this schema version."""
    if not out.exists():
        return
    if not out.is_dir() or (any(out.iterdir()) and not is_dataset(out)):
        raise UsageError(f"{out}: exists and is no ddnn_traces dataset; choose another --out or remove it")
    if is_dataset(out):
        read_marker(out)


def partition(dataset: Path, table: str, run_id: str) -> Path:
    """Folder of a run's rows of a table; characters that a path or Hive could misread are percent-encoded."""
    encoded = quote(run_id, safe=" +,@~")
    if run_id.lower() in _HIVE_NULLS:
        encoded = f"%{ord(run_id[0]):02X}{run_id[1:]}"
    return dataset / table / f"run_id={encoded}"


def _annotated(table: str, provenance: dict[str, str]) -> pa.Schema:
    """The table's schema with meaning and unit at each column and the provenance at the file."""
    arrow = schema.table(table).arrow()
    for i, column in enumerate(schema.table(table).columns):
        notes = {"meaning": column.meaning, "source": column.source, "unit": column.unit}
        if column.inaccuracy:
            notes["inaccuracy"] = column.inaccuracy
        arrow = arrow.set(i, arrow.field(i).with_metadata(notes))
    return arrow.with_metadata({f"ddnn_traces.{key}": value for key, value in sorted(provenance.items())})


def _row_groups(batches: Iterable[pa.RecordBatch], arrow: pa.Schema) -> Iterable[pa.Table]:
    """Tables of ROW_GROUP_ROWS rows, the last one shorter: the same groups however the batches are cut."""
    waiting: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        waiting.append(batch.replace_schema_metadata(None))
        rows += batch.num_rows
        if rows >= ROW_GROUP_ROWS:
            table = pa.Table.from_batches(waiting)
            full = rows - rows % ROW_GROUP_ROWS
            yield table.slice(0, full).cast(arrow)
            waiting, rows = table.slice(full).to_batches(), rows - full
    if waiting:
        yield pa.Table.from_batches(waiting).cast(arrow)


def _link_tree(source: Path, target: Path) -> None:
    shutil.copytree(source, target, symlinks=True, copy_function=_link)


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # a file system without hard links
        shutil.copy2(source, target)


def _keep_other_files(old: Path, new: Path) -> None:
    """What somebody else put into the dataset's folder (a report, notes) stays there."""
    for path in sorted(old.iterdir()) if old.exists() else []:
        if path.name in (*schema.TABLES, MARKER):
            continue
        if path.is_dir() and not path.is_symlink():
            _link_tree(path, new / path.name)
        else:
            shutil.copy2(path, new / path.name, follow_symlinks=False)


def _put_in_place(new: Path, out: Path) -> None:
    """Rename `new` to `out`; what was at `out` ends up at `new`, for the caller to remove."""
    if not out.exists():
        new.rename(out)
    elif not _exchange(new, out):
        old = new.with_name(new.name + "-old")
        out.rename(old)
        new.rename(out)
        shutil.rmtree(old, ignore_errors=True)


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


def _remove_stale(out: Path) -> None:
    """Remove what killed ingests left beside `out`."""
    for path in out.parent.glob(f".{glob.escape(out.name)}.partial-*"):
        pid = path.name.rsplit("-", 1)[1]
        if pid.isdigit() and (int(pid) == os.getpid() or not _alive(int(pid))):  # in a container pids come again
            shutil.rmtree(path, ignore_errors=True)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
