"""The inputs of a check and its output: the release, read as an untrusted one, and a line for each finding.

Files of others are read with limits, without links, and without the features of a format that make a parser run code.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ddnn_traces.errors import needs_extra
from ddnn_traces.release import facts
from ddnn_traces.store import layout
from ddnn_traces.store.layout import is_safe

PASSED, FAILED, FLAGGED, NOT_CHECKED = "passed", "failed", "flagged", "not checked"

#: Advice for the detail of a failure.
ASK = "ask the publisher, or publish the dataset again"
AGAIN = "get it again from where the release is from"


@dataclass(frozen=True)
class Finding:
    """What a check found: the subject, the status (passed, failed, flagged or not checked), the detail.

    The detail of a failure states what is wrong and what to do next. flagged: a data check fails, and the release
    states so.
    """

    subject: str
    status: str
    detail: str


@dataclass(frozen=True)
class Result(Finding):
    """A line of the output: a finding, and the check that made it."""

    check: str


def passed(subject: str, detail: str) -> Finding:
    """A subject that is right."""
    return Finding(subject, PASSED, detail)


def failed(subject: str, detail: str) -> Finding:
    """A subject that is wrong; it may be a foreign text."""
    return Finding(shown(subject), FAILED, detail)


def not_checked(subject: str, detail: str) -> Finding:
    """A subject that was not checked, with the reason."""
    return Finding(subject, NOT_CHECKED, detail)


def unless(found: Iterable[Finding], right: Finding) -> Iterator[Finding]:
    """The findings; where there are none the one that all is right."""
    several = list(found)
    yield from several or [right]


class WrongError(Exception):
    """A failure after which its check cannot continue; any check may raise it."""


@dataclass
class Examined:
    """A release that is being verified; documents that several checks need are read once.

    folder: as given. scratch: for temporary files. jobs: threads. declared: the content of release.json, once it was
    found sound. sums: SHA-256 of the files that were read. safe: there is no link or the like in the release; else
    nothing more is read. implausible: a Parquet file claims more than it can hold: no row is read. archive: the zip
    file that it was unpacked from. fast: captures of some runs only. maker: MODULE:FUNCTION that makes the texts of a
    release's descriptions by name; '' for none. report: called with what is being done.
    """

    folder: Path
    scratch: Path
    jobs: int
    declared: facts.Release | None = None
    safe: bool = False
    implausible: bool = False
    archive: Path | None = None
    fast: bool = False
    maker: str = ""
    report: Callable[[str], None] = lambda _: None
    sums: dict[str, str] = field(default_factory=dict)
    _documents: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def content(self) -> Path:
        """Folder of the release's files: data/ of a bag."""
        return layout.content(self.folder)

    @property
    def release(self) -> facts.Release:
        """The content of release.json. Raises WrongError where it is not sound."""
        if self.declared is None:
            raise WrongError(f"{layout.RELEASE} is not sound, so that the contents to expect are unknown")
        return self.declared

    def text(self, name: str) -> str:
        """A text file of the release. Raises WrongError."""
        return read_text(self.content / name)

    def document(self, name: str) -> dict[str, Any]:
        """A JSON document of the release. Raises WrongError."""
        if name not in self._documents:
            self._documents[name] = parse_json(self.text(name), name)
        return self._documents[name]

    def known_files(self) -> dict[str, facts.File]:
        """The data files that release.json lists, by path. Raises WrongError."""
        return {file.path: file for file in self.release.files}


# --- reading files of others

#: The descriptions of a release of a thousand runs have some 20 MB.
LARGEST = 256 << 20
_DEEPEST = 64
#: Objects and lists in a JSON document: a thousand runs' data package has some 300,000. A list takes 60 bytes and more.
_MOST_OBJECTS = 2_000_000
#: Front matter and CITATION.cff do not grow with runs.
_LARGEST_YAML = 1 << 20

#: Longest part of a foreign text that a message repeats.
_SHOWN = 160


def shown(value: object) -> str:
    """A foreign text, short and on one line."""
    text = " ".join(str(value).split())
    text = "".join(letter if letter.isprintable() else "?" for letter in text)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."


def entries(folder: Path) -> Iterator[tuple[str, str]]:
    """Each entry below a folder that is not a folder: relative path, and what is wrong with it or ''."""
    for where, folders, names in os.walk(folder):
        for name in sorted([*folders, *names]):
            path = Path(where) / name
            relative = path.relative_to(folder).as_posix()
            kind = path.lstat().st_mode
            if stat.S_ISLNK(kind):
                yield relative, "is a link"
            elif not stat.S_ISREG(kind) and not stat.S_ISDIR(kind):
                yield relative, "is not a plain file"
            elif not is_safe(relative):
                yield relative, "has a name that not every system can hold"
            elif stat.S_ISREG(kind):
                yield relative, ""


def empty_folders(folder: Path) -> list[str]:
    """Paths of the empty folders below a folder, relative."""
    found = [where for where, folders, names in os.walk(folder) if not folders and not names]
    return sorted(Path(where).relative_to(folder).as_posix() for where in found)


def read_text(path: Path) -> str:
    """A text file. Raises WrongError where it is missing, not UTF-8, a link or too large."""
    try:
        kind = path.lstat()
        if not stat.S_ISREG(kind.st_mode):
            raise WrongError(f"{path.name} is not a plain file")
        if kind.st_size > LARGEST:
            raise WrongError(f"{path.name} has {kind.st_size:,} bytes, which is too many")
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise WrongError(f"{path.name} is missing") from None
    except UnicodeDecodeError as error:
        raise WrongError(f"{path.name} is not UTF-8 text (byte {error.start})") from None
    except OSError as error:
        raise WrongError(f"{path.name} cannot be read ({error.strerror})") from None


def parse_json(content: str, name: str) -> dict[str, Any]:
    """JSON that holds an object, not too deep. Raises WrongError."""
    if content.count("{") + content.count("[") > _MOST_OBJECTS:
        raise WrongError(f"{name} has more than {_MOST_OBJECTS:,} objects and lists, which is too many")
    try:
        document = json.loads(content, parse_constant=_no_constant, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise WrongError(f"{name} is not valid JSON ({shown(error)})") from None
    if not isinstance(document, dict):
        raise WrongError(f"{name} does not hold a JSON object")
    if _depth(document) > _DEEPEST:
        raise WrongError(f"{name} is nested more than {_DEEPEST} deep")
    return document


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object in which each name occurs once: readers differ on which of two counts."""
    made = dict(pairs)
    if len(made) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{next(name for name in names if names.count(name) > 1)!r} occurs twice in an object")
    return made


def _depth(document: Any) -> int:
    deep, level = 0, [document]
    while level and deep <= _DEEPEST:
        deep += 1
        values = (value.values() if isinstance(value, dict) else value for value in level)
        level = [item for value in values for item in value if isinstance(item, dict | list)]
    return deep


def parse_yaml(content: str, name: str) -> dict[str, Any]:
    """YAML that holds a mapping, without aliases; dates stay text. Raises WrongError, MissingExtra."""
    with needs_extra():
        import yaml

    if len(content) > _LARGEST_YAML:
        raise WrongError(f"{name} has {len(content):,} characters of YAML, which is too many")
    resolvers = {
        letter: [(tag, expression) for tag, expression in found if tag != "tag:yaml.org,2002:timestamp"]
        for letter, found in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    loader = type("Loader", (yaml.SafeLoader,), {"yaml_implicit_resolvers": resolvers})
    try:
        _refuse_bombs(content, name)
        document = yaml.load(content, loader)  # noqa: S506 - a SafeLoader
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise WrongError(f"{name} is not valid YAML ({shown(error)})") from None
    if not isinstance(document, dict):
        raise WrongError(f"{name} does not hold a YAML mapping")
    return document


def _refuse_bombs(content: str, name: str) -> None:
    """Raise WrongError at the first alias and at deep nesting, before the text after them is read."""
    import yaml

    deep = 0
    for event in yaml.parse(content, yaml.SafeLoader):
        if isinstance(event, yaml.AliasEvent):
            raise WrongError(f"{name} has YAML aliases, with which a small file can grow without end")
        deep += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if deep > _DEEPEST:
            raise WrongError(f"{name} has YAML nested more than {_DEEPEST} deep")
