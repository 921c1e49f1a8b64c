"""Display filters of Wireshark for flows, pairs of hosts and steps (wireshark-filter(4))."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

from ddnn_traces.pcap.link_types import BASE_TRANSPORT

_Row = Mapping[str, Any]

#: Protocols that have a filter of their own; with ports the first two.
_NAMES = {6: "tcp", 17: "udp", 132: "sctp", 1: "icmp", 58: "icmpv6", 2: "igmp", 47: "gre", 50: "esp", 51: "ah"}
_WITH_PORTS = (6, 17)
_LIDS = ipaddress.ip_network("100::/64")


def any_of(filters: Iterable[str]) -> str:
    """What one of these filters selects."""
    return _joined(list(dict.fromkeys(filters)), " || ")


def all_of(filters: Iterable[str]) -> str:
    """What all of these filters select."""
    return _joined(list(dict.fromkeys(filters)), " && ")


def _joined(filters: Sequence[str], operator: str) -> str:
    if len(filters) == 1:
        return filters[0]
    other = " || " if operator == " && " else " && "
    return operator.join(f"({one})" if other in one else one for one in filters)


def of_flow(row: _Row, fragmented: bool, within: tuple[int, int] | None) -> str:
    """One flow. row: of flows. fragmented: whether it may have fragments, of which only one has ports. within: first
    and last time, ns, where others have the same five-tuple; None: no others have."""
    if row["protocol"] == BASE_TRANSPORT and row["roce_dest_qp"] is not None:
        parts = [_routed("s", row["src_ip"]), _routed("d", row["dst_ip"])]
        parts.append(f"infiniband.bth.destqp == {row['roce_dest_qp']:#x}")
        return all_of([*parts, *([_times(within[0], within[1], "<=")] if within else [])])
    ip = _ip(row["src_ip"])
    parts = [f"{ip}.src == {row['src_ip']}", f"{ip}.dst == {row['dst_ip']}", _transport(row, ip, fragmented)]
    if row["roce_dest_qp"] is not None:
        parts.append(f"infiniband.bth.destqp == {row['roce_dest_qp']:#x}")
    if within:
        parts.append(_times(within[0], within[1], "<="))
    return all_of(parts)


def _routed(side: str, address: str) -> str:
    """An end in InfiniBand's headers. side: s or d.

    The global one has IPv4 addresses that are mapped (RFC 4291, 2.5.5.2), the local one LIDs, which are addresses of
    a prefix that no host has (docs/packets.md).
    """
    ip = ipaddress.ip_address(address)
    if ip in _LIDS:
        return f"infiniband.lrh.{side}lid == {int(ip) & 0xFFFF}"
    return f"infiniband.grh.{side}gid == {f'::ffff:{address}' if ip.version == 4 else address}"


def has_route_headers(rows: Iterable[_Row]) -> bool:
    """Whether any of these flows may be RoCEv1's or InfiniBand's."""
    return any(row["protocol"] == BASE_TRANSPORT for row in rows)


def _transport(row: _Row, ip: str, fragmented: bool) -> str:
    """The protocol and the ports; fragments, which have none, by the header of IP."""
    protocol = row["protocol"]
    name = _NAMES.get(protocol)
    of_header = f"{ip}.{'proto' if ip == 'ip' else 'nxt'} == {protocol}"
    if protocol not in _WITH_PORTS:
        return name if name and not fragmented else of_header
    is_fragment = "ipv6.fraghdr" if ip == "ipv6" else f"{of_header} && (ip.flags.mf == 1 || ip.frag_offset > 0)"
    if not row["src_port"] and not row["dst_port"]:
        return is_fragment if fragmented else of_header
    ports = f"{name}.srcport == {row['src_port']} && {name}.dstport == {row['dst_port']}"
    return any_of([ports, is_fragment]) if fragmented else ports


def of_pair(one: Iterable[str], other: Iterable[str], routed: bool = False) -> str:
    """Both directions between two hosts, by their addresses. routed: RoCEv1's and InfiniBand's packets, too."""
    ends = [(a, b) for a in sorted(one) for b in sorted(other) if _ip(a) == _ip(b)]
    filters = [all_of(dict.fromkeys([f"{_ip(a)}.addr == {a}", f"{_ip(b)}.addr == {b}"])) for a, b in ends]
    if routed:
        both = [(a, b) for one in ends for a, b in (one, one[::-1])]
        filters += [all_of([_routed("s", a), _routed("d", b)]) for a, b in both]
    return any_of(filters)


def of_step(senders: Iterable[tuple[str, int, int]], routed: bool = False) -> str:
    """What hosts sent between two times: address, start and end (exclusive), ns. routed: as of_pair."""
    by_times = sorted((begin, end, address) for address, begin, end in set(senders))
    filters = []
    for (begin, end), group in groupby(by_times, key=lambda one: one[:2]):
        addresses = [address for *_, address in group]
        sources = [
            f"{ip}.src in {{{', '.join(mine)}}}" if len(mine) > 1 else f"{ip}.src == {mine[0]}"
            for ip in ("ip", "ipv6")
            if (mine := [address for address in addresses if _ip(address) == ip])
        ]
        if routed:
            sources += [_routed("s", address) for address in addresses]
        filters.append(all_of([any_of(sources), _times(begin, end, "<")]))
    return any_of(filters)


def _times(begin_ns: int, end_ns: int, before: str) -> str:
    begin, end = (f"{ns // 10**9}.{ns % 10**9:09d}" for ns in (begin_ns, end_ns))
    return f"frame.time_epoch >= {begin} && frame.time_epoch {before} {end}"


def _ip(address: str) -> str:
    return "ip" if ipaddress.ip_address(address).version == 4 else "ipv6"
