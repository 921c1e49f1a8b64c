"""Conclusions that depend on an attribute that the formula lacks, and that no two statements of one output differ."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from regression_runs import as_paper, fit, noisy_runs, noted, verdict

from ddnn_traces.regression import PAPER_FORMULA, Regression, sentences
from ddnn_traces.regression.documents import FORMATS
from ddnn_traces.report.page import regression_page

FRAMEWORK = "C(framework_backend)"


def confounded(effect: float = 8e7, **columns: Any) -> pl.DataFrame:
    """Runs whose volume depends on the workers, and torch-gloo mostly has more of them. No framework has an effect."""
    rng = np.random.default_rng(6)
    rows = noisy_runs()
    more = (pl.col("framework_backend") == "torch-gloo") & (pl.int_range(24) % 4 > 0)
    rows = rows.with_columns(workers=pl.when(more).then(8).otherwise(4))
    volume = 6.0 * pl.col("model_bytes") + effect * (pl.col("workers") - 4) + pl.Series(rng.normal(0, 1e7, 24))
    return rows.with_columns(step_bytes=volume).with_columns(**columns)


def depends(result: Regression) -> dict[str, tuple[str, ...]]:
    of_terms = {found.term: found.depends_on for found in result.verdicts if found.depends_on}
    return of_terms | {found.name: found.depends_on for found in result.coefficients if found.depends_on}


def test_an_effect_of_a_missing_attribute_is_not_established() -> None:
    rows = confounded()
    first = fit(rows.drop("workers"), PAPER_FORMULA)
    assert verdict(first, FRAMEWORK) == (True, True), "the wrong conclusion, where no column of workers can limit it"
    result = fit(rows, PAPER_FORMULA)
    assert verdict(result, FRAMEWORK) == (True, None)
    assert depends(result)[FRAMEWORK] == ("workers",)
    assert noted(result, "workers (4, 8) is not in the formula", FRAMEWORK)
    whole = fit(rows, PAPER_FORMULA + " + workers")
    assert verdict(whole, FRAMEWORK) == (True, False)
    assert depends(whole) == {}


def test_every_document_says_not_established_and_not_significant() -> None:
    result = as_paper(confounded())
    sentence = "not established: depends on whether workers is in the formula"
    assert sentences.paper_rows(result)[1].here.startswith(sentence)
    (paper,) = (found for found in sentences.paper_sentences(result) if FRAMEWORK in found)
    assert paper.startswith(f"{FRAMEWORK} cannot be compared with the paper: {sentence}")
    for name in ("text", "json", "latex"):
        assert sentence in FORMATS[name](result, False).replace(r"\_", "_"), name
    assert sentence in regression_page(result)
    (row,) = (line for line in FORMATS["csv"](result, True).splitlines() if "T.torch-gloo]" in line)
    assert ",workers," in row
    tests = next(t for t in sentences.blocks(result, True) if isinstance(t, sentences.Table) and "F-test" in t.title)
    assert {row[0]: row[-2] for row in tests.rows}[FRAMEWORK] == "not established"


def test_an_attribute_without_an_effect_changes_nothing() -> None:
    result = fit(noisy_runs(delay_ms=pl.int_range(24) % 5, workers=pl.lit(4)), PAPER_FORMULA)
    assert [(refit.attribute, refit.changes, refit.reason) for refit in result.refits] == [("delay_ms", (), None)]
    assert depends(result) == {}
    assert noted(result, "also differ in delay_ms", "no conclusion changes")


def test_small_effects_of_several_attributes_that_add_up() -> None:
    """Each of two conditions raises the volume of a third of torch-gloo's runs: no one of them explains its effect."""
    rng = np.random.default_rng(3)
    place = np.arange(96)
    is_torch, third = place % 2 == 1, place // 2 % 3
    loss, delay = (is_torch & (third == 0)) * 1.0, (is_torch & (third == 1)) * 5.0
    sizes = np.array([1e6, 4e6, 12e6, 20e6])[place // 6 % 4]
    rows = pl.DataFrame(
        {
            "run_id": [f"run-{n}" for n in place],
            "variant": [f"{n}" for n in place],
            "step_bytes": 6 * sizes + 2e5 * (loss > 0) + 2e5 * (delay > 0) + rng.normal(0, 1e5, 96),
            "model_bytes": sizes,
            "framework_backend": np.where(is_torch, "torch-gloo", "tf-grpc"),
            "loss_pct": loss,
            "delay_ms": delay,
        }
    )
    result = fit(rows, "step_bytes ~ model_bytes + C(framework_backend)")
    assert [(found.attribute, bool(found.changes)) for found in result.refits] == [
        ("delay_ms", False), ("loss_pct", False), ("delay_ms + loss_pct", True),
    ]  # fmt: skip
    assert depends(result)[FRAMEWORK] == ("delay_ms + loss_pct",)


def test_a_level_that_always_goes_with_an_attribute_cannot_be_separated() -> None:
    rows = noisy_runs().with_columns(
        optimizer=pl.when(pl.col("framework_backend") == "kungfu-pair").then(pl.lit("pair")).otherwise(pl.lit("sgd"))
    )
    result = fit(rows, PAPER_FORMULA)
    assert depends(result)[f"{FRAMEWORK}[T.tf-grpc]"] == ("optimizer",)
    changes = {change.name: change.with_it for refit in result.refits for change in refit.changes}
    levels = [f"{FRAMEWORK}[T.tf-grpc]", f"{FRAMEWORK}[T.torch-gloo]"]
    assert [changes[level] for level in levels] == ["cannot be separated"] * 2


def test_an_attribute_that_is_known_of_few_runs_is_named_as_not_examined() -> None:
    some = pl.when(pl.int_range(24) < 2).then(pl.int_range(24))
    result = fit(noisy_runs(delay_ms=some), PAPER_FORMULA)
    (refit,) = result.refits
    assert refit.reason == "known of only 2 runs"
    assert noted(result, "delay_ms (0, 1)", "was not examined", "known of only 2 runs")


@pytest.mark.parametrize(("runs", "reason"), [(7, "too few runs for one more term"), (8, None)])
def test_an_attribute_for_which_there_are_too_few_runs_is_named_as_not_examined(runs: int, reason: str | None) -> None:
    (refit,) = fit(noisy_runs(delay_ms=pl.int_range(24) % 5).head(runs), PAPER_FORMULA).refits
    assert refit.reason == reason


def test_both_fits_are_to_the_rows_that_have_the_attribute() -> None:
    """Where the frameworks differ in the other rows only, nothing changes by the attribute itself."""
    rows = noisy_runs().with_columns(delay_ms=pl.when(pl.int_range(24) < 18).then(pl.int_range(24) % 3))
    result = fit(rows, PAPER_FORMULA)
    known = rows.drop_nulls("delay_ms")
    assert result.refits[0].changes == fit(known, PAPER_FORMULA).refits[0].changes


# --- no two statements of one output differ

LEVELS = ("a", "b", "c", "d", "e")


@st.composite
def designs(draw: st.DrawFn) -> pl.DataFrame:
    """Null, collinear, saturated and unbalanced runs, with and without noise, and with a missing attribute."""
    count = draw(st.integers(4, 24))
    rng = np.random.default_rng(draw(st.integers(0, 10_000)))
    sizes = draw(st.sampled_from([(1e6,), (1e6, 4e6), (1e6, 4e6, 1e7, 1e8)]))
    frame = pl.DataFrame(
        {
            "run_id": [f"r{i}" for i in range(count)],
            "model_bytes": rng.choice(sizes, count),
            "framework_backend": rng.choice(LEVELS[: draw(st.integers(1, 5))], count),
            "batch_size": rng.choice((32, 64), count),
            "topology": rng.choice(LEVELS[: draw(st.integers(1, 3))], count),
            "workers": rng.choice((2, 4), count),
        }
    )
    if draw(st.booleans()):  # collinear: the framework decides the topology, or the size
        copied = draw(st.sampled_from(["topology", "nominal_bytes", "workers"]))
        places = frame["framework_backend"].cast(pl.Enum(LEVELS)).to_physical()
        frame = frame.with_columns(
            frame["framework_backend"].alias(copied) if copied == "topology" else (places * 1e6 + 1e6).alias(copied)
        )
    effects = draw(st.sampled_from([0.0, 1e6, 1e7]))
    noise = draw(st.sampled_from([0.0, 1e5, 1e7])) * rng.standard_normal(count)
    levels = frame["framework_backend"].cast(pl.Enum(LEVELS)).to_physical().to_numpy()
    volume = 6 * frame["model_bytes"].to_numpy() * draw(st.sampled_from([0, 1])) + effects * levels + noise + 1e8
    frame = frame.with_columns(step_bytes=pl.Series(volume))
    return frame.with_columns(worker_bytes=pl.col("step_bytes") / pl.col("workers"))


#: A kind of conclusion, and the words that state it.
CLAIMS = {
    "no estimate": r"cannot be estimated|cannot be separated from",
    "open": r"not established",
    "not tested": r"not tested",
    "insignificant": r"\binsignificant\b",
    "significant": r"(?<!in)\bsignificant\b",
}
NAMES = {"Model_Size": "model_bytes", "Framework_Backend": FRAMEWORK, "Batch_Size": "C(batch_size)",
         "Comm_Topology": "C(topology)"}  # fmt: skip


def claim(sentence: str) -> str | None:
    """What a sentence states of its term: the first of CLAIMS, in their order of precedence, at its start."""
    start = re.split(r"; |, though", sentence)[0]
    return next((kind for kind, pattern in CLAIMS.items() if re.search(pattern, start)), None)


def claims(result: Regression) -> dict[str, set[str]]:
    """All that an output states of each term: verdicts, the paper's table and sentences, the table of tests."""
    found: dict[str, set[str]] = {}

    def state(term: str, kind: str | None) -> None:
        if kind is not None:
            found.setdefault(term, set()).add(kind)

    for stated in result.verdicts:
        state(stated.term, claim(stated.sentence))
        state(stated.term, {True: "significant", False: "insignificant"}.get(stated.significant))  # type: ignore[arg-type]
    for row in sentences.paper_rows(result):
        if row.name in NAMES and row.here != "not in the formula":
            state(NAMES[row.name], claim(row.here))
    for sentence in sentences.paper_sentences(result):
        here = sentence.split(" (the paper: ")[0]
        if here.startswith("An increase of 1 MB"):
            state("model_bytes", "significant")
        elif "Framework_Backend is " in here:
            state(FRAMEWORK, claim(here))
        elif "are statistically" in here or "is statistically" in here:
            for term in re.findall(r"C\(\w+\)|model_bytes", here):
                state(term, "insignificant")
        elif "cannot be compared" in here:
            state(here.split(" cannot be")[0], claim(here.split(": ", 1)[1]))
    for block in sentences.blocks(result, verbose=True):
        if isinstance(block, sentences.Table) and "F-test" in block.title:
            for term, *_, answer, _gvif in block.rows:
                kind = {"yes": "significant", "no": "insignificant", "not established": "open"}.get(answer)
                state(term, "no estimate" if answer == "not separable" else kind)
    return found


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None, max_examples=40)
@given(designs())
def test_no_two_statements_of_one_output_differ(rows: pl.DataFrame) -> None:
    result = as_paper(rows)
    for term, kinds in claims(result).items():
        assert len(kinds) == 1, (term, kinds, [*sentences.paper_sentences(result)], result.verdicts)
    tested = {found.term for found in result.verdicts if found.significant is not None}
    by_level = [c for c in result.coefficients if c.depends_on and c.name in tested]
    assert by_level == []


def test_a_size_that_cannot_be_estimated_has_no_slope_in_a_sentence() -> None:
    """Two sizes that are a line of each other, where the first one's column takes the effect of both."""
    rows = noisy_runs(nominal_bytes=pl.col("model_bytes") * 2 + 1e6)
    fitted = fit(rows, PAPER_FORMULA + " + nominal_bytes")
    result = Regression(**vars(fitted) | {"preset": "paper"})
    assert verdict(result, "model_bytes") == (False, None)
    assert not any("An increase of 1 MB" in sentence for sentence in sentences.paper_sentences(result))


@pytest.mark.long
def test_of_null_data_no_framework_is_called_significant_and_insignificant() -> None:
    """The draws of the report that found the contradiction: 400 datasets in which nothing has an effect."""
    rng = np.random.default_rng(0)
    for _ in range(400):
        rows = pl.DataFrame(
            {
                "run_id": [f"r{i}" for i in range(30)], "model_bytes": rng.choice((1e6, 4e6, 1e7), 30),
                "framework_backend": rng.choice(LEVELS, 30), "batch_size": rng.choice((32, 64), 30),
                "topology": rng.choice(("ring", "star"), 30), "step_bytes": 1e8 + 1e6 * rng.standard_normal(30),
            }
        )  # fmt: skip
        result = as_paper(rows)
        assert all(len(kinds) == 1 for kinds in claims(result).values()), claims(result)
