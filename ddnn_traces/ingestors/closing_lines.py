"""What the capturing program counted, in its log: the closing lines of tcpdump and dumpcap.

print_statistics in tcpdump.c; report_packets_received and dropped in dumpcap.c.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from ddnn_traces.ingestors.sources import host_label, run_name
from ddnn_traces.pcap.interface_statistics import Counters

#: Endings of files in a run's folder that may hold the closing lines of a capturing program.
LOG_ENDINGS = (".log", ".txt", ".err", ".stderr", ".out")
_LAST_BYTES = 1 << 14  # of such a file: the lines are its last
_LINES = {
    "delivered_packets": re.compile(r"(\d{1,18}) packets? captured"),
    "filter_accepted_packets": re.compile(r"(\d{1,18}) packets? received by filter"),
    "kernel_dropped_packets": re.compile(r"(\d{1,18}) packets? dropped by kernel"),
    "interface_dropped_packets": re.compile(r"(\d{1,18}) packets? dropped by interface"),
}
_DUMPCAP = re.compile(r"Packets received/dropped on interface '[^'\n]*': (\d{1,18})/(\d{1,18})")


def is_counter_log(path: Path) -> bool:
    """Whether a file holds the closing lines of a capturing program."""
    return path.suffix.lower() in LOG_ENDINGS and bool(_last_counters(path))


def closing_lines(folder: Path, captures: Sequence[Path]) -> dict[Path, Counters]:
    """The counters in the logs of a folder by the capture that each belongs to.

    A log belongs to the capture with its name, else to that of the host in its name, else to the only one. Of files
    that one program wrote (x.pcap, x.pcap1) they are the first one's.
    """
    first = {run_name(path): path for path in sorted(captures, reverse=True)}
    found: dict[Path, Counters] = {}
    for log in sorted(folder.iterdir()):
        if log.suffix.lower() in LOG_ENDINGS and not log.name.startswith("."):
            counters = _last_counters(log)
            owner = _owner(log, first) if counters else None
            if owner:
                found[owner] = counters
    return found


def _owner(log: Path, captures: dict[str, Path]) -> Path | None:
    names = (run_name(Path(log.stem)), log.stem)
    hosts = {host_label(path): path for path in captures.values() if host_label(path)}
    for name in names:
        if name in captures:
            return captures[name]
    words = re.sub(r"[-_.]?(tcpdump|dumpcap|capture|stderr|err|log|out)[-_.]?", "", log.stem)
    return hosts.get(words) or (next(iter(captures.values())) if len(captures) == 1 else None)


def _last_counters(log: Path) -> Counters:
    """The last number of each kind; empty where the file holds no closing lines, or cannot be read."""
    try:
        if not log.is_file():
            return {}
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - _LAST_BYTES))
            text = file.read(_LAST_BYTES).decode(errors="replace")
    except OSError:
        return {}
    found: Counters = {}
    if "filter" in text:  # tshark and others say "packets captured" too
        found = {name: int(numbers[-1]) for name, line in _LINES.items() if (numbers := line.findall(text))}
        found |= {"counter_source": "tcpdump"} if found else {}
    interfaces = _DUMPCAP.findall(text)
    if interfaces:
        found = {
            "delivered_packets": sum(int(received) for received, _ in interfaces),
            "kernel_dropped_packets": sum(int(dropped) for _, dropped in interfaces),
            "counter_source": "dumpcap",
        }
    return found
