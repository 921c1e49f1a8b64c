"""Where derived files that save time are kept between processes; they can be removed at any time."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

_WEEK_S = 7 * 24 * 3600


def folder(name: str) -> Path | None:
    """A folder of this name: in the user's cache, else in the package's __pycache__; None where neither is writable."""
    for above in _places():
        try:
            (above / name).mkdir(parents=True, exist_ok=True)
        except OSError:
            continue
        if os.access(above / name, os.W_OK):
            _remove_lost(above / name)
            return above / name
    return None


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
