"""Training programs on the hosts of a run: started, waited for, ended; killed on purpose where the run says so.

Faults are in network namespaces of this machine only, whose files are all here. docs/testbed.md explains them.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ddnn_traces.testbed import faults
from ddnn_traces.testbed.hosts import SCRATCH, Host, free_port, last_lines, most_steps
from ddnn_traces.testbed.matrix import Job, Kill, Run
from ddnn_traces.testbed.programs.program_list import DATA, mca_settings, nccl_settings

#: Seconds between two looks at the logs of a run in which something is killed, or slowed.
_LOOK_S, _FAULT_LOOK_S = 0.05, 0.01


@dataclass
class Watch:
    """Kills what a run names after its step, and tells when the training stands still after that.

    host_pid: of the command that lasts on the host to be killed. facts: for run.toml.
    """

    kill: Kill
    hosts: Sequence[Host]
    host_pid: int
    facts: dict[str, Any] = field(default_factory=dict)
    _steps: int = 0
    _progress_s: float = 0.0

    @property
    def has_killed(self) -> bool:
        """Whether it is done."""
        return bool(self.facts)

    def look(self) -> str | None:
        """Kill, once it is time; afterwards why the training is given up, or None while it goes on."""
        log, steps = most_steps(self.hosts)
        if steps > self._steps:
            self._steps, self._progress_s = steps, time.monotonic()
        if log is None or steps <= self.kill.step:
            return None
        if not self.has_killed:
            self._kill(log)
            return None
        if time.monotonic() - self._progress_s > self.kill.patience_s:
            return f"no step for {self.kill.patience_s:g} s after {self.kill.kill} was killed"
        return None

    def _kill(self, log: Path) -> None:
        processes = _below(self.host_pid)
        parents = {parent for _, parent in processes}
        training = [pid for pid, _ in processes if pid not in parents]
        now = time.time()
        for pid in training if self.kill.what == "process" else [pid for pid, _ in processes]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        record(log, self._steps, f"{self.kill.what}_killed", self.kill.kill, now)
        self._progress_s = time.monotonic()
        self.facts = {"kill": self.kill.kill, "what": self.kill.what, "after_step": self.kill.step, "killed_s": now}


def record_restart(hosts: Sequence[Host]) -> None:
    """An event of the testbed's in the log of a host: all processes are started again."""
    log, steps = most_steps(hosts)
    if log is not None:
        record(log, steps, "restart", "all", time.time())


def record(log: Path, step: int, kind: str, name: str, now: float) -> None:
    """Add an event to the events of a host that has a log of steps."""
    events = log.with_name(log.name.replace("train_history-", "events-").replace(".log", ".csv"))
    with events.open("a") as file:
        file.write(f"{step},{kind},{name},{now:.9f},{now:.9f},\n")


def _below(pid: int) -> list[tuple[int, int]]:
    """All processes that a process has started, and those that these have, each with its parent."""
    parents = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            # the command's name, in parentheses, may contain anything
            parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
    found, level = [], [pid]
    while level:
        below = [(child, parent) for child, parent in parents.items() if parent in level]
        found += below
        level = [child for child, _ in below]
    return found


#: In a namespace nothing else listens. Jobs on the same hosts have ports of their own, a hundred apart.
_FIRST_PORT = 29_500
_GRACE_S = 10.0

#: Called by mpirun as a remote shell: an address, then the words of a command line.
_ENTER = """#!/bin/sh
case "$1" in
{cases}
*) echo "no host $1" >&2; exit 1;;
esac
shift
exec ip netns exec "$name" env TMPDIR="$tmp" sh -c "$*"
"""


@dataclass
class _Process:
    """A started program. shown: its command line. lasting: it never ends by itself (TensorFlow's servers)."""

    who: str
    host: Host
    shown: str
    log: Path
    popen: subprocess.Popen[bytes]
    lasting: bool = False

    def problem(self) -> str | None:
        """Why it failed, or None."""
        code = self.popen.returncode
        if not code:
            return None
        said = last_lines(self.log.read_text(errors="replace")) or "it said nothing"
        by_signal = code - 128 in signal.valid_signals()  # mpirun has exit codes of its own above 128
        ended = f"was ended by signal {code - 128}" if by_signal else f"ended with exit code {code}"
        return f"{self.who} {ended}: {said}"


@dataclass(frozen=True)
class Trained:
    """What became of a training. problems: none where it was as asked for; killed: what was, and what followed."""

    problems: list[str]
    commands: list[str]
    killed: dict[str, Any] | None = None


def train(
    run: Run, hosts: Sequence[Host], folder: Path, pythons: Mapping[str, str], fault: faults.Watch | None = None
) -> Trained:
    """Train all jobs of a run to their end; what programs print goes to folder. fault: what slows it.

    Where something is killed the training may end early, which is a result, or be started again.
    """
    for job in run.jobs:
        for host in hosts if job.profile else ():
            host.write(f"{host.folder}/programs/profiles/{job.model}.csv", Path(job.profile).read_text())
    with _all_started(run, hosts, folder, pythons, fault) as processes:
        watch = _watch(run, hosts, processes)
        problem = _wait(processes, run, watch, fault)
    commands = [process.shown for process in processes]
    if watch is None or not watch.has_killed:
        return Trained([problem] if problem else [], commands)
    others = _without_folders(problem or "went on to the end", folder.parent)
    killed = {**watch.facts, "others": others, "restarted": False}
    if problem and run.kill and run.kill.restart:
        record_restart(hosts)
        with _all_started(run, hosts, folder, pythons) as processes:
            problem = _wait(processes, run, None)
        return Trained([problem] if problem else [], commands, killed | {"restarted": True})
    return Trained([], commands, killed)


def _without_folders(message: str, folder: Path) -> str:
    """Without what says where this machine has the run and Python's packages."""
    return re.sub(r"/[^\s\"]*/site-packages/", "", message.replace(f"{folder}/", ""))


@contextlib.contextmanager
def _all_started(
    run: Run, hosts: Sequence[Host], folder: Path, pythons: Mapping[str, str], fault: faults.Watch | None = None
) -> Iterator[list[_Process]]:
    with contextlib.ExitStack() as undo:
        processes = []
        for number, job in enumerate(run.jobs):
            for who, host, command, lasting in _commands(run, job, number, hosts, folder, pythons):
                log = folder / f"{who}-program.txt"
                prefix = fault.prefix if fault and fault.fault.host == host.label else []
                popen = undo.enter_context(_started([*prefix, *host.attended(command)], log))
                processes.append(_Process(who, host, host.shown(command), log, popen, lasting))
        yield processes


def _watch(run: Run, hosts: Sequence[Host], processes: Sequence[_Process]) -> Watch | None:
    if run.kill is None:
        return None
    (pid,) = (process.popen.pid for process in processes if process.host.label == run.kill.kill)
    return Watch(run.kill, hosts, pid)


@contextlib.contextmanager
def _started(command: list[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("ab") as file, subprocess.Popen(command, stdin=subprocess.PIPE, stdout=file, stderr=file) as process:
        try:
            yield process
        finally:
            # the agent on the host ends the program with its standard input
            with contextlib.suppress(OSError):
                process.stdin.close()  # type: ignore[union-attr]
            try:
                process.wait(_GRACE_S)
            except subprocess.TimeoutExpired:
                process.kill()


def _wait(
    processes: Sequence[_Process], run: Run, watch: Watch | None, fault: faults.Watch | None = None
) -> str | None:
    """Wait until all that end have ended, one has failed, or the time is up. Returns what is wrong, or None.

    What is killed does not fail by that; when no other is left that ends by itself, the training is over.
    """
    look_s = _FAULT_LOOK_S if fault else _LOOK_S if watch else float("inf")
    limit = run.time_limit_s
    timeout_s = run.timeout_s if limit is None else limit
    end = time.monotonic() + timeout_s
    with contextlib.ExitStack() as undo:
        poll, waiting = select.poll(), {}
        for process in processes:
            descriptor = os.pidfd_open(process.popen.pid)
            undo.callback(os.close, descriptor)
            poll.register(descriptor, select.POLLIN)
            waiting[descriptor] = process
        while any(not process.lasting for process in waiting.values()):
            left_s = max(0, end - time.monotonic())
            for descriptor, _ in poll.poll(1000 * min(left_s, look_s)):
                poll.unregister(descriptor)
                process = waiting.pop(descriptor)
                process.popen.wait()
                if watch and watch.has_killed and process.host.label == watch.kill.kill:
                    # torchrun starts what was killed again, and then ends well
                    if process.popen.returncode and all(other.lasting for other in waiting.values()):
                        return f"{process.who} was killed, and no other process trains"
                elif problem := process.problem():
                    return problem
            if watch and (problem := watch.look()):
                return problem
            if fault:
                fault.look()
            if time.monotonic() >= end and waiting:
                if limit is not None:
                    return None
                who = ", ".join(process.who for process in waiting.values() if not process.lasting)
                return f"{who}: no end after {timeout_s:g} s; give it fewer steps, or a larger timeout_s"
    return None


def _commands(
    run: Run, job: Job, number: int, hosts: Sequence[Host], folder: Path, pythons: Mapping[str, str]
) -> Iterator[tuple[str, Host, list[str], bool]]:
    """Of each process of a job: name, host, command, and whether it never ends by itself."""
    port = free_port(hosts[0]) if hosts[0].remote else _FIRST_PORT + 100 * number
    shared = {
        "WORLD_SIZE": str(len(hosts) * job.ranks), "WORKERS": str(run.workers * job.ranks),
        "MASTER_ADDR": hosts[0].address, "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1",
        "HOSTS": ",".join(host.address for host in hosts), "TORCH_CPP_LOG_LEVEL": "ERROR",
        **({"RANKS_PER_HOST": str(job.ranks)} if job.ranks > 1 else {}),
    }  # fmt: skip
    if job.kind.elastic:
        # a store for each rendezvous: in the shared one a restarted worker can find the address of an ended one
        shared["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"
    if "checkpoint" in job.options and not hosts[0].remote:
        checkpoints = folder.parent / "checkpoints"
        checkpoints.mkdir(exist_ok=True)
        shared["CHECKPOINTS"] = str(checkpoints)
    arguments = _arguments(job)
    if job.kind.by_mpirun:
        yield job.name or "mpirun", hosts[0], _mpirun(run, job, hosts, folder, pythons, shared, arguments), False
        return
    for rank, (host, local_rank) in enumerate(itertools.product(hosts, range(job.ranks))):
        settings = {"RANK": str(rank), "LABEL": host.label, "GLOO_SOCKET_IFNAME": host.interface}
        settings |= {"LOCAL_RANK": str(local_rank)} if job.ranks > 1 else {}
        settings |= faults.sleeping(run.fault, host)
        settings |= nccl_settings(job.options, host.label, host.interface) if job.kind.launcher == "nccl" else {}
        variables = [f"{name}={value}" for name, value in (shared | settings).items()]
        program = [
            "env",
            *variables,
            _python(host, job, pythons),
            *(_torchrun(run, job, hosts, host, port) if job.kind.elastic else []),
            *arguments,
            "--out",
            host.results(run.folder_of(job)),
        ]
        names = (host.label, job.name, f"rank{local_rank + 1}" if local_rank else "")
        who = "-".join(filter(None, names))
        lasting = job.kind.chief and not host.label.startswith("chief-")
        yield who, host, program, lasting


def _torchrun(run: Run, job: Job, hosts: Sequence[Host], host: Host, port: int) -> list[str]:
    """What comes before the arguments of Python; the first host has the rendezvous. All else is torchrun's default."""
    least = job.options.get("least", str(run.workers))
    return [
        "-m", "torch.distributed.run", f"--nnodes={least}:{run.workers}", "--nproc-per-node=1", "--max-restarts=3",
        "--rdzv-backend=c10d", f"--rdzv-endpoint={hosts[0].address}:{port}", f"--rdzv-id={run.name}",
        f"--rdzv-conf=is_host={int(host is hosts[0])}", f"--local-addr={host.address}",
    ]  # fmt: skip


def _arguments(job: Job) -> list[str]:
    options = [word for name, value in job.options.items() for word in ("--option", f"{name}={value}")]
    data = [] if job.data == DATA[0] else ["--data", job.data]
    warm_up = ["--warm-up", str(job.warm_up)] if job.warm_up else []
    return [
        "-m", "programs", job.program, "--model", job.model, "--batch-size", str(job.batch_size),
        "--steps", str(job.steps), *warm_up, "--pause-ms", f"{job.pause_ms:g}", "--compute", job.compute,
        "--seed", str(job.seed), *data, *options, *(word for name in job.trace for word in ("--trace", name)),
    ]  # fmt: skip


def _python(host: Host, job: Job, pythons: Mapping[str, str]) -> str:
    return host.python if host.remote else pythons.get(job.kind.launcher, sys.executable)


def _mpirun(
    run: Run,
    job: Job,
    hosts: Sequence[Host],
    folder: Path,
    pythons: Mapping[str, str],
    shared: Mapping[str, str],
    arguments: list[str],
) -> list[str]:
    """mpirun on the first host; to the others it goes by ssh, or by entering their namespaces."""
    first = hosts[0]
    settings = {
        "orte_keep_fqdn_hostnames": "1",
        "oob_tcp_if_include": first.interface,
        "btl": "tcp,self",
        "btl_tcp_if_include": first.interface,
        **mca_settings(job.options.get("algorithm", "ring")),
    }
    temporary = []
    if not first.remote:
        # All namespaces have one host name. Daemons that make their session directories in one folder at the same time
        # can fail there ("mkdir: File exists"), and mpirun then ends ("no-path").
        places = [Path(host.folder, SCRATCH, job.name or "mpirun") for host in hosts]
        for place in places:
            place.mkdir(parents=True, exist_ok=True)
        named = zip(hosts, places, strict=True)
        cases = "\n".join(f"{host.address}) name={host.label} tmp='{place}';;" for host, place in named)
        enter = folder.parent / f"enter{job.name}"
        enter.write_text(_ENTER.format(cases=cases))
        enter.chmod(0o755)
        temporary = ["env", f"TMPDIR={places[0]}"]
        # hwloc's shared file would be one for all namespaces
        settings |= {"plm_rsh_agent": str(enter), "rtc": "^hwloc"}
    options = [word for name, value in settings.items() for word in ("--mca", name, value)]
    programs: list[str] = []
    for host in hosts:
        variables = {**shared, "PYTHONPATH": host.folder, "LABEL": host.label, **faults.sleeping(run.fault, host)}
        exported = [word for name, value in variables.items() for word in ("-x", f"{name}={value}")]
        words = ["-np", str(job.ranks), "--host", f"{host.address}:{job.ranks}", *exported]
        words += [_python(host, job, pythons), *arguments]
        programs += [*([":"] if programs else []), *words, "--out", host.results(run.folder_of(job))]
    root = [] if first.remote else ["--allow-run-as-root"]
    if job.ranks > 1:  # they may be more than the cores
        root += ["--bind-to", "none", "--mca", "mpi_yield_when_idle", "1"]
    return [*temporary, "mpirun", *root, *options, *programs]
