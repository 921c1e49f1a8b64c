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
    assert noted(result, "also differ in delay_ms", "No conclusion changes")


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
    "no estimate": r"cannot be estimated|cannot be separated from|not separable",
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


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None, max_examples=min(40, settings().max_examples))
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


@pytest.mark.parametrize(
    "draws", [pytest.param(40, marks=pytest.mark.long), pytest.param(400, marks=pytest.mark.nightly)]
)
def test_of_null_data_no_framework_is_called_significant_and_insignificant(draws: int) -> None:
    """The draws of the report that found the contradiction: datasets in which nothing has an effect."""
    rng = np.random.default_rng(0)
    for _ in range(draws):
        rows = pl.DataFrame(
            {
                "run_id": [f"r{i}" for i in range(30)], "model_bytes": rng.choice((1e6, 4e6, 1e7), 30),
                "framework_backend": rng.choice(LEVELS, 30), "batch_size": rng.choice((32, 64), 30),
                "topology": rng.choice(("ring", "star"), 30), "step_bytes": 1e8 + 1e6 * rng.standard_normal(30),
            }
        )  # fmt: skip
        result = as_paper(rows)
        assert all(len(kinds) == 1 for kinds in claims(result).values()), claims(result)


# --- terms that cannot be told apart, and effects that differ


def test_two_sizes_that_cannot_be_separated_are_reported_as_one() -> None:
    """Nearly the same column twice, with a large effect: neither alone is insignificant."""
    rng = np.random.default_rng(8)
    twin = pl.col("model_bytes") * (1 + 0.0005 * pl.Series(rng.standard_normal(24)))
    rows = noisy_runs().with_columns(law_bytes=twin)
    result = fit(rows, "step_bytes ~ model_bytes + law_bytes", "classic")
    for term in ("model_bytes", "law_bytes"):
        found = next(v for v in result.verdicts if v.term == term)
        assert found.significant is None
        assert found.sentence.startswith(
            "model_bytes and law_bytes together: significant, but not separable (joint F(2, 21)"
        )
        assert "statistically insignificant" not in found.sentence
    exact = fit(
        rows.with_columns(law_bytes=2 * pl.col("model_bytes")), "step_bytes ~ model_bytes + law_bytes", "classic"
    )
    assert [v.significant for v in exact.verdicts] == [None, None]
    assert all("together: significant, but not separable (joint F(1, 22)" in v.sentence for v in exact.verdicts)


def test_terms_without_an_effect_are_insignificant_together_too() -> None:
    rng = np.random.default_rng(8)
    twins = {"a": pl.Series(rng.standard_normal(24))}
    rows = noisy_runs().with_columns(**twins).with_columns(b=pl.col("a") + 0.001 * pl.Series(rng.standard_normal(24)))
    result = fit(rows, PAPER_FORMULA + " + a + b", "classic")
    for term in ("a", "b"):
        found = next(v for v in result.verdicts if v.term == term)
        assert found.significant is False
        assert "a and b together: insignificant, too" in found.sentence


def test_a_term_with_an_effect_of_its_own_does_not_withhold_its_neighbour() -> None:
    """Topologies share a direction with the frameworks, of which one halves the volume: the topologies do nothing."""
    ring = pl.col("framework_backend") == "tf-grpc"
    topology = pl.when(ring).then(pl.lit("tree")).when(pl.int_range(24) % 2 == 0).then(pl.lit("star"))
    rows = noisy_runs(topology=topology.otherwise(pl.lit("ring")))
    half = pl.when(pl.col("framework_backend") == "kungfu-pair").then(0.5).otherwise(1.0)
    result = fit(rows.with_columns(step_bytes=pl.col("step_bytes") * half), PAPER_FORMULA, "classic")
    verdicts = {found.term: found for found in result.verdicts}
    assert verdicts[FRAMEWORK].significant is True
    assert verdicts["C(topology)"].significant is False
    assert "of its 2 degrees of freedom 1 is its own and tested" in verdicts["C(topology)"].sentence
    assert "cannot be separated from" in verdicts["C(topology)"].sentence


def test_opposite_effects_are_not_called_insignificant() -> None:
    """A framework halves the volume at one batch size and adds 40% at the other: on average it has no effect."""
    effect = (
        pl.when(pl.col("framework_backend") != "torch-gloo").then(1.0)
        .when(pl.col("batch_size") == 32).then(0.6).otherwise(1.4)
    )  # fmt: skip
    rows = noisy_runs().with_columns(step_bytes=6.0 * pl.col("model_bytes") * effect + 1e5 * (pl.int_range(24) % 5))
    rows = rows.drop("topology")
    formula = "np.log(step_bytes) ~ np.log(model_bytes) + C(framework_backend) + C(batch_size)"
    result = fit(rows, formula)
    interaction = "C(framework_backend):C(batch_size)"
    assert depends(result)[FRAMEWORK] == (interaction,)
    assert verdict(result, FRAMEWORK) == (True, None)
    without = fit(noisy_runs(), formula)
    assert not any(":" in refit.attribute for refit in without.refits)


# --- no contradiction in a text


def contradictions(result: Regression) -> list[str]:
    """Terms of which the text says both that they are significant and that they are not."""
    text = FORMATS["text"](result, True)
    found = []
    for verdict_ in result.verdicts:
        (said,) = (line for line in text.splitlines() if line.startswith(f"{verdict_.term}: "))
        is_found = bool(re.search(r": significant(:| at alpha| \()", said)) or "together: significant," in said
        if is_found and "statistically insignificant" in said:
            found.append(said)
        own = [c for c in result.coefficients if c.term == verdict_.term]
        if "statistically insignificant" in said and len(own) == 1 and own[0].told_apart and own[0].is_significant:
            test = next(test for test in result.tests if test.term == verdict_.term)
            if test.df == 1 and not test.untested:
                found.append(f"{said} beside p = {own[0].p_value}")
        if verdict_.significant is False and verdict_.depends_on:
            found.append(said)
    return found


def random_design(seed: int) -> pl.DataFrame:
    """Few to many runs with random levels, repeats, collinear sizes, effects and scatter."""
    rng = np.random.default_rng([36, seed])
    count = int(rng.integers(5, 40))
    size = rng.choice(SIZES_OF_RUNS, count)
    framework = rng.choice(["a", "b", "c"][: int(rng.integers(1, 4))], count)
    topology = np.where(rng.random(count) < rng.choice([0.0, 0.5, 1.0]), framework, rng.choice(["ring", "star"], count))
    batch = rng.choice([32, 64], count)
    volume = (
        size
        * 6
        * np.exp(
            rng.choice([0, 0.1, 1]) * (framework == "a") * np.where(rng.random() < 0.5, 1, batch / 32 - 1.5)
            + rng.choice([1e-4, 0.01, 0.3]) * rng.standard_normal(count)
        )
    )
    return pl.DataFrame(
        {
            "run_id": [f"r{i}" for i in range(count)], "model_bytes": size, "step_bytes": volume,
            "framework_backend": framework, "batch_size": batch, "topology": topology,
            "delay_ms": rng.choice([0.0, 10.0], count),
            "nominal_bytes": size * (1 + rng.choice([0.0, 1e-3, 0.5]) * rng.random(count)),
        }
    )  # fmt: skip


SIZES_OF_RUNS = (1e6, 4e6, 12e6, 40e6)
DESIGNS = (
    PAPER_FORMULA,
    "np.log(step_bytes) ~ np.log(model_bytes) + np.log(nominal_bytes) + C(framework_backend) + C(topology)",
)


@pytest.mark.parametrize(
    "seeds",
    [
        range(8),
        pytest.param(range(8, 108), marks=pytest.mark.long),
        pytest.param(range(108, 1008), marks=pytest.mark.nightly),
    ],
    ids=["few", "100", "900"],
)
def test_no_text_of_a_random_design_contradicts_itself(seeds: range) -> None:
    found = {seed: contradictions(fit(random_design(seed), DESIGNS[seed % 2])) for seed in seeds}
    assert {seed: said for seed, said in found.items() if said} == {}
