"""A run as Chakra execution traces (github.com/mlcommons/chakra), a file a rank, for ASTRA-sim and others.

A transfer is a COMM_SEND_NODE of one rank and a COMM_RECV_NODE of another. Before each send a rank has a COMP_NODE;
these follow one another, and each depends on the transfers that were received completely before it starts. A receive
depends on the last COMP_NODE of the sends that ended before it: that adds no wait, and prevents a deadlock in a
simulator that has one communication of a rank at a time, in the order of the ids. All dependencies are data_deps, since
older readers know no others. Durations are us, rounded so that they do not drift.

Format: schema/protobuf/et_def.proto, version 0.0.4: a GlobalMetadata and then Nodes, each after its length. comm_size
is a signed 64-bit number, comm_src, comm_dst and comm_tag are signed 32-bit ones, as src/feeder reads them.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import Message
from google.protobuf.proto import serialize_length_prefixed

if TYPE_CHECKING:
    from ddnn_traces.export.simulators import Replay

VERSION = "0.0.4"

_COMP, _SEND, _RECV = 4, 5, 6  # NodeType


def files(replay: Replay) -> list[str]:
    """Names of the files, trace.RANK.et: ASTRA-sim's --workload-configuration is FOLDER/trace."""
    return [f"trace.{node}.et" for node in replay.nodes["node"]]


def write(replay: Replay, folder: Path) -> list[str]:
    """Write a file for each node into a folder; return notes for the user (none)."""
    for node, name in zip(replay.nodes["node"], files(replay), strict=True):
        with (folder / name).open("wb") as file:
            run_id = _attribute("run_id", replay.run.encode(errors="replace").decode())
            serialize_length_prefixed(_message("GlobalMetadata", version=VERSION, attr=[run_id]), file)
            for message in _nodes(replay, node):
                serialize_length_prefixed(message, file)
    return []


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
            attributes = [_attribute("is_cpu_op", True)]
            if row["compute_ns"] is not None:
                attributes.append(_attribute("compute_ns", row["compute_ns"]))
            yield _node(number, f"before {transfer}", _COMP, depends, ready, duration, attributes)
            last_comp = comp_ids[transfer] = number
        elif turn == "send":
            depends = [comp_ids.pop(transfer)]
            last_ended = max(depends[0], -1 if last_ended is None else last_ended)
            yield _node(number, f"send {transfer}", _SEND, depends, row["start_ns"] // 1000, 0, _communication(row))
        else:
            recv_ids[transfer] = number
            depends = [] if last_ended is None else [last_ended]
            yield _node(number, f"recv {transfer}", _RECV, depends, row["start_ns"] // 1000, 0, _communication(row))


def _communication(row: dict[str, Any]) -> list[Message]:
    ends = {"comm_src": row["src"], "comm_dst": row["dst"], "comm_tag": row["transfer"]}
    return [
        _attribute("is_cpu_op", False),
        _attribute("comm_size", row["size"]),
        *(_message("AttributeProto", name=name, int32_val=value) for name, value in ends.items()),
        *([] if row["step"] is None else [_attribute("step", row["step"])]),
    ]


def _node(
    number: int, name: str, kind: int, depends: list[int], start: int, duration: int, attributes: list[Message]
) -> Message:
    return _message(
        "Node", id=number, name=name, type=kind, data_deps=depends, start_time_micros=start, duration_micros=duration,
        attr=attributes,
    )  # fmt: skip


def _attribute(name: str, value: bool | int | str) -> Message:
    kind = {bool: "bool_val", int: "int64_val", str: "string_val"}[type(value)]
    return _message("AttributeProto", name=name, **{kind: value})


def _message(kind: str, **fields: Any) -> Message:
    return _classes()[kind](**fields)


@cache
def _classes() -> dict[str, type[Message]]:
    """Classes of et_def.proto's messages, with the fields that are written here.

    The syntax is proto2 because that one also writes fields that are 0. The type of a Node is a number of NodeType.
    """
    field, package = descriptor_pb2.FieldDescriptorProto, "ChakraProtoMsg"

    def one(name: str, number: int, kind: int) -> descriptor_pb2.FieldDescriptorProto:
        return field(name=name, number=number, type=kind, label=field.LABEL_OPTIONAL)

    def attributes(number: int) -> descriptor_pb2.FieldDescriptorProto:
        kind, label = field.TYPE_MESSAGE, field.LABEL_REPEATED
        return field(name="attr", number=number, type=kind, label=label, type_name=f".{package}.AttributeProto")

    packed = descriptor_pb2.FieldOptions(packed=True)
    needs = field(name="data_deps", number=5, type=field.TYPE_UINT64, label=field.LABEL_REPEATED, options=packed)
    messages = {
        "AttributeProto": [
            one("name", 1, field.TYPE_STRING), one("int32_val", 7, field.TYPE_INT32),
            one("int64_val", 9, field.TYPE_INT64), one("bool_val", 27, field.TYPE_BOOL),
            one("string_val", 29, field.TYPE_STRING),
        ],
        "GlobalMetadata": [one("version", 1, field.TYPE_STRING), attributes(2)],
        "Node": [
            one("id", 1, field.TYPE_UINT64), one("name", 2, field.TYPE_STRING), one("type", 3, field.TYPE_INT32), needs,
            one("start_time_micros", 6, field.TYPE_UINT64), one("duration_micros", 7, field.TYPE_UINT64),
            attributes(10),
        ],
    }  # fmt: skip
    types = [descriptor_pb2.DescriptorProto(name=name, field=fields) for name, fields in messages.items()]
    pool = descriptor_pool.DescriptorPool()
    pool.Add(
        descriptor_pb2.FileDescriptorProto(name="et_def.proto", package=package, syntax="proto2", message_type=types)
    )
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.{name}")) for name in messages}
