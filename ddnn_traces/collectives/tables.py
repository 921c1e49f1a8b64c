"""From the messages of a run to its jobs, as Arrow tables."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa

from ddnn_traces.collectives.clocks import Way, offsets
from ddnn_traces.collectives.infer import Job, infer
from ddnn_traces.collectives.phases import Collective, part_in
from ddnn_traces.collectives.streams import MS, Array, Stream
from ddnn_traces.text import counted

#: One row: a message, ordered by flow and message; is_end: whether its end is known, not only its last packet;
#: is_silence: whether by a silence; without it no end is by one.
MESSAGES = pa.schema([
    ("flow_id", pa.int64()), ("src_ip", pa.string()), ("dst_ip", pa.string()), ("first_ns", pa.int64()),
    ("last_ns", pa.int64()), ("stream_offset", pa.int64()), ("bytes", pa.int64()), ("is_end", pa.bool_()),
    ("is_silence", pa.bool_()),
])  # fmt: skip

#: One row: a job of a run, or a run without one. Its columns are those of queries/inferred_jobs.sql.
JOBS = pa.schema([
    ("run_id", pa.string()),
    ("job", pa.int64()),
    ("flows", pa.list_(pa.struct([("flow_id", pa.int64()), ("step_bytes", pa.float64())]))),
    ("collectives", pa.list_(pa.struct([
        ("position", pa.int64()), ("kind", pa.string()), ("kind_or", pa.string()), ("algorithm", pa.string()),
        ("channel", pa.int64()), ("hosts", pa.list_(pa.string())), ("tensor_bytes", pa.int64()),
        ("evidence", pa.string()),
        ("transfers", pa.list_(pa.struct([
            ("step", pa.int64()), ("flow_id", pa.int64()), ("first_ns", pa.int64()), ("last_ns", pa.int64()),
            ("bytes", pa.int64()),
        ]))),
    ]))),
])  # fmt: skip


#: Algorithm, hosts (in order on a ring), number of the tree.
_Pattern = tuple[str, tuple[str, ...], int]

_SEVERAL, _SAME_SIZE = 3, 0.03  # transfers between two hosts in a step, and between their bytes

#: One row: a run with more than one pattern. Its columns are those of queries/several_patterns.sql.
PATTERNS = pa.schema([
    ("run_id", pa.string()), ("jobs", pa.int64()), ("communicators", pa.int64()), ("collectives", pa.int64()),
    ("topology", pa.string()), ("problem", pa.string()),
])  # fmt: skip

_TOPOLOGIES = {"rings": "ring", "double_binary_tree": "tree", "direct": "clique"}  # of other algorithms their name


def patterns_of(jobs: pa.Table, chosen: Collection[str] = ()) -> pa.Table:
    """The row of a run as PATTERNS, or none. jobs: of the run, as JOBS. chosen: parameters (job, communicator) by which
    a user chose these of all.

    A topology is not contradicted by little: a job after another (a restart) counts for nothing, nor do transfers
    between two hosts that are not several of one size in a step, which lost packets make of any pattern.
    """
    found = _at_once([row for row in jobs.to_pylist() if row["collectives"]])
    patterns = {(row["job"], pattern) for row in found for pattern in _sure_patterns(row["collectives"])}
    if len(patterns) < 2:
        return PATTERNS.empty_table()
    groups = {(row["job"], frozenset(one["hosts"])) for row in found for one in row["collectives"]}
    shapes = Counter(_topology(pattern) for _, pattern in patterns)
    is_known = bool(chosen) and len(groups) == len(shapes) == 1
    count = sum(len(row["collectives"]) for row in found)
    said = _what(count, len(found), len(groups), shapes, chosen)
    row = {
        "run_id": jobs["run_id"][0].as_py(),
        "jobs": len(found),
        "communicators": len(groups),
        "collectives": count,
        "topology": next(iter(shapes)) if is_known else None,
        "problem": f"several patterns ({said})",
    }
    return pa.Table.from_pylist([row], schema=PATTERNS)


def _topology(pattern: _Pattern) -> str:
    algorithm, hosts, _ = pattern
    return "pipeline" if algorithm == "direct" and len(hosts) == 2 else _TOPOLOGIES.get(algorithm, algorithm)


def _what(collectives: int, jobs: int, groups: int, shapes: Counter[str], chosen: Collection[str]) -> str:
    """How many there are, of which shapes, and what tells of each."""
    said = f"{counted(collectives, 'collective')} of {counted(groups, 'communicator')}"
    each = [shape if count == 1 else f"{count} {shape}s" for shape, count in sorted(shapes.items())]
    if "communicator" in chosen:  # nothing more is to choose
        return f"{said}: {', '.join(each)}; see collectives"
    if groups == 1:
        choice = " or choose it by parameter communicator" if not chosen and len(shapes) == 1 else ""
        return f"{said}: {', '.join(each)}; see collectives{choice}"
    names = "parameter communicator" if jobs == 1 or chosen else "parameters job and communicator"
    return f"{said}; see communicators and choose one by {names}"


def _at_once(jobs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The job with most flows, and those at the same time as it for half of the shorter one's time."""
    spans = []
    for job in jobs:
        times = [transfer for one in job["collectives"] for transfer in one["transfers"]]
        spans.append((min(t["first_ns"] for t in times), max(t["last_ns"] for t in times)))
    largest = max(range(len(jobs)), key=lambda place: len(jobs[place]["flows"] or ()), default=0)
    return [job for job, span in zip(jobs, spans, strict=True) if _overlap(span, spans[largest]) > 0.5]


def _overlap(one: tuple[int, int], other: tuple[int, int]) -> float:
    """Share of the shorter span that is in the other one, too; not above 0 where none is."""
    return (min(one[1], other[1]) - max(one[0], other[0])) / min(one[1] - one[0], other[1] - other[0])


def _sure_patterns(collectives: list[dict[str, Any]]) -> set[_Pattern]:
    """The patterns of a job's collectives that are no part of another one."""
    if len({host for one in collectives for host in one["hosts"]}) < 3:
        return set()
    sizes: dict[_Pattern, list[int]] = defaultdict(list)
    for one in collectives:
        tree = one["channel"] if one["algorithm"] == "double_binary_tree" else 0
        sizes[one["algorithm"], tuple(one["hosts"]), tree].append(one["tensor_bytes"])
    sure = {
        pattern
        for pattern, of_one in sizes.items()
        if len(pattern[1]) > 2 or (len(of_one) >= _SEVERAL and max(of_one) <= (1 + _SAME_SIZE) * min(of_one))
    }
    # a pipeline sends in both directions; in one only, sends are a part of a ring
    return {
        (algorithm, hosts, tree)
        for algorithm, hosts, tree in sure
        if algorithm != "direct" or len(hosts) > 2 or (algorithm, hosts[::-1], tree) in sure
    }


def jobs_of(run_id: str, messages: pa.Table, back: Mapping[int, Array] | None = None) -> pa.Table:
    """The jobs of a run as JOBS. messages: as MESSAGES. back: of flows between two captured hosts, times of windows in
    which the reverse flow has packets, ns. By these, clocks that differ are found, and taken off while jobs are
    inferred. The times of transfers are those of the captures.
    """
    flows = list(_flows(messages))
    ahead = offsets(
        [
            Way(flow["src_ip"][0], flow["dst_ip"][0], flow["first_ns"], flow["last_ns"], back[flow["flow_id"][0]])
            for flow in flows
            if back and flow["flow_id"][0] in back
        ]
    )
    # what a host without a capture sends has the times of its receiver
    shifts = {flow["flow_id"][0]: ahead.get(flow["src_ip"][0], ahead.get(flow["dst_ip"][0], 0)) for flow in flows}
    begin = min((int(flow["first_ns"][0]) - shifts[flow["flow_id"][0]] for flow in flows), default=0)
    origins = {flow_id: begin + shift for flow_id, shift in shifts.items()}
    found = infer([_stream(flow, origins[flow["flow_id"][0]]) for flow in flows])
    rows: list[dict[str, Any]] = [
        {"run_id": run_id, "job": number} | _job(job, origins) for number, job in enumerate(found)
    ]
    if ahead:
        said = (
            f"; clocks of hosts differ by {(max(ahead.values()) - min(ahead.values())) / MS:.1f} ms, which is taken off"
        )
        for row in rows:
            for one in row["collectives"]:
                one["evidence"] += said
    return pa.Table.from_pylist(rows or [{"run_id": run_id}], schema=JOBS)


def _flows(messages: pa.Table) -> Iterator[dict[str, Any]]:
    """The columns of each flow."""
    columns = {name: messages[name].to_numpy() for name in messages.column_names}
    begins = np.flatnonzero(np.diff(columns["flow_id"], prepend=-1))
    for low, high in itertools.pairwise([*begins, len(messages)]):
        yield {name: column[low:high] for name, column in columns.items()}


def _stream(flow: dict[str, Any], origin: int) -> Stream:
    end, is_end = flow["stream_offset"] + flow["bytes"], flow["is_end"].astype(bool)
    sure = end[is_end & ~np.asarray(flow.get("is_silence", False), bool)]
    return Stream(
        int(flow["flow_id"][0]), flow["src_ip"][0], flow["dst_ip"][0], flow["stream_offset"], flow["bytes"],
        flow["first_ns"] - origin, flow["last_ns"] - origin, end[is_end], sure,
    )  # fmt: skip


def _job(job: Job, origins: Mapping[int, int]) -> dict[str, Any]:
    flows = [{"flow_id": stream.flow_id, "step_bytes": job.steps.size[stream]} for stream in job.streams]
    collectives = [
        {"position": position} | _collective(collective, job, origins)
        for position, collective in enumerate(job.collectives)
    ]
    return {"flows": sorted(flows, key=itemgetter("flow_id")), "collectives": collectives}


def _collective(collective: Collective, job: Job, origins: Mapping[int, int]) -> dict[str, Any]:
    return {
        "kind": collective.kind,
        "kind_or": collective.kind_or,
        "algorithm": collective.algorithm,
        "channel": collective.channel,
        "hosts": collective.hosts,
        "tensor_bytes": round(collective.tensor_bytes),
        "evidence": collective.evidence,
        "transfers": [
            transfer
            for phase in collective.phases
            for stream, span in phase.spans.items()
            for transfer in _transfers(stream, span, job, origins[stream.flow_id])
        ],
    }


def _transfers(stream: Stream, span: tuple[float, float], job: Job, origin: int) -> Iterator[dict[str, int]]:
    """The bytes of a span in each step. Steps are numbered from the first of which all bytes are there."""
    part = part_in(job.parts[stream], span, job.steps)
    sizes = np.minimum(part.stop, span[1]) - np.maximum(part.begin, span[0])
    steps, each = np.unique(part.step, return_inverse=True)
    for number, step in enumerate(steps):
        mine = each == number
        yield {
            "step": int(step - job.steps.whole[0]),
            "flow_id": stream.flow_id,
            "first_ns": origin + int(part.first[mine].min()),
            "last_ns": origin + int(part.last[mine].max()),
            "bytes": int(sizes[mine].sum()),
        }
