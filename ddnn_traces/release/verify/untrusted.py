"""Reading files that others wrote: bounded, without links, without what a parser can be made to do."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ddnn_traces.release.verify.result import WrongError
from ddnn_traces.store.places.place import is_safe

#: The descriptions of a release of a thousand runs have some 20 MB.
_LARGEST = 256 << 20
_DEEPEST = 64
#: Objects and lists in a JSON document: a thousand runs' data package has some 300,000. A list takes 60 bytes and more.
_MOST_OBJECTS = 2_000_000
#: Front matter and CITATION.cff do not grow with runs.
_LARGEST_YAML = 1 << 20

#: Longest part of a text of others that a message repeats.
_SHOWN = 160


def shown(value: object) -> str:
    """Something that others wrote, short and on one line."""
    text = " ".join(str(value).split())
    text = "".join(letter if letter.isprintable() else "?" for letter in text)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."


def files(folder: Path) -> Iterator[tuple[str, str]]:
    """Each entry below a folder that is no folder: relative path, and what is wrong with it or ''."""
    for where, folders, names in os.walk(folder):
        for name in sorted([*folders, *names]):
            path = Path(where) / name
            relative = path.relative_to(folder).as_posix()
            kind = path.lstat().st_mode
            if stat.S_ISDIR(kind):
                if not is_safe(relative):
                    yield relative, "has a name that not every system can hold"
            elif stat.S_ISLNK(kind):
                yield relative, "is a link"
            elif not stat.S_ISREG(kind):
                yield relative, "is no plain file"
            else:
                yield relative, "" if is_safe(relative) else "has a name that not every system can hold"


def empty_folders(folder: Path) -> list[str]:
    """Folders in which nothing is, relative."""
    found = [where for where, folders, names in os.walk(folder) if not folders and not names]
    return sorted(Path(where).relative_to(folder).as_posix() for where in found)


def text(path: Path) -> str:
    """A text file. Raises WrongError where it is missing, no UTF-8, a link or too large."""
    try:
        kind = path.lstat()
        if not stat.S_ISREG(kind.st_mode):
            raise WrongError(f"{path.name} is no plain file")
        if kind.st_size > _LARGEST:
            raise WrongError(f"{path.name} has {kind.st_size:,} bytes, which is too many")
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise WrongError(f"{path.name} is missing") from None
    except UnicodeDecodeError as error:
        raise WrongError(f"{path.name} is no UTF-8 text (byte {error.start})") from None
    except OSError as error:
        raise WrongError(f"{path.name} cannot be read ({error.strerror})") from None


def json_document(path: Path) -> dict[str, Any]:
    """A JSON file that holds an object, not too deep. Raises WrongError."""
    content = text(path)
    if content.count("{") + content.count("[") > _MOST_OBJECTS:
        raise WrongError(f"{path.name} has more than {_MOST_OBJECTS:,} objects and lists, which is too many")
    try:
        document = json.loads(content, parse_constant=_no_constant, object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        raise WrongError(f"{path.name} is no sound JSON ({shown(error)})") from None
    if not isinstance(document, dict):
        raise WrongError(f"{path.name} holds no JSON object")
    if _depth(document) > _DEEPEST:
        raise WrongError(f"{path.name} is nested more than {_DEEPEST} deep")
    return document


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON number")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object in which no name stands twice: which one counts, readers do not agree on."""
    made = dict(pairs)
    if len(made) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{next(name for name in names if names.count(name) > 1)!r} stands twice in an object")
    return made


def _depth(document: Any) -> int:
    deep, level = 0, [document]
    while level and deep <= _DEEPEST:
        deep += 1
        values = (value.values() if isinstance(value, dict) else value for value in level)
        level = [item for value in values for item in value if isinstance(item, dict | list)]
    return deep


def yaml_document(content: str, name: str) -> dict[str, Any]:
    """YAML that holds a mapping, without aliases; dates stay text. Raises WrongError, MissingExtra."""
    from ddnn_traces import extras

    yaml = extras.load("yaml")
    if len(content) > _LARGEST_YAML:
        raise WrongError(f"{name} has {len(content):,} characters of YAML, which is too many")
    try:
        _refuse_bombs(yaml, content, name)
        document = yaml.load(content, _loader(yaml))  # a SafeLoader
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise WrongError(f"{name} is no sound YAML ({shown(error)})") from None
    if not isinstance(document, dict):
        raise WrongError(f"{name} holds no YAML mapping")
    return document


def _refuse_bombs(yaml: Any, content: str, name: str) -> None:
    """Raise WrongError for aliases and deep nesting, before more of the text is read than comes up to there."""
    deep = 0
    for event in yaml.parse(content, yaml.SafeLoader):
        if isinstance(event, yaml.AliasEvent):
            raise WrongError(f"{name} has YAML aliases, with which a small file can grow without end")
        deep += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if deep > _DEEPEST:
            raise WrongError(f"{name} has YAML nested more than {_DEEPEST} deep")


def _loader(yaml: Any) -> Any:
    """PyYAML's safe loader, but for dates."""
    resolvers = {
        letter: [(tag, expression) for tag, expression in found if tag != "tag:yaml.org,2002:timestamp"]
        for letter, found in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    return type("Loader", (yaml.SafeLoader,), {"yaml_implicit_resolvers": resolvers})
