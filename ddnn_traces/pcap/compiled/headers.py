"""The header walk: from a frame to its outermost IP packet, and from that to its ports, from captured bytes only.

Most packets need `network_header`, `ip_header` and `ports` alone; tunnels.py goes on from there. Offsets are into
`buf`, uint8.
"""

from __future__ import annotations

import numpy as np

from ddnn_traces.jit import helper, inlined, u16, u16_little, u32, u32_little, u64
from ddnn_traces.pcap.link_types import (
    BASE_TRANSPORT,
    COOKED,
    ERF,
    ERF_TYPES,
    ETHERTYPE,
    INFINIBAND,
    INTERFACES,
    LINK_TYPES,
    LLC,
    NFLOG,
    PPI,
    PPP,
    PPP_PROTOCOL,
    PPPOE,
    TYPE,
    UNKNOWN,
    VERSION,
    Cut,
    Hardware,
    LinkType,
)

# Outcomes: in a flow, or an index into capture_facts.SKIP_REASONS.
FOLLOW, NOT_IP, MALFORMED, CUT_SHORT, UNKNOWN_LINK = -1, 0, 1, 2, 3

# Which part of its datagram a packet is.
WHOLE, FIRST_FRAGMENT, LATER_FRAGMENT = 0, 1, 2

IPIP4, TCP, UDP, IPIP6, GRE = 4, 6, 17, 41, 47
LEAST_TYPE, LLC_LENGTH = 1536, 1  # lower ones are lengths of IEEE 802.3; one that stands for any

# InfiniBand's headers in place of IP's, and in place of the IP version. GRH: the global route header has the layout of
# IPv6's, but a base transport header follows only where the link layer says so: IANA gives the next header 27 to
# another protocol. LRH: the local one stands for both where there is no GRH.
GRH, LRH, ROCE_V1_TYPE = 7, 8, 0x8915
#: Before a LID in an address: a prefix whose packets every router drops, so that no host has it (RFC 6666).
_LID_PREFIX = 0x0100 << 48

# The link types (link_types.py), a row each; the first one is that of all others. -1 stands for None.
WALK, SIZE, TYPE_AT, DESTINATION, SOURCE, LENGTH_AT, LENGTH_BYTES, KEPT_FROM, KEPT_TO, FAMILY_AT, IS_CUT = range(11)
INTERFACE_AT = 11


def _row(link):
    """The columns of a link type. `cut` leaves those of unknown ones out, frame by frame."""
    cut = link.cut or Cut()
    of_cut = *cut.kept, cut.family_at, link.cut is not None
    values = link.walk, link.size, link.type_at, *link.hardware, *of_cut, link.interface_at
    return [-1 if value is None else int(value) for value in values]


_UNKNOWN_LINK_TYPE = LinkType(-1, UNKNOWN, 0, Hardware(None, None), Cut(), None)
LINKS = np.array([_row(link) for link in (_UNKNOWN_LINK_TYPE, *LINK_TYPES)], np.int64)
_ROWS = np.zeros(1 + max(link.number for link in LINK_TYPES), np.int64)
for _place, _link in enumerate(LINK_TYPES):
    _ROWS[_link.number] = _place + 1
# By the type of an ERF record: row of the link type in it, and bytes before that.
_ERF_ROWS = np.zeros((128, 2), np.int64)
for _type, (_number, _before) in ERF_TYPES.items():
    _ERF_ROWS[_type] = _ROWS[_number], _before


@inlined
def link_row(link):
    """Row of a link type in LINKS, by its number."""
    return _ROWS[link] if 0 <= link < len(_ROWS) else np.int64(0)


@inlined
def interface_word(buf, start, link):
    """What the interface (link_types.told_interface) adds to the fifth word of a key; 0 where none is told.

    start: of a frame whose IP header was found.
    """
    at = LINKS[link_row(link), INTERFACE_AT]
    number = u32(buf, start + at) if at >= 0 else np.int64(0)
    return np.uint64((number - 1) % INTERFACES + 1) << np.uint64(48) if number else np.uint64(0)


@inlined
def is_typed(row):
    """Whether the EtherType and the IP header, where there is nothing between them, stand at places of their own."""
    return LINKS[row, WALK] == ETHERTYPE or LINKS[row, WALK] == COOKED


@inlined
def by_version(buf, i, end):
    """(offset, IP version) by the first nibble."""
    if i >= end:
        return np.int64(CUT_SHORT), np.int64(0)
    version = np.int64(buf[i] >> 4)
    return (i, version) if version == 4 or version == 6 else (np.int64(NOT_IP), np.int64(0))


@helper
def ppp_type(buf, i, end):
    """(EtherType of the same meaning, 0: none, -1: cut short; offset after it) of the PPP protocol (RFC 1661, 2) at i,
    which may have one byte (RFC 1661, 6.5)."""
    if i >= end or (not buf[i] & 1 and i + 2 > end):
        return np.int64(-1), i
    protocol = np.int64(buf[i])
    i += 1
    if not protocol & 1:
        protocol = (protocol << 8) | np.int64(buf[i])
        i += 1
    kind = 0x0800 if protocol == 0x0021 else 0x86DD if protocol == 0x0057 else 0
    kind = 0x8847 if protocol == 0x0281 else 0x8848 if protocol == 0x0283 else kind
    return np.int64(kind), i


@inlined
def no_length(kind):
    """The EtherType where a length cannot stand; 0 for a length."""
    return kind if kind >= LEAST_TYPE else np.int64(0)


@inlined
def cooked_type(kind):
    """The EtherType, or for 802.2 (protocol 4 of Linux cooked captures) a length."""
    return np.int64(LLC_LENGTH) if kind == 4 else no_length(kind)


@inlined
def route_header(buf, i, end):
    """(offset, GRH) of a global route header at i, before a base transport header."""
    if i + 40 > end:
        return np.int64(CUT_SHORT), np.int64(0)
    return (i, np.int64(GRH)) if buf[i + 6] == BASE_TRANSPORT else (np.int64(NOT_IP), np.int64(0))


@helper
def rare_ethertype(buf, kind, i, end):
    """As by_ethertype: VLAN tags, MPLS, PPPoE and LLC, which may hold each other."""
    while True:
        if kind == 0x0800:
            return i, np.int64(4)
        if kind == 0x86DD:
            return i, np.int64(6)
        if kind == 0x8100 or kind == 0x88A8 or kind == 0x9100:  # 802.1Q and 802.1ad tags
            if i + 4 > end:
                return np.int64(CUT_SHORT), np.int64(0)
            kind = u16(buf, i + 2)
            i += 4
        elif kind == 0x8864:  # PPPoE (RFC 2516, 4) and the PPP protocol
            kind, i = ppp_type(buf, i + 6, end)
            if kind < 0:
                return np.int64(CUT_SHORT), np.int64(0)
        elif kind == 0x8847 or kind == 0x8848:  # MPLS (RFC 3032, 2.1)
            bottom = np.int64(0)
            while not bottom:
                if i + 4 > end:
                    return np.int64(CUT_SHORT), np.int64(0)
                bottom = np.int64(buf[i + 2]) & 1
                i += 4
            if i >= end:
                return np.int64(CUT_SHORT), np.int64(0)
            if buf[i] >> 4 != 0:
                return by_version(buf, i, end)
            i += 4 + 12  # control word (RFC 4385), then an Ethernet frame
            if i + 2 > end:
                return np.int64(CUT_SHORT), np.int64(0)
            kind = u16(buf, i)
            i += 2
        elif 0 < kind <= 1500:  # IEEE 802.2: SNAP (RFC 1042), also of bridges (802.1H), or IP itself
            if i + 3 > end:
                return np.int64(CUT_SHORT), np.int64(0)
            head = (u16(buf, i) << 8) | np.int64(buf[i + 2])
            if head == 0x060603:
                return i + 3, np.int64(4)
            if head != 0xAAAA03:
                return np.int64(NOT_IP), np.int64(0)
            if i + 8 > end:
                return np.int64(CUT_SHORT), np.int64(0)
            organization = u32(buf, i + 2) & 0xFFFFFF
            kind = no_length(u16(buf, i + 6)) if organization == 0 or organization == 0xF8 else np.int64(0)
            i += 8
        elif kind == ROCE_V1_TYPE:
            return route_header(buf, i, end)
        else:
            return np.int64(NOT_IP), np.int64(0)


@inlined
def by_ethertype(buf, kind, i, end):
    """(offset of the IP header, IP version or GRH) after an EtherType; version 0 and an outcome where there is none."""
    if kind == 0x0800:
        return i, np.int64(4)
    return rare_ethertype(buf, kind, i, end)


@inlined
def link_type_of(buf, i, row):
    """The EtherType at i in the header of a link type that is_typed."""
    kind = u16(buf, i)
    return cooked_type(kind) if LINKS[row, WALK] == COOKED else kind


@inlined
def _plain_link(buf, start, end, row):
    """As network_header, for the link types that have no header of variable length."""
    if is_typed(row):
        i = start + LINKS[row, TYPE_AT]
        if i + 2 > end:
            return np.int64(CUT_SHORT), np.int64(0)
        return by_ethertype(buf, link_type_of(buf, i, row), start + LINKS[row, SIZE], end)
    if LINKS[row, WALK] == VERSION:
        return by_version(buf, start + LINKS[row, SIZE], end)
    return np.int64(UNKNOWN_LINK), np.int64(0)


@helper
def ppp(buf, i, end):
    """As network_header, of PPP with or without the address and control bytes of HDLC (RFC 1662, 3.1), or C-HDLC."""
    if i >= end:
        return np.int64(CUT_SHORT), np.int64(0)
    if buf[i] == 0x0F or buf[i] == 0x8F:
        return _typed(buf, i + 2, i + 4, end)
    kind, i = ppp_type(buf, i + 2 if buf[i] == 0xFF else i, end)
    return (np.int64(CUT_SHORT), np.int64(0)) if kind < 0 else rare_ethertype(buf, kind, i, end)


@helper
def _typed(buf, at, i, end):
    """As network_header: the EtherType is at `at`, what it names begins at i."""
    if at + 2 > end:
        return np.int64(CUT_SHORT), np.int64(0)
    return rare_ethertype(buf, no_length(u16(buf, at)), i, end)


@helper
def _nflog(buf, i, end):
    """As network_header, of a message of Linux's netfilter, whose value of type 9 is the packet."""
    if i + 4 > end:
        return np.int64(CUT_SHORT), np.int64(0)
    version = np.int64(4 if buf[i] == 2 else 6 if buf[i] == 10 else 0)
    i += 4
    while version:
        if i + 4 > end:
            return np.int64(CUT_SHORT), np.int64(0)
        big = buf[i + 2] & 0x3F == 0  # types are below 256, the upper two bits are flags
        size = u16(buf, i) if big else u16_little(buf, i)
        kind = np.int64(buf[i + 3 if big else i + 2])
        if size < 4:
            return np.int64(MALFORMED), np.int64(0)
        if kind == 9:
            return i + 4, version
        i += (size + 3) & ~3
    return np.int64(NOT_IP), np.int64(0)


@helper
def _erf(buf, start, end):
    """As inner_link, of the header of an ERF record and its extension headers, each of 8 bytes."""
    if start + 16 > end:
        return np.int64(CUT_SHORT), np.int64(-1)
    kind = np.int64(buf[start + 8])
    start += 16
    more = kind >> 7
    while more:
        if start + 8 > end:
            return np.int64(CUT_SHORT), np.int64(-1)
        more = np.int64(buf[start]) >> 7
        start += 8
    return start + _ERF_ROWS[kind & 0x7F, 1], _ERF_ROWS[kind & 0x7F, 0]


@helper
def inner_link(buf, start, end, link):
    """(start of the frame, row of its link type) inside all PPI and ERF headers; an outcome and -1 where there is
    none."""
    row = link_row(link)
    while LINKS[row, WALK] == PPI or LINKS[row, WALK] == ERF:
        if LINKS[row, WALK] == ERF:
            return _erf(buf, start, end)
        if start + 8 > end:
            return np.int64(CUT_SHORT), np.int64(-1)
        size, row = u16_little(buf, start + 2), link_row(u32_little(buf, start + 4))
        if size < 8:
            return np.int64(MALFORMED), np.int64(-1)
        start += size
    return start, row


@helper
def _rare_link(buf, start, end, link):
    """As network_header, for all link types."""
    start, row = inner_link(buf, start, end, link)
    if row < 0:
        return start, np.int64(0)
    walk, i = LINKS[row, WALK], start + LINKS[row, SIZE]
    if walk == PPP:
        return ppp(buf, i, end)
    if walk == PPP_PROTOCOL:
        kind, i = ppp_type(buf, i, end)
        return (np.int64(CUT_SHORT), np.int64(0)) if kind < 0 else rare_ethertype(buf, kind, i, end)
    if walk == PPPOE:
        return rare_ethertype(buf, np.int64(0x8864), i, end)
    if walk == TYPE:
        return _typed(buf, start + LINKS[row, TYPE_AT], i, end)
    if walk == LLC:
        return rare_ethertype(buf, np.int64(LLC_LENGTH), i, end)
    if walk == NFLOG:
        return _nflog(buf, i, end)
    if walk == INFINIBAND:
        return _local_route(buf, start, end)
    return _plain_link(buf, start, end, row)


@helper
def _local_route(buf, i, end):
    """As network_header, of a local route header (InfiniBand Architecture Specification 1, 7.7)."""
    if i + 8 > end:
        return np.int64(CUT_SHORT), np.int64(0)
    following = np.int64(buf[i + 1]) & 3
    if following == 3:
        return route_header(buf, i + 8, end)
    if following == 2:
        return i, np.int64(LRH)
    if following == 1:
        return i + 8, np.int64(6)
    return _typed(buf, i + 10, i + 12, end)  # a raw header: two bytes that are reserved, and an EtherType


@inlined
def network_header(buf, start, end, link):
    """(offset of the IP header, IP version, GRH or LRH) of a frame; version 0 and an outcome where there is none."""
    i, version = _plain_link(buf, start, end, link_row(link))
    if version == 0 and i == UNKNOWN_LINK:
        return _rare_link(buf, start, end, link)
    return i, version


@helper
def ipv6_chain(buf, i, end):
    """(next header, offset after the extension headers, part, offset of the fragment header) of the IPv6 header at i.

    RFC 8200, section 4. Offset -1: the captured bytes end inside the chain. The offset of the fragment header is that
    of the last one of a fragment; -1 without one.
    """
    protocol = np.int64(buf[i + 6])
    part, fragment = np.int64(WHOLE), np.int64(-1)
    i += 40
    while protocol == 0 or protocol == 43 or protocol == 60 or protocol == 135 or protocol == 51 or protocol == 44:
        if i + 8 > end:
            return protocol, np.int64(-1), part, fragment
        following = np.int64(buf[i])
        if protocol == 44:
            word = u16(buf, i + 2)
            if word & 0xFFF9:
                part, fragment = np.int64(FIRST_FRAGMENT), i
            i += 8
            if word & 0xFFF8:
                return following, i, np.int64(LATER_FRAGMENT), i - 8
        elif protocol == 51:
            i += (np.int64(buf[i + 1]) + 2) * 4
        else:
            i += (np.int64(buf[i + 1]) + 1) * 8
        protocol = following
    return protocol, i, part, fragment


@inlined
def ip_header(buf, i, version, start, end, wire):
    """The packet at i, by IP's header or InfiniBand's: (outcome, protocol, offset and bytes of its payload, IP bytes,
    part, fragment).

    Lengths are those on the wire, `wire` that of the frame. fragment: offset of its header in IPv6, else -1.
    """
    available = wire - (i - start)
    outcome, part, fragment = np.int64(FOLLOW), np.int64(WHOLE), np.int64(-1)
    protocol = transport = carried = ip_bytes = np.int64(0)
    if version == 4:
        if i + 20 > end:
            outcome = np.int64(CUT_SHORT)
        else:
            header = np.int64(buf[i] & 15) * 4
            ip_bytes = u16(buf, i + 2)
            if ip_bytes == 0 or ip_bytes > available or available > 65535:
                ip_bytes = available
            protocol = np.int64(buf[i + 9])
            word = u16(buf, i + 6)
            if word & 0x3FFF:
                part = np.int64(LATER_FRAGMENT if word & 0x1FFF else FIRST_FRAGMENT)
            transport = i + header
            carried = ip_bytes - header
            if buf[i] >> 4 != 4 or header < 20 or carried < 0:
                outcome = np.int64(MALFORMED)
    elif version == LRH:
        ip_bytes = 4 * (u16(buf, i + 4) & 0x7FF)  # from here to the checksum (ICRC)
        if ip_bytes == 0 or ip_bytes > available:
            ip_bytes = available
        ip_bytes = carried = ip_bytes - 8
        protocol, transport = np.int64(BASE_TRANSPORT), i + 8
        if carried < 0:
            outcome = np.int64(MALFORMED)
    elif i + 40 > end:
        outcome = np.int64(CUT_SHORT)
    elif buf[i] >> 4 != 6:
        outcome = np.int64(MALFORMED)
    else:
        ip_bytes = 40 + u16(buf, i + 4)
        if ip_bytes == 40 or ip_bytes > available or available > 65575:
            ip_bytes = available
        protocol, transport, part, fragment = ipv6_chain(buf, i, end)
        carried = ip_bytes - (transport - i)
        if transport < 0:
            outcome = np.int64(CUT_SHORT)
        elif carried < 0:
            outcome = np.int64(MALFORMED)
    return outcome, protocol, transport, carried, ip_bytes, part, fragment


@inlined
def ports(buf, protocol, transport, end, carried):
    """(outcome, source and destination port as one number, payload) of TCP or UDP at `transport`."""
    if transport + 4 > end:
        return np.int64(CUT_SHORT), np.int64(0), np.int64(0)
    header = np.int64(8)
    if protocol == TCP:
        header = np.int64(20)
        if transport + 13 <= end:
            header = np.int64(buf[transport + 12] >> 4) * 4
    payload = carried - header
    outcome = np.int64(MALFORMED if payload < 0 or header < 8 or (protocol == TCP and header < 20) else FOLLOW)
    return outcome, u32(buf, transport), payload


@inlined
def addresses(buf, i, version):
    """Source and destination, high and low words; IPv4 in the low ones."""
    if version == 4:
        zero = np.uint64(0)
        return zero, np.uint64(u32(buf, i + 12)), zero, np.uint64(u32(buf, i + 16))
    return u64(buf, i + 8), u64(buf, i + 16), u64(buf, i + 24), u64(buf, i + 32)


@inlined
def is_infiniband(version):
    """Whether the header in place of IP's is InfiniBand's, before a base transport header."""
    return version >= GRH


@inlined
def ends_of(buf, i, version):
    """IP version of the addresses, and these as addresses(): those of a GRH may be IPv4's (RFC 4291, 2.5.5.2)."""
    if version == LRH:
        prefix = np.uint64(_LID_PREFIX)
        return np.int64(6), prefix, np.uint64(u16(buf, i + 6)), prefix, np.uint64(u16(buf, i + 2))
    a, b, c, d = addresses(buf, i, version)
    if version != GRH:
        return version, a, b, c, d
    zero, mapped = np.uint64(0), np.uint64(0xFFFF)
    if a == zero and c == zero and b >> np.uint64(32) == mapped and d >> np.uint64(32) == mapped:
        low = np.uint64(0xFFFFFFFF)
        return np.int64(4), zero, b & low, zero, d & low
    return np.int64(6), a, b, c, d


@inlined
def protocol_word(version, protocol, both_ports):
    """The fifth word of a key."""
    return np.uint64((version << 40) | (protocol << 32) | both_ports)
