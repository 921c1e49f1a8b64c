"""Files of a dataset: layout, schema, order, page index, provenance; what a second ingest changes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import packets as p
import pyarrow.parquet as pq
import pytest
from blake3 import blake3
from ingesting import ingest
from small_runs import (
    A,
    B,
    C,
    contradictions,
    hashes_of,
    ingest_frames,
    ring,
    write_captures,
)

import ddnn_traces
from ddnn_traces.query import views
from ddnn_traces.query.dataset import Dataset
from ddnn_traces.store import schema
from ddnn_traces.store.parquet import partition


def test_layout_is_one_file_a_table_and_run(sample_dataset: Dataset) -> None:
    expected = {
        str(partition(Path(), table, run_id) / "part-0.parquet")
        for table in schema.TABLES
        for run_id in sample_dataset.run_ids
    }
    assert hashes_of(sample_dataset.path).keys() == expected | {"dataset.json", "inputs.json", "checksums.json"}
    assert (sample_dataset.path / views.FILE).is_file()


@pytest.fixture(scope="module")
def every_table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset with rows in the tables that the sample leaves empty."""
    top = tmp_path_factory.mktemp("every_table")
    tunneled = p.vxlan(p.ethernet(p.ipv4(p.tcp(bytes(9)))))
    datagrams = [p.udp(p.roce(opcode=opcode), 50000, p.ROCE_PORT) for opcode in (17, 4)]
    datagrams += [p.udp(tunneled, 50000 - i, p.VXLAN_PORT) for i in (0, 1)]
    frames = [p.ethernet(p.ipv4(datagram, A, B, p.UDP)) for datagram in datagrams]
    with ingest_frames(top, {"b.pcap": frames, "a.pcap": frames[:3]}, packets=True) as dataset:
        assert contradictions(dataset) == {}
        return dataset.path


@pytest.mark.parametrize("table", schema.TABLES)
@pytest.mark.long_after(2)
def test_files_have_the_schema_their_order_and_a_page_index(
    sample_dataset: Dataset, every_table: Path, table: str
) -> None:
    wanted = schema.table(table)
    paths = [*(sample_dataset.path / table).glob("*/*.parquet"), *(every_table / table).glob("*/*.parquet")]
    assert max(pq.read_metadata(path).num_rows for path in paths) > 0
    for path in sorted(paths):
        file = pq.ParquetFile(path)
        assert file.schema_arrow.equals(wanted.arrow())
        for i, column in enumerate(wanted.columns):
            notes = file.schema_arrow.field(i).metadata
            assert notes[b"meaning"].decode() == column.meaning
            assert notes[b"unit"].decode() == column.unit
        rows = file.read().select(wanted.key).to_pylist()
        keys = [tuple((row[name] is not None, row[name]) for name in wanted.key) for row in rows]
        assert keys == sorted(set(keys)), path
        for group in range(file.num_row_groups if rows else 0):  # nothing has no pages
            first = file.metadata.row_group(group).column(0)
            assert (first.has_column_index, first.has_offset_index) == (True, True)
            assert first.compression == "ZSTD"


def test_provenance(sample: Path, sample_dataset: Dataset) -> None:
    run_id = sample_dataset.run_ids[0]
    captures = (sample / run_id).glob("*.pcap*")
    inputs = {path.name: f"blake3:{blake3(path.read_bytes()).hexdigest()}" for path in captures}
    for table in schema.TABLES:
        path = partition(sample_dataset.path, table, run_id) / "part-0.parquet"
        stated = {key.decode(): value.decode() for key, value in pq.read_schema(path).metadata.items()}
        assert stated["ddnn_traces.version"] == ddnn_traces.__version__
        assert stated["ddnn_traces.schema_version"] == str(schema.SCHEMA_VERSION)
        assert json.loads(stated["ddnn_traces.inputs"]) == inputs
        assert json.loads(stated["ddnn_traces.parameters"]) == {
            "engine": "numba",
            "window_ns": 1_000_000,
            "silence_ns": 200_000,
            "tunnels": "inner",
            "packets": False,
            "filter": None,
            "clock_offset": "offer",
        }


def test_second_ingest_adds_replaces_and_keeps(runs: Path, tmp_path: Path) -> None:
    out = tmp_path / "dataset"
    ingest(runs, out=out)
    before = hashes_of(out)
    changed = ring(B, C)
    write_captures(runs / "three", {"a.pcap": ring(A, C)})
    shutil.rmtree(runs / "two")
    write_captures(runs / "two", {"b.pcap": changed})
    ingest(runs / "two", runs / "three", out=out)
    after = hashes_of(out)
    with ddnn_traces.open(out) as dataset:
        assert dataset.run_ids == ["one", "three", "two"]
        assert dataset.sql("SELECT capture_id FROM captures WHERE run_id = 'two'").rows() == [("b.pcap",)]
        assert contradictions(dataset) == {}
    assert {name: sha for name, sha in after.items() if "run_id=one" in name} == {
        name: sha for name, sha in before.items() if "run_id=one" in name
    }
