"""What is in a dataset, in a folder or on a store, for comparisons; runs of many names with the files of one; a writer
that is killed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import ceph
import pytest
from tools import CODE

from ddnn_traces.errors import UsageError
from ddnn_traces.store import checksums, hashes, schema
from ddnn_traces.store.delta.delta_dataset import Head, StoredDataset
from ddnn_traces.store.layout import INPUTS, SOURCES
from ddnn_traces.store.parquet import partition
from ddnn_traces.store.writer import Writer

RUN = "mpi-mlp1-sgd-32-openmpi-0ms-ring-sll2"
OTHER = "mpi-mlp12-sgd-32-openmpi-0ms-ring-tso"

#: BLAKE3 of the file of each table and run.
State = dict[tuple[str, str], str]


def state(where: str | Path) -> State:
    """The content of all Parquet files, as a reader who comes now sees it."""
    if isinstance(where, Path):
        return {
            (table, run_id): hashes.digests_of(path, "blake3")["blake3"]
            for table in schema.TABLES
            for run_id in checksums.run_ids(where)
            if (path := partition(where, table, run_id) / "part-0.parquet").is_file()
        }
    dataset = StoredDataset(where)
    return state_at(dataset, dataset.head())


def state_at(dataset: StoredDataset, head: Head) -> State:
    """The same of a commit."""
    found: State = {}
    for table, files in dataset.all_files(head).items():
        for file in files.values():
            assert (table, file.run_id) not in found
            digest = hashes.hasher("blake3")
            digest.update(memoryview(dataset.read(f"{table}/{file.path}")))
            found[table, file.run_id] = digest.hexdigest()
    return found


def objects(url: str) -> set[str]:
    """All objects but the logs of the tables."""
    dataset = StoredDataset(url)
    found = {str(path).removeprefix(dataset.at("")) for path in dataset.filesystem.find(dataset.root)}
    return {path for path in found if "/_delta_log/" not in path}


def in_use(url: str) -> set[str]:
    """The objects of the last commit, and the marker."""
    dataset = StoredDataset(url)
    head = dataset.head()
    tables = dataset.all_files(head).items()
    return {"dataset.json", *head.files.values(), *(f"{table}/{path}" for table, files in tables for path in files)}


def write(writer: Writer, source: Path, run_id: str, names: Iterable[str]) -> dict[str, str]:
    """Give a writer the files of a run under these names; returns the texts of its commit."""
    names = [*names]
    for name in names:
        with writer.new_run(name):
            for table in schema.TABLES:
                writer.put(table, name, partition(source, table, run_id) / "part-0.parquet")
    return texts(writer, names)


def texts(writer: Writer, names: Iterable[str]) -> dict[str, str]:
    """inputs.json and sources.json with entries of these runs, beside those that the writer knows."""
    there = writer.texts()
    new: dict[str, Mapping[str, object]] = {
        INPUTS: {name: {"made": name} for name in names},
        SOURCES: {name: f"../{name}" for name in names},
    }
    return {
        name: checksums.small_text(name, checksums.entries(name, there.get(name)) | dict(new[name])) for name in new
    }


def entries(url: str, name: str) -> dict[str, object]:
    """What a small file of the last commit has of each run."""
    dataset = StoredDataset(url)
    text = dataset.texts(dataset.head(), [name])[name]
    json.loads(text)
    return checksums.entries(name, text)


def of(found: State, run_id: str) -> dict[str, str]:
    """The files of a run by table."""
    return {table: digest for (table, run), digest in found.items() if run == run_id}


def fails(call: Callable[[], object], message: str, kind: type[Exception] = UsageError) -> None:
    with pytest.raises(kind, match=message) as error:
        call()
    assert "\n" not in str(error.value) and ceph.SECRET not in str(error.value)


#: Ends itself, by a signal that no program can catch, at the n-th change of the store, before or after it.
KILLED = (
    CODE.rsplit("from", 1)[0]
    + """
import itertools, os, signal
from ddnn_traces.store import copying
from ddnn_traces.store.delta import commit, delta_dataset

source, url, last, after = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4] == "after"
calls = itertools.count(1)

def killing(change):
    def changed(*arguments, **options):
        number = next(calls)
        if number == last and not after:
            os.kill(os.getpid(), signal.SIGKILL)
        result = change(*arguments, **options)
        if number == last:
            os.kill(os.getpid(), signal.SIGKILL)
        return result
    return changed

stored = delta_dataset.StoredDataset
for owner, name in [(stored, "put"), (stored, "upload"), (stored, "create"), (commit, "_transact")]:
    setattr(owner, name, killing(getattr(owner, name)))
copying.copy(source, url)
"""
)


def killed(source: Path, url: str, point: tuple[int, str]) -> bool:
    """Copy in a process that is killed at a point; False where it ended before."""
    done = subprocess.run([sys.executable, "-c", KILLED, str(source), url, *map(str, point)], check=False)
    assert done.returncode in (0, -signal.SIGKILL)
    return done.returncode != 0


#: Changes of a first commit: the marker, the uploads, a table and a transaction each, small files and runs.
TABLES = len(schema.TABLES)
FIRST = 1 + 2 * TABLES + 2 * TABLES + 3
#: Those of a commit on top of one.
NEXT = 2 * TABLES + TABLES + 3
