"""The leak scan: whether anything that tells who, where or when is in a finished release.

    dataset, source captures, this machine -> words ; every file of the release -> hits

docs/anonymisation.md says what is searched for where, and what is not.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from ddnn_traces.release.leak_scan.places import Searchers, hits
from ddnn_traces.release.leak_scan.words import Words, words

__all__ = ["Leak", "Words", "causes", "scan", "words"]

_THREADS = 2
_MOST_SHOWN = 2  # files of one thing


@dataclass(frozen=True, order=True)
class Leak:
    """Something that must not be in a release: the file, what it is and whose (not the thing itself), where in it.

    file: with an ellipsis for each part that would tell the thing.
    """

    file: str
    cause: str
    place: str

    @property
    def kind(self) -> str:
        """What it is: an IP address, the name of a host."""
        return self.cause.partition(" (")[0]

    def __str__(self) -> str:
        return f"{self.file}: {self.cause} in {self.place}"


def scan(folder: Path, words: Words) -> list[Leak]:
    """What is found in all files of a folder, in the order of their names. Raises UsageError for unreadable ones."""
    searchers = Searchers.of(words)
    files = sorted(path for path in folder.rglob("*") if path.is_file() or path.is_symlink())

    def look(path: Path) -> list[Leak]:
        name = path.relative_to(folder).as_posix()
        return [Leak(_shown(name, searchers), cause, place) for cause, place in hits(path, name, searchers)]

    with ThreadPoolExecutor(_THREADS) as threads:
        try:
            return sorted({leak for leaks in threads.map(look, files) for leak in leaks})
        except BaseException:
            threads.shutdown(cancel_futures=True)
            raise


def causes(leaks: Sequence[Leak]) -> list[str]:
    """One line for each thing that leaks: what it is, and the first of the files that it is in."""
    found: dict[str, list[Leak]] = {}
    for leak in leaks:
        found.setdefault(leak.cause, []).append(leak)
    lines = []
    for cause, members in found.items():
        places = {leak.file: leak.place for leak in reversed(members)}
        shown = ", ".join(f"{file} ({place})" for file, place in sorted(places.items())[:_MOST_SHOWN])
        more = len(places) - _MOST_SHOWN
        lines.append(f"{cause}: in {shown}" + (f" and {more} more file{'s' * (more > 1)}" if more > 0 else ""))
    return lines


def _shown(name: str, searchers: Searchers) -> str:
    """The name of a file, without the parts of it that tell something."""
    told = [next(searchers.every.kinds(part.encode(errors="replace")), None) for part in name.split("/")]
    return "/".join("..." if hit else part for part, hit in zip(name.split("/"), told, strict=True))
