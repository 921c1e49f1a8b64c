"""The fuzz target (tests/fuzz.py) on fixed cases, as shipped and with all indices of the loop checked."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import fuzz
import naive
import pytest

from ddnn_traces.pcap.compiled.tunnels import KINDS

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("checked", "cases"),
    [
        (False, 30),
        pytest.param(True, 200, marks=pytest.mark.long),
        pytest.param(True, 600, marks=pytest.mark.nightly),
        pytest.param(False, 600, marks=pytest.mark.nightly),
    ],
)
def test_damaged_captures(checked: bool, cases: int, tmp_path: Path) -> None:
    """In a process of its own, which may crash. Checked code needs its own cache folder."""
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    if checked:
        environment |= {"NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, ROOT / "tests" / "fuzz.py", "--cases", str(cases), "--seed", "1"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-4000:]
    assert f"{cases} cases" in done.stdout


def test_cases_are_the_same_every_time() -> None:
    cases = [fuzz.case(1, number) for number in range(50)]
    assert cases == [fuzz.case(1, number) for number in range(50)]
    assert cases != [fuzz.case(2, number) for number in range(50)]


def test_cases_reach_every_kind_of_record() -> None:
    """Damage leaves enough whole: flows in tunnels, connections, holes, and every reason to skip."""
    read = [naive.read(fuzz.case(1, number), 5000, []) for number in range(400)]
    assert {facts.status for facts in read} == {"complete", "truncated", "corrupt"}
    assert {reason for facts in read for reason in facts.skipped} >= {"not_ip", "malformed", "cut_short"}
    assert {tunnel.kind for facts in read for tunnel in facts.encapsulations} == set(KINDS)
    keys = [key for facts in read for key in facts.flows]
    assert any(key[6] is not None for key in keys)
    assert any(key[8] > 0 for key in keys)
    rows = [row for facts in read for row in facts.flows.values()]
    for column in ("out_of_order_packets", "retransmitted_packets", "mss", "large_packets"):
        assert any(row[column] for row in rows), column
    assert any(facts.untimed_records for facts in read)


def test_a_difference_is_found_and_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def wrong(data: bytes, *arguments: object, **_: int) -> naive.Facts:
        facts = naive.read(data, *arguments)
        facts.wire_bytes += facts.records > 40
        return facts

    monkeypatch.setattr(fuzz, "read_fast", wrong)
    failed = fuzz.fuzz(1, 400, 60, tmp_path)
    assert failed
    assert naive.read(failed.read_bytes(), 5000, []).records > 40
