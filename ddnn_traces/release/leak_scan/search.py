"""Searches bytes for many words at once (Aho-Corasick), and for what is recognised by its form: times, home folders,
keys of services.

A hit of the automaton is a candidate: it counts where its neighbours do not continue the word, or where the form is
complete.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import NamedTuple, Protocol

from ddnn_traces.errors import needs_extra

#: Letters of the shortest word that does not occur by chance in gigabytes of compressed bytes.
LONG = 7
_SHORT = 4
#: From this length on no word occurs by chance, and a name counts whatever precedes it: binary formats put a length
#: there, which may be a letter.
_SURE = 16
#: Bytes before and after a word that are examined: as many as a digest has digits.
AROUND_BYTES = 64
_MOST_KINDS = 20
#: Bytes that are searched at a time: this limits the memory for hits.
_CHUNK_BYTES = 1 << 20

_SECRET_KINDS = ("the key", "a secret")
#: Numbers with or without separators between them: a digit continues them, no letter does.
_NUMBERS = re.compile(rb"[0-9]+(?:[._-][0-9]+)*")
_HEX = re.compile(rb"[0-9a-f]+")
_HEX_BEFORE, _HEX_AFTER = re.compile(rb"[0-9a-f]*\Z"), re.compile(rb"[0-9a-f]*")
_HEX_DIGITS, _DIGITS = b"0123456789abcdef", b"0123456789"
#: Hex digits of the shortest digest; in one any few digits occur by chance.
_DIGEST_DIGITS = 32


class Found(NamedTuple):
    """What a shape finds. length: from where the candidate begins; before: bytes of it that stand before that."""

    kind: str
    length: int
    before: int = 0


class Shape(Protocol):
    """Something that is recognised by its form."""

    def starts(self, width: int) -> Iterable[bytes]:
        """The texts that it can begin with, 4 to 8 bytes each, in small letters. width: bytes of the shortest word."""

    def found(self, before: bytes, there: bytes) -> Found | None:
        """What stands at the start of `there`, which follows `before`; None for nothing."""


class Searcher:
    """Finds words in bytes.

    texts: words in small letters, found in any case where their neighbours do not continue them, each with its kind.
    binary: bytes, found unchanged. least: letters of the shortest word to search for; shorter ones are left out.
    shapes: what is recognised by its form. A kind may be followed by more in brackets. Raises MissingExtra.
    """

    def __init__(
        self, texts: Mapping[str, str], binary: Mapping[bytes, str], least: int = _SHORT, shapes: Iterable[Shape] = ()
    ) -> None:
        with needs_extra():
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
            for start in set(shape.starts(width)):
                self._candidates.setdefault(start, []).append(shape)
        #: Bytes of the longest word or shape.
        self.longest = max((_SHAPE_BYTES * bool(shapes), *(len(data) for data, _, _ in every), 1))
        self._patterns = list(self._candidates)
        self._automaton = BytesAhoCorasick(self._patterns, implementation=Implementation.DFA)

    def kinds(self, data: bytes | memoryview) -> Iterator[tuple[int, str]]:
        """Offset and kind of each word; the offsets are where the words begin, in ascending order."""
        return ((start, kind) for start, _, kind in self.spans(data))

    def spans(self, data: bytes | memoryview) -> Iterator[tuple[int, int, str]]:
        """Start, end and kind of each word, in the order of their starts."""
        for first in range(0, len(data), _CHUNK_BYTES):
            small = bytes(data[first : first + _CHUNK_BYTES + self.longest]).lower()
            matches = self._automaton.find_matches_as_indexes(small, overlapping=True)
            for start, pattern in sorted((start, pattern) for pattern, start, _ in matches if start < _CHUNK_BYTES):
                for found in self._verified(data, first + start, self._patterns[pattern]):
                    yield first + start - found.before, first + start + found.length, found.kind

    def _verified(self, data: bytes | memoryview, place: int, pattern: bytes) -> Iterator[Found]:
        there = bytes(data[place : place + self.longest + AROUND_BYTES])
        before = bytes(data[max(0, place - AROUND_BYTES) : place])
        for candidate in self._candidates[pattern]:
            if not isinstance(candidate, tuple):
                if found := candidate.found(before, there):
                    yield found
                continue
            word, kind, is_text = candidate
            if is_text:
                matches = there[: len(word)].lower() == word and not _continued(word, kind, before, there)
            else:
                matches = there.startswith(word)
            if matches:
                yield Found(kind, len(word))


def _continued(word: bytes, kind: str, before: bytes, there: bytes) -> bool:
    """Whether what stands before or after a word makes another word of it. there: begins with it, in any case."""
    kind = kind.partition(" (")[0]
    after = there[len(word) :]
    if kind in _SECRET_KINDS:
        return False
    if kind == "a path":
        return _is_letter(word[-1]) and after[:1].isalnum()
    if kind in ("an IP address", "a hardware address"):
        in_decimal = kind == "an IP address" and _NUMBERS.fullmatch(word)
        is_hex = not in_decimal or (len(word) == 8 and word.isdigit())  # 10.0.0.1 in hex has no letter
        return _goes_on(before, after, _HEX_DIGITS if is_hex else _DIGITS) or in_digest(word, before, after)
    joined = len(word) < _SURE and _joined(_text_before(before)[-1:], _text_after(there[: 2 * _SHORT]))
    return joined or _joined_after(there, len(word)) or in_digest(word, before, after)


def _goes_on(before: bytes, after: bytes, digits: bytes) -> bool:
    return before[-1:].lower() in _each(digits) or after[:1].lower() in _each(digits)


def _each(letters: bytes) -> set[bytes]:
    return {bytes([letter]) for letter in letters}


def in_digest(word: bytes, before: bytes, after: bytes) -> bool:
    """Whether a word of hex digits alone is part of a digest, where it stands by chance."""
    if len(word) >= _SURE or not _HEX.fullmatch(word):
        return False
    start, end = _HEX_BEFORE.search(before.lower()), _HEX_AFTER.match(after.lower())
    assert start and end
    return len(start[0]) + len(word) + len(end[0]) >= _DIGEST_DIGITS


def _joined(before: str, word: str) -> bool:
    """Whether the letter before a word continues it: a letter before a letter, a digit before a digit.

    In camelCase and HTTPServer a word begins where a small letter is followed by a capital, and at the last capital of
    several that is followed by a small letter.
    """
    if before.isdecimal() or not before.isalpha():
        return before.isdecimal() and word[:1].isdecimal()
    first, second = word[:1], word[1:2]
    return first.isalpha() and not (first.isupper() and (before.islower() or second.islower()))


def _joined_after(there: bytes, size: int) -> bool:
    """Likewise for the letter after a word, of `size` bytes."""
    last, after = _text_before(there[:size])[-1:], _text_after(there[size : size + 2 * _SHORT])
    return _joined(last, after) if after[:1].isalnum() else False


def _text_before(data: bytes) -> str:
    """The text that ends with these bytes. Bytes at its end that are not UTF-8 count as a letter."""
    for start in range(max(0, len(data) - 4), len(data)):
        try:
            last = data[start:].decode()
        except UnicodeDecodeError:
            continue
        return data[:start].decode("ascii", errors="replace") + last
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
        # to the hour
        r"(?P<year>\d{4})(?P<sep>[-_./]?)(?P<month>\d\d)(?P=sep)(?P<day>\d\d)[t_-](?P<hour>[0-2]\d)(?![0-9])",
    )
)
#: A date, which may follow its time of day: 06.18.23-21.11.2026.
_DATES = tuple(
    re.compile(pattern)
    for pattern in (
        rb"(?P<year>\d{4})(?P<sep>[-_./]?)(?P<month>\d\d)(?P=sep)(?P<day>\d\d)(?![0-9])",
        rb"(?P<day>\d\d)(?P<sep>[-_./])(?P<month>\d\d)(?P=sep)(?P<year>\d{4})(?![0-9])",
        rb"(?P<month>\d\d)(?P<sep>[-_./])(?P<day>\d\d)(?P=sep)(?P<year>\d{4})(?![0-9])",
    )
)
_CLOCK_BEFORE = re.compile(
    rb"(?<![0-9])(?P<hour>[0-2]\d)[:_.h-]?(?P<minute>[0-5]\d)(?:[:_.m-]?[0-5]\d)?s?[ _.,@+/-]{1,3}\Z", re.IGNORECASE
)
#: What may follow the minutes: seconds, their fraction, a time zone.
_SECONDS = re.compile(rb"(?:(?:[:_.-]|%3a)?[0-5][0-9](?:[.,][0-9]+)?)?(?:z|[+-][0-9]{2}:?[0-9]{2})?(?![0-9])")
_DIGIT = re.compile(rb"[0-9]\Z")
_HOME = re.compile(rb"(?:/(?:home|users|root)/|\\users[\\/]+)[0-9a-z_.\x80-\xff]")
#: What precedes a folder in the middle of a path. -I/home/alice is the start of a path, and so is file:///home/alice.
_MIDDLE = re.compile(r"(?<!^-)(?<![\W_]-)[^\W_]\Z|[.~]\Z|(?<!:/)/\Z")


class Moments:
    """Times of day, to the minute or finer, within 15 hours of a run: its time in whatever time zone.

    The start of the day of publication, as a data package states it, is none: a day is no time of a run.
    """

    def __init__(self, times: Sequence[tuple[int, int]], published: str = "") -> None:
        """times: first and last of each run, ns since the epoch. published: day of the release, YYYY-MM-DD."""
        self._published = f"{published}t00:00:00z".encode() if published else None
        self._runs = [
            (_moment(first) - _NEAR, _moment(last) + _NEAR) for first, last in times if 0 <= first <= last < 2**63 - 1
        ]

    def starts(self, width: int) -> Iterator[bytes]:
        """Those of every day that a run is near to."""
        days = set()
        for first, last in self._runs:
            for number in range(min((last - first).days + 2, _MOST_DAYS)):
                days.add((first + timedelta(days=number)).date())
        return (text.encode() for text in {text[:width] for day in days for text in _starts_of(day)})

    def found(self, before: bytes, there: bytes) -> Found | None:
        """The time of a run, unless a digit precedes it."""
        if _DIGIT.search(before):
            return None
        small = there.lower()
        if self._published and small.startswith(self._published):
            return None
        for pattern in _WRITTEN:
            if (match := pattern.match(small)) and any(map(self._is_near, _meanings(match.groupdict(), self._runs))):
                rest = _SECONDS.match(small, match.end())
                return Found("the time of a run", rest.end() if rest else match.end())
        if clock := _CLOCK_BEFORE.search(before):
            for pattern in _DATES:
                match = pattern.match(small)
                if match and any(map(self._is_near, _meanings(match.groupdict() | clock.groupdict(), self._runs))):
                    return Found("the time of a run", match.end(), len(clock[0]))
        return None

    def _is_near(self, time: datetime) -> bool:
        return any(first <= time <= last for first, last in self._runs)


class Homes:
    """Folders of users: /home/NAME, /Users/NAME, /root and C:\\Users\\NAME, where a path begins."""

    def starts(self, width: int) -> Iterator[bytes]:
        """Of 4 letters only: in compressed bytes home folders occur by chance."""
        if width == _SHORT:
            yield from (b"/hom", b"/use", b"/roo", b"\\use")

    def found(self, before: bytes, there: bytes) -> Found | None:
        """The home of a user; not in the middle of a path, which may be a web address."""
        match = _HOME.match(there.lower())
        if match and (there.startswith(b"\\") or not _MIDDLE.search(before.decode(errors="replace").lower())):
            return Found("the home of a user", match.end())
        return None


def _moment(ns: int) -> datetime:
    return datetime.fromtimestamp(ns // 10**9, UTC).replace(tzinfo=None)


def _starts_of(day: date) -> Iterator[str]:
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


def _meanings(groups: Mapping[str, bytes | None], runs: Sequence[tuple[datetime, datetime]]) -> Iterator[datetime]:
    """The times that parts of a text can mean; without a year, those in the years of the runs."""
    parts = {name: value.decode() for name, value in groups.items() if value is not None}
    if "name" in parts and parts["name"] not in _MONTHS:
        return
    month = _MONTHS.index(parts["name"]) + 1 if "name" in parts else int(parts["month"])
    years = {year for run in runs for year in range(run[0].year, run[1].year + 1)}
    if "year" in parts:
        years = {int(parts["year"]) + (2000 if len(parts["year"]) == 2 else 0)}
    for year in years:
        with contextlib.suppress(ValueError):
            yield datetime(year, month, int(parts["day"]), int(parts["hour"]), int(parts.get("minute", 0)))


#: Numbers near a run: within a day of it.
DAY_S = 86400
#: Seconds since the epoch before which a number is rather a count of something: March 1973.
_LEAST_S = 10**8
#: A number is recognised by its digits but for those of so many seconds, about a day.
_STEP_S = 10**5
_WHOLE = re.compile(rb"[0-9]+")
_HEX_SECONDS, _HEX_BEFORE_IT = re.compile(rb"[0-9a-f]{8}(?![0-9a-f])"), re.compile(rb"[0-9a-f]\Z")
_GROUPED = re.compile(rb"[0-9]{1,3}(?:[,_'][0-9]{3})+(?![0-9])")
_SCIENTIFIC = re.compile(rb"([0-9])\.([0-9]{4,})e\+?0*(8|9|1[0-8])(?![0-9])", re.IGNORECASE)
_MARKS, _GOES_ON, _FRACTION = re.compile(rb"[,_']"), re.compile(rb"[0-9][.]?\Z"), re.compile(rb"\.[0-9]+")
#: What says that a number is no time.
_BYTES_BEFORE = re.compile(rb"(?:bytes|size)[\"']?\s*[:=]\s*[\"']?\Z", re.IGNORECASE)
_BYTES_AFTER = re.compile(rb"[,_'0-9]* ?bytes", re.IGNORECASE)


class Instants:
    """Numbers of s, ms, us or ns since the epoch within a day of a run, whole or with a fraction; s in hex, too."""

    def __init__(self, times: Sequence[tuple[int, int]]) -> None:
        """times: first and last of each run, ns since the epoch."""
        self._runs = near(times, DAY_S * 10**9, 10**9)

    def starts(self, width: int) -> Iterator[bytes]:
        """The leading digits, which are the same in every unit: 12345, 1.2345e9, 1,234,5."""
        for first, last in self._runs:
            for number in range(max(first, _LEAST_S) // _STEP_S, last // _STEP_S + 1):
                digits = str(number)
                yield digits.encode()
                yield f"{digits[0]}.{digits[1:]}".encode()
                grouped = f"{number * _STEP_S:,}"[: len(digits) + 1 + (len(digits) == 5)]
                yield from (grouped.replace(",", mark).encode() for mark in ",_'")
            for number in range(max(first, _LEAST_S) >> 16, (last >> 16) + 1):
                yield f"{number:04x}".encode()

    def found(self, before: bytes, there: bytes) -> Found | None:
        """The time of a run; not a part of a longer number or of a digest, and no number of bytes."""
        if (hex_seconds := _HEX_SECONDS.match(there.lower())) and not _HEX_BEFORE_IT.search(before.lower()):
            seconds = int(hex_seconds[0], 16)
            if any(first <= seconds <= last for first, last in self._runs):
                return Found("the time of a run", hex_seconds.end())
        if _GOES_ON.search(before):
            return None
        for first, last, length in _seconds(there):
            if any(first <= run_last and last >= run_first for run_first, run_last in self._runs):
                after = there[length:]
                is_size = _BYTES_BEFORE.search(before) or _BYTES_AFTER.match(after)
                if not is_size and not in_digest(there[:length].lower(), before, after):
                    fraction = _FRACTION.match(after)
                    return Found("the time of a run", length + (fraction.end() if fraction else 0))
        return None


def _seconds(there: bytes) -> Iterator[tuple[int, int, int]]:
    """The seconds that a text can mean as a number of s, ms, us or ns: first, last, and the text's length."""
    if match := _SCIENTIFIC.match(there):
        digits, places = (match[1] + match[2])[:10], int(match[3])
        unknown = max(0, places + 1 - len(digits))
        for unit in (0, 3, 6, 9):
            if 8 <= places - unit <= 9:
                value = int(digits) * 10**unknown // 10**unit
                yield value, value + 10**unknown // 10**unit, match.end()
    elif match := _GROUPED.match(there) or _WHOLE.match(there):
        digits = _MARKS.sub(b"", match[0])
        for unit in (0, 3, 6, 9):
            if 9 <= len(digits) - unit <= 10:
                value = int(digits[: len(digits) - unit])
                yield value, value, match.end()


def near(times: Sequence[tuple[int, int]], around_ns: int, unit_ns: int = 1) -> list[tuple[int, int]]:
    """Runs with some time before and after, as numbers of a unit: first and last, without overlaps, in order."""
    merged: list[tuple[int, int]] = []
    for first, last in sorted(((first - around_ns) // unit_ns, (last + around_ns) // unit_ns) for first, last in times):
        if merged and first <= merged[-1][1] + 1:
            first, last = merged[-1][0], max(last, merged.pop()[1])
        merged.append((first, last))
    return merged


# --- keys of services

_TOKENS = re.compile(
    rb"(?:AKIA|ASIA|ABIA|ACCA)[0-9A-Z]{16}(?![0-9A-Za-z])"  # AWS
    rb"|gh[oprsu]_[0-9A-Za-z]{30,}|github_pat_[0-9A-Za-z_]{22,}|glpat-[0-9A-Za-z_-]{20,}"
    rb"|hf_[0-9A-Za-z]{20,}|npm_[0-9A-Za-z]{30,}|pypi-AgEI[0-9A-Za-z_-]{20,}"
    rb"|AIza[0-9A-Za-z_-]{35}|ya29\.[0-9A-Za-z_-]{20,}"  # Google
    rb"|xox[abeoprs]-[0-9A-Za-z-]{10,}|sk-[0-9A-Za-z_-]{20,}|dop_v1_[0-9a-f]{64}"
    rb"|[rs]k_(?:live|test)_[0-9A-Za-z]{16,}|whsec_[0-9A-Za-z]{24,}"  # Stripe
    rb"|wandb_v1_[0-9A-Za-z_]{20,}|nvapi-[0-9A-Za-z_-]{40,}|dckr_pat_[0-9A-Za-z_-]{20,}"
    rb"|eyJ[0-9A-Za-z_-]{10,}\.eyJ[0-9A-Za-z_-]{10,}"  # JSON web token (RFC 7519)
)
_PRIVATE_KEY = re.compile(rb"BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----")
#: A name that says that its value is secret, and a value of 8 letters or more.
_ASSIGNED = re.compile(
    rb"(?:passw(?:or)?d|passphrase|(?:access|auth|api|secret|refresh|bearer)?[_-]?token|(?:client[_-]?)?secret"
    rb"|api[_-]?key|(?:secret[_-]?)?access[_-]?key(?:[_-]?id)?|private[_-]?key|account[_-]?key)"
    rb"[\"']?(?P<sign>\s{0,2}[=:]\s{0,2})[\"']?(?P<value>[^\s\"',;<>(){}\[\]]{8,})",
    re.IGNORECASE,
)
#: So short a name stands by chance in headers of packets, but not before 8 letters that can be printed.
_SHORTLY = re.compile(rb"pw: [!-~]{8,}", re.IGNORECASE)
_LETTER = re.compile(rb"[A-Za-z]")
_BEARER = re.compile(rb"bearer\s+[0-9a-z_.~+/-]{16,}=*", re.IGNORECASE)
_IN_ADDRESS = re.compile(rb"://[^/\s:@\"'<>]+:[^/\s@\"'<>]{3,}@")
_TOKEN_STARTS = (
    "akia", "asia", "abia", "acca", "gho_", "ghp_", "ghr_", "ghs_", "ghu_", "github_p", "glpat-", "npm_", "pypi-age",
    "aiza", "ya29.", "xoxa-", "xoxb-", "xoxe-", "xoxo-", "xoxp-", "xoxr-", "xoxs-", "dop_v1_",
    "sk_live_", "sk_test_", "rk_live_", "rk_test_", "whsec_", "wandb_v1", "nvapi-", "dckr_pat",
)  # fmt: skip
_NAME_STARTS = (
    "passw", "passphra", "access", "auth", "api-", "api_", "apikey", "apitoken", "secret", "refresh", "bearer", "token",
    "client", "private", "account",
)  # fmt: skip


class Secrets:
    """Keys and tokens of services, private keys, passwords beside their names."""

    def starts(self, width: int) -> Iterator[bytes]:
        """Of names and tokens; hf_, sk- and eyJ with one letter more."""
        yield from (text.encode() for text in (*_TOKEN_STARTS, *_NAME_STARTS, "begin ", "http://", "https://"))
        for letter in "abcdefghijklmnopqrstuvwxyz0123456789_-":
            yield from (f"{start}{letter}".encode() for start in ("hf_", "sk-", "eyj"))
        yield b"pw: "

    def found(self, before: bytes, there: bytes) -> Found | None:
        """A secret; a token not where letters precede it."""
        if there[:4].lower() == b"http":
            match = _IN_ADDRESS.search(there[: 8 + _SHAPE_BYTES])
            return Found("a secret", match.end()) if match and match.start() <= 5 else None
        if (match := _TOKENS.match(there)) and not before[-1:].isalnum():
            return Found("a secret", match.end())
        if (match := _PRIVATE_KEY.match(there)) and before.endswith(b"-----"):
            return Found("a secret", match.end())
        if before[-1:].isalpha() and not (before[-1:].islower() and there[:1].isupper()):
            return None
        if (match := _ASSIGNED.match(there)) and _LETTER.search(match["value"]):
            sure = match["sign"] == b"=" or there[:4].lower() == b"pass" or re.search(rb"[0-9]", match["value"])
            return Found("a secret", match.end()) if sure else None
        if match := _BEARER.match(there) or _SHORTLY.match(there):
            return Found("a secret", match.end())
        return None
