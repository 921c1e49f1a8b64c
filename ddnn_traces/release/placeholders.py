"""Statements that nobody made: examples of the template, and the words that stand for a value still to be written."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any
from urllib.parse import urlsplit

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


def found(stated: Mapping[str, Any], template: str) -> list[tuple[str, str, str]]:
    """The statements that are placeholders: the key with dots ("creators.name"), the text, what it is.

    stated: as in facts.About. template: release.toml with examples, those of optional keys in comments.
    """
    examples = _examples(template)
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
def _examples(template: str) -> dict[str, frozenset[str]]:
    """The template's texts by key, those in comments, too."""
    values = tomllib.loads(re.sub(r"(?m)^# (?=\w+ = |\[\[)", "", template))
    keys: dict[str, frozenset[str]] = {}
    for key, text in _texts(values):
        keys[key] = keys.get(key, frozenset()) | {_plain(text)}
    return keys
