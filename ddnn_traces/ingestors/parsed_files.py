"""Captures that were parsed to text: what the published Zerwas analysis leaves of a pcap (parsing_script.py).

A file is the output of `tshark -T fields -E header=y`, a line a packet, the columns separated by tabs: frame.time,
ip.src, ip.dst, tcp.srcport, tcp.dstport, frame.interface_name, frame.len. It tells packets and bytes of frames of the
flows of TCP over IPv4, and their times. All else of a packet is not in it, and null in the tables
(docs/zerwas_dataset.md).

It is read in blocks of lines, so that memory holds a block and the flows.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from functools import lru_cache
from io import BufferedReader, BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ddnn_traces.capture_format import PARSED
from ddnn_traces.pcap.capture_facts import (
    CELLS,
    FLOW_FACTS,
    NO_STEP,
    CaptureFacts,
    CellSpill,
    Int64Array,
    ReadOptions,
)
from ddnn_traces.pcap.capture_file import CaptureFile
from ddnn_traces.pcap.streams import opened
from ddnn_traces.text import counted, shown

#: The folder of these files in a run's.
FOLDER = "parsed-files"
#: The engine of such a file in the table captures.
ENGINE = "tshark_fields"
#: The reason in the ledger of a packet that is not TCP over IPv4, or has several of a field (a tunnel, an ICMP error).
NO_FIVE_TUPLE = "no_five_tuple"
_MALFORMED = "malformed"

#: The columns that are read; any order, and others between them.
_COLUMNS = ("frame.time", "ip.src", "ip.dst", "tcp.srcport", "tcp.dstport", "frame.len")
_HEADER_BYTES = 4096
#: No line of a packet is longer.
_LONGEST_LINE = 1 << 16
_MOST_LENGTH = 1 << 32
#: In place of a field's number: the field is empty or has several values; it is no number.
_NONE, _WRONG = -1, -2
_UNKNOWN = -(2**62)

_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
#: Time zones by their names, in seconds: those of the authors (aggregate.py), and of a computer without one.
_ZONES = {"UTC": 0, "GMT": 0, "Z": 0, "CET": 3600, "CEST": 7200}
_FRACTION = r"^(?P<second>[^.]*)\.(?P<fraction>[0-9]{1,9})(?P<zone>[^.]*)$"
_SECOND = re.compile(
    r"(?:(?P<name>[A-Z][a-z]{2}) {1,2}(?P<day>[0-9]{1,2}), (?P<year>[0-9]{4}) "
    r"|(?P<iso>[0-9]{4}-[0-9]{2}-[0-9]{2})[T ])"
    r"(?P<time>[0-9]{2}:[0-9]{2}:[0-9]{2}) ?(?P<zone>[A-Z]{1,5}|[+-][0-9]{2}:?[0-9]{2})"
)


# --- which files


def folder_of(capture: Path) -> Path:
    """The folder of the run that a capture or its parsed file is in."""
    return capture.parent.parent if is_in_folder(capture) else capture.parent


def is_in_folder(path: Path) -> bool:
    """Whether a file is a parsed one by its place and name."""
    return path.parent.name == FOLDER and path.suffix == ".csv"


def files_in(folder: Path) -> list[Path]:
    """The parsed files of a run's folder by their names, in order."""
    place = folder / FOLDER
    return sorted(filter(is_in_folder, place.iterdir())) if place.is_dir() else []


def is_parsed_file(path: Path) -> bool:
    """Whether a file is a parsed one by its name and its first line."""
    if path.suffix != ".csv" or not path.is_file():  # a pipe would be waited for
        return False
    try:
        with BufferedReader(opened(path, _HEADER_BYTES), _HEADER_BYTES) as file:
            return columns_of(file.read(_HEADER_BYTES)) is not None
    except OSError:
        return False


def columns_of(start: bytes) -> list[str] | None:
    """The columns in the first line of a file; None where these are not tshark's."""
    line, end, _ = start.partition(b"\n")
    names = line.decode("ascii", "replace").removesuffix("\r").split("\t")
    return names if end and set(_COLUMNS) <= set(names) and len(set(names)) == len(names) else None


def remarks(run_id: str, files: Sequence[CaptureFacts]) -> Iterator[str]:
    """A line where files of a run are parsed ones."""
    number = sum(file.engine == ENGINE for file in files)
    if number:
        yield (
            f"{run_id}: parsed files stand for {number} of {counted(len(files), 'capture')}: they tell packets and "
            "bytes of TCP over IPv4, not payload, retransmissions or losses; ingest the pcaps if there are any"
        )


# --- reading


def read_capture(path: Path, options: ReadOptions) -> CaptureFacts:
    """The facts of a parsed file. Raises OSError."""
    with (
        CaptureFile(path, lambda size: options.progress(size, 0), options.hash) as file,
        CellSpill(options.spill, _UNKNOWN) as cells,
    ):
        reader = _Reader(options, cells)
        lines = _Lines(file.blocks())
        names = columns_of(lines.first_line())
        facts = CaptureFacts(path, ENGINE, file.file_bytes, format=PARSED if names else None)
        for block in lines.blocks():
            if names is not None:
                reader.add(block, names)
                options.progress(0, reader.records - facts.records)
                facts.records = reader.records
        facts.file_bytes, facts.digests = file.raw_bytes, file.digests
    if names is None:
        facts.status, facts.status_detail = "corrupt", "the first line does not have the columns of parsing_script.py"
        return facts
    reader.add_wrong(lines.too_long, "a line of more than 64 KiB")
    reader.finish(facts)
    facts.cells, facts.cell_lag = cells.written, cells.lag
    facts.trailing_bytes = lines.rest
    if file.damage or lines.rest:
        facts.status = "truncated" if file.truncated or not file.damage else "corrupt"
        facts.status_detail = file.damage or "the last line does not end, and was not read"
    return facts


class _Lines:
    """Whole lines out of blocks. too_long: lines that were left out; rest: bytes after the last line's end."""

    def __init__(self, blocks: Iterator[memoryview]) -> None:
        self._blocks = blocks
        self._held = b""
        self._skipping = False
        self.too_long = self.rest = 0

    def first_line(self) -> bytes:
        """The first line with its end, or what there is of it."""
        while b"\n" not in self._held and len(self._held) < _HEADER_BYTES and (block := next(self._blocks, None)):
            self._held += bytes(block)
        line, end, self._held = self._held.partition(b"\n")
        return line + end

    def blocks(self) -> Iterator[bytes]:
        """The others, in blocks that are not empty."""
        while True:
            whole, end, self._held = self._held.rpartition(b"\n")
            if self._skipping and end:  # the end of a long line
                _, _, whole = (whole + end).partition(b"\n")
                self._skipping = False
            if lines := self._without_long(whole):
                yield lines
            if len(self._held) > _LONGEST_LINE:
                self.too_long += not self._skipping
                self._held, self._skipping = b"", True
            block = next(self._blocks, None)
            if block is None:
                break
            self._held += bytes(block)
        self.rest = 0 if self._skipping else len(self._held)

    def _without_long(self, lines: bytes) -> bytes:
        """The block without lines that are too long; it has none as nearly always."""
        at = 0
        while at + _LONGEST_LINE < len(lines):
            found = lines.rfind(b"\n", at, at + _LONGEST_LINE)
            if found < 0:
                kept = [line for line in lines.split(b"\n") if len(line) <= _LONGEST_LINE]
                self.too_long += lines.count(b"\n") + 1 - len(kept)
                return b"\n".join(kept).strip(b"\r\n")
            at = found + 1
        return lines.strip(b"\r\n")


class _Reader:
    """Counts the packets of a file by flow, window and step. records: lines so far."""

    def __init__(self, options: ReadOptions, cells: CellSpill) -> None:
        self.records = 0
        self._options = options
        self._cells = cells
        self._wire_bytes = 0
        self._first_ns, self._last_ns = 2**63 - 1, -1
        self._skipped = {_MALFORMED: [0, 0], NO_FIVE_TUPLE: [0, 0]}
        self._wrong: str | None = None  # the first line that is malformed
        self._numbers: dict[tuple[int, int], int] = {}
        self._sums = np.zeros((0, 4), np.int64)  # packets, bytes, first and last time of each flow

    def add(self, block: bytes, names: Sequence[str]) -> None:
        """Count the lines of a block."""
        rows, unlike = _rows(block, names)
        self.add_wrong(len(unlike), unlike[0] if unlike else "")
        time_ns, length = _times_ns(rows["frame.time"]), _values(rows["frame.len"], _length_of)
        fields = [_values(rows[name], of) for name, of in _FIELDS.items()]
        is_wrong = (time_ns < 0) | (length < 0) | np.any([field == _WRONG for field in fields], axis=0)
        is_other = ~is_wrong & np.any([field == _NONE for field in fields], axis=0)
        self.records += len(length)
        self._wire_bytes += self._skip(_MALFORMED, length, is_wrong)
        self._wire_bytes += self._skip(NO_FIVE_TUPLE, length, is_other)
        if is_wrong.any() and self._wrong is None:
            row = rows.slice(int(np.argmax(is_wrong)), 1).to_pylist()[0]
            self._wrong = "\t".join(row[name] for name in _COLUMNS)
        if not is_wrong.all():
            self._first_ns = min(self._first_ns, int(time_ns[~is_wrong].min()))
            self._last_ns = max(self._last_ns, int(time_ns[~is_wrong].max()))
        self._count([field[~(is_wrong | is_other)] for field in (time_ns, length, *fields)])

    def add_wrong(self, count: int, line: str) -> None:
        """Count lines that are not those of packets, the first of which this is."""
        self.records += count
        self._skipped[_MALFORMED][0] += count
        if count and self._wrong is None:
            self._wrong = line

    def _skip(self, reason: str, length: Int64Array, which: npt.NDArray[np.bool_]) -> int:
        size = int(length[which & (length > 0)].sum())
        self._skipped[reason][0] += int(which.sum())
        self._skipped[reason][1] += size
        return size

    def _count(self, columns: Sequence[Int64Array]) -> None:
        """Count packets of flows: time, length, addresses and ports."""
        time_ns, length, src, dst, src_port, dst_port = columns
        if not len(time_ns):
            return
        self._wire_bytes += int(length.sum())
        flow = self._flows(src << 32 | dst, src_port << 16 | dst_port)
        bounds = self._options.step_bounds
        step = np.searchsorted(bounds, time_ns, "right") - 1 if len(bounds) else np.full(len(flow), NO_STEP)
        window = time_ns // self._options.window_ns
        order = np.lexsort((step, flow, window))
        keys = [key[order] for key in (flow, window, step)]
        is_first = np.ones(len(order), bool)
        is_first[1:] = np.any([key[1:] != key[:-1] for key in keys], axis=0)
        begin = np.flatnonzero(is_first)
        cells = np.full((len(begin), len(CELLS)), _UNKNOWN, np.int64)
        for column, key in enumerate(keys):
            cells[:, column] = key[begin]
        cells[:, 3] = np.diff(np.append(begin, len(order)))
        cells[:, 4] = np.add.reduceat(length[order], begin)
        self._cells.write(cells)
        new = len(self._numbers) - len(self._sums)
        self._sums = np.vstack([self._sums, np.tile([0, 0, 2**63 - 1, -1], (new, 1))])
        np.add.at(self._sums[:, 0], flow, 1)
        np.add.at(self._sums[:, 1], flow, length)
        np.minimum.at(self._sums[:, 2], flow, time_ns)
        np.maximum.at(self._sums[:, 3], flow, time_ns)

    def _flows(self, addresses: Int64Array, ports: Int64Array) -> Int64Array:
        """Numbers of the flows of these packets, in the order of first appearance."""
        order = np.lexsort((ports, addresses))  # stable: the first of equal ones is the earliest
        is_first = np.ones(len(order), bool)
        is_first[1:] = (np.diff(addresses[order]) != 0) | (np.diff(ports[order]) != 0)
        first = order[is_first]
        numbers = np.empty(len(first), np.int64)
        for place in np.argsort(first):
            key = int(addresses[first[place]]), int(ports[first[place]])
            numbers[place] = self._numbers.setdefault(key, len(self._numbers))
        flow = np.empty(len(order), np.int64)
        flow[order] = numbers[np.cumsum(is_first) - 1]
        return flow

    def finish(self, facts: CaptureFacts) -> None:
        """Write the totals and the flows into `facts`."""
        facts.records, facts.wire_bytes = self.records, self._wire_bytes
        if self._last_ns >= 0:
            facts.first_ns, facts.last_ns = self._first_ns, self._last_ns
        facts.skipped = {reason: (packets, size) for reason, (packets, size) in self._skipped.items() if packets}
        facts.flows = self._flow_facts()
        if wrong := self._skipped[_MALFORMED][0]:
            facts.remarks = (
                f"{wrong:,} of {counted(self.records, 'line')} are not read, the first is {shown(self._wrong)}; a line "
                "has the columns of the first one, a time in UTC, CET or CEST, addresses, ports and a length",
            )

    def _flow_facts(self) -> pa.Table:
        rows = len(self._numbers)
        low = 0xFFFFFFFF  # the upper half of the addresses is signed
        ends = [(addresses >> 32 & low, addresses & low, ports) for addresses, ports in self._numbers]
        packets, wire_bytes, first_ns, last_ns = self._sums.T
        columns: dict[str, Any] = {
            "flow": np.arange(rows), "kept": [True] * rows,
            "src_ip": [str(ipaddress.IPv4Address(src)) for src, _, _ in ends],
            "dst_ip": [str(ipaddress.IPv4Address(dst)) for _, dst, _ in ends],
            "protocol": [6] * rows, "src_port": [ports >> 16 for *_, ports in ends],
            "dst_port": [ports & 0xFFFF for *_, ports in ends],
            "first_seen_ns": np.ascontiguousarray(first_ns), "last_seen_ns": np.ascontiguousarray(last_ns),
            "packets": np.ascontiguousarray(packets), "wire_bytes": np.ascontiguousarray(wire_bytes),
            "followed": [False] * rows, "gaps": [[]] * rows,
        }  # fmt: skip
        arrays = [
            pa.array(columns[field.name], field.type) if field.name in columns else pa.nulls(rows, field.type)
            for field in FLOW_FACTS
        ]
        return pa.table(arrays, schema=FLOW_FACTS)


# --- the fields of a block of lines


def _rows(block: bytes, names: Sequence[str]) -> tuple[pa.RecordBatch, list[str]]:
    """The columns that count, as text, and the lines that do not have as many as the first line."""
    from pyarrow import csv

    unlike: list[str] = []

    def note(row: Any) -> str:
        unlike.append(row.text[:_HEADER_BYTES])
        return "skip"

    data = block if block.isascii() else block.decode(errors="replace").encode()
    table = csv.read_csv(
        BytesIO(data),
        csv.ReadOptions(use_threads=False, block_size=len(data) + 1, column_names=list(names)),
        csv.ParseOptions(delimiter="\t", quote_char=False, double_quote=False, invalid_row_handler=note),
        csv.ConvertOptions(
            column_types=dict.fromkeys(_COLUMNS, pa.string()),
            include_columns=list(_COLUMNS),
            strings_can_be_null=False,
        ),
    )
    arrays = [table[name].combine_chunks() for name in _COLUMNS]
    return pa.record_batch(arrays, names=list(_COLUMNS)), unlike


def _values(column: pa.Array, value_of: Any) -> Int64Array:
    """The number that each text stands for; a text is looked at once."""
    encoded = column.dictionary_encode()
    values = np.array([value_of(text) for text in encoded.dictionary.to_pylist()], np.int64)
    return values[encoded.indices.to_numpy()] if len(values) else np.empty(0, np.int64)


def _single(text: str) -> int:
    """What a field is that is not a single value."""
    return _NONE if not text or "," in text else _WRONG


@lru_cache(maxsize=1 << 16)
def _address_of(text: str) -> int:
    try:
        return int(ipaddress.IPv4Address(text))
    except ValueError:
        return _single(text)


def _port_of(text: str) -> int:
    return int(text) if _is_number(text) and int(text) < 1 << 16 else _single(text)


def _length_of(text: str) -> int:
    return int(text) if _is_number(text) and int(text) < _MOST_LENGTH else _WRONG


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 12


_FIELDS: Mapping[str, Any] = {
    "ip.src": _address_of, "ip.dst": _address_of, "tcp.srcport": _port_of, "tcp.dstport": _port_of,
}  # fmt: skip


def _times_ns(column: pa.Array) -> Int64Array:
    """Times in ns since the epoch, UTC; below 0 where a text is none."""
    import pyarrow.compute as pc

    parts = pc.extract_regex(column, _FRACTION)
    second, fraction, zone = (pc.fill_null(part, "") for part in parts.flatten())
    at = _values(pc.binary_join_element_wise(second, zone, ""), _seconds_of)
    ns = pc.cast(pc.utf8_rpad(fraction, 9, "0"), pa.int64()).to_numpy()
    return np.where(at < 0, _WRONG, at * 1_000_000_000 + ns)


def _seconds_of(text: str) -> int:
    """Seconds since the epoch of a time without its fraction: `Nov 20, 2026 10:50:09 CET` (Wireshark 4.0 and
    earlier), `2026-11-20T10:50:09+0100`."""
    found = _SECOND.fullmatch(text)
    if found is None or (offset := _offset_of(found["zone"])) is None:
        return _WRONG
    with suppress(ValueError):  # no such month, day, or time; before 1970 and after 2262 it is below 0
        date = found["iso"] or f"{found['year']}-{_MONTHS.index(found['name']) + 1:02}-{int(found['day']):02}"
        since = datetime.fromisoformat(f"{date}T{found['time']}") - datetime(1970, 1, 1)
        seconds = since // timedelta(seconds=1) - offset
        return seconds if 0 <= seconds < 2**63 // 10**9 else _WRONG
    return _WRONG


def _offset_of(zone: str) -> int | None:
    """Seconds by which a time zone is ahead of UTC; None where it is not known."""
    if zone[0] not in "+-":
        return _ZONES.get(zone)
    digits = zone[1:].replace(":", "")
    return int(zone[0] + "1") * (int(digits[:2]) * 3600 + int(digits[2:]) * 60)
