"""A timeline in Perfetto's own format holds what the trace-event format does: read with Perfetto's classes alone."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from datasets import write_dataset

import ddnn_traces
from ddnn_traces.export import perfetto
from ddnn_traces.query.dataset import Dataset

pytestmark = pytest.mark.page
RUN = "torch-mlp1-sgd-32-gloo-0ms-ring"
MS = 1_000_000


def packets(path: Path) -> list[Any]:
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace

    content = path.read_bytes()
    return list(Trace.FromString(gzip.decompress(content) if path.suffix == ".gz" else content).packet)


def value(argument: Any) -> Any:
    return getattr(argument, argument.WhichOneof("value"))


def read(path: Path) -> tuple[Counter[Any], Counter[Any], dict[str, Any]]:
    """Slices (process, name, category, begin, end, arguments), counters (process, name, ns, value), and facts.

    A slice ends the one that was begun last on its track; times never go back.
    """
    tracks: dict[int, Any] = {}
    slices: Counter[Any] = Counter()
    counters: Counter[Any] = Counter()
    facts: dict[str, Any] = {}
    begun: dict[int, list[Any]] = {}
    last = 0
    for packet in packets(path):
        if packet.HasField("track_descriptor"):
            found = packet.track_descriptor
            assert found.uuid not in tracks and (not found.parent_uuid or found.parent_uuid in tracks)
            tracks[found.uuid] = found
            continue
        event, at = packet.track_event, packet.timestamp
        assert at >= last
        last, track = at, tracks[event.track_uuid]
        process = tracks[track.parent_uuid].process.pid if track.parent_uuid else None
        kind = event.DESCRIPTOR.enum_types_by_name["Type"].values_by_number[event.type].name
        arguments = tuple((each.name, value(each)) for each in event.debug_annotations)
        if kind == "TYPE_COUNTER":
            assert track.counter.unit_name == "Gbit/s"
            counters[process, track.name, at, event.double_counter_value] += 1
        elif kind == "TYPE_SLICE_BEGIN":
            begun.setdefault(event.track_uuid, []).append((process, event.name, *event.categories, at, arguments))
        elif kind == "TYPE_SLICE_END":
            *first, begin, named = begun[event.track_uuid].pop()
            slices[(*first, begin, at, named)] += 1
        else:
            facts |= dict(arguments)
    assert not any(begun.values())
    return slices, counters, facts


def of_json(path: Path) -> tuple[Counter[Any], Counter[Any]]:
    """The same of a file in the trace-event format."""
    slices: Counter[Any] = Counter()
    counters: Counter[Any] = Counter()
    begun: dict[Any, Any] = {}
    for event in json.loads(path.read_bytes())["traceEvents"]:
        at, arguments = round(event["ts"] * 1000), tuple(event.get("args", {}).items())
        key = (event["pid"], event["name"], event.get("cat"))
        if event["ph"] == "X":
            slices[(*key, at, at + round(event["dur"] * 1000), arguments)] += 1
        elif event["ph"] == "b":
            begun[*key, event["id"]] = at, arguments
        elif event["ph"] == "e":
            begin, named = begun.pop((*key, event["id"]))
            slices[(*key, begin, at, named)] += 1
        elif event["ph"] == "C":
            counters[event["pid"], event["name"], at, event["args"]["Gbit/s"]] += 1
    return slices, counters


def both(dataset: Dataset, folder: Path) -> dict[str, Any]:
    """Write both formats and compare them; the facts in the native one."""
    perfetto.write(dataset, folder / "t.json")
    perfetto.write(dataset, folder / "t.pftrace")
    slices, counters, facts = read(folder / "t.pftrace")
    assert (slices, counters) == of_json(folder / "t.json")
    assert slices
    return facts


@pytest.mark.parametrize("name", [RUN, "torchp2p-mlp1-pairavg-32-gloo-0ms-gossip"])
def test_a_run_has_the_slices_and_counters_of_the_other_format(
    name: str, sample_dataset: Dataset, tmp_path: Path
) -> None:
    with ddnn_traces.open(sample_dataset.path, name) as opened:
        facts = both(opened, tmp_path)
        perfetto.write(opened, tmp_path / "again.pftrace.gz")
    assert facts["run_id"] == name and facts["run_start_ns"] > 10**18
    assert gzip.decompress((tmp_path / "again.pftrace.gz").read_bytes()) == (tmp_path / "t.pftrace").read_bytes()


def test_slices_that_nest_touch_overlap_and_last_no_time(tmp_path: Path) -> None:
    times = [(0, 10), (10, 20), (20, 20), (20, 30)]
    steps = {"worker": ["w"] * 4, "step": [0, 1, 2, 3], "epoch": [0] * 4, "start_ns": [a * MS for a, _ in times],
             "end_ns": [b * MS for _, b in times], "loss": [float("nan"), 1.5, None, 2.0]}  # fmt: skip
    spans = [(1, 5), (2, 8), (3, 9), (5, 5), (11, 19), (12, 14)]
    events = {"worker": ["w"] * 6, "step": [0, 0, 0, 0, 1, 1], "kind": ["a", "b", "c", "d", "e", "f"],
              "start_ns": [a * MS for a, _ in spans], "end_ns": [b * MS for _, b in spans]}  # fmt: skip
    tables = {name: pl.DataFrame({"run_id": ["r"] * len(given["worker"]), **given})
              for name, given in (("steps", steps), ("events", events))}  # fmt: skip
    with write_dataset(tmp_path / "d", {"runs": pl.DataFrame({"run_id": ["r"]}), **tables}) as opened:
        both(opened, tmp_path)
    slices, _, _ = read(tmp_path / "t.pftrace")
    assert sum(slices.values()) == 10
    assert (1, "step 2", "step", 20 * MS, 20 * MS, (("step", 2), ("epoch", 0))) in slices
