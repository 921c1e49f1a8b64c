"""Searches a file of a release: its name, its bytes, and what they decode to (Parquet, pcap, DuckDB, JSON, gzip)."""

from __future__ import annotations

import base64
import binascii
import contextlib
import io
import itertools
import json
import re
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import unquote

from ddnn_traces.errors import UsageError
from ddnn_traces.pcap.capture_file import CaptureFile
from ddnn_traces.pcap.compression import Decompression, compression_of
from ddnn_traces.query import views
from ddnn_traces.release.leak_scan.search import AROUND_BYTES, DAY_S, LONG, Instants, Moments, Searcher, distinct, near
from ddnn_traces.release.leak_scan.searched_words import Words
from ddnn_traces.store import hashes, layout, schema

if TYPE_CHECKING:
    from ddnn_traces.pcap.compiled.addresses import KnownWords

_BLOCK_BYTES = 16 << 20
_MOST_HITS = 20
_MOST_DEPTH = 2
_MOST_UNPACKED = 1 << 30
_PCAP_HEADER = 24
#: Compressed bytes that are opened here (zip), or not at all (pictures).
_PACKED = (b"PK\x03\x04", b"PK\x05\x06", b"\x89PNG", b"\xff\xd8\xff")
_TEXT_START = 4096
_MOST_TEXT = 256 << 20
#: Words that may be base64, in its two alphabets, or hex.
_ENCODED, _BETWEEN = re.compile(rb"[0-9A-Za-z+/_-]{6,}"), re.compile(rb"[/_-]")
_MIXED = re.compile(rb"[a-z].*[A-Z]|[A-Z].*[a-z]|[0-9].*[A-Z]", re.DOTALL)
_HEX_TEXT = re.compile(rb"(?:[2-7][0-9a-f]){4,}", re.IGNORECASE)
_URL_LETTERS = bytes.maketrans(b"+/", b"-_")
_PCAP = b"\x4d\x3c\xb2\xa1"
_BYTE_ORDERS: tuple[Literal["big", "little"], ...] = ("big", "little")
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
        shapes = (Moments(words.times, words.published), Instants(words.times))
        return cls(words, words.searcher(), Searcher(words.texts, lasting, LONG, shapes))


def hits(path: Path, name: str, searchers: Searchers) -> Iterator[Hit]:
    """All that is found in a file. name: its path in the release. Raises UsageError where it cannot be read."""
    try:
        for text in {name, unquote(name)}:
            yield from _in_text(text, searchers.every, "the name of the file")
        if path.name == layout.EXPLORER and (shown := _of_explorer(path)) is not None:
            yield from _in_text(shown, searchers.every, "what the page shows")
            return
        with path.open("rb") as file:
            start = file.read(32)
        if start.startswith(b"PAR1"):
            yield from _in_blocks(_blocks(path), searchers.long, "the bytes")
            yield from _in_parquet(path, searchers)
            return
        kind = compression_of(start)
        packed = kind is not None or start.startswith((*_PACKED, _PCAP))
        yield from _in_blocks(_blocks(path), searchers.long if packed else searchers.every, "the bytes")
        if start.startswith(_PCAP):
            yield from _in_pcap(_blocks(path), searchers)
        elif start[8:12] == b"DUCK":
            yield from _in_duckdb(path, searchers.every)
        elif kind is not None:
            yield from _in_compressed(path, searchers)
        elif packed:
            yield from _in_packed(path.read_bytes(), searchers, 0)
        elif path.suffix in (".json", ".jsonld", ".ipynb"):
            yield from _in_json(path.read_bytes(), searchers.every)
        elif path.stat().st_size <= _MOST_TEXT:
            yield from _in_encoded(path.read_bytes(), searchers.every, "the bytes")
    except OSError as error:
        raise UsageError(f"{path}: cannot be searched ({error.strerror or error}); check the disk") from error


def _of_explorer(path: Path) -> str | None:
    """The texts of explore.html; None where it is no such page."""
    from ddnn_traces.report import explorer

    with contextlib.suppress(ValueError):
        return explorer.texts(path.read_bytes().decode())
    return None


def _in_text(text: str | bytes, searcher: Searcher, where: str) -> Iterator[Hit]:
    data = text.encode(errors="replace") if isinstance(text, str) else text
    for _, kind in distinct(searcher.kinds(data)):
        yield kind, where
    yield from _in_encoded(data, searcher, where)


def _in_encoded(data: bytes, searcher: Searcher, where: str, depth: int = 0) -> Iterator[Hit]:
    """What words of a text stand for in base64 and hex, where that is text again."""
    if depth == _MOST_DEPTH or b"\0" in data[:_TEXT_START]:
        return
    words = set(_ENCODED.findall(data))
    words |= {part for word in words for part in _BETWEEN.split(word)}  # of a path or a name; base64 has these, too
    decoded = b"\n".join(filter(None, map(_decoded, words)))
    for _, kind in distinct(searcher.kinds(decoded)):
        yield kind, f"{where}, in base64 or hex"
    if decoded:
        yield from _in_encoded(decoded, searcher, where, depth + 1)


def _decoded(word: bytes) -> bytes:
    """The text that a word stands for, empty for none."""
    with contextlib.suppress(ValueError):
        if _HEX_TEXT.fullmatch(word):
            text = bytes.fromhex(word.decode())
        elif _MIXED.search(word):
            text = base64.urlsafe_b64decode(word.translate(_URL_LETTERS).rstrip(b"=") + b"==")
        else:
            return b""
        return text if text.decode().replace("\n", "").isprintable() else b""
    return b""


def _blocks(path: Path) -> Iterator[memoryview]:
    """A file; a block is overwritten by the next one."""
    buffer = bytearray(min(_BLOCK_BYTES, max(1, path.stat().st_size)))
    with path.open("rb", buffering=0) as file:
        while size := file.readinto(buffer):
            yield memoryview(buffer)[:size]


def _in_blocks(blocks: Iterable[memoryview], searcher: Searcher, where: str) -> Iterator[Hit]:
    """Bytes, a block at a time; what spans two blocks is in the second again."""
    overlap = searcher.longest + AROUND_BYTES
    carried, at = b"", 0
    found: set[str] = set()
    for block in blocks:
        data = b"".join((carried, block))
        for place, kind in searcher.kinds(data):
            if kind not in found:
                found.add(kind)
                yield kind, f"{where}, at {at - len(carried) + place:,}"
        at += len(block)
        carried = data[-overlap:]


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
    for value in (metadata.metadata or {}).values():
        if _from_base64(value):  # where short words occur by chance; what it stands for is searched below
            data = data.replace(value, bytes(len(value)))
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
    if decoded := _from_base64(value):
        return decoded
    with contextlib.suppress(ValueError, RecursionError):
        return "\n".join(_strings(json.loads(value))).encode(errors="replace")
    return b""


def _from_base64(value: bytes) -> bytes:
    with contextlib.suppress(binascii.Error, ValueError):
        return base64.b64decode(value, validate=True)
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
            if any(first <= time <= last for first, last in near(words.times, DAY_S * 10**9) for time in bound):
                yield "the time of a run", where
                return
    elif not unit and field.name not in _COUNTERS and words.numbers:
        known = {int.from_bytes(n.to_bytes(4, "big"), order) for n in words.numbers for order in _BYTE_ORDERS}
        if len(bounds) == len(groups) and all(high < min(known) for _, high in bounds):
            return
        numbers = pa.array(sorted(known), pa.int64())
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


def _in_pcap(blocks: Iterable[memoryview], searchers: Searchers) -> Iterator[Hit]:
    """Addresses in the fields of headers, the time stamps, and all words in what is in no header.

    In the byte order of headers alone: 02:00:0a:0a:..., a made hardware address, begins as 10.10.0.2 in the other one.
    """
    hits: list[Hit] = []
    rests = _rests_of(blocks, searchers.words, hits)
    yield from _in_blocks(rests, searchers.every, "bytes that are in no header")
    yield from hits


def _rests_of(blocks: Iterable[memoryview], words: Words, hits: list[Hit]) -> Iterator[memoryview]:
    """What is in no header of the packets, a block at a time. hits: gets the first times and addresses."""
    import numpy as np

    from ddnn_traces.pcap.compiled import addresses

    kinds = ("", "the time of a run", "an IP address", "a hardware address")  # as find_known() numbers them
    known = _known_words(words)
    mask, found = np.zeros(1 << 18, np.uint8), np.zeros((_MOST_HITS, 2), np.int64)
    rest, records, link = b"", 0, -1
    for block in blocks:
        data = b"".join((rest, block))
        begin = 0
        if link < 0:
            link, begin = int.from_bytes(data[20:_PCAP_HEADER], "little") & 0xFFFF, _PCAP_HEADER
        buf = np.frombuffer(data, np.uint8)
        unread = np.empty(len(buf), np.uint8)
        pos, read, count, copied = addresses.find_known(buf, begin, len(buf), link, 1, known, mask, unread, found)
        yield unread[:copied].data
        hits += [(kinds[kind], f"packet {records + record + 1:,}") for record, kind in found[:count].tolist()]
        if count:
            return
        records += read
        rest = data[pos:]


def _known_words(words: Words) -> KnownWords:
    """What is searched for in the fields of packets."""
    import numpy as np

    from ddnn_traces.pcap.compiled.addresses import KnownWords

    hardware = [data for data, kind in words.binary.items() if kind == "a hardware address"]
    interfaces = [int.from_bytes(data, "big", signed=True) for data in hardware if len(data) == 8]
    return KnownWords(
        np.array(sorted(words.numbers), np.int64),
        np.array(sorted(int.from_bytes(data, "big") for data in hardware if len(data) == 6), np.int64),
        np.array(sorted(interfaces), np.int64),
        np.array(near(words.times, DAY_S * 10**9), np.int64).reshape(-1, 2),
    )


def _in_duckdb(path: Path, searcher: Searcher) -> Iterator[Hit]:
    """Definitions of views and macros, comments, and what tables there are."""
    import duckdb

    statements = (
        "SELECT sql FROM duckdb_views()", "SELECT macro_definition FROM duckdb_functions()",
        "SELECT sql FROM duckdb_tables()", "SELECT comment FROM duckdb_columns()",
    )  # fmt: skip
    try:
        with duckdb.connect(str(path), read_only=True, config=views.CLOSED) as connection:
            for statement in statements:
                text = "\n".join(str(row[0]) for row in connection.execute(statement).fetchall() if row[0])
                yield from _in_text(text, searcher, "a definition")
            for (table,) in connection.execute("SELECT table_name FROM duckdb_tables()").fetchall():
                quoted = '"' + table.replace('"', '""') + '"'
                rows = connection.execute(f"SELECT * FROM {quoted} LIMIT 100000").fetchall()
                yield from _in_text("\n".join(str(value) for row in rows for value in row), searcher, f"table {table}")
    except duckdb.OutOfMemoryException:
        raise
    except duckdb.Error as error:
        raise UsageError(f"{path}: cannot be searched ({str(error).splitlines()[0]}); publish again") from error


def _in_compressed(path: Path, searchers: Searchers) -> Iterator[Hit]:
    """Contents of a compressed file, read as captures are."""
    where = "its compressed contents"
    with CaptureFile(path, hash=hashes.NONE) as file:
        blocks = file.blocks()
        first = bytes(next(blocks, b""))
        if _is_packed(first):
            yield from _in_packed(_joined(itertools.chain([first], blocks)), searchers, 1)
        else:
            searcher = searchers.long if first.startswith(_PCAP) else searchers.every
            yield from _in_blocks(itertools.chain([memoryview(first)], blocks), searcher, where)
    if first.startswith(_PCAP):
        with CaptureFile(path, hash=hashes.NONE) as file:
            yield from _in_pcap(file.blocks(), searchers)
    else:
        yield from _in_encoded(first, searchers.every, where)


def _is_packed(data: bytes) -> bool:
    return compression_of(data[:_TEXT_START]) is not None or data.startswith(_PACKED)


def _joined(blocks: Iterable[bytes | memoryview]) -> bytes:
    """The first GB."""
    data = bytearray()
    for block in blocks:
        data += block
        if len(data) >= _MOST_UNPACKED:
            break
    return bytes(data)


def _in_packed(data: bytes, searchers: Searchers, depth: int) -> Iterator[Hit]:
    """Contents of compressed bytes and of zip, with its comments."""
    if depth == _MOST_DEPTH:
        return
    members: list[tuple[str, bytes]] = []
    with contextlib.suppress(OSError, EOFError, zlib.error, zipfile.BadZipFile, RuntimeError):
        if kind := compression_of(data[:_TEXT_START]):
            members.append(("", _joined(Decompression(kind, [data], 1 << 20).pieces())))
        elif data.startswith(b"PK\x03\x04"):
            with zipfile.ZipFile(io.BytesIO(data)) as archive:
                comments = [
                    archive.comment,
                    *(comment for info in archive.infolist() for comment in (info.comment, info.extra)),
                ]
                yield from _in_text(b"\n".join(comments), searchers.every, "a comment of the zip")
                for info in archive.infolist():
                    with archive.open(info) as member:
                        members.append((info.filename, member.read(_MOST_UNPACKED)))
    for name, content in members:
        yield from _in_text(name, searchers.every, "the name of a member")
        packed = _is_packed(content)
        where = f"its compressed contents{': ' * bool(name)}{name}"
        yield from _in_text(content, searchers.long if packed else searchers.every, where)
        yield from _in_json(content, searchers.every) if name.endswith(".json") else ()
        yield from _in_packed(content, searchers, depth + 1)
