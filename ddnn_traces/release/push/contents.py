"""The files of a release that are uploaded: those that its checksums list, and the list itself; also as a ZIP archive.

Other files in the folder stay where they are.
"""

from __future__ import annotations

import hashlib
import os
import re
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, cast

from ddnn_traces.errors import PushError, UsageError
from ddnn_traces.messages import Messages
from ddnn_traces.release import facts
from ddnn_traces.store import layout
from ddnn_traces.store.whole_files import sha256_of
from ddnn_traces.text import counted, listed

_BAG = "bagit.txt"
_BAG_LISTS = ("manifest-sha256.txt", "tagmanifest-sha256.txt")
#: Sent last, in this order: without the last one a reader does not take the copy for a whole release.
_LAST = (layout.RELEASE, layout.MARKER, layout.CHECKSUMS, _BAG_LISTS[0], _BAG, _BAG_LISTS[1])

_LINE = re.compile(r"(?P<sha256>[0-9a-f]{64}) [ *]?(?P<path>\S.*)")
_VERSION = re.compile(r"[0-9]+\.[0-9]+\.[0-9]+(?:[-+][0-9A-Za-z.+-]+)?")
_CHUNK = 1 << 20
#: Names of damaged files that a message lists.
_NAMED = 5


@dataclass(frozen=True)
class Item(facts.File):
    """A file to upload. path: in the release, with slashes. local: its place on this machine."""

    local: Path


@dataclass(frozen=True)
class Contents:
    """The files to upload. items: in the order of sending; the last one completes the copy. stray: files that stay."""

    folder: Path
    release: facts.Release
    items: tuple[Item, ...]
    stray: tuple[str, ...]

    @property
    def version(self) -> str:
        """Semantic version; a plain name in every target."""
        return self.release.about.version

    @property
    def last(self) -> Item:
        """The file that completes the copy; it lists the checksums of all others."""
        return self.items[-1]


def read(folder: Path) -> Contents:
    """The release in a folder, by its lists; only those are hashed.

    Raises UsageError where there is no release, PushError where a listed file is missing or not a plain file.
    """
    if not folder.is_dir():
        raise UsageError(f"{folder}: no such release; check the path, or make one with 'ddnn-traces publish'")
    sums = _listed(folder)
    items = (_item(folder, path, sha256) for path, sha256 in sums.items())
    order = {name: place for place, name in enumerate(_LAST, 1)}
    ordered = tuple(sorted(items, key=lambda item: (order.get(item.path.removeprefix("data/"), 0), item.path)))
    return Contents(folder, _facts(layout.content(folder)), ordered, tuple(sorted(files_in(folder) - sums.keys())))


def files_in(folder: Path) -> set[str]:
    """Paths of all files and links below a folder, relative, with slashes."""
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_symlink() or path.is_file()}


def prove(contents: Contents, messages: Messages) -> None:
    """Hash every file. Raises PushError naming those that differ from their checksum."""
    messages.start_reading(sum(item.bytes for item in contents.items))
    try:
        damaged = [item.path for item in contents.items if _hash(item, messages) != item.sha256]
    finally:
        messages.end_reading()
    if damaged:
        raise PushError(
            f"{contents.folder}: {listed(damaged, _NAMED)}: not as the checksums of the release state, so "
            "nothing is sent; 'ddnn-traces verify' gives details, 'ddnn-traces publish' makes the release again"
        )


def refuse_damaged(place: str, contents: Contents, other: Sequence[str]) -> None:
    """Raise PushError where the version at a target is this one, damaged there. other: paths that differ, in order.

    It is this one where its list of checksums is the same, or where nothing but that list differs.
    """
    own = {item.path for item in contents.items} & set(other)
    if not own or (contents.last.path in own and set(other) != {contents.last.path}):
        return
    raise PushError(
        f"{place}: the copy of version {contents.version} there is damaged: {listed(other, 3)} not as its own "
        f"{contents.last.path} states; it is not another version; remove that copy and run the same command again"
    )


def other_content(place: str, contents: Contents, other: Sequence[str], choose: str = "") -> PushError:
    """The error for a version that exists at a target with another content. choose: another choice of the user."""
    return PushError(
        f"{place}: version {contents.version} is there with another content ({counted(len(other), 'file')}: "
        f"{', '.join(other[:3])}), and a version is never overwritten; publish yours under another --version{choose}"
    )


def _hash(item: Item, messages: Messages) -> str:
    digest = hashlib.sha256()
    messages.start_file(item.path)
    with item.local.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
            messages.advance(len(chunk), 0)
    messages.end_file(item.path)
    return digest.hexdigest()


def _listed(folder: Path) -> dict[str, str]:
    """SHA-256 by path, of all files to upload."""
    lists = _BAG_LISTS if (folder / _BAG).is_file() else (layout.CHECKSUMS,)
    sums: dict[str, str] = {}
    for name in lists:
        if not (folder / name).is_file():
            raise UsageError(f"{folder}: no release (no {name} in it); make one with 'ddnn-traces publish'")
        sums |= _parsed(folder / name)
    if lists == _BAG_LISTS:
        sums = {_decoded(folder, path): sha256 for path, sha256 in sums.items()}
    return sums | {lists[-1]: sha256_of(folder / lists[-1])}


def _parsed(path: Path) -> dict[str, str]:
    sums = {}
    for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), start=1):
        match = _LINE.fullmatch(line)
        if match is None or not _is_inside(match["path"]) or match["path"] in sums:
            raise PushError(
                f"{path}: line {number} is not a checksum of a file in the release; make the release again with "
                "'ddnn-traces publish'"
            )
        sums[match["path"]] = match["sha256"]
    return sums


def _decoded(bag: Path, path: str) -> str:
    """A path from a bag's manifest: RFC 8493 encodes percent signs and line ends, but not all programs do."""
    return path if (bag / path).exists() else path.replace("%0D", "\r").replace("%0A", "\n").replace("%25", "%")


def _is_inside(path: str) -> bool:
    """Whether a listed path stays in the release, and is written in its only plain form."""
    parts = PurePosixPath(path).parts
    plain = "/".join(parts) == path and path.isprintable() and "\\" not in path
    return plain and not path.startswith("/") and ".." not in parts


def _item(folder: Path, path: str, sha256: str) -> Item:
    local = folder / path
    links = any(part.is_symlink() for part in (local, *local.parents) if folder in part.parents)
    if links or not local.is_file():
        raise PushError(
            f"{local}: {'a link' if links else 'missing, or not a file'}, though the release's checksums list it; make "
            "the release again with 'ddnn-traces publish'"
        )
    return Item(path, os.path.getsize(local), sha256, local)  # noqa: PTH202


def _facts(content: Path) -> facts.Release:
    path = content / layout.RELEASE
    try:
        release = facts.from_json(path.read_text(encoding="utf-8"))
        version = release.about.version
    except (OSError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise UsageError(f"{path}: not the facts of a release; make one with 'ddnn-traces publish'") from error
    if not isinstance(version, str) or not _VERSION.fullmatch(version):
        raise PushError(f"{path}: version {version!r} is not semantic (1.2.0); publish it again with a semantic one")
    return release


# --- as one archive, for targets that have no folders

_BEGIN = (1980, 1, 1, 0, 0, 0)  # the earliest time that a ZIP archive can state
_FILE_MODE = 0o100644 << 16


@dataclass(frozen=True)
class Archive:
    """All files of a release in a ZIP archive: the same bytes each time, and never on the disk. size: bytes.

    The files are stored without compression, as Parquet is compressed already.
    """

    items: tuple[Item, ...]
    size: int
    md5: str

    def __len__(self) -> int:
        """Bytes; an HTTP client takes a body's length from here."""
        return self.size

    def __iter__(self) -> Iterator[bytes]:
        """The archive, piece by piece, from its start."""
        return _pieces(self.items)


def archive_of(contents: Contents) -> Archive:
    """The archive, read through once for its size and checksum. Raises OSError."""
    size, digest = 0, hashlib.md5(usedforsecurity=False)
    for piece in _pieces(contents.items):
        size += len(piece)
        digest.update(piece)
    return Archive(contents.items, size, digest.hexdigest())


class _Sink:
    """A stream for zipfile that can be written to and not searched."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def write(self, data: bytes) -> int:
        self._pieces.append(bytes(data))
        return len(data)

    def flush(self) -> None:
        """Nothing is buffered below this."""

    def take(self) -> bytes:
        """The bytes written since the last call."""
        pieces, self._pieces = self._pieces, []
        return b"".join(pieces)


def _pieces(items: tuple[Item, ...]) -> Iterator[bytes]:
    sink = _Sink()
    with zipfile.ZipFile(cast("IO[bytes]", sink), "w", zipfile.ZIP_STORED) as archive:  # it only writes and flushes
        for item in items:
            entry = zipfile.ZipInfo(item.path, _BEGIN)
            entry.external_attr, entry.create_system = _FILE_MODE, 3
            with item.local.open("rb") as source, archive.open(entry, "w", force_zip64=item.bytes >= 1 << 31) as target:
                while chunk := source.read(_CHUNK):
                    target.write(chunk)
                    yield sink.take()
    yield sink.take()
