"""Made RoCE traffic of one reliable connection: messages, what the network lost, and how that is sent again.

The requester sends SENDs and RDMA WRITEs, or READs, whose answers the responder sends. What is captured at the
receiver lacks the packets that were lost behind the sender. The expected counts come from sets of the numbers in a
capture, not from the rules of docs/packets.md.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from ipaddress import ip_address

import packets as p

MTU = 1024
REQUESTER, RESPONDER = ("10.0.0.1", 0x000011), ("10.0.0.2", 0x000022)
SEND, WRITE, READ_ANSWER = 0, 6, 13  # the opcode of a message's first packet
READ_REQUEST, ACKNOWLEDGE, CNP = 12, 17, 0x81
RNR_NAK, SEQUENCE_NAK, ACCESS_NAK = 0x2E, 0x60, 0x62
CONGESTED = 3


@dataclass(frozen=True)
class Sent:
    """A packet. body: what follows the base transport header, data included, which is the last `data` bytes of it."""

    opcode: int
    number: int
    body: bytes = b""
    data: int = 0
    ecn: int = 0
    is_answer: bool = False

    def frame(self, carrier: str = "v2") -> bytes:
        (source, _), (destination, pair) = (RESPONDER, REQUESTER) if self.is_answer else (REQUESTER, RESPONDER)
        pad = -self.data % 4
        body = p.roce(self.body + bytes(pad), self.opcode, pair, self.number, pad)
        return CARRIERS[carrier](body, source, destination, self.ecn)


def _v2(body: bytes, source: str, destination: str, ecn: int) -> bytes:
    packet = p.ipv4(p.udp(body, 50_000, p.ROCE_PORT), source, destination, p.UDP)
    return p.ethernet(packet[:1] + bytes([ecn]) + packet[2:])


def _v1(body: bytes, source: str, destination: str, ecn: int) -> bytes:
    return p.ethernet(_routed(body, f"::ffff:{source}", f"::ffff:{destination}", ecn), p.ROCE_V1)


def _v1_of_ports(body: bytes, source: str, destination: str, ecn: int) -> bytes:
    return p.ethernet(_routed(body, port_gid(source), port_gid(destination), ecn), p.ROCE_V1, [p.VLAN])


def _local(body: bytes, source: str, destination: str, ecn: int) -> bytes:
    return p.local_route(body, 2, (_lid(source), _lid(destination)))


def _local_and_global(body: bytes, source: str, destination: str, ecn: int) -> bytes:
    routed = _routed(body, port_gid(source), port_gid(destination), ecn)
    return p.local_route(routed, 3, (_lid(source), _lid(destination)))


def _lid(address: str) -> int:
    return int(ip_address(address)) & 0xFFFF


def _routed(body: bytes, source: str, destination: str, ecn: int) -> bytes:
    header = p.route_header(body, source, destination)
    return header[:1] + bytes([ecn << 4]) + header[2:]


def port_gid(address: str) -> str:
    """The GID of a port that is made from its hardware address, with a number from an IPv4 address."""
    return f"fe80::202:c9ff:fe00:{int(ip_address(address)) & 0xFFFF:x}"


#: Ways in which RoCE's packets travel: frames of a base transport header and what follows, between two IPv4 addresses.
CARRIERS = {
    "v2": _v2, "v1": _v1, "v1 of ports": _v1_of_ports, "infiniband": _local, "infiniband, global": _local_and_global,
    "erf": lambda *what: p.erf(_local(*what), 21),
    "erf, global": lambda *what: p.erf(_local_and_global(*what), 21, 0, 2),
    "erf, v1": lambda *what: p.erf(_v1(*what), 11),
}  # fmt: skip
#: The link types of those that are not Ethernet.
LINK_OF = {
    name: 247 if name.startswith("infiniband") else 197 for name in CARRIERS if name.startswith(("infiniband", "erf"))
}


def message(first_opcode: int, number: int, size: int, immediate: bool = False) -> list[Sent]:
    """The packets of a SEND, a WRITE or the answer to a READ of so many bytes."""
    sizes = [MTU] * (size // MTU) + [size % MTU] * (size % MTU > 0 or not size)
    first, middle, last, only = (
        (13, 14, 15, 16)
        if first_opcode == READ_ANSWER
        else (first_opcode, first_opcode + 1, first_opcode + 2 + immediate, first_opcode + 4 + immediate)
    )
    opcodes = [only] if len(sizes) == 1 else [first, *[middle] * (len(sizes) - 2), last]
    found = []
    for i, (opcode, data) in enumerate(zip(opcodes, sizes, strict=True)):
        header = b""
        if first_opcode == READ_ANSWER:
            header = bytes([0x1F, 0, 0, 0]) if opcode != middle else b""
        elif first_opcode == WRITE and i == 0:
            header = struct.pack(">QII", 0, 0, size)
        header += bytes(4) * (immediate and i == len(sizes) - 1)
        found.append(Sent(opcode, number + i, header + bytes(data), data, is_answer=first_opcode == READ_ANSWER))
    return found


def read_request(number: int, size: int) -> Sent:
    return Sent(READ_REQUEST, number, struct.pack(">QII", 0, 0, size))


def acknowledgement(number: int, syndrome: int = 0x1F) -> Sent:
    return Sent(ACKNOWLEDGE, number, bytes([syndrome, 0, 0, 1]), is_answer=True)


def notification() -> Sent:
    """A congestion notification packet, from the receiver of marked packets to their sender."""
    return Sent(CNP, 0, bytes(16), is_answer=True)


def lossy(packets: Sequence[Sent], lost: Iterable[int], window: int, selective: bool) -> Iterator[tuple[Sent, bool]]:
    """The packets with what is sent again, and whether each arrives. lost: places of those that are lost once.

    A loss is known `window` packets later. selective: only the lost one is sent again, else all from it on (go-back-N),
    after a NAK of requests.
    """
    waiting, at, again = sorted(lost), 0, list[int]()
    while at < len(packets) or waiting:
        if waiting and at >= min(waiting[0] + 1 + window, len(packets)):
            place = waiting.pop(0)
            if not packets[place].is_answer:
                yield acknowledgement(packets[place].number, SEQUENCE_NAK), True
            if selective:
                yield packets[place], True
            else:
                again = [each for each in waiting if each < at]
                waiting = [each for each in waiting if each >= at]
                at = place
            continue
        yield packets[at], at not in waiting or at in again
        at += 1


@dataclass
class Counts:
    """Of a stream in a capture, as the columns of flows whose names begin with psn_."""

    repeated: int = 0
    repeated_bytes: int = 0
    late: int = 0
    missing: int = 0


def counted(captured: Iterable[Sent], is_answer: bool) -> Counts:
    """By sets of numbers, for requests without READ, or for answers to READ."""
    counts, seen = Counts(), set[int]()
    for each in captured:
        if each.is_answer != is_answer or each.opcode in (ACKNOWLEDGE, CNP):
            continue
        if each.number in seen:
            counts = replace(counts, repeated=counts.repeated + 1, repeated_bytes=counts.repeated_bytes + each.data)
        elif seen and each.number < max(seen):
            counts = replace(counts, late=counts.late + 1)
        seen.add(each.number)
    counts.missing = max(seen) - min(seen) + 1 - len(seen) if seen else 0
    return counts
