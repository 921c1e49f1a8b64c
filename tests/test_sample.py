"""The shipped sample is the design that data/README.md states, and its captures hold headers only."""

from __future__ import annotations

import gzip
import itertools
import re
import struct
import tomllib
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ddnn_traces.testbed import matrix
from ddnn_traces.testbed.matrix import Run

DATA = Path(__file__).resolve().parents[1] / "data"
RUNS = matrix.read(DATA / "sample.toml").runs
#: First block: the design. Second block: one condition changed at a time.
DESIGNED, CONDITIONS = RUNS[:36], RUNS[36:]
#: What each mpi algorithm is in the tables.
TOPOLOGIES = {"linear": "star", "binary": "tree"}
MODEL_BYTES = {"mlp1": 940_584, "mlp4": 3_676_200, "mlp12": 11_962_840}


def attributes(run: Run) -> dict[str, object]:
    """The attributes of a run that the regression has."""
    (job,) = run.jobs
    topology = job.kind.topology if job.program != "mpi" else job.options["algorithm"]
    return {
        "model": job.model,
        "framework": job.kind.framework,
        "topology": TOPOLOGIES.get(topology, topology),
        "workers": run.workers,
        "batch_size": job.batch_size,
    }


def test_every_pair_of_levels_is_there_equally_often() -> None:
    rows = [attributes(run) for run in DESIGNED]
    for one, other in itertools.combinations(rows[0], 2):
        pairs = Counter((row[one], row[other]) for row in rows)
        assert len(pairs) == len({row[one] for row in rows}) * len({row[other] for row in rows})
        assert len(set(pairs.values())) == 1, (one, other)
        assert min(pairs.values()) >= 2


def test_the_first_block_differs_in_nothing_else() -> None:
    assert {(run.link, run.capture, run.tolerance, run.background, run.servers) for run in DESIGNED} == {
        (DESIGNED[0].link, DESIGNED[0].capture, DESIGNED[0].tolerance, None, 0)
    }
    assert DESIGNED[0].capture.offload
    assert {(job.steps, job.optimizer, job.pause_ms) for run in RUNS for job in run.jobs} == {(10, "sgd", 50.0)}


def test_a_run_of_the_second_block_differs_from_its_baseline_in_one_condition() -> None:
    baseline = {run.jobs[0].model: run for run in CONDITIONS[:2]}
    for run in CONDITIONS[2:]:
        like = baseline[run.jobs[0].model]
        assert [replace(job, seed=1) for job in run.jobs] == list(like.jobs)  # a repeat has the next seed
        assert (run.link != like.link) + (run.capture != like.capture) == 1
    changed = Counter((run.link, run.capture) for run in CONDITIONS)
    assert set(changed.values()) == {2}


def test_the_condition_number_is_that_of_the_page() -> None:
    """Columns of an intercept, the logarithms of size and workers, and levels against the first, scaled to length 1."""
    rows = [attributes(run) for run in DESIGNED]
    columns = [
        np.ones(len(rows)),
        np.log([MODEL_BYTES[str(row["model"])] for row in rows]),
        np.log([int(str(row["workers"])) for row in rows]),
        *(np.array([row["topology"] == name for row in rows], float) for name in ("star", "tree")),
        np.array([row["framework"] == "mpi" for row in rows], float),
        np.array([row["batch_size"] == 128 for row in rows], float),
    ]
    scaled = np.column_stack([column / np.linalg.norm(column) for column in columns])
    centred = np.column_stack([column - column.mean() for column in columns[1:]])
    inflation = np.diag(np.linalg.inv(np.corrcoef(centred, rowvar=False)))
    page = " ".join((DATA / "README.md").read_text(encoding="utf-8").split())
    stated = re.search(r"condition number is (\d+\.\d+); with centred columns it is (\d+\.\d+)", page)
    assert stated is not None
    lengths = np.linalg.norm(centred, axis=0)
    assert (f"{np.linalg.cond(scaled):.1f}", f"{np.linalg.cond(centred / lengths):.2f}") == stated.groups()
    # the two columns of topology go with each other, since a run has one topology; no attribute with another
    assert inflation == pytest.approx([1, 1, 4 / 3, 4 / 3, 1, 1])


def test_the_folders_are_the_runs_of_the_matrix() -> None:
    folders = {path.name: path for path in (DATA / "sample").iterdir() if path.is_dir()}
    assert sorted(folders) == sorted(run.name for run in RUNS)
    for run in RUNS:
        declared = tomllib.loads((folders[run.name] / "run.toml").read_text())
        wanted = attributes(run)
        assert {key: declared[key] for key in wanted} == wanted
        assert declared["model_bytes"] == MODEL_BYTES[run.jobs[0].model]
        assert "rejected" not in declared
        counts = declared["origin"]["capture"]["counts"].values()
        assert len(counts) == run.workers
        assert {count["dropped_by_kernel"] for count in counts} == {0}


def test_headers_only_and_at_most_20_mb() -> None:
    files = [path for path in (DATA / "sample").rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) <= 20e6
    captures = [path for path in files if path.name.endswith(".pcap.gz")]
    assert len(captures) == sum(run.workers for run in RUNS)
    for path in captures:
        content = gzip.decompress(path.read_bytes())
        assert struct.unpack_from("<I", content, 16) == (66,)  # snaplen: Ethernet, IPv4, TCP with time stamps
