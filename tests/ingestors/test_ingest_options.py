"""Options of an ingest: wrong ones, the run's name, filters, and when the packet loop is compiled."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import packets as p
import pytest
from ingesting import Lines, ingest
from small_runs import (
    A,
    B,
    C,
    ring,
)

import ddnn_traces
from ddnn_traces.errors import UsageError
from ddnn_traces.ingestors import end_of_run, pipeline
from ddnn_traces.ingestors.options import IngestOptions
from ddnn_traces.messages import Messages
from ddnn_traces.pcap import numba_engine


@pytest.mark.parametrize("window_ms", [0.0, -1.0, 1e-9, float("nan"), float("inf"), 1e300])
def test_invalid_windows(runs: Path, tmp_path: Path, window_ms: float) -> None:
    with pytest.raises(UsageError, match=r"window of .* ms"):
        ingest(runs, out=tmp_path / "dataset", window_ms=window_ms)


def test_unknown_engine(runs: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no engine named steam; there are numba, pyshark"):
        ingest(runs, out=tmp_path / "dataset", engine="steam")


def test_run_id(runs: Path, tmp_path: Path) -> None:
    ingest(runs / "one", out=tmp_path / "dataset", run_id="monday")
    with ddnn_traces.open(tmp_path / "dataset") as dataset:
        assert dataset.run_ids == ["monday"]
    with pytest.raises(UsageError, match="--run-id"):
        ingest(runs / "one", out=tmp_path / "dataset", run_id=" ")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"jobs": 0}, "--jobs 0 is not a number of threads"),
        ({"tunnels": "both"}, "--tunnels both: it is one of inner, outer"),
        ({"clock_offset": "later"}, "--clock-offset later: it is auto, none or a number of seconds"),
        ({"clock_offset": float("inf")}, "--clock-offset inf"),
        ({"filter": "port"}, "filter 'port': at its end: expected a port"),
    ],
)
def test_invalid_options(runs: Path, tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        ingest(runs, out=tmp_path / "dataset", **options)
    assert message in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]


def test_first_compilation_is_reported(runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for compiled in (True, False):
        monkeypatch.setattr(numba_engine, "is_compiled", lambda compiled=compiled: compiled, raising=False)
        messages = Lines()
        pipeline.ingest([str(runs)], tmp_path / "dataset", IngestOptions(force=True), messages)
        message = ["compiling the packet loop, once (about half a minute)"] if not compiled else []
        assert messages.lines[:-1] == message


def test_what_reads_is_compiled_before_the_clock_starts(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that the rates are those of reading."""
    happened: list[str] = []
    prepare = numba_engine.prepare

    class Clock(Messages):
        def start_reading(self, total_bytes: int | None) -> None:
            happened.append("start")

    def prepared(largest: int) -> None:
        happened.append(f"prepare {largest}")
        prepare(largest)

    monkeypatch.setattr(numba_engine, "prepare", prepared)
    largest = max(path.stat().st_size for path in runs.glob("*/*"))
    pipeline.ingest([str(runs)], tmp_path / "dataset", messages=Clock())
    assert happened == [f"prepare {largest}", "start"]


def test_nothing_is_compiled_while_a_file_is_read(tmp_path: Path) -> None:
    """In a new process, of a file in parts."""
    code = """
import sys
from pathlib import Path
from ddnn_traces.pcap.capture_facts import ReadOptions
from ddnn_traces.pcap import numba_engine, parts, scanner
from ddnn_traces.pcap.compiled import flow_table, fragments, join, scan
import numpy as np
parts.PART_BYTES = parts.BLOCK_BYTES = 4096
numba_engine.prepare(parts.PART_BYTES * 2)
used = [scan.scan, join.join, join.find_record, flow_table.close_cells, flow_table.refill, fragments.give_up_one]
before = [len(function.signatures) for function in used]
options = ReadOptions(10**6, np.empty(0, np.int64), Path("cells"), jobs=4)
facts = numba_engine.read_capture(Path("a.pcap"), options)
print(facts.records, before, [len(function.signatures) for function in used] == before)
"""
    (tmp_path / "a.pcap").write_bytes(p.pcap(packet.record for packet in ring(A, B, rounds=500)))
    call = [sys.executable, "-c", code]
    done = subprocess.run(call, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == "2000 [1, 1, 1, 1, 1, 1] True\n"


def test_filter_reaches_the_flows(runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[bool] = []
    tables = end_of_run.RunTables
    monkeypatch.setattr(
        end_of_run,
        "RunTables",
        lambda facts, scratch: (
            [kept.extend(file.flows["kept"].to_pylist()) for file in facts.files],
            tables(facts, scratch),
        )[1],
    )
    ingest(runs / "one", out=tmp_path / "dataset", filter=f"src host {A}")
    assert sorted(kept) == [False, False, True, True]


def test_a_filter_that_keeps_nothing_warns(runs: Path, tmp_path: Path) -> None:
    for _ in range(2):
        said = ingest(runs, out=tmp_path / "dataset", filter=f"host {C}")
        assert [warning.removeprefix("run ") for warning in said] == [
            f"one: --filter 'host {C}' keeps none of its 20 packets; correct the expression, or ingest without it"
        ]
    assert ingest(runs, out=tmp_path / "dataset", filter="tcp") == []
