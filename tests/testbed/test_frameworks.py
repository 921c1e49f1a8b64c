"""Ten steps of real frameworks in namespaces, ingested: topology and volume are those that the programs declare.

DDNN_TRACES_TORCH_PYTHON is a Python that has PyTorch, numpy and mpi4py, DDNN_TRACES_TENSORFLOW_PYTHON one that has
TensorFlow.
"""

from __future__ import annotations

import os
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

import ddnn_traces
from ddnn_traces import testbed
from ddnn_traces.messages import Messages
from ddnn_traces.query.dataset import Dataset

TORCH = os.environ.get("DDNN_TRACES_TORCH_PYTHON", sys.executable)
TENSORFLOW = os.environ.get("DDNN_TRACES_TENSORFLOW_PYTHON", sys.executable)
STEPS, SIZE = 10, 940_584

DEFAULTS = f"""
[defaults]
steps = {STEPS}
workers = 3
measure = false
"""
WITH_TORCH = """
[[runs]]
program = "ddp"
[[runs]]
program = "mpi"
[[runs]]
program = "mpi"
options.algorithm = ["recursive_doubling", "rabenseifner"]
workers = 4
[[runs]]
program = "ps"
[[runs]]
jobs = [{ program = "ring", options = { order = "0,2,1" } }, { program = "fsdp" }]
"""
DDP, MPI, PS, JOBS = (
    "torch-mlp1-sgd-32-gloo-normal-ring-n3", "mpi-mlp1-sgd-32-openmpi-normal-ring-n3",
    "torchp2p-mlp1-sgd-32-gloo-normal-ps-n3", "jobs-ring-fsdp-normal-n3",
)  # fmt: skip
WITH_TENSORFLOW = """
[[runs]]
program = ["tf_mirrored", "tf_ps"]
"""
MIRRORED, TF_PS = "tf-mlp1-sgd-32-grpc-normal-ring-n3", "tf-mlp1-sgd-32-grpc-normal-ps-n3"


def made(folder: Path, runs: str, python: dict[str, str]) -> Iterator[Dataset]:
    """The runs of a matrix, made and ingested."""
    matrix = folder / "matrix.toml"
    matrix.write_text(DEFAULTS + runs)
    outcomes = testbed.run(matrix, folder / "captures", Messages(), python)
    assert [outcome for outcome in outcomes if outcome.outcome != "made"] == []
    with ddnn_traces.ingest(folder / "captures", folder / "dataset") as dataset:
        yield dataset


@pytest.fixture(scope="module")
def with_torch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dataset]:
    yield from made(tmp_path_factory.mktemp("torch"), WITH_TORCH, {"torch": TORCH, "mpi": TORCH})


@pytest.fixture(scope="module")
def with_tensorflow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dataset]:
    yield from made(tmp_path_factory.mktemp("tensorflow"), WITH_TENSORFLOW, {"tensorflow": TENSORFLOW})


def inferred(dataset: Dataset) -> dict[str, str]:
    """Topologies found in the traffic, by run."""
    return dict(dataset.query("topology").select("run_id", "topology").rows())


def sent_a_step(dataset: Dataset, run: str) -> pl.Series:
    """Model sizes that each pair of hosts sends in a step: of the pairs that send half a model or more."""
    rows = dataset.query("traffic_matrix").filter(run_id=run)
    shares = rows.with_columns(share=pl.col("payload_bytes") / (STEPS * SIZE))
    return shares.filter(pl.col("share") > 0.5)["share"].sort()


@pytest.mark.testbed
@pytest.mark.parametrize(("run", "order"), [(DDP, [0, 2, 1]), (MPI, [0, 1, 2])])
def test_a_ring_is_found_and_carries_what_an_all_reduce_needs(with_torch: Dataset, run: str, order: list[int]) -> None:
    assert inferred(with_torch)[run] == "ring"
    compared = with_torch.query("ring_comparison").filter(run_id=run)
    assert compared["inferred_ring"].item() == " > ".join(f"worker-{rank + 1}" for rank in order)
    assert compared["agrees"].item()
    shares = sent_a_step(with_torch, run)
    assert len(shares) == 3
    # 2(N-1)/N, headers of messages, the first weights once, and what was sent again
    assert 4 / 3 <= shares.min() <= shares.max() < 4 / 3 * 1.15


@pytest.mark.testbed
@pytest.mark.parametrize(("named", "topology"), [("recdoubling", "recursive_doubling"), ("halving_doubling",) * 2])
def test_algorithms_of_open_mpi_are_found(with_torch: Dataset, named: str, topology: str) -> None:
    assert inferred(with_torch)[f"mpi-mlp1-sgd-32-openmpi-normal-{named}-n4"] == topology


@pytest.mark.testbed
def test_a_parameter_server_is_found(with_torch: Dataset) -> None:
    assert inferred(with_torch)[PS] == "star"  # what one server and its workers are
    assert (
        with_torch.sql(f"SELECT label FROM hosts WHERE run_id = '{PS}' AND role = 'parameter_server'").item() == "ps-1"
    )
    shares = sent_a_step(with_torch, PS)
    assert len(shares) == 6
    assert 1 <= shares.min() <= shares.max() < 1.15


@pytest.mark.testbed
def test_two_jobs_at_the_same_time_are_both_there(with_torch: Dataset) -> None:
    """The run declares neither model nor topology; both have their groups, and the bytes of both are in the capture."""
    row = with_torch.sql(f"SELECT model, topology, workers FROM runs WHERE run_id = '{JOBS}'").rows()
    assert row == [(None, None, 3)]
    folder = with_torch.path.parent / "captures" / JOBS
    assert (folder / "events-worker-1.csv").is_file()
    assert (folder / "job2" / "events-worker-1.csv").is_file()
    ring, fsdp = tomllib.loads((folder / "run.toml").read_text())["origin"]["jobs"]
    assert ring["ring_order"] == [0, 2, 1]
    gathered = sum(
        one["bytes"] * one["per_step"] for one in fsdp["groups"][0]["collectives"] if one["kind"] == "allgather"
    )
    assert gathered >= 2 * SIZE
    sent = with_torch.sql(f"SELECT sum(payload_bytes) FROM flows WHERE run_id = '{JOBS}'").item()
    # of the ring 2(N-1) S a step, of each all-gather (N-1) S
    assert sent > STEPS * (4 * SIZE + 2 * gathered)


@pytest.mark.testbed
def test_each_step_of_a_real_framework_is_logged(with_torch: Dataset) -> None:
    rows = with_torch.sql("SELECT run_id, worker, count(*) FROM steps GROUP BY ALL ORDER BY ALL").rows()
    assert {count for _, _, count in rows} == {STEPS}
    assert len({run for run, _, _ in rows}) == 6


@pytest.mark.tensorflow
def test_tensorflow(with_tensorflow: Dataset) -> None:
    assert inferred(with_tensorflow)[MIRRORED] == "ring"
    roles = dict(with_tensorflow.sql(f"SELECT label, role FROM hosts WHERE run_id = '{TF_PS}'").rows())
    assert roles["ps-1"] == "parameter_server"
    assert roles["chief-1"] == "chief"
    assert inferred(with_tensorflow)[TF_PS] in ("parameter_server", "star")
