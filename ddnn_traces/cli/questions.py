"""Commands that query a dataset: runs, describe, query, diagnose, sql, check."""

from __future__ import annotations

import shlex
import sys
from collections import Counter
from collections.abc import Collection
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ddnn_traces.cli.arguments import (
    DatasetPath,
    RowsOutput,
    complete_queries,
    complete_tables,
    dataset_argument,
    infer_steps_option,
    key_values,
    open_dataset,
    params_option,
    prints_rows,
    refuse_inferred,
    runs_option,
    say_notes,
)
from ddnn_traces.cli.lines import say
from ddnn_traces.errors import UsageError
from ddnn_traces.text import counted, listed, printable

if TYPE_CHECKING:
    from ddnn_traces.query.catalogue import Query
    from ddnn_traces.store.checksums import Damage

_MOST_NAMES = 3  # captures in a message


@click.command(short_help="List the runs with their metadata and volume")
@dataset_argument
@runs_option
@infer_steps_option
@prints_rows()
def runs(dataset: str | Path, runs: tuple[str, ...], infer_steps: bool, output: RowsOutput) -> None:
    """List the runs with their metadata and volume."""
    with open_dataset(dataset, runs, infer_steps=infer_steps) as opened:
        rows = opened.query_arrow("run_overview", {})
    output.emit(rows)
    if without_log := 0 if infer_steps else sum(not steps for steps in rows["steps"].to_pylist()):
        say(
            f"note: {without_log} of {counted(rows.num_rows, 'run')} without a training log; --infer-steps counts the "
            "steps that the traffic shows, where they are sure"
        )
    undeclared = rows["topology"].null_count if rows.num_rows else 0
    if undeclared:
        of_runs = f"{undeclared} of {counted(rows.num_rows, 'run')}"
        say(
            f"note: no topology is declared for {of_runs} (in run.toml or the folder's name); query topology infers it "
            "from the traffic"
        )


@click.command(short_help="Print the meaning and unit of every table and column")
@click.argument("dataset", type=DatasetPath(), required=False)
@click.option(
    "--table", "names", multiple=True, shell_complete=complete_tables, help="Only this table; may be repeated."
)
def describe(dataset: str | Path | None, names: tuple[str, ...]) -> None:
    """Print the data dictionary: every table and column with type, unit, meaning, source and known inaccuracy.

    With a DATASET, also its numbers of rows.
    """
    from ddnn_traces.store import schema

    counts = {}
    if dataset is not None:
        with open_dataset(dataset) as opened:
            counts = opened.row_counts()
    click.echo(schema.markdown(names, counts))


@click.command(short_help="Run a named query; without a name, list the queries")
@dataset_argument
@click.argument("name", required=False, shell_complete=complete_queries)
@runs_option
@params_option
@click.option(
    "--by",
    metavar="SETTING,...",
    help="Pool runs that are equal in these settings, as --param pool_by=...: of queries that have this parameter.",
)
@click.option(
    "--describe", "only_describe", is_flag=True, help="Print the question, the parameters, the columns and the SQL."
)
@infer_steps_option
@prints_rows()
def query(
    dataset: str | Path,
    name: str | None,
    runs: tuple[str, ...],
    params: tuple[str, ...],
    by: str | None,
    only_describe: bool,
    infer_steps: bool,
    output: RowsOutput,
) -> None:
    """Run a named query. Without NAME: list the queries.

    Notes on standard error list data that the query reads and that runs lack.
    """
    from ddnn_traces.query import catalogue, no_rows

    if name is None:
        _list_queries()
        return
    if name not in catalogue.catalogue() and str(dataset) in catalogue.catalogue():
        order = f"ddnn-traces query {shlex.quote(name)} {dataset}"
        raise UsageError(f"{dataset} is a query, and the dataset comes first: {order}")
    if only_describe:
        click.echo(catalogue.find(name).description)
        return
    given = key_values(params) | ({} if by is None else {"pool_by": by})
    if by is not None and not _pools(catalogue.find(name)):
        pooling = [query.name for query in catalogue.catalogue().values() if _pools(query)]
        raise UsageError(f"--by {by}: query {name} does not pool runs; those that do: {', '.join(pooling)}")
    catalogue.find(name).values(given)  # refuses wrong ones before the dataset is opened
    if infer_steps:
        refuse_inferred(name)
    with open_dataset(dataset, runs, infer_steps=infer_steps, params=given) as opened:
        rows = opened.query_arrow(name, given)
        notes = [*opened.missing(name), *opened.remarks(name, given)]
        if not rows.num_rows:
            notes += no_rows.reasons(opened, name)
        output.emit(rows, catalogue.find(name).answer)
        say_notes(notes)


def _pools(query: Query) -> bool:
    return any(param.name == "pool_by" for param in query.params)


def _list_queries() -> None:
    from ddnn_traces.query import catalogue

    width = max(map(len, catalogue.catalogue()))
    for number, (subject, group) in enumerate(catalogue.groups().items()):
        click.echo(f"{'' if number == 0 else chr(10)}{catalogue.SUBJECTS[subject]}")
        for query in group:
            click.echo(f"  {query.name:<{width}}  {query.question}")


@click.command(short_help="Say which host or link makes the steps slow")
@dataset_argument
@runs_option
@prints_rows(default="sentences")
def diagnose(dataset: str | Path, runs: tuple[str, ...], output: RowsOutput) -> None:
    """Print which host or link makes the steps of each training job slow, the costliest first.

    Inferred from the traffic, in each run by itself (query verdicts, docs/delays.md). Where programs logged when they
    communicate, no slow host is named that their log contradicts.

    With --format, or another option of rows, also what else is said of each run is a row, and its kind says of what.
    """
    import ddnn_traces
    from ddnn_traces.query import diagnosis

    with open_dataset(dataset, runs) as opened:
        if output.is_chosen:
            output.emit(ddnn_traces.diagnose(opened).to_arrow(), ("rank", "kind", "sentence"))
            return
        lines = diagnosis.diagnose(opened).lines()
    for line in lines:
        click.echo(printable(line))
    if not lines:
        say("no runs")


@click.command(short_help="Run your own SQL; without a statement, open a shell")
@dataset_argument
@click.argument("statement", required=False)
@runs_option
@click.option("--write", is_flag=True, help="Also run statements that write: COPY ... TO, ATTACH, CREATE, SET, ...")
@infer_steps_option
@prints_rows()
def sql(
    dataset: str | Path,
    statement: str | None,
    runs: tuple[str, ...],
    write: bool,
    infer_steps: bool,
    output: RowsOutput,
) -> None:
    """Run your own SQL (DuckDB) over the tables and queries as views. Without STATEMENT: read it from standard
    input, on a terminal as a shell.

    Only statements that read are run, unless --write is given.
    """
    in_shell = statement is None and sys.stdin.isatty()
    with open_dataset(dataset, runs, not write, infer_steps, tells_steps=not in_shell) as opened:
        if in_shell:
            from ddnn_traces.cli.shell import run_shell

            say_notes(opened.step_notes)
            run_shell(opened, output.limit, infer_steps)
            return
        text = sys.stdin.read() if statement is None else statement
        statements = opened.statements(text)
        if infer_steps:
            refuse_inferred(text)
        if len(statements) != 1 and (output.format != "table" or output.out):
            raise UsageError(f"{len(statements)} statements make no single {output.format}; give one")
        opened.check_reads(statements)  # all of them, before the first one runs
        for one in statements:
            output.emit(opened.sql_arrow(one))


@click.command(short_help="Check a dataset of your own: files, ledger, agreement of tables")
@dataset_argument
@runs_option
def check(dataset: str | Path, runs: tuple[str, ...]) -> None:
    """Check the data: whether the files are what was written, every record is accounted for, and the tables agree. Exit
    1 with the offending rows, or where captures were read only in part.

    stored_files compares each file with its size and BLAKE3 (checksums.json) and with the checksums of its pages; the
    other checks leave out runs with a damaged file. A check that has nothing to examine in a run is "not checked"
    there; query `unchecked` lists these. Captures that were truncated or corrupt when they were ingested are named: the
    dataset has what could be read of them, so its volumes are too low.
    """
    from ddnn_traces.cli import terminal
    from ddnn_traces.query import checks
    from ddnn_traces.query.dataset import StoredViews, matching_runs

    chosen = tuple(matching_runs(runs, dataset))
    damaged = _check_files(dataset, chosen)
    if damaged:
        chosen = tuple(run for run in checks.sound_runs(dataset, damaged) if not chosen or run in chosen)
        if not chosen:
            say("no run is left for the other checks")
            raise click.exceptions.Exit(1)
    with open_dataset(dataset, chosen) as opened, StoredViews(opened) as stored:
        checks.store_inputs(stored)
        stored.store_inputs("unchecked")
        found, count = checks.run_checks(opened), len(opened.run_ids)
        unchecked = opened.query_arrow("unchecked", {}).to_pylist()
        partial = opened.query_arrow("partial_captures", {}).to_pylist()
    for name, rows in found.items():
        lacking = [row for row in unchecked if row["check_name"] == name]
        click.echo(f"{name}: {_outcome(rows.num_rows, lacking, count)}")
        if rows.num_rows:
            terminal.print_table(rows, name)
    if partial:
        click.echo(printable(_partial_captures(partial)))
    if damaged or partial or any(rows.num_rows for rows in found.values()):
        raise click.exceptions.Exit(1)


def _check_files(dataset: str | Path, chosen: Collection[str]) -> list[Damage]:
    """Print what is damaged of these runs (none: of all), and return it."""
    import pyarrow as pa

    from ddnn_traces.cli import terminal
    from ddnn_traces.query import checks

    damaged = checks.damaged_files(dataset)
    if damaged is None:
        click.echo("stored_files: not checked: only files in a folder of this machine, or of a dataset on a store, are")
        return []
    damaged = [damage for damage in damaged if not chosen or damage.run_id in (None, *chosen)]
    if damaged:
        click.echo(f"stored_files: {counted(len(damaged), 'damaged file')}; ingest the runs again")
        terminal.print_table(pa.Table.from_pylist([asdict(damage) for damage in damaged]), "stored_files")
    else:
        runs = checks.unrecorded_runs(dataset)
        only = f" by its pages alone in {counted(runs, 'run')} without a record in checksums.json" if runs else ""
        click.echo(f"stored_files: ok{only}")
    return damaged


def _partial_captures(rows: list[dict[str, Any]]) -> str:
    """What was damaged before ingest: the dataset has what could be read. rows: of the query."""
    files = [
        f"{row['run_id']}/{row['capture_id']} {row['status']}: {row['status_detail']}; "
        f"{counted(row['records'], 'packet')} before that were read, what follows is missing"
        for row in rows
    ]
    names = listed(files, _MOST_NAMES)
    number = counted(len(rows), "capture file")
    step = "copy the files again where they are whole, and ingest again (query partial_captures)"
    return f"partial_captures: {number} read only in part ({names}); {step}"


def _outcome(rows: int, lacking: list[dict[str, Any]], runs: int) -> str:
    """What a check found. rows: those that offend; lacking: its rows of the query `unchecked`; runs: in the dataset."""
    unchecked = sum(not row["is_partial"] for row in lacking)
    parts = []
    if rows:
        parts.append(counted(rows, "offending row"))
    elif unchecked < runs:
        parts.append(f"ok in {runs - unchecked} of {runs} runs" if unchecked else "ok")
    for (is_partial, reason), number in Counter((row["is_partial"], row["reason"]) for row in lacking).items():
        where = f" ({number} of {runs} runs)" if runs > 1 else ""
        parts.append(f"{'' if is_partial else 'not checked: '}{reason}{where}")
    return "; ".join(parts)
