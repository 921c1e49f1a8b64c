"""Display filters of Wireshark for flows, pairs of hosts and steps (wireshark-filter(4))."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

_Row = Mapping[str, Any]

#: Protocols that have a filter of their own; with ports the first two.
_NAMES = {6: "tcp", 17: "udp", 132: "sctp", 1: "icmp", 58: "icmpv6", 2: "igmp", 47: "gre", 50: "esp", 51: "ah"}
_WITH_PORTS = (6, 17)
_ROCE_V1 = 27


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
    if row["protocol"] == _ROCE_V1 and row["roce_dest_qp"] is not None:
        return all_of([*_of_route_header(row), *([_times(within[0], within[1], "<=")] if within else [])])
    ip = _ip(row["src_ip"])
    parts = [f"{ip}.src == {row['src_ip']}", f"{ip}.dst == {row['dst_ip']}", _transport(row, ip, fragmented)]
    if row["roce_dest_qp"] is not None:
        parts.append(f"infiniband.bth.destqp == {row['roce_dest_qp']:#x}")
    if within:
        parts.append(_times(within[0], within[1], "<="))
    return all_of(parts)


def _of_route_header(row: _Row) -> list[str]:
    """RoCEv1: the ends are in InfiniBand's global route header, where IPv4's are mapped (RFC 4291, 2.5.5.2)."""
    return [
        f"infiniband.grh.sgid == {_gid(row['src_ip'])}",
        f"infiniband.grh.dgid == {_gid(row['dst_ip'])}",
        f"infiniband.bth.destqp == {row['roce_dest_qp']:#x}",
    ]


def has_route_headers(rows: Iterable[_Row]) -> bool:
    """Whether any of these flows may be RoCEv1's."""
    return any(row["protocol"] == _ROCE_V1 for row in rows)


def _gid(address: str) -> str:
    return f"::ffff:{address}" if _ip(address) == "ip" else address


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
    """Both directions between two hosts, by their addresses. routed: RoCEv1's packets are meant, too."""
    ends = [(a, b) for a in sorted(one) for b in sorted(other) if _ip(a) == _ip(b)]
    filters = [all_of(dict.fromkeys([f"{_ip(a)}.addr == {a}", f"{_ip(b)}.addr == {b}"])) for a, b in ends]
    if routed:
        sides = ("infiniband.grh.sgid", "infiniband.grh.dgid")
        gids = [(_gid(a), _gid(b)) for a, b in ends]
        filters += [all_of(f"{side} in {{{a}, {b}}}" for side in sides) for a, b in gids]
    return any_of(filters)


def of_step(senders: Iterable[tuple[str, int, int]], routed: bool = False) -> str:
    """What hosts sent between two times: address, start and end (exclusive), ns. routed: as of_pair."""
    by_times = sorted((begin, end, address) for address, begin, end in set(senders))
    filters = []
    for (begin, end), group in groupby(by_times, key=lambda one: one[:2]):
        addresses = [address for *_, address in group]
        by_field = {f"{ip}.src": [address for address in addresses if _ip(address) == ip] for ip in ("ip", "ipv6")}
        if routed:
            by_field["infiniband.grh.sgid"] = [_gid(address) for address in addresses]
        sources = any_of(
            f"{field} in {{{', '.join(mine)}}}" if len(mine) > 1 else f"{field} == {mine[0]}"
            for field, mine in by_field.items()
            if mine
        )
        filters.append(all_of([sources, _times(begin, end, "<")]))
    return any_of(filters)


def _times(begin_ns: int, end_ns: int, before: str) -> str:
    begin, end = (f"{ns // 10**9}.{ns % 10**9:09d}" for ns in (begin_ns, end_ns))
    return f"frame.time_epoch >= {begin} && frame.time_epoch {before} {end}"


def _ip(address: str) -> str:
    return "ip" if ipaddress.ip_address(address).version == 4 else "ipv6"
