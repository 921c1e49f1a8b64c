"""Fixtures of the traffic model: a dataset of generated runs, some captured runs, and the models fitted to them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from model_documents import KNOWN, MPI, ODD, PULL, RINGS

import ddnn_traces
from ddnn_traces.query.dataset import Dataset
from ddnn_traces.traffic import model
from ddnn_traces.traffic.model import Document
from ddnn_traces.traffic.model.generation import ModelledRun
from ddnn_traces.traffic.synthetic import make_traffic
from ddnn_traces.traffic.table_writer import write_traffic


@pytest.fixture(scope="session")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dataset]:
    """Runs known, pull and odd. Not to be changed."""
    path = tmp_path_factory.mktemp("generated") / "dataset"
    odd = ModelledRun("odd", "unknown", 4, 1_000_000, 20, noise=0.0, relative=ODD)
    write_traffic(path, map(make_traffic, (KNOWN, PULL, odd)))
    with ddnn_traces.open(path) as dataset:
        yield dataset


@pytest.fixture(scope="session")
def captured(sample_dataset: Dataset) -> Iterator[Dataset]:
    """Some of the sample's runs."""
    with ddnn_traces.open(sample_dataset.path, [*RINGS, *MPI, "torch-mlp4-sgd-32-gloo-0ms-ring-tso"]) as dataset:
        yield dataset


@pytest.fixture(scope="session")
def document(captured: Dataset) -> Document:
    """A model of captured rings. Not to be changed."""
    return model.fit(captured, RINGS)


@pytest.fixture
def known(generated: Dataset) -> Document:
    return model.fit(generated, ["known"])
