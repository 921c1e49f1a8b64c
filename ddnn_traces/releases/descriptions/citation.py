"""CITATION.cff: Citation File Format 1.2.0."""

from __future__ import annotations

from typing import Any

from ddnn_traces.releases import facts
from ddnn_traces.releases.descriptions import shared
from ddnn_traces.releases.descriptions.markup import yaml


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
        "keywords": list(dict.fromkeys(about.keywords)),
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


def _reference(paper: facts.Publication) -> dict[str, Any]:
    """A paper. The format wants authors, as a name of whatever they are."""
    said = {
        "type": "article",
        "title": paper.title,
        "authors": [{"name": paper.authors or "authors not given"}],
        "year": paper.year,
        "doi": paper.doi,
        "url": paper.url,
    }
    return {key: value for key, value in said.items() if value}
