"""The default formula: the volume of a step over the model sizes that the law of the declared collective sends."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow.parquet as pq
import pytest
from datasets import write_dataset
from regression_runs import noted, verdict

import ddnn_traces
from ddnn_traces.regression import fit, fitting, sentences
from ddnn_traces.regression.fitting import BY_LAW, default_formula
from ddnn_traces.store import parquet
from ddnn_traces.traffic.synthetic import SyntheticRun, write_runs

SIZES = (1e6, 4e6, 14e6, 97e6)


def lawful_runs(seed: int = 1, scatter: float = 0.002, **columns: Any) -> pl.DataFrame:
    """Rings, trees and cliques of 2 to 8 workers, by their law and 4.7% of headers, with relative scatter."""
    rng = np.random.default_rng(seed)
    rows = [
        {
            "run_id": f"r{number:02}", "model_bytes": size, "workers": workers, "topology": topology,
            "framework_backend": ("tf-grpc", "torch-gloo", "mpi")[(number // 3 + number) % 3],
            "batch_size": (32, 64)[number % 2],
            "law_factor": float(workers * (workers - 1) if topology == "clique" else 2 * (workers - 1)),
        }
        for number, (size, workers, topology) in enumerate(product(SIZES, (2, 4, 8), ("ring", "tree", "clique")))
    ]  # fmt: skip
    made = pl.DataFrame(rows)
    noise = pl.Series(np.exp(scatter * rng.standard_normal(made.height)))
    volume = 1.047 * pl.col("model_bytes") * pl.col("law_factor") * noise
    return made.with_columns(step_bytes=volume).with_columns(**columns).pipe(implied)


def implied(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.with_columns(implied_bytes=pl.col("step_bytes") / pl.col("law_factor"))


def test_by_its_law_no_topology_and_no_number_of_workers_has_an_effect() -> None:
    result = fit(lawful_runs())
    assert result.formula == BY_LAW
    slope = next(c for c in result.coefficients if c.name == "np.log(model_bytes)")
    assert slope.ci_low is not None and slope.ci_high is not None and slope.ci_low < 1 < slope.ci_high
    assert abs(slope.estimate - 1) < 0.001
    assert verdict(result, "C(topology)") == (True, False)
    assert result.refits == (), "the workers are in the law"
    text = next(v.sentence for v in result.verdicts if v.term == "np.log(model_bytes)")
    assert f"to the power of {slope.estimate:.4g} [{slope.ci_low:.4g}, {slope.ci_high:.4g}]" in text
    drivers = sentences.drivers(result)
    assert "topology and the number of workers act by the collective's law; no effect beyond it is seen of: " in drivers
    largest = max(abs(np.expm1(c.estimate)) for c in result.coefficients if c.term == "C(topology)")
    assert f"topology (up to {100 * largest:.2g}%, p = " in drivers, "a clique sends more than a ring, by the law"


def test_an_effect_of_more_than_all_is_written_without_an_exponent() -> None:
    more = pl.when(pl.col("topology") == "tree").then(4.0).otherwise(1.0)
    result = fit(implied(lawful_runs().with_columns(step_bytes=pl.col("step_bytes") * more)))
    drivers = sentences.drivers(result)
    assert re.search(r"topology \(up to (29\d|30\d)%", drivers)  # 3e+02% before


def test_what_a_factor_sends_beyond_the_law_is_found() -> None:
    more = pl.when(pl.col("topology") == "tree").then(1.05).otherwise(1.0)
    result = fit(implied(lawful_runs().with_columns(step_bytes=pl.col("step_bytes") * more)))
    tree = next(c for c in result.coefficients if c.name == "C(topology)[T.tree]")
    assert np.exp(tree.estimate) == pytest.approx(1.05, abs=0.003)
    assert verdict(result, "C(topology)") == (True, True)
    assert verdict(result, "C(framework_backend)") == (True, False)


def test_a_run_without_a_law_is_left_out_with_the_reason(tmp_path: Path) -> None:
    lawless = pl.when(pl.col("run_id") == "r03").then(pl.lit("moe")).otherwise("topology")
    factor = pl.when(pl.col("run_id") != "r03").then(pl.col("law_factor"))
    result = fit(implied(lawful_runs().with_columns(topology=lawless, law_factor=factor)))
    assert [(run.run_id, run.reason) for run in result.excluded] == [
        ("r03", "no law of the volume of moe among 4 workers")
    ]
    assert result.rows == 35
    with write_dataset(
        tmp_path / "dataset", {"runs": pl.DataFrame({"run_id": ["r03"], "topology": ["moe"]})}
    ) as dataset:
        (note,) = fitting._word_notes(dataset, result)
        (remark,) = dataset.remarks("bus_bandwidth", {})
        assert dataset.remarks("ring_comparison", {}) == [remark] and dataset.remarks("ledger_sums", {}) == []
    assert re.match(r"Laws are known of .*, ring, .*; of other collectives, .* queries collectives and", note)
    assert remark.startswith("run r03: the declared topology is no word with a law; laws are known of binary_tree_star")


def test_a_run_whose_steps_may_be_of_one_worker_or_of_all_is_left_out_with_the_reason() -> None:
    is_out = pl.col("run_id") == "r03"
    why = "unknown steps: no log of 2 of the 2 workers"
    unknown = lawful_runs().with_columns(
        law_factor=pl.when(~is_out).then("law_factor"), disturbance=pl.when(is_out).then(pl.lit(why)),
        workers=pl.when(~is_out).then("workers"),
    )  # fmt: skip
    result = fit(implied(unknown))
    assert [(run.run_id, run.reason) for run in result.excluded] == [("r03", why)]
    assert result.rows == 35


def test_without_any_law_the_volume_of_the_whole_step_is_fitted() -> None:
    result = fit(lawful_runs().with_columns(law_factor=pl.lit(None, pl.Float64)).pipe(implied))
    assert result.formula == BY_LAW.replace("implied_bytes", "step_bytes")
    assert noted(result, "No run has a declared collective with a law")


def test_a_law_without_the_volume_of_a_step_is_no_missing_declaration() -> None:
    rows = lawful_runs().with_columns(implied_bytes=pl.lit(None, pl.Float64))
    _, notes = default_formula(rows, BY_LAW)
    assert notes[0].startswith("No run whose collective has a law has the volume of a step (is its log read?)")


def test_the_fitted_volume_of_a_step_is_in_bytes() -> None:
    rows = lawful_runs()
    points = fit(rows).points
    expected = np.exp(points["fitted"].to_numpy()) * rows["law_factor"].to_numpy()
    assert points["fitted_bytes"].to_numpy() == pytest.approx(expected, rel=1e-12)


def test_a_step_without_volume_has_no_logarithm_and_is_named() -> None:
    nothing = pl.when(pl.col("run_id") == "r03").then(0.0).otherwise("step_bytes")
    result = fit(implied(lawful_runs().with_columns(step_bytes=nothing)))
    assert [(run.run_id, run.reason) for run in result.excluded] == [
        ("r03", "np.log(implied_bytes) is not a finite number")
    ]


# --- scatter that differs


def test_scatter_that_differs_by_topology_is_tested_and_named() -> None:
    """The scatter of one topology is 20 times that of the others, around the same mean."""
    rng = np.random.default_rng(4)
    wild = (
        pl.when(pl.col("topology") == "clique").then(pl.Series(np.exp(0.04 * rng.standard_normal(36)))).otherwise(1.0)
    )
    result = fit(implied(lawful_runs().with_columns(step_bytes=pl.col("step_bytes") * wild)))
    (found,) = (scatter for scatter in result.group_scatter if scatter.term == "C(topology)")
    assert found.p_value < 0.01
    assert found.most == "clique"
    assert 0.02 < found.most_size < 0.08
    assert result.errors == "cluster"
    assert "it differs, which CR2 errors follow" in result.summary()
    assert "no sign that it differs" in fit(lawful_runs()).summary()


# --- runs with a disturbed volume


DISTURBED = {"r00": "fault: process killed on purpose", "r07": "unfinished: 2 of 20 steps",
             "r08": "unfinished: 19 of 20 steps", "r20": "heavy loss: 10% of the packets",
             "r30": "incomplete captures: 3 of 4 hosts are not covered"}  # fmt: skip


def disturbed_runs() -> pl.DataFrame:
    rows = lawful_runs(loss_pct=pl.when(pl.col("run_id") == "r20").then(10.0).otherwise(0.0), fault=pl.lit("none"))
    return rows.with_columns(disturbance=pl.col("run_id").replace_strict(DISTURBED, default=None))


def test_incomplete_runs_faults_unfinished_runs_and_heavy_loss_are_left_out_and_counted() -> None:
    result = fit(disturbed_runs())
    assert result.runs == 31
    assert {run.run_id: run.reason for run in result.excluded} == DISTURBED
    said = ("1 of incomplete captures", "1 of fault", "2 of unfinished", "1 of heavy loss")
    assert noted(result, "5 runs with a disturbed volume", *said)


@pytest.mark.parametrize(
    ("options", "runs"),
    [
        ({"include": ["loss"]}, 32),
        ({"include": ["incomplete"]}, 32),
        ({"include": ["incomplete", "fault", "unfinished", "loss"]}, 36),
        ({"formula": "np.log(step_bytes) ~ np.log(model_bytes) + loss_pct"}, 32),
        ({"formula": "np.log(step_bytes) ~ np.log(model_bytes)"}, 31),
    ],
)
def test_they_are_kept_on_request_and_where_the_formula_has_their_attribute(options: dict[str, Any], runs: int) -> None:
    assert fit(disturbed_runs(), **options).runs == runs


@pytest.mark.long
def test_a_run_that_breaks_its_law_is_named(tmp_path: Path) -> None:
    """Its declared model_bytes are half of what it exchanges: the exponent was 0 without a word."""
    runs = [SyntheticRun(f"r{n}", "ring", workers=3 + n % 2, steps=4, model_bytes=400_000 * n) for n in range(1, 5)]
    write_runs(tmp_path / "d", runs)
    file = parquet.partition(tmp_path / "d", "runs", "r4") / "part-0.parquet"
    declared = pq.read_table(file)
    place = declared.schema.names.index("model_bytes")
    pq.write_table(declared.set_column(place, declared.schema[place], [[800_000]]), file)
    with ddnn_traces.open(tmp_path / "d") as dataset:
        [said] = [note for note in ddnn_traces.regress(dataset).notes if "law of the collective" in note]
    assert said.startswith(
        "1 of 4 runs sends more or less than the law of the collective makes of model_bytes: r4 (+100%). "
    )
    assert said.endswith("see its run.toml, and 'ddnn-traces query DATASET conservation'.")
