"""Sections and interfaces of a pcapng (draft-ietf-opsawg-pcapng, 4.1 and 4.2). Its packets are the packet loop's."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

import numpy as np

from ddnn_traces.ingestors.facts import Int64Array
from ddnn_traces.ingestors.packets.compiled.scan import INTERFACE_COLUMNS, MOST_BLOCK_BYTES

_BYTE_ORDER_MAGIC = {b"\x1a\x2b\x3c\x4d": ">", b"\x4d\x3c\x2b\x1a": "<"}
_IF_TSRESOL, _IF_TSOFFSET = 9, 14
_SECTION_BYTES, _INTERFACE_BYTES = 28, 20
_MOST_NS = 2**63 - 1


class BadBlock(Exception):
    """A block that is not as the format has it; the argument says what is wrong."""


@dataclass
class Section:
    """The section that is being read: its byte order and interfaces, int64 (n, INTERFACE_COLUMNS) as in scan.py."""

    byte_order: str
    interfaces: Int64Array = field(default_factory=lambda: np.zeros((0, INTERFACE_COLUMNS), np.int64))


@dataclass(frozen=True)
class Interface:
    """An interface: LINKTYPE_ number, snaplen (0: unlimited), ns of a time unit (rounded up)."""

    link: int
    snaplen: int
    resolution_ns: int


def section_bytes(start: bytes) -> int | None:
    """Length of the section header block that begins so; None while there are too few bytes. Raises BadBlock."""
    if len(start) < 12:
        return None
    order = _BYTE_ORDER_MAGIC.get(start[8:12])
    if order is None:
        raise BadBlock("a section without a byte-order magic")
    (length,) = struct.unpack_from(order + "I", start, 4)
    if not _SECTION_BYTES <= length <= MOST_BLOCK_BYTES or length % 4:
        raise BadBlock(f"a section header of {length} bytes")
    return int(length)


def parse_section(block: bytes) -> Section:
    """A section header block, whole. Raises BadBlock."""
    section = Section(_BYTE_ORDER_MAGIC[block[8:12]])
    length, major, at_end = struct.unpack(section.byte_order + "4xI4xH" + f"{len(block) - 18}x" + "I", block)
    if length != at_end:
        raise BadBlock("a section header whose two lengths differ")
    if major != 1:
        raise BadBlock(f"a section of pcapng version {major}; convert it with 'editcap -F pcapng'")
    return section


def add_interface(section: Section, block: bytes) -> Interface:
    """Append the interface of an interface description block, whole, to its section. Raises BadBlock."""
    if len(block) < _INTERFACE_BYTES:
        raise BadBlock(f"an interface description of {len(block)} bytes")
    link, snaplen = struct.unpack_from(section.byte_order + "8xH2xI", block)
    resolution, seconds = 6, 0
    for code, value in _options(section.byte_order, block[16:-4]):
        if code == _IF_TSRESOL and len(value) == 1:
            resolution = value[0]
        elif code == _IF_TSOFFSET and len(value) == 8:
            (seconds,) = struct.unpack(section.byte_order + "q", value)
    row = [link, snaplen, *_units(resolution), seconds * 10**9]
    if abs(row[-1]) > _MOST_NS:  # no time can be right
        row[2], row[-1] = -1, 0
    section.interfaces = np.vstack([section.interfaces, np.array([row], np.int64)])
    return Interface(link, snaplen, _resolution_ns(resolution))


def _options(order: str, data: bytes) -> list[tuple[int, bytes]]:
    """Options of a block (code, value) up to the end of options, or to what is no option."""
    options, at = [], 0
    while at + 4 <= len(data):
        code, size = struct.unpack_from(order + "HH", data, at)
        at += 4
        if code == 0 or at + size > len(data):
            break
        options.append((code, data[at : at + size]))
        at += size + -size % 4
    return options


def _units(resolution: int) -> tuple[int, int, int]:
    """ns a unit, units a ns, bits of the fraction: see scan.py. resolution: if_tsresol."""
    exponent = resolution & 0x7F
    if resolution & 0x80:
        return 0, 0, exponent
    if exponent <= 9:
        return 10 ** (9 - exponent), 0, -1
    return 0, 10 ** (exponent - 9) if exponent <= 27 else 0, -1


def _resolution_ns(resolution: int) -> int:
    exponent = resolution & 0x7F
    units = 2**exponent if resolution & 0x80 else 10**exponent
    return int(-(-(10**9) // units))
