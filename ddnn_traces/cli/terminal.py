"""Output for people: tables on stdout, progress and warnings on stderr."""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.table import Column, Table
from rich.text import Text

from ddnn_traces.messages import Messages
from ddnn_traces.text import printable

if TYPE_CHECKING:
    import pyarrow as pa

#: Width of a table that does not go to a terminal: nothing is folded in a file.
_FILE_WIDTH = 4000


def stdout() -> Console:
    """Console for data."""
    return Console(file=sys.stdout, width=None if sys.stdout.isatty() else _FILE_WIDTH, highlight=False)


def stderr() -> Console:
    """Console for messages."""
    return Console(file=sys.stderr, stderr=True, highlight=False, soft_wrap=True)


def print_table(rows: pa.Table, title: str = "", limit: int = 0) -> None:
    """Print an Arrow table, at most `limit` rows of it (0: all), with the number of rows left out.

    Columns that do not fit the width of the terminal follow below, with the first column repeated.
    """
    shown = rows.slice(0, limit) if limit else rows
    console = stdout()
    for columns in _fitting(shown, console.width):
        console.print(_table(shown.select(columns), title))
    if shown.num_rows < rows.num_rows:
        stderr().print(f"{rows.num_rows - shown.num_rows:,} more rows: --limit 0, or another --format", style="dim")


def _fitting(rows: pa.Table, width: int) -> list[list[int]]:
    """Groups of columns, by number since names may repeat, that fit into `width` characters, each beginning
    with the first column.
    """
    groups: list[list[int]] = []
    left = 0
    for column in range(1, rows.num_columns):
        size = _width(rows, column)
        if not groups or size > left:
            groups.append([0])
            left = width - _width(rows, 0)
        groups[-1].append(column)
        left -= size
    return groups or [[*range(rows.num_columns)]]


def _width(rows: pa.Table, column: int) -> int:
    gap = 3
    name = rows.schema.names[column]
    return gap + max([len(name), *(len(cell(value, name)) for value in rows.column(column).to_pylist())])


def _table(rows: pa.Table, title: str) -> Table:
    table = Table(box=SIMPLE_HEAD, title=title or None, title_justify="left", pad_edge=False)
    for name, kind in zip(rows.schema.names, rows.schema.types, strict=True):
        numeric = str(kind).startswith(("int", "uint", "double", "float", "decimal"))
        table.add_column(Text(printable(name)), justify="right" if numeric else "left", overflow="fold")
    for row in zip(*(column.to_pylist() for column in rows.columns), strict=True):
        table.add_row(*(Text(cell(value, name)) for name, value in zip(rows.schema.names, row, strict=True)))
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
        return f"{value:,.4g}" if abs(value) < 1e4 else f"{value:,.0f}"
    return printable(str(value))


class BarMessages(Messages):
    """A progress bar over the bytes of all files, for terminals, instead of lines about them."""

    def __init__(self, unit: str = "packets") -> None:
        super().__init__()
        self.console = stderr()
        self._unit = unit
        self._progress: Progress | None = None
        self._lock = threading.Lock()
        self._current: list[str] = []
        self._packets = 0

    def warn(self, message: str) -> None:
        super().warn(message)
        self.console.print(Text.assemble(("warning: ", "yellow"), printable(message)))

    def info(self, message: str) -> None:
        self.console.print(Text(printable(message)))

    def start_reading(self, total_bytes: int | None) -> None:
        columns = (BarColumn(bar_width=12), DownloadColumn(), _Rate(self._unit), TimeRemainingColumn())
        file = TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True, overflow="ellipsis"))
        self._progress = Progress(*columns, file, console=self.console)
        self._task = self._progress.add_task("", total=total_bytes, packets=0)
        self._progress.start()

    def start_file(self, name: str) -> None:
        with self._lock:
            self._current.append(name)
            self._show_current()

    def end_file(self, name: str) -> None:
        with self._lock:
            self._current.remove(name)
            self._show_current()

    def _show_current(self) -> None:
        """The file that has been read for longest, and how many others are being read."""
        if self._progress and self._current:
            name, others = self._current[0], len(self._current) - 1
            shown = name if len(name) <= 60 else "..." + name[-57:]
            self._progress.update(self._task, description=printable(shown) + (f" +{others}" if others else ""))

    def advance(self, size: int, packets: int) -> None:
        if self._progress:
            with self._lock:
                self._packets += packets
                self._progress.update(self._task, advance=size, packets=self._packets)

    def end_reading(self) -> None:
        if self._progress:
            self._progress.stop()
            self._progress = None


class _Rate(ProgressColumn):
    """Packets, or another unit, per second since the start."""

    def __init__(self, unit: str) -> None:
        super().__init__()
        self._unit = unit

    def render(self, task: Task) -> Text:
        rate = task.fields["packets"] / task.elapsed if task.elapsed else 0.0
        return Text(f"{rate / 1e6:.2f} M {self._unit}/s" if rate >= 1e5 else f"{rate:,.0f} {self._unit}/s")
