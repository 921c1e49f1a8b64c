"""All descriptions together: made from the facts alone, the same bytes twice, whatever the names."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from described import ABOUT, BARE, HOSTILE, copy, described, release

import ddnn_traces
from ddnn_traces.errors import MissingExtra, UsageError
from ddnn_traces.query.dataset import Dataset
from ddnn_traces.release import descriptions, facts
from ddnn_traces.release.descriptions import citation, terms
from ddnn_traces.store import layout, schema


@pytest.fixture(scope="module")
def folder(sample_dataset: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs of the sample as a release. Not to be changed."""
    path = tmp_path_factory.mktemp("descriptions") / "release"
    copy(sample_dataset.path, path, sample_dataset.run_ids[:2])
    described(path)
    return path


def test_every_description_is_written(folder: Path) -> None:
    for name in layout.DESCRIPTIONS:
        assert (folder / name).stat().st_size > 100, name


def test_the_same_facts_give_the_same_bytes(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "again", ignore=shutil.ignore_patterns(*layout.DESCRIPTIONS))
    described(tmp_path / "again")
    for name in layout.DESCRIPTIONS:
        assert (tmp_path / "again" / name).read_bytes() == (folder / name).read_bytes(), name


def test_what_was_kept_as_release_json_tells_all(folder: Path) -> None:
    made = release(folder)
    assert descriptions.texts(facts.from_json(facts.to_json(made))) == descriptions.texts(made)


def test_nothing_of_this_machine_is_in_them(folder: Path) -> None:
    for name in layout.DESCRIPTIONS:
        assert str(folder.parent) not in (folder / name).read_text()


@pytest.mark.parametrize(
    "about", [BARE, facts.About(HOSTILE, "CC0-1.0", (facts.Person(HOSTILE),), "1.0.0", "2026-01-02")]
)
def test_written_without_any_optional_word_and_with_hostile_ones(folder: Path, about: facts.About) -> None:
    texts = descriptions.texts(release(folder, about))
    assert list(texts) == list(layout.DESCRIPTIONS)
    for name in (layout.CROISSANT, layout.DATA_PACKAGE, layout.RO_CRATE, layout.DATACITE):
        assert about.title in _strings(json.loads(texts[name])), name


def _strings(value: object) -> set[str]:
    if isinstance(value, dict):
        return set().union(*map(_strings, value.values()))
    if isinstance(value, list):
        return set().union(*map(_strings, value)) if value else set()
    return {value} if isinstance(value, str) else set()


def test_no_tables_and_no_runs(tmp_path: Path) -> None:
    made = release(tmp_path)
    assert made.tables == made.runs == ()
    assert list(descriptions.texts(made)) == [name for name in layout.DESCRIPTIONS if name != layout.FIGURE]


def test_columns_and_units_are_those_of_schemas(folder: Path) -> None:
    croissant = json.loads((folder / layout.CROISSANT).read_text())
    package = json.loads((folder / layout.DATA_PACKAGE).read_text())
    units = {(t.name, c.name): c.unit for t in schema.tables() for c in t.columns}
    found = {
        (record_set["name"], field["name"]): field.get("unitText", "")
        for record_set in croissant["recordSet"]
        for field in record_set["field"]
    }
    packaged = {
        (resource["table"], field["name"]): field.get("unit", "")
        for resource in package["resources"]
        for field in resource["schema"]["fields"]
    }
    assert found == packaged == units


def test_foreign_keys_come_from_schemas(folder: Path) -> None:
    made = release(folder)
    found = {
        table.name: {r.table for r in terms.references(made, terms.definition(made, table))} for table in made.tables
    }
    assert found["runs"] == set()
    assert found["hosts"] == {"runs"}
    assert found["packets"] == {"runs", "captures", "flows"}
    assert found["step_flows"] == {"runs", "flows"}, "its step may be null, so not every row names one of steps"


def test_licences() -> None:
    assert {"CC0-1.0", "CC-BY-4.0", "ODbL-1.0", "CDLA-Permissive-2.0"} <= set(citation.known_licences())
    for name in citation.known_licences():
        assert len(citation.licence_text(name)) > 1000
    assert citation.licence_text("CC-BY-4.0").startswith("Creative Commons Attribution 4.0 International")
    with pytest.raises(UsageError, match=r"no text for the licence CC-BY-4 .*; did you mean CC-BY-4\.0"):
        citation.licence_text("CC-BY-4")


def test_a_licence_of_ones_own(folder: Path) -> None:
    own = facts.About("Own", "LicenseRef-Lab", ABOUT.creators, "1.0.0", "2026-01-02", licence_text="Ask us.")
    texts = descriptions.texts(release(folder, own))
    assert texts[layout.LICENCE] == "Ask us.\n"
    assert json.loads(texts[layout.DATA_PACKAGE])["licenses"] == [{"name": "LicenseRef-Lab", "path": "LICENSE"}]
    assert "license_name: licenseref-lab" in texts[layout.CARD]


def test_an_unknown_licence(folder: Path) -> None:
    with pytest.raises(UsageError, match="LicenseRef-"):
        descriptions.texts(release(folder, facts.About("Own", "Lab", ABOUT.creators, "1.0.0", "2026-01-02")))


def test_mit_names_the_creators(folder: Path) -> None:
    text = citation.licence(release(folder, facts.About("M", "MIT", ABOUT.creators, "1.0.0", "2026-01-02")))
    assert "Copyright (c) 2026 Ada Example, Grace Example" in text


def test_what_is_missing_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "yaml", None)
    with pytest.raises(MissingExtra, match=r"pip install 'ddnn-traces\[publish\]'"):
        descriptions.write(release(folder), folder)


def test_the_release_is_a_dataset(folder: Path) -> None:
    with ddnn_traces.open(folder) as dataset:
        assert len(dataset.run_ids) == 2
