"""The rows of a regression: which size of the model they go by, and which of them lack a value."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from ddnn_traces.regression.results import Excluded

if TYPE_CHECKING:
    import polars as pl


def with_model_size(rows: pl.DataFrame, other_names: Iterable[str]) -> tuple[pl.DataFrame, str]:
    """Add `model_size` [bytes], from the one column that keeps most of the otherwise usable runs.

    The two are never mixed: the nominal size in MB is rounded and may count more than what is exchanged.
    """
    import polars as pl

    clean = _clean_numbers(rows)
    usable = clean.drop_nulls([name for name in other_names if name in clean.columns])
    sources = {"model_bytes": 1.0, "model_size_mb": 1e6}
    there = [name for name in sources if name in clean.columns]
    if not there:
        return clean.with_columns(model_size=pl.lit(None, pl.Float64)), "model_bytes"
    # max() takes the first of equals, and model_bytes, what is really exchanged, stands first
    source = max(there, key=lambda name: usable[name].count())
    return clean.with_columns(model_size=pl.col(source).cast(pl.Float64) * sources[source]), source


def _clean_numbers(rows: pl.DataFrame) -> pl.DataFrame:
    import polars as pl
    import polars.selectors as cs

    # DuckDB answers some sums as decimals
    return rows.with_columns((cs.float() | cs.decimal()).cast(pl.Float64).fill_nan(None))


def split_missing(rows: pl.DataFrame, names: Iterable[str], source: str) -> tuple[pl.DataFrame, tuple[Excluded, ...]]:
    """The rows with a value in every one of `names`, and the others with what they lack."""
    used = sorted(names)
    excluded = tuple(
        Excluded(str(row["run_id"]), _missing_reason([n for n in used if row[n] is None], source))
        for row in rows.iter_rows(named=True)
        if any(row[name] is None for name in used)
    )
    return rows.drop_nulls(used), excluded


def _missing_reason(names: Sequence[str], source: str) -> str:
    columns = [source if name == "model_size" else name for name in names]
    return f"{', '.join(columns)} {'is' if len(columns) == 1 else 'are'} missing"
