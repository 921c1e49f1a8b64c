"""An interactive SQL shell over a dataset."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ddnn_traces import schema, terminal
from ddnn_traces.errors import QueryError
from ddnn_traces.queries import catalogue

if TYPE_CHECKING:
    from ddnn_traces.dataset import Dataset


def run_shell(dataset: Dataset, limit: int) -> None:
    """Read statements that end in ';' and print their results, until the end of input."""
    import readline  # noqa: F401  (gives input() history and editing)

    click.echo(f"tables: {', '.join(schema.TABLES)}", err=True)
    click.echo(f"queries: {', '.join(sorted(catalogue()))}", err=True)
    click.echo("End a statement with ';'. Leave with Ctrl-D.", err=True)
    while (statement := _read_statement()) is not None:
        try:
            for one in dataset.statements(statement):
                terminal.print_table(dataset.sql_arrow(one), limit=limit)
        except QueryError as error:
            click.echo(str(error), err=True)


def _read_statement() -> str | None:
    """Lines up to one that ends in ';'; None at the end of input. Ctrl-C drops what was typed."""
    lines: list[str] = []
    while True:
        try:
            line = input("  ...> " if lines else "ddnn> ")
        except EOFError:
            click.echo(err=True)
            return None
        except KeyboardInterrupt:
            click.echo(err=True)
            lines = []
            continue
        lines.append(line)
        if line.rstrip().endswith(";"):
            return "\n".join(lines)
