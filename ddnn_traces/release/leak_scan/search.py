"""Searching bytes for many words at once: a compiled look for their begins, then each letter and what stands around."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ddnn_traces.release.leak_scan.shapes import SHAPE_BYTES as _SHAPE_BYTES
from ddnn_traces.release.leak_scan.shapes import Shape

#: Letters of a word that are enough to be no chance in gigabytes of compressed bytes.
LONG = 7
_SHORT = 4
#: Letters of a word before which anything may stand: in binary formats that is a length, which may be a letter, too.
_SURE = 16
_MOST_HITS = 1 << 12

#: An IPv4 address with something between its numbers: another number beside it is another word, a letter is not.
_DOTTED = re.compile(rb"\d+(?:[._-]\d+){3}")
#: What may not stand before and behind a word of each kind, in small letters: then it is another word. An underscore is
#: no letter here, and a number behind an address and a dot is a port (tcpdump), two are another word.
_AROUND = {
    "an IP address": (r"(?:[0-9a-z]|[0-9]\.)$", r"^(?:[0-9a-z]|\.[0-9]+\.[0-9])"),
    "the time of a run": (r"(?:[0-9a-f]|[0-9]\.)$", r"^[0-9a-f]"),
    "a path": (r"$.", r"^[0-9a-z]"),
}
_AROUND_DOTTED = (r"(?:[0-9]|[0-9][._-])$", r"^(?:[0-9]|\.[0-9]+\.[0-9])")
_AROUND_OTHERS = (r"[^\W_]$", r"^[^\W_]")
#: Bytes around a word that are looked at.
_AROUND_BYTES = 8


class Searcher:
    """Finds words in bytes. texts: words in small letters, found in any case where they stand by themselves, each with
    its kind; binary: bytes, found as they are. least: letters of the shortest word to look for; shorter ones are left.
    shapes: what is found by how it is written. A kind may be followed by more in brackets.
    """

    def __init__(
        self,
        texts: Mapping[str, str],
        binary: Mapping[bytes, str],
        least: int = _SHORT,
        shapes: Iterable[Shape] = (),
    ) -> None:
        import numpy as np

        from ddnn_traces.ingestors.packets.compiled import needles

        self._width = min(8, max(least, _SHORT))
        self._words: dict[int, list[tuple[bytes, str, bool]]] = {}
        every = [(text.encode(), kind, True) for text, kind in texts.items()]
        every += [(data, kind, False) for data, kind in binary.items()]
        for data, kind, is_text in every:
            if len(data) >= self._width:
                self._words.setdefault(self._prefix(data), []).append((data, kind, is_text))
        self._shapes: dict[int, list[Shape]] = {}
        for shape in shapes:
            for begin in shape.begins(self._width):
                self._shapes.setdefault(self._prefix(begin), []).append(shape)
        self.longest = max((_SHAPE_BYTES * bool(self._shapes), *(len(data) for data, _, _ in every), 1))
        self._prefixes = np.array(sorted(self._words.keys() | self._shapes.keys()), np.uint64)
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

        from ddnn_traces.ingestors.packets.compiled import needles

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
        there = bytes(data[place : min(size, place + self.longest + _AROUND_BYTES)])
        small = there.lower()
        before = bytes(data[max(0, place - _AROUND_BYTES) : place]).lower()
        prefix = self._prefix(there)
        for word, kind, is_text in self._words.get(prefix, ()):
            if not is_text:
                if there.startswith(word):
                    yield place, kind
            elif small.startswith(word) and _by_itself(word, kind, before, small):
                yield place, kind
        for shape in self._shapes.get(prefix, ()):
            if found := shape.look(before, small):
                yield place, found


def _by_itself(word: bytes, kind: str, before: bytes, there: bytes) -> bool:
    """Whether a word is one where it stands, and no part of another. there: begins with it."""
    left, right = _AROUND.get(kind.partition(" (")[0], _AROUND_OTHERS)
    if _DOTTED.fullmatch(word):
        left, right = _AROUND_DOTTED
    if len(word) < _SURE and _begins_or_ends(word[0]) and re.search(left, _letters_before(before)):
        return False
    behind = there[len(word) : len(word) + _AROUND_BYTES]
    return not (_begins_or_ends(word[-1]) and re.search(right, _letters_behind(behind)))


def _letters_before(data: bytes) -> str:
    """The text that ends with these bytes. What is no UTF-8 at its end is a letter: it may be of another encoding."""
    for begin in range(max(0, len(data) - 4), len(data)):
        try:
            last = data[begin:].decode()
        except UnicodeDecodeError:
            continue
        return data[:begin].decode("ascii", errors="replace") + last
    return "x" if data else ""


def _letters_behind(data: bytes) -> str:
    """The text that begins with these bytes, likewise."""
    text = data.decode(errors="replace")
    return "x" + text[1:] if text.startswith("\ufffd") else text


def _begins_or_ends(byte: int) -> bool:
    return chr(byte).isalnum() or byte >= 0x80


def distinct(hits: Iterable[tuple[int, str]], most: int) -> list[tuple[int, str]]:
    """The first hit of each kind, `most` at most."""
    first: dict[str, int] = {}
    for place, kind in hits:
        first.setdefault(kind, place)
        if len(first) >= most:
            break
    return [(place, kind) for kind, place in first.items()]
