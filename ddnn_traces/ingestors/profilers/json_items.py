"""The items of a JSON file one at a time, so that a trace of gigabytes needs the memory of its largest item.

The standard library's decoder reads each item; only the outermost object or array is taken apart here. A file that ends
early, or is damaged, gives the items before that: the fault is raised after them.
"""

from __future__ import annotations

import codecs
import gzip
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from ddnn_traces.errors import LogError

#: Characters of a single item: a trace event has some hundred, the header of a Kineto trace some thousand.
MOST_ITEM = 64 << 20
#: Bytes of a file, unpacked.
MOST_FILE = 64 << 30
_CHUNK = 1 << 20
_GZIP = b"\x1f\x8b"
_SPACE = " \t\r\n\x1e"
_BEHIND = frozenset(_SPACE + ",:]}{[")


class Reader:
    """A file as text, read on demand. Raises LogError, with what is wrong but without the file's name."""

    def __init__(self, path: Path) -> None:
        self._file: IO[bytes] = path.open("rb")
        if self._file.read(2) == _GZIP:
            self._file.seek(0)
            self._file = gzip.GzipFile(fileobj=self._file)  # type: ignore[assignment]
        else:
            self._file.seek(0)
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")(errors="replace")
        self._text, self._place, self._is_end, self._bytes = "", 0, False, 0
        self._fault = ""

    def close(self) -> None:
        self._file.close()

    def peek(self) -> str:
        """The next character that is no space; '' at the end."""
        while True:
            while self._place < len(self._text) and self._text[self._place] in _SPACE:
                self._place += 1
            if self._place < len(self._text) or not self._more():
                return self._text[self._place : self._place + 1]

    def take(self) -> str:
        """The next character that is no space, which is passed."""
        found = self.peek()
        self._place += len(found)
        return found

    def value(self) -> Any:
        """The next value. Raises LogError where the file ends before it does, or it is no JSON."""
        self.peek()
        while True:
            try:
                found, end = _DECODER.raw_decode(self._text, self._place)
            except RecursionError:
                raise LogError("lists or objects are nested too deeply") from None
            except ValueError as error:
                if not self._more():
                    raise LogError(self._fault or self._why(error)) from None
                continue
            if self._text[end : end + 1] in _BEHIND or not self._more():  # a number may go on
                self._place = end
                return found

    def _why(self, error: ValueError) -> str:
        if self._place >= len(self._text) or "Unterminated" in str(error) or len(self._text) - self._place < _CHUNK:
            return "ends in the middle of an item, or is no JSON there"
        return "is no JSON"

    def rest_of_line(self) -> None:
        """Pass the rest of a line."""
        while (end := self._text.find("\n", self._place)) < 0:
            self._place = len(self._text)
            if not self._more():
                return
        self._place = end + 1

    def _more(self) -> bool:
        """Read on; false at the end of the file."""
        if self._is_end:
            return False
        if len(self._text) - self._place > MOST_ITEM:
            raise LogError(f"an item has more than {MOST_ITEM:,} characters")
        try:
            data = self._file.read1(max(_CHUNK, len(self._text) - self._place))  # type: ignore[attr-defined]
        except (EOFError, zlib.error, gzip.BadGzipFile):
            data, self._fault = b"", "its compression is cut off or damaged"
        self._bytes += len(data)
        if self._bytes > MOST_FILE:
            raise LogError(f"has more than {MOST_FILE:,} bytes")
        self._is_end = not data
        self._text = self._text[self._place :] + self._decoder.decode(data, final=self._is_end)
        self._place = 0
        return True


_DECODER = json.JSONDecoder()


def items(reader: Reader) -> Iterator[tuple[str, Any]]:
    """Key and value of the outermost object, of an array in it one element at a time; of an array elements without key.

    Raises LogError after the items before a fault.
    """
    opened = reader.take()
    if opened == "[":
        yield from (("", value) for value in _elements(reader))
        return
    if opened != "{":
        raise LogError("is no JSON object or array")
    while reader.peek() != "}":
        key = reader.value()
        if not isinstance(key, str) or reader.take() != ":":
            raise LogError("ends in the middle of an item, or is no JSON there")
        if reader.peek() == "[":
            reader.take()
            yield from ((key, value) for value in _elements(reader))
        else:
            yield key, reader.value()
        _separator(reader, "}")


def _elements(reader: Reader) -> Iterator[Any]:
    while reader.peek() != "]":
        yield reader.value()
        _separator(reader, "]")
    reader.take()


def _separator(reader: Reader, closing: str) -> None:
    if reader.peek() == ",":
        reader.take()
    elif reader.peek() != closing:
        raise LogError("ends in the middle of an item, or is no JSON there")


def documents(reader: Reader) -> Iterator[Any]:
    """The values of a file with one after the other (JSON lines). A line that is no JSON is LogError, as a value."""
    while reader.peek():
        try:
            yield reader.value()
        except LogError as error:
            yield error
            reader.rest_of_line()
