"""A host of a run: a network namespace of this machine, or a real machine that is reached by ssh.

What runs on a host is the folder programs/, copied there, in the Python of the host.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ddnn_traces.errors import TestbedError
from ddnn_traces.testbed.matrix import Machine
from ddnn_traces.text import counted

PROGRAMS = Path(__file__).parent / "programs"
#: A folder of a host for temporary files of programs; no part of what is fetched.
SCRATCH = "scratch"
#: Of ssh: no question, no waiting for a host that is off. Keys and known hosts are the user's.
_SSH = ("ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10")
_REMOTE_FOLDER = r"/tmp/ddnn-traces-testbed\.\w+"  # noqa: S108 (a pattern)
#: Folders of ended testbeds: the user's own, which no process names.
_REMOVE_LEFT = """for folder in /tmp/ddnn-traces-testbed.*; do
  [ -O "$folder" ] && ! pgrep -f "$folder" >/dev/null && rm -rf "$folder" && echo "$folder"
done; true"""
_NAMED_LINES = 3  # of what a program said, in a message


@dataclass(frozen=True)
class Host:
    """Where a worker, server or chief runs.

    label: worker-1, ...; address and interface: those that train; python: the framework's interpreter there; folder:
    where programs/ is and results go; tcpdump: the command; reach: words before a command that is to run there.
    """

    label: str
    address: str
    interface: str
    python: str
    folder: str
    tcpdump: tuple[str, ...] = ("tcpdump",)
    reach: tuple[str, ...] = ()
    remote: bool = False

    def command(self, argv: Sequence[str]) -> list[str]:
        """The words that run a command on the host."""
        words = ["env", f"PYTHONPATH={self.folder}", "PYTHONDONTWRITEBYTECODE=1", *argv]
        # ssh hands one text to the user's shell there
        return [*self.reach, shlex.join(words)] if self.remote else [*self.reach, *words]

    def attended(self, argv: Sequence[str]) -> list[str]:
        """The same, for a command that lasts: it ends with the standard input of what is run here."""
        return self.command([self.tool_python, "-m", "programs.agent", *argv])

    @property
    def tool_python(self) -> str:
        """A Python of the host for programs that need only the standard library."""
        return "python3" if self.remote else self.python

    def output(self, *argv: str, timeout_s: float = 60) -> str:
        """Standard output of a command that ends soon. Raises TestbedError."""
        return output(self.command(argv), f"{self.label}: {argv[0]}", timeout_s)

    def write(self, path: str, text: str) -> None:
        """Write a file on the host. Raises TestbedError."""
        done = subprocess.run(self.command(["tee", path]), input=text.encode(), capture_output=True, check=False)
        if done.returncode:
            said = last_lines(done.stderr.decode(errors="replace"))
            raise TestbedError(f"{self.label}: {path} cannot be written: {said}")

    def shown(self, argv: Sequence[str]) -> str:
        """A command as a shell takes it, without the hosts' folders of this run and where programs are installed."""
        words = [re.sub(self._folders, ".", word) for word in argv]
        return shlex.join(Path(word).name if word.startswith("/") else word for word in words)

    @property
    def _folders(self) -> str:
        """Pattern of the folders of all hosts."""
        return (
            _REMOTE_FOLDER
            if self.remote
            else re.escape(f"{Path(self.folder).parent}/") + r"((worker|ps|chief|other)-\d+|checkpoints)"
        )

    def results(self, job: str) -> str:
        """The folder for what a job's program writes, made by the program; job: empty, unless there are several."""
        return f"{self.folder}/results/{job}" if job else f"{self.folder}/results"

    def fetch(self, target: Path) -> None:
        """Bring what tcpdump and the programs wrote on the host into a folder here. Raises TestbedError."""
        if not self.remote:
            shutil.copytree(self.folder, target, ignore=shutil.ignore_patterns("programs", SCRATCH), dirs_exist_ok=True)
            return
        pack = self.command(["tar", "-C", self.folder, "--exclude=./programs", "-cf", "-", "."])
        _pipe(pack, ["tar", "-C", str(target), "--no-same-owner", "-xf", "-"], f"{self.label}: its files")


def output(command: Sequence[str], what: str, timeout_s: float = 60) -> str:
    """Standard output of a command as text, without blanks at its ends. Raises TestbedError with what it said."""
    try:
        result = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=timeout_s,
            check=False,
        )  # fmt: skip
    except FileNotFoundError as error:
        raise TestbedError(f"{what}: {command[0]} is not installed; install it") from error
    except subprocess.TimeoutExpired as error:
        raise TestbedError(f"{what}: no end after {timeout_s:g} s; look at that host") from error
    if result.returncode:
        raise TestbedError(f"{what}: {last_lines(result.stderr) or f'exit code {result.returncode}'}")
    return result.stdout.strip()


def last_lines(text: str) -> str:
    """The last lines of what a program said, as one."""
    return " / ".join(text.strip().splitlines()[-_NAMED_LINES:])


def copy_programs(host: Host) -> None:
    """Put programs/ into the host's folder, which is made. Raises TestbedError."""
    if not host.remote:
        target = Path(host.folder) / "programs"
        shutil.copytree(PROGRAMS, target, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
        return
    pack = ["tar", "-C", str(PROGRAMS.parent), "--exclude=__pycache__", "-cf", "-", "programs"]
    _pipe(pack, host.command(["tar", "-C", host.folder, "-xf", "-"]), f"{host.label}: programs/")


def _pipe(source: Sequence[str], sink: Sequence[str], what: str) -> None:
    """Run `source | sink`. Raises TestbedError."""
    with subprocess.Popen(source, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as first:
        second = subprocess.run(sink, stdin=first.stdout, capture_output=True, check=False)
        said = second.stderr + (first.stderr.read() if first.stderr else b"")
    if first.returncode or second.returncode:
        raise TestbedError(f"{what} cannot be copied: {last_lines(said.decode(errors='replace'))}")


@contextlib.contextmanager
def machines(entries: Sequence[Machine], labels: Sequence[str]) -> Iterator[list[Host]]:
    """The real hosts of a run, each with a new folder, which is removed at the end. Raises TestbedError."""
    with contextlib.ExitStack() as undo:
        hosts = []
        for label, entry in zip(labels, entries, strict=False):
            reach = (*_SSH, *entry.options, entry.ssh)
            folder = output([*reach, "mktemp -d /tmp/ddnn-traces-testbed.XXXXXXXX"], f"{label} ({entry.ssh})")
            host = Host(label, entry.address, entry.interface, entry.python, folder, entry.tcpdump, reach, remote=True)
            undo.callback(_remove, host)
            copy_programs(host)
            undo.enter_context(_named(host))
            hosts.append(host)
        yield hosts


@contextlib.contextmanager
def _named(host: Host) -> Iterator[None]:
    """A process on the host that names the folder in its command line, so that `testbed clean` leaves it alone."""
    command = host.attended(["tail", "-f", f"{host.folder}/programs/__init__.py"])
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as process:
        try:
            yield
        finally:
            assert process.stdin is not None
            process.stdin.close()


def _remove(host: Host) -> None:
    with contextlib.suppress(TestbedError):  # a host that is off keeps it; `testbed clean` removes it later
        host.output("rm", "-rf", host.folder)


def remove_left_on(entries: Sequence[Machine]) -> list[str]:
    """Remove what ended testbeds left on real hosts: folders by their name, with no process working in them.

    Returns a line for each host on which there was something. Raises TestbedError.
    """
    lines = []
    for entry in entries:
        found = output([*_SSH, *entry.options, entry.ssh, _REMOVE_LEFT], entry.ssh)
        if found:
            lines.append(f"{entry.ssh}: removed {counted(len(found.splitlines()), 'folder')} of earlier runs")
    return lines


def most_steps(hosts: Sequence[Host]) -> tuple[Path | None, int]:
    """The log of most steps of namespaces' hosts, the first of several, and how many these are."""
    counts = [
        (log.read_text().count("\nbatch,"), log)
        for host in hosts
        for log in sorted(Path(host.results("")).glob("train_history-*.log"))
    ]
    if not counts:
        return None, 0
    most = max(count for count, _ in counts)
    return next(log for count, log in counts if count == most), most


def address_of(number: int) -> str:
    """Address of a namespace's host, counted from 0."""
    return f"10.10.0.{number + 1}"


def free_port(host: Host) -> int:
    """A TCP port that nothing listens on at the host's address. Raises TestbedError."""
    program = f"import socket; s = socket.create_server(({host.address!r}, 0)); print(s.getsockname()[1])"
    return int(host.output(host.tool_python, "-c", program))


@dataclass(frozen=True)
class Clock:
    """A host's clock against this machine's, ns: their difference, and by how much that may be wrong."""

    offset_ns: int
    uncertainty_ns: int


def clock_of(host: Host) -> Clock:
    """Read the host's clock between two readings of this machine's, as NTP does (RFC 5905, 8); the best of three.

    Raises TestbedError.
    """
    readings = []
    for _ in range(3):
        before = time.time_ns()
        there = int(host.output("date", "+%s%N"))
        after = time.time_ns()
        readings.append(Clock(there - (before + after) // 2, (after - before) // 2))
    return min(readings, key=lambda clock: clock.uncertainty_ns)


def time_service(host: Host) -> str:
    """What keeps the host's clock, in its own words: chrony's tracking or ntpd's variables; empty without them."""
    for command in (["chronyc", "-n", "tracking"], ["ntpq", "-n", "-c", "rv"]):
        with contextlib.suppress(TestbedError):
            return host.output(*command)
    return ""


def tool_missing(*names: str) -> list[str]:
    """Which of these commands are not on PATH here."""
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    return [name for name in names if shutil.which(name, path=path) is None]
