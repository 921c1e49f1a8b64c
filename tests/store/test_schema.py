"""schemas/: the only place where a column is defined."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from ddnn_traces.errors import UsageError
from ddnn_traces.query.dataset import Dataset
from ddnn_traces.store import schema
from ddnn_traces.store.layout import MARKER, Marker, read_marker, write_marker

SIZES = ("wire_bytes", "ip_bytes", "payload_bytes", "captured_bytes")

#: Names that other programs rely on (columns may be added).
PROMISED = {
    "runs": "run_id framework backend model model_params model_bytes model_size_mb optimizer batch_size topology"
    " workers epochs delay_ms loss_pct bandwidth_mbit source clock_offset_ns",
    "hosts": "run_id host_ip label role rank",
    "captures": "run_id capture_id sha256 blake3 format link_types time_resolution_ns snaplen first_ns last_ns"
    " vantage_ip status engine version",
    "capture_ledger": "run_id capture_id reason packets wire_bytes",
    "flows": "run_id flow_id src_ip dst_ip protocol src_port dst_port encapsulation_id first_seen_ns last_seen_ns"
    " packets wire_bytes ip_bytes payload_bytes captured_bytes syn_packets fin_packets rst_packets"
    " retransmitted_packets retransmitted_bytes is_initiator initiator_source reverse_flow_id",
    "flow_windows": "run_id flow_id window_start_ns window_ns packets wire_bytes payload_bytes retransmitted_bytes",
    "steps": "run_id worker step epoch start_ns end_ns loss accuracy",
    "step_flows": "run_id flow_id worker step position packets wire_bytes payload_bytes retransmitted_bytes",
}


def test_tables_are_the_files() -> None:
    files = {path.stem for path in schema.shipped_folder("schemas").glob("*.toml")}
    assert files == set(schema.TABLES) == {table.name for table in schema.tables()}


def test_a_changed_table_has_another_version() -> None:
    """When it fails, increase SCHEMA_VERSION in ddnn_traces/store/schema.py and write both new values here."""
    columns = [(table.name, c.name, c.type, c.nullable) for table in schema.tables() for c in table.columns]
    fingerprint = hashlib.sha256(repr(sorted(columns)).encode()).hexdigest()[:16]
    assert (schema.SCHEMA_VERSION, fingerprint) == (14, "83bc9137fb225529")


@pytest.mark.parametrize("name", PROMISED)
def test_promised_columns_are_there(name: str) -> None:
    assert set(PROMISED[name].split()) <= {column.name for column in schema.table(name).columns}


@pytest.mark.parametrize("name", schema.TABLES)
def test_columns_are_described(name: str) -> None:
    table = schema.table(name)
    names = [column.name for column in table.columns]
    assert len(set(names)) == len(names)
    assert names[0] == table.key[0] == "run_id"
    assert set(table.key) <= set(names)
    assert table.row
    for column in table.columns:
        assert column.meaning, column.name
        assert column.source, column.name
        if column.name.endswith("_ns"):
            assert (column.type, column.unit[:2]) == ("int64", "ns"), column.name
        if column.name.endswith(SIZES):
            assert (column.type, column.unit) == ("int64", "bytes"), column.name
            assert not (column.nullable and column.name == "wire_bytes")  # the others: of a parsed file
        if column.name == "packets" or column.name.endswith("_packets"):
            assert (column.type, column.unit) == ("int64", "packets"), column.name


@pytest.mark.parametrize("name", schema.TABLES)
def test_keys_are_never_null(name: str) -> None:
    table = schema.table(name)
    nullable = [column.name for column in table.columns if column.name in table.key and column.nullable]
    unknown = {
        "step_flows": ["step"],  # before and after training
        "events": ["step", "profiler", "process_group", "sequence"],  # of a profiler, or of the program itself
    }
    assert nullable == unknown.get(name, [])


@pytest.mark.parametrize("name", schema.TABLES)
def test_arrow_schema(name: str) -> None:
    table, arrow = schema.table(name), schema.table(name).arrow()
    assert arrow.names == [column.name for column in table.columns]
    assert [field.nullable for field in arrow] == [column.nullable for column in table.columns]


@pytest.mark.parametrize("name", schema.TABLES)
def test_duckdb_has_the_types_and_comments(sample_dataset: Dataset, name: str) -> None:
    types = {"string": "VARCHAR", "int64": "BIGINT", "double": "DOUBLE", "bool": "BOOLEAN"}
    found = sample_dataset.sql(
        "SELECT column_name, data_type, comment FROM duckdb_columns() WHERE table_name = $1 ORDER BY column_index",
        [name],
    ).rows()
    assert [(column, kind) for column, kind, _ in found] == [
        (c.name, types[c.type]) for c in schema.table(name).columns
    ]
    for column, (_, _, comment) in zip(schema.table(name).columns, found, strict=True):
        assert comment == column.meaning + (f" [{column.unit}]" if column.unit else "")
    (row,) = sample_dataset.sql("SELECT comment FROM duckdb_views() WHERE view_name = $1", [name]).row(0)
    assert row == schema.table(name).row


def test_folder_that_is_not_shipped() -> None:
    with pytest.raises(FileNotFoundError, match="the installation is incomplete"):
        schema.shipped_folder("no such folder")


# --- dataset.json


def test_marker(tmp_path: Path) -> None:
    write_marker(tmp_path)
    assert not read_marker(tmp_path).has_older_runs
    write_marker(tmp_path, ["runs"], oldest=schema.OLDEST_VERSION)
    assert read_marker(tmp_path) == Marker(("runs",), schema.OLDEST_VERSION)
    (tmp_path / MARKER).write_text(f'{{"schema_version": {schema.OLDEST_VERSION}}}')
    assert read_marker(tmp_path).has_older_runs
    (tmp_path / MARKER).write_text('{"schema_version": 99}')
    with pytest.raises(
        UsageError, match=f"schema version 99, this program reads version {schema.SCHEMA_VERSION}; update ddnn_traces$"
    ):
        read_marker(tmp_path)
    for old in ("0", "null", '"2"'):
        (tmp_path / MARKER).write_text(f'{{"schema_version": {old}}}')
        with pytest.raises(UsageError, match=r"; ingest the captures again, into a new folder$"):
            read_marker(tmp_path)


@pytest.mark.parametrize("text", ["", "[]", "{}", "nonsense", "3", '"text"'])
def test_marker_that_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / MARKER).write_text(text)
    with pytest.raises(UsageError, match=r"not a ddnn_traces dataset \(no readable dataset\.json\)"):
        read_marker(tmp_path)
