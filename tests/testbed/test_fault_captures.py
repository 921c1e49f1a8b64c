"""The shipped runs with faults, data/faults: what they are, and that their truth is in the tables."""

from __future__ import annotations

import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import ddnn_traces
from ddnn_traces.testbed import faults, matrix

DATA = Path(__file__).parents[2] / "data"
RUNS = sorted(path for path in (DATA / "faults").iterdir() if path.is_dir())
COLUMNS = ("fault_kind", "fault_host", "fault_peer", "fault_strength", "fault_from_step", "fault_to_step")
BYTES = 10_000_000


def about(folder: Path) -> dict[str, Any]:
    return tomllib.loads((folder / "run.toml").read_text())


def test_the_runs_are_those_of_the_matrix() -> None:
    runs = {run.name: run for run in matrix.read(DATA / "faults.toml").runs}
    for folder in RUNS:
        truth = {key: value for key, value in faults.truth(runs[folder.name]).items() if value is not None}
        assert {key: value for key, value in about(folder).items() if key.startswith("fault_")} == truth
    kinds = Counter(about(folder)["fault_kind"] for folder in RUNS)
    assert len(kinds) == 8, kinds  # none, and each that a diagnosis names
    assert 3 * kinds["none"] >= len(RUNS) - 1


def test_they_are_small_and_hold_no_payload() -> None:
    assert sum(path.stat().st_size for folder in RUNS for path in folder.iterdir()) < BYTES
    assert {about(folder)["origin"]["capture"]["snaplen"] for folder in RUNS} == {80}
    assert not [path for folder in RUNS for path in folder.glob("*-program.txt")]


@pytest.mark.parametrize(
    "folders",
    [
        pytest.param([RUNS[2], RUNS[5]], id="two"),
        pytest.param(RUNS, id="all", marks=pytest.mark.long),
    ],
)
def test_the_truth_is_in_the_table_runs(tmp_path: Path, folders: list[Path]) -> None:
    for folder in folders:
        (tmp_path / "runs" / folder.name).parent.mkdir(exist_ok=True)
        (tmp_path / "runs" / folder.name).symlink_to(folder)
    with ddnn_traces.ingest(tmp_path / "runs", tmp_path / "dataset") as dataset:
        rows = dataset.sql(f"SELECT run_id, {', '.join(COLUMNS)} FROM runs").rows()
        lost = dataset.sql(
            "SELECT count(*) FROM captures WHERE status <> 'complete' OR kernel_dropped_packets > 0"
        ).item()
    assert {run: list(values) for run, *values in rows} == {
        folder.name: [about(folder).get(column) for column in COLUMNS] for folder in folders
    }
    assert lost == 0
