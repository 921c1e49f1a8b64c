"""What the rows can tell apart: constant terms, aliased columns, terms for which there are too few runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ddnn_traces.regression.design import INDEPENDENT, INTERCEPT, Column, Design, unit

if TYPE_CHECKING:
    import polars as pl


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


@dataclass(frozen=True)
class Share:
    """What a term says that the other terms do not, whatever their order in the formula.

    others: independent columns of all other terms, which a fit without the term has. df: independent columns of the
    term beside them; 0 where dropping it loses nothing. rank: its independent columns. aliases: its columns that the
    others, and those before them, say too. by_levels: the formula has no intercept, but the levels of a term make one;
    others then has it, so that levels are compared with each other and not with 0.
    """

    others: tuple[Column, ...]
    df: int
    rank: int
    aliases: tuple[Alias, ...]
    by_levels: bool

    @property
    def is_whole(self) -> bool:
        """Whether no other term says part of it. A level that no row has is nobody's."""
        return not any(alias.carriers for alias in self.aliases)


def shares(columns: Sequence[Column]) -> dict[str, Share]:
    """The share of each term that has a column among these."""
    return {term: _share(columns, term) for term in dict.fromkeys(c.term for c in columns) if term != INTERCEPT}


def _share(columns: Sequence[Column], term: str) -> Share:
    own = [column for column in columns if column.term == term]
    # in an order that is not the formula's, so that the words are not either
    others = sorted((c for c in columns if c.term != term), key=lambda c: (c.term != INTERCEPT, c.term))
    beside, _ = split_aliased(others)
    kept, aliases = split_aliased([*beside, *own])
    constant = _constant(columns[0])
    with_constant, _ = split_aliased([constant, *others])
    is_spanned = len(split_aliased([*kept, constant])[0]) == len(kept)
    # a term that is a constant and nothing else can be compared with 0 only
    keep_constant = is_spanned and len(split_aliased([constant, *own])[0]) > 1
    if keep_constant:
        kept, aliases_beside_constant = split_aliased([*with_constant, *own])
        aliases = aliases if len(kept) > len(with_constant) else aliases_beside_constant
    by_levels = keep_constant and len(with_constant) > len(beside)
    beside = with_constant if keep_constant else beside
    return Share(tuple(beside), len(kept) - len(beside), len(split_aliased(own)[0]), tuple(aliases), by_levels)


def _constant(like: Column) -> Column:
    import numpy as np

    return Column(INTERCEPT, INTERCEPT, INTERCEPT, np.ones_like(like.values), -1)


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
