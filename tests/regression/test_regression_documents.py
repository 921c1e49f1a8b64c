"""The regression's rows, presets and documents: text, page, LaTeX, JSON and CSV."""

from __future__ import annotations

import csv
import io
import json
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from datasets import write_dataset
from scipy import stats
from tools import needs_tool

import ddnn_traces
from ddnn_traces.errors import RegressionError
from ddnn_traces.query.dataset import Dataset
from ddnn_traces.regression import Regression, fit, words
from ddnn_traces.regression.documents import latex_escape
from ddnn_traces.report.regression_page import FORMATS

SIZES = (14_000_000, 80_000_000, 97_000_000, 171_000_000)
HOSTILE = "a<b>&\"'_%$#{}~^\\|x\u2215é-1"


def made_up_runs(**columns: Any) -> pl.DataFrame:
    """24 runs of three frameworks, two batch sizes and two topologies, with noise."""
    rng = np.random.default_rng(3)
    rows = [
        {
            "run_id": f"run-{i:02d}",
            "model_bytes": size,
            "framework_backend": ("tf-grpc", "torch-gloo", "kungfu-pair")[i % 3],
            "batch_size": (32, 64)[i % 2],
            "topology": ("ring", "star")[i % 6 // 3],
            "model": f"m{size}",
            "source": "capture",
        }
        for i, size in enumerate(np.repeat(SIZES, 6).tolist())
    ]
    frame = pl.DataFrame(rows).with_columns(
        step_bytes=6.0 * pl.col("model_bytes")
        - 2e8 * (pl.col("framework_backend") == "kungfu-pair")
        + pl.Series(rng.normal(0, 2e7, 24))
    )
    return frame.with_columns(**columns)


def as_paper(rows: pl.DataFrame) -> Regression:
    return Regression(**vars(fit(rows)) | {"preset": "paper"})


# --- the dataset's rows


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """12 runs of 3 steps by 2 workers; one of them is synthetic, one has no log."""
    runs, steps, flows = [], [], []
    rng = np.random.default_rng(5)
    for i in range(12):
        run, size, delay, loss = f"r{i:02d}", (1_000_000, 4_000_000, 9_000_000)[i % 3], 10.0 * (i % 2), float(i // 6)
        runs.append(
            {
                "run_id": run, "framework": "tf" if i % 6 in (0, 4, 5) else "torch", "backend": "x",
                "model": f"m{size}",
                "model_bytes": size, "model_size_mb": size / 1e6 + 0.5, "batch_size": 32 * (1 + i // 3 % 2),
                "topology": "ring", "workers": 2, "delay_ms": delay, "loss_pct": loss,
                "source": "synthetic" if i == 0 else "capture", "optimizer": "sgd", "bandwidth_mbit": 1000.0,
            }
        )  # fmt: skip
        duration = int(1e8 + 1e6 * delay + 3e7 * loss + 5 * size + rng.integers(0, 2_000_000))
        for step in range(0 if i == 11 else 3):
            for worker in ("worker-1", "worker-2"):
                steps.append(
                    {"run_id": run, "worker": worker, "step": step, "epoch": 0, "start_ns": step * duration,
                     "end_ns": (step + 1) * duration, "start_source": "phases"}
                )  # fmt: skip
            flows.append(
                {"run_id": run, "flow_id": 0, "worker": "worker-1", "position": "during", "step": step,
                 "wire_bytes": 2 * size + int(rng.integers(0, 50_000)), "payload_bytes": 2 * size}
            )  # fmt: skip
    tables = {"runs": runs, "steps": steps, "step_flows": flows}
    frames = {name: pl.DataFrame(rows) for name, rows in tables.items()}
    return write_dataset(tmp_path_factory.mktemp("regress") / "dataset", frames)


def test_a_row_is_a_run_or_a_step(dataset: Dataset) -> None:
    by_run = ddnn_traces.regress(dataset)
    assert (by_run.grain, by_run.rows, by_run.runs, by_run.errors) == ("run", 11, 11, "classic")
    by_step = ddnn_traces.regress(dataset, rows="steps")
    assert (by_step.grain, by_step.rows, by_step.runs, by_step.errors) == ("step", 33, 11, "cluster")
    assert [(e.run_id, e.reason) for e in by_step.excluded] == [("r11", "step_bytes is missing")]
    # balanced steps: the same slope, and the errors of 11 runs, not of 33 rows
    slopes = [next(c for c in r.coefficients if c.name == "model_bytes") for r in (by_run, by_step)]
    assert slopes[0].estimate == pytest.approx(slopes[1].estimate, rel=1e-6)
    assert by_step.tests[0].df_denominator == 10


def test_batch_as_a_number_and_nominal_size(dataset: Dataset) -> None:
    result = ddnn_traces.regress(dataset, batch="number", size="nominal")
    assert result.formula == "step_bytes ~ nominal_bytes + C(framework_backend) + batch_size + C(topology)"
    assert result.size_column == "nominal_bytes"
    assert set(result.points["size_bytes"]) == {1.5e6, 4.5e6, 9.5e6}


def test_synthetic_runs_are_counted(dataset: Dataset) -> None:
    result = ddnn_traces.regress(dataset)
    words = "1 of 11 runs is synthetic"
    assert result.synthetic is not None and result.synthetic.startswith(words)
    for name, make in FORMATS.items():
        assert words in make(result), name
    without = fit(dataset.query("run_step_volume").filter(pl.col("source") != "synthetic"))
    assert without.synthetic is None
    assert all("synthetic:" not in make(without) for make in FORMATS.values())


def test_step_time_and_throughput_by_what_the_network_does(dataset: Dataset) -> None:
    time = ddnn_traces.regress(dataset, preset="step-time")
    by_name = {c.name: c.estimate for c in time.coefficients}
    assert by_name["delay_ms"] == pytest.approx(1.0, abs=0.15)  # ms a ms, as made up
    assert by_name["loss_pct"] == pytest.approx(30.0, abs=2)
    sentences = {v.term: v.sentence for v in time.verdicts}
    assert sentences["bandwidth_mbit"] == "cannot be estimated: every run has bandwidth_mbit = 1000.0"
    throughput = ddnn_traces.regress(dataset, preset="throughput", rows="steps")
    assert (throughput.left, throughput.rows) == ("samples_per_s", 33)
    assert next(c for c in throughput.coefficients if c.name == "loss_pct").estimate < 0


def loss_runs() -> dict[str, list[dict[str, Any]]]:
    """Runs of one step: settings a and b lossless and lossy, c lossless twice, d lossy once, e of unknown loss."""
    settings = {"a": (0.0, 0.0, 1.0, 2.0), "b": (0.0, 0.5, 1.5), "c": (0.0, 0.0), "d": (1.0,), "e": (None,)}
    noise = np.random.default_rng(2).normal(0, 0.1, 20).tolist()
    runs: list[dict[str, Any]] = []
    steps: list[dict[str, Any]] = []
    for model, losses in settings.items():
        for number, loss in enumerate(losses):
            run = f"{model}{number}"
            seconds = {"a": 1.0, "b": 8.0}.get(model, 3.0) * np.exp(0.3 * (loss or 0) + noise.pop())
            runs.append({"run_id": run, "framework": "tf", "model": model, "loss_pct": loss, "source": "capture"})
            steps.append({"run_id": run, "worker": "w", "step": 0, "start_ns": 0, "end_ns": int(seconds * 1e9)})
    return {"runs": runs, "steps": steps}


def test_duration_on_loss_is_fitted_within_settings(tmp_path: Path) -> None:
    """As deviations from the settings' means, with a degree of freedom less for each: Frisch, Waugh and Lovell."""
    frames = {name: pl.DataFrame(rows) for name, rows in loss_runs().items()}
    result = ddnn_traces.regress(write_dataset(tmp_path / "dataset", frames), preset="duration-on-loss")
    assert result.formula == "np.log(comparable_s) ~ C(setting) + loss_pct"
    ends = frames["steps"].join(frames["runs"], on="run_id").filter(pl.col("model").is_in(["a", "b"]))
    values = ends.select("model", "loss_pct", y=(pl.col("end_ns") / 1e9).log())
    x, y = values.select(pl.col("loss_pct", "y") - pl.col("loss_pct", "y").mean().over("model")).to_numpy().T
    slope, df = x @ y / (x @ x), 7 - 2 - 1
    error = np.sqrt(((y - slope * x) ** 2).sum() / df / (x @ x))
    low, high = (slope + sign * stats.t.ppf(0.975, df) * error for sign in (-1, 1))
    found = result.coefficients[-1]
    assert (found.name, result.rows, result.df_resid) == ("loss_pct", 7, df)
    assert [found.estimate, found.std_error, found.ci_low, found.ci_high, found.p_value] == pytest.approx(
        [slope, error, low, high, 2 * stats.t.sf(slope / error, df)], rel=1e-8
    )
    said = next(note for note in result.notes if note.startswith("With 1% more"))
    assert f"takes {np.exp(slope):.4g} [{np.exp(low):.4g}, {np.exp(high):.4g}] times as long" in said
    assert "measured from 0% to 2%" in said
    alone = "no run of that setting with other loss"
    assert [(run.run_id, run.reason) for run in result.excluded] == [
        ("c0", alone), ("c1", alone), ("d0", alone), ("e0", "loss_pct is missing")
    ]  # fmt: skip


def test_duration_on_loss_of_other_rows_and_formulas(dataset: Dataset) -> None:
    own = ddnn_traces.regress(dataset, "np.log(duration_s) ~ loss_pct", preset="duration-on-loss")
    assert (own.rows, [run.reason for run in own.excluded]) == (11, ["duration_s is missing"])
    assert not any("times as long" in note for note in own.notes)
    with pytest.raises(RegressionError, match="a row a run only"):
        ddnn_traces.regress(dataset, preset="duration-on-loss", rows="steps")


def test_the_left_side_may_be_any_number_of_the_rows(dataset: Dataset) -> None:
    result = ddnn_traces.regress(dataset, "np.log(step_ms) ~ delay_ms + model_bytes", preset="step-time")
    assert (result.left, result.correlation) == ("np.log(step_ms)", None)
    assert {v.term: v.significant for v in result.verdicts}["model_bytes"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"preset": "papers"}, "No preset named papers; there are: paper, step-time, throughput, duration-on-loss"),
        ({"rows": "epochs"}, "No rows named epochs; there are: runs, steps"),
        ({"batch": "none"}, "No batch named none"),
        ({"size": "none"}, "No size named none"),
        ({"errors": "hc9"}, "No standard errors named hc9; there are: classic, hc3, cluster"),
        ({"formula": "step_bytes ~ model_bytes", "batch": "number"}, "write them into yours: step_bytes ~ model_bytes"),
    ],
)
def test_names_that_there_are_not(options: dict[str, Any], message: str, dataset: Dataset) -> None:
    with pytest.raises(RegressionError, match=message):
        ddnn_traces.regress(dataset, **options)


# --- the paper


def test_the_paper_s_table_has_this_dataset_s_numbers_beside_the_paper_s() -> None:
    result = as_paper(made_up_runs())
    rows = {row.name: row for row in words.paper_rows(result)}
    slope = next(c for c in result.coefficients if c.name == "model_bytes")
    assert rows["Model_Size"].here == (
        f"significant: {slope.estimate:.4g} [{slope.ci_low:.4g}, {slope.ci_high:.4g}] MB more data a step "
        "for 1 MB more model"
    )
    assert (
        rows["Framework_Backend"].here == "significant; intervals without 0: tf-grpc (positive), torch-gloo (positive)"
    )
    assert rows["Batch_Size"].here.startswith("insignificant at alpha = 0.05")
    assert rows["R2"].here == f"{result.r_squared:.6g}"
    assert rows["correlation of size and data"].here == f"{result.correlation:.3g}"
    assert [rows[name].paper for name in ("R2", "correlation of size and data")] == ["0.98", "0.97"]
    assert "5.7 MB" in rows["Model_Size"].paper


def test_the_paper_s_sentences() -> None:
    result = as_paper(made_up_runs())
    told = words.paper_sentences(result)
    assert told[0] == f"The regression yields an R2 of {result.r_squared:.6g} (the paper: 0.98)."
    assert told[1].startswith("C(batch_size) and C(topology) are statistically insignificant at alpha = 0.05")
    assert told[2].startswith(
        "Framework_Backend is significant for tf-grpc (positive), torch-gloo (positive) (the paper:"
    )
    assert told[3].startswith("An increase of 1 MB in model size corresponds to ")
    slope = float(told[3].split(" corresponds to ")[1].split()[0])
    assert slope == pytest.approx(6, abs=0.2)
    assert told[4].endswith(f"yields a correlation value of {result.correlation:.3g} (the paper: 0.97).")
    one_framework = as_paper(made_up_runs(framework_backend=pl.lit("tf-grpc")))
    assert not any(sentence.startswith("Framework_Backend") for sentence in words.paper_sentences(one_framework))


def test_the_paper_s_equation_without_its_main_regressor_is_not_called_that() -> None:
    result = as_paper(made_up_runs(model_bytes=pl.lit(None, pl.Int64)))
    assert words.paper_sentences(result)[0].startswith(
        "Model_Size, the main regressor of equation (1), is not in this fit (no run has model_bytes): it is not"
    )
    assert "Equation (1) of Zerwas et al. 2021, without Model_Size\n" in FORMATS["text"](result)
    assert "Model_Size, the" not in FORMATS["text"](as_paper(made_up_runs()))
    nothing = next(said for said in words.paper_sentences(result) if said.startswith("Framework_Backend"))
    assert (
        nothing
        == "Framework_Backend is significant for no configuration (the paper: only for KungFu PairAvg, negative)."
    )


def test_the_paper_s_sentence_names_no_configuration_that_is_not_told_apart() -> None:
    """Star and tf-grpc are one: neither has an effect of its own."""
    star = pl.when(pl.col("framework_backend") == "tf-grpc").then(pl.lit("star")).otherwise(pl.lit("ring"))
    result = as_paper(made_up_runs().with_columns(topology=star))
    (said,) = (sentence for sentence in words.paper_sentences(result) if sentence.startswith("Framework_Backend"))
    assert "tf-grpc" not in said
    assert "; some configurations cannot be told apart from another term (the paper:" in said
    rows = {row.name: row.here for row in words.paper_rows(result)}
    assert rows["Comm_Topology"].startswith("cannot be estimated: topology = ")


def test_where_a_missing_value_would_come_from() -> None:
    def last(rows: pl.DataFrame, formula: str | None = None) -> str:
        return FORMATS["text"](fit(rows, formula)).split("\n\nLeft out\n")[-1]

    one = pl.col("run_id") == "run-03"
    no_size = last(made_up_runs(model_bytes=pl.when(~one).then("model_bytes")))
    assert no_size.splitlines() == [
        "run-03: model_bytes is missing",
        "model_bytes can be given in a run.toml in the run's folder; then ingest it again.",
    ]
    no_steps = last(
        made_up_runs(step_bytes=pl.when(~one).then(6.0 * pl.col("model_bytes") + 1e6 * (one.cum_count() % 5)))
    )
    assert "run.toml" not in no_steps
    assert no_steps.endswith("step_bytes needs training steps (train_history.log beside the captures) and packets "
                             "during them.")  # fmt: skip
    # nothing is left out: no heading of that, and what is missing is said with the terms
    unknown = FORMATS["text"](fit(made_up_runs(topology=pl.lit(None, pl.String))))
    assert "Left out" not in unknown
    assert "no run has topology\ntopology can be given in a run.toml" in unknown
    empty_cell = made_up_runs().filter(~((pl.col("batch_size") == 64) & (pl.col("topology") == "star")))
    assert "run.toml" not in FORMATS["text"](fit(empty_cell, "step_bytes ~ C(batch_size) * C(topology)"))


@pytest.mark.parametrize(
    ("errors", "shown"),
    [("classic", ("classic", "HC3")), ("hc3", ("HC3", "classic")), ("cluster", ("run-clustered", "classic"))],
)
def test_the_table_has_the_error_that_made_the_interval(errors: str, shown: tuple[str, str]) -> None:
    result = fit(made_up_runs(), errors=errors)
    table = next(table for table in words.tables(result) if table.columns[0] == "coefficient")
    assert table.columns[2:4] == tuple(f"{kind} error" for kind in shown)
    slope = next(c for c in result.coefficients if c.name == "model_bytes")
    assert table.rows[1][2] == f"{slope.std_error:,.4f}"
    assert slope.ci_high is not None and slope.std_error is not None
    t = float(stats.t.ppf(0.975, next(test.df_denominator for test in result.tests)))
    assert slope.ci_high - slope.estimate == pytest.approx(t * slope.std_error, rel=1e-9)


def test_nothing_fitted_has_all_documents_too() -> None:
    result = as_paper(made_up_runs().head(2))
    for name, make in FORMATS.items():
        if name != "csv":
            assert "Nothing is fitted: 2 usable runs" in make(result), name
    assert words.paper_rows(result)[0].here == "not in the formula"
    assert len(FORMATS["csv"](result).splitlines()) == 1


# --- the documents


@pytest.fixture(scope="module")
def hostile() -> Regression:
    """Levels and runs whose names are markup."""
    run = pl.col("run_id") + HOSTILE
    level = pl.col("topology").replace({"star": HOSTILE})
    return as_paper(made_up_runs(run_id=run, topology=level, source=pl.lit("synthetic")))


def test_text_is_aligned(hostile: Regression) -> None:
    lines = FORMATS["text"](hostile).splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("coefficient "))
    table = lines[at : at + 1 + len(hostile.coefficients)]
    ends = {line.index(" MB") for line in table[1:] if " MB " in line}
    assert len({len(line) for line in table}) == 1
    assert len(ends) == 1
    assert lines[2].startswith("24 of 24 runs are synthetic: made up")
    headings = ("Joint F-test", "Nested formulas", "In the words of", "Terms", "May it be believed")
    assert all(any(line.startswith(heading) for line in lines) for heading in headings)


class Elements(HTMLParser):
    """Counts elements and keeps the text and what is loaded."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.names: list[str] = []
        self.loaded: list[str] = []
        self.said: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)
        self.loaded += [value for name, value in attrs if name in ("src", "href", "xlink:href") and value]

    def handle_data(self, data: str) -> None:
        self.said.append(data)


def test_the_page_loads_nothing_and_escapes(hostile: Regression) -> None:
    page = Elements(FORMATS["html"](hostile))
    assert page.loaded == []
    assert page.names.count("svg") == 2
    assert not {"b", "script", "img"} & set(page.names)
    assert any(HOSTILE in text for text in page.said)
    assert "prefers-color-scheme: dark" in "".join(page.said)


def test_latex_has_every_table_in_booktabs(hostile: Regression) -> None:
    text = FORMATS["latex"](hostile)
    assert text.count(r"\toprule") == text.count(r"\bottomrule") == text.count(r"\end{tabular}") == 4
    assert latex_escape(HOSTILE) in text
    assert HOSTILE not in text
    assert latex_escape("50% of a_b\\") == r"50\% of a\_b\textbackslash{}"


def test_latex_has_minus_signs_and_no_letter_that_it_cannot_set() -> None:
    assert latex_escape("slope -1.5 [-2, -1] of run-32") == "slope $-$1.5 [$-$2, $-$1] of run-32"
    assert latex_escape("a\u2215b Łódź, naïve, 模") == "aU+2215b Łódź, naïve, U+6A21"
    result = fit(made_up_runs())
    (row,) = (line for line in FORMATS["latex"](result).splitlines() if line.lstrip().startswith("Intercept"))
    interval = next(c for c in result.coefficients if c.name == "Intercept")
    assert interval.ci_low is not None and interval.ci_low < 0
    assert f"{{}}[$-${-interval.ci_low / 1e6:,.4f}, " in row


def test_latex_compiles(hostile: Regression, tmp_path: Path) -> None:
    (tmp_path / "table.tex").write_text(FORMATS["latex"](hostile), encoding="utf-8")
    packages = r"\usepackage[T1]{fontenc}\usepackage{booktabs}\usepackage{graphicx}"
    whole = rf"\documentclass{{article}}{packages}\begin{{document}}\input{{table}}\end{{document}}"
    (tmp_path / "whole.tex").write_text(whole, encoding="utf-8")
    command = [needs_tool("pdflatex"), "-halt-on-error", "-interaction=nonstopmode", "whole.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, errors="replace", timeout=300)
    assert done.returncode == 0, done.stdout[-2000:]


def test_json_holds_every_number(hostile: Regression) -> None:
    document = json.loads(FORMATS["json"](hostile))
    assert document["ddnn_traces_regression"] == 1
    assert [c["estimate"] for c in document["coefficients"]] == [c.estimate for c in hostile.coefficients]
    assert document["fit"]["r_squared"] == hostile.r_squared
    assert {term["term"]: term["p_value"] for term in document["terms"]} == {t.term: t.p_value for t in hostile.tests}
    assert [row["fitted"] for row in document["points"]] == list(hostile.fitted or ())
    assert document["synthetic_runs"] == document["runs"] == 24
    assert len(document["paper"]["table"]) == 6
    described = (Path(__file__).parents[2] / "docs" / "regression.md").read_text(encoding="utf-8")
    keys = set(document) | set(document["fit"]) | {key for c in document["coefficients"] for key in c}
    assert [key for key in sorted(keys) if f"`{key}`" not in described] == []


def test_json_has_no_number_that_is_none() -> None:
    """Where the fit is exact, or rests on one run, a number is null and not NaN."""
    exact = fit(made_up_runs(step_bytes=5.0 * pl.col("model_bytes")))
    document = json.loads(FORMATS["json"](exact), parse_constant=pytest.fail)
    assert {c["p_value"] for c in document["coefficients"]} == {None}
    assert document["influence"] == document["nested"] == []
    assert all(make(exact) for make in FORMATS.values())


def test_csv_has_a_row_a_coefficient(hostile: Regression) -> None:
    rows = list(csv.DictReader(io.StringIO(FORMATS["csv"](hostile))))
    assert [row["name"] for row in rows] == [c.name for c in hostile.coefficients]
    for row, coefficient in zip(rows, hostile.coefficients, strict=True):
        assert float(row["std_error_robust"]) == coefficient.std_error_robust
        assert (row["synthetic_runs"], row["formula"]) == ("24", hostile.formula)
