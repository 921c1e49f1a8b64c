"""Arguments and options of several commands; printing and writing of results."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from ddnn_traces.cli import completion
from ddnn_traces.errors import UsageError
from ddnn_traces.store.places.place import is_url
from ddnn_traces.text import printable

if TYPE_CHECKING:
    import pyarrow as pa

    from ddnn_traces.query.dataset import Dataset

FORMATS = ("table", "csv", "json", "parquet", "arrow")


class DatasetPath(click.Path):
    """A path, or a URL, which stays text: a Path would make one slash of two."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """A Path of a path, the text of a URL."""
        return value if is_url(value) else super().convert(value, param, ctx)


dataset_argument = click.argument("dataset", type=DatasetPath())
format_option = click.option("--format", "output_format", type=click.Choice(FORMATS), default="table")
out_option = click.option("--out", type=click.Path(path_type=Path), help="Write there instead of to stdout.")
limit_option = click.option("--limit", type=click.IntRange(min=0), default=50, help="Rows of a table to print; 0: all.")
runs_option = click.option(
    "--run", "runs", multiple=True, shell_complete=completion.run_ids, help="Only this run; may be repeated."
)


def open_dataset(dataset: str | Path, runs: tuple[str, ...] = (), read_only: bool = False) -> Dataset:
    """Open a dataset, and print which of its files are gone; runs: the visible ones, empty: all. Raises UsageError."""
    import ddnn_traces

    opened = ddnn_traces.open(dataset, list(runs) or None, read_only)
    for line in opened.missing_files():
        click.echo(f"note: {printable(line)}", err=True)
    return opened


def key_values(params: tuple[str, ...], option: str = "--param") -> dict[str, str]:
    """KEY=VALUE texts as a dictionary. Raises UsageError for one without `=`."""
    for param in params:
        if "=" not in param:
            raise UsageError(f"{option} {param}: write it as {option} {param}=VALUE")
    return dict(param.split("=", 1) for param in params)


def emit_text(text: str, out: Path | None) -> None:
    """Print a text, or write it into a file. Raises UsageError."""
    if out is None:
        click.echo(text)
        return
    with _opened(out) as file:
        file.write(f"{text}\n".encode())


def emit(rows: pa.Table, output_format: str, out: Path | None, limit: int) -> None:
    """Print rows, or write them to stdout or into a file, in a format. Raises UsageError."""
    from ddnn_traces.cli import terminal
    from ddnn_traces.query import formats

    if output_format == "table" and out is None:
        terminal.print_table(rows, limit=limit)
        return
    with _opened(out) if out else contextlib.nullcontext(sys.stdout.buffer) as file:
        formats.write(rows, "csv" if output_format == "table" else output_format, file)


@contextlib.contextmanager
def _opened(out: Path) -> Iterator[BinaryIO]:
    """A file to write into: whole in its place when the context is left; a device or a pipe as it is."""
    from ddnn_traces.store.whole_files import whole_file

    is_file = out.is_file() or not out.exists()
    try:
        with whole_file(out) if is_file else contextlib.nullcontext(out) as path, path.open("wb") as file:
            yield file
    except OSError as error:
        raise UsageError(f"{out}: cannot be written ({error.strerror}); choose another --out") from error
