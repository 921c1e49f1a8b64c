"""Where derived files that save time are kept between processes; they can be removed at any time."""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

_DAY_S = 24 * 3600
_WEEK_S = 7 * _DAY_S
_JIT = Path(__file__).with_name("jit.py")


def folder(name: str) -> Path | None:
    """A folder of this name: in the user's cache, else in the package's __pycache__; None where neither is writable.

    One where other users may put files is not taken: code that is compiled or unpacked there is run.
    """
    for above in _places():
        try:
            for place in (above, above / name):
                place.mkdir(mode=0o755, parents=True, exist_ok=True)
            is_private = _is_private(above) and _is_private(above / name)
        except OSError:
            continue
        if is_private and os.access(above / name, os.W_OK):
            return above / name
    return None


def code_folder(name: str, sources: Iterable[Path]) -> Path | None:
    """Folder for the compiled code of these sources, named by their content and that of jit.py; None where none is
    writable. Where it is new, those of older versions are removed."""
    content = b"".join(path.read_bytes() for path in (*sources, _JIT))
    is_checked = os.environ.get("NUMBA_BOUNDSCHECK", "0") != "0"
    place = folder(f"{name}-" + "checked-" * is_checked + hashlib.sha256(content).hexdigest()[:16])
    if place:
        _remove_lost(place)
        if not any(place.iterdir()):
            remove_older(place, f"{name}-*")
    return place


def _is_private(place: Path) -> bool:
    """Whether this user, or the owner of the home folder (with sudo, in a container), alone may write it."""
    found, home = place.stat(), Path(os.path.expanduser("~"))  # noqa: PTH111  # without a home it stays as it is
    owners = {os.geteuid()} | ({home.stat().st_uid} if home.is_dir() else set())
    return found.st_uid in owners and not found.st_mode & stat.S_IWOTH


def remove_older(new: Path, pattern: str) -> None:
    """Remove files and folders next to a new one whose name fits, and to which nothing was added for a week.

    They are of other versions. A process that uses one has loaded it already, or makes it again. Younger ones may be of
    a second checkout.
    """
    import shutil

    for other in new.parent.glob(pattern):
        with contextlib.suppress(OSError):
            if other == new or time.time() - other.stat().st_mtime <= _WEEK_S:
                continue
            if other.is_dir():
                shutil.rmtree(other, ignore_errors=True)
            else:
                other.unlink()


def remove_older_daily(new: Path, pattern: str) -> None:
    """The same once a day: to look at the files of 20,000 runs takes 0.15 s, which each new one would cost."""
    looked = new.parent / "looked-through"
    with contextlib.suppress(OSError):
        if time.time() - looked.stat().st_mtime <= _DAY_S:
            return
    with contextlib.suppress(OSError):
        looked.touch()
    remove_older(new, pattern)


def _remove_lost(folder: Path) -> None:
    """Remove what a loss of power emptied of numba's files, which it neither syncs nor can read then."""
    for path in (*folder.rglob("*.nbi"), *folder.rglob("*.nbc")):
        with contextlib.suppress(OSError):
            if not path.stat().st_size:
                path.unlink()


def _places() -> Iterator[Path]:
    """ddnn_traces in $XDG_CACHE_HOME, by default ~/.cache (XDG Base Directory Specification), and __pycache__."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if not cache.is_absolute():  # the specification ignores such a value
        cache = Path(os.path.expanduser("~/.cache"))  # noqa: PTH111  # without a home it stays as it is
    if cache.is_absolute():
        yield cache / "ddnn_traces"
    yield Path(__file__).parent / "__pycache__"
