"""Where derived files that save time are kept between processes; they can be removed at any time."""

from __future__ import annotations

import os
from pathlib import Path


def folder(name: str) -> Path | None:
    """A folder of this name: in the package's __pycache__, else in the user's cache; None where neither is writable."""
    user = Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()) / "ddnn_traces"
    for above in (Path(__file__).parent / "__pycache__", user):
        try:
            (above / name).mkdir(parents=True, exist_ok=True)
        except OSError:
            continue
        if os.access(above / name, os.W_OK):
            return above / name
    return None
