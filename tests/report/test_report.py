"""The report is one page that loads nothing, holds any name of a run, and says what it does not show."""

from __future__ import annotations

import html
import json
import re
import shlex
import shutil
import struct
import subprocess
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from polars.testing import assert_frame_equal
from tools import needs_tool

import ddnn_traces
from ddnn_traces.errors import UsageError
from ddnn_traces.query import catalogue
from ddnn_traces.query.dataset import Dataset
from ddnn_traces.report import contents
from ddnn_traces.report import page as writer
from ddnn_traces.report.answers import Answers
from ddnn_traces.report.chapters import zerwas
from ddnn_traces.report.section import Source
from ddnn_traces.store import parquet, schema

RUNS = (
    "mpi-mlp1-sgd-32-openmpi-0ms-ring-sll2",
    "torch-mlp1-sgd-128-gloo-0ms-ring-tso",
    "torch-mlp1-sgd-32-gloo-0ms-ring-tso",
    "torchp2p-mlp4-sgd-32-gloo-0ms-star-tso",
)
HOSTILE = (
    "<script>alert(1)</script>",
    "a</script>b <!--<script> {{7*7}}",
    "../../x'\"); alert(2) // " + "long" * 30,
    "a\u2028{% raw %}</pre></details></style>",
)
#: Charts that these runs have no data for: none loses packets, and four are too few for studentized residuals.
NOT_DRAWN = {"duration_by_loss", "regression_quantiles"}
LOADING = {"src", "href", "srcset", "data", "action", "poster", "background", "xlink:href"}


@pytest.fixture(scope="module")
def dataset(sample: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dataset]:
    with ddnn_traces.ingest([sample / run for run in RUNS], tmp_path_factory.mktemp("report") / "dataset") as opened:
        yield opened


@pytest.fixture(scope="module")
def written(dataset: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return ddnn_traces.write_report(dataset, tmp_path_factory.mktemp("written") / "report.html")


@pytest.fixture(scope="module")
def hostile(dataset: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of the same runs under names that want out of HTML, JSON, JavaScript and the folder."""
    folder = tmp_path_factory.mktemp("hostile")
    shutil.copytree(dataset.path, folder / "dataset")
    for table in schema.TABLES:
        for run_id, name in zip(RUNS, HOSTILE, strict=True):
            parquet.partition(folder / "dataset", table, run_id).rename(
                parquet.partition(folder / "dataset", table, name)
            )
    with ddnn_traces.open(folder / "dataset") as renamed:
        assert renamed.run_ids == sorted(HOSTILE)
        return ddnn_traces.write_report(renamed, folder / "out" / "report.html")


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
    assert len(headlines) == text.count("<section ") == 28
    assert all(len(headline) > 20 and headline.endswith(".") for headline in headlines)
    assert written.stat().st_size < 15e6


def test_charts_are_svg_and_png_files_of_a_sane_size(written: Path) -> None:
    specs = Page(written).specs
    assert set(specs) == set(contents.FIGURES) - NOT_DRAWN
    assert {path.name for path in charts_of(written).iterdir()} == {f"{n}.{s}" for n in specs for s in ("svg", "png")}
    for name in specs:
        svg = ET.parse(charts_of(written) / f"{name}.svg").getroot()
        png = (charts_of(written) / f"{name}.png").read_bytes()
        assert png.startswith(b"\x89PNG\r\n\x1a\n") and png[-8:-4] == b"IEND"
        size = struct.unpack(">II", png[16:24])
        assert all(200 < side < 8000 for side in size)
        assert size[0] == pytest.approx(writer.PNG_SCALE * float(svg.attrib["width"]), abs=2)
        assert not [e for e in svg.iter() if any(key.endswith("href") for key in e.attrib)]


def test_the_same_dataset_gives_the_same_bytes(dataset: Dataset, written: Path, tmp_path: Path) -> None:
    again = ddnn_traces.write_report(dataset, tmp_path / "report.html")
    assert again.read_bytes() == written.read_bytes()
    for path in charts_of(written).iterdir():
        assert (charts_of(again) / path.name).read_bytes() == path.read_bytes()


def test_names_of_runs_stay_names(written: Path, hostile: Path) -> None:
    plain, page = Page(written), Page(hostile)
    assert page.tags == plain.tags, "no name makes an element"
    assert set(page.specs) == set(plain.specs)
    for name in HOSTILE:
        assert name in page.text
        assert name in {
            row["run_id"] for rows in json.loads(page.specs["flow_counts"])["datasets"].values() for row in rows
        }
    assert {path.name for path in charts_of(hostile).iterdir()} == {path.name for path in charts_of(written).iterdir()}
    assert {path.name for path in hostile.parent.iterdir()} == {"report.html", "report-charts"}
    for path in charts_of(hostile).glob("*.svg"):
        assert not [e for e in ET.parse(path).iter() if e.tag.endswith("script")]


def probe(page: Path, folder: Path, javascript: str, *options: str, fragment: str = "") -> dict[str, Any]:
    """What `javascript` (the body of a function) returns in a browser when all charts of the page are drawn."""
    script = f"""<script>(async () => {{
        const wanted = document.querySelectorAll('script[id^="spec-"]').length;
        while (document.querySelectorAll('svg.marks').length < wanted) await new Promise((go) => setTimeout(go, 50));
        const answer = document.createElement('div');
        answer.id = 'probed';
        answer.textContent = JSON.stringify((() => {{ {javascript} }})());
        document.body.append(answer);
    }})()</script></body>"""
    copy = folder / "probed.html"
    before, end, after = page.read_text(encoding="utf-8").rpartition("</body>")
    assert end
    copy.write_text(before + script + after, encoding="utf-8")
    common = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
              "--disable-background-networking", "--disable-component-update", "--disable-sync",
              "--enable-logging=stderr", "--virtual-time-budget=30000",
              f"--user-data-dir={folder / 'browser'}")  # fmt: skip
    command = [needs_tool("chromium"), *common, *options, "--dump-dom", copy.as_uri() + fragment]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert "CONSOLE" not in done.stderr, done.stderr
    found = re.search(r'<div id="probed">(.*?)</div>', done.stdout, re.DOTALL)
    assert found, done.stderr
    answer: dict[str, Any] = json.loads(html.unescape(found[1]))
    return answer


DARK = "--blink-settings=preferredColorScheme=0"
LIGHT = "--blink-settings=preferredColorScheme=1"

#: The paper's luminance, and the least contrast with it of texts and of marks in charts. Numbers in the cells of a
#: heatmap, and cells, have a paper of their own.
CONTRASTS = """
    const number = (colour) => (colour.match(/[\\d.]+/g) || []).map(Number);
    const luminance = (colour) => number(colour).slice(0, 3).map((part) => part / 255)
        .map((part) => (part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4))
        .reduce((sum, part, i) => sum + part * [0.2126, 0.7152, 0.0722][i], 0);
    const paper = luminance(getComputedStyle(document.body).backgroundColor);
    const contrast = (colour) => {
        const [low, high] = [luminance(colour), paper].sort((a, b) => a - b);
        return (high + 0.05) / (low + 0.05);
    };
    const isPaint = (colour) => colour !== 'none' && number(colour).length && number(colour)[3] !== 0;
    // an element is seen by its fill or by its outline
    const seen = (element) => ['fill', 'stroke'].map((name) => getComputedStyle(element)[name]).filter(isPaint)
        .map(contrast);
    const least = (selector) => Math.min(...[...document.querySelectorAll(selector)].map(seen)
        .filter((contrasts) => contrasts.length).map((contrasts) => Math.max(...contrasts)));
    const flat = '.chart:not([id$="heatmaps"]) svg ';
    const papers = [...document.querySelectorAll('svg.marks')].map((svg) => getComputedStyle(svg).backgroundColor)
        .filter(isPaint).map(contrast);
    return {
        paper,
        ofCharts: Math.max(1, ...papers),
        texts: least('.chart svg text:not([fill="black"]):not([fill="white"])'),
        marks: least(flat + '.role-mark path:not(.background), ' + flat + '.role-mark line'),
        drawn: document.querySelectorAll('svg.marks').length,
    };
"""


@pytest.mark.parametrize("colours", [LIGHT, DARK])
@pytest.mark.parametrize("fixture", ["written", "hostile"])
def test_a_browser_draws_every_chart_readably(
    fixture: str, colours: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    page = request.getfixturevalue(fixture)
    found = probe(page, tmp_path, CONTRASTS, colours)
    assert found["drawn"] == len(contents.FIGURES) - len(NOT_DRAWN)
    assert found["paper"] < 0.02 if colours == DARK else found["paper"] == 1
    assert found["ofCharts"] == 1, "charts are drawn on the page's own paper"
    assert found["texts"] > 4.5
    assert found["marks"] > 1.3


@pytest.mark.parametrize("colours", [LIGHT, DARK])
def test_the_button_turns_the_colours_over(written: Path, colours: str, tmp_path: Path) -> None:
    papers = """
        const paper = () => getComputedStyle(document.body).backgroundColor;
        const button = document.getElementById('theme');
        const before = [paper(), button.textContent];
        button.click();
        const after = [paper(), button.textContent];
        button.click();
        return {before, after, again: [paper(), button.textContent]};
    """
    found = probe(written, tmp_path, papers, colours)
    light, dark = ["rgb(255, 255, 255)", "Dark colours"], ["rgb(22, 24, 29)", "Light colours"]
    assert (found["before"], found["after"]) == ((dark, light) if colours == DARK else (light, dark))
    assert found["again"] == found["before"]


def test_a_link_to_a_query_opens_it(written: Path, tmp_path: Path) -> None:
    opened = """return {open: [...document.querySelectorAll('details.query[open] pre')].map((pre) => pre.id)};"""
    assert probe(written, tmp_path, opened, fragment="#query-topology") == {"open": ["query-topology"]}


@pytest.mark.parametrize(("width", "is_open"), [(1400, True), (600, False)])
def test_the_index_is_folded_where_there_is_no_room(written: Path, width: int, is_open: bool, tmp_path: Path) -> None:
    index = "return {open: document.getElementById('index').open, wide: document.body.scrollWidth <= innerWidth};"
    found = probe(written, tmp_path, index, f"--window-size={width},900")
    assert found == {"open": is_open, "wide": True}


def test_links_inside_the_page_lead_somewhere(written: Path) -> None:
    page = Page(written)
    assert len(page.ids) == len(set(page.ids))
    inside = [link.removeprefix("#") for link in page.loads if link.startswith("#")]
    assert set(inside) <= set(page.ids)
    text = written.read_text(encoding="utf-8")
    index = re.findall(r'href="#([\w-]+)"', text[text.index("<nav") : text.index("</nav>")])
    assert [part for part in page.ids if part in index] == index, "in the page's order"
    assert set(re.findall(r'<section id="([\w-]+)"', text)) < set(index)


def test_every_figure_and_table_has_its_command_and_sql(dataset: Dataset, written: Path) -> None:
    page, text = Page(written), written.read_text(encoding="utf-8")
    origins = re.findall(r'<details class="origin">(.*?)</details>', text, re.DOTALL)
    assert len(origins) == len(page.specs) + page.tags.count("table")
    for origin in origins:
        commands = re.findall(r"<code>(.*?)</code> <a href=\"#(query-\w+)\"", origin)
        assert commands
        for command, anchor in commands:
            name, *params = shlex.split(html.unescape(command))[3:]
            values = dict(word.split("=") for word in params if word != "--param")
            dataset.query_arrow(name, values)  # so the command is one that runs
            assert anchor == f"query-{name}"
            assert page.sql[anchor] == catalogue.find(name).sql
    for anchor in page.sql:
        read = {name for name in catalogue.find(anchor.removeprefix("query-")).inputs if name in catalogue.catalogue()}
        assert {f"query-{name}" for name in read} <= set(page.sql)


def test_kept_views_give_the_same_rows_and_are_gone_afterwards(dataset: Dataset) -> None:
    asked = [Source(name) for name in ("topology", "conservation", "bus_bandwidth", "stragglers", "overlap_summary")]
    with Answers(dataset) as answers:
        kept = [answers.frame(source) for source in asked]
        assert dataset.sql("SELECT count(*) AS kept FROM duckdb_tables() WHERE temporary")["kept"][0] > 0
    assert dataset.sql("SELECT count(*) AS kept FROM duckdb_tables() WHERE temporary")["kept"][0] == 0
    for source, frame in zip(asked, kept, strict=True):
        assert_frame_equal(frame, dataset.query(source.query), rel_tol=1e-9)  # sums of doubles know no order


def test_measured_runs_are_not_called_synthetic(dataset: Dataset, written: Path) -> None:
    assert contents.title(dataset) == "Traffic of distributed training runs"
    assert "<title>Traffic of distributed training runs</title>" in written.read_text(encoding="utf-8")


def test_the_numbers_are_the_queries(dataset: Dataset, written: Path) -> None:
    text = " ".join(Page(written).text.split())
    runs, counts = dataset.query("run_overview"), dataset.query("flow_counts")
    assert f"{runs.height} runs" in text and f"{runs['packets'].sum():,} packets" in text
    assert f"A run has {counts['flows'].min()} to {counts['flows'].max()} flows" in text
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
    assert headings == ["Terms", "Notes", "May it be believed"]
    for row in dataset.query("ring_comparison").drop_nulls("declared_ring").iter_rows(named=True):
        assert row["declared_ring"] in text and row["inferred_ring"] in text


@pytest.mark.usefixtures("page_only")
def test_what_a_figure_leaves_out_is_said(dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zerwas, "HEATMAP_RUNS", 1)
    monkeypatch.setattr(zerwas, "HEATMAP_HOSTS", 2)
    monkeypatch.setattr(zerwas, "TIMELINE_RUNS", 2)
    monkeypatch.setattr(zerwas, "TIMELINE_FLOWS", 3)
    page = Page(ddnn_traces.write_report(dataset, tmp_path / "report.html"))
    assert "3 runs of 4 left out here; the query pair_volume has all." in page.text
    assert "the 2 hosts with the most traffic are drawn" in page.text
    assert "2 runs of 4 left out here; the query flow_timeline has all." in page.text
    assert "the 3 largest flows are drawn" in page.text
    assert "(of the 1 run drawn here)." in page.text and "(of the 2 runs drawn here)." in page.text
    assert len(json.loads(page.specs["volume_heatmaps"])["concat"]) == 1


@pytest.mark.usefixtures("page_only")
def test_a_bare_capture_says_what_is_missing(sample: Path, tmp_path: Path) -> None:
    out = tmp_path / "report.html"
    charts_of(out).mkdir()
    (charts_of(out) / "step_volume_fit.svg").write_text("of an earlier dataset")
    (charts_of(out) / "mine.svg").write_text("of somebody else")
    capture = next((sample / RUNS[3]).glob("worker-1-*"))
    shutil.copy(capture, tmp_path)
    with ddnn_traces.ingest(tmp_path / capture.name, tmp_path / "bare") as bare:
        ddnn_traces.write_report(bare, out)
    page = Page(out)
    for words in ("train_history.log", "model_bytes", "No run declares a topology", "Nothing is fitted"):
        assert words in page.text
    without_log = {
        "volume_heatmaps", "mean_volume_heatmaps", "flow_counts", "flow_timeline", "pair_throughput",
        "throughput_intervals", "gradient_flow_intervals", "flow_classes", "step_boundaries",
    }  # fmt: skip
    assert set(page.specs) == without_log
    assert not (charts_of(out) / "step_volume_fit.svg").exists()
    assert (charts_of(out) / "mine.svg").exists()


TRAFFIC, LOGS = ("flows", "flow_windows", "step_flows"), ("steps", "events")


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
    assert "No run of this dataset has a flow" in page.text
    of_logs = {"iteration_duration_cdf", "straggler_slack"}
    assert set(page.specs) == (of_logs if tables == TRAFFIC else set())


@pytest.mark.usefixtures("page_only")
def test_partial_captures_are_named(sample: Path, tmp_path: Path) -> None:
    cut = tmp_path / "cut-run"
    cut.mkdir()
    whole = next((sample / RUNS[3]).glob("worker-1-*"))
    (cut / whole.name).write_bytes(whole.read_bytes()[:20000])
    with ddnn_traces.ingest(cut, tmp_path / "dataset") as opened:
        detail = opened.query("partial_captures").row(0, named=True)
        text = html.unescape(ddnn_traces.write_report(opened, tmp_path / "report.html").read_text(encoding="utf-8"))
    assert "1 of 1 capture file could be read only in part" in text
    assert detail["status"] == "truncated" and detail["status_detail"] in text


def test_a_report_is_replaced_whole_or_not_at_all(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "report.html"
    out.write_text("earlier")
    monkeypatch.setattr(Path, "replace", lambda *_: (_ for _ in ()).throw(OSError("no space left")))
    with pytest.raises(OSError, match="no space left"):
        ddnn_traces.write_report(dataset, out)
    assert out.read_text() == "earlier"
    assert list(charts_of(out).iterdir()) == []


def test_a_folder_is_no_report(dataset: Dataset, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"report\.html"):
        ddnn_traces.write_report(dataset, tmp_path)
