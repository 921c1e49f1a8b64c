"""The objects of a dataset on a store: its tables at a version, its small files."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote

from ddnn_traces.errors import UsageError, needs_extra
from ddnn_traces.store import checksums, layout, object_store, schema
from ddnn_traces.store.object_store import Retries, retried

#: Key of our metadata in the commits of the table runs.
METADATA = "ddnn_traces"
#: Requests at the same time.
THREADS = 16

#: The table whose commit is that of the dataset.
LAST = "runs"
#: Folder of the small files.
FILES = "files"


@dataclass(frozen=True)
class TableFile:
    """A Parquet file of a table. path: below the table's folder, as the object's key has it. rows: how many it has."""

    path: str
    run_id: str
    bytes: int
    rows: int
    modified_ms: int = 0

    @property
    def local(self) -> str:
        """Its path below the table's folder in a dataset on a disk."""
        return f"{PurePosixPath(self.path).parent}/part-0.parquet"


@dataclass(frozen=True)
class Head:
    """A commit: the version of the table runs, those of the others, the small files by name, and a mark of its own.

    version: of runs; latest: the newest one of that table, which is later where another program wrote since. Both are
    -1 where there is no table; without a mark there is no dataset yet.
    """

    version: int = -1
    versions: Mapping[str, int] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    mark: str = ""
    latest: int = -1

    @property
    def is_dataset(self) -> bool:
        """Whether anything was committed."""
        return self.version >= 0 and bool(self.mark)

    def metadata(self) -> dict[str, str]:
        """What the commit of runs says."""
        return {METADATA: json.dumps({"versions": self.versions, "files": self.files, "mark": self.mark})}


class StoredDataset:
    """A dataset at a URL. Raises UsageError for a scheme that is not known."""

    def __init__(self, url: str) -> None:
        with needs_extra("cluster"):
            import deltalake  # noqa: F401
        object_store.check_dataset(url)
        self.url = url.rstrip("/")
        self.name = object_store.shown(self.url)
        self.filesystem, self.root = object_store.filesystem(self.url)
        self._options = object_store.delta_options(self.url)
        self.retries = Retries()

    # --- objects

    def at(self, path: str) -> str:
        """Where the file system has a path of the dataset."""
        return f"{self.root}/{path}"

    def read(self, path: str) -> bytes:
        """An object whole. Raises FileNotFoundError."""
        return bytes(retried(lambda: self.filesystem.cat_file(self.at(path)), self.retries))

    def put(self, path: str, content: bytes) -> None:
        """Write an object."""
        retried(lambda: self.filesystem.pipe_file(self.at(path), content), self.retries)

    def upload(self, source: str, path: str) -> None:
        """Write an object from a file of this machine."""
        retried(lambda: self.filesystem.put_file(source, self.at(path)), self.retries)

    def download(self, path: str, target: Path) -> None:
        """Write a file of this machine from an object."""
        retried(lambda: self.filesystem.get_file(self.at(path), str(target)), self.retries)

    def listing(self, folder: str) -> dict[str, dict[str, Any]]:
        """The objects in a folder and below it, by path in the dataset."""
        found = retried(lambda: self.filesystem.find(self.at(folder), detail=True), self.retries)
        return {str(path).removeprefix(self.at("")): info for path, info in found.items()}

    def marker(self) -> layout.Marker | None:
        """What dataset.json states; None where it is not there. Raises UsageError as layout.parse_marker()."""
        try:
            text = self.read(layout.MARKER)
        except FileNotFoundError as error:
            if object_store.lacks_bucket(error):
                raise
            return None
        return layout.parse_marker(text, self.name)

    def marker_is_current(self) -> bool:
        """Whether dataset.json states this program's schema version, as its newest."""
        return bool(json.loads(self.read(layout.MARKER))["schema_version"] == schema.SCHEMA_VERSION)

    def some_objects(self) -> list[str]:
        """Names of what is at the URL; nothing where nothing is. Raises FileNotFoundError without a bucket."""
        try:
            found = retried(lambda: self.filesystem.ls(self.root, detail=False), self.retries)
        except FileNotFoundError as error:
            if object_store.lacks_bucket(error):
                raise
            return []
        return sorted(str(path).rstrip("/").rpartition("/")[2] for path in found)

    # --- tables

    def table(self, name: str, version: int | None = None) -> Any:
        """A Delta table, at its latest version or at another one; None where there is none."""
        from deltalake import DeltaTable
        from deltalake.exceptions import TableNotFoundError

        where = f"{self.url}/{name}"
        try:
            return retried(lambda: DeltaTable(where, version, self._options), self.retries)
        except TableNotFoundError:
            return None

    def create(self, name: str) -> None:
        """Make an empty table, unless another writer does."""
        from deltalake import CommitProperties, DeltaTable
        from deltalake.exceptions import CommitFailedError, DeltaError

        try:
            retried(
                lambda: DeltaTable.create(
                    f"{self.url}/{name}",
                    schema.table(name).arrow(),
                    mode="ignore",
                    partition_by="run_id",
                    configuration={"delta.enableExpiredLogCleanup": "false"},  # the versions that runs names stay
                    storage_options=self._options,
                    # else one that another writer has made is made again, as its next version
                    commit_properties=CommitProperties(max_commit_retries=0),
                ),
                self.retries,
            )
        except (CommitFailedError, DeltaError):
            if self.table(name) is None:
                raise

    def head(self) -> Head:
        """The latest commit."""
        table = self.table(LAST)
        latest = -1 if table is None else int(table.version())
        for version in range(latest, 0, -1):
            if found := self.head_at(version):
                return replace(found, latest=latest)
        return Head(min(latest, 0), latest=latest)

    def head_at(self, version: int) -> Head | None:
        """The commit that is a version of runs; None where another program wrote it (OPTIMIZE, a new column).

        Raises UsageError for one that this program does not write.
        """
        try:
            commit = self.commit_info(version)
            if METADATA not in commit:
                return None
            said = json.loads(commit[METADATA])
            head = Head(version, said["versions"], said["files"], said["mark"], latest=version)
            plain = all(isinstance(text, str) for text in (head.mark, *head.files, *head.files.values()))
            plain &= all(isinstance(number, int) for number in head.versions.values())
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            plain = False
        if not plain:
            raise UsageError(f"{self.name}: commit {version} is none of this program's; not opened, restore its log")
        for path in head.files.values():
            layout.refuse_unsafe(path, f"{self.name}: commit {version}")
        return head

    def commit_info(self, version: int) -> dict[str, Any]:
        """What the log of runs says of a commit.

        Not by DeltaTable.history(), which gives the latest commits under the numbers of older ones (deltalake 1.6.6).
        """
        lines = self.read(f"{LAST}/_delta_log/{version:020}.json").splitlines()
        found: dict[str, Any] = next(
            (line["commitInfo"] for line in map(json.loads, lines) if "commitInfo" in line), {}
        )
        return found

    def files(self, name: str, version: int | None) -> dict[str, TableFile]:
        """The files of a table at a version, by path. None: a table that there was not yet."""
        return {} if version is None else files_of(self.table(name, version))

    def all_files(self, head: Head) -> dict[str, dict[str, TableFile]]:
        """The files of every table of a commit, by table and path."""
        versions = {**head.versions, LAST: head.version} if head.is_dataset else {}
        with ThreadPoolExecutor(THREADS) as threads:
            found = threads.map(lambda table: self.files(table, versions.get(table)), schema.TABLES)
            return dict(zip(schema.TABLES, found, strict=True))

    def texts(self, head: Head, names: Iterable[str] = (layout.INPUTS, layout.SOURCES)) -> dict[str, str]:
        """The small files of a commit by name, without those that it does not have."""
        return {name: self.read(head.files[name]).decode() for name in names if name in head.files}

    def checksums(self, head: Head) -> dict[str, checksums.Files]:
        """What was recorded of each run's files in a commit."""
        return checksums.parsed(self.texts(head, [checksums.FILE]).get(checksums.FILE, ""))


def files_of(table: Any) -> dict[str, TableFile]:
    """The files of a Delta table by path. Delta's paths are percent-encoded keys, and whoever writes the log chooses
    them. Raises UsageError for one outside the table.
    """
    import pyarrow as pa

    rows = pa.table(retried(table.get_add_actions)).select(
        ["path", "size_bytes", "modification_time", "num_records", "partition"]
    )
    found = (
        TableFile(
            unquote(row["path"]),
            row["partition"]["run_id"],
            row["size_bytes"],
            row["num_records"] or 0,
            row["modification_time"],
        )
        for row in rows.to_pylist()
    )
    files = {file.path: file for file in found}
    for path in files:
        layout.refuse_unsafe(path, f"the log of {object_store.shown(table.table_uri)}")
    return files
