"""Run folders."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_runs import A, B, C, ring, sent_by, write_captures


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Run folders one and two."""
    for name, hosts in (("one", (A, B)), ("two", (A, B, C))):
        packets = ring(*hosts)
        files = {f"worker-{n}.pcap": list(filter(sent_by(host), packets)) for n, host in enumerate(hosts, 1)}
        write_captures(tmp_path / "runs" / name, files)
    return tmp_path / "runs"
