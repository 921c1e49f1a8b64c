"""A reader of run folders that shares no code with the package: struct and numpy, for tests that compute results anew.

It reads what tests/traces/runs and the full captures are: little-endian pcap files of Ethernet or SLL2, TCP over IPv4,
at least the first 54 bytes of each frame; training logs and phases. Whatever else is in a file is an error, except ARP.
The rules are those of schemas/: sizes are from original lengths, a packet counts at its sender, and a step is
[start, end) by the log of the host that the packet was captured at, else by the run's first log.
"""

from __future__ import annotations

import csv
import gzip
import lzma
import re
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

#: A packet. time: ns since the epoch. src, dst: IPv4 address as a number. wire, payload: bytes. sequence: of TCP.
PACKET = np.dtype([
    ("time", "i8"), ("src", "u4"), ("dst", "u4"), ("src_port", "u2"), ("dst_port", "u2"), ("wire", "i8"),
    ("payload", "i8"), ("sequence", "u4"), ("flags", "u1"),
])  # fmt: skip
#: What names a flow.
FLOW = ["src", "dst", "src_port", "dst_port"]

_TICK_NS = {0xA1B2C3D4: 1000, 0xA1B23C4D: 1}
_LINKS = {1: (14, 12), 276: (20, 0)}  # pcap's link type: length of the header, place of the protocol in it
_IPV4, _ARP = 0x0800, 0x0806


@dataclass(frozen=True)
class Log:
    """The steps of a worker: start and end of each, ns. phases: start, start and end of communication, end, ns, a row
    a step, without rows where the program did not write them."""

    begins: Array
    ends: Array
    phases: Array


@dataclass(frozen=True)
class Run:
    """A run's packets (PACKET), ordered by sender and then as in its file; step: number of the step of each, -1 before
    the first and `after` after the last. logs: by worker. hosts: address of each worker that has a capture."""

    packets: Array
    step: Array
    logs: dict[str, Log]
    hosts: dict[str, int]

    @property
    def steps(self) -> int:
        """Number of different steps in the logs: they count from 0 in each."""
        return max(len(log.ends) for log in self.logs.values())

    @property
    def first_log(self) -> Log:
        return self.logs[min(self.logs)]

    def log_at(self, host: int) -> Log | None:
        """The log of the worker at an address."""
        return next((self.logs.get(label) for label, ip in self.hosts.items() if ip == host), None)

    @property
    def in_steps(self) -> Array:
        """Whether each packet is in a step."""
        return (self.step >= 0) & (self.step < AFTER)


AFTER = 2**31  # step of packets after the last one


def address(text: str) -> int:
    """An IPv4 address as a number."""
    return int.from_bytes(bytes(map(int, text.split("."))), "big")


def text(number: int) -> str:
    """An IPv4 address as text."""
    return ".".join(map(str, int(number).to_bytes(4, "big")))


def read_run(folder: Path) -> Run:
    captures = {path.name.split("-tcpdump")[0]: read_capture(path) for path in sorted(folder.glob("*.pcap*"))}
    hosts = {label: _captured_at(packets) for label, packets in captures.items()}
    assert len(set(hosts.values())) == len(hosts)
    logs = {path.stem.removeprefix("train_history-"): _read_log(path) for path in folder.glob("train_history-*.log")}
    first = logs[min(logs)]
    packets, steps = [], []
    for label, found in captures.items():
        assert set(found["src"].tolist()) <= set(hosts.values())  # so that each packet is kept once
        own = found[found["src"] == hosts[label]]
        packets.append(own)
        steps.append(_steps_of(own["time"], logs.get(label, first)))
    return Run(np.concatenate(packets), np.concatenate(steps), logs, hosts)


def read_capture(path: Path) -> Array:
    """The TCP packets of a file, as PACKET, in the file's order."""
    whole = {".gz": gzip.decompress, ".xz": lzma.decompress}.get(path.suffix, bytes)
    data = whole(path.read_bytes())
    magic, _, _, _, _, _, link = struct.unpack_from("<IHHiIII", data)
    header, protocol = _LINKS[link]
    at, records = 24, []
    while at < len(data):
        seconds, ticks, captured, wire = struct.unpack_from("<IIII", data, at)
        (kind,) = struct.unpack_from(">H", data, at + 16 + protocol)
        if kind != _ARP:
            assert kind == _IPV4 and captured >= header + 40
            records.append((seconds * 10**9 + ticks * _TICK_NS[magic], at + 16 + header, wire))
        at += 16 + captured
    assert at == len(data)
    return _headers(np.frombuffer(data, np.uint8), *np.array(records, np.int64).T, header)


def repeated_bytes(packets: Array) -> Array:
    """How many payload bytes of each packet were captured before on its connection, by sequence numbers."""
    repeated = np.zeros(len(packets), np.int64)
    for flow in np.unique(packets[FLOW]):
        (places,) = np.nonzero((packets[FLOW] == flow) & (packets["payload"] > 0))
        own = packets[places]
        begins = (own["sequence"].astype(np.int64) - int(own["sequence"][:1].sum()) + 2**31) % 2**32 - 2**31
        seen: list[tuple[int, int]] = []  # intervals of sequence numbers, apart
        for place, begin, end in zip(places, begins.tolist(), (begins + own["payload"]).tolist(), strict=True):
            repeated[place] = sum(max(0, min(end, b) - max(begin, a)) for a, b in seen)
            touching = [(a, b) for a, b in seen if a <= end and b >= begin]
            seen = [each for each in seen if each not in touching]
            seen.append((min([begin, *(a for a, _ in touching)]), max([end, *(b for _, b in touching)])))
    return repeated


def _headers(octets: Array, times: Array, ip: Array, wire: Array, link_header: int) -> Array:
    """The packets whose IPv4 headers are at the offsets `ip`."""

    def number(at: Array, size: int) -> Array:
        return sum(octets[at + i].astype(np.int64) << 8 * (size - 1 - i) for i in range(size))  # type: ignore[return-value]

    ip_header = (octets[ip] & 15).astype(np.int64) * 4
    assert (octets[ip] >> 4 == 4).all() and (octets[ip + 9] == 6).all() and (number(ip + 6, 2) & 0x3FFF == 0).all()
    length = number(ip + 2, 2)
    length = np.where(length == 0, wire - link_header, length)  # segmentation offload beyond 65,535 bytes
    tcp = ip + ip_header
    packets = np.empty(len(ip), PACKET)
    packets["time"], packets["wire"] = times, wire
    packets["src"], packets["dst"] = number(ip + 12, 4), number(ip + 16, 4)
    packets["src_port"], packets["dst_port"] = number(tcp, 2), number(tcp + 2, 2)
    packets["sequence"], packets["flags"] = number(tcp + 4, 4), octets[tcp + 13]
    packets["payload"] = length - ip_header - (octets[tcp + 12] >> 4).astype(np.int64) * 4
    return packets


def _captured_at(packets: Array) -> int:
    """The one address that every packet of a file is sent from, else sent from or to."""
    senders = np.unique(packets["src"])
    shared = [one for one in senders if ((packets["src"] == one) | (packets["dst"] == one)).all()]
    (host,) = senders if len(senders) == 1 else shared
    return int(host)


def _nanoseconds(seconds: str) -> int:
    whole, _, fraction = seconds.partition(".")
    return int(whole) * 10**9 + int(fraction.ljust(9, "0"))


def _read_log(path: Path) -> Log:
    lines = [line.split(",") for line in path.read_text().splitlines()]
    ends = [_nanoseconds(line[2]) for line in lines if re.fullmatch("batch", line[0], re.IGNORECASE)]
    phases = []
    with path.with_name(path.name.replace("train_history", "phases")).with_suffix(".csv").open() as file:
        for row in csv.DictReader(file):
            phases.append([_nanoseconds(row[name]) for name in ("t_begin", "t_comm_begin", "t_comm_end", "t_end")])
    return Log(np.array([phases[0][0], *ends[:-1]]), np.array(ends), np.array(phases))


def _steps_of(times: Array, log: Log) -> Array:
    step = np.searchsorted(np.maximum.accumulate(log.ends), times, side="right")
    return np.where(times < log.begins[0], -1, np.where(step == len(log.ends), AFTER, step))
