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


def test_a_sound_release_passes_without_a_network(
    release: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In this process: a connection of the one that verify starts would not be seen."""

    def refuse(*_arguments: Any, **_named: Any) -> NoReturn:
        raise AssertionError("verify used the network")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    names: list[str] = []
    rows = list(running.results(Examined(release, tmp_path, jobs=2), report=names.append))
    assert {row.status for row in rows} == {PASSED}, [row for row in rows if row.status != PASSED]
    assert names == [name for name, _ in running.CHECKS]
    of_some = {"bag", "zip file", "captures", "claims"}
    assert {row.check for row in rows} == {name for name, _ in running.CHECKS} - of_some


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
def test_all_failures_are_reported_also_from_an_odd_folder(folder: Path, tmp_path: Path) -> None:
    """Not only the first one. Spaces, percent signs, question marks: libraries read them in ways of their own."""
    odd = tmp_path / "a b" / "p%20x q?x [a]*'\u00fc#"
    odd.parent.mkdir()
    folder.rename(odd)
    rewritten("flows", lambda rows: rows.drop_columns("packets"))(odd)
    (odd / layout.DATACITE).write_text("{}")
    (odd / layout.CITATION).unlink()
    shutil.rmtree(odd / "steps")
    names: list[str] = []
    rows = ddnn_traces.verify(odd, say=names.append).to_dicts()
    assert names == [name for name, _ in running.CHECKS]
    assert not [row for row in rows if "ddnn-traces-" in row["detail"]], "no path of a temporary folder"
    assert {
        "checksums",
        "listed files",
        "columns",
        "data",
        "croissant",
        "data package",
        "DataCite",
        "citation",
        "agreement",
    } <= {row["check"] for row in rows if row["status"] == FAILED}


@pytest.mark.apart
def test_on_the_command_line(folder: Path, tmp_path: Path, command: Any) -> None:
    """A sound release, in an odd folder, and a damaged one."""
    folder = folder.rename(tmp_path / "p%20x q?x [a]*'\u00fc#")
    done = command("verify", folder, "--format", "csv")
    assert done.returncode == 0
    rows = list(csv.DictReader(io.StringIO(done.stdout.decode())))
    assert {row["status"] for row in rows} == {"passed"}
    assert rows[0].keys() == {"check", "subject", "status", "detail"}
    (folder / layout.RELEASE).write_text("changed")  # few checks are made then
    done = command("verify", folder)
    assert done.returncode == 1
    assert b"release.json" in done.stdout
    assert b"failed" in done.stderr
    assert command("verify", "nowhere").returncode == 2
