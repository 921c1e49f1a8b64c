"""Searching bytes for many words at once: a compiled look for their begins, then each letter and what stands around."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

#: Letters of a word that are enough to be no chance in gigabytes of compressed bytes.
LONG = 7
_SHORT = 4
#: Letters of a word before which anything may stand: in binary formats that is a length, which may be a letter, too.
_SURE = 16
_MOST_HITS = 1 << 12

_LETTERS = rb"0-9a-z_\x80-\xff"
#: What may not stand before and behind a word of each kind, in small letters: then it is another word.
_AROUND = {
    "an IP address": (re.compile(rb"[0-9a-z_.]$"), re.compile(rb"^(?:[0-9a-z_]|\.[0-9])")),
    "the time of a run": (re.compile(rb"[0-9a-z_.]$"), re.compile(rb"^[0-9a-z_]")),
    "a path": (re.compile(rb"[0-9a-z_.~-]$"), re.compile(rb"^[0-9a-z_-]")),
}
_ANY = (re.compile(rb"[" + _LETTERS + rb"]$"), re.compile(rb"^[" + _LETTERS + rb"]"))
_ISO = re.compile(rb"t?\d{2}:\d{2}$")  # times to the minute go on with seconds


class Searcher:
    """Finds words in bytes. texts: words in small letters, found in any case where they stand by themselves, each with
    its kind; binary: bytes, found as they are. least: letters of the shortest word to look for; shorter ones are left.
    """

    def __init__(self, texts: Mapping[str, str], binary: Mapping[bytes, str], least: int = _SHORT) -> None:
        import numpy as np

        from ddnn_traces.ingestors.compiled import needles

        self._width = min(8, max(least, _SHORT))
        self._words: dict[int, list[tuple[bytes, str, bool]]] = {}
        every = [(text.encode(), kind, True) for text, kind in texts.items()]
        every += [(data, kind, False) for data, kind in binary.items()]
        for data, kind, is_text in every:
            if len(data) >= self._width:
                self._words.setdefault(self._prefix(data), []).append((data, kind, is_text))
        self.longest = max((len(data) for data, _, _ in every), default=1)
        self._prefixes = np.array(sorted(self._words), np.uint64)
        self._table = np.zeros(1 << 16, np.uint8)
        if len(self._prefixes):
            needles.fill(self._prefixes, self._width, self._table)

    def _prefix(self, data: bytes) -> int:
        folded = bytes(byte | 0x20 for byte in data[: self._width])
        return int.from_bytes(folded.ljust(8, b"\0"), "big")

    def kinds(self, data: bytes | bytearray | memoryview, size: int | None = None) -> Iterator[tuple[int, str]]:
        """Offset and kind of each word in the first `size` bytes; the offsets are where the words begin.

        Where `size` is given, 8 bytes or more stand behind it, and so a buffer is not copied.
        """
        import numpy as np

        from ddnn_traces.ingestors.compiled import needles

        if not len(self._prefixes):
            return
        if size is None:
            size = len(data)
            data = bytes(data) + bytes(8)
        buf = np.frombuffer(data, np.uint8)
        buf.flags.writeable = False
        found: Any = np.zeros(_MOST_HITS, np.int64)
        at = 0
        while at < size:
            count, at = needles.find(buf, at, size, self._prefixes, self._width, self._table, found)
            for place in found[:count].tolist():
                yield from self._verified(data, place, size)

    def _verified(self, data: Any, place: int, size: int) -> Iterator[tuple[int, str]]:
        there = bytes(data[place : min(size, place + self.longest + 8)])
        small = there.lower()
        before = bytes(data[max(0, place - 1) : place]).lower()
        for word, kind, is_text in self._words.get(self._prefix(there), ()):
            if not is_text:
                if there.startswith(word):
                    yield place, kind
            elif small.startswith(word):
                left, right = _AROUND.get(kind, _ANY)
                if len(word) < _SURE and _begins_or_ends(word[0]) and left.search(before):
                    continue
                behind = small[len(word) : len(word) + 2]
                if _begins_or_ends(word[-1]) and right.search(behind) and not _is_iso(word):
                    continue
                yield place, kind


def _begins_or_ends(byte: int) -> bool:
    return chr(byte).isalnum() or byte >= 0x80


def _is_iso(word: bytes) -> bool:
    return _ISO.search(word) is not None


def distinct(hits: Iterable[tuple[int, str]], most: int) -> list[tuple[int, str]]:
    """The first hit of each kind, `most` at most."""
    first: dict[str, int] = {}
    for place, kind in hits:
        first.setdefault(kind, place)
        if len(first) >= most:
            break
    return [(place, kind) for kind, place in first.items()]
