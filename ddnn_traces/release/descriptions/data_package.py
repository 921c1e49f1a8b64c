"""datapackage.json: Data Package 2.0, which frictionless reads and checks.

A resource is a table: a path where it is one file, a list of paths where it has several. As a resource has one hash,
the files of several have theirs in `parts`. frictionless checks `rows`, and reads only the first of several Parquet
files; it cannot count the bytes of a Parquet file and fails every resource that has `bytes`, so the size is
`sizeInBytes`. In addition to the specification's properties a field has `unit`, the same text as in schemas/, and a
resource `table`.

A key with a part that may be null is a unique key, not a primary key.
"""

from __future__ import annotations

from typing import Any

from ddnn_traces.release import facts
from ddnn_traces.release.descriptions import terms
from ddnn_traces.store import layout, schema

PROFILE = "https://datapackage.org/profiles/2.0/datapackage.json"
RESOURCE_PROFILE = "https://datapackage.org/profiles/2.0/dataresource.json"
SCHEMA_PROFILE = "https://datapackage.org/profiles/2.0/tableschema.json"


def document(release: facts.Release) -> dict[str, Any]:
    """The document, as JSON values."""
    about = release.about
    return terms.given(
        {
            "$schema": PROFILE,
            "name": terms.identifier(about.title),
            "title": about.title,
            "description": terms.summary(release),
            "version": about.version,
            "created": f"{about.published}T00:00:00Z",
            "id": terms.doi_url(about.doi),
            "homepage": about.url,
            "keywords": terms.keywords(release),
            "licenses": [{"name": about.licence, "path": terms.licence_url(about.licence) or layout.LICENCE}],
            "contributors": [*map(_contributor, about.creators), *_others(about)],
            "sources": [terms.given({"title": paper.title, "path": terms.paper_url(paper)}) for paper in about.papers],
            "resources": _resources(release),
        }
    )


def _contributor(person: facts.Person) -> dict[str, Any]:
    return terms.given(
        {
            "title": person.name,
            "path": terms.orcid_url(person.orcid),
            "organization": person.affiliation,
            "roles": ["creator"],
        }
    )


def _others(about: facts.About) -> list[dict[str, Any]]:
    """Publisher, contact and funders, distinguished from creators by their role."""
    contact = terms.contact(about.contact) if about.contact else {}
    person = {"title": about.contact, "email": contact.get("email"), "path": contact.get("url"), "roles": ["contact"]}
    found = [{"title": about.publisher, "roles": ["publisher"]}] if about.publisher else []
    found += [terms.given(person)] if about.contact else []
    return found + [{"title": funder, "roles": ["funder"]} for funder in about.funding]


def _resources(release: facts.Release) -> list[dict[str, Any]]:
    """A resource for each table."""
    return [
        {
            "$schema": RESOURCE_PROFILE,
            "name": table.name,
            "title": table.name.replace("_", " "),
            "description": f"A row is {terms.definition(release, table).row}.",
            "type": "table",
            **_files(table),
            "format": "parquet",
            "mediatype": "application/vnd.apache.parquet",
            "rows": table.rows,
            "table": table.name,
            "schema": _schema(release, table),
        }
        for table in release.tables
    ]


def _files(table: facts.Table) -> dict[str, Any]:
    parts = [{"path": f.path, "hash": f"sha256:{f.sha256}", "sizeInBytes": f.bytes} for f in table.files]
    if len(parts) == 1:
        return parts[0]
    return {
        "path": [file.path for file in table.files],
        "sizeInBytes": sum(file.bytes for file in table.files),
        "parts": parts,
    }


def _schema(release: facts.Release, table: facts.Table) -> dict[str, Any]:
    """Table Schema of a resource."""
    defined = terms.definition(release, table)
    key, nullable = list(defined.key), {column.name for column in defined.columns if column.nullable}
    keys = [
        {"fields": list(columns), "reference": {"resource": other, "fields": list(columns)}}
        for other, columns in terms.references(release, defined)
    ]
    return terms.given(
        {
            "$schema": SCHEMA_PROFILE,
            "fields": [_field(column) for column in defined.columns],
            **({"uniqueKeys": [key]} if nullable & set(key) else {"primaryKey": key}),
            "foreignKeys": keys,
        }
    )


def _field(column: schema.Column) -> dict[str, Any]:
    return terms.given(
        {
            "name": column.name,
            "type": column.types.data_package,
            "title": column.name.replace("_", " "),
            "description": terms.explained(column),
            "unit": column.unit,
            "constraints": None if column.nullable else {"required": True},
        }
    )
