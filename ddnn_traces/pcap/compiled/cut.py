"""The loop that cuts captures down: headers with other addresses, ports, numbers and times, and nothing after them.

It walks the headers as scan.py does, so that ingest reads the same facts from its output. Every byte that is written
was either understood or is 0: bytes that are not understood are never copied. Offsets are into `buf`, uint8; a byte at
offset i is written to out[i + shift].
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ddnn_traces.jit import helper, u16, u32
from ddnn_traces.pcap.compiled import compiled
from ddnn_traces.pcap.compiled.copy import (
    LATEST_NS,
    NO_TIME,
    OTHER_LINK,
    RECORD_HEADER,
    put_record_header,
)
from ddnn_traces.pcap.compiled.headers import (
    CUT_SHORT,
    DESTINATION,
    FAMILY_AT,
    FOLLOW,
    GRE,
    GRH,
    IS_CUT,
    KEPT_FROM,
    KEPT_TO,
    LATER_FRAGMENT,
    LEAST_TYPE,
    LENGTH_AT,
    LINKS,
    NOT_IP,
    ROCE_V1_TYPE,
    SIZE,
    SOURCE,
    TCP,
    TYPE_AT,
    UDP,
    WHOLE,
    ends_of,
    ip_header,
    is_typed,
    link_row,
    link_type_of,
    network_header,
    ports,
    ppp_type,
)
from ddnn_traces.pcap.compiled.roce import READ_REQUEST
from ddnn_traces.pcap.compiled.scan import STOPPED, record_at
from ddnn_traces.pcap.compiled.trains import has_syndrome
from ddnn_traces.pcap.compiled.tunnels import (
    GTP_U_PORT,
    MOST_TUNNELS,
    PPP_IN_GRE,
    ROCE,
    VXLAN_GPE_PORT,
    inside,
)
from ddnn_traces.pcap.link_types import BASE_TRANSPORT

#: Why cut() returned, besides the reasons of scan() and OTHER_LINK and NO_TIME: headers of that link are not written.
UNWRITTEN_LINK = 102

_NESTING = (0x8100, 0x88A8, 0x9100, 0x8864, 0x8847, 0x8848, ROCE_V1_TYPE)  # EtherTypes of headers that hold another
_NO_TYPE = 0xFFFF  # reserved (RFC 1701)
_HOP_LIMIT = 64
_ACK = 16


class Substitutes(NamedTuple):
    """The substitutes of addresses and ports. v4: int64 (n, 2), v6: uint64 (n, 4), address and substitute in a row,
    sorted. ports: int64 (65536,). salt: uint64 (4,), secret. offset_ns: is added to times."""

    v4: npt.NDArray[np.int64]
    v6: npt.NDArray[np.uint64]
    ports: npt.NDArray[np.int64]
    salt: npt.NDArray[np.uint64]
    offset_ns: int


@helper
def _row(version, high, low, substitutes):
    """Row of an address in its table; -1: not known."""
    if version == 4:
        table, wanted = substitutes.v4, np.int64(low)
        at, after = 0, len(table)
        while at < after:
            middle = (at + after) >> 1
            if table[middle, 0] < wanted:
                at = middle + 1
            else:
                after = middle
        return at if at < len(table) and table[at, 0] == wanted else -1
    words = substitutes.v6
    at, after = 0, len(words)
    while at < after:
        middle = (at + after) >> 1
        if words[middle, 0] < high or (words[middle, 0] == high and words[middle, 1] < low):
            at = middle + 1
        else:
            after = middle
    return at if at < len(words) and words[at, 0] == high and words[at, 1] == low else -1


@helper
def _secret(substitutes, a, b, c, d, e):
    """64 bits that follow from the words and the salt (the finalizer of SplitMix64 after each)."""
    salt = substitutes.salt
    h = salt[0]
    for word in (a, b, c, d, e, salt[1]):
        h = (h ^ word) + salt[2]
        h = (h ^ (h >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        h = (h ^ (h >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        h = h ^ (h >> np.uint64(31)) ^ salt[3]
    return h


@helper
def _put(out, at, value, size):
    """`size` bytes of a number, big-endian."""
    for k in range(size):
        out[at + k] = (value >> (8 * (size - 1 - k))) & 0xFF


@helper
def _copy(buf, begin, after, out, shift):
    for k in range(begin, after):
        out[k + shift] = buf[k]


@helper
def _clear(begin, after, out, shift):
    for k in range(begin, after):
        out[k + shift] = 0


# --- link headers


@helper
def _copy_types(buf, kind, j, after, out, shift):
    """The headers between an EtherType and the IP header at `after`, which are cleared: their types alone."""
    while j < after:
        if kind == 0x8100 or kind == 0x88A8 or kind == 0x9100:
            _copy(buf, j + 2, j + 4, out, shift)
            kind = u16(buf, j + 2)
            j += 4
        elif kind == 0x8864:
            out[j + shift] = 0x11
            kind, following = ppp_type(buf, j + 6, after)
            _copy(buf, j + 6, following, out, shift)
            j = following
        elif 0 < kind <= 1500:
            _copy(buf, j, j + 3, out, shift)
            if buf[j] != 0xAA:
                return
            _copy(buf, j + 3, j + 8, out, shift)
            kind = u16(buf, j + 6)
            j += 8
        elif kind == 0x8847 or kind == 0x8848:
            bottom = np.int64(0)
            while not bottom:
                bottom = np.int64(buf[j + 2]) & 1
                out[j + 2 + shift] = bottom
                j += 4
            if j < after:
                _copy(buf, j + 16, j + 18, out, shift)
                kind = u16(buf, j + 16)
                j += 18
        else:
            return


@helper
def _copy_link(buf, start, i, version, link, out, shift):
    """The link header of the IP packet at i."""
    row = link_row(link)
    _clear(start, i, out, shift)
    if is_typed(row):
        at = start + LINKS[row, TYPE_AT]
        _copy(buf, start + LINKS[row, KEPT_FROM], start + LINKS[row, KEPT_TO], out, shift)
        _copy(buf, at, at + 2, out, shift)
        _copy_types(buf, link_type_of(buf, at, row), start + LINKS[row, SIZE], i, out, shift)
    elif LINKS[row, FAMILY_AT] >= 0:
        out[start + LINKS[row, FAMILY_AT] + shift] = 2 if version == 4 else 30


@helper
def _put_hardware(link, start, out, shift, src, dst):
    """Locally administered addresses that are made from those of the IP header, where the header always has some."""
    row = link_row(link)
    if LINKS[row, LENGTH_AT] < 0:
        for at, address in ((LINKS[row, DESTINATION], dst), (LINKS[row, SOURCE], src)):
            if at >= 0:
                out[start + at + shift] = 2
                _put(out, start + at + 2 + shift, address, 4)


@helper
def _stub(buf, start, end, link, out, shift):
    """Write the start of a frame without a known IP packet, which ingest reads as not_ip: offset after it."""
    row = link_row(link)
    after = min(end, start + LINKS[row, SIZE] + (0 if is_typed(row) else 1))
    _clear(start, after, out, shift)
    if is_typed(row):
        at = start + LINKS[row, TYPE_AT]
        kind = u16(buf, at)
        if kind in _NESTING or kind == 0x0800 or kind == 0x86DD or kind < LEAST_TYPE:
            kind = _NO_TYPE
        _put(out, at + shift, kind, 2)
    return after


# --- IP


@helper
def _copy_ip4(buf, i, after, whole, secret, src, dst, out, shift):
    _copy(buf, i, i + 4, out, shift)
    if not whole:  # pieces of a datagram find each other by it
        _put(out, i + 4 + shift, (u16(buf, i + 4) + np.int64(secret & np.uint64(0xFFFF))) & 0xFFFF, 2)
        _copy(buf, i + 6, i + 8, out, shift)
    else:
        out[i + 6 + shift] = buf[i + 6] & 0x40
    out[i + 8 + shift] = _HOP_LIMIT
    out[i + 9 + shift] = buf[i + 9]
    _put(out, i + 12 + shift, src, 4)
    _put(out, i + 16 + shift, dst, 4)
    total = np.int64(0)
    for k in range(i, after, 2):  # RFC 1071; options are cleared
        if k + 1 < after:
            total += (np.int64(out[k + shift]) << 8) | np.int64(out[k + 1 + shift])
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    _put(out, i + 10 + shift, ~total & 0xFFFF, 2)


@helper
def _copy_ip6(buf, i, after, secret, a, b, c, d, out, shift):
    """The header and its extension headers: only lengths, types and fragments' places of these."""
    _put(out, i + shift, (u16(buf, i) & 0x0FF0) | 0x6000, 2)  # the traffic class; flow labels are like an address
    _copy(buf, i + 4, i + 7, out, shift)
    out[i + 7 + shift] = _HOP_LIMIT
    for k in range(8):
        move = np.uint64(56 - 8 * k)
        out[i + 8 + k + shift] = (a >> move) & np.uint64(255)
        out[i + 16 + k + shift] = (b >> move) & np.uint64(255)
        out[i + 24 + k + shift] = (c >> move) & np.uint64(255)
        out[i + 32 + k + shift] = (d >> move) & np.uint64(255)
    protocol, j = np.int64(buf[i + 6]), i + 40
    while j + 8 <= after:
        out[j + shift] = buf[j]
        if protocol == 44:
            _copy(buf, j + 2, j + 4, out, shift)
            identification = (u32(buf, j + 4) + np.int64(secret & np.uint64(0xFFFFFFFF))) & 0xFFFFFFFF
            _put(out, j + 4 + shift, identification, 4)
            j, protocol = j + 8, np.int64(buf[j])
            continue
        out[j + 1 + shift] = buf[j + 1]
        size = (np.int64(buf[j + 1]) + 2) * 4 if protocol == 51 else (np.int64(buf[j + 1]) + 1) * 8
        j, protocol = j + size, np.int64(buf[j])


# --- TCP, UDP, tunnels


@helper
def _copy_options(buf, j, after, sack_shift, out, shift):
    """TCP options (RFC 9293, 3.2): MSS, window scale and SACK stay, time stamps are 0, others become no-operations."""
    while j < after:
        kind = np.int64(buf[j])
        if kind == 1:
            out[j + shift] = 1
            j += 1
            continue
        if kind == 0 or j + 2 > after:
            return
        size = np.int64(buf[j + 1])
        if size < 2 or j + size > after:
            return
        if (kind == 2 and size == 4) or (kind == 3 and size == 3) or (kind == 4 and size == 2):
            _copy(buf, j, j + size, out, shift)
        elif kind == 5 and size & 3 == 2:
            _copy(buf, j, j + 2, out, shift)
            for k in range(j + 2, j + size, 4):
                _put(out, k + shift, (u32(buf, k) + sack_shift) & 0xFFFFFFFF, 4)
        elif kind == 8 and size == 10:
            _copy(buf, j, j + 2, out, shift)
        else:
            for k in range(j, j + size):
                out[k + shift] = 1
        j += size


@helper
def _copy_tcp(buf, t, end, a, b, c, d, substitutes, out, shift):
    """The header at t, as far as it was captured: offset after it.

    Numbers of each direction are shifted by one of its own, so that retransmissions and losses remain.
    """
    size = np.int64(buf[t + 12] >> 4) * 4 if t + 13 <= end else np.int64(20)
    after = min(end, t + size)
    _clear(t, after, out, shift)
    src, dst = u16(buf, t), u16(buf, t + 2)
    _put(out, t + shift, substitutes.ports[src], 2)
    _put(out, t + 2 + shift, substitutes.ports[dst], 2)
    low = np.uint64(0xFFFFFFFF)
    there = np.int64(_secret(substitutes, a, b, c, d, np.uint64(src << 16 | dst)) & low)
    back = np.int64(_secret(substitutes, c, d, a, b, np.uint64(dst << 16 | src)) & low)
    if t + 8 <= end:
        _put(out, t + 4 + shift, (u32(buf, t + 4) + there) & 0xFFFFFFFF, 4)
    if t + 14 <= end and buf[t + 13] & _ACK:
        _put(out, t + 8 + shift, (u32(buf, t + 8) + back) & 0xFFFFFFFF, 4)
    if t + 13 <= end:
        out[t + 12 + shift] = buf[t + 12]
    if t + 14 <= end:
        out[t + 13 + shift] = buf[t + 13]
    if t + 16 <= end:
        _copy(buf, t + 14, t + 16, out, shift)
    _copy_options(buf, t + 20, after, back, out, shift)
    return after


@helper
def base_transport_end(buf, j, end):
    """Offset after RoCE's base transport header at j and what ingest reads behind it, as captured; j below 8 bytes."""
    if j + 8 > end:
        return j
    opcode, size = np.int64(buf[j]), 12
    if has_syndrome(opcode):
        size += 4
    elif opcode & 31 == READ_REQUEST:
        size += 16 if opcode < 0x20 else 20
    return min(end, j + size)


@helper
def _copy_base_transport(buf, j, end, out, shift):
    """RoCE's base transport header at j: opcode, padding, queue pair and number, and behind it the syndrome of an
    acknowledgement, or the length that a READ asks for. Returns the offset after it."""
    after = base_transport_end(buf, j, end)
    if after == j:
        return j
    _clear(j, after, out, shift)
    out[j + shift] = buf[j]
    out[j + 1 + shift] = buf[j + 1] & 0x30
    _copy(buf, j + 5, j + 8, out, shift)
    _copy(buf, j + 9, min(after, j + 12), out, shift)
    if has_syndrome(np.int64(buf[j])):
        _copy(buf, j + 12, min(after, j + 13), out, shift)
    elif after >= j + 28:
        _copy(buf, after - 4, after, out, shift)
    return after


@helper
def _copy_udp(buf, t, end, substitutes, out, shift):
    """The header at t, with that of RoCEv2 after it: offset after both."""
    src, dst = u16(buf, t), u16(buf, t + 2)
    after = min(end, t + 8)
    _clear(t, after, out, shift)
    _put(out, t + shift, substitutes.ports[src], 2)
    _put(out, t + 2 + shift, substitutes.ports[dst], 2)
    if t + 6 <= end:
        _copy(buf, t + 4, t + 6, out, shift)
    return _copy_base_transport(buf, t + 8, end, out, shift) if dst == ROCE and after == t + 8 else after


@helper
def _copy_ppp(buf, j, after, out, shift):
    """PPP, or C-HDLC, between j and the IP header at `after`: protocols and what stands before these."""
    if buf[j] == 0x0F or buf[j] == 0x8F:
        _copy(buf, j, j + 4, out, shift)
        _copy_types(buf, u16(buf, j + 2), j + 4, after, out, shift)
        return
    kind, following = ppp_type(buf, j + 2 if buf[j] == 0xFF else j, after)
    if buf[j] == 0xFF:
        out[j + shift] = 0xFF
        out[j + 1 + shift] = 3
    _copy(buf, j + 2 if buf[j] == 0xFF else j, following, out, shift)
    _copy_types(buf, kind, following, after, out, shift)


@helper
def _copy_gtp_u(buf, j, after, out, shift):
    """The header at j and its extension headers: flags, type, length, identifier, and types and lengths of these."""
    _copy(buf, j, j + 8, out, shift)
    if not buf[j] & 7:
        return
    following = np.int64(buf[j + 11]) if buf[j] & 4 else np.int64(0)
    out[j + 11 + shift] = following
    j += 12
    while following and j < after:
        out[j + shift] = buf[j]
        j += 4 * np.int64(buf[j])
        following = np.int64(buf[j - 1])
        out[j - 1 + shift] = following


@helper
def _copy_tunnel(buf, protocol, t, i, out, shift):
    """The headers between the transport at t and the inner IP header at i: types, lengths and identifiers."""
    if protocol == UDP:
        _clear(t + 8, i, out, shift)
        port = u16(buf, t + 2)
        if port == GTP_U_PORT:
            _copy_gtp_u(buf, t + 8, i, out, shift)
            return
        if port == VXLAN_GPE_PORT:
            following, j = np.int64(buf[t + 11]), t + 16
            kind = np.int64(0x6558 if following == 3 else 0x8847 if following == 5 else 0)
            out[t + 8 + shift] = buf[t + 8] & 0x0C
            out[t + 11 + shift] = following
        elif port == 6081:
            kind, j = u16(buf, t + 10), t + 16 + 4 * (np.int64(buf[t + 8]) & 63)
            out[t + 8 + shift] = buf[t + 8]
            _copy(buf, t + 10, t + 12, out, shift)
        else:
            kind, j = np.int64(0x6558), t + 16
            out[t + 8 + shift] = 8
        _copy(buf, t + 12, t + 15, out, shift)
        if kind == 0x6558:
            _copy(buf, j + 12, j + 14, out, shift)
            kind, j = u16(buf, j + 12), j + 14
        _copy_types(buf, kind, j, i, out, shift)
    elif protocol == GRE:
        _clear(t, i, out, shift)
        flags, kind = u16(buf, t), u16(buf, t + 2)
        _copy(buf, t, t + 4, out, shift)
        if flags & 7 == 1:  # PPTP
            _copy(buf, t + 4, t + 8, out, shift)
            j = t + 8 + 4 * ((flags >> 12) & 1) + 4 * ((flags >> 7) & 1)
            _copy_ppp(buf, j, i, out, shift)
            return
        key_at = t + 4 + 4 * ((flags >> 15) & 1)
        j = key_at + 4 * ((flags >> 13) & 1) + 4 * ((flags >> 12) & 1)
        if flags & 0x2000:
            _copy(buf, key_at, key_at + 4, out, shift)
        if kind == 0x88BE:
            j += 8 * ((flags >> 12) & 1) + 12
        elif kind == 0x22EB:
            out[j + 11 + shift] = buf[j + 11] & 1
            j += 12 + 8 * (np.int64(buf[j + 11]) & 1) + 12
        elif kind == 0x6558:
            j += 12
        elif kind == PPP_IN_GRE:
            _copy_ppp(buf, j, i, out, shift)
            return
        else:
            _copy_types(buf, kind, j, i, out, shift)
            return
        _copy(buf, j, j + 2, out, shift)
        _copy_types(buf, u16(buf, j), j + 2, i, out, shift)


@helper
def packet_at(buf, i, version, start, end, wire):
    """The IP packet at i: (outcome, protocol, offset of its payload, part, destination port)."""
    outcome, protocol, transport, carried, _, part, _ = ip_header(buf, i, version, start, end, wire)
    both_ports = np.int64(0)
    if outcome == FOLLOW and protocol in (TCP, UDP) and part != LATER_FRAGMENT:
        outcome, both_ports, _ = ports(buf, protocol, transport, end, carried)
    return outcome, protocol, transport, part, both_ports & 0xFFFF


@helper
def _frame(buf, start, end, wire, link, substitutes, out, shift):
    """Write the headers of the frame: the offset after them."""
    i, version = network_header(buf, start, end, link)
    if version == 0:
        return _stub(buf, start, end, link, out, shift) if i == NOT_IP else start
    outcome, protocol, transport, part, port = packet_at(buf, i, version, start, end, wire)
    if outcome != FOLLOW:
        after = i + (1 if outcome == CUT_SHORT else 20 if version == 4 else 40)
        _copy_link(buf, start, i, version, link, out, shift)
        _clear(i, after, out, shift)
        # its version, and where it is malformed a header that is too short
        out[i + shift] = version << 4 if outcome == CUT_SHORT else 0x44
        if version == GRH:
            out[i + 6 + shift] = BASE_TRANSPORT
        return after
    family, a, b, c, d = ends_of(buf, i, version)
    src, dst = _row(family, a, b, substitutes), _row(family, c, d, substitutes)
    if src < 0 or dst < 0:  # of a flow that ingest left out by --filter
        return _stub(buf, start, end, link, out, shift)
    _copy_link(buf, start, i, version, link, out, shift)
    outer_part, depth = part, 0
    while True:
        after = min(end, transport)
        _clear(i, after, out, shift)
        secret = _secret(substitutes, a, b, c, d, np.uint64(0))
        if version == 4:
            new_src, new_dst = substitutes.v4[src, 1], substitutes.v4[dst, 1]
            _copy_ip4(buf, i, after, part == WHOLE, secret, new_src, new_dst, out, shift)
        elif family == 4:  # in a GRH
            new_src, new_dst = substitutes.v4[src, 1], substitutes.v4[dst, 1]
            zero, mapped = np.uint64(0), np.uint64(0xFFFF << 32)
            low, high = mapped | np.uint64(new_src), mapped | np.uint64(new_dst)
            _copy_ip6(buf, i, after, secret, zero, low, zero, high, out, shift)
        else:
            v6 = substitutes.v6
            _copy_ip6(buf, i, after, secret, v6[src, 2], v6[src, 3], v6[dst, 2], v6[dst, 3], out, shift)
            low = np.uint64(0xFFFFFFFF)
            new_src, new_dst = np.int64(v6[src, 3] & low), np.int64(v6[dst, 3] & low)
        if depth == 0:
            _put_hardware(link, start, out, shift, new_src, new_dst)
        if part == LATER_FRAGMENT:
            return after
        if protocol == TCP:
            return _copy_tcp(buf, transport, end, a, b, c, d, substitutes, out, shift)
        if version == GRH:
            return _copy_base_transport(buf, transport, end, out, shift)
        if protocol == UDP:
            after = _copy_udp(buf, transport, end, substitutes, out, shift)
        if depth == MOST_TUNNELS:
            return after
        _, at, version, _ = inside(buf, protocol, port, transport, end)
        if version == 0:
            return after
        tunnel, tunnel_protocol = transport, protocol
        i = at
        outcome, protocol, transport, part, port = packet_at(buf, i, version, start, end, wire)
        if outcome != FOLLOW or (outer_part != WHOLE and part != WHOLE):
            return after
        family, a, b, c, d = ends_of(buf, i, version)
        src, dst = _row(family, a, b, substitutes), _row(family, c, d, substitutes)
        if src < 0 or dst < 0:
            return after
        _copy_tunnel(buf, tunnel_protocol, tunnel, i, out, shift)
        if part != WHOLE:
            outer_part = part
        depth += 1


@compiled
def cut(buf, pos, size, stop, framing, interfaces, link, last_ns, substitutes, out):
    """Write the complete records in buf[pos:size] to `out`, uint8, as those of a pcap in little endian with ns.

    framing, interfaces: as scan() has them. link: the link type that all packets have; -1: that of the first. last_ns:
    time of the record before, in ns. Returns the offset of the first unread record, why it stopped there, how many
    bytes and records were written, the link type and the time of the last record. `out` is as long as `buf` at least.
    """
    written, records, ts = np.int64(0), np.int64(0), np.int64(last_ns)
    while True:
        if pos >= stop:
            why = STOPPED
            break
        stopped, is_packet, start, captured, wire, time, this_link, following = record_at(
            buf, pos, size, framing, interfaces, ts
        )
        if stopped >= 0:
            pos, why = following, stopped
            break
        if not is_packet:
            pos = following
            continue
        end = start + captured
        if link < 0:
            link = this_link
        shifted = time + substitutes.offset_ns
        if this_link != link or shifted < 0 or shifted >= LATEST_NS:
            why = OTHER_LINK if this_link != link else NO_TIME
            break
        if not LINKS[link_row(link), IS_CUT]:
            why = UNWRITTEN_LINK
            break
        ts = time
        shift = written + RECORD_HEADER - start
        after = _frame(buf, start, end, wire, link, substitutes, out, shift)
        put_record_header(out, written, shifted, after - start, wire)
        written += RECORD_HEADER + after - start
        records += 1
        pos = following
    return pos, why, written, records, link, ts
