"""Captures of real distributed training, made on this machine or on real hosts: run folders that ingest takes.

It imports no ingestor and no query: a run folder is all that passes. docs/testbed.md explains it.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ddnn_traces.errors import TestbedError
from ddnn_traces.messages import Messages
from ddnn_traces.store.locking import hold
from ddnn_traces.store.whole_files import make_folders, remove_left_behind
from ddnn_traces.testbed import conditions, matrix, matrix_runs, network
from ddnn_traces.testbed.hosts import PROGRAMS, last_lines, remove_left_on, tool_missing
from ddnn_traces.testbed.matrix import Matrix
from ddnn_traces.testbed.run_folder import REJECTED

#: Debian's packages by the command that is needed from each.
_PACKAGES = {
    "ip": "iproute2", "tc": "iproute2", "tcpdump": "tcpdump", "nft": "nftables", "ethtool": "ethtool",
    "sysctl": "procps", "unshare": "util-linux", "setpriv": "util-linux", "mpirun": "openmpi-bin",
    "ssh": "openssh-client",
}  # fmt: skip
_LOCAL = ("ip", "tc", "tcpdump", "nft", "ethtool", "sysctl", "unshare", "setpriv")
_SCRATCH = "testbed"


@dataclass(frozen=True)
class Outcome:
    """What became of a run: "made", "there" (made earlier), "rejected" or "failed" (nothing is written), and why."""

    name: str
    outcome: str
    why: str

    @property
    def is_there(self) -> bool:
        """Whether the run's folder is in place, made now or earlier."""
        return self.outcome in ("made", "there")


def run(
    path: Path, out: Path, messages: Messages, python: Mapping[str, str] | None = None, sweep: bool = False
) -> list[Outcome]:
    """Make the runs of a matrix file into run folders in `out`; runs that are there stay as they are.

    python: interpreters by framework (torch, mpi, tensorflow, horovod), before those of the file. sweep: each run has a
    time limit, links that this machine cannot make are refused first, and a run that fails is tried twice.

    A run that lost packets or a worker, or whose links are not as asked for, goes to `out`/rejected with its reason.
    Raises UsageError and TestbedError; whatever ends this, no namespace, process or rule is left.
    """
    wanted = matrix.read(path)
    pythons = {**wanted.python, **matrix.pythons("--python", dict(python or {}))}
    _check(wanted, pythons, out)
    if sweep:
        conditions.check_time_limits(wanted)
    tries = 2 if sweep else 1
    make_folders(out)
    outcomes: list[Outcome] = []

    def tell(name: str, outcome: str, why: str) -> None:
        outcomes.append(Outcome(name, outcome, why))
        _tell(outcomes[-1], f"{len(outcomes)} of {len(wanted.runs)}", messages)

    with _scratch(out) as scratch:
        if wanted.machines:
            matrix_runs.make_all(wanted, out, scratch, pythons, tell, tries)
        else:
            if sweep:
                (found,) = network.start("limits", str(scratch.resolve()))
                conditions.check_links(wanted, found)
            folders = [str(folder.resolve()) for folder in (path, out, scratch)]
            for line in network.start("runs", *folders, json.dumps(pythons), str(tries)):
                tell(**line)
    return outcomes


@contextlib.contextmanager
def _scratch(out: Path) -> Iterator[Path]:
    """A hidden folder in `out` for half-made runs, while no other testbed has one there. Raises BusyError."""
    locked = os.open(out, os.O_RDONLY | os.O_DIRECTORY)  # the kernel unlocks it when this process ends
    try:
        hold(locked, f"{out}: another testbed is making runs there; wait for its end, or give another --out")
        remove_left_behind(out / _SCRATCH)
        scratch = out / f".{_SCRATCH}.{os.getpid()}"
        scratch.mkdir()
        try:
            yield scratch
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    finally:
        os.close(locked)


def _tell(outcome: Outcome, position: str, messages: Messages) -> None:
    line = f"{position}: {outcome.name}"
    if outcome.outcome == "rejected":
        messages.warn(f"{line}: rejected, in {REJECTED}/: {outcome.why}")
    elif outcome.outcome == "failed":
        messages.warn(f"{line}: not made: {outcome.why}")
    else:
        messages.info(f"{line}: {'is there, left as it is' if outcome.outcome == 'there' else outcome.why}")


def _check(wanted: Matrix, pythons: Mapping[str, str], out: Path) -> None:
    """Raise TestbedError, with what to install or change, where a run of the matrix cannot be made here."""
    jobs = [job for run in wanted.runs for job in run.jobs]
    mpi = ["mpirun"] if any(job.kind.by_mpirun for job in jobs) else []
    if wanted.machines:
        missing = tool_missing("ssh", "tar")
    else:
        if os.geteuid() != 0:
            raise TestbedError("network namespaces need root: run it by sudo, or give real machines as [[hosts]]")
        missing = tool_missing(*_LOCAL, *mpi)
        for run in wanted.runs:
            if run.link.congestion_control:
                network.check_congestion_control(run)
        whole = str(out.resolve())
        if ":" in whole or (mpi and " " in whole):
            raise TestbedError(f"{whole}: PYTHONPATH and mpirun take no colons and blanks; give another --out")
        for launcher, packages in sorted({(job.kind.launcher, job.kind.needs) for job in jobs}):
            for package in packages:
                _check_python(launcher, package, pythons.get(launcher, sys.executable))
        if any(job.kind.launcher == "nccl" for job in jobs):
            _check_gpu(pythons.get("nccl", sys.executable))
    if missing:
        wanting = sorted({_PACKAGES.get(name, name) for name in missing})
        raise TestbedError(f"{', '.join(missing)}: not installed; on Debian: apt-get install {' '.join(wanting)}")


def _check_python(launcher: str, package: str, python: str) -> None:
    try:
        result = subprocess.run([python, "-c", f"import {package}"], capture_output=True, text=True, check=False)
    except OSError as error:
        raise TestbedError(
            f"{python}: {error.strerror}; give the Python of {launcher}: --python {launcher}=PATH"
        ) from error
    if result.returncode:
        raise TestbedError(
            f"{python} cannot import {package} ({last_lines(result.stderr)}); install it there, or give another: "
            f"--python {launcher}=PATH"
        )


def _check_gpu(python: str) -> None:
    """Raise TestbedError, with what programs on NCCL need, where the Python has no GPU."""
    code = "from programs import nccl; print(nccl.missing())"
    path = {**os.environ, "PYTHONPATH": str(PROGRAMS.parent), "PYTHONDONTWRITEBYTECODE": "1"}
    result = subprocess.run([python, "-c", code], env=path, capture_output=True, text=True, check=False)
    if problem := result.stdout.strip() or last_lines(result.stderr):
        raise TestbedError(f"{python}: {problem}")


def clean(where: Path) -> list[str]:
    """Remove what killed testbeds left, by name: half-made runs in a folder, or folders on the [[hosts]] of a matrix.

    Returns a line for each thing that was removed. On this machine processes, namespaces and rules end with the
    testbed. Raises UsageError and TestbedError.
    """
    if where.is_dir():
        before = set(where.glob(f".{_SCRATCH}.*"))
        remove_left_behind(where / _SCRATCH)
        return [f"{path}: removed" for path in sorted(before) if not path.exists()]
    return remove_left_on(matrix.read(where).machines)
