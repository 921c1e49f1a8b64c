"""Synthetic runs: whole by the checks, true to the law of their collective, the same bytes again."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow.parquet as pq
import pytest

import ddnn_traces
from ddnn_traces.errors import UsageError
from ddnn_traces.query import checks
from ddnn_traces.query.dataset import Dataset
from ddnn_traces.store import parquet, schema
from ddnn_traces.traffic.collectives import SHAPES
from ddnn_traces.traffic.pcaps import write_folder
from ddnn_traces.traffic.synthetic import SyntheticRun, make_traffic, write_runs

ALL = [(topology, shape) for topology, shapes in SHAPES.items() for shape in shapes]
SIZE = 300_000


def run_name(topology: str, shape: str) -> str:
    return f"{topology}-{shape}"


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """A run of every shape with 6 workers."""
    folder = tmp_path_factory.mktemp("synthetic") / "dataset"
    runs = [
        SyntheticRun(run_name(topology, shape), topology, 6, SIZE, 12, shape, compute_ms=20) for topology, shape in ALL
    ]
    assert write_runs(folder, runs) == [run.run_id for run in runs]
    return ddnn_traces.open(folder)


def single(folder: Path, **fields: object) -> Dataset:
    """A dataset of one small ring with these fields."""
    given = {"run_id": "r", "topology": "ring", "model_bytes": SIZE, "steps": 8, "compute_ms": 20} | fields
    write_runs(folder / "dataset", [SyntheticRun(**given)])  # type: ignore[arg-type]
    return ddnn_traces.open(folder / "dataset")


# --- whole


@pytest.mark.long
def test_all_checks_are_clean(dataset: Dataset) -> None:
    results = checks.run_with_stored_inputs(dataset)
    assert {"ledger", "flow_parts"} <= set(results)
    assert [name for name, rows in results.items() if rows.num_rows] == []


@pytest.mark.parametrize("name", schema.TABLES)
def test_files_are_as_those_of_ingest(name: str, dataset: Dataset) -> None:
    """Schema, order and the writer's metadata."""
    run_id = run_name("ring", "reduce_scatter")
    file = pq.ParquetFile(parquet.partition(dataset.path, name, run_id) / "part-0.parquet")
    arrow = schema.table(name).arrow()
    assert file.schema_arrow.names == arrow.names
    assert file.schema_arrow.types == arrow.types
    assert b'"synthetic": {' in file.schema_arrow.metadata[b"ddnn_traces.parameters"]
    table = pl.DataFrame(file.read())
    assert_keys_ascend(table, schema.table(name).key)


def assert_keys_ascend(table: pl.DataFrame, key: tuple[str, ...]) -> None:
    rows = [tuple((value is not None, value) for value in row) for row in table.select(key).rows()]
    assert rows == sorted(rows)
    assert len(set(rows)) == len(rows)


@pytest.mark.parametrize(
    "name", ["runs", "hosts", "captures", "flows", "flow_windows", "steps", "step_flows", "events"]
)
def test_columns_that_are_never_null_are_not(name: str, dataset: Dataset) -> None:
    table = dataset.sql(f"FROM {name}")
    assert table.height > 0
    needed = [column.name for column in schema.table(name).columns if not column.nullable]
    assert table.select(needed).null_count().sum_horizontal().item() == 0


def test_windows_are_of_their_length_and_within_the_flow(dataset: Dataset) -> None:
    outside = dataset.sql(
        "SELECT count(*) FROM flow_windows JOIN flows USING (run_id, flow_id) WHERE window_start_ns % window_ns <> 0 "
        "OR window_start_ns + window_ns <= first_seen_ns OR window_start_ns > last_seen_ns"
    )
    assert outside.item() == 0


def test_links_are_hardly_faster_than_their_rate(tmp_path: Path) -> None:
    """Over 10 ms, a host sends and receives at 1 Gbit/s at most; noise and chatter come on top of the exchange."""
    windows = single(tmp_path, workers=5, model_bytes=4_000_000, topology="clique", noise=0.0).query("pair_throughput")
    for end in ("src_ip", "dst_ip"):
        rates = windows.group_by("run_id", end, "window_start_ns").agg(pl.col("gbit_per_s").sum())
        assert 0.9 < rates["gbit_per_s"].max() <= 1.1


# --- the law


@pytest.mark.parametrize(("topology", "shape"), [pair for pair in ALL if pair[0] != "pair_averaging"])
def test_step_payload_is_that_of_the_law(topology: str, shape: str, dataset: Dataset) -> None:
    collective = SyntheticRun(run_name(topology, shape), topology, 6, shape=shape).collective
    law: Counter[tuple[str, str]] = Counter()
    for round_ in collective.rounds(SIZE):
        for t in round_:
            law[f"10.1.0.{t.src + 1}", f"10.1.0.{t.dst + 1}"] += 12 * t.bytes
    found = dataset.sql(
        "SELECT src_ip, dst_ip, sum(s.payload_bytes)::BIGINT AS payload FROM step_flows AS s "
        "JOIN flows USING (run_id, flow_id) WHERE run_id = ? AND position = 'during' GROUP BY ALL",
        [run_name(topology, shape)],
    )
    payload = {(src, dst): number for src, dst, number in found.rows()}
    slack = 10_000  # messages
    spare = len(law) < collective.hosts * (collective.hosts - 1)  # else noise is on the law's pairs, too
    for pair, number in law.items():
        assert number <= payload[pair] <= (1.01 if spare else 1.1) * number + slack
    others = sum(number for pair, number in payload.items() if pair not in law)
    assert others <= 0.011 * sum(law.values()) + slack


def test_pair_averaging_pulls_a_model_a_worker_and_step(dataset: Dataset) -> None:
    """Steps are not shared, but all that was pulled is in the run."""
    for shape in SHAPES["pair_averaging"]:
        found = dataset.sql(
            "SELECT dst_ip, sum(payload_bytes) / ? AS models FROM flows WHERE run_id = ? AND "
            "least(src_port, dst_port) = 41000 GROUP BY ALL ORDER BY ALL",
            [SIZE, run_name("pair_averaging", shape)],
        )
        # 12 steps and, but for the first worker, the broadcast
        assert found["models"].to_list() == pytest.approx([12, 13, 13, 13, 13, 13], rel=0.012)


def test_noise_is_between_other_pairs(tmp_path: Path) -> None:
    for noise in (0.0, 0.05):
        with single(tmp_path / str(noise), noise=noise, workers=5, chatter=False, broadcast=False) as opened:
            matrix = opened.query("traffic_matrix")
        total = 8 * 8 * SIZE
        ring = matrix.filter(pl.col("payload_bytes") > 0.5 * total / 5)
        assert ring.height == 5
        assert total <= ring["payload_bytes"].sum() <= (1 + noise) * total
        others = matrix["payload_bytes"].sum() - ring["payload_bytes"].sum()
        assert others == pytest.approx(noise * total, rel=0.01)


def test_broadcast_is_before_the_steps_and_as_large_as_the_model(tmp_path: Path) -> None:
    with single(tmp_path, chatter=False, noise=0.0) as opened:
        found = opened.sql(
            "SELECT src_ip, dst_ip, s.payload_bytes FROM step_flows AS s JOIN flows USING (run_id, flow_id) "
            "WHERE position = 'before' AND s.payload_bytes > 0 ORDER BY ALL"
        )
    pairs = [("10.1.0.1", "10.1.0.2", SIZE), ("10.1.0.1", "10.1.0.3", SIZE), ("10.1.0.2", "10.1.0.4", SIZE)]
    assert found.rows() == pairs


def test_acknowledgements_are_half_as_many_packets_without_payload(tmp_path: Path) -> None:
    with single(tmp_path, chatter=False, noise=0.0, broadcast=False) as opened:
        matrix = {(src[-1], dst[-1]): row for src, dst, *row in opened.query("traffic_matrix").drop("run_id").rows()}
    for i, j in ("12", "23", "34", "41"):
        (_, payload, packets), (_, ack_payload, acks) = matrix[i, j], matrix[j, i]
        assert payload > 0
        assert ack_payload == 0
        assert acks == pytest.approx(packets / 2, abs=8 * 6)


# --- steps


def test_steps_of_a_worker_follow_each_other(dataset: Dataset) -> None:
    steps = dataset.sql(
        "SELECT start_ns = lag(end_ns) OVER (PARTITION BY run_id, worker ORDER BY step) AS follows, start_ns < end_ns "
        "AS lasts, step FROM steps"
    )
    assert steps["lasts"].all()
    assert steps.filter(pl.col("step") > 0)["follows"].all()


def test_events_fill_their_step(dataset: Dataset) -> None:
    events = dataset.sql(
        "SELECT string_agg(kind, ' ' ORDER BY e.start_ns) AS kinds, min(e.start_ns) = any_value(s.start_ns) "
        "AND max(e.end_ns) = any_value(s.end_ns) "
        "AND sum(e.end_ns - e.start_ns) = any_value(s.end_ns - s.start_ns) AS fill "
        "FROM events AS e JOIN steps AS s USING (run_id, worker, step) GROUP BY run_id, worker, step"
    )
    assert set(events["kinds"]) == {"compute communicate update"}
    assert events["fill"].all()


def test_asynchronous_workers_share_no_step_times(dataset: Dataset) -> None:
    query = "SELECT step, max(end_ns) - min(end_ns) AS spread FROM steps WHERE run_id = ? GROUP BY step ORDER BY step"
    pull, ring = (
        dataset.sql(query, [run_name(*name)])["spread"]
        for name in (("pair_averaging", "pull"), ("ring", "reduce_scatter"))
    )
    assert pull[-1] > 4 * ring.max()


def test_a_slow_worker_computes_longer_and_all_wait(tmp_path: Path) -> None:
    with single(tmp_path, compute_factors=(1, 1, 3, 1), jitter=0.0, events=True) as opened:
        lasting = opened.sql(
            "SELECT worker, median(end_ns - start_ns) / 1e6 AS ms FROM events WHERE kind = 'compute' GROUP BY ALL"
        )
        ends = opened.sql("SELECT max(end_ns) - min(end_ns) AS spread FROM steps GROUP BY step")
    assert dict(lasting.rows()) == pytest.approx({f"worker-{i}": 60 if i == 3 else 20 for i in range(1, 5)}, abs=0.01)
    assert ends["spread"].max() < 20e6


@pytest.mark.long
def test_runs_without_log_have_no_steps(tmp_path: Path) -> None:
    with single(tmp_path, log=False) as opened:
        counts = opened.sql(
            "SELECT (SELECT count(*) FROM steps), (SELECT count(*) FROM step_flows), (SELECT count(*) FROM events)"
        )
        assert counts.row(0) == (0, 0, 0)
        assert [name for name, rows in checks.run_with_stored_inputs(opened).items() if rows.num_rows] == []


def test_order_is_declared_on_request(tmp_path: Path) -> None:
    with single(tmp_path, order=(0, 3, 2, 1), declare_ring=True) as opened:
        comparison = opened.query("ring_order")
        assert comparison["host_ip"].to_list() == ["10.1.0.1", "10.1.0.4", "10.1.0.3", "10.1.0.2"]
        declared = opened.sql("SELECT host_ip FROM hosts WHERE ring_position IS NOT NULL ORDER BY ring_position")
        assert declared["host_ip"].to_list() == comparison["host_ip"].to_list()


# --- the same again


def test_the_same_run_is_the_same_bytes(tmp_path: Path) -> None:
    run = SyntheticRun("r", "halving_doubling", 5, SIZE, 5)
    for name in "ab":
        write_runs(tmp_path / name, [run])
    files = [sorted(p.relative_to(tmp_path / n) for p in (tmp_path / n).rglob("*.parquet")) for n in "ab"]
    assert files[0] == files[1]
    assert len(files[0]) == len(schema.TABLES)
    assert all((tmp_path / "a" / p).read_bytes() == (tmp_path / "b" / p).read_bytes() for p in files[0])


def test_another_seed_is_another_run() -> None:
    payload = [
        make_traffic(SyntheticRun("r", "ring", steps=3, seed=seed)).transfers.payload.sum() for seed in (0, 0, 1)
    ]
    assert payload[0] == payload[1] != payload[2]


def test_blocks_do_not_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with single(tmp_path / "whole") as opened:
        whole = opened.sql("FROM flow_windows")
    monkeypatch.setattr("ddnn_traces.traffic.table_writer.BLOCK_ROWS", 50)
    with single(tmp_path / "parts") as opened:
        assert opened.sql("FROM flow_windows").equals(whole)


def test_transfers_lose_nothing_at_any_bound() -> None:
    """Packets and payload before a time, against every packet laid out by itself."""
    transfers = make_traffic(SyntheticRun("r", "tree", steps=2, model_bytes=50_000)).transfers
    draw = random.Random(0)
    for row in draw.sample(range(len(transfers)), 60):
        _, start, duration, packets, payload, _ = (int(column[row]) for column in transfers.columns)
        times = [start + j * duration // packets for j in range(packets)]
        sizes = [min(1448, payload - 1448 * j) if payload else 0 for j in range(packets)]
        for bound in [start - 1, start, start + 1, *draw.choices(range(start, start + duration + 2), k=20)]:
            count, size = transfers.before(np.array([row]), np.array([bound]))
            assert count[0] == sum(time < bound for time in times)
            assert size[0] == sum(size for time, size in zip(times, sizes, strict=True) if time < bound)


# --- invalid arguments


def test_two_runs_of_a_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="r: two runs have this name"):
        write_runs(tmp_path / "d", [SyntheticRun("r", "ring"), SyntheticRun("r", "tree")])
    assert not (tmp_path / "d").exists()


def test_a_synthetic_run_is_replaced_and_no_other(tmp_path: Path) -> None:
    write_runs(tmp_path / "generated", [SyntheticRun("r", "ring", 2, 1000, 1)])
    write_runs(tmp_path / "generated", [SyntheticRun("r", "ring", 3, 1000, 1)])
    capture = write_folder(tmp_path / "r", make_traffic(SyntheticRun("r", "ring", 2, 1000, 1)))
    toml = capture / "run.toml"
    toml.write_text(toml.read_text().replace('"synthetic"', '"testbed"'))
    with ddnn_traces.ingest(capture, tmp_path / "measured") as dataset:
        assert dataset.sql("SELECT source FROM runs").item() == "testbed"
    with pytest.raises(UsageError, match="has a run named r that was not generated"):
        write_runs(tmp_path / "measured", [SyntheticRun("q", "ring", 3, 1000, 1), SyntheticRun("r", "ring", 3, 1000)])
    for name, workers in (("generated", 3), ("measured", 2)):
        with ddnn_traces.open(tmp_path / name) as dataset:
            assert dataset.sql("SELECT run_id, workers FROM runs").rows() == [("r", workers)]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"steps": 0}, "must be above 0"),
        ({"bandwidth_mbit": float("nan")}, "must be above 0"),
        ({"compute_factors": (1.0,)}, "1 compute_factors for 4 workers"),
    ],
)
def test_impossible_runs_are_refused(fields: dict, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        SyntheticRun("r", "ring", **fields)
