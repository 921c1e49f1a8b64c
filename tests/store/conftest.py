"""Fixtures of datasets on a real S3 server, for the tests marked cluster."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import ceph
import pytest
from tools import Once, needs_package

import ddnn_traces

SMALL = (
    "mpi-mlp1-sgd-32-openmpi-0ms-ring-sll2",
    "mpi-mlp12-sgd-32-openmpi-0ms-ring-tso",
)


@pytest.fixture(scope="session")
def s3(once: Once) -> ceph.Server:
    """Ceph's object gateway, one for all test processes; tests/conftest.py ends it."""
    needs_package("deltalake")
    needs_package("s3fs")
    return ceph.Server(once(ceph.SHARED, ceph.start_shared).read_text().splitlines()[1])


@pytest.fixture
def bucket(s3: ceph.Server, monkeypatch: pytest.MonkeyPatch) -> str:
    """URL of a new bucket; the environment is that of its owner."""
    import s3fs

    for name, value in s3.environment().items():
        monkeypatch.setenv(name, value)
    name = f"test-{uuid4().hex}"
    s3fs.S3FileSystem(skip_instance_cache=True).mkdir(name)
    return f"s3://{name}"


@pytest.fixture(scope="session")
def local(sample: Path, once: Once) -> Path:
    """Two captures as a dataset in a folder. Not to be changed."""
    return once("delta-local", lambda path: ddnn_traces.ingest([sample / run for run in SMALL], path).close())


@pytest.fixture(scope="session")
def newer(sample: Path, once: Once) -> Path:
    """The same runs with other windows: other files."""
    sources = [sample / run for run in SMALL]
    return once("delta-newer", lambda path: ddnn_traces.ingest(sources, path, window_ms=4).close())
