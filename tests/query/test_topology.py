"""The inferred topology of runs whose topology is known: synthetic ones by the laws, and captures."""

from __future__ import annotations

import json
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest
from tools import FULL, Once, mostly_long, mostly_nightly, needs_full_captures

import ddnn_traces
from ddnn_traces.query import catalogue
from ddnn_traces.query.dataset import Dataset
from ddnn_traces.traffic.collectives import SHAPES
from ddnn_traces.traffic.synthetic import SyntheticRun, write_runs

DATA = Path(__file__).parents[2] / "data"
WORDS = {"ps": "star", "binary_tree": "tree", "gossip": "pair_averaging"}  # of truth.json
KINDS = [(topology, shape) for topology, shapes in SHAPES.items() for shape in shapes]
SIZES = (2, 3, 4, 5, 6, 8, 9, 12, 16)
LARGE = (31, 64)


def same_traffic(topology: str, shape: str, workers: int) -> set[str]:
    """What docs/topology.md says of these runs: names of topologies that send the same."""
    hosts = workers + (1 if shape == "server" else max(2, workers // 2) if shape == "apart" else 0)
    if hosts == 2:
        return {"unknown"}
    if hosts == 3 and not (topology in ("ring", "clique", "pair_averaging") or shape in ("grid", "colocated")):
        return {"star"}
    if topology == "sharded_parameter_server" and shape == "colocated":
        return {"clique"}
    if shape == "grid" and workers == 4:
        return {"halving_doubling"}
    if shape == "grid" and workers in (3, 5, 31):
        return {"ring"}
    if topology == "binary_tree_star" and shape == "groups" and workers <= 8:  # groups of two
        return {"tree"}
    return {topology}


def rooted() -> set[str]:
    """The topologies that have a root, as queries/collective_laws.sql says."""
    laws = catalogue.find("collective_laws")
    with duckdb.connect() as connection:
        rows = connection.sql(laws.sql, params=laws.values({"hosts": 5})).to_arrow_table().to_pylist()
    return {row["topology"] for row in rows if row["is_rooted"]}


ROOTED = rooted()


def make_runs(sizes: tuple[int, ...], **options: object) -> list[SyntheticRun]:
    """A run of every kind and size, named topology|shape|workers."""
    return [
        SyntheticRun(f"{topology}|{shape}|{workers}", topology, shape=shape, workers=workers, steps=6,
                     model_bytes=2_000_000, **options)  # type: ignore[arg-type]
        for topology, shape in KINDS
        for workers in sizes
    ]  # fmt: skip


QUICK = (2, 4, 8)


def inferred_of(file: Path, *groups: tuple[tuple[int, ...], dict[str, object]]) -> None:
    """Write the query's rows of synthetic runs of these sizes with these options."""
    with tempfile.TemporaryDirectory() as folder:
        for sizes, options in groups:
            write_runs(Path(folder), make_runs(sizes, **options))
        with ddnn_traces.open(folder) as dataset:
            dataset.query("topology").write_parquet(file)


def by_name(file: Path) -> dict[str, dict[str, object]]:
    """The row of each run."""
    return {str(row["run_id"]): row for row in pl.read_parquet(file).iter_rows(named=True)}


@pytest.fixture(scope="module")
def quick_ones(once: Once) -> dict[str, dict[str, object]]:
    return by_name(once("topologies", lambda file: inferred_of(file, (QUICK, {}))))


@pytest.fixture(scope="module")
def long_ones(once: Once) -> dict[str, dict[str, object]]:
    """Large runs exchange less, so that the test stays short."""
    small = tuple(size for size in SIZES if size not in QUICK)
    groups = (small, {}), (LARGE, {"bandwidth_mbit": 10_000.0})
    return by_name(once("more-topologies", lambda file: inferred_of(file, *groups)))


@pytest.fixture
def inferred(workers: int, request: pytest.FixtureRequest) -> dict[str, dict[str, object]]:
    """Row of the query topology of each run of this size."""
    rows: dict[str, dict[str, object]] = request.getfixturevalue("quick_ones" if workers in QUICK else "long_ones")
    return rows


def sizes_above(least: int) -> list[Any]:
    """Sizes from `least` as parameters; those that are not quick are long."""
    return mostly_long([size for size in SIZES + LARGE if size >= least], *(size for size in QUICK if size >= least))


@pytest.mark.parametrize("workers", sizes_above(2))
@pytest.mark.parametrize(("topology", "shape"), KINDS)
@pytest.mark.long_after(20)
def test_synthetic_runs_with_noise(
    inferred: dict[str, dict[str, object]], topology: str, shape: str, workers: int
) -> None:
    row = inferred[f"{topology}|{shape}|{workers}"]
    assert row["topology"] in same_traffic(topology, shape, workers), row
    confidence = row["confidence"]
    assert isinstance(confidence, float)
    if row["hosts"] == 2:
        assert (confidence, row["root_ip"]) == (0, None)
        assert str(row["problem"]).startswith("two hosts")
    elif (topology, shape, workers) == ("hierarchical_ring", "leaders", 3):  # a star that does not send what stars do
        assert 0.3 < confidence < 0.85
    else:  # three hosts look alike in many topologies
        assert (0.9 if workers > 3 else 0.85) < confidence <= 1


@pytest.mark.parametrize("workers", sizes_above(3))
@pytest.mark.parametrize(("topology", "shape"), [kind for kind in KINDS if kind[0] in ROOTED])
def test_root_is_the_first_host(
    inferred: dict[str, dict[str, object]], topology: str, shape: str, workers: int
) -> None:
    row = inferred[f"{topology}|{shape}|{workers}"]
    middle = (shape, workers) == ("chain", 3)  # a chain of three is a star around it
    rank = workers if shape == "server" else 1 if middle else 0
    with_rank = {str(ip): number for number, ip in enumerate(sorted_hosts(row, workers + (shape == "server")))}
    assert with_rank[str(row["root_ip"])] == rank


def sorted_hosts(row: dict[str, object], hosts: int) -> list[str]:
    """Addresses of a synthetic run's hosts by rank: they end in 1, 2, ..."""
    net = str(row["root_ip"]).rpartition(".")[0]
    return [f"{net}.{number + 1}" for number in range(hosts)]


@pytest.mark.parametrize(
    "kind",
    mostly_long([("ring", "reduce_scatter"), ("tree", "heap"), ("star", "worker")], ("star", "worker"), name="-".join),
)
def test_without_a_log_all_payload_counts(tmp_path: Path, kind: tuple[str, str]) -> None:
    topology, shape = kind
    logged = SyntheticRun("logged", topology, shape=shape, workers=6, steps=20, model_bytes=3_000_000)
    write_runs(tmp_path / "dataset", [logged, replace(logged, run_id="not logged", log=False, events=False)])
    with ddnn_traces.open(tmp_path / "dataset") as dataset:
        rows = dataset.query("topology").rows(named=True)
    assert [(row["topology"], row["by_steps"]) for row in rows] == [(topology, True), (topology, False)]
    assert rows[0]["confidence"] > rows[1]["confidence"]


@pytest.mark.long
def test_less_is_certain_of_pairs_that_lost_bytes(tmp_path: Path) -> None:
    """Half of what one pair sends is missing: the graph may be the same, its law no longer holds."""
    write_runs(tmp_path / "dataset", [run for run in make_runs((6,)) if run.shape != "grid"])
    with ddnn_traces.open(tmp_path / "dataset") as dataset:
        whole = dataset.query("topology").rows_by_key("run_id", named=True, unique=True)
        heaviest = dataset.sql(
            "SELECT run_id, arg_max(flow_id, payload_bytes) AS flow_id, true AS lossy FROM flows GROUP BY run_id"
        )
    for path in (tmp_path / "dataset").glob("*flow*/*/*.parquet"):
        frame = pl.read_parquet(path, hive_partitioning=False).join(heaviest, on=["run_id", "flow_id"], how="left")
        halved = pl.when("lossy").then(pl.col("payload_bytes") // 2).otherwise("payload_bytes").alias("payload_bytes")
        frame.with_columns(halved).drop("lossy").write_parquet(path)
    with ddnn_traces.open(tmp_path / "dataset") as dataset:
        rows = dataset.query("topology").rows(named=True)
    for row in rows:
        assert row["confidence"] < whole[row["run_id"]]["confidence"], row
        # a pair is a thirty-sixth of all, or more
        assert row["misplaced_share"] is None or row["misplaced_share"] > 0.01, row
        assert row["volume_ratio"] is None or row["volume_ratio"] < 1, row


@pytest.mark.parametrize("workers", mostly_long([3, 5, 8]))
def test_the_law_explains_what_is_sent(workers: int, tmp_path: Path) -> None:
    write_runs(tmp_path / "dataset", make_runs((workers,)))
    with ddnn_traces.open(tmp_path / "dataset") as dataset:
        rows = dataset.query("conservation").rows(named=True)
    assert len(rows) == len(KINDS)
    for row in rows:
        # a group of two and one of one are taken for a star, which sends less
        assert row["flagged"] is (row["run_id"] == "hierarchical_ring|leaders|3"), row
        parts = [row[f"{part}_bytes"] for part in ("payload", "control", "header")]
        assert sum(parts) == row["wire_bytes"]


@pytest.mark.long
def test_a_missing_capture_is_flagged(tmp_path: Path) -> None:
    """What one of four workers of a ring sends is a quarter of all."""
    write_runs(tmp_path / "dataset", [SyntheticRun("r", "ring")])
    with ddnn_traces.open(tmp_path / "dataset") as dataset:
        whole = dataset.query("conservation").row(0, named=True)
    for path in (tmp_path / "dataset").glob("s*_flows/*/*.parquet"):
        frame = pl.read_parquet(path, hive_partitioning=False)
        frame.filter(pl.col("worker") != "worker-2").write_parquet(path)
    with ddnn_traces.open(tmp_path / "dataset") as dataset:
        row = dataset.query("conservation").row(0, named=True)
    assert (whole["flagged"], whole["topology"]) == (False, "ring")
    assert row["flagged"] or row["problem"] == "topology unknown"


def test_ring_order_agrees(tmp_path: Path) -> None:
    order = (3, 0, 4, 1, 2)
    write_runs(tmp_path / "dataset", [SyntheticRun("r", "ring", workers=5, order=order, declare_ring=True)])
    with ddnn_traces.open(tmp_path / "dataset") as dataset:
        assert dataset.query("topology")["topology"].to_list() == ["ring"]
        assert dataset.query("ring_comparison")["agrees"].to_list() == [True]


@pytest.mark.parametrize("workers", mostly_nightly([3, 4, 5, 8, 16], "3", "8"))
@pytest.mark.long
def test_the_declared_topology_agrees_and_another_does_not(workers: int, tmp_path: Path) -> None:
    own = make_runs((workers,))
    as_ring = [replace(run, run_id=f"{run.run_id}|as ring", declared_topology="ring") for run in own]
    write_runs(tmp_path / "dataset", [*own, *as_ring])
    with ddnn_traces.open(tmp_path / "dataset") as dataset:
        rows = {row["run_id"]: row for row in dataset.query("ring_comparison").to_dicts()}
    for run in own:
        row, other = rows[run.run_id], rows[f"{run.run_id}|as ring"]
        assert (row["agrees"], row["problem"]) == (True, None), row
        assert other["agrees"] is (row["inferred_topology"] == "ring"), other


#: A declared word, and the order of the ring and the agreement that follow from it.
DECLARED = (
    ("ring1342", "same", True),
    ("ring1243", "opposite", True),  # the word does not say in which direction
    ("ring1234", "different", False),
    ("ring4", None, True),  # a number of workers, not an order
    ("RING", None, True),
    ("hd", None, False),
    ("clique", None, False),
    ("mesh", None, None),
)


@pytest.mark.parametrize("declared", mostly_long(DECLARED, DECLARED[5], name=lambda declared: declared[0]))
def test_a_declared_word_is_compared(declared: tuple[str, str | None, bool | None], tmp_path: Path) -> None:
    """Of a ring in which worker 1 sends to 3, 3 to 4, 4 to 2 and 2 to 1."""
    word, order, agrees = declared
    ring = SyntheticRun("r", "ring", workers=4, order=(0, 2, 3, 1), declared_topology=word)
    write_runs(tmp_path / "dataset", [ring])
    with ddnn_traces.open(tmp_path / "dataset") as dataset:
        row = dataset.query("ring_comparison").row(0, named=True)
    assert (row["ring_order"], row["agrees"]) == (order, agrees), row
    assert (row["problem"] is None) is (agrees is not None)


def test_sample(sample_dataset: Dataset) -> None:
    """Every shipped run, against what its run.toml declares."""
    declared = sample_dataset.sql("SELECT run_id, topology AS declared FROM runs")
    rows = sample_dataset.query("topology").join(declared, on="run_id")
    star = pl.col("declared").replace({"parameter_server": "star"})
    assert rows.filter(pl.col("topology") != star).select("run_id", "topology", "declared").rows() == []
    assert rows.height == 20


def assert_rooted_at_the_first_rank(dataset: Dataset, runs: int) -> None:
    """Of each declared tree: the programs reduce to rank 0, Open MPI's too."""
    trees = dataset.sql("SELECT run_id, host_ip FROM runs JOIN hosts USING (run_id) "
                        "WHERE topology IN ('tree', 'binary_tree_star') AND rank = 0")  # fmt: skip
    rows = dataset.query("topology").join(trees, on="run_id")
    wrong = rows.filter((pl.col("root_ip") != pl.col("host_ip")) | (pl.col("root_confidence") < 0.9))
    assert wrong.select("run_id", "root_ip", "root_confidence").rows() == []
    assert rows.drop_nulls("root_ip").height == runs


@pytest.mark.long
def test_root_of_released_trees() -> None:
    with ddnn_traces.open(DATA / "dataset", read_only=True) as dataset:
        assert_rooted_at_the_first_rank(dataset, 18)


@pytest.mark.long
def test_root_of_trees_of_the_sample(tmp_path: Path) -> None:
    """mlp12's transfers are segments: both directions of a link are busy at once."""
    with ddnn_traces.ingest(
        [str(folder) for folder in sorted((DATA / "sample").glob("*-tree-*"))], tmp_path / "d"
    ) as dataset:
        assert_rooted_at_the_first_rank(dataset, 12)


@pytest.mark.long
def test_one_worker_and_one_server_have_no_topology() -> None:
    with ddnn_traces.open(DATA / "dataset", read_only=True) as dataset:
        pairs = dataset.query("topology").filter(pl.col("hosts") == 2)
        rings = dataset.query("ring_order").filter("is_ring")["run_id"].unique()
        assert pairs["topology"].unique().to_list() == ["unknown"]
        assert pairs.height == 102
        assert not set(pairs["run_id"]) & set(rings)
        assert (
            dataset.query("conservation").filter(pl.col("run_id").is_in(pairs["run_id"].to_list()))["law"].null_count()
            == 0
        )


@needs_full_captures
def test_full_captures(full_dataset: Dataset) -> None:
    wrong = []
    for row in full_dataset.query("topology").iter_rows(named=True):
        truth = json.loads((FULL / row["run_id"] / "truth.json").read_text())
        if row["topology"] != WORDS.get(truth["topology"], truth["topology"]):
            wrong.append((row["run_id"], row["topology"]))
        if row["topology"] in ("star", "tree") and row["root_ip"] != "10.10.0.1":
            wrong.append((row["run_id"], row["root_ip"]))
    assert wrong == []
