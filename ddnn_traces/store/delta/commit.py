"""Commits of a dataset on a store: how one is made, and how files are removed that none of the last ones has.

There is no lock: a commit holds with other writers at the same time, and killed ones.

Each table gets one transaction whose result is exactly what the new dataset has: the files at the version that the last
commit names, without those replaced, and the new ones. What another writer left there is undone by it. Then the table
runs gets its transaction, on the condition that it is next after the version this commit began with. Where it is not,
another writer was faster, and all is done again on top of its commit.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from ddnn_traces.errors import StorageError, UsageError
from ddnn_traces.store import object_store, schema
from ddnn_traces.store.delta.delta_dataset import FILES, LAST, THREADS, Head, StoredDataset, TableFile, files_of

#: How often a commit begins again because another writer was faster.
ATTEMPTS = 20

#: New files of tables.
Added = Mapping[str, list[TableFile]]


def commit(dataset: StoredDataset, added: Added, small_files: Callable[[Head], Mapping[str, str]]) -> Head:
    """Put new files, which are uploaded, in the place of those that their runs have in the same tables.

    small_files: the small files (name: path) that the new commit names, made from the one that it follows. Returns
    the new commit. Raises StorageError after too many attempts.
    """
    from deltalake.exceptions import CommitFailedError

    mark = secrets.token_hex(8)
    seen = None
    for attempt in range(1, ATTEMPTS + 1):
        base = dataset.head()
        if seen is not None and _is_done(dataset, mark, range(seen + 1, base.version + 1)):
            return base
        seen = base.version
        try:
            return _attempt(dataset, base, added, small_files, mark)
        except CommitFailedError:
            dataset.retries.add()
            object_store.pause(attempt)
    raise StorageError(
        f"{dataset.name}: other writers were faster {ATTEMPTS} times; nothing was changed, try again when they are done"
    )


def _is_done(dataset: StoredDataset, mark: str, versions: Iterable[int]) -> bool:
    """Whether one of these versions is the commit of a mark: its answer was lost, and others may have followed."""
    return any(found and found.mark == mark for found in map(dataset.head_at, versions))


def _attempt(
    dataset: StoredDataset, base: Head, added: Added, small_files: Callable[[Head], Mapping[str, str]], mark: str
) -> Head:
    """A commit after `base`. Raises deltalake's CommitFailedError where another writer was faster."""
    others = [table for table in schema.TABLES if table != LAST]
    with ThreadPoolExecutor(THREADS) as threads:
        made = threads.map(lambda table: _bring(dataset, table, base.versions.get(table), added.get(table, [])), others)
        versions = dict(zip(others, made, strict=True))
    if base.latest < 0:
        dataset.create(LAST)
    runs = dataset.table(LAST, max(base.latest, 0))
    _with_all_columns(runs, LAST)
    head = Head(int(runs.version()) + 1, versions, small_files(base), mark)
    there = files_of(runs)
    before = there if base.version == base.latest else dataset.files(LAST, base.version if base.is_dataset else None)
    _transact(runs, LAST, there, _desired(before, added.get(LAST, [])), head.metadata())
    return replace(head, latest=head.version)


def _bring(dataset: StoredDataset, table: str, version: int | None, added: list[TableFile]) -> int:
    """Make a table's latest version the files of `version` with those added; return its number."""
    from deltalake.exceptions import CommitFailedError

    wanted: dict[str, TableFile] | None = None
    for attempt in range(1, ATTEMPTS + 1):
        latest = dataset.table(table)
        if latest is None:
            dataset.create(table)
            latest = dataset.table(table)
        there, number = files_of(latest), int(latest.version())
        if wanted is None:
            before = there if version == number else dataset.files(table, version)
            wanted = _desired(before, added)
        if there.keys() == wanted.keys():
            return number
        try:
            _with_all_columns(latest, table)
            number = int(latest.version())
            _transact(latest, table, there, wanted, None)
            return number + 1
        except CommitFailedError:
            dataset.retries.add()
            object_store.pause(attempt)
    raise CommitFailedError(f"{table}: {ATTEMPTS} attempts")


def _desired(before: Mapping[str, TableFile], added: list[TableFile]) -> dict[str, TableFile]:
    """The files of before without those of the runs added, and these."""
    replaced = {file.run_id for file in added}
    kept = {path: file for path, file in before.items() if file.run_id not in replaced}
    return kept | {file.path: file for file in added}


def _transact(
    table: Any,
    name: str,
    there: Mapping[str, TableFile],
    wanted: Mapping[str, TableFile],
    metadata: dict[str, str] | None,
) -> None:
    """The next version of a table, with the files `wanted`. Raises CommitFailedError where that version exists."""
    from deltalake import CommitProperties, PostCommitHookProperties
    from deltalake.transaction import AddAction, RemoveAction

    now = int(time.time() * 1000)
    gone = [
        RemoveAction(path, True, now, file.bytes, {"run_id": file.run_id})
        for path, file in sorted(there.items())
        if path not in wanted
    ]
    new = [
        AddAction(
            path, file.bytes, {"run_id": file.run_id}, file.modified_ms, True, json.dumps({"numRecords": file.rows})
        )
        for path, file in sorted(wanted.items())
        if path not in there
    ]
    with _read_again():
        table.create_write_transaction(
            [*gone, *new],
            "append",
            schema.table(name).arrow(),
            ["run_id"],
            commit_properties=CommitProperties(max_commit_retries=0, custom_metadata=metadata),
            post_commithook_properties=PostCommitHookProperties(create_checkpoint=True, cleanup_expired_logs=False),
        )


@contextlib.contextmanager
def _read_again() -> Iterator[None]:
    """A context in which an answer that was lost or cut short is a CommitFailedError: whether the version was written
    is then not known, and only what the store has now tells.
    """
    from deltalake.exceptions import CommitFailedError

    try:
        yield
    except Exception as error:
        if object_store.is_transient(error):
            raise CommitFailedError("no answer") from error
        raise


def _with_all_columns(table: Any, name: str) -> None:
    """Add the columns that a table of an older schema version lacks; its files stay as they are."""
    from deltalake import CommitProperties, Schema

    known = {field.name for field in table.schema().fields}
    new = [field for field in Schema.from_arrow(schema.table(name).arrow()).fields if field.name not in known]
    if new:
        with _read_again():
            table.alter.add_columns(new, commit_properties=CommitProperties(max_commit_retries=0))


# --- removing what no reader needs any more

# Not by Delta Lake's own vacuum: deltalake 1.6.6 takes live files whose path has a percent sign for strays (runs with
# odd names), and knows nothing of the versions that the table runs names.

#: Days that a reader may take, and an ingest from its first upload to its commit.
DAYS = 7.0
_DAY_S = 86_400.0


@dataclass(frozen=True)
class Stray:
    """An object that no reader needs. path: in the dataset."""

    path: str
    bytes: int


def vacuum(url: str, older_than_days: float = DAYS, dry_run: bool = False) -> list[Stray]:
    """Remove the files that no commit of the last days has and that are older: of replaced runs, and of ingests that
    were never committed. Returns them. dry_run: remove none.

    What the last commit has is never removed. With 0 days nothing may be writing or reading the dataset. Raises
    UsageError, StorageError.
    """
    with object_store.errors(url):
        dataset = StoredDataset(url)
        before = time.time() - older_than_days * _DAY_S if older_than_days else float("inf")
        found = dict(_objects(dataset, before))
        needed = _needed(dataset, before)
        strays = [Stray(path, size) for path, size in sorted(found.items()) if path not in needed]
        if not dry_run:
            with ThreadPoolExecutor(THREADS) as threads:
                for _ in threads.map(lambda stray: _remove(dataset, stray.path), strays):
                    pass
        return strays


def _remove(dataset: StoredDataset, path: str) -> None:
    try:
        object_store.retried(lambda: dataset.filesystem.rm_file(dataset.at(path)))
    except FileNotFoundError:  # another vacuum was faster
        return


def _objects(dataset: StoredDataset, before: float) -> Iterator[tuple[str, int]]:
    """Path and size of the objects that an ingest can have written before a time; no log of a table."""
    for folder in (*schema.TABLES, FILES):
        for path, info in dataset.listing(folder).items():
            is_ours = path.startswith(f"{folder}/run_id=") if folder != FILES else path.endswith(".json")
            if is_ours and _written(info) < before:
                yield path, int(info["size"])


def _written(info: Mapping[str, Any]) -> float:
    """When an object was written, s since the epoch; now where the store does not tell."""
    for key in ("LastModified", "last_modified", "updated", "mtime"):
        when = info.get(key)
        if isinstance(when, str):
            when = datetime.fromisoformat(when)
        if isinstance(when, datetime):
            return when.timestamp()
    return time.time()


def _needed(dataset: StoredDataset, before: float) -> set[str]:
    """Paths of the files of the last commit, and of those that were the last one at some time after `before`."""
    heads = list(_heads(dataset, before))
    tables = {(LAST, head.version) for head in heads} | {pair for head in heads for pair in head.versions.items()}
    with ThreadPoolExecutor(THREADS) as threads:
        of_tables = threads.map(lambda pair: [f"{pair[0]}/{path}" for path in dataset.files(*pair)], sorted(tables))
        return {path for paths in of_tables for path in paths} | {
            path for head in heads for path in head.files.values()
        }


def _heads(dataset: StoredDataset, before: float) -> Iterator[Head]:
    """The last commit, and older ones until one that was followed by another before a time."""
    head = dataset.head()
    if not head.is_dataset:
        raise UsageError(f"{dataset.name}: no dataset; check the URL, or make one with 'ddnn-traces ingest'")
    yield head
    followed_s = _committed_s(dataset, head.version)
    for version in range(head.version - 1, 0, -1):
        if followed_s < before:
            return
        if found := dataset.head_at(version):
            yield found
            followed_s = _committed_s(dataset, version)


def _committed_s(dataset: StoredDataset, version: int) -> float:
    return float(dataset.commit_info(version)["timestamp"]) / 1000
