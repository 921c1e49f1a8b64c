"""The timeline: a sound trace by the format's rules, with the steps, events and bytes of the run in it."""

from __future__ import annotations

import copy
import gzip
import json
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from datasets import write_dataset
from tools import RunCommand
from trace_format import problems

import ddnn_traces
from ddnn_traces.errors import UsageError
from ddnn_traces.export import perfetto
from ddnn_traces.export.perfetto import TimelineOptions
from ddnn_traces.query.dataset import Dataset

RUN = "torch-mlp1-sgd-32-gloo-0ms-ring"
MS = 1_000_000

Trace = dict[str, Any]


@pytest.fixture(scope="module")
def run(sample_dataset: Dataset) -> Dataset:
    return ddnn_traces.open(sample_dataset.path, [RUN])


def write(dataset: Dataset, folder: Path, **options: Any) -> tuple[Trace, list[str]]:
    """The trace, which is sound, and what was left out."""
    left_out = perfetto.write(dataset, folder / "timeline.json", TimelineOptions(**options))
    trace = json.loads((folder / "timeline.json").read_bytes(), parse_constant=pytest.fail)
    assert problems(trace) == []
    assert trace["otherData"]["left_out"] == left_out
    return trace, left_out


def of_phase(trace: Trace, *phases: str) -> list[dict[str, Any]]:
    return [event for event in trace["traceEvents"] if event["ph"] in phases]


def counted_bytes(trace: Trace) -> dict[str, float]:
    """Bytes under each counter: a value holds until the next."""
    values = defaultdict(list)
    for event in of_phase(trace, "C"):
        values[event["name"]].append((event["ts"], event["args"]["Gbit/s"]))
    assert all(changes[-1][1] == 0 for changes in values.values())
    return {
        name: sum(value * (after - at) * 125 for (at, value), (after, _) in pairwise(changes))
        for name, changes in values.items()
    }


# --- a run of the sample


@pytest.mark.long
@pytest.mark.parametrize("every", [4, pytest.param(1, marks=pytest.mark.nightly)])
def test_every_run_of_the_sample_is_sound(every: int, sample_dataset: Dataset, tmp_path: Path) -> None:
    for name in sample_dataset.run_ids[::every]:
        with ddnn_traces.open(sample_dataset.path, [name]) as opened:
            trace, _ = write(opened, tmp_path)
        assert trace["otherData"]["run_id"] == name
        assert of_phase(trace, "X")
        assert of_phase(trace, "C")


@pytest.mark.long
def test_steps_and_events_are_those_of_the_tables(run: Dataset, tmp_path: Path) -> None:
    trace, left_out = write(run, tmp_path)
    assert left_out == []
    base = trace["otherData"]["run_start_ns"]
    lanes = {e["pid"]: e["args"]["name"].split()[0] for e in of_phase(trace, "M") if e["name"] == "process_name"}
    assert lanes == {1: "W1", 2: "W2", 3: "W3", 4: "W4", 1_000_000: "job"}
    drawn = {
        (
            "worker-" + lanes[e["pid"]][1:],
            e["args"]["step"],
            e["cat"],
            round(e["ts"] * 1000) + base,
            round(e["dur"] * 1000),
        )
        for e in of_phase(trace, "X")
    }
    steps = run.sql("SELECT worker, step, 'step', start_ns, end_ns - start_ns FROM steps").rows()
    events = run.sql("SELECT worker, step, kind, start_ns, end_ns - start_ns FROM events").rows()
    asynchronous = sum(event["cat"] != "collective" for event in of_phase(trace, "b"))
    assert len(of_phase(trace, "X")) + asynchronous == len(steps) + len(events)
    assert set(steps) <= drawn
    assert len(set(events) - drawn) == asynchronous
    losses = {(e["pid"], e["args"]["step"]): e["args"]["loss"] for e in of_phase(trace, "X") if e["cat"] == "step"}
    assert losses[1, 0] == run.sql("SELECT loss FROM steps WHERE worker = 'worker-1' AND step = 0").item()


def test_collectives_are_those_of_the_traffic(run: Dataset, tmp_path: Path) -> None:
    trace, _ = write(run, tmp_path)
    base = trace["otherData"]["run_start_ns"]
    begun = [event for event in of_phase(trace, "b") if event["cat"] == "collective"]
    wanted = run.query("collective_times")
    assert [(e["args"]["step"], e["args"]["position"], round(e["ts"] * 1000) + base) for e in begun] == wanted.sort(
        "start_ns", "job", "step", "position"
    ).select("step", "position", "start_ns").rows()
    ended = {event["id"]: event for event in of_phase(trace, "e")}
    assert {round(ended[e["id"]]["ts"] * 1000) + base for e in begun} == set(wanted["end_ns"])
    names = [e["args"]["name"] for e in of_phase(trace, "M") if e["pid"] == 1_000_000 and e["name"] == "thread_name"]
    assert len(names) == run.query("communicators").height > 0


@pytest.mark.long
def test_counters_hold_every_byte(run: Dataset, tmp_path: Path) -> None:
    expected = run.sql("SELECT sum(wire_bytes)::BIGINT FROM flow_windows").item()
    for options in ({}, {"window_ms": 1.0}, {"window_ms": 7.0, "flows": 3}, {"flows": 0}):
        trace, _ = write(run, tmp_path, **options)
        found = counted_bytes(trace)
        assert sum(found.values()) == pytest.approx(expected, rel=1e-6)
        assert len(found) == {3: 4, 0: 1}.get(options.get("flows", 20), len(found))
    largest = run.sql("SELECT max(wire_bytes) FROM flows").item()
    trace, left_out = write(run, tmp_path, window_ms=1.0, flows=1)
    assert max(v for k, v in counted_bytes(trace).items() if k != "other flows") == pytest.approx(largest, rel=1e-6)
    assert left_out == ["the counters of all flows but the 1 largest: they are one, other flows (--flows)"]


def test_excerpt(run: Dataset, tmp_path: Path) -> None:
    whole, _ = write(run, tmp_path, window_ms=1.0)
    middle = [event for event in of_phase(whole, "X") if event["cat"] == "step"][8]
    from_ms, length_ms = middle["ts"] / 1000 + 1, middle["dur"] / 1000
    part, _ = write(run, tmp_path, window_ms=1.0, from_ms=from_ms, length_ms=length_ms)
    assert part["otherData"]["excerpt"] == {"from_ms": from_ms, "length_ms": length_ms}
    assert part["otherData"]["run_start_ns"] == whole["otherData"]["run_start_ns"]
    begin, end = from_ms * 1000, (from_ms + length_ms) * 1000
    inside = [event for event in of_phase(whole, "X") if event["ts"] < end and event["ts"] + event["dur"] > begin]
    assert middle in inside
    assert of_phase(part, "X") == inside
    assert len(inside) < len(of_phase(whole, "X"))
    times = [event["ts"] for event in of_phase(part, "C")]
    assert begin - 1000 <= min(times) < max(times) <= end + 1000
    assert len(times) < len(of_phase(whole, "C"))


def test_full_timeline_ends_and_says_so(run: Dataset, tmp_path: Path) -> None:
    trace, left_out = write(run, tmp_path, max_events=100)
    assert len(of_phase(trace, "X", "C")) == 100
    (line,) = left_out
    end_ms = float(line.removeprefix("everything from ").split(" ms")[0].replace(",", ""))
    assert "--max-events" in line
    whole, _ = write(run, tmp_path)
    assert sorted(e["ts"] for e in of_phase(whole, "X", "C"))[100] == pytest.approx(end_ms * 1000, abs=0.5)


@pytest.mark.long
def test_same_bytes_also_compressed(run: Dataset, tmp_path: Path) -> None:
    for name in ("a.json", "b.json", "a.json.gz", "b.json.gz"):
        perfetto.write(run, tmp_path / name)
    content = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert len(content) == 4
    assert content["a.json"] == content["b.json"] == gzip.decompress(content["a.json.gz"])
    assert content["a.json.gz"] == content["b.json.gz"]


# --- odd runs


def make(folder: Path, **tables: dict[str, list[Any]]) -> Dataset:
    given = {name: pl.DataFrame({"run_id": ["run"] * len(next(iter(t.values()))), **t}) for name, t in tables.items()}
    return write_dataset(folder, {"runs": pl.DataFrame({"run_id": ["run"]}), **given})


def test_names_are_escaped(tmp_path: Path) -> None:
    odd = 'a"b\\c\n</script> ü \u2028'
    steps = {
        "worker": [odd],
        "step": [0],
        "epoch": [0],
        "start_ns": [5 * MS],
        "end_ns": [9 * MS],
        "loss": [float("nan")],
    }
    with make(tmp_path / "d", steps=steps) as dataset:
        trace, _ = write(dataset, tmp_path)
    (step,) = of_phase(trace, "X")
    assert step["args"] == {"step": 0, "epoch": 0, "loss": "nan"}
    assert odd in [event["args"].get("name") for event in of_phase(trace, "M")]


@pytest.mark.long
def test_what_overlaps_is_asynchronous(tmp_path: Path) -> None:
    steps = {
        "worker": ["worker-1"] * 2,
        "step": [0, 1],
        "epoch": [0, 0],
        "start_ns": [0, 10 * MS],
        "end_ns": [10 * MS, 20 * MS],
    }
    events = {
        "worker": ["worker-1"] * 3, "step": [0, 0, 1], "kind": ["backward", "communicate", "update"],
        "name": ["layer1", "layer2", None], "start_ns": [MS, 2 * MS, 11 * MS], "end_ns": [5 * MS, 8 * MS, 12 * MS],
        "bytes": [None, 1000, None], "priority": [None, 2, None],
    }  # fmt: skip
    with make(tmp_path / "d", steps=steps, events=events) as dataset:
        trace, _ = write(dataset, tmp_path)
    assert [event["name"] for event in of_phase(trace, "X")] == ["step 0", "step 1", "update"]
    assert [(e["name"], e["ph"], e["ts"]) for e in of_phase(trace, "b", "e")] == [
        ("backward layer1", "b", 1000), ("backward layer1", "e", 5000),
        ("communicate layer2", "b", 2000), ("communicate layer2", "e", 8000),
    ]  # fmt: skip
    assert [e["args"] for e in of_phase(trace, "b")] == [{"step": 0}, {"step": 0, "bytes": 1000, "priority": 2}]


@pytest.mark.long
def test_interval_that_ends_before_it_begins_is_reported(tmp_path: Path) -> None:
    steps = {"worker": ["worker-1"] * 2, "step": [0, 1], "epoch": [0, 0], "start_ns": [0, 30], "end_ns": [10, 20]}
    with make(tmp_path / "d", steps=steps) as dataset:
        trace, left_out = write(dataset, tmp_path)
    assert [event["name"] for event in of_phase(trace, "X", "b")] == ["step 0"]
    (line,) = left_out
    assert line.startswith("steps or events that end before they begin: 1;")


def test_run_without_anything(tmp_path: Path) -> None:
    with make(tmp_path / "d") as dataset, pytest.raises(UsageError, match="run run has no packets, steps or events"):
        perfetto.write(dataset, tmp_path / "t.json")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"window_ms": 0.0}, "--window-ms 0"),
        ({"length_ms": float("nan")}, "--length-ms nan"),
        ({"from_ms": -1.0}, "--from-ms -1"),
    ],
)
def test_options_out_of_range(run: Dataset, tmp_path: Path, options: dict[str, float], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        perfetto.write(run, tmp_path / "t.json", TimelineOptions(**options))
    assert list(tmp_path.iterdir()) == []


# --- the command


@pytest.mark.long
def test_command(command: RunCommand, sample_dataset: Dataset, tmp_path: Path) -> None:
    call = ("export", sample_dataset.path, "--to", "perfetto", "--out", "t.json.gz", "--flows", "2")
    done = command(*call, "--run", RUN)
    assert (done.returncode, done.stdout) == (0, b"")
    left_out, wrote = done.stderr.decode().splitlines()
    assert left_out.startswith("left out: the counters of all flows but the 2 largest")
    assert wrote == "wrote t.json.gz; open it in https://ui.perfetto.dev"
    assert problems(json.loads(gzip.decompress((tmp_path / "t.json.gz").read_bytes()))) == []
    several = command(*call)
    assert several.returncode == 2
    assert (
        b"choose one run with --run, in Python runs=[NAME]; " in several.stderr
        and b" has 20: mpi-mlp1" in several.stderr
    )
    wrong = command(*call, "--run", RUN.replace("torch", "troch"))
    assert wrong.returncode == 2
    assert f"; did you mean {RUN}".encode() in wrong.stderr
    assert b"--out timeline.json.gz" in command("export", sample_dataset.path, "--to", "perfetto").stderr
    below = command(*call[:5], "t.json.gz/t.json", "--run", RUN)
    assert (below.returncode, b"t.json.gz/t.json: cannot be written (Not a directory)" in below.stderr) == (2, True)


# --- the validator itself


def test_validator_finds_what_is_broken() -> None:
    name = {"name": "process_name", "ph": "M", "pid": 1, "tid": 1, "ts": 0, "args": {"name": "W1"}}
    step = {"name": "s", "cat": "step", "ph": "X", "pid": 1, "tid": 1, "ts": 1, "dur": 5, "args": {}}
    inner = step | {"ts": 2, "dur": 1}
    counter = {"name": "c", "ph": "C", "pid": 1, "ts": 1, "args": {"v": 1}}
    begin = {"name": "a", "cat": "k", "ph": "b", "id": "0x1", "pid": 1, "tid": 1, "ts": 3, "args": {}}
    end = begin | {"ph": "e", "ts": 4}
    good = [name, step, inner, counter, counter | {"ts": 2}, begin, end]
    assert problems({"traceEvents": good}) == []
    broken = [
        (0, {"args": {}}), (0, {"name": "c"}), (1, {"dur": -1}), (1, {"dur": "5"}), (1, {"ts": None}), (1, {"ph": "Q"}),
        (1, {"pid": "1"}), (2, {"dur": 9}), (2, {"ts": 0}), (3, {"args": {}}), (3, {"args": {"v": "1"}}),
        (3, {"args": {"v": True}}), (4, {"ts": 1}), (4, {"ts": 0}), (5, {"id": "0x2"}), (6, {"ts": 2}),
        (1, {"color": 1}), (1, {"pid": 2}), (5, {"name": 3}),
    ]  # fmt: skip
    for place, change in broken:
        events = copy.deepcopy(good)
        events[place] |= change
        assert problems({"traceEvents": events}), (place, change)
    for lost in range(7):
        assert (problems({"traceEvents": good[:lost] + good[lost + 1 :]}) != []) == (lost in (0, 5, 6)), lost
    assert problems([]) == ["no JSON object with a list of traceEvents"]
