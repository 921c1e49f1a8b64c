"""The paper's scenarios as synthetic runs: what is in them, and that its findings come out of them end to end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tools import Once

import ddnn_traces
from ddnn_traces.errors import UsageError
from ddnn_traces.query import checks
from ddnn_traces.query.dataset import Dataset
from ddnn_traces.regression import PAPER_FORMULA, Regression
from ddnn_traces.report import page
from ddnn_traces.report.section import Results
from ddnn_traces.traffic import synthetic
from ddnn_traces.traffic.synthetic import SCENARIOS, runs_of, write_runs

SIZE = PAPER_FORMULA.split("~")[1].split("+")[0].strip()


@pytest.fixture(scope="module")
def dataset(once: Once) -> Iterator[Dataset]:
    with ddnn_traces.open(once("scenarios", synthetic.generate)) as opened:
        assert len(opened.run_ids) == 75
        yield opened


@pytest.fixture(scope="module")
def fit(dataset: Dataset) -> Regression:
    """Of all 75 runs, as the paper's."""
    return ddnn_traces.regress(dataset, preset="paper", errors="classic", include=["loss"])


def significant(fit: Regression) -> dict[str, bool | None]:
    return {verdict.term: verdict.significant for verdict in fit.verdicts}


# --- the matrix


def test_the_matrix_is_the_papers() -> None:
    runs = SCENARIOS["zerwas-75"]
    assert len(runs) == len({run.run_id for run in runs}) == 75
    assert {(run.model.name, run.model.size_mb) for run in runs} == {
        ("mobilenetv2", 14), ("densenet201", 80), ("resnet50", 97), ("resnet101", 171),
    }  # fmt: skip
    assert {run.optimizer for run in runs} == {"adam", "rmsprop"}
    assert Counter(run.batch_size for run in runs) == {64: 67, 128: 4, 512: 4}
    assert {run.setting.topology for run in runs if run.setting.backend == "ssgd"} == {
        "binary_tree_star", "tree", "star", "clique",
    }  # fmt: skip
    lossy = [run for run in runs if run.loss_pct]
    assert {(run.setting.framework, run.model.name) for run in lossy} == {("tensorflow", "mobilenetv2")}


@pytest.mark.long
def test_every_run_is_marked_as_synthetic(dataset: Dataset) -> None:
    runs = dataset.query("run_overview")
    assert runs["source"].unique().to_list() == ["synthetic"]
    assert all(run_id.startswith("synthetic-") for run_id in runs["run_id"])
    assert [name for name, rows in checks.run_with_stored_inputs(dataset).items() if rows.num_rows] == []


def test_a_parameter_server_is_one_of_six_nodes(tmp_path: Path) -> None:
    (run,) = [r for r in runs_of("zerwas-79", steps=4) if r.chief and r.model == "mobilenetv2"]
    write_runs(tmp_path / "dataset", [run])
    with ddnn_traces.open(tmp_path / "dataset") as opened:
        roles = Counter(opened.sql("SELECT role FROM hosts")["role"])
        declared = opened.sql("SELECT topology FROM runs").item()
    assert roles == {"worker": 4, "parameter_server": 1, "chief": 1}
    assert declared == "parameter_server"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"scenarios": "zerwas"}, "no scenarios named zerwas; there are zerwas-75, zerwas-79"),
        ({"steps": 0}, "0 steps"),
        ({"noise": -0.1}, "noise -0.1"),
        ({"noise": float("nan")}, "noise nan"),
    ],
)
def test_impossible_arguments_are_refused(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        runs_of(**arguments)  # type: ignore[arg-type]


def test_the_seed_decides_the_noise_and_nothing_else() -> None:
    one, same, other = (runs_of(seed=seed) for seed in (1, 1, 2))
    assert one == same
    assert [run.noise for run in one] != [run.noise for run in other]
    assert all(0 <= run.noise <= 0.02 for run in one)
    assert [(run.run_id, run.model_bytes, run.topology) for run in one] == [
        (run.run_id, run.model_bytes, run.topology) for run in other
    ]


# --- the laws, as sent


def test_payload_of_a_step_is_that_of_the_law(tmp_path: Path) -> None:
    """Of 4 workers: 6 times the model by S-SGD of any topology, 4 times by pair averaging, 8 times by a server."""
    runs = [run for run in runs_of("zerwas-79", steps=6, noise=0.0) if run.model == "mobilenetv2" and not run.loss_pct]
    write_runs(tmp_path / "dataset", runs)
    with ddnn_traces.open(tmp_path / "dataset") as opened:
        moved = opened.sql(
            "SELECT run_id, sum(payload_bytes) / 6 / any_value(model_bytes) AS times FROM flows JOIN runs USING "
            "(run_id) WHERE dst_port = 41000 OR src_port = 41000 GROUP BY run_id"
        )
    times = dict(moved.iter_rows())
    expected = {
        run.run_id: 4 if run.backend == "pairavg" else 8 if run.declared_topology == "parameter_server" else 6
        for run in runs
    }
    assert times == pytest.approx(expected, rel=1e-4)


def test_flows_are_those_of_figure_5(tmp_path: Path) -> None:
    """Section V-B; large flows: four in a ring, six in binary tree stars and trees, eight in pair averaging."""
    runs = [run for run in runs_of("zerwas-75", noise=0.004) if run.model == "resnet50" and run.batch_size == 64]
    write_runs(tmp_path / "dataset", [run for run in runs if run.optimizer == "adam"])
    with ddnn_traces.open(tmp_path / "dataset") as opened:
        named = opened.sql("SELECT run_id, framework, backend, topology FROM runs")
        counts = opened.query("flow_counts").join(named, on="run_id")
    by_setting = {
        (framework, backend if framework == "kungfu" else "", topology): (flows, large)
        for framework, backend, topology, flows, large in counts.select(
            "framework", "backend", "topology", "flows", "large_data_flows"
        ).iter_rows()
    }
    trees = ("binary_tree_star", "tree", "star")
    assert by_setting["tensorflow", "", "ring"] == (24, 4)
    assert by_setting["horovod", "", "ring"] == (24, 4)
    assert {by_setting["kungfu", "ssgd", tree] for tree in trees} == {(12, 6)}
    assert by_setting["kungfu", "ssgd", "clique"] == (46, 12)
    assert {by_setting["kungfu", "pairavg", tree] for tree in trees} == {(36, 8)}
    assert by_setting["kungfu", "pairavg", "clique"] == (64, 8)


# --- the findings of section VI, through the same tables, query and fit as captured runs


@pytest.mark.long
def test_the_model_explains_the_volume(fit: Regression) -> None:
    """R2 0.98 and a correlation of 0.97 in the paper, 5.7 MB a MB; 2(N-1) = 6 for 4 workers."""
    assert fit.rows == 75 and not fit.excluded
    assert fit.r_squared == pytest.approx(0.98, abs=0.005)
    assert fit.correlation == pytest.approx(0.97, abs=0.015)
    (slope,) = [c for c in fit.coefficients if c.term == SIZE]
    assert slope.ci_low is not None and slope.ci_high is not None
    assert slope.ci_low < 6 < slope.ci_high
    assert slope.estimate == pytest.approx(6, abs=0.3)


@pytest.mark.long
def test_batch_and_topology_are_insignificant(fit: Regression) -> None:
    verdicts = significant(fit)
    assert verdicts[SIZE] is True
    assert verdicts["C(batch_size)"] is False
    assert verdicts["C(topology)"] is False


@pytest.mark.long
def test_of_the_frameworks_only_pair_averaging_is_significant_and_it_sends_less(fit: Regression) -> None:
    levels = {c.name: c for c in fit.coefficients if c.term == "C(framework_backend)"}
    pair_averaging = levels.pop("C(framework_backend)[T.kungfu-pairavg]")
    assert pair_averaging.p_value is not None and pair_averaging.p_value < 0.001
    assert pair_averaging.estimate < 0
    assert len(levels) == 6
    assert all(c.p_value is not None and c.p_value > 0.05 for c in levels.values())


@pytest.mark.long
def test_pair_averaging_sends_about_30_percent_less(dataset: Dataset) -> None:
    """Section V-A: for all of the models."""
    volume = dataset.query("volume_by_model")
    for _, models in volume.group_by("model"):
        means = dict(models.select("framework_setting", "mean_wire_bytes").iter_rows())
        pulled = means.pop("kungfu-pairavg")
        assert pulled / means["kungfu-ssgd"] == pytest.approx(0.7, abs=0.05)


@pytest.mark.long
def test_a_parameter_server_makes_the_topology_significant(tmp_path: Path) -> None:
    """Left out by the paper: 8 times the model instead of 6, so that the finding on topology does not hold.

    The default formula knows the server's law, so there its effect is what is beyond 8 times: 2%.
    """
    synthetic.generate(tmp_path / "dataset", "zerwas-79", steps=5)
    formula = "np.log(step_bytes) ~ np.log(model_bytes) + C(framework_backend) + C(batch_size) + C(topology)"
    with ddnn_traces.open(tmp_path / "dataset") as opened:
        fits = [ddnn_traces.regress(opened, formula), ddnn_traces.regress(opened)]
    assert significant(fits[0])["C(topology)"] is True
    without, by_law = (c for fit in fits for c in fit.coefficients if c.name == "C(topology)[T.parameter_server]")
    assert without.ci_low is not None and without.ci_low > 0
    assert without.estimate == pytest.approx(np.log(8 / 6), abs=0.03)
    assert abs(by_law.estimate) < 0.03


# --- labels of synthetic runs


@pytest.mark.long
def test_the_report_states_that_nothing_was_measured(tmp_path: Path) -> None:
    write_runs(tmp_path / "dataset", [run for run in runs_of(steps=4) if run.model == "mobilenetv2"][:2])
    with ddnn_traces.open(tmp_path / "dataset") as opened, Results(opened) as results:
        report = page.report(opened)
        note = results.synthetic_sentence
    assert report.title.endswith("(2 of 2 runs synthetic, not measured)")
    sections = {section.slug: section for section in report.sections}
    for fact in ("synthetic", "not measured", "2 of 2 runs"):
        assert fact in note.lower()
    assert sections["losses"].headline.startswith(note)
    assert "2 of 2 runs" in sections["step-volume"].headline and "synthetic" in sections["step-volume"].headline
    assert len(report.figures) > 5
    for figure in report.figures:
        assert figure.caption.endswith(note)
        assert figure.spec["title"]["text"][0] == note
