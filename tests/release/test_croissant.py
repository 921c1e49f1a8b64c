"""croissant.json by mlcroissant: every record set is loaded, since its check alone passes unreadable ones."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import mlcroissant
import pyarrow.parquet as pq
import pytest
from described import ABOUT, BARE, HOSTILE, copy, described, file_of, null_first, put, without
from etils import epath
from mlcroissant._src.core import constants
from mlcroissant._src.operation_graph.operations import Download
from web import Answer, Request, server

from ddnn_traces.query.dataset import Dataset
from ddnn_traces.release import facts
from ddnn_traces.release.descriptions import croissant, terms
from ddnn_traces.store import layout, parquet, schema

RUN = "a run, 100% ~odd+name@x"


@pytest.fixture(scope="module")
def original(sample_dataset: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One run of the sample under its name and under an odd one, with an unknown time. Not to be changed."""
    path = tmp_path_factory.mktemp("croissant") / "release"
    run = sample_dataset.run_ids[0]
    copy(sample_dataset.path, path, [run])
    for table in schema.TABLES:
        rows = pq.read_table(file_of(path, table))
        put(path, table, RUN, rows)
    null_first(file_of(path, "captures"), "first_ns")
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
    return rows_of(sorted((folder / table).glob("*.parquet")), table)


def rows_of(files: Iterable[Path], name: str) -> list[dict[str, Any]]:
    rows = []
    for path in files:
        for row in pq.read_table(path, partitioning=None).to_pylist():
            values = {name: value.encode() if isinstance(value, str) else value for name, value in row.items()}
            rows.append({f"{name}/{column}": value for column, value in values.items()})
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


@pytest.mark.parametrize("parts", [1, 2])
def test_it_is_loaded_by_its_address(
    original: Path, tmp_path: Path, parts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every record set, over HTTP; and from the files at hand without a network."""
    monkeypatch.setattr(constants, "DOWNLOAD_PATH", epath.Path(tmp_path / "downloaded"))
    folder = tmp_path / "release"
    shutil.copytree(original, folder)
    for table in schema.TABLES if parts == 2 else ():
        shutil.copy(file_of(folder, table), folder / parquet.part(table, 1))

    def files(request: Request) -> Answer:
        path = folder / unquote(request.path).removeprefix("/data/")
        return Answer(200, path.read_bytes()) if path.is_file() else Answer(404)

    with server(files) as address:
        made = described(folder, dataclasses.replace(ABOUT, url=f"{address}/data", files_url=None))
        sets = croissant.record_sets(made)
        assert len(sets) == parts * len(schema.TABLES)
        rows = {one.name: rows_of([folder / file.path for file in one.files], one.name) for one in sets}
        by_address = mlcroissant.Dataset(f"{address}/data/{layout.CROISSANT}")
        assert {name: [*map(dict, by_address.records(name))] for name in rows} == rows
    mapping = {
        item["@id"]: folder / item["name"]
        for item in json.loads((folder / layout.CROISSANT).read_text())["distribution"]
    }
    at_hand = mlcroissant.Dataset(str(folder / layout.CROISSANT), mapping=mapping)
    assert {name: [*map(dict, at_hand.records(name))] for name in rows} == rows


@pytest.mark.parametrize(
    ("url", "files_url", "expected"),
    [
        ("https://uni.de/traces", None, "https://uni.de/traces/"),
        ("https://uni.de/traces/", None, "https://uni.de/traces/"),
        ("https://uni.de/traces", ".", None),
        ("https://uni.de/traces", "https://data.uni.de/1.0.0", "https://data.uni.de/1.0.0/"),
        (None, "https://data.uni.de/1.0.0/", "https://data.uni.de/1.0.0/"),
        (None, None, None),
        (
            "https://huggingface.co/datasets/uni/traces",
            None,
            "https://huggingface.co/datasets/uni/traces/resolve/v1.0.0/",
        ),
        ("https://zenodo.org/records/5000000", None, None),
        ("https://doi.org/10.5281/zenodo.5000000", None, None),
        ("https://github.com/uni/traces", None, None),
        ("https://uni.de/traces.html", None, None),
        ("https://uni.de/show?id=7", None, None),
        ("https://myzenodo.uni.de/traces", None, "https://myzenodo.uni.de/traces/"),
    ],
)
def test_the_folder_of_the_files(url: str | None, files_url: str | None, expected: str | None) -> None:
    """A page of a repository is not the folder of the files."""
    assert terms.files_url(dataclasses.replace(ABOUT, url=url, files_url=files_url)) == expected


def test_sizes_checksums_and_rows_are_those_of_the_files(original: Path) -> None:
    document = json.loads((original / layout.CROISSANT).read_text())
    objects = [item for item in document["distribution"] if item["@type"] == "cr:FileObject"]
    assert len(objects) == len(schema.TABLES)
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
    path = file_of(folder, "flows")
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    dataset = load(folder)  # its check sees nothing
    with pytest.raises(ValueError, match="is not identical with the reference"):
        for download in downloads_of(dataset):
            download.call()


def test_a_missing_column_passes_the_check_and_fails_to_load(folder: Path) -> None:
    without(file_of(folder, "flows"), "packets")
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
