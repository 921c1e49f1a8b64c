"""A dataset's tables and queries as DuckDB views and macros: in memory, or in a database file next to the tables.

The file, DATASET/traces.duckdb, holds definitions only, with the absolute path of the dataset in a macro: a view cannot
be relative to its database. It serves users who have DuckDB alone; this package does not read it.
"""

from __future__ import annotations

import contextlib
import filecmp
import functools
import glob
import hashlib
import inspect
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from ddnn_traces import cache
from ddnn_traces.errors import UsageError
from ddnn_traces.query import catalogue, inferred
from ddnn_traces.store import schema
from ddnn_traces.store.parquet import rows_file
from ddnn_traces.store.places import Place, in_folder
from ddnn_traces.store.whole_files import whole_file
from ddnn_traces.text import sql_literal
from ddnn_traces.version import __version__

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa


FILE = "traces.duckdb"

#: Macro in the file that has the dataset's folder: all else in it is the same for every dataset.
_FOLDER = "ddnn_traces.folder"
_LOADED_NS = time.time_ns()  # when this process read its modules

#: Of a connection to a database file that others made: their SQL, where DuckDB runs it, reads and writes no file.
CLOSED: dict[str, Any] = {
    "enable_external_access": "false",
    "autoload_known_extensions": "false",
    "autoinstall_known_extensions": "false",
    "lock_configuration": "true",
    "threads": "1",
}

_KEPT = "kept_queries"  # name of an attached file
_CHOSEN_FLOWS = "chosen_flows"  # table of an open dataset

# SQL that lists views, columns or comments: its result would be wrong while some are missing. The words of the second
# line begin a statement, a part in parentheses or a text that query() runs; elsewhere they are words of a sentence. To
# describe one that is named needs that one.
_LISTS = re.compile(
    r"\b(duckdb_\w+|information_schema|pg_\w+|sqlite_\w+|pragma\w*)\b"
    r"|(^|[;('$])\s*(show\b|(desc|describe)\s*($|[;)'$]))",
    re.I,
)


class Views:
    """The views and macros of a dataset in a connection. Those of queries are made when a text first names them.

    To bind all of them to their tables takes longer than most queries run. runs: names of the runs to show; None: all.
    chosen: to show only the flows of a job or a communicator. Raises UsageError for a table that is missing or damaged.
    """

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        place: Place,
        runs: Sequence[str] | None = None,
        chosen: inferred.Chosen | None = None,
    ) -> None:
        self._connection, self._place, self._runs = connection, place, runs
        self._chosen, self._has_streams = chosen, False
        if chosen:
            connection.register("given_flows", chosen.flows)
            connection.execute(f"CREATE TABLE {_CHOSEN_FLOWS} AS FROM given_flows")
        self._made: set[str] = set()
        self._added: dict[str, str] = {}  # table -> table of the connection with more of its rows
        self._has_comments = self._are_copies = False
        self._create_tables()

    def show(self, runs: Sequence[str] | None, added: Mapping[str, pa.Table] = MappingProxyType({})) -> None:
        """Show these runs instead, or all. added: rows of tables beside those of the files. Raises UsageError."""
        self._runs = runs
        for name, rows in added.items():
            self._added[name] = f"added_{name}"
            self._connection.register("given_rows", rows)
            self._connection.execute(f"CREATE TABLE {self._added[name]} AS FROM given_rows")
            self._connection.unregister("given_rows")
        with _all_or_nothing(self._connection):
            self._connection.execute(";".join(f"DROP VIEW {name}" for name in schema.TABLES))
            self._create_tables()

    def provide(self, text: str) -> None:
        """Make the queries that SQL of this text may read: those that it names, or all where it may list them.

        Raises UsageError.
        """
        if _LISTS.search(text):
            self._make_all()
            self._withdraw_streams()  # they would be listed a second time
        else:
            named = catalogue.catalogue().keys() & set(re.findall(r"\w+", text.lower()))
            needed = named.union(*map(catalogue.read_by, named)) & catalogue.catalogue().keys()
            self._add(needed)
            if any(catalogue.find(name).made_by for name in needed):
                self._provide_streams()

    def provide_all(self) -> bool:
        """Make all queries, comments on everything, and what Python makes. Returns whether any query or comment is new.

        Raises UsageError.
        """
        is_new = self._make_all()
        self._provide_streams()
        return is_new

    def _make_all(self) -> bool:
        if self._has_comments:
            return False
        if not self._made:
            keep_queries()
        self._add(set(catalogue.catalogue()))
        self._withdraw_streams()  # the comments are of the views
        comments = map(_query_comments, () if self._are_copies else catalogue.catalogue().values())
        self._connection.execute(";".join([*table_comments(), *chain.from_iterable(comments)]))
        self._has_comments = True
        return True

    def _provide_streams(self) -> None:
        """Put what Python makes in the place of its views."""
        if not self._has_streams:
            inferred.provide(self._connection, self._chosen)
            self._has_streams = True

    def _withdraw_streams(self) -> None:
        if self._has_streams:
            inferred.withdraw(self._connection)
            self._has_streams = False

    def _add(self, names: set[str]) -> None:
        new = names - self._made
        if new and not self._copied():
            with _all_or_nothing(self._connection):
                self._connection.execute(";".join(f"DROP VIEW {name}" for name in schema.TABLES))
                _make_queries(
                    self._connection, [query for query in catalogue.catalogue().values() if query.name in new]
                )
                self._create_tables()
            self._made |= new

    def _copied(self) -> bool:
        """Make all queries at once, as copies of those kept in a file: to make ten takes longer.

        False where there is no file that can be read, where some are made, or within a transaction of the user's.
        """
        import duckdb

        file = None if self._made else _kept_queries()
        if file is None or not file.is_file():
            return False
        try:
            with _all_or_nothing(self._connection) as is_own:
                if is_own:
                    copy_queries(self._connection, file)
        except duckdb.InterruptException:
            raise
        except duckdb.Error:  # a damaged file, or a disk without locks
            return False
        if is_own:
            self._made, self._are_copies = set(catalogue.catalogue()), True
            self._connection.execute(f"DETACH {_KEPT}")
        return is_own

    def _create_tables(self) -> None:
        import duckdb

        for table in schema.tables():
            view = _table_view(table, self._place, self._runs, only_flows=self._chosen is not None)
            if table.name in self._added:
                view += f" UNION ALL BY NAME (FROM {self._added[table.name]})"
            try:
                self._connection.execute(view)
            except duckdb.Error as error:
                if failure := self._place.error():
                    raise failure from error
                what = str(error).splitlines()[0]
                raise UsageError(
                    f"{self._place.name}/{table.name}: missing or damaged ({what}); ingest the runs again"
                ) from error


def hide_progress_bar(connection: duckdb.DuckDBPyConnection) -> None:
    """Switch off DuckDB's progress bar, which it draws on stdout, among the data.

    In Jupyter without ipywidgets it is off, and DuckDB refuses to set it.
    """
    if connection.execute("SELECT current_setting('enable_progress_bar')").fetchall() != [(False,)]:
        connection.execute("SET enable_progress_bar = false")


@contextlib.contextmanager
def new_file(file: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection to a new database file, in the format of DuckDB 1.0, which every later version reads."""
    import duckdb

    with duckdb.connect(config={"threads": 1}) as connection:
        connection.execute(f"ATTACH {sql_literal(str(file))} AS traces (STORAGE_VERSION 'v1.0.0'); USE traces")
        yield connection


def write(file: Path, dataset: Path) -> None:
    """Make a database file of the dataset's views and macros. Raises UsageError, OSError, duckdb.Error."""
    import duckdb

    here = in_folder(dataset.resolve())
    _cached(file, _definitions(here)[:16], lambda new: _make_definitions(new, here))
    about = {"dataset": str(dataset.resolve()), "version": __version__}
    columns = ", ".join(f"{sql_literal(value)} AS {name}" for name, value in about.items())
    with duckdb.connect(str(file)) as connection:
        connection.execute(f"{_folder_is(dataset.resolve())}; CREATE VIEW ddnn_traces.about AS SELECT {columns}")


def _cached(file: Path, name: str, make: Callable[[Path], None]) -> None:
    """Make a database file that has only what is the same for many datasets, or copy the one made before.

    To make it takes as long as all else of a small ingest.
    """
    folder = cache.folder("queries")
    cached = folder / f"{name}.duckdb" if folder else None
    if cached and cached.is_file():
        shutil.copyfile(cached, file)
        return
    make(file)
    if cached and _is_loaded():
        _keep(file, cached)


def _is_loaded() -> bool:
    """Whether the definitions in memory are those of the files; after an update an older process has others."""
    return all(path.stat().st_ctime_ns < _LOADED_NS for path in _sources())


def _keep(file: Path, cached: Path) -> None:
    with contextlib.suppress(OSError), whole_file(cached) as half_written:
        shutil.copyfile(file, half_written)
    cache.remove_older(cached, "*.duckdb")


def keep_queries() -> None:
    """Keep all queries with their comments, without tables, in a file of the user's cache, unless it is there."""
    import duckdb

    kept = _kept_queries()
    if kept is None or kept.is_file() or not _is_loaded():
        return
    with tempfile.TemporaryDirectory(prefix="ddnn-traces-") as scratch:
        file = Path(scratch) / "queries.duckdb"
        with duckdb.connect(str(file), config={"threads": 1}) as connection:  # the old format has no MATERIALIZED
            _make_queries(connection, catalogue.catalogue().values(), _query_comments)
        _keep(file, kept)


def _kept_queries() -> Path | None:
    """File of the user's cache for keep_queries(), perhaps not there yet; None where there can be none."""
    folder, name = cache.folder("queries"), _name_of_kept()
    return folder / f"{name}.duckdb" if folder and name else None


@functools.cache
def _name_of_kept() -> str:
    """Empty where this process is older than the files that it would be named after."""
    return f"queries-{_definitions(_relative(()))[:16]}" if _is_loaded() else ""


def copy_queries(connection: duckdb.DuckDBPyConnection, file: Path) -> None:
    """Copy all views and macros of a database file, which stays attached. DuckDB does not bind them again."""
    connection.execute(f"ATTACH {sql_literal(str(file))} AS {_KEPT} (READ_ONLY)")
    [(here,)] = connection.execute("SELECT current_database()").fetchall()
    connection.execute(f"COPY FROM DATABASE {_KEPT} TO {here} (SCHEMA)")


def _make_definitions(file: Path, here: Place) -> None:
    """Make a database file of all views and macros but for the dataset's folder. Raises OSError, duckdb.Error.

    The views are bound to files without rows, in a folder of now, whose name must not be in the file: the same
    definitions have the same bytes.
    """
    import pyarrow.parquet as pq

    folder, empty = glob.escape(str(here.folder)), Path("empty")
    with tempfile.TemporaryDirectory(prefix="ddnn-traces-") as above, new_file(file) as connection:
        for table in schema.tables():
            path = rows_file(above / empty, table.name, "none")
            path.parent.mkdir(parents=True)
            pq.write_table(table.arrow().empty_table(), path)
        connection.execute(f"SET file_search_path = {sql_literal(above)}")
        connection.execute(f"BEGIN; CREATE SCHEMA ddnn_traces; {_folder_is(empty)}")
        _define(connection, here, lambda path: f"{_FOLDER}() || {sql_literal(path.removeprefix(folder))}")
        connection.execute("COMMIT")


def _define(connection: duckdb.DuckDBPyConnection, here: Place, path_sql: Callable[[str], str] = sql_literal) -> None:
    """Make all views and macros, with their comments. path_sql: as in _table_view()."""
    _make_queries(connection, catalogue.catalogue().values(), _query_comments)
    for table in schema.tables():
        connection.execute(_table_view(table, here, path_sql=path_sql))
    connection.execute(";".join(table_comments()))


def _folder_is(folder: Path) -> str:
    meaning = "Folder of the dataset, as read_parquet takes it: another one after the dataset was moved"
    value = sql_literal(glob.escape(str(folder)))
    return f"CREATE OR REPLACE MACRO {_FOLDER}() AS {value}; COMMENT ON MACRO {_FOLDER} IS {sql_literal(meaning)}"


@contextlib.contextmanager
def _all_or_nothing(connection: duckdb.DuckDBPyConnection) -> Iterator[bool]:
    """A transaction, unless the user's SQL began one (false): what is interrupted can be begun again."""
    import duckdb

    try:
        connection.begin()
    except duckdb.TransactionException:
        yield False
        return
    try:
        yield True
    except BaseException:
        connection.rollback()
        raise
    connection.commit()


def _make_queries(
    connection: duckdb.DuckDBPyConnection,
    queries: Iterable[catalogue.Query],
    comments: Callable[[catalogue.Query], Sequence[str]] = lambda _: (),
) -> None:
    """Make queries where their tables are not yet; these must be made afterwards. queries: each after those it reads.

    DuckDB binds a view with all that it reads, and what that reads. So each is bound to empty tables that stand for the
    tables and views: it takes a quarter of the time. A view holds names, not tables, and reads whatever has the name
    later.
    """
    connection.execute(";".join(map(_empty_table, schema.tables())))
    made = []
    for query in queries:
        connection.execute(";".join([_query(query), *comments(query)]))
        if not query.params and not query.made_by:  # whose name a stream of Python may have
            made.append(query.name)
            columns = connection.execute(f"DESCRIBE {query.name}").fetchall()
            listed = ", ".join(f'"{column}" {kind}' for column, kind, *_ in columns)
            connection.execute(
                f"ALTER VIEW {query.name} RENAME TO made_{query.name}; CREATE TABLE {query.name} ({listed})"
            )
    connection.execute(";".join(f"DROP TABLE {name}" for name in (*schema.TABLES, *made)))
    connection.execute(";".join(f"ALTER VIEW made_{name} RENAME TO {name}" for name in made))


def replace_views(dataset: Path, file: Path, folder: Path) -> None:
    """Write the database file of a dataset unless it is current; a reader gets the old or the new one.

    A file that is there may be anybody's, and DuckDB would run what is in it: its bytes are compared. folder: for the
    unfinished file, on the file system of `file`. Raises OSError where there is no space.
    """
    with tempfile.TemporaryDirectory(prefix="ddnn-traces-") as scratch:
        made = Path(scratch) / FILE  # DuckDB gives a question mark in a path another meaning
        write(made, dataset)
        if file.is_file() and not file.is_symlink() and filecmp.cmp(made, file, shallow=False):
            return
        with whole_file(file, folder) as half_written:
            shutil.copyfile(made, half_written)
            # changes of the old file that DuckDB has not yet moved into it would break the new one
            file.with_name(f"{file.name}.wal").unlink(missing_ok=True)


def write_relative(
    file: Path,
    folder: Path,
    tables: Sequence[str],
    define: Callable[[duckdb.DuckDBPyConnection, Sequence[str]], None] | None = None,
) -> None:
    """Make a database file of all views and macros, of files relative to where it is opened or to its file_search_path.

    tables: names of the tables with files; the others are empty. folder: has files of these, with rows or without.
    define: as define_relative(), from the same schemas/ and queries/. Raises OSError, duckdb.Error.
    """
    defining = define or define_relative

    def make(new: Path) -> None:
        with new_file(new) as connection:
            connection.execute(f"SET file_search_path = {sql_literal(str(folder))}")
            defining(connection, tables)

    key = _definitions(_relative(tables), Path(inspect.getfile(defining)))
    _cached(file, f"relative-{key[:16]}", make)


def _relative(tables: Sequence[str]) -> Place:
    return Place("", {name: [f"{name}/*.parquet"] if name in tables else [] for name in schema.TABLES})


def define_relative(connection: duckdb.DuckDBPyConnection, tables: Sequence[str]) -> None:
    """As write_relative(), in a connection whose file_search_path is the folder. Raises duckdb.Error."""
    connection.execute("BEGIN")
    _define(connection, _relative(tables))
    connection.execute("COMMIT")
    connection.execute(
        f"CREATE SCHEMA ddnn_traces; CREATE VIEW ddnn_traces.about AS SELECT {sql_literal(__version__)} AS version"
    )


def _definitions(here: Place, maker: Path = Path(__file__)) -> str:
    """SHA-256 of all that definitions are made from: to read the heads of the queries would take far longer.

    maker: the module that makes them.
    """
    import duckdb

    known = [table for table, files in here.files.items() if files]
    about = (duckdb.__version__, __version__, here.has_older_runs, "=" in str(here.folder), known)  # see _table_view()
    made = hashlib.sha256(repr(about).encode())
    for path in (maker, *_sources()):
        made.update(path.read_bytes())
    return made.hexdigest()


def _sources() -> list[Path]:
    modules = [Path(__file__), *(Path(module.__file__ or "") for module in (catalogue, schema))]
    return [*modules, *_files("queries", "*.sql"), *_files("schemas", "*.toml")]


def _files(name: str, pattern: str) -> list[Path]:
    return sorted(schema.shipped_folder(name).glob(pattern))


def _empty_table(table: schema.Table) -> str:
    columns = ", ".join(f'"{column.name}" {column.types.duckdb}' for column in table.columns)
    return f"CREATE TABLE {table.name} ({columns})"


def _table_view(
    table: schema.Table,
    place: Place,
    runs: Sequence[str] | None = None,
    path_sql: Callable[[str], str] = sql_literal,
    only_flows: bool = False,
) -> str:
    """SQL of a table's view. path_sql: what stands in it for a path of the place's files. only_flows: with rows of the
    chosen flows only; what is declared of all flows together is not known of these."""
    files = place.files[table.name]
    nulls = ", ".join(f'NULL::{column.types.duckdb} AS "{column.name}"' for column in table.columns)
    if not files:
        return f"CREATE VIEW {table.name} AS SELECT {nulls} WHERE false"
    # run_id from the folder names prunes files; it has a type so that a run named 2021-05-01 stays text.
    listed = ", ".join(map(path_sql, files))
    read = listed if len(files) == 1 else f"[{listed}]"
    columns = ", ".join(f'"{column.name}"' for column in table.columns)
    options = "hive_partitioning = true, hive_types = {'run_id': VARCHAR}"
    above, below = zip(*(file.rpartition(f"/{table.name}/")[::2] for file in files), strict=True)
    if any(not folder or "=" in folder for folder in above) or not any("/" in path for path in below):
        # of a relative path what is above is not known: a folder step=3 there would replace the column step
        options = "hive_partitioning = false"
    wanted = [] if runs is None else [f"run_id IN ({', '.join(map(sql_literal, runs)) or 'NULL'})"]
    if only_flows:
        wanted += _of_chosen_flows(table)
        columns = columns.replace('"model_bytes"', 'NULL::BIGINT AS "model_bytes"')  # that of all flows together
    only = f" WHERE {' AND '.join(wanted)}" if wanted else ""
    found = f"read_parquet({read}, {options}"
    if not place.has_older_runs:
        return f"CREATE VIEW {table.name} AS SELECT {columns} FROM {found}){only}"
    # Files may lack columns: what no file has comes from the row of nulls, which is left out.
    every = f"(SELECT {nulls} WHERE false) UNION ALL BY NAME (FROM {found}, union_by_name = true))"
    return f"CREATE VIEW {table.name} AS SELECT {columns} FROM ({every}){only}"


def _of_chosen_flows(table: schema.Table) -> list[str]:
    """Condition of the rows of a table that belong to the chosen flows or their hosts."""
    names = {column.name for column in table.columns}
    if "flow_id" in names:
        return [f"(run_id, flow_id) IN (SELECT run_id, flow_id FROM {_CHOSEN_FLOWS})"]
    if table.name == "hosts":
        return [f"(run_id, host_ip) IN (SELECT run_id, unnest([src_ip, dst_ip]) FROM {_CHOSEN_FLOWS})"]
    return []


def _query(query: catalogue.Query) -> str:
    body = query.sql.strip().removesuffix(";")
    if not query.params:
        return f"CREATE VIEW {query.name} AS {body}"
    for param in query.params:
        body = re.sub(rf"\${param.name}\b", param.name, body)
    signature = ", ".join(f"{param.name} := {_value(param.default)}" for param in query.params)
    return f"CREATE MACRO {query.name}({signature}) AS TABLE {body}"


def table_comments(kind: str = "VIEW") -> list[str]:
    """SQL of the comments on all tables and their columns. kind: what each is in the database, VIEW or TABLE."""
    comments = []
    for table in schema.tables():
        comments.append(f"COMMENT ON {kind} {table.name} IS {sql_literal(table.row)}")
        for column in table.columns:
            unit = f" [{column.unit}]" if column.unit else ""
            comments.append(f"COMMENT ON COLUMN {table.name}.{column.name} IS {sql_literal(column.meaning + unit)}")
    return comments


def _query_comments(query: catalogue.Query) -> list[str]:
    comment = f"{query.question} One row: {query.row}"
    if query.params:  # DuckDB has no comments on the columns of a macro
        comment += "".join(f"\n{column.name}: {column.comment}" for column in query.columns)
        return [f"COMMENT ON MACRO TABLE {query.name} IS {sql_literal(comment)}"]
    columns = [
        f"COMMENT ON COLUMN {query.name}.{column.name} IS {sql_literal(column.comment)}" for column in query.columns
    ]
    return [f"COMMENT ON VIEW {query.name} IS {sql_literal(comment)}", *columns]


def _value(value: Any) -> str:
    if value is None:
        return "NULL"
    return sql_literal(value) if isinstance(value, str) else repr(value)
