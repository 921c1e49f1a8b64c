"""The publisher's statements on a release: release.toml and the options of the command line, which win.

The rules of each key (type, valid values) are in schemas/documents/release.json, under `about`.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from ddnn_traces.errors import LeakError, UsageError
from ddnn_traces.release import facts
from ddnn_traces.release.anonymise import words
from ddnn_traces.text import nearest, one_line, without_bidi
from ddnn_traces.text_files import MOST_DOCUMENT, is_missing, read_text, read_toml

Statements = dict[str, Any]

#: Identifier of a licence that is not in SPDX's list, by SPDX's rules.
OWN_LICENCE = "LicenseRef-of-this-release"

#: Keys without a default: key, question, how to give it.
_NEEDED = (
    ("title", "the release needs a title: what is it called?", "--title TITLE"),
    (
        "licence",
        "the release needs a licence, an SPDX identifier: what may others do with it? CC-BY-4.0 asks them to name you",
        "--licence CC-BY-4.0, or --licence-file FILE",
    ),
    ("creators", "the release needs a creator: who made the data?", '--creator "NAME <ORCID>"'),
)

#: Characters of a placeholder that a message shows.
_MOST_SHOWN = 60

#: Keys of texts with several lines; all others are one line.
_TEXTS = ("motivation", "collection", "uses", "limitations", "sensitive")

_PERSON = re.compile(r"(?P<name>[^<>]+?)\s*(?:<(?:https?://orcid\.org/)?(?P<orcid>[^<>]+)>)?")
_RESOLVER = re.compile(r"^(https?://(dx\.)?doi\.org/|doi:)", re.IGNORECASE)

TEMPLATE = """\
# Statements on a release: ddnn-traces publish DATASET --about release.toml --out RELEASE
# Options of the command line win over this file. Lines that begin with # are comments. Replace the values: publish
# refuses those that are still examples.

title = "Packet traces of distributed training on ..."
licence = "CC-BY-4.0"  # an SPDX identifier; another licence: --licence-file FILE
# description = "One paragraph: what was trained, on what, what was captured."
# keywords = ["distributed training", "all-reduce", "packet traces"]
# version = "1.0.0"  # semantic; without it, 1.0.0 or what follows from the changes since --previous
# published = "2026-01-31"
# publisher = "Example University"
# doi = "10.5281/zenodo.0000000"
# url = "https://example.org/traces"  # where the release will be found
# files_url = "https://example.org/traces/1.0.0"  # the folder of its files there, if not url; "." where it has none
# contact = "traces@example.org"
# funding = ["Example Foundation, grant 42"]

# The publisher's own words in the datasheet, Markdown; the datasheet names each text that is missing:
# motivation = "Why the data was made."
# collection = "How: machines, network, software, who ran it."
# uses = "What it is good for, and what not."
# limitations = "What it does not show."
# sensitive = "Whether people or secrets are in it."

# claims_time = "2 min on 2 cores"  # of ddnn-traces claims, as you measured it; stands in ARTIFACT.md

[[creators]]
name = "Ada Example"
# orcid = "0000-0000-0000-0000"
# affiliation = "Example University"
# organisation = false  # true: a group or institution, whose name is not split into given and family name

# [[papers]]  # to be cited with the data
# title = "On the traffic of training"
# authors = "A. Example, B. Example"
# year = 2026
# doi = "10.0000/example"
"""


def read(path: Path | None, options: Mapping[str, Any]) -> Statements:
    """The statements of the file and the options, keys as in facts.About; None, empty and blank ones are left out.

    options: creators as "NAME" or "NAME <ORCID>"; licence_file, a Path, stands for licence and its text. Raises
    UsageError.
    """
    stated: Statements = {} if path is None else _cleaned(_read_file(path))
    given = _cleaned(options)
    if creators := given.pop("creators", None):
        given["creators"] = [_person(text) for text in creators]
    if file := given.pop("licence_file", None):
        given |= {"licence": given.get("licence") or OWN_LICENCE, "licence_text": _licence_text(file)}
    stated |= given
    _normalise(stated)
    _check(stated, str(path) if path else "")
    return stated


def complete(stated: Statements, ask: Callable[[str], str] | None = None) -> Statements:
    """The statements with the missing ones, which the user is asked for. Raises UsageError.

    ask: puts a question to the user; None: the error lists what is missing.
    """
    stated = dict(stated)
    missing = []
    for key, question, option in _NEEDED:
        if not stated.get(key):
            if answer := _line(ask(question)) if ask else "":
                stated[key] = [_person(answer)] if key == "creators" else answer
                _check(stated, "")
            else:
                missing.append(f"no {key}: {question.partition(':')[0]} ({option})")
    if missing:
        raise UsageError("; ".join(missing) + "; give it so, or in release.toml")
    stated["licence"] = _known_licence(stated)
    return stated


#: Statements in sentences, which are searched for words that may identify.
_PROSE = ("title", "description", "keywords", "motivation", "collection", "uses", "limitations", "sensitive",
          "claims", "claims_time")  # fmt: skip


def refuse_unknown_words(stated: Mapping[str, Any], allowed: Iterable[str], only_known: bool) -> None:
    """Raise LeakError naming every word of the sentences that is no plain word and in no vocabulary.

    allowed: words that the publisher confirms. only_known: a plain word has to be one that this program uses itself.
    """
    people = intended(stated)
    published = [day] if (day := stated.get("published")) else []  # which the release states anyway
    confirmed = [*allowed, *people, *(word for text in people for word in text.split()), *published]
    known = words.own_words() if only_known else None
    found = [
        f"{key}: {words.shown(word)}"
        for key, text in _texts({name: stated[name] for name in _PROSE if name in stated})
        for word in words.unknown_in_prose(text, confirmed, known)
    ]
    if found:
        raise LeakError(
            "not published: the description has what is no plain word, and may identify a host, a user, a place or a "
            "time:\n  " + "\n  ".join(found) + "\nwrite it in other words, or confirm each one with --allow WORD"
        )


def refuse_unknown_names(claims: Mapping[str, Sequence[str]], allowed: Iterable[str]) -> None:
    """Raise LeakError naming a claim with a name that has an unknown word. claims: names that each has."""
    confirmed = list(allowed)
    for claim, names in claims.items():
        for name in names:
            if spans := words.unknown(name, (), confirmed):
                start, end = spans[0]
                raise LeakError(
                    f"not published: the claim {claim!r} has {words.shown(name[start:end])!r}, which is in no "
                    "vocabulary; name runs as the release does, or confirm the word with --allow WORD"
                )


def intended(stated: Mapping[str, Any]) -> list[str]:
    """Names and addresses of people and institutes, which are published on purpose."""
    people = [text for person in stated.get("creators", ()) for text in (person.get("name"), person.get("affiliation"))]
    papers = [text for paper in stated.get("papers", ()) for text in (paper.get("authors"), paper.get("url"))]
    found = [*people, *(stated.get(name) for name in ("publisher", "url", "contact")), *papers]
    return [text for text in found if text]


def about(stated: Mapping[str, Any], version: str, published: str) -> facts.About:
    """The statements as facts.About. version, published: for those without."""
    return facts.about({"version": version, "published": published, **stated})


def today() -> str:
    """The default date of publication: SOURCE_DATE_EPOCH (reproducible-builds.org), else today, UTC.

    Raises UsageError for a SOURCE_DATE_EPOCH that is no time.
    """
    epoch = os.environ.get("SOURCE_DATE_EPOCH", "").strip()
    if not epoch:
        return datetime.now(UTC).date().isoformat()
    try:
        return datetime.fromtimestamp(int(epoch), UTC).date().isoformat()
    except (ValueError, OverflowError, OSError) as error:
        raise UsageError(
            f"SOURCE_DATE_EPOCH={epoch}: not seconds since the epoch; unset it, or give --date YYYY-MM-DD"
        ) from error


def _read_file(path: Path) -> Statements:
    if is_missing(path):
        raise UsageError(f"{path}: there is no such file; 'ddnn-traces publish --template' prints one")
    return read_toml(path, UsageError)


def _licence_text(file: Path) -> str:
    text = read_text(file, MOST_DOCUMENT, UsageError)
    if not text.strip():
        raise UsageError(f"{file}: the licence is empty; name a file with its text")
    return text


def _person(text: str) -> Statements:
    found = _PERSON.fullmatch(text.strip())
    if not found:
        raise UsageError(f"--creator {text}: write it as NAME or as NAME <ORCID>")
    return {name: value.strip() for name, value in found.groupdict().items() if value}


def _line(text: str) -> str:
    return one_line(without_bidi(text))


def _lines(text: str) -> str:
    """Text with its lines; characters that cannot be printed, but for tabs, are blanks."""
    lines = ("".join(letter if letter.isprintable() or letter == "\t" else " " for letter in line)
             for line in without_bidi(text).splitlines())  # fmt: skip
    return "\n".join(line.rstrip() for line in lines).strip("\n")


def _cleaned(values: Mapping[str, Any]) -> Statements:
    """All texts as every description can hold them, without empty values."""
    cleaned = {
        name: value if name == "licence_text" else _clean(value, _lines if name in _TEXTS else _line)
        for name, value in values.items()
    }
    return {name: value for name, value in cleaned.items() if value not in (None, (), [], "")}


def _clean(value: Any, clean: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, dict):
        return _cleaned(value)
    if isinstance(value, list | tuple):
        return [entry for entry in (_clean(entry, clean) for entry in value) if entry != ""]
    return value


def _normalise(stated: Statements) -> None:
    """Dates as text, identifiers without the address of their resolver."""
    if isinstance(stated.get("published"), date):
        stated["published"] = stated["published"].isoformat()
    for entry in (stated, *_tables(stated.get("papers"))):
        if isinstance(entry.get("doi"), str):
            entry["doi"] = _RESOLVER.sub("", entry["doi"].strip())
    for person in _tables(stated.get("creators")):
        if isinstance(person.get("orcid"), str):
            person["orcid"] = person["orcid"].strip().rpartition("/")[2]


def _tables(value: Any) -> list[Statements]:
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def _check(stated: Statements, file: str) -> None:
    """Raise UsageError for an unknown key or an invalid value."""
    import jsonschema

    where = f"{file}: " if file else ""
    rules = facts.rules()["properties"]["about"]["properties"]
    _check_keys(stated, facts.About, where)
    for name, kind in (("creators", facts.Person), ("papers", facts.Publication)):
        for entry in _tables(stated.get(name)):
            _check_keys(entry, kind, f"{where}[[{name}]] ")
    for name, value in stated.items():
        loose = dict(rules[name])
        if "items" in loose:  # entries may leave keys out: facts fills them in
            loose["items"] = {key: rule for key, rule in loose["items"].items() if key != "required"}
        error = jsonschema.exceptions.best_match(jsonschema.Draft202012Validator(loose).iter_errors(value))
        if error is not None:
            place = ".".join([name, *map(str, error.absolute_path)])
            given = json.dumps(error.instance, ensure_ascii=False, default=str)[:80]
            raise UsageError(f"{where}{place}: {given} is not: {error.schema.get('description', error.message)}")
    for tables, one, key in (("creators", "creator", "name"), ("papers", "paper", "title")):
        for number, entry in enumerate(_tables(stated.get(tables)), start=1):
            if not entry.get(key):
                raise UsageError(f"{where}{one} {number} has no {key}; every [[{tables}]] needs one")
    if (published := stated.get("published")) is not None:
        try:
            date.fromisoformat(published)
        except ValueError as error:
            raise UsageError(f"{where}published: {published} is not a day of the calendar; write YYYY-MM-DD") from error
    _refuse_placeholders(stated, where, rules)


def _refuse_placeholders(stated: Statements, where: str, rules: Mapping[str, Any]) -> None:
    """Raise UsageError naming every statement that is an example or still to be written, and what to write there."""
    options = {name: f", here or with {option}" for name, _, option in _NEEDED}
    found = []
    for key, text, why in placeholders(stated):
        first, _, second = key.partition(".")
        rule = rules[first]["items"]["properties"][second] if second else rules[first].get("items", rules[first])
        needed = second in ("", "name") and options.get(first)
        shown = text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."
        found.append(
            f"{key} = {json.dumps(shown, ensure_ascii=False)}: {why}; write your own ({rule['description']})"
            f"{needed or ', or leave the key out'}"
        )
    if found:
        raise UsageError(where + "; ".join(found))


def _check_keys(stated: Statements, kind: Any, where: str) -> None:
    known = [field.name for field in dataclasses.fields(kind)]
    for key in stated:
        if key not in known:
            raise UsageError(f"{where}unknown key {key}; {nearest(key, known)}")


def _known_licence(stated: Statements) -> str:
    """The licence's identifier, known ones written as SPDX writes them (it takes them in any case)."""
    from ddnn_traces.release.descriptions import citation

    given: str = stated["licence"]
    known = citation.known_licences()
    if not stated.get("licence_text") and given.lower() not in map(str.lower, known):
        raise UsageError(
            f"{given}: not a licence whose text is known here (give the text of another one with --licence-file FILE); "
            f"{nearest(given, known)}"
        )
    return next((name for name in known if name.lower() == given.lower()), given)


# --- statements that nobody made: examples of the template, words that stand for a value still to be written

#: Values of the template that are good as they are.
_MEANT = frozenset({"licence", "keywords", "version", "published", "papers.year"})

#: Other people's words: they may hold what would be a placeholder in the publisher's own.
_OTHERS = frozenset({"papers.title", "papers.authors", "licence_text"})

#: One line each, which no author ends with an ellipsis.
_NAMES = frozenset({"title", "keywords", "publisher", "contact", "funding", "creators.name", "creators.affiliation"})

#: Instead of a whole value.
_WORDS = frozenset(
    {"todo", "to do", "fixme", "xxx", "tbd", "tba", "tbc", "change me", "changeme", "fill in", "placeholder",
     "untitled", "lorem ipsum", "title", "name", "your name", "firstname lastname", "first name last name",
     "given family", "name <orcid>", "orcid", "doi", "url", "contact", "publisher", "description", "affiliation"}
)  # fmt: skip
#: In a value.
_MARK = re.compile(r"\b(?:TODO|FIXME|TBD|CHANGEME)\b|\bXXX+\b")
_BRACKETS = re.compile(r"<[^<>]+>|\[[^\[\]]+\]|\{+[^{}]+\}+")
_BLANK = re.compile(r"[<\[{](?:your|insert)\b[^<>\[\]{}]*[>\]}]", re.IGNORECASE)
_BLANK_NAME = re.compile(
    r"<(?:title|name|year|dataset|model|framework|institution|university|organi[sz]ation)>", re.IGNORECASE
)
_ELLIPSIS = re.compile(r"(?:\.\.\.|\u2026)[\s)\]}>\"']*$")
#: Of RFC 2606 and IANA: no page or mailbox is there.
_NOBODYS = re.compile(r"(?:^|[.@])(?:example(?:\.(?:com|edu|net|org))?|invalid|test)$", re.IGNORECASE)
_DOI = re.compile(r"10\.(?:0000|1234|x+)/|10\.\d+/zenodo\.(?:0+|x+|1234567)$|10\.1000/xyz123$", re.IGNORECASE)


def placeholders(stated: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """The statements that are placeholders: the key with dots ("creators.name"), the text, what it is.

    stated: as in facts.About.
    """
    examples = _examples()
    return [
        (key, text, why) for key, text in _texts(stated) if (why := _why(key, text, examples.get(key, frozenset())))
    ]


def _why(key: str, text: str, examples: frozenset[str]) -> str | None:
    """What makes a text a placeholder; None for a statement."""
    plain = _plain(text)
    if key not in _MEANT and plain in examples:
        return "the template's own example"
    if key == "files_url" and text == ".":
        return None
    if not any(map(str.isalnum, text)) or plain.strip("<>[]{}.!?: ") in _WORDS or _BRACKETS.fullmatch(text.strip()):
        return "a placeholder"
    if key not in _OTHERS and (mark := _MARK.search(text) or _BLANK.search(text)):
        return f"not finished ({mark[0]})"
    if key in _NAMES and (mark := _BLANK_NAME.search(text) or _ELLIPSIS.search(text)):
        return f"not finished ({mark[0]})"
    return _wrong_identifier(key, text)


def _wrong_identifier(key: str, text: str) -> str | None:
    if key.endswith("orcid") and not _is_orcid(text):
        return "not the ORCID of anybody: its last digit does not follow from the others"
    if key.endswith("doi") and _DOI.match(text):
        return "an example of a DOI"
    if key.endswith("url") and _NOBODYS.search(_host(text)):
        return "an address for examples"
    if key == "contact" and any(_NOBODYS.search(word) for word in _hosts(text)):
        return "an address for examples"
    return None


def _hosts(text: str) -> Iterator[str]:
    """Names of hosts in mail and web addresses."""
    for word in re.split(r"[\s<>()\[\],;]+", text):
        if "@" in word:
            yield word.rpartition("@")[2]
        elif "://" in word:
            yield _host(word)


def _host(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def _is_orcid(text: str) -> bool:
    """Whether the last digit is right (ISO 7064, MOD 11-2)."""
    total = 0
    for digit in text.replace("-", "")[:-1]:
        total = (total + int(digit)) * 2
    return text[-1] == "0123456789X"[(12 - total % 11) % 11]


def _texts(values: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """Every text with its key; those of a list have the list's."""
    if isinstance(values, Mapping):
        for name, value in values.items():
            yield from _texts(value, f"{key}.{name}" if key else str(name))
    elif isinstance(values, list | tuple):
        for value in values:
            yield from _texts(value, key)
    elif isinstance(values, str):
        yield key, values


def _plain(text: str) -> str:
    return " ".join(text.casefold().split())


@cache
def _examples() -> dict[str, frozenset[str]]:
    """The template's texts by key, those in comments, too."""
    values = tomllib.loads(re.sub(r"(?m)^# (?=\w+ = |\[\[)", "", TEMPLATE))
    keys: dict[str, frozenset[str]] = {}
    for key, text in _texts(values):
        keys[key] = keys.get(key, frozenset()) | {_plain(text)}
    return keys
