"""A small dataset for the commands."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from small_runs import A, B, C, ring, write_captures

import ddnn_traces
from ddnn_traces.query.dataset import Dataset


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dataset]:
    """A dataset of one run. Not to be changed."""
    top = tmp_path_factory.mktemp("small")
    with ddnn_traces.ingest(write_captures(top / "run", {"a.pcap": ring(A, B, C)}), top / "dataset") as dataset:
        yield dataset
