"""SQL of others over a dataset: it reads the dataset's own files alone, writes none, and has an end."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import TYPE_CHECKING

from ddnn_traces.query.dataset import Dataset, interrupt_until
from ddnn_traces.text import sql_literal

if TYPE_CHECKING:
    import duckdb

LIMIT_S = 60.0

# A query that needs more than this and 10 GB of disk ends, before others of this machine have to.
BOUNDS = "SET memory_limit = '50%'; SET max_temp_directory_size = '10GB'"


def confine(opened: Dataset) -> None:
    """From here on the dataset's connection reads the files of its folder alone, writes none, and stays so.

    The statements themselves still have to pass read_only.check(): a COPY may write where the connection may read.
    """
    opened.provide("").execute(  # views are made when they are read, of files in the folder
        f"{BOUNDS}; SET allowed_directories = [{sql_literal(str(opened.path.resolve()))}]; "
        "SET enable_external_access = false; SET lock_configuration = true"
    )


class Limit:
    """A context with a connection whose queries end after a time, or by end() of another thread."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, limit_s: float = LIMIT_S) -> None:
        self._connection, self._limit_s = connection, limit_s
        self._ends, self._is_done = threading.Event(), threading.Event()
        self.why_ended = ""

    def __enter__(self) -> duckdb.DuckDBPyConnection:
        threading.Thread(target=self._watch, daemon=True).start()
        return self._connection

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._is_done.set()
        self._ends.set()

    def end(self, why: str) -> None:
        """End what the connection runs."""
        self.why_ended = why
        self._ends.set()

    def said(self, error: Exception) -> str:
        """What an error of the connection's query is to the user."""
        return f"ended: {self.why_ended}" if self.why_ended else str(error)

    def _watch(self) -> None:
        if not self._ends.wait(self._limit_s):
            self.why_ended = f"it took {self._limit_s:g} s"
        interrupt_until(self._connection, self._is_done.is_set)
