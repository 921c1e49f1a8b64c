"""Runs of many captures."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_runs import A, B, ring, write_captures

import ddnn_traces
from ddnn_traces.ingestors.reconcile import described


@pytest.mark.long
def test_the_tables_of_many_captures_need_little_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A scan of each file would take 100 kB of it; there are 2 kB."""
    folder = write_captures(tmp_path / "run", {f"{number}.pcap": ring(A, B) for number in range(240)})
    monkeypatch.setattr(described, "_MEMORY_MB", 32)
    with ddnn_traces.ingest(folder, tmp_path / "dataset", packets=True) as dataset:
        counts = dataset.sql("SELECT (SELECT count(*) FROM captures), (SELECT sum(packets) FROM flow_windows)")
        assert counts.row(0) == (240, 20)
