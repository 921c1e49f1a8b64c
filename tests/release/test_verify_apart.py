"""verify: the checks run in a process of their own, which a hostile release cannot keep, fill or kill for long."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddnn_traces.release.verify import running, sandbox
from ddnn_traces.release.verify.examined import FAILED, NOT_CHECKED, PASSED, Examined, Result

pytestmark = pytest.mark.apart

NAMES = [name for name, _ in running.CHECKS]

#: The process, in which a few checks are made, and what one of them does.
BROKEN = """
import json, os, signal, sys
sys.path[:] = json.loads(sys.argv[1])
from ddnn_traces.release.verify import running
wanted = ("links and names", "release.json", "sizes", "data", "licence", "datasheet")
def broken(examined):
    BODY
    yield
running.CHECKS = tuple((n, broken if n == "data" else c) for n, c in running.CHECKS if n in wanted)
running.main()
"""
WANTED = ["links and names", "release.json", "sizes", "data", "licence", "datasheet"]


def made(folder: Path, scratch: Path, limits: sandbox.Limits, names: list[str]) -> list[Result]:
    scratch.mkdir()
    return list(sandbox.results(Examined(folder, scratch, 1), names, limits))


@pytest.mark.parametrize(
    ("body", "limits", "words"),
    [
        ("os.kill(os.getpid(), signal.SIGKILL)", sandbox.Limits(2**40, 1e6), "ended with code -9"),
        ("held = b'x' * 2**30; signal.pause()", sandbox.Limits(2**30, 1e6), "bytes of memory"),
        pytest.param("signal.pause()", sandbox.Limits(2**40, 15), "more than 15 seconds", marks=pytest.mark.long),
    ],
)
def test_a_check_that_crashes_or_takes_too_much_fails_and_the_others_are_made(
    release: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, limits: sandbox.Limits, words: str
) -> None:
    monkeypatch.setattr(sandbox, "_CODE", BROKEN.replace("BODY", body))
    rows = made(release, tmp_path / "scratch", limits, WANTED)
    assert [(row.check, row.status) for row in rows] == [
        (name, FAILED if name == "data" else PASSED) for name in WANTED
    ]
    assert words in rows[3].detail


def test_where_the_first_check_ends_nothing_is_called_right(release: Path, tmp_path: Path) -> None:
    rows = made(release, tmp_path / "scratch", sandbox.Limits(1, 1e6), NAMES[:3])
    assert {row.status for row in rows} <= {FAILED, NOT_CHECKED}
    assert [row.check for row in rows] == NAMES[:3]


def test_the_limits_follow_the_bytes_that_are_there(tmp_path: Path) -> None:
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(200 * 10**9)
    assert sandbox.limits(tmp_path).seconds < sandbox._SECONDS + 1
    (tmp_path / "full").write_bytes(bytes(range(256)) * 40_000)
    assert sandbox.limits(tmp_path).seconds >= sandbox._SECONDS + 10
