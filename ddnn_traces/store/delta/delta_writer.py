"""Writing a dataset on an object store: the files of finished runs are uploaded, then committed."""

from __future__ import annotations

import secrets
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Self

import pyarrow as pa
import pyarrow.parquet as pq

from ddnn_traces.errors import StorageError, UsageError
from ddnn_traces.store import checksums, hashes, layout, object_store, schema
from ddnn_traces.store.delta.commit import commit
from ddnn_traces.store.delta.delta_dataset import FILES, LAST, Head, StoredDataset, TableFile
from ddnn_traces.store.layout import MARKER
from ddnn_traces.store.parquet import partition
from ddnn_traces.store.writer import Writer, schema_version, write_rows
from ddnn_traces.text import counted

#: Files that are uploaded at the same time.
_UPLOADS = 8


class StoreWriter(Writer):
    """New versions of the dataset at a URL: commit() puts one in place, leaving the context discards the rest.

    There is no lock: several writers may work at once, and none waits. A run that two of them write is that of the one
    who commits last. Raises UsageError when the URL has something else than a dataset of this schema version.
    """

    def __init__(self, url: str, wait: bool = True, report: Callable[[str], None] = lambda _: None) -> None:
        self._dataset = StoredDataset(url)
        super().__init__(self._dataset.name)
        self._report = report
        self._head = Head()
        self._runs: set[str] = set()
        self._texts: dict[str, str] = {}
        self._given: dict[str, str] = {}  # those that the caller's texts began with
        self._stored: dict[str, checksums.Files] = {}
        #: Files of the runs that were written since the last commit, by table and run; those that are uploaded.
        self._new: dict[str, dict[str, Path]] = {table: {} for table in schema.TABLES}
        self._uploaded: dict[tuple[str, str], tuple[TableFile, checksums.StoredFile]] = {}
        self._oldest = schema.SCHEMA_VERSION
        self._told = 0

    def __enter__(self) -> Self:
        with object_store.errors(self._dataset.url):
            self._check_target()
            self._read(self._dataset.head())
        self.texts()
        self.partial = Path(tempfile.mkdtemp(prefix="ddnn-traces-"))
        self.scratch.mkdir()
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.partial, ignore_errors=True)

    def _check_target(self) -> None:
        """Raise UsageError unless there is nothing at the URL, or a dataset."""
        there = self._dataset.some_objects()
        if there and MARKER not in there:
            raise UsageError(
                f"{self.name}: there is something else than a ddnn_traces dataset ({there[0]}); choose another URL"
            )
        if there and {layout.RELEASE, layout.STORED_FILES} & {*there}:  # which no commit writes there
            raise UsageError(
                f"{self.name}: a dataset or release copied there as plain files; choose another URL, and bring it "
                "there with 'ddnn-traces copy'"
            )
        if there:
            self._dataset.marker()

    def _read(self, head: Head) -> None:
        """Take a commit as the dataset that is there."""
        self._head = head
        self._runs = {
            file.run_id for file in self._dataset.files(LAST, head.version if head.is_dataset else None).values()
        }
        self._texts = self._dataset.texts(head, checksums.NAMES)
        self._stored = checksums.parsed(self._texts.get(checksums.FILE, ""))

    @property
    def exists(self) -> bool:
        return self._head.is_dataset

    @property
    def folder(self) -> Path | None:
        """None: the dataset is on no disk."""
        return None

    def is_there(self, run_id: str) -> bool:
        """Whether the dataset has the run, as of the last commit that this writer has read or made."""
        return run_id in self._runs

    def texts(self) -> dict[str, str]:
        """Content of inputs.json and sources.json, as of that commit."""
        self._given = {name: text for name, text in self._texts.items() if name != checksums.FILE}
        return dict(self._given)

    def damages(self, run_id: str) -> list[checksums.Damage]:
        """None: the store has checksums of its own; 'ddnn-traces check' reads every byte."""
        return []

    def damaged_records(self) -> list[checksums.Damage]:
        """None, as damages()."""
        return []

    def write(self, table: str, run_id: str, batches: Iterable[pa.RecordBatch], provenance: dict[str, str]) -> None:
        """Write a run's rows of one table, on this machine. batches: in the table's schema and order."""
        write_rows(self.new_file(table, run_id), table, batches, provenance)
        self._add(table, run_id, self.new_file(table, run_id))

    def take(self, table: str, run_id: str, file: Path) -> None:
        super().take(table, run_id, file)
        self._add(table, run_id, self.new_file(table, run_id))

    def put(self, table: str, run_id: str, file: Path) -> None:
        """As write(), of a Parquet file of another dataset, which must stay until the next commit."""
        self._add(table, run_id, file)
        if table == LAST:
            self._oldest = min(self._oldest, schema_version(file))

    def _add(self, table: str, run_id: str, path: Path) -> None:
        self._new[table][run_id] = path
        self._uploaded.pop((table, run_id), None)

    def commit(self, files: Mapping[str, str]) -> None:
        """Upload what was written, and make it the dataset, with these text files (name: content).

        Raises StorageError where another writer has replaced a run of which only some tables were written here.
        """
        with object_store.errors(self._dataset.url):
            self._write_marker()
            self._upload()
            added = {
                table: [self._uploaded[table, run_id][0] for run_id in sorted(of_runs)]
                for table, of_runs in self._new.items()
            }
            self._finish(added, files)
        self._remove_written()
        self.committed = len(self.written)

    def commit_finished(self, files: Mapping[str, str]) -> None:
        """As commit(), after an interrupt, also one that came during a commit, which may have been done."""
        if self.uncommitted:
            for of_runs in self._new.values():
                for run_id in of_runs.keys() - {*self.written}:
                    del of_runs[run_id]
            self.commit(files)

    def replace_files(self, files: Mapping[str, str]) -> None:
        """Commit these text files where they differ, and nothing else of the dataset. Raises StorageError."""
        if any(self._texts.get(name) != self._merged(name, text, self._texts, set()) for name, text in files.items()):
            with object_store.errors(self._dataset.url):
                self._finish({}, files)

    def _write_marker(self) -> None:
        """Write dataset.json, before anything else is there: a target without it is somebody else's."""
        there = self._dataset.marker()
        oldest = min(self._oldest, there.oldest if there else self._oldest)
        if there is None or there.oldest != oldest or not self._dataset.marker_is_current():
            layout.write_marker(self.scratch, oldest=oldest)
            self._dataset.put(MARKER, (self.scratch / MARKER).read_bytes())

    def _upload(self) -> None:
        """Upload the new files, each once: a commit that is tried again takes those that are there."""
        waiting = [
            (table, run_id)
            for table, of_runs in self._new.items()
            for run_id in of_runs
            if (table, run_id) not in self._uploaded
        ]
        pool = ThreadPoolExecutor(_UPLOADS, "uploads")
        try:
            for key, done in zip(waiting, pool.map(self._upload_one, waiting), strict=True):
                self._uploaded[key] = done
        finally:
            pool.shutdown(cancel_futures=True)

    def _upload_one(self, key: tuple[str, str]) -> tuple[TableFile, checksums.StoredFile]:
        table, run_id = key
        path = self._new[table][run_id]
        size, rows = path.stat().st_size, pq.read_metadata(path).num_rows
        digest = hashes.digests_of(path, hashes.DEFAULT)[hashes.DEFAULT]
        name = f"{partition(Path(), table, run_id).name}/part-0-{secrets.token_hex(8)}.parquet"
        self._dataset.upload(str(path), f"{table}/{name}")
        return TableFile(name, run_id, size, rows, int(time.time() * 1000)), checksums.StoredFile(size, digest)

    def _finish(self, added: Mapping[str, list[TableFile]], files: Mapping[str, str]) -> None:
        """Commit, on top of whatever others commit meanwhile."""
        written = {file.run_id for new in added.values() for file in new}
        made: dict[str, str] = {}

        def small_files(base: Head) -> dict[str, str]:
            theirs = self._texts if base.mark == self._head.mark else self._dataset.texts(base, checksums.NAMES)
            for name, text in files.items():
                made[name] = self._merged(name, text, theirs, written)
            made[checksums.FILE] = self._checksums(theirs.get(checksums.FILE), written)
            return {name: self._put_small(name, text) for name, text in made.items()}

        head = commit(self._dataset, added, small_files)
        self._report_retries()
        self._read(head)

    def _merged(self, name: str, text: str, theirs: Mapping[str, str], written: set[str]) -> str:
        """The caller's text with what others committed since it asked for texts(), also before a commit of ours."""
        return checksums.merged(name, self._given.get(name), text, theirs.get(name), written)

    def _checksums(self, theirs: str | None, written: set[str]) -> str:
        """Content of checksums.json. theirs: that of the commit before."""
        stored = checksums.parsed(theirs or "")
        for run_id in sorted(written):
            kept: checksums.Files = {}
            if run_id in self._kept:
                kept = stored.get(run_id, {})
                if kept != self._stored.get(run_id, {}):
                    raise StorageError(
                        f"{self.name}: run {run_id} was replaced by another ingest meanwhile; ingest it again"
                    )
            own = {
                f"{table}/{done.local}": state
                for (table, run), (done, state) in self._uploaded.items()
                if run == run_id
            }
            stored[run_id] = {**kept, **own}
        return checksums.text(stored)

    def _put_small(self, name: str, text: str) -> str:
        """Write a version of a small file; return its path, which is that of its content."""
        digest = hashes.hasher("blake3")
        digest.update(memoryview(text.encode()))
        path = f"{FILES}/{name.removesuffix('.json')}-{digest.hexdigest()[:16]}.json"
        self._dataset.put(path, text.encode())
        return path

    def _report_retries(self) -> None:
        if new := self._dataset.retries.count - self._told:
            self._report(f"{self.name}: {counted(new, 'request')} had to be repeated (a busy store, or another writer)")
            self._told += new

    def _remove_written(self) -> None:
        """Forget what is committed. Files of other datasets stay."""
        shutil.rmtree(self.partial / "next", ignore_errors=True)
        self._new = {table: {} for table in schema.TABLES}
        self._uploaded = {}
        self._kept = set()
