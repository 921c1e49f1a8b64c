"""traces.duckdb: its views are those of schemas/ and queries/, and return the release's rows.

The file must also be, byte for byte, what this program makes: nothing is hidden in it. Where another version of the
program or of DuckDB made it, the definitions alone are compared. A view is SQL from others, which could read any file
or run without end: none is run. Of a release that another version made, a definition that differs may only read the
release's tables. Each check raises WrongError, of which running.py makes a finding.
"""

from __future__ import annotations

import filecmp
import json
import re
import shutil
import struct
import sys
from collections.abc import Container, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ddnn_traces.query import catalogue, views
from ddnn_traces.release import facts
from ddnn_traces.release.verify.examined import (
    Examined,
    Finding,
    WrongError,
    failed,
    not_checked,
    passed,
    shown,
    unless,
)
from ddnn_traces.store import layout, schema
from ddnn_traces.store.parquet import part
from ddnn_traces.text import counted, listed, sql_literal
from ddnn_traces.version import __version__

if TYPE_CHECKING:
    import duckdb


#: States the version of the program that made the file; the only definition that may differ.
_ABOUT = "ddnn_traces.about"
_ABOUT_SQL = re.compile(r"CREATE VIEW ddnn_traces\.about AS SELECT '[\w.+-]*' AS \"?version\"?;?")
_EXCLUDED = re.compile(r"EXCLUDE \(([^()]*)\)")


class _Definition(NamedTuple):
    """A view or a form of a macro; also a table, type or sequence (sql is empty), which no release has."""

    kind: str
    parameters: str
    sql: str


_Defined = dict[str, list[_Definition]]

#: It holds definitions only: some 2 MB.
_LARGEST = 64 << 20

_AGAIN = "publish the dataset again, or remove the file: everything else works without it"


def check_database(examined: Examined) -> Iterator[Finding]:
    """The file opens, its definitions are right, and each table's view has as many rows as release.json states."""
    import duckdb

    release = examined.release
    tables = [table.name for table in release.tables]
    file = examined.content / views.FILE
    if not file.is_file():
        raise WrongError(f"{views.FILE} is missing; {_AGAIN}")
    if file.stat().st_size > _LARGEST:
        raise WrongError(f"{views.FILE} has {file.stat().st_size:,} bytes, too many for definitions; {_AGAIN}")
    own = examined.scratch / "own.duckdb"
    empty = _empty(examined, tables)
    views.write_relative(own, empty, tables, _define)  # DuckDB writes SQL otherwise after it was stored
    with duckdb.connect(str(own), read_only=True) as connection:
        right, (found, uncommented) = _definitions(connection), _found(examined, file)
        if uncommented and release.software == facts.SOFTWARE:
            yield failed(views.FILE, f"{listed(uncommented, 3)} have another comment than schemas/; {_AGAIN}")
        differing = _differing(found, right)
        made = examined.scratch / "made.duckdb"
        views.write_relative(made, empty, tables)  # definitions do not depend on the rows of tables
        if not differing and filecmp.cmp(file, made, shallow=False):
            detail = f"{counted(len(right), 'definition')}, byte for byte as this program writes them"
            yield passed(views.FILE, detail)
        else:
            yield from _judged(connection, found, right, differing, release)
            yield from _judged_bytes(file.read_bytes(), made.read_bytes(), bool(differing), release)
        connection.execute(f"SET file_search_path = {sql_literal(str(examined.content.absolute()))}")
        if not [name for name in differing if name in schema.TABLES]:  # then this program's views can be run instead
            wrong = _wrong_rows(connection, {table.name: table.rows for table in release.tables})
            yield from unless(wrong, passed("rows", f"as many in each view as {layout.RELEASE} states"))


def _define(connection: duckdb.DuckDBPyConnection, tables: Sequence[str]) -> None:
    """What the file must define, from schemas/ and queries/ alone: a view of each table, a view or macro of each query.

    connection: finds a file of each of the tables; the others are empty.
    """
    connection.execute("BEGIN")
    for table in schema.tables():
        columns = ", ".join(f'"{column.name}" {column.types.duckdb}' for column in table.columns)
        connection.execute(f"CREATE TABLE {table.name} ({columns})")  # to bind queries to an empty table is faster
    for query in catalogue.catalogue().values():
        body = query.sql.strip().removesuffix(";")
        if query.params:
            body = re.sub(r"\$(\w+)", r"\1", body)
            defaults = ", ".join(f"{param.name} := {_default(param.default)}" for param in query.params)
            connection.execute(f"CREATE MACRO {query.name}({defaults}) AS TABLE {body}")
        else:
            connection.execute(f"CREATE VIEW {query.name} AS {body}")
    for table in schema.tables():
        connection.execute(f"DROP TABLE {table.name}")
        names = ", ".join(f'"{column.name}"' for column in table.columns)
        source = f"SELECT {names} FROM read_parquet('{table.name}/*.parquet', hive_partitioning = false)"
        nulls = ", ".join(f'NULL::{column.types.duckdb} AS "{column.name}"' for column in table.columns)
        empty = f"SELECT {nulls} WHERE false"
        connection.execute(f"CREATE VIEW {table.name} AS {source if table.name in tables else empty}")
    connection.execute(f"CREATE SCHEMA ddnn_traces; CREATE VIEW {_ABOUT} AS SELECT '{__version__}' AS version; COMMIT")


def _default(value: Any) -> str:
    return "NULL" if value is None else sql_literal(value) if isinstance(value, str) else repr(value)


def _found(examined: Examined, file: Path) -> tuple[_Defined, list[str]]:
    """The definitions in the release's file, and the columns with wrong comments. Raises WrongError."""
    import duckdb

    copy = examined.scratch / views.FILE  # DuckDB follows links, and parses a question mark in a path
    shutil.copyfile(file, copy)
    try:
        with duckdb.connect(str(copy), read_only=True, config=views.CLOSED) as connection:
            return _definitions(connection), _wrong_comments(connection)
    except duckdb.Error as error:
        raise WrongError(f"{views.FILE} cannot be opened ({shown(error)}); {_AGAIN}") from None


# --- bytes of DuckDB's file: three headers of 4096 bytes, then blocks

_HEADER_BYTES = 4096
#: Version of DuckDB that wrote the file, in the first header.
_WRITER = slice(52, 84)
#: In the other two, of which the one with the larger number of the write counts: that number, the number of blocks,
#: bytes of a block.
_HEADER = struct.Struct("<8xQ16xQQ")


def _judged_bytes(found: bytes, made: bytes, differs: bool, release: facts.Release) -> Iterator[Finding]:
    """Whether anything but definitions may be in a file that is not the one that this program makes.

    differs: its definitions differ, so that other bytes are no finding of their own.
    """
    headers = [_HEADER.unpack_from(found, _HEADER_BYTES), _HEADER.unpack_from(found, 2 * _HEADER_BYTES)]
    _, blocks, block_bytes = max(headers)
    if len(found) != 3 * _HEADER_BYTES + blocks * block_bytes:
        stated = f"{3 * _HEADER_BYTES + blocks * block_bytes:,} bytes, the file has {len(found):,}"
        yield failed(views.FILE, f"something was added to it: its header counts {blocks:,} blocks, {stated}; {_AGAIN}")
        return
    writer, own = found[_WRITER].rstrip(b"\0").decode(errors="replace"), made[_WRITER].rstrip(b"\0").decode()
    # elsewhere DuckDB may write the same definitions in another order (its C++ library has other hash tables)
    same_makers = (writer, release.software) == (own, facts.SOFTWARE) and sys.platform == "linux"
    if same_makers and not differs:
        detail = f"has other bytes than DuckDB {own} makes of its definitions, so that something else is in it"
        yield failed(views.FILE, f"{detail}; {_AGAIN}")
    elif not same_makers:
        detail = (
            f"{views.FILE} is of DuckDB {shown(writer)} and {shown(release.software)}, this is DuckDB {own} and "
            f"{facts.SOFTWARE}: its definitions and its length were compared, not its bytes"
        )
        yield not_checked("bytes", detail)


def _empty(examined: Examined, tables: list[str]) -> Path:
    """A folder with an empty file of each table."""
    import pyarrow.parquet as pq

    folder = examined.scratch / "empty"
    for name in tables:
        (folder / name).mkdir(parents=True, exist_ok=True)
        pq.write_table(schema.table(name).arrow().empty_table(), folder / part(name, 0))
    return folder


def _wrong_comments(connection: duckdb.DuckDBPyConnection) -> list[str]:
    """Columns of tables whose comments are not their meaning and unit."""
    columns = "SELECT table_name || '.' || column_name, comment FROM duckdb_columns() WHERE NOT internal"
    found = dict(connection.execute(columns).fetchall())
    right = {
        f"{table.name}.{column.name}": column.meaning + (f" [{column.unit}]" if column.unit else "")
        for table in schema.tables()
        for column in table.columns
    }
    return [name for name, comment in right.items() if found.get(name) != comment]


def _differing(found: _Defined, right: _Defined) -> list[str]:
    names = sorted(name for name in found.keys() | right.keys() if found.get(name) != right.get(name))
    about = found.get(_ABOUT, [])
    same = len(about) == 1 and _ABOUT_SQL.fullmatch(about[0].sql)
    return [name for name in names if name != _ABOUT or not same]


def _judged(
    connection: duckdb.DuckDBPyConnection,
    found: _Defined,
    right: _Defined,
    differing: list[str],
    release: facts.Release,
) -> Iterator[Finding]:
    """A line for each definition that is wrong, and one for those that may be another version's.

    release.json is not proof: that it names another version excuses no definition that reads other files.
    """
    internal = connection.execute("SELECT DISTINCT function_name FROM duckdb_functions() WHERE internal").fetchall()
    known = (right.keys() | found.keys()) - {name for (name,) in internal}  # a macro named read_text hides nothing
    unknown = []
    for name in differing:
        reason = next(filter(None, (harm(connection, one.sql, known) for one in found.get(name, []))), "")
        if reason:
            reason = f": it {shown(reason)}"
        elif release.software != facts.SOFTWARE and name not in {*schema.TABLES, _ABOUT}:
            unknown.append(name)
            continue
        yield failed(name, f"{views.FILE}: {shown(name)}: not defined as this program defines it{reason}; {_AGAIN}")
    if unknown:
        detail = (
            f"{shown(', '.join(unknown))}: not defined as in this {facts.SOFTWARE}; {layout.RELEASE} names "
            f"{shown(release.software)} as its maker; they read nothing but the release's tables; "
            "whether their results are right was not checked: do not rely on them"
        )
        yield not_checked("queries", detail)
    if not differing:
        yield passed(views.FILE, f"{counted(len(right), 'definition')}, all as this program defines them")


def _wrong_rows(connection: duckdb.DuckDBPyConnection, declared: dict[str, int]) -> Iterator[Finding]:
    """The tables whose view has not as many rows as release.json states."""
    import duckdb

    for name in schema.TABLES:
        try:
            rows = connection.execute(f"SELECT count(*) FROM {name}").fetchall()[0][0]
        except duckdb.Error as error:
            yield failed(name, f"its view cannot be queried ({shown(error)}); get the release again")
            continue
        if rows != declared.get(name, 0):
            detail = f"has {counted(rows, 'row')}, {layout.RELEASE} states {declared.get(name, 0):,}; {_AGAIN}"
            yield failed(name, detail)


def _definitions(connection: duckdb.DuckDBPyConnection) -> _Defined:
    """All definitions in a database but DuckDB's own, by name: a macro may have several forms, and a view's name."""
    rows = connection.execute(
        "SELECT schema_name || '.' || view_name, 'view', '', sql FROM duckdb_views() WHERE NOT internal "
        "UNION ALL SELECT schema_name || '.' || function_name, function_type, array_to_string(parameters, ', '), "
        "macro_definition FROM duckdb_functions() WHERE NOT internal "
        "UNION ALL SELECT schema_name || '.' || table_name, 'table', '', '' FROM duckdb_tables() WHERE NOT internal "
        "UNION ALL SELECT schema_name || '.' || type_name, 'type', '', '' FROM duckdb_types() WHERE NOT internal "
        "UNION ALL SELECT schema_name || '.' || sequence_name, 'sequence', '', '' FROM duckdb_sequences()"
    ).fetchall()
    found: _Defined = {}
    for name, kind, parameters, sql in rows:
        # DuckDB writes a list of excluded columns in any order
        in_order = _EXCLUDED.sub(lambda found: f"EXCLUDE ({', '.join(sorted(found[1].split(', ')))})", sql or "")
        definition = _Definition(kind, parameters, in_order)
        found.setdefault(name.removeprefix("main."), []).append(definition)
    return {name: sorted(several) for name, several in found.items()}


# --- the tables and files that a definition reads

_VIEW = re.compile(r"\s*CREATE VIEW [\w.\"]+(?: ?\([\w\", ]*\))? AS (.*)", re.S)
_NAME = re.compile(r"\w+")

#: Table functions that read nothing.
_HARMLESS = {"unnest", "range", "generate_series"}

#: Functions of a row that return facts of the machine, run SQL or read a file.
_FORBIDDEN = re.compile(
    r"get_?env|current_\w+|.*setting.*|getvariable|write_log|nextval|currval|.*execute.*|.*query.*|.*file.*|"
    r"(read|sniff|pragma|duckdb|pg|http|which|add|load|enable|disable)_?.*|.*scan.*|glob|.*secret.*|.*attach.*|.*copy.*"
)


def harm(connection: duckdb.DuckDBPyConnection, definition: str, known: Container[str]) -> str:
    """The first access of a definition beyond the release's tables, in words; '' where there is none.

    DuckDB's own parser lists the calls and tables of a definition; a call that is not known to be harmless counts.

    definition: a view's CREATE VIEW, or the body of a macro. known: names of tables, views and macros that may be read.
    """
    view = _VIEW.fullmatch(definition)
    body = view[1] if view else definition
    for text in (body, f"SELECT {body}"):  # a macro of a value is an expression
        tree = json.loads(connection.execute("SELECT json_serialize_sql(?)", [text]).fetchall()[0][0])
        if not tree["error"] and len(tree["statements"]) == 1:
            return next(_harms(tree, known), "")
    return "is not a plain SELECT"


def _harms(node: Any, known: Container[str]) -> Iterator[str]:
    for item in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        yield from _harms(item, known)
    if not isinstance(node, dict):
        return
    if "table_name" in node and node.get("type") == "BASE_TABLE":
        if not _NAME.fullmatch(node["table_name"]) or _is_outside(node):
            yield f"reads {node['table_name']!r}"
    elif node.get("type") == "TABLE_FUNCTION":
        name = str(node.get("function", {}).get("function_name", "")).lower()
        if name not in _HARMLESS and name not in known:
            yield f"calls {name}"
    elif "function_name" in node:
        name = str(node["function_name"]).lower()
        if name not in known and (_FORBIDDEN.fullmatch(name) or _is_outside(node)):
            yield f"calls {name}"
    elif str(node.get("type", "")).upper() in ("SHOW_REF", "COLUMN_DATA"):
        yield "lists the database's contents"


def _is_outside(node: dict[str, Any]) -> bool:
    """Whether a name is in another database or schema."""
    places = [node.get(name) or "" for name in ("catalog_name", "schema_name", "catalog", "schema")]
    return bool({*places} - {"", "main"})
