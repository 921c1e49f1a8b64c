"""An interactive SQL shell over a dataset."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import click

from ddnn_traces.cli import terminal
from ddnn_traces.errors import QueryError
from ddnn_traces.query.catalogue import catalogue
from ddnn_traces.store import schema
from ddnn_traces.text import printable_lines

if TYPE_CHECKING:
    from ddnn_traces.query.dataset import Dataset

_KEYWORDS = (
    "SELECT", "FROM", "WHERE", "GROUP", "BY", "ALL", "ORDER", "LIMIT", "JOIN", "LEFT", "USING", "ON", "AS", "WITH",
    "HAVING", "QUALIFY", "DISTINCT", "COUNT", "SUM", "MIN", "MAX", "AVG", "QUANTILE_CONT", "ARG_MAX", "FILTER", "OVER",
    "PARTITION", "DESC", "AND", "OR", "NOT", "NULL", "IS", "IN", "LIKE", "BETWEEN", "CASE", "WHEN", "THEN", "ELSE",
    "END", "EXCLUDE", "DESCRIBE", "SUMMARIZE", "EXPLAIN", "PIVOT", "ASOF", "UNION", "SHOW", "TABLES",
)  # fmt: skip
_BEFORE_A_TABLE = {"FROM", "JOIN", "DESCRIBE", "SUMMARIZE", "PIVOT"}


def run_shell(dataset: Dataset, limit: int) -> None:
    """Read statements that end in ';' and print their results, until the end of input. Tab completes names."""
    import readline

    completer = Completer(dataset)
    readline.set_completer_delims(" \t\n\"'`()[]{}<>=+-*/%,;:.|&!")
    readline.set_completer(lambda text, state: completer.word(readline.get_line_buffer(), text, state))
    readline.parse_and_bind("bind ^I rl_complete" if "libedit" in (readline.__doc__ or "") else "tab: complete")
    click.echo(f"tables: {', '.join(schema.TABLES)}", err=True)
    click.echo(f"queries: {', '.join(sorted(catalogue()))}", err=True)
    click.echo("End a statement with ';'. Tab completes names. Leave with Ctrl-D.", err=True)
    while (statement := _read_statement()) is not None:
        try:
            statements = dataset.statements(statement)
            dataset.check_reads(statements)  # all of them, before the first one runs
            for one in statements:
                terminal.print_table(dataset.sql_arrow(one), limit=limit)
        except QueryError as error:
            click.echo(printable_lines(str(error)), err=True)


class Completer:
    """Completes tables, queries, columns and keywords."""

    def __init__(self, dataset: Dataset) -> None:
        queries = (name + "(" * bool(query.params) for name, query in catalogue().items())
        self._tables = sorted([*schema.TABLES, *queries])
        columns = "SELECT DISTINCT column_name FROM duckdb_columns() WHERE NOT internal"
        params = {param.name for query in catalogue().values() for param in query.params}
        self._columns = sorted(set(dataset.sql(columns)["column_name"]) | params)

    def words(self, line: str, text: str) -> list[str]:
        """Completions of `text`, the end of `line`: after FROM tables and queries, elsewhere all names."""
        before = re.findall(r"\w+|\S", line[: len(line) - len(text)].upper())
        known = self._tables if before[-1:] and before[-1] in _BEFORE_A_TABLE else [*self._columns, *self._tables]
        found = [name for name in known if name.startswith(text.lower())]
        if known is not self._tables and text and before[-1:] != ["."]:
            keywords = [word for word in _KEYWORDS if word.startswith(text.upper())]
            found += keywords if text.isupper() else [word.lower() for word in keywords]
        return list(dict.fromkeys(found))

    def word(self, line: str, text: str, state: int) -> str | None:
        """As readline calls it: the completion number `state`, None after the last."""
        found = self.words(line, text)
        return found[state] if state < len(found) else None


def _read_statement() -> str | None:
    """Lines up to one that ends in ';'; None at the end of input. Ctrl-C drops the typed text."""
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
