"""data/dataset is the release of data/captures, the runs of data/dataset.toml, and opens as plainly as it says."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pytest
from tools import script

import ddnn_traces
from ddnn_traces.release import claims
from ddnn_traces.store import layout, schema
from ddnn_traces.testbed import matrix

REPOSITORY = Path(__file__).resolve().parents[2]
DATA = REPOSITORY / "data"
RELEASE, CAPTURES = DATA / "dataset", DATA / "captures"
SPLITS = tomllib.loads((DATA / "dataset_splits.toml").read_text())


@pytest.fixture(scope="module")
def findings() -> Any:
    """docs/our_findings.py."""
    return script("docs/our_findings.py")


@pytest.fixture(scope="module")
def rules() -> Any:
    """docs/findings_rules.py."""
    return script("docs/findings_rules.py")


@pytest.fixture(scope="module")
def runs() -> pl.DataFrame:
    return pl.read_parquet(RELEASE / "runs" / "*.parquet")


def test_the_release_has_the_runs_of_the_matrix(runs: pl.DataFrame) -> None:
    wanted = {run.name for run in matrix.read(DATA / "dataset.toml").runs}
    assert set(runs["run_id"]) == wanted
    assert {path.name for path in CAPTURES.iterdir()} == wanted
    assert len(wanted) >= 75


def test_a_tenth_is_set_apart(runs: pl.DataFrame) -> None:
    declared = {run: name for name, members in SPLITS.items() for run in members}
    assert dict(runs["run_id", "split"].rows()) == dict.fromkeys(runs["run_id"], "train") | declared
    assert 0.08 < len(declared) / runs.height < 0.12


def test_a_checkpoint_saves_steps() -> None:
    """Of each framework: what is done anew after a kill is what came after the last checkpoint, or all."""
    with ddnn_traces.open(RELEASE) as dataset:
        rows = dataset.query("fault_recovery")
    assert rows["finished"].all()
    assert set(rows["framework_backend"]) == {"torch-gloo", "torchp2p-gloo", "tf-grpc"}
    assert set(rows["role"]) == {"worker", "chief", "parameter_server"}
    restored = rows.filter(pl.col("checkpoint_steps").is_not_null())
    assert (restored["lost_steps"] == restored["steps_before"] - restored["checkpoint_steps"]).all()
    went_on = rows.filter(pl.col("checkpoint_steps").is_null(), pl.col("lost_steps") > 0)
    assert (went_on["lost_steps"] == went_on["steps_before"]).all()
    assert restored.height >= 9 and went_on.height >= 3


def test_it_fits_into_the_repository() -> None:
    assert sum(path.stat().st_size for path in RELEASE.rglob("*.parquet")) < 40e6
    assert sum(path.stat().st_size for folder in (RELEASE, CAPTURES) for path in folder.rglob("*")) < 60e6


def test_every_link_was_as_asked_for() -> None:
    for path in CAPTURES.glob("*/run.toml"):
        declared = tomllib.loads(path.read_text())
        assert "rejected" not in declared, path
        assert declared["origin"]["link"]["measured_before"], path


def test_the_plainest_calls_read_it(runs: pl.DataFrame, tmp_path: Path) -> None:
    assert len(pd.read_parquet(RELEASE / "runs")) == runs.height
    assert duckdb.sql(f"SELECT count(*) FROM '{RELEASE}/runs/*.parquet'").fetchall() == [(runs.height,)]
    with ddnn_traces.open(RELEASE) as dataset:
        assert dataset.query("run_overview").height == runs.height
    # in a process of its own: a module of these tests is called datasets, too
    code = "import sys, datasets; print(datasets.load_dataset(sys.argv[1], 'runs').num_rows)"
    done = subprocess.run(
        [sys.executable, "-c", code, RELEASE], cwd=tmp_path, capture_output=True, text=True, check=True,
        env=os.environ | {"HF_HUB_OFFLINE": "1", "HF_DATASETS_CACHE": str(tmp_path), "PYTHONPATH": ""},
    )  # fmt: skip
    assert ast.literal_eval(done.stdout) == {
        "train": runs.height - sum(map(len, SPLITS.values())),
        **{name: len(members) for name, members in SPLITS.items()},
    }


@pytest.mark.nightly
@pytest.mark.timeout(2400)  # 300 s of CPU time: on a busy machine more than the 600 s of a test
def test_captures_give_the_release_again_and_the_release_the_page() -> None:
    """Each table to the byte; each claim holds, which publish computes; the release is verified; the page and its
    figures are what it gives."""
    make = REPOSITORY / "docs" / "our_dataset.py"
    done = subprocess.run([sys.executable, make, "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.timeout(1200)
def test_the_release_is_verified() -> None:
    assert ddnn_traces.verify(RELEASE).filter(pl.col("status") == "failed").rows() == []


#: A chart or more of each block; make test-nightly draws all, and compares the findings.
CHARTS = {
    "frameworks": ("model-volume", "flow-counts"), "conditions": ("conditions",), "models": ("flow-and-model",),
    "learning": ("accuracy",),
}  # fmt: skip


@pytest.mark.timeout(1200)
def test_the_release_gives_charts_and_tables_of_the_page() -> None:
    page = script("docs/our_dataset.py")
    written, runs = page.PAGE.read_text(encoding="utf-8"), page.blocks()
    assert page.filled(written, page.tables(runs)) == written
    texts, files = page.charts(runs, CHARTS)
    assert texts.keys() == page.SECTIONS.keys()
    assert [text for block in texts.values() for text in block if text not in written] == []
    assert len(files) >= len(CHARTS)
    assert [path.name for path, figure in files.items() if path.read_text("utf-8") != figure] == []


def test_captures_of_a_twentieth_of_the_runs_give_their_rows_again(tmp_path: Path) -> None:
    captures = sorted(CAPTURES.iterdir())[::20]
    made = script("docs/our_dataset.py").released(captures, tmp_path)
    with ddnn_traces.open(made) as some, ddnn_traces.open(RELEASE, runs=[path.name for path in captures]) as known:
        assert some.run_ids == known.run_ids
        assert some.row_counts() == known.row_counts()
        for table in schema.TABLES:
            rows, wanted = (dataset.sql_arrow(f"FROM {table} ORDER BY ALL") for dataset in (some, known))
            assert rows.equals(wanted), table


@pytest.mark.timeout(1200)
def test_each_claim_is_of_a_finding_and_a_quarter_of_them_hold(findings: Any) -> None:
    known = claims.read(DATA / "dataset_claims.csv")
    assert {one.source.rpartition(": ")[2] for one in known} - set(findings.measures()) == {"leaderboard"}
    assert claims.read(RELEASE / layout.CLAIMS) == known
    assert [one for one in claims.evaluate(RELEASE, known[::4]) if one.verdict != claims.HOLDS] == []


@pytest.mark.parametrize(
    ("low", "high", "values", "verdict", "needed"),
    [
        (5.6, 5.8, 3, True, ""),
        (6.1, 6.4, 3, False, ""),
        (5.52, 6.53, 31, None, "About 4,942 runs would tell: n = 31."),
        (5.0, 6.0, 3, None, "About 104 runs would tell: n = 3."),
        (5.6, 5.8, 2, None, "At least 3 runs would tell: n = 2."),
        (None, None, 1, None, "At least 3 runs would tell: n = 1."),
    ],
)
def test_a_verdict_is_equivalence(
    rules: Any, low: float | None, high: float | None, values: int, verdict: bool | None, needed: str
) -> None:
    """With 5.7, whose range is 5.415 to 5.985."""
    mean = 5.7 if low is None or high is None else (low + high) / 2
    found = rules.Interval(mean, low, high, values, "runs")
    assert rules.judged("text", (found, rules.about(5.7))) == rules.Found("text", verdict, needed)


def test_one_difference_decides_and_one_doubt_remains(rules: Any) -> None:
    same, other, open_one = (rules.Interval(mean, mean - 0.01, mean + 0.01, 5) for mean in (1, 2, 1.045))
    wanted = rules.about(1)
    assert rules.judged("", (same, wanted), (open_one, wanted), (other, wanted)).agrees is False
    assert rules.judged("", (same, wanted), (open_one, wanted)).agrees is None
    assert rules.judged("", (same, wanted)).agrees is True


def test_a_mean_at_the_end_of_the_range_is_never_told(rules: Any) -> None:
    assert rules.Interval(1.05, 1, 1.1, 3).needed(1, 1.05) == "No number of models would tell, with this mean: n = 3."
