"""What is known of a run without its packets: metadata, hosts in the names of files, logs, closing lines of tcpdump.

Of all this, reading the packets needs only `PacketNeeds`. While these stay the same, a changed description changes
small tables (reconcile/described.py), and no capture is read again.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ddnn_traces.ingestors.metadata import RunMetadata
from ddnn_traces.ingestors.parsed_files import folder_of
from ddnn_traces.ingestors.profilers.find import Recorded, read_profilers
from ddnn_traces.ingestors.sources import RunInput, host_label, host_stem, role_of, run_name
from ddnn_traces.ingestors.training_logs import TrainingLog, read_logs
from ddnn_traces.messages import Messages
from ddnn_traces.pcap.interface_statistics import Counters
from ddnn_traces.text import natural_order

#: Logs of a run that are tried until one lines up with its captures: where two do not, the others mostly do not either.
LOGS_TRIED = 2

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


@dataclass(frozen=True)
class PacketNeeds:
    """What the reading of packets took from the description.

    steps: of each capture, by name, the worker whose steps its packets are assigned to, and a hash of the bounds of
    these steps; None without a log. clock: hash of the logs, and of the captures of each, that the clock is estimated
    from.
    """

    steps: Mapping[str, tuple[str, str] | None]
    clock: str

    def renamed(self, now: PacketNeeds) -> dict[str, str] | None:
        """The new name of each worker where nothing else has changed; None where packets have to be read again."""
        if self.clock != now.clock or self.steps.keys() != now.steps.keys():
            return None
        names: dict[str, str] = {}
        for capture, then in self.steps.items():
            new = now.steps[capture]
            if then is None or new is None:
                if then != new:
                    return None
            elif then[1] != new[1] or names.setdefault(then[0], new[0]) != new[0]:
                return None
        return names


@dataclass(frozen=True)
class Description:
    """The description of a run. labels, log_of_file: of each capture, in order, None where there is none.

    recorded: by profilers, whose times are never shifted.
    """

    run: RunInput
    metadata: RunMetadata
    labels: tuple[str | None, ...]
    logs: tuple[TrainingLog, ...]
    log_of_file: tuple[TrainingLog | None, ...]
    counters: Mapping[Path, Counters]
    warnings: tuple[str, ...]
    recorded: tuple[Recorded, ...] = ()

    def shifted(self, clock: Callable[[int], int]) -> Description:
        """The same with other times in the logs: `clock` converts each, ns."""
        logs = {log.worker: log.shifted(clock) for log in self.logs}
        of_file = tuple(logs[log.worker] if log else None for log in self.log_of_file)
        return replace(self, logs=tuple(logs.values()), log_of_file=of_file)

    @property
    def only_worker(self) -> str | None:
        """The worker of the only log."""
        return self.logs[0].worker if len(self.logs) == 1 else None

    @property
    def clock_logs(self) -> Sequence[TrainingLog]:
        """The logs without those of parameter servers, whose steps end when answers are in the socket's buffer."""
        servers = {host.label for host in self.metadata.hosts if host.role == "parameter_server"}
        workers = [log for log in self.logs if log.worker not in servers and role_of(log.worker) != "parameter_server"]
        return workers or self.logs

    @property
    def packet_needs(self) -> PacketNeeds:
        """What the reading of packets takes from this description."""
        names = [self.run.name_of(path) for path in self.run.captures]
        of_file = zip(names, self.log_of_file, strict=True)
        steps = {name: (log.worker, _hash(log)) if log else None for name, log in of_file}
        clock = [
            (_hash(log), sorted(names[number] for number in captures_of(log, self.labels)))
            for log in self.clock_logs[:LOGS_TRIED]
        ]
        return PacketNeeds(steps, hashlib.sha256(json.dumps(clock).encode()).hexdigest())


def describe(run: RunInput, metadata: RunMetadata, clock_offset_ns: int | None) -> Description:
    """Read the logs of a run. clock_offset_ns: added to their times."""
    messages = Messages()
    logs = _logs(run, messages)
    if clock_offset_ns is not None:
        logs = [log.shifted(lambda time_ns: time_ns + clock_offset_ns) for log in logs]
    by_worker = {log.worker: log for log in logs}
    # of any name, where a log has the same one: gpu-a.pcap and train_history-gpu-a.log
    stems = ((path, host_stem(path)) for path in run.captures)
    labels = tuple(run.host(path) or (stem if stem in by_worker else None) for path, stem in stems)
    first = logs[0] if logs else None
    of_file = tuple(by_worker.get(label or "", first) for label in labels)
    recorded = read_profilers(run, metadata, labels, by_worker, messages)
    return Description(run, metadata, labels, tuple(logs), of_file, _counters(run), tuple(messages.warnings), recorded)


def captures_of(log: TrainingLog, labels: Sequence[str | None]) -> list[int]:
    """Numbers of the captures of a log's worker, of all where none is. labels: host in each file's name."""
    return [i for i, label in enumerate(labels) if label == log.worker] or list(range(len(labels)))


def _logs(run: RunInput, messages: Messages) -> list[TrainingLog]:
    """The logs in all folders of the run, in the order of their workers; of two of one worker the first."""
    logs: dict[str, TrainingLog] = {}
    for folder in run.log_folders:
        for log in read_logs(folder, messages, run.host_of_folder(folder)):
            logs.setdefault(log.worker, log)
    return sorted(logs.values(), key=lambda log: natural_order(log.worker))


def _counters(run: RunInput) -> dict[Path, Counters]:
    captures: dict[Path, list[Path]] = {}
    for path in run.captures:
        captures.setdefault(folder_of(path), []).append(path)
    found: dict[Path, Counters] = {}
    for folder in run.log_folders:
        found |= closing_lines(folder, captures.get(folder, []))
    return found


def _hash(log: TrainingLog) -> str:
    """Of the bounds of the log's steps."""
    return hashlib.sha256(log.bounds.astype("<i8").tobytes()).hexdigest()


# --- closing lines of tcpdump (print_statistics in tcpdump.c) and dumpcap (report_packets_received and dropped)


def is_counter_log(path: Path) -> bool:
    """Whether a file holds the closing lines of a capturing program."""
    return path.suffix.lower() in LOG_ENDINGS and bool(_last_counters(path))


def closing_lines(folder: Path, captures: Sequence[Path]) -> dict[Path, Counters]:
    """The counters in the logs of a folder by the capture that each belongs to.

    A log belongs to the capture with its name, else to that of the host in its name, else to the only one. Of files
    that one program wrote (x.pcap, x.pcap1) they are the first one's.
    """
    first = {run_name(path): path for path in sorted(captures, reverse=True)}
    hosts = {label: path for path in first.values() if (label := host_label(path))}
    found: dict[Path, Counters] = {}
    for log in sorted(folder.iterdir()):
        if log.suffix.lower() in LOG_ENDINGS and not log.name.startswith("."):
            counters = _last_counters(log)
            owner = _owner(log, first, hosts) if counters else None
            if owner:
                found[owner] = counters
    return found


def _owner(log: Path, captures: Mapping[str, Path], hosts: Mapping[str, Path]) -> Path | None:
    names = (run_name(Path(log.stem)), log.stem)
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
