"""croissant.json by mlcroissant: every record set is loaded, since its check alone passes unreadable ones."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import mlcroissant
import pyarrow.parquet as pq
import pytest
from described import ABOUT, BARE, HOSTILE, copy, described, null_first, put, without
from mlcroissant._src.operation_graph.operations import Download

from ddnn_traces.query.dataset import Dataset
from ddnn_traces.release import facts
from ddnn_traces.store import layout, parquet, schema

RUN = "a run, 100% ~odd+name@x"


@pytest.fixture(scope="module")
def original(sample_dataset: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One run of the sample under its name and under an odd one, with an unknown time. Not to be changed."""
    path = tmp_path_factory.mktemp("croissant") / "release"
    run = sample_dataset.run_ids[0]
    copy(sample_dataset.path, path, [run])
    for table in schema.TABLES:
        rows = pq.read_table(parquet.partition(path, table, run) / "part-0.parquet", partitioning=None)
        put(path, table, RUN, rows)
    null_first(parquet.partition(path, "captures", RUN) / "part-0.parquet", "first_ns")
    described(path)
    return path


@pytest.fixture
def folder(original: Path, tmp_path: Path) -> Path:
    """A copy to be changed."""
    shutil.copytree(original, tmp_path / "release")
    return tmp_path / "release"


def load(folder: Path) -> mlcroissant.Dataset:
    return mlcroissant.Dataset(str(folder / layout.CROISSANT))


def expected(folder: Path, table: str) -> list[dict[str, Any]]:
    """Rows as mlcroissant gives them: named TABLE/COLUMN, text as bytes."""
    rows = []
    for path in sorted((folder / table).glob("*/*.parquet")):
        for row in pq.read_table(path, partitioning=None).to_pylist():
            values = {name: value.encode() if isinstance(value, str) else value for name, value in row.items()}
            rows.append({f"{table}/{name}": value for name, value in values.items()})
    return rows


def test_it_passes_the_check_without_a_word(original: Path) -> None:
    issues = load(original).metadata.ctx.issues
    assert (issues.errors, issues.warnings) == (set(), set())


def test_it_says_that_it_is_croissant_1_1_and_needs_no_network(original: Path) -> None:
    document = json.loads((original / layout.CROISSANT).read_text())
    assert "http://mlcommons.org/croissant/1.1" in document["conformsTo"]
    assert isinstance(document["@context"], dict)
    assert load(original).metadata.ctx.is_v1_1()


@pytest.mark.parametrize("table", schema.TABLES)
def test_every_record_set_is_loaded_as_it_is(original: Path, table: str) -> None:
    loaded = [dict(record) for record in load(original).records(table)]
    assert loaded == expected(original, table)


def test_times_stay_whole_where_another_is_unknown(original: Path) -> None:
    """As doubles, to which pandas turns integers with nulls, they would be off by up to 128 ns."""
    times = [record["captures/first_ns"] for record in load(original).records("captures")]
    assert None in times
    known = [time for time in times if time is not None]
    assert any(int(float(time)) != time for time in known), "or this shows nothing"
    assert known == [row["captures/first_ns"] for row in expected(original, "captures") if row["captures/first_ns"]]


def test_sizes_checksums_and_rows_are_those_of_the_files(original: Path) -> None:
    document = json.loads((original / layout.CROISSANT).read_text())
    objects = [item for item in document["distribution"] if item["@type"] == "cr:FileObject"]
    assert len(objects) == 2 * len(schema.TABLES)
    for item in objects:
        assert item["contentSize"] == f"{(original / item['contentUrl']).stat().st_size} B"
        assert item["encodingFormat"] == "application/x-parquet"
    for record_set in document["recordSet"]:
        assert record_set["annotation"]["value"] == len(expected(original, record_set["name"]))
    downloads = downloads_of(load(original))
    assert len(downloads) == len(objects)
    for download in downloads:
        download.call()


def downloads_of(dataset: mlcroissant.Dataset) -> list[Download]:
    return [operation for operation in dataset.operations.operations.nodes if isinstance(operation, Download)]


def test_a_changed_file_does_not_pass(folder: Path) -> None:
    path = parquet.partition(folder, "flows", RUN) / "part-0.parquet"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    dataset = load(folder)  # its check sees nothing
    with pytest.raises(ValueError, match="is not identical with the reference"):
        for download in downloads_of(dataset):
            download.call()


def test_a_missing_column_passes_the_check_and_fails_to_load(folder: Path) -> None:
    without(parquet.partition(folder, "flows", RUN) / "part-0.parquet", "packets")
    dataset = load(folder)
    assert not dataset.metadata.ctx.issues.errors
    with pytest.raises(mlcroissant.GenerationError):
        list(dataset.records("flows"))


def test_the_registered_media_type_would_pass_the_check_and_fail_to_load(folder: Path) -> None:
    path = folder / layout.CROISSANT
    path.write_text(path.read_text().replace("application/x-parquet", "application/vnd.apache.parquet"))
    dataset = load(folder)
    assert not dataset.metadata.ctx.issues.errors
    with pytest.raises(mlcroissant.GenerationError):
        list(dataset.records("runs"))


@pytest.mark.parametrize("title", [HOSTILE, "x" * 300])
def test_hostile_words(folder: Path, title: str) -> None:
    about = facts.About(title, "LicenseRef-X", (facts.Person(HOSTILE),), "1.0.0", "2026-01-02", licence_text="Ask.")
    described(folder, about)
    dataset = load(folder)
    assert not dataset.metadata.ctx.issues.errors
    assert len(list(dataset.records("runs"))) == 2


def test_the_least_that_a_publisher_says(folder: Path) -> None:
    described(folder, BARE)
    assert not load(folder).metadata.ctx.issues.errors


def test_a_choice_of_tables(sample_dataset: Dataset, tmp_path: Path) -> None:
    copy(sample_dataset.path, tmp_path, sample_dataset.run_ids[:1], ["runs", "steps"])
    described(tmp_path)
    dataset = load(tmp_path)
    assert [record_set.name for record_set in dataset.metadata.record_sets] == ["runs", "steps"]
    assert len(list(dataset.records("steps"))) == len(expected(tmp_path, "steps"))


def test_provenance_and_responsible_ai(original: Path) -> None:
    document = json.loads((original / layout.CROISSANT).read_text())
    assert [activity["prov:label"] for activity in document["prov:wasGeneratedBy"]] == [
        "Packets were captured.", "Captures were read.", "Addresses became labels.", "Tables were written.",
    ]  # fmt: skip
    assert {"sha256": "ab" * 32}.items() <= document["prov:wasDerivedFrom"][0].items()
    assert document["rai:dataCollection"] == ABOUT.collection
    assert document["rai:dataUseCases"] == [ABOUT.uses]
    assert document["rai:personalSensitiveInformation"] == [ABOUT.sensitive, "A role tells a place."]
    limitations = document["rai:dataLimitations"]
    known = [f"{t.name}.{c.name}: {c.inaccuracy}" for t in schema.tables() for c in t.columns if c.inaccuracy]
    assert limitations == [ABOUT.limitations, *known]
