"""Delay of links in user space, for a kernel without netem.

The two ends of each host's link are TAP devices: eth0 in the host's namespace, portN in the switch's. This program
moves frames from one to the other; those from the switch to the host wait for the delay, so each way between two hosts
has it once. Frames are moved with their virtio_net header, so that one of 64 KB (TSO) stays one.

    python -m ddnn_traces.testbed delay-line DELAY_MS OFFLOAD HOST ...
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
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
#: The longest frame: 64 KB, Ethernet and virtio_net headers.
_FRAME_BYTES = 65_536 + 128
#: Bytes and frames on their way to a host at most: 1 Gbit/s for half a second.
_WAITING_BYTES, _WAITING_FRAMES = 64 << 20, 1 << 16
_QUEUED_FRAMES = "10000"
_REAL_TIME = 10


@contextlib.contextmanager
def delay_line(hosts: Sequence[str], delay_ms: float, offload: bool) -> Iterator[dict[str, Any]]:
    """Make eth0 of each host and its port of the switch, with a delay between them.

    hosts: names of their namespaces. Yields its scheduling, and at the end the frames moved, and dropped because too
    many were on their way; these are missing where it has failed. Raises TestbedError where it cannot be made.
    """
    command = [sys.executable, "-m", "ddnn_traces.testbed", "delay-line", str(delay_ms), str(int(offload)), *hosts]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise TestbedError("the delay line did not start, its message is above; without /dev/net/tun: modprobe tun")
        facts: dict[str, Any] = json.loads(line)
        try:
            yield facts
        finally:
            process.stdin.close()  # its order to end
            facts |= json.loads(process.stdout.readline() or "{}")


def main(arguments: Sequence[str]) -> None:
    """Entry point: make the devices, say so, move frames until standard input ends, print the counts."""
    delay_ms, offload, hosts = float(arguments[0]), arguments[1] == "1", arguments[2:]
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
    counts = move(np.array(ends, np.int32), np.int64(delay_ms * 1e6))
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

    @numba.njit("int64[::1](int32[::1], int64)")
    def move(ends: Any, delay_ns: Any) -> Any:
        """ends: descriptors of eth0 and port of each host in turn. Returns frames moved, and dropped for lack of
        space."""
        hosts = len(ends) // 2
        waiting = np.empty((hosts, _WAITING_BYTES), np.uint8)
        due = np.empty((hosts, _WAITING_FRAMES), np.int64)
        place = np.empty((hosts, _WAITING_FRAMES), np.int64)
        size = np.empty((hosts, _WAITING_FRAMES), np.int64)
        head, tail, free = np.zeros(hosts, np.int64), np.zeros(hosts, np.int64), np.zeros(hosts, np.int64)
        frame, cell, wait = np.empty(_FRAME_BYTES, np.uint8), np.empty(2, np.int64), np.empty(2, np.int64)
        # struct pollfd: descriptor, and the events asked for and found in one word (POLLIN is 1)
        polled = np.zeros((len(ends) + 1, 2), np.int32)
        for i in range(len(ends)):
            polled[i, 0] = ends[i]
        counts = np.zeros(2, np.int64)
        while True:
            now = now_ns(cell)
            next_due = now + 1_000_000_000
            for h in range(hosts):
                while head[h] < tail[h]:
                    slot = head[h] % _WAITING_FRAMES
                    if due[h, slot] > now:
                        next_due = min(next_due, due[h, slot])
                        break
                    sent = write(ends[2 * h], waiting[h, place[h, slot] :].ctypes.data, size[h, slot])
                    counts[0 if sent >= 0 else 1] += 1
                    head[h] += 1
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
                    if i % 2 == 0:  # from the host: on at once
                        got = read(ends[i], frame.ctypes.data, _FRAME_BYTES)
                        if got <= 0:
                            break
                        sent = write(ends[i + 1], frame.ctypes.data, got)
                        counts[0 if sent >= 0 else 1] += 1
                        continue
                    begin = free[h] if free[h] + _FRAME_BYTES <= _WAITING_BYTES else 0
                    full = tail[h] - head[h] == _WAITING_FRAMES
                    if head[h] < tail[h]:
                        oldest = place[h, head[h] % _WAITING_FRAMES]
                        full |= begin <= oldest < begin + _FRAME_BYTES
                    if full:
                        got = read(ends[i], frame.ctypes.data, _FRAME_BYTES)
                        if got <= 0:
                            break
                        counts[1] += 1
                        continue
                    got = read(ends[i], waiting[h, begin:].ctypes.data, _FRAME_BYTES)
                    if got <= 0:
                        break
                    slot = tail[h] % _WAITING_FRAMES
                    due[h, slot], place[h, slot], size[h, slot] = now + delay_ns, begin, got
                    tail[h] += 1
                    free[h] = begin + got

    return move
