"""Labels of hosts and names of captures: those that say no more than a role stay, the others become such."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from ddnn_traces.ingestors.logs import natural_order
from ddnn_traces.ingestors.sources import host_label, run_name
from ddnn_traces.release.anonymise.key import Key

#: worker-1, w2, ps-0, chief: no host is named so but for its part in the training. A node17 or server3 may well be.
_ROLE_WORD = re.compile(r"(worker|w|ps|parameter[-_]server|chief|master)([-_]?\d{1,5})?", re.IGNORECASE)

_WORKER_0 = re.compile(r"(worker|w)[-_]?0", re.IGNORECASE)

_Row = Mapping[str, Any]


def is_role_word(label: str) -> bool:
    """Whether a label says the host's part in the training and no more."""
    return _ROLE_WORD.fullmatch(label) is not None


def tag(key: Key, kind: str, value: str) -> str:
    """Eight hex digits that stand for a value, the same in every run and release of the key."""
    return key.derive(f"{kind} {value}", 4).hex()


def unique(name: str, taken: Collection[str]) -> str:
    """The name, or it with -b, -c, ... behind it where it is taken."""
    if name not in taken:
        return name
    number = 1
    while (numbered := f"{name}-{_letters(number)}") in taken:
        number += 1
    return numbered


def _letters(number: int) -> str:
    """1 is b, 25 z, 26 ba."""
    letters = ""
    while number:
        number, digit = divmod(number, 26)
        letters = chr(ord("a") + digit) + letters
    return letters


def first_number(labels: Iterable[str | None]) -> int:
    """The number of the first worker: 0 where a host or a log is called worker-0 (published Zerwas data), else 1."""
    return 0 if any(label and _WORKER_0.fullmatch(label) for label in labels) else 1


def by_role(host: _Row, key: Key, first: int = 1) -> str | None:
    """Name of a host by role and rank; None without a role that says something. first: number of rank 0."""
    role, rank = host["role"], host["rank"]
    if role in (None, "other"):
        return None
    if rank is not None:
        return f"{role}-{rank + first}"
    return "chief" if role == "chief" else f"{role}-{tag(key, 'host', host['host_ip'])}"


def labels(key: Key, hosts: Collection[_Row], workers: Collection[str]) -> dict[str, str]:
    """The new label of each label of a run. hosts: rows of the table; workers: those named by steps and events.

    A worker that logs name and no host is called may be a host by its role and rank: that gets the worker's label,
    unless logs have its own label, too.
    """
    given = {host["label"] for host in hosts if host["label"] is not None}
    first = first_number([*given, *workers])
    told = {host["label"]: by_role(host, key, first) for host in hosts if host["label"] is not None}
    mapped = {label: label for label in given | set(workers) if is_role_word(label)}
    others = (given | set(workers)) - mapped.keys()
    taken = {label for label in mapped if label in given}
    for label in sorted(others, key=lambda label: key.derive(f"order {label}", 16)):  # not that of the names
        others_workers = set(mapped) if label in workers else set()
        mapped[label] = unique(told.get(label) or f"host-{tag(key, 'label', label)}", taken | others_workers)
        taken.add(mapped[label])
    return mapped


def captures(rows: Iterable[_Row], labels_by_ip: Mapping[str, str]) -> dict[str, str]:
    """The new name of each capture of a run: worker-1.pcap, or capture.pcap where no host is known.

    rows: of the table captures. labels_by_ip: new labels. Files that tcpdump -C continued (x.pcap, x.pcap1) stay so.
    """
    series: dict[str, list[_Row]] = {}
    for row in rows:
        series.setdefault(run_name(Path(row["capture_id"])), []).append(row)
    mapped: dict[str, str] = {}
    taken: set[str] = set()
    for files in sorted(series.values(), key=lambda files: min(map(_begin, files))):
        stem = unique(_stem(files, labels_by_ip), taken)
        taken.add(stem)
        for number, row in enumerate(sorted(files, key=lambda row: natural_order(row["capture_id"]))):
            mapped[row["capture_id"]] = f"{stem}.pcap{number or ''}"
    return mapped


def _stem(files: list[_Row], labels_by_ip: Mapping[str, str]) -> str:
    known = [labels_by_ip[row["vantage_ip"]] for row in files if row["vantage_ip"] in labels_by_ip]
    named = host_label(Path(files[0]["capture_id"]))
    if known:
        return known[0]
    return named if named and is_role_word(named) else "capture"


def _begin(row: _Row) -> tuple[int, str]:
    return row["first_ns"] or 0, row["sha256"] or ""
