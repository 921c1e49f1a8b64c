"""The report is one page that loads nothing, holds any name of a run, and states what it does not show."""

from __future__ import annotations

import html
import json
import re
import shlex
import shutil
import struct
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest
from polars.testing import assert_frame_equal

import ddnn_traces
from ddnn_traces.errors import UsageError
from ddnn_traces.query import catalogue
from ddnn_traces.query.dataset import Dataset
from ddnn_traces.report import page as writer
from ddnn_traces.report.chapters import chang, overview, zerwas
from ddnn_traces.report.section import NO_FLOWS, Results, Source
from ddnn_traces.text import for_xml

LOADING = {"src", "href", "srcset", "data", "action", "poster", "background", "xlink:href"}


@pytest.fixture
def page_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """No SVG and PNG files, which take most of the time."""
    monkeypatch.setattr(writer, "_draw", lambda _: {})


class Page(HTMLParser):
    """Tags, what their attributes load, text, and the text of each script by its id."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.loads: list[str] = []
        self.text = ""
        self.scripts: dict[str | None, str] = {}
        self.ids: list[str] = []
        self.sql: dict[str, str] = {}
        self._script: str | None = None
        self._sql: str | None = None
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.loads += [value or "" for name, value in attrs if name in LOADING]
        self.ids += [value for name, value in attrs if name == "id" and value]
        if tag == "script":
            self._script = dict(attrs).get("id") or f"script {len(self.tags)}"
        if tag == "pre":
            self._sql = dict(attrs).get("id")

    def handle_endtag(self, tag: str) -> None:
        if tag == "script":
            self._script = None
        if tag == "pre":
            self._sql = None

    def handle_data(self, data: str) -> None:
        if self._sql is not None:
            self.sql[self._sql] = self.sql.get(self._sql, "") + data
        if self._script is None:
            self.text += data
        else:
            self.scripts[self._script] = self.scripts.get(self._script, "") + data

    @property
    def specs(self) -> dict[str, str]:
        return {name.removeprefix("spec-"): text for name, text in self.scripts.items() if name and "spec-" in name}


def charts_of(path: Path) -> Path:
    return path.with_name(f"{path.stem}-charts")


def test_nothing_is_loaded_from_elsewhere(written: Path) -> None:
    page = Page(written)
    assert page.loads, "the page links to its sections and charts"
    for link in page.loads:
        assert link.startswith("#") or (written.parent / unquote(link)).is_file(), link
    text = written.read_text(encoding="utf-8")
    assert "default-src 'none'" in text
    assert "@import" not in text and "url(" not in Page(written).text
    assert not {"img", "link", "iframe", "object", "embed"} & set(page.tags)


def test_every_section_has_a_headline_and_the_page_is_small(written: Path) -> None:
    text = written.read_text(encoding="utf-8")
    headlines = re.findall(r'<p class="headline">(.*?)</p>', text)
    assert len(headlines) == text.count("<section ") == sum(len(chapter._sections) for chapter in writer.CHAPTERS)
    assert all(len(headline) > 20 and headline.endswith(".") for headline in headlines)
    assert written.stat().st_size < 15e6


def test_charts_are_svg_and_png_files_of_a_sane_size(written: Path) -> None:
    specs = Page(written).specs
    assert set(specs) <= set(writer.CHARTS)
    assert {path.name for path in charts_of(written).iterdir()} == {f"{n}.{s}" for n in specs for s in ("svg", "png")}
    for name in specs:
        svg = ET.parse(charts_of(written) / f"{name}.svg").getroot()
        png = (charts_of(written) / f"{name}.png").read_bytes()
        assert png.startswith(b"\x89PNG\r\n\x1a\n") and png[-8:-4] == b"IEND"
        size = struct.unpack(">II", png[16:24])
        assert all(200 < side < 8000 for side in size)
        assert size[0] == pytest.approx(writer.PNG_SCALE * float(svg.attrib["width"]), abs=2)
        assert not [e for e in svg.iter() if any(key.endswith("href") for key in e.attrib)]


@pytest.mark.long
def test_the_same_dataset_gives_the_same_bytes(dataset: Dataset, written: Path, tmp_path: Path) -> None:
    again = ddnn_traces.write_report(dataset, tmp_path / "report.html")
    assert again.read_bytes() == written.read_bytes()
    for path in charts_of(written).iterdir():
        assert (charts_of(again) / path.name).read_bytes() == path.read_bytes()


@pytest.mark.long
def test_names_of_runs_stay_names(written: Path, hostile: Path, hostile_names: tuple[str, ...]) -> None:
    plain, page = Page(written), Page(hostile)
    assert page.tags == plain.tags, "no name makes an element"
    assert set(page.specs) == set(plain.specs)
    for name in map(for_xml, hostile_names):
        assert name in page.text
        assert name in {
            row["run_id"] for rows in json.loads(page.specs["flow_counts"])["datasets"].values() for row in rows
        }
    assert {path.name for path in charts_of(hostile).iterdir()} == {path.name for path in charts_of(written).iterdir()}
    assert {path.name for path in hostile.parent.iterdir()} == {"report.html", "report-charts"}
    for path in charts_of(hostile).glob("*.svg"):
        assert not [e for e in ET.parse(path).iter() if e.tag.endswith("script")]


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
    for name, params, _ in commands(written):
        dataset.query_arrow(name, params)


@pytest.mark.long
def test_stored_views_give_the_same_rows_and_are_removed_afterwards(dataset: Dataset) -> None:
    names = ("topology", "conservation", "bus_bandwidth", "stragglers", "overlap_summary")
    tables = "SELECT count(*) AS tables FROM duckdb_tables() WHERE temporary"
    with Results(dataset) as results:
        stored = {name: results.rows(Source(name)) for name in names}
        assert dataset.sql(tables)["tables"][0] > 0
    assert dataset.sql(tables)["tables"][0] == 0
    for name, frame in stored.items():
        assert_frame_equal(frame, dataset.query(name), rel_tol=1e-9)  # the order of sums of doubles varies


def test_measured_runs_are_not_called_synthetic(written: Path) -> None:
    text = written.read_text(encoding="utf-8")
    assert "<title>Traffic of distributed training runs</title>" in text
    assert not re.search(r"synthetic[^.]*, not measured", Page(written).text)


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
    assert regression.notes
    for note in regression.notes:
        assert note in text
    headings = re.findall(r"<h4>(.*?)</h4>", written.read_text(encoding="utf-8"))
    assert headings == ["Read first", "Terms", "Diagnostics"]
    for row in dataset.query("ring_comparison").drop_nulls("declared_ring").iter_rows(named=True):
        assert row["declared_ring"] in text and row["inferred_ring"] in text


@pytest.mark.usefixtures("page_only")
@pytest.mark.long
def test_a_figure_states_what_it_leaves_out(dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "CHAPTERS", (zerwas.chapter,))
    monkeypatch.setattr(zerwas, "HEATMAP_HOSTS", 2)
    monkeypatch.setattr(zerwas, "TIMELINE_FLOWS", 3)
    for source, params in ((zerwas.PAIR_VOLUME, {"runs": 1, "hosts": 2}), (zerwas.TIMELINE, {"runs": 2, "flows": 3})):
        for name, value in params.items():
            monkeypatch.setitem(source.params, name, value)
    out = ddnn_traces.write_report(dataset, tmp_path / "report.html")
    page, text = Page(out), out.read_text(encoding="utf-8")
    captions = dict(re.findall(r'<figure id="figure-(\w+)">.*?<figcaption>(.*?)</figcaption>', text, re.DOTALL))
    for name, left_out, query in (("volume_heatmaps", 3, "pair_volume"), ("flow_timeline", 2, "flow_timeline")):
        assert re.search(rf"\b{left_out} runs of 4 left out .*\b{query}\b", captions[name])
    assert "the 2 hosts" in captions["volume_heatmaps"] and "the 3 largest flows" in captions["flow_timeline"]
    headlines = dict(re.findall(r'<section id="([\w-]+)">.*?<p class="headline">(.*?)</p>', text, re.DOTALL))
    assert "1 run drawn" in headlines["heatmaps"] and "2 runs drawn" in headlines["flow-timeline"]
    assert len(json.loads(page.specs["volume_heatmaps"])["concat"]) == 1


@pytest.mark.usefixtures("page_only")
@pytest.mark.long
def test_a_bare_capture_s_report_states_what_is_missing(sample: Path, runs: tuple[str, ...], tmp_path: Path) -> None:
    out = tmp_path / "report.html"
    charts_of(out).mkdir()
    (charts_of(out) / "step_volume_fit.svg").write_text("of an earlier dataset")
    (charts_of(out) / "mine.svg").write_text("of somebody else")
    capture = next((sample / runs[3]).glob("worker-1-*"))
    shutil.copy(capture, tmp_path)
    with ddnn_traces.ingest(tmp_path / capture.name, tmp_path / "bare") as bare:
        ddnn_traces.write_report(bare, out)
    page = Page(out)
    for name in ("train_history.log", "model_bytes", "ring_position", "loss_pct", "Nothing is fitted"):
        assert name in page.text
    without_log = {
        "volume_heatmaps", "mean_volume_heatmaps", "flow_counts", "flow_timeline", "pair_throughput",
        "throughput_intervals", "gradient_flow_intervals", "flow_classes", "step_boundaries",
    }  # fmt: skip
    assert set(page.specs) == without_log
    assert not (charts_of(out) / "step_volume_fit.svg").exists()
    assert (charts_of(out) / "mine.svg").exists()


TRAFFIC, LOGS = ("flows", "flow_windows", "step_flows"), ("steps", "events")


@pytest.mark.long
@pytest.mark.usefixtures("page_only")
@pytest.mark.parametrize("tables", [TRAFFIC, TRAFFIC + LOGS], ids=["logs alone", "nothing"])
def test_a_dataset_without_flows_has_a_report(tables: tuple[str, ...], dataset: Dataset, tmp_path: Path) -> None:
    shutil.copytree(dataset.path, tmp_path / "dataset")
    for table in tables:
        for file in (tmp_path / "dataset" / table).rglob("*.parquet"):
            with ddnn_traces.open(tmp_path / "dataset") as opened:
                empty = opened.sql(f"SELECT * FROM {table} LIMIT 0")
            empty.write_parquet(file)
    with ddnn_traces.open(tmp_path / "dataset") as opened:
        page = Page(ddnn_traces.write_report(opened, tmp_path / "report.html"))
    assert NO_FLOWS in page.text
    of_logs = {"iteration_duration_cdf", "straggler_slack"}
    assert set(page.specs) == (of_logs if tables == TRAFFIC else set())


@pytest.mark.usefixtures("page_only")
@pytest.mark.long
def test_partial_captures_are_named(
    sample: Path, runs: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "CHAPTERS", (overview.chapter,))
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
    monkeypatch.setattr(writer, "CHAPTERS", (chang.chapter,))
    out.write_text("earlier")
    monkeypatch.setattr(Path, "replace", lambda *_: (_ for _ in ()).throw(OSError("no space left")))
    with pytest.raises(OSError, match="no space left"):
        ddnn_traces.write_report(dataset, out)
    assert out.read_text() == "earlier"
    assert list(charts_of(out).iterdir()) == []


def test_a_folder_is_not_replaced_by_a_report(dataset: Dataset, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"report\.html"):
        ddnn_traces.write_report(dataset, tmp_path)
