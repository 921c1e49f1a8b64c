"""Files that are there whole or not at all: written beside their place, then put there by one rename."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def whole_file(path: Path, folder: Path | None = None) -> Iterator[Path]:
    """The path to write to: it takes the place of `path` when the context is left, and is removed after an error.

    folder: for what is half written, on the file system of `path`; None: that of `path`. Raises OSError.
    """
    half_written = (folder or path.parent) / f".{path.name}.{os.getpid()}"
    try:
        yield half_written
        half_written.replace(path)
    finally:
        with contextlib.suppress(OSError):
            half_written.unlink()
