"""verify: a sound release passes whatever its form, every check can fail, and each failure is reported."""

from __future__ import annotations

import csv
import io
import shutil
import socket
from pathlib import Path
from typing import Any, NoReturn

import pytest
from damages import DAMAGES, FIRST, expected, rewritten

import ddnn_traces
from ddnn_traces.release.verify import running
from ddnn_traces.release.verify.examined import FAILED, PASSED, Examined
from ddnn_traces.store import layout


def test_every_check_can_fail() -> None:
    names = [name for name, _ in running.CHECKS]
    assert len(set(names)) == len(names)
    assert {check for _, check, _ in DAMAGES.values()} | {"bag", "zip file", "captures"} == set(names)


def test_a_sound_release_passes_without_a_network(release: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_arguments: Any, **_named: Any) -> NoReturn:
        raise AssertionError("verify used the network")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    names: list[str] = []
    rows = ddnn_traces.verify(release, say=names.append)
    assert set(rows["status"]) == {PASSED}, rows.filter(rows["status"] != PASSED).to_dicts()
    assert names == [name for name, _ in running.CHECKS]
    assert set(rows["check"]) == {name for name, _ in running.CHECKS} - {"bag", "zip file", "captures"}


@pytest.mark.long
def test_all_failures_are_reported_not_only_the_first(folder: Path) -> None:
    rewritten("flows", lambda rows: rows.drop_columns("packets"))(folder)
    (folder / layout.DATACITE).write_text("{}")
    failed = {row.check for row in running.verify(folder) if row.status == FAILED}
    assert {
        "checksums",
        "listed files",
        "columns",
        "data",
        "croissant",
        "data package",
        "DataCite",
        "agreement",
    } <= failed


def test_an_unexpected_error_of_a_library_is_a_failure_of_its_check(
    release: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stumble(_examined: Examined) -> NoReturn:
        raise KeyError("no\nsuch\x1b[31m column")

    first = [(name, check) for name, check in running.CHECKS if name in FIRST]
    monkeypatch.setattr(running, "CHECKS", [*first, ("data", stumble), ("licence", dict(running.CHECKS)["licence"])])
    tmp_path.joinpath("scratch").mkdir()
    rows = list(running.results(Examined(release, tmp_path / "scratch", jobs=1)))
    assert not expected(rows)
    assert [(row.check, row.status) for row in rows[-2:]] == [("data", FAILED), ("licence", PASSED)]
    assert rows[-2].detail.isprintable()


@pytest.mark.long
def test_the_folder_of_a_release_does_not_matter(release: Path, tmp_path: Path) -> None:
    """Spaces, percent signs, question marks: libraries read them in ways of their own."""
    folder = tmp_path / "a b" / "p%20x q?x [a]*'\u00fc#"
    shutil.copytree(release, folder)
    rows = running.verify(folder)
    assert {row.status for row in rows} == {PASSED}, [row for row in rows if row.status != PASSED]
    (folder / layout.CITATION).unlink()
    shutil.rmtree(folder / "steps")
    assert not [row for row in running.verify(folder) if "ddnn-traces-" in row.detail], "no path of a temporary folder"


def test_on_the_command_line(release: Path, folder: Path, command: Any) -> None:
    done = command("verify", release, "--format", "csv")
    assert done.returncode == 0
    rows = list(csv.DictReader(io.StringIO(done.stdout.decode())))
    assert {row["status"] for row in rows} == {"passed"}
    assert rows[0].keys() == {"check", "subject", "status", "detail"}
    (folder / layout.CARD).write_text("changed")
    done = command("verify", folder)
    assert done.returncode == 1
    assert b"README.md" in done.stdout
    assert b"failed" in done.stderr
    assert command("verify", "nowhere").returncode == 2
