"""The leak scan: searches a finished release for what identifies a host, a user, a place or a time.

    dataset, source captures, this machine -> words ; every file of the release -> hits

docs/anonymisation.md lists what is searched for and where, and what is not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ddnn_traces.errors import LeakError
from ddnn_traces.jobs import thread_pool
from ddnn_traces.release.leak_scan.files import Searchers, hits
from ddnn_traces.release.leak_scan.searched_words import Words, words

__all__ = ["Leak", "Words", "causes", "refuse", "scan", "words"]

_THREADS = 2
_MOST_SHOWN = 2  # files of one cause
_MOST_CAUSES = 20


@dataclass(frozen=True, order=True)
class Leak:
    """Something that must not be in a release.

    file: its path, with an ellipsis for each part that must not be shown. cause: what it is and of which run, without
    the text itself. place: where in the file.
    """

    file: str
    cause: str
    place: str

    @property
    def kind(self) -> str:
        """The cause without the run: an IP address, the name of a host."""
        return self.cause.partition(" (")[0]


def scan(folder: Path, words: Words) -> list[Leak]:
    """What is found in all files of a folder, in the order of their names.

    Raises UsageError for a file that cannot be read, MissingExtra.
    """
    searchers = Searchers.of(words)
    files = sorted(path for path in folder.rglob("*") if path.is_file() or path.is_symlink())

    def scan_file(path: Path) -> list[Leak]:
        name = path.relative_to(folder).as_posix()
        return [Leak(_shown(name, searchers), cause, place) for cause, place in hits(path, name, searchers)]

    with thread_pool(_THREADS) as threads:
        return sorted({leak for leaks in threads.map(scan_file, files) for leak in leaks})


def causes(leaks: Sequence[Leak]) -> list[str]:
    """One line for each cause, with the first of the files that it is in."""
    found: dict[str, dict[str, str]] = {}
    for leak in leaks:
        found.setdefault(leak.cause, {}).setdefault(leak.file, leak.place)
    lines = []
    for cause, places in found.items():
        shown = ", ".join(f"{file} ({place})" for file, place in sorted(places.items())[:_MOST_SHOWN])
        more = len(places) - _MOST_SHOWN
        lines.append(f"{cause}: in {shown}" + (f" and {more} more file{'s' * (more > 1)}" if more > 0 else ""))
    return lines


def refuse(release: Path, leaks: Sequence[Leak]) -> None:
    """Raise LeakError where there are leaks."""
    if found := causes(leaks):
        shown = "\n  ".join(found[:_MOST_CAUSES])
        more = f"\n  and {len(found) - _MOST_CAUSES} more" if len(found) > _MOST_CAUSES else ""
        raise LeakError(
            f"{release}: not published, and what was made is removed: it holds what must not be published:\n  {shown}"
            f"{more}\nrename what holds it (runs, hosts, release.toml) or leave it out; docs/anonymisation.md lists "
            "what is searched for"
        )


def _shown(name: str, searchers: Searchers) -> str:
    """The name of a file, without the parts of it that must not be shown."""
    parts = name.split("/")
    hits_of = [next(searchers.every.kinds(part.encode(errors="replace")), None) for part in parts]
    return "/".join("..." if hit else part for part, hit in zip(parts, hits_of, strict=True))
