"""Where the files of an open dataset or release are, and those of one in a folder."""

from __future__ import annotations

import glob
import re
import zipfile
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ddnn_traces.errors import DdnnTracesError, ReleaseError, UsageError
from ddnn_traces.store import checksums, layout, schema
from ddnn_traces.store.layout import ListedFile, read_marker
from ddnn_traces.store.parquet import partition
from ddnn_traces.text_files import MOST_LOG, read_bytes

if TYPE_CHECKING:
    import duckdb

_URL = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*://.+", re.S)


@dataclass(frozen=True)
class Place:
    """Where the files of an open dataset are.

    name: as the user wrote it. files: what DuckDB reads for each table: paths and globs; empty where the dataset does
    not have the table. listed: the files of a release, None of a dataset. folder: the folder of the tables, if they are
    on this machine. has_older_runs: as that of the marker. filesystem: of fsspec, through which DuckDB reads remote
    files; `failure` returns the error of a failed read. Of a dataset on a store: known_runs has the names of all runs,
    filled those with rows in each table, damages returns the files that are not what was written.
    """

    name: str
    files: Mapping[str, Sequence[str]]
    listed: Sequence[ListedFile] | None = None
    folder: Path | None = None
    has_older_runs: bool = False
    filesystem: Any = None
    failure: Callable[[], DdnnTracesError | None] = lambda: None
    close: Callable[[], None] = lambda: None
    known_runs: frozenset[str] | None = None
    filled: Mapping[str, Collection[str]] | None = None
    damages: Callable[[], list[checksums.Damage]] | None = None

    def attach(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Let a connection read the files."""
        if self.filesystem is not None:
            connection.register_filesystem(self.filesystem)

    def error(self) -> DdnnTracesError | None:
        """Why a read failed: what happened on the network, or the damaged files of a folder, which are all read."""
        if failure := self.failure():
            return failure
        if self.folder is None or not self.folder.is_dir():
            return None
        if self.listed is None:
            damaged = [
                damage for damage in checksums.all_damages(self.folder, pages=False) if damage.run_id is not None
            ]
            step = "ingest that run again, or choose others with --run"
        else:
            damaged, step = checksums.listed_damages(self.folder, self.listed), "download the release again"
        if not damaged:
            return None
        return UsageError(f"{self.name}: {checksums.summary(damaged)}; {step} ('ddnn-traces check' lists the files)")

    def run_ids(self) -> set[str]:
        """All runs of a dataset in a folder or on a store, or of a release."""
        if self.known_runs is not None:
            return {*self.known_runs}
        if self.listed is not None:
            return set().union(*(file.runs for file in self.listed if file.table == "runs"))
        return checksums.run_ids(self.on_this_machine())

    def on_this_machine(self) -> Path:
        """The folder of the tables. Raises UsageError where they are on another machine."""
        if self.folder is None:
            step = "download the release" if self.known_runs is None else "copy the dataset with 'ddnn-traces copy'"
            raise UsageError(f"{self.name}: this works only on files of this machine; {step} first")
        return self.folder


def is_zip(path: Path) -> bool:
    """Whether it is a zip file. Raises ReleaseError for one that was cut short."""
    if not path.is_file() or zipfile.is_zipfile(path):
        return path.is_file()
    with path.open("rb") as file:
        if file.read(4) == b"PK\x03\x04":
            raise ReleaseError(
                f"{path}: this zip file was cut short: its end, with the list of its files, is missing; download it "
                "again"
            )
    return False


def path_of_url(url: str) -> Path:
    """The path of a URL file://."""
    from urllib.request import url2pathname  # here: it loads a client of HTTP

    return Path(url2pathname(urlsplit(url).path))


def in_folder(path: Path, runs: Sequence[str] | None = None) -> Place:
    """The place of a dataset, a release or a BagIt bag in a folder. Raises UsageError where there is none of this
    schema version.

    runs: as in find(); files of other runs are not opened, and so may be damaged.
    """
    content = layout.content(path)
    marker = read_marker(content)
    if not (content / layout.RELEASE).is_file():
        files = table_globs(content, tables_of(marker, content), runs)
        return Place(str(path), files, None, content, marker.has_older_runs)
    listed = layout.listed_files(read_bytes(content / layout.RELEASE, MOST_LOG, ReleaseError), str(path))
    paths = {
        table: [glob.escape(f"{content}/{path}") for path in paths] if table in marker.tables else []
        for table, paths in layout.chosen(listed, runs).items()
    }
    return Place(str(path), paths, listed, content, marker.has_older_runs)


def tables_of(marker: layout.Marker, folder: Path) -> tuple[str, ...]:
    """The marker's tables, but those that an older dataset cannot have."""
    if not marker.has_older_runs:
        return marker.tables
    return tuple(table for table in marker.tables if any((folder / table).glob("run_id=*")))


def table_globs(
    folder: Path, tables: tuple[str, ...] = schema.TABLES, runs: Sequence[str] | None = None
) -> dict[str, list[str]]:
    """The globs that DuckDB reads for each of these tables of a dataset's folder, of these runs (None: of all); an
    empty list for the others.

    A release without its release.json has files directly in a table's folder.
    """
    flat = {table for table in tables if any((folder / table).glob("*.parquet"))}
    if runs is None or flat:
        globs = {
            table: [f"{glob.escape(str(folder / table))}/{'*.parquet' if table in flat else '*/*.parquet'}"]
            for table in tables
        }
    else:
        folders = {table: [partition(folder, table, run_id) for run_id in runs] for table in tables}
        globs = {
            table: [f"{glob.escape(str(path))}/*.parquet" for path in paths if path.is_dir()]
            for table, paths in folders.items()
        }
    return {table: globs.get(table, []) for table in schema.TABLES}


def is_url(text: object) -> bool:
    """Whether a value is the text of a URL; a Path never is."""
    return isinstance(text, str) and bool(_URL.fullmatch(text))
