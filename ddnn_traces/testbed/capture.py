"""tcpdump on every host's interface while a run trains, and what it counted."""

from __future__ import annotations

import contextlib
import os
import re
import select
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from ddnn_traces.errors import TestbedError
from ddnn_traces.testbed.hosts import Host, last_lines
from ddnn_traces.testbed.matrix import Capturing

#: The kernel's buffer of a capture, KiB: half a second of 1 Gbit/s whole.
_BUFFER_KIB = 65_536
#: tcpdump answers SIGUSR1 by these counts.
_COUNTS = re.compile(r"(\d+) packets? captured\D+(\d+) packets? received by filter\D+(\d+) packets? dropped by kernel")
_ANSWER_S = 20.0
_NOTHING = re.compile("(?!)")


@dataclass
class Capture:
    """A running tcpdump: its command on the host, what it said, and after the end its counts."""

    host: Host
    command: list[str]
    process: subprocess.Popen[bytes]
    said: str = ""
    counts: dict[str, int] = field(default_factory=dict)
    complete: bool = False

    def wait_for(self, pattern: re.Pattern[str]) -> re.Match[str]:
        """Read what it says until the pattern is found after what was read before. Raises TestbedError."""
        begin, end = len(self.said), time.monotonic() + _ANSWER_S
        while not (found := pattern.search(self.said, begin)):
            assert self.process.stderr is not None
            ready, _, _ = select.select([self.process.stderr], [], [], max(0, end - time.monotonic()))
            data = os.read(self.process.stderr.fileno(), 1 << 16) if ready else b""
            if not data:
                what = last_lines(self.said[begin:] or self.said) or "it says nothing"
                raise TestbedError(f"{self.host.label}: tcpdump does not answer ({what}){_hint(what)}")
            self.said += data.decode(errors="replace")
        return found

    def signal(self, name: str) -> None:
        """Send a signal to the tcpdump on the host. Raises BrokenPipeError where it has ended."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{name}\n".encode())

    def settle(self) -> None:
        """Return when tcpdump has written every packet that the kernel took for it; `complete` tells whether it has.

        Raises TestbedError where it has ended.
        """
        end = time.monotonic() + _ANSWER_S
        while time.monotonic() < end:
            with contextlib.suppress(BrokenPipeError):  # then it answers nothing, and is named
                self.signal("USR1")
            self._take(self.wait_for(_COUNTS))
            if self.complete:
                return

    def _take(self, found: re.Match[str]) -> None:
        captured, received, dropped = map(int, found.groups())
        self.counts = {"captured": captured, "received_by_filter": received, "dropped_by_kernel": dropped}
        self.complete = captured + dropped >= received

    def end(self) -> None:
        """Let it end, and take its last counts. One that outlives its agent is not waited for."""
        with contextlib.suppress(OSError):
            self.signal("INT")
        with contextlib.suppress(TestbedError):  # raised at the end of what it says, or when it takes too long
            self.wait_for(_NOTHING)
        self.process.kill()
        for last in list(_COUNTS.finditer(self.said))[-1:]:
            self._take(last)


def _hint(what: str) -> str:
    if "ermission" in what or "not permitted" in what:
        return (
            '; let it capture: sudo setcap cap_net_raw=eip "$(command -v tcpdump)" on that host, or on a copy that '
            "tcpdump in [[hosts]] names"
        )
    return "; try the command by hand"


def words(host: Host, capturing: Capturing) -> list[str]:
    """tcpdump's command line on a host."""
    mac = host.output("cat", f"/sys/class/net/{host.interface}/address")
    filters = [f"ether src {mac}"] if capturing.direction == "out" else []
    filters += ["not tcp port 22"] if host.remote else []  # the testbed's own ssh
    target = f"{host.folder}/{host.label}-tcpdump.pcap"
    root = [] if host.remote else ["-Z", "root"]
    return [
        *host.tcpdump, "-i", host.interface, "-n", "-s", str(capturing.snaplen), "-B", str(_BUFFER_KIB),
        "--immediate-mode", "-U", "--time-stamp-precision=nano", *root, "-w", target,
        *([" and ".join(filters)] if filters else []),
    ]  # fmt: skip


@contextlib.contextmanager
def captures(hosts: list[Host], capturing: Capturing) -> Iterator[list[Capture]]:
    """tcpdump on every host, from before the body until all packets of the body are in the files.

    Raises TestbedError where one does not start.
    """
    with contextlib.ExitStack() as undo:
        running = [undo.enter_context(_capture(host, capturing)) for host in hosts]
        yield running
        for capture in running:
            capture.settle()


@contextlib.contextmanager
def _capture(host: Host, capturing: Capturing) -> Iterator[Capture]:
    command = words(host, capturing)
    # without buffers, a write to one that has ended fails once, and not again when it is closed
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "bufsize": 0}
    with subprocess.Popen(host.attended(command), **pipes) as process:  # type: ignore[call-overload]
        capture = Capture(host, command, process)
        try:
            capture.wait_for(re.compile("listening on"))
            yield capture
        finally:
            capture.end()
