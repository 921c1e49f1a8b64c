"""Links of a run: shaped as asked for, measured before and after the training, and compared.

delay_ms is what is added to the way of every packet from one host to another, once; loss_pct the share of frames that
the switch drops on that way. docs/testbed.md says what makes them, and what was measured. A sweep measures once which
links this machine can make, so that it is refused before its first run, not later.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from ddnn_traces.errors import TestbedError, UsageError
from ddnn_traces.testbed.delay_line import delay_line
from ddnn_traces.testbed.hosts import Host, output
from ddnn_traces.testbed.matrix import Fault, Job, Link, Matrix, Run, Tolerance
from ddnn_traces.testbed.network import SWITCH, call, join, namespaces, plug_in, port_of

#: Of the bucket: a whole 64 KB frame fits into it.
BURST_BYTES = 262_144
_QUEUE_MS = 50
_IN_A_MILLION = 10_000  # of a percent
_TRIES = 3


@contextlib.contextmanager
def links(run: Run, hosts: list[Host]) -> Iterator[tuple[dict[str, Any], Any]]:
    """Join the hosts of a run by its links; yields what makes each condition, at the end also the delay line's counts.

    Beside it, where the run has a fault of a delay, the ways of the delay line that are slow. Raises TestbedError.
    """
    link, offload, fault = run.link, run.capture.offload, run.fault
    made: dict[str, Any] = {"rate": link.shaper} if link.rate_mbit else {}
    extra_ms = fault.strength if fault and fault.kind == "delay" else 0.0
    netem = bool(link.delay_ms or link.loss_pct) and not extra_ms and has_netem()
    slow = None
    with contextlib.ExitStack() as undo:
        if extra_ms or (link.delay_ms and not netem):
            labels = [host.label for host in hosts]
            made["delay"] = "delay line"
            line = delay_line(labels, link.delay_ms, offload, extra_ms)
            made["delay_line"], slow = undo.enter_context(line)
            for number, host in enumerate(hosts):
                plug_in(number, host, offload)
        else:
            join(hosts, offload)
        for number, host in enumerate(hosts):
            apart = fault is not None and _apart(fault, hosts, host)
            words_of = halved("eth0", link, apart) if apart else shaping("eth0", link, netem=False)
            for words in words_of:
                call("tc", "-n", host.label, *words, module=f"sch_{link.shaper}")
            for words in shaping(port_of(number), link, netem):
                call("tc", "-n", SWITCH, *words)
        if netem:
            asked = {"delay": link.delay_ms, "loss": link.loss_pct}
            made |= {name: "netem" for name, value in asked.items() if value}
        elif link.loss_pct:
            _drop(link.loss_pct)
            made["loss"] = "nftables numgen"
        yield made, slow


def _apart(fault: Fault, hosts: Sequence[Host], host: Host) -> str:
    """Address to which this host's frames can be slowed alone; empty: none."""
    if fault.kind != "slow_link" or not fault.peer:
        return ""
    ways = {"out": [(fault.host, fault.peer)], "in": [(fault.peer, fault.host)]}
    ways["both"] = ways["out"] + ways["in"]
    to = dict(ways[fault.direction]).get(host.label)
    return next((other.address for other in hosts if other.label == to), "")


#: Of a host's frames to one other, which `halved` keeps apart.
APART = "1:2"


def halved(interface: str, link: Link, address: str) -> list[list[str]]:
    """Words after `tc` that shape one end of a link by htb, where frames to one address are a class of their own."""
    add = ["add", "dev", interface]
    rate = link.rate_mbit or 0.0
    whole = ["rate", f"{rate:g}mbit", "burst", str(BURST_BYTES)]
    return [
        ["qdisc", *add, "root", "handle", "1:", "htb", "default", "1"],
        ["class", *add, "parent", "1:", "classid", "1:9", "htb", *whole],
        *(["class", *add, *part_of_rate(name, rate / 2, rate)] for name in ("1:1", APART)),
        ["filter", *add, *["parent", "1:", "protocol", "ip", "u32", "match", "ip", "dst"], address, "flowid", APART],
    ]


def part_of_rate(name: str, rate_mbit: float, most_mbit: float) -> list[str]:
    """The class of a part of `halved`: what it has in any case, and what it has while the other is silent."""
    rates = ["rate", f"{rate_mbit:g}mbit", "ceil", f"{most_mbit:g}mbit"]
    return ["parent", "1:9", "classid", name, "htb", *rates, "burst", str(BURST_BYTES), "cburst", str(BURST_BYTES)]


def shaping(interface: str, link: Link, netem: bool) -> list[list[str]]:
    """Words after `tc` that shape one end of a link, in order. netem: also delay and loss, which is once a way."""
    commands = []
    place = ["root", "handle", "10:"]
    add = ["add", "dev", interface]
    if link.rate_mbit:
        rate = ["rate", f"{link.rate_mbit:g}mbit", "burst", str(BURST_BYTES)]
        if link.shaper == "tbf":
            commands.append(["qdisc", *add, "root", "handle", "1:", "tbf", *rate, "latency", f"{_QUEUE_MS}ms"])
        else:
            commands.append(["qdisc", *add, "root", "handle", "1:", "htb", "default", "1"])
            commands.append(["class", *add, "parent", "1:", "classid", "1:1", "htb", *rate])
        place = ["parent", "1:1", "handle", "10:"]
    if netem:
        delay = ["delay", f"{link.delay_ms:g}ms"] if link.delay_ms else []
        loss = ["loss", f"{link.loss_pct:g}%"] if link.loss_pct else []
        commands.append(["qdisc", *add, *place, "netem", "limit", "100000", *delay, *loss])
    return commands


def has_netem() -> bool:
    """Whether the kernel has netem; tried on the loopback interface of the testbed's own namespace."""
    try:
        call("tc", "qdisc", "add", "dev", "lo", "root", "netem", "delay", "1ms")
    except TestbedError:
        return False
    call("tc", "qdisc", "delete", "dev", "lo", "root")
    return True


def _drop(loss_pct: float) -> None:
    """Drop this share of the IPv4 frames that the bridge forwards. A frame may be one of up to 64 KB."""
    rule = f"ether type ip numgen random mod 1000000 < {round(loss_pct * _IN_A_MILLION)} counter drop"
    for words in (
        "add table bridge loss",
        "add chain bridge loss forward { type filter hook forward priority 0; }",
        f"add rule bridge loss forward {rule}",
    ):
        call("ip", "netns", "exec", SWITCH, "nft", words, module="nft_numgen")


def counters(hosts: Sequence[Host], loss_pct: float) -> dict[str, Any]:
    """Frames and bytes that left by each end of each link, what its queue dropped, and what was dropped on purpose."""
    found: dict[str, Any] = {}
    for number, host in enumerate(hosts):
        for name, namespace, interface in (("sent", host.label, "eth0"), ("received", SWITCH, port_of(number))):
            text = output(["tc", "-n", namespace, "-s", "-j", "qdisc", "show", "dev", interface], "tc")
            root: dict[str, Any] = next((qdisc for qdisc in json.loads(text) if qdisc.get("root")), {})
            kept = ("kind", "packets", "bytes", "drops", "overlimits", "requeues")
            counts = {key: root[key] for key in kept if key in root}
            text = output(["ip", "-n", namespace, "-s", "-j", "link", "show", "dev", interface], "ip")
            counts["dropped_by_interface"] = json.loads(text)[0]["stats64"]["tx"]["dropped"]
            found.setdefault(host.label, {})[name] = counts
    if loss_pct and not has_netem():
        words = ["nft", "-j", "list", "table", "bridge", "loss"]
        listed = json.loads(output(["ip", "netns", "exec", SWITCH, *words], "nft"))
        rules = [entry["rule"]["expr"] for entry in listed["nftables"] if "rule" in entry]
        found["dropped_on_purpose"] = next(part["counter"] for rule in rules for part in rule if "counter" in part)
    return found


def lost(made: Mapping[str, Any], before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Frames that the delay line has lost while the run trained, or lost at any time for lack of space, in words.

    made: what `links` yielded, after its end; before, after: `counters` around the training.
    """
    if "delay_line" not in made:
        return []
    if "dropped" not in made["delay_line"]:
        return ["the delay line ended early; its message is above"]
    frames = made["delay_line"]["dropped"] + sum(
        after[label][end]["dropped_by_interface"] - before[label][end]["dropped_by_interface"]
        for label in after.keys() & before.keys() - {"dropped_on_purpose"}
        for end in ("sent", "received")
    )
    return [f"the delay line lost {frames:,} frames; give a lower rate or a shorter delay"] if frames else []


# --- measured


def measure(hosts: Sequence[Host], link: Link, tolerance: Tolerance) -> list[dict[str, Any]]:
    """Round-trip time, loss and rate from each host to the next, so that each link is measured in both directions.

    What is outside the tolerance is measured up to three times: a moment in which this machine has no time for its
    sender or receiver says nothing of the link. rate_mbit is the highest, and rates_mbit has all of them; tries says
    how often round-trip time and loss were measured, of which the last counts. Raises TestbedError.
    """
    places = range(len(hosts))
    with _servers(hosts) as ports:
        with ThreadPoolExecutor(len(hosts)) as threads:
            found = list(threads.map(lambda place: _probe(hosts, ports, place, "latency"), places))
        for place in places:  # one at a time: a link is to be full, and not this machine
            found[place] = _again(found[place], partial(_probe, hosts, ports, place, "latency"), link, tolerance)
            found[place] |= _rate(partial(_probe, hosts, ports, place, "rate"), link, tolerance)
        return found


def _again(
    found: dict[str, Any], probe: Callable[[], dict[str, Any]], link: Link, tolerance: Tolerance
) -> dict[str, Any]:
    tries = 1
    while tries < _TRIES and compare(link, [found], tolerance):
        found, tries = probe(), tries + 1
    return found | {"tries": tries}


@contextlib.contextmanager
def _servers(hosts: Sequence[Host]) -> Iterator[list[int]]:
    """A probe's server on each host; yields their ports."""
    with contextlib.ExitStack() as undo:
        yield [undo.enter_context(_server(host)) for host in hosts]


def _rate(probe: Callable[[], dict[str, Any]], link: Link, tolerance: Tolerance) -> dict[str, Any]:
    rates: list[float] = []
    while len(rates) < _TRIES:
        found = probe()
        rates.append(found["rate_mbit"])
        if not _rate_differs(link, max(rates), tolerance):
            break
    return {**found, "rate_mbit": max(rates), "rates_mbit": rates}


def _probe(hosts: Sequence[Host], ports: Sequence[int], place: int, what: str) -> dict[str, Any]:
    host, other = hosts[place], hosts[(place + 1) % len(hosts)]
    port = str(ports[(place + 1) % len(hosts)])
    words = ["measure", "--to", other.address, "--port", port, "--what", what]
    text = host.output(host.tool_python, "-m", "programs.probe", *words)
    return {"from": host.label, "to": other.label, **json.loads(text)}


@contextlib.contextmanager
def _server(host: Host) -> Iterator[int]:
    """A probe's server on a host; yields its port."""
    command = host.attended([host.tool_python, "-m", "programs.probe", "serve", "--address", host.address])
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        try:
            line = process.stdout.readline()
            if not line:
                raise TestbedError(f"{host.label}: no probe ({process.stderr.read().decode(errors='replace').strip()})")
            yield int(line)
        finally:
            process.stdin.close()
            process.wait()


def compare(link: Link, measured: Sequence[Mapping[str, Any]], tolerance: Tolerance) -> list[str]:
    """What is outside the tolerance, in words; nothing where all is as asked for, or nothing was (real machines).

    Rate: within tolerance.rate_pct. Delay: half the median round trip exceeds delay_ms by at most tolerance.delay_ms
    and tolerance.delay_pct of it. Loss: what was asked for is in the 99.99% interval of what was measured. A rate that
    has not been measured yet is not compared.
    """
    if link == Link(rate_mbit=None):
        return []
    return [problem for way in measured for problem in _differences(link, way, tolerance)]


def _rate_differs(link: Link, rate_mbit: float, tolerance: Tolerance) -> bool:
    """Whether the rate of what arrives, without what is dropped on purpose, is not the link's."""
    if not link.rate_mbit:
        return False
    return abs(rate_mbit / (1 - link.loss_pct / 100) / link.rate_mbit - 1) * 100 > tolerance.rate_pct


def _differences(link: Link, way: Mapping[str, Any], tolerance: Tolerance) -> Iterator[str]:
    where = f"{way['from']} to {way['to']}"
    if "rate_mbit" in way and _rate_differs(link, way["rate_mbit"], tolerance):
        yield (
            f"rate {where}: {way['rate_mbit']:g} Mbit/s, and {link.rate_mbit:g} were asked for; give a rate that this "
            "machine reaches, or a larger tolerance.rate_pct"
        )
    one_way = way["rtt_ms"] / 2
    if not 0 <= one_way - link.delay_ms <= tolerance.delay_ms + link.delay_ms * tolerance.delay_pct / 100:
        yield f"delay {where}: {one_way:g} ms one way, and {link.delay_ms:g} were asked for"
    for direction in ("there", "back"):
        low, high = way[f"loss_{direction}_pct"]
        if not low <= link.loss_pct <= high:
            yield (
                f"loss {where} ({direction}): {way[f'lost_{direction}']} of {way['datagrams']} datagrams, {low:g} to "
                f"{high:g}%, and {link.loss_pct:g}% was asked for"
            )


# --- what this machine reaches

_DELAY_MS = 1.0


def reached(scratch: Path) -> dict[str, float | str]:
    """rate_mbit, and rate_with_delay_mbit or why_no_delay: what unshaped links of two hosts reach.

    Runs inside the testbed's own namespaces. Raises TestbedError where there are no links at all.
    """
    found: dict[str, float | str] = {"rate_mbit": _rate_mbit(Link(rate_mbit=None), scratch / "plain")}
    try:
        found["rate_with_delay_mbit"] = _rate_mbit(Link(rate_mbit=None, delay_ms=_DELAY_MS), scratch / "delayed")
    except TestbedError as error:
        found["why_no_delay"] = str(error)
    return found


def _rate_mbit(link: Link, folder: Path) -> float:
    run = Run("limits", (Job("star"),), workers=2, link=link)
    folder.mkdir()
    with namespaces(run, folder, sys.executable) as hosts, links(run, hosts), _servers(hosts) as ports:
        # the best of three: what the machine reaches, not what it reaches in a moment in which others have it
        found = [[_probe(hosts, ports, place, "rate") for place in range(len(hosts))] for _ in range(3)]
    return max(min(float(way["rate_mbit"]) for way in ways) for ways in found)


def check_time_limits(wanted: Matrix) -> None:
    """Raise UsageError, which names the run, where one has no time limit. It needs no measurement."""
    for run in wanted.runs:
        if run.time_limit_s is None:
            raise UsageError(f"{run.name}: no time_limit_s; give one, also in [defaults]: a run may not finish")


def check_links(wanted: Matrix, found: Mapping[str, float | str]) -> None:
    """Raise UsageError, which names the run, where one has a link that this machine cannot make."""
    for run in wanted.runs:
        link = run.link
        if link.delay_ms and "why_no_delay" in found:
            raise UsageError(f"{run.name}: delay_ms = {link.delay_ms:g} cannot be made here: {found['why_no_delay']}")
        rate = float(found["rate_with_delay_mbit" if link.delay_ms else "rate_mbit"])
        if link.rate_mbit and rate < link.rate_mbit * (1 - run.tolerance.rate_pct / 100):
            raise UsageError(
                f"{run.name}: rate_mbit = {link.rate_mbit:g}, and links of this machine reach {rate:.0f} Mbit/s"
                f"{' with a delay' if link.delay_ms else ''}; give a lower rate"
            )
