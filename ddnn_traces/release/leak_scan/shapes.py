"""What tells who or when by how it is written: dates with a time of day, and the homes of users."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Protocol

#: Bytes of the longest that a shape looks at.
SHAPE_BYTES = 48

#: Around a run, in which a time of day is the run's. Local time is up to 14 hours before and 12 behind UTC, and a run
#: is named a while before its first packet.
_NEAR = timedelta(hours=15)
_WIDTH = 4
_MOST_DAYS = 400  # of a run; longer ones have times that are wrong
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")

_BEHIND = "t%_.,@+/- "  # a day, what _BETWEEN begins with
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
_DIGIT = re.compile(rb"[0-9]$")
_HOME = re.compile(rb"(?:/(?:home|users|root)/|\\users[\\/]+)[0-9a-z_.\x80-\xff]")
#: What stands before a folder in the middle of a path; -I/home/alice is the begin of one, and so is file:///home/alice.
_NO_BEGIN = re.compile(r"(?<!^-)(?<![\W_]-)[^\W_]$|[.~]$|(?<!:/)/$")


class Shape(Protocol):
    """Something that is found by how it is written."""

    def begins(self, width: int) -> Iterable[bytes]:
        """What it begins with, `width` bytes each (4 to 8), in small letters."""

    def look(self, before: bytes, there: bytes) -> str | None:
        """What it is, where it stands at the begin of `there`, behind `before`; both in small letters."""


class Moments:
    """Times of day, to the minute or finer, within 15 hours of a run: its time in whatever time zone."""

    def __init__(self, times: Sequence[tuple[int, int]]) -> None:
        """times: first and last of each run, ns since the epoch."""
        self._runs = [
            (_when(first) - _NEAR, _when(last) + _NEAR) for first, last in times if 0 <= first <= last < 2**63 - 1
        ]

    def begins(self, width: int) -> Iterator[bytes]:
        """Of every day that a run is near to."""
        days = set()
        for first, last in self._runs:
            for number in range(min((last - first).days + 2, _MOST_DAYS)):
                days.add((first + timedelta(days=number)).date())
        return (text.encode() for text in {text[:width] for day in days for text in _begins(day)})

    def look(self, before: bytes, there: bytes) -> str | None:
        """The time of a run, unless a digit stands before it."""
        if _DIGIT.search(before):
            return None
        for pattern in _WRITTEN:
            if (match := pattern.match(there)) and any(map(self._is_near, _meant(match, self._runs))):
                return "the time of a run"
        return None

    def _is_near(self, time: datetime) -> bool:
        return any(first <= time <= last for first, last in self._runs)


class Homes:
    """Folders of users: /home/NAME, /Users/NAME, /root and C:\\Users\\NAME, where a path begins."""

    def begins(self, width: int) -> Iterator[bytes]:
        """None in compressed bytes, where they are a chance."""
        if width == _WIDTH:
            yield from (b"/hom", b"/use", b"/roo", b"\\use")

    def look(self, before: bytes, there: bytes) -> str | None:
        """The home of a user; not in the middle of a path, which may be a web address."""
        if _HOME.match(there) and (there.startswith(b"\\") or not _NO_BEGIN.search(before.decode(errors="replace"))):
            return "the home of a user"
        return None


def _when(ns: int) -> datetime:
    return datetime.fromtimestamp(ns // 10**9, UTC).replace(tzinfo=None)


def _begins(day: date) -> Iterator[str]:
    """The first 7 letters and more of all that _WRITTEN takes for this day."""
    for sep in ("", *"-_./"):
        yield sep.join((f"{day:%Y}", f"{day:%m}", f"{day:%d}"))
        yield from (sep.join((f"{day:%y}", f"{day:%m}", f"{day:%d}")) + behind for behind in _BEHIND)
        if sep:
            yield sep.join((f"{day:%d}", f"{day:%m}", f"{day:%Y}"))
            yield sep.join((f"{day:%m}", f"{day:%d}", f"{day:%Y}"))
    name = _MONTHS[day.month - 1]
    for number in {f"{day.day}", f"{day.day:02}", f"{day.day:2}"}:
        for sep in ("", *" _-", "  "):
            yield from (f"{name}{sep}{number}{behind}{hour:02}" for behind in _BEHIND for hour in range(24))
            yield from (f"{name}{sep}{number} {day.year}", f"{name}{sep}{number}, {day.year}")
        yield from (f"{number.strip()}{sep}{name}{sep}{day.year}" for sep in ("", *" _/-"))


def _meant(match: re.Match[bytes], runs: Sequence[tuple[datetime, datetime]]) -> Iterator[datetime]:
    """The times that were written; of one without a year, in those of the runs."""
    told = {name: value.decode() for name, value in match.groupdict().items() if value is not None}
    if "name" in told and told["name"] not in _MONTHS:
        return
    month = _MONTHS.index(told["name"]) + 1 if "name" in told else int(told["month"])
    years = {year for run in runs for year in range(run[0].year, run[1].year + 1)}
    if "year" in told:
        years = {int(told["year"]) + (2000 if len(told["year"]) == 2 else 0)}
    for year in years:
        with contextlib.suppress(ValueError):
            yield datetime(year, month, int(told["day"]), int(told["hour"]), int(told["minute"]))
