"""Results of queries, computed anew from the files by tests/independent.py and numpy: equal to the last digit."""

from __future__ import annotations

import itertools
import json
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from independent import AFTER, Array, Run, address, read_run, repeated_bytes, text
from tools import FULL, mostly_long, needs_full_captures

from ddnn_traces.query.dataset import Dataset

SAMPLE = Path(__file__).parents[2] / "tests" / "traces" / "runs"


def folders(root: Path) -> list[Path]:
    return sorted(path for path in root.glob("*") if path.is_dir())


#: A framework or topology each.
QUICK = tuple(SAMPLE / name for name in (
    "mpi-mlp1-sgd-32-openmpi-0ms-recdoubling", "mpi-mlp1-sgd-32-openmpi-0ms-ring-sll2", "tf-mlp1-sgd-32-grpc-0ms-ps",
    "tf-mlp1-sgd-32-grpc-0ms-ring", "torch-mlp1-sgd-32-gloo-0ms-ring-both", "torch-mlp1-sgd-32-gloo-0ms-ring-loss05",
    "torchp2p-mlp1-pairavg-32-gloo-0ms-gossip", "torchp2p-mlp1-sgd-32-gloo-0ms-ps",
    "torchp2p-mlp1-sgd-32-gloo-0ms-star", "torchp2p-mlp1-sgd-32-gloo-0ms-tree",
))  # fmt: skip

of_the_sample = pytest.mark.parametrize("folder", mostly_long(folders(SAMPLE), *QUICK, name=lambda path: path.name))
of_the_full_captures = pytest.mark.parametrize("folder", folders(FULL), ids=lambda path: path.name)


@of_the_sample
@pytest.mark.long_after(1)
def test_volumes(sample_dataset: Dataset, folder: Path) -> None:
    assert_volumes(sample_dataset, folder)


@needs_full_captures
@of_the_full_captures
def test_volumes_of_the_full_captures(full_dataset: Dataset, folder: Path) -> None:
    assert_volumes(full_dataset, folder)


def assert_volumes(dataset: Dataset, folder: Path) -> None:
    run = read_run(folder)
    steps = "SELECT step, wire_bytes, payload_bytes FROM step_volume WHERE run_id = $1 ORDER BY step"
    assert dataset.sql(steps, [folder.name]).rows() == list(step_volumes(run))
    pairs = "SELECT * EXCLUDE run_id FROM traffic_matrix WHERE run_id = $1 ORDER BY ALL"
    assert dataset.sql(pairs, [folder.name]).rows() == sorted(pair_volumes(run))


def step_volumes(run: Run) -> Iterator[tuple[int, int, int]]:
    """Step, wire bytes and payload of each step with packets."""
    for step in np.unique(run.step[run.in_steps]):
        packets = run.packets[run.step == step]
        yield int(step), int(packets["wire"].sum()), int(packets["payload"].sum())


def pair_volumes(run: Run) -> Iterator[tuple[str, str, int, int, int]]:
    """Source, destination, wire bytes, payload and packets of each pair of hosts."""
    for src, dst in np.unique(run.packets[["src", "dst"]]).tolist():
        packets = run.packets[(run.packets["src"] == src) & (run.packets["dst"] == dst)]
        yield text(src), text(dst), int(packets["wire"].sum()), int(packets["payload"].sum()), len(packets)


# --- conservation, by the definitions in its head, for the pairs and the law of the declared topology

WINDOW_NS = 1_000_000

#: By declared topology: payload of a step over all pairs of four hosts, over the model's bytes.
FACTORS = {"ring": 6, "tree": 6, "star": 6, "parameter_server": 6, "recursive_doubling": 8, "pair_averaging": 4}
LINKS = {
    "star": [(1, 2), (1, 3), (1, 4)],
    "parameter_server": [(1, 2), (1, 3), (1, 4)],
    "tree": [(1, 2), (1, 3), (2, 4)],
    "recursive_doubling": [(1, 2), (3, 4), (1, 3), (2, 4)],
    "pair_averaging": list(itertools.combinations((1, 2, 3, 4), 2)),
}


@dataclass(frozen=True)
class Exchange:
    """A run, the pairs of addresses that carry its exchange, and what a step sends over all of them, in bytes."""

    run: Run
    pairs: set[tuple[int, int]]
    model_bytes: int
    step_bytes: int
    is_gloo: bool

    @property
    def pair_of_packets(self) -> list[tuple[int, int]]:
        return self.run.packets[["src", "dst"]].tolist()  # type: ignore[no-any-return]

    @cached_property
    def carries(self) -> Array:
        """Whether each packet is on one of the pairs."""
        return np.array([pair in self.pairs for pair in self.pair_of_packets])

    @cached_property
    def answers(self) -> Array:
        """Whether each packet is on the other direction of one of the pairs, which carries nothing of the exchange."""
        back = {(dst, src) for src, dst in self.pairs}
        return np.array([pair in back for pair in self.pair_of_packets]) & ~self.carries


def declared_exchange(folder: Path, declared: dict[str, Any]) -> Exchange:
    """declared: of run.toml."""
    run = read_run(folder)
    hosts = {int(host["label"].removeprefix("worker-")): address(host["ip"]) for host in declared["hosts"]}
    topology, factor = declared["topology"], FACTORS[declared["topology"]]
    if topology == "ring":
        order = [address(h["ip"]) for h in sorted(declared["hosts"], key=lambda host: host["ring_position"])]
        pairs = set(zip(order, [*order[1:], order[0]], strict=True))
    else:
        pairs = {(hosts[a], hosts[b]) for link in LINKS[topology] for a, b in (link, link[::-1])}
    if declared["framework"] == "tf" and topology == "parameter_server":  # two workers, one of which makes a step
        pairs, factor = {pair for pair in pairs if hosts[4] not in pair}, 2
    size = declared["model_bytes"]
    return Exchange(run, pairs, size, factor * size, declared["backend"] == "gloo")


def spilled(exchange: Exchange, of: Array) -> tuple[int, int]:
    """Sum of `of` over packets before the sender's steps, and after them (less those inside), that are spilled."""
    run, early, late = exchange.run, 0, 0
    window = run.packets["time"] // WINDOW_NS * WINDOW_NS
    silence = 0.2 * np.concatenate([np.diff([log.begins[0], *log.ends]) for log in run.logs.values()]).mean()
    for src, dst in set(exchange.pair_of_packets):
        here = (run.packets["src"] == src) & (run.packets["dst"] == dst)
        sender, receiver = run.log_at(src) or run.first_log, run.log_at(dst)
        if receiver is None:
            end = max(log.ends[-1] for log in run.logs.values())
            begins = np.unique(window[here & (window >= end) & (run.packets["payload"] > 0)])
            pauses = begins - np.concatenate([[end], begins + WINDOW_NS])[: len(begins)]
            silent = np.flatnonzero(pauses > silence)
            end = begins[silent[0]] if len(silent) else 2**62
        elif receiver is sender:
            continue
        else:
            end = receiver.ends[-1]
            first, second = sorted((sender.begins[0], receiver.begins[0]))
            begins = np.unique(window[here & (window < second) & (run.packets["payload"] > 0)])
            pauses = np.diff(begins, prepend=-(2**62)) - WINDOW_NS
            begun = min(begins[(pauses > silence) & (begins + WINDOW_NS > first)], default=2**62)
            of_before = here & (window < begun)
            if receiver.begins[0] < sender.begins[0]:
                too_early = here & (window + WINDOW_NS <= first) | of_before & (window + WINDOW_NS <= second)
                early += of[here & (run.step == -1)].sum() - of[too_early].sum()
            else:
                early -= of[of_before & (window >= first) & (window + WINDOW_NS <= second)].sum()
        late += of[here & (run.step == AFTER)].sum() - of[here & (window >= end)].sum()
    return int(early), int(late)


def startup_in_steps(exchange: Exchange, fresh: Array) -> int | None:
    """What receivers get in their first step above the median of the next ones; fresh: payload not sent before."""
    run, found = exchange.run, []
    window = run.packets["time"] // WINDOW_NS * WINDOW_NS
    for dst in {dst for _, dst in exchange.pairs}:
        log = run.log_at(dst) or run.first_log
        sums = np.zeros(min(6, len(log.ends)))
        for src in {src for src, other in exchange.pairs if other == dst}:
            here = (run.packets["src"] == src) & (run.packets["dst"] == dst)
            begin = min((run.log_at(src) or run.first_log).begins[0], log.begins[0])
            here &= (window >= begin) & (window < log.ends[len(sums) - 1])
            np.add.at(sums, np.searchsorted(log.ends, window[here], side="right"), fresh[here])
        if len(sums) > 2 and np.ptp(sums[1:]) < exchange.model_bytes / 2:
            more = sums[0] - np.median(sums[1:])
            found.append(more if more >= exchange.model_bytes / 2 else 0)
    return round(sum(found)) if found else None


def conservation_of(exchange: Exchange) -> dict[str, int | None]:
    """The columns of conservation that count bytes."""
    run, payload = exchange.run, exchange.run.packets["payload"]
    again = repeated_bytes(run.packets)
    only = replace(exchange, run=replace(run, packets=run.packets[exchange.carries], step=run.step[exchange.carries]))
    early, late = spilled(only, payload[exchange.carries])
    inside = run.in_steps & exchange.carries
    startup = startup_in_steps(exchange, payload - again)
    everything_early, _ = spilled(exchange, payload)
    framing = None
    if exchange.is_gloo and exchange.answers.any():
        framing = int(2 * (payload - again)[run.in_steps & exchange.answers].sum())
    parts = {
        "expected_bytes": exchange.step_bytes * run.steps,
        "payload_bytes": int(payload[inside].sum()),
        "spilled_bytes": early + late,
        "startup_bytes": int(payload[run.step == -1].sum()) - everything_early + (startup or 0),
        "startup_in_steps_bytes": startup,
        "retransmitted_bytes": int(again[inside].sum()) + sum(spilled(only, again[exchange.carries])),
        "framing_bytes": framing,
        "control_bytes": int(payload[run.in_steps & ~exchange.carries].sum()),
        "wire_bytes": int(run.packets["wire"][run.in_steps].sum()),
    }
    left = {name: value or 0 for name, value in parts.items()}
    parts["unexplained_bytes"] = (
        left["payload_bytes"] + left["spilled_bytes"] - left["startup_in_steps_bytes"]
        - left["retransmitted_bytes"] - left["framing_bytes"] - left["expected_bytes"]
    )  # fmt: skip
    parts["header_bytes"] = left["wire_bytes"] - left["payload_bytes"] - left["control_bytes"]
    return parts


def declared_in_truth(folder: Path) -> dict[str, Any]:
    """truth.json in the words of run.toml."""
    truth = json.loads((folder / "truth.json").read_text())
    words = {
        "ps": "parameter_server",
        "binary_tree": "tree",
        "recdoubling": "recursive_doubling",
        "gossip": "pair_averaging",
    }
    order = {label: place for place, label in enumerate(truth.get("ring_order", []))}
    hosts = [{"ip": ip, "label": label, "ring_position": order.get(label)} for ip, label in truth["workers"].items()]
    framework, backend = folder.name.split("-")[0], folder.name.split("-")[4]
    topology = words.get(truth["topology"], truth["topology"])
    return truth | {"hosts": hosts, "framework": framework, "backend": backend, "topology": topology}


@pytest.fixture(scope="module")
def sample_conservation(sample_dataset: Dataset) -> dict[str, dict[str, Any]]:
    return {row["run_id"]: row for row in sample_dataset.query("conservation").to_dicts()}


@pytest.fixture(scope="module")
def full_conservation(full_dataset: Dataset) -> dict[str, dict[str, Any]]:
    return {row["run_id"]: row for row in full_dataset.query("conservation").to_dicts()}


@of_the_sample
@pytest.mark.long_after(1)
def test_conservation(sample_conservation: dict[str, dict[str, Any]], folder: Path) -> None:
    expected = conservation_of(declared_exchange(folder, tomllib.loads((folder / "run.toml").read_text())))
    found = sample_conservation[folder.name]
    assert {name: found[name] for name in expected} == expected
    assert abs(found["unexplained_share"]) < (0.004 if folder.name.startswith("tf") else 0.0005)


@needs_full_captures
@of_the_full_captures
def test_conservation_of_the_full_captures(full_conservation: dict[str, dict[str, Any]], folder: Path) -> None:
    """Without model_bytes, which no run.toml declares here; start-up in steps is not estimated then."""
    declared = declared_in_truth(folder)
    expected = conservation_of(declared_exchange(folder, declared))
    share = (expected["unexplained_bytes"] or 0) / (expected["expected_bytes"] or 0)
    assert abs(share) < (0.004 if folder.name.startswith("tf") else 0.0005)
    names = expected.keys() - {"expected_bytes", "unexplained_bytes", "startup_in_steps_bytes"}
    found = full_conservation[folder.name]
    assert {name: found[name] for name in names} == {name: expected[name] for name in names}
