"""A real run of PyTorch on gloo with its flight recorder and Kineto traces beside the captures, read as a whole."""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Iterator
from pathlib import Path

import pytest
from tools import run_here

from ddnn_traces.export import perfetto
from ddnn_traces.query.dataset import Dataset

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "tests/traces/profilers/torch-mlp1-sgd-32-gloo-normal-ring-n4"


@pytest.fixture(scope="module")
def profiled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dataset]:
    """The run, with the Kineto trace of worker-4 named by the call from elsewhere."""
    folder = tmp_path_factory.mktemp("profiled")
    (folder / "run").mkdir()
    for path in FOLDER.iterdir():
        place = folder / "there.gz" if path.name == "kineto-worker-4.json.gz" else folder / "run" / path.name
        place.symlink_to(path)
    done = run_here("ingest", folder / "run", "--out", folder / "dataset", "--events", folder / "there.gz")
    assert done.returncode == 0, done.stderr
    with Dataset(folder / "dataset") as dataset:
        yield dataset


def test_flight_recorder(profiled: Dataset) -> None:
    """Every entry is a row: time, name and size computed here from the file."""
    expected = []
    for number in range(1, 5):
        for entry in json.loads(gzip.decompress((FOLDER / f"flight_recorder-worker-{number}.json.gz").read_bytes()))[
            "entries"
        ]:
            size = {"Float": 4, "Int": 4, "Long": 8}
            counts = [
                sum(size[kind] * math.prod(shape) for shape, kind in zip(*pair, strict=True))
                for pair in (
                    (entry["input_sizes"], entry["input_dtypes"]), (entry["output_sizes"], entry["output_dtypes"]),
                )
            ]  # fmt: skip
            expected.append((f"worker-{number}", entry["time_created_ns"], entry["profiling_name"],
                             entry["collective_seq_id"], max(counts)))  # fmt: skip
    rows = profiled.sql(
        "SELECT worker, start_ns, name, sequence, bytes FROM events WHERE profiler = 'flight_recorder' ORDER BY ALL"
    ).rows()
    assert len(rows) == 4 * 16
    assert rows == sorted(expected)


def test_kineto(profiled: Dataset) -> None:
    """Each all-reduce of the trace; it has no ProfilerStep, and the program's own log is not among the files."""
    rows = profiled.sql(
        "SELECT worker, step, bytes, start_ns, end_ns FROM events WHERE profiler = 'kineto' AND kind = 'allreduce' "
        "ORDER BY worker, start_ns"
    ).rows()
    expected = []
    for number in range(1, 5):
        trace = json.loads(gzip.decompress((FOLDER / f"kineto-worker-{number}.json.gz").read_bytes()))
        calls = [event for event in trace["traceEvents"] if event["name"] == "gloo:all_reduce"]
        starts = sorted(trace["baseTimeNanoseconds"] / 1e9 + event["ts"] / 1e6 for event in calls)
        expected += [(f"worker-{number}", start) for start in starts]
    assert len(rows) == 40
    for (worker, step, size, start_ns, end_ns), (label, start) in zip(rows, expected, strict=True):
        assert (worker, step, size) == (label, None, 940_584)
        assert start_ns / 1e9 == pytest.approx(start, abs=1e-5)
        assert 0 < end_ns - start_ns < 10**9
    assert profiled.query("program_events").is_empty()


def test_beside_the_wire(profiled: Dataset) -> None:
    """Both profilers have each all-reduce that the wire has, at all hosts. The run has one clock: the truth is 0."""
    clocks = profiled.query("profiler_clocks")
    assert clocks["rivals"].to_list() == [0] * 8
    kineto = clocks.filter(profiler="kineto")
    assert all(abs(offset) <= most for offset, most in kineto.select("offset_ns", "uncertainty_ns").rows())
    assert kineto["uncertainty_ns"].max() < 1_000_000
    recorders = clocks.filter(profiler="flight_recorder")
    assert recorders["uncertainty_ns"].null_count() == 4
    assert all(0 < offset < 1_000_000 for offset in recorders["offset_ns"])
    found = profiled.query("collective_match").drop_nulls("wire_kind")
    assert found["problem"].null_count() == len(found) == 2 * 10
    assert set(found["profiler_hosts"]) == {4}


def test_perfetto_shows_both_on_one_clock(profiled: Dataset, tmp_path: Path) -> None:
    perfetto.write(profiled, tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    names = [event["args"]["name"] for event in events if event["name"] == "thread_name"]
    assert {"kineto of worker-1", "flight_recorder of worker-4"} <= set(names)
    begins = {
        category: sorted(event["ts"] for event in events if event.get("cat") == category and event["ph"] == "b"
                         and event["name"] == "all_reduce")
        for category in ("kineto", "collective")
    }  # fmt: skip
    assert len(begins["collective"]) == 10
    assert len(begins["kineto"]) == 40
    firsts = begins["kineto"][::4]  # of each all-reduce the first call of four
    assert all(first <= wire + 1000 for first, wire in zip(firsts, begins["collective"], strict=True))


def test_events_of_several_runs(tmp_path: Path) -> None:
    trace = FOLDER / "kineto-worker-4.json.gz"
    other = ROOT / "tests/traces/runs/torch-mlp1-sgd-32-gloo-0ms-ring"
    done = run_here("ingest", other, FOLDER, "--out", tmp_path / "dataset", "--events", trace)
    assert done.returncode == 2
    assert b"--events names files of one run, and there are 2" in done.stderr
