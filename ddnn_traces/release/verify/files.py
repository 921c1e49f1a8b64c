"""Every file is there, with its checksum, and no other; no link among them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import unquote

from ddnn_traces import extras
from ddnn_traces.release.verify import untrusted
from ddnn_traces.release.verify.examined import Examined
from ddnn_traces.release.verify.result import FAILED, PASSED, Result, WrongError
from ddnn_traces.release.verify.untrusted import shown
from ddnn_traces.store import layout
from ddnn_traces.store.places.place import is_safe
from ddnn_traces.text import counted

PLACES = "links and names"
SUMS = "checksums"
BAG = "bag"

_LINE = re.compile(r"(\\?)([0-9a-f]{64})  (.+)")
_ESCAPES = {"\\\\": "\\", "\\n": "\n", "\\r": "\r"}
_AGAIN = "get this file again from where the release is from"


def check_places(examined: Examined) -> Iterator[Result]:
    """No link, device or odd name is in the release; else nothing more of it is read."""
    wrong = [(path, what) for path, what in untrusted.files(examined.folder) if what]
    for path, what in wrong:
        detail = f"{what}, which could lead elsewhere; nothing else was read: ask whoever published it"
        yield Result(PLACES, shown(path), FAILED, detail)
    examined.safe = not wrong
    if not wrong:
        number = sum(1 for _ in untrusted.files(examined.folder))
        yield Result(PLACES, "all files", PASSED, counted(number, "plain file"))


def check_sums(examined: Examined) -> Iterator[Result]:
    """SHA256SUMS names every file with its SHA-256, and no other file is there."""
    listed = _listed(untrusted.text(examined.content / layout.CHECKSUMS))
    own = _hash(examined.content / layout.CHECKSUMS)
    detail = f"has itself the SHA-256 {own}: compare it with the one that the publisher gives"
    yield Result(SUMS, layout.CHECKSUMS, PASSED, detail)
    there = {path for path, _ in untrusted.files(examined.content)} - {layout.CHECKSUMS}
    examined.sums = _sums(examined.content, sorted(there), examined.jobs)
    wrong = 0
    for path in sorted(there | listed.keys()):
        if path not in there:
            detail = f"is missing; {_AGAIN}"
        elif path not in listed:
            detail = f"is not of the release (not in {layout.CHECKSUMS}); remove it, or ask whoever published it"
        elif examined.sums[path] != listed[path]:
            detail = f"has been changed: its SHA-256 is not that of {layout.CHECKSUMS}; {_AGAIN}"
        else:
            continue
        wrong += 1
        yield Result(SUMS, shown(path), FAILED, detail)
    if not wrong:
        size = sum((examined.content / path).stat().st_size for path in there)
        yield Result(
            SUMS,
            "all files",
            PASSED,
            f"{counted(len(there), 'file')}, {counted(size, 'byte')}, as {layout.CHECKSUMS} has them",
        )


def check_bag(examined: Examined) -> Iterator[Result]:
    """A bag's manifests (RFC 8493) fit, by their sums and by the library bagit."""
    if examined.content == examined.folder:
        return
    bag = examined.folder
    tags = _manifest(untrusted.text(bag / "tagmanifest-sha256.txt"))
    expected = {f"data/{path}": sha256 for path, sha256 in examined.sums.items()}
    expected["data/" + layout.CHECKSUMS] = _hash(examined.content / layout.CHECKSUMS)
    listed = _manifest(untrusted.text(bag / "manifest-sha256.txt"))
    wrong = sorted(path for path in expected.keys() | listed.keys() if expected.get(path) != listed.get(path))
    beside = {path for path, _ in untrusted.files(bag) if not path.startswith("data/")} - {"tagmanifest-sha256.txt"}
    for name in sorted(beside | tags.keys()):
        if name not in beside or tags.get(name) != _hash(bag / name):
            wrong.append(name)
    for path in wrong:
        yield Result(BAG, shown(path), FAILED, f"is not as the bag's manifests say; {_AGAIN}")
    bagit = extras.load("bagit")
    try:
        bagit.Bag(str(bag)).validate(processes=1, completeness_only=True)
    except bagit.BagError as error:
        yield Result(BAG, "bag", FAILED, f"bagit: {shown(error)}; {_AGAIN}")
        return
    if not wrong:
        yield Result(BAG, "bag", PASSED, f"{counted(len(listed), 'file')} in its manifest, complete (bagit)")


def _listed(text: str) -> dict[str, str]:
    """SHA-256 by path. Raises WrongError for a line that is none, or a path that leaves the folder."""
    listed = {}
    for number, line in enumerate(text.split("\n")[:-1], 1):
        found = _LINE.fullmatch(line)
        path = found and re.sub(r"\\.", lambda match: _ESCAPES.get(match[0], "\0"), found[3]) if found else None
        if found is None or path is None or not is_safe(path) or path in listed:
            raise WrongError(
                f"line {number} of {layout.CHECKSUMS} is not a checksum and the path of a file in the release"
            )
        if path == layout.CHECKSUMS:
            raise WrongError(f"line {number} of {layout.CHECKSUMS} lists the file itself, which has no sum in it")
        listed[path] = found[2]
    return listed


def _manifest(text: str) -> dict[str, str]:
    pairs = (line.split(None, 1) for line in text.splitlines())
    return {unquote(pair[1].strip()): pair[0] for pair in pairs if len(pair) == 2}


def _sums(folder: Path, paths: list[str], jobs: int) -> dict[str, str]:
    largest_first = sorted(paths, key=lambda path: -(folder / path).stat().st_size)
    with ThreadPoolExecutor(jobs) as threads:  # hashing releases the interpreter
        return dict(zip(largest_first, threads.map(lambda path: _hash(folder / path), largest_first), strict=True))


def _hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
