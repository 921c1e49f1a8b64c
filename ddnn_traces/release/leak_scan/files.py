"""Searches a file of a release: its name, its bytes, and what they decode to (Parquet, pcap, DuckDB, JSON, gzip)."""

from __future__ import annotations

import base64
import binascii
import contextlib
import gzip
import io
import json
import re
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from ddnn_traces.errors import UsageError
from ddnn_traces.release.leak_scan.search import LONG, Moments, Searcher, distinct
from ddnn_traces.release.leak_scan.words import Words
from ddnn_traces.store import schema

_BLOCK_BYTES = 16 << 20
_MOST_HITS = 20
_MOST_DEPTH = 2
_MOST_UNPACKED = 1 << 30
_PCAP_HEADER = 24
_PCAP = b"\x4d\x3c\xb2\xa1"
#: Columns without a unit whose numbers are counters: one that equals an address is a coincidence.
_COUNTERS = ("flow_id", "reverse_flow_id", "record", "step", "epoch", "connection", "encapsulation_id", "parent_id")

#: A path of two names or more, or one with a drive; not a web address.
_PATH = re.compile(rb"(?<![\w.~/:\x80-\xff])/[\w.+@~-]+/[\w.+@~-]|(?<!\w)[A-Za-z]:\\[\w.\\]|file:/", re.MULTILINE)

Hit = tuple[str, str]  # the kind of what was found, and its place in the file


@dataclass(frozen=True)
class Searchers:
    """every: of all words, for uncompressed bytes. long: of words too long to occur by chance in compressed bytes."""

    words: Words
    every: Searcher
    long: Searcher

    @classmethod
    def of(cls, words: Words) -> Searchers:
        """The searchers of these words. Raises MissingExtra."""
        lasting = {data: kind for data, kind in words.binary.items() if len(data) >= 16}
        return cls(words, words.searcher(), Searcher(words.texts, lasting, LONG, (Moments(words.times),)))


def hits(path: Path, name: str, searchers: Searchers) -> Iterator[Hit]:
    """All that is found in a file. name: its path in the release. Raises UsageError where it cannot be read."""
    try:
        for text in {name, unquote(name)}:
            yield from _in_text(text, searchers.every, "the name of the file")
        with path.open("rb") as file:
            start = file.read(32)
        if start.startswith(b"PAR1"):
            yield from _in_blocks(path, searchers.long, "the bytes")
            yield from _in_parquet(path, searchers)
            return
        packed = start.startswith((b"\x1f\x8b", b"PK\x03\x04", b"\x28\xb5\x2f\xfd", b"BZh", b"\xfd7zXZ"))
        yield from _in_blocks(path, searchers.long if packed else searchers.every, "the bytes")
        if start.startswith(_PCAP):
            yield from _in_pcap(path, searchers.words)
        elif start[8:12] == b"DUCK":
            yield from _in_duckdb(path, searchers.every)
        elif packed:
            yield from _in_packed(path.read_bytes(), searchers, 0)
        elif path.suffix in (".json", ".jsonld", ".ipynb"):
            yield from _in_json(path.read_bytes(), searchers.every)
    except OSError as error:
        raise UsageError(f"{path}: cannot be searched ({error.strerror or error}); check the disk") from error


def _in_text(text: str | bytes, searcher: Searcher, where: str) -> Iterator[Hit]:
    data = text.encode(errors="replace") if isinstance(text, str) else text
    for _, kind in distinct(searcher.kinds(data)):
        yield kind, where


def _in_blocks(path: Path, searcher: Searcher, where: str) -> Iterator[Hit]:
    """The file's bytes, a block at a time; what spans two blocks is in the second again."""
    overlap = searcher.longest + 2
    buffer = bytearray(overlap + _BLOCK_BYTES)
    view = memoryview(buffer)
    carried, at = 0, 0
    found: set[str] = set()
    with path.open("rb", buffering=0) as file:
        while size := file.readinto(view[carried : carried + _BLOCK_BYTES]):
            end = carried + size
            for place, kind in searcher.kinds(view[:end]):
                if kind not in found:
                    found.add(kind)
                    yield kind, f"{where}, at {at - carried + place:,}"
            at += size
            carried = min(overlap, end)
            view[:carried] = bytes(view[end - carried : end])


def _in_json(data: bytes, searcher: Searcher) -> Iterator[Hit]:
    """Strings, without the escapes of JSON."""
    with contextlib.suppress(ValueError, RecursionError):
        # in one text: a search takes longer than to read one of them, and a release of 66 runs has 144,000
        yield from _in_text("\n".join(_strings(json.loads(data))), searcher, "a value")


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for name, held in value.items():
            yield name
            yield from _strings(held)
    elif isinstance(value, list):
        for held in value:
            yield from _strings(held)


# --- Parquet


def _in_parquet(path: Path, searchers: Searchers) -> Iterator[Hit]:
    """Footer with statistics and metadata, values of strings, numbers that may be addresses, times."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            metadata, fields = file.metadata, list(enumerate(file.schema_arrow))
    except pa.ArrowInvalid as error:
        raise UsageError(f"{path}: cannot be searched ({error}); publish again") from error
    yield from _in_footer(path, metadata, searchers)
    texts_of = [field.name for _, field in fields if _is_text(field.type)]
    with pq.ParquetFile(path, metadata=metadata, read_dictionary=texts_of) as file:
        for number, field in fields:
            yield from _in_column(file, path, number, field, searchers)


def _values(kind: Any) -> Any:
    """The type of a column's values."""
    import pyarrow as pa

    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _is_text(kind: Any) -> bool:
    import pyarrow as pa

    values = _values(kind)
    return bool(pa.types.is_string(values) or pa.types.is_large_string(values) or pa.types.is_binary(values))


def _in_column(file: Any, path: Path, number: int, field: Any, searchers: Searchers) -> Iterator[Hit]:
    """Values of a column of strings, numbers that may be addresses, times. file: reads strings as dictionaries."""
    import pyarrow as pa

    where = f"values of {field.name}"
    if _is_text(field.type):
        texts: set[Any] = set()
        for values in _batches(file, field.name):
            texts.update(values.dictionary.to_pylist())
        data = b"\n".join(t if isinstance(t, bytes) else t.encode() for t in texts if t is not None)
        yield from _in_text(data, searchers.every, where)
        if _PATH.search(data):
            yield "an absolute path", where
    elif pa.types.is_integer(_values(field.type)):
        yield from _in_numbers(file, path, number, field, searchers.words, where)


def _in_footer(path: Path, metadata: Any, searchers: Searchers) -> Iterator[Hit]:
    """Everything after the last page: page index, statistics, metadata; and Arrow's schema, which is in base64."""
    chunks = [
        metadata.row_group(group).column(column)
        for group in range(metadata.num_row_groups)
        for column in range(metadata.num_columns)
    ]
    ends = ((c.dictionary_page_offset or c.data_page_offset) + c.total_compressed_size for c in chunks)
    begin = max(ends, default=4)
    with path.open("rb") as file:
        file.seek(begin)
        data = file.read()
    for place, kind in distinct(searchers.every.kinds(data)):
        yield kind, f"statistics and metadata, at {begin + place:,}"
    known = [chunk.statistics for chunk in chunks if chunk.statistics and chunk.statistics.has_min_max]
    bounds = [bound for one in known for bound in (one.min, one.max) if isinstance(bound, str | bytes)]
    text = b"\n".join(bound.encode() if isinstance(bound, str) else bound for bound in bounds)
    yield from _in_text(text, searchers.every, "statistics")
    for name, value in (metadata.metadata or {}).items():
        for text in (name, value, _unescaped(value)):
            yield from _in_text(text, searchers.every, f"metadata {name.decode(errors='replace')}")


def _unescaped(value: bytes) -> bytes:
    """The bytes that base64 stands for, or the strings in JSON; empty for other metadata."""
    with contextlib.suppress(binascii.Error, ValueError):
        return base64.b64decode(value, validate=True)
    with contextlib.suppress(ValueError, RecursionError):
        return "\n".join(_strings(json.loads(value))).encode(errors="replace")
    return b""


def _batches(file: Any, name: str) -> Iterator[Any]:
    """A column, a batch at a time."""
    return (batch.column(0) for batch in file.iter_batches(1 << 18, columns=[name]))


def _in_numbers(file: Any, path: Path, column: int, field: Any, words: Words, where: str) -> Iterator[Hit]:
    """Addresses as numbers where there is no unit; times of the source in the statistics of times."""
    import pyarrow as pa
    import pyarrow.compute as pc

    unit = (field.metadata or {}).get(b"unit", b"").decode(errors="replace") or _unit(path, field.name)
    metadata = file.metadata
    groups = [metadata.row_group(group).column(column).statistics for group in range(metadata.num_row_groups)]
    bounds = [(s.min, s.max) for s in groups if s is not None and s.has_min_max]
    if "since the epoch" in unit or (not unit and field.name.endswith("_ns")):
        for bound in bounds:
            if any(first <= time <= last for first, last in words.times for time in bound):
                yield "the time of a run", where
                return
    elif not unit and field.name not in _COUNTERS and words.numbers:
        if len(bounds) == len(groups) and all(high < min(words.numbers) for _, high in bounds):
            return
        numbers = pa.array(sorted(words.numbers), pa.int64())
        for values in _batches(file, field.name):
            if pc.any(pc.is_in(values.cast(pa.int64(), safe=False), numbers)).as_py():
                yield "an IP address", where
                return


def _unit(path: Path, name: str) -> str:
    """A column's unit by schemas/, for a file whose fields do not state it."""
    table = path.parent.name
    if table not in schema.TABLES:
        return ""
    return next((column.unit for column in schema.table(table).columns if column.name == name), "")


# --- captures, databases, archives


def _in_pcap(path: Path, words: Words) -> Iterator[Hit]:
    """IPv4 addresses in the headers (not in counters and checksums, which can be any number), and the time stamps."""
    import numpy as np

    from ddnn_traces.ingestors.packets.compiled import addresses

    numbers = np.array(sorted(words.numbers), np.int64)
    first = min((first for first, _ in words.times), default=1)
    last = max((last for _, last in words.times), default=0)
    mask, found = np.zeros(1 << 18, np.uint8), np.zeros((_MOST_HITS, 2), np.int64)
    with path.open("rb") as file:
        link = int.from_bytes(file.read(_PCAP_HEADER)[20:24], "little") & 0xFFFF
        rest, records = b"", 0
        while block := file.read(_BLOCK_BYTES):
            data = rest + block
            buf = np.frombuffer(data, np.uint8)
            pos, read, count = addresses.find_known(buf, 0, len(buf), link, 1, numbers, first, last, mask, found)
            for record, number in found[:count].tolist():
                yield "the time of a run" if number < 0 else "an IP address", f"packet {records + record + 1:,}"
            if count:
                return
            records += read
            rest = data[pos:]


def _in_duckdb(path: Path, searcher: Searcher) -> Iterator[Hit]:
    """Definitions of views and macros, comments, and what tables there are."""
    import duckdb

    statements = (
        "SELECT sql FROM duckdb_views()", "SELECT macro_definition FROM duckdb_functions()",
        "SELECT sql FROM duckdb_tables()", "SELECT comment FROM duckdb_columns()",
    )  # fmt: skip
    try:
        with duckdb.connect(str(path), read_only=True) as connection:
            for statement in statements:
                text = "\n".join(str(row[0]) for row in connection.execute(statement).fetchall() if row[0])
                yield from _in_text(text, searcher, "a definition")
            for (table,) in connection.execute("SELECT table_name FROM duckdb_tables()").fetchall():
                quoted = '"' + table.replace('"', '""') + '"'
                rows = connection.execute(f"SELECT * FROM {quoted} LIMIT 100000").fetchall()
                yield from _in_text("\n".join(str(value) for row in rows for value in row), searcher, f"table {table}")
    except duckdb.Error as error:
        raise UsageError(f"{path}: cannot be searched ({str(error).splitlines()[0]}); publish again") from error


def _in_packed(data: bytes, searchers: Searchers, depth: int) -> Iterator[Hit]:
    """Contents of gzip and zip; other compressed files are searched by their bytes alone."""
    if depth == _MOST_DEPTH:
        return
    members: list[tuple[str, bytes]] = []
    with contextlib.suppress(OSError, EOFError, zlib.error, zipfile.BadZipFile, RuntimeError):
        if data.startswith(b"\x1f\x8b"):
            with gzip.open(io.BytesIO(data)) as file:
                members.append(("", file.read(_MOST_UNPACKED)))
        elif data.startswith(b"PK\x03\x04"):
            with zipfile.ZipFile(io.BytesIO(data)) as archive:
                for info in archive.infolist():
                    with archive.open(info) as member:
                        members.append((info.filename, member.read(_MOST_UNPACKED)))
    for name, content in members:
        yield from _in_text(name, searchers.every, "the name of a member")
        yield from _in_text(content, searchers.every, f"its compressed contents{': ' * bool(name)}{name}")
        yield from _in_json(content, searchers.every) if name.endswith(".json") else ()
        yield from _in_packed(content, searchers, depth + 1)
