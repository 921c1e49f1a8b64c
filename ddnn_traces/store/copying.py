"""Copies of datasets between folders and object stores: the same Parquet files, byte by byte."""

from __future__ import annotations

import fnmatch
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ddnn_traces.errors import UsageError
from ddnn_traces.jobs import thread_pool
from ddnn_traces.store import checksums, hashes, layout, object_store, schema
from ddnn_traces.store.delta.delta_dataset import LAST, Head, StoredDataset, TableFile
from ddnn_traces.store.layout import INPUTS, SOURCES
from ddnn_traces.store.parquet import rows_file
from ddnn_traces.store.places import writer_of
from ddnn_traces.store.writer import Writer
from ddnn_traces.text import nearest

_DOWNLOADS = 8


@dataclass(frozen=True)
class Copied:
    """What was copied: the runs, and the bytes of their tables. replaced: how many runs were there before."""

    runs: list[str]
    bytes: int
    replaced: int


def copy(
    source: str | Path,
    target: str | Path,
    runs: Sequence[str] | None = None,
    report: Callable[[str], None] = lambda _: None,
) -> Copied:
    """Copy a dataset, or the runs that these names and patterns match, into another: one commit of it.

    A run of the same name is replaced. source, target: a folder or the URL of an object store. Raises UsageError,
    StorageError, and UsageError where a file is not what was written.
    """
    opened = _source(source)
    chosen = _chosen(opened, runs)
    with writer_of(target, report=report) as writer:
        replaced, size = sum(map(writer.is_there, chosen)), 0
        for run_id in chosen:
            with writer.new_run(run_id):
                size += _put(opened, writer, run_id)
        writer.commit(_texts(opened, writer, chosen))
    return Copied(chosen, size, replaced)


class _Source(ABC):
    """A dataset that is copied. texts: its small files by name."""

    name: str
    runs: set[str]
    texts: Mapping[str, str]

    @abstractmethod
    def files(self, run_id: str, scratch: Path) -> dict[str, Path]:
        """The Parquet file of each table of a run, proven; in `scratch` where it was not on this machine."""


class _Folder(_Source):
    def __init__(self, folder: Path) -> None:
        layout.read_marker(folder)
        if (layout.content(folder) / layout.RELEASE).is_file():
            raise UsageError(f"{folder}: a release, not a dataset; 'ddnn-traces push' uploads it")
        self.name, self._folder = str(folder), folder
        self.runs = checksums.run_ids(folder)
        self._recorded = checksums.read(folder)
        self.texts = layout.texts(folder)

    def files(self, run_id: str, scratch: Path) -> dict[str, Path]:
        """The files of a run, by table. Raises UsageError for a damaged run."""
        if found := checksums.damages(self._folder, run_id, self._recorded.get(run_id)):
            raise UsageError(
                f"{self.name}: {checksums.summary(found)}; ingest that run again, or choose others with --run"
            )
        paths = {table: rows_file(self._folder, table, run_id) for table in schema.TABLES}
        return {table: path for table, path in paths.items() if path.is_file()}


class _Store(_Source):
    def __init__(self, url: str) -> None:
        with object_store.errors(url):
            self._dataset = StoredDataset(url)
            self.name = self._dataset.name
            head = self._dataset.head()
            if not head.is_dataset:
                raise UsageError(f"{self.name}: no dataset; check the URL, or make one with 'ddnn-traces ingest'")
            self._dataset.marker()
            self._read(head)

    def _read(self, head: Head) -> None:
        self._tables = self._dataset.all_files(head)
        self.runs = {file.run_id for file in self._tables[LAST].values()}
        self.texts = self._dataset.texts(head)
        self._recorded = self._dataset.checksums(head)
        self._files: dict[str, list[tuple[str, TableFile]]] = {run_id: [] for run_id in self.runs}
        for table, files in self._tables.items():
            for file in files.values():
                self._files[file.run_id].append((table, file))

    def files(self, run_id: str, scratch: Path) -> dict[str, Path]:
        with object_store.errors(self._dataset.url), thread_pool(_DOWNLOADS) as threads:
            paths = threads.map(lambda one: self._fetched(one[0], one[1], scratch), self._files[run_id])
            return {table: path for (table, _), path in zip(self._files[run_id], paths, strict=True)}

    def _fetched(self, table: str, file: TableFile, scratch: Path) -> Path:
        path = rows_file(scratch, table, file.run_id)
        path.parent.mkdir(parents=True)
        self._dataset.download(f"{table}/{file.path}", path)
        digest = hashes.digests_of(path, hashes.DEFAULT)[hashes.DEFAULT]
        recorded = self._recorded.get(file.run_id, {}).get(f"{table}/{file.local}")
        if recorded is not None and recorded != checksums.StoredFile(path.stat().st_size, digest):
            raise UsageError(
                f"{self.name}/{table}/{file.path}: is not what was written; ingest that run again, or choose others "
                "with --run"
            )
        return path


def _source(where: str | Path) -> _Source:
    return _Store(str(where)) if object_store.is_store(where) else _Folder(Path(where))


def _chosen(source: _Source, patterns: Sequence[str] | None) -> list[str]:
    """The runs that are copied, in order. Raises UsageError where a name or pattern matches none, or there is none."""
    chosen: set[str] = set() if patterns else {*source.runs}
    for pattern in patterns or ():
        found = {pattern} if pattern in source.runs else {*fnmatch.filter(source.runs, pattern)}
        if not found:
            raise UsageError(f"{source.name}: no run named {pattern}; {nearest(pattern, sorted(source.runs))}")
        chosen |= found
    if not chosen:
        raise UsageError(f"{source.name}: has no run to copy; ingest one first")
    return sorted(chosen)


def _put(source: _Source, writer: Writer, run_id: str) -> int:
    """Give the files of a run to the writer; return their bytes."""
    scratch = writer.scratch / "copied"
    files = source.files(run_id, scratch)
    for table, path in files.items():
        writer.put(table, run_id, path)
    size = sum(path.stat().st_size for path in files.values())
    if writer.folder is not None:  # which has its own copy now
        _remove(path for path in files.values() if path.is_relative_to(scratch))
    return size


def _remove(paths: Iterable[Path]) -> None:
    for path in paths:
        path.unlink()


def _texts(source: _Source, writer: Writer, chosen: Sequence[str]) -> dict[str, str]:
    """inputs.json and sources.json of the target: its own, with what the source has of the runs that are copied."""
    there, texts = writer.texts(), {}
    for name in (INPUTS, SOURCES):
        kept = checksums.of_runs(name, there.get(name), lambda run_id: run_id not in chosen)
        new = checksums.of_runs(name, source.texts.get(name), chosen.__contains__)
        if not kept and {*chosen} == source.runs and name in source.texts:
            texts[name] = source.texts[name]
        elif kept or new:
            texts[name] = checksums.small_text(name, kept | new)
    return texts
