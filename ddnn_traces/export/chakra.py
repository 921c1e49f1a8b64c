"""A run as Chakra execution traces (github.com/mlcommons/chakra), a file a rank, for ASTRA-sim and others.

A transfer is a COMM_SEND_NODE of one rank and a COMM_RECV_NODE of another. Before each send a rank has a COMP_NODE;
these follow one another, and each depends on what was received whole before it begins. A receive depends on the last
COMP_NODE of the sends that ended before it: that adds no wait, and a simulator that has one communication of a rank at
a time, in the order of the ids, does not stand still. All dependencies are data_deps, since older readers know no
others. Durations are us, rounded so that they do not drift.

Format: schema/protobuf/et_def.proto, version 0.0.4: a GlobalMetadata and then Nodes, each behind its length. comm_size
is a signed 64-bit number, comm_src, comm_dst and comm_tag are signed 32-bit ones, as src/feeder reads them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ddnn_traces.store.whole_files import whole_file
from ddnn_traces.traffic.transfers import Traffic

#: Name of the files, trace.RANK.et: ASTRA-sim's --workload-configuration is FOLDER/trace.
NAME = "trace"

VERSION = "0.0.4"

_COMP, _SEND, _RECV = 4, 5, 6  # NodeType


def write(traffic: Traffic, folder: Path) -> list[str]:
    """Write a file for each node into a folder; return what the reader should know of them."""
    for node in traffic.nodes["node"]:
        with whole_file(folder / f"{NAME}.{node}.et") as half_written, half_written.open("wb") as file:
            file.write(_delimited(_text(1, VERSION) + _message(2, _attribute("run_id", traffic.run))))
            for message in _nodes(traffic, node):
                file.write(_delimited(message))
    return []


def _nodes(traffic: Traffic, node: int) -> Iterator[bytes]:
    """The Node messages of a rank, each behind those that it depends on."""
    comp_ids: dict[int, int] = {}  # of the sends that have not ended yet
    recv_ids: dict[int, int] = {}  # of what no transfer has waited for yet
    last_comp = last_ended = None
    for number, (turn, row) in enumerate(traffic.turns(node)):
        transfer = row["transfer"]
        if turn == "calc":
            begin, ready = row["start_ns"] // 1000, row["ready_ns"] // 1000
            duration = begin - ready if traffic.options.calc == "all" else round(row["calc_ns"] / 1000)
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


def _communication(row: dict[str, Any]) -> list[bytes]:
    ends = {"comm_src": row["src"], "comm_dst": row["dst"], "comm_tag": row["transfer"]}
    return [
        _attribute("is_cpu_op", False),
        _attribute("comm_size", row["size"]),
        *(_attribute(name, value, field=_INT32) for name, value in ends.items()),
        *([] if row["step"] is None else [_attribute("step", row["step"])]),
    ]


def _node(
    number: int, name: str, kind: int, depends: list[int], start: int, duration: int, attributes: list[bytes]
) -> bytes:
    fields = [_number(1, number), _text(2, name), _number(3, kind)]
    if depends:
        fields.append(_message(5, b"".join(map(_varint, depends))))  # packed
    fields += [_number(6, start), _number(7, duration), *(_message(10, attribute) for attribute in attributes)]
    return b"".join(fields)


_INT32, _INT64, _BOOL, _STRING = 7, 9, 27, 29  # fields of AttributeProto's value


def _attribute(name: str, value: bool | int | str, field: int | None = None) -> bytes:
    if isinstance(value, str):
        return _text(1, name) + _text(_STRING, value)
    return _text(1, name) + _number(field or (_BOOL if isinstance(value, bool) else _INT64), int(value))


# Protocol Buffers' encoding (protobuf.dev/programming-guides/encoding)


def _varint(value: int) -> bytes:
    """A number from 0 to 2^64 - 1, seven bits a byte."""
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _message(field: int, content: bytes) -> bytes:
    return _varint(field << 3 | 2) + _delimited(content)


def _text(field: int, text: str) -> bytes:
    return _message(field, text.encode(errors="replace"))


def _delimited(content: bytes) -> bytes:
    return _varint(len(content)) + content
