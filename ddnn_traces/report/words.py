"""Numbers and names as a reader wants them in sentences and cells."""

from __future__ import annotations

from typing import Any

import polars as pl


def left_out(shown: int, total: int, query: str, noun: str = "run") -> str:
    """What a figure or table does not show, and where it is; nothing where all is shown."""
    if shown >= total:
        return ""
    return f"{number(total - shown, noun)} of {total:,} left out here; the query {query} has all."


def span(values: pl.Series, noun: str) -> str:
    low, high = (int(number_of(value)) for value in (values.min(), values.max()))
    return number(high, noun) if low == high else f"{low:,} to {number(high, noun)}"


def digits_span(values: pl.Series) -> str:
    low, high = (digits(number_of(value)) for value in (values.min(), values.max()))
    return low if low == high else f"{low} to {high}"


def percents(shares: pl.Series) -> str:
    low, high = (percent(number_of(value)) for value in (shares.min(), shares.max()))
    return low if low == high else f"{low} to {high}"


def number(count: Any, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def number_of(value: Any) -> float:
    return float(value or 0)


def text(value: Any) -> str:
    return "–" if value is None else str(value)


def words(value: str | None) -> str:
    return text(value).replace("_", " ")


def pair(value: str | None) -> str:
    """A sender and receiver on one line."""
    return text(value).replace(" ", "\N{NO-BREAK SPACE}")


def yes_no(value: bool | None) -> str:
    return "–" if value is None else "yes" if value else "no"


def count(value: int | None) -> str:
    return "–" if value is None else f"{value:,}"


def digits(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def percent(share: float | None) -> str:
    """Three digits, but 100% only for all of it."""
    if share is None:
        return "–"
    if 0.9995 <= share < 1:
        return "more than 99.9%"
    return f"{100 * share:.3g}%"


def size(value: float | None) -> str:
    """Bytes in the unit that suits them."""
    if value is None:
        return "–"
    for unit, factor in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if abs(value) >= factor:
            return f"{value / factor:.3g} {unit}" if abs(value) < 1000 * factor else f"{value / factor:,.0f} {unit}"
    return f"{value:.0f} B"


def size_span(values: pl.Series) -> str:
    low, high = (size(number_of(value)) for value in (values.min(), values.max()))
    return low if low == high else f"{low} to {high}"
