"""Descriptions against release.json, which was found to be of the real files: this program makes each of them again.

Where this version published the release, each description must be the same text. In any case these values must be
equal, as far as a format has them: title, version, date, licence, creators, columns with types and units, numbers of
rows, and files with size and SHA-256.
"""

from __future__ import annotations

import contextlib
import itertools
import json
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import unquote

from ddnn_traces.release import descriptions, provenance
from ddnn_traces.release.descriptions import croissant
from ddnn_traces.release.verify.descriptions import front_matter, labels
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
from ddnn_traces.store import layout
from ddnn_traces.text import counted

_MOST = 10


def check_agreement(examined: Examined) -> Iterator[Finding]:
    """Each description is the one that this program makes of release.json, in its text or at least in its values."""
    release = examined.release
    if release.software == provenance.SOFTWARE:
        right = descriptions.texts(release)
        detail = f"word for word what this program makes of {layout.RELEASE}"
        yield from unless(_other_texts(examined, right), passed("all descriptions", detail))
    else:
        detail = f"not compared word for word: made by {shown(release.software)}, this is {provenance.SOFTWARE}"
        yield not_checked("all descriptions", detail)
        right = {name: str(descriptions.MAKERS[name](release)) for name in _VALUES}
    for name in _VALUES:
        yield from _compare_values(examined, name, right[name])


def _other_texts(examined: Examined, right: dict[str, str]) -> Iterator[Finding]:
    for name, expected in right.items():
        try:
            text = examined.text(name)
            if text != expected and not (name == layout.FIGURE and _as_drawn(text, expected)):
                difference = _first_difference(name, text, expected)
                yield failed(name, f"is not what {layout.RELEASE} makes of it: {difference}; {ASK}")
        except WrongError as error:
            yield failed(name, str(error))


def _as_drawn(text: str, expected: str) -> bool:
    """Whether two drawings show the same: places of labels depend on the fonts of the machine that drew them."""
    return labels(text) == labels(expected)


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


def _compare_values(examined: Examined, name: str, text: str) -> Iterator[Finding]:
    try:
        present, expected = _values(name, examined.text(name)), _values(name, text)
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


def _values(name: str, text: str) -> dict[str, Any]:
    """The values that a description shares with others, by name. Raises WrongError; for a wrong shape KeyError, ..."""
    parse, read = _VALUES[name]
    return read(parse(text, name))


_Document = dict[str, Any]


def _shared(document: _Document, title: str, version: str, date: str, **more: Any) -> _Document:
    """The values that every format has, by the names of theirs, and others."""
    return {"title": document[title], "version": document[version], "date": document[date], **more}


def _croissant(document: _Document) -> _Document:
    splits = [one["data"] for one in document["recordSet"] if one["@id"] == croissant.SPLITS]
    record_sets = [one for one in document["recordSet"] if one["@id"] != croissant.SPLITS]
    columns = {
        f"column {record_set['name']}.{column['name']}": (column["dataType"], column.get("unitText", ""))
        for record_set in record_sets
        for column in record_set["field"]
    }
    rows = {f"number of rows of {record_set['name']}": record_set["annotation"]["value"] for record_set in record_sets}
    files = {
        f"file {item['contentUrl']}": (item["contentSize"], item["sha256"])
        for item in document["distribution"]
        if item["@type"] == "cr:FileObject"
    }
    people = {"licence": document["license"], "creators": [person["name"] for person in document["creator"]]}
    return _shared(document, "name", "version", "datePublished", splits=splits, **people, **columns, **rows, **files)


def _data_package(document: _Document) -> _Document:
    resources = document["resources"]
    columns = {
        f"column {resource['table']}.{column['name']}": (column["type"], column.get("unit", ""))
        for resource in resources
        for column in resource["schema"]["fields"]
    }
    rows = {f"number of rows of {resource['table']}": resource["rows"] for resource in resources}
    parts = [part for resource in resources for part in resource.get("parts", [resource])]
    files = {f"file {part['path']}": (part["sizeInBytes"], part["hash"]) for part in parts}
    creators = [person["title"] for person in document["contributors"] if "creator" in person["roles"]]
    people = {"licence": document["licenses"][0]["name"], "creators": creators}
    return _shared(document, "title", "version", "created", **people, **columns, **rows, **files)


def _ro_crate(document: _Document) -> _Document:
    entities = {entity["@id"]: entity for entity in document["@graph"]}
    root = entities["./"]
    people = root["author"] if isinstance(root["author"], list) else [root["author"]]
    files = {
        f"file {unquote(name)}": (entity["contentSize"], entity["sha256"])
        for name, entity in entities.items()
        if entity["@type"] == "File" and "sha256" in entity
    }
    licence = entities[root["license"]["@id"]]["name"]
    creators = [entities[person["@id"]]["name"] for person in people]
    return _shared(root, "name", "version", "datePublished", licence=licence, creators=creators, **files)


def _datacite(document: _Document) -> _Document:
    flat = {
        "title": document["titles"][0]["title"],
        "version": document["version"],
        "date": next(date["date"] for date in document["dates"] if date["dateType"] == "Issued"),
    }
    return flat | {"licence": document["rightsList"][0].get("rightsIdentifier", document["rightsList"][0]["rights"])}


def _citation(document: _Document) -> _Document:
    return _shared(document, "title", "version", "date-released", licence=document.get("license"))  # of SPDX's only


def _card(document: _Document) -> _Document:
    columns = {
        f"column {table['config_name']}.{column['name']}": column["dtype"]
        for table in document.get("dataset_info", [])
        for column in table["features"]
    }
    return {"title": document["pretty_name"], **columns}


#: How each description is parsed, and its values.
_VALUES: dict[str, tuple[Callable[[str, str], _Document], Callable[[_Document], dict[str, Any]]]] = {
    layout.CROISSANT: (parse_json, _croissant),
    layout.DATA_PACKAGE: (parse_json, _data_package),
    layout.RO_CRATE: (parse_json, _ro_crate),
    layout.DATACITE: (parse_json, _datacite),
    layout.CITATION: (parse_yaml, _citation),
    layout.CARD: (lambda text, name: parse_yaml(front_matter(text), name), _card),
}
