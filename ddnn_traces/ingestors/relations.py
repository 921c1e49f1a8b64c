"""What a user may have taken apart or thrown together: captures of a run that have nothing to do with each other, and
runs that are parts of one capture."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from operator import attrgetter
from pathlib import Path

import numpy as np

from ddnn_traces.ingestors.metadata import RunMetadata
from ddnn_traces.ingestors.reconcile.vantage import telling_flows
from ddnn_traces.ingestors.sources import RunInput
from ddnn_traces.pcap.capture_facts import CaptureFacts
from ddnn_traces.text import counted, listed, valid_text

#: A longer pause of all captures of a run is said: no training waits so long.
DAY_NS = 86_400 * 10**9
#: A folder with more flows is not compared with others: its connections would fill the memory.
_MOST_FLOWS = 100_000
#: Names in a message.
_LISTED = 3

_End = tuple[str, int]  # address, port (-1: none)
Connection = tuple[_End, _End]  # the lower end first: captures at both hosts call it the same


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


def copies(run_id: str, files: Sequence[CaptureFacts]) -> Iterator[str]:
    """A line where files hold as many packets and bytes between the same times: copies, whose packets count once."""
    alike: dict[tuple[int | None, int | None, int, int], list[str]] = {}
    for file in files:
        if file.records:
            facts = (file.first_ns, file.last_ns, file.records, file.wire_bytes)
            alike.setdefault(facts, []).append(file.capture_id)
    if same := [" and ".join(names) for names in alike.values() if len(names) > 1]:
        yield (
            f"{run_id}: {listed(same, _LISTED)} hold the same packets, as copies of a file do (equal numbers, bytes "
            "and times): each packet counts once"
        )


def named(runs: Sequence[str]) -> str:
    """Names of runs in a message."""
    return listed(runs, _LISTED)


def unrelated(run: RunInput, metadata: RunMetadata, files: Sequence[CaptureFacts]) -> Iterator[str]:
    """A line where captures of a folder that nothing describes as one run have no host in common, or no connection
    and no time."""
    if run.folder is None or len(files) < 2 or run.hosts or metadata != RunMetadata():
        return
    parts = [found for file in files if (found := _part(file.capture_id, run.folder, [file]))]
    for apart, what in (
        (_groups(parts, attrgetter("hosts")), "without a host in common"),
        (
            _groups(parts, attrgetter("connections"), _at_one_time),
            "one after the other, without a connection in common",
        ),
    ):
        if len(apart) > 1:
            names = listed([group[0].run_id for group in apart], _LISTED)
            yield (
                f"{run.run_id}: its captures are {len(apart)} groups {what} ({names}); are they one training? If not, "
                "give each a folder of its own; if so, say it with --run-id"
            )
            return


@dataclass(frozen=True)
class Part:
    """A run that nothing describes, as far as it shows that another one goes on where it ends, or saw the same."""

    run_id: str
    folder: Path  # of the bare capture, or of the captures
    is_folder: bool
    first_ns: int
    last_ns: int
    connections: frozenset[Connection]

    @cached_property
    def hosts(self) -> set[str]:
        """Addresses at either end."""
        return {host for connection in self.connections for host, _ in connection}

    def is_followed_by(self, other: Part) -> bool:
        """Whether a connection of this one is in `other`, which begins when this one ends."""
        return self.folder == other.folder and other.first_ns >= self.last_ns and not self.connections.isdisjoint(
            other.connections
        )  # fmt: skip


def part(run: RunInput, metadata: RunMetadata, files: Sequence[CaptureFacts]) -> Part | None:
    """The run as a part of a capture or of a training; None where it cannot be one."""
    if run.folder is None:
        return _part(run.run_id, run.captures[0].parent, files)
    is_whole = run.hosts or metadata != RunMetadata() or len({run.host(path) for path in run.captures} - {None}) > 1
    is_large = sum(file.flows.num_rows for file in files) > _MOST_FLOWS
    return None if is_whole or is_large else _part(run.run_id, run.folder, files, is_folder=True)


def _part(name: str, folder: Path, files: Sequence[CaptureFacts], is_folder: bool = False) -> Part | None:
    first = [file.first_ns for file in files if file.first_ns is not None]
    last = [file.last_ns for file in files if file.last_ns is not None]
    if not first or not last:
        return None
    connections = frozenset(_connections(files))
    return Part(name, folder, is_folder, min(first), max(last), connections) if connections else None


def _connections(files: Sequence[CaptureFacts]) -> Iterator[Connection]:
    for file in files:
        for src, dst, src_port, dst_port, _ in telling_flows(file.flows):
            ends = (src, -1 if src_port is None else src_port), (dst, -1 if dst_port is None else dst_port)
            yield min(ends), max(ends)


# --- groups of parts that have something in common


def _at_one_time(earlier: Part, later: Part) -> bool:
    """Whether both saw a host while both captured."""
    return later.first_ns <= earlier.last_ns and not earlier.hosts.isdisjoint(later.hosts)


def _groups(
    parts: Sequence[Part],
    keys: Callable[[Part], Iterable[Hashable]],
    related: Callable[[Part, Part], bool] = lambda _a, _b: False,
) -> list[list[Part]]:
    """Parts that a common key links, directly or over others, or that are related to the one before in time."""
    toward = list(range(len(parts)))  # another part of the same group; itself: the one that stands for the group
    by_key: dict[Hashable, int] = {}
    order = sorted(range(len(parts)), key=lambda place: parts[place].first_ns)
    longest = -1  # the one before that goes on the longest
    for place in order:
        linked = [by_key.setdefault(key, place) for key in keys(parts[place])]
        if longest >= 0 and related(parts[longest], parts[place]):
            linked.append(longest)
        for other in linked:
            toward[_standing(toward, other)] = _standing(toward, place)
        if longest < 0 or parts[place].last_ns > parts[longest].last_ns:
            longest = place
    groups: dict[int, list[Part]] = {}
    for place, one in enumerate(parts):
        groups.setdefault(_standing(toward, place), []).append(one)
    return [*groups.values()]


def _standing(toward: list[int], place: int) -> int:
    """The part that stands for a part's group; the ways there become shorter."""
    while toward[place] != place:
        toward[place] = place = toward[toward[place]]
    return place


def at_hosts(parts: Sequence[Part]) -> Iterator[str]:
    """A line for runs that saw the same connections at the same time, as captures at the hosts of one training do.

    Of folders with the same times and connections one counts: they are copies.
    """
    folders = {(part.first_ns, part.last_ns, part.connections): part for part in reversed(parts) if part.is_folder}
    different = [*(part for part in parts if not part.is_folder), *reversed(folders.values())]
    for group in _groups(different, attrgetter("connections")):
        first, last = max(part.first_ns for part in group), min(part.last_ns for part in group)
        if len(group) > 1 and first < last:
            names = listed([part.run_id for part in group], _LISTED)
            yield (
                f"runs {names}: the same connections at the same time, as in captures at several hosts of one "
                f"training; {_joining(group)}"
            )


def _joining(group: Sequence[Part]) -> str:
    """How to make one run of these."""
    above = {part.folder.parent for part in group}
    if len(above) > 1 or not all(part.is_folder for part in group):
        return "--run-id NAME, with the same sources, makes one run of them, and so does a folder"
    (folder,) = above
    return (
        f"--run-id {shlex.quote(valid_text(folder.name) or 'NAME')} with {folder} as the only source makes one run of "
        "them; --layout '{run}/{host}/*.pcap*', with a folder of several such folders as the source, does so for each"
    )


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
