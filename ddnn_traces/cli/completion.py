"""Completion in a shell: names of queries, parameters, runs and tables. Every command imports it: it imports little."""

from __future__ import annotations

import contextlib
from pathlib import Path

import click
from click.shell_completion import CompletionItem


def query_names(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Queries, each with its question."""
    from ddnn_traces.query import catalogue

    known = catalogue.catalogue()
    return [CompletionItem(name, help=known[name].question) for name in sorted(known) if name.startswith(incomplete)]


def parameters(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Parameters of the query on the command line, each with its default and meaning."""
    from ddnn_traces.query import catalogue

    query = catalogue.catalogue().get(_argument(context, "name", 1))
    return [
        CompletionItem(f"{param.name}=", help=f"{param.type}, default {param.default}: {param.meaning}")
        for param in (query.params if query else ())
        if param.name.startswith(incomplete)
    ]


def run_ids(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Runs of the dataset on the command line."""
    dataset = _argument(context, "dataset", 0)
    from ddnn_traces.errors import DdnnTracesError
    from ddnn_traces.store.places import in_folder

    names: set[str] = set()
    with contextlib.suppress(DdnnTracesError, OSError):  # nothing is printed while a line is typed
        names = in_folder(Path(dataset)).run_ids()
    return [CompletionItem(name) for name in sorted(names) if name.startswith(incomplete)]


def tables(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Tables, each with the meaning of a row."""
    from ddnn_traces.store import schema

    return [
        CompletionItem(table.name, help=f"a row: {table.row}")
        for table in schema.tables()
        if table.name.startswith(incomplete)
    ]


def _argument(context: click.Context, name: str, place: int) -> str:
    """An argument of the unfinished call; click has not named it yet where an option's value is being typed."""
    given = context.params.get(name) or "".join(context.args[place : place + 1])
    return str(given)
