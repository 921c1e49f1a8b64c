"""What is in a dataset, in a folder or on a store, for comparisons; runs of many names with the files of one."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from ddnn_traces.store import checksums, hashes, records, schema
from ddnn_traces.store.delta.dataset import Head, StoredDataset
from ddnn_traces.store.layout import INPUTS, SOURCES
from ddnn_traces.store.parquet import partition
from ddnn_traces.store.writing import Writer

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
    return {name: records.text_of(name, records.entries(name, there.get(name)) | dict(new[name])) for name in new}


def entries(url: str, name: str) -> dict[str, object]:
    """What a small file of the last commit has of each run."""
    dataset = StoredDataset(url)
    text = dataset.texts(dataset.head(), [name])[name]
    json.loads(text)
    return records.entries(name, text)
