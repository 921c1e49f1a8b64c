"""A release in a zip file: unpacked into a temporary folder, which is removed when the dataset is closed.

DuckDB cannot read in a zip file, and a compressed member cannot be read from its middle. A zip file comes from others:
no member may have a path outside its folder, be a link, or need more space than there is.
"""

from __future__ import annotations

import shutil
import stat
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import IO

from ddnn_traces.errors import ReleaseError, StorageError, UsageError
from ddnn_traces.store import schema
from ddnn_traces.store.layout import MARKER, RELEASE, chosen, is_safe, listed_files, read_marker
from ddnn_traces.store.places.place import Place, in_folder
from ddnn_traces.text_files import MOST_LOG, read_bytes

#: Largest ratio of unpacked to packed size: deflate reaches 1,032; Parquet, already compressed, 1 to 3; JSON 20.
_MOST_GROWTH = 200
#: Members up to this many bytes may exceed the ratio.
_SMALL = 1 << 20
_MOST_MEMBERS = 1_000_000


def place(path: Path, runs: Sequence[str] | None = None) -> Place:
    """Unpack the tables, of these runs (None: of all). Raises UsageError, ReleaseError."""
    scratch = tempfile.TemporaryDirectory(prefix="ddnn-traces-")
    folder = Path(scratch.name)
    try:
        unpack(path, folder, (MARKER, RELEASE).__contains__)
        read_marker(folder, str(path))
        wanted = _listed(path, folder, runs)
        unpack(path, folder, lambda name: name in wanted if wanted else name.partition("/")[0] in schema.TABLES)
        return replace(in_folder(folder, runs), name=str(path), close=scratch.cleanup)
    except BaseException:
        scratch.cleanup()
        raise


def _listed(path: Path, folder: Path, runs: Sequence[str] | None) -> set[str] | None:
    """The files of these runs that release.json lists; None where there is none."""
    if not (folder / RELEASE).is_file():
        return None
    text = read_bytes(folder / RELEASE, MOST_LOG, ReleaseError)
    return {file for files in chosen(listed_files(text, str(path)), runs).values() for file in files}


def unpack(path: Path, out: Path, needed: Callable[[str], bool] = lambda _: True, whole: bool = False) -> None:
    """Unpack the files of the release in a zip file into the folder `out`.

    needed: whether to unpack a file, by its path in the release. whole: also the files outside the release's content,
    such as a bag's manifests. Raises UsageError where the file holds no release, ReleaseError where it is damaged or
    cannot be trusted, StorageError where there is no space.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            members = _members(path, archive)
            root = _whole_root(path, members) if whole else _root(path, members)
            chosen = {
                name.removeprefix(root): member
                for name, member in members.items()
                if name.startswith(root) and needed(name.removeprefix(root))
            }
            _check_space(path, chosen.values(), out)
            for name, member in chosen.items():
                _extract(archive, member, out / name)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise ReleaseError(f"{path}: this zip file cannot be read ({error}); download it again") from error


# --- what a zip file can hold beside its files

#: Extra fields that packers write: large files, times, user numbers, names in UTF-8.
_USUAL_FIELDS = {0x0001, 0x000A, 0x5455, 0x5855, 0x7855, 0x7875, 0x7075}
_LOCAL, _CENTRAL, _END = 30, 46, 22
#: Headers at the end of an archive whose places or numbers need 64 bits.
_END_64 = 56 + 20
#: After a member whose size was not known before: with and without a signature, of 32 or 64 bits.
_DESCRIPTORS = (12, 16, 20, 24)


def beside_files(path: Path) -> Iterator[tuple[str, str]]:
    """What a zip file holds but the files of the release, which unpacking loses: where it is, and what it is.

    Comments, unusual extra fields, files beside the release, bytes of no member. Raises as unpack().
    """
    with zipfile.ZipFile(path) as archive, path.open("rb") as content:
        root = _whole_root(path, _members(path, archive))
        if archive.comment:
            yield path.name, f"has a comment of {len(archive.comment):,} bytes"
        end = 0
        for info in sorted(archive.infolist(), key=lambda info: info.header_offset):
            if info.comment:
                yield info.filename, f"has a comment of {len(info.comment):,} bytes"
            if not info.filename.startswith(root) and not root.startswith(info.filename):
                yield info.filename, "is beside the release"
            if info.is_dir() and info.file_size:
                yield info.filename, f"is a folder with {info.file_size:,} bytes"
            content.seek(info.header_offset)
            head = content.read(_LOCAL)
            name_bytes, extra_bytes = struct.unpack_from("<HH", head, 26)
            name, extra = content.read(name_bytes), content.read(extra_bytes)
            if (
                head[:4] != b"PK\x03\x04"
                or name.decode("utf-8" if info.flag_bits & 0x800 else "cp437") != info.orig_filename
            ):
                yield info.filename, "has another name where it begins than in the list of files"
            if odd := (_fields(extra) | _fields(info.extra)) - _USUAL_FIELDS:
                yield (
                    info.filename,
                    f"has extra fields that no usual packer writes ({', '.join(map(hex, sorted(odd)))})",
                )
            yield from _gap(path, end, info.header_offset)
            end = info.header_offset + _LOCAL + name_bytes + extra_bytes + info.compress_size
            if info.flag_bits & 8:  # a descriptor of one of these lengths is next, then another header
                end = next((end + n for n in _DESCRIPTORS if _is_header(content, end + n)), end)
        yield from _gap(path, end, archive.start_dir)
        listed = sum(
            _CENTRAL + len(_raw_name(info)) + len(info.extra) + len(info.comment) for info in archive.infolist()
        )
        more = path.stat().st_size - archive.start_dir - listed - _END - len(archive.comment)
        if more not in (0, _END_64):
            yield path.name, f"has {more:,} bytes at its end that belong to no file"


def _gap(path: Path, end: int, begin: int) -> Iterator[tuple[str, str]]:
    if begin != end:
        yield path.name, f"has {abs(begin - end):,} bytes at {min(end, begin):,} that belong to no file, or to two"


def _is_header(content: IO[bytes], place: int) -> bool:
    content.seek(place)
    return content.read(4) in (b"PK\x03\x04", b"PK\x01\x02")


def _raw_name(info: zipfile.ZipInfo) -> bytes:
    return info.orig_filename.encode("utf-8" if info.flag_bits & 0x800 else "cp437")


def _fields(extra: bytes) -> set[int]:
    """Numbers of the extra fields; 0 for bytes that are none."""
    found = set()
    while extra:
        kind, length = struct.unpack_from("<HH", extra) if len(extra) >= 4 else (0, 0)
        found.add(kind if 4 + length <= len(extra) else 0)
        extra = extra[4 + length :]
    return found


def _whole_root(path: Path, members: Collection[str]) -> str:
    """As _root(), but of a bag the folder above data/."""
    root = _root(path, members)
    is_bag = PurePosixPath(root).name == "data" and f"{root.removesuffix('data/')}bagit.txt" in members
    return root.removesuffix("data/") if is_bag else root


def _members(path: Path, archive: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    """The files in the archive by name. Raises ReleaseError for members that may be an attack."""
    infos = archive.infolist()
    if len(infos) > _MOST_MEMBERS:
        raise ReleaseError(f"{path}: {len(infos):,} files are too many for a release; ask the sender")
    members: dict[str, zipfile.ZipInfo] = {}
    for info in infos:
        kind = stat.S_IFMT(info.external_attr >> 16)
        name = info.filename.removesuffix("/")
        if not is_safe(name) or name in members:
            raise _refused(path, info.filename, "a name that leaves its folder, or is repeated")
        if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
            raise _refused(path, info.filename, "a link or device")
        if info.flag_bits & 1:
            raise _refused(path, info.filename, "encrypted")
        if info.file_size > max(_SMALL, _MOST_GROWTH * info.compress_size):
            raise _refused(path, info.filename, f"{info.file_size:,} bytes out of {info.compress_size:,}")
        if not info.is_dir():
            members[name] = info
    return members


def _refused(path: Path, member: str, why: str) -> ReleaseError:
    return ReleaseError(f"{path}: not unpacked, because of {member!r} in it ({why}); ask the sender")


def _root(path: Path, members: Collection[str]) -> str:
    """The prefix of the names of the release's files: empty, a folder with a slash, or the data/ of a bag."""
    for deep in range(3):
        found = [name for name in members if name.count("/") == deep and name.split("/")[-1] == MARKER]
        if len(found) > 1:
            raise UsageError(f"{path}: holds {len(found)} datasets ({', '.join(sorted(found)[:3])}); unpack it first")
        if found and (deep < 2 or found[0].endswith(f"/data/{MARKER}")):
            return found[0].removesuffix(MARKER)
    raise UsageError(f"{path}: no release (no {MARKER} in it); give a release made with 'ddnn-traces publish'")


def _check_space(path: Path, members: Collection[zipfile.ZipInfo], out: Path) -> None:
    needed, free = sum(member.file_size for member in members), shutil.disk_usage(out).free
    if needed > free:
        raise StorageError(
            f"{path}: unpacked it takes {needed:,} bytes, and {out} has {free:,} bytes free; set TMPDIR to a folder "
            "with more space, or unpack it yourself and open the folder"
        )


def _extract(archive: zipfile.ZipFile, member: zipfile.ZipInfo, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with archive.open(member) as source, target.open("xb") as file:
        shutil.copyfileobj(source, file, 1 << 20)
