"""From rows to the columns of a fit: usable rows, the design that a formula makes of them, and its independent columns.

patsy evaluates the formula. Rows that it cannot use are excluded with the reason. Columns that others span are dropped,
and each term's share is the part that the other terms do not span.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl
import polars.selectors as cs

from ddnn_traces.errors import RegressionError
from ddnn_traces.regression.estimate import INDEPENDENT, ROUNDING, Column, Vector
from ddnn_traces.regression.formula import INTERCEPT, Formula, not_evaluated, variables
from ddnn_traces.regression.results import SIZES, VOLUMES, Excluded
from ddnn_traces.text import counted

#: Columns that identify a row, and are never part of a formula's result.
RUN, STEP = "run_id", "step"
#: Column that fits add: the cell of a row, by the name of its first run.
CELL = "_cell"
#: Columns of the runs' rows that are measured or counted, and not set.
MEASURED = frozenset(
    {RUN, STEP, CELL, *VOLUMES, "step_ms", "samples_per_s", "duration_s", "normalised_duration", "comparable_s",
     "steps", "finished", "disturbance", "left_out_reason"}
)  # fmt: skip
#: What the maker of a run sets: runs that agree in all of it are repeats of a cell.
SETTINGS = (
    "framework_backend", "model", "model_bytes", "model_size_mb", "nominal_bytes", "batch_size", "topology", "workers",
    "ranks_per_host", "optimizer", "delay_ms", "loss_pct", "bandwidth_mbit", "congestion_control", "epochs",
    "planned_steps", "variant", "offload", "fault", "source",
)  # fmt: skip
#: Usable runs that a fit needs.
MIN_RUNS = 3
# Largest values of a column, between which sums of squares neither vanish nor overflow.
_SQUARABLE = (1e-140, 1e140)


# --- rows


def clean_numbers(rows: pl.DataFrame) -> pl.DataFrame:
    """Decimals, which DuckDB makes of some sums, as floats, and NaN as null."""
    return rows.with_columns((cs.float() | cs.decimal()).cast(pl.Float64).fill_nan(None))


def usable_rows(rows: pl.DataFrame, formula: Formula) -> tuple[pl.DataFrame, tuple[Excluded, ...]]:
    """The rows for which every column and part of `formula` is a finite number, and the runs of the others.

    rows: as of clean_numbers. A formula that cannot be evaluated at all is left to make_design.
    """
    complete, missing = split_missing(rows, formula.names)
    usable, infinite = _split_infinite(complete, formula)
    return usable, (*missing, *infinite)


def split_missing(rows: pl.DataFrame, names: Iterable[str]) -> tuple[pl.DataFrame, tuple[Excluded, ...]]:
    """The rows with a finite value in every one of `names`, and the runs of the others with the missing columns."""
    used = sorted(names)
    floats = [name for name in used if rows.schema[name].is_float()]
    usable = pl.all_horizontal(
        *(pl.col(name).is_not_null() for name in used), *(pl.col(name).is_finite() for name in floats)
    ).fill_null(False)
    excluded = []
    for row in rows.filter(~usable).iter_rows(named=True):
        missing = [name for name in used if row[name] is None]
        infinite = [name for name in used if isinstance(row[name], float) and math.isinf(row[name])]
        parts = ((missing, "missing"), (infinite, "infinite"))
        excluded.append((row[RUN], "; ".join(_are(found, reason) for found, reason in parts if found)))
    return rows.filter(usable), _excluded(excluded)


def _are(names: Sequence[str], reason: str) -> str:
    return f"{', '.join(names)} {'is' if len(names) == 1 else 'are'} {reason}"


def _excluded(rows: Iterable[tuple[Any, str]]) -> tuple[Excluded, ...]:
    counts = Counter((str(run), reason) for run, reason in rows)
    return tuple(Excluded(run, reason, count) for (run, reason), count in counts.items())


def _split_infinite(rows: pl.DataFrame, formula: Formula) -> tuple[pl.DataFrame, tuple[Excluded, ...]]:
    """The rows for which every part of `formula` is a finite number, and the runs of the others with those parts."""
    import patsy

    if rows.is_empty():
        return rows, ()
    parts: dict[str, Vector] = {}

    class Recorded(patsy.NAAction):  # type: ignore[misc]
        """Records the rows in which a part is not finite, and removes none."""

        def is_numerical_NA(self, values: Any) -> Any:
            finite = np.isfinite(values)
            return ~(finite if finite.ndim == 1 else finite.all(axis=1))

        def handle_NA(self, values: Any, is_NAs: Any, origins: Any) -> Any:
            parts.update((o.relevant_code(), mask) for o, mask in zip(origins, is_NAs, strict=True) if o and mask.any())
            return values

    try:
        _matrices(rows, formula, Recorded())
    except RegressionError:
        return rows, ()
    if not parts:
        return rows, ()
    found = ([name for name, mask in parts.items() if mask[row]] for row in range(rows.height))
    reasons = [(run, _are(names, "not a finite number")) for run, names in zip(rows[RUN], found, strict=True) if names]
    return rows.filter(pl.Series(~np.any(list(parts.values()), axis=0))), _excluded(reasons)


# --- cells


def with_cells(rows: pl.DataFrame, formula: Formula) -> pl.DataFrame:
    """The rows with their cell: rows of the same SETTINGS, and of the same attributes of the formula's right side.

    Runs of which an attribute is not known agree in it. A repeated cell is called by its first run and the number of
    the others: `run-1 (+4)`.
    """
    of_formula = sorted(formula.right_names - MEASURED - set(SETTINGS))
    settings = [*(name for name in SETTINGS if name in rows.columns), *of_formula]
    if not settings:
        return rows.with_columns(pl.col(RUN).cast(pl.String).alias(CELL))
    runs = rows.select(RUN, *settings).unique(RUN, keep="first", maintain_order=True)
    first, others = pl.col(RUN).first().over(settings), pl.len().over(settings) - 1
    name = pl.when(others == 0).then(first).otherwise(pl.format("{} (+{})", first, others))
    return rows.join(runs.select(RUN, name.alias(CELL)), on=RUN, how="left", maintain_order="left")


def averaged(design: Design, rows: pl.DataFrame) -> tuple[Design, pl.DataFrame]:
    """The design of the cells' means, and the first row of each cell: its attributes.

    The left side is averaged as it is fitted (of logarithms the mean of logarithms), each cell with weight 1: where
    cells differ by more than their runs do, the number of runs says little about a cell's mean.
    """
    first = rows.unique(CELL, keep="first", maintain_order=True)
    places = {cell: place for place, cell in enumerate(first[CELL])}
    numbers = np.array([places[cell] for cell in rows[CELL]], dtype=int)
    counts = np.bincount(numbers, minlength=first.height)

    def mean(values: Vector) -> Vector:
        return np.asarray(np.bincount(numbers, weights=values, minlength=first.height) / counts)

    columns = tuple(replace(column, values=mean(column.values)) for column in design.columns)
    return replace(design, response=mean(design.response), columns=columns), first


# --- the design


@dataclass(frozen=True)
class Term:
    """A term of the formula. reference: the level that the others are compared with, `topology = ring`."""

    name: str
    variables: tuple[str, ...]
    categorical: bool
    reference: str | None


@dataclass(frozen=True)
class Design:
    """The left side and the columns of the right side, in formula order."""

    formula: Formula
    response: Vector
    terms: tuple[Term, ...]
    columns: tuple[Column, ...]

    @property
    def has_intercept(self) -> bool:
        return any(column.term == INTERCEPT for column in self.columns)

    def term(self, name: str) -> Term:
        return next(term for term in self.terms if term.name == name)


def make_design(rows: pl.DataFrame, formula: Formula) -> Design:
    """Evaluate `formula`, the terms in formula order. Raises RegressionError."""
    import patsy

    left, right = _matrices(rows, formula, patsy.NAAction(on_NA="raise"))
    if left.shape[1] != 1:
        raise RegressionError(f"The left side of the formula must be one number a row: {formula.text}")
    if not (np.isfinite(left).all() and np.isfinite(right).all()):
        raise RegressionError(f"The formula {formula.text} is infinite for some row; look for a logarithm of 0")
    for values in (left, *right.T):
        largest = float(np.abs(values).max(initial=0.0))
        if largest and not _SQUARABLE[0] < largest < _SQUARABLE[1]:
            raise RegressionError(f"The squares of numbers of the formula {formula.text} overflow or vanish")
    info = right.design_info
    # patsy puts the categorical terms first; the formula's order decides which of two aliased terms stays
    order = [term.name() for term in patsy.ModelDesc.from_formula(formula.text).rhs_termlist]
    by_name = sorted(zip(info.term_names, info.terms, strict=True), key=lambda pair: order.index(pair[0]))
    return Design(
        formula=formula,
        response=np.asarray(left)[:, 0],
        terms=tuple(_term(name, term, info) for name, term in by_name if name != INTERCEPT),
        columns=tuple(column for _, term in by_name for column in _columns(term, right)),
    )


def _matrices(rows: pl.DataFrame, formula: Formula, action: Any) -> tuple[Any, Any]:
    """Left and right side as patsy's design matrices. Raises RegressionError."""
    import patsy

    data = {name: _values(rows, name, name in formula.numeric_names) for name in formula.names}
    environment = patsy.EvalEnvironment([{"np": np}])
    try:
        with np.errstate(all="ignore"):
            left, right = patsy.dmatrices(formula.text, data, environment, NA_action=action)
    except (patsy.PatsyError, SyntaxError) as error:
        raise not_evaluated(formula, error) from error
    return left, right


def _values(rows: pl.DataFrame, name: str, numeric: bool) -> Any:
    """A column for patsy. Whole numbers in arithmetic become floats, for int64 overflows silently."""
    import pandas as pd

    column = rows[name]
    if column.dtype.is_numeric():
        is_level = column.dtype.is_integer() and not numeric
        return column.cast(pl.Int64 if is_level else pl.Float64).to_numpy()
    # patsy compares with the first category: the most frequent one says more than the first in the alphabet
    texts = column.cast(pl.String)
    counts = Counter(texts.sort().to_list())
    return pd.Categorical(texts.to_list(), categories=[text for text, _ in counts.most_common()])


def _term(name: str, term: Any, info: Any) -> Term:
    infos = [info.factor_infos[factor] for factor in term.factors]
    categorical = any(i.type == "categorical" for i in infos)
    columns = info.term_name_slices[name]
    reference = None
    if categorical and len(infos) == 1 and columns.stop - columns.start == len(infos[0].categories) - 1:
        reference = f"{_bare(term.factors[0].name())} = {infos[0].categories[0]}"
    return Term(name, variables(term), categorical, reference)


def _columns(term: Any, matrix: Any) -> list[Column]:
    factors = [factor.name() for factor in term.factors]
    # numpy 2 writes a level as np.int64(64), and patsy takes that for its name
    names = [re.sub(r"np\.\w+\(([^()]*)\)(?=\])", r"\1", name) for name in matrix.design_info.column_names]
    numbers = range(*matrix.design_info.term_name_slices[term.name()].indices(len(names)))
    values = np.asarray(matrix)
    return [Column(names[i], term.name(), _label(names[i], factors), values[:, i]) for i in numbers]


def _label(column: str, factors: Sequence[str]) -> str:
    """`C(topology)[T.star]` as `topology = star`; a column of numbers is its own label."""
    pattern = ":".join(rf"{re.escape(factor)}(?:\[(?:T\.)?(.*)\])?" for factor in factors)
    match = re.fullmatch(pattern, column, re.DOTALL)
    if not factors or match is None:
        return column
    return " and ".join(
        factor if level is None else f"{_bare(factor)} = {level}"
        for factor, level in zip(factors, match.groups(), strict=True)
    )


def _bare(factor: str) -> str:
    return factor.removeprefix("C(").removesuffix(")") if factor.startswith("C(") else factor


def is_constant(values: Vector) -> bool:
    """Whether all values are the same to within rounding."""
    return bool(values.max() - values.min() <= ROUNDING * abs(values).max())


# --- scatter

#: Powers of the model's size with which the deviation of a row may grow.
POWERS = (0.0, 0.5, 1.0)


def scatter_power(
    response: Vector, columns: Sequence[Column], rows: pl.DataFrame, formula: Formula,
    powers: Sequence[float] = POWERS,
) -> tuple[float, Vector]:  # fmt: skip
    """The power of the model's size with which the scatter of rows grows, and each row's deviation by it.

    The one of `powers` with the largest restricted likelihood (Patterson and Thompson 1971). 0 without a size on the
    right, and of a left side that is no plain column.
    """
    relative = relative_sizes(rows, formula)
    if relative is None:
        return 0.0, np.ones(len(response))
    matrix = np.column_stack([unit(column.values) for column in columns])
    best = max(powers, key=lambda power: _restricted_likelihood(response, matrix, relative**power))
    return best, relative**best


def relative_sizes(rows: pl.DataFrame, formula: Formula) -> Vector | None:
    """Sizes of the model over their mean; None where the scatter of rows cannot grow with them."""
    size = next((name for name in SIZES if name in formula.right_names), None)
    if size is None or formula.left not in formula.left_names or not (rows[size] > 0).all():
        return None
    return rows[size].to_numpy().astype(float) / mean(rows, size)


def mean(rows: pl.DataFrame, name: str) -> float:
    return float(np.mean(rows[name].to_numpy()))


def _restricted_likelihood(response: Vector, matrix: Vector, deviations: Vector) -> float:
    """Logarithm of the restricted likelihood, without its constant; minus infinity of a fit through all rows."""
    basis, triangle = np.linalg.qr(matrix / deviations[:, None])
    scaled = response / deviations
    residuals = scaled - basis @ (basis.T @ scaled)
    squares, df = float(residuals @ residuals), len(response) - matrix.shape[1]
    if np.sqrt(squares) <= ROUNDING * np.linalg.norm(scaled):
        return -math.inf
    determinant = float(np.log(np.abs(np.diag(triangle))).sum())
    return float(-0.5 * df * math.log(squares) - np.log(deviations).sum() - determinant)


# --- independent columns


def unit(values: Vector) -> Vector:
    """The column scaled to length 1; zeros stay zeros."""
    norm = np.linalg.norm(values)
    return values / norm if norm > 0 else values


def constant_terms(design: Design, rows: pl.DataFrame) -> dict[str, str]:
    """The terms that have one value in all runs, with that value as the reason."""
    reasons = {}
    for term in design.terms:
        constant = [name for name in term.variables if rows[name].n_unique() == 1]
        has_columns = any(column.term == term.name for column in design.columns)
        # without an intercept a constant column takes its place, and can be estimated
        if not has_columns or (design.has_intercept and len(constant) == len(term.variables)):
            values = " and ".join(f"{name} = {rows[name][0]}" for name in constant)
            reasons[term.name] = f"every run has {values}" if values else "the terms before it contain it"
    return reasons


def crowded_terms(design: Design, dropped: Mapping[str, str]) -> dict[str, str]:
    """Terms to drop, from the formula's end, until a residual degree of freedom is left.

    A fit with as many coefficients as runs passes through every run: it has R² 1 and no standard errors.
    """
    runs = len(design.response)
    terms = [term.name for term in design.terms if term.name not in dropped]
    reasons = {}
    while terms:
        columns = [c for c in design.columns if c.term == INTERCEPT or c.term in terms]
        if len(split_aliased(columns)[0]) < runs:
            break
        reasons[terms.pop()] = f"{counted(runs, 'run')} for {counted(len(columns), 'coefficient')}"
    return reasons


@dataclass(frozen=True)
class Alias:
    """A column that is a linear combination of `carriers`, which stand before it."""

    column: Column
    carriers: tuple[Column, ...]


def split_aliased(columns: Sequence[Column]) -> tuple[list[Column], list[Alias]]:
    """The columns that are independent of those before them, and the others (Gram-Schmidt on columns of length 1).

    The scaling matters: compared with model sizes of 1e9 bytes, the ones of a level would pass for rounding.
    """
    kept: list[Column] = []
    aliases: list[Alias] = []
    basis = np.empty((len(columns[0].values) if columns else 0, 0))
    for column in columns:
        rest = unit(column.values)
        for _ in range(2):  # one projection leaves rounding of the projected part, two are enough
            rest = rest - basis @ (basis.T @ rest)
        size = np.linalg.norm(rest)
        if size > INDEPENDENT:
            basis = np.column_stack([basis, rest / size])
            kept.append(column)
        else:
            units = np.column_stack([np.empty((len(column.values), 0)), *(unit(k.values) for k in kept)])
            weights = np.linalg.lstsq(units, unit(column.values), rcond=None)[0]
            carriers = tuple(k for k, weight in zip(kept, weights, strict=True) if abs(weight) > 1e-6)
            aliases.append(Alias(column, carriers))
    return kept, aliases


@dataclass(frozen=True)
class Share:
    """The part of a term that the other terms do not span, whatever their order in the formula.

    others: independent columns of all other terms, which a fit without the term has. df: independent columns of the
    term in addition to them; 0 where dropping it loses nothing. rank: its independent columns. aliases: its columns
    that the others, and those before them, span. by_levels: the formula has no intercept, but the levels of a term make
    one; others then has it, so that levels are compared with each other and not with 0.
    """

    others: tuple[Column, ...]
    df: int
    rank: int
    aliases: tuple[Alias, ...]
    by_levels: bool

    @property
    def is_whole(self) -> bool:
        """Whether no other term spans part of it. A level that no row has belongs to no term."""
        return not any(alias.carriers for alias in self.aliases)


def shares(columns: Sequence[Column]) -> dict[str, Share]:
    """The share of each term that has a column among these."""
    return {term: _share(columns, term) for term in dict.fromkeys(c.term for c in columns) if term != INTERCEPT}


def _share(columns: Sequence[Column], term: str) -> Share:
    own = [column for column in columns if column.term == term]
    # in an order that does not depend on the formula's, so that the sentences do not either
    sorted_others = sorted((c for c in columns if c.term != term), key=lambda c: (c.term != INTERCEPT, c.term))
    others, _ = split_aliased(sorted_others)
    kept, aliases = split_aliased([*others, *own])
    constant = Column(INTERCEPT, INTERCEPT, INTERCEPT, np.ones_like(columns[0].values))
    with_constant, _ = split_aliased([constant, *sorted_others])
    is_spanned = len(split_aliased([*kept, constant])[0]) == len(kept)
    # a term that is a constant and nothing else can be compared with 0 only
    keep_constant = is_spanned and len(split_aliased([constant, *own])[0]) > 1
    by_levels = keep_constant and len(with_constant) > len(others)
    if keep_constant:
        kept, aliases_with_constant = split_aliased([*with_constant, *own])
        aliases = aliases if len(kept) > len(with_constant) else aliases_with_constant
        others = with_constant
    return Share(tuple(others), len(kept) - len(others), len(split_aliased(own)[0]), tuple(aliases), by_levels)
