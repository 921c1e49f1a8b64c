"""A dataset as the program of schema version 4 wrote it: its columns, metadata, marker and inputs.json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from ddnn_traces.store import checksums
from ddnn_traces.store.layout import INPUTS, MARKER
from ddnn_traces.store.whole_files import sha256_of

COLUMNS = {
    "runs": "run_id framework backend model model_params model_bytes model_size_mb optimizer batch_size topology"
    " workers epochs delay_ms loss_pct bandwidth_mbit variant source clock_offset_ns"
    " clock_offset_estimate_ns clock_drift_ppm",
    "hosts": "run_id host_ip label role rank ring_position",
    "captures": "run_id capture_id sha256 file_bytes format link_types time_resolution_ns snaplen first_ns last_ns"
    " records wire_bytes trailing_bytes untimed_records vantage_ip clock_offset_ns"
    " clock_offset_uncertainty_ns clock_reference_ip status status_detail engine version",
    "capture_ledger": "run_id capture_id reason packets wire_bytes",
    "flows": "run_id flow_id src_ip dst_ip protocol src_port dst_port connection encapsulation_id roce_dest_qp"
    " first_seen_ns last_seen_ns packets wire_bytes ip_bytes payload_bytes captured_bytes syn_packets"
    " fin_packets rst_packets retransmitted_packets retransmitted_bytes out_of_order_packets"
    " out_of_order_bytes mss cable_bytes_estimate is_initiator initiator_source reverse_flow_id",
    "encapsulations": "run_id encapsulation_id parent_id kind src_ip dst_ip protocol src_port dst_port identifier",
    "flow_opcodes": "run_id flow_id roce_opcode packets wire_bytes payload_bytes",
    "flow_windows": "run_id window_start_ns window_ns flow_id packets wire_bytes payload_bytes retransmitted_bytes",
    "steps": "run_id worker step epoch start_ns start_source end_ns loss accuracy",
    "step_flows": "run_id flow_id worker position step packets wire_bytes payload_bytes retransmitted_bytes",
    "events": "run_id worker step kind name start_ns end_ns bytes priority",
    "packets": "run_id capture_id record flow_id ts_ns wire_bytes ip_bytes payload_bytes captured_bytes tcp_flags",
}


def make_version_4(dataset: Path, sources: Path) -> None:
    """Give a dataset of the folder of run folders `sources` the form of version 4, which knew SHA-256 only."""
    for table, columns in COLUMNS.items():
        for path in (dataset / table).glob("*/*.parquet"):
            _rewrite(path, columns.split(), sources / path.parent.name.removeprefix("run_id="))
    for folder in dataset.iterdir():
        if folder.is_dir() and folder.name not in COLUMNS:  # a table that there was not yet
            for path in sorted(folder.rglob("*"), reverse=True):
                path.rmdir() if path.is_dir() else path.unlink()
            folder.rmdir()
    (dataset / checksums.FILE).unlink()
    inputs = checksums.unsealed((dataset / INPUTS).read_text())
    for run_id, record in inputs["runs"].items():
        packets, description = record["packets"], record["description"]
        files = sorted([*packets["files"], *description["files"]], key=lambda file: file["name"])
        for file in files:
            del file["blake3"]
            file["sha256"] = sha256_of(sources / run_id / file["name"])
        then = {"schema_version": 4, "sha256": True, "metadata_sha256": description["metadata_sha256"]}
        warnings = packets["warnings"] + description["warnings"]
        inputs["runs"][run_id] = {"parameters": packets["parameters"] | then, "files": files, "warnings": warnings}
    (dataset / INPUTS).write_text(json.dumps(inputs, indent=1, sort_keys=True) + "\n")
    (dataset / MARKER).write_text('{\n "format": "ddnn_traces dataset",\n "schema_version": 4\n}\n')
    (dataset / "traces.duckdb").unlink(missing_ok=True)


def _rewrite(path: Path, columns: list[str], sources: Path) -> None:
    table = pq.read_table(path, partitioning=None).select(columns)
    metadata: dict[bytes, Any] = dict(table.schema.metadata or {})
    metadata[b"ddnn_traces.schema_version"] = b"4"
    if "sha256" in columns:
        hashes = [sha256_of(sources / name) for name in table["capture_id"].to_pylist()]
        place = columns.index("sha256")
        table = table.set_column(place, table.schema.field(place), [hashes])
    pq.write_table(table.replace_schema_metadata(metadata), path)
