"""The clock of a run's logs against that of its captures: found, told, and applied where it was asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ddnn_traces.ingestors.facts import CaptureFacts
from ddnn_traces.ingestors.logs import TrainingLog
from ddnn_traces.ingestors.reconcile.clocks import LogOffset, is_off, log_offset, read_traffic
from ddnn_traces.ingestors.reconcile.vantage import find_vantages

#: Logs of a run that are tried until one lines up with its captures: where two do not, the others mostly do not either.
_LOGS_TRIED = 2

#: Time zones differ by multiples of this; an offset so near to one, ns, is one.
_ZONE_NS, _NEAR_ZONE_NS = 15 * 60 * 10**9, 10_000_000


@dataclass(frozen=True)
class LogClock:
    """What was added to the logs' times, ns (None: there is no log), and what would have to be (None: cannot be told).

    middle_ns: time by the logs at which the estimate holds; away from it the drift adds up.
    """

    applied_ns: int | None = None
    estimate: LogOffset | None = None
    middle_ns: int = 0

    @property
    def is_off(self) -> bool:
        """Whether what was added differs from what would have to be by more than the estimate's error."""
        if self.estimate is None:
            return False
        return is_off(replace(self.estimate, offset_ns=self.estimate.offset_ns - (self.applied_ns or 0)))

    def behind(self, applied_ns: int) -> LogClock:
        """The same, seen from the logs before `applied_ns` was added to the times that the estimate was made with."""
        if self.applied_ns is None:
            return self
        estimate = self.estimate and replace(self.estimate, offset_ns=self.estimate.offset_ns + applied_ns)
        return LogClock(applied_ns, estimate, self.middle_ns - applied_ns)

    @property
    def correction(self) -> Callable[[int], int]:
        """From a time by the logs to one by the captures, as estimated, with the drift, ns."""
        assert self.estimate
        offset, drift, middle = self.estimate.offset_ns, (self.estimate.drift_ppm or 0.0) * 1e-6, self.middle_ns
        return lambda time_ns: time_ns + offset + round((time_ns - middle) * drift)


def estimate_clock(
    logs: Sequence[TrainingLog], files: Sequence[CaptureFacts], labels: Sequence[str | None], window_ns: int
) -> LogClock:
    """Line up the run's logs, as they are, with what their workers' captures hold. labels: host in each file's name.

    The first log that tells counts for all: they are of one run, and mostly of one clock.
    """
    vantages = find_vantages(files)
    for log in logs[:_LOGS_TRIED]:
        own = [i for i, label in enumerate(labels) if label == log.worker] or list(range(len(files)))
        hosts = {vantages[i] for i in own}
        host = next(iter(hosts)) if len(hosts) == 1 else None
        estimate = log_offset(log.bounds, read_traffic([files[i] for i in own], host, window_ns))
        if estimate:
            estimate = replace(estimate, offset_ns=_whole_zones(estimate.offset_ns))
            return LogClock(0, estimate, int(log.bounds[0] + (log.bounds[-1] - log.bounds[0]) // 2))
    return LogClock(0 if logs else None)


def _whole_zones(offset_ns: int) -> int:
    """The offset, or the difference of time zones that it is but for the time from a step's last packet to its end."""
    zones = round(offset_ns / _ZONE_NS) * _ZONE_NS
    return zones if zones and abs(offset_ns - zones) <= _NEAR_ZONE_NS else offset_ns
