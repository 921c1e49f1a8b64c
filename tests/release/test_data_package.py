"""datapackage.json by frictionless, which reads every row of every file."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import frictionless
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from described import BARE, HOSTILE, changed, copy, described, file_of, null_first, put, without

from ddnn_traces.query.dataset import Dataset
from ddnn_traces.release import facts
from ddnn_traces.store import layout, parquet, schema

RUN = "a run, 100% ~odd+name@x"

#: All tables but the largest, which would take most of the time.
TABLES = [table for table in schema.TABLES if table != "flow_windows"]


@pytest.fixture(scope="module")
def original(sample_dataset: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One run of the sample under an odd name, with an unknown time. Not to be changed."""
    path = tmp_path_factory.mktemp("package") / "release"
    run = sample_dataset.run_ids[0]
    for table in TABLES:
        put(path, table, RUN, rows_of(sample_dataset.path, table, run))
    null_first(file_of(path, "captures"), "first_ns")
    described(path)
    return path


@pytest.fixture
def folder(original: Path, tmp_path: Path) -> Path:
    """A copy to be changed."""
    shutil.copytree(original, tmp_path / "release")
    return tmp_path / "release"


def rows_of(dataset: Path, table: str, run: str) -> pa.Table:
    return pq.read_table(parquet.partition(dataset, table, run) / "part-0.parquet", partitioning=None)


def problems(folder: Path) -> list[tuple[str, str]]:
    """Resource and kind of each error that frictionless finds."""
    report = frictionless.validate(str(folder / layout.DATA_PACKAGE))
    found = [("package", error.type) for error in report.errors]
    return found + [(task.name, error.type) for task in report.tasks for error in task.errors]


def test_every_row_of_every_file_is_valid(original: Path) -> None:
    report = frictionless.validate(str(original / layout.DATA_PACKAGE))
    assert report.valid, report.flatten(["message"])
    assert report.warnings == [warning for task in report.tasks for warning in task.warnings] == []
    assert {task.name: task.stats.get("rows", 0) for task in report.tasks} == {
        table: pq.read_metadata(file_of(original, table)).num_rows for table in TABLES
    }


def test_times_are_whole_nanoseconds(original: Path) -> None:
    package = frictionless.Package(str(original / layout.DATA_PACKAGE))
    resource = next(resource for resource in package.resources if resource.name == "captures")
    times = [row["first_ns"] for row in resource.read_rows()]
    assert times == pq.read_table(file_of(original, "captures"))["first_ns"].to_pylist()
    assert times[0] is None
    assert any(int(float(time)) != time for time in times[1:]), "or this shows nothing"


def test_a_missing_column_is_found(folder: Path) -> None:
    without(file_of(folder, "flows"), "packets")
    assert ("flows", "missing-label") in problems(folder)


def test_another_number_of_rows_is_found(folder: Path) -> None:
    rows = pq.read_table(file_of(folder, "steps"))
    pq.write_table(rows.slice(1), file_of(folder, "steps"))
    assert problems(folder) == [("steps", "row-count")]


def test_a_row_that_names_none_is_found(folder: Path) -> None:
    changed(file_of(folder, "step_flows"), "flow_id", 987654)
    assert {"foreign-key"} <= {kind for table, kind in problems(folder) if table == "step_flows"}


def test_two_rows_of_one_key_are_found(folder: Path) -> None:
    changed(file_of(folder, "hosts"), "host_ip", "10.0.0.1")
    assert ("hosts", "primary-key") in problems(folder)


def test_it_is_a_data_package_2(original: Path) -> None:
    document = json.loads((original / layout.DATA_PACKAGE).read_text())
    assert document["$schema"] == "https://datapackage.org/profiles/2.0/datapackage.json"
    assert (document["version"], document["created"]) == ("1.0.0", "2026-11-22T00:00:00Z")
    names = [resource["name"] for resource in document["resources"]]
    assert len(names) == len(set(names)) == len(TABLES)
    for resource in document["resources"]:
        path = original / resource["path"]
        assert (path.stat().st_size, path.parent.name) == (resource["sizeInBytes"], resource["table"])


def test_a_table_of_several_files_is_one_resource(sample_dataset: Dataset, tmp_path: Path) -> None:
    for number, run in enumerate(sample_dataset.run_ids[:2]):
        put(tmp_path, "runs", run, rows_of(sample_dataset.path, "runs", run))
        file_of(tmp_path, "runs").rename(tmp_path / f"{number}.parquet")
    for number in (0, 1):
        (tmp_path / f"{number}.parquet").rename(tmp_path / parquet.part("runs", number))
    described(tmp_path)
    (resource,) = json.loads((tmp_path / layout.DATA_PACKAGE).read_text())["resources"]
    assert resource["path"] == [parquet.part("runs", 0), parquet.part("runs", 1)]
    assert [part["path"] for part in resource["parts"]] == resource["path"]
    assert (resource["rows"], resource["sizeInBytes"]) == (2, sum(part["sizeInBytes"] for part in resource["parts"]))
    assert problems(tmp_path) == [("runs", "row-count")]  # frictionless reads only the first of several files


def test_hostile_words(sample_dataset: Dataset, tmp_path: Path) -> None:
    copy(sample_dataset.path, tmp_path, sample_dataset.run_ids[:1], ["runs"])
    described(tmp_path, facts.About(HOSTILE, "CC0-1.0", (facts.Person(HOSTILE),), "1.0.0", "2026-01-02"))
    assert problems(tmp_path) == []


def test_the_least_and_a_choice_of_tables(sample_dataset: Dataset, tmp_path: Path) -> None:
    """A table whose references are not in the release has no foreign keys."""
    copy(sample_dataset.path, tmp_path, sample_dataset.run_ids[:1], ["steps"])
    described(tmp_path, BARE)
    assert problems(tmp_path) == []
    (resource,) = json.loads((tmp_path / layout.DATA_PACKAGE).read_text())["resources"]
    assert "foreignKeys" not in resource["schema"]
