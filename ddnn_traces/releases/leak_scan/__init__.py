"""The leak scan: whether anything that tells who, where or when is in a finished release.

    dataset, source captures, this machine -> words ; every file of the release -> hits

docs/anonymisation.md says what is searched for where, and what is not.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from ddnn_traces.releases.leak_scan.places import Searchers, hits
from ddnn_traces.releases.leak_scan.words import Words, words

__all__ = ["Leak", "Words", "scan", "words"]

_THREADS = 2


@dataclass(frozen=True, order=True)
class Leak:
    """Something that must not be in a release: the file, what it is (not the thing itself), where in the file."""

    file: str
    kind: str
    place: str

    def __str__(self) -> str:
        return f"{self.file}: {self.kind} in {self.place}"


def scan(folder: Path, words: Words) -> list[Leak]:
    """What is found in all files of a folder, in the order of their names. Raises UsageError for unreadable ones."""
    searchers = Searchers.of(words)
    files = sorted(path for path in folder.rglob("*") if path.is_file() or path.is_symlink())

    def look(path: Path) -> list[Leak]:
        name = path.relative_to(folder).as_posix()
        return [Leak(name, kind, place) for kind, place in hits(path, name, searchers)]

    with ThreadPoolExecutor(_THREADS) as threads:
        try:
            return sorted({leak for leaks in threads.map(look, files) for leak in leaks})
        except BaseException:
            threads.shutdown(cancel_futures=True)
            raise
