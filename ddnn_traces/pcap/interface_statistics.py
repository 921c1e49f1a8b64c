"""What the capturing program counted, in a pcapng: Interface Statistics Blocks (draft-ietf-opsawg-pcapng, 4.6)."""

from __future__ import annotations

import struct

from ddnn_traces.capture_format import (
    BYTE_ORDERS,
    INTERFACE_STATISTICS,
    LEAST_BLOCK_BYTES,
    MOST_BLOCK_BYTES,
    PCAPNG,
    pcapng_options,
)

Counters = dict[str, int | str]

#: Columns of captures by the option of an Interface Statistics Block.
_OPTIONS = {
    4: "interface_received_packets", 5: "interface_dropped_packets", 6: "filter_accepted_packets",
    7: "kernel_dropped_packets", 8: "delivered_packets",
}  # fmt: skip
#: Columns of captures that are counters, and where they are from; OF_FILE: the capture itself.
COLUMNS = (*_OPTIONS.values(), "counter_source")
OF_FILE = "pcapng"
_STATISTICS_BYTES = 24  # of the shortest block
_MOST_COUNT = 2**63 - 1


class InterfaceStatistics:
    """The last block of each interface of a pcapng."""

    def __init__(self) -> None:
        self._last: dict[tuple[int, int], dict[str, int]] = {}

    def add(self, section: int, byte_order: str, block: bytes) -> None:
        """Take a whole Interface Statistics Block; one that breaks the format states nothing."""
        if len(block) < _STATISTICS_BYTES:
            return
        (interface,) = struct.unpack_from(byte_order + "I", block, 8)
        counts: dict[str, int] = {}
        for code, value in pcapng_options(byte_order, block[20:-4]):
            if code in _OPTIONS and len(value) == 8:
                (count,) = struct.unpack(byte_order + "Q", value)
                if count <= _MOST_COUNT:
                    counts[_OPTIONS[code]] = count
        self._last[section, interface] = counts

    @property
    def counters(self) -> Counters:
        """Sums over the interfaces; empty where no block states a number."""
        found: Counters = {}
        for name in _OPTIONS.values():
            stated = [counts[name] for counts in self._last.values() if name in counts]
            if stated:
                found[name] = min(sum(stated), _MOST_COUNT)
        return found | ({"counter_source": OF_FILE} if found else {})


class StatisticsFinder:
    """The Interface Statistics Blocks in the bytes of a file, for a reader that does not see blocks.

    `feed` gets the bytes in order, cut anywhere. Of a file that is no pcapng, and after damage, nothing is found.
    """

    def __init__(self) -> None:
        self.statistics = InterfaceStatistics()
        self._waiting = bytearray()  # from the start of a block on
        self._skipped = 0  # bytes to come of a block that is of no interest
        self._byte_order = ""
        self._sections = 0
        self._ended = False

    def feed(self, data: bytes | memoryview) -> None:
        """Take the next bytes of the file."""
        if self._ended:
            return
        self._waiting += data[self._skipped :]
        self._skipped = max(0, self._skipped - len(data))
        at = 0
        while len(self._waiting) - at >= LEAST_BLOCK_BYTES and not self._ended:
            size = self._block_bytes(at)
            is_wanted = size and self._waiting[at : at + 4] == struct.pack(self._byte_order + "I", INTERFACE_STATISTICS)
            if is_wanted and at + size > len(self._waiting):
                break
            if is_wanted:
                self.statistics.add(self._sections, self._byte_order, bytes(self._waiting[at : at + size]))
            at += size
        self._skipped += max(0, at - len(self._waiting))
        del self._waiting[:at]

    def _block_bytes(self, at: int) -> int:
        """Length of the block that begins there; 0 ends the search."""
        if self._waiting[at : at + 4] == PCAPNG:
            self._byte_order = BYTE_ORDERS.get(bytes(self._waiting[at + 8 : at + 12]), "")
            self._sections += 1
        size = int(struct.unpack_from(self._byte_order + "I", self._waiting, at + 4)[0]) if self._byte_order else 0
        self._ended = not LEAST_BLOCK_BYTES <= size <= MOST_BLOCK_BYTES or size % 4 != 0
        return 0 if self._ended else size
