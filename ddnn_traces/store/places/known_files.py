"""Remote files whose names and sizes are known, as a file system of fsspec for DuckDB."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from fsspec.spec import AbstractFileSystem


class KnownFiles(AbstractFileSystem):  # type: ignore[misc]
    """These files and no others, never changed. sizes: in bytes, by name."""

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
        import datetime

        return datetime.datetime(2000, 1, 1, tzinfo=datetime.UTC)


class Reader(ABC):
    """An open file for several threads of DuckDB: each seeks and reads, between which another must not move it."""

    def __init__(self, size: int) -> None:
        self.size = size
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
        data = self.read_at(begin, max(0, end - begin))
        self._place.at = begin + len(data)
        return data

    @abstractmethod
    def read_at(self, begin: int, size: int) -> bytes:
        """Bytes of the file; called by several threads at once."""

    @abstractmethod
    def close(self) -> None:
        """Close the file."""
