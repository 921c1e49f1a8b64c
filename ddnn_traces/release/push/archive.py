"""A release as one ZIP archive, for places that have no folders: the same bytes each time, and never on the disk."""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, cast

from ddnn_traces.release.push.contents import Contents, Item

_CHUNK = 1 << 20
_BEGIN = (1980, 1, 1, 0, 0, 0)  # the earliest time that a ZIP archive can name
_FILE_MODE = 0o100644 << 16


@dataclass(frozen=True)
class Archive:
    """All files of a release, stored as they are: Parquet is compressed already. size, bytes, and md5 of the "
    "archive."""

    items: tuple[Item, ...]
    size: int
    md5: str

    def __len__(self) -> int:
        """Bytes; an HTTP client takes a body's length from here."""
        return self.size

    def __iter__(self) -> Iterator[bytes]:
        """The archive, piece by piece, from its begin."""
        return _pieces(self.items)


def archive_of(contents: Contents) -> Archive:
    """The archive, read through once for its size and checksum. Raises OSError."""
    size, digest = 0, hashlib.md5(usedforsecurity=False)
    for piece in _pieces(contents.items):
        size += len(piece)
        digest.update(piece)
    return Archive(contents.items, size, digest.hexdigest())


class _Sink:
    """What zipfile writes to and cannot seek in."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def write(self, data: bytes) -> int:
        self._pieces.append(bytes(data))
        return len(data)

    def flush(self) -> None:
        """There is nothing behind."""

    def take(self) -> bytes:
        """What was written since the last time."""
        pieces, self._pieces = self._pieces, []
        return b"".join(pieces)


def _pieces(items: tuple[Item, ...]) -> Iterator[bytes]:
    sink = _Sink()
    with zipfile.ZipFile(cast("IO[bytes]", sink), "w", zipfile.ZIP_STORED) as archive:  # which needs no more
        for item in items:
            entry = zipfile.ZipInfo(item.path, _BEGIN)
            entry.external_attr, entry.create_system = _FILE_MODE, 3
            with item.local.open("rb") as source, archive.open(entry, "w", force_zip64=item.bytes >= 1 << 31) as target:
                while chunk := source.read(_CHUNK):
                    target.write(chunk)
                    yield sink.take()
    yield sink.take()
