"""What an ingest writes to: a dataset in a folder (writer.py) or on an object store (delta/writer.py)."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    import pyarrow as pa

    from ddnn_traces.store.checksums import Damage


class Writer(ABC):
    """New versions of a dataset: commit() puts one in place, leaving the context discards the rest.

    name: of the dataset as users see it.
    """

    #: Folder for what is not finished, on this machine.
    partial: Path

    def __init__(self, name: str) -> None:
        self.name = name
        #: Whether it had to wait for another ingest.
        self.waited = False
        #: Runs that were written, and how many of them are in the dataset.
        self.written: list[str] = []
        self.committed = 0
        self._kept: set[str] = set()  # runs whose other tables are those in the dataset

    @abstractmethod
    def __enter__(self) -> Self: ...

    @abstractmethod
    def __exit__(self, *_: object) -> None: ...

    @property
    @abstractmethod
    def scratch(self) -> Path:
        """Folder for temporary files."""

    @property
    @abstractmethod
    def exists(self) -> bool:
        """Whether there is a dataset now."""

    @property
    @abstractmethod
    def folder(self) -> Path | None:
        """The folder of the dataset, None where it is on a store."""

    @abstractmethod
    def is_there(self, run_id: str) -> bool:
        """Whether the dataset has the run now."""

    @abstractmethod
    def texts(self) -> dict[str, str]:
        """Content of inputs.json and sources.json of the dataset now, without those that are missing or no text."""

    @abstractmethod
    def damages(self, run_id: str) -> Sequence[Damage]:
        """What is damaged of a run in the dataset."""

    @abstractmethod
    def damaged_records(self) -> Sequence[Damage]:
        """Damaged files that belong to no run, which a commit writes again."""

    @property
    def uncommitted(self) -> bool:
        """Whether there is a run that is not in the dataset yet."""
        return self.committed < len(self.written)

    def has_run(self, run_id: str) -> bool:
        """Whether the next version will hold the run."""
        return run_id in self.written or self.is_there(run_id)

    @contextlib.contextmanager
    def new_run(self, run_id: str, keep: bool = False) -> Iterator[None]:
        """Around the writing of a run's tables; the run counts when it is left without an error.

        keep: tables that are not written remain as they are in the dataset, of a run without damages().
        """
        yield
        self.written.append(run_id)
        if keep:
            self._kept.add(run_id)

    @abstractmethod
    def write(self, table: str, run_id: str, batches: Iterable[pa.RecordBatch], provenance: dict[str, str]) -> None:
        """Write a run's rows of one table. batches: in the table's schema and order."""

    @abstractmethod
    def put(self, table: str, run_id: str, file: Path) -> None:
        """As write(), of a Parquet file of another dataset, which is left as it is."""

    @abstractmethod
    def commit(self, files: Mapping[str, str]) -> None:
        """Put the old dataset's other runs and the ones written in its place, with these text files (name: content)."""

    @abstractmethod
    def commit_finished(self, files: Mapping[str, str]) -> None:
        """As commit(), after an interrupt."""

    @abstractmethod
    def replace_files(self, files: Mapping[str, str]) -> None:
        """Write these text files where they differ, and nothing else of the dataset."""


def writer_of(out: str | Path, wait: bool = True, report: Callable[[str], None] = lambda _: None) -> Writer:
    """The writer of a dataset in a folder or at the URL of an object store. Raises UsageError."""
    if isinstance(out, str) and "://" in out:
        from ddnn_traces.store.delta.writer import StoreWriter

        return StoreWriter(str(out), wait, report)
    from ddnn_traces.store.writer import DatasetWriter

    return DatasetWriter(Path(out), wait, report)
