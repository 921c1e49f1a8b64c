"""Options of an ingest, as the command and `ddnn_traces.ingest` take them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from ddnn_traces.errors import UsageError
from ddnn_traces.ingestors.flow_filter import parse
from ddnn_traces.pcap.capture_facts import SILENCE_NS
from ddnn_traces.pcap.engines import DEFAULT_ENGINE, ENGINES
from ddnn_traces.store import hashes

_TUNNELS = ("inner", "outer")
_CLOCK_OFFSETS = ("auto", "none", "offer")


@dataclass(frozen=True)
class IngestOptions:
    """How to ingest.

    engine: one of engines.ENGINES. window_ms: base window of flow_windows, ms. silence_us: silence of
    a TCP flow after which a message ends, us. hash: one of store.hashes.CHOICES, which
    identifies the files. jobs: threads; None: one for each CPU. force: read runs again that have not changed. wait:
    for another ingest into the same dataset, instead of raising BusyError. tunnels: whether a flow is what is inside a
    tunnel (inner) or the tunnel (outer). packets: whether every packet becomes a row of `packets`. filter:
    capture-filter expression for flows (flow_filter.py). clock_offset: seconds that are added to the logs' times; auto:
    the number that aligns them with the traffic; none; offer: none, with a warning when they are not aligned. run_id:
    name of the only run, which all captures are joined into. layout: of the captures' paths (sources.py). scheduler: of
    a Dask cluster that reads the captures, tcp://HOST:PORT, or local:N for N processes; None: threads of this one.
    events: profilers' files of the only run, beside those found in its folder.
    """

    engine: str = DEFAULT_ENGINE
    window_ms: float = 1.0
    silence_us: float = SILENCE_NS / 1000
    hash: str = hashes.DEFAULT
    jobs: int | None = None
    force: bool = False
    wait: bool = True
    tunnels: str = "inner"
    packets: bool = False
    filter: str | None = None
    clock_offset: str | float = "offer"
    run_id: str | None = None
    layout: str | None = None
    scheduler: str | None = None
    events: tuple[str, ...] = ()

    @property
    def window_ns(self) -> int:
        """Base window in ns. Raises UsageError when it is shorter than 1 ns or does not fit into 64 bits."""
        window_ns = round(self.window_ms * 1_000_000) if math.isfinite(self.window_ms) else 0
        if not 1 <= window_ns < 2**63:
            raise UsageError(f"a window of {self.window_ms} ms is not a length of time from 1 ns up; try --window-ms 1")
        return window_ns

    @property
    def silence_ns(self) -> int:
        """Silence after which a message ends, ns. Raises UsageError when it is shorter than 1 ns or 1 s and longer."""
        silence_ns = round(self.silence_us * 1000) if math.isfinite(self.silence_us) else 0
        if not 1 <= silence_ns < 10**9:
            raise UsageError(f"a silence of {self.silence_us} us is not above 0 and below 1 s; try --silence-us 200")
        return silence_ns

    @property
    def clock_offset_ns(self) -> int | None:
        """The number of ns to add to the logs' times; None where clock_offset is a word."""
        return None if isinstance(self.clock_offset, str) else round(self.clock_offset * 1e9)

    @property
    def parameters(self) -> dict[str, Any]:
        """The options that shape the tables, for the provenance. The filter unchanged, as text."""
        return {
            "engine": self.engine,
            "window_ns": self.window_ns,
            "silence_ns": self.silence_ns,
            "tunnels": self.tunnels,
            "packets": self.packets,
            "filter": self.filter,
            "clock_offset": self.clock_offset,
        }

    def check(self) -> None:
        """Raise UsageError for an invalid value."""
        _ = self.window_ns, self.silence_ns
        if self.engine not in ENGINES:
            raise UsageError(f"no engine named {self.engine}; there are {', '.join(ENGINES)}")
        if self.hash not in hashes.CHOICES:
            raise UsageError(f"--hash {self.hash}: it is one of {', '.join(hashes.CHOICES)}")
        if self.jobs is not None and self.jobs < 1:
            raise UsageError(f"--jobs {self.jobs} is not a number of threads; give 1 or more")
        if self.tunnels not in _TUNNELS:
            raise UsageError(f"--tunnels {self.tunnels}: it is one of {', '.join(_TUNNELS)}")
        if self.filter is not None:
            parse(self.filter)
        if isinstance(self.clock_offset, str):
            if self.clock_offset not in _CLOCK_OFFSETS:
                raise UsageError(f"--clock-offset {self.clock_offset}: it is auto, none or a number of seconds")
        elif not math.isfinite(self.clock_offset) or abs(self.clock_offset) >= 2**32:  # + logs._MOST_NS: 64 bits
            raise UsageError(f"--clock-offset {self.clock_offset}: not a number of seconds below 136 years")
