"""Pages, each one HTML file that loads nothing: the report, and a regression."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from ddnn_traces.errors import UsageError
from ddnn_traces.query import catalogue
from ddnn_traces.regression import sentences
from ddnn_traces.report.chapters import drivers, host_pairs, steps, summary, time, trust, volume
from ddnn_traces.report.charts import style
from ddnn_traces.report.charts.style import CHARTS
from ddnn_traces.report.section import ROWS_AS_ELEMENTS, Chapter, Figure, Results, Section
from ddnn_traces.report.templates import packed, render, script, vega, vega_program
from ddnn_traces.store.whole_files import whole_file, whole_files

if TYPE_CHECKING:
    from ddnn_traces.query.dataset import Dataset
    from ddnn_traces.regression import Regression

CHAPTERS = (
    summary.chapter, host_pairs.chapter, volume.chapter, time.chapter, steps.chapter, drivers.chapter, trust.chapter,
    trust.appendix,
)  # fmt: skip
#: What a reader asks first: what makes a job slow, what drives its volume, who sends to whom, can it be trusted.
FIRST = ("Delays", "Drivers", "Pattern", "Captures")


@dataclass
class Report:
    """The sections of a dataset's report that have data, by chapter, and what the others lack.

    untaken_steps: as of Results.
    """

    title: str
    facts: list[tuple[str, str]]
    runs: list[str]
    chapters: dict[Chapter, list[Section]] = field(default_factory=dict)
    missing: list[Section] = field(default_factory=list)
    untaken_steps: str = ""

    @property
    def sections(self) -> list[Section]:
        """All sections that have data, in the page's order."""
        return [section for found in self.chapters.values() for section in found]

    @property
    def slugs(self) -> set[str]:
        """The chapters that have sections; the summary, if there, has no number."""
        return {chapter.slug for chapter in self.chapters}

    @property
    def findings(self) -> list[Section]:
        """The sections whose headlines belong on the first screen: those of FIRST, in that order, then all others."""
        found = [section for section in self.sections if section.finding]
        place = {finding: number for number, finding in enumerate(FIRST)}
        return sorted(found, key=lambda section: place.get(section.finding, len(place)))

    @property
    def figures(self) -> list[Figure]:
        """All charts, in the page's order."""
        return [figure for section in self.sections for figure in section.figures]

    @cached_property
    def lacking(self) -> dict[str, list[Section]]:
        """What is missing, with the sections that lack it."""
        found: dict[str, list[Section]] = {}
        for section in self.missing:
            found.setdefault(section.missing, []).append(section)
        return found

    def html(self) -> str:
        """The page, which loads nothing."""
        queries = self._queries()
        return render(
            "page.html", report=self, queries=queries, sql={query.name: query.sql for query in queries}, charts=_charts,
            packed=packed, most=ROWS_AS_ELEMENTS, script=script("page.js"), vega=vega_program(),
        )  # fmt: skip

    def say_notes(self, said: Callable[[str], None]) -> None:
        """Call `said` with what a reader of the page may want to know before it."""
        if self.untaken_steps:
            said(f"note: {self.untaken_steps}")

    def write_charts(self, folder: Path, said: Callable[[str], None] = lambda _: None) -> None:
        """Write every chart as SVG and PNG; files of charts that the report does not have are removed.

        said: called with what a file does not draw.
        """
        there = {figure.name: figure for figure in self.figures}
        lacking = []
        with whole_files(folder) as new:
            for name in CHARTS:
                files = there[name].drawn() if name in there else {}
                for part in there[name].file_parts if name in there else ():
                    said(f"{name}: {part}")
                for suffix in ("svg", "png"):
                    if suffix in files:
                        (new / f"{name}.{suffix}").write_bytes(files[suffix])
                    else:
                        lacking.append(f"{name}.{suffix}")
        for name in lacking:
            (folder / name).unlink(missing_ok=True)

    def _queries(self) -> list[catalogue.Query]:
        """The queries that the page's figures and tables come from, and those that these read, by name."""
        wanted = {source.query for section in self.sections for source in section.sources}
        read: set[str] = set()
        while wanted:
            read |= wanted
            inputs = {name for query in wanted for name in catalogue.find(query).inputs}
            wanted = {name for name in inputs if name in catalogue.catalogue()} - read
        return [catalogue.find(name) for name in sorted(read)]


#: The number of sections, those without data too.
SECTIONS = sum(len(chapter.titles) for chapter in CHAPTERS)


def report(dataset: Dataset, began: Callable[[str], None] = lambda _: None) -> Report:
    """The report of a dataset. began: called with the title of each section before its queries run."""
    with Results(dataset) as results:
        note = f" ({results.synthetic} synthetic, not measured)" if results.synthetic else ""
        found = Report(f"Traffic of distributed training{note}", summary.facts(results), results.runs)
        for chapter in CHAPTERS:
            for section in chapter.sections(results, began):
                if section.missing:
                    found.missing.append(section)
                else:
                    found.chapters.setdefault(chapter, []).append(section)
        found.untaken_steps = results.untaken_steps
    return found


def write(
    dataset: Dataset, out: Path, charts: Path | None = None, began: Callable[[str], None] = lambda _: None,
    said: Callable[[str], None] = lambda _: None,
) -> Path:  # fmt: skip
    """Write the report to `out`; return it. charts: a folder for its charts as SVG and PNG files.

    The same dataset gives the same bytes. Files are replaced whole, and all of them or none. began: as of report().
    said: as of write_charts(), and with notes. Raises UsageError where `out` is a folder or a pipe.
    """
    if out.exists() and not out.is_file():
        raise UsageError(f"{out} is a folder or a pipe; name the report's file, for example report.html")
    found = report(dataset, began)
    with whole_file(out) as half_written:
        half_written.write_bytes(found.html().encode())
        if charts is not None:
            found.write_charts(charts, said)
    found.say_notes(said)
    return out


def _charts(figure: Figure) -> dict[str, Any]:
    panels = [{"run": run_id, "spec": spec} for run_id, spec in figure.panels]
    return {"panels": panels, "first": figure.first, "runs": figure.runs, "lead": figure.lead}


def chart_page(figure: Figure) -> str:
    """A page with one chart, which loads nothing."""
    # no name in it can end or open an element or a comment
    spec = json.dumps(figure.file_spec, ensure_ascii=False).replace("<", "\\u003c")
    return render(
        "chart.html", title=figure.name.replace("_", " "), caption=figure.file_caption, vega=vega(),
        spec=Markup(spec),  # noqa: S704
    )  # fmt: skip


def regression_page(fit: Regression, verbose: bool = False) -> str:
    """A regression's page, with its residual plots as SVG in it; light or dark as the reader's system is."""
    figures = [
        (caption, Markup(style.svg(chart(points, fit.left).to_dict(validate=False))))  # noqa: S704, Vega escapes names
        for chart, points, caption in drivers.residual_charts(fit)
    ]
    return render(
        "regression.html", title=f"Regression of {fit.left}", regression=fit, summary=sentences.summary(fit),
        blocks=sentences.blocks(fit, verbose), figures=figures,
    )  # fmt: skip
