"""Tunnels, fragments and RoCE: from the outermost IP packet to the one that is the flow's.

`innermost` has its result in state.found and state.found_key, whose entries are named here.
"""

from __future__ import annotations

import numpy as np

from ddnn_traces.jit import helper, u16, u32
from ddnn_traces.pcap.compiled import compiled
from ddnn_traces.pcap.compiled.flow_table import TUNNEL_COUNT, find_slot
from ddnn_traces.pcap.compiled.headers import (
    FOLLOW,
    GRE,
    IPIP4,
    IPIP6,
    LATER_FRAGMENT,
    MALFORMED,
    TCP,
    UDP,
    WHOLE,
    addresses,
    by_ethertype,
    by_version,
    ends_of,
    ip_header,
    is_infiniband,
    no_length,
    ports,
    ppp,
    protocol_word,
    rare_ethertype,
)

# Entries of `found`: of the packet, and of the fragment that it is. TRANSPORT: of InfiniBand 8 bytes before the base
# transport header, which stands after UDP's header elsewhere.
PROTOCOL, TRANSPORT, PAYLOAD, IP_BYTES, PART, IP_AT, IP_VERSION = range(7)
FRAGMENT_BEGIN, FRAGMENT_BYTES, FRAGMENT_MORE = range(7, 10)
FOUND = 10
# Words of `found_key`: the flow's key, then the datagram's.
DATAGRAM_KEY, FOUND_WORDS = 6, 12

KINDS = ("ipip", "gre", "vxlan", "geneve", "pptp", "vxlan_gpe", "gtp_u")  # at most 8: 3 bits of a key
_IPIP, _GRE, _VXLAN, _GENEVE, _PPTP, _VXLAN_GPE, _GTP_U = range(7)
PPP_IN_GRE, VXLAN_GPE_PORT, GTP_U_PORT = 0x880B, 4790, 2152
MOST_TUNNELS = 4
_MOST_ROWS = (1 << 24) - 2  # 24 bits of a key
ROCE = 4791


@helper
def _gre(buf, i, end):
    """(offset of the IP header or -1, version, identifier + 1 or 0) of a GRE header (RFC 2784, RFC 2890) at i."""
    nothing = np.int64(-1), np.int64(0), np.int64(0)
    if i + 4 > end:
        return nothing
    flags, kind = u16(buf, i), u16(buf, i + 2)
    if flags & 0x4007:  # routing, version
        return nothing
    key_at = i + 4 + 4 * ((flags >> 15) & 1)
    inner = key_at + 4 * ((flags >> 13) & 1) + 4 * ((flags >> 12) & 1)
    identifier = np.int64(0)
    if flags & 0x2000:
        if key_at + 4 > end:
            return nothing
        identifier = u32(buf, key_at) + 1
    if kind == 0x88BE:  # ERSPAN
        inner += 8 * ((flags >> 12) & 1) + 12
    elif kind == 0x22EB:
        if inner + 12 > end:
            return nothing
        inner += 12 + 8 * (np.int64(buf[inner + 11]) & 1) + 12
    elif kind == 0x6558:
        inner += 12
    elif kind == PPP_IN_GRE:
        at, version = ppp(buf, inner, end)
        return at, version, identifier
    else:
        at, version = by_ethertype(buf, no_length(kind), inner, end)
        return at, version, identifier
    if inner + 2 > end:
        return nothing
    at, version = by_ethertype(buf, u16(buf, inner), inner + 2, end)
    return at, version, identifier


@helper
def _ethernet(buf, i, end, identifier):
    if i + 14 > end:
        return np.int64(-1), np.int64(0), np.int64(0)
    at, version = by_ethertype(buf, u16(buf, i + 12), i + 14, end)
    return at, version, identifier


@helper
def _pptp(buf, i, end):
    """As _gre, of enhanced GRE (RFC 2637, 4.1) at i, whose identifier is the call."""
    nothing = np.int64(-1), np.int64(0), np.int64(0)
    if i + 8 > end:
        return nothing
    flags = u16(buf, i)
    if flags & 0xE007 != 0x2001 or u16(buf, i + 2) != PPP_IN_GRE or u16(buf, i + 4) == 0:
        return nothing
    at, version = ppp(buf, i + 8 + 4 * ((flags >> 12) & 1) + 4 * ((flags >> 7) & 1), end)
    return at, version, u16(buf, i + 6) + 1


@helper
def _vxlan_gpe(buf, i, end):
    """As _gre, of VXLAN-GPE (draft-ietf-nvo3-vxlan-gpe, 3.1) at i, of which 8 bytes were captured."""
    flags, following = np.int64(buf[i]), np.int64(buf[i + 3])
    identifier = (u32(buf, i + 4) >> 8) + 1 if flags & 8 else np.int64(0)
    if flags & 0x35 != 4:  # version 0, no OAM, with a next protocol
        return np.int64(-1), np.int64(0), np.int64(0)
    if following == 3:
        return _ethernet(buf, i + 8, end, identifier)
    kind = 0x0800 if following == 1 else 0x86DD if following == 2 else 0x8847 if following == 5 else 0
    at, version = rare_ethertype(buf, np.int64(kind), i + 8, end)
    return at, version, identifier


@helper
def _gtp_u(buf, i, end):
    """As _gre, of a G-PDU (3GPP TS 29.281, 5.1) at i, of which 8 bytes were captured."""
    nothing = np.int64(-1), np.int64(0), np.int64(0)
    flags, identifier = np.int64(buf[i]), u32(buf, i + 4) + 1
    if flags & 0xF0 != 0x30 or buf[i + 1] != 255:
        return nothing
    i += 8
    if flags & 7:
        if i + 4 > end:
            return nothing
        following = np.int64(buf[i + 3]) if flags & 4 else np.int64(0)
        i += 4
        while following:  # extension headers, of 4 bytes times their first one
            if i >= end or buf[i] == 0:
                return nothing
            i += 4 * np.int64(buf[i])
            if i > end:
                return nothing
            following = np.int64(buf[i - 1])
    at, version = by_version(buf, i, end)
    return at, version, identifier


@helper
def inside(buf, protocol, port, i, end):
    """(kind, offset of the inner IP header, its version, identifier + 1 or 0); version 0 where there is no tunnel."""
    none = np.int64(0)
    if protocol == IPIP4:
        return np.int64(_IPIP), i, np.int64(4), none
    if protocol == IPIP6:
        return np.int64(_IPIP), i, np.int64(6), none
    if protocol == GRE:
        if i + 2 <= end and buf[i + 1] & 7 == 1:
            at, version, identifier = _pptp(buf, i, end)
            return np.int64(_PPTP), at, version, identifier
        at, version, identifier = _gre(buf, i, end)
        return np.int64(_GRE), at, version, identifier
    if protocol != UDP or i + 16 > end:
        return none, none, none, none
    i += 8
    if (port == 4789 or port == 8472) and buf[i] & 8:  # RFC 7348, 5
        at, version, identifier = _ethernet(buf, i + 8, end, (u32(buf, i + 4) >> 8) + 1)
        return np.int64(_VXLAN), at, version, identifier
    if port == 6081 and buf[i] >> 6 == 0:  # RFC 8926, 3.4
        inner, kind = i + 8 + 4 * (np.int64(buf[i]) & 63), u16(buf, i + 2)
        identifier = (u32(buf, i + 4) >> 8) + 1
        if kind == 0x6558:
            at, version, identifier = _ethernet(buf, inner, end, identifier)
        else:
            at, version = by_ethertype(buf, no_length(kind), inner, end)
        return np.int64(_GENEVE), at, version, identifier
    if port == VXLAN_GPE_PORT:
        at, version, identifier = _vxlan_gpe(buf, i, end)
        return np.int64(_VXLAN_GPE), at, version, identifier
    if port == GTP_U_PORT:
        at, version, identifier = _gtp_u(buf, i, end)
        return np.int64(_GTP_U), at, version, identifier
    return none, none, none, none


@helper
def _tunnel_number(state, salt, a, b, c, d, e, f):
    """Row of a tunnel, a new one for a new tunnel."""
    slot = find_slot(state.tunnel_slots, state.tunnel_keys, salt, a, b, c, d, e, f)
    row = np.int64(state.tunnel_slots[slot])
    if row < 0:
        row = state.total[TUNNEL_COUNT]
        state.total[TUNNEL_COUNT] += 1
        state.tunnel_slots[slot] = row
        keys = state.tunnel_keys
        keys[row, 0], keys[row, 1], keys[row, 2], keys[row, 3], keys[row, 4], keys[row, 5] = a, b, c, d, e, f
    return row


@helper
def tunnel_word(parent, kind, identifier):
    """The sixth word of a tunnel's key. parent: row + 1 of the one around it; identifier: + 1; 0: none."""
    return np.uint64((parent << 36) | (kind << 33) | identifier)


@helper
def _note_fragment(buf, i, version, transport, carried, fragment, tunnel, found, key):
    """The datagram that the IP packet at i is a fragment of, and which bytes of it."""
    if version == 4:
        word, identification = u16(buf, i + 6), u16(buf, i + 4)
        begin, more, size, protocol = (word & 0x1FFF) * 8, (word >> 13) & 1, carried, np.int64(buf[i + 9])
    else:
        word, identification = u16(buf, fragment + 2), u32(buf, fragment + 4)
        begin, more, size, protocol = (
            word & 0xFFF8,
            word & 1,
            carried + transport - fragment - 8,
            np.int64(buf[fragment]),
        )
    found[FRAGMENT_BEGIN], found[FRAGMENT_BYTES], found[FRAGMENT_MORE] = begin, size, more
    a, b, c, d = addresses(buf, i, version)
    at = DATAGRAM_KEY
    key[at], key[at + 1], key[at + 2], key[at + 3] = a, b, c, d
    key[at + 4] = protocol_word(version, protocol, np.int64(0))
    key[at + 5] = np.uint64((tunnel << 40) | identification)


@helper
def innermost(buf, i, version, start, end, wire, options, state):
    """Find the innermost IP packet that can be read, from the outermost at i on; its outcome."""
    found, key = state.found, state.found_key
    tunnel = np.int64(0)  # row + 1 of the tunnel that the packet at hand is in
    a = b = c = d = e = around = np.uint64(0)
    for depth in range(MOST_TUNNELS + 1):
        outcome, protocol, transport, carried, ip_bytes, part, fragment = ip_header(buf, i, version, start, end, wire)
        both_ports, payload = np.int64(0), carried
        if outcome == FOLLOW and protocol in (TCP, UDP) and part != LATER_FRAGMENT:
            outcome, both_ports, payload = ports(buf, protocol, transport, end, carried)
        if outcome == FOLLOW and depth > 0 and found[PART] != WHOLE and part != WHOLE:
            outcome = np.int64(MALFORMED)  # a fragment inside a fragment is not opened
        if outcome != FOLLOW:
            return outcome if depth == 0 else np.int64(FOLLOW)
        if depth > 0:
            tunnel = _tunnel_number(state, options.salt, a, b, c, d, e, around) + 1
        if depth == 0 or part != WHOLE:
            found[PART] = part
        if part != WHOLE:
            _note_fragment(buf, i, version, transport, carried, fragment, tunnel, found, key)
        family, a, b, c, d = ends_of(buf, i, version)
        e = protocol_word(family, protocol, both_ports)
        if is_infiniband(version):
            transport -= 8
        found[PROTOCOL], found[TRANSPORT], found[PAYLOAD], found[IP_BYTES] = protocol, transport, payload, ip_bytes
        found[IP_AT], found[IP_VERSION] = i, version
        key[0], key[1], key[2], key[3], key[4], key[5] = a, b, c, d, e, np.uint64(tunnel << 40)
        port = both_ports & 0xFFFF
        is_udp = protocol == UDP and port == ROCE and part != LATER_FRAGMENT
        if (is_udp or is_infiniband(version)) and transport + 16 <= end:
            pair = u32(buf, transport + 12) & 0xFFFFFF
            key[5] |= np.uint64((1 << 32) | (np.int64(buf[transport + 8]) << 24) | pair)
        if part == LATER_FRAGMENT or not options.open_tunnels or depth == MOST_TUNNELS:
            break
        kind, i, version, identifier = inside(buf, protocol, port, transport, end)
        if version == 0 or state.total[TUNNEL_COUNT] >= _MOST_ROWS:
            break
        around = tunnel_word(tunnel, kind, identifier)
    return np.int64(FOLLOW)


@compiled
def tunnel_row(state, options, a, b, c, d, e, f):
    """Row of a tunnel by its key, a new one for a new tunnel."""
    return _tunnel_number(state, options.salt, a, b, c, d, e, f)
