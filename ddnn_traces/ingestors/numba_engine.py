"""The fast engine: blocks of a pcap through the compiled packet loop, in memory that does not grow with the file."""

from __future__ import annotations

import ipaddress
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ddnn_traces.ingestors import packet_loop as loop
from ddnn_traces.ingestors.capture_file import HEADER_BYTES, CaptureFile, PcapHeader
from ddnn_traces.ingestors.cell_spill import CellSpill
from ddnn_traces.ingestors.facts import FLOW_FACTS, NO_STEP, SKIP_REASONS, CaptureFacts, ReadOptions

NAME = "numba"

_FLOWS_AT_FIRST = 4096
_CELLS_AT_ONCE = 1 << 19
_COUNTERS = {
    "first_seen_ns": loop.FIRST,
    "last_seen_ns": loop.LAST,
    "packets": loop.PACKETS,
    "wire_bytes": loop.WIRE,
    "ip_bytes": loop.IP,
    "payload_bytes": loop.PAYLOAD,
    "captured_bytes": loop.CAPTURED,
    "syn_packets": loop.SYN,
    "fin_packets": loop.FIN,
    "rst_packets": loop.RST,
    "retransmitted_packets": loop.RETX_PACKETS,
    "retransmitted_bytes": loop.RETX_BYTES,
    "opened": loop.OPENED,
    "accepted": loop.ACCEPTED,
}


def read_capture(path: Path, options: ReadOptions) -> CaptureFacts:
    """Read one pcap or pcap.gz. Damage is in the result's status; raises only OSError."""
    with (
        CaptureFile(path, lambda size: options.progress(size, 0), options.hashing) as file,
        CellSpill(options.spill) as spill,
    ):
        facts = CaptureFacts(path, NAME, None, file.file_bytes)
        _read_records(file, facts, options, spill)
        if file.damage:
            mere_cut = file.truncated and facts.status != "corrupt"
            facts.status = "truncated" if mere_cut else "corrupt"
            facts.status_detail = "; ".join(filter(None, (file.damage, facts.status_detail)))
        facts.sha256 = file.sha256
        facts.file_bytes = file.raw_bytes
    facts.cells = spill.written
    return facts


def _read_records(file: CaptureFile, facts: CaptureFacts, options: ReadOptions, spill: CellSpill) -> None:
    blocks = file.blocks()
    start, rest = _split_off(blocks, HEADER_BYTES)
    header = PcapHeader.parse(start)
    if isinstance(header, str):
        facts.status = "truncated" if "cut short" in header else "corrupt"
        facts.status_detail = header
        facts.trailing_bytes = len(start) + len(rest) + sum(len(block) for block in blocks)
        return
    facts.describe(header, file.compression)
    scanner = Scanner(header, options, spill)
    for block in itertools.chain([rest], blocks):
        before = scanner.records
        scanner.feed(block)
        options.progress(0, scanner.records - before)
    scanner.finish(facts)


def _split_off(blocks: Iterator[memoryview], size: int) -> tuple[bytes, memoryview]:
    """The first `size` bytes (fewer where the file ends before), and the rest of the block that they end in."""
    start = b""
    for block in blocks:
        start += bytes(block)
        if len(start) >= size:
            break
    return start[:size], memoryview(start)[size:]


class Scanner:
    """State of the packet loop over one file: flow table, cells and totals; grows what is full."""

    def __init__(self, header: PcapHeader, options: ReadOptions, spill: CellSpill) -> None:
        self._header = header
        self._options = options
        self._spill = spill
        self._max_captured = max(loop.MAX_CAPTURED, min(header.snaplen, 1 << 24))
        self._keys = np.zeros((_FLOWS_AT_FIRST, 5), np.uint64)
        self._flows = np.zeros((_FLOWS_AT_FIRST, loop.FLOW_COLUMNS), np.int64)
        self._slots = np.full(2 * _FLOWS_AT_FIRST, -1, np.int32)
        self._cells = np.zeros((_CELLS_AT_ONCE, loop.CELL_COLUMNS), np.int64)
        self._total = np.zeros(loop.TOTALS, np.int64)
        self._total[loop.EARLIEST], self._total[loop.LATEST] = loop.FAR_FUTURE, loop.FAR_PAST
        self._skipped = np.zeros((len(SKIP_REASONS), 2), np.int64)
        self._left = b""  # begin of a record whose rest is in the next block
        self._fed = self._read = HEADER_BYTES  # bytes that came in, bytes of complete records
        self._corrupt = False

    @property
    def records(self) -> int:
        """Records read so far."""
        return int(self._total[loop.RECORDS])

    def feed(self, block: memoryview) -> None:
        """Read the records of one block, and the one that the block before left unfinished."""
        self._fed += len(block)
        if self._corrupt:
            return
        if self._left:
            # Only what may belong to the record that spans both blocks is copied.
            joined = self._left + bytes(block[: self._max_captured + 16])
            used = self._scan(joined)
            if used == 0:
                self._left = joined
                return
            block = block[used - len(self._left) :]
        self._left = bytes(block[self._scan(block) :])

    def _scan(self, block: memoryview | bytes) -> int:
        """Bytes of complete records read from the begin of `block`."""
        data = np.frombuffer(block, np.uint8)
        data.flags.writeable = False  # one type for bytes and buffers: one compilation
        header, options = self._header, self._options
        pos = 0
        while not self._corrupt:
            pos, why = loop.scan(
                data, pos, len(data), header.byte_order == ">", header.tick_ns, header.link_type, self._max_captured,
                options.window_ns, options.step_bounds, NO_STEP, self._slots, self._keys, self._flows, self._cells,
                self._total, self._skipped,
            )  # fmt: skip
            if why == loop.FLOWS_FULL:
                self._grow()
            elif why == loop.CELLS_FULL:
                self._spill_cells()
            elif why == loop.CORRUPT:
                self._corrupt = True
            else:
                break
        self._read += int(pos)
        return int(pos)

    def _grow(self) -> None:
        count = len(self._keys)
        self._keys = np.concatenate([self._keys, np.zeros_like(self._keys)])
        self._flows = np.concatenate([self._flows, np.zeros_like(self._flows)])
        self._slots = np.full(2 * len(self._slots), -1, np.int32)
        loop.refill(self._slots, self._keys, count)

    def _spill_cells(self) -> None:
        self._spill.write(self._cells[: self._total[loop.CELL_COUNT]])
        self._total[loop.CELL_COUNT] = 0

    def finish(self, facts: CaptureFacts) -> None:
        """Write the last cells, and the totals and flows into `facts`."""
        flow = 0
        while flow < self._total[loop.FLOW_COUNT]:
            flow = loop.emit_cells(flow, self._flows, self._cells, self._total)
            self._spill_cells()
        total = self._total
        facts.records, facts.wire_bytes = int(total[loop.RECORDS]), int(total[loop.TOTAL_WIRE])
        if facts.records:
            facts.first_ns, facts.last_ns = int(total[loop.EARLIEST]), int(total[loop.LATEST])
        facts.skipped = {
            reason: (int(packets), int(wire))
            for reason, (packets, wire) in zip(SKIP_REASONS, self._skipped, strict=True)
            if packets
        }
        facts.flows = self._flow_facts()
        facts.trailing_bytes = self._fed - self._read
        if self._corrupt:
            facts.status = "corrupt"
            facts.status_detail = f"no sane record header at byte {self._read} of the uncompressed file"
        elif facts.trailing_bytes:
            facts.status = "truncated"
            facts.status_detail = f"last record cut short at byte {self._read} of the uncompressed file"

    def _flow_facts(self) -> pa.Table:
        count = int(self._total[loop.FLOW_COUNT])
        keys, flows = self._keys[:count], self._flows[:count]
        meta = keys[:, 4].astype(np.int64)
        version = meta >> 40
        columns: dict[str, Any] = {
            "src_ip": [_address(v, hi, lo) for v, hi, lo in zip(version, keys[:, 0], keys[:, 1], strict=True)],
            "dst_ip": [_address(v, hi, lo) for v, hi, lo in zip(version, keys[:, 2], keys[:, 3], strict=True)],
            "protocol": (meta >> 32) & 0xFF,
            "src_port": (meta >> 16) & 0xFFFF,
            "dst_port": meta & 0xFFFF,
        }
        columns |= {name: flows[:, column] for name, column in _COUNTERS.items()}
        return pa.table(columns, schema=FLOW_FACTS)


def _address(version: int, high: np.uint64, low: np.uint64) -> str:
    """Text form of an address: IPv4 dotted, IPv6 as in RFC 5952."""
    if version == 4:
        return str(ipaddress.IPv4Address(int(low)))
    return str(ipaddress.IPv6Address((int(high) << 64) | int(low)))
