"""What the page's address says: the runs, the settings that they are chosen by, and the time that is shown."""

from __future__ import annotations

import contextlib
import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from ddnn_traces.explore.answers import Selection
from ddnn_traces.explore.contents import ALL
from ddnn_traces.report.explorer import FACETS
from ddnn_traces.text import natural_order

#: Of the runs in an address; servers of WebSockets take 8 kB of it in all.
_MOST_LETTERS = 4000


@dataclass(frozen=True)
class State:
    """The page's state. facets: the chosen value of each setting that has one. is_narrow: charts for a phone."""

    selection: Selection
    facets: Mapping[str, str] = field(default_factory=dict)
    is_narrow: bool = False


class Address:
    """The page's address: marimo's query parameters, without that each change runs the cells that read them anew.

    known: the settings of each run (explorer.settings).
    """

    def __init__(self, parameters: Any, known: Sequence[Mapping[str, Any]]) -> None:
        self._parameters, self._known = parameters, known

    def state(self) -> State:
        """What the address says now."""
        return read(self._parameters.to_dict(), self._known)

    def keep(self, **values: str | None) -> State:
        """Change these parameters, None: remove; return what the address then says."""
        for key, value in values.items():
            if value is None:
                self._parameters.remove(key)
            else:
                self._parameters.set(key, value)
        return self.state()

    def keep_runs(self, runs: Sequence[str]) -> State:
        """Change the chosen runs. marimo's page tells one value of each key, so they are one list."""
        text = json.dumps(list(runs), ensure_ascii=False)
        if len(quote(text)) > _MOST_LETTERS:  # their places among all runs
            place = {run["run_id"]: number for number, run in enumerate(self._known)}
            text = json.dumps([place[run] for run in runs], separators=(",", ":"))
        return self.keep(run=None, runs=text)

    def keep_zoom(self, zoom: tuple[float, float] | None) -> State:
        """Change the time that is shown."""
        begin_s, end_s = (f"{time_s:.9g}" for time_s in zoom) if zoom else (None, None)
        return self.keep(**{"from": begin_s, "to": end_s})


def read(address: Mapping[str, str | Sequence[str]], known: Sequence[Mapping[str, Any]]) -> State:
    """The state in the query of an address; what it does not say, or says of no run, is as at the start.

    known: the settings of each run (explorer.settings).
    """
    facets = {name: values[0] for name in FACETS if (values := _listed(address, name))}
    there = [str(run["run_id"]) for run in known]
    places = {place: run for run, *both in zip(there, there, range(len(there)), strict=True) for place in both}
    chosen = dict.fromkeys(places[run] for run in _runs(address) if run in places)
    runs = tuple(chosen) or tuple(fitting(known, facets)[:1])
    return State(Selection(runs, _zoom(address)), facets, bool(_listed(address, "narrow")))


def _runs(address: Mapping[str, str | Sequence[str]]) -> list[str | int]:
    """Of runs, names or places as a list in JSON, or of run, which is one name."""
    with contextlib.suppress(ValueError, IndexError, TypeError):
        return [run for run in json.loads(_listed(address, "runs")[0]) if isinstance(run, str | int)]
    return [*_listed(address, "run")]


def _listed(address: Mapping[str, str | Sequence[str]], name: str) -> list[str]:
    values = address.get(name, [])
    return [values] if isinstance(values, str) else list(values)


def _zoom(address: Mapping[str, str | Sequence[str]]) -> tuple[float, float] | None:
    try:
        begin_s, end_s = (float(_listed(address, name)[0]) for name in ("from", "to"))
    except (IndexError, ValueError):
        return None
    is_zoom = math.isfinite(begin_s) and begin_s < end_s < math.inf
    return (begin_s, end_s) if is_zoom or (begin_s, end_s) == ALL else None


def fitting(
    known: Sequence[Mapping[str, Any]], facets: Mapping[str, str], kept: Sequence[str] = (), but: str = ""
) -> list[str]:
    """The runs of these settings, in their order. kept: those that stay all the same. but: a setting not looked at."""
    return [
        run["run_id"]
        for run in known
        if run["run_id"] in kept or all(_value(run, name) == value for name, value in facets.items() if name != but)
    ]


def counts(known: Sequence[Mapping[str, Any]], facets: Mapping[str, str]) -> dict[str, dict[str, int]]:
    """For each setting its values, with how many runs have it among those that the other settings leave."""
    found = {}
    for facet in FACETS:
        left = set(fitting(known, facets, but=facet))
        values = Counter(_value(run, facet) for run in known if run["run_id"] in left)
        found[facet] = dict(sorted(values.items(), key=lambda item: natural_order(item[0])))
    return found


def _value(run: Mapping[str, Any], facet: str) -> str:
    return str(run[facet] or "not known")
