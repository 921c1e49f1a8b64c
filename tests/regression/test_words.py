"""Tables and sentences: those of the paper, and how to supply missing values."""

from __future__ import annotations

from dataclasses import replace

import polars as pl
import pytest
from regression_runs import as_paper, fit, missing_facts, noisy_runs
from scipy import stats

from ddnn_traces.regression import Regression, sentences
from ddnn_traces.regression.results import TermVerdict, p_text


def section(result: Regression, heading: str) -> list[str]:
    sections = (block for block in sentences.blocks(result) if isinstance(block, sentences.Section))
    return next((found.sentences for found in sections if found.heading == heading), [])


def tables(result: Regression, verbose: bool = True) -> list[sentences.Table]:
    return [block for block in sentences.blocks(result, verbose) if isinstance(block, sentences.Table)]


def on_backends(result: Regression) -> list[str]:
    """The paper's sentences on frameworks."""
    return [sentence for sentence in sentences.paper_sentences(result) if sentence.startswith("Framework_Backend")]


def test_the_paper_s_table_has_the_numbers_of_this_dataset_and_of_the_paper() -> None:
    result = as_paper(noisy_runs())
    rows = {row.name: row for row in sentences.paper_rows(result)}
    slope = next(c for c in result.coefficients if c.name == "model_bytes")
    numbers = f"{slope.estimate:.4g} [{slope.ci_low:.4g}, {slope.ci_high:.4g}] MB"
    assert missing_facts(rows["Model_Size"].here, "significant: ", numbers) == []
    levels = ("tf-grpc (positive)", "torch-gloo (positive)")
    assert missing_facts(rows["Framework_Backend"].here, "significant; ", *levels) == []
    assert rows["Batch_Size"].here.startswith("insignificant at alpha = 0.05")
    assert rows["R2"].here == f"{result.r_squared:.6g}"
    assert rows["correlation of size and data"].here == f"{result.correlation:.3g}"
    assert [rows[name].paper for name in ("R2", "correlation of size and data")] == ["0.98", "0.97"]
    assert "5.7 MB" in rows["Model_Size"].paper


def test_the_paper_s_sentences() -> None:
    result = as_paper(noisy_runs())
    fit_quality, insignificant, _, slope, correlation = sentences.paper_sentences(result)
    assert missing_facts(fit_quality, f"R2 of {result.r_squared:.6g} ", "0.98") == []
    assert missing_facts(insignificant, "C(batch_size) and C(topology)", "insignificant", "alpha = 0.05") == []
    (backends,) = on_backends(result)
    assert missing_facts(backends, "tf-grpc (positive)", "torch-gloo (positive)", "only for KungFu PairAvg") == []
    assert missing_facts(slope, "5.7 MB") == []
    assert float(slope.split(" corresponds to ")[1].split()[0]) == pytest.approx(6, abs=0.2)
    assert missing_facts(correlation, f"{result.correlation:.3g} ", "0.97") == []
    assert on_backends(as_paper(noisy_runs(framework_backend=pl.lit("tf-grpc")))) == []


def test_the_paper_s_equation_without_its_main_regressor_is_not_called_that() -> None:
    result = as_paper(noisy_runs(model_bytes=pl.lit(None, pl.Int64)))
    caveat = next(sentences.paper_sentences(result))
    assert missing_facts(caveat, "Model_Size", "no run has model_bytes", "not the paper's equation") == []
    assert tables(result)[0].title.endswith("without Model_Size")
    complete = as_paper(noisy_runs())
    assert "without Model_Size" not in tables(complete)[0].title
    assert not any("Model_Size" in sentence for sentence in sentences.paper_sentences(complete))
    assert on_backends(result) == []


def test_the_paper_s_sentence_names_no_configuration_that_cannot_be_separated() -> None:
    """Star and tf-grpc are one: neither has an effect of its own."""
    star = pl.when(pl.col("framework_backend") == "tf-grpc").then(pl.lit("star")).otherwise(pl.lit("ring"))
    result = as_paper(noisy_runs().with_columns(topology=star))
    (sentence,) = on_backends(result)
    assert "tf-grpc" not in sentence
    assert missing_facts(sentence, "some configurations cannot be separated") == []
    rows = {row.name: row.here for row in sentences.paper_rows(result)}
    assert missing_facts(rows["Comm_Topology"], "cannot be estimated: topology = ", "cannot be separated from") == []


def test_the_remedy_of_a_missing_value_is_stated() -> None:
    one = pl.col("run_id") == "run-03"
    lost, remedy = section(fit(noisy_runs(model_bytes=pl.when(~one).then("model_bytes"))), "Left out")
    assert lost == "run-03: model_bytes is missing"
    assert missing_facts(remedy, "model_bytes", "run.toml") == []
    volume = 6.0 * pl.col("model_bytes") + 1e6 * (one.cum_count() % 5)
    _, remedy = section(fit(noisy_runs(step_bytes=pl.when(~one).then(volume))), "Left out")
    assert missing_facts(remedy, "step_bytes needs", "train_history.log") == []
    assert "run.toml" not in remedy
    # no row is left out: the missing column is stated with the terms
    unknown = fit(noisy_runs(topology=pl.lit(None, pl.String)))
    assert section(unknown, "Left out") == []
    verdict, remedy = section(unknown, "Terms")[-2:]
    assert missing_facts(verdict, "no run has topology") == []
    assert missing_facts(remedy, "topology", "run.toml") == []
    empty_cell = noisy_runs().filter(~((pl.col("batch_size") == 64) & (pl.col("topology") == "star")))
    terms = section(fit(empty_cell, "step_bytes ~ C(batch_size) * C(topology)"), "Terms")
    assert terms and not any("run.toml" in sentence for sentence in terms)


@pytest.mark.parametrize(
    ("errors", "shown"),
    [("classic", ("classic", "CR2")), ("hc3", ("HC3", "classic")), ("cluster", ("CR2", "classic"))],
)
def test_the_table_has_the_error_that_made_the_interval(errors: str, shown: tuple[str, str]) -> None:
    result = fit(noisy_runs(), errors=errors)
    table = next(table for table in tables(result) if table.columns[0] == "coefficient")
    assert table.columns[2:4] == tuple(f"{kind} error" for kind in shown)
    slope = next(c for c in result.coefficients if c.name == "model_bytes")
    assert table.rows[1][2] == f"{slope.std_error:,.4f}"
    assert slope.ci_high is not None and slope.std_error is not None
    t = float(stats.t.ppf(0.975, slope.df))
    assert slope.ci_high - slope.estimate == pytest.approx(t * slope.std_error, rel=1e-9)


def test_drivers_in_plain_words() -> None:
    """Each term once, under what its verdict says; with the unit and n."""
    result = fit(noisy_runs())
    text = sentences.drivers(result)
    assert text.endswith(f"(ordinary least squares over {sentences.units(result)}).")
    slope = next(c for c in result.coefficients if c.name == "model_bytes")
    assert text.startswith(f"An increase of 1 MB in model size goes with {slope.estimate:.4g} MB [")
    p_values = {test.term: test.p_value for test in result.tests}
    for term, name in {"C(framework_backend)": "framework and backend", "C(batch_size)": "batch size"}.items():
        verdict = next(verdict for verdict in result.verdicts if verdict.term == term)
        start = {True: "has an effect: ", False: "no effect is seen of: "}[verdict.significant]
        assert name in text.partition(start)[2].partition(";")[0]
        largest = max(abs(c.estimate) for c in result.coefficients if c.term == term)
        most = f"{largest / 1e6:.0f}" if largest > 10e6 else f"{largest / 1e6:.2g}"  # 218, not 2.2e+02
        assert f"{name} (up to {most} MB, {p_text(p_values[term])})" in text


def test_what_cannot_be_told_is_not_called_without_effect() -> None:
    unknown = TermVerdict("C(topology)", True, None, "not established: ...", depends_on=("loss_pct",))
    result = replace(
        fit(noisy_runs()), verdicts=(unknown, TermVerdict("np.log(x_bytes)", False, None, "cannot be ..."))
    )
    assert sentences.drivers(result).partition(" (ordinary")[0] == (
        "Cannot be told: topology (it depends on whether loss_pct counts), x size (these runs give no estimate)"
    )
