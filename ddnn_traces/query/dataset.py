"""A dataset, open for queries: DuckDB views over its Parquet files, frames as polars frames."""

from __future__ import annotations

import fnmatch
import functools
import html
import re
import shlex
import shutil
import tempfile
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import duckdb

from ddnn_traces.errors import QueryError, UsageError
from ddnn_traces.query import catalogue, inferred, missing, read_only, views
from ddnn_traces.store import places, schema
from ddnn_traces.text import counted, listed, meant, nearest

if TYPE_CHECKING:
    import altair as alt
    import polars as pl
    import pyarrow as pa

# No extension is downloaded at run time, and a frame of the caller is not visible as a table.
_CONFIG: dict[str, Any] = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "python_enable_replacements": "false",
    # Most of the planning of queries over views of views: bus_bandwidth in SQL takes 8 s with it and 2 s without. The
    # 82 named queries that were measured on data/dataset take 78 s in all with it and 72 s without.
    "disabled_optimizers": "projection_pullup",
}


#: Errors of DuckDB that may come from a damaged file; those of SQL are of other types, or do not name a file.
_OF_FILES = (duckdb.InternalError, duckdb.FatalException, duckdb.SerializationException)


#: Query -> the one whose column problem states what its rows do not say.
_PROBLEMS = {"ring_order": "several_patterns"}  # a ring is one of a run

#: Queries whose rows compare times of different hosts, which are wrong where clock_differences has a row.
_BETWEEN_HOSTS = frozenset(
    {"collective_comparison", "collective_delays", "collective_entries", "critical_path", "late_together", "long_steps"}
    | {"verdicts"}
)

#: Queries whose rows are of a job's steps, which may be several or a part of one where jobs.agreed_share is below 1.
_OF_JOB_STEPS = frozenset({"collectives", "communicators", "job_periods", "job_steps", "verdicts"})
#: Runs whose doubts are looked for: that takes 30 ms of CPU a run, several times what most of these queries do.
_FEW_RUNS = 20

#: Table -> the query that has its rows of inferred steps.
_INFERRED = {"steps": "inferred_step_rows", "step_flows": "inferred_step_flows"}

# Of results of the package's own statements, which are small (Dataset._result).
warnings.filterwarnings("ignore", "Arrow output on a DB-API result", module=__name__.replace(".", r"\."))

_SHOWN_RUNS = 3  # names in a dataset's repr, and of runs where a name is wrong


#: Queries, and subjects of queries, whose conclusions take a run for one training.
_OF_ONE_TRAINING = frozenset({"several_patterns", "step_bursts", *_PROBLEMS})
_CONCLUDING = frozenset({"topology", "steps", "throughput", "volume", "collectives"})


def _mixes_jobs(name: str, infers_steps: bool) -> bool:
    """Whether a named query concludes on a whole run what traffic beside the training job may disturb.

    infers_steps: volumes of steps do, too; of those in a log they are facts, for which no job is looked for."""
    query = catalogue.find(name)
    takes_job = any(param.name == "job" for param in query.choices)
    of_rows = any(column.name == "job" for column in query.columns)
    reads = catalogue.read_by(name) | {name}
    of_one = _OF_ONE_TRAINING | {"step_flows"} if infers_steps else _OF_ONE_TRAINING
    return takes_job and not of_rows and query.subject in _CONCLUDING and bool(reads & of_one)


def _chosen_by(params: Mapping[str, Any]) -> frozenset[tuple[str, str]]:
    """The parameters that choose a job or communicator."""
    return frozenset((name, str(params[name])) for name in catalogue.SELECTION if name in params)


def _is_of_files(error: duckdb.Error) -> bool:
    """Whether an error of DuckDB may come from a damaged file."""
    if isinstance(error, duckdb.IOException | duckdb.InvalidInputException):
        return ".parquet" in str(error)
    return isinstance(error, _OF_FILES) or type(error) is duckdb.Error


def matching_runs(patterns: Sequence[str], where: str | Path, cache: Path | None = None) -> list[str]:
    """The runs of a dataset that patterns such as tf-* match; names without `*`, `?` and `[` are taken as they are.

    Raises UsageError where a pattern matches none.
    """
    if not any(set(pattern) & set("*?[") for pattern in patterns):
        return list(patterns)
    with Dataset(where, cache=cache) as all_runs:
        names = all_runs.run_ids
    found: dict[str, None] = {}
    for pattern in patterns:
        # a run may be named so
        matching = [pattern] if pattern in names else fnmatch.filter(names, pattern)
        if not matching and set(pattern) & set("*?["):
            raise UsageError(f"{where}: no run matches {pattern}; 'ddnn-traces runs {where}' lists them")
        found |= dict.fromkeys(matching or [pattern])
    return list(found)


#: A macro's call without arguments, or with parameters of the query that calls it.
_CALL = re.compile(r"\b(?P<name>\w+)\((?P<arguments>|\w+ := \$\w+(?:,\s*\w+ := \$\w+)*)\)(?P<alias> AS)?", re.ASCII)


#: A call with a parameter that SQL has not (catalogue.SELECTION).
_CHOICE = re.compile(rf"\b(?P<name>\w+)\([^()]*\b(?P<choice>{'|'.join(catalogue.SELECTION)})\s*:?=")


def _is_by_default(call: re.Match[str], values: Mapping[str, Any]) -> bool:
    """Whether a named query is called as without arguments. values: of the calling query's parameters."""
    if call["name"] not in catalogue.catalogue():
        return False
    defaults = {param.name: param.default for param in catalogue.find(call["name"]).params}
    arguments = re.findall(r"(\w+) := \$(\w+)", call["arguments"])
    return all(defaults[name] == values[given] for name, given in arguments)


def interrupt_until(connection: duckdb.DuckDBPyConnection, done: Callable[[], bool]) -> None:
    """Interrupt a connection's query until `done`: the first interrupts may come before the query runs."""
    while not done():
        connection.interrupt()
        time.sleep(0.005)


def _is_macro(name: str) -> bool:
    return name in catalogue.catalogue() and bool(catalogue.find(name).params)


def _spill_folder() -> str:
    """A folder, readable only by this user, where queries spill data that exceed the memory; "": none."""
    try:
        return tempfile.mkdtemp(prefix="ddnn-traces-")
    except OSError:  # a full or read-only disk: most queries need none
        return ""


class Queries(dict[str, catalogue.Query]):
    """Queries by name, and as functions: queries.topology() has its rows. In a notebook or a console, a line each with
    its question."""

    def __init__(self, dataset: Dataset) -> None:
        super().__init__(catalogue.catalogue())
        self._dataset = dataset

    def __getattr__(self, name: str) -> Callable[..., pl.DataFrame]:
        try:
            query = catalogue.find(name)
        except QueryError as error:
            raise AttributeError(str(error)) from None
        function = functools.partial(self._dataset.query, name)
        function.__doc__ = query.description
        return function

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self]

    def __repr__(self) -> str:
        width = max(map(len, self))
        return "\n".join(f"{query.name:<{width}}  {query.question}" for query in self.values())


def _of_runs_alike(runs: Sequence[tuple[str, int, str]]) -> str:
    """What is said of runs (name, number, what is said), each of these once with the names of its runs."""
    names: dict[str, list[str]] = {}
    for run_id, _, what in runs:
        names.setdefault(what, []).append(run_id)
    return "; ".join(
        f"run{'s' if len(found) > 1 else ''} {listed(found, _FEW_RUNS)}: {what}" for what, found in names.items()
    )


class Dataset:
    """The tables of a dataset as views (with their comments), queries without parameters as views, the others as
    table macros of the same name (`FROM pair_throughput(window_ms := 10)`).

    runs: names of the visible runs, or patterns (tf-*); None: all. read_only: refuse SQL that writes a file or changes
    a view, with errors.QueryError. where: a folder, a zip file of a release, a URL of a release or of a dataset on an
    object store. cache: a folder that keeps the files of a dataset on a store. chosen: a job or a communicator, whose
    flows alone are visible. infer_steps: where a run has no training log, the tables steps and step_flows have the
    steps that its traffic shows, if these are sure (query step_sources); step_notes says so.

    Raises errors.UsageError when it is not a dataset of this schema version, or has no such run, and
    errors.ReleaseError or errors.StorageError when it cannot be read.
    """

    def __init__(
        self,
        where: str | Path,
        runs: str | Sequence[str] | None = None,
        read_only: bool = False,
        cache: str | Path | None = None,
        infer_steps: bool = False,
        chosen: inferred.Chosen | None = None,
    ) -> None:
        self._where, self._cache = where, None if cache is None else Path(cache)
        self._infers_steps = infer_steps
        self._without_log: list[missing.StepSource] = []
        self._with_job: set[str] = set()  # of these runs
        #: Notes on the steps of chosen jobs and communicators.
        self._notes_of_chosen: dict[frozenset[tuple[str, str]], list[str]] = {}
        if runs is not None:
            runs = matching_runs([runs] if isinstance(runs, str) else runs, where, self._cache)
        self.place = places.find(where, runs, self._cache)
        self.name = self.place.name
        spill = _spill_folder()
        self._config = _CONFIG | {"temp_directory": spill}
        self._running = threading.Lock()
        #: Whether StoredViews has tables in the place of views; a query must not compute them itself then.
        self.has_stored_views = False
        #: Macros of which StoredViews has the rows of a call without parameters.
        self.stored_calls: set[str] = set()
        self._connection = duckdb.connect(config=self._config)
        self._remove_spilled = weakref.finalize(self._connection, shutil.rmtree, spill, ignore_errors=True)
        try:
            self._open(runs, read_only, chosen)
        except BaseException:
            self.close()
            raise

    def _open(self, runs: Sequence[str] | None, read_only: bool, chosen: inferred.Chosen | None) -> None:
        views.hide_progress_bar(self._connection)
        self.place.attach(self._connection)
        self._views = views.Views(self._connection, self.place, runs, chosen)
        self._read_only, self._runs = read_only, runs
        if read_only:
            self._connection.execute("SET lock_configuration = true")  # also for functions: enable_logging writes files
        if runs and (unknown := sorted(set(runs) - set(self.run_ids))):
            if gone := self.missing_files():
                raise UsageError(f"{self.name}: {gone[0]}")
            near = nearest(unknown[0], self._all_run_ids(), _SHOWN_RUNS)
            raise UsageError(
                f"{self.name}: no run named {unknown[0]}; {near}; 'ddnn-traces runs {self.name}' lists them"
            )
        if self._infers_steps:
            self._infer_steps()

    def _infer_steps(self) -> None:
        """Add the inferred steps to the tables of those runs that have no log."""
        found = self._connection.execute("SELECT run_id FROM runs ANTI JOIN steps USING (run_id)").fetchall()
        if not found:
            return
        self._views.show([run_id for (run_id,) in found])
        with StoredViews(self) as stored:
            stored.store_inputs("inferred_step_rows")
            self._without_log = self.query("step_sources").rows()
            self._with_job = {*self.sql_arrow("SELECT DISTINCT run_id FROM jobs")["run_id"].to_pylist()}
            stored.store(["inferred_step_rows"])
            added = {table: self.query_arrow(query, {}) for table, query in _INFERRED.items()}
        self._views.show(self._runs, added)

    @property
    def step_notes(self) -> list[str]:
        """Of which runs without a log the steps are inferred, how sure they are, and which runs have none."""
        return missing.lines_of_inferred(self._without_log, self._with_job)

    def step_notes_of(self, params: Mapping[str, Any]) -> list[str]:
        """step_notes of a query with these parameters that was run: where a job was chosen, on this job's steps."""
        return self._notes_of_chosen.get(_chosen_by(params), self.step_notes)

    @property
    def runs_of_inferred_steps(self) -> set[str]:
        """Runs without a log whose tables steps and step_flows have the steps that the traffic shows."""
        return {run for run, kind, *_ in self._without_log if kind == "traffic"}

    @property
    def steps_by_bytes(self) -> list[tuple[str, int, float]]:
        """Of these runs those whose steps are found by repeated bytes: name, steps, confidence."""
        return [
            (run, steps, share)
            for run, _, steps, share, _, found_by in self._without_log
            if found_by == "bytes" and steps is not None and share is not None
        ]

    def _all_run_ids(self) -> list[str]:
        """All runs of the dataset, also those that are not visible."""
        if (self.place.folder, self.place.listed, self.place.known_runs) != (None, None, None):
            return sorted(self.place.run_ids())
        with duckdb.connect(config=self._config) as connection:
            self.place.attach(connection)
            views.Views(connection, self.place)
            return [run_id for (run_id,) in connection.execute("SELECT run_id FROM runs ORDER BY run_id").fetchall()]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the DuckDB connection, interrupt its query, and remove unpacked, downloaded and spilled files."""
        try:
            interrupt_until(self._connection, self._is_closed)
        finally:
            self.place.close()
            self._remove_spilled()

    def _is_closed(self) -> bool:
        """Close the connection; false where a thread is using it, as after a Ctrl-C that came between two lines."""
        try:
            self._connection.close()
        except duckdb.ResourceInUseException:
            return False
        return True

    @property
    def path(self) -> Path:
        """The folder of the tables; of a zip file, where it is unpacked. Raises UsageError for a URL."""
        return self.place.on_this_machine()

    @property
    def run_ids(self) -> list[str]:
        """Names of the runs, in order."""
        return [run_id for (run_id,) in self._connection.execute("SELECT run_id FROM runs ORDER BY run_id").fetchall()]

    @property
    def connection(self) -> duckdb.DuckDBPyConnection:
        """The DuckDB connection, with the tables and queries without parameters as views and the others as macros.

        Views and macros are made when this is first used; query() and sql() make those that they need.
        """
        self._views.provide_all()
        return self._connection

    @property
    def queries(self) -> Queries:
        """The named queries, by name."""
        return Queries(self)

    def __getattr__(self, name: str) -> duckdb.DuckDBPyRelation:
        """A table, as a relation of DuckDB: dataset.flows.filter("packets > 10").pl()."""
        if name not in schema.TABLES:
            near = meant(name, [*schema.TABLES, *(own for own in vars(Dataset) if own[0] != "_")])
            raise AttributeError(f"a dataset has no {name}; {near or 'dir() lists what it has'}")
        return self._connection.table(name)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *schema.TABLES]

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{name}</td><td>{count:,}</td><td>{html.escape(schema.table(name).row)}</td></tr>"
            for name, count in self.row_counts().items()
        )
        head = "<tr><th>table</th><th>rows</th><th>one row is</th></tr>"
        return f"<p>{html.escape(repr(self))}</p><table>{head}{rows}</table>"

    def __repr__(self) -> str:
        runs = self.run_ids
        shown = ", ".join(runs[:_SHOWN_RUNS]) + (", ..." if len(runs) > _SHOWN_RUNS else "")
        return f"<Dataset {self.name}: {counted(len(runs), 'run')}: {shown}>"

    @property
    def only_run(self) -> str:
        """Name of the only visible run. Raises UsageError where there are several."""
        runs = self.run_ids
        if len(runs) != 1:
            shown = ", ".join(runs[:5]) + (", ..." if len(runs) > 5 else "")
            raise UsageError(f"choose one run with --run, in Python runs=[NAME]; {self.name} has {len(runs)}: {shown}")
        return runs[0]

    def query(self, name: str, **params: Any) -> pl.DataFrame:
        """Result of a named query. Raises QueryError for unknown names and parameters."""
        return self._frame(self.query_arrow(name, params))

    def plot(self, name: str, run: str | Sequence[str] | None = None, **params: Any) -> alt.TopLevelMixin:
        """The Altair chart of a query, as the report draws it. run: names or patterns of runs; None: all that are open.

        Raises QueryError for unknown names and parameters, UsageError for a query without a figure, or where there is
        no data for it.
        """
        from ddnn_traces.report import plot

        if run is None:
            with missing.explained(plot.SHOWN_BY.get(name, name)):
                return plot.chart(self, name, params)
        with Dataset(self._where, run, self._read_only, self._cache, infer_steps=self._infers_steps) as chosen:
            return chosen.plot(name, **params)

    def sql(self, text: str, params: Any = None) -> pl.DataFrame:
        """Result of the user's own SQL over the views. Raises QueryError with DuckDB's message."""
        return self._frame(self.sql_arrow(text, params))

    def query_arrow(self, name: str, params: dict[str, Any]) -> pa.Table:
        """As query(), as an Arrow table; the values of `params` may be text."""
        query = catalogue.find(name)
        if selection := query.selection(params):
            return self._of_selection(query, params, **selection)
        values = query.values(params)
        if query.made_by:  # its own SQL is for DuckDB alone
            return self.sql_arrow(f"FROM {name}")
        if self.has_stored_views:
            text = self._with_stored_calls(query.sql, values)
            used = {name: value for name, value in values.items() if re.search(rf"\${name}\b", text)}
            return self.sql_arrow(text, used or None, is_own=True)
        return self.sql_arrow(query.statement, values or None, is_own=True)

    def _of_selection(
        self, query: catalogue.Query, params: dict[str, Any], job: int = 0, communicator: int | None = None
    ) -> pa.Table:
        """Result of a query for the flows of a job, or of a group of its hosts; its rows, where it has a column job."""
        rest = {name: value for name, value in params.items() if name not in catalogue.SELECTION}
        chosen = {"job": job} | ({} if communicator is None else {"communicator": communicator})
        if "job" in (columns := {column.name for column in query.columns}):
            import pyarrow.compute as pc

            if chosen.keys() - columns:
                raise QueryError(f"{query.name} has no communicator; leave that parameter out")
            found = self.query_arrow(query.name, rest)
            for name, value in chosen.items():
                found = found.filter(pc.equal(found[name], value))
            return found
        of = "" if communicator is None else 'JOIN collectives USING (run_id, job, "position") '
        where = " AND ".join(f"{name} = {value}" for name, value in chosen.items())
        flows = self.sql_arrow(
            "SELECT DISTINCT run_id, unnest([flow_id, reverse_flow_id]) AS flow_id, f.src_ip, f.dst_ip "
            f"FROM collective_transfers AS t {of}JOIN flows AS f USING (run_id, flow_id) WHERE {where}"
        )
        if not len(flows):
            said = " and ".join(f"{name} {value}" for name, value in chosen.items())
            raise QueryError(f"{self.name}: no run has {said}; queries jobs and communicators list them")
        jobs = self.sql_arrow(
            "SELECT j.run_id, job, flows, "
            "list_filter(collectives, lambda one: one.position IN positions) AS collectives FROM inferred_jobs AS j "
            f"JOIN (SELECT run_id, job, list(position) AS positions FROM collectives WHERE {where} GROUP BY ALL) "
            "USING (run_id, job)"
        )
        runs = sorted(set(flows["run_id"].to_pylist()))
        of_these = inferred.Chosen(frozenset(chosen), flows, jobs)
        with Dataset(self._where, runs, self._read_only, self._cache, self._infers_steps, of_these) as selected:
            self._notes_of_chosen[_chosen_by(params)] = selected.step_notes
            return selected.query_arrow(query.name, rest)

    def _with_stored_calls(self, text: str, values: Mapping[str, Any]) -> str:
        def stored(call: re.Match[str]) -> str:
            name, alias = call["name"], call["alias"] or f" AS {call['name']}"
            return f'"{name}()"{alias}' if name in self.stored_calls and _is_by_default(call, values) else call[0]

        return _CALL.sub(stored, text)

    def sql_arrow(self, text: str, params: Any = None, is_own: bool = False) -> pa.Table:
        """As sql(), as an Arrow table. is_own: one statement of this package, which may make temporary tables where a
        user's SQL must only read. Raises QueryError."""
        # In a thread of its own, so that a Ctrl-C reaches this one: DuckDB does not always check for signals.
        with ThreadPoolExecutor(1) as thread:
            try:
                running = thread.submit(self._run_alone, text, params, is_own)
                # a signal that another thread receives is seen here only when this one wakes up
                while not wait([running], timeout=0.1).done:
                    pass
                return running.result()
            except (KeyboardInterrupt, SystemExit):
                interrupt_until(self._connection, lambda: not self._running.locked())
                raise

    def _run_alone(self, text: str, params: Any, is_own: bool) -> pa.Table:
        with self._running:
            return self._run(text, params, is_own)

    def _run(self, text: str, params: Any, is_own: bool) -> pa.Table:
        import pyarrow as pa

        if self._read_only and not is_own:
            self.check_reads(self.statements(text))
        try:
            result = self._result(text.lstrip("\n"), params, is_own)  # DuckDB's caret counts empty lines
            return pa.table({}) if result is None else result.to_arrow_table()
        except duckdb.Error as error:
            if failure := self.place.error() if _is_of_files(error) else self.place.failure():
                raise failure from error
            raise QueryError(self._message(error, text, params)) from error

    def provide(self, text: str) -> duckdb.DuckDBPyConnection:
        """Make all queries that SQL of this text may read at once: one by one, as it is run, takes far longer.

        Returns the connection, which has them and perhaps no others.
        """
        self._views.provide(read_only.without_comments(text))
        return self._connection

    def _result(
        self, text: str, params: Any, is_own: bool
    ) -> duckdb.DuckDBPyRelation | duckdb.DuckDBPyConnection | None:
        """What gives the last statement's rows. sql() binds it once more than execute(), which copies the rows: binding
        takes most of the time of the package's own statements, whose results are small."""

        def result() -> duckdb.DuckDBPyRelation | duckdb.DuckDBPyConnection | None:
            return self._connection.execute(text, params) if is_own else self._connection.sql(text, params=params)

        self.provide(text)
        try:
            return result()
        except duckdb.CatalogException:  # a name that the SQL builds; otherwise the message needs the nearest names
            if not self._views.provide_all():
                raise
            return result()

    def _message(self, error: duckdb.Error, text: str, params: Any) -> str:
        """DuckDB's message with the line of the text and a caret below the place.

        For unknown names, sql() gives the message without the line, execute() with it, and neither runs anything. Lines
        are counted from the first word of the statement.
        """
        statements = self.statements(text)
        if len(statements) == 1 and isinstance(error, duckdb.BinderException | duckdb.CatalogException):
            try:
                self._connection.execute(statements[0].lstrip("\n"), params)
            except duckdb.Error as located:
                error = located
        if (macro := re.search(r"Table with name (\w+) does not exist", str(error))) and _is_macro(macro[1]):
            return f"{macro[1]} is a macro, since it has parameters: write {macro[1]}()"
        if (call := _CHOICE.search(text)) and call["name"] in catalogue.catalogue():
            name, choice = call["name"], call["choice"]
            return (
                f"{name}: {choice} is no parameter in SQL, only of 'ddnn-traces query {name}' and Dataset.query(); in "
                "SQL join job_flows for the flows of a job, collective_transfers with collectives for a communicator's"
            )
        if isinstance(error, duckdb.InvalidInputException):  # also what a query states by error()
            return str(error).removeprefix("Invalid Input Error: ")
        before = len(statements[0]) - len(statements[0].lstrip("\n")) if len(statements) == 1 else 0
        return re.sub(r"^LINE (\d+):", lambda line: f"LINE {int(line[1]) + before}:", str(error), flags=re.M)

    def check_reads(self, statements: Sequence[str]) -> None:
        """Raise QueryError where the dataset is read-only and one of the statements writes."""
        if self._read_only:
            for statement in statements:
                read_only.check(statement)

    def row_counts(self) -> dict[str, int]:
        """Number of rows of each table."""
        return {name: self.sql_arrow(f"SELECT count(*) FROM {name}")[0][0].as_py() for name in schema.TABLES}

    def missing(self, name: str) -> list[str]:
        """Data that a named query reads and that runs lack: a line for each kind, with the remedy."""
        return missing.lines_of(
            self._connection, self.place, missing.tables(name), self.run_ids, self._gone, self._infers_steps
        )

    def remarks(self, name: str, params: Mapping[str, Any]) -> list[str]:
        """What the rows of a named query do not say: a line for each run, with the query or parameter that does."""
        rows = self.query_arrow(_PROBLEMS[name], {**params}).to_pylist() if name in _PROBLEMS else []
        if name in _BETWEEN_HOSTS:
            rows += self.query_arrow("clock_differences", {}).to_pylist()
        problems = [f"run {row['run_id']}: {row['problem']}" for row in rows]
        if name == "inferred_steps":
            problems += self._steps_by_bytes()
        if name in _OF_JOB_STEPS:
            problems += self._doubtful_steps()
        if _mixes_jobs(name, self._infers_steps) and not catalogue.SELECTION.keys() & params:
            problems += self._other_traffic(name, params)
        if name in missing.OF_LAWS:
            problems += missing.lines_without_law(self.provide("topology_words"), len(self.run_ids))
        if name == "compare":
            sides = [f"{params[name]}".split("|") for name in ("a_runs", "b_runs")]
            problems += missing.lines_of_copies(self.query_arrow("run_copies", {}).to_pylist(), sides)
        return problems + missing.lines_of_undeclared(self._connection, name, len(self.run_ids))

    def _other_traffic(self, name: str, params: Mapping[str, Any]) -> list[str]:
        """For runs with traffic beside a training job, the command that leaves it out: a line for those of which the
        same holds."""
        alike: dict[tuple[str, bool, str], list[tuple[str, int, str]]] = {}
        rows = self.query_arrow("other_traffic", {}).to_pylist()
        averaging = "SELECT run_id FROM jobs_of_run WHERE is_pair_averaging"
        one_training = set(self.sql_arrow(averaging)["run_id"].to_pylist()) if rows else set()
        for run_id, jobs, problem in ((row["run_id"], row["jobs"], row["problem"]) for row in rows if row["problem"]):
            what, _, follows = problem.partition(": ")  # the jobs of this run, and what holds of several runs
            alike.setdefault((follows, run_id in one_training, "" if follows else run_id), []).append(
                (run_id, jobs, what)
            )
        given = [word for item in params.items() for word in ("--param", "=".join(map(str, item)))]
        lines = []
        for (follows, is_one, _), runs in alike.items():
            run_id, jobs, what = runs[0]
            chosen = ["--run", run_id, *given, "--param", "job=0", *(["--infer-steps"] if self._infers_steps else [])]
            command = shlex.join(["ddnn-traces", "query", self.name, name, *chosen])
            others = f" (jobs 0 to {jobs - 1})" if jobs > 1 else ""
            of_first = f", as of {run_id}" if len(runs) > 1 else ""
            one_job = "" if is_one else f"; of one job alone{of_first}{others}: {command}"
            then = f": {follows}" if follows else ""
            lines.append(f"{_of_runs_alike(runs)}{then}{one_job}")
        return lines

    def _steps_by_bytes(self) -> list[str]:
        """The runs without a log whose steps by repeated bytes are surer than those by pauses."""
        rows = self.query_arrow("step_sources", {}).to_pylist()
        return [
            f"run {row['run_id']}: its flows repeat their bytes in {row['steps']} steps, which --infer-steps takes "
            "(query job_steps)"
            for row in rows
            if row["found_by"] == "bytes"
        ]

    def _doubtful_steps(self) -> list[str]:
        """The jobs whose steps are not those of the log or of pauses, with the confidence that the query jobs gives; of
        many runs, that this query tells."""
        if len(self.run_ids) > _FEW_RUNS:
            return ["the steps of some jobs may be doubtful: query jobs (agreed_share) says of which runs"]
        return [
            f"run {job['run_id']}, job {job['job']}: {job['problem']} (query jobs: confidence {job['confidence']:.2f})"
            for job in self.query_arrow("jobs", {}).to_pylist()
            if job["problem"]
        ]

    def missing_files(self) -> list[str]:
        """Files that ingest wrote and that are gone: a line for each run, with the remedy."""
        return missing.lines_of_files(self._gone)

    @functools.cached_property
    def _gone(self) -> dict[str, list[str]]:
        return missing.files(self.place, self._runs)

    def statements(self, text: str) -> list[str]:
        """The SQL statements in a text. Raises QueryError with DuckDB's message.

        Each begins with as many line ends as there are before it, so that messages have the line numbers of the text.
        """
        text.encode()  # UnicodeEncodeError, which DuckDB would not explain
        try:
            found, place = [], 0
            for statement in self._connection.extract_statements(text):
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


class StoredViews:
    """Views that queries read, stored as temporary tables of the same names within a `with` block.

    DuckDB finds the tables before the views: many queries read topology or pair_payload, and would compute them again
    each time. So do calls of macros by their defaults, as inferred_steps(), stored as a table "inferred_steps()".
    Raises QueryError.
    """

    def __init__(self, dataset: Dataset) -> None:
        self._dataset = dataset
        self._names: dict[str, None] = {}  # in order

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._dataset.has_stored_views = False
        self._dataset.stored_calls.clear()
        for name in reversed(self._names):
            self._dataset.sql_arrow(f'DROP TABLE temp."{name}"', is_own=True)

    def store_inputs(self, name: str) -> None:
        """Store the views that the query of this name reads, and those that they read, and what it calls."""
        query = catalogue.find(name)
        self.store(query.inputs)
        defaults = {param.name: param.default for param in query.params}
        for call in _CALL.finditer(query.sql):
            called = call["name"]
            if called in query.inputs and f"{called}()" not in self._names and _is_by_default(call, defaults):
                self._create(f"{called}()")
                self._dataset.stored_calls.add(called)

    def store(self, names: Collection[str]) -> None:
        """Store the views among these tables and queries, and those that they read."""
        self._dataset.provide(" ".join(names))
        for name in names:
            if name in catalogue.catalogue() and name not in self._names:
                self.store(catalogue.find(name).inputs)
                if catalogue.find(name).is_view:
                    self._create(name)

    def _create(self, source: str) -> None:
        self._dataset.sql_arrow(f'CREATE TEMP TABLE "{source}" AS FROM {source}', is_own=True)
        self._names[source] = None
        self._dataset.has_stored_views = True
