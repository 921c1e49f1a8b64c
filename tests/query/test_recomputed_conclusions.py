"""Conclusions of queries, computed anew from captures and logs by tests/independent.py, numpy and fractions.

What a run's workers wait for, which host is a tree's root, how full links are, what is still to send, and how long a
step takes.
"""

from __future__ import annotations

import functools
import lzma
import shutil
import struct
import tomllib
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from itertools import product
from math import ceil, factorial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from datasets import write_dataset
from independent import FLOW, Array, address, read_run, repeated_bytes, text
from small_runs import found_by
from tools import Once

import ddnn_traces
from ddnn_traces.query.dataset import Dataset

MS = 10**6
ROOT = Path(__file__).parents[2]
SAMPLE = ROOT / "tests" / "traces" / "runs"
TESTBED = ROOT / "data" / "sample"
#: Runs of data/sample: trees whose root was wrong, and links that are full.
TREES = ("mpi-mlp12-sgd-128-openmpi-normal-tree-n6", "torchp2p-mlp12-sgd-32-gloo-normal-tree-n6")
FULL_LINKS = "torch-mlp1-sgd-32-gloo-100mbit-ring-n4"
#: Runs of data/captures: workers that wait for each other without a silence of all, and workers that do not wait.
CAPTURES = ROOT / "data" / "captures"
CLIQUE = "torchp2p-mlp1-sgd-128-gloo-normal-clique-n4-r1"
ASYNCHRONOUS = "torchp2p-mlp1-sgd-32-gloo-normal-gossip-n4-r1"
#: The same for 80 steps: six show too little.
LONG_ASYNCHRONOUS = "torchp2p-mlp0-sgd-32-gloo-normal-gossip-n4-digits-r1"
TWO_HOSTS = "torchp2p-mlp1-sgd-32-gloo-1ms-ps-n1-r1"


@pytest.fixture(scope="module")
def testbed(once: Once) -> Iterator[Dataset]:
    def ingest(path: Path) -> None:
        found = [TESTBED / name for name in (*TREES, FULL_LINKS)] + [
            CAPTURES / name for name in (CLIQUE, ASYNCHRONOUS, LONG_ASYNCHRONOUS, TWO_HOSTS)
        ]
        ddnn_traces.ingest(found, path).close()

    with ddnn_traces.open(once("conclusions", ingest)) as dataset:
        yield dataset


def rows(dataset: Dataset, query: str, run_id: str, **params: Any) -> list[dict[str, Any]]:
    return _result(dataset, query, **params).filter(run_id=run_id).to_dicts()


@functools.cache
def _result(dataset: Dataset, query: str, **params: Any) -> pl.DataFrame:
    """Of all runs: several tests look at a query, each at a run."""
    return dataset.query(query, **params)


def declared(folder: Path) -> dict[str, Any]:
    return tomllib.loads((folder / "run.toml").read_text())


def windows_of(packets: Array) -> tuple[Array, Array]:
    """The milliseconds in which packets are, ns, and the payload in each of them."""
    times, place = np.unique(packets["time"] // MS * MS, return_inverse=True)
    return times, np.bincount(place, packets["payload"])


def test_overlap_summary(sample_dataset: Dataset) -> None:
    """Communicating by the log, and bytes that move on the wire: both of a step, by their names."""
    name = "torchp2p-mlp1-sgd-32-gloo-0ms-star"
    run = read_run(SAMPLE / name)
    for found in rows(sample_dataset, "overlap_summary", name):
        host, log = run.hosts[found["worker"]], run.logs[found["worker"]]
        communicates = log.phases[:, 2] - log.phases[:, 1]
        assert found["logged_communicate_ms"] == pytest.approx(communicates.mean() / MS)
        steps = (log.ends - log.begins).sum()
        assert found["logged_communicate_share"] == pytest.approx(communicates.sum() / steps)
        own = run.packets[((run.packets["src"] == host) | (run.packets["dst"] == host)) & (run.packets["payload"] > 0)]
        flows = [windows_of(own[own[FLOW] == flow]) for flow in np.unique(own[FLOW])]
        least = 0.01 * max(sizes.max() for _, sizes in flows)
        moving = np.unique(np.concatenate([times[sizes >= least] for times, sizes in flows])) + MS // 2
        inside = sum(((moving >= a) & (moving < b)).sum() for a, b in zip(log.begins, log.ends, strict=True))
        assert found["wire_share_of_step"] == pytest.approx(inside * MS / steps)


def test_the_times_of_a_step_add_up(sample_dataset: Dataset) -> None:
    """Except in the log of a coordinator, whose steps are computed by others at the same time: none is given there."""
    times = ["only_compute_ms", "overlap_ms", "only_wire_ms", "waiting_ms"]
    found = sample_dataset.query("overlap_summary").filter(measured_by="events")
    (left_out,) = sample_dataset.query("overlap_summary").drop_nulls("problem").to_dicts()
    assert (left_out["run_id"], left_out["worker"]) == ("tf-mlp1-sgd-32-grpc-0ms-ps", "worker-4")
    assert {left_out[name] for name in [*times, "wire_share_of_step"]} == {None}
    assert found.height > 60
    assert found.select(pl.sum_horizontal(times) / pl.col("step_ms")).to_series().to_list() == pytest.approx(
        [1.0] * found.height, abs=0.02
    )


def chance_of_most(workers: int, steps: int, most: int) -> float:
    """Probability that some worker is last in `most` steps or more, all equally likely: sequences without, counted."""
    below = [Fraction(1)] + [Fraction(0)] * steps  # coefficients of (sum of x^n / n! below most) ** workers
    for _ in range(workers):
        below = [
            sum((below[n - own] / factorial(own) for own in range(min(most, n + 1))), Fraction(0))
            for n in range(steps + 1)
        ]
    return float(1 - below[steps] * factorial(steps) / Fraction(workers) ** steps)


@pytest.mark.parametrize("name", ["torchp2p-mlp1-sgd-32-gloo-0ms-ps", "torch-mlp1-sgd-32-gloo-0ms-ring"])
def test_straggler_chance(sample_dataset: Dataset, name: str) -> None:
    """Workers only, and the exact multinomial test."""
    servers = {host["label"] for host in declared(SAMPLE / name)["hosts"] if host["role"] == "parameter_server"}
    logs = {label: log for label, log in read_run(SAMPLE / name).logs.items() if label not in servers}
    begins = np.array([log.phases[1:, 1] for log in logs.values()])  # the first step is left out
    decided = (begins == begins.max(axis=0)).sum(axis=0) == 1
    most = max(Counter(begins.argmax(axis=0)[decided]).values())
    (found,) = rows(sample_dataset, "straggler_chance", name)
    assert (found["workers"], found["decided_steps"], found["most_often"]) == (len(logs), decided.sum(), most)
    assert found["p_value"] == pytest.approx(chance_of_most(len(logs), int(decided.sum()), most))
    named = {row["worker"] for row in rows(sample_dataset, "straggler_summary", name)}
    assert named == set(logs)


@pytest.mark.long
def test_inferred_steps_of_a_clique(testbed: Dataset) -> None:
    """As many as in the logs, and in each of them every pair moves one model."""
    run, model = read_run(CAPTURES / CLIQUE), declared(CAPTURES / CLIQUE)["model_bytes"]
    found = rows(testbed, "inferred_steps", CLIQUE)
    assert len(found) == run.steps
    pairs, place = np.unique(run.packets[["src", "dst"]], return_inverse=True)
    assert len(pairs) == 4 * 3
    fresh = run.packets["payload"] - repeated_bytes(run.packets)
    for step in found:
        inside = (run.packets["time"] >= step["start_ns"]) & (run.packets["time"] < step["end_ns"])
        moved = np.bincount(place[inside], fresh[inside], len(pairs))
        assert ((moved >= model) & (moved < 1.001 * model)).all()  # and headers of gloo


def test_no_steps_of_asynchronous_workers(testbed: Dataset) -> None:
    """By their logs, some worker ends a step before another one begins it."""
    logs = read_run(CAPTURES / LONG_ASYNCHRONOUS).logs.values()
    assert (np.min([log.ends for log in logs], axis=0) < np.max([log.begins for log in logs], axis=0)).any()
    (found,) = rows(testbed, "inferred_steps", LONG_ASYNCHRONOUS)
    assert (found["step"], found["structured"], found["is_synchronous"]) == (None, False, False)


@pytest.mark.parametrize("name", TREES)
def test_topology_roots(testbed: Dataset, name: str) -> None:
    """A link's bytes towards the root come before those away from it: by the mean time of its n-th model."""
    run = read_run(TESTBED / name)
    model = declared(TESTBED / name)["model_bytes"]
    fresh = run.packets["payload"] - repeated_bytes(run.packets)
    begin = min(log.begins[0] for log in run.logs.values())
    means = {}  # of each directed pair: mean time of the bytes of each model, counted backwards from the last
    for src, dst in np.unique(run.packets[["src", "dst"]]).tolist():
        here = (run.packets["src"] == src) & (run.packets["dst"] == dst) & (run.packets["time"] >= begin) & (fresh > 0)
        times, sizes = run.packets["time"][here][::-1], fresh[here][::-1]
        if sizes.sum() > run.steps * model / 2:
            number = ((np.cumsum(sizes) - sizes / 2) / (sizes.sum() / run.steps)).astype(int)
            means[src, dst] = np.bincount(number, (times - begin) * sizes.astype(float)) / np.bincount(number, sizes)
    first = {pair: (mean < means[pair[::-1]]).mean() for pair, mean in means.items()}
    towards = {pair for pair, share in first.items() if share > 0.5}
    (root,) = {dst for _, dst in towards} - {src for src, _ in towards}
    assert len(towards) == len(run.hosts) - 1 and root == min(run.hosts.values())
    (found,) = rows(testbed, "topology_roots", name)
    assert found["root_ip"] == text(root) and found["root_confidence"] > 0.9
    assert found["compared_exchanges"] == run.steps * len(towards)
    expected = np.mean([first[pair] for pair in towards])
    assert found["towards_root_share"] == pytest.approx(expected, abs=0.05)  # a query sees milliseconds, not packets


def test_share_of_the_link(testbed: Dataset) -> None:
    """Bytes in a window, over what the rate and the burst of a shaper let through in it."""
    run, facts = read_run(TESTBED / FULL_LINKS), declared(TESTBED / FULL_LINKS)
    per_ns, burst = facts["bandwidth_mbit"] / 8e3, facts["burst_bytes"]  # bytes a ns, bytes
    base = run.packets["time"].min() // MS * MS
    training = max(min(log.begins[0] for log in run.logs.values()), run.packets["time"].min())
    begin = base + ceil(max(training - base, 0) / MS) * MS
    end = min(max(log.ends[-1] for log in run.logs.values()), run.packets["time"].max() // MS * MS + MS)
    window = run.packets["time"] // MS * MS
    here = (window >= begin) & (window < end)
    place = np.unique(run.packets[FLOW], return_inverse=True)[1]
    heaviest = np.bincount(place, run.packets["payload"] * run.in_steps).argmax()
    peak = np.bincount((window - begin)[here & (place == heaviest)] // (10 * MS),
                       run.packets["wire"][here & (place == heaviest)]).max()  # fmt: skip
    (found,) = rows(testbed, "gradient_flow_throughput", FULL_LINKS)
    assert found["peak_link_share"] == pytest.approx(peak / (10 * MS * per_ns))
    assert found["most_link_share"] == pytest.approx(1 + burst / (10 * MS * per_ns))
    steps = max(log.ends[-1] for log in run.logs.values()) - min(log.begins[0] for log in run.logs.values())
    length = steps // run.steps // MS * MS
    count = (end - begin) // length
    number = (window - begin) // length
    sent = np.bincount(number[here & (number < count)], run.packets["wire"][here & (number < count)])
    links = len(np.unique(run.packets["src"]))
    (found,) = rows(testbed, "total_throughput", FULL_LINKS)
    assert found["links"] == links
    assert found["link_share"] == pytest.approx(run.packets["wire"][here].sum() / ((end - training) * links * per_ns))
    assert found["peak_link_share"] == pytest.approx(sent.max() / (length * links * per_ns))
    assert found["most_link_share"] == pytest.approx(1 + burst / (length * per_ns))
    assert found["peak_link_share"] < found["most_link_share"]


def ends_of(windows: tuple[Array, Array], begin: int, until: int, least: float) -> tuple[int, int]:
    """Start of the first window from `least` bytes on in an interval, and end of the last one with payload."""
    times, sizes = windows
    inside = (times >= begin) & (times < until)
    return int(times[inside & (sizes >= least)].min()), int(times[inside & (sizes > 0)].max()) + MS


@pytest.mark.parametrize("name", ["torchp2p-mlp1-sgd-32-gloo-0ms-ps", "torchp2p-mlp1-sgd-32-gloo-0ms-star"])
@pytest.mark.long_after(1)
def test_remaining_times_by_the_logs(sample_dataset: Dataset, name: str) -> None:
    """What is still to send when the last worker has computed; what is in flight is not being sent."""
    run = read_run(SAMPLE / name)
    server = run.hosts["worker-1"]
    found = rows(sample_dataset, "parameter_server_phases", name)
    begins, ends = np.zeros((2, 3, run.steps), np.int64)
    for n, label in enumerate(("worker-2", "worker-3", "worker-4")):
        sent = run.packets[(run.packets["src"] == run.hosts[label]) & (run.packets["dst"] == server)]
        windows = windows_of(sent[sent["payload"] > 0])
        starts = [*run.logs[label].begins, run.logs[label].ends[-1]]
        for step in range(run.steps):
            bounds = starts[step], starts[step + 1]
            begins[n, step], ends[n, step] = ends_of(windows, *bounds, 0.1 * windows[1].mean())
    computed = np.max([run.logs[label].phases[:, 1] for label in ("worker-2", "worker-3", "worker-4")], axis=0)
    first, last = begins.min(axis=0), ends.max(axis=0)
    remaining = np.maximum(last - np.maximum(computed, first), 0) / MS
    assert [row["aggregation_remaining_ms"] for row in found] == pytest.approx(remaining.tolist())
    assert [row["aggregation_ms"] for row in found] == pytest.approx(((last - first) / MS).tolist())
    assert {row["aggregation_measured_by"] for row in found} == {"events"}


def test_remaining_times_by_the_wire(sample_dataset: Dataset) -> None:
    """TensorFlow: the chief logs two steps of the workers at once, and they have no logs."""
    name = "tf-mlp1-sgd-32-grpc-0ms-ps"
    run = read_run(SAMPLE / name)
    server, workers = address("10.10.0.1"), [address("10.10.0.2"), address("10.10.0.3")]
    log = run.logs["worker-4"]
    rounds = np.flatnonzero(log.ends > log.begins)
    found = {row["step"]: row for row in rows(sample_dataset, "parameter_server_phases", name)}
    assert sorted(found) == rounds.tolist()
    data = {}  # payload of the one connection of each pair that carries some, without messages of control
    for way in [*((worker, server) for worker in workers), *((server, worker) for worker in workers)]:
        sent = run.packets[
            (run.packets["src"] == way[0]) & (run.packets["dst"] == way[1]) & (run.packets["payload"] > 0)
        ]
        (flow,) = [one for one in np.unique(sent[FLOW]) if sent["payload"][sent[FLOW] == one].sum() > 1e6]
        times, sizes = windows_of(sent[sent[FLOW] == flow])
        data[way] = times[sizes >= 256], sizes[sizes >= 256]
    for step, until in zip(rounds.tolist(), [*log.begins[rounds][1:], log.ends[-1]], strict=True):
        span = {way: ends_of(windows, log.begins[step], until, 256) for way, windows in data.items()}
        pushes = [span[worker, server] for worker in workers]
        last = max(end for _, end in pushes) - max(begin for begin, _ in pushes)
        assert found[step]["aggregation_remaining_ms"] == last / MS
        assert found[step]["aggregation_measured_by"] == "wire" and found[step]["steps_from"] == "chief"
        computes = np.array([span[worker, server][0] - span[server, worker][1] for worker in workers])
        told = (computes >= -MS).all()  # a base window
        assert found[step]["compute_ms"] == (np.maximum(computes, 0).mean() / MS if told else None)


@pytest.fixture(scope="module")
def undeclared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dataset]:
    """A run whose link's rate nobody declares."""
    folder = tmp_path_factory.mktemp("undeclared") / "torch-mlp1-sgd-32-gloo-0ms-ring"
    shutil.copytree(SAMPLE / folder.name, folder)
    lines = (folder / "run.toml").read_text().splitlines()
    (folder / "run.toml").write_text("\n".join(line for line in lines if not line.startswith("bandwidth_mbit")))
    with ddnn_traces.ingest(folder, folder.parent / "dataset") as dataset:
        yield dataset


def test_an_unknown_rate_is_unknown(undeclared: Dataset) -> None:
    """Traffic shows what was used of a link, not its rate."""
    run = read_run(SAMPLE / "torch-mlp1-sgd-32-gloo-0ms-ring")
    (found,) = undeclared.query("replay_facts").to_dicts()
    (remark,) = undeclared.remarks("link_utilization", {})
    assert "bandwidth_mbit" in remark and undeclared.query("link_utilization").is_empty()
    used = []
    for host in run.hosts.values():
        sent = run.packets[run.packets["src"] == host]
        slots = np.unique(sent["time"] // MS // 10, return_inverse=True)[1]
        used.append(np.quantile(np.bincount(slots, sent["wire"]), 0.99) * 8 / 1e4)
    assert found["bandwidth_mbit"] is None and found["measured_mbit"] == pytest.approx(max(used))
    shares = undeclared.query("total_throughput").select("link_share", "peak_link_share", "most_link_share").row(0)
    assert shares == (None, None, None)


@pytest.mark.parametrize("skip", [0, 1])
@pytest.mark.long_after(1)
def test_run_step_time(sample_dataset: Dataset, skip: int) -> None:
    """Without the first step: TensorFlow's takes many times as long as the others."""
    name = "tf-mlp1-sgd-32-grpc-0ms-ring"
    logs = read_run(SAMPLE / name).logs.values()
    steps = np.mean([log.ends - log.begins for log in logs], axis=0)
    (found,) = rows(sample_dataset, "run_step_time", name, skip_steps=skip)
    assert found["step_ms"] == pytest.approx(steps[skip:].mean() / MS)
    (default,) = rows(sample_dataset, "run_step_time", name)
    assert default["step_ms"] == pytest.approx(steps[1:].mean() / MS) and steps[0] > 5 * steps[1:].mean()


def test_communication_that_two_events_log_counts_once(tmp_path: Path) -> None:
    """As the programs do: an all-reduce is logged beside the communication that it is all of."""
    rng = np.random.default_rng(1)
    spans = {"compute": (0, 50), "allreduce": (50, 60), "communicate": (50, 60)}
    steps, events = [], []
    for worker, step in product(("worker-1", "worker-2", "worker-3", "worker-4"), range(20)):
        mine, begin = {"run_id": "r", "worker": worker, "step": step}, step * 100 * MS
        steps.append(mine | {"start_ns": begin, "end_ns": begin + 100 * MS})
        begin += int(rng.integers(0, MS))
        events += [
            mine | {"kind": kind, "start_ns": begin + start * MS, "end_ns": begin + end * MS}
            for kind, (start, end) in spans.items()
        ]
    with write_dataset(tmp_path / "r", {"steps": pl.DataFrame(steps), "events": pl.DataFrame(events)}) as dataset:
        found = dataset.query("step_overlap")["communicate_ms"]
    assert found.to_list() == [10.0] * len(steps)


def test_topology(testbed: Dataset) -> None:
    """A tree's links carry so much of what pairs send in steps, and of what its law moves; two hosts are unknown."""
    run, model = read_run(TESTBED / TREES[0]), declared(TESTBED / TREES[0])["model_bytes"]
    inside = run.packets[run.in_steps]
    pairs, place = np.unique(inside[["src", "dst"]], return_inverse=True)
    moved = {frozenset(pair): 0.0 for pair in pairs.tolist()}
    for pair, size in zip(pairs.tolist(), np.bincount(place, inside["payload"]), strict=True):
        moved[frozenset(pair)] += size
    links = sorted(moved.values(), reverse=True)[: len(run.hosts) - 1]
    (found,) = rows(testbed, "topology", TREES[0])
    assert (found["topology"], found["hosts"], found["edges"]) == ("tree", len(run.hosts), 2 * len(links))
    assert found["matched_share"] == pytest.approx(sum(links) / sum(moved.values()), abs=1e-3)
    assert found["volume_ratio"] == pytest.approx(sum(links) / (2 * len(links) * run.steps * model), rel=0.01)
    (found,) = rows(testbed, "topology", TWO_HOSTS)
    assert (found["topology"], found["hosts"], found["confidence"]) == (
        "unknown",
        len(read_run(CAPTURES / TWO_HOSTS).hosts),
        0,
    )


def test_conservation_of_asynchronous_workers(testbed: Dataset) -> None:
    """Each worker pulls a model a step; what is sent beyond these is named, to within a thousandth."""
    run, model = read_run(CAPTURES / ASYNCHRONOUS), declared(CAPTURES / ASYNCHRONOUS)["model_bytes"]
    (found,) = rows(testbed, "conservation", ASYNCHRONOUS)
    assert found["expected_bytes"] == len(run.logs) * run.steps * model
    assert found["payload_bytes"] == run.packets["payload"][run.in_steps].sum()
    fresh = run.packets["payload"].sum() - repeated_bytes(run.packets).sum()
    named = found["expected_bytes"] + found["startup_bytes"] + found["unexplained_bytes"]
    assert abs(fresh - named) < 0.001 * fresh and abs(found["unexplained_bytes"]) < 0.001 * fresh


@pytest.mark.long
def test_a_capture_that_was_cut_is_said(tmp_path: Path) -> None:
    """It has whole packets and no gap, so that neither the file nor sequence numbers show it: its program counted."""
    folder = tmp_path / TWO_HOSTS
    shutil.copytree(CAPTURES / TWO_HOSTS, folder)
    (path,) = folder.glob("worker-1*.pcap.xz")
    data, ends = lzma.decompress(path.read_bytes()), [24]
    while ends[-1] < len(data):
        ends.append(ends[-1] + 16 + struct.unpack_from("<I", data, ends[-1] + 8)[0])
    kept = len(ends) // 5
    path.write_bytes(lzma.compress(data[: ends[kept]]))
    with ddnn_traces.ingest(folder, tmp_path / "dataset") as dataset:
        (found,) = dataset.query("run_capture_loss").to_dicts()
        assert (found["dropped_packets"], found["flagged"]) == (len(ends) - 1 - kept, True)
        assert len(found_by(dataset, "capture_loss")) == 1
        last = int(dataset.sql("SELECT last_ns FROM captures WHERE records = ?", [kept]).item())
        steps = read_run(CAPTURES / TWO_HOSTS).logs["worker-1"].ends
        (summary,) = dataset.query("overlap_summary").filter(worker="worker-1").to_dicts()
        assert (summary["steps"], summary["captured_steps"]) == (len(steps), (steps <= last).sum())
