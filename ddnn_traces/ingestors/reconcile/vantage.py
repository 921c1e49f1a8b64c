"""The vantage of each capture: the host where it was taken, and which of several copies of a packet counts.

A packet captured at two hosts counts once (duplicate_vantage in the ledger). The decision is made for a directed
five-tuple: the copy at its sender counts where the sender's own capture has it, else the one at its receiver, else
the fullest. So a capture that holds only what its host received loses nothing. A copy that holds clearly less than
another (its capture lost packets), or anything less where its file is cut, counts only where there is no better one.
Files of one host that follow each other (tcpdump -C, -G) are one series and all count; series of one host whose times
overlap (-i any and -i eth0) captured the same packets.
"""

from __future__ import annotations

import bisect
import ipaddress
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache

import pyarrow as pa

from ddnn_traces.ingestors.sources import series_name
from ddnn_traces.pcap.capture_facts import CaptureFacts

#: Share of a file's packets that a host must be an end of for the file to be that host's own capture.
OWN_SHARE = 0.98
#: Share of a file's time by which the next file of its series may begin too early.
OUT_OF_ORDER_SHARE = 0.01


@lru_cache(maxsize=1 << 16)
def is_host(address: str) -> bool:
    """Whether an address is a single host's: not multicast, limited broadcast or unspecified."""
    ip = ipaddress.ip_address(address)
    return not (ip.is_multicast or ip.is_unspecified or address == "255.255.255.255")


def find_vantages(files: Sequence[CaptureFacts]) -> list[str | None]:
    """Address of the host where each file was captured; None at a mirror port, or where two hosts fit.

    A file with a single sender is its sender's. Else it is the host's that is an end of all packets, else of nearly
    all. Where two fit (a file between two hosts), those that other files have claimed drop out.
    """
    # one for x.pcap, x.pcap1, ...: the last may hold next to nothing
    names = [series_name(file.capture_id) for file in files]
    flows: dict[str, list[pa.Table]] = {}
    for file, name in zip(files, names, strict=True):
        flows.setdefault(name, []).append(file.flows)
    candidates = {name: _candidates(pa.concat_tables(parts)) for name, parts in flows.items()}
    found: dict[str, str] = {}
    progress = True
    while progress:
        progress = False
        for name, fitting in candidates.items():
            left = fitting if len(fitting) == 1 else fitting - set(found.values())
            if name not in found and len(left) == 1:
                found[name] = next(iter(left))
                progress = True
    return [found.get(name) for name in names]


def _candidates(flows: pa.Table) -> set[str]:
    sent: Counter[str] = Counter()
    ends: Counter[str] = Counter()
    total = 0
    columns = (flows[name].to_pylist() for name in ("src_ip", "dst_ip", "packets"))
    for src, dst, packets in zip(*columns, strict=True):
        total += packets
        sent[src] += packets
        for ip in {src, dst}:
            ends[ip] += packets

    def hosts(counts: Counter[str], least: float) -> set[str]:
        return {ip for ip, packets in counts.items() if packets >= least and packets and is_host(ip)}

    nearly = OWN_SHARE * total
    return hosts(sent, total) or hosts(ends, total) or hosts(sent, nearly) or hosts(ends, nearly)


def number_series(files: Sequence[CaptureFacts], vantages: Sequence[str | None]) -> list[int]:
    """Number of the series that each file belongs to: files of one vantage that follow each other are one series.

    Each file continues the series of its name (x.pcap, x.pcap1), else the one whose end is nearest to its start, or
    begins one. Of thousands that were captured at the same time, each is compared only with those that ended before.
    """
    numbers = [-1] * len(files)
    last: dict[int, CaptureFacts] = {}  # the last file of each series
    ends: dict[str | None, list[tuple[int, int]]] = {}  # vantage -> end and number of each series, by its end
    for i in _in_time(files):
        series = ends.setdefault(vantages[i], [])
        begin, end = _span(files[i])
        ended = series[: bisect.bisect_right(series, OUT_OF_ORDER_SHARE * (end - begin), key=lambda s: s[0] - begin)]
        gaps = [(*_gap(last[number], files[i]), number) for _, number in ended if _continues(last[number], files[i])]
        number = numbers[i] = min(gaps, default=(i,))[-1]
        if number in last:
            series.remove((_span(last[number])[1], number))
        last[number] = files[i]
        bisect.insort(series, (end, number))
    return numbers


def order_of_files(files: Sequence[CaptureFacts]) -> list[int]:
    """Place of each file among all, by its times."""
    places = {i: place for place, i in enumerate(_in_time(files))}
    return [places[i] for i in range(len(files))]


def _in_time(files: Sequence[CaptureFacts]) -> list[int]:
    return sorted(range(len(files)), key=lambda i: (_span(files[i]), files[i].capture_id))


def _continues(before: CaptureFacts, after: CaptureFacts) -> bool:
    """Whether `after` begins where `before` ends. Packets near a rotation may be out of order by their time stamps."""
    (first, end), (begin, last) = _span(before), _span(after)
    return last > end and end - begin <= OUT_OF_ORDER_SHARE * min(end - first, last - begin)


def _gap(before: CaptureFacts, after: CaptureFacts) -> tuple[bool, int]:
    is_other = series_name(before.capture_id) != series_name(after.capture_id)
    return is_other, abs(_span(after)[0] - _span(before)[1])


def _span(file: CaptureFacts) -> tuple[int, int]:
    return file.first_ns or 0, file.last_ns or 0
