"""The files of a release: names, checksums, bag, release.json with the files that it lists, and the version.

A check may raise WrongError, of which running.py makes a finding.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from ddnn_traces.errors import UsageError, needs_extra
from ddnn_traces.jobs import thread_pool
from ddnn_traces.query import views
from ddnn_traces.release import facts
from ddnn_traces.release.verify.examined import (
    AGAIN,
    ASK,
    LARGEST,
    Examined,
    Finding,
    WrongError,
    empty_folders,
    entries,
    failed,
    passed,
    read_text,
    shown,
    unless,
)
from ddnn_traces.store import layout, schema
from ddnn_traces.store.layout import is_safe
from ddnn_traces.store.parquet import part
from ddnn_traces.store.places import zipped
from ddnn_traces.store.whole_files import sha256_of
from ddnn_traces.text import counted

_LINE = re.compile(r"(?P<sha256>[0-9a-f]{64})  (?P<path>.+)")

#: The files of every release in addition to the data files that release.json lists.
_OTHERS = {
    layout.RELEASE, layout.CHANGELOG, layout.CHECKSUMS, layout.MARKER, layout.EXPLORER, views.FILE,
    *layout.DESCRIPTIONS,
}  # fmt: skip


def check_places(examined: Examined) -> Iterator[Finding]:
    """No link, device or odd name is in the release; else nothing more of it is read."""
    found = list(entries(examined.folder))
    wrong = [(path, what) for path, what in found if what]
    for path, what in wrong:
        yield failed(path, f"{what}, which could lead outside; nothing else was read: ask the publisher")
    examined.safe = not wrong
    if not wrong:
        yield passed("all files", counted(len(found), "plain file"))


def check_archive(examined: Examined) -> Iterator[Finding]:
    """A zip file holds the files of the release and nothing else: no comment, no bytes between them."""
    if examined.archive is None:
        return
    wrong = [failed(name, f"{what}; {ASK}") for name, what in zipped.beside_files(examined.archive)]
    yield from unless(wrong, passed("contents", "nothing but the files of the release"))


def check_sums(examined: Examined) -> Iterator[Finding]:
    """SHA256SUMS names every file with its SHA-256, and no other file is there.

    A file that is not listed, or larger than stated, is not read: it may have any size.
    """
    listed = _listed(examined.text(layout.CHECKSUMS))
    own = sha256_of(examined.content / layout.CHECKSUMS)
    detail = f"its own SHA-256 is {own}: compare it with the one that the publisher gives"
    yield passed(layout.CHECKSUMS, detail)
    present = {path for path, _ in entries(examined.content)} - {layout.CHECKSUMS}
    sizes = {path: (examined.content / path).stat().st_size for path in present}
    unread = _unread(examined, {path: size for path, size in sizes.items() if path in listed})
    sums = examined.sums = _sums(examined.content, (present & listed.keys()) - unread.keys(), examined.jobs)
    detail = (
        f"{counted(len(present), 'file')}, {counted(sum(sizes.values()), 'byte')}, as {layout.CHECKSUMS} lists them"
    )
    yield from unless(_against(present, sums, listed, unread), passed("all files", detail))


def _against(
    present: set[str], sums: dict[str, str], listed: dict[str, str], unread: dict[str, str]
) -> Iterator[Finding]:
    """The files that differ from SHA256SUMS."""
    for path in sorted(present | listed.keys()):
        if path not in present:
            yield failed(path, f"is missing; {AGAIN}")
        elif path not in listed:
            yield failed(path, f"is not of the release (not in {layout.CHECKSUMS}); remove it, or ask the publisher")
        elif path in unread:
            yield failed(path, f"{unread[path]}, so that it was not read; {AGAIN}")
        elif sums[path] != listed[path]:
            yield failed(path, f"has been changed: its SHA-256 is not that of {layout.CHECKSUMS}; {AGAIN}")


def _unread(examined: Examined, sizes: dict[str, int]) -> dict[str, str]:
    """The files that are not what release.json states by their size alone, and how."""
    stated = _stated(examined)
    wrong = {}
    for path, size in sizes.items():
        if path in stated and size != stated[path]:
            wrong[path] = f"has {size:,} bytes, {layout.RELEASE} states {stated[path]:,}"
        elif path not in stated and size > LARGEST:
            wrong[path] = f"has {size:,} bytes, which {layout.RELEASE} does not state"
    return wrong


def _stated(examined: Examined) -> dict[str, int]:
    """Bytes of the data files by release.json, which is not checked yet; empty where it cannot be read."""
    try:
        document = examined.document(layout.RELEASE)
        files = [*document["captures"], *(file for table in document["tables"] for file in table["files"])]
        return {str(file["path"]): int(file["bytes"]) for file in files}
    except (WrongError, KeyError, TypeError, ValueError):
        return {}


def check_bag(examined: Examined) -> Iterator[Finding]:
    """A bag's manifests (RFC 8493) list its files with their checksums, and the library bagit finds it complete."""
    if examined.content == examined.folder:
        return
    bag = examined.folder
    tags = _manifest(read_text(bag / "tagmanifest-sha256.txt"))
    expected = {f"data/{path}": sha256 for path, sha256 in examined.sums.items()}
    expected["data/" + layout.CHECKSUMS] = sha256_of(examined.content / layout.CHECKSUMS)
    listed = _manifest(read_text(bag / "manifest-sha256.txt"))
    wrong = sorted(path for path in expected.keys() | listed.keys() if expected.get(path) != listed.get(path))
    present = {path for path, _ in entries(bag) if not path.startswith("data/")} - {"tagmanifest-sha256.txt"}
    small = {name for name in present & tags.keys() if (bag / name).stat().st_size <= LARGEST}
    wrong += [n for n in sorted(present | tags.keys()) if n not in small or tags.get(n) != sha256_of(bag / n)]
    for path in wrong:
        yield failed(path, f"differs from the bag's manifests; {AGAIN}")
    with needs_extra():
        import bagit
    try:
        bagit.Bag(str(bag)).validate(processes=1, completeness_only=True)
    except bagit.BagError as error:
        yield failed("bag", f"bagit: {shown(error)}; {AGAIN}")
        return
    if not wrong:
        yield passed("bag", f"{counted(len(listed), 'file')} in its manifest, complete (bagit)")


def _listed(text: str) -> dict[str, str]:
    """SHA-256 by path. Raises WrongError for a line that is not a checksum, or a path that leaves the folder."""
    listed = {}
    for number, line in enumerate(text.removesuffix("\n").split("\n"), 1):
        found = _LINE.fullmatch(line)
        if found is None or not is_safe(path := found["path"]) or path in listed:
            raise WrongError(
                f"line {number} of {layout.CHECKSUMS} is not a checksum and the path of a file in the release"
            )
        if path == layout.CHECKSUMS:
            raise WrongError(f"line {number} of {layout.CHECKSUMS} lists the file itself, which cannot be")
        listed[path] = found["sha256"]
    return listed


def _manifest(text: str) -> dict[str, str]:
    pairs = (line.split(None, 1) for line in text.splitlines())
    return {unquote(pair[1].strip()): pair[0] for pair in pairs if len(pair) == 2}


def _sums(folder: Path, paths: set[str], jobs: int) -> dict[str, str]:
    largest_first = sorted(paths, key=lambda path: (-(folder / path).stat().st_size, path))
    with thread_pool(jobs) as threads:  # hashing releases the interpreter
        return dict(zip(largest_first, threads.map(lambda path: sha256_of(folder / path), largest_first), strict=True))


def check_release_json(examined: Examined) -> Iterator[Finding]:
    """release.json and dataset.json can be read by this program; sets examined.declared. Raises WrongError."""
    document = examined.document(layout.RELEASE)
    for name, reads in (("format_version", facts.FORMAT_VERSION), ("schema_version", schema.SCHEMA_VERSION)):
        version = document.get(name)
        if isinstance(version, int) and version > reads:
            raise WrongError(f"{name} {version} is newer than this program, which reads {reads}; update ddnn_traces")
        if version != reads:
            raise WrongError(f"{name} is {shown(version)}, this program reads {reads}; use the version that made it")
    try:
        release = facts.read(examined.folder)
    except UsageError as error:
        raise WrongError(str(error)) from None
    tables = [table.name for table in release.tables]
    if tables != [name for name in schema.TABLES if name in tables]:
        raise WrongError(f"its tables ({shown(', '.join(tables))}) are not tables of ddnn_traces, each once")
    for file in release.files:
        if not is_safe(file.path):
            raise WrongError(f"{shown(file.path)} leaves the release's folder; ask the publisher")
    for table in release.tables:
        for file, right in zip(table.files, _places(release, table), strict=True):
            if file.path != right:
                raise WrongError(f"{shown(file.path)} is not in its place, {right}; ask the publisher")
    marked = layout.parse_marker(examined.text(layout.MARKER).encode(), layout.MARKER)
    examined.declared = release
    if list(marked.tables) != tables:
        yield failed(layout.MARKER, f"names other tables than {layout.RELEASE}; {AGAIN}")
    elif release.software == facts.SOFTWARE and (odd := _other_form(examined)):
        yield failed(odd, f"has other bytes than this program writes for the same content; {AGAIN}")
    else:
        numbers = f"{counted(len(release.runs), 'run')}, {counted(len(tables), 'table')}"
        yield passed(layout.RELEASE, f"{numbers}, version {release.about.version}")


def _other_form(examined: Examined) -> str:
    """Which of release.json and dataset.json has something that their readers skip, such as spaces; '' if none."""
    if not layout.marker_is_as_written(examined.content):
        return layout.MARKER
    return "" if examined.text(layout.RELEASE) == _as_text(examined.document(layout.RELEASE)) else layout.RELEASE


def _as_text(document: dict[str, Any]) -> str:
    """The only form of release.json."""
    return json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def _places(release: facts.Release, table: facts.Table) -> Iterator[str]:
    """Where each file of a table has to be. Raises WrongError for one that has runs of several splits."""
    split_of = {run: split for split, runs in release.splits.items() for run in runs}
    numbers: Counter[str | None] = Counter()
    for file in table.files:
        splits = {split_of.get(run) for run in file.runs}
        if len(splits) != 1:
            raise WrongError(f"{shown(file.path)} has runs of several splits; ask the publisher")
        (split,) = splits
        yield part(table.name, numbers[split], split)
        numbers[split] += 1


def check_listed(examined: Examined) -> Iterator[Finding]:
    """The data files that release.json lists are present, with their lengths and SHA-256.

    Nothing was added: the other files have the names that every release has, and no folder is empty.
    """
    known = examined.known_files()
    right = passed("data files", f"{counted(len(known), 'file')} as {layout.RELEASE} lists them")
    yield from unless(_not_as_listed(examined, known), right)


def _not_as_listed(examined: Examined, known: dict[str, facts.File]) -> Iterator[Finding]:
    present = {path for path, _ in entries(examined.content)}
    for path in sorted((present - _OTHERS) | known.keys()):
        file = known.get(path)
        if file is None:
            yield failed(path, f"was added: it is not in {layout.RELEASE}; remove it, or ask the publisher")
        elif path not in present:
            yield failed(path, f"is in {layout.RELEASE} and missing here; {AGAIN}")
        elif (size := (examined.content / path).stat().st_size) != file.bytes:
            yield failed(path, f"has {size:,} bytes, {layout.RELEASE} states {file.bytes:,}; get both again")
        elif examined.sums.get(path, file.sha256) != file.sha256:
            yield failed(path, f"has another SHA-256 than {layout.RELEASE} states; get both again")
    for path in empty_folders(examined.folder):
        yield failed(path, "was added: an empty folder; remove it")


def check_version(examined: Examined) -> Iterator[Finding]:
    """A semantic version above the one before, the digest that release.json gives, the changelog's first entry."""
    release = examined.release
    about = release.about
    wrong = [one for one in (about.version, release.previous) if one is not None and not _SEMANTIC.fullmatch(one)]
    if wrong:
        raise WrongError(f"{layout.RELEASE}: {shown(wrong[0])} is not a semantic version; {ASK}")
    if release.previous is not None and not _precedence(about.version) > _precedence(release.previous):
        raise WrongError(f"{layout.RELEASE}: {about.version} is not greater than {release.previous}; {ASK}")
    if _digest(examined.document(layout.RELEASE)) != release.digest:
        yield failed(layout.RELEASE, f"was changed after {layout.RELEASE} was published: its digest differs; {AGAIN}")
    else:
        yield passed(layout.RELEASE, f"version {about.version}, digest {release.digest[:16]}")
    versioned = re.findall(r"^## (\S+) - (\S+)$", examined.text(layout.CHANGELOG), re.M)
    first = versioned[0] if versioned else ("no version", "no date")
    if first != (about.version, about.published):
        detail = f"begins with {shown(' of '.join(first))}, {layout.RELEASE} has {about.version} of {about.published}"
        yield failed(layout.CHANGELOG, f"{detail}; {AGAIN}")
    else:
        detail = f"begins with {about.version} of {about.published}; the text of its entries was not checked"
        yield passed(layout.CHANGELOG, detail)


#: As semver.org gives it.
_SEMANTIC = re.compile(
    r"(0|[1-9]\d*)(\.(0|[1-9]\d*)){2}(-(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)(\.(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*))*)?"
    r"(\+[0-9a-zA-Z-]+(\.[0-9a-zA-Z-]+)*)?",
    re.ASCII,
)


def _precedence(version: str) -> tuple[Any, ...]:
    """A key by which semantic versions sort (semver.org, 11)."""
    numbers, _, before = version.partition("+")[0].partition("-")
    words = [(not word.isdigit(), int(word) if word.isdigit() else 0, word) for word in before.split(".")]
    return ([int(number) for number in numbers.split(".")], not before, words)


def _digest(document: dict[str, Any]) -> str:
    """SHA-256 of release.json without what differs between versions of equal content."""
    about = document["about"] | {"version": "", "published": ""}
    return hashlib.sha256(_as_text(document | {"about": about, "previous": None, "digest": ""}).encode()).hexdigest()
