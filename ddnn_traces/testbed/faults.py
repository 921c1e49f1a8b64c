"""Faults that slow a run without killing: made at one host or on its link, from one step of the training to another.

Programs sleep by themselves (programs/slowness.py), in exactly the steps that were asked for. All else begins and ends
when a log has the steps before it, which is looked for every 10 ms. Truth, for run.toml: `truth`, and what was done
when. docs/testbed.md explains each kind.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from ddnn_traces.errors import TestbedError
from ddnn_traces.testbed.conditions import APART, part_of_rate, shaping
from ddnn_traces.testbed.hosts import Host, most_steps
from ddnn_traces.testbed.matrix import FAULTS, SLEEPS, Fault, Link, Run
from ddnn_traces.testbed.network import SWITCH, call, port_of
from ddnn_traces.testbed.side_traffic import held

#: An action that ends what it began when it is left.
Action = Callable[[], contextlib.AbstractContextManager[None]]
_IN_A_MILLION = 10_000  # of a percent
_PERIOD_US = 20_000  # of a CPU quota
_CPU = Path("/sys/fs/cgroup/cpu")
_GROUP = "ddnn-traces-testbed."


@dataclass
class Watch:
    """Begins and ends a fault by the steps that are done. facts: for run.toml."""

    fault: Fault
    hosts: Sequence[Host]
    action: Action
    undo: contextlib.ExitStack
    prefix: list[str]
    facts: dict[str, Any] = field(default_factory=dict)

    def begin(self) -> None:
        """Begin it now."""
        self.undo.enter_context(self.action())
        self.facts |= {"began_s": time.time(), "began_after_steps": most_steps(self.hosts)[1]}

    def look(self) -> None:
        """Begin or end, where it is time to."""
        if "ended_s" in self.facts:
            return
        _, steps = most_steps(self.hosts)
        if "began_s" not in self.facts:
            if steps >= (self.fault.from_step or 0):
                self.begin()
        elif self.fault.to_step is not None and steps > self.fault.to_step:
            self.undo.close()
            self.facts |= {"ended_s": time.time(), "ended_after_steps": steps}


@contextlib.contextmanager
def watched(run: Run, hosts: Sequence[Host], slow: Any) -> Iterator[Watch | None]:
    """What makes the run's fault, begun where it lasts from before the first step; None where there is none.

    hosts: also bystanders. slow: ways of the delay line. Raises TestbedError.
    """
    fault = run.fault
    if fault is None:
        yield None
        return
    with contextlib.ExitStack() as outer:
        prefix: list[str] = []
        sent: dict[str, Any] = {}
        if fault.kind == "cpu_quota":
            group = outer.enter_context(_group())
            prefix = ["sh", "-c", f'echo 0 > {group}/tasks; exec "$@"', "sh"]
            action: Action = partial(_quota, group, fault.strength)
        elif fault.kind in ("background", "incast"):
            signal = outer.enter_context(_traffic(run, fault, hosts, sent))
            action = partial(_sending, signal)
        else:
            action = _action(run, fault, hosts, slow)
        with contextlib.ExitStack() as undo:
            watch = Watch(fault, hosts, action, undo, prefix)
            if not fault.from_step:
                watch.begin()
            yield watch
    watch.facts |= {"sent": sent} if sent else {}


def truth(run: Run) -> dict[str, Any]:
    """Columns of `runs` that say what was made slow; without a fault, that nothing was."""
    if run.kill or run.background:
        return {}
    fault = run.fault
    if fault is None:
        return {"fault_kind": "none"}
    steps = run.jobs[0].steps
    last = 0 if fault.kind == "late_start" else steps - 1 if fault.to_step is None else fault.to_step
    return {
        "fault_kind": fault.diagnosis, "fault_host": fault.host, "fault_peer": fault.peer,
        "fault_strength": fault.strength, "fault_from_step": fault.from_step or 0, "fault_to_step": last,
    }  # fmt: skip


def origin(watch: Watch | None) -> dict[str, Any] | None:
    """What was asked for, and when it was made."""
    if watch is None:
        return None
    return {"asked_for": asdict(watch.fault), "unit": FAULTS[watch.fault.kind][1], **watch.facts}


def sleeping(fault: Fault | None, host: Host) -> dict[str, str]:
    """Environment of a program on the host that sleeps."""
    if fault is None or fault.kind not in SLEEPS or fault.host != host.label:
        return {}
    to_step = -1 if fault.to_step is None else fault.to_step
    return {"SLOWED": f"{fault.kind} {fault.strength:g} {fault.from_step or 0} {to_step} {fault.every}"}


def _action(run: Run, fault: Fault, hosts: Sequence[Host], slow: Any) -> Action:
    if fault.kind in SLEEPS:
        return contextlib.nullcontext  # the program does it
    by_label = {host.label: place for place, host in enumerate(hosts)}
    place = by_label[fault.host]
    host, peer = hosts[place], None if fault.peer is None else hosts[by_label[fault.peer]]
    ways = _ways(fault, place, range(len(run.labels)) if peer is None else [by_label[peer.label]])
    match fault.kind:
        case "delay":
            return lambda: _delayed(ways, slow)
        case "loss":
            return lambda: _dropped([(hosts[source], hosts[to]) for source, to in ways], fault.strength)
        case "slow_link" if peer is None:
            return lambda: _slow_link(run, fault, place, host)
        case "slow_link":
            return lambda: _slow_pair([hosts[source] for source, _ in ways], run, fault.strength)
    return lambda: _small_buffer(host, fault.strength)


def _traffic(
    run: Run, fault: Fault, hosts: Sequence[Host], sent: dict[str, Any]
) -> contextlib.AbstractContextManager[Callable[[str], None]]:
    """Sources of the fault's traffic, which wait: bystanders to the host, or the host to its peer."""
    by_label = {host.label: host for host in hosts}
    to = by_label[fault.peer or fault.host]
    sources = [by_label[fault.host]] if fault.peer else list(hosts[len(run.labels) :])
    words = ["bursts"] if fault.kind == "incast" else ["constant", "--mbit", f"{fault.strength:g}"]
    return held(sources, to, words, sent)


@contextlib.contextmanager
def _sending(signal: Callable[[str], None]) -> Iterator[None]:
    signal("USR1")
    yield
    signal("TERM")


def _ways(fault: Fault, place: int, others: Sequence[int]) -> list[tuple[int, int]]:
    """The ways that a fault of a link is on, from and to, by the places of hosts."""
    out = [(place, other) for other in others if other != place]
    back = [(other, place) for place, other in out]
    return {"out": out, "in": back, "both": out + back}[fault.direction]


@contextlib.contextmanager
def _delayed(ways: Sequence[tuple[int, int]], slow: Any) -> Iterator[None]:
    for source, to in ways:
        slow[to, source] = 1
    yield
    slow[:] = 0


@contextlib.contextmanager
def _dropped(ways: Sequence[tuple[Host, Host]], loss_pct: float) -> Iterator[None]:
    """Drop a share of the frames of each way, in the switch: behind the capture of the sender."""

    def nft(words: str) -> None:
        call("ip", "netns", "exec", SWITCH, "nft", words, module="nft_numgen")

    share = f"numgen random mod 1000000 < {round(loss_pct * _IN_A_MILLION)}"
    rules = [f"add rule bridge fault forward ip saddr {a.address} ip daddr {b.address} {share} drop" for a, b in ways]
    chain = "add chain bridge fault forward { type filter hook forward priority 1; }"
    nft("; ".join(["add table bridge fault", chain, *rules]))
    yield
    nft("delete table bridge fault")


@contextlib.contextmanager
def _slow_link(run: Run, fault: Fault, place: int, host: Host) -> Iterator[None]:
    """Another rate of one end of a host's link, or of both."""

    def change(link: Link) -> None:
        ends = {"out": (host.label, "eth0"), "in": (SWITCH, port_of(place))}
        for way in ("out", "in") if fault.direction == "both" else (fault.direction,):
            namespace, interface = ends[way]
            kind, _, *words = shaping(interface, link, netem=False)[-1]
            call("tc", "-n", namespace, kind, "change", *words)

    change(replace(run.link, rate_mbit=fault.strength))
    yield
    change(run.link)


@contextlib.contextmanager
def _slow_pair(senders: Sequence[Host], run: Run, rate_mbit: float) -> Iterator[None]:
    """Another rate of what hosts send to one other, which is a class of its own."""
    rate = run.link.rate_mbit or 0.0

    def change(most_mbit: float) -> None:
        for host in senders:
            words = part_of_rate(APART, min(rate / 2, most_mbit), most_mbit)
            call("tc", "-n", host.label, "class", "change", "dev", "eth0", *words)

    change(rate_mbit)
    yield
    change(rate)


@contextlib.contextmanager
def _small_buffer(host: Host, kib: float) -> Iterator[None]:
    """Receive buffers of sockets that the host opens from now on; the kernel doubles what a program asks for."""
    size = round(1024 * kib)
    host.output("sysctl", "-q", "-w", f"net.ipv4.tcp_rmem={min(4096, size)} {size} {size}")
    yield


@contextlib.contextmanager
def _group() -> Iterator[Path]:
    """A group of processes with a CPU quota of its own; an ended testbed's, which is empty, is removed."""
    for left in _CPU.glob(f"{_GROUP}*"):
        with contextlib.suppress(OSError):
            left.rmdir()
    group = _CPU / f"{_GROUP}{os.urandom(8).hex()}"
    try:
        group.mkdir()
        (group / "cpu.cfs_period_us").write_text(str(_PERIOD_US))
    except OSError as error:
        raise TestbedError(f"{group}: {error.strerror}; cpu_quota needs the cpu controller of cgroup v1") from error
    try:
        yield group
    finally:
        with contextlib.suppress(OSError):
            group.rmdir()


@contextlib.contextmanager
def _quota(group: Path, percent: float) -> Iterator[None]:
    (group / "cpu.cfs_quota_us").write_text(str(round(_PERIOD_US * percent / 100)))
    yield
    (group / "cpu.cfs_quota_us").write_text("-1")
