"""CITATION.cff: Citation File Format 1.2.0."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from ddnn_traces.release import facts
from ddnn_traces.release.descriptions import shared
from ddnn_traces.release.descriptions.markup import yaml

#: A. B. Example; and a family name before a comma.
_BY_INITIAL = re.compile(r"(?:\w\.[ -]?)+ ?[^\s.].*")
_FAMILY = re.compile(r"(?:[a-z]+ )*\S+")


def json_schema() -> dict[str, Any]:
    """The format's own JSON schema (Citation File Format 1.2.0, CC-BY-4.0)."""
    return dict(json.loads((Path(__file__).parent / "citation_schema.json").read_text(encoding="utf-8")))


def document(release: facts.Release) -> dict[str, Any]:
    """The document, as YAML values."""
    about = release.about
    said = {
        "cff-version": "1.2.0",
        "message": "If you use these data, please cite them as below.",
        "type": "dataset",
        "title": about.title,
        "abstract": shared.summary(release),
        "authors": [_author(person) for person in about.creators],
        "version": about.version,
        "date-released": about.published,
        # the format knows SPDX's identifiers only; one of the publisher's own stands in LICENSE
        "license": about.licence if shared.licence_url(about.licence) else None,
        "doi": about.doi,
        "url": about.url,
        "keywords": shared.keywords(release),
        "references": [_reference(paper) for paper in about.papers],
    }
    return {key: value for key, value in said.items() if value}


def text(release: facts.Release) -> str:
    """CITATION.cff. Raises MissingExtra."""
    return yaml(document(release))


def _author(person: facts.Person) -> dict[str, Any]:
    given, family = shared.names(person)
    name = {"given-names": given, "family-names": family} if given else {"name": family}
    said = name | {"affiliation": person.affiliation if given else None}
    said["orcid"] = shared.orcid_url(person.orcid) if person.orcid else None
    return {key: value for key, value in said.items() if value}


def _authors(said: str) -> list[dict[str, Any]]:
    """Authors of a paper, parted by "and" and ";", and by "," where that cannot be within a name.

    What may be anything, as a single name of an institution, stays one name.
    """
    found: list[dict[str, Any]] = []
    parts = [stripped for part in re.split(r";|\band\b", said) if (stripped := part.strip(" ,"))]
    for part in parts:
        names = [name.strip() for name in part.split(",")]
        if all(map(_BY_INITIAL.fullmatch, names)) or (len(names) > 2 and all(" " in name for name in names)):
            found += [_author(facts.Person(name)) for name in names]
        elif (len(names) == 1 and len(parts) > 1) or (len(names) == 2 and _FAMILY.fullmatch(names[0])):
            found.append(_author(facts.Person(part)))
        else:
            found.append({"name": part})
    return found or [{"name": said}]


def _reference(paper: facts.Publication) -> dict[str, Any]:
    """A paper. The format wants authors, as a name of whatever they are."""
    said = {
        "type": "article",
        "title": paper.title,
        "authors": _authors(paper.authors or "authors not given"),
        "year": paper.year,
        "doi": paper.doi,
        "url": paper.url,
    }
    return {key: value for key, value in said.items() if value}
