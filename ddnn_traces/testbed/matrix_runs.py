"""The runs of a matrix, one after the other: network, capture, training, measured conditions, run folder."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ddnn_traces.errors import DdnnTracesError
from ddnn_traces.testbed import conditions, faults, launch, network, run_folder
from ddnn_traces.testbed.capture import Capture, captures
from ddnn_traces.testbed.hosts import Host, clock_of, machines, time_service
from ddnn_traces.testbed.matrix import Job, Matrix, Run
from ddnn_traces.testbed.programs.program_list import DATA
from ddnn_traces.testbed.side_traffic import background

_NO_SPACE = os.strerror(errno.ENOSPC)
#: Tells what happened to a run: its name, "made", "there", "rejected" or "failed" (nothing is written), and why.
Report = Callable[[str, str, str], None]


def make_all(
    wanted: Matrix, out: Path, scratch: Path, pythons: Mapping[str, str], report: Report, tries: int = 1
) -> None:
    """Make the runs that are not there yet; after one that fails so many times the next begins.

    Nothing is tried any more when the disk is full.
    """
    full = ""
    for run in wanted.runs:
        if (out / run.name).exists():
            report(run.name, "there", "")
            continue
        outcome, why = ("failed", full) if full else ("", "")
        for _ in range(0 if full else tries):
            outcome, why = _made(wanted, run, out, scratch, pythons)
            if outcome == "made":
                break
        if outcome == "failed" and _NO_SPACE in why:
            full = "not tried: the disk is full; free some of it, and give the same command again"
        report(run.name, outcome, why)


def _made(wanted: Matrix, run: Run, out: Path, scratch: Path, pythons: Mapping[str, str]) -> tuple[str, str]:
    """Make one run; its outcome, and why or in how many seconds."""
    begin = time.monotonic()
    try:
        problems = make(wanted, run, out, scratch, pythons)
    except (DdnnTracesError, OSError) as error:
        return "failed", str(error)
    return ("rejected", "; ".join(problems)) if problems else ("made", f"{time.monotonic() - begin:.0f} s")


def make(wanted: Matrix, run: Run, out: Path, scratch: Path, pythons: Mapping[str, str]) -> list[str]:
    """Make one run and put its folder into `out`, or into `out`/rejected. Returns why it is rejected, or nothing.

    Raises TestbedError where there is nothing to put there.
    """
    work = scratch / run.name
    folder = work / "run"
    folder.mkdir(parents=True)
    with contextlib.ExitStack() as undo:
        undo.callback(shutil.rmtree, work, ignore_errors=True)
        joined = undo.enter_context(contextlib.ExitStack())
        hosts, made, slow = joined.enter_context(_hosts(wanted, run, work))
        training = hosts[: len(run.labels)]
        facts = run_folder.machine_facts(hosts[0])
        before = _measured(run, training)
        problems = conditions.compare(run.link, before, run.tolerance)
        queues = [_queues(run, hosts)]
        begin_ns = time.time_ns()
        with (
            captures(hosts, run.capture) as running,
            background(run, hosts) as beside,
            faults.watched(run, hosts, slow) as slowed,
        ):
            trained = launch.train(run, training, folder, pythons, slowed)
        queues.append(_queues(run, hosts))
        after = _measured(run, training)
        problems += trained.problems + [problem for capture in running for problem in _lost(capture)]
        problems += conditions.compare(run.link, after, run.tolerance)
        origin = {
            **facts,
            "begin_ns": begin_ns,
            "hosts": "network namespaces of one machine" if not wanted.machines else "machines reached by ssh",
            "offload": None if wanted.machines else "on" if run.capture.offload else "off",
            "link": {
                "asked_for": asdict(run.link),
                "tolerance": asdict(run.tolerance),
                "made_by": made,
                "measured_before": before,
                "measured_after": after,
                "queues": {"before_training": queues[0], "after_training": queues[1]},
            },
            "background": beside or None,
            "fault": trained.killed or faults.origin(slowed),
            "capture": _captured(run, running),
            "network": network.facts(hosts[0], run),
            "commands": trained.commands,
            "clocks": {host.label: _clock(host) for host in hosts if host.remote},
        }
        run_folder.collect(folder, hosts, running, run.capture.compress)
        joined.close()  # only then are all counts there
        problems += conditions.lost(made, *queues)
        truths = [run_folder.read_truth(folder / run.folder_of(job) / "truth.json") for job in run.jobs]
        origin["jobs"] = [
            {"program": job.program, "compute": job.compute, "options": dict(job.options), **_recorded(job), **truth}
            for job, truth in zip(run.jobs, truths, strict=True)
        ]
        run_folder.write_run_toml(folder, run, hosts, truths, faults.truth(run), origin, problems)
        rejected = out / run_folder.REJECTED / run.name
        run_folder.put(folder, rejected if problems else out / run.name)
        if not problems:
            shutil.rmtree(rejected, ignore_errors=True)  # an earlier try
            with contextlib.suppress(OSError):
                rejected.parent.rmdir()  # the last one there
    return problems


@contextlib.contextmanager
def _hosts(wanted: Matrix, run: Run, work: Path) -> Iterator[tuple[list[Host], dict[str, Any], Any]]:
    """The run's hosts, bystanders last, joined, and what makes the conditions of their links; see conditions.links."""
    if wanted.machines:
        with machines(wanted.machines, run.labels) as hosts:
            yield hosts, {}, None
        return
    with network.namespaces(run, work, sys.executable) as hosts, conditions.links(run, hosts) as (made, slow):
        if run.link.congestion_control:
            for host in hosts:
                network.use_congestion_control(host, run.link.congestion_control)
        yield hosts, made, slow


def _measured(run: Run, hosts: Sequence[Host]) -> list[dict[str, Any]]:
    """What the links of the run are, from each host to the next; nothing where the matrix says so."""
    return conditions.measure(hosts, run.link, run.tolerance) if run.measure else []


def _queues(run: Run, hosts: Sequence[Host]) -> dict[str, Any]:
    """Counters of the queues of links that the testbed has made."""
    return {} if hosts[0].remote else conditions.counters(hosts, run.link.loss_pct)


def _lost(capture: Capture) -> list[str]:
    """What a capture lacks, in words."""
    dropped = capture.counts.get("dropped_by_kernel", 0)
    lost = (
        [f"tcpdump on {capture.host.label} lost {dropped:,} packets; use fewer hosts, or a lower rate"]
        if dropped
        else []
    )
    return lost if capture.complete else [*lost, f"tcpdump on {capture.host.label} did not write all that it received"]


def _clock(host: Host) -> dict[str, Any]:
    """The host's clock against that of the machine that runs the testbed."""
    return {**asdict(clock_of(host)), "service": time_service(host)}


def _recorded(job: Job) -> dict[str, Any]:
    """What PyTorch recorded, real data, steps that warm up and several ranks, where there are any."""
    said = {"trace": job.trace, "warm_up": job.warm_up, "ranks": job.ranks if job.ranks > 1 else None}
    said["data"] = job.data if job.data != DATA[0] else None
    return {name: value for name, value in said.items() if value}


def _captured(run: Run, running: Sequence[Capture]) -> dict[str, Any]:
    return {
        "direction": run.capture.direction,
        "snaplen": run.capture.snaplen,
        "commands": {capture.host.label: capture.host.shown(capture.command) for capture in running},
        "counts": {capture.host.label: capture.counts for capture in running},
    }
