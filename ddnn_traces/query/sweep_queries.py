"""Queries of a sweep, mostly of one on ns-3, or of a profile: SQL in queries/sweep/ over Parquet files of a folder."""

from __future__ import annotations

import glob
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ddnn_traces.errors import NoDataError, QueryError
from ddnn_traces.query import catalogue
from ddnn_traces.store import schema
from ddnn_traces.text import sql_literal

if TYPE_CHECKING:
    import polars as pl
    from duckdb import DuckDBPyConnection

__all__ = ["queries", "run"]

#: The table of a profile, which `simulate layers` writes.
PROFILE = "profile"
#: Tables of a sweep or profile, OUT/NAME.parquet; thesis is what the text of Gao 2020 states.
TABLES = ("cells", "background_flows", "transfers", "layers", "buffers", PROFILE)
THESIS = "thesis"
#: The one query of queries/ that those of a sweep read.
STUDENT_T = "student_t"
#: A row a cell and key that it was made by: cell, setting, value, position of the key. Of the columns of cells.
SETTINGS = "cell_settings"
#: The first of the columns of cells that follow the keys: of a sweep on ns-3, and of one of `simulate`.
_BEHIND_KEYS = ("expected_utilization", "iteration_ms")
#: Queries that compare cells of both priorities.
PAIRED = {"paired_flows", "seed_results"}


def folder() -> Path:
    """Folder of the queries."""
    return schema.shipped_folder("queries") / "sweep"


def queries() -> dict[str, catalogue.Query]:
    """The queries, each after those that it reads."""
    return catalogue.read_folder(folder())


def run(sweep: Path, name: str, **params: Any) -> pl.DataFrame:
    """Rows of a query of the sweep in a folder. Raises QueryError, and NoDataError where a table is missing.

    Other queries read the rows of one from NAME.parquet where the folder has it: a sweep of which these are kept, and
    not all the flows that they are of.
    """
    import duckdb
    import polars as pl

    found = queries()
    if name not in found:
        raise QueryError(f"no query of a sweep is named {name}; there are {', '.join(sorted(found))}")
    values = found[name].values(params)
    settings: dict[str, Any] = {"autoinstall_known_extensions": "false", "autoload_known_extensions": "false"}
    with duckdb.connect(config=settings) as connection:
        read = _reads(found, name)
        for table in (table for table in TABLES if table in read):
            path = sweep / f"{table}.parquet"
            if not path.is_file():
                command = "simulate layers" if table == PROFILE else "ns3 sweep"
                raise NoDataError(f"{path}: is missing; ddnn-traces {command} --out {sweep} writes it")
            connection.execute(f"CREATE VIEW {table} AS {_rows_of(connection, path)}")
        if THESIS in read:
            connection.execute(f"CREATE VIEW {THESIS} AS FROM read_csv({_quoted(folder() / 'gao.csv')}, header = true)")
        if STUDENT_T in read:
            connection.execute(f"CREATE VIEW {STUDENT_T} AS {catalogue.find(STUDENT_T).sql}")
        if SETTINGS in read:
            _make_settings(connection)
        if read & PAIRED:
            _refuse_other_axes(connection, sweep)
        for query in (query for query in found.values() if query.name in read - {name}):
            kept = sweep / f"{query.name}.parquet"
            if kept.is_file():
                connection.execute(f"CREATE VIEW {query.name} AS FROM read_parquet({_quoted(kept)})")
            elif not query.params:
                connection.execute(f"CREATE VIEW {query.name} AS {query.sql}")
        try:
            frame = pl.from_arrow(connection.sql(found[name].sql, params=values or None).to_arrow_table())
        except duckdb.Error as error:
            raise QueryError(f"{sweep}: {name} cannot be answered: {str(error).splitlines()[0]}") from error
    assert isinstance(frame, pl.DataFrame)  # of a table
    return frame


def _rows_of(connection: DuckDBPyConnection, path: Path) -> str:
    """The SQL of a table's rows; the cells of `simulate sweep`, which have no number, get that of their row."""
    file = _quoted(path)
    columns = connection.sql(f"FROM read_parquet({file}) LIMIT 0").columns
    if "cell" in columns:
        return f"FROM read_parquet({file})"
    return (
        f"SELECT file_row_number AS cell, * EXCLUDE (file_row_number) FROM read_parquet({file}, file_row_number = true)"
    )


def _reads(found: dict[str, catalogue.Query], name: str) -> set[str]:
    """The query, and what it and those that it reads read."""
    return {name, *found[name].inputs}.union(*(_reads(found, each) for each in found[name].inputs if each in found))


def _make_settings(connection: DuckDBPyConnection) -> None:
    """Make the view of the cells' keys, which are the columns between the cell's number and its first result."""
    columns = connection.table("cells").columns
    keys = columns[1 : min(columns.index(name) for name in _BEHIND_KEYS if name in columns)]
    names = f"[{', '.join(map(sql_literal, keys))}]"
    connection.execute(f"""
        CREATE VIEW {SETTINGS} AS
        SELECT cell, setting, value, list_position({names}, setting) AS position
        FROM (SELECT cell, COLUMNS(lambda name: list_contains({names}, name))::VARCHAR FROM cells)
        UNPIVOT INCLUDE NULLS (value FOR setting IN (COLUMNS(* EXCLUDE (cell))))""")


def _refuse_other_axes(connection: DuckDBPyConnection, sweep: Path) -> None:
    """Raise QueryError for cells that differ in more than what pairs are made by."""
    keys = "compute_to_network, flows_per_s, training_priority, seed"
    several = f"SELECT 1 FROM cells WHERE error IS NULL GROUP BY {keys} HAVING count(*) > 1"
    if connection.sql(several).limit(1).fetchall():
        raise QueryError(
            f"{sweep}: has several cells of the same {keys}, and this query pairs cells by these; "
            "sweep the others one value at a time"
        )


def _quoted(path: Path) -> str:
    """A path as a literal of SQL, in which * is no pattern."""
    return sql_literal(glob.escape(str(path.resolve())))
