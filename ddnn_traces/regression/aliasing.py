"""What the rows can tell apart: constant terms, aliased columns, terms for which there are too few runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ddnn_traces.regression.design import INTERCEPT, Column, Design, unit

if TYPE_CHECKING:
    import polars as pl

# Of a column scaled to length 1, what must be left after the columns before it are projected out. Rounding leaves
# 1e-15; the nearly collinear Longley data leaves 1e-5.
INDEPENDENT = 1e-9


def constant_terms(design: Design, frame: pl.DataFrame) -> dict[str, str]:
    """The terms that have one value in all runs, with that value as the reason."""
    reasons = {}
    for term in design.terms:
        constant = [name for name in term.variables if frame[name].n_unique() == 1]
        has_columns = any(column.term == term.name for column in design.columns)
        # without an intercept a constant column takes its place, and can be estimated
        if not has_columns or (design.has_intercept and len(constant) == len(term.variables)):
            values = " and ".join(f"{name} = {frame[name][0]}" for name in constant)
            reasons[term.name] = f"every run has {values}" if values else "the terms before it say the same"
    return reasons


def crowded_terms(design: Design, gone: Mapping[str, str]) -> dict[str, str]:
    """Terms to drop, from the formula's end, until a residual degree of freedom is left.

    A fit with as many coefficients as runs goes through every run: it has R² 1 and no standard errors.
    """
    runs = len(design.response)
    terms = [term.name for term in design.terms if term.name not in gone]
    reasons = {}
    while terms:
        columns = [c for c in design.columns if c.term == INTERCEPT or c.term in terms]
        if len(split_aliased(columns)[0]) < runs:
            break
        reasons[terms.pop()] = f"{runs} runs for {len(columns)} coefficients"
    return reasons


@dataclass(frozen=True)
class Alias:
    """A column that is a linear combination of `carriers`, which stand before it."""

    column: Column
    carriers: tuple[Column, ...]


def split_aliased(columns: Sequence[Column]) -> tuple[list[Column], list[Alias]]:
    """Walk through the columns and keep each that says something new (Gram-Schmidt on columns of length 1).

    The scaling matters: beside model sizes of 1e9 bytes, the ones of a level would pass for rounding.
    """
    import numpy as np

    kept: list[Column] = []
    aliases: list[Alias] = []
    basis = np.empty((len(columns[0].values) if columns else 0, 0))
    for column in columns:
        rest = unit(column.values)
        for _ in range(2):  # once leaves rounding of the projected part, twice is enough
            rest = rest - basis @ (basis.T @ rest)
        size = np.linalg.norm(rest)
        if size > INDEPENDENT:
            basis = np.column_stack([basis, rest / size])
            kept.append(column)
        else:
            aliases.append(Alias(column, _carriers(column, kept)))
    return kept, aliases


def _carriers(column: Column, kept: Sequence[Column]) -> tuple[Column, ...]:
    import numpy as np

    if not kept:
        return ()
    weights = np.linalg.lstsq(np.column_stack([unit(k.values) for k in kept]), unit(column.values), rcond=None)[0]
    return tuple(k for k, weight in zip(kept, weights, strict=True) if abs(weight) > 1e-6)


def alias_sentence(alias: Alias, design: Design, frame: pl.DataFrame) -> str:
    """Say what a dropped column cannot be told apart from."""
    label = alias.column.label
    if not alias.column.values.any():
        return f"no run has {label}"
    together = _always_together(alias, design, frame)
    if together:
        return f"{label} cannot be told apart from {together}: they always occur together"
    others = [c.label for c in alias.carriers if c.term != INTERCEPT] or ["the intercept"]
    return f"{label} cannot be told apart from {'' if len(others) == 1 else 'a combination of '}{', '.join(others)}"


def _always_together(alias: Alias, design: Design, frame: pl.DataFrame) -> str | None:
    """The levels of one earlier term that stand in the same runs as a dropped level, and in no others."""
    carriers = {column.term for column in alias.carriers} - {INTERCEPT}
    if len(carriers) != 1 or not design.term(alias.column.term).categorical:
        return None
    carrier = design.term(carriers.pop())
    if not carrier.categorical or len(carrier.variables) != 1:
        return None
    here = alias.column.values != 0
    values = frame[carrier.variables[0]].to_list()
    levels = {value for value, is_here in zip(values, here, strict=True) if is_here}
    if any((value in levels) != is_here for value, is_here in zip(values, here, strict=True)):
        return None
    return f"{carrier.variables[0]} = {' or '.join(str(level) for level in sorted(levels))}"
