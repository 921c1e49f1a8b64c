"""Names from outside: file names as text, text in SQL."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

#: Names that a message lists at most.
_MOST_NAMES = 100
#: Unicode's explicit directional formatting characters (UAX 9).
_BIDI = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def valid_text(name: str) -> str:
    """A file name as text; bytes that are not UTF-8 become question marks."""
    return name.encode(errors="replace").decode()


def is_plain_name(name: str) -> bool:
    """Whether a name can be that of a file in a folder, on every system, and not of a hidden one."""
    return bool(name.strip()) and name.isprintable() and not name.startswith(".") and not {"/", "\\"} & set(name)


def without_bidi(text: str) -> str:
    """A text without the control characters that turn the direction of writing, and so show it other than it is."""
    return "".join(letter for letter in text if letter not in _BIDI)


def one_line(text: str) -> str:
    """Text as one line: each run of characters that cannot be printed, line ends too, is one blank."""
    return " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())


def sql_literal(text: str) -> str:
    """A string as an SQL literal."""
    return "'" + text.replace("'", "''") + "'"


def counted(number: int, noun: str) -> str:
    """A number of things, in words: 1 file, 1,200 files."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def listed(names: Sequence[str], most: int) -> str:
    """The first names, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def nearest(name: str, known: Sequence[str]) -> str:
    """The known names that a wrong one may have been meant for, else all of them (of many the first)."""
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.4)
    if near:
        return f"did you mean {' or '.join(near)}?"
    more = f", ... ({len(known)} in all)" if len(known) > _MOST_NAMES else ""
    return f"there are: {', '.join(known[:_MOST_NAMES]) or 'none'}{more}"
