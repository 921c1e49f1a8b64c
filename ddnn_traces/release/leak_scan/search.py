"""Searches bytes for many words at once (Aho-Corasick), and for what is recognised by its form: times and home folders.

A hit of the automaton is a candidate: it counts where the word stands by itself, or where the form is complete.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Protocol

from ddnn_traces import extras

#: Letters of the shortest word that does not occur by chance in gigabytes of compressed bytes.
LONG = 7
_SHORT = 4
#: From this length on a word counts whatever precedes it: binary formats put a length there, which may be a letter.
_SURE = 16
#: Bytes before and after a word that are examined.
_AROUND_BYTES = 8
_MOST_KINDS = 20
#: Bytes that are searched at a time: this limits the memory for hits.
_CHUNK_BYTES = 1 << 20

#: An IPv4 address with a separator between its numbers: an adjacent digit makes another word of it, a letter does not.
_DOTTED = re.compile(rb"\d+(?:[._-]\d+){3}")
#: What may not precede and follow a word of each kind, in small letters: then it is part of another word. An underscore
#: is no letter here. A number after an address and a dot is a port (tcpdump); two numbers make another word.
_AROUND = {
    "an IP address": (r"(?:[0-9a-z]|[0-9]\.)\Z", r"^(?:[0-9a-z]|\.[0-9]+\.[0-9])"),
    "the time of a run": (r"(?:[0-9a-f]|[0-9]\.)\Z", r"^[0-9a-f]"),
    "a path": (r"$.", r"^[0-9a-z]"),
}
_AROUND_DOTTED = (r"(?:[0-9]|[0-9][._-])\Z", r"^(?:[0-9]|\.[0-9]+\.[0-9])")
_AROUND_OTHERS = (r"[^\W_]\Z", r"^[^\W_]")


class Shape(Protocol):
    """Something that is recognised by its form."""

    def begins(self, width: int) -> Iterable[bytes]:
        """The texts that it can begin with, `width` bytes each (4 to 8), in small letters."""

    def found(self, before: bytes, there: bytes) -> tuple[str, int] | None:
        """Its kind and length if it stands at the begin of `there`, which follows `before`, both in small letters."""


class Searcher:
    """Finds words in bytes.

    texts: words in small letters, found in any case where they stand by themselves, each with its kind. binary: bytes,
    found unchanged. least: letters of the shortest word to search for; shorter ones are left out. shapes: what is
    recognised by its form. A kind may be followed by more in brackets. Raises MissingExtra.
    """

    def __init__(
        self, texts: Mapping[str, str], binary: Mapping[bytes, str], least: int = _SHORT, shapes: Iterable[Shape] = ()
    ) -> None:
        with extras.required():
            from ahocorasick_rs import BytesAhoCorasick, Implementation

        width = min(8, max(least, _SHORT))
        #: What to verify where each pattern is found: (word, kind, whether it is a text) or a shape.
        self._candidates: dict[bytes, list[tuple[bytes, str, bool] | Shape]] = {}
        every = [(text.encode(), kind, True) for text, kind in texts.items()]
        every += [(data, kind, False) for data, kind in binary.items()]
        for data, kind, is_text in every:
            if len(data) >= width:
                self._candidates.setdefault(data.lower(), []).append((data, kind, is_text))
        for shape in shapes:
            for begin in set(shape.begins(width)):
                self._candidates.setdefault(begin, []).append(shape)
        #: Bytes of the longest word or shape.
        self.longest = max((_SHAPE_BYTES * bool(shapes), *(len(data) for data, _, _ in every), 1))
        self._patterns = list(self._candidates)
        self._automaton = BytesAhoCorasick(self._patterns, implementation=Implementation.DFA)

    def kinds(self, data: bytes | memoryview) -> Iterator[tuple[int, str]]:
        """Offset and kind of each word; the offsets are where the words begin, in ascending order."""
        return ((begin, kind) for begin, _, kind in self.spans(data))

    def spans(self, data: bytes | memoryview) -> Iterator[tuple[int, int, str]]:
        """Begin, end and kind of each word, in the order of their begins."""
        for first in range(0, len(data), _CHUNK_BYTES):
            small = bytes(data[first : first + _CHUNK_BYTES + self.longest]).lower()
            matches = self._automaton.find_matches_as_indexes(small, overlapping=True)
            for begin, pattern in sorted((begin, pattern) for pattern, begin, _ in matches if begin < _CHUNK_BYTES):
                for kind, length in self._verified(data, first + begin, self._patterns[pattern]):
                    yield first + begin, first + begin + length, kind

    def _verified(self, data: bytes | memoryview, place: int, pattern: bytes) -> Iterator[tuple[str, int]]:
        there = bytes(data[place : place + self.longest + _AROUND_BYTES])
        small = there.lower()
        before = bytes(data[max(0, place - _AROUND_BYTES) : place]).lower()
        for candidate in self._candidates[pattern]:
            if not isinstance(candidate, tuple):
                if found := candidate.found(before, small):
                    yield found
                continue
            word, kind, is_text = candidate
            if _by_itself(word, kind, before, small) if is_text else there.startswith(word):
                yield kind, len(word)


def _by_itself(word: bytes, kind: str, before: bytes, there: bytes) -> bool:
    """Whether a word is a word of its own where it stands, not part of another. there: begins with it."""
    left, right = _AROUND.get(kind.partition(" (")[0], _AROUND_OTHERS)
    if _DOTTED.fullmatch(word):
        left, right = _AROUND_DOTTED
    if len(word) < _SURE and _is_letter(word[0]) and re.search(left, _text_before(before)):
        return False
    after = there[len(word) : len(word) + _AROUND_BYTES]
    return not (_is_letter(word[-1]) and re.search(right, _text_after(after)))


def _text_before(data: bytes) -> str:
    """The text that ends with these bytes. Bytes at its end that are not UTF-8 count as a letter."""
    for begin in range(max(0, len(data) - 4), len(data)):
        try:
            last = data[begin:].decode()
        except UnicodeDecodeError:
            continue
        return data[:begin].decode("ascii", errors="replace") + last
    return "x" if data else ""


def _text_after(data: bytes) -> str:
    """The text that begins with these bytes, likewise."""
    text = data.decode(errors="replace")
    return "x" + text[1:] if text.startswith("\ufffd") else text


def _is_letter(byte: int) -> bool:
    return chr(byte).isalnum() or byte >= 0x80


def distinct(hits: Iterable[tuple[int, str]]) -> list[tuple[int, str]]:
    """The first hit of each kind, of 20 kinds at most."""
    first: dict[str, int] = {}
    for place, kind in hits:
        first.setdefault(kind, place)
        if len(first) >= _MOST_KINDS:
            break
    return [(place, kind) for kind, place in first.items()]


# --- times and home folders

#: Bytes of the longest shape.
_SHAPE_BYTES = 48
#: Time around a run in which a time of day is taken for the run's: local time is up to 14 hours before and 12 after
#: UTC, and a run is named a while before its first packet.
_NEAR = timedelta(hours=15)
_MOST_DAYS = 400  # of a run; a longer one has wrong times
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")

_AFTER_DAY = "t%_.,@+/- "  # what _BETWEEN begins with
_BETWEEN = r"(?:t|%20|[ _.,@+/-]{1,3})"
_CLOCK = r"(?P<hour>[0-2]\d)(?:[:_.h-]|%3a)?(?P<minute>[0-5]\d)"
_WRITTEN = tuple(
    re.compile(pattern.encode())
    for pattern in (
        rf"(?P<year>\d{{4}})(?P<sep>[-_./]?)(?P<month>\d\d)(?P=sep)(?P<day>\d\d){_BETWEEN}?{_CLOCK}",
        rf"(?P<year>\d\d)(?P<sep>[-_./]?)(?P<month>\d\d)(?P=sep)(?P<day>\d\d){_BETWEEN}{_CLOCK}",
        rf"(?P<day>\d\d)(?P<sep>[-_./])(?P<month>\d\d)(?P=sep)(?P<year>\d{{4}}){_BETWEEN}{_CLOCK}",
        rf"(?P<month>\d\d)(?P<sep>[-_./])(?P<day>\d\d)(?P=sep)(?P<year>\d{{4}}){_BETWEEN}{_CLOCK}",
        rf"(?P<name>[a-z]{{3}})[ _-]{{0,2}}(?P<day>\d\d?)(?:,? (?P<year>\d{{4}}))?{_BETWEEN}{_CLOCK}",
        rf"(?P<day>\d\d?)[ _/-]?(?P<name>[a-z]{{3}})[ _/-]?(?P<year>\d{{4}})(?::|{_BETWEEN}){_CLOCK}",
    )
)
_DIGIT = re.compile(rb"[0-9]\Z")
_HOME = re.compile(rb"(?:/(?:home|users|root)/|\\users[\\/]+)[0-9a-z_.\x80-\xff]")
#: What precedes a folder in the middle of a path. -I/home/alice is the begin of a path, and so is file:///home/alice.
_MIDDLE = re.compile(r"(?<!^-)(?<![\W_]-)[^\W_]\Z|[.~]\Z|(?<!:/)/\Z")


class Moments:
    """Times of day, to the minute or finer, within 15 hours of a run: its time in whatever time zone."""

    def __init__(self, times: Sequence[tuple[int, int]]) -> None:
        """times: first and last of each run, ns since the epoch."""
        self._runs = [
            (_moment(first) - _NEAR, _moment(last) + _NEAR) for first, last in times if 0 <= first <= last < 2**63 - 1
        ]

    def begins(self, width: int) -> Iterator[bytes]:
        """Those of every day that a run is near to."""
        days = set()
        for first, last in self._runs:
            for number in range(min((last - first).days + 2, _MOST_DAYS)):
                days.add((first + timedelta(days=number)).date())
        return (text.encode() for text in {text[:width] for day in days for text in _begins_of(day)})

    def found(self, before: bytes, there: bytes) -> tuple[str, int] | None:
        """The time of a run, unless a digit precedes it."""
        if _DIGIT.search(before):
            return None
        for pattern in _WRITTEN:
            if (match := pattern.match(there)) and any(map(self._is_near, _meanings(match, self._runs))):
                return "the time of a run", match.end()
        return None

    def _is_near(self, time: datetime) -> bool:
        return any(first <= time <= last for first, last in self._runs)


class Homes:
    """Folders of users: /home/NAME, /Users/NAME, /root and C:\\Users\\NAME, where a path begins."""

    def begins(self, width: int) -> Iterator[bytes]:
        """Of 4 letters only: in compressed bytes home folders occur by chance."""
        if width == _SHORT:
            yield from (b"/hom", b"/use", b"/roo", b"\\use")

    def found(self, before: bytes, there: bytes) -> tuple[str, int] | None:
        """The home of a user; not in the middle of a path, which may be a web address."""
        match = _HOME.match(there)
        if match and (there.startswith(b"\\") or not _MIDDLE.search(before.decode(errors="replace"))):
            return "the home of a user", match.end()
        return None


def _moment(ns: int) -> datetime:
    return datetime.fromtimestamp(ns // 10**9, UTC).replace(tzinfo=None)


def _begins_of(day: date) -> Iterator[str]:
    """The first 7 letters and more of all that _WRITTEN matches for this day."""
    for sep in ("", *"-_./"):
        yield sep.join((f"{day:%Y}", f"{day:%m}", f"{day:%d}"))
        yield from (sep.join((f"{day:%y}", f"{day:%m}", f"{day:%d}")) + after for after in _AFTER_DAY)
        if sep:
            yield sep.join((f"{day:%d}", f"{day:%m}", f"{day:%Y}"))
            yield sep.join((f"{day:%m}", f"{day:%d}", f"{day:%Y}"))
    name = _MONTHS[day.month - 1]
    for number in {f"{day.day}", f"{day.day:02}", f"{day.day:2}"}:
        for sep in ("", *" _-", "  "):
            yield from (f"{name}{sep}{number}{after}{hour:02}" for after in _AFTER_DAY for hour in range(24))
            yield from (f"{name}{sep}{number} {day.year}", f"{name}{sep}{number}, {day.year}")
        yield from (f"{number.strip()}{sep}{name}{sep}{day.year}" for sep in ("", *" _/-"))


def _meanings(match: re.Match[bytes], runs: Sequence[tuple[datetime, datetime]]) -> Iterator[datetime]:
    """The times that a text can mean; without a year, those in the years of the runs."""
    parts = {name: value.decode() for name, value in match.groupdict().items() if value is not None}
    if "name" in parts and parts["name"] not in _MONTHS:
        return
    month = _MONTHS.index(parts["name"]) + 1 if "name" in parts else int(parts["month"])
    years = {year for run in runs for year in range(run[0].year, run[1].year + 1)}
    if "year" in parts:
        years = {int(parts["year"]) + (2000 if len(parts["year"]) == 2 else 0)}
    for year in years:
        with contextlib.suppress(ValueError):
            yield datetime(year, month, int(parts["day"]), int(parts["hour"]), int(parts["minute"]))
