"""What each identifying value becomes: addresses, labels of hosts, names of captures, ports and times.

Which columns hold such values is in schemas/ (`identifies`), and nowhere else.
"""

from __future__ import annotations

import ipaddress
import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ddnn_traces.errors import UsageError, needs_extra
from ddnn_traces.ingestors.sources import host_label, series_name
from ddnn_traces.release.anonymise.key import Key
from ddnn_traces.store import schema
from ddnn_traces.text import natural_order

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

ADDRESS_KINDS = ("roles", "crypto-pan", "kept")
PORT_KINDS = ("kept", "permuted", "classed")
TIME_KINDS = ("shifted", "kept")

_Row = Mapping[str, Any]
_Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def every_value(identifies: str, leave_out: Collection[str] = ()) -> str:
    """SQL of all values of the columns that identify so: run_id and value, not null. leave_out: names of tables."""
    return " UNION ".join(
        f"SELECT run_id, {column} AS value FROM {table} WHERE {column} IS NOT NULL"
        for table, column in schema.identifying(identifies)
        if table not in leave_out
    )


# --- labels of hosts, names of captures

#: worker-1, w2, ps-0, chief: names that only a role in the training gives. A node17 or server3 may be a machine's name.
_ROLE_WORD = re.compile(r"(worker|w|ps|parameter[-_]server|chief|master)([-_]?\d{1,5})?", re.IGNORECASE)
_WORKER_0 = re.compile(r"(worker|w)[-_]?0", re.IGNORECASE)


def is_role_word(label: str) -> bool:
    """Whether a label states the host's role in the training and no more."""
    return _ROLE_WORD.fullmatch(label) is not None


def tag(key: Key, kind: str, value: str) -> str:
    """Eight hex digits in place of a value, the same in every run and release of the key."""
    return key.derive(f"{kind} {value}", 4).hex()


def unique(name: str, taken: Collection[str]) -> str:
    """The name, or where it is taken the name followed by -b, -c, ..."""
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
    """Name of a host by role and rank; None where its role is not known. first: number of rank 0."""
    role, rank = host["role"], host["rank"]
    if role in (None, "other"):
        return None
    if rank is not None:
        return f"{role}-{rank + first}"
    return "chief" if role == "chief" else f"{role}-{tag(key, 'host', host['host_ip'])}"


def labels(key: Key, hosts: Collection[_Row], workers: Collection[str]) -> dict[str, str]:
    """The new label of each label of a run. hosts: rows of the table; workers: those that steps and events name.

    A worker that only logs name may be a host by its role and rank: that host gets the worker's label, unless logs have
    its own label, too.
    """
    given = {host["label"] for host in hosts if host["label"] is not None}
    first = first_number([*given, *workers])
    # of a label that several hosts have, that of the first rank; not of the last address
    in_ranks = sorted(hosts, key=lambda host: (host["rank"] is None, host["rank"] or 0), reverse=True)
    roles = {host["label"]: by_role(host, key, first) for host in in_ranks if host["label"] is not None}
    mapped = {label: label for label in given | set(workers) if is_role_word(label)}
    others = (given | set(workers)) - mapped.keys()
    taken = {label for label in mapped if label in given}
    for label in sorted(others, key=lambda label: key.derive(f"order {label}", 16)):  # not that of the names
        others_workers = set(mapped) if label in workers else set()
        mapped[label] = unique(roles.get(label) or f"host-{tag(key, 'label', label)}", taken | others_workers)
        taken.add(mapped[label])
    return mapped


def capture_names(key: Key, rows: Iterable[_Row], labels_by_ip: Mapping[str, str]) -> dict[str, str]:
    """The new name of each capture of a run: worker-1.pcap, or capture.pcap where no host is known.

    rows: of the table captures, with the packets that are `counted`. labels_by_ip: new labels. Files that tcpdump -C
    continued (x.pcap, x.pcap1) remain a series. Several of a host are in the order of what the release tells of them
    (which of two equal ones counts is decided by their old names), then in that of the key.
    """
    series: dict[str, list[_Row]] = {}
    for row in rows:
        series.setdefault(series_name(row["capture_id"]), []).append(row)
    mapped: dict[str, str] = {}
    taken: set[str] = set()
    for files in sorted(
        series.values(),
        key=lambda files: (
            min((row["first_ns"] or 0, row["last_ns"] or 0, row["records"] or 0, row["counted"]) for row in files),
            min(key.derive(f"order {row['capture_id']}", 16) for row in files),
        ),
    ):
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


# --- names of runs


def run_parts(key: Key, run_id: str, found: Iterable[tuple[int, int]]) -> dict[str, str]:
    """What takes the place of each part of a run's name: a tag of the key. found: start and end of each such part."""
    parts = [run_id[start:end] for start, end in _merged(found)]
    return {part: tag(key, "run", part.lower()) for part in sorted(parts, key=len, reverse=True)}


def replaced(text: str, parts: Mapping[str, str]) -> str:
    """A text with each of the parts replaced."""
    return re.sub("|".join(map(re.escape, parts)), lambda match: parts[match[0]], text) if parts else text


def run_names(key: Key, runs: Collection[str], parts: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """The new name of each run that has parts to be replaced, all different, and none that of a run.

    The rest of the name still tells the runs apart.
    """
    taken = set(runs)
    mapped: dict[str, str] = {}
    for run_id in sorted(parts, key=lambda run_id: key.derive(f"order {run_id}", 16)):  # not that of the names
        mapped[run_id] = unique(replaced(run_id, parts[run_id]), taken)
        taken.add(mapped[run_id])
    return mapped


def _merged(parts: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Parts of a text without overlaps, in order; those side by side are one."""
    merged: list[tuple[int, int]] = []
    for start, end in sorted(parts):
        if merged and start <= merged[-1][1]:
            start, end = merged[-1][0], max(end, merged.pop()[1])
        merged.append((start, end))
    return merged


# --- addresses as labels of roles


def identifies_no_host(text: str) -> bool:
    """Whether an address is the same everywhere: unspecified, loopback, limited broadcast, well-known multicast.

    Well-known: 224.0.0.0/23 (RFC 5771, 4 and 5) and the IPv6 groups below 0x10000 of any scope (RFC 4291, 2.7.1), not
    those that are made from a host's address (ff02::1:ffxx:xxxx). Unspecified and limited broadcast include their
    neighbours, 0.0.0.1 and 255.255.255.254: no host has them, and no prefix-preserving mapping could move them.
    """
    ip = ipaddress.ip_address(text)
    if ip.is_unspecified or ip.is_loopback:
        return True
    if ip.version == 4:
        return int(ip) >> 9 == 0xE00000 >> 1 or int(ip) in (1, 2**32 - 2, 2**32 - 1)
    return ip.is_multicast and int(ip) & ((1 << 112) - 1) < 1 << 16


def address_kind(text: str, never_sends: bool) -> str:
    """multicast, broadcast, unspecified, or host for all others.

    By the rule of ingest: an address that ends in .255 and never sends is taken for a subnet's broadcast.
    """
    ip = ipaddress.ip_address(text)
    if ip.is_multicast:
        return "multicast"
    if ip.is_unspecified:
        return "unspecified"
    return "broadcast" if text.endswith(".255") and never_sends else "host"


def addresses_by_role(
    key: Key, hosts: Collection[Mapping[str, Any]], labels: Mapping[str, str], others: Iterable[tuple[str, bool]]
) -> dict[str, str]:
    """The label of each address of a run, all different.

    hosts: rows of the table. labels: new label of each old one. others: addresses, with whether they never send.
    """
    wanted = {text: f"{address_kind(text, quiet)}-{tag(key, 'address', text)}" for text, quiet in others}
    first = first_number(labels)
    for host in hosts:
        label = labels.get(host["label"]) or by_role(host, key, first)
        wanted[host["host_ip"]] = label or f"host-{tag(key, 'address', host['host_ip'])}"
    labelled = {host["host_ip"] for host in hosts if host["label"] is not None}  # these come first: it is their label
    mapped: dict[str, str] = {}
    taken: set[str] = set()
    # the order is the key's, since -b must not reveal which address is the higher one
    for text in sorted(wanted, key=lambda text: (text not in labelled, key.derive(f"order {text}", 16))):
        mapped[text] = unique(wanted[text], taken)
        taken.add(mapped[text])
    return mapped


#: What stands for a role in a cut-down capture, whose headers have no space for a word: benchmarking ranges (RFC 2544,
#: RFC 5180), which no real host has, and the multicast groups for documentation (RFC 6676).
_RESERVED = {4: ipaddress.ip_network("198.18.0.0/15"), 6: ipaddress.ip_network("2001:2::/48")}
_RESERVED_GROUPS = {4: ipaddress.ip_network("233.252.0.0/24"), 6: ipaddress.ip_network("ff0e::db8:0:0/96")}


def capture_addresses(labels: Mapping[str, str], never_send: Collection[str]) -> dict[str, str]:
    """An address of a reserved range for each address of a run that has a label, in the order of the labels.

    Groups remain groups, unspecified and limited broadcast are unchanged, and only a broadcast address ends in .255.
    Raises UsageError where the range is too small.
    """
    mapped: dict[str, str] = {}
    series: dict[tuple[_Network, bool | None], Iterator[str]] = {}
    for text in sorted(labels, key=lambda text: natural_order(labels[text])):
        ip = ipaddress.ip_address(text)
        if ip.is_unspecified or text == "255.255.255.255":
            mapped[text] = text
            continue
        is_broadcast = address_kind(text, text in never_send) == "broadcast"
        network = (_RESERVED_GROUPS if ip.is_multicast else _RESERVED)[ip.version]
        broadcast = None if ip.version == 6 or ip.is_multicast else is_broadcast
        free = series.setdefault((network, broadcast), _addresses_of(network, broadcast))
        chosen = next((address for address in free if address not in labels), None)
        if chosen is None:
            raise UsageError(
                f"{len(labels)} addresses do not fit into {network}, which stands for them in cut-down captures; "
                "publish without captures, or with --addresses crypto-pan"
            )
        mapped[text] = chosen
    return mapped


def _addresses_of(network: _Network, broadcast: bool | None) -> Iterator[str]:
    """Addresses of a range in order, but for .0. broadcast: only those that end in .255, or only others; None: all."""
    for number in range(1, network.num_addresses):
        last = number & 0xFF
        if last and broadcast in (None, last == 255):
            yield str(network[number])


# --- addresses by Crypto-PAn

#: Ranges whose addresses stay in them, since an address's first bits define its use. The narrower ones are unchanged.
_RANGES = {
    4: ("0.0.0.0/8", "0.0.0.0/32", "127.0.0.0/8", "169.254.0.0/16", "224.0.0.0/4", "224.0.0.0/23", "240.0.0.0/4",
        "255.255.255.255/32"),
    6: ("::/128", "::1/128", "fe80::/10", "ff00::/8"),
}  # fmt: skip
_LINK_LOCAL = ipaddress.ip_network("fe80::/10")


class CryptoPan:
    """Prefix-preserving addresses (Xu et al. 2002), the same in all runs: two that share n bits share n afterwards.

    Crypto-PAn flips each bit or not by the bits before it. Where these are the start of a range that is to stay
    (_unflipped_bits), it is not flipped: so addresses that identify no host are unchanged, multicast, link-local and
    reserved ones remain such, no other becomes one, and every common prefix is kept, between them too. Raises
    MissingExtra.
    """

    def __init__(self, key: Key) -> None:
        with needs_extra():
            from yacryptopan import CryptoPAn
        self._cipher = CryptoPAn(key.derive("crypto-pan", 32))
        self._known: dict[str, str] = {}  # a few milliseconds each

    def map(self, text: str) -> str:
        """The mapped address of one."""
        if text not in self._known:
            self._known[text] = self._map(text)
        return self._known[text]

    def _map(self, text: str) -> str:
        ip: _Address = ipaddress.ip_address(text)
        if identifies_no_host(text):
            return text
        flipped = self._cipher.anonymize_bin(int(ip), ip.version) ^ int(ip)
        return str(type(ip)(int(ip) ^ (flipped & ((1 << (ip.max_prefixlen - _unflipped_bits(ip))) - 1))))


def _unflipped_bits(ip: _Address) -> int:
    """How many leading bits are not flipped: up to the first at which the address leaves every range that stays."""
    bits = max(_unflipped_for(ip, ipaddress.ip_network(network)) for network in _RANGES[ip.version])
    if ip.version == 4:
        return bits
    if ip.is_multicast:  # flags and scope, and the well-known groups with them
        scope = int(ip) >> 112 << 112
        return max(16, bits, _unflipped_for(ip, ipaddress.ip_network((scope, 112))))
    return max(64, bits) if ip in _LINK_LOCAL else bits


def _unflipped_for(ip: _Address, network: _Network) -> int:
    """Bits of the address that are not flipped, so that the range stays where it is: one more than they share."""
    shared = ip.max_prefixlen - (int(ip) ^ int(network.network_address)).bit_length()
    return min(shared + 1, network.prefixlen)


# --- ports, of TCP and UDP alike

#: First port of each class, and its representative: 1 to 1023 are well-known services, and from 32768 on systems draw
#: the ports of clients (Linux; RFC 6335: from 49152). Ingest recognises servers by the same bounds.
PORT_CLASSES = (1, 1024, 32768)
#: Ports that are unchanged. 0: no port. Tunnels (VXLAN 4789 and 8472, GENEVE 6081) and RoCEv2 (4791) are recognised by
#: their port alone, and these identify what is carried, not a host.
FIXED_PORTS = (0, 4789, 4791, 6081, 8472)


def port_table(key: Key, kind: str) -> npt.NDArray[np.int64]:
    """The new number of every port, int64 (65536,). kind: one of PORT_KINDS."""
    import numpy as np

    mapped = np.arange(65536, dtype=np.int64)
    for first, end in zip(PORT_CLASSES, (*PORT_CLASSES[1:], 65536), strict=True) if kind != "kept" else ():
        members = np.setdiff1d(np.arange(first, end), FIXED_PORTS)
        if kind == "classed":
            mapped[members] = first
        else:
            draws = np.frombuffer(key.derive(f"ports {first}", 8 * len(members)), ">u8")
            mapped[members] = members[np.lexsort((members, draws))]
    return mapped


# --- times: one secret offset for all, so that every interval is unchanged, between runs too

SECOND_NS = 10**9
_YEAR_S = 31_556_952
#: Into the past: so far that a run never gets a time that another run of the same years has, and so little that those
#: from 2004 to 2040 come to lie in 1971 to 2037, which 32 bits of seconds hold with and without a sign.
_LEAST_YEARS, _MOST_YEARS = 3, 33
#: So many offsets there are, each as likely.
OFFSETS = (_MOST_YEARS - _LEAST_YEARS) * _YEAR_S
_FIRST_S, _END_S = 366 * 86400, 2_145_830_400  # 1971-01-02, 2037-12-31

#: First and last time of each run.
TIMES = """
SELECT run_id, min(ns) AS first_ns, max(ns) AS last_ns FROM (
    SELECT run_id, unnest([first_ns, last_ns]) AS ns FROM captures
    UNION ALL SELECT run_id, unnest([first_seen_ns, last_seen_ns]) FROM flows
    UNION ALL SELECT run_id, unnest([start_ns, end_ns]) FROM steps
) WHERE ns IS NOT NULL GROUP BY run_id ORDER BY run_id
"""
#: runs.source of runs whose times were measured. Those of generated runs are known to everybody who generates some.
MEASURED = ("capture", "testbed")


def time_offset_ns(key: Key, source: str, times: tuple[int, int], windows_ns: Collection[int] = ()) -> int:
    """The offset of a run's times, ns: a multiple of 1 s and of its windows, so that windows keep their packets.

    source: runs.source. times: first and last of the run, ns. It depends on the key and this run alone, and is the same
    for all measured runs of 2004 to 2040 whose windows divide 1 s, as nearly all do. Generated runs share another,
    since their times are known and would reveal it; a run that it would put outside of 1971 to 2037 has one of its
    own. Raises UsageError where nothing is possible.
    """
    unit = math.lcm(SECOND_NS, *windows_ns)
    if unit > _YEAR_S * SECOND_NS:
        raise UsageError(
            f"windows of {max(windows_ns)} ns begin at no multiple of 1 s for {unit / SECOND_NS / _YEAR_S:.0f} years, "
            "so that times cannot be shifted; ingest with windows of whole milliseconds, or publish with --times kept"
        )
    purpose = "times" if source in MEASURED else "times of generated runs"
    seconds = -_LEAST_YEARS * _YEAR_S - key.number(purpose, OFFSETS)
    offset = seconds * SECOND_NS // unit * unit
    first, last = times
    if first + offset >= _FIRST_S * SECOND_NS and last + offset < _END_S * SECOND_NS:
        return offset
    away = _LEAST_YEARS * _YEAR_S
    late = first > (_END_S - away) * SECOND_NS  # it can only go back, an early one only forward
    least = -((first - _FIRST_S * SECOND_NS) // unit) if late else -(-away * SECOND_NS // unit)
    most = (_END_S * SECOND_NS - last) // unit
    if most <= least:
        raise UsageError(
            f"times from {first} to {last} ns are too far apart to be shifted into 1971 to 2037; leave the run out, or "
            "publish with --times kept"
        )
    return (least + key.number(f"{purpose}, by itself", most - least)) * unit
