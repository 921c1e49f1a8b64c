"""Messages of a long-running command: a bar on a terminal; elsewhere lines, for which rich need not be loaded."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator

import click

from ddnn_traces.messages import Messages
from ddnn_traces.text import printable

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
    if not sys.stderr.isatty():
        return _LineMessages()
    from ddnn_traces.cli.terminal import BarMessages

    return BarMessages(unit)


@contextlib.contextmanager
def steps(total: int) -> Iterator[Callable[[str], None]]:
    """On a terminal, a bar of so many steps; gives what is to be called with the name of each step that begins."""
    if is_quiet() or not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.progress import Progress

    from ddnn_traces.cli.terminal import stderr

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
