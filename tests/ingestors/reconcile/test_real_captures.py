"""The tables of the shipped sample and of the full captures, against what is known of them."""

from __future__ import annotations

import gzip
import json
import shutil
import struct
import tomllib
from pathlib import Path
from typing import Any

import pytest
from small_runs import (
    column,
    contradictions,
    read_folder,
)
from tools import FULL, mostly_long, needs_full_captures

from ddnn_traces.messages import Messages
from ddnn_traces.query.dataset import Dataset

# --- the shipped sample

SAMPLE_RUNS = sorted(path.name for path in (Path(__file__).parents[3] / "tests" / "traces" / "runs").iterdir())


def test_sample_tables_agree(sample_dataset: Dataset) -> None:
    assert contradictions(sample_dataset) == {}
    assert sample_dataset.run_ids == SAMPLE_RUNS
    assert column(sample_dataset, "SELECT DISTINCT status FROM captures") == ["complete"]


@pytest.mark.parametrize("run_id", SAMPLE_RUNS)
def test_sample_records_are_those_in_the_files(sample: Path, sample_dataset: Dataset, run_id: str) -> None:
    found = sample_dataset.sql(
        "SELECT capture_id, records, wire_bytes FROM captures WHERE run_id = $1", [run_id]
    ).rows()
    assert found == [(path.name, *records_in(path)) for path in sorted((sample / run_id).glob("*.pcap*"))]


def records_in(path: Path) -> tuple[int, int]:
    """Records of a little-endian pcap and their bytes on the wire, counted by their headers alone."""
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    at, records, wire = 24, 0, 0
    while at < len(data):
        captured, original = struct.unpack_from("<II", data, at + 8)
        at, records, wire = at + 16 + captured, records + 1, wire + original
    assert at == len(data)
    return records, wire


def test_sample_counts_are_those_of_its_readme(sample: Path, sample_dataset: Dataset) -> None:
    lines = (sample.parent / "README.md").read_text().splitlines()
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
    stated = {row[0]: int(row[5].replace(",", "")) for row in rows if row and row[0] in SAMPLE_RUNS}
    assert dict(sample_dataset.sql("SELECT run_id, sum(records)::BIGINT FROM captures GROUP BY ALL").rows()) == stated


@pytest.mark.parametrize("run_id", SAMPLE_RUNS)
def test_sample_copies(sample_dataset: Dataset, run_id: str) -> None:
    """Where both directions were captured everywhere, each packet is there twice and counts once."""
    ledger = "SELECT reason, sum(packets)::BIGINT FROM capture_ledger WHERE run_id = $1 GROUP BY ALL"
    packets = dict(sample_dataset.sql(ledger, [run_id]).rows())
    copies = packets["in_flows"] if run_id.endswith("-both") else 0
    assert packets.get("duplicate_vantage", 0) == copies
    assert packets.keys() <= {"in_flows", "duplicate_vantage", "not_ip"}
    (counted_packets,) = sample_dataset.sql("SELECT sum(packets)::BIGINT FROM flows WHERE run_id = $1", [run_id]).row(0)
    assert counted_packets == packets["in_flows"]


@pytest.mark.parametrize("run_id", SAMPLE_RUNS)
def test_sample_hosts(sample: Path, sample_dataset: Dataset, run_id: str) -> None:
    declared = tomllib.loads((sample / run_id / "run.toml").read_text())["hosts"]
    found = sample_dataset.sql("SELECT * EXCLUDE run_id FROM hosts WHERE run_id = $1", [run_id]).to_dicts()
    keys = ("label", "role", "rank", "ring_position")
    assert found == [{"host_ip": host["ip"]} | {key: host.get(key) for key in keys} for host in declared]


@pytest.mark.parametrize("run_id", SAMPLE_RUNS)
@pytest.mark.long_after(5)
def test_sample_rings(sample: Path, sample_dataset: Dataset, run_id: str) -> None:
    declared = tomllib.loads((sample / run_id / "run.toml").read_text())
    order = sorted((h for h in declared["hosts"] if "ring_position" in h), key=lambda host: host["ring_position"])
    found = ring_rows(sample_dataset, run_id)
    assert bool(order) == (declared["topology"] == "ring")
    assert found == expected_ring([host["ip"] for host in order])


def ring_rows(dataset: Dataset, run_id: str) -> list[tuple[Any, ...]]:
    sql = "SELECT is_ring, position, host_ip, next_host_ip FROM ring_order WHERE run_id = $1 ORDER BY position"
    return dataset.sql(sql, [run_id]).rows()


def expected_ring(order: list[str]) -> list[tuple[Any, ...]]:
    if not order:
        return [(False, None, None, None)]
    return [(True, i, host, order[(i + 1) % len(order)]) for i, host in enumerate(order)]


@pytest.mark.parametrize("run_id", [run_id for run_id in SAMPLE_RUNS if "-ring" in run_id])
@pytest.mark.long_after(4)
def test_sample_rings_carry_what_an_all_reduce_needs(sample_dataset: Dataset, run_id: str) -> None:
    """2(N-1)/N model sizes a step from each worker to the next, but for what is cut or sent again."""
    rows = sample_dataset.sql(
        """
        SELECT sum(s.payload_bytes) / any_value(model_bytes)
               / (SELECT count(DISTINCT step) FROM steps WHERE run_id = $1)
        FROM step_flows AS s JOIN flows USING (run_id, flow_id) JOIN runs USING (run_id)
        JOIN ring_order ON ring_order.run_id = s.run_id AND host_ip = src_ip AND next_host_ip = dst_ip
        WHERE s.run_id = $1 GROUP BY src_ip
        """,
        [run_id],
    ).rows()
    assert len(rows) == 4
    for (model_sizes,) in rows:
        assert 1.5 <= model_sizes < 1.95


BOTH = "torch-mlp1-sgd-32-gloo-0ms-ring-both"


@pytest.mark.parametrize("worker", [1, 2, 3, 4])
@pytest.mark.parametrize("share", mostly_long([0.0, 0.1, 0.5, 0.9], 0.5))
@pytest.mark.long_after(1)
def test_one_capture_missing_or_cut_changes_nothing(
    sample: Path, sample_dataset: Dataset, tmp_path: Path, worker: int, share: float
) -> None:
    """What was captured at both ends is in the other ends' captures. share: of the worker's file that is left."""
    folder = tmp_path / "runs" / BOTH
    shutil.copytree(sample / BOTH, folder)
    path = folder / f"worker-{worker}-tcpdump.pcap.gz"
    content = gzip.decompress(path.read_bytes())
    path.unlink()
    if share:
        path.with_suffix("").write_bytes(content[: int(share * len(content))])
    messages = Messages()
    matrix = "SELECT src_ip, dst_ip, payload_bytes, packets FROM traffic_matrix WHERE run_id = $1"
    with read_folder(folder, messages) as dataset:
        assert dataset.sql(matrix, [BOTH]).rows() == sample_dataset.sql(matrix, [BOTH]).rows()
        assert contradictions(dataset) == {}
    assert sum(": truncated: " in warning for warning in messages.warnings) == (share > 0)


# --- the full captures, where they are available (they are not shipped)

FULL_RUNS = sorted(path.parent.name for path in FULL.glob("*/truth.json"))


@needs_full_captures
def test_full_captures_agree(full_dataset: Dataset) -> None:
    assert contradictions(full_dataset) == {}


@pytest.mark.long
@pytest.mark.parametrize("run_id", FULL_RUNS)
def test_full_captures_equal_their_truth(full_dataset: Dataset, run_id: str) -> None:
    """truth.json: what an independent reader counted in the files, so twice where both directions were captured."""
    declared = json.loads((FULL / run_id / "truth.json").read_text())
    truth, copies = declared["truth"], 2 if run_id.endswith("-both") else 1
    matrix = full_dataset.sql("SELECT * FROM traffic_matrix WHERE run_id = $1", [run_id]).to_dicts()
    for size in ("wire_bytes", "payload_bytes"):
        if f"pair_{size}" in truth:
            pairs = {f"{row['src_ip']}>{row['dst_ip']}": copies * row[size] for row in matrix}
            assert pairs == truth[f"pair_{size}"]
    sums = "SELECT count(*), sum(retransmitted_packets)::BIGINT FROM flows WHERE run_id = $1"
    assert full_dataset.sql(sums, [run_id]).row(0) == (truth["directed_five_tuples"], truth["retransmitted"])
    records = "SELECT sum(records)::BIGINT FROM captures WHERE run_id = $1"
    assert full_dataset.sql(records, [run_id]).row(0) == (truth["packets"],)


@needs_full_captures
@pytest.mark.parametrize("run_id", FULL_RUNS)
def test_full_captures_rings(full_dataset: Dataset, run_id: str) -> None:
    """No run.toml here: the hosts' names come from the names of the files."""
    declared = json.loads((FULL / run_id / "truth.json").read_text())
    addresses = {label: ip for ip, label in declared["workers"].items()}
    order = [addresses[label] for label in declared.get("ring_order", [])]
    assert ring_rows(full_dataset, run_id) == expected_ring(order)
    hosts = "SELECT host_ip, label FROM hosts WHERE run_id = $1"
    assert dict(full_dataset.sql(hosts, [run_id]).rows()) == declared["workers"]
