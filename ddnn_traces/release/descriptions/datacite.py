"""datacite.json: DataCite metadata 4.5, as a repository that mints a DOI takes them.

Without a DOI there is no `doi` and no `identifiers`, which the schema allows: the repository adds its own. A publisher
that was not named is "(:unav)", DataCite's code for a value that is not available.
"""

from __future__ import annotations

from typing import Any

from ddnn_traces.release import facts
from ddnn_traces.release.descriptions import shared

SCHEMA = "http://datacite.org/schema/kernel-4"


def document(release: facts.Release) -> dict[str, Any]:
    """The document, as JSON values."""
    about = release.about
    said = {
        "doi": about.doi,
        "url": about.url,
        "types": {"resourceType": "Packet traces of distributed training", "resourceTypeGeneral": "Dataset"},
        "creators": [_creator(person) for person in about.creators],
        "titles": [{"title": about.title}],
        "publisher": {"name": about.publisher or "(:unav)"},
        "publicationYear": about.published[:4],
        "subjects": [{"subject": keyword} for keyword in shared.keywords(release)],
        "contributors": _contributors(about),
        "dates": [{"date": about.published, "dateType": "Issued"}],
        "language": "en",
        "relatedIdentifiers": _papers(about),
        "sizes": [shared.readable_size(shared.total_bytes(release)), shared.counted(len(release.runs), "run")],
        "formats": sorted({shared.media_type(file.path) for file in shared.files(release)}),
        "version": about.version,
        "rightsList": [_rights(about.licence)],
        "descriptions": [
            {"description": shared.summary(release), "descriptionType": "Abstract"},
            *({"description": said, "descriptionType": "Methods"} for said in _methods(release)),
        ],
        "fundingReferences": [{"funderName": funder} for funder in about.funding],
        "schemaVersion": SCHEMA,
    }
    return {key: value for key, value in said.items() if value}


def text(release: facts.Release) -> str:
    """datacite.json."""
    return shared.json_text(document(release))


def _creator(person: facts.Person) -> dict[str, Any]:
    given, family = shared.names(person)
    if not given:
        said: dict[str, Any] = {"name": family}
    else:
        said = {"name": f"{family}, {given}", "nameType": "Personal", "givenName": given, "familyName": family}
    if person.affiliation:
        said["affiliation"] = [{"name": person.affiliation}]
    if person.orcid:
        scheme = {"nameIdentifierScheme": "ORCID", "schemeUri": "https://orcid.org"}
        said["nameIdentifiers"] = [{"nameIdentifier": shared.orcid_url(person.orcid)} | scheme]
    return said


def _contributors(about: facts.About) -> list[dict[str, Any]]:
    return [{"name": about.contact, "contributorType": "ContactPerson"}] if about.contact else []


def _papers(about: facts.About) -> list[dict[str, Any]]:
    """The papers, by DOI or address; one without either has no place here."""
    found = []
    for paper in about.papers:
        if paper.doi or paper.url:
            kind = "DOI" if paper.doi else "URL"
            identifier = {"relatedIdentifier": paper.doi or paper.url, "relatedIdentifierType": kind}
            found.append(identifier | {"relationType": "IsDescribedBy", "resourceTypeGeneral": "Text"})
    return found


def _rights(licence: str) -> dict[str, str]:
    url = shared.licence_url(licence)
    if url is None:
        return {"rights": licence}
    scheme = {"rightsIdentifierScheme": "SPDX", "schemeUri": "https://spdx.org/licenses/"}
    return {"rights": licence, "rightsUri": url, "rightsIdentifier": licence} | scheme


def _methods(release: facts.Release) -> list[str]:
    """The steps of the provenance as one text, where there are any."""
    told = " ".join(step.text for step in release.provenance)
    return [told] if told else []
