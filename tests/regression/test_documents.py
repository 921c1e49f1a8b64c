"""A regression as text, page, LaTeX, JSON and CSV."""

from __future__ import annotations

import csv
import io
import json
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import polars as pl
import pytest
from regression_runs import as_paper, fit, noisy_runs
from tools import needs_tool

from ddnn_traces.regression import Regression, sentences
from ddnn_traces.regression.documents import FORMATS, latex_escape
from ddnn_traces.report.page import regression_page

#: Markup of every kind, and letters that T1 fontenc has, that LaTeX has with math, and that neither has.
HOSTILE = "a<b>&\"'_%$#{}~^\\|x\u2215é-1 Łßſ ×−≤α…“” Ж模ŉ\u2011"
DOCUMENTS = {**FORMATS, "html": regression_page}


@pytest.mark.long
def test_synthetic_runs_are_counted() -> None:
    one = pl.when(pl.col("run_id") == "run-03").then(pl.lit("synthetic")).otherwise(pl.lit("capture"))
    result = fit(noisy_runs(source=one))
    count = "1 of 24 runs is synthetic"
    assert result.synthetic is not None and result.synthetic.startswith(count)
    for name, make in DOCUMENTS.items():
        assert count in make(result, True), name
    without = fit(noisy_runs())
    assert without.synthetic is None
    assert all("synthetic:" not in make(without, True) for make in DOCUMENTS.values())


def test_nothing_fitted_has_all_documents() -> None:
    result = as_paper(noisy_runs().head(2))
    for name, make in DOCUMENTS.items():
        if name != "csv":
            assert "Nothing is fitted: 2 usable runs" in make(result, True), name
    assert sentences.paper_rows(result)[0].here == "not in the formula"
    assert len(FORMATS["csv"](result, True).splitlines()) == 1


@pytest.fixture(scope="module")
def hostile() -> Regression:
    """Levels and runs whose names are markup."""
    run = pl.col("run_id") + HOSTILE
    level = pl.col("topology").replace({"star": HOSTILE})
    return as_paper(noisy_runs(run_id=run, topology=level, source=pl.lit("synthetic")))


def test_text_is_aligned(hostile: Regression) -> None:
    lines = FORMATS["text"](hostile, True).splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("coefficient "))
    table = lines[at : at + 1 + len(hostile.coefficients)]
    ends = {line.index(" MB") for line in table[1:] if " MB " in line}
    assert len({len(line) for line in table}) == 1
    assert len(ends) == 1
    assert lines[2].startswith("24 of 24 runs are synthetic")
    headings = ("Joint F-test", "Nested formulas", "In the words of", "Terms", "Diagnostics")
    assert all(any(line.startswith(heading) for line in lines) for heading in headings)


class Elements(HTMLParser):
    """The elements, the text and the loaded addresses of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.names: list[str] = []
        self.loaded: list[str] = []
        self.texts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)
        self.loaded += [value for name, value in attrs if name in ("src", "href", "xlink:href") and value]

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_the_page_loads_nothing_and_escapes(hostile: Regression) -> None:
    page = Elements(regression_page(hostile))
    assert page.loaded == []
    assert page.names.count("svg") == 2
    assert not {"b", "script", "img"} & set(page.names)
    assert any(HOSTILE in text for text in page.texts)
    assert "prefers-color-scheme: dark" in "".join(page.texts)


def test_latex_has_every_table_in_booktabs(hostile: Regression) -> None:
    text = FORMATS["latex"](hostile, True)
    assert text.count(r"\toprule") == text.count(r"\bottomrule") == text.count(r"\end{tabular}") == 4
    assert latex_escape(HOSTILE) in text
    assert HOSTILE not in text


@pytest.mark.parametrize(
    ("text", "latex"),
    [
        ("slope -1.5 [-2, -1] of run-32", "slope $-$1.5 [$-$2, $-$1] of run-32"),
        ("50% of a_b\\ & #{c}\n$", r"50\% of a\_b{\textbackslash} \& \#\{c\} \$"),
        ("~^", r"{\textasciitilde}{\textasciicircum}"),
        ("é ł \u00d7 \u2212 R\u00b2", r"\'e {\l} {\texttimes} \ensuremath{-} R{\texttwosuperior}"),
        ("a\u2215b 模 Ж\u0007", "aU+2215b U+6A21 U+0416U+0007"),
    ],
)
def test_latex_prints_every_letter_or_its_code(text: str, latex: str) -> None:
    assert latex_escape(text) == latex


def test_latex_has_minus_signs() -> None:
    result = fit(noisy_runs())
    (row,) = (line for line in FORMATS["latex"](result, True).splitlines() if line.lstrip().startswith("Intercept"))
    interval = next(c for c in result.coefficients if c.name == "Intercept")
    assert interval.ci_low is not None and interval.ci_low < 0
    assert f"{{}}[$-${-interval.ci_low / 1e6:,.4f}, " in row


def test_latex_compiles(hostile: Regression, tmp_path: Path) -> None:
    (tmp_path / "table.tex").write_text(FORMATS["latex"](hostile, True), encoding="utf-8")
    packages = r"\usepackage[T1]{fontenc}\usepackage{booktabs}\usepackage{graphicx}"
    whole = rf"\documentclass{{article}}{packages}\begin{{document}}\input{{table}}\end{{document}}"
    (tmp_path / "whole.tex").write_text(whole, encoding="utf-8")
    command = [needs_tool("pdflatex"), "-halt-on-error", "-interaction=nonstopmode", "whole.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, errors="replace", timeout=300)
    assert done.returncode == 0, done.stdout[-2000:]


def test_json_holds_every_number(hostile: Regression) -> None:
    document = json.loads(FORMATS["json"](hostile, True))
    assert document["ddnn_traces_regression"] == 3
    assert [c["estimate"] for c in document["coefficients"]] == [c.estimate for c in hostile.coefficients]
    assert document["fit"]["r_squared"] == hostile.r_squared
    assert {term["term"]: term["p_value"] for term in document["terms"]} == {t.term: t.p_value for t in hostile.tests}
    assert [row["fitted"] for row in document["points"]] == list(hostile.fitted or ())
    assert document["synthetic_runs"] == document["runs"] == 24
    assert len(document["paper"]["table"]) == 6
    described = (Path(__file__).parents[2] / "docs" / "regression.md").read_text(encoding="utf-8")
    keys = set(document) | set(document["fit"]) | {key for c in document["coefficients"] for key in c}
    assert [key for key in sorted(keys) if f"`{key}`" not in described] == []


def test_json_has_null_for_unknown_numbers() -> None:
    """Where the fit is exact, or one run determines it, a number is null and not NaN."""
    exact = fit(noisy_runs(step_bytes=5.0 * pl.col("model_bytes")))
    document = json.loads(FORMATS["json"](exact, True), parse_constant=pytest.fail)
    assert {c["p_value"] for c in document["coefficients"]} == {None}
    assert document["influence"] == document["nested"] == []
    assert all(make(exact, True) for make in DOCUMENTS.values())


def test_csv_has_a_row_a_coefficient(hostile: Regression) -> None:
    rows = list(csv.DictReader(io.StringIO(FORMATS["csv"](hostile, True))))
    assert [row["name"] for row in rows] == [c.name for c in hostile.coefficients]
    for row, coefficient in zip(rows, hostile.coefficients, strict=True):
        assert float(row["std_error_robust"]) == coefficient.std_error_robust
        assert (row["synthetic_runs"], row["formula"]) == ("24", hostile.formula)
