"""Fixtures: two small runs of the sample as a dataset, and a release of them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from publishing import ABOUT

import ddnn_traces


@pytest.fixture(scope="session")
def small(sample: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of two runs. Not to be changed."""
    runs = [sample / "torch-mlp1-sgd-32-gloo-0ms-ring", sample / "mpi-mlp1-sgd-32-openmpi-0ms-ring"]
    out = tmp_path_factory.mktemp("small") / "dataset"
    ddnn_traces.ingest([*runs], out).close()
    return out


@pytest.fixture(scope="session")
def release(small: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A release of it. Not to be changed; its key is in the same folder."""
    out = tmp_path_factory.mktemp("release") / "traces"
    ddnn_traces.publish(small, out, **ABOUT)
    return out


@pytest.fixture
def folder(release: Path, tmp_path: Path) -> Path:
    """A release to be changed."""
    return Path(shutil.copytree(release, tmp_path / "release"))


@pytest.fixture(scope="session")
def bag(small: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A release as a bag. Not to be changed."""
    out = tmp_path_factory.mktemp("bag") / "traces"
    ddnn_traces.publish(small, out, bagit=True, **ABOUT)
    return out
