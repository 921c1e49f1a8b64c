"""What the publisher says of a release: release.toml and the options of the command line, which win.

What is known of a key (its type, what it may be) is in schemas/documents/release.json, under `about`.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import tomllib
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from functools import cache
from pathlib import Path
from typing import Any

from ddnn_traces.errors import UsageError
from ddnn_traces.release import facts
from ddnn_traces.store import schema
from ddnn_traces.text import nearest, without_bidi

Told = dict[str, Any]

#: A licence of the user's own, by SPDX's rules for such.
OWN_LICENCE = "LicenseRef-of-this-release"

#: What nobody can make up: key, what it is, how to give it.
_NEEDED = (
    ("title", "the release needs a title: what is it called?", '--title "Packet traces of ..."'),
    (
        "licence",
        "the release needs a licence, an SPDX identifier: what may others do with it? CC-BY-4.0 asks them to name you",
        "--licence CC-BY-4.0, or --licence-file FILE",
    ),
    ("creators", "the release needs a creator: who made the data?", '--creator "Ada Example <0000-0002-1825-0097>"'),
)

#: The publisher's words that have lines; everything else is one line.
_WORDS = ("motivation", "collection", "uses", "limitations", "sensitive")

_PERSON = re.compile(r"(?P<name>[^<>]+?)\s*(?:<(?:https?://orcid\.org/)?(?P<orcid>[^<>]+)>)?")
_RESOLVER = re.compile(r"^(https?://(dx\.)?doi\.org/|doi:)", re.IGNORECASE)

TEMPLATE = """\
# What a release says of itself: ddnn-traces publish DATASET --about release.toml --out RELEASE
# Options of the command line win over this file. What begins with # is not said.

title = "Packet traces of distributed training on ..."
licence = "CC-BY-4.0"  # an SPDX identifier; another licence: --licence-file FILE
# description = "One paragraph: what was trained, on what, what was captured."
# keywords = ["distributed training", "all-reduce", "packet traces"]
# version = "1.0.0"  # semantic; without it, 1.0.0 or what follows from the changes since --previous
# published = "2026-01-31"
# publisher = "Example University"
# doi = "10.5281/zenodo.0000000"
# url = "https://example.org/traces"  # where the release will be found
# contact = "traces@example.org"
# funding = ["Example Foundation, grant 42"]

[[creators]]
name = "Ada Example"
# orcid = "0000-0002-1825-0097"
# affiliation = "Example University"

# [[papers]]  # to be cited with the data
# title = "On the traffic of training"
# authors = "A. Example, B. Example"
# year = 2026
# doi = "10.0000/example"

# The publisher's own words in the datasheet, Markdown; what is not said, the datasheet says is not said:
# motivation = "Why the data was made."
# collection = "How: machines, network, software, who ran it."
# uses = "What it is good for, and what not."
# limitations = "What it does not show."
# sensitive = "Whether people or secrets are in it."
"""


def read(path: Path | None, options: Mapping[str, Any]) -> Told:
    """What the file and the options say (None, empty or blank: nothing), keys as in facts.About. Raises UsageError.

    options: creators as "NAME" or "NAME <ORCID>"; licence_file, a Path, stands for licence and its text.
    """
    told: Told = {} if path is None else _folded(_read_file(path))
    given = _folded(options)
    if creators := given.pop("creators", None):
        given["creators"] = [_person(text) for text in creators]
    if file := given.pop("licence_file", None):
        given |= {"licence": given.get("licence") or OWN_LICENCE, "licence_text": _text_of(file)}
    told |= given
    _normalise(told)
    _check(told, str(path) if path else "")
    return told


def complete(told: Told, ask: Callable[[str], str] | None = None) -> Told:
    """The same with what is missing asked for. ask: puts a question to the user; None: UsageError says what is missing.

    Raises UsageError also for a licence that is not known.
    """
    told = dict(told)
    missing = []
    for key, question, option in _NEEDED:
        if not told.get(key):
            if answer := _line(ask(question)) if ask else "":
                told[key] = [_person(answer)] if key == "creators" else answer
                _check(told, "")
            else:
                missing.append(f"no {key}: {question.partition(':')[0]} ({option})")
    if missing:
        raise UsageError("; ".join(missing) + "; give it so, or in release.toml")
    told["licence"] = _known_licence(told)
    return told


def about(told: Mapping[str, Any], version: str, published: str) -> facts.About:
    """facts.About of what was told; version and published where it does not say them."""
    known = dict(told)
    known["creators"] = tuple(facts.Person(**person) for person in known["creators"])
    known["papers"] = tuple(facts.Publication(**paper) for paper in known.get("papers", ()))
    known |= {name: tuple(known[name]) for name in ("keywords", "funding") if name in known}
    return facts.About(**{"version": version, "published": published} | known)


def today() -> str:
    """The date of publication where nothing is said: SOURCE_DATE_EPOCH (reproducible-builds.org), else today, UTC."""
    epoch = os.environ.get("SOURCE_DATE_EPOCH", "").strip()
    if not epoch:
        return datetime.now(UTC).date().isoformat()
    try:
        return datetime.fromtimestamp(int(epoch), UTC).date().isoformat()
    except (ValueError, OverflowError, OSError) as error:
        raise UsageError(
            f"SOURCE_DATE_EPOCH={epoch}: not seconds since the epoch; unset it, or give --date YYYY-MM-DD"
        ) from error


def _read_file(path: Path) -> Told:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise UsageError(f"{path}: cannot be read ({reason}); 'ddnn-traces publish --template' prints one") from error
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path}: no TOML ({error}); mend that line") from error


def _text_of(file: Path) -> str:
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise UsageError(f"{file}: the licence cannot be read ({reason}); check the path") from error
    if not text.strip():
        raise UsageError(f"{file}: the licence is empty; name a file with its text")
    return text


def _person(text: str) -> Told:
    found = _PERSON.fullmatch(text.strip())
    if not found:
        raise UsageError(f"--creator {text}: write it as NAME or as NAME <ORCID>")
    return {name: value.strip() for name, value in found.groupdict().items() if value}


def _line(text: str) -> str:
    """Text as one line: what is no letter, line ends too, is a blank, and there are no two of them in a row."""
    return " ".join("".join(letter if letter.isprintable() else " " for letter in without_bidi(text)).split())


def _lines(text: str) -> str:
    """Text whose lines stay, with blanks for what is neither a letter nor a tab."""
    lines = ("".join(letter if letter.isprintable() or letter == "\t" else " " for letter in line)
             for line in without_bidi(text).splitlines())  # fmt: skip
    return "\n".join(line.rstrip() for line in lines).strip("\n")


def _folded(said: Mapping[str, Any]) -> Told:
    """All texts as every description can have them, and without what says nothing."""
    folded = {
        name: value if name == "licence_text" else _fold(value, _lines if name in _WORDS else _line)
        for name, value in said.items()
    }
    return {name: value for name, value in folded.items() if value not in (None, (), [], "")}


def _fold(value: Any, fold: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return fold(value)
    if isinstance(value, dict):
        return _folded(value)
    if isinstance(value, list | tuple):
        return [entry for entry in (_fold(entry, fold) for entry in value) if entry != ""]
    return value


def _normalise(told: Told) -> None:
    """Dates as text, identifiers without the address of their resolver."""
    if isinstance(told.get("published"), date):
        told["published"] = told["published"].isoformat()
    for entry in (told, *_tables(told.get("papers"))):
        if isinstance(entry.get("doi"), str):
            entry["doi"] = _RESOLVER.sub("", entry["doi"].strip())
    for person in _tables(told.get("creators")):
        if isinstance(person.get("orcid"), str):
            person["orcid"] = person["orcid"].strip().rpartition("/")[2]


def _tables(value: Any) -> list[Told]:
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


@cache
def _about_schema() -> Told:
    path = schema.shipped_folder("schemas") / "documents" / "release.json"
    found: Told = json.loads(path.read_text(encoding="utf-8"))["properties"]["about"]
    return found


def _check(told: Told, file: str) -> None:
    """Raise UsageError for a key that is none, or a value that cannot be."""
    import jsonschema

    where = f"{file}: " if file else ""
    rules = _about_schema()
    _check_keys(told, facts.About, where)
    for name, kind in (("creators", facts.Person), ("papers", facts.Publication)):
        for entry in _tables(told.get(name)):
            _check_keys(entry, kind, f"{where}[[{name}]] ")
    for name, value in told.items():
        loose = _without_required(rules["properties"][name])
        error = jsonschema.exceptions.best_match(jsonschema.Draft202012Validator(loose).iter_errors(value))
        if error is not None:
            place = ".".join([name, *map(str, error.absolute_path)])
            said = json.dumps(error.instance, ensure_ascii=False, default=str)[:80]
            raise UsageError(f"{where}{place}: {said} is not: {error.schema.get('description', error.message)}")
    for number, person in enumerate(_tables(told.get("creators")), start=1):
        if not person.get("name"):
            raise UsageError(f"{where}creator {number} has no name; every [[creators]] needs one")
    for number, paper in enumerate(_tables(told.get("papers")), start=1):
        if not paper.get("title"):
            raise UsageError(f"{where}paper {number} has no title; every [[papers]] needs one")
    _check_date(told.get("published"), where)


def _check_keys(told: Told, kind: Any, where: str) -> None:
    known = [field.name for field in dataclasses.fields(kind)]
    for key in told:
        if key not in known:
            raise UsageError(f"{where}there is no key {key}; {nearest(key, known)}")


def _without_required(rules: Told) -> Told:
    """Rules of an array whose entries may leave keys out: facts fills them in."""
    if "items" in rules and "required" in rules["items"]:
        return rules | {"items": {k: v for k, v in rules["items"].items() if k != "required"}}
    return rules


def _check_date(published: str | None, where: str) -> None:
    if published is not None:
        try:
            date.fromisoformat(published)
        except ValueError as error:
            raise UsageError(f"{where}published: {published} is no day of the calendar; write YYYY-MM-DD") from error


def _known_licence(told: Told) -> str:
    """The licence's identifier, known ones written as SPDX writes them (it takes them in any case)."""
    from ddnn_traces.release.descriptions import citation

    said: str = told["licence"]
    known = citation.known_licences()
    if not told.get("licence_text") and said.lower() not in map(str.lower, known):
        raise UsageError(
            f"{said}: no licence whose text is known here (give the text of another one with --licence-file FILE); "
            f"{nearest(said, known)}"
        )
    return next((name for name in known if name.lower() == said.lower()), said)
