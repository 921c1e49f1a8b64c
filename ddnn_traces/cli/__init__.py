"""The command line. A command parses, calls one library function and prints; heavy imports wait inside commands."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import sys
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any, NoReturn

import click

from ddnn_traces import __version__
from ddnn_traces.cli.analysis import demo, explore, mcp, notebooks, plot, predict, regress, report
from ddnn_traces.cli.exports import copy, export, packets, vacuum
from ddnn_traces.cli.generate import generate
from ddnn_traces.cli.ingest import ingest
from ddnn_traces.cli.lines import with_quiet
from ddnn_traces.cli.ns3 import ns3
from ddnn_traces.cli.questions import check, describe, diagnose, query, runs, sql
from ddnn_traces.cli.releases import claims, publish, push, verify
from ddnn_traces.cli.simulate import profile, simulate
from ddnn_traces.cli.testbed import earlier_sweep, testbed
from ddnn_traces.errors import DdnnTracesError, LeakError, PredictionError, PublishError, QueryError
from ddnn_traces.text import printable, printable_lines

_READER_LEFT = 128 + 13  # as a shell has it of a process that SIGPIPE ended
_SHOWN = 300  # letters of a text in a message


def main() -> NoReturn:
    """Entry point: run a command; every error that a user can cause becomes one line and an exit code."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that an ingest removes its half-written files
    try:
        # the code of a click.exceptions.Exit; commands return None
        code = cli.main(prog_name="ddnn-traces", standalone_mode=False)
        sys.stdout.flush()
        sys.exit(code)
    except (_ReaderLeft, BrokenPipeError):
        _end_without_reader()
    except click.ClickException as error:
        said = io.StringIO()
        error.show(said)
        click.echo(printable_lines(said.getvalue()), err=True, nl=False)
        sys.exit(2)
    except (QueryError, PredictionError, PublishError, LeakError) as error:  # which have several lines
        _fail(error.for_command, error.exit_code, printable_lines)
    except DdnnTracesError as error:
        _fail(error.for_command, error.exit_code)
    except OSError as error:
        _fail(f"{error.filename or 'input or output'}: {error.strerror or error}; correct that and try again", 1)
    except (KeyboardInterrupt, click.Abort) as interrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second Ctrl-C now would end it by the signal
        message = str(interrupt) or str(interrupt.__cause__ or "")  # click makes an Abort without a message of a Ctrl-C
        _fail(message or "interrupted; no half-written file is left", 130)
    except MemoryError as error:
        _fail(f"not enough memory ({error}); read fewer captures at once, or give this program more", 1)
    except UnicodeEncodeError as error:  # a library that takes no other names
        _fail(f"{error.object[:_SHOWN]}: not in UTF-8, as this name or text has to be here; correct it", 2)
    except RuntimeError as error:
        if str(error) != "Query interrupted":  # DuckDB's error for a Ctrl-C
            raise
        _fail("interrupted; no half-written file is left", 130)


class _ReaderLeft(Exception):
    """A BrokenPipeError, of which click would make exit code 1."""


@contextlib.contextmanager
def _leaving_readers() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError as error:
        raise _ReaderLeft from error


def _end_without_reader() -> NoReturn:
    """End quietly where the reader of the output left, as head does.

    SIGPIPE itself would leave half-written files, and end a server for one client.
    """
    with Path(os.devnull).open("wb") as nowhere:  # for what Python writes out as it ends
        os.dup2(nowhere.fileno(), sys.stdout.fileno())
    sys.exit(_READER_LEFT)


def _fail(message: str, code: int, form: Callable[[str], str] = printable) -> NoReturn:
    click.echo(f"ddnn-traces: {form(message)}", err=True)
    sys.exit(code)


#: The commands by what they are for, in the order of a first day; --help lists them so.
_GROUPS: dict[str, tuple[click.Command, ...]] = {
    "Read captures": (demo, ingest, check, copy, vacuum),
    "Ask": (runs, describe, query, sql, diagnose, explore, mcp, packets),
    "Report": (report, plot, regress, predict, notebooks),
    "Simulate and capture": (testbed, profile, simulate, ns3, generate),
    "Publish and convert": (publish, verify, claims, push, export),
}


class _Grouped(click.Group):
    """The command line, whose --help lists the commands under headings."""

    @_leaving_readers()
    def make_context(self, *args: Any, **options: Any) -> click.Context:  # --help and --version print here
        return super().make_context(*args, **options)

    @_leaving_readers()
    def invoke(self, ctx: click.Context) -> Any:
        return super().invoke(ctx)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        if args and self.get_command(ctx, args[0]) is None:
            from ddnn_traces.query import catalogue  # not at the start of each command

            if args[0] in catalogue.catalogue():
                ctx.fail(f"{args[0]} is a query: ddnn-traces query DATASET {args[0]}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, self.commands))
        for heading, commands in _GROUPS.items():
            with formatter.section(heading):
                formatter.write_dl(
                    [(f"{command.name:<{width}}", command.get_short_help_str(formatter.width)) for command in commands]
                )


@click.group(
    cls=_Grouped,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110, "show_default": True},
)
@click.version_option(__version__, prog_name="ddnn-traces")
def cli() -> None:
    """Packet captures of distributed deep-learning training: flow tables, SQL, regression and reports.

    Exit codes: 0 done, 1 the data is wrong or partial, 2 the call is wrong, 130 interrupted (Ctrl-C), 141 the reader
    of the output left (head). Missing folders above --out are made.
    """


for command in (*chain.from_iterable(_GROUPS.values()), earlier_sweep):
    cli.add_command(with_quiet(command))
