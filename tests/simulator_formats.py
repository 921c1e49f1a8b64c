"""Readers of the simulators' formats: a parser a format, which follows the rules of the simulator's own reader.

Each refuses (ValueError) the files that that reader refuses, and returns plain values. The rules are those of

- basic-sim: helper/apps/tcp-flow-schedule-reader.cc (8bcd5c86), model/core/exp-util.cc (2975fe3d) and
  model/core/topology-ptop.cc (b3050585) of github.com/snkas/basic-sim, names of properties by doc/ptop_topology.md
  (097b3fbf)
- htsim: ConnectionMatrix::load in sim/datacenter/connection_matrix.cpp (20b22971) and sim/trigger.cpp (20b22971) of
  github.com/Broadcom/csg-htsim
- GOAL: src/LogGOPSim/txt2bin.re (d5bb14a8) and Goal.hpp (14dddeb5) of github.com/spcl/LogGOPSim
- Chakra: schema/protobuf/et_def.proto (6dc63e14), src/third_party/utils/protolib.py (430cc00a) and
  src/feeder/et_feeder_node.cpp (02da5d05) of github.com/mlcommons/chakra, decoded by Google's protobuf
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory


def check(condition: object, what: object) -> None:
    if not condition:
        raise ValueError(what)


# --- basic-sim


@dataclass(frozen=True)
class Flow:
    source: int
    target: int
    size: int
    start_ns: int
    metadata: str


def positive_int64(text: str) -> int:
    """parse_positive_int64: std::stoll of the whole text, not negative."""
    check(re.fullmatch(r"\s*[+-]?\d+", text), f"no number: {text!r}")
    check(0 <= int(text) < 2**63, f"out of range: {text}")
    return int(text)


def properties(path: Path) -> dict[str, str]:
    """read_config."""
    found: dict[str, str] = {}
    for line in path.read_text().split("\n"):
        if not line.strip() or line.startswith("#"):
            continue
        parts = line.split("=")
        check(len(parts) == 2, f"{line!r} has {len(parts)} sides")
        key, value = parts[0].strip(), parts[1].strip()
        check(key not in found, f"twice: {key}")
        found[key] = value[1:-1] if len(value) >= 2 and value[0] == value[-1] == '"' else value
    return found


def set_of(text: str) -> list[str]:
    """parse_set_string."""
    check(text.startswith("set(") and text.endswith(")"), f"no set: {text}")
    inside = text[4:-1]
    items = [item.strip() for item in inside.split(",")] if inside.strip() else []
    check(len(items) == len(set(items)), f"twice in {text}")
    return items


def basic_sim(folder: Path) -> tuple[list[Flow], dict[str, str]]:
    """A run folder: the flows, and the topology's properties."""
    config = properties(folder / "config_ns3.properties")
    needed = {"simulation_end_time_ns", "simulation_seed", "topology_ptop_filename"}
    flows_too = {"enable_tcp_flow_scheduler", "tcp_flow_schedule_filename"}
    check(set(config) == needed | flows_too, f"a property that is not read is an error: {set(config)}")
    check(config["enable_tcp_flow_scheduler"] == "true", "no flows")
    end_ns = positive_int64(config["simulation_end_time_ns"])
    positive_int64(config["simulation_seed"])
    topology = properties(folder / config["topology_ptop_filename"])
    servers = _servers(topology)
    flows: list[Flow] = []
    text = (folder / config["tcp_flow_schedule_filename"]).read_bytes().decode("ascii")
    check(text.endswith("\n"), "no line end at the end")
    for number, line in enumerate(text[:-1].split("\n")):
        fields = line.split(",")
        check(len(fields) == 7, f"{len(fields)} fields: {line}")
        check(positive_int64(fields[0]) == number, f"not the next id: {line}")
        source, target, size, start_ns = map(positive_int64, fields[1:5])
        check(source != target and {source, target} <= servers, f"no two servers: {line}")
        check(start_ns < end_ns and start_ns >= (flows[-1].start_ns if flows else 0), f"start: {line}")
        flows.append(Flow(source, target, size, start_ns, fields[6]))
    return flows, topology


def _servers(topology: dict[str, str]) -> set[int]:
    """ReadTopologyConfig and ParseTopologyGraph: the servers."""
    links = {
        "channel_delay_ns",
        "net_device_data_rate_megabit_per_s",
        "net_device_queue",
        "interface_traffic_control_qdisc",
    }
    known = {"num_nodes", "num_undirected_edges", "switches", "switches_which_are_tors", "servers", "undirected_edges"}
    known |= {f"link_{name}" for name in links} | {"link_net_device_receive_error_model"}
    check(set(topology) == known, f"properties: {set(topology) ^ known}")
    count = positive_int64(topology["num_nodes"])
    names = ("switches", "switches_which_are_tors", "servers")
    switches, tors, servers = ({positive_int64(node) for node in set_of(topology[name])} for name in names)
    check(not switches & servers and switches | servers == set(range(count)) and tors <= switches, "kinds of nodes")
    edges = [tuple(map(positive_int64, edge.split("-"))) for edge in set_of(topology["undirected_edges"])]
    check(len(edges) == positive_int64(topology["num_undirected_edges"]), "number of edges")
    for edge in edges:
        check(len(edge) == 2 and edge[0] < edge[1] < count, f"edge {edge}")
        check(not servers & set(edge) or tors & set(edge), f"a server without a ToR: {edge}")
    positive_int64(topology["link_channel_delay_ns"])
    check(float(topology["link_net_device_data_rate_megabit_per_s"]) > 0, "data rate")
    return servers


# --- htsim


@dataclass
class Connection:
    source: int
    target: int
    flow: int = 0
    size: int = 0
    start_ps: float | None = None
    trigger: int = 0
    send_done_trigger: int = 0
    recv_done_trigger: int = 0


@dataclass
class Matrix:
    nodes: int
    connections: list[Connection]
    triggers: dict[int, tuple[str, int]] = field(default_factory=dict)


def int32(text: str) -> int:
    """std::stoi: a number at the text's start, of 32 bits."""
    match = re.match(r"\s*[+-]?\d+", text)
    check(match and -(2**31) <= int(match[0]) < 2**31, f"no int: {text!r}")
    return int(text if match is None else match[0])


def htsim(text: str) -> Matrix:
    """A connection matrix."""
    header = {"Nodes": 0, "Connections": 0, "Triggers": 0, "Failures": 0}
    lines = text.split("\n")
    for number, line in enumerate(lines):
        tokens = _tokens(line)
        if not tokens or line.startswith("#"):
            continue
        if "->" in tokens[0] or tokens[0] in ("trigger", "failure"):
            lines = lines[number:]
            break
        if tokens[0] in header:
            header[tokens[0]] = int32(tokens[1])
    found = Matrix(header["Nodes"], [])
    for line in filter(None, lines):
        tokens = _tokens(line)
        if "->" in tokens[0]:
            found.connections.append(_connection(tokens))
        elif tokens[0] == "trigger":
            number, kind, count = _trigger(tokens)
            check(number not in found.triggers, f"twice: {line}")
            found.triggers[number] = (kind, count)
        else:
            raise ValueError(f"unknown id: {line}")
    check(len(found.connections) == header["Connections"], "number of connections")
    check(len(found.triggers) == header["Triggers"], "number of triggers")
    for connection in found.connections:
        check(max(connection.source, connection.target) < found.nodes, f"no such node: {connection}")
        used = {connection.trigger, connection.send_done_trigger, connection.recv_done_trigger} - {0}
        check(used <= set(found.triggers), f"unspecified trigger: {connection}")
    flows = [connection.flow for connection in found.connections]
    check(len(flows) == len(set(flows)), "flow ids twice")  # an assertion of main_eqds.cpp
    activations = Counter(c.recv_done_trigger for c in found.connections)
    activations += Counter(c.send_done_trigger for c in found.connections)
    targets = Counter(c.trigger for c in found.connections)
    for number, (kind, count) in found.triggers.items():  # the assertions of trigger.cpp
        check(targets[number] > 0, f"trigger {number} has no target")
        check(activations[number] == (count if kind == "barrier" else 1), f"trigger {number}: {activations[number]}")
    return found


def _tokens(line: str) -> list[str]:
    """tokenize: what stands between single blanks; getline gives nothing for what ends the line."""
    return line.split(" ")[: -1 if line.endswith(" ") else None] if line else []


def _connection(tokens: list[str]) -> Connection:
    ends = tokens[0].split("->")
    found = Connection(int32(ends[0]), int32(ends[1]))
    words = iter(tokens[1:])
    for word in words:
        value = next(words)
        if word == "start":
            found.start_ps = float(np.float32(value))  # stof
        elif word == "size":
            found.size = int32(value)
        elif word == "id":
            found.flow = int32(value)
            check(found.flow, "flow id zero is not allowed")
        elif word == "trigger":
            check(found.flow, "an id has to stand before a trigger")
            found.trigger = int32(value)
        elif word in ("send_done_trigger", "recv_done_trigger"):
            setattr(found, word, int32(value))
        else:
            raise ValueError(f"unknown token: {word!r}")
    check((found.start_ps is None) == bool(found.trigger), f"a start or a trigger: {tokens}")
    return found


def _trigger(tokens: list[str]) -> tuple[int, str, int]:
    number, kind, count = 0, "", 0
    words = iter(tokens[1:])
    for word in words:
        if word == "id":
            number = int32(next(words))
        elif word == "count":
            count = int32(next(words))
        else:
            check(word in ("oneshot", "multishot", "barrier") and not kind, f"unknown id: {word}")
            kind = word
    check(number and kind, f"a trigger without id or type: {tokens}")
    return number, kind, count


# --- GOAL

_IDENT, _WS = r"[a-zA-Z][a-zA-Z0-9_]*", r"[ \t]+"
_PLACE = r"(?:[ \t]*cpu[ \t]*\d+)?(?:[ \t]*nic[ \t]*\d+)?"
_OPERATION = re.compile(
    rf"(?:(?P<label>{_IDENT})[ \t]*:[ \t]*)?(?:calc[ \t]*(?P<calc>\d+)(?:[ \t]*cpu[ \t]*\d+)?"
    rf"|(?P<kind>send|recv)[ \t]*(?P<size>\d+)[ \t]*b[ \t]*(?P<way>to|from)[ \t]*(?P<peer>\d+)"
    rf"(?:[ \t]*tag[ \t]*(?P<tag>\d+))?{_PLACE})[ \t]*"
)
_DEPENDENCY = re.compile(rf"({_IDENT})[ \t]*(requires|irequires)[ \t]*({_IDENT})[ \t]*")


@dataclass
class Operation:
    """kind: calc (size: ns), send or recv (size: bytes). requires: labels of its rank."""

    kind: str
    size: int
    peer: int = -1
    tag: int = 0
    requires: list[str] = field(default_factory=list)


def goal(text: str) -> list[dict[str, Operation]]:
    """A schedule: the labelled operations of each rank."""
    ranks: list[dict[str, Operation]] = []
    count, rank = 0, None
    for line in text.split("\n"):
        check(not line.startswith((" ", "\t")), f"a blank begins a line: {line!r}")
        if not line or line.startswith("//"):
            continue
        if match := re.fullmatch(r"num_ranks[ \t]*(\d+)", line):
            count = int(match[1])
        elif match := re.fullmatch(r"rank[ \t]*(\d+)[ \t]*\{", line):
            check(rank is None and count and int(match[1]) == len(ranks) < count, f"rank out of order: {line}")
            rank = {}
        elif line == "}":
            check(rank is not None, "a bracket that closes nothing")
            ranks.append(rank)  # type: ignore[arg-type]
            rank = None
        else:
            check(rank is not None, f"outside a rank: {line}")
            _add(line, rank, count)  # type: ignore[arg-type]
    check(rank is None and len(ranks) == count, "a rank is missing, or a closing bracket")
    return ranks


def _add(line: str, rank: dict[str, Operation], count: int) -> None:
    if match := _DEPENDENCY.fullmatch(line):
        check({match[1], match[3]} <= set(rank), f"references an undefined label: {line}")
        rank[match[1]].requires.append(match[3])
        return
    match = _OPERATION.fullmatch(line)
    check(match, f"no operation: {line}")
    assert match is not None
    check(match["label"] and match["label"] not in rank, f"label: {line}")
    if match["calc"]:
        found = Operation("calc", int(match["calc"]))
    else:
        check(match["way"] == {"send": "to", "recv": "from"}[match["kind"]], line)
        found = Operation(match["kind"], int(match["size"]), int(match["peer"]), int(match["tag"] or 0))
        check(found.peer < count and found.tag < 2**32 - 1, f"peer or tag: {line}")  # the last tag is any tag
        check(found.size > 0, f"the simulator subtracts 1: {line}")
    check(found.size < 2**64, f"size: {line}")
    rank[match["label"]] = found


# --- Chakra

_LABELS = {"": 1, "repeated": 3}
_FIELDS = {  # of et_def.proto, the messages and fields that a trace without storage has
    "AttributeProto": "string name=1; string doc_string=2; double double_val=3; float float_val=5; int32 int32_val=7; "
    "int64 int64_val=9; uint32 uint32_val=11; uint64 uint64_val=13; bool bool_val=27; string string_val=29; "
    "bytes bytes_val=31",
    "GlobalMetadata": "string version=1; repeated .AttributeProto attr=2",
    "Node": "uint64 id=1; string name=2; int32 type=3; repeated uint64 ctrl_deps=4; repeated uint64 data_deps=5; "
    "uint64 start_time_micros=6; uint64 duration_micros=7; repeated .AttributeProto attr=10",
}
_NODE_TYPES = {4: "calc", 5: "send", 6: "recv", 7: "coll"}


@cache
def _messages() -> dict[str, Any]:
    """Classes of the messages, from a descriptor made of _FIELDS."""
    file = descriptor_pb2.FileDescriptorProto(name="et_def.proto", package="ChakraProtoMsg", syntax="proto3")
    for name, fields in _FIELDS.items():
        message = file.message_type.add(name=name)
        for text in fields.split("; "):
            *repeated, kind, rest = text.split(" ")
            field_name, number = rest.split("=")
            added = message.field.add(name=field_name, number=int(number), label=_LABELS["".join(repeated)])
            if kind.startswith("."):
                added.type, added.type_name = added.TYPE_MESSAGE, f".ChakraProtoMsg{kind}"
            else:
                added.type = getattr(added, f"TYPE_{kind.upper()}")
            if name == "AttributeProto" and field_name.endswith("_val"):
                added.oneof_index = 0
        if name == "AttributeProto":
            message.oneof_decl.add(name="value")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"ChakraProtoMsg.{name}")) for name in _FIELDS
    }


@dataclass
class Node:
    """A node as the feeder has it. kind: calc, send, recv or coll."""

    kind: str
    duration_us: int
    start_us: int
    depends: list[int]
    is_cpu_op: bool = True
    comm_size: int = 0
    comm_src: int = 0
    comm_dst: int = 0
    comm_tag: int = 0
    comm_type: int = 0
    pg_name: str = ""
    name: str = ""
    others: dict[str, Any] = field(default_factory=dict)


def chakra(path: Path) -> tuple[dict[str, Any], dict[int, Node]]:
    """A rank's trace: the metadata's attributes, and the nodes by id in the order of the file."""
    data, place = path.read_bytes(), 0
    found: list[Any] = []
    while place < len(data):
        size = shift = 0
        while True:
            byte = data[place]
            size |= (byte & 0x7F) << shift
            place, shift = place + 1, shift + 7
            if not byte & 0x80:
                break
        check(size and place + size <= len(data), "a message that is cut short")
        message = _messages()["Node" if found else "GlobalMetadata"]()
        message.ParseFromString(data[place : place + size])
        check(message.SerializeToString() is not None and not _unknown(message), f"unknown fields: {message}")
        found.append(message)
        place += size
    check(found and found[0].version == "0.0.4", "schema version")
    nodes: dict[int, Node] = {}
    for message in found[1:]:
        check(message.id not in nodes, f"id {message.id} twice")
        nodes[message.id] = _node(message)
    return {attribute.name: attribute.string_val for attribute in found[0].attr}, nodes


def _unknown(message: Any) -> bool:
    """Whether the descriptor lacks a field that was read, or a value changes when it is written again."""
    again = type(message)()
    again.ParseFromString(message.SerializeToString())
    copy = type(message)()
    copy.CopyFrom(message)
    copy.DiscardUnknownFields()
    return bool(copy.SerializeToString() != message.SerializeToString() or again != message)


_READ_AS = {  # et_feeder_node.cpp: another member of the oneof reads as 0
    "is_cpu_op": "bool_val", "comm_size": "int64_val", "comm_src": "int32_val", "comm_dst": "int32_val",
    "comm_tag": "int32_val", "comm_type": "int64_val", "pg_name": "string_val",
}  # fmt: skip


def _node(message: Any) -> Node:
    check(message.type in _NODE_TYPES, f"type {message.type}")
    depends = [*message.data_deps, *message.ctrl_deps]
    node = Node(
        _NODE_TYPES[message.type], message.duration_micros, message.start_time_micros, depends, name=message.name
    )
    for attribute in message.attr:
        value = attribute.WhichOneof("value")
        if attribute.name in _READ_AS:
            check(value == _READ_AS[attribute.name], f"{attribute.name} is read as {_READ_AS[attribute.name]}")
            setattr(node, attribute.name, getattr(attribute, value))
        else:
            node.others[attribute.name] = getattr(attribute, value)
    return node
