"""Sections of the report: the rows of named queries as a headline, charts, tables and sentences."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import polars as pl

from ddnn_traces import regression
from ddnn_traces.query.views import StoredViews
from ddnn_traces.regression.results import generated
from ddnn_traces.report.words import digits, text
from ddnn_traces.text import counted

if TYPE_CHECKING:
    import altair as alt

    from ddnn_traces.query.dataset import Dataset
    from ddnn_traces.regression import Regression

#: Rows of a table at most, so that the page of any dataset stays readable and below 15 MB.
TABLE_ROWS = 1000
NO_FLOWS = "No run of this dataset has a flow; the table of captured packets above states why."
NO_LOG = (
    "No run has training steps: put the training's log (train_history.log, or a train_history-worker-N.log of each "
    "worker) next to its captures and ingest the run again."
)


@dataclass(frozen=True)
class Source:
    """A named query with the parameters that differ from its defaults."""

    query: str
    params: Mapping[str, Any] = field(default_factory=dict)

    @property
    def command(self) -> str:
        """The command line that returns the same rows."""
        params = (word for name, value in self.params.items() for word in ("--param", f"{name}={value}"))
        return shlex.join(["ddnn-traces", "query", "DATASET", self.query, *params])


class Results:
    """The results of a dataset's queries, each run at most once and over stored views, within a `with` block."""

    def __init__(self, dataset: Dataset) -> None:
        self._dataset = dataset
        self._frames: dict[str, pl.DataFrame] = {}
        self._stored = StoredViews(dataset)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._stored.__exit__(kind, error, tb)

    def rows(self, source: Source) -> pl.DataFrame:
        """The rows of a query."""
        if source.command not in self._frames:
            self._stored.store_inputs(source.query)
            self._frames[source.command] = self._dataset.query(source.query, **source.params)
        return self._frames[source.command]

    @cached_property
    def fit(self) -> Regression:
        """The regression of the volume of a step."""
        return regression.fit(self.rows(Source("run_step_volume")))

    @property
    def places(self) -> pl.DataFrame:
        """The runs that have a flow, in the order in which they enter a figure."""
        return self.rows(Source("figure_runs"))

    @cached_property
    def synthetic(self) -> str:
        """The number of runs that were never measured, of all; empty where all were measured."""
        sources = self.rows(Source("run_overview"))["source"]
        synthetic = generated(sources.to_list())
        return f"{synthetic:,} of {counted(len(sources), 'run')}" if synthetic else ""

    @property
    def synthetic_sentence(self) -> str:
        """The same as a sentence."""
        note = f"Synthetic (computed by the laws of the collectives, or simulated), not measured: {self.synthetic}."
        return note if self.synthetic else ""


@dataclass(frozen=True)
class Figure:
    """A chart as a Vega-Lite specification; `name` is also the name of its files."""

    name: str
    spec: dict[str, Any]
    caption: str
    sources: Sequence[Source]


@dataclass(frozen=True)
class Table:
    """A table of texts; the columns in `numeric` are aligned right."""

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    numeric: Sequence[str]
    sources: Sequence[Source]


@dataclass(frozen=True)
class Column:
    """A column of a table: its title, and the text of a row's cell."""

    title: str
    cell: Callable[[dict[str, Any]], str]
    is_number: bool = False


def texts(title: str, name: str, form: Callable[[Any], str] = text) -> Column:
    """A column of texts, from the frame's column of that name."""
    return Column(title, lambda row: form(row[name]))


def numbers(title: str, name: str, form: Callable[[Any], str] = digits) -> Column:
    """A column of numbers, from the frame's column of that name."""
    return Column(title, lambda row: form(row[name]), is_number=True)


class _NoDataError(Exception):
    """A section has nothing to show; its headline states what is missing."""


class Section:
    """One question: a headline that answers it, then charts, tables, sentences, and lists under a heading each.

    A chapter's function fills it from the rows of its source, and of others. `rows` and `need` end that function where
    there are no rows: the section then has what was added before, and what is missing as its headline.
    """

    def __init__(self, slug: str, title: str, source: Source, results: Results) -> None:
        self.slug, self.title, self.source, self.results = slug, title, source, results
        self.headline = ""
        self.figures: list[Figure] = []
        self.tables: list[Table] = []
        self.sentences: Sequence[str] = ()
        self.lists: list[tuple[str, Sequence[str]]] = []

    def rows(self, source: Source, missing: str = "") -> pl.DataFrame:
        """The rows of a query. missing: what to state, and how to get it, where there are none; empty: go on."""
        frame = self.results.rows(source)
        return self.need(frame, missing) if missing else frame

    def need(self, frame: pl.DataFrame, missing: str) -> pl.DataFrame:
        """The frame, unless it has no rows: then the section ends here, with `missing` as its headline."""
        if frame.is_empty():
            self.headline = missing
            raise _NoDataError
        return frame

    @property
    def sources(self) -> list[Source]:
        """The sources of all figures and tables."""
        of_figures = [source for figure in self.figures for source in figure.sources]
        return of_figures + [source for table in self.tables for source in table.sources]

    @property
    def no_steps(self) -> str:
        """What is missing where no run has traffic in steps."""
        return NO_FLOWS if self.results.places.is_empty() else NO_LOG

    def first_runs(self, frame: pl.DataFrame, most: int) -> pl.DataFrame:
        """The rows of at most so many runs, in the frame's order.

        Runs that come first in figure_runs are taken; runs without a flow, which are not in there, come last.
        """
        runs = frame.select("run_id").unique(maintain_order=True)
        placed = runs.join(self.results.places, on="run_id", how="left", maintain_order="left")
        among = placed.sort("place", nulls_last=True, maintain_order=True).head(most)
        return frame.join(among, on="run_id", how="semi", maintain_order="left")

    def of_drawn(self, frame: pl.DataFrame) -> str:
        """The limit of a headline that is made from fewer runs than have flows."""
        drawn = frame["run_id"].n_unique()
        return "" if drawn == self.results.places.height else f" (of the {counted(drawn, 'run')} drawn here)"

    def figure(
        self, chart: Callable[..., alt.TopLevelMixin], frame: pl.DataFrame, caption: str, *sources: Source,
        others: Sequence[Any] = (), of: pl.DataFrame | None = None, by: str | Sequence[str] = "run_id",
        noun: str = "run",
    ) -> None:  # fmt: skip
        """Add the chart that a function of charts/ draws; the function's name is the figure's.

        sources: where they are not the section's. others: further arguments of the function. of: the rows of all that
        could be drawn; the caption then states how many values of the columns `by`, each a `noun`, are left out.
        """
        sources = sources or (self.source,)
        if of is not None:
            shown, total = (rows.select(by).n_unique() for rows in (frame, of))
            caption = f"{caption} {_left_out(shown, total, noun, sources[0].query)}".rstrip()
        spec: dict[str, Any] = chart(frame, *others).to_dict(validate=False)
        if note := self.results.synthetic_sentence:
            caption, spec = f"{caption} {note}", _with_note(spec, note)
        self.figures.append(Figure(chart.__name__, spec, caption, sources))

    def table(
        self, frame: pl.DataFrame, columns: Sequence[Column], caption: str, source: Source | None = None,
        noun: str = "run",
    ) -> None:  # fmt: skip
        """Add a table of the frame's rows, each a `noun`; the caption states how many are left out."""
        source = source or self.source
        rows = [tuple(column.cell(row) for column in columns) for row in frame.head(TABLE_ROWS).iter_rows(named=True)]
        caption = f"{caption} {_left_out(len(rows), frame.height, noun, source.query)}".rstrip()
        numeric = [column.title for column in columns if column.is_number]
        self.tables.append(Table(caption, [column.title for column in columns], rows, numeric, [source]))


def _left_out(shown: int, total: int, noun: str, query: str) -> str:
    if shown >= total:
        return ""
    return f"{counted(total - shown, noun)} of {total:,} left out here; the query {query} has all."


def _with_note(spec: dict[str, Any], note: str) -> dict[str, Any]:
    """The chart with `note` as the first line of its title: its files are also used without the page."""
    own = spec.get("title", [])
    title = own if isinstance(own, dict) else {"text": own}
    lines = title["text"] if isinstance(title["text"], list) else [title["text"]]
    look = {"anchor": "start", "fontSize": 11, "fontWeight": "normal"}
    return spec | {"title": {**look, **title, "text": [note, *lines]}}


Fill = Callable[[Section, pl.DataFrame], None]


class Chapter:
    """Sections that belong together, in the order in which `section` declares them."""

    def __init__(self, slug: str, title: str) -> None:
        self.slug, self.title = slug, title
        self._sections: list[tuple[str, str, Source, str, Fill]] = []

    def section(self, slug: str, title: str, source: Source, missing: str = "") -> Callable[[Fill], Fill]:
        """Decorator of a function that fills a section with the rows of a query.

        slug: the section's name in links. missing: as of Section.rows.
        """

        def declare(fill: Fill) -> Fill:
            self._sections.append((slug, title, source, missing, fill))
            return fill

        return declare

    def sections(self, results: Results) -> Iterator[Section]:
        """The chapter's sections, filled."""
        for slug, title, source, missing, fill in self._sections:
            section = Section(slug, title, source, results)
            with contextlib.suppress(_NoDataError):
                fill(section, section.rows(source, missing))
            yield section
