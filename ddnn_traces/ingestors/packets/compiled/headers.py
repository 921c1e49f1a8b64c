"""The header walk: from a frame to its IP packet and ports, by captured bytes only. Offsets are into `buf`, uint8."""

from __future__ import annotations

import numpy as np

from ddnn_traces.ingestors.packets.compiled.jit import helper, inlined, u16, u32, u64

# Outcomes: in a flow, or an index into facts.SKIP_REASONS.
FOLLOW, NOT_IP, MALFORMED, CUT_SHORT, UNKNOWN_LINK = -1, 0, 1, 2, 3

# Which part of its datagram a packet is.
WHOLE, FIRST_FRAGMENT, LATER_FRAGMENT = 0, 1, 2

IPIP4, TCP, UDP, IPIP6, GRE = 4, 6, 17, 41, 47
ETHERNET, SLL, SLL2 = 1, 113, 276
RAW_LINKS = (12, 14, 101, 228, 229)
NULL_LINKS = (0, 108)


@inlined
def by_version(buf, i, end):
    """(offset, IP version) by the first nibble."""
    if i >= end:
        return np.int64(CUT_SHORT), np.int64(0)
    version = np.int64(buf[i] >> 4)
    return (i, version) if version == 4 or version == 6 else (np.int64(NOT_IP), np.int64(0))


@helper
def _rare_ethertype(buf, kind, i, end):
    """As by_ethertype: VLAN tags, MPLS and PPPoE, which may hold each other."""
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
            if i + 8 > end:
                return np.int64(CUT_SHORT), np.int64(0)
            protocol = u16(buf, i + 6)
            kind = 0x0800 if protocol == 0x0021 else 0x86DD if protocol == 0x0057 else 0
            i += 8
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
        else:
            return np.int64(NOT_IP), np.int64(0)


@inlined
def by_ethertype(buf, kind, i, end):
    """(offset of the IP header, IP version) behind an EtherType; version 0 and an outcome where there is none."""
    if kind == 0x0800:
        return i, np.int64(4)
    return _rare_ethertype(buf, kind, i, end)


@inlined
def network_header(buf, start, end, link):
    """(offset of the IP header, IP version) of a frame; version 0 and an outcome where there is none."""
    if link == ETHERNET:
        i = start + 12
    elif link == SLL:
        i = start + 14
    elif link == SLL2:
        i = start
    elif link in RAW_LINKS or link in NULL_LINKS:
        return by_version(buf, start + 4 if link in NULL_LINKS else start, end)
    else:
        return np.int64(UNKNOWN_LINK), np.int64(0)
    if i + 2 > end:
        return np.int64(CUT_SHORT), np.int64(0)
    return by_ethertype(buf, u16(buf, i), start + 20 if link == SLL2 else i + 2, end)


@helper
def ipv6_chain(buf, i, end):
    """(next header, offset behind the extension headers, part, offset of the fragment header) of the IPv6 header at i.

    RFC 8200, section 4. Offset -1: the captured bytes end inside the chain. The offset of the fragment header is that
    of the last one that tells a fragment; -1 without one.
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
    """The IP packet at i: (outcome, protocol, offset of what it carries, bytes of that, IP bytes, part, fragment).

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
def protocol_word(version, protocol, both_ports):
    """The fifth word of a key."""
    return np.uint64((version << 40) | (protocol << 32) | both_ports)
