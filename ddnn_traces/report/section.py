"""What a report is made of: chapters of sections with figures and tables, each with the queries that it comes from."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from ddnn_traces.report.words import digits, left_out, text

# What a table shows at most, so that the page of any dataset stays readable and below 15 MB.
TABLE_ROWS = 1000


@dataclass(frozen=True)
class Source:
    """A named query with the parameters that differ from its defaults."""

    query: str
    params: Mapping[str, Any] = field(default_factory=dict)

    @property
    def command(self) -> str:
        """What a reader types to get the same rows."""
        params = (word for name, value in self.params.items() for word in ("--param", f"{name}={value}"))
        return shlex.join(["ddnn-traces", "query", "DATASET", self.query, *params])


@dataclass(frozen=True)
class Figure:
    """A chart as a Vega-Lite specification; `name` is also its file's."""

    name: str
    spec: dict[str, Any]
    caption: str
    sources: Sequence[Source]


@dataclass(frozen=True)
class Table:
    """A table of texts; the columns in `numeric` are set right."""

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    numeric: Sequence[str]
    sources: Sequence[Source]


@dataclass(frozen=True)
class Section:
    """A question and its answer in one sentence, with what it is read from. lists: sentences under a heading each."""

    slug: str
    title: str
    headline: str
    figures: Sequence[Figure] = ()
    tables: Sequence[Table] = ()
    sentences: Sequence[str] = ()
    lists: Sequence[tuple[str, Sequence[str]]] = ()


@dataclass(frozen=True)
class Chapter:
    """Sections that belong together: those of a paper."""

    slug: str
    title: str
    sections: Sequence[Section]

    @property
    def figures(self) -> list[Figure]:
        """Of all sections, in the page's order."""
        return [figure for section in self.sections for figure in section.figures]

    @property
    def sources(self) -> list[Source]:
        """Of all figures and tables."""
        of_figures = [source for figure in self.figures for source in figure.sources]
        return of_figures + [source for section in self.sections for part in section.tables for source in part.sources]


@dataclass(frozen=True)
class Column:
    """A table's column: its title, and the text of a row's cell."""

    title: str
    cell: Callable[[dict[str, Any]], str]
    is_number: bool


def named(title: str, name: str, form: Callable[[Any], str] = text) -> Column:
    """A column of words, from the frame's column of that name."""
    return Column(title, lambda row: form(row[name]), is_number=False)


def numbers(title: str, name: str, form: Callable[[Any], str] = digits) -> Column:
    """A column of numbers, from the frame's column of that name."""
    return Column(title, lambda row: form(row[name]), is_number=True)


def table(frame: pl.DataFrame, columns: Sequence[Column], caption: str, source: Source, noun: str = "run") -> Table:
    """A table of the frame's rows, one a `noun`; the caption says what is left out."""
    rows = [tuple(column.cell(row) for column in columns) for row in frame.head(TABLE_ROWS).iter_rows(named=True)]
    return Table(
        f"{caption} {left_out(len(rows), frame.height, source.query, noun)}".rstrip(),
        [column.title for column in columns],
        rows,
        [column.title for column in columns if column.is_number],
        [source],
    )
