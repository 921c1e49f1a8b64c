"""A Chakra execution trace as a part of a run: its computations, transfers and collectives with what each waits for.

NAME.RANK.et of a folder are read, with the groups of comm_groups.json. A send is matched with the receive of the same
ranks and tag, the collectives of a group by their order at each rank (as ASTRA-sim does, by ids). What comm_size is:
export/chakra.py.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from ddnn_traces.chakra_format import COLL, COMM_TYPES, GROUPS, RECV, SEND, attributes_of, nodes
from ddnn_traces.errors import UsageError
from ddnn_traces.text import counted, valid_text

#: Nodes of all ranks: some 500 bytes of memory each.
MOST_NODES = 2_000_000
_MOST_NS = 10**15
#: Kinds of the table events of the collectives that are simulated.
_EVENTS = {
    "all_reduce": "allreduce", "all_gather": "allgather", "all_to_all": "alltoall", "reduce_scatter": "reduce_scatter",
    "broadcast": "broadcast", "reduce": "reduce", "barrier": "barrier",
}  # fmt: skip
_KINDS = {number: kind for number, kind in enumerate(COMM_TYPES) if kind in _EVENTS}


class Collective(NamedTuple):
    """kind: as in the table events. bytes: of the tensor, as nccl-tests counts it. nodes: of the members."""

    kind: str
    name: str
    bytes: int
    members: tuple[int, ...]
    nodes: tuple[int, ...]


@dataclass
class Trace:
    """A trace. rank, ns, name: of each node; ns: 0 of communication. waits: pairs of nodes, the second for the first.

    sends: node of the send, node of the receive, bytes.
    """

    ranks: int
    rank: list[int] = field(default_factory=list)
    ns: list[int] = field(default_factory=list)
    name: list[str] = field(default_factory=list)
    waits: list[tuple[int, int]] = field(default_factory=list)
    sends: list[tuple[int, int, int]] = field(default_factory=list)
    collectives: list[Collective] = field(default_factory=list)

    def place(self, node: int) -> str:
        """What a node is called in messages."""
        return f"rank {self.rank[node]}, node {self.name[node]!r}"


@lru_cache(maxsize=2)
def read(path: str) -> Trace:
    """The trace of a folder, or of the files that begin with a path. Raises UsageError, which names the file."""
    files = _files(Path(path))
    folder = files[0].parent
    groups = _groups(folder / GROUPS, len(files))
    trace, ends, calls = Trace(len(files)), _Ends(), _Calls(groups)
    for rank, file in enumerate(files):
        try:
            _read(file, rank, trace, ends, calls)
        except (OSError, ValueError) as error:
            said = error.strerror if isinstance(error, OSError) else error
            raise UsageError(f"{file}: {said}") from None
    trace.sends = ends.matched(trace)
    trace.collectives = calls.matched(trace)
    return trace


def _files(path: Path) -> list[Path]:
    """The files, by their ranks."""
    folder, prefix = (path, "") if path.is_dir() else (path.parent, path.name)
    found: dict[str, dict[int, Path]] = defaultdict(dict)
    for file in sorted(folder.glob("*.et")) if folder.is_dir() else ():
        if (match := re.fullmatch(r"(.+)\.(\d{1,7})\.et", file.name)) and prefix in ("", match[1]):
            found[match[1]][int(match[2])] = file
    if len(found) != 1:
        names = "; ".join(str(folder / name) for name in found)
        raise UsageError(
            f"{path}: has Chakra traces of {counted(len(found), 'name')}; give one: {names}" if found
            else f"{path}: has no Chakra trace, a file NAME.RANK.et a rank"
        )  # fmt: skip
    (ranks,) = found.values()
    if lacking := set(range(len(ranks))) - set(ranks):
        raise UsageError(f"{path}: there are {len(ranks)} files, but none of rank {min(lacking)}; ranks count from 0")
    return [ranks[rank] for rank in range(len(ranks))]


def _groups(path: Path, ranks: int) -> dict[str, tuple[int, ...]]:
    """Ranks of the groups; none without a file."""
    if not path.is_file():
        return {}
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        raise UsageError(f"{path}: is no JSON") from None
    if not isinstance(found, dict):
        raise UsageError(f"{path}: must be an object with the ranks of each group")
    for name, members in found.items():
        fits = isinstance(members, list) and members and all(type(one) is int and 0 <= one < ranks for one in members)
        if not fits or len(set(members)) < len(members):
            raise UsageError(f"{path}: group {name!r} must have ranks of 0 to {ranks - 1}, each once")
    return {name: tuple(members) for name, members in found.items()}


def _read(file: Path, rank: int, trace: Trace, ends: _Ends, calls: _Calls) -> None:
    """Add the nodes of a rank. Raises ValueError."""
    numbers: dict[int, int] = {}
    waits: list[tuple[int, int]] = []
    for node in nodes(file):
        number = len(trace.rank)
        if number >= MOST_NODES:
            raise ValueError(f"there are more than {MOST_NODES:,} nodes")
        if node.id in numbers:
            raise ValueError(f"node {node.id} is there twice")
        numbers[node.id] = number
        is_communication = node.type in (SEND, RECV, COLL)
        ns = 0 if is_communication else node.duration_micros * 1000
        if ns > _MOST_NS:
            raise ValueError(f"node {node.id}: duration_micros = {node.duration_micros} is above {_MOST_NS // 1000:,}")
        trace.rank.append(rank)
        trace.ns.append(ns)
        trace.name.append(valid_text(node.name)[:200])
        waits += [(before, number) for before in (*node.data_deps, *node.ctrl_deps)]
        if is_communication:
            taken = calls if node.type == COLL else ends
            taken.take(number, rank, node, attributes_of(node))
    for before, number in waits:
        if before not in numbers:
            raise ValueError(f"node {trace.name[number]!r} depends on node {before}, which is not there")
        trace.waits.append((numbers[before], number))


def _number(values: dict[str, Any], name: str, node: Any) -> int:
    value = values.get(name)
    if type(value) is not int or not 0 <= value < 2**62:
        raise ValueError(f"node {node.id}: {name} = {value!r}; it must be a whole number, 0 or more")
    return value


class _Ends:
    """Sends and receives that are not matched yet, by sender, receiver and tag."""

    def __init__(self) -> None:
        self._sends: dict[tuple[int, int, int], deque[tuple[int, int]]] = defaultdict(deque)
        self._receives: dict[tuple[int, int, int], deque[int]] = defaultdict(deque)

    def take(self, number: int, rank: int, node: Any, values: dict[str, Any]) -> None:
        """Raises ValueError."""
        tag = _number(values, "comm_tag", node) if "comm_tag" in values else 0
        if node.type == SEND:
            size = _number(values, "comm_size", node)
            self._sends[rank, _number(values, "comm_dst", node), tag].append((number, size))
        else:
            self._receives[_number(values, "comm_src", node), rank, tag].append(number)

    def matched(self, trace: Trace) -> list[tuple[int, int, int]]:
        """Raises UsageError for the first that is alone."""
        found = []
        for key, sends in self._sends.items():
            receives = self._receives.get(key, ())
            for (send, size), receive in zip(sends, receives, strict=False):
                if trace.rank[send] == trace.rank[receive]:
                    raise UsageError(f"{trace.place(send)}: sends to its own rank")
                found.append((send, receive, size))
        sent, received = (sum(map(len, each.values())) for each in (self._sends, self._receives))
        if max(sent, received) > len(found):
            raise UsageError(
                f"{sent} sends and {received} receives, of which {len(found)} match by ranks and comm_tag; "
                "the trace is not whole"
            )
        return found


class _Calls:
    """The collectives of each group at each of its ranks, in order."""

    def __init__(self, groups: dict[str, tuple[int, ...]]) -> None:
        self._groups = groups
        self._calls: dict[str, dict[int, list[tuple[int, int, int]]]] = defaultdict(lambda: defaultdict(list))

    def take(self, number: int, rank: int, node: Any, values: dict[str, Any]) -> None:
        """Raises ValueError."""
        group = str(values.get("pg_name", ""))
        if self._groups and group not in self._groups and group not in ("", "0"):
            raise ValueError(f"node {node.id}: pg_name = {group!r} is no group of {GROUPS}")
        if group in self._groups and rank not in self._groups[group]:
            raise ValueError(f"node {node.id}: rank {rank} is not of its group {group!r} of {GROUPS}")
        kind = _number(values, "comm_type", node)
        if kind not in _KINDS:
            raise ValueError(
                f"node {node.id}: comm_type = {kind} is not simulated; these are: "
                + ", ".join(f"{number} ({name})" for number, name in sorted(_KINDS.items()))
            )
        size = 0 if _KINDS[kind] == "barrier" else _number(values, "comm_size", node)
        self._calls[group][rank].append((number, kind, size))

    def matched(self, trace: Trace) -> list[Collective]:
        """Raises UsageError where the ranks of a group call different collectives."""
        return [one for group in self._calls for one in self._of(group, trace)]

    def _of(self, group: str, trace: Trace) -> Iterator[Collective]:
        members = self._groups.get(group, tuple(range(trace.ranks)))
        calls = self._calls[group]
        numbers = {rank: len(calls[rank]) for rank in members}
        if len(set(numbers.values())) > 1:
            few, many = min(members, key=numbers.__getitem__), max(members, key=numbers.__getitem__)
            raise UsageError(
                f"group {group or 'of all ranks'}: rank {few} has {counted(numbers[few], 'collective')}, rank {many} "
                f"has {numbers[many]}; the trace is not whole"
            )
        for each in zip(*(calls[rank] for rank in members), strict=True):
            if len({call[1:] for call in each}) > 1:
                raise UsageError(f"{trace.place(each[0][0])}: its group has other kinds or sizes at the same place")
            first, kind, size = each[0]
            name = _KINDS[kind]
            whole = size * len(members) if name == "all_gather" else size
            if len(members) > 1:
                found = tuple(number for number, _, _ in each)
                yield Collective(_EVENTS[name], trace.name[first], whole, members, found)
