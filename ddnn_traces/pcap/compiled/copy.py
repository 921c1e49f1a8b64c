"""The loop that copies chosen records of a capture, unchanged but for their headers, and puts copies in order."""

from __future__ import annotations

import numpy as np

from ddnn_traces.capture_format import ENHANCED_PACKET
from ddnn_traces.jit import helper
from ddnn_traces.pcap.compiled import compiled
from ddnn_traces.pcap.compiled.scan import FULL, STOPPED, record_at

#: Why copy() and cut() return, besides scan()'s reasons: a record of a link type that the output does not have, or
#: whose time does not fit into a pcap.
OTHER_LINK, NO_TIME = 100, 101
LATEST_NS = (1 << 32) * 10**9
RECORD_HEADER = 16

# Columns of `rows`: time in ns, start and length of the record in `out`.
TIME, BEGIN, LENGTH = range(3)
ROW_COLUMNS = 3
# Entries of `sums`: records read so far, time of the last one, records copied, their original and captured bytes.
READ, LAST_NS, COPIED, WIRE, CAPTURED = range(5)
SUMS = 5

#: Bytes around a record's data at most.
MOST_AROUND = 36


@helper
def put_little(out, at, value):
    """Four bytes of a number, little-endian."""
    for k in range(4):
        out[at + k] = (value >> (8 * k)) & 0xFF


@helper
def put_record_header(out, at, time, captured, wire):
    """A record header (draft-ietf-opsawg-pcap, 5) with ns; returns the offset of the data."""
    put_little(out, at, time // 1000000000)
    put_little(out, at + 4, time % 1000000000)
    put_little(out, at + 8, captured)
    put_little(out, at + 12, wire)
    return at + RECORD_HEADER


@helper
def _put_pcapng(out, at, time, captured, wire, interface):
    """An Enhanced Packet Block (draft-ietf-opsawg-pcapng, 4.3) with ns, but for its data."""
    padding = -captured & 3
    length = 32 + captured + padding
    for place, value in (
        (0, np.int64(ENHANCED_PACKET)), (4, length), (8, interface), (12, time >> 32), (16, time & 0xFFFFFFFF),
        (20, captured), (24, wire), (length - 4, length),
    ):  # fmt: skip
        put_little(out, at + place, value)
    for k in range(padding):
        out[at + 28 + captured + k] = 0
    return at + 28, at + length


@compiled
def copy(buf, pos, size, stop, framing, interfaces, chosen, is_pcapng, links, out, rows, sums):
    """Copy the chosen ones of the complete records in buf[pos:size] that begin before `stop` to `out`, uint8.

    framing, interfaces: as scan() has them. chosen: uint8, bit n % 8 of byte n // 8 is that of record n of the file.
    is_pcapng: whether blocks of a pcapng are written, or records of a pcap; little endian, ns. links: int64 (n, 2),
    link types and the interface of each in the output. rows, int64 (n, ROW_COLUMNS), gets one row a record; sums, int64
    (SUMS,), goes on. Returns the offset of the first unread record, why it stopped there (FULL: out or rows are), how
    many bytes and rows were written, and the link type of a record that stopped it.
    """
    written, count, link = np.int64(0), np.int64(0), np.int64(-1)
    while True:
        if pos >= stop:
            why = STOPPED
            break
        stopped, is_packet, start, captured, wire, time, link, following = record_at(
            buf, pos, size, framing, interfaces, sums[LAST_NS]
        )
        if stopped >= 0:
            pos, why = following, stopped
            break
        if not is_packet:
            pos = following
            continue
        number = sums[READ]
        if number >> 3 < len(chosen) and (chosen[number >> 3] >> (number & 7)) & 1:
            if written + captured + MOST_AROUND > len(out) or count >= len(rows):
                why = FULL
                break
            interface = np.int64(-1)
            for k in range(len(links)):
                if links[k, 0] == link:
                    interface = links[k, 1]
            if interface < 0:
                why = OTHER_LINK
                break
            if is_pcapng:
                data, end = _put_pcapng(out, written, time, captured, wire, interface)
            elif time >= LATEST_NS:
                why = NO_TIME
                break
            else:
                data = put_record_header(out, written, time, captured, wire)
                end = data + captured
            for k in range(captured):
                out[data + k] = buf[start + k]
            rows[count, TIME], rows[count, BEGIN], rows[count, LENGTH] = time, written, end - written
            written = end
            count += 1
            sums[COPIED] += 1
            sums[WIRE] += wire
            sums[CAPTURED] += captured
        sums[READ] += 1
        sums[LAST_NS] = time
        pos = following
    return pos, why, written, count, link


@compiled
def place(data, rows, places, out):
    """Copy each of the rows from `data` to its place, an offset, in `out`; both uint8."""
    for i in range(len(rows)):
        begin, at = rows[i, BEGIN], places[i]
        for k in range(rows[i, LENGTH]):
            out[at + k] = data[begin + k]
