"""The records of chosen flows: which they are, by the packet loop, and copies of them, in the order of time.

    FlowSearch      reads a file once: the facts of chosen five-tuples, and which records are theirs
    CopiedRecords   reads its parts that hold records again: copies of these, in pieces
    in_time         the pieces of several files in one order

Memory holds a bit for each record of a file, and what is out of the order of time.
"""

from __future__ import annotations

import ipaddress
import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from ddnn_traces.errors import CaptureError, UsageError
from ddnn_traces.pcap.capture_facts import PACKETS, CaptureFacts, Int64Array, ReadOptions, Spill
from ddnn_traces.pcap.capture_file import CaptureFile
from ddnn_traces.pcap.compiled import copy as copying
from ddnn_traces.pcap.compiled import flow_table as table
from ddnn_traces.pcap.compiled.scan import FULL, INTERFACE_COLUMNS, Framing
from ddnn_traces.pcap.records import RecordReader, reader_of, split_header
from ddnn_traces.pcap.scanner import Scanner
from ddnn_traces.store import hashes

_ONE_WINDOW_NS = 1 << 62
_NO_MORE = 2**63 - 1
_ROWS = pa.schema([PACKETS.field(name) for name in ("record", "flow", "ts_ns")])


class FiveTuple(NamedTuple):
    """Source, destination, protocol, ports; as columns of flows."""

    src_ip: str
    dst_ip: str
    protocol: int
    src_port: int
    dst_port: int

    @property
    def reversed(self) -> FiveTuple:
        """That of the other direction."""
        return FiveTuple(self.dst_ip, self.src_ip, self.protocol, self.dst_port, self.src_port)


def _words(five_tuples: Iterable[FiveTuple]) -> npt.NDArray[np.void]:
    """The first five words of the keys of these five-tuples (flow_table.py), each as one value."""
    rows = []
    for one in five_tuples:
        src, dst = ipaddress.ip_address(one.src_ip), ipaddress.ip_address(one.dst_ip)
        low = (1 << 64) - 1
        ends = [int(src) >> 64, int(src) & low, int(dst) >> 64, int(dst) & low]
        rows.append([*ends, src.version << 40 | one.protocol << 32 | one.src_port << 16 | one.dst_port])
    return _joined(np.array(rows, np.uint64).reshape(-1, 5))


def _joined(words: npt.NDArray[np.uint64]) -> npt.NDArray[np.void]:
    """Rows of five words, each as one value."""
    return np.ascontiguousarray(words).view(np.dtype((np.void, 5 * 8))).reshape(-1)


class _Rows(Spill):
    """Records of chosen flows, on disk. lag: ns by which a record may come after one of a later time."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, _ROWS)
        self.lag = 0
        self._latest = -(2**63)

    def write(self, rows: Int64Array) -> None:
        super().write(rows)
        if len(rows):
            latest = np.maximum(np.maximum.accumulate(rows[:, 2]), self._latest)
            self.lag = max(self.lag, int((latest - rows[:, 2]).max()))
            self._latest = int(latest[-1])


class _FlowScanner(Scanner):
    """A scanner that keeps of all packets those of chosen five-tuples, between two times, and no cells."""

    def __init__(
        self, framing: Framing, open_tunnels: bool, chosen: npt.NDArray[np.void], between: tuple[int, int], rows: _Rows
    ) -> None:
        options = ReadOptions(_ONE_WINDOW_NS, np.empty(0, np.int64), Path(), Path(), open_tunnels)
        super().__init__(framing, options, None, None)
        self._chosen, self._between, self._rows = chosen, between, rows
        self._is_chosen = np.zeros(0, bool)

    def rows_in(self, chosen: npt.NDArray[np.void]) -> npt.NDArray[np.bool_]:
        """For each flow of the file whether its five-tuple is one of these."""
        return np.isin(_joined(self._five_tuples(0)), chosen)

    def _five_tuples(self, first: int) -> npt.NDArray[np.uint64]:
        """Five words of the key of each flow of the file from the first one on, as _words has them."""
        words = self._state.keys[first : self.flows, :5].copy()
        words[:, 4] &= np.uint64(table.WITHOUT_INTERFACE)
        return words

    def _spill_packets(self) -> None:
        total = self._state.total
        rows = self._state.packets[: total[table.PACKET_COUNT]]
        if len(rows):
            known = len(self._is_chosen)
            new = _joined(self._five_tuples(known))
            self._is_chosen = np.concatenate([self._is_chosen, np.isin(new, self._chosen)])
            begin, end = self._between
            mine = rows[self._is_chosen[rows[:, 1]]]
            self._rows.write(mine[(mine[:, 2] >= begin) & (mine[:, 2] < end), :3])
        total[table.PACKET_COUNT] = 0

    def _spill_cells(self) -> None:
        if self._state.total[table.CELL_COUNT]:
            self._state.total[table.CELL_COUNT] = 0
        else:
            super()._spill_cells()

    def _spill_trains(self) -> None:
        self._state.total[table.TRAIN_COUNT] = 0


@dataclass
class FlowSearch:
    """A search of one capture for the records of five-tuples.

    five_tuples: of the records. between: times, ns; records before the first, or at or after the second one, are not
    wanted. scratch: path, not existing yet. open_tunnels: as in ReadOptions. After `read`, facts has the flows of the
    five-tuples and of their reverse ones, which tell what a copy missed, and the tunnels of the file.
    """

    path: Path
    five_tuples: Sequence[FiveTuple]
    between: tuple[int, int]
    scratch: Path
    open_tunnels: bool
    facts: CaptureFacts = field(init=False)
    lag: int = 0
    #: Whether records can be read from the middle of the file, whose parts begin at these records and offsets.
    is_plain: bool = False
    framing: Framing = field(init=False)
    begins: list[tuple[int, int]] = field(default_factory=list)

    def read(self, progress: Callable[[int, int], None], stopped: Callable[[], bool]) -> None:
        """Read the whole file. progress: as ReadOptions.progress. stopped: asked before each block; True ends it.

        Raises CaptureError where it is no pcap or pcapng, and OSError.
        """
        self.facts = CaptureFacts(self.path, "numba", self.path.stat().st_size)
        both = {*self.five_tuples, *(one.reversed for one in self.five_tuples)}
        with _Rows(self.scratch) as rows, _opened(self.path, lambda size: progress(size, 0)) as file:
            self.framing, stream = _framing(self.path, file)
            scanner = _FlowScanner(self.framing, self.open_tunnels, _words(self.five_tuples), self.between, rows)
            reader = reader_of(scanner, lambda packets: progress(0, packets))
            self.begins = [(0, reader.position)]
            for block in stream:
                if stopped():
                    return
                reader.feed(block)
                self.begins.append((scanner.records, reader.position))
            reader.finish(self.facts)
            mine = scanner.rows_in(_words(both))
        self.facts.flows = self.facts.flows.filter(pa.array(mine))
        self.facts.packets = rows.written
        self.lag = rows.lag
        self.is_plain = not self.framing.is_pcapng and not file.compression

    def records_of(self, flows: Sequence[int]) -> npt.NDArray[np.bool_]:
        """For each record of the file whether it is one of these flows', by their number in the file, and wanted."""
        marks = np.zeros(self.facts.records, bool)
        if self.facts.packets is not None and flows:
            counts = np.zeros(max(int(np.max(self.facts.flows["flow"].to_numpy())), *flows) + 1, bool)
            counts[list(flows)] = True
            with pq.ParquetFile(self.facts.packets) as file:
                for batch in file.iter_batches(columns=["record", "flow"]):
                    record, flow = (column.to_numpy() for column in batch.columns)
                    marks[record[counts[flow]]] = True
        return marks


def _opened(path: Path, progress: Callable[[int], None]) -> CaptureFile:
    return CaptureFile(path, progress, hashes.NONE)


def _framing(path: Path, file: CaptureFile) -> tuple[Framing, Iterator[memoryview]]:
    header, framing, stream = split_header(file.blocks())
    if framing is None:
        raise CaptureError(f"{path}: {header}; its packets cannot be copied")
    return framing, stream


# --- copies


class Piece(NamedTuple):
    """Copies of records: rows, int64 (n, compiled.copy.ROW_COLUMNS), in the order of the file, and their bytes."""

    rows: Int64Array
    data: npt.NDArray[np.uint8]


class _Copier:
    """Takes a Scanner's place in a RecordReader: copies chosen records instead of counting them."""

    def __init__(
        self, path: Path, framing: Framing, chosen: npt.NDArray[np.uint8], interface: Callable[[int], int],
        is_pcapng: bool,
    ) -> None:  # fmt: skip
        self.framing = framing
        self.interfaces = np.zeros((0, INTERFACE_COLUMNS), np.int64)
        self.sums = np.zeros(copying.SUMS, np.int64)
        self._path, self._chosen, self._interface, self._is_pcapng = path, chosen, interface, is_pcapng
        self._links = np.zeros((0, 2), np.int64)
        self._out, self._rows = np.zeros(0, np.uint8), np.zeros((0, copying.ROW_COLUMNS), np.int64)
        self._pieces: list[Piece] = []

    @property
    def records(self) -> int:
        """Records read so far."""
        return int(self.sums[copying.READ])

    def scan(self, block: memoryview | bytes, begin: int, stop: int | None) -> tuple[int, int]:
        """As Scanner.scan. Raises UsageError for a time that a pcap cannot hold."""
        buf = np.frombuffer(block, np.uint8)
        buf.flags.writeable = False  # one type for bytes and buffers: one compilation
        if len(self._out) < len(buf) + copying.MOST_AROUND:
            self._out = np.zeros(len(buf) + copying.MOST_AROUND, np.uint8)
            self._rows = np.zeros((len(buf) // 16 + 1, copying.ROW_COLUMNS), np.int64)
        end, pos = 2**62 if stop is None else stop, begin
        while True:
            pos, why, written, count, link = copying.copy(
                buf, pos, len(buf), end, self.framing, self.interfaces, self._chosen, self._is_pcapng, self._links,
                self._out, self._rows, self.sums,
            )  # fmt: skip
            if count:
                self._pieces.append(Piece(self._rows[:count].copy(), self._out[:written].copy()))
            if why == copying.OTHER_LINK:
                self._links = np.vstack([self._links, [[link, self._interface(int(link))]]])
            elif why == copying.NO_TIME:
                raise UsageError(
                    f"{self._path}: a packet has a time after 2106, which a pcap cannot hold; name the output .pcapng"
                )
            elif why != FULL:
                return int(pos), int(why)

    def take(self) -> list[Piece]:
        """What was copied since the last call."""
        pieces, self._pieces = self._pieces, []
        return pieces


@dataclass
class CopiedRecords:
    """Copies of chosen records of a file that was searched.

    chosen: for each record of the file whether it is copied. interface: called with each link type that these have,
    before the first of its records is in a piece; gives its interface in the output. is_pcapng: whether blocks of a
    pcapng are made, or records of a pcap. sums: compiled.copy.SUMS, as far as was read.
    """

    search: FlowSearch
    chosen: npt.NDArray[np.bool_]
    interface: Callable[[int], int]
    is_pcapng: bool
    sums: Int64Array = field(default_factory=lambda: np.zeros(copying.SUMS, np.int64))
    read_bytes: int = 0

    def pieces(self) -> Iterator[Piece]:
        """The copies, in the order of the file. Only parts of the file with chosen records are read, if it is plain.

        Raises CaptureError.
        """
        search, bits = self.search, np.packbits(self.chosen, bitorder="little")
        copier = _Copier(search.path, search.framing, bits, self.interface, self.is_pcapng)
        self.sums = copier.sums
        if search.is_plain:
            yield from self._by_parts(copier)
            return
        with _opened(search.path, self._count) as file:
            copier.framing, stream = _framing(search.path, file)
            reader = reader_of(cast("Scanner", copier))
            for block in stream:
                reader.feed(block)
                yield from copier.take()

    def _by_parts(self, copier: _Copier) -> Iterator[Piece]:
        begins = self.search.begins
        file = os.open(self.search.path, os.O_RDONLY)
        try:
            for (record, offset), (following, end) in itertools.pairwise(begins):
                if self.chosen[record:following].any():
                    reader = RecordReader(cast("Scanner", copier), offset)
                    copier.sums[copying.READ] = record
                    reader.feed(memoryview(os.pread(file, end - offset, offset)))
                    self._count(end - offset)
                    yield from copier.take()
        finally:
            os.close(file)

    def _count(self, size: int) -> None:
        self.read_bytes += size


class _Source:
    """The pieces of a file that are not in the output yet. lag: as in FlowSearch."""

    def __init__(self, pieces: Iterator[Piece], lag: int) -> None:
        self._pieces, self._lag = pieces, lag
        self._waiting: list[Piece] = []
        self._latest = -(2**62)
        self.ended = False

    @property
    def frontier(self) -> int:
        """Time before which no more records come, ns."""
        return _NO_MORE if self.ended else self._latest - self._lag

    def advance(self) -> None:
        """Read the next piece."""
        piece = next(self._pieces, None)
        if piece is None:
            self.ended = True
        else:
            self._waiting.append(piece)
            self._latest = max(self._latest, int(piece.rows[:, copying.TIME].max()))

    def take(self, horizon: int) -> list[Piece]:
        """The records before `horizon`, in the order of the file."""
        taken, waiting = [], []
        for rows, data in self._waiting:
            before = np.ones(len(rows), bool) if horizon == _NO_MORE else rows[:, copying.TIME] < horizon
            if before.any():
                taken.append(Piece(rows[before], data))
            if not before.all():
                waiting.append(Piece(rows[~before], data))
        self._waiting = waiting
        return taken


def in_time(files: Sequence[tuple[Iterator[Piece], int]]) -> Iterator[npt.NDArray[np.uint8]]:
    """The bytes of all records in the order of their times, those of the same time in that of files and records.

    files: the pieces of each file, and its lag (FlowSearch).
    """
    sources = [_Source(pieces, lag) for pieces, lag in files]
    while True:
        behind = min((source for source in sources if not source.ended), key=lambda one: one.frontier, default=None)
        if behind:
            behind.advance()
        horizon = min(source.frontier for source in sources)
        taken = [piece for source in sources for piece in source.take(horizon)]
        if taken:
            yield _ordered(taken)
        if behind is None:
            return


def _ordered(pieces: Sequence[Piece]) -> npt.NDArray[np.uint8]:
    times = np.concatenate([piece.rows[:, copying.TIME] for piece in pieces])
    lengths = np.concatenate([piece.rows[:, copying.LENGTH] for piece in pieces])
    order = np.argsort(times, kind="stable")
    places = np.empty(len(order), np.int64)
    ends = np.cumsum(lengths[order])
    places[order] = ends - lengths[order]
    out = np.empty(int(ends[-1]), np.uint8)
    at = 0
    for rows, data in pieces:
        copying.place(data, rows, places[at : at + len(rows)], out)
        at += len(rows)
    return out
