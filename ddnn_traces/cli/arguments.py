"""Arguments and options of several commands, completed in a shell; printing and writing of results."""

from __future__ import annotations

import contextlib
import functools
import io
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, BinaryIO

import click
from click.shell_completion import CompletionItem

from ddnn_traces.cli.lines import say
from ddnn_traces.errors import DdnnTracesError, UsageError
from ddnn_traces.store.places import in_folder, is_url
from ddnn_traces.text import printable

if TYPE_CHECKING:
    import pyarrow as pa

    from ddnn_traces.query.dataset import Dataset


def complete_queries(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Queries, each with its question."""
    from ddnn_traces.query import catalogue

    known = catalogue.catalogue()
    return [CompletionItem(name, help=known[name].question) for name in sorted(known) if name.startswith(incomplete)]


def complete_parameters(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Parameters of the query on the command line, each with its default and meaning."""
    from ddnn_traces.query import catalogue

    query = catalogue.catalogue().get(_argument(context, "name", 1))
    return [
        CompletionItem(f"{param.name}=", help=f"{param.type}, default {param.default}: {param.meaning}")
        for param in ((*query.params, *query.choices) if query else ())
        if param.name.startswith(incomplete)
    ]


def complete_runs(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Runs of the dataset on the command line."""
    dataset = _argument(context, "dataset", 0)

    names: set[str] = set()
    with contextlib.suppress(DdnnTracesError, OSError):  # nothing is printed while a line is typed
        names = in_folder(Path(dataset)).run_ids()
    return [CompletionItem(name) for name in sorted(names) if name.startswith(incomplete)]


def complete_tables(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Tables, each with the meaning of a row."""
    from ddnn_traces.store import schema

    known = (table for table in schema.tables() if table.name.startswith(incomplete))
    return [CompletionItem(table.name, help=f"a row: {table.row}") for table in known]


def _argument(context: click.Context, name: str, place: int) -> str:
    """An argument of the unfinished call; click has not named it yet where an option's value is being typed."""
    return str(context.params.get(name) or "".join(context.args[place : place + 1]))


#: Formats of rows; those of files are in query/formats.py, which takes longer to load.
FORMATS = ("table", "csv", "json", "ndjson", "parquet", "arrow", "md", "spreadsheet")
_TERMINAL_ROWS = 50
_LOG_AGAINST_TRAFFIC = ("step_inference_score", "step_boundaries", "step_sources")  # queries


class DatasetPath(click.Path):
    """A path, or a URL, which stays text: a Path would make one slash of two."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """A Path of a path, the text of a URL."""
        return value if is_url(value) or str(value).endswith("://") else super().convert(value, param, ctx)


class CommandByDefault(click.Group):
    """A group in which options, or a file with the suffix, stand for the command `default` with them."""

    def __init__(self, *args: Any, default: str, suffix: str | None = None, **options: Any) -> None:
        super().__init__(*args, **options)
        self._default, self._suffix = default, suffix

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """The arguments, with the name of the command where it is left out."""
        first = args[0] if args else ""
        is_file = self._suffix is not None and first.endswith(self._suffix)
        if first not in [*self.commands, *ctx.help_option_names] and (first.startswith("-") or is_file):
            args = [self._default, *args]
        return super().parse_args(ctx, args)


dataset_argument = click.argument("dataset", type=DatasetPath())
out_option = click.option("--out", type=click.Path(path_type=Path), help="Write there instead of to stdout.")
runs_option = click.option(
    "--run",
    "runs",
    multiple=True,
    shell_complete=complete_runs,
    help="Only this run, or those that a pattern such as tf-* matches; may be repeated.",
)


infer_steps_option = click.option(
    "--infer-steps",
    is_flag=True,
    help="Of runs without a training log, take the steps that the traffic shows, where they are sure (step_sources).",
)


params_option = click.option(
    "--param",
    "params",
    multiple=True,
    metavar="K=V",
    shell_complete=complete_parameters,
    help="Value of a parameter; may be repeated.",
)


def open_dataset(
    dataset: str | Path, runs: tuple[str, ...] = (), read_only: bool = False, infer_steps: bool = False,
    tells_steps: bool = True, params: Mapping[str, str] = MappingProxyType({}),
) -> Dataset:  # fmt: skip
    """Open a dataset, and print which of its files are gone, and at the end of the command, behind its answer, which
    steps are inferred. runs: the visible ones, empty: all. tells_steps: unless the answer says it. params: of the query
    that is answered. Raises UsageError.
    """
    import ddnn_traces

    opened = ddnn_traces.open(dataset, list(runs) or None, read_only, infer_steps=infer_steps)
    say_notes(opened.missing_files())
    if tells_steps:
        click.get_current_context().call_on_close(lambda: say_notes(opened.step_notes_of(params)))
    return opened


def say_notes(lines: Iterable[str]) -> None:
    """Say what an answer does not; behind it, since it is read first."""
    for line in lines:
        say(f"note: {printable(line)}")


def refuse_inferred(text: str) -> None:
    """With --infer-steps: raise UsageError where a query's name, or SQL, has a query that would compare inferred steps
    with themselves."""
    for name in _LOG_AGAINST_TRAFFIC:
        if re.search(rf"\b{name}\b", text, re.IGNORECASE):
            raise UsageError(f"--infer-steps: query {name} compares steps of logs with those that the traffic shows")


def key_values(params: tuple[str, ...], option: str = "--param", given: Collection[str] = ()) -> dict[str, str]:
    """KEY=VALUE texts as a dictionary. given: keys of other options. Raises UsageError for a text without `=`, and for
    a key that is given twice."""
    found: dict[str, str] = {}
    for param in params:
        key, equals, value = param.partition("=")
        if not equals:
            raise UsageError(f"{option} {param}: write it as {option} {param}=VALUE")
        if key in found or key in given:
            raise UsageError(f"{option} {param}: {key} is given twice; leave out one of them")
        found[key] = value
    return found


def emit_text(text: str, out: Path | None) -> None:
    """Print a text, or write it into a file. Raises UsageError."""
    if out is None:
        click.echo(text)
        return
    with written(out) as file:
        file.write(f"{text}\n".encode())


@dataclass(frozen=True)
class RowsOutput:
    """How a command prints or writes rows; see prints_rows().

    is_chosen: whether any of the options is given, of a command that prints sentences without.
    """

    format: str
    out: Path | None
    limit: int | None
    wide: bool
    ns: bool
    is_chosen: bool = False

    def emit(self, rows: pa.Table, answer: Sequence[str] = ()) -> None:
        """Print rows, or write them to stdout or into a file. answer: columns that a table shows in any case.

        A message says where there are none. Raises UsageError.
        """
        self._write(rows, answer)
        if rows.num_columns and not rows.num_rows:
            say("no rows")

    def _write(self, rows: pa.Table, answer: Sequence[str]) -> None:
        from ddnn_traces.cli import terminal
        from ddnn_traces.query import formats

        if self.out is None and self.format == "table":
            limit = (_TERMINAL_ROWS if sys.stdout.isatty() else 0) if self.limit is None else self.limit
            terminal.print_table(rows, limit=limit, wide=self.wide, ns=self.ns, answer=answer)
            return
        shown = rows.slice(0, self.limit) if self.limit else rows
        with written(self.out) if self.out else _whole_writes() as file:
            if self.format == "table":
                file.writelines(text.encode() for text in terminal.table_text(shown, ns=self.ns))
            else:
                formats.write(shown, self.format, file)


def format_of(given: str | None, out: Path | None) -> str:
    """That of --format, else of the suffix of --out, else a table. Raises UsageError."""
    if given or not out:
        return given or "table"
    from ddnn_traces.query import formats

    return formats.of_suffix(out)


@contextlib.contextmanager
def _whole_writes() -> Iterator[BinaryIO]:
    """The bytes of stdout. Without a buffer (PYTHONUNBUFFERED) a write to a reader that left may end half-way."""
    stdout: Any = sys.stdout.buffer
    if not isinstance(stdout, io.RawIOBase):
        yield stdout
        return
    buffered = io.BufferedWriter(stdout)
    try:
        yield buffered
    finally:
        buffered.detach()


def prints_rows(out: bool = True, default: str = "a table") -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Decorator of a command that prints rows: gives it the options of RowsOutput, and that as `output`.

    out: false where the command has an --out of its own. default: what it prints without any of these options.
    """

    def declare(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def collected(
            *args: Any, output_format: str | None, limit: int | None, wide: bool, ns: bool, **options: Any
        ) -> None:
            path = options.pop("out") if out else None
            is_chosen = (output_format, path, limit, wide, ns) != (None, None, None, False, False)
            chosen = format_of(output_format, path)  # a wrong suffix is refused before minutes of work
            command(*args, output=RowsOutput(chosen, path, limit, wide, ns, is_chosen), **options)

        formats = f"Default: by the suffix of --out; without it {default}." if out else f"Default: {default}."
        for option in (
            click.option("--ns", is_flag=True, help="In a table, times as ns since the epoch, not as UTC."),
            click.option(
                "--wide",
                is_flag=True,
                help="A table on a terminal, or with COLUMNS set, with all columns and whole names.",
            ),
            click.option(
                "--limit",
                type=click.IntRange(min=0),
                help=f"Rows at most; 0: all. Default: {_TERMINAL_ROWS} on a terminal, else all.",
            ),
            *([out_option] if out else []),
            click.option("--format", "output_format", type=click.Choice(FORMATS), help=formats),
        ):
            collected = option(collected)
        return collected

    return declare


@contextlib.contextmanager
def written(out: Path) -> Iterator[BinaryIO]:
    """A file to write into: whole in its place when the context is left; a device or a pipe as it is.

    Raises UsageError.
    """
    from ddnn_traces.store.whole_files import passes_on, whole_file

    try:
        with contextlib.nullcontext(out) if passes_on(out) else whole_file(out) as path, path.open("wb") as file:
            yield file
    except OSError as error:
        raise UsageError(f"{out}: cannot be written ({error.strerror}); choose another --out") from error
