"""SHA256SUMS: what sha256sum -c reads, for every file of a release but itself."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ddnn_traces.release.content import file_hash
from ddnn_traces.store import layout


def files(folder: Path) -> list[str]:
    """Paths of all files below a folder, relative, with slashes, in order of their bytes."""
    found = [path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir()]
    return sorted(found, key=str.encode)


def write(folder: Path, known: Mapping[str, str], jobs: int = 1) -> None:
    """Write SHA256SUMS. known: hashes that need not be made again, by path. Raises OSError."""
    paths = [path for path in files(folder) if path != layout.CHECKSUMS]
    with ThreadPoolExecutor(jobs) as threads:
        hashes = threads.map(lambda path: known.get(path) or file_hash(folder / path), paths)
        lines = [line(path, sha256) for path, sha256 in zip(paths, hashes, strict=True)]
    (folder / layout.CHECKSUMS).write_text("".join(lines), encoding="utf-8")


def line(path: str, sha256: str) -> str:
    """A line of the file; names with a backslash or a line end are escaped as sha256sum does."""
    escaped = path.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
    mark = "\\" if escaped != path else ""
    return f"{mark}{sha256}  {escaped}\n"
