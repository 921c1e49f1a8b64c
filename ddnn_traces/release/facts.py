"""The facts of a release: the one object that all its descriptions are made from, kept in it as release.json.

Columns are not in it: those of a table are in schemas/, whose version the release carries.
"""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from ddnn_traces.errors import UsageError
from ddnn_traces.store import layout, schema
from ddnn_traces.text_files import MOST_LOG, read_text
from ddnn_traces.version import __version__

SOFTWARE = f"ddnn_traces {__version__}"

#: Rows of each table in `samples`; runs, and hosts of a run, in `figure`.
FIRST_ROWS, FIGURE_RUNS, FIGURE_HOSTS = 5, 6, 12

#: Goes up when release.json changes its shape (schemas/documents/release.json describes it).
FORMAT_VERSION = 2


@dataclass(frozen=True)
class Person:
    """A creator. orcid: the identifier alone, 0000-0000-0000-0000. organisation: a group or institution, whose name is
    one piece; None: shared.is_organisation tells by the name.
    """

    name: str
    orcid: str | None = None
    affiliation: str | None = None
    organisation: bool | None = None


@dataclass(frozen=True)
class Publication:
    """A paper to cite with the data. doi: without a resolver's address."""

    title: str
    doi: str | None = None
    url: str | None = None
    authors: str | None = None
    year: int | None = None


@dataclass(frozen=True)
class About:
    """The publisher's statements on the release (release.toml and options; request.py reads them).

    licence: SPDX identifier. licence_text: the text of a licence that is not in SPDX's list (its identifier is
    LicenseRef-NAME then); None: descriptions.licence has the text. published: date, YYYY-MM-DD. version: semantic. doi:
    without a resolver's address. url: where the release will be found. files_url: the folder of its files, "." for no
    address; None: as shared.files_url derives it from url. The texts of the datasheet are the publisher's
    own words, Markdown; None where nothing is stated, and then the datasheet states that. claims_time: how long the
    claims took to compute, and where; None: not measured.
    """

    title: str
    licence: str
    creators: tuple[Person, ...]
    version: str
    published: str
    description: str = ""
    keywords: tuple[str, ...] = ()
    publisher: str | None = None
    doi: str | None = None
    url: str | None = None
    files_url: str | None = None
    contact: str | None = None
    funding: tuple[str, ...] = ()
    papers: tuple[Publication, ...] = ()
    motivation: str | None = None
    collection: str | None = None
    uses: str | None = None
    limitations: str | None = None
    sensitive: str | None = None
    claims_time: str | None = None
    licence_text: str | None = None


@dataclass(frozen=True)
class Claim:
    """A claim on the data, a line of claims.csv; all texts are the publisher's.

    claim: what is claimed, in a few words; its name. source: who says so, as a page or a paper's section. command: what
    computes the value (claims.py says which commands). expected: the value. tolerance: how far a number may be off, as
    a number or a part ("1%"); "" or exact: the texts are equal. unit, n: of the value. column: the one of the command's
    result that has the value, where there are several.
    """

    claim: str
    source: str
    command: str
    expected: str
    tolerance: str = ""
    unit: str = ""
    n: str = ""
    column: str = ""


@dataclass(frozen=True)
class File:
    """A file of the release. path: relative, with slashes. sha256: hex."""

    path: str
    bytes: int
    sha256: str


@dataclass(frozen=True)
class TableFile(File):
    """A Parquet file: rows of a table. runs: number of rows of each run in it, in the order of run_id."""

    runs: Mapping[str, int]

    @property
    def rows(self) -> int:
        """Rows of all its runs."""
        return sum(self.runs.values())


@dataclass(frozen=True)
class Table:
    """A table of the release; `name` is one of schema.TABLES."""

    name: str
    files: tuple[TableFile, ...]

    @property
    def rows(self) -> int:
        """Rows of all runs."""
        return sum(file.rows for file in self.files)

    @property
    def runs(self) -> dict[str, int]:
        """Number of rows of each run that has any, in the order of run_id."""
        rows: Counter[str] = Counter()
        for file in self.files:
            rows.update(file.runs)
        return dict(sorted(rows.items()))


@dataclass(frozen=True)
class Step:
    """A step of the provenance: an action in the RO-Crate, a sentence in the datasheet.

    kind: capture, ingest, generate, anonymise, publish. software: name and version. inputs: {name: SHA-256 in hex,
    BLAKE3 in hex after blake3:, or None}, of original captures, which are not in the release. parameters: as recorded.
    runs: those it made, () for all.
    """

    kind: str
    text: str
    software: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    inputs: Mapping[str, str | None] = field(default_factory=dict)
    runs: tuple[str, ...] = ()


@dataclass(frozen=True)
class Anonymisation:
    """What was done to identifying values.

    addresses: roles, crypto-pan or kept. ports: kept, permuted or classed. times: shifted or kept. key_id: equal for
    two releases of the same key, and reveals nothing else. removed: sentences, one for each kind of value that was
    removed or mapped. remaining: sentences on what can still be identified. withheld: which of hash, size and clock of
    the originals (schema.IDENTIFIES) are null.
    """

    addresses: str
    ports: str
    times: str
    key_id: str | None
    removed: tuple[str, ...] = ()
    remaining: tuple[str, ...] = ()
    withheld: tuple[str, ...] = ()


@dataclass(frozen=True)
class Release:
    """A release. schema_version: of the tables. software: name and version of what published it.

    windows_ns: length of flow_windows' base window of each run that has any. runs: rows of the table runs, in order of
    run_id, as in the release. flagged: for each run that failed data checks and was allowed to, the checks and how many
    rows each returned. captures: the cut-down captures and their logs. digest: SHA-256 over what the release holds but
    for its version, date and changelog: equal for equal content. options: all options that shaped it, key left out.
    samples: the first rows of each table, figure: rows of query pair_volume, both for the card. attacks: what an
    adversary recovers (attacks.Recovered), for the datasheet. claims: those of claims.csv.
    """

    about: About
    schema_version: int
    software: str
    tables: tuple[Table, ...]
    runs: tuple[Mapping[str, Any], ...]
    windows_ns: Mapping[str, int]
    provenance: tuple[Step, ...]
    anonymisation: Anonymisation
    captures: tuple[File, ...] = ()
    flagged: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    samples: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    figure: Sequence[Mapping[str, Any]] = ()
    attacks: Sequence[Mapping[str, Any]] = ()
    claims: tuple[Claim, ...] = ()
    previous: str | None = None
    digest: str = ""
    format_version: int = FORMAT_VERSION

    @property
    def has_explorer(self) -> bool:
        """Whether it has explore.html: of a release without flows or windows there is nothing to draw."""
        return {"flows", "flow_windows"} <= {table.name for table in self.tables}

    @property
    def run_ids(self) -> list[str]:
        """Names of the runs, in order."""
        return [run["run_id"] for run in self.runs]

    @property
    def splits(self) -> dict[str, list[str]]:
        """Names of the runs of each split (runs.split); empty where none is declared."""
        found: dict[str, list[str]] = {}
        for run in self.runs:
            if split := run.get("split"):
                found.setdefault(str(split), []).append(str(run["run_id"]))
        return dict(sorted(found.items()))

    @property
    def table_files(self) -> list[TableFile]:
        """The files of all tables."""
        return [file for table in self.tables for file in table.files]

    @property
    def files(self) -> list[File]:
        """All data files: those of the tables, then the cut-down captures."""
        return [*self.table_files, *self.captures]


def to_json(release: Release) -> str:
    """release.json: the same text for the same facts."""
    return json.dumps(dataclasses.asdict(release), indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def from_json(text: str) -> Release:
    """The facts in a release.json that is known to follow its schema.

    Raises KeyError, TypeError, ValueError for others.
    """
    document = json.loads(text)
    made = {
        "about": about(document["about"]),
        "tables": [Table(one["name"], tuple(TableFile(**file) for file in one["files"])) for one in document["tables"]],
        "provenance": [_tuples(Step, step) for step in document["provenance"]],
        "anonymisation": _tuples(Anonymisation, document["anonymisation"]),
        "captures": [File(**file) for file in document["captures"]],
        "claims": [Claim(**claim) for claim in document.get("claims", ())],  # releases before 2026-11-28 have none
    }
    release: Release = _tuples(Release, document | made)
    return release


def about(values: Mapping[str, Any]) -> About:
    """The statements as in release.json; those with a default may be missing. Raises KeyError, TypeError."""
    people = [Person(**person) for person in values["creators"]]
    papers = [Publication(**paper) for paper in values.get("papers", ())]
    made: About = _tuples(About, {**values, "creators": people, "papers": papers})
    return made


def _tuples(kind: Any, values: Mapping[str, Any]) -> Any:
    """A dataclass out of JSON, whose arrays are tuples here."""
    return kind(**{name: tuple(value) if isinstance(value, list) else value for name, value in values.items()})


@cache
def rules() -> dict[str, Any]:
    """The JSON schema of release.json. Shared: not to be changed."""
    path = schema.shipped_folder("schemas") / "documents" / "release.json"
    return dict(json.loads(path.read_text(encoding="utf-8")))


def read(release: Path) -> Release:
    """The facts of a release folder (or bag). Raises UsageError where this program cannot read it as a release."""
    import jsonschema

    file = layout.content(release) / layout.RELEASE
    again = "name the folder of a release, or publish again into a new one"
    try:
        text = read_text(file, MOST_LOG, UsageError)  # it names every run
        document = json.loads(text)
    except UsageError as error:
        raise UsageError(f"{release}: not a release (no readable {layout.RELEASE}); {again}") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{file}: not JSON; {again}") from error
    version = document.get("format_version") if isinstance(document, dict) else None
    if isinstance(version, int) and version != FORMAT_VERSION:
        step = "update it" if version > FORMAT_VERSION else "use the version that made it"
        raise UsageError(f"{file}: has format version {version}, this program reads {FORMAT_VERSION}; {step}")
    wrong = jsonschema.exceptions.best_match(jsonschema.Draft202012Validator(rules()).iter_errors(document))
    if wrong is not None:
        where = "/".join(map(str, wrong.absolute_path)) or "it"
        raise UsageError(f"{file}: {where} is not valid ({wrong.message[:100]}); {again}")
    return from_json(text)
