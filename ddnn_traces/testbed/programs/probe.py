"""Round-trip time, loss and rate of the way between two hosts, by UDP datagrams; only the standard library.

    python -m programs.probe serve --address A                      prints its port, and answers until it is ended
    python -m programs.probe measure --to A --port P --what latency
    python -m programs.probe measure --to A --port P --what rate

What is measured is printed as a line of JSON. A datagram begins with a kind, a session and a number.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import select
import socket
import statistics
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

_HEAD = struct.Struct("!cIQ")
ECHO, COUNT, RATE, BACK, RESULT = b"e", b"c", b"r", b"b", b"q"
#: linux/udp.h: many datagrams of one size in one call, cut apart as late as possible, and joined again.
_UDP_SEGMENT, _UDP_GRO = 103, 104
_SO_RCVBUFFORCE = 33  # asm-generic/socket.h
DATAGRAM = 1448
#: Bytes of a frame on the wire for DATAGRAM bytes: Ethernet, IPv4 and UDP headers; tbf and htb count these.
FRAME = 14 + 20 + 8 + DATAGRAM
_JOINED = 40
_BUFFER = 8 << 20
ECHOES, ECHO_GAP_S = 60, 0.004
DATAGRAMS, DATAGRAM_GAP_S = 2000, 0.0002
RATE_S, RATE_WARM_S = 0.5, 0.15
#: After the last datagram was sent: what arrives later is counted as lost, and no link is so slow.
LATE_S = 0.3
#: Seconds that the last datagram may take, one way.
PATIENCE_S = 3.0
_Z = 3.8906  # of a two-sided interval of 99.99%: a run compares some 16 of them


@dataclass
class _Session:
    """What a server has counted of a session. Bytes of a rate are those after RATE_WARM_S, when buckets are empty."""

    seen: set[int] = field(default_factory=set)
    first: float = 0.0
    counted_from: float = 0.0
    last: float = 0.0
    size: int = 0

    def add(self, now: float, size: int) -> None:
        self.first = self.first or now
        if now - self.first < RATE_WARM_S:
            return
        if self.counted_from:
            self.size += size
        else:
            self.counted_from = now
        self.last = now

    def result(self) -> dict[str, float]:
        return {"datagrams": len(self.seen), "bytes": self.size, "seconds": self.last - self.counted_from}


def serve(address: str, port: int = 0) -> None:
    """Answer on a UDP port until the process is ended."""
    server = _socket(address, port)
    with contextlib.suppress(OSError):
        server.setsockopt(socket.IPPROTO_UDP, _UDP_GRO, 1)
    print(server.getsockname()[1], flush=True)
    sessions: dict[int, _Session] = {}
    while True:
        data, client = server.recvfrom(1 << 16)
        if len(data) < _HEAD.size:
            continue
        kind, number, sequence = _HEAD.unpack_from(data)
        session = sessions.setdefault(number, _Session())
        if kind == ECHO:
            server.sendto(data, client)
        elif kind == COUNT:
            # datagrams that the kernel has joined: each has a head of its own
            for begin in range(0, len(data), _HEAD.size if len(data) % _HEAD.size == 0 else len(data)):
                session.seen.add(_HEAD.unpack_from(data, begin)[2])
        elif kind == RATE:
            session.add(time.monotonic(), len(data))
        elif kind == BACK:
            _send_back(server, client, number, sequence)
        elif kind == RESULT:
            server.sendto(_HEAD.pack(RESULT, number, 0) + json.dumps(session.result()).encode(), client)


def _send_back(server: socket.socket, client: Any, session: int, count: int) -> None:
    _send_paced(lambda number: server.sendto(_HEAD.pack(COUNT, session, number), client), count)


def _socket(address: str, port: int) -> socket.socket:
    opened = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM)
    try:  # root may have more than net.core.rmem_max
        opened.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _BUFFER)
    except OSError:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)
    opened.bind((address, port))
    return opened


def _send_paced(send: Callable[[int], Any], count: int) -> None:
    """Datagrams number 0 to count - 1, one every DATAGRAM_GAP_S."""
    begin = time.monotonic()
    for number in range(count):
        wait = begin + number * DATAGRAM_GAP_S - time.monotonic()
        if wait > 0:
            time.sleep(wait)
        send(number)


class Client:
    """A session with a server."""

    def __init__(self, address: str, port: int) -> None:
        self._socket = _socket("::" if ":" in address else "0.0.0.0", 0)  # noqa: S104 (it only sends and gets answers)
        self._socket.connect((address, port))
        self._session = int.from_bytes(os.urandom(4), "big")

    def _send(self, kind: bytes, number: int, rest: bytes = b"") -> None:
        self._socket.send(_HEAD.pack(kind, self._session, number) + rest)

    def _received(self, seconds: float) -> bytes | None:
        ready, _, _ = select.select([self._socket], [], [], max(0.0, seconds))
        return self._socket.recv(1 << 16) if ready else None

    def round_trips_ms(self) -> list[float]:
        """Round-trip times of echoes that came back, ms."""
        sent: dict[int, float] = {}
        times = []
        begin = time.monotonic()
        while True:
            now = time.monotonic()
            if len(sent) < ECHOES and now >= begin + len(sent) * ECHO_GAP_S:
                sent[len(sent)] = time.monotonic()
                self._send(ECHO, len(sent) - 1)
                continue
            waits = begin + len(sent) * ECHO_GAP_S if len(sent) < ECHOES else sent[ECHOES - 1] + PATIENCE_S
            data = self._received(waits - now)
            if data:
                times.append((time.monotonic() - sent[_HEAD.unpack_from(data)[2]]) * 1e3)
            if len(times) == ECHOES or (len(sent) == ECHOES and time.monotonic() >= sent[ECHOES - 1] + PATIENCE_S):
                return times

    def result(self) -> dict[str, float]:
        """What the server has counted, asked for until it answers. Raises TimeoutError."""
        end = time.monotonic() + 4 * PATIENCE_S
        while time.monotonic() < end:
            self._send(RESULT, 0)
            data = self._received(0.5)
            while data and data[:1] != RESULT:
                data = self._received(0.5)
            if data:
                return dict(json.loads(data[_HEAD.size :]))
        raise TimeoutError("the probe's server does not answer; is UDP let through between the hosts?")

    def lost_there(self) -> int:
        """Of DATAGRAMS datagrams to the server, how many did not arrive."""
        _send_paced(lambda number: self._send(COUNT, number), DATAGRAMS)
        end = time.monotonic() + LATE_S
        while True:
            is_last = time.monotonic() >= end
            lost = DATAGRAMS - int(self.result()["datagrams"])
            if is_last or not lost:
                return lost
            time.sleep(LATE_S / 10)

    def lost_back(self) -> int:
        """Of DATAGRAMS datagrams from the server, how many did not arrive."""
        seen: set[int] = set()
        asked = 0.0
        for _ in range(10):  # the request may be lost
            self._send(BACK, DATAGRAMS)
            asked = time.monotonic()
            if (data := self._received(1.5)) and data[:1] == COUNT:
                seen.add(_HEAD.unpack_from(data)[2])
                break
        while len(seen) < DATAGRAMS and (
            data := self._received(0.5 if seen else asked + PATIENCE_S - time.monotonic())
        ):
            if data[:1] == COUNT:
                seen.add(_HEAD.unpack_from(data)[2])
        return DATAGRAMS - len(seen)

    def rate_mbit(self) -> float:
        """Rate of the way there, Mbit/s of Ethernet frames: what arrives when as much is sent as the link takes."""
        segments = _JOINED
        try:
            self._socket.setsockopt(socket.IPPROTO_UDP, _UDP_SEGMENT, DATAGRAM)
        except OSError:  # an old kernel
            segments = 1
        datagram = _HEAD.pack(RATE, self._session, 0).ljust(DATAGRAM, b"\0")
        data, end = datagram * segments, time.monotonic() + RATE_S
        while time.monotonic() < end:
            with contextlib.suppress(OSError):  # a full queue: ENOBUFS
                self._socket.send(data)
        with contextlib.suppress(OSError):
            self._socket.setsockopt(socket.IPPROTO_UDP, _UDP_SEGMENT, 0)
        counted = self.result()
        return counted["bytes"] * FRAME / DATAGRAM * 8 / counted["seconds"] / 1e6 if counted["seconds"] else 0.0


def wilson_pct(lost: int, sent: int) -> tuple[float, float]:
    """Wilson's interval of a share, 99.99%, in percent (Wilson 1927)."""
    share, z2 = lost / sent, _Z * _Z
    middle = (share + z2 / (2 * sent)) / (1 + z2 / sent)
    half = _Z * math.sqrt(share * (1 - share) / sent + z2 / (4 * sent * sent)) / (1 + z2 / sent)
    return 100 * max(0.0, middle - half), 100 * min(1.0, middle + half)


def measure(address: str, port: int, what: str) -> dict[str, Any]:
    """latency: round-trip times and loss of both directions; rate: of the way there. Raises TimeoutError."""
    client = Client(address, port)
    if what == "rate":
        return {"rate_mbit": round(client.rate_mbit(), 1)}
    times = client.round_trips_ms()
    if not times:
        raise TimeoutError("no echo came back; is UDP let through between the hosts?")
    quartiles = statistics.quantiles(times, n=4) if len(times) > 1 else times * 3
    found: dict[str, Any] = {"rtt_ms": round(quartiles[1], 3), "rtt_quartiles_ms": [round(q, 3) for q in quartiles]}
    for way, lost in (("there", client.lost_there()), ("back", client.lost_back())):
        found[f"lost_{way}"] = lost
        found[f"loss_{way}_pct"] = [round(bound, 3) for bound in wilson_pct(lost, DATAGRAMS)]
    return {**found, "datagrams": DATAGRAMS}


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="programs.probe")
    parser.add_argument("role", choices=("serve", "measure"))
    parser.add_argument("--address")
    parser.add_argument("--to")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--what", choices=("latency", "rate"), default="latency")
    given = parser.parse_args()
    if given.role == "serve":
        serve(given.address, given.port)
    try:
        print(json.dumps(measure(given.to, given.port, given.what)))
    except (TimeoutError, OSError) as error:
        raise SystemExit(f"{given.to}: {error}") from None


if __name__ == "__main__":
    main()
