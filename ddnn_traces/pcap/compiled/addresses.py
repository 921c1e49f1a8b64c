"""Addresses in the packets of capture files: known ones in headers, all hardware addresses, what is in no header."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ddnn_traces.jit import helper, u16, u32, u32_little
from ddnn_traces.pcap.compiled import compiled
from ddnn_traces.pcap.compiled.cut import base_transport_end, packet_at
from ddnn_traces.pcap.compiled.headers import (
    DESTINATION,
    FOLLOW,
    GRH,
    LATER_FRAGMENT,
    LENGTH_AT,
    LENGTH_BYTES,
    LINKS,
    LRH,
    SIZE,
    SOURCE,
    TCP,
    UDP,
    WHOLE,
    inner_link,
    link_row,
    network_header,
)
from ddnn_traces.pcap.compiled.scan import FULL, STOPPED, record_at
from ddnn_traces.pcap.compiled.tunnels import (
    MOST_TUNNELS,
    ROCE,
    inside,
)

#: What find_known() finds.
NOTHING, TIME, IP, HARDWARE = 0, 1, 2, 3


@helper
def _place(word, numbers, count):
    """Index of the first of `count` sorted numbers that is not less than a word."""
    low, high = 0, count
    while low < high:
        middle = (low + high) >> 1
        if numbers[middle] < word:
            low = middle + 1
        else:
            high = middle
    return low


@helper
def _known(word, numbers):
    place = _place(word, numbers, len(numbers))
    return place < len(numbers) and numbers[place] == word


@helper
def _understood(mask, begin, end, start):
    for k in range(max(begin, start), end):
        mask[k - start] = 0


@helper
def _in_link_header(buf, start, end, link, words):
    """What is known of the hardware addresses in the link header: one itself, or an IPv4 address that it holds."""
    first, last = _hardware_at(buf, start, end, link)
    for at in (first, last):
        if at >= 0:
            word = (u32(buf, at) << 16) | u16(buf, at + 4)
            if _known(word, words.hardware):
                return HARDWARE
            if _known(u32(buf, at + 2), words.ipv4):
                return IP
    return NOTHING


@helper
def _in_ip_header(buf, i, version, words):
    """What is known in the IP header at i: an IPv4 address, also as the end of an IPv6 one, or the interface of one."""
    for at in (i + 12, i + 16) if version == 4 else (i + 20, i + 36):
        if _known(u32(buf, at), words.ipv4):
            return IP
        if version != 4 and _known((u32(buf, at - 4) << 32) | u32(buf, at), words.interfaces):
            return HARDWARE
    return NOTHING


@helper
def _examine_headers(buf, start, end, wire, link, words, mask):
    """What is known in the address fields of a frame. Puts 1 into `mask` where no header was understood, else 0."""
    mask[: end - start] = 1
    row = link_row(link)
    i, version = network_header(buf, start, end, link)
    if row >= 0:
        _understood(mask, start, i if version else min(end, start + LINKS[row, SIZE]), start)
    known = _in_link_header(buf, start, end, link, words)
    for _ in range(MOST_TUNNELS + 1):
        if version == 0:
            return known
        outcome, protocol, transport, part, port = packet_at(buf, i, version, start, end, wire)
        if outcome != FOLLOW:
            return known
        if version == LRH:
            _understood(mask, i, base_transport_end(buf, transport, end), start)
            return known
        if known == NOTHING:
            known = _in_ip_header(buf, i, version, words)
        _understood(mask, i, i + 20 if version == 4 else i + 40 if part == WHOLE else transport, start)
        if part == LATER_FRAGMENT:
            return known
        if version == GRH:
            _understood(mask, transport, base_transport_end(buf, transport, end), start)
            return known
        if protocol == TCP:
            size = np.int64(buf[transport + 12] >> 4) * 4 if transport + 13 <= end else np.int64(20)
            _understood(mask, transport, min(end, transport + size), start)
            return known
        if protocol == UDP:
            after = min(end, transport + 8)
            _understood(mask, transport, base_transport_end(buf, after, end) if port == ROCE else after, start)
        _, i, version, _ = inside(buf, protocol, port, transport, end)
    return known


@helper
def _copy_rest(buf, start, end, mask, rest, copied):
    """Append what `mask` marks to `rest`, with a 0 between bytes that are not side by side: bytes in it."""
    follows = False
    for k in range(start, end):
        if mask[k - start]:
            if not follows:
                rest[copied] = 0
                copied += 1
            rest[copied] = buf[k]
            copied += 1
        follows = mask[k - start] != 0
    return copied


@helper
def _rest_has_known(rest, begin, end, numbers):
    known = False
    for k in range(begin, end - 3):
        known = known or _known(u32(rest, k), numbers)
    return known


class KnownWords(NamedTuple):
    """What find_known() finds in fields of packets, each int64 and sorted.

    ipv4, hardware: addresses. interfaces: second halves of IPv6 addresses, as signed numbers. times: (n, 2), first and
    last, ns, without overlaps.
    """

    ipv4: npt.NDArray[np.int64]
    hardware: npt.NDArray[np.int64]
    interfaces: npt.NDArray[np.int64]
    times: npt.NDArray[np.int64]


@compiled
def find_known(buf, pos, size, link, tick_ns, words, mask, rest, found):
    """Records of a little-endian pcap whose time or addresses are among `words`, and all that is in no header.

    A known value counts where such a value stands: in an address field of a header that was understood, or, an IPv4
    address, in what is in none. Elsewhere the counters and checksums of some gigabytes hold every value of 4 bytes, and
    many of 6.

    mask: uint8, longer than a frame that is understood. rest: uint8, as long as `buf`; gets what is in no such header.
    Returns (next offset, records, how many were written to `found`, bytes of `rest`); a row of found: number of the
    record, and what was found.
    """
    count, records, copied = 0, 0, 0
    while pos + 16 <= size and count < len(found):
        captured, wire = u32_little(buf, pos + 8), u32_little(buf, pos + 12)
        start = pos + 16
        end = start + captured
        if end > size:
            break
        time = u32_little(buf, pos) * 1000000000 + u32_little(buf, pos + 4) * tick_ns
        place = _place(time + 1, words.times[:, 0], len(words.times))  # the last that begins before it
        before, kind = copied, NOTHING
        if captured <= len(mask):
            kind = _examine_headers(buf, start, end, wire, link, words, mask)
            copied = _copy_rest(buf, start, end, mask, rest, copied)
        else:
            rest[copied : copied + captured] = buf[start:end]
            copied += captured
        if kind == NOTHING and _rest_has_known(rest, before, copied, words.ipv4):
            kind = IP
        if place and time <= words.times[place - 1, 1]:
            kind = TIME
        if kind != NOTHING:
            found[count, 0], found[count, 1] = records, kind
            count += 1
        records += 1
        pos = end
    return pos, records, count, copied


@helper
def _hardware_at(buf, start, end, link):
    """Offsets of the hardware addresses of 6 bytes in the link header of a frame; -1 where there is none."""
    none = np.int64(-1)
    start, row = inner_link(buf, start, end, link)
    if row < 0:
        return none, none
    first, last = LINKS[row, DESTINATION], LINKS[row, SOURCE]
    if start + max(first, last) + 6 > end:
        return none, none
    length_at, length = start + LINKS[row, LENGTH_AT], np.int64(6)
    if LINKS[row, LENGTH_BYTES] == 1:
        length = np.int64(buf[length_at])
    elif LINKS[row, LENGTH_BYTES] == 2:
        length = u16(buf, length_at)
    if length != 6:
        return none, none
    return start + first if first >= 0 else none, start + last if last >= 0 else none


@helper
def _insert(buf, at, found, count):
    """Add the six bytes to the sorted addresses in `found`, unless they are a group's, zero or there already."""
    word = (u32(buf, at) << 16) | u16(buf, at + 4)
    if word == 0 or buf[at] & 1:
        return count
    place = _place(word, found, count)
    if place < count and found[place] == word:
        return count
    for k in range(count, place, -1):
        found[k] = found[k - 1]
    found[place] = word
    return count + 1


@helper
def _insert_of_link(buf, start, end, link, found, count):
    """_insert() of the addresses in the link header of a frame, at most two."""
    first, last = _hardware_at(buf, start, end, link)
    for at in (first, last):
        if at >= 0:
            count = _insert(buf, at, found, count)
    return count


@compiled
def collect_hardware(buf, pos, size, stop, framing, interfaces, found, count):
    """Hardware addresses in the link headers of the records in buf[pos:size], into found, int64, sorted.

    Returns (offset of the first unread record, why it stopped there, how many addresses there are, records). FULL:
    there is no space for more addresses.
    """
    records = 0
    while True:
        if pos >= stop:
            return pos, STOPPED, count, records
        if count + 2 > len(found):
            return pos, FULL, count, records
        stopped, is_packet, start, captured, _, _, link, following = record_at(
            buf, pos, size, framing, interfaces, np.int64(0)
        )
        if stopped >= 0:
            return following, stopped, count, records
        if is_packet:
            count = _insert_of_link(buf, start, start + captured, link, found, count)
            records += 1
        pos = following
