"""Messages of a command on stderr: a bar on a terminal; elsewhere lines, for which rich is not loaded."""

from __future__ import annotations

import contextlib
import functools
import itertools
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import click

from ddnn_traces.messages import Messages
from ddnn_traces.text import printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

_QUIET = "ddnn_traces.quiet"
#: After so many seconds without a line, a command whose messages do not go to a terminal says that it goes on.
_SILENT_S = 30.0


def with_quiet(command: click.Command) -> click.Command:
    """The command, or each of a group's, with the option --quiet."""
    if isinstance(command, click.Group):
        for below in command.commands.values():
            with_quiet(below)
        return command

    def remember(ctx: click.Context, _: click.Parameter, value: bool) -> None:
        ctx.meta[_QUIET] = value

    if command.callback and command.name not in _WAITING:
        command.callback = _telling(command.callback)
    said = "No messages on standard error but warnings and errors."
    if all(param.name != "quiet" for param in command.params):  # a command may be in two groups
        names = ["-q", "--quiet"]
        command.params.append(click.Option(names, is_flag=True, expose_value=False, callback=remember, help=said))
    return command


#: Commands that wait for the user, not for work.
_WAITING = {"explore"}


def _telling(callback: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(callback)
    def told(*args: Any, **options: Any) -> Any:
        with signs_of_life(click.get_current_context().command_path):
            return callback(*args, **options)

    return told


class _Activity:
    """What the running command does, and when it last said something."""

    def __init__(self) -> None:
        self.doing, self.said_at = "", time.monotonic()


_activity = _Activity()


@contextlib.contextmanager
def signs_of_life(command: str, silent_s: float = _SILENT_S) -> Iterator[None]:
    """Says what the command does after each so many seconds of silence, where standard error is no terminal."""
    if is_quiet() or sys.stderr.isatty():
        yield
        return
    began = _activity.said_at = time.monotonic()
    _activity.doing = ""
    is_done = threading.Event()

    def tell() -> None:
        while not is_done.wait(max(0.0, _activity.said_at + silent_s - time.monotonic())):
            now = time.monotonic()
            if now - _activity.said_at >= silent_s:
                doing = f", {_activity.doing}" if _activity.doing else ""
                click.echo(f"{command}: {now - began:,.0f} s{doing}", err=True)
                _activity.said_at = now

    teller = threading.Thread(target=tell, daemon=True)
    teller.start()
    try:
        yield
    finally:
        is_done.set()
        teller.join()


def is_quiet() -> bool:
    """Whether the running command was given --quiet."""
    context = click.get_current_context(silent=True)
    return context is not None and bool(context.meta.get(_QUIET))


def say(line: str) -> None:
    """A message that is no error: to standard error, unless --quiet is given."""
    if not is_quiet():
        _activity.said_at = time.monotonic()
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
    """A bar of so many steps, elsewhere than on a terminal a line now and then (signs_of_life()); gives what is to be
    called with the name of each step that begins."""
    if is_quiet() or not sys.stderr.isatty():
        numbers = itertools.count(1)

        def began(name: str) -> None:
            _activity.doing = f"{next(numbers)} of {total}: {printable(name)}"

        yield began
        return
    from rich.progress import Progress

    with Progress(console=stderr(), transient=True) as progress:
        task = progress.add_task("", total=total)
        # the step that begins is not done yet
        yield lambda name: progress.update(
            task, description=printable(name), advance=1 if progress.tasks[0].description else 0
        )


@contextlib.contextmanager
def share(name: str) -> Iterator[Callable[[float], None]]:
    """A bar of one long step, elsewhere as steps(); gives what is to be called with the share that is done, 0 to 1."""
    if is_quiet() or not sys.stderr.isatty():

        def tell(done: float) -> None:
            _activity.doing = f"{done:.0%} of {name}"

        yield tell
        return
    from rich.progress import Progress

    with Progress(console=stderr(), transient=True) as progress:
        task = progress.add_task(printable(name), total=1.0)
        yield lambda done: progress.update(task, completed=done)


class _Warnings(Messages):
    """Warnings alone."""

    def warn(self, message: str) -> None:
        super().warn(message)
        warn(message)


class _LineMessages(_Warnings):
    """One line a file, for logs and pipes."""

    _total: int | None = None
    _read = 0

    def info(self, message: str) -> None:
        _activity.said_at = time.monotonic()
        click.echo(printable(message), err=True)

    def start_reading(self, total_bytes: int | None) -> None:
        self._total, self._read = total_bytes, 0

    def advance(self, size: int, packets: int) -> None:
        self._read += size  # a lost count of two threads is one of a progress
        unit, bytes_of = ("GB", 1e9) if max(self._total or 0, self._read) >= 1e9 else ("MB", 1e6)
        of_all = f" of {self._total / bytes_of:,.1f}" if self._total else ""
        _activity.doing = f"{self._read / bytes_of:,.1f}{of_all} {unit} read"

    def end_reading(self) -> None:
        _activity.doing = ""  # what follows is not reading

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
