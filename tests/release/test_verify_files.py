"""verify: names, checksums, bag, zip file, release.json, listed files and version of a release."""

from __future__ import annotations

import hashlib
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import IO

import pytest
from damages import Change, assert_found, damages_of, failures, file_of, found

import ddnn_traces
from ddnn_traces.errors import ReleaseError, UsageError
from ddnn_traces.release import packaging
from ddnn_traces.release.verify import file_checks, running
from ddnn_traces.release.verify.examined import FAILED, NOT_CHECKED, PASSED
from ddnn_traces.store import layout
from ddnn_traces.store.places import zipped


@pytest.mark.parametrize(
    "damage", damages_of("links and names", "checksums", "release.json", "listed files", "version")
)
def test_a_damage_is_found_by_its_check(folder: Path, tmp_path: Path, damage: str) -> None:
    assert_found(folder, tmp_path / "scratch", damage)


def test_one_byte_of_any_file_is_named(folder: Path, tmp_path: Path) -> None:
    paths = [path for path in packaging.files(folder) if path != layout.CHECKSUMS]
    kinds = {Path(path).name if "/" not in path else path.partition("/")[0]: path for path in paths}
    assert {
        *layout.DESCRIPTIONS.keys() - {layout.CLAIMS},
        layout.RELEASE,
        layout.CHANGELOG,
        "dataset.json",
        "traces.duckdb",
        "flows",
        layout.EXPLORER,
    } <= set(kinds)
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


#: Checks of what files hold, which read it by other libraries.
OF_CONTENT = {"data", "samples", "database", "explorer", "croissant", "data package", "RO-Crate"}


@pytest.mark.parametrize("form", ["release", pytest.param("bag", marks=pytest.mark.nightly)])
def test_a_zip_file_passes(
    form: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the night by all checks; before, those of content are left out: checksums find the files of `release` in it,
    which pass those in test_verify.py."""
    if form == "release":
        monkeypatch.setattr(running, "CHECKS", [one for one in running.CHECKS if one[0] not in OF_CONTENT])
    source: Path = request.getfixturevalue(form)
    name = shutil.make_archive(str(tmp_path / "packed"), "zip", source.parent, source.name)
    rows = running.verify(name)
    assert {row.status for row in rows} == {PASSED}, [row for row in rows if row.status != PASSED]
    assert any(row.check == "bag" for row in rows) == (form == "bag")


def packed(release: Path, path: Path, change: Callable[[zipfile.ZipFile], object] = lambda _: None) -> Path:
    """A zip file of a release, with something more in it."""
    with zipfile.ZipFile(path, "w") as archive:
        for file in sorted(release.rglob("*")):
            archive.write(file, file.relative_to(release.parent))
        change(archive)
    return path


def member(name: str, comment: bytes = b"", extra: bytes = b"") -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    info.comment, info.extra = comment, extra
    return info


def _set_comment(archive: zipfile.ZipFile) -> None:
    archive.comment = b"host-7 is worker-1"


#: What was done to a zip file, and words of the line that must name it.
HIDDEN: dict[str, tuple[Callable[[zipfile.ZipFile], object], str]] = {
    "a comment": (_set_comment, "has a comment of 18 bytes"),
    "a file's comment": (lambda z: z.writestr(member("traces/notes", b"host-7"), "x"), "has a comment of 6 bytes"),
    "an extra field": (
        lambda z: z.writestr(member("traces/notes", extra=b"\xfe\xca\x02\x00hi"), "x"), "extra fields that no usual",
    ),
    "a file beside the release": (lambda z: z.writestr("notes.txt", "host-7"), "is beside the release"),
}  # fmt: skip


@pytest.mark.parametrize("what", HIDDEN)
def test_what_is_hidden_in_a_zip_file_is_named(what: str, folder: Path, tmp_path: Path) -> None:
    change, words = HIDDEN[what]
    path = packed(folder.rename(tmp_path / "traces"), tmp_path / "x.zip", change)
    assert [words] == [words for _, found in zipped.beside_files(path) if words in found]


@pytest.mark.parametrize("at", ["begin", "between", "end"])
def test_bytes_of_no_member_of_a_zip_file_are_named(at: str, folder: Path, tmp_path: Path) -> None:
    path = packed(folder.rename(tmp_path / "traces"), tmp_path / "x.zip")
    assert list(zipped.beside_files(path)) == []
    data, more = path.read_bytes(), b"10.0.0.1 was the first"
    with zipfile.ZipFile(path) as archive:
        start = archive.start_dir
    if at == "begin":
        path.write_bytes(more + data)
    elif at == "between":  # before the list of files, whose place is in the last 6 bytes
        path.write_bytes(data[:start] + more + data[start:-6] + (start + len(more)).to_bytes(4, "little") + b"\0\0")
    else:  # as a comment that is cut from the list: zipfile finds the end in spite of it
        path.write_bytes(data[:-2] + len(more).to_bytes(2, "little") + more)
    found = " ".join(what for _, what in zipped.beside_files(path))
    assert "22 bytes" in found


def test_zip_files_of_other_packers_hide_nothing(folder: Path, tmp_path: Path) -> None:
    """Written to a pipe, sizes follow the members; Info-ZIP adds times and user numbers."""
    release = folder.rename(tmp_path / "traces")
    with (tmp_path / "stream.zip").open("wb") as out:
        writer = Unseekable(out)
        with zipfile.ZipFile(writer, "w", zipfile.ZIP_DEFLATED) as archive:  # type: ignore[call-overload]
            for file in sorted(release.rglob("*")):
                archive.write(file, file.relative_to(release.parent))
    assert list(zipped.beside_files(tmp_path / "stream.zip")) == []
    unix = b"UT\x05\0\x01abcd" + b"ux\x0b\0\x01\x04abcd\x04abcd"
    path = packed(release, tmp_path / "x.zip", lambda z: z.writestr(member("traces/more", extra=unix), "x"))
    assert list(zipped.beside_files(path)) == []


class Unseekable:
    """A pipe's end."""

    def __init__(self, file: IO[bytes]) -> None:
        self.write, self.flush = file.write, file.flush


def test_a_zip_file_that_is_cut_short_or_encrypted(release: Path, tmp_path: Path) -> None:
    path = packed(release, tmp_path / "x.zip")
    data = path.read_bytes()
    (tmp_path / "short.zip").write_bytes(data[: len(data) // 2])
    for read in (running.verify, ddnn_traces.open):
        with pytest.raises(ReleaseError, match=r"short.zip: this zip file was cut short.*download it again"):
            read(tmp_path / "short.zip")
    with zipfile.ZipFile(path) as archive:
        place = archive.start_dir
    path.write_bytes(data[: place + 8] + b"\1" + data[place + 9 :])  # the flags of the first member in the list
    with pytest.raises(ReleaseError, match=r"not unpacked.*encrypted"):
        running.verify(path)


def test_a_file_that_is_not_listed_or_larger_than_stated_is_not_read(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be sparse, and claim any size."""
    large = file_of(folder, "flows")
    for path in (folder / "more.bin", large):
        with path.open("ab") as file:
            file.truncate(200 * 10**9)
    read: list[str] = []
    monkeypatch.setattr(file_checks, "sha256_of", lambda path: read.append(path.name) or "0" * 64)
    wrong = {row.subject: row.detail for row in failures(folder, tmp_path / "scratch") if row.check == "checksums"}
    assert "is not of the release" in wrong["more.bin"]
    detail = wrong[large.relative_to(folder).as_posix()]
    assert "has 200,000,000,000 bytes, release.json states" in detail
    assert "so that it was not read" in detail
    assert read
    assert "more.bin" not in read
    assert len(read) == 1 + len(packaging.files(folder)) - 3


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
