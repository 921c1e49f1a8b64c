"""Traffic that is no training's, between hosts; only the standard library.

    python -m programs.background sink --address A [--port P]         prints its port, and takes TCP and UDP there
    python -m programs.background constant --to A --port P --mbit R [--protocol udp|tcp]
    python -m programs.background replay --flows FILE                 lines start_s,address,port,bytes; TCP
    python -m programs.background bursts --to A --port P              TCP, at the same moments as others'

With --hold a source says "ready", and begins at SIGUSR1; bursts always do.

A source prints "begun". Each ends on SIGTERM, replay also after its last flow, and then prints what it has really sent
or received as a line of JSON. All packets of it have a sink's port. Rates and sizes are of payload.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import errno
import json
import math
import os
import select
import selectors
import signal
import socket
import struct
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

DATAGRAM = 1448
COLUMNS = ["start_s", "src", "dst", "bytes"]
_TICK_S = 0.001
#: A source that could not send for longer does not make up for it.
_DEBT_S = 0.1
_PIECE = bytes(1 << 16)
#: Bytes that wait in a socket at most, so that little is on its way when a source is ended.
_UNSENT_BYTES = 1 << 17
#: Seconds that transfers under way have to end after SIGTERM.
_PATIENCE_S = 3.0
#: Of bursts: one at each multiple of this time of the host's clock, and its bytes.
BURST_PERIOD_S, BURST = 0.1, 1 << 19


@dataclass(frozen=True)
class Flow:
    """A transfer of a flow list; start_s: seconds since the beginning."""

    start_s: float
    src: str
    dst: str
    size: int


def read_flows(lines: Iterable[str]) -> list[Flow]:
    """Flows of a list with the header start_s,src,dst,bytes. Raises ValueError, which names the line."""
    rows = csv.reader(lines)
    if next(rows, None) != COLUMNS:
        raise ValueError(f"line 1: the header is not {','.join(COLUMNS)}")
    return [_flow(number, row) for number, row in enumerate(rows, 2)]


def _flow(number: int, row: Sequence[str]) -> Flow:
    try:
        start_s, src, dst, size = row
        flow = Flow(float(start_s), src, dst, int(size))
    except ValueError:
        raise ValueError(f"line {number}: {','.join(row)} is not {','.join(COLUMNS)}") from None
    if not (0 <= flow.start_s < 1e9 and flow.size > 0 and src != dst):
        raise ValueError(f"line {number}: a start of 0 or later, two hosts and 1 byte or more are needed")
    return flow


class _Loop:
    """A selector that SIGTERM ends."""

    def __init__(self) -> None:
        self.selector = selectors.DefaultSelector()
        self.ended = False
        woken, waker = socket.socketpair()
        for end in (woken, waker):
            end.setblocking(False)
        self._kept = (woken, waker)
        signal.set_wakeup_fd(waker.fileno())
        signal.signal(signal.SIGTERM, lambda *_: None)
        self.selector.register(woken, selectors.EVENT_READ)

    def hold(self) -> None:
        """Return at SIGUSR1, or at SIGTERM."""
        signal.signal(signal.SIGUSR1, lambda *_: None)
        print("ready", flush=True)
        self.selector.select()
        self.ended = signal.SIGTERM in self._kept[0].recv(64)

    def ready(self, timeout_s: float | None) -> list[Any]:
        """Sockets that can be read from or written to."""
        found = [key.fileobj for key, _ in self.selector.select(timeout_s)]
        if self._kept[0] in found:
            self.ended = True
            self._kept[0].recv(64)
        return [ready for ready in found if ready is not self._kept[0]]


def sink(address: str, port: int) -> dict[str, int]:
    """Take what comes, until SIGTERM."""
    loop = _Loop()
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    listener = socket.create_server((address, port), family=family, backlog=1024)
    datagrams = socket.socket(family, socket.SOCK_DGRAM)
    datagrams.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
    datagrams.bind((address, listener.getsockname()[1]))
    for opened in (listener, datagrams):
        opened.setblocking(False)
        loop.selector.register(opened, selectors.EVENT_READ)
    print(listener.getsockname()[1], flush=True)
    counts = {"tcp_bytes": 0, "connections": 0, "udp_bytes": 0, "datagrams": 0}
    buffer = bytearray(1 << 20)
    while not loop.ended:
        for ready in loop.ready(None):
            with contextlib.suppress(BlockingIOError):
                if ready is listener:
                    connection = listener.accept()[0]
                    connection.setblocking(False)
                    loop.selector.register(connection, selectors.EVENT_READ)
                    counts["connections"] += 1
                elif ready is datagrams:
                    counts["udp_bytes"] += ready.recv_into(buffer)
                    counts["datagrams"] += 1
                else:
                    counts["tcp_bytes"] += _received(loop, ready, buffer)
    return counts


def _received(loop: _Loop, connection: socket.socket, buffer: bytearray) -> int:
    try:
        size = connection.recv_into(buffer)
    except ConnectionResetError:  # a source that was ended
        size = 0
    if not size:
        loop.selector.unregister(connection)
        connection.close()
    return size


def constant(address: str, port: int, mbit: float, protocol: str, hold: bool = False) -> dict[str, Any]:
    """Send at a rate until SIGTERM; hold: from SIGUSR1 on."""
    loop = _Loop()
    kind = socket.SOCK_STREAM if protocol == "tcp" else socket.SOCK_DGRAM
    rate = mbit * 1e6 / 8
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, kind) as opened:
        if protocol == "tcp":
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, _UNSENT_BYTES)
        opened.connect((address, port))
        opened.setblocking(False)
        if hold:
            loop.hold()
        else:
            print("begun", flush=True)
        begin_ns, begin, sent, given_up = time.time_ns(), time.monotonic(), 0, 0.0
        while not loop.ended:
            loop.ready(_TICK_S)
            due = (time.monotonic() - begin) * rate - sent - given_up
            given_up += max(0.0, due - max(rate * _DEBT_S, DATAGRAM))
            sent += _send_at_most(opened, int(min(due, max(rate * _DEBT_S, DATAGRAM))), protocol)
        took = time.monotonic() - begin
        if protocol == "tcp":
            _finish(opened)
    return {"begin_ns": begin_ns, "bytes": sent, "mbit": round(sent * 8 / took / 1e6, 3), "seconds": round(took, 9)}


def bursts(address: str, port: int) -> dict[str, Any]:
    """Send a burst at each multiple of the period, from SIGUSR1 until SIGTERM, as far as there is time for it."""
    loop = _Loop()
    with socket.create_connection((address, port)) as opened:
        opened.setblocking(False)
        loop.hold()
        sent = count = 0
        while not loop.ended:
            loop.ready(BURST_PERIOD_S - time.time() % BURST_PERIOD_S)
            count += not loop.ended
            left = BURST
            end = time.time() + BURST_PERIOD_S / 2
            while left and not loop.ended and time.time() < end:
                select.select([], [opened], [], BURST_PERIOD_S / 2)
                left -= _send_at_most(opened, min(left, len(_PIECE)), "tcp")
            sent += BURST - left
        _finish(opened)
    return {"bursts": count, "bytes": sent}


def _send_at_most(opened: socket.socket, size: int, protocol: str) -> int:
    """Send whole datagrams, or a part of a stream, as far as the socket takes them. Returns the bytes."""
    sent = 0
    try:
        while size - sent >= (DATAGRAM if protocol == "udp" else 1):
            piece = DATAGRAM if protocol == "udp" else min(size - sent, len(_PIECE))
            sent += opened.send(memoryview(_PIECE)[:piece])
    except OSError as error:
        if error.errno not in (errno.EAGAIN, errno.ENOBUFS):
            raise
    return sent


def _finish(connection: socket.socket) -> None:
    """Wait until the other end has all. What it does not take in time is thrown away, so that nothing is sent later."""
    connection.settimeout(_PATIENCE_S)
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_WR)
        if connection.recv(1) == b"":
            return
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def replay(flows: Sequence[tuple[float, str, int, int]]) -> dict[str, Any]:
    """Send flows (start_s, address, port, bytes), each by a TCP connection of its own, which begins at its time.

    After SIGTERM none begins.
    """
    loop = _Loop()
    waiting = sorted(flows, reverse=True)
    left: dict[socket.socket, int] = {}
    counts = {"begin_ns": time.time_ns(), "flows": len(flows), "begun": 0, "finished": 0, "bytes": 0}
    begin, latest, end = time.monotonic(), 0.0, math.inf
    print("begun", flush=True)
    while (waiting or left) and time.monotonic() < end:
        now = time.monotonic() - begin
        while waiting and waiting[-1][0] <= now:
            start_s, address, port, size = waiting.pop()
            left[_connecting(loop, address, port)] = size
            counts["begun"] += 1
            latest = max(latest, now - start_s)
        until = min(end, waiting[-1][0] + begin if waiting else math.inf)
        for ready in loop.ready(None if until == math.inf else max(0.0, until - time.monotonic())):
            if left[ready]:
                counts["bytes"] += _send_on(loop, ready, left)
            elif ready.recv(1) == b"":  # the sink has all
                counts["finished"] += 1
                _forget(loop, ready, left)
        if loop.ended:
            waiting.clear()
            end = min(end, time.monotonic() + _PATIENCE_S)
    for connection in tuple(left):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        _forget(loop, connection, left)
    return {**counts, "latest_start_ms": round(latest * 1e3, 3)}


def _connecting(loop: _Loop, address: str, port: int) -> socket.socket:
    opened = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, _UNSENT_BYTES)
    opened.setblocking(False)
    failed = opened.connect_ex((address, port))
    if failed not in (0, errno.EINPROGRESS):
        raise OSError(failed, f"{address}: {os.strerror(failed)}")
    loop.selector.register(opened, selectors.EVENT_WRITE)
    return opened


def _send_on(loop: _Loop, connection: socket.socket, left: dict[socket.socket, int]) -> int:
    """Send what the connection takes of what is left of its flow. Returns the bytes."""
    if failed := connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
        raise OSError(failed, os.strerror(failed))
    sent = _send_at_most(connection, min(left[connection], len(_PIECE)), "tcp")
    left[connection] -= sent
    if not left[connection]:
        connection.shutdown(socket.SHUT_WR)
        loop.selector.modify(connection, selectors.EVENT_READ)
    return sent


def _forget(loop: _Loop, connection: socket.socket, left: dict[socket.socket, int]) -> None:
    loop.selector.unregister(connection)
    del left[connection]
    connection.close()


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="programs.background")
    parser.add_argument("role", choices=("sink", "constant", "replay", "bursts"))
    parser.add_argument("--address")
    parser.add_argument("--to")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--mbit", type=float, default=100.0)
    parser.add_argument("--protocol", choices=("udp", "tcp"), default="udp")
    parser.add_argument("--flows")
    parser.add_argument("--hold", action="store_true")
    given = parser.parse_args()
    try:
        if given.role == "sink":
            done: dict[str, Any] = sink(given.address, given.port)
        elif given.role == "constant":
            done = constant(given.to, given.port, given.mbit, given.protocol, given.hold)
        elif given.role == "bursts":
            done = bursts(given.to, given.port)
        else:
            with open(given.flows) as file:  # noqa: PTH123 (a name from a command line)
                done = replay([(float(s), a, int(p), int(b)) for s, a, p, b in csv.reader(file)])
    except OSError as error:
        sys.exit(f"background traffic ({given.role}): {error}; is TCP and UDP let through between the hosts?")
    print(json.dumps(done), flush=True)


if __name__ == "__main__":
    main()
