"""A task is plain values: pickled and run in another process, it gives the same facts and the same dataset."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from small_runs import A, B, hashes_of, passing, ring, write_captures, write_log
from tools import CODE

from ddnn_traces.ingestors import pipeline, read_runs
from ddnn_traces.ingestors.options import IngestOptions
from ddnn_traces.ingestors.schedule.tasks import ReadResult, ReadTask, read
from ddnn_traces.messages import Messages
from ddnn_traces.pcap.capture_facts import ReadOptions

#: Reads pickled tasks from standard input, and writes their pickled results.
WORKER = """
import pickle
from ddnn_traces.ingestors.schedule.tasks import read
while True:
    try:
        task = pickle.load(sys.stdin.buffer)
    except EOFError:
        break
    pickle.dump(read(task), sys.stdout.buffer)
    sys.stdout.buffer.flush()
"""


class OtherProcess:
    """A scheduler that runs all tasks in one other process. Takes the place of schedule.threads.Threads."""

    used: ClassVar[list[ReadTask]] = []

    def __init__(self, _jobs: int, _messages: Messages) -> None:
        call = [sys.executable, "-c", CODE.replace("from ddnn_traces.cli import main; main()", WORKER)]
        self._process = subprocess.Popen(call, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def __enter__(self) -> OtherProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()
        assert self._process.returncode == 0

    def summarize(self) -> None:
        """Nothing."""

    def results(self, tasks: Iterable[ReadTask]) -> Iterator[ReadResult]:
        for task in tasks:
            self.used.append(task)
            assert self._process.stdin and self._process.stdout
            self._process.stdin.write(pickle.dumps(task))
            self._process.stdin.flush()
            result = pickle.load(self._process.stdout)
            assert isinstance(result, ReadResult)
            yield result


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run of two hosts with a log each; one capture is damaged."""
    packets = ring(A, B)
    files = {f"worker-{n}.pcap": list(filter(passing(host), packets)) for n, host in enumerate((A, B), 1)}
    folder = write_captures(tmp_path / "run", files)
    for worker in ("worker-1", "worker-2"):
        write_log(folder, worker, [packets[5].time_ns, packets[12].time_ns])
    damaged = folder / "worker-2.pcap"
    damaged.write_bytes(damaged.read_bytes()[:-3])
    return folder


@pytest.mark.parametrize(
    "options",
    [
        {"packets": True, "filter": f"src host {A}"},
        {"clock_offset": 0.0001, "hash": "none", "tunnels": "outer", "window_ms": 0.01},
    ],
    ids=["packets-filter", "clock-windows"],
)
@pytest.mark.long
def test_tasks_in_another_process_give_the_same_dataset(
    run: Path, tmp_path: Path, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = Messages(), Messages()
    pipeline.ingest([str(run)], tmp_path / "here", IngestOptions(jobs=2, **options), here)
    monkeypatch.setattr(read_runs, "Threads", OtherProcess)
    monkeypatch.setattr(OtherProcess, "used", [])
    pipeline.ingest([str(run)], tmp_path / "there", IngestOptions(jobs=2, **options), there)
    assert [task.path.name for task in OtherProcess.used] == ["worker-1.pcap", "worker-2.pcap"]
    assert hashes_of(tmp_path / "here") == hashes_of(tmp_path / "there")
    assert here.warnings == there.warnings != []


def test_facts_from_a_pickled_task(run: Path, tmp_path: Path) -> None:
    steps = np.array([1_700_000_000_000_050_000, 1_700_000_000_000_100_000], np.int64)
    options = ReadOptions(1000, steps, tmp_path / "cells", tmp_path / "packets")
    task = ReadTask(run / "worker-1.pcap", "run/worker-1.pcap", "numba", options, filter=f"host {B}")
    here = read(task)
    elsewhere = replace(task, options=replace(options, spill=tmp_path / "cells-2", packets=tmp_path / "packets-2"))
    with OtherProcess(1, Messages()) as other:
        (there,) = other.results([elsewhere])
    for name in ("cells", "trains", "packets"):
        mine, theirs = getattr(here.facts, name), getattr(there.facts, name)
        assert mine != theirs
        assert mine.read_bytes() == theirs.read_bytes()
    assert (
        replace(there.facts, cells=here.facts.cells, trains=here.facts.trains, packets=here.facts.packets) == here.facts
    )
    assert there.seconds > 0


def test_file_that_cannot_be_read_is_a_result(tmp_path: Path) -> None:
    options = ReadOptions(1000, np.empty(0, np.int64), tmp_path / "cells")
    facts = read(ReadTask(tmp_path / "missing.pcap", "missing.pcap", "numba", options)).facts
    assert (facts.status, facts.engine, facts.records) == ("corrupt", "none", 0)
    assert "No such file" in str(facts.status_detail)
