"""Runs of a toy program in namespaces: what is in their folders, and that ingest takes them as they are."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from tools import COMMAND

import ddnn_traces
from ddnn_traces import testbed
from ddnn_traces.messages import Messages
from ddnn_traces.query.dataset import Dataset

pytestmark = pytest.mark.testbed
TOY = Path(__file__).with_name("toy.py")
STEPS, SIZE = 10, 200_000

MATRIX = """
[defaults]
program = "star"
workers = 3
steps = 10
measure = false
[[runs]]
[[runs]]
capture = { direction = "both", offload = false, compress = false, snaplen = 80 }
link = { shaper = "htb", congestion_control = "cubic", rate_mbit = 500 }
"""
PLAIN = "torchp2p-mlp1-sgd-32-gloo-normal-star-n3"
OTHER = "torchp2p-mlp1-sgd-32-gloo-500mbit-star-n3-cubic-nooffload-both"


def toy_python(folder: Path) -> str:
    """A Python that runs the toy, whatever it is asked for."""
    path = folder / "python"
    path.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{TOY}" "$@"\n')
    path.chmod(0o755)
    return str(path)


@pytest.fixture(scope="module")
def captures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("testbed")
    matrix = folder / "matrix.toml"
    matrix.write_text(MATRIX)
    outcomes = testbed.run(matrix, folder / "out", Messages(), {"torch": toy_python(folder)})
    assert [(outcome.name, outcome.outcome) for outcome in outcomes] == [(PLAIN, "made"), (OTHER, "made")], outcomes
    return folder / "out"


@pytest.fixture(scope="module")
def dataset(captures: Path) -> Iterator[Dataset]:
    with ddnn_traces.ingest(captures, captures.parent / "dataset") as opened:
        yield opened


def test_ingest_takes_the_folders_as_they_are(dataset: Dataset) -> None:
    rows = dataset.sql(
        "SELECT run_id, source, topology, model_bytes, workers, bandwidth_mbit FROM runs ORDER BY 1"
    ).rows()
    assert rows == [(OTHER, "testbed", "star", SIZE, 3, 500.0), (PLAIN, "testbed", "star", SIZE, 3, 1000.0)]
    assert dataset.sql("SELECT count(*) FROM captures WHERE status <> 'complete'").item() == 0
    assert dataset.sql("SELECT max(kernel_dropped_packets), count(kernel_dropped_packets) FROM captures").rows() == [
        (0, 6)
    ]
    assert dataset.sql("SELECT DISTINCT count(*) FROM steps GROUP BY run_id, worker").rows() == [(STEPS,)]


def test_every_byte_of_the_training_is_there_once(dataset: Dataset) -> None:
    payload = """
        SELECT run_id, src_ip, dst_ip, sum(payload_bytes)::BIGINT - sum(retransmitted_bytes)::BIGINT
        FROM flows WHERE 29500 IN (src_port, dst_port) GROUP BY ALL ORDER BY ALL
    """
    pairs = [("10.10.0.1", f"10.10.0.{n}") for n in (2, 3)] + [(f"10.10.0.{n}", "10.10.0.1") for n in (2, 3)]
    assert dataset.sql(payload).rows() == [
        (run, *pair, STEPS * SIZE) for run in (OTHER, PLAIN) for pair in sorted(pairs)
    ]


def test_the_counts_in_run_toml_are_those_of_the_files(captures: Path, dataset: Dataset) -> None:
    for run in (PLAIN, OTHER):
        counts = tomllib.loads((captures / run / "run.toml").read_text())["origin"]["capture"]["counts"]
        rows = dataset.sql(f"SELECT capture_id, records FROM captures WHERE run_id = '{run}'").rows()
        records = {Path(capture).name.split("-tcpdump")[0]: count for capture, count in rows}
        assert {label: count["captured"] for label, count in counts.items()} == records


def test_links_are_not_measured_where_the_matrix_says_so(captures: Path) -> None:
    link = tomllib.loads((captures / PLAIN / "run.toml").read_text())["origin"]["link"]
    assert (link["measured_before"], link["measured_after"]) == ([], [])


def test_frames_are_as_asked_for(dataset: Dataset) -> None:
    largest = "SELECT run_id, max(wire_bytes / packets) FROM flows WHERE payload_bytes > 1e6 GROUP BY run_id"
    mean_bytes = dict(dataset.sql(largest).rows())
    assert mean_bytes[OTHER] <= 1514
    assert mean_bytes[PLAIN] > 1514


def test_nothing_of_this_machine_is_in_run_toml(captures: Path) -> None:
    text = (captures / PLAIN / "run.toml").read_text()
    assert str(captures.parent) not in text
    assert sys.executable not in text


def test_runs_that_are_there_stay(captures: Path) -> None:
    matrix = captures.parent / "matrix.toml"
    before = (captures / PLAIN / "run.toml").stat().st_mtime_ns
    command = [
        *COMMAND,
        "testbed",
        str(matrix),
        "--out",
        str(captures),
        "--python",
        f"torch={toy_python(captures.parent)}",
    ]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    assert f"1 of 2: {PLAIN}: is there, left as it is" in said
    assert (captures / PLAIN / "run.toml").stat().st_mtime_ns == before
