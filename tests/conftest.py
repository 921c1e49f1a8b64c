"""Fixtures: the shipped sample, the sample as a dataset, and the command line as a process."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tools import COMMAND, FULL, RunCommand

import ddnn_traces
from ddnn_traces.query.dataset import Dataset


@pytest.fixture(scope="session")
def sample() -> Path:
    """Folder of the shipped run folders."""
    return Path(__file__).parents[1] / "data" / "sample"


@pytest.fixture(scope="session")
def sample_dataset(sample: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dataset]:
    """The shipped sample, ingested. Not to be changed."""
    with ddnn_traces.ingest(sample, tmp_path_factory.mktemp("sample") / "dataset") as dataset:
        yield dataset


@pytest.fixture(scope="session")
def full_dataset(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dataset]:
    """The full captures, ingested, for tests that are marked needs_full_captures. Not to be changed."""
    with ddnn_traces.ingest(FULL, tmp_path_factory.mktemp("full") / "dataset") as dataset:
        yield dataset


@pytest.fixture
def command(tmp_path: Path) -> RunCommand:
    """Runs the command line in a process of its own, in tmp_path; no traceback may ever come out of it."""

    def run(*arguments: str | Path, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        done = subprocess.run([*COMMAND, *map(str, arguments)], cwd=tmp_path, input=stdin, capture_output=True)
        assert b"Traceback" not in done.stderr, done.stderr.decode()
        return done

    return run
