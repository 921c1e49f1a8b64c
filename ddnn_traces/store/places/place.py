"""What is known of the place of a dataset's files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ddnn_traces.errors import DdnnTracesError, UsageError

if TYPE_CHECKING:
    import duckdb


@dataclass(frozen=True)
class Place:
    """Where the files of an open dataset are.

    name: as the user wrote it. files: what DuckDB reads for each table: paths and globs; none where the dataset does
    not have the table. folder: the tables' folder on this machine, if they are on it. filesystem: of fsspec, through
    which DuckDB reads what is elsewhere; `failure` says why it could not.
    """

    name: str
    files: Mapping[str, Sequence[str]]
    folder: Path | None = None
    filesystem: Any = None
    failure: Callable[[], DdnnTracesError | None] = lambda: None
    close: Callable[[], None] = lambda: None

    def attach(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Let a connection read the files."""
        if self.filesystem is not None:
            connection.register_filesystem(self.filesystem)

    def on_this_machine(self) -> Path:
        """The tables' folder. Raises UsageError where they are elsewhere."""
        if self.folder is None:
            raise UsageError(f"{self.name}: this works on files of this machine only; download the release first")
        return self.folder
