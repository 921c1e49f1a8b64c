"""traces.duckdb: its views are those that this program makes, and give the release's rows.

A view is SQL that others wrote, which could read any file when it is asked: it is compared before it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddnn_traces import schema, views
from ddnn_traces.releases import layout, provenance
from ddnn_traces.releases.verify.examined import Examined
from ddnn_traces.releases.verify.result import FAILED, NOT_CHECKED, PASSED, Result, WrongError
from ddnn_traces.releases.verify.untrusted import shown
from ddnn_traces.text import sql_literal

if TYPE_CHECKING:
    import duckdb

DATABASE = "database"

#: What tells the version of the program that made the file; the only definition that may differ.
_ABOUT = "ddnn_traces.about"
_ABOUT_SQL = re.compile(r"CREATE VIEW ddnn_traces\.about AS SELECT '[\w.+-]*' AS \"?version\"?;?")
_EXCLUDED = re.compile(r"EXCLUDE \(([^()]*)\)")

_AGAIN = "publish the dataset again, or remove the file: everything else works without it"


def check_database(examined: Examined) -> Iterator[Result]:
    """The file opens, its definitions are right, and each table's view has as many rows as release.json says."""
    import duckdb

    release = examined.told()
    tables = [table.name for table in release.tables]
    file = examined.content / views.FILE
    if not file.is_file():
        raise WrongError(f"{views.FILE} is missing; {_AGAIN}")
    closed = {"enable_external_access": "false", "autoload_known_extensions": "false", "threads": "1"}
    try:
        with duckdb.connect(str(file), read_only=True, config=closed) as connection:
            found = _definitions(connection)
    except duckdb.Error as error:
        raise WrongError(f"{views.FILE} cannot be opened ({shown(error)}); {_AGAIN}") from None
    with duckdb.connect() as connection:
        connection.execute(f"SET file_search_path = {sql_literal(str(examined.content.resolve()))}")
        views.write_relative(connection, tables)
        right = _definitions(connection)
        wrong = sorted(name for name in found.keys() | right.keys() if found.get(name) != right.get(name))
        if _ABOUT in wrong and _ABOUT_SQL.fullmatch(found.get(_ABOUT, "")):
            wrong.remove(_ABOUT)
        of_tables = [name for name in wrong if name in schema.TABLES]
        if of_tables or (wrong and release.software == provenance.SOFTWARE) or set(found) - set(right):
            raise WrongError(f"{shown(', '.join(wrong))}: not defined as this program defines it; {_AGAIN}")
        if wrong:
            detail = f"{len(wrong)} queries are those of {shown(release.software)}, this is {provenance.SOFTWARE}"
            yield Result(DATABASE, "queries", NOT_CHECKED, detail)
        # their SQL is the same, so that ours may be asked in the file's stead
        counts = {name: connection.execute(f"SELECT count(*) FROM {name}").fetchall()[0][0] for name in schema.TABLES}
    told = {table.name: table.rows for table in release.tables}
    for name in schema.TABLES:
        if counts[name] != told.get(name, 0):
            detail = f"has {counts[name]:,} rows, {layout.RELEASE} says {told.get(name, 0):,}; {_AGAIN}"
            yield Result(DATABASE, name, FAILED, detail)
            return
    yield Result(DATABASE, views.FILE, PASSED, f"{len(right) - len(wrong)} views and macros, rows as {layout.RELEASE} says")


def _definitions(connection: duckdb.DuckDBPyConnection) -> dict[str, str]:
    """SQL of everything that somebody defined in a database, by name."""
    rows = connection.execute(
        "SELECT schema_name || '.' || view_name, sql FROM duckdb_views() WHERE NOT internal "
        "UNION ALL SELECT schema_name || '.' || function_name, concat_ws(' ', function_type, parameters, macro_definition) "
        "FROM duckdb_functions() WHERE NOT internal "
        "UNION ALL SELECT schema_name || '.' || table_name, 'table' FROM duckdb_tables() WHERE NOT internal"
    ).fetchall()
    return {name.removeprefix("main."): _EXCLUDED.sub(_in_order, sql) for name, sql in rows}


def _in_order(found: re.Match[str]) -> str:
    """A list of columns to leave out, sorted: DuckDB writes it in any order."""
    return f"EXCLUDE ({', '.join(sorted(found[1].split(', ')))})"
