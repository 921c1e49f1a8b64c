"""What a user may have taken apart or thrown together: captures of a run that have nothing to do with each other, and
runs that are parts of one capture."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from ddnn_traces.ingestors.metadata import RunMetadata
from ddnn_traces.ingestors.sources import RunInput
from ddnn_traces.pcap.capture_facts import CaptureFacts
from ddnn_traces.text import counted, listed

#: A longer pause of all captures of a run is said: no training waits so long.
DAY_NS = 86_400 * 10**9
#: Names in a message.
_LISTED = 3

Connection = tuple[str, str, int, int]  # src_ip, dst_ip, ports (-1: none)


def gaps(run_id: str, files: Sequence[CaptureFacts]) -> Iterator[str]:
    """A line for each stretch of more than a day in which no flow of the run goes on."""
    spans = [
        (first, last)
        for file in files
        for first, last in zip(
            *(file.flows[name].to_numpy() for name in ("first_seen_ns", "last_seen_ns")), strict=True
        )
    ]
    if not spans:
        return
    first_ns, last_ns = np.array(sorted(spans), np.int64).T
    ends = np.maximum.accumulate(last_ns)
    for place in np.flatnonzero(first_ns[1:] - ends[:-1] > DAY_NS):
        begin, end = int(ends[place]), int(first_ns[place + 1])
        yield (
            f"{run_id}: nothing was captured for {counted(round((end - begin) / DAY_NS), 'day')}, {_utc(begin)} to "
            f"{_utc(end)}; where these are several trainings, give each a folder of its own, else correct the times"
        )


def unrelated(run: RunInput, metadata: RunMetadata, files: Sequence[CaptureFacts]) -> Iterator[str]:
    """A line where captures of a folder that nothing describes as one run have no host in common."""
    if run.folder is None or run.hosts or metadata != RunMetadata():
        return
    toward: dict[str, str] = {}  # another host of the same group; itself: the one that stands for the group
    host_of: dict[str, str] = {}
    for file in files:
        hosts = [*{*file.flows["src_ip"].to_pylist(), *file.flows["dst_ip"].to_pylist()}]
        for host in hosts:
            toward.setdefault(host, host)
            toward[_standing(toward, host)] = _standing(toward, hosts[0])
        if hosts:
            host_of[file.capture_id] = hosts[0]
    examples: dict[str, str] = {}
    for name, host in host_of.items():
        examples.setdefault(_standing(toward, host), name)
    if len(examples) > 1:
        yield (
            f"{run.run_id}: its captures are {len(examples)} groups without a host in common "
            f"({listed([*examples.values()], _LISTED)}); are they one training? If not, give each a folder of its own; "
            "if so, say it with --run-id"
        )


def _standing(toward: dict[str, str], host: str) -> str:
    """The host that stands for a host's group; the ways there become shorter."""
    while toward[host] != host:
        toward[host] = host = toward[toward[host]]
    return host


@dataclass(frozen=True)
class Part:
    """A run of a single bare capture, as far as it shows that another one goes on where it ends."""

    run_id: str
    folder: Path
    first_ns: int
    last_ns: int
    connections: frozenset[Connection]

    def is_followed_by(self, other: Part) -> bool:
        """Whether a connection of this one is in `other`, which begins when this one ends."""
        return self.folder == other.folder and other.first_ns >= self.last_ns and not self.connections.isdisjoint(
            other.connections
        )  # fmt: skip


def part(run: RunInput, files: Sequence[CaptureFacts]) -> Part | None:
    """The run as a part of a capture; None where it cannot be one."""
    first = [file.first_ns for file in files if file.first_ns is not None]
    last = [file.last_ns for file in files if file.last_ns is not None]
    if run.folder is not None or not first or not last:
        return None
    columns = [
        file.flows[name].fill_null(-1).to_pylist() if name.endswith("port") else file.flows[name].to_pylist()
        for file in files
        for name in ("src_ip", "dst_ip", "src_port", "dst_port")
    ]
    connections = frozenset(
        connection
        for begin in range(0, len(columns), 4)
        for connection in zip(*columns[begin : begin + 4], strict=True)
    )
    return Part(run.run_id, run.captures[0].parent, min(first), max(last), connections)


def rotated(parts: Sequence[Part]) -> Iterator[str]:
    """A line for each series of runs in which connections go on from one to the next."""
    chain: list[Part] = []
    for one in (*sorted(parts, key=lambda part: (part.first_ns, part.run_id)), None):
        if one and chain and chain[-1].is_followed_by(one):
            chain.append(one)
            continue
        if len(chain) > 1:
            names = listed([part.run_id for part in chain], _LISTED)
            yield (
                f"runs {names}: connections go on from one to the next, as where tcpdump rotates its file (-C, -G); "
                "--run-id NAME, with the same sources, makes one run of them"
            )
        chain = [one] if one else []


def _utc(ns: int) -> str:
    return f"{datetime.fromtimestamp(ns // 10**9, UTC):%Y-%m-%d %H:%M:%S}"
