"""The report is one page that loads nothing, holds any name of a run, and states what it does not show."""

from __future__ import annotations

import base64
import gzip
import html
import json
import re
import shlex
import shutil
import struct
import xml.etree.ElementTree as ET
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal
from tools import files_of_at_most

import ddnn_traces
from ddnn_traces.errors import UsageError
from ddnn_traces.query import catalogue
from ddnn_traces.query.dataset import Dataset
from ddnn_traces.regression import sentences
from ddnn_traces.report import page as writer
from ddnn_traces.report.chapters import host_pairs, time, trust
from ddnn_traces.report.number_text import NOT_KNOWN
from ddnn_traces.report.section import (
    NO_FLOWS,
    PNG_SCALE,
    ROWS_AS_ELEMENTS,
    Results,
    Section,
    Source,
    Table,
    numbers,
    texts,
)
from ddnn_traces.store import schema
from ddnn_traces.text import for_xml

LOADING = {"src", "href", "srcset", "data", "action", "poster", "background", "xlink:href"}


class Page(HTMLParser):
    """Tags, what their attributes load, text, and the text of each script by its id."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.loads: list[str] = []
        self.text = ""
        self.scripts: dict[str | None, str] = {}
        self.ids: list[str] = []
        self._script: str | None = None
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.loads += [value or "" for name, value in attrs if name in LOADING]
        self.ids += [value for name, value in attrs if name == "id" and value]
        if tag == "script":
            self._script = dict(attrs).get("id") or f"script {len(self.tags)}"

    def handle_endtag(self, tag: str) -> None:
        if tag == "script":
            self._script = None

    def handle_data(self, data: str) -> None:
        if self._script is None:
            self.text += data
        else:
            self.scripts[self._script] = self.scripts.get(self._script, "") + data

    @property
    def specs(self) -> dict[str, dict[str, Any]]:
        """Of each figure its charts, and the runs that can be chosen."""
        names = [name for name in self.scripts if name and name.startswith("spec-")]
        return {name.removeprefix("spec-"): self._unpacked(name) for name in names}

    @property
    def sql(self) -> dict[str, str]:
        """The SQL of each query that has a place, by the id of that."""
        named = {f"query-{name}": sql for name, sql in self._unpacked("sql").items()}
        return {name: sql for name, sql in named.items() if name in self.ids}

    def _unpacked(self, name: str) -> Any:
        return json.loads(gzip.decompress(base64.b64decode(self.scripts[name])))


def test_nothing_is_loaded_from_elsewhere(written: Path) -> None:
    page = Page(written)
    assert page.loads, "the page links to its sections"
    assert [link for link in page.loads if not link.startswith("#")] == []
    assert list(written.parent.iterdir()) == [written], "a page that is mailed alone has all"
    text = written.read_text(encoding="utf-8")
    assert "default-src 'none'" in text
    assert "@import" not in text and "url(" not in Page(written).text
    assert not {"img", "link", "iframe", "object", "embed"} & set(page.tags)


def test_every_section_has_a_headline_or_is_named_as_missing(written: Path) -> None:
    text = written.read_text(encoding="utf-8")
    headlines = re.findall(r'<p class="headline">(.*?)</p>', text)
    first, lacking = 2, re.findall(r"<b>(.*?)</b>", text[text.index('id="missing"') : text.index('id="queries"')])
    assert len(headlines) + first == text.count("<section ") == writer.SECTIONS - len(lacking)
    assert all(len(headline) > 15 and headline.endswith(".") for headline in headlines)
    assert [headline for headline in headlines if re.search(r"\b((?:\w+ ){2,4})\1", headline)] == []  # no words twice
    assert written.stat().st_size < 4e6


def test_findings_stand_on_the_first_screen(written: Path) -> None:
    text = written.read_text(encoding="utf-8")
    summary = text[text.index('id="summary"') : text.index('id="chooser"')]
    found = re.findall(r'<dt><a href="#([\w-]+)">(.*?)</a></dt><dd>(.*?)</dd>', summary)
    assert [name for _, name, _ in found] == [
        "Delays", "Drivers", "Pattern", "Captures", "Throughput", "Jobs", "Volume", "Communication", "Slowest worker",
    ]  # fmt: skip
    assert all(re.search(r"\d", sentence) or name == "Captures" for _, name, sentence in found), "each with its number"
    assert text.index('id="law"') < text.index("figure-run_throughput") < text.index("<h2>")


def test_counts_of_one_subject_agree_everywhere_on_the_page(dataset: Dataset, written: Path) -> None:
    """Numbers of runs, and of runs of a topology: in sentences, the table of topologies, the comparison of rings."""
    page = Page(written)
    text = " ".join(page.text.split())
    runs = len(dataset.run_ids)
    assert set(re.findall(r"median of ([\d,]+) runs", text)) <= {str(number) for number in range(1, runs + 1)}
    assert set(re.findall(r"of all ([\d,]+) runs|all ([\d,]+): a name", text)) <= {("", str(runs)), (str(runs), "")}
    (shown,) = set(re.findall(r"The traffic of 4 runs shows: ([^.]*?);? confidence", text))
    shown = re.sub(r" \([^)]*\)", "", shown)  # names of runs
    kinds = {name: int(number) for number, name in re.findall(r"(\d+) ([a-z ]+)(?=;|$)", shown)}
    rows = rows_of(written, "table-topology-1")
    assert sum(kinds.values()) == len(rows) == runs
    assert kinds == Counter(row["topology"] for row in rows)
    assert Counter(row["topology (inferred)"] for row in rows_of(written, "table-rings-1")) == kinds


def rows_of(page: Path, table: str) -> list[dict[str, str]]:
    """The rows of a table that has all of them as elements, by column."""
    text = page.read_text(encoding="utf-8")
    start = text.index(f'id="{table}"')
    found = text[start : text.index("</table>", start)]
    titles = [html.unescape(title) for title in re.findall(r"<th [^>]*>(.*?)</th>", found)]
    rows = [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in re.findall(r"<tr[^>]*>(.*?)</tr>", found)]
    return [dict(zip(titles, map(html.unescape, row), strict=True)) for row in rows if row]


def test_the_rows_of_a_long_table_are_all_in_the_page(written: Path) -> None:
    rows = [(str(number), "a") for number in range(60)]
    table = Table("", ("x", "y"), rows, ("x",), (), [(float(number), None) for number in range(60)], ["r"] * 60)
    assert [cells for cells, _, _ in table.later] == rows[ROWS_AS_ELEMENTS:]
    assert table.later[0][1:] == ((float(ROWS_AS_ELEMENTS), None), "r")
    assert Table("", ("x",), [("1",)], (), ()).later == []


def test_columns_without_a_value_take_no_place_and_are_named() -> None:
    section = Section("slug", "Title", Source("runs"), Results.__new__(Results))
    rows = pl.DataFrame({"run_id": ["a", "b"], "x": [1, None], "y": [None, None]}, schema_overrides={"y": pl.Int64})
    columns = [texts("run", "run_id"), numbers("of one", "x"), numbers("of none", "y")]
    section.table(rows, columns, "All.")
    section.table(rows.clear(), columns, "None.")
    table, empty = section.tables
    assert (table.caption, table.columns) == ("All. No row has a value for: of none.", ["run", "of one"])
    assert (table.numeric, table.rows) == (["of one"], [("a", "1"), ("b", NOT_KNOWN)])
    assert (empty.caption, empty.columns) == ("None.", ["run", "of one", "of none"])


def test_a_column_with_sentences_has_some_width() -> None:
    assert Table("", ("x", "y"), [("1", "short"), ("2", "word " * 20)], (), ()).long == {"y"}


def test_sections_are_by_question_with_the_papers_figures_as_references(written: Path) -> None:
    text = written.read_text(encoding="utf-8")
    questions = ["Who talks to whom", "How much", "When, and how bursty", "Where steps go",
                 "What drives volume and time", "Can it be trusted", "Appendix"]  # fmt: skip
    assert re.findall(r"<h2>\d\. (.*?)</h2>", text) == questions
    assert "<small>zerwas, fig. 4</small>" in text


@pytest.mark.long
def test_charts_are_svg_and_png_files_of_a_sane_size(dataset: Dataset, written: Path, tmp_path: Path) -> None:
    folder = tmp_path / "charts"
    out = ddnn_traces.write_report(dataset, tmp_path / "report.html", charts=folder)
    assert out.read_bytes() == written.read_bytes(), "the same dataset gives the same page"
    specs = Page(out).specs
    assert set(specs) <= set(writer.CHARTS)
    assert {path.name for path in folder.iterdir()} == {f"{n}.{s}" for n in specs for s in ("svg", "png")}
    for name in specs:
        svg = ET.parse(folder / f"{name}.svg").getroot()
        png = (folder / f"{name}.png").read_bytes()
        assert png.startswith(b"\x89PNG\r\n\x1a\n") and png[-8:-4] == b"IEND"
        size = struct.unpack(">II", png[16:24])
        assert all(200 < side < 8000 for side in size)
        assert size[0] == pytest.approx(PNG_SCALE * float(svg.attrib["width"]), abs=2)
        assert not [e for e in svg.iter() if any(key.endswith("href") for key in e.attrib)]


def test_a_full_disk_leaves_the_old_charts(tmp_path: Path) -> None:
    """All of the charts or none: one is too large for what is left."""

    def chart(name: str, size: int) -> SimpleNamespace:
        return SimpleNamespace(name=name, drawn=lambda: {"svg": b"a", "png": b"a" * size}, file_parts=())

    small, large, *_ = writer.CHARTS
    page = writer.Report("", [], {})
    section = SimpleNamespace(figures=[chart(small, 10), chart(large, 5000)])
    page.chapters[writer.CHAPTERS[0]] = [section]  # type: ignore[list-item]
    before = {f"{small}.svg": "old", f"{small}.png": "old", "notes": "mine"}
    for name, content in before.items():
        (tmp_path / name).write_text(content)
    with files_of_at_most(4096), pytest.raises(OSError, match="File too large"):
        page.write_charts(tmp_path)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == before
    page.write_charts(tmp_path)
    assert (tmp_path / f"{small}.png").read_text() == "a" * 10


@pytest.mark.long
def test_names_of_runs_stay_names(written: Path, hostile: Path, hostile_names: tuple[str, ...]) -> None:
    plain, page = Page(written), Page(hostile)
    assert page.tags == plain.tags, "no name makes an element"
    assert set(page.specs) == set(plain.specs)
    for name in map(for_xml, hostile_names):
        assert name in page.text
        [bars] = page.specs["flow_counts"]["panels"]
        assert name in {row["run_id"] for rows in bars["spec"]["datasets"].values() for row in rows if "run_id" in row}
        assert name in {panel["run"] for panel in page.specs["volume_heatmaps"]["panels"]}
    assert list(hostile.parent.iterdir()) == [hostile]


def test_links_inside_the_page_lead_somewhere(written: Path) -> None:
    page = Page(written)
    assert len(page.ids) == len(set(page.ids))
    inside = [link.removeprefix("#") for link in page.loads if link.startswith("#")]
    assert set(inside) <= set(page.ids)
    text = written.read_text(encoding="utf-8")
    index = re.findall(r'href="#([\w-]+)"', text[text.index("<nav") : text.index("</nav>")])
    assert [part for part in page.ids if part in index] == index, "in the page's order"
    assert set(re.findall(r'<section id="([\w-]+)"', text)) < set(index)


def commands(path: Path) -> list[tuple[str, dict[str, str], str]]:
    """Of every command of a report's figures and tables: the query, its parameters and the link to its SQL."""
    text = path.read_text(encoding="utf-8")
    origins = re.findall(r'<details class="origin">(.*?)</details>', text, re.DOTALL)
    page = Page(path)
    assert len(origins) == len(page.specs) + page.tags.count("table")
    found = []
    for origin in origins:
        lines = re.findall(r"<code>(.*?)</code> <a href=\"#(query-\w+)\"", origin)
        assert lines
        for command, anchor in lines:
            name, *params = shlex.split(html.unescape(command))[3:]
            found.append((name, dict(word.split("=") for word in params if word != "--param"), anchor))
    return found


def test_every_figure_leads_to_the_explorer(written: Path, dataset: Dataset) -> None:
    text = written.read_text(encoding="utf-8")
    found = re.findall(r"<figure .*?<code>(ddnn-traces explore [^<]*)</code>.*?</figure>", text, re.DOTALL)
    assert len(found) == len(Page(written).specs)
    named = {word for command in found for word in shlex.split(html.unescape(command))[3:]} - {"--run"}
    assert named and named <= set(dataset.run_ids)


def test_every_figure_and_table_has_its_command_and_sql(written: Path) -> None:
    page = Page(written)
    for name, params, anchor in commands(written):
        assert anchor == f"query-{name}"
        assert page.sql[anchor] == catalogue.find(name).sql
        assert set(params) <= {param.name for param in catalogue.find(name).params}
    for anchor in page.sql:
        read = {name for name in catalogue.find(anchor.removeprefix("query-")).inputs if name in catalogue.catalogue()}
        assert {f"query-{name}" for name in read} <= set(page.sql)


@pytest.mark.long
def test_every_command_of_the_report_runs(dataset: Dataset, written: Path) -> None:
    with Results(dataset) as results:
        for name, params, _ in commands(written):
            results.rows(Source(name, params))


@pytest.mark.long
def test_stored_views_give_the_same_rows_and_are_removed_afterwards(dataset: Dataset) -> None:
    names = (
        "topology", "conservation", "bus_bandwidth", "stragglers", "overlap_summary", "pair_conservation",
        "step_boundaries", "batch_burst_structure", "step_inference_score", "data_flows",
    )  # fmt: skip
    tables = "SELECT count(*) AS tables FROM duckdb_tables() WHERE temporary"
    calls = "SELECT table_name FROM duckdb_tables() WHERE temporary AND table_name LIKE '%()' ORDER BY ALL"
    with Results(dataset) as results:
        stored = {name: results.rows(Source(name)) for name in names}
        assert dataset.sql(tables)["tables"][0] > 0
        assert {"conservation()", "flow_classes()", "inferred_steps()"} <= set(dataset.sql(calls)["table_name"])
        name = "step_inference_score"  # by a parameter that is the default, or another than what is stored
        longest = {value: results.rows(Source(name, {"longest_step_s": value})) for value in (0.05, 20.0)}
    assert dataset.sql(tables)["tables"][0] == 0
    for name, frame in stored.items():
        assert_frame_equal(frame, dataset.query(name), rel_tol=1e-9)  # the order of sums of doubles varies
    assert longest[20.0].equals(stored["step_inference_score"]) and not longest[0.05].equals(longest[20.0])
    assert_frame_equal(longest[0.05], dataset.query("step_inference_score", longest_step_s=0.05), rel_tol=1e-9)


def test_measured_runs_are_not_called_synthetic(written: Path) -> None:
    text = written.read_text(encoding="utf-8")
    assert "<title>Traffic of distributed training</title>" in text
    assert not re.search(r"[Ss]ynthetic[^.]*, not measured", text)


def test_the_numbers_are_the_queries(dataset: Dataset, written: Path) -> None:
    text = " ".join(Page(written).text.split())
    runs, counts = dataset.query("run_overview"), dataset.query("flow_counts")
    assert f"{runs.height} runs" in text and f"{runs['packets'].sum():,} packets" in text
    assert f"{counts['flows'].min()} to {counts['flows'].max()} flows" in text
    for row in dataset.query("ledger_sums").iter_rows(named=True):
        assert f"{row['wire_bytes']:,}" in text
    regression = ddnn_traces.regress(dataset)
    assert regression.coefficients
    for verdict in regression.verdicts:
        assert verdict.sentence in text
    assert sentences.drivers(regression) in text
    assert regression.notes
    for note in regression.notes:
        assert note in text
    headings = re.findall(r'<summary class="list">(.*?)</summary>', written.read_text(encoding="utf-8"))
    assert headings == ["Read first", "Terms", "Diagnostics"]
    for row in dataset.query("ring_comparison").drop_nulls("declared_ring").iter_rows(named=True):
        assert row["declared_ring"] in text and row["inferred_ring"] in text


@pytest.mark.long
def test_all_runs_can_be_chosen_and_hosts_that_are_left_out_are_counted(
    dataset: Dataset, runs: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "CHAPTERS", (host_pairs.chapter, time.chapter))
    monkeypatch.setattr(host_pairs, "MOST_HOSTS", 2)
    monkeypatch.setattr(time, "TIMELINE_FLOWS", 3)
    monkeypatch.setattr(time, "FEWEST_FLOWS", 3)
    monkeypatch.setitem(host_pairs.PAIR_VOLUME.params, "hosts", 2)
    monkeypatch.setitem(time.TIMELINE.params, "flows", 3)
    out = ddnn_traces.write_report(dataset, tmp_path / "report.html")
    page, text = Page(out), out.read_text(encoding="utf-8")
    captions = dict(re.findall(r'<figure id="figure-(\w+)".*?<figcaption>(.*?)</figcaption>', text, re.DOTALL))
    assert "the 2 hosts" in captions["volume_heatmaps"] and "the 3 largest flows" in captions["flow_timeline"]
    flows = dict(dataset.query("flow_counts").select("run_id", "flows").iter_rows())
    for panel in page.specs["flow_timeline"]["panels"]:  # as a picture of it says without the page
        assert f"3 of {flows[panel['run']]} flows are drawn" in panel["spec"]["title"]["subtitle"]
    for name in ("volume_heatmaps", "flow_timeline", "pair_throughput"):
        assert {panel["run"] for panel in page.specs[name]["panels"]} == set(runs)
    assert set(page.specs["position_volume"]["runs"]) == set(runs)
    assert page.specs["position_volume"]["first"] == page.specs["position_volume"]["runs"]
    assert json.loads(page.scripts["run-ids"]) == dataset.query("figure_runs")["run_id"].to_list()


def queries_of_figures(written: Path) -> dict[str, str]:
    """The query of each figure of a report."""
    figures = re.findall(
        r'<figure id="figure-(\w+)".*?<details class="origin">.*?<code>(.*?)</code>',
        written.read_text(encoding="utf-8"),
        re.DOTALL,
    )
    return {name: shlex.split(html.unescape(command))[3] for name, command in figures}


def by_measures(dataset: Dataset, written: Path) -> tuple[set[str], set[str]]:
    """Figures of a full report whose query has here a row with all measures, not all 0, so that they must be drawn; and
    those whose query has no measure at all, so that they cannot be. A column with a unit is a measure, unless it is of
    the table runs."""
    whole, empty = set(), set()
    declared = {column.name for column in schema.table("runs").columns}
    with Results(dataset) as results:
        for figure, name in queries_of_figures(written).items():
            columns = catalogue.find(name).columns
            measures = [column.name for column in columns if column.unit and column.name not in declared]
            rows = results.rows(Source(name)).select(measures)
            if any(any(row) for row in rows.drop_nulls().iter_rows()):
                whole.add(figure)
            elif not rows.height or all(count == rows.height for count in rows.null_count().row(0)):
                empty.add(figure)
    return whole, empty


@pytest.mark.long
def test_a_bare_capture_s_report_states_what_is_missing(
    sample: Path, runs: tuple[str, ...], written: Path, tmp_path: Path
) -> None:
    out = tmp_path / "report.html"
    charts = tmp_path / "charts"
    charts.mkdir()
    (charts / "step_volume_fit.svg").write_text("of an earlier dataset")
    (charts / "mine.svg").write_text("of somebody else")
    capture = next((sample / runs[3]).glob("worker-1-*"))
    shutil.copy(capture, tmp_path)
    with ddnn_traces.ingest(tmp_path / capture.name, tmp_path / "bare") as bare:
        ddnn_traces.write_report(bare, out, charts)
    page = Page(out)
    text = out.read_text(encoding="utf-8")
    for empty in ("step-volume", "conservation", "server-phases", "stragglers"):
        assert f'id="{empty}"' not in text, "a section without data is not drawn"
    for name in ("train_history.log", "model_bytes", "ring_position", "loss_pct", "Nothing is fitted"):
        assert name in page.text
    with ddnn_traces.open(tmp_path / "bare") as bare:
        whole, empty = by_measures(bare, written)
    assert whole <= page.specs.keys() <= queries_of_figures(written).keys() - empty
    assert {"flow_timeline", "topology_graph"} <= whole and {"step_volume_fit", "position_volume"} <= empty
    assert "The traffic of the run " in page.text, "a sentence of one run is not one of several"
    assert not (charts / "step_volume_fit.svg").exists()
    assert (charts / "mine.svg").exists()


TRAFFIC, LOGS = ("flows", "flow_windows", "step_flows"), ("steps", "events")


@pytest.mark.long
@pytest.mark.parametrize("tables", [TRAFFIC, TRAFFIC + LOGS], ids=["logs alone", "nothing"])
def test_a_dataset_without_flows_has_a_report(
    tables: tuple[str, ...], dataset: Dataset, written: Path, tmp_path: Path
) -> None:
    shutil.copytree(dataset.path, tmp_path / "dataset")
    for table in tables:
        for file in (tmp_path / "dataset" / table).rglob("*.parquet"):
            with ddnn_traces.open(tmp_path / "dataset") as opened:
                empty = opened.sql(f"SELECT * FROM {table} LIMIT 0")
            empty.write_parquet(file)
    with ddnn_traces.open(tmp_path / "dataset") as opened:
        page = Page(ddnn_traces.write_report(opened, tmp_path / "report.html"))
        whole, without = by_measures(opened, written)
    assert NO_FLOWS in page.text
    for empty in ("topology", "batch-sizes", "inferred-steps"):
        assert empty not in page.ids, "no table has rows of dashes alone"
    assert whole <= page.specs.keys() <= queries_of_figures(written).keys() - without
    assert bool(whole) == (tables == TRAFFIC), "logs alone have figures"


@pytest.mark.long
def test_partial_captures_are_named(
    sample: Path, runs: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "CHAPTERS", (trust.chapter,))
    cut = tmp_path / "cut-run"
    cut.mkdir()
    whole = next((sample / runs[3]).glob("worker-1-*"))
    (cut / whole.name).write_bytes(whole.read_bytes()[:20000])
    with ddnn_traces.ingest(cut, tmp_path / "dataset") as opened:
        detail = opened.query("partial_captures").row(0, named=True)
        text = html.unescape(ddnn_traces.write_report(opened, tmp_path / "report.html").read_text(encoding="utf-8"))
    assert "1 of 1 capture file" in text
    assert detail["status"] == "truncated" and detail["status_detail"] in text


def test_a_report_is_replaced_whole_or_not_at_all(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "report.html"
    monkeypatch.setattr(writer, "CHAPTERS", ())
    out.write_text("earlier")
    monkeypatch.setattr(Path, "replace", lambda *_: (_ for _ in ()).throw(OSError("no space left")))
    with pytest.raises(OSError, match="no space left"):
        ddnn_traces.write_report(dataset, out)
    assert out.read_text() == "earlier"
    assert list(tmp_path.iterdir()) == [out]


def test_a_folder_is_not_replaced_by_a_report(dataset: Dataset, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"report\.html"):
        ddnn_traces.write_report(dataset, tmp_path)
