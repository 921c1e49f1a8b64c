"""How to cite and reuse a release: CITATION.cff, a BibTeX entry, datacite.json and LICENSE.

The texts in licences/ are those of the SPDX licence list, for the licences that open data are usually under.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from ddnn_traces.errors import UsageError
from ddnn_traces.release import facts
from ddnn_traces.release.descriptions import terms
from ddnn_traces.text import counted, nearest

# --- CITATION.cff

#: A. B. Example; and a family name before a comma.
_BY_INITIAL = re.compile(r"(?:\w\.[ -]?)+ ?[^\s.].*")
_FAMILY = re.compile(r"(?:[a-z]+ )*\S+")


def cff_document(release: facts.Release) -> dict[str, Any]:
    """CITATION.cff (Citation File Format 1.2.0), as YAML values."""
    about = release.about
    return terms.given(
        {
            "cff-version": "1.2.0",
            "message": "If you use these data, please cite them as below.",
            "type": "dataset",
            "title": about.title,
            "abstract": terms.summary(release),
            "authors": [_cff_author(person) for person in about.creators],
            "version": about.version,
            "date-released": about.published,
            # the format has SPDX's identifiers only; the text of another licence is in LICENSE
            "license": about.licence if terms.licence_url(about.licence) else None,
            "doi": about.doi,
            "url": about.url,
            "keywords": terms.keywords(release),
            "references": [_reference(paper) for paper in about.papers],
        }
    )


def _cff_author(person: facts.Person) -> dict[str, Any]:
    given, family = terms.names(person)
    name = {"given-names": given, "family-names": family} if given else {"name": family}
    affiliation = person.affiliation if given else None
    return terms.given(name | {"affiliation": affiliation, "orcid": terms.orcid_url(person.orcid)})


def _authors(text: str) -> list[dict[str, Any]]:
    """Authors of a paper, separated by "and" and ";", and by "," where that cannot be within a name.

    A text that may be anything, as a single name of an institution, stays one name.
    """
    found: list[dict[str, Any]] = []
    parts = [stripped for part in re.split(r";|\band\b", text) if (stripped := part.strip(" ,"))]
    for part in parts:
        names = [name.strip() for name in part.split(",")]
        if all(map(_BY_INITIAL.fullmatch, names)) or (len(names) > 2 and all(" " in name for name in names)):
            found += [_cff_author(facts.Person(name)) for name in names]
        elif (len(names) == 1 and len(parts) > 1) or (len(names) == 2 and _FAMILY.fullmatch(names[0])):
            found.append(_cff_author(facts.Person(part)))
        else:
            found.append({"name": part})
    return found or [{"name": text}]


def _reference(paper: facts.Publication) -> dict[str, Any]:
    """A paper. The format requires authors, at least as a name."""
    return terms.given(
        {
            "type": "article",
            "title": paper.title,
            "authors": _authors(paper.authors or "authors not given"),
            "year": paper.year,
            "doi": paper.doi,
            "url": paper.url,
        }
    )


# --- BibTeX

_BIBTEX_ESCAPES = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "%": r"\%", "&": r"\&", "#": r"\#", "$": r"\$", "_": r"\_",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
}  # fmt: skip


def bibtex_entry(about: facts.About) -> str:
    """The release as a BibTeX entry of type misc, which every style has."""
    fields = {
        "author": " and ".join(map(_bibtex_author, about.creators)),
        "title": "{" + _bibtex_escaped(about.title) + "}",
        "year": about.published[:4],
        "version": _bibtex_escaped(about.version),
        "publisher": _bibtex_escaped(about.publisher) if about.publisher else None,
        "doi": about.doi,
        "url": terms.address(about),
    }
    key = f"{terms.identifier(about.title, '_')}_{about.version}"
    lines = [f"  {name} = {{{value}}}" for name, value in fields.items() if value]
    return f"@misc{{{key},\n" + ",\n".join(lines) + "\n}"


def _bibtex_author(person: facts.Person) -> str:
    """Family, Given; a name of one word, or one with a separator of BibTeX in it, unchanged."""
    given, family = terms.names(person)
    if not given or " and " in f" {person.name} " or "," in given:
        return "{" + _bibtex_escaped(person.name) + "}"
    return f"{_bibtex_escaped(family)}, {_bibtex_escaped(given)}"


def _bibtex_escaped(text: str) -> str:
    return "".join(_BIBTEX_ESCAPES.get(letter, letter) for letter in " ".join(text.split()))


# --- datacite.json

DATACITE_SCHEMA = "http://datacite.org/schema/kernel-4"


def datacite_document(release: facts.Release) -> dict[str, Any]:
    """datacite.json, DataCite metadata 4.5, as JSON values.

    Without a DOI there is no `doi` and no `identifiers`, which the schema allows: the repository adds its own. A
    missing publisher is "(:unav)", DataCite's code for a value that is not available.
    """
    about = release.about
    steps = " ".join(step.text for step in release.provenance)
    methods = [{"description": steps, "descriptionType": "Methods"}] if steps else []
    return terms.given(
        {
            "doi": about.doi,
            "url": about.url,
            "types": {"resourceType": "Packet traces of distributed training", "resourceTypeGeneral": "Dataset"},
            "creators": [_datacite_creator(person) for person in about.creators],
            "titles": [{"title": about.title}],
            "publisher": {"name": about.publisher or "(:unav)"},
            "publicationYear": about.published[:4],
            "subjects": [{"subject": keyword} for keyword in terms.keywords(release)],
            "contributors": [{"name": about.contact, "contributorType": "ContactPerson"}] if about.contact else [],
            "dates": [{"date": about.published, "dateType": "Issued"}],
            "language": "en",
            "relatedIdentifiers": _datacite_papers(about),
            "sizes": [terms.readable_size(release.files), counted(len(release.runs), "run")],
            "formats": sorted({terms.media_type(file.path) for file in release.files}),
            "version": about.version,
            "rightsList": [_rights(about.licence)],
            "descriptions": [{"description": terms.summary(release), "descriptionType": "Abstract"}, *methods],
            "fundingReferences": [{"funderName": funder} for funder in about.funding],
            "schemaVersion": DATACITE_SCHEMA,
        }
    )


def _datacite_creator(person: facts.Person) -> dict[str, Any]:
    given, family = terms.names(person)
    creator: dict[str, Any] = {"name": terms.inverted(person)}
    if given:
        creator |= {"nameType": "Personal", "givenName": given, "familyName": family}
    elif terms.is_organisation(person):
        creator["nameType"] = "Organizational"
    if person.affiliation:
        creator["affiliation"] = [{"name": person.affiliation}]
    if person.orcid:
        scheme = {"nameIdentifierScheme": "ORCID", "schemeUri": "https://orcid.org"}
        creator["nameIdentifiers"] = [{"nameIdentifier": terms.orcid_url(person.orcid)} | scheme]
    return creator


def _datacite_papers(about: facts.About) -> list[dict[str, Any]]:
    """The papers, by DOI or address; one without either cannot be given."""
    return [
        {
            "relatedIdentifier": paper.doi or paper.url,
            "relatedIdentifierType": "DOI" if paper.doi else "URL",
            "relationType": "IsDescribedBy",
            "resourceTypeGeneral": "Text",
        }
        for paper in about.papers
        if paper.doi or paper.url
    ]


def _rights(licence: str) -> dict[str, str]:
    url = terms.licence_url(licence)
    if url is None:
        return {"rights": licence}
    scheme = {"rightsIdentifierScheme": "SPDX", "schemeUri": "https://spdx.org/licenses/"}
    return {"rights": licence, "rightsUri": url, "rightsIdentifier": licence} | scheme


# --- LICENSE

_LICENCES = Path(__file__).parents[1] / "licences"


def known_licences() -> list[str]:
    """SPDX identifiers of the licences whose texts are in licences/."""
    return sorted(path.stem for path in _LICENCES.glob("*.txt"))


def licence_text(licence: str) -> str:
    """Text of a known licence. Raises UsageError for another."""
    if licence not in known_licences():
        raise UsageError(
            f"no text for the licence {licence} (for another one give its text as a file, and a name that begins with "
            f"LicenseRef-); {nearest(licence, known_licences())}"
        )
    return (_LICENCES / f"{licence}.txt").read_text(encoding="utf-8")


def licence(release: facts.Release) -> str:
    """LICENSE: the text of the licence that was chosen. Raises UsageError where there is no text."""
    about = release.about
    if about.licence_text is not None:
        return about.licence_text.rstrip("\n") + "\n"
    holders = ", ".join(person.name for person in about.creators)
    return licence_text(about.licence).replace("<year>", about.published[:4]).replace("<copyright holders>", holders)
