"""Jobs, steps and collectives of real runs over NCCL: data/nccl.

NCCL has a connection for each channel and direction, pieces of its buffers as messages, and sends small tensors by its
protocol LL, of which half the bytes are flags.
"""

from __future__ import annotations

import csv
import tomllib
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest
from message_streams import streams_of
from test_infer import KINDS

from ddnn_traces.collectives.infer import infer

RUNS = Path(__file__).parents[2] / "data" / "nccl"
STEPS = 12
#: A step begins in the middle of the program's where that has the longest silence; the first and last are then parts.
PARTS = 1
LL_BYTES = 64 * 1024  # at most this long, NCCL's choice was LL

Key = tuple[str, frozenset[str]]


def about(folder: Path) -> dict[str, Any]:
    return tomllib.loads((folder / "run.toml").read_text())


def truth(run: dict[str, Any]) -> dict[Key, list[int]]:
    """Bytes of the collectives of a step, by kind and hosts."""
    addresses = {host["rank"]: host["ip"] for host in run["hosts"]}
    found: dict[Key, list[int]] = defaultdict(list)
    (job,) = run["origin"]["jobs"]
    for group in job["groups"]:
        hosts = frozenset(addresses[rank] for rank in group["ranks"])
        for one in group["collectives"]:
            found[KINDS[one["kind"]], hosts] += [one["bytes"]] * one["per_step"]
    return {key: sorted(sizes) for key, sizes in found.items()}


@pytest.mark.parametrize(
    "folder",
    [pytest.param(path, marks=[pytest.mark.long] * (place > 0)) for place, path in enumerate(sorted(RUNS.iterdir()))],
    ids=lambda path: path.name,
)
def test_collectives_over_nccl_are_what_the_programs_did(folder: Path) -> None:
    (job,) = infer(streams_of(folder))
    assert STEPS - PARTS <= len(job.steps.whole) <= STEPS
    assert not any("twice its volume" in one.evidence for one in job.collectives)  # gloo's reduce-scatter alone
    found: dict[Key, list[float]] = defaultdict(list)
    for one in job.collectives:
        key = one.kind, frozenset(one.hosts)
        if one.channel:  # a tree of the same collective
            found[key][-1] += one.tensor_bytes
        else:
            found[key].append(one.tensor_bytes)
    wanted = truth(about(folder))
    assert {key: len(sizes) for key, sizes in found.items()} == {key: len(sizes) for key, sizes in wanted.items()}
    for key, sizes in wanted.items():
        for size, seen in zip(sizes, sorted(found[key]), strict=True):
            assert seen == pytest.approx(2 * size if "fsdp" in folder.name and size < LL_BYTES else size, rel=0.005)


@pytest.mark.parametrize("folder", sorted(RUNS.iterdir()), ids=lambda path: path.name)
def test_the_truth_is_what_the_workers_noted(folder: Path) -> None:
    """Each worker has in each step behind the first the collectives of its groups; a send is of both ends of a pair."""
    run = about(folder)
    (job,) = run["origin"]["jobs"]
    for host in run["hosts"]:
        wanted: Counter[tuple[str, int]] = Counter()
        for group in job["groups"]:
            for one in group["collectives"] if host["rank"] in group["ranks"] else ():
                wanted[one["kind"], one["bytes"]] += one["per_step"] // (2 if one["kind"] == "send" else 1)
        with (folder / f"events-{host['label']}.csv").open(newline="") as file:
            events = [row for row in csv.DictReader(file) if row["kind"] != "recv"]
        for step in range(1, STEPS):
            assert Counter((e["kind"], int(e["bytes"])) for e in events if e["step"] == str(step)) == wanted
        assert all(float(event["t_end"]) >= float(event["t_begin"]) for event in events)
