"""A release at a URL, through fsspec: release.json lists the files, since a web server does not.

DuckDB reads through a file system of its own scheme, `release://`, which knows the release's files and nothing else.
A small file is fetched whole, once, with the others of its table, and has to have its checksum; of a large one only
the ranges that a query needs are fetched (docs/verify.md has the measured times). A server without ranges: whole files.
"""

from __future__ import annotations

import hashlib
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fsspec.core import url_to_fs
from fsspec.spec import AbstractFileSystem

from ddnn_traces.errors import DdnnTracesError, ReleaseError, UsageError
from ddnn_traces.store import layout, schema
from ddnn_traces.store.layout import ListedFile, chosen, listed_files
from ddnn_traces.store.object_store import shown
from ddnn_traces.store.places import zipped
from ddnn_traces.store.places.place import Place

#: Files up to so many bytes are fetched whole; a range read of a Parquet file takes three requests at least.
_WHOLE = 1 << 20
#: Bytes of small files that are requested at once.
_TOGETHER = 32 << 20
#: Bytes of a large file that are read at once.
_BLOCK = 1 << 20
#: A release.json of a thousand runs has 4 MB.
_LARGEST_RELEASE_JSON = 256 << 20

_SCHEME = "release"


def place(url: str, runs: Sequence[str] | None = None) -> Place:
    """The place of a release at a URL: a folder or a zip file. Raises UsageError, ReleaseError."""
    scheme, _, path = url.partition("://")
    if scheme.lower() == "zip":
        where = path.removeprefix("::") or "FILE"
        raise UsageError(f"{shown(url)}: no URL of a release; give a zip file by its own path or URL, like {where}")
    try:
        filesystem, root = url_to_fs(url)
    except Exception as error:  # each kind of store has its own errors
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UsageError(f"{shown(url)}: cannot be read ({reason[:200]}); give a URL that fsspec knows") from error
    if root.split("?")[0].lower().endswith(".zip"):
        return _zip_place(url, filesystem, root, runs)
    content = _Content(shown(url), filesystem, root.rstrip("/"))
    text, content.root = content.release_json()
    marker = layout.parse_marker(content.fetch(layout.MARKER), content.name)
    listed = listed_files(text, content.name)
    remote = _ReleaseFiles(content, {file.path: file for file in listed})
    paths = chosen(listed, runs)
    return Place(
        content.name,
        {
            table: [f"{_SCHEME}://{path}" for path in paths[table]] if table in marker.tables else []
            for table in schema.TABLES
        },
        listed,
        has_older_runs=marker.has_older_runs,
        filesystem=remote,
        failure=lambda: content.failure,
        close=remote.scratch.cleanup,
    )


def _zip_place(url: str, filesystem: Any, root: str, runs: Sequence[str] | None) -> Place:
    with tempfile.TemporaryDirectory(prefix="ddnn-traces-") as folder:
        fetched = Path(folder) / "release.zip"
        try:
            filesystem.get_file(root, str(fetched))
        except Exception as error:
            raise _cannot_fetch(shown(url), "", error) from error
        try:
            found = zipped.place(fetched, runs)
        except DdnnTracesError as error:
            raise type(error)(str(error).replace(str(fetched), shown(url))) from error
    return replace(found, name=shown(url))


def _cannot_fetch(name: str, path: str, error: Exception) -> ReleaseError | UsageError:
    what = f"{name}/{path}" if path else name
    reason = str(error).splitlines()[0] if str(error) else type(error).__name__
    if isinstance(error, FileNotFoundError):
        return UsageError(f"{what}: no such file; check the URL: it is that of the release's folder or zip file")
    if isinstance(error, PermissionError):
        return ReleaseError(f"{what}: not allowed; give credentials as for the tools of that store")
    kind = type(error).__name__
    return ReleaseError(f"{what}: cannot be fetched ({kind}: {reason[:200]}); try again, or download the release")


@dataclass
class _Content:
    """The files below a URL. failure: the error of a failed read."""

    name: str
    filesystem: Any
    root: str
    failure: ReleaseError | UsageError | None = None
    _ranges: bool | None = None

    def release_json(self) -> tuple[bytes, str]:
        """release.json and its folder: the URL, or data/ of a bag. Raises ReleaseError, UsageError."""
        for root in (self.root, f"{self.root}/data"):
            try:
                text = self.filesystem.cat_file(self._at(layout.RELEASE, root), start=0, end=_LARGEST_RELEASE_JSON)
                if len(text) >= _LARGEST_RELEASE_JSON:
                    raise ReleaseError(f"{self.name}/{layout.RELEASE}: {len(text):,} bytes are too many; not opened")
                return bytes(text), root
            except FileNotFoundError:
                continue
            except ReleaseError:
                raise
            except Exception as error:
                raise _cannot_fetch(self.name, layout.RELEASE, error) from error
        raise UsageError(
            f"{self.name}: no dataset and no release (no {layout.RELEASE} there); check the URL, or make one with "
            "'ddnn-traces ingest' or 'ddnn-traces publish'"
        )

    def fetch(self, path: str) -> bytes:
        """A file whole. Raises ReleaseError, UsageError."""
        return self.fetch_all([path])[path]

    def fetch_all(self, paths: Sequence[str]) -> dict[str, bytes]:
        """Several files whole, at the same time where the store can. Raises ReleaseError, UsageError."""
        try:
            # Not cat(): it takes names as patterns, and its result depends on the store and on their number.
            if len(paths) == 1:
                return {paths[0]: bytes(self.filesystem.cat_file(self._at(paths[0], self.root)))}
            whole = [None] * len(paths)
            there = [self._at(path, self.root) for path in paths]
            found = self.filesystem.cat_ranges(there, whole, whole, on_error="raise")
            return {path: bytes(content) for path, content in zip(paths, found, strict=True)}
        except Exception as error:
            raise self.fail(paths[0], error) from error

    def open(self, file: ListedFile, scratch: Path) -> Any:
        """A large file, for reading ranges of it; whole in the folder `scratch` where the server has no ranges.

        Raises ReleaseError, UsageError.
        """
        where = self._at(file.path, self.root)
        try:
            if self._ranges is None:
                self._ranges = len(self.filesystem.cat_file(where, start=0, end=4)) == 4
            if self._ranges:
                return self.filesystem.open(where, "rb", block_size=_BLOCK, cache_type="readahead", size=file.bytes)
            self.filesystem.get_file(where, str(scratch))
            return scratch.open("rb")
        except Exception as error:
            raise self.fail(file.path, error) from error

    def fail(self, path: str, error: Exception) -> ReleaseError | UsageError:
        """Record the error of a failed read: DuckDB's own message does not contain it."""
        self.failure = error if isinstance(error, ReleaseError | UsageError) else _cannot_fetch(self.name, path, error)
        return self.failure

    def _at(self, path: str, root: str) -> str:
        return f"{root}/{path}"


class KnownFiles(AbstractFileSystem):  # type: ignore[misc]
    """Remote files whose names are known, for DuckDB: these and no others, never changed. sizes: in bytes, by name."""

    cachable = False

    def __init__(self, sizes: Mapping[str, int]) -> None:
        super().__init__()
        self.sizes = sizes

    def glob(self, path: str, **_: Any) -> list[str]:
        """The path itself: a name is never a pattern."""
        name = self._strip_protocol(path)
        return [name] if name in self.sizes else []

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        """Length, as it was listed."""
        name = self._strip_protocol(path)
        return {"name": name, "size": self.sizes[name], "type": "file"}

    def exists(self, path: str, **_: Any) -> bool:
        """Whether the file is listed."""
        return self._strip_protocol(path) in self.sizes

    def modified(self, path: str) -> Any:
        """Always the same: the files never change."""
        return datetime(2000, 1, 1, tzinfo=UTC)


class Reader:
    """An open file for several threads of DuckDB: each seeks and reads, between which another must not move it.

    read_at: the bytes at a place, of a number; called by several threads at once. close: called once.
    """

    def __init__(
        self, size: int, read_at: Callable[[int, int], bytes], close: Callable[[], None] | None = None
    ) -> None:
        self.size = size
        self._read_at, self._close = read_at, close
        self._place = threading.local()

    def seek(self, place: int, whence: int = 0) -> int:
        """Go to a place, in this thread. whence: as of io.IOBase."""
        begin = (0, self.tell(), self.size)[whence]
        self._place.at = begin + place
        return int(self._place.at)

    def tell(self) -> int:
        """The place of this thread."""
        return int(getattr(self._place, "at", 0))

    def read(self, size: int = -1) -> bytes:
        """Bytes from this thread's place on."""
        begin = self.tell()
        end = self.size if size < 0 else min(self.size, begin + size)
        data = self._read_at(begin, max(0, end - begin))
        self._place.at = begin + len(data)
        return data

    def close(self) -> None:
        """Close the file."""
        close, self._close = self._close, None
        if close:
            close()


class _ReleaseFiles(KnownFiles):
    """The release's Parquet files as a file system for DuckDB."""

    protocol = _SCHEME

    def __init__(self, content: _Content, files: dict[str, ListedFile]) -> None:
        super().__init__({path: file.bytes for path, file in files.items()})
        self.content, self.files = content, files
        self.scratch = tempfile.TemporaryDirectory(prefix="ddnn-traces-")
        self._fetched: set[str] = set()
        self._lock = threading.Lock()

    def _open(self, path: str, mode: str = "rb", **_: Any) -> Any:
        file = self.files[self._strip_protocol(path)]
        if mode != "rb":
            raise PermissionError(f"{self.content.name}: a release at a URL is only read")
        if file.bytes > _WHOLE:
            return _reader(self.content.open(file, self._copy(file)), file, self.content)
        with self._lock:
            if file.path not in self._fetched:
                self._fetch(self._small_ones_from(file))
        return _reader(self._copy(file).open("rb"), file, self.content)

    def _copy(self, file: ListedFile) -> Path:
        return Path(self.scratch.name) / hashlib.sha256(file.path.encode()).hexdigest()

    def _small_ones_from(self, first: ListedFile) -> list[ListedFile]:
        """The file; if not the table's first, also the small files after it: a query over many runs reads them next.

        When the dataset is opened, DuckDB reads the columns from the first file alone.
        """
        table = first.path.partition("/")[0] + "/"
        if not any(path.startswith(table) for path in self._fetched):
            return [first]
        others = (file for path, file in sorted(self.files.items()) if path.startswith(table) and path > first.path)
        chosen, size = [first], first.bytes
        for file in others:
            if file.bytes <= _WHOLE and file.path not in self._fetched and size + file.bytes <= _TOGETHER:
                chosen.append(file)
                size += file.bytes
        return chosen

    def _fetch(self, files: Sequence[ListedFile]) -> None:
        found = self.content.fetch_all([file.path for file in files])
        for file in files:
            data = found[file.path]
            if hashlib.sha256(data).hexdigest() != file.sha256:
                wrong = ReleaseError(
                    f"{self.content.name}/{file.path}: is not what {layout.RELEASE} says ({len(data):,} bytes, "
                    f"{file.bytes:,} are right); the copy there is damaged, get the release from elsewhere"
                )
                raise self.content.fail(file.path, wrong)
            self._copy(file).write_bytes(data)
            self._fetched.add(file.path)


def _reader(file: Any, listed: ListedFile, content: _Content) -> Reader:
    """An open file of a release. `content` remembers why a read failed."""
    lock = threading.Lock()

    def read_at(begin: int, size: int) -> bytes:
        try:
            with lock:
                file.seek(begin)
                return bytes(file.read(size))
        except Exception as error:
            raise content.fail(listed.path, error) from error

    return Reader(listed.bytes, read_at, file.close)
