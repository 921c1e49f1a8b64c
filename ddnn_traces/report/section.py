"""Sections of the report: the rows of named queries as a headline, charts, tables and sentences."""

from __future__ import annotations

import contextlib
import itertools
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Self

import polars as pl
import vl_convert

from ddnn_traces import regression
from ddnn_traces.query import checks, diagnosis
from ddnn_traces.query.dataset import StoredViews
from ddnn_traces.regression.results import generated
from ddnn_traces.report.charts import style
from ddnn_traces.report.charts.panels import NAMED_ROWS, SHOWN_RUNS, choosable, noted, panels, without_ranges
from ddnn_traces.report.number_text import NOT_KNOWN, digits, text
from ddnn_traces.text import as_sentence, counted, for_xml

if TYPE_CHECKING:
    import altair as alt

    from ddnn_traces.query.dataset import Dataset
    from ddnn_traces.regression import Regression

#: Rows of a table at most, so that the page of any dataset stays readable and below 15 MB.
TABLE_ROWS = 1000
#: Rows of a table that the page has as elements; a browser makes the others when a reader asks for them.
ROWS_AS_ELEMENTS = 25
#: Runs of a chart with a line a run that are drawn until a reader chooses others; one of each kind comes first.
LINES_AT_FIRST = 16
#: Runs with a panel each that a file of a chart has.
FILE_PANELS = 12
PNG_SCALE = 2
_GROUPED = (
    "A row is a setting, with its number of runs, which are its points. "
    f"Where you choose up to {NAMED_ROWS} runs by their names, a row is a run."
)
NO_JOB = (
    "No run's flows repeat their bytes in each step, so no job is seen; five steps (four with the longest pauses "
    "between them) and the captures of all hosts are needed."
)
NO_FLOWS = "No run of this dataset has a flow; the table of captured packets states why."
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
    """The results of a dataset's queries, each run at most once and over stored views, within a `with` block.

    params: of queries by name, over those of the sources.
    """

    def __init__(self, dataset: Dataset, params: Mapping[str, Mapping[str, Any]] | None = None) -> None:
        self._dataset, self._params = dataset, params or {}
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
            params = {**source.params, **self._params.get(source.query, {})}
            self._frames[source.command] = self._dataset.query(source.query, **params)
        return self._frames[source.command]

    @cached_property
    def faults(self) -> dict[str, pl.DataFrame]:
        """The offending rows of each data check that has any, as of the command check."""
        checks.store_inputs(self._stored)
        rows = {name: pl.DataFrame(table) for name, table in checks.run_checks(self._dataset).items()}
        return {name: frame for name, frame in rows.items() if not frame.is_empty()}

    @property
    def stepped_jobs(self) -> pl.DataFrame:
        """The rows of query jobs, of runs whose hosts have steps in common."""
        return diagnosis.of_common_steps(self.rows(Source("jobs")), self.rows(Source("jobs_of_run")))

    @cached_property
    def pauses(self) -> list[str]:
        """A sentence for each job that loses time in few long steps, as of the command diagnose."""
        long_steps = self.rows(Source("long_steps"))
        return [one.line for one in diagnosis.paused(long_steps, self.stepped_jobs, self._dataset)]

    @cached_property
    def clocks(self) -> list[str]:
        """A sentence for each run with a job whose hosts have clocks that differ, as of the command diagnose."""
        return [one.line for one in diagnosis.unlike_clocks(self._dataset, self.rows(Source("jobs")))]

    @cached_property
    def interruptions(self) -> list[str]:
        """A sentence for each job that another one seems to go on with, as of the command diagnose."""
        return [one.line for one in diagnosis.interrupted(self.rows(Source("interruptions")))]

    @cached_property
    def without_job(self) -> list[str]:
        """Why runs show no job, as of the command diagnose."""
        self._stored.store_inputs("inferred_steps")
        return diagnosis.why_no_job(self._dataset, self.rows(Source("jobs")))

    @property
    def step_notes(self) -> list[str]:
        """A sentence for the runs without a log whose steps are inferred, where the dataset was opened so."""
        return [*map(as_sentence, self._dataset.step_notes)]

    @cached_property
    def untaken_steps(self) -> str:
        """A line for the runs without a log whose sure steps are not taken; empty where there are none."""
        sources = self.rows(Source("step_sources"))
        if not (sure := self.runs_of_sure_steps - self.runs_of_inferred_steps):
            return ""
        of = counted(sources.filter(pl.col("steps_from") != "log").height, "run")
        return (
            f"no training log, so no bytes and no time of a step: in {len(sure):,} of {of} without one the traffic "
            "shows sure steps, which --infer-steps takes"
        )

    @property
    def runs_of_inferred_steps(self) -> set[str]:
        """As of the dataset."""
        return self._dataset.runs_of_inferred_steps

    @property
    def runs_of_sure_steps(self) -> set[str]:
        """The runs without a log whose traffic shows sure steps, taken or not."""
        untaken = self.rows(Source("step_sources")).filter(steps_from="traffic")
        return self.runs_of_inferred_steps | {*untaken["run_id"]}

    @property
    def steps_by_bytes(self) -> pl.DataFrame:
        """The runs without a log whose steps are surer by repeated bytes than by pauses, taken or not."""
        untaken = self.rows(Source("step_sources")).filter(found_by="bytes").select("run_id", "steps", "confidence")
        return pl.DataFrame(self._dataset.steps_by_bytes, untaken.schema, orient="row").vstack(untaken)

    @property
    def partly_covered(self) -> set[str]:
        """The runs of whose hosts some are in no capture."""
        return {*self.rows(Source("capture_coverage")).drop_nulls("problem")["run_id"]}

    @cached_property
    def fit(self) -> Regression:
        """The regression of the volume of a step."""
        return regression.fit(self.rows(Source("run_step_volume")))

    @property
    def runs(self) -> list[str]:
        """The runs that have a flow, as charts call them, in the order in which they enter a figure."""
        return list(self.settings)

    @cached_property
    def settings(self) -> dict[str, str | None]:
        """The setting of each of these runs in a few words, as charts call both; None where none is declared."""
        rows = self.rows(Source("figure_runs")).select("run_id", "setting")
        return {for_xml(run): for_xml(setting) if setting else None for run, setting in rows.iter_rows()}

    def each(self, rows: int, most: int, least: int) -> int:
        """How many rows a figure draws of each run, so that all runs have about `rows` together."""
        return max(least, min(most, rows // max(1, len(self.runs))))

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


#: Runs that a command of a figure names.
_EXPLORED = 3


@dataclass(frozen=True)
class Figure:
    """A chart as a Vega-Lite specification; `name` is also the name of its files.

    runs, first: all runs of a chart with rows of many, and those that are drawn until a reader chooses others. order:
    all runs of the dataset, in the order in which they enter a figure. parts: what is not drawn of all that could be,
    a sentence each, which the caption has too. noun: what a panel is of. lead: the run whose panel comes first.
    """

    name: str
    spec: dict[str, Any]
    caption: str
    sources: Sequence[Source]
    runs: Sequence[str] = ()
    first: Sequence[str] = ()
    order: Sequence[str] = ()
    parts: Sequence[str] = ()
    noun: str = "run"
    lead: str = ""

    @property
    def panels(self) -> list[tuple[str | None, dict[str, Any]]]:
        """The charts next to each other, each with its run where it is one's; the first of all runs' has the parts."""
        there = panels(self.spec)
        if not self.parts or there[0][0] is not None:  # a run's own part is under its title
            return there
        return panels(_with_note(self.spec, *self.parts))

    @cached_property
    def first_panel(self) -> Figure:
        """The figure of the lead's or the first panel alone, where each is of a run; else, or where it is one, this."""
        (run, spec), *others = sorted(self.panels, key=lambda panel: panel[0] != self.lead)
        return replace(self, spec=spec) if run is not None and others else self

    @property
    def explore(self) -> str:
        """The command that opens the runs that are drawn first in the explorer, _EXPLORED of them at most."""
        panel_runs = [run for run in self._panel_runs if run is not None] if self.noun == "run" else []
        drawn = [self.lead] if self.lead else self.first or panel_runs
        chosen = (word for run in drawn[:_EXPLORED] for word in ("--run", run))
        return shlex.join(["ddnn-traces", "explore", "DATASET", *chosen])

    def drawn(self) -> dict[str, bytes]:
        """The chart's files, by suffix."""
        svg = style.svg(without_ranges(self.file_spec))
        return {"svg": svg.encode(), "png": vl_convert.svg_to_png(svg, scale=PNG_SCALE)}

    def pdf(self) -> bytes:
        """The chart as a PDF document of one page."""
        document: bytes = vl_convert.svg_to_pdf(style.svg(without_ranges(self.file_spec)))
        return document

    @cached_property
    def _panel_runs(self) -> list[str | None]:
        return [run for run, _ in self.panels]

    @property
    def _is_cut(self) -> bool:
        """Whether a file has a part of the panels."""
        return None not in self._panel_runs and len(self._panel_runs) > FILE_PANELS

    @property
    def file_parts(self) -> list[str]:
        """What a file does not draw, a sentence each."""
        cut = f"{FILE_PANELS} of {counted(len(self._panel_runs), self.noun)} are drawn; --run chooses others."
        return [*self.parts, *([cut] if self._is_cut else [])]

    @property
    def file_caption(self) -> str:
        """The caption of a file."""
        return " ".join([self.caption, *self.file_parts[len(self.parts) :]])

    @property
    def file_spec(self) -> dict[str, Any]:
        """The chart for a file: of all runs, or of FILE_PANELS where each has a panel; its title has file_parts."""
        of_all = {SHOWN_RUNS: {"value": self.runs}}
        params = [param | of_all.get(param["name"], {}) for param in self.spec.get("params", [])]
        spec = self.spec | {"params": params}
        if self._is_cut:
            place = {run: number for number, run in enumerate(self.order)}
            kept = set(sorted(self._panel_runs, key=lambda run: place.get(str(run), 0))[:FILE_PANELS])
            spec["concat"] = [panel for run, panel in zip(self._panel_runs, spec["concat"], strict=True) if run in kept]
        return _with_note(spec, *self.file_parts) if self.file_parts else spec


#: Letters of a cell that wants some width, as a phrase and as a sentence.
_PHRASE, _LONG = 24, 60


@dataclass(frozen=True)
class Table:
    """A table of texts; the columns in `numeric` are aligned right, and sorted by `values` where these are known.

    runs: the run of each row, where a row is of one.
    """

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    numeric: Sequence[str]
    sources: Sequence[Source]
    values: Sequence[Sequence[float | None]] = ()
    runs: Sequence[str] = ()

    @cached_property
    def long(self) -> set[str]:
        """The columns with sentences, which take more than a line."""
        return self._with_cells_above(_LONG)

    @cached_property
    def phrases(self) -> set[str]:
        """Those with several words at most, which would stand one below the other in a column that has no width."""
        return self._with_cells_above(_PHRASE) - self.long - {*self.columns[:1]}

    def _with_cells_above(self, letters: int) -> set[str]:
        columns = zip(self.columns, *self.rows, strict=True)
        return {column for column, *cells in columns if any(len(cell) > letters for cell in cells)}

    @property
    def later(self) -> list[tuple[Sequence[str], Sequence[float | None], str | None]]:
        """The rows after the first ROWS_AS_ELEMENTS, each with its values and its run."""
        values = self.values or [()] * len(self.rows)
        runs: Sequence[str | None] = self.runs or [None] * len(self.rows)
        return list(zip(self.rows, values, runs, strict=True))[ROWS_AS_ELEMENTS:]


@dataclass(frozen=True)
class Column:
    """A column of a table: its title, and the text of a row's cell."""

    title: str
    cell: Callable[[dict[str, Any]], str]
    is_number: bool = False
    value: Callable[[dict[str, Any]], Any] = lambda _: None


def texts(title: str, name: str, form: Callable[[Any], str] = text) -> Column:
    """A column of texts, from the frame's column of that name."""
    return Column(title, lambda row: form(row[name]))


def numbers(title: str, name: str, form: Callable[[Any], str] = digits) -> Column:
    """A column of numbers, from the frame's column of that name."""
    return Column(title, lambda row: form(row[name]), is_number=True, value=lambda row: row[name])


class _NoDataError(Exception):
    """A section has nothing to show; its headline states what is missing."""


class Section:
    """One question: a headline that answers it, then charts, tables, sentences, and lists under a heading each.

    A chapter's function fills it from the rows of its source, and of others. `rows` and `need` end that function where
    there are no rows: the section is then not drawn, and `missing` states what would fill it.
    """

    def __init__(self, slug: str, title: str, source: Source, results: Results) -> None:
        self.slug, self.title, self.source, self.results = slug, title, source, results
        self.reference = ""
        self.finding = ""
        self.headline = ""
        self.missing = ""
        self.figures: list[Figure] = []
        self.tables: list[Table] = []
        self.sentences: Sequence[str] = ()
        self.lists: list[tuple[str, Sequence[str]]] = []

    def rows(self, source: Source, missing: str = "") -> pl.DataFrame:
        """The rows of a query. missing: what to state, and how to get it, where there are none; empty: go on."""
        frame = self.results.rows(source)
        return self.need(frame, missing) if missing else frame

    def need(self, frame: pl.DataFrame, missing: str) -> pl.DataFrame:
        """The frame, unless it has no rows: then the section ends here, and lacks what `missing` states."""
        if frame.is_empty():
            self.end(missing)
        return frame

    def end(self, missing: str) -> NoReturn:
        """End the section, which lacks what `missing` states: raises an exception that ends its function."""
        self.missing = missing
        raise _NoDataError

    @property
    def sources(self) -> list[Source]:
        """The sources of all figures and tables."""
        of_figures = [source for figure in self.figures for source in figure.sources]
        return of_figures + [source for table in self.tables for source in table.sources]

    @property
    def no_steps(self) -> str:
        """What is missing where no run has traffic in steps."""
        return NO_LOG if self.results.runs else NO_FLOWS

    def figure(
        self, chart: Callable[..., alt.TopLevelMixin], frame: pl.DataFrame, caption: str, *sources: Source,
        others: Sequence[Any] = (), has_rows: bool = False, most: int | None = None, parts: Sequence[str] = (),
        noun: str = "run", lead: str = "", parts_of: Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        """Add the chart that a function of charts/ draws; the function's name is the figure's.

        sources: where they are not the section's. others: further arguments of the function. has_rows: whether it is
        a style.row_chart. most: of a chart with a line a run, how many the page draws at first. parts: results of
        part(). noun: what a panel is of, where panels are of one thing each. lead: the run whose panel comes first.
        parts_of: what is not drawn in the panel of each run, part_of_each().
        """
        sources = sources or (self.source,)
        parts = [sentence for sentence in parts if sentence]
        caption = " ".join([caption, *parts])
        spec: dict[str, Any] = chart(frame, *others).to_dict(validate=False)
        if parts_of:
            spec = noted(spec, {for_xml(run): note for run, note in parts_of.items()})
        if note := self.results.synthetic_sentence:
            caption, spec = f"{caption} {note}", _with_note(spec, note)
        runs: list[str] = []
        if has_rows or most is not None:
            there = set(map(for_xml, frame["run_id"]))
            settings = {run: setting for run, setting in self.results.settings.items() if run in there}
            runs = list(settings)
            spec = choosable(spec, runs[:most], settings if has_rows else None)
            if has_rows and len(runs) > NAMED_ROWS:
                caption = f"{caption} {_GROUPED}"
        first, order = runs[:most], self.results.runs
        self.figures.append(
            Figure(chart.__name__, spec, caption, sources, runs, first, order, parts, noun, for_xml(lead))
        )

    def part(
        self, shown: pl.DataFrame | int, total: pl.DataFrame | int, noun: str = "run",
        by: str | Sequence[str] = "run_id", query: str = "",
    ) -> str:  # fmt: skip
        """A sentence that says how many are drawn of all, each a `noun`; empty where all are.

        shown, total: numbers, or rows, whose different values of the columns `by` count. query: which has all, where
        that is not the section's.
        """
        here, there = (rows if isinstance(rows, int) else rows.select(by).n_unique() for rows in (shown, total))
        return _part(here, there, noun, "drawn", query or self.source.query)

    def part_of_each(self, shown: pl.DataFrame, total: pl.DataFrame, nouns: str, of: str = "run_id") -> dict[str, str]:
        """How many are drawn of all in the panel of each run, where not all are.

        shown: different rows. total: the number of each run in its second column. of: the first, what a panel is of.
        """
        counts = shown.group_by(of).agg(pl.len().alias("shown")).join(total.rename({total.columns[1]: "total"}), on=of)
        cut = counts.filter(pl.col("shown") < pl.col("total")).select(of, "shown", "total")
        return {panel: f"{some:,} of {every:,} {nouns} are drawn" for panel, some, every in cut.iter_rows()}

    def table(
        self, frame: pl.DataFrame, columns: Sequence[Column], caption: str, source: Source | None = None,
        noun: str = "run",
    ) -> None:  # fmt: skip
        """Add a table of the frame's rows, each a `noun`; the caption states how many are left out.

        It also names the columns that no row has a value of; they take no place.
        """
        source = source or self.source
        shown = frame.head(TABLE_ROWS)
        cells = [[column.cell(row) for row in shown.iter_rows(named=True)] for column in columns]
        there = [shown.is_empty() or any(cell != NOT_KNOWN for cell in of_column) for of_column in cells]
        if not all(there):
            empty = [column.title for column, known in zip(columns, there, strict=True) if not known]
            caption = f"{caption} No row has a value for: {', '.join(empty)}."
        columns = list(itertools.compress(columns, there))
        rows = list(zip(*itertools.compress(cells, there), strict=True))
        values = [tuple(_rounded(column.value(row)) for column in columns) for row in shown.iter_rows(named=True)]
        caption = f"{caption} {_part(len(rows), frame.height, noun, 'listed', source.query)}".rstrip()
        numeric = [column.title for column in columns if column.is_number]
        runs = shown["run_id"].to_list() if "run_id" in shown.columns else []
        titles = [column.title for column in columns]
        self.tables.append(Table(caption, titles, rows, numeric, [source], values, runs))


def _rounded(value: Any) -> Any:
    """A number without the last digits, which the order of a sum changes."""
    return float(f"{value:.7g}") if isinstance(value, float) else value


def _part(shown: int, total: int, noun: str, verb: str, query: str) -> str:
    if shown >= total:
        return ""
    return f"{shown:,} of {counted(total, noun)} are {verb}; the query {query} has all."


def _with_note(spec: dict[str, Any], *notes: str) -> dict[str, Any]:
    """The chart with the notes as first lines of its title: its files are also used without the page."""
    own = spec.get("title", [])
    title = own if isinstance(own, dict) else {"text": own}
    lines = title["text"] if isinstance(title["text"], list) else [title["text"]]
    look = {"anchor": "start", "fontSize": 11, "fontWeight": "normal"}
    return spec | {"title": {**look, **title, "text": [*notes, *lines]}}


Fill = Callable[[Section, pl.DataFrame], None]


class Chapter:
    """Sections that belong together, in the order in which `section` declares them."""

    def __init__(self, slug: str, title: str) -> None:
        self.slug, self.title = slug, title
        #: The sections that have figures of a query.
        self.drawn: dict[str, list[str]] = {}
        self._sections: list[tuple[str, str, Source, str, tuple[str, str], Fill]] = []

    def section(
        self, slug: str, title: str, source: Source, missing: str = "", reference: str = "", finding: str = "",
        draws: Sequence[str] | None = None,
    ) -> Callable[[Fill], Fill]:  # fmt: skip
        """Decorator of a function that fills a section with the rows of a query.

        slug: the section's name in links. missing: as of Section.rows. reference: the paper's figure or table.
        finding: what the headline is about, where it belongs on the first screen. draws: the queries of its figures;
        None: the source.
        """

        def declare(fill: Fill) -> Fill:
            self._sections.append((slug, title, source, missing, (reference, finding), fill))
            for query in [source.query] if draws is None else draws:
                self.drawn.setdefault(query, []).append(slug)
            return fill

        return declare

    @property
    def titles(self) -> list[str]:
        """The titles of the sections."""
        return [title for _, title, *_ in self._sections]

    def drawing(self, query: str) -> list[tuple[str, str, Fill]]:
        """Title, paper's figure and function of the sections that draw a query."""
        slugs = self.drawn.get(query, ())
        return [(title, reference, fill) for slug, title, _, _, (reference, _), fill in self._sections if slug in slugs]

    def sections(
        self, results: Results, began: Callable[[str], None] = lambda _: None, only: Sequence[str] | None = None
    ) -> Iterator[Section]:
        """The chapter's sections, filled. began: called with the title of each before that. only: slugs; None: all."""
        for slug, title, source, missing, (reference, finding), fill in self._sections:
            if only is not None and slug not in only:
                continue
            began(title)
            section = Section(slug, title, source, results)
            section.reference, section.finding = reference, finding
            with contextlib.suppress(_NoDataError):
                fill(section, section.rows(source, missing))
            yield section
