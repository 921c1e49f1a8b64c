"""traces.duckdb of a release: all tables and queries as views and macros, relative to the release's folder.

    cd RELEASE; duckdb traces.duckdb              or, from elsewhere, SET file_search_path = 'RELEASE'

Two such files of the same definitions have the same bytes: what DuckDB makes up anew for each file, its identifier, is
replaced by one made from the definitions, and the two checksums over it are made again.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Sequence
from pathlib import Path

from ddnn_traces.query import views
from ddnn_traces.text import sql_literal

#: DuckDB's file: three headers of 4096 bytes, each begins with the checksum of the rest of it (little-endian); the
#: identifier stands in the main header and, as what was in the buffer before, in one of the others.
_HEADER_BYTES, _HEADERS, _ID_PLACE, _ID_BYTES = 4096, 3, 124, 16


def write(release: Path, tables: Sequence[str]) -> None:
    """Write the database file into a folder in which the tables are already. tables: those that it has.

    Raises duckdb.Error, OSError.
    """
    import duckdb

    with tempfile.TemporaryDirectory(prefix="ddnn-traces-") as scratch:
        file = Path(scratch) / views.FILE  # the database is named after its file, also inside it
        with duckdb.connect(str(file), config={"threads": 1}) as connection:
            connection.execute(f"SET file_search_path = {sql_literal(str(release.resolve()))}")
            views.write_relative(connection, tables)
        (release / views.FILE).write_bytes(_same_bytes(file.read_bytes()))


def _same_bytes(content: bytes) -> bytes:
    """The file with an identifier that follows from the rest. As it is, where DuckDB's format is not as known here."""
    headers = [content[place * _HEADER_BYTES :][:_HEADER_BYTES] for place in range(_HEADERS)]
    if any(header[:8] != _checksum(header[8:]) for header in headers):
        return content
    random = headers[0][_ID_PLACE : _ID_PLACE + _ID_BYTES]
    rest = content[_HEADERS * _HEADER_BYTES :]
    made = hashlib.sha256(rest).digest()[:_ID_BYTES]
    bodies = [header[8:].replace(random, made) for header in headers]
    return b"".join([_checksum(body) + body for body in bodies] + [rest])


def _checksum(body: bytes) -> bytes:
    """DuckDB's checksum of a block (Checksum in src/common/checksum.cpp): 8-byte words times a constant, by xor."""
    import numpy as np

    words = np.frombuffer(body, "<u8") * np.uint64(0xBF58476D1CE4E5B9)
    return int(np.bitwise_xor.reduce(words) ^ np.uint64(5381)).to_bytes(8, "little")
