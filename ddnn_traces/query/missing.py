"""What a query's runs lack: files that are gone, tables without rows, and how to get them."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from ddnn_traces.capture_format import PARSED
from ddnn_traces.errors import NoDataError
from ddnn_traces.query import catalogue
from ddnn_traces.store import checksums, schema
from ddnn_traces.text import as_sentence, counted, listed

if TYPE_CHECKING:
    import duckdb

    from ddnn_traces.store.places import Place

#: Table -> the table whose missing rows explain its own: each cause is reported once.
_EXPLAINED_BY = {
    "step_flows": "steps", "flow_windows": "flows", "messages": "flows", "hosts": "flows", "capture_ledger": "captures",
}  # fmt: skip

#: Table -> what a run without rows in it does not have, and what to do.
_HINTS = {
    "flows": ("no packet that counts", "query ledger_sums shows the reasons for its records"),
    "hosts": ("no hosts", "ingest again"),
    "flow_windows": ("no windows of its flows", "ingest again, or write it as schemas/flow_windows.toml defines"),
    "messages": ("no messages of its flows", "ingest it again with --force: an older version wrote it, or no capture"),
    "step_flows": ("a training log, but no packet by its steps", "ingest again with --clock-offset auto"),
    "capture_ledger": ("no ledger of its captures", "ingest again"),
    "steps": (
        "no training log",
        "--infer-steps takes the steps that the traffic shows, where they are sure; or put train_history.log into the "
        "run's folder and ingest again",
    ),
    "events": ("no phases of its steps", "put phases-worker-N.csv into the run's folder and ingest again"),
    "captures": ("no capture file", "only a run that was captured has any"),
    "packets": ("no packets one by one", "ingest again with --packets"),
    "encapsulations": ("no tunnel in its traffic", "only --tunnels inner looks for them"),
    "flow_opcodes": ("no RoCEv2 in its traffic", "nothing else has opcodes"),
}  # fmt: skip

#: Tables of which a run from parsed files has a part: what the packets' headers tell is null, and no messages.
_BY_PACKETS = frozenset({"flows", "flow_windows", "step_flows", "messages"})
_PARSED = (
    "parsed files stand for captures, so payload, retransmissions, losses and messages are not known; ingest the pcaps "
    "if there are any"
)
_LOGGED = frozenset({"steps", "step_flows"})  # tables that have no rows without a log
_MOST_NAMES = 3
_MOST_INFERRED = 20  # runs whose steps are inferred, in a message

#: A query, or the subject of queries -> the runs that do not declare what it takes for granted, and what to do.
_UNDECLARED = {
    "link_utilization": (
        "SELECT run_id FROM runs WHERE bandwidth_mbit IS NULL ORDER BY run_id",
        "the rate of the links is not declared, and traffic does not show it; give bandwidth_mbit in run.toml or "
        "runs.csv and ingest again",
    ),
    # parameter_servers takes the centre of a star for one where one is declared
    "servers": (
        "SELECT run_id FROM runs WHERE topology IS NULL "
        "AND run_id NOT IN (SELECT run_id FROM hosts WHERE role = 'parameter_server') ORDER BY run_id",
        "no parameter server and no topology is declared, and traffic cannot tell a parameter server from the centre "
        "of a star, or servers on workers from a clique; query topology has what the traffic shows (root_ip is a "
        "star's centre); give the host its role in run.toml and ingest again",
    ),
}


#: Query -> what it looks for and did not find, where it has no rows.
NOT_FOUND = {
    "batch_pair_excerpt": "no two runs differ in their batch size alone (batch_size in run.toml or runs.csv)",
}
#: Queries whose rows rest on the law of the declared topology.
OF_LAWS = frozenset({"bus_bandwidth", "conservation", "ring_comparison"})
#: The runs that declare a word for which there is no law.
_WITHOUT_LAW = """
SELECT run_id
FROM runs
WHERE topology IS NOT NULL
      AND NOT EXISTS (FROM topology_words WHERE regexp_full_match(lower(replace(runs.topology, '-', '_')), pattern))
ORDER BY run_id
"""


@contextlib.contextmanager
def explained(name: str) -> Iterator[None]:
    """Around the drawing of a query: raises a NoDataError again, which then says what the query did not find."""
    try:
        yield
    except NoDataError as error:
        said = [as_sentence(NOT_FOUND[name])] if name in NOT_FOUND else []
        raise NoDataError(" ".join([str(error), *said])) from None


def known_laws(topologies: Iterable[str]) -> str:
    """What to do where a declared topology has no law. topologies: of the query topology_words."""
    return (
        f"laws are known of {', '.join(sorted({*topologies}))}; of other collectives, as those of fsdp or of double "
        "binary trees, queries collectives and collective_times have what is sent and when"
    )


def tables(name: str) -> list[str]:
    """Tables that a named query needs, also through the queries that it reads."""
    needed = catalogue.read_by(name, optional=False)
    return [table for table in schema.TABLES if table in needed]


def lines_of(
    connection: duckdb.DuckDBPyConnection,
    place: Place,
    wanted: list[str],
    runs: list[str],
    gone: Mapping[str, list[str]],
    infers_steps: bool = False,
) -> list[str]:
    """A line for each kind of data that these tables hold and some of the runs lack. Reads the ends of files only.

    gone: files(), which have lines of their own. infers_steps: whether lines_of_inferred() tells of runs without a log.
    """
    parsed = _parsed_runs(connection, place, runs) if _BY_PACKETS & {*wanted} else []
    lines = [f"{_named(parsed, len(runs))}: {_PARSED}"] if parsed else []
    needed = dict.fromkeys(source for table in wanted for source in (_EXPLAINED_BY.get(table, table), table))
    lacking: dict[str, list[str]] = {}
    for table in needed:
        if table == "runs" or (infers_steps and table in _LOGGED):
            continue
        filled = _runs_with_rows(connection, place, table)
        explained = [*lacking.get(_EXPLAINED_BY.get(table, ""), []), *(parsed if table == "messages" else ())]
        lacking[table] = [run for run in runs if run not in filled]
        without_file = {run for run, names in gone.items() if table in map(_table, names)}
        if unexplained := [run for run in lacking[table] if run not in {*explained, *without_file}]:
            what, remedy = _HINTS[table]
            lines.append(f"{_named(unexplained, len(runs))}: {what} (table {table} is empty); {remedy}")
    return lines


def files(place: Place, runs: Sequence[str] | None) -> dict[str, list[str]]:
    """The files of each run, or of these runs, that were written and are gone; a release has no record of them."""
    return {} if place.folder is None else checksums.missing(place.folder, runs)


def lines_of_files(gone: Mapping[str, list[str]]) -> list[str]:
    """A line for each run that lacks files. gone: files()."""
    return [
        f"run {run}: {names[0]} is missing{_more(len(names) - 1)}; ingest the run again"
        for run, names in sorted(gone.items())
    ]


#: A row of the query step_sources: run_id, steps_from, steps, confidence, problem, found_by.
StepSource = tuple[str, str, int | None, float | None, str | None, str | None]


def lines_of_inferred(without_log: Sequence[StepSource], with_job: Collection[str]) -> list[str]:
    """A line for the runs whose steps are inferred, and one for those that have none, with the reasons.

    with_job: runs in whose traffic a job is found, sure or not.
    """
    inferred = [
        f"{run} ({steps}, confidence {share:.2f})" for run, kind, steps, share, *_ in without_log if kind == "traffic"
    ]
    unsure = {run: f"{run} ({problem})" for run, kind, _, _, problem, _ in without_log if kind == "none"}
    lines = []
    if inferred:
        lines.append(f"no training log: steps are inferred from the traffic in {_runs_named(inferred)}")
    if unsure:
        named = _runs_named([*unsure.values()])
        lines.append(f"no training log, and no sure steps in the traffic, so that none count, in {named}")
    if jobs := listed([run for run in unsure if run in with_job], _MOST_NAMES):
        lines[-1] += f"; query job_steps has the steps of the jobs in {jobs}, query jobs how sure they are"
    return lines


def _runs_named(names: Sequence[str]) -> str:
    return f"{counted(len(names), 'run')}: {listed(names, _MOST_INFERRED)}"


def lines_of_undeclared(connection: duckdb.DuckDBPyConnection, name: str, runs: int) -> list[str]:
    """A line for what runs do not declare and a named query takes for granted. runs: number of all."""
    lines = []
    for key in (name, catalogue.find(name).subject):
        if key in _UNDECLARED:
            undeclared, what = _UNDECLARED[key]
            found = [run_id for (run_id,) in connection.execute(undeclared).fetchall()]
            lines += [f"{_named(found, runs)}: {what}"] if found else []
    return lines


def lines_of_copies(rows: Sequence[Mapping[str, Any]], sides: Iterable[Sequence[str]]) -> list[str]:
    """A line for each set of runs of a side that hold the same packets. rows: of run_copies. sides: their patterns."""
    alike: dict[tuple[str, ...], None] = {}
    for patterns in sides:
        found: dict[str, list[str]] = {}
        for row in rows:
            if any(fnmatchcase(row["run_id"], pattern) for pattern in patterns):
                found.setdefault(row["first_run_id"], []).append(row["run_id"])
        alike |= dict.fromkeys(tuple(names) for names in found.values() if len(names) > 1)
    return [
        f"runs {listed(names, _MOST_NAMES)}: they hold the same packets, as copies of a folder do, and count as one "
        "run of a group (query run_copies)"
        for names in alike
    ]


def lines_without_law(connection: duckdb.DuckDBPyConnection, runs: int) -> list[str]:
    """A line for the runs whose declared topology has no law. connection: with topology_words. runs: number of all."""
    if not (found := [run_id for (run_id,) in connection.execute(_WITHOUT_LAW).fetchall()]):
        return []
    topologies = [topology for (topology,) in connection.execute("SELECT topology FROM topology_words").fetchall()]
    return [f"{_named(found, runs)}: the declared topology is no word with a law; {known_laws(topologies)}"]


def _more(files: int) -> str:
    return f", and {counted(files, 'more file')}" if files else ""


def _table(name: str) -> str:
    return name.partition("/")[0]


def _named(lacking: list[str], runs: int) -> str:
    if len(lacking) == 1:
        return f"run {lacking[0]}"
    more = f" and {len(lacking) - _MOST_NAMES} more" if len(lacking) > _MOST_NAMES else ""
    return f"{len(lacking)} of {runs} runs ({', '.join(lacking[:_MOST_NAMES])}{more})"


def _parsed_runs(connection: duckdb.DuckDBPyConnection, place: Place, runs: list[str]) -> list[str]:
    """The runs that have a parsed file (ingestors/parsed_files.py)."""
    if not (files := place.files["captures"]):
        return []
    rows = connection.execute(
        "SELECT DISTINCT run_id FROM read_parquet($1, union_by_name = true, hive_partitioning = false) "
        "WHERE format = $2", [list(files), PARSED],
    ).fetchall()  # fmt: skip
    found = {run for (run,) in rows}
    return [run for run in runs if run in found]


def _runs_with_rows(connection: duckdb.DuckDBPyConnection, place: Place, table: str) -> set[str]:
    if place.filled is not None:
        return {*place.filled[table]}
    if place.listed is not None:
        return set().union(*(file.runs for file in place.listed if file.table == table))
    if not (files := place.files[table]):
        return set()
    rows = connection.execute(
        "SELECT file_name FROM parquet_file_metadata($1) GROUP BY ALL HAVING sum(num_rows) > 0", [list(files)]
    ).fetchall()
    return {unquote(PurePosixPath(file).parent.name.removeprefix("run_id=")) for (file,) in rows}
