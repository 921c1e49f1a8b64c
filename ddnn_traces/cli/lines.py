"""Messages of a long-running command: a bar on a terminal; elsewhere lines, for which rich need not be loaded."""

from __future__ import annotations

import sys

import click

from ddnn_traces.messages import Messages
from ddnn_traces.text import printable


def messages(unit: str = "packets") -> Messages:
    """A bar on a terminal, lines elsewhere. unit: what is counted, for the rate."""
    if not sys.stderr.isatty():
        return _LineMessages()
    from ddnn_traces.cli.terminal import BarMessages

    return BarMessages(unit)


class _LineMessages(Messages):
    """One line a file, for logs and pipes."""

    def warn(self, message: str) -> None:
        super().warn(message)
        click.echo(f"warning: {printable(message)}", err=True)

    def info(self, message: str) -> None:
        click.echo(printable(message), err=True)

    def summarize(self, line: str) -> None:
        self.info(line)
