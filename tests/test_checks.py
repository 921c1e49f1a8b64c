"""Data checks: silent on a sound dataset, and each finds what was broken by hand."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import packets as p
import polars as pl
import pytest
from traffic import BEGIN_NS, SPACING_NS, A, B, C, D, Packet, contradictions, read_folder, write_captures, write_log

import ddnn_traces
from ddnn_traces import checks
from ddnn_traces.dataset import Dataset
from ddnn_traces.ingestors.store import partition

Change = Callable[[pl.DataFrame], pl.DataFrame]


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset with rows in every table: TCP both ways, GRE in VXLAN, RoCEv2, a log, packets."""
    top = tmp_path_factory.mktemp("sound")
    tcp = [Packet(0, A, B, 100), Packet(0, B, A, 7, ports=(5000, 40000)), Packet(0, A, B, 50, seq=100)]
    gre = p.ipv4(p.gre(p.ipv4(p.tcp(bytes(9)), C, D)), C, D, p.GRE)
    roce = [p.udp(p.roce(bytes(size), opcode), 50000, p.ROCE_PORT) for opcode, size in ((4, 100), (17, 4), (4, 50))]
    frames = [packet.record.frame for packet in tcp]
    frames += [p.ethernet(p.ipv4(p.udp(p.vxlan(p.ethernet(gre)), 50000, p.VXLAN_PORT), A, B, p.UDP))] * 2
    frames += [p.ethernet(p.ipv4(datagram, A, B, p.UDP)) for datagram in roce]
    records = [p.Record(BEGIN_NS + i * 20 * SPACING_NS, frame) for i, frame in enumerate(frames)]
    folder = write_captures(top / "run", {})
    (folder / "worker-1.pcap").write_bytes(p.pcap(records))
    write_log(folder, "worker-1", [BEGIN_NS + i * 30 * SPACING_NS for i in range(1, 7)])
    with read_folder(folder, packets=True) as dataset:
        assert contradictions(dataset) == {}
    return top / "dataset"


def offending(dataset: Dataset) -> dict[str, int]:
    """Checks that found something, and how many rows."""
    return {name: rows.num_rows for name, rows in checks.run_checks(dataset).items() if rows.num_rows}


def test_sound_datasets_pass(sound: Path, sample_dataset: Dataset) -> None:
    assert offending(sample_dataset) == {}
    with ddnn_traces.open(sound) as dataset:
        assert offending(dataset) == {}
        for table in ("flow_opcodes", "packets", "step_flows", "encapsulations"):  # or nothing could break there
            assert dataset.sql(f"FROM {table}").height > 1


def first(column: str, value: pl.Expr | int | None) -> Change:
    """The first row where the column is not null gets another value there."""

    def change(rows: pl.DataFrame) -> pl.DataFrame:
        at = rows[column].is_not_null().arg_max()
        new = value if isinstance(value, pl.Expr) else pl.lit(value, rows.schema[column])
        return rows.with_columns(pl.when(pl.int_range(pl.len()) == at).then(new).otherwise(column).alias(column))

    return change


def drop(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.slice(1)


def nothing(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.clear()


def moved(rows: pl.DataFrame) -> pl.DataFrame:
    """A packet's worth of bytes from the first row to the last: the table's sum is as it was."""
    at = pl.int_range(pl.len())
    sign = pl.when(at == 0).then(-1).when(at == pl.len() - 1).then(1).otherwise(0)
    return rows.with_columns(pl.col("wire_bytes") + sign)


@pytest.mark.parametrize(
    ("table", "change", "found"),
    [
        ("flow_windows", moved, {"flow_parts"}),
        ("flow_windows", drop, {"flow_parts", "flows_match_ledger"}),
        ("step_flows", moved, {"flow_parts"}),
        ("step_flows", nothing, {"flow_parts"}),
        ("flow_opcodes", drop, {"flow_parts"}),
        ("flow_opcodes", first("flow_id", 0), {"flow_parts"}),
        ("packets", drop, {"flow_parts"}),
        ("packets", first("payload_bytes", 1), {"flow_parts"}),
        ("packets", first("flow_id", 99), {"flow_parts"}),
        ("flows", first("payload_bytes", 1), {"flow_parts"}),
        ("flows", first("reverse_flow_id", 2), {"flow_references"}),
        ("flows", first("reverse_flow_id", None), {"flow_references"}),
        ("flows", first("dst_port", 1), {"flow_references"}),
        ("flows", first("encapsulation_id", 7), {"flow_references"}),
        ("encapsulations", nothing, {"flow_references"}),
        ("encapsulations", first("parent_id", 7), {"flow_references"}),
        ("capture_ledger", drop, {"ledger", "flows_match_ledger"}),
        ("captures", first("records", 3), {"ledger"}),
    ],
)
def test_what_is_broken_is_found(sound: Path, tmp_path: Path, table: str, change: Change, found: set[str]) -> None:
    shutil.copytree(sound, tmp_path / "dataset")
    path = partition(tmp_path / "dataset", table, "run") / "part-0.parquet"
    rows = pl.read_parquet(path, hive_partitioning=False)
    change(rows).write_parquet(path)
    with ddnn_traces.open(tmp_path / "dataset") as dataset:
        assert set(offending(dataset)) == found


def test_flow_that_is_there_twice(sound: Path, tmp_path: Path) -> None:
    shutil.copytree(sound, tmp_path / "dataset")
    path = partition(tmp_path / "dataset", "flows", "run") / "part-0.parquet"
    rows = pl.read_parquet(path, hive_partitioning=False)
    twin = rows.filter(flow_id=0).with_columns(flow_id=pl.lit(98, pl.Int64))
    pl.concat([rows, twin]).write_parquet(path)
    with ddnn_traces.open(tmp_path / "dataset") as dataset:
        problems = checks.run_checks(dataset)["flow_references"].to_pylist()
    told = [row["flow_id"] for row in problems if row["problem"].startswith("another flow has the same addresses")]
    assert told == [0, 98]
