"""How captures lie in a file: the header of a pcap, the blocks and options of a pcapng, read and written.

draft-ietf-opsawg-pcap, 4; draft-ietf-opsawg-pcapng, 3 and 4.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

#: Magic number of a pcap as in the file: byte order, ns a tick of the fraction.
PCAP_MAGICS = {
    b"\xd4\xc3\xb2\xa1": ("<", 1000),
    b"\xa1\xb2\xc3\xd4": (">", 1000),
    b"\x4d\x3c\xb2\xa1": ("<", 1),
    b"\xa1\xb2\x3c\x4d": (">", 1),
}
PCAP_HEADER_BYTES = 24

#: First bytes of a pcapng, and byte order of a section by the magic number in its header.
PCAPNG = b"\x0a\x0d\x0d\x0a"
BYTE_ORDERS = {b"\x1a\x2b\x3c\x4d": ">", b"\x4d\x3c\x2b\x1a": "<"}
#: Types of blocks.
SECTION_HEADER, INTERFACE_DESCRIPTION, OLD_PACKET, SIMPLE_PACKET = 0x0A0D0D0A, 1, 2, 3
NAME_RESOLUTION, INTERFACE_STATISTICS, ENHANCED_PACKET = 4, 5, 6
LEAST_BLOCK_BYTES, MOST_BLOCK_BYTES = 12, 1 << 24

#: captures.format of a capture that was parsed to text before (ingestors/parsed_files.py).
PARSED = "tshark-fields"


def pcap_header(snaplen: int, link: int, nanoseconds: bool = True) -> bytes:
    """The file header of a pcap in little endian, times in ns or us. link: LINKTYPE_ number."""
    magic = 0xA1B23C4D if nanoseconds else 0xA1B2C3D4
    return struct.pack("<IHHiIII", magic, 2, 4, 0, 0, snaplen, link)


def pcapng_block(kind: int, body: bytes) -> bytes:
    """A block in little endian, whose body is padded already."""
    length = LEAST_BLOCK_BYTES + len(body)
    return struct.pack("<II", kind, length) + body + struct.pack("<I", length)


def pcapng_option(code: int, value: bytes) -> bytes:
    """An option in little endian."""
    return struct.pack("<HH", code, len(value)) + value + bytes(-len(value) % 4)


def pcapng_options(byte_order: str, data: bytes) -> Iterator[tuple[int, bytes]]:
    """Options of a block (code, value) up to the end of options, or to bytes that are not an option."""
    at = 0
    while at + 4 <= len(data):
        code, size = struct.unpack_from(byte_order + "HH", data, at)
        at += 4
        if code == 0 or at + size > len(data):
            break
        yield code, data[at : at + size]
        at += size + -size % 4
