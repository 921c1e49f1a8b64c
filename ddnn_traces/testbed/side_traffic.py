"""Traffic beside the training, while it runs: sinks and sources on the hosts, and what they have really sent.

The links are measured without it, before and after. Each of its packets has a sink's port and address.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ddnn_traces.errors import TestbedError
from ddnn_traces.testbed.hosts import Host, last_lines
from ddnn_traces.testbed.matrix import Background, Run
from ddnn_traces.testbed.programs.background import read_flows

#: In a namespace nothing else listens; the port of the discard service (RFC 863), which is what a sink is.
_PORT = 9
_MODULE = "programs.background"


@contextlib.contextmanager
def background(run: Run, hosts: Sequence[Host]) -> Iterator[dict[str, Any]]:
    """Send the run's background traffic; what is yielded says at the end what was sent and received, by host.

    Raises TestbedError where a source or sink fails.
    """
    facts: dict[str, Any] = {}
    if run.background is None:
        yield facts
        return
    asked = run.background
    facts |= {"asked_for": asdict(asked), "ports": {}, "received": {}, "sent": {}}
    facts["asked_for"]["flows"] = Path(asked.flows).name
    with contextlib.ExitStack() as undo:
        for host in hosts:
            port = [] if host.remote else ["--port", str(_PORT)]
            sink = ["sink", "--address", host.address, *port]
            line, _ = undo.enter_context(_attended(host, sink, facts["received"]))
            facts["ports"][host.label] = int(line)
        for host, source in _sources(asked, hosts, facts["ports"]):
            undo.enter_context(_attended(host, source, facts["sent"]))
        yield facts


def _sources(asked: Background, hosts: Sequence[Host], ports: dict[str, int]) -> Iterator[tuple[Host, list[str]]]:
    """Hosts that send, and their arguments."""
    by_label = {host.label: host for host in hosts}
    if asked.kind == "constant":
        to = ["--to", by_label[asked.dst].address, "--port", str(ports[asked.dst])]
        yield by_label[asked.src], ["constant", *to, "--mbit", f"{asked.rate_mbit:g}", "--protocol", asked.protocol]
        return
    with Path(asked.flows).open() as file:
        flows = read_flows(file)
    for label, host in by_label.items():
        rows = [
            f"{flow.start_s!r},{by_label[flow.dst].address},{ports[flow.dst]},{flow.size}\n"
            for flow in flows
            if flow.src == label
        ]
        if rows:
            path = f"{host.folder}/background-{label}.csv"
            host.write(path, "".join(rows))
            yield host, ["replay", "--flows", path]


@contextlib.contextmanager
def held(
    sources: Sequence[Host], to: Host, words: Sequence[str], sent: dict[str, Any]
) -> Iterator[Callable[[str], None]]:
    """Sources that are ready to send to a host, and wait; words: role and arguments of background's program.

    Yields what sends them a signal: USR1 begins, TERM ends. At the end `sent` has their counts. Raises TestbedError.
    """
    sink = ["sink", "--address", to.address, "--port", str(_PORT)]
    role, *arguments = words
    way = ["--to", to.address, "--port", str(_PORT), "--hold"]
    with contextlib.ExitStack() as undo:
        undo.enter_context(_attended(to, sink, {}))
        ready = [undo.enter_context(_attended(source, [role, *way, *arguments], sent)) for source in sources]

        def signal(name: str) -> None:
            for _, process in ready:
                process.stdin.write(f"{name}\n")
                process.stdin.flush()

        yield signal


@contextlib.contextmanager
def _attended(host: Host, arguments: Sequence[str], counted: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Run background's program on a host; yields its first line and its process. At the end counted has its counts."""
    command = host.attended([host.tool_python, "-m", _MODULE, *arguments])
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, **pipes, text=True, errors="replace") as process:  # type: ignore[call-overload]

        def line() -> str:
            text: str = process.stdout.readline()
            if not text:
                raise TestbedError(f"{host.label}: {last_lines(process.stderr.read()) or 'no background traffic'}")
            return text

        try:
            yield line(), process
        finally:
            with contextlib.suppress(OSError):
                process.stdin.close()  # the agent ends it
        counted[host.label] = json.loads(line())
