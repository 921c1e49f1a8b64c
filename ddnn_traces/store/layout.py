"""Files of a dataset and of a release.

    DATASET/
        dataset.json                       makes the folder a dataset; states the schema version
        TABLE/run_id=RUN/part-0.parquet    the rows of a run
        traces.duckdb, inputs.json         views of queries and tables; what each run was read from
        sources.json                       where the folder of each run was, as seen from the dataset
        checksums.json                     size and BLAKE3 of the files of each run

    RELEASE/                               a dataset, but for the place of the tables
        TABLE/part-00000.parquet           rows of several runs, or of a large one
        pcap/RUN/...                       optional: cut-down captures, a run folder each, which ingest reads
        release.json                       facts.Release
        explore.html                       report/explorer.py: the page to look around in, of the released tables
        the descriptions below

As a BagIt bag (RFC 8493) all of it is in RELEASE/data/, with bagit.txt and the manifests next to it.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ddnn_traces.errors import ReleaseError, UsageError
from ddnn_traces.store import schema
from ddnn_traces.text_files import MOST_DOCUMENT, read_bytes

MARKER = "dataset.json"
RELEASE = "release.json"
CARD = "README.md"
DATASHEET = "DATASHEET.md"
DICTIONARY = "DICTIONARY.md"
FIGURE = "traffic.svg"
EXPLORER = "explore.html"
WORKLOADS = "workloads.yaml"
CLAIMS = "claims.csv"
ARTIFACT = "ARTIFACT.md"
LICENCE = "LICENSE"
CITATION = "CITATION.cff"
CHANGELOG = "CHANGELOG.md"
CROISSANT = "croissant.json"
DATA_PACKAGE = "datapackage.json"
RO_CRATE = "ro-crate-metadata.json"
DATACITE = "datacite.json"
INPUTS = "inputs.json"
SOURCES = "sources.json"
STORED_FILES = "checksums.json"
CHECKSUMS = "SHA256SUMS"
CAPTURES = "pcap"  # captures/ is the table of that name

#: Made from facts.Release by descriptions/, in this order, with what each of them is.
DESCRIPTIONS = {
    CARD: "Dataset card",
    DICTIONARY: "Data dictionary: every column of every table",
    DATASHEET: "Datasheet",
    FIGURE: "Figure: traffic between the hosts of some runs",
    WORKLOADS: "Workload card of each run, with the fields of CCL-Bench",
    CLAIMS: "Claims: each with the command that computes its number, the number expected and a tolerance",
    ARTIFACT: "Answers to the questions of an artifact committee",
    LICENCE: "Licence",
    CITATION: "How to cite (Citation File Format)",
    CROISSANT: "Croissant description",
    DATA_PACKAGE: "Data Package description",
    RO_CRATE: "RO-Crate description",
    DATACITE: "DataCite metadata",
}


def content(release: Path) -> Path:
    """Folder in which the release's files are: itself, or data/ of a bag."""
    return release / "data" if (release / "bagit.txt").is_file() else release


def texts(dataset: Path) -> dict[str, str]:
    """Content of inputs.json and sources.json, of those that are there and can be read."""
    found = {}
    for name in (INPUTS, SOURCES):
        with contextlib.suppress(OSError, UnicodeDecodeError):
            found[name] = (dataset / name).read_text(encoding="utf-8")
    return found


def refuse_inside(path: Path) -> None:
    """Raise UsageError where a path is a release or in one: what is written there would break its checksums."""
    path = path.resolve()
    for folder in (path, *path.parents):
        if (content(folder) / RELEASE).is_file() and (content(folder) / MARKER).is_file():
            where = "is a release" if path == folder else f"is inside the release {folder}"
            raise UsageError(f"{path}: {where}, which its checksums protect; choose another --out")


def check_path(path: Path) -> None:
    """Raise UsageError for a path that DuckDB cannot open: not UTF-8, or with backslashes, which separate folders."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        raise UsageError(f"{path}: not a path in UTF-8, which DuckDB needs; choose another name") from None
    if "\\" in str(path):
        raise UsageError(f"{path}: DuckDB takes its backslashes for separators of folders; choose another name")


def is_dataset(folder: Path) -> bool:
    """Whether the folder is marked as a dataset, of any schema version."""
    return (folder / MARKER).is_file()


_FORMAT = "ddnn_traces dataset"
_KEYS = {"format", "schema_version", "oldest_schema_version", "tables"}


@dataclass(frozen=True)
class Marker:
    """What dataset.json states: the tables that the dataset has, and the schema version of its oldest run."""

    tables: tuple[str, ...]
    oldest: int = schema.SCHEMA_VERSION

    @property
    def has_older_runs(self) -> bool:
        """Whether the files of some runs may lack columns, or tables, that were added since."""
        return self.oldest < schema.SCHEMA_VERSION


def write_marker(dataset: Path, tables: Sequence[str] | None = None, oldest: int = schema.SCHEMA_VERSION) -> None:
    """Mark a folder as a dataset of this schema version.

    tables: those it has, where it may lack some (a release). oldest: schema version of its oldest run.
    """
    marker: dict[str, Any] = {"format": _FORMAT, "schema_version": schema.SCHEMA_VERSION}
    if oldest < schema.SCHEMA_VERSION:
        marker["oldest_schema_version"] = oldest
    if tables is not None:
        marker["tables"] = list(tables)
    (dataset / MARKER).write_text(_text(marker))


def read_marker(dataset: Path, name: str = "") -> Marker:
    """The marker of a dataset. name: for messages, if not the folder.

    Raises UsageError unless the folder is a dataset of a schema version that this program reads.
    """
    name = name or str(dataset)
    check_path(dataset)
    if not dataset.is_dir():
        raise UsageError(f"{name}: no such dataset; check the path, or make one with 'ddnn-traces ingest'")
    try:
        text = _marker_text(dataset, name)
        return parse_marker(text, name)
    except UsageError as error:
        if not has_marker(dataset) and (dataset / STORED_FILES).is_file():
            raise UsageError(
                f"{name}: {MARKER} is damaged or missing; ingest one of its runs again into it, which writes that file"
            ) from error
        raise


def has_marker(dataset: Path) -> bool:
    """Whether dataset.json can be read, of any schema version."""
    try:
        return isinstance(json.loads(_marker_text(dataset, ""))["schema_version"], int)
    except (UsageError, ValueError, KeyError, TypeError, RecursionError):
        return False


def _marker_text(dataset: Path, name: str) -> bytes:
    try:
        return read_bytes(dataset / MARKER, MOST_DOCUMENT, UsageError)
    except UsageError as error:
        raise _no_dataset(name) from error


def parse_marker(text: bytes, name: str) -> Marker:
    """The marker of this text. Raises UsageError, as read_marker()."""
    try:
        marker = json.loads(text)
        version, tables = marker["schema_version"], marker.get("tables", schema.TABLES)
        oldest = marker.get("oldest_schema_version", version)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise _no_dataset(name) from error
    readable = range(schema.OLDEST_VERSION, schema.SCHEMA_VERSION + 1)
    if version not in readable or oldest not in readable:
        newer = isinstance(version, int) and version > schema.SCHEMA_VERSION
        raise UsageError(
            f"{name}: written with schema version {version}, this program reads version {schema.SCHEMA_VERSION}; "
            + ("update ddnn_traces" if newer else "ingest the captures again, into a new folder")
        )
    if isinstance(tables, str) or not isinstance(tables, Sequence) or not set(map(str, tables)) <= set(schema.TABLES):
        raise UsageError(f"{name}: {MARKER} names unknown tables; download this dataset again from its source")
    return Marker(tuple(table for table in schema.TABLES if table in tables), int(oldest))


def marker_is_as_written(dataset: Path) -> bool:
    """Whether dataset.json is, to the byte, one that write_marker() can have written. Raises OSError."""
    text = (dataset / MARKER).read_bytes()
    try:
        marker = json.loads(text)
        return marker["format"] == _FORMAT and marker.keys() <= _KEYS and _text(marker).encode() == text
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return False


def _text(marker: dict[str, Any]) -> str:
    return json.dumps(marker, indent=1) + "\n"


def _no_dataset(name: str) -> UsageError:
    return UsageError(f"{name}: not a ddnn_traces dataset (no readable {MARKER}); make one with 'ddnn-traces ingest'")


# --- the files of a release, which release.json lists

# no *, ? or [, which fsspec and DuckDB would take for a pattern
_TABLE_FILE = re.compile(r"(\w+)/[\w.-]+\.parquet")

#: Longest path, in characters, that every common file system can store.
_LONGEST = 1024


@dataclass(frozen=True)
class ListedFile:
    """A Parquet file of a release: path, table, length in bytes, SHA-256 (hex), runs with rows in it."""

    path: str
    table: str
    bytes: int
    sha256: str
    runs: frozenset[str]


def is_safe(path: str) -> bool:
    """Whether a relative path, with slashes, stays in its folder, also on a system with backslashes and drives."""
    parts = path.split("/")
    odd = any(part in ("", ".", "..") for part in parts)
    return not odd and len(path) <= _LONGEST and path.isprintable() and not {"\\", ":"} & set(path)


def inside(folder: Path, name: str, whose: str) -> Path:
    """The path of a file in a folder by a name that came from outside. whose: says where it came from, for the message.

    Raises UsageError for a name that is not is_safe().
    """
    refuse_unsafe(name, whose)
    return folder / name


def refuse_unsafe(name: str, whose: str) -> None:
    """Raise UsageError for a name that is not is_safe(): names from a store, a log or a manifest all pass here."""
    if not is_safe(name):
        raise UsageError(f"{whose}: {name[:200]!r} is no name of a file in its folder; not opened, ask who made it")


def table_of(path: str) -> str | None:
    """Table of TABLE/NAME.parquet; None for every other path."""
    found = _TABLE_FILE.fullmatch(path)
    return found[1] if found and found[1] in schema.TABLES and is_safe(path) else None


def listed_files(text: bytes, name: str) -> list[ListedFile]:
    """The Parquet files that a release.json lists. name: of the release. Raises ReleaseError."""
    file = f"{name}/{RELEASE}"
    try:
        listed = [file for table in json.loads(text)["tables"] for file in table["files"]]
        found = [
            ListedFile(
                one["path"], table_of(one["path"]) or "", int(one["bytes"]), str(one["sha256"]), frozenset(one["runs"])
            )
            for one in listed
        ]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ReleaseError(f"{file}: cannot be read ({error!r:.200}); ask the publisher") from error
    for one in found:
        if not one.table:
            raise ReleaseError(f"{file}: {one.path[:200]!r} is not a file of a table; not opened")
    return found


def chosen(listed: Iterable[ListedFile], runs: Iterable[str] | None) -> dict[str, list[str]]:
    """Paths of each table's files that have rows of these runs (None: of all); of the table runs, which lists the runs,
    all.
    """
    wanted = None if runs is None else set(runs)
    found: dict[str, list[str]] = {table: [] for table in schema.TABLES}
    for file in sorted(listed, key=lambda file: file.path):
        if wanted is None or file.table == "runs" or file.runs & wanted:
            found[file.table].append(file.path)
    return found
