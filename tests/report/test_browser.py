"""A browser draws every chart of the report, readably in light and dark colours, without an error."""

from __future__ import annotations

import re
import subprocess
from importlib import resources
from pathlib import Path
from typing import Any

import axe_core_python
import pytest
from tools import needs_tool, probe

from ddnn_traces.query import catalogue

pytestmark = pytest.mark.long  # a browser needs ten seconds for all charts


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
    // an element is visible by its fill or by its outline
    const contrasts = (element) => ['fill', 'stroke'].map((name) => getComputedStyle(element)[name]).filter(isPaint)
        .map(contrast);
    const least = (selector) => Math.min(...[...document.querySelectorAll(selector)].map(contrasts)
        .filter((found) => found.length).map((found) => Math.max(...found)));
    const flat = 'figure:not([id$="heatmaps"]) .chart svg ';
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


#: What the button that turns the colours over shows, and all colours of the page, before, after a click and after two.
BUTTON = """
    const root = document.documentElement;
    const properties = () => [...root.computedStyleMap()].filter(([name]) => name.startsWith('--'));
    const colours = () => Object.fromEntries(properties().map(([name, value]) => [name, String(value)]));
    const button = document.getElementById('theme');
    const state = () => [getComputedStyle(document.body).backgroundColor, button.textContent, colours()];
    const before = state();
    button.click();
    const after = state();
    button.click();
    return {before, after, again: state()};
"""

#: Names, roles, order of headings and contrast, for readers with a keyboard or a screen reader.
AXE = """
    const {violations, passes} = await axe.run(document, {resultTypes: ['violations', 'passes'], ...options});
    return {passed: passes.length, violations: violations.map((one) => [one.id, one.nodes.map((node) => node.html)])};
"""


def test_a_browser_draws_every_chart_readably(written: Path, tmp_path: Path) -> None:
    """And axe-core finds nothing. In dark colours only what depends on colours is looked at again."""
    axe = resources.files(axe_core_python).joinpath("axe.min.js").read_text(encoding="utf-8")
    javascript = f"""{axe}
        const contrasts = () => {{ {CONTRASTS} }};
        const rules = async (options) => {{ {AXE} }};
        const light = [contrasts(), await rules({{}})];
        document.getElementById('theme').click();
        return [light, [contrasts(), await rules({{runOnly: ['color-contrast']}})]];"""
    for colours, least, (found, by_axe) in zip(
        (LIGHT, DARK), (21, 1), probe(written, tmp_path, javascript, LIGHT), strict=True
    ):
        assert_readable(found, written, colours)
        assert by_axe["violations"] == []
        assert by_axe["passed"] >= least


def test_the_system_and_the_button_give_the_same_colours(written: Path, tmp_path: Path) -> None:
    """So that a page that is dark by the button shows what one shows that is dark by the system."""
    by_system = {}
    for colours in (LIGHT, DARK):
        (tmp_path / colours).mkdir()
        by_system[colours] = probe(written, tmp_path / colours, BUTTON, colours, ready="Promise.resolve()")
    light, dark = by_system[LIGHT]["before"], by_system[DARK]["before"]
    assert light[:2] == ["rgb(255, 255, 255)", "Dark colours"]
    assert dark[:2] == ["rgb(22, 24, 29)", "Light colours"]
    assert len(light[2]) == len(dark[2]) > 10
    assert (by_system[LIGHT]["after"], by_system[LIGHT]["again"]) == (dark, light)
    assert (by_system[DARK]["after"], by_system[DARK]["again"]) == (light, dark)


@pytest.mark.parametrize("colours", [LIGHT, pytest.param(DARK, marks=pytest.mark.nightly)])
def test_hostile_names_are_drawn_readably(hostile: Path, colours: str, tmp_path: Path) -> None:
    assert_readable(probe(hostile, tmp_path, CONTRASTS, colours), hostile, colours)


def assert_readable(found: dict[str, Any], page: Path, colours: str) -> None:
    """By what CONTRASTS found."""
    assert found["drawn"] >= page.read_text(encoding="utf-8").count('id="spec-') > 20
    assert found["paper"] < 0.02 if colours == DARK else found["paper"] == 1
    assert found["ofCharts"] == 1, "charts are drawn on the page's own paper"
    assert found["texts"] > 4.5
    assert found["marks"] > 1.3


def test_a_printed_page_has_its_charts(written: Path, tmp_path: Path) -> None:
    """As a browser without a window prints it, at once when it is loaded."""
    script = """<script>addEventListener('afterprint', () => console.info('drawn',
        document.querySelectorAll('.panel.drawn svg').length, 'of', document.querySelectorAll('.panel').length));
    </script></body>"""
    before, _, after = written.read_text(encoding="utf-8").rpartition("</body>")
    page, printed = tmp_path / "page.html", tmp_path / "page.pdf"
    page.write_text(before + script + after, encoding="utf-8")
    command = [needs_tool("chromium"), "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr",
               "--no-pdf-header-footer", f"--user-data-dir={tmp_path / 'browser'}", f"--print-to-pdf={printed}",
               page.as_uri()]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    drawn, panels = re.search(r"drawn (\d+) of (\d+)", done.stderr).groups()  # type: ignore[union-attr]
    assert int(drawn) == int(panels) >= written.read_text(encoding="utf-8").count('id="spec-') > 20
    assert len(re.findall(rb"/Type /Page\b", printed.read_bytes())) <= 30


def test_a_link_to_a_query_opens_it(written: Path, tmp_path: Path) -> None:
    opened = """const [pre, ...others] = document.querySelectorAll('details.query[open] pre');
        return {open: pre.id, sql: pre.textContent, others: others.length};"""
    sql = catalogue.find("topology").sql
    found = probe(written, tmp_path, opened, fragment="#query-topology")
    assert found == {"open": "query-topology", "sql": sql, "others": 0}


@pytest.mark.long
@pytest.mark.parametrize(("width", "is_open"), [(1400, True), (600, False)])
def test_the_index_is_folded_where_the_page_is_narrow(written: Path, width: int, is_open: bool, tmp_path: Path) -> None:
    index = "return {open: document.getElementById('index').open, wide: document.body.scrollWidth <= innerWidth};"
    found = probe(written, tmp_path, index, f"--window-size={width},900")
    assert found == {"open": is_open, "wide": True}


#: Texts of charts that the picture or the page cuts, and pictures that are wider than their figure.
CUT = """
    const found = [];
    for (const svg of document.querySelectorAll('svg.marks')) {
        const [picture, figure] = [svg, svg.closest('figure')].map((one) => one.getBoundingClientRect());
        if (picture.right > figure.right + 1) found.push([figure.width, 'picture', picture.width]);
        for (const text of svg.querySelectorAll('text')) {
            const {left, right, top, bottom, width} = text.getBoundingClientRect();
            const isCut = left < picture.left - 1 || right > picture.right + 1 || top < picture.top - 1
                || bottom > picture.bottom + 1 || text.textContent.endsWith('…');
            if (width && getComputedStyle(text).opacity > 0 && isCut) found.push(text.textContent);
        }
    }
    return {found, width: document.body.clientWidth, drawn: document.querySelectorAll('svg.marks').length,
        lines: document.querySelectorAll('.role-axis-label tspan').length};
"""


@pytest.mark.parametrize("width", [400, 650, 1400])
def test_no_chart_is_cut(written: Path, width: int, tmp_path: Path) -> None:
    """Neither its legends, names of rows and titles nor itself, on a phone and on a wide screen."""
    narrow = f"(document.body.style.width = '{width}px', drawAll())"  # a window has 500 at least
    found = probe(written, tmp_path, CUT, f"--window-size={width},900", ready=narrow)
    assert found["width"] == width
    assert found["drawn"] >= written.read_text(encoding="utf-8").count('id="spec-') > 20
    assert found["found"] == []
    assert (found["lines"] > 0) == (width == 400), "long names of rows have two lines on a phone"


def test_no_arrow_of_a_table_stands_alone_in_a_line(written: Path, tmp_path: Path) -> None:
    lines = "return {lines: [...document.querySelectorAll('th .kept')].map((kept) => kept.getClientRects().length)};"
    found = probe(written, tmp_path, lines, "--window-size=650,900")
    assert len(found["lines"]) > 30 and set(found["lines"]) == {1}
