"""croissant.json: Croissant 1.1, with the context inlined: Appendix 1 of the specification, as mlcroissant 1.1
expects it, with PROV-O.

Each table is a record set with its key; each column a field with type, description and unit (`unitText` of schema.org,
the same text as in schemas/). The number of a table's rows is an annotation of its record set, as in section
"Descriptive Statistics" of the specification. Each file is a file object with size and SHA-256, which mlcroissant
checks where it downloads a file.

Where the files have an address, `contentUrl` is absolute, so that the document is loaded by its own address. As
mlcroissant reads a file set only from a folder, a record set is then of one file object, and a table of several files
has several record sets. Otherwise a record set is of the file set of all the table's files, next to the document.

Foreign keys are not given as `references`: mlcroissant makes joins of them and reads whole tables into memory. They are
in datapackage.json.
"""

from __future__ import annotations

from collections import Counter
from pathlib import PurePosixPath
from typing import Any, NamedTuple
from urllib.parse import quote

from ddnn_traces.release import facts
from ddnn_traces.release.descriptions import terms
from ddnn_traces.store import layout, schema

VERSION = "http://mlcommons.org/croissant/1.1"
RESPONSIBLE_AI = "http://mlcommons.org/croissant/RAI/1.0"

#: "number of elements" (Wikidata), which the specification uses for the number of records of a record set.
ROW_COUNT = "http://www.wikidata.org/entity/Q4049983"


def document(release: facts.Release) -> dict[str, Any]:
    """The document, as JSON values."""
    about = release.about
    own_licence = {"@type": "sc:CreativeWork", "name": about.licence, "url": layout.LICENCE}
    return terms.given(
        {
            "@context": terms.data_file("croissant_context.json"),
            "@type": "sc:Dataset",
            "conformsTo": [VERSION, RESPONSIBLE_AI],
            "name": about.title,
            "description": terms.summary(release),
            "license": terms.licence_url(about.licence) or own_licence,
            "creator": [_person(person) for person in about.creators],
            "publisher": {"@type": "sc:Organization", "name": about.publisher} if about.publisher else None,
            "contactPoint": {"@type": "sc:ContactPoint", **terms.contact(about.contact)} if about.contact else None,
            "datePublished": about.published,
            "version": about.version,
            "url": terms.address(about),
            "sameAs": terms.doi_url(about.doi) if about.url else None,
            "keywords": terms.keywords(release),
            "inLanguage": "en",
            "isLiveDataset": False,
            "citeAs": terms.citation(about),
            "citation": [
                terms.given({"@type": "sc:ScholarlyArticle", "name": paper.title, "url": terms.paper_url(paper)})
                for paper in about.papers
            ],
            "funding": [{"@type": "sc:Grant", "name": grant} for grant in about.funding],
            **_responsible_ai(release),
            **_provenance(release),
            "distribution": [*_file_sets(release), *_file_objects(release)],
            "recordSet": [*_splits(release), *(_record_set(release, records) for records in record_sets(release))],
        }
    )


def _person(person: facts.Person) -> dict[str, Any]:
    affiliation = {"@type": "sc:Organization", "name": person.affiliation} if person.affiliation else None
    kind = "sc:Organization" if terms.is_organisation(person) else "sc:Person"
    entity = {"@type": kind, "name": person.name, "sameAs": terms.orcid_url(person.orcid)}
    return terms.given(entity | {"affiliation": affiliation})


def _file_sets(release: facts.Release) -> list[dict[str, Any]]:
    """A file set for each table that has a file, where the files have no address."""
    if terms.files_url(release.about):
        return []
    return [
        {
            "@type": "cr:FileSet",
            "@id": _file_set(table.name),
            "name": _file_set(table.name),
            "description": f"All files of the table {table.name}.",
            "encodingFormat": terms.PARQUET,
            "includes": terms.pattern(table.name),
        }
        for table in release.tables
    ]


def _file_set(table: str) -> str:
    return f"{table}-files"


def _file_objects(release: facts.Release) -> list[dict[str, Any]]:
    """A file object for each data file, with size and SHA-256, at its address or else its path in the release."""
    place = terms.files_url(release.about)
    return [
        {
            "@type": "cr:FileObject",
            "@id": quote(file.path),
            "name": file.path,
            "contentUrl": f"{place}{quote(file.path)}" if place else file.path,
            "contentSize": f"{file.bytes} B",
            "encodingFormat": terms.media_type(file.path),
            "sha256": file.sha256,
        }
        for file in release.files
    ]


class Records(NamedTuple):
    """A record set: rows of a table, of one file object or of all the table's files."""

    name: str
    table: facts.Table
    files: tuple[facts.TableFile, ...]
    source: dict[str, Any]


def record_sets(release: facts.Release) -> list[Records]:
    """The record sets, named after the tables; of a table of several files with addresses, one for each file, since
    mlcroissant reads no file set there: TABLE.part-00000, TABLE.test-00000, as the files are named.
    """
    found = []
    for table in release.tables:
        if not terms.files_url(release.about):
            found.append(Records(table.name, table, table.files, {"fileSet": {"@id": _file_set(table.name)}}))
            continue
        for file in table.files:
            name = table.name if len(table.files) == 1 else f"{table.name}.{PurePosixPath(file.path).stem}"
            found.append(Records(name, table, (file,), {"fileObject": {"@id": quote(file.path)}}))
    return found


#: The specification's terms for splits (section "Machine Learning splits"); another name has none.
_SPLIT_TERMS = {"train": "cr:TrainingSplit", "validation": "cr:ValidationSplit", "test": "cr:TestSplit"}

SPLITS = "splits"


def _splits(release: facts.Release) -> list[dict[str, Any]]:
    """The record set of the splits' names, to which runs.split refers; none where none is declared."""
    if not release.splits:
        return []
    name, term = f"{SPLITS}/name", f"{SPLITS}/url"
    return [
        {
            "@type": "cr:RecordSet",
            "@id": SPLITS,
            "name": SPLITS,
            "description": "Splits of the runs: the column split of the table runs, and the names of the files.",
            "dataType": "cr:Split",
            "key": {"@id": name},
            "field": [
                {"@type": "cr:Field", "@id": name, "name": "name", "description": "Name.", "dataType": "sc:Text"},
                {"@type": "cr:Field", "@id": term, "name": "url", "description": "Meaning.", "dataType": "sc:URL"},
            ],
            "data": [{name: split, term: _SPLIT_TERMS.get(split, "cr:Split")} for split in release.splits],
        }
    ]


def _record_set(release: facts.Release, records: Records) -> dict[str, Any]:
    defined = terms.definition(release, records.table)
    return {
        "@type": "cr:RecordSet",
        "@id": records.name,
        "name": records.name,
        "description": f"A row is {defined.row}.",
        "key": [{"@id": f"{records.name}/{part}"} for part in defined.key],
        "annotation": {
            "@type": "cr:Field",
            "@id": f"{records.name}/#rows",
            "name": "rows",
            "description": "Number of rows.",
            "dataType": ["cr:Int64", ROW_COUNT],
            "value": sum(file.rows for file in records.files),
        },
        "field": [_field(records, column, release) for column in defined.columns],
    }


def _field(records: Records, column: schema.Column, release: facts.Release) -> dict[str, Any]:
    is_split = (records.table.name, column.name) == ("runs", "split") and release.splits
    return terms.given(
        {
            "@type": "cr:Field",
            "@id": f"{records.name}/{column.name}",
            "name": column.name,
            "description": terms.explained(column),
            "dataType": column.types.croissant,
            "source": {**records.source, "extract": {"column": column.name}},
            "unitText": column.unit,
            "references": {"field": {"@id": f"{SPLITS}/name"}} if is_split else None,
        }
    )


def _provenance(release: facts.Release) -> dict[str, Any]:
    """PROV-O, as the specification recommends: an activity for each step, an entity for each original capture."""
    activities = [
        {
            "@type": "prov:Activity",
            "@id": f"#step-{number}-{step.kind}",
            "prov:label": step.text,
            "prov:wasAssociatedWith": {"@type": "prov:SoftwareAgent", "prov:label": step.software},
        }
        for number, step in enumerate(release.provenance, 1)
    ]
    entities = [
        {"@type": "prov:Entity", "prov:label": name} | terms.digest_property(digest)
        for name, digest in terms.originals(release).items()
    ]
    return {"prov:wasGeneratedBy": activities, "prov:wasDerivedFrom": entities}


def _responsible_ai(release: facts.Release) -> dict[str, Any]:
    """The RAI vocabulary, in the publisher's words where given, else from the facts and schemas/."""
    about, hidden = release.about, release.anonymisation
    collected = [step.text for step in release.provenance if step.kind in ("capture", "generate", "ingest")]
    prepared = [step.text for step in release.provenance if step.kind not in ("capture", "generate")]
    contact = f" Report errors to {about.contact}." if about.contact else ""
    return {
        "rai:dataCollection": about.collection or " ".join(collected) or None,
        "rai:dataCollectionType": sorted({_COLLECTION.get(kind, "Others") for kind in terms.sources(release)}),
        "rai:dataCollectionRawData": _raw(release),
        "rai:dataCollectionMissingData": _MISSING if any(t.name == "capture_ledger" for t in release.tables) else None,
        "rai:dataPreprocessingProtocol": prepared,
        "rai:dataManipulationProtocol": " ".join(hidden.removed) or None,
        "rai:dataImputationProtocol": "No value was imputed: what is not known is null.",
        "rai:dataBiases": _biases(release),
        "rai:dataLimitations": [*_listed(about.limitations), *_inaccuracies(release)],
        "rai:personalSensitiveInformation": [*_listed(about.sensitive), *hidden.remaining],
        "rai:dataUseCases": _listed(about.uses),
        "rai:dataReleaseMaintenancePlan": f"{_PLAN}{contact}",
    }


#: Values of the RAI vocabulary for the source of a run (runs.source).
_COLLECTION = {
    "capture": "Passive Data Collection", "testbed": "Experiments", "simulation": "Software Collection",
    "ns3": "Software Collection", "synthetic": "Software Collection",
}  # fmt: skip

_PLAN = "A version is never changed; a correction or addition is a new version."
_RAW = "The original captures are not in the release; their SHA-256 are, where they are known (prov:wasDerivedFrom)."
_MISSING = "Records of a capture that are in no flow are counted in the table capture_ledger, with the reason."


def _raw(release: facts.Release) -> str:
    """Where the original captures are, if there were any."""
    sources = set(terms.sources(release))
    if sources == {"synthetic"}:
        return "There are no original captures: the runs are synthetic."
    return ("Synthetic runs have no original captures. " if "synthetic" in sources else "") + _RAW


def _listed(text: str | None) -> list[str]:
    return [text] if text else []


def _biases(release: facts.Release) -> list[str]:
    """Number of runs of each framework, topology and source: these shape all other values."""
    found = []
    for name in ("framework", "topology", "source") if release.runs else ():
        counts = Counter(str(run.get(name) or "unknown") for run in release.runs)
        values = ", ".join(f"{value} {count}" for value, count in sorted(counts.items()))
        found.append(f"Runs by {name}: {values}.")
    return found


def _inaccuracies(release: facts.Release) -> list[str]:
    """A sentence for each known inaccuracy of a column."""
    return [
        f"{table.name}.{column.name}: {column.inaccuracy}"
        for table in release.tables
        for column in terms.definition(release, table).columns
        if column.inaccuracy
    ]
