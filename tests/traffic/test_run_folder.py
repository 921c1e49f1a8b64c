"""Synthetic runs as captures: ingest reads from them what their tables hold, and tshark finds nothing wrong."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

import ddnn_traces
from ddnn_traces.query import checks
from ddnn_traces.query.dataset import Dataset
from ddnn_traces.traffic.pcaps import write_folder
from ddnn_traces.traffic.synthetic import SyntheticRun, make_traffic, write_runs

RUN = SyntheticRun("r", "tree", 5, 300_000, 6, loss_pct=1)

#: Columns that differ by nature: a capture holds less, or more, than the generator knows.
EXPECTED = {
    "runs": set(), "hosts": set(), "capture_ledger": set(),
    "step_flows": {"retransmitted_bytes"},  # the generator has those of a whole flow
    # there are files, and numbers to follow
    "captures": {"blake3", "engine", "missed_bytes", "unacknowledged_missed_bytes", "followed_bytes"},
    # segments that were sent before only in part; both directions have a SYN
    "flows": {"retransmitted_packets", "initiator_source", "missed_bytes", "unacknowledged_missed_bytes"},
    "steps": {"start_source", "loss", "accuracy"},  # six digits in the log
    "events": {"bytes"},  # no column of a phases file
}  # fmt: skip
KEYS = {"flows": "flow_id", "steps": "worker, step", "events": "worker, step, start_ns", "hosts": "host_ip"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_folder(tmp_path_factory.mktemp("packets") / "r", make_traffic(RUN))


@pytest.fixture(scope="module")
def both(folder: Path) -> tuple[Dataset, Dataset]:
    """The run's tables as generated, and as read from its captures."""
    write_runs(folder.parent / "generated", [RUN])
    return ddnn_traces.open(folder.parent / "generated"), ddnn_traces.ingest(folder, folder.parent / "read")


@pytest.mark.parametrize("table", EXPECTED)
def test_ingest_reads_what_was_generated(table: str, both: tuple[Dataset, Dataset]) -> None:
    generated, read = (one.sql(f"FROM {table} ORDER BY {KEYS.get(table, 'ALL')}") for one in both)
    assert generated.height > 0
    assert generated.shape == read.shape
    assert {name for name in generated.columns if not generated[name].equals(read[name])} == EXPECTED[table]


def test_windows_have_the_same_sums(both: tuple[Dataset, Dataset]) -> None:
    """In the tables the pace is a bit uneven, so that the windows' bounds cut elsewhere."""
    sums = ", ".join(f"sum({name})::BIGINT" for name in ("packets", "wire_bytes", "payload_bytes"))
    query = f"SELECT flow_id, {sums} FROM flow_windows GROUP BY ALL ORDER BY ALL"
    generated, read = (one.sql(query) for one in both)
    assert generated.equals(read)


@pytest.mark.long
def test_what_was_read_passes_all_checks(both: tuple[Dataset, Dataset]) -> None:
    assert [name for name, rows in checks.run_with_stored_inputs(both[1]).items() if rows.num_rows] == []


@pytest.mark.parametrize("packets", [3, 100])
@pytest.mark.long_after(1)
def test_blocks_do_not_show(packets: int, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ddnn_traces.traffic.pcaps.BLOCK_PACKETS", packets)
    again = write_folder(tmp_path / "r", make_traffic(RUN))
    names = sorted(path.name for path in folder.iterdir())
    assert names == sorted(path.name for path in again.iterdir())
    assert [name for name in names if (folder / name).read_bytes() != (again / name).read_bytes()] == []


@pytest.mark.long
@pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not installed")
def test_tshark_finds_headers_and_numbers_in_order(folder: Path) -> None:
    """Good IPv4 checksums, nothing malformed, and no segment missing: each number follows from what was sent before."""
    found = {}
    for wrong in ("_ws.malformed", "ip.checksum.status == 0", "tcp.analysis.lost_segment"):
        command = ["tshark", "-r", str(folder / "worker-1-tcpdump.pcap"), "-o", "ip.check_checksum:TRUE", "-Y", wrong]
        found[wrong] = len(subprocess.run(command, capture_output=True, check=True, text=True).stdout.splitlines())
    assert found == dict.fromkeys(found, 0)
