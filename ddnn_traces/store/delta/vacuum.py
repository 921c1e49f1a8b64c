"""Removing what no reader of a dataset on a store needs any more.

Not by Delta Lake's own vacuum: deltalake 1.6.6 takes live files whose path has a percent sign for strays (runs with odd
names), and knows nothing of the versions that the table runs names.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ddnn_traces.errors import UsageError
from ddnn_traces.store import object_store, schema
from ddnn_traces.store.delta.dataset import FILES, LAST, THREADS, Head, StoredDataset

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
