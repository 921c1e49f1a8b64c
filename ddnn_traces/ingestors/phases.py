"""Phases of a worker's steps, where its program wrote them down: phases-WORKER.csv.

A row is a step with four times in unix seconds: `step,t_begin,t_comm_begin,t_comm_end,t_end`. Computation is what comes
before communication, and what comes after it is the update.
"""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from decimal import Decimal, DecimalException
from pathlib import Path

from ddnn_traces.talk import Talk

_TIMES = ("t_begin", "t_comm_begin", "t_comm_end", "t_end")
_KINDS = ("compute", "communicate", "update")


@dataclass(frozen=True)
class Event:
    """One row of `events`, without run and worker."""

    step: int
    kind: str
    start_ns: int
    end_ns: int

    def shifted(self, clock: Callable[[int], int]) -> Event:
        """The same with other times: `clock` tells for each, ns."""
        return replace(self, start_ns=clock(self.start_ns), end_ns=clock(self.end_ns))


@dataclass(frozen=True)
class Phases:
    """What a phases file tells: begin of its first step, ns (None: nothing), and the intervals."""

    first_begin_ns: int | None = None
    events: tuple[Event, ...] = field(default=())


def read_phases(path: Path, talk: Talk) -> Phases:
    """The phases in a file, nothing where there is none; rows that cannot be read are warned about and left out."""
    if not path.exists():
        return Phases()
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = list(csv.DictReader(file))
        begin_ns = seconds_to_ns((rows[0] if rows else {}).get("t_begin") or "")
    except (ValueError, OSError, csv.Error) as error:
        talk.warn(f"{path}: not used, its first row has no t_begin in unix seconds ({type(error).__name__}); mend it")
        return Phases()
    if not set(_TIMES) <= rows[0].keys():
        return Phases(begin_ns)
    events: list[Event] = []
    unread = []
    for line, row in enumerate(rows, start=2):
        try:
            events += _events(row)
        except ValueError:
            unread.append(line)
    if unread:
        talk.warn(
            f"{path}: {len(unread)} lines have no step and four times in order, the first is line {unread[0]}; the "
            "phases of these steps are not known"
        )
    return Phases(begin_ns, tuple(events))


def _events(row: dict[str, str | None]) -> list[Event]:
    """Intervals of a step. Raises ValueError where a time is missing or before the one it follows."""
    step = int(row.get("step") or "")
    times = [seconds_to_ns(row.get(name) or "") for name in _TIMES]
    if step < 0 or times != sorted(times):
        raise ValueError(row)
    return [Event(step, kind, start, end) for kind, start, end in zip(_KINDS, times[:-1], times[1:], strict=True)]


def seconds_to_ns(text: str) -> int:
    """Decimal unix seconds to int ns, exactly (a double is good to about 200 ns there). Raises ValueError."""
    try:
        ns = Decimal(text.strip()) * 1_000_000_000
        in_range = 0 <= ns < 2**63  # before int(), which takes seconds for 1e999990
    except DecimalException as error:
        raise ValueError(text) from error
    if not in_range:
        raise ValueError(f"{text} is no time after 1970 in seconds")
    return int(ns.to_integral_value())
