"""verify: names, checksums, bag, zip file, release.json, listed files and version of a release."""

from __future__ import annotations

import hashlib
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from damages import Change, assert_found, damages_of, failures, found

from ddnn_traces.errors import ReleaseError, UsageError
from ddnn_traces.release import packaging
from ddnn_traces.release.verify import running
from ddnn_traces.release.verify.examined import FAILED, NOT_CHECKED, PASSED
from ddnn_traces.store import layout


@pytest.mark.parametrize(
    "damage", damages_of("links and names", "checksums", "release.json", "listed files", "version")
)
def test_a_damage_is_found_by_its_check(folder: Path, tmp_path: Path, damage: str) -> None:
    assert_found(folder, tmp_path / "scratch", damage)


def test_one_byte_of_any_file_is_named(folder: Path, tmp_path: Path) -> None:
    paths = [path for path in packaging.files(folder) if path != layout.CHECKSUMS]
    kinds = {Path(path).name if "/" not in path else path.partition("/")[0]: path for path in paths}
    assert {*layout.DESCRIPTIONS, layout.RELEASE, layout.CHANGELOG, "dataset.json", "traces.duckdb", "flows"} <= set(
        kinds
    )
    for path in kinds.values():
        content = (folder / path).read_bytes()
        place = len(content) // 2
        (folder / path).write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
    wrong = [result for result in failures(folder, tmp_path / "scratch") if result.check == "checksums"]
    assert {result.subject for result in wrong} == set(kinds.values())
    assert all("has been changed" in result.detail for result in wrong)


def test_files_added_and_missing_are_named(folder: Path, tmp_path: Path) -> None:
    (folder / "notes.txt").write_text("mine")
    (folder / layout.CARD).unlink()
    wrong = {result.subject: result.detail for result in failures(folder, tmp_path / "scratch")}
    assert wrong.keys() == {"notes.txt", layout.CARD}
    assert "is not of the release" in wrong["notes.txt"]
    assert "is missing" in wrong[layout.CARD]


def test_the_sum_of_the_sums_is_reported(release: Path, tmp_path: Path) -> None:
    sha256 = hashlib.sha256((release / layout.CHECKSUMS).read_bytes()).hexdigest()
    rows = found(release, tmp_path / "scratch")
    assert [row.status for row in rows if sha256 in row.detail] == [PASSED]


def test_after_a_link_nothing_is_read(folder: Path) -> None:
    (folder / layout.RELEASE).unlink()
    (folder / layout.RELEASE).symlink_to("/etc/passwd")
    rows = running.verify(folder)
    assert [row.status for row in rows] == [FAILED] + [NOT_CHECKED] * (len(running.CHECKS) - 1)
    assert rows[0].subject == layout.RELEASE


def test_a_bag_passes_and_its_manifests_count(bag: Path, tmp_path: Path) -> None:
    assert failures(bag, tmp_path / "sound", "bag") == []
    assert [r.status for r in found(bag, tmp_path / "again", "bag") if r.check == "bag"] == [PASSED]
    changes: dict[str, Change] = {
        "bag-info.txt": lambda f: (f / "bag-info.txt").write_text("Contact-Name: Eve\n"),
        "manifest-sha256.txt": lambda f: (f / "manifest-sha256.txt").write_text(""),
        "notes.txt": lambda f: (f / "notes.txt").write_text("more"),
    }
    for name, change in changes.items():
        copy = Path(shutil.copytree(bag, tmp_path / name))
        change(copy)
        assert name in {result.subject for result in failures(copy, tmp_path / "scratch", "bag")}


@pytest.mark.long
def test_a_zip_file_passes(release: Path, bag: Path, tmp_path: Path) -> None:
    for source in (release, bag):
        name = shutil.make_archive(str(tmp_path / "packed"), "zip", source.parent, source.name)
        rows = running.verify(name)
        assert {row.status for row in rows} == {PASSED}, [row for row in rows if row.status != PASSED]
        assert any(row.check == "bag" for row in rows) == (source == bag)


def test_a_zip_file_that_would_write_elsewhere(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        archive.writestr("dataset.json", "{}")
        archive.writestr("../../evil", "x")
    with pytest.raises(ReleaseError, match="evil"):
        running.verify(tmp_path / "x.zip")
    assert not (tmp_path.parent / "evil").exists()


@pytest.mark.parametrize(
    ("make", "word"),
    [
        (lambda _: None, "no such release"),
        (lambda path: path.mkdir(), "no release"),
        (lambda path: path.write_text("x"), "no such release"),
        (lambda path: (path.mkdir(), layout.write_marker(path)), "a dataset, and no release"),
    ],
)
def test_what_is_no_release(tmp_path: Path, make: Callable[[Path], object], word: str) -> None:
    make(tmp_path / "x")
    with pytest.raises(UsageError, match=word):
        running.verify(tmp_path / "x")
    with pytest.raises(UsageError, match="download the release first"):
        running.verify("https://example.org/traces")
