"""Tables for people, on stdout."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click
from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ddnn_traces.cli.lines import is_quiet, stderr
from ddnn_traces.text import counted, digits, printable

if TYPE_CHECKING:
    import pyarrow as pa

#: Width of a table that does not go to a terminal: nothing is folded in a file.
_FILE_WIDTH = 4000
_PIECE = 1000  # rows
_EARLIEST_NS = 10**17
#: Characters of a run's name on a terminal at least, where it has more, and of a common start that is worth a legend.
_LEAST_NAME, _SHORT = 24, 8
#: The same where the answer has no place otherwise.
_LEAST_SHORTENED = 12
#: Characters above which a column is folded where there is no place for it, and to which at least.
_SENTENCE, _LEAST_FOLDED = 40, 20


def _asked_width() -> int | None:
    """The width that COLUMNS asks for, which counts in a pipe, too."""
    given = os.environ.get("COLUMNS", "")
    return int(given) if given.isdecimal() and int(given) else None


def stdout() -> Console:
    """Console for data."""
    return Console(file=sys.stdout, width=None if sys.stdout.isatty() else _FILE_WIDTH, highlight=False)


def print_table(
    rows: pa.Table, title: str = "", limit: int = 0, wide: bool = False, ns: bool = False, answer: Sequence[str] = ()
) -> None:
    """Print an Arrow table, at most `limit` rows of it (0: all), with the number of rows left out.

    On a terminal, or where COLUMNS is set, it fits the width: columns that have no place are named in a line below, and
    so are those that say nothing of single rows (all equal, or empty). Names of runs lose what they have in common.
    answer: columns that are shown before others, with the first one, the most important first; without it, the first
    two. wide: all columns, and whole names. ns: times as ns since the epoch.
    """
    shown = rows.slice(0, limit) if limit else rows
    console = stdout()
    width = console.width if console.is_terminal else _asked_width()
    if width:
        console.width = width
        columns = _columns(shown, ns)
        notes: list[str] = []
        if wide:
            console.width = max(console.width, sum(column.width for column in columns) + 2)
        else:
            columns, notes = _fitting(columns, shown.num_rows, width, answer)
        console.print(_table(columns, title), crop=False)
        for note in notes:
            console.print(Text(note, style="dim"), soft_wrap=True)
    else:
        for text in table_text(shown, ns, title):
            click.echo(text, nl=False)
    if shown.num_rows < rows.num_rows and not is_quiet():
        stderr().print(f"{rows.num_rows - shown.num_rows:,} more rows: --limit 0, or another --format", style="dim")


def table_text(rows: pa.Table, ns: bool = False, title: str = "") -> Iterator[str]:
    """The same table for a file or a pipe, with all columns and nothing folded, in pieces of many lines.

    rich would measure each cell several times: minutes for 100,000 rows.
    """
    columns = _columns(rows, ns)
    widths = [column.width - 3 for column in columns]
    heads = [_padded(column.name, column, width) for column, width in zip(columns, widths, strict=True)]
    lines = [title] if title else []
    lines += [f" {'   '.join(heads)}", " " + "─" * (sum(widths) + 3 * len(widths) - 3)]
    yield "".join(f"{line.rstrip()}\n" for line in lines if columns)
    for begin in range(0, rows.num_rows, _PIECE):
        piece = slice(begin, begin + _PIECE)
        cells = [
            [_padded(cell, column, width) for cell in column.cells[piece]]
            for column, width in zip(columns, widths, strict=True)
        ]
        yield "".join(f" {'   '.join(row)}".rstrip() + "\n" for row in zip(*cells, strict=True))


def _padded(text: str, column: _Column, width: int) -> str:
    blanks = " " * (width - (len(text) if text.isascii() else cell_len(text)))
    return blanks + text if column.is_number else text + blanks


@dataclass(frozen=True)
class _Column:
    """A column as it is shown. key: its name in the rows."""

    key: str
    name: str
    cells: Sequence[str]
    is_number: bool

    @property
    def width(self) -> int:
        """Characters, with the gap to the next column."""
        return 3 + max([cell_len(self.name), *map(cell_len, self.cells)])

    @property
    def least_width(self) -> int:
        """The same with sentences in several lines."""
        return min(self.width, _SENTENCE)

    @property
    def folded_width(self) -> int:
        """The same with sentences in as many lines as may be."""
        return self.width if self.width <= _SENTENCE else _LEAST_FOLDED


def _columns(rows: pa.Table, ns: bool) -> list[_Column]:
    found = []
    for name, kind, column in zip(rows.schema.names, rows.schema.types, rows.columns, strict=True):
        values = column.to_pylist()
        is_number = str(kind).startswith(("int", "uint", "double", "float", "decimal"))
        if not ns and name.endswith("_ns") and _are_times(values):
            found.append(_Column(name, name.removesuffix("_ns") + " (UTC)", [_utc(value) for value in values], False))
        else:
            found.append(_Column(name, printable(name), [cell(value, name) for value in values], is_number))
    return found


def _are_times(values: Sequence[Any]) -> bool:
    """Whether the values of a column of ns are since the epoch: no duration has three years."""
    known = [value for value in values if value is not None]
    return bool(known) and all(isinstance(value, int) and value > _EARLIEST_NS for value in known)


def _utc(ns: int | None) -> str:
    if ns is None:
        return ""
    second = datetime.fromtimestamp(ns // 10**9, UTC)
    return f"{second:%Y-%m-%d %H:%M:%S}.{ns % 10**9 // 1000:06d}"


def _fitting(columns: list[_Column], rows: int, width: int, answer: Sequence[str]) -> tuple[list[_Column], list[str]]:
    """The columns that fit into `width` characters, and lines about the others."""
    notes = []
    by_key = {column.key: column for column in columns if any(column.cells)}
    first = [by_key[key] for key in answer if key in by_key] or columns[1:2]
    of_one_run = rows > 1 and columns[0].key == "run_id" and len(set(columns[0].cells)) == 1
    first = [*columns[: not of_one_run], *(column for column in first if column is not columns[0])]
    if rows > 1:
        equal = [column for column in columns if column not in first and len(set(column.cells)) == 1]
        columns = [column for column in columns if column not in equal]
        said = ", ".join(f"{column.name} {column.cells[0]}" for column in equal if column.cells[0])
        if said:
            notes.append(f"the same in all rows: {said}")
        if empty := [column.name for column in equal if not column.cells[0]]:
            notes.append(f"empty in all rows: {', '.join(empty)}")
    columns, legend, names = _with_place(columns, [column.name for column in first], width)
    left = width - sum(column.least_width for column in columns if column.name in names)
    kept = set(names)
    for column in columns:
        if column.name not in names and column.least_width <= left:
            kept.add(column.name)
            left -= column.least_width
    if others := [column.name for column in columns if column.name not in kept]:
        notes.append(f"+{counted(len(others), 'column')}: {', '.join(others)} (--wide shows all)")
    return [column for column in columns if column.name in kept], [*legend, *notes]


def _with_place(columns: list[_Column], names: list[str], width: int) -> tuple[list[_Column], list[str], list[str]]:
    """The columns and a legend, with names of runs that are short enough for the columns `names`; and as many of these
    as have a place then, one at least.
    """
    most = max(_LEAST_NAME, width // 3)
    short, legend = _without_common_part(columns, most)
    if (missing := _needed(short, names) - width) > 0:
        short, legend = _without_common_part(columns, max(_LEAST_SHORTENED, most - missing))
    while len(names) > 1 and _needed(short, names) > width:
        names = names[:-1]
    return short, legend, names


def _needed(columns: list[_Column], names: list[str]) -> int:
    return sum(column.folded_width for column in columns if column.name in names)


def _without_common_part(columns: list[_Column], most: int) -> tuple[list[_Column], list[str]]:
    """Names of runs without the start that all have in common, and long ones without their middle; what that is."""
    for place, column in enumerate(columns):
        names = list(dict.fromkeys(column.cells))
        if column.name != "run_id" or len(names) < 2:
            continue
        low, high = min(names), max(names)
        differ = (number for number, pair in enumerate(zip(low, high, strict=False)) if pair[0] != pair[1])
        common = low[: next(differ, len(low))]
        common = common[: max(common.rfind("-"), common.rfind("_")) + 1]
        common = common if len(common) > _SHORT else ""
        shortened = [("…" if common else "") + name.removeprefix(common) for name in names]
        shortened = _without_middle(shortened, most)
        if shortened == names:
            continue
        new = dict(zip(names, shortened, strict=True))
        legend = [f"…: {common}"] if common else []
        short = replace(column, cells=[new[name] for name in column.cells])
        return [*columns[:place], short, *columns[place + 1 :]], legend
    return columns, []


def _without_middle(names: list[str], least: int) -> list[str]:
    """The names with at most so many characters that they stay different; a long one has … for its middle."""
    for most in range(least, max(map(len, names)), 2):
        begin = most * 3 // 5
        cut = [name if len(name) <= most else f"{name[:begin]}…{name[begin + 1 - most :]}" for name in names]
        if len(set(cut)) == len(names):
            return cut
    return names


def _table(columns: list[_Column], title: str) -> Table:
    table = Table(box=SIMPLE_HEAD, title=title or None, title_justify="left", pad_edge=False)
    for column in columns:
        table.add_column(
            Text(column.name),
            justify="right" if column.is_number else "left",
            overflow="fold",
            no_wrap=column.width <= _SENTENCE,  # so that sentences give way, not names and numbers
        )
    for row in zip(*(column.cells for column in columns), strict=True):
        table.add_row(*map(Text, row))
    return table


def cell(value: Any, column: str = "") -> str:
    """A value for people: thousands separated, except in times, identifiers and ports."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int) and not column.endswith(("_ns", "_id", "port")):
        return f"{value:,}"
    if isinstance(value, float):
        return _number(value)
    return printable(str(value))


def _number(value: float) -> str:
    """A number with four digits, and with an exponent only where there would be more than three zeros before them."""
    return digits(value, 4) if abs(value) >= 1e-4 else f"{value:.3g}"
