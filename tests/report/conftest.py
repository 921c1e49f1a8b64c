"""The report of four runs of the sample, written once for all tests; and the same under hostile names."""

from __future__ import annotations

import functools
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from chart_specs import Query
from tools import Once

import ddnn_traces
from ddnn_traces.query.dataset import Dataset
from ddnn_traces.report.page import Report, report
from ddnn_traces.store import parquet, schema

#: Names of runs that try to break out of HTML, JSON, JavaScript and the folder.
HOSTILE = (
    "<script>alert(1)</script>",
    "a</script>b <!--<script> {{7*7}}",
    "../../x'\"); alert(2) // " + "long" * 30,
    "a\u2028\x1b[31m\x00\uffff{% raw %}</pre></details></style>",
)


@pytest.fixture(scope="session")
def runs() -> tuple[str, ...]:
    """Names of the runs of `dataset`."""
    return (
        "mpi-mlp1-sgd-32-openmpi-0ms-ring-sll2",
        "torch-mlp1-sgd-128-gloo-0ms-ring-tso",
        "torch-mlp1-sgd-32-gloo-0ms-ring-tso",
        "torchp2p-mlp4-sgd-32-gloo-0ms-star-tso",
    )


@pytest.fixture(scope="session")
def dataset(sample_dataset: Dataset, runs: tuple[str, ...], once: Once) -> Iterator[Dataset]:
    """Four runs of the sample. Not to be changed."""

    def other_runs(_: str, names: list[str]) -> list[str]:
        return [name for name in names if name.startswith("run_id=") and name.removeprefix("run_id=") not in runs]

    def copy(path: Path) -> None:
        shutil.copytree(sample_dataset.path, path, ignore=other_runs)

    with ddnn_traces.open(once("four-runs", copy)) as opened:
        assert opened.run_ids == sorted(runs)
        yield opened


@pytest.fixture(scope="session")
def query(dataset: Dataset) -> Query:
    """Runs a query, once for all tests of a process."""
    return functools.cache(dataset.query)


@pytest.fixture(scope="session")
def made(dataset: Dataset) -> Report:
    """The report of `dataset`, not yet written. Not to be changed."""
    return report(dataset)


@pytest.fixture(scope="session")
def written(dataset: Dataset, once: Once) -> Path:
    """The report of `dataset`, with its charts. Not to be changed."""
    return once("report", lambda path: ddnn_traces.write_report(dataset, path / "report.html")) / "report.html"


@pytest.fixture(scope="session")
def hostile_names() -> tuple[str, ...]:
    return HOSTILE


@pytest.fixture(scope="session")
def hostile(dataset: Dataset, runs: tuple[str, ...], once: Once) -> Path:
    """The report of the same runs, renamed to HOSTILE, with its charts. Not to be changed."""

    def write(folder: Path) -> None:
        shutil.copytree(dataset.path, folder / "dataset")
        for table in schema.TABLES:
            for run_id, name in zip(runs, HOSTILE, strict=True):
                parquet.partition(folder / "dataset", table, run_id).rename(
                    parquet.partition(folder / "dataset", table, name)
                )
        with ddnn_traces.open(folder / "dataset") as renamed:
            assert renamed.run_ids == sorted(HOSTILE)
            ddnn_traces.write_report(renamed, folder / "out" / "report.html")

    return once("hostile-report", write) / "out" / "report.html"
