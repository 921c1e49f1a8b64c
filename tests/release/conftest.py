"""Fixtures: two small runs of the sample as a dataset, a release of them, and a run for the leak scan."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from leaks import write_source
from publishing import ABOUT, OTHER, RUN, Run
from tools import Once, RunCommand

import ddnn_traces
from ddnn_traces.query import checks
from ddnn_traces.query.dataset import Dataset
from ddnn_traces.release import leak_scan
from ddnn_traces.release.verify import running, sandbox
from ddnn_traces.release.verify.examined import Examined, Result


@pytest.fixture(scope="session")
def small(sample: Path, once: Once) -> Path:
    """A dataset of two runs. Not to be changed."""
    runs = [sample / RUN, sample / OTHER]
    return once("small", lambda path: ddnn_traces.ingest([*runs], path / "dataset").close()) / "dataset"


@pytest.fixture(scope="session")
def release(small: Path, once: Once) -> Path:
    """A release of it. Not to be changed; its key is in the same folder."""
    return once("release", lambda path: ddnn_traces.publish(small, path / "traces", **ABOUT)) / "traces"


@pytest.fixture
def folder(release: Path, tmp_path: Path) -> Path:
    """A release to be changed."""
    return Path(shutil.copytree(release, tmp_path / "release"))


@pytest.fixture(scope="session")
def bag(small: Path, once: Once) -> Path:
    """A release as a bag. Not to be changed."""
    return once("bag", lambda path: ddnn_traces.publish(small, path / "traces", bagit=True, **ABOUT)) / "traces"


@pytest.fixture
def run(command: RunCommand) -> Run:
    """The command line in tmp_path; output as text."""

    def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
        done = command(*arguments)
        return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())

    return run


@pytest.fixture(scope="session")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder with something of everything that a leak scan looks for. Not to be changed."""
    run = tmp_path_factory.mktemp("alice") / "job-7"
    write_source(run)
    return run


@pytest.fixture(scope="session")
def words(source: Path, tmp_path_factory: pytest.TempPathFactory) -> leak_scan.Words:
    """What a leak scan looks for in a release of it."""
    with ddnn_traces.ingest(source, tmp_path_factory.mktemp("words") / "dataset") as dataset:
        return leak_scan.words(dataset, [str(source)], key=source / "key")


_CHECK, _CHECK_EVERY_RUN = checks.run_checks, checks.run_with_stored_inputs
_CHECKED: dict[object, dict[str, Any]] = {}


@pytest.fixture(autouse=True)
def checked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What data checks find in the same files is computed once, which takes a third of a publish of them. A test that
    replaces a check, and a process, computes it."""

    def run(dataset: Dataset) -> dict[str, Any]:
        if checks.run_checks is not _CHECK:
            return _CHECK_EVERY_RUN(dataset)
        content = hashlib.sha256()
        for path in sorted(Path(dataset.path).rglob("*.parquet")):
            content.update(f"{path.relative_to(dataset.path)} {path.stat().st_size} ".encode() + path.read_bytes())
        key = (content.digest(), tuple(dataset.run_ids))
        if key not in _CHECKED:
            _CHECKED[key] = _CHECK_EVERY_RUN(dataset)
        return _CHECKED[key]

    monkeypatch.setattr(checks, "run_with_stored_inputs", run)


@pytest.fixture(autouse=True)
def verified_here(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """`verify` makes its checks in this process: in one of its own, libraries are loaded anew, a third of its time.
    Tests of that process are marked `apart`."""

    def results(examined: Examined, _names: object, _limits: object) -> Iterator[Result]:
        return running.results(examined, examined.report)

    if request.node.get_closest_marker("apart") is None:
        monkeypatch.setattr(sandbox, "results", results)
