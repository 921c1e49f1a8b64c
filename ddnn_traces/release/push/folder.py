"""Upload into a folder: TARGET/VERSION, made by one rename when all files are in TARGET/.VERSION.partial."""

from __future__ import annotations

import hashlib
import shutil
from dataclasses import dataclass
from pathlib import Path

from ddnn_traces.errors import PushError, StorageError
from ddnn_traces.messages import Messages
from ddnn_traces.release.push.upload_contents import (
    Contents,
    Item,
    Outcome,
    Parcel,
    Retry,
    files_in,
    other_content,
    parcels_below,
    refuse_damaged,
)
from ddnn_traces.store.whole_files import NO_SPACE, make_folders, sha256_of, sync, sync_tree

_CHUNK = 1 << 20


@dataclass(frozen=True)
class Folder:
    """A folder of versions."""

    folder: Path

    def parcels(self, contents: Contents) -> list[Parcel]:
        return parcels_below(str(self.folder / contents.version), contents)

    def push(self, contents: Contents, retry: Retry, messages: Messages) -> Outcome:
        """Copy the files that are not there. Raises PushError, StorageError."""
        place = self.folder / contents.version
        if place.is_symlink() or place.exists():
            _compare(place, contents)
            return Outcome.of(str(place), contents.items)
        partial = self.folder / f".{contents.version}.partial"
        if partial.is_symlink():
            raise PushError(f"{partial}: a link, which is not followed; remove it")
        try:
            make_folders(partial)
            _remove_others(partial, contents)
            missing = [item for item in contents.items if not _is_there(partial / item.path, item)]
            _check_space(partial, sum(item.bytes for item in missing))
            for item in missing:
                _copy(item, partial / item.path)
            sync_tree(partial)  # also what an earlier push copied
            partial.replace(place)
            sync([self.folder])
        except OSError as error:
            raise _explained(error, partial) from error
        return Outcome.of(str(place), contents.items, missing)


def _compare(place: Path, contents: Contents) -> None:
    """Raise PushError unless the version that is there is this one, file by file."""
    names = files_in(place)
    own = {item.path: item for item in contents.items}
    other = sorted(names ^ own.keys())
    other += [path for path in sorted(names & own.keys()) if not _is_there(place / path, own[path])]
    if place.is_symlink():
        raise other_content(str(place), contents, other or [place.name], ", or choose another target")
    refuse_damaged(str(place), contents, other)
    if other:
        raise other_content(str(place), contents, other, ", or choose another target")


def _is_there(path: Path, item: Item) -> bool:
    plain = path.is_file() and not path.is_symlink()
    return plain and path.stat().st_size == item.bytes and sha256_of(path) == item.sha256


def _remove_others(partial: Path, contents: Contents) -> None:
    """Remove the files that an earlier, unfinished push of another content left; the folder is this program's own."""
    own = {item.path for item in contents.items}
    for path in sorted(partial.rglob("*"), reverse=True):
        if path.is_symlink() or (path.is_file() and path.relative_to(partial).as_posix() not in own):
            path.unlink()


def _check_space(folder: Path, needed: int) -> None:
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise StorageError(
            f"{folder}: no space left; {needed:,} bytes are to be copied and {free:,} are free; free some and run the "
            "same command again"
        )


def _copy(item: Item, to: Path) -> None:
    """Copy a file and check the bytes read. Raises PushError when it changed since it was proven, OSError."""
    to.parent.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256()
    with item.local.open("rb") as source, to.open("wb") as target:
        while chunk := source.read(_CHUNK):
            digest.update(chunk)
            target.write(chunk)
    if digest.hexdigest() != item.sha256:
        to.unlink()
        raise PushError(f"{item.local}: changed while it was sent; run the same command again")


def _explained(error: OSError, partial: Path) -> Exception:
    where = error.filename or partial
    if error.errno in NO_SPACE:
        reason = f"cannot be written ({error.strerror})"
        return StorageError(f"{where}: {reason}; free space or name another folder, and run the same command again")
    return PushError(f"{where}: {error.strerror or error}; correct that and run the same command again")
