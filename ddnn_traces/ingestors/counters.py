"""What the capturing program counted: Interface Statistics Blocks of a pcapng, closing lines of tcpdump and dumpcap.

draft-ietf-opsawg-pcapng, 4.6; print_statistics in tcpdump.c; report_packets_received and dropped in dumpcap.c.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from pathlib import Path

from ddnn_traces.capture_format import (
    BYTE_ORDERS,
    INTERFACE_STATISTICS,
    LEAST_BLOCK_BYTES,
    MOST_BLOCK_BYTES,
    PCAPNG,
    pcapng_options,
)
from ddnn_traces.ingestors.sources import host_label, run_name

Counters = dict[str, int | str]

#: Columns of captures by the option of an Interface Statistics Block.
_OPTIONS = {
    4: "interface_received_packets", 5: "interface_dropped_packets", 6: "filter_accepted_packets",
    7: "kernel_dropped_packets", 8: "delivered_packets",
}  # fmt: skip
#: Columns of captures that are counters, and where they are from; OF_FILE: the capture itself.
COLUMNS = (*_OPTIONS.values(), "counter_source")
OF_FILE = "pcapng"
_STATISTICS_BYTES = 24  # of the shortest block
_MOST_COUNT = 2**63 - 1

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


class InterfaceStatistics:
    """The last block of each interface of a pcapng."""

    def __init__(self) -> None:
        self._last: dict[tuple[int, int], dict[str, int]] = {}

    def add(self, section: int, byte_order: str, block: bytes) -> None:
        """Take a whole Interface Statistics Block; one that breaks the format states nothing."""
        if len(block) < _STATISTICS_BYTES:
            return
        (interface,) = struct.unpack_from(byte_order + "I", block, 8)
        counts: dict[str, int] = {}
        for code, value in pcapng_options(byte_order, block[20:-4]):
            if code in _OPTIONS and len(value) == 8:
                (count,) = struct.unpack(byte_order + "Q", value)
                if count <= _MOST_COUNT:
                    counts[_OPTIONS[code]] = count
        self._last[section, interface] = counts

    @property
    def counters(self) -> Counters:
        """Sums over the interfaces; empty where no block states a number."""
        found: Counters = {}
        for name in _OPTIONS.values():
            stated = [counts[name] for counts in self._last.values() if name in counts]
            if stated:
                found[name] = min(sum(stated), _MOST_COUNT)
        return found | ({"counter_source": OF_FILE} if found else {})


class StatisticsFinder:
    """The Interface Statistics Blocks in the bytes of a file, for a reader that does not see blocks.

    `feed` gets the bytes in order, cut anywhere. Of a file that is no pcapng, and after damage, nothing is found.
    """

    def __init__(self) -> None:
        self.statistics = InterfaceStatistics()
        self._waiting = bytearray()  # from the start of a block on
        self._skipped = 0  # bytes to come of a block that is of no interest
        self._byte_order = ""
        self._sections = 0
        self._ended = False

    def feed(self, data: bytes | memoryview) -> None:
        """Take the next bytes of the file."""
        if self._ended:
            return
        self._waiting += data[self._skipped :]
        self._skipped = max(0, self._skipped - len(data))
        at = 0
        while len(self._waiting) - at >= LEAST_BLOCK_BYTES and not self._ended:
            size = self._block_bytes(at)
            is_wanted = size and self._waiting[at : at + 4] == struct.pack(self._byte_order + "I", INTERFACE_STATISTICS)
            if is_wanted and at + size > len(self._waiting):
                break
            if is_wanted:
                self.statistics.add(self._sections, self._byte_order, bytes(self._waiting[at : at + size]))
            at += size
        self._skipped += max(0, at - len(self._waiting))
        del self._waiting[:at]

    def _block_bytes(self, at: int) -> int:
        """Length of the block that begins there; 0 ends the search."""
        if self._waiting[at : at + 4] == PCAPNG:
            self._byte_order = BYTE_ORDERS.get(bytes(self._waiting[at + 8 : at + 12]), "")
            self._sections += 1
        size = int(struct.unpack_from(self._byte_order + "I", self._waiting, at + 4)[0]) if self._byte_order else 0
        self._ended = not LEAST_BLOCK_BYTES <= size <= MOST_BLOCK_BYTES or size % 4 != 0
        return 0 if self._ended else size


def is_counter_log(path: Path) -> bool:
    """Whether a file holds the closing lines of a capturing program."""
    return path.suffix.lower() in LOG_ENDINGS and bool(_last_counters(path))


# --- closing lines


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
