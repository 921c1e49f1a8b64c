"""An interactive SQL shell over a dataset."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.columns import Columns
from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from ddnn_traces.cli.arguments import FORMATS, RowsOutput, format_of, refuse_inferred
from ddnn_traces.cli.lines import say
from ddnn_traces.errors import DdnnTracesError, UsageError
from ddnn_traces.query.catalogue import catalogue
from ddnn_traces.store import schema
from ddnn_traces.text import nearest, printable_lines

if TYPE_CHECKING:
    from ddnn_traces.query.dataset import Dataset

_KEYWORDS = (
    "SELECT", "FROM", "WHERE", "GROUP", "BY", "ALL", "ORDER", "LIMIT", "JOIN", "LEFT", "USING", "ON", "AS", "WITH",
    "HAVING", "QUALIFY", "DISTINCT", "COUNT", "SUM", "MIN", "MAX", "AVG", "QUANTILE_CONT", "ARG_MAX", "FILTER", "OVER",
    "PARTITION", "DESC", "AND", "OR", "NOT", "NULL", "IS", "IN", "LIKE", "BETWEEN", "CASE", "WHEN", "THEN", "ELSE",
    "END", "EXCLUDE", "DESCRIBE", "SUMMARIZE", "EXPLAIN", "PIVOT", "ASOF", "UNION", "SHOW", "TABLES",
)  # fmt: skip
_LEAVING = {".quit", ".exit", "quit", "exit", ".q", "\\q"}
_BINARY = {"parquet", "arrow"}
_HISTORY = 1000  # lines
_BEFORE_A_TABLE = {"FROM", "JOIN", "DESCRIBE", "SUMMARIZE", "PIVOT"}


def run_shell(dataset: Dataset, limit: int | None, infers_steps: bool = False) -> None:
    """Read statements that end in ';' and the commands of DuckDB's shell that COMMANDS names, until the end of input.

    Tab completes names; the lines typed are kept for the next time. Ctrl-C ends the running statement only. It is a
    loop of our own over readline: a shell of others (harlequin, DuckDB's) opens a database file by itself, and would
    not have this connection, its views of remote datasets and its refusal of what writes.
    """
    import readline

    completer = Completer(dataset)
    readline.set_completer_delims(" \t\n\"'`()[]{}<>=+-*/%,;:.|&!")
    readline.set_completer(lambda text, state: completer.word(readline.get_line_buffer(), text, state))
    readline.parse_and_bind("bind ^I rl_complete" if "libedit" in (readline.__doc__ or "") else "tab: complete")
    history = _history_file()
    with contextlib.suppress(OSError):
        readline.read_history_file(history)
    say("SQL of DuckDB, ended with ';'; Tab completes names; .help lists commands; Ctrl-D leaves.")
    shell = Shell(dataset, limit, infers_steps)
    try:
        while (typed := _read_statement()) is not None and shell.run(typed):
            pass
    finally:
        with contextlib.suppress(OSError):  # a home that cannot be written to
            history.parent.mkdir(parents=True, exist_ok=True)
            readline.set_history_length(_HISTORY)
            readline.write_history_file(history)


def _history_file() -> Path:
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "ddnn-traces" / "sql_history"


COMMANDS = {
    ".tables": "names of tables, and of queries as views and macros",
    ".schema [NAME]": "columns of a table or query, or of all tables",
    ".mode [MODE]": f"print results as {', '.join(name for name in FORMATS if name not in _BINARY)}",
    ".output [FILE]": "write results to a file, in the format of its suffix; without FILE to the terminal again",
    ".help": "this list, as help",
    ".quit, .exit": "leave, as exit, quit and Ctrl-D do",
}


class Shell:
    """What typed lines do."""

    def __init__(self, dataset: Dataset, limit: int | None, infers_steps: bool = False) -> None:
        self._dataset, self._limit, self._infers_steps = dataset, limit, infers_steps
        self._mode = "table"
        self._out: Path | None = None

    def run(self, typed: str) -> bool:
        """Run a statement or a command, and print its result or what is wrong; false where the user leaves."""
        words = typed.strip().rstrip(";").split(maxsplit=1)
        if not words:
            return True
        if words[0].lower() in _LEAVING and len(words) == 1:
            return False
        try:
            if words[0].lower() == "help" and len(words) == 1:
                self._command(".help", "")
            elif words[0].startswith("\\"):  # as in psql
                raise UsageError(f"{words[0]}: commands start with a dot, such as .tables; .help lists them")
            elif words[0].startswith("."):
                self._command(words[0].lower(), words[1].strip() if len(words) > 1 else "")
            else:
                self._statements(typed)
        except DdnnTracesError as error:
            click.echo(printable_lines(str(error)), err=True)
        except KeyboardInterrupt:
            click.echo("interrupted", err=True)
        return True

    def _command(self, name: str, argument: str) -> None:
        if name == ".help":
            width = max(map(len, COMMANDS))
            click.echo("\n".join(f"{command:<{width}}  {meaning}" for command, meaning in COMMANDS.items()))
        elif name == ".tables":
            queries = sorted(query.name + "()" * bool(query.params) for query in catalogue().values())
            for title, names in (
                ("Tables", sorted(schema.TABLES)),
                ("Queries, with () where one has parameters", queries),
            ):
                click.echo(f"{title}:\n{_in_columns(names)}")
        elif name == ".schema":
            self._schema(argument)
        elif name == ".mode":
            self._set_mode(argument)
        elif name == ".output":
            self._set_output(argument)
        else:
            raise UsageError(f"{name}: no such command; .help lists them")

    def _schema(self, name: str) -> None:
        name = name.removesuffix("()")
        if not name or name in schema.TABLES:
            click.echo(schema.markdown((name,) if name else (), {}))
        elif (query := catalogue().get(name)) is not None:
            click.echo("\n".join(f"{column.name}  {column.comment}" for column in query.columns))
        else:
            near = nearest(name, [*schema.TABLES, *catalogue()])
            raise UsageError(f".schema {name}: no such table or query; {near}")

    def _set_mode(self, mode: str) -> None:
        known = [name for name in FORMATS if name not in _BINARY]
        if mode and mode not in known:
            raise UsageError(f".mode {mode}: write one of {', '.join(known)}")
        self._mode = mode or self._mode
        if not mode:
            click.echo(self._mode)

    def _set_output(self, file: str) -> None:
        if not file or file == "stdout":
            self._out = None
            return
        format_of(None, Path(file))  # refuses what has no format
        self._out = Path(file)

    def _statements(self, typed: str) -> None:
        statements = self._dataset.statements(typed)
        if self._infers_steps:
            refuse_inferred(typed)
        self._dataset.check_reads(statements)  # all of them, before the first one runs
        chosen = format_of(None if self._out else self._mode, self._out)
        for one in statements:
            rows = self._dataset.sql_arrow(one)
            RowsOutput(chosen, self._out, self._limit, wide=False, ns=False).emit(rows)
            if self._out:
                say(f"wrote {self._out}")


def _in_columns(names: Sequence[str]) -> str:
    """Names in columns of the terminal's width, to be read downwards."""
    columns = Columns([Text(name) for name in names], column_first=True, padding=(0, 2))
    console = Console(file=io.StringIO(), width=shutil.get_terminal_size().columns, highlight=False)
    console.print(Padding(columns, (0, 0, 0, 2)))
    text: str = console.file.getvalue()  # type: ignore[attr-defined]
    return "\n".join(line.rstrip() for line in text.splitlines())


class Completer:
    """Completes tables, queries, columns and keywords."""

    def __init__(self, dataset: Dataset) -> None:
        queries = (name + "(" * bool(query.params) for name, query in catalogue().items())
        self._tables = sorted([*schema.TABLES, *queries])
        self._commands = sorted({command.split()[0].rstrip(",") for command in COMMANDS} | {".exit"})
        columns = "SELECT DISTINCT column_name FROM duckdb_columns() WHERE NOT internal"
        params = {param.name for query in catalogue().values() for param in query.params}
        self._columns = sorted(set(dataset.sql(columns)["column_name"]) | params)

    def words(self, line: str, text: str) -> list[str]:
        """Completions of `text`, the end of `line`: after FROM tables and queries, elsewhere all names."""
        if line.startswith(".") and " " not in line:  # the point is no part of the word
            return [command[1:] for command in self._commands if command.startswith(line)]
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
    """A command, or lines up to one that ends in ';'; None at the end of input. Ctrl-C drops the typed text."""
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
        if line.strip().lower() in _LEAVING:  # also where a statement was begun by mistake
            return line
        if not lines and (line.startswith((".", "\\")) or line.strip().lower() == "help"):
            return line
        lines.append(line)
        if line.rstrip().endswith(";"):
            return "\n".join(lines)
