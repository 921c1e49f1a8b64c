"""The walk-through of docs/zerwas_dataset.md, on a fabricated copy of the published dataset's layout."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
from tools import script

import ddnn_traces
from ddnn_traces.release.push.upload_contents import read
from ddnn_traces.release.push.zenodo import archive_of

ROOT = Path(__file__).parents[2]
#: Enough of them for each kind of name: loss, a topology in capitals, a framework with an underscore.
RUNS = (
    "torch-mlp1-sgd-32-gloo-0ms-ring-loss05",
    "torchp2p-mlp1-sgd-32-gloo-0ms-tree",
    "mpi-mlp1-sgd-32-openmpi-0ms-ring",
)


@pytest.fixture(scope="module")
def fabricate() -> Callable[..., list[Path]]:
    """`fabricate` of tests/traces/zerwas_layout.py, which is a script."""
    module = script("tests/traces/zerwas_layout.py")
    names = {run: module.NAMES[run] for run in RUNS}
    return lambda captures, out, packed=False: module.fabricate(captures, out, packed, names)


def commands() -> list[list[str]]:
    """Of the walk-through, as a shell would split them."""
    text = (ROOT / "docs" / "zerwas_dataset.md").read_text().partition("## Walk-through")[2].partition("\n## ")[0]
    lines = [line.strip() for line in text.splitlines() if line.startswith("    ddnn-traces ")]
    return [shlex.split(line)[1:] for line in lines]


def test_walk_through(
    fabricate: Callable[..., list[Path]], sample: Path, tmp_path: Path, command: Callable[..., object]
) -> None:
    fabricate(sample, tmp_path / "published")
    wanted = commands()
    assert [words[0] for words in wanted] == ["ingest", "runs", "check", "publish", "verify", "push", "push"]
    for words in wanted:
        done = command(*words)
        assert done.returncode == 0, done.stderr.decode()  # type: ignore[attr-defined]
    assert not list((tmp_path / "archive").rglob("*.key"))
    packed = tmp_path / "release.zip"  # as push sends it to Zenodo
    packed.write_bytes(b"".join(archive_of(read(tmp_path / "release"))))
    with ddnn_traces.open(packed) as released, ddnn_traces.open(tmp_path / "zerwas") as dataset:
        asked_for = "SELECT count(*), sum(packets), sum(wire_bytes) FROM flows"
        assert released.sql(asked_for).rows() == dataset.sql(asked_for).rows()
    with ddnn_traces.open(tmp_path / "archive" / "1.0.0") as released:
        runs = released.sql("SELECT framework, model, backend, topology, loss_pct, model_size_mb FROM runs").rows()
        assert sorted(runs) == [
            ("horovod", "mobilenetv2", "mpi", "ring", 0.0, 14.0),
            ("kungfu_ssgd", "mobilenetv2", "kungfu", "tree", 0.0, 14.0),
            ("tf_sync", "mobilenetv2", "grpc_nccl", "ring", 0.5, 14.0),
        ]
        steps = released.sql("SELECT DISTINCT worker, count(*) OVER (PARTITION BY run_id) FROM steps").rows()
        assert steps == [("worker-0", 5)]
        ranks = released.sql("SELECT DISTINCT label, rank FROM hosts ORDER BY ALL").rows()
        assert ranks == [(f"worker-{number}", number) for number in range(4)]


def test_packed_and_nested(fabricate: Callable[..., list[Path]], sample: Path, tmp_path: Path) -> None:
    """Captures as .pcap.gz, folders in folders, a README next to them: the same flows."""
    fabricate(sample, tmp_path / "plain")
    fabricate(sample, tmp_path / "packed" / "traces" / "2021", packed=True)
    (tmp_path / "packed" / "README.txt").write_text("Traces of distributed training.")
    wanted = "SELECT run_id, count(*), sum(packets), sum(wire_bytes) FROM flows GROUP BY run_id ORDER BY run_id"
    tables = []
    for name in ("plain", "packed"):
        with ddnn_traces.ingest(tmp_path / name, tmp_path / f"{name}-dataset") as dataset:
            tables.append(dataset.sql(wanted).rows())
    assert tables[0] == tables[1]
    assert len(tables[0]) == len(RUNS)
