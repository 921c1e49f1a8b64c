"""The rows of a regression: numbers made plain, and rows that lack a value set aside with the reason."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from ddnn_traces.regression.results import Excluded

if TYPE_CHECKING:
    import polars as pl

#: Columns that name a row, and are never part of a formula's answer.
RUN, STEP = "run_id", "step"


def clean_numbers(rows: pl.DataFrame) -> pl.DataFrame:
    """Decimals, which DuckDB makes of some sums, as floats, and NaN as null."""
    import polars as pl
    import polars.selectors as cs

    return rows.with_columns((cs.float() | cs.decimal()).cast(pl.Float64).fill_nan(None))


def split_missing(rows: pl.DataFrame, names: Iterable[str]) -> tuple[pl.DataFrame, tuple[Excluded, ...]]:
    """The rows with a finite value in every one of `names`, and the runs of the others with what they lack."""
    import polars as pl

    used = sorted(names)
    infinite = [name for name in used if rows.schema[name].is_float()]
    usable = pl.all_horizontal(
        *(pl.col(name).is_not_null() for name in used), *(pl.col(name).is_finite() for name in infinite)
    )
    reasons: dict[tuple[str, str], int] = {}
    for row in rows.filter(~usable.fill_null(False)).iter_rows(named=True):
        key = (str(row[RUN]), _reason(row, used))
        reasons[key] = reasons.get(key, 0) + 1
    excluded = tuple(Excluded(run_id, reason, count) for (run_id, reason), count in reasons.items())
    return rows.filter(usable.fill_null(False)), excluded


def _reason(row: Mapping[str, object], names: Sequence[str]) -> str:
    missing = [name for name in names if row[name] is None]
    infinite = [name for name in names if isinstance(row[name], float) and row[name] in (float("inf"), -float("inf"))]
    parts = [
        f"{', '.join(found)} {'is' if len(found) == 1 else 'are'} {what}"
        for found, what in ((missing, "missing"), (infinite, "infinite"))
        if found
    ]
    return "; ".join(parts)
