"""Network namespaces of this machine: those of the testbed itself, and in them the hosts of a run.

The testbed runs in PID, mount and network namespaces of its own, and so cannot leave anything behind. The first process
of a PID namespace takes all others with it when it ends, whatever ends it. The names of network namespaces are bind
mounts in a mount namespace that nobody else sees. When the command that a user sees is killed, the kernel kills what it
started (PR_SET_PDEATHSIG), and the last process takes interfaces, rules and qdiscs with it. Each host of a run has
eth0, joined to a bridge in a namespace of its own.
"""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ddnn_traces.errors import TestbedError, UsageError
from ddnn_traces.testbed.hosts import Host, address_of, copy_programs, output
from ddnn_traces.testbed.matrix import Run
from ddnn_traces.text import nearest, shown

_OWN_NAMESPACES = (
    "setpriv", "--pdeathsig", "KILL",
    "unshare", "--pid", "--mount", "--net", "--fork", "--kill-child=KILL", "--mount-proc",
)  # fmt: skip


def start(*arguments: str) -> Iterator[dict[str, Any]]:
    """Run `python -m ddnn_traces.testbed ARGUMENTS` in namespaces of its own; yields what it reports.

    An exception of the caller ends it at once. Raises TestbedError where it cannot be started or ends early.
    """
    command = [*_OWN_NAMESPACES, sys.executable, "-m", "ddnn_traces.testbed", *arguments]
    # a session of its own: a Ctrl-C is for the command that the user sees
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, start_new_session=True) as process:
        try:
            assert process.stdout is not None
            for line in process.stdout:
                yield json.loads(line)
        except BaseException:
            process.kill()
            raise
    if process.returncode:
        raise TestbedError(f"the testbed ended with {process.returncode}; see the message above, if it was not killed")


def take_names() -> None:
    """In the process inside: names of network namespaces that nobody else has or sees."""
    subprocess.run(["mkdir", "-p", "/run/netns"], check=True)
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", "/run/netns"], check=True)


SWITCH = "switch"


@contextlib.contextmanager
def namespaces(run: Run, folder: Path, python: str) -> Iterator[list[Host]]:
    """The hosts of a run, by their labels, bystanders last, with links that are not shaped yet; folder: for what they
    write.

    Raises TestbedError.
    """
    with contextlib.ExitStack() as undo:
        for name in (SWITCH, *run.labels, *run.bystanders):
            call("ip", "netns", "add", name)
            undo.callback(call, "ip", "netns", "delete", name)
            call("ip", "-n", name, "link", "set", "lo", "up")
            # neighbour discovery would be in the captures
            call("ip", "netns", "exec", name, "sysctl", "-q", "-w", "net.ipv6.conf.all.disable_ipv6=1")
        # with snooping the bridge joins a group, and its reports would be in the captures
        call("ip", "-n", SWITCH, "link", "add", "bridge", "type", "bridge", "mcast_snooping", "0", module="bridge")
        call("ip", "-n", SWITCH, "link", "set", "bridge", "up")
        hosts = [_host(label, number, folder, python) for number, label in enumerate((*run.labels, *run.bystanders))]
        yield hosts


def _host(label: str, number: int, folder: Path, python: str) -> Host:
    own = folder / label
    own.mkdir()
    host = Host(label, address_of(number), "eth0", python, str(own), reach=("ip", "netns", "exec", label))
    copy_programs(host)
    return host


def port_of(number: int) -> str:
    """The bridge's port of a host, counted from 0."""
    return f"port{number + 1}"


def join(hosts: list[Host], offload: bool) -> None:
    """Join the hosts to the bridge by veth pairs. offload False: no frame is longer than the link's MTU."""
    for number, host in enumerate(hosts):
        port = port_of(number)
        mac = f"02:00:00:00:00:{number + 1:02x}"
        eth0 = ["link", "add", "eth0", "address", mac, "netns", host.label]
        call("ip", *eth0, "type", "veth", "peer", "name", port, "netns", SWITCH, module="veth")
        plug_in(number, host, offload)


def check_congestion_control(run: Run) -> None:
    """Raise UsageError, which names the run, where the kernel lacks what it asks for. For root the kernel loads it."""
    name = run.link.congestion_control
    with socket.socket() as trial:
        try:
            trial.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, name.encode())
        except OSError as error:
            known = Path("/proc/sys/net/ipv4/tcp_available_congestion_control").read_text().split()
            raise UsageError(f"{run.name}: congestion_control = {shown(name)}; {nearest(name, known)}") from error


def use_congestion_control(host: Host, name: str) -> None:
    """Let the host's TCP connections use this congestion control. Raises TestbedError where the kernel lacks it."""
    route = ["route", "replace", "10.10.0.0/24", "dev", "eth0", "src", host.address]
    call("ip", "-n", host.label, *route, "congctl", name, module=f"tcp_{name}")


def plug_in(number: int, host: Host, offload: bool) -> None:
    """Give eth0 its address and the bridge its port, both of which exist."""
    port = port_of(number)
    call("ip", "-n", host.label, "address", "add", f"{host.address}/24", "dev", "eth0")
    call("ip", "-n", SWITCH, "link", "set", port, "master", "bridge")
    for where, interface in ((host.label, "eth0"), (SWITCH, port)):
        call("ip", "-n", where, "link", "set", interface, "up")
        if not offload:
            options = [word for name in ("tso", "gso", "gro") for word in (name, "off")]
            call("ip", "netns", "exec", where, "ethtool", "-K", interface, *options)


def facts(host: Host, run: Run) -> Mapping[str, str]:
    """What the kernel says of the host that decides on its packets."""
    default = host.output("cat", "/proc/sys/net/ipv4/tcp_congestion_control")
    return {
        "congestion_control": run.link.congestion_control or default,
        "mtu": host.output("cat", f"/sys/class/net/{host.interface}/mtu"),
    }


def call(*command: str, module: str = "") -> None:
    """Run a command that changes the network; module: of the kernel that it needs. Raises TestbedError."""
    try:
        output(command, " ".join(command))
    except TestbedError as error:
        raise TestbedError(f"{error}; if the kernel lacks it: modprobe {module}" if module else str(error)) from error
