"""Names from outside: file names as text, text in SQL."""

from __future__ import annotations


def valid_text(name: str) -> str:
    """A file name as text; bytes that are not UTF-8 become question marks."""
    return name.encode(errors="replace").decode()


def sql_literal(text: str) -> str:
    """A string as an SQL literal."""
    return "'" + text.replace("'", "''") + "'"
