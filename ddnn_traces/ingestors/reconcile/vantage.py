"""The vantage of each capture: the host where it was taken, and which of several copies of a packet counts.

A packet captured at two hosts counts once (duplicate_vantage in the ledger). The decision is made for a directed
five-tuple: the copy at its sender counts where the sender's own capture has it, else the one at its receiver, else
the fullest. So a capture that holds only what its host received loses nothing. A copy that holds clearly less than
another (its capture lost packets), or anything less where its file is cut, counts only where there is no better one.
Files of one host that follow each other (tcpdump -C, -G) are one series and all count; series of one host whose times
overlap (-i any and -i eth0) captured the same packets. Of several interfaces in one file, one counts (interfaces.sql).
"""

from __future__ import annotations

import bisect
import heapq
import ipaddress
import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path

import pyarrow as pa

from ddnn_traces.ingestors.sources import host_stem, series_name
from ddnn_traces.pcap.capture_facts import CaptureFacts

#: Share of a file's packets that a host must be an end of for the file to be that host's own capture.
OWN_SHARE = 0.98
#: IGMP and ICMPv6, and the ports of DHCP, NetBIOS names, SSDP, mDNS and LLMNR: protocols that announce and ask.
_ANNOUNCING = frozenset((2, 58))
_UDP = 17
_ANNOUNCED_AT = frozenset((67, 68, 137, 138, 546, 547, 1900, 5353, 5355))
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
    all. Where two fit (a file between two hosts), those that other files have claimed drop out. Announcements to the
    whole network say nothing of it: a file with nothing else is of the host of its folder's files of that name.
    """
    # one for x.pcap, x.pcap1, ...: the last may hold next to nothing
    names = [series_name(file.capture_id) for file in files]
    tables: dict[str, list[pa.Table]] = {}
    for file, name in zip(files, names, strict=True):
        tables.setdefault(name, []).append(file.flows)
    found = _distinct([_candidates(pa.concat_tables(parts)) for parts in tables.values()])
    of_name = dict(zip(tables, found, strict=True))
    beside: dict[tuple[Path, str], set[str]] = {}  # the hosts of a folder's files that differ in time and number only
    for name, vantage in of_name.items():
        if vantage is not None:
            beside.setdefault(_without_times(name), set()).add(vantage)
    for name, vantage in of_name.items():
        hosts = beside.get(_without_times(name), set())
        if vantage is None and len(hosts) == 1 and all(map(only_announces, tables[name])):
            (of_name[name],) = hosts
    return [of_name[name] for name in names]


def _without_times(name: str) -> tuple[Path, str]:
    path = Path(name)
    return path.parent, host_stem(path)


def _distinct(candidates: Sequence[set[str]]) -> list[str | None]:
    """The only candidate of each, again and again in order; where others fit too, those found so far drop out.

    Each is looked at when one of its candidates was found, not at each turn: there may be a hundred thousand.
    """
    found: list[str | None] = [None] * len(candidates)
    left = [set(fitting) for fitting in candidates]
    holders: dict[str, list[int]] = {}
    for i, fitting in enumerate(left):
        for address in fitting if len(fitting) > 1 else ():
            holders.setdefault(address, []).append(i)
    ready = [(0, i) for i, fitting in enumerate(left) if len(fitting) == 1]  # turn and number
    while ready:
        turn, i = heapq.heappop(ready)
        if not left[i]:  # its last one was found for another of this turn
            continue
        (address,) = left[i]
        found[i] = address
        for other in holders.pop(address, ()):
            if found[other] is None:
                left[other].remove(address)
                if len(left[other]) == 1:
                    heapq.heappush(ready, (turn + (other < i), other))
    return found


def telling_flows(flows: pa.Table) -> Iterator[tuple[str, str, int | None, int | None, int]]:
    """Addresses, ports and packets of the flows that tell where a file was captured: all but announcements."""
    columns = (flows[f].to_pylist() for f in ("src_ip", "dst_ip", "src_port", "dst_port", "packets", "protocol"))
    for *flow, protocol in zip(*columns, strict=True):
        src, dst, _, port, _ = flow
        announces = protocol in _ANNOUNCING or (protocol == _UDP and port in _ANNOUNCED_AT)
        if not (announces and (_is_of_link(src) or _is_of_link(dst))):
            yield tuple(flow)


def only_announces(flows: pa.Table) -> bool:
    """Whether there are flows, and none that tells where they were captured."""
    return flows.num_rows > 0 and next(telling_flows(flows), None) is None


@lru_cache(maxsize=1 << 16)
def _is_of_link(address: str) -> bool:
    """Whether what has this end may reach each host of the link."""
    return not is_host(address) or address.endswith(".255") or ipaddress.ip_address(address).is_link_local


def _candidates(flows: pa.Table) -> set[str]:
    sent: Counter[str] = Counter()
    ends: Counter[str] = Counter()
    total = 0
    for src, dst, _, _, packets in telling_flows(flows):
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
    open_series: dict[str | None, _Ends] = {}  # of each vantage
    for i in _in_time(files):
        series = open_series.setdefault(vantages[i], _Ends())
        before = series.continued_by(files[i])
        numbers[i] = i if before is None else before
        series.put(numbers[i], files[i])
    return numbers


class _Ends:
    """The series of one vantage by the ends of their last files."""

    def __init__(self) -> None:
        self._last: dict[int, CaptureFacts] = {}
        #: End and number of each series, in order: of all, and of those whose last file has a name.
        self._ends: list[tuple[int, int]] = []
        self._named: dict[str, list[tuple[int, int]]] = {}

    def continued_by(self, file: CaptureFacts) -> int | None:
        """The series of its name, else the nearest one, that a file continues; of equal ones the first."""
        for ends in (self._named.get(series_name(file.capture_id), []), self._ends):
            gaps = [(abs(_span(file)[0] - end), number) for end, number in self._near(ends, file)]
            if gaps:
                return min(gaps)[1]
        return None

    def _near(self, ends: list[tuple[int, int]], file: CaptureFacts) -> Iterator[tuple[int, int]]:
        """Of those that the file continues the nearest one that ended before it begins, and the nearest after that."""
        begin, last = _span(file)
        late = bisect.bisect_left(ends, (begin + 1, -1))
        for end, number in itertools.islice(ends, late, None):
            if end - begin > OUT_OF_ORDER_SHARE * (last - begin):
                break
            if _continues(self._last[number], file):
                yield end, number
                break
        while late:  # at most twice: a file of one instant does not continue those that end in it
            end = ends[late - 1][0]
            late = bisect.bisect_left(ends, (end, -1))
            if _continues(self._last[ends[late][1]], file):
                yield ends[late]
                return

    def put(self, number: int, file: CaptureFacts) -> None:
        """Make a file the last one of a series."""
        if (before := self._last.get(number)) is not None:
            for ends in (self._ends, self._named[series_name(before.capture_id)]):
                del ends[bisect.bisect_left(ends, (_span(before)[1], number))]
        self._last[number] = file
        for ends in (self._ends, self._named.setdefault(series_name(file.capture_id), [])):
            bisect.insort(ends, (_span(file)[1], number))


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


def _span(file: CaptureFacts) -> tuple[int, int]:
    return file.first_ns or 0, file.last_ns or 0
