"""datapackage.json: Data Package 2.0, which frictionless reads and checks.

A resource is a Parquet file, that is the rows of a run in a table, since a resource has one hash and frictionless reads
only the first of several Parquet files. frictionless checks `rows`; it cannot count the bytes of a Parquet file and
fails every resource that has `bytes`, so the size is `sizeInBytes`. In addition to the specification's properties a
field has `unit`, the same text as in schemas/, and a resource `table` and `run_id`.

Foreign keys name the resource of the same run. A key with a part that may be null is a unique key, not a primary key.
"""

from __future__ import annotations

from typing import Any

from ddnn_traces.release import facts
from ddnn_traces.release.descriptions import shared
from ddnn_traces.store import layout, schema

PROFILE = "https://datapackage.org/profiles/2.0/datapackage.json"
RESOURCE_PROFILE = "https://datapackage.org/profiles/2.0/dataresource.json"
SCHEMA_PROFILE = "https://datapackage.org/profiles/2.0/tableschema.json"


def document(release: facts.Release) -> dict[str, Any]:
    """The document, as JSON values."""
    about = release.about
    return shared.given(
        {
            "$schema": PROFILE,
            "name": shared.identifier(about.title),
            "title": about.title,
            "description": shared.summary(release),
            "version": about.version,
            "created": f"{about.published}T00:00:00Z",
            "id": shared.doi_url(about.doi),
            "homepage": about.url,
            "keywords": shared.keywords(release),
            "licenses": [{"name": about.licence, "path": shared.licence_url(about.licence) or layout.LICENCE}],
            "contributors": [*map(_contributor, about.creators), *_others(about)],
            "sources": [
                shared.given({"title": paper.title, "path": shared.paper_url(paper)}) for paper in about.papers
            ],
            "resources": _resources(release),
        }
    )


def _contributor(person: facts.Person) -> dict[str, Any]:
    return shared.given(
        {
            "title": person.name,
            "path": shared.orcid_url(person.orcid),
            "organization": person.affiliation,
            "roles": ["creator"],
        }
    )


def _others(about: facts.About) -> list[dict[str, Any]]:
    """Publisher, contact and funders, distinguished from creators by their role."""
    contact = shared.contact(about.contact) if about.contact else {}
    person = {"title": about.contact, "email": contact.get("email"), "path": contact.get("url"), "roles": ["contact"]}
    found = [{"title": about.publisher, "roles": ["publisher"]}] if about.publisher else []
    found += [shared.given(person)] if about.contact else []
    return found + [{"title": funder, "roles": ["funder"]} for funder in about.funding]


def _resources(release: facts.Release) -> list[dict[str, Any]]:
    """A resource for each file of a table."""
    names = {(table.name, file.run_id): _name(table, file) for table in release.tables for file in table.files}
    return [
        {
            "$schema": RESOURCE_PROFILE,
            "name": names[table.name, file.run_id],
            "title": f"{table.name} of run {file.run_id}",
            "description": f"A row is {shared.definition(release, table).row}.",
            "type": "table",
            "path": file.path,
            "format": "parquet",
            "mediatype": "application/vnd.apache.parquet",
            "hash": f"sha256:{file.sha256}",
            "sizeInBytes": file.bytes,
            "rows": file.rows,
            "table": table.name,
            "run_id": file.run_id,
            "schema": _schema(release, table, file.run_id, names),
        }
        for table in release.tables
        for file in table.files
    ]


def _name(table: facts.Table, file: facts.TableFile) -> str:
    """Name of a resource in the letters that the specification recommends; unique also for similar names of runs."""
    place = table.files.index(file) + 1
    plain = "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in file.run_id.lower())
    return f"{table.name}.{place}.{plain}"


def _schema(release: facts.Release, table: facts.Table, run: str, names: dict[tuple[str, str], str]) -> dict[str, Any]:
    """Table Schema of a resource."""
    defined = shared.definition(release, table)
    key, nullable = list(defined.key), {column.name for column in defined.columns if column.nullable}
    keys = [
        {"fields": list(columns), "reference": {"resource": names[other, run], "fields": list(columns)}}
        for other, columns in shared.references(release, defined)
        if (other, run) in names
    ]
    return shared.given(
        {
            "$schema": SCHEMA_PROFILE,
            "fields": [_field(column) for column in defined.columns],
            **({"uniqueKeys": [key]} if nullable & set(key) else {"primaryKey": key}),
            "foreignKeys": keys,
        }
    )


def _field(column: schema.Column) -> dict[str, Any]:
    return shared.given(
        {
            "name": column.name,
            "type": column.types.data_package,
            "title": column.name.replace("_", " "),
            "description": shared.explained(column),
            "unit": column.unit,
            "constraints": None if column.nullable else {"required": True},
        }
    )
