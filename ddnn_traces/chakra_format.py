"""Chakra execution traces (github.com/mlcommons/chakra): a GlobalMetadata and then Nodes, each after its length.

Format: schema/protobuf/et_def.proto, version 0.0.4, with the fields that are written and read here.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import IO, Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError, Message

VERSION = "0.0.4"

#: Ranks of each group of processes by its name: ASTRA-sim's --comm-group-configuration.
GROUPS = "comm_groups.json"

COMP, SEND, RECV, COLL = 4, 5, 6, 7  # NodeType
#: Collectives by their CollectiveCommType; the last reduce_scatter is REDUCE_SCATTER_BLOCK.
COMM_TYPES = (
    "all_reduce", "reduce", "all_gather", "gather", "scatter", "broadcast", "all_to_all", "reduce_scatter",
    "reduce_scatter", "barrier",
)  # fmt: skip

#: Bytes of a message: a node with the shapes of its tensors has some hundred.
MOST_MESSAGE = 64 << 20

_PACKAGE = "ChakraProtoMsg"
_field = descriptor_pb2.FieldDescriptorProto
#: Fields of the value of an AttributeProto, the first of a Python type is written.
_VALUES = {
    "int64_val": (9, _field.TYPE_INT64), "double_val": (3, _field.TYPE_DOUBLE), "bool_val": (27, _field.TYPE_BOOL),
    "string_val": (29, _field.TYPE_STRING), "float_val": (5, _field.TYPE_FLOAT), "int32_val": (7, _field.TYPE_INT32),
    "uint32_val": (11, _field.TYPE_UINT32), "uint64_val": (13, _field.TYPE_UINT64),
    "sint32_val": (15, _field.TYPE_SINT32), "sint64_val": (17, _field.TYPE_SINT64),
    "fixed32_val": (19, _field.TYPE_FIXED32), "fixed64_val": (21, _field.TYPE_FIXED64),
    "sfixed32_val": (23, _field.TYPE_SFIXED32), "sfixed64_val": (25, _field.TYPE_SFIXED64),
}  # fmt: skip


def message(kind: str, **fields: Any) -> Message:
    """A message of et_def.proto: GlobalMetadata, Node or AttributeProto."""
    return _classes()[kind](**fields)


def attribute(name: str, value: bool | int | float | str) -> Message:
    """An AttributeProto with the value's own type."""
    kind = {bool: "bool_val", int: "int64_val", float: "double_val", str: "string_val"}[type(value)]
    return message("AttributeProto", name=name, **{kind: value})


def attributes_of(node: Any) -> dict[str, Any]:
    """Values of a node's attributes by their names; lists are left out."""
    found = {}
    for one in node.attr:
        for field, value in one.ListFields():
            if field.name in _VALUES:
                found[one.name] = value
    return found


def nodes(path: Path) -> Iterator[Any]:
    """The Nodes of a file, one at a time. Raises OSError, and ValueError with what is wrong but not the file's name."""
    with path.open("rb") as file:
        number = 0
        while (size := _length(file)) is not None:
            kind = "Node" if number else "GlobalMetadata"
            data = file.read(size) if size <= MOST_MESSAGE else b""
            if len(data) < size:
                raise ValueError(f"ends in the middle of message {number}, or is no Chakra trace")
            found = message(kind)
            try:
                found.ParseFromString(data)
            except (DecodeError, UnicodeDecodeError):
                raise ValueError(f"message {number} is no {kind} of a Chakra trace") from None
            if number:
                yield found
            number += 1
    if not number:
        raise ValueError("is empty")


def _length(file: IO[bytes]) -> int | None:
    """The length of the next message; None at the end of the file."""
    value = 0
    for count in range(10):
        byte = file.read(1)
        if not byte and count == 0:
            return None
        if not byte:
            break
        value |= (byte[0] & 127) << 7 * count
        if byte[0] < 128:
            return value
    raise ValueError("ends in the middle of a message, or is no Chakra trace")


@cache
def _classes() -> dict[str, type[Message]]:
    """Classes of the messages.

    The syntax is proto2 because that one also writes fields that are 0. The type of a Node is a number of NodeType.
    """

    def one(name: str, number: int, kind: Any) -> descriptor_pb2.FieldDescriptorProto:
        return _field(name=name, number=number, type=kind, label=_field.LABEL_OPTIONAL)

    def several(name: str, number: int) -> descriptor_pb2.FieldDescriptorProto:
        packed = descriptor_pb2.FieldOptions(packed=True)
        return _field(name=name, number=number, type=_field.TYPE_UINT64, label=_field.LABEL_REPEATED, options=packed)

    def attributes(number: int) -> descriptor_pb2.FieldDescriptorProto:
        kind, label = _field.TYPE_MESSAGE, _field.LABEL_REPEATED
        return _field(name="attr", number=number, type=kind, label=label, type_name=f".{_PACKAGE}.AttributeProto")

    values = [one(name, number, kind) for name, (number, kind) in _VALUES.items()]
    messages = {
        "AttributeProto": [one("name", 1, _field.TYPE_STRING), *values],
        "GlobalMetadata": [one("version", 1, _field.TYPE_STRING), attributes(2)],
        "Node": [
            one("id", 1, _field.TYPE_UINT64), one("name", 2, _field.TYPE_STRING), one("type", 3, _field.TYPE_INT32),
            several("ctrl_deps", 4), several("data_deps", 5), one("start_time_micros", 6, _field.TYPE_UINT64),
            one("duration_micros", 7, _field.TYPE_UINT64), attributes(10),
        ],
    }  # fmt: skip
    types = [descriptor_pb2.DescriptorProto(name=name, field=fields) for name, fields in messages.items()]
    pool = descriptor_pool.DescriptorPool()
    pool.Add(
        descriptor_pb2.FileDescriptorProto(name="et_def.proto", package=_PACKAGE, syntax="proto2", message_type=types)
    )
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}")) for name in messages
    }
