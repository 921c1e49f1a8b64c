"""verify: each description by its validator, and against release.json."""

from __future__ import annotations

import dataclasses
import socket
from pathlib import Path

import pytest
from damages import DAMAGES, assert_found, damages_of, edited, failures, found, other_software, sealed
from publishing import ABOUT

import ddnn_traces
from ddnn_traces.release import facts, versions
from ddnn_traces.release.descriptions import croissant, write
from ddnn_traces.release.verify import description_checks
from ddnn_traces.release.verify.examined import NOT_CHECKED, PASSED
from ddnn_traces.release.verify.running import CHECKS
from ddnn_traces.store import layout

_CHECKS = ("samples", *(name for name, check in CHECKS if check.__module__ == description_checks.__name__))


@pytest.mark.parametrize("damage", damages_of(*_CHECKS))
def test_a_damage_is_found_by_its_check(folder: Path, tmp_path: Path, damage: str) -> None:
    assert_found(folder, tmp_path / "scratch", damage)


@pytest.mark.parametrize("damage", damages_of("agreement"))
def test_a_description_that_differs_from_release_json_is_found(folder: Path, tmp_path: Path, damage: str) -> None:
    assert_found(folder, tmp_path / "scratch", damage)


#: Damages of texts that are only found by comparing words, which needs the version that published the release.
_WORDS = {
    "another meaning, in Croissant", "another sentence in the datasheet", "a sentence more in the card",
    "another number in the figure",
}  # fmt: skip


@pytest.mark.parametrize("damage", sorted(set(damages_of("agreement")) - _WORDS))
def test_values_are_compared_in_a_release_of_another_version(folder: Path, tmp_path: Path, damage: str) -> None:
    DAMAGES[damage][0](folder)
    other_software()(folder)
    sealed(folder)
    wrong = [result for result in failures(folder, tmp_path / "scratch", "agreement") if result.check == "agreement"]
    assert any(DAMAGES[damage][2] in result.detail for result in wrong), wrong


def test_a_sound_release_of_another_version_agrees(folder: Path, tmp_path: Path) -> None:
    other_software()(folder)
    sealed(folder)
    rows = [result for result in found(folder, tmp_path / "scratch", "agreement") if result.check == "agreement"]
    statuses = {result.subject: result.status for result in rows}
    assert statuses.pop("all descriptions") == NOT_CHECKED
    assert set(statuses.values()) == {PASSED}
    assert set(statuses) == set(layout.DESCRIPTIONS) - {
        layout.DATASHEET, layout.DICTIONARY, layout.FIGURE, layout.LICENCE, layout.WORKLOADS, layout.CLAIMS,
        layout.ARTIFACT,
    }  # fmt: skip


def test_a_damaged_file_alone_is_named(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the copy that is tried all other files are there, and sound."""
    monkeypatch.setattr(description_checks, "MOST_ROWS", 500)
    tables = [file.path for file in facts.read(folder).table_files]
    with (folder / tables[0]).open("ab") as file:
        file.write(b"x")
    rows = failures(folder, tmp_path / "scratch", "croissant", "data package", "data")
    assert "data package" in {row.check for row in rows}
    said = " ".join(f"{row.subject} {row.detail}" for row in rows)
    assert tables[0] in said and "more damaged" not in said
    assert not [path for path in tables[1:] if path in said]


@pytest.mark.parametrize("most_rows", [10_000, 500])
def test_croissant_with_addresses_is_tried_without_a_network(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most_rows: int
) -> None:
    """Also where the copy that is tried has only some of the rows."""
    monkeypatch.setattr(socket.socket, "connect", lambda *_: pytest.fail("verify used the network"))
    monkeypatch.setattr(description_checks, "MOST_ROWS", most_rows)
    made = facts.read(folder)
    made = dataclasses.replace(made, about=dataclasses.replace(made.about, files_url="https://traces.net/1.0.0"))
    made = dataclasses.replace(made, digest=versions.digest(made))
    (folder / layout.RELEASE).write_text(facts.to_json(made))
    write(made, folder)
    sealed(folder)
    rows = found(folder, tmp_path / "scratch", "croissant", "agreement")
    assert {row.status for row in rows} == {PASSED}, [row for row in rows if row.status != PASSED]
    tried = {row.subject for row in rows if row.check == "croissant"}
    assert tried == {"document", *(one.name for one in croissant.record_sets(made))}


@pytest.mark.parametrize(
    "url", ["https://elsewhere.net/flows/part-00000.parquet", "/etc/passwd", "https://traces.net/1.0.0/../x"]
)
def test_croissant_with_other_addresses_is_not_loaded(folder: Path, tmp_path: Path, url: str) -> None:
    edited(layout.CROISSANT, lambda document: document["distribution"][-1].update(contentUrl=url))(folder)
    sealed(folder)
    (wrong,) = failures(folder, tmp_path / "scratch", "croissant")
    assert "is not a file of the release, so nothing was loaded" in wrong.detail


def test_a_figure_drawn_with_other_fonts_agrees(folder: Path, tmp_path: Path) -> None:
    """Labels of another length stand elsewhere."""
    path = folder / layout.FIGURE
    path.write_text(path.read_text().replace("translate(", "translate(1"))
    sealed(folder)
    assert failures(folder, tmp_path / "scratch", "figure", "agreement") == []


def test_a_release_without_flows_has_no_figure(small: Path, tmp_path: Path) -> None:
    done = ddnn_traces.publish(small, tmp_path / "runs", **ABOUT, tables=["hosts"])
    assert not done.release.figure
    assert not (done.path / layout.FIGURE).exists()
    assert layout.FIGURE not in (done.path / layout.CARD).read_text()
    wanted = ("samples", "figure", "workloads", "RO-Crate", "agreement", "listed files")
    assert failures(done.path, tmp_path / "scratch", *wanted) == []


def test_a_large_release_is_tried_with_some_rows_of_some_runs(
    release: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(description_checks, "MOST_ROWS", 500)
    rows = found(release, tmp_path / "rows", "croissant", "data package")
    assert {row.status for row in rows} == {PASSED}
    details = {row.subject: row.detail for row in rows}
    loaded = "mlcroissant loads 50 rows as they are in the files (up to 50 rows of each of 10 files)"
    assert details["flow_windows"] == loaded
    assert (
        details["resources"] == "10 resources, valid with up to 50 rows of each of 10 files, without keys between files"
    )


def test_of_many_files_some_are_tried_with_the_first_and_the_last() -> None:
    files = [facts.TableFile(str(number), 1, "", {}) for number in range(1000)]
    chosen = [file.path for file in description_checks._some(files, 30)]
    assert (len(chosen), len(set(chosen)), chosen[0], chosen[-1]) == (30, 30, "0", "999")
    assert description_checks._some(files[:30], 30) == files[:30]
