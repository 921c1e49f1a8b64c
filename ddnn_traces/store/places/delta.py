"""A dataset on an object store, at its last commit when it is opened (store/delta).

DuckDB reads through a file system of its own scheme, which knows the files of that commit, or of the wanted runs, and
nothing else. Of a large file it fetches the ranges that a query needs; a small one is fetched whole, once. With a cache
every file is, into a folder that other processes may use at the same time.
"""

from __future__ import annotations

import os
import tempfile
import threading
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ddnn_traces.errors import DdnnTracesError, UsageError, needs_extra
from ddnn_traces.jobs import thread_pool
from ddnn_traces.store import checksums, hashes, layout, object_store, schema
from ddnn_traces.store.places.place import Place
from ddnn_traces.store.places.remote import KnownFiles, Reader
from ddnn_traces.store.whole_files import whole_file
from ddnn_traces.text import counted

if TYPE_CHECKING:
    from ddnn_traces.store.delta.delta_dataset import Head, StoredDataset, TableFile

#: Files up to so many bytes are fetched whole.
_WHOLE = 256 << 10
#: So many bytes at the end of a larger one are fetched together: DuckDB reads the footer in two or three steps.
_END = 64 << 10
_READERS = 8  # threads of a check
_PIECE = 8 << 20  # bytes that it reads at once

_SCHEME = "dataset"


def place(url: str, runs: Sequence[str] | None = None, cache: Path | None = None) -> Place | None:
    """The place of a dataset on a store; None where there is none, but perhaps a release. Raises UsageError,
    StorageError.
    """
    try:
        if not _has_dataset(url):
            return None
    except DdnnTracesError:
        raise
    except Exception as error:
        raise object_store.explained(error, url) from error
    with needs_extra("cluster"):
        from ddnn_traces.store.delta.delta_dataset import StoredDataset
    with object_store.errors(url):
        dataset = StoredDataset(url)
        head = dataset.head()
        marker = dataset.marker()
        if marker is None or not head.is_dataset:
            raise UsageError(f"{dataset.name}: no dataset yet, its first commit was not finished; ingest into it again")
        tables = dataset.all_files(head)
    return _Snapshot(dataset, head, tables).place(marker, runs, cache)


def _has_dataset(url: str) -> bool:
    """Whether there is a Delta table of runs, or a dataset that has none yet. Raises the library's errors."""
    filesystem, root = object_store.filesystem(url)
    try:
        return bool(object_store.retried(lambda: filesystem.ls(f"{root}/runs/_delta_log", detail=False)))
    except FileNotFoundError as error:
        if object_store.lacks_bucket(error):
            raise
        return bool(filesystem.exists(f"{root}/{layout.MARKER}") and not filesystem.exists(f"{root}/{layout.RELEASE}"))


@dataclass(frozen=True)
class _Snapshot:
    """A dataset as one commit made it."""

    dataset: StoredDataset
    head: Head
    tables: Mapping[str, Mapping[str, TableFile]]

    def place(self, marker: layout.Marker, runs: Sequence[str] | None, cache: Path | None) -> Place:
        wanted = None if runs is None else {*runs}
        chosen = {
            f"{table}/{file.path}": file
            for table, files in self.tables.items()
            for file in sorted(files.values(), key=lambda file: file.run_id)
            if wanted is None or file.run_id in wanted
        }
        files = StoreFiles(self.dataset, {name: file.bytes for name, file in chosen.items()}, cache)
        listed: dict[str, list[str]] = {table: [] for table in schema.TABLES}
        filled: dict[str, set[str]] = {table: set() for table in schema.TABLES}
        for name, file in chosen.items():
            table = name.partition("/")[0]
            listed[table].append(f"{_SCHEME}://x/{name}")  # x: views.py needs a folder above the table's
            if file.rows:
                filled[table].add(file.run_id)
        return Place(
            self.dataset.name,
            listed,
            has_older_runs=marker.has_older_runs,
            filesystem=files,
            failure=lambda: files.failure,
            close=files.close,
            known_runs=frozenset(file.run_id for file in self.tables["runs"].values()),
            filled=filled,
            damages=self.damages,
        )

    def damages(self) -> list[checksums.Damage]:
        """The files of the commit that are not what was written, and records that cannot be trusted. Reads all."""
        with object_store.errors(self.dataset.url):
            texts = self.dataset.texts(self.head, [layout.INPUTS, checksums.FILE])
        found = checksums.damaged_texts(texts)
        recorded = checksums.parsed(texts.get(checksums.FILE, ""))
        files = [(table, file) for table, files in self.tables.items() for file in files.values()]
        with thread_pool(_READERS) as threads:
            problems = threads.map(lambda one: self._problem(one[0], one[1], recorded), files)
            damaged = [
                checksums.Damage(file.run_id, f"{table}/{file.path}", problem)
                for (table, file), problem in zip(files, problems, strict=True)
                if problem
            ]
        return [*found, *sorted(damaged, key=lambda damage: damage.file)]

    def _problem(self, table: str, file: TableFile, known: Mapping[str, checksums.Files]) -> str | None:
        """What is wrong with a file, by its record."""
        if (recorded := known.get(file.run_id, {}).get(f"{table}/{file.local}")) is None:
            return f"has no record in {checksums.FILE}"
        try:
            size, digest = self._state(f"{table}/{file.path}")
        except FileNotFoundError:
            return "missing"
        except Exception as error:
            raise object_store.explained(error, f"{self.dataset.url}/{table}/{file.path}") from error
        if size != recorded.bytes:
            return f"has {counted(size, 'byte')} instead of {recorded.bytes:,}"
        return None if digest == recorded.blake3 else "changed: it does not match its checksum"

    def _state(self, name: str) -> tuple[int, str]:
        """Size and BLAKE3 of an object."""
        filesystem, where = self.dataset.filesystem, self.dataset.at(name)
        size = int(object_store.retried(lambda: filesystem.info(where))["size"])
        digest = hashes.hasher(hashes.DEFAULT)
        for begin in range(0, size, _PIECE):
            digest.update(memoryview(_range(self.dataset, name, begin, min(size, begin + _PIECE))))
        return size, digest.hexdigest()


def _range(dataset: StoredDataset, name: str, begin: int, end: int) -> bytes:
    """Bytes of an object. Raises OSError where it has fewer."""
    data = bytes(object_store.retried(lambda: dataset.filesystem.cat_file(dataset.at(name), start=begin, end=end)))
    if len(data) != end - begin:
        raise OSError(f"{len(data):,} bytes instead of {end - begin:,} at {begin:,}")
    return data


class StoreFiles(KnownFiles):
    """The Parquet files of a commit for DuckDB.

    bytes_read: how many came from the store; requests: in how many answers. cache: folder where whole files are kept.
    """

    protocol = _SCHEME

    def __init__(self, dataset: StoredDataset, sizes: Mapping[str, int], cache: Path | None) -> None:
        super().__init__({f"x/{name}": size for name, size in sizes.items()})
        self.bytes_read = self.requests = 0
        self.failure: DdnnTracesError | None = None
        self._dataset, self._cache = dataset, cache
        self._scratch = tempfile.TemporaryDirectory(prefix="ddnn-traces-")
        self._folder = Path(self._scratch.name) if cache is None else cache / _folder_name(dataset)
        self._ends: dict[str, bytes] = {}
        self._lock = threading.Lock()
        self._locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)

    def close(self) -> None:
        """Remove what was fetched and is in no cache."""
        self._scratch.cleanup()

    def _open(self, path: str, mode: str = "rb", **_: Any) -> Reader:
        name = self._strip_protocol(path)
        if mode != "rb":
            raise PermissionError(f"{self._dataset.name}: a dataset on a store is written by ingest and copy only")
        size, name = self.sizes[name], name.removeprefix("x/")
        if self._cache is None and size > _WHOLE:
            return Reader(size, lambda begin, length: self.fetch(name, begin, begin + length))
        file = os.open(self._whole(name, size), os.O_RDONLY)
        return Reader(size, lambda begin, length: os.pread(file, length, begin), lambda: os.close(file))

    def fetch(self, name: str, begin: int, end: int) -> bytes:
        """Bytes of a file. Its end is fetched once."""
        size = self.sizes[f"x/{name}"]
        last = max(0, size - _END)
        if begin < last:
            return self._counted(name, begin, end)
        with self._lock_of(name):
            if name not in self._ends:
                self._ends[name] = self._counted(name, last, size)
        return self._ends[name][begin - last : end - last]

    def _counted(self, name: str, begin: int, end: int) -> bytes:
        if begin >= end:
            return b""
        try:
            data = _range(self._dataset, name, begin, end)
        except Exception as error:
            raise self._fail(name, error) from error
        with self._lock:
            self.bytes_read += len(data)
            self.requests += 1
        return data

    def _whole(self, name: str, size: int) -> Path:
        """The file on this machine."""
        path = layout.inside(self._folder, name, self._dataset.name)
        with self._lock_of(name):
            if not (path.is_file() and path.stat().st_size == size):
                data = self._counted(name, 0, size)
                try:
                    path.parent.mkdir(parents=True, exist_ok=True)
                    with whole_file(path) as half_written:
                        half_written.write_bytes(data)
                except OSError as error:
                    step = "give another folder or free space there"
                    raise self._failed(UsageError(f"{path}: cannot be kept ({error.strerror}); {step}")) from error
        return path

    def _lock_of(self, name: str) -> threading.Lock:
        with self._lock:
            return self._locks[name]

    def _fail(self, name: str, error: Exception) -> DdnnTracesError:
        if isinstance(error, FileNotFoundError):
            gone = f"{self._dataset.name}/{name}: is not there any more (a vacuum?); open the dataset again"
            return self._failed(UsageError(gone))
        return self._failed(object_store.explained(error, f"{self._dataset.url}/{name}"))

    def _failed(self, error: DdnnTracesError) -> DdnnTracesError:
        """Record why a read failed: DuckDB's own message does not contain it."""
        self.failure = self.failure or error
        return error


def _folder_name(dataset: StoredDataset) -> str:
    """Folder of a dataset in a cache: of its URL and of the server, where that is not the usual one."""
    digest = hashes.hasher("blake3")
    digest.update(memoryview(f"{object_store.endpoint()}\0{dataset.url}".encode()))
    return digest.hexdigest()[:16]
