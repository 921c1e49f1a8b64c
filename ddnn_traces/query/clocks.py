"""Runs whose hosts have clocks that differ: what is wrong then, and how to mend it."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator

from ddnn_traces.text import digits, listed

#: The run, name, offset (ns) and its uncertainty of each captured host whose clock could be compared.
OFFSETS = """
SELECT c.run_id, coalesce(any_value(label), vantage_ip) AS host, any_value(clock_offset_ns) AS offset_ns,
       any_value(clock_offset_uncertainty_ns) AS uncertainty_ns
FROM captures AS c
LEFT JOIN hosts AS h ON h.run_id = c.run_id AND h.host_ip = vantage_ip
WHERE vantage_ip IS NOT NULL AND clock_offset_ns IS NOT NULL
GROUP BY c.run_id, vantage_ip, clock_reference_ip
ORDER BY c.run_id, vantage_ip
"""

#: Queries whose rows compare times of different hosts.
BETWEEN_HOSTS = frozenset(
    {"collective_comparison", "collective_delays", "collective_entries", "critical_path", "late_together", "long_steps"}
    | {"verdicts"}
)

_TOLERANCE_NS = 5_000_000  # as of the check host_clock: beyond the uncertainty of both
_ONE_WAY_TOLERANCE_NS = 1_000_000_000  # where the uncertainty is null, the network's delay is in the offset
_MOST_HOSTS = 3  # in a sentence


def differences(offsets: Iterable[tuple[str, str, int, int | None]]) -> Iterator[tuple[str, str]]:
    """The run, and what is said of it, where two of its hosts have clocks that differ. offsets: the rows of OFFSETS."""
    runs: dict[str, list[tuple[str, int, int | None]]] = {}
    for run_id, host, offset_ns, uncertainty_ns in offsets:
        runs.setdefault(run_id, []).append((host, offset_ns, uncertainty_ns))
    for run_id, hosts in runs.items():
        behind, ahead = min(hosts, key=lambda host: host[1]), max(hosts, key=lambda host: host[1])
        if ahead[1] - behind[1] > _tolerance_ns(behind[2], ahead[2]):
            yield run_id, _sentence(ahead, behind, {name: offset for name, offset, _ in hosts})


def _tolerance_ns(*uncertainties_ns: int | None) -> int:
    known = [uncertainty for uncertainty in uncertainties_ns if uncertainty is not None]
    return _TOLERANCE_NS + sum(known) if len(known) == len(uncertainties_ns) else _ONE_WAY_TOLERANCE_NS


def _sentence(ahead: tuple[str, int, int | None], behind: tuple[str, int, int | None], clocks: dict[str, int]) -> str:
    usual_ns = statistics.median_low(clocks.values())
    shifts = [
        f"editcap -t {(usual_ns - offset) / 1e9:.6f}".rstrip("0") + f" for {name}"
        for name, offset in clocks.items()
        if abs(usual_ns - offset) > _TOLERANCE_NS / 2
    ]
    apart = digits((ahead[1] - behind[1]) / 1e6)
    return (
        f"The clocks of {ahead[0]} and {behind[0]} differ by {apart} ms (check host_clock): "
        "times between hosts are wrong by up to that, and so may be which host is late, and what it costs. Shift the "
        f"captures ({listed(shifts, _MOST_HOSTS)}) and ingest them again."
    )
