"""Killed at any instant, a dataset is the old or the new one, run by run, and the next ingest finishes it."""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest
from small_runs import contradictions, views_are_current
from tools import CODE

import ddnn_traces
from ddnn_traces.query import views
from ddnn_traces.store.layout import is_dataset

pytestmark = pytest.mark.views

SAMPLE_RUN = "torch-mlp1-sgd-32-gloo-0ms-ring-tso"  # its captures are not compressed, and so are easily cut

#: Forks a child for each line (sources, out, seconds between commits): starting Python 100 times would take minutes.
SERVER = """
import json, os, sys, tempfile
from pathlib import Path
import numpy as np
from ddnn_traces.ingestors import pipeline
from ddnn_traces.pcap.capture_facts import ReadOptions
from ddnn_traces.ingestors.options import IngestOptions
from ddnn_traces.pcap import numba_engine

with tempfile.TemporaryDirectory() as scratch:  # the packet loop is loaded
    numba_engine.read_capture(Path(sys.argv[1]), ReadOptions(10**6, np.zeros(0, np.int64), Path(scratch, "cells")))
print("ready", flush=True)
for line in sys.stdin:
    source, out, pipeline.COMMIT_SECONDS = json.loads(line)
    pid = os.fork()
    if pid == 0:
        pipeline.ingest([source], Path(out), IngestOptions(jobs=2))
        os._exit(0)
    print(pid, flush=True)
    sys.stdin.readline()  # a child that ended keeps its pid until it is waited for
    print(os.waitpid(pid, 0)[1], flush=True)
"""


class Ingests:
    """Ingests in processes of their own."""

    def __init__(self, stdin: IO[str], stdout: IO[str], source: Path) -> None:
        self._stdin, self._stdout, self._source = stdin, stdout, source
        assert stdout.readline() == "ready\n"

    def start(self, out: Path, commit_seconds: float) -> int:
        """Begin an ingest; return its process."""
        print(json.dumps([str(self._source), str(out), commit_seconds]), file=self._stdin, flush=True)
        return int(self._stdout.readline())

    def wait(self) -> int:
        """Wait status of the ingest that was started."""
        print(file=self._stdin, flush=True)
        return int(self._stdout.readline())


def cut(capture: Path, records: range) -> bytes:
    """A pcap with some of another one's records (little endian)."""
    content = capture.read_bytes()
    at, places = 24, []
    while at < len(content):
        (size,) = struct.unpack_from("<I", content, at + 8)
        places.append((at, at + 16 + size))
        at += 16 + size
    return content[:24] + b"".join(content[begin:end] for begin, end in places[records.start : records.stop])


def make_run(sample: Path, folder: Path, records: range) -> None:
    folder.mkdir(parents=True)
    for worker in ("worker-1", "worker-2"):
        capture = f"{worker}-tcpdump.pcap"
        (folder / capture).write_bytes(cut(sample / SAMPLE_RUN / capture, records))
        log = f"train_history-{worker}.log"
        shutil.copy2(sample / SAMPLE_RUN / log, folder / log)


@pytest.fixture
def ingests(sample: Path, tmp_path: Path) -> Iterator[Ingests]:
    for number, name in enumerate(("one", "two", "three"), start=1):
        make_run(sample, tmp_path / "runs" / name, range(150 * number))
    call = [sys.executable, "-c", CODE.replace("from ddnn_traces.cli import main; main()", SERVER)]
    capture = tmp_path / "runs" / "one" / "worker-1-tcpdump.pcap"
    with subprocess.Popen(
        [*call, str(capture)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as server:
        assert server.stdin
        assert server.stdout
        assert server.stderr
        try:
            yield Ingests(server.stdin, server.stdout, tmp_path / "runs")
            server.stdin.close()
            assert server.stderr.read() == ""
        finally:
            server.kill()


def by_run(dataset: Path) -> dict[str, str]:
    """Run folder's name -> hash of all its files in all tables."""
    hashes: dict[str, list[str]] = {}
    for path in sorted(dataset.glob("*/run_id=*/*")):
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        hashes.setdefault(path.parent.name, []).append(f"{path.parent.parent.name} {content}")
    return {run: "\n".join(lines) for run, lines in hashes.items()}


def all_files(dataset: Path) -> dict[str, bytes]:
    """All files; of the database of views, only that it is current."""
    files = {str(path.relative_to(dataset)): path.read_bytes() for path in dataset.rglob("*") if path.is_file()}
    assert views_are_current(dataset)
    return files | {views.FILE: b"current"}


@pytest.mark.long
@pytest.mark.parametrize("kills", [12, pytest.param(48, marks=pytest.mark.nightly)])
def test_killed_at_any_instant(kills: int, sample: Path, tmp_path: Path, ingests: Ingests) -> None:
    make_run(sample, tmp_path / "before" / "one", range(40))
    make_run(sample, tmp_path / "before" / "two", range(40, 90))
    make_run(sample, tmp_path / "before" / "kept", range(20))
    ddnn_traces.ingest(tmp_path / "before", tmp_path / "old").close()
    seconds, out = undisturbed(tmp_path, ingests, repeats=3)
    expected, old, new = all_files(out), by_run(tmp_path / "old"), by_run(out)
    sound: set[tuple[tuple[str, str], ...]] = set()
    outcomes = []
    rng = random.Random(20260149)
    for kill in range(kills):
        refresh(tmp_path / "old", out)
        pid = ingests.start(out, 0.0 if kill % 2 else 10.0)
        time.sleep((kill + rng.random()) / kills * seconds)  # the moment is what is tested
        os.kill(pid, signal.SIGKILL)
        ended = ingests.wait()
        # the machine may be slower or faster now
        seconds *= 1.05 if ended == signal.SIGKILL else 0.7
        assert is_dataset(out)
        state = by_run(out)
        assert old.keys() <= state.keys() <= new.keys()
        assert all(content in (old.get(run), new.get(run)) for run, content in state.items())
        if tuple(sorted(state.items())) not in sound:
            with ddnn_traces.open(out) as dataset:
                assert contradictions(dataset) == {}
            sound.add(tuple(sorted(state.items())))
        outcomes.append((ended == signal.SIGKILL, state == old, state == new))
        ingests.start(out, 10.0)
        assert ingests.wait() == 0
        assert all_files(out) == expected
        assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []
    assert sum(killed for killed, _, _ in outcomes) > kills // 2
    assert any(was_old for _, was_old, _ in outcomes)
    assert any(not was_old for _, was_old, _ in outcomes)


def undisturbed(folder: Path, ingests: Ingests, repeats: int) -> tuple[float, Path]:
    """Duration of a whole ingest over the old dataset, s, and the dataset that it made."""
    out = folder / "out"
    durations = []
    for commit_seconds in (10.0, 0.0, 0.0)[:repeats]:
        refresh(folder / "old", out)
        begin = time.monotonic()
        ingests.start(out, commit_seconds)
        assert ingests.wait() == 0
        durations.append(time.monotonic() - begin)
    return sorted(durations)[repeats // 2], out


def refresh(old: Path, out: Path) -> None:
    shutil.rmtree(out, ignore_errors=True)
    shutil.copytree(old, out)
