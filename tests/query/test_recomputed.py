"""Results of queries, computed anew from the files by tests/independent.py and numpy: equal to the last digit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from independent import Run, read_run, text
from tools import FULL, mostly_long, needs_full_captures

from ddnn_traces.query.dataset import Dataset

SAMPLE = Path(__file__).parents[2] / "data" / "sample"


def folders(root: Path) -> list[Path]:
    return sorted(path for path in root.glob("*") if path.is_dir())


#: A framework or topology each.
QUICK = tuple(SAMPLE / name for name in (
    "mpi-mlp1-sgd-32-openmpi-0ms-recdoubling", "mpi-mlp1-sgd-32-openmpi-0ms-ring-sll2", "tf-mlp1-sgd-32-grpc-0ms-ps",
    "tf-mlp1-sgd-32-grpc-0ms-ring", "torch-mlp1-sgd-32-gloo-0ms-ring-both", "torch-mlp1-sgd-32-gloo-0ms-ring-loss05",
    "torchp2p-mlp1-pairavg-32-gloo-0ms-gossip", "torchp2p-mlp1-sgd-32-gloo-0ms-ps",
    "torchp2p-mlp1-sgd-32-gloo-0ms-star", "torchp2p-mlp1-sgd-32-gloo-0ms-tree",
))  # fmt: skip

of_the_sample = pytest.mark.parametrize("folder", mostly_long(folders(SAMPLE), *QUICK, name=lambda path: path.name))
of_the_full_captures = pytest.mark.parametrize("folder", folders(FULL), ids=lambda path: path.name)


@of_the_sample
def test_volumes(sample_dataset: Dataset, folder: Path) -> None:
    assert_volumes(sample_dataset, folder)


@needs_full_captures
@of_the_full_captures
def test_volumes_of_the_full_captures(full_dataset: Dataset, folder: Path) -> None:
    assert_volumes(full_dataset, folder)


def assert_volumes(dataset: Dataset, folder: Path) -> None:
    run = read_run(folder)
    steps = "SELECT step, wire_bytes, payload_bytes FROM step_volume WHERE run_id = $1 ORDER BY step"
    assert dataset.sql(steps, [folder.name]).rows() == list(step_volumes(run))
    pairs = "SELECT * EXCLUDE run_id FROM traffic_matrix WHERE run_id = $1 ORDER BY ALL"
    assert dataset.sql(pairs, [folder.name]).rows() == sorted(pair_volumes(run))


def step_volumes(run: Run) -> Iterator[tuple[int, int, int]]:
    """Step, wire bytes and payload of each step with packets."""
    for step in np.unique(run.step[run.in_steps]):
        packets = run.packets[run.step == step]
        yield int(step), int(packets["wire"].sum()), int(packets["payload"].sum())


def pair_volumes(run: Run) -> Iterator[tuple[str, str, int, int, int]]:
    """Source, destination, wire bytes, payload and packets of each pair of hosts."""
    for src, dst in np.unique(run.packets[["src", "dst"]]).tolist():
        packets = run.packets[(run.packets["src"] == src) & (run.packets["dst"] == dst)]
        yield text(src), text(dst), int(packets["wire"].sum()), int(packets["payload"].sum()), len(packets)
