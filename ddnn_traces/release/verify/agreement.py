"""Descriptions against release.json, which was found to be of the real files, and against schemas/.

What a description must state is computed here: no maker of descriptions is asked, so that its mistakes are found. These
values must be equal, as far as a format has them: title, version, date, licence, creators, columns with type, unit and
meaning, numbers of rows, steps of the provenance, and files with size and SHA-256.

The caller may name the maker as well (`Examined.maker`). Where this version published the release, each description
must then be the same text, which finds what was changed afterwards and has no value of its own.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import pkgutil
import re
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import unquote

from ddnn_traces.release import facts
from ddnn_traces.release.verify.description_checks import front_matter, labels, record_sets
from ddnn_traces.release.verify.examined import (
    ASK,
    Examined,
    Finding,
    WrongError,
    failed,
    not_checked,
    parse_json,
    parse_yaml,
    passed,
    shown,
    unless,
)
from ddnn_traces.store import layout, schema
from ddnn_traces.text import counted

_MOST = 10


def check_agreement(examined: Examined) -> Iterator[Finding]:
    """Each description has the values of release.json and schemas/, and the words of its maker, where that is named."""
    release = examined.release
    if examined.maker and release.software == facts.SOFTWARE:
        made = pkgutil.resolve_name(examined.maker)(release)
        detail = f"word for word what this program makes of {layout.RELEASE}"
        yield from unless(_other_texts(examined, made), passed("all descriptions", detail))
    elif examined.maker:
        detail = f"not compared word for word: made by {shown(release.software)}, this is {facts.SOFTWARE}"
        yield not_checked("all descriptions", detail)
    for name in _READERS:
        yield from _compare_values(examined, name)


def _other_texts(examined: Examined, made: dict[str, str]) -> Iterator[Finding]:
    for name, expected in made.items():
        try:
            text = examined.text(name)
            # places of labels in a drawing depend on the fonts of the machine that drew it
            if text != expected and not (name == layout.FIGURE and labels(text) == labels(expected)):
                difference = _first_difference(name, text, expected)
                yield failed(name, f"is not what {layout.RELEASE} makes of it: {difference}; {ASK}")
        except WrongError as error:
            yield failed(name, str(error))


def _first_difference(name: str, text: str, right: str) -> str:
    """The first difference of two texts: by JSON pointer, or by line."""
    if name.endswith(".json"):
        with contextlib.suppress(WrongError):
            pointer = _pointer(parse_json(text, name), json.loads(right))
            return f"at {shown(pointer or '/')}" if pointer is not None else "the same values in another form"
    lines = itertools.zip_longest(text.split("\n"), right.split("\n"))
    number, line = next((number, pair[0]) for number, pair in enumerate(lines, 1) if pair[0] != pair[1])
    return f"line {number} is {shown(repr(line))}" if line is not None else f"it ends before line {number}"


def _pointer(present: Any, right: Any) -> str | None:
    """JSON pointer (RFC 6901) of the first value that differs; None where all are equal."""
    if isinstance(present, dict) and isinstance(right, dict):
        pairs = [(name, present.get(name, ...), right.get(name, ...)) for name in {**right, **present}]
    elif isinstance(present, list) and isinstance(right, list):
        pairs = [(str(i), *pair) for i, pair in enumerate(itertools.zip_longest(present, right, fillvalue=...))]
    else:
        return None if present == right and type(present) is type(right) else ""
    for name, *values in pairs:
        if (inner := _pointer(*values)) is not None:
            return f"/{name.replace('~', '~0').replace('/', '~1')}{inner}"
    return None


def _compare_values(examined: Examined, name: str) -> Iterator[Finding]:
    parse, read = _READERS[name]
    try:
        present, expected = read(parse(examined.text(name), name), examined.release)
    except WrongError as wrong:
        yield failed(name, str(wrong))
        return
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, StopIteration) as error:
        detail = f"cannot be compared: its structure is not that of a {name} ({shown(repr(error))}); {ASK}"
        yield failed(name, detail)
        return
    columns = [[key for key in values if key.startswith("column ")] for values in (present, expected)]
    wrong_ones = [
        f"its {shown(key)} is {shown(repr(found))}, {layout.RELEASE} makes it {shown(repr(right))}"
        for key in {**expected, **present}
        if (found := present.get(key, "absent")) != (right := expected.get(key, "absent"))
    ]
    if not wrong_ones and columns[0] != columns[1]:
        wrong_ones = ["its columns are in another order than those of the tables"]
    right_ones = passed(name, f"{counted(len(present), 'value')} as {layout.RELEASE} makes them")
    yield from unless((failed(name, f"{what}; {ASK}") for what in wrong_ones[:_MOST]), right_ones)


# --- the values of each format: those that it states, and those that it must state

_Document = dict[str, Any]
_Values = tuple[_Document, _Document]


def _right(release: facts.Release, people: Callable[[str], Any] = str) -> _Document:
    """What every format states. people: brings a name into the form in which it is compared."""
    about = release.about
    creators = [people(person.name) for person in about.creators]
    stated = {"title": about.title, "version": about.version, "date": about.published}
    return stated | {"licence": about.licence, "creators": creators}


def _words(name: str) -> list[str]:
    """The words of a name in any order: formats write Family, Given."""
    return sorted(re.findall(r"\w+", name))


def _licence(address: str) -> str:
    """The SPDX identifier in the address of a licence."""
    return address.removeprefix("https://spdx.org/licenses/")


def _columns(tables: dict[str, str], kind: str) -> _Document:
    """Type, unit and text of each column. tables: by the names that the format gives them. kind: of schema.Type."""
    return {
        f"column {name}.{column.name}": (getattr(column.types, kind), column.unit, "")
        for name, table in tables.items()
        for column in schema.table(table).columns
    }


def _column(table: str, name: str, kind: str, unit: str, text: str) -> tuple[str, str, str]:
    """A column as found; its text only where it lacks the meaning, source or inaccuracy that schemas/ have."""
    known = next((column for column in schema.table(table).columns if column.name == name), None)
    has_all = known is not None and all(
        part[1:] in text for part in (known.meaning, known.source, known.inaccuracy)
    )  # the first letter may be a capital
    return kind, unit, "" if has_all else text


def _rows(release: facts.Release) -> _Document:
    return {f"number of rows of {table.name}": table.rows for table in release.tables}


def _files(release: facts.Release, size: str = "{}", digest: str = "{}") -> _Document:
    """Size and SHA-256 of each file, as the format writes them."""
    return {f"file {file.path}": (size.format(file.bytes), digest.format(file.sha256)) for file in release.files}


#: The record set of the splits, and the terms of the specification for them.
SPLITS = "splits"
_SPLIT_TERMS = {"train": "cr:TrainingSplit", "validation": "cr:ValidationSplit", "test": "cr:TestSplit"}


def _croissant(document: _Document, release: facts.Release) -> _Values:
    tables = {name: table.name for name, (table, _) in record_sets(document, release).items()}
    sets = [one for one in document["recordSet"] if one["@id"] != SPLITS]
    rows: Counter[str] = Counter()
    for one in sets:
        rows[f"number of rows of {tables.get(one['name'], one['name'])}"] += one["annotation"]["value"]
    licence = document["license"]
    found = {
        "title": document["name"],
        "version": document["version"],
        "date": document["datePublished"],
        "licence": licence["name"] if isinstance(licence, dict) else _licence(licence),
        "creators": [person["name"] for person in document["creator"]],
        "splits": [[*row.values()] for one in document["recordSet"] if one["@id"] == SPLITS for row in one["data"]],
        "steps": [step["prov:label"] for step in document.get("prov:wasGeneratedBy", [])],
        "originals": {one["prov:label"] for one in document.get("prov:wasDerivedFrom", [])},
        "personal information": document.get("rai:personalSensitiveInformation", []),
        **rows,
        **{
            f"column {one['name']}.{column['name']}": _column(
                tables.get(one["name"], "runs"),
                column["name"],
                column["dataType"],
                column.get("unitText", ""),
                column["description"],
            )
            for one in sets
            for column in one["field"]
        },
        **{
            f"file {item['name']}": (item["contentSize"], item["sha256"])
            for item in document["distribution"]
            if item["@type"] == "cr:FileObject"
        },
    }
    right = {
        **_right(release),
        "splits": [[split, _SPLIT_TERMS.get(split, "cr:Split")] for split in release.splits],
        "steps": [step.text for step in release.provenance],
        "originals": {name for step in release.provenance for name in step.inputs},
        "personal information": [*filter(None, [release.about.sensitive]), *release.anonymisation.remaining],
    }
    return found, right | _rows(release) | _columns(tables, "croissant") | _files(release, "{} B")


def _data_package(document: _Document, release: facts.Release) -> _Values:
    resources = document["resources"]
    parts = [part for resource in resources for part in resource.get("parts", [resource])]
    found = {
        "title": document["title"],
        "version": document["version"],
        "date": document["created"].removesuffix("T00:00:00Z"),
        "licence": document["licenses"][0]["name"],
        "creators": [person["title"] for person in document["contributors"] if "creator" in person["roles"]],
        **{f"number of rows of {resource['table']}": resource["rows"] for resource in resources},
        **{
            f"column {resource['table']}.{column['name']}": _column(
                resource["table"], column["name"], column["type"], column.get("unit", ""), column["description"]
            )
            for resource in resources
            for column in resource["schema"]["fields"]
        },
        **{f"file {part['path']}": (str(part["sizeInBytes"]), part["hash"]) for part in parts},
    }
    columns = _columns({table.name: table.name for table in release.tables}, "data_package")
    files = {f"file {file.path}": (str(file.bytes), f"sha256:{file.sha256}") for file in release.table_files}
    return found, _right(release) | _rows(release) | columns | files


def _ro_crate(document: _Document, release: facts.Release) -> _Values:
    entities = {entity["@id"]: entity for entity in document["@graph"]}
    root = entities["./"]
    people = root["author"] if isinstance(root["author"], list) else [root["author"]]
    found = {
        "title": root["name"],
        "version": root["version"],
        "date": root["datePublished"],
        "licence": entities[root["license"]["@id"]]["name"],
        "creators": [entities[person["@id"]]["name"] for person in people],
        "steps": [one["description"] for one in entities.values() if one["@type"] == "CreateAction"],
        **{
            f"file {unquote(name)}": (entity["contentSize"], entity["sha256"])
            for name, entity in entities.items()
            if entity["@type"] == "File" and "sha256" in entity
        },
    }
    return found, _right(release) | {"steps": [step.text for step in release.provenance]} | _files(release)


def _datacite(document: _Document, release: facts.Release) -> _Values:
    rights = document["rightsList"][0]
    found = {
        "title": document["titles"][0]["title"],
        "version": document["version"],
        "date": next(date["date"] for date in document["dates"] if date["dateType"] == "Issued"),
        "licence": rights.get("rightsIdentifier", rights["rights"]),
        "creators": [_words(person["name"]) for person in document["creators"]],
    }
    return found, _right(release, _words)


def _citation(document: _Document, release: facts.Release) -> _Values:
    names = ("given-names", "family-names", "name")
    found = {
        "title": document["title"],
        "version": document["version"],
        "date": document["date-released"],
        "licence": document.get("license"),
        "creators": [_words(" ".join(author.get(name, "") for name in names)) for author in document["authors"]],
    }
    right = _right(release, _words)
    is_own = release.about.licence.startswith("LicenseRef-")  # the format has SPDX's identifiers only
    return found, right | ({"licence": None} if is_own else {})


def _card(document: _Document, release: facts.Release) -> _Values:
    columns = {
        f"column {table['config_name']}.{column['name']}": column["dtype"]
        for table in document.get("dataset_info", [])
        for column in table["features"]
    }
    right = {
        f"column {table.name}.{column.name}": column.types.hub
        for table in release.tables
        for column in schema.table(table.name).columns
    }
    return {"title": document["pretty_name"], **columns}, {"title": release.about.title, **right}


#: How each description is parsed, and its values.
_READERS: dict[str, tuple[Callable[[str, str], _Document], Callable[[_Document, facts.Release], _Values]]] = {
    layout.CROISSANT: (parse_json, _croissant),
    layout.DATA_PACKAGE: (parse_json, _data_package),
    layout.RO_CRATE: (parse_json, _ro_crate),
    layout.DATACITE: (parse_json, _datacite),
    layout.CITATION: (parse_yaml, _citation),
    layout.CARD: (lambda text, name: parse_yaml(front_matter(text), name), _card),
}
