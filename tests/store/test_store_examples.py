"""The examples of the pages on clusters and stores, run on them; tests/test_examples.py runs those of other pages."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from pathlib import Path

import ceph
import pytest
from dask_cluster import started
from documented import Once, examples, run_page

pytestmark = pytest.mark.cluster

RUNS = ("tf-mlp1-sgd-32-grpc-0ms-ps", "torch-mlp1-sgd-32-gloo-0ms-ring")


@pytest.fixture
def only_one(once: Once) -> Iterator[None]:
    """The pages name the same bucket, and all test processes have one store: one page at a time."""
    with once("bucket-of-the-pages", Path.touch).open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@pytest.mark.views
@pytest.mark.usefixtures("only_one")
@pytest.mark.parametrize("page", sorted(examples.OF_STORES))
def test_examples_run(
    page: str, s3: ceph.Server, sample: Path, tmp_path: Path, once: Once, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bucket of the pages has captures; the scheduler of the pages is a real one."""
    import s3fs

    for name, value in s3.environment().items():
        monkeypatch.setenv(name, value)
    store = s3fs.S3FileSystem(skip_instance_cache=True)
    store.mkdir("bucket")
    for run in RUNS:
        store.put(str(sample / run), f"bucket/campaign/{run}", recursive=True)
    workers, folder = tmp_path / "workers", tmp_path / "reader"
    workers.mkdir()
    folder.mkdir()
    with started(workers, workers=2) as cluster:
        monkeypatch.setitem(examples.WORDS, "tcp://scheduler:8786", cluster.address)
        monkeypatch.setitem(examples.WORDS, "local:8", "local:2")
        run_page(page, folder, once)
    store.rm("bucket", recursive=True)
