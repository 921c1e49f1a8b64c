"""Numbers and names as text of sentences and cells; a dash is a value that is not known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import polars as pl

from ddnn_traces.text import counted
from ddnn_traces.text import digits as plain_digits

#: The text of a value that is not known.
NOT_KNOWN = "–"


def text(value: Any) -> str:
    """A value unchanged."""
    return NOT_KNOWN if value is None else str(value)


def words(value: str | None) -> str:
    """A name of the data, for example reduce_scatter, as words."""
    return text(value).replace("_", " ")


def pair(value: str | None) -> str:
    """A sender and receiver on one line."""
    return text(value).replace(" ", "\N{NO-BREAK SPACE}")


def yes_no(value: bool | None) -> str:
    """A truth value."""
    return NOT_KNOWN if value is None else "yes" if value else "no"


def count(value: int | None) -> str:
    """All digits of a whole number, in groups of three."""
    return NOT_KNOWN if value is None else f"{value:,}"


def digits(value: float | None) -> str:
    """Three digits, or all of an integer part that has more."""
    return NOT_KNOWN if value is None else plain_digits(value)


def milliseconds(value: float | None) -> str:
    """A time with three digits."""
    return NOT_KNOWN if value is None else f"{plain_digits(value)} ms"


def times(value: float | None) -> str:
    """A multiple with three digits."""
    return NOT_KNOWN if value is None else f"{plain_digits(value)} times"


def percent(share: float | None) -> str:
    """A share of 1 in percent with three digits, but 100% only for all of it."""
    if share is None:
        return NOT_KNOWN
    if 0.9995 <= share < 1:
        return "more than 99.9%"
    return f"{plain_digits(100 * share)}%"


def size(value: float | None) -> str:
    """Bytes with three digits, in the largest unit (powers of 1000) of which there is at least one."""
    if value is None:
        return NOT_KNOWN
    for unit, factor in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if abs(value) >= factor:
            return f"{plain_digits(value / factor)} {unit}"
    return f"{value:.0f} B"


def rate(gbit_per_s: float | None) -> str:
    """A throughput with three digits, in the largest unit of which there is at least one."""
    if gbit_per_s is None:
        return NOT_KNOWN
    for unit, factor in (("Gbit/s", 1.0), ("Mbit/s", 1e-3)):
        if abs(gbit_per_s) >= factor:
            return f"{plain_digits(gbit_per_s / factor)} {unit}"
    return f"{plain_digits(gbit_per_s * 1e6)} kbit/s"


def number_of(value: Any) -> float:
    """An aggregate as a number; 0 where there was nothing to aggregate."""
    return float(value or 0)


#: From so many values on, a sentence has their median in place of the least and the most.
FEW = 5


def span(values: pl.Series, form: Callable[[float], str] = digits) -> str:
    """The least and the most of few values, the median of more, each in that form."""
    if values.drop_nulls().len() >= FEW and values.n_unique() > 1:
        return f"{form(number_of(values.median()))} (median)"
    low, high = (form(number_of(value)) for value in (values.min(), values.max()))
    return low if low == high else f"{low} to {high}"


def typical(frame: pl.DataFrame, column: str, form: Callable[[float], str] = digits) -> str:
    """The median over runs, each run's median counting once, with how many are outliers and which is the farthest.

    Outliers are those that a box plot draws apart: farther than 1.5 times the interquartile range from the quartiles
    (Tukey 1977). Of few runs the least and the most.
    """
    runs = frame.drop_nulls(column).group_by("run_id").agg(pl.col(column).median().cast(pl.Float64)).sort("run_id")
    values = runs[column]
    if runs.height < FEW:
        return span(values, form)
    low, high = (number_of(values.quantile(share, "linear")) for share in (0.25, 0.75))
    beyond = pl.max_horizontal(low - pl.col(column), pl.col(column) - high) - 1.5 * (high - low)
    outliers = runs.filter(beyond > 0).sort(beyond, "run_id", descending=[True, False])
    named = ""
    if outliers.height:
        run_id, value = outliers.row(0)
        kind = "one outlier" if outliers.height == 1 else f"{outliers.height:,} outliers, farthest"
        named = f"; {kind}: {form(value)} in {run_id}"
    return f"{form(number_of(values.median()))} (median of {runs.height:,} runs{named})"


def counts(values: pl.Series, noun: str) -> str:
    """The least and the most of few whole numbers of a noun, 3 to 5 flows; the median of more."""
    if values.drop_nulls().len() >= FEW and values.n_unique() > 1:
        middle = number_of(values.median())
        return f"{counted(int(middle), noun) if middle.is_integer() else f'{digits(middle)} {noun}s'} (median)"
    low, high = (int(number_of(value)) for value in (values.min(), values.max()))
    return counted(high, noun) if low == high else f"{low:,} to {counted(high, noun)}"
