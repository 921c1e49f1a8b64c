"""Descriptions against release.json, which was found to be of the real files: they all have to say the same.

What each says is brought to one form first: words (title, version, ...), columns (type and unit by table), rows, and
files (bytes and SHA-256). A description that does not have one of these does not say it.
"""

from __future__ import annotations

import contextlib
import itertools
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from ddnn_traces.release import facts, provenance
from ddnn_traces.release.descriptions import croissant, data_package, shared, writing
from ddnn_traces.release.verify import texts, untrusted
from ddnn_traces.release.verify.examined import Examined
from ddnn_traces.release.verify.result import FAILED, NOT_CHECKED, PASSED, Result, WrongError
from ddnn_traces.release.verify.untrusted import shown
from ddnn_traces.store import layout, schema
from ddnn_traces.text import counted

AGREEMENT = "agreement"

_ASK = "ask whoever published it, or publish the dataset again"
_MOST = 10

#: Column types of schemas/ as the card's front matter names them.
_CARD_TYPES = {"string": "string", "int64": "int64", "float64": "double", "bool": "bool"}


@dataclass
class _Said:
    """What a description says. columns: (type, unit) by (table, column), in order; unit None: not said."""

    words: dict[str, Any] = field(default_factory=dict)
    columns: dict[tuple[str, str], tuple[str, str | None]] | None = None
    rows: dict[str, int] | None = None
    files: Mapping[str, tuple[int | None, str]] | None = None


def check_agreement(examined: Examined) -> Iterator[Result]:
    """Each description says of the release what release.json says."""
    release = examined.told()
    yield from _word_for_word(examined, release)
    for name, read in _READERS.items():
        try:
            said = read(examined)
        except WrongError as wrong:
            yield Result(AGREEMENT, name, FAILED, str(wrong))
            continue
        except (KeyError, IndexError, TypeError, ValueError, AttributeError, StopIteration) as error:
            detail = f"cannot be compared: it does not have the shape of one ({shown(repr(error))}); {_ASK}"
            yield Result(AGREEMENT, name, FAILED, detail)
            continue
        wrong_ones = list(_different(said, release, examined))
        for what in wrong_ones[:_MOST]:
            yield Result(AGREEMENT, name, FAILED, f"{what}; {_ASK}")
        if not wrong_ones:
            parts = [", ".join(said.words)]
            parts += [counted(len(said.columns), "column") + _with_units(said)] if said.columns is not None else []
            parts += ["numbers of rows"] if said.rows is not None else []
            parts += [counted(len(said.files), "file")] if said.files is not None else []
            yield Result(AGREEMENT, name, PASSED, f"says the same of {', '.join(parts)}")


def _word_for_word(examined: Examined, release: facts.Release) -> Iterator[Result]:
    """Each description is what this program makes of release.json, where release.json says that this version did."""
    if release.software != provenance.SOFTWARE:
        detail = f"not compared word for word: made by {shown(release.software)}, this is {provenance.SOFTWARE}"
        yield Result(AGREEMENT, "all descriptions", NOT_CHECKED, detail)
        return
    wrong = False
    for name, right in writing.texts(release).items():
        try:
            text = untrusted.text(examined.content / name)
        except WrongError as error:
            wrong = True
            yield Result(AGREEMENT, name, FAILED, str(error))
            continue
        if text != right:
            wrong = True
            detail = (
                f"is not what {layout.RELEASE} makes of it: {_first_difference(examined, name, text, right)}; {_ASK}"
            )
            yield Result(AGREEMENT, name, FAILED, detail)
    if not wrong:
        detail = f"word for word what this program makes of {layout.RELEASE}"
        yield Result(AGREEMENT, "all descriptions", PASSED, detail)


def _first_difference(examined: Examined, name: str, text: str, right: str) -> str:
    """Where a description begins to differ: by JSON pointer, or by line."""
    if name.endswith(".json"):
        with contextlib.suppress(WrongError):
            pointer = _pointer(examined.document(name), json.loads(right))
            return f"at {shown(pointer or '/')}" if pointer is not None else "written otherwise, with the same values"
    lines = itertools.zip_longest(text.split("\n"), right.split("\n"))
    number, line = next((number, pair[0]) for number, pair in enumerate(lines, 1) if pair[0] != pair[1])
    return f"line {number} is {shown(repr(line))}" if line is not None else f"it ends before line {number}"


def _pointer(there: Any, right: Any) -> str | None:
    """JSON pointer (RFC 6901) of the first value that differs; None where none does."""
    if isinstance(there, dict) and isinstance(right, dict):
        pairs = [(name, there.get(name, ...), right.get(name, ...)) for name in {**right, **there}]
    elif isinstance(there, list) and isinstance(right, list):
        pairs = [(str(i), *pair) for i, pair in enumerate(itertools.zip_longest(there, right, fillvalue=...))]
    else:
        return None if there == right and type(there) is type(right) else ""
    for name, *values in pairs:
        if (inner := _pointer(*values)) is not None:
            return f"/{name.replace('~', '~0').replace('/', '~1')}{inner}"
    return None


def _with_units(said: _Said) -> str:
    return " with units" if any(unit is not None for _, unit in (said.columns or {}).values()) else ""


def _different(said: _Said, release: facts.Release, examined: Examined) -> Iterator[str]:
    right = _right(release)
    for name, value in said.words.items():
        if value != right.words[name]:
            yield f"its {name} is {shown(repr(value))}, {layout.RELEASE} says {shown(repr(right.words[name]))}"
    if said.columns is not None:
        assert right.columns is not None
        if list(said.columns) != list(right.columns):
            odd = [f"{table}.{name}" for table, name in said.columns.keys() ^ right.columns.keys()]
            yield f"it has other columns than the tables ({shown(', '.join(sorted(odd)) or 'in another order')})"
        for key in said.columns.keys() & right.columns.keys():
            (kind, unit), (right_kind, right_unit) = said.columns[key], right.columns[key]
            if kind != right_kind:
                yield f"its column {'.'.join(key)} is {shown(kind)}, that of the tables {right_kind}"
            if unit is not None and unit != right_unit:
                yield f"its column {'.'.join(key)} has the unit {shown(repr(unit))}, that of the tables {right_unit!r}"
    if said.rows is not None and said.rows != right.rows:
        assert right.rows is not None
        names = [name for name in said.rows.keys() | right.rows.keys() if said.rows.get(name) != right.rows.get(name)]
        yield f"it has another number of rows of {shown(', '.join(sorted(names)))}"
    if said.files is not None:
        known = examined.known_files()
        for path in sorted(said.files.keys() | known.keys()):
            if path not in known or path not in said.files:
                yield f"{shown(path)} is in one of it and {layout.RELEASE} only"
                continue
            size, sha256 = said.files[path]
            if sha256 != known[path].sha256 or size not in (None, known[path].bytes):
                yield f"it has another size or SHA-256 of {shown(path)}"


def _right(release: facts.Release) -> _Said:
    about = release.about
    return _Said(
        words={
            "title": about.title,
            "version": about.version,
            "date": about.published,
            "licence": about.licence,
            "creators": [person.name for person in about.creators],
        },
        columns={
            (table.name, column.name): (column.type, column.unit)
            for table in release.tables
            for column in schema.table(table.name).columns
        },
        rows={table.name: table.rows for table in release.tables},
    )


def _croissant(examined: Examined) -> _Said:
    document = examined.document(layout.CROISSANT)
    types = {name: kind for kind, name in croissant.TYPES.items()}
    record_sets = document["recordSet"]
    return _Said(
        {
            "title": document["name"],
            "version": document["version"],
            "date": document["datePublished"],
            "licence": _licence(document["license"]),
            "creators": [person["name"] for person in document["creator"]],
        },
        {
            (record_set["name"], column["name"]): (
                types.get(column["dataType"], column["dataType"]),
                column.get("unitText", ""),
            )
            for record_set in record_sets
            for column in record_set["field"]
        },
        {record_set["name"]: record_set["annotation"]["value"] for record_set in record_sets},
        {
            item["contentUrl"]: (int(item["contentSize"].removesuffix(" B")), item["sha256"])
            for item in document["distribution"]
            if item["@type"] == "cr:FileObject"
        },
    )


def _data_package(examined: Examined) -> _Said:
    document = examined.document(layout.DATA_PACKAGE)
    types = {name: kind for kind, name in data_package.TYPES.items()}
    columns: dict[tuple[str, str], tuple[str, str | None]] = {}
    rows: dict[str, int] = {}
    for resource in document["resources"]:
        rows[resource["table"]] = rows.get(resource["table"], 0) + resource["rows"]
        for column in resource["schema"]["fields"]:
            key = (resource["table"], column["name"])
            said = (types.get(column["type"], column["type"]), column.get("unit", ""))
            if columns.setdefault(key, said) != said:
                raise WrongError(f"its resources of {shown(key[0])} do not agree on {shown(key[1])}; {_ASK}")
    tables = {file.path for table in examined.told().tables for file in table.files}
    files = {r["path"]: (r["sizeInBytes"], r["hash"].removeprefix("sha256:")) for r in document["resources"]}
    files |= {p: (f.bytes, f.sha256) for p, f in examined.known_files().items() if p not in tables}  # no captures in it
    words = {
        "title": document["title"],
        "version": document["version"],
        "date": document["created"].removesuffix("T00:00:00Z"),
        "licence": document["licenses"][0]["name"],
        "creators": [person["title"] for person in document["contributors"] if "creator" in person["roles"]],
    }
    return _Said(words, columns, rows, files)


def _ro_crate(examined: Examined) -> _Said:
    graph = examined.document(layout.RO_CRATE)["@graph"]
    entities = {entity["@id"]: entity for entity in graph}
    root = entities["./"]
    people = root["author"] if isinstance(root["author"], list) else [root["author"]]
    files = {
        unquote(name): (int(entity["contentSize"]), entity["sha256"])
        for name, entity in entities.items()
        if entity["@type"] == "File" and "sha256" in entity
    }
    words = {
        "title": root["name"],
        "version": root["version"],
        "date": root["datePublished"],
        "licence": entities[root["license"]["@id"]]["name"],
        "creators": [entities[person["@id"]]["name"] for person in people],
    }
    return _Said(words, files=files)


def _datacite(examined: Examined) -> _Said:
    document = examined.document(layout.DATACITE)
    right = document["rightsList"][0]
    return _Said(
        {
            "title": document["titles"][0]["title"],
            "version": document["version"],
            "date": next(date["date"] for date in document["dates"] if date["dateType"] == "Issued"),
            "licence": right.get("rightsIdentifier", right["rights"]),
        }
    )


def _citation(examined: Examined) -> _Said:
    document = texts.citation_of(examined)
    said = {"title": document["title"], "version": document["version"], "date": document["date-released"]}
    known = shared.licence_url(examined.told().about.licence) is not None
    return _Said(said | ({"licence": document["license"]} if known else {}))


def _card(examined: Examined) -> _Said:
    front = texts.front_matter(examined)
    columns: dict[tuple[str, str], tuple[str, str | None]] = {
        (table["config_name"], column["name"]): (_CARD_TYPES.get(column["dtype"], column["dtype"]), None)
        for table in front.get("dataset_info", [])
        for column in table["features"]
    }
    return _Said({"title": front["pretty_name"]}, columns)


def _licence(licence: Any) -> Any:
    """SPDX identifier of a licence's address, else the name of one of the publisher's own."""
    if isinstance(licence, dict):
        return licence["name"]
    return licence.removeprefix("https://spdx.org/licenses/")


_READERS: dict[str, Callable[[Examined], _Said]] = {
    layout.CROISSANT: _croissant,
    layout.DATA_PACKAGE: _data_package,
    layout.RO_CRATE: _ro_crate,
    layout.DATACITE: _datacite,
    layout.CITATION: _citation,
    layout.CARD: _card,
}
