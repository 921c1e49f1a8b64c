"""A dataset, open for queries: DuckDB views over its Parquet files, frames as polars frames."""

from __future__ import annotations

import glob
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import duckdb

from ddnn_traces import queries, schema
from ddnn_traces.errors import QueryError, UsageError
from ddnn_traces.marker import read_marker
from ddnn_traces.progress_bar import hide_progress_bar
from ddnn_traces.text import sql_literal

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa

# Nothing is fetched from the network at run time, and a frame of the caller's is no table of the dataset.
_CONFIG: dict[str, Any] = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "python_enable_replacements": "false",
}


class Dataset:
    """The tables of a dataset as views (with their comments), queries without parameters as views, the others as
    table macros of the same name (`FROM pair_throughput(window_ms := 10)`).

    runs: names of the runs to see; None: all. Raises errors.UsageError when `path` holds no dataset of this schema
    version, or has no such run.
    """

    def __init__(self, path: Path, runs: Sequence[str] | None = None) -> None:
        read_marker(path)
        self.path = path
        self._only = (
            "" if runs is None else f" WHERE run_id IN ({', '.join(sql_literal(run) for run in runs) or 'NULL'})"
        )
        self.connection = duckdb.connect(config=_CONFIG)
        hide_progress_bar(self.connection)
        for table in schema.tables():
            self._create_table_view(table)
        for query in queries.catalogue().values():
            self._create_query(query)
        if missing := sorted(set(runs or ()) - set(self.run_ids)):
            raise UsageError(f"{path}: no run named {missing[0]}; 'ddnn-traces runs {path}' lists them")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the DuckDB connection."""
        self.connection.close()

    @property
    def run_ids(self) -> list[str]:
        """Names of the runs, in order."""
        return [run_id for (run_id,) in self.connection.execute("SELECT run_id FROM runs ORDER BY run_id").fetchall()]

    def query(self, name: str, **params: Any) -> pl.DataFrame:
        """Result of a named query. Raises QueryError for unknown names and parameters."""
        return self._frame(self.query_arrow(name, params))

    def sql(self, text: str, params: Any = None) -> pl.DataFrame:
        """Result of the user's own SQL over the views. Raises QueryError with DuckDB's message."""
        return self._frame(self.sql_arrow(text, params))

    def query_arrow(self, name: str, params: dict[str, Any]) -> pa.Table:
        """As query(), as an Arrow table; the values of `params` may be text."""
        query = queries.find(name)
        return self.sql_arrow(query.sql, query.values(params) or None)

    def sql_arrow(self, text: str, params: Any = None) -> pa.Table:
        """As sql(), as an Arrow table."""
        # In a thread of its own, so that a Ctrl-C reaches this one: DuckDB does not always look for signals.
        with ThreadPoolExecutor(1) as thread:
            answer = thread.submit(self._ask, text, params)
            try:
                return answer.result()
            except KeyboardInterrupt:
                self.connection.interrupt()
                raise

    def _ask(self, text: str, params: Any) -> pa.Table:
        import pyarrow as pa

        try:
            relation = self.connection.sql(text, params=params)
            return pa.table({}) if relation is None else relation.to_arrow_table()
        except duckdb.Error as error:
            raise QueryError(str(error)) from error

    def statements(self, text: str) -> list[str]:
        """The SQL statements in a text. Raises QueryError with DuckDB's message."""
        try:
            return [statement.query for statement in self.connection.extract_statements(text)]
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

    def _create_table_view(self, table: schema.Table) -> None:
        # run_id from the folder names prunes files; its type is said so that a run named 2021-05-01 stays text.
        files = sql_literal(f"{glob.escape(str(self.path / table.name))}/*/*.parquet")
        columns = ", ".join(f'"{column.name}"' for column in table.columns)
        try:
            self.connection.execute(
                f"CREATE VIEW {table.name} AS SELECT {columns} FROM "
                f"read_parquet({files}, hive_partitioning = true, hive_types = {{'run_id': VARCHAR}}){self._only}"
            )
        except duckdb.Error as error:
            what = str(error).splitlines()[0]
            raise UsageError(f"{self.path / table.name}: missing or damaged ({what}); ingest the runs again") from error
        self.connection.execute(f"COMMENT ON VIEW {table.name} IS {sql_literal(table.row)}")
        for column in table.columns:
            unit = f" [{column.unit}]" if column.unit else ""
            self.connection.execute(
                f"COMMENT ON COLUMN {table.name}.{column.name} IS {sql_literal(column.meaning + unit)}"
            )

    def _create_query(self, query: queries.Query) -> None:
        body = query.sql.strip().removesuffix(";")
        if not query.params:
            self.connection.execute(f"CREATE VIEW {query.name} AS {body}")
            return
        for param in query.params:
            body = re.sub(rf"\${param.name}\b", param.name, body)
        signature = ", ".join(f"{p.name} := {_sql_value(p.default)}" for p in query.params)
        self.connection.execute(f"CREATE MACRO {query.name}({signature}) AS TABLE {body}")


def _sql_value(value: Any) -> str:
    if value is None:
        return "NULL"
    return sql_literal(value) if isinstance(value, str) else repr(value)
