"""Capture files as raw files, on this machine or on a store (a URL, as a UPath), and what reading them took.

Of a file on a store the next blocks are requested while the reader works on one, so that it does not wait for each; a
request that fails, or that gives too few bytes, is repeated. Nothing is kept on disk.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import io
import os
import stat
import threading
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ddnn_traces.errors import needs_extra
from ddnn_traces.store import hashes, object_store
from ddnn_traces.store.places import is_url, path_of_url

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

#: Bytes of a request: a store needs some 10 ms for the first byte, as long as for the next 1 to 5 MB.
REQUEST_BYTES = 8 << 20
#: Requests at once for one reader.
AHEAD = 4
#: Bytes of a request beyond what the reader asked for: the rest of a record that begins before the end of a range.
_REST_BYTES = 256 << 10


@dataclass
class Cost:
    """What reading took. bytes: given to the reader. waited_s: that it waited for them. repeated: requests to a store
    that were made again."""

    bytes: int = 0
    waited_s: float = 0.0
    repeated: int = 0

    def add(self, other: Cost) -> None:
        """Add the cost of something else."""
        self.bytes += other.bytes
        self.waited_s += other.waited_s
        self.repeated += other.repeated


_measured = threading.local()


@contextlib.contextmanager
def measured() -> Iterator[Cost]:
    """The cost of all files that this thread opens within the context."""
    _measured.cost = cost = Cost()
    try:
        yield cost
    finally:
        del _measured.cost


def is_local(path: Path) -> bool:
    """Whether a capture is on this machine, and not a UPath on a store."""
    return isinstance(path, Path)


def path_of(source: str) -> Path:
    """A path, or that of a URL: a UPath, which has what is used of a Path, but for file://. Raises UsageError."""
    if not is_url(source):
        return Path(source)
    object_store.refuse_secrets(source)
    if source.lower().startswith("file://"):
        return path_of_url(source)
    with needs_extra("cluster"):
        from upath import UPath
    with object_store.errors(source):
        filesystem, _ = object_store.filesystem(source, listings=True)
    path: Path = UPath(source, **filesystem.storage_options)
    return path


def url_of(path: Path) -> str:
    """The text of a path, or its URL where it is on a store: a UPath's own text for ssh is without the host."""
    text = str(path)
    if is_local(path) or not object_store.is_ssh(text):
        return text
    found: dict[str, Any] = path.storage_options  # type: ignore[attr-defined]  # of a UPath
    user, port = found.get("username"), found.get("port")
    where = f"{user}@" * bool(user) + found["host"] + f":{port}" * bool(port)
    return text.replace(":///", f"://{where}/", 1)


def errors(path: Path) -> contextlib.AbstractContextManager[None]:
    """A context in which failures of the store that a file or folder is on become UsageError or StorageError."""
    return contextlib.nullcontext() if is_local(path) else object_store.errors(url_of(path))


def opened(path: Path, stop: int | None = None) -> RawFile:
    """The file, to read from its start or, after seek(), from another place.

    stop: up to which it will be read, or a little further; None: to its end. Raises OSError for a file of this machine,
    StorageError for one on a store, also while it is read.
    """
    return LocalFile(path) if is_local(path) else StoreFile(path, stop)


def forget_listing(folder: Path) -> None:
    """Ask the store anew for the files of a folder."""
    if not is_local(folder):
        folder.fs.invalidate_cache()  # type: ignore[attr-defined]  # of a UPath


def digests_of(path: Path, algorithm: str) -> dict[str, str]:
    """As store.hashes.digests_of(), also of a file on a store."""
    if algorithm == hashes.NONE:
        return {}
    with opened(path) as file:
        return hashes.digests_in(file, algorithm)


class LocalFile(io.FileIO):
    """A file of this machine. Raises OSError where it cannot be opened, and for a device."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        mode = os.fstat(self.fileno()).st_mode
        if stat.S_ISCHR(mode) or stat.S_ISBLK(mode):  # it may be there since the folder was listed, and has no end
            self.close()
            raise OSError(errno.EINVAL, "a device, no file", str(path))
        self._cost = getattr(_measured, "cost", Cost())

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        begin = time.perf_counter()
        size = super().readinto(buffer) or 0
        self._cost.waited_s += time.perf_counter() - begin
        self._cost.bytes += size
        return size


class StoreFile(io.RawIOBase):
    """A file on a store. stop: as of opened()."""

    def __init__(self, path: Path, stop: int | None = None) -> None:
        self._path: Any = path
        self._cost = getattr(_measured, "cost", Cost())
        parts = urlsplit(url_of(path))
        self._store = _store(f"{parts.scheme}://{parts.netloc}", object_store.endpoint())
        with errors(path):
            self._size = object_store.retried(lambda: int(self._store.size(self._path.path)))
        self._stop = self._size if stop is None else min(stop, self._size)
        self._place = 0  # of the next request
        self._waiting: deque[Future[bytes]] = deque()
        self._block = memoryview(b"")  # what is left of the last one
        self._threads = ThreadPoolExecutor(AHEAD, "store")

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, place: int, whence: int = io.SEEK_SET, /) -> int:
        """Go on at this place, counted from the start."""
        assert whence == io.SEEK_SET
        self._waiting.clear()
        self._block, self._place = memoryview(b""), place
        return place

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        """Fill the buffer with at least one byte; 0 at the end of the file."""
        view = memoryview(buffer).cast("B")
        if not self._block:
            self._request()
            if not self._waiting:
                return 0
            begin = time.perf_counter()
            self._block = memoryview(self._waiting.popleft().result())
            self._cost.waited_s += time.perf_counter() - begin
        size = min(len(view), len(self._block))
        view[:size] = self._block[:size]
        self._block = self._block[size:]
        self._cost.bytes += size
        return size

    def close(self) -> None:
        if not self.closed:
            self._threads.shutdown(wait=False, cancel_futures=True)
        super().close()

    def _request(self) -> None:
        """Request as many blocks as may be under way; beyond `stop` only what is needed now."""
        while len(self._waiting) < AHEAD and self._place < self._stop:
            self._request_to(min(self._place + REQUEST_BYTES, self._stop))
        if not self._waiting and self._place < self._size:
            self._request_to(min(self._place + _REST_BYTES, self._size))

    def _request_to(self, end: int) -> None:
        self._waiting.append(self._threads.submit(self._fetch, self._place, end))
        self._place = end

    def _fetch(self, begin: int, end: int) -> bytes:
        """The bytes from `begin` to `end`, by as many requests as it takes. Raises StorageError."""
        retries = object_store.Retries()
        try:
            with errors(self._path):
                return object_store.retried(lambda: self._fetch_once(begin, end), retries)
        finally:
            self._cost.repeated += retries.count

    def _fetch_once(self, begin: int, end: int) -> bytes:
        data = object_store.read_range(self._store, self._path.path, begin, end)
        if len(data) != end - begin:
            raise _WrongLength(f"{len(data):,} bytes instead of {end - begin:,}")
        return data


@functools.lru_cache(maxsize=16)
def _store(root: str, _endpoint: str) -> Any:
    """The file system of a store, one for all files of this process."""
    return object_store.filesystem(root)[0]


class _WrongLength(ConnectionError):
    """A request gave another number of bytes than it asked for."""


RawFile = LocalFile | StoreFile
