"""ro-crate-metadata.json: RO-Crate 1.1, an action for each step of the provenance, the context inlined.

ro_crate_context.json is the official context of 1.1 (CC0-1.0). The crate contains all its terms, so that nothing has to
be fetched to read it; `sha256`, which 1.1 lacks, is added from schema.org.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from ddnn_traces.query.views import FILE as DATABASE
from ddnn_traces.release import facts
from ddnn_traces.release.descriptions import terms
from ddnn_traces.store import layout
from ddnn_traces.text import counted

VERSION = "https://w3id.org/ro/crate/1.1"

Entity = dict[str, Any]

#: Descriptions of the other files of a release. The checksums of those from layout.RELEASE on are in SHA256SUMS only:
#: some are made after this one.
_DESCRIBED = {name: text for name, text in layout.DESCRIPTIONS.items() if name != layout.RO_CRATE} | {
    layout.RELEASE: "All facts that the descriptions are made from",
    layout.MARKER: "Marks the folder as a dataset of ddnn_traces, with its tables",
    layout.CHANGELOG: "What changed since the version before",
    DATABASE: "DuckDB database of views on the tables, relative to this folder",
    layout.EXPLORER: "Page to look around in the runs, without a server",
    layout.CHECKSUMS: "SHA-256 of every other file",
}


def context() -> dict[str, Any]:
    """Terms of RO-Crate 1.1 and the one added."""
    official: dict[str, Any] = terms.data_file("ro_crate_context.json")["@context"]
    return official | {"sha256": "http://schema.org/sha256"}


def _absent(release: facts.Release) -> set[str]:
    """Files that this release does not have: drawings where it has no flows, claims where it makes none."""
    has = {
        layout.FIGURE: bool(release.figure),
        layout.EXPLORER: release.has_explorer,
        layout.CLAIMS: bool(release.claims),
    }
    return {name for name, is_there in has.items() if not is_there}


def document(release: facts.Release) -> dict[str, Any]:
    """The document, as JSON values."""
    about = release.about
    contact = _contact(about)
    people = [_person(person, number, about, contact) for number, person in enumerate(about.creators, 1)]
    folders = [_folder(release, table) for table in release.tables]
    tables = [
        _file(file, f"{counted(file.rows, 'row')} of {counted(len(file.runs), 'run')}.") for file in release.table_files
    ]
    captures = [_file(file, "Cut-down capture or log.") for file in release.captures]
    described = [_described(name) for name in _DESCRIBED if name not in _absent(release)]
    licence, funders = _licence(about.licence), [_organisation("funder", name) for name in about.funding]
    papers = [_paper(paper, number) for number, paper in enumerate(about.papers, 1)]
    originals = [_original(name, digest) for name, digest in terms.originals(release).items()]
    states = _states(release)
    actions = _actions(release, states, people)
    root = _entity(
        "./",
        "Dataset",
        name=about.title,
        description=terms.summary(release),
        datePublished=about.published,
        version=about.version,
        license=_refer([licence]),
        author=_refer(people),
        creator=_refer(people),
        publisher={"@id": _id("organisation", about.publisher)} if about.publisher else None,
        funder=_refer(funders),
        keywords=", ".join(terms.keywords(release)),
        identifier=terms.doi_url(about.doi),
        url=terms.address(about),
        citation=_refer(papers),
        isBasedOn=_refer(originals),
        hasPart=_refer([*folders, *captures, *described]),
        mentions=_refer(actions),
    )
    graph = [
        _entity(layout.RO_CRATE, "CreativeWork", about={"@id": "./"}, conformsTo={"@id": VERSION}),
        root,
        *folders,
        *tables,
        *captures,
        *described,
        *people,
        *_organisations(about, contact),
        *funders,
        *contact,
        licence,
        *papers,
        *originals,
        *_software(release),
        *_in_between(release, states),
        *actions,
        *_parameters(release),
    ]
    return {"@context": context(), "@graph": list({entity["@id"]: entity for entity in graph}.values())}


def _entity(place: str, kind: str, /, **fields: Any) -> Entity:
    """An entity without unknown values; a list of one value is that value, as RO-Crate recommends."""
    known = terms.given(fields).items()
    found = {name: value[0] if isinstance(value, list) and len(value) == 1 else value for name, value in known}
    return {"@id": place, "@type": kind, **found}


def _refer(entities: list[Entity]) -> list[Entity]:
    return [{"@id": entity["@id"]} for entity in entities]


def _id(kind: str, name: str) -> str:
    return f"#{kind}-{quote(name, safe='')}"


def _path(path: str) -> str:
    """A path in the crate as a URI reference."""
    return quote(path, safe="/=+,@~")


def _folder(release: facts.Release, table: facts.Table) -> Entity:
    row = terms.definition(release, table).row
    description = f"Table {table.name}: a row is {row}. {counted(table.rows, 'row')}."
    files = [{"@id": _path(file.path)} for file in table.files]
    return _entity(f"{table.name}/", "Dataset", name=table.name, description=description, hasPart=files)


def _file(file: facts.File, description: str) -> Entity:
    return _entity(
        _path(file.path),
        "File",
        name=file.path,
        description=description,
        encodingFormat=terms.media_type(file.path),
        contentSize=str(file.bytes),
        sha256=file.sha256,
    )


def _described(name: str) -> Entity:
    kind = "text/plain" if name in (layout.LICENCE, layout.CHECKSUMS) else terms.media_type(name)
    return _entity(name, "File", name=name, description=_DESCRIBED[name], encodingFormat=kind)


def _person(person: facts.Person, number: int, about: facts.About, contact: list[Entity]) -> Entity:
    """A creator. The contact is that of the first one, where there is no publisher."""
    return _entity(
        terms.orcid_url(person.orcid) or f"#person-{number}",
        "Organization" if terms.is_organisation(person) else "Person",
        name=person.name,
        affiliation={"@id": _id("organisation", person.affiliation)} if person.affiliation else None,
        contactPoint=_refer(contact) if number == 1 and not about.publisher else None,
    )


def _organisation(kind: str, name: str, contact: list[Entity] | None = None) -> Entity:
    """kind: organisation, or funder: in the publisher's words, with the grant if given."""
    return _entity(_id(kind, name), "Organization", name=name, contactPoint=_refer(contact or []))


def _organisations(about: facts.About, contact: list[Entity]) -> list[Entity]:
    names = [person.affiliation for person in about.creators] + [about.publisher]
    return [_organisation("organisation", name, contact if name == about.publisher else []) for name in names if name]


def _contact(about: facts.About) -> list[Entity]:
    """The contact; RO-Crate has it at the publisher, else at a creator."""
    if not about.contact:
        return []
    contact = terms.contact(about.contact)
    place = f"mailto:{quote(contact['email'], safe='@')}" if "email" in contact else "#contact"
    return [_entity(place, "ContactPoint", contactType="questions on the data", **contact)]


def _licence(licence: str) -> Entity:
    """The licence as an entity: by its address, or the file in the crate."""
    if url := terms.licence_url(licence):
        return _entity(url, "CreativeWork", name=licence, description=f"Licence {licence}, see LICENSE.")
    return _described(layout.LICENCE) | {"@type": ["File", "CreativeWork"], "name": licence}


def _paper(paper: facts.Publication, number: int) -> Entity:
    place, year = terms.paper_url(paper) or f"#paper-{number}", str(paper.year) if paper.year else None
    return _entity(place, "ScholarlyArticle", name=paper.title, author=paper.authors, datePublished=year)


def _original(name: str, digest: str | None) -> Entity:
    """A capture that the release was made from, which is not in it."""
    text = "An original capture or log; not part of this release."
    return _entity(_id("original", name), "CreativeWork", name=name, description=text, **terms.digest_property(digest))


def _software(release: facts.Release) -> list[Entity]:
    """Each program of a step, with its version where the last word is a number."""
    found = []
    for software in sorted({step.software for step in release.provenance}):
        name, _, version = software.rpartition(" ")
        known = {"name": name, "softwareVersion": version} if name and version[:1].isdigit() else {"name": software}
        found.append(_entity(_id("software", software), "SoftwareApplication", **known))
    return found


@dataclass(frozen=True)
class _State:
    """Inputs and results of a step, as @ids."""

    inputs: tuple[str, ...]
    results: tuple[str, ...]


def _states(release: facts.Release) -> list[_State]:
    """Inputs and results of each step: the captures, the tables of some runs, all tables, at last the crate."""
    steps = release.provenance
    found: list[_State] = []
    tables: tuple[str, ...] = ()
    for number, step in enumerate(steps, 1):
        own = (f"{_action(number)}-result",)
        match step.kind:
            case "capture":
                state = _State((), _captured(release, step) or own)
            case "ingest" | "generate":
                before = zip(steps, found, strict=False)
                captures = [state for made, state in before if made.kind == "capture" and _together(made, step)]
                inputs = tuple(_id("original", name) for name in sorted(step.inputs))
                inputs = inputs or tuple(name for state in captures for name in state.results)
                state = _State(inputs if step.kind == "ingest" else (), own)
                tables = (*tables, *own)
            case _:
                state = _State(tables, own)
                tables = own
        if number == len(steps):
            state = _State(state.inputs, ("./",))
        found.append(state)
    return found


def _together(one: facts.Step, other: facts.Step) -> bool:
    """Whether two steps are of a run in common; no runs: all."""
    return not one.runs or not other.runs or bool(set(one.runs) & set(other.runs))


def _captured(release: facts.Release, step: facts.Step) -> tuple[str, ...]:
    """The original captures of the runs of a step."""
    read = [other for other in release.provenance if other.kind == "ingest" and _together(step, other)]
    alone = len(step.runs) == len(release.runs) or not step.runs
    names = {name for other in read for name in other.inputs}
    return tuple(
        _id("original", name)
        for name in sorted(names)
        if alone or "/" not in name or name.rpartition("/")[0] in step.runs
    )


def _in_between(release: facts.Release, states: list[_State]) -> list[Entity]:
    """Results of steps that are not in the crate, except the original captures."""
    text = "The input of the next step; not part of this release."
    return [
        _entity(name, "CreativeWork", name=f"Result of step {number}: {step.kind}", description=text)
        for number, (step, state) in enumerate(zip(release.provenance, states, strict=True), 1)
        for name in state.results
        if name == f"{_action(number)}-result"
    ]


def _actions(release: facts.Release, states: list[_State], people: list[Entity]) -> list[Entity]:
    """An action for each step, in order. Only publishing has agents: the facts do not name the author of a capture."""
    return [
        _entity(
            _action(number),
            "CreateAction",
            name=f"Step {number}: {step.kind}",
            description=step.text,
            agent=_refer(people) if step.kind == "publish" else None,
            instrument={"@id": _id("software", step.software)},
            object=[{"@id": name} for name in state.inputs],
            result=[{"@id": name} for name in state.results],
            additionalProperty=[{"@id": _parameter(number, name)} for name in sorted(step.parameters)],
        )
        for number, (step, state) in enumerate(zip(release.provenance, states, strict=True), 1)
    ]


def _action(number: int) -> str:
    return f"#step-{number}"


def _parameter(number: int, name: str) -> str:
    return f"{_action(number)}-{quote(name, safe='')}"


def _parameters(release: facts.Release) -> list[Entity]:
    """A parameter of a step, its value as JSON where it is not a text."""
    return [
        {
            "@id": _parameter(number, name),
            "@type": "PropertyValue",
            "name": name,
            "value": value if isinstance(value, str) else json.dumps(value, sort_keys=True),
        }
        for number, step in enumerate(release.provenance, 1)
        for name, value in sorted(step.parameters.items())
    ]
