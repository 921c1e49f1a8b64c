"""A run as Chakra execution traces (github.com/mlcommons/chakra), a file a rank, for ASTRA-sim and others.

Of the collectives of a job (--collectives, --profiler) each is a COMM_COLL_NODE at each of its ranks, or a send and its
receive, behind a COMP_NODE of the time before. The COMP_NODEs of a rank follow one another in one order of all
collectives, so that ranks that have one communication at a time do not wait for each other. GROUPS has the ranks of
each pg_name, from 1, since ASTRA-sim takes 0 for all ranks.

Else a transfer is a COMM_SEND_NODE of one rank and a COMM_RECV_NODE of another. Before each send a rank has a
COMP_NODE; these follow one another, and each depends on the transfers that were received completely before it starts.
A receive depends on the last COMP_NODE of the sends that ended before it: that adds no wait, and prevents a deadlock in
a simulator that has one communication of a rank at a time, in the order of the ids. All dependencies are data_deps,
since older readers know no others. Durations are us, rounded so that they do not drift.

comm_size is a signed 64-bit number, comm_src, comm_dst and comm_tag are signed 32-bit ones, as src/feeder reads them.
comm_size of a collective is what a rank gives: ASTRA-sim sends that as one piece of an all-gather
(system/collective/Ring.cc).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from google.protobuf.message import Message
from google.protobuf.proto import serialize_length_prefixed

from ddnn_traces.chakra_format import COLL, COMM_TYPES, COMP, GROUPS, RECV, SEND, VERSION, attribute, message
from ddnn_traces.export import collectives, recorded
from ddnn_traces.export.collectives import JobReplay
from ddnn_traces.export.simulators import Replay, ReplayOptions

if TYPE_CHECKING:
    from ddnn_traces.query.dataset import Dataset


def load(dataset: Dataset, options: ReplayOptions) -> JobReplay:
    """The collectives of a job: by a profiler, as simulated, or by its traffic."""
    if options.profiler:
        return recorded.load(dataset, options)
    return recorded.load_buffers(dataset, options) or collectives.load(dataset, options)


def files(replay: Replay | JobReplay) -> list[str]:
    """Names of the files, first trace.RANK.et: ASTRA-sim's --workload-configuration is FOLDER/trace."""
    traces = [f"trace.{node}.et" for node in replay.nodes["node"]]
    return traces if isinstance(replay, Replay) else [*traces, GROUPS]


def write(replay: Replay | JobReplay, folder: Path) -> list[str]:
    """Write a file for each node into a folder; return notes for the user."""
    for node, name in zip(replay.nodes["node"], files(replay), strict=False):
        messages = _nodes(replay, node) if isinstance(replay, Replay) else _calls(replay, node)
        with (folder / name).open("wb") as file:
            run_id = attribute("run_id", replay.run.encode(errors="replace").decode())
            serialize_length_prefixed(message("GlobalMetadata", version=VERSION, attr=[run_id]), file)
            for one in messages:
                serialize_length_prefixed(one, file)
    if isinstance(replay, Replay):
        return []
    groups = {_group(communicator): ranks for communicator, ranks in replay.groups.items()}
    (folder / GROUPS).write_text(json.dumps(groups) + "\n", encoding="ascii")
    return replay.notes


def _calls(replay: JobReplay, node: int) -> Iterator[Message]:
    """The Node messages of a rank: for each of its collectives a computation and the collective."""
    ids: dict[int, int] = {}
    last_comp: list[int] = []
    for row in replay.at(node):
        comp, ids[row["call"]] = 2 * len(ids), 2 * len(ids) + 1
        ready, start, end = (row[name] // 1000 for name in ("ready_ns", "start_ns", "end_ns"))
        cpu = [attribute("is_cpu_op", True), *_told(row, ["step"])]
        depends = [*(ids[need] for need in row["needs"]), *last_comp]
        yield _node(comp, f"before {row['said']}", COMP, depends, ready, start - ready, cpu)
        kind = (SEND if row["members"][0] == node else RECV) if row["kind"] == "send" else COLL
        yield _node(ids[row["call"]], row["said"], kind, [comp], start, end - start, _call_attributes(row))
        last_comp = [comp]


def _call_attributes(row: dict[str, Any]) -> list[Message]:
    if row["kind"] == "send":
        src, dst = row["members"]
        common = _communication(
            {"src": src, "dst": dst, "transfer": row["call"], "size": row["size"], "step": row["step"]}
        )
    else:
        common = [
            attribute("is_cpu_op", False),
            attribute("comm_type", COMM_TYPES.index(row["kind"])),
            attribute("comm_size", row["size"]),
            attribute("pg_name", _group(row["communicator"])),
            message("AttributeProto", name="comm_tag", int32_val=row["call"]),
            *_told(row, ["step"]),
        ]
    names = ["position", "tensor_bytes", "algorithm", "channel", "kind_or", "confidence", "process_group"]
    return [*common, *_told(row, names)]


def _told(row: dict[str, Any], names: list[str]) -> list[Message]:
    """Attributes of what is known of a call."""
    return [attribute(name, row[name]) for name in names if row.get(name) is not None]


def _group(communicator: int) -> str:
    return str(communicator + 1)


def _nodes(replay: Replay, node: int) -> Iterator[Message]:
    """The Node messages of a rank, each after those that it depends on."""
    comp_ids: dict[int, int] = {}  # of the sends that have not ended yet
    recv_ids: dict[int, int] = {}  # of the transfers that no other has waited for yet
    last_comp = last_ended = None
    for number, (turn, row) in enumerate(replay.turns(node)):
        transfer = row["transfer"]
        if turn == "calc":
            begin, ready = row["start_ns"] // 1000, row["ready_ns"] // 1000
            duration = begin - ready if replay.options.calc == "all" else round(row["calc_ns"] / 1000)
            depends = [recv_ids.pop(need) for need in row["needs"]]
            depends += [] if last_comp is None else [last_comp]
            attributes = [attribute("is_cpu_op", True)]
            if row["compute_ns"] is not None:
                attributes.append(attribute("compute_ns", row["compute_ns"]))
            yield _node(number, f"before {transfer}", COMP, depends, ready, duration, attributes)
            last_comp = comp_ids[transfer] = number
        elif turn == "send":
            depends = [comp_ids.pop(transfer)]
            last_ended = max(depends[0], -1 if last_ended is None else last_ended)
            yield _node(number, f"send {transfer}", SEND, depends, row["start_ns"] // 1000, 0, _communication(row))
        else:
            recv_ids[transfer] = number
            depends = [] if last_ended is None else [last_ended]
            yield _node(number, f"recv {transfer}", RECV, depends, row["start_ns"] // 1000, 0, _communication(row))


def _communication(row: dict[str, Any]) -> list[Message]:
    ends = {"comm_src": row["src"], "comm_dst": row["dst"], "comm_tag": row["transfer"]}
    return [
        attribute("is_cpu_op", False),
        attribute("comm_size", row["size"]),
        *(message("AttributeProto", name=name, int32_val=value) for name, value in ends.items()),
        *([] if row["step"] is None else [attribute("step", row["step"])]),
    ]


def _node(
    number: int, name: str, kind: int, depends: list[int], start: int, duration: int, attributes: list[Message]
) -> Message:
    return message(
        "Node", id=number, name=name, type=kind, data_deps=depends, start_time_micros=start, duration_micros=duration,
        attr=attributes,
    )  # fmt: skip
