"""What of a release goes: the files that its checksums list, and the list itself. Nothing else in the folder does."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from ddnn_traces.errors import PushError, UsageError
from ddnn_traces.release import facts
from ddnn_traces.store import layout
from ddnn_traces.store.marker import MARKER
from ddnn_traces.talk import Talk

_BAG = "bagit.txt"
_BAG_LISTS = ("manifest-sha256.txt", "tagmanifest-sha256.txt")
#: Sent last, in this order: without the last one nobody takes what is there for a whole release.
_LAST = (layout.RELEASE, MARKER, layout.CHECKSUMS, _BAG_LISTS[0], _BAG, _BAG_LISTS[1])

_LINE = re.compile(r"(?P<sha256>[0-9a-f]{64}) [ *]?(?P<path>\S.*)")
_VERSION = re.compile(r"[0-9]+\.[0-9]+\.[0-9]+(?:[-+][0-9A-Za-z.+-]+)?")
_CHUNK = 1 << 20
#: Names of damaged files that a message lists.
_NAMED = 5


@dataclass(frozen=True)
class Item(facts.File):
    """A file that goes. path: in the release, with slashes. local: where it is."""

    local: Path


@dataclass(frozen=True)
class Contents:
    """A release as it goes. items: in the order of sending; the last one makes it whole. stray: what stays here."""

    folder: Path
    release: facts.Release
    items: tuple[Item, ...]
    stray: tuple[str, ...]

    @property
    def version(self) -> str:
        """Semantic version; a plain name in every target."""
        return self.release.about.version

    @property
    def bytes(self) -> int:
        """All files together."""
        return sum(item.bytes for item in self.items)

    @property
    def last(self) -> Item:
        """The file whose presence says that the release is whole, and that lists the sums of all others."""
        return self.items[-1]


def read(folder: Path) -> Contents:
    """The release in a folder, by its lists. Nothing is hashed but those.

    Raises UsageError where there is no release, PushError where a listed file is missing, or no plain file in it.
    """
    if not folder.is_dir():
        raise UsageError(f"{folder}: no such release; check the path, or make one with 'ddnn-traces publish'")
    sums = _listed(folder)
    items = [_item(folder, path, sha256) for path, sha256 in sums.items()]
    items.sort(key=lambda item: (_rank(item.path), item.path))
    there = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_symlink() or path.is_file()}
    return Contents(folder, _facts(layout.content(folder)), tuple(items), tuple(sorted(there - sums.keys())))


def prove(contents: Contents, talk: Talk) -> None:
    """Hash every file. Raises PushError naming those that are not as their checksum says."""
    talk.start_files(contents.bytes)
    try:
        damaged = [item.path for item in contents.items if _hash(item, talk) != item.sha256]
    finally:
        talk.end_files()
    if damaged:
        more = f" and {len(damaged) - _NAMED} more" if len(damaged) > _NAMED else ""
        raise PushError(
            f"{contents.folder}: {', '.join(damaged[:_NAMED])}{more}: not as the checksums of the release say, so "
            "nothing is sent; 'ddnn-traces verify' tells more, 'ddnn-traces publish' makes the release anew"
        )


def is_damaged_copy(contents: Contents, other: Collection[str]) -> bool:
    """Whether a version at a target is this one, damaged there. other: the paths that are not as here.

    The list of checksums there is this one's, and what it lists is not; or all is as it lists and only it is not.
    """
    own = {item.path for item in contents.items} & set(other)
    return bool(own) and (contents.last.path not in own or set(other) == {contents.last.path})


def damaged_copy(place: str, contents: Contents, other: Sequence[str]) -> PushError:
    """What to tell of one. other: in order."""
    named = ", ".join(other[:3]) + (f" and {len(other) - 3} more" if len(other) > 3 else "")
    return PushError(
        f"{place}: the copy of version {contents.version} there is damaged: {named} not as its own "
        f"{contents.last.path} says; it is no other version; remove that copy and run the same command again"
    )


def sha256_of(path: Path) -> str:
    """SHA-256 of a file, hex. Raises OSError."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _hash(item: Item, talk: Talk) -> str:
    digest = hashlib.sha256()
    talk.start_file(item.path)
    with item.local.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
            talk.advance(len(chunk), 0)
    talk.end_file(item.path)
    return digest.hexdigest()


def _rank(path: str) -> int:
    name = path.removeprefix("data/")
    return _LAST.index(name) + 1 if name in _LAST else 0


def _listed(folder: Path) -> dict[str, str]:
    """SHA-256 by path, of all files that go."""
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
                f"{path}: line {number} is no checksum of a file in the release; make the release anew with "
                "'ddnn-traces publish'"
            )
        sums[match["path"]] = match["sha256"]
    return sums


def _decoded(bag: Path, path: str) -> str:
    """A path out of a bag's manifest, where RFC 8493 has percent and line ends encoded; not all programs do that."""
    return path if (bag / path).exists() else path.replace("%0D", "\r").replace("%0A", "\n").replace("%25", "%")


def _is_inside(path: str) -> bool:
    """Whether a listed path stays in the release, and is written in the one way that it can be."""
    parts = PurePosixPath(path).parts
    plain = "/".join(parts) == path and path.isprintable() and "\\" not in path
    return plain and not path.startswith("/") and ".." not in parts


def _item(folder: Path, path: str, sha256: str) -> Item:
    local = folder / path
    links = [
        part for part in (local, *local.parents) if part != folder and folder in part.parents and part.is_symlink()
    ]
    if links or not local.is_file():
        raise PushError(
            f"{local}: {'a link' if links else 'missing, or no file'}, though the release's checksums list it; make "
            "the release anew with 'ddnn-traces publish'"
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
        raise PushError(f"{path}: version {version!r} is not semantic (1.2.0); publish it again with such a one")
    return release
