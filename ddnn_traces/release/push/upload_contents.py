"""What all targets share: the files to send, options, what is reported, retries, and messages without secrets.

The files are those that the release's checksums list, and the list itself; others in the folder stay where they are.
"""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from ddnn_traces.errors import PushError, UsageError
from ddnn_traces.messages import Messages
from ddnn_traces.release import facts
from ddnn_traces.store import layout
from ddnn_traces.store.whole_files import sha256_of
from ddnn_traces.text import counted, listed

_BAG = "bagit.txt"
_BAG_LISTS = ("manifest-sha256.txt", "tagmanifest-sha256.txt")
#: Sent last, in this order: without the last one a reader does not take the copy for a whole release.
_LAST = (layout.RELEASE, layout.MARKER, layout.CHECKSUMS, _BAG_LISTS[0], _BAG, _BAG_LISTS[1])

_LINE = re.compile(r"(?P<sha256>[0-9a-f]{64}) [ *]?(?P<path>\S.*)")
_VERSION = re.compile(r"[0-9]+\.[0-9]+\.[0-9]+(?:[-+][0-9A-Za-z.+-]+)?")
_CHUNK = 1 << 20
#: Names of damaged files that a message lists.
_NAMED = 5


@dataclass(frozen=True)
class Item(facts.File):
    """A file to upload. path: in the release, with slashes. local: its place on this machine."""

    local: Path


@dataclass(frozen=True)
class Contents:
    """The files to upload. items: in the order of sending; the last one completes the copy. stray: files that stay."""

    folder: Path
    release: facts.Release
    items: tuple[Item, ...]
    stray: tuple[str, ...]

    @property
    def version(self) -> str:
        """Semantic version; a plain name in every target."""
        return self.release.about.version

    @property
    def last(self) -> Item:
        """The file that completes the copy; it lists the checksums of all others."""
        return self.items[-1]


def read(folder: Path) -> Contents:
    """The release in a folder, by its lists; only those are hashed.

    Raises UsageError where there is no release, PushError where a listed file is missing or not a plain file.
    """
    if not folder.is_dir():
        raise UsageError(f"{folder}: no such release; check the path, or make one with 'ddnn-traces publish'")
    sums = _listed(folder)
    items = (_item(folder, path, sha256) for path, sha256 in sums.items())
    order = {name: place for place, name in enumerate(_LAST, 1)}
    ordered = tuple(sorted(items, key=lambda item: (order.get(item.path.removeprefix("data/"), 0), item.path)))
    return Contents(folder, _facts(layout.content(folder)), ordered, tuple(sorted(files_in(folder) - sums.keys())))


def files_in(folder: Path) -> set[str]:
    """Paths of all files and links below a folder, relative, with slashes."""
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_symlink() or path.is_file()}


def prove(contents: Contents, messages: Messages) -> None:
    """Hash every file. Raises PushError naming those that differ from their checksum."""
    messages.start_reading(sum(item.bytes for item in contents.items))
    try:
        damaged = [item.path for item in contents.items if _hash(item, messages) != item.sha256]
    finally:
        messages.end_reading()
    if damaged:
        raise PushError(
            f"{contents.folder}: {listed(damaged, _NAMED)}: not as the checksums of the release state, so "
            "nothing is sent; 'ddnn-traces verify' gives details, 'ddnn-traces publish' makes the release again"
        )


def refuse_damaged(place: str, contents: Contents, other: Sequence[str]) -> None:
    """Raise PushError where the version at a target is this one, damaged there. other: paths that differ, in order.

    It is this one where its list of checksums is the same, or where nothing but that list differs.
    """
    own = {item.path for item in contents.items} & set(other)
    if not own or (contents.last.path in own and set(other) != {contents.last.path}):
        return
    raise PushError(
        f"{place}: the copy of version {contents.version} there is damaged: {listed(other, 3)} not as its own "
        f"{contents.last.path} states; it is not another version; remove that copy and run the same command again"
    )


def other_content(place: str, contents: Contents, other: Sequence[str], choose: str = "") -> PushError:
    """The error for a version that exists at a target with another content. choose: another choice of the user."""
    return PushError(
        f"{place}: version {contents.version} is there with another content ({counted(len(other), 'file')}: "
        f"{', '.join(other[:3])}), and a version is never overwritten; publish yours under another --version{choose}"
    )


def _hash(item: Item, messages: Messages) -> str:
    digest = hashlib.sha256()
    messages.start_file(item.path)
    with item.local.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
            messages.advance(len(chunk), 0)
    messages.end_file(item.path)
    return digest.hexdigest()


def _listed(folder: Path) -> dict[str, str]:
    """SHA-256 by path, of all files to upload."""
    lists = _BAG_LISTS if (folder / _BAG).is_file() else (layout.CHECKSUMS,)
    sums: dict[str, str] = {}
    for name in lists:
        if not (folder / name).is_file():
            raise UsageError(f"{folder}: no release (no {name} in it); make one with 'ddnn-traces publish'")
        sums |= _parsed(folder / name)
    if lists == _BAG_LISTS:
        sums = {_decoded(folder, path): sha256 for path, sha256 in sums.items()}
    return sums | {lists[-1]: sha256_of(folder / lists[-1])}


def _parsed(path: Path) -> dict[str, str]:
    sums = {}
    for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), start=1):
        match = _LINE.fullmatch(line)
        if match is None or not layout.is_safe(match["path"]) or match["path"] in sums:
            raise PushError(
                f"{path}: line {number} is not a checksum of a file in the release; make the release again with "
                "'ddnn-traces publish'"
            )
        sums[match["path"]] = match["sha256"]
    return sums


def _decoded(bag: Path, path: str) -> str:
    """A path from a bag's manifest: RFC 8493 encodes percent signs and line ends, but not all programs do."""
    return path if (bag / path).exists() else path.replace("%0D", "\r").replace("%0A", "\n").replace("%25", "%")


def _item(folder: Path, path: str, sha256: str) -> Item:
    local = folder / path
    links = any(part.is_symlink() for part in (local, *local.parents) if folder in part.parents)
    if links or not local.is_file():
        raise PushError(
            f"{local}: {'a link' if links else 'missing, or not a file'}, though the release's checksums list it; make "
            "the release again with 'ddnn-traces publish'"
        )
    return Item(path, os.path.getsize(local), sha256, local)  # noqa: PTH202


def _facts(content: Path) -> facts.Release:
    path = content / layout.RELEASE
    try:
        release = facts.from_json(path.read_text(encoding="utf-8"))
        version = release.about.version
    except (OSError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise UsageError(f"{path}: not the facts of a release; make one with 'ddnn-traces publish'") from error
    if not isinstance(version, str) or not _VERSION.fullmatch(version):
        raise PushError(f"{path}: version {version!r} is not semantic (1.2.0); publish it again with a semantic one")
    return release


# --- targets

_Result = TypeVar("_Result")


@dataclass(frozen=True)
class PushOptions:
    """endpoint_url: another server of the same kind. record: of Zenodo; the release becomes its new version.

    publish_deposit: make the deposit at Zenodo public, which cannot be undone. overwrite_draft: replace the content of
    a draft there of this version by the release. private: make a new repository at the Hub private.
    """

    endpoint_url: str | None = None
    record: int | None = None
    publish_deposit: bool = False
    overwrite_draft: bool = False
    private: bool = False


@dataclass(frozen=True)
class Parcel:
    """A file to be sent. name: in the release. address: its place at the target."""

    name: str
    bytes: int
    address: str


@dataclass(frozen=True)
class Outcome:
    """The result of an upload. where: the address of the version. sent, sent_bytes: in this run; there: files that were
    at the target before.

    notes: what the publisher has to know or do next.
    """

    where: str
    sent: int
    sent_bytes: int
    there: int
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, where: str, every: Sequence[Any], sent: Sequence[Any] = (), notes: tuple[str, ...] = ()) -> Outcome:
        """The result where these were sent of all files, each of which has `bytes`."""
        return cls(where, len(sent), sum(file.bytes for file in sent), len(every) - len(sent), notes)

    @property
    def text(self) -> str:
        """A summary in one line."""
        if not self.sent:
            return f"{self.where}: already there, and equal: {counted(self.there, 'file')}"
        there = f", {self.there} were there already" if self.there else ""
        return f"{self.where}: sent {counted(self.sent, 'file')}, {self.sent_bytes:,} bytes{there}"


def parcels_below(place: str, contents: Contents) -> list[Parcel]:
    """The files of a release, each below one address."""
    return [Parcel(item.path, item.bytes, f"{place}/{item.path}") for item in contents.items]


class Target(Protocol):
    """A place that a release can be uploaded to."""

    def parcels(self, contents: Contents) -> list[Parcel]:
        """The files that an upload would send; without network and credentials."""

    def push(self, contents: Contents, retry: Retry, messages: Messages) -> Outcome:
        """Send the files that are not there. Raises PushError, UsageError, MissingExtra."""


#: HTTP states after which the same request may succeed: too many requests, and a server that has trouble.
TRANSIENT = (408, 425, 429, 500, 502, 503, 504)


class Transient(Exception):
    """A failure that may pass. wait_s: the pause that the server requests, s."""

    def __init__(self, message: str, wait_s: float | None = None) -> None:
        super().__init__(message)
        self.wait_s = wait_s


@dataclass(frozen=True)
class Retry:
    """attempts in all; before the second one a pause of first_s, then each time twice as long, at most most_s."""

    attempts: int = 6
    first_s: float = 1.0
    most_s: float = 60.0
    sleep: Callable[[float], None] = time.sleep

    def call(
        self, work: Callable[[], _Result], messages: Messages, explain: Callable[[Exception], Exception] | None = None
    ) -> _Result:
        """The result of `work`, which is repeated while it raises Transient.

        explain: makes Transient or PushError of a library's error, whose own text may hold a secret. Raises PushError
        after the last attempt.
        """
        attempt, pause_s = 1, self.first_s
        while True:
            try:
                return work()
            except Exception as error:
                failure = explain(error) if explain else error
            if not isinstance(failure, Transient):
                raise failure from None
            if attempt == self.attempts:
                raise PushError(
                    f"{failure}; tried {attempt} times; the same command continues from here when that has passed"
                ) from failure
            wait_s = min(self.most_s, pause_s if failure.wait_s is None else max(0.0, failure.wait_s))
            messages.info(f"{failure}; again in {wait_s:g} s")
            self.sleep(wait_s)
            attempt, pause_s = attempt + 1, 2 * pause_s


def seconds(header: str | None) -> float | None:
    """A Retry-After header in seconds; None where it is missing or a date."""
    try:
        return float(header) if header else None
    except ValueError:
        return None


_HIDDEN = "***"
#: Tokens recognised by their form, also those that this program did not get itself.
_SECRETS = (
    re.compile(r"(?i)(bearer\s+|basic\s+)[^\s'\",;]+"),
    re.compile(r"(?i)((?:access_token|token|signature|x-amz-[a-z-]+|awsaccesskeyid|credential)=)[^&\s'\"]+"),
    re.compile(r"()\bhf_[A-Za-z0-9]{8,}\b"),
    re.compile(r"()\b(?:AKIA|ASIA)[0-9A-Z]{12,}\b"),
    re.compile(r"([A-Za-z][A-Za-z0-9+.-]*://)[^/\s@]+(?=@)"),
)


def without_userinfo(address: str) -> str:
    """An address as typed, without the part before its last @: a secret key may have a slash in it."""
    scheme, parted, rest = address.partition("://")
    _, at, place = rest.rpartition("@")
    return f"{scheme}{parted}{_HIDDEN}@{place}" if parted and at else address


def scrub(text: object, secrets: Iterable[str | None] = ()) -> str:
    """A text on one line, without the secrets given and without parts that look like one."""
    line = " ".join(str(text).split())
    for secret in secrets:
        if secret:
            line = line.replace(secret, _HIDDEN)
    for pattern in _SECRETS:
        line = pattern.sub(rf"\1{_HIDDEN}", line)
    return line
