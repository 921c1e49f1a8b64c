"""Which links this machine can make: measured once, so that a sweep is refused before its first run, not later."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from ddnn_traces.errors import TestbedError, UsageError
from ddnn_traces.testbed import conditions, network
from ddnn_traces.testbed.matrix import Job, Link, Matrix, Run

_DELAY_MS = 1.0


def measure(scratch: Path) -> dict[str, float | str]:
    """rate_mbit, and rate_with_delay_mbit or why_no_delay: what unshaped links of two hosts reach.

    Runs inside isolation.py's namespaces. Raises TestbedError where there are no links at all.
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
    with network.namespaces(run, folder, sys.executable) as hosts, conditions.links(run, hosts):
        # the best of three: what the machine reaches, not what it reaches in a moment in which others have it
        found = [conditions.measure(hosts, link, run.tolerance) for _ in range(3)]
    return max(min(float(way["rate_mbit"]) for way in ways) for ways in found)


def check_time_limits(wanted: Matrix) -> None:
    """Raise UsageError, which names the run, where one has no time limit. It needs no measurement."""
    for run in wanted.runs:
        if run.time_limit_s is None:
            raise UsageError(f"{run.name}: no time_limit_s; give one, also in [defaults]: a run may not finish")


def check(wanted: Matrix, found: Mapping[str, float | str]) -> None:
    """Raise UsageError, which names the run, where one has a link that this machine cannot make."""
    for run in wanted.runs:
        link = run.link
        if link.delay_ms and "why_no_delay" in found:
            raise UsageError(f"{run.name}: delay_ms = {link.delay_ms:g} cannot be made here: {found['why_no_delay']}")
        reached = float(found["rate_with_delay_mbit" if link.delay_ms else "rate_mbit"])
        if link.rate_mbit and reached < link.rate_mbit * (1 - run.tolerance.rate_pct / 100):
            raise UsageError(
                f"{run.name}: rate_mbit = {link.rate_mbit:g}, and links of this machine reach {reached:.0f} Mbit/s"
                f"{' with a delay' if link.delay_ms else ''}; give a lower rate"
            )
