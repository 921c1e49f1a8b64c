"""A dataset, open for queries: DuckDB views over its Parquet files, frames as polars frames."""

from __future__ import annotations

import re
import shutil
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import duckdb

from ddnn_traces.errors import QueryError, UsageError
from ddnn_traces.query import catalogue, missing, read_only, views
from ddnn_traces.query.progress_bar import hide_progress_bar
from ddnn_traces.store.places import finding
from ddnn_traces.text import nearest

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa

# Nothing is fetched from the network at run time, and a frame of the caller's is no table of the dataset.
_CONFIG: dict[str, Any] = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "python_enable_replacements": "false",
}


def _spill_folder() -> str:
    """A folder where queries put what memory does not hold, for this user's eyes only; "": all has to fit."""
    try:
        return tempfile.mkdtemp(prefix="ddnn-traces-")
    except OSError:  # a full disk, or none to write to: most queries do without
        return ""


class Dataset:
    """The tables of a dataset as views (with their comments), queries without parameters as views, the others as
    table macros of the same name (`FROM pair_throughput(window_ms := 10)`).

    runs: names of the runs to see; None: all. read_only: refuse SQL that writes a file or changes a view, with
    errors.QueryError. where: a folder, a zip file of a release, a URL of a release. Raises errors.UsageError when it is
    no dataset of this schema version, or has no such run, and errors.ReleaseError when it cannot be had.
    """

    def __init__(self, where: str | Path, runs: Sequence[str] | None = None, read_only: bool = False) -> None:
        self.place = finding.find(where, runs)
        self.name = self.place.name
        spill = _spill_folder()
        self._config = _CONFIG | {"temp_directory": spill}
        self._asking = threading.Lock()
        self.connection = duckdb.connect(config=self._config)
        self._remove_spilled = weakref.finalize(self.connection, shutil.rmtree, spill, ignore_errors=True)
        try:
            self._open(runs, read_only)
        except BaseException:
            self.close()
            raise

    def _open(self, runs: Sequence[str] | None, read_only: bool) -> None:
        hide_progress_bar(self.connection)
        self.place.attach(self.connection)
        self._views = views.Views(self.connection, self.place, runs)
        self._read_only = read_only
        if read_only:
            self.connection.execute("SET lock_configuration = true")  # also for functions: enable_logging writes files
        if runs and (unknown := sorted(set(runs) - set(self.run_ids))):
            near = nearest(unknown[0], self._all_run_ids())
            raise UsageError(
                f"{self.name}: no run named {unknown[0]}; {near}; 'ddnn-traces runs {self.name}' lists them"
            )

    def _all_run_ids(self) -> list[str]:
        """Runs that the dataset has, also those not to see."""
        with duckdb.connect(config=self._config) as connection:
            self.place.attach(connection)
            views.Views(connection, self.place)
            return [run_id for (run_id,) in connection.execute("SELECT run_id FROM runs ORDER BY run_id").fetchall()]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the DuckDB connection, interrupting what it does, and remove what was unpacked, fetched or spilled."""
        try:
            self._interrupt_until(self._is_closed)
        finally:
            self.place.close()
            self._remove_spilled()

    def _is_closed(self) -> bool:
        """Close the connection; false where a thread is using it, as after a Ctrl-C that came between two lines."""
        try:
            self.connection.close()
        except duckdb.ResourceInUseException:
            return False
        return True

    def _interrupt_until(self, done: Callable[[], bool]) -> None:
        """Interrupt the connection's query, again while it is not yet running what there is to interrupt."""
        while not done():
            self.connection.interrupt()
            time.sleep(0.005)

    @property
    def path(self) -> Path:
        """The folder of the tables; of a zip file, where it is unpacked. Raises UsageError for a URL."""
        return self.place.on_this_machine()

    @property
    def run_ids(self) -> list[str]:
        """Names of the runs, in order."""
        return [run_id for (run_id,) in self.connection.execute("SELECT run_id FROM runs ORDER BY run_id").fetchall()]

    @property
    def only_run(self) -> str:
        """Name of the run, where there is a single one to see. Raises UsageError."""
        runs = self.run_ids
        if len(runs) != 1:
            shown = ", ".join(runs[:5]) + (", ..." if len(runs) > 5 else "")
            raise UsageError(f"this is of one run, and {self.name} has {len(runs)}: give --run, of {shown}")
        return runs[0]

    def query(self, name: str, **params: Any) -> pl.DataFrame:
        """Result of a named query. Raises QueryError for unknown names and parameters."""
        return self._frame(self.query_arrow(name, params))

    def sql(self, text: str, params: Any = None) -> pl.DataFrame:
        """Result of the user's own SQL over the views. Raises QueryError with DuckDB's message."""
        return self._frame(self.sql_arrow(text, params))

    def query_arrow(self, name: str, params: dict[str, Any]) -> pa.Table:
        """As query(), as an Arrow table; the values of `params` may be text."""
        query = catalogue.find(name)
        return self.sql_arrow(query.sql, query.values(params) or None)

    def sql_arrow(self, text: str, params: Any = None) -> pa.Table:
        """As sql(), as an Arrow table."""
        # In a thread of its own, so that a Ctrl-C reaches this one: DuckDB does not always look for signals.
        with ThreadPoolExecutor(1) as thread:
            try:
                return thread.submit(self._ask_alone, text, params).result()
            except (KeyboardInterrupt, SystemExit):
                self._interrupt_until(lambda: not self._asking.locked())
                raise

    def _ask_alone(self, text: str, params: Any) -> pa.Table:
        with self._asking:
            return self._ask(text, params)

    def _ask(self, text: str, params: Any) -> pa.Table:
        import pyarrow as pa

        if self._read_only:
            self.check_reads(self.statements(text))
        try:
            relation = self._relation(text.lstrip("\n"), params)  # DuckDB's caret counts empty lines
            return pa.table({}) if relation is None else relation.to_arrow_table()
        except duckdb.Error as error:
            if failure := self.place.failure():
                raise failure from error
            raise QueryError(self._message(error, text, params)) from error

    def _relation(self, text: str, params: Any) -> duckdb.DuckDBPyRelation | None:
        self._views.provide(text)
        try:
            return self.connection.sql(text, params=params)
        except duckdb.CatalogException:  # a name put together by the SQL; else the message is to have the nearest names
            if not self._views.provide_all():
                raise
            return self.connection.sql(text, params=params)

    def _message(self, error: duckdb.Error, text: str, params: Any) -> str:
        """DuckDB's message with the line of the text and a caret below what is meant.

        What is wrong with names, sql() tells without the line, execute() with it, and neither does anything before. A
        line is one of the statement, counted from its first word.
        """
        statements = self.statements(text)
        if len(statements) == 1 and isinstance(error, duckdb.BinderException | duckdb.CatalogException):
            try:
                self.connection.execute(statements[0].lstrip("\n"), params)
            except duckdb.Error as told:
                error = told
        before = len(statements[0]) - len(statements[0].lstrip("\n")) if len(statements) == 1 else 0
        return re.sub(r"^LINE (\d+):", lambda line: f"LINE {int(line[1]) + before}:", str(error), flags=re.M)

    def check_reads(self, statements: Sequence[str]) -> None:
        """Raise QueryError where the dataset is read-only and one of the statements writes."""
        if self._read_only:
            for statement in statements:
                read_only.check(statement)

    def missing(self, name: str) -> list[str]:
        """What a named query's runs lack, a line for each kind of data, with what to do about it."""
        return missing.lines(self.connection, self.place, name, self.run_ids)

    def statements(self, text: str) -> list[str]:
        """The SQL statements in a text. Raises QueryError with DuckDB's message.

        Each begins with as many line ends as there are before it, so that messages name the text's lines.
        """
        try:
            found, place = [], 0
            for statement in self.connection.extract_statements(text):
                place = max(text.find(statement.query, place), place)
                found.append("\n" * text.count("\n", 0, place) + statement.query)
                place += len(statement.query)
            return found
        except duckdb.Error as error:
            raise QueryError(str(error)) from error

    @staticmethod
    def _frame(table: pa.Table) -> pl.DataFrame:
        import polars as pl  # costs more to import than most queries take to run

        try:
            frame = pl.from_arrow(table)
        except pl.exceptions.DuplicateError as error:
            raise QueryError(f"{error}; rename one with AS") from error
        except pl.exceptions.PolarsError as error:
            raise QueryError(f"{error}; cast that column, for example to VARCHAR") from error
        assert isinstance(frame, pl.DataFrame)
        return frame
