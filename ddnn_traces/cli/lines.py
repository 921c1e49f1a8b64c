"""Messages of a command on stderr: a bar on a terminal; elsewhere lines, for which rich is not loaded."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import click

from ddnn_traces.messages import Messages
from ddnn_traces.text import printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

_QUIET = "ddnn_traces.quiet"


def with_quiet(command: click.Command) -> click.Command:
    """The command, or each of a group's, with the option --quiet."""
    if isinstance(command, click.Group):
        for below in command.commands.values():
            with_quiet(below)
        return command

    def remember(ctx: click.Context, _: click.Parameter, value: bool) -> None:
        ctx.meta[_QUIET] = value

    said = "No messages on standard error but warnings and errors."
    if all(param.name != "quiet" for param in command.params):  # a command may be in two groups
        names = ["-q", "--quiet"]
        command.params.append(click.Option(names, is_flag=True, expose_value=False, callback=remember, help=said))
    return command


def is_quiet() -> bool:
    """Whether the running command was given --quiet."""
    context = click.get_current_context(silent=True)
    return context is not None and bool(context.meta.get(_QUIET))


def say(line: str) -> None:
    """A message that is no error: to standard error, unless --quiet is given."""
    if not is_quiet():
        click.echo(line, err=True)


def warn(line: str) -> None:
    """A warning: to standard error, with --quiet, too."""
    click.echo(f"warning: {printable(line)}", err=True)


def messages(unit: str = "packets") -> Messages:
    """A bar on a terminal, lines elsewhere; with --quiet only warnings. unit: what is counted, for the rate."""
    if is_quiet():
        return _Warnings()
    return BarMessages(unit) if sys.stderr.isatty() else _LineMessages()


def stderr() -> Console:
    """Console for messages."""
    from rich.console import Console

    return Console(file=sys.stderr, stderr=True, highlight=False, soft_wrap=True)


@contextlib.contextmanager
def steps(total: int) -> Iterator[Callable[[str], None]]:
    """On a terminal, a bar of so many steps; gives what is to be called with the name of each step that begins."""
    if is_quiet() or not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.progress import Progress

    with Progress(console=stderr(), transient=True) as progress:
        task = progress.add_task("", total=total)
        # the step that begins is not done yet
        yield lambda name: progress.update(
            task, description=printable(name), advance=1 if progress.tasks[0].description else 0
        )


class _Warnings(Messages):
    """Warnings alone."""

    def warn(self, message: str) -> None:
        super().warn(message)
        warn(message)


class _LineMessages(_Warnings):
    """One line a file, for logs and pipes."""

    def info(self, message: str) -> None:
        click.echo(printable(message), err=True)

    def summarize(self, line: str) -> None:
        self.info(line)


class BarMessages(Messages):
    """A progress bar over the bytes of all files, for terminals, instead of lines about them.

    unit: what is counted; the rate is per second since the start.
    """

    def __init__(self, unit: str = "packets") -> None:
        super().__init__()
        self.console = stderr()
        self._unit = unit
        self._progress: Progress | None = None
        self._lock = threading.Lock()
        self._current: list[str] = []
        self._counted = 0

    def warn(self, message: str) -> None:
        from rich.text import Text

        super().warn(message)
        self.console.print(Text.assemble(("warning: ", "yellow"), printable(message)))

    def info(self, message: str) -> None:
        from rich.text import Text

        self.console.print(Text(printable(message)))

    def start_reading(self, total_bytes: int | None) -> None:
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn
        from rich.table import Column

        bars = (BarColumn(bar_width=12), DownloadColumn(), TextColumn("{task.fields[rate]}"), TimeRemainingColumn())
        file = TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True, overflow="ellipsis"))
        self._progress = Progress(*bars, file, console=self.console)
        self._task = self._progress.add_task("", total=total_bytes, rate="")
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
                self._counted += packets
                self._progress.update(self._task, advance=size, rate=self._rate(self._progress))

    def _rate(self, progress: Progress) -> str:
        elapsed = progress.tasks[self._task].elapsed
        rate = self._counted / elapsed if elapsed else 0.0
        return f"{rate / 1e6:.2f} M {self._unit}/s" if rate >= 1e5 else f"{rate:,.0f} {self._unit}/s"

    def end_reading(self) -> None:
        if self._progress:
            self._progress.stop()
            self._progress = None
