"""Names from outside and numbers as text: file names, text in SQL, digits."""

from __future__ import annotations

import difflib
import ipaddress
import math
import re
from collections.abc import Sequence
from typing import Any

#: Names that a message lists at most.
_MOST_NAMES = 100
#: Unicode's explicit directional formatting characters (UAX 9).
_BIDI = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
#: Characters that no name may bring into a terminal, a page or a chart: control characters, line ends, directional
#: formatting, halves of surrogate pairs (bytes of a file name that are not UTF-8), and what XML does not allow.
_UNSAFE = "\\x00-\\x1f\\x7f-\\x9f\\u2028\\u2029\\ud800-\\udfff\\ufffe\\uffff" + "".join(sorted(_BIDI))
_UNSAFE_CHARACTER = re.compile(f"[{_UNSAFE}]")
#: XML 1.0, 2.2; what draws SVG may end the process on it.
_NOT_XML = re.compile("[^\t\n\r\\x20-\\ud7ff\\ue000-\\ufffd\\U00010000-\\U0010ffff]")
#: What would read as the name of an unsafe byte, as valid_text writes it.
_LIKE_UNSAFE = re.compile(rf"[{_UNSAFE}]|%(?=[0189A-F][0-9A-F]|7F|25)")
#: Characters of a value that a message quotes at most.
_QUOTED = 100


def valid_text(name: str) -> str:
    """A name from outside as text that is safe everywhere: other characters as %XX, one for each byte.

    Two different names never become the same: a percent sign that reads like such a byte is %25.
    """
    return _LIKE_UNSAFE.sub(_percent, name)


def _percent(found: re.Match[str]) -> str:
    # a byte that is not UTF-8 is one of \udc80 to \udcff in the names that Python gives
    data = found[0].encode(errors="surrogateescape" if "\udc80" <= found[0] <= "\udcff" else "surrogatepass")
    return "".join(f"%{byte:02X}" for byte in data)


def printable(text: str) -> str:
    """Text for a terminal or a log: unsafe characters, also line ends, as they are escaped in Python (\\x1b, \\n)."""
    return _UNSAFE_CHARACTER.sub(lambda found: ascii(found[0])[1:-1], text)


def printable_lines(text: str) -> str:
    """The same of a text that has lines, such as DuckDB's message with the place of a mistake."""
    return "\n".join(map(printable, text.split("\n")))


def for_xml(text: str) -> str:
    """Text for a chart or a page: a character that XML does not allow is a question mark."""
    return _NOT_XML.sub("?", text)


def shown(value: Any) -> str:
    """A value as a message quotes it, never longer than a line."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # an integer of too many digits, lists in lists
        return f"a value of type {type(value).__name__} too long to be shown"
    return text if len(text) <= _QUOTED else f"{text[: _QUOTED - 3]}..."


def is_address(text: str) -> bool:
    """Whether a text is an IP address."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


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
    """A string as an SQL literal. Raises UnicodeEncodeError where it is not UTF-8, which DuckDB would not explain."""
    text.encode()
    return "'" + text.replace("'", "''") + "'"


def counted(number: int, noun: str) -> str:
    """A number of things, in words: 1 file, 1,200 files."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def as_sentence(line: str) -> str:
    """A line without a capital letter and full stop, as notes of commands are, with both."""
    return f"{line[:1].upper()}{line[1:]}."


def digits(value: float, figures: int = 3) -> str:
    """A number with so many significant digits, or all of a longer integer part: 0.00123, 12.3, 1,234.

    Without an exponent from 1e-9 on.
    """
    if value == 0 or not math.isfinite(value) or abs(value) < 1e-9:
        return f"{value:.{figures}g}"
    decimals = max(0, figures - 1 - math.floor(math.log10(abs(value))))
    text = f"{value:,.{decimals}f}"
    return text.rstrip("0").rstrip(".") if decimals else text


def natural_order(label: str) -> list[tuple[bool, int, str]]:
    """Sort key that puts worker-2 before worker-10."""
    parts = (part for part in re.split("([0-9]+)", label) if part)
    return [(True, int(part), part) if part[0] in "0123456789" else (False, 0, part) for part in parts]


def listed(names: Sequence[str], most: int) -> str:
    """The first names, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def meant(name: str, known: Sequence[str]) -> str:
    """The known names that a wrong one may have been meant for, as a question; empty where none is near."""
    near = difflib.get_close_matches(name, known)
    return f"did you mean {' or '.join(near)}?" if near else ""


def nearest(name: str, known: Sequence[str], most: int = _MOST_NAMES) -> str:
    """The known names that a wrong one may have been meant for, else the first `most` of them."""
    if question := meant(name, known):
        return question
    more = f", ... ({len(known)} in all)" if len(known) > most else ""
    return f"there are: {', '.join(known[:most]) or 'none'}{more}"
