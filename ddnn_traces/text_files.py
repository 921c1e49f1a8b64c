"""Small text files from outside (metadata, logs, documents), read so that none of them can stop or fill the program.

A file has to be regular: a pipe would wait for its writer for ever, a device never ends. Sizes are bounded before
anything is parsed; MOST_* are all the limits, far above what such files hold. Faults are raised as an error class of
the caller's choice, with file, fault and next step.
"""

from __future__ import annotations

import csv
import errno
import io
import os
import stat
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ddnn_traces.errors import DdnnTracesError

#: Bytes of run.toml and of other documents: some 10,000 hosts.
MOST_DOCUMENT = 1 << 20
#: Bytes of runs.csv: some 100,000 runs.
MOST_TABLE = 16 << 20
#: Bytes of a training log, and of its phases: some 1,000,000 steps.
MOST_LOG = 64 << 20
_KINDS = {
    stat.S_IFDIR: "a folder", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}  # fmt: skip


def name_of_kind(mode: int) -> str:
    """What a path is that is not a file, by its st_mode."""
    return _KINDS.get(stat.S_IFMT(mode), "something else")


def read_bytes(path: Path, most: int, error: type[DdnnTracesError]) -> bytes:
    """Content of a regular file of at most so many bytes. Raises `error`."""
    try:
        kind = path.stat().st_mode
        if not stat.S_ISREG(kind):
            raise error(f"{path}: {name_of_kind(kind)}, not a file; remove or replace it")
        with path.open("rb") as file:
            data = file.read(most + 1)
            size = max(len(data), path.stat().st_size)
    except OSError as fault:
        raise error(f"{path}: cannot be read ({fault.strerror}); correct or remove it") from fault
    if size > most:
        raise error(f"{path}: {size:,} bytes; of such a file at most {most:,} are read; shorten or remove it")
    return data


def read_text(path: Path, most: int, error: type[DdnnTracesError]) -> str:
    """Text of a regular file in UTF-8, with or without a byte order mark. Raises `error`."""
    try:
        return read_bytes(path, most, error).decode("utf-8-sig")
    except UnicodeDecodeError as fault:
        raise error(f"{path}: not text in UTF-8 (byte {fault.start}); save it as UTF-8") from fault


def read_toml(path: Path, error: type[DdnnTracesError]) -> dict[str, Any]:
    """Content of a TOML file. Raises `error`."""
    text = read_text(path, MOST_DOCUMENT, error)
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as fault:
        raise error(f"{path}: not TOML ({fault}); correct that line") from fault
    except RecursionError as fault:
        raise error(f"{path}: lists or tables are nested too deeply; correct that") from fault
    except ValueError as fault:
        raise error(f"{path}: a number has too many digits; correct it") from fault


def is_missing(path: Path) -> bool:
    """Whether there is no such name; a link that leads nowhere is there, and cannot be read."""
    return not (os.path.lexists(path) if isinstance(path, Path) else path.exists())  # a UPath: on a store


def csv_lines(data: bytes) -> Iterator[tuple[int, list[str] | None]]:
    """Number and cells of each line of a CSV file that is not empty, from 1; None for cells that cannot be read.

    Lines are read one by one, so that a quotation mark that is not closed costs one line and not the rest of the file.
    Bytes that are not UTF-8 become replacement characters.
    """
    for number, line in text_lines(data):
        cells = csv_cells(line)
        if cells is None or cells:
            yield number, cells


def text_lines(data: bytes) -> Iterator[tuple[int, str]]:
    """Number, from 1, and text of each line. Bytes that are not UTF-8 become replacement characters."""
    lines = io.TextIOWrapper(io.BytesIO(data), encoding="utf-8-sig", errors="replace")
    return enumerate(lines, start=1)


def csv_cells(line: str) -> list[str] | None:
    """Cells of a line of CSV, none of an empty one; None where they cannot be read."""
    try:
        return next(csv.reader([line], strict=True), [])
    except csv.Error:
        return None


def why_it_leads_nowhere(link: Path) -> str:
    """Why a symbolic link cannot be followed."""
    try:
        link.stat()
    except OSError as error:
        if error.errno == errno.ELOOP:
            return f"a link to {link.readlink()}, which leads back to it"
    return f"a link to {link.readlink()}, which is not there"
