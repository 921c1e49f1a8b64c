"""Delay of links in user space, for a kernel without netem.

The two ends of each host's link are TAP devices: eth0 in the host's namespace, portN in the switch's. This program
moves frames from one to the other; those from the switch to the host wait for the delay, so each way between two hosts
has it once. Frames are moved with their virtio_net header, so that one of 64 KB (TSO) stays one. Ways that a fault has
made slow wait for a longer one.

    python -m ddnn_traces.testbed delay-line DELAY_MS EXTRA_MS OFFLOAD SLOW HOST ...
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import mmap
import os
import struct
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ddnn_traces.errors import TestbedError
from ddnn_traces.testbed.network import SWITCH, call, port_of

# linux/if_tun.h
_TUNSETIFF, _TUNSETOFFLOAD = 0x400454CA, 0x400454D0
_IFF_TAP, _IFF_NO_PI, _IFF_VNET_HDR = 0x0002, 0x1000, 0x4000
_CHECKSUM, _TSO4, _TSO6 = 0x01, 0x02, 0x04
_CLONE_NEWNET = 0x40000000
#: Where a frame has the last byte of the address that sent it, behind virtio_net's header: a host's number, from 1.
_SOURCE = 10 + 11
#: The longest frame: 64 KB, Ethernet and virtio_net headers.
_FRAME_BYTES = 65_536 + 128
#: Bytes and frames on their way to a host at most: 1 Gbit/s for half a second.
_WAITING_BYTES, _WAITING_FRAMES = 64 << 20, 1 << 16
_QUEUED_FRAMES = "10000"
_REAL_TIME = 10


@contextlib.contextmanager
def delay_line(
    hosts: Sequence[str], delay_ms: float, offload: bool, extra_ms: float = 0.0
) -> Iterator[tuple[dict[str, Any], Any]]:
    """Make eth0 of each host and its port of the switch, with a delay between them.

    hosts: names of their namespaces. Yields its scheduling, and at the end the frames moved, and dropped because too
    many were on their way; these are missing where it has failed. Beside it slow[to, from], by the hosts' places: ways
    in which it is set to 1 have extra_ms more. Raises TestbedError where it cannot be made.
    """
    shared = os.memfd_create("slow")
    os.ftruncate(shared, len(hosts) ** 2)
    words = [str(delay_ms), str(extra_ms), str(int(offload)), str(shared), *hosts]
    command = [sys.executable, "-m", "ddnn_traces.testbed", "delay-line", *words]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "pass_fds": (shared,)}
    with subprocess.Popen(command, **pipes, text=True) as process:  # type: ignore[call-overload]
        slow = _ways(shared, len(hosts))
        assert process.stdin is not None and process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise TestbedError("the delay line did not start, its message is above; without /dev/net/tun: modprobe tun")
        facts: dict[str, Any] = json.loads(line)
        try:
            yield facts, slow
        finally:
            process.stdin.close()  # its order to end
            facts |= json.loads(process.stdout.readline() or "{}")


def _ways(shared: int, hosts: int) -> Any:
    """What ways are slow, in memory of both processes; its descriptor is closed."""
    ways = np.frombuffer(mmap.mmap(shared, hosts**2), np.uint8).reshape(hosts, hosts)
    os.close(shared)
    return ways


def main(arguments: Sequence[str]) -> None:
    """Entry point: make the devices, say so, move frames until standard input ends, print the counts."""
    delays_ns = np.array([float(arguments[0]), float(arguments[0]) + float(arguments[1])]) * 1e6
    offload, hosts = arguments[2] == "1", arguments[4:]
    slow = _ways(int(arguments[3]), len(hosts))
    here = os.open("/proc/self/ns/net", os.O_RDONLY)
    ends = []
    for number, host in enumerate(hosts):
        ends += [_tap(host, "eth0", offload), _tap(SWITCH, port_of(number), offload)]
    _enter(here)
    for number, host in enumerate(hosts):
        mac = f"02:00:00:00:00:{number + 1:02x}"
        call("ip", "-n", host, "link", "set", "eth0", "address", mac, "txqueuelen", _QUEUED_FRAMES)
        call("ip", "-n", SWITCH, "link", "set", port_of(number), "txqueuelen", _QUEUED_FRAMES)
    move = _compiled()
    scheduling = _real_time()
    print(json.dumps({"scheduling": scheduling}), flush=True)
    counts = move(np.array(ends, np.int32), delays_ns.astype(np.int64), slow)
    with contextlib.suppress(BrokenPipeError):  # the one who asked may have been killed
        print(json.dumps({"moved": int(counts[0]), "dropped": int(counts[1])}), flush=True)


def _real_time() -> str:
    """Take a real-time priority, without which a busy machine adds milliseconds; says what it has."""
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(_REAL_TIME))
    except PermissionError:
        return "without real-time priority"
    return f"real-time priority {_REAL_TIME}"


def _enter(namespace: int) -> None:
    """Move this process to a network namespace."""
    if ctypes.CDLL(None, use_errno=True).setns(namespace, _CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "setns")


def _tap(namespace: str, name: str, offload: bool) -> int:
    """A new TAP device in a namespace; its descriptor does not block."""
    place = os.open(f"/run/netns/{namespace}", os.O_RDONLY)
    _enter(place)
    os.close(place)
    tap = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(tap, _TUNSETIFF, struct.pack("16sH22x", name.encode(), _IFF_TAP | _IFF_NO_PI | _IFF_VNET_HDR))
    fcntl.ioctl(tap, _TUNSETOFFLOAD, _CHECKSUM | (_TSO4 | _TSO6 if offload else 0))
    return tap


def _compiled() -> Any:
    """The loop, compiled: in Python it would take a core for 1 Gbit/s of 1,500-byte frames."""
    import numba

    libc = ctypes.CDLL(None)
    read, write, poll, clock = libc.read, libc.write, libc.ppoll, libc.clock_gettime
    pointer, number = ctypes.c_void_p, ctypes.c_long
    for function, arguments, result in (
        (read, (ctypes.c_int, pointer, number), number),
        (write, (ctypes.c_int, pointer, number), number),
        (poll, (pointer, number, pointer, pointer), ctypes.c_int),
        (clock, (ctypes.c_int, pointer), ctypes.c_int),
    ):
        function.argtypes, function.restype = arguments, result

    @numba.njit("int64(int64[::1])")
    def now_ns(cell: Any) -> Any:
        clock(1, cell.ctypes.data)  # CLOCK_MONOTONIC
        return cell[0] * 1_000_000_000 + cell[1]

    @numba.njit("int64[::1](int32[::1], int64[::1], uint8[:, ::1])")
    def move(ends: Any, delays_ns: Any, slow: Any) -> Any:
        """ends: descriptors of eth0 and port of each host in turn; delays_ns: of a way, and of a slow one. Returns
        frames moved, and dropped for lack of space. Each host has a queue of each delay, whose frames are due in order.
        """
        hosts = len(ends) // 2
        kinds = 2 if delays_ns[1] > delays_ns[0] else 1
        queues = hosts * kinds
        waiting = np.empty((queues, _WAITING_BYTES), np.uint8)
        due = np.empty((queues, _WAITING_FRAMES), np.int64)
        place = np.empty((queues, _WAITING_FRAMES), np.int64)
        size = np.empty((queues, _WAITING_FRAMES), np.int64)
        head, tail, free = np.zeros(queues, np.int64), np.zeros(queues, np.int64), np.zeros(queues, np.int64)
        frame, cell, wait = np.empty(_FRAME_BYTES, np.uint8), np.empty(2, np.int64), np.empty(2, np.int64)
        # struct pollfd: descriptor, and the events asked for and found in one word (POLLIN is 1)
        polled = np.zeros((len(ends) + 1, 2), np.int32)
        for i in range(len(ends)):
            polled[i, 0] = ends[i]
        counts = np.zeros(2, np.int64)
        while True:
            now = now_ns(cell)
            next_due = now + 1_000_000_000
            for q in range(queues):
                while head[q] < tail[q]:
                    slot = head[q] % _WAITING_FRAMES
                    if due[q, slot] > now:
                        next_due = min(next_due, due[q, slot])
                        break
                    sent = write(ends[2 * (q // kinds)], waiting[q, place[q, slot] :].ctypes.data, size[q, slot])
                    counts[0 if sent >= 0 else 1] += 1
                    head[q] += 1
            wait[0], wait[1] = (next_due - now) // 1_000_000_000, (next_due - now) % 1_000_000_000
            for i in range(len(ends) + 1):
                polled[i, 1] = 1
            poll(polled.ctypes.data, len(ends) + 1, wait.ctypes.data, 0)
            if polled[len(ends), 1] >> 16:  # standard input has ended
                return counts
            now = now_ns(cell)
            for i in range(len(ends)):
                if not polled[i, 1] >> 16:
                    continue
                h = i // 2
                for _ in range(64):
                    got = read(ends[i], frame.ctypes.data, _FRAME_BYTES)
                    if got <= 0:
                        break
                    if i % 2 == 0:  # from the host: on at once
                        sent = write(ends[i + 1], frame.ctypes.data, got)
                        counts[0 if sent >= 0 else 1] += 1
                        continue
                    source = np.int64(frame[_SOURCE]) - 1
                    kind = int(slow[h, source]) if kinds == 2 and 0 <= source < hosts else 0
                    q = h * kinds + kind
                    begin = free[q] if free[q] + _FRAME_BYTES <= _WAITING_BYTES else 0
                    full = tail[q] - head[q] == _WAITING_FRAMES
                    if head[q] < tail[q]:
                        oldest = place[q, head[q] % _WAITING_FRAMES]
                        full |= begin <= oldest < begin + _FRAME_BYTES
                    if full:
                        counts[1] += 1
                        continue
                    waiting[q, begin : begin + got] = frame[:got]
                    slot = tail[q] % _WAITING_FRAMES
                    due[q, slot], place[q, slot], size[q, slot] = now + delays_ns[kind], begin, got
                    tail[q] += 1
                    free[q] = begin + got

    return move
