"""bus_bandwidth, collective_completion and step_overlap, computed anew from the files with tests/independent.py.

Bytes, times and windows are equal; rates are equal up to rounding.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from independent import Array, Run, read_run
from tools import FULL, Once, mostly_long, needs_full_captures

import ddnn_traces
from ddnn_traces.query.dataset import Dataset, StoredViews

MS = 10**6
SAMPLE = Path(__file__).parents[2] / "tests" / "traces" / "runs"

ENDS = ["src", "dst", "src_port", "dst_port"]

#: Runs of different frameworks and topologies: payload of a step over all pairs, over the bytes that are exchanged.
RUNS = {
    "mpi-mlp1-sgd-32-openmpi-0ms-recdoubling": 8.0,
    "mpi-mlp1-sgd-32-openmpi-0ms-ring-sll2": 6.0,
    "mpi-mlp1-sgd-32-openmpi-0ms-ring": 6.0,
    "tf-mlp1-sgd-32-grpc-0ms-ring": 6.0,
    "torch-mlp1-sgd-32-gloo-0ms-ring-both": 6.0,
    "torch-mlp1-sgd-32-gloo-0ms-ring-loss05": 6.0,
    "torch-mlp12-sgd-32-gloo-0ms-ring-tso": 6.0,
    "torchp2p-mlp1-sgd-32-gloo-0ms-star": 6.0,
    "torchp2p-mlp1-sgd-32-gloo-0ms-tree": 6.0,
}


@dataclass(frozen=True)
class Exchange:
    """A step's payload on the pairs that carry the exchange. windows, payload: of each packet, the number of its
    millisecond and what is in it; again: what of it was sent before; src, dst: its ends."""

    windows: Array
    payload: Array
    again: Array
    src: Array
    dst: Array

    @cached_property
    def interval(self) -> tuple[int, int]:
        """First window of the shortest interval with 99% of the payload, and the one after its last."""
        numbers = np.arange(self.windows.min(), self.windows.max() + 1)
        sums = np.zeros(len(numbers), np.int64)
        np.add.at(sums, self.windows - numbers[0], self.payload)
        passed = np.concatenate([[0], np.cumsum(sums)])
        lengths = [
            (int(np.searchsorted(passed, passed[begin] + -(-99 * passed[-1] // 100))) - begin, begin)
            for begin in np.flatnonzero(100 * passed[:-1] <= passed[-1])
        ]
        length, begin = min(lengths)
        return int(numbers[begin]), int(numbers[begin]) + length

    @property
    def moving(self) -> int:
        """Windows of the interval in which the busiest host sends or receives payload."""
        begin, end = self.interval
        inside = (self.windows >= begin) & (self.windows < end)
        return max(
            len(np.unique(self.windows[inside & ((self.src == host) | (self.dst == host))]))
            for host in np.unique(np.concatenate([self.src, self.dst]))
        )


def exchanges(run: Run) -> Iterator[Exchange]:
    """The exchange of each step: the connections with at least half of the heaviest one's payload in steps carry it."""
    packets, in_steps = run.packets[run.packets["payload"] > 0], run.in_steps[run.packets["payload"] > 0]
    connections, place = np.unique(packets[ENDS], return_inverse=True)
    sums = np.bincount(place, packets["payload"] * in_steps)
    chosen = (sums >= sums.max() / 2)[place]
    packets, again, place = packets[chosen], sent_again(packets)[chosen], place[chosen]
    step = np.empty(len(packets), np.int64)
    logs = {host: run.logs[worker] for worker, host in run.hosts.items()}
    for number in np.unique(place):
        sender, receiver = (logs[int(connections[number][end])] for end in ("src", "dst"))
        bounds = np.concatenate([receiver.begins[:1], np.maximum(sender.ends, receiver.ends)])
        step[place == number] = in_windows(packets["time"][place == number], bounds)
    for number in range(run.steps):
        p = packets[step == number]
        yield Exchange(p["time"] // MS, p["payload"], again[step == number], p["src"], p["dst"])


def in_windows(times: Array, bounds: Array) -> Array:
    """Which of the intervals between the bounds the middle of each time's window is in; -1 before the first bound."""
    return np.searchsorted(bounds, times // MS * MS + MS // 2, side="right") - 1


def sent_again(packets: Array) -> Array:
    """Payload of each packet that is below the highest sequence number of its connection before."""
    again = np.zeros(len(packets), np.int64)
    connections, place = np.unique(packets[ENDS], return_inverse=True)
    for number in range(len(connections)):
        mine = np.flatnonzero(place == number)
        steps = np.diff(packets["sequence"][mine].astype(np.int64))
        begins = np.concatenate([[0], np.cumsum((steps + 2**31) % 2**32 - 2**31)])
        ends = begins + packets["payload"][mine]
        highest = np.concatenate([ends[:1] * 0 + begins[0], np.maximum.accumulate(ends)[:-1]])
        again[mine] = np.clip(highest - begins, 0, packets["payload"][mine])
    return again


Answers = dict[str, pl.DataFrame]
QUERIES = ("collective_completion", "bus_bandwidth", "step_overlap")


def answers(dataset: Dataset, once: Once, name: str) -> Answers:
    """The queries' rows of all runs, asked once for all processes: to plan and run them takes most of the time."""

    def ask(folder: Path) -> None:
        folder.mkdir()
        with ddnn_traces.open(dataset.path, runs=list(RUNS)) as opened, StoredViews(opened) as stored:
            for query in QUERIES:
                stored.store_inputs(query)
                opened.query(query).write_parquet(folder / f"{query}.parquet")

    folder = once(f"exchange-of-{name}", ask)
    return {query: pl.read_parquet(folder / f"{query}.parquet") for query in QUERIES}


@pytest.fixture(scope="module")
def of_the_sample(sample_dataset: Dataset, once: Once) -> Answers:
    return answers(sample_dataset, once, "sample")


@pytest.fixture(scope="module")
def of_the_full_captures(full_dataset: Dataset, once: Once) -> Answers:
    return answers(full_dataset, once, "full")


@pytest.mark.parametrize("name", mostly_long(list(RUNS), name=str))
def test_bus_bandwidth_and_overlap(of_the_sample: Answers, name: str) -> None:
    assert_exchange(of_the_sample, SAMPLE / name)


@pytest.mark.nightly
@needs_full_captures
@pytest.mark.parametrize("name", RUNS)
def test_bus_bandwidth_and_overlap_of_the_full_captures(of_the_full_captures: Answers, name: str) -> None:
    assert_exchange(of_the_full_captures, FULL / name)


def assert_exchange(found: Answers, folder: Path) -> None:
    run = read_run(folder)
    of_run = {query: rows.filter(run_id=folder.name) for query, rows in found.items()}
    assert_bus_bandwidth(of_run, RUNS[folder.name], run)
    assert_overlap(of_run["step_overlap"], run)


def assert_bus_bandwidth(found: Answers, factor: float, run: Run) -> None:
    columns = (
        "step", "measured_by", "begin_ns", "end_ns", "exchange_ms", "payload_bytes", "retransmitted_bytes", "moving_ms",
    )  # fmt: skip
    order = ["step", "measured_by"]
    times = found["collective_completion"].sort(order).select(columns).rows()
    of_rates = ("algorithm_gbit_per_s", "bus_gbit_per_s", "moving_bus_gbit_per_s")
    rates = found["bus_bandwidth"].sort(order).select(of_rates).rows()
    expected, expected_rates = [], []
    for step, exchange in enumerate(exchanges(run)):
        phases = np.array([log.phases[step] for log in run.logs.values()])
        last_start, last_end = phases[:, 1].max(), phases[:, 2].max()
        begin, end = exchange.interval
        volume = int(exchange.payload.sum()), int(exchange.again.sum()), float(exchange.moving)
        rows = [
            (step, "events", int(phases[:, 1].min()), int(last_end), float(last_end - last_start) / 1e6, *volume),
            (step, "wire", begin * MS, end * MS, float(end - begin), *volume),
        ]
        expected += rows
        for row in rows:
            size = 8 * (volume[0] - volume[1]) / factor
            bus = 2 * (len(run.hosts) - 1) / len(run.hosts)
            expected_rates.append((size / row[4] / 1e6, size / row[4] / 1e6 * bus, size / volume[2] / 1e6 * bus))
    assert times == expected
    np.testing.assert_allclose(rates, expected_rates, rtol=1e-12)


def assert_overlap(found: pl.DataFrame, run: Run) -> None:
    rows = found.select("worker", "step", "payload_bytes", "overlap_bytes", "wire_ms", "overlap_ms").rows()
    assert sorted(rows) == sorted(row for worker in run.logs for row in overlap(run, worker))


def overlap(run: Run, worker: str) -> Iterator[tuple[str, int, int, int, float, float]]:
    """Worker, step, payload in it, in its computation, and windows with a hundredth of the fastest one's payload."""
    host, log = run.hosts[worker], run.logs[worker]
    own = run.packets[(run.packets["payload"] > 0) & ((run.packets["src"] == host) | (run.packets["dst"] == host))]
    cells, place = np.unique(own[ENDS], return_inverse=True)
    window = own["time"] // MS - own["time"].min() // MS
    sums = np.zeros((len(cells), window.max() + 1), np.int64)
    np.add.at(sums, (place, window), own["payload"])
    payload, busy = sums.sum(axis=0), (sums >= sums.max() / 100).any(axis=0)
    middles = (np.arange(len(payload)) + own["time"].min() // MS) * MS + MS // 2
    for step, (begin, communication, _, _) in enumerate(log.phases):
        inside = (middles >= log.begins[step]) & (middles < log.ends[step])
        hidden = inside & (middles >= begin) & (middles < communication)
        volumes = int(payload[inside].sum()), int(payload[hidden].sum())
        yield worker, step, *volumes, float((busy & inside).sum()), float((busy & hidden).sum())
