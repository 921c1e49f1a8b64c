"""Addresses in the packets of capture files: known IPv4 addresses in the headers, and all hardware addresses."""

from __future__ import annotations

import numpy as np

from ddnn_traces.jit import helper, u16, u32, u32_little
from ddnn_traces.pcap.compiled import compiled
from ddnn_traces.pcap.compiled.cut import packet_at
from ddnn_traces.pcap.compiled.headers import (
    DESTINATION,
    FOLLOW,
    LATER_FRAGMENT,
    LENGTH_AT,
    LENGTH_BYTES,
    LINKS,
    MOST_TUNNELS,
    ROCE,
    SOURCE,
    TCP,
    UDP,
    inner_link,
    inside,
    network_header,
)
from ddnn_traces.pcap.compiled.scan import FULL, STOPPED, record_at


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
def _blank(mask, begin, end, start):
    for k in range(max(begin, start), end):
        mask[k - start] = 0


@helper
def _mask_numbers(buf, start, end, wire, link, mask):
    """Put 0 into `mask` where a frame holds counters and checksums, which can be any number; 1 elsewhere."""
    mask[: end - start] = 1
    i, version = network_header(buf, start, end, link)
    for _ in range(MOST_TUNNELS + 1):
        if version == 0:
            return
        outcome, protocol, transport, part, port = packet_at(buf, i, version, start, end, wire)
        if outcome != FOLLOW:
            return
        if version == 4:
            _blank(mask, i + 2, min(end, i + 6), start)
            _blank(mask, i + 10, min(end, i + 12), start)
        elif part != 0:
            _blank(mask, i + 40, min(end, transport), start)
        if part == LATER_FRAGMENT:
            return
        if protocol == TCP:
            _blank(mask, transport, end, start)
            return
        if protocol == UDP:
            _blank(mask, transport, min(end, transport + 8), start)
            if port == ROCE:
                _blank(mask, transport, end, start)
        _, i, version, _ = inside(buf, protocol, port, transport, end)


@compiled
def find_known(buf, pos, size, link, tick_ns, numbers, times, mask, found):
    """Records of a little-endian pcap that hold a 4-byte number of `numbers` (int64, sorted), or whose time is in one
    of `times`, int64 (n, 2): first and last, ns, sorted and without overlaps.

    Returns (next offset, records, how many were written to `found`); a row of found: number of the record, the number
    found or -1 for the time.
    """
    count, records = 0, 0
    while pos + 16 <= size and count < len(found):
        captured, wire = u32_little(buf, pos + 8), u32_little(buf, pos + 12)
        start = pos + 16
        end = start + captured
        if end > size:
            break
        time = u32_little(buf, pos) * 1000000000 + u32_little(buf, pos + 4) * tick_ns
        place = _place(time + 1, times[:, 0], len(times))  # the last that begins before it
        if place and time <= times[place - 1, 1]:
            found[count, 0], found[count, 1] = records, -1
            count += 1
        elif len(numbers) and captured <= len(mask):
            _mask_numbers(buf, start, end, wire, link, mask)
            for k in range(start, end - 3):
                j = k - start
                if mask[j] and mask[j + 1] and mask[j + 2] and mask[j + 3] and _known(u32(buf, k), numbers):
                    found[count, 0], found[count, 1] = records, u32(buf, k)
                    count += 1
                    break
        records += 1
        pos = end
    return pos, records, count


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
    start, row = inner_link(buf, start, end, link)
    first, last = LINKS[row, DESTINATION], LINKS[row, SOURCE]
    if row < 0 or start + max(first, last) + 6 > end:
        return count
    length_at, length = start + LINKS[row, LENGTH_AT], np.int64(6)
    if LINKS[row, LENGTH_BYTES] == 1:
        length = np.int64(buf[length_at])
    elif LINKS[row, LENGTH_BYTES] == 2:
        length = u16(buf, length_at)
    for at in (first, last):
        if at >= 0 and length == 6:
            count = _insert(buf, start + at, found, count)
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
