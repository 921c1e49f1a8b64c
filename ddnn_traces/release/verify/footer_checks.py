"""Bytes of a Parquet file that belong to no column: no reader looks at them, and anything may stand there.

The footer is a struct of Thrift's compact protocol (parquet.thrift), whose places of column and offset indexes pyarrow
does not report. It must have been read by pyarrow before, which has limits for untrusted ones.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

_MAGIC = 4  # PAR1, at both ends
_END = 8  # the footer's length, and PAR1
_DEEPEST = 20

#: Fields of FileMetaData, RowGroup, ColumnChunk and ColumnMetaData, by their numbers in parquet.thrift.
_ROW_GROUPS, _COLUMNS, _META = 4, 1, 3
_OFFSET_INDEX, _COLUMN_INDEX = (4, 5), (6, 7)
_PACKED_BYTES, _DATA_PAGE, _DICTIONARY_PAGE, _BLOOM_FILTER = 7, 9, 11, (14, 15)

_TRUE, _FALSE, _BYTE, _DOUBLE, _TEXT, _LIST, _SET, _MAP, _STRUCT = 1, 2, 3, 7, 8, 9, 10, 11, 12


def hidden_bytes(path: Path) -> str:
    """What of a file belongs to no column, in words; '' where all does. Raises IndexError, KeyError, ValueError."""
    size = path.stat().st_size
    with path.open("rb") as file:
        file.seek(size - _END)
        length = int.from_bytes(file.read(4), "little")
        start = size - _END - length
        file.seek(start)
        reader = _Reader(file.read(length))
    footer = reader.struct(0)
    if reader.place != length:
        return f"has {length - reader.place:,} bytes in its footer that are none"
    spans = [(0, _MAGIC), (start, length + _END)]
    for chunk in (chunk for group in footer[_ROW_GROUPS] for chunk in group[_COLUMNS]):
        column = chunk[_META]
        spans.append((column.get(_DICTIONARY_PAGE) or column[_DATA_PAGE], column[_PACKED_BYTES]))
        spans += [(chunk[place], chunk[bytes_]) for place, bytes_ in (_OFFSET_INDEX, _COLUMN_INDEX) if place in chunk]
        if _BLOOM_FILTER[0] in column:
            spans.append((column[_BLOOM_FILTER[0]], column[_BLOOM_FILTER[1]]))
    end = 0
    for place, bytes_ in sorted(spans):
        if place != end:
            return f"has {abs(place - end):,} bytes at {min(place, end):,} that belong to no column, or to two"
        end = place + bytes_
    return ""


class _Reader:
    """Values of Thrift's compact protocol; a struct as its fields by number."""

    def __init__(self, content: bytes) -> None:
        self._content, self.place = content, 0

    def struct(self, deep: int) -> dict[int, Any]:
        """The struct that begins here."""
        if deep > _DEEPEST:
            raise ValueError("its footer is nested too deep")
        fields: dict[int, Any] = {}
        number = 0
        while head := self._byte():
            number = number + (head >> 4) if head >> 4 else self._number()
            fields[number] = self._value(head & 15, deep)
        return fields

    def _byte(self) -> int:
        self.place += 1
        return self._content[self.place - 1]

    def _varint(self) -> int:
        value = shift = 0
        while (byte := self._byte()) & 0x80:
            value |= (byte & 0x7F) << shift
            shift += 7
        return value | byte << shift

    def _number(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)

    def _value(self, kind: int, deep: int) -> Any:
        if kind in (_TRUE, _FALSE):
            return kind == _TRUE
        if kind in (_LIST, _SET):
            head = self._byte()
            count = head >> 4 if head >> 4 != 15 else self._varint()
            inner = _BYTE if head & 15 in (_TRUE, _FALSE) else head & 15
            return [self._value(inner, deep + 1) for _ in range(count)]
        if kind == _STRUCT:
            return self.struct(deep + 1)
        if kind == _BYTE:
            return self._byte()
        if kind in (_DOUBLE, _TEXT):
            length = 8 if kind == _DOUBLE else self._varint()
            self.place += length
            return None
        if kind == _MAP or kind > _STRUCT or not kind:
            raise ValueError("its footer has a value of a kind that Parquet does not use")
        return self._number()
